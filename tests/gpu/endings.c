/* Each loop on the device that may turn for ever (tables LOOPS) is entered, and what it waits for never comes: an
   abort, the limit of a launch, or its last step ends it. A launch that does not end fails its test, and ends the program. */
// run: asan engine=both whole
// run: tsan whole
// hip: 3 runs
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* usleep */
#endif
#include "settings.h"
#include "examples/parts/fleet_server.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#define PATIENCE_NS 60000000000ull /* on a loaded machine, or a simulated one */
/* A limit that a busy machine does not reach by itself. Time on a simulator is instructions. */
#if defined(FLEET_HIP)
#define LIMIT_NS 200000ull
#define SHAPES 1
#define RANDOM_GRAPHS 5u
#elif defined(FLEET_CUDA)
#define LIMIT_NS 30000000ull
#define SHAPES 2
#define RANDOM_GRAPHS 50u
#else
#define LIMIT_NS 200000000ull
#define SHAPES 3
#if defined(__SANITIZE_THREAD__)
#define RANDOM_GRAPHS 50u
#else
#define RANDOM_GRAPHS 150u /* by turns */
#endif
#endif
#define AT_MOST 4

typedef struct job { /* what every tile sees */
    const uint32_t *weights;
    uint32_t
        *runs; /* [0] of `take`, [1] of other tiles, [2] of the writer: stored by one thread each */
    uint32_t last;         /* the step that ends the run; 0: none does */
    const uint32_t *never; /* a word of the host's that does not change */
} job;

FLEET_DEVICE fleet_status ran(const fleet_ctx *ctx, const job *args, uint32_t which)
{
    if (ctx->thread == 0) fleet_add_relaxed_device(args->runs + which, 1);
    return args->last && ctx->step + 1 == args->last ? fleet_finish(ctx) : FLEET_OK;
}
FLEET_PRODUCER(take, job)
{
    FLEET_UNUSED(at);
    fleet_producer_copy(producer, args->weights, 16);
}
FLEET_TILE(take, job)
{
    fleet_consumer consumer = fleet_consumer_open(&ctx);
    if (!fleet_stage_acquire(&consumer)) return fleet_consumer_status(&consumer);
    fleet_stage_release(&consumer, ctx.threads / fleet_wave_size());
    return ran(&ctx, args, 0);
}
FLEET_TILE(other, job)
{
    return ran(&ctx, args, 1);
}
/* Waits for the host, or for another rank, which do not come. */
FLEET_TILE(idle, job)
{
    FLEET_UNUSED(at);
    return fleet_idle(&ctx, args->never, 0);
}
FLEET_TILE(flagged, job)
{
    fleet_quad words;
    FLEET_UNUSED(at);
    return fleet_await_flagged(&ctx, (const fleet_quad *)(const void *)args->weights, 1, 0, &words);
}
FLEET_TILE(rest, job)
{
    if (ctx.thread == 0) fleet_add_relaxed_device(args->runs + 1, 1);
    return FLEET_OK;
}
#define JOB_TILES(TILE, P) TILE(P, take) TILE(P, other) TILE(P, idle) TILE(P, flagged) TILE(P, rest)
#define JOB_STREAMS(TILE, P) TILE(P, take)
FLEET_DISPATCH_WITH_PIPELINE(job, JOB_TILES, JOB_STREAMS, 4, 1024)
FLEET_KERNEL(job_kernel, job, FLEET_ANY_THREADS(128))
{
    FLEET_WORKER_LOOP(job);
}
/* The first workgroup does not come. */
FLEET_KERNEL(job_incomplete, job, FLEET_ANY_THREADS(128))
{
    if (fleet_block_id() == 0) return;
    FLEET_WORKER_LOOP(job);
}

typedef struct stand {
    fleet_session s;
    job args;
    void *weights, *runs, *never;
    fleet_status status;
    uint32_t over;
    pthread_t thread;
} stand;

static int stand_open_with(test_run *t, stand *o, const setting *setting, fleet_graph *g,
                           const fleet_session_desc *desc, fleet_kernel kernel)
{
    fleet_session_desc d = *desc;
    void *never;
    memset(o, 0, sizeof *o);
    d.state = setting_state_desc(setting);
    if (fleet_session_open(&o->s, g, &d, kernel))
        test_fail(t, __FILE__, __LINE__, "%s: %s", fleet_graph_error(g), o->s.message);
    if (t->failed_here) return 0;
    fleet_graph_destroy(g);
    NEED_STATUS(fleet_pinned_alloc(&o->never, &never, 256), FLEET_OK);
    memset(o->never, 0, 256);
    o->args.never = (const uint32_t *)never;
    NEED_STATUS(fleet_device_alloc(&o->weights, 1024), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&o->runs, 256), FLEET_OK);
    NEED_STATUS(fleet_device_clear(o->weights, 1024, NULL), FLEET_OK);
    NEED_STATUS(fleet_device_clear(o->runs, 256, NULL), FLEET_OK);
    o->args.weights = (const uint32_t *)o->weights;
    o->args.runs = (uint32_t *)o->runs;
    return 1;
}
static int stand_open(test_run *t, stand *o, const setting *setting, fleet_graph *g,
                      const fleet_session_desc *desc)
{
    return stand_open_with(t, o, setting, g, desc, FLEET_KERNEL_OF(job_kernel));
}
static void stand_close(stand *o)
{
    fleet_session_close(&o->s);
    fleet_pinned_free(o->never);
    fleet_device_free(o->weights);
    fleet_device_free(o->runs);
}
static fleet_session_desc desc_of(const setting *s)
{
    fleet_session_desc d = fleet_session_desc_default();
    d.plan = setting_plan_desc(s);
    d.launch = setting_launch_desc(s);
    d.launch.threads = 0;
#if defined(FLEET_HIP) /* which may be simulated */
    d.plan.workers_per_chiplet = 2;
#endif
    return d;
}

