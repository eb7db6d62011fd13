/* buffers.h: what a session and a server share: the workers that a decoder runs on, its memory beside the weights, and how a
   graph is planned. */
#ifndef QWEN3_BUFFERS_H
#define QWEN3_BUFFERS_H

#include "chain.h"
#include "kv_pages.h"

#include <time.h>

#define MAX_WORKERS 1024u /* on the CPU, where each is a thread */

/* Divides the device's workers into chiplets, if their number is not 0. On the CPU there are `workers` workers in all (0:
   one for each processor), and a CHIPLET schedule's schedulers get workers of their own. 1: an argument is refused;
   with an error and 0 the device is at fault. */
static int topology_refused(fleet_topology *t, uint32_t chiplets, uint32_t workers,
                            fleet_schedule schedule, char *error)
{
    uint32_t all = 0, x = chiplets;
    if (fleet_topology_query(t)) {
        snprintf(error, ERROR_BYTES, "the device cannot be queried");
        return 0;
    }
    for (uint32_t k = 0; k < t->chiplets; k++) all += t->units[k];
#if defined(FLEET_HOST)
    if (!x) x = 1;
    all = fleet_host_machine().workers;
    if (workers > MAX_WORKERS || (workers && workers < x && x <= FLEET_MAX_CHIPLETS)) {
        snprintf(error, ERROR_BYTES, "--workers %u: at least %u here, at most %u", workers, x,
                 MAX_WORKERS);
        return 1;
    }
    if (workers) all = workers;
    if (all < x) all = x;
    if (schedule == FLEET_SCHEDULE_CHIPLET) all += x;
#else
    FLEET_UNUSED(schedule);
    if (workers) {
        snprintf(error, ERROR_BYTES, "--workers %u: a GPU has as many as it has", workers);
        return 1;
    }
#endif
    if (x && x != t->chiplets) {
        if (t->private_l2) {
            snprintf(error, ERROR_BYTES, "--chiplets %u: this GPU has %u, and they are real", x,
                     t->chiplets);
            return 1;
        }
        if (x > FLEET_MAX_CHIPLETS || x > all) {
            snprintf(error, ERROR_BYTES, "--chiplets %u: at most %u here", x,
                     all < FLEET_MAX_CHIPLETS ? all : FLEET_MAX_CHIPLETS);
            return 1;
        }
        t->chiplets = x;
    }
    if (x && !t->private_l2)
        for (uint32_t k = 0; k < x; k++) t->units[k] = all / x + (k < all % x);
    return 0;
}

/* Tells the decoder its chiplets and workers; returns how many workers there are in all. */
static uint32_t decoder_workers(decoder *d, const fleet_topology *t, fleet_schedule schedule)
{
    uint32_t all = 0;
    d->chiplets = t->chiplets, d->workers = 0;
    for (uint32_t k = 0; k < t->chiplets; k++) {
        const uint32_t w = t->units[k] - (schedule == FLEET_SCHEDULE_CHIPLET);
        if (w > d->workers) d->workers = w;
        all += w;
    }
    d->rounds = 1;
    d->max_splits = MAX_KV_SPLITS, d->tile_rows = MAX_ROWS;
    return all;
}

/* Keys and values that stay from one session to the next, and the tokens that they are of: those of
   one sequence. The sessions have the same model and context. Begins as zeros. */
typedef struct kept_tokens {
    device_memory memory;
    kv_t *cache;     /* null: none yet */
    uint32_t *token; /* [n] */
    uint32_t n;
} kept_tokens;
static inline void kept_tokens_free(kept_tokens *k)
{
    memory_free(&k->memory);
    free(k->token);
    memset(k, 0, sizeof *k);
}

typedef struct buffers_desc {
    uint32_t context;     /* tokens of a sequence, at most */
    uint32_t sequences;   /* that have logits and draw tokens */
    uint32_t logit_steps; /* of each sequence whose logits are kept: 1, or all; 0: none */
    uint32_t draws;       /* 1: sequences may have a temperature */
    uint32_t rope_bf16;   /* 1: rounds RoPE's frequencies to bf16 */
    uint32_t parked_rows; /* of a server: room for rows that have stopped between two layers */
    uint32_t requests;    /* of a server: that the device knows */
    request_asks *asks;   /* of a server that draws: what each of them asks */
    kept_tokens *kept;    /* whose cache is used, and made where there is none; or null */
} buffers_desc;

