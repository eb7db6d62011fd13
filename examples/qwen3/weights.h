/* weights.h: a model's weights in device memory, from a checkpoint or random.

   Of several ranks, each has a share of the KV heads with the query heads that read them, of the columns of gate and up,
   which are the rows of down, and of the experts. Shares are equal: where there is too little for that, they are padded
   with zeros, whose products add nothing, and of lm_head's columns. Norms, router and embedding are the same on all ranks. */
#ifndef QWEN3_WEIGHTS_H
#define QWEN3_WEIGHTS_H

#include "packing.h"
#include "panels.h"

typedef struct model_layer {
    const float *input_norm, *post_norm, *q_norm, *k_norm;
    const bf16 *qkv, *o, *gate_up, *down; /* packed */
    uint32_t sparse;
    const bf16 *router, *expert_up, *expert_down;
} model_layer;

typedef struct model {
    qwen3_config config;
    weight_format format;     /* of the layers' matrices, but for the router */
    uint32_t rank, ranks;     /* config has this rank's heads and KV heads */
    uint32_t ffn, expert_ffn; /* of this rank, padded (model_share) */
    uint32_t first_expert, own_experts;
    /* Tokens of a rank's share of lm_head, padded to TILE_N where there are several; columns that this rank has, at least
       one */
    uint32_t head_tokens, head_columns;
    model_layer *layers;
    const bf16 *embedding, *head;
    const float *norm;
    uint64_t step_bytes;          /* weights that a step of one row reads */
    uint32_t workers;             /* workers of the device */
    uint32_t large_m;             /* 1: layers are packed for large-M products */
    uint32_t has_prefill;         /* 1: a kernel of its own takes prompts (prefill.h) */
    const qwen3_checkpoint *from; /* while it is loaded; null: random weights */
    device_memory memory;
    uint32_t refused; /* 1: the checkpoint is at fault */
    char error[ERROR_BYTES];
} model;

/* Random weights depend only on their position, so that all platforms have the same. */
FLEET_GLOBAL(COPY_THREADS)
void fill_random(bf16 *weights, uint64_t words, uint64_t seed, float scale)
{
    const uint64_t threads = (uint64_t)fleet_block_count() * fleet_thread_count();
    for (uint64_t i = (uint64_t)fleet_block_id() * fleet_thread_count() + fleet_thread_id();
         i < words; i += threads) {
        uint64_t x = (i + seed) * 0x9e3779b97f4a7c15u;
        x ^= x >> 32;
        x *= 0xd6e8feb86659fd93u;
        weights[i] = bf16_of_float(((float)(uint32_t)(x >> 40) / 8388608.0f - 1) * scale);
    }
}
FLEET_THUNK4(fill_random, bf16 *, uint64_t, uint64_t, float)

/* Tiles of a panel of a layer. */
static uint32_t panel_tiles_of(const model *m, uint32_t n)
{
    return m->large_m ? large_m_panel_tiles(n, m->workers)
                      : even_panel_tiles(n, 1, MAX_PANEL_TILES, m->workers);
}
/* Tiles that are computed together of an expert: what suits the experts of one row. */
static uint32_t expert_panel_tiles(const model *m, uint32_t n)
{
    return even_panel_tiles(n, m->config.experts_per_token,
                            MAX_PANEL_TILES < 2 ? MAX_PANEL_TILES : 2, m->workers);
}

/* Of a layer; and of a matrix whose tiles are taken one by one, such as an expert. */
static layout layout_of(const model *m, weight_format format, uint32_t n, uint32_t k)
{
    layout l;
    l.format = format, l.n = n, l.k = k;
    l.panel_tiles = l.last_panel_tiles = panel_tiles_of(m, n);
    l.inner_k = m->large_m ? WGMMA_K : STAGE_K;
    if (m->large_m) l.last_panel_tiles = ceil_div(n, TILE_N) - (panels_of(&l) - 1) * l.panel_tiles;
    return l;
}
static layout single_layout_of(weight_format format, uint32_t n, uint32_t k)
{
    layout l;
    l.format = format, l.n = n, l.k = k;
    l.panel_tiles = l.last_panel_tiles = 1, l.inner_k = STAGE_K;
    return l;
}

