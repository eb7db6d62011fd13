/* Symbols that the run sets: each step has the shapes that the boundary before it chose, and a cut passes over the rest
   of a step; a launch without a last step, whose boundary waits for the host, and whose count of steps left passes 0. */
// run: asan engine=both
// run: model engine=deterministic
// run: tsan
// hip: 3 runs
#include "settings.h"

#include <sys/select.h>

#if defined(FLEET_HOST)
#define FEW 2 /* shapes of topologies */
#else
#define FEW 1
#endif
#define MOST 6   /* of each symbol */
#define STEPS 12 /* of the table of values */
#define LAYERS 3
#define GRIDS (7 + 2 * LAYERS)
#define CELLS 64 /* of a grid */
#define WORDS 256u
enum { ROWS, COLS, LEFT, SYMBOLS };

typedef struct job {         /* one for each grid */
    uint32_t *runs;          /* [GRIDS][CELLS] */
    uint32_t *wrong;         /* how often a tile saw a value of another step */
    const int32_t *values;   /* [STEPS][SYMBOLS]: of step s at s mod STEPS */
    const int32_t *cut_at;   /* [STEPS]: the layer before which LEFT becomes 0; LAYERS: none */
    const uint32_t *weights; /* [WORDS] zeros */
    uint32_t *words;         /* pinned: news from the host, how often the boundary has seen them */
    uint32_t grid, last;     /* last: the step that ends the run; 0: none */
    uint32_t idle;           /* 1: the boundary waits for the host once a step */
    int32_t too_large;       /* not 0: it sets "cols" to that in step 2 */
} job;

FLEET_DEVICE void count(const fleet_ctx *ctx, const job *j, uint32_t cell)
{
    if (ctx->thread == 0 && ctx->tile_index == 0)
        fleet_add_relaxed_device(j->runs + j->grid * CELLS + cell, 1);
}
/* The values of the step, and that the task is inside its grid. */
FLEET_DEVICE void look(const fleet_ctx *ctx, const job *j, uint32_t symbols)
{
    const int32_t *values = j->values + ctx->step % STEPS * SYMBOLS;
    uint32_t wrong = 0;
    for (uint32_t s = 0; s < symbols; s++) wrong |= fleet_symbol_now(ctx, s) != values[s];
    for (uint32_t k = 0; k < 2; k++) wrong |= ctx->at[k] >= fleet_extent(ctx, k);
    if (ctx->thread == 0 && wrong) fleet_add_relaxed_device(j->wrong, 1);
}
FLEET_TILE(cell, job)
{
    look(&ctx, args, LEFT);
    count(&ctx, args,
          ctx.slice + (uint32_t)(at[0] * (MOST + 2) + at[1]) * (ctx.slices > 1 ? 0 : 1));
    return FLEET_OK;
}
/* The same with a weight pipeline. */
FLEET_PRODUCER(streamed, job)
{
    fleet_producer_copy(producer, args->weights, WORDS * 4);
}
FLEET_TILE(streamed, job)
{
    fleet_consumer weights = fleet_consumer_open(&ctx);
    const uint32_t *piece = (const uint32_t *)fleet_stage_acquire(&weights);
    if (!piece) return fleet_consumer_status(&weights);
    look(&ctx, args, LEFT);
    count(&ctx, args, (uint32_t)(at[0] * (MOST + 2) + at[1]) + piece[at[0]]);
    fleet_stage_release(&weights, ctx.threads / fleet_wave_size());
    return FLEET_OK;
}
/* Before layer args->grid - 7. */
FLEET_TILE(gate, job)
{
    const uint32_t layer = (args->grid - 7) / 2;
    count(&ctx, args, 0);
    if (args->cut_at[ctx.step % STEPS] == (int32_t)layer) return fleet_cut_symbol(&ctx, LEFT, 0);
    return FLEET_OK;
}
FLEET_TILE(boundary, job)
{
    const int32_t *values = args->values + (ctx.step + 1) % STEPS * SYMBOLS;
    count(&ctx, args, 0);
    for (uint32_t s = 0; s < SYMBOLS; s++) {
        const int32_t value =
            s == COLS && args->too_large && ctx.step == 2 ? args->too_large : values[s];
        const fleet_status status = fleet_next_symbol(&ctx, s, value);
        if (status || fleet_symbol_now(&ctx, s) != value) return FLEET_ERROR_TILE;
    }
    if (args->idle) {
        const uint32_t seen = fleet_load_relaxed_system(args->words + 32);
        fleet_status status;
        fleet_barrier(&ctx);
        if (ctx.thread == 0) fleet_store_relaxed_system(args->words + 32, seen + 1);
        status = fleet_idle(&ctx, args->words, seen);
        if (status) return status;
        if (fleet_load_relaxed_system(args->words + 1)) return fleet_finish(&ctx);
    }
    return args->last && ctx.step + 1 == args->last ? fleet_finish(&ctx) : FLEET_OK;
}
#define JOB_TILES(TILE, P) TILE(P, cell) TILE(P, gate) TILE(P, boundary)
FLEET_MEGAKERNEL(job, JOB_TILES, FLEET_ANY_THREADS(256))

