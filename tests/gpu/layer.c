/* Overlap inside an operator: events of a head and of a block of columns, not of a whole operator. In a decoder layer
   the norm and RoPE of q run beside those of k and the cache's append, and the down projection begins on the first
   finished block of gate and up. Tiles that wait for one another show it: with coarser events they never would end. */
// run: asan engine=both
// run: tsan
#include "settings.h"

#define HEADS 4
#define KV_HEADS 2
#define BLOCKS 4 /* of columns of gate and up */
#define OUTPUTS 2
enum { QKV, Q_ROPE, K_APPEND, ATTEND, GATE_UP, DOWN, GRIDS };
#define CELLS 16

typedef struct layer {
    uint32_t *begun, *ended; /* [GRIDS][CELLS]: epoch */
    uint32_t overlaps;
} layer;

FLEET_DEVICE uint32_t is_now(const uint32_t *words, uint32_t grid, int32_t cell, uint32_t epoch)
{
    return fleet_load_relaxed_device(words + grid * CELLS + (uint32_t)cell) == epoch;
}
/* Begins a task, and does not go on before another one has begun. */
FLEET_DEVICE fleet_status begin(const fleet_ctx *ctx, const layer *l, uint32_t grid, int32_t cell,
                                uint32_t other, int32_t other_cell)
{
    uint32_t tries = 0;
    if (ctx->thread == 0) {
        fleet_store_relaxed_device(l->begun + grid * CELLS + (uint32_t)cell, ctx->epoch);
        while (l->overlaps && other < GRIDS && !is_now(l->begun, other, other_cell, ctx->epoch))
            if (fleet_pause(&tries)) return FLEET_ERROR_TILE;
    }
    return FLEET_OK;
}
FLEET_DEVICE fleet_status end(const fleet_ctx *ctx, const layer *l, uint32_t grid, int32_t cell)
{
    if (ctx->thread == 0) l->ended[grid * CELLS + (uint32_t)cell] = ctx->epoch;
    return FLEET_OK;
}

FLEET_TILE(qkv, layer) /* (head): first those of q, then of k and v */
{
    return end(&ctx, args, QKV, at[0]);
}
FLEET_TILE(q_rope, layer) /* (head): the first one needs company of the first k */
{
    const fleet_status status =
        begin(&ctx, args, Q_ROPE, at[0], at[0] ? (uint32_t)GRIDS : (uint32_t)K_APPEND, 0);
    if (status || args->ended[QKV * CELLS + at[0]] != ctx.epoch) return FLEET_ERROR_TILE;
    return end(&ctx, args, Q_ROPE, at[0]);
}
FLEET_TILE(k_append, layer) /* (kv head) */
{
    const fleet_status status =
        begin(&ctx, args, K_APPEND, at[0], at[0] ? (uint32_t)GRIDS : (uint32_t)Q_ROPE, 0);
    if (status || args->ended[QKV * CELLS + HEADS + at[0]] != ctx.epoch) return FLEET_ERROR_TILE;
    return end(&ctx, args, K_APPEND, at[0]);
}
FLEET_TILE(attend, layer) /* (head) */
{
    if (args->ended[Q_ROPE * CELLS + at[0]] != ctx.epoch ||
        args->ended[K_APPEND * CELLS + at[0] / (HEADS / KV_HEADS)] != ctx.epoch)
        return FLEET_ERROR_TILE;
    return end(&ctx, args, ATTEND, at[0]);
}
FLEET_TILE(gate_up, layer) /* (block): the last one goes on when the projection down has begun */
{
    const fleet_status status = begin(&ctx, args, GATE_UP, at[0],
                                      at[0] == BLOCKS - 1 ? (uint32_t)DOWN : (uint32_t)GRIDS, 0);
    for (uint32_t h = 0; h < HEADS; h++)
        if (args->ended[ATTEND * CELLS + h] != ctx.epoch) return FLEET_ERROR_TILE;
    if (status) return status;
    return end(&ctx, args, GATE_UP, at[0]);
}
FLEET_TILE(down, layer) /* (block, output): a share of the sum over all blocks */
{
    const int32_t cell = at[0] * OUTPUTS + at[1];
    const fleet_status status = begin(&ctx, args, DOWN, cell, GRIDS, 0);
    if (status || args->ended[GATE_UP * CELLS + at[0]] != ctx.epoch) return FLEET_ERROR_TILE;
    return end(&ctx, args, DOWN, cell);
}
#define LAYER_TILES(TILE, P)                                                                       \
    TILE(P, qkv)                                                                                   \
    TILE(P, q_rope) TILE(P, k_append) TILE(P, attend) TILE(P, gate_up) TILE(P, down)
FLEET_DISPATCH(layer, LAYER_TILES)
FLEET_KERNEL(layer_kernel, layer, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(layer);
}

