/* decoder.h: what a decoder is in device memory, and the arguments of its tasks.

   Numbers    Weights are bf16. On the CPU all else is float32. On GPUs the input of each linear layer is rounded to bf16
              for the matrix units, after it was multiplied by the norm's weights and before it is divided by its root
              mean square. In models with experts it is the sum of two bf16 terms, the second being the rounding error of
              the first: a small error might choose another expert, and would then no longer be small. Keys and values
              are f16, which has three bits of precision more than bf16, and are clamped to its largest number, 65504;
              GPUs round queries and softmax weights to f16, too. Sums, the residual stream, scores and logits are
              float32 everywhere. Split-K products on NVIDIA GPUs exchange partial sums with 17 bits of fraction
              instead of 23.
   Checks     A logit that is infinite or NaN ends the launch with an error. F16 and F32 matrices of a checkpoint are
              rounded to bf16 when they are loaded; norms are not.
   Order      Each sum is added up in an order that depends only on shapes and on the number of waves: two runs give the
              same bits. */
#ifndef QWEN3_DECODER_H
#define QWEN3_DECODER_H

#include "batch.h"
#include "../parts/fleet_linear.h"

/* What becomes of a linear layer's sums. */
typedef enum epilogue {
    EPILOGUE_STORE,    /* store to `floats` */
    EPILOGUE_RESIDUAL, /* add to the residual stream; `x` = sum times the next norm's weights */
    EPILOGUE_SILU, /* `acts` = silu(gate) * up; half of TILE_N columns are gates, the other half their ups */
    EPILOGUE_EXPERTS, /* the same of active experts, each for its own rows */
    EPILOGUE_ARGMAX /* the largest logit of each row; where they are needed, all logits to `logits` */
} epilogue;

/* How a sequence chooses its tokens (tasks/draw.h). Zeros: always the most probable one. */
typedef struct sampling_desc {
    float temperature; /* 0: no sampling, and the rest has no meaning */
    uint32_t top_k;    /* 0: all */
    float top_p;       /* 0 or 1: all */
    float min_p;
    uint64_t seed;   /* of the random numbers; */
    uint32_t stream; /* sequences with the same seed and another stream draw independently */
} sampling_desc;

/* A block of rows of one sequence, whose queries attend together; and a step of the kernel that takes prompts
   (nvidia/prefill.h). */
typedef struct prefill_block {
    uint32_t row, rows; /* its first row in the step, and how many it has */
    uint32_t position, table_row;
} prefill_block;
/* How a product is divided among workers: tiles of `width` columns, and of each tile `parts` ranges of part_k k's, the last one
   what is left. */
typedef struct prefill_division {
    uint32_t width, parts, part_k;
} prefill_division;
enum {
    PREFILL_QKV,
    PREFILL_O,
    PREFILL_GATE_UP,
    PREFILL_DOWN,
    PREFILL_HEAD,
    PREFILL_ROUTER,
    PREFILL_EXPERT_UP,
    PREFILL_EXPERT_DOWN,
    PREFILL_PRODUCTS
};
/* What becomes of the sums of a product (PREFILL_...). */
FLEET_HOST_DEVICE epilogue prefill_end_of(uint32_t product)
{
    return product == PREFILL_O || product == PREFILL_DOWN              ? EPILOGUE_RESIDUAL
           : product == PREFILL_GATE_UP || product == PREFILL_EXPERT_UP ? EPILOGUE_SILU
           : product == PREFILL_HEAD                                    ? EPILOGUE_ARGMAX
                                                                        : EPILOGUE_STORE;
}
typedef struct prefill_step {
    uint32_t rows, first;         /* and its first row in prefill_rows */
    uint32_t blocks, first_block; /* likewise in prefill_blocks */
    uint32_t ends, first_end;     /* likewise in prefill_ends: the prompts that end in it */
    prefill_division division[PREFILL_PRODUCTS];
    /* Of a server's steps (tasks/serve_wide.h), else 0 */
    uint32_t begin;          /* the rows of this layer begin here, and end at `rows` */
    uint32_t chunk_row;      /* where the chunk's rows begin, */
    uint32_t chunk_room;     /* and how many it has at most */
    uint32_t choosing;       /* rows that choose a token; of these the last one is the step's last
                                 row if a prompt ends */
    uint32_t head_row;       /* where they are copied to */
    uint32_t batches;        /* entries of decoder.b */
    uint32_t has_row_blocks; /* 1: a warp attends for a row that decodes (nvidia/wide.h); then */
    uint32_t row_blocks;     /* so many blocks, the first ones, are those of such rows */
    uint32_t columns[PREFILL_HEAD]; /* of the products, whose width is chosen for each step */
    /* And which chunks move before the first layer: to the parked ones, and back. held: whose activations are in its place
       since it has stopped between two layers. A kind is 1 + its fleet_class, 0: none. */
    uint32_t held, saves, restores;
    uint32_t held_rows;
} prefill_step;
typedef struct prefill_end {
    uint32_t sequence, row; /* the row of the step that has its last token */
} prefill_end;

