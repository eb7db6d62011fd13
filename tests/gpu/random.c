/* Random graphs in random plans against an oracle that enumerates tasks and dependencies by brute force (oracle.h): a
   plan is refused exactly for a reason that the graph gives; and each task runs exactly once a step, after its producers
   and the step before, on the data that they left there by plain stores. On the CPU in the chiplet-memory model, where
   a missing fence gives wrong data; some graphs under sanitizers.

       random      FLEET_TEST_SEED=n runs that one graph, FLEET_TEST_GRAPHS=n so many, FLEET_TEST_VERBOSE=1 tells */
// run: model
// run: asan engine=both -DGRAPHS=300
// run: tsan -DGRAPHS=100
// hip: 6 runs
#include "oracle.h"
#include "plan/check.h"

/* ---- a random graph ---- */

static spec_values most_values(const spec *sp)
{
    spec_values v;
    uint32_t s;
    memset(&v, 0, sizeof v);
    for (s = 0; s < sp->n_symbols; s++)
        v.of[s] = sp->symbols[s].at_build ? sp->symbols[s].value : sp->symbols[s].max;
    return v;
}
static int64_t most_of(const spec *sp, fleet_dim d)
{
    const spec_values v = most_values(sp);
    return oracle_dim(d, &v);
}
/* The points of a shape, and its extents. */
static int64_t most_points(const spec *sp, const fleet_dim *extent, uint32_t rank, int32_t *most)
{
    const spec_values v = most_values(sp);
    const oracle_points p = oracle_points_of(extent, rank, &v, NULL, 0);
    memcpy(most, p.most, sizeof p.most);
    return p.count;
}

/* Lets some extents depend on the axes before them: triangles and their like, narrowing and
   growing, also by every other row. */
static void random_triangle(const spec *sp, fleet_dim *extent, uint32_t rank, uint64_t *seed)
{
    uint32_t k, j;
    for (k = 1; k < rank; k++) {
        const int64_t per = draw(seed, 4) ? 1 : draw(seed, 3) ? -1 : 2;
        if (draw(seed, 3) == 0) continue;
        j = draw(seed, k);
        if (draw(seed, 16)) extent[k] = fleet_dim_of(draw(seed, 3));
        if (per < 0) /* some are below 0 at the end */
            extent[k].add += (most_of(sp, extent[j]) - (draw(seed, 4) ? 1 : 3)) * extent[k].div;
        extent[k] = fleet_dim_plus_axis(extent[k], j, per);
        if (draw(seed, 6) == 0) extent[k] = fleet_dim_plus_axis(extent[k], draw(seed, k), 1);
        if (draw(seed, 4) == 0) extent[k] = fleet_dim_ceil_div(extent[k], 2);
    }
}
/* Whether an extent of a shape depends on an axis. */
static uint32_t depends(const fleet_dim *extent, uint32_t rank)
{
    uint32_t k, some = 0;
    for (k = 0; k < rank; k++) some |= (uint32_t)oracle_depends(&extent[k]);
    return some;
}

static fleet_dim random_dim(const spec *sp, uint64_t *seed, uint32_t least, uint32_t most)
{
    fleet_dim d = fleet_dim_of(least + draw(seed, most - least + 1));
    if (!sp->n_symbols || draw(seed, 3) == 0) return d;
    d.symbol = 1 + draw(seed, sp->n_symbols);
    d.mul = 1;
    d.add = least + draw(seed, 2);
    if (draw(seed, 4) == 0) d = fleet_dim_times(d, 2);
    if (draw(seed, 3) == 0) d = fleet_dim_ceil_div(d, 2);
    return d;
}

static void random_symbols(spec *sp, uint64_t *seed)
{
    uint32_t i;
    sp->n_symbols = draw(seed, 2) ? 1 + draw(seed, 2) : 0;
    for (i = 0; i < sp->n_symbols; i++) {
        spec_symbol *s = &sp->symbols[i];
        s->min = draw(seed, 3);
        s->max = s->min + draw(seed, 5);
        s->at_build = draw(seed, 4) == 0;
        s->value = s->min + draw(seed, (uint32_t)(s->max - s->min) + 1);
        if (draw(seed, 3)) { /* else those by default */
            int64_t value = s->min + draw(seed, 3);
            for (; value <= s->max && s->n_buckets < 3; value += 1 + draw(seed, 3))
                s->buckets[s->n_buckets++] = value;
        }
    }
}

