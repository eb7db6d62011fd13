/* What the Event Tensor paper (arXiv 2604.13327) describes, as five tests under every schedule: split row sum (1),
   dynamic balancing (3), a mixture of experts (4), buckets of shapes (5). Overlap with tiles that spin (2) is in steps.c,
   consumers_overlap_with_spinning_producers, and in layer.c. All numbers are whole: sums are exact in any
   order. */
// run: asan engine=both
// run: tsan
// hip: 6 runs
#include "settings.h"

/* ---- schedules ---- */

typedef struct schedule_row {
    const char *name;
    fleet_schedule schedule; /* of the plan */
    uint32_t unfused;
    uint32_t dynamic; /* bit 0: grids 0, 2, ... are dynamic; bit 1: grids 1, 3, ... */
} schedule_row;

static const schedule_row schedule_rows[] = {
    {"static", FLEET_SCHEDULE_STATIC, 0, 0},
    {"unfused", FLEET_SCHEDULE_STATIC, 1, 0},
    {"chiplet", FLEET_SCHEDULE_CHIPLET, 0, 0},
    {"dynamic", FLEET_SCHEDULE_DYNAMIC, 0, 3},
    {"mixed: even grids dynamic", FLEET_SCHEDULE_STATIC, 0, 1},
    {"mixed: odd grids dynamic", FLEET_SCHEDULE_STATIC, 0, 2},
};
#define SCHEDULE_ROWS (sizeof schedule_rows / sizeof *schedule_rows)

typedef struct trial {
    setting s;
    const schedule_row *row;
} trial;

typedef struct trial_body {
    void (*run)(test_run *t, const trial *x);
} trial_body;

static void run_rows(test_run *t, const setting *s, void *body)
{
    trial x;
    for (uint32_t i = 0; i < SCHEDULE_ROWS && !t->failed_here; i++) {
        x.row = &schedule_rows[i];
        if (x.row->schedule != s->schedule) continue;
        x.s = *s;
        x.s.unfused = x.row->unfused;
        ((const trial_body *)body)->run(t, &x);
        if (t->failed_here) printf("    under: %s\n", x.row->name);
    }
}

/* Runs the body in the settings of this device, under every row of the table. */
static void under_all_schedules(test_run *t, void (*run)(test_run *, const trial *))
{
    trial_body body;
    body.run = run;
    in_settings(t, TEST_SHAPES, run_rows, &body);
}

/* What differs from trial to trial in the grids of a graph, which come in the order in which they were added. Bit k of
   waves: grid k may have wavefront-tasks. */
static void vary_grids(fleet_graph *g, const trial *x, const fleet_grid *grids, uint32_t n,
                       uint32_t waves)
{
    uint64_t seed = x->s.seed;
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t drawn = draw(&seed, 3);
        if (waves >> k & 1 && drawn == 0) fleet_grid_level(g, grids[k], FLEET_LEVEL_WAVE);
        if (x->row->dynamic >> k % 2 & 1) fleet_grid_schedule(g, grids[k], FLEET_SCHEDULE_DYNAMIC);
    }
}

static uint32_t workers_of(const trial *x)
{
    const fleet_topology *topology = &x->s.topology;
    uint32_t n = 0;
    for (uint32_t k = 0; k < topology->chiplets; k++)
        n += x->s.workers ? x->s.workers
                          : topology->units[k] - (x->s.schedule == FLEET_SCHEDULE_CHIPLET);
    return n;
}

/* ---- memory, and a launch ---- */

#define ARENA 32768u /* words */
#define GUARD 64u    /* words before each buffer, and many after the last one */
#define UNTOUCHED 0x5a5a5a5au

/* All memory of a test lies in one block that is filled before each launch. A layout is a function of the block's
   address, so that the same struct finds the buffers on the device, in what came back, and in what shall come back. */
typedef struct rig {
    fleet_graph *g;
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_launch_desc launch;
    void *device, *args;
    uint32_t have[ARENA], want[ARENA];
} rig;

static uint32_t *take(uint32_t **at, uint32_t words)
{
    uint32_t *buffer = *at + GUARD;
    *at = buffer + (words + 31) / 32 * 32; /* buffers share no line */
    return buffer;
}

static int rig_open(test_run *t, rig *r, const trial *x, fleet_graph *g, fleet_plan_desc *desc)
{
    fleet_state_desc state = setting_state_desc(&x->s);
    r->g = g;
    if (fleet_plan_build(g, desc, &r->plan)) {
        test_fail(t, __FILE__, __LINE__, "%s", fleet_graph_error(g));
        return 0;
    }
    NEED_STATUS(fleet_plan_check(r->plan, (size_t)r->plan->bytes), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&r->device, ARENA * 4), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&r->args, 1024), FLEET_OK);
    NEED_STATUS(fleet_upload(&r->image, r->plan, NULL), FLEET_OK);
    NEED_STATUS(fleet_state_create(&r->state, &r->image, &state, NULL), FLEET_OK);
    r->launch = setting_launch_desc(&x->s);
    return 1;
}

static void rig_close(rig *r)
{
    fleet_state_free(&r->state);
    fleet_image_free(&r->image);
    fleet_device_free(r->device);
    fleet_device_free(r->args);
    fleet_plan_free(r->plan);
    fleet_graph_destroy(r->g);
}

static void rig_fill(rig *r)
{
    for (uint32_t i = 0; i < ARENA; i++) r->want[i] = UNTOUCHED;
}

/* Launches on what r->want holds and reads what is left of it. */
static int rig_run(test_run *t, rig *r, fleet_kernel kernel, const void *args, size_t bytes)
{
    NEED(bytes <= 1024);
    NEED_STATUS(fleet_to_device(r->device, r->want, sizeof r->want, NULL), FLEET_OK);
    NEED_STATUS(fleet_to_device(r->args, args, bytes, NULL), FLEET_OK);
    r->launch.host.seed++;
    NEED_STATUS(fleet_launch(&r->state, &r->launch, kernel, r->args), FLEET_OK);
    if (!ended_with(t, &r->state, FLEET_OK)) return 0;
    NEED_STATUS(fleet_to_host(r->have, r->device, sizeof r->have, NULL), FLEET_OK);
    return 1;
}

