/* Extreme values of each field of each descriptor (serving.c: of a server's). A descriptor gives a
   graph that runs, or a status and a text that names the field; never a crash, an endless loop, or
   gigabytes of memory. */
// run: asan whole
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Memory of a case has an end, as that of a machine: what is more is refused. */
#define MOST_BYTES ((size_t)64 << 20)
static size_t taken;
static int is_too_much(size_t count, size_t bytes)
{
    if (bytes && count > MOST_BYTES / bytes) return 1;
    return __atomic_add_fetch(&taken, count * bytes, __ATOMIC_RELAXED) > MOST_BYTES;
}
static void *some_malloc(size_t bytes)
{
    return is_too_much(1, bytes) ? NULL : malloc(bytes);
}
static void *some_calloc(size_t count, size_t bytes)
{
    return is_too_much(count, bytes) ? NULL : calloc(count, bytes);
}
static void *some_aligned(size_t align, size_t bytes)
{
    return is_too_much(1, bytes) ? NULL : aligned_alloc(align, bytes);
}
#define FLEET_MALLOC(bytes) some_malloc(bytes)
#define FLEET_FREE(memory) free(memory)
#define calloc(count, bytes) some_calloc(count, bytes)
#define aligned_alloc(align, bytes) some_aligned(align, bytes)
#define FLEET_TRACE
#include "settings.h"
#include "examples/parts/fleet_linear.h"
#include "examples/parts/fleet_server.h"
#include "examples/parts/fleet_trace.h"
#undef calloc
#undef aligned_alloc

#include <unistd.h>

/* ---- the graph: each of TASKS tasks adds 1 to its cell, and the last one adds the cells up ---- */

#define TASKS 5u
#define MOST_STEPS 1000u
#define LONGEST_S 120u /* of a case, which then ends the program */
#define LAST_STEP 2u   /* where tiles end the run, if `finish` says so */

typedef struct cells {
    uint32_t cell[TASKS], sums, sum;
    uint32_t finish;
} cells;
typedef struct add {
    cells *c;
} add;
FLEET_TILE(count, add)
{
    if (ctx.thread == 0) args->c->cell[at[0]]++;
    return FLEET_OK;
}
FLEET_TILE(sum, add)
{
    FLEET_UNUSED(at);
    if (ctx.thread) return FLEET_OK;
    args->c->sum = 0, args->c->sums++;
    for (uint32_t i = 0; i < TASKS; i++) args->c->sum += args->c->cell[i];
    return args->c->finish && args->c->sums == LAST_STEP ? fleet_finish(&ctx) : FLEET_OK;
}
#define ADD_TILES(TILE, P) TILE(P, count) TILE(P, sum)
FLEET_MEGAKERNEL(add, ADD_TILES, FLEET_ANY_THREADS(64))

static fleet_graph *make_graph(fleet_dim *n)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_etensor e = fleet_event_tensor(g, "E", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_grid tasks, last;
    *n = fleet_symbol(g, "n", 1, TASKS);
    tasks = fleet_call_device(g, "count", add_count, fleet_shape1(*n), 0);
    last = fleet_call_device(g, "sum", add_sum, fleet_shape0(), 0);
    fleet_out_edge(g, tasks, e, "i->");
    fleet_in_edge(g, last, e, "->");
    return g;
}

/* ---- fields ---- */

typedef struct field {
    size_t at, bytes;
    const char *name;      /* a text that refuses a value has it */
    uint64_t small, limit; /* the value in other cases; the last one documented, 0: of its type */
} field;
#define FIELD(type, member, name, small, limit)                                                    \
    {                                                                                              \
        offsetof(type, member), sizeof(((type *)0)->member), name, small, limit                    \
    }
#define VALUES 14u
static uint64_t most_of(const field *f)
{
    return f->bytes == 8 ? UINT64_MAX : UINT32_MAX;
}
static uint64_t value_of(const field *f, uint32_t i)
{
    const uint64_t most = most_of(f), limit = f->limit ? f->limit : most;
    const uint64_t values[VALUES] = {0,         1,         2,         f->small,    3,
                                     64,        most / 2,  most - 1,  most,        limit,
                                     limit - 1, limit + 1, limit / 2, most / 2 + 1};
    return values[i] & most;
}
static void set_field(void *desc, const field *f, uint64_t value)
{
    const uint32_t word = (uint32_t)value;
    memcpy((char *)desc + f->at, f->bytes == 8 ? (const void *)&value : (const void *)&word,
           f->bytes);
}

