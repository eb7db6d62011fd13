/* graph.h: the decoder's graph: what a step is, from the rows' tokens to those that follow. */
#ifndef QWEN3_GRAPH_H
#define QWEN3_GRAPH_H

#include "chain.h"

static void then_attention(chain *c, const model_layer *l, uint32_t i, kept *cache)
{
    const decoder *d = c->d;
    const uint32_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
    op *o = then_linear(c, "qkv", i, l->qkv, d->x, q + 2 * kv, d->hidden);
    to_floats(o, d->qkv, q + 2 * kv);
    o = then(c, "attend", i, op_attend, FLEET_LEVEL_DEVICE);
    o->q_norm = l->q_norm, o->k_norm = l->k_norm, o->cache = cache;
    if (COMBINE_TASK != NO_TASK) then(c, "combine", i, COMBINE_TASK, FLEET_LEVEL_DEVICE);
    o = then_linear(c, "o", i, l->o, d->attended, d->hidden, q);
    to_residual(o, l->post_norm);
}

static void then_dense(chain *c, const model_layer *l, uint32_t i, const float *next_norm)
{
    const decoder *d = c->d;
    const uint32_t ffn = c->m->ffn;
    op *o = then_linear(c, "gate_up", i, l->gate_up, d->x, 2 * ffn, d->hidden);
    to_gated(o, d, MOST_ROWS, ffn);
    o = then_linear(c, "down", i, l->down, d->gated, d->hidden, ffn);
    to_residual(o, next_norm);
}

static void then_experts(chain *c, const model_layer *l, uint32_t i, const float *next_norm)
{
    const decoder *d = c->d;
    const uint32_t ffn = c->m->expert_ffn, pairs = MOST_ROWS * d->top_k;
    op *o = then_linear(c, "router", i, l->router, d->x, d->experts, d->hidden);
    to_floats(o, d->scores, d->experts);
    then(c, "route", i, op_route, FLEET_LEVEL_CU);
    o = then_product(c, "expert_up", i, op_expert, l->expert_up, d->x, MOST_ROWS, 2 * ffn,
                     d->hidden);
    to_gated(o, d, pairs, ffn);
    o = then_product(c, "expert_down", i, op_expert, l->expert_down, d->gated, pairs, d->hidden,
                     ffn);
    to_floats(o, d->expert_out, d->hidden);
    then_columns(c, "add_experts", i, op_add_experts, next_norm);
}

/* The graph, for some sequences, and the arguments of its tasks, count_ops of them. Null: no memory. */
static fleet_graph *decoder_graph(const model *m, const decoder *d, uint32_t sequences, op *ops)
{
    const uint32_t layers = m->config.layers;
    const uint64_t layer_cache = (uint64_t)sequences * d->kv_heads * cache_size(d);
    chain c;
    op *o;
    memset(&c, 0, sizeof c);
    c.m = m, c.d = d, c.ops = ops, c.g = fleet_graph_create(NULL);
    if (!c.g) return NULL;
    then_columns(&c, "embed", NO_LAYER, op_embed, m->layers[0].input_norm);
    for (uint32_t i = 0; i < layers; i++) {
        const model_layer *l = &m->layers[i];
        const float *next_norm = i + 1 < layers ? l[1].input_norm : m->norm;
        then_attention(&c, l, i, d->cache + layer_cache * i);
        if (l->sparse)
            then_experts(&c, l, i, next_norm);
        else
            then_dense(&c, l, i, next_norm);
    }
    o = then_linear(&c, "lm_head", NO_LAYER, m->head, d->x, d->vocab, d->hidden);
    o->ending = END_LOGITS;
    then(&c, "next", NO_LAYER, op_next, FLEET_LEVEL_CU);
    /* The host may look how many steps are done. */
    fleet_event_outside(c.g, c.before, FLEET_OUTSIDE_WAITS, 0, FLEET_SCOPE_SYSTEM);
    return c.g;
}

#endif /* QWEN3_GRAPH_H */
