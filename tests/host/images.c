/* Plans from outside, damaged and forged: each is refused with a status, or it runs to a status. The sanitizers watch
   that nothing is read or written but the image, the state and what the plan asks of its caller.
   Every single bit of a small plan of each kind is flipped, with and without a checksum to match; larger ones are
   changed at random. FLEET_TEST_KIND and FLEET_TEST_BIT replay one flip, FLEET_TEST_SEED one random change. */
// run: asan whole -DFLEET_TRACE
#include "settings.h"
#include "examples/parts/fleet_trace.h"
#include "plan/forge.h"

#include <signal.h>
#include <unistd.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

/* ---- tiles that bear every coordinate ---- */

#define TENSORS 3u
#define ARGS 4u

typedef struct forged {
    int32_t *tensor[TENSORS]; /* topk, counts, indptr, each with room for so many: */
    uint32_t values[TENSORS];
    uint32_t tokens, k, experts, rows;
    uint32_t *ran;
} forged;

static void put(const forged *m, uint32_t tensor, uint32_t i, uint32_t value)
{
    if (i < m->values[tensor]) m->tensor[tensor][i] = (int32_t)value;
}

FLEET_TILE(work, forged)
{
    fleet_add_relaxed_device(args->ran, 1);
    FLEET_UNUSED(ctx);
    FLEET_UNUSED(at);
    return FLEET_OK;
}
/* Row i of topk. */
FLEET_TILE(route, forged)
{
    for (uint32_t j = 0; j < args->k; j++)
        put(args, 0, (uint32_t)at[0] * args->k + j, ((uint32_t)at[0] + j) % args->experts);
    FLEET_UNUSED(ctx);
    return FLEET_OK;
}
/* counts, and indptr: a tile for `rows` of them. */
FLEET_TILE(group, forged)
{
    const uint32_t tokens = args->tokens ? args->tokens : (uint32_t)ctx.symbols[0];
    uint32_t tiles = 0;
    for (uint32_t e = 0; e < args->experts; e++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < tokens; i++)
            for (uint32_t j = 0; j < args->k; j++) n += (i + j) % args->experts == e;
        put(args, 1, e, n);
        put(args, 2, e, tiles);
        tiles += (n + args->rows - 1) / args->rows;
    }
    put(args, 2, args->experts, tiles);
    FLEET_UNUSED(at);
    return FLEET_OK;
}
#define FORGED_TILES(TILE, P) TILE(P, work) TILE(P, route) TILE(P, group)
FLEET_DISPATCH(forged, FORGED_TILES)
FLEET_KERNEL(forged_kernel, forged, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(forged);
}

/* ---- plans of each kind ---- */

