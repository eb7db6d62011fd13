/* nvidia/attention.h: attention on NVIDIA GPUs, both of its products by tensor cores (fragments.h).

   Units of keys that are older than the step come from the stream, ahead of the event; those that hold the step's own rows
   are read from the cache, after these were put there. The waves take units in turn, each for itself: it multiplies its
   queries by the keys, makes weights of the scores and multiplies the values by these, all in registers. When no units are
   left, the waves' sums are added up in LDS, in their order. Where a sequence has several parts, whoever is the last to be
   done with a query's puts them together, in the order of the parts.

   A query is a row of the sequence and a head of the group that shares keys: number i is row i / group, head i % group. A
   wave has a set of FRAGMENT_ROWS of them. Where there are more, as in a prompt, several waves with a set each share
   their units.

   After the event each load from global memory is waited for, all the longer when weights take the bandwidth. So there is
   one such wait before the scores, for the step's own rows: what else a worker must know comes with the stream. Scores are
   in powers of two. */
#ifndef QWEN3_NVIDIA_ATTENTION_H
#define QWEN3_NVIDIA_ATTENTION_H

#include "../tasks/kv_splits.h"

#if KEYS != TILE || THREADS != 32 * MOST_WAVES
#error "nvidia/attention.h: a multiplication has TILE keys, and lanes come in warps"
#endif

typedef char a_unit_must_be_a_slot[2 * KEYS * MOST_HEAD_DIM * 2 == SLOT_BYTES ? 1 : -1];
typedef char a_batch_must_fit_a_slot[sizeof(batch) <= SLOT_BYTES ? 1 : -1];

/* So many waves share a unit, each with a set of queries of its own: a power of two that divides their number. */
FLEET_DEVICE uint32_t sets_of(uint32_t queries)
{
    uint32_t sets = 1;
    while (MOST_WAVES % (2 * sets) == 0 && sets * FRAGMENT_ROWS < queries) sets *= 2;
    return sets;
}
FLEET_DEVICE uint32_t queries_of(const decoder *d, const attention_part *p)
{
    return p->rows * d->group;
}
/* Units of a part, its first ones, that no row of this step goes to. */
FLEET_DEVICE uint32_t old_units(const attention_part *p)
{
    const uint32_t old = p->position / KEYS < p->end ? p->position / KEYS : p->end;
    return p->first < old ? old - p->first : 0;
}

/* What it reads of the batch may be that of a later step, if the task has ended without it: also then a part's old units
   are in the cache. slow_apart: cycles between its first pieces, as many as the ring has room for; 0: all come as those of
   products do. */
FLEET_DEVICE void attend_spans(const fleet_ctx ctx, const op *args, fleet_spans *spans,
                               const uint32_t slow_apart)
{
    const decoder *d = &args->d;
    const batch *b = d->b;
    kept *const cache = args->cache;
    const uint32_t kv_heads = d->kv_heads;
    uint32_t parts, items, slow = slow_apart ? (DECODER_SLOTS - 2) * SLOT_BYTES : 0;
    if (!fleet_span_await_step(spans)) return;
    parts = b->parts, items = parts * kv_heads;
    if (slow_apart) fleet_span_pace(spans, slow_apart);
    fleet_span(spans, args, sizeof(op));
    fleet_span(spans, b, (uint32_t)(offsetof(batch, part_sequence) + parts + 15) & ~15u);
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices; i < items;
         i += ctx.tile_num * ctx.slices) {
        const attention_part p = attention_part_of(b, kv_heads, i);
        const uint32_t queries = queries_of(d, &p), step = sets_of(queries) * FRAGMENT_ROWS;
        const kept *units = cache_of(cache, d, &p) + p.first * UNIT;
        const uint32_t bytes = old_units(&p) * UNIT * 2;
        for (uint32_t query = 0; query < queries; query += step) {
            const uint32_t n = bytes < slow ? bytes : slow;
            if (slow_apart) {
                fleet_span(spans, units, n);
                slow -= n;
                if (!slow) fleet_span_pace(spans, PIECES_APART);
            }
            fleet_span(spans, units + n / sizeof *units, bytes - n);
        }
    }
}
FLEET_STREAM(attend, op)
{
    FLEET_UNUSED(at);
    attend_spans(ctx, args, spans, 0);
}

