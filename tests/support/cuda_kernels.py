"""Kernels in CUDA C as people write them, with arguments: for tests of `adarray.kernels`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Rng = np.random.Generator


@dataclass(frozen=True)
class Case:
    """A kernel and a launch; ``REAL`` in the source stands for float or double.

    ``args(rng, dtype)`` returns the arguments; `by` are the positions of those that are
    differentiated by; ``expected(*args)`` returns the arrays that are written.
    """

    name: str
    source: str
    grid: Any
    block: Any
    args: Callable[[Rng, Any], list[Any]]
    by: tuple[int, ...]
    expected: Callable[..., Any] | None = None
    shared: Callable[[int], int] = lambda size: 0
    options: tuple[str, ...] = ()
    instance: str = ""

    def text(self, dtype: str) -> str:
        """Return the source for float32 or float64."""
        real = {"float32": "float", "float64": "double"}[dtype]
        return self.source.replace("REAL", real)

    def kernel_name(self, dtype: str) -> str:
        """Return what `RawKernel` is given as the name."""
        real = {"float32": "float", "float64": "double"}[dtype]
        return self.instance.replace("REAL", real) or self.name

    def shared_bytes(self, dtype: str) -> int:
        """Return the bytes of dynamic shared memory."""
        return self.shared(np.dtype(dtype).itemsize)


def _case(*args: Any, **kwargs: Any) -> None:
    case = Case(*args, **kwargs)
    CASES[case.name] = case


CASES: dict[str, Case] = {}


def _normal(*shape: int) -> Callable[[Rng, Any], np.ndarray]:
    return lambda rng, dtype: rng.normal(size=shape).astype(dtype)


# -- 1: grid-stride saxpy ------------------------------------------------------------------------

_case(
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

_case(
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

_case(
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

_case(
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

_case(
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

_case(
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

_case(
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

# -- 7: a dot product by a tree in shared memory ---------------------------------------------------

_case(
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

_case(
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

_case(
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

_case(
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

_case(
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

_case(
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

_case(
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

# -- 12: proxies of the applications of Moses et al., SC'21 -------------------------------------------


def _lbm_args(r: Rng, t: Any) -> list[Any]:
    nx, ny = 8, 6
    f = r.uniform(0.5, 1.5, (9, ny, nx)).astype(t)
    return [f, np.zeros((9, ny, nx), t), t(1.2), nx, ny]


# A lattice-Boltzmann step of the D2Q9 kind: neighbours pull, then collide.
_case(
    "lattice_boltzmann",
    r"""
#define Q 9
__constant__ int cx[Q] = {0, 1, 0, -1, 0, 1, -1, -1, 1};
__constant__ int cy[Q] = {0, 0, 1, 0, -1, 1, 1, -1, -1};

extern "C" __global__ void lattice_boltzmann(const REAL* __restrict__ src, REAL* __restrict__ dst,
                                             REAL omega, int nx, int ny) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= nx || y >= ny) return;
    REAL f[Q];
    REAL rho = 0, ux = 0, uy = 0;
    for (int k = 0; k < Q; k++) {
        int px = (x - cx[k] + nx) % nx;
        int py = (y - cy[k] + ny) % ny;
        f[k] = src[k * nx * ny + py * nx + px];
        rho += f[k];
        ux += f[k] * cx[k];
        uy += f[k] * cy[k];
    }
    ux /= rho;
    uy /= rho;
    REAL usq = (REAL)1.5 * (ux * ux + uy * uy);
    for (int k = 0; k < Q; k++) {
        REAL w = k == 0 ? (REAL)(4.0 / 9.0) : k < 5 ? (REAL)(1.0 / 9.0) : (REAL)(1.0 / 36.0);
        REAL cu = 3 * (cx[k] * ux + cy[k] * uy);
        REAL feq = w * rho * (1 + cu + (REAL)0.5 * cu * cu - usq);
        dst[k * nx * ny + y * nx + x] = f[k] + omega * (feq - f[k]);
    }
}
""",
    (2, 2), (4, 4), _lbm_args, (0, 2),
)  # fmt: skip


def _lookup_args(r: Rng, t: Any) -> list[Any]:
    grid = np.sort(r.uniform(0, 1, (3, 20)), axis=1)
    grid[:, 0], grid[:, -1] = 0, 1
    # Energies stay clear of the points of the grids, where slopes jump.
    middle = (grid[0, 1:] + grid[0, :-1]) / 2
    return [
        middle[:10].astype(t), grid.astype(t), r.uniform(0, 1, (3, 20, 5)).astype(t),
        r.uniform(0, 1, 3).astype(t), np.zeros((10, 5), t), 10, 3, 20,
    ]  # fmt: skip


# A lookup of cross sections: binary search, then interpolation, for each nuclide.
_case(
    "cross_sections",
    r"""
