/* tiles.h: the tile functions of the decoder, in the C that all platforms share. What differs, the product itself and
   how packed weights lie, is in tiles_host.h, tiles_cuda.h and tiles_amd.h:

       pack_at(column, k, piece_k)    where in a block of BLOCK k's and TILE columns a weight stands
       weight_at, act_at    where in the weights of a wide tile, and where in activations; piece_k: how many k's of a tile
                            are together, where there are several ways
       multiply(...)        the product of some rows with the columns of a wide tile
       own_op, tile_lds     a tile's arguments where they are read fast, and the LDS for the rest
       rows_of              of the step, from these arguments
       fetch_residual       begins to bring ahead what sums will be added to
       put_squares          the sum of the squares of each row of a tile
       load_four, put_four, put_four_acts    of values that stand together, from where so many are aligned
       DECODER_DISPATCH     FLEET_DISPATCH, with a weight stream where there is one */
#ifndef QWEN3_TILES_H
#define QWEN3_TILES_H

#include "decoder.h"

/* The rows of a product, and how wide it is. Row i is list[i] of x, or first + i where there is no list. */
typedef struct operand {
    const act *x;
    const int32_t *list;
    uint32_t first;
    uint32_t k; /* of x, too */
    uint32_t
        second; /* where the second bf16 of an activation is, behind the first; 0: there is none */
    uint32_t rows;
    uint32_t wide; /* tiles of columns */
} operand;

FLEET_DEVICE uint32_t row_of(const operand *in, uint32_t i)
{
    return in->list ? (uint32_t)in->list[i] : in->first + i;
}

/* LDS of the tiles that multiply. */
typedef struct product_lds {
    float *parts; /* [PRODUCT_PARTS]: what the waves add up */
    float *sums;  /* [PRODUCT_SUMS]: of a wide tile, [wide][rows][TILE] */
    float *scale; /* [MOST_ROWS] */
    float *best;  /* [MOST_ROWS][LOOKERS]: the largest logit so far of some of the columns */
    int32_t *best_token, *wanted; /* likewise; [MOST_ROWS]: 1: the row chooses a token */
    void *behind;                 /* a platform's own */
    float *ahead; /* [rows + 1][ahead_columns] of up to ahead_rows rows: see residual_of */
    uint32_t ahead_rows, ahead_columns;
    uint32_t inverse; /* of the rows: see over */
} product_lds;
#define LOOKERS (THREADS / MOST_ROWS)
#define PRODUCT_BYTES ((PRODUCT_PARTS + PRODUCT_SUMS + MOST_ROWS * (2 + 2 * LOOKERS)) * 4)

FLEET_DEVICE const bf16 *weights_of(const op *o, uint32_t n)
{
    return o->weights + (size_t)n * (o->tile_bytes / 2);
}

/* What a wide tile's sums are added to, and the weights of the norm to come: in memory, or in LDS, where a platform has
   brought them ahead (fetch_residual). */
typedef struct residual {
    const float *h, *norm;
    uint32_t step; /* from row to row of h */
} residual;
FLEET_DEVICE residual residual_of(const op *o, const product_lds *l, uint32_t column, uint32_t rows)
{
    residual r;
    r.h = o->d.h + column, r.norm = o->norm + column, r.step = o->d.hidden;
    if (rows <= l->ahead_rows) {
        r.step = l->ahead_columns;
        r.h = l->ahead, r.norm = l->ahead + rows * r.step;
    }
    return r;
}

/* n / rows, of up to MOST_ROWS rows of some tiles: divisions take long. */
FLEET_DEVICE uint32_t inverse_of(uint32_t rows)
{
    return (1u << 20) / (rows ? rows : 1) + 1;
}
FLEET_DEVICE uint32_t over(uint32_t n, uint32_t inverse)
{
    return n * inverse >> 20;
}

#define RUNS 16u /* threads that share the work on a row: at most TILE */

/* Which wide tiles of a product a worker computes. */
typedef struct tile_range {
    uint32_t begin, end; /* of the chiplet */
    uint32_t first, step;
} tile_range;

FLEET_DEVICE tile_range tiles_of(const op *o, const fleet_ctx *ctx)
{
    const fleet_part part = fleet_linear_part(&o->shape, ctx->slice, ctx->slices);
    const uint32_t n = ctx->tile_num;
    tile_range t;
    const uint32_t turn = o->turn < n ? o->turn : o->turn % n, mine = ctx->tile_index + n - turn;
    t.begin = part.first_n, t.end = part.first_n + part.n_tiles;
    t.first = t.begin + (mine < n ? mine : mine - n), t.step = n;
    return t;
}

/* Neighbouring columns that a thread has: it waits once for all of them. */
typedef struct __attribute__((aligned(16))) four {
    float value[4];
} four;