static void *stand_thread(void *stand_)
{
    stand *o = (stand *)stand_;
    o->status = fleet_session_run(&o->s, &o->args, sizeof o->args);
    if (!o->status) o->status = fleet_session_wait(&o->s);
    __atomic_store_n(&o->over, 1, __ATOMIC_RELEASE);
    return NULL;
}
/* Recovers the state before the host goes on: in stream order alone it would also take back an abort that comes soon, and the
   epoch would be that of before. */
static fleet_status stand_recover(stand *o)
{
    const fleet_status status = fleet_state_recover(&o->s.state, NULL);
    return status ? status : fleet_stream_wait(NULL);
}
static int stand_over(const stand *o)
{
    return __atomic_load_n(&o->over, __ATOMIC_ACQUIRE) != 0;
}

static void does_not_end(test_run *t, const setting *s)
{
    test_fail(t, __FILE__, __LINE__, "the run does not end");
    setting_print(s);
    fflush(stdout);
    _exit(1);
}

/* The deterministic engine knows at once that nothing can come. */
static int is_deadlock(fleet_host_engine engine, fleet_status status, fleet_status want)
{
    return engine == FLEET_ENGINE_DETERMINISTIC && want && status == FLEET_ERROR_DEADLOCK;
}

/* The ends of a run. */
typedef enum ending { LAST_STEP, ABORT, LIMIT } ending;

/* Runs until it ends; aborts it after a while. Returns 0 if it did not end as it should. */
static int stand_ends(test_run *t, const setting *s, stand *o, ending how, uint64_t after_ns,
                      fleet_status want)
{
    const uint64_t since = now_ns();
    int asked = how != ABORT;
    o->over = 0;
    NEED(!pthread_create(&o->thread, NULL, stand_thread, o));
    while (!stand_over(o)) {
        const uint64_t passed = now_ns() - since;
        if (!asked && passed >= after_ns) {
            fleet_state_abort(&o->s.state);
            asked = 1;
        }
        if (passed > PATIENCE_NS) does_not_end(t, s);
        usleep(200);
    }
    pthread_join(o->thread, NULL);
    if (want == FLEET_STATUS_COUNT)
        want = o->status == FLEET_ERROR_ABORTED ? FLEET_ERROR_ABORTED : FLEET_OK;
    if (!is_deadlock(s->engine, o->status, want)) NEED_STATUS(o->status, want);
    if (want) NEED_STATUS(stand_recover(o), FLEET_OK);
    return 1;
}

/* ---- endless launches without work ---- */

typedef enum lack {
    NO_LACK,
    BELOW_THE_BUCKET, /* all but one task of each grid are absent: a worker has none of those */
    NONE_PRESENT,     /* all are absent but the one that counts steps */
    NO_TASK,          /* all are absent */
    WAVES_ALONE,      /* only the first worker has a task with stages */
    LACKS
} lack;

/* A launch whose producers have nothing to do on most workers. */
static void run_lacking(test_run *t, const setting *s, void *lack_)
{
    const lack kind = *(const lack *)lack_;
    fleet_session_desc d = desc_of(s);
    fleet_graph *g = fleet_graph_create(NULL);
    const int64_t most = AT_MOST * 8;
    const fleet_dim rows = fleet_symbol(g, "n", 0, (int32_t)most);
    fleet_grid more;
    stand o;
    uint32_t how, begin;
    fleet_grid takes = fleet_call_device(
        g, "take", job_take, kind == WAVES_ALONE ? fleet_shape1_of(1) : fleet_shape1(rows), 0);
    setting_mix(s, g, takes, 0);
    more = fleet_call_device(
        g, "other", job_other,
        kind >= NONE_PRESENT && kind <= NO_TASK ? fleet_shape1(rows) : fleet_shape1_of(AT_MOST), 0);
    if (kind == WAVES_ALONE) fleet_grid_level(g, more, FLEET_LEVEL_WAVE);
    if (kind == NONE_PRESENT) (void)fleet_call_device(g, "steps", job_other, fleet_shape1_of(1), 0);
    fleet_buckets_at_build(&d.plan, rows, &most, 1);
    d.launch.steps = FLEET_STEPS_ENDLESS;
    d.launch.finish = 1;
    d.launch.limit_ns = PATIENCE_NS;
    if (!stand_open(t, &o, s, g, &d)) return;
    CHECK_STATUS(fleet_bind(&o.s.state, "n",
                            kind == NO_LACK        ? most
                            : kind >= NONE_PRESENT ? 0
                                                   : 1,
                            NULL),
                 FLEET_OK);
    begin = fleet_state_epoch(&o.s.state);
    for (how = kind == NO_TASK ? ABORT : LAST_STEP; how <= ABORT; how++) {
        o.args.last = how == LAST_STEP ? 3 : 0;
        if (!stand_ends(t, s, &o, (ending)how, 3000000,
                        how == ABORT ? FLEET_ERROR_ABORTED : FLEET_OK))
            return;
        if (how == LAST_STEP) CHECK_INT(fleet_state_epoch(&o.s.state), begin + 3);
        if (s->schedule == FLEET_SCHEDULE_STATIC) o.s.launch.steps = 100000000;
    }
    stand_close(&o);
}
static void endless_without_work(test_run *t)
{
    uint32_t kind;
    for (kind = 0; kind < LACKS && !t->failed_here; kind++) {
        lack l = (lack)kind;
        in_settings(t, SHAPES, run_lacking, &l);
        if (t->failed_here) printf("    lack %u\n", kind);
    }
}

