/* What threads of printed GPU kernels do together: exchange values, fold them, and add up totals.
 *
 * A group is 1, 2, 4 ... 32 neighbouring threads, or a whole block; its threads share one
 * iteration of a kernel's parallel loop, and those of the vector loops in it. Part of
 * adarray_device.h, which has the packs and the ways to memory.
 *
 * References:
 * - M. Harris, "Optimizing parallel reduction in CUDA", NVIDIA 2007.
 * - G. E. Blelloch, "Prefix sums and their applications", report CMU-CS-90-190, Carnegie Mellon
 *   University, 1990.
 */
#ifndef ADARRAY_GROUPS_H
#define ADARRAY_GROUPS_H

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

/* Rows whose columns the lanes of a warp hold, N each: what lies D columns further on. Lanes
 * at the ends get what their neighbours round the end have, which must not matter. */
template <int D, class T, int N> ADARRAY_IN adarray_pack<T, N> adarray_beside(
    const adarray_pack<T, N> &x)
{
    adarray_pack<T, N> y;
#pragma unroll
    for (int u = 0; u < N; u++) {
        const int k = u + D, by = (k + 8 * N) / N - 8;
        y.v[u] = by == 0 ? x.v[k] : adarray_from(~0u, x.v[k - by * N], (threadIdx.x + by) & 31);
    }
    return y;
}

/* N columns from `at` on of n that go round at their ends, of a row that has the first m of
 * them; the others are like its last one. */
template <class T, int N> ADARRAY_IN void adarray_load_lane(
    adarray_pack<T, N> &x, const T *row, int64_t at, int64_t n, int64_t m)
{
    at = at < 0 ? at + n : at < n ? at : at - n;
    if (at + N <= m && adarray_aligned<N>(row + at)) {
        adarray_load(x, row + at);
        return;
    }
#pragma unroll
    for (int u = 0; u < N; u++) {
        const int64_t k = at + u < n ? at + u : at + u - n;
        x.v[u] = row[k < m ? k : m - 1];
    }
}

/* The same where n, m, `at` and the row are multiples of packs; packs behind the row are like
 * its last one. */
template <class T, int N> ADARRAY_IN void adarray_load_lane_pack(
    adarray_pack<T, N> &x, const T *row, int64_t at, int64_t n, int64_t m)
{
    at = at < 0 ? at + n : at < n ? at : at - n;
    adarray_load(x, row + (at < m ? at : m - N));
}

/* Those of N columns that are in lo ... hi - 1; nothing else reads or writes them. */
template <class T, int N> ADARRAY_IN void adarray_store_lane(
    const adarray_pack<T, N> &x, T *row, int at, int64_t lo, int64_t hi)
{
    if (at >= lo && at + N <= hi && adarray_aligned<N>(row + at)) {
        adarray_store_only(x, row + at);
        return;
    }
#pragma unroll
    for (int u = 0; u < N; u++)
        if (at + u >= lo && at + u < hi) row[at + u] = x.v[u];
}

/* The same where lo, hi and the row are multiples of packs. */
template <class T, int N> ADARRAY_IN void adarray_store_lane_pack(
    const adarray_pack<T, N> &x, T *row, int at, int64_t lo, int64_t hi)
{
    if (at >= lo && at < hi) adarray_store_only(x, row + at);
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

/* Combine what the N warps of a block have left in `room`; every warp does the same. */
template <int N, class T, class F> ADARRAY_IN T adarray_of_warps(const T *room, F f)
{
    T x;
    if constexpr ((N & (N - 1)) == 0) {
        x = room[threadIdx.x % N];
        for (int d = N / 2; d > 0; d /= 2) x = f(x, adarray_swap(0xffffffffu, x, d));
    } else {
        x = room[0];
        for (int k = 1; k < N; k++) x = f(x, room[k]);
    }
    return adarray_from(0xffffffffu, x, 0);
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
        x = adarray_of_warps<G / 32>(room, f);
    } else { /* zeros of both signs may have met in different orders */
        x = adarray_from(mask, x, threadIdx.x % 32 / W * W);
    }
    return x;
}