/* Puts an activation where a product will take it. */
FLEET_DEVICE void put_act(act *to, uint32_t second, float value)
{
    to[0] = act_of(value);
    if (second) to[second] = act_of(value - float_of(to[0]));
}

#if defined(FLEET_HOST)
#include "tiles_host.h"
#elif defined(FLEET_CUDA)
#include "tiles_cuda.h"
#else
#include "tiles_amd.h"
#endif

FLEET_DEVICE product_lds product_lds_of(const fleet_ctx *ctx, uint32_t rows)
{
    product_lds l;
    l.parts = (float *)tile_lds(ctx);
    l.sums = l.parts + PRODUCT_PARTS;
    l.scale = l.sums + PRODUCT_SUMS;
    l.best = l.scale + MOST_ROWS;
    l.best_token = (int32_t *)(l.best + MOST_ROWS * LOOKERS);
    l.wanted = l.best_token + MOST_ROWS * LOOKERS;
    l.behind = l.wanted + MOST_ROWS;
    l.ahead = (float *)l.behind, l.ahead_rows = AHEAD_ROWS, l.ahead_columns = MOST_WIDE * TILE;
    l.inverse = inverse_of(rows);
    return l;
}

/* The same of four neighbours. */
FLEET_DEVICE void put_acts(act *to, uint32_t second, four values)
{
    act first[4], others[4];
    for (uint32_t i = 0; i < 4; i++) {
        first[i] = act_of(values.value[i]);
        others[i] = act_of(values.value[i] - float_of(first[i]));
    }
    put_four_acts(to, first);
    if (second) put_four_acts(to + second, others);
}

/* Puts some tiles of the new residual stream, from `column` on, where the next layer looks for them: from->h, if there is
   any, and l->sums, which a thread reads where it has left them: fours of number thread, thread + threads... */
FLEET_DEVICE void put_residual(const fleet_ctx *ctx, const op *o, const product_lds *l,
                               const residual *from, uint32_t column, uint32_t tiles, uint32_t rows)
{
    const decoder *d = &o->d;
    const uint32_t fours = TILE / 4;
    for (uint32_t i = ctx->thread; i < tiles * rows * fours; i += ctx->threads) {
        const uint32_t t = over(i / fours, l->inverse), r = i / fours - t * rows,
                       c = t * TILE + i % fours * 4;
        const four norm = load_four(from->norm + c);
        four h = load_four(l->sums + i * 4), next;
        if (from->h) {
            const four before = load_four(from->h + r * from->step + c);
            for (uint32_t j = 0; j < 4; j++) h.value[j] += before.value[j];
        }
        for (uint32_t j = 0; j < 4; j++) next.value[j] = h.value[j] * norm.value[j];
        put_four(l->sums + i * 4, h);
        put_four(d->h + r * d->hidden + column + c, h);
        put_acts(d->x + act_at(r, column + c, d->hidden), d->split * MOST_ROWS * d->hidden, next);
    }
    put_squares(ctx, d, l, column, tiles, rows);
}

/* On GPUs the instructions alone: what makes small results exact takes constants, which the compiler keeps in registers
   that are scarce, and branches; weights and gates need no more. */
FLEET_DEVICE float exp_of(float x)
{
#if defined(FLEET_HOST)
    return expf(x);
#else
    return __expf(x);
#endif
}
FLEET_DEVICE float ratio_of(float a, float b)
{
#if defined(FLEET_HOST)
    return a / b;
#else
    return __fdividef(a, b);
#endif
}
FLEET_DEVICE float silu(float x)
{
    return ratio_of(x, 1 + exp_of(-x));
}

/* The embeddings of the step's rows. */
FLEET_TILE(embed, op)
{
    const decoder *d = &args->d;
    const batch *b = d->b;
    const product_lds l = product_lds_of(&ctx, b->rows);
    FLEET_UNUSED(at);
    FLEET_FOR_TILES(tile, &args->shape, ctx)
    {
        const residual from = {NULL, args->norm + tile.column, 0};
        for (uint32_t i = ctx.thread; i < b->rows * TILE; i += ctx.threads) {
            const uint32_t r = i / TILE, c = tile.column + i % TILE;
            const token_row *row = &b->row[r];
            const int32_t token =
                d->tokens[(uint32_t)row->sequence * (d->context + 1) + (uint32_t)row->position];
            l.sums[i] = float_of_bf16(d->embedding[(size_t)token * d->hidden + c]);
        }
        fleet_barrier(&ctx); /* sums are there, whoever left them */
        put_residual(&ctx, args, &l, &from, tile.column, 1, b->rows);
        fleet_barrier(&ctx); /* sums are the next tile's */
    }
    return FLEET_OK;
}

/* Turns infinities and NaNs into the largest value, so that it is chosen and the check of the choice finds it.
   x - x is 0 or not a number; a comparison would need two scalar registers of AMD for its lanes. */
