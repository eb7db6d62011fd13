/* tasks/operands.h: types and small functions that tasks and backends share. */
#ifndef QWEN3_TASKS_OPERANDS_H
#define QWEN3_TASKS_OPERANDS_H

#include "../decoder.h"

/* The activations of a product, and the width of its panel. Row i is row list[i] of x, or first + i
   without a list; its result is row first + i. With a list, the panel's tiles are packed one by one. */
typedef struct operand {
    const act_t *x;
    const int32_t *list;
    const int32_t *wanted; /* by row of x; 0: its sums may be left out; null: all are wanted */
    uint32_t first;
    uint32_t k;   /* columns of x */
    uint32_t low; /* offset of the low bf16 term from the high one; 0: there is one term */
    uint32_t rows;
    uint32_t panel_tiles; /* tiles of the panel */
#if HAS_PACKED_CODES
    weight_format format;
#endif
} operand;

/* Says what the weights of the task's products are. */
FLEET_DEVICE void operand_format(operand *in, const task_args *task)
{
#if HAS_PACKED_CODES
    in->format = task->format;
#else
    FLEET_UNUSED(in), FLEET_UNUSED(task);
#endif
}

FLEET_DEVICE uint32_t row_of(const operand *in, uint32_t i)
{
    return in->list ? (uint32_t)in->list[i] : in->first + i;
}

/* The tag of flagged data that workers of one task exchange (edges 22 and 35). No two tasks and steps have the same tag
   until 2^31 tasks later, so that nothing else orders the data. Tags are odd: cleared memory has none. */
FLEET_DEVICE uint32_t task_tag(const fleet_ctx *ctx, const task_args *task)
{
    return (ctx->epoch * task->step_tasks + task->number) * 2 + 1;
}

/* The LDS of tasks that multiply. */
typedef struct linear_lds {
    float *partials; /* [PARTIAL_FLOATS]: partial sums of the waves */
    float *sums;     /* [SUM_FLOATS]: of a panel, [tiles][rows][TILE_N] */
    float *scale;    /* [MAX_ROWS]: 1 / root mean square */
    float *best;     /* [MAX_ROWS][ARGMAX_LANES]: largest logit so far of each lane's columns */
    int32_t *best_token, *chooses; /* likewise; [MAX_ROWS]: 1: the row chooses a token */
    void *extra;                   /* what follows, for the backend's own use */
    /* [rows + 1][prefetched_stride], if there are at most prefetched_rows rows: see residual_of */
    float *prefetched;
    uint32_t prefetched_rows, prefetched_stride;
    uint32_t first_row;  /* of the tile: see tile_row_of */
    uint32_t reciprocal; /* of its row count, for fast_div */
    /* 1: multiply may leave out the barrier after it has stored the sums four at a time, thread i those from 4 i on: the
       epilogue's thread i reads those of the same tile and row only, and the worker has no further panel */
    uint32_t own_sums;
} linear_lds;
#define ARGMAX_LANES (THREADS / MAX_ROWS)
#define LINEAR_LDS_BYTES ((PARTIAL_FLOATS + SUM_FLOATS + MAX_ROWS * (2 + 2 * ARGMAX_LANES)) * 4)

FLEET_DEVICE const bf16 *panel_weights(const task_args *task, uint32_t n)
{
    return task->weights + (size_t)n * (task->panel_bytes / 2);
}

/* The weights of an expert's tile: experts are packed one after the other, tile by tile. */
FLEET_DEVICE const bf16 *expert_tile(const task_args *task, uint32_t expert, uint32_t tile)
{
    return panel_weights(task, expert * (task->shape.n / TILE_N) + tile);
}

/* A panel of an expert's gates and ups. Tiles are packed one by one, so that a panel may have any number of them. Panels
   are numbered expert by expert. */
typedef struct expert_panel {
    uint32_t index; /* of the expert among the active ones */
    uint32_t first, tiles;
} expert_panel;
FLEET_DEVICE uint32_t expert_panels(const task_args *task)
{
    return ceil_div(task->shape.n, task->shape.tile_n);
}
FLEET_DEVICE expert_panel expert_panel_of(const task_args *task, uint32_t i)
{
    const uint32_t panels = expert_panels(task), most = task->shape.tile_n / TILE_N,
                   all = task->shape.n / TILE_N;
    expert_panel p;
    p.index = i / panels, p.first = i % panels * most;
    p.tiles = most > 1 && all - p.first > 1 ? 2 : 1; /* a constant in each case */
    return p;
}

