/* The chiplet-memory model. As they are, the headers give right data for every seed, in each schedule, at every
   level, and by hand, and the model reports nothing. memory_model.sh builds this file with bugs in the headers, each of
   which must show in the data and be reported. */
// run: model
#include "model.h"
#include "examples/parts/fleet_server.h"

/* ---- events by hand: every scope, in one kernel ---- */

#define HAND_WAVES 2u
#define HAND_EPOCHS 3u
FLEET_EVENT_TENSOR1(hand_event, elements)

typedef struct hand {
    uint32_t *cells;  /* [block][wave]: lines are shared */
    uint32_t *late;   /* the same, for the sum */
    uint32_t *errors; /* their number */
    uint32_t *sum;    /* fleet_add_acq_rel_device */
    hand_event waves; /* [block]: wave 0 to wave 1 */
    hand_event near;  /* [chiplet]: its workgroups */
    hand_event all;   /* [0]: all, over a counter per chiplet */
    hand_event next;  /* [block]: to the workgroup before */
    hand_event far;   /* [block]: the same, at system scope */
    hand_event over;  /* [0]: all reads have ended */
} hand;

FLEET_DEVICE uint32_t hand_value(uint32_t block, uint32_t wave, uint32_t stage)
{
    return (block * HAND_WAVES + wave) * 1000003u + stage;
}
FLEET_DEVICE void hand_read_at(const hand *h, const uint32_t *cells, uint32_t block, uint32_t wave,
                               uint32_t stage)
{
    if (cells[block * HAND_WAVES + wave] != hand_value(block, wave, stage))
        fleet_add_relaxed_device(h->errors, 1);
}
FLEET_DEVICE void hand_read(const hand *h, uint32_t block, uint32_t wave, uint32_t stage)
{
    hand_read_at(h, h->cells, block, wave, stage);
}
FLEET_DEVICE void hand_write_at(uint32_t *cells, uint32_t stage)
{
    cells[fleet_block_id() * HAND_WAVES + fleet_wave_id()] =
        hand_value(fleet_block_id(), fleet_wave_id(), stage);
}
FLEET_DEVICE void hand_write(const hand *h, uint32_t stage)
{
    hand_write_at(h->cells, stage);
}

FLEET_GLOBAL(64) void by_hand(hand h)
{
    const uint32_t block = fleet_block_id(), blocks = fleet_block_count(), wave = fleet_wave_id();
    const uint32_t chiplet = fleet_chiplet_id(), chiplets = h.near.elements;
    for (uint32_t epoch = 1; epoch <= HAND_EPOCHS; epoch++) {
        const uint32_t stage = epoch * 8, neighbour = (block + 1) % blocks;
        uint32_t tries = 0;

        hand_write(&h, stage);
        if (wave == 0) fleet_notify_block(FLEET_WAVE, hand_event_at(&h.waves, block), epoch);
        if (wave == 1) {
            if (fleet_wait_block(FLEET_WAVE, hand_event_at(&h.waves, block), epoch)) return;
            hand_read(&h, block, 0, stage);
        }

        fleet_notify_chiplet(FLEET_BLOCK, hand_event_at(&h.near, chiplet), epoch);
        if (fleet_wait_chiplet(FLEET_BLOCK, hand_event_at(&h.near, chiplet), epoch)) return;
        for (uint32_t b = chiplet; b < blocks; b += chiplets) hand_read(&h, b, 1 - wave, stage);

        fleet_notify_device(FLEET_BLOCK, hand_event_at(&h.all, 0), epoch);
        if (fleet_wait_device(FLEET_BLOCK, hand_event_at(&h.all, 0), epoch)) return;
        for (uint32_t b = 0; b < blocks; b++) hand_read(&h, b, 1 - wave, stage);
        fleet_notify_device(FLEET_BLOCK, hand_event_at(&h.over, 0), 3 * epoch - 2);
        if (fleet_wait_device(FLEET_BLOCK, hand_event_at(&h.over, 0), 3 * epoch - 2)) return;

        hand_write(&h, stage + 1);
        fleet_notify_device(FLEET_BLOCK, hand_event_at(&h.next, block), epoch);
        while (!fleet_test_device(FLEET_BLOCK, hand_event_at(&h.next, neighbour), epoch))
            if (fleet_pause(&tries)) return;
        hand_read(&h, neighbour, 1 - wave, stage + 1);
        fleet_notify_device(FLEET_BLOCK, hand_event_at(&h.over, 0), 3 * epoch - 1);
        if (fleet_wait_device(FLEET_BLOCK, hand_event_at(&h.over, 0), 3 * epoch - 1)) return;

        hand_write(&h, stage + 2);
        fleet_notify_system(FLEET_BLOCK, hand_event_at(&h.far, block), epoch);
        if (fleet_wait_system(FLEET_BLOCK, hand_event_at(&h.far, neighbour), epoch)) return;
        hand_read(&h, neighbour, 1 - wave, stage + 2);

        /* Each wave adds for itself; the last one sees what all wrote. */
        hand_write_at(h.late, stage + 3);
        if (fleet_add_acq_rel_device(h.sum, 1) + 1 == epoch * blocks * HAND_WAVES)
            for (uint32_t b = 0; b < blocks; b++) hand_read_at(&h, h.late, b, 1 - wave, stage + 3);
        fleet_notify_device(FLEET_BLOCK, hand_event_at(&h.over, 0), 3 * epoch);
        if (fleet_wait_device(FLEET_BLOCK, hand_event_at(&h.over, 0), 3 * epoch)) return;
    }
}
FLEET_THUNK1(by_hand, hand)

