/* The steps of a plan: how they are read, and how each one is launched. */
#include "device_steps.h"
#include <stdlib.h>
#include <string.h>

enum {
    FLOAT64 = 1,     /* cuBLAS's number of the type */
    ROW_POINTER = 8, /* cuBLASLt's number of an attribute */
};

/* -- launching ------------------------------------------------------------------------------ */

static uint64_t place(const DeviceRunner *r, const Argument *a)
{
    return a->slot < 0 ? (uint64_t)a->value : r->addresses[a->slot] + (uint64_t)a->value;
}

/* Where a product reads: from the copy, if there is one. */
static void *place_of_product(const DeviceRunner *r, const Argument *a)
{
    const SlotState *s = a->slot < 0 ? NULL : &r->slots[a->slot];
    const uint64_t at = s && s->stage ? s->stage + (uint64_t)(a->value - s->low) : place(r, a);
    return (void *)(uintptr_t)at;
}

void adarray_device_fill(DeviceRunner *r, const Step *s)
{
    for (int64_t i = 0; i < s->n; i++) r->cells[i] = place(r, &s->arguments[i]);
}

/* A factor of a product: a double, as words hold it, and what cuBLAS reads. */
typedef struct { double wide; float narrow; } Factor;

static Factor factor(int64_t word)
{
    Factor f;
    memcpy(&f.wide, &word, sizeof f.wide);
    f.narrow = (float)f.wide;
    return f;
}

/* Multiply as cuBLAS does; numbers: operations (2), m, n, k, leading dimensions and distances of
 * the first and second operand and the result, count, types of operands and result, compute type,
 * and the factors of the product and of what the result was before. */
static int product(DeviceRunner *r, const Step *s, void *blas)
{
    const int64_t *v = s->numbers;
    const int type = (int)v[12], result = (int)v[13], wide = result == FLOAT64;
    const Factor scale = factor(v[15]), before = factor(v[16]);
    const void *a = place_of_product(r, &s->arguments[0]);
    const void *b = place_of_product(r, &s->arguments[1]);
    void *out = place_of_product(r, &s->arguments[2]);
    const int status = r->driver.product(
        blas, (int)v[0], (int)v[1], (int)v[2], (int)v[3], (int)v[4],
        wide ? (const void *)&scale.wide : (const void *)&scale.narrow, a, type, (int)v[5], v[6],
        b, type, (int)v[7], v[8],
        wide ? (const void *)&before.wide : (const void *)&before.narrow, out, result, (int)v[9],
        v[10], (int)v[11], (int)v[14], -1);
    return status ? ADARRAY_DEVICE_BLAS + status : 0;
}

/* Multiply as cuBLASLt does; operands: first, second, result, what is added, workspace, a vector;
 * numbers: addresses of what lt.py describes, the bytes of the workspace, and what tells a
 * description where the vector is, 0 if there is none. */
static int product_lt(DeviceRunner *r, const Step *s, void *stream, void *blas)
{
    static atomic_flag telling = ATOMIC_FLAG_INIT; /* other runners share the description */
    void *at[6], *about[8];
    int status = 0;
    for (int i = 0; i < 6; i++) at[i] = place_of_product(r, &s->arguments[i]);
    for (int i = 0; i < 8; i++) about[i] = (void *)(uintptr_t)s->numbers[i];
    int (*tell)(void *, int, const void *, size_t);
    memcpy(&tell, &s->numbers[9], sizeof tell);
    if (tell) {
        while (atomic_flag_test_and_set(&telling)) {}
        status = tell(about[0], ROW_POINTER, &at[5], sizeof at[5]);
    }
    if (!status)
        status = r->driver.product_lt(
            blas, about[0], about[1], at[0], about[2], at[1], about[3], about[4], at[3], about[5],
            at[2], about[6], about[7], at[4], (size_t)s->numbers[8], stream);
    if (tell) atomic_flag_clear(&telling);
    return status ? ADARRAY_DEVICE_BLAS + status : 0;
}

/* Call a function of cuSOLVER, or cuBLAS's triangular solve, with the arguments that it takes; the
 * first one is a handle for the stream. */