/* Whether every word is as it shall be, those of the guards too. */
static int rig_is_right(test_run *t, const rig *r)
{
    for (uint32_t i = 0; i < ARENA; i++)
        if (r->have[i] != r->want[i]) {
            test_fail(t, __FILE__, __LINE__, "word %u is %#x, not %#x", i, r->have[i], r->want[i]);
            return 0;
        }
    return 1;
}

/* ---- (1) split row sum ---- */

#define BLOCKS 6
#define ROWS 32
#define COLUMNS 128
#define PARTS 4

typedef struct row_sum {
    uint32_t *a;                     /* [BLOCKS * ROWS][COLUMNS] */
    uint32_t *partial, *c;           /* [BLOCKS * ROWS][PARTS], [BLOCKS * ROWS] */
    uint32_t *stamp;                 /* the next one */
    uint32_t *partial_at, *final_at; /* [BLOCKS][PARTS] at the end, [BLOCKS] at the beginning */
    uint32_t meet; /* the last partial sum does not end before the first final one has begun */
} row_sum;

FLEET_TILE(partial_sum, row_sum)
{
    const uint32_t block = (uint32_t)at[0], part = (uint32_t)at[1];
    uint32_t tries = 0;
    for (uint32_t r = block * ROWS + ctx.thread; r < (block + 1) * ROWS; r += ctx.threads) {
        uint32_t sum = 0;
        for (uint32_t k = 0; k < COLUMNS / PARTS; k++)
            sum += args->a[r * COLUMNS + part * (COLUMNS / PARTS) + k];
        args->partial[r * PARTS + part] = sum;
    }
    if (ctx.thread != 0) return FLEET_OK;
    if (args->meet && block == BLOCKS - 1 && part == PARTS - 1)
        while (fleet_load_relaxed_device(args->final_at) == UNTOUCHED)
            if (fleet_pause(&tries)) return FLEET_ERROR_TILE;
    fleet_store_relaxed_device(args->partial_at + block * PARTS + part,
                               fleet_add_relaxed_device(args->stamp, 1));
    return FLEET_OK;
}
FLEET_TILE(final_sum, row_sum)
{
    const uint32_t block = (uint32_t)at[0];
    if (ctx.thread == 0)
        fleet_store_relaxed_device(args->final_at + block,
                                   fleet_add_relaxed_device(args->stamp, 1));
    for (uint32_t r = block * ROWS + ctx.thread; r < (block + 1) * ROWS; r += ctx.threads) {
        uint32_t sum = 0;
        for (uint32_t k = 0; k < PARTS; k++) sum += args->partial[r * PARTS + k];
        args->c[r] = sum;
    }
    return FLEET_OK;
}
#define ROW_SUM_TILES(TILE, P) TILE(P, partial_sum) TILE(P, final_sum)
FLEET_DISPATCH(row_sum, ROW_SUM_TILES)
FLEET_KERNEL(row_sum_kernel, row_sum, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(row_sum);
}

static row_sum row_sum_at(void *memory)
{
    uint32_t *at = (uint32_t *)memory;
    row_sum s;
    s.a = take(&at, BLOCKS * ROWS * COLUMNS);
    s.partial = take(&at, BLOCKS * ROWS * PARTS);
    s.c = take(&at, BLOCKS * ROWS);
    s.stamp = take(&at, 1);
    s.partial_at = take(&at, BLOCKS * PARTS);
    s.final_at = take(&at, BLOCKS);
    s.meet = 0;
    return s;
}

static fleet_graph *row_sum_graph(const trial *x, fleet_dim *n)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor E;
    fleet_grid grids[2];
    *n = fleet_symbol(g, "n", 1, 4096);
    E = fleet_event_tensor(g, "E", fleet_shape1(*n), PARTS);
    grids[0] = fleet_call_device(g, "partial_sum", row_sum_partial_sum,
                                 fleet_shape2(*n, fleet_dim_of(PARTS)), 0);
    grids[1] = fleet_call_device(g, "final_sum", row_sum_final_sum, fleet_shape1(*n), 0);
    fleet_out_edge(g, grids[0], E, "ij->i");
    fleet_in_edge(g, grids[1], E, "i->i");
    vary_grids(g, x, grids, 2, 1u << 1);
    return g;
}

/* Whether the first final sum is sure to have a worker while the last partial sum spins. STATIC: it has one of its own,
   the first, which only partial sums come before. DYNAMIC: any that is idle. Elsewhere the two may share a worker. */
static uint32_t may_meet(const trial *x)
{
    const uint32_t first = x->s.workers ? x->s.workers : x->s.topology.units[0];
    if (x->row->dynamic) return x->s.schedule == FLEET_SCHEDULE_DYNAMIC && workers_of(x) > 1;
    if (x->s.schedule != FLEET_SCHEDULE_STATIC || x->s.unfused) return 0;
    return x->s.topology.chiplets > 1 || (BLOCKS * PARTS - 1) % first != 0;
}

/* Each task has taken one stamp, and no final sum before its own partial sums. */
static void check_stamps(test_run *t, const row_sum *have, uint32_t met)
{
    uint32_t taken = 0, seen = 0;
    for (uint32_t i = 0; i < BLOCKS * PARTS + BLOCKS; i++) {
        const uint32_t stamp =
            i < BLOCKS * PARTS ? have->partial_at[i] : have->final_at[i - BLOCKS * PARTS];
        CHECK(stamp < BLOCKS * PARTS + BLOCKS);
        seen |= 1u << stamp;
        taken++;
    }
    CHECK_INT(*have->stamp, taken);
    CHECK_INT(seen, (1u << taken) - 1);
    for (uint32_t i = 0; i < BLOCKS * PARTS; i++)
        CHECK(have->partial_at[i] < have->final_at[i / PARTS]);
    CHECK(!met || have->final_at[0] < have->partial_at[BLOCKS * PARTS - 1]);
}

