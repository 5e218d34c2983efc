/* Factorisations of matrices, and substitution, for backends/cuda/solvers.py.
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

#if defined(WITH_LU) || defined(WITH_PANELS)
/* -- LU factors with partial pivoting ------------------------------------------------------- */

/* What the warps propose as the next pivot: its size, where its row is, and the row. There are two,
 * for columns in turn, so that one barrier per column is enough. */
struct Proposals {
    Row row[2][WARPS];
    Size size[2][WARPS];
    uint32_t place[2][WARPS];
};

/* What a panel leaves for the columns behind it: the rows that move, and by columns the rows that were
 * pivots. */
struct Panel {
    Row corner[PANEL];
    unsigned count;
    int from[2 * PANEL], to[2 * PANEL];
};

/* Factorise columns k0 to k0 + PANEL, if there are so many; rows stay with their threads and change
 * their places at the end. */
template <int ROWS>
ADARRAY_IN void factor_panel(real *w, int ld, int k0, int m, int n, Proposals &p, Panel &panel)
{
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, width = least_of(PANEL, n - k0);
    real r[ROWS][PANEL];
    int place[ROWS]; /* below k: no row, or one that was a pivot */
    int home[ROWS];  /* of pivots, the place that they get; else -1 */
#pragma unroll
    for (int q = 0; q < ROWS; q++) {
        const int i = t + q * THREADS;
        place[q] = i >= k0 && i < m ? i : -1;
        home[q] = -1;
#pragma unroll
        for (int c = 0; c < PANEL; c++)
            r[q][c] = place[q] >= 0 && c < width ? w[(k0 + c) * ld + i] : (real)0;
    }
    if (t == 0) panel.count = 0;
#pragma unroll
    for (int c = 0; c < PANEL; c++) {
        if (c >= width) break;
        const int k = k0 + c, turn = c % 2;
        Size size = 0;
        uint32_t at = ~0u;
#pragma unroll
        for (int q = 0; q < ROWS; q++) {
            const Size own = order_of(r[q][c]);
            if (place[q] >= k && (own > size || (own == size && (uint32_t)place[q] < at))) {
                size = own;
                at = (uint32_t)place[q];
            }
        }
        const Size most = most_of_warp(size);
        const uint32_t first = least_of_warp(size == most ? at : ~0u);
        if (lane == 0) {
            p.size[turn][warp] = most;
            p.place[turn][warp] = first;
        }
#pragma unroll
        for (int q = 0; q < ROWS; q++)
            if (place[q] >= k && (uint32_t)place[q] == first) p.row[turn][warp] = row_of(r[q]);
        __syncthreads();
        const Size theirs = lane < WARPS ? p.size[turn][lane] : (Size)0;
        const uint32_t there = lane < WARPS ? p.place[turn][lane] : ~0u;
        const Size best = most_of_warp(theirs);
        const uint32_t pivot = least_of_warp(theirs == best ? there : ~0u);
        const uint32_t of = least_of_warp(there == pivot && lane < WARPS ? (uint32_t)lane : ~0u);
        const Row row = p.row[turn][of];
#pragma unroll
        for (int q = 0; q < ROWS; q++) {
            if (place[q] < k) continue;
            if ((uint32_t)place[q] == pivot) {
                home[q] = k;
                place[q] = -1;
                continue;
            }
            if (place[q] == k) place[q] = (int)pivot;
            if (row[c] != 0) r[q][c] /= row[c];
#pragma unroll
            for (int j = c + 1; j < PANEL; j++) r[q][j] = fused(-r[q][c], row[j], r[q][j]);
        }
    }
#pragma unroll
    for (int q = 0; q < ROWS; q++) {
        const int i = t + q * THREADS, end = home[q] >= 0 ? home[q] : place[q];
        if (end < 0) continue;
#pragma unroll
        for (int c = 0; c < PANEL; c++)
            if (c < width) {
                w[(k0 + c) * ld + end] = r[q][c];
                if (home[q] >= 0) panel.corner[c].packs[(end - k0) / WIDE].v[(end - k0) % WIDE] = r[q][c];
            }
        if (end != i) {
            const unsigned e = atomicAdd(&panel.count, 1u);
            panel.from[e] = i;
            panel.to[e] = end;
        }
    }
}

