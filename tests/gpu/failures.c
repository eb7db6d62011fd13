/* Runs that end early: tiles that fail or hang, events that never come, aborts, launches refused; and how a
   state comes back from each. */
// run: asan engine=both
// run: tsan
// hip: 3 runs
#include "model.h"

/* g0 -> E0 -> g1, which also waits for E1, to which one external arrival is missing. */
static void model_owed(model *m, int32_t n, fleet_level level)
{
    model_begin(m);
    model_add_grid(m, FLEET_LEVEL_CU, 1, n, 1);
    model_add_grid(m, level, 1, n, 1);
    model_add_event(m, 1, n, 1);
    model_add_event(m, 0, 1, 1);
    model_out(m, 0, 0, "i->i");
    model_in(m, 1, 0, "i->i");
    model_in(m, 1, 1, "i->");
    model_graph(m);
    fleet_event_external(m->graph, m->events[1].handle, FLEET_EXTERNAL_NOTIFIES, 1,
                         FLEET_SCOPE_DEVICE);
}

/* A limit of one wait that a busy machine does not reach by itself. Time on a simulator is instructions. */
#if defined(FLEET_HIP)
#define SHORT_NS 200000u
#define SHAPES 1
#elif defined(FLEET_CUDA)
#define SHORT_NS 30000000u
#define SHAPES 3
#else
#define SHORT_NS 400000000u
#define SHAPES 2
#endif

/* ---- tiles that fail ---- */

static void fail_once(test_run *t, const setting *s, model *m, oddity odd, uint32_t grid,
                      uint32_t task, uint32_t part)
{
    rig r;
    fleet_failure f;
    char text[4096], name[64];
    if (!rig_open(t, &r, m, s)) return;
    task += m->grids[grid].first;
    if (!rig_odd(t, &r, odd, task, part, 1)) return;
    CHECK_STATUS(rig_run(&r, 4), FLEET_ERROR_TILE);
    CHECK(fleet_state_failure(&r.state, &f));
    CHECK_INT(f.status, FLEET_ERROR_TILE);
    CHECK_INT(f.task, task);
    CHECK_INT(f.tile_status, ODD_STATUS);
    CHECK_INT(f.epoch, 2);
    CHECK(f.worker < r.plan->total_workers);
    fleet_state_report(&r.state, text, sizeof text);
    fleet_plan_task_name(r.plan, task, name, sizeof name);
    CHECK_TEXT(text, name);
    CHECK_TEXT(text, "FLEET_ERROR_UNSUPPORTED, as fleet_finish does");
    CHECK(!strstr(text, "refused"));
    if (!rig_check_stopped(t, &r, task, 1)) return;
    /* Poisoned: nothing runs any more, until it recovers. */
    CHECK_STATUS(rig_run(&r, 1), FLEET_ERROR_TILE);
    if (!rig_check_stopped(t, &r, task, 1)) return;
    if (!rig_recover(t, &r)) return;
    CHECK(!fleet_state_failure(&r.state, &f));
    CHECK_RUN(&r, 2);
    if (!rig_check(t, &r, 2)) return;
    rig_close(&r);
}

static void fail_levels(test_run *t, const setting *s, void *model_)
{
    model *m = (model *)model_;
    uint32_t grid;
    for (grid = 0; grid < m->n_grids && !t->failed_here; grid++) {
        fail_once(t, s, m, ODD_FAIL_ONE, grid, 0, ODD_EVERY);
        if (!t->failed_here && m->grids[grid].level >= FLEET_LEVEL_CHIPLET)
            fail_once(t, s, m, ODD_FAIL_ONE, grid, m->grids[grid].count - 1, 0);
        if (!t->failed_here)
            fail_once(t, s, m, ODD_FAIL_ALL, grid, m->grids[grid].count - 1, ODD_EVERY);
        if (t->failed_here) printf("    grid %u\n", grid);
    }
}

static void invariant_11_a_failing_tile_poisons(test_run *t)
{
    model m;
    model_levels(&m, 3);
    in_settings(t, SHAPES, fail_levels, &m);
    model_end(&m);
}

