/* The linear layers of a Qwen3-8B decoder layer as plans, and their walk through the caches of cache_sim.h: every
   queue of a plan, descriptor by descriptor, tile by tile, chunk of K by chunk of K.

   WHAT A TILE DOES
     A tile of 16 x 64 outputs loads 16 x 256 activations and 64 x 256 weights (8 and 32 KB, each line once: waves
     share them through LDS) per chunk of K, and stores its rows at the end. Weights lie as checkpoints have them,
     [N, K]. Activations are loaded by whole tiles, the rows past the batch too; stores are of real rows only.
     Weights that no other tile of the part needs (one row of tiles) are streamed past the others.
     gate_up of FLEET's plans has SiLU in it (gate and up columns in turn) and stores 16 x 32; the chiplet-unaware
     plan stores both and has SiLU as tasks of their own.
   WHICH WORKERS, AND WHEN
     All from the plan: which worker of which chiplet has which task and slice (fleet_linear_partition, fleet_partition_tile),
     and when a release and an arrival happen: after each CU-task, or when all workers of a chiplet have ended.
     A grid waits for all of the one before it. Within a grid all workers take a chunk of K per step, in turn, but
     for the drift: each starts each of its tiles 0 to LOCALITY_DRIFT steps late, drawn by a seed.
   WHAT IS COUNTED
     Hit rate: all requests of one line to the L2s, loads and stores, of weights, activations and outputs. Reads and
     writes: lines between the L2s and the fabric, where the hardware has its counters; a device-scope atomic is a
     write. HBM as such is counted too, and is the same for all plans: see below.

   PARAMETERS that are no hardware facts; one value for all figures
     LOCALITY_DRIFT 14    steps. Lock-step gives M-tile 57 and 76% at B = 32 and 64; the paper's 51 and 61 show
                          workers that drift. With 12 to 16 both are within 6 points of the paper, with 8 and 20
                          only one is.
     all rows of a tile are loaded: with the real ones alone B = 1 gives 1%; the paper has 17% there and 24% at
                          B = 16, where all rows are real.
     the chiplet-unaware plan (fleet_plan_desc.chiplet_unaware, each product one slice, N-major) takes an output's tiles row
                          after row (all columns, then the next 16 rows), as independent CU-tasks, each chiplet in
                          turn: 36 and 42%, the paper's Mirage 38.9 and 39.0.
   TRIED, hit rates of Mirage-like / M-tile / M-split at B = 64
     unaware, column after column         19: m_tiles divides 8, and no chiplet gets two tiles of a column
     unaware, the graph of M-tile itself  19: its slices are columns in the same order, eight runs of them
     unaware, a task is a column with     21: 31 columns of 512 KB do not fit until their next rows begin
       all of its rows
     no hash; weights as [K, N]           within 3 points of the figures above
     each acquire forgets the whole L2    26 / 53 / 18, at B = 1 13 / 15 / 15: all too low

   WHAT DOES NOT FIT Table 4, and why
     M-split at B = 32 and 64 has 19.5%, the paper 39.5 and 47.4%. There no chiplet reads a weight twice, so that
     only activations can hit, a fifth of the requests. By the paper's own figures the other hits are not those of
     GEMM tiles: reads = requests x (1 - hit rate), so that M-split makes 1.11 and 1.39 times as many requests as
     Mirage (M-tile 1.02 and 1.00), while the same GEMMs in the same tiles make the same number. With as many as
     Mirage, its reads mean 1 - 1.10 x 61.1% = 33% and 1 - 1.20 x 61.0% = 27%: M-tile, Mirage, M-split, the order
     of these figures too. The order of the reads holds as it stands.
     B <= 16: 18.7% throughout; the paper's 16 to 24% grow with B: attention and its caches are not here. Nor does
     SiLU of its own change the rate here, which the paper has at 9.4 and 17.4%: it is 0.1% of the requests.
     The paper's abstract has 12% for Mirage and 54% for M-tile at B = 32, its Table 4 38.9 and 51.0%.
     Behind a last-level cache of 256 MB the reads of all plans are the same within 1%: chiplets that read the same
     weights do so at about the same time. The paper's ratios are those of L2 misses (38.6 / 61.0 = 0.63 at
     B = 64), so its "HBM reads" are compared with the reads of the L2s.
     Writes: at B = 32 and 64 halves of SiLU's lines leave an L2 before their other halves are there; both count.

   CROSS-CHECK (commit 74eb900, tests/bench/locality_gpu.sh): the same plans as gfx942 code on the simulated MI300X, hit
   rates of Mirage-like / M-tile / M-split: B = 1: 18.6 / 18.7 / 18.9, B = 32: 36.6 / 52.8 / 19.5, B = 64: 41.2 / 73.7 /
   19.6. Its workers drift as its scheduler has it, like those here with a drift of 4 to 6 steps.
*/
#ifndef FLEET_LOCALITY_H
#define FLEET_LOCALITY_H

