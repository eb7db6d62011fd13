/* Index spaces whose extents depend on the axes before them: a Cholesky factorisation of 16 x 16
   tiles is 816 tasks in one set of grids, and a launch may take any number of tiles. Data goes by
   plain loads and stores, and results are those of a plain factorisation, bit by bit: both do the
   same operations on an element in the same order. */
// run: asan engine=both
// run: tsan
// run: model
#include "settings.h"

#define SIDE 2 /* of a tile */
#define TILES 16
#define N (SIDE * TILES)

typedef struct chol {
    double *a;          /* [N][N], the lower triangle; the tiles of the factor take its place */
    const double *from; /* the matrix, to which each step adds a little on the diagonal */
    uint32_t *runs;     /* of update */
} chol;

static double shift_of(uint32_t step)
{
    return (double)(step % 5);
}

/* ---- a plain factorisation, and its three parts on tiles ---- */

static void factor_row(double *a, int r, int c, int first, int end)
{
    for (int k = first; k < end; k++) a[r * N + c] -= a[r * N + k] * a[c * N + k];
}
static double root_of(double v)
{
    double root = v > 1 ? v : 1;
    for (int i = 0; i < 60; i++) root = (root + v / root) / 2;
    return root;
}
static void factor_element(double *a, int r, int c)
{
    a[r * N + c] = r == c ? root_of(a[r * N + c]) : a[r * N + c] / a[c * N + c];
}
static void plain_factor(double *a, int n)
{
    for (int r = 0; r < n; r++)
        for (int c = 0; c <= r; c++) {
            factor_row(a, r, c, 0, c);
            factor_element(a, r, c);
        }
}

FLEET_TILE(load, chol) /* (i, j), j <= i */
{
    for (int r = at[0] * SIDE; r < (at[0] + 1) * SIDE; r++)
        for (int c = at[1] * SIDE; c < (at[1] + 1) * SIDE && ctx.thread == 0; c++)
            args->a[r * N + c] = args->from[r * N + c] + (r == c ? shift_of(ctx.step) : 0);
    return FLEET_OK;
}
FLEET_TILE(potrf, chol) /* (k) */
{
    const int first = at[0] * SIDE;
    for (int r = first; r < first + SIDE; r++)
        for (int c = first; c <= r && ctx.thread == 0; c++) {
            factor_row(args->a, r, c, first, c);
            factor_element(args->a, r, c);
        }
    return FLEET_OK;
}
FLEET_TILE(trsm, chol) /* (i, k), k < i */
{
    const int first = at[1] * SIDE;
    for (int r = at[0] * SIDE; r < (at[0] + 1) * SIDE; r++)
        for (int c = first; c < first + SIDE && ctx.thread == 0; c++) {
            factor_row(args->a, r, c, first, c);
            factor_element(args->a, r, c);
        }
    return FLEET_OK;
}
FLEET_TILE(update, chol) /* (i, j, k), k < j <= i */
{
    if (at[2] >= at[1] || at[1] > at[0]) return FLEET_ERROR_TILE;
    for (int r = at[0] * SIDE; r < (at[0] + 1) * SIDE; r++)
        for (int c = at[1] * SIDE; c < (at[1] + 1) * SIDE && c <= r && ctx.thread == 0; c++)
            factor_row(args->a, r, c, at[2] * SIDE, (at[2] + 1) * SIDE);
    if (ctx.thread == 0) fleet_add_relaxed_device(args->runs, 1);
    return FLEET_OK;
}
#define CHOL_TILES(TILE, P) TILE(P, load) TILE(P, potrf) TILE(P, trsm) TILE(P, update)
FLEET_DISPATCH(chol, CHOL_TILES)
FLEET_KERNEL(chol_kernel, chol, FLEET_ANY_THREADS(64))
{
    FLEET_WORKER_LOOP(chol);
}

/* ---- the graph ---- */

