// run: asan whole
/* Chiplet-tasks against the baseline, which is the same graph with two fields of fleet_plan_desc set: chiplet_unaware,
   and one counter level. A decode step of Qwen3-8B at batch 1 (36 layers, without embedding and head) on 8 chiplets of 31
   workers, as in FLEET (arXiv 2604.15379); the counts are printed beside those of the authors.

   The authors say: 1,407 tasks a layer against 543, each GEMM 96 to 256 CU-tasks, SiLU with gate and up in the latter
   form. So GEMMs and SiLU are 1,407 - (543 - 4 * 8) = 896 tasks, of which 96 and three times 256 leave 32 for SiLU,
   and 511 tasks are neither. The authors do not say what these are. Here they are what the operators need at batch 1: a
   CU-task for each norm and each attention head, a wavefront-task for each head of q, k and v (norm, RoPE, append)
   and for every 64 columns of a residual add: 210. SiLU is part of gate and up in both forms, since the graph is one.

   Two graphs. "linear": one event between each operator and the next, every device-task split over the columns: the
   paper's chain. "placed": what belongs together stays on one chiplet. qkv is split by heads; o and down are split
   along k, by the heads and columns that their chiplet has; and each chiplet adds up the partial sums and the
   residual for itself. Then only o and down are waited for across chiplets. */
#include "check.h"

#define LAYERS 36
#define X 8u
#define W 31u
#define GEMM_TILES (96u + 3 * 256u) /* of a layer; qkv, o, gate_up, down */
#define AUTHORS_OTHERS 511u

typedef struct op {
    const char *name;
    fleet_level level;
    uint32_t
        tasks; /* of a linear step; of a placed one for each chiplet, 0: it is a chiplet-task */
    uint32_t
        tiles; /* of each slice or chiplet-task: 64 columns of qkv, 96 of gate_up; 16 of o and down, or, split
                       along k, 128 */
} op;

static const op linear[] = {
    {"norm", FLEET_LEVEL_CU, 1, 0},      {"qkv", FLEET_LEVEL_DEVICE, 1, 12},
    {"rope", FLEET_LEVEL_WAVE, 48, 0},   {"attend", FLEET_LEVEL_CU, 32, 0},
    {"o", FLEET_LEVEL_DEVICE, 1, 32},    {"add", FLEET_LEVEL_WAVE, 64, 0},
    {"norm2", FLEET_LEVEL_CU, 1, 0},     {"gate_up", FLEET_LEVEL_DEVICE, 1, 32},
    {"down", FLEET_LEVEL_DEVICE, 1, 32}, {"add2", FLEET_LEVEL_WAVE, 64, 0},
};
static const op placed[] = {
    {"norm", FLEET_LEVEL_CU, 1, 0},          {"qkv", FLEET_LEVEL_CHIPLET, 0, 12},
    {"rope", FLEET_LEVEL_WAVE, 6, 0},        {"attend", FLEET_LEVEL_CU, 4, 0},
    {"o", FLEET_LEVEL_CHIPLET, 0, 32},       {"norm2", FLEET_LEVEL_CU, 1, 0},
    {"gate_up", FLEET_LEVEL_CHIPLET, 0, 32}, {"down", FLEET_LEVEL_CHIPLET, 0, 32},
};
#define OPS(list) (sizeof(list) / sizeof((list)[0]))

static fleet_graph *linear_graph(void)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor before = {0};
    uint32_t layer, i;
    for (layer = 0; layer < LAYERS; layer++)
        for (i = 0; i < OPS(linear); i++) {
            const op *o = &linear[i];
            fleet_grid grid;
            fleet_etensor done;
            char name[32];
            snprintf(name, sizeof name, "%s.%u", o->name, layer);
            grid = fleet_call_device(g, name, i, fleet_shape1(fleet_dim_of(o->tasks)), layer);
            fleet_grid_level(g, grid, o->level);
            if (o->tiles) fleet_grid_tiles(g, grid, fleet_dim_of(o->tiles));
            if (before.id) fleet_in_edge(g, grid, before, "i->");
            if (layer + 1 == LAYERS && i + 1 == OPS(linear)) break; /* the end of the step */
            done = fleet_event_tensor(g, name, fleet_shape0(), FLEET_COUNT_DERIVED);
            fleet_out_edge(g, grid, done, "i->");
            before = done;
        }
    return g;
}

