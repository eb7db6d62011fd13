// run: plain whole
// run: asan whole -DQUICK
/* Quantised checkpoints of examples/qwen3, as examples/tools/quantize makes them: all formats
   against a plain decoder in double precision, whose weights this test itself computes from the
   codes and scales of the file, as they are and rounded to bf16; and files that are wrong. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#define FLEET_IMPLEMENTATION
#include "../../examples/qwen3/session.h"
#define main quantize_main
#include "../../examples/tools/quantize.c"
#undef main
#include "folder.h"
#include "plain.h"
#include "test.h"

#if defined(QUICK)
#define IS_QUICK 1
#else
#define IS_QUICK 0
#endif

#define DENSE "tests/fixtures/qwen3-tiny"
#define MOE "tests/fixtures/qwen3-moe-tiny"

/* ---- folders ---- */

static FILE *open_in(const folder *f, const char *name, const char *how)
{
    char path[700];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    file = fopen(path, how);
    if (!file) {
        printf("FAIL open_in: cannot open %s\n", path);
        exit(1);
    }
    return file;
}
static folder quantized_folder(test_run *t, const char *from, const char *how)
{
    folder f = folder_make();
    char words[80], *argv[8], *next = words;
    int argc = 3;
    static char program_name[] = "quantize";
    argv[0] = program_name, argv[1] = (char *)(uintptr_t)from, argv[2] = f.path;
    snprintf(words, sizeof words, "%s", how);
    while (next && argc < 8) {
        argv[argc++] = next;
        next = strchr(next, ' ');
        if (next) *next++ = 0;
    }
    rmdir(f.path);
    if (quantize_main(argc, argv)) test_fail(t, __FILE__, __LINE__, "quantize %s failed", how);
    return f;
}

/* ---- a file's tensors, and what they mean ---- */

/* The bytes of a tensor of the only shard; null: it has none of that name. */
static const unsigned char *bytes_named(const qwen3_checkpoint *c, const char *name,
                                        const char **dtype)
{
    const qwen3_header *h = &c->shards[0].header;
    for (size_t i = 0; i < h->count; i++)
        if (!strcmp(h->entries[i].name, name)) {
            if (dtype) *dtype = h->entries[i].dtype_name;
            return c->shards[0].mapped.at + h->data_at + h->entries[i].begin;
        }
    return NULL;
}

/* e4m3 by its definition. */
static double value_of_e4m3(unsigned code)
{
    const int e = (int)(code >> 3 & 15), m = (int)(code & 7);
    const double v = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    return code & 128 ? -v : v;
}
static unsigned nibble(const unsigned char *bytes, size_t i)
{
    return (unsigned)bytes[i / 2] >> (i % 2 * 4) & 15u;
}

/* A weight by the codes of the file. `module`: the name without ".weight". */
typedef struct module {
    const unsigned char *codes, *scales, *zeros;
    int is_fp8;
    uint32_t bits, columns, groups, group, group_rows;
} module;
static module module_named(const qwen3_checkpoint *c, const char *name, uint32_t columns)
{
    static const char *const ends[] = {"", "_packed", "_scale", "_scale_inv", "_zero_point"};
    const qwen3_quantization *q = &c->config.quantization;
    const unsigned char *found[5];
    module m;
    for (uint32_t i = 0; i < 5; i++) {
        char full[240];
        snprintf(full, sizeof full, "%s.weight%s", name, ends[i]);
        found[i] = bytes_named(c, full, NULL);
    }
    m.codes = found[1] ? found[1] : found[0];
    m.is_fp8 = found[3] != NULL, m.scales = found[3] ? found[3] : found[2], m.zeros = found[4];
    m.bits = q->codes == QWEN3_INT4 ? 4 : 8;
    m.columns = columns, m.group = q->group ? q->group : columns;
    m.groups = (columns + m.group - 1) / m.group, m.group_rows = m.is_fp8 ? 128 : 1;
    return m;
}
static double weight_of(const module *m, uint32_t row, uint32_t column)
{
    const size_t i = (size_t)row * ((m->columns * m->bits + 31) / 32 * 32 / m->bits) + column;
    const size_t at = (size_t)(row / m->group_rows) * m->groups + column / m->group;
    const uint32_t word = (uint32_t)m->scales[2 * at] << 16 | (uint32_t)m->scales[2 * at + 1] << 24;
    double code;
    if (m->is_fp8)
        code = value_of_e4m3(m->codes[(size_t)row * m->columns + column]);
    else if (m->bits == 8)
        code = (int)m->codes[i] - 128;
    else
        code = (int)nibble(m->codes, i) - 8;
    if (m->zeros)
        code -= (int)nibble(m->zeros + ((size_t)(row / 8) * m->groups + column / m->group) * 4,
                            row % 8) -
                8;
    return code * (double)float_of_word(word);
}

