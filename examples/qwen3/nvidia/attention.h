/* nvidia/attention.h: attention on NVIDIA GPUs; both of its products use tensor cores (fragments.h, kv_block.h).

   A work item is one KV split and one KV head. KV blocks that are older than the step come through the weight pipeline, ahead of
   the event; blocks that hold the step's own rows are read from the cache, after these were appended. The warps take turns
   with the blocks: each multiplies its queries by the keys, applies a running softmax, and multiplies the weights by the
   values, all in registers. Then the warps' sums are added up in LDS, in their order (combine_waves). If a sequence has
   several KV splits, the warp that finishes a query's last split combines all of them (combine_kv_splits), in the order of
   the splits.

   A query is a row of the sequence and one of the heads that share the KV head: query i of an item is its row i / group,
   head i % group. A warp has a set of FRAGMENT_ROWS queries. If there are more, as in a prompt, several warps with a set
   each share the blocks; the warps that have the same set in different blocks form KV groups. The rows of a prompt are
   divided among items of PART_QUERIES queries. Each of these appends the keys and values that its rows see, so that it
   need not wait for the others: several store the same words.

   After the event, every load from global memory stalls the task, all the longer while weights use the bandwidth. So there
   is one such stall before the scores, for the step's own rows; everything else arrives with the pipeline. Scores are
   scaled for powers of two.

   With splits of a given size (batch.split_blocks) the order in which sums are added depends on the position of a row, and
   not on the rows of its step. Rows of a prompt always have as many KV groups, which go through their blocks from the first
   one on, and a single split is combined like several, since partial results are rounded. A row that decodes has its step's
   splits to itself. */
#ifndef QWEN3_NVIDIA_ATTENTION_H
#define QWEN3_NVIDIA_ATTENTION_H

#include "../tasks/kv_splits.h"

#if KV_BLOCK != TILE_N || THREADS != 32 * MAX_WAVES
#error "nvidia/attention.h: a multiplication has TILE_N keys, and lanes come in warps"
#endif

typedef char a_unit_must_be_a_slot[2 * KV_BLOCK * MAX_HEAD_DIM * 2 == STAGE_BYTES ? 1 : -1];
typedef char a_part_must_be_a_pass[PART_QUERIES == 2 * FRAGMENT_ROWS ? 1 : -1];
typedef char a_page_must_be_a_block[PAGE_TOKENS == KV_BLOCK ? 1 : -1];
typedef char a_batch_must_fit_a_slot[sizeof(batch) <= STAGE_BYTES ? 1 : -1];

FLEET_DEVICE uint32_t queries_of(const decoder *d, const kv_split *p)
{
    return (p->rows - p->before) * d->group;
}
/* How many query sets share a KV block: a power of two that divides the number of warps. */
FLEET_DEVICE uint32_t query_sets_of(const decoder *d, const kv_split *p)
{
    const uint32_t queries = p->is_fixed ? UINT32_MAX : queries_of(d, p);
    uint32_t query_sets = 1;
    while (MAX_WAVES % (2 * query_sets) == 0 && query_sets * FRAGMENT_ROWS < queries)
        query_sets *= 2;
    return query_sets;
}
/* Blocks of a split that no row of this step is appended to; they are its first ones. */
FLEET_DEVICE uint32_t cached_blocks(const kv_split *p)
{
    const uint32_t cached = p->position / KV_BLOCK < p->end ? p->position / KV_BLOCK : p->end;
    return p->first < cached ? cached - p->first : 0;
}

/* Declares a split's older blocks, for one set of passes over them. The producer loads the numbers
   of 32 pages at once, and those of the next 32 before it copies these: it waits for the page table
   once per split. `slow`: stages that are left of those with another issue interval. */
FLEET_DEVICE void declare_blocks(fleet_producer *producer, const task_args *args, const kv_split *p,
                                 uint32_t *slow)
{
    const decoder *d = &args->d;
    kv_t *const layer = args->cache;
    const uint32_t *pages = pages_of(d, p->table_row) + p->first;
    const uint32_t blocks = cached_blocks(p);
    warp_words some = load_warp_words(pages, blocks), next = some;
    for (uint32_t i = 0; i < blocks; i++) {
        if (i % 32 == 0) {
            const uint32_t on = i + 32;
            some = next;
            if (on < blocks) next = load_warp_words(pages + on, blocks - on);
        }
        fleet_producer_copy(producer, kv_page(d, layer, p->head, warp_word(some, i % 32)),
                            KV_BLOCK_VALUES * 2);
        if (*slow && !--*slow) fleet_producer_throttle(producer, LARGE_M_INTERVAL);
    }
}

/* Declares the task's part of the pipeline. It may read the batch of a later step if the task has
   ended without the pipeline: the split's older blocks are in the cache then, too. first_interval:
   issue interval of the first stages, until the ring is full; 0: that of products. */
