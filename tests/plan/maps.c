/* Edge maps against brute force. On one worker a plan's targets are the numbers of notifies, and its wait records
   list the elements for which each task waits. */
#include "walk.h"

#define MOST_POINTS 4096

/* Builds grid -> event by an out edge, and event -> a grid of the same shape by an in edge, both with `map` (or the
   einsum string, if given), and compares with the reference. Each direction has a tensor of its own; `all` notifies
   and waits for what the other side lacks. */
static void compare(test_run *t, const char *einsum, fleet_map map, int grid_rank,
                    const int32_t *grid_extent, int event_rank, const int32_t *event_extent)
{
    static unsigned char waits[MOST_POINTS][MOST_POINTS / 16];
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_shape gs = fleet_shape0(), es = fleet_shape0();
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_etensor notified, waited;
    fleet_grid all, grid;
    fleet_plan *plan = NULL;
    fleet_status status;
    fleet_map every = fleet_map0();
    int64_t tasks = ref_points(grid_extent, grid_rank), elements, i, e;
    int k, outside = 0;
    uint32_t d, w, n;
    for (k = 0; k < grid_rank; k++) gs = fleet_shape_append(gs, fleet_dim_of(grid_extent[k]));
    for (k = 0; k < event_rank; k++) {
        es = fleet_shape_append(es, fleet_dim_of(event_extent[k]));
        every = fleet_map_append(every, fleet_axis_all());
    }
    elements = ref_points(event_extent, event_rank);
    CHECK(tasks < MOST_POINTS && elements < MOST_POINTS / 16);
    notified = fleet_event_tensor(g, "notified", es, 0);
    waited = fleet_event_tensor(g, "waited", es, 0);
    all = fleet_call_device(g, "all", 0, fleet_shape0(), 0);
    grid = fleet_call_device(g, "grid", 0, gs, 0);
    fleet_out_edge_map(g, all, waited, every);
    if (einsum) {
        map = ref_einsum(einsum, grid_rank, event_extent);
        fleet_out_edge(g, grid, notified, einsum);
        fleet_in_edge(g, grid, waited, einsum);
    } else {
        fleet_out_edge_map(g, grid, notified, map);
        fleet_in_edge_map(g, grid, waited, map);
    }
    desc.topology = fleet_topology_make(1, 1);
    status = fleet_plan_build(g, &desc, &plan);
    for (i = 0; i < tasks; i++) {
        int32_t at[FLEET_MAX_RANK];
        ref_unravel(i, grid_extent, grid_rank, at);
        for (e = 0; e < elements; e++)
            waits[i][e] =
                (unsigned char)ref_reaches(&map, grid_rank, at, event_extent, e, &outside);
    }
    if (outside) {
        CHECK_INT(status, FLEET_ERROR_MAP_RANGE);
        fleet_graph_destroy(g);
        return;
    }
    if (status != FLEET_OK) test_fail(t, __FILE__, __LINE__, "%s", fleet_graph_error(g));
    CHECK_INT(status, FLEET_OK);
    for (e = 0; e < elements; e++) {
        const fleeti_event *event = &events_of(plan)[fleet_plan_event(plan, "notified")];
        uint32_t notifies = 0;
        for (i = 0; i < tasks; i++) notifies += waits[i][e];
        CHECK_INT(targets_of(plan)[event->first_target + (uint32_t)e], notifies);
    }
    for (d = 0; d < plan->n_descs; d++) {
        const fleet_task *task = &tasks_of(plan)[d];
        const fleeti_event *event = &events_of(plan)[fleet_plan_event(plan, "waited")];
        if (task->id == 0 || task->tile == FLEETI_TILE_NONE) continue; /* "all", the step's end */
        for (w = task->waits; w < task->waits + task->n_waits; w++) {
            const fleeti_wait *wait = &waits_of(plan)[w];
            if (wait->count & FLEETI_PREVIOUS) continue;
            for (n = 0; n < wait->count; n++) {
                uint32_t element =
                    (wait->counter + n * wait->stride - event->counter) / event->stride;
                CHECK_INT((wait->counter + n * wait->stride - event->counter) % event->stride, 0);
                CHECK(element < event->elements);
                CHECK_INT(waits[task->id - 1][element], 1);
                waits[task->id - 1][element] = 0;
            }
        }
        for (e = 0; e < elements; e++) CHECK_INT(waits[task->id - 1][e], 0);
    }
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

static void einsum_strings(test_run *t)
{
    static const struct {
        const char *einsum;
        int grid_rank;
        int32_t grid[FLEET_MAX_RANK];
        int event_rank;
        int32_t event[FLEET_MAX_RANK];
    } c[] = {
        {"ij->i", 2, {3, 4}, 1, {3}},
        {"ij->j", 2, {3, 4}, 1, {4}},
        {"ij->ji", 2, {3, 4}, 2, {4, 3}},
        {"bh->bh", 2, {2, 5}, 2, {2, 5}},
        {"bh->u", 2, {2, 3}, 1, {7}},
        {"bh->", 2, {2, 3}, 0, {0}},
        {"->", 0, {0}, 0, {0}},
        {"->k", 0, {0}, 1, {6}},
        {"i->ii", 1, {4}, 2, {4, 4}},
        {"i->uiv", 1, {4}, 3, {2, 4, 3}},
        {"i->iuv", 1, {4}, 3, {4, 2, 3}},
        {"i->uv", 1, {3}, 2, {5, 4}},
        {"ijk->kui", 3, {2, 3, 4}, 3, {4, 2, 2}},
        {"ij->i", 2, {3, 4}, 1, {2}}, /* out of shape */
        {"i->[i+1]", 1, {5}, 1, {5}},
        {"i->[i-3]", 1, {5}, 1, {5}},
        {"ij->[j-1][i+12]", 2, {4, 3}, 2, {3, 4}},
        {"ij->[i+2]u[j^1]", 2, {4, 4}, 3, {4, 2, 4}},
        {"i->[i^5]", 1, {8}, 1, {8}},
        {"i->[i^5]", 1, {7}, 1, {7}}, /* out of shape */
        {"abcdef->fedcba", 6, {2, 1, 3, 2, 1, 2}, 6, {2, 1, 2, 3, 1, 2}},
        {"i->uivw", 1, {4}, 4, {2, 4, 1, 3}},
    };
    size_t i;
    for (i = 0; i < sizeof c / sizeof c[0]; i++)
        compare(t, c[i].einsum, fleet_map0(), c[i].grid_rank, c[i].grid, c[i].event_rank,
                c[i].event);
}

static void affine_maps(test_run *t)
{
    uint64_t seed = 7;
    int i;
    for (i = 0; i < 3000 && !t->failed_here; i++) {
        int grid_rank = (int)draw(&seed, 4), event_rank = (int)draw(&seed, 3), j, k;
        int32_t grid[FLEET_MAX_RANK], event[FLEET_MAX_RANK];
        fleet_map map = fleet_map0();
        for (k = 0; k < grid_rank; k++) grid[k] = 1 + (int32_t)draw(&seed, 5);
        for (j = 0; j < event_rank; j++) {
            fleet_axis_map a = fleet_axis(0, 0, (int64_t)draw(&seed, 7) - 2, 1 + draw(&seed, 3));
            for (k = 0; k < grid_rank; k++)
                if (draw(&seed, 2)) a.stride[k] = (int64_t)draw(&seed, 6) - 2;
            a.width = 1 + draw(&seed, 4) * draw(&seed, 2);
            if (!draw(&seed, 3)) a.limit = fleet_dim_of(1 + draw(&seed, 12));
            if (!draw(&seed, 3)) {
                a.clipped = 1;
                a.lower = fleet_dim_of((int64_t)draw(&seed, 8) - 3);
                a.limit = fleet_dim_of((int64_t)draw(&seed, 16) - 3);
            }
            if (!draw(&seed, 4)) {
                a.width = 1;
                if (draw(&seed, 4)) a.modulo = fleet_dim_of(1 + draw(&seed, 9));
                if (a.modulo.add && draw(&seed, 2)) a.flip = draw(&seed, 12);
                if (grid_rank && draw(&seed, 2)) {
                    a.flip_axis = 1 + (uint32_t)draw(&seed, (uint32_t)grid_rank);
                    a.flip_shift = (int32_t)draw(&seed, 4) - 2;
                }
            }
            if (!draw(&seed, 4)) a = fleet_axis_all();
            event[j] = 1 + (int32_t)draw(&seed, 14);
            map = fleet_map_append(map, a);
        }
        compare(t, NULL, map, grid_rank, grid, event_rank, event);
        if (t->failed_here) printf("  (random map %d)\n", i);
    }
}

/* From tiles of `from` units to tiles of `to`: every pair that shares a unit, by going through the units. */
static void retiling(test_run *t)
{
    int32_t from, to, units, i, e, u;
    for (from = 1; from <= 9; from++) {
        for (to = 1; to <= 9; to++) {
            for (units = 1; units <= 40; units += 13) {
                int32_t grid = (units + from - 1) / from, event = (units + to - 1) / to;
                fleet_map map = fleet_map1(fleet_axis_retile(0, from, to, fleet_dim_of(units)));
                compare(t, NULL, map, 1, &grid, 1, &event);
                for (i = 0; i < grid; i++) {
                    for (e = 0; e < event; e++) {
                        int share = 0, outside = 0;
                        for (u = 0; u < units; u++) share |= u / from == i && u / to == e;
                        CHECK_INT(ref_reaches(&map, 1, &i, &event, e, &outside), share);
                        CHECK_INT(outside, 0);
                    }
                }
            }
        }
    }
}

/* A limit may be symbolic: the last tile is partial in one binding and whole in another. */
static void retiling_by_symbol(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim n = fleet_symbol(g, "n", 0, 1000);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(fleet_dim_ceil_div(n, 6)), 0);
    fleet_grid p = fleet_call_device(g, "p", 0, fleet_shape1(fleet_dim_ceil_div(n, 4)), 0);
    fleet_grid c = fleet_call_device(g, "c", 0, fleet_shape1(fleet_dim_ceil_div(n, 6)), 0);
    int64_t units;
    fleet_out_edge_map(g, p, E, fleet_map1(fleet_axis_retile(0, 4, 6, n)));
    fleet_in_edge(g, c, E, "i->i");
    for (units = 0; units < 50; units++) {
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_plan *plan = NULL;
        uint32_t e;
        desc.topology = fleet_topology_make(1, 1);
        fleet_bind_at_build(&desc, n, units);
        CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
        for (e = 0; e < events_of(plan)[0].elements; e++) {
            uint32_t want = 0, i, u;
            for (i = 0; i < grids_of(plan)[0].count; i++) {
                uint32_t share = 0;
                for (u = 0; u < units; u++) share |= u / 4 == i && u / 6 == e;
                want += share;
            }
            CHECK_INT(targets_of(plan)[e], want);
        }
        fleet_plan_free(plan);
    }
    fleet_graph_destroy(g);
}

