/* A graph as plain data, with everything that fleet.h can say of one, and an oracle that enumerates its tasks and their
   dependencies by brute force from the declared maps. It shares no code with the builder.

   The one tile uses plain loads and stores for all that order must carry: it reads cells of the tasks that it depends
   on, cells of the step before, and its own count of runs, and writes a value that follows from what it has read. So a
   missing fence, a task that runs twice or too early, and a step that begins too early give wrong data. No atomic
   operation of the tile's orders anything: on the host an observer keeps, in memory that no model of caches and no
   sanitizer looks at, which tasks have begun and ended; on a GPU an add whose result is unused counts runs. */
#ifndef FLEET_TEST_ORACLE_H
#define FLEET_TEST_ORACLE_H

#include "settings.h"

/* ---- what tiles see ---- */

#define SPEC_TENSORS 3
#define SPEC_SYMBOLS 3u

typedef struct observer { /* host memory; epochs by cell */
    uint32_t *began, *ended;
    uint32_t broken, what, cell, other, epoch; /* how often; the first */
} observer;
enum { BROKEN_TWICE = 1, BROKEN_EARLY, BROKEN_STEP };

typedef struct tensor_job { /* the writer's part of a run-time tensor */
    int32_t *to;            /* null: none */
    const int32_t *from;    /* [step][values] */
    uint32_t values, row;   /* row: values of one task; 0: one task writes them all */
} tensor_job;

typedef struct plain {          /* one for each grid */
    uint32_t *cells;            /* [epoch & 1][cell][CELL_WORDS] */
    uint32_t *runs;             /* per cell, by plain loads and stores */
    uint32_t *hits;             /* the same, by atomic adds */
    uint32_t *wrong;            /* [cell][WRONG_WORDS]: the first wrong word that it read */
    const uint32_t *cell_of;    /* first cell of each task: [slice][part] */
    const uint32_t *first_read; /* [step][task][2]: of this step, of the step before; and the end */
    const uint32_t *reads;      /* cells */
    uint32_t n_cells, n_tasks;
    uint32_t parts;  /* cells per slice */
    uint32_t single; /* 1: cells have one generation only, and steps may overlap */
    /* What symbols are: [step][2][SPEC_SYMBOLS], before and after a cut. A bit for each symbol that the grid's task sets for
       the next step, cuts, or looks at; late: it comes after the cut. */
    const int32_t *symbols;
    uint32_t sets, cuts, looks, late;
    tensor_job job[SPEC_TENSORS];
    const uint32_t *fed; /* [FED_WORDS]: what streams bring */
    observer *seen;      /* on the host */
} plain;

#define WRONG_WORDS 8u /* from, word, got, want, epoch, of the step before, 1 */

FLEET_HOST_DEVICE uint32_t plain_value(uint32_t cell, uint32_t epoch, uint32_t word)
{
    return (cell * 0x9e3779b1u ^ epoch * 0x85ebca6bu) + word * 0x01000193u;
}

#if defined(FLEET_HOST)
#define SEEN_PUT(at, value) __atomic_store_n(at, value, __ATOMIC_RELAXED)
#define SEEN_GET(at) __atomic_load_n(at, __ATOMIC_RELAXED)
static inline void observer_broken(observer *o, uint32_t what, uint32_t cell, uint32_t other,
                                   uint32_t epoch)
{
    if (__atomic_fetch_add(&o->broken, 1, __ATOMIC_RELAXED)) return;
    SEEN_PUT(&o->what, what), SEEN_PUT(&o->cell, cell);
    SEEN_PUT(&o->other, other), SEEN_PUT(&o->epoch, epoch);
}
static inline void observe_begin(const plain *p, uint32_t cell, const uint32_t *first,
                                 uint32_t epoch)
{
    observer *o = p->seen;
    uint32_t k;
    if (SEEN_GET(&o->began[cell]) == epoch) observer_broken(o, BROKEN_TWICE, cell, cell, epoch);
    SEEN_PUT(&o->began[cell], epoch);
    for (k = first[0]; k < first[2]; k++) {
        const uint32_t ended = SEEN_GET(&o->ended[p->reads[k]]);
        if (k < first[1] && ended != epoch)
            observer_broken(o, BROKEN_EARLY, cell, p->reads[k], epoch);
        /* The other may have run in this step already. */
        if (k >= first[1] && ended != epoch && ended != epoch - 1)
            observer_broken(o, BROKEN_STEP, cell, p->reads[k], epoch);
    }
}
static inline void observe_end(const plain *p, uint32_t cell, uint32_t epoch)
{
    SEEN_PUT(&p->seen->ended[cell], epoch);
}
#else
FLEET_DEVICE void observe_begin(const plain *p, uint32_t cell, const uint32_t *first,
                                uint32_t epoch)
{
    FLEET_UNUSED(p), FLEET_UNUSED(cell), FLEET_UNUSED(first), FLEET_UNUSED(epoch);
}
FLEET_DEVICE void observe_end(const plain *p, uint32_t cell, uint32_t epoch)
{
    FLEET_UNUSED(p), FLEET_UNUSED(cell), FLEET_UNUSED(epoch);
}
#endif

/* A symbol has the value of this step, and tasks set those of the next one. */
FLEET_DEVICE fleet_status touch_symbols(const fleet_ctx *ctx, const plain *p)
{
    const int32_t *now = p->symbols + 2 * SPEC_SYMBOLS * ctx->step;
    fleet_status status = FLEET_OK;
    for (uint32_t s = 0; s < SPEC_SYMBOLS; s++)
        if (p->looks >> s & 1 && fleet_symbol_now(ctx, s) != now[p->late * SPEC_SYMBOLS + s])
            return FLEET_ERROR_SYMBOL_RANGE;
    for (uint32_t s = 0; s < SPEC_SYMBOLS && !status; s++) {
        if (p->sets >> s & 1) status = fleet_next_symbol(ctx, s, now[2 * SPEC_SYMBOLS + s]);
        if (p->cuts >> s & 1 && !status) status = fleet_cut_symbol(ctx, s, now[SPEC_SYMBOLS + s]);
    }
    return status;
}

FLEET_DEVICE fleet_status touch_cells(const fleet_ctx ctx, const plain *args)
{
    const uint32_t cell = args->cell_of[ctx.task] + ctx.slice * args->parts + ctx.tile_index;
    const uint32_t *first = args->first_read + 2 * (ctx.step * args->n_tasks + ctx.task);
    const uint32_t now = args->single ? 0 : ctx.epoch & 1;
    uint32_t bad = 0, k, w;
    if (ctx.tile_index >= ctx.tile_num || ctx.slice >= ctx.slices || ctx.worker >= ctx.workers)
        return FLEET_ERROR_TILE;
    if (ctx.thread == 0) observe_begin(args, cell, first, ctx.epoch);
    for (k = first[0]; k < first[2]; k++) {
        const uint32_t before = k >= first[1], from = args->reads[k];
        const uint32_t *at =
            args->cells + ((before ? 1 - now : now) * args->n_cells + from) * CELL_WORDS;
        /* Not the words that this thread would have written itself: another wave's. */
        for (w = ctx.thread; w < CELL_WORDS; w += ctx.threads) {
            const uint32_t word = CELL_WORDS - 1 - w, got = at[word];
            const uint32_t want = plain_value(from, ctx.epoch - before, word);
            uint32_t *wrong = args->wrong + cell * WRONG_WORDS;
            if (got == want || bad) continue;
            bad = 0x5a5a5a5au;
            wrong[0] = from, wrong[1] = word, wrong[2] = got, wrong[3] = want;
            wrong[4] = ctx.epoch, wrong[5] = before, wrong[6] = 1;
        }
    }
    for (k = 0; k < SPEC_TENSORS; k++) {
        const tensor_job *job = &args->job[k];
        const uint32_t n = job->row ? job->row : job->values;
        const uint32_t at_first = job->row ? (uint32_t)ctx.at[0] * job->row : 0;
        if (!job->to) continue;
        for (w = ctx.thread; w < n; w += ctx.threads)
            job->to[at_first + w] = job->from[ctx.step * job->values + at_first + w];
    }
    for (w = ctx.thread; w < CELL_WORDS; w += ctx.threads)
        args->cells[(now * args->n_cells + cell) * CELL_WORDS + w] =
            plain_value(cell, ctx.epoch, w) + bad;
    if (ctx.thread == 0) {
        args->runs[cell] = args->runs[cell] + 1;
        fleet_add_relaxed_device(args->hits + cell, 1);
        observe_end(args, cell, ctx.epoch);
    }
    return touch_symbols(&ctx, args);
}
FLEET_TILE(touch, plain)
{
    (void)at;
    return touch_cells(ctx, args);
}

