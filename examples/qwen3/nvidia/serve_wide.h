/* nvidia/serve_wide.h: attention and the head of servers with long chunks (tasks/serve_wide.h), and
   the tasks of those whose models have experts: as prefill_experts.h has them for prompts. */
#ifndef QWEN3_NVIDIA_SERVE_WIDE_H
#define QWEN3_NVIDIA_SERVE_WIDE_H

#include "prefill_experts.h"
#include "wide.h"

#if HAS_PREFILL
/* The widths of tiles of the router and of experts, in a step of so many rows. */
FLEET_DEVICE void served_expert_widths(const decoder *d, prefill_step *step, uint32_t rows)
{
    prefill_division *by = step->division;
    const uint32_t ffn = served_expert_ffn(d);
    fleet_linear up, down;
    memset(&up, 0, sizeof up);
    memset(&down, 0, sizeof down);
    up.n = ceil_div(2 * ffn, TILE_N) * TILE_N, up.k = d->hidden;
    down.n = ceil_div(d->hidden, TILE_N) * TILE_N, down.k = ffn;
    by[PREFILL_ROUTER].width =
        prefill_width(ceil_div(d->experts, TILE_N) * TILE_N, EPILOGUE_STORE, rows,
                      d->chiplets * d->workers, by[PREFILL_ROUTER], TERMS);
    by[PREFILL_EXPERT_UP] = prefill_divide_expert(&up, rows, d->top_k, d->experts);
    by[PREFILL_EXPERT_DOWN] = prefill_divide_expert(&down, rows, d->top_k, d->experts);
}
#endif

#include "../tasks/serve_wide.h"

/* The head's tiles have the most columns, since it has many; and no parts. */
#define HEAD_COLUMNS 192u
FLEET_HOST_DEVICE prefill_division head_division(uint32_t k)
{
    return prefill_parts(k, 1, HEAD_COLUMNS);
}
/* In a server that decodes more rows than so many, a warp attends for each of them and KV head; for
   fewer rows all warps of a worker together are faster. The choice depends on the server and not on
   the rows of a step, and so do a row's bits. */
#define LEAST_ROW_BLOCKS 16u
FLEET_HOST_DEVICE uint32_t served_row_blocks(const decoder *d, uint32_t decode_rows)
{
    return decode_rows > LEAST_ROW_BLOCKS && d->group <= FRAGMENT_ROWS;
}

#if HAS_PREFILL

FLEET_DEVICE void attend_groups(const fleet_ctx *ctx, const task_args *args, const uint32_t terms)
{
    const prefill_step *step = args->d.prefill;
    const uint32_t row_blocks = step->row_blocks, blocks = step->blocks;
    if (row_blocks) {
        attend_rows(ctx, prefill_args(ctx, args), row_blocks, terms);
        fleet_barrier(ctx); /* the barriers in LDS have ended, and may be made anew */
    }
    if (blocks > row_blocks) attend_blocks_of(ctx, args, terms);
}
FLEET_TILE(attend_served, task_args)
{
    FLEET_UNUSED(at);
    attend_groups(&ctx, args, 1);
    return FLEET_OK;
}

FLEET_TILE(head_wide, task_args)
{
    const task_args *task = prefill_args(&ctx, args);
    const prefill_step *step = task->d.prefill;
    const uint32_t begin = step->head_row, end = begin + step->choosing;
    const prefill_items t = prefill_items_of(task, &step->division[PREFILL_HEAD], begin, end);
    FLEET_UNUSED(at);
    if (end - begin <= PREFILL_TILE_ROWS / 2)
        prefill_product(&ctx, task, &t, end, 1, HEAD_COLUMNS, SERVED_HEAD_PRODUCT);
    else
        prefill_product(&ctx, task, &t, end, 2, HEAD_COLUMNS, SERVED_HEAD_PRODUCT);
    return FLEET_OK;
}

