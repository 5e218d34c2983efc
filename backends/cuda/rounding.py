"""Copies of matrices that cuBLAS can read, or reads faster: dense, transposed, of 16 bits."""

from __future__ import annotations

import functools
from typing import Any

import cupy
import numpy as np
from adarray_backends.cuda import cublas, nvrtc

_THREADS = 256
_ROWS = 4  # of a block, for loads that do not wait for each other
# What an element becomes, by the names of both kinds.
_CONVERSIONS = {
    ("float32", "float32"): "x",
    ("float64", "float64"): "x",
    ("float16", "float16"): "x",
    ("float32", "bfloat16"): "bf16(x)",
    ("float32", "float16"): "fp16(x)",
}
_WORDS = {
    "float32": "float", "float64": "double", "float16": "unsigned short",
    "bfloat16": "unsigned short",
}  # fmt: skip
_TEXT = """
typedef long long i64;
__device__ inline unsigned short bf16(float x) {
    unsigned short r;
    asm("cvt.rn.bf16.f32 %%0, %%1;" : "=h"(r) : "f"(x));
    return r;
}
__device__ inline unsigned short fp16(float x) {
    unsigned short r;
    asm("cvt.rn.f16.f32 %%0, %%1;" : "=h"(r) : "f"(x));
    return r;
}
struct __align__(sizeof(%(to)s) * PACK) Out { %(to)s v[PACK]; };
struct __align__(sizeof(%(from)s) * PACK) In { %(from)s v[PACK]; };
__device__ inline Out converted(const %(from)s *from) {
    const In in = *(const In *)from;
    Out out;
    for (int k = 0; k < PACK; k++) {
        %(from)s x = in.v[k];
        out.v[k] = %(expression)s;
    }
    return out;
}
// Matrix z of rows of `inner` packs begins at z / n1 * s0 + z %% n1 * s1.
extern "C" __global__ void __launch_bounds__(%(threads)d)
copied(const %(from)s *__restrict__ from, %(to)s *__restrict__ to, i64 inner, i64 rows, i64 n0,
       i64 n1, i64 s0, i64 s1, i64 s2, i64 s3, i64 pitch) {
    const i64 i = (i64)blockIdx.x * %(threads)d + threadIdx.x;
    if (i >= inner) return;
    for (i64 z = blockIdx.z; z < n0 * n1; z += gridDim.z) {
        const %(from)s *const matrix = from + z / n1 * s0 + z %% n1 * s1 + i * PACK * s3;
        %(to)s *const result = to + z * rows * pitch + i * PACK;
        for (i64 first = (i64)blockIdx.y * %(rows)d; first < rows;
             first += (i64)gridDim.y * %(rows)d) {
            Out out[%(rows)d];
            #pragma unroll
            for (int k = 0; k < %(rows)d; k++)
                if (first + k < rows) out[k] = converted(matrix + (first + k) * s2);
            #pragma unroll
            for (int k = 0; k < %(rows)d; k++)
                if (first + k < rows) *(Out *)(result + (first + k) * pitch) = out[k];
        }
    }
}
"""

# Square tiles go through shared memory, so that loads and stores are both of 16 bytes.
_TRANSPOSED = """
typedef long long i64;
struct __align__(16) Four { float v[4]; };
__device__ inline void load(float *v, const float *from, i64 count) {
#if PACK == 4
    if (count > 0) *(Four *)v = *(const Four *)from;
#else
    for (int k = 0; k < 4; k++) if (k < count) v[k] = from[k];
#endif
}
__device__ inline void store(float *to, const float *v, i64 count) {
#if PACK == 4
    if (count > 0) *(Four *)to = *(const Four *)v;
#else
    for (int k = 0; k < 4; k++) if (k < count) to[k] = v[k];
#endif
}
// to[j * pitch + i] = from[i * step + j]
extern "C" __global__ void __launch_bounds__(256)
transposed(const float *__restrict__ from, float *__restrict__ to, i64 rows, i64 columns, i64 step,
       i64 pitch) {
    __shared__ float tile[64][65];
    const int x = threadIdx.x % 16 * 4, y = threadIdx.x / 16;
    const i64 first = (i64)blockIdx.x * 64, j = first + x, stride = (i64)gridDim.y * 64;
    i64 row = (i64)blockIdx.y * 64;
    __align__(16) float v[4][4];
    #pragma unroll
    for (int r = 0; r < 4; r++) {
        const i64 i = row + y + 16 * r;
        load(v[r], from + i * step + j, i < rows ? columns - j : 0);
    }
    for (; row < rows; row += stride) {
        #pragma unroll
        for (int r = 0; r < 4; r++)
            #pragma unroll
            for (int k = 0; k < 4; k++) tile[y + 16 * r][x + k] = v[r][k];
        __syncthreads();
        #pragma unroll
        for (int r = 0; r < 4; r++) {  // of the next tile, while this one is written
            const i64 i = row + stride + y + 16 * r;
            load(v[r], from + i * step + j, i < rows ? columns - j : 0);
        }
        #pragma unroll
        for (int r = 0; r < 4; r++) {
            const i64 i = row + x, to_row = first + y + 16 * r;
            __align__(16) float w[4];
            #pragma unroll
            for (int k = 0; k < 4; k++) w[k] = tile[x + k][y + 16 * r];
            store(to + to_row * pitch + i, w, to_row < columns ? rows - i : 0);
        }
        __syncthreads();
    }
}
"""


