/* session.h: decodes sequences with a model: device memory, the plan, one launch for all steps, and the results.

       session s;
       if (session_open(&s, &model, &desc, requests, n) || session_run(&s))
           fprintf(stderr, "%s\n", s.error);
       else
           session_generated(&s, tokens, counts);
       session_free(&s); */
#ifndef QWEN3_SESSION_H
#define QWEN3_SESSION_H

#include "prefill.h"

#include <time.h>

typedef struct request {
    /* what follows the prompt, whatever is chosen; or null */
    const uint32_t *prompt, *forced;
    uint32_t n_prompt, n_forced;
    uint32_t steps; /* tokens to generate; 0: as the session */
    sampling_desc sampling;
} request;

/* What makes regions that all ranks share, such as examples/parts/fleet_peers_mpi.h. open: of so many bytes on each rank, instead
   of those before; 0, or they cannot be made. meet: a barrier of the ranks; 0, or 1 + a rank that passed another digest. */
typedef struct rank_engine {
    void *user;
    int (*open)(void *user, size_t bytes, fleet_peers *peers);
    int (*meet)(void *user, uint64_t digest);
} rank_engine;

typedef struct session_desc {
    fleet_schedule schedule;
    uint32_t unfused;
    /* 1: the same graph, planned without chiplets. The tiles of a layer are one flat list, each worker of the device takes
       every n-th of them, neighbours on different chiplets, and each signals for itself. */
    uint32_t unaware;
    /* Rows of a tile of a linear layer, a multiple of 16, where HAS_ROW_TILES. 0: all rows; if unaware, those of a matrix
       instruction, 16 */
    uint32_t tile_rows;
    uint32_t chiplets; /* 0: as the device has */
    uint32_t workers;  /* in all, distributed to the chiplets; 0: all */
    uint32_t context;  /* tokens that a sequence has room for */
    uint32_t steps;    /* tokens to generate for each sequence, at most */
    uint32_t keep_logits;
    uint32_t draws;  /* 1: requests may have a temperature */
    uint32_t launch; /* steps of the launch; 0: as many as are needed if no sequence ends early */
    uint32_t trace;  /* 1: records the last step; needs FLEET_TRACE */
    /* 1: rounds RoPE's frequencies to bf16, like a model that was cast as a whole */
    uint32_t rope_bf16;
    /* 1: prompts with the same beginning share pages of keys and values, and compute them once */
    uint32_t share_prefixes;
    uint64_t page_seed; /* pages are dealt out in an order drawn from it; 0: in order */
    /* Of one sequence: what sessions with the same context and page_seed have left. The tokens that
       the prompt has in common with them are not computed again. Null: nothing is kept */
    kept_tokens *kept;
    /* KV blocks of all splits; more in contexts for which the workspace has too few splits. Then a sequence has the
       same bits whatever is decoded beside it, and in whichever chunks its prompt is taken (README.md, Numerics).
       0: chosen for each step, for speed */
    uint32_t split_blocks;
    /* rows of the steps that take prompts before the launch that decodes, at most (prefill.h); 0: as many as are fast,
       and for few tokens none */
    uint32_t prefill_rows;
    fleet_placement placement;
    uint64_t seed;
    fleet_host_desc host;
    const rank_engine *ranks; /* of a model that was loaded for several ranks, else null */
    uint64_t peer_limit_ns;   /* that a rank waits for another; 0: fleet_launch_desc's default */
} session_desc;

/* The course of a launch, in steps that have rows. */
typedef struct run_summary {
    uint32_t steps;
    uint32_t first_token; /* the first step that ends with a token, counted from 1; 0: none */
    uint32_t decoding;    /* the first that ends with a token for each running sequence; 0: none */
    uint32_t tokens;      /* generated after that step */
    uint64_t cached;      /* tokens whose keys and values the later steps read, in all */
} run_summary;

