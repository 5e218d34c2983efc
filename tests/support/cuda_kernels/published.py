"""Kernels of the kinds that people publish: stencils, scans, images, sparse matrices."""

from __future__ import annotations

import numpy as np

from cuda_kernels.case import Family

CASES = Family()

CASES.add(
    "scan",
    r"""
// inclusive sums within a block: Hillis and Steele, with two buffers
__global__ void scan(const REAL *in, REAL *out, int n) {
    __shared__ REAL temp[2 * 16];
    int thid = threadIdx.x, g = blockIdx.x * blockDim.x + threadIdx.x;
    int pout = 0, pin = 1;
    temp[pout * 16 + thid] = g < n ? in[g] : (REAL)0;
    __syncthreads();
    for (int offset = 1; offset < 16; offset *= 2) {
        pout = 1 - pout;
        pin = 1 - pout;
        if (thid >= offset)
            temp[pout * 16 + thid] = temp[pin * 16 + thid] + temp[pin * 16 + thid - offset];
        else
            temp[pout * 16 + thid] = temp[pin * 16 + thid];
        __syncthreads();
    }
    if (g < n) out[g] = temp[pout * 16 + thid];
}
""",
    2, 16,
    lambda r, t: [r.normal(size=30).astype(t), np.zeros(30, t), 30],
    (0,),
    lambda x, out, n: np.concatenate([np.cumsum(x[:16]), np.cumsum(x[16:])]),
)  # fmt: skip

CASES.add(
    "convolution_halo",
    r"""
#define RADIUS 2
#define BLOCK 8
__constant__ int unused = 3;
__global__ void convolution_halo(const REAL *in, const REAL *kernel, REAL *out, int n) {
    __shared__ REAL tile[BLOCK + 2 * RADIUS];
    int g = blockIdx.x * BLOCK + threadIdx.x, l = threadIdx.x + RADIUS;
    tile[l] = g < n ? in[g] : 0;
    if (threadIdx.x < RADIUS) {
        tile[l - RADIUS] = g >= RADIUS ? in[g - RADIUS] : 0;
        tile[l + BLOCK] = g + BLOCK < n ? in[g + BLOCK] : 0;
    }
    __syncthreads();
    if (g >= n) return;
    REAL result = 0;
    for (int o = -RADIUS; o <= RADIUS; o++) result += tile[l + o] * kernel[o + RADIUS];
    out[g] = tanh(result);
}
""",
    3, 8,
    lambda r, t: [r.normal(size=20).astype(t), r.normal(size=5).astype(t), np.zeros(20, t), 20],
    (0, 1),
    lambda x, k, out, n: np.tanh(np.convolve(x, k[::-1], "same")),
)  # fmt: skip

CASES.add(
    "ray_march",
    r"""
struct Ray { REAL3 o; REAL3 d; };

__device__ REAL3 operator+(REAL3 a, REAL3 b) { return make_REAL3(a.x + b.x, a.y + b.y, a.z + b.z); }
__device__ REAL3 operator*(REAL3 a, REAL b) { return make_REAL3(a.x * b, a.y * b, a.z * b); }
__device__ REAL dot(REAL3 a, REAL3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
__device__ REAL scene(const REAL3& p, REAL radius) {
    return sqrt(dot(p, p)) - radius + (REAL)0.05 * sin(8 * p.x);
}

__global__ void ray_march(const REAL3* origins, const REAL3* directions, REAL radius, REAL* depth,
                          int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n) return;
    Ray ray;
    ray.o = origins[i];
    ray.d = directions[i];
    REAL t = 0;
    for (int step = 0; step < 12; ++step) {
        REAL3 p = ray.o + ray.d * t;
        REAL d = scene(p, radius);
        if (d < (REAL)0.01) break;
        if (t > 20) { t = 20; break; }
        t += (REAL)0.8 * d;
    }
    depth[i] = t;
}
""",
    2, 4,
    lambda r, t: [np.stack([*r.uniform(-0.3, 0.3, (2, 6)), np.full(6, -3.0)], 1).astype(t),
                  np.stack([*r.uniform(-0.1, 0.1, (2, 6)), np.ones(6)], 1).astype(t), t(1.0),
                  np.zeros(6, t), 6],
    (0, 1, 2),
)  # fmt: skip