typedef struct kind {
    const char *name;
    fleet_schedule schedule;
    uint32_t mixed, buckets, mapped, unaware, unfused, early, outside, declared, uneven;
} kind;
static const kind kinds[] = {
    {"static", FLEET_SCHEDULE_STATIC, 0, 0, 0, 0, 0, 0, 1, 0, 0},
    {"chiplet", FLEET_SCHEDULE_CHIPLET, 0, 0, 0, 0, 0, 0, 1, 0, 1},
    {"dynamic", FLEET_SCHEDULE_DYNAMIC, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    {"mixed", FLEET_SCHEDULE_DYNAMIC, 1, 0, 0, 0, 0, 0, 1, 0, 0},
    {"early", FLEET_SCHEDULE_DYNAMIC, 0, 0, 0, 0, 0, 1, 0, 0, 0},
    {"unaware", FLEET_SCHEDULE_STATIC, 0, 0, 0, 1, 0, 0, 0, 0, 1},
    {"unfused", FLEET_SCHEDULE_STATIC, 0, 0, 0, 0, 1, 0, 0, 0, 0},
    {"ahead", FLEET_SCHEDULE_STATIC, 0, 0, 0, 0, 0, 0, 0, 1, 0},
    {"static_buckets", FLEET_SCHEDULE_STATIC, 0, 1, 0, 0, 0, 0, 0, 0, 0},
    {"chiplet_buckets", FLEET_SCHEDULE_CHIPLET, 0, 1, 0, 0, 0, 0, 0, 0, 0},
    {"dynamic_buckets", FLEET_SCHEDULE_DYNAMIC, 0, 1, 0, 0, 0, 0, 0, 0, 0},
    {"mapped", FLEET_SCHEDULE_DYNAMIC, 0, 0, 1, 0, 0, 0, 0, 0, 0},
    {"mapped_early", FLEET_SCHEDULE_DYNAMIC, 0, 0, 1, 0, 0, 1, 0, 0, 0},
    {"mapped_buckets", FLEET_SCHEDULE_DYNAMIC, 0, 1, 1, 0, 0, 0, 0, 0, 1},
    {"mapped_static", FLEET_SCHEDULE_STATIC, 0, 1, 1, 0, 0, 0, 0, 0, 0},
};
#define KINDS ((uint32_t)(sizeof kinds / sizeof kinds[0]))

/* Wavefront-, device- and CU-tasks; n of some. */
static void add_plain(fleet_graph *g, const kind *k, fleet_dim n)
{
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(n), FLEET_COUNT_DERIVED);
    fleet_etensor F = fleet_event_tensor(g, "F", fleet_shape0(), FLEET_COUNT_DERIVED);
    /* A trapezium, and an event of its shape, where there are buckets. */
    const fleet_dim width = fleet_dim_plus_axis(fleet_dim_of(3), 0, k->buckets);
    const fleet_shape wide = fleet_shape2(n, width);
    fleet_grid w = fleet_call_device(g, "w", forged_work, wide, 1);
    fleet_grid d = fleet_call_device(g, "d", forged_work, fleet_shape0(), 0);
    fleet_grid c = fleet_call_device(g, "c", forged_work, fleet_shape1(n), ARGS - 1);
    fleet_grid_level(g, w, FLEET_LEVEL_WAVE);
    fleet_grid_level(g, d, FLEET_LEVEL_DEVICE);
    fleet_grid_tiles(g, d, fleet_dim_of(2));
    fleet_out_edge(g, w, E, "ij->i");
    fleet_in_edge(g, d, E, "->e");
    fleet_out_edge(g, d, F, "->");
    fleet_in_edge(g, c, F, "i->");
    fleet_in_edge(g, c, E, "i->i");
    if (k->buckets) {
        fleet_etensor T = fleet_event_tensor(g, "T", wide, 1);
        fleet_out_edge(g, w, T, "ij->ij");
        fleet_in_edge(g, c, T, "i->ij");
    }
    if (k->mixed) fleet_grid_schedule(g, c, FLEET_SCHEDULE_STATIC);
    if (k->outside) fleet_event_external(g, F, FLEET_EXTERNAL_WAITS, 0, FLEET_SCOPE_SYSTEM);
    if (k->declared) {
        fleet_buffer x = fleet_declare_buffer(g, "x"), y = fleet_declare_buffer(g, "y");
        fleet_grid_writes(g, w, x);
        fleet_grid_reads(g, d, x);
        fleet_grid_writes(g, d, y);
        fleet_grid_reads(g, c, y);
    }
}

/* A mixture of experts. */
static void add_mapped(fleet_graph *g, fleet_dim n, const forged *m, uint32_t most)
{
    fleet_dim experts = fleet_dim_of(m->experts);
    fleet_dim tiles =
        fleet_dim_plus(fleet_dim_ceil_div(fleet_dim_times(n, m->k), m->rows), (int64_t)m->experts);
    fleet_etensor routed = fleet_event_tensor(g, "routed", fleet_shape0(), 0);
    fleet_etensor grouped = fleet_event_tensor(g, "grouped", fleet_shape0(), 0);
    fleet_etensor filled = fleet_event_tensor(g, "filled", fleet_shape1(experts), most * m->k);
    fleet_grid route = fleet_call_device(g, "route", forged_route, fleet_shape1(n), 0);
    fleet_grid group = fleet_call_device(g, "group", forged_group, fleet_shape0(), 0);
    fleet_grid scatter = fleet_call_device(g, "scatter", forged_work, fleet_shape1(n), 0);
    fleet_grid tile = fleet_call_device(g, "tile", forged_work, fleet_shape1(tiles), 0);
    fleet_tensor topk = fleet_runtime_tensor(g, "topk", fleet_shape2(n, fleet_dim_of(m->k)), route);
    fleet_tensor counts = fleet_runtime_tensor(g, "counts", fleet_shape1(experts), group);
    fleet_tensor indptr =
        fleet_runtime_tensor(g, "indptr", fleet_shape1(fleet_dim_plus(experts, 1)), group);
    fleet_grid_level(g, scatter, FLEET_LEVEL_WAVE);
    fleet_out_edge(g, route, routed, "i->");
    fleet_in_edge(g, group, routed, "->");
    fleet_out_edge(g, group, grouped, "->");
    fleet_in_edge(g, scatter, grouped, "i->");
    fleet_out_edge_gather(g, scatter, filled, topk);
    fleet_event_counts(g, filled, counts);
    fleet_in_edge_range(g, tile, filled, indptr);
}

