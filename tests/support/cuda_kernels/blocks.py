"""Kernels whose threads share memory or local arrays."""

from __future__ import annotations

import numpy as np

from cuda_kernels.case import Family

CASES = Family()

# -- 7: a dot product by a tree in shared memory ---------------------------------------------------

CASES.add(
    "tree_dot",
    r"""
__global__ void tree_dot(const REAL *a, const REAL *b, REAL *out, int n) {
    extern __shared__ REAL cache[];
    int tid = threadIdx.x;
    REAL temp = 0;
    for (int i = tid + blockIdx.x * blockDim.x; i < n; i += blockDim.x * gridDim.x)
        temp += a[i] * b[i];
    cache[tid] = temp;
    __syncthreads();
    for (unsigned int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) cache[tid] += cache[tid + s];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, cache[0]);
}
""",
    3, 8,
    lambda r, t: [r.normal(size=70).astype(t), r.normal(size=70).astype(t), np.zeros(1, t), 70],
    (0, 1),
    lambda a, b, out, n: np.dot(a, b)[None],
    lambda size: 8 * size,
)  # fmt: skip

# -- 8: tiled matrix products ----------------------------------------------------------------------

CASES.add(
    "tiled_matmul",
    r"""
#define TILE 4
__global__ void tiled_matmul(const REAL* A, const REAL* B, REAL* C, int n) {
    __shared__ REAL As[TILE][TILE];
    __shared__ REAL Bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    REAL acc = 0;
    for (int t = 0; t < n / TILE; ++t) {
        As[ty][tx] = A[row * n + t * TILE + tx];
        Bs[ty][tx] = B[(t * TILE + ty) * n + col];
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < TILE; k++) acc += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    C[row * n + col] = acc;
}
""",
    (3, 3), (4, 4),
    lambda r, t: [r.normal(size=(12, 12)).astype(t), r.normal(size=(12, 12)).astype(t),
                  np.zeros((12, 12), t), 12],
    (0, 1),
    lambda a, b, c, n: a @ b,
)  # fmt: skip

CASES.add(
    "sgemm_edges",
    r"""
#define BS 4
__global__ void sgemm_edges(REAL* C, const REAL* A, const REAL* B, int m, int n, int k,
                            REAL alpha, REAL beta) {
    __shared__ REAL a_tile[BS][BS + 1];
    __shared__ REAL b_tile[BS][BS + 1];
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    REAL value = 0;
    for (int t = 0; t < (k + BS - 1) / BS; t++) {
        int ka = t * BS + threadIdx.x, kb = t * BS + threadIdx.y;
        if (r < m && ka < k)
            a_tile[threadIdx.y][threadIdx.x] = A[r * k + ka];
        else
            a_tile[threadIdx.y][threadIdx.x] = 0;
        b_tile[threadIdx.y][threadIdx.x] = (kb < k && c < n) ? B[kb * n + c] : (REAL)0;
        __syncthreads();
        for (int i = 0; i < BS; ++i)
            value += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
        __syncthreads();
    }
    if (r < m && c < n) C[r * n + c] = alpha * value + beta * C[r * n + c];
}
""",
    (2, 2), (4, 4),
    lambda r, t: [r.normal(size=(6, 5)).astype(t), r.normal(size=(6, 7)).astype(t),
                  r.normal(size=(7, 5)).astype(t), 6, 5, 7, t(1.3), t(0.7)],
    (0, 1, 2, 6, 7),
    lambda c, a, b, m, n, k, alpha, beta: alpha * (a @ b) + beta * c,
)  # fmt: skip

# -- 9: layer normalisation ------------------------------------------------------------------------

