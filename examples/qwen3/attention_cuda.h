/* attention_cuda.h: attend_queries on NVIDIA GPUs, both of its products by tensor cores. KEYS keys are a round: each wave
   scores eight of them, a query for a column and a key for a row (fragments.h); then 16 threads turn a query's scores
   into weights; then each wave adds up its share of head_dim's values. Meanwhile the next round's keys and values come to
   the L2. */

#define WEIGHERS (THREADS / QUERIES) /* threads of a query */
#define WEIGHED (KEYS / WEIGHERS)    /* keys of such a thread */
#define SCORE_STRIDE (KEYS + 8u)     /* of a query in LDS: stores find different banks */
#define WEIGHT_STRIDE (KEYS + 16u)   /* likewise loads */
#define STEP_KEYS 16u                /* of one multiplication by values */
#define WAVE_VALUES 16u              /* of head_dim, in two multiplications */
#define MOST_SHARES (MOST_HEAD_DIM / WAVE_VALUES / MOST_WAVES) /* of head_dim that a wave has */

#if KEYS != 8 * MOST_WAVES || THREADS != 32 * MOST_WAVES || QUERIES != TILE
#error "attention_cuda.h: a wave scores eight keys of a round, for TILE queries"
#endif

#define SCORE_K (4 * BLOCK) /* of head_dim that is on its way at a time */

typedef struct round_lds {
    kept *q;       /* blocks of BLOCK k's of QUERIES, packed */
    float *score;  /* [QUERIES][SCORE_STRIDE] */
    kept *weight;  /* [QUERIES][WEIGHT_STRIDE] */
    float *shrink; /* [QUERIES]: what sums so far are worth */
} round_lds;

FLEET_DEVICE round_lds round_lds_of(const fleet_ctx *ctx)
{
    round_lds l;
    l.q = (kept *)ctx->lds;
    l.score = (float *)(void *)(l.q + QUERIES * MOST_HEAD_DIM);
    l.weight = (kept *)(void *)(l.score + QUERIES * SCORE_STRIDE);
    l.shrink = (float *)(void *)(l.weight + QUERIES * WEIGHT_STRIDE);
    return l;
}

/* Among the threads of a query. */
FLEET_DEVICE float weighers_sum(float x)
{
    for (uint32_t i = WEIGHERS / 2; i; i /= 2) x += from_lane(x, i);
    return x;
}
FLEET_DEVICE float weighers_most(float x)
{
    for (uint32_t i = WEIGHERS / 2; i; i /= 2) x = fmaxf(x, from_lane(x, i));
    return x;
}

/* Queries after norm and rotation, packed like weights; zeros behind head_dim. */
FLEET_DEVICE void put_queries(const fleet_ctx *ctx, const op *o, const round_lds *l,
                              const sequence_state *s, uint32_t head, uint32_t query,
                              uint32_t queries)
{
    const decoder *d = o->d;
    const uint32_t dim = d->head_dim, width = (d->heads + 2 * d->kv_heads) * dim,
                   group = d->heads / d->kv_heads;
    const uint32_t n = ctx->thread / WEIGHERS, first = ctx->thread % WEIGHERS;
    const uint32_t r = (query + (n < queries ? n : 0)) / group,
                   g = (query + (n < queries ? n : 0)) % group;
    const float *from = d->qkv + ((uint32_t)s->first + r) * width + (head * group + g) * dim;
    float squares = 0, scale;
    for (uint32_t i = first; i < dim; i += WEIGHERS) squares += from[i] * from[i];
    scale = 1 / sqrtf(weighers_sum(squares) / (float)dim + d->eps);
    for (uint32_t i = first; i < ceil_div(dim, SCORE_K) * SCORE_K; i += WEIGHERS)
        l->q[i / BLOCK * BLOCK * TILE + pack_at(n, i % BLOCK)] =
            i < dim ? kept_of(rotated(d, from, o->q_norm, scale, (uint32_t)s->position + r, i)) : 0;
}

