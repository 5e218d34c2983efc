"""Drop-in for `scipy.interpolate`: splines and grids that differentiate.

In the values always, in the points where the interpolant is asked for, and in the
breakpoints of piecewise cubics. Derivatives at breakpoints are those from the right.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import scipy.interpolate
import scipy.spatial

from adarray.base.errors import NotDifferentiableError
from adarray.scipy._drop_in import array, fill_in, holds, instead_of, refuse_traced, value

# isort: off
from adarray.scipy._bsplines import (
    BSpline as BSpline,
    make_interp_spline as make_interp_spline,
    splev as splev,
    splrep as splrep,
)
from adarray.scipy._splines import (
    Akima1DInterpolator as Akima1DInterpolator,
    CubicHermiteSpline as CubicHermiteSpline,
    CubicSpline as CubicSpline,
    PchipInterpolator as PchipInterpolator,
    PPoly as PPoly,
    barycentric_interpolate as barycentric_interpolate,
    overlaid as overlaid,
    pchip_interpolate as pchip_interpolate,
)

# isort: on
from adarray.core.trace import Handle

pchip = PchipInterpolator
_ORDERS = {"slinear": 1, "quadratic": 2, "cubic": 3}


class interp1d(scipy.interpolate.interp1d):  # type: ignore[misc]  # noqa: N801
    """`scipy.interpolate.interp1d`; the values `y` and the points may be traced."""

    def __init__(self, x: Any, y: Any, kind: Any = "linear", axis: int = -1, copy: bool = True,
                 bounds_error: Any = None, fill_value: Any = np.nan,
                 assume_sorted: bool = False) -> None:  # fmt: skip
        x, y = (array(v) if holds(v) else v for v in (x, y))
        refuse_traced("interp1d", x=x, fill_value=fill_value)
        super().__init__(value(x), value(y), kind, axis, copy, bounds_error, value(fill_value),
                         assume_sorted)  # fmt: skip
        self._kind_argument, self._axis_argument = kind, axis
        self._values = np.moveaxis(array(y), axis, 0)
        order = np.argsort(value(x), kind="mergesort")
        if not assume_sorted:
            self._values = self._values[order]
        if isinstance(y, Handle):
            self.y = np.moveaxis(self._values, 0, axis)

    def __call__(self, x: Any) -> Any:
        """Evaluate the interpolant at `x`."""
        if not (isinstance(x, Handle) or isinstance(self._values, Handle)):
            return super().__call__(x)
        x = array(x)
        plain = (
            super().__call__(value(x))
            if not isinstance(self._values, Handle)
            else (self._outside(value(x)))
        )
        r = self._inside(x)
        axis = self._axis_argument % self._values.ndim
        order = list(range(r.ndim))
        r = np.transpose(r, order[x.ndim : x.ndim + axis] + order[: x.ndim]
                         + order[x.ndim + axis :])  # fmt: skip
        out = (value(x) < self.x[0]) | (value(x) > self.x[-1])
        if self._extrapolate or not np.any(out):
            return r
        shape = (*(1,) * axis, *x.shape, *(1,) * (self._values.ndim - 1 - axis))
        return np.where(np.reshape(out, shape), plain, r)

    def _outside(self, x: Any) -> Any:
        """Return SciPy's result outside of the range, which does not depend on the values."""
        interpolant = scipy.interpolate.interp1d(
            self.x, value(self.y), self._kind_argument, self._axis_argument,
            bounds_error=self.bounds_error, fill_value=self.fill_value, assume_sorted=True,
        )  # fmt: skip
        return interpolant(x)

    def _inside(self, x: Any) -> Any:
        at, y, kind = value(x), self._values, self._kind_argument
        n = len(self.x)
        kind = _ORDERS.get(kind, kind)
        if kind in ("previous", "zero", 0):
            return y[np.clip(np.searchsorted(self.x, at, "right") - 1, 0, n - 1)]
        if kind == "next":
            return y[np.clip(np.searchsorted(self.x, at, "left"), 0, n - 1)]
        if kind in ("nearest", "nearest-up"):
            middle = (self.x[1:] + self.x[:-1]) / 2
            side: Any = "left" if kind == "nearest" else "right"
            return y[np.searchsorted(middle, at, side)]
        if kind in ("linear", 1):
            i = np.clip(np.searchsorted(self.x, at, "left"), 1, n - 1)
            low = self.x[i - 1]
            part = np.reshape((x - low) / (self.x[i] - low), (*at.shape, *(1,) * (y.ndim - 1)))
            return y[i - 1] + part * (y[i] - y[i - 1])
        return make_interp_spline(self.x, y, k=int(kind))(x)


def _grid_linear(points: Any, values: Any, xi: Any) -> Any:
    """Interpolate on a grid: the corners around each point, weighted."""
    corners = []
    for axis, line in enumerate(points):
        i = np.clip(np.searchsorted(line, value(xi[..., axis]), "right") - 1, 0, len(line) - 2)
        part = (xi[..., axis] - line[i]) / (line[i + 1] - line[i])
        corners.append(((i, 1 - part), (i + 1, part)))
    total: Any = None
    for pick in itertools.product(*corners):
        at = tuple(i for i, _ in pick)
        weight = pick[0][1]
        for _, w in pick[1:]:
            weight = weight * w
        picked = values[at]
        part = picked * np.reshape(weight, (*weight.shape, *(1,) * (picked.ndim - weight.ndim)))
        total = part if total is None else total + part
    return total


