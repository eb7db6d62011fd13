/* serving.h: the decoder in one launch that stays, to which requests come and from which they go (parts/fleet_server.h).

       serving s;
       if (serving_open(&s, &model, &desc)) fprintf(stderr, "%s\n", s.error);
       on a thread:    bad = serving_run(&s);    until fleet_server_stop(&s.server, ...), or until the device fails
                       then serving_recover, and again
       on others:      fleet_server_submit(&s.server, ...), with request_words (tasks/serve.h); fleet_server_poll, _release
       serving_free(&s);

   A request has the same tokens, and the same bits of logits, whatever is decoded beside it: KV
   splits have a given size, and a step has no more rows than products add in the same order
   (serving_rows). A server whose chunks are longer, or which decodes more requests, has another
   kernel where there is one (serving_wide.h), and other bits, but again the same whatever is beside
   a request. */
#ifndef QWEN3_SERVING_H
#define QWEN3_SERVING_H

#include "../parts/fleet_server.h"
#include "buffers.h"
#include "graph.h"
#include "serving_wide.h"

#include <time.h>

/* ---- kernels: STATIC alone ---- */

#if defined(FLEET_CUDA)
FLEET_KERNEL(serve_static, served_dense, FLEET_ANY_THREADS(THREADS))
{
    FLEET_STATIC_WORKER_LOOP(served_dense);
}
FLEET_KERNEL(serve_experts, served, FLEET_ANY_THREADS(THREADS))
{
    FLEET_STATIC_WORKER_LOOP(served);
}
FLEET_KERNEL(serve_large_m, served_large_m, FLEET_ANY_THREADS(THREADS))
{
    FLEET_STATIC_WORKER_LOOP(served_large_m);
}
static fleet_kernel serve_kernel(const model *m)
{
    return m->config.experts ? FLEET_KERNEL_OF(serve_experts)
           : m->large_m      ? FLEET_KERNEL_OF(serve_large_m)
                             : FLEET_KERNEL_OF(serve_static);
}
#else
static fleet_kernel serve_kernel(const model *m)
{
    return static_kernel(m);
}
#endif

/* ---- memory and launch ---- */

/* Tokens of a KV split. Few requests need many splits to occupy all workers; many need few, since a split costs as much as 160
   tokens of it on an H200: so many that decode_rows requests of MOST_SPLIT_TOKENS tokens have an item for each worker. */
#define LEAST_SPLIT_TOKENS 64u
#define MOST_SPLIT_TOKENS 512u
static uint32_t serving_split_tokens(uint32_t decode_rows, uint32_t kv_heads, uint32_t workers)
{
    const uint32_t wanted = MOST_SPLIT_TOKENS * decode_rows * kv_heads / workers;
    uint32_t tokens = LEAST_SPLIT_TOKENS;
    /* to the next power of two */
    while (tokens < MOST_SPLIT_TOKENS && tokens + tokens / 2 < wanted) tokens *= 2;
    return tokens;
}
/* KV blocks of a split: there is room for as many splits as the longest request has. */
static uint32_t serving_split_blocks(uint32_t context, uint32_t split_tokens)
{
    const uint32_t blocks = ceil_div(ceil_div(context, KV_BLOCK), MAX_KV_SPLITS);
    const uint32_t least = ceil_div(split_tokens, KV_BLOCK);
    return blocks > least ? blocks : least;
}

/* Rows of a step. Large-M products add in the same order however many rows there are. */
static uint32_t serving_rows(const model *m)
{
    return m->large_m ? MAX_ROWS : SAME_ORDER_ROWS;
}
#define LEAST_CHUNK_ROWS 16u
#define WIDE_CHUNK_ROWS 512u /* by default, of a server with more requests than leave that */

