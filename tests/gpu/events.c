/* Events without and from outside a plan: event tensors by hand in ordinary kernels, at every scope and with one
   and two counter levels; events of a plan that the host or an ordinary kernel notifies or awaits; one task
   alone. */
// run: asan engine=both
// run: tsan
// hip: 6 runs
#include "model.h"

FLEET_EVENT_TENSOR1(line_events, n)
FLEET_EVENT_TENSOR2(plane_events, rows, cols)
FLEET_EVENT_TENSOR3(cube_events, a, b, c)

/* ---- by hand: all workgroups write, notify, wait, and read what the others wrote ---- */

typedef struct hand {
    uint32_t *words; /* per workgroup, thread */
    uint32_t *
        counts; /* [0] wrong, [1] triggers that returned 1, [2] releases, [3] tests that saw it complete */
    uint32_t scope, how, epochs, first, stride;
} hand;

#define HOW_WAIT 0u
#define HOW_TEST 1u
#define HOW_TRIGGER 2u

FLEET_DEVICE uint32_t hand_arrive(const hand *h, fleet_event e, uint32_t epoch)
{
    if (h->how == HOW_TRIGGER)
        return h->scope == FLEET_SCOPE_SYSTEM    ? fleet_trigger_system(FLEET_BLOCK, e, epoch)
               : h->scope == FLEET_SCOPE_CHIPLET ? fleet_trigger_chiplet(FLEET_BLOCK, e, epoch)
                                                 : fleet_trigger_device(FLEET_BLOCK, e, epoch);
    return (uint32_t)(h->scope == FLEET_SCOPE_SYSTEM ? fleet_notify_system(FLEET_BLOCK, e, epoch)
                      : h->scope == FLEET_SCOPE_CHIPLET
                          ? fleet_notify_chiplet(FLEET_BLOCK, e, epoch)
                          : fleet_notify_device(FLEET_BLOCK, e, epoch));
}
FLEET_DEVICE uint32_t hand_await(const hand *h, fleet_event e, uint32_t epoch)
{
    uint32_t tries = 0;
    if (h->how != HOW_TEST)
        return (uint32_t)(h->scope == FLEET_SCOPE_SYSTEM ? fleet_wait_system(FLEET_BLOCK, e, epoch)
                          : h->scope == FLEET_SCOPE_CHIPLET
                              ? fleet_wait_chiplet(FLEET_BLOCK, e, epoch)
                              : fleet_wait_device(FLEET_BLOCK, e, epoch));
    while (!(h->scope == FLEET_SCOPE_SYSTEM    ? fleet_test_system(FLEET_BLOCK, e, epoch)
             : h->scope == FLEET_SCOPE_CHIPLET ? fleet_test_chiplet(FLEET_BLOCK, e, epoch)
                                               : fleet_test_device(FLEET_BLOCK, e, epoch)))
        fleet_pause(&tries);
    return 0;
}

/* A group: the workgroups of one chiplet at chiplet scope, else all. Two elements: data written, data read. */
FLEET_GLOBAL(256) void by_hand(cube_events events, hand h)
{
    uint32_t chiplet = h.scope == FLEET_SCOPE_CHIPLET ? fleet_chiplet_id() : 0;
    fleet_event written = cube_events_at(&events, chiplet, 1, 0);
    fleet_event read = cube_events_at(&events, chiplet, 1, 2);
    uint32_t me = fleet_block_id() * h.stride + fleet_thread_id();
    for (uint32_t k = 1; k <= h.epochs; k++) {
        uint32_t epoch = h.first + k, won;
        h.words[me] = me * 0x9e3779b1u + epoch;
        won = hand_arrive(&h, written, epoch);
        if (fleet_thread_id() == 0 && won) fleet_add_relaxed_device(h.counts + 1, 1);
        if (hand_await(&h, written, epoch)) fleet_add_relaxed_device(h.counts, 1);
        for (uint32_t b = 0; b < fleet_block_count(); b++) {
            uint32_t other = b * h.stride + (fleet_thread_count() - 1 - fleet_thread_id());
            if (h.scope == FLEET_SCOPE_CHIPLET && b != fleet_block_id()) continue;
            if (h.words[other] != other * 0x9e3779b1u + epoch)
                fleet_add_relaxed_device(h.counts, 1);
        }
        won = hand_arrive(&h, read, epoch);
        if (hand_await(&h, read, epoch)) fleet_add_relaxed_device(h.counts, 1);
    }
}
FLEET_THUNK2(by_hand, cube_events, hand)

