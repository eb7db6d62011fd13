/* The chiplet-unaware baseline runs the same graph with the same kernel: tiles that go by stride compute the same, each
   exactly once, under every schedule; and what the run counts, arrivals and releases, is what the plan says. */
// run: asan engine=both
// run: tsan
// hip: 6 runs
#include "settings.h"

#define MOST_N 29 /* columns */
#define COLUMNS 8 /* of a slice */
#define K 5

/* What every tile sees. A tile of a GEMM is one column, of the activation after it two. */
typedef struct layer {
    uint32_t *x;        /* [K] */
    uint32_t *out, *z;  /* [MOST_N] */
    uint32_t *total;    /* [1] */
    uint32_t *made_out; /* [MOST_N]: how often each was computed */
    uint32_t *made_z;
} layer;

FLEET_HOST_DEVICE uint32_t weight(uint32_t n, uint32_t k)
{
    return (n * 31 + k * 7 + 1) * 0x9e3779b1u;
}
FLEET_HOST_DEVICE uint32_t columns_of(uint32_t slice, uint32_t n)
{
    const uint32_t first = slice * COLUMNS;
    return n <= first ? 0 : n - first < COLUMNS ? n - first : COLUMNS;
}

FLEET_TILE(fill, layer) /* (k) */
{
    if (ctx.thread == 0) args->x[at[0]] = (ctx.epoch - FLEETI_TEST_START) * 17 + (uint32_t)at[0];
    return FLEET_OK;
}
FLEET_TILE(gemm, layer) /* slices of columns */
{
    const uint32_t n = columns_of(ctx.slice, (uint32_t)ctx.symbols[0]);
    FLEET_UNUSED(at);
    if (ctx.slice >= ctx.slices || ctx.tile_index >= ctx.tile_num) return FLEET_ERROR_TILE;
    for (uint32_t t = ctx.tile_index; t < n; t += ctx.tile_num) {
        const uint32_t column = ctx.slice * COLUMNS + t;
        uint32_t sum = 0;
        if (ctx.thread) continue;
        for (uint32_t k = 0; k < K; k++) sum += args->x[k] * weight(column, k);
        args->out[column] = sum;
        args->made_out[column]++;
    }
    return FLEET_OK;
}
FLEET_TILE(activate, layer) /* (block): a chiplet-task */
{
    const uint32_t first = (uint32_t)at[0] * COLUMNS,
                   n = columns_of((uint32_t)at[0], (uint32_t)ctx.symbols[0]);
    if (ctx.slice != 0 || ctx.slices != 1) return FLEET_ERROR_TILE;
    for (uint32_t t = ctx.tile_index; t < (n + 1) / 2; t += ctx.tile_num)
        for (uint32_t i = 2 * t; i < 2 * t + 2 && i < n && ctx.thread == 0; i++) {
            args->z[first + i] = args->out[first + i] ^ (ctx.epoch - FLEETI_TEST_START);
            args->made_z[first + i]++;
        }
    return FLEET_OK;
}
FLEET_TILE(add, layer)
{
    uint32_t sum = 0;
    for (int32_t i = 0; i < ctx.symbols[0]; i++) sum = sum * 3 + args->z[i];
    if (ctx.thread == 0) *args->total = sum;
    FLEET_UNUSED(at);
    return FLEET_OK;
}
FLEET_TILE(nothing, layer)
{
    FLEET_UNUSED(args), FLEET_UNUSED(at), FLEET_UNUSED(ctx);
    return FLEET_OK;
}
#define LAYER_TILES(TILE, P)                                                                       \
    TILE(P, fill) TILE(P, gemm) TILE(P, activate) TILE(P, add) TILE(P, nothing)
FLEET_DISPATCH(layer, LAYER_TILES)
FLEET_KERNEL(layer_kernel, layer, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(layer);
}

/* ---- the host ---- */

#define WORDS (K + 4 * MOST_N + 1)
#define STEPS 2u

typedef struct layer_rig {
    fleet_graph *g;
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_launch_desc launch;
    fleet_host_stats stats;
    layer l;
    void *args;
    uint32_t epoch;
    uint32_t want[WORDS], made[2 * MOST_N];
} layer_rig;

