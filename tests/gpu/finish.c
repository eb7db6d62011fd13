/* A tile ends the run after its step: a stencil that converges, under all schedules; steps that could overlap; a weight
   pipeline that runs ahead; further launches of the state, and replays. */
// run: asan engine=both
// run: model engine=deterministic
// run: tsan
// hip: 3 runs
#include "settings.h"

#define MOST 48
#define WORDS 256u

typedef struct mesh {        /* what every tile sees */
    uint32_t *x, *changed;   /* x: [2][MOST], by the parity of the epoch */
    uint32_t *runs;          /* [MOST]: of cells */
    const uint32_t *weights; /* [WORDS] zeros */
    uint32_t n, last;
} mesh;

/* One cell: the largest of its neighbours. */
FLEET_DEVICE void relax_cell(const fleet_ctx *ctx, const mesh *m, uint32_t i, uint32_t add)
{
    const uint32_t *from = m->x + (ctx->epoch - 1) % 2 * MOST;
    uint32_t most = from[i] + add;
    if (ctx->thread != 0) return;
    if (i > 0 && from[i - 1] > most) most = from[i - 1];
    if (i + 1 < m->n && from[i + 1] > most) most = from[i + 1];
    if (most != from[i]) fleet_add_relaxed_device(m->changed, 1);
    m->x[ctx->epoch % 2 * MOST + i] = most;
    m->runs[i]++;
}
FLEET_TILE(relax, mesh)
{
    relax_cell(&ctx, args, (uint32_t)at[0], 0);
    return FLEET_OK;
}
FLEET_PRODUCER(relax_ahead, mesh)
{
    fleet_producer_copy(producer, args->weights, WORDS * 4);
}
FLEET_TILE(relax_ahead, mesh)
{
    fleet_consumer consumer = fleet_consumer_open(&ctx);
    const uint32_t *stage = (const uint32_t *)fleet_stage_acquire(&consumer);
    if (!stage) return fleet_consumer_status(&consumer);
    relax_cell(&ctx, args, (uint32_t)at[0], stage[at[0]]);
    fleet_stage_release(&consumer, ctx.threads / fleet_wave_size());
    return FLEET_OK;
}
/* After all cells of the step. */
FLEET_TILE(judge, mesh)
{
    const uint32_t changed = fleet_load_relaxed_device(args->changed);
    fleet_barrier(&ctx);
    if (!changed) return fleet_finish(&ctx);
    if (ctx.thread == 0) fleet_store_relaxed_device(args->changed, 0);
    return FLEET_OK;
}
FLEET_TILE(tick, mesh)
{
    if (ctx.thread == 0) args->runs[at[0]]++;
    return at[0] == 0 && ctx.step + 1 == args->last ? fleet_finish(&ctx) : FLEET_OK;
}
#define MESH_TILES(TILE, P) TILE(P, relax) TILE(P, judge) TILE(P, tick)
FLEET_MEGAKERNEL(mesh, MESH_TILES, FLEET_ANY_THREADS(256))

typedef mesh flow;
#define FLOW_TILES(TILE, P) TILE(P, relax_ahead) TILE(P, judge)
#define FLOW_STREAMS(TILE, P) TILE(P, relax_ahead)
FLEET_DISPATCH_WITH_PIPELINE(flow, FLOW_TILES, FLOW_STREAMS, 4, 1024)
FLEET_KERNEL(flow_kernel, flow, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(flow);
}

typedef struct stand {
    fleet_session s;
    mesh args;
    uint32_t first; /* epoch of the state before its first step */
} stand;

