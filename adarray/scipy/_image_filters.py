"""Filters of `scipy.ndimage`: linear ones by convolution, those by rank by picking."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.ndimage

from adarray.base.errors import NotDifferentiableError
from adarray.core.protocol import traced
from adarray.scipy._convolution import convolution, extend, positions
from adarray.scipy._drop_in import array, instead_of, is_complex, refuse_traced, value
from adarray.scipy._triangular import conj


def result(r: Any, x: Any, output: Any, name: str) -> Any:
    """Return a result in the dtype that ``output=`` asks for, that of the input if it does not."""
    if isinstance(output, np.ndarray) or hasattr(output, "_node"):
        raise NotDifferentiableError(
            f"{name}: output= as an array is not differentiated; pass a dtype, and use the result"
        )
    dtype = np.result_type(x.dtype, r.dtype.type(0) if is_complex(r) else x.dtype)
    if output is not None:
        dtype = np.dtype(output)
        if is_complex(r) and dtype.kind != "c":
            raise RuntimeError("output must have complex dtype")
    elif is_complex(r) and not is_complex(x):
        dtype = np.result_type(x.dtype, np.complex64)
    return r if r.dtype == dtype else r.astype(dtype)


def each(x: Any, n: int, name: str = "sequence") -> list[Any]:
    """Return an argument that is one for all axes or one for each as a list."""
    if isinstance(x, str) or np.ndim(value(x) if not isinstance(x, (list, tuple)) else x) == 0:
        return [x] * n
    if len(x) != n:
        raise RuntimeError(f"{name} argument must have length equal to input rank")
    return list(x)


def picked_axes(axes: Any, ndim: int) -> list[int]:
    """Return the axes to filter as a list of non-negative numbers."""
    if axes is None:
        return list(range(ndim))
    picked = [axes] if isinstance(axes, numbers.Integral) else list(axes)
    if len({int(i) % ndim for i in picked}) != len(picked):
        raise ValueError("axes must be unique")
    return [int(i) % ndim for i in picked]


def _spread(size: int, origin: int) -> tuple[int, int]:
    """Return how far a window reaches before and after its element."""
    before = size // 2 + int(origin)
    if not 0 <= before < max(size, 1):
        raise ValueError("invalid origin")
    return before, size - before - 1


def along_axis(x: Any, weights: Any, axis: int, mode: str, cval: Any, origin: int) -> Any:
    """Correlate with a row of weights along one axis."""
    k = weights.shape[0]
    if k < 1:
        raise RuntimeError("no filter weights given")
    before, after = _spread(k, origin)
    wide = extend(x, axis, before, after, mode, cval)
    shape = [1] * x.ndim
    shape[axis] = k
    row = np.reshape(np.flip(weights), shape)
    return convolution(wide, row, (axis,), "valid", "direct")


@instead_of(scipy.ndimage.correlate1d)
def correlate1d(
    input: Any, weights: Any, axis: int = -1, output: Any = None, mode: str = "reflect",
    cval: Any = 0.0, origin: int = 0,
) -> Any:  # fmt: skip
    x, w = array(input), conj(array(weights))
    return result(along_axis(x, w, axis % x.ndim, mode, cval, origin), x, output, "correlate1d")


def _convolution_origin(size: int, origin: int) -> int:
    """Return the origin of the correlation that is a convolution."""
    return -int(origin) - (1 if size % 2 == 0 else 0)


@instead_of(scipy.ndimage.convolve1d)
def convolve1d(
    input: Any, weights: Any, axis: int = -1, output: Any = None, mode: str = "reflect",
    cval: Any = 0.0, origin: int = 0,
) -> Any:  # fmt: skip
    x, w = array(input), np.flip(array(weights))
    r = along_axis(x, w, axis % x.ndim, mode, cval, _convolution_origin(w.shape[0], origin))
    return result(r, x, output, "convolve1d")


def _in_all(x: Any, w: Any, mode: Any, cval: Any, origins: list[int], axes: list[int]) -> Any:
    """Correlate with weights over several axes."""
    if w.ndim != len(axes):
        raise RuntimeError("filter weights array has incorrect shape.")
    modes = each(mode, len(axes), "mode")
    for axis, k, origin, m in zip(axes, w.shape, origins, modes, strict=True):
        x = extend(x, axis, *_spread(k, origin), m, cval)
    shape = [1] * x.ndim
    for axis, k in zip(axes, w.shape, strict=True):
        shape[axis] = k
    kernel = np.reshape(np.flip(np.transpose(w, np.argsort(axes))), shape)
    return convolution(x, kernel, tuple(sorted(axes)), "valid", "direct")


@instead_of(scipy.ndimage.correlate)
def correlate(
    input: Any, weights: Any, output: Any = None, mode: Any = "reflect", cval: Any = 0.0,
    origin: Any = 0, axes: Any = None,
) -> Any:  # fmt: skip
    x, w = array(input), conj(array(weights))
    where = picked_axes(axes, x.ndim)
    r = _in_all(x, w, mode, cval, each(origin, len(where)), where)
    return result(r, x, output, "correlate")


@instead_of(scipy.ndimage.convolve)
def convolve(
    input: Any, weights: Any, output: Any = None, mode: Any = "reflect", cval: Any = 0.0,
    origin: Any = 0, axes: Any = None,
) -> Any:  # fmt: skip
    x, w = array(input), np.flip(array(weights))
    where = picked_axes(axes, x.ndim)
    origins = [
        _convolution_origin(k, o) for k, o in zip(w.shape, each(origin, len(where)), strict=True)
    ]
    return result(_in_all(x, w, mode, cval, origins, where), x, output, "convolve")


# -- Gaussians and means ---------------------------------------------------------------------------


def gaussian_weights(sigma: Any, order: int, radius: int) -> Any:
    """Return a sampled Gaussian, normalised, or its derivative; `sigma` may be traced."""
    if order < 0:
        raise ValueError("order must be non-negative")
    i = np.arange(-radius, radius + 1, dtype=float)
    bell = np.exp(-0.5 / sigma**2 * i**2)
    bell = bell / np.sum(bell)
    # bell' = -x / sigma**2 bell: coefficients of the polynomial before it, by degree.
    factor: list[Any] = [1.0]
    for _ in range(order):
        slope = [*[k * c for k, c in enumerate(factor)][1:], 0.0, 0.0]
        factor = [
            s - (factor[k - 1] / sigma**2 if k else 0.0)
            for k, s in enumerate(slope[: len(factor) + 1])
        ]
    total: Any = 0.0
    for k, c in enumerate(factor):
        total = total + c * i**k
    return bell * total


def _gaussian(x: Any, sigma: Any, axis: int, order: int, mode: str, cval: Any, truncate: float,
              radius: Any) -> Any:  # fmt: skip
    sigma = float(sigma) if not traced(sigma) else sigma
    reach = int(truncate * float(value(sigma)) + 0.5) if radius is None else radius
    if not isinstance(reach, numbers.Integral) or reach < 0:
        raise ValueError("Radius must be a nonnegative integer.")
    weights = np.flip(gaussian_weights(sigma, order, int(reach)))
    if weights.dtype != x.dtype and not is_complex(x):
        weights = weights.astype(x.dtype)
    return along_axis(x, weights, axis, mode, cval, 0)


@instead_of(scipy.ndimage.gaussian_filter1d)
def gaussian_filter1d(
    input: Any, sigma: Any, axis: int = -1, order: int = 0, output: Any = None,
    mode: str = "reflect", cval: Any = 0.0, truncate: float = 4.0, radius: Any = None,
) -> Any:  # fmt: skip
    x = array(input)
    r = _gaussian(x, sigma, axis % x.ndim, order, mode, cval, truncate, radius)
    return result(r, x, output, "gaussian_filter1d")


def _blurred(x: Any, sigma: Any, order: Any, mode: Any, cval: Any, truncate: float, radius: Any,
             axes: Any) -> Any:  # fmt: skip
    where = picked_axes(axes, x.ndim)
    n = len(where)
    r = x
    for axis, s, o, m, reach in zip(
        where, each(sigma, n), each(order, n), each(mode, n), each(radius, n), strict=True
    ):
        if value(s) > 1e-15:
            r = _gaussian(r, s, axis, o, m, cval, truncate, reach)
    return r + 0 if r is x else r


@instead_of(scipy.ndimage.gaussian_filter)
def gaussian_filter(
    input: Any, sigma: Any, order: Any = 0, output: Any = None, mode: Any = "reflect",
    cval: Any = 0.0, truncate: float = 4.0, radius: Any = None, axes: Any = None,
) -> Any:  # fmt: skip
    x = array(input)
    r = _blurred(x, sigma, order, mode, cval, truncate, radius, axes)
    return result(r, x, output, "gaussian_filter")


def _each_derivative(x: Any, sigma: Any, order: int, mode: Any, cval: Any, axes: Any,
                     options: dict[str, Any]) -> list[Any]:  # fmt: skip
    """Return the Gaussian derivatives along each axis."""
    known = {"truncate": 4.0, "radius": None, **options}
    where = picked_axes(axes, x.ndim)
    parts = []
    for k in range(len(where)):
        orders = [order if i == k else 0 for i in range(len(where))]
        parts.append(
            _blurred(x, sigma, orders, mode, cval, known["truncate"], known["radius"], where)
        )
    return parts


@instead_of(scipy.ndimage.gaussian_laplace)
def gaussian_laplace(
    input: Any, sigma: Any, output: Any = None, mode: Any = "reflect", cval: Any = 0.0,
    axes: Any = None, kwargs: Any = None,
) -> Any:  # fmt: skip
    x = array(input)
    parts = _each_derivative(x, sigma, 2, mode, cval, axes, kwargs or {})
    return result(_total(parts), x, output, "gaussian_laplace")


def _total(parts: list[Any]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


@instead_of(scipy.ndimage.gaussian_gradient_magnitude)
def gaussian_gradient_magnitude(
    input: Any, sigma: Any, output: Any = None, mode: Any = "reflect", cval: Any = 0.0,
    axes: Any = None, kwargs: Any = None,
) -> Any:  # fmt: skip
    x = array(input)
    parts = _each_derivative(x, sigma, 1, mode, cval, axes, kwargs or {})
    square = _total([p * p for p in parts])
    flat = square == 0  # the root is taken of 1 there: its derivative is finite
    return result(np.sqrt(square + flat) - flat, x, output, "gaussian_gradient_magnitude")


@instead_of(scipy.ndimage.uniform_filter1d)
def uniform_filter1d(
    input: Any, size: int, axis: int = -1, output: Any = None, mode: str = "reflect",
    cval: Any = 0.0, origin: int = 0,
) -> Any:  # fmt: skip
    x = array(input)
    if size < 1:
        raise RuntimeError("incorrect filter size")
    weights = np.full(size, 1 / size, np.finfo(x.dtype).dtype)
    r = along_axis(x, weights, axis % x.ndim, mode, cval, origin)
    return result(r, x, output, "uniform_filter1d")


@instead_of(scipy.ndimage.uniform_filter)
def uniform_filter(
    input: Any, size: Any = 3, output: Any = None, mode: Any = "reflect", cval: Any = 0.0,
    origin: Any = 0, axes: Any = None,
) -> Any:  # fmt: skip
    x = r = array(input)
    where = picked_axes(axes, x.ndim)
    n = len(where)
    for axis, k, o, m in zip(where, each(size, n), each(origin, n), each(mode, n), strict=True):
        if int(k) > 1:
            r = uniform_filter1d(r, int(k), axis, mode=m, cval=cval, origin=o)
    return result(r + 0 if r is x else r, x, output, "uniform_filter")


def _differences(x: Any, axis: int, mode: Any, cval: Any, smooth: list[float]) -> Any:
    modes = each(mode, x.ndim)
    axis %= x.ndim
    real = np.finfo(x.dtype).dtype
    r = along_axis(x, np.array([-1, 0, 1], real), axis, modes[axis], cval, 0)
    for other in range(x.ndim):
        if other != axis:
            r = along_axis(r, np.array(smooth, real), other, modes[other], cval, 0)
    return r


@instead_of(scipy.ndimage.sobel)
def sobel(
    input: Any, axis: int = -1, output: Any = None, mode: Any = "reflect", cval: Any = 0.0
) -> Any:
    x = array(input)
    return result(_differences(x, axis, mode, cval, [1, 2, 1]), x, output, "sobel")


@instead_of(scipy.ndimage.prewitt)
def prewitt(
    input: Any, axis: int = -1, output: Any = None, mode: Any = "reflect", cval: Any = 0.0
) -> Any:
    x = array(input)
    return result(_differences(x, axis, mode, cval, [1, 1, 1]), x, output, "prewitt")


@instead_of(scipy.ndimage.laplace)
def laplace(
    input: Any, output: Any = None, mode: Any = "reflect", cval: Any = 0.0, axes: Any = None
) -> Any:
    x = array(input)
    where = picked_axes(axes, x.ndim)
    weights = np.array([1, -2, 1], np.finfo(x.dtype).dtype)
    modes = each(mode, len(where))
    parts = [along_axis(x, weights, i, m, cval, 0) for i, m in zip(where, modes, strict=True)]
    return result(_total(parts), x, output, "laplace")


# -- by rank ---------------------------------------------------------------------------------------


def _windows(shape: tuple[int, ...], footprint: Any, origins: list[int], modes: list[str]) -> Any:
    """Return the flat positions of the neighbours of each element, -1 outside: (count, *shape)."""
    n = len(shape)
    maps = []
    for size, k, origin, mode in zip(shape, footprint.shape, origins, modes, strict=True):
        before, after = _spread(k, origin)
        maps.append((positions(size, before, after, mode), np.arange(size)))
    neighbours = []
    for offset in np.argwhere(footprint):
        flat = np.zeros((1,) * n, int)
        outside = np.zeros((1,) * n, bool)
        for axis, ((at, i), d) in enumerate(zip(maps, offset, strict=True)):
            line = np.reshape(at[i + d], tuple(-1 if j == axis else 1 for j in range(n)))
            flat = flat * shape[axis] + line
            outside = outside | (line < 0)
        neighbours.append(np.broadcast_to(np.where(outside, -1, flat), shape))
    return np.stack(neighbours)


def _footprint(size: Any, footprint: Any, axes: list[int], ndim: int) -> Any:
    """Return the neighbours that take part, over all axes."""
    if footprint is None:
        if size is None:
            raise RuntimeError("no footprint or filter size provided")
        part = np.ones(tuple(int(k) for k in each(size, len(axes))), bool)
    else:
        part = np.asarray(value(footprint), bool)
        if part.ndim != len(axes):
            raise RuntimeError("footprint array has incorrect shape.")
        if not part.any():
            raise ValueError("All-zero footprint is not supported.")
    shape = [1] * ndim
    for axis, k in zip(axes, part.shape, strict=True):
        shape[axis] = k
    return np.reshape(np.transpose(part, np.argsort(axes)), shape)


def chosen(
    x: Any, footprint: Any, origins: list[int], modes: list[str], cval: Any,
    choose: Callable[[Any], Any], added: Any = None,
) -> Any:  # fmt: skip
    """Return for each element the neighbour that ``choose(values of all)`` gives the number of.

    `added` holds what is added to the neighbours beforehand, one for each.
    """
    at = _windows(x.shape, footprint, origins, modes)
    flat = np.reshape(x, (-1,))
    if np.any(at < 0):
        flat = np.concatenate([flat, np.full(1, value(cval), x.dtype)])
    near = value(flat)[at]
    if added is not None:
        near = near + np.reshape(value(added), (-1,) + (1,) * x.ndim)
    which = choose(near)
    r = flat[np.take_along_axis(at, which[None], 0)[0]]
    return r if added is None else r + added[which]


def _by_rank(name: str, input: Any, size: Any, footprint: Any, output: Any, mode: Any, cval: Any,
             origin: Any, axes: Any, choose: Callable[[Any], Any]) -> Any:  # fmt: skip
    x = array(input)
    refuse_traced(name, cval=cval)
    where = picked_axes(axes, x.ndim)
    modes, origins = ["reflect"] * x.ndim, [0] * x.ndim
    n = len(where)
    for axis, m, o in zip(where, each(mode, n), each(origin, n), strict=True):
        modes[axis], origins[axis] = m, int(o)
    part = _footprint(size, footprint, where, x.ndim)
    return result(chosen(x, part, origins, modes, cval, choose), x, output, name)


def _ranked(rank: Callable[[int], int]) -> Callable[[Any], Any]:
    def choose(near: Any) -> Any:
        k = rank(near.shape[0])
        k = k + near.shape[0] if k < 0 else k
        if not 0 <= k < near.shape[0]:
            raise RuntimeError("rank not within filter footprint size")
        return np.argsort(near, axis=0, kind="stable")[k]

    return choose


@instead_of(scipy.ndimage.maximum_filter)
def maximum_filter(
    input: Any, size: Any = None, footprint: Any = None, output: Any = None,
    mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, axes: Any = None,
) -> Any:  # fmt: skip
    return _by_rank("maximum_filter", input, size, footprint, output, mode, cval, origin, axes,
                    lambda near: np.argmax(near, 0))  # fmt: skip


@instead_of(scipy.ndimage.minimum_filter)
def minimum_filter(
    input: Any, size: Any = None, footprint: Any = None, output: Any = None,
    mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, axes: Any = None,
) -> Any:  # fmt: skip
    return _by_rank("minimum_filter", input, size, footprint, output, mode, cval, origin, axes,
                    lambda near: np.argmin(near, 0))  # fmt: skip


@instead_of(scipy.ndimage.maximum_filter1d)
def maximum_filter1d(
    input: Any, size: int, axis: int = -1, output: Any = None, mode: str = "reflect",
    cval: Any = 0.0, origin: int = 0,
) -> Any:  # fmt: skip
    return maximum_filter(input, size, None, output, mode, cval, origin, axes=(axis,))


@instead_of(scipy.ndimage.minimum_filter1d)
def minimum_filter1d(
    input: Any, size: int, axis: int = -1, output: Any = None, mode: str = "reflect",
    cval: Any = 0.0, origin: int = 0,
) -> Any:  # fmt: skip
    return minimum_filter(input, size, None, output, mode, cval, origin, axes=(axis,))


@instead_of(scipy.ndimage.median_filter)
def median_filter(
    input: Any, size: Any = None, footprint: Any = None, output: Any = None,
    mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, axes: Any = None,
) -> Any:  # fmt: skip
    return _by_rank("median_filter", input, size, footprint, output, mode, cval, origin, axes,
                    _ranked(lambda n: n // 2))  # fmt: skip


@instead_of(scipy.ndimage.rank_filter)
def rank_filter(
    input: Any, rank: int, size: Any = None, footprint: Any = None, output: Any = None,
    mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, axes: Any = None,
) -> Any:  # fmt: skip
    return _by_rank("rank_filter", input, size, footprint, output, mode, cval, origin, axes,
                    _ranked(lambda n: int(rank)))  # fmt: skip


@instead_of(scipy.ndimage.percentile_filter)
def percentile_filter(
    input: Any, percentile: float, size: Any = None, footprint: Any = None, output: Any = None,
    mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, axes: Any = None,
) -> Any:  # fmt: skip
    refuse_traced("percentile_filter", percentile=percentile)
    p = value(percentile) + (100.0 if value(percentile) < 0 else 0.0)
    if not 0 <= p <= 100:
        raise RuntimeError("invalid percentile")
    return _by_rank(
        "percentile_filter", input, size, footprint, output, mode, cval, origin, axes,
        _ranked(lambda n: n - 1 if p == 100 else int(n * p / 100.0)),
    )  # fmt: skip
