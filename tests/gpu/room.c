/* The room that a device has for workgroups, where its runtime answers wrongly or the program has a part of the device:
   occupancy queries that answer 0 for a kernel that runs, no cooperative launches, a CU mask. The simulated GPU answers
   so by its environment, which each case sets in a process of its own; others run the cases as they are. */
// run: asan engine=both
// hip: 6 runs
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
FLEET_MEGAKERNEL(tally, TALLY_TILES, FLEET_ANY_THREADS(64))

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
typedef void (*run_fn)(test_run *t, const answers *a);
static void in_process(test_run *t, run_fn run, const answers *a)
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
        run(t, a);
        fflush(stdout);
        _exit(t->failed_here != 0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) && WEXITSTATUS(status) != 1))
        test_fail(t, __FILE__, __LINE__, "the process ended with %x", (unsigned)status);
    t->failed_here |= status != 0; /* it has said why */
}

static void in_room(test_run *t, const answers *a)
{
    in_process(t, run_in_room, a);
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

/* ---- a green context ---- */

#if defined(FLEET_CUDA) && CUDART_VERSION >= 12050
#include <cuda.h>

/* Calls a function of the driver, which the program does not link. */
static void *driver(const char *name)
{
    enum cudaDriverEntryPointQueryResult found;
    void *function = NULL;
    if (cudaGetDriverEntryPointByVersion(name, &function, 12040, cudaEnableDefault, &found) ||
        found != cudaDriverEntryPointSuccess)
        return NULL;
    return function;
}
#define DRIVER(name) ((decltype(&name))driver(#name))

static uint32_t units_of(const fleet_topology *chip)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < chip->chiplets; k++) n += chip->units[k];
    return n;
}

/* lds: so much that an SM holds one workgroup. */
static void run_on(test_run *t, fleet_stream stream, const fleet_topology *chip, uint32_t lds,
                   fleet_status want, const char *says)
{
    fleet_session_desc d = fleet_session_desc_default();
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_session s;
    char text[2048];
    tally args;
    fleet_call_device(g, "count", 0, fleet_shape1_of(TASKS), 0);
    if (chip) d.plan.topology = *chip;
    d.launch.stream = stream, d.launch.lds_bytes = lds;
    CHECK_STATUS(fleet_session_open(&s, g, &d, FLEET_KERNEL_OF(tally_kernel)), FLEET_OK);
    args.runs = (uint32_t *)fleet_session_alloc(&s, TASKS * sizeof(uint32_t));
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), want);
    CHECK_STATUS(fleet_session_wait(&s), want);
    fleet_session_report(&s, text, sizeof text);
    if (says) CHECK_TEXT(text, says);
    fleet_session_close(&s);
    fleet_graph_destroy(g);
}

#define GREEN_SMS 64
static void run_in_green_context(test_run *t, const answers *a)
{
    fleet_topology whole, part;
    CUdevResource all, group, rest;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CUcontext context, before;
    CUstream stream;
    unsigned groups = 1;
    uint32_t lds;
    char says[128];
    (void)a;
    CHECK_STATUS(fleet_topology_query(&whole), FLEET_OK);
    if (units_of(&whole) <= GREEN_SMS || !driver("cuGreenCtxStreamCreate")) {
        printf("skip a_green_context_is_what_it_has: needs more than %d SMs, and CUDA 12.5\n",
               GREEN_SMS);
        return;
    }
    CHECK(!DRIVER(cuDeviceGetDevResource)(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(!DRIVER(cuDevSmResourceSplitByCount)(&group, &groups, &all, &rest, 0, GREEN_SMS));
    CHECK(!DRIVER(cuDevResourceGenerateDesc)(&desc, &group, 1));
    CHECK(!DRIVER(cuGreenCtxCreate)(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK(!DRIVER(cuGreenCtxStreamCreate)(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    lds = whole.lds_bytes * 3 / 4 / 1024 * 1024;
    /* By the stream. */
    CHECK_STATUS(fleet_topology_query_stream(&part, (fleet_stream)stream), FLEET_OK);
    CHECK_INT(units_of(&part), group.sm.smCount);
    CHECK_STATUS(fleet_topology_query(&part), FLEET_OK);
    CHECK_INT(units_of(&part), units_of(&whole));
    run_on(t, (fleet_stream)stream, NULL, lds, FLEET_OK, NULL);
    snprintf(says, sizeof says,
             "%u workgroups are more than 1 on each of %u CUs or SMs (the device has %u)",
             units_of(&whole), group.sm.smCount, units_of(&whole));
    run_on(t, (fleet_stream)stream, &whole, lds, FLEET_ERROR_TOO_MANY_WORKERS, says);
    /* By the current context. */
    CHECK(!DRIVER(cuCtxGetCurrent)(&before));
    CHECK(!DRIVER(cuCtxFromGreenCtx)(&context, green));
    CHECK(!DRIVER(cuCtxSetCurrent)(context));
    CHECK_STATUS(fleet_topology_query(&part), FLEET_OK);
    CHECK_INT(units_of(&part), group.sm.smCount);
    run_on(t, NULL, NULL, lds, FLEET_OK, NULL);
    CHECK(!DRIVER(cuCtxSetCurrent)(before));
    run_on(t, NULL, NULL, lds, FLEET_OK, NULL); /* on the whole device */
}
static void a_green_context_is_what_it_has(test_run *t)
{
    const answers a = truth();
    in_process(t, run_in_green_context, &a);
}
#endif

static void list(test_run *t)
{
    TEST(a_query_that_answers_0_is_not_believed);
    TEST(launches_are_ordinary_where_none_is_cooperative);
    TEST(a_masked_device_is_what_is_left);
    TEST(too_many_workers_are_refused_unless_told);
#if defined(FLEET_CUDA) && CUDART_VERSION >= 12050
    TEST(a_green_context_is_what_it_has);
#endif
}

TEST_MAIN(list)
