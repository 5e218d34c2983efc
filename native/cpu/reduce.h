/* Folds over any axes of arrays of any strides, pairwise, with threads.
 *
 * Elements are folded in leaves, and leaves and rows pairwise, so that rounding errors
 * grow with the logarithm of their number. Big folds are cut into chunks whose size does
 * not depend on the number of threads: nor does any result.
 *
 * References:
 * - N. J. Higham, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14 (1993),
 *   783-799.
 */
#ifndef ADARRAY_REDUCE_H
#define ADARRAY_REDUCE_H

#include "arrays.h"
#include "thread_pool.h"
#include <stdlib.h>

#define LEAF_ROWS 32 /* rows added one after the other */
#define TILE 1024    /* outputs that are accumulated side by side */
#define NARROW 8     /* fewer outputs than that are folded one by one */
#define SHORT 32     /* elements of folds so short that outputs lie side by side anyway */
#define CHUNK 65536  /* elements of one thread's task */

typedef struct {
    const char *name, *hash;
    int type;
    intptr_t leaf; /* elements folded by one call */
} FoldKernel;

typedef struct {
    void (*fold)(const void *x, intptr_t n, void *result);
    void (*add)(void *total, const void *x, intptr_t n);
    void (*merge)(void *total, const void *x, intptr_t n);
    void (*start)(void *total, intptr_t n);
    void (*post)(void *total, intptr_t n, double count);
} FoldParts;

typedef struct {
    const FoldParts *f;
    intptr_t leaf;
    Operand outer;                  /* outer unfolded axes of x; dims outermost first */
    Operand folded;                 /* folded axes of x */
    intptr_t out_strides[MAX_DIMS]; /* of the result, along `outer` */
    int size;
    int wide;                       /* outputs lie along the innermost unfolded axis */
    intptr_t length, stride, out_stride; /* of that axis */
    intptr_t width, tiles, units, chunks, chunk, total;
} Fold;

/* Fold a leaf, copied together first where its elements lie apart. Not inlined: its buffer
 * would be in every frame of the recursion. */
static __attribute__((noinline)) void fold_leaf(const Fold *r, const Operand *o, intptr_t lo,
                                                intptr_t n, char *result)
{
    char buffer[LARGEST_LEAF * 8] __attribute__((aligned(64)));
    intptr_t run = 0;
    const char *at = locate(o, lo, &run);
    if (run < n || o->strides[o->nd - 1] != o->size || (uintptr_t)at % o->size) {
        load(o, lo, n, buffer);
        at = buffer;
    }
    r->f->fold(at, n, result);
}

/* Fold elements lo .. hi of one output's line. */
static void fold_line(const Fold *r, const Operand *o, intptr_t lo, intptr_t hi, char *result)
{
    if (hi - lo <= r->leaf) {
        fold_leaf(r, o, lo, hi - lo, result);
        return;
    }
    char right[8] __attribute__((aligned(8)));
    const intptr_t middle = lo + ((hi - lo) / 2 + r->leaf - 1) / r->leaf * r->leaf;
    fold_line(r, o, lo, middle, result);
    fold_line(r, o, middle, hi, right);
    r->f->merge(result, right, 1);
}

/* Fold rows lo .. hi, each `width` elements of neighbouring outputs. */
static void fold_rows(const Fold *r, const Operand *o, intptr_t width, intptr_t lo, intptr_t hi,
                      char *result)
{
    char buffer[TILE * 8] __attribute__((aligned(64)));
    if (hi - lo > LEAF_ROWS) {
        const intptr_t middle = lo + ((hi - lo) / 2 + LEAF_ROWS - 1) / LEAF_ROWS * LEAF_ROWS;
        fold_rows(r, o, width, lo, middle, result);
        fold_rows(r, o, width, middle, hi, buffer);
        r->f->merge(result, buffer, width);
        return;
    }
    r->f->start(result, width);
    intptr_t run = 0;
    const char *at = locate(o, lo, &run);
    for (intptr_t row = lo; row < hi; row++) {
        const char *from = at;
        if (r->stride != r->size || (uintptr_t)at % r->size) {
            copy_run(buffer, at, r->stride, width, r->size);
            from = buffer;
        }
        r->f->add(result, from, width);
        if (--run > 0)
            at += o->strides[o->nd - 1];
        else if (row + 1 < hi)
            at = locate(o, row + 1, &run);
    }
}