#include "../plan/walk.h"
#include "examples/parts/fleet_linear.h"
#include "cache_sim.h"

#define LOCALITY_DRIFT 14u
#define LOCALITY_SEED 1u
#define LOCALITY_WORKERS 31u /* W: one unit of each chiplet is the scheduler's */
#define LOCALITY_TILE_M 16u
#define LOCALITY_TILE_N 64u
#define LOCALITY_TILE_K 256u
#define LOCALITY_ELEMENT_BYTES 2u

/* ---- the paper: Table 4 of FLEET (arXiv 2604.15379) ---- */

typedef struct paper_row {
    uint32_t batch;
    double unaware_hit, m_tile_hit, m_split_hit; /* % */
    double m_tile_reads, m_split_reads;          /* of Mirage's */
    double m_tile_writes, m_split_writes;
} paper_row;

static const paper_row paper_table4[] = {{1, 16.4, 16.9, 17.0, 0.98, 0.99, 0.32, 0.87},
                                         {8, 20.0, 20.8, 20.8, 1.00, 1.01, 0.33, 0.38},
                                         {16, 22.2, 23.7, 23.5, 0.97, 0.98, 0.45, 0.41},
                                         {32, 38.9, 51.0, 39.5, 0.82, 1.10, 0.38, 0.40},
                                         {64, 39.0, 61.4, 47.4, 0.63, 1.20, 0.44, 0.44}};
#define PAPER_ROWS (sizeof paper_table4 / sizeof paper_table4[0])

/* ---- the layer ---- */

typedef enum layer_op { OP_QKV, OP_O, OP_GATE_UP, OP_SILU, OP_DOWN, OPS } layer_op;

typedef struct layer_shape {
    const char *name;
    uint32_t k, n; /* SILU: outputs n, and no weights */
} layer_shape;

static const layer_shape layer_shapes[OPS] = {{"qkv", 4096, 6144},
                                              {"o", 4096, 4096},
                                              {"gate_up", 4096, 24576},
                                              {"silu", 0, 12288},
                                              {"down", 12288, 4096}};

typedef enum layer_kind {
    LAYER_M_TILE,
    LAYER_M_SPLIT,
    LAYER_UNAWARE /* fleet_plan_desc.chiplet_unaware, products in one slice, row of tiles after row of tiles */
} layer_kind;

typedef struct layer {
    layer_kind kind;
    fleet_linear linear[OPS];              /* silu: of its outputs */
    uint32_t x[OPS], weights[OPS], y[OPS]; /* their first lines */
    fleet_plan *plan;
    char why[512]; /* where the plan cannot be built */
} layer;

/* The layer's operators in a row, each waiting for all of the one before. Null: l->why says why. */
static inline fleet_plan *layer_build(layer *l)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_plan_desc d = fleet_plan_desc_default();
    const int unaware = l->kind == LAYER_UNAWARE;
    fleet_plan *plan = NULL;
    fleet_etensor before;
    uint32_t i, slices;
    before.id = 0;
    d.topology = fleet_topology_preset(FLEET_MI350X);
    slices = unaware ? 1 : d.topology.chiplets;
    d.workers_per_chiplet = LOCALITY_WORKERS;
    d.chiplet_unaware = (uint32_t)unaware;
    d.counter_levels = unaware ? 1 : 2;
    for (i = 0; i < OPS; i++) {
        const char *name = layer_shapes[i].name;
        const fleet_partition longest = fleet_linear_partition(&l->linear[i], 0, slices);
        char done[16];
        fleet_etensor E;
        fleet_grid grid;
        if (i == OP_SILU && !unaware) continue;
        snprintf(done, sizeof done, "%s_done", name);
        E = fleet_event_tensor(g, done, fleet_shape0(), FLEET_COUNT_DERIVED);
        grid = fleet_call_device(g, name, 0, fleet_shape0(), i);
        fleet_grid_level(g, grid, FLEET_LEVEL_DEVICE);
        fleet_grid_slices(g, grid, fleet_dim_of((int32_t)slices));
        fleet_grid_tiles(g, grid, fleet_dim_of((int32_t)(longest.m_tiles * longest.n_tiles)));
        fleet_out_edge_map(g, grid, E, fleet_map0());
        if (before.id) fleet_in_edge_map(g, grid, before, fleet_map0());
        before = E;
    }
    fleet_event_external(g, before, FLEET_EXTERNAL_WAITS, 0, FLEET_SCOPE_DEVICE);
    if (fleet_plan_build(g, &d, &plan)) snprintf(l->why, sizeof l->why, "%s", fleet_graph_error(g));
    fleet_graph_destroy(g);
    return plan;
}