CASES.add(
    "layernorm",
    r"""
extern "C" __global__ void layernorm(const REAL* x, const REAL* gamma, const REAL* beta, REAL* y,
                                     int cols, REAL eps) {
    __shared__ REAL sums[8];
    __shared__ REAL mean, rstd;
    const REAL* row = x + blockIdx.x * cols;
    REAL s = 0;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) s += row[c];
    sums[threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.x == 0) {
        REAL total = 0;
        for (int i = 0; i < blockDim.x; ++i) total += sums[i];
        mean = total / cols;
    }
    __syncthreads();
    s = 0;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        REAL d = row[c] - mean;
        s += d * d;
    }
    sums[threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.x == 0) {
        REAL total = 0;
        for (int i = 0; i < blockDim.x; ++i) total += sums[i];
        rstd = rsqrt(total / cols + eps);
    }
    __syncthreads();
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
        y[blockIdx.x * cols + c] = (row[c] - mean) * rstd * gamma[c] + beta[c];
}
""",
    3, 8,
    lambda r, t: [r.normal(size=(3, 20)).astype(t), r.normal(size=20).astype(t),
                  r.normal(size=20).astype(t), np.zeros((3, 20), t), 20, t(1e-5)],
    (0, 1, 2),
    lambda x, g, b, y, n, eps: (x - x.mean(1, keepdims=True))
    / np.sqrt(x.var(1, keepdims=True) + eps) * g + b,
)  # fmt: skip

# -- 10: forward splatting -------------------------------------------------------------------------

CASES.add(
    "splat",
    r"""
extern "C" __global__ void splat(const int n, const REAL* tenIn, const REAL* tenFlow, REAL* tenOut,
                                 int height, int width) {
    for (int intIndex = (blockIdx.x * blockDim.x) + threadIdx.x; intIndex < n;
         intIndex += blockDim.x * gridDim.x) {
        const int intY = intIndex / width;
        const int intX = intIndex % width;
        REAL fltX = (REAL)(intX) + tenFlow[intIndex];
        REAL fltY = (REAL)(intY) + tenFlow[n + intIndex];
        if (isfinite(fltX) == false) { return; }
        if (isfinite(fltY) == false) { return; }
        REAL fltIn = tenIn[intIndex];
        int intNorthwestX = (int)(floor(fltX));
        int intNorthwestY = (int)(floor(fltY));
        int intSoutheastX = intNorthwestX + 1;
        int intSoutheastY = intNorthwestY + 1;
        REAL fltNorthwest = ((REAL)(intSoutheastX) - fltX) * ((REAL)(intSoutheastY) - fltY);
        REAL fltNortheast = (fltX - (REAL)(intNorthwestX)) * ((REAL)(intSoutheastY) - fltY);
        REAL fltSouthwest = ((REAL)(intSoutheastX) - fltX) * (fltY - (REAL)(intNorthwestY));
        REAL fltSoutheast = (fltX - (REAL)(intNorthwestX)) * (fltY - (REAL)(intNorthwestY));
        if ((intNorthwestX >= 0) && (intNorthwestX < width) && (intNorthwestY >= 0) &&
            (intNorthwestY < height))
            atomicAdd(&tenOut[intNorthwestY * width + intNorthwestX], fltIn * fltNorthwest);
        if ((intSoutheastX >= 0) && (intSoutheastX < width) && (intNorthwestY >= 0) &&
            (intNorthwestY < height))
            atomicAdd(&tenOut[intNorthwestY * width + intSoutheastX], fltIn * fltNortheast);
        if ((intNorthwestX >= 0) && (intNorthwestX < width) && (intSoutheastY >= 0) &&
            (intSoutheastY < height))
            atomicAdd(&tenOut[intSoutheastY * width + intNorthwestX], fltIn * fltSouthwest);
        if ((intSoutheastX >= 0) && (intSoutheastX < width) && (intSoutheastY >= 0) &&
            (intSoutheastY < height))
            atomicAdd(&tenOut[intSoutheastY * width + intSoutheastX], fltIn * fltSoutheast);
    }
}
""",
    2, 8,
    lambda r, t: [30, r.normal(size=(5, 6)).astype(t), r.uniform(-1.4, 1.4, (2, 5, 6)).astype(t),
                  np.zeros((5, 6), t), 5, 6],
    (1, 2),
)  # fmt: skip