typedef job flow;
#define FLOW_TILES(TILE, P) TILE(P, streamed) TILE(P, gate) TILE(P, boundary)
#define FLOW_STREAMS(TILE, P) TILE(P, streamed)
FLEET_DISPATCH_WITH_PIPELINE(flow, FLOW_TILES, FLOW_STREAMS, 3, 1024)
FLEET_KERNEL(flow_kernel, flow, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(flow);
}

/* ---- the graph, and how often its tasks must have run ---- */

typedef struct stand {
    fleet_session s;
    job args[GRIDS];
    int32_t values[STEPS * SYMBOLS], cut_at[STEPS];
    uint32_t want[GRIDS * CELLS];
    void *device, *pinned, *pinned_device;
    uint32_t flow;
#if defined(FLEET_HOST)
    fleet_host_stats stats;
    pthread_t thread;
#endif
} stand;

static fleet_grid add(fleet_graph *g, const setting *s, const char *name, uint32_t tile,
                      fleet_shape shape, uint32_t i)
{
    const fleet_grid grid = fleet_call_device(g, name, tile, shape, i);
    setting_mix(s, g, grid, i);
    return grid;
}

static fleet_graph *graph_of(const setting *s, uint32_t flow)
{
    const uint32_t cell = flow ? (uint32_t)flow_streamed : (uint32_t)job_cell;
    const uint32_t gate = flow ? (uint32_t)flow_gate : (uint32_t)job_gate;
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim rows = fleet_symbol(g, "rows", 0, MOST),
                    cols = fleet_symbol(g, "cols", 1, MOST);
    const fleet_dim left = fleet_symbol(g, "left", 0, MOST);
    const fleet_etensor row = fleet_event_tensor(g, "row", fleet_shape1(rows), FLEET_COUNT_DERIVED);
    fleet_grid grid[GRIDS], last;
    char name[16];
    uint32_t i;
    grid[0] = add(g, s, "rows", cell, fleet_shape1(rows), 0);
    grid[1] = add(g, s, "pairs", cell, fleet_shape2(rows, fleet_dim_of(2)), 1);
    if (!flow) fleet_grid_level(g, grid[1], FLEET_LEVEL_WAVE);
    fleet_out_edge(g, grid[0], row, "i->i");
    fleet_in_edge(g, grid[1], row, "ij->i");
    grid[2] = add(g, s, "cells", cell, fleet_shape2(fleet_dim_ceil_div(cols, 2), rows), 2);
    grid[3] = add(g, s, "chiplets", cell, fleet_shape1(cols), 3);
    if (!flow) fleet_grid_level(g, grid[3], FLEET_LEVEL_CHIPLET);
    grid[4] = add(g, s, "slices", cell, fleet_shape0(), 4);
    if (!flow) {
        fleet_grid_level(g, grid[4], FLEET_LEVEL_DEVICE);
        fleet_grid_slices(g, grid[4], fleet_dim_plus(cols, 1));
    }
    grid[5] = add(g, s, "fixed", cell, fleet_shape1_of(3), 5);
    for (i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "gate%u", i);
        grid[7 + 2 * i] = add(g, s, name, gate, fleet_shape0(), 7 + 2 * i);
        snprintf(name, sizeof name, "layer%u", i);
        grid[8 + 2 * i] = add(g, s, name, cell, fleet_shape1(left), 8 + 2 * i);
        if (i) fleet_after(g, grid[7 + 2 * i], grid[6 + 2 * i]);
        fleet_after(g, grid[8 + 2 * i], grid[7 + 2 * i]);
        fleet_symbol_cutter(g, left, grid[7 + 2 * i]);
    }
    last = add(g, s, "boundary", flow ? (uint32_t)flow_boundary : (uint32_t)job_boundary,
               fleet_shape0(), 6);
    if (s->seed / 3 % 2) { /* one wave sets symbols, too */
        fleet_grid_level(g, last, FLEET_LEVEL_WAVE);
        fleet_grid_level(g, grid[7], FLEET_LEVEL_WAVE);
    }
    for (i = 0; i < GRIDS; i++)
        if (i != 6) fleet_after(g, last, grid[i]);
    fleet_symbol_writer(g, rows, last);
    fleet_symbol_writer(g, cols, last);
    fleet_symbol_writer(g, left, last);
    return g;
}

