/* Floating-point flags of the calling thread, as bits that do not depend on the machine. */
#ifndef ADARRAY_FLAGS_H
#define ADARRAY_FLAGS_H

#include <fenv.h>

/* What a driver returns instead of floating-point flags. */
enum { WRONG_ARRAY = -1, NO_MEMORY = -2, WRONG_KERNEL = -3 };

#if defined(__x86_64__) && defined(__GNUC__)
#include <xmmintrin.h>

/* No kernel computes with the x87 unit, whose flags take 20 times as long to clear. */
static inline void clear_flags(void) { _mm_setcsr(_mm_getcsr() & ~0x3fu); }

static inline int read_flags(void)
{
    const unsigned int e = _mm_getcsr();
    return (e & 0x04 ? 1 : 0) | (e & 0x08 ? 2 : 0) | (e & 0x10 ? 4 : 0) | (e & 0x01 ? 8 : 0);
}
#else
static inline void clear_flags(void) { feclearexcept(FE_ALL_EXCEPT); }

static inline int read_flags(void)
{
    const int e = fetestexcept(FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID);
    return (e & FE_DIVBYZERO ? 1 : 0) | (e & FE_OVERFLOW ? 2 : 0)
        | (e & FE_UNDERFLOW ? 4 : 0) | (e & FE_INVALID ? 8 : 0);
}
#endif

#endif
