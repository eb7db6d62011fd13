/* The prefetch of a tile runs once before its events, where its worker waits for them, and nowhere else. */
// run: asan engine=both
// run: tsan
#include "settings.h"

#define MOST 256
#define BLOCKS 1024

typedef struct pair {                   /* what every tile sees */
    uint32_t *prefetched, *made, *used; /* [MOST]: epoch */
    uint32_t *times;                    /* prefetches in all */
    uint32_t *ran;                      /* [BLOCKS]: tasks that a workgroup has run */
    uint32_t *table;                    /* [TABLE], what prefetches copy to LDS */
    uint32_t last, spin, copied;        /* copied: by the prefetch; else the tile does it */
} pair;

#define TABLE 2048u
FLEET_HOST_DEVICE uint32_t table_word(uint32_t i)
{
    return i * 2654435761u;
}
/* Of 16 bytes to 4 KB, from anywhere in the table. */
FLEET_DEVICE uint32_t copy_words(uint32_t task)
{
    return 4 * (1 + task * 37 % 256);
}
FLEET_DEVICE uint32_t copy_first(uint32_t task)
{
    return 4 * (task * 11 % 256);
}
FLEET_DEVICE void copy_table(const fleet_ctx *ctx, const pair *p, uint32_t task)
{
    fleet_copy_to_lds(ctx->lds, p->table + copy_first(task), 4 * copy_words(task), ctx->thread,
                      ctx->threads);
}

FLEET_DEVICE uint32_t any_prefetched(const pair *p, uint32_t epoch)
{
    uint32_t any = 0;
    for (uint32_t i = 0; i <= p->last; i++)
        any |= fleet_load_relaxed_device(p->prefetched + i) == epoch;
    return any;
}

/* What a thread keeps in registers: what its prefetch leaves for the tile, and what tiles leave for later ones. */
typedef struct pair_registers {
    uint32_t word[4];
    uint32_t ran; /* tasks */
} pair_registers;
/* Counts the task, in registers and in memory. 0: the counts were different. */
FLEET_DEVICE uint32_t count_task(const fleet_ctx *ctx, const pair *p)
{
    pair_registers *r = (pair_registers *)ctx->registers;
    const uint32_t before = r->ran++;
    return ctx->thread != 0 || p->ran[fleet_block_id()]++ == before;
}

/* The last of them ends only when some consumer has prefetched: it must not wait for its events first. */
FLEET_TILE(make, pair)
{
    uint32_t tries = 0;
    if (args->spin && (uint32_t)at[0] == args->last && ctx.thread == 0)
        while (!any_prefetched(args, ctx.epoch))
            if (fleet_pause(&tries)) return FLEET_ERROR_TILE;
    if (ctx.thread == 0) args->made[at[0]] = ctx.epoch;
    return count_task(&ctx, args) ? FLEET_OK : FLEET_ERROR_TILE;
}
FLEET_DEVICE uint32_t registered(const fleet_ctx *ctx, uint32_t i)
{
    return (uint32_t)ctx->at[0] * 4096 + ctx->thread * 4 + i;
}
FLEET_PREFETCH(use, pair)
{
    pair_registers *r = (pair_registers *)ctx.registers;
    for (uint32_t i = 0; i < 4; i++) r->word[i] = registered(&ctx, i);
    copy_table(&ctx, args, (uint32_t)at[0]);
    if (ctx.thread != 0) return;
    fleet_add_relaxed_device(args->times, 1);
    fleet_store_relaxed_device(args->prefetched + at[0], ctx.epoch);
}
FLEET_TILE(use, pair)
{
    const uint32_t *lds = (const uint32_t *)ctx.lds;
    const pair_registers *r = (const pair_registers *)ctx.registers;
    if (!args->copied) copy_table(&ctx, args, (uint32_t)at[0]);
    fleet_copy_wait();
    if (ctx.prefetched != args->copied) return FLEET_ERROR_TILE;
    for (uint32_t i = 0; ctx.prefetched && i < 4; i++)
        if (r->word[i] != registered(&ctx, i)) return FLEET_ERROR_TILE;
    fleet_barrier(&ctx);
    for (uint32_t i = ctx.thread; i < copy_words((uint32_t)at[0]); i += ctx.threads)
        if (lds[i] != table_word(copy_first((uint32_t)at[0]) + i)) return FLEET_ERROR_TILE;
    for (uint32_t i = 0; i <= args->last; i++)
        if (args->made[i] != ctx.epoch) return FLEET_ERROR_TILE;
    if (args->spin && fleet_load_relaxed_device(args->prefetched + at[0]) != ctx.epoch)
        return FLEET_ERROR_TILE;
    if (ctx.thread == 0) args->used[at[0]] = ctx.epoch;
    return count_task(&ctx, args) ? FLEET_OK : FLEET_ERROR_TILE;
}
/* It waits, too, but has no prefetch. */
FLEET_TILE(look, pair)
{
    if (!count_task(&ctx, args)) return FLEET_ERROR_TILE;
    return ctx.prefetched || args->made[at[0]] != ctx.epoch ? FLEET_ERROR_TILE : FLEET_OK;
}
#define PAIR_TILES(TILE, P) TILE(P, make) TILE(P, use) TILE(P, look)
#define PAIR_PREFETCHES(TILE, P) TILE(P, use)
FLEET_DISPATCH_WITH_REGISTERS(pair, PAIR_TILES, PAIR_PREFETCHES, pair_registers)
FLEET_KERNEL(pair_kernel, pair, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(pair);
}

