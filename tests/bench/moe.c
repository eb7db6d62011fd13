/* A mixture-of-experts layer in one launch: the layer of Qwen3-30B-A3B in bf16, routed on the device.

       few tokens   score(block, part)  choose()                gate_up(tile, columns)  down(tile, columns)  combine
       many         route(block)        group()  place(block)   gate_up ...

   gate_up and down are grouped GEMMs: a tile is some rows of one expert, a task some columns of it, and down waits for
   the gate_up tasks of its own tile only. Or, as "shares", each worker has one task of gate_up and one of down, with a
   share of all tiles. Every schedule is measured against the unfused plan, which has a device-wide event between each
   grid and the next, and that and the best of them against PyTorch, with where the time goes. Every plan's result is
   checked before it is timed, by plain loops in float on the bf16 weights, with the experts that the launch has chosen,
   whose choice is checked too.

   nvcc -x cu -gencode=arch=compute_90a,code=sm_90a -std=c++17 -O3 -w -I. tests/bench/moe.c -o moe
   ./moe [--tokens N] [--schedule NAME]
   With -DMOE_PORTABLE for other GPUs of NVIDIA. On the CPU (-lm) it only checks, with a
   small layer. */
#include "bench.h"
#include "moe_tiles.h"

#if defined(FLEET_CUDA)
#define BY_VALUE const __grid_constant__
#else
#define BY_VALUE const
#endif
FLEET_GLOBAL(MOE_THREADS) void few_kernel(fleet_run run, BY_VALUE moe m)
{
    FLEET_WORKER_LOOP_IN(moe_few, run, &m, fleeti_dynamic_lds(), run.lds_bytes);
}
FLEET_THUNK2(few_kernel, fleet_run, moe)
FLEET_GLOBAL(MOE_THREADS) void some_kernel(fleet_run run, BY_VALUE moe m)
{
    FLEET_WORKER_LOOP_IN(moe_some, run, &m, fleeti_dynamic_lds(), run.lds_bytes);
}
FLEET_THUNK2(some_kernel, fleet_run, moe)
FLEET_GLOBAL(MOE_THREADS) void many_kernel(fleet_run run, BY_VALUE moe m)
{
    FLEET_WORKER_LOOP_IN(moe_many, run, &m, fleeti_dynamic_lds(), run.lds_bytes);
}
FLEET_THUNK2(many_kernel, fleet_run, moe)

/* The kernels and the numbers of their tiles. */
typedef struct tile_set {
    fleet_kernel kernel;
    uint32_t rows; /* most of a tile */
    uint32_t score, choose, route, group, place, gate_up, down, combine;
} tile_set;
static tile_set set_of(uint32_t few, uint32_t rows)
{
    const tile_set sets[] = {
        {FLEET_KERNEL_OF(few_kernel), 32, moe_few_score, moe_few_choose, 0, 0, 0,
         moe_few_gate_up_32, moe_few_down_32, moe_few_combine},
        {FLEET_KERNEL_OF(some_kernel), 64, 0, 0, moe_some_route, moe_some_group, moe_some_place,
         moe_some_gate_up_64, moe_some_down_64, moe_some_combine},
        {FLEET_KERNEL_OF(many_kernel), 128, 0, 0, moe_many_route, moe_many_group, moe_many_place,
         moe_many_gate_up_128, moe_many_down_128, moe_many_combine}};
    return sets[few ? 0 : rows <= 64 ? 1 : 2];
}

/* ---- what the layer is checked against ---- */

FLEET_DEVICE uint32_t first_item(void)
{
    return fleet_block_id() * fleet_thread_count() + fleet_thread_id();
}
FLEET_DEVICE uint32_t items_at_once(void)
{
    return fleet_block_count() * fleet_thread_count();
}

/* Values of a uniform distribution in [-scale, scale). */
FLEET_GLOBAL(256) void fill(moe_bf16 *to, uint32_t n, uint32_t seed, float scale)
{
    for (uint32_t i = first_item(); i < n; i += items_at_once()) {
        uint32_t v = i * 0x9e3779b1u + seed;
        v = (v ^ v >> 16) * 0x85ebca6bu;
        v = (v ^ v >> 13) * 0xc2b2ae35u;
        v ^= v >> 16;
        to[i] = moe_round(((float)(v >> 8) / 8388608.0f - 1) * scale);
    }
}
FLEET_THUNK4(fill, moe_bf16 *, uint32_t, uint32_t, float)

