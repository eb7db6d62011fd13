/* fleet_linear.h - splits matrix products over chiplets, predicts the cost - MIT licence

   A linear layer is an output [m, n] of activations [m, k] and weights [k, n], computed by a
   device-task. Its slices run on different chiplets, and the workers of a chiplet share the tiles
   of a slice. fleet_linear_choose picks the split (N, M or K) and the order of tiles (M-major,
   N-major, windowed), and predicts the traffic of L2s and HBM and the time; fleet_linear_report
   prints that for a list of layers. Tiles walk their part of the output with an iterator that both
   the host and the device have.

   CONTENTS (search for the tag)
       >>manual           this comment
       >>public           splits, parts, the tile iterator, rates of chips, the planner, its report
       >>iterator         inline code of the tile iterator, for the host and for tiles
       >>implementation   choice, predicted costs, report

   RECIPE
       In exactly one source file define FLEET_IMPLEMENTATION before the include, as for
       fleet_device.h.
           fleet_linear_desc d = fleet_linear_desc_default();
           d.m = 16, d.n = 6144, d.k = 4096;
           fleet_linear_plan plan;
           if (fleet_linear_choose(&d, &topology, &plan) != FLEET_OK) puts(plan.why);
       plan.slices are the slices of the grid; plan.linear belongs to the arguments of its tile:
           FLEET_FOR_TILES(tile, &args->linear, ctx) { ... tile.row, tile.column, tile.k ... }
       examples/07_linear_layer.c has a decoder layer.

   WHAT IT DOES NOT DO
       It multiplies nothing: the tile is yours. It adds no grid to a graph.

   ERRORS
       fleet_linear_choose returns a fleet_status, and plan->why says what to change.
*/
/* Outside the guard: the second inclusion brings the implementations of the headers below. */
#include "fleet_device.h"
#if FLEET_VERSION != 300
#error "fleet_linear.h is of fleet 0.3, fleet.h is not: copy all headers from one version"
#endif

#ifndef FLEET_LINEAR_H
#define FLEET_LINEAR_H

FLEET_C_BEGIN

/* ==== >>public: splits, parts, tile iterator, rates, planner ==== */

/* How a device-task that computes an output [m, n] from activations [m, k] and weights [k, n] is
   split into slices, which run on different chiplets, and in which order the workers of a chiplet
   take the tiles of a slice. Plain data: it may be part of a tile's arguments. After FLEET (arXiv
   2604.15379). */
typedef enum fleet_split {
    /* a slice has a run of columns, and all rows ("M-tile"): each weight is read by one chiplet */
    FLEET_SPLIT_N,
    FLEET_SPLIT_M, /* slice s of S has the rows of tiles m = s mod S; if there are fewer than S
                      rows, the slices that have the same row share its columns. For many rows and
                      few columns */
    /* a slice has a run of k, and all tiles: partial sums, which a second grid adds in order. For
       fewer tiles than workers */
    FLEET_SPLIT_K
} fleet_split;

typedef enum fleet_traversal {
    FLEET_TRAVERSAL_M_MAJOR, /* down the rows of one column, then the next: neighbours share a
                                weight column */
    FLEET_TRAVERSAL_N_MAJOR, /* along the columns of one row, then the next: neighbours share
                                activations */
    FLEET_TRAVERSAL_WINDOWED /* N_MAJOR within windows of `window` columns: activations are read
                                once per window, and only the weight columns of one window are in
                                use */
} fleet_traversal;

typedef struct fleet_linear {
    uint32_t m, n, k;                /* elements, > 0 */
    uint32_t tile_m, tile_n, tile_k; /* elements, > 0: an output tile, and the chunk of k */
    uint32_t element_bytes;          /* of weights and activations: 1, 2 or 4 */
    uint32_t split;                  /* fleet_split */
    uint32_t traversal;              /* fleet_traversal */
    uint32_t window;                 /* WINDOWED: columns of tiles, > 0 */
} fleet_linear;

/* What one slice computes: rows of tiles first_m + i * step_m for i < m_tiles, columns of tiles
   first_n + j for j < n_tiles, over k elements of K from first_k on. Empty if m_tiles * n_tiles ==
   0 or k == 0. */
typedef struct fleet_partition {
    uint32_t first_m, step_m, m_tiles;
    uint32_t first_n, n_tiles;
    uint32_t first_k, k;
} fleet_partition;

/* Elements of k, from `first` on. */
typedef struct fleet_k_range {
    uint32_t first, count;
} fleet_k_range;

/* Part i of n of a range, in whole tiles of tile_k except at its end. Empty if there are more parts
   than tiles. */
FLEET_HOST_DEVICE fleet_k_range fleet_split_k(fleet_k_range k, uint32_t tile_k, uint32_t i,
                                              uint32_t n);

/* Rows and columns of tiles of the output. */
FLEET_HOST_DEVICE uint32_t fleet_linear_m_tiles(const fleet_linear *l);
FLEET_HOST_DEVICE uint32_t fleet_linear_n_tiles(const fleet_linear *l);

/* The part of slice `slice` of `slices`. */
FLEET_HOST_DEVICE fleet_partition fleet_linear_partition(const fleet_linear *l, uint32_t slice,
                                                         uint32_t slices);

/* A tile's row and column among the tiles of the output. */
typedef struct fleet_tile {
    uint32_t m, n;
} fleet_tile;

/* An iterator over the tiles of a part: tile `first` and every `stride`-th one after it, in the
   order of the linear's traversal. An empty part has none.
       fleet_tile_iterator w;
       for (w = fleet_tile_begin(&linear, &part, worker, workers); w.more; fleet_tile_next(&w)) ...
   Only fleet_tile_begin divides, and one step into a last window narrower than the others. */
typedef struct fleet_tile_iterator {
    uint32_t more;          /* 0: there is no further tile, and the other fields are undefined */
    uint32_t m, n;          /* the tile's row and column among the tiles of the output */
    uint32_t row, column;   /* its first element: m * tile_m, n * tile_n */
    uint32_t rows, columns; /* its elements: fewer than tile_m, tile_n at the output's edges */
    uint32_t first_k, k;    /* of the part, elements */
    /* The rest is private. Tiles form `lines` lines of `across` tiles, in windows of `window` tiles
       of each line. The iterator goes along the lines of a window, `width` tiles each. In M_MAJOR a
       line is a column. */
    fleet_linear linear;
    uint32_t first_m, step_m, first_n;
    uint32_t lines, across, window;
    uint32_t before, width; /* of this window: tiles of a line before it, tiles of a line in it */
    uint32_t line, place;   /* in this window */
    uint32_t stride;        /* tiles, which are */
    uint32_t by_places, by_lines, by_places_of_windows;
} fleet_tile_iterator;

/* Starts at tile `first` of a part, with a stride of 1 to 2^31 tiles. */
FLEET_HOST_DEVICE fleet_tile_iterator fleet_tile_begin(const fleet_linear *l,
                                                       const fleet_partition *p, uint32_t first,
                                                       uint32_t stride);