typedef struct session {
    const model *m;
    session_desc desc;
    uint32_t sequences;
    /* their batches, before the first step, and after session_run */
    batch first[MAX_ROUNDS], last[MAX_ROUNDS];
    run_summary summary; /* if no sequence ends early; after session_run, the actual one */
    page_table pages;    /* on the host */
    uint32_t steps;      /* of the launch, at most */
    decoder d;           /* with device pointers */
    task_args *tasks;    /* on the host */
    const task_args *device_tasks;
    fleet_topology topology;
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_trace trace;
    uint32_t image_made, state_made, trace_made;
    prefill_run prefill;
    size_t peers_bytes; /* of several ranks: of their regions, for the events of a launch */
    /* d.generated, as the host sees it: when a step's event has been seen, its tokens are there; -1: none yet. The word
       after them: of several ranks, whose events no host sees, how many steps have ended; their tokens come then or soon */
    int32_t *generated;
    uint32_t interrupted; /* 1: another thread has called session_interrupt */
    device_memory memory;
    uint32_t refused; /* 1: an argument is at fault */
    char error[ERROR_BYTES];
} session;

#define UNAWARE_TILE_ROWS 16u

static int session_fail(session *s, const char *what, const char *why)
{
    if (!s->error[0]) snprintf(s->error, sizeof s->error, "%.64s: %.400s", what, why);
    return -1;
}

/* The host reads tokens while the launch runs, so they are in its memory. */
static int session_generated_memory(session *s)
{
    const size_t n = (size_t)s->sequences * s->desc.steps + 1;
    void *host = NULL, *device = NULL;
    if (fleet_pinned_alloc(&host, &device, n * sizeof *s->generated))
        return session_fail(s, "tokens", "no memory that the device can write");
    s->generated = (int32_t *)host, s->d.generated = (int32_t *)device;
    for (size_t i = 0; i < n; i++) s->generated[i] = -1;
    s->generated[n - 1] = 0;
    return 0;
}

/* Divides the sequences into batches. */
static void session_rounds(session *s, uint32_t n)
{
    s->sequences = n, s->d.rounds = ceil_div(n, MAX_ROWS);
    for (uint32_t i = 0; i < s->d.rounds; i++)
        s->first[i].sequences = n - i * MAX_ROWS < MAX_ROWS ? n - i * MAX_ROWS : MAX_ROWS;
}

/* The region of each rank: first fleet_peers_bytes for the events of each launch, where ranks with
   another model find each other too; then the sums that ranks exchange, what their heads find, and
   what prompts have there. Offsets and all of it, in bytes. */
typedef struct rank_region {
    size_t summands, heads, prompts, bytes;
} rank_region;
static rank_region session_region(const session *s)
{
    const size_t bests = bests_of(&s->d);
    const size_t logits = s->d.logits ? (size_t)s->sequences * s->d.logit_steps : 0;
    rank_region r;
    r.summands = s->peers_bytes * (1 + PREFILL_LAUNCHES);
    r.heads = r.summands + 2 * summand_quads(&s->d) * sizeof(fleet_quad);
    r.prompts = r.heads + (2 * bests + logits * s->m->head_tokens) * sizeof(float);
    r.prompts = (r.prompts + 127) / 128 * 128;
    r.bytes = r.prompts + prefill_region_of(&s->prefill, s->m->ranks, s->sequences).bytes;
    return r;
}
/* Memory of the sequences' tokens and pages, and the decoder's buffers. */
static int session_buffers(session *s)
{
    const uint32_t n = s->sequences;
    device_memory *mem = &s->memory;
    decoder *d = &s->d;
    buffers_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.context = s->desc.context, desc.sequences = n, desc.draws = s->desc.draws;
    desc.logit_steps = s->desc.keep_logits ? s->desc.steps : s->desc.draws;
    desc.rope_bf16 = s->desc.rope_bf16, desc.kept = mem->counts ? NULL : s->desc.kept;
    if (s->m->ranks > 1) {
        const uint32_t ranks = d->peers.ranks = s->m->ranks;
        d->first_expert = s->m->first_expert, d->own_experts = s->m->own_experts;
        s->peers_bytes = (size_t)(count_step_tasks(s->m, d) + 4) * (ranks * ranks + 1) * 128;
    }
    d->table_pages = ceil_div(s->desc.context, PAGE_TOKENS), d->pages = n * d->table_pages;
    d->limit = s->desc.steps;
    if (!mem->counts && session_generated_memory(s)) return -1;
    d->tokens = (int32_t *)memory_get(mem, "tokens", (uint64_t)n * (s->desc.context + 1) * 4);
    d->page_table = (uint32_t *)memory_get(mem, "page table", (uint64_t)d->pages * 4);
    if (decoder_buffers(d, mem, s->m, &desc)) return -1;
    if (!s->desc.split_blocks)
        s->prefill.max_rows =
            prefill_rows_of(s->m, s->desc.prefill_rows, (uint64_t)n * s->desc.context);
    /* The other launches keep logits, and have other schedules. */
    if (s->desc.schedule == FLEET_SCHEDULE_STATIC && !s->desc.unfused && !s->desc.unaware &&
        !desc.logit_steps)
        s->prefill.is_wide = is_wide(s->m, &s->prefill, n);
    if (s->prefill.max_rows) prefill_buffers(&s->prefill, mem, d, s->m, n);
    if (s->m->ranks > 1 && mem->counts) mem->bytes += session_region(s).bytes;
    return mem->error[0] ? -1 : 0;
}