static int stand_open(test_run *t, stand *o, const setting *setting, fleet_graph *g,
                      fleet_kernel kernel, uint32_t steps, uint32_t finish)
{
    fleet_session_desc d = fleet_session_desc_default();
    void *weights;
    d.plan = setting_plan_desc(setting);
    d.state = setting_state_desc(setting);
    o->first = d.state.first_epoch;
    d.launch = setting_launch_desc(setting);
    d.launch.steps = steps;
    d.launch.finish = finish;
#if defined(FLEET_MEMORY_MODEL)
    d.launch.host.engine = FLEET_ENGINE_DETERMINISTIC;
    d.launch.host.memory_model = 1;
#endif
    NEED_STATUS(fleet_session_open(&o->s, g, &d, kernel), FLEET_OK);
    fleet_graph_destroy(g);
    o->args.x = (uint32_t *)fleet_session_alloc(&o->s, (3 * MOST + 1) * 4);
    weights = fleet_session_alloc(&o->s, WORDS * 4);
    NEED(o->args.x && weights);
    o->args.runs = o->args.x + 2 * MOST, o->args.changed = o->args.x + 3 * MOST;
    o->args.weights = (const uint32_t *)weights;
    o->args.n = MOST, o->args.last = 0;
    NEED_STATUS(fleet_device_clear(o->args.x, (3 * MOST + 1) * 4, NULL), FLEET_OK);
    NEED_STATUS(fleet_device_clear(weights, WORDS * 4, NULL), FLEET_OK);
    return 1;
}
static int stand_run(test_run *t, stand *o, fleet_status want, uint32_t epoch)
{
    NEED_STATUS(fleet_session_run(&o->s, &o->args, sizeof o->args), FLEET_OK);
    NEED(ended_with(t, &o->s.state, want));
    if (fleet_state_epoch(&o->s.state) - o->first != epoch)
        test_fail(t, __FILE__, __LINE__, "%u steps have run, not %u",
                  fleet_state_epoch(&o->s.state) - o->first, epoch);
    return !t->failed_here;
}
static int all_ran(test_run *t, const stand *o, uint32_t n, uint32_t times)
{
    uint32_t want[MOST];
    for (uint32_t i = 0; i < n; i++) want[i] = times;
    return runs_are(t, o->args.runs, want, 1, n);
}

typedef struct variant {
    fleet_level level;
    uint32_t ahead; /* with a weight pipeline */
} variant;

/* The largest value is at one end. It arrives at the other in step n - 1; step n changes nothing. */
static void run_stencil(test_run *t, const setting *s, void *variant_)
{
    const variant *v = (const variant *)variant_;
    const uint32_t n = 9 + (uint32_t)s->seed % 20, more = 2;
    uint32_t peak, have[MOST];
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_etensor done = fleet_event_tensor(g, "done", fleet_shape0(), FLEET_COUNT_DERIVED);
    const fleet_grid cells =
        fleet_call_device(g, "relax", v->ahead ? (uint32_t)flow_relax_ahead : (uint32_t)mesh_relax,
                          fleet_shape1(fleet_dim_of((int32_t)n)), 0);
    const fleet_grid judge = fleet_call_device(
        g, "judge", v->ahead ? (uint32_t)flow_judge : (uint32_t)mesh_judge, fleet_shape0(), 0);
    stand o;
    fleet_grid_level(g, cells, v->level);
    setting_mix(s, g, cells, 0);
    setting_mix(s, g, judge, 1);
    fleet_out_edge(g, cells, done, "i->");
    fleet_in_edge(g, judge, done, "->");
    if (!stand_open(t, &o, s, g,
                    v->ahead ? FLEET_KERNEL_OF(flow_kernel) : FLEET_KERNEL_OF(mesh_kernel), MOST,
                    1))
        return;
    o.args.n = n, peak = 77;
    CHECK_STATUS(fleet_to_device(o.args.x, &peak, 4, NULL), FLEET_OK);
    if (!stand_run(t, &o, FLEET_OK, n) || !all_ran(t, &o, n, n)) return;
    CHECK_STATUS(fleet_to_host(have, o.args.x + n % 2 * MOST, n * 4, NULL), FLEET_OK);
    for (uint32_t i = 0; i < n; i++) CHECK_INT(have[i], peak);
    /* The next launch goes on, with fewer steps than it needs; the one after it converges. */
    peak = 99;
    CHECK_STATUS(fleet_to_device(o.args.x + n % 2 * MOST + n - 1, &peak, 4, NULL), FLEET_OK);
    o.s.launch.steps = more;
    if (!stand_run(t, &o, FLEET_OK, n + more) || !all_ran(t, &o, n, n + more)) return;
    o.s.launch.steps = MOST;
    if (!stand_run(t, &o, FLEET_OK, 2 * n) || !all_ran(t, &o, n, 2 * n)) return;
    /* Converged already: one step each. */
    if (!stand_run(t, &o, FLEET_OK, 2 * n + 1) || !stand_run(t, &o, FLEET_OK, 2 * n + 2)) return;
    CHECK_STATUS(fleet_to_host(have, o.args.x, n * 4, NULL), FLEET_OK);
    for (uint32_t i = 0; i < n; i++) CHECK_INT(have[i], peak);
    fleet_session_close(&o.s);
}
static void in_all(test_run *t, variant v)
{
    setting s;
    in_settings(t, 4, run_stencil, &v);
    for (uint32_t i = 0; setting_get(i, 3, &s) && !t->failed_here; i++) {
        if (setting_skipped(i)) continue;
        if (s.schedule == FLEET_SCHEDULE_STATIC)
            s.mixed = 1 + i % 2; /* one of the grids is DYNAMIC */
        else if (s.schedule == FLEET_SCHEDULE_DYNAMIC)
            s.early = 1;
        else
            s.schedule = FLEET_SCHEDULE_STATIC, s.mixed = 0, s.unaware = 1;
        run_stencil(t, &s, &v);
        if (t->failed_here) setting_print(&s);
    }
}
static void a_stencil_converges(test_run *t)
{
    const variant v = {FLEET_LEVEL_CU, 0};
    in_all(t, v);
}
static void a_stencil_of_wavefront_tasks_converges(test_run *t)
{
    const variant v = {FLEET_LEVEL_WAVE, 0};
    in_all(t, v);
}
static void a_weight_pipeline_stops_too(test_run *t)
{
    const variant v = {FLEET_LEVEL_CU, 1};
    in_all(t, v);
}

