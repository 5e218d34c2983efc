"""`adarray.scipy.stats`: SciPy's values, and derivatives in every parameter."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

import adarray
import adarray.scipy.stats as stats
from adarray.core.protocol import traced
from adarray.errors import NotDifferentiableError, UnsupportedFunctionError
from adarray.scipy import RECORDS
from adarray.scipy.stats._continuous import LAWS
from adarray.scipy.stats._discrete import LAWS as COUNTS
from adarray.testing import check_grads, opcheck

SHAPES: dict[str, tuple[float, ...]] = {
    "beta": (2.3, 1.4), "chi2": (3.2,), "exponnorm": (1.3,), "f": (3.0, 5.5), "gamma": (2.3,),
    "genextreme": (0.2,), "gennorm": (1.7,), "genpareto": (0.3,), "invgamma": (5.3,),
    "invgauss": (0.7,), "johnsonsu": (0.5, 1.4), "loggamma": (1.4,), "lognorm": (0.8,),
    "loguniform": (0.5, 3.0), "reciprocal": (0.5, 3.0), "lomax": (3.4,), "pareto": (3.1,),
    "powerlaw": (1.7,), "skewnorm": (1.5,), "t": (4.5,), "triang": (0.3,), "truncexpon": (2.2,),
    "truncnorm": (-0.7, 1.4), "vonmises": (1.3,), "weibull_max": (1.7,), "weibull_min": (1.7,),
    "wrapcauchy": (0.4,), "alpha": (1.3,), "betaprime": (2.3, 3.4), "bradford": (1.4,),
    "burr": (2.3, 1.4), "burr12": (2.3, 1.4), "chi": (3.2,), "dgamma": (1.6,), "dweibull": (1.6,),
    "erlang": (3.0,), "exponweib": (1.4, 1.7), "fatiguelife": (0.8,), "fisk": (3.1,),
    "foldnorm": (0.9,), "genlogistic": (0.7,), "gompertz": (0.9,), "halfgennorm": (1.4,),
    "invweibull": (3.3,), "johnsonsb": (0.5, 1.4), "laplace_asymmetric": (1.6,),
    "nakagami": (1.7,), "ncx2": (2.5, 1.2), "norminvgauss": (1.6, 0.4), "powernorm": (1.7,),
    "rice": (0.9,), "tukeylambda": (0.3,),
}  # fmt: skip
VALUES = ("pdf", "logpdf", "cdf", "sf", "logcdf", "logsf")
QUANTILES = ("ppf", "isf")
MOMENTS = ("entropy", "mean", "var", "std")
# What has no formula here and is refused.
MISSING = {
    "alpha": "entropy mean var std",
    "betaprime": "entropy var std",
    "bradford": "var std",
    "burr": "entropy mean var std",
    "burr12": "entropy mean var std",
    "chi": "entropy",
    "dgamma": "entropy",
    "dweibull": "entropy",
    "exponnorm": "entropy",
    "exponweib": "entropy mean var std",
    "fatiguelife": "entropy",
    "fisk": "mean var std",
    "foldnorm": "entropy mean var std",
    "gompertz": "entropy mean var std",
    "halfgennorm": "mean var std",
    "invgauss": "entropy",
    "invweibull": "var std",
    "johnsonsb": "entropy mean var std",
    "johnsonsu": "entropy",
    "moyal": "entropy",
    "nakagami": "entropy",
    "ncx2": "entropy",
    "norminvgauss": "cdf sf logcdf logsf entropy ppf isf",
    "powernorm": "entropy mean var std",
    "rice": "entropy mean var std",
    "skewnorm": "entropy",
    "tukeylambda": "entropy mean var std",
    "vonmises": "mean var std",
    "wald": "entropy",
    "wrapcauchy": "mean var std",
}
# Moments that are infinite or not defined: constant.
INFINITE = {(d, m) for d in ("cauchy", "halfcauchy", "levy") for m in ("mean", "var", "std")}
# SciPy's own values of these are good to fewer digits; of the last, in older versions.
ROUGH = {
    ("skewnorm", "ppf"): 1e-8,
    ("skewnorm", "isf"): 1e-8,
    ("skewnorm", "logsf"): 1e-7,
    **{("ncx2", m): 1e-5 for m in (*VALUES, *QUANTILES)},
}
# Shape parameters (their places behind the variable) without a derivative: refused.
CONSTANT = {"ncx2": (1,)}
LOC, SCALE = 0.3, 1.7
LEVELS = np.array([1e-6, 0.02, 0.3, 0.5, 0.77, 0.99, 1 - 1e-6])


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """SciPy warns of logarithms of 0, and so do we."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def cases(methods: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(d, m) for d in LAWS for m in methods if m not in MISSING.get(d, "").split()]


