// run: asan whole timeout=120
// run: tsan whole timeout=120
/* What examples/qwen3 computes with on NVIDIA GPUs, on the CPU: the text of tiles_cuda.h, attention_cuda.h and tiles.h,
   with a thread for each lane of a workgroup. Lanes meet where an instruction of the warp has them meet, and lay out there
   what they bring (mma.h). Loads from global memory may touch what the kernel was given and nothing else; weights come in
   slots that hold numbers from when they are filled until they are released, and behind the last weight none.

   Products are of small whole numbers and must be exact; attention is compared with one in double precision. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "implementation.h"
#include "fleet_sched.h"
#include "mma.h"
#include "test.h"

#include <pthread.h>
#include <stdlib.h>

/* From here on the headers take this for an NVIDIA GPU. */
#undef FLEET_HOST
#define FLEET_CUDA 1
#include "examples/qwen3/decoder.h"

/* ThreadSanitizer takes long: a part of the cases is enough for it. */
static int is_part(void)
{
    return getenv("FLEET_TEST_PART") != NULL;
}

/* ---- the workgroup ---- */

/* The first thing that went wrong on any lane. */
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
    NEXT_PIECE
} meeting;

/* What a lane brings there. */
typedef struct brought {
    meeting at;
    uint32_t word;
    float value;
} brought;

typedef struct warp {
    pthread_barrier_t meet;
    /* Of two meetings: nobody comes to the next but one before all have read what they found at this one. */
    brought lane[2][LANES];
    lane_elements elements[2][LANES];
} warp;

static warp warps[MOST_WAVES];
static pthread_barrier_t block;
static __thread uint32_t my_thread, my_meetings;

static uint32_t emulated_wave_size(void)
{
    return LANES;
}
static uint32_t emulated_lane(void)
{
    return my_thread % LANES;
}
static uint32_t emulated_wave_id(void)
{
    return my_thread / LANES;
}
static void emulated_barrier(const fleet_ctx *ctx)
{
    (void)ctx;
    pthread_barrier_wait(&block);
}

/* All lanes' part in this meeting, to be read before the next but one. */
static const brought *meet(meeting at, uint32_t word, float value)
{
    warp *w = &warps[emulated_wave_id()];
    brought *lane = w->lane[my_meetings++ % 2];
    brought *mine = &lane[emulated_lane()];
    mine->at = at, mine->word = word, mine->value = value;
    pthread_barrier_wait(&w->meet);
    for (uint32_t i = 0; i < LANES; i++)
        if (lane[i].at != at) complain("lanes of a warp are at different instructions", i);
    return lane;
}
static void meet_and_multiply(meeting at, float *sum, lane_elements mine)
{
    lane_elements *elements = warps[emulated_wave_id()].elements[my_meetings % 2];
    elements[emulated_lane()] = mine;
    meet(at, 0, 0);
    mma(sum, elements, emulated_lane());
}
static void emulated_wave_barrier(void)
{
    meet(WARP_BARRIER, 0, 0);
}

typedef void (*lane_function)(const fleet_ctx *ctx, void *args);
typedef struct lane_thread {
    pthread_t thread;
    fleet_ctx ctx;
    lane_function function;
    void *args;
} lane_thread;

static void *run_lane(void *of)
{
    lane_thread *lane = (lane_thread *)of;
    my_thread = lane->ctx.thread, my_meetings = 0;
    lane->function(&lane->ctx, lane->args);
    return NULL;
}

static uint32_t lds_bytes(void); /* of tiles.h */

/* Runs one workgroup of so many, whose LDS holds no numbers at first. */
static void launch(lane_function function, void *args, uint32_t index, uint32_t workers)
{
    static lane_thread lanes[THREADS];
    const uint32_t bytes = lds_bytes();
    void *lds = malloc(bytes);
    if (!lds) abort();
    memset(lds, 0xff, bytes);
    memset(lanes, 0, sizeof lanes);
    memset(warps, 0, sizeof warps);
    pthread_barrier_init(&block, NULL, THREADS);
    for (uint32_t i = 0; i < MOST_WAVES; i++) pthread_barrier_init(&warps[i].meet, NULL, LANES);
    for (uint32_t i = 0; i < THREADS; i++) {
        lane_thread *lane = &lanes[i];
        lane->ctx.thread = i, lane->ctx.threads = THREADS;
        lane->ctx.tile_index = index, lane->ctx.tile_num = workers, lane->ctx.slices = 1;
        lane->ctx.group = FLEET_BLOCK;
        lane->ctx.lds = lds, lane->ctx.lds_bytes = bytes;
        lane->function = function, lane->args = args;
        if (pthread_create(&lane->thread, NULL, run_lane, lane)) abort();
    }
    for (uint32_t i = 0; i < THREADS; i++) pthread_join(lanes[i].thread, NULL);
    for (uint32_t i = 0; i < MOST_WAVES; i++) pthread_barrier_destroy(&warps[i].meet);
    pthread_barrier_destroy(&block);
    free(lds);
}

