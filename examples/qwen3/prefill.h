/* prefill.h: takes prompts in steps of many rows, with a kernel of its own, before the launch that decodes (NVIDIA, compute
   capability 9.0a; nvidia/prefill.h has its tasks). The host knows all prompts, so it lays out all steps beforehand.

       embed -> [ qkv -> heads -> attend -> o -> gate_up -> down ] x layers

   The steps leave keys and values in the cache. The last token of each prompt is left to the launch that decodes, which
   chooses the next one from it. The bits of a row depend neither on the step that it is in nor on the rows beside it. */
#ifndef QWEN3_PREFILL_H
#define QWEN3_PREFILL_H

#include "buffers.h"
#include "graph.h"
#include "kernels.h"
#include "page_table.h"

/* Tokens for which the launches of their own pay: more than one step of the other launch takes. */
#define PREFILL_LEAST MAX_ROWS

typedef struct prefill_run {
    uint32_t max_rows; /* of a step; 0: the launch that decodes takes the prompts */
    uint32_t rows, steps;
    decoder d;
    task_args *tasks;
    const task_args *device_tasks;
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    uint32_t image_made, state_made;
} prefill_run;

static uint32_t prefill_tokens(const batch *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->sequences; i++)
        n += b->sequence[i].shared ? 0 : (uint32_t)(b->sequence[i].prompt - 1);
    return n;
}

#if defined(FLEET_CUDA)
/* Memory for the activations of max_rows rows; d: the session's. */
static void prefill_buffers(prefill_run *p, device_memory *mem, const decoder *d, const model *m)
{
    const uint64_t rows = padded(p->max_rows, PREFILL_TILE_ROWS);
    const uint64_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
    p->d = *d;
    p->d.h = (float *)memory_get(mem, "prompts", rows * d->hidden * 4);
    /* The products read all rows of a tile: those that do not exist must have memory. */
    p->d.x = (act_t *)memory_get(mem, "prompts", rows * d->hidden * sizeof(act_t));
    p->d.squares = (float *)memory_get(mem, "prompts",
                                       rows * ceil_div(d->hidden, SQUARED_COLUMNS) * sizeof(float));
    p->d.qkv = (float *)memory_get(mem, "prompts", rows * (q + 2 * kv) * 4);
    p->d.attended = (act_t *)memory_get(mem, "prompts", rows * q * sizeof(act_t));
    p->d.gated = (act_t *)memory_get(mem, "prompts", rows * m->ffn * sizeof(act_t));
}

/* Rows of steps, at most, for such a model and batch. */
static uint32_t prefill_rows_of(const model *m, uint32_t wanted, uint64_t tokens)
{
    const uint32_t rows = wanted && wanted < PREFILL_ROWS ? wanted : PREFILL_ROWS;
    /* A block has the queries of at least one row. */
    if (!m->has_prefill || m->config.heads / m->config.kv_heads > PREFILL_QUERIES) return 0;
    return tokens < rows ? (uint32_t)tokens : rows;
}

static fleet_graph *prefill_graph(const model *m, const decoder *d, task_args *tasks)
{
    const uint32_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
    chain c;
    memset(&c, 0, sizeof c);
    c.m = m, c.d = d, c.tasks = tasks, c.g = fleet_graph_create(NULL);
    if (!c.g) return NULL;
    append_columns(&c, "embed", NO_LAYER, prefill_set_prefill_embed, m->layers[0].input_norm);
    for (uint32_t i = 0; i < m->config.layers; i++) {
        const model_layer *l = &m->layers[i];
        kv_t *cache = d->cache + layer_cache_size(d) * i;
        task_args *task = append_linear(&c, "qkv", i, l->qkv, d->x, q + 2 * kv, d->hidden);
        epilogue_store(task, d->qkv, q + 2 * kv);
        task = append_task(&c, "heads", i, prefill_set_prefill_heads, FLEET_LEVEL_DEVICE);
        task->q_norm = l->q_norm, task->k_norm = l->k_norm, task->cache = cache;
        task = append_task(&c, "attend", i, prefill_set_prefill_attend, FLEET_LEVEL_DEVICE);
        task->cache = cache;
        task = append_linear(&c, "o", i, l->o, d->attended, d->hidden, q);
        epilogue_residual(task, l->post_norm);
        append_dense(&c, l, i, i + 1 < m->config.layers ? l[1].input_norm : m->norm);
    }
    return c.g;
}

