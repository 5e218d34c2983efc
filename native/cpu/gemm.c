/* Matrix products: reading of the arrays, partition among threads, calls of BLAS.
 *
 * References:
 * - J. J. Dongarra, J. Du Croz, S. Hammarling, I. S. Duff, "A set of level 3 basic linear
 *   algebra subprograms", ACM Trans. Math. Softw. 16 (1990), 1-17.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_DEEPBIND */
#endif
#include "arrays.h"
#include "gemm.h"
#include "product.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>

/* Multiplications that are worth a thread of their own: 3 (float32) to 7 microseconds of
 * work, from where two threads were measured to gain. A matrix and a vector, waiting for
 * memory, gain from fewer. */
#define MATRIX_SHARE 262144.0
#define VECTOR_SHARE 65536.0
#define MAX_THREADS 256   /* BLAS has buffers for more callers than that */
#define DOT_BLOCK 32768   /* elements of one partial sum */
#define DOT_BLOCKS 256

int adarray_level(void); /* of the main source: 2 with AVX-512 */

/* -- the library ----------------------------------------------------------------------- */

enum { ROW_MAJOR = 101, NORMAL = 111, TRANSPOSED = 112 };

static struct {
    void (*sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int,
                  float, float *, int);
    void (*dgemm)(int, int, int, int, int, int, double, const double *, int, const double *, int,
                  double, double *, int);
    void (*sgemv)(int, int, int, int, float, const float *, int, const float *, int, float,
                  float *, int);
    void (*dgemv)(int, int, int, int, double, const double *, int, const double *, int, double,
                  double *, int);
    float (*sdot)(int, const float *, int, const float *, int);
    double (*ddot)(int, const double *, int, const double *, int);
    const char *(*config)(void);
    int ready;
} blas;

int adarray_blas_loaded(const char *path)
{
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (handle) dlclose(handle);
    return handle != NULL;
}

const char *adarray_blas_open(const char *path)
{
    static char text[512];
    /* Bound to itself first, for another copy may have put the same names into the global
     * scope; never unloaded, for the process may exit while a thread computes. */
    int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
#ifdef RTLD_DEEPBIND
    flags |= RTLD_DEEPBIND;
#endif
    void (*set_threads)(int) = NULL;
    void *handle = dlopen(path, flags);
    if (!handle) {
        snprintf(text, sizeof text, "%s", dlerror());
        return text;
    }
    const struct { const char *name; void *at; } symbols[] = {
        {"scipy_cblas_sgemm", &blas.sgemm}, {"scipy_cblas_dgemm", &blas.dgemm},
        {"scipy_cblas_sgemv", &blas.sgemv}, {"scipy_cblas_dgemv", &blas.dgemv},
        {"scipy_cblas_sdot", &blas.sdot}, {"scipy_cblas_ddot", &blas.ddot},
        {"scipy_openblas_get_config", &blas.config},
        {"scipy_openblas_set_num_threads", &set_threads},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(handle, symbols[i].name);
        if (!symbol) {
            snprintf(text, sizeof text, "%s has no function %s", path, symbols[i].name);
            return text;
        }
        memcpy(symbols[i].at, &symbol, sizeof symbol);
    }
    set_threads(1);
    __atomic_store_n(&blas.ready, 1, __ATOMIC_RELEASE);
    return NULL;
}

const char *adarray_blas_config(void) { return blas.ready ? blas.config() : NULL; }

/* -- operands -------------------------------------------------------------------------- */

