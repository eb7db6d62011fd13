/* Weight pipelines: each part of each task's spans arrives once, complete and in order, whatever tasks acquire of them. */
// run: asan engine=both
// run: tsan
// hip: 3 runs
#include "settings.h"

#define WEIGHT_WORDS 131072u
#define CHUNKS 24u /* of 1 KB: what the parts of a task share */
#define LEFT_WORDS 512u
/* Of a wait that will not end. Time on a simulator is instructions. */
#if defined(FLEET_HIP)
#define SHORT_NS 200000u
#define MOST_TASKS 40u
#define LAUNCHES 1u
#else
#define SHORT_NS 1000000000u
#define MOST_TASKS 64u
#define LAUNCHES 2u
#endif

/* What task i declares and takes, by i mod TAKE_KINDS. */
typedef enum take_kind {
    TAKE_SHARED,   /* all waves take all stages */
    TAKE_TURNS,    /* each stage is one wave's */
    TAKE_HALF,     /* half of them, and stops */
    TAKE_NOTHING,  /* declares, but does not look */
    TAKE_KEEP,     /* takes what fits the ring, and releases none */
    TAKE_NONE,     /* declares nothing */
    TAKE_LONG,     /* in turns, several times round the ring */
    TAKE_TENSOR,   /* what a task of this launch has chosen */
    TAKE_TOGETHER, /* all waves take some stages at once, the first ones aligned */
    TAKE_KINDS
} take_kind;

typedef enum bad_kind { BAD_NOTHING, BAD_MORE, BAD_KEEP, BAD_SPAN } bad_kind;

typedef struct takes { /* what every tile sees */
    const uint32_t *weights;
    uint32_t *chosen;   /* [MOST_TASKS]: by `choose` in this step */
    uint32_t *sums;     /* [MOST_TASKS][2]: what a task found, and in which epoch */
    uint32_t *runs;     /* [MOST_TASKS] */
    uint32_t *parts;    /* [MOST_TASKS]: what all parts of a task found, in all steps */
    uint32_t *recalled; /* [MOST_TASKS]: the same of `recall` */
    uint32_t *left;     /* [2][MOST_TASKS][LEFT_WORDS]: by `leave`, in even and in odd steps */
    uint32_t bad;       /* bad_kind of task 0 */
    uint32_t ring_stages, stage_bytes;
} takes;

FLEET_HOST_DEVICE uint32_t first_word(uint32_t task, uint32_t span)
{
    return (task * 2654435761u + span * 40503u) % (WEIGHT_WORDS / 4) / 4 * 4;
}
FLEET_HOST_DEVICE uint32_t span_count(uint32_t task)
{
    return task % TAKE_KINDS == TAKE_NONE   ? 0
           : task % TAKE_KINDS == TAKE_KEEP ? 1
                                            : 1 + task / 8 % 3;
}
FLEET_HOST_DEVICE uint32_t span_words(const takes *args, uint32_t task, uint32_t span)
{
    if (task % TAKE_KINDS == TAKE_LONG) return args->ring_stages * args->stage_bytes / 4 * 2 + 4;
    return 4 * (1 + (task * 7 + span * 13) % 300); /* 16 bytes to several stages */
}
FLEET_HOST_DEVICE uint32_t stages_of(const takes *args, uint32_t words)
{
    return (words * 4 + args->stage_bytes - 1) / args->stage_bytes;
}
/* A tensor's task begins where `choose` said. */
FLEET_DEVICE uint32_t task_first(const takes *args, uint32_t task, uint32_t span)
{
    return task % TAKE_KINDS == TAKE_TENSOR ? args->chosen[task] + 4 * span
                                            : first_word(task, span);
}

/* The step of the state, from 1 on. */
FLEET_DEVICE uint32_t step_of(const fleet_ctx *ctx)
{
    return ctx->epoch - FLEETI_TEST_START;
}

/* For a task that another worker runs, mostly; and some take their time. */
FLEET_TILE(choose, takes)
{
    const uint32_t task = (uint32_t)(ctx.symbols[0] - 1 - at[0]);
    for (uint32_t i = 0; i < task % 32; i++) fleet_barrier(&ctx);
    if (ctx.thread == 0) args->chosen[task] = first_word(task + 1000 * step_of(&ctx), 0);
    return FLEET_OK;
}