/* Factorise m rows of n columns, n <= m; order[i] becomes the row that is at place i now. */
template <int ROWS>
ADARRAY_IN void factor(real *w, int ld, int m, int n, real *by, int *order)
{
    __shared__ Proposals proposals;
    __shared__ Panel panel;
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    for (int k0 = 0; k0 < n; k0 += PANEL) {
        const int k1 = least_of(k0 + PANEL, n);
        factor_panel<ROWS>(w, ld, k0, m, n, proposals, panel);
        __syncthreads();
        const bool moves = lane < panel.count;
        const int source = moves ? panel.from[lane] : 0, target = moves ? panel.to[lane] : 0;
#pragma unroll 4
        for (int j = warp; j < n; j += WARPS) { /* a column for each warp */
            if (j >= k0 && j < k1) continue;
            const real x = w[j * ld + source];
            __syncwarp(~0u);
            if (moves) w[j * ld + target] = x;
        }
        if (warp == WARPS - 1) {
            const int x = order[source];
            __syncwarp(~0u);
            if (moves) order[target] = x;
        }
        __syncthreads();
        for (int j = k1 + t; j < n; j += THREADS) {
            real u[PANEL];
#pragma unroll
            for (int c = 0; c < PANEL; c++) u[c] = w[j * ld + k0 + c];
#pragma unroll
            for (int c = 0; c < PANEL; c++) {
                const Row l = panel.corner[c];
#pragma unroll
                for (int d = c + 1; d < PANEL; d++) u[d] = fused(-l[d], u[c], u[d]);
                w[j * ld + k0 + c] = u[c];
            }
            *(Row *)(by + j * PANEL) = row_of(u);
        }
        __syncthreads();
        if (k1 < n) update(w, ld, by, k0, m, n, false);
        __syncthreads();
    }
}

/* Bring a matrix, factorise it, and store the factors in columns at a distance of `step`. */
template <int ROWS>
ADARRAY_IN void decompose(char *near, int *order, const real *a, real *lu, int m, int n,
                          int64_t s0, int64_t s1, int64_t step)
{
    real *w = (real *)near;
    const int ld = m | 1;
    bring(w, ld, a, m, n, s0, s1, false);
    adarray_commit();
    for (int i = threadIdx.x; i < m; i += THREADS) order[i] = i;
    adarray_arrived<0>();
    __syncthreads();
    factor<ROWS>(w, ld, m, n, behind(near, ld, n), order);
    for (int j = threadIdx.x / 32; j < n; j += WARPS)
        for (int i = threadIdx.x % 32; i < m; i += 32) lu[i + j * step] = w[j * ld + i];
}
#endif

#ifdef WITH_LU
/* The factors of a matrix whose element (i, j) is a[i * s0 + j * s1], in columns, and the order of its
 * rows in them. */
extern "C" __global__ void __launch_bounds__(THREADS)
decomposed(const real *a, real *lu, int *order, int64_t n, int64_t s0, int64_t s1)
{
    ADARRAY_NEAR(near);
    __shared__ int rows[THREADS];
    decompose<1>(near, rows, a, lu, (int)n, (int)n, s0, s1, n);
    if (threadIdx.x < n) order[threadIdx.x] = rows[threadIdx.x];
}
#endif

#ifdef WITH_PANELS
/* Factorise m rows of n columns, n <= m, in place; `order` is the order that all rows have had so far,
 * if they have one, and `moves` that of these. */
extern "C" __global__ void __launch_bounds__(THREADS)
panel_decomposed(real *lu, int *order, int *moves, int64_t m, int64_t n, int64_t step,
                 int64_t ordered)
{
    ADARRAY_NEAR(near);
    __shared__ int rows[TALL * THREADS];
    int before[TALL];
    decompose<TALL>(near, rows, lu, lu, (int)m, (int)n, 1, step, step);
#pragma unroll
    for (int q = 0; q < TALL; q++) {
        const int i = threadIdx.x + q * THREADS;
        if (i < m) before[q] = ordered ? order[rows[i]] : rows[i];
    }
    __syncthreads();
#pragma unroll
    for (int q = 0; q < TALL; q++) {
        const int i = threadIdx.x + q * THREADS;
        if (i < m) {
            order[i] = before[q];
            moves[i] = rows[i];
        }
    }
}
#endif

