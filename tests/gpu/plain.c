/* Data by plain loads and stores, from producers and across steps, in every kind of plan: several steps in a launch,
   several launches of one state, other symbols each time, from an epoch near the wrap. Tiles have no atomic operation
   that orders anything (oracle.h), so that a missing fence gives wrong data. */
// run: model
// run: tsan
// hip: 6 runs
#include "oracle.h"

typedef struct kind {
    fleet_schedule schedule;
    uint32_t mixed, unaware, unfused, early;
    uint32_t symbol; /* 1: bound at build, 2: at launch */
    uint32_t limit;  /* maps have limits at which tasks reach nothing */
    uint32_t mapped; /* run-time tensors; 2: counts are at their bounds */
    uint32_t declared;
    uint32_t sources; /* no events: only the order of steps makes a worker acquire */
    uint32_t scope;   /* of all events, by hand; 0: none */
} kind;

/* ---- the graphs ---- */

static uint32_t add_grid(spec *sp, fleet_level level, uint32_t rank, fleet_dim a, fleet_dim b)
{
    spec_grid *g = &sp->grids[sp->n_grids];
    g->level = level;
    g->rank = rank;
    g->extent[0] = a, g->extent[1] = b;
    return sp->n_grids++;
}
static uint32_t add_event(spec *sp, const kind *k, uint32_t rank, fleet_dim a)
{
    spec_event *e = &sp->events[sp->n_events];
    e->rank = rank;
    e->extent[0] = a;
    e->has_scope = k->scope != 0, e->scope = (fleet_scope)k->scope;
    return sp->n_events++;
}
static spec_edge *add_edge(spec *sp, uint32_t grid, uint32_t event, uint32_t out, fleet_map map)
{
    spec_edge *e = &sp->edges[sp->n_edges++];
    e->grid = grid, e->event = event, e->out = out, e->map = map;
    return e;
}
/* From a grid to the next, which reads what it writes. */
static void connect(spec *sp, uint32_t from, uint32_t to, uint32_t event, fleet_map out,
                    fleet_map in)
{
    add_edge(sp, from, event, 1, out);
    add_edge(sp, to, event, 0, in);
    sp->grids[to].reads |= 1u << from | sp->grids[from].reads;
}
static fleet_map one_to_one(uint32_t limit)
{
    fleet_axis_map a = fleet_axis(0, 1, 0, 1);
    if (limit) a.limit = fleet_dim_of(limit);
    return fleet_map1(a);
}

/* Tasks of every level, sources and sinks among them, each grid after the one before it. */
static void pipeline(spec *sp, const kind *k)
{
    const fleet_dim one = fleet_dim_of(1), two = fleet_dim_of(2);
    fleet_dim n = fleet_dim_of(5);
    const uint32_t limit = k->limit ? 3 : 0;
    uint32_t g[7], e[4];
    if (k->symbol) {
        spec_symbol *s = &sp->symbols[sp->n_symbols++];
        s->min = 1, s->max = 6, s->value = 4, s->at_build = k->symbol == 1;
        s->n_buckets = 2, s->buckets[0] = 2, s->buckets[1] = 4;
        n = one, n.add = 0, n.mul = 1, n.symbol = 1;
    }
    g[0] = add_grid(sp, FLEET_LEVEL_CU, 1, n, one);
    g[1] = add_grid(sp, FLEET_LEVEL_WAVE, 1, n, one);
    g[2] = add_grid(sp, FLEET_LEVEL_DEVICE, 0, one, one);
    g[3] = add_grid(sp, FLEET_LEVEL_CHIPLET, 1, two, one);
    g[4] = add_grid(sp, FLEET_LEVEL_CU, 2, n, two);
    g[5] = add_grid(sp, FLEET_LEVEL_CU, 1, two, one);
    g[6] = add_grid(sp, FLEET_LEVEL_WAVE, 1, n, one);
    if (k->sources) return;
    e[0] = add_event(sp, k, 1, n);
    e[1] = add_event(sp, k, 0, one);
    e[2] = add_event(sp, k, 1, two);
    e[3] = add_event(sp, k, 1, two);
    connect(sp, g[0], g[1], e[0], one_to_one(limit), one_to_one(limit));
    connect(sp, g[1], g[2], e[1], fleet_map0(), fleet_map0());
    connect(sp, g[2], g[3], e[2], fleet_map1(fleet_axis_all()), one_to_one(0));
    connect(sp, g[3], g[4], e[3], one_to_one(0), fleet_map1(fleet_axis(1, 1, 0, 1)));
}