/* Goes to the next tile; clears w->more if there is none. */
FLEET_HOST_DEVICE void fleet_tile_next(fleet_tile_iterator *w);

/* Tile t < m_tiles * n_tiles of a part, in the order of the linear's traversal. */
FLEET_HOST_DEVICE fleet_tile fleet_partition_tile(const fleet_linear *l, const fleet_partition *p,
                                                  uint32_t t);

/* The peak rates of a chip: those of its data sheet, without sparsity. */
typedef struct fleet_rates {
    double hbm_bytes_per_s;
    double flop_per_s[3]; /* of matrix units, for elements of 1, 2 and 4 bytes (fp8, bf16, fp32) */
} fleet_rates;

/* Presets: chip, HBM TB/s, TFLOP/s with 1, 2, 4 bytes. From the AMD Instinct MI300X, MI300A, MI350X
   and MI250X data sheets (MI250X: one of its two dies, as its topology; its 1-byte rate is int8's)
   and the NVIDIA H100 SXM, H200 SXM and HGX B200 data sheets (fp32 there without tensor cores). */
#define FLEET_RATES_LIST(X)                                                                        \
    X(MI300X, 5.3, 2614.9, 1307.4, 163.4)                                                          \
    X(MI300A, 5.3, 1961.2, 980.6, 122.6)                                                           \
    X(MI350X, 8.0, 4614.0, 2307.0, 144.2)                                                          \
    X(MI250X, 1.6384, 191.5, 191.5, 47.9)                                                          \
    X(H100, 3.35, 1978.9, 989.4, 66.9)                                                             \
    X(H200, 4.8, 1978.9, 989.4, 66.9)                                                              \
    X(B200, 7.7, 4500.0, 2250.0, 75.0)

/* A preset. An unknown chip gives zeros, which no linear plan accepts. */
FLEET_API fleet_rates fleet_rates_preset(fleet_chip chip);

/* One operator, for the planner: [m, n] = [m, k] x [k, n]. */
typedef struct fleet_linear_desc {
    int64_t m, n, k;                /* elements, 1 to 2^28; no default */
    int64_t tile_m, tile_n, tile_k; /* elements, 1 to 2^28; default 16, 64, 256 */
    int64_t element_bytes;          /* of weights, activations and output: 1, 2 or 4; default 2 */
    fleet_rates rates;              /* default: the preset MI300X */
    uint64_t l2_budget_bytes;       /* of each chiplet's L2; default 0: the topology's l2_bytes */
    uint32_t workers_per_chiplet;   /* W; default 0: the units of the chiplet that has fewest */
    /* What the planner may choose from: sets of bits, 1u << value; default 0: all.
       FLEET_LEVEL_DEVICE: the chiplet-tasks of a device-task. FLEET_LEVEL_CU: a CU-task for each
       tile, on any chiplet. */
    uint32_t levels;
    uint32_t splits;     /* fleet_split; excludes CU-tasks, which have none */
    uint32_t traversals; /* fleet_traversal */
    int64_t window;      /* columns of tiles, implies WINDOWED; default 0: the planner chooses */
    int64_t slices;      /* up to 4096, excludes CU-tasks; default 0: one per chiplet */
    /* Buffers that the operator avoids, for saved_bytes. fused_columns: columns of n that remain
       after a fused elementwise follower (gate and up: n / 2); default 0: no follower. fused_input:
       1: a fused norm makes the activations as they are loaded; default 0: they are read from a
       buffer. */
    int64_t fused_columns;
    uint32_t fused_input;
} fleet_linear_desc;

/* The defaults; the caller sets at least m, n and k. */
FLEET_API fleet_linear_desc fleet_linear_desc_default(void);

/* How an operator runs, and its predicted costs. Plain data; bytes are per execution.

   The prediction counts the fetches that workers share while they run side by side: the W workers
   of a chiplet take tiles t, t + 1, ... of its part and go through k together. With m_tiles x
   n_tiles in the part and windows of w columns (M-major: 1, N-major: n_tiles),

       rows = W / w, within 1..m_tiles: tiles that share a fetch of a weight column,
       columns = max(w, W / m_tiles), within 1..min(W, n_tiles): that share one of activations,

   provided that one k chunk (tile_k of k) of every column and row in flight fits the L2 budget;
   otherwise both are 1. Hence for M-major hit_rate = 1 - 1 / rows = 1 - 1 / min(W, m_tiles),
   FLEET's equation; under SPLIT_M m_tiles is that of a slice. CU-tasks are spread over X * W
   workers, so that rows and columns are X times less, at least 1. (If they are dealt in turn and a
   row of tiles has a multiple of X columns, N-major keeps each column on one chiplet and shares
   more than predicted: tests/bench/locality.c shows both.) What an L2 still holds from an earlier
   step counts only for activations, and only if all those of a part fit beside the columns in
   flight. HBM sends what the L2s fetch, or each byte once if weights and activations fit the
   last-level cache. */
typedef struct fleet_linear_plan {
    fleet_linear linear;        /* for fleet_linear_partition and fleet_partition_tile */
    uint32_t level;             /* FLEET_LEVEL_DEVICE: `slices` chiplet-tasks; or FLEET_LEVEL_CU */
    uint32_t slices;            /* CU: 1, the whole */
    uint32_t chiplets, workers; /* X, W */
    uint32_t m_tiles, n_tiles;  /* of the output; m_tiles * n_tiles is the number of CU-tasks */
    uint64_t l2_budget_bytes, llc_bytes; /* per chiplet; of the device */
    uint64_t weight_bytes;               /* k * n */
    uint64_t activation_bytes;           /* m * k */
    uint64_t chiplet_weight_bytes;       /* read by the chiplet that reads most */
    /* FLEET's L2 window (Table 5): columns of the largest slice * tile_k * element_bytes; qkv
       there: 6144 / 8 columns * 256 * 2 bytes = 384 KB */
    uint64_t window_bytes;
    uint64_t in_flight_bytes; /* one k chunk of the columns and rows being computed */
    uint32_t fits_l2;         /* in_flight_bytes <= l2_budget_bytes */
    uint32_t fits_llc;        /* weights and activations fit llc_bytes */
    double hit_rate;          /* of weights in L2, 0 to 1 */
    double l2_weight_bytes;   /* fetched by all L2s together */
    double l2_activation_bytes;
    double chiplet_activation_bytes; /* fetched by the L2 that fetches most */
    double hbm_weight_bytes, hbm_activation_bytes;
    double hbm_output_bytes; /* written; SPLIT_K: and its partial sums, 4 bytes each, both ways */
    double saved_bytes;      /* neither written nor read back, thanks to fusion */
    double flops;            /* 2 * m * n * k */
    double intensity; /* FLEET's effective one, FLOP/B: 2 m / (element_bytes (1 - hit_rate)) */
    double ridge;     /* of the rates, FLOP/B. MI300X: 247 (FLEET's 245: 1300 / 5.3); MI350X: 288 */
    double memory_us; /* HBM bytes at their rate */
    double compute_us; /* of the worker that has most tiles, at its share of the rate */
    double us;         /* the larger of the two: a lower bound, as nothing else is counted */
    char why[320];     /* the choice in a sentence; after an error what to change */
} fleet_linear_plan;

