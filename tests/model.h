/* A graph as plain data, from which come a fleet graph and, by a reference of its own, which tasks must run before
   which. Its one tile proves the order from inside: every part of a task counts its runs, finds in the cells of
   all its producers the values of this step (they change every step), writes its own cell, and takes tickets at
   its begin and end. model_check then looks at counts and tickets. */
#ifndef FLEET_TEST_MODEL_H
#define FLEET_TEST_MODEL_H

#include "settings.h"

/* ---- what tiles see ---- */

typedef enum oddity {
    ODD_NONE,
    ODD_FAIL_ONE, /* the last thread returns a failure */
    ODD_FAIL_ALL,
    ODD_HANG,  /* says so in flags[0], and comes back when flags[1] is set */
    ODD_ABORT, /* asks for an abort, as fleet_state_abort does */
    ODD_MEET,  /* goes on when all tasks of odd_first to odd_end have begun in this step */
    ODD_UNTIL  /* goes on when task odd_first has begun in this step */
} oddity;

#define ODD_STATUS FLEET_ERROR_UNSUPPORTED /* what a failing tile returns */
#define ODD_EVERY 0xffffffffu

typedef struct world {
    uint32_t *cells;            /* CELL_WORDS per part of a task */
    const uint32_t *cell_of;    /* first cell of each task: [slice][part] */
    const uint32_t *first_pred; /* of each task, and the end */
    const uint32_t *preds;      /* cells */
    uint32_t *runs;             /* per cell */
    uint32_t *tickets;          /* per cell: begin and end of its last run */
    uint32_t *counters;         /* [COUNT_...][32] */
    uint32_t *flags;            /* the host's memory */
    uint32_t *abort_word;
    uint32_t parts;   /* cells per slice */
    uint32_t n_cells; /* that are written in a step */
    uint32_t first_epoch;
    uint32_t may_run_ahead;
    uint32_t odd, odd_task, odd_step; /* which; ODD_EVERY */
    uint32_t odd_part;                /* of a chiplet-task; ODD_EVERY */
    uint32_t odd_first, odd_end;      /* tasks, for ODD_EVERY and ODD_MEET */
} world;

#define COUNT_TICKET 0u
#define COUNT_DONE 32u
#define COUNT_ERRORS 64u /* then what, task, cell, got, want, epoch of the first */
#define COUNT_MET 96u
#define COUNT_WORDS 128u

#define WRONG_DATA 1u
#define WRONG_STEP 2u  /* began before the step before was over */
#define WRONG_PLACE 3u /* its context contradicts itself */

FLEET_DEVICE uint32_t cell_value(uint32_t cell, uint32_t epoch, uint32_t word)
{
    return (cell * 0x9e3779b1u ^ epoch * 0x85ebca6bu) + word * 0x01000193u;
}

FLEET_DEVICE void world_wrong(const world *args, uint32_t what, uint32_t task, uint32_t cell,
                              uint32_t got, uint32_t want, uint32_t epoch)
{
    uint32_t *e = args->counters + COUNT_ERRORS;
    if (fleet_add_relaxed_device(e, 1)) return;
    fleet_store_relaxed_device(e + 1, what);
    fleet_store_relaxed_device(e + 2, task);
    fleet_store_relaxed_device(e + 3, cell);
    fleet_store_relaxed_device(e + 4, got);
    fleet_store_relaxed_device(e + 5, want);
    fleet_store_relaxed_device(e + 6, epoch);
}

FLEET_DEVICE uint32_t world_is_odd(const world *args, uint32_t task, uint32_t part, uint32_t step)
{
    if (args->odd_step != ODD_EVERY && args->odd_step != step) return 0;
    if (args->odd_part != ODD_EVERY && args->odd_part != part) return 0;
    if (args->odd_task != ODD_EVERY) return args->odd_task == task;
    return task >= args->odd_first && task < args->odd_end;
}

FLEET_DEVICE fleet_status world_odd(const fleet_ctx *ctx, const world *args)
{
    uint32_t tries = 0;
    switch (args->odd) {
    case ODD_FAIL_ONE:
        return ctx->thread + 1 == ctx->threads ? ODD_STATUS : FLEET_OK;
    case ODD_FAIL_ALL:
        return ODD_STATUS;
    case ODD_HANG:
        fleet_store_relaxed_system(args->flags, 1);
        while (!fleet_load_relaxed_system(args->flags + 1)) fleet_pause(&tries);
        return FLEET_OK;
    case ODD_ABORT:
        fleet_store_relaxed_system(args->abort_word, 1);
        return FLEET_OK;
    case ODD_UNTIL: {
        const uint32_t *runs = args->runs + args->cell_of[args->odd_first];
        while (fleet_load_relaxed_device(runs) != ctx->epoch - args->first_epoch)
            if (fleet_pause(&tries)) return FLEET_ERROR_DEADLOCK;
        return FLEET_OK;
    }
    case ODD_MEET: {
        uint32_t *met = args->counters + COUNT_MET,
                 all = (ctx->epoch - args->first_epoch) * (args->odd_end - args->odd_first);
        if (ctx->thread == 0) fleet_add_relaxed_device(met, 1);
        while ((int32_t)(fleet_load_relaxed_device(met) - all) < 0)
            if (fleet_pause(&tries)) return FLEET_ERROR_DEADLOCK;
        return FLEET_OK;
    }
    }
    return FLEET_OK;
}