/* The first half of it for a block: leave what each warp has in `room`. After a barrier,
 * adarray_of_warps is the other half. */
template <class T, class F> ADARRAY_IN void adarray_leave(T x, T *room, F f)
{
    for (int d = 16; d > 0; d /= 2) x = f(x, adarray_swap(0xffffffffu, x, d));
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
}

/* Fold the values of the threads of a group before each one; `total` is that of all. `room`
 * has an element for each warp of a block. */
template <int G, class T, class F>
ADARRAY_IN T adarray_before(T x, T neutral, T *room, T &total, F f)
{
    constexpr int W = G < 32 ? G : 32;
    const unsigned mask = adarray_lanes<G>();
    const int lane = threadIdx.x % W, first = threadIdx.x % 32 - lane;
    for (int d = 1; d < W; d *= 2) {
        const T other = adarray_from(mask, x, lane < d ? first + lane : first + lane - d);
        if (lane >= d) x = f(other, x);
    }
    total = adarray_from(mask, x, first + W - 1);
    T before = adarray_from(mask, x, lane > 0 ? first + lane - 1 : first);
    if (lane == 0) before = neutral;
    if constexpr (G > 32) {
        constexpr int N = G / 32;
        const int warp = threadIdx.x / 32, slot = lane % N;
        __syncthreads(); /* somebody may still read what `room` held before */
        if (lane == 31) room[warp] = x;
        __syncthreads();
        T sum = room[slot];
        for (int d = 1; d < N; d *= 2) {
            const T other = adarray_from(mask, sum, slot < d ? slot : slot - d);
            if (slot >= d) sum = f(other, sum);
        }
        total = adarray_from(mask, sum, N - 1);
        const T warps = adarray_from(mask, sum, warp > 0 ? warp - 1 : 0);
        if (warp > 0) before = f(warps, before);
    }
    return before;
}

/* Load what other blocks have written: not out of the multiprocessor's own cache. */
template <class T> ADARRAY_IN T adarray_load_past(const T *p)
{
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(T) == 8 && T(0.5) == T(0))
        return (T)__ldcg((const long long *)p);
    else if constexpr (sizeof(T) >= 4)
        return __ldcg(p);
    else
        return *(volatile const T *)p;
#else
    return *p;
#endif
}

/* Fold what blocks have left in `parts` into out[0], in the order of the blocks. */
template <int B, class T, class F>
ADARRAY_IN void adarray_merge_numbers(const T *parts, unsigned blocks, T neutral, T *room, T *out,
                                      F f)
{
    T sum = neutral;
    for (unsigned k = threadIdx.x; k < blocks; k += 8 * B) {
        T some[8]; /* loaded side by side */
#pragma unroll
        for (int u = 0; u < 8; u++)
            some[u] = k + u * B < blocks ? adarray_load_past(parts + k + u * B) : neutral;
#pragma unroll
        for (int u = 0; u < 8; u++) sum = k + u * B < blocks ? f(sum, some[u]) : sum;
    }
    sum = adarray_together<B>(sum, room, f);
    if (threadIdx.x == 0) out[0] = sum;
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
        adarray_merge_numbers<B>(parts, blocks, neutral, room, out, f);
        if (threadIdx.x == 0) *count = 0;
    }
    __syncthreads(); /* `last` is read by all before the next total sets it */
    return mine;
}

/* Whether this block is the last one of so many to come here; then it sees what the others have
 * written. Every thread calls; `count` is 0 before and after. */
ADARRAY_IN bool adarray_is_last(unsigned *count, unsigned blocks)
{
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(count, 1u) == blocks - 1;
        if (last) *count = 0;
        __threadfence();
    }
    __syncthreads();
    return last;
}

/* Combine what the N warps of a block have left in `room`, and leave it in `parts`, where each
 * block has an element. A warp calls. */
template <int N, class T, class F>
ADARRAY_IN void adarray_leave_block(const T *room, T *parts, F f)
{
    const T x = adarray_of_warps<N>(room, f);
    if (threadIdx.x % 32 == 0) parts[blockIdx.y * gridDim.x + blockIdx.x] = x;
}

