/* tasks/prefill.h: what the tasks of a kernel that takes prompts have in common on all GPUs. nvidia/prefill.h and amd/prefill.h
   include it after what it needs of theirs: prefill_at, the position of an activation; own_lane and own_warp, of a lane and a
   wave; and

       PREFILL_ROWS, PREFILL_EXPERT_ROWS  rows of a step, at most; of models with experts
       PREFILL_TILE_ROWS    rows of a tile of a product
       PREFILL_WARPS        waves of a workgroup
       PREFILL_ADDED_PARTS  of so many parts or more, o and down are added to the residual stream by the next task
       EMBEDDED             columns of the residual stream that a wave has at a time, four a lane
       SQUARED_COLUMNS      columns whose squares are added up together: four times a power of two, at most EMBEDDED
       PARTS_LOADED         parts whose loads overlap
       LOW_TERM             how far an activation's low term is behind its high one, if it has two

   and of products

       PREFILL_PARTS        parts, at most, into which a tile's k's are divided
       PARTS_K              k's of which each part but the last one has a multiple
       prefill_columns      columns of a tile, at most; the fewest are 64 for each term
       COLUMNS_STEP         columns by which tiles differ in width
       prefill_cost         what a product costs with a division, in any unit; UINT64_MAX: it cannot
                            be divided so */
#ifndef QWEN3_TASKS_PREFILL_H
#define QWEN3_TASKS_PREFILL_H

#include "ranks.h"

/* ---- how products are divided ---- */

/* Tiles of `width` columns, with at most `wanted` parts. */
FLEET_HOST_DEVICE prefill_division prefill_parts(uint32_t k, uint32_t wanted, uint32_t width)
{
    prefill_division by;
    by.width = width, by.part_k = ceil_div(ceil_div(k, wanted), PARTS_K) * PARTS_K;
    by.parts = ceil_div(k, by.part_k);
    return by;
}
/* The division that costs the least. A tile has parts only where all of them have a worker each. */
FLEET_HOST_DEVICE prefill_division prefill_divide(const fleet_linear *shape, epilogue end,
                                                  uint32_t rows, uint32_t workers, uint32_t terms)
{
    const uint32_t across = ceil_div(rows * terms, PREFILL_TILE_ROWS);
    prefill_division best = {0, 0, 0};
    uint64_t least = UINT64_MAX;
    for (uint32_t width = 64 * terms; width <= prefill_columns(terms); width += COLUMNS_STEP)
        for (uint32_t wanted = 1; wanted <= PREFILL_PARTS; wanted++) {
            const prefill_division by = prefill_parts(shape->k, wanted, width);
            const uint64_t cost = prefill_cost(shape->n, end, rows, workers, terms, by);
            if (by.parts > 1 && across * ceil_div(shape->n, width) * by.parts > workers) break;
            if (cost < least) least = cost, best = by;
        }
    return best;
}
/* The width that costs the least with the parts that `by` has; 0: none is possible. */
FLEET_HOST_DEVICE uint32_t prefill_width(uint32_t columns, epilogue end, uint32_t rows,
                                         uint32_t workers, prefill_division by)
{
    uint64_t least = UINT64_MAX;
    uint32_t best = 0;
    for (by.width = 64; by.width <= prefill_columns(1); by.width += COLUMNS_STEP) {
        const uint64_t cost = prefill_cost(columns, end, rows, workers, 1, by);
        if (cost < least) least = cost, best = by.width;
    }
    return best;
}

/* ---- work ---- */

/* Sums of squares of a row: as many as the columns have, and zeros up to a vector. */
FLEET_HOST_DEVICE uint32_t squares_of(uint32_t hidden)
{
    return ceil_div(hidden, 4 * SQUARED_COLUMNS) * 4;
}

FLEET_DEVICE uint32_t prefill_worker(const fleet_ctx *ctx)
{
    return ctx->slice + ctx->tile_index * ctx->slices;
}
FLEET_DEVICE uint32_t prefill_workers(const fleet_ctx *ctx)
{
    return ctx->tile_num * ctx->slices;
}

FLEET_DEVICE const prefill_step *prefill_step_of(const fleet_ctx *ctx, const decoder *d)
{
    return d->prefill + (d->prefill_stays ? 0 : ctx->step);
}

/* The end of the rows from `row` on that are in one tile: tiles begin at multiples of
   PREFILL_TILE_ROWS. */