/* scale: 1 for a small plan; the arguments of the tiles go to *m. */
static fleet_plan *plan_of(const kind *k, uint32_t scale, forged *m)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const uint32_t most = k->mapped ? 3 * scale : 2 * scale;
    fleet_dim n = k->buckets ? fleet_symbol(g, "n", 1, most) : fleet_dim_of(most);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan = NULL;
    const int64_t values[1] = {1};
    memset(m, 0, sizeof *m);
    m->k = 2, m->experts = 2 * scale, m->rows = 2;
    m->tokens = k->buckets ? 0 : most;
    if (k->mapped)
        add_mapped(g, n, m, most);
    else
        add_plain(g, k, n);
    desc.topology = fleet_topology_make(2, scale > 1 ? 4 : 2);
    if (k->uneven) desc.topology.units[1] = scale > 1 ? 6 : 3;
    desc.topology.private_l2 = 0;
    desc.topology.wave_size = 1;
    desc.schedule = k->schedule;
    desc.chiplet_unaware = k->unaware;
    desc.unfused = k->unfused;
    desc.early_push = k->early;
    if (k->buckets && scale == 1) fleet_buckets_at_build(&desc, n, values, 1);
    if (fleet_plan_build(g, &desc, &plan)) printf("%s: %s\n", k->name, fleet_graph_error(g));
    fleet_graph_destroy(g);
    return plan;
}

/* ---- one image, from check to report ---- */

/* Which one it is, for the log of a crash. */
static char where[160];

static void tell_where(void)
{
    if (write(2, where, strlen(where)) < 0) return;
}
static void hang(int signal)
{
    (void)signal;
    tell_where();
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_print_stack_trace();
#endif
    _exit(124);
}

typedef struct tally {
    uint32_t refused, declined, ran, failed;
} tally;

static void ask_everything(const fleet_plan *plan)
{
    char text[512];
    uint32_t i;
    int32_t at[FLEET_MAX_RANK] = {0, 0, 0, 0, 0, 0};
    fleet_plan_get_stats(plan);
    fleet_plan_report(plan, text, sizeof text);
    fleet_plan_event(plan, "F");
    fleet_plan_task(plan, "w", at);
    for (i = 0; i < 40; i++) fleet_plan_task_name(plan, i * 3, text, sizeof text);
    for (i = 0; i < 600; i += 29) fleet_plan_counter_name(plan, i, text, sizeof text);
    for (i = 0; i + 1 < plan->n_buckets; i++) ask_everything(fleet_plan_bucket(plan, i));
}

/* Gives symbols values, and tensors exactly the memory that the plan asks for. */
static fleet_status bind_all(fleet_state *s, const fleet_plan *plan, forged *m, uint64_t *seed)
{
    const fleeti_symbol *symbols = (const fleeti_symbol *)section(plan, plan->symbols);
    const fleeti_tensor_info *tensors = (const fleeti_tensor_info *)section(plan, plan->tensors);
    fleet_status status = FLEET_OK;
    uint32_t i;
    for (i = 0; i < plan->n_symbols && !status; i++)
        if (symbols[i].at_launch) {
            const uint32_t range = (uint32_t)(symbols[i].max - symbols[i].min);
            status = fleet_bind(s, (const char *)section(plan, symbols[i].name),
                                symbols[i].min + (int64_t)draw(seed, range + 1), NULL);
        }
    for (i = 0; i < plan->n_tensors && i < TENSORS && !status; i++) { /* in their order */
        const char *name = (const char *)section(plan, tensors[i].name);
        m->values[i] = (uint32_t)fleet_plan_tensor_values(plan, name);
        free(m->tensor[i]);
        m->tensor[i] = (int32_t *)malloc(m->values[i] * sizeof(int32_t) + !m->values[i]);
        memset(m->tensor[i], 0, m->values[i] * sizeof(int32_t));
        status = fleet_bind_tensor(s, name, m->tensor[i], NULL);
    }
    return status;
}

