/* One matrix product on one thread, for one type and level of vector instructions.
 *
 * Included once for each by gemm_block.c, which defines: T, V (a vector of W elements),
 * MR (rows of a tile), NAME(x), ZERO(), LOAD(p), STORE(p, v), SPREAD(p), FMA(a, b, c),
 * ADD(a, b).
 *
 * Tiles of up to MR rows and NR columns of the result stay in registers. Per step along k
 * the tile takes NR elements of b, vectors, and MR of a, each spread over a vector. Panels
 * of both are copied so that these lie side by side; edges repeat their last column, which
 * raises no floating-point flags that the product itself would not.
 */
#define NR (2 * W)

/* Rows i < rows, columns of one panel: c = (c +) a @ b. Element (i, k) of a lies at
 * a[i * rs + k * cs], (k, j) of b at b[k * ldb + j]. */
static inline __attribute__((always_inline)) void NAME(tile)(
    const int rows, intptr_t k, const T *a, intptr_t rs, intptr_t cs, const T *b, intptr_t ldb,
    T *c, intptr_t ldc, int more)
{
    V x[MR][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        x[i][0] = x[i][1] = ZERO();
        __builtin_prefetch(c + i * ldc, 1);
        __builtin_prefetch(c + i * ldc + NR - 1, 1);
    }
    for (; k > 0; k--, a += cs, b += ldb) {
        const V b0 = LOAD(b), b1 = LOAD(b + W);
        const T *row = a;
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            const V s = SPREAD(row + i * rs);
            x[i][0] = FMA(s, b0, x[i][0]);
            x[i][1] = FMA(s, b1, x[i][1]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++, c += ldc) {
        STORE(c, more ? ADD(LOAD(c), x[i][0]) : x[i][0]);
        STORE(c + W, more ? ADD(LOAD(c + W), x[i][1]) : x[i][1]);
    }
}

/* Copies lie as [k][MR], whatever the rows: constant distances need no registers. */
#define TILE(n)                                                                          \
    static __attribute__((noinline)) void NAME(tile##n)(                                 \
        intptr_t k, const T *a, const T *b, intptr_t ldb, T *c, intptr_t ldc, int more)  \
    {                                                                                    \
        NAME(tile)(n, k, a, 1, MR, b, ldb, c, ldc, more);                                \
    }
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
#if MR > 6
TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12) TILE(13) TILE(14)
#endif
#undef TILE

typedef void (*NAME(tile_function))(intptr_t k, const T *a, const T *b, intptr_t ldb, T *c,
                                    intptr_t ldc, int more);
static const NAME(tile_function) NAME(tiles)[] = {
    NULL, NAME(tile1), NAME(tile2), NAME(tile3), NAME(tile4), NAME(tile5), NAME(tile6),
#if MR > 6
    NAME(tile7), NAME(tile8), NAME(tile9), NAME(tile10), NAME(tile11), NAME(tile12),
    NAME(tile13), NAME(tile14),
#endif
};

/* to[k][i] = from[i * rs + k * cs] for i < n and k < count, rows of `wide` elements; the
 * last one is repeated from n on. */
static void NAME(pack)(T *to, const T *from, intptr_t rs, intptr_t cs, intptr_t n,
                       intptr_t count, intptr_t wide)
{
    if (rs == 1) {
        for (intptr_t k = 0; k < count; k++, to += wide, from += cs) {
            if (n == NR && wide == NR) {
                STORE(to, LOAD(from));
                STORE(to + W, LOAD(from + W));
                continue;
            }
            for (intptr_t i = 0; i < n; i++) to[i] = from[i];
            for (intptr_t i = n; i < wide; i++) to[i] = from[n - 1];
        }
        return;
    }
    intptr_t i = 0;
    if (cs == 1)
        for (; i + TRANSPOSED <= n; i += TRANSPOSED) {
            intptr_t k = 0;
            for (; k + TRANSPOSED <= count; k += TRANSPOSED)
                NAME(transpose)(to + k * wide + i, wide, from + i * rs + k, rs);
            for (; k < count; k++)
                for (int j = 0; j < TRANSPOSED; j++)
                    to[k * wide + i + j] = from[(i + j) * rs + k];
        }
    for (; i < wide; i++) {
        const T *row = from + (i < n ? i : n - 1) * rs;
        for (intptr_t k = 0; k < count; k++) to[k * wide + i] = row[k * cs];
    }
}

/* One block of rows of a (KC wide) with all panels of b; `panels` holds copies of them, or
 * is NULL where b is used as it lies. */
static void NAME(rows)(const Block *x, intptr_t at, intptr_t depth, const T *panels,
                       intptr_t first, intptr_t last, T *copy)
{
    const int count = (int)((x->m + MR - 1) / MR);
    for (int t = 0; t < count; t++) {
        const intptr_t i = x->m * t / count, rows = x->m * (t + 1) / count - i;
        const NAME(tile_function) tile = NAME(tiles)[rows];
        NAME(pack)(copy, (const T *)x->a + i * x->rs_a + at * x->cs_a, x->rs_a, x->cs_a, rows,
                   depth, MR);
        for (intptr_t j = first; j < last; j += NR) {
            T *c = (T *)x->c + i * x->ldc + j;
            const T *b = panels ? panels + (j - first) * depth
                                : (const T *)x->b + at * x->rs_b + j;
            const intptr_t ldb = panels ? NR : x->rs_b;
            if (last - j >= NR) {
                tile(depth, copy, b, ldb, c, x->ldc, at > 0);
                continue;
            }
            T edge[MR * NR];
            tile(depth, copy, b, ldb, edge, NR, 0);
            for (intptr_t r = 0; r < rows; r++)
                for (intptr_t q = 0; q < last - j; q++)
                    c[r * x->ldc + q] = at > 0 ? c[r * x->ldc + q] + edge[r * NR + q]
                                               : edge[r * NR + q];
        }
    }
}

static void NAME(product)(const Block *x, char *memory)
{
    T *copy = (T *)memory, *panels = copy + MR * KC;
    const intptr_t blocks = (x->k + KC - 1) / KC;
    for (intptr_t block = 0; block < blocks; block++) {
        const intptr_t at = x->k * block / blocks, depth = x->k * (block + 1) / blocks - at;
        for (intptr_t first = 0; first < x->n; first += NC) {
            const intptr_t last = x->n - first < NC ? x->n : first + NC;
            /* A few rows do not pay for copies of b. */
            const int direct = x->cs_b == 1 && x->m <= DIRECT && (last - first) % NR == 0;
            for (intptr_t j = first; !direct && j < last; j += NR)
                NAME(pack)(panels + (j - first) * depth,
                           (const T *)x->b + at * x->rs_b + j * x->cs_b, x->cs_b, x->rs_b,
                           last - j < NR ? last - j : NR, depth, NR);
            NAME(rows)(x, at, depth, direct ? NULL : panels, first, last, copy);
        }
    }
}

#undef NR