/* ---- random runs ---- */

/* Grids of all levels, with and without stages, some with absent tasks, in random order. *owed: an event never comes. */
static fleet_graph *random_graph(const setting *s, fleet_session_desc *d, uint64_t *seed,
                                 uint32_t *owed)
{
    static const fleet_level levels[] = {FLEET_LEVEL_CU, FLEET_LEVEL_CU, FLEET_LEVEL_WAVE,
                                         FLEET_LEVEL_CHIPLET, FLEET_LEVEL_DEVICE};
    static const int64_t most = 8;
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim rows = fleet_symbol(g, "n", 0, (int32_t)most);
    const uint32_t n = 1 + draw(seed, 6);
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g"};
    fleet_grid grids[7];
    uint32_t i;
    for (i = 0; i <= n; i++) { /* the last one counts steps */
        const uint32_t takes = i < n && draw(seed, 2), all = 1 + draw(seed, 9);
        const fleet_level level = takes || i == n ? FLEET_LEVEL_CU : levels[draw(seed, 5)];
        grids[i] = fleet_call_device(g, names[i],
                                     i == n  ? (uint32_t)job_other
                                     : takes ? (uint32_t)job_take
                                             : (uint32_t)job_rest,
                                     i == n          ? fleet_shape1_of(1)
                                     : draw(seed, 3) ? fleet_shape1_of((int32_t)all)
                                                     : fleet_shape1(rows),
                                     0);
        fleet_grid_level(g, grids[i], level);
        setting_mix(s, g, grids[i], i);
        if (i && draw(seed, 2)) fleet_after(g, grids[i], grids[draw(seed, i)]);
    }
    *owed = draw(seed, 8) == 0 && !s->mixed;
    if (*owed) {
        const fleet_etensor e = fleet_event_tensor(g, "owed", fleet_shape0(), FLEET_COUNT_DERIVED);
        fleet_event_external(g, e, FLEET_EXTERNAL_NOTIFIES, 1, FLEET_SCOPE_DEVICE);
        fleet_in_edge(g, grids[n], e, "i->");
    }
    fleet_buckets_at_build(&d->plan, rows, &most, 1);
    return g;
}

/* Runs of one graph, which end by a tile, an abort, a limit, or by whatever comes first. Returns whether the graph was one. */
static uint32_t random_run(test_run *t, uint64_t number)
{
    uint64_t seed = number * 0x9e3779b97f4a7c15ull;
    setting s;
    fleet_session_desc d;
    fleet_graph *g;
    stand o;
    uint32_t settings = 0, i, owed, runs = 1 + draw(&seed, 4);
    while (setting_get(settings, TEST_SHAPES, &s)) settings++;
    (void)setting_get(draw(&seed, settings), TEST_SHAPES, &s);
    s.seed = 1 + draw(&seed, 1000000);
    s.waves = 1 + draw(&seed, 3);
    s.mixed = s.schedule == FLEET_SCHEDULE_STATIC && draw(&seed, 2) ? draw(&seed, 256) : 0;
    s.early = s.schedule == FLEET_SCHEDULE_DYNAMIC && draw(&seed, 2);
    s.unfused = s.schedule == FLEET_SCHEDULE_STATIC && !s.mixed && draw(&seed, 8) == 0;
    s.workers = draw(&seed, 3);
    start_at(draw(&seed, START_POINTS));
    d = desc_of(&s);
    g = random_graph(&s, &d, &seed, &owed);
    d.launch.finish = 1;
    d.state = setting_state_desc(&s);
    memset(&o, 0, sizeof o);
    if (fleet_session_open(&o.s, g, &d, FLEET_KERNEL_OF(job_kernel))) {
        if (getenv("FLEET_TEST_VERBOSE")) printf("    %s %s\n", fleet_graph_error(g), o.s.message);
        fleet_session_close(&o.s);
        fleet_graph_destroy(g);
        return 0;
    }
    fleet_session_close(&o.s);
    if (!stand_open(t, &o, &s, g, &d)) return 0;
    if (fleet_bind(&o.s.state, "n", draw(&seed, 9), NULL))
        test_fail(t, __FILE__, __LINE__, "fleet_bind");
    for (i = 0; i < runs && !t->failed_here; i++) {
        const uint32_t begin = fleet_state_epoch(&o.s.state);
        const uint32_t finishes = draw(&seed, 2), aborts = draw(&seed, 2) || !(finishes || owed);
        const uint64_t after = draw(&seed, 4) ? draw(&seed, 300000) : draw(&seed, 5000000);
        fleet_status want = FLEET_OK;
        o.s.launch.steps = draw(&seed, 2) ? FLEET_STEPS_ENDLESS : 30 + draw(&seed, 1u << 20);
        o.s.launch.limit_ns = owed && !aborts ? LIMIT_NS : PATIENCE_NS;
        o.args.last = finishes ? 1 + draw(&seed, 20) : 0;
        if (owed) want = aborts ? FLEET_ERROR_ABORTED : FLEET_ERROR_TIMEOUT;
        if (aborts && !owed) want = FLEET_STATUS_COUNT; /* or else it has come to its end */
        if (stand_ends(t, &s, &o, aborts ? ABORT : LAST_STEP, after, want) && !o.status &&
            fleet_state_epoch(&o.s.state) - begin != (finishes ? o.args.last : o.s.launch.steps))
            test_fail(t, __FILE__, __LINE__, "%u steps have run, not %u",
                      fleet_state_epoch(&o.s.state) - begin,
                      finishes ? o.args.last : o.s.launch.steps);
        /* An abort that came too late is one of the next launch. */
        if (aborts && !o.status && stand_recover(&o))
            test_fail(t, __FILE__, __LINE__, "fleet_state_recover");
    }
    stand_close(&o);
    if (!t->failed_here) return 1;
    setting_print(&s);
    printf("    again: FLEET_TEST_SEED=%llu FLEET_TEST_ENGINE=%s %s random\n",
           (unsigned long long)number, s.engine == FLEET_ENGINE_THREADS ? "threads" : "both",
           t->argv[0]);
    return 0;
}
static void random_runs(test_run *t)
{
    const char *given = getenv("FLEET_TEST_SEED"), *count = getenv("FLEET_TEST_GRAPHS");
    const uint64_t n = count ? strtoull(count, NULL, 10) : deep() ? 5000 : RANDOM_GRAPHS;
    unsigned long long end, seed = test_share(n, &end);
    const uint64_t least = (end - seed) / 2;
    uint32_t ran = 0;
    if (given) seed = strtoull(given, NULL, 10) - 1, end = seed + 1;
    while (seed++ < end && !t->failed_here) {
        ran += random_run(t, seed);
    }
    CHECK(given || ran > least); /* the generator still makes graphs that run */
}

