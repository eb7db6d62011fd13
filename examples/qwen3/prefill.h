/* prefill.h: takes prompts in steps of many rows, with a kernel of its own, before the launch that decodes (NVIDIA, compute
   capability 9.0a, and AMD; nvidia/prefill.h and amd/prefill.h have its tasks). The host knows all prompts, so it lays out all steps beforehand.

       embed -> [ qkv -> heads -> attend -> o -> add -> gate_up -> down -> add ] x layers -> keep
                                                 \> router -> route -> gather -> expert_up -> expert_down -> combine (layers with experts)

   Tasks `add` exist if some step has so few rows that o or down is divided into parts (prefill_divide), on AMD GPUs always. The steps leave keys
   and values in the cache, and of each prompt's last token the residual stream after the last layer. From this a launch of one step
   by the kernel that decodes chooses the first tokens:

       embed -> lm_head -> draw -> next

   It is the first step of all sequences, but for its layers. The bits of a row depend on how many rows its step has, but not on
   the other rows.

   More sequences than MAX_ROWS decode in such a kernel, too (tasks/wide.h), if no logits are
   kept or drawn from. A step has a row of each running sequence, and the last tokens of the
   prompts are left to the first one; there are heads where attention does not have them:

       embed -> [ qkv -> heads -> attend -> o -> add -> gate_up -> down -> add ] x layers
             -> lm_head -> next */
#ifndef QWEN3_PREFILL_H
#define QWEN3_PREFILL_H

#include "kernels.h"
#include "page_table.h"
#include "prefill_graph.h"

/* Launches before the one that decodes: of the prompts, and of the first tokens. */
#define PREFILL_LAUNCHES 2u
/* What a launch needs. */
typedef struct prefill_stage {
    task_args *tasks;
    const task_args *device_tasks;
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    uint32_t image_made, state_made;
} prefill_stage;

typedef struct prefill_run {
    uint32_t max_rows; /* of a step; 0: the launch that decodes takes the prompts */
    uint32_t rows, steps;
    uint32_t is_wide; /* 1: the launch that decodes has steps of all sequences (tasks/wide.h) */
    decoder d, wide;  /* of the steps, and of that launch */
    prefill_stage prompts, tokens; /* the steps, and the launch of the first tokens */
} prefill_run;

static uint32_t prefill_tokens(batch *all, uint32_t sequences)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sequences; i++) {
        const sequence_state *s = sequence_of(all, i);
        n += (uint32_t)(s->prompt - s->position);
    }
    return n;
}

/* ---- what differs between platforms; models with experts are NVIDIA's alone ---- */

#if defined(FLEET_CUDA)
#define PREFILL_EXPERTS_KERNEL FLEET_KERNEL_OF(prefill_experts)

/* Of launches that decode by steps of more rows than MAX_ROWS: attention has the queries of a row
   and a KV head in one fragment. */
#define MOST_WIDE_GROUP FRAGMENT_ROWS
#elif defined(FLEET_HIP)
#define PREFILL_EXPERTS_KERNEL FLEET_KERNEL_OF(prefill)
#define MOST_WIDE_GROUP PREFILL_QUERIES
#endif

/* ---- memory and work ---- */

#if !defined(FLEET_HOST)
/* 1: so many sequences decode in one step (tasks/wide.h). */
static uint32_t is_wide(const model *m, const prefill_run *p, uint32_t sequences)
{
    return p->max_rows && !m->config.experts && m->ranks == 1 && sequences > MAX_ROWS &&
           sequences <= PREFILL_TILE_ROWS &&
           m->config.heads / m->config.kv_heads <= MOST_WIDE_GROUP;
}

