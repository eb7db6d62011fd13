/* tasks/linear.h: linear layers and their epilogues. */
#ifndef QWEN3_TASKS_LINEAR_H
#define QWEN3_TASKS_LINEAR_H

#include "ranks.h"
#include "residual.h"

FLEET_DEVICE float silu(float x)
{
    return fast_ratio(x, 1 + fast_exp(-x));
}

/* Epilogue: takes the sums of `tiles` tiles, from tile number `first` on, to their destination. */
FLEET_DEVICE void apply_epilogue(const fleet_ctx *ctx, const task_args *task, const operand *in,
                                 const linear_lds *l, uint32_t first, uint32_t tiles)
{
    const decoder *d = &task->d;
    const uint32_t rows = in->rows, column = first * TILE_N, half = TILE_N / 2,
                   reciprocal = l->reciprocal, row = tile_row_of(l), fours = TILE_N / 4;
    if (task->epilogue == EPILOGUE_ARGMAX) {
        argmax_columns(ctx, d, l, column,
                       d->vocab - column < tiles * TILE_N ? d->vocab - column : tiles * TILE_N,
                       rows);
    } else if (task->epilogue == EPILOGUE_SILU || task->epilogue == EPILOGUE_EXPERTS) {
        for (uint32_t i = ctx->thread; i < tiles * rows * fours; i += ctx->threads) {
            const uint32_t t = fast_div(i / fours, reciprocal), r = i / fours - t * rows,
                           c = (first + t) * half + i % fours * 4;
            const float *sum = l->sums + i * 4, scale = l->scale[row_of(in, r)];
            if (i % fours >= fours / 2) continue; /* these are ups */
            const vec4 gate = load_vec4(sum), up = load_vec4(sum + half);
            vec4 gated;
            for (uint32_t j = 0; j < 4; j++)
                gated.value[j] = silu(gate.value[j] * scale) * (up.value[j] * scale);
            if (c < task->columns)
                store_acts(task->acts + act_at(in->first + r, c, task->columns), task->acts_low,
                           gated);
        }
    } else if (task->epilogue == EPILOGUE_STORE) {
        for (uint32_t i = ctx->thread; i < tiles * rows * fours; i += ctx->threads) {
            const uint32_t t = fast_div(i / fours, reciprocal), r = i / fours - t * rows,
                           c = column + t * TILE_N + i % fours * 4;
            float *to = task->floats + (row + r) * task->columns + c;
            vec4 sum = load_vec4(l->sums + i * 4);
            for (uint32_t j = 0; j < 4; j++) sum.value[j] *= l->scale[row + r];
            if (task->columns % 4 == 0) {
                if (c < task->columns) store_vec4(to, sum);
            } else {
                for (uint32_t j = 0; j < 4; j++)
                    if (c + j < task->columns) to[j] = sum.value[j];
            }
        }
    } else {
        const residual from = residual_of(task, l, column, rows);
        store_residual(ctx, task, l, &from, column, tiles, rows);
    }
}

/* The operand of a layer whose rows are those of the step. */
FLEET_DEVICE operand step_operand(const task_args *task, uint32_t rows)
{
    operand in;
    in.x = task->x, in.low = task->x_low, in.list = NULL, in.wanted = NULL, in.first = 0;
    in.k = task->shape.k, in.rows = rows,
    in.panel_tiles = MAX_PANEL_TILES > 1 ? task->shape.tile_n / TILE_N : 1;
    operand_format(&in, task);
    return in;
}

/* The operand of a panel of experts: the rows of one expert. */
FLEET_DEVICE void expert_operand(const task_args *task, const expert_panel *p, operand *in)
{
    const decoder *d = &task->d;
    in->first = (uint32_t)d->first_place[p->index];
    in->rows = (uint32_t)d->first_place[p->index + 1] - in->first;
    in->list = d->place_row + in->first;
    in->panel_tiles = p->tiles;
}

/* Goes to the tile of M with this number, if it is another than the last one, and computes the scales of its rows. The
   caller's sums and scales have been used when all threads are here. */
FLEET_DEVICE void begin_row_tile(const fleet_ctx *ctx, const task_args *task, operand *in,
                                 linear_lds *l, uint32_t tile, uint32_t rows)
{
    const uint32_t first = tile * task->shape.tile_m, left = rows - first;
    if (in->rows && first == l->first_row) return;
    fleet_barrier(ctx);
    l->first_row = in->first = first;
    in->rows = left < task->shape.tile_m ? left : task->shape.tile_m;
    l->reciprocal = reciprocal_of(in->rows);
    if (task->epilogue != EPILOGUE_RESIDUAL) rms_scales(ctx, task, l, in->rows);
}

