/* Matrix products on processors with AVX-512, beside those of BLAS.
 *
 * OpenBLAS copies both operands of every product, which costs a fifth of the time where one
 * side has about a hundred rows, as the layers of a network on a small batch have. These read
 * them in place where they can, and a sum does not depend on where the element lies, so that
 * results do not depend on the number of threads.
 *
 * To be included by one source; product_kernel.h holds what is common to both types.
 *
 * References:
 * - K. Goto, R. A. van de Geijn, "Anatomy of high-performance matrix multiplication", ACM
 *   Trans. Math. Softw. 34 (2008), article 12.
 */
#ifndef ADARRAY_PRODUCT_H
#define ADARRAY_PRODUCT_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ADARRAY_PRODUCT 1
#include <immintrin.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")

#define ROWS 14         /* of a block: 28 sums in registers, and three more for operands */
/* The most of a sum, of columns and of rows at a time. A sliver of b takes 34 KB of the first
 * cache, copies of both operands 1.3 MB of the second one, which leaves something to another
 * program on the same core. */
#define DEPTH 264
#define WIDTH 1024
#define HEIGHT (16 * ROWS)
#define UNROLL 4        /* steps along k, where all offsets are constants */
#define AHEAD 32        /* steps along k from which copies of b are fetched: they may lie far off */
/* Rows of a from which copies of b are worth it, columns of b from which copies of a are. Half a
 * batch of 512, from memory, runs 13 % faster beside a copy; a third of it no slower. */
#define COPY_B 200
#define COPY_A 512
#define ROOM ((HEIGHT + WIDTH) * DEPTH + 192)

/* Return the size of the fewest pieces of at most `most`, all but the last of them equal and
 * multiples of `unit`, that `extent` can be cut into. */
static inline intptr_t share(intptr_t extent, intptr_t most, intptr_t unit)
{
    const intptr_t count = (extent + most - 1) / most;
    return ((extent + count - 1) / count + unit - 1) / unit * unit;
}

/* Turn 16 rows of 16 elements into columns. */
static inline __attribute__((always_inline)) void transpose_f32(__m512 *x)
{
    __m512 t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) {
        x[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t[i]), _mm512_castps_pd(t[i + 2])));
        x[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t[i]), _mm512_castps_pd(t[i + 2])));
        x[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t[i + 1]), _mm512_castps_pd(t[i + 3])));
        x[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t[i + 1]), _mm512_castps_pd(t[i + 3])));
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        x[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        x[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        x[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        x[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}
/* Turn 8 rows of 8 elements into columns. */
static inline __attribute__((always_inline)) void transpose_f64(__m512d *x)
{
    __m512d t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm512_unpacklo_pd(x[i], x[i + 1]);
        t[i + 1] = _mm512_unpackhi_pd(x[i], x[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 2; i++) {
        x[i] = _mm512_shuffle_f64x2(t[i], t[i + 2], 0x88);
        x[i + 2] = _mm512_shuffle_f64x2(t[i], t[i + 2], 0xdd);
        x[i + 4] = _mm512_shuffle_f64x2(t[i + 4], t[i + 6], 0x88);
        x[i + 6] = _mm512_shuffle_f64x2(t[i + 4], t[i + 6], 0xdd);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 2; i++) {
        t[i] = _mm512_shuffle_f64x2(x[i], x[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f64x2(x[i], x[i + 4], 0xdd);
        t[i + 2] = _mm512_shuffle_f64x2(x[i + 2], x[i + 6], 0x88);
        t[i + 6] = _mm512_shuffle_f64x2(x[i + 2], x[i + 6], 0xdd);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) x[i] = t[i];
}
#define PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)

#define T float
#define V __m512
#define M __mmask16
#define ALL 0xffff
#define LANES 16
#define N(name) name##_f32
#define ZERO() _mm512_setzero_ps()
#define LOAD(p) _mm512_loadu_ps(p)
#define LOAD_PART(mask, p) _mm512_maskz_loadu_ps(mask, p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define STORE_PART(p, mask, v) _mm512_mask_storeu_ps(p, mask, v)
#define SPREAD(x) _mm512_set1_ps(x)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define ADD(a, b) _mm512_add_ps(a, b)
#include "product_kernel.h"
#undef T
#undef V
#undef M
#undef ALL
#undef LANES
#undef N
#undef ZERO
#undef LOAD
#undef LOAD_PART
#undef STORE
#undef STORE_PART
#undef SPREAD
#undef FMA
#undef ADD

#define T double
#define V __m512d
#define M __mmask8
#define ALL 0xff
#define LANES 8
#define N(name) name##_f64
#define ZERO() _mm512_setzero_pd()
#define LOAD(p) _mm512_loadu_pd(p)
#define LOAD_PART(mask, p) _mm512_maskz_loadu_pd(mask, p)
#define STORE(p, v) _mm512_storeu_pd(p, v)
#define STORE_PART(p, mask, v) _mm512_mask_storeu_pd(p, mask, v)
#define SPREAD(x) _mm512_set1_pd(x)
#define FMA(a, b, c) _mm512_fmadd_pd(a, b, c)
#define ADD(a, b) _mm512_add_pd(a, b)
#include "product_kernel.h"
#undef T
#undef V
#undef M
#undef ALL
#undef LANES
#undef N
#undef ZERO
#undef LOAD
#undef LOAD_PART
#undef STORE
#undef STORE_PART
#undef SPREAD
#undef FMA
#undef ADD

#pragma GCC pop_options

/* Room for copies, kept for the next product; more callers than places allocate their own. */
#define ROOMS 64
static _Atomic(void *) rooms[ROOMS];

static void *take_room(void)
{
    for (int i = 0; i < ROOMS; i++) {
        if (atomic_load_explicit(&rooms[i], memory_order_relaxed) == NULL) continue;
        void *room = atomic_exchange(&rooms[i], NULL);
        if (room != NULL) return room;
    }
    /* In huge pages, for a block's operands lie on more pages than the processor keeps in mind. */
    const size_t page = 1 << 21, bytes = (ROOM * sizeof(double) + page - 1) / page * page;
    void *room = aligned_alloc(page, bytes);
#ifdef MADV_HUGEPAGE
    if (room != NULL) madvise(room, bytes, MADV_HUGEPAGE);
#endif
    return room;
}

static void give_room(void *room)
{
    for (int i = 0; i < ROOMS; i++) {
        void *none = NULL;
        if (atomic_compare_exchange_strong(&rooms[i], &none, room)) return;
    }
    free(room);
}
#else
#define ADARRAY_PRODUCT 0
#endif

#endif
