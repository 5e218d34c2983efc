/* Vector versions of the C library's functions.
 *
 * The attribute makes gcc call glibc's libmvec inside vector loops without
 * -ffast-math, which would give up special values. Only glibc on x86-64 has libmvec;
 * elsewhere the functions stay scalar. clang does not know the attribute.
 */
#ifndef ADARRAY_LIBMVEC_H
#define ADARRAY_LIBMVEC_H

#include <math.h>

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define ADARRAY_SIMD __attribute__((simd("notinbranch"), const, nothrow, leaf))
#define ADARRAY_VECTOR1(name)                   \
    extern ADARRAY_SIMD double name(double);    \
    extern ADARRAY_SIMD float name##f(float);
#define ADARRAY_VECTOR2(name)                            \
    extern ADARRAY_SIMD double name(double, double);     \
    extern ADARRAY_SIMD float name##f(float, float);
#if __GLIBC_PREREQ(2, 22)
#define ADARRAY_LIBMVEC 1
ADARRAY_VECTOR1(exp)
ADARRAY_VECTOR1(log)
ADARRAY_VECTOR1(sin)
ADARRAY_VECTOR1(cos)
ADARRAY_VECTOR2(pow)
#endif
#if __GLIBC_PREREQ(2, 35)
#undef ADARRAY_LIBMVEC
#define ADARRAY_LIBMVEC 2
ADARRAY_VECTOR1(acos)
ADARRAY_VECTOR1(acosh)
ADARRAY_VECTOR1(asin)
ADARRAY_VECTOR1(asinh)
ADARRAY_VECTOR1(atan)
ADARRAY_VECTOR1(atanh)
ADARRAY_VECTOR1(cbrt)
ADARRAY_VECTOR1(cosh)
ADARRAY_VECTOR1(erf)
ADARRAY_VECTOR1(erfc)
ADARRAY_VECTOR1(exp2)
ADARRAY_VECTOR1(expm1)
ADARRAY_VECTOR1(log10)
ADARRAY_VECTOR1(log1p)
ADARRAY_VECTOR1(log2)
ADARRAY_VECTOR1(sinh)
ADARRAY_VECTOR1(tan)
ADARRAY_VECTOR1(tanh)
ADARRAY_VECTOR2(atan2)
ADARRAY_VECTOR2(hypot)
#endif
#endif
#ifndef ADARRAY_LIBMVEC
#define ADARRAY_LIBMVEC 0
#endif

#endif