#define PLAIN_TILES(TILE, P) TILE(P, touch)
FLEET_DISPATCH(plain, PLAIN_TILES)
FLEET_KERNEL(plain_kernel, plain, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(plain);
}

/* The same tile with a weight pipeline. A task of a workgroup has a stream of no stage up to two rings, another one in each
   step. Some tasks take half of it, or nothing, and some streams wait for their task, for the one before, or for the step
   before. */
#define FED_BYTES 1024u
#define FED_RING 3u
#define FED_STARTS 64u
#define FED_WORDS (FED_STARTS * 16 + FED_BYTES / 4)
typedef plain fed;
typedef struct fed_stream {
    uint32_t first, stages, taken, waits;
} fed_stream;
FLEET_DEVICE fed_stream fed_stream_of(const fleet_ctx *ctx, const plain *args)
{
    const uint32_t cell = args->cell_of[ctx->task] + ctx->slice * args->parts + ctx->tile_index;
    const uint32_t number = (cell * 0x9e3779b1u ^ ctx->epoch * 0x85ebca6bu) >> 8;
    fed_stream s;
    s.first = number / 64, s.waits = number % 8;
    s.stages = number / 8 % (2 * FED_RING + 1);
    s.taken = number / 64 % 4 == 0 ? s.stages / 2 : number / 64 % 8 == 1 ? 0 : s.stages;
    return s;
}
FLEET_DEVICE const uint32_t *fed_at(const plain *args, fed_stream s, uint32_t stage)
{
    return args->fed + (s.first + stage) % FED_STARTS * 16;
}
FLEET_PRODUCER(feed, fed)
{
    const fed_stream s = fed_stream_of(&ctx, args);
    (void)at;
    if (s.waits == 0 && !fleet_producer_await_task(producer)) return;
    if (s.waits == 1 && !fleet_producer_await_previous(producer)) return;
    if (s.waits == 2 && !fleet_producer_await_step(producer)) return;
    for (uint32_t i = 0; i < s.stages; i++)
        fleet_producer_copy(producer, fed_at(args, s, i), FED_BYTES);
}
FLEET_TILE(feed, fed)
{
    const fed_stream s = fed_stream_of(&ctx, args);
    (void)at;
    if (ctx.group == FLEET_BLOCK && s.taken) {
        fleet_consumer consumer = fleet_consumer_open(&ctx);
        for (uint32_t i = 0; i < s.taken; i++) {
            const uint32_t *stage = (const uint32_t *)fleet_stage_acquire(&consumer);
            const uint32_t *want = fed_at(args, s, i);
            uint32_t wrong = 0;
            if (!stage) return fleet_consumer_status(&consumer);
            for (uint32_t w = ctx.thread; w < FED_BYTES / 4; w += ctx.threads)
                wrong |= stage[w] ^ want[w];
            if (wrong) return FLEET_ERROR_DEVICE;
            fleet_stage_release(&consumer, ctx.threads / fleet_wave_size());
        }
    }
    return touch_cells(ctx, args);
}
#define FED_TILES(TILE, P) TILE(P, feed)
FLEET_DISPATCH_WITH_PIPELINE(fed, FED_TILES, FED_TILES, FED_RING, FED_BYTES)
FLEET_KERNEL(fed_kernel, fed, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(fed);
}

/* ---- a graph as data ---- */

#define SPEC_GRIDS 12u
#define SPEC_EVENTS 16u
#define SPEC_EDGES 64u
#define SPEC_BUFFERS SPEC_GRIDS
#define SPEC_TASKS 160u
#define SPEC_ELEMENTS 256u
#define SPEC_SET (SPEC_ELEMENTS / 64)
#define SPEC_STEPS 4u
#define SPEC_CELLS 4096u
#define SPEC_VALUES 64u /* of a run-time tensor */
#define SPEC_BUCKETS 16u

typedef struct spec_symbol {
    int64_t min, max, value; /* value: of one that is bound at build */
    uint32_t at_build;
    uint32_t n_buckets; /* given; 0: those by default */
    int64_t buckets[4];
    fleet_dim handle;
} spec_symbol;

typedef struct spec_grid { /* dims: .symbol counts from 1 */
    uint32_t rank;
    fleet_dim extent[FLEET_MAX_RANK];
    fleet_level level;
    uint32_t has_slices, has_tiles, is_placed, has_schedule;
    fleet_dim slices, tiles;
    fleet_map place;
    fleet_schedule schedule;
    uint64_t mean_ns; /* 0: not given */
    uint32_t has_key;
    fleet_key key;
    uint32_t reads; /* a bit for each grid whose buffer it declares to read */
    fleet_grid handle;
} spec_grid;

typedef struct spec_event {
    uint32_t rank;
    fleet_dim extent[FLEET_MAX_RANK];
    int64_t count;
    uint32_t has_scope, by_tensor, counts; /* counts: 1 + tensor */
    fleet_scope scope;
    fleet_etensor handle;
} spec_event;

typedef struct spec_edge {
    uint32_t grid, event, out;
    uint32_t tensor; /* 1 + the tensor of a gather or a range */
    fleet_map map;
} spec_edge;

typedef struct spec_tensor {
    uint32_t writer, rank;
    fleet_dim extent[2];
    int32_t none; /* of a gather: names no element; 0: not declared */
    fleet_tensor handle;
} spec_tensor;

typedef struct spec {
    spec_symbol symbols[SPEC_SYMBOLS];
    spec_grid grids[SPEC_GRIDS];
    spec_event events[SPEC_EVENTS];
    spec_edge edges[SPEC_EDGES];
    spec_tensor tensors[SPEC_TENSORS];
    uint32_t n_symbols, n_grids, n_events, n_edges, n_tensors;
    uint32_t declared; /* grids say what they read and write */
    /* A bit for each symbol that the run sets: by the last grid, after all others; by grid `cutter` within the step, which
       comes after the grids before it that have such a symbol, and before the others. */
    uint32_t sets, cuts, cutter;
} spec;

/* A bit for each symbol in the shape of a grid. */
static inline uint32_t spec_symbols_of(const spec *sp, uint32_t grid)
{
    const spec_grid *g = &sp->grids[grid];
    uint32_t symbols = 0, k;
    for (k = 0; k < g->rank; k++)
        if (g->extent[k].symbol) symbols |= 1u << (g->extent[k].symbol - 1);
    if (g->has_slices && g->slices.symbol) symbols |= 1u << (g->slices.symbol - 1);
    return symbols;
}
/* Whether fleet_after says so. */
static inline int spec_after(const spec *sp, uint32_t later, uint32_t earlier)
{
    if (later == earlier || !sp->sets) return 0;
    if (later == sp->n_grids - 1) return 1;
    if (earlier == sp->n_grids - 1 || !sp->cuts) return 0;
    if (later == sp->cutter)
        return earlier < later && (spec_symbols_of(sp, earlier) & sp->cuts) != 0;
    return earlier == sp->cutter && earlier < later && (spec_symbols_of(sp, later) & sp->cuts) != 0;
}