static fleet_graph *placed_graph(void)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim chiplets = fleet_dim_of(X);
    fleet_etensor before = {0};
    uint32_t layer, i, across = 0;
    for (layer = 0; layer <= LAYERS; layer++)
        for (i = 0; i < OPS(placed); i++) {
            const op *o = &placed[i];
            const uint32_t was_across = across;
            fleet_grid grid;
            char name[32];
            snprintf(name, sizeof name, "%s.%u", o->name, layer);
            if (o->tasks)
                grid = fleet_call_device(g, name, i, fleet_shape2(chiplets, fleet_dim_of(o->tasks)),
                                         layer);
            else
                grid = fleet_call_device(g, name, i, fleet_shape1(chiplets), layer);
            fleet_grid_level(g, grid, o->level);
            fleet_grid_place(g, grid, fleet_map1(fleet_axis(0, 1, 0, 1)));
            if (o->tiles) fleet_grid_tiles(g, grid, fleet_dim_of(o->tiles));
            if (before.id)
                fleet_in_edge(g, grid, before,
                              o->tasks     ? was_across ? "kt->" : "kt->k"
                              : was_across ? "k->"
                                           : "k->k");
            if (layer == LAYERS) return g; /* the partial sums of the last layer are added */
            across = strcmp(o->name, "o") == 0 || strcmp(o->name, "down") == 0;
            before = fleet_event_tensor(g, name, across ? fleet_shape0() : fleet_shape1(chiplets),
                                        FLEET_COUNT_DERIVED);
            fleet_out_edge(g, grid, before,
                           o->tasks ? across ? "kt->" : "kt->k"
                           : across ? "k->"
                                    : "k->k");
        }
    return g;
}

static fleet_plan *step_plan(test_run *t, fleet_graph *g, uint32_t unaware, uint32_t levels,
                             fleet_schedule schedule)
{
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan = NULL;
    desc.topology = fleet_topology_preset(FLEET_MI350X);
    desc.schedule = schedule;
    desc.workers_per_chiplet = W;
    desc.chiplet_unaware = unaware;
    desc.counter_levels = levels;
    if (fleet_plan_build(g, &desc, &plan))
        test_fail(t, __FILE__, __LINE__, "%s", fleet_graph_error(g));
    return plan;
}

/* As the authors count: a device-task counts as its chiplet-tasks. */
static uint32_t tasks_in(const fleet_plan *plan)
{
    const fleet_plan_stats s = fleet_plan_get_stats(plan);
    return s.tasks[FLEET_LEVEL_WAVE] + s.tasks[FLEET_LEVEL_CU] + s.tasks[FLEET_LEVEL_CHIPLET] +
           X * s.tasks[FLEET_LEVEL_DEVICE];
}

static void print_form(const char *graph, const char *form, const fleet_plan *plan, uint32_t more)
{
    const fleet_plan_stats s = fleet_plan_get_stats(plan);
    printf("    %-7s %-42s %5u %8llu %8llu %9llu\n", graph, form, (tasks_in(plan) - more) / LAYERS,
           (unsigned long long)s.global_signals, (unsigned long long)s.releases,
           (unsigned long long)s.local_signals);
}

static void print_head(void)
{
    printf("    %-50s %5s %8s %8s %9s\n", "", "tasks", "global", "write-", "chiplet");
    printf("    %-50s %5s %8s %8s %9s\n", "36 layers, 8 x 31 workers, batch 1", "/layer", "signals",
           "backs", "signals");
    printf("    %-50s %5d %8d %8s %9s\n", "authors: standard, direct signals", 1407, 25200,
           "~24000", "");
    printf("    %-50s %5d %8d %8s %9s\n", "authors: chiplet-tasks", 543, 1830, "~300", "");
}

