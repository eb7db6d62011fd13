/* Launches of one state that meet, step by step: claims, refusals, a launch that fails on the host, and the residency
   check, in orders drawn from seeds, between any two of their looks and read-modify-writes. tests/model/claim.pml is the
   same protocol for spin. */
// run: asan whole
#include "fleet_device.h"

/* A workgroup may be slow between any two steps: now and then one waits before or after a read-modify-write while others
   take many. */
static uint64_t slowness;
static void be_slow(void)
{
    slowness = slowness * 6364136223846793005u + 1442695040888963407u;
    for (uint32_t i = slowness >> 62 ? 0 : (uint32_t)(slowness >> 40) % 512; i; i--)
        fleeti_host_yield();
}
static uint32_t slow_rmw(uint32_t *at, uint32_t value)
{
    uint32_t old;
    be_slow();
    old = fleeti_rmw_device(at, value);
    be_slow();
    return old;
}
#define fleeti_rmw_device slow_rmw
#include "model.h"

#define LAUNCHES 3
#define BLOCKS 2
#define RUNS (deep() ? 300000u : 3000u)

/* Word for word the same launch, several times. All fields are changed by the kit's atomics. */
typedef struct meeting {
    fleet_run run;
    uint32_t fails;             /* 1: launch 0 fails on the host after its claim */
    uint32_t at_once;           /* 1: all workgroups will come */
    uint32_t claimed[LAUNCHES]; /* 1: its workgroups may begin */
    uint32_t entered[LAUNCHES], ranks[LAUNCHES], left; /* of the run */
} meeting;

/* Of each launch the claim, then its workgroups. The launch that runs closes its run as fleeti_leave does. */
FLEET_GLOBAL(64) void launches_meet(meeting *m)
{
    const uint32_t launch = fleet_block_id() / (1 + BLOCKS), part = fleet_block_id() % (1 + BLOCKS);
    const uint32_t fails = m->fails && launch == 0;
    fleeti_run_line began;
    uint32_t tries = 0, role, place = 0;
    FLEET_LDS(uint32_t, counts, FLEET_MAX_CHIPLETS);
    if (part == 0) {
        for (uint32_t i = 0; i < 2 * launch; i++) be_slow(); /* a claim takes some time */
        fleeti_claim(m->run, NULL, 1 + launch, m->at_once);
        if (fails) fleeti_unclaim(m->run, 1 + launch);
        fleeti_publish_device(&m->claimed[launch], 1);
        return;
    }
    if (fails) return;
    while (!fleeti_poll_device(&m->claimed[launch]))
        if (fleet_pause(&tries)) return;
    role = fleeti_enter_run(fleeti_thread_now(), &m->run, fleeti_chiplet_line(m->run.state), counts,
                            &began, &place);
    if (role < FLEETI_ROLE_FIRST) return;
    fleeti_rmw_device(&m->entered[launch], 1);
    fleeti_rmw_device(&m->ranks[launch], 1u << (role - FLEETI_ROLE_FIRST));
    if (fleeti_rmw_device(&m->left, 1) + 1 == BLOCKS) {
        fleet_store_relaxed_device(&m->left, 0);
        fleeti_rmw_device(&m->run.state->due.word, 0u - BLOCKS);
    }
}
FLEET_THUNK1(launches_meet, meeting *)

static void meet(test_run *t, uint32_t fails, uint32_t at_once)
{
    setting s;
    model m;
    rig r;
    fleeti_state *state;
    uint32_t ran = 0, all_refused = 0, begin;
    unsigned long long end;
    memset(&s, 0, sizeof s);
    s.schedule = FLEET_SCHEDULE_STATIC;
    s.topology = fleet_topology_make(1, BLOCKS);
    s.levels = 2, s.seed = 1, s.waves = 1;
    s.engine = FLEET_ENGINE_DETERMINISTIC;
    model_split_row_sum(&m, 2, 2);
    if (!rig_open(t, &r, &m, &s)) return;
    state = (fleeti_state *)r.state.device;
    state->config.chiplet_of = NULL; /* all sit on chiplet 0, whatever their numbers */
    begin = (uint32_t)test_share(RUNS, &end);
    for (uint32_t seed = begin + 1; seed <= end && !t->failed_here; seed++) {
        fleet_kernel_desc k = fleet_kernel_desc_default();
        meeting now, *at = &now;
        void *args[1];
        uint32_t entered = 0, reported;
        fleet_status status;
        memset(&now, 0, sizeof now);
        now.fails = fails, now.at_once = at_once;
        status = fleet_run_prepare(&r.state, &r.launch, &now.run);
        if (status || now.run.blocks != BLOCKS) abort();
        args[0] = &at, slowness = seed;
        k.blocks = LAUNCHES * (1 + BLOCKS), k.threads = 64;
        k.host.engine = FLEET_ENGINE_DETERMINISTIC, k.host.seed = seed;
        status = fleet_kernel_launch(FLEET_KERNEL_OF(launches_meet), args, &k);
        if (status)
            test_fail(t, __FILE__, __LINE__, "seed %u: %s", seed, fleet_status_name(status));
        for (uint32_t l = 0; l < LAUNCHES; l++) {
            entered += now.entered[l];
            if (now.entered[l] && (now.entered[l] != BLOCKS || now.ranks[l] != (1u << BLOCKS) - 1))
                test_fail(t, __FILE__, __LINE__,
                          "seed %u: %u workgroups of launch %u run, ranks %x", seed, now.entered[l],
                          l, now.ranks[l]);
        }
        ran += entered != 0, all_refused += entered == 0;
        reported = r.state.host->busy;
        r.state.host->busy = 0;
        if (state->due.word)
            test_fail(t, __FILE__, __LINE__, "seed %u: %d workgroups due", seed,
                      (int32_t)state->due.word);
        if (!fails && entered / BLOCKS + reported != LAUNCHES)
            test_fail(t, __FILE__, __LINE__, "seed %u: %u launches ran, %u were refused", seed,
                      entered / BLOCKS, reported);
    }
    CHECK(ran > (end - begin) / 100);
    CHECK(at_once && !fails ? !all_refused : all_refused > (end - begin) / 100);
    rig_close(&r);
    model_end(&m);
}
static void launches_that_meet_never_mix(test_run *t)
{
    meet(t, 0, 0);
}
static void launches_that_meet_run_one_at_a_time(test_run *t)
{
    meet(t, 0, 1);
}
static void a_launch_that_failed_keeps_none_waiting(test_run *t)
{
    meet(t, 1, 0);
    meet(t, 1, 1);
}

static void all(test_run *t)
{
    TEST(launches_that_meet_never_mix);
    TEST(launches_that_meet_run_one_at_a_time);
    TEST(a_launch_that_failed_keeps_none_waiting);
}
TEST_MAIN(all)