/* Both limits may be symbolic, and are limits whatever their values are: task i reaches i - 1 in [lo, hi). */
static void clipping_by_symbols(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim lo = fleet_symbol(g, "lo", 0, 20), hi = fleet_symbol(g, "hi", 0, 20);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1_of(8), 0);
    fleet_grid p = fleet_call_device(g, "p", 0, fleet_shape1_of(9), 0);
    int64_t low, high;
    fleet_out_edge_map(g, p, E,
                       fleet_map1(fleet_axis_clipped(0, 1, -1, 1, fleet_dim_plus(lo, -3), hi)));
    for (low = 0; low < 14; low++) {
        for (high = 0; high < 10; high++) {
            fleet_plan_desc desc = fleet_plan_desc_default();
            fleet_plan *plan = NULL;
            uint32_t e;
            desc.topology = fleet_topology_make(1, 1);
            fleet_bind_at_build(&desc, lo, low);
            fleet_bind_at_build(&desc, hi, high);
            if (low < 3) { /* task 0 reaches -1 */
                CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_MAP_RANGE);
                CHECK_TEXT(fleet_graph_error(g), "task p(0) reaches -1 on axis 0");
                continue;
            }
            CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
            for (e = 0; e < 8; e++)
                CHECK_INT(targets_of(plan)[e], (int64_t)e >= low - 3 && (int64_t)e < high);
            fleet_plan_free(plan);
        }
    }
    fleet_graph_destroy(g);
}

