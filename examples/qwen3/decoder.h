/* decoder.h: what a decoder is in device memory, and how a step is made up.

   A step takes up to MOST_ROWS tokens, its rows, through all layers: the next token of each sequence that is being
   generated, and of a prompt as many as its share of the room that is left. The rows of a sequence stand together. Which
   rows there are is decided on the device, by the task that ends the step before: sequences may come to their ends one
   by one, while the launch goes on with the others.

   Numbers    weights are bf16, and all else is float32 on the CPU. On GPUs the input of each linear layer (after it was
              multiplied by the weights of its norm, before it is divided by its root mean square) is rounded to bf16,
              for the matrix units. Where there are experts, it is the sum of two bf16, the second one being what the
              first leaves: a small error may choose another expert, and then it is no small one any more. Keys and
              values are kept as f16, which has three bits more than bf16, cut off at its largest number, 65504; NVIDIA
              GPUs round queries and what softmax makes of a score to f16, too. Sums, the residual stream, scores and
              logits are float32 everywhere; but where many rows have workers of an NVIDIA GPU share a product, what each
              adds to a sum is cut off to 17 bits of fraction, of the 23 that there are.
   Checks     a logit that is infinite or not a number ends the launch with an error. Matrices of a checkpoint that are
              F16 or F32 are rounded to bf16 when they are loaded; norms are not.
   Order      each sum is added up in an order that depends on shapes and on the number of waves only: a run has the
              same bits as the one before. */
#ifndef QWEN3_DECODER_H
#define QWEN3_DECODER_H

#include "fleet_sched.h"

#include <math.h>
#include <string.h>

#define MOST_ROWS 64u     /* of a step, and so sequences at a time */
#define TILE 16u          /* columns of a product that are computed together */
#define BLOCK 32u         /* k's of a block of packed weights, TILE columns wide */
#define COPY_THREADS 256u /* of kernels that fill and read memory */
#if defined(FLEET_CUDA)
/* Seven warps with the producer: where there are up to eight, a thread may have 255 registers, and of nine 168. */
#define THREADS 192u
#define MOST_WAVES 6u
#define MOST_HEAD_DIM 128u
#else
#define THREADS 256u
#define MOST_WAVES 8u
#define MOST_HEAD_DIM 256u
#endif
#define MOST_TOP_K 16u
#define MOST_ENDS 16u
#if defined(FLEET_CUDA)
#define MOST_PARTS 32u /* of a sequence's attention: a lane each */
#else
#define MOST_PARTS 64u
#endif
#define EIGHT 8u /* values in sixteen bytes, one load */

typedef uint16_t bf16; /* the upper half of a float */

#if defined(FLEET_HOST)
typedef float act;  /* an activation as matrix products take it */
typedef float kept; /* a key or a value */
#else
typedef bf16 act;
typedef uint16_t kept; /* f16 */
#endif

