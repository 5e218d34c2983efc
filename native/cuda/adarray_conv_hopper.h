/* Convolutions by the Tensor Cores of Hopper, for adarray_conv.h and adarray_conv_words.h.
 *
 * Warpgroups of 128 threads multiply tiles in shared memory while they copy the next ones, DEPTH
 * in all. Tables are those of adarray_conv_tensor.h. Rows of sums are places here (for `weigh`,
 * elements of windows), 64 for each multiplication, and columns are channels of the result, CHANNELS.
 *
 * Tiles that are read as they lie have rows of 128 bytes; in eight rows, which take 1024 bytes,
 * the 16 bytes c of row r lie at c ^ r % 8 (the PTX ISA's swizzling of 128 bytes, K-major).
 */
#define DEEP 32                 /* words of a row of a tile */
#define TALL (PLACES / 128)     /* blocks of 64 rows of a warpgroup: there are two */
#define SUMS (CHANNELS / 2)         /* of a block, of a thread */

#ifndef ADARRAY_CONV_HOST
typedef unsigned long long Tile; /* a matrix descriptor */

/* Eight rows of a tile take 1024 bytes. */
__device__ inline Tile tile_at(const u32 *p)
{
    return (Tile)1 << 62 | (Tile)64 << 32 | (Tile)1 << 16 | (shared_address(p) & 0x3ffff) >> 4;
}

/* The tile so many words further. */
__device__ inline Tile beyond(Tile t, int words) { return t + words / 4; }

#if KIND == 2
#define MMA(n) "wgmma.mma_async.sync.aligned.m64n" #n "k8.f32.tf32.tf32 "
#define TURNED_SHARED(a) ""
#define TURNED ""
#elif KIND == 3
#define MMA(n) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 "
#define TURNED_SHARED(a) ", " #a ", 0"
#define TURNED ", 0"
#else
#define MMA(n) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 "
#define TURNED_SHARED(a) ", " #a ", 0"
#define TURNED ", 0"
#endif

#define SUM8(c, i)                                                                               \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]),                  \
        "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define SUM32(c, i) SUM8(c, i), SUM8(c, i + 8), SUM8(c, i + 16), SUM8(c, i + 24)
#define NAMES0                                                                                   \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"     \
    "%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES1                                                                                   \
    ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,"  \
    "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES2                                                                                   \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,"  \
    "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define NAMES3                                                                                   \
    ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,"    \
    "%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#if CHANNELS == 16
#define SUM_NAMES "%0,%1,%2,%3,%4,%5,%6,%7"
#define ALL_SUMS(c) SUM8(c, 0)
#define SHARED_NAMES "%8, %9"
#define REGISTER_NAMES "{%8, %9, %10, %11}, %12"
#elif CHANNELS == 32
#define SUM_NAMES "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define ALL_SUMS(c) SUM8(c, 0), SUM8(c, 8)
#define SHARED_NAMES "%16, %17"
#define REGISTER_NAMES "{%16, %17, %18, %19}, %20"
#elif CHANNELS == 64
#define SUM_NAMES NAMES0
#define ALL_SUMS(c) SUM32(c, 0)
#define SHARED_NAMES "%32, %33"
#define REGISTER_NAMES "{%32, %33, %34, %35}, %36"
#elif CHANNELS == 128
#define SUM_NAMES NAMES0 NAMES1
#define ALL_SUMS(c) SUM32(c, 0), SUM32(c, 32)
#define SHARED_NAMES "%64, %65"
#define REGISTER_NAMES "{%64, %65, %66, %67}, %68"
#else
#define SUM_NAMES NAMES0 NAMES1 NAMES2 NAMES3
#define ALL_SUMS(c) SUM32(c, 0), SUM32(c, 32), SUM32(c, 64), SUM32(c, 96)
#define SHARED_NAMES "%128, %129"
#define REGISTER_NAMES "{%128, %129, %130, %131}, %132"
#endif
#define NAMED(n) MMA(n) /* after CHANNELS is replaced */

