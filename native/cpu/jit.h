/* Compiled plans: flat lists of steps over memory, run by one call.
 *
 * A plan is read once from a list of integers (see `Encoder` in executor.py). executable.c
 * makes a Python callable of it and knows about arrays; jit.c runs the steps between two
 * calls of Python.
 */
#ifndef ADARRAY_JIT_H
#define ADARRAY_JIT_H

#include "gemm.h"
#include <stddef.h>
#include <stdint.h>

/* Load a unit of kernels for good; 0 if it cannot be loaded, then see adarray_jit_error. */
uintptr_t adarray_jit_load(const char *path);

/* What the loader said last in this thread. */
const char *adarray_jit_error(void);

/* The address of a function in a loaded unit; 0 if there is none. */
uintptr_t adarray_jit_symbol(uintptr_t unit, const char *name);

/* The bytes of workspace that one thread needs, by a kernel's own function. */
int64_t adarray_jit_workspace(uintptr_t function, const int64_t *ints);

/* What stands in the way of a product with the words of its step, without its slots: 0,
 * or a code of gemm.h. */
int adarray_jit_product(const int64_t *words, int64_t count);

/* -- plans --------------------------------------------------------------------------- */

typedef int64_t (*kernel_function)(char *const *p, const int64_t *n, char *workspace,
                                   int64_t workspace_bytes_per_thread, int threads);

/* A stretch of memory: an input's, a constant's, that of a result, or part of the arena. */
enum { SLOT_INPUT, SLOT_CONST, SLOT_RESULT, SLOT_ARENA };
typedef struct { int64_t kind, index, offset; } Slot;

/* A strided view of a slot; offset and strides in bytes. */
typedef struct {
    int64_t slot, offset, descr, nd;
    const int64_t *dims, *strides;
} View;

enum { STEP_KERNEL, STEP_PRODUCT, STEP_COPY, STEP_CALL };
typedef struct {
    int64_t kind, origin; /* position of the step of Python's plan that it is part of */
    union {
        struct {
            kernel_function function;
            int64_t threads, buffers;
            const int64_t *slots, *ints;
        } kernel;
        struct {
            Product *product;
            int64_t slots[3], offsets[3]; /* of a, b and the result */
        } product;
        struct {
            View from;
            int64_t to, size; /* a slot, filled in C order; bytes of an element */
        } copy;
        struct {
            int64_t function, operands, results;
            View *views;      /* of operands, then of results */
        } call;
    };
} Step;

typedef struct {
    int64_t kind, itemsize, size; /* NumPy's letter for the kind of dtype */
    int64_t descr, place;         /* where in the arena a number is written; or -1 */
} Input;

enum { RESULT_ARRAY, RESULT_SCALAR };
typedef struct {
    int64_t kind;
    View view; /* of a scalar; of an array only its form, and nd strides if not in C order */
    int64_t ordered;
    int64_t donor; /* the input that is the array as well, in C order; or -1 */
} Result;

typedef struct {
    int64_t n_words, n_slots, n_inputs, n_results, n_steps, n_origins;
    int64_t arena, workspace, threads; /* bytes; bytes of a thread; threads at most */
    int64_t widest;                  /* buffers of a kernel at most */
    int64_t release, pooled;         /* the GIL while running; memory from the pool */
    int64_t *words;
    Slot *slots;
    Input *inputs;
    Result *results;
    Step *steps;
    char **consts;
} Plan;

/* The memory that one run of a plan uses. */
typedef struct {
    char *raw, *memory, *workspace;
    char **base; /* address of every slot */
    char **p;    /* arguments of a kernel */
} Instance;

/* Read a plan; NULL if there is no memory or the words make no sense. */
Plan *plan_read(const int64_t *words, int64_t count);
void plan_free(Plan *plan);

Instance *instance_new(const Plan *plan);
/* Give the instance its memory, if it has none; 0 if there is none. */
int instance_fill(const Plan *plan, Instance *instance);
/* Give large memory back to the pool. */
void instance_drain(const Plan *plan, Instance *instance);
void instance_free(const Plan *plan, Instance *instance);

/* Run steps from `first` up to the next call of Python, and set `first` to its number.
 * Returns the code of a kernel that failed, or 0; ors floating-point flags into `flags`. */
int64_t plan_run(const Plan *plan, Instance *instance, int64_t *first, int *flags,
                 int64_t *stamps);

/* The time that Python's time.perf_counter_ns would tell. */
int64_t plan_clock(void);

/* -- the pool of memory (pool.c) ----------------------------------------------------- */

void *pool_take(size_t size);
void pool_give(void *block, size_t size);
/* A tape of `before` bytes, or NULL, with room for at least `*size`, which becomes its room; NULL:
 * there is no memory, and the tape is as it was. */
void *pool_longer_tape(void *tape, size_t before, size_t *size);
void pool_give_tape(void *tape, size_t size);
/* Keep what returns while somebody uses the pool. */
void pool_hold(void);
void pool_drop(void);
/* Make the pool NumPy's allocator; returns what to pass to pool_restore, or NULL. */
void *pool_use(uintptr_t api);
void pool_restore(uintptr_t api, void *before);

#endif