/* Chooses what the descriptor leaves open: the smallest us, where split K must win by a tenth;
   within 1% of that the fewest bytes into the L2s; within 1% of those the fewest tasks; then the
   first of split N, M, K of chiplet-tasks and CU-tasks, and the first of M-major, N-major,
   WINDOWED. Errors: FLEET_ERROR_NULL, _ARGUMENT (a field of the descriptor), _TOPOLOGY,
   _TOO_MANY_WORKERS, _TOO_MANY_TASKS; then plan->why names the field, and the rest of the plan
   is 0. */
FLEET_API fleet_status fleet_linear_choose(const fleet_linear_desc *desc,
                                           const fleet_topology *topology, fleet_linear_plan *plan);

/* Writes two tables, with a row for each of `count` operators and one for their sum: how they are
   split, and what they cost; then the reasons. eff.FLOP/B is `intensity`, FLOP/B is flops over HBM
   bytes, MB is 2^20 bytes. names: `count` texts; the array, and each text, may be null. Returns as
   snprintf does. */
FLEET_API size_t fleet_linear_report(const fleet_linear_plan *plans, const char *const *names,
                                     uint32_t count, char *text, size_t bytes);

/* In tiles. */

/* The tiles of one worker's share of a slice. All threads pass the same arguments. */
FLEET_DEVICE fleet_tile_iterator fleet_tile_begin_slice(const fleet_linear *linear, uint32_t slice,
                                                        uint32_t slices, uint32_t worker,
                                                        uint32_t workers);

/* FLEET_FOR_TILES(tile, &linear, ctx) { ... } in a tile of a device- or chiplet-task runs its body
   once for each output tile that this worker computes, with a fleet_tile_iterator of that name. ctx
   is the tile's fleet_ctx, by name. */
#define FLEET_FOR_TILES(tile, linear, ctx)                                                         \
    for (fleet_tile_iterator tile = fleet_tile_begin_slice(linear, (ctx).slice, (ctx).slices,      \
                                                           (ctx).tile_index, (ctx).tile_num);      \
         tile.more; fleet_tile_next(&tile))

/* The share of a wave where the waves of a workgroup divide a tile's k: whole tiles of tile_k. */
FLEET_DEVICE fleet_k_range fleet_tile_wave_k(const fleet_tile_iterator *tile, uint32_t wave,
                                             uint32_t waves);

/* ==== >>iterator: inline code of the tile iterator ==== */

/* Where part i of n begins if `count` things are split evenly into contiguous parts; the first
   count mod n parts have one more. In 32 bits, because a 64-bit division takes about a hundred
   instructions on a GPU, a 32-bit one thirty; with one part there is none. */
FLEET_HOST_DEVICE uint32_t fleeti_cut(uint32_t count, uint32_t i, uint32_t n)
{
    const uint32_t longer = n == 1 ? 0 : count % n;
    return n == 1 ? count * i : count / n * i + (i < longer ? i : longer);
}

FLEET_HOST_DEVICE fleet_k_range fleet_split_k(fleet_k_range k, uint32_t tile_k, uint32_t i,
                                              uint32_t n)
{
    const uint32_t tiles = k.count / tile_k + (k.count % tile_k != 0);
    const uint32_t first = fleeti_cut(tiles, i, n) * tile_k;
    const uint32_t end = fleeti_cut(tiles, i + 1, n) * tile_k;
    const uint32_t before = first < k.count ? first : k.count; /* the last tile may be partial */
    k.first += before;
    k.count = (end < k.count ? end : k.count) - before;
    return k;
}

FLEET_HOST_DEVICE uint32_t fleet_linear_m_tiles(const fleet_linear *l)
{
    return (l->m - 1) / l->tile_m + 1;
}

FLEET_HOST_DEVICE uint32_t fleet_linear_n_tiles(const fleet_linear *l)
{
    return (l->n - 1) / l->tile_n + 1;
}

FLEET_HOST_DEVICE fleet_partition fleet_linear_partition(const fleet_linear *l, uint32_t slice,
                                                         uint32_t slices)
{
    const uint32_t m_tiles = fleet_linear_m_tiles(l), n_tiles = fleet_linear_n_tiles(l);
    fleet_partition p;
    fleet_k_range k;
    uint32_t turn = 0, turns = 1; /* this is slice `turn` of `turns` with the same rows */
    p.first_m = 0, p.step_m = 1, p.m_tiles = m_tiles;
    k.first = 0, k.count = l->k;
    if (l->split == FLEET_SPLIT_N) {
        turn = slice, turns = slices;
    } else if (l->split == FLEET_SPLIT_M) {
        const uint32_t rows = m_tiles < slices ? m_tiles : slices;
        p.first_m = slice % rows, p.step_m = rows;
        p.m_tiles = (m_tiles - p.first_m - 1) / rows + 1;
        turn = slice / rows, turns = (slices - p.first_m - 1) / rows + 1;
    } else {
        k = fleet_split_k(k, l->tile_k, slice, slices);
    }
    p.first_k = k.first, p.k = k.count;
    p.first_n = fleeti_cut(n_tiles, turn, turns);
    p.n_tiles = fleeti_cut(n_tiles, turn + 1, turns) - p.first_n;
    return p;
}

/* Goes to tile t, by division. This defines the order of tiles. */
FLEET_HOST_DEVICE void fleeti_walk_seek(fleet_tile_iterator *w, uint32_t t)
{
    const uint32_t windows = t / (w->window * w->lines);
    w->before = windows * w->window;
    w->width = w->across - w->before < w->window ? w->across - w->before : w->window;
    t -= w->before * w->lines;
    w->line = t / w->width, w->place = t % w->width;
}

/* Fills in the public fields for the tile at this line and place. */
FLEET_HOST_DEVICE void fleeti_walk_look(fleet_tile_iterator *w)
{
    const fleet_linear *l = &w->linear;
    const uint32_t m_major = l->traversal == FLEET_TRAVERSAL_M_MAJOR;
    const uint32_t i = m_major ? w->before + w->place : w->line;
    const uint32_t j = m_major ? w->line : w->before + w->place;
    w->m = w->first_m + i * w->step_m;
    w->n = w->first_n + j;
    w->row = w->m * l->tile_m, w->column = w->n * l->tile_n;
    w->rows = l->m - w->row < l->tile_m ? l->m - w->row : l->tile_m;
    w->columns = l->n - w->column < l->tile_n ? l->n - w->column : l->tile_n;
}