FLEET_DEVICE void put_pair(kept *to, float first, float second)
{
    *(uint32_t *)(void *)to = kept_of(first) | (uint32_t)kept_of(second) << 16;
}

/* ---- LDS ---- */

/* Some of a worker's parts, and how many it has in all. */
#define LISTED 16u
typedef struct part_list {
    attention_part part[LISTED];
    uint32_t parts;
    uint32_t known;     /* 1: the worker has its arguments */
    uint32_t unused[2]; /* what lies behind it is aligned */
} part_list;

#define QUERY_STRIDE (MOST_HEAD_DIM + 32u) /* lanes load from different banks */
#define SUMS (MOST_WAVES * FRAGMENT_ROWS)

typedef struct attention_lds {
    float *sum;           /* [MOST_WAVES][FRAGMENT_ROWS][MOST_HEAD_DIM], as four_at has it */
    float *most, *weight; /* [MOST_WAVES][FRAGMENT_ROWS] */
    kept *q;              /* [sets][FRAGMENT_ROWS][QUERY_STRIDE] */
    uint32_t apart;       /* 1: q has a place of its own, 0: it is that of sums */
} attention_lds;

FLEET_DEVICE attention_lds attention_lds_of(const fleet_ctx *ctx, uint32_t sets)
{
    attention_lds l;
    char *behind;
    l.sum = (float *)(void *)(tile_lds(ctx) + sizeof(part_list));
    l.most = l.sum + SUMS * MOST_HEAD_DIM, l.weight = l.most + SUMS;
    behind = (char *)(l.weight + SUMS);
    l.apart = behind + sets * FRAGMENT_ROWS * QUERY_STRIDE * 2 <= (char *)ctx->lds + LDS_BYTES;
    l.q = l.apart ? (kept *)(void *)behind : (kept *)(void *)l.sum;
    return l;
}

/* Where four neighbours of a query's sums begin, number i of such: in turns by query, so that lanes store to different
   banks. */
FLEET_DEVICE uint32_t four_at(uint32_t query, uint32_t i)
{
    const uint32_t turn = query / 2;
    return query * MOST_HEAD_DIM + (i ^ (turn & 1) ^ (turn & 2) * 2) * 4;
}

/* ---- queries and new keys ---- */

/* The row of a query, among those of its sequence. Mostly there is one, and no need to divide. */
FLEET_DEVICE uint32_t query_row(const decoder *d, const attention_part *p, uint32_t query)
{
    return p->rows == 1 ? 0 : query / d->group;
}
/* Its head, among all of the step's rows. */
FLEET_DEVICE size_t query_head(const decoder *d, const attention_part *p, uint32_t query)
{
    const uint32_t group = d->group, row = query_row(d, p, query);
    return (size_t)(p->row + row) * d->heads + p->head * group + query - row * group;
}

/* What a lane has of a head after norm and rotation: two neighbours, from number 2 l on, and those half a head behind. */
typedef struct turned_head {
    float low[2], high[2];
} turned_head;

FLEET_DEVICE float wave_sum(float x)
{
    for (uint32_t i = 16; i; i /= 2) x += from_lane(x, i);
    return x;
}

FLEET_DEVICE turned_head turn_head(const decoder *d, const float *from, const float *norm,
                                   uint32_t position)
{
    const uint32_t half = d->head_dim / 2, mine = 2 * fleet_lane() < half;
    const uint32_t j = mine ? 2 * fleet_lane() : 0;
    /* All that is to be waited for. */
    const two low = load_two(from + j), high = load_two(from + half + j);
    const two low_norm = load_two(norm + j), high_norm = load_two(norm + half + j);
    const four turn = load_four(d->rope + ((size_t)position * half + j) * 2);
    turned_head t;
    float squares = 0, scale;
    for (uint32_t n = 0; n < 2 && mine; n++)
        squares += low.value[n] * low.value[n] + high.value[n] * high.value[n];
    scale = inverse_root(wave_sum(squares) * (d->root * d->root) + d->eps);
    UNROLLED
    for (uint32_t n = 0; n < 2; n++) {
        const float a = low.value[n] * scale * low_norm.value[n],
                    b = high.value[n] * scale * high_norm.value[n];
        const float c = turn.value[2 * n], s = turn.value[2 * n + 1];
        t.low[n] = a * c - b * s, t.high[n] = b * c + a * s;
    }
    return t;
}