static void random_grid(spec *sp, uint64_t *seed, uint32_t *tasks, const setting *s)
{
    static const fleet_level levels[] = {FLEET_LEVEL_CU,   FLEET_LEVEL_CU,      FLEET_LEVEL_CU,
                                         FLEET_LEVEL_WAVE, FLEET_LEVEL_CHIPLET, FLEET_LEVEL_DEVICE};
    spec_grid *g = &sp->grids[sp->n_grids++];
    int32_t most[FLEET_MAX_RANK];
    uint32_t k;
    int64_t n;
    g->level = levels[draw(seed, 6)];
    do {
        const uint32_t largest = g->level < FLEET_LEVEL_CHIPLET ? 9 : 3;
        g->rank = draw(seed, 8) ? draw(seed, 3) : 3;
        for (k = 0; k < g->rank; k++) {
            g->extent[k] = random_dim(sp, seed, draw(seed, 16) != 0, largest);
            /* Extents that are alike make maps that are more than "every". */
            if (sp->n_grids > 1 && sp->grids[sp->n_grids - 2].rank > k && draw(seed, 2))
                g->extent[k] = sp->grids[sp->n_grids - 2].extent[k];
        }
        if (draw(seed, 5) == 0) random_triangle(sp, g->extent, g->rank, seed);
        n = most_points(sp, g->extent, g->rank, most);
    } while (n > 30 || *tasks + n > SPEC_TASKS);
    *tasks += (uint32_t)n;
    if (g->level == FLEET_LEVEL_DEVICE && draw(seed, 2))
        g->has_slices = 1, g->slices = random_dim(sp, seed, 1, 5);
    if (g->level >= FLEET_LEVEL_CHIPLET && draw(seed, 2))
        g->has_tiles = 1, g->tiles = random_dim(sp, seed, 1, 4);
    if (g->level != FLEET_LEVEL_DEVICE && draw(seed, 6) == 0) { /* all on one chiplet, or in runs */
        const uint32_t x = s->topology.chiplets, axis = g->rank ? draw(seed, g->rank) : 0;
        fleet_axis_map a = fleet_axis(0, 0, draw(seed, x), 1);
        if (g->rank && draw(seed, 2))
            a = fleet_axis(axis, 1, 0, ((int64_t)most[axis] + x - 1) / x + draw(seed, 2));
        if (a.div == 0) a.div = 1;
        g->is_placed = 1;
        g->place = fleet_map1(a);
    }
    if (s->schedule != FLEET_SCHEDULE_CHIPLET && s->mixed && draw(seed, 2)) {
        static const fleet_schedule schedules[] = {FLEET_SCHEDULE_STATIC, FLEET_SCHEDULE_DYNAMIC,
                                                   FLEET_SCHEDULE_DYNAMIC, FLEET_SCHEDULE_AUTO};
        g->has_schedule = 1;
        g->schedule = schedules[draw(seed, 4)];
    }
    if (draw(seed, 4) == 0) g->mean_ns = 100 + draw(seed, 100000);
    if (draw(seed, 12) == 0) {
        /* Mostly keys that grow with the grids, which have the tasks of neighbours in turn. */
        g->has_key = 1;
        g->key = fleet_key_of(draw(seed, 8) ? sp->n_grids : (int64_t)draw(seed, 20) - 10);
        for (k = 0; k < g->rank; k++)
            g->key = fleet_key_plus(g->key, k, (int64_t)draw(seed, 4) - (draw(seed, 8) == 0));
    }
}

/* A map that mostly stays inside, of each kind: one to one, every, several to one and one to several, with widths and
   limits, and limits at which a task reaches nothing. */
static fleet_map random_map(const spec *sp, uint32_t grid, uint32_t event, uint64_t *seed)
{
    const spec_grid *g = &sp->grids[grid];
    fleet_map map = fleet_map0();
    int32_t most[FLEET_MAX_RANK], event_most[FLEET_MAX_RANK];
    uint32_t j, k;
    most_points(sp, g->extent, g->rank, most);
    most_points(sp, sp->events[event].extent, sp->events[event].rank, event_most);
    for (j = 0; j < sp->events[event].rank; j++) {
        const int depends_too = oracle_depends(&sp->events[event].extent[j]);
        /* Limits are numbers. */
        const fleet_dim own = sp->events[event].extent[j],
                        to = depends_too ? fleet_dim_of(event_most[j]) : own;
        fleet_axis_map a = fleet_axis_all();
        for (k = 0; k < g->rank; k++) {
            const int64_t here = most[k], there = event_most[j];
            const int same = !memcmp(&g->extent[k], &own, sizeof own);
            if (draw(seed, 3) == 0) continue;
            if (same && draw(seed, 4)) a = fleet_axis(k, 1, 0, 1);
            if (!same && here > there && there > 0 && !to.symbol && draw(seed, 2))
                a = fleet_axis(k, 1, 0, (here + there - 1) / there);
            if (!same && here < there && here > 0 && draw(seed, 2))
                a = fleet_axis_retile(k, (there + here - 1) / here, 1, to);
            if (same && draw(seed, 4) == 0) { /* overlapping windows */
                a = fleet_axis(k, 1, 0, 1);
                a.width = 1 + draw(seed, 3);
                a.limit = to;
            }
            if (same && draw(seed, 6) == 0) /* a neighbour, which tasks at a border do not have */
                a = fleet_axis_clipped(k, 1, (int64_t)draw(seed, 5) - 2, 1,
                                       fleet_dim_of(draw(seed, 2)), to);
            if (same && !to.symbol && there && draw(seed, 8) == 0) /* periodic borders */
                a = fleet_axis_periodic(k, 1, (int64_t)draw(seed, 9) - 4, 1, to);
            if (same &&
                draw(seed, 8) == 0) { /* partners in a butterfly, some of which are not there */
                a = draw(seed, 2)
                        ? fleet_axis_xor(k, draw(seed, 4))
                        : fleet_axis_butterfly(k, draw(seed, g->rank), (int)draw(seed, 3) - 1);
                a.clipped = 1, a.lower = fleet_dim_of(0), a.limit = to;
            }
            if (!a.every && draw(seed, 6) == 0) { /* the last tasks reach nothing */
                const uint32_t cut = draw(seed, 3);
                a.limit =
                    !to.symbol
                        ? fleet_dim_of(1 + draw(seed, (uint32_t)there + !(there && draw(seed, 16))))
                    : cut ? fleet_dim_of(cut)
                          : to;
                if (a.limit.symbol == 0 && to.symbol && to.add < a.limit.add * to.div &&
                    draw(seed, 8))
                    a.limit = to;
            }
        }
        if (draw(seed, 60) == 0) a = fleet_axis(0, g->rank > 0, (int64_t)draw(seed, 4) - 2, 1);
        map = fleet_map_append(map, a);
    }
    return map;
}

static void add_edge(spec *sp, uint32_t grid, uint32_t event, uint32_t out, fleet_map map)
{
    spec_edge *e = &sp->edges[sp->n_edges];
    if (sp->n_edges == SPEC_EDGES) return;
    sp->n_edges++;
    memset(e, 0, sizeof *e);
    e->grid = grid, e->event = event, e->out = out, e->map = map;
}

static fleet_map map_every(uint32_t rank)
{
    fleet_map map = fleet_map0();
    while (rank--) map = fleet_map_append(map, fleet_axis_all());
    return map;
}