/* ---- waits for what never comes ---- */

/* The end of a run that waits: it is aborted, or its limit passes. */
static int both_endings(test_run *t, const setting *s, stand *o, fleet_status late)
{
    o->s.launch.limit_ns = PATIENCE_NS;
    if (!stand_ends(t, s, o, ABORT, 3000000, FLEET_ERROR_ABORTED)) return 0;
    o->s.launch.limit_ns = LIMIT_NS;
    return !late || stand_ends(t, s, o, LIMIT, 0, late);
}

/* An event to which the host does not arrive: the tasks that wait for it, and all others, which wait for the end of the
   step, for a task or for a mailbox; with `finish` also the ends of queues. */
static void run_owed(test_run *t, const setting *s, void *tile_)
{
    const uint32_t tile = *(const uint32_t *)tile_;
    fleet_session_desc d = desc_of(s);
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_etensor owed = fleet_event_tensor(g, "owed", fleet_shape0(), FLEET_COUNT_DERIVED);
    const fleet_grid waits = fleet_call_device(g, "waits", tile, fleet_shape1_of(2), 0);
    const fleet_grid others = fleet_call_device(g, "others", job_take, fleet_shape1_of(5), 0);
    stand o;
    setting_mix(s, g, waits, 0);
    setting_mix(s, g, others, 1);
    fleet_event_external(g, owed, FLEET_EXTERNAL_NOTIFIES, 1, FLEET_SCOPE_DEVICE);
    fleet_in_edge(g, waits, owed, "i->");
    d.launch.steps = 3;
    d.launch.finish = 1;
    if (!stand_open(t, &o, s, g, &d)) return;
    (void)both_endings(t, s, &o, FLEET_ERROR_TIMEOUT);
    stand_close(&o);
}
static void schedules(test_run *t)
{
    static uint32_t tiles[] = {job_take, job_other};
    uint32_t i;
    for (i = 0; i < 2 && !t->failed_here; i++) in_settings(t, SHAPES, run_owed, &tiles[i]);
}

/* A tile that waits for the host, which has no limit, or for data of another rank. */
static void run_idle(test_run *t, const setting *s, void *tile_)
{
    const uint32_t tile = *(const uint32_t *)tile_;
    fleet_session_desc d = desc_of(s);
    fleet_graph *g = fleet_graph_create(NULL);
    stand o;
    const fleet_grid all = fleet_call_device(g, "waits", tile, fleet_shape1_of(1), 0);
    setting_mix(s, g, all, 0);
    fleet_call_device(g, "other", job_other, fleet_shape1_of(3), 0);
    d.launch.steps = 3;
    if (!stand_open(t, &o, s, g, &d)) return;
    (void)both_endings(t, s, &o, tile == job_idle ? FLEET_OK : FLEET_ERROR_TIMEOUT);
    stand_close(&o);
}
static void idle_tiles(test_run *t)
{
    static uint32_t tiles[] = {job_idle, job_flagged};
    uint32_t i;
    for (i = 0; i < 2 && !t->failed_here; i++) in_settings(t, 1, run_idle, &tiles[i]);
}

/* A worker that waits in its first task, and a scheduler that has more for it than its mailbox holds. */
static void run_room(test_run *t, const setting *s, void *unused)
{
    fleet_session_desc d = desc_of(s);
    fleet_graph *g = fleet_graph_create(NULL);
    stand o;
    (void)unused;
    if (s->schedule != FLEET_SCHEDULE_CHIPLET) {
        fleet_graph_destroy(g);
        return;
    }
    fleet_call_device(g, "waits", job_idle, fleet_shape1_of(1), 0);
    fleet_call_device(g, "other", job_other, fleet_shape1_of(200), 0);
    d.launch.steps = 3;
    if (!stand_open(t, &o, s, g, &d)) return;
    (void)both_endings(t, s, &o, FLEET_OK);
    stand_close(&o);
}
static void room_in_a_mailbox(test_run *t)
{
    in_settings(t, 1, run_room, NULL);
}

