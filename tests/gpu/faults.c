/* A hundred runs each, on a GPU, that end early at a random place: a tile that does not return, an abort, an event that
   never comes. The report names what it was, the state recovers, and the next launch is right. (Wrong run-time tensors:
   tensors.c.) */
// run: asan engine=both
// hip: 6 runs
#include "model.h"

/* Time on a simulator is instructions. */
#if defined(FLEET_HIP)
#define FAULTS 2u
#define SHORT_NS 200000u
#define SHAPES 1u
#define MOST_DELAY_NS 100000u
#elif defined(FLEET_CUDA)
#define FAULTS 100u
#define SHORT_NS 20000000u
#define SHAPES 4u
#define MOST_DELAY_NS 2000000u
#else
#define FAULTS 6u
#define SHORT_NS 400000000u
#define SHAPES 4u
#define MOST_DELAY_NS 10000000u
#endif

#if defined(FLEET_HOST)
#define HOST_LOAD(at) __atomic_load_n(at, __ATOMIC_ACQUIRE)
#define HOST_STORE(at, value) __atomic_store_n(at, value, __ATOMIC_RELEASE)
#else
#define HOST_LOAD(at) (*(volatile uint32_t *)(at))
#define HOST_STORE(at, value) (*(volatile uint32_t *)(at) = (value))
#endif

static uint32_t faults(void)
{
#if defined(FLEET_HOST)
    if (deep()) return 100;
#endif
    return FAULTS;
}
static uint32_t random_below(uint64_t *rng, uint32_t n)
{
    *rng = *rng * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*rng >> 33) % n;
}

/* Fault number i, in one setting after the other, from a seed of its own. */
static void in_faults(test_run *t, void (*function)(test_run *, const setting *, uint64_t *))
{
    setting s;
    uint32_t settings = 0, i;
    while (setting_get(settings, SHAPES, &s)) settings++;
    for (i = 0; i < faults() && !t->failed_here; i++) {
        uint64_t rng = i + 1;
        (void)random_below(&rng, 2);
        /* By turns, all schedules first. */
        if (!setting_get((i * 7 + i / settings) % settings, SHAPES, &s)) return;
        if (setting_skipped(i)) continue;
        function(t, &s, &rng);
        if (t->failed_here) {
            printf("    fault %u\n", i);
            setting_print(&s);
        }
    }
}

static void chain(model *m)
{
    model_split_row_sum(m, 5, 3);
    model_add_grid(m, FLEET_LEVEL_CU, 1, 6, 1);
    model_add_event(m, 0, 1, 1);
    model_out(m, 1, 1, "i->");
    model_in(m, 2, 1, "i->");
}

static void hang_once(test_run *t, const setting *s, uint64_t *rng)
{
    model m;
    rig r;
    fleet_failure f;
    char text[8192], still[96];
    uint32_t task;
    uint64_t since;
    if (s->engine == FLEET_ENGINE_DETERMINISTIC) return; /* no other could run: a deadlock */
    chain(&m);
    if (!rig_open(t, &r, &m, s)) return;
    task = random_below(rng, r.n_tasks);
    if (r.state.blocks > 1) { /* one alone has no other that waits for it */
        if (!rig_odd(t, &r, ODD_HANG, task, ODD_EVERY, random_below(rng, 3))) return;
        r.launch.limit_ns = SHORT_NS;
        fleet_plan_task_name(r.plan, task, text, sizeof text);
        snprintf(still, sizeof still, "still runs %.60s", text);
        rig_start(&r, 5);
        since = now_ns();
        do {
            rest();
            fleet_state_report(&r.state, text, sizeof text);
        } while ((fleet_state_status(&r.state) == FLEET_OK || !strstr(text, still)) &&
                 now_ns() - since < 30000000000u);
        HOST_STORE(r.flags + 1, 1);
        CHECK_STATUS(rig_join(&r), FLEET_ERROR_TIMEOUT);
        CHECK_TEXT(text, still);
        CHECK(fleet_state_failure(&r.state, &f));
        CHECK(f.task != task);
        CHECK_INT(rig_errors(&r), 0);
        CHECK_STATUS(rig_run(&r, 1), FLEET_ERROR_TIMEOUT); /* poisoned */
        if (!rig_recover(t, &r)) return;
    }
    r.launch.limit_ns = 0;
    CHECK_RUN(&r, 2);
    if (!rig_check(t, &r, 2)) return;
    rig_close(&r);
    model_end(&m);
}