FLEET_BOTH float float_of_bf16(uint32_t x)
{
    const uint32_t bits = x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
/* To the nearest, ties to even. NaN stays NaN: rounded like a number, NVIDIA's would become -0. */
FLEET_BOTH bf16 bf16_of_float(float f)
{
#if defined(__CUDA_ARCH__)
    bf16 half;
    __asm__("cvt.rn.bf16.f32 %0,%1;" : "=h"(half) : "f"(f));
    return half;
#else
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (f != f) return (bf16)(bits >> 16 | 0x40u);
    return (bf16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}
#if defined(FLEET_HOST)
FLEET_BOTH act act_of(float f)
{
    return f;
}
FLEET_BOTH float float_of(act a)
{
    return a;
}
#else
FLEET_BOTH act act_of(float f)
{
    return bf16_of_float(f);
}
FLEET_BOTH float float_of(act a)
{
    return float_of_bf16(a);
}
#endif

/* ---- the batch ---- */

typedef struct sequence_state {
    int32_t prompt; /* tokens of the prompt, which are taken several at a time */
    int32_t
        given; /* tokens that are known beforehand: the prompt, or more to check what would follow */
    int32_t position;      /* tokens in the cache */
    int32_t picked, limit; /* tokens chosen so far, and how many are wanted */
    int32_t first, rows;   /* in this step */
    int32_t samples;       /* 1: its last row chooses a token */
    uint32_t part_units;   /* of each part of its attention; the last one may be short */
} sequence_state;

typedef struct token_row {
    int32_t sequence, position;
} token_row;

typedef struct __attribute__((aligned(16))) batch { /* a stream may copy it */
    uint32_t sequences;
    uint32_t rows;           /* of this step; 0: all have come to their ends */
    uint32_t steps;          /* taken so far that had rows */
    uint32_t parts;          /* of all sequences' attention in this step */
    uint32_t kv_heads;       /* of each part */
    int32_t ends[MOST_ENDS]; /* tokens that end a sequence */
    uint32_t n_ends;
    token_row row[MOST_ROWS];
    sequence_state sequence[MOST_ROWS];
    uint32_t first_part[MOST_ROWS + 1];            /* of each sequence */
    uint8_t part_sequence[MOST_ROWS * MOST_PARTS]; /* whose a part is */
    uint32_t workers;   /* of all chiplets, some of which may have fewer than others */
    uint32_t last_step; /* so many the launch takes, unless all come to their ends before */
    uint32_t unusable;  /* 1 + a sequence with a logit that is none, which ends the launch; or 0 */
    int32_t unusable_token; /* whose logit that is */
} batch;

/* Keys that stay together: a part of a sequence's attention is some of these units, its last one may be short. */
#if defined(FLEET_CUDA)
#define KEYS 16u
#else
#define KEYS 64u
#endif

FLEET_BOTH uint32_t ceil_div(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

/* The most units of a part, so that the workers have about as much to do: either each sequence is one part, unless it is
   as long as all that a worker has; or all are cut up, for some rounds of parts over the workers. Half a part too many
   comes with each sequence, whose length is no multiple of a part's. */
#define PART_COST 2u /* what a part costs beside its units, in units */
#define JOIN_COST 6u /* what it costs to put parts together */
FLEET_BOTH uint32_t part_units(uint32_t sequences, uint32_t units, uint32_t kv_heads,
                               uint32_t workers)
{
    const uint32_t whole = ceil_div(units, sequences),
                   rounds = ceil_div(sequences * kv_heads, workers);
    uint32_t best = rounds * whole, least = rounds * (whole + PART_COST);
    for (uint32_t r = rounds; r <= 2 * rounds; r++) {
        const uint32_t parts = r * workers / kv_heads - sequences / 2;
        const uint32_t size = ceil_div(units, parts), each = ceil_div(whole, size);
        const uint32_t cost =
            ceil_div(sequences * each * kv_heads, workers) * (ceil_div(whole, each) + PART_COST) +
            JOIN_COST;
        if (cost < least) least = cost, best = size;
    }
    return best;
}

/* The step to come: which rows, and how attention is split so that `workers` workers have something to do. */
FLEET_BOTH void batch_next(batch *b, uint32_t most_rows, uint32_t most_parts, uint32_t kv_heads,
                           uint32_t workers)
{
    uint32_t spare = most_rows, prompts = 0, rows = 0, parts = 0, units = 0, running = 0, size;
    for (uint32_t i = 0; i < b->sequences; i++) {
        const sequence_state *s = &b->sequence[i];
        if (s->picked == s->limit) continue;
        spare--; /* each has a row */
        prompts += s->prompt - s->position > 1;
    }
    for (uint32_t i = 0; i < b->sequences; i++) {
        sequence_state *s = &b->sequence[i];
        const int32_t left = s->prompt - s->position;
        s->first = (int32_t)rows, s->rows = 0, s->samples = 0;
        if (s->picked == s->limit) continue;
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
        units += ceil_div((uint32_t)(s->position + s->rows), KEYS), running++;
    }
    b->rows = rows;
    size = running ? part_units(running, units, kv_heads, workers) : 1;
    for (uint32_t i = 0; i < b->sequences; i++) {
        sequence_state *s = &b->sequence[i];
        b->first_part[i] = parts;
        if (s->rows) {
            const uint32_t all = ceil_div((uint32_t)(s->position + s->rows), KEYS);
            uint32_t n = ceil_div(all, size);
            if (n > most_parts) n = most_parts; /* partial sums have room for no more */
            s->part_units = ceil_div(all, n);
            for (n = ceil_div(all, s->part_units); n; n--) b->part_sequence[parts++] = (uint8_t)i;
        }
    }
    b->first_part[b->sequences] = parts;
    b->parts = parts, b->kv_heads = kv_heads;
}

/* ---- the model ---- */

/* How a linear layer's outputs go on. */
typedef enum ending {
    END_FLOATS,   /* to `floats` */
    END_RESIDUAL, /* onto the residual stream, and times the next norm's weights to `x` */
    END_SILU,  /* silu(gate) * up to `acts`: of TILE columns half are gates, then come their ups */
    END_LOGITS /* the largest of each row; and to `floats`, where asked for */
} ending;

typedef struct decoder {
    uint32_t hidden, heads, kv_heads, head_dim, vocab, context;
    uint32_t group; /* heads that share keys and values */
    float root;     /* 1 / sqrt(head_dim) */
    uint32_t experts, top_k, norm_topk;
    float eps;
    uint32_t
        split; /* 1: activations are two bf16 each; the second ones lie behind all first ones */
    uint32_t most_parts;        /* of a sequence's attention */
    uint32_t chiplets, workers; /* X and the most workers of a chiplet; some may have fewer */
    batch *b;
    int32_t *tokens;       /* [sequences][context + 1] */
    const bf16 *embedding; /* [vocab][hidden] */
    const float *rope;     /* [context][head_dim / 2][2]: cos, sin */
    float *h;              /* [MOST_ROWS][hidden], the residual stream */
    act *x;         /* [MOST_ROWS][hidden]: h times the next norm's weights; twice, as the others;
                       act_at says where each of them lies */
    float *squares; /* [MOST_ROWS][hidden / TILE]: sums of the squares of h */
    float *qkv;     /* [MOST_ROWS][(heads + 2 kv_heads) head_dim] */
    float *partial; /* [MOST_ROWS][heads][most_parts][partial_size()] */
    uint32_t *arrived; /* [MOST_ROWS][heads]: parts that are done; 0 between steps */
    kept *cache;       /* keys and values, [layers][sequences][kv_heads][cache_size()] */
    act *attended;     /* [MOST_ROWS][heads head_dim] */
    act *gated;        /* [MOST_ROWS][columns]; of experts [MOST_ROWS top_k][columns] */
    fleet_quad *joint; /* [chiplets][workers][JOINT]: sums of tiles that workers share */
    float *best;       /* [chiplets][workers][MOST_ROWS]: largest logit of a worker's columns */
    int32_t *best_token;
    int32_t *picked; /* [sequences][limit]: the tokens that were chosen */
    float *logits;   /* [sequences][limit][vocab], or null */
    uint32_t limit;
    /* Mixture of experts. A pair is a row and one of its experts, row * top_k + rank. */
    float *scores;        /* [MOST_ROWS][experts padded to TILE] */
    float *pair_weight;   /* [MOST_ROWS top_k] */
    int32_t *pair_place;  /* [MOST_ROWS top_k]: its place among the pairs sorted by expert */
    int32_t *place_row;   /* [MOST_ROWS top_k]: row of the pair at a place */
    int32_t *active;      /* [experts]: those that have rows */
    int32_t *first_place; /* [experts + 1]: of the active ones */
    int32_t *n_active;
    float *expert_out; /* [MOST_ROWS top_k][hidden], by place */
} decoder;

/* What a tile sees: the decoder, and of its layer what it works on. */
typedef struct __attribute__((aligned(16))) op { /* a stream may copy it */
    decoder d;           /* one load further away, it would be waited for by every tile */
    fleet_linear shape;  /* of a product; tile_m: all rows; tile_n: what is computed together */
    uint32_t turn;       /* the worker that has the first of these tiles */
    const bf16 *weights; /* packed; of experts one after the other */
    uint32_t tile_bytes; /* of the weights of such a tile */
    const act *x;        /* [rows][shape.k] */
    uint32_t x_second;   /* how far behind a first bf16 the second one lies; 0: there is none */
    uint32_t normed;     /* 1: x is still to be divided by its root mean square */
    uint32_t ending;
    float *floats;        /* [rows][columns] */
    act *acts;            /* [rows][columns] */
    uint32_t acts_second; /* as x_second */
    uint32_t columns;     /* of those: what of shape.n is no padding, or half of it */
    const float *norm;    /* END_RESIDUAL and embed: weights of the norm to come, [hidden] */
    const float *q_norm, *k_norm; /* [head_dim] */
    uint32_t number, ops;         /* which op of a step's */
    kept *cache;                  /* this layer's, [sequences][kv_heads][cache_size()] */
    uint64_t session;             /* no other one has the same: when it was opened, in ns */
    uint32_t rows, rows_epoch;    /* of the step, and which one: in a worker's own copy (own_op) */
} op;

#endif /* QWEN3_DECODER_H */