static fleet_graph *layer_graph(const setting *s, uint32_t tiles)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim n = fleet_symbol(g, "n", 1, MOST_N), blocks = fleet_dim_ceil_div(n, COLUMNS);
    fleet_etensor filled = fleet_event_tensor(g, "filled", fleet_shape0(), K);
    fleet_etensor made = fleet_event_tensor(g, "made", fleet_shape0(), 1);
    fleet_etensor activated = fleet_event_tensor(g, "activated", fleet_shape0(), 0);
    fleet_grid grid[4];
    grid[0] = fleet_call_device(g, "fill", layer_fill, fleet_shape1(fleet_dim_of(K)), 0);
    grid[1] = fleet_call_device(g, "gemm", layer_gemm, fleet_shape0(), 0);
    grid[2] = fleet_call_device(g, "activate", layer_activate, fleet_shape1(blocks), 0);
    grid[3] = fleet_call_device(g, "add", layer_add, fleet_shape0(), 0);
    fleet_grid_level(g, grid[1], FLEET_LEVEL_DEVICE);
    fleet_grid_slices(g, grid[1], blocks);
    fleet_grid_level(g, grid[2], FLEET_LEVEL_CHIPLET);
    if (tiles) {
        fleet_grid_tiles(g, grid[1], fleet_dim_of(tiles));
        fleet_grid_tiles(g, grid[2], fleet_dim_of(tiles));
    }
    for (uint32_t i = 0; i < 4; i++) setting_mix(s, g, grid[i], i);
    fleet_out_edge(g, grid[0], filled, "k->");
    fleet_in_edge(g, grid[1], filled, "->");
    fleet_out_edge(g, grid[1], made, "->");
    fleet_in_edge(g, grid[2], made, "b->");
    fleet_out_edge(g, grid[2], activated, "b->");
    fleet_in_edge(g, grid[3], activated, "->");
    return g;
}

static int layer_open(test_run *t, layer_rig *r, const setting *s, uint32_t tiles)
{
    fleet_plan_desc desc = setting_plan_desc(s);
    fleet_state_desc state = setting_state_desc(s);
    void *memory = NULL;
    memset(r, 0, sizeof *r);
    r->g = layer_graph(s, tiles);
    if (fleet_plan_build(r->g, &desc, &r->plan)) {
        test_fail(t, __FILE__, __LINE__, "%s", fleet_graph_error(r->g));
        return 0;
    }
    NEED_STATUS(fleet_plan_check(r->plan, (size_t)r->plan->bytes), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&memory, WORDS * 4), FLEET_OK);
    NEED_STATUS(fleet_device_clear(memory, WORDS * 4, NULL), FLEET_OK);
    r->l.x = (uint32_t *)memory;
    r->l.out = r->l.x + K;
    r->l.z = r->l.out + MOST_N;
    r->l.total = r->l.z + MOST_N;
    r->l.made_out = r->l.total + 1;
    r->l.made_z = r->l.made_out + MOST_N;
    NEED_STATUS(fleet_device_alloc(&r->args, sizeof r->l), FLEET_OK);
    NEED_STATUS(fleet_to_device(r->args, &r->l, sizeof r->l, NULL), FLEET_OK);
    NEED_STATUS(fleet_upload(&r->image, r->plan, NULL), FLEET_OK);
    NEED_STATUS(fleet_state_create(&r->state, &r->image, &state, NULL), FLEET_OK);
    r->launch = setting_launch_desc(s);
    r->launch.host.stats = &r->stats;
    return 1;
}

static void layer_close(layer_rig *r)
{
    fleet_state_free(&r->state);
    fleet_image_free(&r->image);
    fleet_device_free(r->l.x);
    fleet_device_free(r->args);
    fleet_plan_free(r->plan);
    fleet_graph_destroy(r->g);
}

/* What the steps up to this epoch leave, the last ones for n columns. */
static void layer_expect(layer_rig *r, uint32_t n, uint32_t steps)
{
    uint32_t *x = r->want, *out = x + K, *z = out + MOST_N, *total = z + MOST_N, *made = total + 1;
    r->epoch += steps;
    *total = 0;
    for (uint32_t k = 0; k < K; k++) x[k] = r->epoch * 17 + k;
    for (uint32_t i = 0; i < n; i++) {
        out[i] = 0;
        for (uint32_t k = 0; k < K; k++) out[i] += x[k] * weight(i, k);
        z[i] = out[i] ^ r->epoch;
        *total = *total * 3 + z[i];
        made[i] += steps;
        made[MOST_N + i] += steps;
    }
}