FLEET_TILE(work, world)
{
    const uint32_t cell = args->cell_of[ctx.task] + ctx.slice * args->parts + ctx.tile_index;
    const uint32_t end = args->first_pred[ctx.task + 1];
    uint32_t k, w;
    FLEET_UNUSED(at);
    if (ctx.thread == 0) {
        uint32_t done = fleet_load_relaxed_device(args->counters + COUNT_DONE);
        uint32_t due = (ctx.epoch - args->first_epoch - 1) * args->n_cells;
        fleet_store_relaxed_device(args->tickets + 2 * cell,
                                   fleet_add_relaxed_device(args->counters + COUNT_TICKET, 1));
        fleet_add_relaxed_device(args->runs + cell, 1);
        if (!args->may_run_ahead && (int32_t)(done - due) < 0)
            world_wrong(args, WRONG_STEP, ctx.task, cell, done, due, ctx.epoch);
        if (ctx.tile_index >= ctx.tile_num || ctx.slice >= ctx.slices || ctx.worker >= ctx.workers)
            world_wrong(args, WRONG_PLACE, ctx.task, cell, ctx.tile_index, ctx.tile_num, ctx.epoch);
    }
    for (k = args->first_pred[ctx.task]; k < end; k++) {
        const uint32_t *from = args->cells + (size_t)args->preds[k] * CELL_WORDS;
        /* Not the words that this thread would have written itself: another wave's. */
        for (w = ctx.thread; w < CELL_WORDS; w += ctx.threads) {
            uint32_t word = CELL_WORDS - 1 - w;
            uint32_t want = cell_value(args->preds[k], ctx.epoch, word);
            uint32_t got = from[word];
            if (got != want)
                world_wrong(args, WRONG_DATA, ctx.task, args->preds[k], got, want, ctx.epoch);
        }
    }
    if (args->odd && world_is_odd(args, ctx.task, ctx.tile_index, ctx.step)) {
        fleet_status status = world_odd(&ctx, args);
        if (status) return status;
    }
    /* Before the cell is written: to wait for a ticket is to wait for all that was stored before it. */
    if (ctx.thread == 0)
        fleet_store_relaxed_device(args->tickets + 2 * cell + 1,
                                   fleet_add_relaxed_device(args->counters + COUNT_TICKET, 1));
    for (w = ctx.thread; w < CELL_WORDS; w += ctx.threads)
        args->cells[(size_t)cell * CELL_WORDS + w] = cell_value(cell, ctx.epoch, w);
    if (ctx.thread == 0) fleet_add_relaxed_device(args->counters + COUNT_DONE, 1);
    return FLEET_OK;
}

#define WORLD_TILES(TILE, P) TILE(P, work)
FLEET_DISPATCH(world, WORLD_TILES)
FLEET_KERNEL(world_kernel, world, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(world);
}

/* ---- the graph ---- */

#define MODEL_MOST 32

typedef struct model_grid {
    char name[16];
    uint32_t rank;
    int32_t extent[4];
    fleet_level level;
    uint32_t slices;       /* of device-tasks; 0: one per chiplet */
    uint32_t tiles;        /* of device- and chiplet-tasks; 0: one per worker */
    uint32_t first, count; /* tasks */
    fleet_grid handle;
} model_grid;
typedef struct model_event {
    char name[16];
    uint32_t rank;
    int32_t extent[4];
    fleet_etensor handle;
} model_event;
typedef struct model_edge {
    uint32_t grid, event, out;
    char map[16];
} model_edge;

typedef struct model {
    model_grid grids[MODEL_MOST];
    model_event events[MODEL_MOST];
    model_edge edges[4 * MODEL_MOST];
    uint32_t n_grids, n_events, n_edges, n_tasks;
    fleet_graph *graph;
} model;