/* Divides the products of all steps among the workers. *adds: 1: some of o or down have parts. */
static void prefill_divide_steps(const model *m, const decoder *d, prefill_step *steps, uint32_t n,
                                 uint32_t *adds)
{
    fleet_linear shapes[PREFILL_PRODUCTS];
    prefill_shapes(m, d, shapes);
    *adds = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < (d->experts ? PREFILL_PRODUCTS : PREFILL_ROUTER); k++) {
            const uint32_t is_expert = k == PREFILL_EXPERT_UP || k == PREFILL_EXPERT_DOWN;
            const uint32_t groups = k == PREFILL_QKV                      ? head_groups(d)
                                    : k == PREFILL_O || k == PREFILL_DOWN ? column_groups(d)
                                                                          : 0;
            fleet_linear shape = shapes[k]; /* of a chiplet */
            if (groups) shape.n /= groups;
            steps[i].division[k] =
                is_expert ? divide_expert(&shape, steps[i].rows, d)
                          : prefill_divide(&shape, prefill_end_of(k), steps[i].rows,
                                           groups ? d->workers : d->chiplets * d->workers,
                                           d->two_terms ? 2 : 1);
            *adds |= prefill_end_of(k) == EPILOGUE_RESIDUAL &&
                     steps[i].division[k].parts >= PREFILL_ADDED_PARTS;
        }
}

/* Floats of a product's parts, at most: there are no more parts of tiles than workers. */
static uint64_t most_parts(uint64_t workers)
{
    return workers * PREFILL_TILE_ROWS * prefill_columns(1);
}

/* Memory for the activations of max_rows rows, and the last ones of `sequences` prompts; d: the session's. */
static void prefill_buffers(prefill_run *p, device_memory *mem, const decoder *d, const model *m,
                            uint32_t sequences)
{
    const uint32_t wide_rows = p->is_wide ? sequences : 0;
    const uint64_t rows =
        padded(p->max_rows > wide_rows ? p->max_rows : wide_rows, PREFILL_TILE_ROWS);
    const uint64_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim;
    const uint64_t terms = d->two_terms ? 2 : 1, scores = padded(d->experts, TILE_N);
    const uint64_t heads = q + 2 * kv, most = heads > scores ? heads : scores,
                   columns = most > d->hidden ? most : d->hidden;
    const uint64_t places = most_places(d, p->max_rows);
    const uint64_t dense = rows * m->ffn * terms, sparse = sorted_acts(places, m->expert_ffn);
    p->d = *d, p->d.rounds = 1;
    p->d.h = (float *)memory_get(mem, "prompts", rows * d->hidden * 4);
    /* The products read all rows of a tile: those that do not exist must have memory. */
    if (m->ranks == 1) {
        p->d.x = (act_t *)memory_get(mem, "prompts", rows * d->hidden * terms * sizeof(act_t));
        p->d.squares =
            (float *)memory_zeros(mem, "prompts", rows * squares_of(d->hidden) * sizeof(float));
    }
    p->d.qkv = (float *)memory_get(
        mem, "prompts", (rows * columns + most_parts(d->chiplets * d->workers)) * sizeof(float));
    p->d.attended = (act_t *)memory_get(mem, "prompts", rows * q * terms * sizeof(act_t));
    /* Half of the last stage of sorted rows may be multiplied by zeros, and must be numbers. */
    p->d.gated =
        (act_t *)memory_zeros(mem, "prompts", (dense > sparse ? dense : sparse) * sizeof(act_t));
    if (places) sorted_buffers(&p->d, mem, places, "prompts");
    if (p->is_wide)
        p->wide = p->d, p->wide.prefill_stays = 1, wide_best_buffers(&p->wide, mem);
    else if (m->ranks == 1)
        p->d.prefill_last =
            (float *)memory_get(mem, "prompts", (uint64_t)sequences * d->hidden * sizeof(float));
}

/* Of several ranks: what other ranks store to, in bytes from the beginning of its part of a region:
   products' inputs, their squares, the last tokens' residual streams, and the ranks' sums. */
