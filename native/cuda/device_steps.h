/* Steps of a plan as device_launch.c runs them; device_steps.c reads and launches them. */
#ifndef ADARRAY_DEVICE_STEPS_H
#define ADARRAY_DEVICE_STEPS_H

#include "device_launch.h"
#include <stdatomic.h>
#include <stddef.h>

enum {
    STEP_KERNEL = 1, STEP_PRODUCT = 2, STEP_PRODUCT_LT = 3, STEP_LINALG = 4, STEP_FOURIER = 5
};
/* What a step of linear algebra calls; solvers.py has the same numbers. */
enum { LINALG_LU, LINALG_SOLVE, LINALG_CHOLESKY, LINALG_TRIANGLE, LINALG_COUNT };
enum {
    ADARRAY_KEYS = 16,        /* combinations of addresses that are remembered */
    ADARRAY_SEEN = 8,         /* addresses of a slot that are remembered */
    ADARRAY_MOST_GRAPHS = 16,
};

typedef struct {
    void *function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
} NodeParams; /* CUDA_KERNEL_NODE_PARAMS_v1 */

/* In the order in which launcher.py names them. */
typedef struct {
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *, void **, void **);
    int (*copy)(uint64_t, uint64_t, size_t, void *);
    int (*synchronize)(void *);
    int (*begin)(void *, int);
    int (*end)(void *, void **);
    int (*capture_info)(void *, int *, uint64_t *, void **, void ***, size_t *);
    int (*instantiate)(void **, void *, unsigned long long);
    int (*graph_launch)(void *, void *);
    int (*set_node)(void *, void *, const NodeParams *);
    int (*exec_update)(void *, void *, void *);
    int (*exec_destroy)(void *);
    int (*graph_destroy)(void *);
    int (*query)(void *);
    int (*product)(void *, int, int, int, int, int, const void *, const void *, int, int,
                   long long, const void *, int, int, long long, const void *, void *, int, int,
                   long long, int, int, int);
    int (*product_lt)(void *, void *, const void *, const void *, void *, const void *, void *,
                      const void *, const void *, void *, void *, void *, const void *, void *,
                      size_t, void *);
} DeviceFunctions;

typedef struct { int64_t slot, value; } Argument; /* a place in a slot, or (-1, a number) */

typedef struct {
    int64_t kind;
    /* Kernels. */
    void *function;
    unsigned grid[3], block[3], shared;
    int64_t n;
    const Argument *arguments;
    /* Products and transforms: what the library must know beside addresses; of linear algebra,
     * which function. */
    const int64_t *numbers;
} Step;

typedef struct {
    void *graph, *exec, **nodes; /* of each step, NULL for products */
    uint64_t *addresses, used;   /* what the nodes have; when it ran last */
} Graph;

typedef struct {
    int64_t low, bytes;      /* what products read of it; 0 bytes: it cannot be copied */
    uint64_t stage;          /* where the copy is, or 0 */
    int product, misses, next; /* whether products use it; new addresses */
    uint64_t seen[ADARRAY_SEEN];
    int64_t first, last;     /* the kernels that use it, in `users` */
} SlotState;

typedef struct { /* combinations of addresses that were met last */
    uint64_t seen[ADARRAY_KEYS];
    int next;
} Keys;

struct DeviceRunner {
    DeviceFunctions driver;
    int64_t *words;
    int64_t n_slots, n_steps, n_graphs, most_graphs, failed;
    Step *steps;
    SlotState *slots;
    int64_t *users;
    unsigned char *dirty;    /* kernels whose node must change */
    uint64_t *cells, *addresses;
    void **parameters, *blas;
    void *recorder, *recorder_blas; /* a stream to record on, and a handle for it */
    atomic_int *recording;   /* whether somebody records on it */
    int *refused, *checked;  /* a code; whether checks are through, if steps say that */
    int asks;                /* for a recorder */
    int64_t restless;        /* a slot that should be copied, or -1 */
    Graph graphs[ADARRAY_MOST_GRAPHS];
    Keys keys[2];            /* of all slots, and of those of products */
    uint64_t tick;
    int credit, earned;
    int64_t counts[ADARRAY_DEVICE_COUNTS];
};

/* Launch a step; `blas` is a handle for the stream. Returns an error of the driver, or one of
 * cuBLAS as device_launch.h has them. */
int adarray_device_launch(DeviceRunner *r, const Step *s, void *stream, void *blas);

/* Write a kernel's arguments for this run to r->cells. */
void adarray_device_fill(DeviceRunner *r, const Step *s);

/* Read the steps from r->words, of which there are `count`, and note which slots they use. Returns 0 if
 * they are no steps or memory is short. */
int adarray_device_read(DeviceRunner *r, int64_t count);

#endif