/* ---- global memory ---- */

/* Rows of halves, of which those may be read that are marked. */
static struct readable {
    const uint16_t *from;
    uint32_t rows, width;
    const uint8_t *marked; /* [rows] */
} may_read;

/* Whether `count` values may be loaded at once: of one row, and from where so many are aligned. */
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

/* ---- what instructions_cuda.h has for a GPU ---- */

#define QWEN3_INSTRUCTIONS_CUDA_H
#define UNROLLED
#define ROLLED

FLEET_DEVICE fleet_quad load_quad(const act *from)
{
    fleet_quad quad = {{0, 0, 0, 0}};
    if (may_load(from, 8)) memcpy(&quad, from, sizeof quad);
    return quad;
}
/* Of finite numbers, others being NaN. */
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
FLEET_DEVICE void multiply_fragments(float *sum, const uint32_t *a, const uint32_t *b)
{
    meet_and_multiply(MULTIPLY_BF16, sum, lane_elements_of(a, b, value_of_bf16));
}
FLEET_DEVICE void multiply_kept(float *sum, const uint32_t *a, const uint32_t *b)
{
    meet_and_multiply(MULTIPLY_F16, sum, lane_elements_of(a, b, value_of_f16));
}

/* To the nearest, ties to even. NaN becomes a number on a GPU, too, which would hide it: here it stays. */
FLEET_DEVICE kept kept_of(float f)
{
    const float size = fminf(fabsf(f), 65504.0f);
    int exponent = 0;
    if (f != f) return 0x7fffu;
    (void)frexpf(size, &exponent); /* size < 2^exponent */
    if (size == 0 || exponent < -13) exponent = -13;
    return (kept)((f < 0 ? 0x8000u : 0) + ((uint32_t)(exponent + 13) << 10) +
                  (uint32_t)rintf(ldexpf(size, 11 - exponent)));
}
FLEET_DEVICE uint32_t pair_of(float lower, float upper)
{
    return kept_of(lower) | (uint32_t)kept_of(upper) << 16;
}
FLEET_DEVICE float power_of_two(float x)
{
    return exp2f(x);
}
FLEET_DEVICE void touch(const void *at)
{
    (void)at;
}

FLEET_DEVICE float from_lane(float x, uint32_t bits)
{
    return meet(SHUFFLE, 0, x)[emulated_lane() ^ bits].value;
}
FLEET_DEVICE float of_lane(float x, uint32_t lane)
{
    return meet(SHUFFLE, 0, x)[lane].value;
}
FLEET_DEVICE uint32_t turned_over(uint32_t pair)
{
    const brought *lanes = meet(TURN_OVER, pair, 0);
    const uint32_t row = emulated_lane() / 4, first = emulated_lane() % 4 * 2;
    const uint32_t shift = row % 2 * 16;
    return (lanes[first * 4 + row / 2].word >> shift & 0xffffu) |
           (lanes[(first + 1) * 4 + row / 2].word >> shift & 0xffffu) << 16;
}

/* ---- the weight stream ---- */

#define TILES 2u /* wide ones */
#define MOST_PIECES 256u
#define SHARERS 2u /* warps that take a piece of a product */

