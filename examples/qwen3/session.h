/* session.h: decodes sequences with a model: device memory, the plan, one launch for all steps, and the results.

       session s;
       if (session_open(&s, &model, &desc, requests, n) || session_run(&s))
           fprintf(stderr, "%s\n", s.error);
       else
           session_generated(&s, tokens, counts);
       session_free(&s); */
#ifndef QWEN3_SESSION_H
#define QWEN3_SESSION_H

#include "graph.h"
#include "page_table.h"

#include <time.h>

typedef struct request {
    /* what follows the prompt, whatever is chosen; or null */
    const uint32_t *prompt, *forced;
    uint32_t n_prompt, n_forced;
    uint32_t steps; /* tokens to generate; 0: as the session */
    sampling_desc sampling;
} request;

typedef struct session_desc {
    fleet_schedule schedule;
    uint32_t unfused;
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
    /* KV blocks of all splits; more in contexts for which the workspace has too few splits. Then a sequence has the
       same bits whatever is decoded beside it, and in whichever chunks its prompt is taken (README.md, Numerics).
       0: chosen for each step, for speed */
    uint32_t split_blocks;
    fleet_placement placement;
    uint64_t seed;
    fleet_host_desc host;
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
    batch first, last;   /* before the first step, and after session_run */
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
    /* d.generated, as the host sees it: when a step's event has been seen, its tokens are there; -1: none yet */
    int32_t *generated;
    uint32_t interrupted; /* 1: another thread has called session_interrupt */
    device_memory memory;
    uint32_t refused; /* 1: an argument is at fault */
    char error[ERROR_BYTES];
} session;

/* Divides the device's workers into X chiplets. On the CPU, a CHIPLET schedule's schedulers get
   workers of their own. */
static int session_topology(session *s)
{
    fleet_topology *t = &s->topology;
    uint32_t all = 0, x = s->desc.chiplets;
    if (fleet_topology_query(t)) {
        snprintf(s->error, ERROR_BYTES, "the device cannot be queried");
        return -1;
    }
    for (uint32_t k = 0; k < t->chiplets; k++) all += t->units[k];
#if defined(FLEET_HOST)
    if (!x) x = 1;
    all = cpus();
    if (s->desc.workers) all = s->desc.workers;
    if (all < x) all = x;
    if (s->desc.schedule == FLEET_SCHEDULE_CHIPLET) all += x;
#endif
    if (x && x != t->chiplets) {
        s->refused = 1;
        if (t->private_l2) {
            snprintf(s->error, ERROR_BYTES, "--chiplets %u: this GPU has %u, and they are real", x,
                     t->chiplets);
            return -1;
        }
        if (x > FLEET_MAX_CHIPLETS || x > all) {
            snprintf(s->error, ERROR_BYTES, "--chiplets %u: at most %u here", x,
                     all < FLEET_MAX_CHIPLETS ? all : FLEET_MAX_CHIPLETS);
            return -1;
        }
        t->chiplets = x;
        s->refused = 0;
    }
    if (x && !t->private_l2)
        for (uint32_t k = 0; k < x; k++) t->units[k] = all / x + (k < all % x);
    return 0;
}

static int session_fail(session *s, const char *what, const char *why)
{
    if (!s->error[0]) snprintf(s->error, sizeof s->error, "%.64s: %.400s", what, why);
    return -1;
}

/* The host reads tokens while the launch runs, so they are in its memory. */
static int session_generated_memory(session *s)
{
    const size_t n = (size_t)s->first.sequences * s->desc.steps;
    void *host = NULL, *device = NULL;
    if (fleet_pinned_alloc(&host, &device, n * sizeof *s->generated))
        return session_fail(s, "tokens", "no memory that the device can write");
    s->generated = (int32_t *)host, s->d.generated = (int32_t *)device;
    for (size_t i = 0; i < n; i++) s->generated[i] = -1;
    return 0;
}