static inline void model_begin(model *m)
{
    memset(m, 0, sizeof *m);
}
static inline void model_shape(uint32_t rank, int32_t a, int32_t b, int32_t *extent)
{
    extent[0] = a, extent[1] = b, extent[2] = extent[3] = 1;
    if (rank < 2) extent[1] = 1;
    if (rank < 1) extent[0] = 1;
}
static inline uint32_t model_add_grid(model *m, fleet_level level, uint32_t rank, int32_t a,
                                      int32_t b)
{
    model_grid *g = &m->grids[m->n_grids];
    snprintf(g->name, sizeof g->name, "g%u", m->n_grids);
    g->rank = rank;
    g->level = level;
    model_shape(rank, a, b, g->extent);
    g->count = (uint32_t)ref_points(g->extent, (int)rank);
    g->first = m->n_tasks;
    m->n_tasks += g->count;
    return m->n_grids++;
}
static inline uint32_t model_add_event(model *m, uint32_t rank, int32_t a, int32_t b)
{
    model_event *e = &m->events[m->n_events];
    snprintf(e->name, sizeof e->name, "E%u", m->n_events);
    e->rank = rank;
    model_shape(rank, a, b, e->extent);
    return m->n_events++;
}
static inline void model_add_edge(model *m, uint32_t grid, uint32_t event, uint32_t out,
                                  const char *map)
{
    model_edge *e = &m->edges[m->n_edges++];
    e->grid = grid, e->event = event, e->out = out;
    snprintf(e->map, sizeof e->map, "%s", map);
}
static inline void model_out(model *m, uint32_t grid, uint32_t event, const char *map)
{
    model_add_edge(m, grid, event, 1, map);
}
static inline void model_in(model *m, uint32_t grid, uint32_t event, const char *map)
{
    model_add_edge(m, grid, event, 0, map);
}
static inline uint32_t model_tasks(const model *m)
{
    return m->n_tasks;
}

static inline fleet_shape model_fleet_shape(uint32_t rank, const int32_t *extent)
{
    fleet_shape s = fleet_shape0();
    uint32_t k;
    for (k = 0; k < rank; k++) s = fleet_shape_append(s, fleet_dim_of(extent[k]));
    return s;
}

/* The fleet graph; the caller may add to it before rig_open. */
static inline void model_graph(model *m)
{
    uint32_t i;
    m->graph = fleet_graph_create(NULL);
    for (i = 0; i < m->n_events; i++)
        m->events[i].handle = fleet_event_tensor(
            m->graph, m->events[i].name, model_fleet_shape(m->events[i].rank, m->events[i].extent),
            FLEET_COUNT_DERIVED);
    for (i = 0; i < m->n_grids; i++) {
        model_grid *g = &m->grids[i];
        g->handle = fleet_call_device(m->graph, g->name, world_work,
                                      model_fleet_shape(g->rank, g->extent), 0);
        fleet_grid_level(m->graph, g->handle, g->level);
        if (g->slices) fleet_grid_slices(m->graph, g->handle, fleet_dim_of(g->slices));
        if (g->tiles) fleet_grid_tiles(m->graph, g->handle, fleet_dim_of(g->tiles));
    }
    for (i = 0; i < m->n_edges; i++) {
        model_edge *e = &m->edges[i];
        if (e->out)
            fleet_out_edge(m->graph, m->grids[e->grid].handle, m->events[e->event].handle, e->map);
        else
            fleet_in_edge(m->graph, m->grids[e->grid].handle, m->events[e->event].handle, e->map);
    }
}

/* ---- a rig: a model on a device ---- */

typedef struct rig {
    setting s;
    model *m;
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_stream stream;
    fleet_launch_desc launch;
    fleet_host_stats stats;
    world w;         /* with device addresses */
    void *device;    /* the world, in device memory */
    void *memory;    /* everything else in device memory */
    uint32_t *flags; /* in host memory */
    size_t cells_at, cell_of_at, first_pred_at, preds_at, runs_at, tickets_at, counters_at, bytes;
    uint32_t *initial; /* memory as it is at the beginning */
    fleet_peers peers; /* of a plan for several ranks */
    uint32_t n_all_cells, n_tasks;
    uint32_t number; /* of the last launch */
    fleet_status launched;
#if defined(FLEET_HOST)
    pthread_t thread;
#endif
} rig;

