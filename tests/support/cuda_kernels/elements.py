"""Kernels whose threads work on elements of their own, or scatter into others."""

from __future__ import annotations

import numpy as np

from cuda_kernels.case import Family

CASES = Family()

# -- 1: grid-stride saxpy ------------------------------------------------------------------------

CASES.add(
    "saxpy",
    r"""
extern "C" __global__
void saxpy(int n, REAL a, const REAL* __restrict__ x, REAL* __restrict__ y) {
    // a grid-stride loop
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        y[i] = a * x[i] + y[i];
}
""",
    3, 8,
    lambda r, t: [50, t(1.7), r.normal(size=50).astype(t), r.normal(size=50).astype(t)],
    (1, 2, 3),
    lambda n, a, x, y: a * x + y,
)  # fmt: skip

# -- 2: an input that is overwritten -------------------------------------------------------------

CASES.add(
    "overwrite",
    r"""
__global__ void overwrite(REAL *a, REAL *b, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    b[i] = a[i] * a[i];
    a[i] = 1;
}
""",
    1, 8,
    lambda r, t: [np.array([1, 2, 3], t), np.zeros(3, t), 3],
    (0, 1),
    lambda a, b, n: (np.ones(3), a * a),
)  # fmt: skip

# -- 3: a dynamic product, and a sum over a norm --------------------------------------------------

CASES.add(
    "product",
    r"""
__global__ void product(const REAL *x, REAL *out, int n) {
    REAL prod = (REAL)1;
    for (int i = 0; i < n; ++i) prod *= x[i];
    out[0] = prod;
}
""",
    1, 1,
    lambda r, t: [np.array([2, 2, 2, 1.5], t), np.zeros(1, t), 4],
    (0,),
    lambda x, out, n: np.prod(x)[None],
)  # fmt: skip

CASES.add(
    "sum_over_norm",
    r"""
__global__ void sum_over_norm(const REAL *x, REAL *out, int n) {
    REAL sum = 0, squares = 0;
    int i = 0;
    while (i < n) {
        sum += x[i];
        squares += x[i] * x[i];
        i++;
    }
    out[0] = sum / sqrt(squares);
}
""",
    1, 1,
    lambda r, t: [np.array([1, 2, 3], t), np.zeros(1, t), 3],
    (0,),
    lambda x, out, n: (np.sum(x) / np.linalg.norm(x))[None],
)  # fmt: skip

# -- 4: pairwise distances -----------------------------------------------------------------------

CASES.add(
    "euclid",
    r"""
extern "C" {
__global__ void euclid(REAL *x, REAL *y, REAL *out, int m, int n, int p, int squared) {
    const int i = blockDim.x * blockIdx.x + threadIdx.x;
    const int j = blockDim.y * blockIdx.y + threadIdx.y;
    if (i >= m || j >= n) { return; }
    REAL dist = 0.0;
    for (int k = 0; k < p; k++) {
        REAL diff = x[i * p + k] - y[j * p + k];
        dist += diff * diff;
    }
    out[i * n + j] = squared ? dist : sqrt(dist);
}
}
""",
    (2, 2), (4, 4),
    lambda r, t: [r.normal(size=(5, 3)).astype(t), r.normal(size=(6, 3)).astype(t),
                  np.zeros((5, 6), t), 5, 6, 3, 0],
    (0, 1),
    lambda x, y, out, *_: np.linalg.norm(x[:, None] - y, axis=-1),
)  # fmt: skip

# -- 5: Black-Scholes ----------------------------------------------------------------------------

CASES.add(
    "black_scholes",
    r"""
#define A1 ((REAL)0.31938153)
#define A2 ((REAL)-0.356563782)
#define A3 ((REAL)1.781477937)
#define A4 ((REAL)-1.821255978)
#define A5 ((REAL)1.330274429)
#define RSQRT2PI ((REAL)0.39894228040143267793994605993438)

__device__ inline REAL cndGPU(REAL d) {
    REAL K = (REAL)1.0 / ((REAL)1.0 + (REAL)0.2316419 * fabs(d));
    REAL cnd = RSQRT2PI * exp((REAL)-0.5 * d * d) *
        (K * (A1 + K * (A2 + K * (A3 + K * (A4 + K * A5)))));
    if (d > 0) cnd = (REAL)1.0 - cnd;
    return cnd;
}

__device__ inline void BlackScholesBodyGPU(REAL &CallResult, REAL &PutResult, REAL S, REAL X,
                                           REAL T, REAL R, REAL V) {
    REAL sqrtT = sqrt(T);
    REAL d1 = (log(S / X) + (R + (REAL)0.5 * V * V) * T) / (V * sqrtT);
    REAL d2 = d1 - V * sqrtT;
    REAL CNDD1 = cndGPU(d1);
    REAL CNDD2 = cndGPU(d2);
    REAL expRT = exp(-R * T);
    CallResult = S * CNDD1 - X * expRT * CNDD2;
    PutResult = X * expRT * ((REAL)1.0 - CNDD2) - S * ((REAL)1.0 - CNDD1);
}

__launch_bounds__(128)
__global__ void black_scholes(REAL *__restrict d_Call, REAL *__restrict d_Put,
                              const REAL *__restrict d_Price, const REAL *__restrict d_Strike,
                              const REAL *__restrict d_Years, REAL Riskfree, REAL Volatility,
                              int optN) {
    const int opt = blockDim.x * blockIdx.x + threadIdx.x;
    if (opt < optN) {
        REAL call, put;
        BlackScholesBodyGPU(call, put, d_Price[opt], d_Strike[opt], d_Years[opt], Riskfree,
                            Volatility);
        d_Call[opt] = call;
        d_Put[opt] = put;
    }
}
""",
    2, 16,
    lambda r, t: [np.zeros(20, t), np.zeros(20, t), r.uniform(5, 30, 20).astype(t),
                  r.uniform(5, 30, 20).astype(t), r.uniform(0.5, 5, 20).astype(t),
                  t(0.02), t(0.3), 20],
    (2, 3, 4, 5, 6),
)  # fmt: skip

# -- 6: particles onto a grid --------------------------------------------------------------------

CASES.add(
    "deposit",
    r"""
__global__ void deposit(const REAL *x, const REAL *q, REAL *rho, REAL dx, int n, int cells) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= n) return;
    REAL s = x[p] / dx;
    int i = (int)floor(s);
    REAL w = s - i;
    atomicAdd(&rho[i % cells], q[p] * (1 - w));
    atomicAdd(rho + (i + 1) % cells, q[p] * w);
}
""",
    3, 8,
    lambda r, t: [(r.integers(0, 9, 20) + r.uniform(0.2, 0.8, 20)).astype(t) * t(0.5),
                  r.normal(size=20).astype(t), r.normal(size=10).astype(t), t(0.5), 20, 10],
    (0, 1, 2),
)  # fmt: skip
