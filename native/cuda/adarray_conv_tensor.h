/* Convolutions on Tensor Cores, for adarray_conv.h and adarray_conv_words.h.
 *
 * The table that follows a job holds, for every four words of windows, an offset in words and
 * steps along height and width.
 *
 * Fragments are those of the PTX ISA for mma.m16n8k8 (tf32) and m16n8k16 (16 bits), where a word
 * of 16 bits twice takes the place of one number.
 */
#define DEEP 32                 /* words of windows in a tile of `gather` */
#define PITCH (DEEP + 4)        /* words between rows, so that eight rows lie in other banks */

#ifndef ADARRAY_CONV_HOST
__device__ inline void multiply(float (&c)[4], const u32 (&a)[4], const u32 *b)
{
#if KIND == 2
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
#elif KIND == 3
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#endif
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Read four blocks of eight rows of 16 bytes; this lane has the address of one row. */
__device__ inline void read_blocks(u32 (&r)[4], const u32 *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)));
}

/* The same with rows of 16 bits transposed into columns. */
__device__ inline void read_transposed(u32 (&r)[4], const u32 *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)));
}

#endif

/* Eight warps share a tile: two halves of its rows, four quarters of its columns. */
#define ROWS_OF_WARP (CHANNELS / 2)
#define COLUMNS_OF_WARP (PLACES / 4)
#define TALL (ROWS_OF_WARP / 16)
#define WIDE (COLUMNS_OF_WARP / 8)

/* The row and column, in a tile, of sum k of block (i, j) of this thread. */
__device__ inline int row_of(int i, int k)
{
    return threadIdx.x / 32 % 2 * ROWS_OF_WARP + i * 16 + k / 2 * 8 + threadIdx.x % 32 / 4;
}

