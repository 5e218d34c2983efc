/* A cache of array memory, by way of NumPy's allocator protocol (NEP 49).
 *
 * Filling a fresh array of many pages costs more than most arithmetic on it: the system
 * clears each page when it is first touched, and the C library gives large blocks back as
 * soon as they are freed. Here blocks of 64 KiB and more are rounded up to a size class (8
 * to a doubling, so at most an eighth is lost) and stored in one list a class, linked through
 * their own first bytes. They are ordinary blocks of malloc, so that realloc and free work on
 * them, and any of them may return at any time.
 *
 * NumPy keeps its allocator in a context variable, and every array remembers its own: the
 * pool serves the arrays that are made inside of `adarray.use`, wherever they die.
 * Kernels printed at run time get their work memory and their tapes from it (kernel.h).
 */
#include "jit.h"
#include "pool.h"
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NO_IMPORT_ARRAY
#include <numpy/ndarraytypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GLIBC__) && defined(__linux__)
#include <malloc.h>
#include <sys/mman.h>
#define POOL_AVAILABLE 1
#else
#define POOL_AVAILABLE 0
#endif

#if POOL_AVAILABLE

#define POOL_MIN ((size_t)1 << 16)
#define POOL_LOG_MIN 16
#define POOL_CLASSES ((40 - POOL_LOG_MIN) * 8)
#define HUGE_PAGE ((size_t)1 << 21)
/* Positions in NumPy's table of functions, part of its stable binary interface. */
#define SET_HANDLER 304

#define TAPES 256 /* stored at most */

static void *heads[POOL_CLASSES];
static struct { void *block; size_t size; } tapes[TAPES];
static int tape_count;
static size_t cached;
static atomic_size_t limit;
static atomic_int users;
/* Only ever tried, never waited for: a forked child may inherit it locked for good, and
 * goes on without the cache then. */
static atomic_flag busy = ATOMIC_FLAG_INIT;
static PyObject *capsule;

/* Return the class of a size, and round the size up to that of the class; -1: no class. */
static int size_class(size_t *size)
{
    const int log = 63 - __builtin_clzll((unsigned long long)*size);
    const size_t step = (size_t)1 << (log - 3);
    const size_t steps = (*size + step - 1) / step; /* 8 to 16 */
    const int k = (log - POOL_LOG_MIN) * 8 + (int)steps - 8;
    *size = steps * step;
    return k < POOL_CLASSES ? k : -1;
}

static void flush(void)
{
    for (int k = 0; k < POOL_CLASSES; k++)
        while (heads[k] != NULL) {
            void *block = heads[k];
            heads[k] = *(void **)block;
            free(block);
        }
    while (tape_count > 0) free(tapes[--tape_count].block);
    cached = 0;
}

/* Return a cached block of the class of `size`, which is rounded up, or NULL. */
static void *take(size_t *size)
{
    const int k = size_class(size);
    void *block = NULL;
    if (k >= 0 && !atomic_flag_test_and_set(&busy)) {
        block = heads[k];
        if (block != NULL) {
            heads[k] = *(void **)block;
            cached -= *size;
        }
        atomic_flag_clear(&busy);
    }
    return block;
}

/* Ask for huge pages where NumPy would: they cost a fraction of the faults. */
static void *advised(void *block, size_t size)
{
#ifdef MADV_HUGEPAGE
    if (block != NULL && size >= 2 * HUGE_PAGE) {
        const uintptr_t begin = ((uintptr_t)block + 4095) & ~(uintptr_t)4095;
        madvise((void *)begin, size - (begin - (uintptr_t)block), MADV_HUGEPAGE);
    }
#endif
    return block;
}

static void *pool_malloc(void *ctx, size_t size)
{
    (void)ctx;
    if (size < POOL_MIN) return malloc(size);
    void *block = take(&size);
    return block != NULL ? block : advised(malloc(size), size);
}

static void *pool_calloc(void *ctx, size_t count, size_t each)
{
    (void)ctx;
    size_t size;
    if (__builtin_mul_overflow(count, each, &size)) return NULL;
    if (size < POOL_MIN) return calloc(count, each);
    const size_t wanted = size;
    void *block = take(&size);
    if (block != NULL) return memset(block, 0, wanted);
    return advised(calloc(1, size), size);
}

static void *pool_realloc(void *ctx, void *block, size_t size)
{
    (void)ctx;
    if (size >= POOL_MIN) size_class(&size);
    return realloc(block, size);
}

static void pool_free(void *ctx, void *block, size_t size)
{
    (void)ctx;
    if (block != NULL && size >= POOL_MIN && atomic_load(&users) > 0) {
        const int k = size_class(&size);
        const size_t most = atomic_load(&limit);
        /* The size is NumPy's word; what was allocated is the C library's. */
        if (k >= 0 && size <= most / 2 && malloc_usable_size(block) >= size
            && !atomic_flag_test_and_set(&busy)) {
            if (cached + size > most) flush();
            *(void **)block = heads[k];
            heads[k] = block;
            cached += size;
            atomic_flag_clear(&busy);
            return;
        }
    }
    free(block);
}

/* -- tapes ---------------------------------------------------------------------------------
 *
 * A tape takes any block that is long enough, or the longest one, which it makes longer. So tapes
 * of kernels that run one after the other share their memory, whatever their lengths. */

