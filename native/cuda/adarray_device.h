/* What kernels printed for GPUs are made with: types, memory, functions, and groups of threads.
 *
 * Compiled by NVRTC, which has no standard headers, and by nvcc.
 */
#ifndef ADARRAY_DEVICE_H
#define ADARRAY_DEVICE_H

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;
#else
#include <stdint.h>
#endif
#define _Bool bool
#include "adarray_math.h"

#define ADARRAY_IN static __device__ __forceinline__
#ifndef ADARRAY_NEAR /* the shared memory whose size the launch gives */
#define ADARRAY_NEAR(name) extern __shared__ __align__(16) char name[]
#endif

/* N neighbouring elements, which one instruction moves. */
template <class T, int N> struct alignas(sizeof(T) * N) adarray_pack { T v[N]; };

template <int N, class T> ADARRAY_IN bool adarray_aligned(const T *p)
{
    return (uintptr_t)p % (N * sizeof(T)) == 0;
}

/* How many of n elements come before the first aligned pack. */
template <int N, class T> ADARRAY_IN int64_t adarray_head(const T *p, int64_t n)
{
    const int64_t head = (N - (int64_t)((uintptr_t)p / sizeof(T)) % N) % N;
    return head < n ? head : n;
}

/* Packs at aligned addresses; and element by element, at any. There is no choice at run time
 * in here: compilers make one of the two branches, which moves elements one by one. */
template <class T, int N> ADARRAY_IN void adarray_load(adarray_pack<T, N> &x, const T *p)
{
    x = *(const adarray_pack<T, N> *)p;
}

/* Stores of one instruction each: nvcc takes some assignments of packs apart, into four that
 * write a quarter of each line. The compiler may move loads across what adarray_store_only
 * writes, which must be nothing that the kernel reads or writes elsewhere. */
#ifdef __CUDA_ARCH__
#define ADARRAY_PUT(name, space, way, ...)                                                 \
    template <class T, int N> ADARRAY_IN void name(const adarray_pack<T, N> &x, T *p)       \
    {                                                                                      \
        constexpr int size = sizeof(T) * N;                                                \
        union { adarray_pack<T, N> pack; unsigned w[(size + 3) / 4]; } bits;                \
        bits.pack = x;                                                                     \
        const unsigned *const w = bits.w;                                                  \
        const uint64_t at = __cvta_generic_to_##space(p);                                  \
        if constexpr (size == 16)                                                          \
            asm volatile("st." #space way ".v4.b32 [%0], {%1, %2, %3, %4};"                \
                         ::"l"(at), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) __VA_ARGS__); \
        else if constexpr (size == 8)                                                      \
            asm volatile("st." #space way ".v2.b32 [%0], {%1, %2};"                        \
                         ::"l"(at), "r"(w[0]), "r"(w[1]) __VA_ARGS__);                      \
        else if constexpr (size == 4)                                                      \
            asm volatile("st." #space way ".b32 [%0], %1;" ::"l"(at), "r"(w[0]) __VA_ARGS__); \
        else                                                                               \
            *(adarray_pack<T, N> *)p = x;                                                  \
    }
#else
#define ADARRAY_PUT(name, space, way, ...)                                                 \
    template <class T, int N> ADARRAY_IN void name(const adarray_pack<T, N> &x, T *p)       \
    {                                                                                      \
        *(adarray_pack<T, N> *)p = x;                                                      \
    }
#endif
ADARRAY_PUT(adarray_store, global, "", : "memory")
ADARRAY_PUT(adarray_store_only, global, "")
ADARRAY_PUT(adarray_store_past, global, ".cs") /* like _only; nobody reads it soon */
ADARRAY_PUT(adarray_store_near, shared, "", : "memory")

template <class T, int N> ADARRAY_IN void adarray_load_each(adarray_pack<T, N> &x, const T *p)
{
#pragma unroll
    for (int u = 0; u < N; u++) x.v[u] = p[u];
}

template <class T, int N> ADARRAY_IN void adarray_store_each(const adarray_pack<T, N> &x, T *p)
{
#pragma unroll
    for (int u = 0; u < N; u++) p[u] = x.v[u];
}

/* Copies into shared memory that their thread does not wait for. It commits those that it has
 * begun as a part, and sees all parts but the last N after adarray_arrived<N>. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <int S> ADARRAY_IN void adarray_begin(void *to, const void *from)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    const uint64_t source = __cvta_generic_to_global(from);
    if constexpr (S == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(source) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                     ::"r"(at), "l"(source), "n"(S) : "memory");
}
ADARRAY_IN void adarray_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> ADARRAY_IN void adarray_arrived()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#elif defined(ADARRAY_BEGIN) /* the emulator of the tests */
template <int S> ADARRAY_IN void adarray_begin(void *to, const void *from)
{
    ADARRAY_BEGIN(to, from, S);
}
ADARRAY_IN void adarray_commit() { ADARRAY_COMMIT(); }
template <int N> ADARRAY_IN void adarray_arrived() { ADARRAY_ARRIVED(N); }
#else
template <int S> ADARRAY_IN void adarray_begin(void *to, const void *from)
{
    struct alignas(S) All { char bytes[S]; };
    *(All *)to = *(const All *)from;
}
ADARRAY_IN void adarray_commit() {}
template <int N> ADARRAY_IN void adarray_arrived() {}
#endif