static void step_runs(const stand *o, uint32_t step, uint32_t *want)
{
    const int32_t *v = o->values + step % STEPS * SYMBOLS;
    const int32_t cut = o->cut_at[step % STEPS];
    int32_t i, j;
    for (i = 0; i < v[ROWS]; i++) {
        want[i * (MOST + 2)]++;
        for (j = 0; j < 2; j++) want[CELLS + i * (MOST + 2) + j]++;
        for (j = 0; j < (v[COLS] + 1) / 2; j++) want[2 * CELLS + j * (MOST + 2) + i]++;
    }
    for (i = 0; i < v[COLS]; i++) want[3 * CELLS + i * (MOST + 2)]++;
    for (i = 0; i < (o->flow ? 1 : v[COLS] + 1); i++) want[4 * CELLS + i]++;
    for (i = 0; i < 3; i++) want[5 * CELLS + i * (MOST + 2)]++;
    want[6 * CELLS]++;
    for (i = 0; i < LAYERS; i++) {
        want[(7 + 2 * i) * CELLS]++;
        for (j = 0; j < v[LEFT] && i < cut; j++) want[(8 + 2 * i) * CELLS + j * (MOST + 2)]++;
    }
}

static int stand_open(test_run *t, stand *o, const setting *s, uint32_t flow, uint32_t epoch)
{
    fleet_session_desc d = fleet_session_desc_default();
    const size_t words = GRIDS * CELLS + 32 + STEPS * (SYMBOLS + 1) + WORDS;
    fleet_graph *g = graph_of(s, flow);
    uint64_t seed = s->seed * 77 + epoch;
    uint32_t *memory, i, k;
    memset(o, 0, sizeof *o);
    o->flow = flow;
    for (i = 0; i < STEPS; i++) {
        for (k = 0; k < SYMBOLS; k++) /* often as before, and often the ends of the range */
            o->values[i * SYMBOLS + k] =
                i && draw(&seed, 4) == 0 ? o->values[(i - 1) * SYMBOLS + k]
                : draw(&seed, 3) ? (int32_t)(k == COLS) + (int32_t)draw(&seed, MOST + (k != COLS))
                : draw(&seed, 2) ? MOST
                                 : k == COLS;
        o->cut_at[i] = (int32_t)draw(&seed, LAYERS + 2);
        if (o->cut_at[i] > LAYERS) o->cut_at[i] = LAYERS;
    }
    d.plan = setting_plan_desc(s);
    d.state = setting_state_desc(s);
    d.state.first_epoch = epoch;
    d.launch = setting_launch_desc(s);
#if defined(FLEET_HOST)
    d.launch.host.stats = &o->stats;
#endif
#if defined(FLEET_MEMORY_MODEL)
    d.launch.host.engine = FLEET_ENGINE_DETERMINISTIC;
    d.launch.host.memory_model = 1;
#endif
    if (fleet_session_open(&o->s, g, &d,
                           flow ? FLEET_KERNEL_OF(flow_kernel) : FLEET_KERNEL_OF(job_kernel))) {
        test_fail(t, __FILE__, __LINE__, "%s: %s", fleet_graph_error(g), o->s.message);
        return 0;
    }
    fleet_graph_destroy(g);
    memory = (uint32_t *)fleet_session_alloc(&o->s, words * 4);
    NEED(memory);
    NEED_STATUS(fleet_pinned_alloc(&o->pinned, &o->pinned_device, 256), FLEET_OK);
    memset(o->pinned, 0, 256);
    NEED_STATUS(fleet_device_clear(memory, words * 4, NULL), FLEET_OK);
    for (i = 0; i < GRIDS; i++) {
        job *j = &o->args[i];
        j->runs = memory, j->wrong = memory + GRIDS * CELLS;
        j->values = (const int32_t *)j->wrong + 32;
        j->cut_at = j->values + STEPS * SYMBOLS;
        j->weights = (const uint32_t *)j->cut_at + STEPS;
        j->weights = (const uint32_t *)(((uintptr_t)j->weights + 15) / 16 * 16);
        j->words = (uint32_t *)o->pinned_device;
        j->grid = i;
    }
    NEED_STATUS(
        fleet_to_device((void *)(uintptr_t)o->args[0].values, o->values, sizeof o->values, NULL),
        FLEET_OK);
    NEED_STATUS(
        fleet_to_device((void *)(uintptr_t)o->args[0].cut_at, o->cut_at, sizeof o->cut_at, NULL),
        FLEET_OK);
    return 1;
}
static void stand_close(stand *o)
{
    fleet_session_close(&o->s);
    if (o->pinned) fleet_pinned_free(o->pinned);
}