/* Find where the outputs of a unit begin in x and in the result; return their number. */
static intptr_t locate_unit(const Fold *r, intptr_t unit, Operand *o, intptr_t *out_offset)
{
    intptr_t tile = 0, offset = 0, rest = unit;
    *out_offset = 0;
    if (r->wide) {
        tile = unit % r->tiles;
        rest = unit / r->tiles;
        offset = tile * r->width * r->stride;
        *out_offset = tile * r->width * r->out_stride;
    }
    for (int d = r->outer.nd - 1; d >= 0; d--) {
        const intptr_t i = rest % r->outer.dims[d];
        rest /= r->outer.dims[d];
        offset += i * r->outer.strides[d];
        *out_offset += i * r->out_strides[d];
    }
    *o = r->folded;
    o->data += offset;
    const intptr_t left = r->length - tile * r->width;
    return !r->wide ? 1 : left < r->width ? left : r->width;
}

static void fold_chunk(const Fold *r, const Operand *o, intptr_t width, intptr_t chunk, char *to)
{
    const intptr_t lo = chunk * r->chunk;
    const intptr_t hi = lo + r->chunk < r->total ? lo + r->chunk : r->total;
    if (r->wide)
        fold_rows(r, o, width, lo, hi, to);
    else
        fold_line(r, o, lo, hi, to);
}

/* Finish the outputs of a unit and store them. */
static void store_unit(const Fold *r, char *values, intptr_t width, char *out)
{
    r->f->post(values, width, (double)r->total);
    for (intptr_t i = 0; i < width; i++)
        memcpy(out + i * r->out_stride, values + i * r->size, (size_t)r->size);
}

