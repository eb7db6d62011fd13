/* Launches of one state that overlap, as replays of one captured launch may: their arguments are the same, word for
   word. At most one of them runs, all others are refused, and the state is free when all have left. */
// run: asan
// run: tsan
#include "model.h"

#include <sched.h>

#define MOST_BLOCKS 64
#define MOST_LAUNCHES 3

/* Where the workgroups of a launch wait before they enter the worker loop. */
typedef struct gate {
    uint32_t at[MOST_BLOCKS]; /* 0: not there yet, 1: waits, 2: may go on */
    const uint32_t
        *until; /* where not null: block 0 goes on when the residency check, here, has ended */
} gate;

static int is_open(uint32_t residency)
{
    return residency == 0 || residency == FLEETI_OPEN || residency == FLEETI_PENDING;
}
FLEET_GLOBAL(256) void gated(fleet_run run, const world *args, gate *g)
{
    uint32_t *at = &g->at[fleet_block_id()];
    if (fleet_thread_id() == 0) { /* its other waves wait for this one */
        if (fleet_block_id() == 0 && g->until)
            while (is_open(__atomic_load_n(g->until, __ATOMIC_ACQUIRE))) sched_yield();
        __atomic_store_n(at, 1, __ATOMIC_RELEASE);
        while (__atomic_load_n(at, __ATOMIC_ACQUIRE) != 2) sched_yield();
    }
    FLEET_WORKER_LOOP(world);
}
FLEET_THUNK3(gated, fleet_run, const world *, gate *)

/* A launch that is replayed `times` times by a thread of its own. */
typedef struct replay {
    rig *r;
    fleet_run run;
    gate gate;
    uint32_t times, ended, fresh; /* fresh: prepared anew each time, as fleet_launch does */
    fleet_status status;
    pthread_t thread;
} replay;

static void *replay_all(void *replay_)
{
    replay *p = (replay *)replay_;
    const world *device = (const world *)p->r->device;
    gate *g = &p->gate;
    void *args[3];
    args[0] = &p->run, args[1] = (void *)&device, args[2] = (void *)&g;
    while (p->times && !p->status) {
        if (p->fresh) p->status = fleet_run_prepare(&p->r->state, &p->r->launch, &p->run);
        if (p->status) break;
        p->status =
            fleet_launch_args(&p->r->state, &p->r->launch, &p->run, FLEET_KERNEL_OF(gated), args);
        p->times--;
    }
    __atomic_store_n(&p->ended, 1, __ATOMIC_RELEASE);
    return NULL;
}
static void replay_start(rig *r, const fleet_run *run, uint32_t times, uint32_t fresh, replay *p)
{
    memset(p, 0, sizeof *p);
    p->r = r, p->run = *run, p->times = times, p->fresh = fresh;
    if (pthread_create(&p->thread, NULL, replay_all, p)) abort();
}
/* Lets a workgroup go on if it waits. */
static uint32_t release(replay *p, uint32_t block)
{
    if (__atomic_load_n(&p->gate.at[block], __ATOMIC_ACQUIRE) != 1) return 0;
    __atomic_store_n(&p->gate.at[block], 2, __ATOMIC_RELEASE);
    return 1;
}
static void release_all(replay *p)
{
    while (!__atomic_load_n(&p->ended, __ATOMIC_ACQUIRE))
        for (uint32_t b = 0; b < p->r->state.blocks; b++) (void)release(p, b);
}
static uint32_t waiting(const replay *p)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < p->r->state.blocks; b++)
        n += __atomic_load_n(&p->gate.at[b], __ATOMIC_ACQUIRE) == 1;
    return n;
}
static uint32_t busy(rig *r)
{
    return __atomic_load_n(&r->state.host->busy, __ATOMIC_ACQUIRE);
}

static int replays_open(test_run *t, rig *r, model *m, const setting *s, uint32_t steps,
                        fleet_run *run)
{
    if (!rig_open(t, r, m, s)) return 0;
    r->launch.steps = steps;
    r->launch.host.stats = NULL;
    if (r->state.blocks > MOST_BLOCKS) abort();
    NEED_STATUS(fleet_run_prepare(&r->state, &r->launch, run), FLEET_OK);
    return 1;
}