def free(name: str, extra: int = 2) -> tuple[int, ...]:
    """Return the places of the arguments that have a derivative."""
    count = 1 + len(SHAPES.get(name, ())) + extra
    return tuple(i for i in range(count) if i not in CONSTANT.get(name, ()))


def close(got: Any, expected: Any, rtol: float = 1e-10) -> None:
    values = adarray.value_of(got)
    np.testing.assert_allclose(values, expected, rtol=rtol, atol=1e-15)
    assert np.asarray(values).dtype == np.asarray(expected).dtype


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "method"), cases(VALUES))
def test_values_and_derivatives(name: str, method: str) -> None:
    mine, other, shapes = getattr(stats, name), getattr(scipy.stats, name), SHAPES.get(name, ())
    inner = other.ppf(LEVELS, *shapes, LOC, SCALE)
    ends = np.array(other.support(*shapes, LOC, SCALE))
    ends = ends[np.isfinite(ends)]
    # Beyond the ends too, and on them.
    x = np.concatenate([inner, ends, ends[:1] - 1, ends[1:] + 1, [np.nan]])
    scale = adarray.array(SCALE, requires_grad=True)
    got = getattr(mine, method)(x, *shapes, LOC, scale)
    assert traced(got)
    close(got, getattr(other, method)(x, *shapes, LOC, SCALE), ROUGH.get((name, method), 1e-10))
    middle = other.ppf([0.15, 0.4, 0.8], *shapes, LOC, SCALE)
    check_grads(getattr(mine, method), (middle, *shapes, LOC, SCALE), argnums=free(name))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "method"), cases(QUANTILES))
def test_quantiles(name: str, method: str) -> None:
    mine, other, shapes = getattr(stats, name), getattr(scipy.stats, name), SHAPES.get(name, ())
    q = np.concatenate([LEVELS, [0.0, 1.0, -0.1, 1.1, np.nan]])
    got = getattr(mine, method)(q, *shapes, LOC, adarray.array(SCALE, requires_grad=True))
    close(got, getattr(other, method)(q, *shapes, LOC, SCALE), ROUGH.get((name, method), 1e-10))
    args = (np.array([0.15, 0.4, 0.8]), *shapes, LOC, SCALE)
    check_grads(getattr(mine, method), args, argnums=free(name))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "method"), cases(MOMENTS))
def test_moments(name: str, method: str) -> None:
    mine, other, shapes = getattr(stats, name), getattr(scipy.stats, name), SHAPES.get(name, ())
    got = getattr(mine, method)(*shapes, LOC, adarray.array(SCALE, requires_grad=True))
    np.testing.assert_allclose(
        adarray.value_of(got), getattr(other, method)(*shapes, LOC, SCALE), rtol=1e-10
    )
    if (name, method) not in INFINITE:
        check_grads(getattr(mine, method), (*shapes, LOC, SCALE))


@pytest.mark.parametrize("name", LAWS)
def test_outside_of_the_support_the_derivative_is_zero(name: str) -> None:
    shapes = SHAPES.get(name, ())
    ends = getattr(scipy.stats, name).support(*shapes)
    outside = [e + s for e, s in zip(ends, (-0.5, 0.5), strict=True) if np.isfinite(e)]
    for x in outside:
        value, slopes = adarray.value_and_grad(getattr(stats, name).logpdf, argnums=free(name, 0))(
            x, *shapes
        )
        assert value == -np.inf
        assert all(s == 0 for s in slopes)


@pytest.mark.parametrize("name", LAWS)
def test_shapes_broadcast_and_bad_ones_give_nan(name: str) -> None:
    shapes = SHAPES.get(name, ())
    loc = np.array([[0.1], [0.2]])
    x = np.array([0.5, 1.1, 2.0])
    scale = np.array([1.2, -1.0, 2.0])
    got = stats.__getattribute__(name).logpdf(
        adarray.array(x, requires_grad=True), *shapes, loc=loc, scale=scale
    )
    close(got, getattr(scipy.stats, name).logpdf(x, *shapes, loc=loc, scale=scale))