static inline uint32_t rig_workers(const rig *r, uint32_t chiplet)
{
    uint32_t w = r->s.workers
                     ? r->s.workers
                     : r->s.topology.units[chiplet] - (r->s.schedule == FLEET_SCHEDULE_CHIPLET);
    return w;
}
/* Slices of a task, and the parts of one of them. */
static inline uint32_t rig_slices(const rig *r, const model_grid *g)
{
    if (g->level != FLEET_LEVEL_DEVICE) return 1;
    return g->slices ? g->slices : r->s.topology.chiplets;
}
static inline uint32_t rig_parts(const rig *r, const model_grid *g, uint32_t task, uint32_t slice)
{
    uint32_t most = 0, k;
    if (r->s.unaware && g->level >= FLEET_LEVEL_CHIPLET) {
        for (k = 0; k < r->s.topology.chiplets; k++)
            if (rig_workers(r, k) > most) most = rig_workers(r, k);
        return g->tiles ? g->tiles : most;
    }
    if (g->level == FLEET_LEVEL_DEVICE) return rig_workers(r, slice % r->s.topology.chiplets);
    if (g->level == FLEET_LEVEL_CHIPLET)
        return rig_workers(r, (task - g->first) % r->s.topology.chiplets);
    return 1;
}
static inline const model_grid *rig_grid_of(const rig *r, uint32_t task)
{
    const model_grid *g = r->m->grids;
    while (task - g->first >= g->count) g++;
    return g;
}

typedef struct words {
    uint32_t *at;
    uint32_t n, room;
} words;
static inline void words_put(words *w, uint32_t value)
{
    if (w->n == w->room) {
        w->room = w->room ? 2 * w->room : 256;
        w->at = (uint32_t *)realloc(w->at, w->room * sizeof *w->at);
        if (!w->at) abort();
    }
    w->at[w->n++] = value;
}

/* Tasks that reach an element of an event by edges of that direction. */
static inline void model_reaching(const model *m, uint32_t event, uint32_t element, uint32_t out,
                                  uint8_t *marks)
{
    uint32_t i, k;
    int outside = 0;
    for (i = 0; i < m->n_edges; i++) {
        const model_grid *g = &m->grids[m->edges[i].grid];
        fleet_map map = ref_einsum(m->edges[i].map, (int)g->rank, NULL);
        if (m->edges[i].event != event || m->edges[i].out != out) continue;
        for (k = 0; k < g->count; k++) {
            int32_t at[FLEET_MAX_RANK];
            ref_unravel(k, g->extent, (int)g->rank, at);
            if (ref_reaches(&map, (int)g->rank, at, m->events[event].extent, element, &outside))
                marks[g->first + k] = 1;
        }
    }
}

/* before[c * n + p]: task p must be over before task c begins. */
static inline uint8_t *model_before(const model *m)
{
    uint32_t n = model_tasks(m), e, x, c, p;
    uint8_t *before = (uint8_t *)calloc((size_t)n * n + 1, 1);
    uint8_t *from = (uint8_t *)malloc(n + 1), *to = (uint8_t *)malloc(n + 1);
    if (!before || !from || !to) abort();
    for (e = 0; e < m->n_events; e++)
        for (x = 0; x < (uint32_t)ref_points(m->events[e].extent, (int)m->events[e].rank); x++) {
            memset(from, 0, n);
            memset(to, 0, n);
            model_reaching(m, e, x, 1, from);
            model_reaching(m, e, x, 0, to);
            for (c = 0; c < n; c++)
                for (p = 0; to[c] && p < n; p++) before[(size_t)c * n + p] |= from[p];
        }
    free(from);
    free(to);
    return before;
}

static inline size_t rig_place(size_t *at, size_t n_words)
{
    size_t here = *at;
    *at += (n_words + 31) / 32 * 32;
    return here;
}