FLEET_DEVICE uint32_t prefill_tile_end(uint32_t row, uint32_t rows)
{
    const uint32_t end = (row / PREFILL_TILE_ROWS + 1) * PREFILL_TILE_ROWS;
    return end < rows ? end : rows;
}
/* The work items of a product of the rows from `begin` on, where the first tile begins. Item i is
   part i % parts of tile i / parts; tile t has rows t % across and columns t / across, so that
   workers that run at the same time share weights. */
typedef struct prefill_items {
    uint32_t begin, across, parts, part_k, items;
} prefill_items;
FLEET_DEVICE prefill_items prefill_items_of(const task_args *task, const prefill_division *by,
                                            uint32_t begin, uint32_t rows)
{
    prefill_items t;
    t.begin = begin;
    t.across = rows > begin ? ceil_div(rows, PREFILL_TILE_ROWS) - begin / PREFILL_TILE_ROWS : 0;
    t.parts = by->parts, t.part_k = by->part_k;
    t.items = t.across * ceil_div(task->shape.n, by->width) * by->parts;
    return t;
}
/* First row, first column, and range of k's of an item. */
typedef struct prefill_item {
    uint32_t part, row, column, k, end;
} prefill_item;
FLEET_DEVICE prefill_item prefill_item_of(const task_args *task, const prefill_items *t, uint32_t i,
                                          const uint32_t width)
{
    const uint32_t tile = i / t->parts, column = tile / t->across, all = task->shape.k,
                   down = tile - column * t->across;
    prefill_item item;
    item.part = i - tile * t->parts;
    item.row = down ? (t->begin / PREFILL_TILE_ROWS + down) * PREFILL_TILE_ROWS : t->begin;
    item.column = column * width;
    item.k = item.part * t->part_k;
    item.end = all - item.k < t->part_k ? all : item.k + t->part_k;
    return item;
}

/* ---- the residual stream ---- */

/* Stores a lane's four columns of the residual stream from c on, the next product's input and, by each lane that begins
   SQUARED_COLUMNS, the sum of squares. All lanes call it. is_there: 1: the lane has columns. */
FLEET_DEVICE void store_columns(const decoder *d, const float *norms, uint32_t r, uint32_t c,
                                vec4 h, uint32_t is_there, const uint32_t terms)
{
    float squares = 0;
    if (is_there) {
        const vec4 norm = load_vec4(norms + c);
        vec4 next;
        for (uint32_t j = 0; j < 4; j++) {
            next.value[j] = h.value[j] * norm.value[j];
            squares += h.value[j] * h.value[j];
        }
        store_vec4(d->h + (size_t)r * d->hidden + c, h);
        store_acts(d->x + prefill_at(r, c, d->hidden, terms), terms == 2 ? LOW_TERM : 0, next);
    }
    UNROLLED
    for (uint32_t bit = 1; bit < SQUARED_COLUMNS / 4; bit *= 2)
        squares += shuffle_xor(squares, bit);
    if (c % SQUARED_COLUMNS == 0 && is_there)
        d->squares[(size_t)r * squares_of(d->hidden) + c / SQUARED_COLUMNS] = squares;
}

/* The token's row becomes row r of the step; c: the lane's first column. */
FLEET_DEVICE void embed_columns(const task_args *args, const token_row *row, uint32_t r, uint32_t c,
                                const uint32_t terms)
{
    const decoder *d = &args->d;
    const uint32_t is_there = c < d->hidden;
    vec4 h = {{0, 0, 0, 0}};
    if (is_there) {
        const bf16 *from = d->embedding + (size_t)(uint32_t)row->token * d->hidden + c;
        for (uint32_t j = 0; j < 4; j++) h.value[j] = float_of_bf16(from[j]);
    }
    store_columns(d, args->norm, r, c, h, is_there, terms);
}
FLEET_DEVICE void embed_rows(const fleet_ctx *ctx, const task_args *args, const uint32_t terms)
{
    const decoder *d = &args->d;
    const prefill_step *step = prefill_step_of(ctx, d);
    const uint32_t parts = ceil_div(d->hidden, EMBEDDED);
    for (uint32_t i = prefill_worker(ctx) * PREFILL_WARPS + own_warp(); i < step->rows * parts;
         i += prefill_workers(ctx) * PREFILL_WARPS) {
        const uint32_t r = i / parts, c = i % parts * EMBEDDED + own_lane() * 4;
        embed_columns(args, d->prefill_rows + step->first + r, r, c, terms);
    }
}

/* Of several ranks (ranks.h), a product's sums on each of them are further parts. They are stored to
   all ranks: a rank's parts follow those of the ranks before it, so that all add up the same in the
   same order. The next task waits for all ranks. */
