/* What kernels printed for GPUs are made with: types, groups of threads, and memory.
 *
 * A group is 1, 2, 4 ... 32 neighbouring threads, or a whole block; its threads share one
 * pass of a kernel's parallel loop, and the passes of the vector loops in it. Compiled by
 * NVRTC, which has no standard headers, and by nvcc.
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

/* Fold a value into memory that other threads fold into, too. */
#ifdef __CUDA_ARCH__
template <class T> ADARRAY_IN void adarray_atomic_add(T *p, T x)
{
    if constexpr (sizeof(T) == 8 && T(0.5) == T(0)) /* wraps like unsigned integers */
        atomicAdd((unsigned long long *)p, (unsigned long long)x);
    else
        atomicAdd(p, x);
}
#else
template <class T> ADARRAY_IN void adarray_atomic_add(T *p, T x) { *p += x; }
#endif
ADARRAY_IN void adarray_atomic_maximum(int64_t *p, int64_t x)
{
#ifdef __CUDA_ARCH__
    atomicMax((long long *)p, (long long)x);
#else
    if (x > *p) *p = x;
#endif
}

/* Functions out of line: see codegen/cuda.py. */
#define ADARRAY_FAR_1(g)                                                                   \
    static __device__ __noinline__ double adarray_far_##g(double x) { return g(x); }        \
    static __device__ __noinline__ float adarray_far_##g##f(float x) { return g##f(x); }
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
ADARRAY_FAR_1(log) ADARRAY_FAR_1(log2) ADARRAY_FAR_1(log10) ADARRAY_FAR_1(log1p)
ADARRAY_FAR_1(sin) ADARRAY_FAR_1(cos) ADARRAY_FAR_1(tan)
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
    sincosf(x, s, c);
}

/* Exchange within a warp. */
template <class T> ADARRAY_IN T adarray_swap(unsigned mask, T x, int with)
{
    if constexpr (sizeof(T) < 4)
        return (T)__shfl_xor_sync(mask, (int)x, with);
    else if constexpr (sizeof(T) == 8 && T(0.5) == T(0))
        return (T)__shfl_xor_sync(mask, (long long)x, with);
    else
        return __shfl_xor_sync(mask, x, with);
}

template <class T> ADARRAY_IN T adarray_from(unsigned mask, T x, int lane)
{
    if constexpr (sizeof(T) < 4)
        return (T)__shfl_sync(mask, (int)x, lane);
    else if constexpr (sizeof(T) == 8 && T(0.5) == T(0))
        return (T)__shfl_sync(mask, (long long)x, lane);
    else
        return __shfl_sync(mask, x, lane);
}

/* The lanes of this thread's group in its warp. */
template <int G> ADARRAY_IN unsigned adarray_lanes()
{
    if constexpr (G >= 32) return 0xffffffffu;
    return ((1u << G % 32) - 1) << (threadIdx.x % 32 / G * G);
}

/* Wait for the group, and see what its threads have written. */
template <int G> ADARRAY_IN void adarray_sync()
{
    if constexpr (G > 32)
        __syncthreads();
    else if constexpr (G > 1)
        __syncwarp(adarray_lanes<G>());
}

/* Combine the values of a group's threads, in an order that never changes; all get the
 * result. `room` has an element for each warp of a block. */
template <int G, class T, class F> ADARRAY_IN T adarray_together(T x, T *room, F f)
{
    if constexpr (G == 1) return x;
    constexpr int W = G < 32 ? G : 32;
    const unsigned mask = adarray_lanes<G>();
    for (int d = W / 2; d > 0; d /= 2) x = f(x, adarray_swap(mask, x, d));
    if constexpr (G > 32) {
        __syncthreads(); /* somebody may still read what `room` held before */
        if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
        __syncthreads();
        /* Every warp does the same. */
        x = room[threadIdx.x % (G / 32)];
        for (int d = G / 64; d > 0; d /= 2) x = f(x, adarray_swap(mask, x, d));
        x = adarray_from(mask, x, 0);
    } else { /* zeros of both signs may have met in different orders */
        x = adarray_from(mask, x, threadIdx.x % 32 / W * W);
    }
    return x;
}

/* Fold the values of a group's threads up to and with each thread's own; `total` is that of
 * all. `room` has an element for each warp of a block. */
template <int G, class T, class F> ADARRAY_IN T adarray_scan(T x, T *room, T &total, F f)
{
    constexpr int W = G < 32 ? G : 32;
    const unsigned mask = adarray_lanes<G>();
    const int lane = threadIdx.x % W, first = threadIdx.x % 32 - lane;
    for (int d = 1; d < W; d *= 2) {
        const T before = adarray_from(mask, x, lane < d ? first + lane : first + lane - d);
        if (lane >= d) x = f(before, x);
    }
    total = adarray_from(mask, x, first + W - 1);
    if constexpr (G > 32) {
        constexpr int N = G / 32;
        const int warp = threadIdx.x / 32, slot = lane % N;
        __syncthreads(); /* somebody may still read what `room` held before */
        if (lane == 31) room[warp] = x;
        __syncthreads();
        T sum = room[slot];
        for (int d = 1; d < N; d *= 2) {
            const T before = adarray_from(mask, sum, slot < d ? slot : slot - d);
            if (slot >= d) sum = f(before, sum);
        }
        total = adarray_from(mask, sum, N - 1);
        const T before = adarray_from(mask, sum, warp > 0 ? warp - 1 : 0);
        if (warp > 0) x = f(before, x);
    }
    return x;
}

/* Fold the values of all blocks into out[0]: the last block to come here does it, in the
 * order of the blocks. Every thread calls; `x` is the same for all of a block. `parts` has
 * an element for each block, and `count` is 0 before and after. */
template <int B, class T, class F>
ADARRAY_IN bool adarray_last(T x, T neutral, T *parts, unsigned *count, T *room, T *out, F f)
{
    __shared__ bool last;
    const unsigned blocks = gridDim.x * gridDim.y;
    if (threadIdx.x == 0) {
        parts[blockIdx.y * gridDim.x + blockIdx.x] = x;
        __threadfence();
        last = atomicAdd(count, 1u) == blocks - 1;
    }
    __syncthreads();
    const bool mine = last;
    if (mine) {
        __threadfence();
        T sum = neutral;
        for (unsigned k = threadIdx.x; k < blocks; k += B)
            sum = f(sum, *(volatile T *)(parts + k));
        sum = adarray_together<B>(sum, room, f);
        if (threadIdx.x == 0) {
            out[0] = sum;
            *count = 0;
        }
    }
    __syncthreads(); /* `last` is read by all before the next total sets it */
    return mine;
}

/* Fold rows of `parts`, one for each group that ran, into out: a block of 32 by 32 threads
 * for each 32 columns, rows in a fixed order. */
template <class T, class F>
ADARRAY_IN void adarray_merge(const T *parts, int64_t rows, int64_t stride, int64_t size,
                              T neutral, T *out, F f)
{
    __shared__ T room[32][32];
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    for (int64_t first = (int64_t)blockIdx.x * 32; first < size; first += (int64_t)gridDim.x * 32) {
        const int64_t column = first + x;
        T sum = neutral;
        if (column < size)
            for (int64_t row = y; row < rows; row += 32) sum = f(sum, parts[row * stride + column]);
        room[y][x] = sum;
        __syncthreads();
        if (y == 0 && column < size) {
            for (int k = 1; k < 32; k++) sum = f(sum, room[k][x]);
            out[column] = sum;
        }
        __syncthreads();
    }
}

/* Integer division and power as NumPy has them: see adarray_integer.h. */
#include "adarray_integer.h"

#endif