/* Each task notifies its neighbours: at borders elements have fewer notifies. */
static void neighbours(test_run *t)
{
    int32_t n, m, i, j;
    for (n = 1; n < 5; n++) {
        for (m = 1; m < 5; m++) {
            fleet_graph *g = fleet_graph_create(NULL);
            const fleet_dim none = fleet_dim_of(0), rows = fleet_dim_of(n),
                            columns = fleet_dim_of(m);
            const fleet_axis_map row = fleet_axis(0, 1, 0, 1), column = fleet_axis(1, 1, 0, 1);
            fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape2_of(n, m), 0);
            fleet_grid p = fleet_call_device(g, "p", 0, fleet_shape2_of(n, m), 0);
            fleet_plan_desc desc = fleet_plan_desc_default();
            fleet_plan *plan = NULL;
            for (i = -1; i <= 1; i += 2) {
                const fleet_axis_map above = fleet_axis_clipped(0, 1, i, 1, none, rows);
                const fleet_axis_map beside = fleet_axis_clipped(1, 1, i, 1, none, columns);
                fleet_out_edge_map(g, p, E, fleet_map2(above, column));
                fleet_out_edge_map(g, p, E, fleet_map2(row, beside));
            }
            desc.topology = fleet_topology_make(1, 1);
            CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
            for (i = 0; i < n; i++)
                for (j = 0; j < m; j++)
                    CHECK_INT(targets_of(plan)[i * m + j],
                              (i > 0) + (i + 1 < n) + (j > 0) + (j + 1 < m));
            fleet_plan_free(plan);
            fleet_graph_destroy(g);
        }
    }
}

