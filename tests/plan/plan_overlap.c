/* When sources may run ahead of the previous step, and when tasks of grids that have vanished need not wait: small graphs
   around each rule of the proofs, each with a variant in which one condition is missing. */
#include "check.h"

typedef struct bench {
    fleet_graph *g;
    fleet_buffer read_only, shared;
} bench;

static bench start(void)
{
    bench b;
    b.g = fleet_graph_create(NULL);
    b.read_only = fleet_declare_buffer(b.g, "read_only");
    b.shared = fleet_declare_buffer(b.g, "shared");
    return b;
}

/* A grid of n tasks on workers w, w + 1, ... of chiplet 0. */
static fleet_grid grid(bench *b, const char *name, int64_t n, int64_t w)
{
    fleet_grid x = fleet_call_device(b->g, name, 0, fleet_shape1(fleet_dim_of(n)), 0);
    fleet_grid_place(b->g, x, fleet_map2(fleet_axis(0, 0, 0, 1), fleet_axis(0, 1, w, 1)));
    fleet_grid_reads(b->g, x, b->read_only);
    return x;
}

static fleet_etensor event(bench *b, const char *name, int64_t n)
{
    return fleet_event_tensor(b->g, name, fleet_shape1(fleet_dim_of(n)), 0);
}

/* Builds on one chiplet of four workers, and checks that sources run ahead or wait, as expected. */
static void expect(test_run *t, bench *b, uint32_t ahead, fleet_schedule schedule)
{
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    uint32_t i, waits = 0, sources = 0;
    desc.topology = fleet_topology_make(1, 5);
    desc.schedule = schedule;
    desc.workers_per_chiplet = 4;
    if (fleet_plan_build(b->g, &desc, &plan) != FLEET_OK)
        test_fail(t, __FILE__, __LINE__, "%s", fleet_graph_error(b->g));
    if (!plan) return;
    check_plan(t, plan);
    for (i = 0; i < plan->n_grids; i++) sources += grids_of(plan)[i].runs_ahead;
    for (i = 0; i < plan->n_waits; i++) waits += (waits_of(plan)[i].count & FLEETI_PREVIOUS) != 0;
    if ((sources != 0) != ahead || (waits == 0) != ahead)
        test_fail(t, __FILE__, __LINE__, "sources %s", ahead ? "wait" : "run ahead");
    fleet_plan_free(plan);
    fleet_graph_destroy(b->g);
}

/* A chain source(w0) -> middle(w1) -> sink(w0): the worker of the source has seen all of its step. */
static void sink_on_the_sources_worker(test_run *t)
{
    int variant;
    for (variant = 0; variant < 7; variant++) {
        bench b = start();
        fleet_etensor E = event(&b, "E", 1), F = event(&b, "F", 1);
        fleet_grid source = grid(&b, "source", 1, 0), middle = grid(&b, "middle", 1, 1);
        fleet_grid sink = grid(&b, "sink", 1, variant == 1 ? 2 : 0);
        fleet_schedule schedule = FLEET_SCHEDULE_STATIC;
        fleet_out_edge(b.g, source, E, "i->i");
        fleet_in_edge(b.g, middle, E, "i->i");
        fleet_out_edge(b.g, middle, F, "i->i");
        fleet_in_edge(b.g, sink, F, "i->i");
        fleet_grid_writes(b.g, source, b.shared);
        fleet_grid_writes(b.g, middle, b.shared);
        fleet_grid_writes(b.g, sink, b.shared);
        if (variant == 2) /* declares no buffer */
            fleet_call_device(b.g, "silent", 0, fleet_shape0(), 0);
        if (variant == 3) fleet_event_external(b.g, F, FLEET_EXTERNAL_WAITS, 0, FLEET_SCOPE_DEVICE);
        if (variant == 4) fleet_grid_reads(b.g, grid(&b, "loner", 1, 3), b.shared);
        if (variant == 5) grid(&b, "loner", 1, 3); /* conflicts with no other */
        if (variant == 6) {
            /* The same graph under CHIPLET: built without placements on workers. */
            fleet_graph_destroy(b.g);
            b = start();
            source = fleet_call_device(b.g, "source", 0, fleet_shape0(), 0);
            fleet_grid_reads(b.g, source, b.read_only);
            schedule = FLEET_SCHEDULE_CHIPLET;
        }
        expect(t, &b, variant == 0 || variant == 5, schedule);
        if (t->failed_here) printf("  (variant %d)\n", variant);
    }
}