/* Eight keys, from number `first` on of a round, which has `keys`; behind them the last one is read again. */
FLEET_DEVICE void score_keys(const round_lds *l, const kept *from, uint32_t dim, uint32_t first,
                             uint32_t keys)
{
    const uint32_t lane = fleet_lane(), key = first + fragment_row(lane), mine = fragment_k(lane);
    const kept *row = from + (key < keys ? key : keys - 1) * dim;
    float sum[FRAGMENT_SUMS] = {0, 0, 0, 0};
    for (uint32_t k = 0; k < dim; k += SCORE_K) {
        const fleet_quad zero = {{0, 0, 0, 0}};
        fleet_quad part[SCORE_K / BLOCK];
        UNROLLED
        for (uint32_t i = 0; i < SCORE_K / BLOCK; i++)
            part[i] = mine + k + i * BLOCK < dim ? load_quad(row + mine + k + i * BLOCK) : zero;
        fleet_wave_barrier(); /* or the compiler has each load wait for the one before */
        UNROLLED
        for (uint32_t i = 0; i < SCORE_K / BLOCK; i++) {
            fleet_quad q[2];
            load_weights(q, l->q + (k + i * BLOCK) * TILE);
            UNROLLED
            for (uint32_t half = 0; half < 2; half++)
                multiply_kept(sum, q[half].word, part[i].word + 2 * half);
        }
    }
    UNROLLED
    for (uint32_t i = 0; i < FRAGMENT_SUMS; i++) {
        const uint32_t at = fragment_sum_at(lane, i);
        l->score[at % TILE * SCORE_STRIDE + first + at / TILE] = sum[i];
    }
}

/* What a thread knows of its query. */
typedef struct weigher {
    float most, weight; /* the largest score so far, the sum of weights */
} weigher;

/* A query's scores of a round become weights, of which a query sees the first `seen`. */
FLEET_DEVICE void weigh(const fleet_ctx *ctx, const round_lds *l, weigher *w, float root,
                        uint32_t seen)
{
    const uint32_t n = ctx->thread / WEIGHERS, first = ctx->thread % WEIGHERS * WEIGHED;
    float score[WEIGHED], most = w->most, sum = 0, shrink;
    UNROLLED
    for (uint32_t i = 0; i < WEIGHED; i++) {
        score[i] = first + i < seen ? l->score[n * SCORE_STRIDE + first + i] * root : -INFINITY;
        most = fmaxf(most, score[i]);
    }
    most = weighers_most(most);
    shrink = most == -INFINITY ? 0 : expf(w->most - most);
    UNROLLED
    for (uint32_t i = 0; i < WEIGHED; i++) {
        const kept weight = kept_of(most == -INFINITY ? 0 : expf(score[i] - most));
        l->weight[n * WEIGHT_STRIDE + first + i] = weight;
        sum += float_of_kept(weight); /* as the values will have it */
    }
    w->weight = w->weight * shrink + weighers_sum(sum);
    w->most = most;
    if (first == 0) l->shrink[n] = shrink;
}

/* Values of a round, as the instruction multiplies weights by them. Its k's are keys: lane l, with g = l / 4 and t = l % 4,
   has four in a row of each STEP_KEYS, from 4t on. Its n is a pair of values, number g of the wave's share, of which
   `left` values exist. Behind the last key it is read again: there, weights are 0. */
typedef struct round_values {
    uint32_t pair[KEYS / STEP_KEYS][4];
} round_values;

FLEET_DEVICE void load_values(round_values *to, const kept *from, uint32_t dim, uint32_t left,
                              uint32_t keys)
{
    const uint32_t g = fleet_lane() / 4, t = fleet_lane() % 4;
    UNROLLED
    for (uint32_t i = 0; i < KEYS / STEP_KEYS * 4; i++) {
        const uint32_t key = i / 4 * STEP_KEYS + t * 4 + i % 4;
        to->pair[i / 4][i % 4] =
            load_pair(from + (key < keys ? key : keys - 1) * dim + (2 * g < left ? 2 * g : 0));
    }
}

/* Adds weights times values, the lower ones of the pairs first and then the upper ones: to the lane's queries g and g + 8,
   values 4t to 4t + 3 of the share. */
FLEET_DEVICE void add_values(const round_lds *l, float sum[2][FRAGMENT_SUMS],
                             const round_values *values)
{
    const uint32_t g = fleet_lane() / 4, t = fleet_lane() % 4;
    UNROLLED
    for (uint32_t i = 0; i < FRAGMENT_SUMS; i++) {
        const float shrink = l->shrink[g + i / 2 * 8];
        sum[0][i] *= shrink, sum[1][i] *= shrink;
    }
    UNROLLED
    for (uint32_t step = 0; step < KEYS / STEP_KEYS; step++) {
        const uint32_t *pair = values->pair[step];
        const uint32_t at = g * WEIGHT_STRIDE + step * STEP_KEYS + t * 4;
        const uint32_t *lower = (const uint32_t *)(const void *)(l->weight + at),
                       *upper =
                           (const uint32_t *)(const void *)(l->weight + at + 8 * WEIGHT_STRIDE);
        uint32_t a[4], b[2];
        a[0] = lower[0], a[1] = upper[0], a[2] = lower[1], a[3] = upper[1];
        UNROLLED
        for (uint32_t odd = 0; odd < 2; odd++) {
            UNROLLED
            for (uint32_t i = 0; i < 2; i++) b[i] = halves_of(pair[2 * i], pair[2 * i + 1], odd);
            multiply_kept(sum[odd], a, b);
        }
    }
}