typedef struct serving_desc {
    uint32_t context; /* tokens of a request, at most: prompt and answer, without its last token */
    uint32_t decode_rows; /* requests that are decoded together */
    uint32_t
        chunk_rows; /* of a prompt in a step; 0: what decode_rows leave of serving_rows; more: see
                             serving_wide.h */
    uint32_t beside_rows; /* of a chunk beside requests that decode; 0: as many */
    uint32_t
        pages; /* of PAGE_TOKENS tokens; 0: for decode_rows requests as long as the context, and one */
    uint32_t requests;          /* that the device knows; 0: four times decode_rows */
    uint32_t reactive_requests; /* of these, for reactive ones alone; 0: a quarter */
    uint32_t split_tokens;      /* of a KV split, whatever the batch; 0: see serving_split_tokens */
    fleet_policy_kind policy;
    /* of the policy `agent` (fleet_server_desc) */
    uint32_t mixed_rows, suspend_decode;
    uint64_t age_ticks;
    fleet_roofline roofline;    /* of the device, for predictions; all 0: none */
    uint32_t draws;             /* 1: requests may have a temperature */
    uint32_t keep_logits;       /* for tests: of so many requests, `context` logits each */
    uint32_t chiplets, workers; /* as in session_desc */
    uint64_t limit_ns;          /* of one wait; 0: fleet_launch_desc's */
    fleet_placement placement;
    uint64_t seed;
    fleet_host_desc host;
} serving_desc;

typedef struct serving {
    const model *m;
    serving_desc desc; /* without zeros */
    fleet_server server;
    decoder d;        /* with device pointers */
    task_args *tasks; /* on the host */
    const task_args *device_tasks;
    fleet_topology topology;
    uint32_t all_workers;
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    uint32_t image_made, state_made;
    uint32_t
        is_wide; /* 1: chunks are longer than steps of serving_rows have room for (serving_wide.h) */
    device_memory memory;
    request_asks *asks; /* [desc.requests], of a server with draws; and which of them are free */
    uint32_t *free_asks, n_free_asks;
    uint32_t refused; /* 1: an argument is at fault */
    char error[ERROR_BYTES];
} serving;

static int serving_fail(serving *s, const char *what, const char *why)
{
    if (!s->error[0]) snprintf(s->error, sizeof s->error, "%.64s: %.400s", what, why);
    return -1;
}

static int serving_refuse(serving *s, const char *what, uint32_t most)
{
    s->refused = 1;
    snprintf(s->error, sizeof s->error, "%s: from 1 to %u", what, most);
    return -1;
}

/* What an iteration takes, for predictions: it reads the weights once, those of experts for each row; a row multiplies
   them, and reads the keys and values of the tokens before. */
static void serving_work(const qwen3_config *c, fleet_server_desc *d)
{
    const double hidden = c->hidden, layers = c->layers, sparse = c->sparse_layers;
    const double q = (double)c->heads * c->head_dim, kv = (double)c->kv_heads * c->head_dim;
    const double experts = 3 * hidden * c->expert_ffn * c->experts_per_token * sparse;
    const double others = layers * 2 * hidden * (q + kv) + (layers - sparse) * 3 * hidden * c->ffn +
                          hidden * c->vocab;
    d->pass.bytes = (float)(others * sizeof(bf16));
    d->row.bytes = (float)(experts * sizeof(bf16));
    d->row.operations = (float)(2 * (others + experts));
    d->context.bytes = (float)(2 * kv * layers * sizeof(kv_t));
    d->context.operations = (float)(4 * q * layers);
}

/* The server's descriptor: pages for requests of the longest context, whichever class they have. */
static fleet_server_desc serving_server_desc(const serving *s)
{
    const serving_desc *desc = &s->desc;
    const uint32_t longest = ceil_div(desc->context + 1, PAGE_TOKENS);
    fleet_server_desc d = fleet_server_desc_default();
    d.requests = desc->requests, d.reactive_requests = desc->reactive_requests;
    d.events = REPORTED;
    d.pages = desc->pages, d.page_tokens = PAGE_TOKENS;
    if (desc->pages / 4 + longest > desc->pages)
        d.reactive_pages = desc->pages > longest ? desc->pages - longest : desc->pages > 1;
    d.prompt_tokens = desc->context, d.sequence_tokens = desc->context + 1;
    d.words = REQUEST_WORDS;
    d.decode_rows = desc->decode_rows, d.chunk_rows = desc->chunk_rows;
    d.beside_rows = desc->beside_rows < desc->chunk_rows ? desc->beside_rows : desc->chunk_rows;
    d.layers = s->m->config.layers;
    d.mixed_rows = desc->mixed_rows, d.suspend_decode = desc->suspend_decode;
    d.age_ticks = desc->age_ticks;
    d.policy = desc->policy;
    d.roofline = desc->roofline;
    serving_work(&s->m->config, &d);
    return d;
}

