/* What plans hold, in exact numbers: queues, targets, shares, scopes, batches. Random graphs are in
   tests/gpu/random.c. */
// run: asan whole
#include "check.h"

static const fleet_task *find(const fleet_plan *plan, const char *grid, int32_t a, int32_t b)
{
    int32_t at[2];
    uint32_t d;
    int64_t id;
    at[0] = a;
    at[1] = b;
    id = fleet_plan_task(plan, grid, at);
    for (d = 0; d < plan->n_descs; d++)
        if (tasks_of(plan)[d].id == id) return &tasks_of(plan)[d];
    return NULL;
}

static const fleeti_notify *notify_of(const fleet_plan *plan, const fleet_task *task, uint32_t i)
{
    return &notifies_of(plan)[task->notifies + i];
}

static const fleeti_wait *wait_of(const fleet_plan *plan, const fleet_task *task, uint32_t i)
{
    return &waits_of(plan)[task->waits + i];
}

static uint32_t target(const fleet_plan *plan, const char *event, uint32_t element)
{
    return targets_of(plan)[events_of(plan)[fleet_plan_event(plan, event)].first_target + element];
}

/* Test 1 of the Event Tensor paper: partial(i, 0..3) notify E[i], final(i) waits for it. */
static fleet_graph *split_row_sum_graph(fleet_dim *n, int64_t count)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor E;
    fleet_grid p, f;
    *n = fleet_symbol(g, "n", 0, 4096);
    E = fleet_event_tensor(g, "E", fleet_shape1(*n), count);
    p = fleet_call_device(g, "partial", 5, fleet_shape2(*n, fleet_dim_of(4)), 70);
    f = fleet_call_device(g, "final", 6, fleet_shape1(*n), 71);
    fleet_out_edge(g, p, E, "ij->i");
    fleet_in_edge(g, f, E, "i->i");
    return g;
}