/* The second replay comes while a tile of the first one hangs. */
static void run_second(test_run *t, const setting *s, void *model_)
{
    rig r;
    fleet_run run;
    replay first, second;
    fleet_outcome o;
    char text[4096];
    if (!replays_open(t, &r, (model *)model_, s, 2, &run)) return;
    if (!rig_odd(t, &r, ODD_HANG, 0, ODD_EVERY, 0)) return;
    replay_start(&r, &run, 1, 0, &first);
    for (uint32_t left = r.state.blocks; left || !__atomic_load_n(r.flags, __ATOMIC_ACQUIRE);)
        for (uint32_t b = 0; b < r.state.blocks; b++) left -= release(&first, b);
    replay_start(&r, &run, 2, 0, &second);
    release_all(&second);
    CHECK_INT(fleet_state_epoch(&r.state), 0);
    CHECK_INT(busy(&r), 2);
    fleet_state_report(&r.state, text, sizeof text);
    CHECK_TEXT(text, "launch 1 is running; 0 launches finished, 2 refused, 0 steps done");
    __atomic_store_n(r.flags + 1, 1, __ATOMIC_RELEASE);
    release_all(&first);
    pthread_join(first.thread, NULL);
    pthread_join(second.thread, NULL);
    CHECK_STATUS(first.status, FLEET_OK);
    CHECK_STATUS(second.status, FLEET_OK);
    CHECK_STATUS(fleet_state_status(&r.state), FLEET_ERROR_BUSY); /* of both */
    CHECK_STATUS(fleet_state_status(&r.state), FLEET_OK);
    fleet_state_report(&r.state, text, sizeof text);
    CHECK_TEXT(text, "FLEET_ERROR_BUSY");
    CHECK_TEXT(text, "1 launches finished, 2 refused, 2 steps done");
    for (uint32_t i = 1; i <= 3; i++) {
        char line[80];
        snprintf(line, sizeof line, "launch %u: FLEET_ERROR_BUSY, refused: launch 1 had not", i);
        CHECK(!strstr(text, line) == (i == 1));
        CHECK(fleet_state_outcome(&r.state, i, &o));
        CHECK_STATUS(o.status, i == 1 ? FLEET_OK : FLEET_ERROR_BUSY);
        CHECK_INT(o.steps, i == 1 ? 2 : 0);
        CHECK_INT(o.other, i == 1 ? 0 : 1);
    }
    if (!rig_check(t, &r, 2)) return;
    CHECK_RUN(&r, 1);
    if (!rig_check(t, &r, 3)) return;
    rig_close(&r);
}
static void a_replay_while_the_first_runs_is_refused(test_run *t)
{
    model m;
    model_split_row_sum(&m, 3, 2);
    in_settings(t, 2, run_second, &m);
    model_end(&m);
}

/* Both have claimed before the first workgroup of either begins: the workgroups of the two are not
   to be told apart. Ordinary launches do not say that all their workgroups will come. */
static void run_met(test_run *t, const setting *s, void *model_)
{
    rig r;
    fleet_run run;
    replay p[2];
    uint64_t draw = s->seed;
    if (!replays_open(t, &r, (model *)model_, s, 2, &run)) return;
    r.launch.ordinary = 1;
    for (uint32_t i = 0; i < 2; i++) replay_start(&r, &run, 1, 0, &p[i]);
    while (waiting(&p[0]) + waiting(&p[1]) < 2 * r.state.blocks) sched_yield();
    for (uint32_t left = 2 * r.state.blocks; left;) {
        draw = draw * 6364136223846793005u + 1442695040888963407u;
        left -= release(&p[draw >> 40 & 1], (uint32_t)(draw >> 41) % r.state.blocks);
    }
    for (uint32_t i = 0; i < 2; i++) {
        pthread_join(p[i].thread, NULL);
        CHECK_STATUS(p[i].status, FLEET_OK);
    }
    for (uint32_t i = 1; i <= 2; i++) {
        fleet_outcome o;
        CHECK(fleet_state_outcome(&r.state, i, &o));
        CHECK_STATUS(o.status, FLEET_ERROR_BUSY);
        CHECK_INT(o.refused, 1);
    }
    CHECK_STATUS(fleet_state_status(&r.state), FLEET_ERROR_BUSY);
    if (!rig_check(t, &r, 0)) return;
    CHECK_RUN(&r, 1);
    if (!rig_check(t, &r, 1)) return;
    rig_close(&r);
}
static void replays_that_meet_before_they_begin_are_refused(test_run *t)
{
    model m;
    model_split_row_sum(&m, 3, 2);
    in_settings(t, 2, run_met, &m);
    model_end(&m);
}