/* Queries from `query` on go to LDS, and where that is the first one, the part's new keys and values to the cache: each
   wave has some of all of these. */
FLEET_DEVICE void put_heads(const op *o, const decoder *d, const attention_part *p,
                            const attention_lds *l, uint32_t query, uint32_t queries)
{
    const uint32_t dim = d->head_dim, width = (d->heads + 2 * d->kv_heads) * dim;
    const uint32_t group = d->group, lane = fleet_lane();
    const uint32_t first = p->first * KEYS > p->position ? p->first * KEYS : p->position;
    const uint32_t last = p->position + p->rows, end = p->end * KEYS < last ? p->end * KEYS : last;
    const uint32_t appended = query == 0 && first < end ? end - first : 0;
    const float *rows = d->qkv + (size_t)p->row * width;
    kept *cache = cache_of(o->cache, d, p);
    for (uint32_t n = fleet_wave_id(); n < queries + appended; n += MOST_WAVES) {
        const uint32_t is_key = n >= queries;
        const uint32_t row =
            is_key ? first + n - queries - p->position : query_row(d, p, query + n);
        const uint32_t head =
            is_key ? d->heads + p->head : p->head * group + query + n - row * group;
        const float *from = rows + row * width + head * dim;
        const uint32_t key = p->position + row;
        const uint32_t j = 2 * lane < dim / 2 ? 2 * lane : 0;
        two low, high;
        turned_head t;
        if (is_key) {
            low = load_two(from + d->kv_heads * dim + j);
            high = load_two(from + d->kv_heads * dim + dim / 2 + j);
        }
        t = turn_head(d, from, is_key ? o->k_norm : o->q_norm, key);
        if (!is_key)
            for (uint32_t i = dim + 2 * lane; i < MOST_HEAD_DIM; i += 64)
                put_pair(l->q + n * QUERY_STRIDE + i, 0, 0);
        if (2 * lane >= dim / 2) continue;
        if (is_key) {
            put_pair(cache + key_at(d, key, j), t.low[0], t.low[1]);
            put_pair(cache + key_at(d, key, j + dim / 2), t.high[0], t.high[1]);
            put_pair(cache + value_at(d, key, j), low.value[0], low.value[1]);
            put_pair(cache + value_at(d, key, j + dim / 2), high.value[0], high.value[1]);
        } else {
            put_pair(l->q + n * QUERY_STRIDE + j, t.low[0], t.low[1]);
            put_pair(l->q + n * QUERY_STRIDE + j + dim / 2, t.high[0], t.high[1]);
        }
    }
}

/* ---- a unit ---- */

/* What a wave has of its queries so far; of lane l those with numbers 2 (l % 4) and 2 (l % 4) + 1. */
typedef struct attending {
    float sum[HEAD_TILES][FRAGMENT_SUMS]; /* fragment_values says of which */
    float weight[FRAGMENT_SUMS]; /* sums of weights: the first two, the others are the same again */
    float most[2];               /* the largest scores */
    uint32_t seen[2];            /* keys */
} attending;

/* A piece of a row of a unit's keys or values, in a slot or in the cache. rows_on, pieces_on: constants, multiples of eight;
   such steps are the same from wherever they begin. */
FLEET_DEVICE fleet_quad load_piece(const kept *rows, uint32_t row, uint32_t piece,
                                   const uint32_t rows_on, const uint32_t pieces_on)
{
    rows += rows_on * MOST_HEAD_DIM + pieces_on * EIGHT;
    return *(const fleet_quad *)(const void *)(rows + unit_at(row, piece * EIGHT));
}

