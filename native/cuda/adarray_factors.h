/* LU and Cholesky factors in shared memory; adarray_solvers.h stands before this text. */

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
        const int k = k0 + c, slot = c % 2;
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
            p.size[slot][warp] = most;
            p.place[slot][warp] = first;
        }
#pragma unroll
        for (int q = 0; q < ROWS; q++)
            if (place[q] >= k && (uint32_t)place[q] == first) p.row[slot][warp] = row_of(r[q]);
        __syncthreads();
        const Size theirs = lane < WARPS ? p.size[slot][lane] : (Size)0;
        const uint32_t there = lane < WARPS ? p.place[slot][lane] : ~0u;
        const Size best = most_of_warp(theirs);
        const uint32_t pivot = least_of_warp(theirs == best ? there : ~0u);
        const uint32_t of = least_of_warp(there == pivot && lane < WARPS ? (uint32_t)lane : ~0u);
        const Row row = p.row[slot][of];
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