/* A dim of the spec in the graph's terms: handles of symbols are those of the graph. */
static inline fleet_dim spec_dim(const spec *sp, fleet_dim d)
{
    if (d.symbol) d.symbol = sp->symbols[d.symbol - 1].handle.symbol;
    return d;
}
static inline fleet_shape spec_shape(const spec *sp, const fleet_dim *extent, uint32_t rank)
{
    fleet_shape s = fleet_shape0();
    uint32_t k;
    for (k = 0; k < rank; k++) s = fleet_shape_append(s, spec_dim(sp, extent[k]));
    return s;
}
static inline fleet_map spec_map(const spec *sp, fleet_map map)
{
    uint32_t k;
    for (k = 0; k < map.rank; k++) {
        map.axis[k].limit = spec_dim(sp, map.axis[k].limit);
        map.axis[k].lower = spec_dim(sp, map.axis[k].lower);
    }
    return map;
}

static inline const char *spec_name(char *text, char kind, uint32_t i)
{
    snprintf(text, 16, "%c%u", kind, i);
    return text;
}

/* The graph, which the caller destroys. */
static inline fleet_graph *spec_graph(spec *sp)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_buffer buffer[SPEC_BUFFERS];
    char name[16];
    uint32_t i, k;
    for (i = 0; i < sp->n_symbols; i++)
        sp->symbols[i].handle =
            fleet_symbol(g, spec_name(name, 's', i), sp->symbols[i].min, sp->symbols[i].max);
    for (i = 0; i < sp->n_events; i++) {
        spec_event *e = &sp->events[i];
        e->handle = fleet_event_tensor(g, spec_name(name, 'E', i),
                                       spec_shape(sp, e->extent, e->rank), e->count);
        if (e->has_scope) fleet_event_scope(g, e->handle, e->scope);
    }
    for (i = 0; sp->declared && i < sp->n_grids; i++)
        buffer[i] = fleet_declare_buffer(g, spec_name(name, 'b', i));
    for (i = 0; i < sp->n_grids; i++) {
        spec_grid *d = &sp->grids[i];
        d->handle = fleet_call_device(g, spec_name(name, 'g', i), plain_touch,
                                      spec_shape(sp, d->extent, d->rank), i);
        fleet_grid_level(g, d->handle, d->level);
        if (d->has_slices) fleet_grid_slices(g, d->handle, spec_dim(sp, d->slices));
        if (d->has_tiles) fleet_grid_tiles(g, d->handle, spec_dim(sp, d->tiles));
        if (d->is_placed) fleet_grid_place(g, d->handle, d->place);
        if (d->has_schedule) fleet_grid_schedule(g, d->handle, d->schedule);
        if (d->has_key) fleet_grid_order(g, d->handle, d->key);
        if (d->mean_ns) fleet_grid_cost(g, d->handle, d->mean_ns, 50, 0);
        for (k = 0; sp->declared && k < sp->n_grids; k++)
            if (d->reads >> k & 1) fleet_grid_reads(g, d->handle, buffer[k]);
        if (sp->declared) fleet_grid_writes(g, d->handle, buffer[i]);
    }
    for (i = 0; i < sp->n_tensors; i++) {
        spec_tensor *d = &sp->tensors[i];
        d->handle =
            fleet_runtime_tensor(g, spec_name(name, 't', i), spec_shape(sp, d->extent, d->rank),
                                 sp->grids[d->writer].handle);
        if (d->none) fleet_tensor_none(g, d->handle, d->none);
    }
    for (i = 0; i < sp->n_events; i++)
        if (sp->events[i].counts)
            fleet_event_counts(g, sp->events[i].handle,
                               sp->tensors[sp->events[i].counts - 1].handle);
    for (i = 0; i < sp->n_edges; i++) {
        const spec_edge *e = &sp->edges[i];
        const fleet_grid grid = sp->grids[e->grid].handle;
        const fleet_etensor event = sp->events[e->event].handle;
        if (e->tensor && e->out)
            fleet_out_edge_gather(g, grid, event, sp->tensors[e->tensor - 1].handle);
        else if (e->tensor)
            fleet_in_edge_range(g, grid, event, sp->tensors[e->tensor - 1].handle);
        else if (e->out)
            fleet_out_edge_map(g, grid, event, spec_map(sp, e->map));
        else
            fleet_in_edge_map(g, grid, event, spec_map(sp, e->map));
    }
    for (i = 0; i < sp->n_grids; i++)
        for (k = 0; k < sp->n_grids; k++)
            if (spec_after(sp, i, k)) fleet_after(g, sp->grids[i].handle, sp->grids[k].handle);
    for (i = 0; i < sp->n_symbols; i++) {
        if (sp->sets >> i & 1)
            fleet_symbol_writer(g, sp->symbols[i].handle, sp->grids[sp->n_grids - 1].handle);
        if (sp->cuts >> i & 1)
            fleet_symbol_cutter(g, sp->symbols[i].handle, sp->grids[sp->cutter].handle);
    }
    return g;
}

/* What a descriptor says of the symbols; the lists of buckets are the spec's. */
static inline void spec_bind(const spec *sp, fleet_plan_desc *desc)
{
    uint32_t i;
    for (i = 0; i < sp->n_symbols; i++) {
        const spec_symbol *s = &sp->symbols[i];
        if (s->at_build)
            fleet_bind_at_build(desc, s->handle, s->value);
        else if (s->n_buckets)
            fleet_buckets_at_build(desc, s->handle, s->buckets, s->n_buckets);
    }
}

/* ---- the oracle: shapes ---- */

typedef struct spec_values {
    int64_t of[SPEC_SYMBOLS];
} spec_values;

static inline int64_t oracle_dim(fleet_dim d, const spec_values *v)
{
    return ref_floor(d.add + (d.symbol ? d.mul * v->of[d.symbol - 1] : 0), d.div);
}

/* Values of symbol s for which a plan has queues. */
static inline uint32_t oracle_buckets_of(const spec_symbol *s, uint32_t set, int64_t *values)
{
    uint32_t n = 0, i;
    int64_t value;
    if (set) { /* by the run */
        values[0] = s->max;
        return 1;
    }
    if (s->at_build) {
        values[0] = s->value;
        return 1;
    }
    for (i = 0; i < s->n_buckets; i++) values[n++] = s->buckets[i];
    for (value = 1; !s->n_buckets && value < s->max; value *= 2)
        if (value >= s->min) values[n++] = value;
    if (!n || values[n - 1] < s->max) values[n++] = s->max;
    return n;
}
/* All buckets, in the plan's order: the last symbol's values change the fastest. */
static inline uint32_t oracle_buckets(const spec *sp, spec_values *all)
{
    int64_t values[SPEC_SYMBOLS][8];
    uint32_t count[SPEC_SYMBOLS], n = 1, i, s, rest;
    for (s = 0; s < sp->n_symbols; s++) {
        count[s] = oracle_buckets_of(&sp->symbols[s], sp->sets >> s & 1, values[s]);
        n *= count[s];
    }
    for (i = 0; i < n && i < SPEC_BUCKETS; i++)
        for (s = sp->n_symbols, rest = i; s-- > 0; rest /= count[s])
            all[i].of[s] = values[s][rest % count[s]];
    return n;
}
/* The bucket that serves a launch: the first one with room for it. */
static inline uint32_t oracle_bucket_for(const spec *sp, const spec_values *all, uint32_t n,
                                         const spec_values *asked)
{
    uint32_t i, s, fits = 0;
    for (i = 0; i < n && !fits; i += !fits)
        for (fits = 1, s = 0; s < sp->n_symbols; s++) fits &= asked->of[s] <= all[i].of[s];
    return i;
}