/* Lays out the data of the model; `initial` holds it in host memory. */
static inline void rig_data(rig *r)
{
    const model *m = r->m;
    uint32_t n = model_tasks(m), c, p, s, j, cell = 0;
    uint8_t *before = model_before(m);
    uint32_t *cell_of = (uint32_t *)calloc(n + 1, 4), *first = (uint32_t *)calloc(n + 2, 4);
    words preds;
    size_t at = 0;
    memset(&preds, 0, sizeof preds);
    if (!cell_of || !first) abort();
    r->n_tasks = n;
    for (c = 0; c < r->s.topology.chiplets; c++)
        if (rig_workers(r, c) > r->w.parts) r->w.parts = rig_workers(r, c);
    for (c = 0; c < m->n_grids; c++)
        if (m->grids[c].tiles > r->w.parts) r->w.parts = m->grids[c].tiles;
    for (c = 0; c < n; c++) {
        const model_grid *g = rig_grid_of(r, c);
        uint32_t slices = rig_slices(r, g);
        cell_of[c] = cell;
        cell += slices * (g->level >= FLEET_LEVEL_CHIPLET ? r->w.parts : 1);
        for (s = 0; s < slices; s++) r->w.n_cells += rig_parts(r, g, c, s);
    }
    r->n_all_cells = cell;
    for (c = 0; c < n; c++) {
        first[c] = preds.n;
        for (p = 0; p < n; p++) {
            const model_grid *g = rig_grid_of(r, p);
            if (!before[(size_t)c * n + p]) continue;
            for (s = 0; s < rig_slices(r, g); s++)
                for (j = 0; j < rig_parts(r, g, p, s); j++)
                    words_put(&preds, cell_of[p] + s * r->w.parts + j);
        }
    }
    first[n] = preds.n;
    r->cells_at = rig_place(&at, (size_t)cell * CELL_WORDS);
    r->cell_of_at = rig_place(&at, n);
    r->first_pred_at = rig_place(&at, n + 1);
    r->preds_at = rig_place(&at, preds.n);
    r->runs_at = rig_place(&at, cell);
    r->tickets_at = rig_place(&at, 2 * (size_t)cell);
    r->counters_at = rig_place(&at, COUNT_WORDS);
    r->bytes = at * 4;
    r->initial = (uint32_t *)calloc(at + 1, 4);
    if (!r->initial) abort();
    for (p = 0; p < cell * CELL_WORDS; p++) r->initial[r->cells_at + p] = 0xdeadbeefu;
    memcpy(r->initial + r->cell_of_at, cell_of, n * sizeof *cell_of);
    memcpy(r->initial + r->first_pred_at, first, (n + 1) * sizeof *first);
    if (preds.n) memcpy(r->initial + r->preds_at, preds.at, preds.n * sizeof *preds.at);
    free(before);
    free(cell_of);
    free(first);
    free(preds.at);
}

/* The world to the device, after a change of its oddity. */
static inline fleet_status rig_world(rig *r)
{
    return fleet_to_device(r->device, &r->w, sizeof r->w, r->stream);
}

static inline fleet_status rig_clear(rig *r)
{
    memset(r->flags, 0, 256);
    return fleet_to_device(r->memory, r->initial, r->bytes, r->stream);
}

/* Plan, image, state and data of a model (with its graph) on this device. 0: the test has failed. */
static inline int rig_open_at(test_run *t, rig *r, model *m, const setting *s, uint32_t first_epoch)
{
    fleet_plan_desc d = setting_plan_desc(s);
    fleet_state_desc state = setting_state_desc(s);
    void *flags = NULL, *device_flags = NULL;
    fleet_status status;
    uint32_t i;
    memset(r, 0, sizeof *r);
    r->s = *s;
    r->m = m;
    if (!m->graph) model_graph(m);
    for (i = 0; i < m->n_grids; i++) setting_mix(s, m->graph, m->grids[i].handle, i);
    for (i = 0; i < m->n_grids && s->ranks > 1; i++) { /* by the first coordinate, in equal runs */
        const model_grid *g = &m->grids[i];
        fleet_grid_ranks(m->graph, g->handle,
                         fleet_axis(0, g->rank ? (int64_t)s->ranks : 0, 0, g->extent[0]));
    }
    status = fleet_plan_build(m->graph, &d, &r->plan);
    if (status) {
        test_fail(t, __FILE__, __LINE__, "plan: %s", fleet_graph_error(m->graph));
        return 0;
    }
    rig_data(r);
    state.first_epoch = first_epoch;
    if (s->ranks > 1) {
        r->peers.rank = FLEET_ALL_RANKS, r->peers.ranks = s->ranks;
        for (i = 0; i < s->ranks && !s->peers; i++)
            NEED_STATUS(fleet_device_alloc(&r->peers.bases[i], fleet_peers_bytes(r->plan)),
                        FLEET_OK);
        state.peers = s->peers ? s->peers : &r->peers;
    }
    NEED_STATUS(fleet_device_alloc(&r->memory, r->bytes), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&r->device, sizeof r->w), FLEET_OK);
    NEED_STATUS(fleet_pinned_alloc(&flags, &device_flags, 256), FLEET_OK);
    NEED_STATUS(fleet_upload(&r->image, r->plan, r->stream), FLEET_OK);
    NEED_STATUS(fleet_state_create(&r->state, &r->image, &state, r->stream), FLEET_OK);
    r->flags = (uint32_t *)flags;
    r->w.flags = (uint32_t *)device_flags;
    r->w.cells = (uint32_t *)r->memory + r->cells_at;
    r->w.cell_of = (uint32_t *)r->memory + r->cell_of_at;
    r->w.first_pred = (uint32_t *)r->memory + r->first_pred_at;
    r->w.preds = (uint32_t *)r->memory + r->preds_at;
    r->w.runs = (uint32_t *)r->memory + r->runs_at;
    r->w.tickets = (uint32_t *)r->memory + r->tickets_at;
    r->w.counters = (uint32_t *)r->memory + r->counters_at;
    r->w.abort_word = &r->state.host_device->abort.word;
    r->w.first_epoch = first_epoch;
    NEED_STATUS(rig_clear(r), FLEET_OK);
    NEED_STATUS(rig_world(r), FLEET_OK);
    r->launch = setting_launch_desc(s);
    r->launch.host.stats = &r->stats;
    return 1;
}
static inline int rig_open(test_run *t, rig *r, model *m, const setting *s)
{
    return rig_open_at(t, r, m, s, 0);
}