FLEET_DEVICE void declare_attention(const fleet_ctx ctx, const task_args *args,
                                    fleet_producer *producer, const uint32_t first_interval)
{
    const decoder *d = &args->d;
    const batch *b = d->b;
    const uint32_t kv_heads = d->kv_heads;
    uint32_t splits, items, slow = first_interval ? DECODER_STAGES - 2 : 0;
    /* The batch changes between steps and, in a server, at gates: but not after the product before this task has begun. */
    if (!(args->has_gates ? fleet_producer_await_previous(producer)
                          : fleet_producer_await_step(producer)))
        return;
    splits = b->kv_splits, items = splits * kv_heads;
    if (first_interval) fleet_producer_throttle(producer, first_interval);
    fleet_producer_copy(producer, args, sizeof(task_args));
    fleet_producer_copy(producer, b,
                        (uint32_t)(offsetof(batch, split_sequence) + splits + 15) & ~15u);
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices; i < items;
         i += ctx.tile_num * ctx.slices) {
        const kv_split p = kv_split_of(b, kv_heads, i);
        const uint32_t queries = queries_of(d, &p), step = query_sets_of(d, &p) * FRAGMENT_ROWS;
        for (uint32_t query = 0; query < queries; query += step)
            declare_blocks(producer, args, &p, &slow);
    }
}
FLEET_PRODUCER(attend, task_args)
{
    FLEET_UNUSED(at);
    declare_attention(ctx, args, producer, 0);
}

FLEET_DEVICE void store_kv2(kv_t *to, float first, float second)
{
    *(uint32_t *)(void *)to = kv_of_float(first) | (uint32_t)kv_of_float(second) << 16;
}

/* ---- LDS ---- */

/* Some of the worker's splits, how many it has in all, and the pages that the step's rows go to. With one split more, the
   queries of two sets would not have LDS of their own. */
#define LISTED_SPLITS 7u
typedef struct __attribute__((aligned(16))) split_list { /* sums follow it */
    kv_split split[LISTED_SPLITS];
    uint32_t page[MAX_ROWS];
    uint32_t splits;
    uint32_t known;    /* 1: the task's arguments have arrived */
    uint32_t early[2]; /* 1: so early that the prefetch has copied them; likewise the splits */
} split_list;

#define QUERY_STRIDE (MAX_HEAD_DIM + 32u) /* the padding puts lanes in different banks */
#define WAVE_QUERIES (MAX_WAVES * FRAGMENT_ROWS)

typedef struct attention_lds {
    const uint32_t *page; /* [MAX_ROWS]: of the split_list */
    float *sum; /* [MAX_WAVES][FRAGMENT_ROWS][MAX_HEAD_DIM], in the order of sum_vec4_at */
    float *row_max, *denominator; /* [MAX_WAVES][FRAGMENT_ROWS] */
    kv_t *q;                      /* [query sets][FRAGMENT_ROWS][QUERY_STRIDE] */
    uint32_t q_is_separate;       /* 1: q has its own place, 0: it overlaps with sum */
} attention_lds;

FLEET_DEVICE attention_lds attention_lds_of(const fleet_ctx *ctx, uint32_t query_sets)
{
    attention_lds l;
    char *after;
    l.page = ((split_list *)(void *)task_lds(ctx))->page;
    l.sum = (float *)(void *)(task_lds(ctx) + sizeof(split_list));
    l.row_max = l.sum + WAVE_QUERIES * MAX_HEAD_DIM, l.denominator = l.row_max + WAVE_QUERIES;
    after = (char *)(l.denominator + WAVE_QUERIES);
    l.q_is_separate =
        after + query_sets * FRAGMENT_ROWS * QUERY_STRIDE * 2 <= (char *)ctx->lds + LDS_BYTES;
    l.q = l.q_is_separate ? (kv_t *)(void *)after : (kv_t *)(void *)l.sum;
    return l;
}

/* Where vector i of a query's sums is. The order differs from query to query, so that lanes store
   to different banks. */
FLEET_DEVICE uint32_t sum_vec4_at(uint32_t query, uint32_t i)
{
    const uint32_t swizzle = query / 2;
    return query * MAX_HEAD_DIM + (i ^ (swizzle & 1) ^ (swizzle & 2) * 2) * 4;
}

/* ---- queries, and the step's own keys ---- */

/* The row of a query in its sequence. There is usually one row: no division then. */
FLEET_DEVICE uint32_t query_row(const decoder *d, const kv_split *p, uint32_t query)
{
    return p->rows == 1 ? 0 : p->before + query / d->group;
}
/* Its head in that row. */
FLEET_DEVICE uint32_t head_in_row(const decoder *d, const kv_split *p, uint32_t query, uint32_t row)
{
    return p->head * d->group + query - (row - p->before) * d->group;
}
/* Its head, among all rows of the step. */
FLEET_DEVICE size_t query_head(const decoder *d, const kv_split *p, uint32_t query)
{
    const uint32_t row = query_row(d, p, query);
    return (size_t)(p->row + row) * d->heads + head_in_row(d, p, query, row);
}

/* A lane's part of a head after RMS norm and RoPE: elements 2 l and 2 l + 1, and the two that are
   half a head further. */
typedef struct roped_head {
    float low[2], high[2];
} roped_head;