/* Copy a pack so; its elements one by one where memory is not aligned. */
template <class T, int N> ADARRAY_IN void adarray_fetch(adarray_pack<T, N> *to, const T *from)
{
    if (adarray_aligned<N>(from)) {
        adarray_begin<sizeof(T) * N>(to, from);
    } else {
#pragma unroll
        for (int u = 0; u < N; u++) {
            if constexpr (sizeof(T) >= 4)
                adarray_begin<sizeof(T)>(to->v + u, from + u);
            else
                to->v[u] = from[u];
        }
    }
}

/* Extrema in folds, whose operands come in no order of their own: a nan wins, and of zeros of
 * both signs the larger one for a maximum. One instruction in place of four. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define ADARRAY_EXTREMUM(name, op)                                                          \
    ADARRAY_IN float adarray_##name##_of(float a, float b)                                  \
    {                                                                                      \
        float c;                                                                           \
        asm(op ".NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));                          \
        return c;                                                                          \
    }
#else
#define ADARRAY_EXTREMUM(name, op)                                                          \
    ADARRAY_IN float adarray_##name##_of(float a, float b)                                  \
    {                                                                                      \
        return adarray_##name##_f32(a, b);                                                 \
    }
#endif
ADARRAY_EXTREMUM(maximum, "max")
ADARRAY_EXTREMUM(minimum, "min")

/* A number that is compared with those of passes, of which there are fewer than 2^30. */
ADARRAY_IN int adarray_narrow(int64_t x)
{
    return x >= 0 && x <= 0x7fffffff ? (int)x : -0x7fffffff - 1;
}

/* Fold a value into memory that other threads fold into, too; return what was there. */
#ifdef __CUDA_ARCH__
template <class T> ADARRAY_IN T adarray_atomic_add(T *p, T x)
{
    if constexpr (sizeof(T) == 8 && T(0.5) == T(0)) /* wraps like unsigned integers */
        return (T)atomicAdd((unsigned long long *)p, (unsigned long long)x);
    else
        return atomicAdd(p, x);
}
#else
template <class T> ADARRAY_IN T adarray_atomic_add(T *p, T x)
{
    const T before = *p;
    *p += x;
    return before;
}
#endif
ADARRAY_IN void adarray_atomic_maximum(int64_t *p, int64_t x)
{
#ifdef __CUDA_ARCH__
    atomicMax((long long *)p, (long long)x);
#else
    if (x > *p) *p = x;
#endif
}

#include "adarray_quick.h"

/* Functions out of line: see codegen/cuda.py. */
#define ADARRAY_FAR_1(g)                                                                   \
    static __device__ __noinline__ double adarray_far_##g(double x) { return g(x); }        \
    static __device__ __noinline__ float adarray_far_##g##f(float x) { return g##f(x); }
#define ADARRAY_FAR_OWN(g)                                                                 \
    static __device__ __noinline__ double adarray_far_##g(double x) { return g(x); }        \
    static __device__ __noinline__ float adarray_far_##g##f(float x)                        \
    {                                                                                      \
        adarray_careful policy;                                                            \
        return adarray_##g##f(policy, x);                                                  \
    }
#define ADARRAY_FAR_2(g)                                                                   \
    static __device__ __noinline__ double adarray_far_##g(double x, double y)               \
    {                                                                                      \
        return g(x, y);                                                                    \
    }                                                                                      \
    static __device__ __noinline__ float adarray_far_##g##f(float x, float y)               \
    {                                                                                      \
        return g##f(x, y);                                                                 \
    }
ADARRAY_FAR_1(cbrt) ADARRAY_FAR_1(exp) ADARRAY_FAR_1(exp2) ADARRAY_FAR_1(expm1)
ADARRAY_FAR_1(log) ADARRAY_FAR_1(log2) ADARRAY_FAR_1(log10) ADARRAY_FAR_OWN(log1p)
ADARRAY_FAR_OWN(sin) ADARRAY_FAR_OWN(cos) ADARRAY_FAR_1(tan)
ADARRAY_FAR_1(asin) ADARRAY_FAR_1(acos) ADARRAY_FAR_1(atan)
ADARRAY_FAR_1(sinh) ADARRAY_FAR_1(cosh) ADARRAY_FAR_1(tanh)
ADARRAY_FAR_1(asinh) ADARRAY_FAR_1(acosh) ADARRAY_FAR_1(atanh)
ADARRAY_FAR_1(erf) ADARRAY_FAR_1(erfc)
ADARRAY_FAR_2(pow) ADARRAY_FAR_2(hypot) ADARRAY_FAR_2(atan2)
static __device__ __noinline__ void adarray_far_sincos(double x, double *s, double *c)
{
    sincos(x, s, c);
}
static __device__ __noinline__ void adarray_far_sincosf(float x, float *s, float *c)
{
    adarray_careful policy;
    adarray_sincosf(policy, x, s, c);
}

/* What the threads of a group do together. */
#include "adarray_groups.h"

/* Integer division and power as NumPy has them: see adarray_integer.h. */
#include "adarray_integer.h"

#endif