/* reader(0) and reader(1) are on workers 0 and 1. join waits for both, or only for the first; tail follows join. The
   source, on worker 0 where tail is too, writes what the readers read. */
static void cover(test_run *t)
{
    int whole;
    for (whole = 0; whole < 2; whole++) {
        bench b = start();
        fleet_etensor E = event(&b, "E", 1), Y = event(&b, "Y", 2), Z = event(&b, "Z", 1);
        fleet_etensor rest = event(&b, "rest", 1);
        fleet_grid source = grid(&b, "source", 1, 0), readers = grid(&b, "readers", 2, 0);
        fleet_grid join = grid(&b, "join", 1, 2), tail = grid(&b, "tail", 1, 0);
        fleet_out_edge(b.g, source, E, "i->i");
        fleet_in_edge(b.g, readers, E, "i->e");
        fleet_out_edge(b.g, readers, Y, "i->i");
        fleet_in_edge_map(b.g, join, Y,
                          fleet_map1(whole ? fleet_axis_all() : fleet_axis(0, 0, 0, 1)));
        fleet_out_edge(b.g, join, Z, "i->i");
        fleet_in_edge(b.g, tail, Z, "i->i");
        fleet_out_edge(b.g, tail, rest, "i->i");
        fleet_grid_writes(b.g, source, b.shared);
        fleet_grid_reads(b.g, readers, b.shared);
        expect(t, &b, (uint32_t)whole, FLEET_SCHEDULE_STATIC);
    }
}

/* pair(i) waits for reader(i): together they cover the readers, but each alone does not. The source's worker has
   either a task that waits for all pairs, or one of the pairs. */
static void together_is_not_each(test_run *t)
{
    int all;
    for (all = 0; all < 2; all++) {
        bench b = start();
        fleet_etensor E = event(&b, "E", 1), Y = event(&b, "Y", 2), Z = event(&b, "Z", 2);
        fleet_grid source = grid(&b, "source", 1, 0), readers = grid(&b, "readers", 2, 1);
        fleet_grid pairs = grid(&b, "pairs", 2, 0), tail = grid(&b, "tail", 1, all ? 0 : 3);
        fleet_out_edge(b.g, source, E, "i->i");
        fleet_in_edge(b.g, readers, E, "i->e");
        fleet_out_edge(b.g, readers, Y, "i->i");
        fleet_in_edge(b.g, pairs, Y, "i->i");
        fleet_out_edge(b.g, pairs, Z, "i->i");
        fleet_in_edge(b.g, tail, Z, "i->e");
        fleet_grid_writes(b.g, source, b.shared);
        fleet_grid_reads(b.g, readers, b.shared);
        expect(t, &b, (uint32_t)all, FLEET_SCHEDULE_STATIC);
    }
}

/* tail waits for one of the two producers of Y, and knows what a producer has waited for only if it is that one. */
static void one_producer_of_two(test_run *t)
{
    int only;
    for (only = 0; only < 2; only++) {
        bench b = start();
        fleet_etensor E = event(&b, "E", 1), R = event(&b, "R", 1);
        fleet_etensor Y = event(&b, "Y", 2), V = event(&b, "V", 2);
        fleet_grid source = grid(&b, "source", 1, 0), reader = grid(&b, "reader", 1, 1);
        fleet_grid knows = grid(&b, "knows", 1, 2), other = grid(&b, "other", 1, 3);
        fleet_grid tail = grid(&b, "tail", 1, 0);
        fleet_out_edge(b.g, source, E, "i->i");
        fleet_in_edge(b.g, reader, E, "i->i");
        fleet_out_edge(b.g, reader, R, "i->i");
        fleet_in_edge(b.g, knows, R, "i->i");
        fleet_out_edge_map(b.g, knows, Y, fleet_map1(fleet_axis(0, 0, 0, 1)));
        fleet_out_edge_map(b.g, other, only ? V : Y, fleet_map1(fleet_axis(0, 0, 1, 1)));
        fleet_in_edge_map(b.g, tail, Y, fleet_map1(fleet_axis(0, 0, only ? 0 : 1, 1)));
        fleet_grid_writes(b.g, source, b.shared);
        fleet_grid_reads(b.g, reader, b.shared);
        expect(t, &b, (uint32_t)only, FLEET_SCHEDULE_STATIC);
    }
}

/* late notifies Y and then Z; early, which also notifies Z, is queued after the waiter for Y. Although Y is complete,
   the next arrival of early at Z could still come before that of late. */
