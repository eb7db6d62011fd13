/* Whole runs of graphs in every setting: exactly once, in order, on fresh data; steps, launches, epochs. */
// run: asan engine=both
// run: tsan
// hip: 3 runs
#include "model.h"

static void run_model(test_run *t, const setting *s, void *model_)
{
    model *m = (model *)model_;
    rig r;
    uint32_t steps = 3;
    if (!rig_open(t, &r, m, s)) return;
    CHECK_RUN(&r, steps);
    if (!rig_check(t, &r, steps)) return;
    CHECK_RUN(&r, 1);
    CHECK_RUN(&r, 2);
    if (!rig_check(t, &r, steps + 3)) return;
    rig_close(&r);
}

static void invariants_1_2_split_row_sum(test_run *t)
{
    model m;
    model_split_row_sum(&m, 9, 4);
    in_settings(t, 12, run_model, &m);
    model_end(&m);
}

static void invariants_1_2_every_level(test_run *t)
{
    model m;
    model_levels(&m, 5);
    in_settings(t, 12, run_model, &m);
    model_end(&m);
}

static void run_wrap(test_run *t, const setting *s, void *model_)
{
    model *m = (model *)model_;
    rig r;
    if (!rig_open_at(t, &r, m, s, 0xfffffffdu)) return;
    CHECK_RUN(&r, 2);
    CHECK_RUN(&r, 3);
    if (!rig_check(t, &r, 5)) return;
    rig_close(&r);
}

static void invariant_6_epochs_wrap(test_run *t)
{
    model m;
    model_levels(&m, 3);
    in_settings(t, 4, run_wrap, &m);
    model_end(&m);
}

/* ---- test 2 of papers.c: consumers overlap with producers of others, which spin ---- */

static void run_overlap(test_run *t, const setting *s, void *unused)
{
    model m;
    rig r;
    uint32_t k, n = 0;
    (void)unused;
    for (k = 0; k < s->topology.chiplets; k++)
        n += s->workers ? s->workers
                        : s->topology.units[k] - (s->schedule == FLEET_SCHEDULE_CHIPLET);
    /* One worker alone, or one chiplet whose scheduler may deal the consumer to the worker that spins. */
    if (n < 2 || (s->topology.chiplets == 1 && s->schedule == FLEET_SCHEDULE_CHIPLET)) return;
    model_begin(&m);
    model_add_grid(&m, FLEET_LEVEL_CU, 1, (int32_t)n, 1);
    model_add_grid(&m, FLEET_LEVEL_CU, 1, (int32_t)n, 1);
    model_add_event(&m, 1, (int32_t)n, 1);
    model_out(&m, 0, 0, "i->i");
    model_in(&m, 1, 0, "i->i");
    if (!rig_open(t, &r, &m, s)) return;
    /* The last producer spins until the first consumer runs. */
    r.w.odd_first = n;
    if (!rig_odd(t, &r, ODD_UNTIL, n - 1, ODD_EVERY, ODD_EVERY)) return;
    CHECK_RUN(&r, 3);
    if (!rig_check(t, &r, 3)) return;
    rig_close(&r);
    model_end(&m);
}

static void consumers_overlap_with_spinning_producers(test_run *t)
{
    in_settings(t, 12, run_overlap, NULL);
}

/* ---- wavefront-tasks ---- */