/* Scores: keys times the wave's queries. */
FLEET_DEVICE void score_unit(float *score, const kept *q, const kept *keys, uint32_t lane)
{
    const uint32_t row = lane / 4, piece = lane % 4;
    const kept *query = q + row * QUERY_STRIDE + piece * EIGHT;
    fleet_quad key[HEAD_PIECES / 4][2];
    float sum[4][FRAGMENT_SUMS]; /* none of four in a row waits for the one before */
    memset(sum, 0, sizeof sum);
    UNROLLED
    for (uint32_t i = 0; i < HEAD_PIECES / 4; i++) {
        UNROLLED
        for (uint32_t n = 0; n < 2; n++)
            key[i][n] = load_piece(keys, row, i % 2 * 4 + piece, n * 8, i / 2 * 8);
    }
    UNROLLED
    for (uint32_t i = 0; i < HEAD_PIECES / 4; i++) {
        const fleet_quad b = *(const fleet_quad *)(const void *)(query + i * BLOCK);
        UNROLLED
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t a[4];
            fragment_weights(a, key[i][0].word, key[i][1].word, half);
            multiply_kept(sum[i % 2 * 2 + half], a, b.word + half * 2);
        }
    }
    UNROLLED
    for (uint32_t i = 0; i < FRAGMENT_SUMS; i++)
        score[i] = (sum[0][i] + sum[1][i]) + (sum[2][i] + sum[3][i]);
}

#define LOWEST                                                                                     \
    (-1e30f) /* of a query that has seen no key: finite, so that differences are numbers */
#define F16_ONES 0x3c003c00u

/* Makes weights of the scores of the keys from number `key` on, and adds weights times values. */
FLEET_DEVICE void add_unit(attending *a, const float *score, uint32_t key, float scale,
                           const kept *values, uint32_t lane)
{
    const uint32_t row = key + lane / 4, piece = lane / 4, first_key = lane % 4 * 2;
    const uint32_t ones[4] = {F16_ONES, F16_ONES, F16_ONES, F16_ONES};
    fleet_quad value[8]; /* two pieces of each of four keys */
    float first[2], second[2], most[2], shrink[2];
    uint32_t b[2];
    UNROLLED
    for (uint32_t i = 0; i < 4; i++) {
        UNROLLED
        for (uint32_t n = 0; n < 2; n++)
            value[i * 2 + n] =
                load_piece(values, first_key + i % 2, piece, i / 2 * 8, n * (HEAD_PIECES / 2));
    }
    UNROLLED
    for (uint32_t n = 0; n < 2; n++) {
        first[n] = row < a->seen[n] ? score[n] * scale : -INFINITY;
        second[n] = row + 8 < a->seen[n] ? score[n + 2] * scale : -INFINITY;
        most[n] = fmaxf(first[n], second[n]);
    }
    UNROLLED
    for (uint32_t i = 4; i < 32; i *= 2) {
        UNROLLED
        for (uint32_t n = 0; n < 2; n++) most[n] = fmaxf(most[n], from_lane(most[n], i));
    }
    UNROLLED
    for (uint32_t n = 0; n < 2; n++) {
        most[n] = fmaxf(most[n], a->most[n]);
        shrink[n] = power_of_two(a->most[n] - most[n]);
        a->most[n] = most[n];
    }
    b[0] = turned_over(pair_of(power_of_two(first[0] - most[0]), power_of_two(first[1] - most[1])));
    b[1] =
        turned_over(pair_of(power_of_two(second[0] - most[0]), power_of_two(second[1] - most[1])));
    UNROLLED
    for (uint32_t j = 0; j < FRAGMENT_SUMS; j++) a->weight[j] *= shrink[j % 2];
    multiply_kept(a->weight, ones, b); /* as the values have them */
    UNROLLED
    for (uint32_t i = 0; i < HEAD_TILES; i++) {
        float *sum = a->sum[i];
        uint32_t of[4];
        fragment_values(of, value, i);
        UNROLLED
        for (uint32_t j = 0; j < FRAGMENT_SUMS; j++) sum[j] *= shrink[j % 2];
        multiply_kept(sum, of, b);
    }
}