FLEET_HOST_DEVICE fleet_tile_iterator fleeti_walk_of(const fleet_linear *l,
                                                     const fleet_partition *p)
{
    const uint32_t m_major = l->traversal == FLEET_TRAVERSAL_M_MAJOR;
    fleet_tile_iterator w;
    w.more = w.m = w.n = w.row = w.column = w.rows = w.columns = 0;
    w.before = w.width = w.line = w.place = 0;
    w.stride = w.by_places = w.by_lines = w.by_places_of_windows = 0;
    w.linear = *l;
    w.first_m = p->first_m, w.step_m = p->step_m, w.first_n = p->first_n;
    w.first_k = p->first_k, w.k = p->k;
    w.lines = m_major ? p->n_tiles : p->m_tiles;
    w.across = m_major ? p->m_tiles : p->n_tiles;
    w.window = w.across;
    if (l->traversal == FLEET_TRAVERSAL_WINDOWED && l->window < w.across) w.window = l->window;
    return w;
}

FLEET_HOST_DEVICE fleet_tile_iterator fleet_tile_begin(const fleet_linear *l,
                                                       const fleet_partition *p, uint32_t first,
                                                       uint32_t stride)
{
    fleet_tile_iterator w = fleeti_walk_of(l, p);
    uint64_t wide;
    w.stride = stride;
    w.more = p->k && first < p->m_tiles * p->n_tiles;
    if (w.more) {
        fleeti_walk_seek(&w, first);
        w.by_lines = stride / w.width, w.by_places = stride % w.width;
        /* A stride that begins in a narrow last window would pass more windows than there are. */
        wide = (uint64_t)(w.by_lines / w.lines) * w.window, w.by_lines %= w.lines;
        w.by_places_of_windows = wide < w.across ? (uint32_t)wide : w.across;
        fleeti_walk_look(&w);
    }
    return w;
}

FLEET_HOST_DEVICE void fleet_tile_next(fleet_tile_iterator *w)
{
    w->place += w->by_places;
    w->line += w->by_lines;
    w->before += w->by_places_of_windows;
    if (w->place >= w->width) w->place -= w->width, w->line++;
    if (w->line >= w->lines) w->line -= w->lines, w->before += w->window;
    if (w->before < w->across && w->across - w->before < w->width) {
        /* The step assumed a window as wide as the others, but the lines of the last one are
           shorter. */
        const uint32_t t = w->line * w->width + w->place;
        w->width = w->across - w->before;
        w->line = t / w->width, w->place = t % w->width;
        w->by_lines = w->stride / w->width, w->by_places = w->stride % w->width;
        if (w->line >= w->lines) w->before += w->window;
    }
    w->more = w->before < w->across;
    if (w->more) fleeti_walk_look(w);
}

FLEET_HOST_DEVICE fleet_tile fleet_partition_tile(const fleet_linear *l, const fleet_partition *p,
                                                  uint32_t t)
{
    fleet_tile_iterator w = fleeti_walk_of(l, p);
    fleet_tile at;
    fleeti_walk_seek(&w, t);
    fleeti_walk_look(&w);
    at.m = w.m, at.n = w.n;
    return at;
}

FLEET_DEVICE fleet_tile_iterator fleet_tile_begin_slice(const fleet_linear *linear, uint32_t slice,
                                                        uint32_t slices, uint32_t worker,
                                                        uint32_t workers)
{
    fleet_linear l;
    l.m = fleeti_uniform(linear->m), l.n = fleeti_uniform(linear->n);
    l.k = fleeti_uniform(linear->k);
    l.tile_m = fleeti_uniform(linear->tile_m), l.tile_n = fleeti_uniform(linear->tile_n);
    l.tile_k = fleeti_uniform(linear->tile_k);
    l.element_bytes = fleeti_uniform(linear->element_bytes);
    l.split = fleeti_uniform(linear->split), l.traversal = fleeti_uniform(linear->traversal);
    l.window = fleeti_uniform(linear->window);
    fleet_partition part =
        fleet_linear_partition(&l, fleeti_uniform(slice), fleeti_uniform(slices));
    return fleet_tile_begin(&l, &part, fleeti_uniform(worker), fleeti_uniform(workers));
}

FLEET_DEVICE fleet_k_range fleet_tile_wave_k(const fleet_tile_iterator *tile, uint32_t wave,
                                             uint32_t waves)
{
    fleet_k_range k;
    k.first = tile->first_k, k.count = tile->k;
    return fleet_split_k(k, tile->linear.tile_k, wave, waves);
}

FLEET_C_END

#endif /* FLEET_LINEAR_H */

/* ==== >>implementation: choice, predicted costs, report ==== */

#if defined(FLEET_IMPLEMENTATION) && !defined(FLEETI_LINEAR_IMPLEMENTED)
#define FLEETI_LINEAR_IMPLEMENTED

#include <stdio.h>
#include <string.h>

FLEET_C_BEGIN

#define FLEETI_LINEAR_MAX ((int64_t)1 << 28) /* elements of an axis, so that bytes fit 64 bits */
#define FLEETI_LINEAR_SLICES 4096
#define FLEETI_LINEAR_WINDOWS 256 /* columns of the widest window tried */

#define FLEETI_RATES_CASE(n, tb, f1, f2, f4)                                                       \
    case FLEET_##n:                                                                                \
        r.hbm_bytes_per_s = (tb)*1e12;                                                             \
        r.flop_per_s[0] = (f1)*1e12, r.flop_per_s[1] = (f2)*1e12, r.flop_per_s[2] = (f4)*1e12;     \
        break;

fleet_rates fleet_rates_preset(fleet_chip chip)
{
    fleet_rates r;
    memset(&r, 0, sizeof r);
    switch (chip) {
        FLEET_RATES_LIST(FLEETI_RATES_CASE)
    case FLEET_CHIP_COUNT:
        break;
    }
    return r;
}

fleet_linear_desc fleet_linear_desc_default(void)
{
    fleet_linear_desc d;
    memset(&d, 0, sizeof d);
    d.tile_m = 16, d.tile_n = 64, d.tile_k = 256;
    d.element_bytes = 2;
    d.rates = fleet_rates_preset(FLEET_MI300X);
    return d;
}