/* Adds what `ran` steps must have run, and compares. */
static int stand_check(test_run *t, stand *o, uint32_t epoch, uint32_t ran)
{
    uint32_t i, wrong = 0;
    for (i = 0; i < ran; i++) step_runs(o, i, o->want);
    if (fleet_state_epoch(&o->s.state) != epoch + ran)
        test_fail(t, __FILE__, __LINE__, "%u steps have run, not %u",
                  fleet_state_epoch(&o->s.state) - epoch, ran);
    NEED_STATUS(fleet_to_host(&wrong, o->args[0].wrong, 4, NULL), FLEET_OK);
    if (wrong) test_fail(t, __FILE__, __LINE__, "%u tasks saw another step's values", wrong);
    return !t->failed_here && runs_are(t, o->args[0].runs, o->want, GRIDS, CELLS);
}

/* Binds the first step's values and launches; adds what must have run. */
static int stand_run(test_run *t, stand *o, uint32_t steps, uint32_t last, uint32_t ran)
{
    const uint32_t epoch = fleet_state_epoch(&o->s.state);
    uint32_t i;
    NEED_STATUS(fleet_bind(&o->s.state, "rows", o->values[ROWS], NULL), FLEET_OK);
    NEED_STATUS(fleet_bind(&o->s.state, "cols", o->values[COLS], NULL), FLEET_OK);
    NEED_STATUS(fleet_bind(&o->s.state, "left", o->values[LEFT], NULL), FLEET_OK);
    for (i = 0; i < GRIDS; i++) o->args[i].last = last;
    o->s.launch.steps = steps;
    NEED_STATUS(fleet_session_run(&o->s, o->args, sizeof o->args), FLEET_OK);
    NEED(ended_with(t, &o->s.state, FLEET_OK));
#if defined(FLEET_HOST)
    if (o->stats.findings) test_fail(t, __FILE__, __LINE__, "findings of the memory model");
#endif
    return stand_check(t, o, epoch, ran);
}

/* ---- tests ---- */

