// run: asan whole
// run: tsan whole
/* Runs the tasks for NVIDIA GPUs of examples/qwen3 (tasks/linear.h, nvidia/) on the CPU, each lane of a workgroup by itself
   (lanes.h). Lanes meet where an instruction of the warp makes them meet, and exchange their operands there (mma.h). Loads
   from global memory may touch only what the kernel was given. Stages of the weight pipeline hold numbers from when they are
   filled until they are released, and NaN otherwise and after the last weight. Addresses in LDS count from the beginning of
   the workgroup's; the stages follow.

   Products are of small whole numbers and must be exact; attention is compared with one in double precision. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "implementation.h"
#include "examples/parts/fleet_server.h"
#include "lanes.h"
#include "mma.h"
#include "test.h"

#include <pthread.h>
#include <stdlib.h>

/* The kit's scheduler, as a kernel of one wave: a boundary, or before a layer other than 0 whether rows stop. */
typedef struct decision {
    fleet_table *table;
    uint32_t pool, step, layer, word;
    uint64_t now;
} decision;
FLEET_GLOBAL(1) void decide_kernel(decision *o)
{
    o->word = o->layer ? fleet_server_layer(o->table, o->pool, o->step, o->layer, o->now)
                       : fleet_server_boundary(o->table, o->pool, o->step + 1, o->now);
}
FLEET_THUNK1(decide_kernel, decision *)
static fleet_status decide(decision *o)
{
    fleet_kernel_desc k = fleet_kernel_desc_default();
    void *args[1];
    args[0] = &o;
    k.blocks = k.threads = 1;
    k.host.engine = FLEET_ENGINE_THREADS;
    return fleet_kernel_launch(FLEET_KERNEL_OF(decide_kernel), args, &k);
}

/* From here on the headers see an NVIDIA GPU. */
#undef FLEET_HOST
#define FLEET_CUDA 1
#define FLEET_IPC 1 /* the decoder of several ranks; where summands are null there is one */
#define __expf expf
#define __fdividef(a, b) ((a) / (b))
#include "examples/qwen3/decoder.h"

/* ThreadSanitizer is slow: it runs a part of the cases. */
static int is_part(void)
{
    return getenv("FLEET_TEST_PART") != NULL;
}
/* Whether this run has case i of those that go by turns; the part has each n-th, from `first`
   on. */
static int has_case(uint32_t i, uint32_t first, uint32_t n)
{
    return is_part() ? i % n == first : test_in_turn(i);
}

/* ---- the workgroup ---- */

/* The first error of any lane. */
static char complaint[200];
static pthread_mutex_t complaining = PTHREAD_MUTEX_INITIALIZER;

static void complain(const char *what, uint32_t number)
{
    pthread_mutex_lock(&complaining);
    if (!complaint[0]) snprintf(complaint, sizeof complaint, "%s (%u)", what, number);
    pthread_mutex_unlock(&complaining);
}

/* Where all lanes of a warp meet. */
typedef enum meeting {
    MULTIPLY_BF16,
    MULTIPLY_F16,
    SHUFFLE,
    TURN_OVER,
    WARP_BARRIER,
    UNIFORM,
    ANY,
    PRODUCTS,
    VALUES,
    NEXT_PIECE
} meeting;

/* What a lane brings there. */
typedef struct brought {
    meeting at;
    uint32_t word;
    float value;
} brought;

typedef struct warp {
    meeting_point meet;
    /* Two sets: a lane reaches the next meeting but one only after all have read this one. */
    brought lane[2][LANES];
    lane_elements elements[2][LANES];
    const uint32_t *words[LANES]; /* operand A of a wgmma */
} warp;

#define LDS_ROOM 262144u /* the workgroup's LDS before the stages */
#define MAX_WARPS 8u     /* of a workgroup */
#define MAX_GROUPS_RUNNING 4u

/* An mbarrier. */
typedef struct lds_count {
    int32_t all, left, bytes; /* left: arrivals; bytes: in flight */
    uint32_t phase, is_open;
} lds_count;

typedef struct workgroup {
    warp warps[MAX_WARPS];
    meeting_point block, multipliers, warpgroups[2];
    uint32_t turns_passed[2]; /* to each warpgroup, by threads of the other one */
    uint32_t any[2], meetings;
    char *lds; /* LDS_ROOM, then the stages */
    lds_count counts[LDS_ROOM / 8];
    struct stream *stream;
} workgroup;

static workgroup groups_running[MAX_GROUPS_RUNNING];
#define MAX_COPIES 64u
typedef void (*lane_function)(const fleet_ctx *ctx, void *args);
typedef struct lane_state {
    runner runner;
    fleet_ctx ctx;
    workgroup *group;
    uint32_t thread, meetings, votes, turns;
    uint32_t copying; /* to LDS, until they are awaited */
    struct {
        uint32_t to;
        const void *from;
    } copies[MAX_COPIES];
    lane_function function;
    void *args;
} lane_state;

#if defined(__SANITIZE_THREAD__)
static __thread lane_state *my;
#else
#define my ((lane_state *)running->of)
#endif

static uint32_t emulated_wave_size(void)
{
    return LANES;
}
static uint32_t emulated_lane(void)
{
    return my->thread % LANES;
}
static uint32_t emulated_wave_id(void)
{
    return my->thread / LANES;
}
static void emulated_barrier(const fleet_ctx *ctx)
{
    (void)ctx;
    point_wait(&my->group->block);
}

/* Returns what all lanes brought to this meeting; valid until the next meeting but one. */
static const brought *meet(meeting at, uint32_t word, float value)
{
    warp *w = &my->group->warps[emulated_wave_id()];
    brought *lane = w->lane[my->meetings++ % 2];
    brought *mine = &lane[emulated_lane()];
    mine->at = at, mine->word = word, mine->value = value;
    point_wait(&w->meet);
    for (uint32_t i = 0; i < LANES; i++)
        if (lane[i].at != at) complain("lanes of a warp are at different instructions", i);
    return lane;
}
static void meet_and_multiply(meeting at, float *sum, lane_elements mine)
{
    lane_elements *elements = my->group->warps[emulated_wave_id()].elements[my->meetings % 2];
    elements[emulated_lane()] = mine;
    meet(at, 0, 0);
    mma(sum, elements, emulated_lane());
}
static void emulated_wave_barrier(void)
{
    meet(WARP_BARRIER, 0, 0);
}

static void run_lane(void *of)
{
    lane_state *l = (lane_state *)of;
#if defined(__SANITIZE_THREAD__)
    my = l;
#endif
    l->function(&l->ctx, l->args);
}

static uint32_t lds_bytes(void); /* of the backend */
static struct stream *stream_of(uint32_t group);
static size_t slots_size(void);

/* The LDS of a workgroup, with its stages. */
static char *lds_of(uint32_t group)
{
    workgroup *g = &groups_running[group];
    if (!g->lds) g->lds = (char *)aligned_alloc(1024, LDS_ROOM + slots_size());
    if (!g->lds) abort();
    return g->lds;
}

/* Which worker a workgroup is, of how many, on which chiplet. */
static uint32_t chiplets = 1;
static uint32_t step; /* only grows, like the epoch */
static void set_worker(fleet_ctx *ctx, uint32_t number, uint32_t workers)
{
    ctx->slice = number % chiplets, ctx->slices = chiplets;
    ctx->tile_index = number / chiplets;
    ctx->tile_num = ceil_div(workers - ctx->slice, chiplets);
}

static uint32_t threads_of_group = THREADS;

/* Runs some workgroups at a time, from number `first` on. Their LDS holds NaN at first. They share
   args. */
static void launch(lane_function function, void *args, uint32_t first, uint32_t groups,
                   uint32_t workers)
{
    static lane_state lanes[MAX_GROUPS_RUNNING][MAX_WARPS * LANES];
    static runner *runners[MAX_GROUPS_RUNNING * MAX_WARPS * LANES];
    const uint32_t threads = threads_of_group;
    memset(lanes, 0, sizeof lanes);
    for (uint32_t n = 0; n < groups; n++) {
        workgroup *g = &groups_running[n];
        char *lds = lds_of(n);
        memset(lds, 0xff, LDS_ROOM);
        memset(g->warps, 0, sizeof g->warps);
        memset(g->counts, 0, sizeof g->counts);
        memset(g->any, 0, sizeof g->any);
        memset(g->turns_passed, 0, sizeof g->turns_passed);
        g->stream = stream_of(n);
        point_open(&g->block, threads);
        point_open(&g->multipliers, 4 * LANES);
        for (uint32_t i = 0; i < 2; i++) point_open(&g->warpgroups[i], 4 * LANES);
        for (uint32_t i = 0; i < MAX_WARPS; i++) point_open(&g->warps[i].meet, LANES);
        for (uint32_t i = 0; i < threads; i++) {
            lane_state *l = &lanes[n][i];
            l->ctx.thread = i, l->ctx.threads = threads;
            set_worker(&l->ctx, first + n, workers);
            l->ctx.group = FLEET_BLOCK, l->ctx.epoch = step;
            l->ctx.lds = lds, l->ctx.lds_bytes = lds_bytes();
            l->group = g, l->function = function, l->args = args;
            l->thread = i;
            l->runner.function = run_lane, l->runner.of = l;
            runners[n * threads + i] = &l->runner;
        }
    }
    run_lanes(runners, groups * threads);
    for (uint32_t n = 0; n < groups; n++) {
        workgroup *g = &groups_running[n];
        for (uint32_t i = 0; i < MAX_WARPS; i++) point_close(&g->warps[i].meet);
        point_close(&g->block);
        point_close(&g->multipliers);
        for (uint32_t i = 0; i < 2; i++) point_close(&g->warpgroups[i]);
        for (uint32_t i = 0; i < LDS_ROOM / 8; i++)
            if (g->counts[i].is_open) complain("a count in LDS is left open", i * 8);
    }
}

/* ---- global memory ---- */

/* Rows of 16-bit values, of which only the marked ones may be read. */
static struct readable {
    const uint16_t *from;
    uint32_t rows, width;
    const uint8_t *marked; /* [rows] */
} may_read;

/* What bulk copies may read beside these. */
static struct copied {
    const uint16_t *from;
    size_t values;
} may_copy;

/* Whether `count` values may be loaded at once: from one row, and aligned. */
static int may_load(const uint16_t *at, uint32_t count)
{
    const struct readable *r = &may_read;
    const uintptr_t offset = ((uintptr_t)at - (uintptr_t)r->from) / 2;
    if ((uintptr_t)at < (uintptr_t)r->from || offset >= (size_t)r->rows * r->width)
        complain("reads what it was not given", count);
    else if (offset % r->width + count > r->width || (uintptr_t)at % (2 * count))
        complain("loads across the end of a row, or not aligned, at value", (uint32_t)offset);
    else if (!r->marked[offset / r->width])
        complain("reads a row that is not its own", (uint32_t)(offset / r->width));
    else
        return 1;
    return 0;
}

/* ---- what nvidia/ptx.h has for a GPU ---- */

#define QWEN3_NVIDIA_PTX_H
#define UNROLLED
#define ROLLED
#define NOINLINE_DEVICE static __attribute__((unused))
#define HAS_WGMMA 1

