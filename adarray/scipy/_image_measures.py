"""Morphology, labelled regions and Fourier filters of `scipy.ndimage`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.ndimage

from adarray.scipy._drop_in import array, instead_of, refuse_traced, value
from adarray.scipy._image_filters import chosen, each, picked_axes, result

# -- grey morphology -------------------------------------------------------------------------------


def _grey(name: str, grow: bool, input: Any, size: Any, footprint: Any, structure: Any,
          output: Any, mode: Any, cval: Any, origin: Any, axes: Any) -> Any:  # fmt: skip
    """Return the maximum of neighbours plus a structure, or the minimum of them minus it."""
    x = array(input)
    refuse_traced(name, cval=cval)
    if size is None and footprint is None and structure is None:
        raise ValueError("size, footprint, or structure must be specified")
    where = picked_axes(axes, x.ndim)
    if structure is not None:
        structure = array(structure)
        part = np.ones(structure.shape, bool) if footprint is None else np.asarray(value(footprint))
    elif footprint is not None:
        part = np.asarray(value(footprint))
    else:
        part = np.ones(tuple(int(k) for k in each(size, len(where))), bool)
    part = part.astype(bool)
    origins = [int(o) for o in each(origin, len(where))]
    if grow:  # a dilation has the reflected footprint
        part = np.flip(part)
        structure = None if structure is None else np.flip(structure)
        origins = [-o - (k % 2 == 0) for o, k in zip(origins, part.shape, strict=True)]
    shape, modes, moved = [1] * x.ndim, ["reflect"] * x.ndim, [0] * x.ndim
    for axis, k, m, o in zip(where, part.shape, each(mode, len(where)), origins, strict=True):
        shape[axis], modes[axis], moved[axis] = k, m, o
    order = np.argsort(where)
    added = None
    if structure is not None:
        picked = np.transpose(structure, order)[np.transpose(part, order)]
        added = picked if grow else -picked
    choose: Callable[..., Any] = np.argmax if grow else np.argmin
    full = np.reshape(np.transpose(part, order), shape)
    r = chosen(x, full, moved, modes, cval, lambda near: choose(near, 0), added)
    return result(r, x, output, name)


@instead_of(scipy.ndimage.grey_erosion)
def grey_erosion(
    input: Any, size: Any = None, footprint: Any = None, structure: Any = None, output: Any = None,
    mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, axes: Any = None,
) -> Any:  # fmt: skip
    return _grey("grey_erosion", False, input, size, footprint, structure, output, mode, cval,
                 origin, axes)  # fmt: skip


@instead_of(scipy.ndimage.grey_dilation)
def grey_dilation(
    input: Any, size: Any = None, footprint: Any = None, structure: Any = None, output: Any = None,
    mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, axes: Any = None,
) -> Any:  # fmt: skip
    return _grey("grey_dilation", True, input, size, footprint, structure, output, mode, cval,
                 origin, axes)  # fmt: skip


def _both(input: Any, args: tuple[Any, ...], axes: Any) -> tuple[Any, Any]:
    """Return the dilation and the erosion."""
    size, footprint, structure, mode, cval, origin = args
    options = (size, footprint, structure, None, mode, cval, origin)
    return (
        grey_dilation(input, *options, axes=axes),
        grey_erosion(input, *options, axes=axes),
    )


@instead_of(scipy.ndimage.grey_opening)
def grey_opening(
    input: Any, size: Any = None, footprint: Any = None, structure: Any = None, output: Any = None,
    mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, axes: Any = None,
) -> Any:  # fmt: skip
    options = (size, footprint, structure, None, mode, cval, origin)
    small = grey_erosion(input, *options, axes=axes)
    return grey_dilation(small, size, footprint, structure, output, mode, cval, origin, axes=axes)


@instead_of(scipy.ndimage.grey_closing)
def grey_closing(
    input: Any, size: Any = None, footprint: Any = None, structure: Any = None, output: Any = None,
    mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, axes: Any = None,
) -> Any:  # fmt: skip
    options = (size, footprint, structure, None, mode, cval, origin)
    large = grey_dilation(input, *options, axes=axes)
    return grey_erosion(large, size, footprint, structure, output, mode, cval, origin, axes=axes)


@instead_of(scipy.ndimage.morphological_gradient)
def morphological_gradient(
    input: Any, size: Any = None, footprint: Any = None, structure: Any = None, output: Any = None,
    mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, axes: Any = None,
) -> Any:  # fmt: skip
    x = array(input)
    large, small = _both(x, (size, footprint, structure, mode, cval, origin), axes)
    return result(large - small, x, output, "morphological_gradient")


@instead_of(scipy.ndimage.morphological_laplace)
def morphological_laplace(
    input: Any, size: Any = None, footprint: Any = None, structure: Any = None, output: Any = None,
    mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, axes: Any = None,
) -> Any:  # fmt: skip
    x = array(input)
    large, small = _both(x, (size, footprint, structure, mode, cval, origin), axes)
    return result(large + small - 2 * x, x, output, "morphological_laplace")


@instead_of(scipy.ndimage.white_tophat)
def white_tophat(
    input: Any, size: Any = None, footprint: Any = None, structure: Any = None, output: Any = None,
    mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, axes: Any = None,
) -> Any:  # fmt: skip
    x = array(input)
    opened = grey_opening(x, size, footprint, structure, None, mode, cval, origin, axes=axes)
    return result(x - opened, x, output, "white_tophat")


@instead_of(scipy.ndimage.black_tophat)
def black_tophat(
    input: Any, size: Any = None, footprint: Any = None, structure: Any = None, output: Any = None,
    mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, axes: Any = None,
) -> Any:  # fmt: skip
    x = array(input)
    closed = grey_closing(x, size, footprint, structure, None, mode, cval, origin, axes=axes)
    return result(closed - x, x, output, "black_tophat")


# -- labelled regions ------------------------------------------------------------------------------


def _regions(x: Any, labels: Any, index: Any) -> tuple[list[Any], Any]:
    """Return the flat positions of each region, and the shape of the result."""
    if labels is None:
        return [np.arange(x.size)], ()
    marks = np.broadcast_to(np.asarray(value(labels)), x.shape).ravel()
    if index is None:
        return [np.flatnonzero(marks > 0)], ()
    wanted = np.asarray(value(index))
    return [np.flatnonzero(marks == i) for i in wanted.ravel()], wanted.shape


def _of_regions(input: Any, labels: Any, index: Any, f: Callable[[Any], Any]) -> Any:
    """Return ``f(elements)`` of each region; 0 for one without elements."""
    x = array(input)
    if not isinstance(x.dtype.type(0), np.inexact):
        x = x.astype(float)
    regions, shape = _regions(x, labels, index)
    flat = np.reshape(x, (-1,))
    parts = [f(flat[at]) if at.size else np.zeros((), x.dtype) for at in regions]
    return np.reshape(np.stack(parts), shape)


def _sum_of(name: str) -> Callable[..., Any]:
    @instead_of(getattr(scipy.ndimage, name))
    def total(input: Any, labels: Any = None, index: Any = None) -> Any:
        return _of_regions(input, labels, index, np.sum)

    reduction: Callable[..., Any] = total
    return reduction


sum = _sum_of("sum")  # noqa: A001  (SciPy's name)
sum_labels = _sum_of("sum_labels")


@instead_of(scipy.ndimage.mean)
def mean(input: Any, labels: Any = None, index: Any = None) -> Any:
    return _of_regions(input, labels, index, np.mean)


@instead_of(scipy.ndimage.variance)
def variance(input: Any, labels: Any = None, index: Any = None) -> Any:
    return _of_regions(input, labels, index, np.var)


@instead_of(scipy.ndimage.standard_deviation)
def standard_deviation(input: Any, labels: Any = None, index: Any = None) -> Any:
    return _of_regions(input, labels, index, np.std)


@instead_of(scipy.ndimage.maximum)
def maximum(input: Any, labels: Any = None, index: Any = None) -> Any:
    return _of_regions(input, labels, index, lambda v: v[np.argmax(value(v))])


@instead_of(scipy.ndimage.minimum)
def minimum(input: Any, labels: Any = None, index: Any = None) -> Any:
    return _of_regions(input, labels, index, lambda v: v[np.argmin(value(v))])


@instead_of(scipy.ndimage.median)
def median(input: Any, labels: Any = None, index: Any = None) -> Any:
    return _of_regions(input, labels, index, np.median)


@instead_of(scipy.ndimage.extrema)
def extrema(input: Any, labels: Any = None, index: Any = None) -> Any:
    _, _, low, high = scipy.ndimage.extrema(value(array(input)), value(labels), value(index))
    return minimum(input, labels, index), maximum(input, labels, index), low, high


@instead_of(scipy.ndimage.center_of_mass)
def center_of_mass(input: Any, labels: Any = None, index: Any = None) -> Any:
    x = array(input)
    weight = _of_regions(x, labels, index, np.sum)
    grids = np.indices(x.shape, dtype=float)
    centers = [_of_regions(x * g, labels, index, np.sum) / weight for g in grids]
    if np.ndim(value(weight)) == 0:
        return tuple(centers)
    return [tuple(c[k] for c in centers) for k in range(weight.shape[0])]


# -- filters on Fourier transforms -----------------------------------------------------------------


def _multiplied(name: str) -> Callable[..., Any]:
    """Return a Fourier filter: it multiplies with what SciPy makes of ones."""
    function = getattr(scipy.ndimage, name)
    parameter = {"fourier_gaussian": "sigma", "fourier_shift": "shift"}.get(name, "size")

    def body(input: Any, by: Any, n: int, axis: int, output: Any) -> Any:
        x = array(input)
        refuse_traced(name, **{parameter: by})
        kind = np.complex128 if x.dtype.kind == "c" or name == "fourier_shift" else np.float64
        factor = function(np.ones(x.shape, kind), value(by), n, axis)
        r = x * factor
        if output is None and r.dtype.char in "dD" and x.dtype.char in "fF":
            r = r.astype(np.complex64 if r.dtype.kind == "c" else np.float32)
        return r if output is None else result(r, x, output, name)

    if parameter == "sigma":

        @instead_of(function)
        def with_sigma(
            input: Any, sigma: Any, n: int = -1, axis: int = -1, output: Any = None
        ) -> Any:
            return body(input, sigma, n, axis, output)

        fourier_filter: Callable[..., Any] = with_sigma
    elif parameter == "shift":

        @instead_of(function)
        def with_shift(
            input: Any, shift: Any, n: int = -1, axis: int = -1, output: Any = None
        ) -> Any:
            return body(input, shift, n, axis, output)

        fourier_filter = with_shift
    else:

        @instead_of(function)
        def with_size(
            input: Any, size: Any, n: int = -1, axis: int = -1, output: Any = None
        ) -> Any:
            return body(input, size, n, axis, output)

        fourier_filter = with_size
    return fourier_filter


fourier_gaussian = _multiplied("fourier_gaussian")
fourier_shift = _multiplied("fourier_shift")
fourier_uniform = _multiplied("fourier_uniform")
fourier_ellipsoid = _multiplied("fourier_ellipsoid")