/* A wavefront-task that is the last of its step: the next step must not begin. */
static void no_step_after_a_wave_that_failed(test_run *t)
{
    model m;
    model_begin(&m);
    model_add_grid(&m, FLEET_LEVEL_CU, 1, 4, 1);
    model_add_grid(&m, FLEET_LEVEL_WAVE, 1, 9, 1);
    model_add_event(&m, 0, 1, 1);
    model_out(&m, 0, 0, "i->");
    model_in(&m, 1, 0, "i->");
    in_settings(t, 4 * SHAPES, fail_levels, &m);
    model_end(&m);
}

/* ---- events that never come ---- */

static void time_out(test_run *t, const setting *s, void *level)
{
    model owed, *m = &owed;
    fleet_status expected =
        s->engine == FLEET_ENGINE_DETERMINISTIC ? FLEET_ERROR_DEADLOCK : FLEET_ERROR_TIMEOUT;
    rig r;
    fleet_failure f;
    char text[8192], name[64];
    model_owed(m, 3, *(const fleet_level *)level);
    if (!rig_open(t, &r, m, s)) return;
    r.launch.limit_ns = SHORT_NS;
    CHECK_STATUS(rig_run(&r, 2), expected);
    CHECK(fleet_state_failure(&r.state, &f));
    CHECK_INT(f.status, expected);
    fleet_plan_counter_name(r.plan, f.counter, name, sizeof name);
    CHECK(f.worker < r.plan->total_workers + r.plan->chiplets);
    if (f.counter)
        CHECK_INT(f.worker >= r.plan->total_workers, s->schedule == FLEET_SCHEDULE_CHIPLET);
    if (f.counter &&
        strcmp(name, "step") != 0) { /* else a task that waits for those that wait for E1 */
        CHECK_TEXT(name, "E1");
        CHECK(f.task >= m->grids[1].first && f.task < m->grids[1].first + m->grids[1].count);
        CHECK_INT(f.seen, 0);
        CHECK_INT(f.expected, 1);
        CHECK_INT(f.epoch, 1);
    }
    fleet_state_report(&r.state, text, sizeof text);
    if (f.counter) CHECK_TEXT(text, "waits for E1, which has 0 of 1 arrivals");
    CHECK_TEXT(text, fleet_status_name(expected));
    fleet_plan_task_name(r.plan, f.task, name, sizeof name);
    CHECK_TEXT(text, name);
    CHECK_INT(rig_runs(&r, 1), 0);
    if (!rig_recover(t, &r)) return;
    rig_close(&r);
    model_end(m);
}

static void invariant_9_every_wait_is_bounded(test_run *t)
{
    fleet_level levels[3] = {FLEET_LEVEL_CU, FLEET_LEVEL_WAVE, FLEET_LEVEL_CHIPLET};
    uint32_t k;
    for (k = 0; k < 3 && !t->failed_here; k++) in_settings(t, SHAPES, time_out, &levels[k]);
}

/* ---- aborts ---- */

static void abort_waiting(test_run *t, const setting *s, void *unused)
{
    model m;
    rig r;
    (void)unused;
    model_owed(&m, 3, FLEET_LEVEL_CU);
    if (!rig_open(t, &r, &m, s)) return;
    if (!rig_odd(t, &r, ODD_ABORT, 0, ODD_EVERY, 0)) return;
    CHECK_STATUS(rig_run(&r, 2), FLEET_ERROR_ABORTED);
    CHECK_INT(rig_runs(&r, 1), 0);
    if (!rig_recover(t, &r)) return;
    rig_close(&r);
    model_end(&m);
}

static void abort_running(test_run *t, const setting *s, void *model_)
{
    rig r;
    uint32_t done = 0;
    if (!rig_open(t, &r, (model *)model_, s)) return;
    rig_start(&r, 1000000);
    rest();
    fleet_state_abort(&r.state);
    CHECK_STATUS(rig_join(&r), FLEET_ERROR_ABORTED);
    done = rig_runs(&r, 0);
    CHECK_STATUS(rig_run(&r, 1), FLEET_ERROR_ABORTED);
    CHECK_INT(rig_runs(&r, 0), done);
    if (!rig_recover(t, &r)) return;
    CHECK_RUN(&r, 3);
    if (!rig_check(t, &r, 3)) return;
    /* Before the launch. */
    fleet_state_abort(&r.state);
    CHECK_STATUS(rig_run(&r, 1), FLEET_ERROR_ABORTED);
    if (!rig_recover(t, &r)) return;
    CHECK_RUN(&r, 1);
    if (!rig_check(t, &r, 1)) return;
    rig_close(&r);
}