__device__ int grid_search(int n, REAL quarry, const REAL* A) {
    int lower = 0, upper = n - 1, length = upper - lower;
    while (length > 1) {
        int examination = lower + length / 2;
        if (A[examination] > quarry) upper = examination;
        else lower = examination;
        length = upper - lower;
    }
    return lower;
}

__global__ void cross_sections(const REAL* energies, const REAL* grids, const REAL* data,
                               const REAL* densities, REAL* out, int lookups, int nuclides,
                               int points) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= lookups) return;
    REAL macro[5];
    for (int k = 0; k < 5; k++) macro[k] = 0;
    REAL e = energies[i];
    for (int j = 0; j < nuclides; j++) {
        const REAL* grid = grids + j * points;
        int at = grid_search(points, e, grid);
        if (at > points - 2) at = points - 2;
        REAL fraction = (grid[at + 1] - e) / (grid[at + 1] - grid[at]);
        const REAL* low = &data[(j * points + at) * 5];
        for (int k = 0; k < 5; k++) {
            REAL micro = low[5 + k] - fraction * (low[5 + k] - low[k]);
            macro[k] += micro * densities[j];
        }
    }
    for (int k = 0; k < 5; k++) out[i * 5 + k] = macro[k];
}
""",
    2, 8, _lookup_args, (0, 2, 3),
)  # fmt: skip

# A multipole lookup: complex numbers in structs that functions take by value.
_case(
    "multipole",
    r"""
typedef struct { REAL r; REAL i; } RSComplex;

__host__ __device__ RSComplex c_add(RSComplex A, RSComplex B) {
    RSComplex C;
    C.r = A.r + B.r;
    C.i = A.i + B.i;
    return C;
}
__host__ __device__ RSComplex c_mul(RSComplex A, RSComplex B) {
    RSComplex C;
    C.r = A.r * B.r - A.i * B.i;
    C.i = A.r * B.i + A.i * B.r;
    return C;
}
__host__ __device__ RSComplex c_div(RSComplex A, RSComplex B) {
    REAL denom = B.r * B.r + B.i * B.i;
    RSComplex C = {(A.r * B.r + A.i * B.i) / denom, (A.i * B.r - A.r * B.i) / denom};
    return C;
}
// exp(z), by a short series where it is small
__host__ __device__ RSComplex fast_cexp(RSComplex z) {
    REAL x = z.r, y = z.i;
    REAL t1 = exp(x), t2 = cos(y), t3 = sin(y);
    RSComplex t4 = {t2, t3};
    RSComplex t5 = {t1, 0};
    return c_mul(t5, t4);
}

__global__ void multipole(const RSComplex* poles, const RSComplex* residues, const REAL* energies,
                          REAL* out, int lookups, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= lookups) return;
    RSComplex sum = {0, 0};
    REAL E = sqrt(energies[i]);
    for (int k = 0; k < n; k++) {
        RSComplex z = poles[k];
        RSComplex d = {z.r - E, z.i};
        RSComplex w = fast_cexp(c_mul(d, d));
        sum = c_add(sum, c_mul(residues[k], c_div(w, d)));
    }
    out[2 * i] = sum.r;
    out[2 * i + 1] = sum.i;
}
""",
    2, 8,
    lambda r, t: [r.uniform(0.3, 1, (4, 2)).astype(t), r.normal(size=(4, 2)).astype(t),
                  r.uniform(0.1, 1, 10).astype(t), np.zeros((10, 2), t), 10, 4],
    (0, 1, 2),
)  # fmt: skip

# An update of a material by its equation of state, with cutoffs as branches.
_case(
    "material",
    r"""