/* The plan, state and data; the model keeps its graph, for another rig. */
static inline void rig_close(rig *r)
{
    fleet_state_free(&r->state);
    fleet_image_free(&r->image);
    fleet_plan_free(r->plan);
    fleet_device_free(r->memory);
    fleet_device_free(r->device);
    fleet_pinned_free(r->flags);
    for (uint32_t i = 0; i < r->s.ranks && !r->s.peers; i++) fleet_device_free(r->peers.bases[i]);
    free(r->initial);
    memset(r, 0, sizeof *r);
}
static inline void model_end(model *m)
{
    fleet_graph_destroy(m->graph);
    m->graph = NULL;
}

/* After each launch: its status, its outcome and the report say the same. */
static inline fleet_status rig_told(rig *r, fleet_status status)
{
    char text[8192], line[64];
    fleet_outcome o;
    const uint32_t known = fleet_state_outcome(&r->state, r->number, &o);
    const uint32_t beside = r->state.beside != NULL;
    const char *wrong = NULL;
    fleet_state_report(&r->state, text, sizeof text);
    snprintf(line, sizeof line, "launch %u", r->number);
    if (!known || !o.ended)
        wrong = "it has no outcome";
    else if (!status != !o.status)
        wrong = "one of them is FLEET_OK";
    else if (!status && !r->launch.finish && !r->plan->rebinds && o.steps != r->launch.steps)
        wrong = "FLEET_OK, but it has not run all its steps";
    else if (status && (o.steps || !strstr(text, line) || !strstr(text, "launch it")))
        wrong = "the report does not name it, or not what to do";
    else if (!beside && status && !strncmp(text, "FLEET_OK", 8))
        wrong = "the report begins with FLEET_OK";
    if (wrong)
        printf("FAIL one truth: %s: launch %u is %s, %s, %u steps of %u; report:\n%s", wrong,
               r->number, fleet_status_name(status), fleet_status_name(o.status), o.steps,
               r->launch.steps, text);
    return status;
}
static inline fleet_status rig_launch(rig *r, uint32_t steps)
{
    r->launch.steps = steps;
    r->launch.number = &r->number;
    return fleet_launch(&r->state, &r->launch, FLEET_KERNEL_OF(world_kernel), r->device);
}
static inline fleet_status rig_run(rig *r, uint32_t steps)
{
    fleet_status status = rig_launch(r, steps);
    return status ? status : rig_told(r, fleet_state_wait(&r->state, r->stream));
}