static int layer_run(test_run *t, layer_rig *r, uint32_t n, uint32_t steps, uint32_t *now)
{
    r->launch.steps = steps;
    r->launch.host.seed++;
    NEED_STATUS(fleet_bind(&r->state, "n", n, NULL), FLEET_OK);
    NEED_STATUS(fleet_launch(&r->state, &r->launch, FLEET_KERNEL_OF(layer_kernel), r->args),
                FLEET_OK);
    NEED(ended_with(t, &r->state, FLEET_OK));
    NEED_STATUS(fleet_to_host(now, r->l.x, WORDS * 4, NULL), FLEET_OK);
    layer_expect(r, n, steps);
    for (uint32_t i = 0; i < WORDS; i++)
        if (now[i] != r->want[i]) {
            test_fail(t, __FILE__, __LINE__, "word %u is %u, not %u, with %u columns", i, now[i],
                      r->want[i], n);
            return 0;
        }
    return 1;
}

/* Whether a step made the arrivals and the releases that its plan tells. The host counts them; under DYNAMIC it counts
   ready queues, too. */
static int layer_counts(test_run *t, layer_rig *r, const setting *s)
{
#if defined(FLEET_HOST)
    const fleet_plan_stats stats = fleet_plan_get_stats(r->plan);
    fleet_host_stats few;
    uint32_t now[WORDS];
    if (s->schedule == FLEET_SCHEDULE_DYNAMIC || s->mixed) return 1;
    NEED(layer_run(t, r, MOST_N, 1, now));
    few = r->stats;
    NEED(layer_run(t, r, MOST_N, 1 + STEPS, now));
    if (r->stats.releases - few.releases != STEPS * stats.releases)
        test_fail(t, __FILE__, __LINE__, "%llu releases in %u steps, %llu in the plan of one",
                  (unsigned long long)(r->stats.releases - few.releases), STEPS,
                  (unsigned long long)stats.releases);
    /* A release goes before each global arrival here, as each task has one event; the others are of a chiplet. */
    if (stats.global_signals != stats.releases ||
        r->stats.rmws - few.rmws != STEPS * (stats.local_signals + stats.global_signals))
        test_fail(
            t, __FILE__, __LINE__, "%llu arrivals in %u steps, %llu + %llu in the plan of one",
            (unsigned long long)(r->stats.rmws - few.rmws), STEPS,
            (unsigned long long)stats.local_signals, (unsigned long long)stats.global_signals);
#else
    (void)r, (void)s;
#endif
    return !t->failed_here;
}

/* The same columns, one launch after the other, aware and not; then also without fine-grained events. */
static void run_both(test_run *t, const setting *s_, void *unused)
{
    uint32_t now[3][WORDS], tiles = s_->seed % 4 ? (uint32_t)(s_->seed % 4) * 2 - 1 : 0;
    setting s = *s_;
    (void)unused;
    for (s.levels = 1; s.levels <= 2; s.levels++) {
        const uint32_t forms = s.schedule == FLEET_SCHEDULE_STATIC ? 3 : 2;
        for (uint32_t form = 0; form < forms; form++) {
            uint64_t rng = s.seed;
            layer_rig r;
            s.unaware = form > 0;
            s.unfused = form > 1;
            if (!layer_open(t, &r, &s, tiles)) return;
            for (uint32_t i = 0; i < 4; i++) {
                rng = rng * 6364136223846793005ull + 1442695040888963407ull;
                if (!layer_run(t, &r, i ? 1 + (uint32_t)(rng >> 33) % MOST_N : MOST_N,
                               1 + (uint32_t)(rng >> 50) % 3, now[form]))
                    break;
            }
            if (!t->failed_here) layer_counts(t, &r, &s);
            if (t->failed_here) {
                setting_print(&s);
                return;
            }
            layer_close(&r);
        }
        for (uint32_t form = 1; form < forms; form++)
            CHECK(!memcmp(now[0], now[form], sizeof now[0]));
    }
}

static void same_results_and_counts(test_run *t)
{
    in_settings(t, 12, run_both, NULL);
}

