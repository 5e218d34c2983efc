"""Proxies of the applications of Moses et al., SC'21."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuda_kernels.case import Family, Rng

CASES = Family()

# -- 12: proxies of the applications of Moses et al., SC'21 -------------------------------------------


def _lbm_args(r: Rng, t: Any) -> list[Any]:
    nx, ny = 8, 6
    f = r.uniform(0.5, 1.5, (9, ny, nx)).astype(t)
    return [f, np.zeros((9, ny, nx), t), t(1.2), nx, ny]


# A lattice-Boltzmann step of the D2Q9 kind: neighbours pull, then collide.
CASES.add(
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
CASES.add(
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
CASES.add(
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
CASES.add(
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
CASES.add(
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