/* A linear layer: the RMS norm before it, the product, and its epilogue. All rows of the step are
   one tile of M, so that each weight is read once, by one worker; or they are several tiles, in sessions that ask for it
   (session_desc.tile_rows). `has_experts`, a constant: the layer may also be the
   gates and ups of experts (EPILOGUE_EXPERTS). */
FLEET_DEVICE fleet_status linear_tile(const fleet_ctx *ctx, const task_args *args,
                                      const uint32_t has_experts)
{
    weight_source weights = weights_open(ctx);
    const task_args *task = own_args(ctx, &weights, args);
    const decoder *d = &task->d;
    const uint32_t rows = row_count_of(task);
    const uint32_t of_experts = has_experts && task->epilogue == EPILOGUE_EXPERTS;
    const uint32_t row_tiles = of_experts ? 1 : row_tiles_of(task, rows);
    operand in = step_operand(task, rows);
    linear_lds l;
    panel_range range;
    fleet_status status = FLEET_OK, exchanged = FLEET_OK;
    if (rows == 0) return FLEET_OK;
    /* first, since the task waits for these loads */
    if (!of_experts) multiply_begin(&weights, &in);
    l = linear_lds_of(ctx, rows_reciprocal_of(task));
    range = of_experts ? expert_panels_of_worker(task, ctx, (uint32_t)*d->n_active)
                       : own_panels(ctx, task, row_tiles);
    if (row_tiles > 1)
        in.rows = 0; /* there is no tile yet */
    else if (task->epilogue != EPILOGUE_RESIDUAL)
        rms_scales(ctx, task, &l, rows);
    if (task->epilogue == EPILOGUE_ARGMAX) argmax_begin(ctx, d, &l, rows), in.wanted = l.chooses;
    for (uint32_t tile = range.first; tile < range.end; tile += range.step) {
        const uint32_t n = row_tiles > 1 ? tile / row_tiles : tile;
        const bf16 *from = panel_weights(task, n);
        uint32_t first = n * in.panel_tiles, left = task->shape.n / TILE_N - first;
        if (of_experts) {
            const expert_panel p = expert_panel_of(task, n);
            expert_operand(task, &p, &in);
            from = expert_tile(task, (uint32_t)d->active[p.index], p.first);
            first = p.first, left = p.tiles;
            l.reciprocal = reciprocal_of(in.rows);
            multiply_begin(&weights, &in);
        }
        if (row_tiles > 1) begin_row_tile(ctx, task, &in, &l, tile - n * row_tiles, rows);
        if (task->epilogue == EPILOGUE_RESIDUAL && rows <= PREFETCHED_ROWS) {
            if (tile != range.first)
                fleet_barrier(ctx); /* the last panel's epilogue has read the prefetched rows */
            prefetch_residual(ctx, task, &l, first * TILE_N, in.panel_tiles * TILE_N, rows);
        }
        weights_next(&weights,
                     !of_experts && tile + range.step < range.end
                         ? panel_weights(task, row_tiles > 1 ? (tile + range.step) / row_tiles
                                                             : tile + range.step)
                         : NULL);
        l.own_sums = task->epilogue != EPILOGUE_ARGMAX && !is_exchanged(task) &&
                     tile + range.step >= range.end;
        /* After a failure it goes on: the other waves wait at barriers. */
        status = multiply(ctx, &weights, from, &in, &l);
        /* The last panel may not be full. */
        if (MAX_PANEL_TILES == 1 || left > in.panel_tiles) left = in.panel_tiles;
        if (is_exchanged(task)) exchange_sums(ctx, task, &l, first, left, in.rows, &exchanged);
        apply_epilogue(ctx, task, &in, &l, first, left);
    }
    if (task->epilogue == EPILOGUE_ARGMAX) {
        fleet_barrier(ctx);
        argmax_end(ctx, d, &l, rows);
    }
    return status ? status : exchanged;
}
FLEET_TILE(linear, task_args)
{
    FLEET_UNUSED(at);
    return linear_tile(&ctx, args, 1);
}
FLEET_TILE(linear_dense, task_args)
{
    FLEET_UNUSED(at);
    return linear_tile(&ctx, args, 0);
}

#endif /* QWEN3_TASKS_LINEAR_H */
