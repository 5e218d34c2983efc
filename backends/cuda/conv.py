"""Convolutions of images on a GPU, by the kernels of ``adarray_conv.h``.

Windows are gathered while tiles are multiplied, and never copied to memory. For Tensor Cores,
operands are rounded first, with their channels last.

References
----------
- S. Chetlur et al., "cuDNN: efficient primitives for deep learning", arXiv:1410.0759, 2014.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import adarray_native
import cupy
import numpy as np
from adarray_backends.cuda import conv_tiles, conv_work, cublas, modules, nvrtc, winograd
from adarray_backends.cuda.conv_tiles import SHAPES, Tile
from adarray_backends.cuda.conv_work import ConvLaunch, ConvWork, Packing, Rounding
from adarray_backends.cuda.products import MatrixStack, product

from adarray.ops.windows import Geometry

_BLOCK = (256, 1, 1)
_MOST_BLOCKS = 4096  # of kernels that stride over what they copy


@functools.cache
def source(kind: int, tile: Tile) -> str:
    """Return the text of the kernels for a kind of numbers and tiles."""
    names = ("adarray_conv", *(f"adarray_conv_{x}" for x in SHAPES[kind].headers))
    texts = (adarray_native.text(f"{n}.h") for n in names)
    sizes = {"KIND": SHAPES[kind].number}
    sizes |= {name.upper(): number for name, number in tile._asdict().items()}
    return "\n".join((*(f"#define {n} {v}" for n, v in sizes.items()), *texts))


@functools.cache
def _kernels(device: int, kind: int, tile: Tile) -> dict[str, Any]:
    shape = SHAPES[kind]
    names = ["gather", "weigh", "prepared", "folded"]
    names += ["packed"] if shape.tensor else []
    names += ["rounded", "settled"] if shape.hopper else []
    with cupy.cuda.Device(device):
        loaded = nvrtc.load(cupy, source(kind, tile), tuple(names), "a" if shape.hopper else "")
        by_name = dict(zip(names, loaded, strict=True))
        for name in names:
            modules.allow(by_name[name], conv_tiles.shared_of(name, kind, tile))
    return by_name


@functools.cache
def _is_hopper(device: int) -> bool:
    """Whether a GPU has the instructions of Hopper, and NVRTC knows them."""
    known = cupy.cuda.nvrtc.getVersion() >= (12, 0)
    return known and str(cupy.cuda.Device(device).compute_capability) == "90"


@functools.cache
def _fewer(device: int) -> dict[str, Any]:
    """Return the kernels that compute with fewer products."""
    with cupy.cuda.Device(device):
        loaded = nvrtc.load(cupy, winograd.source(), winograd.KERNELS)
        return dict(zip(winograd.KERNELS, loaded, strict=True))


@functools.lru_cache(maxsize=1024)
def _work(device: int, name: str, k: Geometry, kind: int) -> ConvWork:
    """Return the work of an operation, with its tables in the memory of a GPU."""
    with cupy.cuda.Device(device) as gpu:
        work = conv_work.work_of(name, k, kind, gpu.attributes["MultiProcessorCount"])
        sent = (
            x._replace(
                job=cupy.asarray(x.job),
                filling=None if x.filling is None else cupy.asarray(x.filling),
            )
            for x in work.launches
        )
        return work._replace(launches=tuple(sent))


class _Eager(cublas.DirectCalls):
    """Launches at once, with memory that is free again afterwards."""

    def __init__(self) -> None:
        self.memory: list[Any] = []

    def room(self, size: int) -> int:
        """Return the address of so many bytes."""
        self.memory.append(cupy.cuda.alloc(size))
        return int(self.memory[-1].ptr)


class _Behind(cublas.DirectCalls):
    """Hands everything on, and gives room behind what is in use already."""

    def __init__(self, to: Any, used: int) -> None:
        self.to = to
        self.used = used
        self.keep, self.copy, self.multiply = to.keep, to.copy, to.multiply  # type: ignore[method-assign]

    def room(self, size: int) -> int:
        """Return the address of so many bytes."""
        address: int = self.to.room(self.used + size) + self.used
        return address


def convolve(name: str, a: Any, b: Any, k: Geometry, precision: str) -> Any:
    """Return the result of ``conv2d``, ``conv2d_input`` or ``conv2d_weight``.

    Parameters
    ----------
    name : str
    a, b : cupy.ndarray
        Operands of one dtype, float32 or float64, that suit.
    k : Geometry
    precision : {"float32", "tf32", "bf16", "fp16"}
        What float32 operands are rounded to; sums are float32.
    """
    out = cupy.empty(conv_work.shape_of(name, k), a.dtype)
    a, b = cupy.ascontiguousarray(a), cupy.ascontiguousarray(b)
    setting = "float64" if a.dtype == np.float64 else precision
    launch(name, a.data.ptr, b.data.ptr, out.data.ptr, k, setting, _Eager())
    return out


def launch(name: str, a: int, b: int, out: int, k: Geometry, precision: str, to: Any) -> None:
    """Launch the kernels of an operation on arrays in C order at three addresses.

    Parameters
    ----------
    name : str
    a, b, out : int
    k : Geometry
    precision : {"float32", "tf32", "bf16", "fp16", "float64"}
    to : cublas.DirectCalls
        Takes the launches.
    """
    if conv_work.is_product(name, k):
        _multiply(name, a, b, out, k, precision, to)
        return
    device = cupy.cuda.runtime.getDevice()
    if winograd.suits(name, k, precision):
        _with_fewer(name, a, b, out, k, to)
        return
    kind = conv_tiles.kind_for(name, precision, k, _is_hopper(device))
    work = _work(device, name, k, kind)
    to.keep(work)
    kernels = _kernels(device, kind, work.tile)
    itemsize, size = SHAPES[kind].itemsize, math.prod(conv_work.shape_of(name, k))
    # Sums of parts, operands as words, and the weights of one launch after the other.
    sizes = [
        work.summed,
        *(p.size(SHAPES[kind].per) for p in work.packings),
        max(x.prepared for x in work.launches),
    ]
    rooms = [-(-n * itemsize // 256) * 256 for n in sizes]
    begin = to.room(sum(rooms)) if any(rooms) else 0
    summed, *packed, weights = (begin + sum(rooms[:i]) for i in range(len(rooms)))
    operands = [a, b]
    for i, (p, place) in enumerate(zip(work.packings, packed, strict=True)):
        _pack(kernels, p, operands[i], place, to)
        operands[i] = place
    for x in work.launches:
        _sum(name, kernels, work, x, (*operands, summed if work.summed else out, weights), to)
    if name == "conv2d_weight" and SHAPES[kind].hopper:
        args = (*_addresses(summed, out), int(work.launches[0].job.data.ptr), work.parts)
        to.copy(kernels["settled"], conv_work.settling(k), _BLOCK, args)
    elif work.parts > 1:
        _fold(kernels["folded"], summed, out, size, work.parts, to)


def _with_fewer(name: str, a: int, b: int, out: int, k: Geometry, to: Any) -> None:
    """Compute a convolution with fewer products."""
    kernels = _fewer(cupy.cuda.runtime.getDevice())
    size = sum(winograd.rooms(name, winograd.sizes_of(name, k)))
    bases = a, b, out, to.room(size)
    behind = _Behind(to, size)
    for x in winograd.steps(name, k):
        if isinstance(x, winograd.PointProducts):
            stacks = (MatrixStack(bases[i] + n, shape, strides) for (i, n), shape, strides in x)
            product(*stacks, "float32", "float32", behind)
        else:
            args = (*_addresses(*(bases[i] + n for i, n in x.places)), *x.numbers)
            to.copy(kernels[x.name], x.grid, (winograd.BLOCK, 1, 1), args)


def _multiply(name: str, a: int, b: int, out: int, k: Geometry, precision: str, to: Any) -> None:
    """Compute a convolution of single elements as products of matrices."""
    c, o, n, plane = k.channels, k.filters, k.number, math.prod(k.size)
    dtype = "float64" if precision == "float64" else "float32"
    images, results = (n, c, plane), (n, o, plane)
    if name == "conv2d":
        first, second = (
            MatrixStack(b, (o, c), (c, 1)),
            MatrixStack(a, images, (c * plane, plane, 1)),
        )
        product(
            first, second, MatrixStack(out, results, (o * plane, plane, 1)), dtype, precision, to
        )
    elif name == "conv2d_input":
        first, second = (
            MatrixStack(b, (c, o), (1, c)),
            MatrixStack(a, results, (o * plane, plane, 1)),
        )
        product(
            first, second, MatrixStack(out, images, (c * plane, plane, 1)), dtype, precision, to
        )
    else:
        size = n * o * c * (8 if dtype == "float64" else 4)
        summed = to.room(size) if n > 1 else out
        first = MatrixStack(b, results, (o * plane, plane, 1))
        second = MatrixStack(a, (n, plane, c), (c * plane, 1, plane))
        parts = MatrixStack(summed, (n, o, c), (o * c, c, 1))
        product(first, second, parts, dtype, precision, _Behind(to, -(-size // 256) * 256))
        if n > 1:
            kind = conv_tiles.KINDS[dtype]
            device = cupy.cuda.runtime.getDevice()
            tile = conv_tiles.tile_of(name, kind, 1)
            kernel = _kernels(device, kind, tile)["folded"]
            _fold(kernel, summed, out, o * c, n, to)


def _fold(kernel: Any, summed: int, out: int, size: int, parts: int, to: Any) -> None:
    """Add sums of parts in order."""
    to.copy(kernel, _grid(size), _BLOCK, (*_addresses(summed, out), size, parts))


def _grid(size: int) -> tuple[int, int, int]:
    """Return the blocks of a kernel that strides over so many elements."""
    return max(1, min(-(-size // _BLOCK[0]), _MOST_BLOCKS)), 1, 1


def _addresses(*addresses: int) -> tuple[int, ...]:
    return tuple(map(cublas.Address, addresses))


def _pack(kernels: dict[str, Any], p: Packing | Rounding, x: int, place: int, to: Any) -> None:
    """Round an operand, and turn its planes of channels into words or rows."""
    if isinstance(p, Rounding):
        to.copy(kernels["rounded"], _grid(32 * p.number * p.channels), _BLOCK,
                (*_addresses(x, place), *p))  # fmt: skip
    else:
        to.copy(kernels["packed"], conv_work.packing(p), _BLOCK, (*_addresses(x, place), *p))


def _sum(
    name: str, kernels: dict[str, Any], work: ConvWork, x: ConvLaunch, at: tuple[int, ...], to: Any
) -> None:
    """Prepare weights, and sum."""
    a, b, out, weights = at
    kernel = "weigh" if name == "conv2d_weight" else "gather"
    if kernel == "gather":
        args = (*_addresses(b, weights), int(x.filling.data.ptr))
        to.copy(kernels["prepared"], _grid(x.prepared), _BLOCK, args)
        b = weights
    args = (*_addresses(a, b, out), int(x.job.data.ptr))
    shared = conv_tiles.shared_of(kernel, work.kind, work.tile)
    to.copy(kernels[kernel], x.grid, _BLOCK, args, shared)
