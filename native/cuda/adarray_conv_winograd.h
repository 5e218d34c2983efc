/* Convolutions of single precision with windows of 3 x 3 by fewer products (Winograd, 1980; Lavin
 * and Gray, 2016): tiles of 4 x 4 of the result are the values of a product of polynomials in
 * two variables at 6 x 6 points, so that 36 products take the place of 144.
 *
 * The points are 0, A, -A, B, -B and infinity with A = 3/4 and B = 3/2, which round less than
 * whole numbers do. With the matrices V (6 x 6), W (6 x 3) and S (4 x 6) of that evaluation,
 *     y = S [(W w W') * (V x V')] S',     the gradient of w = W' [(S' g S) * (V x V')] W,
 * where * is a product of matrices over channels, or over tiles, for each of the 36 points.
 *
 * Arrays of points lie as [part][36][channel][tile] and [part][36][channel of the result][channel],
 * where some images in a row are a part. A tile is numbered by image, row and column.
 *
 * References:
 * - S. Winograd, "Arithmetic Complexity of Computations", SIAM 1980.
 * - A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", CVPR 2016.
 */
#ifndef ADARRAY_CONV_WINOGRAD_H
#define ADARRAY_CONV_WINOGRAD_H

typedef long long i64;

#define A 0.75f
#define B 1.5f
#define AA (A * A)
#define BB (B * B)
#define AT_ZERO (AA * BB)                 /* products of the distances to the other points */
#define AT_A (2.0f * AA * (AA - BB))
#define AT_B (2.0f * BB * (BB - AA))

/* The matrices, applied to every STEP-th of some numbers in place. */

template <int STEP> __device__ inline void evaluated(float *d) /* V: 6 numbers */
{
    const float d0 = d[0], d1 = d[STEP], d2 = d[2 * STEP], d3 = d[3 * STEP], d4 = d[4 * STEP];
    const float d5 = d[5 * STEP];
    const float even_a = fmaf(-BB, d2, d4), odd_a = A * fmaf(-BB, d1, d3);
    const float even_b = fmaf(-AA, d2, d4), odd_b = B * fmaf(-AA, d1, d3);
    d[0] = fmaf(AT_ZERO, d0, fmaf(-(AA + BB), d2, d4));
    d[STEP] = even_a + odd_a;
    d[2 * STEP] = even_a - odd_a;
    d[3 * STEP] = even_b + odd_b;
    d[4 * STEP] = even_b - odd_b;
    d[5 * STEP] = fmaf(AT_ZERO, d1, fmaf(-(AA + BB), d3, d5));
}

template <int STEP> __device__ inline void weighed(float *w) /* W: 3 numbers to 6 */
{
    const float w0 = w[0], w1 = w[STEP], w2 = w[2 * STEP];
    const float even_a = fmaf(AA, w2, w0), odd_a = A * w1;
    const float even_b = fmaf(BB, w2, w0), odd_b = B * w1;
    w[0] = w0 * (1.0f / AT_ZERO);
    w[STEP] = (even_a + odd_a) * (1.0f / AT_A);
    w[2 * STEP] = (even_a - odd_a) * (1.0f / AT_A);
    w[3 * STEP] = (even_b + odd_b) * (1.0f / AT_B);
    w[4 * STEP] = (even_b - odd_b) * (1.0f / AT_B);
    w[5 * STEP] = w2;
}

template <int STEP> __device__ inline void unweighed(float *m) /* W': 6 numbers to 3 */
{
    const float sum_a = (m[STEP] + m[2 * STEP]) * (1.0f / AT_A);
    const float sum_b = (m[3 * STEP] + m[4 * STEP]) * (1.0f / AT_B);
    const float gap_a = (m[STEP] - m[2 * STEP]) * (1.0f / AT_A);
    const float gap_b = (m[3 * STEP] - m[4 * STEP]) * (1.0f / AT_B);
    m[0] = fmaf(m[0], 1.0f / AT_ZERO, sum_a + sum_b);
    m[STEP] = fmaf(A, gap_a, B * gap_b);
    m[2 * STEP] = fmaf(AA, sum_a, fmaf(BB, sum_b, m[5 * STEP]));
}