/* An ordinary launch with a workgroup that never becomes resident. */
static void run_incomplete(test_run *t, const setting *s, void *unused)
{
    uint32_t how;
    (void)unused;
    for (how = ABORT; how <= LIMIT && !t->failed_here; how++) {
        fleet_session_desc d = desc_of(s);
        fleet_graph *g = fleet_graph_create(NULL);
        stand o;
        fleet_call_device(g, "other", job_other, fleet_shape1_of(5), 0);
        d.launch.ordinary = 1, d.launch.limit_ns = how == ABORT ? PATIENCE_NS : LIMIT_NS;
        if (!stand_open_with(t, &o, s, g, &d, FLEET_KERNEL_OF(job_incomplete))) return;
        (void)stand_ends(t, s, &o, (ending)how, 3000000,
                         how == ABORT ? FLEET_ERROR_ABORTED : FLEET_ERROR_RESIDENCY);
        stand_close(&o);
    }
}
static void residency(test_run *t)
{
    in_settings(t, 1, run_incomplete, NULL);
}

/* ---- each loop alone ---- */

typedef enum loop_kind {
    POLL_UNTIL,
    RING_TAKE,
    CONSUMER_OPEN,
    STAGES_WAIT,
    AWAIT_COPY,
    AWAIT_STAGE,
    BEGIN_TASK,
    AWAIT_BEGUN,
    AWAIT_STEP
} loop_kind;
typedef enum end_kind { BY_STOP, BY_QUIT, BY_ABORT, BY_LIMIT, END_KINDS } end_kind;

typedef struct lone {
    uint32_t
        *words; /* [0] a counter; [32] the stop word; [64] what has ended; [128] a ready ring */
    uint32_t *abort; /* the host's */
    const char *weights;
    uint32_t kind, how;
    uint64_t limit_ticks;
} lone;

#define LONE_STAGES 2u
/* By the last wave of the workgroup, the producer. Returns whether it has been told that the run ends. */
FLEET_DEVICE uint32_t produces_for_ever(const lone *l, const fleeti_pipeline *ring)
{
    fleet_producer p;
    __builtin_memset(&p, 0, sizeof p);
    p.ring = *ring;
    p.waves = 1;
    if (l->kind == BEGIN_TASK) return !fleeti_producer_begin_task(&p, FLEETI_PIPELINE_TASKS);
    if (l->kind == CONSUMER_OPEN) return 1;
    if (!fleeti_producer_begin_task(&p, 0)) return 0;
    if (l->kind == AWAIT_BEGUN) return !fleet_producer_await_task(&p);
    if (l->kind == AWAIT_STEP) {
        p.step = l->words, p.step_want = 1;
        return !fleet_producer_await_step(&p);
    }
    if (l->kind == AWAIT_COPY) { /* of a stage that has not been filled */
        fleeti_producer_await_copy(&p, 0, 0);
        return p.status == FLEET_ERROR_TIMEOUT;
    }
    if (l->kind == AWAIT_STAGE) {
        uint32_t i;
        for (i = 0; i < LONE_STAGES + 1; i++) fleet_producer_copy(&p, l->weights, 1024);
        return p.over && fleeti_producer_end(&p) == FLEET_OK;
    }
    return 1;
}
FLEET_DEVICE fleet_status waits_for_ever(const lone *l, const fleeti_pipeline *ring)
{
    fleet_watch watch;
    fleeti_wait_diagnostics seen;
    fleeti_counters c;
    uint32_t value;
    watch.stop = l->words + 32, watch.host_abort = l->abort, watch.limit_ticks = l->limit_ticks;
    watch.idle = NULL, watch.peers = NULL;
    c.device = l->words, c.system = NULL;
    if (l->kind == POLL_UNTIL) return fleeti_poll_until(c, 0, 1, &watch, &seen);
    if (l->kind == RING_TAKE)
        return fleeti_ring_take((fleeti_ring *)(void *)(l->words + 128), 7, 0, &watch, &value);
    if (l->kind == CONSUMER_OPEN || l->kind == STAGES_WAIT) {
        fleet_ctx ctx;
        fleet_consumer consumer;
        __builtin_memset(&ctx, 0, sizeof ctx);
        ctx.pipeline = *ring;
        ctx.pipeline_tag = 1;
        ctx.self = fleeti_thread_now();
        ctx.self.has_producer = 1;
        consumer = fleet_consumer_open(&ctx);
        if (fleet_stage_acquire(&consumer)) return FLEET_OK;
        return fleet_consumer_status(&consumer);
    }
    /* The producer waits: this wave would run its tiles. */
    if (l->how == BY_QUIT) {
        uint32_t n = 0;
        while (n < 300) fleeti_pause_outside(&n);
        fleeti_pipeline_failed(ring, FLEET_ERROR_ABORTED);
    }
    return FLEET_ERROR_ABORTED;
}
/* The second workgroup ends what the first one does. */
FLEET_GLOBAL(256) void alone(lone l)
{
    const uint32_t producer = fleet_wave_count() - 1;
    uint32_t status = 0, n = 0;
    fleeti_pipeline ring = fleeti_pipeline_of(fleeti_dynamic_lds(), LONE_STAGES, 1024);
    if (fleet_block_id() == 1) {
        if (fleet_wave_id() != 0) return;
        while (n < 300) fleeti_pause_outside(&n);
        if (l.how == BY_STOP && fleet_lane() == 0)
            fleet_store_relaxed_device(l.words + 32, FLEET_ERROR_ABORTED);
        if (l.how == BY_ABORT && fleet_lane() == 0) fleet_store_relaxed_system(l.abort, 1);
        return;
    }
    fleeti_pipeline_init(&ring, l.limit_ticks, l.words + 32, 1);
    fleet_block_barrier();
    if (fleet_wave_id() == producer)
        status = produces_for_ever(&l, &ring) ? 1 : 2;
    else if (fleet_wave_id() == 0)
        status = (uint32_t)waits_for_ever(&l, &ring);
    if (fleet_lane() == 0 && fleet_wave_id() == producer) l.words[65] = status;
    if (fleet_lane() == 0 && fleet_wave_id() == 0) l.words[64] = status;
}
FLEET_THUNK1(alone, lone)

