/* Seals: whether anybody wrote to some bytes, as Linux notes it by pages (PAGEMAP_SCAN).
 *
 * The types and functions are builtins of Python and not of cffi, which would release the GIL
 * at every call: to get it back takes longer than to ask about some megabytes.
 */
#ifndef ADARRAY_SEALS_H
#define ADARRAY_SEALS_H

#include <stdint.h>

/* Put into the dict at address `dict`:
 *
 * Account(pages, low, high, page): which bytes from `low` up to `high` were written to; `pages`
 *     describes /proc/self/pagemap, `page` is the size of a page. adarray/base/seals.py has the
 *     same in Python and says what its methods do.
 * finder(resting, ndarray): a function that takes an array of that class and takes out of the
 *     dict `resting` the seal of its bytes; None where that cannot be resumed.
 * protection(protected, protect, unprotect): functions that do what these two of
 *     adarray/base/protection.py do; they call them for all but an array that is no view and that
 *     nobody else protects.
 *
 * Returns 0, or -1 where the system has no such account. */
int adarray_seals_install(uintptr_t dict);

#endif