static void extents(test_run *t)
{
    int64_t m, a, q, k, s;
    for (m = 0; m <= 3; m++) {
        for (a = -2; a <= 3; a++) {
            for (q = 1; q <= 4; q++) {
                for (k = 1; k <= 3; k++) {
                    fleet_graph *g = fleet_graph_create(NULL);
                    fleet_dim n = fleet_symbol(g, "n", 0, 100);
                    fleet_dim d = fleet_dim_plus(fleet_dim_times(n, m), a);
                    d = fleet_dim_ceil_div(fleet_dim_plus(fleet_dim_ceil_div(d, q), 1), k);
                    fleet_call_device(g, "x", 0, fleet_shape1(d), 0);
                    for (s = 2; s < 9; s++) {
                        fleet_plan_desc desc = fleet_plan_desc_default();
                        fleet_plan *plan = NULL;
                        int64_t want = -ref_floor(ref_floor(-(m * s + a), q) - 1, k);
                        fleet_bind_at_build(&desc, n, s);
                        CHECK_INT(fleet_plan_build(g, &desc, &plan),
                                  want < 0 ? FLEET_ERROR_ARGUMENT : FLEET_OK);
                        if (plan) CHECK_INT(plan->n_tasks, want);
                        fleet_plan_free(plan);
                    }
                    fleet_graph_destroy(g);
                }
            }
        }
    }
}

static void list(test_run *t)
{
    TEST(einsum_strings);
    TEST(affine_maps);
    TEST(retiling);
    TEST(retiling_by_symbol);
    TEST(clipping_by_symbols);
    TEST(neighbours);
    TEST(extents);
}

TEST_MAIN(list)
