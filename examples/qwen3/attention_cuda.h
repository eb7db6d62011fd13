/* attention_cuda.h: attention on NVIDIA GPUs, both of its products by tensor cores (fragments.h).

   Units of keys that are older than the step come from the stream, ahead of the event; those that hold the step's own rows
   are read from the cache, after these were put there. The waves take units in turn, each for itself: it multiplies its
   queries by the keys, makes weights of the scores and multiplies the values by these, all in registers. When no units are
   left, the waves' sums are added up in LDS, in their order. Where a sequence has several parts, whoever is the last to be
   done with one puts them together, in the order of the parts.

   A query is a row of the sequence and a head of the group that shares keys: number i is row i / group, head i % group. A
   wave has a set of FRAGMENT_ROWS of them. Where there are more, as in a prompt, several waves with a set each share
   their units. */

#if KEYS != TILE || THREADS != 32 * MOST_WAVES
#error "attention_cuda.h: a multiplication has TILE keys, and lanes come in warps"
#endif

/* Where the stream has one piece for each half of a head. */
typedef char half_a_unit_must_be_a_slot[2 * KEYS * HEAD_HALF * 2 == SLOT_BYTES ? 1 : -1];

/* So many waves share a unit: all, or a number that divides theirs. */
FLEET_DEVICE uint32_t sets_of(uint32_t queries)
{
    uint32_t sets = 1;
    while (sets < MOST_WAVES && sets * FRAGMENT_ROWS < queries) sets *= 2;
    return sets;
}
/* Units of a part, its first ones, that no row of this step goes to. */
FLEET_DEVICE uint32_t old_units(const attention_part *p)
{
    const uint32_t old = p->position / KEYS < p->end ? p->position / KEYS : p->end;
    return p->first < old ? old - p->first : 0;
}

/* What it reads of the batch may be that of a later step, if the task has ended without it: also then a part's old units
   are in the cache. */
FLEET_STREAM(attend, op)
{
    const decoder *d = &args->d;
    const batch *b = d->b;
    const op o = *args;
    const uint32_t group = d->heads / d->kv_heads, kv_heads = d->kv_heads;
    uint32_t items;
    FLEET_UNUSED(at);
    if (!fleet_span_await_step(spans)) return;
    items = b->parts * kv_heads;
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices; i < items;
         i += ctx.tile_num * ctx.slices) {
        const attention_part p = attention_part_of(b, kv_heads, i);
        const uint32_t step = sets_of(p.rows * group) * FRAGMENT_ROWS;
        const kept *units = cache_of(&o, d, &p) + p.first * unit_size(d);
        const uint32_t bytes = old_units(&p) * (uint32_t)unit_size(d) * 2;
        for (uint32_t query = 0; query < p.rows * group; query += step)
            fleet_span(spans, units, bytes);
    }
}

/* Values that a lane loads or stores together. */
typedef struct __attribute__((aligned(8))) two {
    float value[2];
} two;
typedef struct __attribute__((aligned(16))) four {
    float value[4];
} four;

FLEET_DEVICE two load_two(const float *from)
{
    return *(const two *)(const void *)from;
}
FLEET_DEVICE four load_four(const float *from)
{
    return *(const four *)(const void *)from;
}
FLEET_DEVICE void put_pair(kept *to, float first, float second)
{
    *(uint32_t *)(void *)to = kept_of(first) | (uint32_t)kept_of(second) << 16;
}

/* What weights are worth after the largest score has grown. */
FLEET_DEVICE float worth_of(float before, float most)
{
    return most == -INFINITY ? 0 : exp_of(before - most);
}

/* ---- LDS ---- */

#define SUM_STRIDE (HEAD_HALF + 4u) /* of a query: stores find different banks */
#define QUERY_PAD 16u               /* likewise loads */
#define SUMS (MOST_WAVES * FRAGMENT_ROWS)