FLEET_DEVICE float comparable(float x)
{
    return fminf(x + (x - x), INFINITY);
}
/* Keeps the larger logit; of equal ones the first token's. */
FLEET_DEVICE uint32_t is_better(float a, int32_t a_token, float b, int32_t b_token)
{
    return a > b || (a == b && a_token < b_token);
}

/* Which rows choose a token. */
FLEET_DEVICE void begin_logits(const fleet_ctx *ctx, const decoder *d, const product_lds *l,
                               uint32_t rows)
{
    for (uint32_t i = ctx->thread; i < rows * LOOKERS; i += ctx->threads)
        l->best[i] = -INFINITY, l->best_token[i] = 0;
    for (uint32_t r = ctx->thread; r < rows; r += ctx->threads) {
        const sequence_state *s = &d->b->sequence[d->b->row[r].sequence];
        l->wanted[r] = s->samples && r + 1 == (uint32_t)(s->first + s->rows);
    }
}
FLEET_DEVICE void put_logits(const fleet_ctx *ctx, const decoder *d, const product_lds *l,
                             uint32_t column, uint32_t columns, uint32_t rows)
{
    for (uint32_t i = ctx->thread; i < rows * LOOKERS; i += ctx->threads) {
        const uint32_t r = i / LOOKERS;
        float best = l->best[i];
        int32_t token = l->best_token[i];
        if (!l->wanted[r]) continue;
        for (uint32_t c = i % LOOKERS; c < columns; c += LOOKERS) {
            const float logit =
                comparable(l->sums[(c / TILE * rows + r) * TILE + c % TILE] * l->scale[r]);
            if (is_better(logit, (int32_t)(column + c), best, token))
                best = logit, token = (int32_t)(column + c);
        }
        l->best[i] = best, l->best_token[i] = token;
    }
    for (uint32_t i = ctx->thread; d->logits && i < rows * columns; i += ctx->threads) {
        const uint32_t r = i / columns, c = i % columns, s = (uint32_t)d->b->row[r].sequence;
        if (l->wanted[r])
            d->logits[((size_t)s * d->limit + (uint32_t)d->b->sequence[s].picked) * d->vocab +
                      column + c] = l->sums[(c / TILE * rows + r) * TILE + c % TILE] * l->scale[r];
    }
}
FLEET_DEVICE void end_logits(const fleet_ctx *ctx, const decoder *d, const product_lds *l,
                             uint32_t rows)
{
    for (uint32_t r = ctx->thread; r < rows; r += ctx->threads) {
        const uint32_t to = (ctx->slice * d->workers + ctx->tile_index) * MOST_ROWS + r;
        uint32_t best = r * LOOKERS;
        for (uint32_t i = best + 1; i < (r + 1) * LOOKERS; i++)
            if (is_better(l->best[i], l->best_token[i], l->best[best], l->best_token[best]))
                best = i;
        d->best[to] = l->best[best], d->best_token[to] = l->best_token[best];
    }
}

/* The sums of `tiles` tiles of columns from number `first` on go where they are wanted. */
FLEET_DEVICE void finish(const fleet_ctx *ctx, const op *o, const product_lds *l, uint32_t first,
                         uint32_t tiles, uint32_t rows)
{
    const decoder *d = &o->d;
    const uint32_t column = first * TILE, half = TILE / 2, inverse = l->inverse;
    if (o->ending == END_LOGITS) {
        put_logits(ctx, d, l, column,
                   d->vocab - column < tiles * TILE ? d->vocab - column : tiles * TILE, rows);
    } else if (o->ending == END_SILU) {
        const uint32_t fours = half / 4;
        for (uint32_t i = ctx->thread; i < tiles * rows * fours; i += ctx->threads) {
            const uint32_t t = over(i / fours, inverse), r = i / fours - t * rows,
                           c = (first + t) * half + i % fours * 4;
            const float *sum = l->sums + i / fours * TILE + i % fours * 4, scale = l->scale[r];
            const four gate = load_four(sum), up = load_four(sum + half);
            four gated;
            for (uint32_t j = 0; j < 4; j++)
                gated.value[j] = silu(gate.value[j] * scale) * (up.value[j] * scale);
            if (c < o->columns) put_acts(o->acts + act_at(r, c, o->columns), o->acts_second, gated);
        }
    } else if (o->ending == END_FLOATS) {
        for (uint32_t i = ctx->thread; i < tiles * rows * TILE; i += ctx->threads) {
            const uint32_t t = over(i / TILE, inverse), r = i / TILE - t * rows,
                           c = column + t * TILE + i % TILE;
            if (c < o->columns) o->floats[r * o->columns + c] = l->sums[i] * l->scale[r];
        }
    } else {
        const residual from = residual_of(o, l, column, rows);
        put_residual(ctx, o, l, &from, column, tiles, rows);
    }
}