/* n: the number of tiles of a row, or a symbol. */
static void add_cholesky(fleet_graph *g, const setting *s, fleet_dim n)
{
    const fleet_dim none = fleet_dim_of(0);
    const fleet_dim below = fleet_dim_plus_axis(none, 0, 1), up_to = fleet_dim_plus(below, 1);
    const fleet_shape lower = fleet_shape2(n, up_to);
    const fleet_shape updates = fleet_shape3(n, up_to, fleet_dim_plus_axis(none, 1, 1));
    const fleet_axis_map i = fleet_axis(0, 1, 0, 1), j = fleet_axis(1, 1, 0, 1);
    fleet_grid load = fleet_call_device(g, "load", chol_load, lower, 0);
    fleet_grid potrf = fleet_call_device(g, "potrf", chol_potrf, fleet_shape1(n), 0);
    fleet_grid trsm = fleet_call_device(g, "trsm", chol_trsm, fleet_shape2(n, below), 0);
    fleet_grid update = fleet_call_device(g, "update", chol_update, updates, 0);
    fleet_etensor loaded = fleet_event_tensor(g, "loaded", lower, 1);
    fleet_etensor factor = fleet_event_tensor(g, "factor", lower, 1);
    fleet_etensor updated = fleet_event_tensor(g, "updated", updates, 1);
    setting_mix(s, g, load, 0), setting_mix(s, g, potrf, 1);
    setting_mix(s, g, trsm, 2), setting_mix(s, g, update, 3);
    fleet_out_edge(g, load, loaded, "ij->ij");
    fleet_out_edge(g, potrf, factor, "k->kk");
    fleet_out_edge(g, trsm, factor, "ik->ik");
    fleet_out_edge(g, update, updated, "ijk->ijk");
    fleet_in_edge(g, potrf, loaded, "k->kk");
    fleet_in_edge(g, potrf, updated, "k->kkm");
    fleet_in_edge(g, trsm, loaded, "ik->ik");
    fleet_in_edge(g, trsm, updated, "ik->ikm");
    fleet_in_edge(g, trsm, factor, "ik->kk");
    fleet_in_edge(g, update, loaded, "ijk->ij");
    fleet_in_edge(g, update, factor, "ijk->ik");
    fleet_in_edge(g, update, factor, "ijk->jk");
    fleet_in_edge_map(g, update, updated,
                      fleet_map3(i, j, fleet_axis_clipped(2, 1, -1, 1, none, n)));
    if (s->ranks) { /* rows by turns, and each tile where its row is */
        fleet_axis_map row = fleet_axis(0, 1, 0, 1);
        row.modulo = fleet_dim_of(s->ranks);
        fleet_grid_ranks(g, load, row), fleet_grid_ranks(g, potrf, row);
        fleet_grid_ranks(g, trsm, row), fleet_grid_ranks(g, update, row);
    }
    fleet_grid_order(g, load, fleet_key_of(-1));
    fleet_grid_order(g, potrf, fleet_key_plus(fleet_key_of(0), 0, 3));
    fleet_grid_order(g, trsm, fleet_key_plus(fleet_key_of(1), 1, 3));
    fleet_grid_order(g, update, fleet_key_plus(fleet_key_of(2), 2, 3));
}

/* ---- runs ---- */

typedef struct rig {
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_launch_desc launch;
    chol args;
    fleet_peers peers; /* of a plan for several ranks */
    double from[N * N], want[N * N], a[N * N];
    uint32_t runs;
} rig;

static int rig_open(test_run *t, rig *r, const setting *s, fleet_graph *g)
{
    fleet_plan_desc desc = setting_plan_desc(s);
    fleet_state_desc state = setting_state_desc(s);
    if (fleet_plan_build(g, &desc, &r->plan))
        test_fail(t, __FILE__, __LINE__, "%s", fleet_graph_error(g));
    if (t->failed_here) return 0;
    NEED_STATUS(fleet_plan_check(r->plan, (size_t)r->plan->bytes), FLEET_OK);
    r->peers.rank = FLEET_ALL_RANKS, r->peers.ranks = s->ranks;
    for (uint32_t i = 0; i < s->ranks; i++)
        NEED_STATUS(fleet_device_alloc(&r->peers.bases[i], fleet_peers_bytes(r->plan)), FLEET_OK);
    if (s->ranks) state.peers = &r->peers;
    NEED_STATUS(fleet_upload(&r->image, r->plan, NULL), FLEET_OK);
    NEED_STATUS(fleet_state_create(&r->state, &r->image, &state, NULL), FLEET_OK);
    r->launch = setting_launch_desc(s);
#if defined(FLEET_MEMORY_MODEL)
    r->launch.host.memory_model = 1;
    r->launch.host.engine = FLEET_ENGINE_DETERMINISTIC;
#endif
    for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++)
            r->from[i * N + j] = i == j ? 2 * N + i % 3 : (double)((i * 7 + j * 11) % 13) / 8 - 0.7;
    r->args.a = r->a, r->args.from = r->from, r->args.runs = &r->runs;
    return 1;
}