typedef struct stream_slot {
    uint16_t *piece;
    uint32_t taken, released;
} stream_slot;
static struct stream {
    uint32_t pieces; /* of a tile */
    uint32_t wide;   /* pieces of a chunk, which are a team's of warps; 0: anybody's */
    uint32_t all;    /* that are declared */
    uint32_t end;    /* so many of them come */
    uint32_t slot_bytes;
    stream_slot slot[MOST_PIECES];
} stream;

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
static const void *emulated_weights_next(emulated_weights *w)
{
    const brought *lanes = meet(NEXT_PIECE, w->next, 0);
    for (uint32_t i = 0; i < LANES; i++)
        if (lanes[i].word != w->next) complain("lanes take different pieces, this one", w->next);
    if (w->next >= stream.all) complain("takes more pieces than there are", w->next);
    if (w->next >= stream.end) return NULL;
    if (emulated_lane() == 0) {
        if (stream.wide && w->next % stream.pieces / stream.wide % (MOST_WAVES / SHARERS) !=
                               emulated_wave_id() / SHARERS)
            complain("a warp takes a piece that is not its own", w->next);
        __atomic_fetch_add(&stream.slot[w->next].taken, 1, __ATOMIC_RELAXED);
    }
    return stream.slot[w->next++].piece;
}
static fleet_status emulated_weights_status(const emulated_weights *w)
{
    (void)w;
    return FLEET_ERROR_TIMEOUT;
}
static void emulated_weights_skip(emulated_weights *w, uint32_t n)
{
    w->next += n;
}
/* Another piece may come into the slot at once when all sharers have released it. */
static void emulated_weights_release(const emulated_weights *w, uint32_t sharers)
{
    stream_slot *slot = &stream.slot[w->next - 1];
    emulated_wave_barrier();
    if (emulated_lane() != 0) return;
    if (stream.wide && sharers != SHARERS)
        complain("a warp releases a piece as one of so many", sharers);
    if (MOST_WAVES % sharers) complain("a number of warps that does not divide theirs", sharers);
    if (__atomic_add_fetch(&slot->released, 1, __ATOMIC_ACQ_REL) == sharers)
        memset(slot->piece, 0xff, stream.slot_bytes);
}
static void emulated_span(fleet_spans *spans, const void *at, uint32_t bytes)
{
    (void)spans;
    if ((uintptr_t)at % 16 || bytes % 16) complain("a span is not aligned", bytes);
    for (uint32_t from = 0; from < bytes; from += stream.slot_bytes) {
        const uint32_t left = bytes - from;
        stream_slot *slot = &stream.slot[stream.all];
        if (stream.all == MOST_PIECES) abort();
        slot->piece = (uint16_t *)malloc(stream.slot_bytes);
        if (!slot->piece) abort();
        memcpy(slot->piece, (const char *)at + from,
               left < stream.slot_bytes ? left : stream.slot_bytes);
        stream.end = ++stream.all;
    }
}
static uint32_t emulated_span_await_step(fleet_spans *spans)
{
    (void)spans;
    return 1;
}
static uint32_t emulated_add_acq_rel(uint32_t *at, uint32_t value)
{
    return __atomic_fetch_add(at, value, __ATOMIC_ACQ_REL);
}
static void emulated_store_relaxed(uint32_t *at, uint32_t value)
{
    __atomic_store_n(at, value, __ATOMIC_RELAXED);
}

/* ---- the tiles, with all of this ---- */

#define fleet_wave_size emulated_wave_size
#define fleet_lane emulated_lane
#define fleet_wave_id emulated_wave_id
#define fleet_barrier emulated_barrier
#define fleet_wave_barrier emulated_wave_barrier
#define fleet_weights emulated_weights
#define fleet_weights_open emulated_weights_open
#define fleet_weights_next emulated_weights_next
#define fleet_weights_status emulated_weights_status
#define fleet_weights_skip emulated_weights_skip
#define fleet_weights_release emulated_weights_release
#define fleet_span emulated_span
#define fleet_span_await_step emulated_span_await_step
#define fleet_add_acq_rel_device emulated_add_acq_rel
#define fleet_store_relaxed_device emulated_store_relaxed
#define __expf expf
#define DECODER_SLOTS 16
#include "examples/qwen3/tiles.h"

static uint32_t lds_bytes(void)
{
    return LDS_BYTES;
}

/* ---- products ---- */

/* Draws of a run that is always the same. */
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

typedef struct product {
    uint32_t rows, k, wide, listed, split;
    uint32_t stops; /* 1: the stream ends in the second tile */
    operand in;
    float *sums;  /* [TILES][wide][rows][TILE] */
    uint32_t bad; /* lanes that were told so */
} product;