/* Memory for a tensor, from 2 MB on: its first line. */
static inline uint32_t layer_take(uint32_t *next, uint64_t bytes)
{
    const uint32_t lines = (2u << 20) / CACHE_LINE_BYTES;
    const uint32_t first = *next;
    *next += (uint32_t)((bytes / CACHE_LINE_BYTES + lines - 1) / lines) * lines;
    return first;
}

/* 0: the plan cannot be built. */
static inline int layer_make(layer *l, layer_kind kind, uint32_t batch)
{
    uint32_t i, next = (2u << 20) / CACHE_LINE_BYTES;
    memset(l, 0, sizeof *l);
    l->kind = kind;
    for (i = 0; i < OPS; i++) {
        fleet_linear *f = &l->linear[i];
        uint64_t rows;
        f->m = batch, f->n = layer_shapes[i].n, f->k = layer_shapes[i].k;
        f->tile_m = LOCALITY_TILE_M, f->tile_n = LOCALITY_TILE_N, f->tile_k = LOCALITY_TILE_K;
        f->element_bytes = LOCALITY_ELEMENT_BYTES;
        f->split = kind == LAYER_M_SPLIT ? FLEET_SPLIT_M : FLEET_SPLIT_N;
        f->traversal = kind == LAYER_UNAWARE ? FLEET_TRAVERSAL_N_MAJOR : FLEET_TRAVERSAL_M_MAJOR;
        rows = (uint64_t)fleet_linear_m_tiles(f) * f->tile_m;
        /* silu's inputs are gate_up's outputs, down's inputs silu's outputs */
        if (i == OP_SILU)
            l->x[i] = l->y[OP_GATE_UP];
        else if (i == OP_DOWN)
            l->x[i] = l->y[OP_SILU];
        else
            l->x[i] = layer_take(&next, rows * f->k * f->element_bytes);
        l->weights[i] = layer_take(&next, (uint64_t)f->k * f->n * f->element_bytes);
        l->y[i] = layer_take(&next, rows * f->n * f->element_bytes);
    }
    l->plan = layer_build(l);
    return l->plan != NULL;
}

/* ---- the walk ---- */

typedef struct locality_model {
    uint32_t drift; /* steps */
    uint64_t seed;
} locality_model;

static inline locality_model locality_model_default(void)
{
    locality_model m;
    memset(&m, 0, sizeof m);
    m.drift = LOCALITY_DRIFT;
    m.seed = LOCALITY_SEED;
    return m;
}

typedef struct op_counts {
    uint64_t requests, hits;               /* all */
    uint64_t weight_requests, weight_hits; /* of weights */
} op_counts;

typedef struct locality {
    cache_counts total;
    op_counts op[OPS];
} locality;

/* One tile that a worker runs. */
typedef struct walk_tile {
    uint32_t desc;
    fleet_tile at;
    uint32_t streams; /* its weights */
    uint32_t ends_task;
} walk_tile;

/* A worker in one grid. */
typedef struct walk_worker {
    uint32_t chiplet;
    uint32_t first, count, done; /* of the tiles */
    uint32_t chunk;              /* of the next tile's K */
    uint32_t starts;             /* the next tile at this step */
} walk_worker;

typedef struct walk {
    const layer *l;
    locality_model model;
    cache_sim sim;
    walk_worker *workers;
    walk_tile *tiles;
    uint32_t n_tiles, most_tiles;
    uint32_t arrived[FLEET_MAX_CHIPLETS]; /* at the chiplet's counter of this grid's event */
    locality result;
} walk;

static inline walk_tile *walk_add(walk *w, walk_worker *worker, uint32_t desc, fleet_tile at)
{
    walk_tile *tile;
    if (w->n_tiles == w->most_tiles) {
        w->most_tiles = 2 * w->most_tiles + 1024;
        w->tiles = (walk_tile *)realloc(w->tiles, w->most_tiles * sizeof *w->tiles);
        if (!w->tiles) abort();
    }
    tile = &w->tiles[w->n_tiles++];
    memset(tile, 0, sizeof *tile);
    tile->desc = desc;
    tile->at = at;
    worker->count++;
    return tile;
}

