"""Kernels whose threads exchange values within a warp."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from cuda_kernels.case import Family, Rng

CASES = Family()

CASES.add(
    "warp_sum",
    r"""
#define FULL_MASK 0xffffffff
__inline__ __device__ REAL warpReduceSum(REAL val) {
    for (int offset = warpSize / 2; offset > 0; offset /= 2)
        val += __shfl_down_sync(FULL_MASK, val, offset);
    return val;
}
__inline__ __device__ REAL blockReduceSum(REAL val) {
    static __shared__ REAL shared[32];
    int lane = threadIdx.x % warpSize;
    int wid = threadIdx.x / warpSize;
    val = warpReduceSum(val);
    if (lane == 0) shared[wid] = val;
    __syncthreads();
    val = (threadIdx.x < blockDim.x / warpSize) ? shared[lane] : (REAL)0;
    if (wid == 0) val = warpReduceSum(val);
    return val;
}
__global__ void warp_sum(const REAL *in, const REAL *w, REAL *out, int N) {
    REAL sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += blockDim.x * gridDim.x)
        sum += in[i] * w[i] * in[i];
    sum = blockReduceSum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
""",
    2, 64,
    lambda r, t: [r.normal(size=200).astype(t), r.normal(size=200).astype(t), np.zeros(2, t), 200],
    (0, 1),
    lambda x, w, out, n: np.array([
        sum((x * w * x)[i] for i in range(n) if i % 128 // 64 == b) for b in range(2)
    ]),
)  # fmt: skip


def _softmax(x: Any, y: Any, rows: int, cols: int) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


CASES.add(
    "warp_softmax",
    r"""
// a warp for each row; butterflies leave the maximum and the sum in every lane
__global__ void warp_softmax(const REAL *x, REAL *y, int rows, int cols) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31;
    if (row >= rows) return;
    const REAL *in = x + row * cols;
    REAL top = -INFINITY, sum = 0;
    for (int c = lane; c < cols; c += 32) top = fmaxf(top, in[c]);
    #pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) top = max(top, __shfl_xor_sync(~0u, top, mask));
    for (int c = lane; c < cols; c += 32) sum += exp(in[c] - top);
    #pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) sum += __shfl_xor_sync(~0u, sum, mask, 32);
    for (int c = lane; c < cols; c += 32) y[row * cols + c] = exp(in[c] - top) / sum;
}
""".replace("fmaxf", "max"),
    2, 64,
    lambda r, t: [r.normal(size=(3, 45)).astype(t), np.zeros((3, 45), t), 3, 45],
    (0,),
    _softmax,
)  # fmt: skip

CASES.add(
    "warp_scan",
    r"""
// products of all elements before, by shifts upwards
__global__ void warp_scan(const REAL *x, REAL *y) {
    const unsigned lane = threadIdx.x & 0x1f;
    REAL v = x[threadIdx.x];
    for (int i = 1; i <= 16; i *= 2) {
        REAL n = __shfl_up_sync(0xffffffffu, v, i);
        if (lane >= i) v *= n;
    }
    y[threadIdx.x] = v;
}
""",
    1, 64,
    lambda r, t: [r.uniform(0.8, 1.2, 64).astype(t), np.zeros(64, t)],
    (0,),
    lambda x, y: np.cumprod(x.reshape(2, 32), 1).ravel(),
)  # fmt: skip

CASES.add(
    "warp_matvec",
    r"""
// a vector in the registers of a warp; each lane broadcasts its element
__global__ void warp_matvec(const REAL *a, const REAL *x, REAL *y) {
    int lane = threadIdx.x;
    REAL mine = sin(x[lane]), sum = 0;
    for (int k = 0; k < 32; k++)
        sum += a[lane * 32 + k] * __shfl_sync(0xffffffff, mine, k);
    REAL first = __shfl_sync(0xffffffff, sum * sum, 5);
    y[lane] = sum + first;
}
""",
    1, 32,
    lambda r, t: [r.normal(size=(32, 32)).astype(t), r.normal(size=32).astype(t), np.zeros(32, t)],
    (0, 1),
    lambda a, x, y: a @ np.sin(x) + (a @ np.sin(x))[5] ** 2,
)  # fmt: skip


def _lanes_args(r: Rng, t: Any) -> list[Any]:
    at = np.concatenate([r.permutation(32), r.integers(0, 64, 16)]).astype(np.int32)
    return [r.normal(size=48).astype(t), at, np.zeros(48, t), 3]


def _lanes(x: Any, at: Any, y: Any, by: int) -> Any:
    out = np.zeros_like(x)
    for t in range(48):
        warp, part = t // 32 * 32, t // 8 * 8
        source = warp + int(at[t]) % 32
        gathered = x[source] if source < 48 else 0.0
        down = x[t + by] if t % 8 + by < 8 else x[t]
        shift = t % 3
        up = x[t - shift] if t % 16 >= shift else x[t]
        pair = x[part + (t % 8 ^ (t // 8 + 1) % 8)]
        out[t] = gathered * down + up * x[t] + np.cos(pair)
    return out


CASES.add(
    "warp_lanes",
    r"""