typedef struct prefill_region {
    uint64_t squares, last, summands, bytes;
} prefill_region;
static prefill_region prefill_region_of(const prefill_run *p, uint32_t ranks, uint32_t sequences)
{
    const uint64_t rows = padded(p->max_rows, PREFILL_TILE_ROWS), terms = p->d.two_terms ? 2 : 1;
    prefill_region r = {0, 0, 0, 0};
    if (ranks == 1 || !p->max_rows) return r;
    r.squares = rows * p->d.hidden * terms * sizeof(act_t);
    r.last = r.squares + rows * squares_of(p->d.hidden) * sizeof(float);
    r.summands = r.last + (uint64_t)sequences * p->d.hidden * sizeof(float);
    r.bytes = r.summands + sizeof(float) * (most_parts(p->d.chiplets * p->d.workers) +
                                            (p->max_rows + PREFILL_PARTS * SHARED_ROWS * ranks) *
                                                (uint64_t)p->d.hidden);
    return r;
}
/* Where that is. d: the session's. */
static void prefill_ranks(prefill_run *p, const decoder *d, uint32_t sequences, char *at)
{
    const prefill_region r = prefill_region_of(p, d->peers.ranks, sequences);
    if (!r.bytes) return;
    p->d.peers = d->peers;
    p->d.x = (act_t *)(void *)at, p->d.squares = (float *)(void *)(at + r.squares);
    p->d.prefill_last = (float *)(void *)(at + r.last);
    p->d.summands = (fleet_quad *)(void *)(at + r.summands);
}

/* Rows of steps, at most, for such a model and batch. */
static uint32_t prefill_rows_of(const model *m, uint32_t wanted, uint64_t tokens)
{
    const uint32_t most = m->config.experts ? PREFILL_EXPERT_ROWS : PREFILL_ROWS,
                   rows = wanted && wanted < most ? wanted : most;
    /* A block has the queries of at least one row. */
    if (!m->has_prefill || m->config.heads / m->config.kv_heads > PREFILL_QUERIES) return 0;
    return tokens < rows ? (uint32_t)tokens : rows;
}

static fleet_graph *prefill_graph(const model *m, const decoder *d, task_args *tasks)
{
    chain c;
    memset(&c, 0, sizeof c);
    c.m = m, c.d = d, c.tasks = tasks, c.g = fleet_graph_create(NULL);
    if (!c.g) return NULL;
    append_prefill_layers(&c);
    if (d->prefill_last)
        append_task(&c, "keep", NO_LAYER, prefill_set_prefill_keep, FLEET_LEVEL_DEVICE);
    load_weights_ahead(&c);
    return c.g;
}

static fleet_graph *first_tokens_graph(const model *m, const decoder *d, task_args *tasks)
{
    chain c;
    memset(&c, 0, sizeof c);
    c.m = m, c.d = d, c.tasks = tasks, c.g = fleet_graph_create(NULL);
    if (!c.g) return NULL;
    for (; c.batch_number < d->rounds; c.batch_number++) {
        append_columns(&c, "embed", NO_LAYER, task_args_embed, m->norm);
        tasks[c.n - 1].floats = decoder_of_round(d, c.batch_number).prefill_last;
        append_tokens(&c);
    }
    /* Their flagged data has the tags of a step before the first one of the launch that decodes, whose workspace it is in. */
    for (uint32_t i = 0; i < c.n; i++) tasks[i].number -= tasks[i].step_tasks;
    return c.g;
}

/* The rows, blocks and steps of all prompts. */
typedef struct prefill_layout {
    token_row *rows;
    prefill_block *blocks;
    prefill_step *steps;
    prefill_end *ends;
    uint32_t n_rows, n_blocks, n_steps, n_ends;
} prefill_layout;

