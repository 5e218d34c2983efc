/* Convolutions whose result has few channels, CHANNELS <= 4, for adarray_conv.h: no tiles are filled.
 * Neither are they for gradients of weights if cotangents have few.
 *
 * In `gather`, a thread sums PLACES / THREADS places in the precision of the operands. The table
 * that follows a job holds an offset and steps for each element of a window in a channel, and steps
 * are channels of the images. Weights lie as [group][element][channel of images][WIDE].
 */
typedef T E;
#define EACH (PLACES / THREADS)
#define WIDE (CHANNELS == 3 ? 4 : CHANNELS)
#define NEAR 8 /* channels of images */

__device__ inline float fused(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double fused(double a, double b, double c) { return fma(a, b, c); }

/* The weights of all channels of the result, read at once. */
struct __align__(WIDE * sizeof(E)) Weights { E v[WIDE]; };

extern "C" __global__ void __launch_bounds__(THREADS)
gather(const E *__restrict__ x, const E *__restrict__ w, T *__restrict__ y,
       const Job *__restrict__ job)
{
    const int2 *__restrict__ const tab = (const int2 *)(job + 1);
    const int group = blockIdx.y % job->s.groups, part = blockIdx.y / job->s.groups;
    const int steps = job->s.steps, from = part * job->s.stretch;
    const int until = min(steps, from + job->s.stretch), elements = job->elements;
    const int height = job->im.height, width = job->im.width;
    const i64 area = (i64)height * width;
    const u32 first = blockIdx.x * PLACES + threadIdx.x;

    /* Where the windows of this thread's places begin. */
    const E *start[EACH];
    int ih[EACH], iw[EACH];
    #pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 place = first + i * THREADS;
        const u32 n = quotient(place, job->p.image), rest = place - n * job->p.image.by;
        const u32 py = quotient(rest, job->p.row), px = rest - py * job->p.row.by;
        ih[i] = place < job->p.count ? (int)py * job->p.down + job->p.top : -(1 << 29);
        iw[i] = (int)px * job->p.right + job->p.left;
        start[i] = x + n * job->im.image + group * job->im.group + (i64)ih[i] * width + iw[i]
            + from * area;
    }
    T sum[EACH][CHANNELS] = {};
    /* All elements of windows of some channels, which a cache holds, and then of the next ones. */
    for (int c0 = from; c0 < until; c0 += NEAR) {
        for (int k = 0; k < elements; k++) {
            const int2 at = __ldg(tab + k);
            const int down = at.y >> 16, right = (int)(short)(at.y & 0xffff);
            const Weights *weights = (const Weights *)w + ((i64)group * elements + k) * steps;
            const E *place[EACH];
            bool inside[EACH];
            #pragma unroll
            for (int i = 0; i < EACH; i++) {
                inside[i] = (u32)(ih[i] + down) < (u32)height && (u32)(iw[i] + right) < (u32)width;
                place[i] = inside[i] ? start[i] + at.x : x;
            }
            auto add = [&](int c) {
                const Weights by = weights[c];
                #pragma unroll
                for (int i = 0; i < EACH; i++) {
                    const E seen = inside[i] ? *place[i] : (E)0;
                    place[i] += area;
                    #pragma unroll
                    for (int m = 0; m < CHANNELS; m++) sum[i][m] = fused(by.v[m], seen, sum[i][m]);
                }
            };
            if (c0 + NEAR <= until) { /* without questions, so that loads go ahead */
                #pragma unroll
                for (int c = 0; c < NEAR; c++) add(c0 + c);
            } else {
                for (int c = c0; c < until; c++) add(c);
            }
        }
        #pragma unroll
        for (int i = 0; i < EACH; i++) start[i] += NEAR * area;
    }
    const Result to = job->to;
    T *const out = y + part * to.size + to.first + (i64)group * to.channels * to.channel;
    #pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 q = first + i * THREADS, m = quotient(q, job->p.image);
        const u32 r = q - m * job->p.image.by, v = quotient(r, job->p.row);
        const u32 h = r - v * job->p.row.by;
        const i64 spot = m * to.image + (i64)v * to.row + (i64)h * to.column;
        if (q >= job->p.count) continue;
        #pragma unroll
        for (int c = 0; c < CHANNELS; c++) out[c * to.channel + spot] = sum[i][c];
    }
}