/* Fill in a matrix from the last axes of `x`; a vector is a row (of a) or a column (of b). */
static int read_matrix(PyArrayObject *x, int column, int batches, const intptr_t *dims, Matrix *m)
{
    const npy_intp *shape = PyArray_DIMS(x), *strides = PyArray_STRIDES(x);
    const int nd = PyArray_NDIM(x), lead = nd > 2 ? nd - 2 : 0;
    m->data = PyArray_BYTES(x);
    if (nd == 1) {
        m->rows = column ? shape[0] : 1;
        m->cols = column ? 1 : shape[0];
        m->row = m->col = strides[0];
    } else {
        m->rows = shape[nd - 2], m->cols = shape[nd - 1];
        m->row = strides[nd - 2], m->col = strides[nd - 1];
    }
    if (lead > batches) return 0;
    for (int i = 0; i < batches; i++) {
        const int d = i - (batches - lead);
        m->batch[i] = d < 0 || shape[d] == 1 ? 0 : strides[d];
        if (d >= 0 && shape[d] != 1 && shape[d] != dims[i]) return 0;
    }
    return 1;
}

/* Read the three arrays and check that their shapes belong together. */
static int read_product(uintptr_t x, uintptr_t y, uintptr_t result, Product *p)
{
    PyArrayObject *px = (PyArrayObject *)x, *py = (PyArrayObject *)y;
    PyArrayObject *pc = (PyArrayObject *)result;
    const int type = PyArray_DESCR(pc)->type_num;
    Operand o;
    if ((type != NPY_FLOAT && type != NPY_DOUBLE) || !read_array(x, type, &o)
        || !read_array(y, type, &o) || !read_array(result, type, &o)
        || PyArray_NDIM(px) == 0 || PyArray_NDIM(py) == 0)
        return 0;
    const int has_m = PyArray_NDIM(px) > 1, has_n = PyArray_NDIM(py) > 1;
    const int batches = PyArray_NDIM(pc) - has_m - has_n;
    const npy_intp *shape = PyArray_DIMS(pc);
    if (batches < 0 || !PyArray_CHKFLAGS(pc, NPY_ARRAY_C_CONTIGUOUS)) return 0;
    p->size = o.size;
    p->c = PyArray_BYTES(pc);
    p->nd = batches;
    for (int i = 0; i < batches; i++) p->dims[i] = shape[i];
    if (!read_matrix(px, 0, batches, p->dims, &p->a)
        || !read_matrix(py, 1, batches, p->dims, &p->b))
        return 0;
    p->m = p->a.rows, p->k = p->a.cols, p->n = p->b.cols;
    return p->b.rows == p->k && (!has_m || shape[batches] == p->m)
        && (!has_n || shape[batches + has_m] == p->n)
        && p->m > 0 && p->n > 0 && p->k > 0;
}

/* Merge leading axes, and where all products share b, make one product of them. */
static void merge(Product *p)
{
    Matrix *a = &p->a, *b = &p->b;
    int nd = 0;
    for (int i = 0; i < p->nd; i++) {
        if (p->dims[i] == 1) continue;
        if (nd && a->batch[nd - 1] == a->batch[i] * p->dims[i]
            && b->batch[nd - 1] == b->batch[i] * p->dims[i]) {
            nd--;
            p->dims[nd] *= p->dims[i];
        } else {
            p->dims[nd] = p->dims[i];
        }
        a->batch[nd] = a->batch[i];
        b->batch[nd++] = b->batch[i];
    }
    if (nd == 1 && b->batch[0] == 0 && a->batch[0] > 0
        && (p->m == 1 || a->batch[0] == p->m * a->row)) {
        if (p->m == 1) a->row = a->batch[0];
        p->m = a->rows = p->m * p->dims[0];
        nd = 0;
    }
    p->nd = nd;
    p->count = 1;
    for (int i = 0; i < nd; i++) p->count *= p->dims[i];
}

/* Find how BLAS can address a matrix; 0 if it cannot. */
static int address(Matrix *x, int nd, int size)
{
    if ((uintptr_t)x->data % (uintptr_t)size) return 0;
    for (int i = 0; i < nd; i++)
        if (x->batch[i] % size) return 0;
    /* The stride of an axis of length 1 says nothing. */
    if ((x->cols == 1 || x->col == size) && (x->rows == 1 || x->row % size == 0)) {
        x->transposed = 0;
        x->ld = x->rows == 1 ? x->cols : x->row / size;
        if (x->ld >= x->cols && x->ld <= INT_MAX) return 1;
    }
    if ((x->rows == 1 || x->row == size) && (x->cols == 1 || x->col % size == 0)) {
        x->transposed = 1;
        x->ld = x->cols == 1 ? x->rows : x->col / size;
        if (x->ld >= x->rows && x->ld <= INT_MAX) return 1;
    }
    return 0;
}