/* cos and sin of each position. */
static const float *rope_table(device_memory *mem, const qwen3_config *c, const buffers_desc *desc)
{
    const uint64_t bytes = (uint64_t)desc->context * c->head_dim * sizeof(float);
    float *rope = mem->counts ? NULL : (float *)malloc((size_t)bytes);
    const float *device;
    if (!rope && !mem->counts) {
        snprintf(mem->error, ERROR_BYTES, "memory: none left");
        return NULL;
    }
    for (uint32_t p = 0; p < desc->context && rope; p++)
        for (uint32_t i = 0; i < c->head_dim / 2; i++) {
            const float frequency = (float)pow(c->rope_theta, -2.0 * i / c->head_dim);
            const double angle =
                p * (double)(desc->rope_bf16 ? float_of_bf16(bf16_of_float(frequency)) : frequency);
            rope[((size_t)p * (c->head_dim / 2) + i) * 2] = (float)cos(angle);
            rope[((size_t)p * (c->head_dim / 2) + i) * 2 + 1] = (float)sin(angle);
        }
    device = (const float *)memory_copy(mem, "rope", rope, bytes);
    free(rope);
    return device;
}

static void expert_buffers(decoder *d, device_memory *mem, const qwen3_config *c)
{
    const uint64_t pairs = (uint64_t)MAX_ROWS * c->experts_per_token;
    d->scores = (float *)memory_get(mem, "experts", (uint64_t)MAX_ROWS * c->experts * 4);
    d->place_weight = (float *)memory_get(mem, "experts", pairs * 4);
    d->place_row = (int32_t *)memory_get(mem, "experts", pairs * 4);
    /* zeros: a weight pipeline may read them before the first step */
    d->active = (int32_t *)memory_zeros(mem, "experts", (uint64_t)c->experts * 4);
    d->first_place = (int32_t *)memory_get(mem, "experts", (uint64_t)(c->experts + 1) * 4);
    d->n_active = (int32_t *)memory_zeros(mem, "experts", 4);
}

/* What tasks of a server share. */
static void served_buffers(decoder *d, device_memory *mem, const buffers_desc *desc)
{
    const uint64_t history = (uint64_t)desc->requests * desc->context;
    served_state state;
    memset(&state, 0, sizeof state);
    if (desc->draws) {
        state.asks = desc->asks;
        state.history = (int32_t *)memory_get(mem, "sampling", history * 4);
        state.shaped =
            (uint32_t *)memory_get(mem, "sampling", (uint64_t)desc->sequences * d->vocab * 4);
    }
    d->served = (served_state *)memory_copy(mem, "gates", &state, sizeof state);
}

/* Fills in the decoder and allocates its buffers, for d->pages pages, after decoder_workers. 0, or -1 and an error. */
static int decoder_buffers(decoder *d, device_memory *mem, const model *m, const buffers_desc *desc)
{
    const qwen3_config *c = &m->config;
    const uint32_t dim = c->head_dim, q = c->heads * dim, kv = c->kv_heads * dim,
                   n = desc->sequences;
    const uint64_t pairs = (uint64_t)MAX_ROWS * c->experts_per_token;
    const uint64_t dense = (uint64_t)MAX_ROWS * m->ffn, sparse = pairs * m->expert_ffn;
    const uint64_t bests = bests_of(d);
    const uint64_t parked = (uint64_t)desc->parked_rows * c->hidden;
    float none[MAX_ROWS];
    for (uint32_t i = 0; i < MAX_ROWS; i++) none[i] = -INFINITY;
    d->rope = rope_table(mem, c, desc);
    d->hidden = c->hidden, d->layers = c->layers, d->heads = c->heads, d->kv_heads = c->kv_heads;
    d->group = c->heads / c->kv_heads, d->root = 1 / sqrtf((float)dim);
    d->head_dim = dim, d->vocab = c->vocab, d->context = desc->context;
    d->experts = c->experts, d->top_k = c->experts_per_token;
    d->norm_topk = (uint32_t)c->norm_topk;
    d->eps = (float)c->norm_eps;
    d->embedding = m->embedding;
    d->two_terms = ACTS_ARE_ROUNDED && c->experts != 0;
    d->h = (float *)memory_get(mem, "activations", (uint64_t)MAX_ROWS * c->hidden * 4);
    d->x =
        (act_t *)memory_get(mem, "activations", (uint64_t)2 * MAX_ROWS * c->hidden * sizeof(act_t));
    d->squares =
        (float *)memory_get(mem, "activations", (uint64_t)c->hidden / TILE_N * MAX_ROWS * 4);
    d->qkv = (float *)memory_get(mem, "activations", (uint64_t)MAX_ROWS * (q + 2 * kv) * 4);
    d->kv_partials = (float *)memory_zeros(
        mem, "attention", (uint64_t)MAX_ROWS * c->heads * d->max_splits * kv_partial_size(d) * 4);
    d->splits_done = (uint32_t *)memory_zeros(mem, "attention", (uint64_t)MAX_ROWS * c->heads * 4);
    d->attended =
        (act_t *)memory_get(mem, "activations", (uint64_t)2 * MAX_ROWS * q * sizeof(act_t));
    d->gated = (act_t *)memory_get(mem, "activations",
                                   2 * (dense > sparse ? dense : sparse) * sizeof(act_t));
    if (parked) {
        d->parked_h = (float *)memory_get(mem, "activations", parked * 4);
        d->parked_x = (act_t *)memory_get(mem, "activations", 2 * parked * sizeof(act_t));
        d->parked_squares = (float *)memory_get(mem, "activations", parked / TILE_N * 4);
    }
    d->split_k = (fleet_quad *)memory_zeros(mem, "sums",
                                            bests / MAX_ROWS * SPLIT_K_QUADS * sizeof(fleet_quad));
    d->best = (float *)memory_get(mem, "logits", bests * 4);
    d->best_token = (int32_t *)memory_zeros(mem, "logits", bests * 4);
    /* smaller chiplets, and schedulers, leave these entries unchanged */
    for (uint64_t i = 0; i < bests && d->best; i += MAX_ROWS)
        if (fleet_to_device(d->best + i, none, sizeof none, NULL))
            snprintf(mem->error, ERROR_BYTES, "logits: cannot be copied to the device");
    d->logit_steps = desc->logit_steps ? desc->logit_steps : 1;
    if (desc->logit_steps)
        d->logits = (float *)memory_get(mem, "logits", (uint64_t)n * d->logit_steps * c->vocab * 4);
    if (desc->draws) {
        d->sampling =
            (sampling_desc *)memory_get(mem, "sampling", (uint64_t)n * sizeof *d->sampling);
        d->drawn = (int32_t *)memory_get(mem, "sampling", (uint64_t)n * 4);
    }
    if (parked) served_buffers(d, mem, desc);
    if (desc->kept) desc->kept->memory.error = mem->error;
    /* Attention multiplies entries that were not written yet by 0: they must be finite. */
    d->cache = desc->kept && desc->kept->cache
                   ? desc->kept->cache
                   : (kv_t *)memory_zeros(desc->kept ? &desc->kept->memory : mem,
                                          "cache of keys and values",
                                          (uint64_t)c->layers * layer_cache_size(d) * sizeof(kv_t));
    if (desc->kept) desc->kept->cache = d->cache;
    d->b = (batch *)memory_get(mem, "batch", (uint64_t)d->rounds * sizeof(batch));
    if (c->experts) expert_buffers(d, mem, c);
    return mem->error[0] ? -1 : 0;
}

