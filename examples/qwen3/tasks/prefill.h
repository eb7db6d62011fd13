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
                                         uint32_t workers, prefill_division by,
                                         const uint32_t terms)
{
    uint64_t least = UINT64_MAX;
    uint32_t best = 0;
    for (by.width = 64 * terms; by.width <= prefill_columns(terms); by.width += COLUMNS_STEP) {
        const uint64_t cost = prefill_cost(columns, end, rows, workers, terms, by);
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
   SQUARED_COLUMNS, the sum of squares. All lanes call it. is_there: 1: the lane has columns. ranks:
   1, or the input and the squares are stored to all of so many. */
FLEET_DEVICE void store_columns(const decoder *d, const float *norms, uint32_t r, uint32_t c,
                                vec4 h, uint32_t is_there, const uint32_t terms, uint32_t ranks)
{
    act_t *const x = d->x + prefill_at(r, c, d->hidden, terms);
    float *const of_row = d->squares + (size_t)r * squares_of(d->hidden) + c / SQUARED_COLUMNS;
    float squares = 0;
    if (is_there) {
        const vec4 norm = load_vec4(norms + c);
        vec4 next;
        for (uint32_t j = 0; j < 4; j++) {
            next.value[j] = h.value[j] * norm.value[j];
            squares += h.value[j] * h.value[j];
        }
        store_vec4(d->h + (size_t)r * d->hidden + c, h);
        if (!HAS_RANKS || ranks == 1)
            store_acts(x, terms == 2 ? LOW_TERM : 0, next);
        else
            for (uint32_t rank = 0; rank < ranks; rank++)
                store_acts((act_t *)fleet_peer_address(&d->peers, x, rank),
                           terms == 2 ? LOW_TERM : 0, next);
    }
    UNROLLED
    for (uint32_t bit = 1; bit < SQUARED_COLUMNS / 4; bit *= 2)
        squares += shuffle_xor(squares, bit);
    if (c % SQUARED_COLUMNS || !is_there) return;
    if (!HAS_RANKS || ranks == 1)
        *of_row = squares;
    else
        for (uint32_t rank = 0; rank < ranks; rank++)
            *(float *)fleet_peer_address(&d->peers, of_row, rank) = squares;
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
    store_columns(d, args->norm, r, c, h, is_there, terms, 1);
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

/* Of several ranks (ranks.h), each has the residual stream of some neighbouring rows of a step. The
   products of o, and of down or the experts, are summands of it: each rank stores its parts of a
   row to the rank that has the row. So a rank gets each of its rows once from each other one, and
   sends the next product's input once. SHARED_ROWS: rows of a rank are a multiple of so many. */
#define SHARED_ROWS 8u
FLEET_HOST_DEVICE uint32_t rows_of_rank(const decoder *d, uint32_t rows)
{
    return ceil_div(ceil_div(rows, d->peers.ranks), SHARED_ROWS) * SHARED_ROWS;
}
/* Where this rank's part of row r goes, [hidden]: after those of the ranks before it. */
FLEET_DEVICE float *part_of_rank(const task_args *task, uint32_t rows, uint32_t parts,
                                 uint32_t part, uint32_t r)
{
    const fleet_peers *peers = &task->d.peers;
    const uint32_t each = rows_of_rank(&task->d, rows), rank = r / each;
    float *to = (float *)fleet_peer_address(peers, task->summands, rank);
    return to + ((size_t)(peers->rank * parts + part) * each + r - rank * each) * task->d.hidden;
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
    const uint32_t parts = step->division[args->product].parts, rows = step->rows;
    const uint32_t across = ceil_div(columns, EMBEDDED), begin = step->begin,
                   end = first_column + columns, all = ceil_div(rows - begin, ADDED) * across;
    if (parts < PREFILL_ADDED_PARTS) return;
    for (uint32_t i = prefill_worker(ctx) * PREFILL_WARPS + own_warp(); i < all;
         i += prefill_workers(ctx) * PREFILL_WARPS) {
        const uint32_t row = begin + i / across * ADDED,
                       c = first_column + i % across * EMBEDDED + own_lane() * 4;
        const uint32_t own = c < end ? (rows - row < ADDED ? rows - row : ADDED) : 0;
        const float *const first = d->qkv + (size_t)row * d->hidden + c;
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
            store_columns(d, norm, row + n, c, h[n], n < own, terms, 1);
    }
}

#if HAS_RANKS
/* A wave has SQUARED_COLUMNS of JOINED times as many rows as it has lanes for. */
#define JOINED 2u
#define JOINED_LANES (SQUARED_COLUMNS / 4)
#define JOINED_ROWS (EMBEDDED / SQUARED_COLUMNS)
/* Adds the parts of all ranks to the residual stream of this one's rows, in the ranks' order, and
   stores the next product's input to all. */
FLEET_DEVICE void join_rows(const fleet_ctx *ctx, const task_args *args, const uint32_t terms)
{
    const decoder copy = args->d, *const d = &copy; /* in registers: see prefill_heads */
    const float *const norm = args->norm, *const summands = (const float *)args->summands;
    const prefill_step *step = prefill_step_of(ctx, d);
    const uint32_t ranks = d->peers.ranks, parts = step->division[args->product].parts * ranks;
    const uint32_t rows = step->rows, each = rows_of_rank(d, rows), begin = d->peers.rank * each,
                   own = begin >= rows         ? 0
                         : rows - begin < each ? rows - begin
                                               : each;
    const uint32_t across = ceil_div(d->hidden, SQUARED_COLUMNS),
                   all = ceil_div(own, JOINED * JOINED_ROWS) * across;
    for (uint32_t i = prefill_worker(ctx) * PREFILL_WARPS + own_warp(); i < all;
         i += prefill_workers(ctx) * PREFILL_WARPS) {
        const uint32_t row = i / across * (JOINED * JOINED_ROWS) + own_lane() / JOINED_LANES,
                       c = i % across * SQUARED_COLUMNS + own_lane() % JOINED_LANES * 4;
        vec4 h[JOINED];
        uint32_t is_there[JOINED];
        UNROLLED
        for (uint32_t n = 0; n < JOINED; n++) {
            const uint32_t r = row + n * JOINED_ROWS;
            is_there[n] = r < own && c < d->hidden;
            for (uint32_t j = 0; j < 4; j++) h[n].value[j] = 0;
            if (is_there[n]) h[n] = load_vec4(d->h + (size_t)(begin + r) * d->hidden + c);
        }
        ROLLED
        for (uint32_t p = 0; p < parts; p += PARTS_LOADED) {
            vec4 part[PARTS_LOADED][JOINED];
            UNROLLED
            for (uint32_t k = 0; k < PARTS_LOADED * JOINED; k++) {
                const uint32_t q = k / JOINED, n = k % JOINED, r = row + n * JOINED_ROWS;
                for (uint32_t j = 0; j < 4; j++) part[q][n].value[j] = 0;
                if (is_there[n] && p + q < parts)
                    part[q][n] = load_vec4(summands + ((size_t)(p + q) * each + r) * d->hidden + c);
            }
            UNROLLED
            for (uint32_t k = 0; k < PARTS_LOADED * JOINED * 4; k++)
                h[k / 4 % JOINED].value[k % 4] += part[k / 4 / JOINED][k / 4 % JOINED].value[k % 4];
        }
        UNROLLED
        for (uint32_t n = 0; n < JOINED; n++)
            store_columns(d, norm, begin + row + n * JOINED_ROWS, c, h[n], is_there[n], terms,
                          ranks);
    }
}
#endif

/* Keeps the residual stream of prompts' last tokens, which the next step overwrites: a warp copies
   EMBEDDED columns. Of several ranks, the one that has the row stores it to all. */
FLEET_DEVICE void keep_rows(const fleet_ctx *ctx, const task_args *args)
{
    const decoder *d = &args->d;
    const prefill_step *step = prefill_step_of(ctx, d);
    const uint32_t parts = ceil_div(d->hidden, EMBEDDED);
    for (uint32_t i = prefill_worker(ctx) * PREFILL_WARPS + own_warp(); i < step->ends * parts;
         i += prefill_workers(ctx) * PREFILL_WARPS) {
        const prefill_end *end = d->prefill_ends + step->first_end + i / parts;
        const uint32_t c = i % parts * EMBEDDED + own_lane() * 4;
        float *const to = d->prefill_last + (size_t)end->sequence * d->hidden + c;
        const float *const from = d->h + (size_t)end->row * d->hidden + c;
        if (c >= d->hidden) continue;
#if HAS_RANKS
        if (d->peers.ranks > 1) {
            if (end->row / rows_of_rank(d, step->rows) != d->peers.rank) continue;
            for (uint32_t r = 0; r < d->peers.ranks; r++)
                store_vec4((float *)fleet_peer_address(&d->peers, to, r), load_vec4(from));
            continue;
        }
#endif
        store_vec4(to, load_vec4(from));
    }
}

#endif /* QWEN3_TASKS_PREFILL_H */