FLEET_DEVICE float plain_dot(const moe_bf16 *a, const moe_bf16 *b, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i += 8) {
        const moe_quad p = *(const moe_quad *)(const void *)(a + i);
        const moe_quad q = *(const moe_quad *)(const void *)(b + i);
        for (uint32_t w = 0; w < 4; w++) {
            sum += moe_low(p.word[w]) * moe_low(q.word[w]);
            sum += moe_high(p.word[w]) * moe_high(q.word[w]);
        }
    }
    return sum;
}
FLEET_GLOBAL(256) void plain_scores(moe m, float *scores)
{
    for (uint32_t i = first_item(); i < m.tokens * m.experts; i += items_at_once())
        scores[i] = plain_dot(m.x + (size_t)(i / m.experts) * m.hidden,
                              m.router + (size_t)(i % m.experts) * m.hidden, m.hidden);
}
FLEET_THUNK2(plain_scores, moe, float *)
FLEET_GLOBAL(256) void plain_h(moe m, moe_bf16 *h)
{
    for (uint32_t i = first_item(); i < m.tokens * m.k * m.ffn; i += items_at_once()) {
        const uint32_t pair = i / m.ffn, f = i % m.ffn;
        const moe_bf16 *x = m.x + (size_t)(pair / m.k) * m.hidden;
        const moe_bf16 *gate =
            m.gate_up + ((size_t)m.topk[pair] * 2 * m.ffn + f) * (size_t)m.hidden;
        const float g = plain_dot(x, gate, m.hidden);
        const float u = plain_dot(x, gate + (size_t)m.ffn * m.hidden, m.hidden);
        h[i] = moe_round(g / (1 + expf(-g)) * u);
    }
}
FLEET_THUNK2(plain_h, moe, moe_bf16 *)
FLEET_GLOBAL(256) void plain_out(moe m, const moe_bf16 *h, float *out)
{
    for (uint32_t i = first_item(); i < m.tokens * m.hidden; i += items_at_once()) {
        const uint32_t token = i / m.hidden, c = i % m.hidden;
        float sum = 0;
        for (uint32_t j = 0; j < m.k; j++) {
            const uint32_t pair = token * m.k + j;
            sum += m.weight[pair] *
                   plain_dot(h + (size_t)pair * m.ffn,
                             m.down + ((size_t)m.topk[pair] * m.hidden + c) * m.ffn, m.ffn);
        }
        out[i] = sum;
    }
}
FLEET_THUNK3(plain_out, moe, const moe_bf16 *, float *)

/* ---- the layer and its memory ---- */

typedef struct sizes {
    uint32_t experts, k, hidden, ffn, most_tokens;
} sizes;

/* How gate_up and down are cut: weight rows at once, and how many times by one task, or when a share is taken. */
typedef struct grain {
    uint32_t up_rows, up_runs, down_rows, down_runs;
} grain;

/* How the work is cut, by the number of tokens. */
typedef struct cut {
    uint32_t tokens; /* up to so many */
    uint32_t parts;  /* of the experts in score; 0: many tokens */
    uint32_t block, tile_rows, combined, dealt, stages;
    grain tiles, shares; /* tasks that have a tile, or a share of all */
} cut;

#if MOE_TENSOR_CORES
static const sizes layer = {128, 8, 2048, 768, 4096};
/* The best that was found on an H200. */
static const cut cuts[] = {{1, 32, 1, 32, 1, 7, 6, {96, 1, 128, 1}, {96, 1, 128, 1}},
                           {8, 32, 2, 32, 1, 7, 4, {192, 1, 256, 1}, {192, 1, 256, 1}},
                           {32, 32, 8, 32, 1, 7, 32, {256, 3, 256, 4}, {192, 1, 256, 1}},
                           {128, 0, 8, 64, 1, 6, 32, {256, 3, 256, 4}, {192, 1, 256, 1}},
                           {1024, 0, 8, 128, 8, 7, 32, {256, 6, 256, 8}, {256, 1, 256, 1}},
                           {4096, 0, 32, 128, 32, 0, 32, {256, 3, 256, 4}, {256, 2, 256, 4}}};
static const uint32_t token_counts[] = {1, 8, 32, 128, 1024, 4096};
#else
static const sizes layer = {16, 4, 64, 48, 60};
static const cut cuts[] = {{1, 4, 8, 16, 1, 7, 0, {32, 1, 32, 2}, {32, 1, 32, 1}},
                           {8, 4, 8, 16, 2, 4, 0, {32, 3, 64, 1}, {48, 1, 16, 1}},
                           {20, 0, 8, 16, 7, 0, 0, {48, 2, 32, 1}, {32, 1, 64, 1}},
                           {60, 0, 8, 72, 7, 0, 0, {48, 2, 32, 1}, {32, 3, 16, 2}}};
static const uint32_t token_counts[] = {1, 7, 8, 20, 60};
#endif

typedef struct memory {
    moe m; /* but what depends on the number of tokens */
    void *blocks[32];
    uint32_t n_blocks;
    float *scores, *out; /* of the check */
    moe_bf16 *h;
    uint64_t *stamps;
} memory;

static void *memory_of(memory *all, size_t bytes)
{
    void *block = NULL;
    CHECKED(fleet_device_alloc(&block, bytes));
    CHECKED(fleet_device_clear(block, bytes, 0));
    return all->blocks[all->n_blocks++] = block;
}

static void launch_plainly(fleet_kernel kernel, void **args)
{
    fleet_kernel_desc d = fleet_kernel_desc_default();
    d.blocks = MOE_TENSOR_CORES ? 4096 : 4;
    d.threads = 256;
    CHECKED(fleet_kernel_launch(kernel, args, &d));
    CHECKED(fleet_stream_wait(0));
}

static const moe_bf16 *random_values(memory *all, size_t n, float scale)
{
    moe_bf16 *to = (moe_bf16 *)memory_of(all, n * sizeof *to);
    uint32_t count = (uint32_t)n, seed = all->n_blocks * 0x2545f491u;
    void *args[4];
    args[0] = &to, args[1] = &count, args[2] = &seed, args[3] = &scale;
    launch_plainly(FLEET_KERNEL_OF(fill), args);
    return to;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}
static uint32_t cut_up(uint32_t n, uint32_t by)
{
    return (n + by - 1) / by;
}