static void invariant_9_abort_while_all_wait(test_run *t)
{
    in_settings(t, SHAPES, abort_waiting, NULL);
}

static void invariant_9_abort_in_the_middle(test_run *t)
{
    model m;
    model_levels(&m, 3);
    in_settings(t, SHAPES, abort_running, &m);
    model_end(&m);
}

/* A worker beside ready queues whose own queue always has something to run never comes to wait. */
static void abort_mixed(test_run *t, const setting *s_, void *unused)
{
    static const uint32_t alone[2] = {1, 0};
    const uint32_t steps = 3000000; /* many more than run before the abort */
    setting s = *s_;
    model m;
    rig r;
    fleet_grid none;
    uint64_t since;
    (void)unused, (void)alone;
    if (s.schedule != FLEET_SCHEDULE_STATIC) return;
#if !defined(FLEET_HIP)
    /* Two would wait for each other's steps. HIP has the hardware's chiplets. */
    s.topology = topology_of(alone, s.schedule);
#endif
    model_begin(&m);
    model_add_grid(&m, FLEET_LEVEL_CU, 1, 3, 1);
    model_graph(&m);
    none = fleet_call_device(m.graph, "none", 0, fleet_shape1(fleet_dim_of(0)), 0);
    fleet_grid_schedule(m.graph, none, FLEET_SCHEDULE_DYNAMIC);
    if (!rig_open(t, &r, &m, &s)) return;
    CHECK_INT(r.plan->schedule, FLEET_SCHEDULE_DYNAMIC);
    rig_start(&r, steps);
    since = now_ns();
    while (now_ns() - since < 100000000) rest(); /* until it is well inside */
    fleet_state_abort(&r.state);
    CHECK_STATUS(rig_join(&r), FLEET_ERROR_ABORTED);
    CHECK(rig_runs(&r, 0) < 3 * steps);
    if (!rig_recover(t, &r)) return;
    CHECK_RUN(&r, 3);
    if (!rig_check(t, &r, 3)) return;
    rig_close(&r);
    model_end(&m);
}

static void invariant_9_abort_of_a_mixed_plan(test_run *t)
{
    in_settings(t, 1, abort_mixed, NULL);
}

/* ---- tiles that hang ---- */

#if defined(FLEET_HOST)
#define HOST_LOAD(at) __atomic_load_n(at, __ATOMIC_ACQUIRE)
#define HOST_STORE(at, value) __atomic_store_n(at, value, __ATOMIC_RELEASE)
#else
#define HOST_LOAD(at) (*(volatile uint32_t *)(at))
#define HOST_STORE(at, value) (*(volatile uint32_t *)(at) = (value))
#endif

/* Waits until the tile says that it hangs; 0 after 30 s, and the launch is over. */
static int hangs(rig *r)
{
    uint64_t since = now_ns();
    while (!HOST_LOAD(r->flags))
        if (now_ns() - since > 30000000000u) {
            HOST_STORE(r->flags + 1, 1);
            (void)rig_join(r);
            return 0;
        }
    return 1;
}