# -- 11: local arrays that change in place, and a tree in shared memory ------------------------------

CASES.add(
    "libor",
    r"""
#define NN 8
#define NMAT 5
#define NOPT 3
__constant__ int maturities[] = {2, 4, 6};

__device__ void path_calc(REAL *L, const REAL *z, const REAL *lam0, REAL delta, int Nmat) {
    int i, n;
    REAL sqez, lam, con1, v, vrat;
    for (n = 0; n < Nmat; n++) {
        sqez = sqrt(delta) * z[n];
        v = 0.0;
        for (i = n + 1; i < NN; i++) {
            lam = lam0[i - n - 1];
            con1 = delta * lam;
            v += (con1 * L[i]) / (1.0 + delta * L[i]);
            vrat = exp(con1 * v + lam * (sqez - 0.5 * con1));
            L[i] = L[i] * vrat;
        }
    }
}

__device__ REAL portfolio(REAL *L, const REAL *swaprates, REAL delta, int Nmat) {
    REAL B[NN], S[NN];
    REAL b = 1.0, s = 0.0, v = 0.0;
    for (int n = Nmat; n < NN; n++) {
        b = b / (1.0 + delta * L[n]);
        s = s + delta * b;
        B[n] = b;
        S[n] = s;
    }
    for (int i = 0; i < NOPT; i++) {
        int m = maturities[i] / 3 + Nmat;
        REAL swapval = B[m] + swaprates[i] * S[m] - 1.0;
        if (swapval < 0) v += -100.0 * swapval;
    }
    for (int n = 0; n < Nmat; n++) v = v / (1.0 + delta * L[n]);
    return v;
}

__global__ void libor(const REAL *z, const REAL *lam0, const REAL *L0, const REAL *swaprates,
                      REAL *v, REAL delta, int paths) {
    const int tid = blockDim.x * blockIdx.x + threadIdx.x;
    REAL L[NN];
    if (tid < paths) {
        for (int i = 0; i < NN; i++) L[i] = L0[i];
        path_calc(L, z + tid * NMAT, lam0, delta, NMAT);
        v[tid] = portfolio(L, swaprates, delta, NMAT);
    }
}
""",
    2, 4,
    lambda r, t: [r.normal(size=(6, 5)).astype(t), r.uniform(0.1, 0.3, 8).astype(t),
                  r.uniform(0.03, 0.07, 8).astype(t), np.array([0.02, 0.03, 0.025], t),
                  np.zeros(6, t), t(0.25), 6],
    (0, 1, 2, 3, 5),
)  # fmt: skip

CASES.add(
    "binomial",
    r"""
#define STEPS 7
__global__ void binomial(const REAL *S, const REAL *X, REAL *out, REAL vsdt, REAL pu, REAL pd) {
    __shared__ REAL tree[STEPS + 1];
    const int tid = threadIdx.x;
    const int option = blockIdx.x;
    REAL d = S[option] * exp(vsdt * (2.0 * tid - STEPS)) - X[option];
    tree[tid] = d > 0 ? d : 0;
    __syncthreads();
    for (int step = STEPS; step > 0; --step) {
        REAL up = 0, down = 0;
        if (tid < step) {
            up = tree[tid + 1];
            down = tree[tid];
        }
        __syncthreads();
        if (tid < step) tree[tid] = pu * up + pd * down;
        __syncthreads();
    }
    if (tid == 0) out[option] = tree[0];
}
""",
    4, 8,
    lambda r, t: [r.uniform(18, 22, 4).astype(t), r.uniform(18, 22, 4).astype(t), np.zeros(4, t),
                  t(0.1), t(0.52), t(0.47)],
    (0, 1, 3, 4, 5),
)  # fmt: skip
