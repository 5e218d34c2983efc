"""Sums of products over sliding windows, as people write convolutions in NumPy.

``np.einsum("ncyxij,ocij->noyx", sliding_window_view(x, (3, 3), axis=(2, 3)), w)`` reads a view
of nine times the elements of `x`; a product of matrices would copy it. These are
`adarray.ops.nn.conv2d`, which does not.

References
----------
- K. Chellapilla, S. Puri, P. Simard, "High performance convolutional neural networks for document
  processing", IWFHR 2006.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from adarray.core.dispatch import replay
from adarray.core.trace import Handle, root_of
from adarray.ops.nn import conv2d


class Windows(NamedTuple):
    """An array whose element (.., y, x, .., i, j) is that of images at y * step + i * apart."""

    images: Any
    rows: int  # axes of the images that windows slide along
    columns: int
    stride: tuple[int, int]
    dilation: tuple[int, int]


def convolved(subscripts: str, a: Any, b: Any) -> Any:
    """Return an einsum of two operands as a convolution; None if it is none."""
    left, right = subscripts.split("->")
    s, t = left.split(",")
    for windows, of_windows, weights, of_weights in ((a, s, b, t), (b, t, a, s)):
        if len(of_windows) < 4 or len(set(of_windows)) < len(of_windows):
            continue
        if len(set(of_weights)) < len(of_weights) or not _floats(windows, weights):
            continue
        images = _windows_of(windows, of_windows, of_weights, right)
        if images is not None:
            out = _convolution(images, of_windows, weights, of_weights, right)
            if out is not None:
                return out
    return None


def _floats(*arrays: Any) -> bool:
    return all(x.dtype.kind == "f" for x in arrays) and arrays[0].dtype == arrays[1].dtype


def _convolution(w: Windows, of_windows: str, weights: Any, of_weights: str, right: str) -> Any:
    """Return the convolution in the order of axes that is wanted; None if it is no such sum."""
    *base, i, j = list(of_windows)
    y, x = base[w.rows], base[w.columns]
    others = [c for k, c in enumerate(base) if k not in (w.rows, w.columns)]
    channels = [c for c in others if c in of_weights and c not in right]
    images = [c for c in others if c in right and c not in of_weights]
    outputs = [c for c in of_weights if c not in (*channels, i, j)]
    if len(channels) > 1 or len(images) > 1 or len(outputs) > 1:
        return None
    if y in of_weights or x in of_weights:  # weights for each place
        return None
    if {i, j} - set(of_weights) or set(of_weights) != {*channels, *outputs, i, j}:
        return None
    if set(of_windows) != {*channels, *images, y, x, i, j} or len(set(right)) < len(right):
        return None
    if set(right) != {*images, *outputs, y, x} or any(c in right for c in (i, j)):
        return None
    sizes = dict(zip(base, w.images.shape, strict=True))
    if any(weights.shape[of_weights.index(c)] != sizes[c] for c in channels):
        return None
    x_of_images = _ordered(w.images, "".join(base), [images, channels, [y], [x]])
    kernel = _ordered(weights, of_weights, [outputs, channels, [i], [j]])
    out = conv2d(x_of_images, kernel, stride=w.stride, dilation=w.dilation)
    keep = [bool(images), bool(outputs), True, True]
    out = np.reshape(out, tuple(n for n, k in zip(out.shape, keep, strict=True) if k))
    letters = [*images, *outputs, y, x]
    return np.transpose(out, [letters.index(c) for c in right])


def _ordered(x: Any, letters: str, wanted: list[list[str]]) -> Any:
    """Bring axes in an order, with one of length 1 for each that is missing."""
    order = [letters.index(c) for group in wanted for c in group]
    ordered = x if order == list(range(len(order))) else np.transpose(x, order)
    lengths = iter(ordered.shape)
    shape = tuple(next(lengths) if group else 1 for group in wanted)
    return ordered if shape == tuple(ordered.shape) else np.reshape(ordered, shape)


def _windows_of(windows: Any, letters: str, of_weights: str, right: str) -> Windows | None:
    """Return what an operand is a view of, if windows slide over it."""
    if isinstance(windows, Handle):
        return _of_view(windows)
    if type(windows) is np.ndarray and letters[-1] in of_weights and letters[-1] not in right:
        return _of_strides(windows, letters, of_weights)
    return None


def _of_view(windows: Any) -> Windows | None:
    """Return images of an ADArray that is a view by `sliding_window_view`."""
    x = windows._x
    if x is None or x.base is None or not x.steps:
        return None
    *before, last = x.steps
    strides: list[int] | None = None
    if last[0].name == "getitem" and before:
        strides = _every(last, windows.ndim)
        *before, last = before
        if strides is None:
            return None
    op, rest, params = last
    if op.name != "sliding_window_view" or rest:
        return None
    axis, shape = params.get("axis"), params["window_shape"]
    images = replay(root_of(windows), tuple(before))
    axes = tuple(range(images.ndim)) if axis is None else axis
    axes = tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)
    if len(axes) != 2 or np.ndim(shape) != 1 or len(shape) != 2:
        return None
    rows, columns = (operator.index(k) % images.ndim for k in axes)
    if rows == columns:
        return None
    every = strides or [1] * windows.ndim
    if any(n != 1 for k, n in enumerate(every[:-2]) if k not in (rows, columns)):
        return None
    stride, dilation = (every[rows], every[columns]), (every[-2], every[-1])
    return Windows(_needed(images, windows, rows, columns, stride, dilation), rows, columns,
                   stride, dilation)  # fmt: skip


def _needed(images: Any, windows: Any, rows: int, columns: int, stride: Any, dilation: Any) -> Any:
    """Return the images without what no window reads, so that windows come out as many."""
    index = [slice(None)] * images.ndim
    for axis, window, step, apart in ((rows, -2, *_pairs(stride, dilation, 0)),
                                      (columns, -1, *_pairs(stride, dilation, 1))):  # fmt: skip
        reach = (windows.shape[axis] - 1) * step + (windows.shape[window] - 1) * apart + 1
        if reach < images.shape[axis]:
            index[axis] = slice(0, reach)
    return images if all(i == slice(None) for i in index) else images[tuple(index)]


def _pairs(stride: Any, dilation: Any, k: int) -> tuple[int, int]:
    return stride[k], dilation[k]


def _every(step: Any, ndim: int) -> list[int] | None:
    """Return the steps of an index that takes every n-th element from the first one on."""
    _, rest, params = step
    index = params.get("index", rest[0] if rest else None)
    parts = list(index) if isinstance(index, tuple) else [index]
    if sum(p is Ellipsis for p in parts) == 1:
        at = next(k for k, p in enumerate(parts) if p is Ellipsis)
        parts[at : at + 1] = [slice(None)] * (ndim - len(parts) + 1)
    if len(parts) > ndim or not all(type(p) is slice for p in parts):
        return None
    steps = []
    for p in parts + [slice(None)] * (ndim - len(parts)):
        if p.start not in (None, 0) or p.stop is not None:
            return None
        steps.append(1 if p.step is None else operator.index(p.step))
    return steps if min(steps) > 0 else None


def _of_strides(windows: np.ndarray, letters: str, of_weights: str) -> Windows | None:
    """Return images of a plain array whose windows overlap, by its strides."""
    *lead, down, right = windows.strides
    free = [k for k in range(windows.ndim - 2) if letters[k] not in of_weights]
    height, width = windows.shape[-2:]
    if min(down, right) <= 0 or down == right or min(height, width) < 1:
        return None

    def along(step: int, window: int) -> int | None:
        """Return the axis whose windows overlap by less than `window` such steps."""
        near = [k for k in free if lead[k] % step == 0 and 0 < lead[k] // step < max(window, 2)]
        return near[0] if len(near) == 1 else None

    columns, rows = along(right, width), along(down, height)
    if rows is None or columns is None or rows == columns:
        return None
    stride = lead[rows] // down, lead[columns] // right
    shape = list(windows.shape[:-2])
    shape[rows] = (shape[rows] - 1) * stride[0] + height
    shape[columns] = (shape[columns] - 1) * stride[1] + width
    strides = list(lead)
    strides[rows], strides[columns] = down, right
    images = np.lib.stride_tricks.as_strided(windows, shape, strides, writeable=False)
    return Windows(images, rows, columns, stride, (1, 1))