template <int STEP> __device__ inline void shortened(float *m) /* S: 6 numbers to 4 */
{
    const float sum_a = m[STEP] + m[2 * STEP], sum_b = m[3 * STEP] + m[4 * STEP];
    const float gap_a = m[STEP] - m[2 * STEP], gap_b = m[3 * STEP] - m[4 * STEP];
    m[0] += sum_a + sum_b;
    m[STEP] = fmaf(A, gap_a, B * gap_b);
    m[2 * STEP] = fmaf(AA, sum_a, BB * sum_b);
    m[3 * STEP] = fmaf(A * AA, gap_a, fmaf(B * BB, gap_b, m[5 * STEP]));
}

template <int STEP> __device__ inline void lengthened(float *g) /* S': 4 numbers to 6 */
{
    const float g0 = g[0], g1 = g[STEP], g2 = g[2 * STEP], g3 = g[3 * STEP];
    const float even_a = fmaf(AA, g2, g0), odd_a = A * fmaf(AA, g3, g1);
    const float even_b = fmaf(BB, g2, g0), odd_b = B * fmaf(BB, g3, g1);
    g[STEP] = even_a + odd_a;
    g[2 * STEP] = even_a - odd_a;
    g[3 * STEP] = even_b + odd_b;
    g[4 * STEP] = even_b - odd_b;
    g[5 * STEP] = g3;
}

/* Call f(tile, tiles of a part, its number, image, row, column) of the tile of this thread, if
 * there is one. */
template <class F>
__device__ inline void each_tile(i64 number, i64 parts, i64 down, i64 across, F f)
{
    const unsigned tiles = (unsigned)(number / parts * down * across);
    const unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned row = t / (unsigned)across, n = row / (unsigned)down;
    if (n < number)
        f(t % tiles, tiles, t / tiles, n, row % (unsigned)down, t % (unsigned)across);
}

/* V x V' of tiles of images [number][channels][height][width], the first of which begins at
 * (top, left); what is outside is zero. */
extern "C" __global__ void images_evaluated(
    const float *__restrict__ x, float *__restrict__ to, i64 number, i64 parts, i64 channels,
    i64 height, i64 width, i64 down, i64 across, i64 top, i64 left)
{
    each_tile(number, parts, down, across, [&](
        unsigned t, unsigned tiles, int part, int n, int row, int column
    ) {
        const int y = row * 4 + (int)top, z = column * 4 + (int)left;
        for (int c = blockIdx.y; c < channels; c += gridDim.y) {
            const float *const plane = x + (n * channels + c) * height * width;
            float d[36];
            #pragma unroll
            for (int i = 0; i < 6; i++)
                #pragma unroll
                for (int j = 0; j < 6; j++) {
                    const bool inside = (unsigned)(y + i) < (unsigned)height
                        && (unsigned)(z + j) < (unsigned)width;
                    d[6 * i + j] = inside ? plane[(y + i) * width + z + j] : 0.0f;
                }
            #pragma unroll
            for (int i = 0; i < 6; i++) evaluated<1>(d + 6 * i);
            #pragma unroll
            for (int j = 0; j < 6; j++) evaluated<6>(d + j);
            #pragma unroll
            for (int k = 0; k < 36; k++)
                to[((part * 36 + k) * channels + c) * tiles + t] = d[k];
        }
    });
}