/* Which chiplet each workgroup is on. */
FLEET_GLOBAL(256) void seats(uint32_t *count)
{
    if (fleet_thread_id() == 0) fleet_add_relaxed_device(count + fleet_chiplet_id(), 1);
}
FLEET_THUNK1(seats, uint32_t *)

static void run_by_hand(test_run *t, fleet_host_engine engine, fleet_scope scope, uint32_t how,
                        uint32_t levels, uint32_t first)
{
    cube_events events;
    fleet_events *how_counted = &events.events;
    hand h;
    fleet_topology topology;
    fleet_kernel_desc d = fleet_kernel_desc_default();
    uint32_t counts[32], on[32], chiplets, k, blocks;
    void *memory = NULL, *pinned = NULL, *device = NULL, *words = NULL, *args[2], *seat = NULL;
    uint32_t *initial;
    size_t bytes;
    CHECK_STATUS(fleet_topology_query(&topology), FLEET_OK);
    chiplets = topology.chiplets;
    d.threads = TEST_THREADS > 1 ? TEST_THREADS : 256;
    d.blocks = blocks = 2 * chiplets;
    d.cooperative = 1;
    d.host.engine = engine;
    d.host.waves = 2;
    d.host.chiplets = chiplets;
    memset(&events, 0, sizeof events);
    memset(&h, 0, sizeof h);
    /* Shares must be known: with two levels, and at chiplet scope, what each chiplet got. */
    CHECK_STATUS(fleet_device_alloc(&seat, sizeof on), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(seat, sizeof on, NULL), FLEET_OK);
    args[0] = &seat;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(seats), args, &d), FLEET_OK);
    CHECK_STATUS(fleet_to_host(on, seat, sizeof on, NULL), FLEET_OK);
    for (k = 0; k < chiplets; k++)
        if (on[k] != 2) { /* this device deals otherwise */
            fleet_device_free(seat);
            return;
        }
    events.a = scope == FLEET_SCOPE_CHIPLET ? chiplets : 1;
    events.b = 2, events.c = 3;
    how_counted->target = scope == FLEET_SCOPE_CHIPLET ? 2 : blocks;
    how_counted->chiplets = levels == 2 ? chiplets : 0;
    how_counted->share = 2;
    bytes = cube_events_bytes(&events);
    CHECK_INT(bytes, events.a * 6 * (1 + how_counted->chiplets) * FLEET_CACHE_LINE_BYTES);
    initial = (uint32_t *)calloc(1, bytes);
    CHECK(initial);
    for (k = 0; k < bytes / FLEET_CACHE_LINE_BYTES;
         k++) /* as `first` epochs would have left them */
        initial[k * 32] = first * (k % (1 + how_counted->chiplets) ? 2 : how_counted->target);
    if (scope == FLEET_SCOPE_SYSTEM) {
        CHECK_STATUS(fleet_pinned_alloc(&pinned, &device, bytes), FLEET_OK);
        memcpy(pinned, initial, bytes);
        how_counted->words = (uint32_t *)device;
    } else {
        CHECK_STATUS(fleet_device_alloc(&memory, bytes), FLEET_OK);
        CHECK_STATUS(fleet_to_device(memory, initial, bytes, NULL), FLEET_OK);
        how_counted->words = (uint32_t *)memory;
    }
    CHECK_STATUS(fleet_device_alloc(&words, (size_t)blocks * 256 * 4 + sizeof counts), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(words, (size_t)blocks * 256 * 4 + sizeof counts, NULL),
                 FLEET_OK);
    h.counts = (uint32_t *)words;
    h.words = (uint32_t *)words + 32;
    h.stride = 256;
    h.scope = scope, h.how = how, h.epochs = 4, h.first = first;
    args[0] = &events, args[1] = &h;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(by_hand), args, &d), FLEET_OK);
    CHECK_STATUS(fleet_to_host(counts, words, sizeof counts, NULL), FLEET_OK);
    CHECK_INT(counts[0], 0);
    /* Triggers: one winner an epoch and element. Notifies: releases, none at chiplet scope, one per chiplet
       where chiplets count first, else one each. */
    if (how == HOW_TRIGGER)
        CHECK_INT(counts[1], 4 * events.a);
    else
        CHECK_INT(counts[1], 4 * (scope == FLEET_SCOPE_CHIPLET ? 0
                                  : levels == 2                ? chiplets
                                                               : blocks));
    free(initial);
    fleet_device_free(memory);
    fleet_device_free(seat);
    fleet_device_free(words);
    fleet_pinned_free(pinned);
}

