"""B-splines: in coefficients, in the points asked for, in knots; interpolation in values alone.

References
----------
- C. de Boor, "A Practical Guide to Splines", revised ed., Springer 2001.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.interpolate

from adarray.base.errors import NotDifferentiableError
from adarray.core.trace import Handle
from adarray.scipy._drop_in import array, holds, instead_of, refuse_traced, value
from adarray.scipy._splines import Moved, overlaid, refusing, slots, wide, wrapped


class BSpline(Moved, scipy.interpolate.BSpline):  # type: ignore[misc]
    """`scipy.interpolate.BSpline`; coefficients, knots and points may be traced."""

    t: Any = overlaid("t")
    k: int

    def __init__(self, t: Any, c: Any, k: int, extrapolate: Any = True, axis: int = 0) -> None:
        t, c = (array(v) if holds(v) else v for v in (t, c))
        super().__init__(value(t), value(c), k, extrapolate, axis)
        if isinstance(c, Handle):
            self.c = np.moveaxis(array(c), axis, 0) if self.axis else c
        if isinstance(t, Handle):
            self.t = t

    def __call__(self, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
        """Evaluate the spline or a derivative, as SciPy does."""
        if self._is_plain(x):
            return super().__call__(x, nu, extrapolate)
        x, mode = array(x), self.extrapolate if extrapolate is None else extrapolate
        t, c, k = self.t, self.c, self.k
        n = t.shape[0] - k - 1
        low, high = t[k], t[n]
        inside = wrapped(x, low, high) if mode == "periodic" else x
        i = slots(t, inside, k, n - 1)
        for _ in range(nu):
            if k == 0:
                c = c * 0.0
                break
            gaps = t[k + 1 : k + n] - t[1:n]
            flat = value(gaps) == 0
            steps = k * (c[1:n] - c[: n - 1]) / wide(np.where(flat, 1.0, gaps), c, 1)
            c = np.where(wide(flat, c, 1), 0.0, steps)
            t, i, k, n = t[1:-1], i - 1, k - 1, n - 1
        points = [c[i - k + j] for j in range(k + 1)]
        for r in range(1, k + 1):
            for j in range(k, r - 1, -1):
                left = t[i - k + j]
                a = wide((inside - left) / (t[i + j + 1 - r] - left), c, 1)
                points[j] = (1 - a) * points[j - 1] + a * points[j]
        total = points[k]
        if mode is False:
            out = (value(x) < value(low)) | (value(x) > value(high))
            total = np.where(wide(out, c, 1), np.nan, total)
        return self._shaped(total, x)

    derivative = refusing("derivative")
    antiderivative = refusing("antiderivative")
    integrate = refusing("integrate")
    insert_knot = refusing("insert_knot")


def _interpolation_matrix(x: Any, k: int, t: Any, bc_type: Any) -> Any:
    """Return knots, and the matrix from values to coefficients."""
    units = np.eye(len(x))
    if bc_type == "periodic":  # the last value is the first one
        units[-1, 0], units[-1, -1] = 1.0, 0.0
    spline = scipy.interpolate.make_interp_spline(x, units, k, t, bc_type)
    return spline.t, spline.c


def make_interp_spline(
    x: Any, y: Any, k: int = 3, t: Any = None, bc_type: Any = None, axis: int = 0,
    check_finite: bool = True,
) -> Any:  # fmt: skip
    """As `scipy.interpolate.make_interp_spline`, linear in the values `y`."""
    refuse_traced("make_interp_spline", x=x, t=t)
    if not holds(y):
        spline = scipy.interpolate.make_interp_spline(
            value(x), y, k, value(t), value(bc_type), axis, check_finite
        )
        c = np.moveaxis(spline.c, 0, axis) if axis else spline.c
        return BSpline(spline.t, c, k, spline.extrapolate, axis)
    if (
        bc_type is not None
        and not isinstance(bc_type, str)
        and not all(b is None or isinstance(b, str) for b in bc_type)
    ):
        raise NotDifferentiableError(
            "make_interp_spline: boundary derivatives given as values are not differentiated; use "
            "CubicSpline, or bc_type='natural' and the like"
        )
    y = np.moveaxis(array(y), axis, 0)
    if check_finite:
        np.asarray_chkfinite(value(y))
    knots, matrix = _interpolation_matrix(value(x), k, value(t), bc_type)
    c = np.tensordot(matrix, y, axes=(1, 0))
    extrapolate = "periodic" if bc_type == "periodic" else True
    return BSpline(knots, np.moveaxis(c, 0, axis), k, extrapolate, axis)


@instead_of(scipy.interpolate.splrep)
def splrep(x: Any, y: Any, w: Any = None, xb: Any = None, xe: Any = None, k: int = 3, s: Any = None,
           ) -> Any:  # fmt: skip
    refuse_traced("splrep", x=x, w=w, s=s)
    if (s is None and w is not None) or (s is not None and value(s) != 0):
        raise NotDifferentiableError(
            "splrep: smoothing chooses knots by the data and is not differentiated; pass s=0, or "
            "use make_lsq_spline's equations with np.linalg.lstsq"
        )
    t, _, _ = scipy.interpolate.splrep(value(x), value(y), None, xb, xe, k, s=0)
    _, matrix = _interpolation_matrix(np.asarray(value(x)), k, t, None)
    y = array(y)
    c = np.matmul(matrix, y)
    return t, np.concatenate([c, np.zeros(k + 1, c.dtype)]), k


@instead_of(scipy.interpolate.splev)
def splev(x: Any, tck: Any, der: int = 0, ext: int = 0) -> Any:
    if isinstance(tck, scipy.interpolate.BSpline):
        tck = (tck.t, tck.c, tck.k)
    t, c, k = tck
    if isinstance(c, (list, tuple)):
        return [splev(x, (t, part, k), der, ext) for part in c]
    if not 0 <= der <= k:
        raise ValueError(f"0<=der={der}<=k={k} must hold")
    if ext not in (0, 1, 2, 3):
        raise ValueError(f"ext = {ext} not in (0, 1, 2, 3) ")
    x, t, c, k = array(x), array(t), array(c), int(value(k))
    low, high = t[k], t[t.shape[0] - k - 1]
    out = (value(x) < value(low)) | (value(x) > value(high))
    if ext == 2 and np.any(out):
        raise ValueError("Found x value not in the domain")
    at = np.clip(x, low, high) if ext == 3 and der == 0 else x
    r = BSpline(t, c[: t.shape[0] - k - 1], k)(at, der)
    return np.where(out, 0.0, r) if ext == 1 else r
