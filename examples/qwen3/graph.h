/* graph.h: the decoder's graph: one step, from the tokens of its rows to the next tokens.

       embed -> [ qkv -> attend -> o -> gate_up -> down ] x layers -> lm_head -> draw -> next
                                     \> router -> route -> expert_up -> expert_down (layers with experts)

   Each append_... makes one grid, which waits for all tasks of the grid before it. A linear layer reads the activations
   named after its weights and ends with the epilogue in the line below. Where the backend's attention does not combine
   KV splits itself, a grid does (COMBINE_TASK). There is a `draw` only where sequences may have a temperature.

   Of several batches, each has such a chain, its round, and the chains follow one another.

   Of several ranks (tasks/ranks.h), each runs the chain on its share of the weights. Tasks of o, and of down or the experts,
   exchange their sums with the other ranks' tasks of the same columns; `join_heads` brings together what the ranks find
   in their columns of lm_head. So all ranks choose the same tokens.

   In a server a `gate` precedes each layer but the first, and a `boundary` takes the place of `next` (tasks/serve.h). All
   grids after `embed` have the symbol LIVE: where a gate suspends all rows, the rest of the step is passed over. */
#ifndef QWEN3_GRAPH_H
#define QWEN3_GRAPH_H

#include "chain.h"

static void append_attention(chain *c, const model_layer *l, uint32_t i, kv_t *cache)
{
    const decoder *d = c->d;
    const uint32_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
    task_args *task = append_linear(c, "qkv", i, l->qkv, d->x, q + 2 * kv, d->hidden);
    task->after_gate = d->table && i;
    epilogue_store(task, d->qkv, q + 2 * kv);
    task = append_task(c, "attend", i, task_args_attend, FLEET_LEVEL_DEVICE);
    task->q_norm = l->q_norm, task->k_norm = l->k_norm, task->cache = cache;
    if (COMBINE_TASK != NO_TASK) append_task(c, "combine", i, COMBINE_TASK, FLEET_LEVEL_DEVICE);
    task = append_linear(c, "o", i, l->o, d->attended, d->hidden, q);
    append_residual(c, task, 0, l->post_norm);
}

static void append_dense(chain *c, const model_layer *l, uint32_t i, const float *next_norm)
{
    const decoder *d = c->d;
    const uint32_t ffn = c->m->ffn;
    task_args *task = append_linear(c, "gate_up", i, l->gate_up, d->x, 2 * ffn, d->hidden);
    epilogue_silu(task, d, MAX_ROWS, ffn);
    task = append_linear(c, "down", i, l->down, d->gated, d->hidden, ffn);
    append_residual(c, task, 1, next_norm);
}

static void append_experts(chain *c, const model_layer *l, uint32_t i, const float *next_norm)
{
    const decoder *d = c->d;
    const uint32_t ffn = c->m->expert_ffn, pairs = MAX_ROWS * d->top_k;
    const uint32_t route = d->table ? SERVED(route) : (uint32_t)task_args_route,
                   down = d->table ? SERVED(expert_down) : (uint32_t)task_args_expert_down;
    const layout ups = single_layout_of(c->m->format, 2 * ffn, d->hidden),
                 downs = single_layout_of(c->m->format, d->hidden, ffn);
    task_args *task = append_bf16(c, "router", i, l->router, d->experts);
    epilogue_store(task, d->scores, d->experts);
    append_task(c, "route", i, route, FLEET_LEVEL_CU);
#if HAS_RANKS
    if (c->m->ranks > 1) append_task(c, "own_experts", i, task_args_own_experts, FLEET_LEVEL_CU);
#endif
    task = append_product(c, "expert_up", i, task_args_linear, l->expert_up, &ups, d->x, MAX_ROWS);
    task->shape.tile_n = expert_panel_tiles(c->m, task->shape.n) * TILE_N;
    epilogue_experts(task, d, pairs, ffn);
    task = append_product(c, "expert_down", i, down, l->expert_down, &downs, d->gated, pairs);
    append_residual(c, task, 1, next_norm);
}

/* From the residual stream after the last layer to the next tokens. */
static void append_tokens(chain *c)
{
    const model *m = c->m;
    const decoder *d = c->d;
    task_args *task = append_bf16(c, "lm_head", NO_LAYER, m->head, m->head_columns);
    task->epilogue = EPILOGUE_ARGMAX;
#if HAS_RANKS
    if (m->ranks > 1) {
        c->joins = 1;
        append_task(c, "join_heads", NO_LAYER, task_args_join_heads, FLEET_LEVEL_CU)->columns =
            m->head_tokens;
    }
#endif
    if (d->sampling)
        append_task(c, "draw", NO_LAYER, d->table ? DRAW_SERVED : (uint32_t)task_args_draw,
                    FLEET_LEVEL_DEVICE);
    if (d->table) {
        append_control(c, "boundary", NO_LAYER, SERVED(boundary));
        fleet_symbol_writer(c->g, c->live, c->last);
        return;
    }
    append_task(c, "next", NO_LAYER, task_args_next, FLEET_LEVEL_CU);
    /* The host may watch how many steps are done. */
    if (m->ranks == 1 && c->batch_number + 1 == d->rounds)
        fleet_event_external(c->g, c->before, FLEET_EXTERNAL_WAITS, 0, FLEET_SCOPE_SYSTEM);
}

/* Builds the graph, and the arguments of its tasks (count_tasks). Null: out of memory. */
static fleet_graph *decoder_graph(const model *m, const decoder *d, task_args *tasks)
{
    const uint32_t layers = m->config.layers;
    chain c;
    memset(&c, 0, sizeof c);
    c.m = m, c.d = d, c.tasks = tasks, c.g = fleet_graph_create(NULL);
    if (!c.g) return NULL;
    for (; c.batch_number < d->rounds; c.batch_number++) {
        append_columns(&c, "embed", NO_LAYER, task_args_embed, m->layers[0].input_norm);
        if (d->table) c.live = fleet_symbol(c.g, "live", 0, 1), c.is_guarded = 1;
        for (uint32_t i = 0; i < layers; i++) {
            const model_layer *l = &m->layers[i];
            const float *next_norm = i + 1 < layers ? l[1].input_norm : m->norm;
            if (d->table && i) append_gate(&c, i, SERVED(gate));
            append_attention(&c, l, i, d->cache + layer_cache_size(d) * i);
            if (l->sparse)
                append_experts(&c, l, i, next_norm);
            else
                append_dense(&c, l, i, next_norm);
        }
        append_tokens(&c);
    }
    return c.g;
}

#endif /* QWEN3_GRAPH_H */