/* An event between a grid and some of those after it. */
static void random_event(spec *sp, uint64_t *seed, uint32_t backward, uint32_t *elements)
{
    const uint32_t event = sp->n_events, p = draw(seed, sp->n_grids);
    const spec_grid *from = &sp->grids[p];
    spec_event *e = &sp->events[event];
    uint32_t k, n = 1 + draw(seed, 3);
    int32_t most[FLEET_MAX_RANK];
    int64_t points;
    memset(e, 0, sizeof *e);
    e->rank = draw(seed, 3);
    for (k = 0; k < e->rank; k++) {
        e->extent[k] = from->rank && draw(seed, 4) ? from->extent[draw(seed, from->rank)]
                                                   : random_dim(sp, seed, 1, 4);
        memset(e->extent[k].per, 0, sizeof e->extent[k].per);
    }
    if (draw(seed, 8) == 0) random_triangle(sp, e->extent, e->rank, seed);
    if (depends(from->extent, from->rank) && draw(seed, 2)) { /* of the same shape */
        e->rank = from->rank;
        memcpy(e->extent, from->extent, sizeof e->extent);
    }
    points = most_points(sp, e->extent, e->rank, most);
    if (points > 40 || *elements + points > SPEC_ELEMENTS || sp->n_edges + 8 > SPEC_EDGES) return;
    *elements += (uint32_t)points;
    sp->n_events++;
    if (draw(seed, 6) == 0) {
        static const fleet_scope scopes[] = {FLEET_SCOPE_SYSTEM, FLEET_SCOPE_SYSTEM,
                                             FLEET_SCOPE_DEVICE, FLEET_SCOPE_DEVICE,
                                             FLEET_SCOPE_CHIPLET};
        e->has_scope = 1;
        e->scope = scopes[draw(seed, 5)];
    }
    add_edge(sp, p, event, 1, random_map(sp, p, event, seed));
    if (draw(seed, 4) == 0) {
        k = draw(seed, backward ? sp->n_grids : p + 1);
        add_edge(sp, k, event, 1, random_map(sp, k, event, seed));
    }
    for (; n > 0; n--) {
        const uint32_t c = backward ? draw(seed, sp->n_grids) : p + 1 + draw(seed, 3);
        if (c < sp->n_grids) add_edge(sp, c, event, 0, random_map(sp, c, event, seed));
    }
}

/* Where tasks wait in vain, mostly adds a producer for all elements, or takes the waiters away. */
static void mend(spec *sp, uint64_t *seed, order *o)
{
    spec_values buckets[SPEC_BUCKETS];
    uint32_t n = oracle_buckets(sp, buckets), b, e, k, i;
    for (b = 0; b < n && b < SPEC_BUCKETS; b++) {
        const view v = oracle_view(sp, &buckets[b]);
        if (v.n_tasks > SPEC_TASKS || v.n_elements > SPEC_ELEMENTS) return;
        for (e = 0; e < sp->n_events; e++) {
            uint32_t vain = 0, first = sp->n_grids;
            oracle_order(sp, &v, &v, NULL, o);
            for (k = v.first_element[e]; k < v.first_element[e] + v.elements[e]; k++)
                vain |= o->waited[k] && !o->notifies[k];
            for (i = 0; i < sp->n_edges; i++)
                if (sp->edges[i].event == e && !sp->edges[i].out && sp->edges[i].grid < first)
                    first = sp->edges[i].grid;
            if (!vain || sp->events[e].by_tensor || draw(seed, 6) == 0) continue;
            for (i = 0; i < first && (!v.count[i] || draw(seed, 2)); i++) {
            }
            if (i < first && sp->n_edges < SPEC_EDGES) {
                add_edge(sp, i, e, 1, map_every(sp->events[e].rank));
                continue;
            }
            for (i = 0; i < sp->n_edges; i++)
                if (sp->edges[i].event == e && !sp->edges[i].out)
                    sp->edges[i--] = sp->edges[--sp->n_edges];
        }
    }
}

/* Tasks by run-time tensors, as the routing of a mixture of experts: rows of t0 say which experts a task notifies, t1
   how often each is, t2 which tasks wait for which. */
