/* What a unit of kernels printed at run time begins with (see compiler.py).
 *
 * ADARRAY_PRECISE leaves out the vector versions of the C library's functions.
 */
#ifndef ADARRAY_KERNEL_H
#define ADARRAY_KERNEL_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifndef ADARRAY_PRECISE
#include "libmvec.h"
#endif
#include "adarray_math.h"
#define ADARRAY_LEVEL(name) name
#include "adarray_vector.h"
#include "adarray_loops.h"

typedef void (*adarray_part)(void *context, int thread, int threads);

static void adarray_one_by_one(int threads, adarray_part part, void *context)
{
    for (int t = 0; t < threads; t++) part(context, t, threads);
}

/* Runs all parts; on the thread pool of the program that loaded this, once it is bound. */
static void (*adarray_team)(int, adarray_part, void *) = adarray_one_by_one;

void adarray_bind(void (*run)(int, adarray_part, void *)) { adarray_team = run; }

/* Memory that kernels take while they run, and give back with its size. A tape of `before` bytes,
 * or NULL, becomes one of at least `*size`, and of as many as `*size` says then. */
typedef struct {
    void *(*take)(size_t size);
    void (*give)(void *block, size_t size);
    void *(*longer_tape)(void *tape, size_t before, size_t *size);
    void (*give_tape)(void *tape, size_t size);
} adarray_memory;

static void adarray_free(void *block, size_t size)
{
    (void)size;
    free(block);
}

static void *adarray_longer(void *tape, size_t before, size_t *size)
{
    (void)before;
    return realloc(tape, *size);
}

/* The C library's, or a pool of the program that loaded this, once it is bound. */
static adarray_memory adarray_pool = {malloc, adarray_free, adarray_longer, adarray_free};

void adarray_bind_memory(const adarray_memory *pool) { adarray_pool = *pool; }

#endif