#define TOGETHER 3u
FLEET_HOST_DEVICE uint32_t together_of(const takes *args)
{
    return args->ring_stages < TOGETHER ? args->ring_stages : TOGETHER;
}
FLEET_PRODUCER(take, takes)
{
    const uint32_t task = (uint32_t)at[0];
    FLEET_UNUSED(ctx);
    fleet_producer_throttle(producer, task % 5 * 250); /* also as soon as a stage is free */
    if (task % TAKE_KINDS == TAKE_TENSOR && !fleet_producer_await_task(producer)) return;
    if (task % TAKE_KINDS == TAKE_TOGETHER)
        fleet_producer_align(producer, together_of(args), args->weights);
    for (uint32_t k = 0; k < span_count(task); k++)
        fleet_producer_copy(producer, args->weights + task_first(args, task, k),
                            4 * span_words(args, task, k));
    if (task == 0 && args->bad == BAD_KEEP)
        fleet_producer_copy(producer, args->weights, 64 * args->stage_bytes);
    if (task == 0 && args->bad == BAD_SPAN) {
        fleet_producer_copy(producer, args->weights + 1, 16);
        fleet_producer_align(producer, 2, args->weights); /* ends, although no stage is filled */
    }
}
/* The stages of each span, some at once: they are neighbours in the ring, or in the span itself. */
FLEET_DEVICE fleet_status take_together(const fleet_ctx *ctx, const takes *args, uint32_t task,
                                        uint32_t *sum)
{
    const uint32_t most = args->stage_bytes / 4, together = together_of(args);
    const uint32_t waves = ctx->threads / fleet_wave_size();
    fleet_consumer consumer = fleet_consumer_open(ctx);
    uint32_t tries = 0;
    uint64_t since = 0;
    while (fleet_stage_index(&consumer) % together) {
        if (!fleet_stage_acquire(&consumer)) return fleet_consumer_status(&consumer);
        fleet_stage_release(&consumer, waves);
    }
    for (uint32_t k = 0; k < span_count(task); k++) {
        const uint32_t words = span_words(args, task, k), stages = stages_of(args, words);
        for (uint32_t i = 0; i < stages; i += together) {
            const uint32_t n = stages - i < together ? stages - i : together;
            const uint32_t first_stage = fleet_stage_index(&consumer);
            const uint32_t end = i + n < stages ? (i + n) * most : words;
            const uint32_t *first = (const uint32_t *)fleet_stages_acquire(&consumer, n);
            if (!first) return fleet_consumer_status(&consumer);
            for (uint32_t w = i * most + ctx->thread; w < end; w += ctx->threads) {
                const uint32_t ahead = w / most - i;
#if defined(FLEET_HOST)
                const uint32_t *stage = first + ahead * most;
#else
                const uint32_t wrapped =
                    first_stage + ahead < args->ring_stages ? 0 : args->ring_stages;
                const uint32_t *stage = first + (int32_t)(ahead - wrapped) * (int32_t)most;
#endif
                *sum += stage[w % most] ^ w;
            }
            FLEET_UNUSED(first_stage);
            fleet_stages_release(&consumer, n, waves);
        }
    }
    return fleet_consumer_pause(&consumer, &tries, &since);
}
/* Where there is no next stage, the other waves may still have one, and wait at the tile's barrier: so this returns
   to the tile, which comes there. */
FLEET_DEVICE fleet_status take_pieces(const fleet_ctx *ctx, const takes *args, uint32_t task,
                                      uint32_t *sum)
{
    const uint32_t kind = task % TAKE_KINDS, lanes = fleet_wave_size(), wave = ctx->thread / lanes,
                   waves = ctx->threads / lanes;
    const uint32_t alone = kind == TAKE_TURNS || kind == TAKE_LONG;
    const uint32_t keeps =
        kind == TAKE_KEEP || (task == 0 && (args->bad == BAD_KEEP || args->bad == BAD_MORE));
    fleet_consumer consumer = fleet_consumer_open(ctx);
    uint32_t index = 0;
    for (uint32_t k = 0; k < span_count(task); k++) {
        const uint32_t words = span_words(args, task, k), stages = stages_of(args, words);
        for (uint32_t i = 0; i < stages; i++, index++) {
            const uint32_t most = args->stage_bytes / 4;
            const uint32_t n = i + 1 < stages ? most : words - i * most;
            const uint32_t *stage;
            if (kind == TAKE_HALF && 2 * index >= stages) return FLEET_OK;
            if (kind == TAKE_KEEP && index == args->ring_stages) return FLEET_OK;
            if (alone && index % waves != wave) {
                fleet_stages_skip(&consumer, 1);
                continue;
            }
            stage = (const uint32_t *)fleet_stage_acquire(&consumer);
            if (!stage) return fleet_consumer_status(&consumer);
            if (kind == TAKE_TENSOR && /* of this step */
                stage[0] != args->weights[task_first(args, task, k) + i * most])
                return FLEET_ERROR_ARGUMENT;
            if (alone || wave == index % waves)
                for (uint32_t w = ctx->thread % lanes; w < n; w += lanes)
                    *sum += stage[w] ^ (w + i * most);
            if (!keeps) fleet_stage_release(&consumer, alone ? 1 : waves);
        }
    }
    if (task == 0 && args->bad == BAD_MORE && !fleet_stage_acquire(&consumer))
        return fleet_consumer_status(&consumer);
    for (uint32_t i = 0; task == 0 && args->bad == BAD_KEEP && i < 64; i++)
        if (!fleet_stage_acquire(&consumer)) return fleet_consumer_status(&consumer);
    return FLEET_OK;
}
FLEET_TILE(take, takes)
{
    const uint32_t task = (uint32_t)at[0];
    fleet_status status = FLEET_OK;
    uint32_t sum = 0;
    if (ctx.thread == 0) {
        fleet_store_relaxed_device(args->sums + 2 * task, 0);
        fleet_add_relaxed_device(args->runs + task, 1);
    }
    fleet_barrier(&ctx);
    if (task % TAKE_KINDS == TAKE_TOGETHER)
        status = take_together(&ctx, args, task, &sum);
    else if (task % TAKE_KINDS != TAKE_NOTHING)
        status = take_pieces(&ctx, args, task, &sum);
    fleet_add_relaxed_device(args->sums + 2 * task, sum);
    fleet_barrier(&ctx);
    if (ctx.thread == 0) fleet_store_relaxed_device(args->sums + 2 * task + 1, step_of(&ctx));
    return status;
}