static void event_tensors_by_hand(test_run *t)
{
    static const fleet_scope scopes[3] = {FLEET_SCOPE_CHIPLET, FLEET_SCOPE_DEVICE,
                                          FLEET_SCOPE_SYSTEM};
    fleet_host_engine first, last;
    uint32_t engine, k, how, levels;
    setting_engines(&first, &last);
    for (engine = (uint32_t)first; engine <= (uint32_t)last; engine++)
        for (k = 0; k < 3; k++)
            for (how = HOW_WAIT; how <= HOW_TRIGGER; how++)
                for (levels = 1; levels <= 2 && !t->failed_here; levels++) {
                    run_by_hand(t, (fleet_host_engine)engine, scopes[k], how, levels, 0);
                    if (!t->failed_here)
                        run_by_hand(t, (fleet_host_engine)engine, scopes[k], how, levels,
                                    0xfffffffeu);
                    if (t->failed_here)
                        printf("    engine %u, scope %d, how %u, %u levels\n", engine,
                               (int)scopes[k], how, levels);
                }
}

/* ---- by hand: producers that wait for nothing between their epochs ---- */

/* The first `producers` workgroups write a row of their own for each epoch and notify it, one after the other; the
   first of them comes late every time. The others wait for each epoch and read all of its rows. */
FLEET_GLOBAL(256)
void run_ahead(line_events events, uint32_t *words, uint32_t *wrong, uint32_t producers,
               uint32_t epochs)
{
    const uint32_t block = fleet_block_id();
    const fleet_event e = line_events_at(&events, 0);
    for (uint32_t epoch = 1; epoch <= epochs; epoch++) {
        uint32_t *row = words + epoch * producers * 32;
        if (block < producers) {
            for (uint32_t k = 0; k < 64 && block == 0; k++) (void)fleet_load_relaxed_device(wrong);
            if (fleet_thread_id() == 0) row[block * 32] = epoch * 0x9e3779b1u + block;
            fleet_notify_device(FLEET_BLOCK, e, epoch);
            continue;
        }
        if (fleet_wait_device(FLEET_BLOCK, e, epoch)) {
            fleet_add_relaxed_device(wrong, 1);
            return;
        }
        if (fleet_thread_id() != 0) continue;
        for (uint32_t k = 0; k < producers; k++)
            if (row[k * 32] != epoch * 0x9e3779b1u + k) fleet_add_relaxed_device(wrong, 1);
    }
}
FLEET_THUNK5(run_ahead, line_events, uint32_t *, uint32_t *, uint32_t, uint32_t)

