/* chain.h: appends tasks to the decoder's graph (graph.h). The graph is a chain: each grid waits for all tasks of the grid
   before it, by one event. */
#ifndef QWEN3_CHAIN_H
#define QWEN3_CHAIN_H

#include "task_sets.h"
#include "weights.h"

typedef char a_row_is_routed[QWEN3_MAX_EXPERTS <= ROUTE_SCORES ? 1 : -1];

/* Tasks of a round. An upper bound: GPUs have no task that combines KV splits, not each session
   draws, only a server has gates, and only the kernel that takes prompts adds up parts, or
   exchanges them. Of several ranks, a task is one for each of them. */
static uint32_t count_tasks(const model *m)
{
    const uint32_t exchanges = m->ranks > 1 ? 2 : 0;
    uint32_t n = m->ranks > 1 ? 5 : 4;
    for (uint32_t i = 0; i < m->config.layers; i++)
        n += (m->layers[i].sparse ? 12u : 9u) + exchanges;
    return n;
}
/* Of a step with a round for each batch. */
static uint32_t count_step_tasks(const model *m, const decoder *d)
{
    return count_tasks(m) * d->rounds;
}

static fleet_linear linear_shape_of(uint32_t n, uint32_t k, uint32_t panel_tiles)
{
    fleet_linear l;
    memset(&l, 0, sizeof l);
    l.m = MAX_ROWS, l.n = padded(n, TILE_N), l.k = k;
    l.tile_m = MAX_ROWS, l.tile_n = panel_tiles * TILE_N, l.tile_k = BLOCK_K;
    l.element_bytes = 2;
    l.split = FLEET_SPLIT_N, l.traversal = FLEET_TRAVERSAL_M_MAJOR;
    return l;
}

typedef struct chain {
    const model *m;
    const decoder *d;
    task_args *tasks;
    fleet_graph *g;
    fleet_etensor before;
    fleet_grid last;
    uint32_t n, batch_number; /* tasks so far, and the batch whose round they are in */
    /* panels so far: the next layer begins at the worker after the last one that had a panel */
    uint32_t panels;
    /* Of a server: the symbol LIVE (tasks/serve.h), whether the next grids have it, the last gate, and gates so far. */
    fleet_dim live;
    uint32_t is_guarded;
    fleet_grid gate;
    uint32_t gates;
    /* Of several ranks: 1: the next grid waits for the one before on all ranks, not on its own alone. */
    uint32_t joins;
    /* 0, or the next grid has a chiplet-task for each of so many chiplets, and 1: the grid after it has as many, each of
       which waits for its chiplet's task alone. Then the event is of chiplet scope. */
    uint32_t groups, stays, is_split;
} chain;

#define NO_LAYER UINT32_MAX

static task_args *append_task(chain *c, const char *name, uint32_t layer, uint32_t tile,
                              fleet_level level)
{
    task_args *task = &c->tasks[c->n];
    const uint32_t ranks = c->m->ranks;
    const uint32_t groups = c->groups;
    const char *map = ranks > 1 ? "r->r" : c->is_guarded ? "i->" : groups ? "k->" : "->";
    const fleet_shape one = ranks > 1 ? fleet_shape1_of(ranks) : fleet_shape0(),
                      each = groups ? fleet_shape1_of(groups) : one;
    char text[48];
    int length;
    fleet_grid grid;
    memset(task, 0, sizeof *task);
    if (layer == NO_LAYER)
        length = snprintf(text, sizeof text, "%s", name);
    else
        length = snprintf(text, sizeof text, "%s.%u", name, layer);
    /* The last round has the names of a step's only one. */
    if (c->batch_number + 1 < c->d->rounds)
        snprintf(text + length, sizeof text - (size_t)length, "#%u", c->batch_number);
    grid = fleet_call_device(c->g, text, tile, c->is_guarded ? fleet_shape1(c->live) : each, c->n);
    fleet_grid_level(c->g, grid, groups ? FLEET_LEVEL_CHIPLET : level);
    if (c->d->unaware && level == FLEET_LEVEL_DEVICE) { /* one slice, with a task for each worker */
        fleet_grid_slices(c->g, grid, fleet_dim_of(1));
        fleet_grid_tiles(c->g, grid, fleet_dim_of((int32_t)(c->d->chiplets * c->d->workers)));
    }
    if (ranks > 1) fleet_grid_ranks(c->g, grid, fleet_axis(0, 1, 0, 1));
    if (c->n) fleet_in_edge(c->g, grid, c->before, c->joins ? "r->u" : c->is_split ? "k->k" : map);
    c->joins = 0, c->is_split = groups && c->stays;
    c->before = fleet_event_tensor(c->g, text, c->is_split ? each : one, FLEET_COUNT_DERIVED);
    fleet_out_edge(c->g, grid, c->before, c->is_split ? "k->k" : map);
    task->number = c->n++, task->step_tasks = count_step_tasks(c->m, c->d),
    task->round = c->batch_number;
    task->has_gates = c->d->table != NULL, task->share.groups = groups;
    c->last = grid;
    return task;
}

