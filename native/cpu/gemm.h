/* Matrix products through a BLAS that this process loads for us alone.
 *
 * BLAS computes with one thread; the OpenMP build cuts a product into tiles and gives
 * them to its own thread pool. A second one beside it would spin against it.
 */
#ifndef ADARRAY_GEMM_H
#define ADARRAY_GEMM_H

#include "thread_pool.h"
#include <stdint.h>

#define PRODUCT_DIMS 32

typedef struct {
    const char *data;
    intptr_t rows, cols, row, col;    /* strides in bytes */
    intptr_t batch[PRODUCT_DIMS];     /* strides of the leading axes */
    int transposed;                   /* element (i, j) lies at i + j * ld, else i * ld + j */
    intptr_t ld;
} Matrix;

typedef struct {
    Matrix a, b;
    char *c;
    intptr_t m, n, k;
    int nd;                           /* leading axes that are left after merging */
    intptr_t dims[PRODUCT_DIMS], count; /* their lengths and product */
    int size;                         /* bytes of an element */
    int parts_m, parts_n;             /* tiles of one product */
    int sum, threads;                 /* whether it is one inner product; size of the thread pool */
} Product;

/* What adarray_matmul returns instead of floating-point flags, beside WRONG_ARRAY of
 * flags.h: BLAS cannot address an operand, the caller is to pass a copy. */
enum { COPY_X = -8, COPY_Y = -9, COPY_BOTH = -10 };

/* Compute result = x @ y as np.matmul defines it, for float32 or float64 arrays by
 * address (a PyArrayObject's). The result is C-contiguous, of the right shape and empty.
 * Returns the floating-point flags (see read_flags) or a negative code from above. */
int adarray_matmul(uintptr_t x, uintptr_t y, uintptr_t result, int threads);

/* Prepare a product whose a, b, m, n, k, nd, dims and size are set, for at most so many
 * threads; 0, or a negative code from above. The data only matter for their alignment. */
int adarray_product_prepare(Product *p, int threads);

/* Compute a prepared product; return what `run` returns. */
int adarray_product_run(Product *p, threads_runner run);

/* Whether some other code of this process has loaded the library at `path`. */
int adarray_blas_loaded(const char *path);

/* Load BLAS from `path` and set it to one thread; NULL, or what went wrong. Not to be
 * called by two threads at once. */
const char *adarray_blas_open(const char *path);

/* What the loaded BLAS says about itself; NULL before adarray_blas_open. */
const char *adarray_blas_config(void);

#endif