/* Parts of chiplet- and device-tasks stream spans of their own: chunks by slice, and by part within it. */
FLEET_HOST_DEVICE uint32_t chunk_first(uint32_t task, uint32_t chunk)
{
    return first_word(task + 500, 0) + chunk * 256;
}
FLEET_PRODUCER(part, takes)
{
    for (uint32_t c = ctx.slice + ctx.slices * ctx.tile_index; c < CHUNKS;
         c += ctx.slices * ctx.tile_num)
        fleet_producer_copy(producer, args->weights + chunk_first((uint32_t)at[0], c), 1024);
}
/* Acquires the first stage ahead of the tile, if it is there; the tile acquires it again. */
FLEET_PREFETCH(part, takes)
{
    const uint32_t c = ctx.slice + ctx.slices * ctx.tile_index;
    const uint32_t *stage = NULL;
    fleet_consumer consumer;
    if (c < CHUNKS && fleet_consumer_try_open(&ctx, &consumer))
        stage = (const uint32_t *)fleet_stage_try_acquire(&consumer);
    if (ctx.thread == 0 && stage && stage[1] != args->weights[chunk_first((uint32_t)at[0], c) + 1])
        fleet_add_relaxed_device(args->parts + at[0], 1);
}
FLEET_TILE(part, takes)
{
    fleet_consumer consumer = fleet_consumer_open(&ctx);
    fleet_status status = FLEET_OK;
    uint32_t sum = 0;
    for (uint32_t c = ctx.slice + ctx.slices * ctx.tile_index; c < CHUNKS && !status;
         c += ctx.slices * ctx.tile_num) {
        const uint32_t *stage = (const uint32_t *)fleet_stage_acquire(&consumer);
        if (!stage) {
            status = fleet_consumer_status(&consumer);
        } else {
            for (uint32_t w = ctx.thread; w < 256; w += ctx.threads) sum += stage[w] ^ (c + w);
            fleet_stage_release(&consumer, ctx.threads / fleet_wave_size());
        }
    }
    fleet_add_relaxed_device(args->parts + at[0], sum);
    return status;
}

/* What a task leaves for the next step, as many words as the first one says. The first step finds what the host
   left. */
FLEET_HOST_DEVICE uint32_t left_words(uint32_t task, uint32_t epoch)
{
    return 4 * (1 + (task * 5 + epoch * 29) % (LEFT_WORDS / 4));
}
FLEET_HOST_DEVICE uint32_t left_word(uint32_t task, uint32_t epoch, uint32_t w)
{
    return w ? task * 2654435761u + epoch * 40503u + w : left_words(task, epoch);
}
FLEET_DEVICE uint32_t *left_at(const takes *args, uint32_t task, uint32_t epoch)
{
    return args->left + (epoch % 2 * MOST_TASKS + task) * LEFT_WORDS;
}
/* For a task that another worker runs, mostly; and some take their time. */
FLEET_TILE(leave, takes)
{
    const uint32_t task = (uint32_t)(ctx.symbols[0] - 1 - at[0]);
    uint32_t *left = left_at(args, task, step_of(&ctx));
    for (uint32_t i = 0; i < task % 32; i++) fleet_barrier(&ctx);
    for (uint32_t w = ctx.thread; w < left_words(task, step_of(&ctx)); w += ctx.threads)
        left[w] = left_word(task, step_of(&ctx), w);
    return FLEET_OK;
}
FLEET_PRODUCER(recall, takes)
{
    const uint32_t *left = left_at(args, (uint32_t)at[0], step_of(&ctx) - 1);
    if (fleet_producer_await_step(producer))
        fleet_producer_copy(producer, left, 4 * fleet_load_coherent4(left));
}
FLEET_TILE(recall, takes)
{
    const uint32_t task = (uint32_t)at[0], most = args->stage_bytes / 4;
    const uint32_t words = left_words(task, step_of(&ctx) - 1);
    fleet_consumer consumer = fleet_consumer_open(&ctx);
    uint32_t sum = 0;
    for (uint32_t from = 0; from < words; from += most) {
        const uint32_t *stage = (const uint32_t *)fleet_stage_acquire(&consumer);
        if (!stage) return fleet_consumer_status(&consumer);
        for (uint32_t w = ctx.thread; w < most && from + w < words; w += ctx.threads)
            sum += stage[w] ^ (from + w);
        fleet_stage_release(&consumer, ctx.threads / fleet_wave_size());
    }
    fleet_add_relaxed_device(args->recalled + task, sum);
    return FLEET_OK;
}

/* Of wavefront-tasks between: they have no stream, and the producer passes over them. */
FLEET_TILE(between, takes)
{
    FLEET_UNUSED(args);
    FLEET_UNUSED(at);
    fleet_barrier(&ctx);
    return FLEET_OK;
}

/* A small ring, and one in which more is in flight than AMD's counters count. */
typedef takes wide;
#define TAKES_TILES(TILE, P)                                                                       \
    TILE(P, choose) TILE(P, take) TILE(P, between) TILE(P, part) TILE(P, leave) TILE(P, recall)
#define TAKES_STREAMS(TILE, P) TILE(P, take) TILE(P, part) TILE(P, recall)
#define TAKES_PREFETCHES(TILE, P) TILE(P, part)
FLEET_DISPATCH_WITH_PIPELINE_AND_PREFETCH(takes, TAKES_TILES, TAKES_STREAMS, 4, 1024,
                                          TAKES_PREFETCHES)
FLEET_DISPATCH_WITH_PIPELINE(wide, TAKES_TILES, TAKES_STREAMS, 10, 4096)
FLEET_KERNEL(takes_kernel, takes, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(takes);
}
FLEET_KERNEL(static_kernel, takes, FLEET_ANY_THREADS(256))
{
    FLEET_STATIC_WORKER_LOOP(takes);
}
FLEET_KERNEL(wide_kernel, wide, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(wide);
}

/* Queues of tasks that declare as much as their neighbours, and take all of it or nothing: after a task that took nothing
   the next one comes to its first stages while those that were left still land. */