/* ---- models with experts: two terms ---- */

FLEET_TILE(embed_wide_terms, task_args)
{
    FLEET_UNUSED(at);
    embed_tile(&ctx, args, TERMS);
    return FLEET_OK;
}
FLEET_TILE(served_linear_terms, task_args)
{
    FLEET_UNUSED(at);
    return term_products(&ctx, args, SERVED_LAYER_PRODUCT);
}
FLEET_TILE(attend_served_terms, task_args)
{
    FLEET_UNUSED(at);
    attend_groups(&ctx, args, TERMS);
    return FLEET_OK;
}
FLEET_TILE(choose_wide_terms, task_args)
{
    FLEET_UNUSED(at);
    choose_rows(&ctx, args, TERMS);
    return FLEET_OK;
}
/* A lane has the same row in all of the worker's tiles (keep_best), so the rows of each tile are
   multiplied by all columns before those of the next one. */
FLEET_TILE(head_wide_terms, task_args)
{
    const task_args *task = prefill_args(&ctx, args);
    const prefill_step *step = task->d.prefill;
    const uint32_t width = prefill_columns(TERMS), head_row = step->head_row;
    term_items *t = term_items_in(&ctx);
    FLEET_UNUSED(at);
    for (uint32_t first = 0; first < step->choosing; first += TERM_ROWS) {
        const uint32_t left = step->choosing - first;
        if (ctx.thread == 0) {
            t->by.begin = head_row + first, t->by.across = t->by.parts = 1;
            t->by.part_k = task->shape.k, t->by.items = ceil_div(task->shape.n, width);
            t->groups = 0, t->x_bytes = TERM_ROWS * STAGE_ROW_BYTES;
        }
        fleet_barrier(&ctx); /* the items are in LDS */
        term_product(&ctx, task, t, head_row + first + (left < TERM_ROWS ? left : TERM_ROWS), TERMS,
                     width, SERVED_HEAD_PRODUCT);
    }
    return FLEET_OK;
}
FLEET_TILE(served_route, task_args)
{
    FLEET_UNUSED(at);
    route_rows(&ctx, args, 1);
    return FLEET_OK;
}
FLEET_TILE(served_gather, task_args)
{
    FLEET_UNUSED(at);
    gather_rows(&ctx, args, 1);
    return FLEET_OK;
}
FLEET_TILE(served_combine, task_args)
{
    FLEET_UNUSED(at);
    combine_rows(&ctx, args, 1);
    return FLEET_OK;
}

OUTLINED fleet_status suspend_rows_terms(const fleet_ctx *ctx, const decoder *d, uint32_t layer)
{
    return suspend_tile(ctx, d, layer, TERMS);
}
FLEET_TILE(gate_wide_terms, task_args)
{
    FLEET_UNUSED(at);
    if (!gate_opens(&ctx, &args->d)) return FLEET_OK;
    return suspend_rows_terms(&ctx, &args->d, args->layer);
}
OUTLINED fleet_status compose_tile_terms(const fleet_ctx *ctx, const decoder *d)
{
    return compose_rows(ctx, d, TERMS);
}
FLEET_TILE(boundary_wide_terms, task_args)
{
    FLEET_UNUSED(at);
    return compose_tile_terms(&ctx, &args->d);
}

#else
/* Never run (model.has_prefill). */
NO_PREFILL(attend_served)
NO_PREFILL(head_wide)
NO_PREFILL(embed_wide_terms)
NO_PREFILL(served_linear_terms)
NO_PREFILL(attend_served_terms)
NO_PREFILL(choose_wide_terms)
NO_PREFILL(head_wide_terms)
NO_PREFILL(gate_wide_terms)
NO_PREFILL(boundary_wide_terms)
NO_PREFILL(served_route)
NO_PREFILL(served_gather)
NO_PREFILL(served_combine)
#endif

#endif /* QWEN3_NVIDIA_SERVE_WIDE_H */