/* ---- sessions: plans, topologies, states, launches ---- */

#define S(member, name, small, limit) FIELD(fleet_session_desc, member, name, small, limit)
static const field session_fields[] = {
    S(plan.topology.chiplets, "chiplets", 2, FLEET_MAX_CHIPLETS),
    S(plan.topology.units[0], "units", 2, 65536),
    S(plan.topology.units[1], "units", 2, 65536),
    S(plan.topology.wave_size, "wave_size", 1, 64),
    S(plan.topology.lds_bytes, "lds_bytes", 65536, 0),
    S(plan.topology.l2_bytes, "l2_bytes", 65536, 0),
    S(plan.topology.llc_bytes, "llc_bytes", 65536, 0),
    S(plan.topology.private_l2, "private_l2", 0, 1),
    S(plan.ranks, "ranks", 0, FLEET_MAX_PEERS),
    S(plan.schedule, "schedule", FLEET_SCHEDULE_STATIC, FLEET_SCHEDULE_AUTO),
    S(plan.workers_per_chiplet, "workers_per_chiplet", 0, 2),
    S(plan.counter_levels, "counter_levels", 0, 2),
    S(plan.counter_stride_bytes, "counter_stride_bytes", 0, 128),
    S(plan.unfused, "unfused", 0, 1),
    S(plan.chiplet_unaware, "chiplet_unaware", 0, 1),
    S(plan.early_push, "early_push", 0, 1),
    S(plan.n_bindings, "binding", 1, FLEET_MAX_SYMBOLS),
    S(plan.bindings[0].value, "symbol n", TASKS, TASKS),
    S(plan.n_buckets, "buckets", 0, FLEET_MAX_SYMBOLS),
    S(plan.max_work, "max_work", 0, FLEET_MAX_WORK),
    S(state.placement, "placement", FLEET_PLACEMENT_DEFAULT, FLEET_PLACEMENT_RANDOM),
    S(state.seed, "seed", 1, 0),
    S(state.first_epoch, "first_epoch", 0, 0),
    S(state.spare, "spare", 0, INT32_MAX),
    S(launch.steps, "steps", 2, 0),
    S(launch.threads, "threads", 0, 64),
    S(launch.lds_bytes, "lds_bytes", 0, 1u << 16),
    S(launch.pipeline_bytes, "pipeline_bytes", 0, 1u << 16),
    S(launch.ordinary, "ordinary", 0, 1),
    S(launch.ignore_occupancy, "ignore_occupancy", 0, 1),
    S(launch.finish, "finish", 0, 1),
    S(launch.limit_ns, "limit_ns", 0, INT64_MAX),
    S(launch.peer_limit_ns, "peer_limit_ns", 0, INT64_MAX),
    S(launch.host.engine, "engine", FLEET_ENGINE_THREADS, FLEET_ENGINE_DETERMINISTIC),
    S(launch.host.seed, "seed", 1, 0),
    S(launch.host.waves, "waves", 0, 64),
    S(launch.host.chiplets, "chiplets", 0, 0),
    S(launch.host.stack_bytes, "stack_bytes", 0, 16384),
    S(launch.host.memory_model, "memory_model", 0, 1),
};
#define SESSION_FIELDS (sizeof session_fields / sizeof *session_fields)

static fleet_session_desc small_session(void)
{
    fleet_session_desc d = fleet_session_desc_default();
    d.plan.topology = fleet_topology_make(FLEET_MAX_CHIPLETS, 2);
    for (uint32_t i = 0; i < SESSION_FIELDS; i++)
        set_field(&d, &session_fields[i], session_fields[i].small);
    return d;
}

/* Whether the status says enough alone. */
static int is_plain(fleet_status status, const fleet_session_desc *d)
{
    if (status == FLEET_ERROR_TIMEOUT || status == FLEET_ERROR_RESIDENCY)
        return d->launch.limit_ns && d->launch.limit_ns < 100;
    return status == FLEET_ERROR_MEMORY || status == FLEET_ERROR_TOO_MANY_WORKERS;
}