static void multiply_tiles(const fleet_ctx *ctx, void *args)
{
    product *p = (product *)args;
    const product_lds l = product_lds_of(ctx);
    const uint32_t sums = p->wide * p->rows * TILE;
    weight_source weights = weights_open(ctx);
    fleet_status status = FLEET_OK;
    product_begin(&weights, &p->in);
    for (uint32_t tile = 0; tile < TILES; tile++) {
        const fleet_status s = multiply(ctx, &weights, NULL, &p->in, &l);
        if (s) status = s;
        for (uint32_t i = ctx->thread; i < sums; i += ctx->threads)
            p->sums[tile * sums + i] = l.sums[i];
    }
    if (status) __atomic_fetch_add(&p->bad, 1, __ATOMIC_RELAXED);
    if (!status && weights.weights.next != TILES * stream.pieces)
        complain("the next task's weights would begin at piece", weights.weights.next);
}

/* Fills memory and stream, runs, and compares. */
static void check_product(test_run *t, product *p)
{
    /* Rows that no list names hold no numbers, and the second bf16 of each lie behind all first ones. */
    const uint32_t k = p->k, apart = MOST_ROWS * k, copies = p->split ? 2 : 1;
    const uint32_t columns = p->wide * TILE, padded = ceil_div(k, K_STEP) * K_STEP;
    uint16_t *x = (uint16_t *)malloc((size_t)2 * apart * sizeof *x);
    uint16_t *packed = (uint16_t *)calloc((size_t)columns * padded, sizeof *packed);
    float *plain = (float *)calloc((size_t)TILES * columns * k, sizeof *plain);
    int32_t *list = (int32_t *)malloc(p->rows * sizeof *list);
    uint8_t *marked = (uint8_t *)calloc(2 * apart / BLOCK, 1);
    if (!x || !packed || !plain || !list || !marked) abort();
    memset(x, 0xff, (size_t)2 * apart * sizeof *x);
    for (uint32_t i = 0; i < p->rows; i++) {
        list[i] = (int32_t)(p->listed ? draw(MOST_ROWS) : i);
        for (uint32_t c = 0; c < copies; c++)
            for (uint32_t j = 0; j < k; j++) {
                const size_t to = c * apart + act_at((uint32_t)list[i], j, k);
                x[to] = bf16_of_float(whole_number());
                marked[to / BLOCK] = 1;
            }
    }
    p->in.x = x, p->in.list = p->listed ? list : NULL, p->in.first = 0;
    p->in.k = k, p->in.wide = p->wide;
    p->in.second = p->split ? apart : 0, p->in.rows = p->rows;
    p->sums = (float *)calloc((size_t)TILES * p->rows * columns, sizeof *p->sums);
    if (!p->sums) abort();
    memset(&may_read, 0, sizeof may_read);
    may_read.from = x, may_read.rows = 2 * apart / BLOCK;
    may_read.width = BLOCK, may_read.marked = marked;

    memset(&stream, 0, sizeof stream);
    stream.slot_bytes = SLOT_BYTES, stream.wide = p->wide;
    stream.pieces = columns * padded * 2 / SLOT_BYTES, stream.all = TILES * stream.pieces;
    stream.end = p->stops ? stream.pieces + stream.pieces / 2 : stream.all;
    for (uint32_t tile = 0; tile < TILES; tile++) {
        for (uint32_t column = 0; column < columns; column++)
            for (uint32_t j = 0; j < k; j++) {
                const float w = whole_number();
                plain[(tile * columns + column) * k + j] = w;
                packed[weight_at(column, j, p->wide)] = bf16_of_float(w);
            }
        for (uint32_t piece = 0; piece < stream.pieces; piece++) {
            stream_slot *slot = &stream.slot[tile * stream.pieces + piece];
            slot->piece = (uint16_t *)malloc(SLOT_BYTES);
            if (!slot->piece) abort();
            memcpy(slot->piece, packed + piece * SLOT_BYTES / 2, SLOT_BYTES);
        }
    }

    p->bad = 0, complaint[0] = 0;
    launch(multiply_tiles, p, 0, 1);

    if (complaint[0])
        test_fail(t, __FILE__, __LINE__, "%u rows, k %u, wide %u, list %u, split %u: %s", p->rows,
                  k, p->wide, p->listed, p->split, complaint);
    for (uint32_t i = 0; i < TILES * stream.pieces; i++) {
        const stream_slot *slot = &stream.slot[i];
        const uint32_t wanted = i < stream.end ? SHARERS : 0;
        /* Where the stream ends, a warp that was refused takes none of what is left, and keeps what it has. */
        if (slot->taken > wanted || slot->released > slot->taken ||
            (!p->stops && (slot->taken != wanted || slot->released != wanted)))
            test_fail(t, __FILE__, __LINE__,
                      "%u rows, k %u: piece %u is taken %u and released %u times", p->rows, k, i,
                      slot->taken, slot->released);
        free(slot->piece);
    }
    for (uint32_t i = 0; i < TILES * p->rows * columns && !p->stops; i++) {
        const uint32_t tile = i / (p->rows * TILE), row = i / TILE % p->rows;
        const float *w = plain + (tile * TILE + i % TILE) * k;
        float want = 0;
        for (uint32_t c = 0; c < copies; c++)
            for (uint32_t j = 0; j < k; j++)
                want += w[j] *
                        float_of_bf16(x[c * apart + act_at((uint32_t)list[row], j, k)]);
        if (!(p->sums[i] == want)) /* NaN is unequal, too */
            test_fail(t, __FILE__, __LINE__,
                      "%u rows, k %u, wide %u, list %u, split %u: tile %u, row %u, column %u is "
                      "%g, expected %g",
                      p->rows, k, p->wide, p->listed, p->split, tile, row, i % TILE,
                      (double)p->sums[i], (double)want);
    }
    free(p->sums);
    free(marked);
    free(list);
    free(plain);
    free(packed);
    free(x);
}