/* What all ranks have to be asked for alike. That their plans are alike the kit finds out. */
static uint64_t session_digest(const session *s, const request *requests, uint32_t n)
{
    uint64_t sum = 0xcbf29ce484222325u;
#define DIGEST(value) (sum = (sum ^ (uint64_t)(value)) * 0x100000001b3u)
    DIGEST(s->steps), DIGEST(n);
    for (uint32_t i = 0; i < n; i++) {
        const request *r = &requests[i];
        const sampling_desc *q = &r->sampling;
        DIGEST(r->n_prompt), DIGEST(r->n_forced), DIGEST(r->steps), DIGEST(q->seed);
        DIGEST(1e6f * q->temperature), DIGEST(1e6f * q->top_p), DIGEST(1e6f * q->min_p);
        DIGEST(q->top_k);
        for (uint32_t k = 0; k < r->n_prompt; k++) DIGEST(r->prompt[k]);
        for (uint32_t k = 0; k < r->n_forced; k++) DIGEST(r->forced[k]);
    }
#undef DIGEST
    return sum;
}

/* Makes the region of each rank. */
static int session_ranks(session *s)
{
    const size_t bests = bests_of(&s->d);
    const rank_region r = session_region(s);
    float *best = (float *)malloc(bests * sizeof *best);
    int bad =
        !best || !s->desc.ranks || s->desc.ranks->open(s->desc.ranks->user, r.bytes, &s->d.peers);
    if (!bad) {
        char *own = (char *)s->d.peers.bases[s->d.peers.rank];
        s->d.summands = (fleet_quad *)(void *)(own + r.summands);
        prefill_ranks(&s->prefill, &s->d, s->sequences, own + r.prompts);
        for (size_t i = 0; i < bests; i++) best[i] = -INFINITY; /* as in d.best */
        /* of other sessions' tags */
        bad = fleet_device_clear(own + r.summands, r.bytes - r.summands, NULL) ||
              fleet_to_device(heads_of(&s->d), best, bests * sizeof *best, NULL);
    }
    free(best);
    return bad ? session_fail(s, "ranks", "no memory that all of them share") : 0;
}

/* Ends the launch that session_run waits for, from another thread. What was generated stays. */
static inline void session_interrupt(session *s)
{
    __atomic_store_n(&s->interrupted, 1, __ATOMIC_RELEASE);
    fleet_state_abort(&s->state);
}

/* Whether a sequence cannot choose its tokens so. Not-a-numbers are outside of all ranges. */
static int sampling_refused(const sampling_desc *s, uint32_t draws, uint32_t sequence, char *error)
{
    if (!(s->temperature == 0 || (s->temperature >= 1e-3f && s->temperature <= 1e3f)))
        snprintf(error, ERROR_BYTES,
                 "sequence %u: a temperature of %g is neither 0 nor between 0.001 and 1000",
                 sequence, (double)s->temperature);
    else if (!(s->top_p >= 0 && s->top_p <= 1))
        snprintf(error, ERROR_BYTES, "sequence %u: a top_p of %g is not between 0 and 1", sequence,
                 (double)s->top_p);
    else if (!(s->min_p >= 0 && s->min_p <= 1))
        snprintf(error, ERROR_BYTES, "sequence %u: a min_p of %g is not between 0 and 1", sequence,
                 (double)s->min_p);
    else if (s->temperature > 0 && !draws)
        snprintf(error, ERROR_BYTES, "sequence %u: the session was opened without draws", sequence);
    else
        return 0;
    return 1;
}

