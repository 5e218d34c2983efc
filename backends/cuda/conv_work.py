"""What the kernels of ``adarray_conv.h`` are told for a convolution of given sizes.

The gradient of the images is a convolution of the cotangent for each remainder of the places by
the strides, so that no zero is multiplied.

References
----------
- T. Granlund, P. L. Montgomery, "Division by invariant integers using multiplication", PLDI 1994.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from adarray_backends.cuda.conv_tiles import SHAPES, SHORT, Tile, tile_of

from adarray.ops.windows import Geometry

ROW = 64  # places that a block turns into words at a time
_SUMMED = 16  # elements of windows that a block takes then
_MOST_PARTS = 64
_MOST_BYTES = 1 << 28  # of sums of parts
_FAR = 1 << 14  # steps along height and width that a table holds
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

    def size(self, _per: int) -> int:
        """Return the number of words of all planes."""
        return self.planes * self.plane * self.words


class Rounding(NamedTuple):
    """A cotangent whose planes become rows of channels, one image after the other."""

    number: int
    plane: int
    channels: int  # of all groups
    pitch: int  # numbers from channel to channel

    def size(self, per: int) -> int:
        """Return the number of words of all rows."""
        return self.channels * self.pitch // per


class ConvLaunch(NamedTuple):
    """A kernel that sums, and the one that prepares its weights."""

    job: Any  # bytes for the memory of the GPU, as `filling`
    grid: tuple[int, int, int]
    filling: Any
    prepared: int  # elements


class ConvWork(NamedTuple):
    """What is launched for one operation and its sizes."""

    kind: int
    tile: Tile
    launches: tuple[ConvLaunch, ...]
    parts: int
    packings: tuple[Packing | Rounding, ...]  # of the first operands
    summed: int  # numbers that all parts find, unless they are the result


def suits(k: Geometry) -> bool:
    """Whether the kernels can count all that these sizes have."""
    reach = [n * d for n, d in zip(k.window, k.dilation, strict=True)]
    c, o = k.per_group()
    return (
        min(k.number, c, o, *k.size) > 0
        and max(*k.size, *k.out, *reach, *(sum(p) for p in k.padding)) < _FAR
        and k.number * math.prod(k.out) < SHORT
        and k.number * math.prod(k.size) < SHORT
        and (c + 8) * math.prod(k.size) < SHORT
        and (o + 8) * math.prod(k.out) < SHORT
        and k.groups * _MOST_PARTS < 65536
    )


def settling(k: Geometry) -> tuple[int, int, int]:
    """Return the blocks that settle sums of weights, 32 x 32 each."""
    c, o = k.per_group()
    return -(-c * math.prod(k.window) // 32), k.groups * -(-o // 32), 1


def packing(p: Packing) -> tuple[int, int, int]:
    """Return the blocks that turn planes into words: 32 words of `ROW` places each."""
    return -(-p.plane // ROW), -(-p.words // 32), min(p.planes, 65535)


def is_product(name: str, k: Geometry) -> bool:
    """Whether windows are single elements, all of them in order: images are matrices then."""
    partial = k.number * k.filters * k.channels * 8 if name == "conv2d_weight" else 0
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
        return (k.number, k.filters, *k.out)
    if name == "conv2d_input":
        return (k.number, k.channels, *k.size)
    return (k.filters, k.channels // k.groups, *k.window)


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
    table = np.zeros((length, 2), np.int32)
    table[:, 1] = _OUTSIDE
    n = offset.size
    table[:n, 0] = offset.ravel()
    table[:n, 1] = ((down << 16) | (right & 0xFFFF)).ravel()
    return table


def _exact_tables(taps: Taps, channels: int, plane: int, step: int, steps: int) -> Any:
    """Return the tables of windows and weights, whose elements come channel by channel."""
    c = np.arange(channels)[:, None]
    shape = (channels, len(taps.offset))
    down, right = (np.broadcast_to(x, shape) for x in (taps.down, taps.right))
    low = np.full((steps * SHAPES[1].deep, 2), -1, np.int32)
    low[: c.size * len(taps.offset), 0] = (c * step + taps.weight).ravel()
    return _steps_table(c * plane + taps.offset, down, right, len(low)), low


def _few_tables(taps: Taps, channels: int, step: int) -> Any:
    """Return the tables of the elements of windows in a channel, and of weights, tap by tap."""
    low = np.full((len(taps.offset) * channels, 2), -1, np.int32)
    low[:, 0] = (taps.weight[:, None] + np.arange(channels) * step).ravel()
    return _steps_table(taps.offset, taps.down, taps.right, len(taps.offset)), low


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


def _parts(slots: int, blocks: int, steps: int, least: int, size: int) -> int:
    """Return into how many stretches sums are cut, so that all multiprocessors have work."""
    most = min(_MOST_PARTS, steps // least, _MOST_BYTES // max(size, 1))
    return max(1, min(slots // max(blocks, 1), most))


def _hopper_parts(tile: Tile, processors: int, blocks: int, steps: int, size: int) -> int:
    """Return the number of stretches for which sums and what adds them are expected to be fastest.

    A step takes a microsecond or less, and a microsecond writes and reads 1.5 MB of sums.
    """
    step = tile.channels * tile.places * tile.blocks / (256 * 128) * 0.9
    most = max(1, min(_MOST_PARTS, steps // 4, _MOST_BYTES // max(size, 1)))

    def expected(parts: int) -> float:
        waves = -(-blocks * parts // (tile.blocks * processors))
        return waves * (-(-steps // parts) + 4) * step + (parts > 1) * (3 + parts * size / 1.5e6)

    return min(range(1, most + 1), key=expected)


# -- convolutions ----------------------------------------------------------------------------------


def _taps(k: Geometry) -> Taps:
    """Return the elements of a window in order."""
    i, j = (x.ravel() for x in np.indices(k.window))
    down, right = i * k.dilation[0], j * k.dilation[1]
    return Taps(down * k.size[1] + right, down, right, i * k.window[1] + j)


def _forward(k: Geometry, kind: int, processors: int) -> ConvWork:
    c, o = k.per_group()
    plane, area = math.prod(k.out), math.prod(k.window)
    places = (k.number * plane, plane, k.out[1], *k.stride, -k.padding[0][0], -k.padding[1][0])
    result = (k.filters * plane, plane, k.out[1], 1, 0)
    weights = (o * c * area, c * area, area)
    phases = [Phase(_taps(k), places, result)]
    return _convolved(k, kind, processors, phases, k.size, (c, o), plane, weights)


def _to_input(k: Geometry, kind: int, processors: int) -> ConvWork:
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
) -> ConvWork:  # fmt: skip
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
    tile = tile_of("conv2d", kind, shown)
    tiles = -(-shown // tile.channels)
    wide = 4 if shape.few and shown == 3 else tiles * tile.channels
    words = _words(seen, kind) if shape.tensor else seen
    elements = k.number * k.groups * shown * plane
    steps = [seen if shape.few else -(-len(p.taps.offset) * words // shape.deep) for p in phases]
    blocks = [-(-p.places[0] // tile.places) * tiles for p in phases]
    count, least = sum(blocks) * k.groups, 16 if shape.few else 128 // shape.deep
    if shape.hopper:
        parts = _hopper_parts(tile, processors, count, max(steps), elements * shape.itemsize)
    else:
        slots = tile.blocks * processors
        parts = _parts(slots, count, max(steps), least, elements * shape.itemsize)
    launches = []
    for p, n, count in zip(phases, steps, blocks, strict=True):
        if shape.few:
            table, at = _few_tables(p.taps, seen, weights[2])
        elif shape.tensor:
            table, at = _tensor_tables(p.taps, seen, weights[2], words, n, shape.per)
        else:
            table, at = _exact_tables(p.taps, seen, area, weights[2], n)
        number, image, row, *rest = p.places
        job = (
            (number, _divisor(image), _divisor(row), *rest),
            (*size, k.groups * words * area, words * area),
            (*p.result, elements, shown),
            (n, -(-n // parts), tiles, k.groups),
            len(p.taps.offset),
            words,
        )
        filling = _written((len(at), wide, shown, k.groups, *weights[:2]), FILLING, at)
        grid = (count, k.groups * parts, 1)
        prepared = k.groups * len(at) * wide
        launches.append(ConvLaunch(_written(job, JOB, table), grid, filling, prepared))
    packings = (Packing(k.number * k.groups, area, seen, words),) if shape.tensor else ()
    summed = parts * elements if parts > 1 else 0
    return ConvWork(kind, tile, tuple(launches), parts, packings, summed)


def _to_weight(k: Geometry, kind: int, processors: int) -> ConvWork:
    shape, (c, o), taps = SHAPES[kind], k.per_group(), _taps(k)
    area, plane, window = math.prod(k.size), math.prod(k.out), math.prod(k.window)
    tile = tile_of("conv2d_weight", kind, o)
    tiles, count = -(-o // tile.channels), k.number * plane
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
    blocks = -(-elements * shape.per // (_SUMMED if shape.few else tile.places)) * tiles
    size = k.filters * (elements * shape.per if shape.hopper else c * window)
    if shape.hopper:
        parts = _hopper_parts(tile, processors, blocks * k.groups, steps, size * shape.itemsize)
    else:
        slots = tile.blocks * processors
        parts = _parts(slots, blocks * k.groups, steps, 4, size * shape.itemsize)
    if shape.tensor:
        result = (k.groups * plane * others, c * window, others, 1, plane * others, size, o)
    else:
        result = (k.filters * plane, plane, k.out[1], 1, 0, size, o)
    job = (
        (count, _divisor(plane), _divisor(k.out[1]), *k.stride, -k.padding[0][0],
         -k.padding[1][0]),
        (*k.size, k.groups * words * area, words * area),
        result,
        (steps, -(-steps // parts), tiles, k.groups),
        elements,
        words,
    )  # fmt: skip
    launch = ConvLaunch(_written(job, JOB, *tables), (blocks, k.groups * parts, 1), None, 0)
    images = Packing(k.number * k.groups, area, c, words)
    cotangent = Packing(k.number * k.groups, plane, o, others)
    packings: tuple[Packing | Rounding, ...] = ()
    if shape.hopper:
        packings = images, Rounding(k.number, plane, k.filters, steps * shape.long)
    elif shape.tensor:
        packings = images, cotangent
    summed = parts * size if parts > 1 or shape.hopper else 0
    return ConvWork(kind, tile, (launch,), parts, packings, summed)


_WORK = {"conv2d": _forward, "conv2d_input": _to_input, "conv2d_weight": _to_weight}
NAMES = frozenset(_WORK)


def work_of(name: str, k: Geometry, kind: int, processors: int) -> ConvWork:
    """Return the work of an operation for a number of multiprocessors."""
    return _WORK[name](k, kind, processors)
