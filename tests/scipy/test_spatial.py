"""`scipy.spatial.distance` and kernel densities: values of SciPy, derivatives of differences."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.spatial
import scipy.spatial.distance as dist
import scipy.stats as st

import adarray
from adarray.scipy.spatial import distance as ours
from tests.support.trust import check

U = np.array([0.7, 1.3, 0.4, 1.9])
V = np.array([1.1, 0.2, 0.9, 1.4])
W = np.array([0.5, 1.0, 2.0, 0.25])
A = np.array([[0.7, 1.3], [0.4, 1.9], [1.1, 0.8]])
B = np.array([[1.0, 0.1], [0.3, 0.6], [1.5, 1.25], [0.2, 2.0]])
C = np.array([[2.0, 0.3], [0.3, 1.0]])


def refused(f, args, modes=("intercept", "jit(grad)")):
    return check(f, args, modes, backends=("serial",), calls=3)["refused"]


WEIGHTED = ("sqeuclidean", "euclidean", "cityblock", "chebyshev", "minkowski", "correlation",
            "cosine", "canberra", "braycurtis")  # fmt: skip
VECTORS = {
    **{n: (n, (), {}) for n in WEIGHTED},
    **{f"{n} with weights": (n, (), {"w": W}) for n in WEIGHTED},
    "minkowski of order 3": ("minkowski", (3,), {}),
    "minkowski of order 1": ("minkowski", (1,), {}),
    "minkowski of order 1.5 with weights": ("minkowski", (1.5, W), {}),
    "minkowski of order infinity": ("minkowski", (np.inf,), {}),
    "seuclidean": ("seuclidean", (W,), {}),
    "mahalanobis": ("mahalanobis", (np.diag(W) + 0.1,), {}),
    "jensenshannon": ("jensenshannon", (), {}),
    "jensenshannon to base 2": ("jensenshannon", (2.0,), {}),
}


@pytest.mark.parametrize("name", VECTORS)
def test_distances_of_two_vectors(name):
    """They were refused: SciPy converts its arguments."""
    function, more, options = VECTORS[name]

    def own(u, v):
        return getattr(ours, function)(u, v, *more, **options)

    got = own(adarray.array(U), V)
    np.testing.assert_allclose(got, getattr(dist, function)(U, V, *more, **options), rtol=1e-12)
    assert check(own, (U, V), ("plain", "jvp"), backends=("numpy",))["refused"] == 0


def test_distances_inside_of_code_that_imports_scipy():
    def f(u, v):
        return dist.euclidean(u, v) * dist.cosine(u, v), dist.minkowski(u, v, p=3, w=W)

    assert refused(f, (U, V)) == 0


PAIRS = {
    "cdist": lambda a, b: dist.cdist(a, b),
    "squares": lambda a, b: dist.cdist(a, b, "sqeuclidean"),
    "city": lambda a, b: dist.cdist(a, b, metric="cityblock"),
    "order 3": lambda a, b: dist.cdist(a, b, "minkowski", p=3),
    "weights": lambda a, b: dist.cdist(a, b, "euclidean", w=np.array([0.5, 2.0])),
    "cosine": lambda a, b: dist.cdist(a, b, "cosine"),
    "chebyshev": lambda a, b: dist.cdist(a, b, "chebyshev"),
    "canberra": lambda a, b: dist.cdist(a, b, "canberra"),
    "braycurtis": lambda a, b: dist.cdist(a, b, "braycurtis"),
    "jensenshannon": lambda a, b: dist.cdist(a, b, "jensenshannon"),
    "variances": lambda a, b: dist.cdist(a, b, "seuclidean"),
    "given variances": lambda a, b: dist.cdist(a, b, "seuclidean", V=[2.0, 1.0]),
    "covariance": lambda a, b: dist.cdist(a, b, "mahalanobis"),
    "given covariance": lambda a, b: dist.cdist(a, b, "mahalanobis", VI=C),
    "a function": lambda a, b: dist.cdist(a, b, lambda u, v: np.sum((u - v) ** 4)),
    "SciPy's function": lambda a, b: dist.cdist(a, b, dist.euclidean),
    "matrix": lambda a, b: scipy.spatial.distance_matrix(a, b, 3),
    "pdist": lambda a, b: dist.pdist(b * a[0, 0]),
    "pdist of a metric": lambda a, b: dist.pdist(b * a[0, 0], "cosine"),
    "pdist by covariance": lambda a, b: dist.pdist(b, "mahalanobis") * a[0, 0],
    "squareform": lambda a, b: dist.squareform(dist.pdist(b) * a[0, 0]) ** 3,
    "and back": lambda a, b: dist.squareform(dist.squareform(dist.pdist(b))) * a[0, 0],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PAIRS)
def test_distances_of_all_pairs(name):
    assert refused(PAIRS[name], (A, B)) == 0


def test_points_that_meet_have_no_slope():
    """And not nan, which the root of 0 has."""

    def f(a):
        return np.sum(dist.cdist(a, a) * np.arange(9.0).reshape(3, 3))

    g = adarray.grad(f, intercept=True)(A)
    assert np.isfinite(g).all()
    step = 1e-6
    moved = A.copy()
    moved[0, 1] += step
    back = A.copy()
    back[0, 1] -= step
    assert abs((f(moved) - f(back)) / (2 * step) - g[0, 1]) < 1e-6


def test_what_has_no_rule_is_refused_by_name():
    with pytest.raises(adarray.NotDifferentiableError, match="the metric 'jaccard' has no"):
        adarray.grad(lambda a: np.sum(dist.cdist(a, B, "jaccard")), intercept=True)(A)
    with pytest.raises(ValueError, match="same number of columns"):
        adarray.grad(lambda a: np.sum(dist.cdist(a, B[:, :1])), intercept=True)(A)
    assert adarray.grad(lambda u: np.sum(u) * dist.hamming(u, V), intercept=True)(U).all()


# -- kernel densities ---------------------------------------------------------------------------

DATA = np.random.default_rng(0).normal(size=(2, 30))


def at_points(x, s):
    return st.gaussian_kde(DATA[0])(x) * s, st.gaussian_kde(DATA[0], weights=W8).logpdf(x)


W8 = np.linspace(0.5, 2.0, 30)
DENSITIES = {
    "points": at_points,
    "data": lambda x, s: st.gaussian_kde(x * s).evaluate(DATA[0]),
    "bandwidth": lambda x, s: st.gaussian_kde(DATA[0], bw_method=s)(x),
    "silverman": lambda x, s: st.gaussian_kde(x, "silverman").logpdf(DATA[1]) * s,
    "weights": lambda x, s: st.gaussian_kde(DATA[0, :6], weights=x).pdf(DATA[1]) * s,
    "two dimensions": lambda x, s: st.gaussian_kde(DATA)(x.reshape(2, 3) * s),
    "one point": lambda x, s: st.gaussian_kde(DATA)(x[:2] * s),
    "integral": lambda x, s: st.gaussian_kde(x).integrate_box_1d(-1.0, s),
}
X6 = np.array([0.7, 1.3, 0.4, 1.9, 1.1, 0.8])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", DENSITIES)
def test_kernel_densities(name):
    assert refused(DENSITIES[name], (X6, 0.6)) == 0


def test_a_plain_density_is_scipys_own():
    from adarray.scipy.stats import gaussian_kde

    result, theirs = gaussian_kde(DATA), st.gaussian_kde(DATA)
    assert isinstance(result, st.gaussian_kde)
    np.testing.assert_array_equal(result(DATA), theirs(DATA))
    np.testing.assert_array_equal(result.logpdf(DATA), theirs.logpdf(DATA))
    assert result.integrate_box([0, 0], [1, 1]) == theirs.integrate_box([0, 0], [1, 1])


# -- distributions that are objects ---------------------------------------------------------------

OBJECTS = {
    "standard": lambda x, s: st.Normal().logpdf(x) * s,
    "parameters": lambda x, s: st.Normal(mu=x[0], sigma=s).logpdf(x[1:]),
    "tails": lambda x, s: (
        st.Normal(mu=s, sigma=x[0]).cdf(x[1:]), st.Normal(mu=s, sigma=2.0).ccdf(x),
        st.Normal(mu=s, sigma=2.0).logcdf(x), st.Normal(mu=s, sigma=2.0).logccdf(x),
    ),
    "between": lambda x, s: st.Normal(mu=s, sigma=x[0]).cdf(x[1:], x[1:] + 1.0),
    "quantiles": lambda x, s: (
        st.Normal(mu=s, sigma=x[0]).icdf(x[1:] / 3), st.Normal(mu=s, sigma=2.0).iccdf(x / 3),
    ),
    "moments": lambda x, s: (
        st.Normal(mu=s, sigma=x[0]).mean() + st.Normal(mu=s, sigma=x[0]).variance() * s,
        st.Normal(mu=s, sigma=x[0]).standard_deviation() * st.Normal(mu=s, sigma=x[1]).median(),
        st.Normal(mu=s, sigma=x[0]).entropy(),
    ),
    "uniform": lambda x, s: st.Uniform(a=0.1, b=2 + s).pdf(x) * st.Uniform(a=0.1, b=s).mean(),
}  # fmt: skip


@pytest.mark.skipif(not hasattr(st, "Normal"), reason="this SciPy has no such classes")
@pytest.mark.parametrize("name", OBJECTS)
def test_distributions_that_are_objects(name):
    assert refused(OBJECTS[name], (X6, 0.6)) == 0


@pytest.mark.skipif(not hasattr(st, "Normal"), reason="this SciPy has no such classes")
def test_their_other_methods_are_scipys_or_refused():
    def f(x):
        d = st.Normal(mu=0.0, sigma=2.0)
        assert (d.mu, d.sigma, d.skewness()) == (0.0, 2.0, 0.0)
        return np.sum(x * d.kurtosis())

    np.testing.assert_allclose(adarray.grad(f, intercept=True)(X6), 3.0)
    with pytest.raises(adarray.UnsupportedFunctionError, match=r"Normal\.skewness"):
        adarray.grad(lambda x: st.Normal(mu=x[0], sigma=1.0).skewness(), intercept=True)(X6)