/* Runs steps that must end well; otherwise shows the report. */
#define CHECK_RUN(r, steps)                                                                        \
    do {                                                                                           \
        fleet_status run_got = rig_run(r, steps);                                                  \
        if (run_got) {                                                                             \
            static char run_report[4096];                                                          \
            test_fail(t, __FILE__, __LINE__, "rig_run(%s) is %s", #steps,                          \
                      fleet_status_name(run_got));                                                 \
            fleet_state_report(&(r)->state, run_report, sizeof run_report);                        \
            printf("%s", run_report);                                                              \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* A launch next to the test, which goes on meanwhile. */
#if defined(FLEET_HOST)
static inline void *rig_thread(void *rig_)
{
    rig *r = (rig *)rig_;
    r->launched = fleet_launch(&r->state, &r->launch, FLEET_KERNEL_OF(world_kernel), r->device);
    return NULL;
}
#endif
static inline void rig_start(rig *r, uint32_t steps)
{
    r->launch.steps = steps;
    r->launch.number = &r->number;
#if defined(FLEET_HOST)
    if (pthread_create(&r->thread, NULL, rig_thread, r)) abort();
#else
    r->launched = rig_launch(r, steps);
#endif
}
static inline fleet_status rig_join(rig *r)
{
#if defined(FLEET_HOST)
    pthread_join(r->thread, NULL);
#endif
    return r->launched ? r->launched : rig_told(r, fleet_state_wait(&r->state, r->stream));
}

/* After `steps` steps in all: every part ran once in each, on its producers' data, after their ends. */
static inline int rig_check(test_run *t, rig *r, uint32_t steps)
{
    uint32_t *now = (uint32_t *)malloc(r->bytes + 4), c, s, j, k;
    const uint32_t *e, *preds, *first, *cell_of, *tickets;
    if (!now) abort();
    NEED_STATUS(fleet_to_host(now, r->memory, r->bytes, r->stream), FLEET_OK);
    e = now + r->counters_at + COUNT_ERRORS;
    cell_of = now + r->cell_of_at, first = now + r->first_pred_at, preds = now + r->preds_at;
    tickets = now + r->tickets_at;
    if (e[0])
        test_fail(t, __FILE__, __LINE__,
                  "%u wrong; first: %s in task %u, cell %u: %x, not %x, epoch %u", e[0],
                  e[1] == WRONG_DATA   ? "data"
                  : e[1] == WRONG_STEP ? "step"
                                       : "place",
                  e[2], e[3], e[4], e[5], e[6]);
    for (c = 0; c < r->n_tasks && !t->failed_here; c++) {
        const model_grid *g = rig_grid_of(r, c);
        for (s = 0; s < rig_slices(r, g); s++)
            for (j = 0; j < (g->level >= FLEET_LEVEL_CHIPLET ? r->w.parts : 1); j++) {
                uint32_t cell = cell_of[c] + s * r->w.parts + j, here = j < rig_parts(r, g, c, s);
                if (now[r->runs_at + cell] != (here ? steps : 0))
                    test_fail(t, __FILE__, __LINE__,
                              "task %s[%u] slice %u part %u ran %u times, not %u", g->name,
                              c - g->first, s, j, now[r->runs_at + cell], here ? steps : 0);
                for (k = first[c]; here && steps && k < first[c + 1]; k++)
                    if ((int32_t)(tickets[2 * cell] - tickets[2 * preds[k] + 1]) <= 0)
                        test_fail(t, __FILE__, __LINE__,
                                  "task %s[%u] began before the end of cell %u", g->name,
                                  c - g->first, preds[k]);
            }
    }
    if (!t->failed_here && fleet_state_epoch(&r->state) != r->w.first_epoch + steps)
        test_fail(t, __FILE__, __LINE__, "epoch %u after %u steps from %u",
                  fleet_state_epoch(&r->state), steps, r->w.first_epoch);
    free(now);
    return !t->failed_here;
}

/* How often tiles of a grid ran in all, whether they came to an end or not. */
static inline uint32_t rig_runs(rig *r, uint32_t grid)
{
    uint32_t *now = (uint32_t *)malloc(r->bytes + 4), c, j, n = 0;
    const model_grid *g = &r->m->grids[grid];
    if (!now || fleet_to_host(now, r->memory, r->bytes, r->stream)) abort();
    for (c = g->first; c < g->first + g->count; c++)
        for (j = 0; j < rig_slices(r, g) * (g->level >= FLEET_LEVEL_CHIPLET ? r->w.parts : 1); j++)
            n += now[r->runs_at + now[r->cell_of_at + c] + j];
    free(now);
    return n;
}

/* Tiles that found something wrong. */
static inline uint32_t rig_errors(rig *r)
{
    uint32_t n = 0;
    if (fleet_to_host(&n, r->w.counters + COUNT_ERRORS, sizeof n, r->stream)) abort();
    return n;
}

/* After a failure, to go on from epoch 0. */
static inline int rig_recover(test_run *t, rig *r)
{
    NEED_STATUS(fleet_state_recover(&r->state, r->stream), FLEET_OK);
    r->w.odd = ODD_NONE;
    r->w.first_epoch = 0;
    NEED_STATUS(rig_clear(r), FLEET_OK);
    NEED_STATUS(rig_world(r), FLEET_OK);
    NEED_STATUS(fleet_state_wait(&r->state, r->stream), FLEET_OK);
    return 1;
}

static inline int rig_odd(test_run *t, rig *r, oddity odd, uint32_t task, uint32_t part,
                          uint32_t step)
{
    r->w.odd = odd;
    r->w.odd_task = task;
    r->w.odd_part = part;
    r->w.odd_step = step;
    NEED_STATUS(rig_world(r), FLEET_OK);
    return 1;
}

/* After task `odd` did not end in step `step` of the first launch: whatever depends on it, in this step or by
   the order of steps, did not run any more, and nothing ran in later steps. */
static inline int rig_check_stopped(test_run *t, rig *r, uint32_t odd, uint32_t step)
{
    uint32_t *now = (uint32_t *)malloc(r->bytes + 4), c, p, again = 1;
    uint8_t *before = model_before(r->m), *after = (uint8_t *)calloc(r->n_tasks + 1, 1);
    if (!now || !after) abort();
    NEED_STATUS(fleet_to_host(now, r->memory, r->bytes, r->stream), FLEET_OK);
    while (again)
        for (again = 0, c = 0; c < r->n_tasks; c++)
            for (p = 0; p < r->n_tasks && !after[c]; p++)
                if (before[(size_t)c * r->n_tasks + p] && (p == odd || after[p]))
                    after[c] = 1, again = 1;
    for (c = 0; c < r->n_tasks && !t->failed_here; c++) {
        uint32_t cell = now[r->cell_of_at + c];
        uint32_t end = c + 1 < r->n_tasks ? now[r->cell_of_at + c + 1] : r->n_all_cells;
        for (; cell < end; cell++)
            if (now[r->runs_at + cell] > step + !after[c])
                test_fail(t, __FILE__, __LINE__,
                          "task %u ran %u times, although task %u failed in step %u", c,
                          now[r->runs_at + cell], odd, step);
    }
    if (now[r->counters_at + COUNT_ERRORS])
        test_fail(t, __FILE__, __LINE__, "a tile ran on data that was not ready");
    free(now);
    free(before);
    free(after);
    return !t->failed_here;
}

/* ---- graphs that several programs use ---- */

/* Test 1 of tests/gpu/papers.c: g0(i, j) -> E0[i] -> g1(i). */
static inline void model_split_row_sum(model *m, int32_t rows, int32_t parts)
{
    model_begin(m);
    model_add_grid(m, FLEET_LEVEL_CU, 2, rows, parts);
    model_add_grid(m, FLEET_LEVEL_CU, 1, rows, 1);
    model_add_event(m, 1, rows, 1);
    model_out(m, 0, 0, "ij->i");
    model_in(m, 1, 0, "i->i");
}

/* Every level after every other: CU grid -> device-task -> chiplet-tasks -> wavefront-tasks -> device-task. */
static inline void model_levels(model *m, int32_t n)
{
    model_begin(m);
    model_add_grid(m, FLEET_LEVEL_CU, 1, n, 1);
    model_add_grid(m, FLEET_LEVEL_DEVICE, 1, 1, 1);
    model_add_grid(m, FLEET_LEVEL_CHIPLET, 1, n, 1);
    model_add_grid(m, FLEET_LEVEL_WAVE, 2, n, 3);
    model_add_grid(m, FLEET_LEVEL_DEVICE, 1, 2, 1);
    model_add_event(m, 0, 1, 1);
    model_add_event(m, 0, 1, 1);
    model_add_event(m, 1, n, 1);
    model_add_event(m, 2, n, 3);
    model_out(m, 0, 0, "i->");
    model_in(m, 1, 0, "i->");
    model_out(m, 1, 1, "i->");
    model_in(m, 2, 1, "i->");
    model_out(m, 2, 2, "i->i");
    model_in(m, 3, 2, "ij->i");
    model_out(m, 3, 3, "ij->ij");
    model_in(m, 4, 3, "i->jk");
}

/* g0(i, j) -> E0[i, j] -> g1(j, i) -> E1[j] -> g2(i): over ranks, each task of g1 waits for one of another rank, and each
   element of E1 counts tasks of all ranks. */
static inline void model_exchange(model *m, fleet_level level, int32_t n)
{
    model_begin(m);
    model_add_grid(m, FLEET_LEVEL_CU, 2, n, n);
    model_add_grid(m, level, 2, n, n);
    model_add_grid(m, FLEET_LEVEL_CU, 1, n, 1);
    model_add_event(m, 2, n, n);
    model_add_event(m, 1, n, 1);
    model_out(m, 0, 0, "ij->ij");
    model_in(m, 1, 0, "ij->ji");
    model_out(m, 1, 1, "ij->j");
    model_in(m, 2, 1, "i->i");
}

/* A device-task of so many slices between two grids: a counter for each chiplet, then one for all. */
static inline void model_two_stages(model *m, uint32_t slices)
{
    model_begin(m);
    model_add_grid(m, FLEET_LEVEL_CU, 1, 2, 1);
    model_add_grid(m, FLEET_LEVEL_DEVICE, 1, 1, 1);
    model_add_grid(m, FLEET_LEVEL_CU, 1, 3, 1);
    m->grids[1].slices = slices;
    model_add_event(m, 0, 1, 1);
    model_add_event(m, 0, 1, 1);
    model_out(m, 0, 0, "i->");
    model_in(m, 1, 0, "i->");
    model_out(m, 1, 1, "i->");
    model_in(m, 2, 1, "i->");
}

#endif
