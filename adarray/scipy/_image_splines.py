"""Splines through images: `map_coordinates`, `zoom`, `rotate` and their relatives.

The result is linear in the image and piecewise polynomial in the coordinates; both
differentiate. The coefficients of the spline are those of SciPy's own filter, as a
matrix for each axis.

References
----------
- M. Unser, A. Aldroubi, M. Eden, "B-spline signal processing: part I - theory", IEEE Trans. Signal
  Process. 41 (1993), 821-833; "part II - efficient design and applications", 834-848.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import scipy.ndimage
import scipy.special

from adarray.batching.rules import shifted
from adarray.core.protocol import traced
from adarray.ops.common import s
from adarray.scipy._convolution import extend
from adarray.scipy._drop_in import array, instead_of, is_complex, operation, refuse_traced, value
from adarray.scipy._image_filters import each, result

_PADDING = 12  # what SciPy puts around an image where its spline has no exact boundary
_ORDERS = range(6)


# -- coefficients ----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=32)
def _filter_matrix(n: int, order: int, mode: str) -> Any:
    """Return the matrix of SciPy's spline filter on a line of `n`."""
    matrix = scipy.ndimage.spline_filter1d(np.eye(n), order, axis=0, mode=mode)
    matrix.flags.writeable = False
    return matrix


def _apply(matrix: Any, x: Any, axis: int) -> Any:
    return np.moveaxis(np.tensordot(x, matrix, axes=((axis,), (1,))), -1, axis)


def _filter_line(x: Any, order: int, axis: int, mode: str, transposed: bool = False) -> Any:
    if transposed:
        return _apply(_filter_matrix(x.shape[axis], order, mode).T, x, axis)
    kind = np.complex128 if x.dtype.kind == "c" else np.float64
    r = scipy.ndimage.spline_filter1d(x, order, axis, kind, mode)
    return r.astype(x.dtype, copy=False)


def _samples(rng: np.random.Generator) -> list[Any]:
    x = rng.normal(size=(5, 6))
    return [
        s(x, order, axis, mode, transposed)
        for order, axis, mode, transposed in (
            (3, 0, "mirror", False), (2, 1, "reflect", False), (5, 1, "grid-wrap", True),
            (4, 0, "mirror", True),
        )
    ] + [s(x + 1j, 3, 1, "mirror")]  # fmt: skip


spline_line: Any = operation(
    "scipy.ndimage.spline_filter1d",
    _filter_line,
    [
        lambda g, out, x, order, axis, mode, transposed=False: spline_line(
            g, order, axis, mode, not transposed
        )
    ],
    jvp="linear",
    samples=_samples,
    operands=("x",),
    params=("order", "axis", "mode", "transposed"),
    batch=shifted("axis"),
)


def _precise(x: Any) -> Any:
    """Return an image in double precision, in which SciPy computes splines."""
    wide = np.complex128 if is_complex(x) else np.float64
    return x if x.dtype == wide else x.astype(wide)


def _coefficients(x: Any, order: int, mode: str) -> Any:
    if order < 2:
        return x
    for axis in range(x.ndim):
        if x.shape[axis] > 1:
            x = spline_line(x, order, axis, mode)
    return x


def _check_order(order: int, low: int = 0) -> None:
    if order not in _ORDERS or order < low:
        raise RuntimeError("spline order not supported")


@instead_of(scipy.ndimage.spline_filter1d)
def spline_filter1d(
    input: Any, order: int = 3, axis: int = -1, output: Any = np.float64, mode: str = "mirror"
) -> Any:
    _check_order(order)
    x = array(input)
    r = spline_line(_precise(x), order, axis % x.ndim, mode) if order > 1 else x + 0
    return result(r, x, _wide(output, x), "spline_filter1d")


@instead_of(scipy.ndimage.spline_filter)
def spline_filter(
    input: Any, order: int = 3, output: Any = np.float64, mode: str = "mirror"
) -> Any:
    _check_order(order, 2)
    x = array(input)
    return result(_coefficients(_precise(x), order, mode), x, _wide(output, x), "spline_filter")


def _wide(output: Any, x: Any) -> Any:
    """Return the complex dtype where SciPy makes it of a real one for complex images."""
    if is_complex(x) and output in (np.float64, np.float32):
        return np.result_type(output, np.complex64)
    return output


