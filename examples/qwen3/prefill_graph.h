/* prefill_graph.h: what the launches of prompts and of many sequences (prefill.h) and servers with
   long chunks (serving_wide.h) have in common: how products are divided, and the graph of the
   layers. */
#ifndef QWEN3_PREFILL_GRAPH_H
#define QWEN3_PREFILL_GRAPH_H

#include "buffers.h"
#include "graph.h"

#if !defined(FLEET_HOST)
/* Of several ranks, after a product whose sums are summands of the residual stream on each of them,
   or after the task that adds up those of experts. `join` and the grid after it read what all ranks
   have stored, so they wait for all: and so, when these sums are stored again, `join` has read
   them. */
static void append_exchange(chain *c, const char *of, uint32_t layer, uint32_t product,
                            const float *next_norm)
{
#if HAS_RANKS
    char name[32];
    task_args *task = &c->tasks[c->n - 1];
    fleet_quad *summands = c->d->summands;
    task->summands = summands, c->joins = 1;
    snprintf(name, sizeof name, "%s_join", of);
    task = append_task(c, name, layer, prefill_set_prefill_join, FLEET_LEVEL_DEVICE);
    task->product = product, task->norm = next_norm, task->summands = summands;
    c->joins = 1;
#else
    FLEET_UNUSED(c), FLEET_UNUSED(of), FLEET_UNUSED(layer), FLEET_UNUSED(product);
    FLEET_UNUSED(next_norm);
#endif
}

/* The largest logits of each worker of a kernel whose steps are one tile. */
static void wide_best_buffers(decoder *d, device_memory *mem)
{
    const uint64_t workers = d->chiplets * d->workers, n = workers * PREFILL_TILE_ROWS;
    float none[PREFILL_TILE_ROWS];
    d->best = (float *)memory_get(mem, "logits", n * sizeof *d->best);
    d->best_token = (int32_t *)memory_zeros(mem, "logits", n * sizeof *d->best_token);
    for (uint32_t i = 0; i < PREFILL_TILE_ROWS; i++) none[i] = -INFINITY;
    for (uint64_t i = 0; i < workers && d->best; i++) /* of workers that have no tiles */
        if (fleet_to_device(d->best + i * PREFILL_TILE_ROWS, none, sizeof none, NULL))
            snprintf(mem->error, ERROR_BYTES, "logits: cannot be copied to the device");
}
#endif

#if defined(FLEET_CUDA)
#define ATTEND_WIDE WIDE(wide_attend)
#define HEAD_WIDE WIDE(wide_head)

/* A task that several sets have, with one term or two, has the same number in all: this one stands for all. */
typedef char the_sets_have_the_same_numbers
    [(uint32_t)prefill_set_prefill_embed == (uint32_t)wide_set_prefill_embed &&
             (uint32_t)prefill_set_prefill_embed ==
                 (uint32_t)prefill_expert_set_prefill_embed_terms &&
             (uint32_t)prefill_expert_set_prefill_linear_terms == (uint32_t)task_args_linear &&
             (uint32_t)prefill_set_prefill_attend ==
                 (uint32_t)prefill_expert_set_prefill_attend_terms &&
             (uint32_t)prefill_set_prefill_heads == (uint32_t)prefill_expert_set_prefill_heads &&
             (uint32_t)prefill_set_prefill_add == (uint32_t)prefill_expert_set_prefill_add_terms &&
             (uint32_t)prefill_set_prefill_keep == (uint32_t)prefill_expert_set_prefill_keep &&
             (uint32_t)prefill_set_prefill_linear == (uint32_t)task_args_linear &&
             (uint32_t)wide_set_prefill_linear == (uint32_t)task_args_linear &&
             (uint32_t)prefill_set_prefill_add == (uint32_t)wide_set_prefill_add &&
             (uint32_t)prefill_set_prefill_embed == (uint32_t)served_wide_embed_wide &&
             (uint32_t)served_wide_prefill_linear == (uint32_t)task_args_linear &&
             (uint32_t)prefill_set_prefill_attend == (uint32_t)served_wide_attend_served &&
             (uint32_t)prefill_set_prefill_heads == (uint32_t)served_wide_prefill_heads &&
             (uint32_t)prefill_set_prefill_add == (uint32_t)served_wide_prefill_add &&
             (uint32_t)served_wide_embed_wide == (uint32_t)served_wide_experts_embed_wide_terms &&
             (uint32_t)served_wide_prefill_linear ==
                 (uint32_t)served_wide_experts_served_linear_terms &&
             (uint32_t)served_wide_attend_served ==
                 (uint32_t)served_wide_experts_attend_served_terms &&
             (uint32_t)served_wide_prefill_heads == (uint32_t)served_wide_experts_prefill_heads &&
             (uint32_t)served_wide_prefill_add == (uint32_t)served_wide_experts_prefill_add_terms &&
             (uint32_t)served_wide_choose_wide == (uint32_t)served_wide_experts_choose_wide_terms &&
             (uint32_t)served_wide_head_wide == (uint32_t)served_wide_experts_head_wide_terms &&
             (uint32_t)served_wide_draw_wide == (uint32_t)served_wide_experts_draw_wide &&
             (uint32_t)served_wide_boundary_wide ==
                 (uint32_t)served_wide_experts_boundary_wide_terms &&
             (uint32_t)served_wide_gate_wide == (uint32_t)served_wide_experts_gate_wide_terms
         ? 1
         : -1];

