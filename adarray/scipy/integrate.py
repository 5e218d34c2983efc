"""Drop-in for `scipy.integrate`: integrals of samples and of functions, and ODEs."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.integrate

from adarray.scipy._drop_in import array, constant, fill_in, instead_of, value

# isort: off
from adarray.scipy._ode import (
    odeint as odeint,
    solve_ivp as solve_ivp,
)
from adarray.scipy._quad import (
    dblquad as dblquad,
    fixed_quad as fixed_quad,
    nquad as nquad,
    quad as quad,
    quad_vec as quad_vec,
    tplquad as tplquad,
)
# isort: on


def _spacings(x: Any, dx: Any, y: Any, axis: int) -> Any:
    """Return the distances of samples along the last axis, to be broadcast with `y`'s gaps."""
    if x is None:
        return dx
    x = np.atleast_1d(array(x))
    return np.diff(x) if x.ndim == 1 else np.diff(np.moveaxis(x, axis, -1))


@instead_of(scipy.integrate.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    y = np.moveaxis(array(y), axis, -1)
    return np.sum(_spacings(x, dx, y, axis) * (y[..., 1:] + y[..., :-1]) / 2, -1)


@instead_of(scipy.integrate.cumulative_trapezoid)
def cumulative_trapezoid(
    y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1, initial: Any = None
) -> Any:
    if initial is not None and value(initial) != 0:
        raise ValueError("`initial` must be `None` or `0`.")
    y = np.moveaxis(array(y), axis, -1)
    if y.shape[-1] == 0:
        raise ValueError("At least one point is required along `axis`.")
    d = _spacings(x, dx, y, axis)
    total = np.cumsum(d * (y[..., 1:] + y[..., :-1]) / 2, -1)
    if initial is not None:
        total = np.concatenate([np.zeros((*total.shape[:-1], 1), total.dtype), total], -1)
    return np.moveaxis(total, -1, axis)


def _first_of_three(h: Any, k: Any, y0: Any, y1: Any, y2: Any) -> Any:
    """Integrate the parabola through three points over the first gap h; the second is k."""
    return (
        h / 6 * ((2 * h + 3 * k) / (h + k) * y0 + (h + 3 * k) / k * y1 - h**2 / (k * (h + k)) * y2)
    )


def _gaps(x: Any, dx: Any, y: Any, axis: int) -> Any:
    """Return the distances between samples, one for each gap."""
    d = _spacings(x, dx, y, axis)
    return d + np.zeros(y.shape[-1] - 1, y.dtype)


@instead_of(scipy.integrate.simpson)
def simpson(y: Any, x: Any = None, *, dx: Any = 1.0, axis: int = -1) -> Any:
    y = np.moveaxis(array(y), axis, -1)
    n = y.shape[-1]
    if x is not None and np.shape(value(x))[axis if np.ndim(value(x)) > 1 else 0] != n:
        raise ValueError("If given, length of x along axis must be the same as y.")
    h = _gaps(x, dx, y, axis)
    if n == 2:
        return h[..., 0] * (y[..., 0] + y[..., 1]) / 2
    last = n - 1 if n % 2 else n - 2  # pairs of gaps up to this sample
    h0, h1 = h[..., 0:last:2], h[..., 1:last:2]
    y0, y1, y2 = y[..., 0:last:2], y[..., 1:last:2], y[..., 2 : last + 1 : 2]
    both = h0 + h1
    total = np.sum(
        both / 6 * (y0 * (2 - h1 / h0) + y1 * both**2 / (h0 * h1) + y2 * (2 - h0 / h1)), -1
    )
    if n % 2 == 0 and n > 2:  # the gap that is left over: the parabola of the last three
        total = total + _first_of_three(h[..., -1], h[..., -2], y[..., -1], y[..., -2], y[..., -3])
    return total


@instead_of(scipy.integrate.cumulative_simpson)
def cumulative_simpson(
    y: Any, *, x: Any = None, dx: Any = 1.0, axis: int = -1, initial: Any = None
) -> Any:
    y = np.moveaxis(array(y), axis, -1)
    n = y.shape[-1]
    if n < 3:
        if x is not None and np.ndim(value(x)) > 1:
            x = np.moveaxis(array(x), axis, -1)
        total = cumulative_trapezoid(y, x, dx)
    else:
        h = _gaps(x, dx, y, axis)
        h = np.broadcast_to(h, (*y.shape[:-1], n - 1))
        # Gaps 0, 2, ... begin a pair, gaps 1, 3, ... and the last one end a pair.
        ahead = _first_of_three(h[..., :-1], h[..., 1:], y[..., :-2], y[..., 1:-1], y[..., 2:])
        behind = _first_of_three(h[..., 1:], h[..., :-1], y[..., 2:], y[..., 1:-1], y[..., :-2])
        i = np.arange(n - 1)
        begins = (i % 2 == 0) & (i < n - 2)
        part = np.where(begins, ahead[..., np.minimum(i, n - 3)], behind[..., np.maximum(i - 1, 0)])
        total = np.cumsum(part, -1)
    if initial is not None:
        start = array(initial)
        start = np.reshape(start, (1,)) if start.ndim == 0 else np.moveaxis(start, axis, -1)
        start = np.broadcast_to(start, (*total.shape[:-1], 1))
        total = np.concatenate([start, total + start], -1)
    return np.moveaxis(total, -1, axis)


@instead_of(scipy.integrate.romb)
def romb(y: Any, dx: Any = 1.0, axis: int = -1) -> Any:
    y = np.moveaxis(array(y), axis, -1)
    gaps = y.shape[-1] - 1
    levels = gaps.bit_length() - 1
    if gaps < 1 or 1 << levels != gaps:
        raise ValueError("Number of samples must be one plus a non-negative power of 2.")
    row: list[Any] = []
    for k in range(levels + 1):
        step = gaps >> k
        inner = np.sum(y[..., step:-1:step], -1) if k else 0.0
        new = [(step * dx) * (inner + (y[..., 0] + y[..., -1]) / 2)]
        for j in range(k):
            new.append(new[j] + (new[j] - row[j]) / (4.0 ** (j + 1) - 1))
        row = new
    return row[-1]


newton_cotes = constant(scipy.integrate.newton_cotes)
__getattr__, __dir__, __all__ = fill_in(
    globals(),
    scipy.integrate,
    {"solve_bvp": "boundary value problems are not differentiated; solve_ivp and "
     "adarray.scipy.optimize.root (shooting) are"},
)  # fmt: skip