/* Two launches and their report; of every fourth the trace, and a task alone. */
static fleet_status launch_all(fleet_state *s, const fleet_plan *plan, const forged *m,
                               uint64_t *seed)
{
    static char text[4096];
    fleet_launch_desc d = fleet_launch_desc_default();
    fleet_trace_desc records = fleet_trace_desc_default();
    fleet_trace trace;
    fleet_trace_log log;
    forged args[ARGS];
    fleet_status status = FLEET_OK;
    uint32_t i, more = draw(seed, 4) == 0;
    d.limit_ns = 100000000;
    d.host.engine = FLEET_ENGINE_DETERMINISTIC;
    d.host.seed = 1 + draw(seed, 1000);
    d.host.waves = 1 + draw(seed, 3);
    d.host.stack_bytes = 65536;
    records.records = 24;
    for (i = 0; i < ARGS; i++) args[i] = *m;
    if (more && fleet_trace_create(&trace, plan, &records, NULL)) return FLEET_ERROR_MEMORY;
    for (i = 0; i < 2; i++) {
        d.steps = 1 + i;
        d.trace = more && i ? &trace : NULL;
        status = fleet_launch(s, &d, FLEET_KERNEL_OF(forged_kernel), args);
        if (!status) status = fleet_state_wait(s, NULL);
        fleet_state_report(s, text, sizeof text);
        if (status && !i) fleet_state_recover(s, NULL);
    }
    if (!more) return status;
    if (fleet_trace_read(&log, &trace, NULL) == FLEET_OK) {
        fleet_trace_report(&log, 0, 0, text, sizeof text);
        fleet_trace_json(&log, 0, 2, text, sizeof text);
        fleet_trace_log_free(&log);
    }
    fleet_launch_task(s, &d, FLEET_KERNEL_OF(forged_kernel), args, draw(seed, 8), draw(seed, 2));
    fleet_trace_free(&trace);
    return status;
}

static void run_image(tally *n, const fleet_plan *plan, forged m, uint32_t launches, uint64_t seed)
{
    fleet_image image;
    fleet_state state;
    fleet_state_desc desc = fleet_state_desc_default();
    uint32_t i, ran = 0, done, large = plan->total_workers > 64 || plan->n_tasks > 4096;
    fleet_status status;
    ask_everything(plan);
    if (!launches) {
        n->declined++;
        return;
    }
    /* What fleet_plan_check leaves to its caller. */
    for (i = 0; i < plan->n_tensors; i++) {
        const fleeti_tensor_info *info =
            (const fleeti_tensor_info *)section(plan, plan->tensors) + i;
        large |= i >= TENSORS ||
                 fleet_plan_tensor_values(plan, (const char *)section(plan, info->name)) > 4096;
    }
    if (large || fleet_plan_args(plan) > ARGS || fleet_state_bytes(plan) > 1u << 24) {
        n->declined++;
        return;
    }
    m.ran = &ran;
    for (i = 0; i < TENSORS; i++) m.tensor[i] = NULL;
    desc.first_epoch = draw(&seed, 2) ? 0xfffffffeu : 0;
    status = fleet_upload(&image, plan, NULL);
    if (status) {
        n->refused++;
        return;
    }
    status = fleet_state_create(&state, &image, &desc, NULL);
    if (!status) {
        status = bind_all(&state, plan, &m, &seed);
        if (!status) status = launch_all(&state, plan, &m, &seed);
        for (i = 0; i < plan->n_events; i++) fleet_event_test(&state, (int32_t)i, 0, 1, &done);
        fleet_state_free(&state);
    }
    fleet_image_free(&image);
    for (i = 0; i < TENSORS; i++) free(m.tensor[i]);
    if (status)
        n->failed++;
    else
        n->ran++;
}

static void try_image(tally *n, const void *block, uint64_t bytes, const forged *m,
                      uint32_t launches, uint64_t seed)
{
    alarm(20);
    if (fleet_plan_check(block, (size_t)bytes))
        n->refused++;
    else
        run_image(n, (const fleet_plan *)block, *m, launches, seed);
    alarm(0);
}

/* ---- the tests ---- */

/* A plan, a copy to be changed, and where its buckets stand. */
typedef struct forge {
    fleet_plan *plan;
    unsigned char *copy;
    uint64_t bytes, table[FLEET_MAX_BUCKETS];
    uint32_t buckets;
    forged m;
} forge;

static int forge_open(forge *f, const kind *k, uint32_t scale)
{
    f->plan = plan_of(k, scale, &f->m);
    if (!f->plan) return 0;
    f->bytes = f->plan->bytes;
    f->buckets = f->plan->n_buckets;
    if (f->buckets > 1)
        memcpy(f->table, section(f->plan, f->plan->buckets), f->buckets * sizeof f->table[0]);
    f->copy = (unsigned char *)malloc((size_t)f->bytes);
    memcpy(f->copy, f->plan, (size_t)f->bytes);
    return 1;
}
static void forge_seal(forge *f)
{
    seal(f->copy, f->bytes, f->table, f->buckets);
}
static void forge_close(forge *f)
{
    free(f->copy);
    fleet_plan_free(f->plan);
}