/* Runs steps on n tiles a row, and compares the last one's factor. */
static int rig_run(test_run *t, rig *r, int n, uint32_t steps)
{
    const int updates = n * (n - 1) / 2 + n * (n - 1) * (n - 2) / 6;
    memset(r->a, 0, sizeof r->a);
    r->runs = 0;
    r->launch.steps = steps;
    NEED_STATUS(fleet_launch(&r->state, &r->launch, FLEET_KERNEL_OF(chol_kernel), &r->args),
                FLEET_OK);
    if (!ended_with(t, &r->state, FLEET_OK)) return 0;
    memcpy(r->want, r->from, sizeof r->want);
    for (int i = 0; i < N; i++) r->want[i * N + i] += shift_of(steps - 1);
    plain_factor(r->want, n * SIDE);
    for (int i = 0; i < n * SIDE; i++)
        for (int j = 0; j <= i; j++)
            if (r->a[i * N + j] < r->want[i * N + j] || r->a[i * N + j] > r->want[i * N + j])
                test_fail(t, __FILE__, __LINE__, "(%d, %d) is %g, not %g, of %d tiles", i, j,
                          r->a[i * N + j], r->want[i * N + j], n);
    if (r->runs != (uint32_t)updates * steps)
        test_fail(t, __FILE__, __LINE__, "%u updates, not %d in each step", r->runs, updates);
    return !t->failed_here;
}

static void rig_close(rig *r)
{
    fleet_state_free(&r->state);
    fleet_image_free(&r->image);
    fleet_plan_free(r->plan);
    for (uint32_t i = 0; i < r->peers.ranks; i++) fleet_device_free(r->peers.bases[i]);
}

static void run_816(test_run *t, const setting *s_, void *unused)
{
    static rig r;
    setting s = *s_;
    (void)unused;
    for (uint32_t turn = 0; turn < 2 && !t->failed_here; turn++) {
        fleet_graph *g = fleet_graph_create(NULL);
        if (turn && s.schedule == FLEET_SCHEDULE_CHIPLET) s.levels = 1;
        if (turn && s.schedule == FLEET_SCHEDULE_STATIC) s.mixed = 1u << 3;
        s.early = turn;
        memset(&r, 0, sizeof r);
        add_cholesky(g, &s, fleet_dim_of(TILES));
        if (!rig_open(t, &r, &s, g)) break;
        CHECK_INT(r.plan->n_tasks - TILES * (TILES + 1) / 2, 816); /* and those that load it */
        for (uint32_t seed = 1; seed <= 2; seed++) {
            r.launch.host.seed = s.seed + 100 * seed;
            if (!rig_run(t, &r, TILES, seed)) break;
        }
        rig_close(&r);
        fleet_graph_destroy(g);
    }
}
static void cholesky_plans_816_tasks(test_run *t)
{
    in_settings(t, 2, run_816, NULL);
}

static void run_ranks(test_run *t, const setting *s_, void *unused)
{
    static rig r;
    setting s = *s_;
    (void)unused;
    if (s.schedule == FLEET_SCHEDULE_DYNAMIC) return; /* ready queues do not reach over ranks */
    fleet_graph *g = fleet_graph_create(NULL);
    memset(&r, 0, sizeof r);
    s.ranks = 2;
    add_cholesky(g, &s, fleet_dim_of(TILES));
    if (!rig_open(t, &r, &s, g)) return;
    if (!rig_run(t, &r, TILES, 2)) return;
    rig_close(&r);
    fleet_graph_destroy(g);
}
static void cholesky_on_two_ranks(test_run *t)
{
    in_settings(t, 1, run_ranks, NULL);
}

/* One plan for any number of tiles: only the first axis has the symbol. */
static void run_any_number(test_run *t, const setting *s, void *unused)
{
    static const int sizes[] = {5, 16, 1, 9, 0, 2, 12};
    static rig r;
    fleet_graph *g = fleet_graph_create(NULL);
    (void)unused;
    memset(&r, 0, sizeof r);
    add_cholesky(g, s, fleet_symbol(g, "n", 0, TILES));
    if (!rig_open(t, &r, s, g)) return;
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK_STATUS(fleet_bind(&r.state, "n", sizes[i], NULL), FLEET_OK);
        if (!rig_run(t, &r, sizes[i], 1 + i % 2)) return;
    }
    rig_close(&r);
    fleet_graph_destroy(g);
}
static void any_number_of_tiles(test_run *t)
{
    in_settings(t, 2, run_any_number, NULL);
}

static void all(test_run *t)
{
    TEST(cholesky_plans_816_tasks);
    TEST(any_number_of_tiles);
    TEST(cholesky_on_two_ranks);
}
TEST_MAIN(all)