__device__ inline int column_of(int j, int k)
{
    return threadIdx.x / 64 * COLUMNS_OF_WARP + j * 8 + threadIdx.x % 4 * 2 + k % 2;
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
gather(const u32 *__restrict__ x, const u32 *__restrict__ w, float *__restrict__ y,
       const Job *__restrict__ job)
{
    SHARED_MEMORY(memory);
    u32 *const a = (u32 *)memory, *const b = a + DEPTH * CHANNELS * PITCH;
    const int2 *__restrict__ const tab = (const int2 *)(job + 1);
    const int tiles = job->s.tiles, groups = job->s.groups, steps = job->s.steps;
    const int tile = blockIdx.x % tiles, group = blockIdx.y % groups;
    const int part = blockIdx.y / groups;
    const u32 first = blockIdx.x / tiles * PLACES;
    const int from = part * job->s.stretch;
    const int until = min(steps, from + job->s.stretch);
    const int height = job->im.height, width = job->im.width;

    /* Where the windows of this thread's four places begin. */
    const int chunk = threadIdx.x % (DEEP / 4), line = threadIdx.x / (DEEP / 4);
    const u32 *start[PLACES / 32];
    int ih[PLACES / 32], iw[PLACES / 32];
    #pragma unroll
    for (int i = 0; i < PLACES / 32; i++) {
        const u32 place = first + line + i * 32;
        const u32 n = quotient(place, job->p.image), rest = place - n * job->p.image.by;
        const u32 py = quotient(rest, job->p.row), px = rest - py * job->p.row.by;
        ih[i] = place < job->p.count ? (int)py * job->p.down + job->p.top : -(1 << 29);
        iw[i] = (int)px * job->p.right + job->p.left;
        start[i] = x + n * job->im.image + group * job->im.group
            + ((i64)ih[i] * width + iw[i]) * job->words;
    }
    const i64 pitch = (i64)steps * DEEP;
    const u32 *const weights = w + ((i64)(group * tiles + tile) * CHANNELS + line) * pitch + chunk * 4;

#define LOAD_TILE(step)                                                                          \
    do {                                                                                         \
        const int now = step, slot = now % DEPTH;                                                \
        const int2 at = __ldg(tab + now * (DEEP / 4) + chunk);                                   \
        const int down = at.y >> 16, right = (int)(short)(at.y & 0xffff);                        \
        _Pragma("unroll") for (int i = 0; i < PLACES / 32; i++) {                                \
            const bool inside = (u32)(ih[i] + down) < (u32)height                                \
                && (u32)(iw[i] + right) < (u32)width;                                            \
            fetch16(b + (slot * PLACES + line + i * 32) * PITCH + chunk * 4,                     \
                    inside ? start[i] + at.x : x, inside);                                       \
        }                                                                                        \
        _Pragma("unroll") for (int i = 0; i < CHANNELS / 32; i++)                                    \
            fetch16(a + (slot * CHANNELS + line + i * 32) * PITCH + chunk * 4,                       \
                    weights + i * 32 * pitch + now * DEEP, true);                                \
    } while (0)

    float sum[TALL][WIDE][4] = {};
    for (int i = 0; i < DEPTH - 1; i++) {
        if (from + i < until) LOAD_TILE(from + i);
        commit();
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int at_a = (warp % 2 * ROWS_OF_WARP + lane % 16) * PITCH + lane / 16 * 4;
    const int at_b = (warp / 2 * COLUMNS_OF_WARP + lane % 8 + lane / 16 * 8) * PITCH
        + lane / 8 % 2 * 4;
    for (int step = from; step < until; step++) {
        arrived<DEPTH - 2>();
        if (step + DEPTH - 1 < until) LOAD_TILE(step + DEPTH - 1);
        commit();
        const u32 *const as = a + step % DEPTH * CHANNELS * PITCH + at_a;
        const u32 *const bs = b + step % DEPTH * PLACES * PITCH + at_b;
        #pragma unroll
        for (int k = 0; k < DEEP; k += 8) {
            u32 af[TALL][4], bf[WIDE / 2][4];
            #pragma unroll
            for (int i = 0; i < TALL; i++) read_blocks(af[i], as + i * 16 * PITCH + k);
            #pragma unroll
            for (int j = 0; j < WIDE / 2; j++) read_blocks(bf[j], bs + j * 16 * PITCH + k);
            #pragma unroll
            for (int i = 0; i < TALL; i++)
                #pragma unroll
                for (int j = 0; j < WIDE; j++) multiply(sum[i][j], af[i], bf[j / 2] + j % 2 * 2);
        }
    }
    arrived<0>();

    /* Where the places lie in the result; negative beyond the last one. */
    const Result to = job->to;
    i64 *const spots = (i64 *)memory;
    for (int j = threadIdx.x; j < PLACES; j += THREADS) {
        const u32 q = first + j, m = quotient(q, job->p.image), r = q - m * job->p.image.by;
        const u32 v = quotient(r, job->p.row), h = r - v * job->p.row.by;
        spots[j] = q < job->p.count ? m * to.image + (i64)v * to.row + (i64)h * to.column : -1;
    }
    __syncthreads();
    float *const out = y + part * to.size + to.first + (i64)group * to.channels * to.channel;
    #pragma unroll
    for (int j = 0; j < WIDE; j++)
        #pragma unroll
        for (int k = 0; k < 4; k++) {
            const i64 spot = spots[column_of(j, k)];
            #pragma unroll
            for (int i = 0; i < TALL; i++) {
                const int m = tile * CHANNELS + row_of(i, k);
                if (spot >= 0 && m < to.channels) out[m * to.channel + spot] = sum[i][j][k];
            }
        }
}

/* -- gradients of weights --------------------------------------------------------------- */

#define LONG 32                       /* places in a tile */
#define WORDS_A (CHANNELS / PER)          /* of a row, and between rows: in other banks, too */
#define WORDS_B (PLACES / PER)
#define GAP (KIND == 2 ? 8 : 4)
#define PITCH_A (WORDS_A + GAP)
#define PITCH_B (WORDS_B + GAP)

extern "C" __global__ void __launch_bounds__(THREADS, 2)
weigh(const u32 *__restrict__ x, const u32 *__restrict__ g, float *__restrict__ y,
      const Job *__restrict__ job)
{
    SHARED_MEMORY(memory);
    u32 *const a = (u32 *)memory, *const b = a + DEPTH * LONG * PITCH_A;
    const int2 *__restrict__ const tab = (const int2 *)(job + 1);
    const int tile = blockIdx.x % job->s.tiles, left = blockIdx.x / job->s.tiles * PLACES;
    const int group = blockIdx.y % job->s.groups, part = blockIdx.y / job->s.groups;
    const int start = part * job->s.stretch, until = min(job->s.steps, start + job->s.stretch);
    const int height = job->im.height, width = job->im.width, words = job->words;
    const int other = job->to.row; /* words of a place of g */
    const u32 count = job->p.count;

    /* This thread copies the same four words of several places. */
    const int chunk_a = threadIdx.x % (WORDS_A / 4), line_a = threadIdx.x / (WORDS_A / 4);
    const int chunk_b = threadIdx.x % (WORDS_B / 4), line_b = threadIdx.x / (WORDS_B / 4);
    const int word_a = tile * WORDS_A + chunk_a * 4, word_b = left / PER + chunk_b * 4;
    const bool real_a = word_a < other, real_b = word_b < job->elements;
    const int2 at = real_b ? tab[word_b / 4] : make_int2(0, 0);
    const int down = (at.y >> 16) + job->p.top, right = (int)(short)(at.y & 0xffff) + job->p.left;
    const u32 *const images = x + group * job->im.group + at.x
        + ((i64)job->p.top * width + job->p.left) * words;
    const u32 *const cotangents = g + group * job->to.first + word_a;

#define LOAD_LINES(step)                                                                         \
    do {                                                                                         \
        const int now = step, slot = now % DEPTH;                                                \
        _Pragma("unroll") for (int i = 0; i < LONG * WORDS_A / 4 / THREADS; i++) {               \
            const int k = line_a + i * (THREADS / (WORDS_A / 4));                                \
            const u32 place = (u32)now * LONG + k;                                               \
            const u32 n = quotient(place, job->p.image), rest = place - n * job->p.image.by;     \
            const bool inside = real_a && place < count;                                         \
            fetch16(a + (slot * LONG + k) * PITCH_A + chunk_a * 4,                               \
                    inside ? cotangents + n * job->to.image + (i64)rest * other : g, inside);    \
        }                                                                                        \
        _Pragma("unroll") for (int i = 0; i < LONG * WORDS_B / 4 / THREADS; i++) {               \
            const int k = line_b + i * (THREADS / (WORDS_B / 4));                                \
            const u32 place = (u32)now * LONG + k;                                               \
            const u32 n = quotient(place, job->p.image), rest = place - n * job->p.image.by;     \
            const u32 py = quotient(rest, job->p.row), px = rest - py * job->p.row.by;           \
            const int ih = (int)py * job->p.down, iw = (int)px * job->p.right;                   \
            const bool inside = real_b && place < count && (u32)(ih + down) < (u32)height        \
                && (u32)(iw + right) < (u32)width;                                               \
            fetch16(b + (slot * LONG + k) * PITCH_B + chunk_b * 4,                               \
                    inside ? images + n * job->im.image + ((i64)ih * width + iw) * words : x,    \
                    inside);                                                                     \
        }                                                                                        \
    } while (0)

    float sum[TALL][WIDE][4] = {};
    for (int i = 0; i < DEPTH - 1; i++) {
        if (start + i < until) LOAD_LINES(start + i);
        commit();
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp % 2 * ROWS_OF_WARP, column = warp / 2 * COLUMNS_OF_WARP;
    for (int step = start; step < until; step++) {
        arrived<DEPTH - 2>();
        if (step + DEPTH - 1 < until) LOAD_LINES(step + DEPTH - 1);
        commit();
        const u32 *const as = a + step % DEPTH * LONG * PITCH_A;
        const u32 *const bs = b + step % DEPTH * LONG * PITCH_B;
        #pragma unroll
        for (int k = 0; k < LONG; k += 8 * PER) {
            u32 af[TALL][4], bf[WIDE / 2][4];
#if KIND == 2
            const u32 *const ak = as + (k + lane % 4) * PITCH_A + row + lane / 4;
            const u32 *const bk = bs + (k + lane % 4) * PITCH_B + column + lane / 4;
            #pragma unroll
            for (int i = 0; i < TALL; i++) {
                af[i][0] = ak[i * 16];
                af[i][1] = ak[i * 16 + 8];
                af[i][2] = ak[4 * PITCH_A + i * 16];
                af[i][3] = ak[4 * PITCH_A + i * 16 + 8];
            }
            #pragma unroll
            for (int j = 0; j < WIDE; j++) {
                bf[j / 2][j % 2 * 2] = bk[j * 8];
                bf[j / 2][j % 2 * 2 + 1] = bk[4 * PITCH_B + j * 8];
            }
#else
            const u32 *const ak = as + (k + lane / 16 * 8 + lane % 8) * PITCH_A
                + (row + lane / 8 % 2 * 8) / 2;
            const u32 *const bk = bs + (k + lane / 8 % 2 * 8 + lane % 8) * PITCH_B
                + (column + lane / 16 * 8) / 2;
            #pragma unroll
            for (int i = 0; i < TALL; i++) read_transposed(af[i], ak + i * 8);
            #pragma unroll
            for (int j = 0; j < WIDE / 2; j++) read_transposed(bf[j], bk + j * 8);
#endif
            #pragma unroll
            for (int i = 0; i < TALL; i++)
                #pragma unroll
                for (int j = 0; j < WIDE; j++) multiply(sum[i][j], af[i], bf[j / 2] + j % 2 * 2);
        }
    }

    /* The table of fours is followed by where each channel of windows lies in the weights. */
    const int *const low = (const int *)(tab + job->elements / 4);
    const Result to = job->to;
    float *const out = y + part * to.size + (i64)group * to.channels * to.channel;
    #pragma unroll
    for (int j = 0; j < WIDE; j++)
        #pragma unroll
        for (int k = 0; k < 4; k++) {
            const int c = left + column_of(j, k);
            const int spot = c < job->elements * PER ? low[c] : -1;
            #pragma unroll
            for (int i = 0; i < TALL; i++) {
                const int m = tile * CHANNELS + row_of(i, k);
                if (spot >= 0 && m < to.channels) out[m * to.channel + spot] = sum[i][j][k];
            }
        }
}
