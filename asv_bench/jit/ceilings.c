/* What this machine can do: bandwidth by footprint, and elementary functions from cache.
 *
 * ceilings THREADS prints one line of JSON: bytes per second of copies (read and written
 * bytes count; `stream` writes past the caches) and of reads, by the bytes touched, and evaluations per second of
 * libmvec's functions. Every figure is the best of several repetitions, all threads at work.
 */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "libmvec.h"

#define REPEATS 15
#define BLOCK 1024 /* elements of one thread when functions are measured: level 1 cache */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void *filled(size_t bytes, int threads)
{
    char *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!p) exit(1);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < bytes / sizeof(double); i++) ((double *)p)[i] = 0.5;
    return p;
}

static void copy_part(double *restrict to, const double *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = from[i] * 1.5;
}

/* Write past the caches: lines that will not be read soon need not be fetched first. */
static void stream_part(double *restrict to, const double *restrict from, size_t n)
{
#if defined(__AVX512F__)
    for (size_t i = 0; i + 8 <= n; i += 8)
        _mm512_stream_pd(to + i, _mm512_mul_pd(_mm512_load_pd(from + i), _mm512_set1_pd(1.5)));
    _mm_sfence();
#elif defined(__AVX__)
    for (size_t i = 0; i + 4 <= n; i += 4)
        _mm256_stream_pd(to + i, _mm256_mul_pd(_mm256_load_pd(from + i), _mm256_set1_pd(1.5)));
    _mm_sfence();
#else
    copy_part(to, from, n);
#endif
}

static double read_part(const double *from, size_t n)
{
    double sums[64] = {0.0}, sum = 0.0; /* so many that no addition waits for the one before */
    for (size_t i = 0; i + 64 <= n; i += 64)
        for (int j = 0; j < 64; j++) sums[j] += from[i + j];
    for (int j = 0; j < 64; j++) sum += sums[j];
    return sum;
}

enum { READ, COPY, STREAM };

/* Bytes per second of sweeps over `bytes` in all; copies read one half and write the other. */
static double bandwidth(size_t bytes, int how, int threads)
{
    const int copying = how != READ;
    const size_t n = bytes / sizeof(double) / (copying ? 2 : 1);
    double *from = filled(n * sizeof(double), threads);
    double *to = copying ? filled(n * sizeof(double), threads) : from;
    const int sweeps = 1 + (int)(64e6 / bytes);
    double best = 0.0, total = 0.0;
    for (int r = 0; r < REPEATS; r++) {
        const double start = now();
#pragma omp parallel num_threads(threads) reduction(+ : total)
        {
            const size_t k = omp_get_thread_num(), parts = omp_get_num_threads();
            const size_t first = n * k / parts / 8 * 8, last = n * (k + 1) / parts / 8 * 8;
            for (int s = 0; s < sweeps; s++) {
                if (how == COPY)
                    copy_part(to + first, from + first, last - first);
                else if (how == STREAM)
                    stream_part(to + first, from + first, last - first);
                else
                    total += read_part(from + first, last - first);
                __asm__ volatile("" ::: "memory"); /* every sweep is made */
            }
        }
        const double rate = (double)bytes * sweeps / (now() - start);
        if (rate > best) best = rate;
    }
    if (total == 1.0) putchar(' '); /* the sums are used */
    if (copying) free(to);
    free(from);
    return best;
}

typedef void sweep(void *restrict to, const void *restrict from);

#define FUNCTION(name, expression64, expression32)                                     \
    static void name##_float64(void *restrict to, const void *restrict from)           \
    {                                                                                  \
        const double *a = from;                                                        \
        double *b = to;                                                                \
        _Pragma("omp simd") for (int i = 0; i < BLOCK; i++) {                          \
            const double x = a[i];                                                     \
            b[i] = expression64;                                                       \
        }                                                                              \
    }                                                                                  \
    static void name##_float32(void *restrict to, const void *restrict from)           \
    {                                                                                  \
        const float *a = from;                                                         \
        float *b = to;                                                                 \
        _Pragma("omp simd") for (int i = 0; i < BLOCK; i++) {                          \
            const float x = a[i];                                                      \
            b[i] = expression32;                                                       \
        }                                                                              \
    }
FUNCTION(exp, exp(x), expf(x))
FUNCTION(log, log(x), logf(x))
FUNCTION(log1p, log1p(x), log1pf(x))
FUNCTION(sin, sin(x), sinf(x))
FUNCTION(cos, cos(x), cosf(x))
FUNCTION(tanh, tanh(x), tanhf(x))
FUNCTION(sqrt, sqrt(x), sqrtf(x))
FUNCTION(divide, 1.0 / x, 1.0f / x)

#define BOTH(name) {#name, {name##_float64, name##_float32}}
static const struct {
    const char *name;
    sweep *sweeps[2];
} functions[] = {BOTH(exp), BOTH(log), BOTH(log1p), BOTH(sin),
                 BOTH(cos), BOTH(tanh), BOTH(sqrt), BOTH(divide)};

/* Evaluations per second, by all threads together. */
static double evaluations(sweep *f, int is_float, int threads)
{
    enum { SWEEPS = 500 };
    double best = 0.0;
    for (int r = 0; r < REPEATS; r++) {
        double start = 0.0;
#pragma omp parallel num_threads(threads)
        {
            _Alignas(64) double from[BLOCK], to[BLOCK];
            for (int i = 0; i < BLOCK; i++) {
                const double x = 0.25 + 2.0 * i / BLOCK;
                if (is_float)
                    ((float *)from)[i] = (float)x;
                else
                    from[i] = x;
            }
#pragma omp barrier
#pragma omp master
            start = now();
            for (int s = 0; s < SWEEPS; s++) {
                f(to, from);
                __asm__ volatile("" ::"r"(to), "r"(from) : "memory");
            }
        }
        const double rate = (double)SWEEPS * BLOCK * threads / (now() - start);
        if (rate > best) best = rate;
    }
    return best;
}

static void print_bandwidth(const char *name, int how, int threads)
{
    printf("\"%s\": {", name);
    for (size_t bytes = 1 << 15; bytes <= (size_t)1 << 28; bytes *= 2)
        printf("%s\"%zu\": %.4g", bytes > 1 << 15 ? ", " : "", bytes,
               bandwidth(bytes, how, threads));
    printf("}, ");
}

int main(int count, char **words)
{
    const int threads = count > 1 ? atoi(words[1]) : omp_get_max_threads();
    if (threads < 1) return 1;
    printf("{\"threads\": %d, ", threads);
    print_bandwidth("copy", COPY, threads);
    print_bandwidth("stream", STREAM, threads);
    print_bandwidth("read", READ, threads);
    printf("\"functions\": {");
    for (int is_float = 0; is_float < 2; is_float++) {
        printf("%s\"%s\": {", is_float ? ", " : "", is_float ? "float32" : "float64");
        for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
            printf("%s\"%s\": %.4g", i ? ", " : "", functions[i].name,
                   evaluations(functions[i].sweeps[is_float], is_float, threads));
        printf("}");
    }
    printf("}}\n");
    return 0;
}