/* Groups of rows that are full and that are not; tiles of one piece, of fewer pieces than there are warps, of as many and
   of more, the last one full or short. */
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
        p.wide = 1 + i * 3 % MOST_WIDE;
        if (is_part() && i % 5) continue;
        check_product(t, &p);
        if (t->failed_here) return;
    }
}

/* Whoever does not get its piece says so, and the others take theirs: nobody is left waiting. */
static void a_stream_that_ends_is_told(test_run *t)
{
    static const uint32_t ks[] = {32, 2304, 4096};
    drawn = 2;
    for (uint32_t i = 0; i < 3; i++) {
        product p;
        memset(&p, 0, sizeof p);
        p.rows = i == 2 ? 40 : 9, p.k = ks[i], p.wide = 1 + i, p.stops = 1;
        check_product(t, &p);
        CHECK(p.bad > 0 && p.bad % LANES == 0);
    }
}

/* The whole tile, with its arguments from the stream too: two wide tiles, of which the second one is not full, of a layer
   behind a norm. */
static void run_linear(const fleet_ctx *ctx, void *args)
{
    const fleet_status status = linear(*ctx, (const op *)args);
    if (status) complain("a tile fails with status", (uint32_t)status);
}
static void a_layer_is_near_a_plain_one(test_run *t)
{
    enum { ROWS = 19, K = 320, WIDE = 3, COLUMNS = 80 };
    static uint16_t x[MOST_ROWS * K], weights[2 * WIDE * TILE * SLOT_K * 2];
    static float squares[MOST_ROWS * K / TILE], floats[MOST_ROWS * COLUMNS], plain[COLUMNS * K];
    static uint8_t marked[MOST_ROWS * K / BLOCK];
    static batch b;
    static op o;
    fleet_spans spans;
    fleet_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    memset(&spans, 0, sizeof spans);
    memset(&stream, 0, sizeof stream);
    drawn = 3;
    stream.slot_bytes = SLOT_BYTES;
    ctx.tile_num = ctx.slices = 1;
    o.shape.m = MOST_ROWS, o.shape.n = COLUMNS, o.shape.k = K;
    o.shape.tile_m = MOST_ROWS, o.shape.tile_n = WIDE * TILE, o.shape.tile_k = BLOCK;
    o.shape.element_bytes = 2, o.shape.split = FLEET_SPLIT_N;
    o.tile_bytes = WIDE * TILE * 2 * SLOT_K * 2;
    o.d.hidden = K, o.d.eps = 1e-6f, o.d.b = &b, o.d.squares = squares;
    o.weights = weights, o.x = x, o.normed = 1, o.ending = END_FLOATS;
    o.floats = floats, o.columns = COLUMNS;
    b.rows = ROWS;
    memset(marked, 1, sizeof marked);
    memset(&may_read, 0, sizeof may_read);
    may_read.from = x, may_read.rows = sizeof marked, may_read.width = BLOCK;
    may_read.marked = marked;
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t k = 0; k < K; k++) {
            const float value = whole_number();
            x[act_at(r, k, K)] = bf16_of_float(value);
            squares[r * (K / TILE) + k / TILE] += value * value;
        }
    for (uint32_t c = 0; c < COLUMNS; c++)
        for (uint32_t k = 0; k < K; k++) {
            const uint32_t tile = c / (WIDE * TILE);
            plain[c * K + k] = whole_number();
            weights[tile * o.tile_bytes / 2 + weight_at(c % (WIDE * TILE), k, WIDE)] =
                bf16_of_float(plain[c * K + k]);
        }
    linear_stream(ctx, &o, ctx.at, &spans);
    launch(run_linear, &o, 0, 1);
    if (complaint[0]) test_fail(t, __FILE__, __LINE__, "%s", complaint);
    for (uint32_t n = 0; n < stream.all; n++) {
        CHECK(stream.slot[n].taken && stream.slot[n].taken == stream.slot[n].released);
        free(stream.slot[n].piece);
    }
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t c = 0; c < COLUMNS; c++) {
            double want = 0, all = 0;
            for (uint32_t k = 0; k < K; k++) {
                const double value = (double)float_of_bf16(x[act_at(r, k, K)]);
                want += value * (double)plain[c * K + k], all += value * value;
            }
            want /= sqrt(all / K + 1e-6);
            CHECK(fabs((double)floats[r * COLUMNS + c] - want) <= 1e-4 * (1 + fabs(want)));
        }
}