static void run_steps(test_run *t, const setting *s, void *flow)
{
    static const uint32_t epochs[4] = {0, 0xfffffffau, 0x7ffffffau, 0xfffffffeu};
    static stand o;
    if (!stand_open(t, &o, s, *(uint32_t *)flow, epochs[s->seed % 4])) return;
    if (!stand_run(t, &o, 9, 0, 9) || !stand_run(t, &o, 1, 0, 1) || !stand_run(t, &o, 4, 3, 3))
        return;
    /* No last step, across the wrap of the numbers of its steps. */
    if (!stand_run(t, &o, FLEET_STEPS_ENDLESS, 40, 40)) return;
    if (!stand_run(t, &o, FLEET_STEPS_ENDLESS, 1, 1)) return;
    stand_close(&o);
}
static void in_all(test_run *t, uint32_t few, void (*f)(test_run *, const setting *, void *),
                   uint32_t flow)
{
    setting s;
    in_settings(t, few, f, &flow);
    for (uint32_t i = 0; setting_get(i, few, &s) && !t->failed_here; i++) {
        if (setting_skipped(i)) continue;
        if (s.schedule == FLEET_SCHEDULE_STATIC) {
            s.mixed = i % 2 ? 0x2a5u : 0x15au;
        } else if (s.schedule == FLEET_SCHEDULE_DYNAMIC) {
            s.early = 1, s.unaware = i % 2;
        } else {
            s.schedule = FLEET_SCHEDULE_STATIC;
            s.unfused = i % 2, s.unaware = !s.unfused;
        }
        f(t, &s, &flow);
        if (t->failed_here) setting_print(&s);
    }
}
static void each_step_has_its_own_shapes(test_run *t)
{
    in_all(t, deep() ? 12 : FEW, run_steps, 0);
}
static void weight_pipelines_follow(test_run *t)
{
    in_all(t, deep() ? 12 : FEW, run_steps, 1);
}

static void run_out_of_range(test_run *t, const setting *s, void *unused)
{
    static stand o;
    static char report[4096];
    uint32_t i;
    fleet_failure f;
    (void)unused;
    if (!stand_open(t, &o, s, 0, 0)) return;
    for (i = 0; i < GRIDS; i++) o.args[i].too_large = MOST + 1;
    o.s.launch.steps = 9;
    CHECK_STATUS(fleet_session_run(&o.s, o.args, sizeof o.args), FLEET_OK);
    if (!ended_with(t, &o.s.state, FLEET_ERROR_SYMBOL_RANGE)) return;
    fleet_state_report(&o.s.state, report, sizeof report);
    if (!strstr(report, "it sets symbol cols") || !strstr(report, "to 7, outside [1, 6]"))
        test_fail(t, __FILE__, __LINE__, "%s", report);
    CHECK(fleet_state_failure(&o.s.state, &f) && f.epoch == 3 && f.counter == COLS);
    CHECK_STATUS(fleet_state_recover(&o.s.state, NULL), FLEET_OK);
    CHECK_STATUS(fleet_session_wait(&o.s), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(o.args[0].runs, (GRIDS * CELLS + 1) * 4, NULL), FLEET_OK);
    for (i = 0; i < GRIDS; i++) o.args[i].too_large = 0;
    if (!stand_run(t, &o, 3, 0, 3)) return;
    stand_close(&o);
}
static void a_value_out_of_range_ends_the_run(test_run *t)
{
    in_settings(t, 1, run_out_of_range, NULL);
}

/* ---- a launch that stays ---- */

