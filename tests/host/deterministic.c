/* What the deterministic engine promises: a run replays from its seed, thousands of interleavings are explored
   quickly, a deadlock is known at once and told by name. And what its counts prove: releases per event. */
// run: plain
// run: asan -DFEW
#include "model.h"

/* Sanitizers make it slow. */
#if defined(FEW)
#define RUNS 300u
#else
#define RUNS (deep() ? 100000u : 6000u)
#endif

static setting det(uint32_t chiplets, uint32_t workers, fleet_schedule schedule)
{
    setting s;
    memset(&s, 0, sizeof s);
    s.schedule = schedule;
    s.topology = fleet_topology_make(chiplets, workers + (schedule == FLEET_SCHEDULE_CHIPLET));
    s.topology.private_l2 = 0;
    s.levels = 2;
    s.seed = 1;
    s.waves = 1;
    s.engine = FLEET_ENGINE_DETERMINISTIC;
    s.placement = FLEET_PLACEMENT_RANDOM;
    return s;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Runs `runs` seeds, each one step more of one state, and returns how many orders differed. */
static uint32_t explore(test_run *t, model *m, const setting *s, uint32_t runs)
{
    uint64_t *seen = (uint64_t *)malloc(runs * sizeof *seen), first;
    uint32_t i, distinct = 0;
    rig r;
    if (!seen) abort();
    if (!rig_open(t, &r, m, s)) return 0;
    for (i = 0; i < runs && !t->failed_here; i++) {
        fleet_status status;
        r.launch.host.seed = i + 1;
        status = rig_run(&r, 1);
        if (status)
            test_fail(t, __FILE__, __LINE__, "seed %u: %s", i + 1, fleet_status_name(status));
        seen[i] = r.stats.fingerprint;
        if (rig_errors(&r)) test_fail(t, __FILE__, __LINE__, "seed %u: wrong data", i + 1);
        if (i % 1000 == 0) rig_check(t, &r, i + 1);
    }
    if (!t->failed_here) rig_check(t, &r, runs);
    /* The same seed, the same order. */
    first = seen[0];
    r.launch.host.seed = 1;
    if (!t->failed_here && (rig_run(&r, 1) || r.stats.fingerprint != first))
        test_fail(t, __FILE__, __LINE__, "seed 1 did not replay");
    qsort(seen, runs, sizeof *seen, by_value);
    for (i = 0; i < runs; i++) distinct += !i || seen[i] != seen[i - 1];
    rig_close(&r);
    free(seen);
    return distinct;
}

static void ten_thousand_orders_of_a_split_row_sum(test_run *t)
{
    uint32_t schedule, distinct = 0, runs = RUNS;
    model m;
    model_split_row_sum(&m, 2, 2);
    for (schedule = 0; schedule < 2 && !t->failed_here; schedule++) {
        setting s = det(2, 2, (fleet_schedule)schedule);
        distinct += explore(t, &m, &s, runs);
    }
    model_end(&m);
    if (!t->failed_here) CHECK(distinct >= 2 * runs / 6 * 5);
}

static void ten_thousand_orders_of_a_device_task(test_run *t)
{
    uint32_t schedule, distinct = 0, runs = RUNS;
    model m;
    model_two_stages(&m, 0);
    for (schedule = 0; schedule < 2 && !t->failed_here; schedule++) {
        setting s = det(2, 3, (fleet_schedule)schedule);
        distinct += explore(t, &m, &s, runs);
    }
    model_end(&m);
    if (!t->failed_here) CHECK(distinct >= 2 * runs / 6 * 5);
}

/* ---- invariant 5 ---- */

/* Releases that a step costs: those of S + 1 steps less those of S. */
static uint64_t releases_per_step(test_run *t, model *m, const setting *s)
{
    uint64_t few, more;
    rig r;
    if (!rig_open(t, &r, m, s)) return 0;
    if (rig_run(&r, 3)) test_fail(t, __FILE__, __LINE__, "3 steps");
    few = r.stats.releases;
    if (rig_run(&r, 4)) test_fail(t, __FILE__, __LINE__, "4 steps");
    more = r.stats.releases;
    rig_check(t, &r, 7);
    rig_close(&r);
    return more - few;
}

/* The device-task's own event: what it costs with the edge less what it costs without. The steps' event costs
   one release for each chiplet that has tasks, in both. */
static void invariant_5_one_release_per_chiplet_with_work(test_run *t)
{
    static const uint32_t workers[3] = {1, 2, 7};
    uint32_t schedule, k, slices;
    for (schedule = 0; schedule < 2; schedule++)
        for (k = 0; k < 3; k++)
            for (slices = 1; slices <= 6; slices++) {
                setting s = det(4, workers[k], (fleet_schedule)schedule);
                uint64_t with, without;
                uint32_t busy = slices < 4 ? slices : 4;
                model m;
                model_begin(&m);
                model_add_grid(&m, FLEET_LEVEL_DEVICE, 1, 1, 1);
                model_add_grid(&m, FLEET_LEVEL_DEVICE, 1, 1, 1);
                m.grids[0].slices = slices;
                without = releases_per_step(t, &m, &s);
                model_end(&m);
                model_add_event(&m, 0, 1, 1);
                model_out(&m, 0, 0, "i->");
                model_in(&m, 1, 0, "i->");
                with = releases_per_step(t, &m, &s);
                model_end(&m);
                if (!t->failed_here && with - without != busy)
                    test_fail(t, __FILE__, __LINE__, "%u slices on 4 chiplets of %u: %llu releases",
                              slices, workers[k], (unsigned long long)(with - without));
                if (t->failed_here) {
                    setting_print(&s);
                    return;
                }
            }
}

/* ---- deadlocks ---- */

/* Raises the target of the first wait for that event in the plan, after the plan was checked. */
static void plant(fleet_plan *plan, const char *event)
{
    const fleeti_event *e = events_of(plan) + fleet_plan_event(plan, event);
    fleeti_wait *waits = (fleeti_wait *)(void *)((char *)plan + plan->waits);
    uint32_t i;
    for (i = 0; i < plan->n_waits; i++)
        if (waits[i].counter == e->counter) {
            waits[i].target++;
            return;
        }
}

static void deadlocked(test_run *t, const setting *s)
{
    model m;
    rig r;
    fleet_failure f;
    char text[8192];
    uint64_t since;
    model_split_row_sum(&m, 3, 4);
    if (!rig_open(t, &r, &m, s)) return;
    plant(r.plan, "E0");
    CHECK_STATUS(fleet_to_device(r.image.device, r.plan, (size_t)r.plan->bytes, r.stream),
                 FLEET_OK);
    since = now_ns();
    CHECK_STATUS(rig_run(&r, 2), FLEET_ERROR_DEADLOCK);
    CHECK(now_ns() - since < 5000000000u); /* not the 10 s of the deadline */
    CHECK(fleet_state_failure(&r.state, &f));
    CHECK_INT(f.status, FLEET_ERROR_DEADLOCK);
    CHECK(f.worker < r.plan->total_workers + r.plan->chiplets);
    fleet_state_report(&r.state, text, sizeof text);
    CHECK_TEXT(text, "waits for E0[0], which has 4 of 5 arrivals");
    CHECK_TEXT(text, "task g1(0), step 1");
    CHECK_TEXT(text, "FLEET_ERROR_DEADLOCK");
    CHECK_TEXT(text, s->schedule ? "scheduler of chiplet" : "worker ");
    CHECK_STATUS(rig_run(&r, 1), FLEET_ERROR_DEADLOCK);
    /* The plan mended and the state recovered, it runs. */
    {
        fleeti_wait *waits = (fleeti_wait *)(void *)((char *)r.plan + r.plan->waits);
        uint32_t i;
        for (i = 0; i < r.plan->n_waits; i++)
            if (waits[i].counter == events_of(r.plan)->counter) {
                waits[i].target--;
                break;
            }
    }
    CHECK_STATUS(fleet_to_device(r.image.device, r.plan, (size_t)r.plan->bytes, r.stream),
                 FLEET_OK);
    if (!rig_recover(t, &r)) return;
    CHECK_RUN(&r, 2);
    if (!rig_check(t, &r, 2)) return;
    rig_close(&r);
    model_end(&m);
}

static void a_planted_deadlock_is_told_at_once(test_run *t)
{
    uint32_t schedule, waves;
    for (schedule = 0; schedule < 2; schedule++)
        for (waves = 1; waves <= 4 && !t->failed_here; waves *= 2) {
            setting s = det(2, 2, (fleet_schedule)schedule);
            s.waves = waves;
            deadlocked(t, &s);
            if (t->failed_here) setting_print(&s);
        }
}

/* A tile that spins for ever and takes no answer cannot keep the test. */
static void a_spin_without_end_is_a_deadlock(test_run *t)
{
    setting s = det(2, 2, FLEET_SCHEDULE_STATIC);
    model m;
    rig r;
    model_split_row_sum(&m, 3, 2);
    if (!rig_open(t, &r, &m, &s)) return;
    if (!rig_odd(t, &r, ODD_HANG, 0, ODD_EVERY, 0)) return;
    CHECK_STATUS(rig_run(&r, 1), FLEET_ERROR_DEADLOCK);
    rig_close(&r);
    model_end(&m);
}

static void all(test_run *t)
{
    TEST(ten_thousand_orders_of_a_split_row_sum);
    TEST(ten_thousand_orders_of_a_device_task);
    TEST(invariant_5_one_release_per_chiplet_with_work);
    TEST(a_planted_deadlock_is_told_at_once);
    TEST(a_spin_without_end_is_a_deadlock);
}
TEST_MAIN(all)