FLEET_DEVICE float wave_sum(float x)
{
    for (uint32_t i = 16; i; i /= 2) x += shuffle_xor(x, i);
    return x;
}

/* low, high: the lane's elements before; of lanes that have none, any. */
/* What a lane needs of a norm, and of a position. */
typedef struct head_norm {
    vec2 low, high;
} head_norm;
FLEET_DEVICE head_norm load_head_norm(const decoder *d, const float *norm)
{
    const uint32_t half = d->head_dim / 2, j = 2 * fleet_lane() < half ? 2 * fleet_lane() : 0;
    head_norm n;
    n.low = load_vec2(norm + j), n.high = load_vec2(norm + half + j);
    return n;
}
FLEET_DEVICE vec4 load_rope(const decoder *d, uint32_t position)
{
    const uint32_t half = d->head_dim / 2, j = 2 * fleet_lane() < half ? 2 * fleet_lane() : 0;
    return load_vec4(d->rope + ((size_t)position * half + j) * 2);
}
FLEET_DEVICE roped_head rmsnorm_rope_of(const decoder *d, vec2 low, vec2 high, head_norm norm,
                                        vec4 cos_sin)
{
    const uint32_t mine = 2 * fleet_lane() < d->head_dim / 2;
    roped_head t;
    float squares = 0, scale;
    for (uint32_t n = 0; n < 2 && mine; n++)
        squares += low.value[n] * low.value[n] + high.value[n] * high.value[n];
    scale = rms_scale(wave_sum(squares) * (d->root * d->root) + d->eps);
    UNROLLED
    for (uint32_t n = 0; n < 2; n++) {
        const float a = low.value[n] * scale * norm.low.value[n],
                    b = high.value[n] * scale * norm.high.value[n];
        const float c = cos_sin.value[2 * n], s = cos_sin.value[2 * n + 1];
        t.low[n] = a * c - b * s, t.high[n] = b * c + a * s;
    }
    return t;
}
FLEET_DEVICE roped_head rmsnorm_rope(const decoder *d, const float *from, const float *norm,
                                     uint32_t position)
{
    const uint32_t half = d->head_dim / 2, j = 2 * fleet_lane() < half ? 2 * fleet_lane() : 0;
    const vec2 low = load_vec2(from + j), high = load_vec2(from + half + j);
    return rmsnorm_rope_of(d, low, high, load_head_norm(d, norm), load_rope(d, position));
}

/* Puts the queries from `query` on to LDS; with the first of them, also appends the split's new
   keys and values to the cache. All warps share this work. */
FLEET_DEVICE void prepare_heads(const task_args *task, const decoder *d, const kv_split *p,
                                const attention_lds *l, uint32_t query, uint32_t queries)
{
    const uint32_t dim = d->head_dim, width = (d->heads + 2 * d->kv_heads) * dim;
    const uint32_t lane = fleet_lane();
    const uint32_t first = p->first * KV_BLOCK > p->position ? p->first * KV_BLOCK : p->position;
    const uint32_t last = p->position + p->rows,
                   end = p->end * KV_BLOCK < last ? p->end * KV_BLOCK : last;
    const uint32_t appended = query == 0 && first < end ? end - first : 0;
    const float *rows = d->qkv + (size_t)p->row * width;
    for (uint32_t n = fleet_wave_id(); n < queries + appended; n += MAX_WAVES) {
        const uint32_t is_key = n >= queries;
        const uint32_t row =
            is_key ? first + n - queries - p->position : query_row(d, p, query + n);
        const uint32_t head = is_key ? d->heads + p->head : head_in_row(d, p, query + n, row);
        const float *from = rows + row * width + head * dim;
        const uint32_t key = p->position + row;
        const uint32_t j = 2 * lane < dim / 2 ? 2 * lane : 0;
        vec2 low, high;
        roped_head t;
        if (is_key) {
            low = load_vec2(from + d->kv_heads * dim + j);
            high = load_vec2(from + d->kv_heads * dim + dim / 2 + j);
        }
        t = rmsnorm_rope(d, from, is_key ? task->k_norm : task->q_norm, key);
        if (!is_key)
            for (uint32_t i = dim + 2 * lane; i < MAX_HEAD_DIM; i += 64)
                store_kv2(l->q + n * QUERY_STRIDE + i, 0, 0);
        if (2 * lane >= dim / 2) continue;
        if (is_key) {
            kv_t *page = kv_page(d, task->cache, p->head, l->page[p->row + row]);
            const uint32_t at = key % PAGE_TOKENS;
            store_kv2(page + key_at(d, at, j), t.low[0], t.low[1]);
            store_kv2(page + key_at(d, at, j + dim / 2), t.high[0], t.high[1]);
            store_kv2(page + value_at(d, at, j), low.value[0], low.value[1]);
            store_kv2(page + value_at(d, at, j + dim / 2), high.value[0], high.value[1]);
        } else {
            store_kv2(l->q + n * QUERY_STRIDE + j, t.low[0], t.low[1]);
            store_kv2(l->q + n * QUERY_STRIDE + j + dim / 2, t.high[0], t.high[1]);
        }
    }
}

