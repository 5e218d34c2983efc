/* Runs a kernel in CUDA C++ on the processor, to test what it computes.
 *
 * The threads of a block are coroutines, blocks run one after the other. Threads run in one
 * order up to a barrier and in the other one after it, which shows many missing barriers.
 */
#include "coroutines.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __CUDACC_RTC__
#define int8_t int8_t_of_kernel
#define uint8_t uint8_t_of_kernel
#define int16_t int16_t_of_kernel
#define uint16_t uint16_t_of_kernel
#define int32_t int32_t_of_kernel
#define uint32_t uint32_t_of_kernel
#define int64_t int64_t_of_kernel
#define uint64_t uint64_t_of_kernel
#define __device__
#define __global__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __restrict__
#define __shared__ static

struct Index { unsigned x, y, z; };
static Index host_threads[COROUTINES];
static char host_slots[COROUTINES][8];
static Index blockIdx, gridDim, blockDim;
alignas(64) double adarray_dynamic[1 << 14];
#define threadIdx host_threads[host_thread()]
static unsigned host_thread(void) { return coroutine_now - coroutines; }

static unsigned host_count, host_round, host_size;
static unsigned host_warp_count[32], host_warp_round[32];
static void host_wait(unsigned *count, unsigned *round, unsigned size)
{
    const unsigned now = *round;
    if (++*count == size) {
        *count = 0;
        ++*round;
        return;
    }
    while (*round == now) coroutine_yield();
}
static void __syncthreads(void) { host_wait(&host_count, &host_round, host_size); }
/* Threads of the warp that are there, have not left, and take part. */
static unsigned host_members(unsigned mask)
{
    const unsigned first = host_thread() & ~31u;
    unsigned members = 0;
    for (unsigned i = 0; i < 32 && first + i < host_size; i++)
        if (!coroutines[first + i].done) members |= mask & 1u << i;
    return members;
}
static void host_warp_wait(unsigned mask)
{
    const unsigned w = host_thread() / 32;
    host_wait(host_warp_count + w, host_warp_round + w, __builtin_popcount(host_members(mask)));
}
static void __syncwarp(unsigned mask = 0xffffffff) { host_warp_wait(mask); }
/* What is exchanged with lanes that are not there has no defined value: the worst is shown. */
template <class T> static T host_exchange(unsigned mask, T x, int lane, bool inside)
{
    const unsigned t = host_thread(), source = (t & ~31u) + lane;
    memcpy(host_slots[host_thread()], &x, sizeof x);
    host_warp_wait(mask);
    if (inside && source < host_size) memcpy(&x, host_slots[source], sizeof x);
    else if (inside) memset(&x, 0xff, sizeof x);
    host_warp_wait(mask);
    return x;
}
static int host_lane(void) { return host_thread() % 32; }
template <class T> static T __shfl_sync(unsigned mask, T x, int by, int width = 32)
{
    return host_exchange(mask, x, (host_lane() & -width) + (by & (width - 1)), true);
}
template <class T> static T __shfl_up_sync(unsigned mask, T x, int by, int width = 32)
{
    return host_exchange(mask, x, host_lane() - by, (host_lane() & (width - 1)) >= by);
}
template <class T> static T __shfl_down_sync(unsigned mask, T x, int by, int width = 32)
{
    return host_exchange(mask, x, host_lane() + by, (host_lane() & (width - 1)) + by < width);
}
template <class T> static T __shfl_xor_sync(unsigned mask, T x, int by, int width = 32)
{
    const int lane = host_lane() ^ by;
    return host_exchange(mask, x, lane, lane < (host_lane() & -width) + width);
}
/* No threads are known to come together: they add one by one. */
static unsigned __match_all_sync(unsigned, unsigned long long, int *same) { *same = 0; return 0; }
static unsigned __activemask(void) { return 0xffffffff; }
/* Which threads of a warp are known to come together: none, or where a test says so, all. */
#ifdef HOST_TOGETHER
#define ADARRAY_TOGETHER host_members(0xffffffffu)
#else
#define ADARRAY_TOGETHER 0u
#endif
static int __popc(unsigned x) { return __builtin_popcount(x); }
template <class T, class F> static T host_combine(unsigned mask, T x, F f)
{
    T slots[32], y = x;
    const unsigned first = host_thread() & ~31u, members = host_members(mask);
    memcpy(host_slots[host_thread()], &x, sizeof x);
    host_warp_wait(mask);
    bool begun = false;
    for (unsigned i = 0; i < 32; i++) {
        if (!(members >> i & 1)) continue;
        memcpy(&slots[i], host_slots[first + i], sizeof x);
        y = begun ? f(y, slots[i]) : slots[i];
        begun = true;
    }
    host_warp_wait(mask);
    return y;
}
#define HOST_REDUCE(NAME, COMBINED) \
    template <class T> static T __reduce_##NAME##_sync(unsigned mask, T x) \
    { \
        return host_combine(mask, x, [](T a, T b) { return (T)(COMBINED); }); \
    }
HOST_REDUCE(add, a + b)
HOST_REDUCE(min, a < b ? a : b)
HOST_REDUCE(max, a > b ? a : b)
HOST_REDUCE(and, a & b)
HOST_REDUCE(or, a | b)
HOST_REDUCE(xor, a ^ b)
static unsigned __ballot_sync(unsigned mask, bool x)
{
    return __reduce_or_sync(mask, (unsigned)x << host_lane());
}
template <class T> static unsigned __match_any_sync(unsigned mask, T x)
{
    unsigned same = 0;
    for (int lane = 0; lane < 32; lane++) {
        const T y = host_exchange(mask, x, lane, true);
        if (host_members(mask) >> lane & 1) same |= (unsigned)!memcmp(&x, &y, sizeof x) << lane;
    }
    return same;
}
template <class T, class V> static T atomicAdd(T *p, V x) { T y = *p; *p += x; return y; }
template <class T, class V> static T atomicMax(T *p, V x) { T y = *p; if ((T)x > y) *p = x; return y; }
template <class T, class V> static T atomicMin(T *p, V x) { T y = *p; if ((T)x < y) *p = x; return y; }
static double __longlong_as_double(long long x) { double y; memcpy(&y, &x, 8); return y; }
static long long __double_as_longlong(double x) { long long y; memcpy(&y, &x, 8); return y; }

static void host_kernel(void **arguments);
static void **host_arguments;
static void coroutine_body(void) { host_kernel(host_arguments); }

/* Run the kernel on every thread of every block; return 1 if a barrier was not reached. */
extern "C" int host_launch(void **arguments, const unsigned *grid, const unsigned *block)
{
    host_arguments = arguments;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    host_size = block[0] * block[1] * block[2];
    for (unsigned b = 0; b < grid[0] * grid[1] * grid[2]; b++) {
        blockIdx = {b % grid[0], b / grid[0] % grid[1], b / grid[0] / grid[1]};
        host_count = 0;
        memset(host_warp_count, 0, sizeof host_warp_count);
        memset(adarray_dynamic, 0xff, sizeof adarray_dynamic); /* nan: what nobody wrote shows */
        for (unsigned t = 0; t < host_size; t++)
            host_threads[t] = {t % block[0], t / block[0] % block[1], t / block[0] / block[1]};
        if (!coroutines_run(host_size)) return 1;
    }
    return 0;
}