/* An extent that may depend on the coordinates before it. */
static inline int oracle_depends(const fleet_dim *d)
{
    uint32_t k, depends = 0;
    for (k = 0; k < FLEET_MAX_RANK; k++) depends |= d->per[k] != 0;
    return depends != 0;
}
static inline int64_t oracle_extent(const fleet_dim *d, const spec_values *v, const int32_t *at)
{
    fleet_dim here = *d;
    uint32_t k;
    for (k = 0; k < FLEET_MAX_RANK; k++)
        if (d->per[k]) here.add += d->per[k] * at[k];
    return oracle_dim(here, v);
}

/* The points of a shape, one after another. */
typedef struct oracle_points {
    int32_t (*at)[FLEET_MAX_RANK]; /* the first `room` of them */
    int32_t most[FLEET_MAX_RANK];  /* extents */
    uint32_t room, count, negative;
} oracle_points;
static inline void oracle_visit(oracle_points *p, const fleet_dim *extent, uint32_t rank,
                                uint32_t k, const spec_values *v, int32_t *at)
{
    int64_t n;
    if (k == rank) {
        if (p->count < p->room) memcpy(p->at[p->count], at, FLEET_MAX_RANK * sizeof *at);
        p->count++;
        return;
    }
    n = oracle_extent(&extent[k], v, at);
    if (n < 0) p->negative = 1;
    if (n > p->most[k]) p->most[k] = (int32_t)n;
    for (at[k] = 0; at[k] < n && p->count < 100000; at[k]++)
        oracle_visit(p, extent, rank, k + 1, v, at);
    at[k] = 0;
}
static inline oracle_points oracle_points_of(const fleet_dim *extent, uint32_t rank,
                                             const spec_values *v, int32_t (*to)[FLEET_MAX_RANK],
                                             uint32_t room)
{
    int32_t at[FLEET_MAX_RANK];
    oracle_points p;
    uint32_t k;
    memset(at, 0, sizeof at);
    memset(&p, 0, sizeof p);
    p.at = to, p.room = room;
    oracle_visit(&p, extent, rank, 0, v, at);
    for (k = 0; k < rank; k++) /* one that has no points, too */
        if (!oracle_depends(&extent[k])) p.most[k] = (int32_t)oracle_dim(extent[k], v);
    return p;
}

/* The shapes of a graph for values of its symbols. */
typedef struct view {
    spec_values values;
    int32_t at[SPEC_TASKS][FLEET_MAX_RANK], element_at[SPEC_ELEMENTS][FLEET_MAX_RANK];
    uint32_t negative; /* 1: some extent is */
    int32_t extent[SPEC_GRIDS][FLEET_MAX_RANK], event_extent[SPEC_EVENTS][FLEET_MAX_RANK];
    uint32_t first[SPEC_GRIDS + 1], count[SPEC_GRIDS], slices[SPEC_GRIDS], tiles[SPEC_GRIDS];
    uint32_t first_element[SPEC_EVENTS], elements[SPEC_EVENTS];
    uint32_t n_tasks, n_elements;
} view;

static inline view oracle_view(const spec *sp, const spec_values *values)
{
    view v;
    uint32_t i;
    memset(&v, 0, sizeof v);
    v.values = *values;
    for (i = 0; i < sp->n_grids; i++) {
        const spec_grid *g = &sp->grids[i];
        const uint32_t room = v.n_tasks < SPEC_TASKS ? SPEC_TASKS - v.n_tasks : 0;
        const oracle_points p =
            oracle_points_of(g->extent, g->rank, values, v.at + (room ? v.n_tasks : 0), room);
        memcpy(v.extent[i], p.most, sizeof p.most);
        v.negative |= p.negative;
        v.count[i] = p.count;
        v.first[i] = v.n_tasks;
        v.n_tasks += v.count[i];
        v.slices[i] = g->has_slices ? (uint32_t)oracle_dim(g->slices, values) : 0;
        v.tiles[i] = g->has_tiles ? (uint32_t)oracle_dim(g->tiles, values) : 0;
    }
    v.first[i] = v.n_tasks;
    for (i = 0; i < sp->n_events; i++) {
        const spec_event *e = &sp->events[i];
        const uint32_t room = v.n_elements < SPEC_ELEMENTS ? SPEC_ELEMENTS - v.n_elements : 0;
        const oracle_points p = oracle_points_of(e->extent, e->rank, values,
                                                 v.element_at + (room ? v.n_elements : 0), room);
        memcpy(v.event_extent[i], p.most, sizeof p.most);
        v.negative |= p.negative;
        v.elements[i] = p.count;
        v.first_element[i] = v.n_elements;
        v.n_elements += v.elements[i];
    }
    return v;
}

static inline uint32_t view_grid_of(const view *v, uint32_t task)
{
    uint32_t g = 0;
    while (task - v->first[g] >= v->count[g]) g++;
    return g;
}

/* ---- the oracle: dependencies ---- */

typedef struct oracle_step { /* the run-time tensors of one step */
    int32_t values[SPEC_TENSORS][SPEC_VALUES];
} oracle_step;

typedef struct order {
    uint64_t out[SPEC_TASKS][SPEC_SET], in[SPEC_TASKS][SPEC_SET]; /* elements, a bit each */
    uint32_t notifies[SPEC_ELEMENTS]; /* by maps, as often as they say */
    uint32_t waited[SPEC_ELEMENTS];
    uint8_t exists[SPEC_TASKS];
    int outside_range;
    const spec *sp;
    const view *v;
} order;

static inline void set_put(uint64_t *set, uint32_t i)
{
    set[i / 64] |= (uint64_t)1 << i % 64;
}
static inline int sets_meet(const uint64_t *a, const uint64_t *b)
{
    uint32_t i;
    for (i = 0; i < SPEC_SET; i++)
        if (a[i] & b[i]) return 1;
    return 0;
}

/* A map whose limits are numbers; .symbol stays as a mark that there is a limit, were it 0. */
static inline fleet_map oracle_map(fleet_map map, const spec_values *values)
{
    uint32_t k;
    for (k = 0; k < map.rank; k++) {
        if (map.axis[k].limit.symbol) map.axis[k].limit.add = oracle_dim(map.axis[k].limit, values);
        if (map.axis[k].modulo.symbol)
            map.axis[k].modulo.add = oracle_dim(map.axis[k].modulo, values);
        if (map.axis[k].lower.symbol) map.axis[k].lower.add = oracle_dim(map.axis[k].lower, values);
    }
    return map;
}

/* A map into an event without elements names one that is not there where it is neither empty nor has an empty axis. */
static inline int oracle_names_nothing(const fleet_map *map, uint32_t rank, const int32_t *at,
                                       const int32_t *extent)
{
    int named = 0, empty = 0;
    uint32_t k;
    for (k = 0; k < map->rank; k++) {
        const fleet_axis_map *a = &map->axis[k];
        int outside = 0;
        empty |= a->every ? extent[k] == 0 : ref_axis_is_empty(a, (int)rank, at);
        ref_axis_takes(a, (int)rank, at, 0, extent[k], &outside);
        named |= outside;
    }
    return named && !empty;
}

/* The elements that a task reaches in an event some of whose extents depend on axes: of the prefix
   that `to` is on axes before k. A value outside is an error, but where the extent depends on an
   axis that has every value: those of them count for which there is such an element, and there must
   be one. */
