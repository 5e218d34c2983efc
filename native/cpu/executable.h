/* Plans as Python callables (executable.c). */
#ifndef ADARRAY_EXECUTABLE_H
#define ADARRAY_EXECUTABLE_H

#include <stdint.h>

/* Put a function into the dict at address `dict`: make(words, consts, descrs, functions,
 * report) -> (run, timed), see executor.py. `api` is the address of the capsule
 * numpy._core._multiarray_umath._ARRAY_API. Returns 0, or -1. */
int adarray_executable_install(uintptr_t api, uintptr_t dict);

#endif