/* What a task's end does to its chiplet's L2: its notify records say whether a chiplet's workers count first. */
static inline void walk_end_task(walk *w, uint32_t chiplet, uint32_t desc)
{
    const fleet_task *task = &tasks_of(w->l->plan)[desc];
    uint32_t i;
    for (i = 0; i < task->n_notifies; i++) {
        const fleeti_notify *n = &notifies_of(w->l->plan)[task->notifies + i];
        if ((n->sub & ~FLEETI_LOCAL) && ++w->arrived[chiplet] < n->share) continue;
        cache_sim_release(&w->sim, chiplet);
        cache_sim_arrive(&w->sim);
    }
}

/* The tiles of one descriptor of a worker's queue. */
static inline void walk_task(walk *w, walk_worker *worker, uint32_t rank, uint32_t desc)
{
    const fleet_plan *plan = w->l->plan;
    const fleet_task *task = &tasks_of(plan)[desc];
    const fleet_linear *f = &w->l->linear[task->args];
    const uint32_t before = worker->count, alone = task->level == FLEETI_LEVEL_PART;
    const uint32_t slices = alone ? task->slices & 0xffff : task->slices;
    const uint32_t first = alone ? task->batch : rank;
    const uint32_t stride = alone ? task->slices >> 16 : plan->workers[worker->chiplet];
    const fleet_partition part = fleet_linear_partition(f, task->slice, slices);
    uint32_t t;
    for (t = first; t < part.m_tiles * part.n_tiles; t += stride)
        walk_add(w, worker, desc, fleet_partition_tile(f, &part, t))->streams =
            !alone && part.m_tiles == 1;
    if (worker->count == before)
        walk_end_task(w, worker->chiplet, desc);
    else
        w->tiles[worker->first + worker->count - 1].ends_task = 1;
}

/* Loads `rows` rows of `lines` lines, `pitch` apart. Returns the hits. */
static inline uint32_t walk_load(walk *w, uint32_t chiplet, uint32_t line, uint32_t rows,
                                 uint32_t pitch, uint32_t lines, uint32_t bits)
{
    uint32_t hits = 0, r, i;
    for (r = 0; r < rows; r++)
        for (i = 0; i < lines; i++)
            hits += (uint32_t)cache_sim_access(&w->sim, chiplet, line + r * pitch + i, bits);
    return hits;
}

/* A store of the tile's real rows, `columns` elements of each. */
static inline void walk_store(walk *w, uint32_t chiplet, uint32_t op, fleet_tile at,
                              uint32_t columns)
{
    const fleet_linear *f = &w->l->linear[op];
    const uint32_t pitch = f->n * f->element_bytes / CACHE_LINE_BYTES;
    const uint32_t line = at.n * columns * f->element_bytes / CACHE_LINE_BYTES;
    uint32_t row;
    for (row = at.m * f->tile_m; row < (at.m + 1) * f->tile_m && row < f->m; row++)
        cache_sim_access(&w->sim, chiplet, w->l->y[op] + row * pitch + line, CACHE_DIRTY);
}

/* SiLU of 16 x 64: reads a line of gate and one of up for each real row. */
static inline void walk_silu(walk *w, uint32_t chiplet, fleet_tile at)
{
    const fleet_linear *f = &w->l->linear[OP_SILU];
    const uint32_t line_columns = CACHE_LINE_BYTES / f->element_bytes;
    const uint32_t first = at.m * f->tile_m, left = f->m - first;
    const uint32_t rows = left < f->tile_m ? left : f->tile_m;
    const uint32_t pitch = 2 * f->n / line_columns;
    const uint32_t gate = w->l->x[OP_SILU] + first * pitch + at.n;
    walk_load(w, chiplet, gate, rows, pitch, 1, 0);
    walk_load(w, chiplet, gate + f->n / line_columns, rows, pitch, 1, 0);
    walk_store(w, chiplet, OP_SILU, at, f->tile_n);
}

/* Chunk `chunk` of a tile's K; the last one stores the outputs. */
static inline void walk_chunk(walk *w, uint32_t chiplet, uint32_t op, const walk_tile *tile,
                              uint32_t chunk, uint32_t chunks)
{
    const layer *l = w->l;
    const fleet_linear *f = &l->linear[op];
    const uint32_t lines = f->tile_k * f->element_bytes / CACHE_LINE_BYTES;
    const uint32_t pitch = f->k * f->element_bytes / CACHE_LINE_BYTES;
    const uint32_t m = tile->at.m * f->tile_m, n = tile->at.n * f->tile_n;
    const uint32_t bits = tile->streams ? CACHE_STREAMED : 0;
    op_counts *counts = &w->result.op[op];
    walk_load(w, chiplet, l->x[op] + m * pitch + chunk * lines, f->tile_m, pitch, lines, 0);
    counts->weight_requests += (uint64_t)f->tile_n * lines;
    counts->weight_hits += walk_load(w, chiplet, l->weights[op] + n * pitch + chunk * lines,
                                     f->tile_n, pitch, lines, bits);
    if (chunk + 1 < chunks) return;
    if (op == OP_GATE_UP && l->kind != LAYER_UNAWARE)
        walk_store(w, chiplet, OP_SILU, tile->at, f->tile_n / 2);
    else
        walk_store(w, chiplet, op, tile->at, f->tile_n);
}