/* -- calls of BLAS ----------------------------------------------------------------------- */

#if ADARRAY_PRODUCT
/* Steps of a matrix from row to row and from column to column, in elements. */
static intptr_t row_step(const Matrix *x) { return x->transposed ? 1 : x->ld; }
static intptr_t column_step(const Matrix *x) { return x->transposed ? x->ld : 1; }

/* Compute a tile by our own kernels; 0 if the processor has not what they need. */
static int own_gemm(const Product *p, const char *a, const char *b, char *c, int m, int n)
{
    if (adarray_level() < 2) return 0;
    void *room = take_room();
    if (room == NULL) return 0;
    if (p->size == 4) {
        const Operands_f32 o = {
            m, n, p->k, (const float *)a, row_step(&p->a), column_step(&p->a), (const float *)b,
            row_step(&p->b), column_step(&p->b), (float *)c, p->n};
        product_f32(&o, room);
    } else {
        const Operands_f64 o = {
            m, n, p->k, (const double *)a, row_step(&p->a), column_step(&p->a), (const double *)b,
            row_step(&p->b), column_step(&p->b), (double *)c, p->n};
        product_f64(&o, room);
    }
    give_room(room);
    return 1;
}
#else
static int own_gemm(const Product *p, const char *a, const char *b, char *c, int m, int n)
{
    (void)p, (void)a, (void)b, (void)c, (void)m, (void)n;
    return 0;
}
#endif

static void gemm(const Product *p, const char *a, const char *b, char *c, int m, int n)
{
    if (own_gemm(p, a, b, c, m, n)) return;
    const int ta = p->a.transposed ? TRANSPOSED : NORMAL, k = (int)p->k;
    const int tb = p->b.transposed ? TRANSPOSED : NORMAL, lda = (int)p->a.ld, ldb = (int)p->b.ld;
    if (p->size == 4)
        blas.sgemm(ROW_MAJOR, ta, tb, m, n, k, 1, (const float *)a, lda, (const float *)b, ldb, 0,
                   (float *)c, (int)p->n);
    else
        blas.dgemm(ROW_MAJOR, ta, tb, m, n, k, 1, (const double *)a, lda, (const double *)b, ldb,
                   0, (double *)c, (int)p->n);
}

/* c = matrix @ vector, the matrix being `rows` by `cols` in memory. */
static void gemv(const Product *p, int transpose, intptr_t rows, intptr_t cols, intptr_t ld,
                 const char *matrix, const char *vector, intptr_t step, char *c)
{
    const int t = transpose ? TRANSPOSED : NORMAL, r = (int)rows, k = (int)cols, s = (int)step;
    /* Versions of OpenBLAS differ in whether 0 * nan counts as 0 in the old result. */
    memset(c, 0, (size_t)((transpose ? cols : rows) * p->size));
    if (p->size == 4)
        blas.sgemv(ROW_MAJOR, t, r, k, 1, (const float *)matrix, (int)ld, (const float *)vector, s,
                   0, (float *)c, 1);
    else
        blas.dgemv(ROW_MAJOR, t, r, k, 1, (const double *)matrix, (int)ld, (const double *)vector,
                   s, 0, (double *)c, 1);
}

static double dot(int size, intptr_t n, const char *a, intptr_t step_a, const char *b,
                  intptr_t step_b)
{
    return size == 4 ? blas.sdot((int)n, (const float *)a, (int)step_a, (const float *)b,
                                 (int)step_b)
                     : blas.ddot((int)n, (const double *)a, (int)step_a, (const double *)b,
                                 (int)step_b);
}

