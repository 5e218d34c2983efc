"""What the kernels of ``adarray_conv.h`` are told for a convolution of given sizes.

The gradient of the images is a convolution of the cotangent for each remainder of the places by
the strides, so that no zero is multiplied.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from adarray.ops.windows import Geometry

KINDS = {"float32": 1, "tf32": 2, "bf16": 3, "fp16": 4, "float64": 5}
STAGES = 3
ROW = 64  # places that a block turns into words at a time
_FEW = 3  # channels that are worth four words of Tensor Cores
_MOST_PARTS = 64
_MOST_BYTES = 1 << 28  # of sums of parts
_FAR = 1 << 14  # steps along height and width that a table holds
_SHORT = (1 << 31) - 4096  # elements that 32 bits count
_OUTSIDE = -(1 << 31)  # steps to what is outside of all images

_DIVISOR = np.dtype([("by", "u4"), ("times", "u4"), ("shift", "u4")])
_PLACES = np.dtype(
    [("count", "u4"), ("image", _DIVISOR), ("row", _DIVISOR), ("down", "i4"), ("right", "i4"),
     ("top", "i4"), ("left", "i4")],
    align=True,
)  # fmt: skip
_IMAGES = np.dtype(
    [("height", "i4"), ("width", "i4"), ("image", "i8"), ("group", "i8")], align=True
)
_RESULT = np.dtype(
    [("image", "i8"), ("channel", "i8"), ("row", "i4"), ("column", "i4"), ("first", "i8"),
     ("size", "i8"), ("channels", "i4")],
    align=True,
)  # fmt: skip
_SUMS = np.dtype([("steps", "i4"), ("stretch", "i4"), ("tiles", "i4"), ("groups", "i4")])
JOB = np.dtype(
    [("p", _PLACES), ("im", _IMAGES), ("to", _RESULT), ("s", _SUMS), ("elements", "i4"),
     ("words", "i4")],
    align=True,
)  # fmt: skip
FILLING = np.dtype(
    [("deep", "i4"), ("wide", "i4"), ("channels", "i4"), ("groups", "i4"), ("each", "i8"),
     ("apart", "i8")],
    align=True,
)  # fmt: skip


class Shape(NamedTuple):
    """The tiles of a kind of numbers."""

    tensor: bool  # whether Tensor Cores multiply
    itemsize: int  # of results
    places: int  # columns of a tile
    deep: int  # of a tile of `gather`: elements of windows, or words of them
    long: int  # of a tile of `weigh`: places
    per: int  # channels in a word


SHAPES = {
    1: Shape(False, 4, 128, 16, 32, 1),
    2: Shape(True, 4, 128, 32, 32, 1),
    3: Shape(True, 4, 128, 32, 32, 2),
    4: Shape(True, 4, 128, 32, 32, 2),
    5: Shape(False, 8, 64, 16, 16, 1),
}


class Taps(NamedTuple):
    """The elements of a window in one channel."""

    offset: np.ndarray  # places from where the window begins
    down: np.ndarray
    right: np.ndarray
    weight: np.ndarray  # position in a channel of the weights


class Phase(NamedTuple):
    """Places of a result that have the same elements of windows."""

    taps: Taps
    places: tuple[int, ...]
    result: tuple[int, ...]


class Packing(NamedTuple):
    """An operand whose channels become words."""

    planes: int
    plane: int  # elements
    channels: int
    words: int

    def size(self) -> int:
        """Return the number of words of all planes."""
        return self.planes * self.plane * self.words


class Launch(NamedTuple):
    """A kernel that sums, and the one that prepares its weights."""

    job: Any  # bytes for the memory of the GPU, as `filling`
    grid: tuple[int, int, int]
    filling: Any
    prepared: int  # elements


class Work(NamedTuple):
    """What is launched for one operation and its sizes."""

    kind: int
    made: int  # channels of a tile
    launches: tuple[Launch, ...]
    parts: int
    packings: tuple[Packing, ...]  # of the first operands


def kind_for(precision: str, k: Geometry) -> int:
    """Return which kernels compute: of few channels the exact ones, which waste nothing."""
    kind = KINDS[precision]
    return KINDS["float32"] if SHAPES[kind].tensor and min(k.per_group()) < _FEW else kind


def height_of(channels: int, kind: int) -> int:
    """Return the rows of tiles: the taller ones, unless they would be filled up more."""
    if kind == KINDS["float64"] or -(-channels // 64) * 64 < -(-channels // 128) * 128:
        return 64
    return 128


def shared_of(name: str, kind: int, made: int) -> int:
    """Return the bytes of shared memory of a block."""
    tensor, itemsize, places, deep, long, per = SHAPES[kind]
    if name == "gather":
        size = (made + places) * (deep + 4) if tensor else deep * (made + places + 16)
    elif name == "weigh":
        gap = 16 if per == 1 else 8
        size = long * ((made + places) // per + gap) if tensor else 0
        size = size or (made + places) * (long + 16 // itemsize)
    else:
        return 0
    return STAGES * size * itemsize


def suits(k: Geometry) -> bool:
    """Whether the kernels can count all that these sizes have."""
    reach = [n * d for n, d in zip(k.window, k.dilation, strict=True)]
    c, o = k.per_group()
    return (
        min(k.number, c, o, *k.size) > 0
        and max(*k.size, *k.out, *reach, *(sum(p) for p in k.padding)) < _FAR
        and k.number * math.prod(k.out) < _SHORT
        and k.number * math.prod(k.size) < _SHORT
        and (c + 8) * math.prod(k.size) < _SHORT
        and (o + 8) * math.prod(k.out) < _SHORT
        and k.groups * _MOST_PARTS < 65536
    )


def is_product(name: str, k: Geometry) -> bool:
    """Whether windows are single elements, all of them in order: images are matrices then."""
    partial = k.number * k.made * k.channels * 8 if name == "conv2d_weight" else 0
    return (
        k.window == (1, 1)
        and k.stride == (1, 1)
        and k.groups == 1
        and not any(map(sum, k.padding))
        and partial <= _MOST_BYTES
    )


def shape_of(name: str, k: Geometry) -> tuple[int, ...]:
    """Return the shape of an operation's result."""
    if name == "conv2d":
        return (k.number, k.made, *k.out)
    if name == "conv2d_input":
        return (k.number, k.channels, *k.size)
    return (k.made, k.channels // k.groups, *k.window)


# -- tables ----------------------------------------------------------------------------------------


def _divisor(by: int) -> tuple[int, int, int]:
    """Return a number as `quotient` divides by it (Granlund and Montgomery, 1994)."""
    length = (by - 1).bit_length()
    return by, 0 if by == 1 else -(-(1 << (31 + length)) // by), max(length - 1, 0)


def _words(channels: int, kind: int) -> int:
    """Return the words of a place: 16 bytes must belong to one element of a window."""
    per = SHAPES[kind].per
    return -(-channels // (4 * per)) * 4


def _steps_table(offset: Any, down: Any, right: Any, length: int) -> np.ndarray:
    """Return offsets and steps as kernels read them, filled up with what is outside."""
    made = np.zeros((length, 2), np.int32)
    made[:, 1] = _OUTSIDE
    n = offset.size
    made[:n, 0] = offset.ravel()
    made[:n, 1] = ((down << 16) | (right & 0xFFFF)).ravel()
    return made


def _exact_tables(taps: Taps, channels: int, plane: int, step: int, steps: int) -> Any:
    """Return the tables of windows and weights, whose elements come channel by channel."""
    c = np.arange(channels)[:, None]
    shape = (channels, len(taps.offset))
    down, right = (np.broadcast_to(x, shape) for x in (taps.down, taps.right))
    low = np.full((steps * SHAPES[1].deep, 2), -1, np.int32)
    low[: c.size * len(taps.offset), 0] = (c * step + taps.weight).ravel()
    return _steps_table(c * plane + taps.offset, down, right, len(low)), low


def _tensor_tables(taps: Taps, channels: int, step: int, words: int, steps: int, per: int) -> Any:
    """Return the tables of windows, by four words, and of weights, tap by tap."""
    deep = steps * SHAPES[2].deep
    four = np.arange(0, words, 4)
    shape = (len(taps.offset), four.size)
    down, right = (np.broadcast_to(x[:, None], shape) for x in (taps.down, taps.right))
    table = _steps_table(taps.offset[:, None] * words + four, down, right, deep // 4)
    at = np.full((deep, 2), -1, np.int32)
    for half in range(per):
        c = np.arange(words) * per + half
        place = np.where(c < channels, c * step + taps.weight[:, None], -1)
        at[: place.size, half] = place.ravel()
    return table, at


def _written(head: Any, dtype: Any, *tables: np.ndarray) -> np.ndarray:
    """Return a structure and what follows it as bytes."""
    first = np.zeros(1, dtype)
    first[0] = head
    return np.frombuffer(b"".join((first.tobytes(), *(t.tobytes() for t in tables))), np.uint8)


def _parts(processors: int, blocks: int, steps: int, least: int, size: int) -> int:
    """Return into how many stretches sums are cut, so that all multiprocessors have work."""
    most = min(_MOST_PARTS, steps // least, _MOST_BYTES // max(size, 1))
    return max(1, min(2 * processors // max(blocks, 1), most))


# -- convolutions ----------------------------------------------------------------------------------


def _taps(k: Geometry) -> Taps:
    """Return the elements of a window in order."""
    i, j = (x.ravel() for x in np.indices(k.window))
    down, right = i * k.dilation[0], j * k.dilation[1]
    return Taps(down * k.size[1] + right, down, right, i * k.window[1] + j)


def _forward(k: Geometry, kind: int, processors: int) -> Work:
    c, o = k.per_group()
    plane, area = math.prod(k.out), math.prod(k.window)
    places = (k.number * plane, plane, k.out[1], *k.stride, -k.padding[0][0], -k.padding[1][0])
    result = (k.made * plane, plane, k.out[1], 1, 0)
    weights = (o * c * area, c * area, area)
    phases = [Phase(_taps(k), places, result)]
    return _convolved(k, kind, processors, phases, k.size, (c, o), plane, weights)


def _to_input(k: Geometry, kind: int, processors: int) -> Work:
    c, o = k.per_group()
    (sh, sw), (top, left) = k.stride, (k.padding[0][0], k.padding[1][0])
    (height, width), area = k.size, math.prod(k.window)
    all_taps = _taps(k)
    phases = []
    for a, b in itertools.product(range(min(sh, height)), range(min(sw, width))):
        down, right = a + top - all_taps.down, b + left - all_taps.right
        met = (down % sh == 0) & (right % sw == 0)
        down, right = down[met] // sh, right[met] // sw
        taps = Taps(down * k.out[1] + right, down, right, all_taps.weight[met])
        rows, columns = -(-(height - a) // sh), -(-(width - b) // sw)
        places = (k.number * rows * columns, rows * columns, columns, 1, 1, 0, 0)
        plane = height * width
        result = (k.channels * plane, plane, sh * width, sw, a * width + b)
        phases.append(Phase(taps, places, result))
    weights = (o * c * area, area, c * area)
    return _convolved(k, kind, processors, phases, k.out, (o, c), height * width, weights)


def _convolved(
    k: Geometry, kind: int, processors: int, phases: list[Phase], size: tuple[int, int],
    channels: tuple[int, int], plane: int, weights: tuple[int, int, int],
) -> Work:  # fmt: skip
    """Return the work of a convolution.

    Parameters
    ----------
    phases : list of Phase
        Parts of the result whose windows have other elements.
    size : tuple of int
        Height and width of what windows slide over.
    channels : tuple of int
        Of a group, of it and of the result.
    plane : int
        Elements of a channel of the result.
    weights : tuple of int
        Steps from group to group, from channel to channel of the result, of what windows see.
    """
    shape, (seen, shown), area = SHAPES[kind], channels, math.prod(size)
    made = height_of(shown, kind)
    tiles = -(-shown // made)
    words = _words(seen, kind) if shape.tensor else seen
    elements = k.number * k.groups * shown * plane
    steps = [-(-len(p.taps.offset) * words // shape.deep) for p in phases]
    blocks = [-(-p.places[0] // shape.places) * tiles for p in phases]
    parts = _parts(
        processors, sum(blocks) * k.groups, max(steps), 128 // shape.deep,
        elements * shape.itemsize,
    )  # fmt: skip
    launches = []
    for p, n, count in zip(phases, steps, blocks, strict=True):
        if shape.tensor:
            table, at = _tensor_tables(p.taps, seen, weights[2], words, n, shape.per)
        else:
            table, at = _exact_tables(p.taps, seen, area, weights[2], n)
        number, image, row, *rest = p.places
        job = (
            (number, _divisor(image), _divisor(row), *rest),
            (*size, k.groups * words * area, words * area),
            (*p.result, elements, shown),
            (n, -(-n // parts), tiles, k.groups),
            0,
            words,
        )
        deep, wide = n * shape.deep, tiles * made
        filling = _written((deep, wide, shown, k.groups, *weights[:2]), FILLING, at)
        grid = (count, k.groups * parts, 1)
        launches.append(Launch(_written(job, JOB, table), grid, filling, k.groups * deep * wide))
    packings = (Packing(k.number * k.groups, area, seen, words),) if shape.tensor else ()
    return Work(kind, made, tuple(launches), parts, packings)


def _to_weight(k: Geometry, kind: int, processors: int) -> Work:
    shape, (c, o), taps = SHAPES[kind], k.per_group(), _taps(k)
    area, plane, window = math.prod(k.size), math.prod(k.out), math.prod(k.window)
    made = height_of(o, kind)
    tiles, count = -(-o // made), k.number * plane
    words, others = c, 1  # of a place of the images and of the cotangent
    elements, tables = c * window, ()
    if shape.tensor:
        words, others = _words(c, kind), _words(o, kind)
        elements = window * words
        steps = -(-elements // shape.deep)
        fours, at = _tensor_tables(taps, c, window, words, steps, shape.per)
        low = np.ascontiguousarray(at[:elements, : shape.per], np.int32)
        tables = (fours[: elements // 4], low)
    else:
        table, _ = _exact_tables(taps, c, area, window, -(-elements // shape.deep))
        tables = (table[:elements],)
    steps = -(-count // shape.long)
    blocks = -(-elements * shape.per // shape.places) * tiles
    size = k.made * c * window
    parts = _parts(processors, blocks * k.groups, steps, 4, size * shape.itemsize)
    if shape.tensor:
        result = (k.groups * plane * others, c * window, others, 1, plane * others, size, o)
    else:
        result = (k.made * plane, plane, k.out[1], 1, 0, size, o)
    job = (
        (count, _divisor(plane), _divisor(k.out[1]), *k.stride, -k.padding[0][0],
         -k.padding[1][0]),
        (*k.size, k.groups * words * area, words * area),
        result,
        (steps, -(-steps // parts), tiles, k.groups),
        elements,
        words,
    )  # fmt: skip
    launch = Launch(_written(job, JOB, *tables), (blocks, k.groups * parts, 1), None, 0)
    number = k.number * k.groups
    packings = (Packing(number, area, c, words), Packing(number, plane, o, others))
    return Work(kind, made, (launch,), parts, packings if shape.tensor else ())


_WORK = {"conv2d": _forward, "conv2d_input": _to_input, "conv2d_weight": _to_weight}
NAMES = frozenset(_WORK)


def work_of(name: str, k: Geometry, kind: int, processors: int) -> Work:
    """Return the work of an operation for a number of multiprocessors."""
    return _WORK[name](k, kind, processors)
