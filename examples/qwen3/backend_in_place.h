/* backend_in_place.h: what the AMD and the CPU backend share: their products read weights directly from memory, one tile at
   a time, without a weight pipeline. */
#ifndef QWEN3_BACKEND_IN_PLACE_H
#define QWEN3_BACKEND_IN_PLACE_H

#include "tasks/operands.h"

#define K_ALIGN BLOCK_K
#define STAGE_K BLOCK_K
#define SPLIT_K_QUADS 0u
#define OUTLINED FLEET_DEVICE

/* Large batches have no products of their own. */
#define SMALL_M_ROWS MAX_ROWS
#define SAME_ORDER_ROWS MAX_ROWS
#define LARGE_M_PANEL_TILES MAX_PANEL_TILES
#define WGMMA_K STAGE_K
#define HAS_LARGE_M 0u

FLEET_DEVICE uint32_t opaque(uint32_t x)
{
    return x;
}
#define PREFETCHED_ROWS 0u
FLEET_DEVICE void prefetch_residual(const fleet_ctx *ctx, const task_args *task,
                                    const linear_lds *l, uint32_t column, uint32_t columns,
                                    uint32_t rows)
{
    FLEET_UNUSED(ctx), FLEET_UNUSED(task), FLEET_UNUSED(l);
    FLEET_UNUSED(column), FLEET_UNUSED(columns), FLEET_UNUSED(rows);
}
#define LDS_BYTES (LINEAR_LDS_BYTES + MAX_ROWS * TILE_N * 4) /* see multiply_experts */
FLEET_DEVICE uint32_t row_count_of(const task_args *task)
{
    return task->d.b->rows;
}
FLEET_DEVICE uint32_t rows_reciprocal_of(const task_args *task)
{
    return reciprocal_of(row_count_of(task));
}
FLEET_DEVICE char *task_lds(const fleet_ctx *ctx)
{
    return (char *)ctx->lds;
}

#define SUM_FLOATS (MAX_ROWS * MAX_PANEL_TILES * TILE_N)

typedef struct weight_source weight_source; /* a type of the backend */
/* The backend's `multiply`. */
typedef fleet_status multiply_function(const fleet_ctx *ctx, weight_source *source,
                                       const bf16 *weights, const operand *in, const linear_lds *l);
/* multiply_experts (tasks/backend.h): the experts one after the other. Each row's sum is in l->extra. */
FLEET_DEVICE fleet_status multiply_each_expert(const fleet_ctx *ctx, weight_source *source,
                                               const task_args *task, uint32_t n, linear_lds *l,
                                               uint32_t rows, multiply_function *multiply)
{
    const decoder *d = &task->d;
    const uint32_t active = (uint32_t)*d->n_active;
    float *total = (float *)l->extra;
    fleet_status status = FLEET_OK;
    operand in;
    in.x = task->x, in.low = task->x_low, in.list = in.wanted = NULL, in.k = task->shape.k,
    in.panel_tiles = 1;
    operand_format(&in, task);
    for (uint32_t i = ctx->thread; i < rows * TILE_N; i += ctx->threads) total[i] = 0;
    for (uint32_t e = 0; e < active; e++) {
        in.first = (uint32_t)d->first_place[e],
        in.rows = (uint32_t)d->first_place[e + 1] - in.first;
        status = multiply(ctx, source, expert_tile(task, (uint32_t)d->active[e], n), &in, l);
        /* The barriers of the next product order these sums before those of the next expert. */
        for (uint32_t i = ctx->thread; i < in.rows * TILE_N; i += ctx->threads) {
            const uint32_t place = in.first + i / TILE_N;
            total[(uint32_t)d->place_row[place] * TILE_N + i % TILE_N] +=
                d->place_weight[place] * l->sums[i];
        }
    }
    fleet_barrier(ctx);
    l->sums = total;
    return status;
}

FLEET_DEVICE vec4 load_vec4(const float *from)
{
    vec4 values;
    memcpy(&values, from, sizeof values);
    return values;
}
FLEET_DEVICE void store_vec4(float *to, vec4 values)
{
    memcpy(to, &values, sizeof values);
}
FLEET_DEVICE void store_act4(act_t *to, const act_t *values)
{
    memcpy(to, values, 4 * sizeof *values);
}

/* Reads l->sums, [tiles][rows][TILE_N], which other threads may have written: hence the barrier. */
FLEET_DEVICE void store_squares(const fleet_ctx *ctx, const decoder *d, const linear_lds *l,
                                uint32_t column, uint32_t tiles, uint32_t rows)
{
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; i < tiles * rows; i += ctx->threads) {
        const uint32_t t = fast_div(i, l->reciprocal), r = tile_row_of(l) + i - t * rows;
        const float *sum = l->sums + i * TILE_N;
        float squares = 0;
        for (uint32_t c = 0; c < TILE_N; c++) squares += sum[c] * sum[c];
        d->squares[r * (d->hidden / TILE_N) + column / TILE_N + t] = squares;
    }
}

/* Sums, row max and denominator. */
FLEET_HOST_DEVICE uint32_t kv_partial_size(const decoder *d)
{
    return d->head_dim + 2;
}

#endif /* QWEN3_BACKEND_IN_PLACE_H */