/* A layer's, whose rows are those of the step. */
FLEET_DEVICE operand operand_of(const op *o, uint32_t rows)
{
    operand in;
    in.x = o->x, in.second = o->x_second, in.list = NULL, in.first = 0;
    in.k = o->shape.k, in.rows = rows, in.wide = MOST_WIDE > 1 ? o->shape.tile_n / TILE : 1;
    return in;
}

/* A linear layer, with the norm before it and what comes after it. All rows of the step are one tile: a weight is read
   by one worker, once. */
FLEET_TILE(linear, op)
{
    weight_source weights = weights_open(&ctx);
    const op *o = own_op(&ctx, &weights, args);
    const decoder *d = &o->d;
    const uint32_t rows = rows_of(o);
    const operand in = operand_of(o, rows);
    product_lds l;
    tile_range range;
    fleet_status status = FLEET_OK;
    FLEET_UNUSED(at);
    if (rows == 0) return FLEET_OK;
    product_begin(&weights, &in); /* before all else, for it is what is waited for */
    l = product_lds_of(&ctx, rows), range = tiles_of(o, &ctx);
    if (o->ending != END_RESIDUAL) scale_rows(&ctx, o, &l, rows); /* which takes sums as they are */
    if (o->ending == END_LOGITS) begin_logits(&ctx, d, &l, rows);
    for (uint32_t n = range.first; n < range.end; n += range.step) {
        const uint32_t wide = in.wide,
                       left = o->shape.n / TILE - n * wide; /* the last one may not be full */
        fleet_status s;
        if (o->ending == END_RESIDUAL && rows <= AHEAD_ROWS) {
            fleet_barrier(&ctx); /* the tile before has read its own */
            fetch_residual(&ctx, o, &l, n * wide * TILE, wide * TILE, rows);
        }
        s = multiply(&ctx, &weights, weights_of(o, n), &in, &l);
        if (s) status = s; /* but the other waves may be waiting */
        finish(&ctx, o, &l, n * wide, MOST_WIDE > 1 && left < wide ? left : wide, rows);
    }
    if (o->ending == END_LOGITS) {
        fleet_barrier(&ctx);
        end_logits(&ctx, d, &l, rows);
    }
    return status;
}

#if defined(FLEET_CUDA)
#include "many_rows_cuda.h"
#endif

/* ---- attention ---- */

#if !defined(FLEET_CUDA) /* fragments.h */
/* The cache of a head: its keys, then its values. In values: how many there are, and where value i of a key stands. */
FLEET_BOTH size_t cache_size(const decoder *d)
{
    return (size_t)2 * d->context * d->head_dim;
}
FLEET_BOTH size_t key_at(const decoder *d, uint32_t key, uint32_t i)
{
    return (size_t)key * d->head_dim + i;
}
FLEET_BOTH size_t value_at(const decoder *d, uint32_t key, uint32_t i)
{
    return ((size_t)d->context + key) * d->head_dim + i;
}
/* Floats of a part: sums, the largest score, the sum of weights. */
FLEET_BOTH uint32_t partial_size(const decoder *d)
{
    return d->head_dim + 2;
}
#endif

/* A part of a sequence's attention, for one head of keys and values: its units from `first` to `end`. */
typedef struct attention_part {
    uint32_t sequence, head;
    uint32_t part, parts; /* of the sequence */
    uint32_t first, end;
    uint32_t position, row, rows; /* of the sequence: tokens before this step, its rows in it */
} attention_part;

FLEET_DEVICE attention_part attention_part_of(const batch *b, uint32_t kv_heads, uint32_t i)
{
    const sequence_state *s;
    attention_part p;
    const uint32_t n = b->part_sequence[i / kv_heads];
    uint32_t units;
    s = &b->sequence[n];
    p.sequence = n, p.head = i % kv_heads;
    p.part = i / kv_heads - b->first_part[n];
    p.parts = b->first_part[n + 1] - b->first_part[n];
    p.position = (uint32_t)s->position, p.row = (uint32_t)s->first, p.rows = (uint32_t)s->rows;
    units = ceil_div(p.position + p.rows, KEYS);
    p.first = s->part_units * p.part;
    p.end = p.first + s->part_units < units ? p.first + s->part_units : units;
    return p;
}
/* A head's keys and values, in those of a layer. */
FLEET_DEVICE kept *cache_of(kept *layer, const decoder *d, const attention_part *p)
{
    return layer + ((size_t)p->sequence * d->kv_heads + p->head) * cache_size(d);
}

#if defined(FLEET_CUDA)
#include "attention_cuda.h"
#else
#define QUERIES 16u /* rows times heads of a tile */

typedef struct attention_lds {
    float *q;     /* [QUERIES][head_dim] */
    float *sum;   /* [QUERIES][head_dim] */
    float *score; /* [QUERIES][KEYS] */
    float *most, *weight,
        *shrink; /* [QUERIES]: the largest score so far, the sum of weights, what older ones are worth */
    float *scale; /* [MOST_ROWS * 2] */
} attention_lds;

