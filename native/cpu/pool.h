/* Memory of NumPy arrays, stored for the next array instead of returned to the system. */
#ifndef ADARRAY_POOL_H
#define ADARRAY_POOL_H

#include <stddef.h>
#include <stdint.h>

/* Make the pool NumPy's allocator in this context (a context variable of NumPy's). `api` is
 * the address of the capsule numpy._core._multiarray_umath._ARRAY_API. Returns what to give
 * back to `adarray_pool_leave`, 0 if the pool cannot be used. */
uintptr_t adarray_pool_enter(uintptr_t api);

/* Restore the allocator; the last one to leave frees what is cached. */
void adarray_pool_leave(uintptr_t api, uintptr_t before);

/* Cache at most so many bytes; 0 switches the cache off. */
void adarray_pool_limit(size_t bytes);

/* Free what is cached. */
void adarray_pool_trim(void);

/* Return the number of bytes that are cached now. */
size_t adarray_pool_cached(void);

#endif
