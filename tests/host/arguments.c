/* Null and bad arguments of what fleet_device.h and fleet_sched.h offer, and where things lie in memory. */
// run: asan whole
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

/* A machine that starts only so many threads, while `limited`. */
static int limited;
static uint32_t threads_left;
static int limited_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *),
                          void *arg)
{
    if (limited && threads_left-- == 0) return EAGAIN;
    return pthread_create(thread, attr, main, arg);
}
#define pthread_create limited_create

#include "model.h"
#include "examples/parts/fleet_server.h"
#include "examples/parts/fleet_trace.h"

static void null_arguments(test_run *t)
{
    fleet_topology topology = fleet_topology_make(2, 2);
    fleet_kernel_desc k = fleet_kernel_desc_default();
    fleet_launch_desc d = fleet_launch_desc_default();
    fleet_state_desc sd = fleet_state_desc_default();
    fleet_image image;
    fleet_state state, none;
    fleet_kernel no_kernel;
    fleet_run run;
    fleet_event event;
    fleet_failure failure;
    char text[16];
    void *a = NULL, *b = NULL, *args[2];
    uint32_t done;
    model m;
    rig r;
    setting s;
    memset(&none, 0, sizeof none);
    memset(&no_kernel, 0, sizeof no_kernel);
    memset(&image, 0, sizeof image);
    CHECK(setting_get(0, 1, &s));
    model_split_row_sum(&m, 2, 2);
    if (!rig_open(t, &r, &m, &s)) return;
    args[0] = args[1] = &d;
    CHECK_STATUS(fleet_device_alloc(NULL, 4), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_pinned_alloc(NULL, &b, 4), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_pinned_alloc(&a, NULL, 4), FLEET_ERROR_NULL);
    fleet_device_free(NULL);
    fleet_pinned_free(NULL);
    CHECK_STATUS(fleet_device_alloc(&a, 0), FLEET_OK);
    fleet_device_free(a);
    CHECK_STATUS(fleet_to_device(NULL, &d, 4, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_to_device(r.memory, NULL, 4, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_to_device(NULL, NULL, 0, NULL), FLEET_OK);
    CHECK_STATUS(fleet_to_host(NULL, r.memory, 4, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_to_host(&d, NULL, 4, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_to_host(NULL, NULL, 0, NULL), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(NULL, 4, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_device_clear(NULL, 0, NULL), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&a, SIZE_MAX), FLEET_ERROR_MEMORY);
    CHECK_STATUS(fleet_pinned_alloc(&a, &b, SIZE_MAX), FLEET_ERROR_MEMORY);
    CHECK_STATUS(fleet_kernel_launch(no_kernel, args, &k), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(world_kernel), NULL, &k), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(world_kernel), args, NULL), FLEET_ERROR_NULL);
    k.blocks = 0;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(world_kernel), args, &k),
                 FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_topology_query(NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_topology_query(&topology), FLEET_OK);
    CHECK_STATUS(fleet_image_init(NULL, r.plan, r.image.device, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_image_init(&image, NULL, r.image.device, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_image_init(&image, r.plan, NULL, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_upload(NULL, r.plan, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_upload(&image, NULL, NULL), FLEET_ERROR_NULL);
    fleet_image_free(NULL);
    memset(&image, 0, sizeof image);
    CHECK_INT(fleet_state_bytes(NULL), 0);
    CHECK_INT(fleet_state_host_bytes(NULL), 0);
    CHECK_STATUS(fleet_state_init(NULL, &r.image, &sd, r.memory, r.memory, r.memory, NULL),
                 FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_state_init(&state, NULL, &sd, r.memory, r.memory, r.memory, NULL),
                 FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_state_init(&state, &image, &sd, r.memory, r.memory, r.memory, NULL),
                 FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_state_init(&state, &r.image, &sd, NULL, r.memory, r.memory, NULL),
                 FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_state_init(&state, &r.image, &sd, r.memory, NULL, r.memory, NULL),
                 FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_state_init(&state, &r.image, &sd, r.memory, r.memory, NULL, NULL),
                 FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_state_create(NULL, &r.image, NULL, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_state_create(&state, NULL, NULL, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_state_create(&state, &image, NULL, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_state_create(&state, &r.image, NULL, NULL), FLEET_OK);
    fleet_state_free(&state);
    fleet_state_free(NULL);
    CHECK_STATUS(fleet_launch(NULL, &d, FLEET_KERNEL_OF(world_kernel), r.device), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_launch(&none, &d, FLEET_KERNEL_OF(world_kernel), r.device),
                 FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_launch(&r.state, NULL, FLEET_KERNEL_OF(world_kernel), r.device),
                 FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_launch(&r.state, &d, no_kernel, r.device), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_run_prepare(NULL, &d, &run), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_run_prepare(&r.state, NULL, &run), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_run_prepare(&r.state, &d, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_run_prepare(&r.state, &d, &run), FLEET_OK);
    CHECK_STATUS(fleet_launch_args(NULL, &d, &run, FLEET_KERNEL_OF(world_kernel), args),
                 FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_launch_args(&r.state, NULL, &run, FLEET_KERNEL_OF(world_kernel), args),
                 FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_launch_args(&r.state, &d, NULL, FLEET_KERNEL_OF(world_kernel), args),
                 FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_launch_args(&r.state, &d, &run, no_kernel, args), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_launch_args(&r.state, &d, &run, FLEET_KERNEL_OF(world_kernel), NULL),
                 FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_launch_task(NULL, &d, FLEET_KERNEL_OF(world_kernel), r.device, 0, 0),
                 FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_launch_task(&r.state, &d, no_kernel, r.device, 0, 0), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_launch_task(&r.state, &d, FLEET_KERNEL_OF(world_kernel), r.device, 999, 0),
                 FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_state_status(NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_state_status(&none), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_state_wait(NULL, NULL), FLEET_ERROR_NULL);
    CHECK_INT(fleet_state_epoch(NULL), 0);
    CHECK_INT(fleet_state_epoch(&none), 0);
    fleet_state_abort(NULL);
    fleet_state_abort(&none);
    CHECK_STATUS(fleet_state_recover(NULL, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_state_recover(&none, NULL), FLEET_ERROR_NULL);
    CHECK_INT(fleet_state_failure(NULL, &failure), 0);
    CHECK_INT(fleet_state_failure(&r.state, NULL), 0);
    CHECK_INT(fleet_state_failure(&r.state, &failure), 0);
    CHECK_INT(fleet_state_report(NULL, text, sizeof text), 0);
    CHECK_INT(fleet_state_report(&none, text, sizeof text), 0);
    CHECK(fleet_state_report(&r.state, NULL, 0) > sizeof text);
    CHECK(fleet_state_report(&r.state, text, sizeof text) > sizeof text && !text[sizeof text - 1]);
    CHECK_STATUS(fleet_event_notify(NULL, 0, 0, 1), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_event_notify(&r.state, -1, 0, 1), FLEET_ERROR_HANDLE);
    CHECK_STATUS(fleet_event_notify(&r.state, 99, 0, 1), FLEET_ERROR_HANDLE);
    CHECK_STATUS(fleet_event_notify(&r.state, 0, 99, 1), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_event_notify(&r.state, 0, 0, 1), FLEET_ERROR_SCOPE);
    CHECK_STATUS(fleet_event_test(&r.state, 0, 0, 1, &done), FLEET_ERROR_SCOPE);
    CHECK_STATUS(fleet_event_test(NULL, 0, 0, 1, &done), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_event_wait(NULL, 0, 0, 1, 1), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_event_handle(NULL, 0, 0, &event), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_event_handle(&r.state, 0, 0, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_event_handle(&r.state, 0, 2, &event), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_event_handle(&r.state, 0, 1, &event), FLEET_OK);
    /* After all of that it still runs. */
    CHECK_RUN(&r, 1);
    if (!rig_check(t, &r, 1)) return;
    rig_close(&r);
    model_end(&m);
}

/* A launch with a field out of its range is refused, and the report names the field. */
static void refused(test_run *t, rig *r, const fleet_launch_desc *d, const char *field)
{
    char text[4096];
    fleet_run run;
    CHECK_STATUS(fleet_run_prepare(&r->state, d, &run), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_launch(&r->state, d, FLEET_KERNEL_OF(world_kernel), r->device),
                 FLEET_ERROR_ARGUMENT);
    fleet_state_report(&r->state, text, sizeof text);
    CHECK_TEXT(text, field);
    CHECK_STATUS(fleet_run_prepare(&r->state, &r->launch, &run), FLEET_OK);
    CHECK_STATUS(fleet_launch_args(&r->state, d, &run, FLEET_KERNEL_OF(world_kernel), (void **)&d),
                 FLEET_ERROR_ARGUMENT);
}
static void fields_out_of_range(test_run *t)
{
    fleet_kernel_desc k = fleet_kernel_desc_default();
    fleet_state_desc sd = fleet_state_desc_default();
    fleet_trace_desc tracing = fleet_trace_desc_default();
    fleet_trace trace;
    fleet_launch_desc d;
    fleet_state other;
    fleet_run run;
    char text[4096];
    void *args[2];
    model m;
    rig r;
    setting s;
    CHECK(setting_get(0, 1, &s));
    model_split_row_sum(&m, 2, 2);
    if (!rig_open(t, &r, &m, &s)) return;
    args[0] = args[1] = &r.device;
    d = r.launch, d.host.engine = (fleet_host_engine)9;
    refused(t, &r, &d, "fleet_launch_desc.host: engine");
    d = r.launch, d.host.waves = 65;
    refused(t, &r, &d, "fleet_launch_desc.host: waves");
    d = r.launch, d.host.stack_bytes = 1;
    refused(t, &r, &d, "fleet_launch_desc.host: stack_bytes");
    /* The plan's topology has waves of 64 lanes. */
    d = r.launch, d.threads = 96;
    refused(t, &r, &d, "fleet_launch_desc.threads is 96, not a multiple of the wave size 64");
    d = r.launch, d.threads = 1024 + 64;
    refused(t, &r, &d, "fleet_launch_desc.threads is 1088: at most 1024");
    d = r.launch, d.threads = 1024, d.pipeline_bytes = 256;
    refused(t, &r, &d, "fleet_launch_desc.threads is 1024: at most 1023 beside the producer");
    d = r.launch, d.host.waves = 64, d.pipeline_bytes = 256;
    refused(t, &r, &d, "fleet_launch_desc.host: waves is over 64, with the producer's");
    d = r.launch, d.host.engine = FLEET_ENGINE_THREADS, d.host.memory_model = 1;
    refused(t, &r, &d, "fleet_launch_desc.host: memory_model needs the deterministic engine");
    d = r.launch, d.limit_ns = (uint64_t)-1000;
    refused(t, &r, &d, "fleet_launch_desc.limit_ns is negative: -1000");
    d = r.launch, d.limit_ns = (uint64_t)INT64_MIN;
    refused(t, &r, &d, "fleet_launch_desc.limit_ns");
    d = r.launch, d.lds_bytes = UINT32_MAX, d.pipeline_bytes = 1;
    refused(t, &r, &d, "fleet_launch_desc.lds_bytes");
    if (t->failed_here) return;
    k.host.engine = (fleet_host_engine)9;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(world_kernel), args, &k),
                 FLEET_ERROR_ARGUMENT);
    k = fleet_kernel_desc_default(), k.host.engine = FLEET_ENGINE_DETERMINISTIC;
    k.host.stack_bytes = 1;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(world_kernel), args, &k),
                 FLEET_ERROR_ARGUMENT);
    k = fleet_kernel_desc_default(), k.blocks = UINT32_MAX;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(world_kernel), args, &k),
                 FLEET_ERROR_TOO_MANY_WORKERS);
    sd.placement = (fleet_placement)9;
    CHECK_STATUS(fleet_state_create(&other, &r.image, &sd, NULL), FLEET_ERROR_ARGUMENT);
    sd = fleet_state_desc_default(), sd.spare = UINT32_MAX;
    CHECK_STATUS(fleet_state_create(&other, &r.image, &sd, NULL), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_event_wait(&r.state, 0, 0, 1, (uint64_t)-1000), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_state_create(&other, &r.image, NULL, NULL), FLEET_OK);
    CHECK_STATUS(fleet_run_prepare(&other, &r.launch, &run), FLEET_OK);
    CHECK_STATUS(fleet_launch_args(&r.state, &r.launch, &run, FLEET_KERNEL_OF(world_kernel), args),
                 FLEET_ERROR_ARGUMENT);
    fleet_state_report(&r.state, text, sizeof text);
    CHECK_TEXT(text, "fleet_run was prepared for another state");
    CHECK_STATUS(fleet_run_prepare(&r.state, &r.launch, &run), FLEET_OK);
    d = r.launch, d.steps = 3;
    CHECK_STATUS(fleet_launch_args(&r.state, &d, &run, FLEET_KERNEL_OF(world_kernel), args),
                 FLEET_ERROR_ARGUMENT);
    fleet_state_report(&r.state, text, sizeof text);
    CHECK_TEXT(text, "fleet_run.steps is 1, but fleet_launch_desc.steps is 3");
    run.lds_bytes = 512;
    CHECK_STATUS(fleet_launch_args(&r.state, &r.launch, &run, FLEET_KERNEL_OF(world_kernel), args),
                 FLEET_ERROR_ARGUMENT);
    fleet_state_report(&r.state, text, sizeof text);
    CHECK_TEXT(text, "fleet_run.lds_bytes is 512, but fleet_launch_desc has 0");
    /* The kernel knows how many threads it was declared with. */
    d = fleet_launch_desc_default();
    CHECK_INT(d.threads, 0);
    d.threads = 256 + 64;
    CHECK_STATUS(fleet_launch(&r.state, &d, FLEET_KERNEL_OF(world_kernel), r.device),
                 FLEET_ERROR_ARGUMENT);
    fleet_state_report(&r.state, text, sizeof text);
    CHECK_TEXT(text, "fleet_launch_desc.threads is 320, but FLEET_KERNEL declares 256");
    tracing.records = UINT32_MAX;
    CHECK_STATUS(fleet_trace_create(&trace, r.plan, &tracing, NULL), FLEET_ERROR_ARGUMENT);
    tracing.records = 0;
    CHECK_STATUS(fleet_trace_create(&trace, r.plan, &tracing, NULL), FLEET_ERROR_ARGUMENT);
    fleet_state_free(&other);
    CHECK_RUN(&r, 1);
    if (!rig_check(t, &r, 1)) return;
    rig_close(&r);
    model_end(&m);
}

/* Under DYNAMIC the end of the run is an arithmetic comparison of arrivals: more of them than it can tell are refused. */
static void dynamic_refuses_steps_that_it_cannot_count(test_run *t)
{
    fleet_launch_desc d;
    model m;
    rig r;
    setting s;
    uint32_t target, most;
    CHECK(setting_get(0, 1, &s));
    s.schedule = FLEET_SCHEDULE_DYNAMIC;
    model_split_row_sum(&m, 3, 2);
    if (!rig_open(t, &r, &m, &s)) return;
    target = ((const uint32_t *)(const void *)((const char *)r.plan +
                                               r.plan->targets))[r.plan->n_elements - 1];
    most = INT32_MAX / target;
    CHECK(target > 1);
    d = r.launch, d.steps = 0x60000001u;
    refused(t, &r, &d, "fleet_launch_desc.steps is 1610612737: under DYNAMIC");
    d.steps = most + 1;
    refused(t, &r, &d, "fleet_launch_desc.steps");
    if (t->failed_here) return;
    /* The largest number runs: until it is aborted. */
    rig_start(&r, most);
    while (rig_runs(&r, 0) < 100) continue;
    fleet_state_abort(&r.state);
    CHECK_STATUS(rig_join(&r), FLEET_ERROR_ABORTED);
    rig_close(&r);
    model_end(&m);
}

/* A launch for which the k-th thread cannot be started runs nothing and leaves nothing allocated, for every k. */
static void threads_that_do_not_start(test_run *t)
{
    model m;
    rig r;
    setting s;
    uint32_t k, n;
    CHECK(setting_get(0, 1, &s));
    s.waves = 2;
    model_split_row_sum(&m, 2, 2);
    if (!rig_open(t, &r, &m, &s)) return;
    n = r.state.blocks * s.waves - 1; /* the caller is one of them */
    for (k = 0; k <= n; k++) {
        fleet_status status;
        limited = 1, threads_left = k;
        status = rig_run(&r, 1);
        limited = 0;
        CHECK_STATUS(status, k < n ? FLEET_ERROR_TOO_MANY_WORKERS : FLEET_OK);
        CHECK_STATUS(fleet_state_status(&r.state), FLEET_OK);
        if (!rig_check(t, &r, k == n)) return;
    }
    CHECK_RUN(&r, 1);
    if (!rig_check(t, &r, 2)) return;
    rig_close(&r);
    model_end(&m);
}

/* Touches `bytes` bytes of stack below it, as deep calls would. */
FLEET_GLOBAL(64) __attribute__((noinline, no_sanitize("address"))) void deep_calls(uint32_t bytes)
{
    volatile char here = 0;
    const uintptr_t top = (uintptr_t)&here;
    for (uint32_t i = 2048; i < bytes; i += 512) *(volatile char *)(top - i) = here;
    _exit(0);
}
FLEET_THUNK1(deep_calls, uint32_t)
/* How a coroutine ends that does so: 0 well, 1 by a fault. */
static int deep_ends(uint32_t stack_bytes, uint32_t bytes)
{
    fleet_kernel_desc k = fleet_kernel_desc_default();
    void *args[1];
    int status = 0;
    pid_t child;
    args[0] = &bytes;
    k.host.engine = FLEET_ENGINE_DETERMINISTIC;
    k.host.stack_bytes = stack_bytes;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(3); /* a sanitizer's report */
        (void)fleet_kernel_launch(FLEET_KERNEL_OF(deep_calls), args, &k);
        _exit(2);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return WIFSIGNALED(status) || WEXITSTATUS(status) == 1;
}
static void a_stack_that_is_too_small_ends_at_its_guard_page(test_run *t)
{
    const uint32_t stack = 65536;
    CHECK_INT(deep_ends(stack, stack / 2), 0);
    CHECK_INT(deep_ends(stack, stack + 2048), 1);
    CHECK_INT(deep_ends(0, 4 * stack + 2048), 1);
}

#define LINE_OF(type, field) (offsetof(type, field) / FLEET_CACHE_LINE_BYTES)

/* Counters that take read-modify-writes, and words that are stored to, on lines of their own. */
static void invariant_7_counters_and_flags_never_share_a_line(test_run *t)
{
    uint32_t schedule, i, k;
    size_t lines[8];
    CHECK_INT(sizeof(fleeti_line), FLEET_CACHE_LINE_BYTES);
    CHECK_INT(sizeof(fleeti_state) % FLEET_CACHE_LINE_BYTES, 0);
    CHECK_INT(sizeof(fleeti_mailbox) % FLEET_CACHE_LINE_BYTES, 0);
    CHECK_INT(sizeof(fleeti_between_pools) % FLEET_CACHE_LINE_BYTES, 0);
    CHECK_INT(sizeof(fleeti_host) % FLEET_CACHE_LINE_BYTES, 0);
    CHECK(LINE_OF(fleeti_host, status) != LINE_OF(fleeti_host, abort));
    CHECK(LINE_OF(fleeti_mailbox, slot) != LINE_OF(fleeti_mailbox, taken));
    lines[0] = LINE_OF(fleeti_state, due), lines[1] = LINE_OF(fleeti_state, epoch);
    lines[2] = LINE_OF(fleeti_state, stop), lines[3] = LINE_OF(fleeti_state, residency);
    lines[4] = LINE_OF(fleeti_state, resident), lines[5] = LINE_OF(fleeti_state, exited);
    lines[6] = LINE_OF(fleeti_state, left), lines[7] = LINE_OF(fleeti_state, result);
    for (i = 0; i < 8; i++)
        for (k = 0; k < i; k++) CHECK(lines[i] != lines[k]);
    for (schedule = 0; schedule < 2; schedule++) {
        fleet_plan_desc d = fleet_plan_desc_default();
        const fleeti_notify *n;
        fleet_plan *plan = NULL;
        fleet_state s;
        uint8_t *used;
        model m;
        model_levels(&m, 5);
        model_graph(&m);
        d.schedule = (fleet_schedule)schedule;
        CHECK_STATUS(fleet_plan_build(m.graph, &d, &plan), FLEET_OK);
        fleeti_layout(&s, plan, 0);
        CHECK_INT(s.running % FLEET_CACHE_LINE_BYTES | s.mailboxes % FLEET_CACHE_LINE_BYTES |
                      s.chiplet_of % FLEET_CACHE_LINE_BYTES | s.counters % FLEET_CACHE_LINE_BYTES |
                      s.failures % FLEET_CACHE_LINE_BYTES | s.system % FLEET_CACHE_LINE_BYTES,
                  0);
        CHECK(s.running >= sizeof(fleeti_state) && s.mailboxes > s.running &&
              s.counters > s.chiplet_of);
        /* Word 0 is never used; global counters and those of a chiplet are on different lines. */
        used = (uint8_t *)calloc(plan->counter_words / 32 + 1, 1);
        CHECK(used);
        n = notifies_of(plan);
        for (i = 0; i < plan->n_notifies; i++) {
            if (n[i].counter & FLEETI_SYSTEM) continue;
            CHECK(n[i].counter && n[i].counter < plan->counter_words);
            used[n[i].counter / 32] |= 1;
            if (n[i].sub && !(n[i].sub & FLEETI_LOCAL)) {
                CHECK(n[i].sub < plan->counter_words);
                used[n[i].sub / 32] |= 2;
            }
        }
        for (i = 0; i <= plan->counter_words / 32; i++) CHECK(used[i] != 3);
        free(used);
        fleet_plan_free(plan);
        model_end(&m);
    }
}

/* A trace asks for kernels that keep one. */
static void a_trace_needs_its_option(test_run *t)
{
    char text[512];
    fleet_trace trace;
    fleet_trace_log log;
    model m;
    rig r;
    setting s;
    CHECK(setting_get(0, 1, &s));
    model_split_row_sum(&m, 2, 2);
    if (!rig_open(t, &r, &m, &s)) return;
    CHECK_STATUS(fleet_trace_create(&trace, r.plan, NULL, NULL), FLEET_OK);
    r.launch.trace = &trace;
    CHECK_STATUS(rig_launch(&r, 1), FLEET_ERROR_UNSUPPORTED);
    fleet_state_report(&r.state, text, sizeof text);
    CHECK_TEXT(text,
               "refused: fleet_launch_desc.trace needs FLEET_TRACE, defined where the kernels "
               "are and where FLEET_IMPLEMENTATION is\n");
    CHECK_STATUS(fleet_trace_read(&log, &trace, NULL), FLEET_ERROR_UNSUPPORTED);
    r.launch.trace = NULL;
    CHECK_RUN(&r, 1);
    if (!rig_check(t, &r, 1)) return;
    fleet_trace_free(&trace);
    rig_close(&r);
    model_end(&m);
}

static void all(test_run *t)
{
    TEST(null_arguments);
    TEST(fields_out_of_range);
    TEST(dynamic_refuses_steps_that_it_cannot_count);
    TEST(threads_that_do_not_start);
    TEST(a_stack_that_is_too_small_ends_at_its_guard_page);
    TEST(a_trace_needs_its_option);
    TEST(invariant_7_counters_and_flags_never_share_a_line);
}
TEST_MAIN(all)