FLEET_DEVICE uint32_t lds_add(uint32_t *at, uint32_t value)
{
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

FLEET_DEVICE fleet_quad load_quad(const act_t *from)
{
    fleet_quad quad = {{0, 0, 0, 0}};
    if (may_load(from, 8)) memcpy(&quad, from, sizeof quad);
    return quad;
}
/* Finite numbers only; others become NaN. */
static float value_of_f16(uint32_t half)
{
    const uint32_t bits = (half & 0x7fffu) << 13;
    float f;
    memcpy(&f, &bits, sizeof f);
    f = (half & 0x7c00u) == 0x7c00u ? NAN : f * 0x1p112f;
    return half & 0x8000u ? -f : f;
}
static float value_of_bf16(uint32_t half)
{
    return float_of_bf16(half);
}
FLEET_DEVICE void mma_bf16(float *sum, const uint32_t *a, const uint32_t *b)
{
    meet_and_multiply(MULTIPLY_BF16, sum, lane_elements_of(a, b, value_of_bf16));
}
FLEET_DEVICE void mma_f16(float *sum, const uint32_t *a, const uint32_t *b)
{
    meet_and_multiply(MULTIPLY_F16, sum, lane_elements_of(a, b, value_of_f16));
}

/* To the nearest, ties to even; NaN stays NaN. */
FLEET_DEVICE kv_t kv_of_float(float f)
{
    const float size = fminf(fabsf(f), 65504.0f);
    int exponent = 0;
    if (f != f) return 0x7fffu;
    (void)frexpf(size, &exponent); /* size < 2^exponent */
    if (size == 0 || exponent < -13) exponent = -13;
    return (kv_t)((f < 0 ? 0x8000u : 0) + ((uint32_t)(exponent + 13) << 10) +
                  (uint32_t)rintf(ldexpf(size, 11 - exponent)));
}
FLEET_DEVICE uint32_t pack_f16(float lower, float upper)
{
    return kv_of_float(lower) | (uint32_t)kv_of_float(upper) << 16;
}
FLEET_DEVICE float fast_exp2(float x)
{
    return exp2f(x);
}
FLEET_DEVICE uint32_t fast_quotient(uint32_t n, uint32_t d)
{
    return n / d;
}
FLEET_DEVICE fleet_quad load_floats(const float *from)
{
    fleet_quad quad;
    memcpy(&quad, from, sizeof quad);
    return quad;
}
FLEET_DEVICE uint32_t opaque(uint32_t x)
{
    return x;
}
FLEET_DEVICE uint32_t warp_uniform(uint32_t x)
{
    const brought *lanes = meet(UNIFORM, x, 0);
    for (uint32_t i = 0; i < LANES; i++)
        if (lanes[i].word != x) complain("is not the same in all lanes", x);
    return x;
}

/* The producer runs on one thread: it has the words of all lanes. */
typedef struct warp_words {
    uint32_t word[LANES];
} warp_words;
FLEET_DEVICE warp_words load_warp_words(const uint32_t *from, uint32_t n)
{
    warp_words words;
    memset(&words, 0xff, sizeof words);
    memcpy(words.word, from, (n < LANES ? n : LANES) * 4);
    return words;
}
FLEET_DEVICE uint32_t warp_word(warp_words words, uint32_t i)
{
    if (i >= LANES) complain("there is no such lane", i);
    return words.word[i % LANES];
}

FLEET_DEVICE float low_f16(uint32_t pair)
{
    return value_of_f16(pair & 0xffffu);
}
FLEET_DEVICE float high_f16(uint32_t pair)
{
    return value_of_f16(pair >> 16);
}
FLEET_DEVICE float fast_log2(float x)
{
    return log2f(x);
}
FLEET_DEVICE uint32_t any_lane(uint32_t so)
{
    const brought *lanes = meet(ANY, so != 0, 0);
    uint32_t any = 0;
    for (uint32_t i = 0; i < LANES; i++) any |= lanes[i].word;
    return any;
}
/* The kit's flagged data, but a store is sometimes late: the load then finds the previous value. */
#define fleet_store_flagged_device store_flagged
#define fleet_load_flagged_device load_flagged
#define fleet_store_flagged_system store_flagged
#define fleet_load_flagged_system load_flagged
#define fleet_await_flagged await_flagged
static pthread_mutex_t storing = PTHREAD_MUTEX_INITIALIZER;
#define MAX_STORES 4096u
static struct {
    fleet_quad *to, before;
} stores[MAX_STORES];
static uint32_t storing_at, loads_as_one;
FLEET_DEVICE void store_flagged(fleet_quad *to, fleet_quad words)
{
    if ((uintptr_t)to % 16) complain("16 bytes are not aligned", 0);
    pthread_mutex_lock(&storing);
    stores[storing_at % MAX_STORES].to = to, stores[storing_at++ % MAX_STORES].before = *to;
    *to = words;
    pthread_mutex_unlock(&storing);
}
FLEET_DEVICE fleet_quad load_flagged(const fleet_quad *from)
{
    fleet_quad words;
    pthread_mutex_lock(&storing);
    words = *from;
    if (++loads_as_one * 2654435761u >> 21 == 0)
        for (uint32_t i = 0; i < MAX_STORES; i++)
            if (stores[i].to == from) words = stores[i].before;
    pthread_mutex_unlock(&storing);
    return words;
}
FLEET_DEVICE fleet_status await_flagged(const fleet_ctx *ctx, const fleet_quad *from, uint32_t flag,
                                        uint32_t peer, fleet_quad *words)
{
    FLEET_UNUSED(ctx), FLEET_UNUSED(peer);
    for (uint32_t i = 0; i < 100; i++) {
        *words = load_flagged(from);
        if (words->word[3] == flag) return FLEET_OK;
    }
    return FLEET_ERROR_TIMEOUT;
}

/* ---- wgmma, and copies to LDS ---- */

FLEET_DEVICE uint32_t lds_address(const void *at)
{
    return (uint32_t)((const char *)at - my->group->lds);
}
/* A phase ends when all arrivals and all bytes have come. */
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static uint32_t count_change(uint32_t at, int32_t arrivals, int32_t bytes)
{
    lds_count *c = &my->group->counts[at / 8];
    uint32_t phase;
    if (at % 8 || at >= LDS_ROOM) abort();
    pthread_mutex_lock(&counting);
    if (!c->is_open) complain("a count in LDS that is not open", at);
    c->left -= arrivals, c->bytes += bytes;
    if (c->left == 0 && c->bytes == 0) c->phase++, c->left = c->all;
    phase = c->phase;
    pthread_mutex_unlock(&counting);
    return phase;
}
FLEET_DEVICE void mbar_init(uint32_t at, uint32_t count)
{
    lds_count *c = &my->group->counts[at / 8];
    if (c->is_open) complain("a count in LDS is opened twice", at);
    c->all = c->left = (int32_t)count, c->bytes = 0, c->phase = 0, c->is_open = 1;
}
FLEET_DEVICE void mbar_fence_init(void) {}
FLEET_DEVICE void mbar_inval(uint32_t at)
{
    my->group->counts[at / 8].is_open = 0;
}
FLEET_DEVICE void mbar_expect(uint32_t at, uint32_t bytes)
{
    count_change(at, 1, (int32_t)bytes);
}
FLEET_DEVICE void mbar_arrive_if(uint32_t at, uint32_t does)
{
    emulated_wave_barrier();
    if (does && emulated_lane() == 0) count_change(at, 1, 0);
}
FLEET_DEVICE void mbar_wait(uint32_t at, uint32_t use)
{
    while (count_change(at, 0, 0) % 2 == use % 2) lane_yield();
}
FLEET_DEVICE void fence_proxy_async(void) {}
FLEET_DEVICE void copy_bulk(uint32_t to, const act_t *from, uint32_t bytes, uint32_t count)
{
    const struct readable *r = &may_read;
    const int is_row = from >= r->from && from + bytes / 2 <= r->from + (size_t)r->rows * r->width;
    const int is_more =
        from >= may_copy.from && from + bytes / 2 <= may_copy.from + may_copy.values;
    if ((uintptr_t)from % 16 || to % 16 || bytes % 16 || to + bytes > lds_bytes() ||
        !(is_row || is_more))
        complain("copies what it was not given, or to where it may not", bytes);
    else
        memcpy(my->group->lds + to, from, bytes);
    count_change(count, 0, -(int32_t)bytes);
}
/* A copy takes place when it is awaited: a lane remembers the last ones. */
FLEET_DEVICE void copy_async16(uint32_t to, const void *from)
{
    if ((uintptr_t)from % 16 || to % 16 || to + 16 > lds_bytes())
        complain("copies to where it may not, or not aligned", to);
    else if (my->copying == MAX_COPIES)
        abort();
    else
        my->copies[my->copying].to = to, my->copies[my->copying++].from = from;
}
FLEET_DEVICE void copy_async_wait(void)
{
    for (; my->copying; my->copying--)
        memcpy(my->group->lds + my->copies[my->copying - 1].to, my->copies[my->copying - 1].from,
               16);
}
FLEET_DEVICE uint32_t any_consumer(uint32_t so)
{
    uint32_t *any = &my->group->any[my->votes++ % 2], is;
    if (emulated_wave_id() >= 4) complain("is none of the multipliers", emulated_wave_id());
    if (so) __atomic_store_n(any, 1, __ATOMIC_RELAXED);
    point_wait(&my->group->multipliers);
    is = __atomic_load_n(any, __ATOMIC_RELAXED);
    point_wait(&my->group->multipliers);
    __atomic_store_n(any, 0, __ATOMIC_RELAXED);
    return is;
}
FLEET_DEVICE void warpgroup_barrier(uint32_t warpgroup)
{
    if (emulated_wave_id() / 4 != warpgroup) complain("is not of the warpgroup", warpgroup);
    point_wait(&my->group->warpgroups[warpgroup]);
}
FLEET_DEVICE void await_turn(uint32_t warpgroup)
{
    my->turns++;
    while (__atomic_load_n(&my->group->turns_passed[warpgroup], __ATOMIC_ACQUIRE) <
           my->turns * 4 * LANES)
        lane_yield();
}
FLEET_DEVICE void pass_turn(uint32_t warpgroup)
{
    __atomic_fetch_add(&my->group->turns_passed[1 - warpgroup], 1, __ATOMIC_RELEASE);
}
typedef struct wgmma_desc {
    uint32_t at, stride;
} wgmma_desc;
FLEET_DEVICE wgmma_desc wgmma_desc_of(uint32_t at, uint32_t stride)
{
    wgmma_desc o;
    o.at = at, o.stride = stride;
    return o;
}
FLEET_DEVICE void wgmma_fence(void)
{
    meet(PRODUCTS, 0, 0);
}
FLEET_DEVICE void wgmma_commit(void) {}
FLEET_DEVICE void wgmma_wait_all(void)
{
    meet(PRODUCTS, 0, 0);
}
FLEET_DEVICE void wgmma_wait_but_last(void)
{
    meet(PRODUCTS, 0, 0);
}
FLEET_DEVICE wgmma_desc wgmma_desc_of_values(uint32_t at)
{
    return wgmma_desc_of(at, 0);
}
/* Numbers of 16 bits that stand side by side in LDS. */
static void in_lds(void *to, uint32_t at, uint32_t bytes)
{
    memcpy(to, my->group->lds + at, bytes);
}
/* The first ks numbers of a row of an operand. K-major with a swizzle of 64 bytes: bits 4 and 5 of the address, xor bits 7
   and 8, so that eight of them stay together. */
static void of_operand(float *to, wgmma_desc o, uint32_t row, uint32_t ks, float (*value)(uint32_t))
{
    for (uint32_t k = 0; k < ks; k += 8) {
        const uint32_t at = o.at + row / 8 * o.stride + k / 32 * 512 + row % 8 * 64 + k % 32 * 2;
        uint16_t half[8];
        in_lds(half, at ^ (at >> 7 & 3) << 4, sizeof half);
        for (uint32_t i = 0; i < 8; i++) to[k + i] = value(half[i]);
    }
}
/* A column and the next one, at a key. N-major with a swizzle of 128 bytes: bits 4 to 6 of the address, xor bits 7 to 9. */
static uint32_t of_values(wgmma_desc o, uint32_t column, uint32_t key)
{
    const uint32_t at = o.at + key / 16 * 4096 + column / 64 * 2048 + key % 16 / 8 * 1024 +
                        key % 8 * 128 + column % 64 * 2;
    uint32_t pair;
    in_lds(&pair, at ^ (at >> 7 & 7) << 4, sizeof pair);
    return pair;
}
/* A lane has sums of two rows, eight apart: of each eight columns the same two, side by side. */
static uint32_t first_row(void)
{
    return emulated_wave_id() % 4 * 16 + emulated_lane() / 4;
}
static uint32_t column_of(uint32_t i)
{
    return i / 2 * 8 + emulated_lane() % 4 * 2 + i % 2;
}
static float *sum_of(float *d, uint32_t i, uint32_t row)
{
    return &d[i / 2 * 4 + row * 2 + i % 2];
}
/* Rows after these may be arbitrary: their sums become NaN, so that using them is noticed. */
static uint32_t rows_there;
static void multiply_operands(float *d, uint32_t n, wgmma_desc rows, wgmma_desc columns,
                              uint32_t column_ks)
{
    const uint32_t first = first_row();
    float a[2][64], b[64];
    for (uint32_t r = 0; r < 2; r++) of_operand(a[r], rows, first + r * 8, 64, value_of_bf16);
    for (uint32_t i = 0; i < n / 4; i++) {
        of_operand(b, columns, column_of(i), column_ks, value_of_bf16);
        for (uint32_t r = 0; r < 2; r++) {
            float sum = *sum_of(d, i, r);
            for (uint32_t k = 0; k < 64; k++) sum += a[r][k] * b[k % column_ks];
            *sum_of(d, i, r) = first + r * 8 < rows_there ? sum : NAN;
        }
    }
}
static void multiply_k64(float *d, uint32_t n, wgmma_desc rows, wgmma_desc columns)
{
    multiply_operands(d, n, rows, columns, 64);
}
#define MULTIPLY_TERMS(n)                                                                          \
    FLEET_DEVICE void wgmma_m64n##n##k32x2(float *d, wgmma_desc rows, wgmma_desc columns)          \
    {                                                                                              \
        multiply_operands(d, n, rows, columns, 32);                                                \
    }
MULTIPLY_TERMS(64)
MULTIPLY_TERMS(96)
MULTIPLY_TERMS(128)
MULTIPLY_TERMS(192)
MULTIPLY_TERMS(256)
FLEET_DEVICE void wgmma_scores(float *d, wgmma_desc queries, wgmma_desc keys)
{
    float a[2][128], b[128];
    for (uint32_t r = 0; r < 2; r++)
        of_operand(a[r], queries, first_row() + r * 8, 128, value_of_f16);
    for (uint32_t i = 0; i < 32; i++) {
        of_operand(b, keys, column_of(i), 128, value_of_f16);
        for (uint32_t r = 0; r < 2; r++) {
            float sum = 0;
            for (uint32_t k = 0; k < 128; k++) sum += a[r][k] * b[k];
            *sum_of(d, i, r) = sum;
        }
    }
}
/* Operand A as in mma.h: sixteen k's in four words of each lane. */
FLEET_DEVICE void wgmma_values(float *d, const uint32_t *w, wgmma_desc values)
{
    const uint32_t **words = my->group->warps[emulated_wave_id()].words;
    const uint32_t lane = emulated_lane();
    float a[2][128];
    words[lane] = w;
    meet(VALUES, 0, 0);
    for (uint32_t i = 0; i < 256; i++) {
        const uint32_t k = i % 128, *of = words[lane / 4 * 4 + k % 8 / 2];
        const uint32_t word = of[k / 16 * 4 + k % 16 / 8 * 2 + i / 128];
        a[i / 128][k] = value_of_f16(k % 2 ? word >> 16 : word & 0xffffu);
    }
    for (uint32_t i = 0; i < 32; i += 2) {
        float sums[LANE_SUMS];
        memcpy(sums, d + i * 2, sizeof sums);
        for (uint32_t k = 0; k < 128; k++) {
            const uint32_t pair = of_values(values, column_of(i), k);
            const float b[2] = {value_of_f16(pair & 0xffffu), value_of_f16(pair >> 16)};
            for (uint32_t j = 0; j < LANE_SUMS; j++) sums[j] += a[j / 2][k] * b[j % 2];
        }
        memcpy(d + i * 2, sums, sizeof sums);
    }
    meet(VALUES, 0, 0);
}
FLEET_DEVICE void wgmma_wait_sums(float *d)
{
    (void)d;
    meet(PRODUCTS, 0, 0);
}
FLEET_DEVICE void wgmma_wait_weights(const uint32_t *w)
{
    (void)w;
}
FLEET_DEVICE void wgmma_m64n192k64(float *d, wgmma_desc rows, wgmma_desc columns)
{
    multiply_k64(d, 192, rows, columns);
}
FLEET_DEVICE void wgmma_m64n64k64(float *d, wgmma_desc rows, wgmma_desc columns)
{
    multiply_k64(d, 64, rows, columns);
}
FLEET_DEVICE void wgmma_m64n96k64(float *d, wgmma_desc rows, wgmma_desc columns)
{
    multiply_k64(d, 96, rows, columns);
}
FLEET_DEVICE void wgmma_m64n128k64(float *d, wgmma_desc rows, wgmma_desc columns)
{
    multiply_k64(d, 128, rows, columns);
}

FLEET_DEVICE float shuffle_xor(float x, uint32_t bits)
{
    return meet(SHUFFLE, 0, x)[emulated_lane() ^ bits].value;
}
FLEET_DEVICE float shuffle(float x, uint32_t lane)
{
    return meet(SHUFFLE, 0, x)[lane].value;
}
FLEET_DEVICE uint32_t transpose_8x8(uint32_t pair)
{
    const brought *lanes = meet(TURN_OVER, pair, 0);
    const uint32_t row = emulated_lane() / 4, first = emulated_lane() % 4 * 2;
    const uint32_t shift = row % 2 * 16;
    return (lanes[first * 4 + row / 2].word >> shift & 0xffffu) |
           (lanes[(first + 1) * 4 + row / 2].word >> shift & 0xffffu) << 16;
}

/* ---- the weight pipeline ---- */

#define TILES 2u /* panels */
#define MAX_PIECES 256u
#define SHARERS 2u /* warps that share a stage of a product */
#define RING 12u   /* stages */

typedef struct pipeline_stage {
    uint16_t *piece;          /* its contents */
    uint32_t taken, released; /* released: for so many warps */
    uint32_t is_there;
} pipeline_stage;
typedef struct stream {
    uint32_t pieces;      /* of a tile */
    uint32_t panel_tiles; /* stages of a chunk, which belong to a pair of warps; 0: to any warp */
    uint32_t all;         /* stages that are declared */
    uint32_t end;         /* stages that arrive */
    uint32_t slot_bytes;
    pipeline_stage slot[MAX_PIECES];
} stream;
static stream streams[MAX_GROUPS_RUNNING];
static uint32_t declaring; /* number of the workgroup whose declarations run */

static stream *stream_of(uint32_t group)
{
    return &streams[group];
}
static size_t slots_size(void)
{
    return (size_t)RING * 8192;
}
/* Where a stage is in LDS. */
static uint16_t *slot_of(uint32_t group, uint32_t n)
{
    return (uint16_t *)(void *)(lds_of(group) + LDS_ROOM + n % RING * streams[group].slot_bytes);
}
static void streams_clear(uint32_t slot_bytes)
{
    for (uint32_t i = 0; i < MAX_GROUPS_RUNNING; i++)
        for (uint32_t n = 0; n < streams[i].all; n++) free(streams[i].slot[n].piece);
    memset(streams, 0, sizeof streams);
    for (uint32_t i = 0; i < MAX_GROUPS_RUNNING; i++) streams[i].slot_bytes = slot_bytes;
}
/* Declares the next stage. */
static void stream_add(uint32_t group, const void *from, uint32_t bytes)
{
    stream *s = &streams[group];
    pipeline_stage *slot = &s->slot[s->all];
    if (s->all == MAX_PIECES || bytes > s->slot_bytes) abort();
    slot->piece = (uint16_t *)calloc(1, s->slot_bytes);
    if (!slot->piece) abort();
    memcpy(slot->piece, from, bytes);
    s->end = ++s->all;
}

typedef struct emulated_weights {
    uint32_t next;
} emulated_weights;

static emulated_weights emulated_weights_open(const fleet_ctx *ctx)
{
    emulated_weights w;
    (void)ctx;
    w.next = 0;
    return w;
}
/* A stage arrives when its place in the ring is free. */
static pthread_mutex_t fetching = PTHREAD_MUTEX_INITIALIZER;
static void fetch(stream *s, uint32_t n)
{
    pipeline_stage *slot = &s->slot[n];
    for (int is_there = 0; !is_there; lane_yield()) {
        pthread_mutex_lock(&fetching);
        if (!slot->is_there && (n < RING || __atomic_load_n(&s->slot[n - RING].released,
                                                            __ATOMIC_ACQUIRE) == MAX_WAVES)) {
            memcpy(slot_of((uint32_t)(s - streams), n), slot->piece, s->slot_bytes);
            slot->is_there = 1;
        }
        is_there = (int)slot->is_there;
        pthread_mutex_unlock(&fetching);
    }
}
static const void *emulated_weights_next(emulated_weights *w)
{
    const brought *lanes = meet(NEXT_PIECE, w->next, 0);
    stream *s = my->group->stream;
    for (uint32_t i = 0; i < LANES; i++)
        if (lanes[i].word != w->next) complain("lanes take different pieces, this one", w->next);
    if (w->next >= s->all) complain("takes more pieces than there are", w->next);
    if (w->next >= s->end) return NULL;
    if (emulated_lane() == 0) {
        if (s->panel_tiles && w->next % s->pieces / s->panel_tiles % (MAX_WAVES / SHARERS) !=
                                  emulated_wave_id() / SHARERS)
            complain("a warp takes a piece that is not its own", w->next);
        fetch(s, w->next);
        __atomic_fetch_add(&s->slot[w->next].taken, 1, __ATOMIC_RELAXED);
    }
    emulated_wave_barrier();
    return slot_of((uint32_t)(s - streams), w->next++);
}
/* What a task's prefetch comes to, by turns: there is none, stages are there, or they are late. */
static enum { NO_PREFETCH, EARLY_STAGES, LATE_STAGES } prefetches;
static void next_prefetches(void)
{
    prefetches = prefetches == NO_PREFETCH    ? EARLY_STAGES
                 : prefetches == EARLY_STAGES ? LATE_STAGES
                                              : NO_PREFETCH;
}
static uint32_t emulated_weights_try_open(const fleet_ctx *ctx, emulated_weights *w)
{
    *w = emulated_weights_open(ctx);
    return 1;
}
static const void *emulated_weights_try_next(emulated_weights *w)
{
    return prefetches == LATE_STAGES ? NULL : emulated_weights_next(w);
}
static const void *emulated_weights_take(emulated_weights *w, uint32_t n)
{
    const uint32_t next = w->next;
    for (uint32_t i = 0; i < n; i++)
        if (!emulated_weights_next(w)) {
            w->next = next;
            return NULL;
        }
    return slot_of((uint32_t)(my->group->stream - streams), next);
}
static fleet_status emulated_weights_status(const emulated_weights *w)
{
    (void)w;
    return FLEET_ERROR_TIMEOUT;
}
static fleet_status emulated_weights_pause(const emulated_weights *w, uint32_t *tries,
                                           uint64_t *since)
{
    (void)w, (void)tries, (void)since;
    lane_yield();
    return FLEET_OK;
}
static void emulated_weights_skip(emulated_weights *w, uint32_t n)
{
    w->next += n;
}
static uint32_t emulated_weights_slot(const emulated_weights *w)
{
    return w->next % RING;
}
/* The next stage may take the place at once when it has been released for all warps. */
static void emulated_weights_release(const emulated_weights *w, uint32_t sharers)
{
    stream *s = my->group->stream;
    pipeline_stage *slot = &s->slot[w->next - 1];
    emulated_wave_barrier();
    if (emulated_lane() != 0) return;
    if (s->panel_tiles && sharers != SHARERS)
        complain("a warp releases a piece as one of so many", sharers);
    if (MAX_WAVES % sharers) complain("a number of warps that does not divide theirs", sharers);
    if (__atomic_load_n(&slot->released, __ATOMIC_ACQUIRE) + MAX_WAVES / sharers == MAX_WAVES)
        memset(slot_of((uint32_t)(s - streams), w->next - 1), 0xff, s->slot_bytes);
    __atomic_fetch_add(&slot->released, MAX_WAVES / sharers, __ATOMIC_ACQ_REL);
}
static void emulated_weights_give_back(const emulated_weights *w, uint32_t n, uint32_t sharers)
{
    emulated_weights back = *w;
    for (; n; n--, back.next--) emulated_weights_release(&back, sharers);
}
static void emulated_span(fleet_producer *producer, const void *at, uint32_t bytes)
{
    (void)producer;
    if ((uintptr_t)at % 16 || bytes % 16) complain("a span is not aligned", bytes);
    for (uint32_t from = 0, slot_bytes = streams[0].slot_bytes; from < bytes; from += slot_bytes)
        stream_add(declaring, (const char *)at + from,
                   bytes - from < slot_bytes ? bytes - from : slot_bytes);
}
static void emulated_span_pace(fleet_producer *producer, uint32_t cycles)
{
    (void)producer, (void)cycles;
}
static void emulated_span_align(fleet_producer *producer, uint32_t slots, const void *at)
{
    while (streams[declaring].all % RING % slots) emulated_span(producer, at, 16);
}
static uint32_t emulated_span_await_step(fleet_producer *producer)
{
    (void)producer;
    return 1;
}
static uint32_t emulated_add_relaxed(uint32_t *at, uint32_t value)
{
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
static uint32_t emulated_load_relaxed(const uint32_t *at)
{
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}
static void emulated_store_relaxed(uint32_t *at, uint32_t value)
{
    __atomic_store_n(at, value, __ATOMIC_RELAXED);
}

static uint32_t finishes; /* threads that ended the launch */
static fleet_status emulated_finish(const fleet_ctx *ctx)
{
    (void)ctx;
    __atomic_fetch_add(&finishes, 1, __ATOMIC_RELAXED);
    return FLEET_OK;
}

/* ---- what a server's tasks ask the kit ---- */

/* One thread asks the kit's scheduler, for all. */
static decision decided;
static uint32_t live; /* the symbol LIVE */
static uint32_t emulated_schedule(const fleet_ctx *ctx, fleet_table *t, uint32_t pool,
                                  uint32_t layer)
{
    uint32_t word;
    emulated_barrier(ctx); /* results of all threads have been stored */
    if (ctx->thread == 0) {
        decided.table = t, decided.pool = pool, decided.step = ctx->epoch, decided.layer = layer;
        decided.now++;
        if (decide(&decided)) complain("the scheduler does not run", layer);
    }
    emulated_barrier(ctx);
    word = decided.word;
    emulated_barrier(ctx);
    return word;
}
static fleet_status emulated_server_next(const fleet_ctx *ctx, fleet_table *t, uint32_t pool)
{
    emulated_schedule(ctx, t, pool, 0); /* without anything to do: a batch without rows */
    return FLEET_OK;
}
static uint32_t emulated_server_between(const fleet_ctx *ctx, fleet_table *t, uint32_t pool,
                                        uint32_t layer)
{
    return emulated_schedule(ctx, t, pool, layer);
}
static fleet_status emulated_symbol(const fleet_ctx *ctx, uint32_t symbol, int32_t value)
{
    if (symbol) complain("there is no such symbol", symbol);
    if (ctx->thread == 0) live = (uint32_t)value;
    return FLEET_OK;
}

/* ---- the tasks, on top of all this ---- */

#define fleet_wave_size emulated_wave_size
#define fleet_lane emulated_lane
#define fleet_wave_id emulated_wave_id
#undef fleet_barrier
#define fleet_barrier emulated_barrier
#define fleet_wave_barrier emulated_wave_barrier
#define fleet_consumer emulated_weights
#define fleet_consumer_open emulated_weights_open
#define fleet_consumer_try_open emulated_weights_try_open
#define fleet_stage_acquire emulated_weights_next
#define fleet_stage_try_acquire emulated_weights_try_next
#define fleet_consumer_status emulated_weights_status
#define fleet_stages_skip emulated_weights_skip
#define fleet_stage_index emulated_weights_slot
#define fleet_stages_acquire emulated_weights_take
#define fleet_stages_release emulated_weights_give_back
#define fleet_consumer_pause emulated_weights_pause
#define fleet_stage_release emulated_weights_release
#define fleet_producer_copy emulated_span
#define fleet_producer_align emulated_span_align
#define fleet_producer_throttle emulated_span_pace
#define fleet_producer_await_step emulated_span_await_step
#define fleet_producer_await_task emulated_span_await_step
#define fleet_add_relaxed_device emulated_add_relaxed
#define fleet_store_relaxed_device emulated_store_relaxed
#define fleet_load_relaxed_system emulated_load_relaxed
#define fleet_finish emulated_finish
#define fleet_server_next emulated_server_next
#define fleet_server_between emulated_server_between
#define fleet_next_symbol emulated_symbol
#define fleet_cut_symbol emulated_symbol
#define DECODER_STAGES RING
#include "examples/qwen3/nvidia/attention.h"
#include "examples/qwen3/nvidia/prefill_experts.h"
#define draw draw_task /* the tests have a function of that name */
#include "examples/qwen3/nvidia/serve_wide.h"
#undef draw
#include "examples/qwen3/nvidia/wgmma.h"
#include "examples/qwen3/nvidia/wide.h"
#include "examples/qwen3/panels.h"
#include "examples/qwen3/tasks/moe.h"

static uint32_t lds_bytes(void)
{
    return threads_of_group == THREADS ? LDS_BYTES : PREFILL_LDS_BYTES;
}

/* ---- products ---- */

/* Pseudo-random numbers, the same in every run. */
static uint32_t drawn;
static uint32_t draw(uint32_t below)
{
    drawn = drawn * 1664525u + 1013904223u;
    return (drawn >> 8) % below;
}
static float whole_number(void)
{
    return (float)draw(17) - 8;
}

/* In [-most, most]. */
static float fraction(float most)
{
    return ((float)draw(20001) / 10000 - 1) * most;
}
static float *floats_of(size_t n)
{
    float *f = (float *)malloc(n * sizeof *f);
    if (!f) abort();
    memset(f, 0xff, n * sizeof *f);
    return f;
}

typedef struct product {
    uint32_t rows, k, panel_tiles, listed, split;
    uint32_t stops; /* 1: the pipeline ends in the second panel */
    operand in;
    float *sums;  /* [TILES][panel tiles][rows][TILE_N] */
    uint32_t bad; /* lanes that got an error */
} product;

static void multiply_tiles(const fleet_ctx *ctx, void *args)
{
    product *p = (product *)args;
    const linear_lds l = linear_lds_of(ctx, reciprocal_of(p->in.rows));
    const uint32_t sums = p->panel_tiles * p->rows * TILE_N;
    weight_source weights = weights_open(ctx);
    fleet_status status = FLEET_OK;
    multiply_begin(&weights, &p->in);
    for (uint32_t tile = 0; tile < TILES; tile++) {
        const fleet_status s = multiply(ctx, &weights, NULL, &p->in, &l);
        if (s) status = s;
        for (uint32_t i = ctx->thread; i < sums; i += ctx->threads)
            p->sums[tile * sums + i] = l.sums[i];
    }
    if (status) __atomic_fetch_add(&p->bad, 1, __ATOMIC_RELAXED);
    if (!status && weights.weights.next != TILES * my->group->stream->pieces)
        complain("the next task's weights would begin at piece", weights.weights.next);
}

/* Fills memory and pipeline, runs, and compares. */
static void check_product(test_run *t, product *p)
{
    /* Rows that are not listed hold NaN. The low terms follow all high terms. */
    const uint32_t k = p->k, apart = MAX_ROWS * k, copies = p->split ? 2 : 1;
    const uint32_t columns = p->panel_tiles * TILE_N, padded = ceil_div(k, K_ALIGN) * K_ALIGN;
    stream *st = &streams[0];
    uint16_t *x = (uint16_t *)malloc((size_t)2 * apart * sizeof *x);
    uint16_t *packed = (uint16_t *)calloc((size_t)columns * padded, sizeof *packed);
    float *plain = (float *)calloc((size_t)TILES * columns * k, sizeof *plain);
    int32_t *list = (int32_t *)malloc(p->rows * sizeof *list);
    uint8_t *marked = (uint8_t *)calloc(2 * apart / BLOCK_K, 1);
    if (!x || !packed || !plain || !list || !marked) abort();
    memset(x, 0xff, (size_t)2 * apart * sizeof *x);
    for (uint32_t i = 0; i < p->rows; i++) {
        list[i] = (int32_t)(p->listed ? draw(MAX_ROWS) : i);
        for (uint32_t c = 0; c < copies; c++)
            for (uint32_t j = 0; j < k; j++) {
                const size_t to = c * apart + act_at((uint32_t)list[i], j, k);
                x[to] = bf16_of_float(whole_number());
                marked[to / BLOCK_K] = 1;
            }
    }
    p->in.x = x, p->in.list = p->listed ? list : NULL, p->in.first = 0;
    p->in.k = k, p->in.panel_tiles = p->panel_tiles;
    p->in.low = p->split ? apart : 0, p->in.rows = p->rows;
    p->sums = (float *)calloc((size_t)TILES * p->rows * columns, sizeof *p->sums);
    if (!p->sums) abort();
    memset(&may_read, 0, sizeof may_read);
    may_read.from = x, may_read.rows = 2 * apart / BLOCK_K;
    may_read.width = BLOCK_K, may_read.marked = marked;

    streams_clear(STAGE_BYTES);
    st->panel_tiles = p->panel_tiles, st->pieces = columns * padded * 2 / STAGE_BYTES;
    for (uint32_t tile = 0; tile < TILES; tile++) {
        for (uint32_t column = 0; column < columns; column++)
            for (uint32_t j = 0; j < k; j++) {
                const float w = whole_number();
                plain[(tile * columns + column) * k + j] = w;
                packed[weight_at(column, j, p->panel_tiles, STAGE_K)] = bf16_of_float(w);
            }
        for (uint32_t piece = 0; piece < st->pieces; piece++)
            stream_add(0, packed + piece * STAGE_BYTES / 2, STAGE_BYTES);
    }
    if (p->stops) st->end = st->pieces + st->pieces / 2;

    p->bad = 0, complaint[0] = 0;
    launch(multiply_tiles, p, 0, 1, 1);

    if (complaint[0])
        test_fail(t, __FILE__, __LINE__, "%u rows, k %u, wide %u, list %u, split %u: %s", p->rows,
                  k, p->panel_tiles, p->listed, p->split, complaint);
    for (uint32_t i = 0; i < st->all; i++) {
        const pipeline_stage *slot = &st->slot[i];
        const uint32_t wanted = i < st->end ? SHARERS : 0, released = slot->released;
        /* A warp that is refused a stage acquires none of the following, and keeps what it has. */
        if (slot->taken > wanted || released > slot->taken * (MAX_WAVES / SHARERS) ||
            (!p->stops && (slot->taken != wanted || released != wanted * (MAX_WAVES / SHARERS))))
            test_fail(t, __FILE__, __LINE__,
                      "%u rows, k %u: piece %u is taken %u times and released for %u warps",
                      p->rows, k, i, slot->taken, released);
    }
    for (uint32_t i = 0; i < TILES * p->rows * columns && !p->stops; i++) {
        const uint32_t tile = i / (p->rows * TILE_N), row = i / TILE_N % p->rows;
        const float *w = plain + (tile * TILE_N + i % TILE_N) * k;
        float want = 0;
        for (uint32_t c = 0; c < copies; c++)
            for (uint32_t j = 0; j < k; j++)
                want += w[j] * float_of_bf16(x[c * apart + act_at((uint32_t)list[row], j, k)]);
        if (!(p->sums[i] == want)) /* also if NaN */
            test_fail(t, __FILE__, __LINE__,
                      "%u rows, k %u, wide %u, list %u, split %u: tile %u, row %u, column %u is "
                      "%g, expected %g",
                      p->rows, k, p->panel_tiles, p->listed, p->split, tile, row, i % TILE_N,
                      (double)p->sums[i], (double)want);
    }
    free(p->sums);
    free(marked);
    free(list);
    free(plain);
    free(packed);
    free(x);
}

/* Full and partial groups of rows; tiles of one stage, of fewer stages than warps, of as many, and
   of more, the last one full or not. */
static void products_are_exact(test_run *t)
{
    static const uint32_t cases[][4] = {
        /* rows, k, listed, split */
        {1, 32, 0, 0},   {8, 32, 1, 1},    {9, 32, 0, 1},   {64, 32, 1, 1},   {33, 32, 1, 0},
        {17, 32, 0, 1},  {2, 64, 1, 0},    {16, 64, 0, 1},  {31, 64, 1, 1},   {7, 96, 0, 1},
        {32, 96, 1, 0},  {64, 96, 0, 0},   {1, 224, 1, 1},  {9, 224, 1, 0},   {33, 224, 0, 1},
        {8, 256, 0, 0},  {16, 256, 1, 0},  {64, 256, 0, 1}, {1, 288, 1, 0},   {17, 288, 1, 1},
        {32, 288, 0, 0}, {7, 512, 0, 0},   {33, 512, 1, 1}, {2, 1120, 0, 1},  {24, 1120, 1, 0},
        {1, 2048, 0, 1}, {9, 2048, 1, 0},  {8, 2080, 1, 0}, {17, 2080, 0, 1}, {1, 2304, 1, 1},
        {7, 2304, 0, 0}, {16, 4064, 1, 0}, {1, 4096, 1, 0}, {8, 4096, 0, 1},  {33, 4096, 0, 0},
        {64, 4096, 1, 1}};
    drawn = 1;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        product p;
        memset(&p, 0, sizeof p);
        p.rows = cases[i][0], p.k = cases[i][1], p.listed = cases[i][2], p.split = cases[i][3];
        p.panel_tiles = 1 + i % MAX_PANEL_TILES;
        if (!has_case(i, 0, 10)) continue;
        check_product(t, &p);
        if (t->failed_here) return;
    }
}

/* A warp that does not get its stage reports it, the others acquire theirs, and none is left
   waiting. */
static void a_stream_that_ends_is_told(test_run *t)
{
    static const uint32_t ks[] = {32, 2304, 4096};
    drawn = 2;
    for (uint32_t i = 0; i < 3; i++) {
        product p;
        memset(&p, 0, sizeof p);
        p.rows = i == 2 ? 40 : 9, p.k = ks[i], p.panel_tiles = 1 + i, p.stops = 1;
        check_product(t, &p);
        CHECK(p.bad > 0 && p.bad % LANES == 0);
    }
}

/* Every stage was acquired, and released for all warps. */
static void check_slots(void)
{
    for (uint32_t g = 0; g < MAX_GROUPS_RUNNING; g++)
        for (uint32_t n = 0; n < streams[g].all; n++)
            if (!streams[g].slot[n].taken || streams[g].slot[n].released != MAX_WAVES)
                complain("a piece is not released for all, or never taken", n);
}

/* A whole layer with an RMS norm, the arguments through the pipeline too: some workers, of which
   those that share a panel run at the same time. Large-M panels have four times as many tiles. */
typedef struct layer {
    uint32_t rows, k, panel_tiles, columns, workers, split;
    uint32_t epilogue; /* EPILOGUE_RESIDUAL: without a norm before it */
    uint32_t chiplets;
} layer;
static void run_linear(const fleet_ctx *of, void *args)
{
    const task_args *o = (const task_args *)args;
    const uint32_t large_m = o->d.b->rows > SMALL_M_ROWS;
    fleet_status status;
    fleet_ctx ctx = *of;
    if (prefetches && !large_m) {
        fleeti_prefetch_named_linear_dense(ctx, o, ctx.at);
        fleet_barrier(&ctx);
        ctx.prefetched = 1;
    }
    status = large_m      ? FLEET_TILE_OF(linear_large_m)(ctx, o)
             : prefetches ? FLEET_TILE_OF(linear_dense)(ctx, o)
                          : FLEET_TILE_OF(linear)(ctx, o);
    if (status) complain("a tile fails with status", (uint32_t)status);
}
#define OPS 64u
static void run_layer(const layer *a, task_args *o)
{
    fleet_producer producer;
    fleet_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    memset(&producer, 0, sizeof producer);
    streams_clear(STAGE_BYTES);
    chiplets = a->chiplets, rows_there = o->d.b->rows;
    for (declaring = 0; declaring < a->workers; declaring++) {
        set_worker(&ctx, declaring, a->workers);
        if (a->rows > SMALL_M_ROWS)
            fleeti_producer_named_linear_large_m(ctx, o, ctx.at, &producer);
        else
            fleeti_producer_named_linear(ctx, o, ctx.at, &producer);
    }
    declaring = 0;
    next_prefetches();
    launch(run_linear, o, 0, a->workers, a->workers);
    chiplets = 1;
    check_slots();
}

/* A row has the same bits with fewer rows beside it; of small-M products, if there are at most 32. */
static void check_fewer_rows(test_run *t, const layer *a, task_args *o, uint16_t *x)
{
    const uint32_t fewer = a->rows > SMALL_M_ROWS ? SMALL_M_ROWS + 1 : 1, k = a->k;
    const size_t bytes = (size_t)fewer * a->columns * sizeof(float);
    float *first = floats_of((size_t)fewer * a->columns);
    for (uint32_t r = 0; r < a->rows; r++)
        for (uint32_t i = 0; i < k; i++) {
            x[act_at(r, i, k)] = bf16_of_float(fraction(2));
            if (a->split) x[MAX_ROWS * k + act_at(r, i, k)] = bf16_of_float(fraction(0.01f));
        }
    for (uint32_t i = 0; i < a->rows * (k / TILE_N); i++) o->d.squares[i] = 1 + fraction(1);
    for (uint32_t n = 0; n < 2; n++) {
        o->d.b->rows = n ? fewer : a->rows;
        step++; /* other tags */
        run_layer(a, o);
        if (n) CHECK(!memcmp(first, o->floats, bytes));
        memcpy(first, o->floats, bytes);
    }
    free(first);
}

/* The other rank's summands are there already, whole numbers; this rank is the second one. */
static int32_t summand_of_other(uint32_t row, uint32_t column)
{
    return (int32_t)(row * 31 + column * 7) % 64 - 32;
}
static void fill_summands(task_args *o, fleet_quad *regions, uint32_t words)
{
    fleet_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    ctx.epoch = step;
    o->d.peers.rank = 1, o->d.peers.ranks = 2;
    memset(regions, 0, 2 * words * sizeof *regions);
    for (uint32_t r = 0; r < 2; r++) o->d.peers.bases[r] = regions + r * words;
    o->summands = regions + words;
    for (uint32_t i = 0; i < o->shape.n / TILE_N * MAX_ROWS * SUMMAND_QUADS; i++) {
        const uint32_t word = i % SUMMAND_QUADS, n = i / SUMMAND_QUADS;
        fleet_quad *to = o->summands + i;
        for (uint32_t k = 0; k < 3 && word * 3 + k < TILE_N; k++)
            to->word[k] = word_of_float(
                (float)summand_of_other(n % MAX_ROWS, n / MAX_ROWS * TILE_N + word * 3 + k));
        to->word[3] = task_tag(&ctx, o);
    }
}
/* Whether this rank has pushed all of its summands to the other one, in its place there, and nothing else. */
static void check_pushed(const task_args *o, const fleet_quad *regions, uint32_t rows)
{
    const fleet_quad *from = regions + summand_stride(&o->d);
    for (uint32_t i = 0; i < o->shape.n / TILE_N * MAX_ROWS * SUMMAND_QUADS; i++) {
        const uint32_t is_row = i / SUMMAND_QUADS % MAX_ROWS < rows;
        if ((from[i].word[3] == o->summands->word[3]) != is_row || regions[i].word[3])
            complain("a summand is not pushed, or one that is none", i);
    }
}

/* with_other: in a residual layer, that of another rank is added. */
static void check_layer(test_run *t, const layer *a, uint32_t number, uint32_t with_other)
{
    enum { K = 1100, COLUMNS = 800, MAX_TILES = COLUMNS / TILE_N + LARGE_M_PANEL_TILES };
    static uint16_t x[2 * MAX_ROWS * K], weights[MAX_TILES * TILE_N * STAGE_K * 5];
    static float squares[MAX_ROWS * K / TILE_N], floats[MAX_ROWS * COLUMNS], plain[COLUMNS * K];
    static fleet_quad split_k[MAX_GROUPS_RUNNING * SPLIT_K_QUADS];
    static float h[MAX_ROWS * COLUMNS] __attribute__((aligned(16))), before[MAX_ROWS * COLUMNS];
    static float norm[COLUMNS] __attribute__((aligned(16))), after[MAX_ROWS * COLUMNS / TILE_N];
    static uint16_t next[MAX_ROWS * COLUMNS] __attribute__((aligned(16)));
    static uint8_t marked[2 * MAX_ROWS * K / BLOCK_K];
    enum { SUMMANDS = 2 * COLUMNS / TILE_N * MAX_ROWS * SUMMAND_QUADS };
    static fleet_quad regions[2 * SUMMANDS];
    static batch b;
    static task_args o;
    const uint32_t k = a->k, padded = ceil_div(k, K_ALIGN) * K_ALIGN, apart = MAX_ROWS * k;
    const uint32_t large_m = a->rows > SMALL_M_ROWS,
                   panel_tiles = large_m ? 4 * a->panel_tiles : a->panel_tiles;
    const uint32_t tile = panel_tiles * TILE_N, last = (a->columns - 1) / tile;
    double rounded = 0, wants[COLUMNS];
    memset(&o, 0, sizeof o);
    memset(squares, 0, sizeof squares);
    complaint[0] = 0;
    o.shape.m = MAX_ROWS, o.shape.n = a->columns, o.shape.k = k;
    o.shape.tile_m = MAX_ROWS, o.shape.tile_n = tile, o.shape.tile_k = BLOCK_K;
    o.shape.element_bytes = 2, o.shape.split = FLEET_SPLIT_N;
    o.panel_bytes = tile * padded * 2, o.first_worker = 5;
    o.d.hidden = k, o.d.eps = 1e-6f, o.d.b = &b, o.d.squares = squares;
    o.d.workers = a->workers / a->chiplets;
    o.d.split_k = split_k, o.number = number, o.step_tasks = OPS;
    o.weights = weights, o.x = x, o.x_low = a->split ? apart : 0, o.rmsnorm = 1;
    o.epilogue = a->epilogue, o.floats = floats, o.columns = a->columns;
    b.rows = a->rows;
    if (a->epilogue == EPILOGUE_SILU) o.acts = next, o.columns = a->columns / 2;
    if (a->epilogue == EPILOGUE_RESIDUAL) {
        o.rmsnorm = 0, o.d.hidden = a->columns;
        o.d.h = h, o.d.x = next, o.d.squares = after, o.norm = norm;
        for (uint32_t i = 0; i < a->columns; i++) norm[i] = 1 + whole_number() / 16;
        for (uint32_t i = 0; i < a->rows * a->columns; i++) before[i] = h[i] = whole_number();
    }
    memset(x, 0xff, sizeof x);
    memset(floats, 0xff, sizeof floats);
    memset(marked, 1, sizeof marked);
    memset(&may_read, 0, sizeof may_read);
    may_read.from = x, may_read.rows = 2 * apart / BLOCK_K, may_read.width = BLOCK_K;
    may_read.marked = marked;
    for (uint32_t r = 0; r < a->rows; r++)
        for (uint32_t i = 0; i < k; i++) {
            const float value = whole_number();
            x[act_at(r, i, k)] = bf16_of_float(value);
            if (a->split) x[apart + act_at(r, i, k)] = bf16_of_float(value / 16);
            squares[r * (k / TILE_N) + i / TILE_N] += value * value;
        }
    memset(weights, 0, sizeof weights);
    for (uint32_t c = 0; c < a->columns; c++)
        for (uint32_t i = 0; i < k; i++) {
            const uint32_t tiles = large_m && c / tile == last
                                       ? a->columns / TILE_N - last * panel_tiles
                                       : panel_tiles;
            const uint32_t inner_k = large_m ? WGMMA_K : STAGE_K;
            plain[c * k + i] = whole_number();
            weights[c / tile * (o.panel_bytes / 2) + weight_at(c % tile, i, tiles, inner_k)] =
                bf16_of_float(plain[c * k + i]);
        }
    if (with_other) fill_summands(&o, regions, SUMMANDS);
    run_layer(a, &o);
    if (with_other) check_pushed(&o, regions, a->rows);
    if (complaint[0])
        test_fail(t, __FILE__, __LINE__, "%u rows, k %u, %u columns: %s", a->rows, k, a->columns,
                  complaint);
    /* The largest split-K sum is a few times 24 sqrt(k's of a split), since a product is about 24. */
    if (large_m && a->workers > 1) rounded = 0x1p-17 * 110 * sqrt((double)k * a->workers);
    for (uint32_t r = 0; r < a->rows; r++) {
        float squared = 0;
        for (uint32_t c = 0; c < a->columns && !t->failed_here; c++) {
            double want = 0, all = 0, room = rounded;
            for (uint32_t i = 0; i < k; i++) {
                const double value = (double)float_of_bf16(x[act_at(r, i, k)]);
                want += (a->split ? value * 17 / 16 : value) * (double)plain[c * k + i];
                all += value * value;
            }
            if (a->epilogue == EPILOGUE_RESIDUAL) {
                const float sum = h[r * a->columns + c];
                want += (double)before[r * a->columns + c];
                want += with_other ? summand_of_other(r, c) : 0;
                floats[r * a->columns + c] = sum;
                CHECK_INT(next[act_at(r, c, a->columns)], bf16_of_float(sum * norm[c]));
                squared += sum * sum;
                if (c % TILE_N == TILE_N - 1) {
                    CHECK(fabsf(after[(r * a->columns + c) / TILE_N] - squared) <= 1e-5f * squared);
                    squared = 0;
                }
            } else {
                want /= sqrt(all / k + 1e-6), room /= sqrt(all / k + 1e-6);
            }
            if (a->epilogue == EPILOGUE_SILU) {
                const uint32_t to = c / TILE_N * (TILE_N / 2) + c % (TILE_N / 2);
                wants[c] = want;
                if (c % TILE_N < TILE_N / 2) continue;
                room *= fabs(want) + fabs(wants[c - TILE_N / 2]) + 1;
                want *= wants[c - TILE_N / 2] / (1 + exp(-wants[c - TILE_N / 2]));
                room += 0x1p-8 * fabs(want) + 1e-3;
                floats[r * a->columns + c] = float_of_bf16(next[act_at(r, to, o.columns)]);
            }
            room += 1e-4 * (1 + fabs(want));
            if (!(fabs((double)floats[r * a->columns + c] - want) <= room))
                test_fail(t, __FILE__, __LINE__,
                          "%u rows, k %u, wide %u, %u columns, %u workers: row %u, column %u is "
                          "%g, expected %g",
                          a->rows, k, a->panel_tiles, a->columns, a->workers, r, c,
                          (double)floats[r * a->columns + c], want);
        }
    }
    if (a->epilogue == EPILOGUE_STORE && number % 3 == 0 && !is_part() && !t->failed_here)
        check_fewer_rows(t, a, &o, x);
    if (complaint[0]) test_fail(t, __FILE__, __LINE__, "case %u: %s", number, complaint);
}
/* Packed sums: each loses less than 2^-17, and NaN and infinity stay what they are. The tag of any
   other task differs. */
static void sums_are_in_a_word(test_run *t)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN, 0x1.fffffep127f, -0.0f};
    drawn = 5;
    for (uint32_t i = 0; i < 100000 && !t->failed_here; i++) {
        const uint32_t tag = draw(1u << 31) * 2 + 1, others = tag ^ 1u << draw(4 * TAG_BITS);
        float sum[4], got[4];
        fleet_quad word;
        for (uint32_t j = 0; j < 4; j++) {
            const float size = (float)ldexp(draw(1u << 24), (int)draw(240) - 140);
            sum[j] = draw(50) == 0 ? odd[draw(sizeof odd / sizeof *odd)] : draw(2) ? size : -size;
        }
        word = pack_sums(sum, tag);
        CHECK(!tag_differs(&word, tag) && tag_differs(&word, others));
        memset(got, 0, sizeof got);
        add_packed(got, &word);
        for (uint32_t j = 0; j < 4; j++) {
            const double off = fabs((double)got[j] - (double)sum[j]);
            CHECK(isnan(sum[j])   ? isnan(got[j])
                  : isinf(sum[j]) ? got[j] == sum[j]
                                  : off <= fmax(fabs((double)sum[j]) * 0x1p-17, 0x1p-143));
        }
    }
}
/* Small and large batches; panels that are not full, and more or fewer than fit at once; k's of one
   worker and split ones, which end inside of a stage and of a row stage; one chiplet and two. */