/* The part of serving_open that needs no device memory. */
static int serving_begin(serving *s, const model *m, const serving_desc *desc)
{
    const uint32_t rows = serving_rows(m), narrow = rows - LEAST_CHUNK_ROWS,
                   most = wide_decode_rows(m) ? wide_decode_rows(m) : narrow;
    uint32_t wide_rows;
    serving_desc *d = &s->desc;
    memset(s, 0, sizeof *s);
    s->m = m, s->desc = *desc;
    s->memory.error = s->error;
    if (!d->context || d->context > m->config.positions)
        return serving_refuse(s, "context", m->config.positions);
    if (!d->decode_rows || d->decode_rows > most)
        return serving_refuse(s, "requests that are decoded together", most);
    wide_rows = wide_chunk_rows(m, d->decode_rows);
    if (!d->chunk_rows)
        d->chunk_rows = d->decode_rows <= narrow ? rows - d->decode_rows : WIDE_CHUNK_ROWS;
    s->is_wide = d->decode_rows > narrow || d->decode_rows + d->chunk_rows > rows;
    /* A step has a row for each request that decodes, and for one whose prompt ends. */
    if (s->is_wide && d->decode_rows == wide_decode_rows(m)) d->decode_rows--;
    if (s->is_wide && d->chunk_rows > wide_rows)
        return serving_refuse(s, "rows of a prompt", wide_rows ? wide_rows : rows - d->decode_rows);
    if (!d->pages) d->pages = d->decode_rows * ceil_div(d->context + 1, PAGE_TOKENS) + 1;
    if (!d->requests) d->requests = 4 * d->decode_rows;
    if (!d->reactive_requests && d->requests > 1) d->reactive_requests = ceil_div(d->requests, 4);
    s->refused = (uint32_t)topology_refused(&s->topology, d->chiplets, d->workers,
                                            FLEET_SCHEDULE_STATIC, s->error);
    if (s->error[0]) return -1;
    s->all_workers = decoder_workers(&s->d, &s->topology, FLEET_SCHEDULE_STATIC);
    if (!d->split_tokens)
        d->split_tokens = serving_split_tokens(d->decode_rows, m->config.kv_heads, s->all_workers);
    return 0;
}

/* Where requests say what they ask of their logits; *device is its address there. */
static int serving_asks_open(serving *s, request_asks **device)
{
    const uint32_t n = s->desc.requests;
    void *host = NULL, *at = NULL;
    s->free_asks = (uint32_t *)malloc(n * sizeof *s->free_asks);
    if (!s->free_asks || fleet_pinned_alloc(&host, &at, (size_t)n * sizeof *s->asks))
        return serving_fail(s, "sampling", "there is no pinned memory for it");
    s->asks = (request_asks *)host, *device = (request_asks *)at;
    for (s->n_free_asks = 0; s->n_free_asks < n; s->n_free_asks++)
        s->free_asks[s->n_free_asks] = s->n_free_asks;
    return 0;
}

/* For a request that asks something: enters in its words where, and returns that, to be filled in
   before the request is submitted. Null: there are as many requests as the device knows. The next
   function gives it back when the request has ended, or was not taken. One thread at a time. */
static inline request_asks *serving_ask(serving *s, request_words *words)
{
    request_asks *asks;
    if (!s->n_free_asks) return NULL;
    words->asks = 1 + s->free_asks[--s->n_free_asks];
    asks = &s->asks[words->asks - 1];
    asks->n_biased = asks->n_delayed = 0;
    if (!(words->sampling.temperature > 0)) words->greedy = 1, words->sampling.temperature = 1;
    return asks;
}
static inline void serving_ask_no_more(serving *s, uint32_t asks)
{
    if (asks) s->free_asks[s->n_free_asks++] = asks - 1;
}

