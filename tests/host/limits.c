/* Limits of waits on the CPU: they count neither while the process is stopped, nor while the wave that is waited for
   does not get a processor; and they end waits for tiles that compute or sleep without an end. */
// run: asan
// run: plain
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "implementation.h"

#include "fleet_sched.h"
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS ((uint64_t)1000000)
#define BURN_NS (60 * MS)
#define TASKS 6u
#define STEPS 3u

/* ---- a graph, one of whose tasks takes long ---- */

typedef enum delay {
    DELAY_STOPPED,  /* until the process has been stopped */
    DELAY_BURNS,    /* BURN_NS of a processor's time */
    DELAY_COMPUTES, /* until the run has ended: without the kit's functions */
    DELAY_SLEEPS
} delay;

/* What parent, child and tiles share. */
typedef struct shared {
    uint32_t lingers; /* the slow task has begun */
    uint32_t over;    /* the run has ended */
    uint32_t runs;
} shared;

typedef struct slow {
    shared *s;
    uint32_t kind;
} slow;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
static void sleep_ns(uint64_t ns)
{
    struct timespec pause;
    pause.tv_sec = (time_t)(ns / 1000000000u), pause.tv_nsec = (long)(ns % 1000000000u);
    nanosleep(&pause, NULL);
}

static void slow_wait(const slow *args)
{
    uint64_t last = clock_ns(CLOCK_MONOTONIC), now;
    const uint64_t begun = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    __atomic_store_n(&args->s->lingers, 1, __ATOMIC_RELAXED);
    switch (args->kind) {
    case DELAY_STOPPED:
        for (; (now = clock_ns(CLOCK_MONOTONIC)) - last < 250 * MS; last = now) sleep_ns(MS);
        sleep_ns(50 * MS); /* the others look at the clock */
        break;
    case DELAY_BURNS:
        while (clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun < BURN_NS) {
        }
        break;
    case DELAY_COMPUTES:
        while (!__atomic_load_n(&args->s->over, __ATOMIC_RELAXED)) {
        }
        break;
    case DELAY_SLEEPS:
        while (!__atomic_load_n(&args->s->over, __ATOMIC_RELAXED)) sleep_ns(MS);
        break;
    default:
        break;
    }
}

FLEET_TILE(first, slow)
{
    if (ctx.thread == 0 && at[0] == 0 && ctx.epoch == 2) slow_wait(args);
    __atomic_fetch_add(&args->s->runs, ctx.thread == 0, __ATOMIC_RELAXED);
    return FLEET_OK;
}
FLEET_TILE(second, slow)
{
    FLEET_UNUSED(at);
    __atomic_fetch_add(&args->s->runs, ctx.thread == 0, __ATOMIC_RELAXED);
    return FLEET_OK;
}
#define SLOW_TILES(TILE, P) TILE(P, first) TILE(P, second)
FLEET_MEGAKERNEL(slow, SLOW_TILES, FLEET_ANY_THREADS(64))

typedef struct slow_run {
    fleet_session session;
    fleet_graph *graph;
    slow args;
} slow_run;

static void run_begin(slow_run *run, fleet_schedule schedule, uint32_t waves, shared *s,
                      uint32_t kind, uint64_t limit_ns)
{
    fleet_session_desc desc = fleet_session_desc_default();
    fleet_graph *g = run->graph = fleet_graph_create(NULL);
    const fleet_dim n = fleet_dim_of(TASKS);
    const fleet_etensor e = fleet_event_tensor(g, "E", fleet_shape0(), FLEET_COUNT_DERIVED);
    const fleet_grid a = fleet_call_device(g, "first", slow_first, fleet_shape1(n), 0),
                     b = fleet_call_device(g, "second", slow_second, fleet_shape1(n), 0);
    fleet_out_edge(g, a, e, "i->");
    fleet_in_edge(g, b, e, "i->");
    desc.plan.topology = fleet_topology_make(2, 3 + (schedule == FLEET_SCHEDULE_CHIPLET));
    desc.plan.topology.units[1] -= 1;
    desc.plan.topology.private_l2 = 0;
    desc.plan.schedule = schedule;
    desc.launch.steps = STEPS, desc.launch.limit_ns = limit_ns, desc.launch.host.waves = waves;
    run->args.s = s, run->args.kind = kind;
    fleet_session_open(&run->session, g, &desc, FLEET_KERNEL_OF(slow_kernel));
}
static fleet_status run_end(slow_run *run)
{
    fleet_status status;
    fleet_session_run(&run->session, &run->args, sizeof run->args);
    status = fleet_session_wait(&run->session);
    fleet_session_close(&run->session);
    fleet_graph_destroy(run->graph);
    return status;
}
/* In a child, which ends with the status. */
static void run_and_exit(fleet_schedule schedule, uint32_t waves, shared *s, uint32_t kind,
                         uint64_t limit_ns)
{
    slow_run run;
    run_begin(&run, schedule, waves, s, kind, limit_ns);
    _exit((int)run_end(&run));
}