static void run_meeting(test_run *t, const setting *s_, void *unused)
{
    setting s = *s_;
    /* Under CHIPLET tasks become ready one by one, and each goes out as it is: together are those that are
       ready from the beginning. */
    uint32_t steps = s.schedule == FLEET_SCHEDULE_CHIPLET ? 1 : 3;
    model m;
    rig r;
    (void)unused;
    s.waves = 4;
    s.workers = 1;
    model_begin(&m);
    model_add_grid(&m, FLEET_LEVEL_WAVE, 1, 2, 1);
    model_add_grid(&m, FLEET_LEVEL_CU, 1, 3, 1);
    model_add_grid(&m, FLEET_LEVEL_WAVE, 1, 6, 1);
    model_add_event(&m, 0, 1, 1);
    model_add_event(&m, 0, 1, 1);
    model_out(&m, 0, 0, "i->");
    model_in(&m, 1, 0, "i->");
    model_out(&m, 1, 1, "i->");
    model_in(&m, 2, 1, "i->");
    model_graph(&m);
    fleet_grid_place(m.graph, m.grids[0].handle, fleet_map1(fleet_axis(0, 0, 0, 1)));
    if (!rig_open(t, &r, &m, &s)) return;
    r.w.odd_first = m.grids[0].first;
    r.w.odd_end = r.w.odd_first + 2;
    if (!rig_odd(t, &r, ODD_MEET, ODD_EVERY, ODD_EVERY, ODD_EVERY)) return;
    CHECK_RUN(&r, steps);
    if (!rig_check(t, &r, steps)) return;
    rig_close(&r);
    model_end(&m);
}

/* Two tasks of one worker, each of which waits until the other has begun. */
static void waves_of_a_worker_run_tasks_at_once(test_run *t)
{
    in_settings(t, 4, run_meeting, NULL);
}

static void run_waves(test_run *t, const setting *s_, void *model_)
{
    setting s = *s_;
    for (s.waves = 1; s.waves <= 4 && !t->failed_here; s.waves *= 2) run_model(t, &s, model_);
}

/* Batches longer than a worker has waves, between CU-tasks. */
static void batches_of_wavefront_tasks(test_run *t)
{
    model m;
    model_begin(&m);
    model_add_grid(&m, FLEET_LEVEL_CU, 1, 4, 1);
    model_add_grid(&m, FLEET_LEVEL_WAVE, 1, 70, 1);
    model_add_grid(&m, FLEET_LEVEL_CU, 1, 7, 1);
    model_add_grid(&m, FLEET_LEVEL_WAVE, 1, 5, 1);
    model_add_event(&m, 0, 1, 1);
    model_add_event(&m, 1, 70, 1);
    model_add_event(&m, 0, 1, 1);
    model_out(&m, 0, 0, "i->");
    model_in(&m, 1, 0, "i->");
    model_out(&m, 1, 1, "i->i");
    model_in(&m, 2, 1, "i->j");
    model_out(&m, 2, 2, "i->");
    model_in(&m, 3, 2, "i->");
    in_settings(t, 5, run_waves, &m);
    model_end(&m);
}

/* ---- odd graphs ---- */

static void slices_fewer_and_more_than_chiplets(test_run *t)
{
    uint32_t slices;
    for (slices = 1; slices < 20 && !t->failed_here; slices = 2 * slices + 1) {
        model m;
        model_two_stages(&m, slices);
        in_settings(t, 6, run_model, &m);
        model_end(&m);
    }
}

static void many_edges(test_run *t)
{
    model m;
    model_begin(&m);
    model_add_grid(&m, FLEET_LEVEL_CU, 2, 3, 23);
    model_add_grid(&m, FLEET_LEVEL_CU, 1, 2, 1);
    model_add_grid(&m, FLEET_LEVEL_CU, 2, 3, 23);
    model_add_event(&m, 2, 3, 23);
    model_add_event(&m, 2, 3, 23);
    model_out(&m, 0, 0, "ij->ij");
    model_in(&m, 1, 0, "i->jk"); /* 69 events */
    model_out(&m, 1, 1, "i->jk");
    model_in(&m, 2, 1, "ij->ij");
    in_settings(t, 3, run_model, &m);
    model_end(&m);
}

static void no_tasks(test_run *t)
{
    model m;
    model_begin(&m);
    model_add_grid(&m, FLEET_LEVEL_CU, 1, 0, 1);
    in_settings(t, 3, run_model, &m);
    model_end(&m);
}

/* More chiplets than tasks. */
static void one_task(test_run *t)
{
    static const fleet_level levels[3] = {FLEET_LEVEL_CU, FLEET_LEVEL_WAVE, FLEET_LEVEL_CHIPLET};
    uint32_t k;
    for (k = 0; k < 3 && !t->failed_here; k++) {
        model m;
        model_begin(&m);
        model_add_grid(&m, levels[k], 1, 1, 1);
        in_settings(t, 4, run_model, &m);
        model_end(&m);
    }
}

