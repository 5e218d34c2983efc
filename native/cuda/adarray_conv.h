/* Convolutions of images as products of matrices whose operands are gathered on the way.
 *
 * To be compiled with these definitions, followed by adarray_conv_exact.h, adarray_conv_few.h, or,
 * for Tensor Cores, by adarray_conv_words.h and adarray_conv_tensor.h or adarray_conv_hopper.h:
 *   KIND     1 float, 2 float rounded to tf32, 3 bf16, 4 fp16, 5 double
 *   CHANNELS     channels of the result in a tile
 *   PLACES   its places of the result
 *   DEPTH    tiles in shared memory
 *   BLOCKS   that a multiprocessor holds at a time
 *
 * `gather` computes a convolution, and the gradient of its images: a place of the result, and an
 * element of the windows k, name an element of the images by sums of what each of them
 * contributes, and elements outside are zero. `weigh` computes the gradient of the weights: sums
 * over places, of which each block takes a stretch; `folded` adds the sums of blocks, always in
 * the same order. Both copy tiles to shared memory asynchronously, DEPTH at a time.
 *
 * References:
 * - S. Chetlur et al., "cuDNN: efficient primitives for deep learning", arXiv:1410.0759, 2014.
 */
#ifndef ADARRAY_CONV_H
#define ADARRAY_CONV_H

typedef long long i64;
typedef unsigned int u32;

#if KIND == 5
typedef double T; /* of results and sums */
#else
typedef float T;
#endif
#define THREADS 256

/* Division of p < 2^31 by a constant, as the upper half of a product. */
struct Divisor { u32 by, times, shift; };

__device__ inline u32 quotient(u32 p, Divisor d)
{
    return d.by == 1 ? p : __umulhi(p, d.times) >> d.shift;
}

#ifndef ADARRAY_CONV_HOST /* tests run the rest on the processor */
#define SHARED_MEMORY(name) extern __shared__ __align__(1024) unsigned char name[]

__device__ inline u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

/* Copy 16 bytes, or write zeros. */
__device__ inline void fetch16(void *to, const void *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
                 "r"(shared_address(to)), "l"(from), "r"(inside ? 16 : 0));
}

__device__ inline void commit() { asm volatile("cp.async.commit_group;"); }

template <int LEFT> __device__ inline void arrived()
{
    asm volatile("cp.async.wait_group %0;" :: "n"(LEFT));
    __syncthreads();
}
#endif

struct Places {         /* places of the result, counted over images, rows and columns */
    u32 count;
    Divisor image, row; /* places of an image, of a row */
    int down, right;    /* steps in the images from place to place */
    int top, left;      /* where the first window begins: minus the padding */
};

struct Images {
    int height, width;
    i64 image, group;   /* elements from image to image, from group to group */
};

struct Result {
    i64 image, channel; /* elements from image to image, from channel to channel */
    int row, column;    /* from place to place */
    i64 first, size;    /* offset of the first element; elements of all */
    int channels;       /* of a group */
};

struct Sums { int steps, stretch, tiles, groups; }; /* tiles of k in all, of a block; of channels */

/* What a kernel does, in device memory, followed by the table of k. */
struct __align__(16) Job {
    Places p;
    Images im;
    Result to;
    Sums s;
    int elements; /* of windows */
    int words;    /* of a pixel's channels, for Tensor Cores */
};

/* How weights are prepared: those of element k of windows and channel m of a group lie at
 * group * each + m * apart + at[k], where at follows this; at[k] < 0 stands for zero. */
struct __align__(16) Filling { int deep, wide, channels, groups; i64 each, apart; };

/* What `each_weight` does, with divisions of Count. */
template <bool by_channel, class Count, class Put>
__device__ inline void counted_weights(const Filling *__restrict__ job, Put put)
{
    const Count deep = job->deep, wide = job->wide, size = job->groups * deep * wide;
    const Count inner = by_channel ? deep : wide, outer = by_channel ? wide : deep;
    const int channels = job->channels;
    const i64 each = job->each, apart = job->apart;
    const int2 *__restrict__ const at = (const int2 *)(job + 1);
    const Count step = (Count)gridDim.x * blockDim.x;
    for (Count i = (Count)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += step) {
        const Count row = i / inner, rest = i - row * inner;
        const Count group = row / outer, other = row - group * outer;
        const int k = by_channel ? rest : other, m = by_channel ? other : rest;
        put(i, group * each + m * apart, at[k], m < channels);
    }
}

/* Call put(place, offset, at[k], whether there is such a channel) for all prepared weights, which
 * lie as [group][k][channel], or with `by_channel` as [group][channel][k]. */
template <bool by_channel, class Put>
__device__ inline void each_weight(const Filling *__restrict__ job, Put put)
{
    if ((i64)job->groups * job->deep * job->wide < (i64)1 << 31)
        counted_weights<by_channel, u32>(job, put);
    else
        counted_weights<by_channel, i64>(job, put);
}

/* Add the sums of `parts` blocks, in order. */
extern "C" __global__ void folded(const T *__restrict__ from, T *__restrict__ to, i64 size,
                                  i64 parts)
{
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += step) {
        T total = from[i];
        for (i64 k = 1; k < parts; k++) total += from[k * size + i];
        to[i] = total;
    }
}

#endif