/* Numbers the launches of these tasks: flagged data that earlier ones have left in memory is not taken for theirs. */
static void tasks_begin_session(task_args *tasks, uint32_t n)
{
    struct timespec opened;
    timespec_get(&opened, TIME_UTC);
    for (uint32_t i = 0; i < n; i++)
        tasks[i].session = (uint64_t)opened.tv_sec * 1000000000u + (uint64_t)opened.tv_nsec;
}

/* Lets lm_head take this rank's tokens alone, numbered from 0 on, and leave what it finds in the rank's region. */
static void lm_head_of_rank(task_args *task, const model *m)
{
    decoder *d = &task->d;
    d->vocab = tokens_of_rank(d->vocab, m->head_tokens, m->rank);
    d->best = heads_of(d), d->best_token = (int32_t *)(void *)(d->best + bests_of(d));
    if (d->logits) d->logits = (float *)(void *)(d->best_token + bests_of(d));
}

/* Plans the graph that `build` makes, and copies the arguments of its tasks to the device. The caller frees tasks and plan,
   whatever is returned: 0, or -1 and mem->error. */
static int decoder_plan(device_memory *mem, const model *m, const decoder *d,
                        fleet_graph *(*build)(const model *, const decoder *, task_args *),
                        const fleet_plan_desc *desc, task_args **tasks,
                        const task_args **device_tasks, fleet_plan **plan)
{
    const uint32_t n = count_step_tasks(m, d);
    fleet_graph *g;
    if (mem->error[0]) return -1;
    *tasks = (task_args *)calloc(n, sizeof **tasks);
    g = *tasks ? build(m, d, *tasks) : NULL;
    if (!g)
        snprintf(mem->error, ERROR_BYTES, "memory: none left");
    else if (fleet_plan_build(g, desc, plan))
        snprintf(mem->error, ERROR_BYTES, "plan: %.400s", fleet_graph_error(g));
    fleet_graph_destroy(g);
    if (mem->error[0]) return -1;
    for (uint32_t i = 0; i < n; i++) {
        (*tasks)[i].d = decoder_of_round(d, (*tasks)[i].round);
        if (m->ranks > 1 && (*tasks)[i].epilogue == EPILOGUE_ARGMAX)
            lm_head_of_rank(&(*tasks)[i], m);
    }
    tasks_begin_session(*tasks, n);
    *device_tasks =
        (const task_args *)memory_copy(mem, "tasks", *tasks, (uint64_t)n * sizeof **tasks);
    return mem->error[0] ? -1 : 0;
}

#endif /* QWEN3_BUFFERS_H */