static void hang(test_run *t, const setting *s, void *model_)
{
    model *m = (model *)model_;
    rig r;
    fleet_failure f;
    char text[8192], still[96];
    uint64_t since;
    uint32_t task = m->grids[1].first;
    if (s->engine == FLEET_ENGINE_DETERMINISTIC) return; /* no other worker can run: a deadlock */
    if (!rig_open(t, &r, m, s)) return;
    if (!rig_odd(t, &r, ODD_HANG, task, ODD_EVERY, 1)) return;
    fleet_plan_task_name(r.plan, task, text, sizeof text);
    snprintf(still, sizeof still, "still runs %.60s", text);
    /* Within the limit the report names it, and the run goes on when it comes back. */
    rig_start(&r, 3);
    CHECK(hangs(&r));
    CHECK_STATUS(fleet_state_status(&r.state), FLEET_OK);
    /* What the worker has in hand may reach the host after the tile's own word that it hangs. */
    since = now_ns();
    do {
        fleet_state_report(&r.state, text, sizeof text);
    } while (!strstr(text, still) && now_ns() - since < 5000000000u);
    HOST_STORE(r.flags + 1, 1);
    CHECK_STATUS(rig_join(&r), FLEET_OK);
    CHECK_TEXT(text, still);
    if (!rig_check(t, &r, 3)) return;
    fleet_state_report(&r.state, text, sizeof text);
    CHECK(!strstr(text, "still runs"));
    /* Past the limit the others give up, and the report tells why while it still hangs. For one worker
       alone no other waits. */
    if (r.state.blocks == 1) {
        rig_close(&r);
        return;
    }
    if (!rig_recover(t, &r) || !rig_odd(t, &r, ODD_HANG, task, ODD_EVERY, 1)) return;
    r.launch.limit_ns = SHORT_NS;
    rig_start(&r, 3);
    CHECK(hangs(&r));
    since = now_ns();
    while (fleet_state_status(&r.state) == FLEET_OK && now_ns() - since < 30000000000u) rest();
    fleet_state_report(&r.state, text, sizeof text);
    HOST_STORE(r.flags + 1, 1);
    CHECK_STATUS(rig_join(&r), FLEET_ERROR_TIMEOUT);
    /* An idle worker may lose patience before its scheduler does, when the machine is busy. */
    CHECK(strstr(text, "waits for ") || strstr(text, "a wait passed its deadline"));
    CHECK_TEXT(text, still);
    CHECK(fleet_state_failure(&r.state, &f));
    CHECK(f.task != task);
    CHECK_INT(rig_errors(&r), 0);
    CHECK_INT(fleet_state_epoch(&r.state), 0);
    if (!rig_recover(t, &r)) return;
    CHECK_RUN(&r, 2);
    if (!rig_check(t, &r, 2)) return;
    rig_close(&r);
}

static void invariant_9_the_report_of_a_tile_that_hangs(test_run *t)
{
    model m;
    model_split_row_sum(&m, 4, 3);
    /* A second stage that waits for the one that hangs. */
    model_add_grid(&m, FLEET_LEVEL_CU, 1, 5, 1);
    model_add_event(&m, 0, 1, 1);
    model_out(&m, 1, 1, "i->");
    model_in(&m, 2, 1, "i->");
    in_settings(t, SHAPES, hang, &m);
    model_end(&m);
}

/* ---- launches refused ---- */

#if defined(FLEET_HIP)
#define API(name) hip##name
#elif defined(FLEET_CUDA)
#define API(name) cuda##name
#endif

static void second_launch(test_run *t, const setting *s, void *model_)
{
    model *m = (model *)model_;
    rig r;
    fleet_launch_desc d;
    fleet_status launched;
    uint32_t number;
    if (s->engine == FLEET_ENGINE_DETERMINISTIC) return; /* a launch ends before the next begins */
    if (!rig_open(t, &r, m, s)) return;
#if !defined(FLEET_HOST)
    CHECK(!API(StreamCreateWithFlags)(&r.stream, API(StreamNonBlocking)));
    r.launch.stream = r.stream;
#endif
    if (!rig_odd(t, &r, ODD_HANG, 0, ODD_EVERY, 0)) return;
    rig_start(&r, 2);
    CHECK(hangs(&r));
    d = r.launch;
    d.host.stats = NULL, d.number = &number;
    d.ordinary = 1; /* under ROCm a cooperative one would wait for the other */
#if !defined(FLEET_HOST)
    CHECK(!API(StreamCreateWithFlags)(&d.stream, API(StreamNonBlocking)));
#endif
    launched = fleet_launch(&r.state, &d, FLEET_KERNEL_OF(world_kernel), r.device);
    if (!launched) launched = fleet_state_wait(&r.state, d.stream);
    HOST_STORE(r.flags + 1, 1);
    CHECK_STATUS(rig_join(&r), FLEET_OK);
    CHECK_STATUS(launched, FLEET_ERROR_BUSY);
    CHECK(number != r.number);
    if (!rig_check(t, &r, 2)) return;
    CHECK_RUN(&r, 1);
#if !defined(FLEET_HOST)
    (void)API(StreamDestroy)(d.stream);
    (void)API(StreamDestroy)(r.stream);
#endif
    rig_close(&r);
}