#if defined(FLEET_CUDA)
#define QUEUE_RING_BYTES 196608u
#else
#define QUEUE_RING_BYTES 49152u
#endif
#define QUEUE_TASKS 3u
typedef struct queued {
    const uint32_t *weights; /* [QUEUE_TASKS][stages * stage_bytes / 4], words of queued_word */
    uint32_t *wrong;         /* words that were not the task's */
    uint32_t *flag;          /* of `late` */
    uint32_t task, stages, stage_bytes, ring_stages;
} queued;
FLEET_HOST_DEVICE uint32_t queued_word(uint32_t task, uint32_t w)
{
    return (task + 1) << 24 | w;
}
FLEET_DEVICE const uint32_t *queued_weights(const queued *args)
{
    return args->weights + args->task * args->stages * (args->stage_bytes / 4);
}
/* This wave's share of a stage. */
FLEET_DEVICE void look_at(const queued *args, const uint32_t *stage, uint32_t index,
                          uint32_t thread, uint32_t threads)
{
    const uint32_t words = args->stage_bytes / 4;
    uint32_t wrong = 0;
    for (uint32_t w = thread; w < words; w += threads)
        wrong += stage[w] != queued_word(args->task, index * words + w);
    if (wrong) fleet_add_relaxed_device(args->wrong, wrong);
}
FLEET_PRODUCER(take_all, queued)
{
    FLEET_UNUSED(ctx);
    FLEET_UNUSED(at);
    fleet_producer_copy(producer, queued_weights(args), args->stages * args->stage_bytes);
}
FLEET_TILE(take_all, queued)
{
    fleet_consumer consumer = fleet_consumer_open(&ctx);
    FLEET_UNUSED(at);
    for (uint32_t i = 0; i < args->stages; i++) {
        const uint32_t *stage = (const uint32_t *)fleet_stage_acquire(&consumer);
        if (!stage) return fleet_consumer_status(&consumer);
        look_at(args, stage, i, ctx.thread, ctx.threads);
        fleet_stage_release(&consumer, ctx.threads / fleet_wave_size());
    }
    return FLEET_OK;
}
FLEET_PRODUCER(take_none, queued)
{
    FLEET_UNUSED(ctx);
    FLEET_UNUSED(at);
    fleet_producer_copy(producer, queued_weights(args), args->stages * args->stage_bytes);
}
FLEET_TILE(take_none, queued)
{
    FLEET_UNUSED(ctx);
    FLEET_UNUSED(args);
    FLEET_UNUSED(at);
    return FLEET_OK;
}
/* The second wave wants what comes into the stages of the first one next, before these are released; their bytes may
   not even be there. A wave alone takes all. */
FLEET_PRODUCER(take_ahead, queued)
{
    FLEET_UNUSED(ctx);
    FLEET_UNUSED(at);
    fleet_producer_copy(producer, queued_weights(args), args->stages * args->stage_bytes);
}
FLEET_TILE(take_ahead, queued)
{
    const uint32_t lanes = fleet_wave_size(), wave = ctx.thread / lanes;
    const uint32_t alone = ctx.threads == lanes, half = args->stages / 2;
    fleet_consumer consumer = fleet_consumer_open(&ctx);
    FLEET_UNUSED(at);
    if (wave > 1) return FLEET_OK;
    if (wave == 1) fleet_stages_skip(&consumer, half);
    for (uint32_t i = wave * half; i < (alone || wave ? args->stages : half); i++) {
        const uint32_t *stage = (const uint32_t *)fleet_stage_acquire(&consumer);
        if (!stage) return fleet_consumer_status(&consumer);
        look_at(args, stage, i, ctx.thread % lanes, lanes);
        fleet_stage_release(&consumer, 1);
    }
    return FLEET_OK;
}
/* A producer function that is still busy with the task before: until the tile has found that it cannot have its stages. */
FLEET_PRODUCER(take_late, queued)
{
    FLEET_UNUSED(at);
    if (ctx.task == 0) {
        fleet_producer_copy(producer, queued_weights(args), args->stage_bytes);
        while (!fleet_load_relaxed_device(args->flag)) {
        }
    }
}
FLEET_TILE(take_late, queued)
{
    const uint32_t *stage;
    fleet_consumer consumer;
    FLEET_UNUSED(at);
    if (ctx.task == 0) return FLEET_OK;
    consumer = fleet_consumer_open(&ctx);
    fleet_barrier(&ctx); /* and so do the other waves */
    stage = (const uint32_t *)fleet_stage_acquire(&consumer);
    if (stage && ctx.thread == 0) fleet_add_relaxed_device(args->wrong, 1);
    fleet_barrier(&ctx);
    if (ctx.thread == 0) fleet_store_relaxed_device(args->flag, 1);
    return FLEET_OK; /* as a tile may that needs no weights after all */
}
#define QUEUE_TILES(TILE, P)                                                                       \
    TILE(P, take_all) TILE(P, take_none) TILE(P, take_ahead) TILE(P, take_late)
