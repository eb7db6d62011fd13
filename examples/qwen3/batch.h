/* batch.h: the sequences that are decoded together, and which rows make up a step.

   A step takes up to MAX_ROWS tokens, its rows, through all layers: the next token of each sequence that is being
   generated, and of each prompt a chunk whose size is its share of the rows that are left. The rows of a sequence are
   contiguous. The last task of a step decides on the device what the next step consists of, so that sequences may end
   one by one while the launch goes on: batch_choose says how many rows each sequence has, and batch_arrange lays them out
   and chooses the KV splits of attention. In a server the kit's scheduler chooses the rows instead (tasks/serve.h). All
   workers wait for that task, so its threads share the work (tasks/sample.h): functions with `first` and `step` take every
   step-th sequence or row from `first` on, and a barrier has to separate them.

   A sequence may begin with pages that it shares with an earlier one (page_table.h). It has no rows until that one has
   computed them in earlier steps.

   More sequences than MAX_ROWS are several batches, each of MAX_ROWS sequences, and the last one of those that are left. They
   take turns: a step of the launch has a round for each of them (graph.h), and they have nothing else in common. */
#ifndef QWEN3_BATCH_H
#define QWEN3_BATCH_H

#include "platform.h"

typedef struct sequence_state {
    int32_t prompt; /* tokens of the prompt, processed in chunks */
    /* tokens that are given: the prompt, or more when a test forces the continuation */
    int32_t known;
    int32_t position;         /* tokens in the cache */
    int32_t generated, limit; /* tokens generated so far, and how many are wanted */
    int32_t first, rows;      /* its rows in this step */
    int32_t samples;          /* 1: its last row chooses a token */
    uint32_t splits;          /* its KV splits */
    uint32_t split_blocks;    /* KV blocks of each of them; the last split may be shorter */
    uint32_t table_row;       /* its row of the page table (kv_pages.h) */
    int32_t shared; /* its first tokens, whose pages the sequence `source` computes; or 0 */
    int32_t source;
    int32_t last;    /* the token that was generated last */
    uint32_t output; /* where its logits are stored */
} sequence_state;

typedef struct token_row {
    int32_t sequence, position;
    uint32_t page; /* where its key and value go */
    int32_t token;
} token_row;

typedef struct __attribute__((aligned(16))) batch { /* a weight pipeline may copy it */
    uint32_t sequences;
    uint32_t rows;         /* of this step; 0: all sequences have ended */
    uint32_t steps;        /* steps so far that had rows */
    uint32_t prompt_rows;  /* rows of prompts so far, with this step's */
    uint32_t kv_splits;    /* of all sequences and parts of their rows, in this step */
    uint32_t kv_heads;     /* each split is computed once per KV head */
    uint32_t split_blocks; /* KV blocks of all splits; 0: as many as are fast */
    uint32_t part_rows;    /* rows of a sequence that a work item of attention takes; 0: all */
    uint32_t decodes;      /* 1: of all prompts at most the last token is left */
    int32_t eos[MAX_EOS];  /* tokens that end a sequence */
    uint32_t n_eos;
    token_row row[MAX_ROWS];
    sequence_state sequence[MAX_ROWS];
    /* first entry of each sequence in split_sequence: its splits for the first part of its rows, then for the next one */
    uint32_t first_split[MAX_ROWS + 1];
    uint8_t split_sequence[MAX_ROWS * MAX_KV_SPLITS]; /* which sequence a split belongs to */
    uint32_t workers;                                 /* of all chiplets; chiplets may differ */
    /* 1 + the sequence whose logits are not finite, which ends the launch; 0: none */
    uint32_t bad_sequence;
    int32_t bad_token; /* the token with that logit */
    /* Of a server (tasks/serve.h): which rows this layer has, since which layer of the step; and rows times layers that
       were computed so far, without those since then. */
    uint32_t groups, since_layer;
    uint64_t row_layers;
} batch;

/* Sequence i of several batches. */
FLEET_HOST_DEVICE sequence_state *sequence_of(batch *all, uint32_t i)
{
    return &all[i / MAX_ROWS].sequence[i % MAX_ROWS];
}

/* Chooses how many KV blocks a split has, so that all workers finish at about the same time. Either
   each sequence is one split, or all sequences are split so that the splits fill a whole number of
   rounds over the workers; the loop compares the estimated times. Each sequence wastes half a split
   on average, since its length is no multiple of a split's. */
