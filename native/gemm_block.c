/* Matrix products on one thread, after the method of Goto and van de Geijn: blocks of b in
 * the second-level cache, tiles of a in the first, of the result in registers. */
#include "gemm_block.h"
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>

#define KC 384     /* along k: MR * KC elements are within the first-level cache */
#define NC 512     /* columns: NC * KC within the second-level one */
#define DIRECT 28  /* rows for which b is not copied */

/* to[j][i] = from[i][j], 4 by 4. */
#define TRANSPOSED 4

#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2")
static inline __attribute__((always_inline)) void transpose_f32(float *to, intptr_t ld,
                                                                const float *from, intptr_t rs)
{
    __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + rs);
    __m128 c = _mm_loadu_ps(from + 2 * rs), d = _mm_loadu_ps(from + 3 * rs);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + ld, b);
    _mm_storeu_ps(to + 2 * ld, c);
    _mm_storeu_ps(to + 3 * ld, d);
}

static inline __attribute__((always_inline)) void transpose_f64(double *to, intptr_t ld,
                                                                const double *from, intptr_t rs)
{
    const __m256d a = _mm256_loadu_pd(from), b = _mm256_loadu_pd(from + rs);
    const __m256d c = _mm256_loadu_pd(from + 2 * rs), d = _mm256_loadu_pd(from + 3 * rs);
    const __m256d e = _mm256_unpacklo_pd(a, b), f = _mm256_unpackhi_pd(a, b);
    const __m256d g = _mm256_unpacklo_pd(c, d), h = _mm256_unpackhi_pd(c, d);
    _mm256_storeu_pd(to, _mm256_permute2f128_pd(e, g, 0x20));
    _mm256_storeu_pd(to + ld, _mm256_permute2f128_pd(f, h, 0x20));
    _mm256_storeu_pd(to + 2 * ld, _mm256_permute2f128_pd(e, g, 0x31));
    _mm256_storeu_pd(to + 3 * ld, _mm256_permute2f128_pd(f, h, 0x31));
}

#define MR 6
#define T float
#define V __m256
#define W 8
#define NAME(x) x##_f32_avx2
#define ZERO _mm256_setzero_ps
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define SPREAD(p) _mm256_broadcast_ss(p)
#define FMA _mm256_fmadd_ps
#define ADD _mm256_add_ps
#define transpose_f32_avx2 transpose_f32
#include "gemm_kernel.h"
#undef T
#undef V
#undef W
#undef NAME
#undef ZERO
#undef LOAD
#undef STORE
#undef SPREAD
#undef FMA
#undef ADD
#define T double
#define V __m256d
#define W 4
#define NAME(x) x##_f64_avx2
#define ZERO _mm256_setzero_pd
#define LOAD _mm256_loadu_pd
#define STORE _mm256_storeu_pd
#define SPREAD(p) _mm256_broadcast_sd(p)
#define FMA _mm256_fmadd_pd
#define ADD _mm256_add_pd
#define transpose_f64_avx2 transpose_f64
#include "gemm_kernel.h"
#undef MR
#undef T
#undef V
#undef W
#undef NAME
#undef ZERO
#undef LOAD
#undef STORE
#undef SPREAD
#undef FMA
#undef ADD
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512")
#define MR 14
#define T float
#define V __m512
#define W 16
#define NAME(x) x##_f32_avx512
#define ZERO _mm512_setzero_ps
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define SPREAD(p) _mm512_set1_ps(*(p))
#define FMA _mm512_fmadd_ps
#define ADD _mm512_add_ps
#define transpose_f32_avx512 transpose_f32
#include "gemm_kernel.h"
#undef T
#undef V
#undef W
#undef NAME
#undef ZERO
#undef LOAD
#undef STORE
#undef SPREAD
#undef FMA
#undef ADD
#define T double
#define V __m512d
#define W 8
#define NAME(x) x##_f64_avx512
#define ZERO _mm512_setzero_pd
#define LOAD _mm512_loadu_pd
#define STORE _mm512_storeu_pd
#define SPREAD(p) _mm512_set1_pd(*(p))
#define FMA _mm512_fmadd_pd
#define ADD _mm512_add_pd
#define transpose_f64_avx512 transpose_f64
#include "gemm_kernel.h"
#pragma GCC pop_options

/* -- memory of a thread ------------------------------------------------------------------ */

#define COPY_ELEMENTS (14 * KC + NC * KC + 64)

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int has_key;

static void make_key(void) { has_key = pthread_key_create(&key, free) == 0; }

/* Return memory for copies that is freed with the thread; NULL if there is none. */
static char *thread_memory(void)
{
    pthread_once(&once, make_key);
    if (!has_key) return NULL;
    char *memory = pthread_getspecific(key);
    if (memory != NULL) return memory;
    memory = aligned_alloc(64, (COPY_ELEMENTS * sizeof(double) + 63) / 64 * 64);
    if (memory != NULL && pthread_setspecific(key, memory) != 0) {
        free(memory);
        memory = NULL;
    }
    return memory;
}

/* The level of vector instructions in use: none, avx2 or avx512 (build.py). */
int adarray_level(void);

int adarray_gemm_block(const Block *x, int size)
{
    const int with = adarray_level();
    char *memory = with ? thread_memory() : NULL;
    if (memory == NULL) return 0;
    if (with == 2) {
        if (size == 4) product_f32_avx512(x, memory);
        else product_f64_avx512(x, memory);
    } else {
        if (size == 4) product_f32_avx2(x, memory);
        else product_f64_avx2(x, memory);
    }
    return 1;
}

#else
int adarray_gemm_block(const Block *x, int size)
{
    (void)x, (void)size;
    return 0;
}
#endif