static int serving_buffers(serving *s)
{
    const fleet_server_desc server = serving_server_desc(s);
    buffers_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.context = s->desc.context, desc.draws = s->desc.draws;
    desc.parked_rows = s->is_wide ? 2 * s->desc.chunk_rows : PARKED_ROWS; /* one of each class */
    desc.sequences = s->desc.decode_rows < MAX_ROWS ? MAX_ROWS : s->desc.decode_rows + 1;
    if (desc.sequences < s->desc.keep_logits) desc.sequences = s->desc.keep_logits;
    desc.logit_steps = s->desc.keep_logits ? s->desc.context : s->desc.draws;
    desc.requests = s->desc.requests;
    s->d.pages = s->desc.pages;
    s->memory.bytes += fleet_server_bytes(&server);
    if (!s->memory.counts && fleet_server_create(&s->server, &server, NULL))
        return s->server.field ? serving_refuse(s, s->server.field, s->server.fits)
                               : serving_fail(s, "server", "there is no memory for it");
    if (s->desc.draws && !s->memory.counts && serving_asks_open(s, &desc.asks)) return -1;
    if (!s->memory.counts) {
        s->d.table = s->server.table;
        s->d.page_table = fleet_server_page_tables(&s->server, &s->d.table_pages);
    }
    if (decoder_buffers(&s->d, &s->memory, s->m, &desc)) return -1;
    if (s->is_wide) wide_buffers(&s->d, &s->memory, s->m, s->desc.decode_rows, s->desc.chunk_rows);
    return s->memory.error[0] ? -1 : 0;
}

/* An empty batch: the first step has no rows. */
static int serving_upload_batch(serving *s)
{
    batch b;
    memset(&b, 0, sizeof b);
    b.n_eos = s->m->config.eos_count;
    for (uint32_t i = 0; i < b.n_eos; i++) b.eos[i] = (int32_t)s->m->config.eos[i];
    b.workers = s->all_workers;
    b.split_blocks = serving_split_blocks(s->desc.context, s->desc.split_tokens);
    b.kv_heads = s->m->config.kv_heads, b.part_rows = PART_QUERIES / s->d.group;
    return fleet_to_device(s->d.b, &b, sizeof b, NULL)
               ? serving_fail(s, "batch", "cannot be copied to the device")
               : 0;
}

static int serving_plan(serving *s)
{
    fleet_plan_desc p = fleet_plan_desc_default();
    p.topology = s->topology;
    p.schedule = FLEET_SCHEDULE_STATIC;
    return decoder_plan(&s->memory, s->m, &s->d, s->is_wide ? served_wide_graph : decoder_graph, &p,
                        &s->tasks, &s->device_tasks, &s->plan);
}

static int serving_state(serving *s)
{
    fleet_state_desc state = fleet_state_desc_default();
    fleet_status status;
    state.placement = s->desc.placement, state.seed = s->desc.seed ? s->desc.seed : 1;
    if ((status = fleet_upload(&s->image, s->plan, NULL)) != 0)
        return serving_fail(s, "upload", fleet_status_text(status));
    s->image_made = 1;
    if ((status = fleet_state_create(&s->state, &s->image, &state, NULL)) != 0)
        return serving_fail(s, "state", fleet_status_text(status));
    s->state_made = 1;
    return 0;
}

/* Prepares everything for serving_run. 0, or RUN_... and s->error; call serving_free in any case. */
static int serving_open(serving *s, const model *m, const serving_desc *desc)
{
    if (!serving_begin(s, m, desc) && !serving_buffers(s) && !serving_upload_batch(s) &&
        !serving_plan(s) && !serving_state(s))
        return 0;
    return s->refused ? RUN_REFUSED : RUN_FAILED;
}

/* Serves until it is told to stop. 0, or -1 and s->error. Whatever the status, all events have been sent then, and
   fleet_server_poll gives each request that has not ended its last one. */
static int serving_run(serving *s)
{
    fleet_launch_desc d = fleet_launch_desc_default();
    fleet_status status;
    d.steps = FLEET_STEPS_ENDLESS, d.threads = THREADS;
    d.lds_bytes = LDS_BYTES, d.pipeline_bytes = FLEET_PIPELINE_BYTES(task_args);
    d.limit_ns = s->desc.limit_ns;
    d.host = s->desc.host;
    status = s->is_wide ? served_wide_launch(s->m, &s->state, &d, s->device_tasks)
                        : fleet_launch(&s->state, &d, serve_kernel(s->m), s->device_tasks);
    if (!status) status = fleet_state_wait(&s->state, NULL);
    if (status) {
        char report[ERROR_BYTES - 64];
        fleet_state_report(&s->state, report, sizeof report);
        snprintf(s->error, ERROR_BYTES, "run: %s\n%s", fleet_status_text(status), report);
    }
    fleet_server_ended(&s->server, status);
    return status ? -1 : 0;
}