/* Each expert may leave one tile partial, and has no more rows than there are tokens. */
static uint32_t most_tiles(uint32_t tokens, uint32_t tile_rows)
{
    const uint32_t pairs = tokens * layer.k, busy = least(layer.experts, pairs);
    return least(busy * cut_up(tokens, tile_rows), busy + (pairs - busy) / tile_rows);
}

static void allocate(memory *all)
{
    const size_t pairs = (size_t)layer.most_tokens * layer.k;
    const size_t weights = (size_t)layer.experts * layer.ffn * layer.hidden;
    moe *m = &all->m;
    memset(all, 0, sizeof *all);
    m->experts = layer.experts, m->k = layer.k, m->hidden = layer.hidden, m->ffn = layer.ffn;
    m->x = random_values(all, (size_t)layer.most_tokens * layer.hidden, 1);
    m->router = random_values(all, (size_t)layer.experts * layer.hidden, 0.05f);
    m->gate_up = random_values(all, 2 * weights, 0.05f);
    m->down = random_values(all, weights, 0.05f);
    m->scores = (float *)memory_of(all, (size_t)layer.most_tokens * layer.experts * sizeof(float));
    m->topk = (int32_t *)memory_of(all, pairs * sizeof(int32_t));
    m->weight = (float *)memory_of(all, pairs * sizeof(float));
    m->rank = (int32_t *)memory_of(all, pairs * sizeof(int32_t));
    m->before = (int32_t *)memory_of(all, pairs * layer.experts * sizeof(int32_t));
    m->first = (int32_t *)memory_of(all, layer.experts * sizeof(int32_t));
    m->indptr = (int32_t *)memory_of(all, 2 * sizeof(int32_t));
    m->nowhere = (int32_t *)memory_of(all, layer.most_tokens * sizeof(int32_t));
    m->taken = (uint32_t *)memory_of(all, 2 * sizeof(uint32_t));
    m->tile = (moe_tile *)memory_of(all, (layer.experts + pairs) * sizeof(moe_tile));
    m->slot = (int32_t *)memory_of(all, pairs * sizeof(int32_t));
    m->token_of = (int32_t *)memory_of(all, pairs * sizeof(int32_t));
    m->h = (moe_bf16 *)memory_of(all, pairs * layer.ffn * sizeof(moe_bf16));
    m->y = (moe_bf16 *)memory_of(all, pairs * layer.hidden * sizeof(moe_bf16));
    m->out = (moe_bf16 *)memory_of(all, (size_t)layer.most_tokens * layer.hidden * 2);
    all->scores = (float *)memory_of(all, (size_t)layer.most_tokens * layer.experts * 4);
    all->out = (float *)memory_of(all, (size_t)layer.most_tokens * layer.hidden * 4);
    all->h = (moe_bf16 *)memory_of(all, pairs * layer.ffn * sizeof(moe_bf16));
    all->stamps = (uint64_t *)memory_of(all, (size_t)16 * 65536);
}

static void release(memory *all)
{
    while (all->n_blocks) fleet_device_free(all->blocks[--all->n_blocks]);
}

#if MOE_TENSOR_CORES
/* bf16 with 128-byte swizzle, 64 elements of the innermost axis in a box. */
static CUtensorMap map_of(const void *base, uint32_t rank, const uint64_t *extent,
                          const uint32_t *box)
{
    typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                  const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                  const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                  CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    static encode_fn encode = NULL;
    CUtensorMap map;
    cuuint64_t extents[5], strides[4], bytes = 2;
    cuuint32_t boxes[5], ones[5];
    if (!encode) {
        cudaDriverEntryPointQueryResult found;
        void *entry = NULL;
        if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                             cudaEnableDefault, &found) ||
            found != cudaDriverEntryPointSuccess) {
            fprintf(stderr, "the driver has no cuTensorMapEncodeTiled\n");
            exit(1);
        }
        encode = (encode_fn)entry;
    }
    for (uint32_t i = 0; i < rank; i++) {
        extents[i] = extent[2 * i], boxes[i] = box[i], ones[i] = 1;
        if (i) strides[i - 1] = extent[2 * i + 1] * bytes;
    }
    if (encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, (void *)(uintptr_t)base, extents,
               strides, boxes, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)) {
        fprintf(stderr, "no tensor map of this shape\n");
        exit(1);
    }
    return map;
}

/* Extents come in pairs: how many, and how many elements apart. */
static void map_all(moe *m)
{
    const uint64_t hidden = m->hidden, ffn = m->ffn, experts = m->experts;
    const uint64_t router[] = {hidden,           1, experts,          hidden, 1,
                               experts * hidden, 1, experts * hidden, 1,      experts * hidden};
    const uint64_t gate_up[] = {hidden,       1,       8,          hidden,  2,
                                ffn * hidden, ffn / 8, 8 * hidden, experts, 2 * ffn * hidden};
    const uint64_t down[] = {ffn,     1,
                             hidden,  ffn,
                             experts, hidden * ffn,
                             1,       experts * hidden * ffn,
                             1,       experts * hidden * ffn};
    const uint64_t x[] = {hidden, 1, m->tokens, hidden};
    const uint64_t h[] = {ffn, 1, (uint64_t)m->tokens * m->k, ffn};
    const uint32_t router_box[] = {64, MOE_MOST_EXPERTS, 1, 1, 1};
    const uint32_t gate_up_box[] = {64, 8, 2, m->up_rows / 16, 1};
    const uint32_t down_box[] = {64, m->down_rows, 1, 1, 1};
    const uint32_t box8[] = {64, 8}, box32[] = {64, 32};
    m->maps.router = map_of(m->router, 5, router, router_box);
    m->maps.gate_up = map_of(m->gate_up, 5, gate_up, gate_up_box);
    m->maps.down = map_of(m->down, 5, down, down_box);
    m->maps.x8 = map_of(m->x, 2, x, box8);
    m->maps.h8 = map_of(m->h, 2, h, box8);
    m->maps.h32 = map_of(m->h, 2, h, box32);
}
#endif