static void layers_are_near_plain_ones(test_run *t)
{
    static const layer cases[] = {
        {9, 320, 3, 80, 1, 0, EPILOGUE_STORE, 1},
        {19, 320, 3, 80, 1, 0, EPILOGUE_STORE, 1},
        {17, 32, 1, 16, 2, 0, EPILOGUE_STORE, 1},
        {64, 1088, 2, 64, 3, 0, EPILOGUE_STORE, 1},
        {40, 544, 3, 192, 2, 1, EPILOGUE_STORE, 1},
        {33, 256, 1, 304, 1, 0, EPILOGUE_STORE, 1},
        {64, 96, 3, 784, 2, 0, EPILOGUE_STORE, 1},
        {24, 800, 2, 208, 4, 0, EPILOGUE_STORE, 1},
        {48, 1024, 3, 144, 4, 1, EPILOGUE_STORE, 1},
        {64, 288, 2, 400, 1, 1, EPILOGUE_STORE, 1},
        {1, 288, 3, 160, 1, 0, EPILOGUE_RESIDUAL, 1},
        {16, 64, 2, 96, 2, 0, EPILOGUE_RESIDUAL, 1},
        {23, 64, 1, 64, 1, 0, EPILOGUE_RESIDUAL, 1},
        {64, 1088, 2, 64, 3, 0, EPILOGUE_RESIDUAL, 1},
        {50, 256, 3, 288, 1, 0, EPILOGUE_RESIDUAL, 1},
        {30, 1024, 2, 224, 4, 0, EPILOGUE_RESIDUAL, 1},
        {7, 96, 2, 64, 1, 0, EPILOGUE_SILU, 1},
        {64, 544, 2, 448, 2, 0, EPILOGUE_SILU, 1},
        {37, 288, 3, 640, 1, 0, EPILOGUE_SILU, 1},
        {50, 1088, 3, 192, 3, 0, EPILOGUE_SILU, 1},
        {19, 64, 1, 256, 1, 0, EPILOGUE_SILU, 1},
        {9, 288, 2, 160, 4, 0, EPILOGUE_STORE, 2},
        {40, 544, 3, 400, 4, 0, EPILOGUE_STORE, 2},
        {64, 256, 1, 288, 4, 0, EPILOGUE_RESIDUAL, 2},
        {20, 96, 2, 640, 2, 0, EPILOGUE_SILU, 2},
    };
    drawn = 3;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!has_case(i, 3, 8)) continue;
        check_layer(t, &cases[i], i, 0);
        step++; /* other tags */
        if (!t->failed_here && cases[i].epilogue == EPILOGUE_RESIDUAL)
            check_layer(t, &cases[i], i, 1);
        if (t->failed_here) return;
    }
}

/* A layer of experts: gates and ups, or downs, whose results are added up. Rows have experts of their own, and some experts
   have none. */
