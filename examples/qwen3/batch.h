/* batch.h: the sequences that are decoded together, and the rows of a step. */
#ifndef QWEN3_BATCH_H
#define QWEN3_BATCH_H

#include "platform.h"

typedef struct sequence_state {
    int32_t prompt; /* tokens of the prompt, which are taken several at a time */
    int32_t
        known; /* tokens that are known beforehand: the prompt, or more to check what would follow */
    int32_t position;         /* tokens in the cache */
    int32_t generated, limit; /* tokens chosen so far, and how many are wanted */
    int32_t first, rows;      /* in this step */
    int32_t samples;          /* 1: its last row chooses a token */
    uint32_t split_blocks;    /* of each part of its attention; the last one may be short */
} sequence_state;

typedef struct token_row {
    int32_t sequence, position;
} token_row;

typedef struct __attribute__((aligned(16))) batch { /* a stream may copy it */
    uint32_t sequences;
    uint32_t rows;        /* of this step; 0: all have come to their ends */
    uint32_t steps;       /* taken so far that had rows */
    uint32_t kv_splits;   /* of all sequences' attention in this step */
    uint32_t kv_heads;    /* of each part */
    int32_t eos[MAX_EOS]; /* tokens that end a sequence */
    uint32_t n_eos;
    token_row row[MAX_ROWS];
    sequence_state sequence[MAX_ROWS];
    uint32_t first_split[MAX_ROWS + 1];               /* of each sequence */
    uint8_t split_sequence[MAX_ROWS * MAX_KV_SPLITS]; /* whose a part is */
    uint32_t workers;   /* of all chiplets, some of which may have fewer than others */
    uint32_t last_step; /* so many the launch takes, unless all come to their ends before */
    uint32_t
        bad_sequence;  /* 1 + a sequence with a logit that is none, which ends the launch; or 0 */
    int32_t bad_token; /* whose logit that is */
} batch;

/* The most units of a part, so that the workers have about as much to do: either each sequence is one part, unless it is
   as long as all that a worker has; or all are cut up, for some rounds of parts over the workers. Half a part too many
   comes with each sequence, whose length is no multiple of a part's. */
#define SPLIT_COST 2u   /* what a part costs beside its units, in units */
#define COMBINE_COST 6u /* what it costs to put parts together */
FLEET_BOTH uint32_t choose_split_blocks(uint32_t sequences, uint32_t blocks, uint32_t kv_heads,
                                        uint32_t workers)
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

/* The step to come: which rows, and how attention is split so that `workers` workers have something to do. */
FLEET_BOTH void batch_next(batch *b, uint32_t max_rows, uint32_t max_splits, uint32_t kv_heads,
                           uint32_t workers)
{
    uint32_t spare = max_rows, prompts = 0, rows = 0, kv_splits = 0, blocks = 0, running = 0, size;
    for (uint32_t i = 0; i < b->sequences; i++) {
        const sequence_state *s = &b->sequence[i];
        if (s->generated == s->limit) continue;
        spare--; /* each has a row */
        prompts += s->prompt - s->position > 1;
    }
    for (uint32_t i = 0; i < b->sequences; i++) {
        sequence_state *s = &b->sequence[i];
        const int32_t left = s->prompt - s->position;
        s->first = (int32_t)rows, s->rows = 0, s->samples = 0;
        if (s->generated == s->limit) continue;
        s->rows = 1;
        if (left > 1) { /* and the prompts share what is left */
            const int32_t room = 1 + (int32_t)(spare / prompts--);
            s->rows = left < room ? left : room;
            spare -= (uint32_t)s->rows - 1;
        }
        s->samples = s->position + s->rows >= s->prompt;
        for (int32_t r = 0; r < s->rows; r++) {
            b->row[rows].sequence = (int32_t)i;
            b->row[rows].position = s->position + r;
            rows++;
        }
        blocks += ceil_div((uint32_t)(s->position + s->rows), KV_BLOCK), running++;
    }
    b->rows = rows;
    size = running ? choose_split_blocks(running, blocks, kv_heads, workers) : 1;
    for (uint32_t i = 0; i < b->sequences; i++) {
        sequence_state *s = &b->sequence[i];
        b->first_split[i] = kv_splits;
        if (s->rows) {
            const uint32_t all = ceil_div((uint32_t)(s->position + s->rows), KV_BLOCK);
            uint32_t n = ceil_div(all, size);
            if (n > max_splits) n = max_splits; /* partial sums have room for no more */
            s->split_blocks = ceil_div(all, n);
            for (n = ceil_div(all, s->split_blocks); n; n--)
                b->split_sequence[kv_splits++] = (uint8_t)i;
        }
    }
    b->first_split[b->sequences] = kv_splits;
    b->kv_splits = kv_splits, b->kv_heads = kv_heads;
}

#endif /* QWEN3_BATCH_H */