#if HAS_PACKED_CODES
/* The same of codes: none is NaN, and all of a matrix's have one scale. */
static void fill_codes(unsigned char *to, const layout *as, uint32_t count, uint64_t seed)
{
    const uint64_t each = bytes_of(as), bytes = each * count;
    const uint32_t k = padded(as->k, K_ALIGN), panels = panels_of(as), codes = as->format.codes;
    const float largest = codes == WEIGHTS_FP8 ? 4 : codes == WEIGHTS_INT8 ? 128 : 8;
    for (uint64_t i = 0; i < bytes; i++) {
        const uint64_t x = (i + seed) * 0x9e3779b97f4a7c15u,
                       y = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
        to[i] = (unsigned char)(y >> 56);
        if (codes == WEIGHTS_FP8) to[i] = (unsigned char)((to[i] & 0xbfu) | 0x20u);
    }
    for (uint32_t n = 0; n < count * panels; n++) {
        const uint32_t last = n % panels + 1 == panels,
                       tiles = last ? as->last_panel_tiles : as->panel_tiles;
        unsigned char *panel = to + n / panels * each + (uint64_t)(n % panels) * panel_bytes_of(as);
        for (uint32_t c = 0; c < tiles * TILE_N; c++)
            for (uint32_t g = 0; g < coded_groups(&as->format, k); g++)
                coded_put_scale(panel, &as->format, tiles, c, k, g,
                                1.7f / sqrtf((float)as->k) / largest, 0);
    }
}
#endif

/* A packed matrix, or `count` of them; random without a checkpoint. */
static const bf16 *matrix(model *m, const char *what, const matrix_source *s, const layout *as,
                          uint32_t count)
{
    const uint64_t each = bytes_of(as) / 2, words = each * count;
    bf16 *to = (bf16 *)memory_get(&m->memory, what, words * 2);
    if (!to) return NULL;
#if HAS_PACKED_CODES
    if (!s && as->format.codes) {
        fill_codes((unsigned char *)to, as, count, m->memory.bytes);
        return to;
    }
#endif
    if (!s) {
        fleet_kernel_desc desc = fleet_kernel_desc_default();
        uint64_t number = words, seed = m->memory.bytes;
        float scale = 1.7f / sqrtf((float)as->k);
        void *args[4];
        args[0] = &to, args[1] = &number, args[2] = &seed, args[3] = &scale;
        desc.blocks = device_workers(), desc.threads = COPY_THREADS;
        if (fleet_kernel_launch(FLEET_KERNEL_OF(fill_random), args, &desc))
            snprintf(m->error, ERROR_BYTES, "%s: cannot be filled", what);
        return to;
    }
    for (uint32_t i = 0; i < count; i++)
        if (pack(m->from, s + i, as, to + i * each, m->error, &m->refused)) return NULL;
    return to;
}

/* A vector of float32; ones without a checkpoint. */
static const float *vector(model *m, const qwen3_tensor *t, uint32_t n)
{
    float *values = m->memory.counts ? NULL : (float *)malloc((size_t)n * sizeof *values);
    const float *to = NULL;
    if (m->memory.counts) {
        memory_get(&m->memory, "norm", (uint64_t)n * sizeof *values);
        return NULL;
    }
    if (!values) {
        snprintf(m->error, ERROR_BYTES, "out of memory");
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) values[i] = 1;
    if (t && qwen3_tensor_to_f32(t, 0, n, values, m->error, ERROR_BYTES))
        m->refused = 1;
    else
        to = (const float *)memory_copy(&m->memory, "norm", values, (uint64_t)n * sizeof *values);
    free(values);
    return to;
}

