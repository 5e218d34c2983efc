/* What kernels printed from loop IR use beside scalar functions. Comes after libmvec.h. */
#ifndef ADARRAY_LOOPS_H
#define ADARRAY_LOOPS_H

#include "adarray_integer.h"

/* Sums of many terms, pairwise: rounding errors grow with the logarithm of their number.
 * Terms are added one after the other in runs of 32; slot k of `level` holds the sum of 2^k
 * runs. */

#define ADARRAY_PAIRS(T, s)                                                                \
    typedef struct { T run, level[48]; int32_t length; int64_t runs; } adarray_pairs_##s;   \
    ADARRAY_FN void adarray_pairs_start_##s(adarray_pairs_##s *p)                          \
    {                                                                                      \
        p->run = 0;                                                                        \
        p->length = 0;                                                                     \
        p->runs = 0;                                                                       \
    }                                                                                      \
    ADARRAY_CALL void adarray_pairs_carry_##s(adarray_pairs_##s *p)                        \
    {                                                                                      \
        T x = p->run;                                                                      \
        int k = 0;                                                                         \
        for (int64_t n = p->runs++; n & 1; n >>= 1) x = p->level[k++] + x;                 \
        p->level[k] = x;                                                                   \
        p->run = 0;                                                                        \
        p->length = 0;                                                                     \
    }                                                                                      \
    ADARRAY_FN void adarray_pairs_push_##s(adarray_pairs_##s *p, T x)                      \
    {                                                                                      \
        p->run += x;                                                                       \
        if (++p->length == 32) adarray_pairs_carry_##s(p);                                 \
    }                                                                                      \
    ADARRAY_FN T adarray_pairs_sum_##s(const adarray_pairs_##s *p)                         \
    {                                                                                      \
        T x = p->run;                                                                      \
        int k = 0;                                                                         \
        for (int64_t n = p->runs; n; n >>= 1, k++)                                         \
            if (n & 1) x = p->level[k] + x;                                                \
        return x;                                                                          \
    }

ADARRAY_PAIRS(double, f64)
ADARRAY_PAIRS(float, f32)

/* One value of a function by the C library's vector version, so that scalar code and vector
 * loops agree to the last bit. The assembler statement hides that all lanes are equal. */
#if defined(__AVX512F__)
#define ADARRAY_LANES(T) (64 / (int)sizeof(T))
#elif defined(__AVX__)
#define ADARRAY_LANES(T) (32 / (int)sizeof(T))
#else
#define ADARRAY_LANES(T) (16 / (int)sizeof(T))
#endif
#define ADARRAY_ONE1(T, name)                                                              \
    ADARRAY_CALL T adarray_one_##name(T x)                                                 \
    {                                                                                      \
        T in[ADARRAY_LANES(T)], out[ADARRAY_LANES(T)];                                     \
        for (int l = 0; l < ADARRAY_LANES(T); l++) in[l] = x;                              \
        __asm__("" : "+m"(in));                                                            \
        _Pragma("omp simd")                                                                \
        for (int l = 0; l < ADARRAY_LANES(T); l++) out[l] = name(in[l]);                   \
        return out[0];                                                                     \
    }
#define ADARRAY_ONE2(T, name)                                                              \
    ADARRAY_CALL T adarray_one_##name(T x, T y)                                            \
    {                                                                                      \
        T in[ADARRAY_LANES(T)], by[ADARRAY_LANES(T)], out[ADARRAY_LANES(T)];               \
        for (int l = 0; l < ADARRAY_LANES(T); l++) in[l] = x, by[l] = y;                   \
        __asm__("" : "+m"(in), "+m"(by));                                                  \
        _Pragma("omp simd")                                                                \
        for (int l = 0; l < ADARRAY_LANES(T); l++) out[l] = name(in[l], by[l]);            \
        return out[0];                                                                     \
    }
#define ADARRAY_ONES(ONE, name) ONE(double, name) ONE(float, name##f)
ADARRAY_ONES(ADARRAY_ONE1, exp)
ADARRAY_ONES(ADARRAY_ONE1, log)
ADARRAY_ONES(ADARRAY_ONE1, sin)
ADARRAY_ONES(ADARRAY_ONE1, cos)
ADARRAY_ONES(ADARRAY_ONE2, pow)
ADARRAY_ONES(ADARRAY_ONE1, acos)
ADARRAY_ONES(ADARRAY_ONE1, acosh)
ADARRAY_ONES(ADARRAY_ONE1, asin)
ADARRAY_ONES(ADARRAY_ONE1, asinh)
ADARRAY_ONES(ADARRAY_ONE1, atan)
ADARRAY_ONES(ADARRAY_ONE1, atanh)
ADARRAY_ONES(ADARRAY_ONE1, cbrt)
ADARRAY_ONES(ADARRAY_ONE1, cosh)
ADARRAY_ONES(ADARRAY_ONE1, exp2)
ADARRAY_ONES(ADARRAY_ONE1, expm1)
ADARRAY_ONES(ADARRAY_ONE1, log10)
ADARRAY_ONES(ADARRAY_ONE1, log1p)
ADARRAY_ONES(ADARRAY_ONE1, log2)
ADARRAY_ONES(ADARRAY_ONE1, sinh)
ADARRAY_ONES(ADARRAY_ONE1, tan)
ADARRAY_ONES(ADARRAY_ONE2, atan2)
ADARRAY_ONES(ADARRAY_ONE2, hypot)
/* Vector form of tanh: as the printer has it, by expm1 for double. */
ADARRAY_CALL double adarray_one_tanh(double x)
{
    const double t = adarray_one_expm1(-2.0 * fabs(x));
    return copysign(-t / (2.0 + t), x);
}

#endif