/* The same model with matrices of float32. */
typedef struct reference {
    qwen3_checkpoint c;
    float **blocks;
    uint32_t n;
} reference;
static void replace(reference *r, const qwen3_checkpoint *c, qwen3_tensor *t, int rounded)
{
    char name[200];
    module m;
    float *to = (float *)malloc((size_t)t->rows * t->columns * sizeof *to);
    snprintf(name, sizeof name, "%s", t->name);
    *strstr(name, ".weight") = 0;
    m = module_named(c, name, t->columns);
    for (uint32_t row = 0; row < t->rows; row++)
        for (uint32_t column = 0; column < t->columns; column++) {
            const float w = (float)weight_of(&m, row, column);
            to[(size_t)row * t->columns + column] = rounded ? float_of_bf16(bf16_of_float(w)) : w;
        }
    t->data = (const unsigned char *)to, t->dtype = QWEN3_F32;
    r->blocks = (float **)realloc((void *)r->blocks, (r->n + 1) * sizeof *r->blocks);
    r->blocks[r->n++] = to;
}
static reference reference_of(const qwen3_checkpoint *c, int rounded)
{
    const uint32_t experts = c->config.experts;
    reference r;
    memset(&r, 0, sizeof r);
    r.c = *c;
    r.c.layers = (qwen3_layer_weights *)calloc(c->config.layers, sizeof *r.c.layers);
    for (uint32_t i = 0; i < c->config.layers; i++) {
        qwen3_layer_weights *l = &r.c.layers[i];
        *l = c->layers[i];
        replace(&r, c, &l->q, rounded), replace(&r, c, &l->k, rounded),
            replace(&r, c, &l->v, rounded), replace(&r, c, &l->o, rounded);
        if (!l->sparse) {
            replace(&r, c, &l->gate, rounded), replace(&r, c, &l->up, rounded),
                replace(&r, c, &l->down, rounded);
            continue;
        }
        l->expert_gate = (qwen3_tensor *)calloc(3 * experts, sizeof *l->expert_gate);
        memcpy(l->expert_gate, c->layers[i].expert_gate, 3 * experts * sizeof *l->expert_gate);
        l->expert_up = l->expert_gate + experts, l->expert_down = l->expert_up + experts;
        for (uint32_t e = 0; e < 3 * experts; e++) replace(&r, c, &l->expert_gate[e], rounded);
    }
    return r;
}
static void reference_free(reference *r)
{
    for (uint32_t i = 0; i < r->c.config.layers; i++)
        if (r->c.layers[i].sparse) free(r->c.layers[i].expert_gate);
    for (uint32_t i = 0; i < r->n; i++) free(r->blocks[i]);
    free((void *)r->blocks);
    free(r->c.layers);
}

/* ---- decoding ---- */

enum { SEQUENCES = 11, STEPS = 3, CONTEXT = 40 };

static session_desc setting(uint32_t schedule)
{
    session_desc d;
    memset(&d, 0, sizeof d);
    d.schedule = (fleet_schedule)(FLEET_SCHEDULE_STATIC + schedule);
    d.workers = 3, d.host.waves = 2, d.seed = 1, d.page_seed = 1;
    d.steps = STEPS, d.context = CONTEXT, d.split_blocks = 1;
    return d;
}

/* The largest difference between the logits of a sequence and those of the plain decoder. */
static double plain_difference(const qwen3_checkpoint *c, const request *q,
                               const int32_t *generated, const float *logits)
{
    const uint32_t vocab = c->config.vocab;
    const size_t keys =
        (size_t)c->config.layers * CONTEXT * c->config.kv_heads * c->config.head_dim;
    double *should = (double *)malloc(vocab * sizeof *should), worst = 0;
    plain_cache cache;
    cache.k = (double *)malloc(keys * sizeof *cache.k);
    cache.v = (double *)malloc(keys * sizeof *cache.v);
    for (uint32_t k = 0; k + 1 < q->n_prompt + STEPS; k++) {
        const uint32_t token =
            k < q->n_prompt ? q->prompt[k] : (uint32_t)generated[k - q->n_prompt];
        plain_step(c, &cache, CONTEXT, k, token, should);
        if (k + 1 < q->n_prompt) continue;
        for (uint32_t v = 0; v < vocab; v++) {
            const double off =
                fabs((double)logits[(size_t)(k + 1 - q->n_prompt) * vocab + v] - should[v]);
            if (!(off <= worst)) worst = off;
        }
    }
    free(cache.k);
    free(cache.v);
    free(should);
    return worst;
}

/* A model of the folder, as it is or with weights rounded to bf16 when they are loaded, against the
   plain decoder. Each sequence has the same bits alone and beside the others. */
