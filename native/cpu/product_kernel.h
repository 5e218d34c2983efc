/* Products of matrices of one type, for product.h, which defines the type T, vectors V of
 * LANES elements and their operations, and N(name), the name with the type's suffix.
 *
 * The columns of a result are cut into slivers of two vectors, the rows into blocks of at most
 * ROWS, so that a block's sums stay in registers while it runs along k (Goto and van de Geijn,
 * "Anatomy of High-Performance Matrix Multiplication", 2008). Operands are read where they lie
 * as long as their rows do not compete for the same lines of the cache, and copied otherwise.
 *
 * References:
 * - K. Goto, R. A. van de Geijn, "Anatomy of high-performance matrix multiplication", ACM
 *   Trans. Math. Softw. 34 (2008), article 12.
 */

/* c of m by n elements, a of m by k, b of k by n; steps from row to row and from column to
 * column are counted in elements. */
typedef struct {
    intptr_t m, n, k;
    const T *a;
    intptr_t arow, acol;
    const T *b;
    intptr_t brow, bcol;
    T *c;
    intptr_t ldc;
} N(Operands);

/* Add row k of b times the elements k of `rows` rows of a to their sums. */
static inline __attribute__((always_inline)) void N(step)(
    const int rows, const int vectors, const int whole, M mask, const T *a, intptr_t ai,
    const T *b, V *s0, V *s1)
{
    const V b0 = vectors == 2 || whole ? LOAD(b) : LOAD_PART(mask, b);
    const V b1 = vectors == 1 ? b0 : whole ? LOAD(b + LANES) : LOAD_PART(mask, b + LANES);
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        const V x = SPREAD(a[i * ai]);
        s0[i] = FMA(x, b0, s0[i]);
        if (vectors == 2) s1[i] = FMA(x, b1, s1[i]);
    }
}

/* c[0..rows][0..width] (+)= the sum over k of a[i * ai + k * ak] * b[j + k * bk]; `vectors` of
 * columns, of which the last one has the lanes in `mask`. A masked load costs as much as a
 * multiplication: b has all lanes if it is `whole`. The steps of `packed` copies are constants. */
static inline __attribute__((always_inline)) void N(sums)(
    const int rows, const int vectors, const int whole, const int packed, M mask, intptr_t kc,
    const T *a, intptr_t ai, intptr_t ak, const T *b, intptr_t bk, T *c, intptr_t ldc, int add)
{
    const int unroll = packed ? UNROLL : 1, lead = packed ? AHEAD : 8;
    /* Many lines of c at once, from memory, would keep those of a and b waiting. */
    const int spread = packed && kc >= 4 * ROWS * UNROLL;
    V s0[ROWS], s1[ROWS];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        s0[i] = s1[i] = ZERO();
        if (!spread) {
            PREFETCH(c + i * ldc);
            if (vectors == 2) PREFETCH(c + i * ldc + LANES);
        }
    }
    intptr_t k = kc;
    const T *next = c;
    for (int left = spread ? 2 * rows : 0; k >= unroll; k -= unroll) {
        if (packed && left > 0) {
            PREFETCH(next);
            next = --left == rows ? c + LANES : next + ldc;
        }
#pragma GCC unroll 16
        for (int u = 0; u < unroll; u++) {
            PREFETCH(b + (u + lead) * bk);
            if (vectors == 2) PREFETCH(b + (u + lead) * bk + LANES);
            N(step)(rows, vectors, whole, mask, a + u * ak, ai, b + u * bk, s0, s1);
        }
        a += unroll * ak;
        b += unroll * bk;
    }
    for (; unroll > 1 && k > 0; k--) {
        N(step)(rows, vectors, whole, mask, a, ai, b, s0, s1);
        a += ak;
        b += bk;
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        T *to = c + i * ldc;
        if (vectors == 2) {
            STORE(to, add ? ADD(LOAD(to), s0[i]) : s0[i]);
            to += LANES;
        }
        const V last = vectors == 2 ? s1[i] : s0[i];
        STORE_PART(to, mask, add ? ADD(LOAD_PART(mask, to), last) : last);
    }
}