/* ---- attention ---- */

typedef struct attention {
    uint32_t head_dim, heads, kv_heads, workers;
    int32_t position[2], rows[2]; /* of two sequences; no rows: it has come to its end */
} attention;

#define CONTEXT 400u
#define PARTS 12u
#define SEQUENCES 2u

typedef struct decoder_and_op {
    decoder d;
    batch b;
    op o;
} decoder_and_op;

static void attend_parts(const fleet_ctx *ctx, void *args)
{
    const decoder_and_op *a = (const decoder_and_op *)args;
    const fleet_status status = attend(*ctx, &a->o);
    if (status) complain("a tile fails with status", (uint32_t)status);
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
static kept *halves(size_t n)
{
    kept *h = (kept *)malloc(n * sizeof *h);
    if (!h) abort();
    memset(h, 0xff, n * sizeof *h);
    return h;
}

/* A head after norm and rotation. */
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

/* One row and head, of values and keys as the cache has them; also how large the values are that went into it. */
static void plain_attention(double *to, double *size, const decoder_and_op *a, size_t cache,
                            const float *q, uint32_t position)
{
    const uint32_t dim = a->d.head_dim;
    double head[MOST_HEAD_DIM], score[CONTEXT], most = -INFINITY, sum = 0;
    plain_head(head, &a->d, q, a->o.q_norm, position);
    for (uint32_t key = 0; key <= position; key++) {
        score[key] = 0;
        for (uint32_t i = 0; i < dim; i++)
            score[key] += (double)value_of_f16(kept_of((float)head[i])) *
                          (double)value_of_f16(a->o.cache[cache + key_at(key, i)]);
        score[key] /= sqrt(dim);
        most = fmax(most, score[key]);
    }
    for (uint32_t key = 0; key <= position; key++) sum += score[key] = exp(score[key] - most);
    for (uint32_t i = 0; i < dim; i++) {
        to[i] = size[i] = 0;
        for (uint32_t key = 0; key <= position; key++) {
            const double value = (double)value_of_f16(a->o.cache[cache + value_at(key, i)]);
            to[i] += score[key] / sum * value;
            size[i] += score[key] / sum * fabs(value);
        }
    }
}

/* What the step appended to the cache: rounded once. */
static void check_appended(test_run *t, const decoder_and_op *a, const float *row, uint32_t head,
                           size_t cache, uint32_t position)
{
    const decoder *d = &a->d;
    const uint32_t dim = d->head_dim;
    double key[MOST_HEAD_DIM];
    plain_head(key, d, row + (d->heads + head) * dim, a->o.k_norm, position);
    for (uint32_t i = 0; i < dim; i++) {
        const double value = (double)row[(d->heads + d->kv_heads + head) * dim + i];
        CHECK(fabs((double)value_of_f16(a->o.cache[cache + key_at(position, i)]) - key[i]) <=
              0x1p-10 * fabs(key[i]) + 0x1p-20);
        CHECK(fabs((double)value_of_f16(a->o.cache[cache + value_at(position, i)]) - value) <=
              0x1p-10 * fabs(value) + 0x1p-20);
    }
}

/* What is cached before the step; no numbers in keys that are not there yet. */
static void fill_cache(kept *cache, const decoder_and_op *a)
{
    const decoder *d = &a->d;
    for (uint32_t i = 0; i < SEQUENCES * d->kv_heads; i++) {
        kept *head = cache + i * cache_size(d);
        memset(head, 0, cache_size(d) * 2);
        for (uint32_t key = 0; key < CONTEXT; key++)
            for (uint32_t j = 0; j < d->head_dim; j++) {
                const int there = (int32_t)key < d->b->sequence[i / d->kv_heads].position;
                head[key_at(key, j)] = there ? kept_of(fraction(2)) : 0x7fffu;
                if (there) head[value_at(key, j)] = kept_of(fraction(2));
            }
    }
}

/* So many workgroups, one after the other from number `first` on. What was copied is gone from the cache meanwhile. */
static void run_attention(const decoder_and_op *a, uint32_t first, uint32_t workers)
{
    const decoder *d = &a->d;
    const size_t heads = SEQUENCES * d->kv_heads, size = cache_size(d);
    kept *before = halves(heads * size);
    memcpy(before, a->o.cache, heads * size * 2);
    for (uint32_t i = 0; i < workers; i++) {
        fleet_ctx ctx;
        fleet_spans spans;
        decoder_and_op copy = *a;
        memset(&ctx, 0, sizeof ctx);
        memset(&spans, 0, sizeof spans);
        memset(&stream, 0, sizeof stream);
        stream.slot_bytes = SLOT_BYTES;
        ctx.tile_index = (first + i) % workers, ctx.tile_num = workers, ctx.slices = 1;
        copy.d.b = &copy.b, copy.o.d = copy.d;
        attend_stream(ctx, &copy.o, ctx.at, &spans);
        for (size_t h = 0; h < heads; h++) {
            const int32_t position = d->b->sequence[h / d->kv_heads].position;
            memset(a->o.cache + h * size, 0xff, (uint32_t)position / KEYS * UNIT * 2);
        }
        launch(attend_parts, &copy, ctx.tile_index, workers);
        for (size_t h = 0; h < heads; h++) {
            const int32_t position = d->b->sequence[h / d->kv_heads].position;
            memcpy(a->o.cache + h * size, before + h * size, (uint32_t)position / KEYS * UNIT * 2);
        }
        for (uint32_t n = 0; n < stream.all; n++) {
            const stream_slot *slot = &stream.slot[n];
            if (!slot->taken || slot->taken != slot->released)
                complain("a piece is not released as often as taken, or never taken", n);
            free(slot->piece);
        }
    }
    free(before);
}

static void check_attention(test_run *t, const attention *c, uint32_t number)
{
    const uint32_t dim = c->head_dim, width = (c->heads + 2 * c->kv_heads) * dim;
    const uint32_t group = c->heads / c->kv_heads, apart = MOST_ROWS * c->heads * dim;
    float *rope = floats_of(CONTEXT * dim), *q_norm = floats_of(dim), *k_norm = floats_of(dim);
    act *again = halves(2 * apart);
    decoder_and_op a;
    batch *b = &a.b;
    memset(&a, 0, sizeof a);
    b->sequences = SEQUENCES;
    for (uint32_t n = 0; n < SEQUENCES; n++) {
        sequence_state *s = &b->sequence[n];
        s->position = c->position[n];
        s->prompt = c->position[n] + c->rows[n];
        s->limit = c->rows[n] ? 1 : 0;
    }
    batch_next(b, MOST_ROWS, PARTS, c->kv_heads, c->workers);

    a.d.head_dim = dim, a.d.heads = c->heads, a.d.kv_heads = c->kv_heads, a.d.context = CONTEXT;
    a.d.eps = 1e-6f, a.d.split = 1, a.d.most_parts = PARTS, a.d.b = b, a.d.rope = rope;
    a.d.qkv = floats_of(b->rows * width);
    a.d.partial = floats_of((size_t)b->rows * c->heads * PARTS * partial_size(&a.d));
    a.d.arrived = (uint32_t *)calloc(b->rows * c->heads, sizeof *a.d.arrived);
    a.d.attended = halves(2 * apart);
    a.o.d = a.d, a.o.q_norm = q_norm, a.o.k_norm = k_norm;
    a.o.cache = halves(SEQUENCES * c->kv_heads * cache_size(&a.d));
    if (!a.d.arrived) abort();
    for (uint32_t i = 0; i < CONTEXT * dim / 2; i++) {
        const float angle = fraction(3);
        rope[2 * i] = cosf(angle), rope[2 * i + 1] = sinf(angle);
    }
    for (uint32_t i = 0; i < dim; i++) q_norm[i] = fraction(3), k_norm[i] = fraction(2);
    for (uint32_t i = 0; i < b->rows * width; i++) a.d.qkv[i] = fraction(2);
    fill_cache(a.o.cache, &a);

    complaint[0] = 0;
    run_attention(&a, 0, 1);
    memcpy(again, a.d.attended, (size_t)2 * apart * sizeof *again);
    memset(a.d.attended, 0xff, (size_t)2 * apart * sizeof *again);
    run_attention(&a, 2, 3);

    if (complaint[0]) test_fail(t, __FILE__, __LINE__, "case %u: %s", number, complaint);
    CHECK(!memcmp(again, a.d.attended, (size_t)2 * apart * sizeof *again));
    for (uint32_t i = 0; i < b->rows * c->heads; i++) CHECK_INT(a.d.arrived[i], 0);
    for (uint32_t r = 0; r < b->rows; r++)
        for (uint32_t h = 0; h < c->heads && !t->failed_here; h++) {
            const token_row *row = &b->row[r];
            const size_t cache =
                ((uint32_t)row->sequence * c->kv_heads + h / group) * cache_size(&a.d);
            double want[MOST_HEAD_DIM], size[MOST_HEAD_DIM];
            if (h % group == 0)
                check_appended(t, &a, a.d.qkv + r * width, h / group, cache,
                               (uint32_t)row->position);
            plain_attention(want, size, &a, cache, a.d.qkv + r * width + h * dim,
                            (uint32_t)row->position);
            for (uint32_t i = 0; i < dim; i++) {
                const act *is = a.d.attended + act_at(r, h * dim + i, c->heads * dim);
                const double got = (double)float_of(is[0]) + (double)float_of(is[apart]);
                if (!(fabs(got - want[i]) <= 1e-3 * size[i] + 1e-6))
                    test_fail(t, __FILE__, __LINE__,
                              "case %u: row %u, head %u, value %u is %g, expected %g", number, r, h,
                              i, got, want[i]);
            }
        }
    free(a.o.cache);
    free(a.d.attended);
    free(a.d.arrived);
    free(a.d.partial);
    free(a.d.qkv);
    free(again);
    free(k_norm);
    free(q_norm);
    free(rope);
}

/* Sizes of heads that fill one half or two, or some of them; groups that divide a set of queries and that do not, one set
   to several passes of all; units that are full and that are not, old ones and new ones; several parts of a sequence, more
   and fewer than are joined at a time; and rows that do not see all keys of their step. */
static void attention_is_near_a_plain_one(test_run *t)
{
    static const attention cases[] = {
        {8, 1, 1, 1, {0, 0}, {1, 0}},      {16, 4, 2, 4, {63, 5}, {1, 1}},
        {24, 3, 1, 1, {64, 2}, {1, 7}},    {40, 8, 1, 1, {130, 70}, {3, 2}},
        {80, 2, 2, 3, {200, 0}, {1, 9}},   {64, 5, 1, 1, {0, 10}, {20, 1}},
        {128, 8, 2, 8, {127, 64}, {1, 2}}, {128, 2, 1, 4, {50, 50}, {40, 0}},
        {120, 20, 1, 1, {31, 0}, {2, 0}},  {128, 2, 1, 4, {300, 17}, {1, 3}},
        {128, 16, 1, 1, {65, 0}, {1, 1}},  {64, 4, 1, 12, {390, 0}, {1, 0}},
    };
    drawn = 3;
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (is_part() && i % 2) continue;
        check_attention(t, &cases[i], i);
        if (t->failed_here) return;
    }
}

static void list(test_run *t)
{
    TEST(products_are_exact);
    TEST(a_stream_that_ends_is_told);
    TEST(a_layer_is_near_a_plain_one);
    TEST(attention_is_near_a_plain_one);
}

TEST_MAIN(list)