/* Whether a model of this config cannot decode these requests; the error says why. */
static int requests_refused(const qwen3_config *config, const session_desc *desc,
                            const request *requests, uint32_t n, char *error)
{
    if (desc->steps < 1 || desc->context < 1) {
        snprintf(error, ERROR_BYTES, "steps and context: must be at least 1");
        return 1;
    }
    if (n < 1 || n > (desc->kept ? 1 : MAX_SEQUENCES)) {
        snprintf(error, ERROR_BYTES, "%u sequences: there may be 1 to %u", n,
                 desc->kept ? 1 : MAX_SEQUENCES);
        return 1;
    }
    if (desc->context > config->positions) {
        snprintf(error, ERROR_BYTES,
                 "a context of %u tokens is longer than max_position_embeddings, %u (--context, "
                 "--steps)",
                 desc->context, config->positions);
        return 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        const request *r = &requests[i];
        const uint32_t steps = r->steps && r->steps < desc->steps ? r->steps : desc->steps;
        if (r->n_prompt < 1 || r->n_prompt + steps - 1 > desc->context) {
            snprintf(error, ERROR_BYTES,
                     "sequence %u: a prompt of %u tokens and %u more do not fit a context of %u "
                     "(--context)",
                     i, r->n_prompt, steps, desc->context);
            return 1;
        }
        if (sampling_refused(&r->sampling, desc->draws, i, error)) return 1;
        for (uint32_t t = 0; t < r->n_prompt; t++)
            if (r->prompt[t] >= config->vocab) {
                snprintf(error, ERROR_BYTES,
                         "sequence %u: token %u is not one of the vocabulary's %u", i, r->prompt[t],
                         config->vocab);
                return 1;
            }
    }
    return 0;
}

/* Rows of all batches in the next step. */
static uint32_t rows_of_all(const session *s, const batch *all)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < s->d.rounds; i++) rows += all[i].rows;
    return rows;
}
/* Computes how the steps go on from these batches, which it changes, if sequences end at their limits. */
static run_summary summary_of(const session *s, batch *all)
{
    run_summary c;
    memset(&c, 0, sizeof c);
    while (rows_of_all(s, all)) {
        uint32_t sampled = 0, running = 0;
        c.steps++;
        for (uint32_t i = 0; i < s->sequences; i++) {
            sequence_state *q = sequence_of(all, i);
            running += q->generated < q->limit; /* it may wait for shared pages */
            q->position += q->rows, q->generated += q->samples;
            sampled += (uint32_t)q->samples;
            c.cached += (uint64_t)(uint32_t)q->position * (q->rows != 0);
        }
        c.tokens += sampled;
        if (sampled && !c.first_token) c.first_token = c.steps;
        if (sampled == running && !c.decoding) c.decoding = c.steps, c.cached = 0, c.tokens = 0;
        for (uint32_t i = 0; i < s->d.rounds; i++)
            batch_next(&all[i], MAX_ROWS, s->d.max_splits, s->m->config.kv_heads, all[i].workers);
    }
    return c;
}

/* How many tokens of the prompt need not be computed. What is kept then is the prompt; session_run
   adds to it. -1: out of memory. */
static int32_t session_keep(session *s, const request *r)
{
    kept_tokens *k = s->desc.kept;
    uint32_t common = 0;
    if (!k->token) k->token = (uint32_t *)malloc((size_t)s->desc.context * sizeof *k->token);
    if (!k->token) return -1;
    while (common < k->n && common + 1 < r->n_prompt && k->token[common] == r->prompt[common])
        common++;
    memcpy(k->token, r->prompt, (size_t)r->n_prompt * sizeof *k->token);
    k->n = 0; /* until they are computed */
    return (int32_t)common;
}