/* Fold what blocks have left in `parts` into out[0], in an order that never changes. A warp of the
 * last block calls. */
template <class T, class F>
ADARRAY_IN void adarray_merge_number(const T *parts, unsigned blocks, T neutral, T *out, F f)
{
    T sum = neutral;
    for (unsigned k = threadIdx.x % 32; k < blocks; k += 16 * 32) {
        T some[16]; /* loaded side by side */
#pragma unroll
        for (int u = 0; u < 16; u++)
            some[u] = k + u * 32 < blocks ? adarray_load_past(parts + k + u * 32) : neutral;
#pragma unroll
        for (int u = 0; u < 16; u++) sum = k + u * 32 < blocks ? f(sum, some[u]) : sum;
    }
    sum = adarray_together<32>(sum, (T *)nullptr, f);
    if (threadIdx.x % 32 == 0) out[0] = sum;
}

/* Fold columns `first` up to `end` of `rows` rows that blocks have left in memory: threads share
 * out columns, then rows. `room` has an element for each thread. */
template <int B, class T, class F>
ADARRAY_IN void adarray_merge_parts(const T *parts, int64_t rows, int64_t stride, int64_t first,
                                    int64_t end, T neutral, T *room, T *out, F f)
{
    int width = 1;
    while (width < end - first && 2 * width <= B) width *= 2;
    const int most = B / width, ways = rows < most ? (int)rows : most;
    const int column = threadIdx.x % width, way = threadIdx.x / width;
    for (int64_t k = first + column; k - column < end; k += width) {
        T sum = neutral;
        if (k < end && way < ways) {
#pragma unroll 8
            for (int64_t row = way; row < rows; row += ways)
                sum = f(sum, *(const volatile T *)(parts + row * stride + k));
        }
        __syncthreads(); /* somebody may still read what `room` held before */
        room[threadIdx.x] = sum;
        __syncthreads();
        if (way == 0 && k < end) {
            for (int w = 1; w < ways; w++) sum = f(sum, room[w * width + column]);
            out[k] = sum;
        }
    }
}

/* An array total of a sheet, of which each thread has W elements side by side, and one behind
 * the last whole pack: fold those of a block's groups into `out`. `room` has W elements for each
 * thread and W for each group. */
template <int B, int G, int W, class T, class F>
ADARRAY_IN void adarray_sheet_total(const adarray_pack<T, W> &x, T one, T *room, int64_t size,
                                    T *out, F f)
{
    constexpr int K = G * W, P = K + W;
    const int lane = threadIdx.x % G;
    const int64_t whole = size / W * W, first = (int64_t)blockIdx.y * K;
    T *const mine = room + threadIdx.x / G * P;
    __syncthreads(); /* somebody may still read what `room` held before */
    for (int u = 0; u < W; u++) mine[lane * W + u] = W > 1 ? x.v[u] : one;
    if (lane < W) mine[K + lane] = one;
    __syncthreads();
    for (int t = threadIdx.x; t < P; t += B) {
        const int64_t k = t < K ? first + t : whole + t - K;
        if (k >= (t < K ? whole : blockIdx.y ? 0 : size)) continue;
        T sum = room[t];
#pragma unroll 8
        for (int g = 1; g < B / G; g++) sum = f(sum, room[g * P + t]);
        out[k] = sum;
    }
}

/* Sums of columns, of which each thread of a group of G has W that lie G apart: fold those of a
 * block's groups into `out`. `room` has W elements for each thread. */
