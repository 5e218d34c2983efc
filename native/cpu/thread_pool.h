/* How many threads a call gets, given how the last ones fared.
 *
 * A thread pool is as fast as its slowest thread. Where other programs compete for the
 * processors, a thread may wait for one while the caller spins for it, up to some 10
 * milliseconds with GNU's OpenMP: a training step of 2 ms took 50 to 80 then. So each calling
 * thread keeps an account of what its thread pool gains and loses. Once the losses are larger,
 * calls run alone for 10 times as long as the last one lost: the loss stays near a tenth. A
 * single late thread, as after a pause or where a virtual machine halts a processor, costs no
 * more than itself. Results do not depend on the number of threads.
 */
#ifndef ADARRAY_THREAD_POOL_H
#define ADARRAY_THREAD_POOL_H

#include "flags.h"

/* The part that one of `threads` threads does. */
typedef void (*threads_part)(void *context, int thread, int threads);
/* Something that does all parts and returns floating-point flags, as threads_run. */
typedef int (*threads_runner)(int threads, threads_part part, void *context);

#ifdef _OPENMP
#include <omp.h>
#include <time.h>

#define PATIENCE 300e-6 /* seconds; waking a sleeping pool takes up to a third of that */
#define REST 10.0
#define CREDIT 30e-3 /* seconds of losses that any gains before may outweigh */

/* The account of a calling thread. The module's main source defines it. */
typedef struct {
    double resumes; /* when it uses its thread pool again */
    double spent;   /* of CREDIT: losses less gains, in seconds */
} ThreadsAccount;
extern __thread ThreadsAccount adarray_threads_account __attribute__((visibility("hidden")));

typedef struct { double begun, cpu; } ThreadsClock;

/* Return the processor time of this thread, in which it may have waited for a processor. */
static inline double threads_cpu(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Return the number of threads to use where `threads` are allowed, and start the clock. */
static inline int threads_begin(ThreadsClock *c, int threads)
{
    if (threads < 2) return threads;
    c->begun = omp_get_wtime();
    if (c->begun < adarray_threads_account.resumes) return 1;
    c->cpu = threads_cpu();
    return threads;
}

/* The caller has done its own part. */
static inline void threads_worked(ThreadsClock *c, int threads)
{
    if (threads > 1) c->cpu = threads_cpu() - c->cpu;
}

/* All threads are done. */
static inline void threads_end(const ThreadsClock *c, int threads)
{
    if (threads < 2) return;
    const double now = omp_get_wtime(), lost = now - c->begun - c->cpu;
    ThreadsAccount *account = &adarray_threads_account;
    if (lost <= PATIENCE + 0.5 * (threads - 1) * c->cpu) {
        /* The other threads did as much as the caller meanwhile: even if they were late, alone
         * it would have needed longer. */
        account->spent -= (threads - 1) * c->cpu;
        if (account->spent < 0) account->spent = 0;
        return;
    }
    account->spent += lost;
    if (account->spent > CREDIT) {
        account->spent = CREDIT;
        account->resumes = now + REST * lost;
    }
}
#else
typedef struct { int unused; } ThreadsClock;
static inline int threads_begin(ThreadsClock *c, int threads)
{
    (void)threads;
    return c->unused = 1;
}
static inline void threads_worked(ThreadsClock *c, int threads) { (void)c, (void)threads; }
static inline void threads_end(const ThreadsClock *c, int threads) { (void)c, (void)threads; }
#endif

/* Do all parts, each on a thread of its own unless the processors are busy: the parts, and
 * so the results, are the same then. Return the floating-point flags that they raised. */
static inline int threads_run(int threads, threads_part part, void *context)
{
    int flags = 0;
#ifdef _OPENMP
    ThreadsClock clock;
    if (threads > 1 && threads_begin(&clock, threads) > 1) {
#pragma omp parallel num_threads(threads) reduction(| : flags)
        {
            clear_flags();
            for (int t = omp_get_thread_num(); t < threads; t += omp_get_num_threads())
                part(context, t, threads);
            flags |= read_flags();
#pragma omp master
            threads_worked(&clock, threads);
        }
        threads_end(&clock, threads);
        return flags;
    }
#endif
    clear_flags();
    for (int t = 0; t < threads; t++) part(context, t, threads);
    flags = read_flags();
    return flags;
}

#endif