/* When serving_run has failed and fleet_server_poll has given all last events: makes everything ready for another
   serving_run. No other thread uses the server meanwhile. 0, or -1 and s->error. */
static inline int serving_recover(serving *s)
{
    const uint32_t n = count_tasks(s->m);
    fleet_status status = fleet_state_recover(&s->state, NULL);
    s->error[0] = 0;
    if (!status) status = fleet_server_reset(&s->server, NULL);
    /* The step that was aborted has left counts, and data with the flags of a step that comes again. */
    tasks_begin_session(s->tasks, n);
    if (!status)
        status = fleet_device_clear(s->d.splits_done, (uint64_t)MAX_ROWS * s->d.heads * 4, NULL);
    if (!status && s->is_wide)
        status = wide_begin_again(s->m, &s->d, s->desc.decode_rows, s->desc.chunk_rows);
    if (!status)
        status = fleet_to_device((void *)(uintptr_t)s->device_tasks, s->tasks,
                                 (uint64_t)n * sizeof *s->tasks, NULL);
    return status ? serving_fail(s, "recovery", fleet_status_text(status))
                  : serving_upload_batch(s);
}

static void serving_free(serving *s)
{
    if (s->state_made) fleet_state_free(&s->state);
    if (s->image_made) fleet_image_free(&s->image);
    fleet_plan_free(s->plan);
    fleet_server_free(&s->server);
    if (s->asks) fleet_pinned_free(s->asks);
    free(s->free_asks);
    memory_free(&s->memory);
    free(s->tasks);
}

/* Whether model and server do not fit into `left` bytes of device memory, of which plan and state need some, too. The
   error names a context that would fit. 0, or RUN_... */
static int serving_bytes(const qwen3_config *config, const qwen3_checkpoint *from,
                         const serving_desc *desc, uint64_t *bytes, char *error)
{
    model m;
    serving s;
    int bad = model_begin(&m, config, FLEET_SCHEDULE_STATIC, MAX_ROWS);
    m.memory.counts = 1;
    memset(&s, 0, sizeof s);
    if (bad || model_fill(&m, from, NULL)) {
        memcpy(error, m.error, ERROR_BYTES);
        bad = m.refused ? RUN_REFUSED : RUN_FAILED;
    } else {
        bad = serving_begin(&s, &m, desc);
        s.memory.counts = 1;
        bad = bad || serving_buffers(&s);
        *bytes = m.memory.bytes + s.memory.bytes + (uint64_t)count_tasks(&m) * sizeof(task_args);
        if (bad) {
            memcpy(error, s.error, ERROR_BYTES);
            bad = s.refused ? RUN_REFUSED : RUN_FAILED;
        }
    }
    serving_free(&s);
    model_free(&m);
    return bad;
}
static inline int serving_memory_refused(const qwen3_config *config, const qwen3_checkpoint *from,
                                         serving_desc desc, uint64_t left, char *error)
{
    const uint64_t room = left - left / 64;
    const uint32_t context = desc.context;
    uint32_t least = 1, end = context, best = 0;
    uint64_t bytes = 0, some = 0;
    int bad = serving_bytes(config, from, &desc, &bytes, error);
    if (bad || bytes <= room) return bad;
    while (least < end) {
        desc.context = least + (end - least) / 2;
        if ((bad = serving_bytes(config, from, &desc, &some, error)) != 0) return bad;
        if (some <= room)
            best = desc.context, least = desc.context + 1;
        else
            end = desc.context;
    }
    snprintf(error, ERROR_BYTES,
             "%.3f GB of memory are needed for %u requests of up to %u tokens, and %.3f are free: ",
             (double)bytes / 1e9, desc.decode_rows, context, (double)left / 1e9);
    snprintf(error + strlen(error), ERROR_BYTES - strlen(error),
             best ? "--context %u would fit" : "no --context would fit", best);
    return RUN_REFUSED;
}

#endif /* QWEN3_SERVING_H */