static void store(const Product *p, char *c, double value)
{
    if (p->size == 4) *(float *)c = (float)value;
    else *(double *)c = value;
}

/* Elements from one to the next along k, for the vector that an operand is. */
static intptr_t step_a(const Product *p) { return p->a.transposed ? p->a.ld : 1; }
static intptr_t step_b(const Product *p) { return p->b.transposed ? 1 : p->b.ld; }

/* Compute rows i .. i + m and columns j .. j + n of one product. */
static void tile(const Product *p, const char *a, const char *b, char *c, intptr_t i, intptr_t m,
                 intptr_t j, intptr_t n)
{
    a += i * p->size * (p->a.transposed ? 1 : p->a.ld);
    b += j * p->size * (p->b.transposed ? p->b.ld : 1);
    c += (i * p->n + j) * p->size;
    if (p->m == 1 && p->n == 1)
        store(p, c, dot(p->size, p->k, a, step_a(p), b, step_b(p)));
    else if (p->n == 1)
        gemv(p, p->a.transposed, p->a.transposed ? p->k : m, p->a.transposed ? m : p->k, p->a.ld,
             a, b, step_b(p), c);
    else if (p->m == 1)
        gemv(p, !p->b.transposed, p->b.transposed ? n : p->k, p->b.transposed ? p->k : n, p->b.ld,
             b, a, step_a(p), c);
    else
        gemm(p, a, b, c, (int)m, (int)n);
}

/* -- partition ----------------------------------------------------------------------------- */

/* Slices are whole register blocks of BLAS where the matrix is big enough to share them. */
static intptr_t block(intptr_t extent) { return extent >= 64 ? 16 : 4; }

static intptr_t slice(intptr_t extent, int parts, int i)
{
    if (i == parts) return extent;
    const intptr_t size = block(extent), blocks = (extent + size - 1) / size;
    return blocks * i / parts * size;
}

static intptr_t widest(intptr_t extent, int parts)
{
    const intptr_t size = block(extent), blocks = (extent + size - 1) / size;
    const intptr_t wide = (blocks + parts - 1) / parts * size;
    return wide < extent ? wide : extent;
}

/* Cut each product into at most `tiles` tiles so that the biggest one costs least. The sum
 * over k is never cut: the result must not depend on the number of threads by more than
 * BLAS's own handling of edges. */
static void cut(Product *p, int tiles)
{
    double least = 0;
    p->parts_m = p->parts_n = 1;
    for (int pm = 1; pm <= tiles; pm++) {
        const int pn = tiles / pm;
        const double m = (double)widest(p->m, pm), n = (double)widest(p->n, pn);
        /* BLAS copies its operands; an element copied costs as much as 16 multiplications.
         * Tiles that share rows of the result cost a tenth more than whole rows do. */
        const double cost = (m * n + (p->m == 1 || p->n == 1 ? 0 : 16 * (m + n)))
            * (pn > 1 ? 1.1 : 1.0);
        if (pm == 1 || cost <= least) {
            least = cost;
            p->parts_m = pm, p->parts_n = pn;
        }
    }
}

/* Choose tiles; return the number of threads that are worth it. */
static int plan(Product *p, int threads)
{
    const double share = p->m == 1 || p->n == 1 ? VECTOR_SHARE : MATRIX_SHARE;
    const double worth = (double)p->m * (double)p->n * (double)p->k * (double)p->count / share;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (worth < threads) threads = (int)worth;
    p->parts_m = p->parts_n = 1;
    if (threads < 2) return 1;
    if (p->count < 4 * threads) {
        /* Few products: as many tiles of each as make the total divide evenly. */
        int common = threads, rest = (int)(p->count % threads);
        while (rest) {
            const int next = common % rest;
            common = rest;
            rest = next;
        }
        cut(p, threads / common);
    }
    return threads;
}