static void row_sum_expect(const row_sum *want, const row_sum *have)
{
    for (uint32_t r = 0; r < BLOCKS * ROWS; r++) {
        want->c[r] = 0;
        for (uint32_t j = 0; j < PARTS; j++) {
            uint32_t sum = 0;
            for (uint32_t k = 0; k < COLUMNS / PARTS; k++)
                sum += want->a[r * COLUMNS + j * (COLUMNS / PARTS) + k];
            want->partial[r * PARTS + j] = sum;
            want->c[r] += sum;
        }
    }
    /* Any order that check_stamps allows is right. */
    *want->stamp = *have->stamp;
    memcpy(want->partial_at, have->partial_at, BLOCKS * PARTS * 4);
    memcpy(want->final_at, have->final_at, BLOCKS * 4);
}

static void run_row_sum(test_run *t, const trial *x)
{
    static rig r;
    fleet_plan_desc desc = setting_plan_desc(&x->s);
    fleet_dim n;
    fleet_graph *g = row_sum_graph(x, &n);
    fleet_bind_at_build(&desc, n, BLOCKS);
    if (!rig_open(t, &r, x, g, &desc)) return;
    for (uint32_t launch = 0; launch < 2; launch++) {
        row_sum args = row_sum_at(r.device), want = row_sum_at(r.want), have = row_sum_at(r.have);
        uint64_t seed = x->s.seed + launch;
        rig_fill(&r);
        for (uint32_t i = 0; i < BLOCKS * ROWS * COLUMNS; i++) want.a[i] = draw(&seed, 1000);
        *want.stamp = 0;
        args.meet = may_meet(x);
        if (!rig_run(t, &r, FLEET_KERNEL_OF(row_sum_kernel), &args, sizeof args)) return;
        check_stamps(t, &have, args.meet);
        row_sum_expect(&want, &have);
        if (t->failed_here || !rig_is_right(t, &r)) return;
    }
    rig_close(&r);
}

static void split_row_sum(test_run *t)
{
    under_all_schedules(t, run_row_sum);
}

/* ---- (3) dynamic balancing ---- */

#define TASKS_OF_A_WORKER 4
#define MOST_TASKS 4096
#define LONG_UNITS(tasks) (512u + (tasks)) /* a long task is longer than all short ones together */

typedef struct balance {
    uint32_t *length, *ran;            /* [tasks] */
    uint32_t *load;                    /* [workers]: units of work that each has done */
    uint32_t *begun;                   /* long tasks */
    uint32_t *collected;               /* times */
    uint32_t base[FLEET_MAX_CHIPLETS]; /* number of each chiplet's first worker */
    uint32_t tasks;
    uint32_t meet; /* no long task ends before so many have begun */
} balance;

/* A unit of work is an atomic addition: where the host engine may switch to another worker. */
FLEET_TILE(work, balance)
{
    const uint32_t units = args->length[at[0]];
    uint32_t *load = args->load + args->base[ctx.chiplet] + ctx.worker;
    uint32_t tries = 0;
    if (ctx.thread != 0) return FLEET_OK;
    fleet_add_relaxed_device(args->ran + at[0], 1);
    if (units > 1) fleet_add_relaxed_device(args->begun, 1);
    for (uint32_t i = 0; i < units; i++) fleet_add_relaxed_device(load, 1);
    while (units > 1 && fleet_load_relaxed_device(args->begun) < args->meet)
        if (fleet_pause(&tries)) return FLEET_ERROR_TILE;
    return FLEET_OK;
}
FLEET_TILE(collect, balance)
{
    FLEET_UNUSED(at);
    if (ctx.thread != 0) return FLEET_OK;
    for (uint32_t i = 0; i < args->tasks; i++)
        if (fleet_load_relaxed_device(args->ran + i) != 1) return FLEET_ERROR_TILE;
    fleet_add_relaxed_device(args->collected, 1);
    return FLEET_OK;
}
#define BALANCE_TILES(TILE, P) TILE(P, work) TILE(P, collect)
FLEET_DISPATCH(balance, BALANCE_TILES)
FLEET_KERNEL(balance_kernel, balance, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(balance);
}

static balance balance_at(void *memory, const fleet_plan *plan, uint32_t tasks)
{
    uint32_t *at = (uint32_t *)memory;
    balance b;
    b.length = take(&at, tasks);
    b.ran = take(&at, tasks);
    b.load = take(&at, plan->total_workers);
    b.begun = take(&at, 1);
    b.collected = take(&at, 1);
    memcpy(b.base, plan->worker_base, sizeof b.base);
    b.tasks = tasks;
    b.meet = 0;
    return b;
}

static fleet_graph *balance_graph(uint32_t tasks, fleet_grid *grids)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor done = fleet_event_tensor(g, "done", fleet_shape0(), FLEET_COUNT_DERIVED);
    grids[0] = fleet_call_device(g, "work", balance_work, fleet_shape1(fleet_dim_of(tasks)), 0);
    grids[1] = fleet_call_device(g, "collect", balance_collect, fleet_shape0(), 0);
    fleet_out_edge(g, grids[0], done, "i->");
    fleet_in_edge(g, grids[1], done, "->");
    return g;
}

/* The worst case for STATIC: long are the tasks that it gives to its first worker, all others take one unit. Returns
   how many are long; 0: the test has failed. */