/* Packs the gates and ups of all experts, or their downs. */
static const bf16 *experts(model *m, const qwen3_layer_weights *w, uint32_t ups, uint32_t n,
                           uint32_t k)
{
    const uint32_t count = m->own_experts;
    const layout as = single_layout_of(m->format, n, k);
    matrix_source *s;
    const bf16 *to;
    if (!w) return matrix(m, "experts", NULL, &as, count);
    s = (matrix_source *)calloc(count, sizeof *s);
    if (!s) {
        snprintf(m->error, ERROR_BYTES, "out of memory");
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t e = m->first_expert + i;
        if (e >= m->config.experts) break; /* zeros */
        s[i] = ups ? source_of(&w->expert_gate[e], &w->expert_up[e], NULL, 1)
                   : source_of(&w->expert_down[e], NULL, NULL, 0);
    }
    to = matrix(m, "experts", s, &as, count);
    free(s);
    return to;
}

/* s: without parts, random weights. */
static const bf16 *stacked(model *m, const char *what, matrix_source s, weight_format format,
                           uint32_t n, uint32_t k)
{
    const layout as = layout_of(m, format, n, k);
    const uint64_t before = m->memory.bytes;
    const bf16 *to = matrix(m, what, s.parts ? &s : NULL, &as, 1);
    m->step_bytes += m->memory.bytes - before;
    return to;
}

/* Asks whether the device's code has large-M products, and tasks that take prompts: only that code knows what it was
   compiled for. */
FLEET_GLOBAL(1) void ask_wgmma(uint32_t *has)
{
    has[0] = HAS_LARGE_M, has[1] = HAS_PREFILL;
}
FLEET_THUNK1(ask_wgmma, uint32_t *)
static void device_has_wgmma(model *m, uint32_t *has)
{
    void *to = NULL, *args[1];
    fleet_kernel_desc desc = fleet_kernel_desc_default();
    args[0] = &to;
    desc.blocks = desc.threads = 1;
    if (fleet_device_alloc(&to, 2 * sizeof *has) ||
        fleet_kernel_launch(FLEET_KERNEL_OF(ask_wgmma), args, &desc) ||
        fleet_to_host(has, to, 2 * sizeof *has, NULL))
        snprintf(m->error, ERROR_BYTES, "the device does not answer");
    fleet_device_free(to);
}

/* Takes this rank's share, all of it for one rank. Of several ranks each share of columns is a
   multiple of SHARE_COLUMNS, so that a kernel of its own takes prompts (prefill_suits). */
#define SHARE_COLUMNS (2 * BLOCK_K)
static void model_share(model *m)
{
    qwen3_config *c = &m->config;
    const uint32_t group = c->heads / c->kv_heads;
    m->rank = c->rank, m->ranks = c->ranks > 1 ? c->ranks : 1;
    if (m->ranks > 1) {
        c->kv_heads = ceil_div(c->kv_heads, m->ranks);
        while (c->kv_heads * group * c->head_dim % SHARE_COLUMNS) c->kv_heads++;
        c->heads = c->kv_heads * group;
    }
    m->ffn = padded(ceil_div(c->ffn, m->ranks), m->ranks > 1 ? SHARE_COLUMNS : BLOCK_K);
    m->expert_ffn = padded(c->expert_ffn, BLOCK_K);
    m->own_experts = ceil_div(c->experts, m->ranks), m->first_expert = m->rank * m->own_experts;
    m->head_tokens = m->ranks > 1 ? padded(ceil_div(c->vocab, m->ranks), TILE_N) : c->vocab;
    m->head_columns = tokens_of_rank(c->vocab, m->head_tokens, m->rank);
    if (!m->head_columns) m->head_columns = 1; /* zeros */
}