typedef struct oracle_way {
    const fleet_map *map;
    const spec_event *event;
    const view *v;
    const int32_t *at;
    uint32_t rank, first, n, outside, excused, found;
    uint8_t reached[SPEC_ELEMENTS];
} oracle_way;
static inline void oracle_go(oracle_way *w, uint32_t k, int32_t *to)
{
    const fleet_dim *d = &w->event->extent[k];
    const fleet_axis_map *a = &w->map->axis[k];
    int64_t extent, value, first = 0, end;
    uint32_t i, j, by_every = 0;
    if (k == w->event->rank) {
        for (i = 0; i < w->n; i++)
            if (!memcmp(w->v->element_at[w->first + i], to, w->event->rank * sizeof *to))
                w->reached[i] = 1, w->found = 1;
        return;
    }
    extent = end = oracle_extent(d, &w->v->values, to);
    for (j = 0; j < k; j++) by_every |= d->per[j] && w->map->axis[j].every;
    if (!a->every) {
        end = ref_floor(ref_axis_units(a, (int)w->rank, w->at, &first) - 1, a->div) + 1;
        first = ref_floor(first, a->div);
    }
    for (value = first; value < end; value++) {
        if (value >= 0 && value < extent) {
            to[k] = (int32_t)value;
            oracle_go(w, k + 1, to);
        } else if (by_every) {
            w->excused = 1;
        } else {
            w->outside = 1;
        }
    }
    to[k] = 0;
}
static inline void oracle_reach_some(const spec *sp, const spec_edge *e, const view *v,
                                     const fleet_map *map, const int32_t *at, uint32_t task,
                                     order *o)
{
    static oracle_way w;
    int32_t to[FLEET_MAX_RANK];
    uint32_t k;
    memset(&w, 0, sizeof w);
    memset(to, 0, sizeof to);
    w.map = map, w.event = &sp->events[e->event], w.v = v, w.at = at;
    w.rank = sp->grids[e->grid].rank;
    w.first = v->first_element[e->event], w.n = v->elements[e->event];
    for (k = 0; k < map->rank; k++)
        if (ref_axis_is_empty(&map->axis[k], (int)w.rank, at)) return;
    oracle_go(&w, 0, to);
    o->outside_range |= w.outside || (w.excused && !w.found);
    for (k = 0; k < w.n; k++) {
        if (!w.reached[k]) continue;
        set_put(e->out ? o->out[task] : o->in[task], w.first + k);
        o->notifies[w.first + k] += e->out;
        o->waited[w.first + k] |= !e->out;
    }
}

static inline void oracle_reach(const spec *sp, const spec_edge *e, const view *v,
                                const oracle_step *now, uint32_t i, order *o)
{
    const uint32_t task = v->first[e->grid] + i, rank = sp->grids[e->grid].rank;
    const uint32_t first = v->first_element[e->event], n = v->elements[e->event];
    const fleet_map map = oracle_map(e->map, &v->values);
    const int32_t *at = v->at[task];
    uint32_t k, depends = 0;
    for (k = 0; k < sp->events[e->event].rank; k++)
        depends |= (uint32_t)oracle_depends(&sp->events[e->event].extent[k]);
    if (depends) {
        oracle_reach_some(sp, e, v, &map, at, task, o);
        return;
    }
    if (e->tensor) {
        const int32_t *values = now ? now->values[e->tensor - 1] : NULL;
        const spec_tensor *d = &sp->tensors[e->tensor - 1];
        const uint32_t row = e->out ? (uint32_t)oracle_dim(d->extent[1], &v->values) : 0;
        for (k = 0; !values && k < n; k++) set_put(e->out ? o->out[task] : o->in[task], first + k);
        for (k = 0; values && e->out && k < row; k++)
            if (!d->none || values[i * row + k] != d->none)
                set_put(o->out[task], first + (uint32_t)values[i * row + k]);
        for (k = 0; values && !e->out && k < n; k++)
            if (values[k] <= at[0] && at[0] < values[k + 1]) set_put(o->in[task], first + k);
        if (values && !e->out && at[0] >= values[n]) o->exists[task] = 0;
        return;
    }
    if (!n) o->outside_range |= oracle_names_nothing(&map, rank, at, v->event_extent[e->event]);
    for (k = 0; k < n; k++) {
        if (!ref_reaches(&map, (int)rank, at, v->event_extent[e->event], k, &o->outside_range))
            continue;
        set_put(e->out ? o->out[task] : o->in[task], first + k);
        if (e->out)
            o->notifies[first + k]++;
        else
            o->waited[first + k] = 1;
    }
}

/* Which tasks notify and which wait for what, in a plan's shapes; tasks outside `asked` do not exist. now: the run-time
   tensors; null: by whatever they may say. */
static inline void oracle_order(const spec *sp, const view *v, const view *asked,
                                const oracle_step *now, order *o)
{
    uint32_t i, j, k;
    memset(o, 0, sizeof *o);
    memset(o->exists, 1, sizeof o->exists);
    o->sp = sp, o->v = v;
    for (i = 0; i < sp->n_edges; i++)
        for (j = 0; j < v->count[sp->edges[i].grid]; j++)
            oracle_reach(sp, &sp->edges[i], v, now, j, o);
    for (i = 0; i < sp->n_events; i++) /* an element waits for the task that counts it, too */
        if (sp->events[i].counts)
            for (k = 0; k < v->elements[i]; k++)
                set_put(o->out[v->first[sp->tensors[sp->events[i].counts - 1].writer]],
                        v->first_element[i] + k);
    for (i = 0; i < sp->n_grids; i++)
        for (j = 0; j < v->count[i]; j++) {
            const int32_t *at = v->at[v->first[i] + j];
            for (k = 0; k < sp->grids[i].rank; k++)
                if (!oracle_depends(&sp->grids[i].extent[k]) && at[k] >= asked->extent[i][k])
                    o->exists[v->first[i] + j] = 0;
        }
}

static inline int order_depends(const order *o, uint32_t later, uint32_t earlier)
{
    if (!o->exists[later] || !o->exists[earlier]) return 0;
    return sets_meet(o->in[later], o->out[earlier]) ||
           (o->sp->sets &&
            spec_after(o->sp, view_grid_of(o->v, later), view_grid_of(o->v, earlier)));
}

/* ---- the oracle: whether a plan may be refused, and why ---- */

#define REASON(status) ((uint64_t)1 << (status))

/* Takes away what can run until nothing can: whether something is left. */
static inline int order_has_cycle(const order *o, uint32_t n)
{
    uint8_t ran[SPEC_TASKS];
    uint32_t left = n, progress = 1, c, p;
    memset(ran, 0, sizeof ran);
    while (progress)
        for (progress = 0, c = 0; c < n; c++) {
            for (p = 0; !ran[c] && p < n && (ran[p] || !order_depends(o, c, p));) p++;
            if (ran[c] || p < n) continue;
            ran[c] = 1, left--, progress = 1;
        }
    return left != 0;
}

/* Why the bucket of these shapes cannot be built, a bit for each status; *may: why it may be refused, by how tasks lie
   in queues. */
static inline uint64_t oracle_reasons(const spec *sp, const view *v, order *o, uint64_t *may)
{
    uint64_t must = 0;
    uint32_t e, i, k, c, p;
    oracle_order(sp, v, v, NULL, o);
    if (v->negative) must |= REASON(FLEET_ERROR_ARGUMENT);
    for (i = 0; i < sp->n_grids; i++)
        for (k = 0; k < sp->grids[i].rank; k++) {
            const fleet_dim *d = &sp->grids[i].extent[k];
            if (oracle_depends(d) && d->symbol && !sp->symbols[d->symbol - 1].at_build)
                must |= REASON(FLEET_ERROR_UNSUPPORTED);
        }
    if (o->outside_range) must |= REASON(FLEET_ERROR_MAP_RANGE);
    for (e = 0; e < sp->n_events; e++) {
        int excused = sp->events[e].by_tensor != 0; /* a producer without tasks */
        for (i = 0; i < sp->n_edges; i++)
            excused |= sp->edges[i].out && sp->edges[i].event == e && !v->count[sp->edges[i].grid];
        for (k = v->first_element[e]; k < v->first_element[e] + v->elements[e]; k++) {
            if (o->waited[k] && !o->notifies[k] && !excused)
                must |= REASON(FLEET_ERROR_NEVER_NOTIFIED);
            if (sp->events[e].count && !sp->events[e].by_tensor &&
                o->notifies[k] != sp->events[e].count)
                must |= REASON(FLEET_ERROR_WAIT_COUNT);
        }
        if (sp->events[e].has_scope && sp->events[e].scope < FLEET_SCOPE_DEVICE)
            *may |= REASON(FLEET_ERROR_SCOPE);
    }
    if (order_has_cycle(o, v->n_tasks)) /* by run-time tensors there may be one */
        *(sp->n_tensors ? may : &must) |= REASON(FLEET_ERROR_CYCLE);
    for (i = 0; i < sp->n_grids; i++)
        if (sp->grids[i].has_key) *may |= REASON(FLEET_ERROR_ORDER);
    for (c = 0; c < v->n_tasks; c++)
        for (p = c; p < v->n_tasks; p++)
            if (order_depends(o, c, p)) *may |= REASON(FLEET_ERROR_ORDER);
    return must;
}