static void run_producers_ahead(test_run *t, fleet_host_engine engine, uint32_t levels,
                                uint64_t seed)
{
    const uint32_t epochs = 6;
    line_events events;
    fleet_topology topology;
    fleet_kernel_desc d = fleet_kernel_desc_default();
    uint32_t on[32], producers, k, wrong = 99, per_chiplet = 1;
    void *words = NULL, *seat = NULL, *count = NULL, *memory = NULL, *args[5];
    CHECK_STATUS(fleet_topology_query(&topology), FLEET_OK);
    memset(&events, 0, sizeof events);
    producers = 2 * topology.chiplets;
    d.threads = TEST_THREADS > 1 ? TEST_THREADS : 256;
    d.blocks = producers;
    d.cooperative = 1;
    d.host.engine = engine;
    d.host.seed = seed;
    d.host.waves = 2;
    d.host.chiplets = topology.chiplets;
    CHECK_STATUS(fleet_device_alloc(&seat, sizeof on), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(seat, sizeof on, NULL), FLEET_OK);
    args[0] = &seat;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(seats), args, &d), FLEET_OK);
    CHECK_STATUS(fleet_to_host(on, seat, sizeof on, NULL), FLEET_OK);
    fleet_device_free(seat);
    for (k = 0; k < topology.chiplets; k++) per_chiplet &= on[k] == 2;
    if (levels == 2 && !per_chiplet) return; /* this device deals otherwise: shares are not known */
    events.n = 1;
    events.events.target = producers;
    events.events.chiplets = levels == 2 ? topology.chiplets : 0;
    events.events.share = 2;
    CHECK_STATUS(fleet_device_alloc(&memory, line_events_bytes(&events)), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(memory, line_events_bytes(&events), NULL), FLEET_OK);
    events.events.words = (uint32_t *)memory;
    CHECK_STATUS(fleet_device_alloc(&words, (size_t)(epochs + 1) * producers * 128), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(words, (size_t)(epochs + 1) * producers * 128, NULL), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&count, 128), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(count, 128, NULL), FLEET_OK);
    d.blocks = producers + topology.chiplets;
    args[0] = &events, args[1] = &words, args[2] = &count, args[3] = &producers;
    args[4] = (void *)(uintptr_t)&epochs;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(run_ahead), args, &d), FLEET_OK);
    CHECK_STATUS(fleet_to_host(&wrong, count, 4, NULL), FLEET_OK);
    CHECK_INT(wrong, 0);
    fleet_device_free(words);
    fleet_device_free(memory);
    fleet_device_free(count);
}

static void producers_run_ahead(test_run *t)
{
    fleet_host_engine first, last;
    uint32_t engine, levels, seed;
    setting_engines(&first, &last);
    for (engine = (uint32_t)first; engine <= (uint32_t)last; engine++)
        for (levels = 1; levels <= 2; levels++)
            for (seed = 1; seed <= 8 && !t->failed_here; seed++)
                run_producers_ahead(t, (fleet_host_engine)engine, levels, seed);
}

/* ---- a counter of the host's ---- */

/* Every workgroup draws tickets from a word that the host reads, and marks them. */
FLEET_GLOBAL(256) void draw_tickets(uint32_t *next, uint32_t *drawn, uint32_t each)
{
    for (uint32_t k = 0; k < each && fleet_thread_id() == 0; k++)
        fleet_add_relaxed_system(drawn + fleet_add_relaxed_system(next, 2) / 2, 1);
}
FLEET_THUNK3(draw_tickets, uint32_t *, uint32_t *, uint32_t)

static void sums_of_system_scope(test_run *t)
{
    fleet_host_engine first, last;
    uint32_t engine;
    setting_engines(&first, &last);
    for (engine = (uint32_t)first; engine <= (uint32_t)last; engine++) {
        fleet_kernel_desc d = fleet_kernel_desc_default();
        uint32_t k, each = 5, *words;
        void *pinned = NULL, *device = NULL, *next, *drawn, *args[3];
        d.threads = TEST_THREADS > 1 ? TEST_THREADS : 256;
        d.blocks = 6;
        d.host.engine = (fleet_host_engine)engine;
        CHECK_STATUS(fleet_pinned_alloc(&pinned, &device, 4096), FLEET_OK);
        memset(pinned, 0, 4096);
        words = (uint32_t *)pinned;
        next = device, drawn = (uint32_t *)device + 32;
        args[0] = &next, args[1] = &drawn, args[2] = &each;
        CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(draw_tickets), args, &d), FLEET_OK);
        CHECK_STATUS(fleet_stream_wait(NULL), FLEET_OK);
        CHECK_INT(words[0], 2 * each * d.blocks);
        for (k = 0; k < each * d.blocks; k++) CHECK_INT(words[32 + k], 1);
        fleet_pinned_free(pinned);
    }
}

/* ---- block scope: the waves of one workgroup ---- */

