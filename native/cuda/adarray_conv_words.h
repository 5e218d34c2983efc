/* Operands for Tensor Cores, for adarray_conv.h: numbers are rounded and lie in words of 32 bits.
 *
 * A word holds a number of tf32, or two channels of 16 bits. Images and cotangents lie with their
 * channels last, [number][group][place][word]; a place has a multiple of four words, so that 16
 * bytes belong to one element of a window. Weights lie as [group][channel][word of windows].
 */
#define PER (KIND == 2 ? 1 : 2) /* channels in a word */

#ifndef ADARRAY_CONV_HOST
__device__ inline u32 word_of(float low, float high)
{
    u32 r;
#if KIND == 2
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(low));
#elif KIND == 3
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#endif
    return r;
}

/* Write 16 bytes at once, which the compiler does not do by itself. */
__device__ inline void store16(u32 *to, const u32 (&v)[4])
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::
                 "l"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}
#endif

/* Where k counts words. */
extern "C" __global__ void prepared(const float *__restrict__ w, u32 *__restrict__ to,
                                    const Filling *__restrict__ job)
{
    each_weight<true>(job, [=](i64 i, i64 base, int2 from, bool real) {
        to[i] = word_of(real && from.x >= 0 ? w[base + from.x] : 0.0f,
                        real && from.y >= 0 ? w[base + from.y] : 0.0f);
    });
}

#define ROW 64 /* places that a block packs at a time */

/* Turn planes of channels into places with their channels as words. */
extern "C" __global__ void __launch_bounds__(THREADS, 6)
packed(const float *__restrict__ x, u32 *__restrict__ to, i64 planes, i64 plane, i64 channels,
       i64 words)
{
    __shared__ float tile[32 * PER][ROW + 1];
    const int column = threadIdx.x % ROW, line = threadIdx.x / ROW;
    const i64 first = (i64)blockIdx.x * ROW, word = (i64)blockIdx.y * 32;
    const int wide = min((i64)32, words - word), fours = wide / 4;
    const int real = first + column < plane ? (int)min(channels - word * PER, (i64)wide * PER) : 0;
    /* Lanes that read numbers of 16 bits take four words of eight places: other banks. */
    const int near = PER == 2 && fours % 4 == 0 ? 4 : fours;
    for (i64 q = blockIdx.z; q < planes; q += gridDim.z) {
        const float *const from = x + (q * channels + word * PER) * plane + first + column;
        #pragma unroll 8
        for (int c = line; c < wide * PER; c += THREADS / ROW)
            tile[c][column] = c < real ? from[c * plane] : 0.0f;
        __syncthreads();
        u32 *const into = to + (q * plane + first) * words + word;
        for (int e = threadIdx.x; e < ROW * fours; e += THREADS) {
            const int row = e / near, p = row % ROW, k = (row / ROW * near + e - row * near) * 4;
            if (first + p >= plane) continue;
            u32 quad[4];
            #pragma unroll
            for (int j = 0; j < 4; j++)
                quad[j] = word_of(tile[(k + j) * PER][p], tile[(k + j) * PER + PER - 1][p]);
            store16(into + p * words + k, quad);
        }
        __syncthreads();
    }
}