static void against_plain(test_run *t, const folder *f, int dequantized)
{
    qwen3_checkpoint c;
    reference r;
    model m;
    outcome all, alone;
    request requests[SEQUENCES];
    uint32_t prompts[SEQUENCES][CONTEXT];
    size_t logits;
    if (qwen3_open(&c, f->path)) test_fail(t, __FILE__, __LINE__, "%s", c.error);
    if (t->failed_here) return;
    c.config.dequantized = dequantized;
    if (model_load(&m, &c.config, &c, FLEET_SCHEDULE_AUTO, MAX_ROWS, NULL))
        test_fail(t, __FILE__, __LINE__, "%s", m.error);
    CHECK(!t->failed_here);
    CHECK_INT(m.format.codes != WEIGHTS_BF16, !dequantized);
    r = reference_of(&c, dequantized);
    memset(requests, 0, sizeof requests);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        requests[i].prompt = prompts[i], requests[i].n_prompt = 1 + i * 3 % 25;
        for (uint32_t k = 0; k < CONTEXT; k++)
            prompts[i][k] = (i * 31 + k * 17 + 5) % c.config.vocab;
    }
    logits = (size_t)STEPS * c.config.vocab;
    all = run(&m, setting(IS_QUICK), requests, SEQUENCES);
    if (all.error[0]) test_fail(t, __FILE__, __LINE__, "%s", all.error);
    for (uint32_t i = 0; i < SEQUENCES && !t->failed_here; i += IS_QUICK ? 5 : 1) {
        const int32_t *generated = all.generated + i * STEPS;
        const float *is = all.logits + i * logits;
        const double off = i % 5 ? 0 : plain_difference(&r.c, &requests[i], generated, is);
        if (!(off < 1e-4))
            test_fail(t, __FILE__, __LINE__, "a logit of sequence %u is off by %g", i, off);
        alone = run(&m, setting(i % 3), &requests[i], 1);
        if (alone.error[0] || memcmp(alone.logits, is, logits * sizeof *is) ||
            memcmp(alone.generated, generated, STEPS * sizeof *generated))
            test_fail(t, __FILE__, __LINE__, "sequence %u has other bits alone %s", i, alone.error);
        outcome_free(&alone);
    }
    outcome_free(&all);
    model_free(&m);
    reference_free(&r);
    qwen3_close(&c);
}

/* ---- formats ---- */

/* Writes to the bytes of a tensor of the folder, from byte `at` on. */
static void patch(test_run *t, const folder *f, const char *name, size_t at, const void *bytes,
                  size_t size)
{
    qwen3_bytes mapped;
    qwen3_header h;
    char path[700], error[500];
    FILE *file;
    size_t i = 0, from = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", f->path);
    if (qwen3_map(&mapped, path, error, sizeof error) ||
        qwen3_parse_safetensors(&h, mapped.at, mapped.size, path, error, sizeof error)) {
        test_fail(t, __FILE__, __LINE__, "%s", error);
        return;
    }
    while (i < h.count && strcmp(h.entries[i].name, name)) i++;
    if (i == h.count)
        test_fail(t, __FILE__, __LINE__, "no tensor %s", name);
    else
        from = h.data_at + h.entries[i].begin + at;
    qwen3_free_header(&h);
    qwen3_unmap(&mapped);
    if (t->failed_here) return;
    file = open_in(f, "model.safetensors", "r+b");
    fseek(file, (long)from, SEEK_SET);
    fwrite(bytes, 1, size, file);
    fclose(file);
}

#define FIRST "model.layers.0.self_attn.q_proj.weight"

/* Each code of the format once, in the first columns. */
static void put_all_codes(test_run *t, const folder *f, const char *how)
{
    unsigned char codes[256];
    for (uint32_t i = 0; i < 256; i++)
        codes[i] = (unsigned char)(!strncmp(how, "int4", 4) ? (i * 2 & 15) | (i * 2 + 1) << 4 : i);
    if (!strcmp(how, "fp8")) codes[0x7f] = 0x7e, codes[0xff] = 0xfe; /* but NaN */
    patch(t, f, !strcmp(how, "fp8") ? FIRST : FIRST "_packed", 0, codes,
          !strncmp(how, "int4", 4) ? 8 : 256);
}

static void formats_of(test_run *t, const char *fixture, const char *const *how, uint32_t n)
{
    for (uint32_t i = 0; i < n && !t->failed_here; i++) {
        const folder f = quantized_folder(t, fixture, how[i]);
        put_all_codes(t, &f, how[i]);
        against_plain(t, &f, 0);
        if (!IS_QUICK) against_plain(t, &f, 1);
        folder_remove(&f);
    }
}
static void dense_formats(test_run *t)
{
    static const char *const how[] = {"fp8", "int8", "int4", "int4 --group 32",
                                      "int4 --group 64 --zeros"};
    formats_of(t, DENSE, how, 5);
}
static void expert_formats(test_run *t)
{
    static const char *const how[] = {"fp8", "int8", "int4 --group 32", "int4 --group 64 --zeros"};
    formats_of(t, MOE, how, 4);
}