FLEET_DEVICE uint32_t ranks_of_parts(const task_args *task)
{
    return is_exchanged(task) ? task->d.peers.ranks : 1;
}
/* Where the parts begin on rank r. */
FLEET_DEVICE float *parts_on(const task_args *task, uint32_t r)
{
    return is_exchanged(task) ? (float *)fleet_peer_address(&task->d.peers, task->summands, r)
                              : task->d.qkv;
}
/* The number of this rank's part number `part` of so many. */
FLEET_DEVICE uint32_t part_of_ranks(const task_args *task, uint32_t parts, uint32_t part)
{
    return is_exchanged(task) ? task->d.peers.rank * parts + part : part;
}

/* Adds the parts of a product to `columns` columns of the residual stream, in their order. A warp has EMBEDDED columns of ADDED
   rows, whose loads overlap. */
#define ADDED 2u
FLEET_DEVICE void add_parts(const fleet_ctx *ctx, const task_args *args, uint32_t first_column,
                            uint32_t columns, const uint32_t terms)
{
    const decoder copy = args->d, *const d = &copy; /* in registers: see prefill_heads */
    const float *const norm = args->norm;
    const prefill_step *step = prefill_step_of(ctx, d);
    const uint32_t parts = step->division[args->product].parts * ranks_of_parts(args),
                   rows = step->rows;
    const float *const all_parts = is_exchanged(args) ? (const float *)args->summands : d->qkv;
    const uint32_t across = ceil_div(columns, EMBEDDED), begin = step->begin,
                   end = first_column + columns, all = ceil_div(rows - begin, ADDED) * across;
    if (parts < PREFILL_ADDED_PARTS) return;
    for (uint32_t i = prefill_worker(ctx) * PREFILL_WARPS + own_warp(); i < all;
         i += prefill_workers(ctx) * PREFILL_WARPS) {
        const uint32_t row = begin + i / across * ADDED,
                       c = first_column + i % across * EMBEDDED + own_lane() * 4;
        const uint32_t own = c < end ? (rows - row < ADDED ? rows - row : ADDED) : 0;
        const float *const first = all_parts + (size_t)row * d->hidden + c;
        vec4 h[ADDED];
        UNROLLED
        for (uint32_t n = 0; n < ADDED; n++) {
            for (uint32_t j = 0; j < 4; j++) h[n].value[j] = 0;
            if (n < own) h[n] = load_vec4(d->h + (size_t)(row + n) * d->hidden + c);
        }
        ROLLED
        for (uint32_t p = 0; p < parts; p += PARTS_LOADED) {
            vec4 part[PARTS_LOADED][ADDED];
            UNROLLED
            for (uint32_t k = 0; k < PARTS_LOADED * ADDED; k++) {
                const uint32_t q = k / ADDED, n = k % ADDED;
                for (uint32_t j = 0; j < 4; j++) part[q][n].value[j] = 0;
                if (n < own && p + q < parts)
                    part[q][n] = load_vec4(first + ((size_t)(p + q) * rows + n) * d->hidden);
            }
            UNROLLED
            for (uint32_t k = 0; k < PARTS_LOADED * ADDED * 4; k++)
                h[k / 4 % ADDED].value[k % 4] += part[k / 4 / ADDED][k / 4 % ADDED].value[k % 4];
        }
        UNROLLED
        for (uint32_t n = 0; n < ADDED; n++)
            store_columns(d, norm, row + n, c, h[n], n < own, terms);
    }
}

/* Keeps the residual stream of prompts' last tokens, which the next step overwrites: a warp copies EMBEDDED columns. */
FLEET_DEVICE void keep_rows(const fleet_ctx *ctx, const task_args *args)
{
    const decoder *d = &args->d;
    const prefill_step *step = prefill_step_of(ctx, d);
    const uint32_t parts = ceil_div(d->hidden, EMBEDDED);
    for (uint32_t i = prefill_worker(ctx) * PREFILL_WARPS + own_warp(); i < step->ends * parts;
         i += prefill_workers(ctx) * PREFILL_WARPS) {
        const prefill_end *end = d->prefill_ends + step->first_end + i / parts;
        const uint32_t c = i % parts * EMBEDDED + own_lane() * 4;
        if (c < d->hidden)
            store_vec4(d->prefill_last + (size_t)end->sequence * d->hidden + c,
                       load_vec4(d->h + (size_t)end->row * d->hidden + c));
    }
}

#endif /* QWEN3_TASKS_PREFILL_H */