FLEET_DEVICE attention_lds attention_lds_of(const fleet_ctx *ctx, uint32_t head_dim)
{
    attention_lds l;
    l.q = (float *)tile_lds(ctx);
    l.sum = l.q + QUERIES * head_dim;
    l.score = l.sum + QUERIES * head_dim;
    l.most = l.score + QUERIES * KEYS;
    l.weight = l.most + QUERIES;
    l.shrink = l.weight + QUERIES;
    l.scale = l.shrink + QUERIES;
    return l;
}

/* One head of q or k: value i of it after its norm and its rotation by position. from: [head_dim], as computed. */
FLEET_DEVICE float rotated(const decoder *d, const float *from, const float *norm, float scale,
                           uint32_t position, uint32_t i)
{
    const uint32_t half = d->head_dim / 2, j = i < half ? i : i - half;
    const float *turn = d->rope + ((size_t)position * half + j) * 2;
    const float a = from[j] * scale * norm[j], b = from[j + half] * scale * norm[j + half];
    return i < half ? a * turn[0] - b * turn[1] : b * turn[0] + a * turn[1];
}
FLEET_DEVICE float head_scale(const decoder *d, const float *from)
{
    float sum[EIGHT] = {0}, all = 0; /* so many loads need not wait for one another's additions */
    for (uint32_t i = 0; i < d->head_dim; i += EIGHT)
        for (uint32_t j = 0; j < EIGHT; j++) sum[j] += from[i + j] * from[i + j];
    for (uint32_t j = 0; j < EIGHT; j++) all += sum[j];
    return 1 / sqrtf(all / (float)d->head_dim + d->eps);
}

/* Keys and values of the rows at positions from `first` to `end`, which are new, to the cache. */
FLEET_DEVICE void append(const fleet_ctx *ctx, const op *o, const attention_lds *l,
                         const attention_part *p, uint32_t first, uint32_t end)
{
    const decoder *d = &o->d;
    const uint32_t dim = d->head_dim, width = (d->heads + 2 * d->kv_heads) * dim;
    const float *from = d->qkv + (size_t)p->row * width + (d->heads + p->head) * dim;
    const uint32_t skipped = first - p->position, rows = end - first;
    kept *cache = cache_of(o->cache, d, p);
    for (uint32_t r = ctx->thread; r < rows; r += ctx->threads)
        l->scale[r] = head_scale(d, from + (skipped + r) * width);
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; i < rows * dim; i += ctx->threads) {
        const uint32_t r = i / dim, c = i % dim;
        const float *k = from + (skipped + r) * width;
        cache[key_at(d, first + r, c)] =
            kept_of(rotated(d, k, o->k_norm, l->scale[r], first + r, c));
        cache[value_at(d, first + r, c)] = kept_of(k[d->kv_heads * dim + c]);
    }
    fleet_barrier(ctx);
}

/* Up to QUERIES queries against the keys from `first` to `end`. A query is a row of the sequence and a head of the
   group that shares keys: number i is row i / group, head i % group. */