__device__ void pressure(REAL *p, REAL *bvc, REAL *pbvc, REAL e, REAL compression, REAL vnew,
                         REAL p_cut, REAL pmin, REAL eosvmax) {
    REAL c1s = (REAL)2.0 / (REAL)3.0;
    *bvc = c1s * (compression + (REAL)1.0);
    *pbvc = c1s;
    *p = *bvc * e;
    if (fabs(*p) < p_cut) *p = 0;
    if (vnew >= eosvmax) *p = 0;
    if (*p < pmin) *p = pmin;
}

__global__ void material(REAL *e, REAL *p, REAL *q, REAL *ss, const REAL *v, const REAL *delv,
                         REAL e_cut, REAL p_cut, REAL emin, REAL pmin, REAL rho0, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    REAL e_old = e[i], p_old = p[i], q_old = q[i], vol = v[i], d = delv[i];
    REAL compression = (REAL)1.0 / vol - (REAL)1.0;
    REAL half = (REAL)1.0 / (vol - d * (REAL)0.5) - (REAL)1.0;
    REAL e_new = e_old - (REAL)0.5 * d * (p_old + q_old);
    if (e_new < emin) e_new = emin;
    REAL p_half, bvc, pbvc;
    pressure(&p_half, &bvc, &pbvc, e_new, half, vol, p_cut, pmin, (REAL)1e9);
    REAL vhalf = (REAL)1.0 / ((REAL)1.0 + half);
    REAL q_new;
    if (d > 0) {
        q_new = 0;
    } else {
        REAL ssc = (pbvc * e_new + vhalf * vhalf * bvc * p_half) / rho0;
        if (ssc <= (REAL).1111111e-36) ssc = (REAL).3333333e-18;
        else ssc = sqrt(ssc);
        q_new = ssc * (REAL)0.3 - d;
    }
    e_new = e_new + (REAL)0.5 * d * ((REAL)3.0 * (p_old + q_old) - (REAL)4.0 * (p_half + q_new));
    if (fabs(e_new) < e_cut) e_new = 0;
    REAL p_new;
    pressure(&p_new, &bvc, &pbvc, e_new, compression, vol, p_cut, pmin, (REAL)1e9);
    REAL s = (pbvc * e_new + vol * vol * bvc * p_new) / rho0;
    e[i] = e_new;
    p[i] = p_new;
    q[i] = q_new;
    ss[i] = s <= (REAL)1e-12 ? (REAL)0 : sqrt(s);
}
""",
    2, 8,
    lambda r, t: [r.uniform(0.5, 2, 14).astype(t), r.uniform(0.1, 1, 14).astype(t),
                  r.uniform(0.1, 0.5, 14).astype(t), np.zeros(14, t),
                  r.uniform(0.6, 1.2, 14).astype(t), r.uniform(-0.2, 0.2, 14).astype(t),
                  t(1e-7), t(1e-7), t(-1e15), t(-1e15), t(1.3), 14],
    (0, 1, 2, 4, 5, 10),
)  # fmt: skip

# The volume term of a discontinuous Galerkin method: an element is a block, in shared memory.
_case(
    "dg_volume",
    r"""
#define NQ 4
#define NF 3
extern "C" __global__ void dg_volume(const REAL* __restrict__ Q, const REAL* __restrict__ geo,
                                     const REAL* __restrict__ Dhat, REAL* __restrict__ rhs,
                                     REAL gamma1) {
    __shared__ REAL s_D[NQ][NQ];
    __shared__ REAL s_F[NQ][NQ][NF];
    __shared__ REAL s_G[NQ][NQ][NF];
    const int i = threadIdx.x, j = threadIdx.y, e = blockIdx.x;
    s_D[j][i] = Dhat[j * NQ + i];
    const int node = (e * NQ + j) * NQ + i;
    const REAL rx = geo[node * 4 + 0], ry = geo[node * 4 + 1];
    const REAL sx = geo[node * 4 + 2], sy = geo[node * 4 + 3];
    const REAL R = Q[node * NF], U = Q[node * NF + 1], V = Q[node * NF + 2];
    const REAL P = gamma1 * R * R + (U * U + V * V) / R;
    const REAL flux_x[NF] = {U, U * U / R + P, U * V / R};
    const REAL flux_y[NF] = {V, U * V / R, V * V / R + P};
    #pragma unroll
    for (int f = 0; f < NF; ++f) {
        s_F[j][i][f] = rx * flux_x[f] + ry * flux_y[f];
        s_G[j][i][f] = sx * flux_x[f] + sy * flux_y[f];
    }
    __syncthreads();
    for (int f = 0; f < NF; ++f) {
        REAL sum = 0;
        for (int k = 0; k < NQ; ++k)
            sum += s_D[k][i] * s_F[j][k][f] + s_D[k][j] * s_G[k][i][f];
        rhs[node * NF + f] += sum;
    }
}
""",
    3, (4, 4),
    lambda r, t: [r.uniform(0.5, 1.5, (48, 3)).astype(t), r.normal(size=(48, 4)).astype(t),
                  r.normal(size=(4, 4)).astype(t), r.normal(size=(48, 3)).astype(t), t(0.4)],
    (0, 1, 2, 3, 4),
)  # fmt: skip

PROXIES = ("lattice_boltzmann", "cross_sections", "multipole", "material", "dg_volume")
TWELVE = tuple(CASES)

# -- more, of the kinds that people publish ------------------------------------------------------------

_case(
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

_case(
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

_case(
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

_case(
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

_case(
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

_case(
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

_case(
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

_case(
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

_case(
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

_case(
    "volume_renderer",
    r"""
