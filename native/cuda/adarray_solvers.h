/* Factorisations of matrices, and substitution, for backends/cuda/solvers.py: what their kernels share,
 * and kernels over whole matrices. adarray_factors.h and adarray_substitution.h follow it in one text.
 *
 * One block factorises what its shared memory holds: w has columns of `ld` elements, an odd number, so
 * that neither rows nor columns meet in a bank. It goes over PANEL columns at a time, whose elements
 * each thread has in registers, one row per thread; then all of the rest is updated. Larger matrices
 * are factorised in blocks by several launches.
 *
 * `REAL` is float or double; WITH_LU and others say which kernels are compiled. Sums are of fused
 * products, as LAPACK's are.
 */
#include "adarray_device.h"

typedef REAL real;
#define THREADS 256
#define WARPS 8
#define PANEL 16 /* columns */
#define SQUARE 32 /* side of a block on the diagonal, and of a tile */
#define TALL (sizeof(real) == 4 ? 3 : 2) /* rows of each thread of a panel */
#define FORWARD 1 /* flags */
#define UNIT 2

ADARRAY_IN float fused(float a, float b, float c) { return fmaf(a, b, c); }
ADARRAY_IN double fused(double a, double b, double c) { return fma(a, b, c); }
ADARRAY_IN real size_of(real x) { return x < 0 ? -x : x; }
ADARRAY_IN int least_of(int a, int b) { return a < b ? a : b; }

/* -- over the threads of a warp ------------------------------------------------------------- */

ADARRAY_IN uint32_t most_of_warp(uint32_t x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_max_sync(~0u, x);
#else
    for (int far = 16; far; far /= 2) {
        const uint32_t y = __shfl_xor_sync(~0u, x, far);
        x = x > y ? x : y;
    }
    return x;
#endif
}
ADARRAY_IN uint32_t least_of_warp(uint32_t x) { return ~most_of_warp(~x); }

/* Sizes as integers, which are ordered as they are; nan is smaller than all others. */
ADARRAY_IN uint32_t order_of(float x)
{
    union { float x; uint32_t bits; } u = {x};
    return x == x ? u.bits & 0x7fffffffu : 0;
}
ADARRAY_IN uint64_t order_of(double x)
{
    union { double x; uint64_t bits; } u = {x};
    return x == x ? u.bits & 0x7fffffffffffffffull : 0;
}
ADARRAY_IN uint64_t most_of_warp(uint64_t x)
{
    const uint32_t high = most_of_warp((uint32_t)(x >> 32));
    const uint32_t low = most_of_warp(x >> 32 == high ? (uint32_t)x : 0u);
    return (uint64_t)high << 32 | low;
}
typedef decltype(order_of((real)0)) Size;

/* The elements of a row in the columns of a panel, which few instructions move. */
#define WIDE (16 / (int)sizeof(real))
struct Row {
    adarray_pack<real, WIDE> packs[PANEL / WIDE];
    __device__ real operator[](int c) const { return packs[c / WIDE].v[c % WIDE]; }
};
ADARRAY_IN Row row_of(const real *r)
{
    Row row;
#pragma unroll
    for (int c = 0; c < PANEL; c++) row.packs[c / WIDE].v[c % WIDE] = r[c];
    return row;
}

/* -- matrices in shared memory -------------------------------------------------------------- */

/* Begin to copy m rows of n columns, element (i, j) from a[i * s0 + j * s1] to w[j * ld + i]; of a
 * triangle nothing above the diagonal. */
ADARRAY_IN void bring(real *w, int ld, const real *a, int m, int n, int64_t s0, int64_t s1,
                      bool triangle)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (s1 == 1)
        for (int i = warp; i < m; i += WARPS)
            for (int j = lane; j < (triangle ? least_of(n, i + 1) : n); j += 32)
                adarray_begin<sizeof(real)>(w + j * ld + i, a + i * s0 + j);
    else
        for (int j = warp; j < n; j += WARPS)
            for (int i = (triangle ? j : 0) + lane; i < m; i += 32)
                adarray_begin<sizeof(real)>(w + j * ld + i, a + i * s0 + j * s1);
}

/* Subtract from rows and columns k0 + PANEL and on the product of the panel's columns with `by`, which
 * has PANEL elements for each column; of a triangle only what lies on the diagonal and below. */
ADARRAY_IN void update(real *w, int ld, const real *by, int k0, int m, int n, bool triangle)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, k1 = k0 + PANEL;
    const int chunks = (m - k1 + 63) / 64, groups = (n - k1 + 7) / 8;
    for (int item = warp; item < chunks * groups; item += WARPS) {
        const int row = k1 + item % chunks * 64, j0 = k1 + item / chunks * 8;
        if (triangle && row + 63 < j0) continue;
        const int i0 = row + lane, i1 = i0 + 32;
        /* Threads without a row read the last one of the panel, which nobody writes now; what is
         * updated they must not read: its owner writes it, with no barrier between. */
        const bool is0 = i0 < m, is1 = i1 < m;
        const int a0 = least_of(i0, m - 1), a1 = least_of(i1, m - 1);
        real l0[PANEL], l1[PANEL];
#pragma unroll
        for (int c = 0; c < PANEL; c++) {
            l0[c] = w[(k0 + c) * ld + a0];
            l1[c] = w[(k0 + c) * ld + a1];
        }
        const int end = least_of(j0 + 8, n);
#pragma unroll 2
        for (int j = j0; j < end; j++) {
            const Row u = *(const Row *)(by + j * PANEL);
            real x0 = is0 ? w[j * ld + i0] : (real)0, x1 = is1 ? w[j * ld + i1] : (real)0;
#pragma unroll
            for (int c = 0; c < PANEL; c++) {
                x0 = fused(l0[c], -u[c], x0);
                x1 = fused(l1[c], -u[c], x1);
            }
            if (is0) w[j * ld + i0] = x0;
            if (is1) w[j * ld + i1] = x1;
        }
    }
}

