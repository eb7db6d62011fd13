/* Orders that graphs of real algorithms need. Data goes by plain loads and stores only, so that a task that runs too
   early reads wrong values; results are compared with plain references. */
// run: asan engine=both
// run: tsan timeout=120
#include "settings.h"

typedef struct order { /* what every tile sees */
    int32_t *a, *b, *c;
    int32_t n, m, k;
} order;

/* ---- tiles of fleet_after: three grids one after another ---- */

#define AFTER_N 7
#define AFTER_M 3
#define AFTER_SUMS 5

FLEET_BOTH int32_t after_value(int32_t i, int32_t j, uint32_t epoch)
{
    return (int32_t)(((uint32_t)i * 31 + (uint32_t)j * 7 + epoch * 13) % 1000);
}
FLEET_TILE(fill, order) /* (n, AFTER_M) */
{
    if (ctx.thread == 0) args->a[at[0] * AFTER_M + at[1]] = after_value(at[0], at[1], ctx.epoch);
    return FLEET_OK;
}
FLEET_TILE(sum, order) /* (AFTER_SUMS): sums what all of fill wrote */
{
    int32_t total = at[0], i;
    for (i = 0; i < ctx.symbols[0] * AFTER_M; i++) total += args->a[i];
    if (ctx.thread == 0) args->b[at[0]] = total;
    return FLEET_OK;
}
FLEET_TILE(total, order)
{
    int32_t total = 0, i;
    FLEET_UNUSED(at);
    for (i = 0; i < AFTER_SUMS; i++) total += args->b[i];
    if (ctx.thread == 0) *args->c = total;
    return FLEET_OK;
}

/* ---- tiles of maps with two limits ---- */

FLEET_BOTH int32_t mixed(int32_t a, int32_t b)
{
    return (int32_t)(((uint32_t)a * 0x9e3779b1u ^ (uint32_t)b * 0x85ebca6bu) % 1009);
}

/* A point of a plane of n x m, and its neighbours; outside is 0. */
FLEET_BOTH int32_t stencil_point(const int32_t *from, int32_t n, int32_t m, int32_t i, int32_t j)
{
    uint32_t v = 5 * (uint32_t)from[i * m + j] + 1;
    if (i > 0) v += (uint32_t)from[(i - 1) * m + j];
    if (i + 1 < n) v += 3 * (uint32_t)from[(i + 1) * m + j];
    if (j > 0) v += 7 * (uint32_t)from[i * m + j - 1];
    if (j + 1 < m) v += 11 * (uint32_t)from[i * m + j + 1];
    return (int32_t)(v % 65521);
}
FLEET_TILE(stencil, order) /* (sweeps, n, m): from one plane to the other in turn */
{
    const uint32_t turn = (ctx.epoch - 1) * (uint32_t)args->n + (uint32_t)at[0];
    const int32_t *from = turn % 2 ? args->b : args->a;
    int32_t *to = turn % 2 ? args->a : args->b;
    if (ctx.thread == 0)
        to[at[1] * args->m + at[2]] = stencil_point(from, ctx.symbols[0], args->m, at[1], at[2]);
    return FLEET_OK;
}

/* Smith-Waterman: cell (i, j) of the scores of two sequences that change with the step. */
FLEET_BOTH int32_t align_cell(const int32_t *score, int32_t m, int32_t i, int32_t j, int32_t epoch)
{
    const int32_t diagonal = i && j ? score[(i - 1) * m + j - 1] : 0;
    int32_t best = diagonal + (mixed(i, epoch) % 4 == mixed(j, 1) % 4 ? 3 : -1);
    if (i && score[(i - 1) * m + j] - 2 > best) best = score[(i - 1) * m + j] - 2;
    if (j && score[i * m + j - 1] - 2 > best) best = score[i * m + j - 1] - 2;
    return best > 0 ? best : 0;
}
FLEET_TILE(align, order) /* (n, m) */
{
    if (ctx.thread == 0)
        args->a[at[0] * args->m + at[1]] =
            align_cell(args->a, args->m, at[0], at[1], (int32_t)ctx.epoch);
    return FLEET_OK;
}