/* ---- a part ---- */

/* Where the stream is for this wave. */
typedef struct piece_source {
    fleet_weights weights;
    uint32_t passed; /* pieces that it took or passed over */
    fleet_status status;
} piece_source;

/* A piece, by its number; those before are other waves'. Null: it will not come. */
FLEET_DEVICE const kept *take_piece(piece_source *from, uint32_t number)
{
    const kept *piece;
    fleet_weights_skip(&from->weights, number - from->passed);
    from->passed = number;
    piece = (const kept *)fleet_weights_next(&from->weights);
    if (piece)
        from->passed++;
    else
        from->status = fleet_weights_status(&from->weights);
    return piece;
}

/* The lane's wave is done with the piece that it took last. */
FLEET_DEVICE void give_piece(const piece_source *from, uint32_t sets)
{
    if (sets == 1) /* mostly, and no need to divide */
        fleet_weights_release(&from->weights, 1);
    else
        fleet_weights_release(&from->weights, sets);
}

/* This wave's units of a part, of which the first `old` ones come from the stream, from piece `first` on; but the others
   first, for the ring fills while they are waited for. */
FLEET_DEVICE void attend_units(attending *a, const kept *units, const attention_part *p,
                               const attention_lds *l, uint32_t sets, uint32_t set, uint32_t crew,
                               piece_source *from, uint32_t first, uint32_t old, float scale)
{
    const uint32_t n = p->end - p->first, key = p->first * KEYS;
    const uint32_t crews = sets == 1 ? MOST_WAVES : MOST_WAVES / sets;
    const kept *q = l->q + set * FRAGMENT_ROWS * QUERY_STRIDE;
    const uint32_t mine = n > crew ? n - crew : 0, streamed = old > crew ? old - crew : 0;
    const uint32_t all = sets == 1 ? ceil_div(mine, MOST_WAVES) : ceil_div(mine, crews);
    const uint32_t some = sets == 1 ? ceil_div(streamed, MOST_WAVES) : ceil_div(streamed, crews);
    for (uint32_t turn = 0; turn < all && !from->status; turn++) {
        const uint32_t u = crew + (turn + some < all ? turn + some : turn + some - all) * crews;
        const kept *unit = units + (size_t)u * UNIT;
        const uint32_t lane = fresh(fleet_lane());
        float score[FRAGMENT_SUMS];
        if (u < old && !(unit = take_piece(from, first + u))) break;
        score_unit(score, q, unit, lane);
        add_unit(a, score, key + u * KEYS, scale, unit + UNIT / 2, lane);
        if (u < old) give_piece(from, sets);
    }
}

/* Four neighbours of a head, from number 4 l on. */
FLEET_DEVICE void put_attended(const decoder *d, const attention_part *p, uint32_t query, four sum,
                               float weight)
{
    const uint32_t c = fleet_lane() * 4, dim = d->head_dim, width = d->heads * dim;
    const uint32_t group = d->group, row = query_row(d, p, query);
    const uint32_t head = p->head * group + query - row * group;
    const float scale = 1 / weight;
    UNROLLED
    for (uint32_t i = 0; i < 4; i++) sum.value[i] *= scale;
    if (c < dim)
        put_acts(d->attended + act_at(p->row + row, head * dim + c, width),
                 d->split * MOST_ROWS * width, sum);
}

/* A wave's sums to LDS, and what belongs to all of them. */
FLEET_DEVICE void leave_sums(const attending *a, const attention_lds *l)
{
    const uint32_t lane = fresh(fleet_lane()),
                   rows = fleet_wave_id() * FRAGMENT_ROWS + lane % 4 * 2;
    UNROLLED
    for (uint32_t i = 0; i < FRAGMENT_SUMS; i++) {
        UNROLLED
        for (uint32_t m = 0; m < HEAD_TILES; m += 4) {
            const uint32_t at = i / 2 * (MOST_HEAD_DIM / 8) + lane / 4 * 2 + m / 4;
            four some;
            UNROLLED
            for (uint32_t j = 0; j < 4; j++) some.value[j] = a->sum[m + j][i];
            put_four(l->sum + four_at(rows + i % 2, at), some);
        }
    }
    if (lane >= 4) return;
    UNROLLED
    for (uint32_t n = 0; n < 2; n++)
        l->most[rows + n] = a->most[n], l->weight[rows + n] = a->weight[n];
}