/* ---- one KV block ---- */

/* A warp's running softmax and sums. Lane l holds queries 2 (l % 4) and 2 (l % 4) + 1. */
typedef struct attention_state {
    float sum[HEAD_TILES][FRAGMENT_SUMS]; /* fragment_values says of which columns */
    float denominator[FRAGMENT_SUMS];     /* the first two; the others repeat them */
    float row_max[2];                     /* running maximum of the scores */
    uint32_t visible[2];                  /* keys that the query may see */
} attention_state;

/* Loads 16 bytes of a row of a block's keys or values, from the ring or from the cache. at: of the lane; on: constant. */
FLEET_DEVICE fleet_quad load_kv_vector(const kv_t *block, uint32_t at, const uint32_t on)
{
    block += on;
    return *(const fleet_quad *)(const void *)(block + at);
}

/* Multiplies the keys of a block by the warp's queries. */
FLEET_DEVICE void score_block(float *score, const kv_t *q, const kv_t *keys, uint32_t lane)
{
    const kv_t *query = q + lane / 4 * QUERY_STRIDE + lane % 4 * VECTOR;
    fleet_quad key[HEAD_VECTORS / 4][2];
    float sum[4][FRAGMENT_SUMS]; /* four independent accumulators */
    memset(sum, 0, sizeof sum);
    UNROLLED
    for (uint32_t i = 0; i < HEAD_VECTORS / 4; i++) {
        UNROLLED
        for (uint32_t n = 0; n < 2; n++)
            key[i][n] = load_kv_vector(keys, fragment_at(lane), key_at(NULL, n * 8, i * BLOCK_K));
    }
    UNROLLED
    for (uint32_t i = 0; i < HEAD_VECTORS / 4; i++) {
        const fleet_quad b = *(const fleet_quad *)(const void *)(query + i * BLOCK_K);
        UNROLLED
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t a[4];
            fragment_weights(a, key[i][0].word, key[i][1].word, half);
            mma_f16(sum[i % 2 * 2 + half], a, b.word + half * 2);
        }
    }
    UNROLLED
    for (uint32_t i = 0; i < FRAGMENT_SUMS; i++)
        score[i] = (sum[0][i] + sum[1][i]) + (sum[2][i] + sum[3][i]);
}

#define LOWEST_SCORE                                                                               \
    (-1e30f) /* of a query that has seen no key: finite, so that differences are numbers */
#define F16_ONES 0x3c003c00u

/* Applies softmax to the scores of the keys from `key` on, and accumulates weights times values. */
FLEET_DEVICE void accumulate_block(attention_state *a, const float *score, uint32_t key,
                                   float scale, const kv_t *block, uint32_t lane)
{
    const uint32_t row = key + lane / 4, vector = lane / 4, first_key = lane % 4 * 2;
    const uint32_t ones[4] = {F16_ONES, F16_ONES, F16_ONES, F16_ONES};
    fleet_quad value[8]; /* two vectors of each of four keys */
    float first[2], second[2], row_max[2], rescale[2];
    uint32_t b[2];
    UNROLLED
    for (uint32_t i = 0; i < 4; i++) {
        UNROLLED
        for (uint32_t n = 0; n < 2; n++)
            value[i * 2 + n] =
                load_kv_vector(block, value_at(NULL, first_key + i % 2, vector * VECTOR),
                               (n * KV_BLOCK + i / 2 * 8) * VALUE_COLUMNS);
    }
    UNROLLED
    for (uint32_t n = 0; n < 2; n++) {
        first[n] = row < a->visible[n] ? score[n] * scale : -INFINITY;
        second[n] = row + 8 < a->visible[n] ? score[n + 2] * scale : -INFINITY;
        row_max[n] = fmaxf(first[n], second[n]);
    }
    UNROLLED
    for (uint32_t i = 4; i < 32; i *= 2) {
        UNROLLED
        for (uint32_t n = 0; n < 2; n++) row_max[n] = fmaxf(row_max[n], shuffle_xor(row_max[n], i));
    }
    UNROLLED
    for (uint32_t n = 0; n < 2; n++) {
        row_max[n] = fmaxf(row_max[n], a->row_max[n]);
        rescale[n] = fast_exp2(a->row_max[n] - row_max[n]);
        a->row_max[n] = row_max[n];
    }
    b[0] =
        transpose_8x8(pack_f16(fast_exp2(first[0] - row_max[0]), fast_exp2(first[1] - row_max[1])));
    b[1] = transpose_8x8(
        pack_f16(fast_exp2(second[0] - row_max[0]), fast_exp2(second[1] - row_max[1])));
    UNROLLED
    for (uint32_t j = 0; j < FRAGMENT_SUMS; j++) a->denominator[j] *= rescale[j % 2];
    mma_f16(a->denominator, ones, b); /* in f16, as the values' weights */
    UNROLLED
    for (uint32_t i = 0; i < HEAD_TILES; i++) {
        float *sum = a->sum[i];
        uint32_t of[4];
        fragment_values(of, value, i);
        UNROLLED
        for (uint32_t j = 0; j < FRAGMENT_SUMS; j++) sum[j] *= rescale[j % 2];
        mma_f16(sum, of, b);
    }
}