#define EXPERTS 3u
/* Task i of g1 writes row i of t0 and notifies what stands there; g0 counts; g2 runs by ranges, g3 after it. */
static void routing(spec *sp, const kind *k)
{
    const fleet_dim one = fleet_dim_of(1), m = fleet_dim_of(7);
    const fleet_dim experts = fleet_dim_of(k->mapped == 2 ? 1 : EXPERTS);
    fleet_dim n = k->mapped == 2 ? one : fleet_dim_of(5);
    uint32_t g[4], e[2], i;
    if (k->symbol) {
        sp->symbols[sp->n_symbols].min = 1, sp->symbols[sp->n_symbols].max = 6;
        sp->n_symbols++;
        n = one, n.add = 0, n.mul = 1, n.symbol = 1;
    }
    g[0] = add_grid(sp, FLEET_LEVEL_CU, 0, one, one);
    g[1] = add_grid(sp, FLEET_LEVEL_CU, 1, n, one);
    g[2] = add_grid(sp, FLEET_LEVEL_CU, 1, m, one);
    g[3] = add_grid(sp, FLEET_LEVEL_WAVE, 1, m, one);
    e[0] = add_event(sp, k, 1, experts);
    e[1] = add_event(sp, k, 1, m);
    add_edge(sp, g[1], e[0], 1, fleet_map0())->tensor = 1;
    add_edge(sp, g[2], e[0], 0, fleet_map0())->tensor = 3;
    connect(sp, g[2], g[3], e[1], one_to_one(0), one_to_one(0));
    for (i = 0; i < 3; i++) sp->tensors[i].writer = i ? g[0] : g[1], sp->tensors[i].rank = 1;
    sp->tensors[0].rank = 2;
    sp->tensors[0].extent[0] = n, sp->tensors[0].extent[1] = one;
    sp->tensors[1].extent[0] = experts;
    sp->tensors[2].extent[0] = fleet_dim_plus(experts, 1);
    sp->n_tensors = 3;
    sp->events[e[0]].by_tensor = 1, sp->events[e[0]].counts = 2;
    sp->events[e[0]].count = k->mapped == 2 ? 1 : 6;
}
static void routing_values(const kind *k, uint32_t n, uint32_t turn, oracle_step *step)
{
    const uint32_t experts = k->mapped == 2 ? 1 : EXPERTS;
    uint32_t i;
    memset(step, 0, sizeof *step);
    for (i = 0; i < n; i++) {
        const uint32_t expert = (i * (1 + turn % 2) + turn) % experts;
        step->values[0][i] = (int32_t)expert;
        step->values[1][expert]++;
    }
    for (i = 0; i < experts; i++)
        step->values[2][i + 1] = step->values[2][i] + (int32_t)((turn + i) % 3);
}

/* ---- the runs ---- */

static void run_kind(test_run *t, const kind *k, const setting *s)
{
    static spec sp;
    static plain_rig rig;
    static oracle_step tensors[SPEC_STEPS];
    plain_rig *r = &rig;
    fleet_plan_desc desc;
#if defined(FLEET_MEMORY_MODEL)
    const uint32_t launches = deep() ? 2000 : 16;
#elif defined(FLEET_HOST)
    const uint32_t launches = deep() ? 100 : 4;
#else
    const uint32_t launches = 2;
#endif
    uint32_t launch, i;
    memset(&sp, 0, sizeof sp);
    memset(r, 0, sizeof *r);
    if (k->mapped)
        routing(&sp, k);
    else
        pipeline(&sp, k);
    sp.declared = k->declared;
    for (i = 0; k->mixed && i < sp.n_grids; i++)
        if (k->mixed >> i & 1)
            sp.grids[i].has_schedule = 1, sp.grids[i].schedule = FLEET_SCHEDULE_DYNAMIC;
    r->s = *s;
    r->sp = &sp;
    r->deep = 1;
    r->rng = s->seed;
    r->graph = spec_graph(&sp);
    desc = setting_plan_desc(s);
    spec_bind(&sp, &desc);
    if (fleet_plan_build(r->graph, &desc, &r->plan))
        test_fail(t, __FILE__, __LINE__, "%s", fleet_graph_error(r->graph));
    else if (!plain_lay_out(r))
        test_fail(t, __FILE__, __LINE__, "the graph is too large");
    if (t->failed_here || !plain_open(t, r, 0xffffffffu - launches)) return;
    for (launch = 0; launch < launches && !t->failed_here; launch++) {
        static char report[4096];
        spec_values values;
        fleet_status status;
        values.of[0] =
            sp.n_symbols && sp.symbols[0].at_build ? sp.symbols[0].value : 1 + launch * 5 % 6;
        if (k->mapped)
            for (i = 0; i < SPEC_STEPS; i++)
                routing_values(k, (uint32_t)oracle_dim(sp.grids[1].extent[0], &values), launch + i,
                               &tensors[i]);
        status = plain_launch(t, r, &values, launch % 2 ? 2 : SPEC_STEPS, tensors, tensors);
        fleet_state_report(&r->state, report, sizeof report);
        if (status)
            test_fail(t, __FILE__, __LINE__, "launch %u: %s: %s", launch, fleet_status_name(status),
                      report);
        else
            plain_check(t, r);
    }
    plain_close(r);
    fleet_plan_free(r->plan);
    fleet_graph_destroy(r->graph);
}

