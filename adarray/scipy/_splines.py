"""Piecewise polynomials: in values, in the points asked for, mostly in knots.

References
----------
- C. de Boor, "A Practical Guide to Splines", revised ed., Springer 2001.
- F. N. Fritsch, J. Butland, "A method for constructing local monotone piecewise cubic
  interpolants", SIAM J. Sci. Stat. Comput. 5 (1984), 300-304 (pchip).
- H. Akima, "A new method of interpolation and smooth curve fitting based on local procedures", J.
  ACM 17 (1970), 589-602.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.interpolate

from adarray.base.errors import NotDifferentiableError
from adarray.core.trace import Handle
from adarray.scipy._drop_in import array, holds, instead_of, is_complex, value
from adarray.scipy._structured import banded


def wide(u: Any, like: Any, lead: int) -> Any:
    """Return `u` with axes behind, to be multiplied with rows of `like`."""
    return np.reshape(u, (*u.shape, *(1,) * (like.ndim - lead)))


def slots(breaks: Any, x: Any, first: int, last: int) -> Any:
    """Return the numbers of the intervals in which points are."""
    return np.clip(np.searchsorted(value(breaks), value(x), side="right") - 1, first, last)


def wrapped(x: Any, low: Any, high: Any) -> Any:
    """Return points moved into one period."""
    periods = np.floor((value(x) - value(low)) / (value(high) - value(low)))
    return x - periods * (high - low)


def overlaid(name: str) -> property:
    """Return an attribute that holds an ADArray where one is set, and SciPy's otherwise."""

    def parent(self: Any) -> Any:
        for kind in type(self).__mro__:
            attribute = vars(kind).get(name)
            if attribute is not None and attribute is not overlay:
                return attribute
        return None  # an attribute of the instance, as in older versions of SciPy

    def read(self: Any) -> Any:
        for key in ("_traced_" + name, "_plain_" + name):
            if key in self.__dict__:
                return self.__dict__[key]
        attribute = parent(self)
        if attribute is None:
            raise AttributeError(name)
        return attribute.__get__(self)

    def write(self: Any, x: Any) -> None:
        if isinstance(x, Handle):
            self.__dict__["_traced_" + name] = x
        else:
            self.__dict__.pop("_traced_" + name, None)
            attribute = parent(self)
            if attribute is None:
                self.__dict__["_plain_" + name] = x
            else:
                attribute.__set__(self, x)

    overlay = property(read, write)
    return overlay