/* Some grids from fixed queues, some from ready ones. */
static void run_mixed(test_run *t, const setting *s_, void *unused)
{
    setting s = *s_;
    if (s.schedule != FLEET_SCHEDULE_STATIC) return;
    for (s.mixed = 1; s.mixed < 16 && !t->failed_here; s.mixed += 3)
        for (s.early = 0; s.early < 2 && !t->failed_here; s.early++) {
            uint32_t now[WORDS];
            layer_rig r;
            s.unaware = 1;
            (void)unused;
            if (!layer_open(t, &r, &s, 3)) return;
            if (layer_run(t, &r, MOST_N, 2, now)) layer_run(t, &r, 1 + s.mixed, 2, now);
            if (!t->failed_here) layer_close(&r);
        }
    if (t->failed_here) setting_print(&s);
}

static void mixed_schedules(test_run *t)
{
    in_settings(t, 4, run_mixed, NULL);
}

/* One slice alone, for a debugger: all of its tiles, and no others. */
static void run_alone(test_run *t, const setting *s_, void *unused)
{
    setting s = *s_;
    layer_rig r;
    uint32_t now[WORDS];
    (void)unused;
    for (s.unaware = 0; s.unaware < 2; s.unaware++) {
        if (!layer_open(t, &r, &s, 3)) return;
        if (!layer_run(t, &r, MOST_N, 1, now)) return;
        CHECK_STATUS(fleet_launch_task(&r.state, &r.launch, FLEET_KERNEL_OF(layer_kernel), r.args,
                                       (uint32_t)fleet_plan_task(r.plan, "gemm", NULL), 1),
                     FLEET_OK);
        CHECK_STATUS(fleet_to_host(now, r.l.x, sizeof now, NULL), FLEET_OK);
        for (uint32_t i = 0; i < MOST_N; i++)
            CHECK_INT(now[K + 2 * MOST_N + 1 + i], 1 + (i / COLUMNS == 1));
        layer_close(&r);
    }
}

static void one_slice_alone(test_run *t)
{
    in_settings(t, 3, run_alone, NULL);
}

/* A device-task's event gets one arrival of each chiplet in a step, and where chiplets do not count first, of each worker:
   so the counter that all of them share tells when the run is over. Each arrival adds 1. */
static void run_arrivals(test_run *t, const setting *s, void *unused)
{
    fleet_plan_desc desc = setting_plan_desc(s);
    fleet_state_desc state_desc = setting_state_desc(s);
    fleet_launch_desc launch = setting_launch_desc(s);
    fleet_graph *g;
    fleet_grid grid;
    fleet_etensor arrived;
    uint32_t arrivals = 0, counter = 0;
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_event event;
    (void)unused;
    if (s->schedule == FLEET_SCHEDULE_DYNAMIC) return; /* there, events have no external waiter */
    g = fleet_graph_create(NULL);
    grid = fleet_call_device(g, "nothing", layer_nothing, fleet_shape0(), 0);
    arrived = fleet_event_tensor(g, "arrived", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_grid_level(g, grid, FLEET_LEVEL_DEVICE);
    fleet_out_edge(g, grid, arrived, "->");
    fleet_event_external(g, arrived, FLEET_EXTERNAL_WAITS, 0, FLEET_SCOPE_DEVICE);
    CHECK_STATUS(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    for (uint32_t k = 0; k < desc.topology.chiplets; k++)
        arrivals += s->levels == 2 ? plan->workers[k] != 0 : plan->workers[k];
    CHECK_STATUS(fleet_upload(&image, plan, NULL), FLEET_OK);
    CHECK_STATUS(fleet_state_create(&state, &image, &state_desc, NULL), FLEET_OK);
    CHECK_STATUS(fleet_event_handle(&state, fleet_plan_event(plan, "arrived"), 0, &event),
                 FLEET_OK);
    for (uint32_t i = 1; i <= 3 && !t->failed_here; i++) {
        launch.steps = i;
        CHECK_STATUS(fleet_launch(&state, &launch, FLEET_KERNEL_OF(layer_kernel), NULL), FLEET_OK);
        if (!ended_with(t, &state, FLEET_OK)) return;
        CHECK_STATUS(fleet_to_host(&counter, event.words + event.counter, 4, NULL), FLEET_OK);
        CHECK_INT(counter, (state_desc.first_epoch + i * (i + 1) / 2) * arrivals);
    }
    fleet_state_free(&state);
    fleet_image_free(&image);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

static void one_arrival_of_each_chiplet(test_run *t)
{
    in_settings(t, 6, run_arrivals, NULL);
}

static void all(test_run *t)
{
    TEST(same_results_and_counts);
    TEST(one_arrival_of_each_chiplet);
    TEST(mixed_schedules);
    TEST(one_slice_alone);
}

TEST_MAIN(all)