__device__ REAL sample(const REAL *vol, int n, REAL x, REAL y, REAL z) {
    x = fmin(fmax(x, (REAL)0), (REAL)(n - 1) - (REAL)1e-4);
    y = fmin(fmax(y, (REAL)0), (REAL)(n - 1) - (REAL)1e-4);
    z = fmin(fmax(z, (REAL)0), (REAL)(n - 1) - (REAL)1e-4);
    int i = (int)x, j = (int)y, k = (int)z;
    REAL u = x - i, v = y - j, w = z - k, result = 0;
    for (int c = 0; c < 8; c++) {
        int a = c & 1, b = (c >> 1) & 1, d = (c >> 2) & 1;
        REAL weight = (a ? u : 1 - u) * (b ? v : 1 - v) * (d ? w : 1 - w);
        result += weight * vol[((k + d) * n + j + b) * n + i + a];
    }
    return result;
}
__global__ void volume_renderer(const REAL *vol, REAL *image, int n, int w, REAL dt, REAL density) {
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= w || py >= w) return;
    REAL x = (px + (REAL)0.37) * (n - 1) / w, y = (py + (REAL)0.41) * (n - 1) / w;
    REAL color = 0, transmittance = 1;
    for (REAL t = 0; t < n - 1; t += dt) {
        REAL s = sample(vol, n, x, y, t);
        REAL alpha = 1 - exp(-s * s * density * dt);
        color += transmittance * alpha * s;
        transmittance *= 1 - alpha;
        if (transmittance < (REAL)0.05) break;
    }
    image[py * w + px] = color;
}
""",
    (2, 2), (2, 2),
    lambda r, t: [r.uniform(0, 1, (4, 4, 4)).astype(t), np.zeros((4, 4), t), 4, 4, t(0.31), t(2.5)],
    (0, 5),
)  # fmt: skip

_case(
    "heat_2d",
    r"""
#define IDX(i, j) ((i) * ny + (j))
__global__ void heat_2d(const REAL* u, REAL* u_new, int nx, int ny, REAL dx2, REAL dy2, REAL a_dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i > 0 && i < nx - 1) {
        if (j > 0 && j < ny - 1) {
            REAL uij = u[IDX(i, j)];
            u_new[IDX(i, j)] = uij + a_dt * ((u[IDX(i - 1, j)] - 2 * uij + u[IDX(i + 1, j)]) / dx2 +
                                             (u[IDX(i, j - 1)] - 2 * uij + u[IDX(i, j + 1)]) / dy2);
        }
    }
}
""",
    (2, 2), (4, 4),
    lambda r, t: [r.normal(size=(6, 7)).astype(t), r.normal(size=(6, 7)).astype(t), 6, 7, t(0.9),
                  t(1.1), t(0.2)],
    (0, 1, 4, 5, 6),
)  # fmt: skip

_case(
    "newton",
    r"""
// cube roots by a loop whose number of iterations depends on the data
__global__ void newton(const REAL *a, REAL *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        REAL y = 1, change;
        int it = 0;
        do {
            REAL next = y - (y * y * y - a[i]) / (3 * y * y);
            change = fabs(next - y);
            y = next;
        } while (change > (REAL)1e-3 && ++it < 50);
        x[i] = y;
    }
}
""",
    2, 4,
    lambda r, t: [r.uniform(0.5, 9, 7).astype(t), np.zeros(7, t), 7],
    (0,),
)  # fmt: skip

_case(
    "gelu_gate",
    r"""