/* Start to add products of 64 rows of a and CHANNELS rows of b, 32 bytes of each. */
__device__ inline void multiply_tiles(float (&c)[SUMS], Tile a, Tile b)
{
    asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0;\n" NAMED(CHANNELS) "{" SUM_NAMES "}, "
                 SHARED_NAMES ", p, 1, 1" TURNED_SHARED(0) ";}" : ALL_SUMS(c) : "l"(a), "l"(b));
}

#if KIND != 2
/* The same with columns of a, which has 16 rows of 64 numbers. */
__device__ inline void multiply_transposed(float (&c)[SUMS], Tile a, Tile b)
{
    asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0;\n" NAMED(CHANNELS) "{" SUM_NAMES "}, "
                 SHARED_NAMES ", p, 1, 1" TURNED_SHARED(1) ";}" : ALL_SUMS(c) : "l"(a), "l"(b));
}
#endif

/* The same with rows of a in registers, as mma.sync has them: 16 of each warp. */
__device__ inline void multiply_rows(float (&c)[SUMS], const u32 (&a)[4], Tile b)
{
    asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0;\n" NAMED(CHANNELS) "{" SUM_NAMES "}, "
                 REGISTER_NAMES ", p, 1, 1" TURNED ";}"
                 : ALL_SUMS(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ inline void end_products()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int LEFT> __device__ inline void finished()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(LEFT) : "memory");
}

/* Wait for copies of all threads, which Tensor Cores read next. */
template <int LEFT> __device__ inline void landed()
{
    asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}
#endif

/* The row of a block and the column that sum k of this thread belongs to. */
__device__ inline int row_of(int i, int k)
{
    return (threadIdx.x / 128 * TALL + i) * 64 + threadIdx.x / 32 % 4 * 16 + k / 2 % 2 * 8
        + threadIdx.x % 32 / 4;
}

__device__ inline int column_of(int k) { return k / 4 * 8 + threadIdx.x % 4 * 2 + k % 2; }

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
gather(const u32 *__restrict__ x, const u32 *__restrict__ w, float *__restrict__ y,
       const Job *__restrict__ job)
{
    SHARED_MEMORY(memory);
    u32 *const a = (u32 *)memory, *const b = a + DEPTH * PLACES * DEEP;
    const int2 *__restrict__ const tab = (const int2 *)(job + 1);
    const int tiles = job->s.tiles, groups = job->s.groups, steps = job->s.steps;
    const int tile = blockIdx.x % tiles, group = blockIdx.y % groups;
    const int part = blockIdx.y / groups;
    const u32 first = blockIdx.x / tiles * PLACES;
    const int from = part * job->s.stretch;
    const int until = min(steps, from + job->s.stretch);
    const int height = job->im.height, width = job->im.width;

    /* Where the windows of this thread's places begin. */
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
    const int spot = line * DEEP + (chunk ^ line % 8) * 4;
    int into = 0;
    int2 at = from < until ? __ldg(tab + from * (DEEP / 4) + chunk) : make_int2(0, 0);

    /* Tiles are copied in order; the table is read one step ahead. */
#define LOAD_TILE(step)                                                                          \
    do {                                                                                         \
        const int now = step;                                                                    \
        const int down = at.y >> 16, right = (int)(short)(at.y & 0xffff);                        \
        _Pragma("unroll") for (int i = 0; i < PLACES / 32; i++) {                                \
            const bool inside = (u32)(ih[i] + down) < (u32)height                                \
                && (u32)(iw[i] + right) < (u32)width;                                            \
            fetch16(a + into * PLACES * DEEP + spot + i * 32 * DEEP,                             \
                    inside ? start[i] + at.x : x, inside);                                       \
        }                                                                                        \
        _Pragma("unroll") for (int i = 0; i < (CHANNELS + 31) / 32; i++)                             \
            if (CHANNELS % 32 == 0 || line < CHANNELS)                                                   \
                fetch16(b + into * CHANNELS * DEEP + spot + i * 32 * DEEP,                           \
                        weights + i * 32 * pitch + now * DEEP, true);                            \
        into = into + 1 == DEPTH ? 0 : into + 1;                                                 \
        if (now + 1 < until) at = __ldg(tab + (now + 1) * (DEEP / 4) + chunk);                   \
    } while (0)

    float sum[TALL][SUMS] = {};
    for (int i = 0; i < DEPTH - 2; i++) {
        if (from + i < until) LOAD_TILE(from + i);
        commit();
    }
    const Tile as = tile_at(a + threadIdx.x / 128 * TALL * 64 * DEEP), bs = tile_at(b);
    for (int step = from, slot = 0; step < until; step++) {
        landed<DEPTH - 3>();
        begin_products();
        #pragma unroll
        for (int k = 0; k < DEEP; k += 8)
            #pragma unroll
            for (int i = 0; i < TALL; i++)
                multiply_tiles(sum[i], beyond(as, (slot * PLACES + i * 64) * DEEP + k),
                               beyond(bs, slot * CHANNELS * DEEP + k));
        end_products();
        slot = slot + 1 == DEPTH ? 0 : slot + 1;
        /* Everybody has finished the products of the step before the last one. */
        if (step + DEPTH - 2 < until) LOAD_TILE(step + DEPTH - 2);
        commit();
        finished<1>();
    }
    finished<0>();

    const Result to = job->to;
    float *const out = y + part * to.size + to.first + (i64)group * to.channels * to.channel;
    #pragma unroll
    for (int i = 0; i < TALL; i++)
        #pragma unroll
        for (int half = 0; half < 4; half += 2) {
            const u32 q = first + row_of(i, half);
            const u32 m = quotient(q, job->p.image), r = q - m * job->p.image.by;
            const u32 v = quotient(r, job->p.row), h = r - v * job->p.row.by;
            const i64 place = m * to.image + (i64)v * to.row + (i64)h * to.column;
            if (q >= job->p.count) continue;
            #pragma unroll
            for (int k = half; k < SUMS; k += k % 2 ? 3 : 1) {
                const int c = tile * CHANNELS + column_of(k);
                if (c < to.channels) out[c * to.channel + place] = sum[i][k];
            }
        }
}

