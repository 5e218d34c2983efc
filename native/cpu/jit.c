/* Compiled plans: reading them, and running their steps. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "jit.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ALIGNMENT 64
#define POOLED ((size_t)1 << 16) /* smaller memory stays with the plan */

/* -- threads ---------------------------------------------------------------------------- */

/* Floating-point flags that threads of the pool raised during this thread's run of a plan. */
static __thread int pool_flags;

/* A threads_runner that leaves the flags of this thread set: they are read once, after the run. */
static int plan_threads(int threads, threads_part part, void *context)
{
    if (threads > 1) {
        pool_flags |= read_flags();
        pool_flags |= threads_run(threads, part, context);
    } else {
        part(context, 0, 1);
    }
    return 0;
}

#ifdef _OPENMP
static void kernel_threads(int threads, threads_part part, void *context)
{
    plan_threads(threads, part, context);
}
#endif

/* -- units of kernels --------------------------------------------------------------------- */

typedef struct { /* kernel.h has it as adarray_memory */
    void *(*take)(size_t);
    void (*give)(void *, size_t);
    void *(*longer_tape)(void *, size_t, size_t *);
    void (*give_tape)(void *, size_t);
} PoolFunctions;

uintptr_t adarray_jit_load(const char *path)
{
    /* Never unloaded: somebody may be running a kernel when the process ends. */
    void *unit = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    static const PoolFunctions pool = {pool_take, pool_give, pool_longer_tape,
                                       pool_give_tape};
    void (*bind_memory)(const PoolFunctions *);
    void *symbol = unit ? dlsym(unit, "adarray_bind_memory") : NULL;
    if (symbol) {
        memcpy(&bind_memory, &symbol, sizeof symbol);
        bind_memory(&pool);
    }
#ifdef _OPENMP
    void (*bind)(void (*)(int, threads_part, void *));
    symbol = unit ? dlsym(unit, "adarray_bind") : NULL;
    if (symbol) {
        memcpy(&bind, &symbol, sizeof symbol);
        bind(kernel_threads);
    }
#endif
    return (uintptr_t)unit;
}

const char *adarray_jit_error(void)
{
    const char *text = dlerror();
    return text ? text : "unknown error";
}

uintptr_t adarray_jit_symbol(uintptr_t unit, const char *name)
{
    return (uintptr_t)dlsym((void *)unit, name);
}

int64_t adarray_jit_workspace(uintptr_t function, const int64_t *ints)
{
    int64_t (*workspace)(const int64_t *);
    memcpy(&workspace, &function, sizeof function);
    return workspace(ints);
}

/* -- reading ------------------------------------------------------------------------------ */

typedef struct {
    const int64_t *at, *end;
    int bad;
} Reader;

static int64_t word(Reader *r)
{
    if (r->at < r->end) return *r->at++;
    r->bad = 1;
    return 0;
}

static const int64_t *words(Reader *r, int64_t n)
{
    const int64_t *at = r->at;
    if (n < 0 || n > r->end - r->at) {
        r->bad = 1;
        return at;
    }
    r->at += n;
    return at;
}

/* A number of things that take at least one word each. */
static int64_t count(Reader *r)
{
    const int64_t n = word(r);
    if (n >= 0 && n <= r->end - r->at) return n;
    r->bad = 1;
    return 0;
}

static int64_t slot(Reader *r, const Plan *p)
{
    const int64_t i = word(r);
    if (i >= 0 && i < p->n_slots) return i;
    r->bad = 1;
    return 0;
}

static void read_view(Reader *r, const Plan *p, View *v)
{
    v->slot = slot(r, p);
    v->offset = word(r);
    v->descr = word(r);
    v->nd = count(r);
    if (v->nd > PRODUCT_DIMS) r->bad = 1;
    v->dims = words(r, v->nd);
    v->strides = words(r, v->nd);
}