__device__ __forceinline__ REAL gelu(REAL x) {
    return (REAL)0.5 * x * ((REAL)1.0 + erf(x * (REAL)0.70710678118654752440));
}
__global__ void gelu_gate(const REAL *__restrict__ x, const int *__restrict__ kind,
                          REAL *__restrict__ out, int half, int rows) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * half; i += gridDim.x * blockDim.x) {
        int r = i / half, c = i % half;
        REAL a = x[r * 2 * half + c], b = x[r * 2 * half + half + c], g;
        switch (kind[r]) {
            case 0: g = gelu(b); break;
            case 1: g = 1 / (1 + exp(-b)); break;
            default: g = b > 0 ? b : (REAL)0.1 * b; break;
        }
        out[i] = a * g;
    }
}
""",
    2, 8,
    lambda r, t: [r.normal(size=(3, 10)).astype(t), np.array([0, 1, 2], np.int32),
                  np.zeros((3, 5), t), 5, 3],
    (0,),
)  # fmt: skip

_case(
    "histogram_weighted",
    r"""
__global__ void histogram_weighted(const REAL *x, const REAL *w, int *counts, REAL *sums, REAL lo,
                                   REAL width, int bins, int n) {
    __shared__ REAL local[8];
    if (threadIdx.x < bins) local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        int b = (int)floor((x[i] - lo) / width);
        if (b >= 0 && b < bins) {
            atomicAdd(&counts[b], 1);
            atomicAdd(&local[b], w[i] * x[i]);
        }
    }
    __syncthreads();
    if (threadIdx.x < bins) atomicAdd(&sums[threadIdx.x], local[threadIdx.x]);
}
""",
    2, 8,
    lambda r, t: [(np.arange(30) % 7 * 0.5 + r.uniform(0.1, 0.4, 30)).astype(t),
                  r.normal(size=30).astype(t), np.zeros(8, np.int32), np.zeros(8, t), t(0.0), t(0.5),
                  8, 30],
    (0, 1),
)  # fmt: skip

_case(
    "mlp_in_registers",
    r"""
#define IN 3
#define HIDDEN 5
__global__ void mlp_in_registers(const REAL *x, const REAL *w1, const REAL *b1, const REAL *w2,
                                 REAL *y, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    REAL h[HIDDEN];
    for (int i = 0; i < HIDDEN; ++i) {
        REAL s = b1[i];
        for (int j = 0; j < IN; ++j) s += w1[i * IN + j] * x[t * IN + j];
        h[i] = tanh(s);
    }
    for (int layer = 0; layer < 2; ++layer)
        for (int i = 0; i < HIDDEN; ++i) h[i] = h[i] * h[(i + 1) % HIDDEN] + (REAL)0.1;
    REAL out = 0;
    for (int i = 0; i < HIDDEN; ++i) out += w2[i] * h[i];
    y[t] = out;
}
""",
    2, 4,
    lambda r, t: [r.normal(size=(6, 3)).astype(t), r.normal(size=(5, 3)).astype(t),
                  r.normal(size=5).astype(t), r.normal(size=5).astype(t), np.zeros(6, t), 6],
    (0, 1, 2, 3),
)  # fmt: skip

_case(
    "pairwise_cutoff",
    r"""
__global__ void pairwise_cutoff(const REAL2 *pos, REAL *potential, REAL epsilon, REAL cutoff, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    REAL2 p = pos[i];
    REAL total = 0;
    for (int j = 0; j < n; j++) {
        if (j == i) continue;
        REAL dx = p.x - pos[j].x, dy = p.y - pos[j].y;
        REAL r2 = dx * dx + dy * dy;
        if (r2 > cutoff * cutoff) continue;
        REAL inv = 1 / (r2 + (REAL)0.2);
        total += 4 * epsilon * (pow(inv, (REAL)3) - inv);
    }
    potential[i] = total;
}
""",
    2, 4,
    lambda r, t: [r.uniform(0, 3, (7, 2)).astype(t), np.zeros(7, t), t(0.8), t(2.1), 7],
    (0, 2),
)  # fmt: skip

MORE = tuple(n for n in CASES if n not in TWELVE)