def test_limits_of_shapes() -> None:
    """Where formulas have removable singularities: the values and slopes of the limit."""
    x = np.array([-0.4, 0.3, 1.5])
    for c in (0.0, 1e-9):
        got = stats.genextreme.logpdf(adarray.array(x, requires_grad=True), c)
        np.testing.assert_allclose(adarray.value_of(got), scipy.stats.gumbel_r.logpdf(x), rtol=1e-7)
    check_grads(stats.genextreme.logpdf, (x, 0.0))
    check_grads(stats.genpareto.logpdf, (np.abs(x), 0.0))
    got = adarray.grad(stats.logistic.logpdf)(0.0)
    assert got == 0.0
    assert adarray.grad(adarray.grad(stats.logistic.logpdf))(0.0) == -0.5
    a, b = -np.inf, 1.0
    check_grads(stats.truncnorm.logpdf, (x[:2], a, b), argnums=(0, 2))
    assert adarray.grad(stats.gamma.logpdf)(0.0, 1.0) == -1.0
    check_grads(stats.truncnorm.logcdf, (np.array([12.3]), 12.0, 13.0))
    check_grads(stats.truncnorm.logsf, (np.array([-12.3]), -13.0, -12.0))


def test_far_tails() -> None:
    for name in ("norm", "logistic", "t", "gumbel_r", "lognorm"):
        shapes = SHAPES.get(name, ())
        other = getattr(scipy.stats, name)
        for method, x in (("logcdf", 1e-3), ("logsf", 38.0)):
            got = getattr(getattr(stats, name), method)(
                adarray.array(x, requires_grad=True), *shapes
            )
            np.testing.assert_allclose(
                adarray.value_of(got), getattr(other, method)(x, *shapes), rtol=1e-10
            )
    slope = adarray.grad(stats.norm.logsf)(1e3)
    np.testing.assert_allclose(slope, -1e3, rtol=1e-5)


@pytest.mark.parametrize(("name", "shapes"), [("laplace", ()), ("dweibull", (1.0,))])
def test_distribution_functions_have_a_slope_where_halves_meet(
    name: str, shapes: tuple[float, ...]
) -> None:
    law = getattr(stats, name)
    for method, slope in (("cdf", 0.5), ("sf", -0.5), ("logcdf", 1.0), ("logsf", -1.0)):
        assert adarray.grad(getattr(law, method))(0.0, *shapes) == pytest.approx(slope)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("gamma", (2.5,)), ("beta", (2.0, 3.0)), ("weibull_min", (2.5,)), ("f", (5.0, 6.0))],
)
def test_densities_that_vanish_at_an_end_have_no_nan(name: str, shapes: tuple[float, ...]) -> None:
    parameters = (0.1, *shapes, 0.1, 1.3)  # x is loc
    density = getattr(stats, name).pdf
    everything = range(len(parameters))
    assert adarray.grad(density, argnums=everything)(*parameters) == (0.0,) * len(parameters)
    assert adarray.jvp(density, parameters, (1.0,) * len(parameters))[1] == 0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", [n for n in RECORDS if n.startswith("stats.")])
def test_record(name: str, dtype: type) -> None:
    opcheck(name, "numpy", dtype)


def test_vonmises_over_whole_turns_and_when_it_is_narrow() -> None:
    check_grads(stats.vonmises.cdf, (np.array([-7.0, 3.3, 20.0]), 1.4))
    x = np.array([-0.02, 0.001, 0.03])
    check_grads(stats.vonmises.logpdf, (x, 2e3))
    f = adarray.jacobian(stats.vonmises.cdf, argnums=1)
    h = 1e-2
    with_differences = [  # of an integral by SciPy's quadrature, exact in kappa
        (_narrow(v, 2e3 + h) - _narrow(v, 2e3 - h)) / (2 * h) for v in x
    ]
    np.testing.assert_allclose(f(x, 2e3), with_differences, rtol=1e-6, atol=1e-12)


def _narrow(x: float, kappa: float) -> float:
    density = lambda t: scipy.stats.vonmises.pdf(t, kappa)  # noqa: E731
    return scipy.integrate.quad(density, -0.3, x, epsabs=1e-14, epsrel=1e-13)[0]


# -- calls ---------------------------------------------------------------------------------------