/* Checks the numbers of the descriptor. */
static fleet_status fleeti_linear_check_numbers(const fleet_linear_desc *d, fleeti_text *out)
{
    const struct {
        const char *name;
        int64_t value, min, max;
    } field[] = {
        {"m", d->m, 1, FLEETI_LINEAR_MAX},
        {"n", d->n, 1, FLEETI_LINEAR_MAX},
        {"k", d->k, 1, FLEETI_LINEAR_MAX},
        {"tile_m", d->tile_m, 1, FLEETI_LINEAR_MAX},
        {"tile_n", d->tile_n, 1, FLEETI_LINEAR_MAX},
        {"tile_k", d->tile_k, 1, FLEETI_LINEAR_MAX},
        {"window", d->window, 0, FLEETI_LINEAR_MAX},
        {"slices", d->slices, 0, FLEETI_LINEAR_SLICES},
        {"fused_columns", d->fused_columns, 0, d->n},
        {"fused_input", d->fused_input, 0, 1},
        {"splits", d->splits, 0, 7},
        {"traversals", d->traversals, 0, 7},
    };
    for (uint32_t i = 0; i < sizeof field / sizeof field[0]; i++) {
        if (field[i].value >= field[i].min && field[i].value <= field[i].max) continue;
        fleeti_put(out, "%s is %lld, but must be %lld to %lld", field[i].name,
                   (long long)field[i].value, (long long)field[i].min, (long long)field[i].max);
        return FLEET_ERROR_ARGUMENT;
    }
    if (d->element_bytes != 1 && d->element_bytes != 2 && d->element_bytes != 4) {
        fleeti_put(out, "element_bytes is %lld, but must be 1, 2 or 4",
                   (long long)d->element_bytes);
        return FLEET_ERROR_ARGUMENT;
    }
    if (((d->m - 1) / d->tile_m + 1) * ((d->n - 1) / d->tile_n + 1) > FLEETI_MAX_INDEX) {
        fleeti_put(out, "tile_m and tile_n cut the output into more than %d tiles",
                   FLEETI_MAX_INDEX);
        return FLEET_ERROR_TOO_MANY_TASKS;
    }
    return FLEET_OK;
}

/* Checks choices that exclude one another. */
static fleet_status fleeti_linear_check_choices(const fleet_linear_desc *d, fleeti_text *out)
{
    const uint32_t cu = 1u << FLEET_LEVEL_CU, device = 1u << FLEET_LEVEL_DEVICE;
    if (d->levels & ~(cu | device))
        fleeti_put(out, "levels may hold only 1u << FLEET_LEVEL_CU and 1u << FLEET_LEVEL_DEVICE");
    else if (d->levels == cu && d->splits)
        fleeti_put(out, "splits need chiplet-tasks, but levels allows only CU-tasks");
    else if (d->levels == cu && d->slices)
        fleeti_put(out, "slices need chiplet-tasks, but levels allows only CU-tasks");
    else if (d->window && d->traversals && !(d->traversals >> FLEET_TRAVERSAL_WINDOWED & 1u))
        fleeti_put(out, "window is given, but traversals does not allow WINDOWED");
    else if (!(d->rates.hbm_bytes_per_s > 0))
        fleeti_put(out, "rates.hbm_bytes_per_s must be over 0");
    else if (!(d->rates.flop_per_s[d->element_bytes / 2] > 0))
        fleeti_put(out, "rates.flop_per_s[%d], of elements of %d bytes, must be over 0",
                   (int)d->element_bytes / 2, (int)d->element_bytes);
    else
        return FLEET_OK;
    return FLEET_ERROR_ARGUMENT;
}

/* Checks the chip, and copies what the plan needs of it. */
static fleet_status fleeti_linear_check_chip(const fleet_linear_desc *d, const fleet_topology *t,
                                             fleet_linear_plan *plan, fleeti_text *out)
{
    const uint64_t chunk = (uint64_t)(d->tile_k * d->element_bytes);
    const uint64_t min = (uint64_t)(d->tile_m + d->tile_n) * chunk;
    if (t->chiplets < 1 || t->chiplets > FLEET_MAX_CHIPLETS) {
        fleeti_put(out, "topology.chiplets is %u, but must be 1 to %d", t->chiplets,
                   FLEET_MAX_CHIPLETS);
        return FLEET_ERROR_TOPOLOGY;
    }
    uint32_t units = t->units[0];
    for (uint32_t c = 1; c < t->chiplets; c++)
        if (t->units[c] < units) units = t->units[c];
    if (!units || !t->l2_bytes) {
        fleeti_put(out, units ? "topology.l2_bytes is 0" : "topology.units of a chiplet is 0");
        return FLEET_ERROR_TOPOLOGY;
    }
    if (d->workers_per_chiplet > units) {
        fleeti_put(out, "workers_per_chiplet is %u, but a chiplet of the topology has %u units",
                   d->workers_per_chiplet, units);
        return FLEET_ERROR_TOO_MANY_WORKERS;
    }
    plan->chiplets = t->chiplets;
    plan->workers = d->workers_per_chiplet ? d->workers_per_chiplet : units;
    plan->l2_budget_bytes = d->l2_budget_bytes ? d->l2_budget_bytes : t->l2_bytes;
    plan->llc_bytes = t->llc_bytes;
    if (plan->l2_budget_bytes > t->l2_bytes || plan->l2_budget_bytes < min) {
        fleeti_put(out,
                   "l2_budget_bytes is %llu, but must be from %llu, one k chunk of a tile "
                   "((tile_m + tile_n) * tile_k * element_bytes), to topology.l2_bytes, %llu",
                   (unsigned long long)plan->l2_budget_bytes, (unsigned long long)min,
                   (unsigned long long)t->l2_bytes);
        return FLEET_ERROR_ARGUMENT;
    }
    return FLEET_OK;
}

static double fleeti_clamp_double(double v, double min, double max)
{
    return v < min ? min : v > max ? max : v;
}

static uint64_t fleeti_ceil(double v)
{
    const uint64_t n = (uint64_t)v;
    return (double)n < v ? n + 1 : n;
}

/* How many tiles share a fetch on a chiplet with this part (with CU-tasks: one of X such chiplets);
   see fleet_linear_plan. */
typedef struct fleeti_sharing {
    double rows, columns;
    uint64_t in_flight_bytes;
} fleeti_sharing;

static fleeti_sharing fleeti_linear_sharing(const fleet_linear_plan *plan,
                                            const fleet_partition *part)
{
    const fleet_linear *l = &plan->linear;
    const double m = part->m_tiles, n = part->n_tiles;
    const double over = plan->level == FLEET_LEVEL_CU ? plan->chiplets : 1; /* spread over */
    const double workers = plan->workers * over, busy = workers < m * n ? workers : m * n;
    const double max = workers < n ? workers : n;
    double window = n;
    uint64_t columns, rows; /* being computed at a time */
    fleeti_sharing s;

    if (l->traversal == FLEET_TRAVERSAL_M_MAJOR) window = 1;
    if (l->traversal == FLEET_TRAVERSAL_WINDOWED && l->window < n) window = l->window;
    s.rows = fleeti_clamp_double(workers / window, 1, m);
    s.columns = fleeti_clamp_double(window > workers / m ? window : workers / m, 1, max);
    s.rows = fleeti_clamp_double(s.rows / over, 1, m);
    s.columns = fleeti_clamp_double(s.columns / over, 1, max);
    columns = fleeti_ceil(busy / over / s.rows - 1e-6);
    rows = fleeti_ceil(busy / over / s.columns - 1e-6);
    s.in_flight_bytes = (columns * l->tile_n + rows * l->tile_m) * l->tile_k * l->element_bytes;
    if (s.in_flight_bytes > plan->l2_budget_bytes) s.rows = s.columns = 1;
    return s;
}