/* A tree: the nodes of a level lie in a[n], a[n + 1], ...; those of the level below, k of them, in a[m] ... */
FLEET_TILE(leaf, order)
{
    if (ctx.thread == 0) args->a[at[0]] = mixed(at[0], (int32_t)ctx.epoch);
    return FLEET_OK;
}
FLEET_TILE(node, order)
{
    const int32_t left = 2 * at[0];
    int32_t sum = args->a[args->m + left];
    if (left + 1 < args->k) sum += args->a[args->m + left + 1];
    if (ctx.thread == 0) args->a[args->n + at[0]] = sum;
    return FLEET_OK;
}

#define ORDER_TILES(TILE, P)                                                                       \
    TILE(P, fill)                                                                                  \
    TILE(P, sum) TILE(P, total) TILE(P, stencil) TILE(P, align) TILE(P, leaf) TILE(P, node)
FLEET_DISPATCH(order, ORDER_TILES)
FLEET_KERNEL(order_kernel, order, 256)
{
    FLEET_WORKER_LOOP(order);
}

/* ---- a plan on the device, with `words` words of memory ---- */

#define MOST_WORDS 4096
#define MOST_ARGS 8

typedef struct rig {
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_launch_desc launch;
    void *memory, *args;
    order grid[MOST_ARGS]; /* the caller sets n, m and k */
    int32_t host[MOST_WORDS];
} rig;

#define AT_B 1024
#define AT_C 2048

/* Builds the plan of a graph, for memory as the caller has filled it in r->host. */
static int rig_open(test_run *t, rig *r, fleet_graph *g, const setting *s)
{
    fleet_plan_desc desc = setting_plan_desc(s);
    fleet_state_desc state = setting_state_desc(s);
    uint32_t i;
    if (fleet_plan_build(g, &desc, &r->plan))
        test_fail(t, __FILE__, __LINE__, "%s", fleet_graph_error(g));
    if (t->failed_here) return 0;
    NEED_STATUS(fleet_plan_check(r->plan, (size_t)r->plan->bytes), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&r->memory, sizeof r->host), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&r->args, sizeof r->grid), FLEET_OK);
    for (i = 0; i < MOST_ARGS; i++) {
        r->grid[i].a = (int32_t *)r->memory;
        r->grid[i].b = r->grid[i].a + AT_B;
        r->grid[i].c = r->grid[i].a + AT_C;
    }
    NEED_STATUS(fleet_to_device(r->args, r->grid, sizeof r->grid, NULL), FLEET_OK);
    NEED_STATUS(fleet_to_device(r->memory, r->host, sizeof r->host, NULL), FLEET_OK);
    NEED_STATUS(fleet_upload(&r->image, r->plan, NULL), FLEET_OK);
    NEED_STATUS(fleet_state_create(&r->state, &r->image, &state, NULL), FLEET_OK);
    r->launch = setting_launch_desc(s);
    return 1;
}

/* Runs steps, after which r->host is the memory. */
static int rig_run(test_run *t, rig *r, uint32_t steps)
{
    r->launch.steps = steps;
    NEED_STATUS(fleet_launch(&r->state, &r->launch, FLEET_KERNEL_OF(order_kernel), r->args),
                FLEET_OK);
    if (!ended_with(t, &r->state, FLEET_OK)) return 0;
    NEED_STATUS(fleet_to_host(r->host, r->memory, sizeof r->host, NULL), FLEET_OK);
    return 1;
}

static void rig_close(rig *r)
{
    fleet_state_free(&r->state);
    fleet_image_free(&r->image);
    fleet_device_free(r->memory);
    fleet_device_free(r->args);
    fleet_plan_free(r->plan);
}

/* ---- fleet_after ---- */

