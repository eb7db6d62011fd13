/* What functions leave in their results when they fail: zeros, and a text that ends; a few also say why. Each function
   that the headers declare for the host has a row in the table below, with each of its parameters that it may write to:
   the test reads the headers. */
// run: asan whole
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Memory of all kinds, of which the fail_at-th allocation fails. */
static long allocations, fail_at = -1;
static int refuses(void)
{
    return ++allocations == fail_at;
}
static void *some_malloc(size_t bytes)
{
    return refuses() ? NULL : malloc(bytes);
}
static void *some_calloc(size_t count, size_t bytes)
{
    return refuses() ? NULL : calloc(count, bytes);
}
static void *some_aligned(size_t align, size_t bytes)
{
    return refuses() ? NULL : aligned_alloc(align, bytes);
}
#define FLEET_MALLOC(bytes) some_malloc(bytes)
#define FLEET_FREE(memory) free(memory)
#define calloc(count, bytes) some_calloc(count, bytes)
#define aligned_alloc(align, bytes) some_aligned(align, bytes)
#define FLEET_TRACE
#include "settings.h"
#include "examples/parts/fleet_calibrate.h"
#include "examples/parts/fleet_linear.h"
#include "examples/parts/fleet_server.h"
#include "examples/parts/fleet_trace.h"
#undef calloc
#undef aligned_alloc

typedef struct nothing {
    uint32_t word;
} nothing;
FLEET_TILE(idle, nothing)
{
    return FLEET_OK;
}
#define NOTHING_TILES(TILE, P) TILE(P, idle)
FLEET_MEGAKERNEL(nothing, NOTHING_TILES, FLEET_ANY_THREADS(64))

/* ---- what the tests need ---- */

static fleet_graph *graph;
static fleet_plan *plan, *open_plan; /* open_plan: a symbol has no value yet */
static fleet_image image;
static fleet_state state, open_state;
static fleet_server server;
static void *memory; /* 1 MB */

static int is_zero(const void *object, size_t bytes)
{
    const unsigned char *byte = (const unsigned char *)object;
    while (bytes && !byte[bytes - 1]) bytes--;
    return !bytes;
}
static int failed(uint64_t result)
{
    return result != FLEET_OK;
}

/* `call` fails and leaves `object` zero, whatever was there. */
#define LEAVES(object, call)                                                                       \
    do {                                                                                           \
        memset(&(object), 0x5a, sizeof(object));                                                   \
        CHECK(call);                                                                               \
        CHECK(is_zero(&(object), sizeof(object)));                                                 \
    } while (0)
/* The same, but that the object says why: the lvalue `why` of it is not looked at. */
#define LEAVES_WHY(object, why, call)                                                              \
    do {                                                                                           \
        memset(&(object), 0x5a, sizeof(object));                                                   \
        CHECK(call);                                                                               \
        memset(&(why), 0, sizeof(why));                                                            \
        CHECK(is_zero(&(object), sizeof(object)));                                                 \
    } while (0)
/* A text without an end would be read beyond its buffer. */
#define LEAVES_TEXT(text, call)                                                                    \
    do {                                                                                           \
        memset(text, 0x5a, sizeof(text));                                                          \
        (void)(call);                                                                              \
        CHECK(memchr(text, 0, sizeof(text)) != NULL);                                              \
    } while (0)
/* Each allocation of `call` in turn fails, until it needs no more. */
#define EACH_ALLOCATION_FAILS(object, why, call, ending)                                           \
    for (fail_at = 1, allocations = 0;; fail_at++, allocations = 0) {                              \
        memset(&(object), 0x5a, sizeof(object));                                                   \
        if ((call) == FLEET_OK) {                                                                  \
            fail_at = -1;                                                                          \
            ending;                                                                                \
            break;                                                                                 \
        }                                                                                          \
        memset(&(why), 0, sizeof(why));                                                            \
        if (!is_zero(&(object), sizeof(object))) {                                                 \
            fail_at = -1;                                                                          \
            CHECK(!"an output is set though an allocation has failed");                            \
        }                                                                                          \
    }

