/* Matrix products on one thread with vector instructions (gemm_block.c). */
#ifndef ADARRAY_GEMM_BLOCK_H
#define ADARRAY_GEMM_BLOCK_H

#include <stdint.h>

/* c = a @ b, strides in elements; rows of c are contiguous. */
typedef struct {
    intptr_t m, n, k;
    const void *a, *b;
    void *c;
    intptr_t rs_a, cs_a, rs_b, cs_b, ldc;
} Block;

/* Compute a product of elements of `size` bytes (4 or 8); 0 where this processor, or memory
 * that is short, leaves that to BLAS. */
int adarray_gemm_block(const Block *x, int size);

#endif