# A vector is added to each row; below zero becomes zero if it is asked for, NaN stays.
_ROWS_ADDED = """
typedef long long i64;
extern "C" __global__ void __launch_bounds__(256)
added(float *__restrict__ to, const float *__restrict__ row, i64 size, i64 columns, i64 relu) {
    const i64 step = (i64)gridDim.x * 256;
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < size; i += step) {
        const float x = to[i] + row[i % columns];
        to[i] = relu && x < 0 ? 0 : x;
    }
}
"""


@functools.cache
def _adding(device: int) -> Any:  # noqa: ARG001
    return nvrtc.load(cupy, _ROWS_ADDED, ("added",))[0]


def add_row(
    to: int, row: int, rows: int, columns: int, relu: bool, through: Any = cublas.DIRECT
) -> None:
    """Add a float32 vector to each row of a matrix without gaps, where it lies.

    Parameters
    ----------
    to, row : int
        Addresses.
    rows, columns : int
    relu : bool
        Whether numbers below zero become zero after that.
    through : cublas.DirectCalls
        Takes the launch.
    """
    kernel = _adding(cupy.cuda.runtime.getDevice())
    blocks = max(1, min(-(-rows * columns // 1024), 4096))
    args = (cublas.Address(to), cublas.Address(row), rows * columns, columns, int(relu))
    through.copy(kernel, (blocks, 1, 1), (256, 1, 1), args)


@functools.cache
def _transposing(device: int, pack: int) -> Any:  # noqa: ARG001
    return nvrtc.load(cupy, f"#define PACK {pack}\n{_TRANSPOSED}", ("transposed",))[0]


@functools.cache
def _kernel(device: int, stored: str, wanted: str, pack: int) -> Any:  # noqa: ARG001
    text = _TEXT % {
        "from": _WORDS[stored],
        "to": _WORDS[wanted],
        "expression": _CONVERSIONS[stored, wanted],
        "threads": _THREADS,
        "rows": _ROWS,
    }
    return nvrtc.load(cupy, f"#define PACK {pack}\n{text}", ("copied",))[0]


def size_of(kind: str) -> int:
    """Return the bytes of an element."""
    return 2 if kind == "bfloat16" else np.dtype(kind).itemsize


def pitch_of(columns: int) -> int:
    """Return the distance between rows: Tensor Cores want multiples of 16 bytes."""
    return -(-columns // 8) * 8


def copy(
    address: int,
    to: int,
    shape: tuple[int, int, int, int],
    strides: tuple[int, int, int, int],
    stored: str,
    wanted: str,
    through: Any = cublas.DIRECT,
) -> None:
    """Write an array of four axes in C order, rows of `pitch_of` elements, on this stream.

    Parameters
    ----------
    address, to : int
    shape, strides : tuple of int
        Strides in elements.
    stored, wanted : str
        Kinds of the elements: float32 becomes bfloat16 or float16, or each what it is.
    through : cublas.DirectCalls
        Takes the launch.
    """
    kernel, grid, numbers = _launch(
        cupy.cuda.runtime.getDevice(), address % 64, shape, strides, stored, wanted
    )
    args = (cublas.Address(address), cublas.Address(to), *numbers)
    through.copy(kernel, grid, (_THREADS, 1, 1), args)


def transpose(
    address: int, to: int, rows: int, columns: int, step: int, through: Any = cublas.DIRECT
) -> None:
    """Write a float32 matrix with rows and columns exchanged, rows of `pitch_of` elements.

    Parameters
    ----------
    address, to : int
    rows, columns, step : int
        Of what is read; `step` elements lie between its rows.
    through : cublas.DirectCalls
        Takes the launch.
    """
    pitch = pitch_of(rows)
    packed = not (rows % 4 or columns % 4 or step % 4 or address % 16)
    kernel = _transposing(cupy.cuda.runtime.getDevice(), 4 if packed else 1)
    grid = -(-columns // 64), max(min(-(-rows // 64), 65535), 1), 1
    args = (cublas.Address(address), cublas.Address(to), rows, columns, step, pitch)
    through.copy(kernel, grid, (256, 1, 1), args)


@functools.lru_cache(maxsize=4096)
def _launch(
    device: int, skew: int, shape: tuple[int, int, int, int], strides: tuple[int, int, int, int],
    stored: str, wanted: str,
) -> Any:  # fmt: skip
    """Return the kernel, the blocks and the numbers for an address that lies `skew` bytes off."""
    n0, n1, n2, n3 = shape
    outer = [s for s, n in zip(strides[:3], shape[:3], strict=True) if n > 1]
    # Eight numbers become 16 bytes; two of 8 bytes are as many.
    widest = 8 if size_of(wanted) < size_of(stored) else 16 // size_of(stored)
    packed = (
        strides[3] == 1
        and n3 % widest == 0
        and all(s % widest == 0 for s in outer)
        and skew % (widest * size_of(stored)) == 0
    )
    pack = widest if packed else 1
    inner = n3 // pack
    numbers = (inner, n2, n0, n1, *strides, pitch_of(n3))
    grid = (
        -(-inner // _THREADS),
        max(min(-(-n2 // _ROWS), 65535), 1),
        max(min(n0 * n1, 65535), 1),
    )
    return _kernel(device, stored, wanted, pack), grid, numbers
