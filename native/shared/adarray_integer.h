/* Integer functions that printed kernels call, for host and device code.
 *
 * They agree with NumPy's where C leaves the result open: division by zero gives 0, the
 * smallest number divided by -1 gives itself, shifts by the width or more give 0 or -1.
 */
#ifndef ADARRAY_INTEGER_H
#define ADARRAY_INTEGER_H

/* Whether a divisor is 0; on processors in a way that raises the flag of floating-point
 * division, by which NumPy tells. There is no branch, and 32 bits are what all of them can
 * convert in vectors, so loops with other functions in them stay vector code. */
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define ADARRAY_NO_DIVISOR(b) ((b) == 0)
#else
#define ADARRAY_NO_DIVISOR(b)                                                              \
    (1.0 / (double)(int32_t)((uint32_t)(b) | (uint32_t)((uint64_t)(b) >> 32)) > 2.0)
#endif

#define ADARRAY_SIGNED(T, U, s)                                                            \
    ADARRAY_FN T adarray_floor_divide_##s(T a, T b)                                        \
    {                                                                                      \
        const _Bool none = ADARRAY_NO_DIVISOR(b);                                          \
        const T d = none | (b == -1) ? 1 : b;                                              \
        const T q = (T)(a / d), r = (T)(a % d);                                            \
        const T f = (T)(q - ((r != 0) & ((r < 0) != (d < 0))));                            \
        const T negated = (T)(0 - (U)a);                                                   \
        return none ? 0 : b == -1 ? negated : f;                                           \
    }                                                                                      \
    ADARRAY_FN T adarray_remainder_##s(T a, T b)                                           \
    {                                                                                      \
        const _Bool none = ADARRAY_NO_DIVISOR(b);                                          \
        const T d = none | (b == -1) ? 1 : b;                                              \
        const T r = (T)(a % d);                                                            \
        const T f = (r != 0) & ((r < 0) != (d < 0)) ? (T)(r + d) : r;                      \
        return f;                                                                          \
    }                                                                                      \
    ADARRAY_FN T adarray_fmod_##s(T a, T b)                                                \
    {                                                                                      \
        const _Bool none = ADARRAY_NO_DIVISOR(b);                                          \
        const T d = none | (b == -1) ? 1 : b;                                              \
        return (T)(a % d);                                                                 \
    }                                                                                      \
    ADARRAY_FN T adarray_right_shift_##s(T a, T b)                                         \
    {                                                                                      \
        const T most = (T)(sizeof(T) * 8 - 1);                                             \
        return (T)(a >> ((b < 0) | (b > most) ? most : b));                                \
    }

#define ADARRAY_UNSIGNED(T, U, s)                                                          \
    ADARRAY_FN T adarray_floor_divide_##s(T a, T b)                                        \
    {                                                                                      \
        const _Bool none = ADARRAY_NO_DIVISOR(b);                                          \
        const T q = (T)(a / (none ? 1 : b));                                               \
        return none ? 0 : q;                                                               \
    }                                                                                      \
    ADARRAY_FN T adarray_remainder_##s(T a, T b)                                           \
    {                                                                                      \
        return (T)(a % (ADARRAY_NO_DIVISOR(b) ? 1 : b));                                   \
    }                                                                                      \
    ADARRAY_FN T adarray_fmod_##s(T a, T b) { return adarray_remainder_##s(a, b); }        \
    ADARRAY_FN T adarray_right_shift_##s(T a, T b)                                         \
    {                                                                                      \
        const _Bool all = b >= (T)(sizeof(T) * 8);                                         \
        const T shifted = (T)(a >> (all ? 0 : b));                                         \
        return all ? 0 : shifted;                                                          \
    }

#define ADARRAY_INTEGER(T, U, s)                                                           \
    ADARRAY_FN T adarray_left_shift_##s(T a, T b)                                          \
    {                                                                                      \
        const _Bool all = (b < 0) | (b >= (T)(sizeof(T) * 8));                             \
        const T shifted = (T)((U)a << (all ? 0 : b));                                      \
        return all ? 0 : shifted;                                                          \
    }                                                                                      \
    ADARRAY_FN T adarray_power_##s(T a, T b)                                               \
    {                                                                                      \
        U r = 1, x = (U)a;                                                                 \
        for (T n = b; n > 0; n = (T)(n >> 1)) {                                            \
            r *= n & 1 ? x : 1;                                                            \
            x *= x;                                                                        \
        }                                                                                  \
        return (T)r;                                                                       \
    }

ADARRAY_SIGNED(int8_t, uint32_t, i8)
ADARRAY_SIGNED(int16_t, uint32_t, i16)
ADARRAY_SIGNED(int32_t, uint32_t, i32)
ADARRAY_SIGNED(int64_t, uint64_t, i64)
ADARRAY_UNSIGNED(uint8_t, uint32_t, u8)
ADARRAY_UNSIGNED(uint16_t, uint32_t, u16)
ADARRAY_UNSIGNED(uint32_t, uint32_t, u32)
ADARRAY_UNSIGNED(uint64_t, uint64_t, u64)
ADARRAY_INTEGER(int8_t, uint32_t, i8)
ADARRAY_INTEGER(int16_t, uint32_t, i16)
ADARRAY_INTEGER(int32_t, uint32_t, i32)
ADARRAY_INTEGER(int64_t, uint64_t, i64)
ADARRAY_INTEGER(uint8_t, uint32_t, u8)
ADARRAY_INTEGER(uint16_t, uint32_t, u16)
ADARRAY_INTEGER(uint32_t, uint32_t, u32)
ADARRAY_INTEGER(uint64_t, uint64_t, u64)

/* Floating-point numbers as integers: out of range as x86-64 has it, and so NumPy there, which is
 * the smallest number. GPUs give the nearest one. Narrower integers are the low bits of these. */
#define ADARRAY_WHOLE(T, s, S, f, below, above, smallest)                                  \
    ADARRAY_FN T adarray_whole_##s##_##f(S x)                                              \
    {                                                                                      \
        return (x below) & (x < above) ? (T)x : smallest;                                  \
    }
#define ADARRAY_SMALLEST_I32 (-2147483647 - 1)
#define ADARRAY_SMALLEST_I64 ((int64_t)(-9223372036854775807 - 1))
ADARRAY_WHOLE(int32_t, i32, double, f64, > -2147483649.0, 2147483648.0, ADARRAY_SMALLEST_I32)
ADARRAY_WHOLE(int32_t, i32, float, f32, >= -2147483648.0f, 2147483648.0f, ADARRAY_SMALLEST_I32)
ADARRAY_WHOLE(int64_t, i64, double, f64, >= -9223372036854775808.0, 9223372036854775808.0,
              ADARRAY_SMALLEST_I64)
ADARRAY_WHOLE(int64_t, i64, float, f32, >= -9223372036854775808.0f, 9223372036854775808.0f,
              ADARRAY_SMALLEST_I64)

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define ADARRAY_I64(x) adarray_whole_i64_f64(x)
#else
#define ADARRAY_I64(x) (int64_t)(x)
#endif

/* Out of range, as one element at a time has it on x86-64, and so NumPy. */
ADARRAY_FN uint64_t adarray_to_u64(double x)
{
    const double high = x - 9223372036854775808.0;
    const _Bool low = !(x >= 9223372036854775808.0);
    const uint64_t whole = (uint64_t)ADARRAY_I64(low ? x : high);
    return low ? whole : whole ^ 0x8000000000000000u;
}

#endif
