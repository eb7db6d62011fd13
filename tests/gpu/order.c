/* Orders that graphs of real algorithms need. Data goes by plain loads and stores only, so that a task that runs too
   early reads wrong values; results are compared with plain references. */
// run: asan engine=both
// run: tsan
// hip: 6 runs
#include "settings.h"

typedef struct order { /* what every tile sees */
    int32_t *a, *b, *c;
    int32_t n, m, k;
} order;

/* ---- tiles of fleet_after: three grids one after another ---- */

#define AFTER_N 7
#define AFTER_M 3
#define AFTER_SUMS 5

FLEET_HOST_DEVICE int32_t after_value(int32_t i, int32_t j, uint32_t epoch)
{
    return (int32_t)(((uint32_t)i * 31 + (uint32_t)j * 7 + epoch * 13) % 1000);
}
FLEET_TILE(fill, order) /* (n, AFTER_M) */
{
    if (ctx.thread == 0)
        args->a[at[0] * AFTER_M + at[1]] = after_value(at[0], at[1], ctx.epoch - FLEETI_TEST_START);
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

FLEET_HOST_DEVICE int32_t mixed(int32_t a, int32_t b)
{
    return (int32_t)(((uint32_t)a * 0x9e3779b1u ^ (uint32_t)b * 0x85ebca6bu) % 1009);
}

/* A point of a plane of n x m, and its neighbours; outside is 0. */
FLEET_HOST_DEVICE int32_t stencil_point(const int32_t *from, int32_t n, int32_t m, int32_t i,
                                        int32_t j)
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
    const uint32_t turn = (ctx.epoch - FLEETI_TEST_START - 1) * (uint32_t)args->n + (uint32_t)at[0];
    const int32_t *from = turn % 2 ? args->b : args->a;
    int32_t *to = turn % 2 ? args->a : args->b;
    if (ctx.thread == 0)
        to[at[1] * args->m + at[2]] = stencil_point(from, ctx.symbols[0], args->m, at[1], at[2]);
    return FLEET_OK;
}

/* Smith-Waterman: cell (i, j) of the scores of two sequences that change with the step. */
FLEET_HOST_DEVICE int32_t align_cell(const int32_t *score, int32_t m, int32_t i, int32_t j,
                                     int32_t epoch)
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
            align_cell(args->a, args->m, at[0], at[1], (int32_t)(ctx.epoch - FLEETI_TEST_START));
    return FLEET_OK;
}