static int try_often(void)
{
    for (int i = 0; i < 1000; i++)
        if (!atomic_flag_test_and_set(&busy)) return 1;
    return 0;
}

/* Return a stored tape, and set `size` to its length; NULL: there is none. */
static void *stored_tape(size_t least, size_t *size)
{
    void *block = NULL;
    if (!try_often()) return NULL;
    int best = -1;
    for (int i = 0; i < tape_count; i++) {
        const size_t new = tapes[i].size, old = best < 0 ? 0 : tapes[best].size;
        if (old < least ? new > old : new >= least && new < old) best = i;
    }
    if (best >= 0) {
        block = tapes[best].block;
        *size = tapes[best].size;
        cached -= *size;
        tapes[best] = tapes[--tape_count];
    }
    atomic_flag_clear(&busy);
    return block;
}

void *pool_longer_tape(void *tape, size_t before, size_t *size)
{
    if (*size < POOL_MIN) return realloc(tape, *size);
    if (before >= POOL_MIN) return realloc(tape, *size);
    size_t stored = 0;
    void *block = stored_tape(*size, &stored);
    if (block != NULL && stored >= *size) {
        *size = stored;
    } else {
        void *longer = realloc(block, *size);
        if (longer == NULL) free(block);
        block = longer;
    }
    if (block == NULL || tape == NULL) return block;
    memcpy(block, tape, before);
    free(tape);
    return block;
}

void pool_give_tape(void *tape, size_t size)
{
    const size_t most = atomic_load(&limit);
    if (size >= POOL_MIN && size <= most / 2 && atomic_load(&users) > 0 && try_often()) {
        if (cached + size > most) flush();
        const int room = tape_count < TAPES;
        if (room) {
            tapes[tape_count].block = tape;
            tapes[tape_count++].size = size;
            cached += size;
        }
        atomic_flag_clear(&busy);
        if (room) return;
    }
    free(tape);
}

static PyDataMem_Handler handler = {
    "adarray_pool", 1, {NULL, pool_malloc, pool_calloc, pool_realloc, pool_free}};

static PyObject *set_handler(uintptr_t api, PyObject *wanted)
{
    void **table = (void **)PyCapsule_GetPointer((PyObject *)api, NULL);
    if (table == NULL) return NULL;
    return ((PyObject * (*)(PyObject *)) table[SET_HANDLER])(wanted);
}

void pool_hold(void) { atomic_fetch_add(&users, 1); }

void pool_drop(void)
{
    if (atomic_fetch_sub(&users, 1) == 1 && !atomic_flag_test_and_set(&busy)) {
        flush();
        atomic_flag_clear(&busy);
    }
}

void *pool_take(size_t size) { return pool_malloc(NULL, size); }
void pool_give(void *block, size_t size) { pool_free(NULL, block, size); }

void *pool_use(uintptr_t api)
{
    PyObject *before = NULL;
    if (capsule == NULL) capsule = PyCapsule_New(&handler, "mem_handler", NULL);
    if (capsule != NULL) before = set_handler(api, capsule);
    if (before == NULL) PyErr_Clear();
    return before;
}

void pool_restore(uintptr_t api, void *before)
{
    if (before == NULL) return;
    PyObject *type, *value, *traceback; /* of an error on the way out */
    PyErr_Fetch(&type, &value, &traceback);
    Py_XDECREF(set_handler(api, before));
    Py_DECREF((PyObject *)before);
    PyErr_Restore(type, value, traceback);
}

uintptr_t adarray_pool_enter(uintptr_t api)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    void *before = pool_use(api);
    if (before != NULL) pool_hold();
    PyGILState_Release(state);
    return (uintptr_t)before;
}

void adarray_pool_leave(uintptr_t api, uintptr_t before)
{
    if (before == 0) return;
    const PyGILState_STATE state = PyGILState_Ensure();
    pool_restore(api, (void *)before);
    PyGILState_Release(state);
    pool_drop();
}

void adarray_pool_limit(size_t bytes)
{
    atomic_store(&limit, bytes);
}

void adarray_pool_trim(void)
{
    if (!atomic_flag_test_and_set(&busy)) {
        flush();
        atomic_flag_clear(&busy);
    }
}

size_t adarray_pool_cached(void)
{
    return cached;
}

#else

void pool_hold(void) {}
void pool_drop(void) {}
void *pool_take(size_t size) { return malloc(size); }
void *pool_longer_tape(void *tape, size_t before, size_t *size)
{
    (void)before;
    return realloc(tape, *size);
}

void pool_give_tape(void *tape, size_t size)
{
    (void)size;
    free(tape);
}

void pool_give(void *block, size_t size)
{
    (void)size;
    free(block);
}

void *pool_use(uintptr_t api)
{
    (void)api;
    return NULL;
}

void pool_restore(uintptr_t api, void *before)
{
    (void)api;
    (void)before;
}

uintptr_t adarray_pool_enter(uintptr_t api)
{
    (void)api;
    return 0;
}

void adarray_pool_leave(uintptr_t api, uintptr_t before)
{
    (void)api;
    (void)before;
}

void adarray_pool_limit(size_t bytes)
{
    (void)bytes;
}

void adarray_pool_trim(void) {}

size_t adarray_pool_cached(void)
{
    return 0;
}
#endif
