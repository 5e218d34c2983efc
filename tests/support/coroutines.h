/* Threads of a block of a GPU as coroutines of one thread of the processor.
 *
 * Contexts of ucontext.h give each its stack, and jumps switch between them: swapcontext asks the
 * operating system for the mask of signals each time, which took a third of the tests' time. A
 * coroutine stays on its stack from block to block: who has ended one begins the next.
 */
#ifndef ADARRAY_COROUTINES_H
#define ADARRAY_COROUTINES_H
#undef _FORTIFY_SOURCE /* whose longjmp takes other stacks for errors */
#include <setjmp.h>
#include <stdlib.h>
#include <ucontext.h>

enum { COROUTINES = 1024, COROUTINE_STACK = 1 << 16 };

struct Coroutine {
    ucontext_t first;
    jmp_buf position;
    bool started, done;
};
static Coroutine coroutines[COROUTINES], *coroutine_now;
static jmp_buf coroutine_caller;
static char *coroutine_stacks;
static void coroutine_body(void); /* what each runs, defined where they are used */

static void coroutine_yield(void)
{
    if (!_setjmp(coroutine_now->position)) _longjmp(coroutine_caller, 1);
}

static void coroutine_main(void)
{
    for (;;) {
        coroutine_body();
        coroutine_now->done = true;
        coroutine_yield();
    }
}

/* Go on with one until it yields; return whether it has ended. */
static bool coroutine_resume(Coroutine *c)
{
    coroutine_now = c;
    if (!_setjmp(coroutine_caller)) {
        if (c->started) _longjmp(c->position, 1);
        c->started = true;
        getcontext(&c->first);
        c->first.uc_stack.ss_sp = coroutine_stacks + (c - coroutines) * COROUTINE_STACK;
        c->first.uc_stack.ss_size = COROUTINE_STACK;
        makecontext(&c->first, coroutine_main, 0);
        setcontext(&c->first);
    }
    return coroutine_now->done;
}

/* Run `count` of them, first all in one order up to where they yield, then in the other one, so
 * that fewer races stay hidden; return whether all of them ended. */
static bool coroutines_run(unsigned count)
{
    if (!coroutine_stacks) coroutine_stacks = (char *)malloc(COROUTINES * COROUTINE_STACK);
    for (unsigned t = 0; t < count; t++) coroutines[t].done = false;
    for (unsigned round = 0, left = count; left; round++) {
        const unsigned before = left;
        for (unsigned k = 0; k < count; k++) {
            Coroutine *c = coroutines + (round % 2 ? count - 1 - k : k);
            if (!c->done) left -= coroutine_resume(c);
        }
        if (round > 20000 && before == left) { /* a barrier that not all reach */
            for (unsigned t = 0; t < count; t++) coroutines[t].started = false;
            return false;
        }
    }
    return true;
}
#endif