/* Compute every `threads`-th item from `first` on; an item is a tile of one product. */
static void tiles_part(void *context, int first, int threads)
{
    const Product *p = context;
    const int tiles = p->parts_m * p->parts_n;
    for (intptr_t item = first; item < p->count * tiles; item += threads) {
        intptr_t product = item / tiles, rest = product;
        const int at = (int)(item % tiles), im = at / p->parts_n, in = at % p->parts_n;
        const intptr_t i = slice(p->m, p->parts_m, im), j = slice(p->n, p->parts_n, in);
        const intptr_t m = slice(p->m, p->parts_m, im + 1) - i;
        const intptr_t n = slice(p->n, p->parts_n, in + 1) - j;
        const char *a = p->a.data, *b = p->b.data;
        if (m == 0 || n == 0) continue;
        for (int d = p->nd - 1; d >= 0; d--) {
            a += rest % p->dims[d] * p->a.batch[d];
            b += rest % p->dims[d] * p->b.batch[d];
            rest /= p->dims[d];
        }
        tile(p, a, b, p->c + product * p->m * p->n * p->size, i, m, j, n);
    }
}

typedef struct {
    const Product *product;
    intptr_t size; /* elements of a block */
    double partial[DOT_BLOCKS];
} Sum;

/* Fill in every `threads`-th partial sum from `first` on. */
static void sum_part(void *context, int first, int threads)
{
    Sum *s = context;
    const Product *p = s->product;
    const intptr_t sa = step_a(p), sb = step_b(p);
    for (intptr_t i = first; i * s->size < p->k; i += threads) {
        const intptr_t at = i * s->size, n = p->k - at < s->size ? p->k - at : s->size;
        s->partial[i] = dot(p->size, n, p->a.data + at * sa * p->size, sa,
                            p->b.data + at * sb * p->size, sb);
    }
}

/* One inner product: partial sums of blocks whose size depends on k alone, so the result
 * does not depend on the number of threads. */
static int run_sum(const Product *p, threads_runner run)
{
    Sum s;
    s.product = p;
    s.size = p->k > DOT_BLOCKS * (intptr_t)DOT_BLOCK ? (p->k + DOT_BLOCKS - 1) / DOT_BLOCKS
                                                     : DOT_BLOCK;
    const int blocks = (int)((p->k + s.size - 1) / s.size);
    const int flags = run(p->threads, sum_part, &s);
    double sum = 0;
    for (int i = 0; i < blocks; i++) sum += s.partial[i];
    store(p, p->c, sum);
    return flags;
}

int adarray_product_prepare(Product *p, int threads)
{
    if (!__atomic_load_n(&blas.ready, __ATOMIC_ACQUIRE)) return WRONG_ARRAY;
    merge(p);
    if (p->m > INT_MAX || p->n > INT_MAX || p->k > INT_MAX) return WRONG_ARRAY;
    const int a = address(&p->a, p->nd, p->size), b = address(&p->b, p->nd, p->size);
    if (!a || !b) return a ? COPY_Y : b ? COPY_X : COPY_BOTH;
    p->sum = p->m == 1 && p->n == 1 && p->count == 1;
    if (p->sum) {
        const double worth = (double)p->k / VECTOR_SHARE;
        p->threads = worth < threads ? (int)worth : threads;
        if (p->threads < 1) p->threads = 1;
    } else {
        p->threads = plan(p, threads);
    }
    return 0;
}

int adarray_product_run(Product *p, threads_runner run)
{
    return p->sum ? run_sum(p, run) : run(p->threads, tiles_part, p);
}

int adarray_matmul(uintptr_t x, uintptr_t y, uintptr_t result, int threads)
{
    Product p;
    if (!__atomic_load_n(&blas.ready, __ATOMIC_ACQUIRE) || !read_product(x, y, result, &p))
        return WRONG_ARRAY;
    const int refused = adarray_product_prepare(&p, threads);
    if (refused) return refused;
    const int flags = adarray_product_run(&p, threads_run);
    return flags | read_flags();
}
