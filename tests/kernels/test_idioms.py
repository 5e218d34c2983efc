"""Idioms of published kernels: values against NumPy, derivatives against differences.

Braces as values, templates that kernels call, functions of bits and conversions are among them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_backends import BACKENDS

import adarray
from adarray.kernels import RawKernel

SEGMENTED_SCAN = r"""
extern "C" __global__ void seg_scan(const double* __restrict__ x, const int* __restrict__ flags,
    double* __restrict__ y, int n) {
    const unsigned FULL = 0xffffffffu;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x & 31;
    double v = i < n ? x[i] : 0.0;
    int f = i < n ? flags[i] : 1;
    #pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        double up = __shfl_up_sync(FULL, v, d);
        int fu = __shfl_up_sync(FULL, f, d);
        if (lane >= d) {
            if (!f) v += up;
            f |= fu;
        }
    }
    if (i < n) y[i] = v;
}
"""
BITONIC = r"""
#define N 32
__device__ __forceinline__ void cas(double &ka, int &ia, double &kb, int &ib, bool up) {
    if ((ka > kb) == up) { double t = ka; ka = kb; kb = t; int u = ia; ia = ib; ib = u; }
}
extern "C" __global__ void bitonic(const double *keys, double *sorted, int *perm) {
    __shared__ double k[N];
    __shared__ int id[N];
    int t = threadIdx.x;
    k[t] = keys[blockIdx.x * N + t]; id[t] = t;
    __syncthreads();
    for (int size = 2; size <= N; size <<= 1) {
        for (int stride = size >> 1; stride > 0; stride >>= 1) {
            int p = t ^ stride;
            if (p > t) cas(k[t], id[t], k[p], id[p], (t & size) == 0);
            __syncthreads();
        }
    }
    sorted[blockIdx.x * N + t] = k[t];
    perm[blockIdx.x * N + t] = id[t];
}
"""
RED_BLACK = r"""
extern "C" __global__ void redblack(double *u, const double *f, int nx, int ny, double h2,
    double omega, int color) {
    for (int j = blockIdx.y * blockDim.y + threadIdx.y + 1; j < ny - 1;
        j += gridDim.y * blockDim.y)
        for (int i = blockIdx.x * blockDim.x + threadIdx.x + 1; i < nx - 1;
            i += gridDim.x * blockDim.x) {
            if (((i + j) & 1) != color) continue;
            const int c = j * nx + i;
            const double r = 0.25 * (u[c - 1] + u[c + 1] + u[c - nx] + u[c + nx] - h2 * f[c]);
            u[c] += omega * (r - u[c]);
        }
}
"""
MARCH = r"""
struct Vec { double x, y, z; };
__device__ Vec operator+(Vec a, Vec b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
__device__ Vec operator*(double s, Vec a) { return {s * a.x, s * a.y, s * a.z}; }
__device__ double norm(const Vec &a) { return sqrt(a.x * a.x + a.y * a.y + a.z * a.z); }
__device__ double scene(Vec p, double r) { return norm(p) - r; }
extern "C" __global__ void march(const double *dirs, double *depth, double r, double cam, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Vec o = {0., 0., -cam}, d = {dirs[3*i], dirs[3*i+1], dirs[3*i+2]};
    double t = 0; int steps = 0;
    while (true) {
        double s = scene(o + t * d, r);
        if (fabs(s) < 1e-9) break;
        if (++steps > 60) { break; }
        t += s;
        if (t > 20.) { t = 20.; break; }
    }
    depth[i] = t;
}
"""
LENNARD_JONES = r"""
extern "C" __global__ void lj(const double3* __restrict__ pos, const int* __restrict__ nbr,
    const int* __restrict__ count,
                   double3* __restrict__ force, double* energy, int n, int maxn, double rc2,
                       double sigma, double eps) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const double3 pi = pos[i];
    double3 f = make_double3(0., 0., 0.);
    double e = 0.;
    for (int k = 0; k < count[i]; ++k) {
        const int j = nbr[i * maxn + k];
        double3 d; d.x = pi.x - pos[j].x; d.y = pi.y - pos[j].y; d.z = pi.z - pos[j].z;
        const double r2 = d.x * d.x + d.y * d.y + d.z * d.z;
        if (r2 > rc2) continue;
        const double s2 = sigma * sigma / r2, s6 = s2 * s2 * s2;
        e += 0.5 * 4. * eps * s6 * (s6 - 1.);
        const double ff = 24. * eps * s6 * (2. * s6 - 1.) / r2;
        f.x += ff * d.x; f.y += ff * d.y; f.z += ff * d.z;
    }
    force[i] = f;
    atomicAdd(energy, e);
}
"""
SOFTMAX = r"""
#define WARP 32
template <typename T> __device__ __forceinline__ T warp_max(T v) {
    #pragma unroll
    for (int m = WARP / 2; m > 0; m /= 2) v = fmax(v, __shfl_xor_sync(0xffffffff, v, m));
    return v;
}
__device__ __forceinline__ double warp_sum(double v) {
    for (int m = WARP / 2; m > 0; m >>= 1) v += __shfl_xor_sync(0xffffffff, v, m);
    return v;
}
extern "C" __global__ void softmax4(const double4 *x, double4 *y, int cols4) {
    const double4 *row = x + (size_t)blockIdx.x * cols4;
    double4 *out = y + (size_t)blockIdx.x * cols4;
    double m = -INFINITY;
    for (int c = threadIdx.x; c < cols4; c += WARP) {
        double4 v = row[c];
        m = fmax(m, fmax(fmax(v.x, v.y), fmax(v.z, v.w)));
    }
    m = warp_max<double>(m);
    double s = 0;
    for (int c = threadIdx.x; c < cols4; c += WARP) {
        double4 v = row[c];
        s += exp(v.x - m) + exp(v.y - m) + exp(v.z - m) + exp(v.w - m);
    }
    s = warp_sum(s);
    const double inv = 1. / s;
    for (int c = threadIdx.x; c < cols4; c += WARP) {
        double4 v = row[c];
        out[c] = make_double4(exp(v.x - m) * inv, exp(v.y - m) * inv, exp(v.z - m) * inv,
            exp(v.w - m) * inv);
    }
}
"""
DEPTHWISE = r"""
__constant__ int OFF[3] = {-1, 0, 1};
#define TX 8
#define TY 4
extern "C" __global__ void depthwise(const double* __restrict__ in,
    const double* __restrict__ w, double* __restrict__ out, int C, int H, int W) {
    __shared__ double tile[TY + 2][TX + 2];
    const int c = blockIdx.z, x0 = blockIdx.x * TX, y0 = blockIdx.y * TY;
    const int tid = threadIdx.y * TX + threadIdx.x;
    for (int k = tid; k < (TY + 2) * (TX + 2); k += TX * TY) {
        const int ty = k / (TX + 2), tx = k % (TX + 2);
        const int gy = y0 + ty - 1, gx = x0 + tx - 1;
        tile[ty][tx] = (gy >= 0 && gy < H && gx >= 0 && gx < W) ? in[(c * H + gy) * W + gx] : 0.0;
    }
    __syncthreads();
    const int x = x0 + threadIdx.x, y = y0 + threadIdx.y;
    if (x < W && y < H) {
        double acc = 0;
        #pragma unroll
        for (int a = 0; a < 3; ++a)
            #pragma unroll
            for (int b = 0; b < 3; ++b)
                acc = fma(w[c * 9 + a * 3 + b],
                    tile[threadIdx.y + 1 + OFF[a]][threadIdx.x + 1 + OFF[b]], acc);
        out[(c * H + y) * W + x] = acc;
    }
}
"""
QUANTISE = r"""
extern "C" __global__ void quant(const double *x, double *y, double scale, int zero, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        double q = rint(x[i] / scale) + zero;
        q = fmin(fmax(q, -8.0), 7.0);
        int qi = __double2int_rn(q);
        y[i] = (qi - zero) * scale + 0.25 * x[i];
    }
}
"""
COUNT = r"""
extern "C" __global__ void count_mean(const double *x, double *y, int n, double thr) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double v = i < n ? x[i] : 0.;
    int c = __reduce_add_sync(0xffffffff, i < n && v > thr ? 1 : 0);
    unsigned b = __ballot_sync(0xffffffffu, v > thr);
    int c2 = __popc(b);
    double s = v > thr ? v : 0.;
    for (int o = 16; o; o >>= 1) s += __shfl_down_sync(0xffffffffu, s, o);
    if ((threadIdx.x & 31) == 0) y[blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32] = c ? s /
        (0.5 * (c + c2)) : 0.;
}
"""
POWERS = r"""
template <typename T> __device__ T sq(const T x) { return x * x; }
template <typename T, int N = 2> __device__ T power(T x) { T r = 1; for (int i = 0; i < N;
    i++) r *= x; return r + sq<T>(x); }