typedef struct experts_case {
    uint32_t rows, k, columns, experts, top_k, workers, panel_tiles, downs;
    int32_t others; /* the first of the active experts, which other ranks have; at most all */
} experts_case;
static void run_experts(const fleet_ctx *ctx, void *args)
{
    const task_args *o = (const task_args *)args;
    const fleet_status status = o->epilogue == EPILOGUE_RESIDUAL
                                    ? FLEET_TILE_OF(expert_down)(*ctx, o)
                                    : FLEET_TILE_OF(linear)(*ctx, o);
    if (status) complain("a tile fails with status", (uint32_t)status);
}
enum { MAX_EXPERT_K = 1056, MAX_EXPERT_COLUMNS = 128, MAX_CASE_EXPERTS = 12, MAX_CASE_PAIRS = 192 };
static void check_experts(test_run *t, const experts_case *a)
{
    static uint16_t x[2 * MAX_CASE_PAIRS * MAX_EXPERT_K], next[MAX_CASE_PAIRS * MAX_EXPERT_COLUMNS];
    static uint16_t weights[MAX_CASE_EXPERTS * MAX_EXPERT_COLUMNS * 1280];
    static uint8_t marked[2 * MAX_CASE_PAIRS * MAX_EXPERT_K / BLOCK_K];
    static float plain[MAX_CASE_EXPERTS * MAX_EXPERT_COLUMNS][MAX_EXPERT_K];
    static float h[MAX_ROWS * MAX_EXPERT_COLUMNS], before[MAX_ROWS * MAX_EXPERT_COLUMNS];
    static float norm[MAX_EXPERT_COLUMNS], squares[MAX_ROWS * MAX_EXPERT_COLUMNS / TILE_N];
    int32_t active[MAX_CASE_EXPERTS], first_place[MAX_CASE_EXPERTS + 1], n_active = 0, place = 0;
    int32_t place_row[MAX_CASE_PAIRS], expert_of[MAX_CASE_PAIRS], others;
    float place_weight[MAX_CASE_PAIRS];
    const uint32_t k = a->k, padded = ceil_div(k, K_ALIGN) * K_ALIGN, pairs = a->rows * a->top_k,
                   x_rows = a->downs ? ceil_div(pairs, VECTOR) * VECTOR : MAX_ROWS,
                   apart = x_rows * k;
    batch b;
    task_args o;
    fleet_ctx ctx;
    fleet_producer producer;
    memset(&b, 0, sizeof b), memset(&o, 0, sizeof o);
    memset(&ctx, 0, sizeof ctx), memset(&producer, 0, sizeof producer);
    for (uint32_t e = 0; e < a->experts; e++) {
        const int32_t begin = place;
        for (uint32_t r = 0; r < a->rows; r++) {
            /* the row's experts: top_k neighbours, from a number of its own on */
            if ((e + a->experts - r * 5 % 7 % a->experts) % a->experts >= a->top_k) continue;
            expert_of[place] = (int32_t)e, place_row[place] = (int32_t)r;
            place_weight[place++] = (float)(1 + draw(4)) / 4;
        }
        if (place == begin) continue;
        active[n_active] = (int32_t)e, first_place[n_active++] = begin;
    }
    first_place[n_active] = place;
    others = a->others < n_active ? a->others : n_active, n_active -= others;
    b.rows = a->rows;
    o.d.b = &b, o.d.experts = a->experts, o.d.top_k = a->top_k, o.d.n_active = &n_active;
    o.d.active = active + others, o.d.first_place = first_place + others;
    o.d.place_row = place_row, o.d.place_weight = place_weight;
    o.shape.n = a->columns, o.shape.k = k, o.shape.m = o.shape.tile_m = MAX_ROWS;
    o.shape.tile_n = a->panel_tiles * TILE_N, o.shape.tile_k = BLOCK_K;
    o.shape.split = FLEET_SPLIT_N, o.shape.traversal = FLEET_TRAVERSAL_M_MAJOR;
    o.shape.element_bytes = 2;
    o.panel_bytes = padded * TILE_N * 2, o.weights = weights;
    o.x = x, o.x_low = apart;
    o.epilogue = a->downs ? EPILOGUE_RESIDUAL : EPILOGUE_EXPERTS;
    o.d.hidden = a->columns, o.d.h = h, o.d.x = next, o.d.squares = squares, o.norm = norm;
    o.acts = next, o.columns = a->columns / 2;
    for (uint32_t i = 0; i < a->columns; i++) norm[i] = 1 + whole_number() / 16;
    for (uint32_t i = 0; i < a->rows * a->columns; i++) before[i] = h[i] = whole_number();
    memset(x, 0xff, sizeof x), memset(marked, 0, sizeof marked), memset(weights, 0, sizeof weights);
    for (uint32_t r = 0; r < (a->downs ? pairs : a->rows); r++)
        for (uint32_t i = 0; i < k; i++)
            for (uint32_t term = 0; term < 2; term++) {
                const size_t to = term * apart + act_at(r, i, k);
                x[to] = bf16_of_float(whole_number() / (a->downs ? 1 : 128));
                marked[to / BLOCK_K] = 1;
            }
    may_read.from = x, may_read.rows = 2 * apart / BLOCK_K, may_read.width = BLOCK_K;
    may_read.marked = marked;
    for (uint32_t c = 0; c < a->experts * a->columns; c++)
        for (uint32_t i = 0; i < k; i++) {
            plain[c][i] = whole_number();
            weights[c / TILE_N * (o.panel_bytes / 2) + weight_at(c % TILE_N, i, 1, STAGE_K)] =
                bf16_of_float(plain[c][i]);
        }
    streams_clear(STAGE_BYTES);
    for (declaring = 0; declaring < a->workers; declaring++) {
        set_worker(&ctx, declaring, a->workers);
        if (a->downs)
            fleeti_producer_named_expert_down(ctx, &o, ctx.at, &producer);
        else
            fleeti_producer_named_linear(ctx, &o, ctx.at, &producer);
    }
    declaring = 0, complaint[0] = 0;
    launch(run_experts, &o, 0, a->workers, a->workers);
    check_slots();
    if (complaint[0])
        test_fail(t, __FILE__, __LINE__, "%u rows, k %u, %u experts: %s", a->rows, k, a->experts,
                  complaint);
    for (uint32_t i = (uint32_t)first_place[others]; i < pairs; i++)
        for (uint32_t c = 0; c < a->columns && !t->failed_here; c++) {
            const uint32_t row = a->downs ? i : (uint32_t)place_row[i], r = (uint32_t)place_row[i];
            const uint32_t c_gate = c / TILE_N * TILE_N + c % (TILE_N / 2);
            double want[2] = {0, 0}, got;
            for (uint32_t term = 0; term < 2; term++)
                for (uint32_t j = 0; j < k; j++)
                    for (uint32_t n = 0; n < (a->downs ? 1u : 2u); n++)
                        want[n] += (double)float_of_bf16(x[term * apart + act_at(row, j, k)]) *
                                   (double)plain[(uint32_t)expert_of[i] * a->columns +
                                                 (a->downs ? c : c_gate + n * TILE_N / 2)][j];
            if (a->downs) { /* exact: what is left after the last expert is 0 */
                before[r * a->columns + c] += (float)want[0] * place_weight[i];
                continue;
            }
            want[0] *= want[1] / (1 + exp(-want[0]));
            got = (double)float_of_bf16(
                next[act_at(i, c / TILE_N * (TILE_N / 2) + c % (TILE_N / 2), o.columns)]);
            if (!(fabs(got - want[0]) <= 0x1p-8 * fabs(want[0]) + 1e-3))
                test_fail(t, __FILE__, __LINE__, "pair %u, column %u is %g, expected %g", i, c, got,
                          want[0]);
        }
    for (uint32_t i = 0; i < a->rows * a->columns && a->downs && !t->failed_here; i++) {
        CHECK(h[i] == before[i]);
        CHECK_INT(next[act_at(i / a->columns, i % a->columns, a->columns)],
                  bf16_of_float(h[i] * norm[i % a->columns]));
    }
}
/* Experts with more pairs than a fragment has rows; k's of fewer chunks than pairs of warps, of as many, and of more;
   panels that are not full; fewer rows than are prefetched, and more. */
static void experts_are_added_up(test_run *t)
{
    static const experts_case cases[] = {
        /* rows, k, columns, experts, top_k, workers, panel_tiles, downs, others */
        {1, 768, 64, 12, 8, 2, 1, 1, 0},  {19, 64, 96, 5, 3, 2, 1, 1, 0},
        {64, 288, 32, 7, 3, 1, 1, 1, 0},  {5, 1056, 32, 3, 1, 1, 1, 1, 0},
        {16, 544, 128, 9, 2, 3, 1, 1, 0}, {1, 1056, 128, 12, 8, 4, 2, 0, 0},
        {24, 256, 64, 6, 4, 2, 1, 0, 0},  {64, 96, 64, 4, 3, 1, 2, 0, 0},
        {19, 64, 96, 5, 3, 2, 1, 1, 2},   {1, 64, 32, 5, 3, 2, 1, 1, 5},
    };
    drawn = 4;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases && !t->failed_here; i++)
        if (has_case(i, 1, 4) || cases[i].others) check_experts(t, &cases[i]);
}

/* Successive tasks of one worker: each learns the step's row count, from memory unless what LDS
   holds is surely of this step. At first LDS holds the arguments of another session, from a step of
   the same number. */
enum { OWN_TASKS = 5, SESSION = 3, OTHER_SESSION = 4 };
static const struct {
    uint32_t epoch, rows, want;
} own_tasks[OWN_TASKS] = {{7, 11, 11}, {8, 5, 5}, {8, 3, 5}, {9, 3, 3}, {10, 0, 0}};
typedef struct own_rows {
    task_args o;
    batch b;
} own_rows;
static void take_own_ops(const fleet_ctx *of, void *args)
{
    own_rows *a = (own_rows *)args;
    fleet_ctx ctx = *of;
    weight_source source = weights_open(&ctx);
    if (ctx.thread == 0) {
        task_args *left = (task_args *)ctx.lds;
        left->session = OTHER_SESSION, left->rows = 99, left->rows_epoch = own_tasks[0].epoch;
    }
    for (uint32_t i = 0; i < OWN_TASKS; i++) {
        if (ctx.thread == 0) a->b.rows = own_tasks[i].rows;
        fleet_barrier(&ctx);
        ctx.epoch = own_tasks[i].epoch;
        if (row_count_of(own_args(&ctx, &source, &a->o)) != own_tasks[i].want)
            complain("a task has the rows of another step, it is number", i);
        fleet_barrier(&ctx);
    }
}
static void rows_are_those_of_the_step(test_run *t)
{
    static own_rows a;
    memset(&a, 0, sizeof a);
    streams_clear(STAGE_BYTES);
    complaint[0] = 0;
    a.o.d.b = &a.b, a.o.session = SESSION;
    for (uint32_t i = 0; i < OWN_TASKS; i++) stream_add(0, &a.o, sizeof a.o);
    launch(take_own_ops, &a, 0, 1, 1);
    if (complaint[0]) test_fail(t, __FILE__, __LINE__, "%s", complaint);
}

/* ---- attention ---- */

typedef struct attention {
    uint32_t head_dim, heads, kv_heads, workers;
    int32_t position[2], rows[2]; /* of two sequences; no rows: it has ended */
} attention;

#define CONTEXT 800u
#define PARTS 12u
#define SEQUENCES 2u
#define TABLE_PAGES (CONTEXT / PAGE_TOKENS)
#define CACHE_PAGES (SEQUENCES * TABLE_PAGES + 1)

typedef struct decoder_and_op {
    decoder d;
    batch b;
    task_args o;
    uint32_t large_m; /* 1: as in the large-M kernel */
} decoder_and_op;

static void attend_parts(const fleet_ctx *of, void *args)
{
    const decoder_and_op *a = (const decoder_and_op *)args;
    const task_args *own = (const task_args *)of->lds;
    fleet_status status;
    fleet_ctx ctx = *of;
    if (prefetches && !a->large_m) {
        fleeti_prefetch_named_attend(ctx, &a->o, ctx.at);
        fleet_barrier(&ctx);
        ctx.prefetched = 1;
    }
    status =
        a->large_m ? FLEET_TILE_OF(attend_large_m)(ctx, &a->o) : FLEET_TILE_OF(attend)(ctx, &a->o);
    if (status) complain("a tile fails with status", (uint32_t)status);
    if (own->rows != a->b.rows || own->rows_epoch != ctx.epoch)
        complain("attention does not leave the row count of the step, but", own->rows);
}

static kv_t *halves(size_t n)
{
    kv_t *h = (kv_t *)malloc(n * sizeof *h);
    if (!h) abort();
    memset(h, 0xff, n * sizeof *h);
    return h;
}

/* A head after RMS norm and RoPE. */
static void plain_head(double *to, const decoder *d, const float *from, const float *norm,
                       uint32_t position)
{
    const uint32_t half = d->head_dim / 2;
    double squares = 0, scale;
    for (uint32_t i = 0; i < d->head_dim; i++) squares += (double)from[i] * (double)from[i];
    scale = 1 / sqrt(squares / d->head_dim + (double)d->eps);
    for (uint32_t i = 0; i < half; i++) {
        const float *turn = d->rope + ((size_t)position * half + i) * 2;
        const double a = (double)from[i] * scale * (double)norm[i],
                     b = (double)from[i + half] * scale * (double)norm[i + half];
        to[i] = a * (double)turn[0] - b * (double)turn[1];
        to[i + half] = b * (double)turn[0] + a * (double)turn[1];
    }
}

/* The page of a KV head that a key of a sequence is in. */
static kv_t *page_of(const decoder_and_op *a, uint32_t sequence, uint32_t head, uint32_t key)
{
    const uint32_t *pages = pages_of(&a->d, a->b.sequence[sequence].table_row);
    return kv_page(&a->d, a->o.cache, head, pages[key / PAGE_TOKENS]);
}
static double cached_key(const decoder_and_op *a, uint32_t sequence, uint32_t head, uint32_t key,
                         uint32_t i)
{
    return (double)value_of_f16(
        page_of(a, sequence, head, key)[key_at(&a->d, key % PAGE_TOKENS, i)]);
}
static double cached_value(const decoder_and_op *a, uint32_t sequence, uint32_t head, uint32_t key,
                           uint32_t i)
{
    return (double)value_of_f16(
        page_of(a, sequence, head, key)[value_at(&a->d, key % PAGE_TOKENS, i)]);
}

/* One row and head, from the values and keys in the cache; `size` is the sum of the terms'
   magnitudes. */
static void plain_attention(double *to, double *size, const decoder_and_op *a, uint32_t sequence,
                            uint32_t kv_head, const float *q, uint32_t position)
{
    const uint32_t dim = a->d.head_dim;
    double head[MAX_HEAD_DIM], score[CONTEXT], most = -INFINITY, sum = 0;
    plain_head(head, &a->d, q, a->o.q_norm, position);
    for (uint32_t key = 0; key <= position; key++) {
        score[key] = 0;
        for (uint32_t i = 0; i < dim; i++)
            score[key] += (double)value_of_f16(kv_of_float((float)head[i])) *
                          cached_key(a, sequence, kv_head, key, i);
        score[key] /= sqrt(dim);
        most = fmax(most, score[key]);
    }
    for (uint32_t key = 0; key <= position; key++) sum += score[key] = exp(score[key] - most);
    for (uint32_t i = 0; i < dim; i++) {
        to[i] = size[i] = 0;
        for (uint32_t key = 0; key <= position; key++) {
            const double value = cached_value(a, sequence, kv_head, key, i);
            to[i] += score[key] / sum * value;
            size[i] += score[key] / sum * fabs(value);
        }
    }
}

/* The appended keys and values are rounded once. */
static void check_appended(test_run *t, const decoder_and_op *a, const float *row, uint32_t head,
                           uint32_t sequence, uint32_t position)
{
    const decoder *d = &a->d;
    const uint32_t dim = d->head_dim;
    double key[MAX_HEAD_DIM];
    plain_head(key, d, row + (d->heads + head) * dim, a->o.k_norm, position);
    for (uint32_t i = 0; i < dim; i++) {
        const double value = (double)row[(d->heads + d->kv_heads + head) * dim + i];
        CHECK(fabs(cached_key(a, sequence, head, position, i) - key[i]) <=
              0x1p-10 * fabs(key[i]) + 0x1p-20);
        CHECK(fabs(cached_value(a, sequence, head, position, i) - value) <=
              0x1p-10 * fabs(value) + 0x1p-20);
    }
}

/* Pages in an order of their own, one of which no sequence has. Rows are not numbered as sequences. */
static void fill_page_table(decoder_and_op *a, uint32_t *table)
{
    uint32_t order[CACHE_PAGES];
    for (uint32_t i = 0; i < CACHE_PAGES; i++) {
        const uint32_t other = draw(i + 1);
        order[i] = order[other], order[other] = i;
    }
    memcpy(table, order, SEQUENCES * TABLE_PAGES * sizeof *table);
    for (uint32_t n = 0; n < SEQUENCES; n++) a->b.sequence[n].table_row = SEQUENCES - 1 - n;
    a->d.page_table = table, a->d.table_pages = TABLE_PAGES, a->d.pages = CACHE_PAGES;
}

/* What is cached before the step; keys that are not there yet are NaN. */
static void fill_cache(const decoder_and_op *a)
{
    const decoder *d = &a->d;
    memset(a->o.cache, 0, layer_cache_size(d) * 2);
    for (uint32_t i = 0; i < SEQUENCES * d->kv_heads; i++)
        for (uint32_t key = 0; key < CONTEXT; key++) {
            const uint32_t sequence = i / d->kv_heads, row = key % PAGE_TOKENS;
            const int there = (int32_t)key < d->b->sequence[sequence].position;
            kv_t *page = page_of(a, sequence, i % d->kv_heads, key);
            for (uint32_t j = 0; j < d->head_dim; j++) {
                page[key_at(d, row, j)] = there ? kv_of_float(fraction(2)) : 0x7fffu;
                if (there) page[value_at(d, row, j)] = kv_of_float(fraction(2));
            }
        }
}

/* Moves all pages. */
static void move_pages(decoder_and_op *a, uint32_t *table)
{
    const decoder *d = &a->d;
    const uint32_t entries = SEQUENCES * TABLE_PAGES;
    uint32_t before[SEQUENCES * TABLE_PAGES];
    kv_t *from = a->o.cache, *to = halves(layer_cache_size(d));
    memcpy(before, table, sizeof before);
    fill_page_table(a, table);
    for (uint32_t i = 0; i < entries * d->kv_heads; i++)
        memcpy(kv_page(d, to, i / entries, table[i % entries]),
               kv_page(d, from, i / entries, before[i % entries]), KV_BLOCK_VALUES * 2);
    batch_pages(&a->b, table, TABLE_PAGES, 0, 1);
    free(from);
    a->o.cache = to;
}

/* Copies what the pipeline has copied from one cache to another, or overwrites it with NaN. */
static void copy_older_blocks(const decoder_and_op *a, const kv_t *from)
{
    const decoder *d = &a->d;
    for (uint32_t i = 0; i < SEQUENCES * d->kv_heads; i++) {
        const uint32_t sequence = i / d->kv_heads;
        const uint32_t older = (uint32_t)d->b->sequence[sequence].position / KV_BLOCK;
        for (uint32_t n = 0; n < older; n++) {
            kv_t *page = page_of(a, sequence, i % d->kv_heads, n * KV_BLOCK);
            if (from)
                memcpy(page, from + (page - a->o.cache), KV_BLOCK_VALUES * 2);
            else
                memset(page, 0xff, KV_BLOCK_VALUES * 2);
        }
    }
}

/* Runs workgroups one after the other, from number `first` on. What the pipeline has copied is
   overwritten in the cache meanwhile. */
static void run_attention(const decoder_and_op *a, uint32_t first, uint32_t workers)
{
    const decoder *d = &a->d;
    kv_t *before = halves(layer_cache_size(d));
    memcpy(before, a->o.cache, layer_cache_size(d) * 2);
    for (uint32_t i = 0; i < workers; i++) {
        fleet_ctx ctx;
        fleet_producer producer;
        decoder_and_op copy = *a;
        memset(&ctx, 0, sizeof ctx);
        memset(&producer, 0, sizeof producer);
        streams_clear(STAGE_BYTES);
        ctx.tile_index = (first + i) % workers, ctx.tile_num = workers, ctx.slices = 1;
        copy.d.b = &copy.b, copy.o.d = copy.d;
        fleeti_producer_named_attend(ctx, &copy.o, ctx.at, &producer);
        copy_older_blocks(a, NULL);
        next_prefetches();
        launch(attend_parts, &copy, ctx.tile_index, 1, workers);
        copy_older_blocks(a, before);
        check_slots();
    }
    free(before);
}

/* With splits of a given size, the rows of a sequence have the same bits with and without the other one. */
static void check_independence(test_run *t, decoder_and_op *a, uint32_t *table, uint32_t workers)
{
    const uint32_t width = (a->d.heads + 2 * a->d.kv_heads) * a->d.head_dim;
    const uint32_t columns = a->d.heads * a->d.head_dim;
    act_t *both = halves(2 * MAX_ROWS * columns), *attended = a->o.d.attended;
    float *qkv = a->o.d.qkv;
    a->b.split_blocks = 3;
    for (uint32_t n = 0; n <= SEQUENCES; n++) { /* both, then each alone */
        const uint32_t first = n ? (uint32_t)a->b.sequence[n - 1].first : 0;
        decoder_and_op one = *a;
        for (uint32_t i = 0; i < SEQUENCES && n; i++)
            if (i != n - 1) one.b.sequence[i].limit = one.b.sequence[i].generated;
        batch_next(&one.b, MAX_ROWS, PARTS, one.d.kv_heads, workers);
        batch_pages(&one.b, table, TABLE_PAGES, 0, 1);
        if (!n) a->b = one.b;
        one.d.qkv = one.o.d.qkv = qkv + first * width;
        one.d.b = &one.b;
        step++;
        if (one.b.rows) run_attention(&one, n, 2);
        for (uint32_t r = 0; r < one.b.rows && n; r++)
            for (uint32_t i = 0; i < columns; i++)
                CHECK_INT(attended[act_at(r, i, columns)], both[act_at(first + r, i, columns)]);
        memcpy(both, attended, n ? 0 : (size_t)2 * MAX_ROWS * columns * sizeof *both);
    }
    free(both);
}

/* With splits of a given size, the rows of a prompt have the same bits in one step and in two, however many an item takes. */
static void check_chunks(test_run *t, decoder_and_op *a, uint32_t *table, uint32_t workers,
                         uint32_t number)
{
    static const uint32_t cuts[] = {MAX_ROWS, 1, 19};
    const uint32_t width = (a->d.heads + 2 * a->d.kv_heads) * a->d.head_dim;
    const uint32_t columns = a->d.heads * a->d.head_dim;
    act_t *whole = halves(2 * MAX_ROWS * columns), *attended = a->o.d.attended;
    float *qkv = a->o.d.qkv;
    for (uint32_t i = 0; i < 3 && !t->failed_here; i++) {
        decoder_and_op one = *a;
        sequence_state *s = &one.b.sequence[0];
        one.b.split_blocks =
            5; /* more than KV groups; the first rows of a prompt of 50 have one split */
        one.b.sequence[1].limit = one.b.sequence[1].generated;
        one.b.part_rows = (3 + number - i) % 4;
        one.d.b = &one.b;
        for (uint32_t first = 0; s->position < s->prompt; first += (uint32_t)s->rows) {
            batch_next(&one.b, first ? MAX_ROWS : cuts[i], PARTS, one.d.kv_heads, workers);
            batch_pages(&one.b, table, TABLE_PAGES, 0, 1);
            one.d.qkv = one.o.d.qkv = qkv + first * width;
            step++;
            run_attention(&one, i, 2);
            for (uint32_t r = 0; r < one.b.rows && i; r++)
                for (uint32_t k = 0; k < columns; k++)
                    CHECK_INT(attended[act_at(r, k, columns)],
                              whole[act_at(first + r, k, columns)]);
            s->position += s->rows;
        }
        memcpy(whole, attended, i ? 0 : (size_t)2 * MAX_ROWS * columns * sizeof *whole);
    }
    free(whole);
}