/* What a format costs: the largest difference between the plain decoder's logits of the folder's
   weights and those of the fixture's, after each of the same tokens. */
static double cost_of(test_run *t, const char *fixture, const char *how)
{
    enum { TOKENS = 24 };
    const folder f = quantized_folder(t, fixture, how);
    double logits[2][512], worst = 0;
    qwen3_checkpoint c[2];
    plain_cache cache[2];
    reference r;
    if (qwen3_open(&c[0], fixture) || qwen3_open(&c[1], f.path)) {
        test_fail(t, __FILE__, __LINE__, "%s%s", c[0].error, c[1].error);
        return 0;
    }
    r = reference_of(&c[1], 0);
    for (uint32_t i = 0; i < 2; i++)
        cache[i].k = (double *)malloc(sizeof(double) * TOKENS * PLAIN_MAX),
        cache[i].v = (double *)malloc(sizeof(double) * TOKENS * PLAIN_MAX);
    for (uint32_t k = 0; k < TOKENS; k++) {
        plain_step(&c[0], &cache[0], TOKENS, k, (k * 197 + 3) % 512, logits[0]);
        plain_step(&r.c, &cache[1], TOKENS, k, (k * 197 + 3) % 512, logits[1]);
        for (uint32_t v = 0; v < 512; v++)
            if (!(fabs(logits[0][v] - logits[1][v]) <= worst))
                worst = fabs(logits[0][v] - logits[1][v]);
    }
    for (uint32_t i = 0; i < 2; i++) free(cache[i].k), free(cache[i].v);
    reference_free(&r);
    qwen3_close(&c[0]);
    qwen3_close(&c[1]);
    folder_remove(&f);
    return worst;
}
/* The figures of examples/qwen3/README.md. */
static void costs(test_run *t)
{
    static const struct {
        const char *how;
        double cost;
    } list[] = {{"fp8", 1.024},
                {"int8", 0.264},
                {"int4", 4.840},
                {"int4 --group 32", 3.353},
                {"int4 --group 32 --zeros", 3.656}};
    for (uint32_t i = 0; i < sizeof list / sizeof list[0] && !t->failed_here; i++) {
        const double cost = cost_of(t, DENSE, list[i].how);
        if (!(fabs(cost - list[i].cost) < 0.001))
            test_fail(t, __FILE__, __LINE__, "%s: logits are off by %.4f, expected %.3f",
                      list[i].how, cost, list[i].cost);
    }
}

/* ---- odd shapes ---- */

/* A random dense model of bf16 with tied embeddings. */
static folder odd_model(uint32_t hidden, uint32_t ffn)
{
    enum { LAYERS = 2, VOCAB = 77, HEADS = 3, DIM = 32 };
    const uint32_t h = hidden, q = HEADS * DIM;
    const struct {
        const char *name;
        uint32_t rows, columns; /* rows 0: a vector */
    } list[] = {{"input_layernorm", 0, h},       {"post_attention_layernorm", 0, h},
                {"self_attn.q_proj", q, h},      {"self_attn.k_proj", DIM, h},
                {"self_attn.v_proj", DIM, h},    {"self_attn.o_proj", h, q},
                {"self_attn.q_norm", 0, DIM},    {"self_attn.k_norm", 0, DIM},
                {"mlp.gate_proj", ffn, h},       {"mlp.up_proj", ffn, h},
                {"mlp.down_proj", h, ffn},       {"model.norm", 0, h},
                {"model.embed_tokens", VOCAB, h}};
    const uint32_t own = 11, all = sizeof list / sizeof list[0];
    const folder f = folder_make();
    json_t *header = json_object();
    uint64_t at = 0, random = 7;
    char *text;
    size_t size;
    FILE *file = open_in(&f, "config.json", "w");
    fprintf(file,
            "{\"model_type\": \"qwen3\", \"vocab_size\": %d, \"hidden_size\": %u, "
            "\"intermediate_size\": %u, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
            "\"num_key_value_heads\": 1, \"head_dim\": %d, \"max_position_embeddings\": 512, "
            "\"rope_theta\": 1e4, \"rms_norm_eps\": 1e-6, \"tie_word_embeddings\": true}",
            VOCAB, hidden, ffn, LAYERS, HEADS, DIM);
    fclose(file);
    for (uint32_t layer = 0; layer <= LAYERS; layer++)
        for (uint32_t i = layer < LAYERS ? 0 : own; i < (layer < LAYERS ? own : all); i++) {
            const uint64_t bytes = 2ull * (list[i].rows ? list[i].rows : 1) * list[i].columns;
            char name[100], prefix[32] = "";
            if (layer < LAYERS) snprintf(prefix, sizeof prefix, "model.layers.%u.", layer);
            snprintf(name, sizeof name, "%s%s.weight", prefix, list[i].name);
            json_object_set_new(
                header, name,
                json_pack("{s:s,s:o,s:[I,I]}", "dtype", "BF16", "shape",
                          list[i].rows ? json_pack("[i,i]", (int)list[i].rows, (int)list[i].columns)
                                       : json_pack("[i]", (int)list[i].columns),
                          "data_offsets", (json_int_t)at, (json_int_t)(at + bytes)));
            at += bytes;
        }
    text = json_dumps(header, JSON_COMPACT);
    size = strlen(text);
    file = open_in(&f, "model.safetensors", "wb");
    for (uint32_t i = 0; i < 8; i++) fputc((int)((uint64_t)size >> 8 * i & 255), file);
    fwrite(text, 1, size, file);
    for (uint64_t i = 0; i < at / 2; i++) {
        uint16_t word;
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        word = bf16_of_float(((float)(random >> 40) / 8388608.0f - 1) * 0.3f);
        fputc(word & 255, file), fputc(word >> 8, file);
    }
    fclose(file);
    free(text);
    json_decref(header);
    return f;
}