#define SPLIT_COST 2u   /* fixed cost of a split, in KV blocks */
#define COMBINE_COST 6u /* cost of combining splits, in KV blocks */
FLEET_HOST_DEVICE uint32_t choose_split_blocks(uint32_t sequences, uint32_t blocks,
                                               uint32_t kv_heads, uint32_t workers)
{
    const uint32_t whole = ceil_div(blocks, sequences),
                   rounds = ceil_div(sequences * kv_heads, workers);
    uint32_t best = rounds * whole, least = rounds * (whole + SPLIT_COST);
    for (uint32_t r = rounds; r <= 2 * rounds; r++) {
        const uint32_t kv_splits = r * workers / kv_heads - sequences / 2;
        const uint32_t size = ceil_div(blocks, kv_splits), each = ceil_div(whole, size);
        const uint32_t cost =
            ceil_div(sequences * each * kv_heads, workers) * (ceil_div(whole, each) + SPLIT_COST) +
            COMBINE_COST;
        if (cost < least) least = cost, best = size;
    }
    return best;
}

/* 1: the sequence has no rows in the next step: it has ended, or its shared pages are not complete. */
FLEET_HOST_DEVICE uint32_t is_idle(const batch *b, const sequence_state *s)
{
    return s->generated >= s->limit || b->sequence[s->source].position < s->shared;
}

/* Chooses how many rows of the next step each sequence has, at most max_rows in all. */
FLEET_HOST_DEVICE void batch_choose(batch *b, uint32_t max_rows)
{
    uint32_t spare = max_rows, prompts = 0;
    b->decodes = 1;
    for (uint32_t i = 0; i < b->sequences; i++) {
        const sequence_state *s = &b->sequence[i];
        if (s->prompt - s->position > 1) b->decodes = 0;
        if (is_idle(b, s)) continue;
        spare--; /* every running sequence has at least one row */
        prompts += s->prompt - s->position > 1;
    }
    for (uint32_t i = 0; i < b->sequences; i++) {
        sequence_state *s = &b->sequence[i];
        const int32_t left = s->prompt - s->position;
        s->rows = !is_idle(b, s);
        if (s->rows && left > 1) { /* prompts share the rows that are left */
            const int32_t room = 1 + (int32_t)(spare / prompts--);
            s->rows = left < room ? left : room;
            spare -= (uint32_t)s->rows - 1;
        }
    }
}
/* The same for a batch that decodes. */
FLEET_HOST_DEVICE void batch_choose_decoding(batch *b, uint32_t first, uint32_t step)
{
    for (uint32_t i = first; i < b->sequences; i += step)
        b->sequence[i].rows = !is_idle(b, &b->sequence[i]);
}

/* Work items that share so many rows of a sequence, for each of its splits and KV heads. */
FLEET_HOST_DEVICE uint32_t parts_of(const batch *b, int32_t rows)
{
    return !b->part_rows || (uint32_t)rows <= b->part_rows ? 1
                                                           : ceil_div((uint32_t)rows, b->part_rows);
}
FLEET_HOST_DEVICE uint32_t kv_blocks_of(int32_t tokens)
{
    return ceil_div((uint32_t)tokens, KV_BLOCK);
}

/* Sums over sequences. */
typedef struct batch_sums {
    uint32_t rows, prompt_rows;
    uint32_t parts, blocks; /* parts of rows that attend, and their KV blocks */
    uint32_t splits;        /* of all parts */
} batch_sums;
#define SUMMED                                                                                     \
    8u /* sequences whose values are loaded at once: one after the other they take long */
/* Adds the sequences from `first` to `end`. */
FLEET_HOST_DEVICE void batch_add(const batch *b, uint32_t first, uint32_t end, batch_sums *to)
{
    for (uint32_t k = first; k < end; k += SUMMED) {
        int32_t rows[SUMMED], position[SUMMED], prompt[SUMMED];
        uint32_t splits[SUMMED];
        for (uint32_t i = 0; i < SUMMED; i++) {
            const sequence_state *s = &b->sequence[k + i < end ? k + i : k];
            rows[i] = k + i < end ? s->rows : 0;
            position[i] = s->position, prompt[i] = s->prompt, splits[i] = s->splits;
        }
        for (uint32_t i = 0; i < SUMMED; i++) {
            const uint32_t parts = rows[i] ? parts_of(b, rows[i]) : 0;
            to->rows += (uint32_t)rows[i];
            to->prompt_rows += position[i] < prompt[i] ? (uint32_t)rows[i] : 0;
            to->parts += parts, to->blocks += parts * kv_blocks_of(position[i] + rows[i]);
            to->splits += parts * splits[i];
        }
    }
}

/* Lays out the rows of the next step. */
FLEET_HOST_DEVICE void batch_rows(batch *b, uint32_t first, uint32_t step)
{
    const uint32_t n = b->sequences;
    uint32_t end = 0; /* of the sequences that `before` has */
    batch_sums before = {0, 0, 0, 0, 0};
    if (first == 0 && n == 0) b->rows = 0;
    for (uint32_t i = first; i < n; i += step) {
        sequence_state *s = &b->sequence[i];
        batch_add(b, end, i, &before);
        end = i;
        s->first = (int32_t)before.rows;
        s->samples = s->rows && s->position + s->rows >= s->prompt;
        for (int32_t r = 0; r < s->rows; r++) {
            token_row *row = &b->row[s->first + r];
            row->sequence = (int32_t)i, row->position = s->position + r;
        }
        if (i + 1 == n) {
            batch_add(b, i, n, &before);
            b->rows = before.rows, b->prompt_rows += before.prompt_rows;
        }
    }
}