static void read_kernel(Reader *r, Plan *p, Step *s)
{
    const int64_t function = word(r);
    memcpy(&s->kernel.function, &function, sizeof function);
    s->kernel.threads = word(r);
    s->kernel.buffers = count(r);
    s->kernel.slots = words(r, s->kernel.buffers);
    for (int64_t i = 0; !r->bad && i < s->kernel.buffers; i++)
        if (s->kernel.slots[i] < 0 || s->kernel.slots[i] >= p->n_slots) r->bad = 1;
    const int64_t ints = count(r);
    s->kernel.ints = words(r, ints);
    if (s->kernel.buffers > p->widest) p->widest = s->kernel.buffers;
    if (!function) r->bad = 1;
}

static void read_matrix(Reader *r, Matrix *m, int nd)
{
    m->data = NULL; /* the plan guarantees that elements are aligned */
    m->rows = word(r), m->cols = word(r), m->row = word(r), m->col = word(r);
    const int64_t *batch = words(r, nd);
    for (int i = 0; !r->bad && i < nd; i++) m->batch[i] = batch[i];
}

/* Read a product and prepare it; 0, or why it cannot be computed so. */
static int read_product(Reader *r, Product *m)
{
    m->size = (int)word(r);
    const int threads = (int)word(r);
    const int64_t nd = count(r);
    if (nd > PRODUCT_DIMS) return WRONG_ARRAY;
    const int64_t *dims = words(r, nd);
    for (int64_t i = 0; !r->bad && i < nd; i++) m->dims[i] = dims[i];
    m->nd = (int)nd;
    read_matrix(r, &m->a, m->nd);
    read_matrix(r, &m->b, m->nd);
    m->m = m->a.rows, m->k = m->a.cols, m->n = m->b.cols;
    if (r->bad || m->b.rows != m->k || m->m < 1 || m->k < 1 || m->n < 1) return WRONG_ARRAY;
    return adarray_product_prepare(m, threads);
}

int adarray_jit_product(const int64_t *list, int64_t n)
{
    Product product = {0};
    Reader r = {list, list + n, 0};
    return read_product(&r, &product);
}

static void read_product_step(Reader *r, const Plan *p, Step *s)
{
    for (int i = 0; i < 3; i++) {
        s->product.slots[i] = slot(r, p);
        s->product.offsets[i] = word(r);
    }
    s->product.product = calloc(1, sizeof *s->product.product);
    if (!s->product.product || read_product(r, s->product.product) != 0) r->bad = 1;
}

static void read_call(Reader *r, const Plan *p, Step *s)
{
    s->call.function = word(r);
    s->call.operands = count(r);
    s->call.results = count(r);
    const int64_t n = s->call.operands + s->call.results;
    s->call.views = calloc((size_t)n + 1, sizeof *s->call.views);
    if (!s->call.views) r->bad = 1;
    for (int64_t i = 0; !r->bad && i < n; i++) read_view(r, p, &s->call.views[i]);
}

static void read_step(Reader *r, Plan *p, Step *s)
{
    s->kind = word(r);
    s->origin = word(r);
    if (s->origin < 0 || s->origin >= p->n_origins) r->bad = 1;
    switch (s->kind) {
    case STEP_KERNEL: read_kernel(r, p, s); break;
    case STEP_PRODUCT: read_product_step(r, p, s); break;
    case STEP_CALL: read_call(r, p, s); break;
    case STEP_COPY:
        s->copy.to = slot(r, p);
        s->copy.size = word(r);
        read_view(r, p, &s->copy.from);
        break;
    default: r->bad = 1;
    }
}

static void *table(Reader *r, int64_t n, size_t size)
{
    void *rows = calloc((size_t)n + 1, size);
    if (!rows) r->bad = 1;
    return rows;
}

