/* Convolutions in the precision of their operands, for adarray_conv.h.
 *
 * Images and weights are read as they lie in [number][channel][row][column] and, ready for tiles,
 * [group][k][channel]. The table that follows a job holds, for each element of windows, an
 * offset and steps along height and width.
 */
typedef T E;
#define DEEP 16        /* elements of windows in a tile of `gather` */
#define ROOM 8         /* between rows, for different banks */

#ifndef ADARRAY_CONV_HOST
/* Copy a number, or write zero. */
__device__ inline void fetch(void *to, const E *from, bool inside)
{
#if KIND == 5
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::
                 "r"(shared_address(to)), "l"(from), "r"(inside ? 8 : 0));
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::
                 "r"(shared_address(to)), "l"(from), "r"(inside ? 4 : 0));
#endif
}

#endif

__device__ inline float fused(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double fused(double a, double b, double c) { return fma(a, b, c); }

/* A tile of sums, one thread's part of it. */
#define TALL (CHANNELS / 16)
#define WIDE (PLACES / 16)

struct __align__(16) Four { T v[4]; };

/* The rows and columns, in a tile, of sum (i, j) of this thread. */
__device__ inline int row_of(int i)
{
    return threadIdx.x / 16 * 4 + i / 4 * 64 + i % 4;
}

__device__ inline int column_of(int j)
{
    return threadIdx.x % 16 * 4 + j / 4 * 64 + j % 4;
}

extern "C" __global__ void __launch_bounds__(THREADS, KIND == 5 ? 1 : 2)
gather(const E *__restrict__ x, const E *__restrict__ w, T *__restrict__ y,
       const Job *__restrict__ job)
{
    const Places p = job->p;
    const Images im = job->im;
    const Sums s = job->s;
    const int2 *__restrict__ const tab = (const int2 *)(job + 1);
    SHARED_MEMORY(memory);
    E *const a = (E *)memory, *const b = a + DEPTH * DEEP * (CHANNELS + ROOM);
    const int tile = blockIdx.x % s.tiles, group = blockIdx.y % s.groups;
    const int part = blockIdx.y / s.groups;
    const u32 first = blockIdx.x / s.tiles * PLACES;
    const int from = part * s.stretch;
    const int until = min(s.steps, from + s.stretch);

    /* Where the windows of this thread's place begin. */
    const int column = threadIdx.x % PLACES, deep = threadIdx.x / PLACES;
    const u32 place = first + column;
    const u32 n = quotient(place, p.image), rest = place - n * p.image.by;
    const u32 py = quotient(rest, p.row), px = rest - py * p.row.by;
    const int ih = place < p.count ? (int)py * p.down + p.top : -(1 << 29);
    const int iw = (int)px * p.right + p.left;
    const E *const start = x + n * im.image + group * im.group + (i64)ih * im.width + iw;
    const E *const weights = w + (((i64)group * s.steps) * DEEP * s.tiles + tile) * CHANNELS;

#define LOAD_TILE(step)                                                                          \
    do {                                                                                         \
        const int slot = (step) % DEPTH, k0 = (step) * DEEP;                                     \
        _Pragma("unroll") for (int i = 0; i < DEEP * PLACES / THREADS; i++) {                    \
            const int k = deep + i * (THREADS / PLACES);                                         \
            const int2 at = __ldg(tab + k0 + k);                                                 \
            const int down = at.y >> 16, right = (int)(short)(at.y & 0xffff);                    \
            const bool inside = (u32)(ih + down) < (u32)im.height                                \
                && (u32)(iw + right) < (u32)im.width;                                            \
            fetch(b + (slot * DEEP + k) * (PLACES + ROOM) + column,                              \
                  inside ? start + at.x : x, inside);                                            \
        }                                                                                        \
        const int chunk = 16 / sizeof(E), chunks = CHANNELS / chunk;                                 \
        _Pragma("unroll") for (int i = 0; i < DEEP * CHANNELS / chunk / THREADS; i++) {              \
            const int at = threadIdx.x + i * THREADS, k = at / chunks, m = at % chunks * chunk;  \
            fetch16(a + (slot * DEEP + k) * (CHANNELS + ROOM) + m,                                   \
                    weights + (i64)(k0 + k) * s.tiles * CHANNELS + m, true);                         \
        }                                                                                        \
    } while (0)

    T sum[TALL][WIDE] = {};
    for (int i = 0; i < DEPTH - 1; i++) {
        if (from + i < until) LOAD_TILE(from + i);
        commit();
    }
    for (int step = from; step < until; step++) {
        arrived<DEPTH - 2>();
        if (step + DEPTH - 1 < until) LOAD_TILE(step + DEPTH - 1);
        commit();
        const E *const as = a + step % DEPTH * DEEP * (CHANNELS + ROOM);
        const E *const bs = b + step % DEPTH * DEEP * (PLACES + ROOM);
        #pragma unroll
        for (int k = 0; k < DEEP; k++) {
            Four af[TALL / 4], bf[WIDE / 4];
            #pragma unroll
            for (int i = 0; i < TALL; i += 4)
                af[i / 4] = *(const Four *)(as + k * (CHANNELS + ROOM) + row_of(i));
            #pragma unroll
            for (int j = 0; j < WIDE; j += 4)
                bf[j / 4] = *(const Four *)(bs + k * (PLACES + ROOM) + column_of(j));
            #pragma unroll
            for (int i = 0; i < TALL; i++)
                #pragma unroll
                for (int j = 0; j < WIDE; j++)
                    sum[i][j] = fused(af[i / 4].v[i % 4], bf[j / 4].v[j % 4], sum[i][j]);
        }
    }
    arrived<0>();

    const Result to = job->to;
    /* Where the places lie in the result; negative beyond the last one. */
    i64 *const spots = (i64 *)memory;
    for (int j = threadIdx.x; j < PLACES; j += THREADS) {
        const u32 q = first + j, m = quotient(q, p.image), r = q - m * p.image.by;
        const u32 v = quotient(r, p.row), h = r - v * p.row.by;
        spots[j] = q < p.count ? m * to.image + (i64)v * to.row + (i64)h * to.column : -1;
    }
    __syncthreads();
    T *const out = y + part * to.size + to.first + (i64)group * to.channels * to.channel;
    #pragma unroll
    for (int i = 0; i < TALL; i++) {
        const int m = tile * CHANNELS + row_of(i);
        if (m >= to.channels) continue;
        #pragma unroll
        for (int j = 0; j < WIDE; j++) {
            const i64 spot = spots[column_of(j)];
            if (spot >= 0) out[m * to.channel + spot] = sum[i][j];
        }
    }
}

/* -- gradients of weights --------------------------------------------------------------- */

#if KIND == 5
#define LONG 16
#define PITCH (LONG + 2)
#else
#define LONG 32
#define PITCH (LONG + 4)
#endif

/* Rows and columns of sums that are read along k: neighbours lie a step of 16 apart. */
__device__ inline int tall_of(int i)
{
    return threadIdx.x / 16 + 16 * i;
}

__device__ inline int wide_of(int j)
{
    return threadIdx.x % 16 + 16 * j;
}

extern "C" __global__ void __launch_bounds__(THREADS, KIND == 5 ? 1 : 2)
weigh(const E *__restrict__ x, const E *__restrict__ g, T *__restrict__ y,
      const Job *__restrict__ job)
{
    /* In shared memory, for registers are short: 64 sums and the operands of 16 or 32. */
    __shared__ Job shared_job;
    if (threadIdx.x < sizeof(Job) / 8)
        ((i64 *)&shared_job)[threadIdx.x] = ((const i64 *)job)[threadIdx.x];
    __syncthreads();
    const Places &p = shared_job.p;
    const Images &im = shared_job.im;
    const Result &from = shared_job.to;
    const Sums &s = shared_job.s;
    const int elements = shared_job.elements;
    const int2 *__restrict__ const tab = (const int2 *)(job + 1);
    SHARED_MEMORY(memory);
    __shared__ int2 spots[PLACES];
    E *const a = (E *)memory, *const b = a + DEPTH * CHANNELS * PITCH;
    const int tile = blockIdx.x % s.tiles, group = blockIdx.y % s.groups;
    const int part = blockIdx.y / s.groups, left = blockIdx.x / s.tiles * PLACES;
    const int start = part * s.stretch, until = min(s.steps, start + s.stretch);
    for (int j = threadIdx.x; j < PLACES; j += THREADS)
        spots[j] = left + j < elements ? tab[left + j] : make_int2(0, (int)0x80000000);
    __syncthreads();
    const int deep = threadIdx.x % LONG, line = threadIdx.x / LONG;
    const E *const images = x + group * im.group;
    const E *const other = g + from.first
        + ((i64)group * from.channels + tile * CHANNELS) * from.channel;
    const int rows = from.channels - tile * CHANNELS;

#define LOAD_LINES(step)                                                                         \
    do {                                                                                         \
        const int slot = (step) % DEPTH;                                                         \
        const u32 place = (u32)(step) * LONG + deep;                                             \
        const bool real = place < p.count;                                                       \
        const u32 n = quotient(place, p.image), rest = place - n * p.image.by;                   \
        const u32 py = quotient(rest, p.row), px = rest - py * p.row.by;                         \
        const int ih = (int)py * p.down + p.top, iw = (int)px * p.right + p.left;                \
        const E *const window = images + n * im.image + (i64)ih * im.width + iw;                 \
        const E *const spot = other + n * from.image + rest;                                     \
        _Pragma("unroll") for (int i = 0; i < CHANNELS * LONG / THREADS; i++) {                      \
            const int m = line + i * (THREADS / LONG);                                           \
            const bool inside = real && m < rows;                                                \
            fetch(a + (slot * CHANNELS + m) * PITCH + deep,                                          \
                  inside ? spot + m * from.channel : g, inside);                                 \
        }                                                                                        \
        _Pragma("unroll") for (int i = 0; i < PLACES * LONG / THREADS; i++) {                    \
            const int j = line + i * (THREADS / LONG);                                           \
            const int2 at = spots[j];                                                            \
            const int down = at.y >> 16, right = (int)(short)(at.y & 0xffff);                    \
            const bool inside = real && (u32)(ih + down) < (u32)im.height                        \
                && (u32)(iw + right) < (u32)im.width;                                            \
            fetch(b + (slot * PLACES + j) * PITCH + deep, inside ? window + at.x : x, inside);   \
        }                                                                                        \
    } while (0)

    T sum[TALL][WIDE] = {};
    for (int i = 0; i < DEPTH - 1; i++) {
        if (start + i < until) LOAD_LINES(start + i);
        commit();
    }
    for (int step = start; step < until; step++) {
        arrived<DEPTH - 2>();
        if (step + DEPTH - 1 < until) LOAD_LINES(step + DEPTH - 1);
        commit();
        const E *const as = a + step % DEPTH * CHANNELS * PITCH;
        const E *const bs = b + step % DEPTH * PLACES * PITCH;
        const int chunk = 2; /* four would not fit the registers */
        struct __align__(2 * sizeof(E)) Chunk { E v[2]; };
        #pragma unroll
        for (int k = 0; k < LONG; k += chunk) {
            Chunk af[TALL];
            #pragma unroll
            for (int i = 0; i < TALL; i++) af[i] = *(const Chunk *)(as + tall_of(i) * PITCH + k);
            #pragma unroll
            for (int j = 0; j < WIDE; j++) {
                const Chunk bf = *(const Chunk *)(bs + wide_of(j) * PITCH + k);
                #pragma unroll
                for (int c = 0; c < chunk; c++)
                    #pragma unroll
                    for (int i = 0; i < TALL; i++)
                        sum[i][j] = fused(af[i].v[c], bf.v[c], sum[i][j]);
            }
        }
    }
    T *const out = y + ((i64)part * s.groups + group) * from.channels * elements;
    #pragma unroll
    for (int i = 0; i < TALL; i++)
        #pragma unroll
        for (int j = 0; j < WIDE; j++) {
            const int m = tile * CHANNELS + tall_of(i), k = left + wide_of(j);
            if (m < from.channels && k < elements) out[(i64)m * elements + k] = sum[i][j];
        }
}

/* -- before and after --------------------------------------------------------------------- */

extern "C" __global__ void prepared(const T *__restrict__ w, E *__restrict__ to,
                                    const Filling *__restrict__ job)
{
    each_weight<false>(job, [=](i64 i, i64 base, int2 from, bool real) {
        to[i] = real && from.x >= 0 ? w[base + from.x] : (T)0;
    });
}
