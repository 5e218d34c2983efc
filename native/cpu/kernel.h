/* What a unit of kernels printed at run time begins with (see compiler.py).
 *
 * ADARRAY_PRECISE leaves out the vector versions of the C library's functions.
 */
#ifndef ADARRAY_KERNEL_H
#define ADARRAY_KERNEL_H

#include <math.h>
#include <stdint.h>
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

#endif