/* Opens and runs a session. names: of the fields that are extreme, or null. */
static void check_session(test_run *t, fleet_session_desc d, const char *const *names,
                          const char *what)
{
    char text[2048];
    cells c;
    add args;
    fleet_session s;
    fleet_dim n;
    fleet_graph *g;
    fleet_status status;
    uint32_t steps, tasks = TASKS;
    taken = 0;
    g = make_graph(&n);
    for (uint32_t i = 0; i < FLEET_MAX_SYMBOLS; i++) {
        d.plan.bindings[i].symbol = d.plan.buckets[i].symbol = n.symbol;
        if (i) d.plan.bindings[i].value = TASKS;
    }
    if (d.plan.n_bindings == 1) tasks = (uint32_t)d.plan.bindings[0].value;
    memset(&c, 0, sizeof c);
    args.c = &c;
    c.finish = d.launch.steps > MOST_STEPS && d.launch.finish; /* a tile ends it */
    alarm(LONGEST_S);                                          /* ends the program */
    status = fleet_session_open(&s, g, &d, FLEET_KERNEL_OF(add_kernel));
    if (!status && !d.plan.n_bindings) status = fleet_bind(&s.state, "n", TASKS, d.launch.stream);
    if (!status) status = fleet_session_run(&s, &args, sizeof args);
    if (!status) status = fleet_session_wait(&s);
    fleet_session_report(&s, text, sizeof text);
    fleet_session_close(&s);
    fleet_graph_destroy(g);
    alarm(0);
    if (status) {
        if (!is_plain(status, &d) && !strstr(text, names[0]) &&
            !(names[1] && strstr(text, names[1])))
            test_fail(t, __FILE__, __LINE__, "%s: %s, but the text is \"%s\"", what,
                      fleet_status_name(status), text);
        return;
    }
    if (d.launch.host.waves > 64)
        test_fail(t, __FILE__, __LINE__, "%s: FLEET_OK, but at most 64 waves can run", what);
    steps = c.finish ? LAST_STEP : d.launch.steps;
    if (c.sums != steps || c.sum != steps * tasks)
        test_fail(t, __FILE__, __LINE__, "%s: FLEET_OK, but %u of %u steps ran, and %u of %u tasks",
                  what, c.sums, steps, c.sum, steps * tasks);
}

/* Sets fields a and b, which may be the same, to values i and j. */
static void check_fields(test_run *t, const field *a, uint32_t i, const field *b, uint32_t j)
{
    const char *const names[2] = {a->name, b->name};
    fleet_session_desc d = small_session();
    char what[160];
    set_field(&d, b, value_of(b, j));
    set_field(&d, a, value_of(a, i));
    if (d.launch.steps > MOST_STEPS && !d.launch.finish) d.launch.finish = 1;
    snprintf(what, sizeof what, "%s %llu, %s %llu", a->name, (unsigned long long)value_of(a, i),
             b->name, (unsigned long long)value_of(b, j));
    check_session(t, d, names, what);
}
static void fields_of_sessions(test_run *t)
{
    for (uint32_t f = 0; f < SESSION_FIELDS; f++)
        for (uint32_t i = 0; i < VALUES; i++)
            check_fields(t, &session_fields[f], i, &session_fields[f], i);
}

/* Fields that are related: the same value in both, and each with the first two of the other. */
static const char *const related[][2] = {
    {"schedule", "units"},
    {"schedule", "workers_per_chiplet"},
    {"schedule", "unfused"},
    {"schedule", "chiplet_unaware"},
    {"schedule", "early_push"},
    {"schedule", "steps"},
    {"units", "workers_per_chiplet"},
    {"chiplets", "ranks"},
    {"wave_size", "threads"},
    {"threads", "pipeline_bytes"},
    {"lds_bytes", "pipeline_bytes"},
    {"waves", "pipeline_bytes"},
    {"steps", "first_epoch"},
    {"binding", "buckets"},
    {"binding", "symbol n"},
    {"engine", "stack_bytes"},
    {"engine", "memory_model"},
    {"engine", "waves"},
    {"engine", "pipeline_bytes"},
    {"limit_ns", "peer_limit_ns"},
    {"spare", "placement"},
    {"seed", "placement"},
};
static void related_fields_of_sessions(test_run *t)
{
    for (uint32_t r = 0; r < sizeof related / sizeof *related; r++)
        for (uint32_t a = 0; a < SESSION_FIELDS; a++)
            for (uint32_t b = 0; b < SESSION_FIELDS; b++) {
                if (strcmp(session_fields[a].name, related[r][0]) ||
                    strcmp(session_fields[b].name, related[r][1]))
                    continue;
                for (uint32_t i = 0; i < VALUES; i++)
                    for (uint32_t j = 0; j < VALUES; j++)
                        if (i == j || i < 2 || j < 2)
                            check_fields(t, &session_fields[a], i, &session_fields[b], j);
            }
}