static const cut *cut_of(uint32_t tokens)
{
    const cut *c = cuts;
    while (c->tokens < tokens && c < cuts + sizeof cuts / sizeof *cuts - 1) c++;
    return c;
}

static moe layer_of(const memory *all, uint32_t tokens, uint32_t shares)
{
    moe m = all->m;
    const cut *c = cut_of(tokens);
    const grain *g = shares ? &c->shares : &c->tiles;
    m.tokens = tokens, m.shares = shares, m.dealt = c->dealt;
    m.block = c->block, m.parts = c->parts, m.tile_rows = c->tile_rows, m.combined = c->combined;
    m.most_tiles = most_tiles(tokens, c->tile_rows);
    m.up_rows = g->up_rows, m.up_runs = g->up_runs;
    m.down_rows = g->down_rows, m.down_runs = g->down_runs;
    m.stages = c->stages, m.once = tokens <= 1024;
#if MOE_TENSOR_CORES
    map_all(&m);
#endif
    return m;
}

/* ---- plans ---- */

typedef struct schedule_of {
    const char *name;
    fleet_schedule schedule;
    uint32_t unfused;
    uint32_t
        ranges; /* a run-time tensor tells the plan which tiles there are, not only the tiles themselves */
    uint32_t
        shares; /* each worker has a share of all tiles: no task is absent, but all of down waits for all of gate_up */
} schedule_of;
static const schedule_of schedules[] = {{"unfused", FLEET_SCHEDULE_STATIC, 1, 0, 0},
                                        {"STATIC", FLEET_SCHEDULE_STATIC, 0, 0, 0},
                                        {"STATIC, shares", FLEET_SCHEDULE_STATIC, 0, 0, 1},
                                        {"STATIC, ranges", FLEET_SCHEDULE_STATIC, 0, 1, 0},
                                        {"DYNAMIC", FLEET_SCHEDULE_DYNAMIC, 0, 0, 0},
                                        {"DYNAMIC, ranges", FLEET_SCHEDULE_DYNAMIC, 0, 1, 0},
                                        {"AUTO", FLEET_SCHEDULE_AUTO, 0, 0, 0}};
#define SCHEDULES (sizeof schedules / sizeof *schedules)

#define MOST_GRIDS 6

/* What AUTO is told: how long the tiles of each grid take. */
typedef struct told {
    uint64_t mean_ns[MOST_GRIDS];
    uint32_t variation_percent[MOST_GRIDS], ran[MOST_GRIDS];
} told;

typedef struct planned {
    moe m;
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_launch_desc launch;
    fleet_topology topology;
    tile_set set;
    uint32_t n_grids, workers;
    const char *grid[MOST_GRIDS];
    uint32_t tasks[MOST_GRIDS];
    const told *known;
} planned;

static fleet_grid add_grid(planned *p, fleet_graph *g, const char *name, uint32_t tile, uint32_t a,
                           uint32_t b)
{
    const uint32_t i = p->n_grids++;
    fleet_shape shape = fleet_shape1(fleet_dim_of(a));
    fleet_grid grid;
    if (b) shape = fleet_shape_append(shape, fleet_dim_of(b));
    p->grid[i] = name, p->tasks[i] = a * (b ? b : 1);
    grid = fleet_call_device(g, name, tile, shape, 0);
    if (p->known)
        fleet_grid_cost(g, grid, p->known->mean_ns[i], p->known->variation_percent[i],
                        p->known->ran[i]);
    return grid;
}