static void run_pair(test_run *t, const setting *s, void *unused)
{
    fleet_plan_desc desc = setting_plan_desc(s);
    fleet_state_desc state_desc = setting_state_desc(s);
    fleet_launch_desc launch = setting_launch_desc(s);
    fleet_graph *g;
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_dim n;
    fleet_etensor E;
    fleet_grid make, use, look;
    pair p;
    static uint32_t table[TABLE];
    void *memory, *args;
    const uint32_t waits = s->schedule == FLEET_SCHEDULE_STATIC || s->early; /* workers do */
    uint32_t workers = 0, tasks, times, steps = 3;
    (void)unused;
    for (uint32_t k = 0; k < s->topology.chiplets; k++)
        workers += s->workers ? s->workers
                              : s->topology.units[k] - (s->schedule == FLEET_SCHEDULE_CHIPLET);
    if (workers > MOST) workers = MOST;
    g = fleet_graph_create(NULL);
    tasks = workers > 2 ? workers - 1 : workers; /* one of the bucket's is left out */
    n = fleet_symbol(g, "n", 1, workers);
    fleet_buckets_at_build(&desc, n, NULL, 0);
    E = fleet_event_tensor(g, "E", fleet_shape0(), FLEET_COUNT_DERIVED);
    make = fleet_call_device(g, "make", pair_make, fleet_shape1(n), 0);
    use = fleet_call_device(g, "use", pair_use, fleet_shape1(n), 0);
    fleet_out_edge(g, make, E, "i->");
    fleet_in_edge(g, use, E, "i->");
    look = fleet_call_device(g, "look", pair_look, fleet_shape1(n), 0);
    fleet_in_edge(g, look, E, "i->");
    CHECK_STATUS(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&memory, (3 * MOST + 4 + BLOCKS + TABLE) * 4), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(memory, (3 * MOST + 4 + BLOCKS) * 4, NULL), FLEET_OK);
    p.prefetched = (uint32_t *)memory;
    p.made = p.prefetched + MOST;
    p.used = p.made + MOST;
    p.times = p.used + MOST;
    p.ran = p.times + 4;
    p.table = p.ran + BLOCKS; /* 16-byte aligned */
    for (uint32_t i = 0; i < TABLE; i++) table[i] = table_word(i);
    CHECK_STATUS(fleet_to_device(p.table, table, sizeof table, NULL), FLEET_OK);
    p.copied = waits;
    p.last = tasks - 1;
    p.spin = waits && workers > 1;
    CHECK_STATUS(fleet_device_alloc(&args, sizeof p), FLEET_OK);
    CHECK_STATUS(fleet_to_device(args, &p, sizeof p, NULL), FLEET_OK);
    CHECK_STATUS(fleet_upload(&image, plan, NULL), FLEET_OK);
    CHECK_STATUS(fleet_state_create(&state, &image, &state_desc, NULL), FLEET_OK);
    CHECK_STATUS(fleet_bind(&state, "n", tasks, NULL), FLEET_OK);
    launch.steps = steps;
    launch.lds_bytes = 4096;
    CHECK_STATUS(fleet_launch(&state, &launch, FLEET_KERNEL_OF(pair_kernel), args), FLEET_OK);
    CHECK_STATUS(fleet_state_wait(&state, NULL), FLEET_OK);
    CHECK_STATUS(fleet_to_host(&times, p.times, sizeof times, NULL), FLEET_OK);
    CHECK_INT(times, waits ? tasks * steps : 0);
    fleet_state_free(&state);
    fleet_image_free(&image);
    fleet_device_free(memory);
    fleet_device_free(args);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

static void prefetch_before_the_wait(test_run *t)
{
    in_settings(t, 12, run_pair, NULL);
}

/* Early pushes: a consumer is popped while its last producer still runs. */
static void run_early(test_run *t, const setting *s_, void *unused)
{
    setting s = *s_;
    if (s.schedule != FLEET_SCHEDULE_DYNAMIC) return;
    s.early = 1;
    run_pair(t, &s, unused);
}

static void prefetch_after_an_early_push(test_run *t)
{
    in_settings(t, 12, run_early, NULL);
}

static void all(test_run *t)
{
    TEST(prefetch_before_the_wait);
    TEST(prefetch_after_an_early_push);
}

TEST_MAIN(all)