def test_frozen_distributions() -> None:
    def f(loc: Any, scale: Any) -> Any:
        return stats.norm(loc, scale=scale).logpdf(1.2)

    assert f(0.3, 1.7) == scipy.stats.norm(0.3, scale=1.7).logpdf(1.2)
    check_grads(f, (0.3, 1.7))
    check_grads(lambda x: stats.gamma(2.3, scale=0.7).logsf(x), (1.4,))
    check_grads(lambda a: stats.gamma(a).entropy(), (1.4,))
    frozen = stats.norm(0.3, 1.7)
    assert frozen.mean() == 0.3
    assert frozen.rvs(random_state=1) == scipy.stats.norm(0.3, 1.7).rvs(random_state=1)
    assert frozen.interval(0.5) == scipy.stats.norm(0.3, 1.7).interval(0.5)
    assert stats.norm.freeze(0.3, 1.7).std() == 1.7


def test_median() -> None:
    args = (2.3, 0.3, 1.7)
    check_grads(stats.gamma.median, args)
    got = stats.gamma.median(*args[:2], adarray.array(1.7, requires_grad=True))
    close(got, scipy.stats.gamma.median(*args))
    assert stats.gamma(*args).median() == scipy.stats.gamma(*args).median()
    with pytest.raises(UnsupportedFunctionError, match="a quantile is a count"):
        stats.poisson.median(adarray.array(1.7, requires_grad=True))


def test_plain_data_goes_to_scipy() -> None:
    x = np.array([0.1, 2.0])
    assert isinstance(stats.norm.pdf(0.3), float)
    np.testing.assert_array_equal(stats.norm.pdf(x), scipy.stats.norm.pdf(x))
    got = stats.norm.pdf(adarray.array(x))
    assert isinstance(got, adarray.ADArray)
    np.testing.assert_array_equal(got.numpy(), scipy.stats.norm.pdf(x))
    assert stats.norm.fit(x) == scipy.stats.norm.fit(x)
    assert stats.ttest_1samp(x, 0.0) == scipy.stats.ttest_1samp(x, 0.0)
    assert stats.norm.numargs == 0
    assert set(stats.__all__) == set(scipy.stats.__all__)


def test_keywords() -> None:
    x = adarray.array(0.4, requires_grad=True)
    expected = scipy.stats.beta.logpdf(0.4, 2.0, 3.0, 0.1, 1.4)
    for got in (
        stats.beta.logpdf(x, 2.0, b=3.0, loc=0.1, scale=1.4),
        stats.beta.logpdf(x=x, a=2.0, b=3.0, loc=0.1, scale=1.4),
        stats.beta.logpdf(x, 2.0, 3.0, 0.1, 1.4),
    ):
        np.testing.assert_allclose(adarray.value_of(got), expected, rtol=1e-13)
    with pytest.raises(TypeError, match=r"beta\.logpdf: the parameters \['b'\] are missing"):
        stats.beta.logpdf(x, 2.0)
    with pytest.raises(TypeError, match=r"beta\.logpdf: got 'c' unexpectedly or twice"):
        stats.beta.logpdf(x, 2.0, 3.0, c=1.0)
    with pytest.raises(TypeError, match="takes the parameters"):
        stats.beta.logpdf(x, 2.0, 3.0, 0.0, 1.0, 2.0)


def test_float32_comes_back_as_the_inputs_dtype() -> None:
    x = np.array([0.3, 1.2], np.float32)
    slope = adarray.grad(lambda x: np.sum(stats.norm.logpdf(x)))(x)
    assert slope.dtype == np.float32
    np.testing.assert_allclose(slope, -x, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: stats.skewnorm.entropy(x),
            "skewnorm.entropy: adarray has no derivative rule for this method; use others of the "
            "distribution, or pass adarray.value_of(x) if no gradient should flow through it",
        ),
        (
            lambda x: stats.norm(x).rvs(),
            "scipy.stats.norm.rvs: random draws are not differentiated; transform draws of the "
            "standard form; write it with functions that have one, or pass adarray.value_of(x) if "
            "no gradient should flow through it",
        ),
        (
            lambda x: stats.poisson.ppf(0.3, x),
            "scipy.stats.poisson.ppf: a quantile is a count, which has no derivative; write it "
            "with functions that have one, or pass adarray.value_of(x) if no gradient should flow "
            "through it",
        ),
        (
            lambda x: stats.poisson.pmf(x, 2.0),
            "poisson.pmf: the variable and loc are counts, which have no derivative; pass "
            "adarray.value_of(k)",
        ),
        (
            lambda x: stats.kendalltau([x, 1.0, 3.0], [1.0, 2.0, 3.0]),
            "scipy.stats.kendalltau: its statistic is one of ranks, which are piecewise constant; "
            "write it with functions that have one, or pass adarray.value_of(x) if no gradient "
            "should flow through it",
        ),
        (
            lambda x: stats.multivariate_normal.logpdf([x, 1.0], allow_singular=True),
            "multivariate_normal: the argument allow_singular=True is not differentiated; leave "
            "it at its default False and pass a positive definite matrix",
        ),
        (
            lambda x: stats.boxcox(x * np.ones(3)),
            "boxcox: the lambda of greatest likelihood is searched, and is not differentiated; "
            "pass lmbda=",
        ),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    x = adarray.array(0.4, requires_grad=True)
    with pytest.raises((UnsupportedFunctionError, NotDifferentiableError)) as caught:
        call(x)
    assert str(caught.value) == message


