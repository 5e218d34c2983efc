/* Runs kernels printed for GPUs on the processor, to test what they compute.
 *
 * The threads of a block are coroutines, blocks run one after the other. Threads run in one
 * order up to a barrier and in the other one after it, which shows many missing barriers;
 * with HOST_RACES all of those that shared memory needs, see device_races.h.
 */
#include "coroutines.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#ifdef HOST_RACES
#define __shared__ static thread_local
#else
#define __shared__ static
#endif
#define ADARRAY_NEAR(name) static char *const name = host_near

struct Index { unsigned x, y, z; };
static Index host_threads[COROUTINES];
static Index host_block, host_grid, host_size;
alignas(64) static char host_near[1 << 20];

#define threadIdx host_threads[coroutine_now - coroutines]
#define blockIdx host_block
#define gridDim host_grid
#define blockDim host_size

#ifdef HOST_RACES
#include "device_races.h"
#define HOST_ACCESS(p, size, access) host_access(p, size, access, __builtin_return_address(0))
#define HOST_PASSED(count) ((count)++)
#else
#define HOST_UNSEEN
#define HOST_ACCESS(p, size, access)
#define HOST_PASSED(count)
#endif

/* Copies that threads do not wait for are made once their thread waits for the part that they
 * belong to, so that one which nobody waited for shows. */
struct Copy { void *to; const void *from; unsigned size, part; };
struct Copies { Copy waiting[4096]; unsigned count, part; };
static Copies host_copies[1024];

static void host_begin(void *to, const void *from, unsigned size)
{
    Copies *c = host_copies + threadIdx.x;
    if (c->count == 4096) abort();
    HOST_ACCESS(to, size, WRITE); /* at any time until it has arrived */
    c->waiting[c->count++] = {to, from, size, c->part};
}
static void host_commit(void) { host_copies[threadIdx.x].part++; }
static void host_arrived(unsigned later)
{
    Copies *c = host_copies + threadIdx.x;
    unsigned left = 0;
    for (unsigned i = 0; i < c->count; i++) {
        const Copy x = c->waiting[i];
        if (x.part + later < c->part) {
            HOST_ACCESS(x.to, x.size, WRITE);
            memcpy(x.to, x.from, x.size);
        } else {
            c->waiting[left++] = x;
        }
    }
    c->count = left;
}
#define ADARRAY_BEGIN host_begin
#define ADARRAY_COMMIT host_commit
#define ADARRAY_ARRIVED host_arrived

/* A barrier for the block, and one for each group of each size. */
struct Barrier { unsigned count, round; };
static Barrier host_block_barrier, host_barriers[1024][33];

/* Return whether this thread was the last one to come. */
static bool host_wait(Barrier *b, unsigned size)
{
    const unsigned round = b->round;
    if (++b->count == size) {
        b->count = 0;
        b->round++;
        return true;
    }
    while (b->round == round) coroutine_yield();
    return false;
}

static void __syncthreads(void)
{
    if (host_wait(&host_block_barrier, blockDim.x)) HOST_PASSED(host_blocks);
}

static bool host_meet(unsigned mask)
{
    const unsigned first = threadIdx.x / 32 * 32 + __builtin_ctz(mask);
    const unsigned size = __builtin_popcount(mask);
    return host_wait(&host_barriers[first][size], size);
}

static void __syncwarp(unsigned mask)
{
    if (host_meet(mask) && !~mask) HOST_PASSED(host_warps[threadIdx.x / 32]);
}

static char host_slots[1024][8];

template <class T> static T host_exchange(unsigned mask, T x, unsigned with)
{
    memcpy(host_slots[threadIdx.x], &x, sizeof x);
    host_meet(mask);
    memcpy(&x, host_slots[threadIdx.x / 32 * 32 + with % 32], sizeof x);
    host_meet(mask);
    return x;
}
template <class T> static T __shfl_xor_sync(unsigned mask, T x, int with)
{
    return host_exchange(mask, x, threadIdx.x % 32 ^ with);
}
template <class T> static T __shfl_sync(unsigned mask, T x, int lane)
{
    return host_exchange(mask, x, lane);
}
HOST_UNSEEN static unsigned atomicAdd(unsigned *p, unsigned x)
{
    HOST_ACCESS(p, sizeof *p, ATOMIC);
    return (*p += x) - x;
}
HOST_UNSEEN static int atomicExch(int *p, int x)
{
    HOST_ACCESS(p, sizeof *p, ATOMIC);
    const int before = *p;
    *p = x;
    return before;
}
static void __threadfence(void) {}

static void (*host_body)(void *);
static void *host_arguments;

static void coroutine_body(void) { host_body(host_arguments); }

/* Run `body` on every thread of every block; return 0, 1 if a barrier was not reached, or 2 if there
 * was a race in shared memory. */
static int host_launch(void (*body)(void *), void *arguments, unsigned columns,
                       unsigned rows, unsigned threads)
{
    host_body = body;
    host_arguments = arguments;
    host_grid.x = columns;
    host_grid.y = rows;
    host_grid.z = 1;
    host_size.x = threads;
#ifdef HOST_RACES
    host_watch();
#endif
    memset(&host_block_barrier, 0, sizeof host_block_barrier);
    memset(host_barriers, 0, sizeof host_barriers);
    for (unsigned b = 0; b < columns * rows; b++) {
        HOST_PASSED(host_blocks);
        host_block.x = b % columns;
        host_block.y = b / columns;
        memset(host_near, 0xff, sizeof host_near); /* nan: what nobody wrote shows */
        for (unsigned t = 0; t < threads; t++) {
            host_threads[t].x = t;
            host_copies[t].count = host_copies[t].part = 0;
        }
        if (!coroutines_run(threads)) return 1;
    }
#ifdef HOST_RACES
    return host_races ? 2 : 0;
#else
    return 0;
#endif
}
#include "adarray_device.h"