FLEET_DEVICE void attend_queries(const fleet_ctx *ctx, const op *o, const attention_lds *l,
                                 const attention_part *p, uint32_t first, uint32_t end,
                                 uint32_t query, uint32_t queries)
{
    const decoder *d = &o->d;
    const uint32_t dim = d->head_dim, width = (d->heads + 2 * d->kv_heads) * dim, group = d->group;
    const float *rows = d->qkv + (size_t)p->row * width + p->head * group * dim;
    const kept *cache = cache_of(o->cache, d, p);
    for (uint32_t i = ctx->thread; i < queries; i += ctx->threads) {
        const uint32_t r = (query + i) / group, g = (query + i) % group;
        l->scale[i] = head_scale(d, rows + r * width + g * dim);
        l->most[i] = -INFINITY, l->weight[i] = 0;
    }
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; i < queries * dim; i += ctx->threads) {
        const uint32_t n = i / dim, r = (query + n) / group, g = (query + n) % group;
        l->q[i] = rotated(d, rows + r * width + g * dim, o->q_norm, l->scale[n], p->position + r,
                          i % dim) *
                  d->root;
        l->sum[i] = 0;
    }
    for (uint32_t from = first; from < end; from += KEYS) {
        const uint32_t keys = end - from < KEYS ? end - from : KEYS;
        fleet_barrier(ctx);
        for (uint32_t i = ctx->thread; i < queries * keys; i += ctx->threads) {
            const uint32_t n = i / keys, key = from + i % keys;
            /* A row sees itself and what came before it. */
            const uint32_t seen = p->position + (query + n) / group;
            l->score[n * KEYS + i % keys] =
                key <= seen ? dot(l->q + n * dim, cache + key_at(d, key, 0), dim) : -INFINITY;
        }
        fleet_barrier(ctx);
        for (uint32_t n = ctx->thread; n < queries; n += ctx->threads) {
            float most = l->most[n], sum = 0;
            float *score = l->score + n * KEYS;
            for (uint32_t j = 0; j < keys; j++) most = score[j] > most ? score[j] : most;
            for (uint32_t j = 0; j < keys; j++) {
                score[j] = most == -INFINITY ? 0 : exp_of(score[j] - most);
                sum += score[j];
            }
            l->shrink[n] = most == -INFINITY ? 0 : exp_of(l->most[n] - most);
            l->weight[n] = l->weight[n] * l->shrink[n] + sum;
            l->most[n] = most;
        }
        fleet_barrier(ctx);
        for (uint32_t i = ctx->thread; i < queries * dim / EIGHT; i += ctx->threads) {
            const uint32_t n = i / (dim / EIGHT), c = i % (dim / EIGHT) * EIGHT;
            float sum[EIGHT];
            for (uint32_t j = 0; j < EIGHT; j++) sum[j] = l->sum[n * dim + c + j] * l->shrink[n];
            for (uint32_t key = 0; key < keys; key++)
                add_eight(sum, l->score[n * KEYS + key], cache + value_at(d, from + key, c));
            for (uint32_t j = 0; j < EIGHT; j++) l->sum[n * dim + c + j] = sum[j];
        }
    }
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; i < queries * (dim + 2); i += ctx->threads) {
        const uint32_t n = i / (dim + 2), c = i % (dim + 2), r = (query + n) / group,
                       g = (query + n) % group;
        const size_t to =
            (((size_t)p->row + r) * d->heads + p->head * group + g) * d->most_parts + p->part;
        d->partial[to * partial_size(d) + c] = c < dim ? l->sum[n * dim + c]
                                               : c == dim ? l->most[n]
                                                          : l->weight[n];
    }
    fleet_barrier(ctx);
}

/* Attention, a part of a sequence's keys and one head of them at a time. Parts are dealt out so that a head's keys stay
   with a chiplet, where the number of chiplets divides that of heads. Whoever has the last of the keys has also those
   of the step's own rows, and appends them. */
FLEET_TILE(attend, op)
{
    const decoder *d = &args->d;
    const batch *b = d->b;
    const attention_lds l = attention_lds_of(&ctx, d->head_dim);
    const uint32_t group = d->group;
    FLEET_UNUSED(at);
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices; i < b->parts * d->kv_heads;
         i += ctx.tile_num * ctx.slices) {
        const attention_part p = attention_part_of(b, d->kv_heads, i);
        const uint32_t first = p.first * KEYS, last = p.position + p.rows,
                       end = p.end * KEYS < last ? p.end * KEYS : last;
        if (end > p.position)
            append(&ctx, args, &l, &p, first > p.position ? first : p.position, end);
        for (uint32_t query = 0; query < p.rows * group; query += QUERIES) {
            const uint32_t left = p.rows * group - query;
            attend_queries(&ctx, args, &l, &p, first, end, query, left < QUERIES ? left : QUERIES);
        }
    }
    return FLEET_OK;
}

/* Puts the parts together. */
FLEET_TILE(combine, op)
{
    const decoder *d = &args->d;
    const batch *b = d->b;
    const uint32_t dim = d->head_dim;
    FLEET_UNUSED(at);
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices; i < b->rows * d->heads;
         i += ctx.tile_num * ctx.slices) {
        const uint32_t s = (uint32_t)b->row[i / d->heads].sequence,
                       parts = b->first_part[s + 1] - b->first_part[s];
        const uint32_t stride = partial_size(d);
        const float *from = d->partial + (size_t)i * d->most_parts * stride;
        for (uint32_t c = ctx.thread; c < dim; c += ctx.threads) {
            float most = -INFINITY, sum = 0, weight = 0;
            for (uint32_t p = 0; p < parts; p++) most = fmaxf(most, from[p * stride + dim]);
            for (uint32_t p = 0; p < parts; p++) {
                const float *part = from + p * stride, worth = exp_of(part[dim] - most);
                sum += part[c] * worth;
                weight += part[dim + 1] * worth;
            }
            put_act(d->attended + act_at(i / d->heads, i % d->heads * dim + c, d->heads * dim),
                    d->split * MOST_ROWS * d->heads * dim, sum / weight);
        }
    }
    return FLEET_OK;
}
#define ATTENTION_TILES(TILE_, P) TILE_(P, attend) TILE_(P, combine)
#endif

/* ---- mixture of experts ---- */