/* Where what `update` multiplies with lies, behind the matrix. */
ADARRAY_IN real *behind(char *near, int ld, int n)
{
    return (real *)(near + ((size_t)ld * n * sizeof(real) + 15) / 16 * 16);
}

#ifdef WITH_WHOLE
/* -- over whole matrices -------------------------------------------------------------------- */

/* Subtract the product of m rows of `depth` columns, a, with b from c, of n columns; of a triangle
 * nothing above the diagonal. */
extern "C" __global__ void __launch_bounds__(THREADS)
subtracted(real *c, const real *a, const real *b, int64_t m, int64_t n, int64_t depth, int64_t c0,
           int64_t c1, int64_t a0, int64_t a1, int64_t b0, int64_t b1, int64_t triangle)
{
    __shared__ real rows[SQUARE][SQUARE + 1], columns[SQUARE][SQUARE + 1];
    const int lane = threadIdx.x % SQUARE, warp = threadIdx.x / SQUARE;
    const int64_t across = (n + SQUARE - 1) / SQUARE;
    const int64_t i0 = blockIdx.x / across * SQUARE, j0 = blockIdx.x % across * SQUARE;
    real sum[SQUARE / WARPS] = {};
    if (triangle && i0 < j0) return;
    for (int64_t k0 = 0; k0 < depth; k0 += SQUARE) {
#pragma unroll
        for (int q = 0; q < SQUARE; q += WARPS) { /* the lane is that of the smaller stride */
            const int other = warp + q;
            const int i = a1 == 1 ? other : lane, ka = a1 == 1 ? lane : other;
            const int j = b1 == 1 ? lane : other, kb = b1 == 1 ? other : lane;
            rows[ka][i] = i0 + i < m && k0 + ka < depth
                ? a[(i0 + i) * a0 + (k0 + ka) * a1] : (real)0;
            columns[kb][j] = j0 + j < n && k0 + kb < depth
                ? b[(k0 + kb) * b0 + (j0 + j) * b1] : (real)0;
        }
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < SQUARE; k++) {
            const real y = columns[k][lane];
#pragma unroll
            for (int q = 0; q < SQUARE / WARPS; q++)
                sum[q] = fused(rows[k][warp + q * WARPS], y, sum[q]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int q = 0; q < SQUARE / WARPS; q++) {
        const int64_t i = i0 + warp + q * WARPS, j = j0 + lane;
        if (i < m && j < n && !(triangle && j > i)) c[i * c0 + j * c1] -= sum[q];
    }
}

/* A matrix in rows without gaps, or one of its triangles, 1 the lower one, 2 the upper one; the identity
 * where there is none to copy. */
extern "C" __global__ void __launch_bounds__(THREADS)
laid(const real *from, real *to, int64_t rows, int64_t columns, int64_t s0, int64_t s1,
     int64_t triangle)
{
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < rows * columns;
         e += (int64_t)gridDim.x * THREADS) {
        const int64_t i = e / columns, j = e % columns;
        const bool zero = (triangle == 1 && j > i) || (triangle == 2 && j < i);
        to[e] = zero ? (real)0 : from ? from[i * s0 + j * s1] : (real)(i == j);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
nonzero(const real *diagonal, int *refused, int64_t n, int64_t step)
{
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        if (diagonal[i * step] == 0) *refused = 1;
}

/* The other triangle becomes zero; a diagonal that is not above zero is refused. */
extern "C" __global__ void __launch_bounds__(THREADS)
triangular(real *to, const int *info, int *refused, int64_t n, int64_t upper)
{
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < n * n;
         e += (int64_t)gridDim.x * THREADS) {
        const int64_t i = e / n, j = e % n;
        if (upper ? i > j : i < j) to[e] = 0;
        if (i == j && (*info != 0 || !(to[e] > 0))) *refused = 1;
    }
}

/* Sign and logarithm of the determinant, or the determinant. Rows are given by their order, or by the
 * exchanges that led to it, counted from 1. */
extern "C" __global__ void __launch_bounds__(THREADS)
determined(const real *lu, const int *pivots, real *to, real *logarithm, int64_t n,
           int64_t ordered)
{
    __shared__ double sums[THREADS];
    __shared__ int signs[THREADS];
    const int t = threadIdx.x;
    double sum = 0;
    int sign = 1;
    for (int64_t i = t; i < n; i += THREADS) {
        const real d = lu[i * n + i];
        bool odd = d < 0;
        if (ordered)
            for (int64_t j = i + 1; j < n; j++) odd ^= pivots[j] < pivots[i];
        else
            odd ^= pivots[i] != i + 1;
        sign = d == 0 ? 0 : odd ? -sign : sign;
        sum += d == 0 ? 0 : log((double)size_of(d));
    }
    sums[t] = sum;
    signs[t] = sign;
    __syncthreads();
    for (int far = THREADS / 2; far; far /= 2) {
        if (t < far) {
            sums[t] += sums[t + far];
            signs[t] *= signs[t + far];
        }
        __syncthreads();
    }
    if (t) return;
    const double size = signs[0] ? sums[0] : log(0.0);
    if (logarithm) *logarithm = (real)size;
    *to = (real)(logarithm ? (double)signs[0] : signs[0] * exp(size));
}
#endif