CASES.add(
    "nbody",
    r"""
__device__ REAL3 bodyBodyInteraction(REAL4 bi, REAL4 bj, REAL3 ai) {
    REAL3 r;
    r.x = bj.x - bi.x;
    r.y = bj.y - bi.y;
    r.z = bj.z - bi.z;
    REAL distSqr = r.x * r.x + r.y * r.y + r.z * r.z + (REAL)0.1;
    REAL invDist = rsqrt(distSqr);
    REAL s = bj.w * invDist * invDist * invDist;
    ai.x += r.x * s;
    ai.y += r.y * s;
    ai.z += r.z * s;
    return ai;
}
__device__ REAL3 tile_calculation(REAL4 myPosition, REAL3 accel, REAL4* shPosition) {
    for (int i = 0; i < blockDim.x; i++)
        accel = bodyBodyInteraction(myPosition, shPosition[i], accel);
    return accel;
}
__global__ void nbody(const REAL4* globalX, REAL4* globalA, int N) {
    extern __shared__ REAL4 shPosition[];
    int gtid = blockIdx.x * blockDim.x + threadIdx.x;
    REAL3 acc = {0.0f, 0.0f, 0.0f};
    REAL4 myPosition = globalX[gtid];
    for (int i = 0, tile = 0; i < N; i += blockDim.x, tile++) {
        int idx = tile * blockDim.x + threadIdx.x;
        shPosition[threadIdx.x] = globalX[idx];
        __syncthreads();
        acc = tile_calculation(myPosition, acc, shPosition);
        __syncthreads();
    }
    REAL4 acc4 = {acc.x, acc.y, acc.z, 0.0f};
    globalA[gtid] = acc4;
}
""",
    3, 4,
    lambda r, t: [r.normal(size=(12, 4)).astype(t), np.zeros((12, 4), t), 12],
    (0,),
    None,
    lambda size: 16 * size,
)  # fmt: skip

CASES.add(
    "softmax_rows",
    r"""
template <typename T, int BLOCK>
__global__ void softmax_rows(const T* __restrict__ x, T* __restrict__ y, int cols) {
    __shared__ T buffer[BLOCK];
    const T* row = x + blockIdx.x * cols;
    T m = -INFINITY;
    for (int i = threadIdx.x; i < cols; i += BLOCK) m = max(m, row[i]);
    buffer[threadIdx.x] = m;
    __syncthreads();
    for (int s = BLOCK / 2; s > 0; s /= 2) {
        if (threadIdx.x < s)
            buffer[threadIdx.x] = max(buffer[threadIdx.x], buffer[threadIdx.x + s]);
        __syncthreads();
    }
    m = buffer[0];
    __syncthreads();
    T sum = 0;
    for (int i = threadIdx.x; i < cols; i += BLOCK) sum += exp(row[i] - m);
    buffer[threadIdx.x] = sum;
    __syncthreads();
    for (int s = BLOCK / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) buffer[threadIdx.x] += buffer[threadIdx.x + s];
        __syncthreads();
    }
    sum = buffer[0];
    for (int i = threadIdx.x; i < cols; i += BLOCK) y[blockIdx.x * cols + i] = exp(row[i] - m) / sum;
}
""",
    3, 8,
    lambda r, t: [r.normal(size=(3, 13)).astype(t), np.zeros((3, 13), t), 13],
    (0,),
    lambda x, y, n: np.exp(x) / np.exp(x).sum(1, keepdims=True),
    instance="softmax_rows<REAL, 8>",
)  # fmt: skip

