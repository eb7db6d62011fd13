/* serving_wide.h: servers with long chunks or many requests (serving.h), whose steps have up to
   PREFILL_ROWS rows (NVIDIA, compute capability 9.0a, and AMD, there for models without experts;
   tasks/serve_wide.h has the tasks).

       embed -> [ gate -> qkv -> heads -> attend -> o -> add -> gate_up -> down -> add ] x layers
                                                            \> router -> route -> gather
                                                               -> expert_up -> expert_down
                                                               -> combine
             -> choose -> lm_head -> draw -> boundary

   There are tasks `add` if o or down is divided into parts, and no gate before the first layer. */
#ifndef QWEN3_SERVING_WIDE_H
#define QWEN3_SERVING_WIDE_H

#include "buffers.h"
#include "graph.h"
#if !defined(FLEET_CUDA)
#include "kernels.h"
#endif

#if defined(FLEET_CUDA)
FLEET_KERNEL(serve_wide, served_wide, FLEET_ANY_THREADS(PREFILL_THREADS))
{
    FLEET_STATIC_WORKER_LOOP(served_wide);
}
FLEET_KERNEL(serve_wide_experts, served_wide_experts, FLEET_ANY_THREADS(PREFILL_THREADS))
{
    FLEET_STATIC_WORKER_LOOP(served_wide_experts);
}
#define SERVE_WIDE_KERNEL FLEET_KERNEL_OF(serve_wide)
#define SERVE_WIDE_EXPERTS_KERNEL FLEET_KERNEL_OF(serve_wide_experts)
#else
#define SERVE_WIDE_KERNEL FLEET_KERNEL_OF(decode_wide)
#define SERVE_WIDE_EXPERTS_KERNEL SERVE_WIDE_KERNEL
#endif

#if !defined(FLEET_HOST)
#include "prefill_graph.h"

/* Where the chunk's rows begin. */
static uint32_t wide_chunk_row(uint32_t decode_rows)
{
    return padded(decode_rows, VECTOR);
}
/* Rows that choose a token, at most: of requests that decode, and of one whose prompt ends. 0: such
   a model has none of these servers. */
static uint32_t wide_decode_rows(const model *m)
{
    return m->has_prefill && m->config.heads / m->config.kv_heads <= PREFILL_QUERIES
               ? PREFILL_TILE_ROWS
               : 0;
}
/* Rows of a chunk, at most. */
static uint32_t wide_chunk_rows(const model *m, uint32_t decode_rows)
{
    return wide_decode_rows(m) ? PREFILL_ROWS - wide_chunk_row(decode_rows) : 0;
}

/* A step without rows. *adds: as prefill_divide_steps says; *sums: floats of a row's parts, at
   most. */
static prefill_step wide_first_step(const model *m, const decoder *d, uint32_t decode_rows,
                                    uint32_t chunk_rows, uint32_t *adds, uint64_t *sums)
{
    const uint32_t terms = d->two_terms ? 2 : 1;
    fleet_linear shapes[PREFILL_PRODUCTS];
    prefill_step step;
    memset(&step, 0, sizeof step);
    prefill_shapes(m, d, shapes);
    *adds = 0, *sums = 0;
    for (uint32_t k = 0; k < (d->experts ? PREFILL_PRODUCTS : PREFILL_ROUTER); k++) {
        const uint32_t is_expert = k == PREFILL_EXPERT_UP || k == PREFILL_EXPERT_DOWN;
        const epilogue end = prefill_end_of(k);
        const prefill_division by =
            k == PREFILL_HEAD ? head_division(d->hidden)
            : is_expert       ? divide_expert(&shapes[k], 1, d)
                              : served_divide(&shapes[k], end, d->chiplets * d->workers, terms);
        const uint64_t floats = (uint64_t)by.parts * shapes[k].n;
        step.division[k] = by;
        if (k < PREFILL_HEAD) step.columns[k] = shapes[k].n;
        *adds |= end == EPILOGUE_RESIDUAL && by.parts >= PREFILL_ADDED_PARTS;
        if (!is_expert && (end == EPILOGUE_STORE || end == EPILOGUE_RESIDUAL) && floats > *sums)
            *sums = floats;
    }
    step.chunk_row = wide_chunk_row(decode_rows), step.chunk_room = chunk_rows;
    step.head_row = padded(step.chunk_row + chunk_rows, PREFILL_TILE_ROWS);
    step.batches = served_batches(decode_rows);
    step.has_row_blocks = served_row_blocks(d, decode_rows);
    return step;
}