static hand_event hand_event_of(uint32_t elements, uint32_t target, uint32_t chiplets,
                                uint32_t *words, size_t *at)
{
    hand_event e;
    memset(&e, 0, sizeof e);
    e.elements = elements;
    e.events.target = target;
    e.events.chiplets = chiplets;
    e.events.share = chiplets ? target / chiplets : 0;
    if (words) e.events.words = words + *at;
    *at += hand_event_bytes(&e) / 4;
    return e;
}

/* Lays everything out from `words` on; returns the number of words. */
static size_t hand_layout(hand *h, uint32_t *words, uint32_t *pinned, uint32_t chiplets,
                          uint32_t per_chiplet)
{
    const uint32_t blocks = chiplets * per_chiplet;
    size_t at = 64, outside = 0;
    h->sum = words;
    h->errors = words + 32;
    h->cells = words + at;
    at += (blocks * HAND_WAVES + 31) / 32 * 32;
    h->late = words + at;
    at += (blocks * HAND_WAVES + 31) / 32 * 32;
    h->waves = hand_event_of(blocks, 1, 0, words, &at);
    h->near = hand_event_of(chiplets, per_chiplet, 0, words, &at);
    h->all = hand_event_of(1, blocks, chiplets, words, &at);
    h->next = hand_event_of(blocks, 1, 0, words, &at);
    h->over = hand_event_of(1, blocks, chiplets, words, &at);
    h->far = hand_event_of(blocks, 1, 0, pinned, &outside);
    return at;
}

/* Errors of one launch; adds to the findings that the model reported. */
static uint32_t hand_run(uint32_t chiplets, uint64_t seed, uint64_t *findings)
{
    static uint32_t zero[64];
    uint32_t words[4096], errors = 0;
    fleet_kernel_desc d = fleet_kernel_desc_default();
    fleet_host_stats stats;
    void *memory = NULL, *pinned = NULL, *pinned_device = NULL, *args[1];
    hand h;
    size_t n = hand_layout(&h, words, zero, chiplets, 2);
    if (n > 4096 || fleet_device_alloc(&memory, n * 4) ||
        fleet_pinned_alloc(&pinned, &pinned_device, 4096) ||
        fleet_device_clear(memory, n * 4, NULL))
        abort();
    memset(pinned, 0, 4096);
    hand_layout(&h, (uint32_t *)memory, (uint32_t *)pinned_device, chiplets, 2);
    d.blocks = 2 * chiplets;
    d.host.engine = FLEET_ENGINE_DETERMINISTIC;
    d.host.memory_model = 1;
    d.host.seed = seed;
    d.host.waves = HAND_WAVES;
    d.host.chiplets = chiplets;
    d.host.stack_bytes = 65536;
    d.host.stats = &stats;
    args[0] = &h;
    if (fleet_kernel_launch(FLEET_KERNEL_OF(by_hand), args, &d)) errors = 1;
    *findings += stats.findings;
    if (fleet_to_host(words, h.errors, 4, NULL)) abort();
    errors += words[0];
    fleet_device_free(memory);
    fleet_pinned_free(pinned);
    return errors;
}

/* ---- a ring of messages in device memory, from the workgroups of even number to the next ones ---- */

