/* Orders that graphs of real algorithms need. Data goes by plain loads and stores only, so that a task that runs too
   early reads wrong values; results are compared with plain references. */
// run: asan engine=both
// run: tsan timeout=120
#include "settings.h"

typedef struct order { /* what every tile sees */
    int32_t *a, *b, *c;
    int32_t n, m;
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

#define ORDER_TILES(TILE, P) TILE(P, fill) TILE(P, sum) TILE(P, total)
FLEET_DISPATCH(order, ORDER_TILES)
FLEET_KERNEL(order_kernel, order, 256)
{
    FLEET_WORKER_LOOP(order);
}

/* ---- a plan on the device, with `words` words of memory ---- */

#define MOST_WORDS 4096

typedef struct rig {
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_launch_desc launch;
    void *memory, *args;
    int32_t host[MOST_WORDS];
} rig;

/* Builds the plan of a graph. a, b and c begin at words 0, at_b and at_c of the memory, which the caller has filled in
   r->host. */
static int rig_open(test_run *t, rig *r, fleet_graph *g, const setting *s, int32_t n, int32_t m,
                    uint32_t at_b, uint32_t at_c)
{
    fleet_plan_desc desc = setting_plan_desc(s);
    fleet_state_desc state = setting_state_desc(s);
    order w;
    if (fleet_plan_build(g, &desc, &r->plan))
        test_fail(t, __FILE__, __LINE__, "%s", fleet_graph_error(g));
    if (t->failed_here) return 0;
    NEED_STATUS(fleet_plan_check(r->plan, (size_t)r->plan->bytes), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&r->memory, sizeof r->host), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&r->args, sizeof w), FLEET_OK);
    memset(&w, 0, sizeof w);
    w.a = (int32_t *)r->memory;
    w.b = w.a + at_b, w.c = w.a + at_c;
    w.n = n, w.m = m;
    NEED_STATUS(fleet_to_device(r->args, &w, sizeof w, NULL), FLEET_OK);
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
    memset(r.host, 0, sizeof r.host);
    if (!rig_open(t, &r, g, s, 0, 0, 512, 1024)) return;
    for (i = 0; i < 3; i++) {
        int32_t want = AFTER_SUMS * (AFTER_SUMS - 1) / 2;
        CHECK_STATUS(fleet_bind(&r.state, "n", values[i], NULL), FLEET_OK);
        if (!rig_run(t, &r, 2)) return;
        epoch += 2;
        for (j = 0; j < values[i]; j++)
            for (k = 0; k < AFTER_M; k++) want += AFTER_SUMS * after_value(j, k, epoch);
        CHECK_INT(r.host[1024], want);
    }
    rig_close(&r);
    fleet_graph_destroy(g);
}

static void grids_after_grids(test_run *t)
{
    in_settings(t, 8, run_after, NULL);
}

static void list(test_run *t)
{
    TEST(grids_after_grids);
}
TEST_MAIN(list)