static void check_attention(test_run *t, const attention *c, uint32_t number)
{
    const uint32_t dim = c->head_dim, width = (c->heads + 2 * c->kv_heads) * dim;
    const uint32_t group = c->heads / c->kv_heads, apart = MAX_ROWS * c->heads * dim;
    float *rope = floats_of(CONTEXT * dim), *q_norm = floats_of(dim), *k_norm = floats_of(dim);
    act_t *again = halves(2 * apart);
    uint32_t table[SEQUENCES * TABLE_PAGES];
    decoder_and_op a;
    batch *b = &a.b;
    memset(&a, 0, sizeof a);
    b->sequences = SEQUENCES;
    b->part_rows = number % 3 ? PART_QUERIES / group : 0;
    for (uint32_t n = 0; n < SEQUENCES; n++) {
        sequence_state *s = &b->sequence[n];
        s->position = c->position[n];
        s->prompt = c->position[n] + c->rows[n];
        s->limit = c->rows[n] ? 1 : 0;
    }
    batch_next(b, MAX_ROWS, PARTS, c->kv_heads, c->workers);
    fill_page_table(&a, table);
    batch_pages(b, table, TABLE_PAGES, 0, 1);

    a.d.head_dim = dim, a.d.heads = c->heads, a.d.kv_heads = c->kv_heads, a.d.context = CONTEXT;
    a.d.group = group, a.d.root = 1 / sqrtf((float)dim);
    a.d.eps = 1e-6f, a.d.two_terms = 1, a.d.max_splits = PARTS, a.d.b = b, a.d.rope = rope;
    a.d.qkv = floats_of(b->rows * width);
    a.d.kv_partials = floats_of((size_t)b->rows * c->heads * PARTS * kv_partial_size(&a.d));
    a.d.splits_done = (uint32_t *)calloc(b->rows * c->heads, sizeof *a.d.splits_done);
    a.d.attended = halves(2 * apart);
    a.o.d = a.d, a.o.q_norm = q_norm, a.o.k_norm = k_norm;
    /* no two runs have the same tags, even in the same memory */
    a.large_m = number % 2, a.o.number = 2 * number, a.o.step_tasks = OPS;
    a.o.cache = halves(layer_cache_size(&a.d));
    if (!a.d.splits_done) abort();
    for (uint32_t i = 0; i < CONTEXT * dim / 2; i++) {
        const float angle = fraction(3);
        rope[2 * i] = cosf(angle), rope[2 * i + 1] = sinf(angle);
    }
    for (uint32_t i = 0; i < dim; i++) q_norm[i] = fraction(3), k_norm[i] = fraction(2);
    for (uint32_t i = 0; i < b->rows * width; i++) a.d.qkv[i] = fraction(2);
    fill_cache(&a);

    complaint[0] = 0;
    run_attention(&a, 0, 1);
    memcpy(again, a.d.attended, (size_t)2 * apart * sizeof *again);
    memset(a.d.attended, 0xff, (size_t)2 * apart * sizeof *again);
    /* The results of the previous layer, or of this layer in the previous step, are NaN now: none
       may be used. */
    if (number % 4 == 3)
        step++;
    else
        a.o.number++;
    for (uint32_t i = 0; i < a.d.max_splits * b->rows * c->heads * KV_PARTIAL_QUADS * 4; i += 4)
        a.d.kv_partials[i] = NAN;
    move_pages(&a, table);
    run_attention(&a, 2, 3);

    if (complaint[0]) test_fail(t, __FILE__, __LINE__, "case %u: %s", number, complaint);
    CHECK(!memcmp(again, a.d.attended, (size_t)2 * apart * sizeof *again));
    for (uint32_t i = 0; i < b->rows * c->heads; i++) CHECK_INT(a.d.splits_done[i], 0);
    for (uint32_t r = 0; r < b->rows; r++)
        for (uint32_t h = 0; h < c->heads && !t->failed_here; h++) {
            const token_row *row = &b->row[r];
            const uint32_t sequence = (uint32_t)row->sequence;
            double want[MAX_HEAD_DIM], size[MAX_HEAD_DIM];
            if (h % group == 0)
                check_appended(t, &a, a.d.qkv + r * width, h / group, sequence,
                               (uint32_t)row->position);
            plain_attention(want, size, &a, sequence, h / group, a.d.qkv + r * width + h * dim,
                            (uint32_t)row->position);
            for (uint32_t i = 0; i < dim; i++) {
                const act_t *is = a.d.attended + act_at(r, h * dim + i, c->heads * dim);
                const double got = (double)float_of_act(is[0]) + (double)float_of_act(is[apart]);
                if (!(fabs(got - want[i]) <= 1e-3 * size[i] + 1e-6))
                    test_fail(t, __FILE__, __LINE__,
                              "case %u: row %u, head %u, value %u is %g, expected %g", number, r, h,
                              i, got, want[i]);
            }
        }
    if (number % 4 == 2 && !is_part() && !t->failed_here)
        check_independence(t, &a, table, c->workers);
    if (c->rows[0] > 19 && !is_part() && !t->failed_here)
        check_chunks(t, &a, table, c->workers, number);
    if (complaint[0]) test_fail(t, __FILE__, __LINE__, "case %u: %s", number, complaint);
    free(a.o.cache);
    free(a.d.attended);
    free(a.d.splits_done);
    free(a.d.kv_partials);
    free(a.d.qkv);
    free(again);
    free(k_norm);
    free(q_norm);
    free(rope);
}

/* Wherever the pages are, the bits are the same. Heads of different sizes; groups that divide a query set and that do not; one query set to
   several passes; full and partial KV blocks, older and new ones; several KV splits, more and fewer
   than are combined at a time; rows that do not see all keys of their step; more pages than the
   producer loads at once; more splits than are listed at once. */
static void attention_is_near_a_plain_one(test_run *t)
{
    static const attention cases[] = {
        {8, 1, 1, 1, {0, 0}, {1, 0}},      {16, 4, 2, 4, {63, 5}, {1, 1}},
        {24, 3, 1, 1, {64, 2}, {1, 7}},    {40, 8, 1, 1, {130, 70}, {3, 2}},
        {80, 2, 2, 3, {200, 0}, {1, 9}},   {64, 5, 1, 1, {0, 10}, {20, 1}},
        {128, 8, 2, 8, {127, 64}, {1, 2}}, {128, 2, 1, 4, {50, 50}, {40, 0}},
        {120, 20, 1, 1, {31, 0}, {2, 0}},  {128, 2, 1, 4, {300, 17}, {1, 3}},
        {128, 16, 1, 1, {65, 0}, {1, 1}},  {64, 4, 1, 12, {390, 0}, {1, 0}},
        {32, 2, 1, 8, {50, 0}, {64, 0}},   {32, 2, 1, 1, {700, 0}, {1, 0}},
        {16, 8, 8, 1, {20, 100}, {1, 2}},  {128, 8, 1, 2, {300, 130}, {2, 2}},
    };
    drawn = 3;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!has_case(i, 0, 4)) continue;
        check_attention(t, &cases[i], i);
        if (t->failed_here) return;
    }
}

/* ---- prompts ---- */

typedef struct prefill_case {
    uint32_t rows, k, columns, workers;
    uint32_t panel_tiles, inner_k;   /* of the packed weights */
    uint32_t epilogue, width, parts; /* of the tiles, that these are to be */
    uint32_t terms;
    uint32_t ranks; /* 2: of a residual layer, the summands of another rank are added; or 0 */
} prefill_case;

static void run_prefill_linear(const fleet_ctx *ctx, void *args)
{
    const fleet_status status = FLEET_TILE_OF(prefill_linear)(*ctx, (const task_args *)args);
    if (status) complain("a tile fails with status", (uint32_t)status);
}
static void run_prefill_add(const fleet_ctx *ctx, void *args)
{
    if (FLEET_TILE_OF(prefill_add)(*ctx, (const task_args *)args)) complain("a tile fails", 0);
}
static void run_prefill_linear_terms(const fleet_ctx *ctx, void *args)
{
    const fleet_status status = FLEET_TILE_OF(prefill_linear_terms)(*ctx, (const task_args *)args);
    if (status) complain("a tile fails with status", (uint32_t)status);
}
static void run_prefill_add_terms(const fleet_ctx *ctx, void *args)
{
    if (FLEET_TILE_OF(prefill_add_terms)(*ctx, (const task_args *)args))
        complain("a tile fails", 0);
}
static void run_prefill_join(const fleet_ctx *ctx, void *args)
{
    if (FLEET_TILE_OF(prefill_join)(*ctx, (const task_args *)args)) complain("a tile fails", 0);
}
static void run_prefill_join_terms(const fleet_ctx *ctx, void *args)
{
    if (FLEET_TILE_OF(prefill_join_terms)(*ctx, (const task_args *)args))
        complain("a tile fails", 0);
}
/* An activation of one or two terms. */
static double act_terms(const act_t *at, uint32_t terms)
{
    return (double)float_of_act(at[0]) + (terms == 2 ? (double)float_of_act(at[LOW_TERM]) : 0);
}
static void launch_prefill(lane_function function, void *args, uint32_t workers)
{
    threads_of_group = PREFILL_THREADS, rows_there = UINT32_MAX, complaint[0] = 0;
    streams_clear(STAGE_BYTES);
    chiplets = workers > 1 ? 2 : 1; /* of unequal size where workers are odd in number */
    for (uint32_t i = 0; i < workers; i++) launch(function, args, i, 1, workers);
    chiplets = 1, threads_of_group = THREADS;
}

/* Two ranks, of which this is the second one. Their regions have the next product's input and its
   squares, so many acts and floats, and then the parts of a rank's rows, of which the first one has
   stored its own here, all but one zeros. */
typedef struct two_ranks {
    char *regions;
    size_t bytes, sums; /* of a region; where the parts begin */
    uint32_t each;      /* rows of a rank */
} two_ranks;
static two_ranks two_ranks_begin(task_args *o, const prefill_case *p, size_t acts, size_t squares)
{
    const uint32_t columns = p->columns;
    two_ranks t;
    float *sums;
    o->d.peers.rank = 1, o->d.peers.ranks = 2;
    t.each = rows_of_rank(&o->d, p->rows);
    t.sums = (acts * sizeof(act_t) + squares * sizeof(float) + 15) / 16 * 16;
    t.bytes = t.sums + 2 * (size_t)p->parts * t.each * columns * sizeof(float);
    t.regions = (char *)malloc(2 * t.bytes);
    if (!t.regions) abort();
    memset(t.regions, 0xff, 2 * t.bytes);
    for (uint32_t r = 0; r < 2; r++) o->d.peers.bases[r] = t.regions + r * t.bytes;
    o->d.x = (act_t *)o->d.peers.bases[1], o->d.squares = (float *)(void *)(o->d.x + acts);
    sums = (float *)(void *)(t.regions + t.bytes + t.sums);
    o->summands = (fleet_quad *)(void *)sums;
    memset(sums, 0, (size_t)p->parts * t.each * columns * sizeof *sums);
    for (uint32_t r = t.each; r < p->rows; r++)
        for (uint32_t c = 0; c < columns; c++)
            sums[(r - t.each) * columns + c] = (float)summand_of_other(r, c);
    return t;
}

/* Numbers are whole and sums exact, but for the norm. Rows that do not exist are NaN. */
static void check_prefill_linear(test_run *t, const prefill_case *p, uint32_t number)
{
    const uint32_t rows = p->rows, terms = p->terms;
    const uint32_t all = ceil_div(rows * terms, PREFILL_TILE_ROWS) * PREFILL_TILE_ROWS;
    const uint32_t k = p->k, n = p->columns, padded = ceil_div(k, K_ALIGN) * K_ALIGN;
    const uint32_t tile = p->panel_tiles * TILE_N, panels = ceil_div(n, tile);
    const uint32_t is_residual = p->epilogue == EPILOGUE_RESIDUAL, hidden = is_residual ? n : k,
                   parts = squares_of(hidden);
    const size_t acts = (size_t)ceil_div(all, PREFILL_TILE_ROWS) * PREFILL_TILE_ROWS * terms;
    uint16_t *x = halves(acts * k), *weights = halves((size_t)panels * tile * padded);
    uint16_t *next = halves(acts * n);
    float *plain = floats_of((size_t)n * k), *floats = floats_of((size_t)all * n * PREFILL_PARTS);
    float *h = floats_of((size_t)all * n), *before = floats_of((size_t)all * n);
    float *norm = floats_of(n), *squares = floats_of((size_t)all * parts);
    uint8_t *marked = (uint8_t *)malloc(acts * k / BLOCK_K);
    prefill_step step_of = {.rows = rows};
    double *wants = (double *)calloc(n, sizeof *wants);
    static task_args o;
    two_ranks two = {NULL, 0, 0, 0};
    if (!marked || !wants) abort();
    memset(marked, 1, acts * k / BLOCK_K);
    memset(squares, 0, (size_t)all * parts * sizeof *squares);
    memset(weights, 0, (size_t)panels * tile * padded * 2);
    memset(&o, 0, sizeof o);
    o.shape.n = n, o.shape.k = k, o.shape.tile_n = tile, o.inner_k = p->inner_k;
    o.panel_bytes = tile * padded * 2, o.weights = weights, o.x = x, o.epilogue = p->epilogue;
    o.rmsnorm = !is_residual, o.d.qkv = o.floats = floats, o.acts = next, o.norm = norm;
    o.columns = p->epilogue == EPILOGUE_SILU ? n / 2 : n;
    o.d.hidden = hidden, o.d.eps = 1e-6f, o.d.prefill = &step_of;
    o.d.chiplets = 1, o.d.workers = p->workers;
    o.d.h = h, o.d.x = next, o.d.squares = squares;
    step_of.division[0] = prefill_divide(&o.shape, (epilogue)p->epilogue, rows, p->workers, terms);
    CHECK_INT(step_of.division[0].width, p->width);
    CHECK_INT(step_of.division[0].parts, p->parts);
    for (uint32_t i = 0; i < n; i++) norm[i] = 1 + whole_number() / 16;
    for (uint32_t i = 0; i < rows * n; i++) before[i] = h[i] = whole_number();
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < k; i++) {
            const float value = whole_number() + (terms == 2 ? whole_number() / 64 : 0);
            float *sum = &squares[r * parts + i / SQUARED_COLUMNS];
            store_act(x + prefill_at(r, i, k, terms), terms == 2 ? LOW_TERM : 0, value);
            if (!is_residual) *sum = (i % SQUARED_COLUMNS ? *sum : 0) + value * value;
        }
    for (uint32_t c = 0; c < n; c++)
        for (uint32_t i = 0; i < k; i++) {
            const uint32_t left = n / TILE_N - c / tile * p->panel_tiles;
            const uint32_t tiles =
                p->inner_k == WGMMA_K && left < p->panel_tiles ? left : p->panel_tiles;
            plain[c * k + i] = whole_number();
            weights[c / tile * (o.panel_bytes / 2) + weight_at(c % tile, i, tiles, p->inner_k)] =
                bf16_of_float(plain[c * k + i]);
        }
    memset(&may_read, 0, sizeof may_read);
    may_read.from = x, may_read.rows = (uint32_t)(acts * k / BLOCK_K), may_read.width = BLOCK_K;
    may_read.marked = marked;
    may_copy.from = weights, may_copy.values = (size_t)panels * tile * padded;
    if (p->ranks) two = two_ranks_begin(&o, p, acts * n, (size_t)all * parts);
    launch_prefill(terms == 2 ? run_prefill_linear_terms : run_prefill_linear, &o, p->workers);
    if (!complaint[0] && p->ranks)
        launch_prefill(terms == 2 ? run_prefill_join_terms : run_prefill_join, &o, p->workers);
    else if (!complaint[0] && is_residual)
        launch_prefill(terms == 2 ? run_prefill_add_terms : run_prefill_add, &o, p->workers);
    if (complaint[0]) test_fail(t, __FILE__, __LINE__, "case %u: %s", number, complaint);
    if (p->ranks && !complaint[0]) { /* both ranks have the same input, of this one's rows */
        const size_t bytes = acts * n * sizeof(act_t) + (size_t)all * parts * sizeof(float);
        CHECK(!memcmp(two.regions, two.regions + two.bytes, bytes));
        memcpy(next, o.d.x, acts * n * sizeof(act_t));
        memcpy(squares, o.d.squares, (size_t)all * parts * sizeof(float));
    }
    for (uint32_t r = 0; r < rows; r++) {
        double all_squares = 0;
        float squared = 0;
        for (uint32_t i = 0; i < k; i++) {
            const double value = act_terms(x + prefill_at(r, i, k, terms), terms);
            all_squares += value * value;
        }
        for (uint32_t c = 0; c < n && !t->failed_here; c++) {
            float got = floats[r * n + c];
            double want = 0, room;
            for (uint32_t i = 1; i < p->parts; i++) got += floats[(i * rows + r) * n + c];
            for (uint32_t i = 0; i < k; i++)
                want += act_terms(x + prefill_at(r, i, k, terms), terms) * (double)plain[c * k + i];
            if (is_residual) {
                if (p->ranks && r < two.each) { /* of the other rank, which has all parts */
                    const float *sums = (const float *)(const void *)(two.regions + two.sums);
                    double there = 0;
                    for (uint32_t i = p->parts; i < 2 * p->parts; i++)
                        there += (double)sums[(i * two.each + r) * n + c];
                    CHECK(there == want);
                    CHECK(h[r * n + c] == before[r * n + c]);
                    continue;
                }
                if (p->ranks) want += summand_of_other(r, c);
                got = h[r * n + c], want += (double)before[r * n + c];
                act_t both[LOW_TERM + 1];
                store_act(both, LOW_TERM, got * norm[c]);
                CHECK_INT(next[prefill_at(r, c, n, terms)], both[0]);
                if (terms == 2)
                    CHECK_INT(next[prefill_at(r, c, n, terms) + LOW_TERM], both[LOW_TERM]);
                squared += got * got;
                if (c % SQUARED_COLUMNS == SQUARED_COLUMNS - 1 || c == n - 1) {
                    CHECK(fabsf(squares[r * parts + c / SQUARED_COLUMNS] - squared) <=
                          1e-5f * squared);
                    squared = 0;
                }
            } else {
                want /= sqrt(all_squares / k + 1e-6);
            }
            room = is_residual ? 0 : 1e-4 * (1 + fabs(want));
            if (p->epilogue == EPILOGUE_SILU) {
                const uint32_t to = c / TILE_N * (TILE_N / 2) + c % (TILE_N / 2);
                const double gate = wants[c < TILE_N / 2 ? 0 : c - TILE_N / 2];
                wants[c] = want;
                if (c % TILE_N < TILE_N / 2) continue;
                want *= gate / (1 + exp(-gate));
                room = (terms == 2 ? 0x1p-15 : 0x1p-8) * fabs(want) + 1e-3 * (1 + fabs(gate));
                got = (float)act_terms(next + prefill_at(r, to, o.columns, terms), terms);
            }
            if (!(fabs((double)got - want) <= room))
                test_fail(t, __FILE__, __LINE__, "case %u: row %u, column %u is %g, expected %g",
                          number, r, c, (double)got, want);
        }
    }
    free(x), free(weights), free(next), free(plain), free(floats), free(h), free(before);
    free(norm), free(squares), free(marked), free(wants), free(two.regions);
    may_copy.values = 0;
}

/* Tiles of all widths, whole ones and not; rows of one tile and of two, and fewer than a group; both layouts of weights,
   with panels that tiles cut and a last one that is narrower; a last stage of weights that is half full;
   activations of two terms, with one block of rows and with two; another rank, for whose sums the
   parts are kept. */
static void prompts_products_are_exact(test_run *t)
{
    static const prefill_case cases[] = {
        {5, 64, 16, 2, 1, STAGE_K, EPILOGUE_STORE, 64, 1, 1, 0},
        {70, 192, 256, 1, 12, WGMMA_K, EPILOGUE_SILU, 128, 1, 1, 0},
        {20, 640, 256, 1, 3, STAGE_K, EPILOGUE_RESIDUAL, 128, 1, 1, 0},
        {257, 320, 272, 4, 3, STAGE_K, EPILOGUE_STORE, 192, 1, 1, 0},
        {130, 128, 192, 6, 2, STAGE_K, EPILOGUE_RESIDUAL, 64, 1, 1, 0},
        {131, 64, 512, 1, 7, WGMMA_K, EPILOGUE_RESIDUAL, 128, 1, 1, 0},
        {70, 2624, 192, 6, 2, STAGE_K, EPILOGUE_RESIDUAL, 192, 6, 1, 0},
        {140, 2112, 176, 5, 7, WGMMA_K, EPILOGUE_STORE, 192, 5, 1, 0},
        {40, 1088, 400, 3, 2, STAGE_K, EPILOGUE_SILU, 192, 1, 1, 0},
        {5, 64, 16, 2, 1, STAGE_K, EPILOGUE_STORE, 128, 1, 2, 0},
        {70, 192, 256, 1, 1, STAGE_K, EPILOGUE_SILU, 256, 1, 2, 0},
        {140, 544, 160, 2, 2, STAGE_K, EPILOGUE_RESIDUAL, 192, 1, 2, 0},
        {129, 2112, 272, 5, 3, STAGE_K, EPILOGUE_STORE, 192, 1, 2, 0},
        {30, 1600, 192, 6, 3, STAGE_K, EPILOGUE_RESIDUAL, 192, 4, 2, 0},
        {130, 128, 192, 5, 2, STAGE_K, EPILOGUE_RESIDUAL, 64, 1, 1, 2},
        {70, 2624, 192, 6, 2, STAGE_K, EPILOGUE_RESIDUAL, 192, 6, 1, 2},
        {140, 544, 160, 2, 2, STAGE_K, EPILOGUE_RESIDUAL, 192, 1, 2, 2},
    };
    drawn = 5;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (is_part() ? i != 3 : !test_in_turn(i)) continue;
        check_prefill_linear(t, &cases[i], i);
        if (t->failed_here) return;
    }
}

/* ---- prompts of models with experts ---- */

typedef struct prefill_experts_case {
    uint32_t rows, hidden, experts, top_k, ffn, norm_topk, workers;
} prefill_experts_case;

static void run_prefill_route(const fleet_ctx *ctx, void *args)
{
    if (FLEET_TILE_OF(prefill_route)(*ctx, (const task_args *)args)) complain("a tile fails", 0);
}
static void run_prefill_gather(const fleet_ctx *ctx, void *args)
{
    if (FLEET_TILE_OF(prefill_gather)(*ctx, (const task_args *)args)) complain("a tile fails", 0);
}
static void run_prefill_combine(const fleet_ctx *ctx, void *args)
{
    if (FLEET_TILE_OF(prefill_combine)(*ctx, (const task_args *)args)) complain("a tile fails", 0);
}

/* `count` matrices of n columns of k small whole numbers, packed tile by tile, and as they are: [count][n][k]. */
static uint16_t *packed_tiles(float **plain, uint32_t count, uint32_t n, uint32_t k)
{
    const uint32_t padded = ceil_div(k, K_ALIGN) * K_ALIGN, tiles = ceil_div(n, TILE_N);
    const size_t all = (size_t)count * tiles * TILE_N * padded;
    uint16_t *to = halves(all);
    memset(to, 0, all * 2);
    *plain = floats_of((size_t)count * n * k);
    for (uint32_t e = 0; e < count; e++)
        for (uint32_t c = 0; c < n; c++)
            for (uint32_t i = 0; i < k; i++) {
                const float value = (float)draw(5) - 2;
                (*plain)[((size_t)e * n + c) * k + i] = value;
                to[(size_t)(e * tiles + c / TILE_N) * TILE_N * padded +
                   weight_at(c % TILE_N, i, 1, STAGE_K)] = bf16_of_float(value);
            }
    return to;
}

/* A product of the layer. Its input has `values` values, and its weights `count` matrices. */
static void launch_expert_product(task_args *o, const act_t *x, size_t values,
                                  const uint16_t *weights, uint32_t count, uint32_t n, uint32_t k,
                                  uint32_t product, uint32_t workers)
{
    const uint32_t columns = ceil_div(n, TILE_N) * TILE_N, padded = ceil_div(k, K_ALIGN) * K_ALIGN;
    uint8_t *marked = (uint8_t *)malloc(values / BLOCK_K);
    if (complaint[0]) return;
    if (!marked) abort();
    memset(marked, 1, values / BLOCK_K);
    o->shape.n = columns, o->shape.k = k, o->shape.tile_n = TILE_N, o->inner_k = STAGE_K;
    o->panel_bytes = TILE_N * padded * 2, o->weights = weights, o->x = x, o->product = product;
    memset(&may_read, 0, sizeof may_read);
    may_read.from = x, may_read.rows = (uint32_t)(values / BLOCK_K);
    may_read.width = BLOCK_K, may_read.marked = marked;
    may_copy.from = weights, may_copy.values = (size_t)count * columns * padded;
    launch_prefill(run_prefill_linear_terms, o, workers);
    memset(&may_read, 0, sizeof may_read);
    may_copy.values = 0;
    free(marked);
}

/* What row x, [hidden], adds to the residual stream, and the sum of the absolute values of that sum's parts. first: its first
   terms, which experts multiply. */