/* Fills the page table: sequence i has row i, or with a seed another one. */
static int session_pages(session *s, const request *requests, uint32_t n)
{
    const uint64_t seed = s->desc.page_seed;
    if (page_table_make(&s->pages, n, ceil_div(s->desc.context, PAGE_TOKENS), seed))
        return session_fail(s, "memory", "none left");
    for (uint32_t i = 0; i < n; i++) {
        sequence_state *q = sequence_of(s->first, i);
        const uint32_t first = i / MAX_ROWS * MAX_ROWS; /* sequence of its batch */
        const request *r = &requests[i];
        uint32_t shared = 0;
        q->table_row = (uint32_t)((i + seed) % n), q->source = (int32_t)(i - first);
        for (uint32_t k = first; k < i && s->desc.share_prefixes; k++) {
            const uint32_t common =
                common_pages(r->prompt, r->n_prompt, requests[k].prompt, requests[k].n_prompt);
            /* The first of several has computed these pages itself. */
            if (common > shared) shared = common, q->source = (int32_t)(k - first);
        }
        page_table_fill(&s->pages, q->table_row,
                        ceil_div((uint32_t)(q->prompt + q->limit - 1), PAGE_TOKENS),
                        sequence_of(s->first, first + (uint32_t)q->source)->table_row, shared);
        q->position = q->shared = (int32_t)(shared * PAGE_TOKENS);
    }
    if (!s->desc.kept || s->memory.counts) return 0;
    s->first->sequence->position = s->first->sequence->shared = session_keep(s, requests);
    return s->first->sequence->position < 0 ? session_fail(s, "memory", "none left") : 0;
}

/* Sets up the batches before the first step. */
static int session_batch(session *s, const request *requests, uint32_t n)
{
    const qwen3_config *config = &s->m->config;
    session_rounds(s, n);
    for (uint32_t k = 0; k < s->d.rounds; k++) {
        batch *b = &s->first[k]; /* holds zeros, `workers` and `sequences` */
        b->n_eos = config->eos_count;
        for (uint32_t i = 0; i < b->n_eos; i++) b->eos[i] = (int32_t)config->eos[i];
        b->split_blocks = s->desc.split_blocks;
        b->part_rows = PART_QUERIES / (config->heads / config->kv_heads);
    }
    for (uint32_t i = 0; i < n; i++) {
        sequence_state *q = sequence_of(s->first, i);
        const request *r = &requests[i];
        q->prompt = (int32_t)r->n_prompt, q->output = i;
        q->known = (int32_t)(r->n_prompt + r->n_forced);
        q->limit = (int32_t)(r->steps && r->steps < s->desc.steps ? r->steps : s->desc.steps);
    }
    return session_pages(s, requests, n);
}
/* The first step of the launch that decodes. */
static void session_first_step(session *s)
{
    batch all[MAX_ROUNDS];
    for (uint32_t i = 0; i < s->d.rounds; i++)
        batch_next(&s->first[i], MAX_ROWS, s->d.max_splits, s->m->config.kv_heads,
                   s->first[i].workers);
    memcpy(all, s->first, sizeof all);
    s->summary = summary_of(s, all);
    s->steps = s->desc.launch ? s->desc.launch : s->summary.steps;
}

static int session_upload_sampling(session *s, const request *requests)
{
    sampling_desc all[MAX_SEQUENCES];
    if (!s->desc.draws) return 0;
    for (uint32_t i = 0; i < s->sequences; i++) all[i] = requests[i].sampling;
    return fleet_to_device(s->d.sampling, all, s->sequences * sizeof all[0], NULL)
               ? session_fail(s, "sampling", "cannot be copied to the device")
               : 0;
}

static fleet_plan_desc session_plan_desc(const session *s)
{
    const session_desc *desc = &s->desc;
    fleet_plan_desc p = fleet_plan_desc_default();
    p.topology = s->topology;
    p.schedule = desc->schedule, p.unfused = desc->unfused;
    p.chiplet_unaware = desc->unaware, p.counter_levels = desc->unaware ? 1 : 2;
    p.ranks = s->m->ranks;
    return p;
}