/* The first row of the tile at hand, 0 if all rows of a step are one tile of M. */
FLEET_DEVICE uint32_t tile_row_of(const linear_lds *l)
{
    return HAS_ROW_TILES ? l->first_row : 0;
}
/* Tiles of M of a step with so many rows. */
FLEET_DEVICE uint32_t row_tiles_of(const task_args *task, uint32_t rows)
{
    return !HAS_ROW_TILES || rows <= task->shape.tile_m ? 1 : ceil_div(rows, task->shape.tile_m);
}

/* What the sums of a panel are added to, and the weights of the next norm: in memory, or in LDS if
   the backend has prefetched them (prefetch_residual). */
typedef struct residual {
    const float *h, *norm;
    uint32_t step; /* stride between rows of h */
} residual;
FLEET_DEVICE residual residual_of(const task_args *task, const linear_lds *l, uint32_t column,
                                  uint32_t rows)
{
    residual r;
    r.h = task->d.h + tile_row_of(l) * task->d.hidden + column;
    r.norm = task->norm + column, r.step = task->d.hidden;
    if (rows <= l->prefetched_rows) {
        r.step = l->prefetched_stride;
        r.h = l->prefetched, r.norm = l->prefetched + rows * r.step;
    }
    return r;
}

/* fast_div(n, reciprocal_of(rows)) is n / rows, for n up to MAX_ROWS rows of some tiles: an integer
   division takes long. */
FLEET_DEVICE uint32_t reciprocal_of(uint32_t rows)
{
    return (1u << 20) / (rows ? rows : 1) + 1;
}
FLEET_DEVICE uint32_t fast_div(uint32_t n, uint32_t reciprocal)
{
    return n * reciprocal >> 20;
}

#define LANES_PER_ROW 16u /* threads that share the work on a row; at most TILE_N */

/* The panels of a product that a worker computes: every `step`-th from `first` on. */
typedef struct panel_range {
    uint32_t begin, end; /* the chiplet's panels; of contiguous ones, `end` is the worker's own */
    uint32_t first, step;
} panel_range;

/* Of the workers of a chiplet, the how many-th this one is to take a tile of a product whose panels have `row_tiles` tiles of
   M each. */
FLEET_DEVICE uint32_t turn_of_worker(const task_args *task, const fleet_ctx *ctx,
                                     uint32_t row_tiles)
{
    const uint32_t n = ctx->tile_num, before = task->first_worker * row_tiles;
    const uint32_t offset = before < n ? before : before % n, turned = ctx->tile_index + n - offset;
    return turned < n ? turned : turned - n;
}

/* The worker's panels; or its tiles, if each panel has `row_tiles` tiles of M: tile t is tile t % row_tiles of panel t / row_tiles, so that
   workers which are neighbours read the same weights. */
FLEET_DEVICE panel_range tiles_of_worker(const task_args *task, const fleet_ctx *ctx,
                                         uint32_t row_tiles)
{
    const fleet_partition part = fleet_linear_partition(&task->shape, ctx->slice, ctx->slices);
    const uint32_t n = ctx->tile_num, mine = turn_of_worker(task, ctx, row_tiles),
                   tiles = part.n_tiles * row_tiles;
    panel_range t;
    t.begin = part.first_n * row_tiles, t.end = t.begin + tiles;
    t.first = t.begin + mine, t.step = n;
    if (CONTIGUOUS_PANELS) {
        t.first = t.begin + tiles * mine / n, t.step = 1;
        t.end = t.begin + tiles * (mine + 1) / n;
    }
    return t;
}
FLEET_DEVICE panel_range panels_of_worker(const task_args *task, const fleet_ctx *ctx)
{
    return tiles_of_worker(task, ctx, 1);
}
/* Those of the active experts, which workers of all chiplets share. */
FLEET_DEVICE panel_range expert_panels_of_worker(const task_args *task, const fleet_ctx *ctx,
                                                 uint32_t active)
{
    panel_range t;
    t.begin = 0, t.end = active * expert_panels(task);
    t.first = ctx->slice + ctx->tile_index * ctx->slices, t.step = ctx->tile_num * ctx->slices;
    return t;
}

/* Four neighbouring columns: one load instead of four dependent waits. */
typedef struct __attribute__((aligned(16))) vec4 {
    float value[4];
} vec4;
typedef struct __attribute__((aligned(8))) act4 {
    act_t value[4];
} act4;

/* Stores an activation, as one or two bf16 terms, where the next product reads it. */
FLEET_DEVICE void store_act(act_t *to, uint32_t low, float value)
{
    to[0] = act_of_float(value);
    if (low) to[low] = act_of_float(value - float_of_act(to[0]));
}

#endif /* QWEN3_TASKS_OPERANDS_H */
