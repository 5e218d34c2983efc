"""`adarray.scipy.interpolate` against SciPy, and its derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
import scipy.interpolate as theirs

import adarray
import adarray.scipy.interpolate as ours
from adarray import NotDifferentiableError, TraceError
from adarray.testing import check_grads

rng = np.random.default_rng(6)
X = np.cumsum(rng.uniform(0.3, 1.0, size=7))
Y = rng.normal(size=7)
YS = rng.normal(size=(3, 7, 2))
CLOSED = np.concatenate([Y[:-1], Y[:1]])
AT = rng.uniform(X[0] + 0.01, X[-1] - 0.01, size=(2, 3))
FAR = np.array([X[0] - 0.7, X[2] + 0.1, X[-1] + 0.4])


def _compare(
    call: Callable[..., Any], plain: Callable[..., Any], *args: Any, order: int = 2
) -> None:
    """Compare values of traced arguments with SciPy's, and derivatives with differences."""
    traced = adarray.vjp(call, *args)[0]
    expected = np.asarray(plain(*args))
    assert np.shape(traced) == expected.shape
    np.testing.assert_allclose(traced, expected, rtol=1e-9, atol=1e-11)
    check_grads(call, args, order=order)


def _with(make: str, **options: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def call(x: Any, y: Any, at: Any) -> Any:
        return getattr(ours, make)(x, y, **options)(at)

    def plain(x: Any, y: Any, at: Any) -> Any:
        return getattr(theirs, make)(x, y, **options)(at)

    return call, plain


@pytest.mark.parametrize("bc", ["not-a-knot", "natural", "clamped", ((1, 0.3), (2, -0.4)),
                                ("natural", "not-a-knot")])  # fmt: skip
@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_cubic_spline(bc: Any, n: int) -> None:
    call, plain = _with("CubicSpline", bc_type=bc)
    at = rng.uniform(X[0], X[n - 1], size=5)
    _compare(call, plain, X[:n], Y[:n], at)


@pytest.mark.parametrize("n", [3, 4, 7])
def test_periodic_cubic_spline(n: int) -> None:
    y = np.concatenate([Y[: n - 1], Y[:1]])

    def closed(y: Any) -> Any:
        return np.concatenate([y, y[:1]])

    def call(x: Any, y: Any, at: Any) -> Any:
        return ours.CubicSpline(x, closed(y), bc_type="periodic")(at)

    def plain(x: Any, y: Any, at: Any) -> Any:
        return theirs.CubicSpline(x, closed(y), bc_type="periodic")(at)

    _compare(call, plain, X[:n], y[:-1], FAR)


@pytest.mark.parametrize("name", ["CubicSpline", "PchipInterpolator", "Akima1DInterpolator"])
def test_piecewise(name: str) -> None:
    call, plain = _with(name)
    _compare(call, plain, X, Y, AT)
    _compare(call, plain, X[:3], Y[:3], np.array([X[0] + 0.1, X[1] + 0.2]))
    call, plain = _with(name, axis=1)
    _compare(call, plain, X, YS, AT, order=1)
    call, plain = _with(name, extrapolate=True)
    _compare(call, plain, X, Y, FAR)
    call, plain = _with(name, extrapolate=False)
    np.testing.assert_array_equal(np.isnan(adarray.vjp(call, X, Y, FAR)[0]), [True, False, True])


def test_makima() -> None:
    call, plain = _with("Akima1DInterpolator", method="makima")
    _compare(call, plain, X, Y, AT)


def test_boundary_values_and_hermite_slopes_differentiate() -> None:
    def spline(u: Any, y: Any) -> Any:
        return ours.CubicSpline(X, y, bc_type=((1, u), (2, 0.5)))(AT)

    check_grads(spline, (0.3, Y))
    slopes = rng.normal(size=7)
    _compare(
        lambda x, y, d: ours.CubicHermiteSpline(x, y, d)(AT),
        lambda x, y, d: theirs.CubicHermiteSpline(x, y, d)(AT), X, Y, slopes,
    )  # fmt: skip


@pytest.mark.parametrize("nu", [1, 2, 3, 4])
def test_derivatives_and_integrals(nu: int) -> None:
    def values(lib: Any) -> Callable[..., Any]:
        def f(x: Any, y: Any, a: Any) -> Any:
            s = lib.CubicSpline(x, y)
            parts = [s(AT, nu), s.derivative(nu)(AT), s.antiderivative(nu)(AT)]
            return [*parts, s.integrate(X[0] + a, X[-1] - a)]

        return f

    for a, b in zip(values(ours)(X, Y, 0.2), values(theirs)(X, Y, 0.2), strict=True):
        np.testing.assert_array_equal(a, b)
    traced = adarray.vjp(values(ours), X, Y, 0.2)[0]
    for a, b in zip(traced, values(theirs)(X, Y, 0.2), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)
    check_grads(values(ours), (X, Y, 0.2), order=1)


def test_ppoly() -> None:
    c = rng.normal(size=(3, 6))
    _compare(lambda c, x, at: ours.PPoly(c, x)(at), lambda c, x, at: theirs.PPoly(c, x)(at),
             c, X, AT)  # fmt: skip
    with pytest.raises((TraceError, NotDifferentiableError)):
        adarray.grad(lambda c: ours.PPoly(c, X).roots().sum())(c)


KNOTS = np.concatenate([[0.0] * 4, [0.3, 0.5, 0.8], [1.0] * 4])


@pytest.mark.parametrize("nu", [0, 1, 2, 3])
def test_bspline(nu: int) -> None:
    c, at = rng.normal(size=7), rng.uniform(0.01, 0.99, size=5)
    _compare(lambda c, x: ours.BSpline(KNOTS, c, 3)(x, nu),
             lambda c, x: theirs.BSpline(KNOTS, c, 3)(x, nu), c, at)  # fmt: skip
    cs = rng.normal(size=(2, 7))
    _compare(lambda c, x: ours.BSpline(KNOTS, c, 3, axis=1)(x, nu),
             lambda c, x: theirs.BSpline(KNOTS, c, 3, axis=1)(x, nu), cs, at)  # fmt: skip
    inner = np.array([0.3, 0.5, 0.8])

    def knots(t: Any) -> Any:
        whole = np.concatenate([np.zeros(4), t, np.ones(4)])
        return ours.BSpline(whole, c, 3)(at, nu)

    if nu < 3:
        check_grads(knots, (inner,), order=1)


@pytest.mark.parametrize("options", [{}, {"k": 1}, {"k": 2}, {"k": 5}, {"bc_type": "natural"},
                                     {"bc_type": "periodic"}])  # fmt: skip
def test_make_interp_spline(options: dict[str, Any]) -> None:
    if options.get("bc_type") == "periodic":

        def close(y: Any) -> Any:
            return np.concatenate([y[:-1], y[:1]])
    else:

        def close(y: Any) -> Any:
            return y

    _compare(lambda y, at: ours.make_interp_spline(X, close(y), **options)(at),
             lambda y, at: theirs.make_interp_spline(X, close(y), **options)(at),
             Y, AT)  # fmt: skip
    if "bc_type" not in options:
        _compare(lambda y: ours.make_interp_spline(X, y, axis=1, **options)(AT),
                 lambda y: theirs.make_interp_spline(X, y, axis=1, **options)(AT), YS)  # fmt: skip
    with pytest.raises(NotDifferentiableError, match="make_interp_spline: there is no derivative"):
        adarray.grad(lambda x: ours.make_interp_spline(x, Y)(AT).sum())(X)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("ext", [0, 1, 3])
def test_splrep_and_splev(k: int, ext: int) -> None:
    for der in (0, 1):
        _compare(lambda y, at, der=der: ours.splev(at, ours.splrep(X, y, k=k), der, ext),
                 lambda y, at, der=der: theirs.splev(at, theirs.splrep(X, y, k=k), der, ext),
                 Y, FAR)  # fmt: skip
    with pytest.raises(NotDifferentiableError, match="splrep: smoothing"):
        adarray.grad(lambda y: ours.splev(AT, ours.splrep(X, y, s=1.0)).sum())(Y)
    with pytest.raises(ValueError, match="not in the domain"):
        adarray.grad(lambda y: ours.splev(FAR, ours.splrep(X, y), ext=2).sum())(Y)


@pytest.mark.parametrize("kind", ["linear", "nearest", "nearest-up", "previous", "next", "zero",
                                  "slinear", "quadratic", "cubic", 2])  # fmt: skip
def test_interp1d(kind: Any) -> None:
    call, plain = _with("interp1d", kind=kind)
    order = 2 if kind in ("quadratic", "cubic", 2) else 1
    _compare(lambda y, at: call(X, y, at), lambda y, at: plain(X, y, at), Y, AT, order=order)
    call, plain = _with("interp1d", kind=kind, axis=1, bounds_error=False, fill_value=0.5)
    _compare(lambda y, at: call(X, y, at), lambda y, at: plain(X, y, at), YS, FAR, order=1)
    transposed = slice(None, None, -1)
    call, plain = _with("interp1d", kind=kind, fill_value="extrapolate")
    _compare(lambda y, at: call(X[transposed], y, at), lambda y, at: plain(X[transposed], y, at), Y,
             AT if kind in ("previous", "next") else FAR, order=1)  # fmt: skip
    np.testing.assert_array_equal(ours.interp1d(X, Y, kind)(AT), theirs.interp1d(X, Y, kind)(AT))
    with pytest.raises(ValueError, match="below the interpolation range"):
        adarray.grad(lambda y: ours.interp1d(X, y, kind)(FAR).sum())(Y)


GRID = (X[:4], np.array([0.0, 0.5, 2.0]))
VALUES = rng.normal(size=(4, 3))
POINTS = np.stack([rng.uniform(X[0], X[3], 5), rng.uniform(0.0, 2.0, 5)], -1)


@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_grids(method: str) -> None:
    _compare(lambda v, at: ours.RegularGridInterpolator(GRID, v, method)(at),
             lambda v, at: theirs.RegularGridInterpolator(GRID, v, method)(at),
             VALUES, POINTS)  # fmt: skip
    down = (GRID[0][::-1], GRID[1])
    _compare(lambda v, at: ours.RegularGridInterpolator(down, v, method)(at),
             lambda v, at: theirs.RegularGridInterpolator(down, v, method)(at),
             VALUES, POINTS)  # fmt: skip
    outside = POINTS + np.array([3.0, 0.0])
    vectors = rng.normal(size=(4, 3, 2))
    for fill in (0.7, None):
        options = {"method": method, "bounds_error": False, "fill_value": fill}
        _compare(lambda v, at, o=options: ours.interpn(GRID, v, at, **o),
                 lambda v, at, o=options: theirs.interpn(GRID, v, at, **o),
             vectors, outside)  # fmt: skip
    with pytest.raises(ValueError, match="out of bounds in dimension 0"):
        adarray.grad(lambda v: ours.RegularGridInterpolator(GRID, v)(outside).sum())(VALUES)
    with pytest.raises(NotDifferentiableError, match="method='slinear'"):
        adarray.grad(lambda v: ours.RegularGridInterpolator(GRID, v)(POINTS, "slinear").sum())(
            VALUES
        )


@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_griddata(method: str) -> None:
    nodes = rng.uniform(size=(12, 2))
    v, at = (
        rng.normal(size=12),
        np.concatenate([0.3 + 0.4 * rng.uniform(size=(5, 2)), [[3.0, 3.0]]]),
    )
    options = {"method": method, "fill_value": 0.2}
    _compare(lambda v, at: ours.griddata(nodes, v, at, **options),
             lambda v, at: theirs.griddata(nodes, v, at, **options), v, at, order=1)  # fmt: skip


def test_polynomials() -> None:
    _compare(lambda x, y, at: ours.barycentric_interpolate(x, y, at),
             lambda x, y, at: theirs.barycentric_interpolate(x, y, at), X, Y, AT)  # fmt: skip
    _compare(lambda y: ours.barycentric_interpolate(X, y, AT, axis=1),
             lambda y: theirs.barycentric_interpolate(X, y, AT, axis=1), YS)  # fmt: skip
    # At a point, too, the derivative is that of the polynomial.
    check_grads(lambda at: ours.barycentric_interpolate(X, Y, at), (X[2:4],))
    _compare(lambda x, y, at: ours.pchip_interpolate(x, y, at),
             lambda x, y, at: theirs.pchip_interpolate(x, y, at), X, Y, AT)  # fmt: skip


def test_namespace_is_scipys() -> None:
    for name in theirs.__all__:
        assert getattr(ours, name) is not None
    for name in ("CubicSpline", "interp1d", "BSpline", "RegularGridInterpolator"):
        assert issubclass(getattr(ours, name), getattr(theirs, name))