static int later_keys(const void *a, const void *b)
{
    const prefill_block *x = (const prefill_block *)a, *y = (const prefill_block *)b;
    const uint32_t keys = x->position + x->rows, others = y->position + y->rows;
    if (keys != others) return keys < others ? 1 : -1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* Lays out the prompts of `all` from their positions on, without their last tokens where steps of
   all sequences follow, and moves all positions to the last tokens, from which the first ones are
   generated. Pages that a prompt shares with an earlier one are those of rows before its own, which
   are there even in the same step, since all keys of a layer are stored before it attends. tokens:
   [sequences][line]. 0, or -1: no memory is left. */
static int prefill_lay_out(prefill_layout *l, const prefill_run *p, batch *all, uint32_t sequences,
                           const int32_t *tokens, uint32_t line, const page_table *pages)
{
    const uint32_t block_rows = PREFILL_QUERIES / p->d.group;
    uint32_t in_step = 0;
    memset(l, 0, sizeof *l);
    l->rows = (token_row *)calloc(p->rows + 1, sizeof *l->rows);
    l->blocks = (prefill_block *)calloc(p->rows + 1, sizeof *l->blocks);
    l->steps = (prefill_step *)calloc(p->rows + 1, sizeof *l->steps);
    l->ends = (prefill_end *)calloc(sequences, sizeof *l->ends);
    if (!l->rows || !l->blocks || !l->steps || !l->ends) return -1;
    for (uint32_t i = 0; i < sequences; i++) {
        sequence_state *s = sequence_of(all, i);
        const int32_t end = s->prompt - (int32_t)p->is_wide;
        while (s->position < end) {
            const uint32_t left = (uint32_t)(end - s->position), room = p->max_rows - in_step;
            uint32_t n = left < block_rows ? left : block_rows;
            prefill_step *step = &l->steps[l->n_steps];
            prefill_block *block = &l->blocks[l->n_blocks++];
            if (n > room) n = room;
            block->row = in_step, block->rows = n;
            block->position = (uint32_t)s->position, block->table_row = s->table_row;
            for (uint32_t r = 0; r < n; r++) {
                token_row *row = &l->rows[l->n_rows++];
                const uint32_t position = (uint32_t)s->position + r;
                row->sequence = (int32_t)i, row->position = (int32_t)position;
                row->token = tokens[(size_t)i * line + position];
                row->page =
                    pages->row[(size_t)s->table_row * pages->row_pages + position / PAGE_TOKENS];
            }
            s->position += (int32_t)n, in_step += n;
            step->rows = in_step, step->blocks++;
            if (s->position == s->prompt) {
                prefill_end *end = &l->ends[l->n_ends++];
                end->sequence = i, end->row = in_step - 1, step->ends++;
            }
            if (in_step < p->max_rows) continue;
            l->n_steps++, in_step = 0;
            l->steps[l->n_steps].first = l->n_rows;
            l->steps[l->n_steps].first_block = l->n_blocks;
            l->steps[l->n_steps].first_end = l->n_ends;
        }
        s->position = s->prompt - 1, s->shared = 0;
    }
    l->n_steps += in_step > 0;
    /* The blocks with the most keys first, so that workers end at about the same time. */
    for (uint32_t i = 0; i < l->n_steps; i++)
        qsort(l->blocks + l->steps[i].first_block, l->steps[i].blocks, sizeof *l->blocks,
              later_keys);
    return 0;
}

/* ---- more sequences than MAX_ROWS ---- */

static fleet_graph *wide_graph(const model *m, const decoder *d, task_args *tasks)
{
    const layout head = layout_of(m, bf16_format(), m->head_columns, d->hidden);
    task_args *task;
    chain c;
    memset(&c, 0, sizeof c);
    c.m = m, c.d = d, c.tasks = tasks, c.g = fleet_graph_create(NULL);
    if (!c.g) return NULL;
    append_prefill_layers(&c);
    task = append_product(&c, "lm_head", NO_LAYER, HEAD_WIDE, m->head, &head, d->x, MAX_ROWS);
    task->epilogue = EPILOGUE_ARGMAX, task->product = PREFILL_HEAD;
    append_task(&c, "next", NO_LAYER, WIDE(wide_next), FLEET_LEVEL_CU)->shape = task->shape;
    fleet_event_external(c.g, c.before, FLEET_EXTERNAL_WAITS, 0, FLEET_SCOPE_SYSTEM);
    load_weights_ahead(&c);
    return c.g;
}

/* Lays out the first such step, by position, so that its order stays that of the keys. */
static int more_keys(const void *a, const void *b)
{
    const token_row *x = (const token_row *)a, *y = (const token_row *)b;
    if (x->position != y->position) return x->position < y->position ? 1 : -1;
    return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}
static void wide_lay_out(const prefill_run *p, device_memory *mem, const model *m, batch *all,
                         uint32_t sequences, const int32_t *tokens, uint32_t line,
                         const page_table *pages, decoder *d)
{
    token_row rows[PREFILL_TILE_ROWS];
    prefill_block blocks[PREFILL_TILE_ROWS];
    prefill_step step;
    for (uint32_t i = 0; i < sequences; i++) {
        const sequence_state *s = sequence_of(all, i);
        const uint32_t position = (uint32_t)s->position;
        rows[i].sequence = (int32_t)i, rows[i].position = s->position;
        rows[i].token = tokens[(size_t)i * line + position];
        rows[i].page = pages->row[(size_t)s->table_row * pages->row_pages + position / PAGE_TOKENS];
    }
    qsort(rows, sequences, sizeof *rows, more_keys);
    for (uint32_t r = 0; r < sequences; r++) {
        blocks[r].row = r, blocks[r].rows = 1, blocks[r].position = (uint32_t)rows[r].position;
        blocks[r].table_row = sequence_of(all, (uint32_t)rows[r].sequence)->table_row;
    }
    memset(&step, 0, sizeof step);
    step.rows = step.blocks = sequences;
    prefill_divide_steps(m, &p->d, &step, 1, &d->prefill_adds);
    d->prefill = (prefill_step *)memory_copy(mem, "steps", &step, sizeof step);
    d->prefill_rows = (token_row *)memory_copy(mem, "steps", rows, sequences * sizeof *rows);
    d->prefill_blocks =
        (prefill_block *)memory_copy(mem, "steps", blocks, sequences * sizeof *blocks);
}

/* Plans the launch that decodes, if its steps have all sequences. */
static int wide_plan(const prefill_run *p, device_memory *mem, const model *m,
                     const fleet_plan_desc *desc, task_args **tasks, const task_args **device_tasks,
                     fleet_plan **plan)
{
    return decoder_plan(mem, m, &p->wide, wide_graph, desc, tasks, device_tasks, plan);
}
static fleet_status wide_launch(fleet_state *state, const fleet_launch_desc *decode,
                                const task_args *device_tasks)
{
    fleet_launch_desc d = *decode;
    d.threads = PREFILL_THREADS, d.lds_bytes = PREFILL_LDS_BYTES, d.pipeline_bytes = 0;
    return fleet_launch(state, &d, FLEET_KERNEL_OF(decode_wide), device_tasks);
}
/* ---- launches ---- */

static int prefill_fail(char *error, const char *why)
{
    if (!error[0]) snprintf(error, ERROR_BYTES, "prompts: %.400s", why);
    return -1;
}

static void next_region(fleet_peers *peers, size_t bytes)
{
    for (uint32_t i = 0; i < peers->ranks; i++) peers->bases[i] = (char *)peers->bases[i] + bytes;
}
/* Makes plan, image and state of a launch. peers: of several ranks, the part of their regions for
   its events, of so many bytes. 0, or -1 and mem->error. */
static int prefill_stage_make(prefill_stage *s, device_memory *mem, const model *m,
                              const decoder *d,
                              fleet_graph *(*build)(const model *, const decoder *, task_args *),
                              const fleet_plan_desc *desc, const fleet_peers *peers, size_t bytes)
{
    fleet_state_desc state = fleet_state_desc_default();
    fleet_status status;
    if (m->ranks > 1) state.peers = peers;
    if (decoder_plan(mem, m, d, build, desc, &s->tasks, &s->device_tasks, &s->plan)) return -1;
    if (fleet_peers_bytes(s->plan) > bytes)
        return prefill_fail(mem->error, "a launch's part of the ranks' region is too small");
    status = fleet_upload(&s->image, s->plan, NULL), s->image_made = !status;
    if (!status) status = fleet_state_create(&s->state, &s->image, &state, NULL);
    s->state_made = s->image_made && !status;
    return status ? prefill_fail(mem->error, fleet_status_text(status)) : 0;
}
static void prefill_stage_free(prefill_stage *s)
{
    if (s->state_made) fleet_state_free(&s->state);
    if (s->image_made) fleet_image_free(&s->image);
    fleet_plan_free(s->plan);
    free(s->tasks);
}

/* Makes plans, images and states, and the steps. Moves the positions of `all` to the last tokens of the prompts. d, plan: of the
   launch that decodes; peers_bytes: of several ranks, what that has of their regions, before those
   of these launches. */
static int prefill_prepare(prefill_run *p, device_memory *mem, const model *m, batch *all,
                           uint32_t sequences, const int32_t *tokens, uint32_t line,
                           const page_table *pages, const decoder *d, const fleet_plan_desc *plan,
                           size_t peers_bytes)
{
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_peers peers = d->peers;
    decoder first = *d;
    prefill_layout l;
    if (prefill_lay_out(&l, p, all, sequences, tokens, line, pages))
        prefill_fail(mem->error, "no memory is left");
    if (!mem->error[0]) {
        p->steps = l.n_steps;
        prefill_divide_steps(m, &p->d, l.steps, l.n_steps, &p->d.prefill_adds);
        p->d.prefill = (prefill_step *)memory_copy(mem, "prompts", l.steps,
                                                   (uint64_t)l.n_steps * sizeof *l.steps);
        p->d.prefill_rows =
            (token_row *)memory_copy(mem, "prompts", l.rows, (uint64_t)l.n_rows * sizeof *l.rows);
        p->d.prefill_blocks = (prefill_block *)memory_copy(mem, "prompts", l.blocks,
                                                           (uint64_t)l.n_blocks * sizeof *l.blocks);
        p->d.prefill_ends = (const prefill_end *)memory_copy(mem, "prompts", l.ends,
                                                             (uint64_t)l.n_ends * sizeof *l.ends);
    }
    free(l.rows);
    free(l.blocks);
    free(l.steps);
    free(l.ends);
    desc.topology = plan->topology, desc.schedule = FLEET_SCHEDULE_STATIC, desc.ranks = plan->ranks;
    first.prefill_last = p->d.prefill_last;
    if (p->is_wide) wide_lay_out(p, mem, m, all, sequences, tokens, line, pages, &p->wide);
    if (p->is_wide && !p->rows) return mem->error[0] ? -1 : 0;
    next_region(&peers, peers_bytes);
    if (prefill_stage_make(&p->prompts, mem, m, &p->d, prefill_graph, &desc, &peers, peers_bytes))
        return -1;
    if (p->is_wide) return 0;
    next_region(&peers, peers_bytes);
    return prefill_stage_make(&p->tokens, mem, m, &first, first_tokens_graph, plan, &peers,
                              peers_bytes);
}

/* Enqueues all steps, and the launch of the first tokens, which is as `decode` by this kernel. The launch that decodes follows
   in the same stream. Of several ranks, waits for each launch, so that a rank that has failed is
   waited for once. *state: the one that failed, if the result is not FLEET_OK. */
static fleet_status prefill_launch(prefill_run *p, const fleet_launch_desc *decode,
                                   fleet_kernel kernel, const fleet_state **state)
{
    const uint32_t has_ranks = p->d.peers.ranks > 1;
    fleet_launch_desc d = fleet_launch_desc_default();
    fleet_status status;
    if (!p->rows) return FLEET_OK;
    *state = &p->prompts.state;
    d.steps = p->steps, d.threads = PREFILL_THREADS, d.lds_bytes = PREFILL_LDS_BYTES;
    d.peer_limit_ns = decode->peer_limit_ns;
    status = fleet_launch(&p->prompts.state, &d,
                          p->d.experts ? PREFILL_EXPERTS_KERNEL : FLEET_KERNEL_OF(prefill),
                          p->prompts.device_tasks);
    if (!status && has_ranks) status = fleet_state_wait(&p->prompts.state, NULL);
    if (status || p->is_wide) return status;
    *state = &p->tokens.state;
    d = *decode, d.steps = 1;
    if (decode->steps) d.trace = NULL; /* it is of the last step */
    status = fleet_launch(&p->tokens.state, &d, kernel, p->tokens.device_tasks);
    if (!status && has_ranks) status = fleet_state_wait(&p->tokens.state, NULL);
    return status;
}
/* Waits for both launches. *state: the one that failed, if the result is not FLEET_OK. */
static fleet_status prefill_wait(prefill_run *p, const fleet_state **state)
{
    fleet_status status;
    if (!p->rows) return FLEET_OK;
    *state = &p->prompts.state;
    if ((status = fleet_state_wait(&p->prompts.state, NULL)) != 0 || p->is_wide) return status;
    *state = &p->tokens.state;
    return fleet_state_wait(&p->tokens.state, NULL);
}

static void prefill_free(prefill_run *p)
{
    prefill_stage_free(&p->prompts);
    prefill_stage_free(&p->tokens);
}
#else
/* Elsewhere the launch that decodes takes the prompts. */
#define PREFILL_LEAST 1u
static void prefill_buffers(prefill_run *p, device_memory *mem, const decoder *d, const model *m,
                            uint32_t sequences)
{
    FLEET_UNUSED(p), FLEET_UNUSED(mem), FLEET_UNUSED(d), FLEET_UNUSED(m), FLEET_UNUSED(sequences);
}
typedef struct prefill_region {
    uint64_t bytes;
} prefill_region;
static prefill_region prefill_region_of(const prefill_run *p, uint32_t ranks, uint32_t sequences)
{
    prefill_region r = {0};
    FLEET_UNUSED(p), FLEET_UNUSED(ranks), FLEET_UNUSED(sequences);
    return r;
}
static void prefill_ranks(prefill_run *p, const decoder *d, uint32_t sequences, char *at)
{
    FLEET_UNUSED(p), FLEET_UNUSED(d), FLEET_UNUSED(sequences), FLEET_UNUSED(at);
}
static uint32_t prefill_rows_of(const model *m, uint32_t wanted, uint64_t tokens)
{
    FLEET_UNUSED(m), FLEET_UNUSED(wanted), FLEET_UNUSED(tokens);
    return 0;
}
static int prefill_prepare(prefill_run *p, device_memory *mem, const model *m, batch *all,
                           uint32_t sequences, const int32_t *tokens, uint32_t line,
                           const page_table *pages, const decoder *d, const fleet_plan_desc *plan,
                           size_t peers_bytes)
{
    FLEET_UNUSED(peers_bytes);
    FLEET_UNUSED(p), FLEET_UNUSED(mem), FLEET_UNUSED(m), FLEET_UNUSED(all), FLEET_UNUSED(sequences),
        FLEET_UNUSED(tokens);
    FLEET_UNUSED(line), FLEET_UNUSED(pages), FLEET_UNUSED(d), FLEET_UNUSED(plan);
    return 0;
}
static fleet_status prefill_launch(prefill_run *p, const fleet_launch_desc *decode,
                                   fleet_kernel kernel, const fleet_state **state)
{
    FLEET_UNUSED(p), FLEET_UNUSED(decode), FLEET_UNUSED(kernel), FLEET_UNUSED(state);
    return FLEET_OK;
}
static fleet_status prefill_wait(prefill_run *p, const fleet_state **state)
{
    FLEET_UNUSED(p), FLEET_UNUSED(state);
    return FLEET_OK;
}
static void prefill_free(prefill_run *p)
{
    FLEET_UNUSED(p);
}
/* Nor has it steps of more rows than MAX_ROWS: more sequences decode in rounds. */
static uint32_t is_wide(const model *m, const prefill_run *p, uint32_t sequences)
{
    FLEET_UNUSED(m), FLEET_UNUSED(p), FLEET_UNUSED(sequences);
    return 0;
}
static int wide_plan(const prefill_run *p, device_memory *mem, const model *m,
                     const fleet_plan_desc *desc, task_args **tasks, const task_args **device_tasks,
                     fleet_plan **plan)
{
    FLEET_UNUSED(p), FLEET_UNUSED(mem), FLEET_UNUSED(m), FLEET_UNUSED(desc), FLEET_UNUSED(tasks);
    FLEET_UNUSED(device_tasks), FLEET_UNUSED(plan);
    return -1;
}
static fleet_status wide_launch(fleet_state *state, const fleet_launch_desc *decode,
                                const task_args *device_tasks)
{
    FLEET_UNUSED(state), FLEET_UNUSED(decode), FLEET_UNUSED(device_tasks);
    return FLEET_ERROR_UNSUPPORTED;
}
#endif /* FLEET_HOST */

#endif /* QWEN3_PREFILL_H */