typedef struct attention_lds {
    float *sum;           /* [MOST_WAVES][FRAGMENT_ROWS][SUM_STRIDE], half a head */
    float *most, *weight; /* [MOST_WAVES][FRAGMENT_ROWS] */
    uint32_t *last;       /* 1: all parts are there */
    kept *q;              /* [sets][FRAGMENT_ROWS][stride] */
    uint32_t stride;
    uint32_t apart; /* 1: q has a place of its own, 0: it is that of sums */
} attention_lds;

FLEET_DEVICE attention_lds attention_lds_of(const fleet_ctx *ctx, uint32_t sets, uint32_t halves)
{
    attention_lds l;
    char *behind;
    l.sum = (float *)(void *)tile_lds(ctx);
    l.most = l.sum + SUMS * SUM_STRIDE, l.weight = l.most + SUMS;
    l.last = (uint32_t *)(void *)(l.weight + SUMS);
    behind = (char *)(l.last + 4);
    l.stride = halves * HEAD_HALF + QUERY_PAD;
    l.apart = behind + sets * FRAGMENT_ROWS * l.stride * 2 <= (char *)ctx->lds + LDS_BYTES;
    l.q = (kept *)(void *)(l.apart ? behind : tile_lds(ctx));
    return l;
}

/* ---- queries and new keys ---- */

/* What a lane has of a head after norm and rotation: pairs of neighbours, from head_pair() on and half of head_dim behind. */
typedef struct turned_head {
    float low[2][2], high[2][2];
} turned_head;

FLEET_DEVICE uint32_t head_pair(uint32_t i)
{
    return i * (HEAD_HALF / 2) + 2 * fleet_lane();
}
FLEET_DEVICE float wave_sum(float x)
{
    for (uint32_t i = 16; i; i /= 2) x += from_lane(x, i);
    return x;
}

FLEET_DEVICE turned_head turn_head(const decoder *d, const float *from, const float *norm,
                                   uint32_t position, const uint32_t halves)
{
    const uint32_t half = d->head_dim / 2;
    two low[2], high[2], low_norm[2], high_norm[2];
    four turn[2];
    turned_head t;
    float squares = 0, scale;
    UNROLLED
    for (uint32_t i = 0; i < halves; i++) { /* all that is to be waited for */
        const uint32_t j = head_pair(i) < half ? head_pair(i) : 0;
        low[i] = load_two(from + j), high[i] = load_two(from + half + j);
        low_norm[i] = load_two(norm + j), high_norm[i] = load_two(norm + half + j);
        turn[i] = load_four(d->rope + ((size_t)position * half + j) * 2);
    }
    UNROLLED
    for (uint32_t i = 0; i < halves; i++)
        for (uint32_t n = 0; n < 2 && head_pair(i) < half; n++)
            squares += low[i].value[n] * low[i].value[n] + high[i].value[n] * high[i].value[n];
    scale = 1 / sqrtf(wave_sum(squares) / (float)d->head_dim + d->eps);
    UNROLLED
    for (uint32_t i = 0; i < halves; i++) {
        UNROLLED
        for (uint32_t n = 0; n < 2; n++) {
            const float a = low[i].value[n] * scale * low_norm[i].value[n],
                        b = high[i].value[n] * scale * high_norm[i].value[n];
            const float c = turn[i].value[2 * n], s = turn[i].value[2 * n + 1];
            t.low[i][n] = a * c - b * s, t.high[i][n] = b * c + a * s;
        }
    }
    return t;
}

/* Queries from `query` on go to LDS, and where that is the first one, the part's new keys and values to the cache: each
   wave has some of all of these. */
