/* What kernels printed from loop IR use beside scalar functions. Comes after libmvec.h and
 * adarray_math.h.
 *
 * References:
 * - N. J. Higham, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14 (1993),
 *   783-799.
 */
#ifndef ADARRAY_LOOPS_H
#define ADARRAY_LOOPS_H

#include "adarray_integer.h"

/* Functions that have no vector version, one element after the other: a loop that calls one
 * becomes vector code all the same, and what else it calls comes from libmvec. The compiler
 * makes the vector versions of these; the functions that they call are not inlined. */
#define ADARRAY_BY_LANE(T, name, function)                                                 \
    _Pragma("omp declare simd notinbranch")                                                \
    ADARRAY_CALL T adarray_lanes_##name(T a, T b) { return (function)(a, b); }
ADARRAY_BY_LANE(double, fmod, fmod)
ADARRAY_BY_LANE(float, fmodf, fmodf)
ADARRAY_BY_LANE(double, nextafter, nextafter)
ADARRAY_BY_LANE(float, nextafterf, nextafterf)
ADARRAY_BY_LANE(double, logaddexp_f64, adarray_logaddexp_f64)
ADARRAY_BY_LANE(float, logaddexp_f32, adarray_logaddexp_f32)
ADARRAY_BY_LANE(double, logaddexp2_f64, adarray_logaddexp2_f64)
ADARRAY_BY_LANE(float, logaddexp2_f32, adarray_logaddexp2_f32)
#define ADARRAY_LANES_N64(name) adarray_lanes_##name##_f64
#define ADARRAY_LANES_N32(name) adarray_lanes_##name##_f32
#define ADARRAY_LANES_M64(name) ADARRAY_LANES_##name##_f64
#define ADARRAY_LANES_M32(name) ADARRAY_LANES_##name##_f32
#define ADARRAY_LANES_fmod_f64 adarray_lanes_fmod
#define ADARRAY_LANES_fmod_f32 adarray_lanes_fmodf
#define ADARRAY_LANES_copysign_f64 copysign
#define ADARRAY_LANES_copysign_f32 copysignf
#define ADARRAY_LANES_floor_f64 floor
#define ADARRAY_LANES_floor_f32 floorf
ADARRAY_DIVISION(double, ADARRAY_LANES_N64, ADARRAY_LANES_M64)
ADARRAY_DIVISION(float, ADARRAY_LANES_N32, ADARRAY_LANES_M32)
#define ADARRAY_INTEGERS_BY_LANE(T, s)                                                     \
    ADARRAY_BY_LANE(T, floor_divide_##s, adarray_floor_divide_##s)                         \
    ADARRAY_BY_LANE(T, remainder_##s, adarray_remainder_##s)                               \
    ADARRAY_BY_LANE(T, fmod_##s, adarray_fmod_##s)                                         \
    ADARRAY_BY_LANE(T, power_##s, adarray_power_##s)
ADARRAY_INTEGERS_BY_LANE(int8_t, i8)
ADARRAY_INTEGERS_BY_LANE(int16_t, i16)
ADARRAY_INTEGERS_BY_LANE(int32_t, i32)
ADARRAY_INTEGERS_BY_LANE(int64_t, i64)
ADARRAY_INTEGERS_BY_LANE(uint8_t, u8)
ADARRAY_INTEGERS_BY_LANE(uint16_t, u16)
ADARRAY_INTEGERS_BY_LANE(uint32_t, u32)
ADARRAY_INTEGERS_BY_LANE(uint64_t, u64)

/* Conversions of 64-bit integers, which only AVX-512 has for vectors. */
#if defined(__AVX512DQ__) || !defined(__x86_64__)
#define ADARRAY_CAST(T, name, S, converted)                                                \
    ADARRAY_FN T adarray_cast_##name(S x) { return converted; }
#else
#define ADARRAY_CAST(T, name, S, converted)                                                \
    _Pragma("omp declare simd notinbranch")                                                \
    ADARRAY_CALL T adarray_cast_##name(S x) { return converted; }
#endif
ADARRAY_CAST(double, i64_f64, int64_t, (double)x)
ADARRAY_CAST(float, i64_f32, int64_t, (float)x)
ADARRAY_CAST(double, u64_f64, uint64_t, (double)x)
ADARRAY_CAST(float, u64_f32, uint64_t, (float)x)
ADARRAY_CAST(int64_t, f64_i64, double, (int64_t)x)
ADARRAY_CAST(int64_t, f32_i64, float, (int64_t)x)
ADARRAY_CAST(uint64_t, f64_u64, double, adarray_to_u64(x))
ADARRAY_CAST(uint64_t, f32_u64, float, adarray_to_u64(x))
ADARRAY_CAST(uint32_t, f64_u32, double, (uint32_t)(int64_t)x)
ADARRAY_CAST(uint32_t, f32_u32, float, (uint32_t)(int64_t)x)

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

/* c ? a : b without a branch even before compilers look for such: they move calls into
 * branches, where those cannot become vector calls. */
#define ADARRAY_SELECT(T, U, s)                                                            \
    ADARRAY_FN T adarray_pick_##s(U mask, T a, T b)                                        \
    {                                                                                      \
        U x, y;                                                                            \
        memcpy(&x, &a, sizeof x);                                                          \
        memcpy(&y, &b, sizeof y);                                                          \
        x = y ^ ((x ^ y) & mask);                                                          \
        memcpy(&a, &x, sizeof x);                                                          \
        return a;                                                                          \
    }                                                                                      \
    ADARRAY_FN T adarray_select_##s(_Bool c, T a, T b)                                     \
    {                                                                                      \
        return adarray_pick_##s(c ? (U)-1 : (U)0, a, b);                                   \
    }
ADARRAY_SELECT(double, uint64_t, f64)
ADARRAY_SELECT(float, uint32_t, f32)
ADARRAY_SELECT(int32_t, uint32_t, i32)
ADARRAY_SELECT(int64_t, uint64_t, i64)

/* The mask for `adarray_pick` of a truth that is the same for all elements of a loop: gcc
 * makes no vector of such a truth, and would turn the mask back into one if it saw through. */
ADARRAY_FN int64_t adarray_mask(_Bool c)
{
    int64_t mask = -(int64_t)c;
    __asm__("" : "+r"(mask));
    return mask;
}

/* How far away an iteration is from the first one of a block, for comparisons with the places in
 * the block: these are fewer than 127. */
ADARRAY_FN int adarray_place(int64_t distance)
{
    return distance < -1 ? -1 : distance > 127 ? 127 : (int)distance;
}

/* The last block of a padded loop: `m` elements come, the last one repeated, or go. Calls,
 * since compilers take long to unroll such loops in every kernel; single instructions of
 * AVX-512 for neighbouring elements of a whole register, which short rows end with. */
#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__GNUC__) && !defined(__clang__)
#define ADARRAY_TIMES_8(x) x, x, x, x, x, x, x, x
#define ADARRAY_TIMES_16(x) ADARRAY_TIMES_8(x), ADARRAY_TIMES_8(x)
#define ADARRAY_MASKED_PADDING(T, s, V, U, M, N, LOAD, KEEP)                               \
    typedef T adarray_block_##s __attribute__((vector_size(N * sizeof(T))));               \
    typedef V adarray_moved_##s __attribute__((vector_size(N * sizeof(T))));               \
    ADARRAY_FN const T *adarray_pad_##s(T *to, const T *from, int64_t step, int m, int n)  \
    {                                                                                      \
        if (step != 1 || n != N || m < 1) return adarray_pad_each_##s(to, from, step, m, n); \
        const T last = from[m - 1];                                                        \
        adarray_block_##s x = {ADARRAY_TIMES_##N(last)};                                   \
        x = (adarray_block_##s)LOAD((U)from, (adarray_moved_##s)x, (M)((1u << m) - 1));    \
        memcpy(to, &x, sizeof x);                                                          \
        return to;                                                                         \
    }                                                                                      \
    ADARRAY_FN void adarray_unpad_##s(T *to, const T *from, int64_t step, int m)           \
    {                                                                                      \
        if (step != 1 || m > N) {                                                          \
            adarray_unpad_each_##s(to, from, step, m);                                     \
            return;                                                                        \
        }                                                                                  \
        const M mask = (M)((1u << m) - 1);                                                 \
        const adarray_moved_##s none = {0};                                                \
        KEEP((void *)to, LOAD((U)from, none, mask), mask);                                 \
    }
#else
#define ADARRAY_MASKED_PADDING(T, s, V, U, M, N, LOAD, KEEP)                               \
    ADARRAY_FN const T *adarray_pad_##s(T *to, const T *from, int64_t step, int m, int n)  \
    {                                                                                      \
        return adarray_pad_each_##s(to, from, step, m, n);                                 \
    }                                                                                      \
    ADARRAY_FN void adarray_unpad_##s(T *to, const T *from, int64_t step, int m)           \
    {                                                                                      \
        adarray_unpad_each_##s(to, from, step, m);                                         \
    }
#endif
#define ADARRAY_PADDING_BY(NAME, T, s)                                                     \
    ADARRAY_CALL const T *adarray_pad_##NAME##s(T *to, const T *from, int64_t step, int m, \
                                                int n)                                     \
    {                                                                                      \
        for (int l = 0; l < n; l++) to[l] = from[(l < m ? l : m - 1) * step];              \
        return to;                                                                         \
    }                                                                                      \
    ADARRAY_CALL void adarray_unpad_##NAME##s(T *to, const T *from, int64_t step, int m)   \
    {                                                                                      \
        for (int l = 0; l < m; l++) to[l * step] = from[l];                                \
    }
ADARRAY_PADDING_BY(each_, double, f64)
ADARRAY_PADDING_BY(each_, float, f32)
ADARRAY_PADDING_BY(each_, int8_t, i8)
ADARRAY_PADDING_BY(each_, int16_t, i16)
ADARRAY_PADDING_BY(each_, int32_t, i32)
ADARRAY_PADDING_BY(each_, int64_t, i64)
ADARRAY_PADDING_BY(each_, uint8_t, u8)
ADARRAY_PADDING_BY(each_, uint16_t, u16)
ADARRAY_PADDING_BY(each_, uint32_t, u32)
ADARRAY_PADDING_BY(each_, uint64_t, u64)
ADARRAY_PADDING_BY(, adarray_c64, c64)
ADARRAY_PADDING_BY(, adarray_c128, c128)
ADARRAY_MASKED_PADDING(double, f64, double, const double *, uint8_t, 8,
                       __builtin_ia32_loadupd512_mask, __builtin_ia32_storeupd512_mask)
ADARRAY_MASKED_PADDING(float, f32, float, const float *, uint16_t, 16,
                       __builtin_ia32_loadups512_mask, __builtin_ia32_storeups512_mask)
ADARRAY_MASKED_PADDING(int8_t, i8, char, const char *, uint16_t, 16,
                       __builtin_ia32_loaddquqi128_mask, __builtin_ia32_storedquqi128_mask)
ADARRAY_MASKED_PADDING(int16_t, i16, short, const short *, uint16_t, 16,
                       __builtin_ia32_loaddquhi256_mask, __builtin_ia32_storedquhi256_mask)
ADARRAY_MASKED_PADDING(int32_t, i32, int, const int *, uint16_t, 16,
                       __builtin_ia32_loaddqusi512_mask, __builtin_ia32_storedqusi512_mask)
ADARRAY_MASKED_PADDING(int64_t, i64, long long, const long long *, uint8_t, 8,
                       __builtin_ia32_loaddqudi512_mask, __builtin_ia32_storedqudi512_mask)
ADARRAY_MASKED_PADDING(uint8_t, u8, char, const char *, uint16_t, 16,
                       __builtin_ia32_loaddquqi128_mask, __builtin_ia32_storedquqi128_mask)
ADARRAY_MASKED_PADDING(uint16_t, u16, short, const short *, uint16_t, 16,
                       __builtin_ia32_loaddquhi256_mask, __builtin_ia32_storedquhi256_mask)
ADARRAY_MASKED_PADDING(uint32_t, u32, int, const int *, uint16_t, 16,
                       __builtin_ia32_loaddqusi512_mask, __builtin_ia32_storedqusi512_mask)
ADARRAY_MASKED_PADDING(uint64_t, u64, long long, const long long *, uint8_t, 8,
                       __builtin_ia32_loaddqudi512_mask, __builtin_ia32_storedqudi512_mask)

/* Copy what will not be read soon past the caches, which need not fetch it first then. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__SSE2__)
#if defined(__AVX512F__)
typedef float adarray_line __attribute__((vector_size(64), may_alias));
#define ADARRAY_STORE(to, x) __builtin_ia32_movntps512((float *)(to), x)
#elif defined(__AVX__)
typedef float adarray_line __attribute__((vector_size(32), may_alias));
#define ADARRAY_STORE(to, x) __builtin_ia32_movntps256((float *)(to), x)
#else
typedef float adarray_line __attribute__((vector_size(16), may_alias));
#define ADARRAY_STORE(to, x) __builtin_ia32_movntps((float *)(to), x)
#endif
#define ADARRAY_STREAMS 1
ADARRAY_FN void adarray_stream_end(void) { __builtin_ia32_sfence(); }
#elif defined(__clang__)
typedef float adarray_line __attribute__((vector_size(16), may_alias));
#define ADARRAY_STORE(to, x) __builtin_nontemporal_store(x, to)
#define ADARRAY_STREAMS 1
ADARRAY_FN void adarray_stream_end(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#else
#define ADARRAY_STREAMS 0
ADARRAY_FN void adarray_stream_end(void) {}
#endif
ADARRAY_CALL void adarray_stream(void *to, const void *from, int64_t bytes)
{
    char *at = to;
    const char *x = from;
#if ADARRAY_STREAMS
    const int64_t head = -(int64_t)(uintptr_t)to & 63;
    if (bytes >= 256) {
        memcpy(at, x, (size_t)head);
        at += head, x += head, bytes -= head;
        for (; bytes >= 64; at += 64, x += 64, bytes -= 64) {
            adarray_line line[64 / sizeof(adarray_line)];
            memcpy(line, x, 64);
            for (int i = 0; i < 64 / (int)sizeof(adarray_line); i++)
                ADARRAY_STORE((adarray_line *)at + i, line[i]);
        }
    }
#endif
    memcpy(at, x, (size_t)bytes);
}

/* Combine the accumulators of `n` lanes, a power of two, as a tree. */
#define ADARRAY_TREE(T, s, name, COMBINED)                                                 \
    ADARRAY_CALL T adarray_##name##_lanes_##s(T *x, int n)                                 \
    {                                                                                      \
        for (int w = n / 2; w > 0; w /= 2)                                                 \
            for (int l = 0; l < w; l++) {                                                  \
                const T a = x[l], b = x[l + w];                                            \
                x[l] = COMBINED;                                                           \
            }                                                                              \
        return x[0];                                                                       \
    }                                                                                      \
    ADARRAY_MERGE(T, s, name, COMBINED)
/* Set `n` elements. Combine the totals of threads, in their order, into `out`. */
#define ADARRAY_FILL(T, s)                                                                 \
    ADARRAY_CALL void adarray_fill_##s(T *to, int64_t n, T value)                          \
    {                                                                                      \
        for (int64_t i = 0; i < n; i++) to[i] = value;                                     \
    }
ADARRAY_FILL(double, f64)
ADARRAY_FILL(float, f32)
ADARRAY_FILL(int8_t, i8)
ADARRAY_FILL(int16_t, i16)
ADARRAY_FILL(int32_t, i32)
ADARRAY_FILL(int64_t, i64)
ADARRAY_FILL(uint8_t, u8)
ADARRAY_FILL(uint16_t, u16)
ADARRAY_FILL(uint32_t, u32)
ADARRAY_FILL(uint64_t, u64)
#define ADARRAY_MERGE(T, s, name, COMBINED)                                                \
    ADARRAY_CALL void adarray_##name##_merge_##s(T *out, const char *parts, int64_t n,     \
                                                 int64_t per, int threads)                 \
    {                                                                                      \
        memcpy(out, parts, (size_t)n * sizeof(T));                                         \
        for (int t = 1; t < threads; t++) {                                                \
            const T *const x = (const T *)(parts + t * per);                               \
            for (int64_t i = 0; i < n; i++) {                                              \
                const T a = out[i], b = x[i];                                              \
                out[i] = COMBINED;                                                         \
            }                                                                              \
        }                                                                                  \
    }

#define ADARRAY_ARITHMETIC_TREES(T, U, s)                                                  \
    ADARRAY_TREE(T, s, add, (T)((U)a + (U)b))                                              \
    ADARRAY_TREE(T, s, multiply, (T)((U)a * (U)b))
#define ADARRAY_INTEGER_TREES(T, U, s)                                                     \
    ADARRAY_ARITHMETIC_TREES(T, U, s)                                                      \
    ADARRAY_TREE(T, s, maximum, a > b ? a : b)                                             \
    ADARRAY_TREE(T, s, minimum, a < b ? a : b)
#define ADARRAY_FLOAT_TREES(T, s)                                                          \
    ADARRAY_ARITHMETIC_TREES(T, T, s)                                                      \
    ADARRAY_TREE(T, s, maximum, adarray_maximum_##s(a, b))                                 \
    ADARRAY_TREE(T, s, minimum, adarray_minimum_##s(a, b))

ADARRAY_FLOAT_TREES(double, f64)
ADARRAY_FLOAT_TREES(float, f32)
ADARRAY_INTEGER_TREES(int8_t, uint32_t, i8)
ADARRAY_INTEGER_TREES(int16_t, uint32_t, i16)
ADARRAY_INTEGER_TREES(int32_t, uint32_t, i32)
ADARRAY_INTEGER_TREES(int64_t, uint64_t, i64)
ADARRAY_INTEGER_TREES(uint8_t, uint32_t, u8)
ADARRAY_INTEGER_TREES(uint16_t, uint32_t, u16)
ADARRAY_INTEGER_TREES(uint32_t, uint32_t, u32)
ADARRAY_INTEGER_TREES(uint64_t, uint64_t, u64)
ADARRAY_TREE(uint8_t, bool, logical_and, a & b)
ADARRAY_TREE(uint8_t, bool, logical_or, a | b)

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
ADARRAY_ONES(ADARRAY_ONE1, erf)
ADARRAY_ONES(ADARRAY_ONE1, erfc)
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