typedef struct lone_run {
    lone l;
    fleet_kernel_desc d;
    fleet_status status;
    uint32_t over, found[2];
} lone_run;
static void *lone_thread(void *run_)
{
    lone_run *r = (lone_run *)run_;
    void *args[1];
    args[0] = &r->l;
    r->status = fleet_kernel_launch(FLEET_KERNEL_OF(alone), args, &r->d);
    if (!r->status) r->status = fleet_to_host(r->found, r->l.words + 64, sizeof r->found, NULL);
    __atomic_store_n(&r->over, 1, __ATOMIC_RELEASE);
    return NULL;
}
static void run_alone(test_run *t, fleet_host_engine engine, uint32_t kind, uint32_t how)
{
    const uint64_t since = now_ns();
    const fleet_status want = how == BY_LIMIT ? FLEET_ERROR_TIMEOUT : FLEET_ERROR_ABORTED;
    lone_run r;
    void *words, *weights, *abort_word, *abort_device;
    pthread_t thread;
    memset(&r, 0, sizeof r);
    CHECK_STATUS(fleet_device_alloc(&words, 4096), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&weights, 4096), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(words, 4096, NULL), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(weights, 4096, NULL), FLEET_OK);
    CHECK_STATUS(fleet_pinned_alloc(&abort_word, &abort_device, 256), FLEET_OK);
    memset(abort_word, 0, 256);
    r.l.words = (uint32_t *)words, r.l.abort = (uint32_t *)abort_device;
    r.l.weights = (const char *)weights;
    r.l.kind = kind, r.l.how = how;
    r.l.limit_ticks = (how == BY_LIMIT ? LIMIT_NS : PATIENCE_NS) / FLEETI_CLOCK_NS;
    r.d = fleet_kernel_desc_default();
    r.d.blocks = 2, r.d.threads = 128 + FLEET_PRODUCER_THREADS;
    r.d.lds_bytes = FLEETI_PIPELINE_BYTES(LONE_STAGES, 1024);
    r.d.host.engine = engine, r.d.host.seed = 1, r.d.host.waves = 2;
    CHECK(!pthread_create(&thread, NULL, lone_thread, &r));
    while (!__atomic_load_n(&r.over, __ATOMIC_ACQUIRE)) {
        if (now_ns() - since > PATIENCE_NS) {
            test_fail(t, __FILE__, __LINE__, "loop %u does not end by %u", kind, how);
            fflush(stdout);
            _exit(1);
        }
        usleep(200);
    }
    pthread_join(thread, NULL);
    fleet_pinned_free(abort_word);
    fleet_device_free(words), fleet_device_free(weights);
    if (!is_deadlock(engine, r.status, want)) CHECK_STATUS(r.status, FLEET_OK);
    if (r.status) return;
    if (kind == POLL_UNTIL || kind == RING_TAKE || kind == CONSUMER_OPEN || kind == STAGES_WAIT)
        CHECK_STATUS((fleet_status)r.found[0], want);
    CHECK_INT(r.found[1], 1);
}
static void loops(test_run *t, uint32_t first, uint32_t last)
{
    fleet_host_engine engine, last_engine;
    uint32_t kind, how;
    setting_engines(&engine, &last_engine);
    for (; engine <= last_engine; engine = (fleet_host_engine)(engine + 1))
        for (kind = first; kind <= last; kind++)
            for (how = 0; how < END_KINDS && !t->failed_here; how++) {
                const int waits = kind == POLL_UNTIL || kind == RING_TAKE;
                const int consumes = kind == CONSUMER_OPEN || kind == STAGES_WAIT;
                if (how == BY_QUIT && (waits || consumes || kind == AWAIT_COPY)) continue;
                if (how == BY_ABORT && !waits) continue;
                if (how == BY_LIMIT && !waits && !consumes && kind != AWAIT_COPY) continue;
                if (how == BY_STOP && kind == AWAIT_COPY) continue;
                run_alone(t, engine, kind, how);
                if (t->failed_here) printf("    loop %u, by %u\n", kind, how);
            }
}
static void waits(test_run *t)
{
    loops(t, POLL_UNTIL, RING_TAKE);
}
static void pipelines(test_run *t)
{
    loops(t, CONSUMER_OPEN, AWAIT_STEP);
}