/* The rows, blocks and steps of all prompts. */
typedef struct prefill_layout {
    token_row *rows;
    prefill_block *blocks;
    prefill_step *steps;
    uint32_t n_rows, n_blocks, n_steps;
} prefill_layout;

static int later_keys(const void *a, const void *b)
{
    const prefill_block *x = (const prefill_block *)a, *y = (const prefill_block *)b;
    const uint32_t keys = x->position + x->rows, others = y->position + y->rows;
    if (keys != others) return keys < others ? 1 : -1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* Lays out the prompts of `b` from their positions on, but for their last tokens, and moves the positions there. tokens:
   [sequences][line]. 0, or -1: no memory is left. */
static int prefill_lay_out(prefill_layout *l, const prefill_run *p, batch *b, const int32_t *tokens,
                           uint32_t line, const page_table *pages)
{
    const uint32_t block_rows = PREFILL_QUERIES / p->d.group;
    uint32_t in_step = 0;
    memset(l, 0, sizeof *l);
    l->rows = (token_row *)calloc(p->rows, sizeof *l->rows);
    l->blocks = (prefill_block *)calloc(p->rows, sizeof *l->blocks);
    l->steps = (prefill_step *)calloc(p->rows + 1, sizeof *l->steps);
    if (!l->rows || !l->blocks || !l->steps) return -1;
    for (uint32_t i = 0; i < b->sequences; i++) {
        sequence_state *s = &b->sequence[i];
        if (s->shared) continue;
        while (s->position + 1 < s->prompt) {
            const uint32_t left = (uint32_t)(s->prompt - 1 - s->position),
                           room = p->max_rows - in_step;
            uint32_t n = left < block_rows ? left : block_rows;
            prefill_step *step = &l->steps[l->n_steps];
            prefill_block *block = &l->blocks[l->n_blocks++];
            if (n > room) n = room;
            block->row = in_step, block->rows = n;
            block->position = (uint32_t)s->position, block->table_row = s->table_row;
            for (uint32_t r = 0; r < n; r++) {
                token_row *row = &l->rows[l->n_rows++];
                const uint32_t position = (uint32_t)s->position + r;
                row->sequence = (int32_t)i, row->position = (int32_t)position;
                row->token = tokens[(size_t)i * line + position];
                row->page =
                    pages->row[(size_t)s->table_row * pages->row_pages + position / PAGE_TOKENS];
            }
            s->position += (int32_t)n, in_step += n;
            step->rows = in_step, step->blocks++;
            if (in_step < p->max_rows) continue;
            l->n_steps++, in_step = 0;
            l->steps[l->n_steps].first = l->n_rows;
            l->steps[l->n_steps].first_block = l->n_blocks;
        }
    }
    l->n_steps += in_step > 0;
    /* The blocks with the most keys first, so that workers end at about the same time. */
    for (uint32_t i = 0; i < l->n_steps; i++)
        qsort(l->blocks + l->steps[i].first_block, l->steps[i].blocks, sizeof *l->blocks,
              later_keys);
    return 0;
}

static int prefill_fail(char *error, const char *why)
{
    if (!error[0]) snprintf(error, ERROR_BYTES, "prompts: %.400s", why);
    return -1;
}

/* Makes plan, image and state, and the steps. Moves the positions of `b` to the last tokens of the prompts. */
static int prefill_prepare(prefill_run *p, device_memory *mem, const model *m, batch *b,
                           const int32_t *tokens, uint32_t line, const page_table *pages,
                           const fleet_topology *topology)
{
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_state_desc state = fleet_state_desc_default();
    prefill_layout l;
    fleet_status status = FLEET_OK;
    if (prefill_lay_out(&l, p, b, tokens, line, pages))
        prefill_fail(mem->error, "no memory is left");
    if (!mem->error[0]) {
        p->steps = l.n_steps;
        p->d.prefill = (const prefill_step *)memory_copy(mem, "prompts", l.steps,
                                                         (uint64_t)l.n_steps * sizeof *l.steps);
        p->d.prefill_rows = (const token_row *)memory_copy(mem, "prompts", l.rows,
                                                           (uint64_t)l.n_rows * sizeof *l.rows);
        p->d.prefill_blocks = (const prefill_block *)memory_copy(
            mem, "prompts", l.blocks, (uint64_t)l.n_blocks * sizeof *l.blocks);
    }
    free(l.rows);
    free(l.blocks);
    free(l.steps);
    desc.topology = *topology, desc.schedule = FLEET_SCHEDULE_STATIC;
    if (decoder_plan(mem, m, &p->d, prefill_graph, &desc, &p->tasks, &p->device_tasks, &p->plan))
        return -1;
    status = fleet_upload(&p->image, p->plan, NULL), p->image_made = !status;
    if (!status) status = fleet_state_create(&p->state, &p->image, &state, NULL);
    p->state_made = p->image_made && !status;
    return status ? prefill_fail(mem->error, fleet_status_text(status)) : 0;
}

/* Enqueues all steps. The launch that decodes follows in the same stream. */
static fleet_status prefill_launch(prefill_run *p)
{
    fleet_launch_desc d = fleet_launch_desc_default();
    if (!p->rows) return FLEET_OK;
    d.steps = p->steps, d.threads = PREFILL_THREADS, d.lds_bytes = PREFILL_LDS_BYTES;
    return fleet_launch(&p->state, &d, FLEET_KERNEL_OF(prefill), p->device_tasks);
}
/* Waits for all steps. */
static fleet_status prefill_wait(prefill_run *p)
{
    return p->rows ? fleet_state_wait(&p->state, NULL) : FLEET_OK;
}

static void prefill_free(prefill_run *p)
{
    if (p->state_made) fleet_state_free(&p->state);
    if (p->image_made) fleet_image_free(&p->image);
    fleet_plan_free(p->plan);
    free(p->tasks);
}
#else
/* Elsewhere the launch that decodes takes the prompts. */
static void prefill_buffers(prefill_run *p, device_memory *mem, const decoder *d, const model *m)
{
    FLEET_UNUSED(p), FLEET_UNUSED(mem), FLEET_UNUSED(d), FLEET_UNUSED(m);
}
static uint32_t prefill_rows_of(const model *m, uint32_t wanted, uint64_t tokens)
{
    FLEET_UNUSED(m), FLEET_UNUSED(wanted), FLEET_UNUSED(tokens);
    return 0;
}
static int prefill_prepare(prefill_run *p, device_memory *mem, const model *m, batch *b,
                           const int32_t *tokens, uint32_t line, const page_table *pages,
                           const fleet_topology *topology)
{
    FLEET_UNUSED(p), FLEET_UNUSED(mem), FLEET_UNUSED(m), FLEET_UNUSED(b), FLEET_UNUSED(tokens);
    FLEET_UNUSED(line), FLEET_UNUSED(pages), FLEET_UNUSED(topology);
    return 0;
}
static fleet_status prefill_launch(prefill_run *p)
{
    FLEET_UNUSED(p);
    return FLEET_OK;
}
static fleet_status prefill_wait(prefill_run *p)
{
    FLEET_UNUSED(p);
    return FLEET_OK;
}
static void prefill_free(prefill_run *p)
{
    FLEET_UNUSED(p);
}
#endif /* FLEET_CUDA */

#endif /* QWEN3_PREFILL_H */