def refusing(name: str) -> Any:
    """Return a method that SciPy computes from the values, and that refuses traced ones."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._is_plain(*args):
            raise NotDifferentiableError(
                f"{type(self).__name__}.{name}: is not differentiated; evaluate the spline and its "
                "derivatives, or make it of adarray.value_of(y)"
            )
        return getattr(super(type(self).__mro__[0], self), name)(*args, **kwargs)

    method.__name__ = name
    return method


class Moved:
    """Evaluation that is shared: shapes, axes, and where SciPy itself computes."""

    axis: int
    extrapolate: Any
    c: Any = overlaid("c")

    def _shaped(self, out: Any, points: Any) -> Any:
        """Return values of points (first axes) with the axis where SciPy has it."""
        if not self.axis:
            return out
        n = points.ndim
        order = list(range(out.ndim))
        return np.transpose(out, order[n : n + self.axis] + order[:n] + order[n + self.axis :])

    def _is_plain(self, *inputs: Any) -> bool:
        own = any(key.startswith("_traced_") for key in self.__dict__)
        return not (own or any(isinstance(v, Handle) for v in inputs))


class Piecewise(Moved):
    """Traced values, coefficients and points for SciPy's piecewise polynomials."""

    x: Any = overlaid("x")

    def _keep(self, x: Any, c: Any) -> None:
        """Put traced breakpoints and coefficients in the place of the plain ones."""
        self.c = c
        if isinstance(x, Handle):
            self.x = x

    def __call__(self, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
        """Evaluate the polynomials or their derivative, as SciPy does."""
        if self._is_plain(x):
            return super().__call__(x, nu, extrapolate)  # type: ignore[misc]
        x = array(x)
        mode = self.extrapolate if extrapolate is None else extrapolate
        low, high = self.x[0], self.x[-1]
        inside = wrapped(x, low, high) if mode == "periodic" else x
        c = self.c
        order = c.shape[0] - 1
        i = slots(self.x, inside, 0, c.shape[1] - 1)
        d = wide(inside - self.x[i], c, 2)
        total: Any = None
        for k in range(order + 1 - nu):
            power = order - k
            factor = float(np.prod(np.arange(power - nu + 1, power + 1)))
            term = c[k][i] * factor
            total = term if total is None else total * d + term
        if total is None:
            total = c[0][i] * 0.0
        if mode is False:
            out = (value(x) < value(low)) | (value(x) > value(high))
            total = np.where(wide(out, c, 2), np.nan, total)
        return self._shaped(total, x)

    def derivative(self, nu: int = 1) -> Any:
        """Return the derivative as another piecewise polynomial."""
        if self._is_plain():
            return super().derivative(nu)  # type: ignore[misc]
        if nu < 0:
            return self.antiderivative(-nu)
        c = self.c
        for _ in range(nu):
            powers = np.arange(c.shape[0] - 1, 0, -1)
            c = c[:-1] * wide(powers, c, 1) if c.shape[0] > 1 else c * 0.0
        return PPoly(c, self.x, self.extrapolate, self.axis)

    def antiderivative(self, nu: int = 1) -> Any:
        """Return the antiderivative, continuous at the breakpoints."""
        if self._is_plain():
            return super().antiderivative(nu)  # type: ignore[misc]
        if nu <= 0:
            return self.derivative(-nu)
        c = self.c
        h = np.diff(self.x)
        for _ in range(nu):
            powers = np.arange(c.shape[0], 0, -1)
            c = c / wide(powers, c, 1)
            grown = c[0] * 0.0
            for k in range(c.shape[0]):
                grown = (grown + c[k]) * wide(h, grown, 1)
            start = np.concatenate([grown[:1] * 0.0, np.cumsum(grown, 0)[:-1]])
            c = np.concatenate([c, start[None]])
        return PPoly(c, self.x, self.extrapolate, self.axis)

    def integrate(self, a: Any, b: Any, extrapolate: Any = None) -> Any:
        """Integrate from `a` to `b`."""
        if self._is_plain(a, b):
            return super().integrate(a, b, extrapolate)  # type: ignore[misc]
        mode = self.extrapolate if extrapolate is None else extrapolate
        if mode == "periodic":
            raise NotDifferentiableError(
                "integrate: extrapolate='periodic' is not differentiated; integrate each period"
            )
        own = self.antiderivative()
        whole = own if isinstance(own, Piecewise) else PPoly(own.c, own.x, mode)
        whole.axis = 0
        return whole(array(b), 0, mode) - whole(array(a), 0, mode)

    roots = refusing("roots")
    solve = refusing("solve")
    extend = refusing("extend")


class PPoly(Piecewise, scipy.interpolate.PPoly):  # type: ignore[misc]
    """`scipy.interpolate.PPoly` with coefficients, breakpoints or points that are traced."""

    def __init__(self, c: Any, x: Any, extrapolate: Any = None, axis: int = 0) -> None:
        moved = array(c)  # its first axes are orders and intervals, wherever values have theirs
        super().__init__(value(moved), value(array(x)), extrapolate, 0)
        self.axis = axis
        if isinstance(moved, Handle) or isinstance(x, Handle):
            self._keep(x, moved)


# -- coefficients from slopes at the points --------------------------------------------------------


def _hermite(x: Any, y: Any, d: Any) -> Any:
    """Return the coefficients of the cubics with values `y` and slopes `d` at `x`."""
    h = wide(np.diff(x), y, 1)
    slope = np.diff(y, axis=0) / h
    t = (d[:-1] + d[1:] - 2 * slope) / h
    return np.stack([t / h, (slope - d[:-1]) / h - t, d[:-1], y[:-1]])


def _end_condition(kind: Any, rest: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
    """Return ``(order, value)`` of a boundary condition, or the name "not-a-knot"."""
    names = {"clamped": (1, 0.0), "natural": (2, 0.0)}
    if isinstance(kind, str):
        return names.get(kind, (kind, None))
    order, end_value = kind
    return order, np.broadcast_to(array(end_value), rest)


def _spline_slopes(x: Any, y: Any, bc: Any) -> Any:
    """Return the slopes of the cubic spline with two continuous derivatives."""
    n, rest = y.shape[0], y.shape[1:]
    h, slope = np.diff(x), np.diff(y, axis=0) / wide(np.diff(x), y, 1)
    if isinstance(bc, str):
        bc = (bc, bc)
    if bc[0] == "periodic":
        return _periodic_slopes(h, slope, y)
    (left, u), (right, v) = (_end_condition(b, rest, y.dtype) for b in bc)
    if n == 2:
        left, u = (1, slope[0]) if left == "not-a-knot" else (left, u)
        right, v = (1, slope[0]) if right == "not-a-knot" else (right, v)
    hw = wide(h, y, 1)
    inner = 3 * (hw[1:] * slope[:-1] + hw[:-1] * slope[1:])
    one, zero = h[:1] * 0 + 1, h[:1] * 0
    both = left == right == "not-a-knot" and n == 3  # one parabola
    if both:
        first, first_b, last, last_b = (one, one), 2 * slope[0], (one, one), 2 * slope[1]
    else:
        first, first_b = _end_row(left, u, h, hw, slope, (one, zero))
        last, last_b = _end_row(right, v, h[::-1], hw[::-1], slope[::-1], (one, zero), -1)
    main = np.concatenate([first[0], 2 * (h[:-1] + h[1:]), last[0]])
    above = np.concatenate([zero, first[1], h[:-1]])
    below = np.concatenate([h[1:], last[1], zero])
    b = np.concatenate([np.reshape(first_b, (1, *rest)), inner, np.reshape(last_b, (1, *rest))])
    flat = np.reshape(b, (n, -1))
    return np.reshape(banded(np.stack([above, main, below]), flat, 1, 1), y.shape)


def _end_row(kind: Any, end_value: Any, h: Any, hw: Any, slope: Any, units: Any,
             sign: int = 1) -> tuple[Any, Any]:  # fmt: skip
    """Return ``(diagonal, next to it)`` and the right-hand side of the equation at an end."""
    one, zero = units
    if kind == 1:
        return (one, zero), end_value
    if kind == 2:
        return (2 * h[:1], h[:1]), 3 * hw[0] * slope[0] - sign * end_value * hw[0] ** 2 / 2
    if kind != "not-a-knot":
        raise ValueError(f"bc_type={kind!r} is not allowed.")
    d = h[:1] + h[1:2]
    dw = hw[0] + hw[1]
    b = ((hw[0] + 2 * dw) * hw[1] * slope[0] + hw[0] ** 2 * slope[1]) / dw
    return (h[1:2], d), b


def _periodic_slopes(h: Any, slope: Any, y: Any) -> Any:
    m = h.shape[0]
    before, ahead = (np.arange(m) - 1) % m, (np.arange(m) + 1) % m
    unit = np.eye(m)
    matrix = (
        2 * (h + h[before])[:, None] * unit + h[:, None] * unit[before]
        + h[before][:, None] * unit[ahead]
    )  # fmt: skip
    hw = wide(h, y, 1)
    b = 3 * (hw * slope[before] + hw[before] * slope)
    s = np.reshape(np.linalg.solve(matrix, np.reshape(b, (m, -1))), (m, *y.shape[1:]))
    return np.concatenate([s, s[:1]])


def _pchip_end(h0: Any, h1: Any, m0: Any, m1: Any) -> Any:
    d = ((2 * h0 + h1) * m0 - h0 * m1) / (h0 + h1)
    wrong_sign = np.sign(value(d)) != np.sign(value(m0))
    steep = (np.sign(value(m0)) != np.sign(value(m1))) & (np.abs(value(d)) > 3 * np.abs(value(m0)))
    return np.where(wrong_sign, 0.0, np.where(steep, 3 * m0, d))


def _pchip_slopes(x: Any, y: Any) -> Any:
    h = wide(np.diff(x), y, 1)
    m = np.diff(y, axis=0) / h
    if y.shape[0] == 2:
        return np.concatenate([m, m])
    signs = np.sign(value(m))
    flat = (signs[1:] != signs[:-1]) | (signs[1:] == 0) | (signs[:-1] == 0)
    w1, w2 = 2 * h[1:] + h[:-1], h[1:] + 2 * h[:-1]
    safe = np.where(flat, 1.0, m[:-1]), np.where(flat, 1.0, m[1:])
    inner = np.where(flat, 0.0, (w1 + w2) / (w1 / safe[0] + w2 / safe[1]))
    ends = _pchip_end(h[0], h[1], m[0], m[1]), _pchip_end(h[-1], h[-2], m[-1], m[-2])
    return np.concatenate([ends[0][None], inner, ends[1][None]])


def _akima_slopes(x: Any, y: Any, method: str) -> Any:
    if y.shape[0] == 2:
        return np.concatenate([np.diff(y, axis=0) / wide(np.diff(x), y, 1)] * 2)
    m = np.diff(y, axis=0) / wide(np.diff(x), y, 1)
    one = 2 * m[:1] - m[1:2]
    last = 2 * m[-1:] - m[-2:-1]
    m = np.concatenate([2 * one - m[:1], one, m, last, 2 * last - m[-1:]])
    jump = np.abs(np.diff(m, axis=0))
    if method == "makima":
        size = np.abs(m[1:] + m[:-1]) / 2
        f1, f2 = jump[2:] + size[2:], jump[:-2] + size[:-2]
    else:
        f1, f2 = jump[2:], jump[:-2]
    total = f1 + f2
    even = value(total) <= 1e-9 * np.max(value(total), initial=-np.inf)
    weighted = m[1:-2] + f2 / np.where(even, 1.0, total) * (m[2:-1] - m[1:-2])
    return np.where(even, (m[3:] + m[:-3]) / 2, weighted)


class _OfSlopes(Piecewise):
    """Splines whose coefficients follow from slopes at the points."""

    def _differentiate(self, x: Any, y: Any, axis: int, slopes: Any) -> None:
        if not (isinstance(x, Handle) or isinstance(y, Handle) or slopes[2]):
            return
        y = np.moveaxis(array(y), axis, 0)
        if y.dtype.char in "fF":  # SciPy computes in double precision
            y = y.astype(np.complex128 if is_complex(y) else np.float64)
        x = array(x)
        self._keep(x, _hermite(x, y, slopes[0](x, y, *slopes[1])))


class CubicSpline(_OfSlopes, scipy.interpolate.CubicSpline):  # type: ignore[misc]
    """`scipy.interpolate.CubicSpline`; `x`, `y`, boundary values and points may be traced."""

    def __init__(
        self, x: Any, y: Any, axis: int = 0, bc_type: Any = "not-a-knot", extrapolate: Any = None
    ) -> None:
        x, y = (array(v) if holds(v) else v for v in (x, y))
        super().__init__(value(x), value(y), axis, value(bc_type), extrapolate)
        self._differentiate(x, y, axis, (_spline_slopes, (bc_type,), holds(bc_type)))


class PchipInterpolator(_OfSlopes, scipy.interpolate.PchipInterpolator):  # type: ignore[misc]
    """`scipy.interpolate.PchipInterpolator`; `x`, `y` and the points may be traced."""

    def __init__(self, x: Any, y: Any, axis: int = 0, extrapolate: Any = None) -> None:
        x, y = (array(v) if holds(v) else v for v in (x, y))
        super().__init__(value(x), value(y), axis, extrapolate)
        self._differentiate(x, y, axis, (_pchip_slopes, (), False))


class Akima1DInterpolator(_OfSlopes, scipy.interpolate.Akima1DInterpolator):  # type: ignore[misc]
    """`scipy.interpolate.Akima1DInterpolator`; `x`, `y` and the points may be traced."""

    def __init__(
        self, x: Any, y: Any, axis: int = 0, *, method: str = "akima", extrapolate: Any = None
    ) -> None:
        x, y = (array(v) if holds(v) else v for v in (x, y))
        super().__init__(value(x), value(y), axis, method=method, extrapolate=extrapolate)
        self._differentiate(x, y, axis, (_akima_slopes, (method,), False))


class CubicHermiteSpline(_OfSlopes, scipy.interpolate.CubicHermiteSpline):  # type: ignore[misc]
    """`scipy.interpolate.CubicHermiteSpline`; all arguments and the points may be traced."""

    def __init__(self, x: Any, y: Any, dydx: Any, axis: int = 0, extrapolate: Any = None) -> None:
        x, y, dydx = (array(v) if holds(v) else v for v in (x, y, dydx))
        super().__init__(value(x), value(y), value(dydx), axis, extrapolate)
        slopes = np.moveaxis(array(dydx), axis, 0)
        self._differentiate(x, y, axis, (lambda x, y: slopes, (), isinstance(dydx, Handle)))


@instead_of(scipy.interpolate.pchip_interpolate)
def pchip_interpolate(xi: Any, yi: Any, x: Any, der: Any = 0, axis: int = 0) -> Any:
    spline = PchipInterpolator(xi, yi, axis)
    if np.ndim(der):
        return [spline(x, int(d)) for d in der]
    return spline(x, int(der))


@instead_of(scipy.interpolate.barycentric_interpolate)
def barycentric_interpolate(xi: Any, yi: Any, x: Any, axis: int = 0) -> Any:
    xi, x, y = array(xi), array(x), np.moveaxis(array(yi), axis, 0)
    n = xi.shape[0]
    same = np.eye(n, dtype=bool)
    # Products without the factor of the point itself: smooth at the points, too.
    below = np.prod(np.where(same, 1.0, xi[:, None] - xi[None, :]), axis=1)
    above = np.prod(np.where(same, 1.0, (x[..., None] - xi)[..., None, :]), axis=-1)
    r = np.tensordot(above / below, y, axes=(-1, 0))
    order = list(range(r.ndim))
    m, shift = x.ndim, axis % y.ndim
    return np.transpose(r, order[m : m + shift] + order[:m] + order[m + shift :])