static fleet_graph *layer_graph(const setting *s)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim heads = fleet_dim_of(HEADS), kv = fleet_dim_of(KV_HEADS);
    fleet_dim all = fleet_dim_of(HEADS + KV_HEADS), blocks = fleet_dim_of(BLOCKS);
    fleet_etensor made = fleet_event_tensor(g, "made", fleet_shape1(all), FLEET_COUNT_DERIVED);
    fleet_etensor q_done = fleet_event_tensor(g, "q_done", fleet_shape1(heads), 1);
    fleet_etensor k_done = fleet_event_tensor(g, "k_done", fleet_shape1(kv), 1);
    fleet_etensor attended = fleet_event_tensor(g, "attended", fleet_shape0(), HEADS);
    fleet_etensor block_done = fleet_event_tensor(g, "block_done", fleet_shape1(blocks), 1);
    fleet_grid qkv = fleet_call_device(g, "qkv", layer_qkv, fleet_shape1(all), 0);
    fleet_grid q = fleet_call_device(g, "q_rope", layer_q_rope, fleet_shape1(heads), 0);
    fleet_grid k = fleet_call_device(g, "k_append", layer_k_append, fleet_shape1(kv), 0);
    fleet_grid attend = fleet_call_device(g, "attend", layer_attend, fleet_shape1(heads), 0);
    fleet_grid up = fleet_call_device(g, "gate_up", layer_gate_up, fleet_shape1(blocks), 0);
    fleet_grid down =
        fleet_call_device(g, "down", layer_down, fleet_shape2(blocks, fleet_dim_of(OUTPUTS)), 0);
    fleet_out_edge(g, qkv, made, "i->i");
    fleet_in_edge(g, q, made, "h->h");
    fleet_in_edge_map(g, k, made, fleet_map1(fleet_axis(0, 1, HEADS, 1)));
    fleet_out_edge(g, q, q_done, "h->h");
    fleet_out_edge(g, k, k_done, "h->h");
    fleet_in_edge(g, attend, q_done, "h->h");
    fleet_in_edge_map(g, attend, k_done, fleet_map1(fleet_axis(0, 1, 0, HEADS / KV_HEADS)));
    fleet_out_edge(g, attend, attended, "h->");
    fleet_in_edge(g, up, attended, "b->");
    fleet_out_edge(g, up, block_done, "b->b");
    fleet_in_edge(g, down, block_done, "bo->b");
    if (s->schedule ==
        FLEET_SCHEDULE_STATIC) { /* tiles that wait for one another have workers of their own */
        fleet_axis_map here = fleet_axis(0, 0, 0, 1), next = fleet_axis(0, 0, 1, 1);
        fleet_grid_place(g, q, fleet_map2(here, here));
        fleet_grid_place(g, k, fleet_map2(here, next));
        fleet_grid_place(g, up, fleet_map2(here, fleet_axis(0, 1, 0, BLOCKS - 1)));
        fleet_grid_place(g, down, fleet_map2(here, here));
    }
    return g;
}

static void run_layer(test_run *t, const setting *s, void *unused)
{
    fleet_plan_desc desc = setting_plan_desc(s);
    fleet_state_desc state_desc = setting_state_desc(s);
    fleet_launch_desc launch = setting_launch_desc(s);
    fleet_graph *g;
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    layer l;
    void *memory, *args;
    const uint32_t first = s->workers ? s->workers : s->topology.units[0];
    (void)unused;
    if (s->schedule == FLEET_SCHEDULE_STATIC && first < 2) return;
    /* Under CHIPLET a task may be dealt to the worker that waits for it. */
    l.overlaps = s->schedule == FLEET_SCHEDULE_STATIC ||
                 (s->schedule == FLEET_SCHEDULE_DYNAMIC && (first > 1 || s->topology.chiplets > 1));
    g = layer_graph(s);
    if (fleet_plan_build(g, &desc, &plan)) {
        test_fail(t, __FILE__, __LINE__, "%s", fleet_graph_error(g));
        return;
    }
    CHECK_STATUS(fleet_device_alloc(&memory, 2 * GRIDS * CELLS * 4), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(memory, 2 * GRIDS * CELLS * 4, NULL), FLEET_OK);
    l.begun = (uint32_t *)memory;
    l.ended = l.begun + GRIDS * CELLS;
    CHECK_STATUS(fleet_device_alloc(&args, sizeof l), FLEET_OK);
    CHECK_STATUS(fleet_to_device(args, &l, sizeof l, NULL), FLEET_OK);
    CHECK_STATUS(fleet_upload(&image, plan, NULL), FLEET_OK);
    CHECK_STATUS(fleet_state_create(&state, &image, &state_desc, NULL), FLEET_OK);
    launch.steps = 3;
    CHECK_STATUS(fleet_launch(&state, &launch, FLEET_KERNEL_OF(layer_kernel), args), FLEET_OK);
    if (!ended_with(t, &state, FLEET_OK)) return;
    fleet_state_free(&state);
    fleet_image_free(&image);
    fleet_device_free(memory);
    fleet_device_free(args);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

static void overlap_inside_operators(test_run *t)
{
    in_settings(t, 12, run_layer, NULL);
}

static void all(test_run *t)
{
    TEST(overlap_inside_operators);
}

TEST_MAIN(all)