# -- weights of the neighbours ---------------------------------------------------------------------


def _weights(f: Any, order: int) -> list[Any]:
    """Return the values of the B-spline of `order` at ``f + m`` for m from 0 to `order`."""
    values: list[Any] = [1.0]
    for d in range(1, order + 1):
        grown = []
        for m in range(d + 1):
            left = values[m] * (f + m) / d if m < d else None
            right = values[m - 1] * (d + 1 - m - f) / d if m else None
            grown.append(right if left is None else left if right is None else left + right)
        values = grown
    return values


def _inside(c: Any, n: int, mode: str) -> tuple[Any, Any]:
    """Return coordinates as SciPy moves them into a line of `n`, and where they are outside."""
    v = value(c)
    if mode == "constant":
        out = ~((v >= 0) & (v <= n - 1))
        return np.where(out, 0.0, c), out
    if mode == "wrap":
        period = max(n - 1, 1)
        periods = np.where(v < 0, np.trunc(-v / period) + 1, 0)
        periods = np.where(v > n - 1, -np.trunc(v / period), periods)
        return (c + periods * period if n > 1 else c * 0.0), None
    return c, None


def _neighbours(i: Any, n: int, mode: str) -> tuple[Any, Any]:
    """Return positions on a line of `n` for indices of neighbours, and which are outside."""
    if mode == "grid-constant":
        return np.clip(i, 0, n - 1), (i < 0) | (i >= n)
    if mode == "nearest" or n == 1:
        return np.clip(i, 0, n - 1), None
    if mode == "grid-wrap":
        return i % n, None
    if mode in ("reflect", "grid-mirror"):
        i = i % (2 * n)
        return np.where(i < n, i, 2 * n - 1 - i), None
    i = i % (2 * n - 2)
    return np.where(i < n, i, 2 * n - 2 - i), None


def _line(c: Any, n: int, order: int, mode: str) -> tuple[list[tuple[Any, Any, Any]], Any]:
    """Return ``(positions, weights, outside)`` of each neighbour, and which coordinates are out."""
    c, out = _inside(c, n, mode)
    v = value(c)
    base = np.floor(v + 0.5) if order % 2 == 0 else np.floor(v)
    half = (order + 1) // 2 if order % 2 else order // 2
    f = c - base + (0.0 if order % 2 else 0.5)
    start = base.astype(int) + half
    terms = []
    for m, w in enumerate(_weights(f, order)):
        at, beyond = _neighbours(start - m, n, mode)
        terms.append((at, w, beyond))
    return terms, out


def _prepared(x: Any, order: int, mode: str, cval: Any, prefilter: bool) -> tuple[Any, int]:
    """Return coefficients, and by how much the image was extended on each side."""
    x = _precise(x)
    if not prefilter or order < 2:
        return x, 0
    pad = 0
    if mode in ("nearest", "grid-constant"):
        pad = _PADDING
        for axis in range(x.ndim):
            x = extend(x, axis, pad, pad, mode, cval)
    return _coefficients(x, order, mode), pad


def _interpolated(x: Any, coordinates: Any, order: int, mode: str, cval: Any,
                  prefilter: bool) -> Any:  # fmt: skip
    """Return the spline through an image at ``coordinates[axis]``, which broadcast."""
    _check_order(order)
    c, pad = _prepared(x, order, mode, cval, prefilter)
    flat = np.reshape(c, (-1,))
    lines, outside = [], None
    for axis, n in enumerate(c.shape):
        terms, out = _line(coordinates[axis] + float(pad), n, order, mode)
        lines.append(terms)
        if out is not None:
            outside = out if outside is None else outside | out
    total: Any = None
    for pick in itertools.product(*lines):
        at, weight, beyond = 0, None, None
        for (i, w, b), n in zip(pick, c.shape, strict=True):
            at = at * n + i
            weight = w if weight is None else weight * w
            beyond = b if beyond is None else beyond if b is None else beyond | b
        part = flat[at]
        if beyond is not None and np.any(beyond):
            part = np.where(beyond, cval, part)
        part = part * weight
        total = part if total is None else total + part
    return total if outside is None or not np.any(outside) else np.where(outside, cval, total)


