/* Substitution with the triangles of a factorisation; adarray_solvers.h stands before this text. */

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