#define BLOCK(R)                                                                              \
    static __attribute__((noinline)) void N(block_##R)(                                       \
        int vectors, M mask, intptr_t kc, const T *a, intptr_t ai, intptr_t ak, const T *b,   \
        intptr_t bk, T *c, intptr_t ldc, int add)                                             \
    {                                                                                         \
        if (vectors == 1) N(sums)(R, 1, 0, 0, mask, kc, a, ai, ak, b, bk, c, ldc, add);       \
        else if (mask != ALL) N(sums)(R, 2, 0, 0, mask, kc, a, ai, ak, b, bk, c, ldc, add);   \
        else if (ai == 1 && ak == R && bk == 2 * LANES)                                       \
            N(sums)(R, 2, 1, 1, mask, kc, a, 1, R, b, 2 * LANES, c, ldc, add);                \
        else if (ai == 1) N(sums)(R, 2, 1, 0, mask, kc, a, 1, ak, b, bk, c, ldc, add);        \
        else N(sums)(R, 2, 1, 0, mask, kc, a, ai, ak, b, bk, c, ldc, add);                    \
    }
BLOCK(1) BLOCK(2) BLOCK(3) BLOCK(4) BLOCK(5) BLOCK(6) BLOCK(7)
BLOCK(8) BLOCK(9) BLOCK(10) BLOCK(11) BLOCK(12) BLOCK(13) BLOCK(14)
#undef BLOCK

typedef void (*N(block))(int, M, intptr_t, const T *, intptr_t, intptr_t, const T *, intptr_t,
                         T *, intptr_t, int);
static const N(block) N(blocks)[ROWS + 1] = {
    NULL, N(block_1), N(block_2), N(block_3), N(block_4), N(block_5), N(block_6), N(block_7),
    N(block_8), N(block_9), N(block_10), N(block_11), N(block_12), N(block_13), N(block_14)};

/* Copy `rows` rows of `n` contiguous elements as columns: to[k * step + r] = from[r * row + k]. */
static void N(transposed)(const T *from, intptr_t row, int rows, intptr_t n, T *to, intptr_t step)
{
    for (; rows > 0; rows -= LANES, from += LANES * row, to += LANES) {
        const int count = rows < LANES ? rows : LANES;
        const M mask = count == LANES ? ALL : (M)((1u << count) - 1);
        intptr_t k = 0;
        for (; k + LANES <= n; k += LANES) {
            V x[LANES];
#pragma GCC unroll 16
            for (int r = 0; r < LANES; r++)
                x[r] = LOAD(from + (r < count ? r : count - 1) * row + k);
            N(transpose)(x);
#pragma GCC unroll 16
            for (int r = 0; r < LANES; r++) STORE_PART(to + (k + r) * step, mask, x[r]);
        }
        for (; k < n; k++)
            for (int r = 0; r < count; r++) to[k * step + r] = from[r * row + k];
    }
}

/* Copy m rows of a, cut into `count` blocks, so that a block's elements for one k are
 * neighbours. */
static void N(gather_rows)(const T *a, intptr_t row, intptr_t col, intptr_t m, intptr_t count,
                           intptr_t kc, T *to)
{
    if (col == 1) {
        for (intptr_t t = 0; t < count; t++) {
            const intptr_t i = m * t / count, rows = m * (t + 1) / count - i;
            N(transposed)(a + i * row, row, (int)rows, kc, to + i * kc, rows);
        }
        return;
    }
    for (intptr_t k = 0; k < kc; k++)
        for (intptr_t t = 0; t < count; t++) {
            const intptr_t i = m * t / count, rows = m * (t + 1) / count - i;
            const T *from = a + i * row + k * col;
            T *into = to + i * kc + k * rows;
            /* Each k is on a page of its own, where the processor fetches nothing ahead. */
            PREFETCH(from + 16 * col);
            if (row == 1 && LANES == 16)
                STORE_PART(into, (M)((1u << rows) - 1), LOAD_PART((M)((1u << rows) - 1), from));
            else
                for (intptr_t r = 0; r < rows; r++) into[r] = from[r * row];
        }
}