static void run_zero_steps(test_run *t, const setting *s, void *model_)
{
    rig r;
    if (!rig_open(t, &r, (model *)model_, s)) return;
    CHECK_RUN(&r, 0);
    if (!rig_check(t, &r, 0)) return;
    CHECK_RUN(&r, 1);
    CHECK_RUN(&r, 0);
    if (!rig_check(t, &r, 1)) return;
    rig_close(&r);
}

static void zero_steps(test_run *t)
{
    model m;
    model_levels(&m, 2);
    in_settings(t, 3, run_zero_steps, &m);
    model_end(&m);
}

/* Buffers let a step run ahead: one with two generations may, and is right. */
static void run_ahead(test_run *t, const setting *s, void *model_)
{
    rig r;
    if (!rig_open(t, &r, (model *)model_, s)) return;
    r.w.may_run_ahead = 1;
    if (!rig_odd(t, &r, ODD_NONE, 0, 0, 0)) return;
    CHECK_RUN(&r, 20);
    if (!rig_check(t, &r, 20)) return;
    rig_close(&r);
}

static void steps_that_may_run_ahead(test_run *t)
{
    model m;
    fleet_buffer x, y;
    model_split_row_sum(&m, 4, 2);
    model_graph(&m);
    x = fleet_declare_buffer(m.graph, "x");
    y = fleet_declare_buffer(m.graph, "y");
    fleet_grid_writes(m.graph, m.grids[0].handle, x);
    fleet_grid_reads(m.graph, m.grids[1].handle, x);
    fleet_grid_writes(m.graph, m.grids[1].handle, y);
    in_settings(t, 6, run_ahead, &m);
    model_end(&m);
}

/* ---- launches ---- */

static void run_queue(test_run *t, const setting *s, void *model_)
{
    rig r;
    uint32_t k;
    if (!rig_open(t, &r, (model *)model_, s)) return;
    for (k = 0; k < 6; k++) CHECK_STATUS(rig_launch(&r, 1 + k % 2), FLEET_OK);
    CHECK_STATUS(fleet_state_wait(&r.state, r.stream), FLEET_OK);
    if (!rig_check(t, &r, 9)) return;
    r.launch.ordinary = 1;
    for (k = 0; k < 3; k++) CHECK_STATUS(rig_launch(&r, 1), FLEET_OK);
    CHECK_STATUS(fleet_state_wait(&r.state, r.stream), FLEET_OK);
    if (!rig_check(t, &r, 12)) return;
    rig_close(&r);
}

static void invariant_10_launches_in_a_row(test_run *t)
{
    model m;
    model_levels(&m, 3);
    in_settings(t, 4, run_queue, &m);
    model_end(&m);
}

#if defined(FLEET_HIP)
#define API(name) hip##name
#elif defined(FLEET_CUDA)
#define API(name) cuda##name
#endif

#if !defined(FLEET_HOST)
static void run_graph(test_run *t, const setting *s, void *model_)
{
    rig r;
    uint32_t k;
#if defined(FLEET_HIP)
    hipGraph_t graph;
    hipGraphExec_t exec;
#else
    cudaGraph_t graph;
    cudaGraphExec_t exec;
#endif
    if (!rig_open(t, &r, (model *)model_, s)) return;
    CHECK(!API(StreamCreateWithFlags)(&r.stream, API(StreamNonBlocking)));
    r.launch.stream = r.stream;
    CHECK_RUN(&r, 1);
    CHECK(!API(StreamBeginCapture)(r.stream, API(StreamCaptureModeGlobal)));
    CHECK_STATUS(rig_launch(&r, 2), FLEET_OK);
    CHECK_STATUS(rig_launch(&r, 1), FLEET_OK);
    CHECK(!API(StreamEndCapture)(r.stream, &graph));
    CHECK(!API(GraphInstantiate)(&exec, graph, NULL, NULL, 0));
    for (k = 0; k < 3; k++) CHECK(!API(GraphLaunch)(exec, r.stream));
    CHECK_STATUS(fleet_state_wait(&r.state, r.stream), FLEET_OK);
    if (!rig_check(t, &r, 10)) return;
    CHECK_RUN(&r, 1);
    CHECK(!API(GraphLaunch)(exec, r.stream));
    CHECK_STATUS(fleet_state_wait(&r.state, r.stream), FLEET_OK);
    if (!rig_check(t, &r, 14)) return;
    (void)API(GraphExecDestroy)(exec);
    (void)API(GraphDestroy)(graph);
    (void)API(StreamDestroy)(r.stream);
    r.stream = NULL;
    rig_close(&r);
}