static int linalg(DeviceRunner *r, const Step *s)
{
    typedef int (*Lu)(void *, int, int, void *, int, void *, int *, int *);
    typedef int (*Solve)(void *, int, int, int, const void *, int, const int *, void *, int, int *);
    typedef int (*Cholesky)(void *, int, int, void *, int, void *, int, int *);
    typedef int (*Triangle)(void *, int, int, int, int, int, int, const void *, const void *, int,
                            void *, int);
    union { void *address; Lu lu; Solve solve; Cholesky cholesky; Triangle triangle; } f;
    const uint64_t *v = r->cells;
    int status = 0;
    adarray_device_fill(r, s);
#define POINTER(k) ((void *)(uintptr_t)v[k])
    f.address = s->function;
    switch (s->numbers[0]) {
    case LINALG_LU:
        status = f.lu(POINTER(0), (int)v[1], (int)v[2], POINTER(3), (int)v[4], POINTER(5),
                      POINTER(6), POINTER(7));
        break;
    case LINALG_SOLVE:
        status = f.solve(POINTER(0), (int)v[1], (int)v[2], (int)v[3], POINTER(4), (int)v[5],
                         POINTER(6), POINTER(7), (int)v[8], POINTER(9));
        break;
    case LINALG_CHOLESKY:
        status = f.cholesky(POINTER(0), (int)v[1], (int)v[2], POINTER(3), (int)v[4], POINTER(5),
                            (int)v[6], POINTER(7));
        break;
    case LINALG_TRIANGLE:
        status = f.triangle(POINTER(0), (int)v[1], (int)v[2], (int)v[3], (int)v[4], (int)v[5],
                            (int)v[6], POINTER(7), POINTER(8), (int)v[9], POINTER(10), (int)v[11]);
        break;
    }
#undef POINTER
    return status ? ADARRAY_DEVICE_LINALG + status : 0;
}

/* Transform as cuFFT does; operands: what is read, the result, workspace; numbers: the plan, the
 * direction, 0 if one side is real, and the addresses of what runs a plan, sets its stream, and sets
 * its memory. */
static int fourier(DeviceRunner *r, const Step *s, void *stream)
{
    static atomic_flag setting = ATOMIC_FLAG_INIT; /* other runners share the plan */
    union {
        uintptr_t address;
        int (*set)(int, void *);
        int (*complex)(int, void *, void *, int);
        int (*real)(int, void *, void *);
    } run = {(uintptr_t)s->numbers[2]}, on = {(uintptr_t)s->numbers[3]},
      with = {(uintptr_t)s->numbers[4]};
    const int plan = (int)s->numbers[0], direction = (int)s->numbers[1];
    void *at[3];
    for (int i = 0; i < 3; i++) at[i] = place_of_product(r, &s->arguments[i]);
    while (atomic_flag_test_and_set(&setting)) {}
    int status = on.set(plan, stream);
    if (!status) status = with.set(plan, at[2]);
    if (!status)
        status = direction ? run.complex(plan, at[0], at[1], direction)
                           : run.real(plan, at[0], at[1]);
    atomic_flag_clear(&setting);
    return status ? ADARRAY_DEVICE_FOURIER + status : 0;
}

int adarray_device_launch(DeviceRunner *r, const Step *s, void *stream, void *blas)
{
    if (s->kind == STEP_FOURIER) return fourier(r, s, stream);
    if (s->kind == STEP_LINALG) return linalg(r, s);
    if (s->kind == STEP_PRODUCT) return product(r, s, blas);
    if (s->kind == STEP_PRODUCT_LT) return product_lt(r, s, stream, blas);
    adarray_device_fill(r, s);
    return r->driver.launch(s->function, s->grid[0], s->grid[1], s->grid[2], s->block[0],
                            s->block[1], s->block[2], s->shared, stream, r->parameters, NULL);
}

/* -- reading -------------------------------------------------------------------------------- */

/* Words before the arguments, the number of arguments (of a kernel it is a word), words after. */
typedef struct { int64_t head, operands, tail; } Layout;