static void a_second_launch_at_once_is_refused(test_run *t)
{
    model m;
    model_split_row_sum(&m, 3, 2);
    in_settings(t, SHAPES, second_launch, &m);
    model_end(&m);
}

#if !defined(FLEET_HOST)
/* Two executables of one captured graph: their launches have the same arguments. tests/host/claims.c has more. */
static void second_replay(test_run *t, const setting *s, void *model_)
{
    rig r;
    uint32_t i, before;
    fleet_stream stream[2];
    API(Graph_t) graph;
    API(GraphExec_t) exec[2];
    if (!rig_open(t, &r, (model *)model_, s)) return;
    for (i = 0; i < 2; i++) CHECK(!API(StreamCreateWithFlags)(&stream[i], API(StreamNonBlocking)));
    r.stream = r.launch.stream = stream[0];
    CHECK(!API(StreamBeginCapture)(r.stream, API(StreamCaptureModeGlobal)));
    CHECK_STATUS(rig_launch(&r, 2), FLEET_OK);
    CHECK(!API(StreamEndCapture)(r.stream, &graph));
    for (i = 0; i < 2; i++) CHECK(!API(GraphInstantiate)(&exec[i], graph, NULL, NULL, 0));
    if (!rig_odd(t, &r, ODD_HANG, 0, ODD_EVERY, 0)) return;
    CHECK(!API(GraphLaunch)(exec[0], stream[0]));
    CHECK(hangs(&r));
    for (i = 0; i < 3; i++) {
        CHECK(!API(GraphLaunch)(exec[1], stream[1]));
        CHECK_STATUS(fleet_state_wait(&r.state, stream[1]), FLEET_ERROR_BUSY);
        CHECK_INT(fleet_state_epoch(&r.state), 0);
    }
    HOST_STORE(r.flags + 1, 1);
    CHECK_STATUS(fleet_state_wait(&r.state, stream[0]), FLEET_OK);
    if (!rig_check(t, &r, 2)) return;
    /* One after the other both run; at once at most one of them does. */
    for (i = 0; i < 2; i++) {
        CHECK(!API(GraphLaunch)(exec[i], stream[i]));
        CHECK_STATUS(fleet_state_wait(&r.state, stream[i]), FLEET_OK);
    }
    if (!rig_check(t, &r, 6)) return;
    before = fleet_state_epoch(&r.state);
    for (i = 0; i < 2; i++) CHECK(!API(GraphLaunch)(exec[i], stream[i]));
    for (i = 0; i < 2; i++) CHECK_STATUS(fleet_stream_wait(stream[i]), FLEET_OK);
    i = (fleet_state_epoch(&r.state) - before) / 2; /* of them ran */
    CHECK_STATUS(fleet_state_status(&r.state), i == 2 ? FLEET_OK : FLEET_ERROR_BUSY);
    if (!rig_check(t, &r, 6 + 2 * i)) return;
    for (i = 0; i < 2; i++) {
        (void)API(GraphExecDestroy)(exec[i]);
        (void)API(StreamDestroy)(stream[i]);
    }
    (void)API(GraphDestroy)(graph);
    r.stream = NULL;
    rig_close(&r);
}

static void a_second_replay_at_once_is_refused(test_run *t)
{
    model m;
    model_split_row_sum(&m, 3, 2);
    in_settings(t, 3, second_replay, &m);
    model_end(&m);
}
#endif