static void run_after(test_run *t, const setting *s, void *unused)
{
    static const int32_t values[] = {AFTER_N, 1, 4};
    static rig r;
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim n = fleet_symbol(g, "n", 1, AFTER_N);
    const fleet_shape filled = fleet_shape_and_of(fleet_shape1(n), AFTER_M);
    const fleet_grid first = fleet_call_device(g, "fill", order_fill, filled, 0);
    const fleet_grid middle =
        fleet_call_device(g, "sum", order_sum, fleet_shape1_of(AFTER_SUMS), 0);
    const fleet_grid last = fleet_call_device(g, "total", order_total, fleet_shape0(), 0);
    uint32_t epoch = 0, i;
    int32_t j, k;
    (void)unused;
    fleet_after(g, last, middle);
    fleet_after(g, middle, first);
    memset(&r, 0, sizeof r);
    if (!rig_open(t, &r, g, s)) return;
    for (i = 0; i < 3; i++) {
        int32_t want = AFTER_SUMS * (AFTER_SUMS - 1) / 2;
        CHECK_STATUS(fleet_bind(&r.state, "n", values[i], NULL), FLEET_OK);
        if (!rig_run(t, &r, 2)) return;
        epoch += 2;
        for (j = 0; j < values[i]; j++)
            for (k = 0; k < AFTER_M; k++) want += AFTER_SUMS * after_value(j, k, epoch);
        CHECK_INT(r.host[AT_C], want);
    }
    rig_close(&r);
    fleet_graph_destroy(g);
}

static void grids_after_grids(test_run *t)
{
    in_settings(t, 8, run_after, NULL);
}

/* ---- maps with two limits ---- */

#define STENCIL_N 6

/* Sweeps of a stencil over n x m points, n bound at launch. */
static void run_stencil(test_run *t, const setting *s, const int32_t *size)
{
    static const int32_t rows[] = {STENCIL_N, 1, 5, 2};
    static rig r;
    static int32_t plane[2][64], (*got)[AT_B];
    const int32_t m = size[0], sweeps = size[1];
    const fleet_dim none = fleet_dim_of(0), t_end = fleet_dim_of(sweeps), j_end = fleet_dim_of(m);
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim n = fleet_symbol(g, "n", 1, STENCIL_N);
    const fleet_shape points = fleet_shape3(t_end, n, j_end);
    const fleet_grid grid = fleet_call_device(g, "stencil", order_stencil, points, 0);
    const fleet_etensor done = fleet_event_tensor(g, "done", points, FLEET_COUNT_DERIVED);
    const fleet_axis_map before = fleet_axis_clipped(0, 1, -1, 1, none, t_end);
    const fleet_axis_map i = fleet_axis(1, 1, 0, 1), j = fleet_axis(2, 1, 0, 1);
    int32_t k, x, y, turn = 0;
    uint32_t launch, step;
    fleet_out_edge(g, grid, done, "tij->tij");
    fleet_in_edge_map(g, grid, done, fleet_map3(before, i, j));
    for (k = -1; k <= 1; k += 2) {
        fleet_in_edge_map(g, grid, done,
                          fleet_map3(before, fleet_axis_clipped(1, 1, k, 1, none, n), j));
        fleet_in_edge_map(g, grid, done,
                          fleet_map3(before, i, fleet_axis_clipped(2, 1, k, 1, none, j_end)));
    }
    memset(&r, 0, sizeof r);
    r.grid[0].n = sweeps, r.grid[0].m = m;
    for (k = 0; k < STENCIL_N * m; k++) r.host[k] = plane[0][k] = mixed(k, m);
    memset(plane[1], 0, sizeof plane[1]);
    if (!rig_open(t, &r, g, s)) return;
    got = (int32_t(*)[AT_B])r.host;
    for (launch = 0; launch < 4; launch++) {
        CHECK_STATUS(fleet_bind(&r.state, "n", rows[launch], NULL), FLEET_OK);
        if (!rig_run(t, &r, 1 + launch)) return;
        for (step = 0; step < 1 + launch; step++)
            for (k = 0; k < sweeps; k++, turn++)
                for (x = 0; x < rows[launch]; x++)
                    for (y = 0; y < m; y++)
                        plane[1 - turn % 2][x * m + y] =
                            stencil_point(plane[turn % 2], rows[launch], m, x, y);
        for (k = 0; k < STENCIL_N * m; k++) {
            CHECK_INT(got[0][k], plane[0][k]);
            CHECK_INT(got[1][k], plane[1][k]);
        }
    }
    rig_close(&r);
    fleet_graph_destroy(g);
}
static void run_stencils(test_run *t, const setting *s, void *unused)
{
    static const int32_t sizes[][2] = {{1, 3}, {4, 2}, {1, 1}, {5, 3}}; /* m, sweeps */
    uint32_t i;
    (void)unused;
    for (i = 0; i < 4 && !t->failed_here; i++) run_stencil(t, s, sizes[i]);
}