FLEET_DEVICE void put_heads(const op *o, const decoder *d, const attention_part *p,
                            const attention_lds *l, uint32_t query, uint32_t queries,
                            const uint32_t halves)
{
    const uint32_t dim = d->head_dim, width = (d->heads + 2 * d->kv_heads) * dim;
    const uint32_t group = d->heads / d->kv_heads, lane = fleet_lane();
    const uint32_t first = p->first * KEYS > p->position ? p->first * KEYS : p->position;
    const uint32_t last = p->position + p->rows, end = p->end * KEYS < last ? p->end * KEYS : last;
    const uint32_t appended = query == 0 && first < end ? end - first : 0;
    const float *rows = d->qkv + (size_t)p->row * width;
    kept *cache = cache_of(o, d, p);
    for (uint32_t n = fleet_wave_id(); n < queries + appended; n += MOST_WAVES) {
        const uint32_t is_key = n >= queries;
        const uint32_t row = is_key ? first + n - queries - p->position : (query + n) / group;
        const uint32_t head = is_key ? d->heads + p->head : p->head * group + (query + n) % group;
        const float *from = rows + row * width + head * dim;
        const uint32_t key = p->position + row;
        two low[2], high[2];
        turned_head t;
        UNROLLED
        for (uint32_t i = 0; i < halves; i++)
            if (is_key && head_pair(i) < dim / 2) {
                const float *value = from + d->kv_heads * dim + head_pair(i);
                low[i] = load_two(value), high[i] = load_two(value + dim / 2);
            }
        t = turn_head(d, from, is_key ? o->k_norm : o->q_norm, key, halves);
        UNROLLED
        for (uint32_t i = 0; i < halves; i++) {
            const uint32_t j = head_pair(i);
            if (j >= dim / 2) break;
            if (is_key) {
                put_pair(cache + key_at(d, key, j), t.low[i][0], t.low[i][1]);
                put_pair(cache + key_at(d, key, j + dim / 2), t.high[i][0], t.high[i][1]);
                for (uint32_t c = 0; c < 2; c++) {
                    cache[value_at(d, key, j + c)] = kept_of(low[i].value[c]);
                    cache[value_at(d, key, j + dim / 2 + c)] = kept_of(high[i].value[c]);
                }
            } else {
                put_pair(l->q + n * l->stride + j, t.low[i][0], t.low[i][1]);
                put_pair(l->q + n * l->stride + j + dim / 2, t.high[i][0], t.high[i][1]);
            }
        }
        if (!is_key)
            for (uint32_t i = dim + 2 * lane; i < halves * HEAD_HALF; i += 64)
                put_pair(l->q + n * l->stride + i, 0, 0);
    }
}

/* ---- a unit ---- */

/* What a wave has of its queries so far; of lane l those with numbers 2 (l % 4) and 2 (l % 4) + 1. */
typedef struct attending {
    float sum[2 * HALF_TILES][FRAGMENT_SUMS];
    float most[2], weight[2]; /* the largest score; the sum of weights of this lane's keys */
    uint32_t seen[2];         /* keys */
} attending;

/* Sixteen bytes of a unit, of a slot or of the cache. */
FLEET_DEVICE fleet_quad load_block(const kept *unit, uint32_t i)
{
    return *(const fleet_quad *)(const void *)(unit + i * CACHE_BLOCK + fleet_lane() * EIGHT);
}

/* Scores: keys times the wave's queries. */
FLEET_DEVICE void score_unit(float *score, const kept *q, uint32_t stride, const kept *keys,
                             const uint32_t halves)
{
    const uint32_t lane = fleet_lane();
    const kept *query = q + lane / 4 * stride + lane % 4 * 4;
    float sum[4][FRAGMENT_SUMS]; /* none of four in a row waits for the one before */
    memset(sum, 0, sizeof sum);
    UNROLLED
    for (uint32_t half = 0; half < halves; half++) {
        fleet_quad key[HALF_TILES];
        UNROLLED
        for (uint32_t i = 0; i < HALF_TILES; i++) key[i] = load_block(keys, half * HALF_TILES + i);
        UNROLLED
        for (uint32_t i = 0; i < HALF_TILES; i++) {
            const uint32_t *b =
                (const uint32_t *)(const void *)(query + (half * HALF_TILES + i) * TILE);
            uint32_t a[4];
            a[0] = key[i].word[0], a[1] = key[i].word[2], a[2] = key[i].word[1],
            a[3] = key[i].word[3];
            multiply_kept(sum[i % 4], a, b);
        }
    }
    UNROLLED
    for (uint32_t i = 0; i < FRAGMENT_SUMS; i++)
        score[i] = (sum[0][i] + sum[1][i]) + (sum[2][i] + sum[3][i]);
}

