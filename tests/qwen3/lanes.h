/* What runs the lanes of emulated workgroups (emulated.c), and where they meet. Under ThreadSanitizer each lane is a thread,
   so that it finds races. Otherwise lanes are coroutines of one thread: threads that meet at each shuffle spend most of their
   time in falling asleep and waking up. Where a lane stops, one of those that can run goes on, drawn from FLEET_TEST_SEED.

   Include it after the kit's implementation, whose flags for mmap it needs in strict C11. */
#ifndef TESTS_QWEN3_LANES_H
#define TESTS_QWEN3_LANES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__SANITIZE_THREAD__)

#include <pthread.h>
#include <sched.h>

typedef struct runner { /* of a lane */
    void (*function)(void *of);
    void *of;
    pthread_t thread;
} runner;

typedef pthread_barrier_t meeting_point;
static void point_open(meeting_point *p, uint32_t lanes)
{
    pthread_barrier_init(p, NULL, lanes);
}
static void point_close(meeting_point *p)
{
    pthread_barrier_destroy(p);
}
static void point_wait(meeting_point *p)
{
    pthread_barrier_wait(p);
}
static void lane_yield(void)
{
    sched_yield();
}

static void *runner_main(void *of)
{
    const runner *r = (const runner *)of;
    r->function(r->of);
    return NULL;
}
static void run_lanes(runner **lanes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (pthread_create(&lanes[i]->thread, NULL, runner_main, lanes[i])) abort();
    for (uint32_t i = 0; i < n; i++) pthread_join(lanes[i]->thread, NULL);
}

#else

#include "contexts.h"

#include <sys/mman.h>
#include <ucontext.h>

#define MOST_LANES 2048u
#define LANE_STACK_BYTES 262144u
#define LANE_GUARD_BYTES 4096u

typedef struct runner { /* of a lane */
    void (*function)(void *of);
    void *of;
    struct runner *next; /* of those that wait at the same point */
    ucontext_t context;
} runner;

typedef struct meeting_point {
    uint32_t lanes, here;
    runner *waiting;
} meeting_point;

static runner *running, *can_run[MOST_LANES]; /* the one that runs is not among them */
static uint32_t n_can_run, n_running;         /* n_running: have not ended */
static uint64_t lanes_rng;
static ucontext_t lanes_home;

/* Takes one from those that can run. */
static runner *next_runner(void)
{
    uint32_t i;
    runner *next;
    lanes_rng = lanes_rng * 6364136223846793005ull + 1442695040888963407ull;
    i = (uint32_t)(lanes_rng >> 33) % n_can_run;
    next = can_run[i];
    can_run[i] = can_run[--n_can_run];
    return next;
}
static void run_another(void)
{
    runner *from = running;
    if (n_can_run) {
        running = next_runner();
        if (running != from) swapcontext(&from->context, &running->context);
    } else {
        swapcontext(&from->context, &lanes_home);
    }
}
static void lane_yield(void)
{
    can_run[n_can_run++] = running;
    run_another();
}

static void point_open(meeting_point *p, uint32_t lanes)
{
    p->lanes = lanes, p->here = 0, p->waiting = NULL;
}
static void point_close(meeting_point *p)
{
    if (p->here) abort();
}
static void point_wait(meeting_point *p)
{
    if (++p->here == p->lanes) {
        for (; p->waiting; p->waiting = p->waiting->next) can_run[n_can_run++] = p->waiting;
        p->here = 0;
        lane_yield();
    } else {
        running->next = p->waiting, p->waiting = running;
        run_another();
    }
}

static void runner_main(void)
{
    running->function(running->of);
    n_running--;
    setcontext(&lanes_home);
}
static void prepare(ucontext_t *c, char *stack)
{
    if (getcontext(c)) abort();
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = LANE_STACK_BYTES;
    c->uc_link = NULL;
    makecontext(c, runner_main, 0);
    c->uc_stack.ss_size = 0; /* else AddressSanitizer forgets the lane's variables at each switch */
}
static void run_lanes(runner **lanes, uint32_t n)
{
    static char *stacks;
    const size_t each = LANE_GUARD_BYTES + LANE_STACK_BYTES;
    if (!stacks) {
        const char *seed = getenv("FLEET_TEST_SEED");
        void *memory =
            mmap(NULL, MOST_LANES * each, PROT_READ | PROT_WRITE, FLEETI_MAP_FLAGS, -1, 0);
        if (memory == MAP_FAILED) abort();
        stacks = (char *)memory;
        for (uint32_t i = 0; i < MOST_LANES; i++)
            if (mprotect(stacks + i * each, LANE_GUARD_BYTES, PROT_NONE)) abort();
        lanes_rng = seed ? strtoul(seed, NULL, 10) : 1;
    }
    if (n > MOST_LANES) abort();
    for (uint32_t i = 0; i < n; i++) {
        prepare(&lanes[i]->context, stacks + i * each + LANE_GUARD_BYTES);
        can_run[i] = lanes[i];
    }
    n_can_run = n_running = n;
    while (n_running) { /* here when a lane has ended, or none can run */
        if (!n_can_run) {
            printf("FAIL lanes: all that are left wait for others\n");
            exit(1);
        }
        running = next_runner();
        swapcontext(&lanes_home, &running->context);
    }
}

#endif

#endif