/* Predicts the costs that follow from linear, level and slices. */
static void fleeti_linear_predict(const fleet_linear_desc *d, const fleet_topology *t,
                                  fleet_linear_plan *plan)
{
    const fleet_linear *l = &plan->linear;
    const int cu = plan->level == FLEET_LEVEL_CU;
    const double size = l->element_bytes, output = (double)l->m * l->n;
    double requested = 0, weights[FLEET_MAX_CHIPLETS] = {0}, activations[FLEET_MAX_CHIPLETS] = {0};
    double flops[FLEET_MAX_CHIPLETS] = {0}, longest = 0, partial = 0, units = 0;
    uint32_t c, working = 0;
    plan->weight_bytes = (uint64_t)l->k * l->n * l->element_bytes;
    plan->activation_bytes = (uint64_t)l->m * l->k * l->element_bytes;
    plan->fits_l2 = 1;
    plan->fits_llc = plan->weight_bytes + plan->activation_bytes <= plan->llc_bytes;
    for (uint32_t s = 0; s < plan->slices; s++) {
        const fleet_partition p = fleet_linear_partition(l, s, plan->slices);
        const double over = cu ? plan->chiplets : 1, tiles = (double)p.m_tiles * p.n_tiles;
        const uint32_t k = p.k < l->tile_k ? p.k : l->tile_k;
        const uint64_t end = (uint64_t)(p.first_n + p.n_tiles) * l->tile_n;
        double rows = (double)p.m_tiles * l->tile_m;
        if (!p.m_tiles || !p.n_tiles || !p.k) continue;
        working++, c = s % plan->chiplets;
        double columns = (double)((end < l->n ? end : l->n) - (uint64_t)p.first_n * l->tile_n);
        if (p.first_m + (p.m_tiles - 1) * p.step_m + 1 == plan->m_tiles)
            rows -= (double)((uint64_t)plan->m_tiles * l->tile_m - l->m);
        fleeti_sharing share = fleeti_linear_sharing(plan, &p);
        if (share.in_flight_bytes > plan->in_flight_bytes)
            plan->in_flight_bytes = share.in_flight_bytes;
        if (share.in_flight_bytes > plan->l2_budget_bytes) plan->fits_l2 = 0;
        /* A chiplet reads all columns, unless each row of CU-tasks goes to another chiplet. */
        double mine = columns * fleeti_clamp_double(p.m_tiles / over, 0, 1);
        if (fleeti_ceil(mine * k * size) > plan->window_bytes)
            plan->window_bytes = fleeti_ceil(mine * k * size);
        weights[c] += mine * p.k * size;
        requested += columns * p.k * size * p.m_tiles;
        plan->l2_weight_bytes += columns * p.k * size * p.m_tiles / share.rows;
        double held = rows * p.k * size;
        if (held + (double)share.in_flight_bytes > (double)plan->l2_budget_bytes)
            held *= p.n_tiles / share.columns;
        else
            held *= p.n_tiles < over ? p.n_tiles : over;
        plan->l2_activation_bytes += held;
        activations[c] += held / over;
        flops[c] +=
            (double)fleeti_ceil(tiles / (plan->workers * over)) * 2 * l->tile_m * l->tile_n * p.k;
    }
    for (c = 0; c < plan->chiplets; c++) {
        units += t->units[c];
        if (flops[c] > longest) longest = flops[c];
        if (fleeti_ceil(weights[c]) > plan->chiplet_weight_bytes)
            plan->chiplet_weight_bytes = fleeti_ceil(weights[c]);
        if (activations[c] > plan->chiplet_activation_bytes)
            plan->chiplet_activation_bytes = activations[c];
    }
    plan->hit_rate = 1 - plan->l2_weight_bytes / requested;
    plan->hbm_weight_bytes = plan->fits_llc ? (double)plan->weight_bytes : plan->l2_weight_bytes;
    plan->hbm_activation_bytes =
        plan->fits_llc ? (double)plan->activation_bytes : plan->l2_activation_bytes;
    if (l->split == FLEET_SPLIT_K && working > 1) partial = 4.0 * working * output;
    plan->hbm_output_bytes =
        2 * partial + (d->fused_columns ? (double)l->m * (double)d->fused_columns : output) * size;
    if (d->fused_columns) plan->saved_bytes += 2 * output * size;
    if (d->fused_input) plan->saved_bytes += 2 * (double)plan->activation_bytes;
    double rate = d->rates.flop_per_s[d->element_bytes / 2];
    double hbm = plan->hbm_weight_bytes + plan->hbm_activation_bytes + plan->hbm_output_bytes;
    plan->flops = 2 * output * l->k;
    plan->intensity = 2 * l->m / size / (1 - plan->hit_rate);
    plan->ridge = rate / d->rates.hbm_bytes_per_s;
    plan->memory_us = hbm / d->rates.hbm_bytes_per_s * 1e6;
    plan->compute_us = longest / (rate / units) * 1e6;
    plan->us = plan->memory_us > plan->compute_us ? plan->memory_us : plan->compute_us;
}

static double fleeti_linear_l2_bytes(const fleet_linear_plan *p)
{
    return p->l2_weight_bytes + p->l2_activation_bytes;
}

static uint64_t fleeti_linear_tasks(const fleet_linear_plan *p)
{
    return p->level == FLEET_LEVEL_CU ? (uint64_t)p->m_tiles * p->n_tiles : p->slices;
}

/* -1: a is clearly less, 1: clearly more, 0: they are within 1%. */
static int fleeti_linear_order(double a, double b)
{
    return a * 1.01 < b ? -1 : a > b * 1.01 ? 1 : 0;
}

/* Split K must win by a tenth, because the time of the grid that adds the partial sums is not
   counted. */
static int fleeti_linear_better(const fleet_linear_plan *a, const fleet_linear_plan *b)
{
    const double more = a->linear.split == FLEET_SPLIT_K ? 1.1 : 1;
    const double less = b->linear.split == FLEET_SPLIT_K ? 1.1 : 1;
    int order = fleeti_linear_order(a->us * more, b->us * less);
    if (!order) order = fleeti_linear_order(fleeti_linear_l2_bytes(a), fleeti_linear_l2_bytes(b));
    return order ? order < 0 : fleeti_linear_tasks(a) < fleeti_linear_tasks(b);
}

/* The best traversal for one level and split. base: a plan whose linear lacks only the traversal.
   */
