/* Pointwise kernels over arrays of any strides, with broadcasting and threads. */
#ifndef ADARRAY_MAP_H
#define ADARRAY_MAP_H

#include "arrays.h"
#include "thread_pool.h"

#define BLOCK 1024 /* elements of a buffer: a few buffers fit the first-level cache */

typedef void (*map_function)(const void *const *in, void *result, intptr_t n);

typedef struct {
    const char *name, *hash;
    int type;       /* NumPy's number of the result's dtype */
    int inputs;
    unsigned truths; /* bit i: input i is bool */
} MapKernel;

/* Sort the result's axes by falling stride, which makes it one line; 0 if it is not. */
static int order_axes(PyArrayObject *out, int *axes)
{
    const int nd = PyArray_NDIM(out);
    const npy_intp *s = PyArray_STRIDES(out), *dims = PyArray_DIMS(out);
    for (int i = 0; i < nd; i++) {
        int j = i;
        for (; j > 0 && s[axes[j - 1]] < s[i]; j--) axes[j] = axes[j - 1];
        axes[j] = i;
    }
    npy_intp expected = PyArray_DESCR(out)->type_num == NPY_DOUBLE ? 8 : 4;
    for (int i = nd - 1; i >= 0; i--) {
        if (dims[axes[i]] == 1) continue;
        if (s[axes[i]] != expected) return 0;
        expected *= dims[axes[i]];
    }
    return 1;
}

/* Lay an operand along the axes of the result; 0 if it does not broadcast to them. */
static int lay_out(uintptr_t address, PyArrayObject *out, const int *axes, Operand *o)
{
    PyArrayObject *x = (PyArrayObject *)address;
    const int nd = PyArray_NDIM(out), lead = nd - PyArray_NDIM(x);
    if (lead < 0) return 0;
    for (int i = 0; i < nd; i++) {
        const int a = axes[i] - lead;
        const intptr_t wanted = PyArray_DIM(out, axes[i]);
        const intptr_t there = a < 0 ? 1 : PyArray_DIM(x, a);
        if (there != wanted && there != 1) return 0;
        o->dims[i] = wanted;
        o->strides[i] = there == 1 ? 0 : PyArray_STRIDE(x, a);
    }
    o->nd = nd;
    coalesce(o);
    return 1;
}

/* Compute elements lo .. hi of the line. */
static void map_range(map_function f, int n_in, const Operand *in, char *out, int out_size,
                      intptr_t lo, intptr_t hi)
{
    char buffers[MAX_INPUTS][BLOCK * 8] __attribute__((aligned(64)));
    const void *p[MAX_INPUTS];
    intptr_t step = hi - lo;
    for (int k = 0; k < n_in; k++) {
        if (in[k].constant) load(&in[k], 0, BLOCK, buffers[k]);
        if (!in[k].direct && step > BLOCK) step = BLOCK;
    }
    while (lo + GROUP <= hi) {
        intptr_t n = hi - lo < step ? (hi - lo) / GROUP * GROUP : step / GROUP * GROUP;
        for (int k = 0; k < n_in; k++) {
            intptr_t run = 0;
            p[k] = buffers[k];
            if (in[k].direct) {
                p[k] = in[k].data + lo * in[k].size;
            } else if (!in[k].constant) {
                /* A block inside one contiguous row needs no copy. */
                const char *at = locate(&in[k], lo, &run);
                if (run >= n && in[k].strides[in[k].nd - 1] == in[k].size
                    && (uintptr_t)at % in[k].size == 0)
                    p[k] = at;
                else
                    load(&in[k], lo, n, buffers[k]);
            }
        }
        f(p, out + lo * out_size, n);
        lo += n;
    }
    if (lo < hi) { /* the tail, padded by its last element, which raises no new flags */
        char last[GROUP * 8] __attribute__((aligned(64)));
        const intptr_t n = hi - lo;
        for (int k = 0; k < n_in; k++) {
            const int size = in[k].size;
            p[k] = buffers[k];
            if (in[k].constant) continue;
            load(&in[k], lo, n, buffers[k]);
            for (intptr_t i = n; i < GROUP; i++)
                memcpy(buffers[k] + i * size, buffers[k] + (n - 1) * size, (size_t)size);
        }
        f(p, last, GROUP);
        memcpy(out + lo * out_size, last, (size_t)(n * out_size));
    }
}

/* Compute a kernel; return floating-point flags, or a negative number where it refuses. */
static int map_arrays(const MapKernel *kernel, map_function f, const uintptr_t *addresses,
                      int count, uintptr_t result, int threads)
{
    Operand in[MAX_INPUTS], o;
    int axes[MAX_DIMS], flags = 0;
    PyArrayObject *out = (PyArrayObject *)result;
    if (count != kernel->inputs || count > MAX_INPUTS) return WRONG_KERNEL;
    if (!read_array(result, kernel->type, &o) || !order_axes(out, axes)) return WRONG_ARRAY;
    for (int k = 0; k < count; k++) {
        const int type = kernel->truths >> k & 1 ? NPY_BOOL : kernel->type;
        if (!read_array(addresses[k], type, &in[k]) || !lay_out(addresses[k], out, axes, &in[k]))
            return WRONG_ARRAY;
    }
    intptr_t size = 1;
    for (int i = 0; i < PyArray_NDIM(out); i++) size *= PyArray_DIM(out, i);
    char *data = PyArray_BYTES(out);
    ThreadsClock clock;
    threads = threads_begin(&clock, threads);
    /* Parts are whole groups, so that their borders change no value. */
    const intptr_t part = ((size + threads - 1) / threads + 63) / 64 * 64;
#ifdef _OPENMP
#pragma omp parallel num_threads(threads) reduction(| : flags) if (threads > 1)
#endif
    {
#ifdef _OPENMP
#pragma omp for schedule(static) nowait
#endif
        for (int t = 0; t < threads; t++) {
            const intptr_t lo = t * part, hi = lo + part < size ? lo + part : size;
            if (lo < hi) {
                feclearexcept(FE_ALL_EXCEPT);
                map_range(f, count, in, data, o.size, lo, hi);
                flags |= read_flags();
            }
        }
#ifdef _OPENMP
#pragma omp master
#endif
        threads_worked(&clock, threads);
    }
    threads_end(&clock, threads);
    return flags;
}

#endif