FLEET_GLOBAL(256)
void in_a_block(plane_events events, line_events all, uint32_t *words, uint32_t epochs)
{
    uint32_t waves = fleet_wave_count(), wave = fleet_wave_id(), block = fleet_block_id();
    uint32_t *mine = words + 64 + block * 256;
    for (uint32_t epoch = 1; epoch <= epochs; epoch++) {
        uint32_t next = (wave + 1) % waves;
        mine[fleet_thread_id()] = fleet_thread_id() + epoch * 1000;
        fleet_notify_block(FLEET_WAVE, plane_events_at(&events, block, wave), epoch);
        if (fleet_wait_block(FLEET_WAVE, plane_events_at(&events, block, next), epoch))
            fleet_add_relaxed_device(words, 1);
        if (mine[next * fleet_wave_size() + fleet_lane()] !=
            next * fleet_wave_size() + fleet_lane() + epoch * 1000)
            fleet_add_relaxed_device(words, 1);
        if (!fleet_test_block(FLEET_WAVE, plane_events_at(&events, block, next), epoch))
            fleet_add_relaxed_device(words, 1);
        if (fleet_trigger_block(FLEET_WAVE, line_events_at(&all, block), epoch) &&
            fleet_lane() == 0)
            fleet_add_relaxed_device(words + 1, 1);
        fleet_block_barrier();
    }
}
FLEET_THUNK4(in_a_block, plane_events, line_events, uint32_t *, uint32_t)

static void events_of_block_scope(test_run *t)
{
    fleet_host_engine first, last;
    uint32_t engine;
    setting_engines(&first, &last);
    for (engine = (uint32_t)first; engine <= (uint32_t)last; engine++) {
        plane_events events;
        line_events all;
        fleet_kernel_desc d = fleet_kernel_desc_default();
        uint32_t counts[2], epochs = 3, waves;
        void *memory = NULL, *words = NULL, *more = NULL, *args[4];
        fleet_topology topology;
        CHECK_STATUS(fleet_topology_query(&topology), FLEET_OK);
        d.threads = TEST_THREADS > 1 ? TEST_THREADS : 256;
        d.blocks = 2;
        d.host.engine = (fleet_host_engine)engine;
        d.host.waves = 3;
        waves = TEST_THREADS > 1 ? TEST_THREADS / topology.wave_size : d.host.waves;
        memset(&events, 0, sizeof events);
        memset(&all, 0, sizeof all);
        events.rows = all.n = 2;
        events.cols = waves;
        events.events.target = 1;
        all.events.target = waves;
        CHECK_STATUS(fleet_device_alloc(&memory, plane_events_bytes(&events)), FLEET_OK);
        CHECK_STATUS(fleet_device_alloc(&more, line_events_bytes(&all)), FLEET_OK);
        CHECK_STATUS(fleet_device_alloc(&words, 4096), FLEET_OK);
        CHECK_STATUS(fleet_device_clear(memory, plane_events_bytes(&events), NULL), FLEET_OK);
        CHECK_STATUS(fleet_device_clear(more, line_events_bytes(&all), NULL), FLEET_OK);
        CHECK_STATUS(fleet_device_clear(words, 4096, NULL), FLEET_OK);
        events.events.words = (uint32_t *)memory;
        all.events.words = (uint32_t *)more;
        args[0] = &events, args[1] = &all, args[2] = &words, args[3] = &epochs;
        CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(in_a_block), args, &d), FLEET_OK);
        CHECK_STATUS(fleet_to_host(counts, words, sizeof counts, NULL), FLEET_OK);
        CHECK_INT(counts[0], 0);
        CHECK_INT(counts[1], epochs * d.blocks);
        fleet_device_free(memory);
        fleet_device_free(more);
        fleet_device_free(words);
    }
}

/* ---- a plan's events, from outside ---- */

/* g0 waits for E0, which the outside notifies; g0 -> E1 -> g1 -> E2, for which the outside waits. */
static void model_outside(model *m, fleet_scope scope)
{
    model_begin(m);
    model_add_grid(m, FLEET_LEVEL_CU, 1, 3, 1);
    model_add_grid(m, FLEET_LEVEL_CU, 1, 4, 1);
    model_add_event(m, 0, 1, 1);
    model_add_event(m, 0, 1, 1);
    model_add_event(m, 1, 4, 1);
    model_in(m, 0, 0, "i->");
    model_out(m, 0, 1, "i->");
    model_in(m, 1, 1, "i->");
    model_out(m, 1, 2, "i->i");
    model_graph(m);
    fleet_event_external(m->graph, m->events[0].handle, FLEET_EXTERNAL_NOTIFIES, 2, scope);
    fleet_event_external(m->graph, m->events[2].handle, FLEET_EXTERNAL_WAITS, 0, scope);
}