static fleet_linear_plan fleeti_linear_best_traversal(const fleet_linear_desc *d,
                                                      const fleet_topology *t,
                                                      const fleet_linear_plan *base)
{
    fleet_linear_plan best = *base;
    uint32_t traversals = d->traversals ? d->traversals : 7, found = 0;
    if (d->window) traversals = 1u << FLEET_TRAVERSAL_WINDOWED;
    for (uint32_t traversal = 0; traversal <= FLEET_TRAVERSAL_WINDOWED; traversal++) {
        const int windowed = traversal == FLEET_TRAVERSAL_WINDOWED;
        uint32_t first = windowed ? 1 : 0, last = first;
        if (!(traversals >> traversal & 1u)) continue;
        if (d->window)
            first = last = (uint32_t)d->window;
        else if (windowed)
            last = base->n_tiles < FLEETI_LINEAR_WINDOWS ? base->n_tiles : FLEETI_LINEAR_WINDOWS;
        for (uint32_t window = first; window <= last; window++) {
            fleet_linear_plan one = *base;
            one.linear.traversal = traversal;
            one.linear.window = window;
            fleeti_linear_predict(d, t, &one);
            if (!found++ || fleeti_linear_better(&one, &best)) best = one;
        }
    }
    return best;
}

static void fleeti_put_bytes(fleeti_text *out, double bytes)
{
    static const char *const unit[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    uint32_t i = 0;
    while (bytes >= 1024 && i < 5) bytes /= 1024, i++;
    if (i && bytes < 100 && bytes * 10 != (double)(uint64_t)bytes * 10)
        fleeti_put(out, "%.1f %s", bytes, unit[i]);
    else
        fleeti_put(out, "%.0f %s", bytes, unit[i]);
}

static const char *fleeti_traversal_name(uint32_t traversal)
{
    return traversal == FLEET_TRAVERSAL_M_MAJOR   ? "M-major"
           : traversal == FLEET_TRAVERSAL_N_MAJOR ? "N-major"
                                                  : "windowed";
}

static char fleeti_split_letter(uint32_t split)
{
    return split == FLEET_SPLIT_N ? 'N' : split == FLEET_SPLIT_M ? 'M' : 'K';
}

/* Explains what another choice would cost: "split M would take 12.3 us, not 10.2". */
static void fleeti_linear_compare(fleeti_text *out, const fleet_linear_plan *plan,
                                  const fleet_linear_plan *other)
{
    if (other->level == FLEET_LEVEL_CU)
        fleeti_put(out, "; CU-tasks would ");
    else if (plan->level == FLEET_LEVEL_CU)
        fleeti_put(out, "; chiplet-tasks, split %c, would ",
                   fleeti_split_letter(other->linear.split));
    else
        fleeti_put(out, "; split %c%s would ", fleeti_split_letter(other->linear.split),
                   other->linear.split == FLEET_SPLIT_K ? ", a sum to follow," : "");
    if (fleeti_linear_order(plan->us, other->us)) {
        fleeti_put(out, "take %.1f us, not %.1f", other->us, plan->us);
    } else if (fleeti_linear_order(fleeti_linear_l2_bytes(plan), fleeti_linear_l2_bytes(other))) {
        fleeti_put(out, "bring ");
        fleeti_put_bytes(out, fleeti_linear_l2_bytes(other));
        fleeti_put(out, " into the L2s, not ");
        fleeti_put_bytes(out, fleeti_linear_l2_bytes(plan));
    } else if (fleeti_linear_tasks(plan) != fleeti_linear_tasks(other)) {
        fleeti_put(out, "be %llu tasks", (unsigned long long)fleeti_linear_tasks(other));
    } else {
        fleeti_put(out, "save nothing");
    }
}

static void fleeti_linear_explain(fleet_linear_plan *plan, const fleet_linear_plan *best,
                                  const uint32_t *tried, uint32_t chosen)
{
    fleeti_text out = fleeti_text_at(plan->why, sizeof plan->why);
    if (plan->level == FLEET_LEVEL_CU)
        fleeti_put(&out, "%llu CU-tasks", (unsigned long long)fleeti_linear_tasks(plan));
    else
        fleeti_put(&out, "%u chiplet-task%s, split %c", plan->slices, plan->slices > 1 ? "s" : "",
                   fleeti_split_letter(plan->linear.split));
    fleeti_put(&out, ", %s", fleeti_traversal_name(plan->linear.traversal));
    if (plan->linear.traversal == FLEET_TRAVERSAL_WINDOWED)
        fleeti_put(&out, " by %u columns", plan->linear.window);
    if (!plan->fits_l2)
        fleeti_put(&out,
                   ": the columns in flight do not fit the L2 budget, so that no fetch is shared");
    else if (plan->m_tiles == 1)
        fleeti_put(&out, ": one row of tiles, every weight is used once");
    else
        fleeti_put(&out, ": a fetch of weights serves %.1f tiles", 1 / (1 - plan->hit_rate));
    for (uint32_t i = 0; i < 4; i++)
        if (tried[i] && i != chosen) fleeti_linear_compare(&out, plan, &best[i]);
}

fleet_status fleet_linear_choose(const fleet_linear_desc *desc, const fleet_topology *topology,
                                 fleet_linear_plan *plan)
{
    fleet_linear_plan base, best[4]; /* of split N, M, K of chiplet-tasks, and of CU-tasks */
    uint32_t tried[4] = {0, 0, 0, 0}, chosen = 4;
    fleet_status status = FLEET_ERROR_NULL;
    if (!plan) return status;
    memset(plan, 0, sizeof *plan);
    memset(&base, 0, sizeof base);
    fleeti_text out = fleeti_text_at(plan->why, sizeof plan->why);
    if (!desc || !topology)
        fleeti_put(&out, "%s is null", desc ? "topology" : "desc");
    else
        status = fleeti_linear_check_numbers(desc, &out);
    if (status == FLEET_OK) status = fleeti_linear_check_choices(desc, &out);
    if (status == FLEET_OK) status = fleeti_linear_check_chip(desc, topology, &base, &out);
    if (status != FLEET_OK) return status;
    base.linear.m = (uint32_t)desc->m, base.linear.tile_m = (uint32_t)desc->tile_m;
    base.linear.n = (uint32_t)desc->n, base.linear.tile_n = (uint32_t)desc->tile_n;
    base.linear.k = (uint32_t)desc->k, base.linear.tile_k = (uint32_t)desc->tile_k;
    base.linear.element_bytes = (uint32_t)desc->element_bytes;
    base.m_tiles = fleet_linear_m_tiles(&base.linear);
    base.n_tiles = fleet_linear_n_tiles(&base.linear);
    uint32_t levels = desc->levels ? desc->levels : 1u << FLEET_LEVEL_CU | 1u << FLEET_LEVEL_DEVICE;
    if (desc->splits || desc->slices) levels = 1u << FLEET_LEVEL_DEVICE;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t level = i < 3 ? FLEET_LEVEL_DEVICE : FLEET_LEVEL_CU;
        if (!(levels >> level & 1u) || (desc->splits && !(desc->splits >> i & 1u))) continue;
        base.level = level;
        base.linear.split = i < 3 ? i : (uint32_t)FLEET_SPLIT_N;
        base.slices = i == 3 ? 1 : desc->slices ? (uint32_t)desc->slices : base.chiplets;
        best[i] = fleeti_linear_best_traversal(desc, topology, &base);
        tried[i] = 1;
        if (chosen == 4 || fleeti_linear_better(&best[i], &best[chosen])) chosen = i;
    }
    *plan = best[chosen];
    fleeti_linear_explain(plan, best, tried, chosen);
    return FLEET_OK;
}