/* ---- a server whose host does not do its part ---- */

typedef struct serving {
    fleet_table *table;
} serving;
FLEET_TILE(row, serving)
{
    const fleet_row r =
        fleet_batch_row(fleet_table_batch(args->table, 0, ctx.epoch), (uint32_t)at[0], 0);
    if (ctx.thread == 0 && r.kind != FLEET_ROW_NONE && r.kind != FLEET_ROW_CHUNK)
        fleet_row_result(args->table, 0, ctx.epoch, (uint32_t)at[0], FLEET_RESULT_MORE,
                         r.position + 1);
    return FLEET_OK;
}
FLEET_TILE(boundary, serving)
{
    const fleet_batch *b = fleet_table_batch(args->table, 0, ctx.epoch + 1);
    const fleet_status status = fleet_server_next(&ctx, args->table, 0);
    return status ? status : fleet_next_symbol(&ctx, 0, (int32_t)(b->decode_rows + b->chunk_rows));
}
#define SERVING_TILES(TILE, P) TILE(P, row) TILE(P, boundary)
FLEET_MEGAKERNEL(serving, SERVING_TILES, FLEET_ANY_THREADS(128))

#define CLIENTS 3u
#define TOKENS 300u
typedef struct service {
    stand o; /* of its launch */
    fleet_server server;
    serving args;
    uint64_t ids[CLIENTS];
    uint32_t next[CLIENTS]; /* token that is expected */
    uint32_t ended, lost;   /* requests; events that a dead reader had */
} service;

static void *service_thread(void *service_)
{
    service *v = (service *)service_;
    v->o.status = fleet_session_run(&v->o.s, &v->args, sizeof v->args);
    if (!v->o.status) v->o.status = fleet_session_wait(&v->o.s);
    fleet_server_ended(&v->server, v->o.status);
    __atomic_store_n(&v->o.over, 1, __ATOMIC_RELEASE);
    return NULL;
}
static int service_open(test_run *t, service *v, const setting *s)
{
    fleet_session_desc d = desc_of(s);
    fleet_server_desc server = fleet_server_desc_default();
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim rows = fleet_symbol(g, "rows", 0, 8);
    const fleet_grid all = fleet_call_device(g, "row", serving_row, fleet_shape1(rows), 0);
    const fleet_grid end = fleet_call_device(g, "boundary", serving_boundary, fleet_shape0(), 0);
    uint32_t prompt[2] = {1, 2}, i;
    fleet_after(g, end, all);
    fleet_symbol_writer(g, rows, end);
    memset(v, 0, sizeof *v);
    server.requests = 4, server.events = 8, server.decode_rows = server.chunk_rows = 4;
    server.policy = FLEET_POLICY_FIFO;
    NEED_STATUS(fleet_server_create(&v->server, &server, NULL), FLEET_OK);
    d.state = setting_state_desc(s);
    d.plan.workers_per_chiplet = 1;
    d.launch.steps = FLEET_STEPS_ENDLESS;
    NEED_STATUS(fleet_session_open(&v->o.s, g, &d, FLEET_KERNEL_OF(serving_kernel)), FLEET_OK);
    fleet_graph_destroy(g);
    v->args.table = v->server.table;
    for (i = 0; i < CLIENTS; i++) {
        fleet_request r;
        fleet_ticket ticket;
        memset(&r, 0, sizeof r);
        r.priority = FLEET_REACTIVE, r.prompt = prompt, r.prompt_tokens = 2;
        r.max_tokens = i ? TOKENS / 2 : TOKENS;
        NEED_STATUS(fleet_server_submit(&v->server, &r, &ticket), FLEET_OK);
        v->ids[i] = ticket.id;
    }
    return 1;
}
static int service_start(test_run *t, service *v)
{
    NEED(!pthread_create(&v->o.thread, NULL, service_thread, v));
    return 1;
}
/* Waits for the end of the launch. */
static int service_close(test_run *t, const setting *s, service *v, fleet_status want)
{
    const uint64_t since = now_ns();
    while (!stand_over(&v->o)) {
        if (now_ns() - since > PATIENCE_NS) does_not_end(t, s);
        usleep(200);
    }
    pthread_join(v->o.thread, NULL);
    fleet_session_close(&v->o.s);
    fleet_server_free(&v->server);
    NEED_STATUS(v->o.status, want);
    return 1;
}
/* Reads an event, if there is one, and releases it `releases` times, but those of client `holds`. */
static int service_read(test_run *t, service *v, uint32_t releases, uint32_t holds)
{
    fleet_server_event e;
    uint32_t i = 0;
    if (!fleet_server_poll(&v->server, &e)) return 0;
    while (i < CLIENTS && v->ids[i] != e.id) i++;
    NEED(i < CLIENTS);
    if (e.kind != FLEET_EVENT_TOKEN) {
        NEED_STATUS(e.status, FLEET_OK);
        NEED(e.kind == FLEET_EVENT_FINISHED);
        v->ended++;
        return 1;
    }
    NEED(v->lost ? e.index >= v->next[i] : e.index == v->next[i]);
    NEED(e.token == e.index + 2);
    v->next[i] = e.index + 1;
    for (; releases && i != holds; releases--) fleet_server_release(&v->server, &e);
    return 1;
}
/* Reads until all but the client that holds its events have ended. */
static int service_reads_all(test_run *t, const setting *s, service *v, uint32_t releases,
                             uint32_t holds)
{
    const uint32_t all = CLIENTS - (holds < CLIENTS);
    const uint64_t since = now_ns();
    while (v->ended < all) {
        if (!service_read(t, v, releases, holds)) sched_yield();
        if (t->failed_here) return 0;
        if (now_ns() - since > PATIENCE_NS) does_not_end(t, s);
    }
    return 1;
}