#define MAIL_SLOTS 4u
#define MAIL_WORDS 3u
#define MAIL_TOTAL 20u
#define MAIL_PAIR 512u /* words of a pair: slots, the two ends, notes that the messages refer to */
#define MAIL_ENDS (32u + MAIL_SLOTS * 32u)
#define MAIL_NOTES (MAIL_ENDS + 64u)

FLEET_GLOBAL(64) void by_messages(uint32_t *words, uint32_t *errors)
{
    FLEET_LDS(uint32_t, batch, 3 * MAIL_WORDS);
    const uint32_t pops = fleet_block_id() % 2;
    uint32_t *mine = words + fleet_block_id() / 2 * MAIL_PAIR, done = 0, tries = 0;
    fleet_ring *end = (fleet_ring *)(void *)(mine + MAIL_ENDS + 32 * pops);
    if (fleet_wave_id() != 0) return;
    while (done < MAIL_TOTAL) {
        const uint32_t left = MAIL_TOTAL - done, most = left < 3 ? left : 1 + done % 3;
        uint32_t n, i;
        for (i = 0; i < most && !pops; i++) {
            mine[MAIL_NOTES + done + i] = hand_value(fleet_block_id(), 0, done + i);
            for (uint32_t k = 0; k < MAIL_WORDS; k++)
                batch[i * MAIL_WORDS + k] = hand_value(fleet_block_id(), k, done + i);
        }
        n = pops ? fleet_ring_try_pop(end, batch, most) : fleet_ring_try_push(end, batch, most);
        for (i = 0; i < n && pops; i++) {
            uint32_t wrong =
                mine[MAIL_NOTES + done + i] != hand_value(fleet_block_id() - 1, 0, done + i);
            for (uint32_t k = 0; k < MAIL_WORDS; k++)
                wrong += batch[i * MAIL_WORDS + k] != hand_value(fleet_block_id() - 1, k, done + i);
            if (wrong) fleet_add_relaxed_device(errors, 1);
        }
        if (!n && fleet_pause(&tries)) return;
        done += n;
    }
    fleet_add_relaxed_device(errors + 1, 1);
}
FLEET_THUNK2(by_messages, uint32_t *, uint32_t *)

static uint32_t mail_run(uint32_t chiplets, uint64_t seed, uint64_t *findings)
{
    static uint32_t image[4 * MAIL_PAIR] __attribute__((aligned(128)));
    const uint32_t blocks = 2 * chiplets;
    const size_t bytes = (size_t)chiplets * MAIL_PAIR * 4;
    uint32_t errors[2] = {0, 0};
    fleet_kernel_desc d = fleet_kernel_desc_default();
    fleet_host_stats stats;
    void *memory = NULL, *counts = NULL, *args[2];
    memset(image, 0, sizeof image);
    memset(&stats, 0, sizeof stats);
    if (bytes > sizeof image || fleet_device_alloc(&memory, bytes) ||
        fleet_device_alloc(&counts, 8) || fleet_device_clear(counts, 8, NULL))
        abort();
    for (uint32_t p = 0; p < chiplets; p++) {
        uint32_t *pair = image + p * MAIL_PAIR;
        fleet_ring host, end;
        if (fleet_ring_init(&host, &end, pair, (uint32_t *)memory + p * MAIL_PAIR, MAIL_SLOTS,
                            MAIL_WORDS * 4))
            abort();
        memcpy(pair + MAIL_ENDS, &end, sizeof end);
        memcpy(pair + MAIL_ENDS + 32, &end, sizeof end);
    }
    if (fleet_to_device(memory, image, bytes, NULL)) abort();
    args[0] = &memory, args[1] = &counts;
    d.blocks = blocks;
    d.host.engine = FLEET_ENGINE_DETERMINISTIC;
    d.host.memory_model = 1;
    d.host.seed = seed;
    d.host.chiplets = chiplets;
    d.host.stack_bytes = 65536;
    d.host.stats = &stats;
    if (fleet_kernel_launch(FLEET_KERNEL_OF(by_messages), args, &d)) errors[0] = 1;
    *findings += stats.findings;
    if (!errors[0] && fleet_to_host(errors, counts, 8, NULL)) abort();
    fleet_device_free(memory);
    fleet_device_free(counts);
    return errors[0] + (errors[1] != blocks);
}

/* ---- scenes: what runs once per seed ---- */

/* g0(i) -> E0[i], E1; g1(i) -> E1; g2(i, j) after E0[j]; g3(i) after E1. A task of g0 arrives at both: its release
   must come after both arrivals on its chiplet. */