/* Leaves the prompts and the first tokens to launches of their own, where these are faster. */
static int session_prefill(session *s, const int32_t *tokens, uint32_t line)
{
    const fleet_plan_desc plan = session_plan_desc(s);
    const uint32_t rows = prefill_tokens(s->first, s->sequences);
    if (!s->prefill.max_rows || rows < (s->desc.prefill_rows ? 1 : PREFILL_LEAST)) return 0;
    s->prefill.rows = s->prefill.is_wide ? rows - s->sequences : rows;
    s->first->prompt_rows += rows - s->sequences; /* the first step counts the last ones */
    return prefill_prepare(&s->prefill, &s->memory, s->m, s->first, s->sequences, tokens, line,
                           &s->pages, &s->d, &plan, s->peers_bytes);
}
/* Whether the first step has a launch of its own. */
static uint32_t has_first_launch(const session *s)
{
    return s->prefill.rows && !s->prefill.is_wide;
}
/* The steps of the launch that decodes. */
static uint32_t session_decode_steps(const session *s)
{
    return s->steps - has_first_launch(s);
}
/* Whether step number `step`, from 0 on, has ended. -1: that cannot be known. */
static inline int session_step_ended(session *s, uint32_t step)
{
    const uint32_t has_own = has_first_launch(s);
    prefill_stage *first = &s->prefill.tokens;
    uint32_t done = 0;
    if (s->m->ranks > 1)
        return (uint32_t)__atomic_load_n(&s->generated[(size_t)s->sequences * s->desc.steps],
                                         __ATOMIC_RELAXED) > step;
    if (has_own && step == 0
            ? fleet_event_test(&first->state, fleet_plan_event(first->plan, "next"), 0, 1, &done)
            : fleet_event_test(&s->state, fleet_plan_event(s->plan, "next"), 0, step + 1 - has_own,
                               &done))
        return -1;
    return done != 0;
}

static int session_upload_tokens(session *s, const request *requests)
{
    const uint32_t n = s->sequences, line = s->desc.context + 1;
    int32_t *tokens = (int32_t *)calloc((size_t)n * line, sizeof *tokens);
    int bad;
    if (!tokens) return session_fail(s, "memory", "none left");
    for (uint32_t i = 0; i < n; i++) {
        const request *r = &requests[i];
        for (uint32_t t = 0; t < r->n_prompt; t++) tokens[i * line + t] = (int32_t)r->prompt[t];
        for (uint32_t t = 0; t < r->n_forced && r->n_prompt + t < line; t++)
            tokens[i * line + r->n_prompt + t] = (int32_t)r->forced[t];
    }
    bad = session_prefill(s, tokens, line);
    session_first_step(s);
    for (uint32_t i = 0; i < s->d.rounds; i++) {
        batch_pages(&s->first[i], s->pages.row, s->pages.row_pages, 0, 1);
        batch_tokens(&s->first[i], tokens + (size_t)i * MAX_ROWS * line, line, 0, 1);
    }
    bad = bad ||
          fleet_to_device((void *)(uintptr_t)s->d.tokens, tokens, (size_t)n * line * sizeof *tokens,
                          NULL) ||
          fleet_to_device((void *)(uintptr_t)s->d.page_table, s->pages.row,
                          (size_t)s->pages.pages * 4, NULL) ||
          fleet_to_device(s->d.b, s->first, s->d.rounds * sizeof s->first[0], NULL);
    free(tokens);
    return bad ? session_fail(s, "tokens", "cannot be copied to the device") : 0;
}