/* A tree: the nodes of a level lie in a[n], a[n + 1], ...; those of the level below, k of them, in a[m] ... */
FLEET_TILE(leaf, order)
{
    if (ctx.thread == 0) args->a[at[0]] = mixed(at[0], (int32_t)(ctx.epoch - FLEETI_TEST_START));
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

/* ---- tiles of grids that wait for one another in turn ---- */

#define SIDE 3 /* of a tile */
#define TILES 4
#define STRIDE (SIDE * TILES)

/* Tile (i, j) of a matrix. */
FLEET_DEVICE int32_t *tile_of(int32_t *matrix, int32_t i, int32_t j)
{
    return matrix + i * SIDE * STRIDE + j * SIDE;
}
FLEET_HOST_DEVICE int32_t scale_of(uint32_t epoch)
{
    return 1 + (int32_t)(epoch & 1);
}
/* The root of a square; 1 of what an error leaves. */
FLEET_DEVICE int32_t root_of(int32_t square)
{
    int32_t root = 1;
    while (root < 1000 && root * root < square) root++;
    return root;
}
FLEET_DEVICE int32_t dot(const int32_t *x, const int32_t *y, int32_t n)
{
    int32_t sum = 0, k;
    for (k = 0; k < n; k++) sum += x[k] * y[k];
    return sum;
}

FLEET_TILE(load, order) /* (i, j): a = b, scaled */
{
    const int32_t scale = scale_of(ctx.epoch - FLEETI_TEST_START);
    const int32_t *from = tile_of(args->b, at[0], at[1]);
    int32_t *to = tile_of(args->a, at[0], at[1]), r, c;
    for (r = 0; r < SIDE && ctx.thread == 0; r++)
        for (c = 0; c < SIDE; c++) to[r * STRIDE + c] = from[r * STRIDE + c] * scale * scale;
    return FLEET_OK;
}
FLEET_TILE(potrf, order) /* (k): factors the tile on the diagonal */
{
    int32_t *a = tile_of(args->a, at[0], at[0]), r, c;
    for (c = 0; c < SIDE && ctx.thread == 0; c++) {
        int32_t *row = a + c * STRIDE;
        row[c] = root_of(row[c] - dot(row, row, c));
        for (r = c + 1; r < SIDE; r++)
            a[r * STRIDE + c] = (a[r * STRIDE + c] - dot(a + r * STRIDE, row, c)) / row[c];
    }
    return FLEET_OK;
}
FLEET_TILE(trsm, order) /* (i, k), k < i: a tile below it */
{
    const int32_t *diagonal = tile_of(args->a, at[1], at[1]);
    int32_t *a = tile_of(args->a, at[0], at[1]), r, c;
    for (c = 0; c < SIDE && ctx.thread == 0; c++) {
        const int32_t *row = diagonal + c * STRIDE;
        if (!row[c]) return FLEET_ERROR_TILE;
        for (r = 0; r < SIDE; r++)
            a[r * STRIDE + c] = (a[r * STRIDE + c] - dot(a + r * STRIDE, row, c)) / row[c];
    }
    return FLEET_OK;
}
/* Tile (i, j) less the product of tiles (i, k) and (j, k). */
FLEET_DEVICE void subtract_product(int32_t *matrix, int32_t k, int32_t i, int32_t j)
{
    const int32_t *x = tile_of(matrix, i, k), *y = tile_of(matrix, j, k);
    int32_t *a = tile_of(matrix, i, j), r, c;
    for (r = 0; r < SIDE; r++)
        for (c = 0; c < SIDE; c++) a[r * STRIDE + c] -= dot(x + r * STRIDE, y + c * STRIDE, SIDE);
}
FLEET_TILE(update, order) /* (i, j, k), k < j <= i: a tile of what is left after it */
{
    if (ctx.thread == 0) subtract_product(args->a, at[2], at[0], at[1]);
    return FLEET_OK;
}
FLEET_TILE(store, order) /* (i, j): c = the lower triangle of a */
{
    const int32_t *from = tile_of(args->a, at[0], at[1]);
    int32_t *to = tile_of(args->c, at[0], at[1]), r, c;
    for (r = 0; r < SIDE && ctx.thread == 0; r++)
        for (c = 0; c < SIDE; c++)
            to[r * STRIDE + c] = at[0] * SIDE + r >= at[1] * SIDE + c ? from[r * STRIDE + c] : 0;
    return FLEET_OK;
}

/* A pipeline: stage n reads item i from the ring before it, and writes it to its own ring; the last stage to c. */
#define STAGES 3
#define ITEMS 9
#define DEPTH 2

FLEET_TILE(stage, order) /* (item) */
{
    const int32_t s = args->n, slot = at[0] % DEPTH;
    const int32_t v = s ? args->a[(s - 1) * DEPTH + slot] * 3 + s
                        : mixed(at[0], (int32_t)(ctx.epoch - FLEETI_TEST_START));
    if (ctx.thread == 0) *(s + 1 < STAGES ? &args->a[s * DEPTH + slot] : &args->c[at[0]]) = v;
    return FLEET_OK;
}

#define AFTER_TILES(TILE, P) TILE(P, fill) TILE(P, sum) TILE(P, total)
#define CLIPPED_TILES(TILE, P) TILE(P, stencil) TILE(P, align) TILE(P, leaf) TILE(P, node)
#define STEP_TILES(TILE, P) TILE(P, potrf) TILE(P, trsm) TILE(P, update)
#define OTHER_TILES(TILE, P) TILE(P, load) TILE(P, store) TILE(P, stage)
#define ORDER_TILES(TILE, P)                                                                       \
    AFTER_TILES(TILE, P) CLIPPED_TILES(TILE, P) STEP_TILES(TILE, P) OTHER_TILES(TILE, P)
FLEET_DISPATCH(order, ORDER_TILES)
FLEET_KERNEL(order_kernel, order, FLEET_ANY_THREADS(256))
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

static void run_wavefront(test_run *t, const setting *s, void *keyed)
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
    if (keyed) /* diagonal after diagonal */
        fleet_grid_order(g, grid, fleet_key_plus(fleet_key_plus(fleet_key_of(0), 0, 1), 1, 1));
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
    int keyed = 1;
    in_settings(t, 6, run_wavefront, NULL);
    in_settings(t, 6, run_wavefront, &keyed);
}

