/* What a program may do while a launch stays: open another session, run it, close it by fleet_session_leave; read the
   report; bind a symbol of the other session. Calls that wait for the whole device would not return, and an alarm says
   which. With FLEET_TEST_FACTS set it also tells which calls of the runtime wait, for the manual. */
// run: asan
// run: tsan
#if !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE /* alarm, setenv */
#endif
#include "settings.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#if defined(FLEET_HIP)
#define API(name) hip##name
#elif defined(FLEET_CUDA)
#define API(name) cuda##name
#endif

typedef struct job {
    uint32_t *words; /* pinned: that wakes the boundary, how often it has waited, 1: it ends */
    uint32_t *runs;
} job;
FLEET_TILE(boundary, job)
{
    const uint32_t seen = fleet_load_relaxed_system(args->words + 32);
    fleet_status status;
    fleet_barrier(&ctx);
    if (ctx.thread == 0) fleet_store_relaxed_system(args->words + 32, seen + 1);
    status = fleet_idle(&ctx, args->words, seen);
    if (status) return status;
    return fleet_load_relaxed_system(args->words + 64) ? fleet_finish(&ctx) : FLEET_OK;
}
FLEET_TILE(count, job)
{
    if (ctx.thread == 0) fleet_add_relaxed_device(args->runs + at[0], 1);
    return FLEET_OK;
}
#define JOB_TILES(TILE, P) TILE(P, boundary) TILE(P, count)
FLEET_MEGAKERNEL(job, JOB_TILES, FLEET_ANY_THREADS(64))

#define TASKS 8

static const char *volatile doing = "";
static void told_too_late(int signal)
{
    const char *const parts[] = {"FAIL another_session_lives_beside_a_launch_that_stays: ", doing,
                                 " does not return\n"};
    (void)signal;
    for (int i = 0; i < 3; i++)
        if (write(1, parts[i], strlen(parts[i])) < 0) break;
    _exit(1);
}

static fleet_stream stream_of_its_own(test_run *t)
{
    fleet_stream stream = NULL;
#if !defined(FLEET_HOST)
    if (API(StreamCreateWithFlags)(&stream, API(StreamNonBlocking)))
        test_fail(t, __FILE__, __LINE__, "no stream");
#else
    (void)t;
#endif
    return stream;
}

typedef struct stand {
    fleet_session s;
    job args;
    void *pinned;
    fleet_status launched;
    pthread_t thread;
} stand;

static int open_session(test_run *t, fleet_session *s, uint32_t stays, const fleet_topology *chip)
{
    fleet_session_desc d = fleet_session_desc_default();
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim n = fleet_symbol(g, "n", 1, TASKS);
    fleet_status status;
    d.plan.topology = *chip;
    d.plan.workers_per_chiplet = 1;
    d.launch.stream = stream_of_its_own(t);
    fleet_call_device(g, stays ? "boundary" : "count", stays ? job_boundary : job_count,
                      stays ? fleet_shape0() : fleet_shape1(n), 0);
    if (stays) d.launch.steps = FLEET_STEPS_ENDLESS, d.launch.finish = 1;
    status = fleet_session_open(s, g, &d, FLEET_KERNEL_OF(job_kernel));
    if (!status && !stays) status = fleet_bind(&s->state, "n", TASKS - 1, s->launch.stream);
    if (!status && stays) status = fleet_bind(&s->state, "n", 1, s->launch.stream);
    if (status)
        test_fail(t, __FILE__, __LINE__, "%s: %s", fleet_status_name(status), fleet_graph_error(g));
    fleet_graph_destroy(g);
    return !status;
}

static void *launch_it(void *o_)
{
    stand *o = (stand *)o_;
    o->launched = fleet_session_run(&o->s, &o->args, sizeof o->args);
    return NULL;
}
/* Begins a launch that stays, and waits until it does; on the CPU it needs a thread. */
static int begin_stay(test_run *t, stand *o, const fleet_topology *chip)
{
    void *device;
    const uint64_t since = now_ns();
    memset(o, 0, sizeof *o);
    if (!open_session(t, &o->s, 1, chip) || fleet_pinned_alloc(&o->pinned, &device, 512)) return 0;
    memset(o->pinned, 0, 512);
    o->args.words = (uint32_t *)device;
#if defined(FLEET_HOST)
    if (pthread_create(&o->thread, NULL, launch_it, o)) return 0;
#else
    launch_it(o);
#endif
    while (!__atomic_load_n((uint32_t *)o->pinned + 32, __ATOMIC_ACQUIRE))
        if (now_ns() - since > 20000000000u) return 0;
    return 1;
}
static void end_stay(test_run *t, stand *o)
{
    doing = "the end of the launch";
    __atomic_store_n((uint32_t *)o->pinned + 64, 1, __ATOMIC_RELEASE);
    fleet_wake((uint32_t *)o->pinned);
#if defined(FLEET_HOST)
    pthread_join(o->thread, NULL);
#endif
    CHECK_STATUS(o->launched, FLEET_OK);
    CHECK_STATUS(fleet_session_wait(&o->s), FLEET_OK);
    doing = "the close of the session that stayed";
    fleet_session_close(&o->s);
    fleet_pinned_free(o->pinned);
}