static void *launch_it(void *o_)
{
    stand *o = (stand *)o_;
    (void)fleet_session_run(&o->s, o->args, sizeof o->args);
    return NULL;
}
/* On a GPU it runs beside this thread anyway. */
static void stay(stand *o)
{
#if defined(FLEET_HOST)
    if (pthread_create(&o->thread, NULL, launch_it, o)) abort();
#else
    launch_it(o);
#endif
}
static void leave(stand *o)
{
#if defined(FLEET_HOST)
    pthread_join(o->thread, NULL);
#else
    (void)o;
#endif
}
static void nap(uint64_t ns)
{
    const uint64_t since = now_ns();
    struct timeval pause;
    do {
        pause.tv_sec = 0, pause.tv_usec = 500;
        select(0, NULL, NULL, NULL, &pause);
    } while (now_ns() - since < ns);
}
/* Until the boundary has begun its n-th wait; 0: it has not in twenty seconds. */
static int await_boundary(const uint32_t *words, uint32_t n)
{
    const uint64_t since = now_ns();
    while (__atomic_load_n(words + 32, __ATOMIC_ACQUIRE) < n) {
        if (now_ns() - since > 20000000000u) return 0;
        nap(0);
    }
    return 1;
}
#define LIMIT_NS 1000000000u
static void run_stay(test_run *t, const setting *s, void *unused)
{
    static stand o;
    uint32_t *words, i, aborts;
    (void)unused;
    for (aborts = 0; aborts < 2; aborts++) {
        int all = 1;
        if (!stand_open(t, &o, s, 0, 0)) return;
        words = (uint32_t *)o.pinned;
        for (i = 0; i < GRIDS; i++) o.args[i].idle = 1;
        for (i = 0; i < SYMBOLS; i++) o.values[i] = i == COLS; /* the least, without fleet_bind */
        CHECK_STATUS(
            fleet_to_device((void *)(uintptr_t)o.args[0].values, o.values, sizeof o.values, NULL),
            FLEET_OK);
        o.s.launch.steps = FLEET_STEPS_ENDLESS;
        o.s.launch.limit_ns = LIMIT_NS;
        stay(&o);
        for (i = 1; i <= 7 && all; i++) {
            all = await_boundary(words, i);
            /* Once for longer than any wait may last: for those that poll in real time. */
            if (i == 3 && !aborts && s->engine == FLEET_ENGINE_THREADS) nap(LIMIT_NS * 2);
            if (i == 7 && !aborts) __atomic_store_n(words + 1, 1, __ATOMIC_RELAXED);
            if (i < 7 || !aborts) fleet_wake(words);
        }
        if (aborts || !all) fleet_state_abort(&o.s.state);
        leave(&o);
        if (!ended_with(t, &o.s.state, aborts ? FLEET_ERROR_ABORTED : FLEET_OK)) return;
        CHECK(all);
        if (!aborts && !stand_check(t, &o, 0, 7)) return;
        stand_close(&o);
    }
}
static void a_launch_stays_until_told(test_run *t)
{
    in_settings(t, 1, run_stay, NULL);
}

/* ---- graphs that are refused ---- */

