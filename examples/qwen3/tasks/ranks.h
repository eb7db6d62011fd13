/* tasks/ranks.h: what a decoder over several ranks does besides. Each rank's products of o, and of down or the experts, are
   summands of the residual stream. A worker that has the sums of some columns pushes them to all other ranks as flagged
   data (edge 35), and adds what they push of the same columns: no task, event or fence stands between.

   There are two places for it, which o and down take in turns. A rank pushes to one again when all its workers have had
   the other ranks' sums of the other place, which those pushed after their tasks that read the first one had ended.
   Workers take their columns in ascending order, and push before they wait, so that no two ranks wait for each other,
   whichever columns a worker has on each of them.

   What lm_head has left in a region is read before the next step's first exchange, and stored to after it. */
#ifndef QWEN3_TASKS_RANKS_H
#define QWEN3_TASKS_RANKS_H

#include "sample.h"

#define PEERS_IN_FLIGHT 4u /* ranks whose words are loaded together */

/* A word of flagged data: up to three of this rank's sums of a row and tile, and the task's tag. */
typedef struct summand_word {
    float *sums;
    uint32_t sums_here; /* 3, or fewer at the end of a row */
    size_t at;          /* its number, of all tiles and rows of a rank */
    fleet_quad own;
} summand_word;

/* Word number i of `tiles` tiles, from number `first` on. */
FLEET_DEVICE summand_word summand_word_of(const linear_lds *l, uint32_t first, uint32_t rows,
                                          uint32_t i, uint32_t tag)
{
    const uint32_t n = i / SUMMAND_QUADS, word = i % SUMMAND_QUADS,
                   tile = fast_div(n, l->reciprocal), row = tile_row_of(l) + n - tile * rows;
    summand_word w;
    w.sums = l->sums + n * TILE_N + word * 3;
    w.sums_here = TILE_N - word * 3 < 3 ? TILE_N - word * 3 : 3;
    w.at = ((size_t)(first + tile) * MAX_ROWS + row) * SUMMAND_QUADS + word;
    for (uint32_t k = 0; k < 3; k++) w.own.word[k] = k < w.sums_here ? word_of_float(w.sums[k]) : 0;
    w.own.word[3] = tag;
    return w;
}

/* Replaces the sums of a word by those of all ranks, which are added in the order of the ranks, so that all have the same
   bits. from: where the first rank's word arrives; `stride`: between ranks. itself: a constant, 1: this rank's arrive there
   too. */
FLEET_DEVICE fleet_status add_summands(const fleet_ctx *ctx, const fleet_peers *peers,
                                       const summand_word *w, const fleet_quad *from, size_t stride,
                                       const uint32_t itself)
{
    const uint32_t tag = w->own.word[3];
    float sum[3] = {0, 0, 0};
    for (uint32_t first = 0; first < peers->ranks; first += PEERS_IN_FLIGHT) {
        fleet_quad words[PEERS_IN_FLIGHT], word;
        UNROLLED
        for (uint32_t i = 0; i < PEERS_IN_FLIGHT; i++) {
            words[i] = w->own;
            if (first + i < peers->ranks && (itself || first + i != peers->rank))
                words[i].word[3] = ~tag;
        }
        for (;;) {
            uint32_t late = peers->ranks;
            fleet_status status;
            UNROLLED
            for (uint32_t i = 0; i < PEERS_IN_FLIGHT; i++)
                if (words[i].word[3] != tag)
                    words[i] = fleet_load_flagged_system(from + (first + i) * stride);
            UNROLLED
            for (uint32_t i = 0; i < PEERS_IN_FLIGHT; i++)
                if (words[i].word[3] != tag) late = first + i;
            if (late == peers->ranks) break;
            status = fleet_await_flagged(ctx, from + late * stride, tag, late, &word);
            if (status) return status;
            UNROLLED
            for (uint32_t i = 0; i < PEERS_IN_FLIGHT; i++)
                if (first + i == late) words[i] = word;
        }
        UNROLLED
        for (uint32_t i = 0; i < PEERS_IN_FLIGHT; i++) {
            UNROLLED
            for (uint32_t k = 0; k < 3; k++)
                if (first + i < peers->ranks) sum[k] += float_of_word(words[i].word[k]);
        }
    }
    for (uint32_t k = 0; k < w->sums_here; k++) w->sums[k] = sum[k];
    return FLEET_OK;
}

/* Whether a task's sums are a summand of those of all ranks. */
FLEET_DEVICE uint32_t is_exchanged(const task_args *task)
{
    return HAS_RANKS && task->summands != NULL;
}
FLEET_DEVICE size_t summand_stride(const decoder *d)
{
    return (size_t)(d->hidden / TILE_N) * MAX_ROWS * SUMMAND_QUADS;
}
/* Of several ranks: pushes l->sums of `tiles` tiles, from number `first` on, to all others, and with the constant `itself`
   to this one. All threads call it, after a barrier. */