#define QUEUE(n)                                                                                   \
    typedef queued ring##n;                                                                        \
    FLEET_DISPATCH_WITH_PIPELINE(ring##n, QUEUE_TILES, QUEUE_TILES, n, QUEUE_RING_BYTES / (n))     \
    FLEET_KERNEL(ring##n##_kernel, ring##n, FLEET_ANY_THREADS(256))                                \
    {                                                                                              \
        FLEET_STATIC_WORKER_LOOP(ring##n);                                                         \
    }
QUEUE(2)
QUEUE(24)
#if !defined(FLEET_HIP)
QUEUE(3)
QUEUE(4)
QUEUE(8)
#endif

/* What the task must have found, where it takes everything. */
static uint32_t reference(const takes *args, const uint32_t *weights, uint32_t task, uint32_t epoch)
{
    uint32_t sum = 0;
    for (uint32_t k = 0; k < span_count(task); k++) {
        const uint32_t first = task % TAKE_KINDS == TAKE_TENSOR
                                   ? first_word(task + 1000 * epoch, 0) + 4 * k
                                   : first_word(task, k);
        for (uint32_t w = 0; w < span_words(args, task, k); w++) sum += weights[first + w] ^ w;
    }
    return sum;
}

static uint32_t parts_reference(const uint32_t *weights, uint32_t task)
{
    uint32_t sum = 0;
    for (uint32_t c = 0; c < CHUNKS; c++)
        for (uint32_t w = 0; w < 256; w++) sum += weights[chunk_first(task, c) + w] ^ (c + w);
    return sum;
}

/* What it must have recalled in steps [1, epoch]. */
static uint32_t recalled_reference(uint32_t task, uint32_t epoch)
{
    uint32_t sum = 0;
    for (uint32_t e = 0; e < epoch; e++)
        for (uint32_t w = 0; w < left_words(task, e); w++) sum += left_word(task, e, w) ^ w;
    return sum;
}

typedef struct stand {
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_launch_desc launch;
    fleet_kernel kernel;
    takes seen;
    void *memory, *args, *device_weights, *left;
    uint32_t *weights;
} stand;

typedef enum graph_kind { GRAPH_OF_ALL, GRAPH_OF_RECALLS, GRAPH_THAT_OVERLAPS } graph_kind;

static void graph_of_all(const setting *s, fleet_graph *g, fleet_dim n)
{
    fleet_etensor chosen = fleet_event_tensor(g, "chosen", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_etensor half = fleet_event_tensor(g, "half", fleet_shape1(n), FLEET_COUNT_DERIVED);
    fleet_grid first = fleet_call_device(g, "choose", takes_choose, fleet_shape1(n), 0);
    fleet_grid take = fleet_call_device(g, "take", takes_take, fleet_shape1(n), 0);
    fleet_grid between = fleet_call_device(g, "between", takes_between, fleet_shape1(n), 0);
    fleet_grid again = fleet_call_device(g, "again", takes_take, fleet_shape1(n), 0);
    fleet_grid sharing = fleet_call_device(g, "sharing", takes_part, fleet_shape1(n), 0);
    fleet_grid sliced = fleet_call_device(g, "sliced", takes_part, fleet_shape1(n), 0);
    fleet_grid leave = fleet_call_device(g, "leave", takes_leave, fleet_shape1(n), 0);
    fleet_grid_level(g, between, FLEET_LEVEL_WAVE);
    fleet_grid_level(g, sharing, FLEET_LEVEL_CHIPLET);
    fleet_grid_level(g, sliced, FLEET_LEVEL_DEVICE);
    fleet_call_device(g, "recall", takes_recall, fleet_shape1(n), 0);
    setting_mix(s, g, first, 0);
    setting_mix(s, g, take, 1);
    setting_mix(s, g, between, 2);
    setting_mix(s, g, again, 3);
    fleet_in_edge(g, sharing, half, "i->i");
    fleet_in_edge(g, sliced, chosen, "i->");
    fleet_out_edge(g, first, chosen, "i->");
    fleet_in_edge(g, take, chosen, "i->");
    fleet_out_edge(g, take, half, "i->i");
    fleet_in_edge(g, between, chosen, "i->");
    fleet_in_edge(g, again, half, "i->i");
    fleet_in_edge(g, leave, half, "i->i");
}
/* Its producers come to the next step long before all is left. Where the buffers are declared, steps may overlap: a task that recalls
   runs after one that saw all that was left in the step before. */
static void graph_of_recalls(fleet_graph *g, fleet_dim n, uint32_t overlaps)
{
    fleet_etensor recalled = fleet_event_tensor(g, "recalled", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_etensor all_left = fleet_event_tensor(g, "left", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_grid recall = fleet_call_device(g, "recall", takes_recall, fleet_shape1(n), 0);
    fleet_grid leave = fleet_call_device(g, "leave", takes_leave, fleet_shape1(n), 0);
    fleet_grid choose = fleet_call_device(g, "choose", takes_choose, fleet_shape1(n), 0);
    if (overlaps) {
        fleet_buffer left = fleet_declare_buffer(g, "left");
        fleet_grid_reads(g, recall, left);
        fleet_grid_writes(g, leave, left);
        fleet_grid_writes(g, choose, fleet_declare_buffer(g, "chosen"));
    }
    fleet_out_edge(g, recall, recalled, "i->");
    fleet_in_edge(g, leave, recalled, "i->");
    fleet_out_edge(g, leave, all_left, "i->");
    fleet_in_edge(g, choose, all_left, "i->");
}

static int stand_begin(test_run *t, const setting *s, graph_kind kind, uint32_t tasks, uint32_t bad,
                       stand *o)
{
    fleet_plan_desc desc = setting_plan_desc(s);
    fleet_state_desc state_desc = setting_state_desc(s);
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim n = fleet_symbol(g, "n", 1, MOST_TASKS);
    const uint32_t is_wide = s->seed / 2 % 2;
    static uint32_t left[MOST_TASKS][LEFT_WORDS];
    memset(o, 0, sizeof *o);
    fleet_buckets_at_build(&desc, n, NULL, 0);
    if (kind == GRAPH_OF_ALL)
        graph_of_all(s, g, n);
    else
        graph_of_recalls(g, n, kind == GRAPH_THAT_OVERLAPS);
    NEED_STATUS(fleet_plan_build(g, &desc, &o->plan), FLEET_OK);
    fleet_graph_destroy(g);
    o->weights = (uint32_t *)malloc(WEIGHT_WORDS * 4);
    for (uint32_t i = 0; i < WEIGHT_WORDS; i++) o->weights[i] = i * 2246822519u ^ i >> 7;
    NEED_STATUS(fleet_device_alloc(&o->device_weights, WEIGHT_WORDS * 4), FLEET_OK);
    NEED_STATUS(fleet_to_device(o->device_weights, o->weights, WEIGHT_WORDS * 4, NULL), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&o->memory, 6 * MOST_TASKS * 4), FLEET_OK);
    NEED_STATUS(fleet_device_clear(o->memory, 6 * MOST_TASKS * 4, NULL), FLEET_OK);
    for (uint32_t i = 0; i < MOST_TASKS; i++)
        for (uint32_t w = 0; w < LEFT_WORDS; w++) left[i][w] = left_word(i, 0, w);
    NEED_STATUS(fleet_device_alloc(&o->left, 2 * sizeof left), FLEET_OK);
    NEED_STATUS(fleet_to_device(o->left, left, sizeof left, NULL), FLEET_OK);
    o->seen.weights = (const uint32_t *)o->device_weights;
    o->seen.chosen = (uint32_t *)o->memory;
    o->seen.sums = o->seen.chosen + MOST_TASKS;
    o->seen.runs = o->seen.sums + 2 * MOST_TASKS;
    o->seen.parts = o->seen.runs + MOST_TASKS;
    o->seen.recalled = o->seen.parts + MOST_TASKS;
    o->seen.left = (uint32_t *)o->left;
    o->seen.bad = bad;
    o->seen.ring_stages =
        is_wide ? (uint32_t)fleeti_set_wide_stages : (uint32_t)fleeti_set_takes_stages;
    o->seen.stage_bytes =
        is_wide ? (uint32_t)fleeti_set_wide_stage_bytes : (uint32_t)fleeti_set_takes_stage_bytes;
    o->kernel = is_wide ? FLEET_KERNEL_OF(wide_kernel) : FLEET_KERNEL_OF(takes_kernel);
    NEED_STATUS(fleet_device_alloc(&o->args, sizeof o->seen), FLEET_OK);
    NEED_STATUS(fleet_to_device(o->args, &o->seen, sizeof o->seen, NULL), FLEET_OK);
    NEED_STATUS(fleet_upload(&o->image, o->plan, NULL), FLEET_OK);
    NEED_STATUS(fleet_state_create(&o->state, &o->image, &state_desc, NULL), FLEET_OK);
    NEED_STATUS(fleet_bind(&o->state, "n", tasks, NULL), FLEET_OK);
    o->launch = setting_launch_desc(s);
    return 1;
}

static void stand_end(stand *o)
{
    fleet_state_free(&o->state);
    fleet_image_free(&o->image);
    fleet_device_free(o->memory);
    fleet_device_free(o->left);
    fleet_device_free(o->device_weights);
    fleet_device_free(o->args);
    fleet_plan_free(o->plan);
    free(o->weights);
}

static void run_stream(test_run *t, const setting *s, void *only_static)
{
    static uint32_t have[5 * MOST_TASKS];
    const uint32_t tasks = 1 + (uint32_t)(s->seed * 37) % MOST_TASKS, steps = 1 + LAUNCHES;
    stand o;
    if (!stand_begin(t, s, GRAPH_OF_ALL, tasks, BAD_NOTHING, &o)) return;
    if (only_static) o.kernel = FLEET_KERNEL_OF(static_kernel);
    o.launch.steps = steps;
    for (uint32_t launch = 1; launch <= LAUNCHES; launch++) {
        CHECK_STATUS(fleet_launch(&o.state, &o.launch, o.kernel, o.args), FLEET_OK);
        if (!ended_with(t, &o.state, FLEET_OK)) return;
        CHECK_STATUS(fleet_to_host(have, o.seen.sums, sizeof have, NULL), FLEET_OK);
        for (uint32_t i = 0; i < tasks; i++) {
            const uint32_t kind = i % TAKE_KINDS, last = launch * steps;
            CHECK_INT(have[2 * MOST_TASKS + i], 2 * last);
            CHECK_INT(have[3 * MOST_TASKS + i], 2 * last * parts_reference(o.weights, i));
            CHECK_INT(have[4 * MOST_TASKS + i], recalled_reference(i, last));
            if (kind == TAKE_HALF || kind == TAKE_NOTHING || kind == TAKE_KEEP) continue;
            CHECK_INT(have[2 * i + 1], last);
            if (have[2 * i] != reference(&o.seen, o.weights, i, last)) {
                test_fail(t, __FILE__, __LINE__, "task %u found %u, not %u", i, have[2 * i],
                          reference(&o.seen, o.weights, i, last));
                return;
            }
        }
    }
    stand_end(&o);
}

static void every_piece_once(test_run *t)
{
    in_settings(t, 6, run_stream, NULL);
}

/* Where a STATIC queue's tasks stand between DYNAMIC ones the producer is told what begins, as under DYNAMIC. */
static void run_mixed(test_run *t, const setting *s, void *unused)
{
    setting other = *s;
    if (s->schedule == FLEET_SCHEDULE_STATIC) other.mixed = s->seed % 2 ? 0x6 : 0x9;
    if (s->schedule == FLEET_SCHEDULE_DYNAMIC) other.early = 1;
    if (s->schedule == FLEET_SCHEDULE_CHIPLET) other.unaware = 1;
    run_stream(t, &other, unused);
    if (t->failed_here) setting_print(&other);
}

static void mixed_and_early(test_run *t)
{
    in_settings(t, 4, run_mixed, NULL);
}

/* What was left in a step is recalled in the next one. Where steps overlap the step event does not tell when, but the
   plan's proof does. */
static void run_recalls(test_run *t, const setting *s, void *overlaps)
{
    static uint32_t have[MOST_TASKS];
    const uint32_t tasks = 1 + (uint32_t)(s->seed * 37) % MOST_TASKS;
    const uint32_t ahead = overlaps && s->schedule == FLEET_SCHEDULE_STATIC;
    stand o;
    if (!stand_begin(t, s, overlaps ? GRAPH_THAT_OVERLAPS : GRAPH_OF_RECALLS, tasks, BAD_NOTHING,
                     &o))
        return;
    CHECK_INT(grids_of(o.plan)[0].runs_ahead, ahead);
    o.launch.steps = 5;
    CHECK_STATUS(fleet_launch(&o.state, &o.launch, o.kernel, o.args), FLEET_OK);
    if (!ended_with(t, &o.state, FLEET_OK)) return;
    CHECK_STATUS(fleet_to_host(have, o.seen.recalled, sizeof have, NULL), FLEET_OK);
    for (uint32_t i = 0; i < tasks; i++) CHECK_INT(have[i], recalled_reference(i, 5));
    stand_end(&o);
}

static void what_the_step_before_left(test_run *t)
{
    uint32_t overlaps = 1;
    in_settings(t, 6, run_recalls, NULL);
    in_settings(t, 6, run_recalls, &overlaps);
}

/* A kernel for STATIC plans refuses others. */
static void run_static(test_run *t, const setting *s, void *yes)
{
    static char report[8192];
    setting other = *s;
    other.seed &= ~2u; /* the small ring */
    if (s->schedule == FLEET_SCHEDULE_STATIC) {
        run_stream(t, &other, yes);
    } else {
        stand o;
        if (!stand_begin(t, &other, GRAPH_OF_ALL, 24, BAD_NOTHING, &o)) return;
        o.kernel = FLEET_KERNEL_OF(static_kernel);
        CHECK_STATUS(fleet_launch(&o.state, &o.launch, o.kernel, o.args), FLEET_OK);
        if (!ended_with(t, &o.state, FLEET_ERROR_UNSUPPORTED)) return;
        fleet_state_report(&o.state, report, sizeof report);
        CHECK_INT(strstr(report, "FLEET_STATIC_WORKER_LOOP") != NULL, 1);
        CHECK_STATUS(fleet_state_recover(&o.state, NULL), FLEET_OK);
        CHECK_STATUS(fleet_launch_task(&o.state, &o.launch, o.kernel, o.args, 0, 0),
                     FLEET_ERROR_UNSUPPORTED);
        stand_end(&o);
    }
}

static void static_loop(test_run *t)
{
    uint32_t yes = 1;
    in_settings(t, 4, run_static, &yes);
}

/* A tile that misuses its stream ends the run, in time. */
static void run_bad(test_run *t, const setting *s, void *bad)
{
    fleet_failure failure;
    stand o;
    if (!stand_begin(t, s, GRAPH_OF_ALL, 24, *(const uint32_t *)bad, &o)) return;
    o.launch.limit_ns = SHORT_NS;
    CHECK_STATUS(fleet_launch(&o.state, &o.launch, o.kernel, o.args), FLEET_OK);
    if (*(const uint32_t *)bad == BAD_KEEP) { /* others may find first that it takes too long */
        const fleet_status status = fleet_state_wait(&o.state, NULL);
        CHECK_INT(status == FLEET_ERROR_TILE || status == FLEET_ERROR_TIMEOUT ||
                      status == FLEET_ERROR_DEADLOCK,
                  1);
    } else {
        if (!ended_with(t, &o.state, FLEET_ERROR_TILE)) return;
        CHECK_INT(fleet_state_failure(&o.state, &failure), 1);
        CHECK_INT(failure.tile_status, FLEET_ERROR_ARGUMENT);
    }
    stand_end(&o);
}

static void misuse_ends_the_run(test_run *t)
{
    for (uint32_t bad = BAD_MORE; bad <= BAD_SPAN && !t->failed_here; bad++)
        in_settings(t, 3, run_bad, &bad);
}

/* A launch with less LDS than the ring needs. */
static void run_misfit(test_run *t, const setting *s, void *unused)
{
    static char report[8192];
    stand o;
    (void)unused;
    if (!stand_begin(t, s, GRAPH_OF_ALL, 24, BAD_NOTHING, &o)) return;
    o.launch.pipeline_bytes = 16;
    CHECK_STATUS(fleet_launch(&o.state, &o.launch, o.kernel, o.args), FLEET_OK);
    if (!ended_with(t, &o.state, FLEET_ERROR_LAUNCH)) return;
    fleet_state_report(&o.state, report, sizeof report);
    if (!strstr(report, "set fleet_launch_desc.pipeline_bytes = FLEET_PIPELINE_BYTES(set)"))
        test_fail(t, __FILE__, __LINE__, "the report does not say what to set: %s", report);
    stand_end(&o);
}

static void no_room_is_refused(test_run *t)
{
    in_settings(t, 3, run_misfit, NULL);
}

/* One task alone streams too. */
static void run_alone(test_run *t, const setting *s, void *unused)
{
    static uint32_t have[5 * MOST_TASKS];
    int32_t at = TAKE_LONG;
    stand o;
    (void)unused;
    if (!stand_begin(t, s, GRAPH_OF_ALL, 24, BAD_NOTHING, &o)) return;
    CHECK_STATUS(fleet_launch_task(&o.state, &o.launch, o.kernel, o.args,
                                   (uint32_t)fleet_plan_task(o.plan, "take", &at), 0),
                 FLEET_OK);
    CHECK_STATUS(fleet_to_host(have, o.seen.sums, sizeof have, NULL), FLEET_OK);
    CHECK_INT(have[2 * at], reference(&o.seen, o.weights, (uint32_t)at, 1));
    stand_end(&o);
}

static void a_task_alone(test_run *t)
{
    in_settings(t, 3, run_alone, NULL);
}

typedef struct queue_ring {
    fleet_kernel kernel;
    uint32_t ring_stages;
} queue_ring;
#define QUEUE_RING(n) FLEET_KERNEL_OF(ring##n##_kernel), n

/* A queue of three device-tasks for each worker, no event between them; with `late`, of two. `far`: the weights lie in the
   host's memory, from which copies take long. */
static void run_queue(test_run *t, const setting *s, const queue_ring *ring, const uint32_t *tiles,
                      uint32_t n, uint32_t stages, uint32_t far)
{
    const uint32_t words = stages * (QUEUE_RING_BYTES / ring->ring_stages) / 4;
    const size_t bytes = (size_t)QUEUE_TASKS * words * 4;
    const uint32_t late = tiles[0] == (uint32_t)ring2_take_late;
    fleet_plan_desc desc = setting_plan_desc(s);
    fleet_launch_desc launch = setting_launch_desc(s);
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_plan *plan = NULL;
    fleet_image image;
    fleet_state state;
    queued args[QUEUE_TASKS];
    uint32_t *weights, wrong = 0;
    void *device, *counts, *device_args;
    char name[16];
    CHECK_STATUS(far ? fleet_pinned_alloc((void **)&weights, &device, bytes)
                     : fleet_device_alloc(&device, bytes),
                 FLEET_OK);
    if (!far) weights = (uint32_t *)malloc(bytes);
    for (uint32_t k = 0; k < QUEUE_TASKS; k++)
        for (uint32_t w = 0; w < words; w++) weights[k * words + w] = queued_word(k, w);
    if (!far) CHECK_STATUS(fleet_to_device(device, weights, bytes, NULL), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&counts, 256), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(counts, 256, NULL), FLEET_OK);
    for (uint32_t k = 0; k < n; k++) {
        fleet_grid grid;
        args[k].weights = (const uint32_t *)device;
        args[k].wrong = (uint32_t *)counts, args[k].flag = (uint32_t *)counts + 32;
        args[k].task = k, args[k].stages = stages;
        args[k].stage_bytes = QUEUE_RING_BYTES / ring->ring_stages,
        args[k].ring_stages = ring->ring_stages;
        snprintf(name, sizeof name, "task %u", k);
        grid = fleet_call_device(g, name, tiles[k], fleet_shape0(), k);
        if (!late) fleet_grid_level(g, grid, FLEET_LEVEL_DEVICE);
    }
    CHECK_STATUS(fleet_device_alloc(&device_args, sizeof args), FLEET_OK);
    CHECK_STATUS(fleet_to_device(device_args, args, sizeof args, NULL), FLEET_OK);
    CHECK_STATUS(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    fleet_graph_destroy(g);
    CHECK_STATUS(fleet_upload(&image, plan, NULL), FLEET_OK);
    CHECK_STATUS(fleet_state_create(&state, &image, NULL, NULL), FLEET_OK);
    launch.steps = late ? 1 : 3;
    if (late) launch.limit_ns = SHORT_NS;
    CHECK_STATUS(fleet_launch(&state, &launch, ring->kernel, device_args), FLEET_OK);
    if (!ended_with(t, &state, late ? FLEET_ERROR_TILE : FLEET_OK)) return;
    if (late) {
        fleet_failure failure;
        CHECK_INT(fleet_state_failure(&state, &failure), 1);
        CHECK_INT(failure.task, 1);
        CHECK_INT(failure.tile_status, FLEET_ERROR_TIMEOUT);
    }
    CHECK_STATUS(fleet_to_host(&wrong, counts, 4, NULL), FLEET_OK);
    CHECK_INT(wrong, 0);
    fleet_state_free(&state);
    fleet_image_free(&image);
    fleet_plan_free(plan);
    fleet_device_free(device_args);
    fleet_device_free(counts);
    if (far)
        fleet_pinned_free(weights);
    else
        fleet_device_free(device), free(weights);
}

static void run_queues(test_run *t, const setting *s, void *kind)
{
    static const uint32_t queues[3][QUEUE_TASKS] = {
        {ring2_take_all, ring2_take_none, ring2_take_all},
        {ring2_take_ahead, ring2_take_none, ring2_take_ahead},
        {ring2_take_late, ring2_take_late, 0},
    };
    const queue_ring rings[] = {
        {QUEUE_RING(2)},
        {QUEUE_RING(24)},
#if !defined(FLEET_HIP)
        {QUEUE_RING(3)},
        {QUEUE_RING(4)},
        {QUEUE_RING(8)},
#endif
    };
    const uint32_t which = *(const uint32_t *)kind;
    if (s->schedule != FLEET_SCHEDULE_STATIC) return;
    for (uint32_t i = 0; i < sizeof rings / sizeof *rings && !t->failed_here; i++) {
        const uint32_t ring_stages = rings[i].ring_stages;
        if (which == 2) {
            /* One worker, which runs both; and coroutines do not leave a loop that is not the kit's. */
            if (s->engine == FLEET_ENGINE_THREADS && s->topology.chiplets == 1 &&
                (s->workers == 1 || s->topology.units[0] == 1))
                run_queue(t, s, rings + i, queues[2], 2, 1, 0);
            return;
        }
        for (uint32_t k = 0; k < 4 && !t->failed_here; k++)
            run_queue(t, s, rings + i, queues[which], QUEUE_TASKS,
                      which || k / 2 ? 2 * ring_stages : ring_stages, k % 2);
        if (t->failed_here) printf("    ring of %u stages\n", ring_stages);
    }
}

static void stages_left_unread(test_run *t)
{
    uint32_t kind = 0;
    in_settings(t, 3, run_queues, &kind);
}

static void a_ring_ahead(test_run *t)
{
    uint32_t kind = 1;
    in_settings(t, 3, run_queues, &kind);
}

/* A tile whose stream does not begin in time gets no other task's stages, and the run does not end well. */
static void a_stream_that_is_late(test_run *t)
{
    uint32_t kind = 2;
    in_settings(t, 5, run_queues, &kind);
}

static void all(test_run *t)
{
    TEST(stages_left_unread);
    TEST(a_ring_ahead);
    TEST(a_stream_that_is_late);
    TEST(every_piece_once);
    TEST(mixed_and_early);
    TEST(what_the_step_before_left);
    TEST(static_loop);
    TEST(misuse_ends_the_run);
    TEST(no_room_is_refused);
    TEST(a_task_alone);
}

TEST_MAIN(all)