static void invariant_10_graph_replays(test_run *t)
{
    model m;
    model_levels(&m, 3);
    in_settings(t, 3, run_graph, &m);
    model_end(&m);
}
#endif

/* Memory of the caller's own; two states of one image, in turn and far apart. */
static void run_own_memory(test_run *t, const setting *s, void *model_)
{
    rig r, q;
    fleet_state state, kept;
    fleet_image image;
    fleet_state_desc d = setting_state_desc(s);
    void *plan_memory = NULL, *device = NULL, *pinned = NULL, *pinned_device = NULL;
    if (!rig_open(t, &r, (model *)model_, s)) return;
    CHECK_STATUS(fleet_device_alloc(&plan_memory, (size_t)r.plan->bytes), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&device, fleet_state_bytes(r.plan)), FLEET_OK);
    CHECK_STATUS(fleet_pinned_alloc(&pinned, &pinned_device, fleet_state_host_bytes(r.plan)),
                 FLEET_OK);
    CHECK_STATUS(fleet_image_init(&image, r.plan, plan_memory, r.stream), FLEET_OK);
    d.first_epoch = 7;
    CHECK_STATUS(fleet_state_init(&state, &image, &d, device, pinned, pinned_device, r.stream),
                 FLEET_OK);
    CHECK_RUN(&r, 2);
    CHECK_INT(fleet_state_epoch(&state), 7);
    /* The same image and data, another state: its steps follow its own epoch. */
    q = r;
    kept = r.state;
    q.state = state;
    q.w.first_epoch = 7;
    CHECK_STATUS(rig_clear(&q), FLEET_OK);
    CHECK_STATUS(rig_world(&q), FLEET_OK);
    CHECK_RUN(&q, 3);
    if (!rig_check(t, &q, 3)) return;
    CHECK_INT(fleet_state_epoch(&q.state), 10);
    CHECK_INT(fleet_state_epoch(&r.state), 2);
    fleet_state_abort(&q.state);
    CHECK_STATUS(rig_run(&q, 1), FLEET_ERROR_ABORTED);
    r.w.first_epoch = 2;
    CHECK_STATUS(rig_clear(&r), FLEET_OK);
    CHECK_STATUS(rig_world(&r), FLEET_OK);
    CHECK_RUN(&r, 2);
    if (!rig_check(t, &r, 2)) return;
    r.state = kept;
    fleet_state_free(&state); /* not its memory */
    fleet_image_free(&image);
    fleet_device_free(plan_memory);
    fleet_device_free(device);
    fleet_pinned_free(pinned);
    rig_close(&r);
}

static void invariant_12_memory_is_the_callers(test_run *t)
{
    model m;
    model_levels(&m, 2);
    in_settings(t, 3, run_own_memory, &m);
    model_end(&m);
}

static void all(test_run *t)
{
    TEST(invariants_1_2_split_row_sum);
    TEST(invariants_1_2_every_level);
    TEST(invariant_6_epochs_wrap);
    TEST(consumers_overlap_with_spinning_producers);
    TEST(waves_of_a_worker_run_tasks_at_once);
    TEST(batches_of_wavefront_tasks);
    TEST(slices_fewer_and_more_than_chiplets);
    TEST(many_edges);
    TEST(no_tasks);
    TEST(one_task);
    TEST(zero_steps);
    TEST(steps_that_may_run_ahead);
    TEST(invariant_10_launches_in_a_row);
#if !defined(FLEET_HOST)
    TEST(invariant_10_graph_replays);
#endif
    TEST(invariant_12_memory_is_the_callers);
}
TEST_MAIN(all)