static void random_tensors(spec *sp, uint64_t *seed, uint32_t *tasks, uint32_t *elements)
{
    const uint32_t experts = 1 + draw(seed, 5), by_rows = draw(seed, 2), wave = draw(seed, 3) == 0;
    const uint32_t own = by_rows && draw(seed, 2); /* the task that writes a row gathers by it */
    const fleet_dim m = random_dim(sp, seed, 1, 8);
    uint32_t k = 1 + draw(seed, 2), router, gatherer, counter, consumer, event, after;
    fleet_dim n = random_dim(sp, seed, 1, 6);
    const uint32_t counts = n.symbol || draw(seed, 4);
    spec_grid *g;
    if (!counts) {
        n = fleet_dim_of(experts);
        if (k > experts) k = 1;
    }
    if (sp->n_grids + 4 > SPEC_GRIDS || sp->n_events + 3 > SPEC_EVENTS ||
        *tasks + 2 * most_of(sp, n) + 2 * most_of(sp, m) + 2 > SPEC_TASKS ||
        *elements + experts + 2 > SPEC_ELEMENTS || sp->n_edges + 10 > SPEC_EDGES ||
        most_of(sp, n) * k > SPEC_VALUES)
        return;
    *tasks += (uint32_t)(2 * most_of(sp, n) + 2 * most_of(sp, m) + 2), *elements += experts + 2;
    counter = sp->n_grids++; /* before all others: it counts for the oracle's tables only */
    router = sp->n_grids++;
    gatherer = own ? router : sp->n_grids++;
    consumer = sp->n_grids++;
    sp->grids[counter].level = FLEET_LEVEL_CU;
    g = &sp->grids[router];
    g->rank = by_rows, g->extent[0] = n;
    g->level = own && wave ? FLEET_LEVEL_WAVE : FLEET_LEVEL_CU;
    g = &sp->grids[gatherer];
    g->rank = 1, g->extent[0] = n, g->level = wave ? FLEET_LEVEL_WAVE : FLEET_LEVEL_CU;
    g = &sp->grids[consumer];
    g->rank = 1 + draw(seed, 2), g->extent[0] = m, g->extent[1] = fleet_dim_of(2);
    g->level = draw(seed, 3) ? FLEET_LEVEL_CU : FLEET_LEVEL_WAVE;
    sp->tensors[0].writer = router, sp->tensors[0].rank = 2;
    sp->tensors[0].extent[0] = n, sp->tensors[0].extent[1] = fleet_dim_of(k);
    sp->tensors[1].writer = sp->tensors[2].writer = counter;
    sp->tensors[1].rank = sp->tensors[2].rank = 1;
    sp->tensors[1].extent[0] = fleet_dim_of(counts ? experts : experts + 1);
    sp->tensors[2].extent[0] = fleet_dim_of(experts + 1);
    if (counts && draw(seed, 3) == 0) /* some rows name fewer */
        sp->tensors[0].none = draw(seed, 2) ? -1 : (int32_t)(experts + draw(seed, 2));
    sp->n_tensors = counts ? 3 : 2;
    event = sp->n_events++;
    sp->events[event].rank = 1, sp->events[event].extent[0] = fleet_dim_of(experts);
    sp->events[event].by_tensor = 1;
    sp->events[event].count = counts ? most_of(sp, n) * k : k;
    sp->events[event].counts = counts ? 2 : 0;
    add_edge(sp, gatherer, event, 1, fleet_map0());
    sp->edges[sp->n_edges - 1].tensor = 1;
    add_edge(sp, consumer, event, 0, fleet_map0());
    sp->edges[sp->n_edges - 1].tensor = sp->n_tensors;
    if (!own) { /* rows are written before they are used */
        after = sp->n_events++;
        sp->events[after].rank = 0;
        add_edge(sp, router, after, 1, fleet_map0());
        add_edge(sp, gatherer, after, 0, fleet_map0());
    }
    if (!counts || draw(seed, 2)) { /* ranges, where no counts come with them */
        after = sp->n_events++;
        sp->events[after].rank = 0;
        add_edge(sp, counter, after, 1, fleet_map0());
        add_edge(sp, gatherer, after, 0, fleet_map0());
    }
}

/* A grid whose task sets symbols. */
static void setter_grid(spec *sp, uint64_t *seed, uint32_t *tasks)
{
    sp->grids[sp->n_grids++].level = draw(seed, 2) ? FLEET_LEVEL_CU : FLEET_LEVEL_WAVE;
    *tasks += 1;
}

static void random_spec(spec *sp, uint64_t *seed, setting *s, order *o)
{
    const uint32_t backward = draw(seed, 12) == 0;
    uint32_t tasks = 0, elements = 0, n, i, k, again = 1;
    memset(sp, 0, sizeof *sp);
    random_symbols(sp, seed);
    for (i = draw(seed, 2) ? sp->n_symbols : 0; i-- > 0;)
        if (!sp->symbols[i].at_build) sp->sets |= 1u << i, sp->symbols[i].n_buckets = 0;
    if (draw(seed, 4) == 0) random_tensors(sp, seed, &tasks, &elements);
    for (n = 1 + draw(seed, 6); n > 0 && sp->n_grids + 2 < SPEC_GRIDS && tasks < SPEC_TASKS / 2;
         n--) {
        random_grid(sp, seed, &tasks, s);
        if (!sp->sets || sp->cuts || sp->n_tensors || draw(seed, 3)) continue;
        sp->cuts = sp->sets & (1u + draw(seed, 3));
        sp->cutter = sp->n_grids;
        if (sp->cuts) setter_grid(sp, seed, &tasks);
    }
    if (sp->sets) setter_grid(sp, seed, &tasks);
    for (n = draw(seed, 8); n > 0 && sp->n_events < SPEC_EVENTS; n--)
        random_event(sp, seed, backward, &elements);
    mend(sp, seed, o);
    sp->declared = !sp->n_tensors && draw(seed, 4) == 0;
    if (sp->declared && draw(seed, 4)) { /* only there steps may overlap */
        s->schedule = FLEET_SCHEDULE_STATIC, s->mixed = 0;
        for (i = 0; i < sp->n_grids; i++) sp->grids[i].has_schedule = 0;
    }
    for (i = 0; i < sp->n_edges; i++)
        for (k = 0; k < sp->n_edges; k++)
            if (!sp->edges[i].out && sp->edges[k].out && sp->edges[i].event == sp->edges[k].event)
                sp->grids[sp->edges[i].grid].reads |= 1u << sp->edges[k].grid;
    while (again) /* of all that comes before */
        for (again = 0, i = 0; i < sp->n_grids; i++)
            for (k = 0; k < sp->n_grids; k++)
                if (sp->grids[i].reads >> k & 1 && sp->grids[k].reads & ~sp->grids[i].reads)
                    sp->grids[i].reads |= sp->grids[k].reads, again = 1;
}

/* What the writers of run-time tensors say in one step, where symbols are `asked` in shapes `v`. */
static void random_values(const spec *sp, const view *v, const view *asked, oracle_step *step,
                          uint64_t *seed)
{
    const spec_edge *gather = &sp->edges[0], *range = &sp->edges[1];
    uint32_t experts, rows, row, i, j, from, n;
    memset(step, 0, sizeof *step);
    if (!sp->n_tensors) return;
    experts = v->elements[gather->event], rows = v->count[gather->grid];
    row = (uint32_t)sp->tensors[0].extent[1].add;
    from = draw(seed, experts);
    n = draw(seed, experts) + 1; /* some have all the tasks */
    for (i = 0; i < rows; i++)
        for (j = 0; j < row; j++) {
            const uint32_t expert =
                sp->n_tensors < 3 ? (i + from + j) % experts : (from + draw(seed, n)) % experts;
            step->values[0][i * row + j] = (int32_t)expert;
            if (sp->tensors[0].none && draw(seed, 3) == 0) {
                step->values[0][i * row + j] = sp->tensors[0].none;
                continue;
            }
            if (sp->n_tensors == 3 && i < asked->count[gather->grid]) step->values[1][expert]++;
        }
    for (i = 0, n = 0; i <= experts; i++) {
        step->values[sp->n_tensors - 1][i] = (int32_t)n;
        n += draw(seed, (uint32_t)asked->extent[range->grid][0] - n + 1);
        if (draw(seed, 2)) n = (uint32_t)step->values[sp->n_tensors - 1][i];
    }
}