/* ---- parts ---- */

/* What a lane leaves of a part for whoever puts the parts of a query together: four values, already divided by the sum of
   their weights, two in a word; the power of two that this sum is; and the task's tag. The last part to be done finds the
   tags of all others, or will: so nothing has to be ordered, and the values are on their way while parts are counted. */
FLEET_DEVICE fleet_quad *part_place(const decoder *d, const attention_part *p, uint32_t query,
                                    uint32_t part)
{
    fleet_quad *all = (fleet_quad *)(void *)d->partial;
    return all + (query_head(d, p, query) * d->most_parts + part) * PARTIAL + fleet_lane();
}
FLEET_DEVICE void leave_part(const decoder *d, const attention_part *p, uint32_t query, four sum,
                             float most, float weight, uint32_t tag)
{
    /* No weight: the query's row sees none of these keys. */
    const float scale = weight > 0 ? 1 / weight : 0;
    fleet_quad left;
    left.word[0] = pair_of(sum.value[0] * scale, sum.value[1] * scale);
    left.word[1] = pair_of(sum.value[2] * scale, sum.value[3] * scale);
    /* One 16-byte store holds values and tag. Pair: the loads in join_parts (edge 22). */
    left.word[2] = word_of_float(most + log_of_two(weight)), left.word[3] = tag;
    store_as_one(part_place(d, p, query, p->part), left);
}
/* Whether this is the last part of a query to be done. */
FLEET_DEVICE uint32_t is_last_part(const decoder *d, const attention_part *p, uint32_t query)
{
    uint32_t last = 0;
    fleet_wave_barrier(); /* all lanes have left theirs, which others may wait for from now on */
    if (fleet_lane() == 0) {
        uint32_t *arrived = d->arrived + query_head(d, p, query);
        last = fleet_add_relaxed_device(arrived, 1) + 1 == p->parts;
        if (last) fleet_store_relaxed_device(arrived, 0); /* for the layer behind the event */
    }
    return of_lane((float)last, 0) > 0;
}
#define JOINED 8u /* parts on their way at a time */
FLEET_DEVICE void join_parts(const decoder *d, const attention_part *p, uint32_t query,
                             uint32_t tag)
{
    const fleet_quad *from = part_place(d, p, query, 0);
    four sum = {{0, 0, 0, 0}};
    float most = LOWEST, weight = 0;
    ROLLED
    for (uint32_t first = 0; first < p->parts; first += JOINED) {
        const uint32_t last = p->parts - first < JOINED ? p->parts - first - 1 : JOINED - 1;
        fleet_quad part[JOINED];
        uint32_t late;
        float shrink = most;
        do { /* which ends: all parts are counted, and only on their way */
            late = 0;
            UNROLLED
            for (uint32_t i = 0; i < JOINED; i++)
                part[i] = load_as_one(from + (first + (i < last ? i : last)) * PARTIAL);
            UNROLLED
            /* Loaded again until the tag is this task's (edge 22). */
            for (uint32_t i = 0; i < JOINED; i++) late |= part[i].word[3] ^ tag;
        } while (any_lane(late != 0));
        UNROLLED
        for (uint32_t i = 0; i < JOINED; i++) most = fmaxf(most, float_of_word(part[i].word[2]));
        shrink = power_of_two(shrink - most);
        weight *= shrink;
        UNROLLED
        for (uint32_t j = 0; j < 4; j++) sum.value[j] *= shrink;
        UNROLLED
        for (uint32_t i = 0; i < JOINED; i++) {
            const float worth = i <= last ? power_of_two(float_of_word(part[i].word[2]) - most) : 0;
            weight += worth;
            sum.value[0] += lower_of_pair(part[i].word[0]) * worth;
            sum.value[1] += upper_of_pair(part[i].word[0]) * worth;
            sum.value[2] += lower_of_pair(part[i].word[1]) * worth;
            sum.value[3] += upper_of_pair(part[i].word[1]) * worth;
        }
    }
    put_attended(d, p, query, sum, weight);
}