static const Layout LAYOUTS[] = {
    [STEP_KERNEL] = {10, -1, 0}, [STEP_PRODUCT] = {2, 3, 17}, [STEP_PRODUCT_LT] = {2, 6, 10},
    [STEP_LINALG] = {3, -1, 1}, [STEP_FOURIER] = {2, 3, 5},
};

/* The arguments that each function of linear algebra takes. */
static const int64_t LINALG_ARGUMENTS[] = {
    [LINALG_LU] = 8, [LINALG_SOLVE] = 10, [LINALG_CHOLESKY] = 8, [LINALG_TRIANGLE] = 12,
};

/* Read steps: the kind, the number of arguments, of a kernel its function, grid, block and shared
 * memory, of linear algebra its function, the arguments as pairs, of a product or a transform its
 * numbers, of linear algebra which function it is. Return the words that were read, or
 * -1; *longest and *total become numbers of arguments. */
static int64_t read_steps(DeviceRunner *r, int64_t at, int64_t count, int64_t *longest,
                          int64_t *total)
{
    *longest = *total = 0;
    for (int64_t i = 0; i < r->n_steps; i++) {
        const int64_t *w = r->words + at;
        Step *s = &r->steps[i];
        if (at + 2 > count || w[0] < STEP_KERNEL || w[0] > STEP_FOURIER) return -1;
        const Layout *l = &LAYOUTS[w[0]];
        s->kind = w[0];
        s->n = w[1];
        if (s->n < 0 || (l->operands >= 0 && s->n != l->operands)
            || s->n > count || at + l->head + 2 * s->n + l->tail > count) return -1;
        if (s->kind == STEP_KERNEL) {
            s->function = (void *)(uintptr_t)w[2];
            for (int k = 0; k < 3; k++) {
                s->grid[k] = (unsigned)w[3 + k];
                s->block[k] = (unsigned)w[6 + k];
            }
            s->shared = (unsigned)w[9];
        }
        if (s->kind == STEP_LINALG) s->function = (void *)(uintptr_t)w[2];
        s->arguments = (const Argument *)(w + l->head);
        s->numbers = w + l->head + 2 * s->n;
        if (s->kind == STEP_LINALG
            && (s->numbers[0] < 0 || s->numbers[0] >= LINALG_COUNT
                || s->n != LINALG_ARGUMENTS[s->numbers[0]])) return -1;
        for (int64_t k = 0; k < s->n; k++)
            if (s->arguments[k].slot >= r->n_slots) return -1;
        if (s->n > *longest) *longest = s->n;
        *total += s->n;
        at += l->head + 2 * s->n + l->tail;
    }
    return at;
}

/* Note which slots products use, and which kernels use a slot. */
static void index_slots(DeviceRunner *r)
{
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_steps; i++)
        for (int64_t k = 0; k < r->steps[i].n; k++) {
            const int64_t slot = r->steps[i].arguments[k].slot;
            if (slot < 0) continue;
            if (r->steps[i].kind != STEP_KERNEL) r->slots[slot].product = 1;
            else r->slots[slot].last++;
        }
    for (int64_t i = 0; i < r->n_slots; i++) {
        r->slots[i].first = n;
        n += r->slots[i].last;
        r->slots[i].last = r->slots[i].first;
    }
    for (int64_t i = 0; i < r->n_steps; i++)
        for (int64_t k = 0; k < r->steps[i].n; k++) {
            const int64_t slot = r->steps[i].arguments[k].slot;
            if (slot >= 0 && r->steps[i].kind == STEP_KERNEL)
                r->users[r->slots[slot].last++] = i;
        }
}

static void *room(int64_t n, size_t size) { return calloc(n > 0 ? (size_t)n : 1, size); }

int adarray_device_read(DeviceRunner *r, int64_t count)
{
    int64_t longest, total;
    if (read_steps(r, 2 + 2 * r->n_slots, count, &longest, &total) != count) return 0;
    r->cells = room(longest, sizeof *r->cells);
    r->parameters = room(longest, sizeof *r->parameters);
    r->users = room(total, sizeof *r->users);
    if (!r->cells || !r->parameters || !r->users) return 0;
    for (int64_t i = 0; i < longest; i++) r->parameters[i] = &r->cells[i];
    index_slots(r);
    return 1;
}