/* ---- random settings ---- */

static void any_setting(setting *s, uint64_t *seed)
{
    const uint32_t kind = draw(seed, 8);
    uint32_t n = 0, k;
    while (setting_get(n, TEST_SHAPES, s)) n++;
    setting_get(draw(seed, n), TEST_SHAPES, s);
    s->schedule = kind < 2   ? FLEET_SCHEDULE_STATIC
                  : kind < 4 ? FLEET_SCHEDULE_CHIPLET
                  : kind < 7 ? FLEET_SCHEDULE_DYNAMIC
                             : FLEET_SCHEDULE_AUTO;
    s->mixed = s->schedule != FLEET_SCHEDULE_CHIPLET && draw(seed, 3) == 0;
    s->seed = 1 + draw(seed, 1000000);
    s->levels = draw(seed, 4) ? 2 : 1;
    s->waves = 1 + draw(seed, 3);
    start_at(draw(seed, START_POINTS));
    s->start = FLEETI_TEST_START;
    s->early = draw(seed, 4) == 0;
    s->unaware = draw(seed, 4) == 0;
    s->unfused = s->schedule == FLEET_SCHEDULE_STATIC && draw(seed, 4) == 0;
#if defined(FLEET_HIP)
    FLEET_UNUSED(k); /* chiplets are the hardware's */
#else
    s->topology.chiplets = draw(seed, 12) ? 1 + draw(seed, 4) : 8;
    for (k = 0; k < s->topology.chiplets; k++)
        s->topology.units[k] =
            (draw(seed, 12) || k ? 1 + draw(seed, 3) : 7) + (s->schedule == FLEET_SCHEDULE_CHIPLET);
    s->placement = (fleet_placement)(FLEET_PLACEMENT_LINEAR + draw(seed, 3));
#endif
#if defined(FLEET_MEMORY_MODEL)
    s->engine = FLEET_ENGINE_DETERMINISTIC;
#endif
}

/* The same for a plan that is only looked at: more workers. */
static setting wide_setting(const setting *from, uint64_t *seed)
{
    setting s = *from;
    uint32_t k;
    for (k = 0; k < s.topology.chiplets; k++) s.topology.units[k] = 2 + draw(seed, 31);
    s.workers = 0;
    if (s.mixed || s.schedule == FLEET_SCHEDULE_CHIPLET) return s;
    s.schedule = draw(seed, 2) ? FLEET_SCHEDULE_STATIC : FLEET_SCHEDULE_CHIPLET;
    s.unfused = s.unfused && s.schedule == FLEET_SCHEDULE_STATIC;
    return s;
}
static uint32_t any_stride(uint64_t *seed)
{
    return draw(seed, 3) ? 0 : 4u << draw(seed, 6);
}

/* ---- one graph ---- */

typedef struct tally {
    uint32_t graphs, refused[64], ran, launches, tasks, buckets, tensors, ahead, sets, cuts;
    uint32_t triangles, listed; /* graphs that ran: with such a grid, with such an event */
} tally;

/* Builds the plan; whether it must be refused, and why, the oracle says. Null: it was refused, or the test failed. */
static fleet_plan *build(test_run *t, const spec *sp, fleet_graph *g, const setting *s,
                         uint32_t stride, order *o, tally *n)
{
    fleet_plan_desc desc = setting_plan_desc(s);
    spec_values buckets[SPEC_BUCKETS];
    uint32_t count = oracle_buckets(sp, buckets), b, i, k;
    uint64_t must = 0, may = 0;
    fleet_plan *plan = NULL;
    fleet_status status;
    for (b = 0; b < count && b < SPEC_BUCKETS; b++) {
        const view v = oracle_view(sp, &buckets[b]);
        if (v.n_tasks > SPEC_TASKS || v.n_elements > SPEC_ELEMENTS) return NULL;
        must |= oracle_reasons(sp, &v, o, &may);
    }
    if (count > SPEC_BUCKETS) return NULL;
    for (i = 0; s->unfused && i < sp->n_edges; i++)
        for (k = 0; k < sp->n_edges; k++)
            if (sp->edges[i].event == sp->edges[k].event && !sp->edges[i].out && sp->edges[k].out &&
                sp->edges[k].grid >= sp->edges[i].grid)
                may |= REASON(FLEET_ERROR_ORDER);
    if (s->unfused) may |= must, must = 0; /* most edges are not in the plan */
    if (s->schedule == FLEET_SCHEDULE_DYNAMIC && !s->mixed) may &= ~REASON(FLEET_ERROR_ORDER);
    spec_bind(sp, &desc);
    desc.counter_stride_bytes = stride;
    status = fleet_plan_build(g, &desc, &plan);
    n->refused[status]++;
    if (status ? !(REASON(status) & (must | may)) : must != 0)
        test_fail(t, __FILE__, __LINE__, "%s (%s), but the oracle's reasons are %#llx and %#llx",
                  fleet_status_name(status), fleet_graph_error(g), (unsigned long long)must,
                  (unsigned long long)may);
    if (!plan || t->failed_here) return plan;
    if (fleet_plan_check(plan, (size_t)plan->bytes))
        test_fail(t, __FILE__, __LINE__, "fleet_plan_check refuses the plan");
    /* The checker knows the records of these. */
    if (plan->schedule != FLEET_SCHEDULE_DYNAMIC && !t->failed_here) check_plan(t, plan);
    return plan;
}