static void five_point_stencil(test_run *t)
{
    in_settings(t, 6, run_stencils, NULL);
}

#define ALIGN_N 7
#define ALIGN_M 5

static void run_wavefront(test_run *t, const setting *s, void *unused)
{
    static rig r;
    static int32_t want[ALIGN_N * ALIGN_M];
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim none = fleet_dim_of(0), n = fleet_dim_of(ALIGN_N), m = fleet_dim_of(ALIGN_M);
    const fleet_grid grid = fleet_call_device(g, "align", order_align, fleet_shape2(n, m), 0);
    const fleet_etensor done =
        fleet_event_tensor(g, "done", fleet_shape2(n, m), FLEET_COUNT_DERIVED);
    const fleet_axis_map up = fleet_axis_clipped(0, 1, -1, 1, none, n);
    const fleet_axis_map left = fleet_axis_clipped(1, 1, -1, 1, none, m);
    int32_t epoch, i, j;
    (void)unused;
    fleet_out_edge(g, grid, done, "ij->ij");
    fleet_in_edge_map(g, grid, done, fleet_map2(up, fleet_axis(1, 1, 0, 1)));
    fleet_in_edge_map(g, grid, done, fleet_map2(fleet_axis(0, 1, 0, 1), left));
    fleet_in_edge_map(g, grid, done, fleet_map2(up, left));
    memset(&r, 0, sizeof r);
    r.grid[0].m = ALIGN_M;
    if (!rig_open(t, &r, g, s)) return;
    for (epoch = 1; epoch <= 3; epoch++) {
        if (!rig_run(t, &r, 1)) return;
        for (i = 0; i < ALIGN_N; i++)
            for (j = 0; j < ALIGN_M; j++)
                want[i * ALIGN_M + j] = align_cell(want, ALIGN_M, i, j, epoch);
        for (i = 0; i < ALIGN_N * ALIGN_M; i++) CHECK_INT(r.host[i], want[i]);
    }
    rig_close(&r);
    fleet_graph_destroy(g);
}

static void smith_waterman(test_run *t)
{
    in_settings(t, 8, run_wavefront, NULL);
}

#define LEAVES 13
#define LEVELS 5 /* 13, 7, 4, 2, 1 */

static void run_tree(test_run *t, const setting *s, void *unused)
{
    static rig r;
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor below = fleet_event_tensor(g, "level 0", fleet_shape1_of(LEAVES), 0);
    int32_t count = LEAVES, first = 0, level, i, want = 0;
    char name[24];
    (void)unused;
    memset(&r, 0, sizeof r);
    fleet_out_edge(g, fleet_call_device(g, "leaf", order_leaf, fleet_shape1_of(LEAVES), 0), below,
                   "i->i");
    for (level = 1; level < LEVELS; level++) {
        const int32_t nodes = (count + 1) / 2;
        fleet_etensor done;
        fleet_grid grid;
        snprintf(name, sizeof name, "level %d", level);
        done = fleet_event_tensor(g, name, fleet_shape1_of(nodes), 0);
        grid = fleet_call_device(g, name, order_node, fleet_shape1_of(nodes), (uint32_t)level);
        fleet_in_edge_map(g, grid, below,
                          fleet_map1(fleet_axis_retile(0, 2, 1, fleet_dim_of(count))));
        fleet_out_edge(g, grid, done, "i->i");
        r.grid[level].m = first, r.grid[level].k = count;
        r.grid[level].n = first + count;
        first += count, count = nodes, below = done;
    }
    if (!rig_open(t, &r, g, s)) return;
    if (!rig_run(t, &r, 3)) return;
    for (i = 0; i < LEAVES; i++) want += mixed(i, 3);
    CHECK_INT(r.host[first], want);
    rig_close(&r);
    fleet_graph_destroy(g);
}

static void tree_reduction(test_run *t)
{
    in_settings(t, 8, run_tree, NULL);
}

static void list(test_run *t)
{
    TEST(five_point_stencil);
    TEST(smith_waterman);
    TEST(tree_reduction);
    TEST(grids_after_grids);
}
TEST_MAIN(list)