/* The same with launches that say so: the one that claims first runs, and the other one's claim
   lets it begin. */
static void run_yielding(test_run *t, const setting *s, void *model_)
{
    rig r;
    fleet_run run;
    replay p[2];
    fleet_outcome o;
    uint32_t *due, second = 0;
    uint64_t draw = s->seed;
    if (!replays_open(t, &r, (model *)model_, s, 2, &run)) return;
    due = &((fleeti_state *)(void *)r.state.device)->due.word;
    replay_start(&r, &run, 1, 0, &p[0]);
    while (waiting(&p[0]) < r.state.blocks) sched_yield();
    replay_start(&r, &run, 1, 0, &p[1]);
    while (__atomic_load_n(due, __ATOMIC_ACQUIRE) != 2 * r.state.blocks) sched_yield();
    for (uint32_t left = r.state.blocks; left;) {
        second |= waiting(&p[1]);
        draw = draw * 6364136223846793005u + 1442695040888963407u;
        left -= release(&p[0], (uint32_t)(draw >> 41) % r.state.blocks);
    }
    for (uint32_t i = 0; i < 2; i++) {
        release_all(&p[i]);
        pthread_join(p[i].thread, NULL);
        CHECK_STATUS(p[i].status, FLEET_OK);
        CHECK(fleet_state_outcome(&r.state, 1 + i, &o));
        CHECK_STATUS(o.status, i ? FLEET_ERROR_BUSY : FLEET_OK);
        CHECK_INT(o.refused, i);
    }
    CHECK_INT(second, 0); /* none of its workgroups came before all of the first had begun */
    CHECK_STATUS(fleet_state_status(&r.state), FLEET_ERROR_BUSY);
    if (!rig_check(t, &r, 2)) return;
    rig_close(&r);
}
static void a_refused_replay_lets_the_first_begin(test_run *t)
{
    model m;
    model_split_row_sum(&m, 3, 2);
    in_settings(t, 2, run_yielding, &m);
    model_end(&m);
}

/* A launch of another fleet_run that is claimed meanwhile takes no place in the run, either. */
static void run_other_key(test_run *t, const setting *s, void *model_)
{
    rig r;
    fleet_run run, other;
    replay p[2];
    if (!replays_open(t, &r, (model *)model_, s, 2, &run)) return;
    CHECK_STATUS(fleet_run_prepare(&r.state, &r.launch, &other), FLEET_OK);
    replay_start(&r, &run, 1, 0, &p[0]);
    while (waiting(&p[0]) < r.state.blocks) sched_yield();
    replay_start(&r, &other, 1, 0, &p[1]);
    release_all(&p[1]); /* ends before any of the first has begun */
    CHECK_INT(busy(&r), 1);
    CHECK_INT(fleet_state_epoch(&r.state), 0);
    release_all(&p[0]);
    for (uint32_t i = 0; i < 2; i++) {
        pthread_join(p[i].thread, NULL);
        CHECK_STATUS(p[i].status, FLEET_OK);
    }
    CHECK_STATUS(fleet_state_status(&r.state), FLEET_ERROR_BUSY);
    if (!rig_check(t, &r, 2)) return;
    rig_close(&r);
}
static void a_refused_launch_takes_no_place(test_run *t)
{
    model m;
    model_split_row_sum(&m, 3, 2);
    in_settings(t, 2, run_other_key, &m);
    model_end(&m);
}