typedef struct refusal {
    fleet_graph *g;
    fleet_grid a, b, last;
    fleet_dim n;
} refusal;
static refusal refusal_begin(void)
{
    refusal r;
    r.g = fleet_graph_create(NULL);
    r.n = fleet_symbol(r.g, "n", 0, 4);
    r.a = fleet_call_device(r.g, "a", job_cell, fleet_shape1(r.n), 0);
    r.b = fleet_call_device(r.g, "b", job_cell, fleet_shape1_of(2), 0);
    r.last = fleet_call_device(r.g, "last", job_cell, fleet_shape0(), 0);
    return r;
}
static void refusal_end(test_run *t, refusal r, const fleet_plan_desc *d, fleet_status want,
                        const char *says)
{
    fleet_plan *plan = NULL;
    fleet_status got = fleet_plan_build(r.g, d, &plan);
    if (got != want || (want && !strstr(fleet_graph_error(r.g), says)))
        test_fail(t, __FILE__, __LINE__, "%s: %s", fleet_status_name(got), fleet_graph_error(r.g));
    fleet_plan_free(plan);
    fleet_graph_destroy(r.g);
}
static void graphs_whose_symbols_cannot_be_set(test_run *t)
{
    static const int64_t two[] = {2};
    fleet_plan_desc d = fleet_plan_desc_default();
    fleet_grid gate;
    refusal r = refusal_begin();
    fleet_symbol_writer(r.g, r.n, r.last);
    fleet_after(r.g, r.last, r.a);
    refusal_end(t, r, NULL, FLEET_ERROR_ORDER, "grid b may run beside it");
    r = refusal_begin();
    fleet_symbol_writer(r.g, r.n, r.b);
    fleet_after(r.g, r.b, r.a), fleet_after(r.g, r.b, r.last);
    refusal_end(t, r, NULL, FLEET_ERROR_ARGUMENT, "must be one CU- or wavefront-task");
    r = refusal_begin();
    fleet_symbol_writer(r.g, r.n, r.last);
    fleet_symbol_writer(r.g, fleet_symbol(r.g, "m", 0, 1), r.b);
    refusal_end(t, r, NULL, FLEET_ERROR_ARGUMENT,
                "symbol m: its writer is grid b, but that of symbol n");
    r = refusal_begin();
    fleet_symbol_writer(r.g, fleet_dim_plus(r.n, 1), r.last);
    refusal_end(t, r, NULL, FLEET_ERROR_HANDLE, "that fleet_symbol returned");
    r = refusal_begin();
    fleet_symbol_writer(r.g, r.n, r.last);
    fleet_after(r.g, r.last, r.a), fleet_after(r.g, r.last, r.b);
    fleet_buckets_at_build(&d, r.n, two, 1);
    refusal_end(t, r, &d, FLEET_ERROR_ARGUMENT, "has that of its max alone");
    d = fleet_plan_desc_default();
    r = refusal_begin();
    fleet_symbol_writer(r.g, r.n, r.last);
    fleet_after(r.g, r.last, r.a), fleet_after(r.g, r.last, r.b);
    fleet_bind_at_build(&d, r.n, 2);
    refusal_end(t, r, &d, FLEET_ERROR_ARGUMENT, "symbol n is bound at build");
    d = fleet_plan_desc_default();
    r = refusal_begin();
    gate = fleet_call_device(r.g, "gate", job_cell, fleet_shape0(), 0);
    fleet_symbol_cutter(r.g, r.n, gate);
    refusal_end(t, r, NULL, FLEET_ERROR_ARGUMENT, "grid gate cuts symbol n, which has no writer");
    r = refusal_begin();
    gate = fleet_call_device(r.g, "gate", job_cell, fleet_shape0(), 0);
    fleet_symbol_writer(r.g, r.n, r.last);
    fleet_symbol_cutter(r.g, r.n, gate);
    fleet_after(r.g, r.last, r.a), fleet_after(r.g, r.last, r.b), fleet_after(r.g, r.last, gate);
    refusal_end(t, r, NULL, FLEET_ERROR_ORDER, "grid gate cuts a symbol of grid a");
    r = refusal_begin();
    gate = fleet_call_device(r.g, "gate", job_cell, fleet_shape0(), 0);
    fleet_symbol_writer(r.g, r.n, r.last);
    fleet_symbol_cutter(r.g, r.n, gate);
    fleet_after(r.g, gate, r.a);
    fleet_after(r.g, r.last, r.b), fleet_after(r.g, r.last, gate), fleet_after(r.g, r.last, r.a);
    refusal_end(t, r, NULL, FLEET_OK, "");
}

/* The gate cuts the symbol to 0, so that a, b and c of the chain gate -> a -> b -> c -> end have no tasks. `end` waits for c
   only. It must still run after the gate, and after `beside`, which b would have waited for. */
typedef struct passed {
    /* At 0 and 64: the epoch in which `beside` and the gate ran last. At 128: how often `end` found another epoch there. At
       192: runs of a, b and c. */
    uint32_t *cells;
    uint32_t cell, unused;
} passed;
FLEET_TILE(leave_mark, passed)
{
    FLEET_UNUSED(at);
    fleet_barrier(&ctx);
    if (ctx.thread == 0) args->cells[args->cell * 64] = ctx.epoch;
    return args->cell ? fleet_cut_symbol(&ctx, 0, 0) : FLEET_OK;
}
FLEET_TILE(layer, passed)
{
    FLEET_UNUSED(at);
    if (ctx.thread == 0) fleet_add_relaxed_device(args->cells + 192, 1);
    return FLEET_OK;
}
FLEET_TILE(join, passed)
{
    FLEET_UNUSED(at);
    if (ctx.thread == 0 && (args->cells[0] != ctx.epoch || args->cells[64] != ctx.epoch))
        args->cells[128]++;
    return fleet_next_symbol(&ctx, 0, 1);
}
#define PASSED_TILES(TILE_, P) TILE_(P, leave_mark) TILE_(P, layer) TILE_(P, join)
FLEET_MEGAKERNEL(passed, PASSED_TILES, FLEET_ANY_THREADS(64))