/* Tasks that wait for nothing: without the launch's `finish` their steps overlap under STATIC. */
static void run_ticks(test_run *t, const setting *s, void *unused)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_grid ticks =
        fleet_call_device(g, "tick", mesh_tick, fleet_shape1(fleet_dim_of(MOST)), 0);
    const fleet_buffer nothing = fleet_declare_buffer(g, "nothing");
    stand o;
    (void)unused;
    fleet_grid_reads(g, ticks, nothing);
    if (!stand_open(t, &o, s, g, FLEET_KERNEL_OF(mesh_kernel), 30, 1)) return;
    o.args.last = 7;
    if (!stand_run(t, &o, FLEET_OK, 7) || !all_ran(t, &o, MOST, 7)) return;
    o.args.last = 30; /* the last step of all */
    if (!stand_run(t, &o, FLEET_OK, 37) || !all_ran(t, &o, MOST, 37)) return;
    /* Recovered, epochs count from 0 again. A task that runs alone, as in epoch 1, ends nothing, nor the next launch. */
    CHECK_STATUS(fleet_state_recover(&o.s.state, NULL), FLEET_OK);
    o.first = 0;
    o.args.last = 1;
    CHECK_STATUS(fleet_to_device(o.s.args, &o.args, sizeof o.args, NULL), FLEET_OK);
    CHECK_STATUS(fleet_launch_task(&o.s.state, &o.s.launch, o.s.kernel, o.s.args, 0, 0), FLEET_OK);
    o.args.last = 0, o.s.launch.steps = 3;
    if (!stand_run(t, &o, FLEET_OK, 3)) return;
    o.args.last = 2, o.s.launch.steps = 5;
    if (!stand_run(t, &o, FLEET_OK, 5)) return;
    /* A launch that does not say so cannot be ended. */
    o.s.launch.finish = 0;
    if (!stand_run(t, &o, FLEET_ERROR_TILE, 5)) return;
    fleet_session_close(&o.s);
}
static void all_workers_end_with_the_same_step(test_run *t)
{
    in_settings(t, 4, run_ticks, NULL);
}

/* The same launch again and again: on a GPU a graph that is replayed, on the CPU further launches. Each begins clean,
   whether the one before has ended early, in its last step, or in its first. */
#if defined(FLEET_HIP)
#define API(name) hip##name
#elif defined(FLEET_CUDA)
#define API(name) cuda##name
#endif

typedef struct repeated {
    stand o;
#if defined(FLEET_HIP)
    hipGraph_t graph;
    hipGraphExec_t exec;
#elif defined(FLEET_CUDA)
    cudaGraph_t graph;
    cudaGraphExec_t exec;
#endif
} repeated;