/* The chiplets share all work. */
static uint32_t head_groups(const decoder *d)
{
    FLEET_UNUSED(d);
    return 0;
}
static uint32_t column_groups(const decoder *d)
{
    FLEET_UNUSED(d);
    return 0;
}
/* Nor are weights loaded ahead. */
static void load_weights_ahead(const chain *c)
{
    FLEET_UNUSED(c);
}

static prefill_division divide_expert(const fleet_linear *shape, uint32_t rows, const decoder *d)
{
    return prefill_divide_expert(shape, rows, d->top_k, d->experts);
}
/* Places of rows that are sorted by expert, at most; and their activations. */
static uint64_t most_places(const decoder *d, uint32_t rows)
{
    return d->experts ? expert_places(rows, d->top_k, d->experts) : 0;
}
static uint64_t sorted_acts(uint64_t places, uint32_t width)
{
    return sorted_values((uint32_t)places, width);
}
static void sorted_buffers(decoder *d, device_memory *mem, uint64_t places, const char *what)
{
    d->prefill_sorted =
        (act_t *)memory_zeros(mem, what, sorted_acts(places, d->hidden) * sizeof(act_t));
    d->prefill_results = (float *)memory_get(mem, what, places * d->hidden * sizeof(float));
    d->prefill_routes = memory_get(mem, what, prefill_routes_bytes(d->top_k, d->experts));
}

static void append_sorted_experts(chain *c, const model_layer *l, uint32_t i,
                                  const float *next_norm)
{
    const decoder *d = c->d;
    const uint32_t ffn = c->m->expert_ffn;
    const layout ups = single_layout_of(bf16_format(), 2 * ffn, d->hidden),
                 downs = single_layout_of(bf16_format(), d->hidden, ffn);
    const uint32_t linear = prefill_expert_set_prefill_linear_terms,
                   route = d->table ? (uint32_t)served_wide_experts_served_route
                                    : (uint32_t)prefill_expert_set_prefill_route,
                   gather = d->table ? (uint32_t)served_wide_experts_served_gather
                                     : (uint32_t)prefill_expert_set_prefill_gather,
                   combine = d->table ? (uint32_t)served_wide_experts_served_combine
                                      : (uint32_t)prefill_expert_set_prefill_combine;
    task_args *task = append_bf16(c, "router", i, l->router, d->experts);
    epilogue_store(task, d->qkv, task->shape.n);
    task->product = PREFILL_ROUTER;
    task = append_task(c, "route", i, route, FLEET_LEVEL_DEVICE);
    task->floats = d->qkv, task->columns = padded(d->experts, TILE_N);
    task = append_task(c, "gather", i, gather, FLEET_LEVEL_DEVICE);
    task->acts = d->prefill_sorted;
    task = append_product(c, "expert_up", i, linear, l->expert_up, &ups, d->prefill_sorted, 0);
    epilogue_silu(task, d, 0, ffn);
    task->product = PREFILL_EXPERT_UP;
    task = append_product(c, "expert_down", i, linear, l->expert_down, &downs, d->gated, 0);
    task->product = PREFILL_EXPERT_DOWN;
    epilogue_store(task, d->prefill_results, d->hidden);
    task = append_task(c, "combine", i, combine, FLEET_LEVEL_DEVICE);
    task->floats = d->prefill_results, task->norm = next_norm;
    if (c->m->ranks > 1) append_exchange(c, "experts", i, PREFILL_EXPERT_DOWN, next_norm);
}
#elif defined(FLEET_HIP)
#define ATTEND_WIDE NO_TASK /* heads and attention are those of prompts */
#define HEAD_WIDE WIDE(head_wide)
/* 1: all chiplets share all work: in a server, and of several ranks. */
static uint32_t shares_all(const decoder *d)
{
    return d->unaware || d->table || d->peers.ranks > 1;
}
/* Chiplets among which the KV heads of prompts are divided, and columns of the residual stream. A chiplet has whole heads and
   whole tiles; 0: all chiplets share the work. */