/* Blocks, groups and words that are not full; embeddings that are the head. */
static void odd_shapes(test_run *t)
{
    static const struct {
        const char *how;
        uint32_t hidden, ffn;
    } list[] = {{"fp8", 96, 201},
                {"fp8", 160, 300},
                {"int8", 96, 201},
                {"int4 --group 32", 96, 224},
                {"int4 --group 32 --zeros", 32, 32 * 9}};
    for (uint32_t i = 0; i < sizeof list / sizeof list[0] && !t->failed_here; i++) {
        const folder from = odd_model(list[i].hidden, list[i].ffn),
                     f = quantized_folder(t, from.path, list[i].how);
        against_plain(t, &f, 0);
        if (!IS_QUICK) against_plain(t, &f, 1);
        folder_remove(&from);
        folder_remove(&f);
    }
}

/* ---- files that are wrong ---- */

/* Replaces the first `what` in a file of the folder. */
static void replace_in(test_run *t, const folder *f, const char *name, const char *what,
                       const char *with)
{
    static char bytes[4000000];
    const size_t cut = strlen(what), put = strlen(with);
    FILE *file = open_in(f, name, "rb");
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    size_t at = 0;
    fclose(file);
    while (at + cut <= size && memcmp(bytes + at, what, cut)) at++;
    if (at + cut > size) {
        test_fail(t, __FILE__, __LINE__, "%s has no %s", name, what);
        return;
    }
    file = open_in(f, name, "wb");
    fwrite(bytes, 1, at, file);
    fwrite(with, 1, put, file);
    fwrite(bytes + at + cut, 1, size - at - cut, file);
    fclose(file);
}

/* What is replaced in a file of a checkpoint of that format, or which bytes of a tensor are, and
   what the refusal says. */
typedef struct wrong {
    const char *how, *file, *what, *with; /* without a file: in the tensor `what` */
    const char *error;
} wrong;

#define CONFIG "config.json"
#define TENSORS "model.safetensors"
#define Q "model.layers.0.self_attn.q_proj."