@instead_of(scipy.ndimage.map_coordinates)
def map_coordinates(
    input: Any, coordinates: Any, output: Any = None, order: int = 3, mode: str = "constant",
    cval: Any = 0.0, prefilter: bool = True,
) -> Any:  # fmt: skip
    x, c = array(input), array(coordinates)
    if is_complex(c):
        raise TypeError("Complex type not supported")
    if c.shape[0] != x.ndim:
        raise RuntimeError("invalid shape for coordinate array")
    r = _interpolated(x, [c[i] for i in range(x.ndim)], order, mode, cval, prefilter)
    return result(r, x, output, "map_coordinates")


def _on_grid(x: Any, lines: list[Any], order: int, mode: str, cval: Any, prefilter: bool) -> Any:
    """Return the spline through an image on a grid: one axis after the other."""
    _check_order(order)
    c, pad = _prepared(x, order, mode, cval, prefilter)
    if mode == "grid-constant" and (value(cval) != 0 or traced(cval)):
        spread = [np.reshape(u, tuple(-1 if j == i else 1 for j in range(x.ndim)))
                  for i, u in enumerate(lines)]  # fmt: skip
        return _interpolated(x, spread, order, mode, cval, prefilter)
    outside = None
    for axis, n in enumerate(x.shape):
        shape = tuple(-1 if j == axis else 1 for j in range(x.ndim))
        terms, out = _line(lines[axis] + float(pad), n + 2 * pad, order, mode)
        total: Any = None
        for at, w, beyond in terms:
            w = w if beyond is None else w * ~beyond
            w = np.broadcast_to(w, at.shape) if np.ndim(w) == 0 else w
            part = np.take(c, at, axis) * np.reshape(w, shape)
            total = part if total is None else total + part
        c = total
        if out is not None:
            out = np.reshape(out, shape)
            outside = out if outside is None else outside | out
    return c if outside is None or not np.any(outside) else np.where(outside, cval, c)


@instead_of(scipy.ndimage.shift)
def shift(
    input: Any, shift: Any, output: Any = None, order: int = 3, mode: str = "constant",
    cval: Any = 0.0, prefilter: bool = True,
) -> Any:  # fmt: skip
    x = array(input)
    by = each(shift, x.ndim)
    lines = [np.arange(n, dtype=float) - d for n, d in zip(x.shape, by, strict=True)]
    return result(_on_grid(x, lines, order, mode, cval, prefilter), x, output, "shift")


@instead_of(scipy.ndimage.zoom)
def zoom(
    input: Any, zoom: Any, output: Any = None, order: int = 3, mode: str = "constant",
    cval: Any = 0.0, prefilter: bool = True, grid_mode: bool = False,
) -> Any:  # fmt: skip
    x = array(input)
    refuse_traced("zoom", zoom=zoom)
    factors = each(zoom, x.ndim)
    shape = [round(n * float(value(z))) for n, z in zip(x.shape, factors, strict=True)]
    if all(value(z) == 1 for z in factors) and prefilter:
        return result(x + 0, x, output, "zoom")
    less = 0 if grid_mode else 1
    lines = []
    for n, m in zip(x.shape, shape, strict=True):
        step = (n - less) / (m - less) if m != less else 1.0
        i = np.arange(m, dtype=float)
        lines.append((i + 0.5) * step - 0.5 if grid_mode else i * step)
    return result(_on_grid(x, lines, order, mode, cval, prefilter), x, output, "zoom")


def _affine(x: Any, matrix: Any, offset: Any, shape: tuple[int, ...], order: int, mode: str,
            cval: Any, prefilter: bool) -> Any:  # fmt: skip
    if matrix.ndim == 1:
        lines = [matrix[i] * np.arange(n, dtype=float) + offset[i] for i, n in enumerate(shape)]
        return _on_grid(x, lines, order, mode, cval, prefilter)
    grid = np.indices(shape, dtype=float)
    coordinates = []
    for i in range(x.ndim):
        c = offset[i]
        for j in range(len(shape)):
            c = c + matrix[i, j] * grid[j]
        coordinates.append(c)
    return _interpolated(x, coordinates, order, mode, cval, prefilter)