/* ---- one KV split ---- */

/* This warp's position in the pipeline. */
typedef struct stage_source {
    fleet_consumer weights;
    uint32_t position; /* stages that it acquired or skipped */
    fleet_status status;
} stage_source;

/* Acquires a stage by its number; the stages before belong to other warps. Null: the launch ends. */
FLEET_DEVICE const kv_t *acquire_stage(stage_source *from, uint32_t number)
{
    const kv_t *stage;
    fleet_stages_skip(&from->weights, number - from->position);
    from->position = number;
    stage = (const kv_t *)fleet_stage_acquire(&from->weights);
    if (stage)
        from->position++;
    else
        from->status = fleet_consumer_status(&from->weights);
    return stage;
}

/* Releases the stage that the warp acquired last. */
FLEET_DEVICE void release_stage(const stage_source *from, uint32_t query_sets)
{
    if (query_sets == 1) /* the usual case, without a division */
        fleet_stage_release(&from->weights, 1);
    else
        fleet_stage_release(&from->weights, query_sets);
}

/* A block of a split that rows of this step were appended to; pages: of the KV head. The first of
   these rows knows its page. */
FLEET_DEVICE const kv_t *appended_block(const kv_t *pages, const kv_split *p,
                                        const attention_lds *l, uint32_t block)
{
    const uint32_t key = (p->first + block) * KV_BLOCK;
    const uint32_t row = key > p->position ? key - p->position : 0;
    return pages + (size_t)l->page[p->row + row] * KV_BLOCK_VALUES;
}

/* The warp's blocks of a split. The first `cached` blocks of the split come through the pipeline,
   from stage `first` on; but the warp begins with the others, since the ring fills meanwhile. */
FLEET_DEVICE void attend_blocks(attention_state *a, const kv_t *pages, const kv_split *p,
                                const attention_lds *l, uint32_t query_sets, uint32_t query_set,
                                uint32_t kv_group, stage_source *from, uint32_t first,
                                uint32_t cached, float scale)
{
    const uint32_t n = p->end - p->first, key = p->first * KV_BLOCK;
    const uint32_t kv_groups = query_sets == 1 ? MAX_WAVES : MAX_WAVES / query_sets;
    const kv_t *q = l->q + query_set * FRAGMENT_ROWS * QUERY_STRIDE;
    const uint32_t mine = n > kv_group ? n - kv_group : 0;
    /* The order of a prompt's blocks may not depend on where the step begins. */
    const uint32_t streamed = cached > kv_group && !p->is_fixed ? cached - kv_group : 0;
    const uint32_t all = query_sets == 1 ? ceil_div(mine, MAX_WAVES) : ceil_div(mine, kv_groups);
    const uint32_t some =
        query_sets == 1 ? ceil_div(streamed, MAX_WAVES) : ceil_div(streamed, kv_groups);
    for (uint32_t turn = 0; turn < all && !from->status; turn++) {
        const uint32_t u =
            kv_group + (turn + some < all ? turn + some : turn + some - all) * kv_groups;
        const uint32_t lane = opaque(fleet_lane());
        const kv_t *block;
        float score[FRAGMENT_SUMS];
        block = u < cached ? acquire_stage(from, first + u) : appended_block(pages, p, l, u);
        if (!block) break;
        score_block(score, q, block, lane);
        accumulate_block(a, score, key + u * KV_BLOCK, scale, block, lane);
        if (u < cached) release_stage(from, query_sets);
    }
}

/* Divides by the denominator and stores elements 4 l to 4 l + 3 of the head. */
FLEET_DEVICE void store_attended(const decoder *d, const kv_split *p, uint32_t query, vec4 sum,
                                 float denominator)
{
    const uint32_t c = fleet_lane() * 4, dim = d->head_dim, width = d->heads * dim;
    const uint32_t row = query_row(d, p, query), head = head_in_row(d, p, query, row);
    const float scale = 1 / denominator;
    UNROLLED
    for (uint32_t i = 0; i < 4; i++) sum.value[i] *= scale;
    if (c < dim)
        store_acts(d->attended + act_at(p->row + row, head * dim + c, width),
                   d->two_terms * MAX_ROWS * width, sum);
}

/* Stores a warp's sums to LDS, with their row max and denominator. */
FLEET_DEVICE void store_wave_sums(const attention_state *a, const attention_lds *l)
{
    const uint32_t lane = opaque(fleet_lane()),
                   rows = fleet_wave_id() * FRAGMENT_ROWS + lane % 4 * 2;
    UNROLLED
    for (uint32_t i = 0; i < FRAGMENT_SUMS; i++) {
        UNROLLED
        for (uint32_t m = 0; m < HEAD_TILES; m += 4) {
            const uint32_t at = i / 2 * (MAX_HEAD_DIM / 8) + lane / 4 * 2 + m / 4;
            vec4 four;
            UNROLLED
            for (uint32_t j = 0; j < 4; j++) four.value[j] = a->sum[m + j][i];
            store_vec4(l->sum + sum_vec4_at(rows + i % 2, at), four);
        }
    }
    if (lane >= 4) return;
    UNROLLED
    for (uint32_t n = 0; n < 2; n++)
        l->row_max[rows + n] = a->row_max[n], l->denominator[rows + n] = a->denominator[n];
}