/* -- gradients of weights --------------------------------------------------------------- */

#define LONG (32 * PER)            /* places in a tile: rows of cotangents have 128 bytes, too */
#define WORDS_A (PLACES / PER)     /* of the windows' elements of a place */
/* Numbers of 16 bits are multiplied as they lie: two blocks of places with 128 bytes each. Tensor
 * Cores transpose no others, so that those come in registers. */
#if KIND == 2
#define TILE_A (LONG * (WORDS_A + 8)) /* places lie in other banks */
#else
#define TILE_A (LONG * WORDS_A)
#endif
#define FLYING (KIND != 2)         /* products go on during the next step's begin */
#define AHEAD (DEPTH - 1 - FLYING) /* tiles that are copied before they are multiplied */

struct __align__(16) Window { i64 begin; int row, column; };

/* Where four words of a place lie in a tile. */
__device__ inline int place_in(int k, int chunk)
{
#if KIND == 2
    return k * (WORDS_A + 8) + chunk * 4;
#else
    return (chunk / 8 * LONG + k) * 32 + (chunk % 8 ^ k % 8) * 4;
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
weigh(const u32 *__restrict__ x, const u32 *__restrict__ g, float *__restrict__ y,
      const Job *__restrict__ job)
{
    SHARED_MEMORY(memory);
    u32 *const b = (u32 *)memory, *const a = b + DEPTH * CHANNELS * DEEP;
    Window *const windows = (Window *)(a + DEPTH * TILE_A); /* of two steps */
    const int2 *__restrict__ const tab = (const int2 *)(job + 1);
    const int tiles = job->s.tiles, groups = job->s.groups;
    const int tile = blockIdx.x % tiles, left = blockIdx.x / tiles * PLACES;
    const int group = blockIdx.y % groups, part = blockIdx.y / groups;
    const int start = part * job->s.stretch, until = min(job->s.steps, start + job->s.stretch);
    const int height = job->im.height, width = job->im.width, words = job->words;

    /* This thread copies the same four words of windows of several places. */
    const int chunk_a = threadIdx.x % (WORDS_A / 4), line_a = threadIdx.x / (WORDS_A / 4);
    const int word = left / PER + chunk_a * 4;
    const bool real = word < job->elements;
    const int2 at = real ? tab[word / 4] : make_int2(0, (int)0x80000000);
    const int down = (at.y >> 16) + job->p.top, right = (int)(short)(at.y & 0xffff) + job->p.left;
    const u32 *const images = x + group * job->im.group + at.x
        + ((i64)job->p.top * width + job->p.left) * words;
    const int chunk = threadIdx.x % (DEEP / 4), line = threadIdx.x / (DEEP / 4);
    const i64 pitch = (i64)job->s.steps * DEEP;
    const u32 *const cotangents = g + ((i64)group * job->to.channels + tile * CHANNELS + line) * pitch
        + chunk * 4;
    const int spot = line * DEEP + (chunk ^ line % 8) * 4;
    const int rows = job->to.channels - tile * CHANNELS;
    int into = 0;

    /* Where the windows of a step's places begin, computed one step before they are copied. */
#define FIND_WINDOWS(step)                                                                       \
    do {                                                                                         \
        const u32 place = (u32)(step) * LONG + threadIdx.x;                                      \
        if (threadIdx.x < LONG) {                                                                \
            const u32 n = quotient(place, job->p.image), rest = place - n * job->p.image.by;     \
            const u32 py = quotient(rest, job->p.row), px = rest - py * job->p.row.by;           \
            const int ih = (int)py * job->p.down, iw = (int)px * job->p.right;                   \
            Window window;                                                                       \
            window.begin = n * job->im.image + ((i64)ih * width + iw) * words;                   \
            window.row = place < job->p.count ? ih : -(1 << 29);                                 \
            window.column = iw;                                                                  \
            windows[(step) % 2 * LONG + threadIdx.x] = window;                                   \
        }                                                                                        \
    } while (0)
#define LOAD_LINES(step)                                                                         \
    do {                                                                                         \
        const int now = step;                                                                    \
        _Pragma("unroll") for (int i = 0; i < LONG * WORDS_A / 4 / THREADS; i++) {               \
            const int k = line_a + i * (THREADS / (WORDS_A / 4));                                \
            const Window from = windows[now % 2 * LONG + k];                                     \
            const bool inside = (u32)(from.row + down) < (u32)height                             \
                && (u32)(from.column + right) < (u32)width;                                      \
            fetch16(a + into * TILE_A + place_in(k, chunk_a),                                    \
                    inside ? images + from.begin : x, inside);                                   \
        }                                                                                        \
        _Pragma("unroll") for (int i = 0; i < (CHANNELS + 31) / 32; i++) {                           \
            const bool inside = line + i * 32 < rows;                                            \
            if (CHANNELS % 32 == 0 || line < CHANNELS)                                                   \
                fetch16(b + into * CHANNELS * DEEP + spot + i * 32 * DEEP,                           \
                        inside ? cotangents + i * 32 * pitch + now * DEEP : g, inside);          \
        }                                                                                        \
        into = into + 1 == DEPTH ? 0 : into + 1;                                                 \
    } while (0)

    float sum[TALL][SUMS] = {};
    FIND_WINDOWS(start);
    for (int i = 0; i < AHEAD; i++) {
        __syncthreads();
        FIND_WINDOWS(start + i + 1);
        if (start + i < until) LOAD_LINES(start + i);
        commit();
    }
    const Tile bs = tile_at(b);
#if KIND == 2
    const int lane = threadIdx.x % 32;
#else
    const Tile as = tile_at(a + threadIdx.x / 128 * TALL * LONG * 32);
#endif
    for (int step = start, slot = 0; step < until; step++) {
        landed<AHEAD - 1>();
        /* Not a function's: ptxas would wait for each product. */
#if KIND == 2
        const u32 *const left_a = a + slot * TILE_A + lane % 4 * (WORDS_A + 8) + row_of(0, 0);
        u32 af[DEEP / 8][TALL][4];
        #pragma unroll
        for (int k = 0; k < DEEP / 8; k++) {
            #pragma unroll
            for (int i = 0; i < TALL; i++)
                #pragma unroll
                for (int j = 0; j < 4; j++)
                    af[k][i][j] = left_a[(k * 8 + j / 2 * 4) * (WORDS_A + 8) + i * 64 + j % 2 * 8];
            begin_products();
            #pragma unroll
            for (int i = 0; i < TALL; i++)
                multiply_rows(sum[i], af[k][i], beyond(bs, slot * CHANNELS * DEEP + k * 8));
            end_products();
        }
#else
        begin_products();
        #pragma unroll
        for (int k = 0; k < DEEP / 8; k++)
            #pragma unroll
            for (int i = 0; i < TALL; i++)
                multiply_transposed(sum[i], beyond(as, slot * TILE_A + (i * LONG + k * 16) * 32),
                                    beyond(bs, slot * CHANNELS * DEEP + k * 8));
        end_products();
#endif
        slot = slot + 1 == DEPTH ? 0 : slot + 1;
        FIND_WINDOWS(step + AHEAD + 1);
        if (step + AHEAD < until) LOAD_LINES(step + AHEAD);
        commit();
        finished<FLYING>();
    }
    finished<0>();

    /* Sums of parts lie as [part][group][element of windows][channel]. */
    const int channels = job->to.channels, size = job->elements * PER;
    float *const out = y + ((i64)part * groups + group) * size * channels + tile * CHANNELS;
    #pragma unroll
    for (int i = 0; i < TALL; i++)
        #pragma unroll
        for (int k = 0; k < SUMS; k++) {
            const int e = left + row_of(i, k), c = column_of(k);
            if (e < size && c < rows) out[(i64)e * channels + c] = sum[i][k];
        }
}

/* Add the sums of `parts` blocks, in order, and make weights of them: blocks take 32 channels of
 * the result and 32 elements of weights, [channel][element of a window]. */
extern "C" __global__ void __launch_bounds__(THREADS)
settled(const float *__restrict__ from, float *__restrict__ to, const Job *__restrict__ job,
        i64 parts)
{
    __shared__ float tile[32][33];
    const int channels = job->to.channels, wide = (int)job->to.channel;
    const int words = job->words, window = job->elements / words;
    const i64 size = (i64)job->s.groups * job->elements * PER * channels;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int chunks = (channels + 31) / 32, group = blockIdx.y / chunks;
    const int first = blockIdx.x * 32, c = blockIdx.y % chunks * 32;
    for (int i = warp; i < 32; i += THREADS / 32) {
        const int spot = first + i, seen = spot / window, tap = spot - seen * window;
        if (spot >= wide || c + lane >= channels) continue;
        const float *const one = from + c + lane
            + ((i64)group * job->elements * PER + tap * words * PER + seen) * channels;
        float total = one[0];
        #pragma unroll 8
        for (i64 k = 1; k < parts; k++) total += one[k * size];
        tile[i][lane] = total;
    }
    __syncthreads();
    #pragma unroll
    for (int i = warp; i < 32; i += THREADS / 32)
        if (c + i < channels && first + lane < wide)
            to[((i64)group * channels + c + i) * wide + first + lane] = tile[lane][i];
}

/* -- before ------------------------------------------------------------------------------- */

/* Round cotangents, [number][channel][place], to rows [channel][number][place] of `pitch`. */
extern "C" __global__ void rounded(const float *__restrict__ g, u32 *__restrict__ to, i64 number,
                                   i64 plane, i64 channels, i64 pitch)
{
#if KIND == 2
    u32 *const rows = to;
#else
    unsigned short *const rows = (unsigned short *)to;
#endif
    const i64 step = (i64)gridDim.x * (blockDim.x / 32);
    for (i64 q = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; q < number * channels;
         q += step) {
        const i64 n = q / channels, c = q - n * channels;
        const float *const from = g + q * plane;
        #pragma unroll 8
        for (i64 p = threadIdx.x % 32; p < plane; p += 32)
            rows[c * pitch + n * plane + p] = word_of(from[p], 0.0f);
        if (n + 1 == number)
            for (i64 p = number * plane + threadIdx.x % 32; p < pitch; p += 32)
                rows[c * pitch + p] = 0;
    }
}