/* Whether the tasks cannot compute with a dimension of the model; the error names it. */
static int shape_refused(const qwen3_config *c, char *error)
{
    const struct {
        const char *name;
        uint64_t is;
        uint32_t multiple, largest; /* 1 and 0: any */
    } fields[] = {
        {"hidden_size", c->hidden, BLOCK_K, 0},
        {"head_dim", c->head_dim, VECTOR, MAX_HEAD_DIM},
        {"num_attention_heads * head_dim", (uint64_t)c->heads * c->head_dim, BLOCK_K, 0},
        {"num_experts_per_tok", c->experts_per_token, 1, MAX_TOP_K},
    };
    for (uint32_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const uint32_t multiple = fields[i].multiple, largest = fields[i].largest;
        char of[32] = "", most[32] = "";
        if (fields[i].is % multiple == 0 && (!largest || fields[i].is <= largest)) continue;
        if (multiple > 1) snprintf(of, sizeof of, " a multiple of %u", multiple);
        if (largest) snprintf(most, sizeof most, " at most %u", largest);
        snprintf(error, ERROR_BYTES, "config.json: %s: %llu, this decoder needs%s%s%s",
                 fields[i].name, (unsigned long long)fields[i].is, of,
                 multiple > 1 && largest ? "," : "", most);
        return 1;
    }
    return 0;
}

/* What the layers' weights are packed as: as the checkpoint has them, or bf16. Nonzero: the error
   says why not. */
static int format_refused(model *m)
{
    static const char *const names[] = {"bf16", "FP8", "INT8", "INT4"};
    static const uint32_t formats[] = {WEIGHTS_BF16, WEIGHTS_FP8, WEIGHTS_INT8, WEIGHTS_INT4};
    const qwen3_quantization *q = &m->config.quantization;
    m->format = bf16_format();
    if (!q->codes || m->config.dequantized) return 0;
    m->format.codes = formats[q->codes], m->format.group = q->group;
    if (HAS_PACKED_CODES) return 0;
    snprintf(m->error, ERROR_BYTES,
             "config.json: quantization_config: only the CPU computes with %s weights so far; "
             "--dequantize makes bf16 of them when they are loaded",
             names[q->codes]);
    return 1;
}

/* The part of model_load that needs no device memory. */
static int model_begin(model *m, const qwen3_config *config, fleet_schedule schedule,
                       uint32_t sequences)
{
    const qwen3_config *c = &m->config;
    uint32_t has[2] = {0, 0}, q;
    memset(m, 0, sizeof *m);
    m->config = *config;
    model_share(m);
    q = c->heads * c->head_dim;
    m->memory.error = m->error;
    m->workers = device_workers();
    if (schedule == FLEET_SCHEDULE_STATIC) device_has_wgmma(m, has);
    m->large_m = has[0] && !c->experts && sequences > SMALL_M_ROWS;
    m->has_prefill = has[1] && prefill_suits(c->experts, c->hidden, q, m->ffn);
    if (!m->error[0]) m->refused = (uint32_t)(shape_refused(c, m->error) || format_refused(m));
    return m->error[0] != 0;
}

/* Copies the embedding's rows, some at a time. */
static const bf16 *embedding(model *m, const qwen3_tensor *from)
{
    const uint64_t all = (uint64_t)from->rows * from->columns, each = PACK_BYTES / sizeof(bf16);
    bf16 *to = (bf16 *)memory_get(&m->memory, "embeddings", all * sizeof *to), *some;
    if (!to) return NULL;
    some = (bf16 *)malloc(each * sizeof *some);
    if (!some) snprintf(m->error, ERROR_BYTES, "out of memory");
    for (uint64_t at = 0; at < all && !m->error[0]; at += each) {
        const uint64_t n = all - at < each ? all - at : each;
        if (qwen3_tensor_to_bf16(from, at, n, some, m->error, ERROR_BYTES))
            m->refused = 1;
        else if (fleet_to_device(to + at, some, n * sizeof *some, NULL))
            snprintf(m->error, ERROR_BYTES, "embeddings: cannot be copied to the device");
        qwen3_release(m->from);
    }
    free(some);
    return to;
}