static void split_row_sum(test_run *t)
{
    fleet_dim n;
    fleet_graph *g = split_row_sum_graph(&n, 4);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    const fleet_task *task;
    char text[64];
    fleet_bind_at_build(&desc, n, 3);
    desc.topology = fleet_topology_make(2, 3);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    check_plan(t, plan);
    CHECK_INT(plan->n_tasks, 15);
    CHECK_INT(plan->n_queues, 6);
    CHECK_INT(plan->n_descs, 21); /* a step end for each worker */
    CHECK_INT(plan->n_events, 2);
    CHECK_INT(plan->n_elements, 4);
    CHECK_INT(plan->step_event, 1);
    CHECK_INT(plan->system_words, 0);
    CHECK_INT(target(plan, "E", 0), 4);
    CHECK_INT(target(plan, "E", 1), 4);
    CHECK_INT(target(plan, "E", 2), 4);
    CHECK_INT(target(plan, "step", 0), 6);
    /* partial 0..5 on chiplet 0, 6..11 on chiplet 1: E[1] has two producers on each. */
    task = find(plan, "partial", 0, 0);
    CHECK_INT(task - tasks_of(plan), queues_of(plan)[0].first);
    CHECK_INT(task->tile, 5);
    CHECK_INT(task->args, 70);
    CHECK_INT(task->level, FLEET_LEVEL_CU);
    CHECK_INT(task->n_notifies, 1);
    CHECK_INT(notify_of(plan, task, 0)->sub, FLEETI_LOCAL);
    CHECK_INT(wait_of(plan, task, 0)->count, 1 | FLEETI_PREVIOUS);
    CHECK_INT(wait_of(plan, task, 0)->target, 6);
    CHECK_INT(task->acquire, FLEET_SCOPE_DEVICE);
    task = find(plan, "partial", 0, 3); /* second in its queue: the wait for the step is implied */
    CHECK_INT(task - tasks_of(plan), queues_of(plan)[0].first + 1);
    CHECK_INT(task->n_waits, 0);
    task = find(plan, "partial", 1, 2);
    CHECK_INT(notify_of(plan, task, 0)->share, 2);
    CHECK_INT(notify_of(plan, task, 0)->weight, 2);
    CHECK(notify_of(plan, task, 0)->sub != notify_of(plan, find(plan, "partial", 1, 0), 0)->sub);
    CHECK_INT(notify_of(plan, task, 0)->counter,
              notify_of(plan, find(plan, "partial", 1, 0), 0)->counter);
    CHECK_INT(events_of(plan)[0].scoped[FLEET_SCOPE_CHIPLET], 2);
    CHECK_INT(events_of(plan)[0].scoped[FLEET_SCOPE_DEVICE], 1);
    task = find(plan, "final", 1, 0);
    CHECK_INT(task->n_waits, 1);
    CHECK_INT(task->acquire, FLEET_SCOPE_DEVICE);
    CHECK_INT(wait_of(plan, task, 0)->counter, events_of(plan)[0].counter + 32);
    CHECK_INT(wait_of(plan, task, 0)->count, 1);
    CHECK_INT(wait_of(plan, task, 0)->target, 4);
    CHECK_INT(find(plan, "final", 0, 0)->acquire, FLEET_SCOPE_CHIPLET);
    CHECK_INT(fleet_plan_event(plan, "E"), 0);
    CHECK_INT(fleet_plan_event(plan, "step"), 1);
    CHECK_INT(fleet_plan_event(plan, "F"), -1);
    fleet_plan_task_name(plan, 6, text, sizeof text);
    CHECK_TEXT(text, "partial(1,2)");
    CHECK_INT(fleet_plan_task_name(plan, 14, text, 4), 8); /* as snprintf */
    CHECK_INT(strcmp(text, "fin"), 0);
    fleet_plan_counter_name(plan, events_of(plan)[0].counter + 64, text, sizeof text);
    CHECK_INT(strcmp(text, "E[2]"), 0);
    fleet_plan_counter_name(plan, events_of(plan)[1].counter, text, sizeof text);
    CHECK_INT(strcmp(text, "step"), 0);
    task = find(plan, "partial", 1, 2);
    fleet_plan_counter_name(plan, notify_of(plan, task, 0)->sub, text, sizeof text);
    CHECK_TEXT(text, "E[1] (");
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* One level: every arrival of a device event goes to its counter. */
static void one_counter_level(test_run *t)
{
    fleet_dim n;
    fleet_graph *g = split_row_sum_graph(&n, 0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    uint32_t i;
    fleet_bind_at_build(&desc, n, 3);
    desc.topology = fleet_topology_make(2, 3);
    desc.counter_levels = 1;
    desc.counter_stride_bytes = 4;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    check_plan(t, plan);
    for (i = 0; i < plan->n_notifies; i++) {
        CHECK(notifies_of(plan)[i].sub == 0 || notifies_of(plan)[i].sub == FLEETI_LOCAL);
        CHECK_INT(notifies_of(plan)[i].weight, 1);
    }
    CHECK_INT(events_of(plan)[0].stride, 1);
    CHECK_INT(fleet_plan_get_stats(plan).releases, 4 + 6);
    CHECK_INT(plan->counter_words, 96); /* an unused line, E, the step event */
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* FLEET: a layer's four GEMMs as device-tasks on 8 chiplets. Each linear event takes 8 arrivals and 8 releases,
   whatever W is; the standard one as many as there are CU-tasks, 256. */
static fleet_graph *layer_graph(int device_tasks)
{
    static const char *const names[] = {"qkv", "o", "gate_up", "down"};
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor before;
    int i;
    before.id = 0;
    for (i = 0; i < 4; i++) {
        char name[16];
        fleet_etensor E;
        fleet_grid grid;
        snprintf(name, sizeof name, "%s_done", names[i]);
        E = fleet_event_tensor(g, name, fleet_shape0(), FLEET_COUNT_DERIVED);
        if (device_tasks) {
            grid = fleet_call_device(g, names[i], 0, fleet_shape0(), 0);
            fleet_grid_level(g, grid, FLEET_LEVEL_DEVICE);
            fleet_out_edge(g, grid, E, "->");
            if (before.id) fleet_in_edge(g, grid, before, "->");
        } else {
            grid = fleet_call_device(g, names[i], 0, fleet_shape1(fleet_dim_of(256)), 0);
            fleet_out_edge(g, grid, E, "i->");
            if (before.id) fleet_in_edge(g, grid, before, "i->");
        }
        before = E;
    }
    fleet_event_external(g, before, FLEET_EXTERNAL_WAITS, 0, FLEET_SCOPE_DEVICE);
    return g;
}

static void eight_arrivals_per_event(test_run *t)
{
    fleet_graph *g = layer_graph(1);
    int schedule;
    for (schedule = 0; schedule < 2; schedule++) {
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_plan *plan;
        fleet_plan_stats stats;
        uint32_t workers, i, k;
        desc.topology = fleet_topology_preset(FLEET_MI300X);
        desc.schedule = (fleet_schedule)schedule;
        workers = schedule ? 37 : 38;
        CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
        check_plan(t, plan);
        CHECK_INT(plan->total_workers, 8 * workers);
        CHECK_INT(plan->n_tasks, 4);
        CHECK_INT(plan->n_descs, schedule ? 8 * 5 : 8 * 38 * 5);
        for (i = 0; i < 4; i++) {
            CHECK_INT(targets_of(plan)[i], 8);
            for (k = 0; k < 8; k++) {
                const fleeti_notify *notify = &notifies_of(plan)[i * 8 + k];
                CHECK_INT(notify->share, workers);
                CHECK_INT(notify->weight, 1);
            }
        }
        CHECK_INT(target(plan, "step", 0), schedule ? 8 : 8 * 38);
        stats = fleet_plan_get_stats(plan);
        CHECK_INT(stats.global_signals, 8 * 5);
        CHECK_INT(stats.releases, 8 * 5);
        CHECK_INT(stats.local_signals, 8 * workers * 5);
        CHECK_INT(stats.acquires, 8 * workers * 4); /* the sources acquire the previous step */
        CHECK_INT(stats.tasks[FLEET_LEVEL_DEVICE], 4);
        CHECK_INT(stats.descs, plan->n_descs);
        CHECK_INT(stats.shortest_queue, 5); /* four slices and the end of the step */
        CHECK_INT(stats.longest_queue, 5);
        fleet_plan_free(plan);
    }
    fleet_graph_destroy(g);
}

/* DYNAMIC: which tasks become ready by which events, which end the step, and how many a ring gets. */
static void ready_tables(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(fleet_dim_of(4)), 0);
    fleet_etensor F = fleet_event_tensor(g, "F", fleet_shape0(), 0);
    fleet_grid a = fleet_call_device(g, "a", 0, fleet_shape2(fleet_dim_of(4), fleet_dim_of(3)), 0);
    fleet_grid b = fleet_call_device(g, "b", 1, fleet_shape1(fleet_dim_of(4)), 0);
    fleet_grid c = fleet_call_device(g, "c", 2, fleet_shape0(), 0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    const fleeti_consumer *consumers;
    const uint32_t *first;
    fleet_plan *plan;
    uint32_t i;
    fleet_grid_level(g, a, FLEET_LEVEL_WAVE);
    fleet_grid_level(g, c, FLEET_LEVEL_DEVICE);
    fleet_out_edge(g, a, E, "ij->i");
    fleet_in_edge(g, b, E, "i->i");
    fleet_out_edge(g, b, F, "i->");
    fleet_in_edge(g, c, E, "->e");
    fleet_in_edge(g, c, F, "->");
    desc.topology = fleet_topology_make(2, 5);
    desc.schedule = FLEET_SCHEDULE_DYNAMIC;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(fleet_plan_check(plan, (size_t)plan->bytes), FLEET_OK);
    CHECK_INT(plan->n_descs, 12 + 4 + 2 * 5); /* a chiplet-task has a part for each worker */
    consumers = (const fleeti_consumer *)(const void *)((char *)plan + plan->consumers);
    first = (const uint32_t *)(const void *)((char *)plan + plan->first_consumers);
    for (i = 0; i < 4;
         i++) { /* E[i]: b(i) alone, and all parts of c, which waits for five events */
        uint32_t k, ones = 0;
        CHECK_INT(first[i + 1] - first[i], 1 + 10);
        for (k = first[i]; k < first[i + 1]; k++) {
            uint32_t need = consumers[k].need & FLEETI_CONSUMER_NEED;
            CHECK(need == 1 || need == 5);
            ones += need == 1;
        }
        CHECK_INT(ones, 1);
    }
    CHECK_INT(first[5] - first[4], 10); /* F: the parts of c */
    CHECK_INT(first[6] - first[5], 12); /* a step begins with a */
    CHECK_INT(target(plan, "E", 0), 3);
    CHECK_INT(target(plan, "step", 0), 2); /* and ends with c, once for each chiplet */
    for (i = 0; i < 2; i++) {
        CHECK_INT(plan->ring_entries[FLEETI_RINGS * i + FLEETI_RING_CHIPLET], 5);
        CHECK_INT(plan->ring_entries[FLEETI_RINGS * i + FLEETI_RING_CU], 2);
        CHECK_INT(plan->ring_entries[FLEETI_RINGS * i + FLEETI_RING_WAVE], 6);
    }
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* DYNAMIC: a task that the limit of its only out edge cuts off ends the step and notifies no element. */
static void out_edge_that_reaches_nothing(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(fleet_dim_of(2)), 0);
    fleet_grid p = fleet_call_device(g, "p", 0, fleet_shape1(fleet_dim_of(4)), 0);
    fleet_grid c = fleet_call_device(g, "c", 1, fleet_shape1(fleet_dim_of(2)), 0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_axis_map axis = fleet_axis(0, 1, 0, 2);
    fleet_plan *plan;
    int i;
    axis.limit = fleet_dim_of(3); /* p(3) is at the limit */
    fleet_out_edge_map(g, p, E, fleet_map1(axis));
    fleet_in_edge(g, c, E, "i->i");
    desc.topology = fleet_topology_make(2, 2);
    desc.schedule = FLEET_SCHEDULE_DYNAMIC;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(target(plan, "E", 0), 2);
    CHECK_INT(target(plan, "E", 1), 1);
    CHECK_INT(target(plan, "step", 0), 3); /* c(0), c(1) and p(3) */
    for (i = 0; i < 4; i++) {
        const fleet_task *task = find(plan, "p", i, 0);
        CHECK_INT(task->n_notifies, 1);
        CHECK_INT(notify_of(plan, task, 0)->counter,
                  i == 3
                      ? events_of(plan)[plan->step_event].counter
                      : events_of(plan)[0].counter + (uint32_t)i / 2 * events_of(plan)[0].stride);
    }
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* The same layer as CU-tasks: with one counter level each of the 256 arrivals is global. */
static void chiplet_unaware_layer(test_run *t)
{
    fleet_graph *g = layer_graph(0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    desc.counter_levels = 1;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    check_plan(t, plan);
    CHECK_INT(fleet_plan_get_stats(plan).global_signals, 4 * 256 + 304);
    CHECK_INT(target(plan, "o_done", 0), 256);
    fleet_plan_free(plan);
    desc.counter_levels = 2;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    check_plan(t, plan);
    CHECK_INT(fleet_plan_get_stats(plan).global_signals, 5 * 8);
    CHECK_INT(target(plan, "o_done", 0), 256);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* 31 workers on each of 8 chiplets of an MI350; fewer slices than chiplets leave some without work. */
static void slices_and_idle_chiplets(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim s = fleet_symbol(g, "s", 1, 64);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape0(), 1);
    fleet_grid d = fleet_call_device(g, "gemm", 0, fleet_shape0(), 0);
    fleet_grid c = fleet_call_device(g, "norm", 0, fleet_shape0(), 0);
    uint32_t slices;
    fleet_grid_level(g, d, FLEET_LEVEL_DEVICE);
    fleet_grid_slices(g, d, s);
    fleet_out_edge(g, d, E, "->");
    fleet_in_edge(g, c, E, "->");
    for (slices = 1; slices <= 20; slices++) {
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_plan *plan;
        uint32_t q, idle = 0;
        desc.topology = fleet_topology_preset(FLEET_MI350X);
        desc.schedule = FLEET_SCHEDULE_CHIPLET;
        fleet_bind_at_build(&desc, s, slices);
        CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
        check_plan(t, plan);
        CHECK_INT(plan->total_workers, 248);
        for (q = 0; q < plan->n_queues; q++) idle += !queues_of(plan)[q].count;
        CHECK_INT(idle, slices < 8 ? 8 - slices : 0);
        /* On a single chiplet arrivals are counted; otherwise there is one per slice. */
        CHECK_INT(target(plan, "E", 0), slices == 1 ? 31 : slices);
        CHECK_INT(events_of(plan)[0].scoped[FLEET_SCOPE_CHIPLET], slices == 1);
        fleet_plan_free(plan);
    }
    fleet_graph_destroy(g);
}

/* Wavefront-tasks in a row form a batch; a source after the batch need not wait for the step again. */
static void wavefront_batches(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_grid w = fleet_call_device(g, "silu", 0, fleet_shape1(fleet_dim_of(5)), 0);
    fleet_grid w2 = fleet_call_device(g, "rope", 0, fleet_shape1(fleet_dim_of(2)), 0);
    fleet_grid w3;
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    uint32_t i;
    fleet_call_device(g, "cu", 0, fleet_shape1(fleet_dim_of(2)), 0);
    w3 = fleet_call_device(g, "add", 0, fleet_shape1(fleet_dim_of(70000)), 0);
    fleet_grid_level(g, w, FLEET_LEVEL_WAVE);
    fleet_grid_level(g, w2, FLEET_LEVEL_WAVE);
    fleet_grid_level(g, w3, FLEET_LEVEL_WAVE);
    desc.topology = fleet_topology_make(1, 1);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(fleet_plan_check(plan, (size_t)plan->bytes), FLEET_OK);
    CHECK_INT(plan->has_waves, 1);
    for (i = 0; i < 7; i++) {
        CHECK_INT(tasks_of(plan)[i].batch, 7 - i);
        CHECK_INT(tasks_of(plan)[i].n_waits, 1); /* they run at once, so that each waits */
    }
    for (i = 7; i < plan->n_descs; i++) CHECK_INT(tasks_of(plan)[i].n_waits, 0);
    CHECK_INT(tasks_of(plan)[7].batch, 1);
    CHECK_INT(tasks_of(plan)[9].batch, 65535); /* a run too long is cut */
    CHECK_INT(tasks_of(plan)[9 + 65534].batch, 1);
    CHECK_INT(tasks_of(plan)[9 + 65535].batch, 70000 - 65535);
    CHECK_INT(tasks_of(plan)[9 + 69999].batch, 1);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* Tasks have row-major numbers. */
static void task_numbers(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_plan *plan;
    int32_t at[3];
    uint32_t d;
    fleet_call_device(g, "before", 0, fleet_shape1(fleet_dim_of(5)), 0);
    fleet_call_device(g, "cube", 0, fleet_shape3(fleet_dim_of(2), fleet_dim_of(3), fleet_dim_of(4)),
                      0);
    CHECK_INT(fleet_plan_build(g, NULL, &plan), FLEET_OK);
    CHECK_INT(plan->n_tasks, 5 + 24);
    for (at[0] = 0; at[0] < 2; at[0]++)
        for (at[1] = 0; at[1] < 3; at[1]++)
            for (at[2] = 0; at[2] < 4; at[2]++)
                CHECK_INT(fleet_plan_task(plan, "cube", at), 5 + (at[0] * 3 + at[1]) * 4 + at[2]);
    for (d = 0; d < plan->n_descs; d++) {
        const fleet_task *task = &tasks_of(plan)[d];
        if (task->tile != FLEETI_TILE_NONE && task->id >= 5)
            CHECK_INT(fleet_plan_task(plan, "cube", task->at), task->id);
    }
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* Contiguous runs on chiplets, workers in turn, and the turn goes on from grid to grid. */
static void default_placement(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    static const uint32_t want[6] = {2, 2, 1, 2, 2, 1};
    uint32_t q;
    fleet_call_device(g, "a", 0, fleet_shape1(fleet_dim_of(4)), 0); /* 0 1 | 2 3 */
    fleet_call_device(g, "b", 0, fleet_shape1(fleet_dim_of(6)), 0); /* 0 1 2 | 3 4 5 */
    desc.topology = fleet_topology_make(2, 3);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    for (q = 0; q < 6; q++) CHECK_INT(queues_of(plan)[q].count, want[q] + 1);
    CHECK_INT(find(plan, "b", 0, 0) - tasks_of(plan), queues_of(plan)[2].first);
    CHECK_INT(find(plan, "b", 4, 0) - tasks_of(plan), queues_of(plan)[3].first + 1);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* The tasks that a launch may leave out are dealt over the chiplets in turn, because they are the last ones: those of
   a grid with a symbol in its shape, or whose tasks a run-time tensor names. */
static void placement_in_turn(test_run *t)
{
    int schedule;
    for (schedule = FLEET_SCHEDULE_STATIC; schedule <= FLEET_SCHEDULE_DYNAMIC; schedule++) {
        fleet_graph *g = fleet_graph_create(NULL);
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_dim three = fleet_dim_of(3), six = fleet_dim_of(6);
        fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(three), 3);
        fleet_grid move = fleet_call_device(g, "move", 0, fleet_shape1(three), 0);
        fleet_grid group = fleet_call_device(g, "group", 0, fleet_shape0(), 0);
        fleet_grid named = fleet_call_device(g, "named", 0, fleet_shape1(six), 0);
        fleet_plan *plan;
        uint32_t q, d, i, last = 0, seen = 0;
        fleet_call_device(g, "guarded", 0, fleet_shape1(fleet_symbol(g, "n", 0, 6)), 0);
        fleet_call_device(g, "plain", 0, fleet_shape1(six), 0);
        fleet_out_edge_gather(
            g, move, E,
            fleet_runtime_tensor(g, "topk", fleet_shape2(three, fleet_dim_of(1)), move));
        fleet_event_counts(g, E, fleet_runtime_tensor(g, "counts", fleet_shape1(three), group));
        fleet_in_edge_range(
            g, named, E, fleet_runtime_tensor(g, "indptr", fleet_shape1(fleet_dim_of(4)), group));
        desc.topology = fleet_topology_make(2, 3);
        desc.schedule = (fleet_schedule)schedule;
        CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
        for (q = 0; q < plan->n_queues; q++) {
            const fleeti_queue *queue = &queues_of(plan)[q];
            const uint32_t chiplet = schedule == FLEET_SCHEDULE_DYNAMIC && q >= plan->total_workers
                                         ? q - plan->total_workers
                                         : chiplet_of_queue(plan, q);
            for (d = queue->first; d < queue->first + queue->count; d++) {
                const fleet_task *task = &tasks_of(plan)[d];
                if (task->tile == FLEETI_TILE_NONE) continue;
                i = (uint32_t)task->at[0];
                if (task->grid == 2 || task->grid == 3) CHECK_INT(chiplet, i % 2);
                if (task->grid == 4) CHECK_INT(chiplet, i / 3);
                seen++;
                /* A chiplet's workers get them in turn too: no worker has two of one grid. */
                if (task->grid >= 2 && schedule == FLEET_SCHEDULE_STATIC)
                    CHECK(d == queue->first || last != task->grid);
                last = task->grid;
            }
        }
        CHECK_INT(seen, 3 + 1 + 3 * 6);
        fleet_plan_free(plan);
        fleet_graph_destroy(g);
    }
}

static void placement_by_hand(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_grid a = fleet_call_device(g, "a", 0, fleet_shape2(fleet_dim_of(2), fleet_dim_of(3)), 0);
    fleet_grid c = fleet_call_device(g, "c", 0, fleet_shape1(fleet_dim_of(4)), 0);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape0(), 0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    fleet_grid_level(g, c, FLEET_LEVEL_CHIPLET);
    fleet_grid_place(g, a, fleet_map2(fleet_axis(0, 1, 0, 1), fleet_axis(1, -1, 2, 1)));
    fleet_grid_place(g, c, fleet_map1(fleet_axis(0, 0, 1, 1)));
    fleet_out_edge(g, a, E, "ij->");
    fleet_in_edge(g, c, E, "i->");
    desc.topology = fleet_topology_make(2, 3);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    check_plan(t, plan);
    CHECK_INT(find(plan, "a", 0, 0) - tasks_of(plan), queues_of(plan)[2].first);
    CHECK_INT(find(plan, "a", 1, 2) - tasks_of(plan), queues_of(plan)[3].first);
    CHECK_INT(queues_of(plan)[0].count, 2); /* its own and the step end */
    CHECK_INT(queues_of(plan)[5].count, 1 + 4 + 1);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* Producers and waiters on one worker: block; on one chiplet: chiplet; otherwise device; a given scope may be wider. */
static void scopes(test_run *t)
{
    int wide;
    for (wide = 0; wide < 2; wide++) {
        fleet_graph *g = fleet_graph_create(NULL);
        fleet_shape two = fleet_shape1(fleet_dim_of(2));
        fleet_etensor b = fleet_event_tensor(g, "b", two, 0),
                      s = fleet_event_tensor(g, "s", two, 0);
        fleet_grid p = fleet_call_device(g, "p", 0, two, 0),
                   q = fleet_call_device(g, "q", 0, two, 0);
        fleet_grid r = fleet_call_device(g, "r", 0, two, 0);
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_plan *plan;
        fleet_out_edge(g, p, b, "i->i");
        fleet_in_edge(g, q, b, "i->i");
        fleet_out_edge(g, q, s, "i->i");
        fleet_in_edge(g, r, s, "i->i");
        fleet_grid_place(g, p, fleet_map2(fleet_axis(0, 1, 0, 1), fleet_axis(0, 0, 0, 1)));
        fleet_grid_place(g, q, fleet_map2(fleet_axis(0, 1, 0, 1), fleet_axis(0, 0, 0, 1)));
        fleet_grid_place(g, r, fleet_map2(fleet_axis(0, 1, 0, 1), fleet_axis(0, 0, 1, 1)));
        if (wide) {
            fleet_event_scope(g, b, FLEET_SCOPE_CHIPLET);
            fleet_event_scope(g, s, FLEET_SCOPE_SYSTEM);
        }
        desc.topology = fleet_topology_make(2, 2);
        CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
        check_plan(t, plan);
        CHECK_INT(events_of(plan)[0].scoped[wide ? FLEET_SCOPE_CHIPLET : FLEET_SCOPE_BLOCK], 2);
        CHECK_INT(events_of(plan)[1].scoped[wide ? FLEET_SCOPE_SYSTEM : FLEET_SCOPE_CHIPLET], 2);
        CHECK_INT(find(plan, "q", 1, 0)->acquire, wide ? FLEET_SCOPE_CHIPLET : FLEET_SCOPE_BLOCK);
        CHECK_INT(find(plan, "r", 1, 0)->acquire, wide ? FLEET_SCOPE_SYSTEM : FLEET_SCOPE_CHIPLET);
        CHECK_INT(plan->system_words, wide ? 96 : 0);
        if (wide) {
            char text[32];
            CHECK_INT(events_of(plan)[1].counter, FLEETI_SYSTEM | 32);
            fleet_plan_counter_name(plan, FLEETI_SYSTEM | 64, text, sizeof text);
            CHECK_INT(strcmp(text, "s[1]"), 0);
        }
        fleet_plan_free(plan);
        fleet_graph_destroy(g);
    }
}

/* External notifies are part of the target. A task that waits only for them still waits for the step. */
static void outside(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor in = fleet_event_tensor(g, "in", fleet_shape0(), 2);
    fleet_etensor out = fleet_event_tensor(g, "out", fleet_shape0(), 3 + 1);
    fleet_grid a = fleet_call_device(g, "a", 0, fleet_shape1(fleet_dim_of(3)), 0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    const fleet_task *task;
    fleet_event_external(g, in, FLEET_EXTERNAL_NOTIFIES, 2, FLEET_SCOPE_SYSTEM);
    fleet_event_external(g, out, FLEET_EXTERNAL_NOTIFIES | FLEET_EXTERNAL_WAITS, 1,
                         FLEET_SCOPE_DEVICE);
    fleet_in_edge(g, a, in, "i->");
    fleet_out_edge(g, a, out, "i->");
    desc.topology = fleet_topology_make(1, 4);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    check_plan(t, plan);
    CHECK_INT(target(plan, "in", 0), 2);
    CHECK_INT(target(plan, "out", 0), 4);
    CHECK(events_of(plan)[0].counter & FLEETI_SYSTEM);
    CHECK_INT(events_of(plan)[1].scoped[FLEET_SCOPE_DEVICE],
              1); /* although one chiplet has it all */
    CHECK_INT(events_of(plan)[1].warnings, 0);
    task = find(plan, "a", 2, 0);
    CHECK_INT(task->n_waits, 2);
    CHECK_INT(wait_of(plan, task, 0)->counter, FLEETI_SYSTEM | 32);
    CHECK_INT(wait_of(plan, task, 1)->count, 1 | FLEETI_PREVIOUS);
    CHECK_INT(task->acquire, FLEET_SCOPE_SYSTEM);
    CHECK_INT(notify_of(plan, task, 0)->share, 3);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* Consecutive elements merge into one record, and equal lists of neighbours are written once. */
static void merged_and_shared_records(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim n = fleet_dim_of(64);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(n), 0);
    fleet_etensor F = fleet_event_tensor(g, "F", fleet_shape1(fleet_dim_of(2)), 0);
    fleet_grid p = fleet_call_device(g, "p", 0, fleet_shape1(n), 0);
    fleet_grid c = fleet_call_device(g, "c", 0, fleet_shape1(n), 0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    fleet_out_edge(g, p, E, "i->i");
    fleet_in_edge(g, c, E, "i->e");
    fleet_out_edge(g, c, F, "i->f");
    desc.topology = fleet_topology_make(1, 8);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    check_plan(t, plan);
    CHECK_INT(plan->n_waits, 2); /* the previous step, and all of E */
    CHECK_INT(wait_of(plan, find(plan, "c", 9, 0), 0)->count, 64);
    CHECK_INT(plan->n_notifies, 64 + 2 + 1 + 2); /* one per element, and c's list of two */
    CHECK_INT(find(plan, "c", 9, 0)->notifies, find(plan, "c", 10, 0)->notifies);
    CHECK_INT(events_of(plan)[fleet_plan_event(plan, "F")].warnings, FLEETI_WARN_NO_WAITER);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* Zero extents are legal: an element without producers is complete at once. */
static void zero_extents(test_run *t)
{
    fleet_dim n;
    fleet_graph *g = split_row_sum_graph(&n, 0);
    fleet_grid sum = fleet_call_device(g, "sum", 0, fleet_shape0(), 0);
    fleet_grid none = fleet_call_device(g, "none", 0, fleet_shape2(n, fleet_dim_of(1 << 30)), 0);
    fleet_etensor F = fleet_event_tensor(g, "F", fleet_shape1(fleet_dim_of(3)), 0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    fleet_out_edge(g, none, F, "ij->k");
    fleet_in_edge(g, sum, F, "->k");
    fleet_bind_at_build(&desc, n, 0);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    check_plan(t, plan);
    CHECK_INT(plan->n_tasks, 1);
    CHECK_INT(plan->n_descs, 2);
    CHECK_INT(target(plan, "F", 1), 0);
    CHECK_INT(tasks_of(plan)[0].n_waits, 1); /* a source: it waits for the previous step */
    CHECK(waits_of(plan)[0].count & FLEETI_PREVIOUS);
    CHECK_INT(events_of(plan)[plan->step_event].scoped[FLEET_SCOPE_BLOCK], 1);
    CHECK_INT(fleet_plan_task(plan, "none", NULL), -1);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
    g = fleet_graph_create(NULL);
    CHECK_INT(fleet_plan_build(g, NULL, &plan), FLEET_OK); /* not even a grid */
    check_plan(t, plan);
    CHECK_INT(plan->n_descs, 0);
    CHECK_INT(target(plan, "step", 0), 0);
    CHECK(fleet_plan_report(plan, NULL, 0) > 100);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* One graph, many bindings and topologies, in any order; equal inputs give equal bytes. */
static void many_plans_from_one_graph(test_run *t)
{
    fleet_dim n;
    fleet_graph *g = split_row_sum_graph(&n, 0);
    int64_t value;
    for (value = 1; value <= 64; value *= 2) {
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_plan *one, *two;
        fleet_bind_at_build(&desc, n, 7);
        fleet_bind_at_build(&desc, n, value); /* the later value counts */
        CHECK_INT(desc.n_bindings, 1);
        CHECK_INT(fleet_plan_build(g, &desc, &one), FLEET_OK);
        CHECK_INT(fleet_plan_build(g, &desc, &two), FLEET_OK);
        CHECK_INT(one->n_tasks, 5 * value);
        CHECK_INT(one->bytes, two->bytes);
        CHECK_INT(memcmp(one, two, (size_t)one->bytes), 0);
        check_plan(t, one);
        fleet_plan_free(one);
        fleet_plan_free(two);
    }
    fleet_graph_destroy(g);
}

/* fleet_after: all of one grid before all of another, whatever their shapes and names; once for each pair. */
static void grids_after_grids(test_run *t)
{
    static const fleet_schedule schedules[] = {FLEET_SCHEDULE_STATIC, FLEET_SCHEDULE_CHIPLET,
                                               FLEET_SCHEDULE_DYNAMIC};
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim n = fleet_symbol(g, "n", 0, 9);
    char name[64];
    fleet_grid a, b, c;
    uint32_t i, k;
    memset(name, 'n', sizeof name);
    name[63] = 0;
    a = fleet_call_device(g, "a", 0, fleet_shape_and_of(fleet_shape1(n), 3), 0);
    b = fleet_call_device(g, name, 0, fleet_shape1_of(5), 0);
    c = fleet_call_device(g, "c", 0, fleet_shape0(), 0);
    fleet_event_tensor(g, "a", fleet_shape0(), 0); /* the names of grids are no names of events */
    fleet_after(g, b, a);
    fleet_after(g, c, a);
    fleet_after(g, c, b);
    fleet_after(g, b, a);
    for (k = 0; k < 3; k++) {
        for (i = 0; i < 10; i++) {
            fleet_plan_desc desc = fleet_plan_desc_default();
            fleet_plan *plan;
            uint32_t d;
            desc.topology = fleet_topology_make(1, 2);
            desc.schedule = schedules[k];
            desc.counter_levels = 1;
            fleet_bind_at_build(&desc, n, i);
            CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
            CHECK_INT(fleet_plan_check(plan, (size_t)plan->bytes), FLEET_OK);
            CHECK_INT(plan->n_events, 5); /* one of its own, three pairs, the step event */
            CHECK_INT(targets_of(plan)[1], 3 * i);
            CHECK_INT(targets_of(plan)[2], 3 * i);
            CHECK_INT(targets_of(plan)[3], 5);
            CHECK_INT(fleet_plan_event(plan, "c after a"), 2);
            for (d = 0; d < plan->n_descs && k < 2; d++) {
                const fleet_task *task = &tasks_of(plan)[d];
                uint32_t w, waits = 0;
                if (task->tile == FLEETI_TILE_NONE) continue;
                for (w = task->waits; w < task->waits + task->n_waits; w++)
                    if (!(waits_of(plan)[w].count & FLEETI_PREVIOUS))
                        waits += waits_of(plan)[w].count;
                CHECK_INT(waits, task->grid == 0 ? 0u : i ? task->grid : task->grid - 1);
            }
            fleet_plan_free(plan);
        }
    }
    fleet_graph_destroy(g);
}

/* Fixed queues are in the order of keys; grids without one come after those before them, or first. */
static void queues_by_keys(test_run *t)
{
    static const char *const want =
        "load(0) load(1) b(0) a(0) c(0) b(1) a(1) c(1) b(2) a(2) c(2) store(0) store(1) ";
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_plan_desc desc = fleet_plan_desc_default();
    const fleet_key key = fleet_key_plus(fleet_key_of(-1), 0, 5);
    fleet_grid a, b, c;
    uint32_t k;
    fleet_call_device(g, "load", 0, fleet_shape1_of(2), 0);
    a = fleet_call_device(g, "a", 0, fleet_shape1_of(3), 0);
    b = fleet_call_device(g, "b", 0, fleet_shape1_of(3), 0);
    c = fleet_call_device(g, "c", 0, fleet_shape1_of(3), 0);
    fleet_call_device(g, "store", 0, fleet_shape1_of(2), 0);
    fleet_grid_order(g, a, key);
    fleet_grid_order(g, b, fleet_key_plus(fleet_key_of(-2), 0, 5));
    fleet_grid_order(g, c, key); /* as a: after it */
    for (k = 0; k < 2; k++) {
        fleet_plan *plan;
        fleet_task *tasks;
        char text[256], name[64];
        size_t bytes = 0;
        uint32_t d;
        desc.schedule = k ? FLEET_SCHEDULE_CHIPLET : FLEET_SCHEDULE_STATIC;
        desc.topology = fleet_topology_make(1, 1 + k);
        CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
        CHECK_INT(fleet_plan_check(plan, (size_t)plan->bytes), FLEET_OK);
        check_plan(t, plan);
        for (d = 0; d + 1 < plan->n_descs; d++) {
            fleet_plan_task_name(plan, tasks_of(plan)[d].id, name, sizeof name);
            bytes += (size_t)snprintf(text + bytes, sizeof text - bytes, "%s ", name);
        }
        CHECK_INT(strcmp(text, want), 0);
        /* A block whose queue is in another order is refused. */
        tasks = (fleet_task *)(uintptr_t)tasks_of(plan);
        tasks[2].id++, tasks[2].at[0]++, tasks[5].id--, tasks[5].at[0]--; /* b(1) before b(0) */
        plan->checksum = fleeti_checksum(plan);
        CHECK_INT(fleet_plan_check(plan, (size_t)plan->bytes), FLEET_ERROR_IMAGE_INDEX);
        fleet_plan_free(plan);
    }
    desc.schedule = FLEET_SCHEDULE_STATIC;
    desc.unfused = 1; /* its barriers are in the order of the grids */
    {
        fleet_plan *plan;
        CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
        CHECK_INT(plan->keyed, 0);
        fleet_plan_free(plan);
    }
    fleet_graph_destroy(g);
}

static void constant_extents(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim n = fleet_symbol(g, "n", 0, 9);
    const fleet_dim d[4] = {fleet_dim_of(7), fleet_dim_of(-2), fleet_dim_of((int64_t)1 << 40),
                            fleet_dim_of(0)};
    const fleet_shape want[5] = {fleet_shape1(d[0]), fleet_shape2(d[0], d[1]),
                                 fleet_shape3(d[0], d[1], d[2]),
                                 fleet_shape4(d[0], d[1], d[2], d[3]), fleet_shape2(n, d[0])};
    const fleet_shape got[5] = {
        fleet_shape1_of(7), fleet_shape2_of(7, -2), fleet_shape3_of(7, -2, (int64_t)1 << 40),
        fleet_shape4_of(7, -2, (int64_t)1 << 40, 0), fleet_shape_and_of(fleet_shape1(n), 7)};
    uint32_t i, k;
    for (i = 0; i < 5; i++) {
        CHECK_INT(got[i].rank, want[i].rank);
        for (k = 0; k < FLEET_MAX_RANK; k++) {
            CHECK_INT(got[i].extent[k].add, want[i].extent[k].add);
            CHECK_INT(got[i].extent[k].mul, want[i].extent[k].mul);
            CHECK_INT(got[i].extent[k].div, want[i].extent[k].div);
            CHECK_INT(got[i].extent[k].symbol, want[i].extent[k].symbol);
        }
    }
    fleet_graph_destroy(g);
}

static void presets(test_run *t)
{
    fleet_topology m = fleet_topology_preset(FLEET_MI350X), h = fleet_topology_preset(FLEET_H200);
    CHECK_INT(strcmp(m.name, "MI350X"), 0);
    CHECK_INT(m.chiplets, 8);
    CHECK_INT(m.units[7], 32);
    CHECK_INT(m.units[8], 0);
    CHECK_INT(m.wave_size, 64);
    CHECK_INT(m.private_l2, 1);
    CHECK_INT(h.chiplets, 1);
    CHECK_INT(h.units[0], 132);
    CHECK_INT(h.private_l2, 0);
#define CHECK_PRESET(chip, x, u, wave, lds, l2, llc, private)                                      \
    CHECK_TEXT(fleet_topology_preset(FLEET_##chip).name, #chip);                                   \
    CHECK_INT(fleet_topology_preset(FLEET_##chip).units[(x)-1], u);
    FLEET_TOPOLOGY_LIST(CHECK_PRESET)
    CHECK_INT(fleet_topology_preset(FLEET_CHIP_COUNT).chiplets, 0);
    CHECK_INT(fleet_topology_make(3, 5).units[2], 5);
#define CHECK_A_STATUS(code, text)                                                                 \
    CHECK_INT(strcmp(fleet_status_name(code), #code), 0);                                          \
    CHECK_INT(strcmp(fleet_status_text(code), text), 0);
    FLEET_STATUS_LIST(CHECK_A_STATUS)
    CHECK_TEXT(fleet_status_text(FLEET_STATUS_COUNT), "not a status");
}

/* AUTO: grids that gain from ready queues get them, and the report says why. */
static void chosen_schedules(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_etensor done = fleet_event_tensor(g, "done", fleet_shape0(), 0);
    fleet_etensor owed = fleet_event_tensor(g, "owed", fleet_shape0(), 0);
    fleet_grid even = fleet_call_device(g, "even", 0, fleet_shape1(fleet_dim_of(128)), 0);
    fleet_grid uneven = fleet_call_device(g, "uneven", 0, fleet_shape1(fleet_dim_of(256)), 0);
    fleet_grid bound = fleet_call_device(g, "bound", 0, fleet_shape1(fleet_dim_of(256)), 0);
    fleet_plan *plan;
    char text[8192];
    fleet_out_edge(g, even, done, "i->");
    fleet_in_edge(g, uneven, done, "i->");
    fleet_in_edge(g, bound, owed, "i->");
    fleet_event_external(g, owed, FLEET_EXTERNAL_NOTIFIES, 1, FLEET_SCOPE_SYSTEM);
    fleet_grid_cost(g, even, 1000, 0, 0);
    fleet_grid_cost(g, uneven, 100000, 150, 0);
    fleet_grid_cost(g, bound, 100000, 150, 0);
    desc.topology = fleet_topology_make(2, 8);
    desc.schedule = FLEET_SCHEDULE_AUTO;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(plan->schedule, FLEET_SCHEDULE_DYNAMIC);
    CHECK_INT(grids_of(plan)[0].schedule, FLEET_SCHEDULE_STATIC);
    CHECK_INT(grids_of(plan)[1].schedule, FLEET_SCHEDULE_DYNAMIC);
    CHECK_INT(grids_of(plan)[2].schedule, FLEET_SCHEDULE_STATIC); /* it waits for the outside */
    CHECK_INT(fleet_plan_check(plan, (size_t)plan->bytes), FLEET_OK);
    fleet_plan_report(plan, text, sizeof text);
    CHECK_TEXT(text, "AUTO makes grid even STATIC: its 128 tasks take about");
    CHECK_TEXT(text, "AUTO makes grid uneven DYNAMIC: its 256 tasks take about");
    CHECK_TEXT(text, "schedule: grid bound is STATIC");
    fleet_plan_free(plan);
    /* Queues that cost more than they gain. */
    desc.costs.static_task = desc.costs.static_hop = desc.costs.mixed_task = 1;
    desc.costs.mixed_hop = 1, desc.costs.dynamic_task = 1e7f, desc.costs.dynamic_hop = 1;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(plan->schedule, FLEET_SCHEDULE_STATIC);
    fleet_plan_report(plan, text, sizeof text);
    CHECK_TEXT(text, "AUTO makes grid uneven STATIC");
    fleet_plan_free(plan);
    /* Ready queues that gain for their grid, but less than they cost the others. */
    desc.costs.dynamic_task = 1, desc.costs.mixed_task = 1e7f;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(plan->schedule, FLEET_SCHEDULE_STATIC);
    fleet_plan_report(plan, text, sizeof text);
    CHECK_TEXT(text, "which does not pay for what ready queues cost the other grids");
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

static void report(test_run *t)
{
    fleet_dim n;
    fleet_graph *g = split_row_sum_graph(&n, 0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    char text[4096], part[64];
    size_t length;
    fleet_event_tensor(g, "unused", fleet_shape1(n), 0);
    fleet_bind_at_build(&desc, n, 16);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    length = fleet_plan_report(plan, text, sizeof text);
    CHECK_INT(length, strlen(text));
    CHECK_TEXT(text, "80 tasks in 2 grids, 32 event elements");
    CHECK_TEXT(text, "on MI300X: 8 chiplets, 304 workers (38 a chiplet), STATIC schedule");
    CHECK_TEXT(text, "16 x 4");
    CHECK_TEXT(text, "L2 write-back");
    CHECK_TEXT(text, "sources wait for the previous step");
    CHECK_TEXT(text, "event tensor unused: no task waits for it");
    CHECK_INT(fleet_plan_report(plan, part, sizeof part), length);
    CHECK_INT(strlen(part), sizeof part - 1);
    CHECK_INT(strncmp(text, part, sizeof part - 1), 0);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* Consumers may be added before their producers if the queues allow it. */
static void consumer_added_first(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_shape two = fleet_shape1(fleet_dim_of(2));
    fleet_etensor E = fleet_event_tensor(g, "E", two, 0);
    fleet_grid c = fleet_call_device(g, "consumer", 0, two, 0);
    fleet_grid p = fleet_call_device(g, "producer", 0, two, 0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    fleet_in_edge(g, c, E, "i->i");
    fleet_out_edge(g, p, E, "i->i");
    desc.topology = fleet_topology_make(1, 4); /* each task on a worker of its own */
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    check_plan(t, plan);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* From the same graph: a device-wide event between each grid and the next that has tasks. */
static void unfused(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim four = fleet_dim_of(4);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(four), 0);
    fleet_grid p = fleet_call_device(g, "p", 0, fleet_shape1(four), 0), f;
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    fleet_call_device(g, "none", 1, fleet_shape1(fleet_dim_of(0)), 0);
    f = fleet_call_device(g, "f", 2, fleet_shape1(four), 0);
    fleet_out_edge(g, p, E, "i->i");
    fleet_in_edge(g, f, E, "i->i");
    desc.topology = fleet_topology_make(2, 2);
    desc.unfused = 1;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    check_plan(t, plan);
    if (t->failed_here) return;
    CHECK_INT(fleet_plan_event(plan, "E"), 0);
    CHECK_INT(targets_of(plan)[0], 0); /* no edge uses it */
    CHECK_INT(fleet_plan_event(plan, "before f"), 3);
    CHECK_INT(events_of(plan)[3].scoped[FLEET_SCOPE_DEVICE], 1);
    CHECK_INT(targets_of(plan)[events_of(plan)[3].first_target], 4);
    fleet_plan_free(plan);
    desc.schedule = FLEET_SCHEDULE_DYNAMIC;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_ARGUMENT);
    desc.schedule = FLEET_SCHEDULE_STATIC;
    fleet_in_edge(g, p, E, "i->i");
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_ORDER);
    CHECK_TEXT(fleet_graph_error(g), "unfused: grid p waits for event tensor E, which grid p");
    fleet_graph_destroy(g);
}

/* Each bucket is a plan of its own, and no two have a counter in common. */
static void buckets(test_run *t)
{
    int schedule;
    for (schedule = 0; schedule < 3; schedule++) {
        fleet_graph *g = fleet_graph_create(NULL);
        fleet_dim n = fleet_symbol(g, "n", 1, 6), m = fleet_symbol(g, "m", 2, 4);
        fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(n), 0);
        fleet_grid p = fleet_call_device(g, "p", 0, fleet_shape2(n, m), 0);
        fleet_grid f = fleet_call_device(g, "f", 1, fleet_shape1(n), 0);
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_plan *plan;
        uint32_t i, end = FLEETI_LINE_WORDS;
        fleet_out_edge(g, p, E, "ij->i");
        fleet_in_edge(g, f, E, "i->i");
        desc.topology = fleet_topology_make(2, 3);
        desc.schedule = (fleet_schedule)schedule;
        CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
        CHECK_INT(fleet_plan_check(plan, (size_t)plan->bytes), FLEET_OK);
        CHECK_INT(plan->n_buckets, 8); /* n: 1, 2, 4, 6; m: 2, 4 */
        for (i = 0; i < plan->n_buckets; i++) {
            const fleet_plan *bucket = fleet_plan_bucket(plan, i);
            static const int32_t ns[4] = {1, 2, 4, 6};
            CHECK_INT(bucket->bound[0], ns[i / 2]);
            CHECK_INT(bucket->bound[1], 2 + i % 2 * 2);
            CHECK_INT(bucket->n_tasks, (uint32_t)ns[i / 2] * (3 + i % 2 * 2));
            CHECK_INT(events_of(bucket)[0].counter, end);
            CHECK(bucket->counter_words > end);
            end = bucket->counter_words;
        }
        if (schedule != FLEET_SCHEDULE_DYNAMIC) check_plan(t, plan);
        if (t->failed_here) return;
        fleet_plan_free(plan);
        fleet_graph_destroy(g);
    }
}

/* Buckets have counters of their own at system scope, too: each counts its own steps. */
/* Checks that a symbol's buckets, in a plan of which it is one of several symbols, are these and its max. */
static void check_values(test_run *t, const fleet_plan *plan, uint32_t symbol,
                         const int32_t *values, uint32_t count)
{
    uint32_t i, k, seen = 0;
    for (i = 0; i < plan->n_buckets; i++) {
        const int32_t value = fleet_plan_bucket(plan, i)->bound[symbol];
        for (k = 0; k < count && values[k] != value; k++) {
        }
        CHECK(k < count);
        seen |= 1u << k;
    }
    CHECK_INT(seen, (1u << count) - 1u);
}

/* The default buckets of several symbols are thinned out until a plan can have them. Given ones stay. */
static void buckets_of_several_symbols(test_run *t)
{
    static const int32_t batch_values[] = {1, 2, 4, 8, 16, 32, 64};
    static const int32_t seq_values[] = {1, 4, 16, 64, 256, 1024, 4096};
    static const int32_t sixteenth[] = {1, 16, 256, 4096}, even[] = {2, 8, 32, 100};
    static const int64_t given[] = {3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20};
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim batch = fleet_symbol(g, "batch", 1, 64), seq = fleet_symbol(g, "seq", 1, 4096);
    fleet_plan *plan;
    desc.topology = fleet_topology_make(1, 1);
    fleet_call_device(g, "x", 0, fleet_shape2(batch, fleet_dim_ceil_div(seq, 512)), 0);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(plan->n_buckets, 49);
    check_values(t, plan, 0, batch_values, 7);
    check_values(t, plan, 1, seq_values, 7);
    CHECK_INT(fleet_plan_check(plan, (size_t)plan->bytes), FLEET_OK);
    fleet_plan_free(plan);
    fleet_buckets_at_build(&desc, batch, given, 15); /* and 64 */
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(plan->n_buckets, 64);
    check_values(t, plan, 1, sixteenth, 4);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
    g = fleet_graph_create(NULL); /* as many as fit stay: 8 * 8 */
    batch = fleet_symbol(g, "batch", 1, 100), seq = fleet_symbol(g, "seq", 1, 128);
    fleet_call_device(g, "x", 0, fleet_shape2(batch, seq), 0);
    desc.n_buckets = 0;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(plan->n_buckets, 64);
    fleet_plan_free(plan);
    fleet_symbol(g, "third", 1,
                 2); /* twice as many: the longest list, which is the first one, is halved */
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(plan->n_buckets, 64);
    check_values(t, plan, 0, even, 4);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

static void buckets_of_system_scope(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim n = fleet_symbol(g, "n", 1, 4);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(n), 0);
    fleet_grid p = fleet_call_device(g, "p", 0, fleet_shape1(n), 0);
    fleet_grid f = fleet_call_device(g, "f", 1, fleet_shape1(n), 0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    uint32_t i, end = FLEETI_LINE_WORDS;
    fleet_out_edge(g, p, E, "i->i");
    fleet_in_edge(g, f, E, "i->i");
    fleet_event_scope(g, E, FLEET_SCOPE_SYSTEM);
    desc.topology = fleet_topology_make(2, 3);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(fleet_plan_check(plan, (size_t)plan->bytes), FLEET_OK);
    for (i = 0; i < plan->n_buckets; i++) {
        const fleet_plan *bucket = fleet_plan_bucket(plan, i);
        CHECK_INT(events_of(bucket)[0].counter, FLEETI_SYSTEM | end);
        CHECK(bucket->system_words > end);
        end = bucket->system_words;
    }
    CHECK_INT(plan->system_words, end);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

/* The points of spaces whose extents depend on axes, in their order: names and ids, both ways. */
static void triangular_spaces(test_run *t)
{
    const fleet_dim n = fleet_dim_of(5), none = fleet_dim_of(0);
    const fleet_dim up_to = fleet_dim_plus_axis(fleet_dim_of(1), 0, 1);
    const fleet_dim halves = fleet_dim_ceil_div(up_to, 2); /* 1 1 2 2 3 */
    const fleet_dim rest = fleet_dim_plus_axis(fleet_dim_of(4), 0, -1);
    const struct {
        fleet_shape shape;
        uint32_t points;
    } c[] = {{fleet_shape2(n, up_to), 15},
             {fleet_shape2(n, halves), 9},
             {fleet_shape2(n, rest), 10},
             {fleet_shape3(n, rest, fleet_dim_plus_axis(none, 1, 1)), 10},
             {fleet_shape3(n, fleet_dim_of(2), up_to), 30},
             {fleet_shape2(none, up_to), 0}};
    for (uint32_t i = 0; i < sizeof c / sizeof *c; i++) {
        fleet_graph *g = fleet_graph_create(NULL);
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_plan *plan;
        uint32_t id = 0, k;
        int32_t at[3] = {0, 0, 0};
        char want[64], got[64];
        fleet_call_device(g, "x", 0, c[i].shape, 0);
        desc.topology = fleet_topology_make(2, 2);
        CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
        CHECK_INT(fleet_plan_check(plan, (size_t)plan->bytes), FLEET_OK);
        CHECK_INT(plan->n_tasks, c[i].points);
        for (at[0] = 0; at[0] < 6; at[0]++)
            for (at[1] = 0; at[1] < 6; at[1]++)
                for (at[2] = 0; at[2] < (c[i].shape.rank > 2 ? 6 : 1); at[2]++) {
                    int inside = 1;
                    for (k = 0; k < c[i].shape.rank; k++) {
                        const fleet_dim *d = &c[i].shape.extent[k];
                        inside &= at[k] <
                                  ref_floor(d->add + d->per[0] * at[0] + d->per[1] * at[1], d->div);
                    }
                    CHECK_INT(fleet_plan_task(plan, "x", at), inside ? (int64_t)id : -1);
                    if (!inside) continue;
                    fleet_plan_task_name(plan, id++, got, sizeof got);
                    if (c[i].shape.rank == 2)
                        snprintf(want, sizeof want, "x(%d,%d)", at[0], at[1]);
                    else
                        snprintf(want, sizeof want, "x(%d,%d,%d)", at[0], at[1], at[2]);
                    CHECK_TEXT(got, want);
                }
        CHECK_INT(id, c[i].points);
        fleet_plan_free(plan);
        fleet_graph_destroy(g);
    }
}

/* Rows, columns and the diagonal of a triangle of events, by the letters of einsum strings. Task k
   notifies them. */
static void triangular_events(test_run *t)
{
    static const struct {
        const char *einsum;
        uint32_t target[6]; /* of (0,0) (1,0) (1,1) (2,0) (2,1) (2,2) */
    } c[] = {{"k->kk", {1, 0, 1, 0, 0, 1}},
             {"i->ij", {1, 1, 1, 1, 1, 1}},
             {"j->ij", {1, 1, 1, 1, 1, 1}},
             {"k->ij", {3, 3, 3, 3, 3, 3}}};
    const fleet_dim n = fleet_dim_of(3), up_to = fleet_dim_plus_axis(fleet_dim_of(1), 0, 1);
    for (uint32_t i = 0; i < sizeof c / sizeof *c; i++) {
        fleet_graph *g = fleet_graph_create(NULL);
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_plan *plan;
        const fleeti_event *event;
        char got[64];
        fleet_out_edge(g, fleet_call_device(g, "x", 0, fleet_shape1(n), 0),
                       fleet_event_tensor(g, "E", fleet_shape2(n, up_to), 0), c[i].einsum);
        desc.topology = fleet_topology_make(1, 1);
        CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
        event = &events_of(plan)[0];
        CHECK_INT(event->elements, 6);
        for (uint32_t e = 0; e < 6; e++) CHECK_INT(targets_of(plan)[e], c[i].target[e]);
        fleet_plan_counter_name(plan, event->counter + 4 * event->stride, got, sizeof got);
        CHECK_TEXT(got, "E[2,1]");
        fleet_plan_free(plan);
        fleet_graph_destroy(g);
    }
}

static void list(test_run *t)
{
    TEST(split_row_sum);
    TEST(one_counter_level);
    TEST(eight_arrivals_per_event);
    TEST(ready_tables);
    TEST(out_edge_that_reaches_nothing);
    TEST(chiplet_unaware_layer);
    TEST(slices_and_idle_chiplets);
    TEST(wavefront_batches);
    TEST(task_numbers);
    TEST(default_placement);
    TEST(placement_in_turn);
    TEST(placement_by_hand);
    TEST(scopes);
    TEST(outside);
    TEST(merged_and_shared_records);
    TEST(zero_extents);
    TEST(many_plans_from_one_graph);
    TEST(grids_after_grids);
    TEST(queues_by_keys);
    TEST(constant_extents);
    TEST(presets);
    TEST(report);
    TEST(chosen_schedules);
    TEST(consumer_added_first);
    TEST(buckets);
    TEST(buckets_of_several_symbols);
    TEST(buckets_of_system_scope);
    TEST(unfused);
    TEST(triangular_spaces);
    TEST(triangular_events);
}

TEST_MAIN(list)