static void one_edge_only(test_run *t)
{
    int variant;
    for (variant = 0; variant < 2; variant++) {
        bench b = start();
        fleet_etensor Y = event(&b, "Y", 1), Z = event(&b, "Z", 1);
        fleet_grid early = grid(&b, "early", 1, 0), late = grid(&b, "late", 1, 1);
        fleet_grid waiter = grid(&b, "waiter", 1, 0), last = grid(&b, "last", 1, 1);
        fleet_etensor S = event(&b, "S", 1);
        if (variant) fleet_out_edge(b.g, late, Y, "i->i");
        fleet_out_edge(b.g, late, Z, "i->i");
        fleet_out_edge(b.g, early, Z, "i->i");
        fleet_out_edge(b.g, early, S, "i->i");
        fleet_in_edge(b.g, late, S, "i->i");
        fleet_in_edge(b.g, waiter, variant ? Y : Z, "i->i");
        fleet_in_edge(b.g, last, Z, "i->i");
        expect(t, &b, variant == 0, FLEET_SCHEDULE_STATIC);
    }
}

/* gate -> a -> b -> c -> end, of which a, b and c have a symbol that the gate cuts; `beside` has none. Bits of settled_in: 1 a,
   2 b, 4 c. */
enum { CHAIN, BESIDE_A, BESIDE_B, ONE_WORKER, LARGER, TWO_SYMBOLS, OUTSIDE, CHIPLET, VARIANTS };
static const uint32_t settled_in[VARIANTS] = {6, 6, 4, 4, 2, 0, 0, 0};
static void grids_that_vanish(test_run *t)
{
    for (int v = 0; v < VARIANTS && !t->failed_here; v++) {
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_plan *plan = NULL;
        fleet_graph *g = fleet_graph_create(NULL);
        const fleet_dim s = fleet_symbol(g, "s", 0, 1), r = fleet_symbol(g, "r", 0, 1);
        const fleet_grid gate = fleet_call_device(g, "gate", 0, fleet_shape0(), 0);
        const fleet_grid beside = fleet_call_device(g, "beside", 0, fleet_shape0(), 0);
        fleet_grid chain[3], end;
        uint32_t settled = 0;
        for (int i = 0; i < 3; i++) {
            fleet_shape shape = fleet_shape1(v == LARGER && i == 2 ? fleet_dim_plus(s, 1) : s);
            if (v == TWO_SYMBOLS) shape = fleet_shape2(s, r);
            chain[i] = fleet_call_device(g, i == 0 ? "a" : i == 1 ? "b" : "c", 0, shape, 0);
            if (v != ONE_WORKER || i) fleet_grid_level(g, chain[i], FLEET_LEVEL_DEVICE);
            fleet_after(g, chain[i], i ? chain[i - 1] : gate);
        }
        if (v == BESIDE_A) fleet_after(g, chain[0], beside);
        if (v == BESIDE_B) fleet_after(g, chain[1], beside);
        if (v == OUTSIDE) {
            const fleet_etensor told = fleet_event_tensor(g, "told", fleet_shape0(), 1);
            fleet_event_external(g, told, FLEET_EXTERNAL_NOTIFIES, 1, FLEET_SCOPE_SYSTEM);
            fleet_in_edge(g, beside, told, "->");
            fleet_after(g, chain[0], beside);
        }
        end = fleet_call_device(g, "end", 0, fleet_shape0(), 0);
        fleet_after(g, end, chain[2]), fleet_after(g, end, beside), fleet_after(g, end, gate);
        fleet_symbol_writer(g, s, end), fleet_symbol_writer(g, r, end);
        fleet_symbol_cutter(g, s, gate);
        desc.topology = fleet_topology_make(1, 5);
        desc.workers_per_chiplet = 4;
        desc.schedule = v == CHIPLET ? FLEET_SCHEDULE_CHIPLET : FLEET_SCHEDULE_STATIC;
        if (fleet_plan_build(g, &desc, &plan))
            test_fail(t, __FILE__, __LINE__, "variant %d: %s", v, fleet_graph_error(g));
        if (plan) check_plan(t, plan);
        for (int i = 0; plan && i < 3; i++) settled |= grids_of(plan)[2 + i].settled << i;
        if (settled != settled_in[v])
            test_fail(t, __FILE__, __LINE__, "variant %d: settled are %u", v, settled);
        fleet_plan_free(plan);
        fleet_graph_destroy(g);
    }
}

static void list(test_run *t)
{
    TEST(sink_on_the_sources_worker);
    TEST(cover);
    TEST(together_is_not_each);
    TEST(one_producer_of_two);
    TEST(one_edge_only);
    TEST(grids_that_vanish);
}

TEST_MAIN(list)