static void outside_host(test_run *t, const setting *s, void *unused)
{
    model m;
    rig r;
    uint32_t epoch, done = 7, k;
    (void)unused;
    model_outside(&m, FLEET_SCOPE_SYSTEM);
    if (!rig_open(t, &r, &m, s)) return;
    /* Ahead of the launch: the counter knows. */
    for (k = 0; k < 2; k++)
        CHECK_STATUS(fleet_event_notify(&r.state, fleet_plan_event(r.plan, "E0"), 0, 1), FLEET_OK);
    /* Two epochs ahead it would stand in for an arrival of the next one. */
    CHECK_STATUS(fleet_event_notify(&r.state, fleet_plan_event(r.plan, "E0"), 0, 3),
                 FLEET_ERROR_EPOCH);
    CHECK_STATUS(fleet_event_test(&r.state, fleet_plan_event(r.plan, "E2"), 3, 1, &done), FLEET_OK);
    CHECK_INT(done, 0);
    CHECK_STATUS(fleet_event_wait(&r.state, fleet_plan_event(r.plan, "E2"), 3, 1, 1000),
                 FLEET_ERROR_TIMEOUT);
    CHECK_RUN(&r, 1);
    CHECK_STATUS(fleet_event_test(&r.state, fleet_plan_event(r.plan, "E2"), 3, 1, &done), FLEET_OK);
    CHECK_INT(done, 1);
    if (s->engine == FLEET_ENGINE_THREADS) {
        /* Step by step, while the launch runs. */
        rig_start(&r, 4);
        for (epoch = 2; epoch <= 5; epoch++) {
            for (k = 0; k < 2; k++)
                CHECK_STATUS(fleet_event_notify(&r.state, fleet_plan_event(r.plan, "E0"), 0, epoch),
                             FLEET_OK);
            for (k = 0; k < 4; k++)
                CHECK_STATUS(fleet_event_wait(&r.state, fleet_plan_event(r.plan, "E2"), k, epoch,
                                              20000000000u),
                             FLEET_OK);
        }
        CHECK_STATUS(rig_join(&r), FLEET_OK);
        if (!rig_check(t, &r, 5)) return;
    }
    rig_close(&r);
    model_end(&m);
}

static void the_host_notifies_and_awaits(test_run *t)
{
    in_settings(t, 3, outside_host, NULL);
}

FLEET_GLOBAL(64)
void outside_kernel(fleet_event to, fleet_event from, uint32_t *words, uint32_t epoch)
{
    fleet_notify_device(FLEET_BLOCK, to, epoch);
    fleet_notify_device(FLEET_BLOCK, to, epoch);
    if (from.words && fleet_wait_device(FLEET_BLOCK, from, epoch))
        fleet_add_relaxed_device(words, 1);
}
FLEET_THUNK4(outside_kernel, fleet_event, fleet_event, uint32_t *, uint32_t)