/* Three threads replay one launch, or launch anew: the workgroups begin in an order drawn from a seed. */
static void run_storm(test_run *t, rig *r, const fleet_run *run, uint32_t *steps, uint64_t seed)
{
    replay p[MOST_LAUNCHES];
    const uint32_t times = 2, before = busy(r);
    uint32_t left = MOST_LAUNCHES, runs;
    for (uint32_t i = 0; i < MOST_LAUNCHES; i++) replay_start(r, run, times, seed & 1, &p[i]);
    while (left) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        if (!release(&p[(seed >> 40) % MOST_LAUNCHES], (uint32_t)(seed >> 45) % r->state.blocks) ||
            seed >> 62 == 0)
            sched_yield();
        left = 0;
        for (uint32_t i = 0; i < MOST_LAUNCHES; i++)
            left += !__atomic_load_n(&p[i].ended, __ATOMIC_ACQUIRE);
    }
    for (uint32_t i = 0; i < MOST_LAUNCHES; i++) {
        pthread_join(p[i].thread, NULL);
        CHECK_STATUS(p[i].status, FLEET_OK);
    }
    runs = times * MOST_LAUNCHES - (busy(r) - before);
    *steps += runs * run->steps;
    CHECK_STATUS((fleet_status)r->state.host->status, FLEET_OK);
    if (!rig_check(t, r, *steps)) return;
    CHECK_INT(((const fleeti_state *)(const void *)r->state.device)->due.word, 0);
}
static void run_storms(test_run *t, const setting *s, void *model_)
{
    const uint32_t storms = deep() ? 400 : 6;
    rig r;
    fleet_run run;
    uint32_t steps = 0;
    if (!replays_open(t, &r, (model *)model_, s, 2, &run)) return;
    for (uint32_t i = 0; i < storms; i++) {
        r.launch.ordinary = i >> 1 & 1;
        run_storm(t, &r, &run, &steps, s->seed * 1000 + i);
        if (t->failed_here) return;
    }
    CHECK_INT(fleet_state_status(&r.state) != FLEET_OK, busy(&r) > 0);
    r.launch.steps = 1;
    CHECK_RUN(&r, 1);
    if (!rig_check(t, &r, steps + 1)) return;
    rig_close(&r);
}
static void replays_at_once_run_one_at_a_time(test_run *t)
{
    model m;
    model_split_row_sum(&m, 3, 2);
    in_settings(t, 2, run_storms, &m);
    model_end(&m);
}

/* The host aborts while a workgroup is missing: the run ends with that, not with a failed residency check, although the last
   workgroup comes and finds all of them there, and whether or not the others have waited too long by then. */
static void run_abort(test_run *t, const setting *s, void *model_)
{
    rig r;
    fleet_run run;
    replay p;
    if (!replays_open(t, &r, (model *)model_, s, 1, &run)) return;
    r.launch.ordinary = 1;
    r.launch.limit_ns = s->schedule == FLEET_SCHEDULE_CHIPLET ? FLEET_LIMIT_NONE : 1000000;
    CHECK_STATUS(fleet_run_prepare(&r.state, &r.launch, &run), FLEET_OK);
    memset(&p, 0, sizeof p);
    p.r = &r, p.run = run, p.times = 1;
    p.gate.until = &((fleeti_state *)(void *)r.state.device)->residency.word;
    if (pthread_create(&p.thread, NULL, replay_all, &p)) abort();
    while (waiting(&p) + 1 < r.state.blocks) sched_yield();
    fleet_state_abort(&r.state);
    release_all(&p);
    pthread_join(p.thread, NULL);
    CHECK_STATUS(p.status, FLEET_OK);
    CHECK_STATUS(fleet_state_status(&r.state), FLEET_ERROR_ABORTED);
    CHECK_STATUS(rig_run(&r, 1), FLEET_ERROR_ABORTED);
    if (!rig_recover(t, &r)) return;
    r.launch.limit_ns = 0;
    CHECK_RUN(&r, 1);
    if (!rig_check(t, &r, 1)) return;
    rig_close(&r);
}
static void an_abort_during_the_residency_check_is_an_abort(test_run *t)
{
    model m;
    model_split_row_sum(&m, 3, 2);
    in_settings(t, 2, run_abort, &m);
    model_end(&m);
}

static void all(test_run *t)
{
    TEST(a_replay_while_the_first_runs_is_refused);
    TEST(replays_that_meet_before_they_begin_are_refused);
    TEST(a_refused_replay_lets_the_first_begin);
    TEST(a_refused_launch_takes_no_place);
    TEST(replays_at_once_run_one_at_a_time);
    TEST(an_abort_during_the_residency_check_is_an_abort);
}
TEST_MAIN(all)
