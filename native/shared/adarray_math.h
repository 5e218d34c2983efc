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

/* Complex numbers: kernels read and write them, and compute with their parts. */
#ifdef __cplusplus
struct alignas(8) adarray_c64 { float re, im; };
struct alignas(16) adarray_c128 { double re, im; };
#define adarray_real_f64(z) ((z).re)
#define adarray_imag_f64(z) ((z).im)
#define adarray_paired_c64(re, im) (adarray_c64{re, im})
#define adarray_paired_c128(re, im) (adarray_c128{re, im})
#else
/* Compilers split what they read and write of these types into parts, so that loops over them
 * become vector code; of structs they do not. */
typedef float _Complex adarray_c64;
typedef double _Complex adarray_c128;
#define adarray_real_f64(z) (__real__ (z))
#define adarray_imag_f64(z) (__imag__ (z))
#define adarray_paired_c64(re, im) __builtin_complex(re, im)
#define adarray_paired_c128(re, im) __builtin_complex(re, im)
#endif
#define adarray_real_f32(z) adarray_real_f64(z)
#define adarray_imag_f32(z) adarray_imag_f64(z)

#define ADARRAY_N64(name) adarray_##name##_f64
#define ADARRAY_N32(name) adarray_##name##_f32
#define ADARRAY_M64(name) name
#define ADARRAY_M32(name) name##f

/* maximum, minimum: a nan in either operand wins; fmax, fmin: the other operand wins. Of
 * equal operands (zeros of either sign) the second one is the result, as NumPy's vector
 * loops on x86 have it. */
#define ADARRAY_CHOICES(T, N, M)                                                          \
    ADARRAY_FN T N(maximum)(T a, T b) { return ((a > b) | (a != a)) ? a : b; }              \
    ADARRAY_FN T N(minimum)(T a, T b) { return ((a < b) | (a != a)) ? a : b; }              \
    ADARRAY_FN T N(fmax)(T a, T b) { return ((a > b) | (b != b)) ? a : b; }                 \
    ADARRAY_FN T N(fmin)(T a, T b) { return ((a < b) | (b != b)) ? a : b; }                 \
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
        q = ((m != 0) & ((b < 0) != (m < 0))) ? lower : q;                                  \
        T f = M(floor)(q);                                                                \
        T above = f + (T)1;                                                               \
        f = q - f > (T)0.5 ? above : f;                                                   \
        T zero = M(copysign)((T)0, a / b);                                                \
        f = q != 0 ? f : zero;                                                            \
        return b == 0 ? a / b : f;                                                        \
    }

/* log(e^a + e^b), with the larger operand factored out; equal infinities have no difference.
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

/* Half precision, which lies in memory as its bits. GPUs have instructions that convert it. The
 * processors that have them differ, and compilers leave loops over them scalar; integer
 * arithmetic without branches becomes vector code everywhere, as fast as those instructions.
 * Ties go to even numbers; a nan keeps its sign and the leading bits of its payload. */
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
ADARRAY_FN float adarray_f16_to_f32(unsigned short x)
{
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
    return r;
}
ADARRAY_FN unsigned short adarray_f32_to_f16(float x)
{
    unsigned short r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}
ADARRAY_FN unsigned short adarray_f64_to_f16(double x)
{
    unsigned short r;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(r) : "d"(x));
    return r;
}
#else
ADARRAY_FN uint32_t adarray_bits_f32(float x) { uint32_t b; memcpy(&b, &x, 4); return b; }
ADARRAY_FN float adarray_of_bits_f32(uint32_t b) { float x; memcpy(&x, &b, 4); return x; }
ADARRAY_FN float adarray_f16_to_f32(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000) << 16, size = (uint32_t)(x & 0x7fff) << 13;
    const uint32_t bias = size >= 0x0f800000u ? 0x70000000u : 0x38000000u; /* of inf and nan */
    const float least = 6.103515625e-05f; /* the smallest normal number */
    const float above = adarray_of_bits_f32(size + adarray_bits_f32(least));
    const uint32_t subnormal = adarray_bits_f32(above - least);
    return adarray_of_bits_f32(sign | (size < 0x00800000u ? subnormal : size + bias));
}
ADARRAY_FN uint16_t adarray_f32_to_f16(float x)
{
    const uint32_t bits = adarray_bits_f32(x);
    const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    const uint32_t rounded = (size + 0x0fff + (size >> 13 & 1)) & 0xffffe000u;
    const uint32_t finite = size > 0x7f800000u ? size : rounded; /* nan as it is */
    /* The product overflows, and raises the flag, where half precision does. */
    const float scaled = adarray_of_bits_f32(finite) * 5.192296858534828e+33f; /* 2^112 */
    const uint32_t normal = (adarray_bits_f32(scaled) >> 13) - (224u << 10);
    /* The last place of numbers near one half is that of subnormal ones. */
    const float above = adarray_of_bits_f32(size) + 0.5f;
    const uint32_t subnormal = adarray_bits_f32(above) - adarray_bits_f32(0.5f);
    return (uint16_t)(sign | (size < 0x38800000u ? subnormal : normal));
}
/* Through float, rounded to odd there: what is rounded a second time is then no tie that was
 * none. S. Boldo, G. Melquiond, "Emulation of a FMA and correctly rounded sums: proved
 * algorithms using rounding to odd", IEEE Trans. Comput. 57 (2008), 462-471. */
ADARRAY_FN uint16_t adarray_f64_to_f16(double x)
{
    const float near = (float)x;
    const double back = near;
    const uint32_t bits = adarray_bits_f32(near), beyond = fabs(back) > fabs(x);
    return adarray_f32_to_f16(adarray_of_bits_f32(back == x ? bits : (bits - beyond) | 1));
}
#endif

#endif