#ifdef WITH_CHOLESKY
/* -- Cholesky's factor ---------------------------------------------------------------------- */

ADARRAY_IN float inverse_root(float x)
{
#ifdef __CUDA_ARCH__
    return rsqrtf(x);
#else
    return 1 / sqrtf(x);
#endif
}
ADARRAY_IN double inverse_root(double x)
{
#ifdef __CUDA_ARCH__
    return rsqrt(x);
#else
    return 1 / sqrt(x);
#endif
}

/* Factorise columns k0 to k0 + PANEL: the block on the diagonal by every warp, a row in each thread,
 * which exchange what they need; and the rows below as well, which are written to `by`, too. */
ADARRAY_IN bool root_panel(real *w, int ld, int k0, int n, real *by)
{
    const int lane = threadIdx.x % 32, width = least_of(PANEL, n - k0);
    const int i = k0 + width + threadIdx.x, near = least_of(k0 + lane, n - 1);
    real d[PANEL], r[PANEL];
    bool fine = true;
#pragma unroll
    for (int c = 0; c < PANEL; c++) {
        d[c] = c < width ? w[(k0 + c) * ld + near] : (real)0;
        r[c] = c < width && i < n ? w[(k0 + c) * ld + i] : (real)0;
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < PANEL; c++) {
        if (c >= width) break;
        const real pivot = __shfl_sync(~0u, d[c], c);
        fine = fine && pivot > 0;
        real half = inverse_root(pivot), root = pivot * half;
        half *= (real)0.5;
        const real rest = fused(-root, half, (real)0.5);
        root = fused(root, rest, root);
        const real inverse = 2 * fused(half, rest, half);
        d[c] = lane == c ? root : d[c] * inverse;
        r[c] *= inverse;
#pragma unroll
        for (int j = c + 1; j < PANEL; j++) {
            const real other = -__shfl_sync(~0u, d[c], j);
            d[j] = fused(d[c], other, d[j]);
            r[j] = fused(r[c], other, r[j]);
        }
    }
#pragma unroll
    for (int c = 0; c < PANEL; c++) {
        if (c < width && i < n) by[i * PANEL + c] = w[(k0 + c) * ld + i] = r[c];
        if (threadIdx.x < width && c <= lane) w[(k0 + c) * ld + near] = d[c];
    }
    return fine;
}

/* The factor of the matrix of which a[i * s0 + j * s1] is element (i, j), i >= j, where `to` has it:
 * at to[i * t0 + j * t1]. */
extern "C" __global__ void __launch_bounds__(THREADS)
cholesky(const real *a, real *to, int *refused, int64_t n, int64_t s0, int64_t s1, int64_t t0,
         int64_t t1)
{
    ADARRAY_NEAR(near);
    real *w = (real *)near;
    const int ld = (int)n | 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    real *by = behind(near, ld, (int)n);
    bool fine = true;
    bring(w, ld, a, (int)n, (int)n, s0, s1, true);
    adarray_commit();
    adarray_arrived<0>();
    __syncthreads();
    for (int k0 = 0; k0 < n; k0 += PANEL) {
        fine = root_panel(w, ld, k0, (int)n, by) && fine;
        __syncthreads();
        if (k0 + PANEL < n) update(w, ld, by, k0, (int)n, (int)n, true);
        __syncthreads();
    }
    if (!fine && threadIdx.x == 0) *refused = 1;
    const bool across = t1 == 1;
    for (int p = warp; p < n; p += WARPS)
        for (int q = lane; q < n; q += 32) {
            const int i = across ? p : q, j = across ? q : p;
            to[i * t0 + j * t1] = j > i ? (real)0 : w[j * ld + i];
        }
}
#endif