static void model_two_events(model *m)
{
    model_begin(m);
    model_add_grid(m, FLEET_LEVEL_CU, 1, 4, 1);
    model_add_grid(m, FLEET_LEVEL_CU, 1, 4, 1);
    model_add_grid(m, FLEET_LEVEL_CU, 2, 2, 4);
    model_add_grid(m, FLEET_LEVEL_CU, 1, 4, 1);
    model_add_event(m, 1, 4, 1);
    model_add_event(m, 0, 1, 1);
    model_out(m, 0, 0, "i->i");
    model_out(m, 0, 1, "i->");
    model_out(m, 1, 1, "i->");
    model_in(m, 2, 0, "ij->j");
    model_in(m, 3, 1, "i->");
}

/* From HAND on, kernels without a plan. */
typedef enum scene_kind { ROWS, LEVELS, UNAWARE, TWO_EVENTS, RANKS, HAND, MESSAGES } scene_kind;
typedef struct scene {
    const char *name;
    scene_kind kind;
    fleet_schedule schedule;
    uint32_t chiplets, workers;
} scene;
static const scene scenes[] = {
    {"rows, STATIC, 2 chiplets", ROWS, FLEET_SCHEDULE_STATIC, 2, 2},
    {"rows, STATIC, 3 chiplets", ROWS, FLEET_SCHEDULE_STATIC, 3, 2},
    {"rows, CHIPLET, 2 chiplets", ROWS, FLEET_SCHEDULE_CHIPLET, 2, 2},
    {"two events, STATIC, 2 chiplets", TWO_EVENTS, FLEET_SCHEDULE_STATIC, 2, 3},
    {"levels, STATIC, 2 chiplets", LEVELS, FLEET_SCHEDULE_STATIC, 2, 2},
    {"levels, CHIPLET, 2 chiplets", LEVELS, FLEET_SCHEDULE_CHIPLET, 2, 2},
    {"levels, CHIPLET, 3 chiplets", LEVELS, FLEET_SCHEDULE_CHIPLET, 3, 2},
    {"levels, STATIC, 8 chiplets", LEVELS, FLEET_SCHEDULE_STATIC, 8, 1},
    {"levels, CHIPLET, 8 chiplets", LEVELS, FLEET_SCHEDULE_CHIPLET, 8, 1},
    {"levels as CU-tasks, STATIC, 3 chiplets", UNAWARE, FLEET_SCHEDULE_STATIC, 3, 2},
    {"levels as CU-tasks, CHIPLET, 3 chiplets", UNAWARE, FLEET_SCHEDULE_CHIPLET, 3, 2},
    {"2 ranks of 2 chiplets, STATIC", RANKS, FLEET_SCHEDULE_STATIC, 2, 2},
    {"2 ranks of 1 chiplet, CHIPLET", RANKS, FLEET_SCHEDULE_CHIPLET, 1, 2},
    {"by hand, 2 chiplets", HAND, FLEET_SCHEDULE_STATIC, 2, 0},
    {"by hand, 3 chiplets", HAND, FLEET_SCHEDULE_STATIC, 3, 0},
    {"by hand, 8 chiplets", HAND, FLEET_SCHEDULE_STATIC, 8, 0},
    {"ring of messages, 2 chiplets", MESSAGES, FLEET_SCHEDULE_STATIC, 2, 0},
    {"ring of messages, 3 chiplets", MESSAGES, FLEET_SCHEDULE_STATIC, 3, 0},
};
#define SCENES ((uint32_t)(sizeof scenes / sizeof scenes[0]))

typedef struct stage {
    model m;
    rig r;
} stage;