CALLED_ON_DEVICE void join_parts_by_call(const decoder *d, const attention_part *p, uint32_t query,
                                         uint32_t tag)
{
    join_parts(d, p, query, tag);
}

/* Adds up what so many waves left of each query, four values by each lane. */
FLEET_DEVICE void add_sums(const decoder *d, const attention_part *p, const attention_lds *l,
                           uint32_t sets, uint32_t crews, uint32_t query, uint32_t queries,
                           uint32_t tag, const uint32_t calls)
{
    for (uint32_t n = fleet_wave_id(); n < queries; n += MOST_WAVES) {
        float of[MOST_WAVES], most = LOWEST, weight = 0;
        four sum = {{0, 0, 0, 0}};
        UNROLLED
        for (uint32_t i = 0; i < MOST_WAVES; i++) {
            of[i] = i < crews ? l->most[i * sets * FRAGMENT_ROWS + n] : LOWEST;
            most = fmaxf(most, of[i]);
        }
        UNROLLED
        for (uint32_t i = 0; i < MOST_WAVES; i++) {
            const uint32_t row = i * sets * FRAGMENT_ROWS + n;
            const float worth = power_of_two(of[i] - most);
            if (i < crews) {
                const four wave = load_four(l->sum + four_at(row, fleet_lane()));
                UNROLLED
                for (uint32_t j = 0; j < 4; j++) sum.value[j] += wave.value[j] * worth;
                weight += l->weight[row] * worth;
            }
        }
        if (p->parts == 1) {
            put_attended(d, p, query + n, sum, weight);
        } else {
            leave_part(d, p, query + n, sum, most, weight, tag);
            if (!is_last_part(d, p, query + n)) continue;
            if (calls)
                join_parts_by_call(d, p, query + n, tag);
            else
                join_parts(d, p, query + n, tag);
        }
    }
}

FLEET_DEVICE void attend_part(const fleet_ctx *ctx, const op *o, const attention_part *p,
                              piece_source *from, uint32_t *first, const uint32_t calls)
{
    const decoder *d = &o->d;
    const uint32_t all = queries_of(d, p), sets = sets_of(all), old = old_units(p);
    const uint32_t wave = fleet_wave_id(), set = sets == 1 ? 0 : wave % sets,
                   crew = sets == 1 ? wave : wave / sets;
    const uint32_t units = p->end - p->first, crews = sets == 1 ? MOST_WAVES : MOST_WAVES / sets;
    const uint32_t busy = units < crews ? units : crews;
    const kept *cached = cache_of(o->cache, d, p) + (size_t)p->first * UNIT;
    const float scale = 1.44269504f * d->root; /* log2(e) */
    const attention_lds l = attention_lds_of(ctx, sets);
    for (uint32_t query = 0; query < all; query += sets * FRAGMENT_ROWS) {
        const uint32_t left = all - query;
        const uint32_t queries = left < sets * FRAGMENT_ROWS ? left : sets * FRAGMENT_ROWS;
        attending a;
        if (!l.apart) fleet_barrier(ctx); /* all are done with the sums before */
        put_heads(o, d, p, &l, query, queries);
        memset(&a, 0, sizeof a);
        UNROLLED
        for (uint32_t n = 0; n < 2; n++) {
            const uint32_t i = query + set * FRAGMENT_ROWS + fleet_lane() % 4 * 2 + n;
            a.most[n] = LOWEST;
            a.seen[n] = p->position + query_row(d, p, i) + 1; /* itself and what came before */
        }
        fleet_barrier(ctx);
        attend_units(&a, cached, p, &l, sets, set, crew, from, *first, old, scale);
        *first += old;
        if (!l.apart) fleet_barrier(ctx);
        if (crew < busy) leave_sums(&a, &l);
        fleet_barrier(ctx);
        add_sums(d, p, &l, sets, busy, query, queries, task_tag(ctx, o), calls);
    }
}