/* KV blocks of a split, so that `workers` workers share attention; as each thread finds it for itself. */
FLEET_HOST_DEVICE uint32_t batch_split_blocks(const batch *b, uint32_t kv_heads, uint32_t workers)
{
    batch_sums all = {0, 0, 0, 0, 0};
    if (b->split_blocks) return b->split_blocks;
    batch_add(b, 0, b->sequences, &all);
    return all.parts ? choose_split_blocks(all.parts, all.blocks, kv_heads, workers) : 1;
}
/* 1: the rows of the sequence are of its prompt, and sums are added in an order that does not depend on the step. */
FLEET_HOST_DEVICE uint32_t has_fixed_splits(const batch *b, const sequence_state *s)
{
    return b->split_blocks != 0 && s->position < s->prompt;
}
/* Cuts the keys of each sequence into splits of about `size` KV blocks. The cuts are where `size` says if they are fixed. Otherwise
   the splits are of one size, so that none is short; where that is given they depend on the position alone. */
FLEET_HOST_DEVICE void batch_split(batch *b, uint32_t size, uint32_t max_splits, uint32_t first,
                                   uint32_t step)
{
    for (uint32_t i = first; i < b->sequences; i += step) {
        sequence_state *s = &b->sequence[i];
        const uint32_t all = kv_blocks_of(s->position + s->rows), fixed = has_fixed_splits(b, s);
        uint32_t n = b->split_blocks && !fixed ? (all + size / 2) / size : ceil_div(all, size);
        if (!s->rows) continue;
        if (n > max_splits) n = max_splits; /* the workspace holds no more */
        if (!n) n = 1;
        s->split_blocks = fixed && n * size >= all ? size : ceil_div(all, n);
        s->splits = ceil_div(all, s->split_blocks);
    }
}
/* Lists the splits of all sequences. */
FLEET_HOST_DEVICE void batch_list(batch *b, uint32_t kv_heads, uint32_t first, uint32_t step)
{
    const uint32_t n = b->sequences;
    uint32_t end = 0;
    batch_sums before = {0, 0, 0, 0, 0};
    for (uint32_t i = first; i <= n; i += step) {
        batch_add(b, end, i, &before);
        end = i;
        b->first_split[i] = before.splits;
        if (i == n) {
            b->kv_splits = before.splits, b->kv_heads = kv_heads;
        } else if (b->sequence[i].rows) {
            const sequence_state *s = &b->sequence[i];
            const uint32_t own = s->splits * parts_of(b, s->rows);
            for (uint32_t j = 0; j < own; j++) b->split_sequence[before.splits + j] = (uint8_t)i;
        }
    }
}

/* Lays out the next step, of which each sequence has as many rows as was chosen: any number of a prompt, otherwise one or
   none. Splits attention for `workers` workers. batch_pages and batch_tokens have to follow. */
FLEET_HOST_DEVICE void batch_arrange(batch *b, uint32_t max_splits, uint32_t kv_heads,
                                     uint32_t workers)
{
    batch_rows(b, 0, 1);
    batch_split(b, batch_split_blocks(b, kv_heads, workers), max_splits, 0, 1);
    batch_list(b, kv_heads, 0, 1);
}

/* Prepares the next step. */
FLEET_HOST_DEVICE void batch_next(batch *b, uint32_t max_rows, uint32_t max_splits,
                                  uint32_t kv_heads, uint32_t workers)
{
    batch_choose(b, max_rows);
    batch_arrange(b, max_splits, kv_heads, workers);
}

/* Look up the pages and the tokens of the rows of the next step: of every `step`-th, from `first` on. Tasks find them in
   the batch, and need not wait for tables. */
FLEET_HOST_DEVICE void batch_pages(batch *b, const uint32_t *page_table, uint32_t table_pages,
                                   uint32_t first, uint32_t step)
{
    for (uint32_t r = first; r < b->rows; r += step) {
        token_row *row = &b->row[r];
        const size_t line = (size_t)b->sequence[row->sequence].table_row * table_pages;
        row->page = page_table[line + (uint32_t)row->position / PAGE_TOKENS];
    }
}
/* tokens: those that are known, [sequences][line]. */
FLEET_HOST_DEVICE void batch_tokens(batch *b, const int32_t *tokens, uint32_t line, uint32_t first,
                                    uint32_t step)
{
    for (uint32_t r = first; r < b->rows; r += step) {
        token_row *row = &b->row[r];
        const sequence_state *s = &b->sequence[row->sequence];
        row->token = row->position < s->known
                         ? tokens[(size_t)row->sequence * line + (uint32_t)row->position]
                         : s->last;
    }
}

#endif /* QWEN3_BATCH_H */