static fleet_plan *build(planned *p, const schedule_of *s)
{
    const moe *m = &p->m;
    const uint32_t blocks = cut_up(m->tokens, m->block), tiles = m->most_tiles;
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_shape one = fleet_shape1(fleet_dim_of(1));
    fleet_etensor routed = fleet_event_tensor(g, "routed", one, FLEET_COUNT_DERIVED);
    fleet_etensor placed = fleet_event_tensor(g, "placed", one, m->parts ? 1 : blocks);
    fleet_etensor upped = fleet_event_tensor(
        g, "upped", fleet_shape1(fleet_dim_of(m->shares ? 1 : tiles)), FLEET_COUNT_DERIVED);
    fleet_etensor downed = fleet_event_tensor(g, "downed", one, FLEET_COUNT_DERIVED);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan = NULL;
    fleet_grid routing, grouping, placing, ups, downs, combined;
    if (m->parts) {
        routing = add_grid(p, g, "score", p->set.score, blocks, m->parts);
        grouping = placing = add_grid(p, g, "choose", p->set.choose, 1, 0);
        fleet_out_edge(g, routing, routed, "bp->i");
        fleet_in_edge(g, grouping, routed, "i->i");
    } else {
        fleet_etensor grouped = fleet_event_tensor(g, "grouped", one, FLEET_COUNT_DERIVED);
        routing = add_grid(p, g, "route", p->set.route, blocks, 0);
        grouping = add_grid(p, g, "group", p->set.group, 1, 0);
        placing = add_grid(p, g, "place", p->set.place, blocks, 0);
        fleet_out_edge(g, routing, routed, "b->i");
        fleet_in_edge(g, grouping, routed, "i->i");
        fleet_out_edge(g, grouping, grouped, "i->i");
        fleet_in_edge(g, placing, grouped, "b->i");
    }
    ups = add_grid(p, g, "gate_up", p->set.gate_up, m->shares ? m->shares : tiles,
                   m->shares ? 1 : 2 * m->ffn / (m->up_rows * m->up_runs));
    downs = add_grid(p, g, "down", p->set.down, m->shares ? m->shares : tiles,
                     m->shares ? 1 : m->hidden / (m->down_rows * m->down_runs));
    combined = add_grid(p, g, "combine", p->set.combine, cut_up(m->tokens, m->combined), 0);
    if (s->ranges) {
        /* What ranges wait for takes gather edges only: nowhere says that all go to its one element. */
        fleet_tensor indptr =
            fleet_runtime_tensor(g, "indptr", fleet_shape1(fleet_dim_of(2)), grouping);
        fleet_tensor nowhere = fleet_runtime_tensor(
            g, "nowhere", fleet_shape2(fleet_dim_of(m->parts ? 1 : blocks), fleet_dim_of(1)),
            m->parts ? grouping : routing);
        fleet_out_edge_gather(g, placing, placed, nowhere);
        fleet_in_edge_range(g, ups, placed, indptr);
        fleet_in_edge_range(g, downs, placed, indptr);
    } else {
        fleet_out_edge(g, placing, placed, "b->i");
        fleet_in_edge(g, ups, placed, "tc->i");
    }
    fleet_out_edge(g, ups, upped, m->shares ? "sc->i" : "tc->t");
    fleet_in_edge(g, downs, upped, m->shares ? "sc->i" : "tc->t");
    fleet_out_edge(g, downs, downed, "tc->i");
    fleet_in_edge(g, combined, downed, "b->i");
    desc.schedule = s->schedule;
    desc.unfused = s->unfused;
    desc.topology = p->topology;
    if (fleet_plan_build(g, &desc, &plan)) {
        fprintf(stderr, "%s\n", fleet_graph_error(g));
        exit(1);
    }
    fleet_graph_destroy(g);
    return plan;
}

static void enqueue(planned *p, uint32_t steps, fleet_stream stream)
{
    fleet_run run;
    void *args[2];
    p->launch.steps = steps, p->launch.stream = stream;
    CHECKED(fleet_run_prepare(&p->state, &p->launch, &run));
    args[0] = &run, args[1] = &p->m;
    CHECKED(fleet_launch_args(&p->state, &p->launch, &run, p->set.kernel, args));
}
static void finish(planned *p)
{
    const fleet_status status = fleet_state_wait(&p->state, 0);
    char report[2048];
    if (!status) return;
    fleet_state_report(&p->state, report, sizeof report);
    fprintf(stderr, "%u tokens: %s\n%s", p->m.tokens, fleet_status_text(status), report);
    exit(1);
}

/* known: for AUTO, or null. */
static void prepare(planned *p, const memory *all, uint32_t tokens, const schedule_of *s,
                    const told *known)
{
    memset(p, 0, sizeof *p);
    p->known = known;
    CHECKED(fleet_topology_query(&p->topology));
    for (uint32_t i = 0; i < p->topology.chiplets; i++) p->workers += p->topology.units[i];
    p->m = layer_of(all, tokens, s->shares ? p->workers : 0);
    p->set = set_of(p->m.parts, p->m.tile_rows);
    p->plan = build(p, s);
    p->launch = fleet_launch_desc_default();
    p->launch.threads = MOE_THREADS;
    p->launch.lds_bytes = MOE_LDS_BYTES;
    CHECKED(fleet_upload(&p->image, p->plan, 0));
    CHECKED(fleet_state_create(&p->state, &p->image, NULL, 0));
    if (!s->ranges) return;
    CHECKED(fleet_bind_tensor(&p->state, "indptr", p->m.indptr, 0));
    CHECKED(fleet_bind_tensor(&p->state, "nowhere", p->m.nowhere, 0));
}
static void discard(planned *p)
{
    fleet_state_free(&p->state);
    fleet_image_free(&p->image);
    fleet_plan_free(p->plan);
}

/* ---- checks ---- */

static void wrong(const char *what, uint32_t tokens, const schedule_of *s, double by)
{
    printf("wrong: %u tokens, %s: %s: %g\n", tokens, s->name, what, by);
    exit(1);
}
static void *copy_of(const void *device, size_t bytes)
{
    void *host = malloc(bytes);
    if (!host) exit(1);
    CHECKED(fleet_to_host(host, device, bytes, 0));
    return host;
}