static void files_are_refused(test_run *t)
{
    static const wrong list[] = {
        /* scales */
        {"fp8", NULL, FIRST "_scale_inv", "\xc0\x7f", FIRST "_scale_inv: element [0, 0] is nan"},
        {"int8", NULL, FIRST "_scale", "\x80\x7f", FIRST "_scale: element [0, 0] is inf"},
        {"int8", NULL, FIRST "_scale", "\x80\xbf", FIRST "_scale: element [0, 0] is -1, expected"},
        {"int4", NULL, FIRST "_scale", "\x00\x00", FIRST "_scale: element [0, 0] is 0, expected"},
        {"int4", NULL, FIRST "_scale", "\x00\x7f", "expected a scale above 0, at most 2.11846e+37"},
        {"fp8", TENSORS, Q "weight_scale_inv", Q "weight_scale_ins", FIRST "_scale_inv: missing"},
        {"int8", TENSORS, Q "weight_scale", Q "weight_scal_", FIRST "_scale: missing"},
        /* codes */
        {"fp8", NULL, FIRST, "\x01\x7f", FIRST ": element [0, 1] is NaN"},
        {"fp8", NULL, FIRST, "\xff\x02", FIRST ": element [0, 0] is NaN"},
        /* shapes */
        {"int4", TENSORS, "[128,16]", "[64,32] ",
         FIRST "_packed: shape [64, 32], expected [128, 16]"},
        {"int4", NULL, FIRST "_shape", "\x81\x00",
         FIRST "_shape: is [129, 128], expected [128, 128]"},
        {"int8", TENSORS, "[128,1]", "[1,128]", FIRST "_scale: shape [1, 128], expected [128, 1]"},
        {"int4", CONFIG, "\"group_size\": 128", "\"group_size\": 256",
         "group_size: 256 does not divide the 128 columns of layer 0's self_attn.q_proj"},
        {"int4", CONFIG, "\"group_size\": 128", "\"group_size\": 48",
         "group_size: 48 is not supported, expected 32, 64, 128, 256 or -1"},
        /* a config of one format and tensors of another */
        {"int4", CONFIG, "\"num_bits\": 4", "\"num_bits\": 8",
         FIRST "_packed: shape [128, 16], expected [128, 32]"},
        {"int4", CONFIG, "\"group_size\": 128", "\"group_size\": 32",
         FIRST "_scale: shape [128, 1], expected [128, 4]"},
        {"fp8", CONFIG, "\"quantization_config\"", "\"quantization_config_\"",
         FIRST ": dtype F8_E4M3, expected BF16, F16 or F32"},
        {"fp8", TENSORS, "F8_E4M3", "F8_E5M2", "dtype F8_E5M2, expected F8_E4M3"},
        {"int4 --zeros", CONFIG, "\"symmetric\": false", "\"symmetric\": true",
         "weight_zero_point: this decoder has no such weight"},
        {"int4", CONFIG, "\"symmetric\": true", "\"symmetric\": false",
         FIRST "_zero_point: missing"},
        /* what this decoder does not have */
        {"fp8", CONFIG, "\"fp8\"", "\"awful\"",
         "quantization_config: quant_method: \"awful\" is not"},
        {"fp8", CONFIG, "\"dynamic\"", "\"static\"",
         "activation_scheme: \"static\" is not supported"},
        {"fp8", CONFIG, "\"fmt\"", "\"fmd\"",
         "quantization_config: fmd: not known to this decoder"},
        {"fp8", CONFIG, "    128\n", "    64\n",
         "weight_block_size[1]: 64 is not supported, expected 128"},
        {"int8", CONFIG, "\"input_activations\": null", "\"input_activations\": {\"num_bits\": 8}",
         "input_activations: {\"num_bits\":8} is not supported"},
        {"int8", CONFIG, "\"channel\"", "\"tensor\"", "strategy: \"tensor\" is not supported"},
        {"int8", CONFIG, "\"symmetric\": true", "\"symmetric\": false", "symmetric: false is not"},
        {"int8", CONFIG, "\"num_bits\": 8", "\"num_bits\": 3", "num_bits: 3 is not supported"},
        {"int4", CONFIG, "\"type\": \"int\"", "\"type\": \"float\"",
         "type: \"float\" is not supported"},
        {"int4", CONFIG, "\"num_bits\"", "\"actorder\": \"group\", \"num_bits\"",
         "actorder: \"group\" is not supported"},
        {"int4", CONFIG, "pack-quantized", "marlin-24", "format: \"marlin-24\" is not supported"},
        {"int4", CONFIG, "\"Linear\"", "\"Embedding\"",
         "targets[0]: \"Embedding\" is not supported"},
    };
    for (uint32_t i = 0; i < sizeof list / sizeof list[0] && !t->failed_here; i++) {
        const wrong *w = &list[i];
        const folder f = quantized_folder(t, DENSE, w->how);
        qwen3_checkpoint c;
        model m;
        char error[ERROR_BYTES] = "none";
        if (w->file)
            replace_in(t, &f, w->file, w->what, w->with);
        else
            patch(t, &f, w->what, 0, w->with, 2);
        if (qwen3_open(&c, f.path)) {
            snprintf(error, sizeof error, "%s", c.error);
            CHECK(!c.layers && !c.shards);
        } else {
            for (int dequantized = 0; dequantized < 2; dequantized++) {
                c.config.dequantized = dequantized;
                CHECK_INT(model_load(&m, &c.config, &c, FLEET_SCHEDULE_AUTO, 1, NULL), RUN_REFUSED);
                snprintf(error, sizeof error, "%s", m.error);
                CHECK_TEXT(error, w->error);
                model_free(&m);
            }
            qwen3_close(&c);
        }
        CHECK_TEXT(error, w->error);
        folder_remove(&f);
    }
}

/* ---- AWQ's and GPTQ's packing ---- */

/* A file that is written: its header, and the data so far. */
typedef struct new_file {
    json_t *header;
    unsigned char *data;
    size_t used;
} new_file;
static unsigned char *new_tensor(new_file *n, const char *name, const char *dtype, json_t *shape,
                                 size_t bytes)
{
    unsigned char *at = n->data + n->used;
    json_object_set_new(n->header, name,
                        json_pack("{s:s,s:o,s:[I,I]}", "dtype", dtype, "shape", shape,
                                  "data_offsets", (json_int_t)n->used,
                                  (json_int_t)(n->used + bytes)));
    memset(at, 0, bytes);
    n->used += bytes;
    return at;
}
static unsigned char *new_matrix(new_file *n, const char *module_name, const char *end,
                                 const char *dtype, uint32_t rows, uint32_t columns, uint32_t bytes)
{
    char name[240];
    snprintf(name, sizeof name, "%s.%s", module_name, end);
    return new_tensor(n, name, dtype, json_pack("[i,i]", (int)rows, (int)columns),
                      (size_t)rows * columns * bytes);
}
static void set_nibble(unsigned char *words, size_t word, uint32_t place, unsigned value)
{
    words[word * 4 + place / 2] |= (unsigned char)(value << (place % 2 * 4));
}