static int stage_open(test_run *t, stage *g, const scene *c)
{
    setting s;
    if (c->kind >= HAND) return 1;
    if (c->kind == ROWS) model_split_row_sum(&g->m, 5, 4);
    if (c->kind == LEVELS || c->kind == UNAWARE) model_levels(&g->m, 3);
    if (c->kind == TWO_EVENTS) model_two_events(&g->m);
    if (c->kind == RANKS) model_exchange(&g->m, FLEET_LEVEL_CU, 4);
    memset(&s, 0, sizeof s);
    s.ranks = c->kind == RANKS ? 2 : 1;
    s.topology =
        fleet_topology_make(c->chiplets, c->workers + (c->schedule == FLEET_SCHEDULE_CHIPLET));
    s.topology.private_l2 = 0;
    s.schedule = c->schedule;
    s.levels = 2;
    s.unaware = c->kind == UNAWARE;
    s.waves = 2;
    s.seed = c->chiplets;
    s.engine = FLEET_ENGINE_DETERMINISTIC;
    s.placement = FLEET_PLACEMENT_RANDOM;
    if (!rig_open(t, &g->r, &g->m, &s)) return 0;
    g->r.launch.host.memory_model = 1;
    return 1;
}
static void stage_close(stage *g, const scene *c)
{
    if (c->kind >= HAND) return;
    rig_close(&g->r);
    model_end(&g->m);
}
/* One launch more; 0: the data is right. Adds to the findings. */
static uint32_t stage_run(stage *g, const scene *c, uint64_t seed, uint64_t *findings)
{
    fleet_status status;
    if (c->kind == HAND) return hand_run(c->chiplets, seed, findings);
    if (c->kind == MESSAGES) return mail_run(c->chiplets, seed, findings);
    g->r.launch.host.seed = seed;
    status = rig_run(&g->r, 1);
    *findings += g->r.stats.findings;
    return status ? 1 : rig_errors(&g->r);
}

#if !defined(MUTANTS)

/* Without the engine that it needs. */
static void refused(test_run *t)
{
    fleet_kernel_desc d = fleet_kernel_desc_default();
    hand h;
    void *args[1];
    args[0] = &h;
    d.host.memory_model = 1;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(by_hand), args, &d), FLEET_ERROR_ARGUMENT);
}

/* Code of one wave computes what it would without the model, however it reads and writes. */
typedef struct lump {
    float x[7];
    uint8_t tail[21];
} lump;
typedef struct odds {
    lump a[4];
    uint8_t bytes[300];
    struct {
        uint32_t low : 5, high : 9;
    } bits;
    uint64_t wide, sum;
    uint32_t words[64];
    uint16_t narrow;
} odds;

FLEET_DEVICE void odds_step(odds *o, uint32_t i)
{
    uint32_t word;
    o->a[i % 4] = o->a[(i + 1) % 4];
    o->a[(i + 2) % 4].x[i % 7] += (float)i;
    o->a[i % 3].tail[i % 21]++;
    memcpy(o->bytes + i % 100, o->bytes + 150 + i % 50, 1 + i % 90);
    memmove(o->bytes + 3, o->bytes, 40 + i % 200);
    memset(o->bytes + i * 7 % 290, (int)i, 9);
    memcpy(&word, o->bytes + 1 + i % 200, sizeof word);
    o->bits.low = (i + o->bits.high) & 31;
    o->bits.high = (i * 3 + word) & 511;
    o->wide = o->wide * 31 + word + o->bits.low;
    __atomic_fetch_add((uint32_t *)(void *)&o->wide, 5, __ATOMIC_RELAXED);
    __atomic_fetch_xor(&o->narrow, (uint16_t)word, __ATOMIC_RELAXED);
    o->narrow++;
    for (uint32_t k = 0; k < 63; k++) o->words[k] += o->words[k + 1] ^ i;
    o->words[63] += o->narrow;
    for (uint32_t k = 0; k < 64; k++) o->sum = o->sum * 7 + o->words[k];
}
FLEET_GLOBAL(64) void odds_kernel(odds *o)
{
    for (uint32_t i = 0; i < 40; i++) {
        odds_step(o, i);
        fleet_block_barrier();
    }
}
FLEET_THUNK1(odds_kernel, odds *)

static void plain_code(test_run *t)
{
    static odds want, got, zero;
    void *memory = NULL, *args[1];
    fleet_kernel_desc d = fleet_kernel_desc_default();
    for (uint32_t i = 0; i < 80; i++) odds_step(&want, i % 40);
    CHECK_STATUS(fleet_device_alloc(&memory, sizeof want), FLEET_OK);
    args[0] = &memory;
    d.host.engine = FLEET_ENGINE_DETERMINISTIC;
    d.host.memory_model = 1;
    for (d.host.seed = 1; d.host.seed <= 40; d.host.seed++) {
        CHECK_STATUS(fleet_to_device(memory, &zero, sizeof zero, NULL), FLEET_OK);
        CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(odds_kernel), args, &d), FLEET_OK);
        CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(odds_kernel), args, &d), FLEET_OK);
        CHECK_STATUS(fleet_to_host(&got, memory, sizeof got, NULL), FLEET_OK);
        CHECK_INT(memcmp(&got, &want, sizeof got), 0);
    }
    fleet_device_free(memory);
}