/* The experts that were chosen are the best ones, but for ties within rounding, and their weights are right. */
static void check_routing(const memory *all, const moe *m, const schedule_of *s)
{
    const size_t scored = (size_t)m->tokens * m->experts, pairs = (size_t)m->tokens * m->k;
    moe copy = *m;
    float *to = all->scores, *scores, *weight;
    int32_t *topk;
    void *args[2];
    args[0] = &copy, args[1] = &to;
    launch_plainly(FLEET_KERNEL_OF(plain_scores), args);
    scores = (float *)copy_of(all->scores, scored * sizeof(float));
    weight = (float *)copy_of(m->weight, pairs * sizeof(float));
    topk = (int32_t *)copy_of(m->topk, pairs * sizeof(int32_t));
    for (uint32_t t = 0; t < m->tokens; t++) {
        const float *score = scores + (size_t)t * m->experts;
        double sum = 0, lowest = 1e30;
        uint32_t better = 0;
        for (uint32_t j = 0; j < m->k; j++) {
            const int32_t e = topk[t * m->k + j];
            if (e < 0 || e >= (int32_t)m->experts) wrong("no such expert", m->tokens, s, e);
            for (uint32_t i = 0; i < j; i++)
                if (topk[t * m->k + i] == e) wrong("an expert twice", m->tokens, s, e);
            sum += exp((double)score[e]);
            if ((double)score[e] < lowest) lowest = (double)score[e];
        }
        for (uint32_t e = 0; e < m->experts; e++) better += (double)score[e] > lowest + 1e-4;
        if (better >= m->k) wrong("a better expert was left out, token", m->tokens, s, t);
        for (uint32_t j = 0; j < m->k; j++) {
            const double want = exp((double)score[topk[t * m->k + j]]) / sum;
            const double off = fabs((double)weight[t * m->k + j] - want);
            if (!(off < 1e-4)) wrong("a weight is off by", m->tokens, s, off);
        }
    }
    free(scores);
    free(weight);
    free(topk);
}

/* The plain layer into all->out, with the experts that the last launch chose. */
static void run_plainly(const memory *all, const moe *m)
{
    moe copy = *m;
    moe_bf16 *h = all->h;
    float *out = all->out;
    void *args[3];
    args[0] = &copy, args[1] = &h;
    launch_plainly(FLEET_KERNEL_OF(plain_h), args);
    args[2] = &out;
    launch_plainly(FLEET_KERNEL_OF(plain_out), args);
}

/* h, y and out are rounded to bf16, 2^-9 at most each: the mean error must be below, no error far above. */
static double check_out(const memory *all, const moe *m, const schedule_of *s)
{
    const size_t n = (size_t)m->tokens * m->hidden;
    float *want = (float *)copy_of(all->out, n * sizeof(float));
    moe_bf16 *out = (moe_bf16 *)copy_of(m->out, n * sizeof(moe_bf16));
    double error = 0, norm = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)out[i] << 16;
        const double w = (double)want[i];
        float got;
        double off;
        memcpy(&got, &bits, sizeof got);
        off = (double)got - w;
        error += off * off, norm += w * w;
        if (!(fabs(off) <= most)) most = fabs(off);
    }
    free(want);
    free(out);
    if (!(norm > 0)) wrong("the reference is zero", m->tokens, s, norm);
    if (!(sqrt(error / norm) < 4e-3))
        wrong("the result is off by", m->tokens, s, sqrt(error / norm));
    if (!(most < 0.05 * sqrt(norm / (double)n)))
        wrong("a value is off by", m->tokens, s, most / sqrt(norm / (double)n));
    return sqrt(error / norm);
}

/* Runs twice, so that a second epoch is seen too. What the launches leave is cleared before. */
static void check(planned *p, const memory *all, const schedule_of *s, int32_t **chosen)
{
    const moe *m = &p->m;
    const size_t pairs = (size_t)m->tokens * m->k;
    int32_t *topk;
    double error = 0;
    for (uint32_t i = 0; i < 2; i++) {
        CHECKED(fleet_device_clear(m->out, (size_t)m->tokens * m->hidden * sizeof(moe_bf16), 0));
        CHECKED(fleet_device_clear(m->y, pairs * m->hidden * sizeof(moe_bf16), 0));
        CHECKED(fleet_device_clear(m->h, pairs * m->ffn * sizeof(moe_bf16), 0));
        enqueue(p, 1, 0);
        finish(p);
        topk = (int32_t *)copy_of(m->topk, pairs * sizeof(int32_t));
        if (!*chosen) {
            check_routing(all, m, s);
            run_plainly(all, m);
            *chosen = (int32_t *)malloc(pairs * sizeof(int32_t));
            if (!*chosen) exit(1);
            memcpy(*chosen, topk, pairs * sizeof(int32_t));
        }
        if (memcmp(*chosen, topk, pairs * sizeof(int32_t)) != 0)
            wrong("another choice than before", m->tokens, s, i);
        free(topk);
        error = check_out(all, m, s);
    }
    printf("%u tokens, %s: right, off by %.1e of the norm\n", m->tokens, s->name, error);
}

/* ---- times ---- */

#if !defined(FLEET_HOST)
static void run_steps(uint32_t n, void *context)
{
    enqueue((planned *)context, n, 0);
}