/* As it was built it is accepted and runs, whatever its kind is. */
static void whole_images(test_run *t)
{
    uint32_t i;
    for (i = 0; i < 2 * KINDS; i++) {
        tally n;
        forge f;
        memset(&n, 0, sizeof n);
        CHECK(forge_open(&f, &kinds[i / 2], i % 2 ? 6 : 1));
        CHECK_INT(fleet_plan_check(f.copy, (size_t)f.bytes), FLEET_OK);
        CHECK_INT(sum_of(f.copy, f.bytes), f.plan->checksum);
        run_image(&n, (const fleet_plan *)(void *)f.copy, f.m, 1, i);
        if (n.ran != 1) printf("    %s\n", kinds[i / 2].name);
        CHECK_INT(n.ran, 1);
        forge_close(&f);
    }
}

/* Damage of a single bit is always noticed. */
static void damaged_images(test_run *t)
{
    uint32_t i;
    uint64_t bit;
    for (i = 0; i < KINDS; i++) {
        forge f;
        CHECK(forge_open(&f, &kinds[i], 1));
        for (bit = i; bit < 8 * f.bytes; bit += deep() ? 1 : 9) {
            f.copy[bit / 8] ^= (unsigned char)(1u << bit % 8);
            CHECK(fleet_plan_check(f.copy, (size_t)f.bytes) != FLEET_OK);
            f.copy[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        forge_close(&f);
    }
}

static void forge_bit(tally *n, forge *f, uint32_t k, uint64_t bit)
{
    snprintf(where, sizeof where, "    FLEET_TEST_KIND=%u FLEET_TEST_BIT=%llu (%s)\n", k,
             (unsigned long long)bit, kinds[k].name);
    f->copy[bit / 8] ^= (unsigned char)(1u << bit % 8);
    forge_seal(f);
    /* Another name leads no launch astray. */
    try_image(n, f->copy, f->bytes, &f->m, deep() || bit / 8 < f->plan->names, bit);
    memcpy(f->copy, f->plan, (size_t)f->bytes);
}

/* Each bit of a small plan of each kind, in CI every seventh, by turns, under a checksum that fits.
   */
static void forged_bits(test_run *t)
{
    const char *kind_given = getenv("FLEET_TEST_KIND"), *bit_given = getenv("FLEET_TEST_BIT");
    unsigned turn;
    const uint64_t some = deep() ? 1 : 7, stride = some * test_turns(&turn);
    uint32_t k;
    for (k = 0; k < KINDS; k++) {
        uint64_t bit = bit_given ? strtoull(bit_given, NULL, 10) : k % some + turn * some, end;
        tally n;
        forge f;
        if (kind_given && strtoul(kind_given, NULL, 10) != k) continue;
        memset(&n, 0, sizeof n);
        CHECK(forge_open(&f, &kinds[k], 1));
        end = bit_given ? bit + 1 : 8 * f.bytes;
        for (; bit < end; bit += stride) forge_bit(&n, &f, k, bit);
        printf("    %-16s %6llu bits: %u refused, %u declined, %u ran, %u ended with a status\n",
               kinds[k].name, (unsigned long long)(8 * f.bytes), n.refused, n.declined, n.ran,
               n.failed);
        fflush(stdout);
        forge_close(&f);
    }
}

/* The sections of a plan whose items may take one another's place. */
static uint64_t section_items(const fleet_plan *plan, uint32_t which, uint64_t *at, uint32_t *item)
{
    switch (which) {
    case 0:
        return *at = plan->tasks, *item = sizeof(fleet_task), plan->n_descs;
    case 1:
        return *at = plan->waits, *item = sizeof(fleeti_wait), plan->n_waits;
    case 2:
        return *at = plan->notifies, *item = sizeof(fleeti_notify), plan->n_notifies;
    case 3:
        return *at = plan->events, *item = sizeof(fleeti_event), plan->n_events;
    case 4:
        return *at = plan->grids, *item = sizeof(fleeti_grid), plan->n_grids;
    case 5:
        return *at = plan->targets, *item = 4, plan->n_elements;
    case 6:
        return *at = plan->consumers, *item = sizeof(fleeti_consumer), plan->n_consumers;
    case 7:
        return *at = plan->triggers, *item = sizeof(fleeti_trigger), plan->n_notifies;
    case 8:
        return *at = plan->maps, *item = sizeof(fleeti_runtime_map), plan->n_maps;
    case 9:
        return *at = plan->queues, *item = sizeof(fleeti_queue), plan->n_queues;
    case 10:
        return *at = plan->first_consumers, *item = 4, plan->n_elements;
    case 11:
        return *at = plan->taken_targets, *item = 4, plan->early ? plan->n_elements : 0;
    case 12:
        return *at = plan->spaces, *item = 4, plan->n_space_words;
    default:
        return *at = 0, *item = 4, sizeof *plan / 4;
    }
}

/* One change of the plan at `at`: a word of an item becomes another one's, or another value; or the lists, weights or
   targets of descriptors and records are exchanged, which are the changes that a check cannot see. */
static void change(forge *f, const fleet_plan *plan, uint64_t at, uint64_t *seed)
{
    static const uint32_t values[8] = {0, 1, 2, 3, 0x7fffffffu, 0x80000000u, 0xfffffffeu, ~0u};
    uint64_t first = 0, count;
    uint32_t item = 4, word, i, j, value, tries = 0;
    unsigned char *base;
    do count = section_items(plan, draw(seed, 14), &first, &item);
    while ((!count || !first) && ++tries < 20);
    if (!count) return;
    base = f->copy + at + first;
    i = draw(seed, (uint32_t)count), j = draw(seed, (uint32_t)count);
    word = 4 * draw(seed, item / 4);
    switch (draw(seed, 4)) {
    case 0: /* as another item has it */
        memmove(base + (uint64_t)i * item + word, base + (uint64_t)j * item + word, 4);
        return;
    case 1: /* nearby */
        memcpy(&value, base + (uint64_t)i * item + word, 4);
        value += draw(seed, 5) - 2;
        break;
    case 2:
        value = values[draw(seed, 8)];
        break;
    default: /* the lists of a task, or a record's numbers, as another item has them */
        if (first == plan->tasks) {
            fleet_task *a = (fleet_task *)(void *)base + i, *b = (fleet_task *)(void *)base + j;
            if (a->tile == FLEETI_TILE_NONE || b->tile == FLEETI_TILE_NONE) return;
            if (draw(seed, 2)) {
                a->waits = b->waits, a->n_waits = b->n_waits;
            } else {
                a->notifies = b->notifies, a->n_notifies = b->n_notifies;
            }
        } else {
            memmove(base + (uint64_t)i * item, base + (uint64_t)j * item, item);
        }
        return;
    }
    memcpy(base + (uint64_t)i * item + word, &value, 4);
}

static void forge_seed(tally *n, forge *f, uint64_t seed)
{
    uint32_t changes, bucket;
    snprintf(where, sizeof where, "    FLEET_TEST_SEED=%llu\n", (unsigned long long)seed);
    changes = 1 + draw(&seed, 3);
    while (changes-- > 0) {
        bucket = draw(&seed, f->buckets);
        /* Where things lie is told by the plan as it was. */
        change(f, fleet_plan_bucket(f->plan, bucket),
               bucket + 1 < f->buckets ? f->table[bucket] : 0, &seed);
    }
    forge_seal(f);
    try_image(n, f->copy, f->bytes, &f->m, 1, seed);
    memcpy(f->copy, f->plan, (size_t)f->bytes);
}

/* Larger plans with one to three changes. */
static void forged_at_random(test_run *t)
{
    const char *given = getenv("FLEET_TEST_SEED");
    unsigned long long end, seed = test_share(deep() ? 400000 : 6000, &end);
    forge f[KINDS];
    tally n;
    uint32_t k;
    if (given) seed = strtoull(given, NULL, 10), end = seed + 1;
    memset(&n, 0, sizeof n);
    for (k = 0; k < KINDS; k++) CHECK(forge_open(&f[k], &kinds[k], 3));
    for (; seed < end; seed++) forge_seed(&n, &f[seed % KINDS], seed);
    printf("    at random: %u refused, %u declined, %u ran, %u ended with a status\n", n.refused,
           n.declined, n.ran, n.failed);
    for (k = 0; k < KINDS; k++) forge_close(&f[k]);
}

static void list(test_run *t)
{
    signal(SIGALRM, hang);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_set_death_callback(tell_where);
#endif
    TEST(whole_images);
    TEST(damaged_images);
    TEST(forged_bits);
    TEST(forged_at_random);
}
TEST_MAIN(list)