/* The worker's parts from number `first` on to LDS, by one wave: a lane has one. */
FLEET_DEVICE void list_parts(const fleet_ctx *ctx, part_list *list, const batch *b,
                             uint32_t kv_heads, uint32_t first)
{
    const uint32_t at = ctx->slice + ctx->tile_index * ctx->slices;
    const uint32_t stride = ctx->tile_num * ctx->slices, items = b->parts * kv_heads;
    const uint32_t n = first + fleet_lane();
    if (fleet_lane() < LISTED && at + n * stride < items)
        list->part[n - first] = attention_part_of(b, kv_heads, at + n * stride);
    if (n == 0) /* mostly one, and no need to divide */
        list->parts = at >= items ? 0 : items - at <= stride ? 1 : (items - at - 1) / stride + 1;
}

/* What the stream says about the task to LDS, by two waves. If the run ends, the task has no parts, for all waves. */
FLEET_DEVICE const op *begin_parts(const fleet_ctx *ctx, piece_source *from, part_list *list)
{
    uint64_t *own = (uint64_t *)ctx->lds;
    if (fleet_wave_id() == 0) {
        const uint64_t *args = (const uint64_t *)(const void *)take_piece(from, 0);
        for (uint32_t i = fleet_lane(); args && i < offsetof(op, rows) / 8; i += 32)
            own[i] = args[i];
        if (args) give_piece(from, 1);
        if (fleet_lane() == 0) list->known = args != NULL;
    } else if (fleet_wave_id() == 1) {
        const batch *b = (const batch *)(const void *)take_piece(from, 1);
        if (b) {
            list_parts(ctx, list, b, b->kv_heads, 0);
            if (fleet_lane() == 0) keep_rows(ctx, b->rows);
            give_piece(from, 1);
        } else if (fleet_lane() == 0) {
            list->parts = 0;
        }
    }
    fleet_barrier(ctx);
    return (const op *)ctx->lds;
}

/* A part of a sequence's keys and one head of them at a time. Whoever has the last of the keys has also those of the step's
   own rows, and appends them. calls: a constant, whether parts are put together by a function that is called. */
FLEET_DEVICE fleet_status attend_tile(const fleet_ctx *ctx, const uint32_t calls)
{
    part_list *list = (part_list *)(void *)tile_lds(ctx);
    uint32_t first = 2;
    piece_source from;
    const op *o;
    from.weights = fleet_weights_open(ctx);
    from.passed = 0, from.status = FLEET_OK;
    o = begin_parts(ctx, &from, list);
    for (uint32_t i = 0; list->known && i < list->parts; i++) {
        if (i && i % LISTED == 0) {
            fleet_barrier(ctx);
            if (fleet_wave_id() == 0) list_parts(ctx, list, o->d.b, o->d.kv_heads, i);
            fleet_barrier(ctx);
        }
        attend_part(ctx, o, &list->part[i % LISTED], &from, &first, calls);
    }
    return from.status;
}
FLEET_TILE(attend, op)
{
    FLEET_UNUSED(at), FLEET_UNUSED(args);
    return attend_tile(&ctx, 0);
}
/* For the kernel of many rows, whose products would spill more. The keys and values that the ring has room for come while
   workers exchange the sums of products: slowly, as nvidia/wgmma.h says of pieces. */
#if !defined(MANY_KEYS_APART)
#define MANY_KEYS_APART 600u
#endif
FLEET_STREAM(attend_many, op)
{
    FLEET_UNUSED(at);
    attend_spans(ctx, args, spans, MANY_KEYS_APART);
}
FLEET_TILE(attend_many, op)
{
    FLEET_UNUSED(at), FLEET_UNUSED(args);
    return attend_tile(&ctx, 1);
}
#define ATTENTION_TILES(TILE_, P) TILE_(P, attend)
#define COMBINE_TASK NO_TASK
#define ATTENTION_TILES_OF_MANY(TILE_, P) TILE_(P, attend_many)

#endif /* QWEN3_NVIDIA_ATTENTION_H */
