"""Polynomials: values as NumPy's, derivatives as differences, against each other."""

import numpy as np
import pytest

import adarray
from adarray.errors import TraceError
from adarray.ops.borrow import borrowed
from adarray.testing import check_grads

RNG = np.random.default_rng(11)
P, Q = np.array([2.0, -1.0, 0.5, 3.0]), np.array([1.0, 0.3, -2.0])
X = np.array([-1.2, 0.4, 0.0, 2.1])


def same(f, *args, rtol=1e-13):
    """Check values and dtypes against NumPy's, then derivatives."""
    got, _ = adarray.vjp(f, *args)
    want = f(*args)
    got, want = (x if isinstance(x, (list, tuple)) else (x,) for x in (got, want))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(np.asarray(a), b, rtol=rtol, atol=1e-14)
    check_grads(f, args)


@pytest.mark.parametrize(
    "function", [np.polyadd, np.polysub, np.polymul, np.polydiv], ids=lambda f: f.__name__
)
@pytest.mark.parametrize(("a", "b"), [(P, Q), (P, P[::-1]), (Q, Q * 2.0 + 1), (P, 2.0)])
def test_arithmetic(function, a, b):
    same(function, a, b)
    same(lambda a: function(a, b), a)
    same(lambda b: function(a, b), b)


def test_products_drop_leading_zeros():
    same(lambda q: np.polymul([0, 0, 1, 2], q), Q)
    got, _ = adarray.vjp(lambda p: np.polymul(p, Q), np.array([0.0, 1.0, 2.0]))
    np.testing.assert_array_equal(got, np.polymul([0.0, 1.0, 2.0], Q))


def test_a_leading_zero_has_a_derivative():
    """[e, 1] times [1, 2] is [e, 1 + 2 e, 2]; NumPy's result starts after the zero."""
    jac = adarray.jacobian(lambda p: np.polymul(p, [1.0, 2.0]))(np.array([0.0, 1.0]))
    np.testing.assert_array_equal(jac, [[2.0, 1.0], [0.0, 2.0]])
    ours = borrowed(np.polynomial.polynomial.polymul)
    jac = adarray.jacobian(lambda p: ours(p, [2.0, 1.0]))(np.array([1.0, 0.0]))
    np.testing.assert_array_equal(jac, [[2.0, 0.0], [1.0, 2.0]])


def test_polydiv_inverts_polymul():
    grad = adarray.grad(lambda p: np.sum(np.polydiv(np.polymul(p, Q), Q)[0] ** 2))(P)
    np.testing.assert_allclose(grad, 2 * P)


@pytest.mark.parametrize("m", [0, 1, 2, 3])
def test_polyder_and_polyint(m):
    same(lambda p: np.polyder(p, m), P)
    same(lambda p: np.polyint(p, m), P)
    same(lambda p, k: np.polyint(p, m, k), P, np.arange(1.0, max(m, 1) + 1))
    same(lambda p, k: np.polyint(p, m, k), P, 0.5)


@pytest.mark.parametrize(("m", "k"), [(-1, None), (3, [1.0, 2.0])])
def test_polyint_raises_numpys_errors(m, k):
    with pytest.raises(ValueError) as want:  # noqa: PT011  (its text is compared)
        np.polyint(P, m, k)
    with pytest.raises(ValueError) as got:  # noqa: PT011
        adarray.vjp(lambda p: np.polyint(p, m, k), P)
    assert str(got.value) == str(want.value)


def test_polyval_in_points_and_coefficients():
    same(np.polyval, P, X)
    same(np.polyval, P, 0.7)
    same(lambda x: np.polyval([1, 2, 3], x), X)
    same(lambda p: np.polyval(p, np.array([1, 2])), P)
    same(lambda x: np.polyval(np.poly1d([1, 2, 3]), x), X)
    slope = adarray.grad(lambda x: np.sum(np.polyval(P, x)))(X)
    np.testing.assert_allclose(slope, np.polyval(np.polyder(P), X))


def test_poly1d_holds_traced_coefficients():
    def f(p, x):
        q = np.poly1d(p)
        return q(x) + q.deriv()(x)

    same(f, P, X)


def test_vander():
    same(np.vander, X)
    same(lambda x: np.vander(x, 3, increasing=True), X)


def test_poly_from_roots_and_from_a_matrix():
    same(np.poly, X)
    symmetric = RNG.normal(size=(3, 3))
    symmetric = symmetric + symmetric.T + 3 * np.diag([0.0, 1.0, 2.0])
    same(np.poly, symmetric, rtol=1e-10)