static double fleeti_linear_hbm_bytes(const fleet_linear_plan *p)
{
    return p->hbm_weight_bytes + p->hbm_activation_bytes + p->hbm_output_bytes;
}

/* Puts bytes, right-aligned in a column. */
static void fleeti_put_column(fleeti_text *out, int width, double bytes)
{
    char cell[32];
    fleeti_text in = fleeti_text_at(cell, sizeof cell);
    fleeti_put_bytes(&in, bytes);
    fleeti_put(out, " %*s", width, cell);
}

/* Puts whether bytes fit the last-level cache: "yes", "no (1.4x)", "none". */
static void fleeti_put_llc(fleeti_text *out, double bytes, uint64_t llc)
{
    char cell[32] = "yes";
    if (!llc)
        snprintf(cell, sizeof cell, "none");
    else if (bytes > (double)llc)
        snprintf(cell, sizeof cell, "no (%.1fx)", bytes / (double)llc);
    fleeti_put(out, " %10s", cell);
}

static void fleeti_put_operator(fleeti_text *out, const char *const *names, uint32_t i)
{
    char number[24];
    snprintf(number, sizeof number, "operator %u", i);
    fleeti_put(out, "%-16s", names && names[i] ? names[i] : number);
}

static void fleeti_linear_report_cuts(const fleet_linear_plan *plans, const char *const *names,
                                      uint32_t count, fleeti_text *out)
{
    double weights = 0, mine = 0, llc = 0;
    uint64_t standard = 0, tasks = 0;
    fleeti_put(out, "\n%-16s %22s %9s %9s %9s %10s %9s %6s %6s %9s %6s\n", "operator", "m x n x k",
               "weights", "/chiplet", "L2 window", "fits LLC", "CU-tasks", "tasks", "split", "walk",
               "window");
    for (uint32_t i = 0; i < count; i++) {
        const fleet_linear_plan *p = &plans[i];
        char shape[48], window[16] = "-";
        fleeti_put_operator(out, names, i);
        if (!p->slices) {
            fleeti_put(out, " %s\n", p->why);
            continue;
        }
        snprintf(shape, sizeof shape, "%u x %u x %u", p->linear.m, p->linear.n, p->linear.k);
        if (p->linear.traversal == FLEET_TRAVERSAL_WINDOWED)
            snprintf(window, sizeof window, "%u", p->linear.window);
        fleeti_put(out, " %22s", shape);
        fleeti_put_column(out, 9, (double)p->weight_bytes);
        fleeti_put_column(out, 9, (double)p->chiplet_weight_bytes);
        fleeti_put_column(out, 9, (double)p->window_bytes);
        fleeti_put_llc(out, (double)p->weight_bytes + (double)p->activation_bytes, p->llc_bytes);
        fleeti_put(out, " %9llu %6llu %6c %9s %6s\n", (unsigned long long)p->m_tiles * p->n_tiles,
                   (unsigned long long)fleeti_linear_tasks(p),
                   p->level == FLEET_LEVEL_CU ? '-' : fleeti_split_letter(p->linear.split),
                   fleeti_traversal_name(p->linear.traversal), window);
        weights += (double)p->weight_bytes;
        mine += (double)p->chiplet_weight_bytes;
        llc += (double)p->weight_bytes + (double)p->activation_bytes;
        standard += (uint64_t)p->m_tiles * p->n_tiles;
        tasks += fleeti_linear_tasks(p);
    }
    fleeti_put(out, "%-16s %22s", "total", "");
    fleeti_put_column(out, 9, weights);
    fleeti_put_column(out, 9, mine);
    fleeti_put(out, " %9s", "");
    fleeti_put_llc(out, llc, count ? plans[0].llc_bytes : 0);
    fleeti_put(out, " %9llu %6llu\n", (unsigned long long)standard, (unsigned long long)tasks);
}

static void fleeti_linear_report_costs(const fleet_linear_plan *plans, const char *const *names,
                                       uint32_t count, fleeti_text *out)
{
    double sum[6] = {0}, flops = 0, us = 0;
    fleeti_put(out, "\n%-16s %6s %9s %9s %9s %9s %9s %9s %10s %8s %8s %10s\n", "operator", "hit",
               "into L2s", "HBM", "weights", "activat.", "outputs", "saved", "eff.FLOP/B", "FLOP/B",
               "bound", "us");
    for (uint32_t i = 0; i < count; i++) {
        const fleet_linear_plan *p = &plans[i];
        const double bytes[6] = {fleeti_linear_l2_bytes(p), fleeti_linear_hbm_bytes(p),
                                 p->hbm_weight_bytes,       p->hbm_activation_bytes,
                                 p->hbm_output_bytes,       p->saved_bytes};
        if (!p->slices) continue;
        fleeti_put_operator(out, names, i);
        fleeti_put(out, " %5.1f%%", 100 * p->hit_rate);
        for (uint32_t k = 0; k < 6; k++) {
            fleeti_put_column(out, 9, bytes[k]);
            sum[k] += bytes[k];
        }
        fleeti_put(out, " %10.1f %8.1f %8s %10.2f\n", p->intensity, p->flops / bytes[1],
                   p->memory_us >= p->compute_us ? "memory" : "compute", p->us);
        flops += p->flops;
        us += p->us;
    }
    fleeti_put(out, "%-16s %6s", "total", "");
    for (uint32_t k = 0; k < 6; k++) fleeti_put_column(out, 9, sum[k]);
    fleeti_put(out, " %10s %8.1f %8s %10.2f\n", "", sum[1] > 0 ? flops / sum[1] : 0, "", us);
}

size_t fleet_linear_report(const fleet_linear_plan *plans, const char *const *names, uint32_t count,
                           char *text, size_t bytes)
{
    fleeti_text out = fleeti_text_at(text, bytes);
    if (!plans) count = 0;
    fleeti_put(&out, "linear layers: %u operator%s", count, count == 1 ? "" : "s");
    for (uint32_t i = 0; i < count; i++) { /* the chip is the same in all plans */
        if (!plans[i].slices) continue;
        fleeti_put(&out, ", %u chiplets of %u workers, ridge %.0f FLOP/B", plans[i].chiplets,
                   plans[i].workers, plans[i].ridge);
        break;
    }
    fleeti_put(&out, "\n");
    fleeti_linear_report_cuts(plans, names, count, &out);
    fleeti_linear_report_costs(plans, names, count, &out);
    for (uint32_t i = 0; i < count; i++) {
        fleeti_put(&out, i ? "" : "\n");
        fleeti_put_operator(&out, names, i);
        fleeti_put(&out, " %s\n", plans[i].why);
    }
    return out.length;
}

FLEET_C_END

#endif /* FLEET_IMPLEMENTATION */