/* ---- KV splits: partial results, and combining them ---- */

/* A lane's part of a split's partial result is one 16-byte word: four elements, divided by their
   denominator, as f16; the logarithm of row max and denominator; and the task's tag. The word is
   stored at once, so nothing orders the stores: the warp that combines the splits polls until each word
   has the tag (flagged data, edge 22). The stores are still in flight while the splits are counted. */
FLEET_DEVICE fleet_quad *kv_partial_at(const decoder *d, const kv_split *p, uint32_t query,
                                       uint32_t split)
{
    fleet_quad *all = (fleet_quad *)(void *)d->kv_partials;
    return all + (query_head(d, p, query) * d->max_splits + split) * KV_PARTIAL_QUADS +
           fleet_lane();
}
FLEET_DEVICE void store_kv_partial(const decoder *d, const kv_split *p, uint32_t query, vec4 sum,
                                   float row_max, float denominator, uint32_t tag)
{
    /* a denominator of 0: the query's row sees none of these keys */
    const float scale = denominator > 0 ? 1 / denominator : 0;
    fleet_quad quad;
    quad.word[0] = pack_f16(sum.value[0] * scale, sum.value[1] * scale);
    quad.word[1] = pack_f16(sum.value[2] * scale, sum.value[3] * scale);
    /* One 16-byte store publishes values and tag. Pair: the loads in combine_kv_splits (edge 22). */
    quad.word[2] = word_of_float(row_max + fast_log2(denominator)), quad.word[3] = tag;
    fleet_store_flagged_device(kv_partial_at(d, p, query, p->split), quad);
}
/* Counts the split as done; returns whether all splits of the query are. */
FLEET_DEVICE uint32_t is_last_split(const decoder *d, const kv_split *p, uint32_t query)
{
    uint32_t last = 0;
    fleet_wave_barrier(); /* all lanes have issued their stores: others may wait for them from now on */
    if (fleet_lane() == 0) {
        uint32_t *splits_done = d->splits_done + query_head(d, p, query);
        last = fleet_add_relaxed_device(splits_done, 1) + 1 == p->splits;
        if (last) fleet_store_relaxed_device(splits_done, 0); /* for the next layer */
    }
    return shuffle((float)last, 0) > 0;
}
#define COMBINED 8u /* splits whose words are loaded together */
FLEET_DEVICE void combine_kv_splits(const decoder *d, const kv_split *p, uint32_t query,
                                    uint32_t tag)
{
    const fleet_quad *from = kv_partial_at(d, p, query, 0);
    vec4 sum = {{0, 0, 0, 0}};
    float row_max = LOWEST_SCORE, denominator = 0;
    ROLLED
    for (uint32_t first = 0; first < p->splits; first += COMBINED) {
        const uint32_t last = p->splits - first < COMBINED ? p->splits - first - 1 : COMBINED - 1;
        fleet_quad partial[COMBINED];
        uint32_t late;
        float rescale = row_max;
        do { /* terminates: all splits are counted, so their stores are in flight */
            late = 0;
            UNROLLED
            for (uint32_t i = 0; i < COMBINED; i++)
                partial[i] = fleet_load_flagged_device(from + (first + (i < last ? i : last)) *
                                                                  KV_PARTIAL_QUADS);
            UNROLLED
            /* Polls until the tag is this task's (edge 22). */
            for (uint32_t i = 0; i < COMBINED; i++) late |= partial[i].word[3] ^ tag;
        } while (any_lane(late != 0));
        UNROLLED
        for (uint32_t i = 0; i < COMBINED; i++)
            row_max = fmaxf(row_max, float_of_word(partial[i].word[2]));
        rescale = fast_exp2(rescale - row_max);
        denominator *= rescale;
        UNROLLED
        for (uint32_t j = 0; j < 4; j++) sum.value[j] *= rescale;
        UNROLLED
        for (uint32_t i = 0; i < COMBINED; i++) {
            const float weight =
                i <= last ? fast_exp2(float_of_word(partial[i].word[2]) - row_max) : 0;
            denominator += weight;
            sum.value[0] += low_f16(partial[i].word[0]) * weight;
            sum.value[1] += high_f16(partial[i].word[0]) * weight;
            sum.value[2] += low_f16(partial[i].word[1]) * weight;
            sum.value[3] += high_f16(partial[i].word[1]) * weight;
        }
    }
    store_attended(d, p, query, sum, denominator);
}

NOINLINE_DEVICE void combine_kv_splits_call(const decoder *d, const kv_split *p, uint32_t query,
                                            uint32_t tag)
{
    combine_kv_splits(d, p, query, tag);
}

/* Combines the warps of each query; a lane has four elements. Stores the result, or the partial
   result if the sequence has several splits; the last split combines all of them. */