def _grid_nearest(points: Any, values: Any, xi: Any) -> Any:
    at = []
    for axis, line in enumerate(points):
        x = value(xi[..., axis])
        i = np.clip(np.searchsorted(line, x, "right") - 1, 0, len(line) - 2)
        far = (x - line[i]) / (line[i + 1] - line[i]) > 0.5
        at.append(np.where(far, i + 1, i))
    return values[tuple(at)]


class RegularGridInterpolator(scipy.interpolate.RegularGridInterpolator):  # type: ignore[misc]
    """`scipy.interpolate.RegularGridInterpolator`; values and points asked for may be traced.

    The methods "linear" and "nearest" are differentiated.
    """

    values = overlaid("values")

    def __init__(self, points: Any, values: Any, method: str = "linear", bounds_error: bool = True,
                 fill_value: Any = np.nan, **options: Any) -> None:  # fmt: skip
        refuse_traced("RegularGridInterpolator", points=points, fill_value=fill_value)
        values = array(values) if holds(values) else values
        super().__init__(value(points), value(values), method, bounds_error, value(fill_value),
                         **options)  # fmt: skip
        if isinstance(values, Handle):
            order = [np.argsort(np.asarray(value(p))) for p in points]
            descending = [k for k, o in enumerate(order) if len(o) > 1 and o[0] > o[-1]]
            self.values = np.flip(array(values), tuple(descending)) if descending else values

    def __call__(self, xi: Any, method: Any = None, *, nu: Any = None) -> Any:
        """Interpolate at the points `xi`."""
        xi = array(xi) if holds(xi) and isinstance(xi, Handle) else xi
        if not (holds(xi) or isinstance(self.values, Handle)):
            return super().__call__(xi, method, nu=nu)
        kind = self.method if method is None else method
        if kind not in ("linear", "nearest") or nu is not None:
            raise NotDifferentiableError(
                f"RegularGridInterpolator: method={kind!r} with nu={nu!r} is not differentiated; "
                "use method='linear'"
            )
        if isinstance(xi, (tuple, list)):
            xi = np.stack(np.broadcast_arrays(*map(array, xi)), -1)
        x = array(xi)
        if x.ndim == 1:
            x = x[:, None] if len(self.grid) == 1 else x[None, :]
        at = value(x)
        low = np.array([g[0] for g in self.grid])
        high = np.array([g[-1] for g in self.grid])
        out = ((at < low) | (at > high)).any(-1)
        if self.bounds_error and np.any(out):
            k = int(np.flatnonzero(((at < low) | (at > high)).reshape(-1, len(low)).any(0))[0])
            raise ValueError(f"One of the requested xi is out of bounds in dimension {k}")
        rule = _grid_linear if kind == "linear" else _grid_nearest
        r = rule(self.grid, self.values, x)
        if self.fill_value is None or not np.any(out):
            return r
        shape = (*out.shape, *(1,) * (r.ndim - out.ndim))
        return np.where(np.reshape(out, shape), self.fill_value, r)


@instead_of(scipy.interpolate.interpn)
def interpn(points: Any, values: Any, xi: Any, method: str = "linear", bounds_error: bool = True,
            fill_value: Any = np.nan) -> Any:  # fmt: skip
    interpolant = RegularGridInterpolator(points, values, method, bounds_error, fill_value)
    return interpolant(xi)


@instead_of(scipy.interpolate.griddata)
def griddata(points: Any, values: Any, xi: Any, method: str = "linear", fill_value: Any = np.nan,
             ) -> Any:  # fmt: skip
    refuse_traced("griddata", points=points, fill_value=fill_value)
    at = np.asarray(value(points)) if not isinstance(points, tuple) else np.stack(points, -1)
    if at.ndim == 1 or at.shape[-1] == 1:
        line = at.reshape(-1)
        inside = interp1d(line, values, method, axis=0, bounds_error=False, fill_value=fill_value)
        return inside(xi[0] if isinstance(xi, tuple) else xi)
    x = np.stack(np.broadcast_arrays(*map(array, xi)), -1) if isinstance(xi, tuple) else array(xi)
    v = array(values)
    if method == "nearest":
        _, near = scipy.spatial.cKDTree(at).query(value(x))
        return v[near]
    if method != "linear":
        raise NotDifferentiableError(
            f"griddata: method={method!r} is not differentiated; use 'linear' or 'nearest'"
        )
    mesh = scipy.spatial.Delaunay(at)
    simplex = mesh.find_simplex(value(x))
    d = at.shape[1]
    affine = mesh.transform[simplex]
    part = np.sum(affine[..., :d, :] * (x - affine[..., d, :])[..., None, :], -1)
    weights = np.concatenate([part, 1 - np.sum(part, -1, keepdims=True)], -1)
    corners = v[mesh.simplices[simplex]]
    wide = np.reshape(weights, (*weights.shape, *(1,) * (corners.ndim - weights.ndim)))
    r = np.sum(wide * corners, axis=weights.ndim - 1)
    out = np.reshape(simplex < 0, (*simplex.shape, *(1,) * (r.ndim - simplex.ndim)))
    return np.where(out, value(fill_value), r)


__getattr__, __dir__, __all__ = fill_in(globals(), scipy.interpolate)