static uint32_t head_groups(const decoder *d)
{
    const uint32_t n = shares_all(d) ? 1 : d->chiplets;
    return n > 1 && d->kv_heads % n == 0 && d->kv_heads / n * d->head_dim % PREFILL_COLUMNS == 0
               ? n
               : 0;
}
static uint32_t column_groups(const decoder *d)
{
    const uint32_t n = shares_all(d) ? 1 : d->chiplets;
    return n > 1 && d->hidden % (n * PREFILL_COLUMNS) == 0 ? n : 0;
}
static uint64_t weight_bytes(const task_args *task)
{
    return task->weights ? (uint64_t)task->shape.n * task->shape.k * sizeof(bf16) : 0;
}
/* Before its event, each task loads weights of its own product or of those that follow, from where the task before it ended. */
static void load_weights_ahead(const chain *c)
{
    const uint64_t most = (uint64_t)c->d->chiplets * c->d->workers * TOUCHED_BYTES;
    uint64_t done = 0; /* bytes of `product` */
    for (uint32_t i = 0, product = 0; i < c->n; i++) {
        task_args *task = &c->tasks[i];
        const task_args *next;
        uint64_t left;
        if (product < i) product = i, done = 0;
        while (product < c->n &&
               done == weight_bytes(&c->tasks[product])) /* that is 0 of other tasks */
            product++, done = 0;
        if (product == c->n) return;
        next = &c->tasks[product], left = weight_bytes(next) - done;
        task->share.ahead = next->weights + done / sizeof(bf16);
        task->share.ahead_bytes = (uint32_t)(left < most ? left : most);
        done += task->share.ahead_bytes;
    }
}
/* Models with experts are NVIDIA's alone. */
static prefill_division divide_expert(const fleet_linear *shape, uint32_t rows, const decoder *d)
{
    return prefill_divide(shape, EPILOGUE_STORE, rows, d->chiplets * d->workers, 1);
}
static uint64_t most_places(const decoder *d, uint32_t rows)
{
    FLEET_UNUSED(d), FLEET_UNUSED(rows);
    return 0;
}
static uint64_t sorted_acts(uint64_t places, uint32_t width)
{
    FLEET_UNUSED(places), FLEET_UNUSED(width);
    return 0;
}
static void sorted_buffers(decoder *d, device_memory *mem, uint64_t places, const char *what)
{
    FLEET_UNUSED(d), FLEET_UNUSED(mem), FLEET_UNUSED(places), FLEET_UNUSED(what);
}
static void append_sorted_experts(chain *c, const model_layer *l, uint32_t i,
                                  const float *next_norm)
{
    FLEET_UNUSED(c), FLEET_UNUSED(l), FLEET_UNUSED(i), FLEET_UNUSED(next_norm);
}
#endif