static int by_stride(const intptr_t *dims, const intptr_t *strides, int nd, int *order)
{
    int n = 0;
    for (int i = 0; i < nd; i++) {
        if (dims[i] == 1) continue;
        int j = n++;
        for (; j > 0 && llabs(strides[order[j - 1]]) < llabs(strides[i]); j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
    return n;
}

/* Lay out the folded axes: dims and strides of x. */
static void plan_folded(Fold *r, const intptr_t *dims, const intptr_t *strides, int nd)
{
    int order[MAX_DIMS];
    Operand *o = &r->folded;
    o->nd = by_stride(dims, strides, nd, order);
    for (int i = 0; i < o->nd; i++) {
        o->dims[i] = dims[order[i]];
        o->strides[i] = strides[order[i]];
        if (o->strides[i] < 0) { /* the order along an axis is ours to choose */
            o->data += (o->dims[i] - 1) * o->strides[i];
            o->strides[i] = -o->strides[i];
        }
    }
    coalesce(o);
    r->total = 1;
    for (int i = 0; i < o->nd; i++) r->total *= o->dims[i];
}

/* Lay out the unfolded axes: dims, strides of x, strides of the result. */
static void plan_kept(Fold *r, const intptr_t *dims, const intptr_t *strides, const intptr_t *out,
                      int nd)
{
    int order[MAX_DIMS];
    Operand *k = &r->outer;
    nd = by_stride(dims, strides, nd, order);
    k->nd = 0;
    for (int i = 0; i < nd; i++) {
        const intptr_t d = dims[order[i]], s = strides[order[i]], o = out[order[i]];
        const int m = k->nd - 1;
        if (m >= 0 && k->strides[m] == s * d && r->out_strides[m] == o * d) {
            k->dims[m] *= d;
            k->strides[m] = s;
            r->out_strides[m] = o;
        } else {
            k->dims[k->nd] = d;
            k->strides[k->nd] = s;
            r->out_strides[k->nd++] = o;
        }
    }
}

/* Decide whether outputs are folded side by side, and cut the work into tasks. */
static void plan_work(Fold *r)
{
    Operand *k = &r->outer;
    const intptr_t inner = r->folded.nd ? r->folded.strides[r->folded.nd - 1] : 0;
    r->wide = 0;
    if (k->nd) {
        const intptr_t stride = llabs(k->strides[k->nd - 1]), length = k->dims[k->nd - 1];
        r->wide = (stride < inner && length >= NARROW) || (r->total < SHORT && length >= SHORT);
    }
    r->width = r->tiles = 1;
    r->stride = r->out_stride = r->length = 0;
    if (r->wide) {
        const int m = --k->nd;
        r->length = k->dims[m];
        r->stride = k->strides[m];
        r->out_stride = r->out_strides[m];
        r->width = r->length < TILE ? r->length : TILE;
        r->tiles = (r->length + TILE - 1) / TILE;
    }
    r->units = r->tiles;
    for (int i = 0; i < k->nd; i++) r->units *= k->dims[i];
    r->chunk = r->wide ? (CHUNK / r->width + LEAF_ROWS - 1) / LEAF_ROWS * LEAF_ROWS : CHUNK;
    r->chunks = (r->total + r->chunk - 1) / r->chunk;
}

/* Split the axes into unfolded and folded ones, merge neighbours, and plan the work. */
static void plan_fold(Fold *r, PyArrayObject *x, PyArrayObject *out, unsigned axes)
{
    intptr_t kd[MAX_DIMS], ks[MAX_DIMS], ko[MAX_DIMS], fd[MAX_DIMS], fs[MAX_DIMS];
    int nk = 0, nf = 0;
    const int keepdims = PyArray_NDIM(out) == PyArray_NDIM(x);
    for (int i = 0; i < PyArray_NDIM(x); i++) {
        if (axes >> i & 1) {
            fd[nf] = PyArray_DIM(x, i);
            fs[nf++] = PyArray_STRIDE(x, i);
        } else {
            kd[nk] = PyArray_DIM(x, i);
            ko[nk] = PyArray_STRIDE(out, keepdims ? i : nk);
            ks[nk++] = PyArray_STRIDE(x, i);
        }
    }
    r->folded.data = PyArray_BYTES(x);
    plan_folded(r, fd, fs, nf);
    plan_kept(r, kd, ks, ko, nk);
    plan_work(r);
}

/* Fold the axes whose bits are set; return flags, or a negative number as map_arrays. */
static int fold_array(const FoldKernel *kernel, const FoldParts *f, uintptr_t address,
                      unsigned axes, uintptr_t result, int threads)
{
    Fold r;
    Operand o;
    int flags = 0;
    PyArrayObject *out = (PyArrayObject *)result;
    if (!read_array(address, kernel->type, &r.folded) || !read_array(result, kernel->type, &o))
        return WRONG_ARRAY;
    r.f = f;
    r.leaf = kernel->leaf;
    r.size = r.folded.size;
    plan_fold(&r, (PyArrayObject *)address, out, axes);
    if (r.folded.nd == 0) return WRONG_ARRAY; /* nothing to fold: NumPy copies */
    char *data = PyArray_BYTES(out), *parts = NULL;
    const intptr_t slot = r.width * r.size, tasks = r.units * r.chunks;
    if (r.chunks > 1 && !(parts = malloc((size_t)(tasks * slot)))) return NO_MEMORY;
    ThreadsClock clock;
    threads = threads_begin(&clock, threads);
#ifdef _OPENMP
#pragma omp parallel num_threads(threads) reduction(| : flags) if (threads > 1)
#endif
    {
        feclearexcept(FE_ALL_EXCEPT);
#ifdef _OPENMP
#pragma omp for schedule(static) nowait
#endif
        for (intptr_t task = 0; task < tasks; task++) {
            char values[TILE * 8] __attribute__((aligned(64)));
            Operand line;
            intptr_t offset;
            const intptr_t width = locate_unit(&r, task / r.chunks, &line, &offset);
            if (parts) {
                fold_chunk(&r, &line, width, task % r.chunks, parts + task * slot);
            } else {
                fold_chunk(&r, &line, width, 0, values);
                store_unit(&r, values, width, data + offset);
            }
        }
#ifdef _OPENMP
#pragma omp master
#endif
        threads_worked(&clock, threads);
#ifdef _OPENMP
#pragma omp barrier
#pragma omp for schedule(static)
#endif
        for (intptr_t unit = 0; unit < (parts ? r.units : 0); unit++) {
            char *mine = parts + unit * r.chunks * slot;
            Operand line;
            intptr_t offset;
            const intptr_t width = locate_unit(&r, unit, &line, &offset);
            for (intptr_t step = 1; step < r.chunks; step *= 2)
                for (intptr_t i = 0; i + step < r.chunks; i += 2 * step)
                    r.f->merge(mine + i * slot, mine + (i + step) * slot, width);
            store_unit(&r, mine, width, data + offset);
        }
        flags |= read_flags();
    }
    threads_end(&clock, threads);
    free(parts);
    return flags;
}

#endif