static uint32_t choose_lengths(test_run *t, const trial *x, fleet_graph *g, uint32_t *length,
                               uint32_t tasks)
{
    fleet_plan_desc desc = setting_plan_desc(&x->s);
    fleet_plan *plan;
    const fleeti_queue *queue;
    uint32_t n = 0;
    desc.schedule = FLEET_SCHEDULE_STATIC;
    desc.unfused = 0;
    NEED_STATUS(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    queue = queues_of(plan);
    for (uint32_t i = 0; i < tasks; i++) length[i] = 1;
    for (uint32_t i = queue->first; i < queue->first + queue->count; i++) {
        const fleet_task *task = tasks_of(plan) + i;
        if (task->tile != balance_work) continue;
        length[task->at[0]] = LONG_UNITS(tasks);
        n++;
    }
    fleet_plan_free(plan);
    NEED(n > 0);
    return n;
}

/* Units for which workers have nothing to do while the one with the most works. */
static uint64_t idle_units(const balance *b, uint32_t workers)
{
    uint64_t most = 0, sum = 0;
    for (uint32_t i = 0; i < workers; i++) {
        most = b->load[i] > most ? b->load[i] : most;
        sum += b->load[i];
    }
    return most * workers - sum;
}

/* STATIC: the first worker does all long tasks, on every device. DYNAMIC: fewer units are idle, for a worker in a long
   task pops nothing.
   With `meet` that holds in any interleaving: when the first long task ends, so many run at once, each on a worker of
   its own. Without it the deterministic engine decides by its seed which worker goes on, and a long task is so many turns that
   the others reach the next long one in a fraction of them. Threads and workgroups may be held up for as long as it
   takes one of them to do everything: there it is only checked that each task ran once. */
static void check_balance(test_run *t, const trial *x, const balance *have, uint32_t workers,
                          uint32_t n_long, uint32_t meet)
{
    const uint64_t long_units = (uint64_t)n_long * LONG_UNITS(have->tasks);
    const uint64_t units = long_units + have->tasks - n_long;
    const uint64_t idle = idle_units(have, workers), idle_static = long_units * workers - units;
    if (x->s.schedule == FLEET_SCHEDULE_STATIC && !(x->row->dynamic & 1)) {
        CHECK_INT(have->load[0], long_units);
        CHECK_INT(idle, idle_static);
    }
    if (x->row->dynamic & 1 && workers > 1 && n_long > 1 &&
        (meet || x->s.engine == FLEET_ENGINE_DETERMINISTIC))
        CHECK(idle < idle_static);
}

static void run_balance_of(test_run *t, const trial *x, uint32_t meet)
{
    static rig r;
    fleet_plan_desc desc = setting_plan_desc(&x->s);
    const uint32_t workers = workers_of(x), tasks = TASKS_OF_A_WORKER * workers;
    static uint32_t length[MOST_TASKS];
    const uint32_t launches = deep() ? 40 : 2; /* each with another seed */
    uint32_t n_long;
    fleet_grid grids[2];
    fleet_graph *g = balance_graph(tasks, grids);
    CHECK(tasks <= MOST_TASKS);
    n_long = choose_lengths(t, x, g, length, tasks);
    vary_grids(g, x, grids, 2, 1u << 1);
    if (!n_long || !rig_open(t, &r, x, g, &desc)) return;
    CHECK_INT(r.plan->total_workers, workers);
    for (uint32_t launch = 0; launch < launches; launch++) {
        balance args = balance_at(r.device, r.plan, tasks);
        balance want = balance_at(r.want, r.plan, tasks), have = balance_at(r.have, r.plan, tasks);
        args.meet = !meet ? 0 : n_long < workers ? n_long : workers;
        rig_fill(&r);
        memcpy(want.length, length, tasks * 4);
        memset(want.ran, 0, tasks * 4);
        memset(want.load, 0, workers * 4);
        *want.begun = *want.collected = 0;
        if (!rig_run(t, &r, FLEET_KERNEL_OF(balance_kernel), &args, sizeof args)) return;
        check_balance(t, x, &have, workers, n_long, meet);
        for (uint32_t i = 0; i < tasks; i++) want.ran[i] = 1;
        *want.begun = n_long;
        *want.collected = 1;
        memcpy(want.load, have.load, workers * 4);
        if (t->failed_here || !rig_is_right(t, &r)) return;
    }
    rig_close(&r);
}

static void run_balance_free(test_run *t, const trial *x)
{
    run_balance_of(t, x, 0);
}
static void run_balance_meeting(test_run *t, const trial *x)
{
    if (x->row->dynamic & 1) run_balance_of(t, x, 1);
}

static void dynamic_balancing(test_run *t)
{
    under_all_schedules(t, run_balance_free);
    if (!t->failed_here) under_all_schedules(t, run_balance_meeting);
}

/* ---- (4) a mixture of experts ---- */

#define TOKENS 8
#define EXPERTS 4
#define TOP_K 2
#define HIDDEN 8
#define HALVES 2    /* of the columns of a tile */
#define TILE_ROWS 2 /* rows of a tile: each expert may leave one partial */
#define TILES (EXPERTS + (TOKENS * TOP_K + TILE_ROWS - 1) / TILE_ROWS)
enum { RAN_ROUTE, RAN_GROUP, RAN_SCATTER, RAN_EXPERT, RAN_COMBINE, MOE_GRIDS };
#define CELLS 32

typedef struct moe {
    int32_t *score, *x;       /* [TOKENS][EXPERTS], [TOKENS][HIDDEN] */
    int32_t *weight;          /* [EXPERTS][HIDDEN][HIDDEN] */
    int32_t *topk, *share;    /* [TOKENS][TOP_K]: experts, and their shares of the output */
    int32_t *counts, *indptr; /* [EXPERTS], [EXPERTS + 1] */
    int32_t *slot;            /* [TOKENS][TOP_K]: row among the experts' rows */
    int32_t *source;          /* [TILES * TILE_ROWS]: its inverse */
    int32_t *expert_of;       /* [TILES] */
    int32_t *rows, *y;        /* [TILES * TILE_ROWS][HIDDEN] */
    int32_t *out;             /* [TOKENS][HIDDEN] */
    uint32_t *ran;            /* [MOE_GRIDS][CELLS] */
} moe;

FLEET_DEVICE void count_run(const fleet_ctx *ctx, uint32_t *ran, uint32_t grid, int32_t cell)
{
    if (ctx->thread == 0) fleet_add_relaxed_device(ran + grid * CELLS + (uint32_t)cell, 1);
}

FLEET_TILE(route, moe)
{
    const int32_t *score = args->score + at[0] * EXPERTS;
    int32_t first = 0, second;
    count_run(&ctx, args->ran, RAN_ROUTE, at[0]);
    if (ctx.thread != 0) return FLEET_OK;
    for (int32_t e = 1; e < EXPERTS; e++) first = score[e] > score[first] ? e : first;
    second = first == 0;
    for (int32_t e = second + 1; e < EXPERTS; e++)
        second = e != first && score[e] > score[second] ? e : second;
    args->topk[at[0] * TOP_K] = first;
    args->topk[at[0] * TOP_K + 1] = second;
    args->share[at[0] * TOP_K] = score[first];
    args->share[at[0] * TOP_K + 1] = score[second];
    return FLEET_OK;
}
FLEET_TILE(group, moe)
{
    int32_t tiles = 0;
    count_run(&ctx, args->ran, RAN_GROUP, 0);
    FLEET_UNUSED(at);
    if (ctx.thread != 0) return FLEET_OK;
    for (int32_t e = 0; e < EXPERTS; e++) {
        int32_t n = 0;
        for (int32_t i = 0; i < ctx.symbols[0] * TOP_K; i++)
            if (args->topk[i] == e) args->slot[i] = tiles * TILE_ROWS + n++;
        args->counts[e] = n;
        args->indptr[e] = tiles;
        for (; n > 0; n -= TILE_ROWS) args->expert_of[tiles++] = e;
    }
    args->indptr[EXPERTS] = tiles;
    return FLEET_OK;
}
FLEET_TILE(scatter, moe)
{
    if (at[0] >= ctx.symbols[0]) return FLEET_ERROR_TILE; /* there is no such token */
    count_run(&ctx, args->ran, RAN_SCATTER, at[0]);
    for (uint32_t i = ctx.thread; i < TOP_K * HIDDEN; i += ctx.threads) {
        const int32_t pair = at[0] * TOP_K + (int32_t)(i / HIDDEN), row = args->slot[pair];
        args->rows[row * HIDDEN + (int32_t)(i % HIDDEN)] =
            args->x[at[0] * HIDDEN + (int32_t)(i % HIDDEN)];
        if (i % HIDDEN == 0) args->source[row] = pair;
    }
    return FLEET_OK;
}
FLEET_TILE(expert, moe) /* (tile, half) */
{
    const int32_t columns = HIDDEN / HALVES, first = at[1] * columns;
    int32_t e, rows;
    if (at[0] >= args->indptr[EXPERTS]) return FLEET_ERROR_TILE; /* there is no such tile */
    count_run(&ctx, args->ran, RAN_EXPERT, at[0] * HALVES + at[1]);
    e = args->expert_of[at[0]];
    rows = args->counts[e] - (at[0] - args->indptr[e]) * TILE_ROWS;
    if (rows > TILE_ROWS) rows = TILE_ROWS;
    for (int32_t i = (int32_t)ctx.thread; i < rows * columns; i += (int32_t)ctx.threads) {
        const int32_t row = at[0] * TILE_ROWS + i / columns, c = first + i % columns;
        int32_t sum = 0;
        for (int32_t p = 0; p < HIDDEN; p++)
            sum += args->rows[row * HIDDEN + p] * args->weight[(e * HIDDEN + p) * HIDDEN + c];
        args->y[row * HIDDEN + c] = sum;
    }
    return FLEET_OK;
}
FLEET_TILE(combine, moe)
{
    if (at[0] >= ctx.symbols[0]) return FLEET_ERROR_TILE;
    count_run(&ctx, args->ran, RAN_COMBINE, at[0]);
    for (int32_t c = (int32_t)ctx.thread; c < HIDDEN; c += (int32_t)ctx.threads) {
        int32_t sum = 0;
        for (int32_t i = at[0] * TOP_K; i < (at[0] + 1) * TOP_K; i++)
            sum += args->share[i] * args->y[args->slot[i] * HIDDEN + c];
        args->out[at[0] * HIDDEN + c] = sum;
    }
    return FLEET_OK;
}
#define MOE_TILES(TILE, P)                                                                         \
    TILE(P, route) TILE(P, group) TILE(P, scatter) TILE(P, expert) TILE(P, combine)
FLEET_DISPATCH(moe, MOE_TILES)
FLEET_KERNEL(moe_kernel, moe, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(moe);
}

static moe moe_at(void *memory)
{
    uint32_t *at = (uint32_t *)memory;
    moe m;
    m.score = (int32_t *)take(&at, TOKENS * EXPERTS);
    m.x = (int32_t *)take(&at, TOKENS * HIDDEN);
    m.weight = (int32_t *)take(&at, EXPERTS * HIDDEN * HIDDEN);
    m.topk = (int32_t *)take(&at, TOKENS * TOP_K);
    m.share = (int32_t *)take(&at, TOKENS * TOP_K);
    m.counts = (int32_t *)take(&at, EXPERTS);
    m.indptr = (int32_t *)take(&at, EXPERTS + 1);
    m.slot = (int32_t *)take(&at, TOKENS * TOP_K);
    m.source = (int32_t *)take(&at, TILES * TILE_ROWS);
    m.expert_of = (int32_t *)take(&at, TILES);
    m.rows = (int32_t *)take(&at, TILES * TILE_ROWS * HIDDEN);
    m.y = (int32_t *)take(&at, TILES * TILE_ROWS * HIDDEN);
    m.out = (int32_t *)take(&at, TOKENS * HIDDEN);
    m.ran = take(&at, MOE_GRIDS * CELLS);
    return m;
}

static fleet_graph *moe_graph(const trial *x)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim n = fleet_symbol(g, "tokens", 0, TOKENS), experts = fleet_dim_of(EXPERTS);
    fleet_dim pairs = fleet_dim_times(n, TOP_K);
    fleet_dim tiles = fleet_dim_plus(fleet_dim_ceil_div(pairs, TILE_ROWS), EXPERTS);
    fleet_etensor routed = fleet_event_tensor(g, "routed", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_etensor grouped = fleet_event_tensor(g, "grouped", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_etensor filled = fleet_event_tensor(g, "filled", fleet_shape1(experts), TOKENS);
    fleet_etensor done = fleet_event_tensor(g, "done", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_shape parts = fleet_shape2(tiles, fleet_dim_of(HALVES));
    fleet_grid grids[MOE_GRIDS];
    fleet_tensor topk, counts, indptr;
    grids[RAN_ROUTE] = fleet_call_device(g, "route", moe_route, fleet_shape1(n), 0);
    grids[RAN_GROUP] = fleet_call_device(g, "group", moe_group, fleet_shape0(), 0);
    grids[RAN_SCATTER] = fleet_call_device(g, "scatter", moe_scatter, fleet_shape1(n), 0);
    grids[RAN_EXPERT] = fleet_call_device(g, "expert", moe_expert, parts, 0);
    grids[RAN_COMBINE] = fleet_call_device(g, "combine", moe_combine, fleet_shape1(n), 0);
    topk = fleet_runtime_tensor(g, "topk", fleet_shape2(n, fleet_dim_of(TOP_K)), grids[RAN_ROUTE]);
    counts = fleet_runtime_tensor(g, "counts", fleet_shape1(experts), grids[RAN_GROUP]);
    indptr = fleet_runtime_tensor(g, "indptr", fleet_shape1(fleet_dim_plus(experts, 1)),
                                  grids[RAN_GROUP]);
    fleet_out_edge(g, grids[RAN_ROUTE], routed, "i->");
    fleet_in_edge(g, grids[RAN_GROUP], routed, "->");
    fleet_out_edge(g, grids[RAN_GROUP], grouped, "->");
    fleet_in_edge(g, grids[RAN_SCATTER], grouped, "i->");
    fleet_out_edge_gather(g, grids[RAN_SCATTER], filled, topk);
    fleet_event_counts(g, filled, counts);
    fleet_in_edge_range(g, grids[RAN_EXPERT], filled, indptr);
    fleet_out_edge(g, grids[RAN_EXPERT], done, "th->");
    fleet_in_edge(g, grids[RAN_COMBINE], done, "i->");
    vary_grids(g, x, grids, MOE_GRIDS, 1u << RAN_SCATTER | 1u << RAN_EXPERT | 1u << RAN_COMBINE);
    return g;
}

/* Scores at random, then made so that all tokens choose the same two experts, or that no token chooses one. */
enum { ANY_EXPERTS, TWO_EXPERTS, NOT_EXPERT_1 };

static void moe_inputs(const moe *m, uint32_t tokens, uint32_t routing, uint64_t seed)
{
    for (uint32_t i = 0; i < TOKENS * EXPERTS; i++) {
        const uint32_t e = i % EXPERTS;
        m->score[i] = 1 + (int32_t)draw(&seed, 50);
        if (routing == TWO_EXPERTS && e > 1) m->score[i] += 100;
        if (routing == NOT_EXPERT_1 && e == 1) m->score[i] = 0;
    }
    for (uint32_t i = 0; i < tokens * HIDDEN; i++) m->x[i] = (int32_t)draw(&seed, 20) - 10;
    for (uint32_t i = 0; i < EXPERTS * HIDDEN * HIDDEN; i++)
        m->weight[i] = (int32_t)draw(&seed, 20) - 10;
    for (uint32_t i = 0; i < MOE_GRIDS * CELLS; i++) m->ran[i] = 0;
}

/* What the run left agrees with itself. */
static void check_routing(test_run *t, const moe *have, int32_t tokens)
{
    int32_t sum = 0, filled = 0;
    for (int32_t e = 0; e < EXPERTS; e++) {
        int32_t n = 0;
        for (int32_t i = 0; i < tokens * TOP_K; i++) n += have->topk[i] == e;
        CHECK_INT(have->counts[e], n);
        sum += have->counts[e];
    }
    CHECK_INT(sum, tokens * TOP_K);
    CHECK(have->indptr[EXPERTS] >= 0 && have->indptr[EXPERTS] <= TILES);
    for (int32_t i = 0; i < tokens * TOP_K; i++) {
        CHECK(have->slot[i] >= 0 && have->slot[i] < have->indptr[EXPERTS] * TILE_ROWS);
        CHECK_INT(have->source[have->slot[i]], i);
    }
    for (int32_t row = 0; row < TILES * TILE_ROWS; row++) {
        const int32_t pair = have->source[row], tile = row / TILE_ROWS;
        if (pair == (int32_t)UNTOUCHED) continue;
        filled++;
        CHECK(pair >= 0 && pair < tokens * TOP_K);
        CHECK_INT(have->slot[pair], row);
        CHECK_INT(have->topk[pair], have->expert_of[tile]);
        CHECK(have->indptr[have->topk[pair]] <= tile && tile < have->indptr[have->topk[pair] + 1]);
    }
    CHECK_INT(filled, tokens * TOP_K);
}

/* The two experts with the highest scores, the first of equals. */
static void reference_route(const moe *m, int32_t token)
{
    const int32_t *score = m->score + token * EXPERTS;
    for (int32_t e = 0; e < EXPERTS; e++) {
        int32_t better = 0;
        for (int32_t other = 0; other < EXPERTS; other++)
            better += score[other] > score[e] || (score[other] == score[e] && other < e);
        if (better >= TOP_K) continue;
        m->topk[token * TOP_K + better] = e;
        m->share[token * TOP_K + better] = score[e];
    }
}
static int32_t reference_dot(const moe *m, int32_t token, int32_t e, int32_t column)
{
    int32_t sum = 0;
    for (int32_t p = 0; p < HIDDEN; p++)
        sum += m->x[token * HIDDEN + p] * m->weight[(e * HIDDEN + p) * HIDDEN + column];
    return sum;
}
/* A pair of token and expert in its row. */
static void reference_pair(const moe *m, int32_t pair, int32_t row)
{
    const int32_t token = pair / TOP_K, e = m->topk[pair];
    m->slot[pair] = row;
    m->source[row] = pair;
    for (int32_t c = 0; c < HIDDEN; c++) {
        m->rows[row * HIDDEN + c] = m->x[token * HIDDEN + c];
        m->y[row * HIDDEN + c] = reference_dot(m, token, e, c);
    }
}
static void reference_moe(const moe *m, int32_t tokens)
{
    int32_t tiles = 0;
    for (int32_t i = 0; i < tokens; i++) reference_route(m, i);
    for (int32_t e = 0; e < EXPERTS; e++) {
        int32_t row = tiles * TILE_ROWS;
        m->indptr[e] = tiles;
        for (int32_t i = 0; i < tokens * TOP_K; i++)
            if (m->topk[i] == e) reference_pair(m, i, row++);
        m->counts[e] = row - tiles * TILE_ROWS;
        while (tiles * TILE_ROWS < row) m->expert_of[tiles++] = e;
    }
    m->indptr[EXPERTS] = tiles;
    for (int32_t i = 0; i < tokens * HIDDEN; i++) {
        const int32_t pair = i / HIDDEN * TOP_K, token = i / HIDDEN, c = i % HIDDEN;
        m->out[i] = 0;
        for (int32_t j = pair; j < pair + TOP_K; j++)
            m->out[i] += m->share[j] * reference_dot(m, token, m->topk[j], c);
    }
}

static void expect_runs(const moe *want, uint32_t tokens, uint32_t steps)
{
    const uint32_t tiles = (uint32_t)want->indptr[EXPERTS];
    for (uint32_t i = 0; i < tokens; i++)
        want->ran[RAN_ROUTE * CELLS + i] = want->ran[RAN_SCATTER * CELLS + i] =
            want->ran[RAN_COMBINE * CELLS + i] = steps;
    for (uint32_t i = 0; i < tiles * HALVES; i++) want->ran[RAN_EXPERT * CELLS + i] = steps;
    want->ran[RAN_GROUP * CELLS] = steps;
}

static int moe_launch(test_run *t, rig *r, uint32_t tokens, uint32_t routing)
{
    const moe args = moe_at(r->device), want = moe_at(r->want), have = moe_at(r->have);
    rig_fill(r);
    moe_inputs(&want, tokens, routing, r->launch.host.seed);
    NEED_STATUS(fleet_bind(&r->state, "tokens", tokens, NULL), FLEET_OK);
    if (!rig_run(t, r, FLEET_KERNEL_OF(moe_kernel), &args, sizeof args)) return 0;
    check_routing(t, &have, (int32_t)tokens);
    reference_moe(&want, (int32_t)tokens);
    expect_runs(&want, tokens, r->launch.steps);
    return !t->failed_here && rig_is_right(t, r);
}

static void run_moe(test_run *t, const trial *x)
{
    static const uint32_t launches[][2] = {
        {8, ANY_EXPERTS}, {8, TWO_EXPERTS}, {0, ANY_EXPERTS}, {8, NOT_EXPERT_1},
        {1, ANY_EXPERTS}, {1, TWO_EXPERTS}, {8, ANY_EXPERTS},
    };
    static rig r;
    fleet_plan_desc desc = setting_plan_desc(&x->s);
    moe args;
    if (!rig_open(t, &r, x, moe_graph(x), &desc)) return;
    args = moe_at(r.device);
    CHECK_STATUS(fleet_bind_tensor(&r.state, "topk", args.topk, NULL), FLEET_OK);
    CHECK_STATUS(fleet_bind_tensor(&r.state, "counts", args.counts, NULL), FLEET_OK);
    CHECK_STATUS(fleet_bind_tensor(&r.state, "indptr", args.indptr, NULL), FLEET_OK);
    for (uint32_t i = 0; i < sizeof launches / sizeof *launches; i++) {
        r.launch.steps = 1 + i % 2;
        if (!moe_launch(t, &r, launches[i][0], launches[i][1])) return;
    }
    rig_close(&r);
}

static void mixture_of_experts(test_run *t)
{
    under_all_schedules(t, run_moe);
}

/* ---- (5) buckets of shapes ---- */

#define MOST_N 8
#define WIDTH 8
#define COLUMN_BLOCKS 2
enum { RAN_UP, RAN_DOWN, RAN_PAIR, RAN_TOTAL, MLP_GRIDS };

/* Two layers for n rows; then the sums of two rows each, and of all. No tile looks whether it is in shape, but for the
   second row of a pair: that is what the kit is for. */
typedef struct mlp {
    int32_t *x, *w1, *w2;   /* [MOST_N][WIDTH], [WIDTH][WIDTH] twice */
    int32_t *hidden, *out;  /* [MOST_N][WIDTH] */
    int32_t *pairs, *total; /* [MOST_N / 2], one */
    uint32_t *ran;          /* [MLP_GRIDS][CELLS] */
} mlp;

FLEET_DEVICE void layer(const fleet_ctx *ctx, const int32_t *from, const int32_t *w, int32_t *to)
{
    const int32_t columns = WIDTH / COLUMN_BLOCKS, first = ctx->at[1] * columns;
    for (int32_t c = first + (int32_t)ctx->thread; c < first + columns;
         c += (int32_t)ctx->threads) {
        int32_t sum = 0;
        for (int32_t p = 0; p < WIDTH; p++) sum += from[ctx->at[0] * WIDTH + p] * w[p * WIDTH + c];
        to[ctx->at[0] * WIDTH + c] = sum;
    }
}
FLEET_TILE(up, mlp)
{
    count_run(&ctx, args->ran, RAN_UP, at[0] * COLUMN_BLOCKS + at[1]);
    layer(&ctx, args->x, args->w1, args->hidden);
    return FLEET_OK;
}
FLEET_TILE(down, mlp)
{
    count_run(&ctx, args->ran, RAN_DOWN, at[0] * COLUMN_BLOCKS + at[1]);
    layer(&ctx, args->hidden, args->w2, args->out);
    return FLEET_OK;
}
FLEET_TILE(pair, mlp)
{
    int32_t sum = 0;
    count_run(&ctx, args->ran, RAN_PAIR, at[0]);
    if (ctx.thread != 0) return FLEET_OK;
    for (int32_t row = 2 * at[0]; row < 2 * at[0] + 2 && row < ctx.symbols[0]; row++)
        for (int32_t c = 0; c < WIDTH; c++) sum += args->out[row * WIDTH + c];
    args->pairs[at[0]] = sum;
    return FLEET_OK;
}
FLEET_TILE(total, mlp)
{
    int32_t sum = 0;
    count_run(&ctx, args->ran, RAN_TOTAL, 0);
    FLEET_UNUSED(at);
    if (ctx.thread != 0) return FLEET_OK;
    for (int32_t i = 0; i < (ctx.symbols[0] + 1) / 2; i++) sum += args->pairs[i];
    *args->total = sum;
    return FLEET_OK;
}
#define MLP_TILES(TILE, P) TILE(P, up) TILE(P, down) TILE(P, pair) TILE(P, total)
FLEET_DISPATCH(mlp, MLP_TILES)
FLEET_KERNEL(mlp_kernel, mlp, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(mlp);
}

static mlp mlp_at(void *memory)
{
    uint32_t *at = (uint32_t *)memory;
    mlp m;
    m.x = (int32_t *)take(&at, MOST_N * WIDTH);
    m.w1 = (int32_t *)take(&at, WIDTH * WIDTH);
    m.w2 = (int32_t *)take(&at, WIDTH * WIDTH);
    m.hidden = (int32_t *)take(&at, MOST_N * WIDTH);
    m.out = (int32_t *)take(&at, MOST_N * WIDTH);
    m.pairs = (int32_t *)take(&at, MOST_N / 2);
    m.total = (int32_t *)take(&at, 1);
    m.ran = take(&at, MLP_GRIDS * CELLS);
    return m;
}

static fleet_graph *mlp_graph(const trial *x, fleet_dim *n)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim blocks = fleet_dim_of(COLUMN_BLOCKS), two;
    fleet_etensor hidden, out, paired;
    fleet_grid grids[MLP_GRIDS];
    *n = fleet_symbol(g, "n", 1, MOST_N);
    two = fleet_dim_ceil_div(*n, 2);
    hidden = fleet_event_tensor(g, "hidden", fleet_shape1(*n), FLEET_COUNT_DERIVED);
    out = fleet_event_tensor(g, "out", fleet_shape1(two), FLEET_COUNT_DERIVED);
    paired = fleet_event_tensor(g, "paired", fleet_shape1(two), FLEET_COUNT_DERIVED);
    grids[RAN_UP] = fleet_call_device(g, "up", mlp_up, fleet_shape2(*n, blocks), 0);
    grids[RAN_DOWN] = fleet_call_device(g, "down", mlp_down, fleet_shape2(*n, blocks), 0);
    grids[RAN_PAIR] = fleet_call_device(g, "pair", mlp_pair, fleet_shape1(two), 0);
    grids[RAN_TOTAL] = fleet_call_device(g, "total", mlp_total, fleet_shape0(), 0);
    fleet_out_edge(g, grids[RAN_UP], hidden, "ic->i");
    fleet_in_edge(g, grids[RAN_DOWN], hidden, "ic->i");
    fleet_out_edge_map(g, grids[RAN_DOWN], out, fleet_map1(fleet_axis(0, 1, 0, 2)));
    fleet_in_edge(g, grids[RAN_PAIR], out, "i->i");
    fleet_out_edge(g, grids[RAN_PAIR], paired, "i->i");
    fleet_in_edge(g, grids[RAN_TOTAL], paired, "->i");
    vary_grids(g, x, grids, MLP_GRIDS, 15);
    return g;
}

/* Rows out of shape are left as they were filled: a read of them shows in the result. */
static void mlp_inputs(const mlp *m, uint32_t n, uint64_t seed)
{
    for (uint32_t i = 0; i < n * WIDTH; i++) m->x[i] = (int32_t)draw(&seed, 20) - 10;
    for (uint32_t i = 0; i < WIDTH * WIDTH; i++) {
        m->w1[i] = (int32_t)draw(&seed, 20) - 10;
        m->w2[i] = (int32_t)draw(&seed, 20) - 10;
    }
    for (uint32_t i = 0; i < MLP_GRIDS * CELLS; i++) m->ran[i] = 0;
}

static void reference_layer(const int32_t *from, const int32_t *w, int32_t *to, uint32_t n)
{
    for (uint32_t i = 0; i < n * WIDTH; i++) {
        to[i] = 0;
        for (uint32_t p = 0; p < WIDTH; p++)
            to[i] += from[i / WIDTH * WIDTH + p] * w[p * WIDTH + i % WIDTH];
    }
}
static void reference_mlp(const mlp *m, uint32_t n, uint32_t steps)
{
    reference_layer(m->x, m->w1, m->hidden, n);
    reference_layer(m->hidden, m->w2, m->out, n);
    *m->total = 0;
    for (uint32_t i = 0; i < (n + 1) / 2; i++) {
        m->pairs[i] = 0;
        m->ran[RAN_PAIR * CELLS + i] = steps;
    }
    for (uint32_t i = 0; i < n * WIDTH; i++) {
        m->pairs[i / (2 * WIDTH)] += m->out[i];
        *m->total += m->out[i];
    }
    for (uint32_t i = 0; i < n * COLUMN_BLOCKS; i++)
        m->ran[RAN_UP * CELLS + i] = m->ran[RAN_DOWN * CELLS + i] = steps;
    m->ran[RAN_TOTAL * CELLS] = steps;
}

static int mlp_launch(test_run *t, rig *r, uint32_t n)
{
    const mlp args = mlp_at(r->device), want = mlp_at(r->want);
    rig_fill(r);
    mlp_inputs(&want, n, r->launch.host.seed);
    NEED_STATUS(fleet_bind(&r->state, "n", n, NULL), FLEET_OK);
    if (!rig_run(t, r, FLEET_KERNEL_OF(mlp_kernel), &args, sizeof args)) return 0;
    reference_mlp(&want, n, r->launch.steps);
    return rig_is_right(t, r);
}

static void run_buckets(test_run *t, const trial *x)
{
    static const int64_t values[] = {1, 2, 4}; /* and 8, the most */
    static const uint32_t actual[] = {3, 1, 2, 4, 7, 5, 8, 6, 3};
    static rig r;
    fleet_plan_desc desc = setting_plan_desc(&x->s);
    fleet_dim n;
    fleet_graph *g = mlp_graph(x, &n);
    fleet_buckets_at_build(&desc, n, values, 3);
    if (!rig_open(t, &r, x, g, &desc)) return;
    CHECK_INT(r.plan->n_buckets, 4);
    for (uint32_t i = 0; i < sizeof actual / sizeof *actual; i++) {
        r.launch.steps = 1 + i % 2;
        if (!mlp_launch(t, &r, actual[i])) {
            printf("    n is %u\n", actual[i]);
            return;
        }
    }
    rig_close(&r);
}

static void buckets_of_shapes(test_run *t)
{
    under_all_schedules(t, run_buckets);
}

static void all(test_run *t)
{
    TEST(split_row_sum);
    TEST(dynamic_balancing);
    TEST(mixture_of_experts);
    TEST(buckets_of_shapes);
}

TEST_MAIN(all)
