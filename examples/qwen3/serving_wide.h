/* serving_wide.h: servers with long chunks (serving.h), whose steps have up to PREFILL_TILE_ROWS rows (NVIDIA, compute capability
   9.0a, models without experts; nvidia/serve_wide.h has the tasks).

       embed -> [ gate -> qkv -> heads -> attend -> o -> add -> gate_up -> down -> add ] x layers -> lm_head -> draw -> boundary

   There are tasks `add` if o or down is divided into parts, and no gate before the first layer. */
#ifndef QWEN3_SERVING_WIDE_H
#define QWEN3_SERVING_WIDE_H

#include "buffers.h"
#include "graph.h"

#if defined(FLEET_CUDA)
#include "prefill_graph.h"

FLEET_KERNEL(serve_wide, served_wide, PREFILL_THREADS)
{
    FLEET_STATIC_WORKER_LOOP(served_wide);
}

/* Where the chunk's rows begin. */
static uint32_t wide_chunk_row(uint32_t decode_rows)
{
    return padded(decode_rows, VECTOR);
}
/* Rows of a chunk, at most; 0: such a model has none of these servers. */
static uint32_t wide_chunk_rows(const model *m, uint32_t decode_rows)
{
    if (!m->has_prefill || m->config.experts ||
        m->config.heads / m->config.kv_heads > PREFILL_QUERIES)
        return 0;
    return PREFILL_TILE_ROWS - wide_chunk_row(decode_rows);
}
/* Rows of chunks that may be parked: one of each class. */
static uint32_t wide_parked_rows(void)
{
    return 2 * PREFILL_TILE_ROWS;
}

/* A step without rows; all have the same products. */
static prefill_step wide_first_step(const model *m, const decoder *d, uint32_t decode_rows,
                                    uint32_t *adds)
{
    prefill_step step;
    memset(&step, 0, sizeof step);
    step.rows = decode_rows;
    prefill_divide_steps(m, d, &step, 1, adds);
    step.division[PREFILL_HEAD] = head_division(d->hidden);
    step.rows = 0, step.chunk_row = wide_chunk_row(decode_rows);
    return step;
}

/* In place of the activations of a step of MAX_ROWS rows. */
static void wide_buffers(decoder *d, device_memory *mem, const model *m, uint32_t decode_rows)
{
    const uint64_t rows = PREFILL_TILE_ROWS, q = d->heads * d->head_dim,
                   columns = q + 2 * d->kv_heads * d->head_dim;
    const prefill_step step = wide_first_step(m, d, decode_rows, &d->prefill_adds);
    d->h = (float *)memory_get(mem, "activations", rows * d->hidden * sizeof(float));
    d->x = (act_t *)memory_get(mem, "activations", rows * d->hidden * sizeof(act_t));
    d->squares =
        (float *)memory_zeros(mem, "activations", rows * squares_of(d->hidden) * sizeof(float));
    d->qkv = (float *)memory_get(mem, "activations",
                                 (rows * columns + most_parts(d->chiplets * d->workers)) *
                                     sizeof(float));
    d->attended = (act_t *)memory_get(mem, "activations", rows * q * sizeof(act_t));
    d->gated = (act_t *)memory_get(mem, "activations", rows * m->ffn * sizeof(act_t));
    d->prefill = (prefill_step *)memory_copy(mem, "batch", &step, sizeof step);
    d->prefill_rows = (token_row *)memory_zeros(mem, "batch", rows * sizeof(token_row));
    d->prefill_blocks =
        (prefill_block *)memory_zeros(mem, "batch", SERVED_BLOCKS * sizeof(prefill_block));
    d->prefill_stays = 1;
    wide_best_buffers(d, mem);
}

/* Makes the step one without rows again. */
static fleet_status wide_begin_again(const model *m, const decoder *d, uint32_t decode_rows)
{
    uint32_t adds;
    const prefill_step step = wide_first_step(m, d, decode_rows, &adds);
    return fleet_to_device(d->prefill, &step, sizeof step, NULL);
}

static fleet_graph *served_wide_graph(const model *m, const decoder *d, task_args *tasks)
{
    const layout head = layout_of(m, m->head_columns, d->hidden);
    task_args *task;
    chain c;
    memset(&c, 0, sizeof c);
    c.m = m, c.d = d, c.tasks = tasks, c.g = fleet_graph_create(NULL);
    if (!c.g) return NULL;
    append_prefill_layers(&c);
    task = append_product(&c, "lm_head", NO_LAYER, served_wide_head_wide, m->head, &head, d->x,
                          MAX_ROWS);
    task->epilogue = EPILOGUE_ARGMAX, task->product = PREFILL_HEAD;
    if (d->sampling) append_task(&c, "draw", NO_LAYER, served_wide_draw_wide, FLEET_LEVEL_DEVICE);
    append_control(&c, "boundary", NO_LAYER, served_wide_boundary_wide);
    fleet_symbol_writer(c.g, c.live, c.last);
    return c.g;
}

/* Launches with what `serve` says, but for threads and LDS. */
static fleet_status served_wide_launch(fleet_state *state, const fleet_launch_desc *serve,
                                       const task_args *device_tasks)
{
    fleet_launch_desc d = *serve;
    d.threads = PREFILL_THREADS, d.lds_bytes = PREFILL_LDS_BYTES, d.pipeline_bytes = 0;
    return fleet_launch(state, &d, FLEET_KERNEL_OF(serve_wide), device_tasks);
}
#else
static uint32_t wide_chunk_rows(const model *m, uint32_t decode_rows)
{
    FLEET_UNUSED(m), FLEET_UNUSED(decode_rows);
    return 0;
}
/* Never called. */
static uint32_t wide_parked_rows(void)
{
    return 0;
}
static void wide_buffers(decoder *d, device_memory *mem, const model *m, uint32_t decode_rows)
{
    FLEET_UNUSED(d), FLEET_UNUSED(mem), FLEET_UNUSED(m), FLEET_UNUSED(decode_rows);
}
static fleet_status wide_begin_again(const model *m, const decoder *d, uint32_t decode_rows)
{
    FLEET_UNUSED(m), FLEET_UNUSED(d), FLEET_UNUSED(decode_rows);
    return FLEET_ERROR_UNSUPPORTED;
}
static fleet_graph *served_wide_graph(const model *m, const decoder *d, task_args *tasks)
{
    FLEET_UNUSED(m), FLEET_UNUSED(d), FLEET_UNUSED(tasks);
    return NULL;
}
static fleet_status served_wide_launch(fleet_state *state, const fleet_launch_desc *serve,
                                       const task_args *device_tasks)
{
    FLEET_UNUSED(state), FLEET_UNUSED(serve), FLEET_UNUSED(device_tasks);
    return FLEET_ERROR_UNSUPPORTED;
}
#endif /* FLEET_CUDA */

#endif /* QWEN3_SERVING_WIDE_H */