/* The part of session_open that needs no device memory. */
static int session_begin(session *s, const model *m, const session_desc *desc)
{
    memset(s, 0, sizeof *s);
    s->m = m, s->desc = *desc;
    s->memory.error = s->error;
    s->refused = (uint32_t)topology_refused(&s->topology, desc->chiplets, desc->workers,
                                            desc->schedule, s->error);
    if (s->error[0]) return -1;
    s->first->workers = decoder_workers(&s->d, &s->topology, desc->schedule);
    for (uint32_t i = 1; i < MAX_ROUNDS; i++) s->first[i].workers = s->first->workers;
    s->d.unaware = desc->unaware != 0;
    if (HAS_ROW_TILES && (desc->tile_rows || desc->unaware))
        s->d.tile_rows = desc->tile_rows ? (uint16_t)desc->tile_rows : UNAWARE_TILE_ROWS;
    return 0;
}

static int session_prepare(session *s, const request *requests, uint32_t n)
{
    const model *m = s->m;
    const session_desc *desc = &s->desc;
    const fleet_plan_desc p = session_plan_desc(s);
    fleet_state_desc state = fleet_state_desc_default();
    fleet_status status;
    if (m->large_m && desc->schedule != FLEET_SCHEDULE_STATIC)
        return session_fail(s, "schedule",
                            "the model was loaded for STATIC; model_load takes another one");
    if (session_batch(s, requests, n) || session_buffers(s) || (m->ranks > 1 && session_ranks(s)) ||
        session_upload_tokens(s, requests) || session_upload_sampling(s, requests))
        return -1;
    if (s->prefill.is_wide
            ? wide_plan(&s->prefill, &s->memory, m, &p, &s->tasks, &s->device_tasks, &s->plan)
            : decoder_plan(&s->memory, m, &s->d, decoder_graph, &p, &s->tasks, &s->device_tasks,
                           &s->plan))
        return -1;
    state.placement = desc->placement, state.seed = desc->seed ? desc->seed : 1;
    if (m->ranks > 1) state.peers = &s->d.peers;
    if (fleet_peers_bytes(s->plan) > s->peers_bytes)
        return session_fail(s, "ranks", "their part of the region is too small");
    if ((status = fleet_upload(&s->image, s->plan, NULL)) != 0)
        return session_fail(s, "upload", fleet_status_text(status));
    s->image_made = 1;
    if ((status = fleet_state_create(&s->state, &s->image, &state, NULL)) != 0)
        return session_fail(s, "state", fleet_status_text(status));
    s->state_made = 1;
    if (m->ranks > 1) { /* all regions are clear before a rank launches */
        int other;
        fleet_stream_wait(NULL);
        if ((other = desc->ranks->meet(desc->ranks->user, session_digest(s, requests, n))) != 0) {
            snprintf(s->error, ERROR_BYTES, "rank %d has other prompts or options", other - 1);
            return -1;
        }
    }
    if (desc->trace) {
        fleet_trace_desc t = fleet_trace_desc_default();
        const uint32_t steps = session_decode_steps(s);
        t.first_step = steps ? steps - 1 : 0;
        t.records =
            8 * count_step_tasks(m, &s->d); /* DYNAMIC: some workers run more than their share */
        status = fleet_trace_create(&s->trace, steps ? s->plan : s->prefill.tokens.plan, &t, NULL);
        if (status) return session_fail(s, "trace", fleet_status_text(status));
        s->trace_made = 1;
    }
    return 0;
}

/* Prepares everything for session_run. 0, or RUN_... and s->error; call session_free in any case. */
static int session_open(session *s, const model *m, const session_desc *desc,
                        const request *requests, uint32_t n)
{
    if (!session_begin(s, m, desc)) {
        s->refused = (uint32_t)requests_refused(&m->config, desc, requests, n, s->error);
        if (!s->refused && !session_prepare(s, requests, n)) return 0;
    }
    return s->refused ? RUN_REFUSED : RUN_FAILED;
}

/* Waits for all launches. *state: the one that failed, or the last one. */
static fleet_status session_wait(session *s, const fleet_state **state)
{
    const fleet_status status = prefill_wait(&s->prefill, state);
    if (status || !session_decode_steps(s)) return status;
    *state = &s->state;
    return fleet_state_wait(&s->state, NULL);
}

/* Runs all steps, in one launch but for those of prefill.h. It ends when all sequences have. Waits for it. 0, or -1 and
   s->error. */