/* Values of symbols for a launch, and the shapes that they ask for and get. */
static spec_values any_values(const plain_rig *r, uint64_t *seed, view *v, view *asked)
{
    spec_values values;
    uint32_t i;
    memset(&values, 0, sizeof values);
    for (i = 0; i < r->sp->n_symbols; i++) {
        const spec_symbol *s = &r->sp->symbols[i];
        values.of[i] =
            s->at_build ? s->value : s->min + draw(seed, (uint32_t)(s->max - s->min) + 1);
    }
    *v = oracle_view(r->sp,
                     &r->buckets[oracle_bucket_for(r->sp, r->buckets, r->n_buckets, &values)]);
    *asked = oracle_view(r->sp, &values);
    return values;
}

/* What the run sets, from the first step of a launch on. */
static void random_steps(plain_rig *r, const spec_values *first, uint64_t *seed)
{
    const spec *sp = r->sp;
    uint32_t i, s;
    for (i = 0; i <= SPEC_STEPS; i++) {
        r->step_values[i] = *first;
        for (s = 0; i && s < sp->n_symbols; s++) {
            const spec_symbol *symbol = &sp->symbols[s];
            if (!(sp->sets >> s & 1)) continue;
            r->step_values[i].of[s] =
                draw(seed, 4) ? symbol->min + draw(seed, (uint32_t)(symbol->max - symbol->min) + 1)
                              : r->step_values[i - 1].of[s];
        }
        r->cut_values[i] = r->step_values[i];
        for (s = 0; s < sp->n_symbols; s++)
            if (sp->cuts >> s & 1)
                r->cut_values[i].of[s] -=
                    draw(seed, (uint32_t)(r->step_values[i].of[s] - sp->symbols[s].min) + 1);
    }
}

static void run(test_run *t, plain_rig *r, uint64_t *seed, tally *n)
{
    static oracle_step tensors[SPEC_STEPS];
    const spec *sp = r->sp;
    uint32_t launch, i, launches = 1 + draw(seed, 3);
    for (launch = 0; launch < launches && !t->failed_here; launch++) {
        const uint32_t steps = draw(seed, 16) ? 1 + draw(seed, SPEC_STEPS) : 0;
        view v, asked;
        const spec_values values = any_values(r, seed, &v, &asked);
        fleet_status status;
        random_steps(r, &values, seed);
        for (i = 0; i < SPEC_STEPS; i++) {
            asked = plain_asked(r, &values, i);
            random_values(sp, &v, &asked, &tensors[i], seed);
        }
        r->deep = draw(seed, 2);
        status = plain_launch(t, r, &values, steps, tensors, tensors);
        n->launches++, n->tasks += v.n_tasks * steps;
        if (status) {
            static char report[4096];
            fleet_state_report(&r->state, report, sizeof report);
            test_fail(t, __FILE__, __LINE__, "launch %u of %u steps: %s", launch, steps,
                      fleet_status_name(status));
            printf("%s", report);
        }
        if (!t->failed_here) plain_check(t, r);
        if (t->failed_here) {
            printf("    launch %u of %u steps, bucket", launch, steps);
            for (i = 0; i < sp->n_symbols; i++)
                printf(" s%u = %lld of %lld", i, (long long)values.of[i],
                       (long long)v.values.of[i]);
            printf("\n");
        }
    }
}

enum {
    COUNT_OVER,
    INDPTR_FALLS,
    INDPTR_OVER,
    TOPK_OVER,
    TOPK_UNDER,
    COUNT_SMALL,
    COUNT_LARGE,
    INDPTR_LATE,
    FAULTS
};

/* Breaks the run-time tensors of one step; the tensor, or SPEC_TENSORS where that fault cannot be. */
static uint32_t break_tensors(const spec *sp, const view *v, const view *asked, uint32_t fault,
                              oracle_step *step, uint64_t *seed)
{
    const spec_edge *gather = &sp->edges[0], *range = &sp->edges[1];
    const uint32_t experts = v->elements[gather->event], e = draw(seed, experts);
    const uint32_t tasks = (uint32_t)asked->extent[range->grid][0];
    int32_t *counts = step->values[1], *indptr = step->values[sp->n_tensors - 1];
    int32_t *topk =
        step->values[0] + draw(seed, asked->count[gather->grid] + !asked->count[gather->grid]) *
                              (uint32_t)sp->tensors[0].extent[1].add;
    switch (fault) {
    case COUNT_SMALL:
        if (sp->n_tensors < 3 || !counts[e]) break;
        counts[e]--;
        return 1;
    case COUNT_LARGE:
        if (sp->n_tensors < 3 || counts[e] == sp->events[gather->event].count) break;
        counts[e]++;
        return 1;
    case COUNT_OVER:
        if (sp->n_tensors < 3) break;
        counts[e] = (int32_t)sp->events[gather->event].count + 1;
        return 1;
    case INDPTR_LATE:
        if (!tasks) break;
        for (uint32_t i = 0; i <= experts; i++)
            if (!indptr[i]) indptr[i] = 1;
        return sp->n_tensors - 1;
    case INDPTR_FALLS:
        if (!tasks) break;
        indptr[e] = indptr[experts] + 1;
        return sp->n_tensors - 1;
    case INDPTR_OVER:
        indptr[experts] = (int32_t)tasks + 1;
        return sp->n_tensors - 1;
    case TOPK_OVER:
    case TOPK_UNDER:
        if (!asked->count[gather->grid]) break;
        topk[0] = fault == TOPK_OVER ? (int32_t)experts : -1;
        if (topk[0] == sp->tensors[0].none) topk[0] = fault == TOPK_OVER ? topk[0] + 1 : -2;
        return 0;
    }
    return SPEC_TENSORS;
}