static void read_tables(Reader *r, Plan *p)
{
    p->n_slots = count(r);
    p->slots = table(r, p->n_slots, sizeof *p->slots);
    p->consts = table(r, p->n_slots, sizeof *p->consts);
    for (int64_t i = 0; !r->bad && i < p->n_slots; i++) {
        Slot *s = &p->slots[i];
        s->kind = word(r), s->index = word(r), s->offset = word(r);
    }
    p->n_inputs = count(r);
    p->inputs = table(r, p->n_inputs, sizeof *p->inputs);
    for (int64_t i = 0; !r->bad && i < p->n_inputs; i++) {
        Input *in = &p->inputs[i];
        in->kind = word(r), in->itemsize = word(r), in->size = word(r);
        in->descr = word(r), in->place = word(r);
        if (in->place >= 0 && in->place + in->itemsize > p->arena) r->bad = 1;
    }
    p->n_results = count(r);
    p->results = table(r, p->n_results, sizeof *p->results);
    for (int64_t i = 0; !r->bad && i < p->n_results; i++) {
        Result *result = &p->results[i];
        result->kind = word(r);
        result->ordered = word(r);
        result->donor = word(r);
        if (result->donor >= p->n_inputs) r->bad = 1;
        read_view(r, p, &result->view);
    }
    p->n_steps = count(r);
    p->steps = table(r, p->n_steps, sizeof *p->steps);
    for (int64_t i = 0; !r->bad && i < p->n_steps; i++) read_step(r, p, &p->steps[i]);
}

static void check_slots(Reader *r, const Plan *p)
{
    for (int64_t i = 0; !r->bad && i < p->n_slots; i++) {
        const Slot *s = &p->slots[i];
        const int64_t most = s->kind == SLOT_INPUT ? p->n_inputs
            : s->kind == SLOT_RESULT ? p->n_results : INT64_MAX;
        if (s->index < 0 || s->index >= most
            || (s->kind == SLOT_ARENA && (s->offset < 0 || s->offset > p->arena)))
            r->bad = 1;
    }
}

Plan *plan_read(const int64_t *list, int64_t n)
{
    Plan *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->words = malloc((size_t)n * sizeof *list + 8);
    if (!p->words) {
        free(p);
        return NULL;
    }
    memcpy(p->words, list, (size_t)n * sizeof *list);
    Reader r = {p->words, p->words + n, 0};
    p->n_words = n;
    p->arena = word(&r);
    p->workspace = word(&r);
    p->threads = word(&r);
    p->release = word(&r);
    p->n_origins = word(&r);
    if (p->arena < 0 || p->workspace < 0 || p->threads < 1) r.bad = 1;
    if (!r.bad) read_tables(&r, p);
    check_slots(&r, p);
    if (r.bad || r.at != r.end) {
        plan_free(p);
        return NULL;
    }
    return p;
}

void plan_free(Plan *p)
{
    for (int64_t i = 0; p->steps && i < p->n_steps; i++) {
        if (p->steps[i].kind == STEP_PRODUCT) free(p->steps[i].product.product);
        if (p->steps[i].kind == STEP_CALL) free(p->steps[i].call.views);
    }
    free(p->steps);
    free(p->results);
    free(p->inputs);
    free(p->consts);
    free(p->slots);
    free(p->words);
    free(p);
}

/* -- memory ------------------------------------------------------------------------------- */

static size_t memory_size(const Plan *p)
{
    return (size_t)(p->arena + p->workspace * p->threads) + 2 * ALIGNMENT;
}

Instance *instance_new(const Plan *p)
{
    const size_t pointers = (size_t)(p->n_slots + p->widest);
    Instance *instance = calloc(1, sizeof *instance + pointers * sizeof(char *));
    if (!instance) return NULL;
    instance->base = (char **)(instance + 1);
    instance->p = instance->base + p->n_slots;
    return instance;
}