static int session_run(session *s)
{
    const fleet_kernel kernel = decode_kernel(s->desc.schedule, s->m);
    const fleet_state *state = &s->state;
    fleet_launch_desc d = fleet_launch_desc_default();
    fleet_status status;
    uint32_t interrupted;
    d.steps = session_decode_steps(s), d.threads = THREADS;
    d.lds_bytes = LDS_BYTES, d.pipeline_bytes = FLEET_PIPELINE_BYTES(task_args);
    d.host = s->desc.host;
    /* `next` ends the launch when all sequences have ended; ranks run all steps, which have no rows then */
    d.finish = s->m->ranks == 1;
    d.peer_limit_ns = s->desc.peer_limit_ns;
    if (s->trace_made) d.trace = &s->trace;
    status = prefill_launch(&s->prefill, &d, kernel, &state);
    if (!status && d.steps)
        status = s->prefill.is_wide ? wide_launch(&s->state, &d, s->device_tasks)
                                    : fleet_launch(&s->state, &d, kernel, s->device_tasks);
    if (!status) status = session_wait(s, &state);
    interrupted =
        status == FLEET_ERROR_ABORTED && __atomic_load_n(&s->interrupted, __ATOMIC_ACQUIRE);
    if ((!status || status == FLEET_ERROR_TILE || interrupted) &&
        fleet_to_host(s->last, s->d.b, s->d.rounds * sizeof s->last[0], NULL))
        return session_fail(s, "tokens", "cannot be copied from the device");
    for (uint32_t i = 0; i < s->d.rounds && status == FLEET_ERROR_TILE; i++) {
        const batch *b = &s->last[i];
        if (!b->bad_sequence) continue;
        snprintf(s->error, ERROR_BYTES,
                 "sequence %u, after %d tokens: the logit of token %d is infinite or not a number",
                 i * MAX_ROWS + b->bad_sequence - 1, b->sequence[b->bad_sequence - 1].position,
                 b->bad_token);
        return -1;
    }
    if (interrupted) { /* how the steps would have gone on is of no interest */
        memset(&s->summary, 0, sizeof s->summary);
        return 0;
    }
    if (status) {
        char report[ERROR_BYTES - 64];
        fleet_state_report(state, report, sizeof report);
        snprintf(s->error, ERROR_BYTES, "run: %s\n%s", fleet_status_text(status), report);
        return -1;
    }
    {
        batch was[MAX_ROUNDS];
        memcpy(was, s->first, sizeof was);
        for (uint32_t i = 0; i < s->sequences; i++)
            sequence_of(was, i)->limit = sequence_of(s->last, i)->generated;
        s->summary = summary_of(s, was);
    }
    if (s->desc.kept) { /* all but the last token have keys and values */
        kept_tokens *k = s->desc.kept;
        const uint32_t last = (uint32_t)s->last->sequence->generated - 1;
        k->n = (uint32_t)s->first->sequence->prompt + last;
        for (uint32_t i = 0; i < last; i++) k->token[k->n - last + i] = (uint32_t)s->generated[i];
    }
    return 0;
}

/* Copies the generated tokens, [sequences][steps], and how many each sequence has. */
static void session_generated(const session *s, int32_t *generated, uint32_t *counts)
{
    memcpy(generated, s->generated, (size_t)s->sequences * s->desc.steps * sizeof *generated);
    for (uint32_t i = 0; i < s->sequences; i++)
        counts[i] = (uint32_t)s->last[i / MAX_ROWS].sequence[i % MAX_ROWS].generated;
}
/* Rows of prompts that were computed. */
static inline uint32_t session_prompt_rows(const session *s)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < s->d.rounds; i++) rows += s->last[i].prompt_rows;
    return rows;
}

static void session_free(session *s)
{
    prefill_free(&s->prefill);
    if (s->trace_made) fleet_trace_free(&s->trace);
    if (s->state_made) fleet_state_free(&s->state);
    if (s->image_made) fleet_image_free(&s->image);
    fleet_plan_free(s->plan);
    fleet_pinned_free(s->generated);
    memory_free(&s->memory);
    page_table_free(&s->pages);
    free(s->tasks);
}

#endif /* QWEN3_SESSION_H */