static void too_few(test_run *t, const setting *s, void *model_)
{
    rig r;
    fleet_plan header;
    char text[4096];
    uint32_t chiplet = s->topology.chiplets - 1;
    if (!rig_open(t, &r, (model *)model_, s)) return;
    header = *r.plan;
    header.workers[chiplet] += 1000;
    r.launch.ordinary = 1;
    CHECK_STATUS(fleet_to_device(r.image.device, &header, sizeof header, r.stream), FLEET_OK);
    CHECK_STATUS(rig_run(&r, 1), FLEET_ERROR_RESIDENCY);
    fleet_state_report(&r.state, text, sizeof text);
    CHECK_TEXT(text, "the plan needs 10");
    if (!rig_check(t, &r, 0)) return;
    CHECK_STATUS(fleet_state_status(&r.state), FLEET_OK);
    CHECK_STATUS(fleet_to_device(r.image.device, r.plan, sizeof header, r.stream), FLEET_OK);
    CHECK_RUN(&r, 2);
    if (!rig_check(t, &r, 2)) return;
    rig_close(&r);
}

static void invariant_8_residency(test_run *t)
{
    model m;
    model_split_row_sum(&m, 3, 2);
    in_settings(t, SHAPES, too_few, &m);
    model_end(&m);
}

/* A failure, launches after it, the recovery and a launch after that, all queued at once. */
static void queue(test_run *t, const setting *s, void *model_)
{
    rig r;
    if (!rig_open(t, &r, (model *)model_, s)) return;
    if (!rig_odd(t, &r, ODD_FAIL_ALL, 0, ODD_EVERY, 1)) return;
    CHECK_STATUS(rig_launch(&r, 2), FLEET_OK);
    CHECK_STATUS(rig_launch(&r, 1), FLEET_OK);
    CHECK_STATUS(rig_launch(&r, 1), FLEET_OK);
    CHECK_STATUS(fleet_state_wait(&r.state, r.stream), FLEET_ERROR_TILE);
    CHECK_INT(rig_runs(&r, 1), r.m->grids[1].count);
    if (!rig_recover(t, &r) || !rig_odd(t, &r, ODD_FAIL_ALL, 0, ODD_EVERY, 1)) return;
    CHECK_STATUS(rig_launch(&r, 2), FLEET_OK);
    CHECK_STATUS(rig_launch(&r, 1), FLEET_OK);
    CHECK_STATUS(fleet_state_recover(&r.state, r.stream), FLEET_OK);
    CHECK_STATUS(rig_launch(&r, 1), FLEET_OK);
    CHECK_STATUS(rig_launch(&r, 1), FLEET_OK);
    CHECK_STATUS(fleet_state_wait(&r.state, r.stream), FLEET_OK);
    CHECK_INT(fleet_state_epoch(&r.state), 2);
    CHECK_INT(rig_runs(&r, 1), 3 * r.m->grids[1].count);
    rig_close(&r);
}

static void invariant_11_recover_is_stream_ordered(test_run *t)
{
    model m;
    model_begin(&m);
    model_add_grid(&m, FLEET_LEVEL_CU, 1, 3, 1);
    model_add_grid(&m, FLEET_LEVEL_CU, 1, 4, 1);
    model_add_event(&m, 0, 1, 1);
    model_out(&m, 0, 0, "i->");
    model_in(&m, 1, 0, "i->");
    in_settings(t, SHAPES, queue, &m);
    model_end(&m);
}

static void all(test_run *t)
{
    TEST(invariant_11_a_failing_tile_poisons);
    TEST(no_step_after_a_wave_that_failed);
    TEST(invariant_9_every_wait_is_bounded);
    TEST(invariant_9_abort_while_all_wait);
    TEST(invariant_9_abort_in_the_middle);
    TEST(invariant_9_abort_of_a_mixed_plan);
    TEST(invariant_9_the_report_of_a_tile_that_hangs);
    TEST(a_second_launch_at_once_is_refused);
#if !defined(FLEET_HOST)
    TEST(a_second_replay_at_once_is_refused);
#endif
    TEST(invariant_8_residency);
    TEST(invariant_11_recover_is_stream_ordered);
}
TEST_MAIN(all)