/* S' g S of tiles of a cotangent [number][channels][height][width]. */
extern "C" __global__ void cotangent_lengthened(
    const float *__restrict__ g, float *__restrict__ to, i64 number, i64 parts, i64 channels,
    i64 height, i64 width, i64 down, i64 across)
{
    each_tile(number, parts, down, across, [&](
        unsigned t, unsigned tiles, int part, int n, int row, int column
    ) {
        const int y = row * 4, z = column * 4;
        for (int c = blockIdx.y; c < channels; c += gridDim.y) {
            const float *const plane = g + (n * channels + c) * height * width;
            float d[36];
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                #pragma unroll
                for (int j = 0; j < 4; j++)
                    d[6 * i + j] =
                        y + i < height && z + j < width ? plane[(y + i) * width + z + j] : 0.0f;
                lengthened<1>(d + 6 * i);
            }
            #pragma unroll
            for (int j = 0; j < 6; j++) lengthened<6>(d + j);
            #pragma unroll
            for (int k = 0; k < 36; k++)
                to[((part * 36 + k) * channels + c) * tiles + t] = d[k];
        }
    });
}

/* S m S' as tiles of a result [number][channels][height][width]. */
extern "C" __global__ void result_shortened(
    const float *__restrict__ m, float *__restrict__ y, i64 number, i64 parts, i64 channels,
    i64 height, i64 width, i64 down, i64 across)
{
    each_tile(number, parts, down, across, [&](
        unsigned t, unsigned tiles, int part, int n, int row, int column
    ) {
        for (int c = blockIdx.y; c < channels; c += gridDim.y) {
            float d[36];
            #pragma unroll
            for (int k = 0; k < 36; k++)
                d[k] = m[((part * 36 + k) * channels + c) * tiles + t];
            #pragma unroll
            for (int i = 0; i < 6; i++) shortened<1>(d + 6 * i);
            #pragma unroll
            for (int j = 0; j < 4; j++) shortened<6>(d + j);
            float *const plane = y + (n * channels + c) * height * width;
            #pragma unroll
            for (int i = 0; i < 4; i++)
                #pragma unroll
                for (int j = 0; j < 4; j++)
                    if (row * 4 + i < height && column * 4 + j < width)
                        plane[(row * 4 + i) * width + column * 4 + j] = d[6 * i + j];
        }
    });
}

/* W w W' of windows; those of channel m of the result and channel c begin at
 * m * output_step + c * input_step, and are read backwards if `flipped`. */
extern "C" __global__ void weights_weighed(
    const float *__restrict__ w, float *__restrict__ to, i64 outputs, i64 inputs, i64 output_step,
    i64 input_step, i64 flipped)
{
    const i64 size = outputs * inputs, step = (i64)gridDim.x * blockDim.x;
    for (i64 k = (i64)blockIdx.x * blockDim.x + threadIdx.x; k < size; k += step) {
        const float *const from = w + k / inputs * output_step + k % inputs * input_step;
        float d[36];
        #pragma unroll
        for (int i = 0; i < 3; i++) {
            #pragma unroll
            for (int j = 0; j < 3; j++)
                d[6 * i + j] = from[flipped ? 8 - 3 * i - j : 3 * i + j];
            weighed<1>(d + 6 * i);
        }
        #pragma unroll
        for (int j = 0; j < 6; j++) weighed<6>(d + j);
        #pragma unroll
        for (int i = 0; i < 36; i++) to[i * size + k] = d[i];
    }
}

/* W' m W, where m are the sums of `parts` arrays of points, as windows one after the other. */
extern "C" __global__ void gradient_unweighed(
    const float *__restrict__ m, float *__restrict__ w, i64 size, i64 parts)
{
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 k = (i64)blockIdx.x * blockDim.x + threadIdx.x; k < size; k += step) {
        float d[36];
        #pragma unroll
        for (int i = 0; i < 36; i++) d[i] = m[i * size + k];
        for (i64 p = 1; p < parts; p++)
            #pragma unroll
            for (int i = 0; i < 36; i++) d[i] += m[(p * 36 + i) * size + k];
        #pragma unroll
        for (int i = 0; i < 6; i++) unweighed<1>(d + 6 * i);
        #pragma unroll
        for (int j = 0; j < 3; j++) unweighed<6>(d + j);
        #pragma unroll
        for (int i = 0; i < 9; i++) w[9 * k + i] = d[i / 3 * 6 + i % 3];
    }
}
#endif