#if !defined(FLEET_HOST)
/* The shapes of a layer's products. */
static void prefill_shapes(const model *m, const decoder *d, fleet_linear *shapes)
{
    const uint32_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
    shapes[PREFILL_QKV] = linear_shape_of(q + 2 * kv, d->hidden, 1);
    shapes[PREFILL_O] = linear_shape_of(d->hidden, q, 1);
    shapes[PREFILL_GATE_UP] = linear_shape_of(2 * m->ffn, d->hidden, 1);
    shapes[PREFILL_DOWN] = linear_shape_of(d->hidden, m->ffn, 1);
    shapes[PREFILL_HEAD] = linear_shape_of(m->head_columns, d->hidden, 1);
    shapes[PREFILL_ROUTER] = linear_shape_of(d->experts, d->hidden, 1);
    shapes[PREFILL_EXPERT_UP] = linear_shape_of(2 * m->expert_ffn, d->hidden, 1);
    shapes[PREFILL_EXPERT_DOWN] = linear_shape_of(d->hidden, m->expert_ffn, 1);
}
/* After a product that adds to the residual stream: adds up its parts, if there are any, or those
   of all ranks. */
static void append_add(chain *c, const char *of, uint32_t layer, uint32_t product,
                       const float *next_norm)
{
    char name[32];
    task_args *task = &c->tasks[c->n - 1];
    task->product = product;
    if (c->m->ranks > 1) append_exchange(c, of, layer, product, next_norm);
    if (c->m->ranks > 1 || !c->d->prefill_adds) return;
    c->stays = 0;
    snprintf(name, sizeof name, "%s_add", of);
    task = append_task(c, name, layer, prefill_set_prefill_add, FLEET_LEVEL_DEVICE);
    task->product = product, task->norm = next_norm;
    c->groups = 0;
}

/* From the embedding through all layers. */
static void append_prefill_layers(chain *c)
{
    const model *m = c->m;
    const decoder *d = c->d;
    const uint32_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
    /* 1: attention also applies norm and RoPE */
    const uint32_t attends_heads = ATTEND_WIDE != NO_TASK && d->prefill_stays && !d->table;
    append_columns(c, "embed", NO_LAYER,
                   d->table ? SERVED_WIDE(embed_wide) : (uint32_t)prefill_set_prefill_embed,
                   m->layers[0].input_norm);
    if (d->table) c->live = fleet_symbol(c->g, "live", 0, 1), c->is_guarded = 1;
    for (uint32_t i = 0; i < m->config.layers; i++) {
        const model_layer *l = &m->layers[i];
        const float *next_norm = i + 1 < m->config.layers ? l[1].input_norm : m->norm;
        kv_t *const cache = d->cache + layer_cache_size(d) * i;
        task_args *task;
        if (d->table && i) append_gate(c, i, SERVED_WIDE(gate_wide));
        c->groups = head_groups(d), c->stays = 1;
        task = append_linear(c, "qkv", i, l->qkv, d->x, q + 2 * kv, d->hidden);
        epilogue_store(task, d->qkv, q + 2 * kv);
        if (!attends_heads) {
            task = append_task(c, "heads", i, prefill_set_prefill_heads, FLEET_LEVEL_DEVICE);
            task->q_norm = l->q_norm, task->k_norm = l->k_norm, task->cache = cache;
            c->stays = 0;
        }
        task = append_task(c, "attend", i,
                           attends_heads ? ATTEND_WIDE : (uint32_t)prefill_set_prefill_attend,
                           FLEET_LEVEL_DEVICE);
        task->q_norm = l->q_norm, task->k_norm = l->k_norm, task->cache = cache;
        c->stays = 0;
        c->groups = column_groups(d), c->stays = 1;
        task = append_linear(c, "o", i, l->o, d->attended, d->hidden, q);
        epilogue_residual(task, l->post_norm);
        append_add(c, "o", i, PREFILL_O, l->post_norm);
        if (l->sparse) {
            append_sorted_experts(c, l, i, next_norm);
            continue;
        }
        task = append_linear(c, "gate_up", i, l->gate_up, d->x, 2 * m->ffn, d->hidden);
        epilogue_silu(task, d, MAX_ROWS, m->ffn);
        task->product = PREFILL_GATE_UP;
        c->groups = column_groups(d), c->stays = 1;
        task = append_linear(c, "down", i, l->down, d->gated, d->hidden, m->ffn);
        epilogue_residual(task, next_norm);
        append_add(c, "down", i, PREFILL_DOWN, next_norm);
    }
}
#endif /* FLEET_HOST */

#endif /* QWEN3_PREFILL_GRAPH_H */