/* A launch whose writers leave something wrong in one step, and one after it. */
static void run_broken(test_run *t, plain_rig *r, uint64_t *seed)
{
    static oracle_step tensors[SPEC_STEPS], fine[SPEC_STEPS];
    static char report[4096];
    const spec *sp = r->sp;
    const uint32_t consumer = sp->edges[1].grid, fault = draw(seed, FAULTS);
    const uint32_t steps = 1 + draw(seed, SPEC_STEPS),
                   followed = grids_of(r->plan)[consumer].schedule == FLEET_SCHEDULE_DYNAMIC;
    view v, asked;
    const spec_values values = any_values(r, seed, &v, &asked);
    uint32_t i, tensor;
    char name[16];
    fleet_status status;
    for (i = 0; i < SPEC_STEPS; i++) random_values(sp, &v, &asked, &tensors[i], seed);
    memcpy(fine, tensors, sizeof fine);
    tensor = break_tensors(sp, &v, &asked, fault, &tensors[draw(seed, steps)], seed);
    if (tensor == SPEC_TENSORS) return;
    r->deep = 0;
    /* Order is that of the tensors as they should be; what tiles find does not count. */
    status = plain_launch(t, r, &values, steps, tensors, fine);
    fleet_state_report(&r->state, report, sizeof report);
    snprintf(name, sizeof name, "tensor t%u ", tensor);
    /* Events that have collapsed do not go by counts. */
    const int waits = followed && (fault != COUNT_LARGE || !sp->tensors[0].none);
    /* The sum is not checked where entries may name none, and maybe no task waits for the element
       that lacks a notify. */
    if ((fault == COUNT_SMALL || fault == COUNT_LARGE) && !waits && !status) {
        plain_check(t, r);
        return;
    }
    if (fault == COUNT_LARGE ? !status
                             : status != FLEET_ERROR_TENSOR_VALUE || !strstr(report, name)) {
        test_fail(t, __FILE__, __LINE__, "run-time tensor t%u, fault %u: %s", tensor, fault,
                  fleet_status_name(status));
        printf("%s", report);
        return;
    }
    CHECK_STATUS(fleet_state_recover(&r->state, NULL), FLEET_OK);
    CHECK_STATUS(fleet_stream_wait(NULL), FLEET_OK);
    if (!plain_reset(t, r, 0)) return;
    status = plain_launch(t, r, &values, steps, fine, fine);
    if (status)
        test_fail(t, __FILE__, __LINE__, "after fault %u: %s", fault, fleet_status_name(status));
    else
        plain_check(t, r);
}

static void print_dim(fleet_dim d)
{
    for (uint32_t k = 0; k < FLEET_MAX_RANK; k++)
        if (d.per[k]) printf("%lld/%lld c%u + ", (long long)d.per[k], (long long)d.div, k);
    if (!d.symbol && d.div != 1)
        printf("%lld/%lld", (long long)d.add, (long long)d.div);
    else if (!d.symbol)
        printf("%lld", (long long)d.add);
    else
        printf("(%lld*s%u+%lld)/%lld", (long long)d.mul, d.symbol - 1, (long long)d.add,
               (long long)d.div);
}
static void print_spec(const spec *sp)
{
    uint32_t i, k, j;
    static const char *const levels[] = {"WAVE", "CU", "CHIPLET", "DEVICE"};
    for (i = 0; i < sp->n_symbols; i++) {
        const spec_symbol *s = &sp->symbols[i];
        printf("    s%u [%lld, %lld]", i, (long long)s->min, (long long)s->max);
        if (s->at_build) printf(" = %lld", (long long)s->value);
        for (k = 0; !s->at_build && k < s->n_buckets; k++)
            printf("%s %lld", k ? "" : " buckets", (long long)s->buckets[k]);
        printf("\n");
    }
    if (sp->sets) printf("    set: %#x, cut by g%u: %#x\n", sp->sets, sp->cutter, sp->cuts);
    for (i = 0; i < sp->n_grids; i++) {
        const spec_grid *g = &sp->grids[i];
        printf("    g%u %s [", i, levels[g->level]);
        for (k = 0; k < g->rank; k++) printf(k ? ", " : ""), print_dim(g->extent[k]);
        printf("]");
        if (g->has_slices) printf(" slices "), print_dim(g->slices);
        if (g->has_tiles) printf(" tiles "), print_dim(g->tiles);
        if (g->is_placed) printf(" placed");
        if (g->has_schedule) printf(" schedule %d", (int)g->schedule);
        if (g->has_key) printf(" key %lld", (long long)g->key.constant);
        for (k = 0; g->has_key && k < g->rank; k++)
            printf(" + %lld c%u", (long long)g->key.weight[k], k);
        if (sp->declared) printf(" reads %#x", g->reads);
        printf("\n");
    }
    for (i = 0; i < sp->n_events; i++) {
        const spec_event *e = &sp->events[i];
        printf("    E%u [", i);
        for (k = 0; k < e->rank; k++) printf(k ? ", " : ""), print_dim(e->extent[k]);
        printf("] count %lld", (long long)e->count);
        if (e->has_scope) printf(" scope %d", (int)e->scope);
        if (e->counts) printf(" counts t%u", e->counts - 1);
        printf("\n");
    }
    for (i = 0; i < sp->n_edges; i++) {
        const spec_edge *e = &sp->edges[i];
        printf("    %s g%u E%u", e->out ? "out" : "in ", e->grid, e->event);
        if (e->tensor) printf(" t%u", e->tensor - 1);
        if (e->tensor && sp->tensors[e->tensor - 1].none)
            printf(" none %d", sp->tensors[e->tensor - 1].none);
        for (k = 0; k < e->map.rank; k++) {
            const fleet_axis_map *a = &e->map.axis[k];
            if (a->every) {
                printf(" every");
                continue;
            }
            printf(" (%lld", (long long)a->offset);
            for (j = 0; j < sp->grids[e->grid].rank; j++)
                if (a->stride[j]) printf(" + %lld c%u", (long long)a->stride[j], j);
            printf(" width %lld)/%lld", (long long)a->width, (long long)a->div);
            if (a->modulo.add) printf(" modulo "), print_dim(a->modulo);
            if (a->flip)
                printf(" ^ %lld << (axis %d + %d)", (long long)a->flip, (int)a->flip_axis - 1,
                       a->flip_shift);
            if (a->clipped) printf(" lower "), print_dim(a->lower);
            if (ref_has_limit(a)) printf(" limit "), print_dim(a->limit);
        }
        printf("\n");
    }
}