CASES.add(
    "bilateral",
    r"""
__global__ void bilateral(const REAL *src, REAL *dst, int w, int h, int radius, REAL es, REAL er) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    REAL center = src[y * w + x], sum = 0, total = 0;
    for (int j = -radius; j <= radius; j++) {
        for (int i = -radius; i <= radius; i++) {
            int cx = min(max(x + i, 0), w - 1), cy = min(max(y + j, 0), h - 1);
            REAL v = src[cy * w + cx], d = v - center;
            REAL weight = exp(-(i * i + j * j) * es - d * d * er);
            sum += weight * v;
            total += weight;
        }
    }
    dst[y * w + x] = sum / total;
}
""",
    (2, 2), (4, 4),
    lambda r, t: [r.normal(size=(5, 6)).astype(t), np.zeros((5, 6), t), 6, 5, 1, t(0.3), t(0.7)],
    (0, 5, 6),
)  # fmt: skip

CASES.add(
    "spmv_csr",
    r"""
__global__ void spmv_csr(const int rows, const int * __restrict__ ptr,
                         const int * __restrict__ indices, const REAL * __restrict__ data,
                         const REAL * __restrict__ x, REAL * __restrict__ y) {
    const int row = blockDim.x * blockIdx.x + threadIdx.x;
    if (row < rows) {
        REAL dot = 0;
        int row_start = ptr[row];
        int row_end = ptr[row + 1];
        for (int jj = row_start; jj < row_end; jj++) dot += data[jj] * x[indices[jj]];
        y[row] += dot;
    }
}
""",
    2, 4,
    lambda r, t: [5, np.array([0, 2, 3, 3, 6, 8], np.int32),
                  np.array([0, 3, 1, 0, 2, 4, 1, 4], np.int32), r.normal(size=8).astype(t),
                  r.normal(size=5).astype(t), r.normal(size=5).astype(t)],
    (3, 4, 5),
)  # fmt: skip

CASES.add(
    "floyd_warshall",
    r"""
__global__ void floyd_warshall(REAL *dist, int k, int n) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y;
    if (j >= n || i == k || j == k) return;
    REAL through = dist[i * n + k] + dist[k * n + j];
    if (through < dist[i * n + j]) dist[i * n + j] = through;
}
""",
    (2, 6), 4,
    lambda r, t: [r.uniform(1, 10, (6, 6)).astype(t), 2, 6],
    (0,),
)  # fmt: skip

CASES.add(
    "ising",
    r"""
__global__ void ising(const REAL *spins, const REAL *coupling, REAL *energy, REAL field, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n * n) return;
    int row = i / n, col = i % n;
    int right = row * n + (col + 1) % n, below = (row + 1) % n * n + col;
    REAL s = spins[i];
    REAL e = -coupling[2 * i] * s * spins[right] - coupling[2 * i + 1] * s * spins[below] - field * s;
    atomicAdd(energy, e);
}
""",
    2, 16,
    lambda r, t: [np.sign(r.normal(size=25)).astype(t), r.normal(size=50).astype(t), np.zeros(1, t),
                  t(0.3), 5],
    (0, 1, 3),
)  # fmt: skip

CASES.add(
    "affine_rows",
    r"""
// elements that a block shares, and that a warp shares in a loop
__global__ void affine_rows(const REAL *x, const REAL *scale, const REAL *w, REAL *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        REAL sum = 0;
        for (int k = 0; k < 3; k++) sum += w[k] * scale[blockIdx.x / 2] * x[i * 3 + k];
        y[i] = sum * sum + scale[0];
    }
}
""",
    4, 48,
    lambda r, t: [r.normal(size=(150, 3)).astype(t), r.normal(size=2).astype(t),
                  r.normal(size=3).astype(t), np.zeros(150, t), 150],
    (0, 1, 2),
    lambda x, scale, w, y, n: (np.repeat(scale, [96, 54]) * (x @ w)) ** 2 + scale[0],
)  # fmt: skip