/* -- substitution --------------------------------------------------------------------------- */

/* Begin to copy columns j0 to j0 + SQUARE of a triangle, with the rows that are not zero. */
ADARRAY_IN void bring_columns(real *p, int ld, const real *m, int n, int j0, int64_t row,
                              int64_t column, bool forward)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int begin = forward ? j0 : 0, end = forward ? n : least_of(n, j0 + SQUARE);
    if (row == 1)
        for (int l = warp; l < SQUARE; l += WARPS)
            for (int i = begin + lane; i < end; i += 32)
                if (j0 + l < n)
                    adarray_begin<sizeof(real)>(p + l * ld + i, m + i + (j0 + l) * column);
                else
                    p[l * ld + i] = 0;
    else
        for (int i = begin + warp; i < end; i += WARPS)
            if (j0 + lane < n)
                adarray_begin<sizeof(real)>(p + lane * ld + i,
                                            m + i * row + (j0 + lane) * column);
            else
                p[lane * ld + i] = 0;
}

/* Solve for one column of each warp, x, in place; m[i * row + j * column] is element (i, j) of a
 * triangle, the lower one if forward. `panels` has room for 2 * SQUARE columns. */
ADARRAY_IN void substitute(const real *m, real *x, real *panels, int *refused, int n, int64_t row,
                           int64_t column, bool forward, bool unit)
{
    const int lane = threadIdx.x % 32, ld = n | 1, blocks = (n + SQUARE - 1) / SQUARE;
    bring_columns(panels, ld, m, n, forward ? 0 : (blocks - 1) * SQUARE, row, column, forward);
    adarray_commit();
    for (int s = 0; s < blocks; s++) {
        const int j0 = (forward ? s : blocks - 1 - s) * SQUARE, width = least_of(SQUARE, n - j0);
        if (s + 1 < blocks)
            bring_columns(panels + (s + 1) % 2 * SQUARE * ld, ld, m, n,
                          forward ? j0 + SQUARE : j0 - SQUARE, row, column, forward);
        adarray_commit();
        adarray_arrived<1>();
        __syncthreads();
        const real *p = panels + s % 2 * SQUARE * ld;
        const int own = least_of(j0 + lane, n - 1);
        const real diagonal = p[(own - j0) * ld + own];
        if (!unit && diagonal == 0) *refused = 1;
        const real inverse = unit ? (real)1 : 1 / diagonal;
        real mine = x[j0 + lane];
#pragma unroll 8
        for (int step = 0; step < SQUARE; step++) {
            const int l = forward ? step : SQUARE - 1 - step;
            const real y = __shfl_sync(~0u, mine * inverse, l);
            const bool after = l < width && (forward ? lane > l : lane < l);
            if (after) mine = fused(-p[l * ld + own], y, mine);
        }
        x[j0 + lane] = lane < width ? mine * inverse : (real)0;
        __syncwarp(~0u);
        real y[SQUARE];
#pragma unroll
        for (int l = 0; l < SQUARE; l++) y[l] = -x[j0 + l];
        const int begin = forward ? j0 + SQUARE : 0, end = forward ? n : j0;
        for (int i = begin + lane; i < end; i += 32) {
            real sum[4] = {x[i], 0, 0, 0};
#pragma unroll
            for (int l = 0; l < SQUARE; l++) sum[l % 4] = fused(p[l * ld + i], y[l], sum[l % 4]);
            x[i] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        }
        __syncthreads();
    }
}

/* Fill x with the column of b that this warp solves for, or of the identity where b is null; order[i]
 * is the row that comes to place i. Return the column. */
ADARRAY_IN int64_t fill_column(real *x, const real *b, const int *order, int n, int64_t k,
                               int64_t s0, int64_t s1)
{
    const int64_t j = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int size = (n + SQUARE - 1) / SQUARE * SQUARE;
#pragma unroll 4
    for (int i = threadIdx.x % 32; i < size; i += 32) {
        const int64_t row = order && i < n ? order[i] : i;
        x[i] = i >= n || j >= k ? (real)0 : b ? b[row * s0 + j * s1] : (real)(row == j);
    }
    __syncwarp(~0u);
    return j;
}