typedef struct plain_layer {
    const float *router, *up, *down;
    const prefill_experts_case *p;
} plain_layer;
static void plain_experts(const plain_layer *l, const double *x, const double *first, double *sum,
                          double *size)
{
    const prefill_experts_case *p = l->p;
    double score[64], total = 0, row_max = -INFINITY;
    uint32_t chosen[MAX_TOP_K];
    for (uint32_t e = 0; e < p->experts; e++) {
        score[e] = 0;
        for (uint32_t i = 0; i < p->hidden; i++)
            score[e] += x[i] * (double)l->router[e * p->hidden + i];
        row_max = score[e] > row_max ? score[e] : row_max;
    }
    for (uint32_t n = 0; n < p->top_k; n++) {
        chosen[n] = p->experts;
        for (uint32_t e = 0; e < p->experts; e++) {
            uint32_t is_new = 1;
            for (uint32_t i = 0; i < n; i++) is_new &= chosen[i] != e;
            /* sums that are equal but for rounding are equal on the GPU */
            if (is_new && (chosen[n] == p->experts || score[e] > score[chosen[n]] + 1e-9))
                chosen[n] = e;
        }
        total += exp(score[chosen[n]] - row_max);
    }
    if (!p->norm_topk) total = 0;
    for (uint32_t e = 0; e < p->experts && !p->norm_topk; e++) total += exp(score[e] - row_max);
    for (uint32_t c = 0; c < p->hidden; c++) sum[c] = size[c] = 0;
    for (uint32_t n = 0; n < p->top_k; n++) {
        const double weight = exp(score[chosen[n]] - row_max) / total;
        const float *up = l->up + (size_t)chosen[n] * 2 * p->ffn * p->hidden;
        const float *down = l->down + (size_t)chosen[n] * p->hidden * p->ffn;
        for (uint32_t j = 0; j < p->ffn; j++) {
            const uint32_t at = j / (TILE_N / 2) * TILE_N + j % (TILE_N / 2);
            double both[2] = {0, 0};
            for (uint32_t i = 0; i < p->hidden; i++)
                for (uint32_t k = 0; k < 2; k++)
                    both[k] += first[i] * (double)up[(at + k * TILE_N / 2) * p->hidden + i];
            both[0] *= both[1] / (1 + exp(-both[0]));
            for (uint32_t c = 0; c < p->hidden; c++) {
                const double part = weight * both[0] * (double)down[c * p->ffn + j];
                sum[c] += part, size[c] += fabs(part);
            }
        }
    }
}

/* The layer from the router on, with so many workers: the new residual stream in h, x and squares.
   Of several ranks (o->d.peers), with this one's experts alone, whose sums go to the ranks that
   have the rows. */
static void launch_experts(const prefill_experts_case *p, task_args *o, float *h,
                           const uint16_t *router, const uint16_t *up, const uint16_t *down,
                           uint32_t workers)
{
    const uint32_t ffn = p->ffn, own = o->d.peers.ranks ? o->d.own_experts : p->experts;
    const size_t rows = ceil_div(p->rows, TERM_ROWS) * TERM_ROWS;
    const uint32_t places = expert_places(p->rows, p->top_k, p->experts);
    const size_t values = sorted_values(places, p->hidden), of_gated = sorted_values(places, ffn);
    act_t *sorted = halves(values), *gated = halves(of_gated);
    float *results = floats_of((size_t)places * p->hidden);
    memset(sorted, 0, values * 2), memset(gated, 0, of_gated * 2); /* as prefill_buffers does */
    o->d.h = h, complaint[0] = 0;
    o->epilogue = EPILOGUE_STORE, o->floats = o->d.qkv, o->rmsnorm = 1;
    o->columns = ceil_div(p->experts, TILE_N) * TILE_N;
    launch_expert_product(o, o->d.x, rows * p->hidden * TERMS, router, 1, p->experts, p->hidden,
                          PREFILL_ROUTER, workers);
    if (!complaint[0]) launch_prefill(run_prefill_route, o, workers);
    o->acts = sorted;
    if (!complaint[0]) launch_prefill(run_prefill_gather, o, workers);
    o->epilogue = EPILOGUE_SILU, o->acts = gated, o->columns = ffn, o->rmsnorm = 0;
    launch_expert_product(o, sorted, values, up, own, 2 * p->ffn, p->hidden, PREFILL_EXPERT_UP,
                          workers);
    o->epilogue = EPILOGUE_STORE, o->floats = results, o->columns = p->hidden;
    launch_expert_product(o, gated, of_gated, down, own, p->hidden, ffn, PREFILL_EXPERT_DOWN,
                          workers);
    if (o->d.peers.ranks) o->summands = (fleet_quad *)o->d.peers.bases[o->d.peers.rank];
    if (!complaint[0]) launch_prefill(run_prefill_combine, o, workers);
    o->summands = NULL;
    free(sorted), free(gated), free(results);
}

/* The first values of a matrix of n columns of k, of several that were packed tile by tile. */
static const uint16_t *packed_matrix(const uint16_t *from, uint32_t which, uint32_t n, uint32_t k)
{
    return from + (size_t)which * ceil_div(n, TILE_N) * TILE_N * (ceil_div(k, K_ALIGN) * K_ALIGN);
}
/* Three ranks, of which the last one may have no experts: the sums that they store to the ranks
   that have the rows add up to `wants`. */
static void check_ranks_of_experts(test_run *t, const prefill_experts_case *p, task_args *o,
                                   const uint16_t *router, const uint16_t *up, const uint16_t *down,
                                   const float *before, const double *wants, const double *sizes,
                                   uint32_t number)
{
    const uint32_t each = ceil_div(p->experts, 3);
    const size_t shared = (size_t)ceil_div(ceil_div(p->rows, 3), SHARED_ROWS) * SHARED_ROWS,
                 part = shared * p->hidden;
    float *regions = floats_of(3 * 3 * part);
    for (uint32_t r = 0; r < 3 && !complaint[0]; r++) {
        const uint32_t first = r * each, left = p->experts > first ? p->experts - first : 0;
        o->d.peers.ranks = 3, o->d.peers.rank = r;
        for (uint32_t i = 0; i < 3; i++) o->d.peers.bases[i] = regions + i * 3 * part;
        o->d.first_expert = first, o->d.own_experts = left < each ? left : each;
        launch_experts(p, o, o->d.h, router,
                       packed_matrix(up, left ? first : 0, 2 * p->ffn, p->hidden),
                       packed_matrix(down, left ? first : 0, p->hidden, p->ffn), p->workers);
    }
    for (size_t i = 0; i < (size_t)p->rows * p->hidden && !complaint[0] && !t->failed_here; i++) {
        const float *at = regions + i / part * 3 * part + i % part;
        const double sum =
            (double)before[i] + (double)at[0] + (double)at[part] + (double)at[2 * part];
        if (!(fabs(sum - wants[i]) <= 0x1.02p-8 * sizes[i] + 1e-4))
            test_fail(t, __FILE__, __LINE__, "case %u, three ranks: value %u is %g, expected %g",
                      number, (uint32_t)i, sum, wants[i]);
    }
    memset(&o->d.peers, 0, sizeof o->d.peers);
    free(regions);
}

static void check_prefill_experts(test_run *t, const prefill_experts_case *p, uint32_t number)
{
    const uint32_t rows = p->rows, hidden = p->hidden, parts = squares_of(hidden);
    const size_t all = (size_t)ceil_div(rows, TERM_ROWS) * TERM_ROWS * hidden;
    float *plain[3], *h = floats_of(all), *again = floats_of(all), *before = floats_of(all);
    float *squares = floats_of((size_t)rows * parts), *norm = floats_of(hidden);
    act_t *x = halves(all * TERMS);
    uint16_t *router = packed_tiles(&plain[0], 1, p->experts, hidden),
             *up = packed_tiles(&plain[1], p->experts, 2 * p->ffn, hidden),
             *down = packed_tiles(&plain[2], p->experts, hidden, p->ffn);
    double *of_row = (double *)calloc(3 * (size_t)hidden, sizeof *of_row), *sum = of_row + hidden,
           *first = sum + hidden;
    double *wants = (double *)calloc((size_t)rows * hidden, sizeof *wants);
    double *sizes = (double *)calloc((size_t)rows * hidden, sizeof *sizes);
    prefill_step step_of = {.rows = rows};
    const plain_layer l = {plain[0], plain[1], plain[2], p};
    static task_args o;
    if (!of_row || !wants || !sizes) abort();
    memset(&o, 0, sizeof o);
    o.d.hidden = hidden, o.d.experts = p->experts, o.d.top_k = p->top_k, o.d.eps = 1e-6f;
    o.d.norm_topk = p->norm_topk, o.d.prefill = &step_of, o.d.chiplets = 1;
    o.d.workers = p->workers, o.d.x = x, o.d.squares = squares, o.norm = norm;
    o.d.qkv =
        floats_of((size_t)rows * (ceil_div(p->experts, TILE_N) * TILE_N * PREFILL_PARTS + hidden));
    o.d.prefill_routes = malloc(prefill_routes_bytes(p->top_k, p->experts));
    if (!o.d.prefill_routes) abort();
    memset(o.d.prefill_routes, 0xff, prefill_routes_bytes(p->top_k, p->experts));
    o.shape.n = ceil_div(p->experts, TILE_N) * TILE_N, o.shape.k = hidden;
    step_of.division[PREFILL_ROUTER] =
        prefill_divide(&o.shape, EPILOGUE_STORE, rows, p->workers, TERMS);
    o.shape.n = 2 * p->ffn;
    step_of.division[PREFILL_EXPERT_UP] =
        prefill_divide_expert(&o.shape, rows, p->top_k, p->experts);
    o.shape.n = hidden, o.shape.k = p->ffn;
    step_of.division[PREFILL_EXPERT_DOWN] =
        prefill_divide_expert(&o.shape, rows, p->top_k, p->experts);
    for (uint32_t c = 0; c < hidden; c++) norm[c] = 1 + whole_number() / 16;
    for (uint32_t r = 0; r < rows; r++) {
        double squared = 0, scale;
        for (uint32_t i = 0; i < hidden; i++) {
            const double value = (double)(whole_number() + whole_number() / 64);
            store_act(x + prefill_at(r, i, hidden, TERMS), LOW_TERM, (float)value);
            of_row[i] = value, before[r * hidden + i] = whole_number();
            first[i] = (double)float_of_act(x[prefill_at(r, i, hidden, TERMS)]);
        }
        for (uint32_t i = 0; i < parts; i++)
            squared += (double)(squares[r * parts + i] = i < hidden / SQUARED_COLUMNS ? 600 : 0);
        scale = 1 / sqrt(squared / hidden + 1e-6);
        for (uint32_t i = 0; i < hidden; i++) of_row[i] *= scale, first[i] *= scale;
        plain_experts(&l, of_row, first, sum, sizes + r * hidden);
        for (uint32_t c = 0; c < hidden; c++)
            wants[r * hidden + c] = sum[c] + (double)before[r * hidden + c];
    }
    memcpy(h, before, all * sizeof *h), memcpy(again, before, all * sizeof *h);
    {
        act_t *kept = halves(all * TERMS);
        float *kept_squares = floats_of((size_t)rows * parts);
        memcpy(kept, x, all * TERMS * 2);
        memcpy(kept_squares, squares, (size_t)rows * parts * 4);
        launch_experts(p, &o, again, router, up, down, 1);
        memcpy(x, kept, all * TERMS * 2);
        memcpy(squares, kept_squares, (size_t)rows * parts * 4);
        if (!complaint[0])
            check_ranks_of_experts(t, p, &o, router, up, down, before, wants, sizes, number);
        free(kept), free(kept_squares);
    }
    if (!complaint[0]) launch_experts(p, &o, h, router, up, down, p->workers);
    if (complaint[0]) test_fail(t, __FILE__, __LINE__, "case %u: %s", number, complaint);
    for (uint32_t r = 0; r < rows; r++) {
        float squared = 0;
        for (uint32_t c = 0; c < hidden && !t->failed_here; c++) {
            const float got = h[r * hidden + c];
            const double want = wants[r * hidden + c];
            act_t both[LOW_TERM + 1];
            store_act(both, LOW_TERM, got * norm[c]);
            /* what experts multiply by their down weights is rounded to one term */
            if (!(fabs((double)got - want) <= 0x1.02p-8 * sizes[r * hidden + c] + 1e-4))
                test_fail(t, __FILE__, __LINE__, "case %u: row %u, column %u is %g, expected %g",
                          number, r, c, (double)got, want);
            CHECK(again[r * hidden + c] == got);
            CHECK_INT(x[prefill_at(r, c, hidden, TERMS)], both[0]);
            CHECK_INT(x[prefill_at(r, c, hidden, TERMS) + LOW_TERM], both[LOW_TERM]);
            squared += got * got;
            if (c % SQUARED_COLUMNS < SQUARED_COLUMNS - 1) continue;
            CHECK(fabsf(squares[r * parts + c / SQUARED_COLUMNS] - squared) <= 1e-5f * squared);
            squared = 0;
        }
    }
    for (uint32_t i = 0; i < 3; i++) free(plain[i]);
    free(h), free(again), free(before), free(squares), free(norm), free(x), free(router), free(up);
    free(down), free(of_row), free(wants), free(sizes), free(o.d.qkv), free(o.d.prefill_routes);
}

/* Experts without rows, with few and with more than a tile, of either size; fewer than lanes and more; scores in parts; both
   kinds of weights; widths of an expert that are no whole stages; tiles of all widths. With one worker or several, the bits are the same. */
static void prompts_experts_are_added_up(test_run *t)
{
    static const prefill_experts_case cases[] = {
        {3, 64, 4, 1, 32, 1, 2},   {12, 128, 40, 2, 32, 0, 2}, {150, 64, 2, 2, 64, 1, 2},
        {70, 96, 3, 2, 160, 1, 3}, {20, 544, 4, 3, 32, 0, 4},  {300, 64, 1, 1, 32, 1, 2},
        {180, 32, 4, 2, 64, 0, 3},
    };
    drawn = 8;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (is_part() ? i : !test_in_turn(i)) continue;
        check_prefill_experts(t, &cases[i], i);
        if (t->failed_here) return;
    }
}

static void run_prefill_heads(const fleet_ctx *ctx, void *args)
{
    if (FLEET_TILE_OF(prefill_heads)(*ctx, (const task_args *)args)) complain("a tile fails", 0);
}
static void run_prefill_attend(const fleet_ctx *ctx, void *args)
{
    if (FLEET_TILE_OF(prefill_attend)(*ctx, (const task_args *)args)) complain("a tile fails", 0);
}

static void run_wide_attend(const fleet_ctx *ctx, void *args)
{
    if (FLEET_TILE_OF(wide_attend)(*ctx, (const task_args *)args)) complain("a tile fails", 0);
}

typedef struct prefill_attention {
    uint32_t head_dim, heads, kv_heads, workers;
    uint32_t parts; /* of queries, keys and values, as their product leaves them */
    uint32_t position[SEQUENCES], rows[SEQUENCES];
    uint32_t is_wide; /* 1: that of decode_wide, whose sequences have a row each */
} prefill_attention;

static void check_prefill_attention(test_run *t, const prefill_attention *c, uint32_t number)
{
    const uint32_t dim = c->head_dim, width = (c->heads + 2 * c->kv_heads) * dim;
    const uint32_t group = c->heads / c->kv_heads, rows = c->rows[0] + c->rows[1];
    const uint32_t block_rows = PREFILL_QUERIES / group;
    const size_t values =
        (size_t)ceil_div(rows, PREFILL_TILE_ROWS) * PREFILL_TILE_ROWS * c->heads * dim;
    float *rope = floats_of(CONTEXT * dim), *q_norm = floats_of(dim), *k_norm = floats_of(dim);
    float *qkv = floats_of(rows * width);
    uint32_t table[SEQUENCES * TABLE_PAGES], n_rows = 0, n_blocks = 0;
    token_row *row = (token_row *)calloc(rows, sizeof *row);
    prefill_block *blocks = (prefill_block *)calloc(rows, sizeof *blocks);
    prefill_step step_of = {.rows = rows};
    decoder_and_op a;
    if (!row || !blocks) abort();
    memset(&a, 0, sizeof a);
    a.b.sequences = SEQUENCES;
    for (uint32_t i = 0; i < SEQUENCES; i++) a.b.sequence[i].position = (int32_t)c->position[i];
    fill_page_table(&a, table);
    for (uint32_t i = 0; i < SEQUENCES; i++)
        for (uint32_t r = 0; r < c->rows[i]; r++, n_rows++) {
            const uint32_t line = a.b.sequence[i].table_row;
            prefill_block *block = &blocks[n_blocks - (r % block_rows != 0)];
            if (r % block_rows == 0) {
                n_blocks++;
                block->row = n_rows, block->table_row = line, block->position = c->position[i] + r;
            }
            block->rows++;
            row[n_rows].sequence = (int32_t)i, row[n_rows].position = (int32_t)(c->position[i] + r);
            row[n_rows].page = table[line * TABLE_PAGES + (c->position[i] + r) / PAGE_TOKENS];
        }
    step_of.blocks = n_blocks;
    a.d.head_dim = dim, a.d.heads = c->heads, a.d.kv_heads = c->kv_heads, a.d.context = CONTEXT;
    a.d.group = group, a.d.root = 1 / sqrtf((float)dim), a.d.eps = 1e-6f, a.d.b = &a.b;
    a.d.rope = rope, a.d.prefill = &step_of, a.d.prefill_rows = row, a.d.prefill_blocks = blocks;
    a.d.qkv = floats_of(c->parts * rows * width), a.d.attended = halves(values);
    step_of.division[PREFILL_QKV].parts = c->parts;
    a.o.q_norm = q_norm, a.o.k_norm = k_norm, a.o.cache = halves(layer_cache_size(&a.d));
    for (uint32_t i = 0; i < CONTEXT * dim / 2; i++) {
        const float angle = fraction(3);
        rope[2 * i] = cosf(angle), rope[2 * i + 1] = sinf(angle);
    }
    for (uint32_t i = 0; i < dim; i++) q_norm[i] = fraction(3), k_norm[i] = fraction(2);
    for (uint32_t i = 0; i < rows * width; i++) qkv[i] = a.d.qkv[i] = fraction(2);
    for (uint32_t i = rows * width; i < c->parts * rows * width; i++)
        qkv[i % (rows * width)] += a.d.qkv[i] = fraction(2);
    fill_cache(&a);
    a.o.d = a.d;
    may_copy.from = a.o.cache, may_copy.values = layer_cache_size(&a.d);
    memset(&may_read, 0, sizeof may_read);
    if (c->is_wide) {
        launch_prefill(run_wide_attend, &a.o, c->workers);
    } else {
        launch_prefill(run_prefill_heads, &a.o, c->workers);
        if (!complaint[0]) launch_prefill(run_prefill_attend, &a.o, c->workers);
    }
    if (complaint[0]) test_fail(t, __FILE__, __LINE__, "case %u: %s", number, complaint);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t head = 0; head < c->heads && !t->failed_here; head++) {
            const uint32_t sequence = (uint32_t)row[r].sequence,
                           position = (uint32_t)row[r].position;
            double want[MAX_HEAD_DIM], size[MAX_HEAD_DIM];
            if (head % group == 0)
                check_appended(t, &a, qkv + r * width, head / group, sequence, position);
            plain_attention(want, size, &a, sequence, head / group, qkv + r * width + head * dim,
                            position);
            for (uint32_t i = 0; i < dim; i++) {
                const double got = (double)float_of_act(
                    a.d.attended[prefill_at(r, head * dim + i, c->heads * dim, 1)]);
                if (!(fabs(got - want[i]) <= 1e-3 * size[i] + 0x1p-8 * fabs(want[i]) + 1e-6))
                    test_fail(t, __FILE__, __LINE__,
                              "case %u: row %u, head %u, value %u is %g, expected %g", number, r,
                              head, i, got, want[i]);
            }
        }
    free(a.o.cache), free(a.d.attended), free(a.d.qkv), free(qkv), free(k_norm), free(q_norm);
    free(rope), free(row), free(blocks);
    may_copy.values = 0;
}

/* Heads of different sizes, groups that divide a block of queries and that do not, one block and several, sequences that
   begin within a page, several stages, more items of one stage than stages of the ring, and parts of queries, keys and values. */
static void prompts_attention_is_near_a_plain_one(test_run *t)
{
    static const prefill_attention cases[] = {
        {16, 2, 1, 1, 1, {0, 0}, {1, 70}, 0},   {128, 4, 1, 1, 1, {110, 0}, {35, 3}, 0},
        {40, 8, 1, 2, 1, {545, 3}, {2, 30}, 0}, {64, 5, 1, 1, 1, {14, 0}, {40, 0}, 0},
        {16, 4, 4, 1, 1, {0, 0}, {3, 40}, 0},   {32, 3, 3, 3, 4, {5, 0}, {7, 9}, 0},
    };
    drawn = 6;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (is_part() && i) continue;
        check_prefill_attention(t, &cases[i], i);
        if (t->failed_here) return;
    }
}

/* Likewise where each sequence has a row; with more items than warps, fewer pages than stages, a row that begins a page and
   one that ends one, groups of one and of eight, and parts. */
static void wide_attention_is_near_a_plain_one(test_run *t)
{
    static const prefill_attention cases[] = {
        {128, 8, 2, 1, 1, {560, 15}, {1, 1}, 1}, {16, 8, 1, 2, 1, {0, 16}, {1, 1}, 1},
        {40, 5, 5, 1, 3, {100, 95}, {1, 1}, 1},  {64, 15, 3, 1, 2, {33, 47}, {1, 1}, 1},
        {16, 12, 12, 3, 1, {40, 7}, {1, 1}, 1},
    };
    drawn = 8;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (is_part() && i != 3) continue;
        check_prefill_attention(t, &cases[i], i);
        if (t->failed_here) return;
    }
}

static void run_prefill_embed(const fleet_ctx *ctx, void *args)
{
    if (FLEET_TILE_OF(prefill_embed)(*ctx, (const task_args *)args)) complain("a tile fails", 0);
}
static void run_prefill_keep(const fleet_ctx *ctx, void *args)
{
    if (FLEET_TILE_OF(prefill_keep)(*ctx, (const task_args *)args)) complain("a tile fails", 0);
}
/* Rows are embedded, and those of last tokens kept. */
static void prompts_are_embedded(test_run *t)
{
    enum { ROWS = 9, HIDDEN = 192, TOKENS = 7, PARTS_OF_ROW = 8 };
    static task_args o;
    static token_row row[ROWS];
    static bf16 embedding[TOKENS * HIDDEN];
    static float h[ROWS * HIDDEN] __attribute__((aligned(16))), squares[ROWS * PARTS_OF_ROW];
    static float norm[HIDDEN] __attribute__((aligned(16)));
    static act_t x[PREFILL_TILE_ROWS * HIDDEN] __attribute__((aligned(16)));
    static float last[3 * HIDDEN] __attribute__((aligned(16)));
    const prefill_end ends[] = {{9, 9}, {2, 0}, {0, 5}};
    prefill_step step_of = {.rows = ROWS, .ends = 2, .first_end = 1};
    drawn = 7;
    memset(&o, 0, sizeof o);
    o.d.hidden = HIDDEN, o.d.embedding = embedding, o.d.h = h, o.d.x = x, o.d.squares = squares;
    o.d.prefill = &step_of, o.d.prefill_rows = row, o.norm = norm;
    for (uint32_t i = 0; i < HIDDEN; i++) norm[i] = 1 + whole_number() / 16;
    for (uint32_t i = 0; i < TOKENS * HIDDEN; i++) embedding[i] = bf16_of_float(whole_number());
    for (uint32_t r = 0; r < ROWS; r++) row[r].token = (int32_t)draw(TOKENS);
    o.d.prefill_ends = ends, o.d.prefill_last = last;
    launch_prefill(run_prefill_embed, &o, 2);
    if (!complaint[0]) launch_prefill(run_prefill_keep, &o, 2);
    CHECK(!memcmp(last + 2 * HIDDEN, h, HIDDEN * sizeof *h));
    CHECK(!memcmp(last, h + 5 * HIDDEN, HIDDEN * sizeof *h));
    CHECK(last[HIDDEN] == 0);
    if (complaint[0]) test_fail(t, __FILE__, __LINE__, "%s", complaint);
    for (uint32_t r = 0; r < ROWS; r++) {
        float squared = 0;
        for (uint32_t c = 0; c < HIDDEN; c++) {
            const float want = float_of_bf16(embedding[(uint32_t)row[r].token * HIDDEN + c]);
            CHECK(h[r * HIDDEN + c] == want);
            CHECK_INT(x[prefill_at(r, c, HIDDEN, 1)], bf16_of_float(want * norm[c]));
            squared += want * want;
            if (c % SQUARED_COLUMNS < SQUARED_COLUMNS - 1 && c < HIDDEN - 1) continue;
            CHECK(squares[r * PARTS_OF_ROW + c / SQUARED_COLUMNS] == squared);
            squared = 0;
        }
    }
}