/* Which experts each row goes to, and with what weight; then the pairs sorted by expert. One task. */
FLEET_TILE(route, op)
{
    const decoder *d = &args->d;
    const uint32_t rows = d->b->rows, pairs = rows * d->top_k;
    int32_t *expert = (int32_t *)tile_lds(&ctx);      /* [pairs] */
    int32_t *count = expert + MOST_ROWS * MOST_TOP_K; /* [experts] */
    FLEET_UNUSED(at);
    for (uint32_t r = ctx.thread; r < rows; r += ctx.threads) {
        const float *score = d->scores + r * d->experts;
        float most = -INFINITY, sum = 0, chosen = 0;
        for (uint32_t e = 0; e < d->experts; e++) most = fmaxf(most, comparable(score[e]));
        for (uint32_t e = 0; e < d->experts; e++) sum += exp_of(comparable(score[e]) - most);
        for (uint32_t j = 0; j < d->top_k; j++) {
            /* The best of those that come behind the one before: with a lower score, or the same and a higher number. */
            uint32_t best = d->experts;
            const uint32_t before = j ? (uint32_t)expert[r * d->top_k + j - 1] : d->experts;
            const float bound = j ? comparable(score[before]) : 0;
            float highest = 0;
            for (uint32_t e = 0; e < d->experts; e++) {
                const float value = comparable(score[e]);
                if (j && !is_better(bound, (int32_t)before, value, (int32_t)e)) continue;
                if (best == d->experts || value > highest) best = e, highest = value;
            }
            expert[r * d->top_k + j] = (int32_t)best;
            chosen += exp_of(highest - most);
        }
        for (uint32_t j = 0; j < d->top_k; j++)
            d->pair_weight[r * d->top_k + j] =
                exp_of(comparable(score[expert[r * d->top_k + j]]) - most) /
                (d->norm_topk ? chosen : sum);
    }
    fleet_barrier(&ctx);
    for (uint32_t e = ctx.thread; e < d->experts; e += ctx.threads) {
        int32_t n = 0;
        for (uint32_t i = 0; i < pairs; i++) n += expert[i] == (int32_t)e;
        count[e] = n;
    }
    fleet_barrier(&ctx);
    if (ctx.thread == 0) {
        int32_t active = 0, place = 0;
        for (uint32_t e = 0; e < d->experts; e++) {
            const int32_t n = count[e];
            count[e] = place;
            if (!n) continue;
            d->active[active] = (int32_t)e;
            d->first_place[active++] = place;
            place += n;
        }
        d->first_place[active] = place;
        *d->n_active = active;
    }
    fleet_barrier(&ctx);
    for (uint32_t e = ctx.thread; e < d->experts; e += ctx.threads) {
        int32_t place = count[e];
        for (uint32_t i = 0; i < pairs; i++) {
            if (expert[i] != (int32_t)e) continue;
            d->place_row[place] = (int32_t)(i / d->top_k);
            d->pair_place[i] = place++;
        }
    }
    return FLEET_OK;
}

/* The experts that have rows, each TILE columns at a time: gates and ups from rows of x, or downs from what they left. */
FLEET_TILE(expert, op)
{
    weight_source weights = weights_open(&ctx);
    const op *o = own_op(&ctx, &weights, args);
    const decoder *d = &o->d;
    const uint32_t all = rows_of(o);
    product_lds l = product_lds_of(&ctx, all);
    const uint32_t tiles = o->shape.n / TILE, items = all ? (uint32_t)*d->n_active * tiles : 0;
    fleet_status status = FLEET_OK;
    FLEET_UNUSED(at);
    if (all == 0) return FLEET_OK;
    scale_rows(&ctx, o, &l, all);
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices; i < items;
         i += ctx.tile_num * ctx.slices) {
        const uint32_t e = i / tiles, n = i % tiles;
        const uint32_t first = (uint32_t)d->first_place[e],
                       rows = (uint32_t)d->first_place[e + 1] - first;
        operand in;
        fleet_status s;
        in.x = o->x, in.second = o->x_second, in.k = o->shape.k;
        in.rows = rows, in.wide = 1;
        l.inverse = inverse_of(rows);
        in.list = o->ending == END_SILU ? d->place_row + first : NULL, in.first = first;
        product_begin(&weights, &in);
        s = multiply(&ctx, &weights, weights_of(o, (uint32_t)d->active[e] * tiles + n), &in, &l);
        if (s) status = s; /* but the other waves may be waiting */
        if (o->ending == END_SILU)
            for (uint32_t j = ctx.thread; j < rows * TILE / 2; j += ctx.threads) {
                const uint32_t r = j / (TILE / 2), c = n * (TILE / 2) + j % (TILE / 2);
                const float *sum = l.sums + r * TILE + j % (TILE / 2), scale = l.scale[in.list[r]];
                if (c < o->columns)
                    put_act(o->acts + act_at(first + r, c, o->columns), o->acts_second,
                            silu(sum[0] * scale) * (sum[TILE / 2] * scale));
            }
        else
            for (uint32_t j = ctx.thread; j < rows * TILE; j += ctx.threads) {
                const uint32_t r = j / TILE, c = n * TILE + j % TILE;
                if (c < o->columns) o->floats[(size_t)(first + r) * o->columns + c] = l.sums[j];
            }
    }
    return status;
}