#define LEAVES 13
#define LEVELS 5 /* 13, 7, 4, 2, 1 */

static void run_tree(test_run *t, const setting *s, void *keyed)
{
    static rig r;
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor below = fleet_event_tensor(g, "level 0", fleet_shape1_of(LEAVES), 0);
    const fleet_grid leaves = fleet_call_device(g, "leaf", order_leaf, fleet_shape1_of(LEAVES), 0);
    int32_t count = LEAVES, first = 0, level, i, want = 0;
    char name[24];
    memset(&r, 0, sizeof r);
    fleet_out_edge(g, leaves, below, "i->i");
    if (keyed) fleet_grid_order(g, leaves, fleet_key_plus(fleet_key_of(0), 0, 1));
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
        if (keyed) /* depth first: after the last leaf below it */
            fleet_grid_order(
                g, grid, fleet_key_plus(fleet_key_of((1 << level) - 1), 0, (int64_t)1 << level));
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
    int keyed = 1;
    in_settings(t, 6, run_tree, NULL);
    in_settings(t, 6, run_tree, &keyed);
}

/* ---- grids that wait for one another in turn ---- */

/* Without keys the queue of a single worker deadlocks, which the builder sees. */
static int needs_keys(test_run *t, fleet_graph *g)
{
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    desc.topology = fleet_topology_make(1, 1);
    NEED_STATUS(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_ORDER);
    NEED(strstr(fleet_graph_error(g), "order their tasks by keys (fleet_grid_order)"));
    fleet_graph_destroy(g);
    return 1;
}

/* potrf, trsm and update, between grids that load and store the matrix. Only tiles of the lower
   triangle are tasks: k < n, k < i < n, k < j <= i < n. update(i, j, k) waits for update(i, j, k -
   1), and whatever takes a tile for all its updates. */
static fleet_graph *cholesky_graph(int keyed)
{
    const fleet_dim n = fleet_dim_of(TILES), none = fleet_dim_of(0), one = fleet_dim_of(1);
    const fleet_dim below = fleet_dim_plus_axis(none, 0, 1), up_to = fleet_dim_plus_axis(one, 0, 1);
    const fleet_shape lower = fleet_shape2(n, up_to), all = fleet_shape2(n, n);
    const fleet_shape updates = fleet_shape3(n, up_to, fleet_dim_plus_axis(none, 1, 1));
    const fleet_axis_map i = fleet_axis(0, 1, 0, 1), j = fleet_axis(1, 1, 0, 1);
    const fleet_axis_map before = fleet_axis_clipped(2, 1, -1, 1, none, n);
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_grid load = fleet_call_device(g, "load", order_load, all, 0);
    fleet_grid potrf = fleet_call_device(g, "potrf", order_potrf, fleet_shape1(n), 0);
    fleet_grid trsm = fleet_call_device(g, "trsm", order_trsm, fleet_shape2(n, below), 0);
    fleet_grid update = fleet_call_device(g, "update", order_update, updates, 0);
    fleet_grid store = fleet_call_device(g, "store", order_store, all, 0);
    fleet_etensor factor = fleet_event_tensor(g, "factor", lower, 1);
    fleet_etensor updated = fleet_event_tensor(g, "updated", updates, 1);
    fleet_after(g, potrf, load), fleet_after(g, trsm, load), fleet_after(g, update, load);
    fleet_after(g, store, potrf), fleet_after(g, store, trsm), fleet_after(g, store, update);
    fleet_out_edge(g, potrf, factor, "k->kk");
    fleet_out_edge(g, trsm, factor, "ik->ik");
    fleet_out_edge(g, update, updated, "ijk->ijk");
    fleet_in_edge(g, potrf, updated, "k->kkm");
    fleet_in_edge(g, trsm, updated, "ik->ikm");
    fleet_in_edge(g, trsm, factor, "ik->kk");
    fleet_in_edge(g, update, factor, "ijk->ik");
    fleet_in_edge(g, update, factor, "ijk->jk");
    fleet_in_edge_map(g, update, updated, fleet_map3(i, j, before));
    if (!keyed) return g;
    fleet_grid_order(g, potrf, fleet_key_plus(fleet_key_of(0), 0, 3));
    fleet_grid_order(g, trsm, fleet_key_plus(fleet_key_of(1), 1, 3));
    fleet_grid_order(g, update, fleet_key_plus(fleet_key_of(2), 2, 3));
    return g;
}