static void repeat(test_run *t, repeated *r)
{
#if defined(FLEET_HOST)
    CHECK_STATUS(fleet_launch(&r->o.s.state, &r->o.s.launch, r->o.s.kernel, r->o.s.args), FLEET_OK);
#else
    CHECK(!API(GraphLaunch)(r->exec, r->o.s.launch.stream));
#endif
}

static void run_replays(test_run *t, const setting *s, void *unused)
{
    const uint32_t n = 9 + (uint32_t)s->seed % 20;
    uint32_t peak = 5, steps = 0, have[MOST];
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_grid cells =
        fleet_call_device(g, "relax", mesh_relax, fleet_shape1(fleet_dim_of((int32_t)n)), 0);
    const fleet_grid judge = fleet_call_device(g, "judge", mesh_judge, fleet_shape0(), 0);
    repeated r;
    (void)unused;
    memset(&r, 0, sizeof r);
    setting_mix(s, g, cells, 0);
    setting_mix(s, g, judge, 1);
    fleet_after(g, judge, cells);
    if (!stand_open(t, &r.o, s, g, FLEET_KERNEL_OF(mesh_kernel), n, 1)) return;
    r.o.args.n = n;
    CHECK_STATUS(fleet_to_device(r.o.s.args, &r.o.args, sizeof r.o.args, NULL), FLEET_OK);
#if !defined(FLEET_HOST)
    {
        API(Stream_t) stream;
        CHECK(!API(StreamCreateWithFlags)(&stream, API(StreamNonBlocking)));
        r.o.s.launch.stream = stream;
        CHECK(!API(StreamBeginCapture)(stream, API(StreamCaptureModeGlobal)));
        CHECK_STATUS(fleet_launch(&r.o.s.state, &r.o.s.launch, r.o.s.kernel, r.o.s.args), FLEET_OK);
        CHECK(!API(StreamEndCapture)(stream, &r.graph));
        CHECK(!API(GraphInstantiate)(&r.exec, r.graph, NULL, NULL, 0));
    }
#endif
    for (uint32_t k = 0; k < 3 && !t->failed_here; k++, peak += 7) {
        /* At the left end, next to it, at the right end: it takes as many steps, and one in which nothing changes. */
        const uint32_t at = k == 2 ? n - 1 : k, far = k == 1 ? n - 2 : n - 1;
        uint32_t *x = r.o.args.x + steps % 2 * MOST;
        CHECK_STATUS(fleet_to_device(x + at, &peak, 4, r.o.s.launch.stream), FLEET_OK);
        repeat(t, &r);
        repeat(t, &r); /* converged already: one step */
        repeat(t, &r);
        CHECK_STATUS(fleet_stream_wait(r.o.s.launch.stream), FLEET_OK);
        if (!ended_with(t, &r.o.s.state, FLEET_OK)) return;
        steps += far + 1 + 2;
        CHECK_INT(fleet_state_epoch(&r.o.s.state) - r.o.first, steps);
        if (!all_ran(t, &r.o, n, steps)) return;
        CHECK_STATUS(fleet_to_host(have, r.o.args.x + steps % 2 * MOST, n * 4, r.o.s.launch.stream),
                     FLEET_OK);
        for (uint32_t i = 0; i < n; i++) CHECK_INT(have[i], peak);
    }
#if !defined(FLEET_HOST)
    (void)API(GraphExecDestroy)(r.exec);
    (void)API(GraphDestroy)(r.graph);
    (void)API(StreamDestroy)((API(Stream_t))r.o.s.launch.stream);
    r.o.s.launch.stream = NULL;
#endif
    fleet_session_close(&r.o.s);
}
static void replays_begin_clean(test_run *t)
{
    in_settings(t, 4, run_replays, NULL);
}

static void all(test_run *t)
{
    TEST(a_stencil_converges);
    TEST(a_stencil_of_wavefront_tasks_converges);
    TEST(a_weight_pipeline_stops_too);
    TEST(all_workers_end_with_the_same_step);
    TEST(replays_begin_clean);
}
TEST_MAIN(all)
