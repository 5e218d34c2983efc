"""Kernels of the kinds that people publish: paths of rays, iterations, small networks."""

from __future__ import annotations

import numpy as np

from cuda_kernels.case import Family

CASES = Family()

CASES.add(
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

CASES.add(
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

CASES.add(
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

CASES.add(
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

CASES.add(
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

CASES.add(
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

CASES.add(
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

CASES.add(
    "long_chain",
    r"""
// a loop that counts, with a branch and a loop inside, and one that converges, behind a branch
__global__ void long_chain(const REAL *x, REAL *y, int n, int most) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    REAL p = 1, q = x[i];
    for (int k = 0; k < n; k++) {
        p *= x[k];
        for (int j = 0; j < 2; j++) q += (REAL)0.1 * x[j];
        q = sin(q) + p * (REAL)0.1;
        if (k % 3 == 0) q = q * q;
    }
    REAL r = p;
    if (i > 0) {
        int steps = 0;
        while (fabs(r * r - 2) > (REAL)1e-12 && steps < most) {
            r = r - (REAL)0.02 * (r * r - x[0] - 1) / (2 * r);
            steps++;
        }
    }
    y[i] = p + q * r;
}
""",
    2, 2,
    lambda r, t: [r.uniform(0.99, 1.01, 60).astype(t), np.zeros(4, t), 60, 30],
    (0,),
)  # fmt: skip