/* One launch, captured into a graph, between two events: the median of 40 replays. */
static double graph_us(planned *p)
{
    enum { REPLAYS = 40 };
    double us[REPLAYS];
    FLEETI_RT(Stream_t) stream;
    FLEETI_RT(Event_t) from, to;
    FLEETI_RT(Graph_t) graph;
    FLEETI_RT(GraphExec_t) exec;
    FLEETI_RT(StreamCreateWithFlags)(&stream, FLEETI_RT(StreamNonBlocking));
    FLEETI_RT(EventCreate)(&from);
    FLEETI_RT(EventCreate)(&to);
    FLEETI_RT(StreamBeginCapture)(stream, FLEETI_RT(StreamCaptureModeRelaxed));
    enqueue(p, 1, stream);
    FLEETI_RT(StreamEndCapture)(stream, &graph);
    if (FLEETI_RT(GraphInstantiateWithFlags)(&exec, graph, 0)) {
        fprintf(stderr, "no graph of this launch\n");
        exit(1);
    }
    for (int i = -5; i < REPLAYS; i++) {
        float ms = 0;
        FLEETI_RT(EventRecord)(from, stream);
        FLEETI_RT(GraphLaunch)(exec, stream);
        FLEETI_RT(EventRecord)(to, stream);
        FLEETI_RT(EventSynchronize)(to);
        FLEETI_RT(EventElapsedTime)(&ms, from, to);
        if (i >= 0) us[i] = (double)ms * 1e3;
    }
    finish(p);
    FLEETI_RT(GraphExecDestroy)(exec);
    FLEETI_RT(GraphDestroy)(graph);
    FLEETI_RT(EventDestroy)(from);
    FLEETI_RT(EventDestroy)(to);
    FLEETI_RT(StreamDestroy)(stream);
    qsort(us, REPLAYS, sizeof us[0], by_value);
    return (us[REPLAYS / 2 - 1] + us[REPLAYS / 2]) / 2;
}

/* When each grid's first tile begins and its last ends, and how long its tiles take. */
typedef struct grid_time {
    uint32_t ran;
    uint64_t from, to, busy, longest;
    double squares;
} grid_time;
static void time_grids(planned *p, const memory *all, grid_time *times)
{
    uint32_t n = 0, task = 0;
    uint64_t begun = UINT64_MAX, *stamps;
    for (uint32_t i = 0; i < p->n_grids; i++) n += p->tasks[i];
    p->m.stamps = all->stamps;
    CHECKED(fleet_device_clear(all->stamps, (size_t)16 * n, 0));
    enqueue(p, 1, 0);
    finish(p);
    p->m.stamps = NULL;
    stamps = (uint64_t *)copy_of(all->stamps, (size_t)16 * n);
    for (uint32_t i = 0; i < n; i++)
        if (stamps[2 * i] && stamps[2 * i] < begun) begun = stamps[2 * i];
    for (uint32_t i = 0; i < p->n_grids; i++) {
        grid_time *t = &times[i];
        memset(t, 0, sizeof *t);
        t->from = UINT64_MAX;
        for (const uint32_t end = task + p->tasks[i]; task < end; task++) {
            const uint64_t a = stamps[2 * task], b = stamps[2 * task + 1];
            if (!a) continue;
            t->ran++, t->busy += b - a;
            t->squares += (double)(b - a) * (double)(b - a);
            if (b - a > t->longest) t->longest = b - a;
            if (a - begun < t->from) t->from = a - begun;
            if (b - begun > t->to) t->to = b - begun;
        }
    }
    free(stamps);
}

static void print_grids(planned *p, const memory *all)
{
    grid_time times[MOST_GRIDS];
    time_grids(p, all, times);
    for (uint32_t i = 0; i < p->n_grids; i++) {
        const grid_time *t = &times[i];
        printf("    %-8s %5u of %5u tasks, from %8.1f to %8.1f us, a worker is busy for %8.1f us, "
               "a task for %6.1f, at most %6.1f\n",
               p->grid[i], t->ran, p->tasks[i], (double)t->from / 1e3, (double)t->to / 1e3,
               (double)t->busy / 1e3 / p->workers, t->ran ? (double)t->busy / 1e3 / t->ran : 0,
               (double)t->longest / 1e3);
    }
}

/* For AUTO: by a run of the STATIC plan. */
static void learn(planned *p, const memory *all, told *known)
{
    grid_time times[MOST_GRIDS];
    time_grids(p, all, times);
    for (uint32_t i = 0; i < p->n_grids; i++) {
        const double n = times[i].ran ? times[i].ran : 1, mean = (double)times[i].busy / n;
        const double variance = times[i].squares / n - mean * mean;
        known->ran[i] = times[i].ran;
        known->mean_ns[i] = (uint64_t)mean;
        known->variation_percent[i] =
            mean > 0 && variance > 0 ? (uint32_t)(100 * sqrt(variance) / mean) : 0;
    }
}

/* PyTorch's torch._grouped_mm for the same layer, in one CUDA graph on an H200: the time between two events around one
   replay, the median of 40. */
static double torch_us(uint32_t tokens)
{
    static const double us[][2] = {{1, 107},   {8, 252},    {32, 504},
                                   {128, 537}, {1024, 690}, {4096, 1157}};
    for (uint32_t i = 0; i < sizeof us / sizeof us[0]; i++)
        if (us[i][0] == tokens) return us[i][1];
    return 0;
}

/* A launch whose one task does nothing: what is in every launch. */
static double launch_alone_us(const memory *all)
{
    static planned p;
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_plan_desc desc = fleet_plan_desc_default();
    double us;
    memset(&p, 0, sizeof p);
    p.m = layer_of(all, 1, 0);
    p.m.tokens = 0;
    p.set = set_of(1, 0);
    fleet_call_device(g, "combine", p.set.combine, fleet_shape0(), 0);
    CHECKED(fleet_topology_query(&desc.topology));
    CHECKED(fleet_plan_build(g, &desc, &p.plan));
    p.launch = fleet_launch_desc_default();
    p.launch.threads = MOE_THREADS;
    p.launch.lds_bytes = MOE_LDS_BYTES;
    CHECKED(fleet_upload(&p.image, p.plan, 0));
    CHECKED(fleet_state_create(&p.state, &p.image, NULL, 0));
    us = graph_us(&p);
    discard(&p);
    fleet_graph_destroy(g);
    return us;
}