/* The matrix is the product of a known factor and its transpose. All numbers are whole. */
static void run_cholesky(test_run *t, const setting *s, void *unused)
{
    static rig r;
    static int32_t factor[STRIDE][STRIDE];
    fleet_graph *g = cholesky_graph(1);
    int32_t i, j, k;
    uint32_t epoch;
    (void)unused;
    memset(&r, 0, sizeof r);
    for (i = 0; i < STRIDE; i++)
        for (j = 0; j <= i; j++) factor[i][j] = i == j ? 1 + mixed(i, 0) % 2 : mixed(i, j) % 5 - 2;
    for (i = 0; i < STRIDE; i++)
        for (j = 0; j < STRIDE; j++)
            for (k = 0; k < STRIDE; k++)
                r.host[AT_B + i * STRIDE + j] += factor[i][k] * factor[j][k];
    if (!rig_open(t, &r, g, s)) return;
    CHECK_INT(r.plan->n_tasks, 2 * TILES * TILES + TILES * (TILES + 1) * (TILES + 2) / 6);
    for (epoch = 1; epoch <= 3; epoch++) {
        if (!rig_run(t, &r, 1)) return;
        for (i = 0; i < STRIDE; i++)
            for (j = 0; j < STRIDE; j++)
                CHECK_INT(r.host[AT_C + i * STRIDE + j], factor[i][j] * scale_of(epoch));
    }
    rig_close(&r);
    fleet_graph_destroy(g);
}

static void cholesky(test_run *t)
{
    if (needs_keys(t, cholesky_graph(0))) in_settings(t, 6, run_cholesky, NULL);
}

/* A stage waits for the one before it, and until the one after it has emptied a slot of the ring between them. */
static fleet_graph *pipeline_graph(int keyed)
{
    const fleet_shape items = fleet_shape1_of(ITEMS);
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_grid grid[STAGES];
    fleet_etensor done[STAGES];
    uint32_t s;
    char name[24];
    for (s = 0; s < STAGES; s++) {
        snprintf(name, sizeof name, "stage %u", s);
        grid[s] = fleet_call_device(g, name, order_stage, items, s);
        done[s] = fleet_event_tensor(g, name, items, FLEET_COUNT_DERIVED);
        fleet_out_edge(g, grid[s], done[s], "i->i");
        if (s) fleet_in_edge(g, grid[s], done[s - 1], "i->i");
        if (s)
            fleet_in_edge_map(g, grid[s - 1], done[s],
                              fleet_map1(fleet_axis_clipped(0, 1, -DEPTH, 1, fleet_dim_of(0),
                                                            fleet_dim_of(ITEMS))));
        if (keyed) fleet_grid_order(g, grid[s], fleet_key_plus(fleet_key_of(s), 0, STAGES));
    }
    return g;
}

static void run_pipeline(test_run *t, const setting *s, void *unused)
{
    static rig r;
    fleet_graph *g = pipeline_graph(1);
    int32_t i, k;
    (void)unused;
    memset(&r, 0, sizeof r);
    for (k = 0; k < STAGES; k++) r.grid[k].n = k;
    if (!rig_open(t, &r, g, s)) return;
    if (!rig_run(t, &r, 3)) return;
    for (i = 0; i < ITEMS; i++) {
        int32_t want = mixed(i, 3);
        for (k = 1; k < STAGES; k++) want = want * 3 + k;
        CHECK_INT(r.host[AT_C + i], want);
    }
    rig_close(&r);
    fleet_graph_destroy(g);
}

static void pipeline_with_back_pressure(test_run *t)
{
    if (needs_keys(t, pipeline_graph(0))) in_settings(t, 8, run_pipeline, NULL);
}

static void list(test_run *t)
{
    TEST(five_point_stencil);
    TEST(smith_waterman);
    TEST(tree_reduction);
    TEST(cholesky);
    TEST(pipeline_with_back_pressure);
    TEST(grids_after_grids);
}
TEST_MAIN(list)