static void one_graph(test_run *t, uint64_t number, tally *n)
{
    static plain_rig rig;
    static spec sp;
    static order o;
    plain_rig *r = &rig;
    uint64_t seed = number * 0x2545f4914f6cdd1dull + 1;
    memset(r, 0, sizeof *r);
    any_setting(&r->s, &seed);
    random_spec(&sp, &seed, &r->s, &o);
    r->sp = &sp;
    r->fed = number % 3 == 0;
#if defined(__SANITIZE_THREAD__)
    /* A producer that lags reads run-time tensors of a later step, where its task is past: a race that decides nothing. */
    r->fed &= !sp.n_tensors;
#endif
    n->graphs++;
    r->graph = spec_graph(&sp);
    if (fleet_graph_status(r->graph))
        test_fail(t, __FILE__, __LINE__, "%s", fleet_graph_error(r->graph));
    if (!t->failed_here && draw(&seed, 2)) {
        const setting wide = wide_setting(&r->s, &seed);
        fleet_plan_free(build(t, &sp, r->graph, &wide, any_stride(&seed), &o, n));
    }
    if (!t->failed_here) r->plan = build(t, &sp, r->graph, &r->s, any_stride(&seed), &o, n);
    if (r->plan && !t->failed_here && plain_lay_out(r)) {
        static const uint32_t epochs[] = {0, 0xfffffffeu, 0xffffffffu, 0x7fffffffu};
        const uint32_t epoch = draw(&seed, 2) ? draw(&seed, 0xffffffffu) : epochs[draw(&seed, 4)];
        uint32_t i;
        r->rng = seed;
        n->sets += sp.sets != 0, n->cuts += sp.cuts != 0;
        n->ran++, n->buckets += r->n_buckets > 1, n->tensors += sp.n_tensors != 0;
        for (i = 0; i < r->plan->n_grids && !grids_of(r->plan)[i].space; i++) {
        }
        n->triangles += i < r->plan->n_grids;
        for (i = 0; i < r->plan->n_events && !events_of(r->plan)[i].space; i++) {
        }
        n->listed += i < r->plan->n_events;
        for (i = 0; i < r->plan->n_grids; i++)
            if (grids_of(r->plan)[i].runs_ahead) break;
        n->ahead += i < r->plan->n_grids;
        if (plain_open(t, r, epoch)) run(t, r, &seed, n);
        if (sp.n_tensors && !sp.sets && !t->failed_here && draw(&seed, 2)) run_broken(t, r, &seed);
        plain_close(r);
    }
    fleet_plan_free(r->plan);
    fleet_graph_destroy(r->graph);
    if (!t->failed_here) return;
    setting_print(&r->s);
    print_spec(&sp);
    printf("    again: FLEET_TEST_SEED=%llu FLEET_TEST_ENGINE=%s %s\n", (unsigned long long)number,
           r->s.engine == FLEET_ENGINE_THREADS ? "threads" : "both", t->argv[0]);
}

static void random_graphs(test_run *t)
{
    const char *given = getenv("FLEET_TEST_SEED"), *count = getenv("FLEET_TEST_GRAPHS");
    unsigned long long seed, end;
    tally n;
    uint32_t i;
#if !defined(FLEET_HOST)
    uint64_t graphs = 24;
#elif defined(GRAPHS)
    uint64_t graphs = deep() ? 5000 : GRAPHS;
#else
    uint64_t graphs = deep() ? 100000 : 3000;
#endif
    memset(&n, 0, sizeof n);
    if (count) graphs = strtoull(count, NULL, 10);
    seed = test_share(graphs, &end);
    if (given) seed = strtoull(given, NULL, 10) - 1, end = seed + 1;
    while (seed++ < end && !t->failed_here) {
        if (!given && setting_skipped((uint32_t)seed)) continue;
        one_graph(t, seed, &n);
    }
    if (getenv("FLEET_TEST_VERBOSE")) {
        printf(
            "    %u graphs, %u ran in %u launches of %u tasks; %u with buckets, %u with run-time "
            "tensors, %u that run ahead, %u that set symbols, %u that cut them, %u with triangles, "
            "%u with triangular events\n",
            n.graphs, n.ran, n.launches, n.tasks, n.buckets, n.tensors, n.ahead, n.sets, n.cuts,
            n.triangles, n.listed);
        for (i = 1; i < FLEET_STATUS_COUNT; i++)
            if (n.refused[i])
                printf("    %u times %s\n", n.refused[i], fleet_status_name((fleet_status)i));
    }
    /* The generator must not drift to where a test says nothing. */
    if (n.graphs < 500 || t->failed_here) return;
    CHECK(n.ran > n.graphs / 2);
    CHECK(n.buckets > n.graphs / 10);
    CHECK(n.tensors > n.graphs / 20);
    CHECK(n.ahead > n.graphs / 200);
    CHECK(n.sets > n.graphs / 20);
    CHECK(n.cuts > n.graphs / 50);
    CHECK(n.triangles > n.graphs / 20);
    CHECK(n.listed > n.graphs / 50);
    CHECK(n.refused[FLEET_ERROR_ARGUMENT] > n.graphs / 500);
    CHECK(n.refused[FLEET_ERROR_MAP_RANGE] > n.graphs / 200);
    CHECK(n.refused[FLEET_ERROR_NEVER_NOTIFIED] > n.graphs / 200);
    CHECK(n.refused[FLEET_ERROR_CYCLE] > n.graphs / 200);
}

static void all(test_run *t)
{
    TEST(random_graphs);
}
TEST_MAIN(all)