static void run_scene(test_run *t, const scene *c)
{
    const uint32_t runs = deep() ? 10000 : 400;
    stage *g = (stage *)calloc(1, sizeof *g);
    if (!g) abort();
    if (!stage_open(t, g, c)) return;
    for (uint32_t seed = 1; seed <= runs && !t->failed_here; seed++) {
        uint64_t findings = 0;
        uint32_t errors = stage_run(g, c, seed, &findings);
        if (errors || findings)
            test_fail(t, __FILE__, __LINE__, "%s, seed %u: %u wrong, %u reported", c->name, seed,
                      errors, (uint32_t)findings);
    }
    if (c->kind < HAND && !t->failed_here) rig_check(t, &g->r, runs);
    stage_close(g, c);
    free(g);
}

static void run_kind(test_run *t, scene_kind kind)
{
    for (uint32_t i = 0; i < SCENES && !t->failed_here; i++)
        if (scenes[i].kind == kind) run_scene(t, &scenes[i]);
}
static void split_row_sum(test_run *t)
{
    run_kind(t, ROWS);
}
static void every_level(test_run *t)
{
    run_kind(t, LEVELS);
}
static void two_events(test_run *t)
{
    run_kind(t, TWO_EVENTS);
}
static void over_ranks(test_run *t)
{
    run_kind(t, RANKS);
}
static void events_by_hand(test_run *t)
{
    run_kind(t, HAND);
}

static void rings_of_messages(test_run *t)
{
    run_kind(t, MESSAGES);
}

static void all(test_run *t)
{
    TEST(refused);
    TEST(plain_code);
    TEST(split_row_sum);
    TEST(every_level);
    TEST(two_events);
    TEST(over_ranks);
    TEST(events_by_hand);
    TEST(rings_of_messages);
}

#else

/* ---- bugs in the headers: each shows for some seed ---- */

/* A plan whose scopes are too narrow, although its counts are right. */
static void narrow(rig *r, uint32_t acquires)
{
    char *block = (char *)r->image.device; /* real memory, between launches */
    const fleet_plan *plan = (const fleet_plan *)(void *)block;
    fleet_task *tasks = (fleet_task *)(void *)(block + plan->tasks);
    fleeti_notify *notifies = (fleeti_notify *)(void *)(block + plan->notifies);
    for (uint32_t i = 0; i < plan->n_descs; i++) {
        if (acquires) {
            if (tasks[i].acquire > FLEET_SCOPE_CHIPLET) tasks[i].acquire = FLEET_SCOPE_CHIPLET;
            continue;
        }
        for (uint32_t k = 0; k < tasks[i].n_notifies; k++) {
            fleeti_notify *n = &notifies[tasks[i].notifies + k];
            if (!n->sub) n->sub = FLEETI_LOCAL; /* a lone producer releases no more */
        }
    }
}

#define BUDGET 500u
static void find(test_run *t, uint32_t number)
{
    stage *g = (stage *)calloc(SCENES, sizeof *g);
    const char *found = NULL;
    uint64_t findings = 0;
    uint32_t runs = 0, reported = 0, i;
    if (!g) abort();
    mutant = 0; /* plans are right */
    for (i = 0; i < SCENES; i++)
        if (!stage_open(t, &g[i], &scenes[i])) return;
    for (i = 0; i < SCENES && number >= MUTANT_NARROW; i++)
        if (scenes[i].kind < HAND) narrow(&g[i].r, number - MUTANT_NARROW);
    mutant = number;
    for (uint32_t k = 0; k < BUDGET && !found; k++)
        for (i = 0; i < SCENES && !found; i++) {
            runs++;
            if (stage_run(&g[i], &scenes[i], first_seeds[number] + k, &findings))
                found = scenes[i].name;
            if (findings && !reported) reported = runs;
        }
    mutant = 0;
    if (!found) test_fail(t, __FILE__, __LINE__, "not found in %u runs", runs);
    if (!reported) test_fail(t, __FILE__, __LINE__, "not reported in %u runs", runs);
    printf("%-52s | %4u | %8u | %s\n", t->name, runs, reported, found ? found : "-");
    for (i = 0; i < SCENES; i++) stage_close(&g[i], &scenes[i]);
    free(g);
}

static void all(test_run *t)
{
    printf("%-52s | runs | reported | until it shows in\n", "bug");
    for (uint32_t i = 1; mutant_names[i]; i++) {
        t->name = mutant_names[i];
        t->failed_here = 0;
        find(t, i);
        if (t->failed_here)
            t->failures++;
        else
            printf("pass %s\n", t->name);
    }
}

#endif
TEST_MAIN(all)
