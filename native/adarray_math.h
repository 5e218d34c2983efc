/* Scalar functions that printed kernels call, for host and device code.
 *
 * They agree with NumPy's in special values and signed zeros, and hold no branches,
 * so that a loop over them becomes vector code. Each exists for double (..._f64) and
 * float (..._f32); ADARRAY_BOTH makes the two from one text, in which T is the type,
 * N(name) the name with the type's suffix, and M(name) a function of the C library.
 */
#ifndef ADARRAY_MATH_H
#define ADARRAY_MATH_H

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define ADARRAY_FN static __device__ __forceinline__
#define ADARRAY_CALL ADARRAY_FN
#define ADARRAY_INF __longlong_as_double(0x7ff0000000000000LL)
#define ADARRAY_NAN __longlong_as_double(0x7ff8000000000000LL)
#define ADARRAY_SIGNBIT_f64(x) (__double_as_longlong(x) < 0)
#define ADARRAY_SIGNBIT_f32(x) (__float_as_int(x) < 0)
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
#define ADARRAY_FN static inline __attribute__((always_inline, unused))
#define ADARRAY_CALL static __attribute__((noinline, unused))
#define ADARRAY_INF __builtin_inf()
#define ADARRAY_NAN __builtin_nan("")
ADARRAY_FN _Bool adarray_sign_bit_f64(double x) { int64_t b; memcpy(&b, &x, 8); return b < 0; }
ADARRAY_FN _Bool adarray_sign_bit_f32(float x) { int32_t b; memcpy(&b, &x, 4); return b < 0; }
#define ADARRAY_SIGNBIT_f64(x) adarray_sign_bit_f64(x)
#define ADARRAY_SIGNBIT_f32(x) adarray_sign_bit_f32(x)
#endif

#define ADARRAY_N64(name) adarray_##name##_f64
#define ADARRAY_N32(name) adarray_##name##_f32
#define ADARRAY_M64(name) name
#define ADARRAY_M32(name) name##f

/* maximum, minimum: a nan in either operand wins; fmax, fmin: the other operand wins. Of
 * equal operands (zeros of either sign) the second one is the result, as NumPy's vector
 * loops on x86 have it. */
#define ADARRAY_CHOICES(T, N, M)                                                          \
    ADARRAY_FN T N(maximum)(T a, T b) { return (a > b) | (a != a) ? a : b; }              \
    ADARRAY_FN T N(minimum)(T a, T b) { return (a < b) | (a != a) ? a : b; }              \
    ADARRAY_FN T N(fmax)(T a, T b) { return (a > b) | (b != b) ? a : b; }                 \
    ADARRAY_FN T N(fmin)(T a, T b) { return (a < b) | (b != b) ? a : b; }                 \
    ADARRAY_FN T N(sign)(T x)                                                             \
    {                                                                                     \
        T s = x > 0 ? (T)1 : (T)0;                                                        \
        s = x < 0 ? (T)-1 : s;                                                            \
        return x != x ? x : s;                                                            \
    }

/* The remainder has the sign of the divisor, as in Python; zeros included. */
#define ADARRAY_DIVISION(T, N, M)                                                         \
    ADARRAY_FN T N(remainder)(T a, T b)                                                   \
    {                                                                                     \
        T m = M(fmod)(a, b);                                                              \
        T moved = (b < 0) != (m < 0) ? m + b : m;                                         \
        T zero = M(copysign)((T)0, b);                                                    \
        return b == 0 ? m : (m == 0 ? zero : moved);                                      \
    }                                                                                     \
    ADARRAY_FN T N(floor_divide)(T a, T b)                                                \
    {                                                                                     \
        T m = M(fmod)(a, b);                                                              \
        T q = (a - m) / b;                                                                \
        T lower = q - (T)1;                                                               \
        q = (m != 0) & ((b < 0) != (m < 0)) ? lower : q;                                  \
        T f = M(floor)(q);                                                                \
        T above = f + (T)1;                                                               \
        f = q - f > (T)0.5 ? above : f;                                                   \
        T zero = M(copysign)((T)0, a / b);                                                \
        f = q != 0 ? f : zero;                                                            \
        return b == 0 ? a / b : f;                                                        \
    }

/* log(e^a + e^b), with the larger operand taken out; equal infinities have no difference.
 * Near zero the sum cancels, so exp and log1p must be those of the C library to the last
 * bit: the functions are not inlined, and loops over them stay scalar. */
