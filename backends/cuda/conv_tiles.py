"""The kernels of ``adarray_conv.h`` that compute a convolution, and the sizes of their tiles."""

from __future__ import annotations

import math
from typing import NamedTuple

from adarray.ops.windows import Geometry

KINDS = {"float32": 1, "tf32": 2, "bf16": 3, "fp16": 4, "float64": 5}
FEW = {1: 9, 5: 10}  # the same numbers, summed without tiles for few channels of a result
HOPPER = {2: 6, 3: 7, 4: 8}  # the same numbers, multiplied by the instructions of Hopper
SHORT = (1 << 31) - 4096  # elements that 32 bits count
_FEW = 3  # channels that are worth four words of Tensor Cores
_FEWEST = 4  # channels of a result that are not worth tiles


class Shape(NamedTuple):
    """What the tiles of a kind of numbers have in common."""

    number: int  # what kernels know the numbers by
    headers: tuple[str, ...]  # that follow adarray_conv.h
    itemsize: int  # of results
    places: int  # in a tile, usually
    deep: int  # of a tile of `gather`: elements of windows, or words of them
    long: int  # of a tile of `weigh`: places
    per: int  # channels in a word

    @property
    def tensor(self) -> bool:
        """Whether Tensor Cores multiply."""
        return len(self.headers) > 1

    @property
    def hopper(self) -> bool:
        """Whether those of Hopper do."""
        return "hopper" in self.headers

    @property
    def few(self) -> bool:
        """Whether the kernels are those for results of few channels, which need no tiles."""
        return "few" in self.headers


_EXACT, _TENSOR, _HOPPER = ("exact",), ("words", "tensor"), ("words", "hopper")
_SPARE = ("few",)
SHAPES = {
    1: Shape(1, _EXACT, 4, 128, 16, 32, 1),
    2: Shape(2, _TENSOR, 4, 128, 32, 32, 1),
    3: Shape(3, _TENSOR, 4, 128, 32, 32, 2),
    4: Shape(4, _TENSOR, 4, 128, 32, 32, 2),
    5: Shape(5, _EXACT, 8, 64, 16, 16, 1),
    6: Shape(2, _HOPPER, 4, 128, 32, 32, 1),
    7: Shape(3, _HOPPER, 4, 128, 32, 64, 2),
    8: Shape(4, _HOPPER, 4, 128, 32, 64, 2),
    9: Shape(1, _SPARE, 4, 1024, 1, 256, 1),
    10: Shape(5, _SPARE, 8, 1024, 1, 256, 1),
}


class Tile(NamedTuple):
    """What a block computes at a time."""

    channels: int  # of the result
    places: int  # places of the result, or elements of windows
    depth: int = 3  # tiles in shared memory
    blocks: int = 2  # on a multiprocessor


def kind_for(name: str, precision: str, k: Geometry, hopper: bool = False) -> int:
    """Return which kernels compute: of few channels the exact ones, which waste nothing."""
    kind, (c, o) = KINDS[precision], k.per_group()
    if (c if name == "conv2d_input" else o) <= _FEWEST:
        return FEW[KINDS["float64" if precision == "float64" else "float32"]]
    if not SHAPES[kind].tensor:
        return kind
    if min(c, o) < _FEW:
        return KINDS["float32"]
    small = k.filters * (c + 8) * math.prod(k.window) < SHORT and k.filters <= 1 << 20
    return HOPPER[kind] if hopper and small else kind


def tile_of(name: str, kind: int, channels: int) -> Tile:
    """Return the tiles for channels of a group: large ones, unless they would be filled up more."""
    shape = SHAPES[kind]
    if shape.few:
        return Tile(channels, shape.places, 0, 3)
    if shape.hopper:
        return _hopper_tile(name, channels)
    if kind == KINDS["float64"] or -(-channels // 64) * 64 < -(-channels // 128) * 128:
        return Tile(64, shape.places)
    return Tile(128, shape.places)


def _hopper_tile(name: str, channels: int) -> Tile:
    """Return the tiles that were fastest of those that fill up the least."""
    if channels <= 64:
        return Tile(next(m for m in (16, 32, 64) if channels <= m), 128, 4, 2)
    if -(-channels // 256) * 256 <= -(-channels // 128) * 128:
        return Tile(256, 128, 4, 1)
    return Tile(128, 128, 3, 2) if name == "conv2d_weight" else Tile(128, 256, 4, 1)


def shared_of(name: str, kind: int, tile: Tile) -> int:
    """Return the bytes of shared memory of a block."""
    x, results, places = SHAPES[kind], tile.channels, tile.places
    if x.few:
        return 0
    gap = 16 if x.per == 1 else 8 * (not x.hopper)
    if name == "gather":
        size = x.deep * (results + places + 16)
        if x.tensor:
            size = (results + places) * (x.deep if x.hopper else x.deep + 4)
    elif name == "weigh":
        size = (results + places) * (x.long + 16 // x.itemsize)
        if x.hopper:
            size = results * x.deep + x.long * (places // x.per + gap // 2)
            return tile.depth * size * x.itemsize + 2 * x.long * 16  # and windows of two steps
        if x.tensor:
            size = x.long * ((results + places) // x.per + gap)
    else:
        return 0
    return tile.depth * size * x.itemsize