static int session_buffers(session *s)
{
    const model *m = s->m;
    const qwen3_config *c = &m->config;
    device_memory *mem = &s->memory;
    decoder *d = &s->d;
    const uint32_t dim = c->head_dim, q = c->heads * dim, kv = c->kv_heads * dim,
                   n = s->first.sequences;
    const uint64_t pairs = (uint64_t)MAX_ROWS * c->experts_per_token;
    const uint64_t dense = (uint64_t)MAX_ROWS * m->ffn, sparse = pairs * m->expert_ffn;
    const uint64_t bests = (uint64_t)d->chiplets * d->workers * MAX_ROWS;
    const uint64_t rope_bytes = (uint64_t)s->desc.context * dim * sizeof(float);
    float *rope = mem->counts ? NULL : (float *)malloc((size_t)rope_bytes), none[MAX_ROWS];
    for (uint32_t i = 0; i < MAX_ROWS; i++) none[i] = -INFINITY;
    if (!rope && !mem->counts) return session_fail(s, "memory", "none left");
    for (uint32_t p = 0; p < s->desc.context && rope; p++)
        for (uint32_t i = 0; i < dim / 2; i++) {
            const float frequency = (float)pow(c->rope_theta, -2.0 * i / dim);
            const double angle =
                p *
                (double)(s->desc.rope_bf16 ? float_of_bf16(bf16_of_float(frequency)) : frequency);
            rope[((size_t)p * (dim / 2) + i) * 2] = (float)cos(angle);
            rope[((size_t)p * (dim / 2) + i) * 2 + 1] = (float)sin(angle);
        }
    d->rope = (const float *)memory_copy(mem, "rope", rope, rope_bytes);
    free(rope);
    d->hidden = c->hidden, d->heads = c->heads, d->kv_heads = c->kv_heads;
    d->group = c->heads / c->kv_heads, d->root = 1 / sqrtf((float)dim);
    d->head_dim = dim, d->vocab = c->vocab, d->context = s->desc.context;
    d->table_pages = ceil_div(d->context, PAGE_TOKENS), d->pages = n * d->table_pages;
    d->experts = c->experts, d->top_k = c->experts_per_token;
    d->norm_topk = (uint32_t)c->norm_topk;
    d->eps = (float)c->norm_eps;
    d->embedding = m->embedding;
    d->limit = s->desc.steps;
    d->two_terms = ACTS_ARE_ROUNDED && c->experts != 0;
    d->h = (float *)memory_get(mem, "activations", (uint64_t)MAX_ROWS * c->hidden * 4);
    d->x =
        (act_t *)memory_get(mem, "activations", (uint64_t)2 * MAX_ROWS * c->hidden * sizeof(act_t));
    d->squares =
        (float *)memory_get(mem, "activations", (uint64_t)c->hidden / TILE_N * MAX_ROWS * 4);
    d->qkv = (float *)memory_get(mem, "activations", (uint64_t)MAX_ROWS * (q + 2 * kv) * 4);
    d->kv_partials = (float *)memory_zeros(
        mem, "attention", (uint64_t)MAX_ROWS * c->heads * d->max_splits * kv_partial_size(d) * 4);
    d->splits_done = (uint32_t *)memory_zeros(mem, "attention", (uint64_t)MAX_ROWS * c->heads * 4);
    d->attended =
        (act_t *)memory_get(mem, "activations", (uint64_t)2 * MAX_ROWS * q * sizeof(act_t));
    d->gated = (act_t *)memory_get(mem, "activations",
                                   2 * (dense > sparse ? dense : sparse) * sizeof(act_t));
    d->split_k = (fleet_quad *)memory_zeros(mem, "sums",
                                            bests / MAX_ROWS * SPLIT_K_QUADS * sizeof(fleet_quad));
    d->best = (float *)memory_get(mem, "logits", bests * 4);
    d->best_token = (int32_t *)memory_zeros(mem, "logits", bests * 4);
    /* smaller chiplets, and schedulers, leave these entries unchanged */
    for (uint64_t i = 0; i < bests && d->best; i += MAX_ROWS)
        if (fleet_to_device(d->best + i, none, sizeof none, NULL))
            return session_fail(s, "logits", "cannot be copied to the device");
    if (!mem->counts && session_generated_memory(s)) return -1;
    d->logit_steps = s->desc.keep_logits ? s->desc.steps : 1;
    if (s->desc.keep_logits || s->desc.draws)
        d->logits = (float *)memory_get(mem, "logits", (uint64_t)n * d->logit_steps * c->vocab * 4);
    if (s->desc.draws) {
        d->sampling =
            (sampling_desc *)memory_get(mem, "sampling", (uint64_t)n * sizeof *d->sampling);
        d->drawn = (int32_t *)memory_get(mem, "sampling", (uint64_t)n * 4);
    }
    d->tokens = (int32_t *)memory_get(mem, "tokens", (uint64_t)n * (s->desc.context + 1) * 4);
    /* Attention multiplies entries that were not written yet by 0: they must be finite. */
    d->cache = (kv_t *)memory_zeros(mem, "cache of keys and values",
                                    (uint64_t)c->layers * layer_cache_size(d) * sizeof(kv_t));
    d->page_table = (uint32_t *)memory_get(mem, "page table", (uint64_t)d->pages * 4);
    d->b = (batch *)memory_get(mem, "batch", sizeof(batch));
    if (c->experts) {
        d->scores = (float *)memory_get(mem, "experts", (uint64_t)MAX_ROWS * c->experts * 4);
        d->pair_weight = (float *)memory_get(mem, "experts", pairs * 4);
        d->pair_place = (int32_t *)memory_get(mem, "experts", pairs * 4);
        d->place_row = (int32_t *)memory_get(mem, "experts", pairs * 4);
        d->active = (int32_t *)memory_get(mem, "experts", (uint64_t)c->experts * 4);
        d->first_place = (int32_t *)memory_get(mem, "experts", (uint64_t)(c->experts + 1) * 4);
        d->n_active = (int32_t *)memory_get(mem, "experts", 4);
        d->expert_out = (float *)memory_get(mem, "experts", pairs * c->hidden * 4);
    }
    return s->error[0] ? -1 : 0;
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
    if (n < 1 || n > MAX_ROWS) {
        snprintf(error, ERROR_BYTES, "%u sequences: there may be 1 to %u", n, MAX_ROWS);
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

/* Computes how the steps go on from this batch if sequences end at their limits. */
static run_summary summary_of(const session *s, batch b)
{
    run_summary c;
    memset(&c, 0, sizeof c);
    while (b.rows) {
        uint32_t sampled = 0, running = 0;
        c.steps++;
        for (uint32_t i = 0; i < b.sequences; i++) {
            sequence_state *q = &b.sequence[i];
            running += q->generated < q->limit; /* it may wait for shared pages */
            q->position += q->rows, q->generated += q->samples;
            sampled += (uint32_t)q->samples;
            c.cached += (uint64_t)(uint32_t)q->position * (q->rows != 0);
        }
        c.tokens += sampled;
        if (sampled && !c.first_token) c.first_token = c.steps;
        if (sampled == running && !c.decoding) c.decoding = c.steps, c.cached = 0, c.tokens = 0;
        batch_next(&b, MAX_ROWS, s->d.max_splits, s->m->config.kv_heads, b.workers);
    }
    return c;
}

/* Fills the page table: sequence i has row i, or with a seed another one. */
static int session_pages(session *s, const request *requests, uint32_t n)
{
    const uint64_t seed = s->desc.page_seed;
    if (page_table_make(&s->pages, n, ceil_div(s->desc.context, PAGE_TOKENS), seed))
        return session_fail(s, "memory", "none left");
    for (uint32_t i = 0; i < n; i++) {
        sequence_state *q = &s->first.sequence[i];
        const request *r = &requests[i];
        uint32_t shared = 0;
        q->table_row = (uint32_t)((i + seed) % n), q->source = (int32_t)i;
        for (uint32_t k = 0; k < i && s->desc.share_prefixes; k++) {
            const uint32_t common =
                common_pages(r->prompt, r->n_prompt, requests[k].prompt, requests[k].n_prompt);
            /* The first of several has computed these pages itself. */
            if (common > shared) shared = common, q->source = (int32_t)k;
        }
        page_table_fill(&s->pages, q->table_row,
                        ceil_div((uint32_t)(q->prompt + q->limit - 1), PAGE_TOKENS),
                        s->first.sequence[q->source].table_row, shared);
        q->position = q->shared = (int32_t)(shared * PAGE_TOKENS);
    }
    return 0;
}

/* Sets up the batch before the first step, and the number of steps. */
static int session_batch(session *s, const request *requests, uint32_t n)
{
    batch *b = &s->first; /* holds zeros, and `workers` */
    b->sequences = n;
    b->n_eos = s->m->config.eos_count;
    for (uint32_t i = 0; i < b->n_eos; i++) b->eos[i] = (int32_t)s->m->config.eos[i];
    for (uint32_t i = 0; i < n; i++) {
        sequence_state *q = &b->sequence[i];
        const request *r = &requests[i];
        q->prompt = (int32_t)r->n_prompt;
        q->known = (int32_t)(r->n_prompt + r->n_forced);
        q->limit = (int32_t)(r->steps && r->steps < s->desc.steps ? r->steps : s->desc.steps);
    }
    b->split_blocks = s->desc.split_blocks;
    if (session_pages(s, requests, n)) return -1;
    batch_next(b, MAX_ROWS, s->d.max_splits, s->m->config.kv_heads, b->workers);
    batch_pages(b, s->pages.row, s->pages.row_pages, 0, 1);
    s->summary = summary_of(s, *b);
    s->steps = s->desc.launch ? s->desc.launch : s->summary.steps;
    return 0;
}

static int session_upload_sampling(session *s, const request *requests)
{
    sampling_desc all[MAX_ROWS];
    if (!s->desc.draws) return 0;
    for (uint32_t i = 0; i < s->first.sequences; i++) all[i] = requests[i].sampling;
    return fleet_to_device(s->d.sampling, all, s->first.sequences * sizeof all[0], NULL)
               ? session_fail(s, "sampling", "cannot be copied to the device")
               : 0;
}

static int session_upload_tokens(session *s, const request *requests)
{
    const uint32_t n = s->first.sequences, line = s->desc.context + 1;
    int32_t *tokens = (int32_t *)calloc((size_t)n * line, sizeof *tokens);
    int bad;
    if (!tokens) return session_fail(s, "memory", "none left");
    for (uint32_t i = 0; i < n; i++) {
        const request *r = &requests[i];
        for (uint32_t t = 0; t < r->n_prompt; t++) tokens[i * line + t] = (int32_t)r->prompt[t];
        for (uint32_t t = 0; t < r->n_forced && r->n_prompt + t < line; t++)
            tokens[i * line + r->n_prompt + t] = (int32_t)r->forced[t];
    }
    bad = fleet_to_device(s->d.tokens, tokens, (size_t)n * line * sizeof *tokens, NULL) ||
          fleet_to_device(s->d.page_table, s->pages.row, (size_t)s->pages.pages * 4, NULL) ||
          fleet_to_device(s->d.b, &s->first, sizeof s->first, NULL);
    free(tokens);
    return bad ? session_fail(s, "tokens", "cannot be copied to the device") : 0;
}

/* The part of session_open that needs no device memory. */
static int session_begin(session *s, const model *m, const session_desc *desc)
{
    memset(s, 0, sizeof *s);
    s->m = m, s->desc = *desc;
    s->memory.error = s->error;
    if (session_topology(s)) return -1;
    s->d.chiplets = s->topology.chiplets;
    for (uint32_t k = 0; k < s->topology.chiplets; k++) {
        const uint32_t w = s->topology.units[k] - (desc->schedule == FLEET_SCHEDULE_CHIPLET);
        if (w > s->d.workers) s->d.workers = w;
        s->first.workers += w;
    }
    s->d.max_splits = MAX_KV_SPLITS;
    return 0;
}

static int session_prepare(session *s, const request *requests, uint32_t n)
{
    const model *m = s->m;
    const session_desc *desc = &s->desc;
    struct timespec opened;
    fleet_plan_desc p = fleet_plan_desc_default();
    fleet_state_desc state = fleet_state_desc_default();
    fleet_graph *g;
    fleet_status status;
    if (m->large_m && desc->schedule != FLEET_SCHEDULE_STATIC)
        return session_fail(s, "schedule",
                            "the model was loaded for STATIC; model_load takes another one");
    if (session_batch(s, requests, n) || session_buffers(s) || session_upload_tokens(s, requests) ||
        session_upload_sampling(s, requests))
        return -1;
    s->tasks = (task_args *)calloc(count_tasks(m), sizeof *s->tasks);
    if (!s->tasks) return session_fail(s, "memory", "none left");
    g = decoder_graph(m, &s->d, s->tasks);
    if (!g) return session_fail(s, "memory", "none left");
    p.topology = s->topology;
    p.schedule = desc->schedule, p.unfused = desc->unfused;
    if (fleet_plan_build(g, &p, &s->plan)) session_fail(s, "plan", fleet_graph_error(g));
    fleet_graph_destroy(g);
    if (s->error[0]) return -1;
    timespec_get(&opened, TIME_UTC);
    for (uint32_t i = 0; i < count_tasks(m); i++) {
        s->tasks[i].d = s->d;
        s->tasks[i].session = (uint64_t)opened.tv_sec * 1000000000u + (uint64_t)opened.tv_nsec;
    }
    s->device_tasks = (const task_args *)memory_copy(&s->memory, "ops", s->tasks,
                                                     (uint64_t)count_tasks(m) * sizeof *s->tasks);
    if (s->error[0]) return -1;
    state.placement = desc->placement, state.seed = desc->seed ? desc->seed : 1;
    if ((status = fleet_upload(&s->image, s->plan, NULL)) != 0)
        return session_fail(s, "upload", fleet_status_text(status));
    s->image_made = 1;
    if ((status = fleet_state_create(&s->state, &s->image, &state, NULL)) != 0)
        return session_fail(s, "state", fleet_status_text(status));
    s->state_made = 1;
    if (desc->trace) {
        fleet_trace_desc t = fleet_trace_desc_default();
        t.first_step = s->steps - 1,
        t.records = 8 * count_tasks(m); /* DYNAMIC: some workers run more than their share */
        if ((status = fleet_trace_create(&s->trace, s->plan, &t, NULL)) != 0)
            return session_fail(s, "trace", fleet_status_text(status));
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

/* Runs all steps in one launch, which ends when all sequences have, and waits for it. 0, or -1 and
   s->error. */
static int session_run(session *s)
{
    fleet_launch_desc d = fleet_launch_desc_default();
    fleet_status status;
    uint32_t interrupted;
    d.steps = s->steps, d.threads = THREADS;
    d.lds_bytes = LDS_BYTES, d.pipeline_bytes = FLEET_PIPELINE_BYTES(task_args);
    d.host = s->desc.host;
    d.finish = 1; /* `next` ends the launch when all sequences have ended */
    if (s->trace_made) d.trace = &s->trace;
    status = fleet_launch(&s->state, &d, decode_kernel(s->desc.schedule, s->m->large_m),
                          s->device_tasks);
    if (!status) status = fleet_state_wait(&s->state, NULL);
    interrupted =
        status == FLEET_ERROR_ABORTED && __atomic_load_n(&s->interrupted, __ATOMIC_ACQUIRE);
    if ((!status || status == FLEET_ERROR_TILE || interrupted) &&
        fleet_to_host(&s->last, s->d.b, sizeof s->last, NULL))
        return session_fail(s, "tokens", "cannot be copied from the device");
    if (status == FLEET_ERROR_TILE && s->last.bad_sequence) {
        const sequence_state *q = &s->last.sequence[s->last.bad_sequence - 1];
        snprintf(s->error, ERROR_BYTES,
                 "sequence %u, after %d tokens: the logit of token %d is infinite or not a number",
                 s->last.bad_sequence - 1, q->position, s->last.bad_token);
        return -1;
    }
    if (interrupted) { /* how the steps would have gone on is of no interest */
        memset(&s->summary, 0, sizeof s->summary);
        return 0;
    }
    if (status) {
        char report[ERROR_BYTES - 64];
        fleet_state_report(&s->state, report, sizeof report);
        snprintf(s->error, ERROR_BYTES, "run: %s\n%s", fleet_status_text(status), report);
        return -1;
    }
    {
        batch was = s->first;
        for (uint32_t i = 0; i < was.sequences; i++)
            was.sequence[i].limit = s->last.sequence[i].generated;
        s->summary = summary_of(s, was);
    }
    return 0;
}

/* Copies the generated tokens, [sequences][steps], and how many each sequence has. */
static void session_generated(const session *s, int32_t *generated, uint32_t *counts)
{
    memcpy(generated, s->generated, (size_t)s->first.sequences * s->desc.steps * sizeof *generated);
    for (uint32_t i = 0; i < s->first.sequences; i++)
        counts[i] = (uint32_t)s->last.sequence[i].generated;
}

static void session_free(session *s)
{
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
