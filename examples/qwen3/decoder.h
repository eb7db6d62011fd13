/* decoder.h: what a decoder is in device memory, and how a step is made up.

   A step takes up to MAX_ROWS tokens, its rows, through all layers: the next token of each sequence that is being
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

#include "batch.h"

/* How a linear layer's outputs go on. */
typedef enum epilogue {
    EPILOGUE_STORE,    /* to `floats` */
    EPILOGUE_RESIDUAL, /* onto the residual stream, and times the next norm's weights to `x` */
    EPILOGUE_SILU, /* silu(gate) * up to `acts`: of TILE_N columns half are gates, then come their ups */
    EPILOGUE_ARGMAX /* the largest of each row; and to `floats`, where asked for */
} epilogue;

typedef struct decoder {
    uint32_t hidden, heads, kv_heads, head_dim, vocab, context;
    uint32_t group; /* heads that share keys and values */
    float root;     /* 1 / sqrt(head_dim) */
    uint32_t experts, top_k, norm_topk;
    float eps;
    uint32_t
        two_terms; /* 1: activations are two bf16 each; the second ones lie behind all first ones */
    uint32_t max_splits;        /* of a sequence's attention */
    uint32_t chiplets, workers; /* X and the most workers of a chiplet; some may have fewer */
    batch *b;
    int32_t *tokens;       /* [sequences][context + 1] */
    const bf16 *embedding; /* [vocab][hidden] */
    const float *rope;     /* [context][head_dim / 2][2]: cos, sin */
    float *h;              /* [MAX_ROWS][hidden], the residual stream */
    act_t *x;       /* [MAX_ROWS][hidden]: h times the next norm's weights; twice, as the others;
                       act_at says where each of them lies */
    float *squares; /* [MAX_ROWS][hidden / TILE_N]: sums of the squares of h */
    float *qkv;     /* [MAX_ROWS][(heads + 2 kv_heads) head_dim] */
    float *kv_partials;    /* [MAX_ROWS][heads][max_splits][kv_partial_size()] */
    uint32_t *splits_done; /* [MAX_ROWS][heads]: parts that are done; 0 between steps */
    kv_t *cache;           /* keys and values, [layers][sequences][kv_heads][cache_size()] */
    act_t *attended;       /* [MAX_ROWS][heads head_dim] */
    act_t *gated;          /* [MAX_ROWS][columns]; of experts [MAX_ROWS top_k][columns] */
    fleet_quad *split_k; /* [chiplets][workers][SPLIT_K_QUADS]: sums of tiles that workers share */
    float *best;         /* [chiplets][workers][MAX_ROWS]: largest logit of a worker's columns */
    int32_t *best_token;
    int32_t *generated; /* [sequences][limit]: the tokens that were chosen */
    float *logits;      /* [sequences][limit][vocab], or null */
    uint32_t limit;
    /* Mixture of experts. A pair is a row and one of its experts, row * top_k + rank. */
    float *scores;        /* [MAX_ROWS][experts padded to TILE_N] */
    float *pair_weight;   /* [MAX_ROWS top_k] */
    int32_t *pair_place;  /* [MAX_ROWS top_k]: its place among the pairs sorted by expert */
    int32_t *place_row;   /* [MAX_ROWS top_k]: row of the pair at a place */
    int32_t *active;      /* [experts]: those that have rows */
    int32_t *first_place; /* [experts + 1]: of the active ones */
    int32_t *n_active;
    float *expert_out; /* [MAX_ROWS top_k][hidden], by place */
} decoder;

/* What a tile sees: the decoder, and of its layer what it works on. */
typedef struct __attribute__((aligned(16))) task_args { /* a stream may copy it */
    decoder d;             /* one load further away, it would be waited for by every tile */
    fleet_linear shape;    /* of a product; tile_m: all rows; tile_n: what is computed together */
    uint32_t first_worker; /* the worker that has the first of these tiles */
    const bf16 *weights;   /* packed; of experts one after the other */
    uint32_t panel_bytes;  /* of the weights of such a tile */
    const act_t *x;        /* [rows][shape.k] */
    uint32_t x_low;        /* how far behind a first bf16 the second one lies; 0: there is none */
    uint32_t rmsnorm;      /* 1: x is still to be divided by its root mean square */
    uint32_t epilogue;
    float *floats;     /* [rows][columns] */
    act_t *acts;       /* [rows][columns] */
    uint32_t acts_low; /* as x_low */
    uint32_t columns;  /* of those: what of shape.n is no padding, or half of it */
    const float *norm; /* EPILOGUE_RESIDUAL and embed: weights of the norm to come, [hidden] */
    const float *q_norm, *k_norm; /* [head_dim] */
    uint32_t number, step_tasks;  /* which op of a step's */
    kv_t *cache;                  /* this layer's, [sequences][kv_heads][cache_size()] */
    uint64_t session;             /* no other one has the same: when it was opened, in ns */
    uint32_t rows, rows_epoch; /* of the step, and which one: in a worker's own copy (own_args) */
} task_args;

#endif /* QWEN3_DECODER_H */