static void run_another(test_run *t, fleet_session *s)
{
    uint32_t runs[TASKS];
    job args;
    memset(&args, 0, sizeof args);
    doing = "fleet_session_alloc";
    args.runs = (uint32_t *)fleet_session_alloc(s, sizeof runs);
    CHECK(args.runs != NULL);
    doing = "fleet_device_clear";
    CHECK_STATUS(fleet_device_clear(args.runs, sizeof runs, s->launch.stream), FLEET_OK);
    doing = "fleet_session_run";
    CHECK_STATUS(fleet_session_run(s, &args, sizeof args), FLEET_OK);
    doing = "fleet_bind";
    CHECK_STATUS(fleet_bind(&s->state, "n", TASKS, s->launch.stream), FLEET_OK);
    CHECK_STATUS(fleet_session_run(s, &args, sizeof args), FLEET_OK);
    doing = "fleet_session_wait";
    CHECK_STATUS(fleet_session_wait(s), FLEET_OK);
    doing = "fleet_to_host";
    CHECK_STATUS(fleet_to_host(runs, args.runs, sizeof runs, s->launch.stream), FLEET_OK);
    for (uint32_t i = 0; i < TASKS; i++) CHECK_INT(runs[i], i + 1 < TASKS ? 2 : 1);
}

static void another_session_lives_beside_a_launch_that_stays(test_run *t)
{
    static stand o;
    static char report[2048];
    fleet_session other;
    fleet_topology chip;
    signal(SIGALRM, told_too_late);
    setenv("AMDSIM_COOPERATIVE", "2", 1); /* as ROCm has it, on a simulated GPU */
    alarm(120);
    CHECK_STATUS(fleet_topology_query(&chip), FLEET_OK);
    CHECK(open_session(t, &other, 0, &chip)); /* its kernel is loaded */
    run_another(t, &other);
    fleet_session_close(&other);
    CHECK(!t->failed_here && begin_stay(t, &o, &chip));
    for (uint32_t i = 0; i < 3 && !t->failed_here; i++) {
        doing = "fleet_session_open";
        CHECK(open_session(t, &other, 0, &chip));
        run_another(t, &other);
        doing = "fleet_session_leave";
        CHECK_STATUS(fleet_session_leave(&other, &other), FLEET_ERROR_ARGUMENT);
        CHECK_STATUS(fleet_session_leave(&other, NULL), FLEET_ERROR_NULL);
        CHECK_STATUS(fleet_session_leave(&other, &o.s), FLEET_OK);
        CHECK(!other.plan && !other.memory && !other.state.device);
        fleet_session_close(&other); /* as after a close */
        doing = "fleet_state_report";
        CHECK(fleet_state_report(&o.s.state, report, sizeof report) > 0);
    }
    end_stay(t, &o);
    alarm(0);
}

/* ---- which calls wait ---- */

static fleet_session victim;
static void *memory[2], *memory_device;
static fleet_topology found;

static void call_nothing(void) {}
static void call_alloc(void)
{
    (void)fleet_device_alloc(&memory[0], 1 << 20);
}
static void call_pinned(void)
{
    (void)fleet_pinned_alloc(&memory[1], &memory_device, 1 << 16);
}
static void call_free(void)
{
    fleet_device_free(memory[0]);
}
static void call_pinned_free(void)
{
    fleet_pinned_free(memory[1]);
}
static void call_bind(void)
{
    (void)fleet_bind(&victim.state, "n", 2, victim.launch.stream);
}
static void call_query(void)
{
    (void)fleet_topology_query(&found);
}
static void call_close(void)
{
    fleet_session_close(&victim);
}
typedef struct fact {
    const char *name;
    void (*call)(void);
    int returned;
} fact;
static void *call_it(void *f_)
{
    fact *f = (fact *)f_;
    f->call();
    __atomic_store_n(&f->returned, 1, __ATOMIC_RELEASE);
    return NULL;
}
static void which_calls_wait(test_run *t)
{
    static fact facts[] = {
        {"nothing", call_nothing, 0},
        {"fleet_device_alloc", call_alloc, 0},
        {"fleet_pinned_alloc", call_pinned, 0},
        {"fleet_bind of another session", call_bind, 0},
        {"fleet_topology_query", call_query, 0},
        {"fleet_device_free", call_free, 0},
        {"fleet_pinned_free", call_pinned_free, 0},
        {"fleet_session_close of another session", call_close, 0},
    };
    fleet_topology chip;
    CHECK_STATUS(fleet_topology_query(&chip), FLEET_OK);
    CHECK(open_session(t, &victim, 0, &chip));
    for (uint32_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        static stand o;
        const uint64_t since = now_ns();
        pthread_t thread;
        int early;
        CHECK(begin_stay(t, &o, &chip));
        CHECK(!pthread_create(&thread, NULL, call_it, &facts[i]));
        while (!(early = __atomic_load_n(&facts[i].returned, __ATOMIC_ACQUIRE)) &&
               now_ns() - since < 3000000000u) {
        }
        __atomic_store_n((uint32_t *)o.pinned + 64, 1, __ATOMIC_RELEASE);
        fleet_wake((uint32_t *)o.pinned);
        pthread_join(thread, NULL);
        printf("    %s %s\n", facts[i].name, early ? "returns" : "waits for the launch");
        end_stay(t, &o);
    }
}

static void list(test_run *t)
{
    TEST(another_session_lives_beside_a_launch_that_stays);
    if (getenv("FLEET_TEST_FACTS")) TEST(which_calls_wait);
}

TEST_MAIN(list)
