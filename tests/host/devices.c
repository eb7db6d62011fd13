/* Ranks that each have a launch and a state of their own: threads of this process and, where one has to be killed,
   processes. They share the regions and what the tiles see, nothing else. */
// run: asan
// run: tsan
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* fork, mmap, kill */
#endif
#include "model.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 3u
#define SECOND 1000000000ull

/* A rig for each rank. */
typedef struct devices {
    model m[RANKS];
    rig r[RANKS];
    fleet_peers peers[RANKS];
    char *shared; /* the regions, then the flags and the memory of the first rig */
    size_t bytes, region;
    uint32_t ended[RANKS]; /* FLEET_STATUS_COUNT: it has not run */
    pthread_t thread[RANKS];
    useconds_t late[RANKS]; /* before the launch, in microseconds */
    uint32_t steps;
} devices;

/* other: this rank has a graph of another size; RANKS: none has. */
static int devices_open(test_run *t, devices *d, fleet_schedule schedule, uint32_t other)
{
    setting s;
    uint32_t i, k;
    memset(d, 0, sizeof *d);
    memset(&s, 0, sizeof s);
    s.ranks = RANKS;
    s.schedule = schedule;
    s.topology = fleet_topology_make(2, 1 + (schedule == FLEET_SCHEDULE_CHIPLET));
    s.topology.private_l2 = 0;
    s.seed = 1;
    d->region = 65536;
    d->bytes = RANKS * d->region + 4096 + (1u << 20);
    d->shared =
        (char *)mmap(NULL, d->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(d->shared != (char *)MAP_FAILED);
    for (i = 0; i < RANKS; i++) {
        d->peers[i].rank = i, d->peers[i].ranks = RANKS;
        for (k = 0; k < RANKS; k++) d->peers[i].bases[k] = d->shared + k * d->region;
        s.peers = &d->peers[i];
        model_exchange(&d->m[i], FLEET_LEVEL_CU, i == other ? 5 : 4);
        if (!rig_open(t, &d->r[i], &d->m[i], &s)) return 0;
        NEED(fleet_peers_bytes(d->r[i].plan) <= d->region);
        d->r[i].launch.limit_ns = 10 * SECOND; /* of waits within a rank, on a loaded machine */
        d->r[i].launch.peer_limit_ns = 20 * SECOND;
        d->ended[i] = FLEET_STATUS_COUNT;
    }
    /* All see the same data, in memory that processes share. */
    NEED(d->r[0].bytes <= 1u << 20);
    for (i = 0; i < RANKS; i++) {
        world *w = &d->r[i].w;
        uint32_t *at = (uint32_t *)(void *)(d->shared + RANKS * d->region + 4096);
        w->flags = at - 1024;
        w->cells = at + d->r[0].cells_at, w->cell_of = at + d->r[0].cell_of_at;
        w->first_pred = at + d->r[0].first_pred_at, w->preds = at + d->r[0].preds_at;
        w->runs = at + d->r[0].runs_at, w->tickets = at + d->r[0].tickets_at;
        w->counters = at + d->r[0].counters_at;
        if (i == 0) memcpy(at, d->r[0].initial, d->r[0].bytes);
        NEED_STATUS(rig_world(&d->r[i]), FLEET_OK);
    }
    return 1;
}
static void devices_close(devices *d)
{
    for (uint32_t i = 0; i < RANKS; i++) rig_close(&d->r[i]), model_end(&d->m[i]);
    munmap(d->shared, d->bytes);
}
static int devices_check(test_run *t, devices *d, uint32_t steps)
{
    uint32_t *at = (uint32_t *)(void *)(d->shared + RANKS * d->region + 4096);
    for (uint32_t i = 0; i < RANKS; i++) {
        NEED_STATUS((fleet_status)d->ended[i], FLEET_OK);
        NEED(fleet_state_epoch(&d->r[i].state) == steps);
    }
    memcpy(d->r[0].memory, at, d->r[0].bytes);
    return rig_check(t, &d->r[0], steps);
}

static void run_rank(devices *d, uint32_t rank)
{
    if (d->late[rank]) usleep(d->late[rank]);
    d->ended[rank] = (uint32_t)rig_run(&d->r[rank], d->steps);
}
typedef struct start {
    devices *d;
    uint32_t rank;
} start;
static void *rank_thread(void *start_)
{
    const start *s = (const start *)start_;
    run_rank(s->d, s->rank);
    return NULL;
}
/* Runs the ranks of the mask, each in a thread. */
static void devices_run(devices *d, uint32_t mask, uint32_t steps)
{
    start s[RANKS];
    uint32_t i;
    d->steps = steps;
    for (i = 0; i < RANKS; i++) {
        s[i].d = d, s[i].rank = i;
        if (mask >> i & 1 && pthread_create(&d->thread[i], NULL, rank_thread, &s[i])) abort();
    }
    for (i = 0; i < RANKS; i++)
        if (mask >> i & 1) pthread_join(d->thread[i], NULL);
}

/* A rank ended with `status`, which its report blames on rank `peer` by the words `why`. */
static int blames(test_run *t, devices *d, uint32_t rank, fleet_status status, uint32_t peer,
                  const char *why)
{
    static char report[4096];
    fleet_failure f;
    memset(&f, 0, sizeof f);
    fleet_state_report(&d->r[rank].state, report, sizeof report);
    (void)fleet_state_failure(&d->r[rank].state, &f);
    if (d->ended[rank] == (uint32_t)status && f.status == (uint32_t)status && f.peer == peer &&
        strstr(report, why))
        return 1;
    test_fail(t, __FILE__, __LINE__, "rank %u ended with %s, by rank %u: %s", rank,
              fleet_status_name((fleet_status)d->ended[rank]), f.peer, report);
    return 0;
}

/* ---- what a producer may read ---- */

typedef struct kept { /* of one rank */
    uint32_t *word;   /* by `keep`, read in the next step */
    uint32_t *wrong;
} kept;

FLEET_PRODUCER(take_kept, kept)
{
    FLEET_UNUSED(at);
    if (fleet_producer_await_step(producer)) fleet_producer_copy(producer, args->word, 16);
}
/* The step before has left its number, which nothing but that step's end orders before the copy. */
FLEET_TILE(take_kept, kept)
{
    fleet_consumer consumer = fleet_consumer_open(&ctx);
    const uint32_t *stage = (const uint32_t *)fleet_stage_acquire(&consumer);
    FLEET_UNUSED(at);
    if (!stage) return fleet_consumer_status(&consumer);
    if (*stage && *stage != ctx.epoch - 1 && ctx.thread == 0) ++*args->wrong;
    fleet_stage_release(&consumer, ctx.threads / fleet_wave_size());
    return FLEET_OK;
}
FLEET_TILE(keep, kept)
{
    FLEET_UNUSED(at);
    if (ctx.thread == 0) *args->word = ctx.epoch;
    return FLEET_OK;
}
#define KEPT_TILES(TILE, P) TILE(P, take_kept) TILE(P, keep)
#define KEPT_STREAMS(TILE, P) TILE(P, take_kept)
FLEET_DISPATCH_WITH_PIPELINE(kept, KEPT_TILES, KEPT_STREAMS, 4, 1024)
FLEET_KERNEL(kept_kernel, kept, FLEET_ANY_THREADS(64))
{
    FLEET_STATIC_WORKER_LOOP(kept);
}

typedef struct kept_rank {
    const fleet_plan *plan;
    fleet_peers peers;
    fleet_image image;
    fleet_state state;
    kept args;
    uint32_t words[4] __attribute__((aligned(16)));
    uint32_t wrong;
    fleet_status status;
    pthread_t thread;
} kept_rank;

static void *run_kept(void *rank_)
{
    kept_rank *r = (kept_rank *)rank_;
    fleet_launch_desc d = fleet_launch_desc_default();
    d.steps = 5, d.threads = 64, d.pipeline_bytes = FLEET_PIPELINE_BYTES(kept);
    d.limit_ns = 2 * SECOND, d.peer_limit_ns = 4 * SECOND;
    r->status = fleet_launch(&r->state, &d, FLEET_KERNEL_OF(kept_kernel), &r->args);
    if (!r->status) r->status = fleet_state_wait(&r->state, NULL);
    return NULL;
}

/* The producer of each rank waits for the steps of that rank. */
static void producers_read_what_the_last_step_wrote(test_run *t)
{
    static char regions[RANKS][65536] __attribute__((aligned(128)));
    kept_rank r[RANKS];
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_plan_desc p = fleet_plan_desc_default();
    fleet_plan *plan = NULL;
    const fleet_shape ranks = fleet_shape1_of(RANKS);
    fleet_grid take = fleet_call_device(g, "take", kept_take_kept, ranks, 0),
               keep = fleet_call_device(g, "keep", kept_keep, ranks, 0);
    fleet_etensor taken = fleet_event_tensor(g, "taken", ranks, FLEET_COUNT_DERIVED);
    fleet_grid_ranks(g, take, fleet_axis(0, 1, 0, 1));
    fleet_grid_ranks(g, keep, fleet_axis(0, 1, 0, 1));
    fleet_out_edge(g, take, taken, "r->r"), fleet_in_edge(g, keep, taken, "r->r");
    p.topology = fleet_topology_make(1, 2), p.topology.private_l2 = 0;
    p.ranks = RANKS;
    CHECK_STATUS(fleet_plan_build(g, &p, &plan), FLEET_OK);
    fleet_graph_destroy(g);
    memset(r, 0, sizeof r);
    for (uint32_t i = 0; i < RANKS; i++) {
        fleet_state_desc s = fleet_state_desc_default();
        r[i].plan = plan, r[i].peers.rank = i, r[i].peers.ranks = RANKS;
        for (uint32_t k = 0; k < RANKS; k++) r[i].peers.bases[k] = regions[k];
        r[i].args.word = r[i].words, r[i].args.wrong = &r[i].wrong;
        s.peers = &r[i].peers;
        CHECK_STATUS(fleet_upload(&r[i].image, plan, NULL), FLEET_OK);
        CHECK_STATUS(fleet_state_create(&r[i].state, &r[i].image, &s, NULL), FLEET_OK);
    }
    for (uint32_t i = 0; i < RANKS; i++)
        if (pthread_create(&r[i].thread, NULL, run_kept, &r[i])) abort();
    for (uint32_t i = 0; i < RANKS; i++) pthread_join(r[i].thread, NULL);
    for (uint32_t i = 0; i < RANKS; i++) {
        CHECK_STATUS(r[i].status, FLEET_OK);
        CHECK_INT(r[i].wrong, 0);
        fleet_state_free(&r[i].state), fleet_image_free(&r[i].image);
    }
    fleet_plan_free(plan);
}

static void ranks_run_together(test_run *t)
{
    for (uint32_t i = 0; i < 2; i++) {
        devices d;
        if (!devices_open(t, &d, i ? FLEET_SCHEDULE_CHIPLET : FLEET_SCHEDULE_STATIC, RANKS)) return;
        devices_run(&d, 7, 3);
        devices_run(&d, 7, 2);
        if (!devices_check(t, &d, 5)) return;
        devices_close(&d);
    }
}

/* Its peers wait longer than a wait within a device may take, and nothing times out. */
static void a_rank_may_start_late(test_run *t)
{
    devices d;
    if (!devices_open(t, &d, FLEET_SCHEDULE_STATIC, RANKS)) return;
    for (uint32_t i = 0; i < RANKS; i++) d.r[i].launch.limit_ns = SECOND;
    d.late[1] = 1500000;
    devices_run(&d, 7, 2);
    d.late[1] = 0, d.late[2] = 1500000; /* it has met the others, and notifies late */
    devices_run(&d, 7, 1);
    if (!devices_check(t, &d, 3)) return;
    devices_close(&d);
}

static void a_rank_that_does_not_start_is_named(test_run *t)
{
    devices d;
    if (!devices_open(t, &d, FLEET_SCHEDULE_STATIC, RANKS)) return;
    d.r[0].launch.peer_limit_ns = SECOND;
    devices_run(&d, 3, 1);
    if (!blames(t, &d, 0, FLEET_ERROR_PEER_TIMEOUT, 2, "rank 2 has not started")) return;
    if (!blames(t, &d, 1, FLEET_ERROR_PEER_FAILED, 2, "rank 2 has failed")) return;
    devices_run(&d, 4, 1); /* it comes when the others have given it up */
    if (!blames(t, &d, 2, FLEET_ERROR_PEER_FAILED, 2, "rank 2 has failed")) return;
    /* All recover, and go on. */
    for (uint32_t i = 0; i < RANKS; i++) {
        CHECK_STATUS(fleet_state_recover(&d.r[i].state, NULL), FLEET_OK);
        d.r[i].launch.peer_limit_ns = 20 * SECOND;
    }
    memcpy(d.shared + RANKS * d.region + 4096, d.r[0].initial, d.r[0].bytes);
    devices_run(&d, 7, 2);
    if (!devices_check(t, &d, 2)) return;
    devices_close(&d);
}

static void a_rank_that_stops_notifying_is_named(test_run *t)
{
    devices d;
    if (!devices_open(t, &d, FLEET_SCHEDULE_STATIC, RANKS)) return;
    devices_run(&d, 7, 1);
    d.r[0].launch.peer_limit_ns = SECOND;
    devices_run(&d, 5, 1);
    if (!blames(t, &d, 0, FLEET_ERROR_PEER_TIMEOUT, 1, "rank 1 has not notified")) return;
    if (!blames(t, &d, 2, FLEET_ERROR_PEER_FAILED, 1, "rank 1 has failed")) return;
    devices_close(&d);
}

static void a_rank_with_another_plan_is_named(test_run *t)
{
    devices d;
    if (!devices_open(t, &d, FLEET_SCHEDULE_STATIC, 1)) return;
    devices_run(&d, 7, 1);
    for (uint32_t i = 0; i < RANKS; i += 2) {
        fleet_failure f;
        CHECK(fleet_state_failure(&d.r[i].state, &f));
        /* Unless another rank was faster to find it. */
        if (f.status == FLEET_ERROR_PEER_PLAN)
            CHECK_INT(f.peer, 1);
        else
            CHECK_INT(f.status, FLEET_ERROR_PEER_FAILED);
        CHECK(d.ended[i] != FLEET_OK);
    }
    CHECK(d.ended[1] != FLEET_OK);
    devices_close(&d);
}

/* Rank 0 waits for rank 1, which is late, when rank 2 finds that its own plan is another one and
   stops the rest. */
static void a_rank_with_another_plan_is_named_by_all(test_run *t)
{
    devices d;
    if (!devices_open(t, &d, FLEET_SCHEDULE_STATIC, 2)) return;
    d.late[1] = 300000;
    devices_run(&d, 7, 1);
    if (!blames(t, &d, 0, FLEET_ERROR_PEER_PLAN, 2, "rank 2 has another plan")) return;
    if (!blames(t, &d, 1, FLEET_ERROR_PEER_PLAN, 2, "rank 2 has another plan")) return;
    devices_close(&d);
}

static void a_failure_travels(test_run *t)
{
    devices d;
    fleet_failure f;
    if (!devices_open(t, &d, FLEET_SCHEDULE_STATIC, RANKS)) return;
    if (!rig_odd(t, &d.r[2], ODD_FAIL_ALL, ODD_EVERY, ODD_EVERY, 1)) return;
    d.r[2].w.odd_first = 0, d.r[2].w.odd_end = d.r[2].n_tasks;
    if (!rig_odd(t, &d.r[2], ODD_FAIL_ALL, ODD_EVERY, ODD_EVERY, 1)) return;
    devices_run(&d, 7, 3);
    CHECK_INT(d.ended[2], FLEET_ERROR_TILE);
    CHECK(fleet_state_failure(&d.r[2].state, &f));
    CHECK_INT(f.peer, 2);
    if (!blames(t, &d, 0, FLEET_ERROR_PEER_FAILED, 2, "rank 2 has failed")) return;
    if (!blames(t, &d, 1, FLEET_ERROR_PEER_FAILED, 2, "rank 2 has failed")) return;
    devices_close(&d);
}

static void an_abort_travels(test_run *t)
{
    devices d;
    if (!devices_open(t, &d, FLEET_SCHEDULE_STATIC, RANKS)) return;
    d.late[1] = 300000;
    fleet_state_abort(&d.r[1].state);
    devices_run(&d, 7, 1);
    CHECK_INT(d.ended[1], FLEET_ERROR_ABORTED);
    if (!blames(t, &d, 0, FLEET_ERROR_PEER_FAILED, 1, "rank 1 has failed")) return;
    if (!blames(t, &d, 2, FLEET_ERROR_PEER_FAILED, 1, "rank 1 has failed")) return;
    devices_close(&d);
}

/* Whichever of its workgroups sees the abort, the one that meets the others or one that waits for it. */
static void an_abort_while_ranks_meet_travels(test_run *t)
{
    devices d;
    start s;
    uint32_t round, i;
    if (!devices_open(t, &d, FLEET_SCHEDULE_STATIC, RANKS)) return;
    d.steps = 1;
    s.d = &d, s.rank = 1;
    d.r[0].launch.peer_limit_ns = 2 * SECOND;
    for (round = 0; round < 12; round++) {
        if (pthread_create(&d.thread[1], NULL, rank_thread, &s)) abort();
        usleep(20000 + 1000 * round);
        fleet_state_abort(&d.r[1].state);
        pthread_join(d.thread[1], NULL);
        CHECK_INT(d.ended[1], FLEET_ERROR_ABORTED);
        run_rank(&d, 0);
        if (!blames(t, &d, 0, FLEET_ERROR_PEER_FAILED, 1, "rank 1 has failed")) return;
        for (i = 0; i < RANKS; i++)
            CHECK_STATUS(fleet_state_recover(&d.r[i].state, NULL), FLEET_OK);
    }
    devices_close(&d);
}

/* Its device has too few workgroups for its plan. */
static void a_rank_that_cannot_begin_is_named(test_run *t)
{
    devices d;
    fleet_plan header;
    uint32_t i;
    if (!devices_open(t, &d, FLEET_SCHEDULE_STATIC, RANKS)) return;
    header = *d.r[1].plan;
    for (i = 0; i < header.chiplets; i++) header.workers[i] += 1000;
    CHECK_STATUS(fleet_to_device(d.r[1].image.device, &header, sizeof header, NULL), FLEET_OK);
    d.r[0].launch.peer_limit_ns = 2 * SECOND;
    d.steps = 1;
    run_rank(&d, 1);
    CHECK_INT(d.ended[1], FLEET_ERROR_RESIDENCY);
    run_rank(&d, 0);
    if (!blames(t, &d, 0, FLEET_ERROR_PEER_FAILED, 1, "rank 1 has failed")) return;
    devices_close(&d);
}

#if !defined(__SANITIZE_THREAD__) /* threads in forked processes */
/* Rank 1 is a process that dies while its tile runs. */
static void a_rank_that_is_killed_is_named(test_run *t)
{
    devices d;
    pid_t child[RANKS];
    uint32_t i;
    int status;
    if (!devices_open(t, &d, FLEET_SCHEDULE_STATIC, RANKS)) return;
    d.r[1].w.odd_first = 0, d.r[1].w.odd_end = d.r[1].n_tasks;
    if (!rig_odd(t, &d.r[1], ODD_HANG, ODD_EVERY, ODD_EVERY, 1)) return;
    d.steps = 3;
    for (i = 0; i < RANKS; i++) {
        d.r[i].launch.peer_limit_ns = 4 * SECOND;
        fflush(stdout);
        child[i] = fork();
        CHECK(child[i] >= 0);
        if (child[i]) continue;
        alarm(60);
        run_rank(&d, i);
        t->failed_here = 0;
        {
            fleet_failure f;
            memset(&f, 0, sizeof f);
            (void)fleet_state_failure(&d.r[i].state, &f);
            if ((f.status == FLEET_ERROR_PEER_TIMEOUT || f.status == FLEET_ERROR_PEER_FAILED) &&
                f.peer == 1)
                _exit(0);
            fprintf(stderr, "rank %u ended with %s, which blames rank %u\n", i,
                    fleet_status_name((fleet_status)f.status), f.peer);
            _exit(1);
        }
    }
    while (!__atomic_load_n(d.r[1].w.flags, __ATOMIC_ACQUIRE)) usleep(1000);
    CHECK_INT(kill(child[1], SIGKILL), 0);
    for (i = 0; i < RANKS; i++) {
        CHECK(waitpid(child[i], &status, 0) == child[i]);
        if (i == 1)
            CHECK(WIFSIGNALED(status));
        else
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    devices_close(&d);
}
#endif

/* Tables and plans that cannot be used. */
static void tables_are_checked(test_run *t)
{
    devices d;
    fleet_peers p;
    char why[160];
    const fleet_plan *plan;
    if (!devices_open(t, &d, FLEET_SCHEDULE_STATIC, RANKS)) return;
    plan = d.r[0].plan;
    p = d.peers[0];
    CHECK_STATUS(fleet_peers_check(&p, plan, why, sizeof why), FLEET_OK);
    CHECK_STATUS(fleet_peers_check(NULL, plan, why, sizeof why), FLEET_ERROR_NULL);
    CHECK_TEXT(why, "fleet_state_desc.peers is null");
    p.bases[1] = NULL;
    CHECK_STATUS(fleet_peers_check(&p, plan, why, sizeof why), FLEET_ERROR_NULL);
    CHECK_TEXT(why, "bases[1] is null");
    p.bases[1] = (char *)d.peers[0].bases[1] + 4;
    CHECK_STATUS(fleet_peers_check(&p, plan, why, sizeof why), FLEET_ERROR_ARGUMENT);
    CHECK_TEXT(why, "bases[1] is not 128-byte aligned");
    p = d.peers[0], p.ranks = 2;
    CHECK_STATUS(fleet_peers_check(&p, plan, why, sizeof why), FLEET_ERROR_ARGUMENT);
    CHECK_TEXT(why, "ranks is 2, but the plan is for 3");
    p = d.peers[0], p.rank = 3;
    CHECK_STATUS(fleet_peers_check(&p, plan, why, sizeof why), FLEET_ERROR_ARGUMENT);
    {
        fleet_state_desc desc = fleet_state_desc_default();
        fleet_state state;
        CHECK_STATUS(fleet_state_create(&state, &d.r[0].image, &desc, NULL), FLEET_ERROR_NULL);
        CHECK_TEXT(state.message, "fleet_state_desc.peers is null");
    }
    d.r[0].launch.finish = 1;
    CHECK_STATUS(rig_launch(&d.r[0], 1), FLEET_ERROR_UNSUPPORTED);
    devices_close(&d);
}

static void all(test_run *t)
{
    TEST(ranks_run_together);
    TEST(producers_read_what_the_last_step_wrote);
    TEST(a_rank_may_start_late);
    TEST(a_rank_that_does_not_start_is_named);
    TEST(a_rank_that_stops_notifying_is_named);
    TEST(a_rank_with_another_plan_is_named);
    TEST(a_rank_with_another_plan_is_named_by_all);
    TEST(a_failure_travels);
    TEST(an_abort_travels);
    TEST(an_abort_while_ranks_meet_travels);
    TEST(a_rank_that_cannot_begin_is_named);
#if !defined(__SANITIZE_THREAD__)
    TEST(a_rank_that_is_killed_is_named);
#endif
    TEST(tables_are_checked);
}
TEST_MAIN(all)