/* ---- a rig: a spec on a device ---- */

#define RIG_PREDS 20u  /* cells of its producers that a task reads at most */
#define RIG_EARLIER 8u /* of the step before */
#define RIG_READS (SPEC_STEPS * SPEC_TASKS * (RIG_PREDS + RIG_EARLIER))

typedef struct plain_rig {
    setting s;
    spec *sp;
    fleet_graph *graph;
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_launch_desc launch;
    plain w;
    void *memory, *args;
    size_t tables_at, words;
    uint32_t *now; /* as much memory, of the host */
    size_t cells_at, runs_at, hits_at, wrong_at, cell_of_at, first_at, reads_at, to_at, from_at;
    observer seen;
    spec_values buckets[SPEC_BUCKETS];
    uint32_t n_buckets;
    view largest;
    uint32_t first_cell[SPEC_GRIDS + 1], slices[SPEC_GRIDS];
    uint32_t first_epoch, epoch; /* epochs that have ended */
    uint32_t deep; /* 1: tasks read of all that comes before them, not of their producers only */
    uint32_t fed;  /* 1: they have a weight pipeline */
    uint64_t rng;
    uint32_t *want;    /* runs by cell */
    uint32_t *earlier; /* cells of the last step */
    uint32_t n_earlier;
    order *must; /* of one step */
    /* Where the run sets symbols: the values of each step, and after its cut. */
    spec_values step_values[SPEC_STEPS + 1], cut_values[SPEC_STEPS + 1];
    size_t symbols_at, fed_at;
} plain_rig;

/* The shapes of a step in a launch with these symbols. */
static inline view plain_asked(const plain_rig *r, const spec_values *values, uint32_t step)
{
    view v = oracle_view(r->sp, r->sp->sets ? &r->step_values[step] : values);
    const view late = oracle_view(r->sp, r->sp->cuts ? &r->cut_values[step] : values);
    uint32_t i;
    for (i = r->sp->cutter + 1; r->sp->cuts && i < r->sp->n_grids; i++) {
        memcpy(v.extent[i], late.extent[i], sizeof v.extent[i]);
        v.count[i] = late.count[i], v.slices[i] = late.slices[i];
    }
    return v;
}

static inline uint32_t plain_workers(const setting *s, uint32_t chiplet)
{
    if (s->workers) return s->workers;
    return s->topology.units[chiplet] - (s->schedule == FLEET_SCHEDULE_CHIPLET);
}
static inline uint32_t plain_most_workers(const setting *s)
{
    uint32_t most = 0, k;
    for (k = 0; k < s->topology.chiplets; k++)
        if (plain_workers(s, k) > most) most = plain_workers(s, k);
    return most;
}
static inline uint32_t plain_slices(const plain_rig *r, const view *v, uint32_t grid)
{
    if (r->sp->grids[grid].level != FLEET_LEVEL_DEVICE) return 1;
    return r->sp->grids[grid].has_slices ? v->slices[grid] : r->s.topology.chiplets;
}
/* The parts of a slice of task i of a grid, in the shapes of a bucket. */
static inline uint32_t plain_parts(const plain_rig *r, const view *v, uint32_t grid, uint32_t i,
                                   uint32_t slice)
{
    const spec_grid *g = &r->sp->grids[grid];
    uint32_t chiplet = i % r->s.topology.chiplets;
    if (g->level < FLEET_LEVEL_CHIPLET) return 1;
    if (r->s.unaware) return g->has_tiles ? v->tiles[grid] : plain_most_workers(&r->s);
    if (g->level == FLEET_LEVEL_DEVICE) {
        chiplet = slice % r->s.topology.chiplets;
    } else if (g->is_placed) {
        const fleet_axis_map *a = &g->place.axis[0];
        const int32_t *at = v->at[v->first[grid] + i];
        int64_t value = a->offset;
        uint32_t k;
        for (k = 0; k < g->rank; k++) value += a->stride[k] * at[k];
        chiplet = (uint32_t)ref_floor(value, a->div);
    }
    return plain_workers(&r->s, chiplet);
}

/* The first cell of task i of a grid, in the shapes of a bucket: the same for its coordinate in every bucket. */
static inline uint32_t plain_cell_of(const plain_rig *r, const view *v, uint32_t grid, uint32_t i)
{
    const uint32_t rank = r->sp->grids[grid].rank;
    const int32_t *at = v->at[v->first[grid] + i];
    uint32_t k, index = 0;
    for (k = 0; k < rank; k++)
        index = index * (uint32_t)r->largest.extent[grid][k] + (uint32_t)at[k];
    return r->first_cell[grid] +
           index *
               (r->sp->grids[grid].level < FLEET_LEVEL_CHIPLET ? 1 : r->slices[grid] * r->w.parts);
}

/* "g2[5] slice 1 part 0": for messages; [5] is its row-major number in the largest shape. */
static inline const char *plain_cell_name(const plain_rig *r, uint32_t cell, char *text)
{
    uint32_t g = 0, in, each;
    while (cell >= r->first_cell[g + 1]) g++;
    in = cell - r->first_cell[g];
    each = r->sp->grids[g].level < FLEET_LEVEL_CHIPLET ? 1 : r->slices[g] * r->w.parts;
    snprintf(text, 64, "g%u[%u] slice %u part %u", g, in / each, in % each / r->w.parts,
             in % each % r->w.parts);
    return text;
}

/* Where cells lie; returns 0 where they are too many. */
static inline int plain_lay_out(plain_rig *r)
{
    uint32_t i, b, k;
    r->n_buckets = oracle_buckets(r->sp, r->buckets);
    if (r->n_buckets > SPEC_BUCKETS) return 0;
    r->w.parts = plain_most_workers(&r->s);
    for (b = 0; b < r->n_buckets; b++) {
        const view v = oracle_view(r->sp, &r->buckets[b]);
        if (v.n_tasks > SPEC_TASKS || v.n_elements > SPEC_ELEMENTS) return 0;
        for (i = 0; i < r->sp->n_grids; i++) {
            const uint32_t slices = plain_slices(r, &v, i);
            for (k = 0; k < r->sp->grids[i].rank; k++)
                if (v.extent[i][k] > r->largest.extent[i][k])
                    r->largest.extent[i][k] = v.extent[i][k];
            if (slices > r->slices[i]) r->slices[i] = slices;
            if (r->s.unaware && v.tiles[i] > r->w.parts) r->w.parts = v.tiles[i];
        }
    }
    for (i = 0; i < r->sp->n_grids; i++) {
        const uint32_t n = (uint32_t)ref_points(r->largest.extent[i], (int)r->sp->grids[i].rank);
        r->first_cell[i] = r->w.n_cells;
        r->w.n_cells +=
            n * (r->sp->grids[i].level < FLEET_LEVEL_CHIPLET ? 1 : r->slices[i] * r->w.parts);
    }
    r->first_cell[i] = r->w.n_cells;
    return r->w.n_cells <= SPEC_CELLS;
}