/* The weighted sum of a row's experts, onto the residual stream. */
FLEET_TILE(add_experts, op)
{
    const decoder *d = &args->d;
    const product_lds l = product_lds_of(&ctx, d->b->rows);
    FLEET_UNUSED(at);
    FLEET_FOR_TILES(tile, &args->shape, ctx)
    {
        const residual from = {d->h + tile.column, args->norm + tile.column, d->hidden};
        for (uint32_t i = ctx.thread; i < d->b->rows * TILE; i += ctx.threads) {
            const uint32_t r = i / TILE, c = tile.column + i % TILE;
            float sum = 0;
            for (uint32_t j = 0; j < d->top_k; j++) {
                const uint32_t pair = r * d->top_k + j;
                sum += d->pair_weight[pair] *
                       d->expert_out[(size_t)(uint32_t)d->pair_place[pair] * d->hidden + c];
            }
            l.sums[i] = sum;
        }
        fleet_barrier(&ctx); /* sums are there, whoever left them */
        put_residual(&ctx, args, &l, &from, tile.column, 1, d->b->rows);
        fleet_barrier(&ctx); /* sums are the next tile's */
    }
    return FLEET_OK;
}

/* ---- the end of a step ---- */

/* Copies a batch from or to memory, by all threads. */
FLEET_DEVICE void copy_batch(const fleet_ctx *ctx, batch *to, const batch *from)
{
    const uint32_t *words = (const uint32_t *)(const void *)from;
    for (uint32_t i = ctx->thread; i < sizeof(batch) / 4; i += ctx->threads)
        ((uint32_t *)(void *)to)[i] = words[i];
    fleet_barrier(ctx);
}

/* The token of each sequence that has one now, and the rows of the next step; the launch ends where there are none. One
   task. */
FLEET_TILE(next, op)
{
    const decoder *d = &args->d;
    float *best = (float *)(void *)tile_lds(&ctx); /* [MOST_ROWS][RUNS] */
    int32_t *token = (int32_t *)(best + MOST_ROWS * RUNS);
    batch *b = (batch *)(void *)(token + MOST_ROWS * RUNS);
    FLEET_UNUSED(at);
    copy_batch(&ctx, b, d->b);
    if (b->rows == 0) return FLEET_OK;
    for (uint32_t i = ctx.thread; i < b->rows * RUNS; i += ctx.threads) {
        const uint32_t r = i / RUNS;
        float most = -INFINITY;
        int32_t which = 0;
        for (uint32_t w = i % RUNS; w < d->chiplets * d->workers; w += RUNS) {
            const uint32_t from = w * MOST_ROWS + r;
            if (is_better(d->best[from], d->best_token[from], most, which))
                most = d->best[from], which = d->best_token[from];
        }
        best[i] = most, token[i] = which;
    }
    fleet_barrier(&ctx);
    for (uint32_t n = ctx.thread; n < b->sequences; n += ctx.threads) {
        sequence_state *s = &b->sequence[n];
        uint32_t i = (uint32_t)(s->first + s->rows - 1) * RUNS;
        if (!s->rows) continue;
        s->position += s->rows;
        if (!s->samples) continue;
        for (uint32_t j = i + 1; j < i + RUNS; j++)
            if (is_better(best[j], token[j], best[i], token[i]))
                best[i] = best[j], token[i] = token[j];
        d->picked[n * d->limit + (uint32_t)s->picked++] = token[i];
        if (s->position < s->given) continue;
        d->tokens[(size_t)n * (d->context + 1) + (uint32_t)s->position] = token[i];
        for (uint32_t e = 0; e < b->n_ends; e++)
            if (token[i] == b->ends[e]) s->limit = s->picked;
    }
    fleet_barrier(&ctx);
    if (ctx.thread == 0) {
        b->steps++;
        for (uint32_t n = 0; n < b->sequences; n++) {
            const sequence_state *s = &b->sequence[n];
            const uint32_t i = (uint32_t)(s->first + s->rows - 1) * RUNS;
            if (s->rows && s->samples && best[i] == INFINITY)
                b->unusable = 1 + n, b->unusable_token = token[i];
        }
        batch_next(b, MOST_ROWS, d->most_parts, d->kv_heads, b->workers);
    }
    fleet_barrier(&ctx);
    copy_batch(&ctx, d->b, b);
    if (b->unusable) return FLEET_ERROR_ARGUMENT;
    /* A launch ends before its last step when a tile fails. session_run knows this one. */
    return b->rows || b->steps == b->last_step ? FLEET_OK : FLEET_ERROR_ABORTED;
}

#endif /* QWEN3_TILES_H */