/* Copy columns of b into slivers of two vectors. */
static void N(gather_columns)(const T *b, intptr_t row, intptr_t col, intptr_t kc, intptr_t n,
                              T *to)
{
    const intptr_t whole = col == 1 && row != 1 ? n / (2 * LANES) * (2 * LANES) : 0;
    for (intptr_t k = 0; whole && k < kc; k++)
        for (intptr_t j = 0; j < whole; j += 2 * LANES) {
            T *into = to + j * kc + k * 2 * LANES;
            STORE(into, LOAD(b + k * row + j));
            STORE(into + LANES, LOAD(b + k * row + j + LANES));
        }
    for (intptr_t j = whole; j < n; j += 2 * LANES) {
        const intptr_t width = n - j < 2 * LANES ? n - j : 2 * LANES;
        const T *from = b + j * col;
        T *into = to + j * kc;
        if (row == 1) {
            N(transposed)(from, col, (int)width, kc, into, 2 * LANES);
            continue;
        }
        for (intptr_t k = 0; k < kc; k++)
            for (intptr_t s = 0; s < width; s++) into[k * 2 * LANES + s] = from[k * row + s * col];
    }
}

/* The part of c = a @ b with columns q .. q + nc and elements p .. p + kc of the sums. */
static void N(panel)(const N(Operands) *o, intptr_t p, intptr_t kc, intptr_t q, intptr_t nc,
                     T *rows, T *columns)
{
    const intptr_t arow = o->arow, acol = o->acol, brow = o->brow, ldc = o->ldc;
    const int copy_b = o->bcol != 1 || o->m > COPY_B;
    /* Rows a multiple of 4 KiB apart compete for the same lines of the first cache. */
    const int copy_a = o->n > COPY_A
        || (arow != 1 && (acol != 1 || arow * (intptr_t)sizeof(T) % 4096 < 256));
    const T *b = o->b + p * brow + q * o->bcol;
    if (copy_b) N(gather_columns)(b, brow, o->bcol, kc, nc, columns);
    const intptr_t pieces = (o->m + HEIGHT - 1) / HEIGHT;
    for (intptr_t h = 0; h < pieces; h++) {
        const intptr_t top = o->m * h / pieces, mc = o->m * (h + 1) / pieces - top;
        const intptr_t count = (mc + ROWS - 1) / ROWS;
        const T *a = o->a + top * arow + p * acol;
        if (copy_a) N(gather_rows)(a, arow, acol, mc, count, kc, rows);
        for (intptr_t j = 0; j < nc; j += 2 * LANES) {
            const intptr_t width = nc - j;
            const int vectors = width > LANES ? 2 : 1;
            const intptr_t last = width - (vectors - 1) * LANES;
            const M mask = last >= LANES ? ALL : (M)((1u << last) - 1);
            const T *from = copy_b ? columns + j * kc : b + j;
            for (intptr_t t = 0; t < count; t++) {
                /* Blocks differ by a row at most: none is left over that wastes its registers. */
                const intptr_t i = mc * t / count, r = mc * (t + 1) / count - i;
                N(blocks)[r](vectors, mask, kc, copy_a ? rows + i * kc : a + i * arow,
                             copy_a ? 1 : arow, copy_a ? r : acol, from,
                             copy_b ? 2 * LANES : brow, o->c + (top + i) * ldc + q + j, ldc, p > 0);
            }
        }
    }
}

/* c = a @ b. `room` has ROOM elements. */
static void N(product)(const N(Operands) *o, T *room)
{
    const intptr_t depth = share(o->k, DEPTH, UNROLL), width = share(o->n, WIDTH, 2 * LANES);
    for (intptr_t p = 0; p < o->k; p += depth)
        for (intptr_t q = 0; q < o->n; q += width)
            N(panel)(o, p, o->k - p < depth ? o->k - p : depth, q,
                     o->n - q < width ? o->n - q : width, room, room + HEIGHT * DEPTH + 64);
}
