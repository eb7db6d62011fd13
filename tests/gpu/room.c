/* The room that a device has for workgroups, where its runtime answers wrongly or the program has a part of the device:
   occupancy queries that answer 0 for a kernel that runs, no cooperative launches, a CU mask. The simulated GPU answers
   so by its environment, which each case sets in a process of its own; others run the cases as they are. */
// run: asan engine=both
#if !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE /* setenv */
#endif
#include "settings.h"

#include <sys/wait.h>
#include <unistd.h>

#define TASKS 40

typedef struct tally {
    uint32_t *runs;
} tally;
FLEET_TILE(count, tally)
{
    if (ctx.thread == 0) fleet_add_relaxed_device(args->runs + at[0], 1);
    return FLEET_OK;
}
#define TALLY_TILES(TILE, P) TILE(P, count)
FLEET_MEGAKERNEL(tally, TALLY_TILES, 64)

#define CUS 4 /* of each simulated XCD: a run takes little */
#define MASKED 3

typedef struct answers {
    const char *occupancy, *cooperative, *masked; /* null: the truth */
    uint32_t scale, ignore; /* workers for each CU or SM; fleet_launch_desc.ignore_occupancy */
    fleet_status want;      /* of the launch; FLEET_OK: it runs, and its wait returns that of... */
    fleet_status wait;      /* ...the run */
    const char *says;
} answers;

/* Whether the environment decides what the device answers. */
static int is_simulated(void)
{
    return getenv("AMDSIM_SEED") != NULL || getenv("AMDSIM_XCDS") != NULL;
}

static void run_in_room(test_run *t, const answers *a)
{
    fleet_session_desc d = fleet_session_desc_default();
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_session s;
    uint32_t runs[TASKS];
    char text[2048];
    tally args;
    fleet_call_device(g, "count", 0, fleet_shape1_of(TASKS), 0);
    CHECK_STATUS(fleet_topology_query_stream(&d.plan.topology, d.launch.stream), FLEET_OK);
#if defined(FLEET_HIP)
    if (a->masked && is_simulated()) CHECK_INT(d.plan.topology.units[0], CUS - MASKED);
#endif
    for (uint32_t k = 0; k < d.plan.topology.chiplets; k++) d.plan.topology.units[k] *= a->scale;
    d.launch.ignore_occupancy = a->ignore;
    d.launch.limit_ns = 2000000000;
#if defined(FLEET_HIP)
    if (is_simulated()) d.launch.limit_ns = 500000;
#endif
    CHECK_STATUS(fleet_session_open(&s, g, &d, FLEET_KERNEL_OF(tally_kernel)), FLEET_OK);
    args.runs = (uint32_t *)fleet_session_alloc(&s, sizeof runs);
    CHECK_STATUS(fleet_device_clear(args.runs, sizeof runs, s.launch.stream), FLEET_OK);
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), a->want);
    CHECK_STATUS(fleet_session_wait(&s), a->want ? a->want : a->wait);
    fleet_session_report(&s, text, sizeof text);
    if (a->says) CHECK_TEXT(text, a->says);
    CHECK_STATUS(fleet_to_host(runs, args.runs, sizeof runs, s.launch.stream), FLEET_OK);
    for (uint32_t i = 0; i < TASKS; i++) CHECK_INT(runs[i], !a->want && !a->wait);
    fleet_session_close(&s);
    fleet_graph_destroy(g);
}

/* In a process of its own: a runtime reads its environment once. */
static void in_room(test_run *t, const answers *a)
{
    int status = 0;
    pid_t child;
    fflush(stdout);
    if (!(child = fork())) {
        if (is_simulated()) {
            char cus[8];
            snprintf(cus, sizeof cus, "%d", CUS);
            setenv("AMDSIM_CUS", cus, 1);
            if (a->occupancy) setenv("AMDSIM_OCCUPANCY", a->occupancy, 1);
            if (a->cooperative) setenv("AMDSIM_COOPERATIVE", a->cooperative, 1);
            if (a->masked) setenv("AMDSIM_MASKED", a->masked, 1);
        }
        run_in_room(t, a);
        fflush(stdout);
        _exit(t->failed_here != 0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) && WEXITSTATUS(status) != 1))
        test_fail(t, __FILE__, __LINE__, "the process ended with %x", (unsigned)status);
    t->failed_here |= status != 0; /* it has said why */
}

static answers truth(void)
{
    answers a;
    memset(&a, 0, sizeof a);
    a.scale = 1;
    return a;
}

static void a_query_that_answers_0_is_not_believed(test_run *t)
{
    answers a = truth();
    in_room(t, &a);
    a.occupancy = "0";
    in_room(t, &a);
}
static void launches_are_ordinary_where_none_is_cooperative(test_run *t)
{
    answers a = truth();
    a.cooperative = "0";
    in_room(t, &a);
    a.occupancy = "0";
    in_room(t, &a);
}
static void a_masked_device_is_what_is_left(test_run *t)
{
    answers a = truth();
    a.masked = "3";
    in_room(t, &a);
    a.occupancy = "0", a.cooperative = "0";
    in_room(t, &a);
}
/* Engines on the CPU have room for any number. */
static void too_many_workers_are_refused_unless_told(test_run *t)
{
#if !defined(FLEET_HOST)
    answers a = truth();
    a.scale = 100, a.want = FLEET_ERROR_TOO_MANY_WORKERS,
    a.says = "or ignore_occupancy of the launch";
    in_room(t, &a);
    a.ignore = 1, a.want = FLEET_OK, a.wait = FLEET_ERROR_RESIDENCY, a.says = NULL;
    in_room(t, &a);
    if (!is_simulated()) return;
    a = truth(); /* the answer is too small */
    a.occupancy = "1", a.scale = 2, a.want = FLEET_ERROR_TOO_MANY_WORKERS;
    a.says = "workgroups are more than 1 on each of";
    in_room(t, &a);
    a.ignore = 1, a.want = FLEET_OK, a.says = NULL;
    in_room(t, &a);
    a = truth(); /* the device has what the mask leaves */
    a.masked = "3", a.scale = 100, a.want = FLEET_ERROR_TOO_MANY_WORKERS,
    a.says = "(the device has ";
    in_room(t, &a);
#else
    (void)t;
#endif
}

static void list(test_run *t)
{
    TEST(a_query_that_answers_0_is_not_believed);
    TEST(launches_are_ordinary_where_none_is_cooperative);
    TEST(a_masked_device_is_what_is_left);
    TEST(too_many_workers_are_refused_unless_told);
}

TEST_MAIN(list)
