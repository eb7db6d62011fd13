/* Each loop on the device that may turn for ever (LOOPS in fleet_device.h) is entered, and what it waits for never comes: an
   abort, the limit of a launch, or its last step ends it. A launch that does not end fails its test, and ends the program. */
// run: asan engine=both
// run: tsan
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* usleep */
#endif
#include "settings.h"

#include <pthread.h>
#include <unistd.h>

#define PATIENCE_NS 60000000000ull /* on a loaded machine, or a simulated one */
#define LIMIT_NS 200000000ull
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
#define JOB_TILES(TILE, P) TILE(P, take) TILE(P, other)
#define JOB_STREAMS(TILE, P) TILE(P, take)
FLEET_DISPATCH_WITH_PIPELINE(job, JOB_TILES, JOB_STREAMS, 4, 1024)
FLEET_KERNEL(job_kernel, job, 128)
{
    FLEET_WORKER_LOOP(job);
}

typedef struct stand {
    fleet_session s;
    job args;
    void *weights, *runs;
    fleet_status status;
    uint32_t over;
    pthread_t thread;
} stand;

static int stand_open(test_run *t, stand *o, const setting *setting, fleet_graph *g,
                      const fleet_session_desc *desc)
{
    fleet_session_desc d = *desc;
    memset(o, 0, sizeof *o);
    d.state = setting_state_desc(setting);
    NEED_STATUS(fleet_session_open(&o->s, g, &d, FLEET_KERNEL_OF(job_kernel)), FLEET_OK);
    fleet_graph_destroy(g);
    NEED_STATUS(fleet_device_alloc(&o->weights, 1024), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&o->runs, 256), FLEET_OK);
    NEED_STATUS(fleet_device_clear(o->weights, 1024, NULL), FLEET_OK);
    NEED_STATUS(fleet_device_clear(o->runs, 256, NULL), FLEET_OK);
    o->args.weights = (const uint32_t *)o->weights;
    o->args.runs = (uint32_t *)o->runs;
    return 1;
}
static void stand_close(stand *o)
{
    fleet_session_close(&o->s);
    fleet_device_free(o->weights);
    fleet_device_free(o->runs);
}
static fleet_session_desc desc_of(const setting *s)
{
    fleet_session_desc d = fleet_session_desc_default();
    d.plan = setting_plan_desc(s);
    d.launch = setting_launch_desc(s);
    d.launch.threads = 0;
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
static int stand_over(const stand *o)
{
    return __atomic_load_n(&o->over, __ATOMIC_ACQUIRE) != 0;
}

/* The ends of a run. */
typedef enum ending { LAST_STEP, ABORT, LIMIT, ENDINGS } ending;

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
        if (passed > PATIENCE_NS) {
            test_fail(t, __FILE__, __LINE__, "the run does not end");
            setting_print(s);
            fflush(stdout);
            _exit(1);
        }
        usleep(200);
    }
    pthread_join(o->thread, NULL);
    NEED_STATUS(o->status, want);
    if (want) NEED_STATUS(fleet_state_recover(&o->s.state, NULL), FLEET_OK);
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
    fleet_grid more, steps;
    stand o;
    uint32_t how;
    fleet_grid takes = fleet_call_device(
        g, "take", job_take, kind == WAVES_ALONE ? fleet_shape1_of(1) : fleet_shape1(rows), 0);
    setting_mix(s, g, takes, 0);
    more = fleet_call_device(
        g, "other", job_other,
        kind >= NONE_PRESENT && kind <= NO_TASK ? fleet_shape1(rows) : fleet_shape1_of(AT_MOST), 0);
    if (kind == WAVES_ALONE) fleet_grid_level(g, more, FLEET_LEVEL_WAVE);
    if (kind == NONE_PRESENT) {
        steps = fleet_call_device(g, "steps", job_other, fleet_shape1_of(1), 0);
        (void)steps;
    }
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
    for (how = kind == NO_TASK ? ABORT : LAST_STEP; how <= ABORT; how++) {
        o.args.last = how == LAST_STEP ? 3 : 0;
        if (!stand_ends(t, s, &o, (ending)how, 3000000,
                        how == ABORT ? FLEET_ERROR_ABORTED : FLEET_OK))
            return;
        if (how == LAST_STEP) CHECK_INT(fleet_state_epoch(&o.s.state), 3);
        if (s->schedule == FLEET_SCHEDULE_STATIC) o.s.launch.steps = 100000000;
    }
    stand_close(&o);
}
static void endless_without_work(test_run *t)
{
    uint32_t kind;
    for (kind = 0; kind < LACKS && !t->failed_here; kind++) {
        lack l = (lack)kind;
        in_settings(t, 3, run_lacking, &l);
        if (t->failed_here) printf("    lack %u\n", kind);
    }
}

static void all(test_run *t)
{
    TEST(endless_without_work);
}
TEST_MAIN(all)