#define ADARRAY_LOGADDEXP(T, N, M)                                                        \
    ADARRAY_CALL T N(logaddexp)(T a, T b)                                                 \
    {                                                                                     \
        const T d = a - b;                                                                \
        if (a == b) return a + (T)0.693147180559945309417232121458176568;                 \
        if (d > 0) return a + M(log1p)(M(exp)(-d));                                       \
        return d <= 0 ? b + M(log1p)(M(exp)(d)) : d;                                      \
    }                                                                                     \
    ADARRAY_CALL T N(log2_1p)(T x)                                                        \
    {                                                                                     \
        return (T)1.44269504088896340735992468100189214 * M(log1p)(x);                    \
    }                                                                                     \
    ADARRAY_CALL T N(logaddexp2)(T a, T b)                                                \
    {                                                                                     \
        const T d = a - b;                                                                \
        if (a == b) return a + (T)1;                                                      \
        if (d > 0) return a + N(log2_1p)(M(exp2)(-d));                                    \
        return d <= 0 ? b + N(log2_1p)(M(exp2)(d)) : d;                                   \
    }

#define ADARRAY_BOTH(GROUP)                                                               \
    GROUP(double, ADARRAY_N64, ADARRAY_M64)                                               \
    GROUP(float, ADARRAY_N32, ADARRAY_M32)

ADARRAY_BOTH(ADARRAY_CHOICES)
ADARRAY_BOTH(ADARRAY_DIVISION)
ADARRAY_BOTH(ADARRAY_LOGADDEXP)

#if !defined(__CUDACC__) && !defined(__CUDACC_RTC__)
/* Host code has vector versions of its own where libmvec's are slow or far from NumPy's. */

/* The logarithm of a float, within 1 ulp (the polynomial of Cephes). NumPy's errs by up to
 * 4 ulp and libmvec's by up to 3, often in opposite directions. For x <= 0, inf - inf
 * raises a flag, so that NumPy is asked and warns. */
ADARRAY_FN float adarray_log_f32(float x)
{
    const _Bool small = x < 1.17549435e-38f;
    const float normal = x * (small ? 33554432.0f : 1.0f);
    uint32_t bits;
    memcpy(&bits, &normal, 4);
    bits += 0x3f800000 - 0x3f3504f3;
    const float k = (float)((int32_t)(bits >> 23) - (small ? 0x7f + 25 : 0x7f));
    bits = (bits & 0x007fffff) + 0x3f3504f3;
    float m;
    memcpy(&m, &bits, 4);
    const float f = m - 1.0f, z = f * f;
    float p = 7.0376836292e-2f;
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    float y = p * f * z - 2.12194440e-4f * k;
    y = y - 0.5f * z;
    y = f + y;
    y = y + 0.693359375f * k;
    const float bad = x <= 0 ? (float)ADARRAY_INF : 0.0f;
    y = x < (float)ADARRAY_INF ? y : x;
    y = y + (bad - bad);
    return x == 0 ? -(float)ADARRAY_INF : y;
}

/* e^x - 1 of a float, within 2 ulp: 2^k (p + 1) - 1, halved so that 2^k stays finite. */
ADARRAY_FN float adarray_expm1_f32(float x)
{
    const float low = x < -30.0f ? -30.0f : x, c = low > 89.0f ? 89.0f : low;
    const float shifted = c * 1.44269504f + 12582912.0f; /* rounds to an integer */
    const float k = shifted - 12582912.0f;
    const float r = (c - k * 0.693359375f) + k * 2.12194440e-4f;
    float p = 1.98412698e-4f;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * (r * r) + r;
    uint32_t bits;
    memcpy(&bits, &shifted, 4);
    bits = (bits - 0x4b400000u + 126u) << 23;
    float half;
    memcpy(&half, &bits, 4);
    const float y = (half * p + (half - 0.5f)) * 2.0f;
    return x == 0 ? x : y; /* keeps the sign of zero */
}

/* tanh from expm1, which is two to three times as fast as libmvec's. */
ADARRAY_FN float adarray_tanh_f32(float x)
{
    const float t = adarray_expm1_f32(-2.0f * fabsf(x));
    return copysignf(-t / (2.0f + t), x);
}

ADARRAY_FN double adarray_tanh_f64(double x)
{
    const double t = expm1(-2.0 * fabs(x));
    return copysign(-t / (2.0 + t), x);
}
#endif

#endif