static int model_fill(model *m, const qwen3_checkpoint *from,
                      void (*progress)(uint32_t done, uint32_t of))
{
    const qwen3_config *c = &m->config;
    const uint32_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    m->from = m->memory.counts ? NULL : from;
    m->layers = (model_layer *)calloc(c->layers, sizeof *m->layers);
    if (!m->layers) snprintf(m->error, ERROR_BYTES, "out of memory");
    for (uint32_t i = 0; i < c->layers && !m->error[0]; i++) {
        model_layer *l = &m->layers[i];
        const qwen3_layer_weights *w = from ? &from->layers[i] : NULL;
        matrix_source s;
        l->sparse = c->sparse[i];
        l->input_norm = vector(m, w ? &w->input_norm : NULL, c->hidden);
        l->post_norm = vector(m, w ? &w->post_norm : NULL, c->hidden);
        l->q_norm = vector(m, w ? &w->q_norm : NULL, c->head_dim);
        l->k_norm = vector(m, w ? &w->k_norm : NULL, c->head_dim);
        s = source_of(w ? &w->q : NULL, w ? &w->k : NULL, w ? &w->v : NULL, 0);
        for (uint32_t p = 0; p < s.parts; p++) take_rows(&s.part[p], m->rank, p ? kv : q);
        l->qkv = stacked(m, "q, k, v", s, m->format, q + 2 * kv, c->hidden);
        s = source_of(w ? &w->o : NULL, NULL, NULL, 0);
        take_columns(&s.part[0], m->rank, q);
        l->o = stacked(m, "o", s, m->format, c->hidden, q);
        if (l->sparse) {
            const uint64_t before = m->memory.bytes;
            s = source_of(w ? &w->router : NULL, NULL, NULL, 0);
            l->router = stacked(m, "router", s, bf16_format(), c->experts, c->hidden);
            l->expert_up = experts(m, w, 1, 2 * m->expert_ffn, c->hidden);
            l->expert_down = experts(m, w, 0, c->hidden, m->expert_ffn);
            m->step_bytes += (m->memory.bytes - before) / c->experts * c->experts_per_token;
        } else {
            s = source_of(w ? &w->gate : NULL, w ? &w->up : NULL, NULL, 1);
            for (uint32_t p = 0; p < s.parts; p++) take_rows(&s.part[p], m->rank, m->ffn);
            l->gate_up = stacked(m, "gate, up", s, m->format, 2 * m->ffn, c->hidden);
            s = source_of(w ? &w->down : NULL, NULL, NULL, 0);
            take_columns(&s.part[0], m->rank, m->ffn);
            l->down = stacked(m, "down", s, m->format, c->hidden, m->ffn);
        }
        if (progress) progress(i + 1, c->layers + 1);
    }
    if (!m->error[0]) {
        matrix_source s = source_of(from ? &from->head : NULL, NULL, NULL, 0);
        m->norm = vector(m, from ? &from->norm : NULL, c->hidden);
        take_rows(&s.part[0], m->rank, m->head_tokens);
        m->head = stacked(m, "lm_head", s, bf16_format(), m->head_columns, c->hidden);
        if (!from) {
            const layout as = single_layout_of(bf16_format(), c->vocab, c->hidden);
            m->embedding = matrix(m, "embeddings", NULL, &as, 1);
        } else {
            m->embedding = embedding(m, &from->embed);
        }
        if (progress) progress(c->layers + 1, c->layers + 1);
    }
    m->from = NULL;
    return m->error[0] != 0;
}

/* Loads a model to device memory, from a checkpoint or with random weights. It suits sessions of
   that schedule, and best those of so many sequences; other schedules than STATIC suit all
   sessions. 0, or RUN_... and m->error; call model_free in any case. */
static int model_load(model *m, const qwen3_config *config, const qwen3_checkpoint *from,
                      fleet_schedule schedule, uint32_t sequences,
                      void (*progress)(uint32_t done, uint32_t of))
{
    if (!model_begin(m, config, schedule, sequences) && !model_fill(m, from, progress)) return 0;
    return m->refused ? RUN_REFUSED : RUN_FAILED;
}

static void model_free(model *m)
{
    memory_free(&m->memory);
    free(m->layers);
    m->layers = NULL;
}

#endif /* QWEN3_WEIGHTS_H */
