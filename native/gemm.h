/* Matrix products through a BLAS that this process loads for us alone.
 *
 * BLAS computes with one thread; the OpenMP build cuts a product into tiles and gives
 * them to its own team. A second pool of threads beside it would spin against it.
 */
#ifndef ADARRAY_GEMM_H
#define ADARRAY_GEMM_H

#include <stdint.h>

/* What adarray_matmul returns instead of floating-point flags, beside WRONG_ARRAY of
 * arrays.h: BLAS cannot address an operand, the caller is to pass a copy. */
enum { COPY_X = -8, COPY_Y = -9, COPY_BOTH = -10 };

/* Compute result = x @ y as np.matmul defines it, for float32 or float64 arrays given by
 * address (a PyArrayObject's). The result is C-contiguous, of the right shape and empty.
 * Returns the floating-point flags (see read_flags) or a negative code from above. */
int adarray_matmul(uintptr_t x, uintptr_t y, uintptr_t result, int threads);

/* Whether some other code of this process has loaded the library at `path`. */
int adarray_blas_loaded(const char *path);

/* Load BLAS from `path` and set it to one thread; NULL, or what went wrong. Not to be
 * called by two threads at once. */
const char *adarray_blas_open(const char *path);

/* What the loaded BLAS says about itself; NULL before adarray_blas_open. */
const char *adarray_blas_config(void);

#endif