static inline size_t plain_place(size_t *at, size_t n_words)
{
    const size_t here = *at;
    *at += (n_words + 31) / 32 * 32;
    return here;
}

/* Cells as a step that ended with the first epoch would have left them. */
static inline int plain_reset(test_run *t, plain_rig *r, uint32_t first_epoch)
{
    const uint32_t gen = r->w.single ? 0 : first_epoch & 1;
    uint32_t cell, w;
    memset(r->now, 0, r->words * 4);
    for (w = 0; w < FED_WORDS; w++) r->now[r->fed_at + w] = w * 0x9e3779b1u;
    for (cell = 0; cell < r->w.n_cells; cell++) {
        for (w = 0; w < CELL_WORDS; w++)
            r->now[r->cells_at + (gen * r->w.n_cells + cell) * CELL_WORDS + w] =
                plain_value(cell, first_epoch, w);
        r->seen.began[cell] = r->seen.ended[cell] = first_epoch;
        r->want[cell] = 0;
        r->earlier[cell] = cell;
    }
    r->n_earlier = r->w.n_cells;
    r->seen.broken = 0;
    r->first_epoch = r->epoch = first_epoch;
    NEED_STATUS(fleet_to_device(r->memory, r->now, r->words * 4, NULL), FLEET_OK);
    return 1;
}

/* Image, state and data of a plan that has been built. 0: the test has failed. */
static inline int plain_open(test_run *t, plain_rig *r, uint32_t first_epoch)
{
    fleet_state_desc state = setting_state_desc(&r->s);
    uint32_t *memory;
    size_t at = 0, n = r->w.n_cells;
    r->cells_at = plain_place(&at, 2 * n * CELL_WORDS);
    r->runs_at = plain_place(&at, n);
    r->hits_at = plain_place(&at, n);
    r->wrong_at = plain_place(&at, n * WRONG_WORDS);
    r->to_at = plain_place(&at, (size_t)SPEC_TENSORS * SPEC_VALUES);
    r->tables_at = at;
    r->cell_of_at = plain_place(&at, SPEC_TASKS);
    r->first_at = plain_place(&at, (size_t)2 * SPEC_STEPS * SPEC_TASKS + 1);
    r->from_at = plain_place(&at, (size_t)SPEC_TENSORS * SPEC_STEPS * SPEC_VALUES);
    r->symbols_at = plain_place(&at, (SPEC_STEPS + 1) * 2 * SPEC_SYMBOLS);
    r->reads_at = plain_place(&at, RIG_READS);
    r->fed_at = plain_place(&at, FED_WORDS);
    r->words = at;
    r->now = (uint32_t *)malloc(at * 4);
    r->seen.began = (uint32_t *)malloc(n * 4 + 4), r->seen.ended = (uint32_t *)malloc(n * 4 + 4);
    r->want = (uint32_t *)malloc(n * 4 + 4), r->earlier = (uint32_t *)malloc(n * 4 + 4);
    r->must = (order *)malloc(sizeof *r->must);
    if (!r->now || !r->seen.began || !r->seen.ended || !r->want || !r->earlier || !r->must) abort();
    state.first_epoch = first_epoch;
    NEED_STATUS(fleet_device_alloc(&r->memory, at * 4), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&r->args, SPEC_GRIDS * sizeof r->w), FLEET_OK);
    NEED_STATUS(fleet_upload(&r->image, r->plan, NULL), FLEET_OK);
    NEED_STATUS(fleet_state_create(&r->state, &r->image, &state, NULL), FLEET_OK);
    memory = (uint32_t *)r->memory;
    r->w.cells = memory + r->cells_at, r->w.runs = memory + r->runs_at;
    r->w.hits = memory + r->hits_at, r->w.wrong = memory + r->wrong_at;
    r->w.cell_of = memory + r->cell_of_at, r->w.first_read = memory + r->first_at;
    r->w.reads = memory + r->reads_at;
    r->w.symbols = (const int32_t *)memory + r->symbols_at;
    r->w.fed = memory + r->fed_at;
    r->w.single = r->sp->declared;
    r->w.seen = &r->seen;
    r->launch = setting_launch_desc(&r->s);
#if defined(FLEET_MEMORY_MODEL)
    r->launch.host.memory_model = 1;
#endif
    return plain_reset(t, r, first_epoch);
}

static inline void plain_close(plain_rig *r)
{
    fleet_state_free(&r->state);
    fleet_image_free(&r->image);
    fleet_device_free(r->memory);
    fleet_device_free(r->args);
    free(r->now), free(r->seen.began), free(r->seen.ended);
    free(r->want), free(r->earlier), free(r->must);
}

/* Some of a list, without order. */
static inline uint32_t plain_sample(uint64_t *rng, uint32_t *list, uint32_t n, uint32_t most)
{
    uint32_t i, k, kept;
    for (i = 0; n > most && i < most; i++) {
        k = i + draw(rng, n - i);
        kept = list[i], list[i] = list[k], list[k] = kept;
    }
    return n < most ? n : most;
}

/* All tasks that a task comes after: [task][earlier], a bit each. */
typedef uint64_t task_set[(SPEC_TASKS + 63) / 64];
static inline void order_close(const order *o, uint32_t n, uint32_t deep, task_set *before)
{
    uint32_t c, p, k, again = 1;
    memset(before, 0, n * sizeof *before);
    for (c = 0; c < n; c++)
        for (p = 0; p < n; p++)
            if (order_depends(o, c, p)) set_put(before[c], p);
    while (deep && again)
        for (again = 0, c = 0; c < n; c++)
            for (p = 0; p < n; p++)
                for (k = 0; before[c][p / 64] >> p % 64 & 1 && k < sizeof *before / 8; k++) {
                    again |= (before[p][k] & ~before[c][k]) != 0;
                    before[c][k] |= before[p][k];
                }
}

/* The tables of one launch: what each task reads in each step. Counts what it must run. */
static inline void plain_tables(plain_rig *r, const view *v, const view *asked_, uint32_t steps,
                                const oracle_step *tensors)
{
    uint32_t *cell_of = r->now + r->cell_of_at, *first = r->now + r->first_at;
    uint32_t *reads = r->now + r->reads_at, n_reads = 0, list[SPEC_CELLS];
    static task_set before[SPEC_TASKS];
    const uint32_t turn = draw(&r->rng, SPEC_CELLS);
    uint32_t step, c, p, s, k, i, n;
    for (c = 0; c < v->n_tasks; c++) {
        const uint32_t g = view_grid_of(v, c);
        cell_of[c] = plain_cell_of(r, v, g, c - v->first[g]);
    }
    for (step = 0; step < steps; step++) {
        const view *asked = &asked_[step];
        oracle_order(r->sp, v, asked, r->sp->n_tensors ? &tensors[step] : NULL, r->must);
        order_close(r->must, v->n_tasks, r->deep, before);
        for (c = 0; c < v->n_tasks; c++) {
            uint32_t *entry = first + 2 * (step * v->n_tasks + c);
            for (n = 0, p = 0; p < v->n_tasks; p++) {
                const uint32_t g = view_grid_of(v, p);
                if (!(before[c][p / 64] >> p % 64 & 1)) continue;
                for (s = 0; s < plain_slices(r, asked, g); s++)
                    for (k = 0; k < plain_parts(r, v, g, p - v->first[g], s); k++)
                        if (n < SPEC_CELLS) list[n++] = cell_of[p] + s * r->w.parts + k;
            }
            n = plain_sample(&r->rng, list, n, RIG_PREDS);
            entry[0] = n_reads;
            for (i = 0; i < n; i++) reads[n_reads++] = list[i];
            entry[1] = n_reads;
            /* The same in every step, for what its chiplet has cached of two steps before. */
            n = r->w.single ? 0 : r->n_earlier < RIG_EARLIER ? r->n_earlier : RIG_EARLIER;
            for (i = 0; i < n; i++)
                reads[n_reads++] = r->earlier[(turn + c * 5 + i) % r->n_earlier];
            entry[2] = n_reads;
        }
        for (r->n_earlier = 0, c = 0; c < v->n_tasks; c++) {
            const uint32_t g = view_grid_of(v, c);
            if (!r->must->exists[c]) continue;
            for (s = 0; s < plain_slices(r, asked, g); s++)
                for (k = 0; k < plain_parts(r, v, g, c - v->first[g], s); k++) {
                    const uint32_t cell = cell_of[c] + s * r->w.parts + k;
                    r->earlier[r->n_earlier++] = cell;
                    r->want[cell]++;
                }
        }
    }
}