/* What the gates of a server's step do (tasks/serve.h). */
typedef struct gate_state {
    const uint32_t *news; /* the host's word, and what it is while nothing is to be done */
    uint32_t seen;
    uint32_t kind; /* GATES_... */
} gate_state;

/* What a request of a server may ask of its logits (tasks/shape.h), beside what its words say, in
   memory of the host, which writes all but the reports before it submits the request. */
#define MAX_BIASED 1024u
#define MAX_DELAYED 80u
#define MAX_TOP 20u
#define REPORTED 256u /* tokens of a request that the host has not released, at most */
typedef struct token_value {
    uint32_t token, value; /* value: the bits of a float */
} token_value;
typedef struct token_report { /* of a token: the logarithms of probabilities */
    uint32_t own;
    token_value top[MAX_TOP]; /* the most likely tokens, as many as were asked for */
} token_report;
typedef struct request_asks {
    uint32_t n_biased, n_delayed;
    token_value biased[MAX_BIASED]; /* tokens, each once, and what is added to their logits */
    uint32_t delayed[MAX_DELAYED];  /* none of the first `min_tokens` tokens is one of these */
    token_report reports[REPORTED]; /* token i's is in entry i % REPORTED before its event comes */
} request_asks;

/* What tasks of a server share, beside its batch. */
typedef struct served_state {
    gate_state gates;
    /* Of requests that ask something; null in a server without draws. */
    request_asks *asks; /* [requests], on the host */
    int32_t *history;   /* [requests][context]: the tokens that were generated */
    uint32_t *shaped;   /* [sequences][vocab]: floats, the logits that a token is chosen by */
} served_state;