FLEET_DEVICE void push_sums(const fleet_ctx *ctx, const task_args *task, const linear_lds *l,
                            uint32_t first, uint32_t tiles, uint32_t rows, const uint32_t itself)
{
    const fleet_peers *peers = &task->d.peers;
    const uint32_t tag = task_tag(ctx, task), words = tiles * rows * SUMMAND_QUADS;
    const size_t stride = summand_stride(&task->d);
    for (uint32_t i = ctx->thread; i < words; i += ctx->threads) {
        const summand_word w = summand_word_of(l, first, rows, i, tag);
        for (uint32_t r = 0; r < peers->ranks; r++)
            if (itself || r != peers->rank)
                fleet_store_flagged_system(
                    (fleet_quad *)fleet_peer_address(
                        peers, task->summands + peers->rank * stride + w.at, r),
                    w.own);
    }
}
/* Replaces l->sums of these tiles by the sums of all ranks; each thread takes the words that it has pushed. itself: as
   there; without it l->sums still are this rank's. *status: the run ends, if it is not FLEET_OK afterwards. */
FLEET_DEVICE void take_sums(const fleet_ctx *ctx, const task_args *task, const linear_lds *l,
                            uint32_t first, uint32_t tiles, uint32_t rows, const uint32_t itself,
                            fleet_status *status)
{
    const uint32_t tag = task_tag(ctx, task), words = tiles * rows * SUMMAND_QUADS;
    const size_t stride = summand_stride(&task->d);
    for (uint32_t i = ctx->thread; i < words; i += ctx->threads) {
        const summand_word w = summand_word_of(l, first, rows, i, tag);
        const fleet_status added =
            add_summands(ctx, &task->d.peers, &w, task->summands + w.at, stride, itself);
        if (added) *status = added;
    }
    fleet_barrier(ctx); /* other threads read the sums */
}
FLEET_DEVICE void exchange_sums(const fleet_ctx *ctx, const task_args *task, const linear_lds *l,
                                uint32_t first, uint32_t tiles, uint32_t rows, fleet_status *status)
{
    push_sums(ctx, task, l, first, tiles, rows, 0);
    take_sums(ctx, task, l, first, tiles, rows, 0, status);
}

#if HAS_RANKS
/* After `route`: leaves this rank's experts in the list of those that are active, numbered from 0 on. The list is sorted,
   so they are neighbours, and so are the places of their pairs. */
FLEET_TILE(own_experts, task_args)
{
    const decoder *d = &args->d;
    const int32_t begin = (int32_t)d->first_expert, end = begin + (int32_t)d->own_experts;
    FLEET_UNUSED(at);
    if (ctx.thread == 0 && d->b->rows) {
        const int32_t all = *d->n_active;
        int32_t first = 0, n = 0;
        while (first < all && d->active[first] < begin) first++;
        for (; first + n < all && d->active[first + n] < end; n++)
            d->active[n] = d->active[first + n] - begin,
            d->first_place[n] = d->first_place[first + n];
        d->first_place[n] = d->first_place[first + n];
        *d->n_active = n;
    }
    return FLEET_OK;
}

/* Brings together what the ranks have found among their tokens: best, best_token and the logits that are kept, as lm_head
   leaves them where there is one rank. args->columns: the tokens of a rank's share. One task. */
FLEET_TILE(join_heads, task_args)
{
    const decoder *d = &args->d;
    const uint32_t ranks = d->peers.ranks, each = args->columns, rows = d->b->rows;
    FLEET_UNUSED(at);
    for (uint32_t i = ctx.thread; i < d->chiplets * d->workers * rows; i += ctx.threads) {
        const uint32_t to = i / rows * MAX_ROWS + i % rows;
        float best = -INFINITY;
        int32_t token = 0;
        for (uint32_t first = 0; first < ranks; first += PEERS_IN_FLIGHT) {
            float of[PEERS_IN_FLIGHT];
            int32_t its[PEERS_IN_FLIGHT];
            /* All loads at once, since each is a trip over the link. */
            UNROLLED
            for (uint32_t k = 0; k < PEERS_IN_FLIGHT; k++) {
                const uint32_t r = first + k < ranks ? first + k : first;
                const float *from = (const float *)fleet_peer_address(&d->peers, heads_of(d), r);
                of[k] = from[to];
                its[k] =
                    ((const int32_t *)(const void *)(from + bests_of(d)))[to] + (int32_t)(r * each);
            }
            UNROLLED
            for (uint32_t k = 0; k < PEERS_IN_FLIGHT; k++)
                if (is_better(of[k], its[k], best, token)) best = of[k], token = its[k];
        }
        d->best[to] = best, d->best_token[to] = token;
    }
    for (uint32_t n = 0; d->logits && n < d->b->sequences; n++) {
        const sequence_state *s = &d->b->sequence[n];
        float *to = d->logits + logits_at(d, n);
        if (!s->rows || !s->samples) continue;
        for (uint32_t r = 0; r < ranks; r++, to += each) {
            const uint32_t own = tokens_of_rank(d->vocab, each, r);
            const float *from = (const float *)fleet_peer_address(&d->peers, heads_of(d), r) +
                                2 * bests_of(d) + logits_at(d, n) / d->vocab * own;
            for (uint32_t i = ctx.thread; i < own; i += ctx.threads) to[i] = from[i];
        }
    }
    return FLEET_OK;
}
#endif /* HAS_RANKS */

#endif /* QWEN3_TASKS_RANKS_H */