// lanes that are chosen by each thread, parts of a warp, a warp that is not full
__global__ void warp_lanes(const REAL *x, const int *at, REAL *y, int by) {
    int t = threadIdx.x;
    unsigned mask = __ballot_sync(0xffffffff, t < 48);
    REAL v = x[t];
    REAL gathered = __shfl_sync(mask, v, at[t]);
    REAL down = __shfl_down_sync(mask, v, by, 8);
    REAL up = __shfl_up_sync(mask, v, t % 3, 16);
    REAL pair = __shfl_xor_sync(mask, v, (t / 8 + 1) % 8, 8);
    if ((at[t] & 31) + (t & ~31) >= 48) gathered = 0;
    y[t] = gathered * down + up * v + cos(pair);
}
""",
    1, 48,
    _lanes_args, (0,), _lanes,
)  # fmt: skip


def _rows_args(r: Rng, t: Any) -> list[Any]:
    ends = np.array([0, 3, 3, 40, 41, 130], np.int32)
    return [ends, r.normal(size=130).astype(t), np.zeros(5, t), 5]


def _rows(ends: Any, x: Any, y: Any, rows: int) -> Any:
    return np.array([np.tanh(np.sum(x[a:b] ** 2)) for a, b in pairwise(ends)])


CASES.add(
    "warp_rows",
    r"""
// warps take rows of different lengths, more of them than there are warps
__global__ void warp_rows(const int *ends, const REAL *x, REAL *y, int rows) {
    int lane = threadIdx.x % 32, warps = gridDim.x * blockDim.x / 32;
    for (int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32; row < rows; row += warps) {
        REAL sum = 0;
        int k = ends[row];
        while (k < ends[row + 1]) {
            REAL v = k + lane < ends[row + 1] ? x[k + lane] : (REAL)0;
            v = v * v;
            for (int o = 16; o; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
            sum += v;
            k += 32;
        }
        if (lane == 0) y[row] = tanh(sum);
    }
}
""",
    1, 96,
    _rows_args, (1,), _rows,
)  # fmt: skip


def _votes(x: Any, n: Any, y: Any) -> Any:
    out = np.zeros_like(x)
    for t in range(64):
        warp = slice(t // 32 * 32, t // 32 * 32 + 32)
        count, low, high = int(np.sum(n[warp])), int(np.min(n[warp])), int(np.max(n[warp]))
        positive = n[warp] > 0
        bits = sum(1 << i for i in range(32) if positive[i])
        scale = count + 0.5 * low + 0.25 * high + bits % 7 + positive.any() + 2 * positive.all()
        others = np.bitwise_or.reduce(n[warp]) + np.bitwise_and.reduce(n[warp])
        scale += 0.125 * others + 0.0625 * np.bitwise_xor.reduce(n[warp])
        neighbour = x[t ^ 1] ** 2
        out[t] = scale * x[t] + neighbour
    return out


CASES.add(
    "warp_votes",
    r"""
// integers that a warp votes and counts with; shared memory between the lanes of a warp
__global__ void warp_votes(const REAL *x, const int *n, REAL *y) {
    __shared__ REAL s[64];
    int t = threadIdx.x, all = __activemask();
    int count = __reduce_add_sync(~0u, n[t]), low = __reduce_min_sync(~0u, n[t]);
    int high = __reduce_max_sync(all, n[t]);
    unsigned bits = __ballot_sync(__activemask(), n[t] > 0);
    REAL scale = count + (REAL)0.5 * low + (REAL)0.25 * high + bits % 7;
    scale += (__any_sync(~0u, n[t] > 0) ? 1 : 0) + (__all_sync(~0u, n[t] > 0) ? 2 : 0);
    scale += (REAL)0.125 * (__reduce_or_sync(~0u, n[t]) + __reduce_and_sync(~0u, n[t]));
    scale += (REAL)0.0625 * __reduce_xor_sync(~0u, n[t]);
    if (t < 32) {
        s[t] = x[t] * x[t];
        __syncwarp();
        y[t] = s[t ^ 1];
    } else {
        s[t] = x[t];
        __syncwarp();
        y[t] = s[t ^ 1] * s[t ^ 1];
    }
    y[t] += scale * x[t];
}
""",
    1, 64,
    lambda r, t: [r.normal(size=64).astype(t), np.abs(r.integers(-3, 9, 64)).astype(np.int32),
                  np.zeros(64, t)],
    (0,),
    _votes,
)  # fmt: skip


CASES.add(
    "warp_tiles",
    r"""
// rows of a block of two axes are halves of warps
__global__ void warp_tiles(const REAL *x, REAL *y, int cols) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    REAL v = threadIdx.x < cols ? x[row * cols + threadIdx.x] : (REAL)0, m = v * v;
    for (int k = 0; k < 4; k++) m += __shfl_xor_sync(0xffffffff, m, 1 << k, 16);
    REAL mean = __shfl_sync(0xffffffff, m / cols, 0, 16);
    if (threadIdx.x < cols) y[row * cols + threadIdx.x] = v / sqrt(mean + (REAL)0.1);
}
""",
    2, (16, 4),
    lambda r, t: [r.normal(size=(8, 11)).astype(t), np.zeros((8, 11), t), 11],
    (0,),
    lambda x, y, cols: x / np.sqrt(np.mean(x * x, 1, keepdims=True) + 0.1),
)  # fmt: skip