/* Where the sums of a query go. */
FLEET_DEVICE float *partial_of(const decoder *d, const sequence_state *s, uint32_t head,
                               uint32_t query, uint32_t part)
{
    const uint32_t group = d->heads / d->kv_heads, r = (uint32_t)s->first + query / group;
    const size_t to = ((size_t)r * d->heads + head * group + query % group) * d->most_parts + part;
    return d->partial + to * (d->head_dim + 2);
}

/* To the L2, from where it is. */
FLEET_DEVICE void prefetch_rows(const fleet_ctx *ctx, const kept *from, uint32_t values)
{
    for (uint32_t i = ctx->thread * 64; i < values; i += ctx->threads * 64) /* a line each */
        prefetch(from + i);
}

FLEET_DEVICE void attend_queries(const fleet_ctx *ctx, const op *o, const attention_lds *general,
                                 const sequence_state *s, uint32_t head, size_t cache,
                                 uint32_t first, uint32_t end, uint32_t query, uint32_t queries,
                                 uint32_t part)
{
    const decoder *d = o->d;
    const round_lds l = round_lds_of(ctx);
    const uint32_t dim = d->head_dim, group = d->heads / d->kv_heads;
    const uint32_t wave = fleet_wave_id(), lane = fleet_lane(), mine = ctx->thread / WEIGHERS;
    /* The last key that this thread's query sees is its own row's. */
    const uint32_t sees = (uint32_t)s->position + (query + mine) / group + 1;
    const float root = 1 / sqrtf((float)dim);
    const kept *keys = o->keys + cache, *values = o->values + cache;
    float sum[MOST_SHARES][2][FRAGMENT_SUMS];
    round_values coming;
    weigher w;
    FLEET_UNUSED(general);
    memset(sum, 0, sizeof sum);
    w.most = -INFINITY, w.weight = 0;
    put_queries(ctx, o, &l, s, head, query, queries);
    fleet_barrier(ctx);
    for (uint32_t from = first; from < end; from += KEYS) {
        const uint32_t n = end - from < KEYS ? end - from : KEYS, behind = end - from - n;
        const size_t at = (size_t)from * dim;
        const uint32_t seen = sees > from ? sees - from : 0;
        prefetch_rows(ctx, values + at, n * dim);
        prefetch_rows(ctx, keys + at + n * dim, (behind < KEYS ? behind : KEYS) * dim);
        score_keys(&l, keys + at, dim, wave * 8, n);
        if (wave * WAVE_VALUES < dim)
            load_values(&coming, values + at + wave * WAVE_VALUES, dim, dim - wave * WAVE_VALUES,
                        n);
        fleet_barrier(ctx);
        weigh(ctx, &l, &w, root, seen < n ? seen : n);
        fleet_barrier(ctx);
        UNROLLED
        for (uint32_t i = 0; i < MOST_SHARES; i++) {
            const uint32_t c = (i * MOST_WAVES + wave) * WAVE_VALUES;
            if (c >= dim) break;
            if (i) load_values(&coming, values + at + c, dim, dim - c, n);
            add_values(&l, sum[i], &coming);
        }
    }
    UNROLLED
    for (uint32_t i = 0; i < MOST_SHARES * 2 * FRAGMENT_SUMS; i++) {
        const uint32_t share = i / (2 * FRAGMENT_SUMS), j = i / 2 % FRAGMENT_SUMS, odd = i % 2;
        const uint32_t q = lane / 4 + j / 2 * 8, c = (share * MOST_WAVES + wave) * WAVE_VALUES +
                                                     lane % 4 * 4 + j % 2 * 2 + odd;
        if (q < queries && c < dim) partial_of(d, s, head, query + q, part)[c] = sum[share][odd][j];
    }
    if (ctx->thread % WEIGHERS == 0 && mine < queries) {
        float *to = partial_of(d, s, head, query + mine, part);
        to[dim] = w.most, to[dim + 1] = w.weight;
    }
    fleet_barrier(ctx); /* LDS is the next tile's */
}