/* Ordinary kernels on the same stream: before the run one that notifies, after it one that waits. */
static void outside_device(test_run *t, const setting *s, void *unused)
{
    model m;
    rig r;
    fleet_event to, from, none;
    fleet_kernel_desc d = fleet_kernel_desc_default();
    uint32_t epoch, wrong;
    void *words = NULL, *args[4];
    (void)unused;
    model_outside(&m, FLEET_SCOPE_DEVICE);
    if (!rig_open(t, &r, &m, s)) return;
    memset(&none, 0, sizeof none);
    d.threads = 64;
    d.host.engine = s->engine;
    CHECK_STATUS(fleet_device_alloc(&words, 256), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(words, 256, NULL), FLEET_OK);
    CHECK_STATUS(fleet_event_handle(&r.state, fleet_plan_event(r.plan, "E0"), 0, &to), FLEET_OK);
    CHECK_STATUS(fleet_event_handle(&r.state, fleet_plan_event(r.plan, "E2"), 2, &from), FLEET_OK);
    CHECK_INT(to.target, 2);
    for (epoch = 1; epoch <= 3; epoch++) {
        args[0] = &to, args[1] = &none, args[2] = &words, args[3] = &epoch;
        CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(outside_kernel), args, &d), FLEET_OK);
        CHECK_RUN(&r, 1);
        args[1] = &from;
        if (epoch == 3) {
            CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(outside_kernel), args, &d), FLEET_OK);
            CHECK_STATUS(fleet_to_host(&wrong, words, 4, NULL), FLEET_OK);
            CHECK_INT(wrong, 0);
        }
    }
    if (!rig_check(t, &r, 3)) return;
    fleet_device_free(words);
    rig_close(&r);
    model_end(&m);
}

static void an_ordinary_kernel_notifies_and_awaits(test_run *t)
{
    in_settings(t, 3, outside_device, NULL);
}

/* ---- one task alone ---- */

static void alone(test_run *t, const setting *s, void *model_)
{
    model *m = (model *)model_;
    rig r;
    uint32_t grid;
    if (!rig_open(t, &r, m, s)) return;
    r.w.may_run_ahead = 1;
    for (grid = 0; grid < m->n_grids; grid++) {
        const model_grid *g = &m->grids[grid];
        uint32_t task = g->first + g->count - 1, slice = rig_slices(&r, g) - 1;
        int32_t at[FLEET_MAX_RANK];
        ref_unravel(g->count - 1, g->extent, (int)g->rank, at);
        CHECK_INT(fleet_plan_task(r.plan, g->name, at), task);
        CHECK_STATUS(rig_clear(&r), FLEET_OK);
        if (!rig_odd(t, &r, ODD_NONE, 0, 0, 0)) return;
        CHECK_STATUS(fleet_launch_task(&r.state, &r.launch, FLEET_KERNEL_OF(world_kernel), r.device,
                                       task, slice),
                     FLEET_OK);
        CHECK_INT(rig_runs(&r, grid), rig_parts(&r, g, task, slice));
        if (!rig_odd(t, &r, ODD_FAIL_ONE, task, ODD_EVERY, ODD_EVERY)) return;
        CHECK_STATUS(fleet_launch_task(&r.state, &r.launch, FLEET_KERNEL_OF(world_kernel), r.device,
                                       task, slice),
                     ODD_STATUS);
        CHECK_STATUS(fleet_launch_task(&r.state, &r.launch, FLEET_KERNEL_OF(world_kernel), r.device,
                                       task, slice + 1),
                     FLEET_ERROR_ARGUMENT);
    }
    /* It left no trace: the state runs on. */
    r.w.may_run_ahead = 0;
    CHECK_STATUS(rig_clear(&r), FLEET_OK);
    if (!rig_odd(t, &r, ODD_NONE, 0, 0, 0)) return;
    CHECK_RUN(&r, 2);
    if (!rig_check(t, &r, 2)) return;
    rig_close(&r);
}

static void one_task_alone(test_run *t)
{
    model m;
    model_levels(&m, 3);
    in_settings(t, 4, alone, &m);
    model_end(&m);
}

/* Where a worker waits for the events of what it popped: not for those of a task alone. */
static void alone_early(test_run *t, const setting *s_, void *model_)
{
    setting s = *s_;
    if (s.schedule != FLEET_SCHEDULE_DYNAMIC) return;
    s.early = 1;
    alone(t, &s, model_);
}

static void one_task_alone_of_an_early_push(test_run *t)
{
    model m;
    model_levels(&m, 3);
    in_settings(t, 4, alone_early, &m);
    model_end(&m);
}

static void all(test_run *t)
{
    TEST(event_tensors_by_hand);
    TEST(producers_run_ahead);
    TEST(sums_of_system_scope);
    TEST(events_of_block_scope);
    TEST(the_host_notifies_and_awaits);
    TEST(an_ordinary_kernel_notifies_and_awaits);
    TEST(one_task_alone);
    TEST(one_task_alone_of_an_early_push);
}
TEST_MAIN(all)