/* A task of a server that comes whether the step is live or not: a gate, or the boundary. Where the grid before it has no
   tasks it still comes after the gate before. */
static task_args *append_control(chain *c, const char *name, uint32_t layer, uint32_t tile)
{
    const uint32_t was_guarded = c->is_guarded;
    task_args *task;
    c->is_guarded = 0;
    task = append_task(c, name, layer, tile, FLEET_LEVEL_CU);
    if (c->gates) fleet_after(c->g, c->last, c->gate);
    c->is_guarded = was_guarded;
    return task;
}
static void append_gate(chain *c, uint32_t layer, uint32_t tile)
{
    append_control(c, "gate", layer, tile)->layer = layer;
    fleet_symbol_cutter(c->g, c->live, c->last);
    c->gate = c->last, c->gates++;
}

/* A product of `rows` rows of x, [rows][k]. Products of d->x include an RMS norm: d->x is not
   divided by its root mean square yet. */
static task_args *append_product(chain *c, const char *name, uint32_t layer, uint32_t tile,
                                 const bf16 *weights, const layout *as, const act_t *x,
                                 uint32_t rows)
{
    task_args *task = append_task(c, name, layer, tile, FLEET_LEVEL_DEVICE);
    task->shape = linear_shape_of(as->n, as->k, as->panel_tiles);
    task->shape.tile_m = c->d->tile_rows;
    task->panel_bytes = panel_bytes_of(as), task->inner_k = as->inner_k;
#if HAS_PACKED_CODES
    task->format = as->format;
#endif
    task->first_worker = c->panels;
    c->panels += panels_of(as);
    task->weights = weights;
    task->x = x, task->x_low = c->d->two_terms * rows * as->k, task->rmsnorm = x == c->d->x;
    return task;
}
static task_args *append_linear(chain *c, const char *name, uint32_t layer, const bf16 *weights,
                                const act_t *x, uint32_t n, uint32_t k)
{
    const layout as = layout_of(c->m, c->m->format, n, k);
    return append_product(c, name, layer, task_args_linear, weights, &as, x, MAX_ROWS);
}
/* Of weights that are bf16 in every model: router and head. */
static task_args *append_bf16(chain *c, const char *name, uint32_t layer, const bf16 *weights,
                              uint32_t n)
{
    const layout as = layout_of(c->m, bf16_format(), n, c->d->hidden);
    return append_product(c, name, layer, task_args_linear, weights, &as, c->d->x, MAX_ROWS);
}
/* A task that walks over the columns of the residual stream. */
static task_args *append_columns(chain *c, const char *name, uint32_t layer, uint32_t tile,
                                 const float *next_norm)
{
    task_args *task = append_task(c, name, layer, tile, FLEET_LEVEL_DEVICE);
    task->shape = linear_shape_of(c->d->hidden, BLOCK_K, 1);
    task->norm = next_norm;
    return task;
}

/* ---- epilogues of products ---- */

static void epilogue_store(task_args *task, float *to, uint32_t columns)
{
    task->epilogue = EPILOGUE_STORE, task->floats = to, task->columns = columns;
}
static void epilogue_silu(task_args *task, const decoder *d, uint32_t rows, uint32_t columns)
{
    task->epilogue = EPILOGUE_SILU, task->acts = d->gated, task->columns = columns;
    task->acts_low = d->two_terms * rows * columns;
}
static void epilogue_experts(task_args *task, const decoder *d, uint32_t pairs, uint32_t columns)
{
    epilogue_silu(task, d, pairs, columns);
    task->epilogue = EPILOGUE_EXPERTS;
}
static void epilogue_residual(task_args *task, const float *next_norm)
{
    task->epilogue = EPILOGUE_RESIDUAL, task->norm = next_norm;
}

/* The last task of a layer's attention (which: 0), or of its MLP (1): its result is added to the residual stream. */
static void append_residual(const chain *c, task_args *task, uint32_t which, const float *next_norm)
{
    epilogue_residual(task, next_norm);
    if (c->m->ranks > 1) task->summands = c->d->summands + which * summand_quads(c->d);
}

#endif /* QWEN3_CHAIN_H */