typedef struct decoder {
    uint32_t hidden, heads, kv_heads, head_dim, vocab, context;
    uint32_t group; /* query heads per KV head */
    float root;     /* 1 / sqrt(head_dim) */
    uint32_t experts, top_k, norm_topk;
    float eps;
    /* 1: an activation is the sum of two bf16; all low terms follow all high terms */
    uint32_t two_terms;
    uint32_t layers;
    uint32_t max_splits;        /* KV splits of a sequence, at most */
    uint32_t pages;             /* of the cache */
    uint32_t table_pages;       /* pages of a row of the page table */
    uint32_t chiplets, workers; /* X, and the workers of the largest chiplet */
    uint16_t tile_rows;         /* of a tile of a linear layer; MAX_ROWS: all rows */
    uint16_t unaware;           /* 1: planned without chiplets (session_desc.unaware) */
    uint32_t rounds, round; /* batches; and which one, of a task's own decoder (decoder_of_round) */
    batch
        *b; /* [rounds]; of a task's own decoder that of its round, like all arrays of sequences */
    const int32_t *tokens; /* [sequences][context + 1]: those that are known; null in a server */
    const bf16 *embedding; /* [vocab][hidden] */
    const float *rope;     /* [context][head_dim / 2][2]: cos, sin */
    float *h;              /* [MAX_ROWS][hidden]: the residual stream */
    /* [MAX_ROWS][hidden]: h times the next norm's weights; twice where there are two terms, like
       attended and gated; act_at has the order */
    act_t *x;
    float *squares; /* [MAX_ROWS][hidden / TILE_N]: the sum of h's squares, by tile */
    /* [MAX_ROWS][(heads + 2 kv_heads) head_dim]; of the kernel that takes prompts also the parts of a product, [parts][rows][columns] */
    float *qkv;
    float *kv_partials;         /* [MAX_ROWS][heads][max_splits][kv_partial_size()] */
    uint32_t *splits_done;      /* [MAX_ROWS][heads]: splits that are done; 0 between steps */
    kv_t *cache;                /* keys and values, and where they are: kv_pages.h */
    const uint32_t *page_table; /* [table rows][table_pages] */
    act_t *attended;            /* [MAX_ROWS][heads head_dim]: the output of attention */
    act_t *gated;               /* [MAX_ROWS][columns]; with experts [MAX_ROWS top_k][columns] */
    fleet_quad *split_k;        /* split-K workspace, [chiplets][workers][SPLIT_K_QUADS] */
    /* [chiplets][workers][MAX_ROWS], of the kernel that decodes many sequences [workers][PREFILL_TILE_ROWS]: largest
       logit among a worker's columns */
    float *best;
    int32_t *best_token;
    int32_t *generated; /* [sequences][limit]: the tokens that were chosen */
    float *logits;      /* [sequences][logit_steps][vocab], or null */
    uint32_t limit;
    /* `limit` if all logits are kept, for tests; 1: only those from which a sequence draws its next token */
    uint32_t logit_steps;
    sampling_desc *sampling; /* [sequences], or null: no sequence draws */
    int32_t *drawn;          /* [sequences]: the token that was drawn in this step */
    /* Mixture of experts. A pair is a row and one of its experts, numbered row * top_k + rank. */
    float *scores; /* [MAX_ROWS][experts padded to TILE_N] */
    /* [MAX_ROWS top_k]: the row and the weight of a pair, by position when pairs are sorted by expert */
    int32_t *place_row;
    float *place_weight;
    int32_t *active;      /* [experts]: the experts that have rows */
    int32_t *first_place; /* [experts + 1]: first position of each active expert */
    int32_t *n_active;
    /* Of a server (tasks/serve.h), else null. Activations of rows that have stopped between two layers: like h, x and
       squares, of PARKED_ROWS rows, but x without an order of its own; with tasks/serve_wide.h
       those of a chunk of each class. */
    struct fleet_table *table;
    float *parked_h, *parked_squares;
    act_t *parked_x;
    served_state *served;
    /* Of the kernel that takes prompts and of the one that decodes many sequences, else null. The latter has one step, which
       the last task of each step changes into the next one (prefill_stays: 1). */
    prefill_step *prefill;
    token_row *prefill_rows;
    prefill_block *prefill_blocks;
    uint32_t prefill_stays;
    const prefill_end *prefill_ends;
    float *prefill_last; /* [sequences][hidden]: the residual stream of the prompts' last tokens */
    uint32_t
        prefill_adds; /* 1: products that add to the residual stream may be divided into parts */
    /* Of models with experts (nvidia/prefill_experts.h): where rows go; the rows, sorted by expert; their results */
    void *prefill_routes;
    act_t *prefill_sorted;
    float *prefill_results;
    /* Of several ranks (tasks/ranks.h), else zeros: their regions, and in that of this rank [2][summand_quads], what the
       ranks' sums of o and of down or the experts are, and after them its heads_of. Its experts are the only ones whose
       weights it has. */
    fleet_peers peers;
    fleet_quad *summands;
    uint32_t first_expert, own_experts;
} decoder;

/* The decoder of a round: its batch, and its sequences in place of all. */
FLEET_HOST_DEVICE decoder decoder_of_round(const decoder *d, uint32_t round)
{
    const size_t first = (size_t)round * MAX_ROWS;
    decoder own = *d;
    own.round = round, own.b += round;
    if (d->tokens) own.tokens += first * (d->context + 1);
    if (d->generated) own.generated += first * d->limit;
    if (d->sampling) own.sampling += first, own.drawn += first;
    if (d->prefill_last) own.prefill_last += first * d->hidden;
    return own;
}