/* The codes, zero points and scales of a module in the other packing. */
static void repack(new_file *n, const qwen3_checkpoint *c, const char *name, uint32_t rows,
                   uint32_t columns, int is_gptq)
{
    static const uint32_t order[] = {0, 2, 4, 6, 1, 3, 5, 7};
    const module m = module_named(c, name, columns);
    unsigned char *to = new_matrix(n, name, "qweight", "I32", is_gptq ? columns / 8 : columns,
                                   is_gptq ? rows : rows / 8, 4),
                  *zeros = new_matrix(n, name, "qzeros", "I32", m.groups, rows / 8, 4),
                  *scales = new_matrix(n, name, "scales", "BF16", m.groups, rows, 2);
    char indices[240];
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t k = 0; k < columns && is_gptq; k++)
            set_nibble(to, (size_t)(k / 8) * rows + r, k % 8,
                       nibble(m.codes, (size_t)r * columns + k));
    for (uint32_t k = 0; k < columns && !is_gptq; k++)
        for (uint32_t r = 0; r < rows; r++)
            set_nibble(to, (size_t)k * (rows / 8) + r / 8, r % 8,
                       nibble(m.codes, (size_t)(r / 8 * 8 + order[r % 8]) * columns + k));
    for (uint32_t g = 0; g < m.groups; g++)
        for (uint32_t r = 0; r < rows; r++) {
            const uint32_t of = is_gptq ? r : r / 8 * 8 + order[r % 8];
            const unsigned zero = nibble(m.zeros + ((size_t)(of / 8) * m.groups + g) * 4, of % 8);
            set_nibble(zeros, (size_t)g * (rows / 8) + r / 8, r % 8, zero - (is_gptq ? 1u : 0));
            memcpy(scales + ((size_t)g * rows + r) * 2, m.scales + ((size_t)r * m.groups + g) * 2,
                   2);
        }
    if (!is_gptq) return;
    snprintf(indices, sizeof indices, "%s.g_idx", name);
    to = new_tensor(n, indices, "I32", json_pack("[i]", (int)columns), (size_t)columns * 4);
    for (uint32_t k = 0; k < columns; k++) to[4 * k] = (unsigned char)(k / m.group);
}
static folder repacked(test_run *t, const char *fixture, const folder *from, int is_gptq)
{
    static const char config[] =
        "\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, "
        "\"group_size\": 32, \"zero_point\": true, \"version\": \"gemm\"},";
    static const char gptq[] = "\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, "
                               "\"group_size\": 32, \"desc_act\": false, \"sym\": false, "
                               "\"checkpoint_format\": \"gptq\"},";
    const folder f = folder_make();
    static char text[10000];
    qwen3_checkpoint c;
    const qwen3_header *h;
    new_file n;
    char path[700], *header;
    FILE *file;
    size_t size;
    if (qwen3_open(&c, from->path)) {
        test_fail(t, __FILE__, __LINE__, "%s", c.error);
        return f;
    }
    h = &c.shards[0].header;
    n.header = json_object(), n.used = 0;
    n.data = (unsigned char *)malloc(2 * c.shards[0].mapped.size);
    for (size_t i = 0; i < h->count; i++) {
        const qwen3_entry *e = &h->entries[i];
        const size_t bytes = (size_t)(e->end - e->begin);
        char name[200], *end;
        snprintf(name, sizeof name, "%s", e->name);
        end = strstr(name, ".weight_");
        if (end && strcmp(end, ".weight_packed")) continue;
        if (end) {
            *end = 0;
            repack(&n, &c, name, (uint32_t)e->shape[0], 8 * (uint32_t)e->shape[1], is_gptq);
        } else {
            memcpy(new_tensor(&n, name, e->dtype_name,
                              e->dimensions == 1
                                  ? json_pack("[i]", (int)e->shape[0])
                                  : json_pack("[i,i]", (int)e->shape[0], (int)e->shape[1]),
                              bytes),
                   c.shards[0].mapped.at + h->data_at + e->begin, bytes);
        }
    }
    header = json_dumps(n.header, JSON_COMPACT);
    size = strlen(header);
    file = open_in(&f, "model.safetensors", "wb");
    for (uint32_t i = 0; i < 8; i++) fputc((int)((uint64_t)size >> 8 * i & 255), file);
    fwrite(header, 1, size, file);
    fwrite(n.data, 1, n.used, file);
    fclose(file);
    free(header);
    free(n.data);
    json_decref(n.header);
    qwen3_close(&c);
    snprintf(path, sizeof path, "%s/config.json", fixture);
    file = fopen(path, "rb");
    size = file ? fread(text, 1, sizeof text, file) : 0;
    if (file) fclose(file);
    file = open_in(&f, "config.json", "wb");
    fprintf(file, "{%s%.*s", is_gptq ? gptq : config, (int)size - 1, text + 1);
    fclose(file);
    return f;
}