FLEET_DEVICE void combine_waves(const decoder *d, const kv_split *p, const attention_lds *l,
                                uint32_t query_sets, uint32_t kv_groups, uint32_t query,
                                uint32_t queries, uint32_t tag, const uint32_t noinline)
{
    for (uint32_t n = fleet_wave_id(); n < queries; n += MAX_WAVES) {
        float of[MAX_WAVES], row_max = LOWEST_SCORE, denominator = 0;
        vec4 sum = {{0, 0, 0, 0}};
        UNROLLED
        for (uint32_t i = 0; i < MAX_WAVES; i++) {
            of[i] = i < kv_groups ? l->row_max[i * query_sets * FRAGMENT_ROWS + n] : LOWEST_SCORE;
            row_max = fmaxf(row_max, of[i]);
        }
        UNROLLED
        for (uint32_t i = 0; i < MAX_WAVES; i++) {
            const uint32_t row = i * query_sets * FRAGMENT_ROWS + n;
            const float weight = fast_exp2(of[i] - row_max);
            if (i < kv_groups) {
                const vec4 wave = load_vec4(l->sum + sum_vec4_at(row, fleet_lane()));
                UNROLLED
                for (uint32_t j = 0; j < 4; j++) sum.value[j] += wave.value[j] * weight;
                denominator += l->denominator[row] * weight;
            }
        }
        if (p->splits == 1 && !p->is_fixed) {
            store_attended(d, p, query + n, sum, denominator);
        } else {
            store_kv_partial(d, p, query + n, sum, row_max, denominator, tag);
            if (!is_last_split(d, p, query + n)) continue;
            if (noinline)
                combine_kv_splits_call(d, p, query + n, tag);
            else
                combine_kv_splits(d, p, query + n, tag);
        }
    }
}

FLEET_DEVICE void attend_split(const fleet_ctx *ctx, const task_args *task, const kv_split *p,
                               stage_source *from, uint32_t *first, const uint32_t noinline)
{
    const decoder *d = &task->d;
    const uint32_t all = queries_of(d, p), query_sets = query_sets_of(d, p),
                   cached = cached_blocks(p);
    const uint32_t wave = fleet_wave_id(), query_set = query_sets == 1 ? 0 : wave % query_sets,
                   kv_group = query_sets == 1 ? wave : wave / query_sets;
    const uint32_t blocks = p->end - p->first,
                   kv_groups = query_sets == 1 ? MAX_WAVES : MAX_WAVES / query_sets;
    const uint32_t busy_groups = blocks < kv_groups ? blocks : kv_groups;
    const kv_t *pages = kv_page(d, task->cache, p->head, 0);
    const float scale = 1.44269504f * d->root; /* log2(e) */
    const attention_lds l = attention_lds_of(ctx, query_sets);
    for (uint32_t query = 0; query < all; query += query_sets * FRAGMENT_ROWS) {
        const uint32_t left = all - query;
        const uint32_t queries =
            left < query_sets * FRAGMENT_ROWS ? left : query_sets * FRAGMENT_ROWS;
        attention_state a;
        if (!l.q_is_separate) fleet_barrier(ctx); /* the sums of the previous queries were read */
        prepare_heads(task, d, p, &l, query, queries);
        memset(&a, 0, sizeof a);
        UNROLLED
        for (uint32_t n = 0; n < 2; n++) {
            const uint32_t i = query + query_set * FRAGMENT_ROWS + fleet_lane() % 4 * 2 + n;
            a.row_max[n] = LOWEST_SCORE;
            a.visible[n] = p->position + query_row(d, p, i) + 1; /* itself and all earlier ones */
        }
        fleet_barrier(ctx);
        attend_blocks(&a, pages, p, &l, query_sets, query_set, kv_group, from, *first, cached,
                      scale);
        *first += cached;
        if (!l.q_is_separate) fleet_barrier(ctx);
        if (kv_group < busy_groups) store_wave_sums(&a, &l);
        fleet_barrier(ctx);
        combine_waves(d, p, &l, query_sets, busy_groups, query, queries, task_tag(ctx, task),
                      noinline);
    }
}

/* One warp lists the worker's splits from number `first` on in LDS: a lane each. */
FLEET_DEVICE void list_splits(const fleet_ctx *ctx, split_list *list, const batch *b,
                              uint32_t kv_heads, uint32_t first)
{
    const uint32_t at = ctx->slice + ctx->tile_index * ctx->slices;
    const uint32_t stride = ctx->tile_num * ctx->slices, items = b->kv_splits * kv_heads;
    const uint32_t n = first + fleet_lane();
    if (fleet_lane() < LISTED_SPLITS && at + n * stride < items)
        list->split[n - first] = kv_split_of(b, kv_heads, at + n * stride);
    if (n == 0) /* usually one, without a division */
        list->splits = at >= items ? 0 : items - at <= stride ? 1 : (items - at - 1) / stride + 1;
}

/* The parts of a task's beginning, by a warp each: copies the arguments from their stage; lists the worker's splits from the
   stage of the batch. Null: the launch ends, and all warps see no splits. */