/* Entries of best and best_token. */
FLEET_HOST_DEVICE uint32_t bests_of(const decoder *d)
{
    return d->chiplets * d->workers * MAX_ROWS;
}
/* 1: the program can be one of several ranks. Others would only be slowed down by the tasks of ranks. */
#if defined(FLEET_MPI) || defined(FLEET_IPC)
#define HAS_RANKS 1u
#else
#define HAS_RANKS 0u
#endif
/* Of several ranks: a row's sums of a tile in words of flagged data, which have room for three; and those of all rows,
   tiles and ranks. */
#define SUMMAND_QUADS ((TILE_N + 2) / 3)
FLEET_HOST_DEVICE size_t summand_quads(const decoder *d)
{
    return (size_t)d->peers.ranks * (d->hidden / TILE_N) * MAX_ROWS * SUMMAND_QUADS;
}
/* Of several ranks: what this rank's lm_head finds among its tokens, numbered from 0 on: best and best_token, then its
   columns of the logits that are kept. */
FLEET_HOST_DEVICE float *heads_of(const decoder *d)
{
    return (float *)(void *)(d->summands + 2 * summand_quads(d));
}
/* How many tokens of the vocabulary a rank has, of shares of `each`. */
FLEET_HOST_DEVICE uint32_t tokens_of_rank(uint32_t vocab, uint32_t each, uint32_t rank)
{
    const uint32_t first = rank * each;
    return first >= vocab ? 0 : vocab - first < each ? vocab - first : each;
}

/* Rows that may be parked: those that decode, and a chunk of each class. */
#define PARKED_ROWS (3 * MAX_ROWS)

/* What a worker's prefetch has found: 1: it has copied the arguments; then which panels are the worker's. */
typedef struct found_panels {
    uint32_t early, first, end, step;
} found_panels;
/* The task is one for each of so many chiplets, or 0: all chiplets share it; and weights of products to come, which its workers
   load ahead. */
typedef struct prompt_share {
    uint32_t groups, ahead_bytes;
    const bf16 *ahead;
} prompt_share;

/* The arguments of a task: the decoder, and what differs from task to task. */
typedef struct __attribute__((aligned(16))) task_args { /* a weight pipeline may copy it */
    decoder d;             /* a copy: a pointer would cost each task one more dependent load */
    fleet_linear shape;    /* of a product; tile_m: decoder.tile_rows; tile_n: a panel of columns */
    uint32_t first_worker; /* the worker that takes the first panel */
    const bf16 *weights;   /* packed, panel after panel; experts one after the other */
    uint32_t panel_bytes;  /* bytes of a packed panel */
#if HAS_PACKED_CODES
    weight_format format;
#endif
    uint32_t inner_k; /* k's of a column that are neighbours in a panel (packing.h) */
    const act_t *x;   /* [rows][shape.k] */
    uint32_t x_low;   /* offset of the low bf16 term from the high one; 0: there is one term */
    uint32_t rmsnorm; /* 1: the sums are divided by the root mean square of x */
    uint32_t epilogue;
    float *floats;                /* [rows][columns] */
    act_t *acts;                  /* [rows][columns] */
    uint32_t acts_low;            /* as x_low */
    uint32_t columns;             /* columns of floats or acts, without padding */
    const float *norm;            /* weights of the next norm, [hidden] */
    const float *q_norm, *k_norm; /* [head_dim] */
    uint32_t number, step_tasks;  /* the number of this task in its step, and of all tasks */
    uint32_t round;               /* in which it is */
    uint32_t layer;               /* of a gate: before which it is */
    /* 1: the first task after a gate, which may have changed the rows; 1: there are gates in the step */
    uint32_t after_gate, has_gates;
    fleet_quad
        *summands;    /* of several ranks: where they exchange the sums of this task; else null */
    kv_t *cache;      /* of this layer: kv_pages.h */
    uint64_t session; /* unique to the session: when it was opened, in ns */
    uint32_t
        product; /* of the kernel that takes prompts: PREFILL_..., of this task or of the one whose parts it adds up */
    /* Only in a worker's own copy (own_args): the rows of the step, and its number; a reciprocal of the rows, for fast_div. */
    uint32_t rows, rows_epoch, rows_reciprocal;
    union {
        found_panels found; /* in that copy */
        prompt_share share; /* in tasks of prompts on AMD GPUs, which have no copies */
    };
} task_args;

#endif /* QWEN3_DECODER_H */
