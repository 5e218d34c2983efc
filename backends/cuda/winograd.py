"""Convolutions of float32 images with windows of 3 x 3 by fewer products.

Tiles of images, of weights and of results become values at 36 points
(``adarray_conv_winograd.h``); between them are 36 products of matrices, which cuBLAS multiplies
with a quarter of the multiplications of the definition.

References
----------
- A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", CVPR 2016.
- S. Winograd, "Arithmetic Complexity of Computations", SIAM 1980.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import adarray_native

from adarray.ops.windows import Geometry

KERNELS = (
    "images_evaluated", "cotangent_lengthened", "result_shortened", "weights_weighed",
    "gradient_unweighed",
)  # fmt: skip
POINTS, TILE, WINDOW = 36, 4, 3
FIRST, SECOND, OUT, ROOM = range(4)  # both operands, the result, and memory to work in
BLOCK = 128  # threads
_MOST_BLOCKS = 4096
_MOST_CHANNELS = 65535  # of a grid
_FEW = 16  # channels below which matrices are too narrow
_ROOM = 1 << 28  # bytes of points of some images; of one there may be more
_SHORT = 1 << 31  # tiles that 32 bits count
# Sums over tiles: rows and columns that a block of a product computes, blocks that keep a GPU
# busy, and fewest tiles that are summed.
_ROWS, _BLOCKS, _LEAST = 128, 300, 256
# What an H200 does: multiply-adds a second of our kernels and of products of matrices, and
# bytes a second of kernels that move points. They choose between two right ways.
_OURS, _PRODUCTS, _MEMORY, _LAUNCH_S = 17e12, 20e12, 3e12, 4e-6


class WinogradSizes(NamedTuple):
    """Sizes of one operation.

    Parameters
    ----------
    seen, shown : int
        Channels of what is evaluated, and of the result or cotangent.
    size : tuple of int
        Height and width of what is evaluated.
    out : tuple of int
        Of what is cut into tiles without overlap.
    first : tuple of int
        Where the first tile begins.
    down, across : int
        Tiles of an image.
    each, chunks : int
        Images that are computed together, and how often.
    parts : int
        Into which these are cut, so that more multiprocessors sum over tiles.
    """

    seen: int
    shown: int
    size: tuple[int, int]
    out: tuple[int, int]
    first: tuple[int, int]
    down: int
    across: int
    each: int
    chunks: int
    parts: int = 1


@functools.lru_cache(maxsize=1024)
def suits(name: str, k: Geometry, precision: str) -> bool:
    """Whether an operation is computed so: where that is expected to be faster."""
    plain = k.window == (WINDOW, WINDOW) and k.stride == k.dilation == (1, 1) and k.groups == 1
    if precision != "float32" or not plain or min(k.filters, k.channels) < _FEW:
        return False
    s = sizes_of(name, k)
    tiles = k.number * s.down * s.across
    if tiles >= _SHORT:
        return False
    direct = k.number * math.prod(k.out) * k.filters * k.channels * WINDOW**2 / _OURS
    return _seconds(k, s, tiles) < direct


def _seconds(k: Geometry, s: WinogradSizes, tiles: int) -> float:
    """Return the time that an operation is expected to take."""
    products = POINTS * tiles * k.filters * k.channels / _PRODUCTS
    moved = k.number * (s.seen * math.prod(s.size) + s.shown * math.prod(s.out))
    moved += 2 * POINTS * (tiles * (s.seen + s.shown) + k.filters * k.channels)
    return products + 4 * moved / _MEMORY + (1 + 3 * s.chunks) * _LAUNCH_S


@functools.lru_cache(maxsize=1024)
def sizes_of(name: str, k: Geometry) -> WinogradSizes:
    """Return the sizes of ``conv2d``, ``conv2d_input`` or ``conv2d_weight``."""
    top, left = k.padding[0][0], k.padding[1][0]
    seen, shown, size, out, first = k.channels, k.filters, k.size, k.out, (-top, -left)
    if name == "conv2d_input":  # windows slide over the cotangent, the other way round
        back = WINDOW - 1
        seen, shown, size, out, first = (
            k.filters,
            k.channels,
            k.out,
            k.size,
            (top - back, left - back),
        )
    down, across = (-(-n // TILE) for n in out)
    image = 4 * POINTS * down * across * (seen + shown)
    each = max(1, min(k.number, _ROOM // image))
    least = -(-k.number // each)
    # As many images each time, where that takes no more than twice as many times.
    chunks = next((n for n in range(least, 2 * least + 1) if k.number % n == 0), least)
    each = -(-k.number // chunks)
    chunks = -(-k.number // each)
    parts = 1
    if name == "conv2d_weight" and k.number == each * chunks:
        blocks = POINTS * math.prod(-(-n // _ROWS) for n in (seen, shown))
        wanted = min(_BLOCKS // blocks, each * down * across // _LEAST)
        parts = next(p for p in range(max(1, min(wanted, each)), 0, -1) if each % p == 0)
    return WinogradSizes(seen, shown, size, out, first, down, across, each, chunks, parts)


def source() -> str:
    """Return the text of the kernels."""
    return adarray_native.text("adarray_conv_winograd.h")


def rooms(name: str, s: WinogradSizes) -> tuple[int, int, int]:
    """Return the bytes of points: of weights or their gradient, of what is seen, and of results."""
    tiles = s.each * s.down * s.across
    weights = s.seen * s.shown * (s.chunks * s.parts if name == "conv2d_weight" else 1)
    sizes = weights, tiles * s.seen, tiles * s.shown
    first, second, third = (-(-4 * POINTS * n // 256) * 256 for n in sizes)
    return first, second, third


class ByteOffset(NamedTuple):
    """Bytes behind the beginning of an array, or of memory to work in."""

    base: int
    offset: int = 0


class TileKernel(NamedTuple):
    """A launch of a kernel: its name, the grid, two places and numbers."""

    name: str
    grid: tuple[int, int, int]
    places: tuple[ByteOffset, ByteOffset]
    numbers: tuple[int, ...]


class Matrices(NamedTuple):
    """Matrices for each point: a place, shape and strides in elements."""

    place: ByteOffset
    shape: tuple[int, int, int]
    strides: tuple[int, int, int]


class PointProducts(NamedTuple):
    """A product of matrices for each point."""

    first: Matrices
    second: Matrices
    out: Matrices


@functools.lru_cache(maxsize=1024)
def steps(name: str, k: Geometry) -> tuple[TileKernel | PointProducts, ...]:
    """Return what computes an operation on arrays in C order, one after the other.

    Places are bytes behind the first or second operand, the result, or memory of the sum of
    `rooms`.
    """
    return tuple(_steps(name, k))


def _steps(name: str, k: Geometry) -> Iterator[TileKernel | PointProducts]:
    s = sizes_of(name, k)
    starts = itertools.accumulate(rooms(name, s), initial=0)
    weights, seen, shown, _ = (ByteOffset(ROOM, n) for n in starts)
    size, back, to_weight = s.seen * s.shown, name == "conv2d_input", name == "conv2d_weight"
    if not to_weight:
        apart = (WINDOW**2, s.shown * WINDOW**2) if back else (s.seen * WINDOW**2, WINDOW**2)
        numbers = s.shown, s.seen, *apart, int(back)
        yield TileKernel("weights_weighed", _grid(size), (ByteOffset(SECOND), weights), numbers)
    count = POINTS * s.parts
    small = (count, s.shown, s.seen), (size, s.seen, 1)
    for i in range(s.chunks):
        number = min(s.each, k.number - i * s.each)
        tiles = number // s.parts * s.down * s.across
        before = 4 * i * s.each  # bytes of images of one element
        x = ByteOffset(FIRST, before * s.seen * math.prod(s.size))
        yield _tiles("images_evaluated", (x, seen), number, s.seen, s.size, s, s.first)
        whole = before * s.shown * math.prod(s.out)
        results = Matrices(shown, (count, s.shown, tiles), (s.shown * tiles, tiles, 1))
        if to_weight:
            source = ByteOffset(SECOND, whole), shown
            yield _tiles("cotangent_lengthened", source, number, s.shown, s.out, s)
            transposed = Matrices(seen, (count, tiles, s.seen), (s.seen * tiles, 1, tiles))
            part = ByteOffset(ROOM, weights.offset + 4 * i * count * size)
            yield PointProducts(results, transposed, Matrices(part, *small))
        else:
            points = Matrices(seen, (count, s.seen, tiles), (s.seen * tiles, tiles, 1))
            yield PointProducts(Matrices(weights, *small), points, results)
            result = shown, ByteOffset(OUT, whole)
            yield _tiles("result_shortened", result, number, s.shown, s.out, s)
    if to_weight:
        numbers = size, s.chunks * s.parts
        yield TileKernel("gradient_unweighed", _grid(size), (weights, ByteOffset(OUT)), numbers)


def _grid(size: int) -> tuple[int, int, int]:
    return max(1, min(-(-size // BLOCK), _MOST_BLOCKS)), 1, 1


def _tiles(
    name: str, places: tuple[ByteOffset, ByteOffset], number: int, channels: int,
    size: tuple[int, int], s: WinogradSizes, first: tuple[int, ...] = (),
) -> TileKernel:  # fmt: skip
    """Return a launch on all tiles of some images."""
    grid = (-(-number * s.down * s.across // BLOCK), min(channels, _MOST_CHANNELS), 1)
    numbers = number, s.parts, channels, *size, s.down, s.across, *first
    return TileKernel(name, grid, places, numbers)