static fleet_grid placed(fleet_graph *g, const char *name, uint32_t tile, fleet_dim n,
                         uint32_t args, uint32_t chiplet, uint32_t worker)
{
    const fleet_grid grid = fleet_call_device(g, name, tile, fleet_shape1(n), args);
    fleet_grid_place(g, grid,
                     fleet_map2(fleet_axis(0, 0, chiplet, 1), fleet_axis(0, 0, worker, 1)));
    return grid;
}
/* All are on one worker, but for `beside`, where there is another one. */
static void pass_layers(test_run *t, const setting *s, void *user)
{
    const uint32_t far = s->topology.chiplets - 1, beside_it = !far && s->topology.units[0] > 2;
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim n = fleet_symbol(g, "n", 0, 1);
    const fleet_dim one = fleet_dim_of(1);
    const fleet_grid beside = placed(g, "beside", passed_leave_mark, one, 0, far, beside_it);
    const fleet_grid gate = placed(g, "gate", passed_leave_mark, one, 1, 0, 0);
    fleet_grid chain[3], end;
    fleet_session o;
    fleet_session_desc d = fleet_session_desc_default();
    passed args[2];
    uint32_t seen[256];
    (void)user;
    if (s->schedule !=
        FLEET_SCHEDULE_STATIC) { /* others may not name workers, and have no settled grids */
        fleet_graph_destroy(g);
        return;
    }
    for (uint32_t i = 0; i < 3; i++) {
        const char *const names[] = {"a", "b", "c"};
        chain[i] = placed(g, names[i], passed_layer, n, 0, 0, 0);
        fleet_after(g, chain[i], i ? chain[i - 1] : gate);
    }
    fleet_after(g, chain[1], beside);
    end = placed(g, "end", passed_join, one, 0, 0, 0);
    fleet_after(g, end, chain[2]);
    fleet_symbol_writer(g, n, end), fleet_symbol_cutter(g, n, gate);
    d.plan = setting_plan_desc(s), d.state = setting_state_desc(s);
    d.launch = setting_launch_desc(s), d.launch.steps = 6, d.launch.threads = 0;
#if defined(FLEET_MEMORY_MODEL)
    d.launch.host.engine = FLEET_ENGINE_DETERMINISTIC, d.launch.host.memory_model = 1;
#endif
    if (fleet_session_open(&o, g, &d, FLEET_KERNEL_OF(passed_kernel)))
        test_fail(t, __FILE__, __LINE__, "%s: %s", fleet_graph_error(g), o.message);
    fleet_graph_destroy(g);
    if (t->failed_here) return;
    args[0].cells = (uint32_t *)fleet_session_alloc(&o, sizeof seen), args[0].cell = 0;
    args[1] = args[0], args[1].cell = 1;
    CHECK_STATUS(fleet_device_clear(args[0].cells, sizeof seen, NULL), FLEET_OK);
    CHECK_STATUS(fleet_bind(&o.state, "n", 1, NULL), FLEET_OK);
    CHECK_STATUS(fleet_session_run(&o, args, sizeof args), FLEET_OK);
    CHECK(ended_with(t, &o.state, FLEET_OK));
    CHECK_STATUS(fleet_to_host(seen, args[0].cells, sizeof seen, NULL), FLEET_OK);
    CHECK_INT(seen[128], 0);
    CHECK_INT(seen[192], 0);
    fleet_session_close(&o);
}
static void order_holds_past_grids_that_vanish(test_run *t)
{
    in_settings(t, FEW, pass_layers, NULL);
}

static void all(test_run *t)
{
    TEST(order_holds_past_grids_that_vanish);
    TEST(each_step_has_its_own_shapes);
    TEST(weight_pipelines_follow);
    TEST(a_value_out_of_range_ends_the_run);
    TEST(a_launch_stays_until_told);
    TEST(graphs_whose_symbols_cannot_be_set);
}
TEST_MAIN(all)