ADARRAY_IN void store_column(const real *x, real *to, const int *order, int n, int64_t k,
                             int64_t j, int64_t t0, int64_t t1)
{
    for (int i = threadIdx.x % 32; i < n && j < k; i += 32)
        to[(order ? order[i] : i) * t0 + j * t1] = x[i];
}

/* The column of each warp, of a multiple of SQUARE elements, behind the panels. */
ADARRAY_IN real *column_of(char *near, int n)
{
    const int size = (n + SQUARE - 1) / SQUARE * SQUARE;
    return (real *)near + 2 * SQUARE * (n | 1) + threadIdx.x / 32 * size;
}

#ifdef WITH_SOLVED
/* Solve with factors and the order of rows that `decomposed` wrote, or with their transpose. */
extern "C" __global__ void __launch_bounds__(THREADS)
solved(const real *lu, const int *order, const real *b, real *to, int *refused, int64_t n,
       int64_t k, int64_t s0, int64_t s1, int64_t transposed)
{
    ADARRAY_NEAR(near);
    real *panels = (real *)near, *x = column_of(near, (int)n);
    const int64_t j = fill_column(x, b, transposed ? order : nullptr, (int)n, k, s0, s1);
    /* The transpose of what the caller has was factorised. */
    const int64_t row = transposed ? 1 : n, column = transposed ? n : 1;
#pragma unroll 1
    for (int backward = 0; backward < 2; backward++)
        substitute(lu, x, panels, refused, (int)n, row, column, !backward, transposed != backward);
    __syncwarp(~0u);
    store_column(x, to, transposed ? nullptr : order, (int)n, k, j, k, 1);
}
#endif

#ifdef WITH_TRIANGLE
/* Solve with a triangle, element (i, j) at f[i * r0 + j * r1]; those of b and the result have s0, s1, and
 * t0, t1. */
extern "C" __global__ void __launch_bounds__(THREADS)
triangle_solved(const real *f, const real *b, real *to, int *refused, int64_t n, int64_t r0,
                int64_t r1, int64_t k, int64_t s0, int64_t s1, int64_t t0, int64_t t1,
                int64_t flags)
{
    ADARRAY_NEAR(near);
    real *x = column_of(near, (int)n);
    const int64_t j = fill_column(x, b, nullptr, (int)n, k, s0, s1);
    substitute(f, x, (real *)near, refused, (int)n, r0, r1, flags & FORWARD, flags & UNIT);
    store_column(x, to, nullptr, (int)n, k, j, t0, t1);
}
#endif

#ifdef WITH_PANELS
/* Move the rows of all columns beside a panel as `moves` says; those behind it are solved for with the
 * panel's lower triangle. `first` is the first of m rows in the first column; the panel has n columns,
 * of which `left` lie before it and `right` behind. */
extern "C" __global__ void __launch_bounds__(THREADS)
rows_moved(real *first, const int *moves, int64_t m, int64_t n, int64_t step, int64_t left,
           int64_t right)
{
    ADARRAY_NEAR(near);
    const int lane = threadIdx.x % 32, size = (int)(m + SQUARE - 1) / SQUARE * SQUARE;
    real *x = (real *)near + 2 * SQUARE * (n | 1) + threadIdx.x / 32 * 2 * size, *y = x + size;
    const int64_t c = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const bool any = c < left + right;
    real *column = first + (c < left ? c : c + n) * step;
    for (int i = lane; i < size; i += 32) x[i] = any && i < m ? column[i] : (real)0;
    __syncwarp(~0u);
    for (int i = lane; i < size; i += 32) y[i] = i < m ? x[moves[i]] : (real)0;
    __syncwarp(~0u);
    if (any && c < left)
        for (int i = lane; i < m; i += 32) column[i] = y[i];
    __syncwarp(~0u);
    if (!right) return;
    substitute(first + left * step, y, (real *)near, nullptr, (int)n, 1, step, true, true);
    if (any && c >= left)
        for (int i = lane; i < m; i += 32) column[i] = y[i];
}
#endif

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
