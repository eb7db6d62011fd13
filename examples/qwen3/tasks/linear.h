/* tasks/linear.h: linear layers and their epilogues. */
#ifndef QWEN3_TASKS_LINEAR_H
#define QWEN3_TASKS_LINEAR_H

#include "residual.h"
#include "sample.h"

FLEET_DEVICE float silu(float x)
{
    return fast_ratio(x, 1 + fast_exp(-x));
}

/* Epilogue: takes the sums of `tiles` tiles, from tile number `first` on, to their destination. */
FLEET_DEVICE void apply_epilogue(const fleet_ctx *ctx, const task_args *task, const linear_lds *l,
                                 uint32_t first, uint32_t tiles, uint32_t rows)
{
    const decoder *d = &task->d;
    const uint32_t column = first * TILE_N, half = TILE_N / 2, reciprocal = l->reciprocal;
    if (task->epilogue == EPILOGUE_ARGMAX) {
        argmax_columns(ctx, d, l, column,
                       d->vocab - column < tiles * TILE_N ? d->vocab - column : tiles * TILE_N,
                       rows);
    } else if (task->epilogue == EPILOGUE_SILU) {
        const uint32_t fours = half / 4;
        for (uint32_t i = ctx->thread; i < tiles * rows * fours; i += ctx->threads) {
            const uint32_t t = fast_div(i / fours, reciprocal), r = i / fours - t * rows,
                           c = (first + t) * half + i % fours * 4;
            const float *sum = l->sums + i / fours * TILE_N + i % fours * 4, scale = l->scale[r];
            const vec4 gate = load_vec4(sum), up = load_vec4(sum + half);
            vec4 gated;
            for (uint32_t j = 0; j < 4; j++)
                gated.value[j] = silu(gate.value[j] * scale) * (up.value[j] * scale);
            if (c < task->columns)
                store_acts(task->acts + act_at(r, c, task->columns), task->acts_low, gated);
        }
    } else if (task->epilogue == EPILOGUE_STORE) {
        for (uint32_t i = ctx->thread; i < tiles * rows * TILE_N; i += ctx->threads) {
            const uint32_t t = fast_div(i / TILE_N, reciprocal), r = i / TILE_N - t * rows,
                           c = column + t * TILE_N + i % TILE_N;
            if (c < task->columns) task->floats[r * task->columns + c] = l->sums[i] * l->scale[r];
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
    in.x = task->x, in.low = task->x_low, in.list = NULL, in.first = 0;
    in.k = task->shape.k, in.rows = rows,
    in.panel_tiles = MAX_PANEL_TILES > 1 ? task->shape.tile_n / TILE_N : 1;
    return in;
}

/* A linear layer: the RMS norm before it, the product, and its epilogue. All rows of the step are
   one tile of M, so that each weight is read once, by one worker. */
FLEET_TILE(linear, task_args)
{
    weight_source weights = weights_open(&ctx);
    const task_args *task = own_args(&ctx, &weights, args);
    const decoder *d = &task->d;
    const uint32_t rows = row_count_of(task);
    const operand in = step_operand(task, rows);
    linear_lds l;
    panel_range range;
    fleet_status status = FLEET_OK;
    FLEET_UNUSED(at);
    if (rows == 0) return FLEET_OK;
    multiply_begin(&weights, &in); /* first, since the task waits for these loads */
    l = linear_lds_of(&ctx, rows), range = panels_of_worker(task, &ctx);
    if (task->epilogue != EPILOGUE_RESIDUAL) rms_scales(&ctx, task, &l, rows); /* overwrites sums */
    if (task->epilogue == EPILOGUE_ARGMAX) argmax_begin(&ctx, d, &l, rows);
    for (uint32_t n = range.first; n < range.end; n += range.step) {
        /* The last panel may not be full. */
        const uint32_t panel_tiles = in.panel_tiles,
                       left = task->shape.n / TILE_N - n * panel_tiles;
        fleet_status s;
        if (task->epilogue == EPILOGUE_RESIDUAL && rows <= PREFETCHED_ROWS) {
            fleet_barrier(&ctx); /* the epilogue of the last panel has read the prefetched rows */
            prefetch_residual(&ctx, task, &l, n * panel_tiles * TILE_N, panel_tiles * TILE_N, rows);
        }
        s = multiply(&ctx, &weights, panel_weights(task, n), &in, &l);
        if (s) status = s; /* go on: the other waves wait at barriers */
        apply_epilogue(&ctx, task, &l, n * panel_tiles,
                       MAX_PANEL_TILES > 1 && left < panel_tiles ? left : panel_tiles, rows);
    }
    if (task->epilogue == EPILOGUE_ARGMAX) {
        fleet_barrier(&ctx);
        argmax_end(&ctx, d, &l, rows);
    }
    return status;
}

#endif /* QWEN3_TASKS_LINEAR_H */