static shared *shared_memory(uint32_t n)
{
    void *memory =
        mmap(NULL, n * sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    return (shared *)memory;
}

/* ---- the process is stopped ---- */

#define SETTINGS 6u /* three schedules, with one wave and with two */

/* A child for each setting. Each is stopped while its slow task runs, as long as a limit lasts three times. */
static void a_stopped_process_goes_on(test_run *t)
{
    const uint64_t limit = 300 * MS;
    shared *s = shared_memory(SETTINGS);
    pid_t child[SETTINGS];
    fflush(stdout);
    for (uint32_t i = 0; i < SETTINGS; i++) {
        child[i] = fork();
        if (child[i] == 0)
            run_and_exit((fleet_schedule)(i % 3), 1 + i / 3, &s[i], DELAY_STOPPED, limit);
    }
    for (uint32_t i = 0; i < SETTINGS; i++)
        while (!__atomic_load_n(&s[i].lingers, __ATOMIC_RELAXED)) sleep_ns(MS);
    sleep_ns(50 * MS); /* the others have come to wait */
    for (uint32_t i = 0; i < SETTINGS; i++) kill(child[i], SIGSTOP);
    sleep_ns(3 * limit);
    for (uint32_t i = 0; i < SETTINGS; i++) kill(child[i], SIGCONT);
    for (uint32_t i = 0; i < SETTINGS; i++) {
        int status = 0;
        waitpid(child[i], &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) || s[i].runs != 2 * TASKS * STEPS)
            test_fail(
                t, __FILE__, __LINE__, "schedule %u, %u waves: %s, %u tasks ran", i % 3, 1 + i / 3,
                WIFEXITED(status) ? fleet_status_name((fleet_status)WEXITSTATUS(status)) : "killed",
                s[i].runs);
    }
    munmap(s, SETTINGS * sizeof *s);
}

/* ---- the machine is busy ---- */

#define OTHERS 8u

static void keep_to_one_processor(void)
{
    cpu_set_t set, one;
    sched_getaffinity(0, sizeof set, &set);
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &set)) CPU_SET(i, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* Eight other processes compute on the only processor: the slow task gets a ninth of it, and takes twice the limit. */
static void a_wave_without_a_processor_is_waited_for(test_run *t)
{
    shared *s = shared_memory(1);
    pid_t child;
    int status = 0;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        keep_to_one_processor();
        for (uint32_t i = 0; i < OTHERS; i++)
            if (fork() == 0) {
                while (!__atomic_load_n(&s->over, __ATOMIC_RELAXED)) {
                }
                _exit(0);
            }
        run_and_exit(FLEET_SCHEDULE_STATIC, 1, s, DELAY_BURNS, 270 * MS);
    }
    waitpid(child, &status, 0);
    __atomic_store_n(&s->over, 1, __ATOMIC_RELAXED); /* the others end */
    if (!WIFEXITED(status) || WEXITSTATUS(status) || s->runs != 2 * TASKS * STEPS)
        test_fail(t, __FILE__, __LINE__, "%s, %u tasks ran",
                  WIFEXITED(status) ? fleet_status_name((fleet_status)WEXITSTATUS(status))
                                    : "killed",
                  s->runs);
    munmap(s, sizeof *s);
}

/* ---- tiles without an end ---- */

/* Tells the slow task to end when the host has seen that a wait failed. */
static void *ender(void *run_)
{
    slow_run *run = (slow_run *)run_;
    fleet_failure f;
    while (!__atomic_load_n(&run->args.s->lingers, __ATOMIC_RELAXED)) sleep_ns(MS);
    while (!fleet_state_failure(&run->session.state, &f)) sleep_ns(MS);
    __atomic_store_n(&run->args.s->over, 1, __ATOMIC_RELAXED);
    return NULL;
}
static void tiles_without_an_end_are_found(test_run *t)
{
    for (uint32_t i = 0; i < 6 && !t->failed_here; i++) {
        const uint32_t kind = i / 3 ? DELAY_SLEEPS : DELAY_COMPUTES;
        shared *s = shared_memory(1);
        slow_run run;
        pthread_t thread;
        fleet_status status;
        run_begin(&run, (fleet_schedule)(i % 3), 1, s, kind, 50 * MS);
        CHECK(!pthread_create(&thread, NULL, ender, &run));
        status = run_end(&run);
        pthread_join(thread, NULL);
        munmap(s, sizeof *s);
        CHECK_INT(status, FLEET_ERROR_TIMEOUT);
    }
}

static void whole_limits(test_run *t)
{
    TEST(a_stopped_process_goes_on);
    TEST(a_wave_without_a_processor_is_waited_for);
    TEST(tiles_without_an_end_are_found);
}
TEST_MAIN(whole_limits)