static outcome decoded(test_run *t, const folder *f, int dequantized)
{
    static const uint32_t prompt[] = {3, 141, 59, 26};
    qwen3_checkpoint c;
    model m;
    request requests[1];
    outcome o;
    memset(&o, 0, sizeof o);
    if (qwen3_open(&c, f->path)) {
        test_fail(t, __FILE__, __LINE__, "%s", c.error);
        return o;
    }
    c.config.dequantized = dequantized;
    if (model_load(&m, &c.config, &c, FLEET_SCHEDULE_AUTO, 1, NULL))
        test_fail(t, __FILE__, __LINE__, "%s", m.error);
    memset(requests, 0, sizeof requests);
    requests[0].prompt = prompt, requests[0].n_prompt = 4;
    if (!t->failed_here) o = run(&m, setting(0), requests, 1);
    if (o.error[0]) test_fail(t, __FILE__, __LINE__, "%s", o.error);
    model_free(&m);
    qwen3_close(&c);
    return o;
}

/* The same codes, zero points and scales in another packing give the same bits. */
static void other_packings(test_run *t)
{
    for (int i = 0; i < (IS_QUICK ? 2 : 4) && !t->failed_here; i++) {
        const char *fixture = i / 2 ? MOE : DENSE;
        const folder from = quantized_folder(t, fixture, "int4 --group 32 --zeros"),
                     f = repacked(t, fixture, &from, i % 2);
        for (int dequantized = 0; dequantized < 2 && !t->failed_here; dequantized++) {
            outcome should = decoded(t, &from, dequantized), is = decoded(t, &f, dequantized);
            if (!t->failed_here)
                CHECK(!memcmp(is.logits, should.logits, STEPS * 512 * sizeof(float)));
            outcome_free(&should);
            outcome_free(&is);
        }
        folder_remove(&from);
        folder_remove(&f);
    }
}

/* Bad files of these; as files_are_refused. */
static void other_packings_are_refused(test_run *t)
{
#define QWEIGHT "model.layers.0.self_attn.q_proj.q"
    static const wrong list[] = {
        {"awq", CONFIG, "\"bits\": 4", "\"bits\": 8",
         "quantization_config: bits: 8 is not supported"},
        {"awq", CONFIG, "\"gemm\"", "\"gemv\"", "version: \"gemv\" is not supported"},
        {"awq", CONFIG, "\"zero_point\": true", "\"zero_point\": false",
         "zero_point: false is not"},
        {"awq", CONFIG, "\"awq\"", "\"gptq\"", "quantization_config: zero_point: not known"},
        {"awq", CONFIG, "\"group_size\": 32", "\"group_size\": 256",
         "group_size: 256 does not divide"},
        {"awq", CONFIG, "\"group_size\": 32", "\"group_size\": -1",
         "qzeros: shape [4, 16], expected [1"},
        {"awq", TENSORS, QWEIGHT "zeros", QWEIGHT "zeroX", QWEIGHT "zeros: missing"},
        {"awq", NULL, Q "scales", "\x00\x80", Q "scales: element [0, 0] is -0"},
        {"gptq", CONFIG, "\"desc_act\": false", "\"desc_act\": true", "desc_act: true is not"},
        {"gptq", CONFIG, "\"gptq\"}", "\"gptq_v2\"}",
         "checkpoint_format: \"gptq_v2\" is not supported"},
        {"gptq", NULL, Q "g_idx", "\x01\x00", Q "g_idx: element 0 is 1, expected 0: columns must"},
    };
    for (uint32_t i = 0; i < sizeof list / sizeof list[0] && !t->failed_here; i++) {
        const wrong *w = &list[i];
        const folder from = quantized_folder(t, DENSE, "int4 --group 32 --zeros"),
                     f = repacked(t, DENSE, &from, !strcmp(w->how, "gptq"));
        qwen3_checkpoint c;
        if (w->file)
            replace_in(t, &f, w->file, w->what, w->with);
        else
            patch(t, &f, w->what, 0, w->with, 2);
        CHECK(qwen3_open(&c, f.path));
        CHECK_TEXT(c.error, w->error);
        folder_remove(&from);
        folder_remove(&f);
    }
}

static void list(test_run *t)
{
    TEST(dense_formats);
    TEST(expert_formats);
    TEST(costs);
    TEST(odd_shapes);
    TEST(files_are_refused);
    TEST(other_packings);
    TEST(other_packings_are_refused);
}

TEST_MAIN(list)