static void tiles_that_do_not_return(test_run *t)
{
    in_faults(t, hang_once);
}

static void abort_once(test_run *t, const setting *s, uint64_t *rng)
{
    model m;
    rig r;
    char text[8192];
    const uint32_t delay = random_below(rng, MOST_DELAY_NS);
    uint64_t since;
    model_levels(&m, 3);
    if (!rig_open(t, &r, &m, s)) return;
    rig_start(&r, 1000000);
    since = now_ns();
    while (now_ns() - since < delay) {
    }
    fleet_state_abort(&r.state);
    CHECK_STATUS(rig_join(&r), FLEET_ERROR_ABORTED);
    fleet_state_report(&r.state, text, sizeof text);
    CHECK_TEXT(text, "abort");
    CHECK_INT(rig_errors(&r), 0);
    if (!rig_recover(t, &r)) return;
    CHECK_RUN(&r, 2);
    if (!rig_check(t, &r, 2)) return;
    rig_close(&r);
    model_end(&m);
}

static void aborts_at_random_moments(test_run *t)
{
    in_faults(t, abort_once);
}

/* The outside owes the event of a step; it has given those of the steps before. */
static void owe_once(test_run *t, const setting *s, uint64_t *rng)
{
    static const fleet_level levels[4] = {FLEET_LEVEL_CU, FLEET_LEVEL_WAVE, FLEET_LEVEL_CHIPLET,
                                          FLEET_LEVEL_DEVICE};
    const uint32_t given = random_below(rng, 3), level = random_below(rng, 4);
    const fleet_status expected =
        s->engine == FLEET_ENGINE_DETERMINISTIC ? FLEET_ERROR_DEADLOCK : FLEET_ERROR_TIMEOUT;
    fleet_failure f;
    model m;
    rig r;
    char text[8192], name[64];
    int32_t event;
    uint32_t k;
    model_begin(&m);
    model_add_grid(&m, FLEET_LEVEL_CU, 1, 3, 1);
    model_add_grid(&m, levels[level], 1, 3, 1);
    model_add_event(&m, 1, 3, 1);
    model_add_event(&m, 0, 1, 1);
    model_out(&m, 0, 0, "i->i");
    model_in(&m, 1, 0, "i->i");
    model_in(&m, 1, 1, "i->");
    model_graph(&m);
    fleet_event_external(m.graph, m.events[1].handle, FLEET_EXTERNAL_NOTIFIES, 1,
                         FLEET_SCOPE_SYSTEM);
    if (!rig_open(t, &r, &m, s)) return;
    event = fleet_plan_event(r.plan, "E1");
    for (k = 0; k < given; k++)
        CHECK_STATUS(fleet_event_notify(&r.state, event, 0, k + 1), FLEET_OK);
    r.launch.limit_ns = SHORT_NS;
    CHECK_STATUS(rig_run(&r, given + 1 + random_below(rng, 2)), expected);
    CHECK(fleet_state_failure(&r.state, &f));
    CHECK_INT(f.status, expected);
    fleet_state_report(&r.state, text, sizeof text);
    fleet_plan_counter_name(r.plan, f.counter, name, sizeof name);
    if (f.counter && strcmp(name, "E1") == 0) {
        CHECK_INT(f.epoch, given + 1);
        CHECK_TEXT(text, "waits for E1, which has 0 of 1 arrivals");
    } else { /* one that waits for those that wait for E1, perhaps already in the next step */
        CHECK(f.epoch == given + 1 || f.epoch == given + 2);
    }
    CHECK_TEXT(text, fleet_status_name(expected));
    CHECK_INT(rig_errors(&r), 0);
    if (!given) CHECK_INT(rig_runs(&r, 1), 0);
    if (!rig_recover(t, &r)) return;
    r.launch.limit_ns = 0;
    for (k = 0; k < 2; k++) CHECK_STATUS(fleet_event_notify(&r.state, event, 0, k + 1), FLEET_OK);
    CHECK_RUN(&r, 2);
    if (!rig_check(t, &r, 2)) return;
    rig_close(&r);
    model_end(&m);
}

static void events_that_never_come(test_run *t)
{
    in_faults(t, owe_once);
}

static void all(test_run *t)
{
    TEST(tiles_that_do_not_return);
    TEST(aborts_at_random_moments);
    TEST(events_that_never_come);
}
TEST_MAIN(all)