FLEET_DEVICE void copy_attention_args(const fleet_ctx *ctx, const stage_source *from,
                                      split_list *list, const void *stage)
{
    uint64_t *own = (uint64_t *)ctx->lds;
    const uint64_t *args = (const uint64_t *)stage;
    for (uint32_t i = fleet_lane(); args && i < offsetof(task_args, rows) / 8; i += 32)
        own[i] = args[i];
    if (args) release_stage(from, 1);
    if (fleet_lane() == 0) list->known = args != NULL;
}
FLEET_DEVICE void copy_splits(const fleet_ctx *ctx, const stage_source *from, split_list *list,
                              const void *stage)
{
    const batch *b = (const batch *)stage;
    if (b) {
        list_splits(ctx, list, b, b->kv_heads, 0);
        for (uint32_t r = fleet_lane(); r < b->rows; r += 32) list->page[r] = b->row[r].page;
        if (fleet_lane() == 0) store_row_count(ctx, b->rows);
        release_stage(from, 1);
    } else if (fleet_lane() == 0) {
        list->splits = 0;
    }
}
#define EARLY_ARGS 1u
#define EARLY_SPLITS 2u
/* What the prefetch has not found. A barrier has to follow. */
FLEET_DEVICE void begin_splits(const fleet_ctx *ctx, stage_source *from, split_list *list,
                               uint32_t early)
{
    if (fleet_wave_id() == ARGS_WARP && !(early & EARLY_ARGS))
        copy_attention_args(ctx, from, list, acquire_stage(from, 0));
    else if (fleet_wave_id() == SPLITS_WARP && !(early & EARLY_SPLITS))
        copy_splits(ctx, from, list, acquire_stage(from, 1));
}
/* Before the task's event: see the prefetch of linear_dense. */
FLEET_PREFETCH(attend, task_args)
{
    split_list *list = (split_list *)(void *)task_lds(&ctx);
    const uint32_t number = fleet_wave_id() == SPLITS_WARP;
    const void *stage = NULL;
    stage_source from;
    FLEET_UNUSED(at), FLEET_UNUSED(args);
    if (fleet_wave_id() != ARGS_WARP && fleet_wave_id() != SPLITS_WARP) return;
    from.status = FLEET_OK, from.position = number + 1;
    if (fleet_consumer_try_open(&ctx, &from.weights)) {
        fleet_stages_skip(&from.weights, number);
        stage = fleet_stage_try_acquire(&from.weights);
    }
    if (stage && number == 0) copy_attention_args(&ctx, &from, list, stage);
    if (stage && number == 1) copy_splits(&ctx, &from, list, stage);
    if (fleet_lane() == 0) list->early[number] = stage != NULL;
}

/* Goes through the worker's splits. The split with the last keys also appends the step's own.
   noinline: a constant, whether splits are combined by a function call, which has registers of its
   own. */
FLEET_DEVICE fleet_status attend_tile(const fleet_ctx *ctx, const uint32_t noinline)
{
    split_list *list = (split_list *)(void *)task_lds(ctx);
    uint32_t first = 2;
    const task_args *task = (const task_args *)ctx->lds;
    stage_source from;
    const uint32_t early =
        ctx->prefetched ? list->early[0] * EARLY_ARGS + list->early[1] * EARLY_SPLITS : 0;
    from.weights = fleet_consumer_open(ctx);
    from.position = 0, from.status = FLEET_OK;
    if (early != (EARLY_ARGS | EARLY_SPLITS)) {
        begin_splits(ctx, &from, list, early);
        fleet_barrier(ctx);
    }
    for (uint32_t i = 0; list->known && i < list->splits; i++) {
        if (i && i % LISTED_SPLITS == 0) {
            fleet_barrier(ctx);
            if (fleet_wave_id() == 0) list_splits(ctx, list, task->d.b, task->d.kv_heads, i);
            fleet_barrier(ctx);
        }
        attend_split(ctx, task, &list->split[i % LISTED_SPLITS], &from, &first, noinline);
    }
    return from.status;
}
FLEET_TILE(attend, task_args)
{
    FLEET_UNUSED(at), FLEET_UNUSED(args);
    return attend_tile(&ctx, 0);
}
/* For the large-M kernel, where inlining would spill registers. The first keys and values arrive
   while workers exchange split-K sums: slowly, as nvidia/wgmma.h explains for weights. */
#if !defined(LARGE_M_KV_INTERVAL)
#define LARGE_M_KV_INTERVAL 600u
#endif
FLEET_PRODUCER(attend_large_m, task_args)
{
    FLEET_UNUSED(at);
    declare_attention(ctx, args, producer, LARGE_M_KV_INTERVAL);
}
FLEET_TILE(attend_large_m, task_args)
{
    FLEET_UNUSED(at), FLEET_UNUSED(args);
    return attend_tile(&ctx, 1);
}
#define ATTENTION_TASKS(TILE_, P) TILE_(P, attend)
#define COMBINE_TASK NO_TASK
#define LARGE_M_ATTENTION_TASKS(TILE_, P) TILE_(P, attend_large_m)

#endif /* QWEN3_NVIDIA_ATTENTION_H */