int instance_fill(const Plan *p, Instance *x)
{
    if (x->raw) return 1;
    const size_t size = memory_size(p);
    x->raw = size < POOLED ? malloc(size) : pool_take(size);
    if (!x->raw) return 0;
    x->memory = (char *)(((uintptr_t)x->raw + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1));
    x->workspace = x->memory + ((p->arena + ALIGNMENT - 1) & ~(int64_t)(ALIGNMENT - 1));
    for (int64_t i = 0; i < p->n_slots; i++) {
        const Slot *s = &p->slots[i];
        if (s->kind == SLOT_ARENA) x->base[i] = x->memory + s->offset;
        else if (s->kind == SLOT_CONST) x->base[i] = p->consts[i];
    }
    return 1;
}

void instance_drain(const Plan *p, Instance *x)
{
    const size_t size = memory_size(p);
    if (size < POOLED || !x->raw) return;
    pool_give(x->raw, size);
    x->raw = NULL;
}

void instance_free(const Plan *p, Instance *x)
{
    instance_drain(p, x);
    free(x->raw);
    free(x);
}

/* -- running ------------------------------------------------------------------------------ */

static inline void copy_line(char *to, const char *from, int64_t stride, int64_t n, int64_t size)
{
    if (stride == size) memcpy(to, from, (size_t)(n * size));
    else if (size == 8) for (int64_t i = 0; i < n; i++) memcpy(to + 8 * i, from + i * stride, 8);
    else if (size == 4) for (int64_t i = 0; i < n; i++) memcpy(to + 4 * i, from + i * stride, 4);
    else for (int64_t i = 0; i < n; i++) memcpy(to + size * i, from + i * stride, (size_t)size);
}

/* Copy a strided view into C order. */
static void copy(const View *v, const char *from, char *to, int64_t size)
{
    int64_t index[PRODUCT_DIMS] = {0};
    const int64_t last = v->nd - 1, n = v->nd ? v->dims[last] : 1;
    for (int64_t d = 0; d < v->nd; d++)
        if (v->dims[d] == 0) return;
    for (;;) {
        copy_line(to, from, v->nd ? v->strides[last] : size, n, size);
        to += n * size;
        int64_t d = last - 1;
        for (; d >= 0; d--) {
            from += v->strides[d];
            if (++index[d] < v->dims[d]) break;
            from -= v->strides[d] * v->dims[d];
            index[d] = 0;
        }
        if (d < 0) return;
    }
}

static int64_t run_kernel(const Plan *plan, Instance *x, const Step *s)
{
    for (int64_t i = 0; i < s->kernel.buffers; i++) x->p[i] = x->base[s->kernel.slots[i]];
    return s->kernel.function(x->p, s->kernel.ints, x->workspace, plan->workspace,
                              (int)s->kernel.threads);
}

static void run_product(const Instance *x, const Step *s)
{
    Product p = *s->product.product;
    p.a.data = x->base[s->product.slots[0]] + s->product.offsets[0];
    p.b.data = x->base[s->product.slots[1]] + s->product.offsets[1];
    p.c = x->base[s->product.slots[2]] + s->product.offsets[2];
    adarray_product_run(&p, plan_threads);
}

int64_t plan_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t plan_run(const Plan *plan, Instance *x, int64_t *first, int *flags, int64_t *stamps)
{
    int64_t code = 0, i = *first;
    pool_flags = 0;
    clear_flags();
    for (; i < plan->n_steps && code == 0; i++) {
        const Step *s = &plan->steps[i];
        if (stamps && stamps[s->origin] == 0) stamps[s->origin] = plan_clock();
        if (s->kind == STEP_KERNEL) code = run_kernel(plan, x, s);
        else if (s->kind == STEP_PRODUCT) run_product(x, s);
        else if (s->kind == STEP_COPY)
            copy(&s->copy.from, x->base[s->copy.from.slot] + s->copy.from.offset,
                 x->base[s->copy.to], s->copy.size);
        else break;
    }
    *first = i;
    *flags |= pool_flags | read_flags();
    return code;
}