static void make_all(void)
{
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_server_desc served = fleet_server_desc_default();
    fleet_graph *open = fleet_graph_create(NULL);
    fleet_etensor event;
    graph = fleet_graph_create(NULL);
    event = fleet_event_tensor(graph, "done", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_out_edge(graph, fleet_call_device(graph, "a", 0, fleet_shape1_of(4), 0), event, "i->");
    fleet_event_external(graph, event, FLEET_EXTERNAL_WAITS, 0, FLEET_SCOPE_SYSTEM);
    fleet_call_device(open, "a", 0, fleet_shape1(fleet_symbol(open, "n", 1, 4)), 0);
    desc.topology = fleet_topology_make(2, 2);
    if (fleet_plan_build(graph, &desc, &plan) || fleet_plan_build(open, &desc, &open_plan) ||
        fleet_upload(&image, plan, NULL) || fleet_state_create(&state, &image, NULL, NULL))
        abort();
    open_state = state, open_state.image.plan = open_plan, open_state.bound_symbols = 0;
    served.requests = 4, served.pages = 16, served.prompt_tokens = 16, served.sequence_tokens = 32;
    if (fleet_server_create(&server, &served, NULL) || fleet_device_alloc(&memory, 1 << 20))
        abort();
    fleet_graph_destroy(open);
}
static void free_all(void)
{
    fleet_server_free(&server);
    fleet_state_free(&state);
    fleet_image_free(&image);
    fleet_plan_free(plan), fleet_plan_free(open_plan);
    fleet_graph_destroy(graph);
    fleet_device_free(memory);
}

/* ---- the functions ---- */

static void of_plan_build(test_run *t)
{
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *out;
    char none;
    LEAVES(out, failed(fleet_plan_build(NULL, NULL, &out)));
    CHECK_STATUS(fleet_plan_build(graph, NULL, NULL), FLEET_ERROR_NULL);
    desc.n_bindings = 1000;
    LEAVES(out, failed(fleet_plan_build(graph, &desc, &out)));
    desc = fleet_plan_desc_default(), desc.max_work = 1;
    LEAVES(out, failed(fleet_plan_build(graph, &desc, &out)));
    EACH_ALLOCATION_FAILS(out, none, fleet_plan_build(graph, NULL, &out), fleet_plan_free(out));
}
static void of_texts(test_run *t)
{
    const fleet_linear_plan *no_plans = NULL;
    fleet_trace_log log;
    char text[64];
    memset(&log, 0, sizeof log);
    LEAVES_TEXT(text, fleet_plan_report(NULL, text, sizeof text));
    LEAVES_TEXT(text, fleet_plan_task_name(NULL, 0, text, sizeof text));
    LEAVES_TEXT(text, fleet_plan_task_name(plan, 1000000, text, sizeof text));
    LEAVES_TEXT(text, fleet_plan_counter_name(NULL, 1, text, sizeof text));
    LEAVES_TEXT(text, fleet_plan_counter_name(plan, 0xffffffffu, text, sizeof text));
    LEAVES_TEXT(text, fleet_linear_report(no_plans, NULL, 1, text, sizeof text));
    LEAVES_TEXT(text, fleet_state_report(NULL, text, sizeof text));
    LEAVES_TEXT(text, fleet_session_report(NULL, text, sizeof text));
    LEAVES_TEXT(text, fleet_trace_kind_name(NULL, 0, text, sizeof text));
    LEAVES_TEXT(text, fleet_trace_kind_name(&log, 7, text, sizeof text));
    LEAVES_TEXT(text, fleet_trace_report(NULL, 0, 0, text, sizeof text));
    LEAVES_TEXT(text, fleet_trace_json(NULL, 0, 0, text, sizeof text));
    LEAVES_TEXT(text, fleet_peers_check(NULL, NULL, text, sizeof text));
}
static void of_linear_choose(test_run *t)
{
    const fleet_topology topology = fleet_topology_preset(FLEET_MI300X);
    fleet_topology wrong = topology;
    fleet_linear_desc desc = fleet_linear_desc_default();
    fleet_linear_plan out;
    LEAVES_WHY(out, out.why, failed(fleet_linear_choose(NULL, &topology, &out)));
    LEAVES_WHY(out, out.why, failed(fleet_linear_choose(&desc, NULL, &out)));
    LEAVES_WHY(out, out.why, failed(fleet_linear_choose(&desc, &topology, &out)));
    desc.m = 1, desc.n = desc.k = 4096, wrong.chiplets = 0;
    LEAVES_WHY(out, out.why, failed(fleet_linear_choose(&desc, &wrong, &out)));
    desc.n = INT64_MAX;
    LEAVES_WHY(out, out.why, failed(fleet_linear_choose(&desc, &topology, &out)));
}
static void of_memory(test_run *t)
{
    void *out, *device;
    CHECK_STATUS(fleet_device_alloc(NULL, 1), FLEET_ERROR_NULL);
    LEAVES(out, failed(fleet_device_alloc(&out, SIZE_MAX)));
    LEAVES(out, failed(fleet_pinned_alloc(&out, NULL, 1)));
    LEAVES(device, failed(fleet_pinned_alloc(NULL, &device, 1)));
    LEAVES(out, failed(fleet_pinned_alloc(&out, &device, SIZE_MAX)));
    LEAVES(device, failed(fleet_pinned_alloc(&out, &device, SIZE_MAX)));
    fail_at = 1, allocations = 0;
    LEAVES(out, failed(fleet_device_alloc(&out, 1)));
    fail_at = 1, allocations = 0;
    LEAVES(device, failed(fleet_pinned_alloc(&out, &device, 1)));
    fail_at = -1;
}
static void of_image(test_run *t)
{
    fleet_plan *damaged = (fleet_plan *)malloc((size_t)plan->bytes);
    fleet_image out;
    char none;
    memcpy(damaged, plan, (size_t)plan->bytes);
    damaged->checksum ^= 1;
    LEAVES(out, failed(fleet_image_init(&out, NULL, memory, NULL)));
    LEAVES(out, failed(fleet_image_init(&out, plan, NULL, NULL)));
    LEAVES(out, failed(fleet_image_init(&out, damaged, memory, NULL)));
    LEAVES(out, failed(fleet_upload(&out, NULL, NULL)));
    LEAVES(out, failed(fleet_upload(&out, damaged, NULL)));
    EACH_ALLOCATION_FAILS(out, none, fleet_upload(&out, plan, NULL), fleet_image_free(&out));
    free(damaged);
}
static void of_state(test_run *t)
{
    fleet_state_desc desc = fleet_state_desc_default();
    fleet_image no_image;
    fleet_peers peers;
    fleet_state out;
    memset(&no_image, 0, sizeof no_image);
    memset(&peers, 0, sizeof peers);
    LEAVES_WHY(out, out.message,
               failed(fleet_state_init(&out, NULL, NULL, memory, memory, memory, NULL)));
    LEAVES_WHY(out, out.message,
               failed(fleet_state_init(&out, &no_image, NULL, memory, memory, memory, NULL)));
    LEAVES_WHY(out, out.message,
               failed(fleet_state_init(&out, &image, NULL, NULL, memory, memory, NULL)));
    LEAVES_WHY(out, out.message,
               failed(fleet_state_init(&out, &image, NULL, memory, NULL, memory, NULL)));
    LEAVES_WHY(out, out.message,
               failed(fleet_state_init(&out, &image, NULL, memory, memory, NULL, NULL)));
    LEAVES_WHY(out, out.message, failed(fleet_state_create(&out, NULL, NULL, NULL)));
    LEAVES_WHY(out, out.message, failed(fleet_state_create(&out, &no_image, NULL, NULL)));
    desc.placement = (fleet_placement)99;
    LEAVES_WHY(out, out.message,
               failed(fleet_state_init(&out, &image, &desc, memory, memory, memory, NULL)));
    LEAVES_WHY(out, out.message, failed(fleet_state_create(&out, &image, &desc, NULL)));
    desc = fleet_state_desc_default(), desc.spare = UINT32_MAX;
    LEAVES_WHY(out, out.message, failed(fleet_state_create(&out, &image, &desc, NULL)));
    desc = fleet_state_desc_default(), desc.peers = &peers, peers.ranks = 7;
    LEAVES_WHY(out, out.message, failed(fleet_state_create(&out, &image, &desc, NULL)));
    desc = fleet_state_desc_default(), desc.beside = &open_state, open_state.is_beside = 1;
    LEAVES_WHY(out, out.message, failed(fleet_state_create(&out, &image, &desc, NULL)));
    open_state.is_beside = 0;
    EACH_ALLOCATION_FAILS(out, out.message, fleet_state_create(&out, &image, NULL, NULL),
                          fleet_state_free(&out));
}
static void of_session(test_run *t)
{
    fleet_session_desc desc = fleet_session_desc_default();
    fleet_session out;
    desc.plan.topology = fleet_topology_make(2, 2);
    /* A session that was not opened may be closed, whatever it holds. */
    memset(&out, 0x5a, sizeof out);
    CHECK_STATUS(fleet_session_open(&out, NULL, NULL, FLEET_KERNEL_OF(nothing_kernel)),
                 FLEET_ERROR_NULL);
    CHECK(!out.plan && !out.image.device && !out.state.device && !out.args && !out.memory);
    fleet_session_close(&out);
    for (fail_at = 1, allocations = 0;; fail_at++, allocations = 0) {
        fleet_status status;
        memset(&out, 0x5a, sizeof out);
        status = fleet_session_open(&out, graph, &desc, FLEET_KERNEL_OF(nothing_kernel));
        fleet_session_close(&out);
        if (status == FLEET_OK) break;
    }
    fail_at = -1;
}
static void of_run(test_run *t)
{
    fleet_launch_desc desc = fleet_launch_desc_default();
    fleet_state none;
    fleet_run out;
    memset(&none, 0, sizeof none);
    LEAVES(out, failed(fleet_run_prepare(NULL, &desc, &out)));
    LEAVES(out, failed(fleet_run_prepare(&none, &desc, &out)));
    LEAVES(out, failed(fleet_run_prepare(&state, NULL, &out)));
    desc.steps = FLEET_STEPS_ENDLESS; /* without finish */
    LEAVES(out, failed(fleet_run_prepare(&state, &desc, &out)));
    desc = fleet_launch_desc_default(), desc.limit_ns = UINT64_MAX - 1;
    LEAVES(out, failed(fleet_run_prepare(&state, &desc, &out)));
}
static void of_failure(test_run *t)
{
    fleet_state none;
    fleet_failure out;
    memset(&none, 0, sizeof none);
    LEAVES(out, !fleet_state_failure(NULL, &out));
    LEAVES(out, !fleet_state_failure(&none, &out));
    LEAVES(out, !fleet_state_failure(&state, &out));
}
static void of_outcome(test_run *t)
{
    fleet_state none;
    fleet_outcome out;
    memset(&none, 0, sizeof none);
    LEAVES(out, !fleet_state_outcome(NULL, 1, &out));
    LEAVES(out, !fleet_state_outcome(&none, 1, &out));
    LEAVES(out, !fleet_state_outcome(&state, UINT32_MAX, &out));
}
static void of_events(test_run *t)
{
    const int32_t event = fleet_plan_event(plan, "done");
    uint32_t done;
    fleet_event out;
    LEAVES(done, failed(fleet_event_test(NULL, event, 0, 1, &done)));
    LEAVES(done, failed(fleet_event_test(&state, -1, 0, 1, &done)));
    LEAVES(done, failed(fleet_event_test(&state, event, 1000, 1, &done)));
    LEAVES(done, !failed(fleet_event_test(&state, event, 0, 1, &done)));
    LEAVES(out, failed(fleet_event_handle(NULL, event, 0, &out)));
    LEAVES(out, failed(fleet_event_handle(&state, 1000, 0, &out)));
    LEAVES(out, failed(fleet_event_handle(&state, event, 1000, &out)));
}
static void of_trace(test_run *t)
{
    fleet_trace_desc desc = fleet_trace_desc_default();
    fleet_trace out, trace;
    fleet_trace_log log;
    char none;
    desc.records = UINT32_MAX;
    LEAVES(out, failed(fleet_trace_init(&out, NULL, NULL, memory, NULL)));
    LEAVES(out, failed(fleet_trace_init(&out, plan, NULL, NULL, NULL)));
    LEAVES(out, failed(fleet_trace_init(&out, plan, &desc, memory, NULL)));
    LEAVES(out, failed(fleet_trace_create(&out, NULL, NULL, NULL)));
    LEAVES(out, failed(fleet_trace_create(&out, plan, &desc, NULL)));
    desc.records = 0;
    LEAVES(out, failed(fleet_trace_create(&out, plan, &desc, NULL)));
    EACH_ALLOCATION_FAILS(out, none, fleet_trace_create(&out, plan, NULL, NULL),
                          fleet_trace_free(&out));
    memset(&trace, 0, sizeof trace);
    LEAVES(log, failed(fleet_trace_read(&log, NULL, NULL)));
    LEAVES(log, failed(fleet_trace_read(&log, &trace, NULL)));
    CHECK_STATUS(fleet_trace_create(&trace, plan, NULL, NULL), FLEET_OK);
    LEAVES(log, failed(fleet_trace_read(&log, &trace, NULL))); /* no launch has used it */
    fail_at = 1, allocations = 0;
    LEAVES(log, failed(fleet_trace_read(&log, &trace, NULL)));
    fail_at = -1;
    fleet_trace_free(&trace);
}
static void of_topology(test_run *t)
{
    fleet_topology out;
    CHECK_STATUS(fleet_topology_query(NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_topology_query_stream(NULL, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_topology_query(&out), FLEET_OK); /* on the CPU it cannot fail */
}
static void of_calibrate(test_run *t)
{
    const fleet_kernel kernel = FLEET_KERNEL_OF(nothing_kernel);
    const fleet_topology topology = fleet_topology_make(1, 1);
    fleet_topology wrong = topology;
    fleet_launch_desc desc = fleet_launch_desc_default();
    fleet_overheads out;
    fleet_kernel none;
    memset(&none, 0, sizeof none);
    wrong.chiplets = 0;
    LEAVES(out, failed(fleet_calibrate(&out, NULL, &desc, kernel, NULL)));
    LEAVES(out, failed(fleet_calibrate(&out, &topology, NULL, kernel, NULL)));
    LEAVES(out, failed(fleet_calibrate(&out, &topology, &desc, none, NULL)));
    LEAVES(out, failed(fleet_calibrate(&out, &wrong, &desc, kernel, NULL)));
    desc.steps = UINT32_MAX;
    LEAVES(out, failed(fleet_calibrate(&out, &topology, &desc, kernel, NULL)));
    desc = fleet_launch_desc_default();
    for (fail_at = 1; fail_at < 60; fail_at += 7) { /* also after the first numbers are known */
        allocations = 0;
        LEAVES(out, failed(fleet_calibrate(&out, &topology, &desc, kernel, NULL)));
    }
    fail_at = -1;
}
static void of_ring(test_run *t)
{
    fleet_ring host, device;
    uint32_t message[16];
    LEAVES(device, failed(fleet_ring_init(NULL, &device, memory, memory, 4, 16)));
    LEAVES(host, failed(fleet_ring_init(&host, NULL, memory, memory, 4, 16)));
    LEAVES(host, failed(fleet_ring_init(&host, &device, NULL, memory, 4, 16)));
    LEAVES(device, failed(fleet_ring_init(&host, &device, memory, NULL, 4, 16)));
    LEAVES(host, failed(fleet_ring_init(&host, &device, memory, memory, 3, 16)));
    LEAVES(device, failed(fleet_ring_init(&host, &device, memory, memory, 4, 0)));
    LEAVES(host, failed(fleet_ring_init(&host, &device, (char *)memory + 4, memory, 4, 16)));
    CHECK_STATUS(fleet_ring_init(&host, &device, memory, memory, 4, 64), FLEET_OK);
    LEAVES(message, !fleet_ring_pop(&host, message)); /* it is empty */
    CHECK(!fleet_ring_pop(NULL, message));
}
static void of_server(test_run *t)
{
    fleet_server_desc desc = fleet_server_desc_default();
    fleet_server out;
    fleet_server_stats stats;
    fleet_server_event event;
    uint32_t stride;
    struct {
        const char *field;
        uint32_t fits;
    } why;
    memset(&out, 0, sizeof out);
    LEAVES(stride, !fleet_server_page_tables(NULL, &stride));
    LEAVES(stride, !fleet_server_page_tables(&out, &stride));
    LEAVES(out, failed(fleet_server_init(&out, NULL, NULL, memory, memory, NULL)));
    LEAVES(out, failed(fleet_server_init(&out, NULL, memory, NULL, memory, NULL)));
    LEAVES(out, failed(fleet_server_init(&out, NULL, memory, memory, NULL, NULL)));
    desc.page_tokens = 1u << 30; /* the field and what fits are said */
    memset(&out, 0x5a, sizeof out);
    CHECK(failed(fleet_server_init(&out, &desc, memory, memory, memory, NULL)));
    CHECK(out.field);
    out.field = NULL, out.fits = 0;
    CHECK(is_zero(&out, sizeof out));
    memset(&out, 0x5a, sizeof out);
    CHECK(failed(fleet_server_create(&out, &desc, NULL)));
    out.field = NULL, out.fits = 0;
    CHECK(is_zero(&out, sizeof out));
    desc = fleet_server_desc_default();
    EACH_ALLOCATION_FAILS(out, why, fleet_server_create(&out, &desc, NULL),
                          fleet_server_free(&out));
    LEAVES(event, !fleet_server_poll(NULL, &event));
    LEAVES(event, !fleet_server_poll(&out, &event));
    LEAVES(event, !fleet_server_poll(&server, &event)); /* there is none */
    LEAVES(stats, (fleet_server_stats_read(NULL, &stats), 1));
    LEAVES(stats, (fleet_server_stats_read(&out, &stats), 1));
}
static void of_submit(test_run *t)
{
    const uint32_t prompt[4] = {1, 2, 3, 4};
    fleet_server none;
    fleet_request request;
    fleet_ticket out;
    memset(&none, 0, sizeof none);
    memset(&request, 0, sizeof request);
    request.prompt = prompt, request.prompt_tokens = request.max_tokens = 2;
    LEAVES(out, failed(fleet_server_submit(NULL, &request, &out)));
    LEAVES(out, failed(fleet_server_submit(&none, &request, &out)));
    LEAVES(out, failed(fleet_server_submit(&server, NULL, &out)));
    CHECK_STATUS(fleet_server_submit(&server, &request, NULL), FLEET_ERROR_NULL);
    request.prompt = NULL;
    LEAVES(out, failed(fleet_server_submit(&server, &request, &out)));
    request.prompt = prompt;
    for (uint32_t i = 0; i < 3; i++) { /* what was refused is said, and no id given */
        request.prompt_tokens = i == 0 ? 0 : i == 1 ? 1u << 20 : 2;
        request.max_tokens = i == 2 ? 1u << 20 : 2;
        memset(&out, 0x5a, sizeof out);
        CHECK_STATUS(fleet_server_submit(&server, &request, &out), FLEET_ERROR_ARGUMENT);
        CHECK(out.field && !out.id);
    }
    request.prompt_tokens = request.max_tokens = 2;
    while (!fleet_server_submit(&server, &request, &out)) CHECK(out.id && !out.field);
    LEAVES(out, failed(fleet_server_submit(&server, &request, &out))); /* it is full */
    fleet_server_stop(&server, 0);
    LEAVES(out, failed(fleet_server_submit(&server, &request, &out)));
}
static void of_pages(test_run *t)
{
    static const uint32_t tokens[64] = {0};
    fleet_pages *pages = (fleet_pages *)memory;
    fleet_admission out;
    uint32_t table[4];
    CHECK_STATUS(fleet_pages_init(pages, 4, 16), FLEET_OK);
    LEAVES(out, failed(fleet_pages_admit(pages, NULL, 64, 4, table, &out)));
    LEAVES(out, failed(fleet_pages_admit(pages, tokens, 64, 4, NULL, &out)));
    LEAVES(out, failed(fleet_pages_admit(pages, tokens, 64, 5, table, &out)));
    CHECK_STATUS(fleet_pages_admit(pages, tokens, 64, 4, table, &out), FLEET_OK);
    LEAVES(out, failed(fleet_pages_admit(pages, tokens, 64, 1, table, &out)));
}

/* ---- the table ---- */

/* test: null where no parameter is a result. results and objects: names of the parameters that the function may write to;
   objects are its to change, or data that it copies. */
typedef struct row {
    const char *name, *results, *objects;
    void (*test)(test_run *t);
} row;

static const row rows[] = {
    {"fleet_graph_destroy", "", "g", NULL},
    {"fleet_symbol", "", "g", NULL},
    {"fleet_bind_at_build", "", "desc", NULL},
    {"fleet_buckets_at_build", "", "desc", NULL},
    {"fleet_plan_build", "out", "g", of_plan_build},
    {"fleet_plan_free", "", "plan", NULL},
    {"fleet_plan_report", "text", "", of_texts},
    {"fleet_plan_task_name", "text", "", of_texts},
    {"fleet_plan_counter_name", "text", "", of_texts},
    {"fleet_linear_choose", "plan", "", of_linear_choose},
    {"fleet_linear_report", "text", "", of_texts},
    {"fleet_device_alloc", "memory", "", of_memory},
    {"fleet_device_free", "", "memory", NULL},
    {"fleet_pinned_alloc", "memory device", "", of_memory},
    {"fleet_pinned_free", "", "memory", NULL},
    {"fleet_to_device", "", "to", NULL},
    {"fleet_to_host", "", "to", NULL},
    {"fleet_device_clear", "", "memory", NULL},
    {"fleet_kernel_launch", "", "args", NULL},
    {"fleet_image_init", "image", "device_memory", of_image},
    {"fleet_upload", "image", "", of_image},
    {"fleet_image_free", "", "image", NULL},
    {"fleet_state_init", "state", "device_memory pinned pinned_device", of_state},
    {"fleet_state_create", "state", "", of_state},
    {"fleet_state_free", "", "state", NULL},
    {"fleet_launch", "", "state", NULL},
    {"fleet_run_prepare", "run", "state", of_run},
    {"fleet_launch_args", "", "state args", NULL},
    {"fleet_launch_task", "", "state", NULL},
    {"fleet_bind", "", "state", NULL},
    {"fleet_bind_tensor", "", "state memory", NULL},
    {"fleet_state_status", "", "state", NULL},
    {"fleet_state_wait", "", "state", NULL},
    {"fleet_state_outcome", "outcome", "", of_outcome},
    {"fleet_state_abort", "", "state", NULL},
    {"fleet_state_recover", "", "state", NULL},
    {"fleet_state_failure", "failure", "", of_failure},
    {"fleet_state_report", "text", "", of_texts},
    {"fleet_session_open", "session", "graph", of_session},
    {"fleet_session_alloc", "", "session", NULL},
    {"fleet_session_args", "", "session", NULL},
    {"fleet_session_launch", "", "session", NULL},
    {"fleet_session_run", "", "session", NULL},
    {"fleet_session_recover", "", "session", NULL},
    {"fleet_session_wait", "", "session", NULL},
    {"fleet_session_report", "text", "", of_texts},
    {"fleet_session_close", "", "session", NULL},
    {"fleet_session_leave", "", "session to", NULL},
    {"fleet_event_notify", "", "state", NULL},
    {"fleet_event_test", "done", "", of_events},
    {"fleet_event_handle", "out", "", of_events},
    {"fleet_trace_init", "trace", "device_memory", of_trace},
    {"fleet_trace_create", "trace", "", of_trace},
    {"fleet_trace_free", "", "trace", NULL},
    {"fleet_trace_read", "log", "", of_trace},
    {"fleet_trace_log_free", "", "log", NULL},
    {"fleet_trace_kind_name", "text", "", of_texts},
    {"fleet_trace_report", "text", "", of_texts},
    {"fleet_trace_json", "text", "", of_texts},
    {"fleet_topology_query", "topology", "", of_topology},
    {"fleet_topology_query_stream", "topology", "", of_topology},
    {"fleet_calibrate", "costs", "", of_calibrate},
    {"fleet_peers_check", "text", "", of_texts},
    {"fleet_wake", "", "word", NULL},
    {"fleet_ring_init", "host device", "memory device_memory", of_ring},
    {"fleet_ring_push", "", "host", NULL},
    {"fleet_ring_pop", "message", "host", of_ring},
    {"fleet_pages_init", "", "p", NULL},
    {"fleet_pages_admit", "a", "p table", of_pages},
    {"fleet_pages_allocate", "", "p a", NULL},
    {"fleet_pages_share", "", "p", NULL},
    {"fleet_pages_insert", "", "p a", NULL},
    {"fleet_pages_release", "", "p", NULL},
    {"fleet_pages_finish", "", "p a", NULL},
    {"fleet_server_init", "server", "device_memory pinned pinned_device", of_server},
    {"fleet_server_create", "server", "", of_server},
    {"fleet_server_free", "", "server", NULL},
    {"fleet_server_page_tables", "stride", "", of_server},
    {"fleet_server_submit", "ticket", "server", of_submit},
    {"fleet_server_poll", "event", "server", of_server},
    {"fleet_server_release", "", "server", NULL},
    {"fleet_server_cancel", "", "server", NULL},
    {"fleet_server_stop", "", "server", NULL},
    {"fleet_server_ended", "", "server", NULL},
    {"fleet_server_reset", "", "server", NULL},
    {"fleet_server_stats_read", "stats", "", of_server},
    {"fleet_tile_next", "", "w", NULL},
};
#define ROWS (sizeof rows / sizeof rows[0])

/* Whether a list of words has one. */
static int has_word(const char *list, const char *word, size_t length)
{
    for (; *list; list += strcspn(list, " "), list += strspn(list, " "))
        if (strcspn(list, " ") == length && !strncmp(list, word, length)) return 1;
    return 0;
}

/* Looks at the parameters between `from` and `end`: those that the function may write to must be in its row. */
static void check_parameters(test_run *t, const char *name, char *from, char *end, uint32_t *seen)
{
    const row *r = NULL;
    char *parameter, *next;
    for (size_t i = 0; i < ROWS; i++)
        if (!strcmp(rows[i].name, name)) r = &rows[i], seen[i] = 1;
    for (parameter = from; parameter < end; parameter = next + 1) {
        char *word = next = memchr(parameter, ',', (size_t)(end - parameter));
        if (!next) word = next = end;
        if (!memchr(parameter, '*', (size_t)(next - parameter))) continue;
        *next = 0;
        if (strstr(parameter, "const ") && !strstr(parameter, "**")) continue;
        if (strstr(parameter, "*const *")) continue;
        while (word > parameter && (word[-1] == '_' || (word[-1] >= 'a' && word[-1] <= 'z')))
            word--;
        if (r &&
            (has_word(r->results, word, strlen(word)) || has_word(r->objects, word, strlen(word))))
            continue;
        test_fail(t, __FILE__, __LINE__, "%s may write to %s, which the table lacks", name, word);
    }
}

/* Reads the declarations of a header: from FLEET_API up to ";". */
static void check_header(test_run *t, const char *path, uint32_t *seen)
{
    FILE *file = fopen(path, "r");
    char line[512], text[2048];
    uint32_t found = 0;
    CHECK(file != NULL);
    text[0] = 0;
    while (fgets(line, sizeof line, file)) {
        char *name, *open, *close;
        if (text[0] ? 0 : strncmp(line, "FLEET_API", 9) && strncmp(line, "FLEET_HOST_DEVICE", 17))
            continue;
        if (strlen(text) + strlen(line) >= sizeof text) {
            text[0] = 0;
            continue;
        }
        strcat(text, line);
        if (strchr(line, '{') || strstr(line, "/*")) text[0] = 0;
        if (!strchr(line, ';')) continue;
        open = strchr(text, '(');
        close = strstr(text, ")\n"); /* what follows is the linker's name */
        if (!close) close = strstr(text, ");");
        if (open && close) {
            for (name = open; name > text && name[-1] != ' ' && name[-1] != '*'; name--) {
            }
            *open = 0;
            if (!strncmp(name, "fleet_", 6)) {
                check_parameters(t, name, open + 1, close, seen);
                found++;
            }
        }
        text[0] = 0;
    }
    fclose(file);
    CHECK(found > 0);
}

static void the_table_has_all_functions(test_run *t)
{
    uint32_t seen[ROWS] = {0};
    check_header(t, "fleet.h", seen);
    check_header(t, "fleet_device.h", seen);
    check_header(t, "fleet_sched.h", seen);
    check_header(t, "examples/parts/fleet_calibrate.h", seen);
    check_header(t, "examples/parts/fleet_linear.h", seen);
    check_header(t, "examples/parts/fleet_server.h", seen);
    check_header(t, "examples/parts/fleet_trace.h", seen);
    for (size_t i = 0; i < ROWS; i++) {
        if (!seen[i]) test_fail(t, __FILE__, __LINE__, "no header declares %s", rows[i].name);
        if (!rows[i].results[0] != !rows[i].test)
            test_fail(t, __FILE__, __LINE__, "%s: results need a test", rows[i].name);
    }
}
static void failures_leave_results_zero(test_run *t)
{
    make_all();
    for (size_t i = 0; i < ROWS && !t->failed_here; i++) {
        uint32_t before = 0;
        for (size_t k = 0; k < i; k++) before |= rows[k].test == rows[i].test;
        if (rows[i].test && !before) rows[i].test(t);
    }
    free_all();
}

static void list(test_run *t)
{
    TEST(the_table_has_all_functions);
    TEST(failures_leave_results_zero);
}

TEST_MAIN(list)
