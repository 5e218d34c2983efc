/* How many threads a call gets, given how the last ones fared.
 *
 * A team is as fast as its slowest member. Where other programs compete for the processors,
 * a member may wait for one while the caller spins for it, up to some 10 milliseconds with
 * GNU's OpenMP: a training step of 2 ms took 50 to 80 then. So a call that waited for its
 * team much longer than it worked makes the next ones run alone, for 10 times as long as it
 * waited: what is lost stays below a tenth. Results do not depend on the number of threads.
 */
#ifndef ADARRAY_TEAM_H
#define ADARRAY_TEAM_H

#ifdef _OPENMP
#include <omp.h>

#define PATIENCE 300e-6 /* seconds; waking a sleeping team takes up to a third of that */
#define REST 10.0

/* When this calling thread uses its team again. The module's main source defines it. */
extern __thread double adarray_team_resumes __attribute__((visibility("hidden")));

/* Return the number of threads to use where `threads` are allowed. */
static inline int team_size(int threads)
{
    return threads > 1 && omp_get_wtime() < adarray_team_resumes ? 1 : threads;
}

/* Note when the caller's own work began and ended, and when the whole team's did. */
static inline void team_report(int threads, double begun, double worked, double done)
{
    const double waited = done - worked;
    if (threads > 1 && waited > PATIENCE + 2 * (worked - begun))
        adarray_team_resumes = done + REST * waited;
}

static inline double team_clock(void) { return omp_get_wtime(); }
#else
static inline int team_size(int threads) { (void)threads; return 1; }
static inline void team_report(int threads, double begun, double worked, double done)
{
    (void)threads, (void)begun, (void)worked, (void)done;
}
static inline double team_clock(void) { return 0; }
#endif

#endif