/* ---- ordinary kernels ---- */

typedef struct touched {
    uint32_t waves, bytes;
} touched;
/* Each wave writes to both ends of its workgroup's LDS. */
FLEET_GLOBAL(64) void touch(touched *t)
{
    char *lds = (char *)fleeti_dynamic_lds();
    if (t->bytes) {
        __atomic_store_n(lds, 1, __ATOMIC_RELAXED);
        __atomic_store_n(lds + t->bytes - 1, 1, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&t->waves, 1, __ATOMIC_RELAXED);
}
FLEET_THUNK1(touch, touched *)

#define K(member, small, limit) FIELD(fleet_kernel_desc, member, #member, small, limit)
static const field kernel_fields[] = {
    K(blocks, 2, 16384),        K(threads, 64, 1024),   K(lds_bytes, 64, 1u << 16),
    K(cooperative, 0, 1),       K(host.engine, 0, 1),   K(host.seed, 1, 0),
    K(host.waves, 1, 64),       K(host.chiplets, 0, 0), K(host.stack_bytes, 0, 16384),
    K(host.memory_model, 0, 1),
};
#define KERNEL_FIELDS (sizeof kernel_fields / sizeof *kernel_fields)

static int may_fail(fleet_status status, const fleet_kernel_desc *d)
{
    const uint64_t waves = (uint64_t)d->blocks * (d->host.waves ? d->host.waves : 1);
    if (!d->blocks || fleeti_bad_host_desc(&d->host)) return status == FLEET_ERROR_ARGUMENT;
    if (waves > 16384) return status == FLEET_ERROR_TOO_MANY_WORKERS;
    return status == FLEET_ERROR_MEMORY &&
           (waves > 1000 || d->lds_bytes > 1u << 24 || d->host.stack_bytes > 1u << 24);
}
static void fields_of_kernels(test_run *t)
{
    for (uint32_t a = 0; a < KERNEL_FIELDS; a++)
        for (uint32_t b = a; b < KERNEL_FIELDS; b++)
            for (uint32_t i = 0; i < VALUES; i++) {
                fleet_kernel_desc d = fleet_kernel_desc_default();
                touched seen, *at = &seen;
                void *args[1];
                fleet_status status;
                for (uint32_t k = 0; k < KERNEL_FIELDS; k++)
                    set_field(&d, &kernel_fields[k], kernel_fields[k].small);
                set_field(&d, &kernel_fields[a], value_of(&kernel_fields[a], i));
                set_field(&d, &kernel_fields[b], value_of(&kernel_fields[b], i));
                seen.waves = 0, seen.bytes = d.lds_bytes;
                args[0] = &at;
                taken = 0;
                alarm(LONGEST_S);
                status = fleet_kernel_launch(FLEET_KERNEL_OF(touch), args, &d);
                alarm(0);
                if (status ? !may_fail(status, &d)
                           : seen.waves != d.blocks * (d.host.waves ? d.host.waves : 1))
                    test_fail(t, __FILE__, __LINE__, "%s and %s, value %u: %s, %u waves ran",
                              kernel_fields[a].name, kernel_fields[b].name, i,
                              fleet_status_name(status), seen.waves);
            }
}

/* ---- traces ---- */

#define T(member, small, limit) FIELD(fleet_trace_desc, member, #member, small, limit)
static const field trace_fields[] = {T(records, 8, INT32_MAX), T(first_step, 0, 0)};

static void check_trace(test_run *t, const fleet_trace_desc *d)
{
    const uint32_t steps = 3, in_log = d->first_step < steps ? steps - d->first_step : 0;
    fleet_session_desc desc = small_session();
    fleet_dim n;
    fleet_graph *g = make_graph(&n);
    fleet_session s;
    fleet_trace trace;
    fleet_trace_log log;
    cells c;
    add args;
    fleet_status made;
    const uint32_t valid = d->records && d->records <= INT32_MAX;
    memset(&c, 0, sizeof c);
    args.c = &c;
    desc.launch.steps = steps, desc.plan.bindings[0].symbol = n.symbol;
    CHECK_INT(fleet_session_open(&s, g, &desc, FLEET_KERNEL_OF(add_kernel)), FLEET_OK);
    taken = 0;
    made = fleet_trace_create(&trace, s.plan, d, NULL);
    CHECK_INT(fleet_trace_bytes(s.plan, d) != 0, valid);
    if (made) {
        CHECK(valid ? made == FLEET_ERROR_MEMORY && d->records > 1u << 20
                    : made == FLEET_ERROR_ARGUMENT);
    } else {
        s.launch.trace = &trace;
        CHECK_INT(fleet_session_run(&s, &args, sizeof args), FLEET_OK);
        CHECK_INT(fleet_session_wait(&s), FLEET_OK);
        CHECK_INT(fleet_trace_read(&log, &trace, NULL), FLEET_OK);
        CHECK_INT(log.n_tasks + log.dropped, in_log * (TASKS + 1));
        CHECK(log.dropped == 0 || d->records < in_log * (TASKS + 1));
        fleet_trace_log_free(&log);
        fleet_trace_free(&trace);
    }
    fleet_session_close(&s);
    fleet_graph_destroy(g);
}
static void fields_of_traces(test_run *t)
{
    for (uint32_t i = 0; i < VALUES && !t->failed_here; i++)
        for (uint32_t j = 0; j < VALUES && !t->failed_here; j++) {
            fleet_trace_desc d = fleet_trace_desc_default();
            set_field(&d, &trace_fields[0], value_of(&trace_fields[0], i));
            set_field(&d, &trace_fields[1], value_of(&trace_fields[1], j));
            check_trace(t, &d);
        }
}

/* ---- linear layers ---- */

#define L(member, small, limit) FIELD(fleet_linear_desc, member, #member, small, limit)
static const field linear_fields[] = {
    L(m, 64, 1 << 28),
    L(n, 64, 1 << 28),
    L(k, 64, 1 << 28),
    L(tile_m, 16, 1 << 28),
    L(tile_n, 16, 1 << 28),
    L(tile_k, 16, 1 << 28),
    L(element_bytes, 2, 4),
    L(l2_budget_bytes, 0, 4194304),
    L(workers_per_chiplet, 0, 3),
    L(levels, 0, 5),
    L(splits, 0, 7),
    L(traversals, 0, 7),
    L(window, 0, 1 << 28),
    L(slices, 0, 4096),
    L(fused_columns, 0, 64),
    L(fused_input, 0, 1),
};
#define LINEAR_FIELDS (sizeof linear_fields / sizeof *linear_fields)

static int is_finite(double v)
{
    return v >= 0 && v < 1e300;
}
/* The slices have each tile once; where they split k, each k once. */
static int covers(const fleet_linear_plan *p)
{
    const fleet_linear *l = &p->linear;
    uint64_t work = 0;
    for (uint32_t s = 0; s < p->slices; s++) {
        const fleet_partition part = fleet_linear_partition(l, s, p->slices);
        work += (uint64_t)part.m_tiles * part.n_tiles * part.k;
    }
    return work == (uint64_t)p->m_tiles * p->n_tiles * l->k;
}
static void check_linear(test_run *t, const fleet_linear_desc *d, const fleet_topology *chip,
                         const char *const *names, const char *what)
{
    fleet_linear_plan p;
    fleet_status status;
    alarm(LONGEST_S);
    status = fleet_linear_choose(d, chip, &p);
    alarm(0);
    if (status ? !strstr(p.why, names[0]) && !strstr(p.why, names[1])
               : !covers(&p) || !is_finite(p.us) || !is_finite(p.hbm_weight_bytes) || p.us <= 0)
        test_fail(t, __FILE__, __LINE__, "%s: %s, %f us: %s", what, fleet_status_name(status), p.us,
                  p.why);
}
static void fields_of_linear_layers(test_run *t)
{
    static const uint32_t units[] = {0, 1, 2, UINT32_MAX / 2, UINT32_MAX - 1, UINT32_MAX};
    static const uint64_t l2[] = {0, 1, 2048, UINT64_MAX / 2, UINT64_MAX - 1, UINT64_MAX};
    static const char *const of_chip[2] = {"units", "l2_"};
    fleet_linear_desc small = fleet_linear_desc_default(), d;
    fleet_topology chip = fleet_topology_make(2, 3);
    char what[160];
    for (uint32_t k = 0; k < LINEAR_FIELDS; k++)
        set_field(&small, &linear_fields[k], linear_fields[k].small);
    for (uint32_t a = 0; a < LINEAR_FIELDS; a++)
        for (uint32_t b = a; b < LINEAR_FIELDS; b++)
            for (uint32_t i = 0; i < VALUES; i++) {
                const char *names[2];
                names[0] = linear_fields[a].name, names[1] = linear_fields[b].name;
                d = small;
                set_field(&d, &linear_fields[a], value_of(&linear_fields[a], i));
                set_field(&d, &linear_fields[b], value_of(&linear_fields[b], i));
                snprintf(what, sizeof what, "%s %lld, %s %lld", names[0],
                         (long long)value_of(&linear_fields[a], i), names[1],
                         (long long)value_of(&linear_fields[b], i));
                check_linear(t, &d, &chip, names, what);
            }
    for (uint32_t i = 0; i < sizeof units / sizeof *units; i++)
        for (uint32_t j = 0; j < sizeof l2 / sizeof *l2; j++) {
            chip.units[0] = chip.units[1] = units[i], chip.l2_bytes = l2[j];
            snprintf(what, sizeof what, "%u units, l2_bytes %llu", units[i],
                     (unsigned long long)l2[j]);
            check_linear(t, &small, &chip, of_chip, what);
        }
}

/* From tile `first` on, each stride-th tile of an m by n output comes once. */
static void check_stride(test_run *t, uint32_t m, uint32_t n, uint32_t traversal, uint32_t window,
                         uint32_t first, uint32_t stride)
{
    uint32_t tiles = 0;
    fleet_partition part;
    fleet_tile_iterator w;
    fleet_linear l;
    memset(&l, 0, sizeof l);
    l.m = m, l.n = n, l.k = l.tile_m = l.tile_n = l.tile_k = l.element_bytes = 1;
    l.split = FLEET_SPLIT_N, l.traversal = traversal, l.window = window;
    part = fleet_linear_partition(&l, 0, 1);
    w = fleet_tile_begin(&l, &part, first, stride);
    for (; w.more && tiles <= 100; fleet_tile_next(&w)) tiles++;
    CHECK_INT(tiles, first < m * n ? (m * n - first - 1) / stride + 1 : 0);
}
static void strides_of_tiles(test_run *t)
{
    static const uint32_t strides[] = {1, 2, 3, 5, 65535, 1u << 30, INT32_MAX, 1u << 31};
    for (uint32_t i = 0; i < 8 * 3 * 3 * 3 * 2; i++) {
        const uint32_t m = 1 + i / 8 % 3, n = 1 + i / 24 % 3;
        for (uint32_t first = 0; first <= m * n; first++)
            check_stride(t, m, n, i / 72 % 3, 1 + i / 216, first, strides[i % 8]);
    }
    for (uint32_t bit = 16; bit < 28; bit++) /* a last window of one column */
        check_stride(t, 1, (1u << bit) + 1, FLEET_TRAVERSAL_WINDOWED, 1u << bit, 1u << bit,
                     1u << (32 - bit));
}

/* ---- rings, pages, peers, topologies: no text, but limits that their documentation has ---- */

static void fields_of_rings(test_run *t)
{
    static const field of_ring = {0, 4, "", 8, 1u << 20}, of_message = {0, 4, "", 4, 256};
    const uint32_t word[64] = {0};
    for (uint32_t i = 0; i < VALUES; i++)
        for (uint32_t j = 0; j < VALUES; j++) {
            const uint32_t n = (uint32_t)value_of(&of_ring, i),
                           m = (uint32_t)value_of(&of_message, j);
            const uint32_t valid =
                n >= 2 && n <= 1u << 20 && !(n & (n - 1)) && m && m <= 256 && !(m % 4);
            const size_t bytes = fleet_ring_bytes(n, m);
            fleet_ring host, device;
            uint32_t pushed = 0;
            void *memory;
            CHECK_INT(bytes != 0, valid);
            CHECK(!valid || bytes >= (size_t)n * (m + 4));
            if (bytes > 1u << 20) continue;
            memory = aligned_alloc(FLEET_CACHE_LINE_BYTES, (bytes + 128) / 128 * 128);
            CHECK_INT(fleet_ring_init(&host, &device, memory, memory, n, m),
                      valid ? FLEET_OK : FLEET_ERROR_ARGUMENT);
            while (valid && fleet_ring_push(&host, word) == FLEET_OK) pushed++;
            CHECK_INT(pushed, valid ? n : 0);
            free(memory);
        }
}

static void take_pages(test_run *t, fleet_pages *p, uint32_t pages, uint32_t page_tokens)
{
    const uint32_t needs[] = {0, 1, pages, pages + 1, UINT32_MAX - 1, UINT32_MAX};
    uint32_t *tokens = (uint32_t *)calloc((size_t)pages * page_tokens + 1, 4);
    uint32_t *table = (uint32_t *)calloc((size_t)pages + 1, 4);
    for (uint32_t i = 0; i < 6; i++) {
        fleet_admission a;
        uint32_t n = 0;
        const fleet_status status = fleet_pages_admit(p, tokens, UINT32_MAX, needs[i], table, &a);
        CHECK_INT(status, needs[i] > pages ? FLEET_ERROR_ARGUMENT : FLEET_OK);
        n = a.reused;
        while (n <= pages && (table[n] = fleet_pages_allocate(p, &a)) != FLEET_PAGES_NONE) n++;
        CHECK_INT(n, status ? 0 : needs[i]);
        if (n > a.reused) CHECK_INT(fleet_pages_insert(p, &a, table[a.reused], tokens), FLEET_OK);
        CHECK_INT(fleet_pages_share(p, pages), FLEET_ERROR_ARGUMENT);
        CHECK_INT(fleet_pages_share(p, UINT32_MAX), FLEET_ERROR_ARGUMENT);
        CHECK_INT(fleet_pages_release(p, UINT32_MAX), FLEET_ERROR_ARGUMENT);
        CHECK_INT(fleet_pages_insert(p, &a, UINT32_MAX, tokens), FLEET_ERROR_ARGUMENT);
        CHECK_INT(fleet_pages_finish(p, &a, table, n), FLEET_OK);
        CHECK(!fleet_pages_check(p));
        CHECK_INT(fleet_pages_available(p), pages);
    }
    free(tokens);
    free(table);
}
static void fields_of_pages(test_run *t)
{
    static const field of_pages = {0, 4, "", 8, 1u << 30}, of_tokens = {0, 4, "", 4, 1u << 20};
    for (uint32_t i = 0; i < VALUES; i++)
        for (uint32_t j = 0; j < VALUES && !t->failed_here; j++) {
            const uint32_t n = (uint32_t)value_of(&of_pages, i),
                           m = (uint32_t)value_of(&of_tokens, j);
            const size_t bytes = fleet_pages_bytes(n, m);
            const uint32_t valid = n && m && n <= 1u << 30 && m <= 1u << 20;
            uint64_t word;
            fleet_pages *p = NULL;
            CHECK_INT(bytes != 0, valid);
            CHECK(!valid || bytes / n > (size_t)m * 4);
            if (!valid)
                CHECK_INT(fleet_pages_init((fleet_pages *)(void *)&word, n, m),
                          FLEET_ERROR_ARGUMENT);
            if (!valid || bytes > 1u << 16) continue;
            p = (fleet_pages *)malloc(bytes);
            CHECK_INT(fleet_pages_init(p, n, m), FLEET_OK);
            take_pages(t, p, n, m);
            free(p);
        }
}

static void fields_of_peers(test_run *t)
{
    static const field of_peers = {0, 4, "", 2, FLEET_MAX_PEERS};
    char text[512];
    uint32_t *regions = NULL;
    for (uint32_t ranks = 1; ranks <= 2; ranks++) {
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_graph *g = fleet_graph_create(NULL);
        const fleet_grid grid = fleet_call_device(g, "a", 0, fleet_shape1_of(2), 0);
        fleet_plan *plan;
        fleet_image image;
        desc.topology = fleet_topology_make(1, 2), desc.ranks = ranks;
        if (ranks > 1) fleet_grid_ranks(g, grid, fleet_axis(0, 1, 0, 1));
        CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
        CHECK_INT(fleet_upload(&image, plan, NULL), FLEET_OK);
        regions = (uint32_t *)aligned_alloc(128, 128 + fleet_peers_bytes(plan));
        for (uint32_t i = 0; i < VALUES; i++)
            for (uint32_t j = 0; j < VALUES; j++) {
                fleet_state_desc d = fleet_state_desc_default();
                fleet_state s;
                fleet_peers peers;
                fleet_status status;
                uint32_t valid;
                memset(&peers, 0, sizeof peers);
                peers.rank = (uint32_t)value_of(&of_peers, i);
                peers.ranks = (uint32_t)value_of(&of_peers, j);
                peers.bases[0] = peers.bases[1] = regions;
                d.peers = &peers;
                taken = 0;
                valid =
                    peers.ranks == ranks && (peers.rank < ranks || peers.rank == FLEET_ALL_RANKS);
                status = fleet_peers_check(&peers, plan, text, sizeof text);
                CHECK_INT(status, valid ? FLEET_OK : FLEET_ERROR_ARGUMENT);
                CHECK(valid || strstr(text, "fleet_peers.rank"));
                CHECK_INT(fleet_state_create(&s, &image, &d, NULL), status);
                fleet_state_free(&s);
            }
        free(regions);
        fleet_image_free(&image);
        fleet_plan_free(plan);
        fleet_graph_destroy(g);
    }
}

static void fields_of_buckets(test_run *t)
{
    static const field of_count = {0, 4, "", 2, FLEET_MAX_BUCKETS};
    int64_t values[2 * FLEET_MAX_BUCKETS];
    for (uint32_t i = 0; i < 2 * FLEET_MAX_BUCKETS; i++) values[i] = i + 1;
    for (uint32_t i = 0; i < VALUES; i++) {
        fleet_plan_desc d = fleet_plan_desc_default();
        fleet_graph *g = fleet_graph_create(NULL);
        const fleet_dim n = fleet_symbol(g, "n", 1, 1000);
        fleet_plan *plan;
        fleet_status status;
        const uint32_t count = (uint32_t)value_of(&of_count, i);
        d.topology = fleet_topology_make(1, 2);
        fleet_call_device(g, "a", 0, fleet_shape1(n), 0);
        fleet_buckets_at_build(&d, n, values, count);
        taken = 0;
        status = fleet_plan_build(g, &d, &plan);
        CHECK_INT(status, count < FLEET_MAX_BUCKETS ? FLEET_OK : FLEET_ERROR_ARGUMENT);
        if (status) CHECK_TEXT(fleet_graph_error(g), "buckets");
        fleet_plan_free(plan);
        fleet_graph_destroy(g);
    }
}

static void fields_of_extents(test_run *t)
{
    static const field of_extent = {0, 8, "", 4, INT32_MAX};
    for (uint32_t i = 0; i < VALUES; i++)
        for (uint32_t j = 0; j < VALUES; j++)
            for (uint32_t how = 0; how < 4; how++) {
                const int64_t a = (int64_t)value_of(&of_extent, i),
                              b = (int64_t)value_of(&of_extent, j);
                fleet_plan_desc d = fleet_plan_desc_default();
                fleet_graph *g = fleet_graph_create(NULL);
                const fleet_dim of = fleet_dim_of(a);
                fleet_dim n = how == 0   ? fleet_dim_times(of, b)
                              : how == 1 ? fleet_dim_plus(of, b)
                              : how == 2 ? fleet_dim_ceil_div(of, b)
                                         : fleet_symbol(g, "grid n", a, b);
                fleet_plan *plan;
                fleet_status status;
                fleet_call_device(g, "grid a", 0, fleet_shape1(n), 0);
                d.topology = fleet_topology_make(1, 2);
                d.max_work = 1u << 20;
                taken = 0;
                status = fleet_plan_build(g, &d, &plan);
                if (status)
                    CHECK_TEXT(fleet_graph_error(g), "grid ");
                else
                    CHECK(fleet_plan_check(plan, (size_t)plan->bytes) == FLEET_OK);
                fleet_plan_free(plan);
                fleet_graph_destroy(g);
            }
}

static void list(test_run *t)
{
    TEST(fields_of_sessions);
    TEST(related_fields_of_sessions);
    TEST(fields_of_kernels);
    TEST(fields_of_traces);
    TEST(fields_of_linear_layers);
    TEST(strides_of_tiles);
    TEST(fields_of_rings);
    TEST(fields_of_pages);
    TEST(fields_of_peers);
    TEST(fields_of_buckets);
    TEST(fields_of_extents);
}
TEST_MAIN(list)
