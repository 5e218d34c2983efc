/* NumPy arrays as the drivers see them: read through their address, never created here.
 *
 * Every driver walks the result in its memory order, as one line of elements. An
 * operand is `direct` when its elements lie on that line too, `constant` when it has
 * one element, and is copied into small buffers by `load` otherwise.
 */
#ifndef ADARRAY_ARRAYS_H
#define ADARRAY_ARRAYS_H

#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
// Only struct fields are read; the API table is not imported, and its importer does not
// compile under the limited API that cffi asks for.
#define NO_IMPORT_ARRAY
#include <numpy/ndarraytypes.h>
#include "flags.h"
#include <stdint.h>
#include <string.h>

#define MAX_DIMS 32
#define MAX_INPUTS 6

typedef struct {
    const char *data;
    int nd;                       /* dims that are left after coalescing, outermost first */
    intptr_t dims[MAX_DIMS], strides[MAX_DIMS];
    int size;                     /* bytes of an element */
    int direct, constant;
} Operand;

/* Fill in data and size; 0 if the array is not of `type` in native byte order. */
static inline int read_array(uintptr_t address, int type, Operand *o)
{
    PyArrayObject *x = (PyArrayObject *)address;
    const PyArray_Descr *d = PyArray_DESCR(x);
    if (d->type_num != type || PyArray_NDIM(x) > MAX_DIMS
        || !(d->byteorder == '=' || d->byteorder == '|'))
        return 0;
    o->data = PyArray_BYTES(x);
    o->size = type == NPY_DOUBLE ? 8 : type == NPY_FLOAT ? 4 : 1;
    return 1;
}

/* Drop dims of length 1 and merge neighbours that are one longer dim. */
static inline void coalesce(Operand *o)
{
    int n = 0;
    for (int i = 0; i < o->nd; i++) {
        if (o->dims[i] == 1) continue;
        if (n && o->strides[n - 1] == o->strides[i] * o->dims[i]) {
            o->dims[n - 1] *= o->dims[i];
            o->strides[n - 1] = o->strides[i];
        } else {
            o->dims[n] = o->dims[i];
            o->strides[n++] = o->strides[i];
        }
    }
    o->nd = n;
    o->constant = n == 0 || (n == 1 && o->strides[0] == 0);
    o->direct = n == 1 && o->strides[0] == o->size && (uintptr_t)o->data % o->size == 0;
}

/* Copy `n` elements that lie `stride` bytes apart. */
static inline void copy_run(char *to, const char *from, intptr_t stride, intptr_t n, int size)
{
    if (stride == size) {
        memcpy(to, from, (size_t)(n * size));
    } else if (size == 8) {
        for (intptr_t i = 0; i < n; i++) memcpy(to + 8 * i, from + i * stride, 8);
    } else if (size == 4) {
        for (intptr_t i = 0; i < n; i++) memcpy(to + 4 * i, from + i * stride, 4);
    } else {
        for (intptr_t i = 0; i < n; i++) to[i] = from[i * stride];
    }
}

/* Return the address of element `start` of the line, and how many follow at `stride`. */
static inline const char *locate(const Operand *o, intptr_t start, intptr_t *run)
{
    const char *p = o->data;
    intptr_t rest = start;
    for (int d = o->nd - 1; d >= 0; d--) {
        intptr_t i = rest % o->dims[d];
        rest /= o->dims[d];
        p += i * o->strides[d];
        if (d == o->nd - 1) *run = o->dims[d] - i;
    }
    return p;
}

/* Copy elements start .. start + n of the line into `to`. */
static inline void load(const Operand *o, intptr_t start, intptr_t n, char *to)
{
    if (o->constant) {
        for (intptr_t i = 0; i < n; i++) memcpy(to + i * o->size, o->data, (size_t)o->size);
        return;
    }
    const int last = o->nd - 1;
    intptr_t index[MAX_DIMS], rest = start;
    const char *p = o->data;
    for (int d = last; d >= 0; d--) {
        index[d] = rest % o->dims[d];
        rest /= o->dims[d];
        p += index[d] * o->strides[d];
    }
    while (n > 0) {
        intptr_t run = o->dims[last] - index[last];
        if (run > n) run = n;
        copy_run(to, p, o->strides[last], run, o->size);
        to += run * o->size;
        n -= run;
        p += run * o->strides[last];
        index[last] += run;
        for (int d = last; d > 0 && index[d] == o->dims[d]; d--) {
            p += o->strides[d - 1] - o->dims[d] * o->strides[d];
            index[d] = 0;
            index[d - 1]++;
        }
    }
}

#endif