/* In place of the activations of a step of MAX_ROWS rows. */
static void wide_buffers(decoder *d, device_memory *mem, const model *m, uint32_t decode_rows,
                         uint32_t chunk_rows)
{
    uint64_t sums, q = d->heads * d->head_dim;
    const prefill_step step =
        wide_first_step(m, d, decode_rows, chunk_rows, &d->prefill_adds, &sums);
    const uint64_t rows = step.head_row, all = rows + PREFILL_TILE_ROWS;
    const uint64_t terms = d->two_terms ? 2 : 1,
                   places = most_places(d, step.chunk_row + chunk_rows);
    const uint64_t dense = rows * m->ffn * terms, sparse = sorted_acts(places, m->expert_ffn);
    token_row *row = (token_row *)calloc(all, sizeof *row);
    for (uint32_t n = 0; n < PREFILL_TILE_ROWS && row; n++) row[rows + n].sequence = (int32_t)n;
    if (!row) snprintf(mem->error, ERROR_BYTES, "memory: none left");
    d->h = (float *)memory_get(mem, "activations", rows * d->hidden * sizeof(float));
    d->x = (act_t *)memory_get(mem, "activations", all * d->hidden * terms * sizeof(act_t));
    d->squares =
        (float *)memory_zeros(mem, "activations", all * squares_of(d->hidden) * sizeof(float));
    d->qkv = (float *)memory_get(mem, "activations", rows * sums * sizeof(float));
    d->attended = (act_t *)memory_get(mem, "activations", rows * q * terms * sizeof(act_t));
    d->gated =
        (act_t *)memory_get(mem, "activations", (dense > sparse ? dense : sparse) * sizeof(act_t));
    if (places) sorted_buffers(d, mem, places, "activations");
    d->b = (batch *)memory_zeros(mem, "batch", (uint64_t)step.batches * sizeof(batch));
    d->prefill = (prefill_step *)memory_copy(mem, "batch", &step, sizeof step);
    if (row) d->prefill_rows = (token_row *)memory_copy(mem, "batch", row, all * sizeof *row);
    d->prefill_blocks =
        (prefill_block *)memory_zeros(mem, "batch", SERVED_BLOCKS * sizeof(prefill_block));
    d->prefill_stays = 1;
    wide_best_buffers(d, mem);
    free(row);
}

/* Makes the step one without rows again. */
static fleet_status wide_begin_again(const model *m, const decoder *d, uint32_t decode_rows,
                                     uint32_t chunk_rows)
{
    uint32_t adds;
    uint64_t sums;
    const prefill_step step = wide_first_step(m, d, decode_rows, chunk_rows, &adds, &sums);
    return fleet_to_device(d->prefill, &step, sizeof step, NULL);
}

static fleet_graph *served_wide_graph(const model *m, const decoder *d, task_args *tasks)
{
    const layout head = layout_of(m, bf16_format(), m->head_columns, d->hidden);
    task_args *task;
    chain c;
    memset(&c, 0, sizeof c);
    c.m = m, c.d = d, c.tasks = tasks, c.g = fleet_graph_create(NULL);
    if (!c.g) return NULL;
    append_prefill_layers(&c);
    append_task(&c, "choose", NO_LAYER, SERVED_WIDE(choose_wide), FLEET_LEVEL_DEVICE);
    task = append_product(&c, "lm_head", NO_LAYER, SERVED_WIDE(head_wide), m->head, &head, d->x,
                          MAX_ROWS);
    task->epilogue = EPILOGUE_ARGMAX, task->product = PREFILL_HEAD;
    if (d->sampling) append_task(&c, "draw", NO_LAYER, SERVED_WIDE(draw_wide), FLEET_LEVEL_DEVICE);
    append_control(&c, "boundary", NO_LAYER, SERVED_WIDE(boundary_wide));
    fleet_symbol_writer(c.g, c.live, c.last);
    load_weights_ahead(&c);
    return c.g;
}

/* Launches with what `serve` says, but for threads and LDS. */
static fleet_status served_wide_launch(const model *m, fleet_state *state,
                                       const fleet_launch_desc *serve,
                                       const task_args *device_tasks)
{
    fleet_launch_desc d = *serve;
    d.threads = PREFILL_THREADS, d.lds_bytes = PREFILL_LDS_BYTES, d.pipeline_bytes = 0;
    return fleet_launch(
        state, &d, m->config.experts ? SERVE_WIDE_EXPERTS_KERNEL : SERVE_WIDE_KERNEL, device_tasks);
}
#else
static uint32_t wide_decode_rows(const model *m)
{
    FLEET_UNUSED(m);
    return 0;
}
static uint32_t wide_chunk_rows(const model *m, uint32_t decode_rows)
{
    FLEET_UNUSED(m), FLEET_UNUSED(decode_rows);
    return 0;
}
/* Never called. */
static void wide_buffers(decoder *d, device_memory *mem, const model *m, uint32_t decode_rows,
                         uint32_t chunk_rows)
{
    FLEET_UNUSED(d), FLEET_UNUSED(mem), FLEET_UNUSED(m), FLEET_UNUSED(decode_rows);
    FLEET_UNUSED(chunk_rows);
}
static fleet_status wide_begin_again(const model *m, const decoder *d, uint32_t decode_rows,
                                     uint32_t chunk_rows)
{
    FLEET_UNUSED(m), FLEET_UNUSED(d), FLEET_UNUSED(decode_rows), FLEET_UNUSED(chunk_rows);
    return FLEET_ERROR_UNSUPPORTED;
}
static fleet_graph *served_wide_graph(const model *m, const decoder *d, task_args *tasks)
{
    FLEET_UNUSED(m), FLEET_UNUSED(d), FLEET_UNUSED(tasks);
    return NULL;
}
static fleet_status served_wide_launch(const model *m, fleet_state *state,
                                       const fleet_launch_desc *serve,
                                       const task_args *device_tasks)
{
    FLEET_UNUSED(m), FLEET_UNUSED(state), FLEET_UNUSED(serve), FLEET_UNUSED(device_tasks);
    return FLEET_ERROR_UNSUPPORTED;
}
#endif /* FLEET_HOST */

#endif /* QWEN3_SERVING_WIDE_H */