/* -- gradients of weights --------------------------------------------------------------- */

#define SUMMED 16 /* elements of windows of a block */

/* A thread multiplies every place of its own; the table is that of adarray_conv_exact.h. */
extern "C" __global__ void __launch_bounds__(THREADS)
weigh(const E *__restrict__ x, const E *__restrict__ g, T *__restrict__ y,
      const Job *__restrict__ job)
{
    __shared__ T sums[THREADS / 32][CHANNELS][SUMMED];
    const Places p = job->p;
    const Result from = job->to;
    const int height = job->im.height, width = job->im.width;
    const int group = blockIdx.y % job->s.groups, part = blockIdx.y / job->s.groups;
    const int left = blockIdx.x * SUMMED, count = min(SUMMED, job->elements - left);
    const int2 *__restrict__ const tab = (const int2 *)(job + 1) + left;
    const int start = part * job->s.stretch;
    const int until = min(job->s.steps, start + job->s.stretch);
    const E *const images = x + group * job->im.group;
    const E *const cotangents = g + from.first + (i64)group * CHANNELS * from.channel;
    T sum[CHANNELS][SUMMED] = {};
    for (int step = start; step < until; step++) {
        const u32 place = (u32)step * THREADS + threadIdx.x;
        if (place >= p.count) break;
        const u32 n = quotient(place, p.image), rest = place - n * p.image.by;
        const u32 py = quotient(rest, p.row), px = rest - py * p.row.by;
        const int ih = (int)py * p.down + p.top, iw = (int)px * p.right + p.left;
        const E *const window = images + n * job->im.image + (i64)ih * width + iw;
        E ct[CHANNELS];
        #pragma unroll
        for (int m = 0; m < CHANNELS; m++) ct[m] = cotangents[n * from.image + m * from.channel + rest];
        #pragma unroll
        for (int e = 0; e < SUMMED; e++) {
            if (e >= count) break;
            const int2 at = __ldg(tab + e);
            const int down = at.y >> 16, right = (int)(short)(at.y & 0xffff);
            const bool inside = (u32)(ih + down) < (u32)height && (u32)(iw + right) < (u32)width;
            const E seen = inside ? window[at.x] : (E)0;
            #pragma unroll
            for (int m = 0; m < CHANNELS; m++) sum[m][e] = fused(ct[m], seen, sum[m][e]);
        }
    }
    /* In one order: lanes by halves, and warps one after the other. */
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    #pragma unroll
    for (int m = 0; m < CHANNELS; m++)
        #pragma unroll
        for (int e = 0; e < SUMMED; e++) {
            T total = sum[m][e];
            #pragma unroll
            for (int with = 16; with; with /= 2) total += __shfl_xor_sync(~0u, total, with);
            if (lane == 0) sums[warp][m][e] = total;
        }
    __syncthreads();
    const int m = threadIdx.x / SUMMED, e = threadIdx.x % SUMMED;
    if (m >= CHANNELS || e >= count) return;
    T total = sums[0][m][e];
    #pragma unroll
    for (int k = 1; k < THREADS / 32; k++) total += sums[k][m][e];
    y[(((i64)part * job->s.groups + group) * CHANNELS + m) * job->elements + left + e] = total;
}

/* -- before ------------------------------------------------------------------------------- */

extern "C" __global__ void prepared(const T *__restrict__ w, E *__restrict__ to,
                                    const Filling *__restrict__ job)
{
    each_weight<false>(job, [=](i64 i, i64 base, int2 from, bool real) {
        to[i] = real && from.x >= 0 ? w[base + from.x] : (T)0;
    });
}