/* The arguments of each grid, and which grid writes each run-time tensor. */
static inline int plain_args(test_run *t, plain_rig *r, const view *v, const oracle_step *tensors)
{
    static plain args[SPEC_GRIDS];
    uint32_t i, k, step;
    for (i = 0; i < r->sp->n_grids; i++) {
        args[i] = r->w;
        /* Others may run beside the cut. */
        args[i].late = r->sp->cuts && i > r->sp->cutter;
        args[i].looks = r->sp->sets & (~r->sp->cuts | spec_symbols_of(r->sp, i));
    }
    if (r->sp->sets) args[r->sp->n_grids - 1].sets = r->sp->sets;
    if (r->sp->cuts) args[r->sp->cutter].cuts = r->sp->cuts;
    for (step = 0; step <= SPEC_STEPS; step++)
        for (k = 0; r->sp->sets && k < SPEC_SYMBOLS; k++) {
            uint32_t *to = r->now + r->symbols_at + step * 2 * SPEC_SYMBOLS + k;
            to[0] = (uint32_t)r->step_values[step].of[k];
            to[SPEC_SYMBOLS] = (uint32_t)r->cut_values[step].of[k];
        }
    for (k = 0; k < r->sp->n_tensors; k++) {
        const spec_tensor *d = &r->sp->tensors[k];
        tensor_job *job = &args[d->writer].job[k];
        const uint32_t rows = (uint32_t)oracle_dim(d->extent[0], &v->values);
        const uint32_t row = d->rank > 1 ? (uint32_t)oracle_dim(d->extent[1], &v->values) : 1;
        job->to = (int32_t *)r->memory + r->to_at + (size_t)k * SPEC_VALUES;
        job->from = (const int32_t *)r->memory + r->from_at + (size_t)k * SPEC_STEPS * SPEC_VALUES;
        job->values = rows * row;
        job->row = r->sp->grids[d->writer].rank ? row : 0;
        for (step = 0; step < SPEC_STEPS; step++)
            memcpy(r->now + r->from_at + (size_t)k * SPEC_STEPS * SPEC_VALUES +
                       (size_t)step * job->values,
                   tensors[step].values[k], (size_t)job->values * 4);
    }
    NEED_STATUS(fleet_to_device(r->args, args, sizeof args, NULL), FLEET_OK);
    return 1;
}

/* Launches with these symbols. Of SPEC_STEPS steps: what the writers of run-time tensors write, and what they should,
   by which the order goes. Returns the launch's status, or FLEET_STATUS_COUNT where
   the test has failed. */
static inline fleet_status plain_launch(test_run *t, plain_rig *r, const spec_values *values,
                                        uint32_t steps, const oracle_step *tensors,
                                        const oracle_step *meant)
{
    const uint32_t bucket = oracle_bucket_for(r->sp, r->buckets, r->n_buckets, values);
    const view v = oracle_view(r->sp, &r->buckets[bucket]);
    static view asked[SPEC_STEPS];
    char name[16];
    fleet_status status;
    uint32_t i;
    for (i = 0; i < steps; i++) asked[i] = plain_asked(r, values, i);
    plain_tables(r, &v, asked, steps, meant);
    r->w.n_tasks = v.n_tasks;
    if (!plain_args(t, r, &v, tensors) ||
        fleet_to_device((uint32_t *)r->memory + r->tables_at, r->now + r->tables_at,
                        (r->words - r->tables_at) * 4, NULL))
        return FLEET_STATUS_COUNT;
    for (i = 0; i < r->sp->n_symbols; i++) {
        if (r->sp->symbols[i].at_build) continue;
        status = fleet_bind(&r->state, spec_name(name, 's', i), values->of[i], NULL);
        if (status) return status;
    }
    for (i = 0; i < r->sp->n_tensors; i++) {
        status = fleet_bind_tensor(&r->state, spec_name(name, 't', i),
                                   (int32_t *)r->memory + r->to_at + (size_t)i * SPEC_VALUES, NULL);
        if (status) return status;
    }
    r->launch.steps = steps;
    r->launch.host.seed = 1 + draw(&r->rng, 1000000);
    status =
        fleet_launch(&r->state, &r->launch,
                     r->fed ? FLEET_KERNEL_OF(fed_kernel) : FLEET_KERNEL_OF(plain_kernel), r->args);
    if (!status) status = fleet_state_wait(&r->state, NULL);
    r->epoch += steps;
    return status;
}

/* After a launch that ended well: each part ran as often as it must, in order, on right data. */
static inline int plain_check(test_run *t, plain_rig *r)
{
    static const char *const broken[4] = {"", "ran twice", "began before the end of its producer",
                                          "began before the end of the step before of"};
    char name[64], other[64];
    uint32_t i, w;
    const uint32_t *now = r->now;
    NEED_STATUS(fleet_to_host(r->now, r->memory, r->tables_at * 4, NULL), FLEET_OK);
    if (r->seen.broken)
        test_fail(t, __FILE__, __LINE__, "%s %s %s in epoch %u; %u in all",
                  plain_cell_name(r, r->seen.cell, name), broken[r->seen.what],
                  plain_cell_name(r, r->seen.other, other), r->seen.epoch, r->seen.broken);
    for (i = 0; i < r->w.n_cells; i++) {
        const uint32_t *wrong = now + r->wrong_at + (size_t)i * WRONG_WORDS;
        if (now[r->hits_at + i] != r->want[i] || now[r->runs_at + i] != r->want[i])
            test_fail(t, __FILE__, __LINE__, "%s ran %u times and counts %u, not %u",
                      plain_cell_name(r, i, name), now[r->hits_at + i], now[r->runs_at + i],
                      r->want[i]);
        if (wrong[6])
            test_fail(t, __FILE__, __LINE__,
                      "%s read %#x, not %#x, in word %u of %s%s, epoch %u (first epoch %u)",
                      plain_cell_name(r, i, name), wrong[2], wrong[3], wrong[1],
                      plain_cell_name(r, wrong[0], other), wrong[5] ? " of the step before" : "",
                      wrong[4], r->first_epoch);
    }
    for (i = 0; i < r->n_earlier; i++)
        for (w = 0; w < CELL_WORDS; w++) {
            const uint32_t cell = r->earlier[i], gen = r->w.single ? 0 : r->epoch & 1;
            if (now[r->cells_at + (gen * r->w.n_cells + cell) * CELL_WORDS + w] !=
                plain_value(cell, r->epoch, w))
                test_fail(t, __FILE__, __LINE__, "the last value of %s is wrong",
                          plain_cell_name(r, cell, name));
        }
    if (fleet_state_epoch(&r->state) != r->epoch)
        test_fail(t, __FILE__, __LINE__, "epoch %u, not %u", fleet_state_epoch(&r->state),
                  r->epoch);
    return !t->failed_here;
}

#endif