/* What AUTO says for itself. */
static void print_choice(const fleet_plan *plan)
{
    static char report[65536];
    fleet_plan_report(plan, report, sizeof report);
    for (char *at = strstr(report, "schedule: "), *end; at; at = strstr(end, "schedule: ")) {
        end = strchr(at, '\n');
        if (!end) return;
        printf("    %.*s\n", (int)(end - at), at);
    }
}

static void time_all(planned *plans, const uint32_t *wanted, const memory *all, uint32_t tokens)
{
    double step[SCHEDULES], whole[SCHEDULES], fixed = 0, popped = 0;
    uint32_t best = SCHEDULES;
    char name[80];
    /* There and back, the smaller one: a GPU that gets warm is slower for the last one. */
    for (uint32_t round = 0; round < 2 * SCHEDULES; round++) {
        const uint32_t back = round >= SCHEDULES;
        const uint32_t i = (uint32_t)(back ? 2 * SCHEDULES - 1 - round : round);
        double us[2];
        if (!wanted[i]) continue;
        us[0] = per_unit_us(run_steps, tokens > 1024 ? 3 : 10, &plans[i]);
        finish(&plans[i]);
        us[1] = graph_us(&plans[i]);
        if (!back || us[0] < step[i]) step[i] = us[0];
        if (!back || us[1] < whole[i]) whole[i] = us[1];
    }
    for (uint32_t i = 0; i < SCHEDULES; i++)
        if (wanted[i] && !schedules[i].unfused && (best == SCHEDULES || whole[i] < whole[best]))
            best = i;
    for (uint32_t i = 0; i < SCHEDULES; i++) {
        if (!wanted[i]) continue;
        snprintf(name, sizeof name, "%u tokens, %s, a step of many", tokens, schedules[i].name);
        line(name, step[i], "us", i && wanted[0] ? "unfused" : "", i && wanted[0] ? step[0] : 0);
        line("  the same, one launch in a graph", whole[i], "us", i && wanted[0] ? "unfused" : "",
             i && wanted[0] ? whole[0] : 0);
    }
    for (uint32_t i = 0; i < SCHEDULES; i++) {
        if (!wanted[i] || schedules[i].ranges || schedules[i].shares) continue;
        if (schedules[i].schedule == FLEET_SCHEDULE_STATIC && !schedules[i].unfused)
            fixed = step[i];
        if (schedules[i].schedule == FLEET_SCHEDULE_DYNAMIC) popped = step[i];
        if (schedules[i].schedule != FLEET_SCHEDULE_AUTO || !(fixed > 0 && popped > 0)) continue;
        snprintf(name, sizeof name, "%u tokens, AUTO, a step of many", tokens);
        line(name, step[i], "us", "STATIC or DYNAMIC, the better", fixed < popped ? fixed : popped);
        print_choice(plans[i].plan);
    }
    for (uint32_t i = 0; i < SCHEDULES; i++) {
        if (!wanted[i] || !(schedules[i].unfused || i == best)) continue;
        snprintf(name, sizeof name, "%u tokens, %s, one launch in a graph", tokens,
                 schedules[i].name);
        line(name, whole[i], "us", MOE_TENSOR_CORES ? "torch._grouped_mm in a graph" : "",
             MOE_TENSOR_CORES ? torch_us(tokens) : 0);
        print_grids(&plans[i], all);
    }
}
#endif

int main(int argc, char **argv)
{
    uint32_t only = 0, wanted[SCHEDULES];
    const char *schedule = NULL;
    memory all;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--tokens") == 0) only = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--schedule") == 0) schedule = argv[i + 1];
    }
    for (uint32_t i = 0; i < SCHEDULES; i++)
        wanted[i] = !schedule || strcmp(schedule, schedules[i].name) == 0;
    allocate(&all);
#if !defined(FLEET_HOST)
    line("launch with one empty task, in a graph", launch_alone_us(&all), "us", "", 0);
#endif
    for (uint32_t i = 0; i < sizeof token_counts / sizeof token_counts[0]; i++) {
        planned plans[SCHEDULES];
        told known;
        int32_t *chosen = NULL;
        memset(&known, 0, sizeof known);
        if (only && token_counts[i] != only) continue;
        for (uint32_t j = 0; j < SCHEDULES; j++) {
            if (!wanted[j]) continue;
            prepare(&plans[j], &all, token_counts[i], &schedules[j],
                    schedules[j].schedule == FLEET_SCHEDULE_AUTO ? &known : NULL);
            check(&plans[j], &all, &schedules[j], &chosen);
#if !defined(FLEET_HOST)
            if (strcmp(schedules[j].name, "STATIC") == 0) learn(&plans[j], &all, &known);
#endif
        }
#if !defined(FLEET_HOST)
        time_all(plans, wanted, &all, token_counts[i]);
#endif
        for (uint32_t j = 0; j < SCHEDULES; j++)
            if (wanted[j]) discard(&plans[j]);
        free(chosen);
    }
    release(&all);
    return 0;
}