/* The events of device-tasks: X arrivals and X releases, or one for each CU-task. */
static void check_linear_events(test_run *t, const fleet_plan *plan, uint32_t unaware,
                                uint32_t levels)
{
    uint32_t i, next = 0;
    for (i = 0; i + 1 < plan->n_events; i++) {
        const op *o = &linear[i % OPS(linear)];
        const fleeti_event_stats stats = fleeti_count_event(plan, i, &next);
        const uint32_t parts = o->tiles ? X * (unaware ? o->tiles : W) : o->tasks;
        CHECK_INT(events_of(plan)[i].scoped[FLEET_SCOPE_DEVICE], 1);
        CHECK_INT(stats.global, levels == 1 || parts < X ? parts : X);
        CHECK_INT(stats.releases, stats.global);
        CHECK_INT(stats.local, levels == 1 || parts < X ? 0 : parts);
    }
}

static void linear_step(test_run *t)
{
    static const char *const form[2][2] = {
        {"chiplet-tasks, direct signals", "chiplet-tasks"},
        {"CU-tasks, direct signals (the baseline)", "CU-tasks, counted on their chiplets first"}};
    fleet_graph *g = linear_graph();
    fleet_plan *plan[2][2]; /* unaware, levels */
    fleet_plan_stats fleet, standard;
    uint32_t unaware, levels, schedule;
    print_head();
    for (schedule = 0; schedule < 2; schedule++)
        for (unaware = 0; unaware < 2; unaware++)
            for (levels = 1; levels <= 2; levels++) {
                fleet_plan *p = step_plan(t, g, unaware, levels, (fleet_schedule)schedule);
                if (!p) return;
                check_plan(t, p);
                check_linear_events(t, p, unaware, levels);
                if (t->failed_here) return;
                if (schedule == FLEET_SCHEDULE_CHIPLET) {
                    print_form("linear:", form[unaware][levels - 1], p, 0);
                    plan[unaware][levels - 1] = p;
                } else {
                    fleet_plan_free(p);
                }
            }
    fleet = fleet_plan_get_stats(plan[0][1]);
    standard = fleet_plan_get_stats(plan[1][0]);
    CHECK_INT(tasks_in(plan[0][1]), LAYERS * (4 * X + 210));
    CHECK_INT(tasks_in(plan[1][0]), LAYERS * (GEMM_TILES + 210));
    CHECK_INT(fleet.tasks[FLEET_LEVEL_DEVICE], LAYERS * 4);
    CHECK_INT(standard.tasks[FLEET_LEVEL_DEVICE], 0);
    printf("    linear: %.2fx fewer tasks (with the authors' %u others: %u / %u = %.2fx; theirs: "
           "%.2fx), %.1fx fewer signals (theirs: %.1fx), %.1fx fewer write-backs\n",
           (double)tasks_in(plan[1][0]) / tasks_in(plan[0][1]), AUTHORS_OTHERS,
           GEMM_TILES + AUTHORS_OTHERS, 4 * X + AUTHORS_OTHERS,
           (double)(GEMM_TILES + AUTHORS_OTHERS) / (4 * X + AUTHORS_OTHERS), 1407.0 / 543,
           (double)standard.global_signals / (double)fleet.global_signals, 25200.0 / 1830,
           (double)standard.releases / (double)fleet.releases);
    CHECK(2 * tasks_in(plan[1][0]) >= 5 * tasks_in(plan[0][1]));
    CHECK(2 * (GEMM_TILES + AUTHORS_OTHERS) >= 5 * (4 * X + AUTHORS_OTHERS));
    CHECK(standard.global_signals >= 13 * fleet.global_signals);
    /* Each task signals once, and each worker ends the step. */
    CHECK_INT(standard.global_signals,
              tasks_in(plan[1][0]) - linear[OPS(linear) - 1].tasks + X * W);
    CHECK_INT(standard.releases, standard.global_signals);
    CHECK_INT(standard.local_signals, 0);
    /* The norms are one task each: one signal. The last add ends the step, with X. */
    CHECK_INT(fleet.global_signals, LAYERS * (8 * X + 2));
    CHECK_INT(fleet.releases, fleet.global_signals);
    for (unaware = 0; unaware < 2; unaware++)
        for (levels = 0; levels < 2; levels++) fleet_plan_free(plan[unaware][levels]);
    fleet_graph_destroy(g);
}