def test_roots_invert_poly():
    zeros, weights = np.array([3.0, 1.0, -2.0]), np.array([1.0, 10.0, 100.0])
    grad = adarray.grad(lambda z: np.sum(np.real(np.roots(np.poly(z))) * weights))(zeros)
    roots = np.roots(np.poly(zeros))
    expected = [weights[np.argmin(np.abs(roots - z))] for z in zeros]
    np.testing.assert_allclose(grad, expected, rtol=1e-9)


def test_roots_of_zeros_at_both_ends():
    # 2 x^2 - x - 3 with a leading and a trailing zero: roots 1.5, -1 and 0.
    p = np.array([0.0, 2.0, -1.0, -3.0, 0.0])
    value, pull = adarray.vjp(lambda p: np.sum(np.real(np.roots(p)) ** 2), p)
    np.testing.assert_allclose(value, 1.5**2 + 1)
    (back,) = pull(1.0)
    expected = np.zeros(5)
    for root in (1.5, -1.0):
        slope = np.polyval(np.polyder(p), root)
        expected -= 2 * root * root ** np.arange(4, -1, -1) / slope
    np.testing.assert_allclose(back, expected)


@pytest.mark.parametrize("deg", [1, 2])
def test_polyfit(deg):
    y = RNG.normal(size=(4, 2))
    w = np.array([1.0, 0.5, 2.0, 1.5])
    same(lambda x, y: np.polyfit(x, y, deg), X, y[:, 0], rtol=1e-9)
    same(lambda y, w: np.polyfit(X, y, deg, w=w), y, w, rtol=1e-9)
    same(lambda x, w: np.polyfit(x, y[:, 0], deg, w=w), X, w, rtol=1e-9)


@pytest.mark.parametrize("cov", [True, "unscaled"])
def test_polyfit_with_its_covariance(cov):
    y = RNG.normal(size=4)
    same(lambda x, y: np.polyfit(x, y, 1, cov=cov), X, y, rtol=1e-9)


def test_polyfit_in_full():
    y = RNG.normal(size=4)

    def f(x, y):
        c, residuals, rank, s, rcond = np.polyfit(x, y, 1, full=True)
        assert rank == 2
        assert rcond == 4 * np.finfo(float).eps
        return c, residuals, s

    same(f, X, y, rtol=1e-9)


def test_polyfit_recovers_the_coefficients_it_was_given():
    jac = adarray.jacobian(lambda p: np.polyfit(X, np.polyval(p, X), 2))(Q)
    np.testing.assert_allclose(jac, np.eye(3), atol=1e-12)


# -- numpy.polynomial ----------------------------------------------------------------------

FAMILIES = {
    "polynomial": "poly", "chebyshev": "cheb", "legendre": "leg", "hermite": "herm",
    "hermite_e": "herme", "laguerre": "lag",
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_series_bodies_take_traced_arrays(family):
    module, prefix = getattr(np.polynomial, family), FAMILIES[family]

    def ours(name):
        return borrowed(getattr(module, prefix + name))

    c = np.stack([P, P[::-1]], axis=1)
    for name, args in {
        "val": (X, P), "add": (P, Q), "mul": (P, Q), "sub": (P, Q), "der": (P,), "int": (P,),
        "div": (P, Q), "fromroots": (Q,), "pow": (Q, 2),
    }.items():  # fmt: skip
        numpys, body = getattr(module, prefix + name), ours(name)
        arrays = [a for a in args if isinstance(a, np.ndarray)]

        rest = args[len(arrays) :]

        def f(*arrays, body=body, rest=rest):
            return body(*arrays, *rest)

        got, _ = adarray.vjp(f, *arrays)
        want = numpys(*args)
        for a, b in zip(
            got if isinstance(got, tuple) else (got,),
            want if isinstance(want, tuple) else (want,),
            strict=True,
        ):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-12, atol=1e-12)
        check_grads(f, arrays)
    # A column of coefficients for each polynomial: one axis for it, one for the points.
    got, _ = adarray.vjp(ours("val"), X, c)
    np.testing.assert_allclose(got, getattr(module, prefix + "val")(X, c), rtol=1e-12)
    check_grads(lambda x: ours("vander")(x, 3), (X,))
    check_grads(lambda x, y: ours("fit")(x, y, 2), (X, RNG.normal(size=4)))


def test_plain_calls_reach_traced_points_but_no_traced_coefficients():
    chebval = np.polynomial.chebyshev.chebval
    check_grads(lambda x: chebval(x, P), (X,))
    with pytest.raises(TraceError, match=r"np\.asarray: a traced value would leave the graph"):
        adarray.grad(lambda c: np.sum(chebval(X, c)), intercept=False)(P)