@instead_of(scipy.ndimage.affine_transform)
def affine_transform(
    input: Any, matrix: Any, offset: Any = 0.0, output_shape: Any = None, output: Any = None,
    order: int = 3, mode: str = "constant", cval: Any = 0.0, prefilter: bool = True,
) -> Any:  # fmt: skip
    x, matrix = array(input), array(matrix)
    n = x.ndim
    shape = x.shape if output_shape is None else tuple(output_shape)
    if matrix.ndim not in (1, 2) or matrix.shape[0] < 1:
        raise RuntimeError("no proper affine matrix provided")
    if matrix.ndim == 2 and matrix.shape[1] == n + 1 and matrix.shape[0] in (n, n + 1):
        if matrix.shape[0] == n + 1 and not np.all(value(matrix)[n] == [0] * n + [1]):
            raise ValueError(
                f"Expected homogeneous transformation matrix with shape {matrix.shape} for image "
                f"shape {x.shape}, but bottom row was not equal to {[0] * n + [1]}"
            )
        offset, matrix = matrix[:n, n], matrix[:n, :n]
    if matrix.shape[0] != n:
        raise RuntimeError("affine matrix has wrong number of rows")
    if matrix.ndim == 2 and matrix.shape[1] != len(shape):
        raise RuntimeError("affine matrix has wrong number of columns")
    offsets = each(offset, n) if np.ndim(value(offset)) == 0 else [offset[i] for i in range(n)]
    r = _affine(x, matrix, offsets, shape, order, mode, cval, prefilter)
    return result(r, x, output, "affine_transform")


@instead_of(scipy.ndimage.rotate)
def rotate(
    input: Any, angle: Any, axes: Any = (1, 0), reshape: bool = True, output: Any = None,
    order: int = 3, mode: str = "constant", cval: Any = 0.0, prefilter: bool = True,
) -> Any:  # fmt: skip
    x = array(input)
    if x.ndim < 2:
        raise ValueError("input array should be at least 2D")
    i, j = sorted(int(a) % x.ndim for a in axes)
    radians = np.deg2rad(angle)
    c, sine = np.cos(radians), np.sin(radians)
    size = np.array([x.shape[i], x.shape[j]])
    plain_c, plain_s = scipy.special.cosdg(value(angle)), scipy.special.sindg(value(angle))
    shape = size
    if reshape:  # the box around the rotated corners
        corners = np.array([[plain_c, plain_s], [-plain_s, plain_c]]) @ [
            [0, 0, size[0], size[0]], [0, size[1], 0, size[1]],
        ]  # fmt: skip
        shape = (np.ptp(corners, axis=1) + 0.5).astype(int)
    if not traced(angle):  # exact at right angles
        c, sine = plain_c, plain_s
    middle = (shape - 1) / 2
    offset = [
        (size[0] - 1) / 2 - (c * middle[0] + sine * middle[1]),
        (size[1] - 1) / 2 - (c * middle[1] - sine * middle[0]),
    ]
    grid = np.indices(tuple(shape), dtype=float)
    lines = [c * grid[0] + sine * grid[1] + offset[0], c * grid[1] - sine * grid[0] + offset[1]]
    planes = np.moveaxis(x, (i, j), (-2, -1))
    outer = planes.shape[:-2]
    planes = np.reshape(planes, (-1, *planes.shape[-2:]))
    rotated = [
        _interpolated(planes[k], lines, order, mode, cval, prefilter)
        for k in range(planes.shape[0])
    ]
    r = np.reshape(np.stack(rotated), (*outer, *tuple(int(k) for k in shape)))
    return result(np.moveaxis(r, (-2, -1), (i, j)), x, output, "rotate")


@instead_of(scipy.ndimage.geometric_transform)
def geometric_transform(
    input: Any, mapping: Any, output_shape: Any = None, output: Any = None, order: int = 3,
    mode: str = "constant", cval: Any = 0.0, prefilter: bool = True, extra_arguments: Any = (),
    extra_keywords: Any = None,
) -> Any:  # fmt: skip
    x = array(input)
    shape = x.shape if output_shape is None else tuple(output_shape)
    points = [
        mapping(index, *extra_arguments, **(extra_keywords or {})) for index in np.ndindex(shape)
    ]
    coordinates = [
        np.reshape(np.stack([array(p[i]) for p in points]), shape) for i in range(x.ndim)
    ]
    r = _interpolated(x, coordinates, order, mode, cval, prefilter)
    return result(r, x, output, "geometric_transform")
