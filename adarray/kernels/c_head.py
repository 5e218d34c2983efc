"""What stands above every kernel in C: its call, tapes, atomic operations, lanes of warps."""

# Branches of kernels mostly go one way, and processors foresee it: values chosen without a branch
# would make the chain of operations longer, which a derivative has twice of.
BRANCHES = """
#pragma GCC push_options
#pragma GCC optimize("no-if-conversion")
"""
END = "#pragma GCC pop_options\n"
HEAD = r"""
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifndef KERNEL_HEAD
#define KERNEL_HEAD
typedef struct {
    void **args;
    int64_t *sizes;
    int64_t grid[3], block[3];
    int64_t dynamic, next, blocks, chunk, limit, status, used;
} adarray_call;
/* `words` fit into the memory; `last`, if there is one, is the room that the last run needed. */
typedef struct { double *data; int64_t top, room, words, *last; } adarray_tape;
static __attribute__((noinline)) _Bool adarray_enlarge(
    adarray_tape *t, int64_t room, adarray_call *call) {
    const int64_t used = __atomic_add_fetch(&call->used, 8 * (room - t->room), __ATOMIC_RELAXED);
    if (used > call->limit) return 0;
    if (room > t->words) {
        const int64_t last = t->data || !t->last ? 0 : __atomic_load_n(t->last, __ATOMIC_RELAXED);
        const size_t before = 8 * t->words;
        size_t size = 8 * (room > last ? room : last);
        double *data = adarray_pool.longer_tape(t->data, before, &size);
        if (!data && last > room) {
            size = 8 * room;
            data = adarray_pool.longer_tape(t->data, before, &size);
        }
        if (!data) return 0;
        t->data = data;
        t->words = size / 8;
    }
    t->room = room;
    return 1;
}
static inline adarray_tape *adarray_tapes(int64_t count, int64_t *last) {
    adarray_tape *const tapes = calloc(count, sizeof(adarray_tape));
    for (int64_t i = 0; last && i < count; i++) tapes[i].last = last + i;
    return tapes;
}
static inline void adarray_release(adarray_tape *tapes, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (tapes[i].last) __atomic_store_n(tapes[i].last, tapes[i].room, __ATOMIC_RELAXED);
        if (tapes[i].data) adarray_pool.give_tape(tapes[i].data, 8 * tapes[i].words);
    }
    free(tapes);
}
static __attribute__((noinline)) void adarray_grow(adarray_tape *t, adarray_call *call) {
    if (!adarray_enlarge(t, t->room ? 2 * t->room : 64, call)) {
        call->status = 1;
        t->top = 0;  /* the results are not used */
    }
}
static inline void adarray_push(adarray_tape *t, double value, adarray_call *call) {
    if (__builtin_expect(t->top >= t->room, 0)) adarray_grow(t, call);
    if (t->room) t->data[t->top++] = value;
}
static inline double adarray_pop(adarray_tape *t) { return t->top > 0 ? t->data[--t->top] : 0; }
static inline double adarray_as_double(int64_t x) { double y; memcpy(&y, &x, 8); return y; }
static inline int64_t adarray_as_int(double x) { int64_t y; memcpy(&y, &x, 8); return y; }
/* Memory for one thread to add into; none where it would be more than the work. */
static inline void *adarray_own(const adarray_call *call, int64_t size, int64_t bytes) {
    const int64_t work = call->blocks * call->block[0] * call->block[1] * call->block[2];
    return size <= (work > 4096 ? work : 4096) ? calloc(size, bytes) : 0;
}
#define KERNEL_ATOMIC(T, I, NAME, COMBINED) \
    static inline T adarray_atomic_##NAME(T *p, T v) { \
        I before = __atomic_load_n((I *)p, __ATOMIC_RELAXED); \
        for (;;) { \
            T x, y; I after; \
            memcpy(&x, &before, sizeof x); \
            y = COMBINED; \
            memcpy(&after, &y, sizeof y); \
            if (__atomic_compare_exchange_n((I *)p, &before, after, 1, __ATOMIC_RELAXED, \
                                            __ATOMIC_RELAXED)) return x; \
        } \
    }
#define KERNEL_ATOMICS(T, I, S) \
    KERNEL_ATOMIC(T, I, add_##S, x + v) \
    KERNEL_ATOMIC(T, I, minimum_##S, x < v ? x : v) \
    KERNEL_ATOMIC(T, I, maximum_##S, x > v ? x : v)
KERNEL_ATOMICS(float, int32_t, float32)
KERNEL_ATOMICS(double, int64_t, float64)
KERNEL_ATOMICS(int32_t, int32_t, int32)
KERNEL_ATOMICS(uint32_t, int32_t, uint32)
KERNEL_ATOMICS(int64_t, int64_t, int64)
KERNEL_ATOMICS(uint64_t, int64_t, uint64)
/* Threads whose value a shuffle gets: in their part of the warp, if they are there. */
#define KERNEL_LANE(NAME, CHOSEN, INSIDE) \
    static inline int64_t adarray_lane_##NAME(int64_t t, int32_t by, int32_t width, int64_t n) { \
        const int32_t at = t & (width - 1), chosen = CHOSEN; \
        const int64_t source = t - at + chosen; \
        return (INSIDE) && source < n ? source : t; \
    }
KERNEL_LANE(idx, by & (width - 1), 1)
KERNEL_LANE(up, at - by, chosen >= 0)
KERNEL_LANE(down, at + by, chosen < width)
KERNEL_LANE(xor, at ^ by, chosen < width)
#define KERNEL_WARP(NAME, DTYPE, T, R, FIRST, COMBINED) \
    static inline R adarray_warp_##NAME##_##DTYPE(const T *sent, int64_t t, int64_t n) { \
        const int64_t first = t & ~INT64_C(31), many = n - first < 32 ? n - first : 32; \
        R x = FIRST; \
        for (int64_t i = 0; i < many; i++) { const T v = sent[first + i]; x = COMBINED; } \
        return x; \
    }
#define KERNEL_WARPS(DTYPE, T) \
    KERNEL_WARP(add, DTYPE, T, T, 0, x + v) \
    KERNEL_WARP(minimum, DTYPE, T, T, sent[first], x < v ? x : v) \
    KERNEL_WARP(maximum, DTYPE, T, T, sent[first], x > v ? x : v) \
    KERNEL_WARP(and, DTYPE, T, T, -1, x & v) \
    KERNEL_WARP(or, DTYPE, T, T, 0, x | v) \
    KERNEL_WARP(xor_all, DTYPE, T, T, 0, x ^ v)
KERNEL_WARPS(int32, int32_t)
KERNEL_WARPS(uint32, uint32_t)
#define KERNEL_MATCH(DTYPE, T) \
    KERNEL_WARP(match, DTYPE, T, uint32_t, 0, \
                x | (uint32_t)!memcmp(&v, &sent[t], sizeof v) << i)
KERNEL_MATCH(int32, int32_t)
KERNEL_MATCH(uint32, uint32_t)
KERNEL_MATCH(int64, int64_t)
KERNEL_MATCH(uint64, uint64_t)
KERNEL_MATCH(float32, float)
KERNEL_MATCH(float64, double)
KERNEL_WARP(ballot, bool, uint32_t, uint32_t, 0, x | (uint32_t)(v != 0) << i)
#endif
"""

# For kernels of one thread, whose loops have arrays on the tape.
TAPE_ARRAYS = r"""
#ifndef KERNEL_TAPE_ARRAYS
#define KERNEL_TAPE_ARRAYS
/* Arrays on the tape, of as many words; 0 without room. */
static inline int64_t adarray_more(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t adarray_words(int64_t n, int64_t size) { return (n * size + 7) / 8; }
static __attribute__((noinline)) double *adarray_take(
    adarray_tape *t, int64_t words, adarray_call *call) {
    if (!t->data || t->top + words > t->room) {
        const int64_t least = adarray_more(t->top + words, 64);
        if (!adarray_enlarge(t, adarray_more(least, 2 * t->room), call)) {
            call->status = 1;
            return 0;
        }
    }
    double *const at = t->data + t->top;
    t->top += words;
    return at;
}
static inline double *adarray_back(adarray_tape *t, int64_t words) {
    if (t->top < words || !t->data) return 0;
    return t->data + (t->top -= words);
}
#endif
"""