def test_arguments_that_are_not_honoured_are_refused() -> None:
    x = adarray.array([0.4, 1.0, 3.0], requires_grad=True)
    with pytest.raises(NotDifferentiableError, match="nan_policy='omit' is not differentiated"):
        stats.zscore(x, nan_policy="omit")
    with pytest.raises(NotDifferentiableError, match="alternative='less' is not differentiated"):
        stats.pearsonr(x, [1.0, 2.0, 0.0], alternative="less")
    with pytest.raises(NotDifferentiableError, match="the argument order is an array"):
        stats.moment(x, [1, 2])


# -- counts --------------------------------------------------------------------------------------

COUNT_SHAPES: dict[str, tuple[tuple[float, ...], tuple[int, ...]]] = {
    "bernoulli": ((0.3,), (1,)),
    "betabinom": ((6, 1.3, 2.2), (2, 3)),
    "binom": ((6, 0.3), (2,)),
    "geom": ((0.3,), (1,)),
    "nbinom": ((2.5, 0.4), (1, 2)),
    "poisson": ((2.7,), (1,)),
}


@pytest.mark.parametrize(
    ("name", "method"),
    [(d, m) for d in COUNTS for m in ("pmf", "logpmf", "cdf", "sf", "logcdf", "logsf")],
)
def test_counts(name: str, method: str) -> None:
    shapes, places = COUNT_SHAPES[name]
    k = np.array([-1, 0, 1, 2, 2.5, 3, 6, 7])
    f, expected = getattr(getattr(stats, name), method), getattr(scipy.stats, name)
    marked = [
        adarray.array(v, requires_grad=True) if i + 1 in places else v for i, v in enumerate(shapes)
    ]
    got = f(k, *marked, 1)
    assert traced(got)
    np.testing.assert_allclose(
        adarray.value_of(got), getattr(expected, method)(k, *shapes, 1), rtol=1e-10, atol=1e-14
    )
    inner = np.array([1, 2, 3]) if name != "bernoulli" else np.array([0])
    check_grads(lambda *a: f(inner, *a), shapes, argnums=tuple(p - 1 for p in places))


@pytest.mark.parametrize(
    ("name", "method"),
    [(d, m) for d in COUNTS for m in ("entropy", "mean", "var", "std")],
)
def test_moments_of_counts(name: str, method: str) -> None:
    shapes, places = COUNT_SHAPES[name]
    f = getattr(getattr(stats, name), method)
    marked = [
        adarray.array(v, requires_grad=True) if i + 1 in places else v for i, v in enumerate(shapes)
    ]
    if getattr(COUNTS[name], "var" if method == "std" else method) is None:
        with pytest.raises(UnsupportedFunctionError):
            f(*marked)
        return
    expected = getattr(getattr(scipy.stats, name), method)(*shapes, 2)
    np.testing.assert_allclose(adarray.value_of(f(*marked, 2)), expected, rtol=1e-10)
    check_grads(f, shapes, argnums=tuple(p - 1 for p in places))


def test_counts_at_the_ends_of_probabilities() -> None:
    """0 log 0 is 0, and the slope there that of the other factor."""
    assert adarray.grad(lambda p: stats.binom.logpmf(0, 5, p))(0.0) == -5.0
    assert adarray.grad(lambda mu: stats.poisson.logpmf(0, mu))(0.0) == -1.0
    bad = stats.poisson.pmf(1, adarray.array(-1.0, requires_grad=True))
    assert np.isnan(adarray.value_of(bad))