/* Over topologies: those of the device, or the first few of the host. */
static void run_plain(test_run *t, kind k)
{
    setting s;
    uint32_t i;
    for (i = 0; setting_get(i, TEST_THREADS > 1 ? 2 : 4, &s) && !t->failed_here; i++) {
        if (s.schedule != k.schedule && (k.schedule < FLEET_SCHEDULE_AUTO || s.schedule)) continue;
        if (!setting_in_turn(i, 4)) continue;
        s.schedule = k.schedule;
        s.unaware = k.unaware, s.unfused = k.unfused, s.early = k.early;
#if defined(FLEET_MEMORY_MODEL)
        s.engine = FLEET_ENGINE_DETERMINISTIC;
#endif
        run_kind(t, &k, &s);
        if (t->failed_here) setting_print(&s);
    }
}

static kind kind_of(fleet_schedule schedule)
{
    kind k;
    memset(&k, 0, sizeof k);
    k.schedule = schedule;
    return k;
}
#define KIND(name, of, field)                                                                      \
    static void name(test_run *t)                                                                  \
    {                                                                                              \
        kind k = kind_of(FLEET_SCHEDULE_##of);                                                     \
        field;                                                                                     \
        run_plain(t, k);                                                                           \
    }
#define KINDS(X)                                                                                   \
    X(static_plan, STATIC, (void)k)                                                                \
    X(static_build_symbol, STATIC, k.symbol = 1)                                                   \
    X(static_launch_symbol, STATIC, k.symbol = 2)                                                  \
    X(static_sources, STATIC, (k.sources = 1, k.symbol = 2))                                       \
    X(static_limit, STATIC, k.limit = 1)                                                           \
    X(static_mapped, STATIC, k.mapped = 1)                                                         \
    X(static_mapped_launch_symbol, STATIC, (k.mapped = 1, k.symbol = 2))                           \
    X(static_unaware, STATIC, k.unaware = 1)                                                       \
    X(static_unaware_launch_symbol, STATIC, (k.unaware = 1, k.symbol = 2))                         \
    X(static_unfused, STATIC, k.unfused = 1)                                                       \
    X(static_unfused_launch_symbol, STATIC, (k.unfused = 1, k.symbol = 2))                         \
    X(static_run_ahead, STATIC, k.declared = 1)                                                    \
    X(static_device_scope, STATIC, (k.scope = FLEET_SCOPE_DEVICE, k.symbol = 2))                   \
    X(static_system_scope, STATIC, (k.scope = FLEET_SCOPE_SYSTEM, k.symbol = 2))                   \
    X(chiplet_plan, CHIPLET, (void)k)                                                              \
    X(chiplet_launch_symbol, CHIPLET, k.symbol = 2)                                                \
    X(chiplet_sources, CHIPLET, (k.sources = 1, k.symbol = 2))                                     \
    X(chiplet_limit, CHIPLET, k.limit = 1)                                                         \
    X(chiplet_mapped, CHIPLET, k.mapped = 1)                                                       \
    X(chiplet_mapped_launch_symbol, CHIPLET, (k.mapped = 1, k.symbol = 2))                         \
    X(chiplet_unaware, CHIPLET, (k.unaware = 1, k.symbol = 2))                                     \
    X(chiplet_system_scope, CHIPLET, (k.scope = FLEET_SCOPE_SYSTEM, k.symbol = 2))                 \
    X(dynamic_plan, DYNAMIC, (void)k)                                                              \
    X(dynamic_launch_symbol, DYNAMIC, k.symbol = 2)                                                \
    X(dynamic_sources, DYNAMIC, (k.sources = 1, k.symbol = 2))                                     \
    X(dynamic_sinks, DYNAMIC, k.limit = 1)                                                         \
    X(dynamic_sinks_launch_symbol, DYNAMIC, (k.limit = 1, k.symbol = 2))                           \
    X(dynamic_mapped, DYNAMIC, k.mapped = 1)                                                       \
    X(dynamic_mapped_launch_symbol, DYNAMIC, (k.mapped = 1, k.symbol = 2))                         \
    X(counts_at_their_bound, DYNAMIC, k.mapped = 2)                                                \
    X(dynamic_unaware, DYNAMIC, (k.unaware = 1, k.symbol = 2))                                     \
    X(dynamic_early, DYNAMIC, (k.early = 1, k.symbol = 2))                                         \
    X(dynamic_early_sinks, DYNAMIC, (k.early = 1, k.limit = 1))                                    \
    X(dynamic_system_scope, DYNAMIC, (k.scope = FLEET_SCOPE_SYSTEM, k.symbol = 2))                 \
    X(mixed_plan, STATIC, k.mixed = 0x2a)                                                          \
    X(mixed_launch_symbol, STATIC, (k.mixed = 0x15, k.symbol = 2))                                 \
    X(mixed_sinks, STATIC, (k.mixed = 0x3, k.limit = 1, k.symbol = 2))                             \
    X(mixed_early_mapped, STATIC, (k.mixed = 0x5, k.mapped = 1, k.early = 1))                      \
    X(auto_plan, AUTO, k.symbol = 2)
KINDS(KIND)

#define KIND_TEST(name, of, field) TEST(name);
static void all(test_run *t){KINDS(KIND_TEST)} TEST_MAIN(all)