static void placed_step(test_run *t)
{
    fleet_graph *g = placed_graph();
    fleet_plan *aware = step_plan(t, g, 0, 2, FLEET_SCHEDULE_CHIPLET);
    fleet_plan *direct = step_plan(t, g, 1, 1, FLEET_SCHEDULE_CHIPLET);
    fleet_plan_stats fleet, standard;
    if (!aware || !direct) return;
    check_plan(t, aware);
    check_plan(t, direct);
    print_head();
    print_form("placed:", "chiplet-tasks", aware, X);
    print_form("placed:", "CU-tasks, direct signals (the baseline)", direct, X);
    fleet = fleet_plan_get_stats(aware);
    standard = fleet_plan_get_stats(direct);
    printf("    placed: %.1fx fewer tasks, %.1fx fewer signals, %.1fx fewer write-backs (theirs: "
           "~%dx)\n",
           (double)(tasks_in(direct) - X) / (tasks_in(aware) - X),
           (double)standard.global_signals / (double)fleet.global_signals,
           (double)standard.releases / (double)fleet.releases, 24000 / 300);
    CHECK_INT(tasks_in(aware), LAYERS * (4 * X + 8 + 48 + 32 + 8) + X);
    CHECK_INT(tasks_in(direct), LAYERS * (GEMM_TILES + 8 + 48 + 32 + 8) + X);
    CHECK_INT(fleet.releases, LAYERS * 2 * X + X); /* o, down, and the end of the step */
    CHECK_INT(fleet.global_signals, fleet.releases);
    /* RoPE stays on the chiplet of its heads in both forms: it is placed by hand, task by task. */
    CHECK_INT(standard.releases, LAYERS * (GEMM_TILES + 8 + 32 + 8) + X * W);
    CHECK(2 * tasks_in(direct) >= 5 * tasks_in(aware));
    CHECK(standard.global_signals >= 13 * fleet.global_signals);
    CHECK(standard.releases >= 50 * fleet.releases);
    fleet_plan_free(aware);
    fleet_plan_free(direct);
    fleet_graph_destroy(g);
}

/* ---- where the CU-tasks go ---- */

/* A device-task of `slices`, and after it a chiplet-task grid of two, each slice with `tiles`. */
static fleet_graph *two_grids(uint32_t slices, uint32_t tiles)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape0(), 1);
    fleet_etensor F = fleet_event_tensor(g, "F", fleet_shape1(fleet_dim_of(2)), 1);
    fleet_grid d = fleet_call_device(g, "d", 3, fleet_shape0(), 7);
    fleet_grid c = fleet_call_device(g, "c", 4, fleet_shape1(fleet_dim_of(2)), 8);
    fleet_grid e = fleet_call_device(g, "e", 5, fleet_shape1(fleet_dim_of(2)), 9);
    fleet_grid_level(g, d, FLEET_LEVEL_DEVICE);
    fleet_grid_level(g, c, FLEET_LEVEL_CHIPLET);
    fleet_grid_slices(g, d, fleet_dim_of(slices));
    if (tiles) {
        fleet_grid_tiles(g, d, fleet_dim_of(tiles));
        fleet_grid_tiles(g, c, fleet_dim_of(tiles));
    }
    /* In a chiplet-aware plan all of F is on one chiplet: a scope and placements that an unaware plan cannot keep. */
    fleet_grid_place(g, c, fleet_map1(fleet_axis(0, 0, 1, 1)));
    fleet_grid_place(g, e, fleet_map1(fleet_axis(0, 0, 1, 1)));
    fleet_event_scope(g, F, FLEET_SCOPE_CHIPLET);
    fleet_out_edge(g, d, E, "->");
    fleet_in_edge(g, c, E, "i->");
    fleet_out_edge(g, c, F, "i->i");
    fleet_in_edge(g, e, F, "i->i");
    return g;
}