template <int B, int G, int W, class T, class F>
ADARRAY_IN void adarray_columns_total(const T (&x)[W], T *room, int64_t size, T *out, F f)
{
    const int64_t first = (int64_t)blockIdx.y * G * W;
    if (B == G) {
#pragma unroll
        for (int u = 0; u < W; u++)
            if (first + u * G + threadIdx.x < size) out[first + u * G + threadIdx.x] = x[u];
        return;
    }
    __syncthreads(); /* somebody may still read what `room` held before */
#pragma unroll
    for (int u = 0; u < W; u++)
        room[(threadIdx.x / G * W + u) * G + threadIdx.x % G] = x[u];
    __syncthreads();
    for (int t = threadIdx.x; t < G * W; t += B) {
        if (first + t >= size) break;
        T sum = room[t];
#pragma unroll
        for (int g = 1; g < B / G; g++) sum = f(sum, room[g * G * W + t]);
        out[first + t] = sum;
    }
}

/* The same of what all blocks with these columns have left in `parts`. */
template <int B, int G, int W, class T, class F>
ADARRAY_IN void adarray_merge_sheets(const T *parts, int64_t rows, int64_t stride, int64_t size,
                                     T neutral, T *room, T *out, F f)
{
    constexpr int K = G * W;
    const int64_t whole = size / W * W, first = (int64_t)blockIdx.y * K;
    const int64_t end = first + K < whole ? first + K : whole;
    adarray_merge_parts<B>(parts, rows, stride, first, end, neutral, room, out, f);
    if (blockIdx.y == 0)
        adarray_merge_parts<B>(parts, rows, stride, whole, size, neutral, room, out, f);
}

/* Copy elements `begin` to begin + D - 1 of S rows into shared memory, those of one number side by
 * side; rows behind the last one are like it, and a row has `deep` elements. */
template <int B, int D, int S, class T, class F>
ADARRAY_IN void adarray_stage(T (&room)[D][S + 4], F row, int64_t first, int64_t end,
                              int64_t begin, int64_t deep)
{
#pragma unroll
    for (int t = threadIdx.x; t < S * D; t += B) {
        const int r = t / D, c = t % D;
        const int64_t own = first + r < end ? first + r : end - 1;
        if (begin + c < deep) room[c][r] = row(own)[begin + c];
    }
}

/* Store what each thread of a block holds of an array total: R packs. */
template <int B, int R, class T, int W>
ADARRAY_IN void adarray_held_total(const adarray_pack<T, W> *x, int64_t size, T *out)
{
#pragma unroll
    for (int r = 0; r < R; r++) {
        const int64_t k = ((int64_t)r * B + threadIdx.x) * W;
        if (k < size) adarray_store_each(x[r], out + k);
    }
}

/* Fold the array totals that the groups of a block have in shared memory into `out`. */
template <int B, int G, class T, class F>
ADARRAY_IN void adarray_near_total(const T *near, int64_t stride, int64_t size, T *out, F f)
{
    __syncthreads();
    for (int64_t k = threadIdx.x; k < size; k += B) {
        T sum = near[k];
        for (int g = 1; g < B / G; g++) sum = f(sum, near[g * stride + k]);
        out[k] = sum;
    }
}

/* Room for a number of each thread of a block of 1024, the same whatever is folded there: each
 * instance of a template would have its own, and shared memory is short. */
ADARRAY_IN double *adarray_merge_room(void)
{
    __shared__ double room[1024];
    return room;
}

/* Fold rows of `parts`, one for each group that ran, into out: a block of 32 by 32 threads
 * for each 32 columns, rows in a fixed order. */
template <class T, class F>
ADARRAY_IN void adarray_merge(const T *parts, int64_t rows, int64_t stride, int64_t size,
                              T neutral, T *out, F f)
{
    static_assert(sizeof(T) <= sizeof(double), "there is room for 8 bytes of each thread");
    T *const room = (T *)adarray_merge_room();
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    for (int64_t first = (int64_t)blockIdx.x * 32; first < size; first += (int64_t)gridDim.x * 32) {
        const int64_t column = first + x;
        T sum = neutral;
        if (column < size)
            for (int64_t row = y; row < rows; row += 32) sum = f(sum, parts[row * stride + column]);
        room[threadIdx.x] = sum;
        __syncthreads();
        if (y == 0 && column < size) {
            for (int k = 1; k < 32; k++) sum = f(sum, room[k * 32 + x]);
            out[column] = sum;
        }
        __syncthreads();
    }
}

#endif
