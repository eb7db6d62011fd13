/* chain.h: appends tasks to the graph of a step. Each grid waits for all tasks of the one before. */
#ifndef QWEN3_CHAIN_H
#define QWEN3_CHAIN_H

#include "kernels.h"
#include "weights.h"

/* What a layer may consist of, and how many ops a step has. */
static uint32_t count_ops(const model *m)
{
    uint32_t n = 3;
    for (uint32_t i = 0; i < m->config.layers; i++) n += m->layers[i].sparse ? 9 : 6;
    return n;
}

static fleet_linear product_of(uint32_t n, uint32_t k, uint32_t wide)
{
    fleet_linear l;
    memset(&l, 0, sizeof l);
    l.m = MOST_ROWS, l.n = padded(n, TILE), l.k = k;
    l.tile_m = MOST_ROWS, l.tile_n = wide * TILE, l.tile_k = BLOCK;
    l.element_bytes = 2;
    l.split = FLEET_SPLIT_N, l.traversal = FLEET_TRAVERSAL_M_MAJOR;
    return l;
}

typedef struct chain {
    const model *m;
    const decoder *d;
    op *ops;
    fleet_graph *g;
    fleet_etensor before;
    uint32_t n; /* ops so far */
    uint32_t
        turn; /* wide tiles so far: where one ends that has no round number, the next one begins */
} chain;

#define NO_LAYER UINT32_MAX

static op *then(chain *c, const char *name, uint32_t layer, uint32_t tile, fleet_level level)
{
    op *o = &c->ops[c->n];
    char text[48];
    fleet_grid grid;
    memset(o, 0, sizeof *o);
    if (layer == NO_LAYER)
        snprintf(text, sizeof text, "%s", name);
    else
        snprintf(text, sizeof text, "%s.%u", name, layer);
    grid = fleet_call_device(c->g, text, tile, fleet_shape0(), c->n);
    fleet_grid_level(c->g, grid, level);
    if (c->n) fleet_in_edge(c->g, grid, c->before, "->");
    c->before = fleet_event_tensor(c->g, text, fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_out_edge(c->g, grid, c->before, "->");
    o->number = c->n++, o->ops = count_ops(c->m);
    return o;
}

/* A product of `rows` rows of x, [rows][k]. Those of d->x are still to be divided by their root mean square. */
static op *then_product(chain *c, const char *name, uint32_t layer, uint32_t tile,
                        const bf16 *weights, const act *x, uint32_t rows, uint32_t n, uint32_t k)
{
    op *o = then(c, name, layer, tile, FLEET_LEVEL_DEVICE);
    const layout as = tile == op_linear ? layout_of(c->m, n, k) : single_layout_of(n, k);
    o->shape = product_of(n, k, as.wide);
    o->tile_bytes = tile_bytes_of(&as);
    o->turn = c->turn;
    c->turn += wide_tiles_of(&as);
    o->weights = weights;
    o->x = x, o->x_second = c->d->split * rows * k, o->normed = x == c->d->x;
    return o;
}
static op *then_linear(chain *c, const char *name, uint32_t layer, const bf16 *weights,
                       const act *x, uint32_t n, uint32_t k)
{
    return then_product(c, name, layer, op_linear, weights, x, MOST_ROWS, n, k);
}
/* Tasks that go over columns of the residual stream. */
static op *then_columns(chain *c, const char *name, uint32_t layer, uint32_t tile,
                        const float *next_norm)
{
    op *o = then(c, name, layer, tile, FLEET_LEVEL_DEVICE);
    o->shape = product_of(c->d->hidden, BLOCK, 1);
    o->norm = next_norm;
    return o;
}

/* ---- how a product ends ---- */

static void to_floats(op *o, float *to, uint32_t columns)
{
    o->ending = END_FLOATS, o->floats = to, o->columns = columns;
}
static void to_gated(op *o, const decoder *d, uint32_t rows, uint32_t columns)
{
    o->ending = END_SILU, o->acts = d->gated, o->columns = columns;
    o->acts_second = d->split * rows * columns;
}
static void to_residual(op *o, const float *next_norm)
{
    o->ending = END_RESIDUAL, o->norm = next_norm;
}

#endif /* QWEN3_CHAIN_H */