/* Slice after slice, tile after tile: task i goes to chiplet i mod X, and there to the workers in turn. */
static void dealt_in_turn(test_run *t)
{
    fleet_graph *g = two_grids(3, 5);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    uint32_t q, d, seen = 0;
    char report[4096];
    desc.topology = fleet_topology_make(4, 2);
    desc.chiplet_unaware = 1;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    check_plan(t, plan);
    for (q = 0; q < plan->n_queues; q++)
        for (d = queues_of(plan)[q].first; d < queues_of(plan)[q].first + queues_of(plan)[q].count;
             d++) {
            const fleet_task *task = &tasks_of(plan)[d];
            uint32_t i = task->slice * 5 + task->batch;
            if (task->grid == 1) i += 5 * (uint32_t)task->at[0];
            if (task->grid > 1) continue;
            CHECK_INT(task->level, FLEETI_LEVEL_PART);
            CHECK_INT(task->tile, 3 + task->grid);
            CHECK_INT(task->args, 7 + task->grid);
            CHECK_INT(task->slices, (task->grid ? 1u : 3u) | 5u << 16);
            CHECK_INT(chiplet_of_queue(plan, q), i % 4);
            if (!task->grid) CHECK_INT(q, i % 4 * 2 + i / 4 % 2);
            seen++;
        }
    CHECK_INT(seen, 15 + 2 * 5);
    CHECK_INT(fleet_plan_get_stats(plan).tasks[FLEET_LEVEL_CU], 15 + 10 + 2);
    CHECK_INT(targets_of(plan)[0],
              15); /* each CU-task counts, although the graph's count is one task */
    CHECK_INT(events_of(plan)[1].scoped[FLEET_SCOPE_DEVICE], 2);
    fleet_plan_report(plan, report, sizeof report);
    CHECK_TEXT(report, "unaware: each task of grid d is 15 CU-tasks, 5 tiles of 3 slices");
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* By default there are as many tiles as workers; where chiplets differ, as workers on the largest. */
static void default_tiles(test_run *t)
{
    fleet_graph *g = two_grids(3, 0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    desc.topology = fleet_topology_make(2, 3);
    desc.topology.units[1] = 6;
    desc.schedule = FLEET_SCHEDULE_CHIPLET;
    desc.chiplet_unaware = 1;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    check_plan(t, plan);
    CHECK_INT(grids_of(plan)[0].tiles, 5);
    CHECK_INT(plan->n_descs, (3 + 2) * 5 + 2 + 2);
    fleet_plan_free(plan);
    desc.chiplet_unaware = 0; /* and then they are ignored */
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(grids_of(plan)[0].tiles, 0);
    CHECK_INT(events_of(plan)[1].scoped[FLEET_SCOPE_CHIPLET], 2);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* Unfused plans too: barriers between grids, and the tiles on any chiplet. */
static void unfused_and_unaware(test_run *t)
{
    fleet_graph *g = two_grids(3, 5);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    desc.topology = fleet_topology_make(4, 2);
    desc.chiplet_unaware = desc.unfused = 1;
    desc.counter_levels = 1;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    check_plan(t, plan);
    CHECK_INT(fleet_plan_get_stats(plan).global_signals, 15 + 10 + 8);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* Ready queues: each CU-task has an entry of its own, which any worker may steal. */
static void ready_queues(test_run *t)
{
    fleet_graph *g = two_grids(3, 5);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    uint32_t k, entries = 0;
    desc.topology = fleet_topology_make(4, 2);
    desc.schedule = FLEET_SCHEDULE_DYNAMIC;
    desc.chiplet_unaware = 1;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(fleet_plan_check(plan, (size_t)plan->bytes), FLEET_OK);
    for (k = 0; k < 4; k++) {
        CHECK_INT(plan->ring_entries[FLEETI_RINGS * k + FLEETI_RING_CHIPLET], 0);
        entries += plan->ring_entries[FLEETI_RINGS * k + FLEETI_RING_CU];
    }
    CHECK_INT(entries, 15 + 10 + 2);
    CHECK_INT(targets_of(plan)[0], 15);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

static void list(test_run *t)
{
    TEST(linear_step);
    TEST(placed_step);
    TEST(dealt_in_turn);
    TEST(default_tiles);
    TEST(unfused_and_unaware);
    TEST(ready_queues);
}

TEST_MAIN(list)