/* Every chunk of k's of every panel has one worker, and every tile of a shared panel one that reduces it, with the layers
   of all published sizes and of some others, on GPUs of several sizes, whatever panels the layout chooses. */
typedef struct model_size {
    uint32_t hidden, heads, kv_heads,
        ffn; /* heads of 128; ffn: of an expert, where there are experts */
    uint32_t experts;
} model_size;
static void check_division(test_run *t, uint32_t n, uint32_t k, uint32_t panel_tiles,
                           uint32_t workers)
{
    static unsigned char chunk_taken[1 << 20], tile_taken[1 << 14];
    task_args o;
    fleet_ctx ctx;
    uint32_t panels, chunks = ceil_div(k, CHUNK_K), wrong = 0;
    memset(&o, 0, sizeof o), memset(&ctx, 0, sizeof ctx);
    o.shape.m = MAX_ROWS, o.shape.n = ceil_div(n, TILE_N) * TILE_N, o.shape.k = k;
    o.shape.tile_m = MAX_ROWS, o.shape.tile_n = panel_tiles * TILE_N, o.shape.tile_k = BLOCK_K;
    o.shape.element_bytes = 2, o.shape.split = FLEET_SPLIT_N;
    o.shape.traversal = FLEET_TRAVERSAL_M_MAJOR;
    o.first_worker = n % 1000;
    panels = ceil_div(o.shape.n, o.shape.tile_n);
    CHECK(panels * chunks <= sizeof chunk_taken && o.shape.n / TILE_N <= sizeof tile_taken);
    if (t->failed_here) return;
    memset(chunk_taken, 0, panels * chunks), memset(tile_taken, 0, sizeof tile_taken);
    for (uint32_t w = 0; w < workers; w++) {
        large_m_share s;
        set_worker(&ctx, w, workers);
        s = large_m_share_of(&o, &ctx);
        wrong += s.k_splits > workers || s.chunk_end > chunks || s.k_split >= s.k_splits;
        for (uint32_t panel = s.panel; panel < s.panel_end && !wrong; panel += s.panel_step) {
            const uint32_t tiles = panel_tiles_at(&o, panel),
                           end = tiles * (s.k_split + 1) / s.k_splits;
            wrong += panel >= panels || tiles > panel_tiles;
            for (uint32_t c = s.chunk; c < s.chunk_end && !wrong; c++)
                wrong += chunk_taken[panel * chunks + c]++ != 0;
            for (uint32_t i = tiles * s.k_split / s.k_splits; i < end && !wrong; i++)
                wrong += tile_taken[panel * panel_tiles + i]++ != 0;
        }
    }
    for (uint32_t i = 0; i < panels * chunks; i++) wrong += !chunk_taken[i];
    for (uint32_t i = 0; i < o.shape.n / TILE_N; i++) wrong += !tile_taken[i];
    if (wrong)
        test_fail(t, __FILE__, __LINE__,
                  "a layer of %u by %u, in panels of %u tiles, is not divided once by %u workers",
                  n, k, panel_tiles, workers);
}
/* Of no layer the busiest worker copies 1.6 times as much as if panels could be divided evenly, with rows for the widest ones. */
static void check_panels(test_run *t, uint32_t n, uint32_t workers)
{
    const uint32_t panel_tiles = large_m_panel_tiles(n, workers), most = LARGE_M_PANEL_TILES;
    const double even = (double)n / TILE_N / workers * (1.0 / 2 + (double)ROWS_AS_STAGES / most);
    const uint32_t stages = large_m_stages(n, panel_tiles, workers);
    if (2 * ceil_div(n, most * TILE_N) > workers && stages > 1.6 * even)
        test_fail(t, __FILE__, __LINE__,
                  "of %u columns in panels of %u tiles the busiest of %u workers copies %u stages, "
                  "evenly divided they would be %.1f",
                  n, panel_tiles, workers, stages, even);
}
static void layers_of_all_sizes_are_divided_once(test_run *t)
{
    static const model_size sizes[] = {
        /* published, from 0.6B to 32B, 30B-A3B and 235B-A22B */
        {1024, 16, 8, 3072, 0},
        {2048, 16, 8, 6144, 0},
        {2560, 32, 8, 9728, 0},
        {4096, 32, 8, 12288, 0},
        {5120, 40, 8, 17408, 0},
        {5120, 64, 8, 25600, 0},
        {2048, 32, 4, 768, 128},
        {4096, 64, 4, 1536, 128},
        /* others */
        {1536, 12, 2, 8960, 0},
        {3584, 28, 4, 18944, 0},
        {6144, 48, 8, 16384, 0},
        {640, 5, 1, 1728, 0},
        {2048, 16, 16, 704, 48},
        {6144, 40, 8, 2560, 160},
    };
    static const uint32_t workers[] = {132, 114, 108, 78, 60};
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const model_size *m = &sizes[i];
        const uint32_t q = m->heads * 128, kv = m->kv_heads * 128,
                       ffn = m->experts ? m->experts : m->ffn;
        const uint32_t layers[][2] = {{q + 2 * kv, m->hidden},
                                      {m->hidden, q},
                                      {m->experts ? ffn : 2 * ffn, m->hidden},
                                      {m->hidden, m->ffn},
                                      {151936, m->hidden}};
        for (uint32_t j = 0; j < 5; j++)
            for (uint32_t w = 0; w < sizeof workers / sizeof *workers; w++) {
                check_panels(t, ceil_div(layers[j][0], TILE_N) * TILE_N, workers[w]);
                for (uint32_t panel_tiles = 1;
                     panel_tiles <= LARGE_M_PANEL_TILES && !t->failed_here; panel_tiles++)
                    check_division(t, layers[j][0], layers[j][1], panel_tiles, workers[w]);
            }
    }
}

static void run_wide_head(const fleet_ctx *ctx, void *args)
{
    if (FLEET_TILE_OF(wide_head)(*ctx, (const task_args *)args)) complain("a tile fails", 0);
}
static fleet_status ended;
static void run_wide_next(const fleet_ctx *ctx, void *args)
{
    const fleet_status status = FLEET_TILE_OF(wide_next)(*ctx, (const task_args *)args);
    if (ctx->thread == 0) ended = status;
}

/* Steps of decode_wide, but for its layers: the head finds the largest logit of each row, of equal ones the first token's, and
   rows go on until their sequences end, by a limit or a token. Products are exact. */
typedef struct wide_case {
    uint32_t sequences, hidden, vocab, workers;
} wide_case;
static void check_wide_steps(test_run *t, const wide_case *c, uint32_t number)
{
    enum { STEPS = 3, LINE = CONTEXT + 1, EOS = 1 };
    const uint32_t n = c->sequences, k = c->hidden, columns = ceil_div(c->vocab, TILE_N) * TILE_N;
    const uint32_t padded_k = ceil_div(k, K_ALIGN) * K_ALIGN, parts = squares_of(k);
    uint16_t *x = halves((size_t)PREFILL_TILE_ROWS * k),
             *weights = halves((size_t)columns * padded_k);
    float *plain = floats_of((size_t)columns * k), *squares = floats_of((size_t)n * parts);
    uint8_t *marked = (uint8_t *)malloc((size_t)PREFILL_TILE_ROWS * k / BLOCK_K);
    static batch all[MAX_ROUNDS];
    static int32_t tokens[MAX_SEQUENCES * LINE], generated[MAX_SEQUENCES * STEPS];
    static uint32_t table[MAX_SEQUENCES * TABLE_PAGES];
    static token_row row[PREFILL_TILE_ROWS];
    static prefill_block block[PREFILL_TILE_ROWS];
    float *best = floats_of((size_t)c->workers * PREFILL_TILE_ROWS);
    int32_t *best_token =
        (int32_t *)calloc((size_t)c->workers * PREFILL_TILE_ROWS, sizeof *best_token);
    prefill_step step_of = {.rows = n, .blocks = n};
    uint32_t running = n;
    static task_args o;
    if (!best_token || !marked) abort();
    memset(marked, 1, (size_t)PREFILL_TILE_ROWS * k / BLOCK_K);
    memset(squares, 0, (size_t)n * parts * sizeof *squares);
    memset(weights, 0, (size_t)columns * padded_k * 2);
    memset(all, 0, sizeof all);
    memset(&o, 0, sizeof o);
    o.shape.n = columns, o.shape.k = k, o.shape.tile_n = TILE_N, o.inner_k = STAGE_K;
    o.panel_bytes = TILE_N * padded_k * 2, o.weights = weights, o.x = x;
    o.epilogue = EPILOGUE_ARGMAX, o.product = PREFILL_HEAD, o.rmsnorm = 1;
    o.d.hidden = k, o.d.eps = 1e-6f, o.d.vocab = c->vocab, o.d.squares = squares;
    o.d.prefill = &step_of, o.d.prefill_rows = row, o.d.prefill_blocks = block;
    o.d.prefill_stays = 1, o.d.chiplets = 1, o.d.workers = c->workers;
    o.d.best = best, o.d.best_token = best_token, o.d.b = all, o.d.limit = STEPS;
    o.d.tokens = tokens, o.d.context = CONTEXT, o.d.generated = generated;
    o.d.page_table = table, o.d.table_pages = TABLE_PAGES;
    step_of.division[PREFILL_HEAD] = prefill_divide(&o.shape, EPILOGUE_ARGMAX, n, c->workers, 1);
    CHECK_INT(step_of.division[PREFILL_HEAD].parts, 1);
    for (uint32_t i = 0; i < c->workers * PREFILL_TILE_ROWS; i++) best[i] = -INFINITY;
    for (uint32_t i = 0; i < MAX_SEQUENCES * TABLE_PAGES; i++) table[i] = i * 7 + 1;
    for (uint32_t i = 0; i < MAX_SEQUENCES * LINE; i++) tokens[i] = (int32_t)draw(1000) + 5000;
    for (uint32_t i = 0; i < MAX_ROUNDS; i++) all[i].n_eos = 1, all[i].eos[0] = EOS;
    for (uint32_t r = 0; r < n; r++) { /* the rows are of the sequences from the last one on */
        const uint32_t i = n - 1 - r;
        sequence_state *s = sequence_of(all, i);
        s->position = (int32_t)draw(40), s->limit = 1 + (int32_t)draw(STEPS);
        s->known = s->position + 1 + (i % 5 == 0); /* of some the first token is known */
        s->table_row = (i + 3) % n;
        row[r].sequence = (int32_t)i, row[r].position = s->position;
        block[r].row = r, block[r].rows = 1, block[r].position = (uint32_t)s->position;
        block[r].table_row = s->table_row;
    }
    /* Weights of few values, so that many logits are equal. */
    for (uint32_t j = 0; j < columns; j++)
        for (uint32_t i = 0; i < k; i++) {
            plain[j * k + i] = j < c->vocab ? (float)draw(3) - 1 : 9;
            weights[j / TILE_N * (o.panel_bytes / 2) + weight_at(j % TILE_N, i, 1, STAGE_K)] =
                bf16_of_float(plain[j * k + i]);
        }
    memset(&may_read, 0, sizeof may_read);
    may_read.from = x, may_read.rows = PREFILL_TILE_ROWS * k / BLOCK_K, may_read.width = BLOCK_K;
    may_read.marked = marked;
    may_copy.from = weights, may_copy.values = (size_t)columns * padded_k;
    for (uint32_t turn = 0; running && !t->failed_here; turn++) {
        batch before[MAX_ROUNDS];
        token_row was[PREFILL_TILE_ROWS];
        uint32_t left = 0;
        memcpy(before, all, sizeof before), memcpy(was, row, sizeof was);
        for (uint32_t r = 0; r < running; r++)
            for (uint32_t i = 0; i < k; i++) {
                const float value = (float)draw(5) - 2;
                float *sum = &squares[r * parts + i / SQUARED_COLUMNS];
                x[prefill_at(r, i, k, 1)] = bf16_of_float(value);
                *sum = (i % SQUARED_COLUMNS ? *sum : 0) + value * value;
            }
        finishes = 0;
        launch_prefill(run_wide_head, &o, c->workers);
        if (!complaint[0]) launch_prefill(run_wide_next, &o, 1);
        if (complaint[0]) test_fail(t, __FILE__, __LINE__, "case %u: %s", number, complaint);
        CHECK_INT(ended, FLEET_OK);
        for (uint32_t r = 0; r < running && !t->failed_here; r++) {
            const uint32_t i = (uint32_t)was[r].sequence;
            const sequence_state *s = sequence_of(all, i), *old = sequence_of(before, i);
            const int32_t position = old->position + 1;
            double most = -INFINITY;
            int32_t want = 0;
            for (uint32_t j = 0; j < c->vocab; j++) {
                double logit = 0;
                for (uint32_t e = 0; e < k; e++)
                    logit +=
                        (double)float_of_bf16(x[prefill_at(r, e, k, 1)]) * (double)plain[j * k + e];
                if (logit > most) most = logit, want = (int32_t)j;
            }
            CHECK_INT(generated[i * STEPS + (uint32_t)old->generated], want);
            CHECK_INT(s->generated, old->generated + 1);
            CHECK_INT(s->position, position);
            CHECK_INT(s->limit, position >= s->known && want == EOS ? s->generated : old->limit);
            if (s->generated == s->limit) continue;
            CHECK_INT(row[left].sequence, i);
            CHECK_INT(row[left].position, position);
            CHECK_INT(row[left].token,
                      position < s->known ? tokens[i * LINE + (uint32_t)position] : want);
            CHECK_INT(row[left].page,
                      table[s->table_row * TABLE_PAGES + (uint32_t)position / PAGE_TOKENS]);
            CHECK_INT(block[left].row, left);
            CHECK_INT(block[left].position, position);
            CHECK_INT(block[left].table_row, s->table_row);
            left++;
        }
        CHECK_INT(step_of.rows, left);
        CHECK_INT(step_of.blocks, left);
        CHECK_INT(finishes, left ? 0 : PREFILL_THREADS);
        running = left;
    }
    /* A logit that is not finite ends the launch, and its sequence is named. */
    step_of.rows = n;
    for (uint32_t r = 0; r < n; r++)
        row[r].sequence = (int32_t)r, sequence_of(all, r)->generated = 0;
    for (uint32_t i = 0; i < c->workers * PREFILL_TILE_ROWS; i++) best[i] = 0;
    best[n - 1] = INFINITY, best_token[n - 1] = 77;
    launch_prefill(run_wide_next, &o, 1);
    CHECK_INT(ended, FLEET_ERROR_ARGUMENT);
    CHECK_INT(all[(n - 1) / MAX_ROWS].bad_sequence, 1 + (n - 1) % MAX_ROWS);
    CHECK_INT(all[(n - 1) / MAX_ROWS].bad_token, 77);
    free(x), free(weights), free(plain), free(squares), free(marked), free(best), free(best_token);
    may_copy.values = 0;
}
static void wide_steps_choose_tokens(test_run *t)
{
    static const wide_case cases[] = {
        {70, 64, 200, 2}, {256, 64, 100, 1}, {130, 128, 500, 4}, {3, 64, 70, 3}};
    drawn = 9;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (is_part() && i != 3) continue;
        check_wide_steps(t, &cases[i], i);
        if (t->failed_here) return;
    }
}

static void run_served_head(const fleet_ctx *ctx, void *args)
{
    if (FLEET_TILE_OF(head_wide_terms)(*ctx, (const task_args *)args)) complain("a tile fails", 0);
}

/* The head of a server whose model has experts: the workers find the largest logit of each row that
   chooses a token, of equal ones the first token's, of fewer rows than before, too. Products are
   exact; low terms decide. */
static void check_served_head(test_run *t, task_args *o, const float *plain, act_t *x,
                              uint32_t choosing)
{
    const uint32_t k = o->shape.k, head_row = o->d.prefill->head_row;
    o->d.prefill->choosing = choosing;
    for (uint32_t n = 0; n < choosing; n++)
        for (uint32_t i = 0; i < k; i++)
            store_act(x + prefill_at(head_row + n, i, k, TERMS), LOW_TERM,
                      (float)draw(5) - 2 + ((float)draw(3) - 1) / 512);
    launch_prefill(run_served_head, o, o->d.workers);
    if (complaint[0]) test_fail(t, __FILE__, __LINE__, "%u rows: %s", choosing, complaint);
    for (uint32_t n = 0; n < choosing && !t->failed_here; n++) {
        double most = -INFINITY;
        float best = -INFINITY;
        int32_t want = 0, token = 0;
        for (uint32_t j = 0; j < o->d.vocab; j++) {
            double logit = 0;
            for (uint32_t i = 0; i < k; i++) {
                const act_t *at = x + prefill_at(head_row + n, i, k, TERMS);
                logit += ((double)float_of_act(at[0]) + (double)float_of_act(at[LOW_TERM])) *
                         (double)plain[j * k + i];
            }
            if (logit > most) most = logit, want = (int32_t)j;
        }
        for (uint32_t w = 0; w < o->d.workers; w++) {
            const uint32_t at = w * PREFILL_TILE_ROWS + n;
            if (is_better(o->d.best[at], o->d.best_token[at], best, token))
                best = o->d.best[at], token = o->d.best_token[at];
        }
        CHECK_INT(token, want);
        CHECK((double)best == most);
    }
}
static void served_heads_are_exact(test_run *t)
{
    enum { HIDDEN = 96, VOCAB = 600, WORKERS = 2, BESTS = WORKERS * PREFILL_TILE_ROWS };
    const size_t values = (size_t)2 * PREFILL_TILE_ROWS * HIDDEN * TERMS;
    prefill_step step_of = {.head_row = PREFILL_TILE_ROWS};
    act_t *x = halves(values);
    uint8_t *marked = (uint8_t *)malloc(values / BLOCK_K);
    float *plain, best[BESTS];
    int32_t tokens[BESTS];
    uint16_t *weights;
    static task_args o;
    if (!marked) abort();
    memset(marked, 1, values / BLOCK_K);
    drawn = 12;
    weights = packed_tiles(&plain, 1, VOCAB, HIDDEN);
    memset(&o, 0, sizeof o);
    o.shape.n = ceil_div(VOCAB, TILE_N) * TILE_N, o.shape.k = HIDDEN, o.shape.tile_n = TILE_N;
    o.inner_k = STAGE_K, o.panel_bytes = TILE_N * K_ALIGN * 2, o.weights = weights, o.x = x;
    o.epilogue = EPILOGUE_ARGMAX, o.product = PREFILL_HEAD;
    o.d.hidden = HIDDEN, o.d.vocab = VOCAB, o.d.prefill = &step_of, o.d.prefill_stays = 1;
    o.d.chiplets = 1, o.d.workers = WORKERS, o.d.best = best, o.d.best_token = tokens;
    for (uint32_t i = 0; i < BESTS; i++) best[i] = -INFINITY, tokens[i] = 0;
    memset(&may_read, 0, sizeof may_read);
    may_read.from = x, may_read.rows = (uint32_t)(values / BLOCK_K), may_read.width = BLOCK_K;
    may_read.marked = marked;
    may_copy.from = weights, may_copy.values = (size_t)o.shape.n * K_ALIGN;
    check_served_head(t, &o, plain, x, 140);
    if (!t->failed_here) check_served_head(t, &o, plain, x, 30);
    memset(&may_read, 0, sizeof may_read);
    may_copy.values = 0;
    free(x), free(marked), free(plain), free(weights);
}

/* ---- a server with long chunks ---- */

/* A model of SERVED_LAYERS layers with random weights, in a server whose tasks run one after the other. All that bulk copies read is
   in one piece of memory. Layers with experts are those of a mask, `sparse`. */
enum {
    SERVED_LAYERS = 2,
    SERVED_HIDDEN = 64,
    SERVED_FFN = 320,
    SERVED_HEADS = 2,
    SERVED_DIM = 32,
    SERVED_VOCAB = 70,
    SERVED_CONTEXT = 330,
    SERVED_PAGES = 64,
    SERVED_ROWS = 5, /* that decode */
    MANY_SERVED_ROWS = 70,
    MOST_SERVED_CHUNK = 300,
    SERVED_WORKERS = 2,
    SERVED_JOBS = 4,
    SERVED_TOKENS = 8,
    SERVED_EXPERTS = 5,
    SERVED_TOP_K = 2,
    SERVED_EXPERT_FFN = 96,
    LAYER_TASKS = 9,
    SPARSE_TASKS = 12
};
typedef fleet_status (*served_tile)(const fleet_ctx ctx, const task_args *args);
typedef struct served_task {
    served_tile tile;
    task_args args;
    uint32_t is_control; /* 1: one task, whether the step is live or not */
} served_task;

typedef struct served_job {
    uint32_t prompt[SERVED_CONTEXT], n_prompt, max_tokens;
    fleet_class priority;
    float temperature;
    uint32_t asks; /* 1: no token twice in the answer, by a penalty; of one job at most */
    /* When it comes: before this task of that step; and how its run went. */
    uint32_t step, task;
    uint64_t id;
    uint32_t tokens[SERVED_TOKENS], n, ended;
    float logits[SERVED_TOKENS * SERVED_VOCAB];
} served_job;

typedef struct small_server {
    fleet_server server;
    decoder d;
    batch b[2];
    served_state served;
    request_asks asks;
    prefill_step step_of;
    token_row rows[3 * PREFILL_TILE_ROWS];
    prefill_block blocks[SERVED_BLOCKS];
    served_task tasks[SERVED_LAYERS * SPARSE_TASKS + 4];
    uint32_t n;
    uint16_t *arena;
    size_t used;
} small_server;
#define ARENA_VALUES ((size_t)1 << 22)

static uint16_t *arena_take(small_server *s, size_t values)
{
    uint16_t *at = s->arena + s->used;
    s->used += ceil_div((uint32_t)values, 512) * 512;
    if (s->used > ARENA_VALUES) abort();
    return at;
}
static bf16 *small_numbers(small_server *s, size_t n, float most)
{
    bf16 *w = arena_take(s, n);
    for (size_t i = 0; i < n; i++) w[i] = bf16_of_float(fraction(most));
    return w;
}
/* Columns of k's, packed tile by tile, with zeros up to padded_k. */
static bf16 *small_weights(small_server *s, size_t columns, uint32_t padded_k, uint32_t k)
{
    bf16 *w = small_numbers(s, columns * padded_k, 0.3f);
    for (size_t c = 0; c < columns; c++)
        for (uint32_t i = k; i < padded_k; i++)
            w[c / TILE_N * TILE_N * padded_k + weight_at(c % TILE_N, i, 1, STAGE_K)] = 0;
    return w;
}