/* One step of one worker. Returns 1 where it has just ended its last tile. */
static inline int walk_step(walk *w, walk_worker *worker, uint32_t op, uint32_t step)
{
    const walk_tile *tile = &w->tiles[worker->first + worker->done];
    const uint32_t k = worker->chiplet, tile_k = w->l->linear[op].tile_k;
    const uint32_t chunks = op == OP_SILU ? 1 : w->l->linear[op].k / tile_k;
    if (op == OP_SILU)
        walk_silu(w, k, tile->at);
    else
        walk_chunk(w, k, op, tile, worker->chunk, chunks);
    if (++worker->chunk < chunks) return 0;
    if (tile->ends_task) walk_end_task(w, k, tile->desc);
    worker->chunk = 0;
    worker->starts = step + 1 + draw(&w->model.seed, w->model.drift + 1);
    return ++worker->done == worker->count;
}

/* All of one operator: its tiles from the queues, then step by step. */
static inline void walk_op(walk *w, uint32_t op)
{
    const fleet_plan *plan = w->l->plan;
    const cache_counts before = w->sim.counts;
    uint32_t q, d, step, working = 0;
    w->n_tiles = 0;
    memset(w->arrived, 0, sizeof w->arrived);
    for (q = 0; q < plan->total_workers; q++) {
        const fleeti_queue *queue = &queues_of(plan)[q];
        walk_worker *worker = &w->workers[q];
        memset(worker, 0, sizeof *worker);
        worker->chiplet = chiplet_of_queue(plan, q);
        worker->first = w->n_tiles;
        worker->starts = draw(&w->model.seed, w->model.drift + 1);
        for (d = queue->first; d < queue->first + queue->count; d++)
            if (tasks_of(plan)[d].tile != FLEETI_TILE_NONE && tasks_of(plan)[d].args == op)
                walk_task(w, worker, q - plan->worker_base[worker->chiplet], d);
        working += worker->count != 0;
    }
    for (step = 0; working; step++)
        for (q = 0; q < plan->total_workers; q++) {
            walk_worker *worker = &w->workers[q];
            if (step >= worker->starts && worker->done < worker->count)
                working -= (uint32_t)walk_step(w, worker, op, step);
        }
    w->result.op[op].requests = w->sim.counts.requests - before.requests;
    w->result.op[op].hits = w->sim.counts.hits - before.hits;
}

/* The whole layer from empty caches: a decoder's weights are larger than the last-level cache, so that nothing of them
   is left from the step before. */
static inline locality locality_run(const layer *l, const locality_model *model)
{
    const fleet_topology *t = &l->plan->topology;
    walk w;
    uint32_t i;
    memset(&w, 0, sizeof w);
    w.l = l;
    w.model = *model;
    w.workers = (walk_worker *)calloc(l->plan->total_workers, sizeof *w.workers);
    if (!w.workers || !cache_sim_make(&w.sim, t->chiplets, t->l2_bytes, t->llc_bytes)) abort();
    for (i = 0; i < OPS; i++) walk_op(&w, i);
    w.result.total = w.sim.counts;
    cache_sim_free(&w.sim);
    free(w.workers);
    free(w.tiles);
    return w.result;
}

/* ---- what the test and the benchmark ask ---- */

static inline double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}
static inline double hit_rate(const locality *r)
{
    return percent(r->total.hits, r->total.requests);
}
static inline double ratio(uint64_t a, uint64_t b)
{
    return (double)a / (double)b;
}

/* Weights of one operator that the largest slice of its device-task reads. */
static inline uint64_t weight_bytes_of_chiplet(const fleet_linear *f, uint32_t chiplets)
{
    uint64_t most = 0, bytes;
    uint32_t s;
    for (s = 0; s < chiplets; s++) {
        const fleet_partition part = fleet_linear_partition(f, s, chiplets);
        bytes = (uint64_t)part.n_tiles * f->tile_n * part.k * f->element_bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

#endif