template <typename T, int B> __global__ void k(const T *x, T *y, int n) {
    int i = blockIdx.x * B + threadIdx.x;
    if (i < n) y[i] = power(x[i]) + power<T,
        3>(x[i]) + sq(x[i]) * __popc(i) + __ffs(i) - __clz(i) + __popcll(7ull << i) +
            __ffsll(8ll);
}
"""
BRACES = r"""
struct V { double a, b; };
__device__ V operator+(V x, V y) { return {x.a + y.a, x.b + y.b}; }
template <class T> __device__ T twice(const T &v) { return v + v; }
template <class T> __device__ __forceinline__ void swap(T &a, T &b) { T t = a; a = b; b = t; }
__global__ void k(double *x) {
    V v{x[0], x[1]};
    double2 d = double2{x[2], x[0]};
    v = twice(v); swap(v.a, v.b); swap(d.x, d.y);
    x[0] = v.a * d.x; x[1] = v.b + d.y; x[2] = twice(d.y);
}
"""

RNG = np.random.default_rng(0)


def _segmented_scan() -> Any:
    kernel, n = RawKernel(SEGMENTED_SCAN, "seg_scan"), 90
    x, flags = RNG.normal(size=n), (RNG.uniform(size=n) < 0.2).astype(np.int32)
    expected = np.zeros(n)
    for i in range(n):
        expected[i] = x[i] + (expected[i - 1] if i % 32 and not flags[i] else 0)
    return lambda x: kernel.apply(3, 32, (x, flags, np.zeros(n), n)), [x], expected


def _bitonic() -> Any:
    kernel, x = RawKernel(BITONIC, "bitonic"), RNG.normal(size=64)
    out = np.zeros(64), np.zeros(64, np.int32)
    return lambda x: kernel.apply(2, 32, (x, *out))[0], [x], np.sort(x.reshape(2, 32)).ravel()


def _red_black() -> Any:
    kernel, nx, ny = RawKernel(RED_BLACK, "redblack"), 9, 7
    start, f, omega = RNG.normal(size=(ny, nx)), RNG.normal(size=(ny, nx)), 1.3

    def sweeps(u: Any, f: Any, omega: Any) -> Any:
        for k in range(4):
            u = kernel.apply((2, 2), (2, 2), (u, f, nx, ny, 0.01, omega, k % 2))
        return u

    u = start.copy()
    for k in range(4):
        for j in range(1, ny - 1):
            for i in range(1, nx - 1):
                if (i + j) % 2 == k % 2:
                    around = u[j, i - 1] + u[j, i + 1] + u[j - 1, i] + u[j + 1, i]
                    u[j, i] += omega * (0.25 * (around - 0.01 * f[j, i]) - u[j, i])
    return sweeps, [start, f, omega], u


def _march() -> Any:
    kernel = RawKernel(MARCH, "march")
    d = np.concatenate([RNG.uniform(-0.2, 0.2, (6, 2)), np.ones((6, 1))], axis=1)
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    # Where a ray meets a sphere of radius 1 around the origin, from 3 before it.
    b = 3 * d[:, 2]
    depth = b - np.sqrt(b * b - 8)
    return lambda d, r, c: kernel.apply(1, 8, (d, np.zeros(6), r, c, 6)), [d, 1.0, 3.0], depth


def _lennard_jones() -> Any:
    kernel, n = RawKernel(LENNARD_JONES, "lj"), 8
    places = np.stack(np.meshgrid(*[np.arange(2.0)] * 3), -1).reshape(-1, 3) * 1.1
    places += RNG.uniform(-0.05, 0.05, (n, 3))
    near = np.array([[j for j in range(n) if j != i] + [-1] for i in range(n)], np.int32)
    count, force, energy = np.full(n, 7, np.int32), np.zeros((n, 3)), 0.0
    for i in range(n):
        for j in near[i, :-1]:
            d = places[i] - places[j]
            r2 = d @ d
            if r2 <= 3:
                s6 = r2**-3.0
                energy += 2 * 0.8 * s6 * (s6 - 1)
                force[i] += 24 * 0.8 * s6 * (2 * s6 - 1) / r2 * d
    return (
        lambda p, s, e: kernel.apply(
            1, 32, (p, near, count, np.zeros((n, 3)), np.zeros(1), n, 8, 3.0, s, e)
        ),
        [places, 1.0, 0.8],
        (force, np.array([energy])),
    )


def _softmax() -> Any:
    kernel, x = RawKernel(SOFTMAX, "softmax4"), RNG.normal(size=(3, 160))
    e = np.exp(x - x.max(1, keepdims=True))
    expected = e / e.sum(1, keepdims=True)
    return lambda x: kernel.apply(3, 32, (x, np.zeros((3, 160)), 40)), [x], expected


def _depthwise() -> Any:
    kernel, (c, h, w) = RawKernel(DEPTHWISE, "depthwise"), (2, 7, 11)
    x, k = RNG.normal(size=(c, h, w)), RNG.normal(size=(c, 3, 3))
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    moved = [(i, j) for i in range(3) for j in range(3)]
    expected = sum(k[:, i, j, None, None] * wide[:, i : i + h, j : j + w] for i, j in moved)
    out = np.zeros((c, h, w))
    return lambda x, k: kernel.apply((2, 2, c), (8, 4), (x, k, out, c, h, w)), [x, k], expected


def _quantise() -> Any:
    kernel, x = RawKernel(QUANTISE, "quant"), RNG.normal(size=17)
    expected = (np.clip(np.rint(x / 0.37) + 1, -8, 7) - 1) * 0.37 + 0.25 * x
    return lambda x, s: kernel.apply(2, 4, (x, np.zeros(17), s, 1, 17)), [x, 0.37], expected


def _count() -> Any:
    kernel, x = RawKernel(COUNT, "count_mean"), RNG.normal(size=128)
    expected = np.array([v[v > 0.1].mean() for v in x.reshape(4, 32)])
    return lambda x: kernel.apply(2, 64, (x, np.zeros(4), 128, 0.1)), [x], expected


def _powers() -> Any:
    kernel, x = RawKernel(POWERS, "k<double, 4>"), RNG.normal(size=7)
    bits = np.array([i.bit_count() for i in range(7)])
    first = np.array([(i & -i).bit_length() for i in range(7)])
    zeros = np.array([32 - i.bit_length() for i in range(7)])
    expected = 3 * x**2 + x**3 + x * x * bits + first - zeros + 3 + 4
    return lambda x: kernel.apply(2, 4, (x, np.zeros(7), 7)), [x], expected


def _braces() -> Any:
    kernel, x = RawKernel(BRACES, "k"), RNG.normal(size=3)
    expected = np.array([2 * x[1] * x[0], 2 * x[0] + x[2], 2 * x[2]])
    return lambda x: kernel.apply(1, 1, (x,)), [x], expected


IDIOMS: dict[str, Callable[[], Any]] = {
    f.__name__[1:]: f
    for f in (_segmented_scan, _bitonic, _red_black, _march, _lennard_jones, _softmax,
              _depthwise, _quantise, _count, _powers, _braces)
}  # fmt: skip


@pytest.mark.parametrize("name", IDIOMS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_idioms(name: str, backend: str) -> None:
    f, xs, expected = IDIOMS[name]()
    rng, step = np.random.default_rng(1), 1e-6

    def all_of(results: Any) -> tuple[Any, ...]:
        return results if isinstance(results, tuple) else (results,)

    with adarray.use(backend):
        values = [np.asarray(v) for v in all_of(f(*xs))]
        for value, e in zip(values, all_of(expected), strict=True):
            np.testing.assert_allclose(value, e, rtol=1e-8, atol=1e-12)
        weights = [rng.normal(size=v.shape) for v in values]

        def loss(*xs: Any) -> Any:
            return sum(np.sum(w * v) for w, v in zip(weights, all_of(f(*xs)), strict=True))

        gradient = adarray.grad(loss, tuple(range(len(xs))))(*xs)
        along = [rng.normal(size=np.shape(x)) for x in xs]
        tangent = adarray.jvp(loss, tuple(xs), tuple(along))[1]
        above, below = (
            float(loss(*[x + s * t for x, t in zip(xs, along, strict=True)])) for s in (step, -step)
        )
    pulled = sum(np.sum(np.asarray(g) * t) for g, t in zip(gradient, along, strict=True))
    np.testing.assert_allclose(pulled, float(tangent), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(pulled, (above - below) / (2 * step), rtol=1e-5, atol=1e-7)


def test_a_template_that_is_refused_names_its_own_line() -> None:
    source = """template <typename T> __device__ T f(T x) {
    return tex2D(x, 1);
}
__global__ void k(float *x) {
    x[0] = f(x[1]);
}"""
    with pytest.raises(adarray.errors.KernelError, match="line 2: tex2D: textures"):
        RawKernel(source, "k")
    source = "template <int N> __device__ float f(float x) { return N * x; }\n"
    with pytest.raises(adarray.errors.KernelError, match="line 1: the template 'f' is called"):
        RawKernel(source + "__global__ void k(float *x) { x[0] = f(x[1]); }", "k")