static task_args *add_served(small_server *s, served_tile tile, uint32_t is_control)
{
    served_task *t = &s->tasks[s->n++];
    memset(t, 0, sizeof *t);
    t->tile = tile, t->is_control = is_control;
    return &t->args;
}
/* The weights of the norm after the last task so far, some numbers: other ones than after others.
   */
static const float *own_norm(const small_server *s)
{
    return s->d.rope + 4 * s->n;
}
/* rmsnorm: the product is one of d.x, as in append_product. */
static task_args *add_product(small_server *s, served_tile tile, const act_t *x, uint32_t n,
                              uint32_t k, uint32_t product, epilogue end)
{
    task_args *o = add_served(s, tile, 0);
    const uint32_t padded_k = ceil_div(k, K_ALIGN) * K_ALIGN;
    const uint32_t is_expert = product == PREFILL_EXPERT_UP || product == PREFILL_EXPERT_DOWN,
                   matrices = is_expert ? SERVED_EXPERTS : 1;
    o->shape.n = ceil_div(n, TILE_N) * TILE_N, o->shape.k = k, o->shape.tile_n = TILE_N;
    o->inner_k = STAGE_K, o->panel_bytes = TILE_N * padded_k * 2;
    o->weights = small_weights(s, (size_t)o->shape.n * matrices, padded_k, k);
    o->x = x, o->rmsnorm = x == s->d.x, o->epilogue = end, o->product = product;
    o->floats = s->d.qkv, o->acts = s->d.gated, o->norm = own_norm(s);
    o->columns = end == EPILOGUE_SILU ? n / 2 : n;
    if (product < PREFILL_HEAD) s->step_of.columns[product] = o->shape.n;
    s->step_of.division[product] =
        product == PREFILL_HEAD ? head_division(k)
        : is_expert             ? prefill_divide_expert(&o->shape, 1, SERVED_TOP_K, SERVED_EXPERTS)
                    : served_divide(&o->shape, end, SERVED_WORKERS, s->d.two_terms ? TERMS : 1);
    return o;
}
static void add_served_experts(small_server *s, served_tile linear)
{
    const uint32_t hidden = SERVED_HIDDEN, ffn = SERVED_EXPERT_FFN;
    add_product(s, linear, s->d.x, TILE_N, hidden, PREFILL_ROUTER, EPILOGUE_STORE);
    add_served(s, FLEET_TILE_OF(served_route), 0)->floats = s->d.qkv;
    s->tasks[s->n - 1].args.columns = TILE_N;
    add_served(s, FLEET_TILE_OF(served_gather), 0)->acts = s->d.prefill_sorted;
    add_product(s, linear, s->d.prefill_sorted, 2 * ffn, hidden, PREFILL_EXPERT_UP, EPILOGUE_SILU);
    add_product(s, linear, s->d.gated, hidden, ffn, PREFILL_EXPERT_DOWN, EPILOGUE_STORE)->floats =
        s->d.prefill_results;
    add_served(s, FLEET_TILE_OF(served_combine), 0)->floats = s->d.prefill_results;
    s->tasks[s->n - 1].args.norm = own_norm(s);
}
/* Memory for rows sorted by expert, as wide_buffers makes it. */
static void open_experts(small_server *s, uint32_t rows)
{
    const uint32_t places = expert_places(rows, SERVED_TOP_K, SERVED_EXPERTS);
    const size_t values = sorted_values(places, SERVED_HIDDEN);
    decoder *d = &s->d;
    d->experts = SERVED_EXPERTS, d->top_k = SERVED_TOP_K, d->two_terms = d->norm_topk = 1;
    d->prefill_sorted = arena_take(s, values);
    d->prefill_results = floats_of((size_t)places * SERVED_HIDDEN);
    d->prefill_routes = malloc(prefill_routes_bytes(SERVED_TOP_K, SERVED_EXPERTS));
    if (!d->prefill_routes) abort();
    memset(d->prefill_routes, 0xff, prefill_routes_bytes(SERVED_TOP_K, SERVED_EXPERTS));
}

static void small_open(small_server *s, uint32_t decode_rows, uint32_t chunk_rows,
                       uint32_t suspend_decode, uint32_t has_row_blocks, uint32_t sparse)
{
    const uint32_t terms = sparse ? TERMS : 1;
    const served_tile linear =
        sparse ? FLEET_TILE_OF(served_linear_terms) : FLEET_TILE_OF(prefill_linear);
    const served_tile add = sparse ? FLEET_TILE_OF(prefill_add_terms) : FLEET_TILE_OF(prefill_add),
                      gate = sparse ? FLEET_TILE_OF(gate_wide_terms) : FLEET_TILE_OF(gate_wide);
    const uint32_t hidden = SERVED_HIDDEN, q = SERVED_HEADS * SERVED_DIM, qkv = q + 2 * SERVED_DIM;
    const uint32_t chunk_row = ceil_div(decode_rows, VECTOR) * VECTOR,
                   head_row =
                       ceil_div(chunk_row + chunk_rows, PREFILL_TILE_ROWS) * PREFILL_TILE_ROWS;
    const size_t all = head_row + PREFILL_TILE_ROWS, bests = SERVED_WORKERS * PREFILL_TILE_ROWS;
    fleet_server_desc desc = fleet_server_desc_default();
    decoder *d = &s->d;
    float *rope;
    memset(s, 0, sizeof *s);
    drawn = 11;
    desc.requests = 8, desc.reactive_requests = 2, desc.events = 16, desc.pages = SERVED_PAGES;
    desc.page_tokens = PAGE_TOKENS, desc.prompt_tokens = SERVED_CONTEXT;
    desc.sequence_tokens = SERVED_CONTEXT + 1, desc.words = REQUEST_WORDS;
    desc.decode_rows = decode_rows, desc.chunk_rows = chunk_rows, desc.layers = SERVED_LAYERS;
    desc.mixed_rows = 4, desc.suspend_decode = suspend_decode;
    if (fleet_server_create(&s->server, &desc, NULL)) abort();
    s->arena = halves(ARENA_VALUES);
    d->hidden = hidden, d->heads = SERVED_HEADS, d->kv_heads = 1, d->group = SERVED_HEADS;
    d->head_dim = SERVED_DIM, d->vocab = SERVED_VOCAB, d->context = SERVED_CONTEXT;
    d->root = 1 / sqrtf(SERVED_DIM), d->eps = 1e-6f, d->layers = SERVED_LAYERS;
    d->pages = SERVED_PAGES, d->chiplets = 1, d->workers = SERVED_WORKERS, d->rounds = 1;
    d->b = s->b, d->served = &s->served, d->table = s->server.table;
    d->page_table = fleet_server_page_tables(&s->server, &d->table_pages);
    d->rope = rope = floats_of(SERVED_CONTEXT * SERVED_DIM);
    for (uint32_t i = 0; i < SERVED_CONTEXT * SERVED_DIM / 2; i++) {
        const float angle = fraction(3);
        rope[2 * i] = cosf(angle), rope[2 * i + 1] = sinf(angle);
    }
    d->embedding = small_numbers(s, (size_t)SERVED_VOCAB * hidden, 1);
    if (sparse) open_experts(s, chunk_row + chunk_rows);
    d->x = arena_take(s, all * hidden * terms), d->attended = arena_take(s, all * q * terms);
    d->gated = arena_take(s, all * SERVED_FFN * terms); /* as much as sorted rows need, and more */
    d->cache = arena_take(s, SERVED_LAYERS * layer_cache_size(d));
    d->h = floats_of(all * hidden), d->squares = floats_of(all * squares_of(hidden));
    memset(d->squares, 0, all * squares_of(hidden) * sizeof(float));
    d->qkv = floats_of(all * qkv * PREFILL_PARTS);
    d->best = floats_of(bests), d->best_token = (int32_t *)calloc(bests, sizeof *d->best_token);
    for (size_t i = 0; i < bests; i++) d->best[i] = -INFINITY;
    d->parked_h = floats_of(2 * all * hidden), d->parked_x = halves(2 * all * hidden * terms);
    d->parked_squares = floats_of(2 * all * squares_of(hidden));
    d->logit_steps = SERVED_TOKENS;
    d->logits = floats_of((size_t)SERVED_JOBS * SERVED_TOKENS * SERVED_VOCAB);
    d->sampling = (sampling_desc *)calloc(MAX_ROWS, sizeof *d->sampling);
    d->drawn = (int32_t *)calloc(MAX_ROWS, sizeof *d->drawn);
    s->served.asks = &s->asks;
    s->served.history = (int32_t *)calloc(SERVED_CONTEXT, sizeof(int32_t));
    s->served.shaped = (uint32_t *)calloc((MANY_SERVED_ROWS + 1) * SERVED_VOCAB, sizeof(uint32_t));
    d->prefill = &s->step_of, d->prefill_rows = s->rows, d->prefill_blocks = s->blocks;
    d->prefill_stays = 1, s->step_of.chunk_row = chunk_row, s->step_of.head_row = head_row;
    s->step_of.has_row_blocks = has_row_blocks, s->step_of.chunk_room = chunk_rows,
    s->step_of.batches = served_batches(decode_rows);
    for (uint32_t n = 0; n < PREFILL_TILE_ROWS; n++) s->rows[head_row + n].sequence = (int32_t)n;
    add_served(s, sparse ? FLEET_TILE_OF(embed_wide_terms) : FLEET_TILE_OF(embed_wide), 0)->norm =
        rope;
    for (uint32_t i = 0; i < SERVED_LAYERS; i++) {
        kv_t *cache = d->cache + layer_cache_size(d) * i;
        task_args *o;
        if (i) add_served(s, gate, 1)->layer = i;
        add_product(s, linear, d->x, qkv, hidden, PREFILL_QKV, EPILOGUE_STORE);
        o = add_served(s, FLEET_TILE_OF(prefill_heads), 0);
        o->q_norm = rope + 2, o->k_norm = rope + 6, o->cache = cache;
        o = add_served(
            s, sparse ? FLEET_TILE_OF(attend_served_terms) : FLEET_TILE_OF(attend_served), 0);
        o->q_norm = rope + 2, o->k_norm = rope + 6, o->cache = cache;
        add_product(s, linear, d->attended, hidden, q, PREFILL_O, EPILOGUE_RESIDUAL);
        add_served(s, add, 0)->product = PREFILL_O;
        s->tasks[s->n - 1].args.norm = own_norm(s);
        if (sparse >> i & 1) {
            add_served_experts(s, linear);
            continue;
        }
        add_product(s, linear, d->x, 2 * SERVED_FFN, hidden, PREFILL_GATE_UP, EPILOGUE_SILU);
        add_product(s, linear, d->gated, hidden, SERVED_FFN, PREFILL_DOWN, EPILOGUE_RESIDUAL);
        add_served(s, add, 0)->product = PREFILL_DOWN;
        s->tasks[s->n - 1].args.norm = own_norm(s);
    }
    add_served(s, sparse ? FLEET_TILE_OF(choose_wide_terms) : FLEET_TILE_OF(choose_wide), 0);
    add_product(s, sparse ? FLEET_TILE_OF(head_wide_terms) : FLEET_TILE_OF(head_wide), d->x,
                SERVED_VOCAB, hidden, PREFILL_HEAD, EPILOGUE_ARGMAX);
    add_served(s, FLEET_TILE_OF(draw_wide), 0);
    add_served(s, sparse ? FLEET_TILE_OF(boundary_wide_terms) : FLEET_TILE_OF(boundary_wide), 1);
    for (uint32_t i = 0; i < s->n; i++) s->tasks[i].args.d = s->d;
    may_copy.from = s->arena, may_copy.values = ARENA_VALUES;
    memset(&may_read, 0, sizeof may_read);
}
static void small_close(small_server *s)
{
    decoder *d = &s->d;
    fleet_server_free(&s->server);
    free(s->arena), free((void *)(uintptr_t)d->rope), free(d->h), free(d->squares), free(d->qkv);
    free(d->best), free(d->best_token), free(d->parked_h), free(d->parked_x);
    free(d->parked_squares), free(d->logits), free(d->sampling), free(d->drawn);
    free(s->served.history), free(s->served.shaped);
    free(d->prefill_results), free(d->prefill_routes);
    may_copy.values = 0;
}

static void run_served(const fleet_ctx *ctx, void *args)
{
    const served_task *t = (const served_task *)args;
    if (t->tile(*ctx, &t->args)) complain("a tile fails", 0);
}

static void served_submit(test_run *t, small_server *s, served_job *j, uint32_t output)
{
    fleet_request r;
    fleet_ticket ticket;
    request_words words;
    memset(&words, 0, sizeof words);
    words.ignore_eos = 1, words.output = output;
    words.sampling.temperature = j->asks ? 1 : j->temperature, words.sampling.seed = 3;
    words.asks = words.greedy = j->asks, words.repetition = 1, words.presence = 1000;
    r.priority = j->priority, r.prompt = j->prompt, r.prompt_tokens = j->n_prompt;
    r.max_tokens = j->max_tokens, r.words = (const uint32_t *)(const void *)&words;
    if (fleet_server_submit(&s->server, &r, &ticket)) test_fail(t, __FILE__, __LINE__, "refused");
    j->id = ticket.id;
}

/* After `gather`: experts have the rows of the step that have a sequence, and no others. */
static void check_places(test_run *t, const small_server *s)
{
    const prefill_routes routes =
        prefill_routes_of(s->d.prefill_routes, SERVED_TOP_K, SERVED_EXPERTS);
    uint32_t rows = 0, placed = 0;
    for (uint32_t r = s->step_of.begin; r < s->step_of.rows; r++) rows += s->rows[r].sequence >= 0;
    for (uint32_t i = 0; i < *routes.tiles; i++)
        placed += (routes.tile[i].expert >> ROUTED_ROWS) + 1;
    CHECK_INT(placed, rows * SERVED_TOP_K);
}

/* Runs jobs to their ends; ThreadSanitizer only has the tasks that lay out steps. Returns how often a chunk or decode rows stopped between layers. */
static uint32_t run_small(test_run *t, small_server *s, served_job *jobs, uint32_t n)
{
    uint32_t ended = 0, cuts = 0;
    fleet_server_event e;
    live = 0;
    for (uint32_t turn = 0; ended < n && turn < 60 && !t->failed_here; turn++) {
        step++;
        for (uint32_t i = 0; i < s->n && !t->failed_here; i++) {
            served_task *of = &s->tasks[i];
            for (uint32_t k = 0; k < n; k++)
                if (!jobs[k].id && jobs[k].step <= turn && jobs[k].task <= i)
                    served_submit(t, s, &jobs[k], k);
            if (i && !of->is_control && (!live || is_part())) continue;
            decided.word = 0;
            launch_prefill(run_served, of, of->is_control ? 1 : SERVED_WORKERS);
            if (of->args.layer) cuts += decided.word; /* it is a gate */
            if (of->tile == FLEET_TILE_OF(served_gather)) check_places(t, s);
            if (complaint[0])
                test_fail(t, __FILE__, __LINE__, "step %u, task %u: %s", turn, i, complaint);
        }
        while (fleet_server_poll(&s->server, &e)) {
            served_job *j = jobs;
            while (j < jobs + n && j->id != e.id) j++;
            if (j == jobs + n) abort();
            if (e.kind == FLEET_EVENT_TOKEN) {
                j->tokens[j->n++] = e.token;
                fleet_server_release(&s->server, &e);
            } else {
                j->ended = 1 + (uint32_t)e.kind, ended++;
            }
        }
    }
    for (uint32_t i = 0; i < n && !t->failed_here; i++) {
        if (jobs[i].ended != 1 + FLEET_EVENT_FINISHED || jobs[i].n != jobs[i].max_tokens)
            test_fail(t, __FILE__, __LINE__, "job %u: end %u, %u tokens", i, jobs[i].ended,
                      jobs[i].n);
        memcpy(jobs[i].logits, s->d.logits + (size_t)i * SERVED_TOKENS * SERVED_VOCAB,
               sizeof jobs[i].logits);
        for (uint32_t k = 0; k < jobs[i].n && jobs[i].temperature == 0 && !is_part(); k++) {
            const float *of = jobs[i].logits + k * SERVED_VOCAB;
            uint32_t best = 0;
            uint32_t seen[SERVED_VOCAB] = {0};
            for (uint32_t before = 0; before < k && jobs[i].asks; before++)
                seen[jobs[i].tokens[before]] = 1;
            while (seen[best]) best++;
            for (uint32_t e = best; e < SERVED_VOCAB; e++)
                if (!seen[e] && !(of[e] <= of[best])) best = e;
            if (jobs[i].tokens[k] != best)
                test_fail(t, __FILE__, __LINE__, "job %u: token %u is %u, not %u", i, k,
                          jobs[i].tokens[k], best);
        }
    }
    return cuts;
}

/* What each job yields alone, in steps of other sizes. */
static void run_alone(test_run *t, served_job *jobs, uint32_t n, uint32_t has_row_blocks,
                      uint32_t sparse)
{
    static small_server s;
    for (uint32_t i = 0; i < n && !t->failed_here; i++) {
        served_job *j = &jobs[i];
        j->step = j->task = 0;
        small_open(&s, SERVED_ROWS, 60, 0, has_row_blocks, sparse);
        run_small(t, &s, j, 1);
        small_close(&s);
    }
}
/* All jobs together. */
static void check_served(test_run *t, const served_job *given, const served_job *alone, uint32_t n,
                         uint32_t decode_rows, uint32_t chunk_rows, uint32_t suspends,
                         uint32_t sparse)
{
    static small_server s;
    static served_job jobs[SERVED_JOBS];
    uint64_t layers = 0;
    uint32_t cuts;
    for (uint32_t i = 0; i < n; i++)
        layers += (uint64_t)(given[i].n_prompt + given[i].max_tokens - 1) * SERVED_LAYERS;
    memcpy(jobs, given, n * sizeof *jobs);
    small_open(&s, decode_rows, chunk_rows, suspends, decode_rows > SERVED_ROWS, sparse);
    cuts = run_small(t, &s, jobs, n);
    if (!t->failed_here && s.b[0].row_layers != layers)
        test_fail(t, __FILE__, __LINE__, "%u layers of tokens were computed, %u needed",
                  (uint32_t)s.b[0].row_layers, (uint32_t)layers);
    small_close(&s);
    for (uint32_t i = 0; i < n && !t->failed_here && !is_part(); i++)
        for (uint32_t k = 0; k < jobs[i].n && !t->failed_here; k++) {
            const size_t at = (size_t)k * SERVED_VOCAB;
            CHECK_INT(jobs[i].tokens[k], alone[i].tokens[k]);
            if (memcmp(jobs[i].logits + at, alone[i].logits + at, SERVED_VOCAB * sizeof(float)))
                test_fail(t, __FILE__, __LINE__, "job %u: other logits of token %u", i, k);
        }
    if (!t->failed_here && !cuts)
        test_fail(t, __FILE__, __LINE__, "no rows stopped between layers");
}

/* A request decodes; a long proactive prompt joins it, and a long reactive one stops it between two layers and takes its place, while
   another one joins: each has the tokens and the bits of logits that it has alone. */
static void check_preemption(test_run *t, const uint32_t *prompts, uint32_t decode_rows,
                             uint32_t chunk_rows, uint32_t suspends, uint32_t sparse)
{
    static served_job jobs[SERVED_JOBS], alone[SERVED_JOBS];
    static const uint32_t tokens[SERVED_JOBS] = {6, 2, 2, 2};
    memset(jobs, 0, sizeof jobs);
    drawn = 5;
    for (uint32_t i = 0; i < SERVED_JOBS; i++) {
        served_job *j = &jobs[i];
        j->n_prompt = prompts[i], j->max_tokens = tokens[i];
        j->priority = i == 2 ? FLEET_REACTIVE : FLEET_PROACTIVE;
        j->temperature = i == 3 ? 0.8f : 0, j->asks = i == 0;
        for (uint32_t k = 0; k < j->n_prompt; k++) j->prompt[k] = draw(SERVED_VOCAB);
    }
    memcpy(alone, jobs, sizeof jobs);
    if (!is_part()) run_alone(t, alone, SERVED_JOBS, decode_rows > SERVED_ROWS, sparse);
    for (uint32_t i = 1; i < SERVED_JOBS; i++) jobs[i].step = 2;
    jobs[2].step = 3;
    /* before the gate: embed and a layer come first */
    jobs[2].task = sparse & 1 ? SPARSE_TASKS : LAYER_TASKS;
    if (!t->failed_here)
        check_served(t, jobs, alone, SERVED_JOBS, decode_rows, chunk_rows, suspends, sparse);
}
static void served_rows_are_those_alone(test_run *t)
{
    static const uint32_t few[SERVED_JOBS] = {2, 9, 7, 3}, many[SERVED_JOBS] = {3, 150, 140, 20},
                          most[SERVED_JOBS] = {3, MOST_SERVED_CHUNK, 290, 20};
    check_preemption(t, few, SERVED_ROWS, 6, 1, 0);
    if (!t->failed_here && !is_part() && test_in_turn(1))
        check_preemption(t, many, SERVED_ROWS, 130, 0, 0);
    /* A chunk in several tiles, of which the first one begins after rows that decode; a warp
       attends for each of these. */
    if (!t->failed_here && !is_part() && test_in_turn(2))
        check_preemption(t, most, MANY_SERVED_ROWS, MOST_SERVED_CHUNK, 0, 0);
}
/* The same with experts in both layers, in the second one, and in the first one; and a chunk of two
   tiles beside no other row. */
static void served_experts_are_those_alone(test_run *t)
{
    static const uint32_t few[SERVED_JOBS] = {2, 9, 7, 3}, many[SERVED_JOBS] = {130, 150, 140, 20},
                          most[SERVED_JOBS] = {3, MOST_SERVED_CHUNK, 290, 20};
    check_preemption(t, few, SERVED_ROWS, 6, 1, 3);
    if (!t->failed_here && !is_part() && test_in_turn(1))
        check_preemption(t, many, SERVED_ROWS, 130, 0, 2);
    if (!t->failed_here && !is_part() && test_in_turn(0))
        check_preemption(t, most, MANY_SERVED_ROWS, MOST_SERVED_CHUNK, 0, 1);
}

static void list(test_run *t)
{
    TEST(products_are_exact);
    TEST(a_stream_that_ends_is_told);
    TEST(sums_are_in_a_word);
    TEST(layers_of_all_sizes_are_divided_once);
    TEST(layers_are_near_plain_ones);
    TEST(experts_are_added_up);
    TEST(rows_are_those_of_the_step);
    TEST(attention_is_near_a_plain_one);
    TEST(prompts_are_embedded);
    TEST(prompts_products_are_exact);
    TEST(prompts_experts_are_added_up);
    TEST(prompts_attention_is_near_a_plain_one);
    TEST(wide_attention_is_near_a_plain_one);
    TEST(wide_steps_choose_tokens);
    if (!is_part()) TEST(served_heads_are_exact);
    TEST(served_rows_are_those_alone);
    TEST(served_experts_are_those_alone);
}

TEST_MAIN(list)
