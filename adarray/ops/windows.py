"""Windows over images, for `adarray.ops.nn`: what fits what, and products block by block.

References
----------
- K. Chellapilla, S. Puri, P. Simard, "High performance convolutional neural networks for document
  processing", IWFHR 2006.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np

from adarray.base.errors import ShapeError
from adarray.base.op import OPS
from adarray.base.runtime import MODE

Pair = tuple[int, int]

# Parameters in the order of `Geometry.of`, and their defaults.
DEFAULTS = (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1))
BLOCK = 1 << 21  # bytes of windows that are copied at a time: half of a second cache


class Geometry(NamedTuple):
    """Sizes of a convolution."""

    number: int  # of images
    channels: int
    size: Pair
    filters: int  # channels of the result
    window: Pair
    out: Pair
    stride: Pair
    padding: tuple[Pair, Pair]
    dilation: Pair
    groups: int

    def params(self) -> dict[str, Any]:
        """Return the parameters of an operation, as pairs."""
        return {
            "stride": self.stride, "padding": self.padding, "dilation": self.dilation,
            "groups": self.groups,
        }  # fmt: skip

    def per_group(self) -> tuple[int, int]:
        """Return the channels of images, and of the result, in one group."""
        return self.channels // self.groups, self.filters // self.groups


# -- arguments -------------------------------------------------------------------------------------


def _pair(name: str, what: str, x: Any, least: int) -> Pair:
    """Return an argument that is a number or a pair of numbers."""
    many = isinstance(x, (tuple, list)) or (isinstance(x, np.ndarray) and x.ndim == 1)
    pair = tuple(x) if many else (x, x)
    try:
        numbers = tuple(map(operator.index, pair))
    except TypeError:
        numbers = ()
    if len(numbers) != 2 or min(numbers) < least:
        raise ShapeError(
            f"{name}: the argument {what} is {x!r}; pass an integer of at least {least}, or a "
            "pair of them for height and width"
        )
    return numbers


def _padding(name: str, x: Any, size: Pair, reach: Pair, stride: Pair) -> tuple[Pair, Pair]:
    """Return zeros before and after, along height and width."""
    if isinstance(x, str):
        if x == "valid":
            return (0, 0), (0, 0)
        if x == "same":
            total = [
                max((-(-n // s) - 1) * s + r - n, 0)
                for n, r, s in zip(size, reach, stride, strict=True)
            ]
            first, second = ((t // 2, t - t // 2) for t in total)
            return first, second
        raise ShapeError(
            f"{name}: the argument padding is {x!r}; pass 'same', 'valid', an integer, a pair "
            "of integers, or a pair of pairs"
        )
    if isinstance(x, (tuple, list)) and any(isinstance(p, (tuple, list)) for p in x):
        if len(x) != 2:
            raise ShapeError(
                f"{name}: the argument padding is {x!r}; pass one pair for the height and one "
                "for the width"
            )
        return _pair(name, "padding", x[0], 0), _pair(name, "padding", x[1], 0)
    height, width = _pair(name, "padding", x, 0)
    return (height, height), (width, width)


def _groups(name: str, x: Any) -> int:
    """Return the number of groups."""
    if isinstance(x, bool) or not isinstance(x, (int, np.integer)) or x < 1:
        raise ShapeError(f"{name}: the argument groups is {x!r}; pass an integer of at least 1")
    return int(x)


def _axes(name: str, operand: int, what: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 4:
        raise ShapeError(
            f"{name}: operand {operand} has shape {shape}, and {what} have four axes; reshape it"
        )


def _wrong(name: str, shapes: tuple[Any, Any], why: str) -> NoReturn:
    raise ShapeError(f"{name}: operands 0 and 1 have shapes {shapes[0]} and {shapes[1]}: {why}")


def geometry_of(
    name: str, x: tuple[int, ...], w: tuple[int, ...], stride: Any, padding: Any, dilation: Any,
    groups: Any, shapes: tuple[Any, Any] | None = None,
) -> Geometry:  # fmt: skip
    """Return the sizes of a convolution of images of shape `x` with weights of shape `w`.

    `shapes` are those of the operands, for errors, where they are others.
    """
    if shapes is None:
        _axes(name, 0, "images (number, channels, height, width)", x)
        _axes(name, 1, "weights (channels of the result, of a group, height, width)", w)
    shapes = shapes or (x, w)
    steps = _pair(name, "stride", stride, 1)
    apart = _pair(name, "dilation", dilation, 1)
    groups = _groups(name, groups)
    count, channels, *size = x
    outputs, of_group, *window = w
    if channels != of_group * groups:
        _wrong(
            name,
            shapes,
            f"images have {channels} channels, and weights are for {of_group} "
            f"in each of {groups} groups; the second axis of weights is channels // groups",
        )
    if outputs % groups:
        _wrong(name, shapes, f"{outputs} channels of the result are no multiple of groups={groups}")
    if min(window) < 1:
        _wrong(name, shapes, "windows are empty")
    reach = tuple((k - 1) * d + 1 for k, d in zip(window, apart, strict=True))
    size_: Pair = (size[0], size[1])
    around = _padding(name, padding, size_, (reach[0], reach[1]), steps)
    out = []
    for n, r, p, s, axis in zip(size, reach, around, steps, ("height", "width"), strict=True):
        if n + sum(p) < r:
            _wrong(
                name,
                shapes,
                f"a window reaches over {r} elements of the {axis}, and images "
                f"with their padding have {n + sum(p)}; pad them, or dilate less",
            )
        out.append((n + sum(p) - r) // s + 1)
    return Geometry(
        count, channels, size_, outputs, (window[0], window[1]), (out[0], out[1]), steps, around,
        apart, groups,
    )  # fmt: skip


def geometry_of_input(
    g: tuple[int, ...], w: tuple[int, ...], size: Any, stride: Any, padding: Any, dilation: Any,
    groups: Any,
) -> Geometry:  # fmt: skip
    """Return the sizes of a convolution whose result and weights have shapes `g` and `w`."""
    name = "conv2d_input"
    _axes(name, 0, "cotangents of images (number, channels, height, width)", g)
    _axes(name, 1, "weights (channels of the result, of a group, height, width)", w)
    size = _pair(name, "size", size, 0)
    x = (g[0], w[1] * _groups(name, groups), *size)
    geometry = geometry_of(name, x, w, stride, padding, dilation, groups, (g, w))
    if (geometry.filters, *geometry.out) != g[1:]:
        _wrong(
            name,
            (g, w),
            f"a convolution of images of {size} has results of the shape "
            f"{(g[0], geometry.filters, *geometry.out)}; pass the size of its images",
        )
    return geometry


def geometry_of_weight(
    x: tuple[int, ...], g: tuple[int, ...], window: Any, stride: Any, padding: Any, dilation: Any,
    groups: Any,
) -> Geometry:  # fmt: skip
    """Return the sizes of a convolution whose images and result have shapes `x` and `g`."""
    name = "conv2d_weight"
    _axes(name, 0, "images (number, channels, height, width)", x)
    _axes(name, 1, "cotangents of images (number, channels, height, width)", g)
    window = _pair(name, "window", window, 1)
    number = _groups(name, groups)
    if x[1] % number:
        _wrong(name, (x, g), f"{x[1]} channels of images are no multiple of groups={groups}")
    w = (g[1], x[1] // number, *window)
    geometry = geometry_of(name, x, w, stride, padding, dilation, groups, (x, g))
    if (geometry.number, *geometry.out) != (g[0], *g[2:]):
        _wrong(
            name,
            (x, g),
            f"a convolution of these images with windows of {window} has "
            f"results of the shape {(x[0], g[1], *geometry.out)}; pass the size of its windows",
        )
    return geometry


def geometry_for(name: str, a: tuple[int, ...], b: tuple[int, ...], params: Any) -> Geometry:
    """Return the sizes of a call of one of the three operations, by the shapes of its operands."""
    settings = (params.get(n, d) for n, d in DEFAULTS)
    if name == "conv2d":
        return geometry_of(name, a, b, *settings)
    if name == "conv2d_input":
        return geometry_of_input(a, b, params["size"], *settings)
    return geometry_of_weight(a, b, params["window"], *settings)


# -- block by block, on the host -------------------------------------------------------------------


def _product(a: Any, b: Any, out: Any = None) -> Any:
    """Multiply stacks of matrices with the current backend."""
    mode = MODE.get()
    if mode is not None and mode.engine is not None and not mode.symbolic and mode.place is None:
        product = mode.engine.call(OPS["matmul"], (a, b), {})
        if product is not NotImplemented:
            if out is None:
                return product
            out[...] = product
            return out
    return np.matmul(a, b, out=out)


def _blocks(k: Geometry, itemsize: int, size: int = 0) -> Iterator[tuple[slice, slice]]:
    """Yield images, and rows of the result, whose windows fit a block, or so many bytes."""
    of_row = k.channels * k.window[0] * k.window[1] * k.out[1] * itemsize
    rows = max(1, max(BLOCK, size) // max(of_row, 1))
    if rows >= k.out[0]:
        images = max(1, rows // k.out[0])
        for first in range(0, k.number, images):
            yield slice(first, min(first + images, k.number)), slice(0, k.out[0])
        return
    parts = -(-k.out[0] // rows)
    edges = [k.out[0] * i // parts for i in range(parts + 1)]
    for image in range(k.number):
        for first, last in itertools.pairwise(edges):
            yield slice(image, image + 1), slice(first, last)


def _padded(x: Any, k: Geometry, images: slice, rows: slice) -> Any:
    """Return what windows of `rows` read, zeros around it included."""
    (top, _), (left, right) = k.padding
    reach = (k.window[0] - 1) * k.dilation[0] + 1
    first = rows.start * k.stride[0] - top
    last = (rows.stop - 1) * k.stride[0] - top + reach
    inside = slice(max(first, 0), max(min(last, k.size[0]), 0))
    part = x[images, :, inside]
    above = min(max(-first, 0), last - first)
    if not (left or right) and part.shape[2] == last - first:
        return part
    padded = np.zeros((*part.shape[:2], last - first, k.size[1] + left + right), x.dtype)
    padded[:, :, above : above + part.shape[2], left : left + k.size[1]] = part
    return padded


def _windows(x: Any, k: Geometry, rows: int) -> Any:
    """Return a view of padded images: groups, channels, window, images, rows, columns."""
    n, c, h, w = x.strides
    shape = (k.groups, k.channels // k.groups, *k.window, x.shape[0], rows, k.out[1])
    strides = (
        c * (k.channels // k.groups), c, h * k.dilation[0], w * k.dilation[1], n,
        h * k.stride[0], w * k.stride[1],
    )  # fmt: skip
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)


def _columns(x: Any, k: Geometry, images: slice, rows: slice, room: list[Any]) -> Any:
    """Return the windows of a block as matrices, one a group: (elements, places)."""
    (count, height), width = (s.stop - s.start for s in (images, rows)), k.out[1]
    elements = k.channels // k.groups * k.window[0] * k.window[1]
    size = k.groups * elements * count * height * width
    view = _windows(_padded(x, k, images, rows), k, height)
    if not room or room[0].size < size:
        room[:] = [np.empty(size, x.dtype)]
    columns = room[0][:size].reshape(view.shape)
    np.copyto(columns, view)
    return columns.reshape(k.groups, elements, count * height * width)


def _direct(k: Geometry) -> bool:
    """Whether windows are single elements, all of them in order: images are the matrices."""
    return k.window == (1, 1) and k.stride == (1, 1) and k.padding == ((0, 0), (0, 0))


def forward(x: Any, w: Any, k: Geometry) -> Any:
    """Return ``conv2d(x, w)``."""
    dtype = np.result_type(x, w)
    x, w = x.astype(dtype, copy=False), w.astype(dtype, copy=False)
    c, o = k.per_group()
    out = np.empty((k.number, k.filters, *k.out), dtype)
    weights = np.reshape(w, (k.groups, o, c * k.window[0] * k.window[1]))
    if _direct(k):
        plane = k.size[0] * k.size[1]
        matrices = np.reshape(x, (k.number, k.groups, c, plane))
        _product(weights, matrices, out.reshape(k.number, k.groups, o, plane))
        return out
    room: list[Any] = []
    for images, rows in _blocks(k, dtype.itemsize):
        columns = _columns(x, k, images, rows, room)
        count, height = (s.stop - s.start for s in (images, rows))
        product = _product(weights, columns).reshape(k.filters, count, height, k.out[1])
        out[images, :, rows] = product.swapaxes(0, 1)
    return out


def to_weight(x: Any, g: Any, k: Geometry) -> Any:
    """Return ``conv2d_weight(x, g)``."""
    dtype = np.result_type(x, g)
    x, g = x.astype(dtype, copy=False), g.astype(dtype, copy=False)
    c, o = k.per_group()
    total = np.zeros((k.groups, o, c * k.window[0] * k.window[1]), dtype)
    room: list[Any] = []
    # Blocks of more bytes than the sums: these are read and written for each block.
    for images, rows in _blocks(k, dtype.itemsize, 2 * total.nbytes):
        columns = _columns(x, k, images, rows, room)
        part = np.ascontiguousarray(g[images, :, rows].swapaxes(0, 1))
        cotangents = part.reshape(k.groups, o, columns.shape[2])
        total += _product(cotangents, columns.swapaxes(1, 2))
    return total.reshape(k.filters, c, *k.window)


def _transposed(k: Geometry) -> Geometry | None:
    """Return the convolution of cotangents that gives those of images; None with strides."""
    reach = [(n - 1) * d + 1 for n, d in zip(k.window, k.dilation, strict=True)]
    first, second = (
        (r - 1 - before, r - 1 - after) for r, (before, after) in zip(reach, k.padding, strict=True)
    )
    if k.stride != (1, 1) or min(*first, *second) < 0:
        return None
    return k._replace(
        channels=k.filters, size=k.out, filters=k.channels, out=k.size, padding=(first, second)
    )


def to_input(g: Any, w: Any, k: Geometry) -> Any:
    """Return ``conv2d_input(g, w)``: products of blocks, added where their windows lie."""
    dtype = np.result_type(g, w)
    g, w = g.astype(dtype, copy=False), w.astype(dtype, copy=False)
    c, o = k.per_group()
    weights = np.reshape(w, (k.groups, o, c * k.window[0] * k.window[1])).swapaxes(1, 2)
    if _direct(k):
        plane = k.out[0] * k.out[1]
        cotangents = np.reshape(g, (k.number, k.groups, o, plane))
        out = np.empty((k.number, k.channels, *k.size), dtype)
        _product(weights, cotangents, out.reshape(k.number, k.groups, c, plane))
        return out
    transposed = _transposed(k)
    if transposed is not None:
        parts = np.reshape(w, (k.groups, o, c, *k.window))[..., ::-1, ::-1].swapaxes(1, 2)
        return forward(g, np.reshape(parts, (k.channels, o, *k.window)), transposed)
    (top, bottom), (left, right) = k.padding
    whole = np.zeros(
        (k.number, k.channels, k.size[0] + top + bottom, k.size[1] + left + right), dtype
    )
    for images, rows in _blocks(k, dtype.itemsize):
        count, height = (s.stop - s.start for s in (images, rows))
        part = np.ascontiguousarray(g[images, :, rows].swapaxes(0, 1))
        product = _product(weights, part.reshape(k.groups, o, count * height * k.out[1]))
        parts = product.reshape(k.channels, *k.window, count, height, k.out[1])
        for i in range(k.window[0]):
            for j in range(k.window[1]):
                _spot(whole, k, images, rows, i, j)[...] += parts[:, i, j].swapaxes(0, 1)
    return np.ascontiguousarray(whole[:, :, top : top + k.size[0], left : left + k.size[1]])


def _spot(whole: Any, k: Geometry, images: slice, rows: slice, i: int, j: int) -> Any:
    """Return the elements of padded images that element (i, j) of some windows meets."""
    first = i * k.dilation[0] + rows.start * k.stride[0]
    last = i * k.dilation[0] + (rows.stop - 1) * k.stride[0] + 1
    start = j * k.dilation[1]
    stop = start + (k.out[1] - 1) * k.stride[1] + 1
    return whole[images, :, first : last : k.stride[0], start : stop : k.stride[1]]


# -- with functions of NumPy alone, for arrays of devices -----------------------------------------


def _whole_windows(x: Any, k: Geometry) -> Any:
    """Return images, groups, channels, rows, columns, window; of any array library."""
    padded = np.pad(x, ((0, 0), (0, 0), *k.padding))
    reach = tuple((n - 1) * d + 1 for n, d in zip(k.window, k.dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    view = view[:, :, :: k.stride[0], :: k.stride[1], :: k.dilation[0], :: k.dilation[1]]
    return np.reshape(view, (k.number, k.groups, k.channels // k.groups, *view.shape[2:]))


def forward_whole(x: Any, w: Any, k: Geometry) -> Any:
    """Return ``conv2d(x, w)``."""
    c, o = k.per_group()
    weights = np.reshape(w, (k.groups, o, c, *k.window))
    out = np.einsum("ngcyxij,gocij->ngoyx", _whole_windows(x, k), weights)
    return np.reshape(out, (k.number, k.filters, *k.out))


def to_weight_whole(x: Any, g: Any, k: Geometry) -> Any:
    """Return ``conv2d_weight(x, g)``."""
    c, o = k.per_group()
    cotangents = np.reshape(g, (k.number, k.groups, o, *k.out))
    out = np.einsum("ngcyxij,ngoyx->gocij", _whole_windows(x, k), cotangents)
    return np.reshape(out, (k.filters, c, *k.window))


def to_input_whole(g: Any, w: Any, k: Geometry) -> Any:
    """Return ``conv2d_input(g, w)``."""
    c, o = k.per_group()
    weights = np.reshape(w, (k.groups, o, c, *k.window))
    cotangents = np.reshape(g, (k.number, k.groups, o, *k.out))
    parts = np.einsum("gocij,ngoyx->ijngcyx", weights, cotangents)
    parts = np.reshape(parts, (*k.window, k.number, k.channels, *k.out))
    (top, bottom), (left, right) = k.padding
    shape = (k.number, k.channels, k.size[0] + top + bottom, k.size[1] + left + right)
    whole = np.zeros_like(parts, shape=shape)
    images, rows = slice(0, k.number), slice(0, k.out[0])
    for i in range(k.window[0]):
        for j in range(k.window[1]):
            spot = _spot(whole, k, images, rows, i, j)
            spot += parts[i, j]
    return np.copy(whole[:, :, top : top + k.size[0], left : left + k.size[1]])