/* A second release gives no room, nor takes any: no event is lost, and the launch goes on while its host does not read. */
static void run_released_twice(test_run *t, const setting *s, void *unused)
{
    static service v;
    uint32_t read = 0;
    (void)unused;
    if (!service_open(t, &v, s) || !service_start(t, &v)) return;
    while (read < 60 && !t->failed_here) read += (uint32_t)service_read(t, &v, 2, CLIENTS);
    usleep(20000); /* the device sends what there is room for */
    if (!service_reads_all(t, s, &v, 2, CLIENTS)) return;
    CHECK(v.next[0] == TOKENS && v.next[1] == TOKENS / 2);
    fleet_server_stop(&v.server, 1);
    (void)service_close(t, s, &v, FLEET_OK);
}
/* A client that does not read holds up its own request alone. */
static void run_client_stalls(test_run *t, const setting *s, void *unused)
{
    static service v;
    (void)unused;
    if (!service_open(t, &v, s) || !service_start(t, &v)) return;
    if (!service_reads_all(t, s, &v, 1, 0)) return;
    fleet_state_abort(&v.o.s.state);
    (void)service_close(t, s, &v, FLEET_ERROR_ABORTED);
}
#if defined(FLEET_HOST) /* with private functions of the implementation */
/* Threads that die inside of fleet_server_poll take an event each with them. */
static void run_readers_die(test_run *t, const setting *s, void *unused)
{
    static service v;
    uint32_t number = 0, read = 0;
    const uint64_t since = now_ns();
    (void)unused;
    if (!service_open(t, &v, s) || !service_start(t, &v)) return;
    while (v.lost < 3 && !t->failed_here) {
        if (now_ns() - since > PATIENCE_NS) does_not_end(t, s);
        if (read < 20 * (v.lost + 1))
            read += (uint32_t)service_read(t, &v, 1, CLIENTS);
        else if (fleeti_message_claim(&v.server.desk->events, 1, &number))
            v.lost++; /* all that such a thread has done */
    }
    if (!service_reads_all(t, s, &v, 1, CLIENTS)) return;
    CHECK(v.next[0] == TOKENS && v.next[1] == TOKENS / 2);
    fleet_state_abort(&v.o.s.state);
    (void)service_close(t, s, &v, FLEET_ERROR_ABORTED);
}
/* A ring that has no room, against all rules, holds up no boundary: it ends by an abort or a stop; or all goes on where there
   is room again. */
static void run_ring_is_full(test_run *t, const setting *s, void *how_)
{
    const uint32_t how = *(const uint32_t *)how_;
    static service v;
    uint64_t *popped;
    fleet_ring ring;
    if (!service_open(t, &v, s)) return;
    /* As if as many messages as there are slots had not been read. */
    popped = (uint64_t *)(void *)fleeti_message_popped(&v.server.desk->events);
    CHECK_STATUS(fleet_to_host(&ring, &v.server.table->events, sizeof ring, NULL), FLEET_OK);
    ring.position += ring.mask + 1;
    CHECK_STATUS(fleet_to_device(&v.server.table->events, &ring, sizeof ring, NULL), FLEET_OK);
    if (!service_start(t, &v)) return;
    usleep(10000);
    CHECK(!service_read(t, &v, 1, CLIENTS));
    if (how == 0) fleet_state_abort(&v.o.s.state);
    if (how == 1) fleet_server_stop(&v.server, 0);
    if (how == 2) {
        __atomic_store_n(popped, ring.position, __ATOMIC_RELEASE);
        fleeti_desk_changed(&v.server, 0);
        if (!service_reads_all(t, s, &v, 1, CLIENTS)) return;
        CHECK(v.next[0] == TOKENS && v.next[1] == TOKENS / 2);
        fleet_server_stop(&v.server, 1);
    }
    (void)service_close(t, s, &v, how ? FLEET_OK : FLEET_ERROR_ABORTED);
}
static void readers_that_die_hold_up_nobody(test_run *t)
{
    in_settings(t, 1, run_readers_die, NULL);
}
static void no_boundary_waits_for_a_full_ring(test_run *t)
{
    uint32_t how;
    for (how = 0; how < 3 && !t->failed_here; how++) in_settings(t, 1, run_ring_is_full, &how);
}
#endif

static void a_second_release_gives_no_room(test_run *t)
{
    in_settings(t, 1, run_released_twice, NULL);
}
static void a_client_that_stalls_holds_up_no_other(test_run *t)
{
    in_settings(t, 1, run_client_stalls, NULL);
}
static void all(test_run *t)
{
    TEST(waits);
    TEST(pipelines);
    TEST(schedules);
    TEST(idle_tiles);
    TEST(room_in_a_mailbox);
    TEST(residency);
    TEST(endless_without_work);
    TEST(random_runs);
    TEST(a_second_release_gives_no_room);
    TEST(a_client_that_stalls_holds_up_no_other);
#if defined(FLEET_HOST)
    TEST(readers_that_die_hold_up_nobody);
    TEST(no_boundary_waits_for_a_full_ring);
#endif
}
TEST_MAIN(all)