/* Makes weights of the scores of the keys from number `key` on, and adds weights times values. */
FLEET_DEVICE void add_unit(attending *a, const float *score, uint32_t key, float root,
                           const kept *values, const uint32_t halves)
{
    fleet_quad value[HALF_TILES];
    kept weight[FRAGMENT_SUMS];
    uint32_t b[2];
    float shrink[2];
    UNROLLED
    for (uint32_t i = 0; i < HALF_TILES; i++) value[i] = load_block(values, i);
    UNROLLED
    for (uint32_t n = 0; n < 2; n++) {
        const uint32_t row = key + fleet_lane() / 4;
        const float first = row < a->seen[n] ? score[n] * root : -INFINITY;
        const float second = row + 8 < a->seen[n] ? score[n + 2] * root : -INFINITY;
        float most = fmaxf(first, second);
        UNROLLED
        for (uint32_t i = 4; i < 32; i *= 2) most = fmaxf(most, from_lane(most, i));
        most = fmaxf(most, a->most[n]);
        shrink[n] = worth_of(a->most[n], most);
        weight[n] = kept_of(worth_of(first, most));
        weight[n + 2] = kept_of(worth_of(second, most));
        /* As the values will have them. */
        a->weight[n] =
            a->weight[n] * shrink[n] + (float_of_kept(weight[n]) + float_of_kept(weight[n + 2]));
        a->most[n] = most;
    }
    b[0] = turned_over(weight[0] | (uint32_t)weight[1] << 16);
    b[1] = turned_over(weight[2] | (uint32_t)weight[3] << 16);
    UNROLLED
    for (uint32_t half = 0; half < halves; half++) {
        UNROLLED
        for (uint32_t i = 0; i < HALF_TILES; i++) {
            float *sum = a->sum[half * HALF_TILES + i];
            if (half) value[i] = load_block(values, half * HALF_TILES + i);
            UNROLLED
            for (uint32_t j = 0; j < FRAGMENT_SUMS; j++) sum[j] *= shrink[j % 2];
            multiply_kept(sum, value[i].word, b);
        }
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

/* This wave's units of a part, those of the stream from piece `first` on. */
FLEET_DEVICE void attend_units(attending *a, const op *o, const decoder *d, const attention_part *p,
                               const attention_lds *l, uint32_t sets, piece_source *from,
                               uint32_t first, const uint32_t halves)
{
    const uint32_t wave = fleet_wave_id(), old = old_units(p);
    const kept *units = cache_of(o, d, p) + p->first * unit_size(d);
    const kept *q = l->q + wave % sets * FRAGMENT_ROWS * l->stride;
    const float root = 1 / sqrtf((float)d->head_dim);
    for (uint32_t u = wave / sets; u < p->end - p->first && !from->status; u += MOST_WAVES / sets) {
        const kept *keys = units + u * unit_size(d), *values;
        float score[FRAGMENT_SUMS];
        if (u < old && !(keys = take_piece(from, first + u * halves))) break;
        score_unit(score, q, l->stride, keys, halves);
        values = keys + KEYS * HEAD_HALF * halves;
        if (u < old && halves > 1) {
            fleet_weights_release(&from->weights, sets);
            if (!(values = take_piece(from, first + u * halves + 1))) break;
        }
        add_unit(a, score, (p->first + u) * KEYS, root, values, halves);
        if (u < old) fleet_weights_release(&from->weights, sets);
    }
}

/* Where a part's sums of a query go. */
FLEET_DEVICE float *partial_of(const decoder *d, const attention_part *p, uint32_t query,
                               uint32_t part)
{
    const uint32_t group = d->heads / d->kv_heads, row = p->row + query / group;
    const size_t head = (size_t)row * d->heads + p->head * group + query % group;
    return d->partial + (head * d->most_parts + part) * (d->head_dim + PARTIAL_ENDS);
}
FLEET_DEVICE void put_attended(const decoder *d, const attention_part *p, uint32_t query,
                               uint32_t c, four sum, float weight)
{
    const uint32_t group = d->heads / d->kv_heads, dim = d->head_dim;
    const uint32_t head = p->head * group + query % group;
    /* c is a multiple of 4: the others lie behind it. */
    act *to =
        d->attended + act_at(p->row + query / group, head * dim + c, d->heads * dim, MOST_ROWS);
    UNROLLED
    for (uint32_t i = 0; i < 4; i++)
        put_act(to + i, d->split * MOST_ROWS * d->heads * dim, sum.value[i] / weight);
}

/* A wave's sums of half a head to LDS, and where that is the first half, what belongs to all. */
FLEET_DEVICE void leave_sums(const attending *a, const attention_lds *l, uint32_t half)
{
    const uint32_t lane = fleet_lane(), rows = fleet_wave_id() * FRAGMENT_ROWS + lane % 4 * 2;
    UNROLLED
    for (uint32_t i = 0; i < HALF_TILES; i++) {
        UNROLLED
        for (uint32_t j = 0; j < FRAGMENT_SUMS; j++)
            l->sum[(rows + j % 2) * SUM_STRIDE + i * TILE + j / 2 * 8 + lane / 4] =
                half ? a->sum[HALF_TILES + i][j] : a->sum[i][j];
    }
    if (half) return;
    UNROLLED
    for (uint32_t n = 0; n < 2; n++) {
        float weight = a->weight[n];
        UNROLLED
        for (uint32_t i = 4; i < 32; i *= 2) weight += from_lane(weight, i);
        if (lane < 4) l->most[rows + n] = a->most[n], l->weight[rows + n] = weight;
    }
}

/* Adds up what the waves left of half a head, four values by each lane. */
FLEET_DEVICE void add_sums(const decoder *d, const attention_part *p, const attention_lds *l,
                           uint32_t sets, uint32_t query, uint32_t queries, uint32_t half)
{
    const uint32_t at = fleet_lane() * 4, c = half * HEAD_HALF + at;
    for (uint32_t n = fleet_wave_id(); n < queries; n += MOST_WAVES) {
        float most = -INFINITY, weight = 0;
        four sum = {{0, 0, 0, 0}};
        for (uint32_t row = n; row < SUMS; row += sets * FRAGMENT_ROWS)
            most = fmaxf(most, l->most[row]);
        for (uint32_t row = n; row < SUMS; row += sets * FRAGMENT_ROWS) {
            const float worth = worth_of(l->most[row], most);
            const four wave = load_four(l->sum + row * SUM_STRIDE + at);
            UNROLLED
            for (uint32_t i = 0; i < 4; i++) sum.value[i] += wave.value[i] * worth;
            weight += l->weight[row] * worth;
        }
        if (c >= d->head_dim) continue;
        if (p->parts == 1) {
            put_attended(d, p, query + n, c, sum, weight);
        } else {
            float *to = partial_of(d, p, query + n, p->part);
            *(four *)(void *)(to + c) = sum;
            if (c == 0) to[d->head_dim] = most, to[d->head_dim + 1] = weight;
        }
    }
}

/* Whether all other parts of the sequence's head are done. */
FLEET_DEVICE uint32_t is_last_part(const fleet_ctx *ctx, const decoder *d, const attention_part *p,
                                   const attention_lds *l)
{
    fleet_barrier(ctx); /* what all waves stored is published with the arrival */
    if (ctx->thread == 0) {
        uint32_t *arrived = d->arrived + p->sequence * d->kv_heads + p->head;
        *l->last = fleet_add_acq_rel_device(arrived, 1) + 1 == p->parts;
        if (*l->last) fleet_store_relaxed_device(arrived, 0); /* for the layer behind the event */
    }
    fleet_barrier(ctx);
    return *l->last;
}

#define JOINED 8u /* parts on their way at a time */
FLEET_DEVICE void join_parts(const decoder *d, const attention_part *p, uint32_t query,
                             const uint32_t halves)
{
    const uint32_t stride = d->head_dim + PARTIAL_ENDS;
    const float *from = partial_of(d, p, query, 0);
    for (uint32_t half = 0; half < halves; half++) {
        const uint32_t c = half * HEAD_HALF + fleet_lane() * 4;
        float most = -INFINITY, weight = 0;
        four sum = {{0, 0, 0, 0}};
        if (c >= d->head_dim) continue;
        for (uint32_t first = 0; first < p->parts; first += JOINED) {
            four part[JOINED];
            two ends[JOINED];
            UNROLLED
            for (uint32_t i = 0; i < JOINED; i++) {
                const uint32_t n = first + i < p->parts ? first + i : first;
                part[i] = load_four(from + n * stride + c);
                ends[i] = load_two(from + n * stride + d->head_dim);
            }
            UNROLLED
            for (uint32_t i = 0; i < JOINED; i++) {
                const float now = fmaxf(most, ends[i].value[0]);
                const float shrink = worth_of(most, now), worth = worth_of(ends[i].value[0], now);
                if (first + i >= p->parts) break;
                UNROLLED
                for (uint32_t j = 0; j < 4; j++)
                    sum.value[j] = sum.value[j] * shrink + part[i].value[j] * worth;
                weight = weight * shrink + ends[i].value[1] * worth;
                most = now;
            }
        }
        put_attended(d, p, query, c, sum, weight);
    }
}

FLEET_DEVICE void attend_part(const fleet_ctx *ctx, const op *o, const decoder *d,
                              const attention_part *p, piece_source *from, uint32_t *first,
                              const uint32_t halves)
{
    const uint32_t group = d->heads / d->kv_heads, all = p->rows * group, sets = sets_of(all);
    const attention_lds l = attention_lds_of(ctx, sets, halves);
    for (uint32_t query = 0; query < all; query += sets * FRAGMENT_ROWS) {
        const uint32_t left = all - query;
        const uint32_t queries = left < sets * FRAGMENT_ROWS ? left : sets * FRAGMENT_ROWS;
        attending a;
        memset(&a, 0, sizeof a);
        UNROLLED
        for (uint32_t n = 0; n < 2; n++) {
            const uint32_t i = fleet_wave_id() % sets * FRAGMENT_ROWS + fleet_lane() % 4 * 2 + n;
            a.most[n] = -INFINITY;
            a.seen[n] = p->position + (query + i) / group + 1; /* itself and what came before */
        }
        if (!l.apart) fleet_barrier(ctx); /* all are done with the sums before */
        put_heads(o, d, p, &l, query, queries, halves);
        fleet_barrier(ctx);
        attend_units(&a, o, d, p, &l, sets, from, *first, halves);
        *first += old_units(p) * halves;
        UNROLLED
        for (uint32_t half = 0; half < halves; half++) {
            if (half || !l.apart) fleet_barrier(ctx);
            leave_sums(&a, &l, half);
            fleet_barrier(ctx);
            add_sums(d, p, &l, sets, query, queries, half);
        }
    }
    if (p->parts > 1 && is_last_part(ctx, d, p, &l))
        for (uint32_t query = fleet_wave_id(); query < all; query += MOST_WAVES)
            join_parts(d, p, query, halves);
}

/* Attention, a part of a sequence's keys and one head of them at a time. Whoever has the last of the keys has also those
   of the step's own rows, and appends them. */
FLEET_TILE(attend, op)
{
    const op *o = own_op(&ctx, args);
    const decoder *d = &o->d;
    const batch *b = d->b;
    const uint32_t items = b->parts * d->kv_heads, halves = head_halves(d);
    uint32_t first = 0;
    piece_source from;
    FLEET_UNUSED(at);
    from.weights = fleet_weights_open(&ctx);
    from.passed = 0, from.status = FLEET_OK;
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices; i < items;
         i += ctx.tile_num * ctx.slices) {
        const attention_part p = attention_part_of(b, d->kv_heads, i);
        if (halves == 1)
            attend_part(&ctx, o, d, &p, &from, &first, 1);
        else
            attend_part(&ctx, o, d, &p, &from, &first, 2);
    }
    return from.status;
}
#define ATTENTION_TILES(TILE_, P) TILE_(P, attend)
