/* The checkpoint loader of examples/qwen3: the right values out of good files, whatever their spelling, type, place and
   number; and for each bad file a message that names the file and what is wrong in it. */
// run: asan whole
#ifndef _XOPEN_SOURCE /* for mkdtemp and mkfifo, which C11 alone hides */
#define _XOPEN_SOURCE 700
#endif
#include "../../examples/qwen3/expected.h"
#include "folder.h"
#include "test.h"

#include <math.h>

#define DENSE "tests/fixtures/qwen3-tiny"
#define MOE "tests/fixtures/qwen3-moe-tiny"

/* ---- files and texts ---- */

static char *read_file(const char *dir, const char *name, size_t *size)
{
    char path[512], *bytes;
    long n;
    FILE *f;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) || (n = ftell(f)) < 0) {
        printf("FAIL read_file: cannot read %s: run this at the top of the repository\n", path);
        exit(1);
    }
    bytes = (char *)calloc((size_t)n + 1, 1);
    rewind(f);
    *size = fread(bytes, 1, (size_t)n, f);
    fclose(f);
    return bytes;
}

static void write_file(const char *dir, const char *name, const void *bytes, size_t size)
{
    char path[512];
    FILE *f;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f)) {
        printf("FAIL write_file: cannot write %s\n", path);
        exit(1);
    }
}

/* `text` with the first `what` replaced, in memory of its own; NULL: it has none. */
static char *replaced(const char *text, const char *what, const char *with)
{
    const char *at = strstr(text, what);
    const size_t size = strlen(text) + strlen(with) + 1;
    char *out = at ? (char *)malloc(size) : NULL;
    if (out) snprintf(out, size, "%.*s%s%s", (int)(at - text), text, with, at + strlen(what));
    return out;
}

/* ---- checkpoints made of a fixture ---- */

/* How a checkpoint differs from the fixture of which it is made. */
typedef struct recipe {
    qwen3_dtype dtype;
    uint32_t shards;                 /* 0: one file, no index */
    size_t pad;                      /* spaces after the header */
    const char *without, *elsewhere; /* tensors: left out; left out, but still in the index */
    const char *odd, *odd_dtype,
        *odd_shape;  /* a tensor of which the header says something else, if not NULL */
    const char *bad; /* a tensor whose last element becomes an infinity */
    const char *config_what, *config_with; /* an edit of config.json */
} recipe;

static double double_of_bf16(uint16_t bits)
{
    const int exponent = bits >> 7 & 255, mantissa = bits & 127;
    const double value = exponent ? ldexp(128 + mantissa, exponent - 134) : ldexp(mantissa, -133);
    return bits & 0x8000 ? -value : value;
}

static double double_of_f16(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double value = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return bits & 0x8000 ? -value : value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The bf16 nearest to a float, by distance: not as the loader does it. 0x7f80: none is near enough. */
static uint16_t nearest_bf16(double value)
{
    const double magnitude = fabs(value), end = ldexp(255, 120), half = ldexp(1, 119);
    uint16_t low = 0, high = 0x7f7f,
             sign = value < 0 || (value == 0 && signbit(value)) ? 0x8000 : 0;
    double below, above;
    if (magnitude >= end + half) return (uint16_t)(sign | 0x7f80);
    if (magnitude >= end) return (uint16_t)(sign | 0x7f7f);
    while (high - low > 1) {
        const uint16_t middle = (uint16_t)((low + high) / 2);
        if (double_of_bf16(middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    below = magnitude - double_of_bf16(low);
    above = double_of_bf16(high) - magnitude;
    return (uint16_t)(sign | (above < below || (above == below && low % 2) ? high : low));
}

/* The F16 nearest to a value that is below its largest. */
static uint16_t f16_of_double(double value)
{
    int exponent;
    double scaled = fabs(value);
    frexp(scaled, &exponent);
    if (exponent < -13) exponent = -13; /* subnormal from there on */
    scaled = nearbyint(ldexp(scaled, 11 - exponent));
    return (uint16_t)((value < 0 ? 0x8000 : 0) | (((exponent + 13) << 10) + (int)scaled));
}

/* The element `i` of bf16s, written to `to` as another type; returns how many bytes. */
static size_t put_element(char *to, const char *from, size_t i, qwen3_dtype dtype)
{
    uint16_t bits, half;
    float wide;
    memcpy(&bits, from + 2 * i, 2);
    wide = (float)double_of_bf16(bits);
    half = dtype == QWEN3_F16 ? f16_of_double(wide) : bits;
    if (dtype == QWEN3_F32)
        memcpy(to, &wide, 4);
    else
        memcpy(to, &half, 2);
    return dtype == QWEN3_F32 ? 4 : 2;
}

static int same(const char *a, const char *b)
{
    return a && strcmp(a, b) == 0;
}

/* Writes the tensors of `h` whose number is `part` modulo `parts` as one file. */
static void write_tensors(const char *dir, const char *name, const qwen3_header *h,
                          const char *from, const recipe *r, uint32_t part, uint32_t parts)
{
    static const char *const types[] = {"BF16", "F16", "F32"};
    char *out = (char *)malloc(8 + 64 * 1024 + 4 * 1024 * 1024), *header = out + 8, *data;
    size_t used = 0, at = 0, i, j, k, pieces = 0;
    used += (size_t)snprintf(header, 64, "{\"__metadata__\": {\"format\": \"pt\"}");
    data = (char *)malloc(4 * 1024 * 1024);
    for (i = part; i < h->count; i += parts) {
        const qwen3_entry *e = &h->entries[i];
        const size_t begin = at, elements = (e->end - e->begin) / 2;
        const int odd = same(r->odd, e->name);
        char shape[100];
        if (same(r->without, e->name) || same(r->elsewhere, e->name)) continue;
        for (j = 0; j < elements; j++)
            at += put_element(data + at, from + h->data_at + e->begin, j, r->dtype);
        if (same(r->bad, e->name))
            for (k = 1; k <= 2; k++)
                data[at - k] = (char)(k == 1 ? 0x7f : 0x80); /* bf16's infinity */
        snprintf(shape, sizeof shape, e->dimensions == 2 ? "[%u, %u]" : "[%u]",
                 (unsigned)e->shape[0], (unsigned)e->shape[1]);
        used += (size_t)snprintf(header + used, 400,
                                 ", \"%s\": {\"dtype\": \"%s\", \"shape\": %s, "
                                 "\"data_offsets\": [%zu, %zu]}",
                                 e->name, odd && r->odd_dtype ? r->odd_dtype : types[r->dtype],
                                 odd && r->odd_shape ? r->odd_shape : shape, begin, at);
        pieces++;
    }
    header[used++] = '}';
    memset(header + used, ' ', r->pad);
    used += r->pad;
    for (k = 0; k < 8; k++) out[k] = (char)(used >> (8 * k) & 255);
    memcpy(header + used, data, at);
    if (pieces) write_file(dir, name, out, 8 + used + at);
    free(data);
    free(out);
}

static void write_index(const char *dir, const qwen3_header *h, const recipe *r)
{
    char *out = (char *)malloc(64 * 1024);
    size_t used =
        (size_t)snprintf(out, 100, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    size_t i, pieces = 0;
    for (i = 0; i < h->count; i++)
        if (!same(r->without, h->entries[i].name))
            used += (size_t)snprintf(out + used, 300, "%s\"%s\": \"model-%u-of-%u.safetensors\"",
                                     pieces++ ? ", " : "", h->entries[i].name,
                                     (unsigned)(i % r->shards), r->shards);
    used += (size_t)snprintf(out + used, 3, "}}");
    write_file(dir, "model.safetensors.index.json", out, used);
    free(out);
}

/* Writes config.json and the weights into the folder. */
static void make(const char *dir, const char *fixture, const recipe *r)
{
    char error[512] = "", name[64], *config, *edited, *weights;
    size_t config_size, size;
    qwen3_header h;
    uint32_t i;
    config = read_file(fixture, "config.json", &config_size);
    edited = r->config_what ? replaced(config, r->config_what, r->config_with) : NULL;
    weights = read_file(fixture, "model.safetensors", &size);
    if ((r->config_what && !edited) ||
        qwen3_parse_safetensors(&h, (const unsigned char *)weights, size, fixture, error,
                                sizeof error)) {
        printf("FAIL make: %s%s\n", error, r->config_what);
        exit(1);
    }
    write_file(dir, "config.json", edited ? edited : config, strlen(edited ? edited : config));
    if (r->shards) write_index(dir, &h, r);
    for (i = 0; i < r->shards; i++) {
        snprintf(name, sizeof name, "model-%u-of-%u.safetensors", i, r->shards);
        write_tensors(dir, name, &h, weights, r, i, r->shards);
    }
    if (!r->shards) write_tensors(dir, "model.safetensors", &h, weights, r, 0, 1);
    qwen3_free_header(&h);
    free(weights);
    free(edited);
    free(config);
}

static recipe plain_recipe(void)
{
    recipe r;
    memset(&r, 0, sizeof r);
    return r;
}

/* ---- every tensor of a checkpoint ---- */

#define MOST_TENSORS 200

static size_t list_tensors(const qwen3_checkpoint *c, const qwen3_tensor *list[MOST_TENSORS])
{
    uint32_t layer, e;
    size_t n = 0;
    list[n++] = &c->embed;
    list[n++] = &c->norm;
    if (!c->config.tied) list[n++] = &c->head;
    for (layer = 0; layer < c->config.layers; layer++) {
        const qwen3_layer_weights *w = &c->layers[layer];
        const qwen3_tensor *const dense[] = {&w->input_norm, &w->post_norm, &w->q,      &w->k,
                                             &w->v,          &w->o,         &w->q_norm, &w->k_norm,
                                             &w->gate,       &w->up,        &w->down};
        for (e = 0; e < (w->sparse ? 8u : 11u); e++) list[n++] = dense[e];
        if (!w->sparse) continue;
        list[n++] = &w->router;
        for (e = 0; e < c->config.experts; e++) {
            list[n++] = &w->expert_gate[e];
            list[n++] = &w->expert_up[e];
            list[n++] = &w->expert_down[e];
        }
    }
    return n;
}

static uint64_t elements_of(const qwen3_tensor *t)
{
    return (uint64_t)t->rows * t->columns;
}

/* All bf16s of a checkpoint added up as integers, and how many there are. */
static int add_up(const qwen3_checkpoint *c, uint64_t *sum, uint64_t *count, char *error,
                  size_t size)
{
    static uint16_t bits[1 << 17];
    const qwen3_tensor *list[MOST_TENSORS];
    const size_t n = list_tensors(c, list);
    uint64_t j;
    size_t i;
    for (*sum = *count = i = 0; i < n; i++) {
        if (qwen3_tensor_to_bf16(list[i], 0, elements_of(list[i]), bits, error, size)) return -1;
        for (j = 0; j < elements_of(list[i]); j++) *sum += bits[j];
        *count += j;
    }
    return 0;
}

/* Whether a checkpoint has the tensors of a fixture and, as bf16 and as float, its values: those that are left of
   them where it was made as F16. */
static void check_same(test_run *t, const qwen3_checkpoint *fixture, const qwen3_checkpoint *c)
{
    static uint16_t half[2][1 << 17];
    static float wide[1 << 17];
    const qwen3_tensor *list[2][MOST_TENSORS];
    char error[512] = "";
    size_t n = list_tensors(fixture, list[0]), i, exact = 0, all = 0;
    uint64_t k;
    CHECK_INT(list_tensors(c, list[1]), n);
    for (i = 0; i < n; i++) {
        const qwen3_tensor *x = list[0][i], *y = list[1][i];
        CHECK(strcmp(x->name, y->name) == 0);
        CHECK_INT(x->rows, y->rows);
        CHECK_INT(x->columns, y->columns);
        if (qwen3_tensor_to_bf16(x, 0, elements_of(x), half[0], error, sizeof error) ||
            qwen3_tensor_to_bf16(y, 0, elements_of(x), half[1], error, sizeof error) ||
            qwen3_tensor_to_f32(y, 0, elements_of(x), wide, error, sizeof error)) {
            test_fail(t, __FILE__, __LINE__, "%s", error);
            return;
        }
        for (k = 0; k < elements_of(x); k++) {
            double value = double_of_bf16(half[0][k]);
            if (y->dtype == QWEN3_F16) value = double_of_f16(f16_of_double(value));
            CHECK_INT(bits_of(wide[k]), bits_of((float)value));
            all++;
            if (half[1][k] == half[0][k])
                exact++;
            else
                CHECK_INT(half[1][k], nearest_bf16(value));
        }
        CHECK(y->dtype == QWEN3_F16 || exact == all);
    }
    CHECK(exact > all - all / 100); /* F16 has no room for the smallest few */
}

/* Opens, or fails the test with the loader's message. */
#define OPEN(c, dir)                                                                               \
    do {                                                                                           \
        if (qwen3_open(c, dir)) {                                                                  \
            test_fail(t, __FILE__, __LINE__, "%s", (c)->error);                                    \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* ---- good files ---- */

/* `at`: where its data_offsets begin. */
static void check_tensor(test_run *t, const qwen3_checkpoint *c, const qwen3_tensor *x,
                         const char *name, uint64_t at, uint32_t rows, uint32_t columns,
                         double first, double last)
{
    float value[2];
    char error[512] = "";
    CHECK(x->data == c->shards[0].mapped.at + 8 + c->shards[0].mapped.at[0] +
                         256 * c->shards[0].mapped.at[1] + at);
    CHECK(strcmp(x->name, name) == 0);
    CHECK(strcmp(x->file, "model.safetensors") == 0);
    CHECK_INT(x->dtype, QWEN3_BF16);
    CHECK_INT(x->rows, rows);
    CHECK_INT(x->columns, columns);
    CHECK_INT(qwen3_tensor_to_f32(x, 0, 1, value, error, sizeof error), 0);
    CHECK_INT(qwen3_tensor_to_f32(x, elements_of(x) - 1, 1, value + 1, error, sizeof error), 0);
    CHECK(value[0] == (float)first && value[1] == (float)last);
}

static void dense_fixture(test_run *t)
{
    void *mapped;
    qwen3_checkpoint c;
    uint64_t sum, count;
    uint32_t i;
    OPEN(&c, DENSE);
    CHECK_INT(c.config.vocab, 512);
    CHECK_INT(c.config.hidden, 128);
    CHECK_INT(c.config.ffn, 384);
    CHECK_INT(c.config.layers, 4);
    CHECK_INT(c.config.heads, 4);
    CHECK_INT(c.config.kv_heads, 2);
    CHECK_INT(c.config.head_dim, 32);
    CHECK_INT(c.config.positions, 512);
    CHECK(c.config.rope_theta == 10000.0 && c.config.norm_eps == 1e-6);
    CHECK_INT(c.config.tied, 0);
    CHECK_INT(c.config.eos_count, 0);
    CHECK_INT(c.config.experts, 0);
    CHECK_INT(c.config.sparse_layers, 0);
    for (i = 0; i < 4; i++) CHECK(!c.layers[i].sparse && !c.layers[i].expert_gate);
    check_tensor(t, &c, &c.head, "lm_head.weight", 0, 512, 128, -0.28125, -0.039794921875);
    check_tensor(t, &c, &c.embed, "model.embed_tokens.weight", 131072, 512, 128, -0.031494140625,
                 0.2119140625);
    check_tensor(t, &c, &c.norm, "model.norm.weight", 1837568, 1, 128, 1.0546875, 1.0078125);
    check_tensor(t, &c, &c.layers[3].up, "model.layers.3.mlp.up_proj.weight", 1640576, 384, 128,
                 0.0791015625, 0.07421875);
    check_tensor(t, &c, &c.layers[1].k_norm, "model.layers.1.self_attn.k_norm.weight", 951424, 1,
                 32, 1, 0.859375);
    CHECK_INT(add_up(&c, &sum, &count, c.error, sizeof c.error), 0);
    CHECK_INT(sum, 29490811312);
    CHECK_INT(count, 918912);
    CHECK_INT(c.config.parameters, 918912);
    mapped = (void *)(uintptr_t)c.shards[0].mapped.at;
    CHECK_INT(msync(mapped, 1, MS_ASYNC), 0);
    qwen3_close(&c);
    qwen3_close(&c);
    CHECK(msync(mapped, 1, MS_ASYNC) == -1 && errno == ENOMEM); /* nothing is mapped there */
}

static void moe_fixture(test_run *t)
{
    qwen3_checkpoint c;
    uint64_t sum, count;
    uint32_t i;
    OPEN(&c, MOE);
    CHECK_INT(c.config.layers, 3);
    CHECK_INT(c.config.experts, 8);
    CHECK_INT(c.config.experts_per_token, 2);
    CHECK_INT(c.config.expert_ffn, 64);
    CHECK_INT(c.config.norm_topk, 1);
    CHECK_INT(c.config.sparse_layers, 3);
    for (i = 0; i < 3; i++) CHECK(c.layers[i].sparse && !c.layers[i].gate.data);
    check_tensor(t, &c, &c.layers[2].expert_down[7],
                 "model.layers.2.mlp.experts.7.down_proj.weight", 1594880, 128, 64, -0.2001953125,
                 -0.051513671875);
    check_tensor(t, &c, &c.layers[2].router, "model.layers.2.mlp.gate.weight", 1644032, 8, 128,
                 0.043701171875, -0.0712890625);
    CHECK_INT(add_up(&c, &sum, &count, c.error, sizeof c.error), 0);
    CHECK_INT(sum, 28009502813);
    CHECK_INT(count, 872512);
    CHECK_INT(c.config.parameters, 872512);
    qwen3_close(&c);
}

static void expected_fixtures(test_run *t)
{
    static const char *const fixtures[] = {DENSE, MOE};
    static const double sums[] = {7.115458, 7.35231}, first[] = {-1.31366, -0.385532},
                        last[] = {2.150137, 2.375018};
    char error[512] = "";
    uint32_t i, j;
    for (i = 0; i < 2; i++) {
        qwen3_config config;
        qwen3_expected e;
        CHECK_INT(qwen3_config_read(&config, fixtures[i], error, sizeof error), 0);
        CHECK_INT(qwen3_expected_read(&e, &config, fixtures[i], error, sizeof error), 0);
        CHECK_INT(e.count, 3);
        for (j = 0; j < 3; j++) {
            CHECK_INT(e.cases[j].prompt_count, j == 0 ? 1 : j == 1 ? 5 : 17);
            CHECK_INT(e.cases[j].greedy_count, j == 2 ? 16 : 24);
            CHECK_INT(e.cases[j].check_count, 2);
            CHECK_INT(e.cases[j].checks[1].step, e.cases[j].greedy_count - 1);
        }
        CHECK_INT(e.cases[0].checks[0].step, 0);
        CHECK(e.cases[0].checks[0].logsumexp == sums[i]);
        CHECK(e.cases[0].checks[0].logits[0] == first[i] &&
              e.cases[0].checks[0].logits[15] == last[i]);
        if (i == 0) {
            CHECK_INT(e.cases[0].prompt[0], 318);
            CHECK_INT(e.cases[0].greedy[0], 195);
            CHECK_INT(e.cases[0].greedy[23], 442);
            CHECK(e.cases[0].top2_margin[0] == 0.08073 && e.cases[0].top2_margin[23] == 0.90044);
        }
        qwen3_expected_close(&e);
        qwen3_expected_close(&e);
    }
}

/* ---- config.json: what it may say, and how ---- */

#define ROPE                                                                                       \
    "\"rope_parameters\": {\n    \"rope_theta\": 10000.0,\n    \"rope_type\": \"default\"\n  }"

typedef struct edit {
    const char *fixture, *what, *with;
    const char *error; /* NULL: it is read */
} edit;

/* Parses a fixture's config.json after the edit. */
static int edited_config(test_run *t, const edit *e, qwen3_config *config, char error[512])
{
    size_t size;
    char *text = read_file(e->fixture, "config.json", &size),
         *edited = replaced(text, e->what, e->with);
    int result = 1;
    error[0] = 0;
    if (!edited)
        test_fail(t, __FILE__, __LINE__, "the fixture does not have: %s", e->what);
    else
        result = qwen3_parse_config(config, edited, strlen(edited), "config.json", error, 512);
    free(edited);
    free(text);
    return result;
}

static void config_spellings(test_run *t)
{
    static const struct {
        edit e;
        double theta;
        uint32_t eos_count, eos, head_dim, experts, sparse; /* sparse: a bit for each layer */
    } table[] = {
        {{DENSE, ROPE, "\"rope_theta\": 1e6", NULL}, 1e6, 0, 0, 32, 0, 0},
        {{DENSE, ROPE, "\"rope_theta\": 1000000, \"rope_scaling\": null", NULL},
         1e6,
         0,
         0,
         32,
         0,
         0},
        {{DENSE, ROPE, "\"rope_theta\": 5000, \"rope_scaling\": {\"type\": \"default\"}", NULL},
         5000,
         0,
         0,
         32,
         0,
         0},
        {{DENSE, ROPE, "\"rope_theta\": 5000, \"rope_parameters\": null", NULL},
         5000,
         0,
         0,
         32,
         0,
         0},
        {{DENSE, ROPE, "\"rope_theta\": 5000, \"rope_parameters\": {\"rope_type\": \"default\"}",
          NULL},
         5000,
         0,
         0,
         32,
         0,
         0},
        {{DENSE, ROPE, "\"rope_theta\": 5000, \"rope_parameters\": {\"rope_theta\": 5e3}", NULL},
         5000,
         0,
         0,
         32,
         0,
         0},
        {{DENSE, "\"dtype\"", "\"torch_dtype\"", NULL}, 1e4, 0, 0, 32, 0, 0},
        {{DENSE, "\"eos_token_id\": null", "\"eos_token_id\": 511", NULL}, 1e4, 1, 511, 32, 0, 0},
        {{DENSE, "\"eos_token_id\": null", "\"eos_token_id\": [7, 511]", NULL},
         1e4,
         2,
         7,
         32,
         0,
         0},
        {{DENSE, "\"eos_token_id\": null,", "", NULL}, 1e4, 0, 0, 32, 0, 0},
        {{DENSE, "\"head_dim\": 32", "\"head_dim\": 64", NULL}, 1e4, 0, 0, 64, 0, 0},
        {{DENSE, "\"head_dim\": 32,", "", NULL}, 1e4, 0, 0, 32, 0, 0},
        {{DENSE, "\"head_dim\": 32", "\"head_dim\": null", NULL}, 1e4, 0, 0, 32, 0, 0},
        {{DENSE, "\"hidden_act\": \"silu\",", "", NULL}, 1e4, 0, 0, 32, 0, 0},
        {{DENSE, "\"layer_types\"", "\"ignored\"", NULL}, 1e4, 0, 0, 32, 0, 0},
        {{DENSE, "\"use_cache\"", "\"num_experts\": 8, \"use_cache\"", NULL}, 1e4, 0, 0, 32, 0, 0},
        {{MOE, "\"num_local_experts\"", "\"num_experts\"", NULL}, 1e4, 0, 0, 32, 8, 7},
        {{MOE, "\"num_local_experts\": 8", "\"num_experts\": 8, \"num_local_experts\": 8", NULL},
         1e4,
         0,
         0,
         32,
         8,
         7},
        {{MOE, "\"num_local_experts\": 8", "\"num_local_experts\": 0", NULL}, 1e4, 0, 0, 32, 0, 0},
        {{MOE, "\"decoder_sparse_step\": 1,", "", NULL}, 1e4, 0, 0, 32, 8, 7},
        {{MOE, "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 2", NULL},
         1e4,
         0,
         0,
         32,
         8,
         2},
        {{MOE, "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 3", NULL},
         1e4,
         0,
         0,
         32,
         8,
         4},
        {{MOE, "\"mlp_only_layers\": []", "\"mlp_only_layers\": [0, 2]", NULL},
         1e4,
         0,
         0,
         32,
         8,
         2},
        {{MOE, "\"mlp_only_layers\": []", "\"mlp_only_layers\": null", NULL}, 1e4, 0, 0, 32, 8, 7},
    };
    qwen3_config config;
    char error[512];
    uint32_t i, layer, sparse;
    for (i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (edited_config(t, &table[i].e, &config, error))
            test_fail(t, __FILE__, __LINE__, "%s: %s", table[i].e.with, error);
        for (layer = sparse = 0; layer < QWEN3_MAX_LAYERS; layer++)
            if (config.sparse[layer]) sparse |= 1u << layer;
        if (config.rope_theta != table[i].theta || config.eos_count != table[i].eos_count ||
            config.eos[0] != table[i].eos || config.head_dim != table[i].head_dim ||
            config.experts != table[i].experts || sparse != table[i].sparse)
            test_fail(t, __FILE__, __LINE__, "%s: read with other values", table[i].e.with);
        if (table[i].eos_count == 2) CHECK_INT(config.eos[1], 511);
    }
}

static void config_refused(test_run *t)
{
    static const edit table[] = {
        {DENSE, "\"qwen3\"", "\"llama\"", "model_type: \"llama\" is not supported"},
        {DENSE, "\"qwen3\"", "3", "model_type: expected a string, found an integer"},
        {DENSE, "\"model_type\"", "\"kind\"", "model_type: missing"},
        {DENSE, "\"silu\"", "\"gelu\"", "hidden_act: \"gelu\" is not supported"},
        {DENSE, "\"silu\"", "\"\\u001b[2Jgelu\"", "hidden_act: \"\\u001B[2Jgelu\""},
        {DENSE, "\"attention_bias\": false", "\"attention_bias\": true",
         "attention_bias: true is not supported"},
        {DENSE, "\"attention_bias\": false", "\"attention_bias\": 0",
         "attention_bias: 0 is not supported, expected false"},
        {DENSE, "\"use_sliding_window\": false", "\"use_sliding_window\": true",
         "use_sliding_window: true is not supported"},
        {DENSE, "\"use_cache\": true", "\"quantization_config\": {\"quant_method\": \"fp8\"}",
         "quantization_config: weight_block_size: missing"},
        {DENSE, "\"Qwen3ForCausalLM\"", "\"Qwen3ForSequenceClassification\"",
         "architectures[0]: \"Qwen3ForSequenceClassification\" is not supported"},
        {DENSE, "\"Qwen3ForCausalLM\"", "\"Qwen3ForCausalLM\", \"Qwen3Model\"",
         "architectures[1]: \"Qwen3Model\" is not supported"},
        {MOE, "\"Qwen3MoeForCausalLM\"", "\"Qwen3ForCausalLM\"",
         "architectures[0]: \"Qwen3ForCausalLM\" is not supported"},
        {DENSE, "\"use_cache\": true", "\"is_causal\": false", "is_causal: false is not supported"},
        {DENSE, "\"use_cache\": true", "\"partial_rotary_factor\": 0.5",
         "partial_rotary_factor: 0.5 is not supported, expected 1"},
        {DENSE, "\"use_cache\": true", "\"compression_config\": {}",
         "compression_config: {} is not supported"},
        {DENSE, "\"use_cache\": true", "\"final_logit_softcapping\": 30.0",
         "final_logit_softcapping: 30.0 is not supported"},
        {DENSE, "\"full_attention\"", "\"sliding_attention\"",
         "layer_types[0]: \"sliding_attention\" is not supported"},
        {DENSE, "\"full_attention\"", "null", "layer_types[0]: expected a string, found null"},
        {DENSE, "\"full_attention\",", "", "layer_types: 3 items, expected 4 to 4"},
        {DENSE, ROPE, "\"rope_theta\": 1e6, \"rope_scaling\": {\"rope_type\": \"yarn\"}",
         "rope_scaling: rope_type: \"yarn\" is not supported"},
        {DENSE, ROPE, "\"rope_theta\": 1e6, \"rope_scaling\": {\"type\": \"linear\"}",
         "rope_scaling: type: \"linear\" is not supported"},
        {DENSE, ROPE, "\"rope_theta\": 1e6, \"rope_scaling\": \"yarn\"",
         "rope_scaling: expected an object, found a string"},
        {DENSE, ROPE, "\"rope_theta\": 1e6, \"rope_scaling\": {\"factor\": 4.0}",
         "rope_scaling: factor: 4.0 is not supported"},
        {DENSE, ROPE,
         "\"rope_theta\": 1e6, \"rope_scaling\": {\"type\": \"default\", \"mrope_section\": [16, "
         "24, 24]}",
         "rope_scaling: mrope_section: [16,24,24] is not supported"},
        {DENSE, ROPE, "\"rope_theta\": 1e6, \"rope_scaling\": {\"rope_theta\": 1e4}",
         "rope_scaling: rope_theta: 10000, but another rope_theta is 1e+06"},
        {DENSE, ROPE,
         "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": "
         "1e4}}",
         "rope_parameters: full_attention: {\"rope_type\":\"default\",\"rope_theta\":10000.0} is "
         "not"},
        {DENSE, "\"rope_type\": \"default\"",
         "\"rope_type\": \"default\", \"partial_rotary_factor\": 0.25",
         "rope_parameters: partial_rotary_factor: 0.25 is not supported, expected 1"},
        {DENSE, "\"rope_type\": \"default\"", "\"rope_type\": \"llama3\"",
         "rope_parameters: rope_type: \"llama3\" is not supported"},
        {DENSE, ROPE, "\"rope_theta\": 1e6, \"rope_parameters\": {\"rope_theta\": 1e4}",
         "rope_parameters: rope_theta: 10000, but another rope_theta is 1e+06"},
        {DENSE, ROPE, "\"rope_parameters\": {\"rope_type\": \"default\"}", "rope_theta: missing"},
        {DENSE, "\"rope_theta\": 10000.0", "\"rope_theta\": \"10000\"",
         "rope_parameters: rope_theta: expected a number, found a string"},
        {DENSE, "\"rope_theta\": 10000.0", "\"rope_theta\": 0",
         "rope_parameters: rope_theta: 0, expected 1 to"},
        {DENSE, ROPE, "\"rope_theta\": -5", "rope_theta: -5, expected 1 to"},
        {DENSE, "1e-06", "0", "rms_norm_eps: 0, expected"},
        {DENSE, "1e-06", "null", "rms_norm_eps: expected a number, found null"},
        {DENSE, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": \"no\"",
         "tie_word_embeddings: expected true or false, found a string"},
        {DENSE, "\"num_attention_heads\": 4", "\"num_attention_heads\": 0",
         "num_attention_heads: 0, expected 1 to"},
        {DENSE, "\"num_attention_heads\": 4", "\"num_attention_heads\": -4",
         "num_attention_heads: -4, expected 1 to"},
        {DENSE, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 0",
         "num_key_value_heads: 0, expected 1 to"},
        {DENSE, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3",
         "num_attention_heads: 4 is not a multiple of num_key_value_heads, 3"},
        {DENSE, "\"head_dim\": 32", "\"head_dim\": 33", "head_dim: 33, expected an even number"},
        {DENSE, "\"head_dim\": 32", "\"head_dim\": 2000000000",
         "num_attention_heads: 4 heads of head_dim 2000000000 are more than"},
        {DENSE, "\"head_dim\": 32,\n  \"hidden_act\": \"silu\",\n  \"hidden_size\": 128",
         "\"hidden_size\": 126",
         "head_dim: missing, and hidden_size, 126, is not a multiple of num_attention_heads, 4"},
        {DENSE, "\"hidden_size\": 128", "\"hidden_size\": \"128\"",
         "hidden_size: expected an integer, found a string"},
        {DENSE, "\"hidden_size\": 128", "\"hidden_size\": 128.0",
         "hidden_size: expected an integer, found a number with a fraction"},
        {DENSE, "\"hidden_size\": 128", "\"hidden_size\": 1e300",
         "hidden_size: expected an integer, found a number with a fraction or exponent"},
        {DENSE, "\"hidden_size\": 128", "\"hidden_size\": 1e999", "not JSON: line 12"},
        {DENSE, "\"hidden_size\": 128", "\"hidden_size\": 99999999999999999999",
         "not JSON: line 12"},
        {DENSE, "\"hidden_size\": 128", "\"hidden_size\": 2147483648",
         "hidden_size: 2147483648, expected 1 to 2147483647"},
        {DENSE, "\"hidden_size\": 128", "\"hidden_size\": [128]",
         "hidden_size: expected an integer, found an array"},
        {DENSE, "\"hidden_size\": 128,", "", "hidden_size: missing"},
        {DENSE, "\"hidden_size\": 128", "\"hidden_size\": 128, \"hidden_size\": 128",
         "not JSON: line 12, column 35: duplicate object key"},
        {DENSE, "\"vocab_size\": 512", "\"vocab_size\": 2147483647, \"vocab_size_\": 0", NULL},
        {DENSE, "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 1025",
         "num_hidden_layers: 1025, expected 1 to 1024"},
        {DENSE,
         "\"hidden_size\": 128,\n  \"initializer_range\": 0.1237436867076458,\n  "
         "\"intermediate_size\": 384",
         "\"hidden_size\": 2147483646, \"intermediate_size\": 2147483647",
         "hidden_size: 2147483646, with the other sizes, makes more than 2^60 weights"},
        {DENSE, "\"max_position_embeddings\": 512", "\"max_position_embeddings\": 0",
         "max_position_embeddings: 0, expected 1 to"},
        {DENSE, "\"eos_token_id\": null", "\"eos_token_id\": 512",
         "eos_token_id: 512, expected 0 to 511"},
        {DENSE, "\"eos_token_id\": null", "\"eos_token_id\": [1, -1]",
         "eos_token_id[1]: -1, expected 0 to 511"},
        {DENSE, "\"eos_token_id\": null", "\"eos_token_id\": [1, \"2\"]",
         "eos_token_id[1]: expected an integer, found a string"},
        {DENSE, "\"eos_token_id\": null", "\"eos_token_id\": \"2\"",
         "eos_token_id: expected null, an integer or an array of them, found a string"},
        {DENSE, "\"eos_token_id\": null",
         "\"eos_token_id\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]",
         "eos_token_id: 17 items, expected 0 to 16"},
        {MOE, "\"num_local_experts\": 8", "\"num_local_experts\": -1",
         "num_local_experts: -1, expected 0 to"},
        {MOE, "\"num_local_experts\": 8", "\"num_local_experts\": 8, \"num_experts\": 9",
         "num_local_experts: 8, but num_experts is 9"},
        {MOE, "\"num_local_experts\": 8,", "", "num_experts: missing"},
        {MOE, "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 9",
         "num_experts_per_tok: 9, expected 1 to 8"},
        {MOE, "\"num_experts_per_tok\": 2,", "", "num_experts_per_tok: missing"},
        {MOE, "\"moe_intermediate_size\": 64", "\"moe_intermediate_size\": 0",
         "moe_intermediate_size: 0, expected 1 to"},
        {MOE, "\"norm_topk_prob\": true", "\"norm_topk_prob\": 1",
         "norm_topk_prob: expected true or false, found an integer"},
        {MOE, "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 0",
         "decoder_sparse_step: 0, expected 1 to"},
        {MOE, "\"mlp_only_layers\": []", "\"mlp_only_layers\": [3]",
         "mlp_only_layers[0]: 3, expected 0 to 2"},
        {MOE, "\"mlp_only_layers\": []", "\"mlp_only_layers\": 3",
         "mlp_only_layers: expected an array, found an integer"},
    };
    qwen3_config config;
    char error[512];
    uint32_t i;
    for (i = 0; i < sizeof table / sizeof table[0]; i++) {
        const int result = edited_config(t, &table[i], &config, error);
        if (result != (table[i].error ? -1 : 0))
            test_fail(t, __FILE__, __LINE__, "%s: %d, %s", table[i].with, result, error);
        if (!table[i].error) continue;
        CHECK(strncmp(error, "config.json: ", 13) == 0);
        CHECK_TEXT(error, table[i].error);
    }
}

/* Names that the fields of Hugging Face's configurations have, of this model and of others. */
static const char *const field_names[] = {
    /* of every configuration, and of generate() */
    "_attn_implementation", "_commit_hash", "_name_or_path", "add_cross_attention", "architectures",
    "assistant_confidence_threshold", "attn_implementation", "auto_map", "bad_words_ids",
    "base_model_pp_plan", "base_model_tp_plan", "begin_suppress_tokens", "bos_token_id",
    "cache_config", "cache_implementation", "chunk_size_feed_forward", "compile_config",
    "compression_config", "constraints", "cross_attention_hidden_size", "decoder_start_token_id",
    "disable_compile", "diversity_penalty", "do_sample", "dola_layers", "dtype", "early_stopping",
    "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "eos_token_id", "epsilon_cutoff",
    "eta_cutoff", "exponential_decay_length_penalty", "finetuning_task", "force_words_ids",
    "forced_bos_token_id", "forced_decoder_ids", "forced_eos_token_id", "generation_kwargs",
    "guidance_scale", "id2label", "is_composition", "is_decoder", "is_encoder_decoder", "label2id",
    "length_penalty", "low_memory", "max_length", "max_new_tokens", "max_time", "min_length",
    "min_new_tokens", "min_p", "model_type", "no_repeat_ngram_size", "num_assistant_tokens",
    "num_beam_groups", "num_beams", "num_labels", "num_return_sequences", "output_attentions",
    "output_hidden_states", "output_logits", "output_scores", "pad_token_id", "penalty_alpha",
    "prefix", "problem_type", "prompt_lookup_num_tokens", "pruned_heads", "quantization_config",
    "remove_invalid_values", "renormalize_logits", "repetition_penalty", "return_dict",
    "return_dict_in_generate", "return_legacy_cache", "sep_token_id", "sequence_bias",
    "stop_strings", "suppress_tokens", "task_specific_params", "temperature", "text_config",
    "tf_legacy_loss", "tie_encoder_decoder", "tie_word_embeddings", "token_healing",
    "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "transformers_version",
    "typical_p", "use_bfloat16", "use_cache", "vision_config", "watermarking_config",
    /* Qwen2, Qwen2-MoE, Qwen3, Qwen3-MoE, Qwen3-Next */
    "attention_bias", "attention_dropout", "decoder_sparse_step", "full_attention_interval",
    "head_dim", "hidden_act", "hidden_size", "initializer_range", "intermediate_size",
    "layer_types", "linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads",
    "linear_num_value_heads", "linear_value_head_dim", "max_position_embeddings",
    "max_window_layers", "mlp_only_layers", "moe_intermediate_size", "norm_topk_prob",
    "num_attention_heads", "num_experts", "num_experts_per_tok", "num_hidden_layers",
    "num_key_value_heads", "num_local_experts", "output_router_logits", "partial_rotary_factor",
    "qkv_bias", "rms_norm_eps", "rope_parameters", "rope_scaling", "rope_theta",
    "router_aux_loss_coef", "shared_expert_intermediate_size", "sliding_window", "use_qk_norm",
    "use_sliding_window", "vocab_size",
    /* Llama, Mistral, Mixtral, Ministral */
    "attention_chunk_size", "attn_scale", "attn_temperature_tuning", "expert_capacity",
    "floor_scale", "for_llm_compressor", "interleave_moe_layer_step", "intermediate_size_mlp",
    "mlp_bias", "moe_layers", "no_rope_layer_interval", "no_rope_layers", "pretraining_tp",
    "router_jitter_noise",
    /* Gemma */
    "activation_sparsity_pattern", "altup_active_idx", "altup_num_inputs", "attn_logit_softcapping",
    "final_logit_softcapping", "hidden_activation", "hidden_size_per_layer_input", "laurel_rank",
    "num_kv_shared_layers", "query_pre_attn_scalar", "rope_local_base_freq",
    "sliding_window_pattern", "use_bidirectional_attention", "vocab_size_per_layer_input",
    /* Phi */
    "attn_pdrop", "embd_pdrop", "full_attn_mod", "input_jitter_noise", "layer_norm_eps",
    "lm_head_bias", "original_max_position_embeddings", "qk_layernorm", "resid_pdrop",
    /* DeepSeek */
    "aux_loss_alpha", "ep_size", "first_k_dense_replace", "kv_lora_rank", "moe_layer_freq",
    "n_group", "n_routed_experts", "n_shared_experts", "num_nextn_predict_layers", "q_lora_rank",
    "qk_head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "rope_interleave",
    "routed_scaling_factor", "scoring_func", "seq_aux", "topk_group", "topk_method", "v_head_dim",
    /* Cohere, Granite, MiniCPM, OLMo, GLM, StableLM, GPT-NeoX, Falcon, GPT-2, T5, BERT, encoders */
    "activation_function", "alibi", "attention_multiplier", "attn_output_gate", "bias",
    "classifier_dropout", "clip_qkv", "d_ff", "d_kv", "d_model", "dense_attention_every_n_layers",
    "embedding_multiplier", "embedding_size", "feed_forward_proj", "ffn_hidden_size",
    "hidden_dropout", "is_causal", "layer_norm_epsilon", "layernorm_epsilon", "logit_scale",
    "logits_scaling", "max_seq_len", "multi_query", "n_ctx", "n_embd", "n_head", "n_inner",
    "n_layer", "n_positions", "new_decoder_architecture", "norm_after", "num_kv_heads",
    "parallel_attn", "position_embedding_type", "post_layer_norm", "qk_norm",
    "relative_attention_num_buckets", "residual_multiplier", "rotary_dim", "rotary_emb_base",
    "rotary_pct", "scale_attn_weights", "scale_depth", "scale_emb", "shared_head", "swiglu_limit",
    "type_vocab_size", "use_alibi", "use_parallel_residual", "use_qkv_bias", "word_embed_proj_dim"};

/* Those whose value changes no result of this decoder: of training, of names, of what the program has options for, and of
   windows that are off. */
static const char *const harmless_names[] = {"_attn_implementation",
                                             "_commit_hash",
                                             "_name_or_path",
                                             "attention_dropout",
                                             "attn_implementation",
                                             "bos_token_id",
                                             "cache_implementation",
                                             "chunk_size_feed_forward",
                                             "classifier_dropout",
                                             "do_sample",
                                             "dtype",
                                             "finetuning_task",
                                             "hidden_dropout",
                                             "id2label",
                                             "initializer_range",
                                             "label2id",
                                             "max_length",
                                             "max_new_tokens",
                                             "max_window_layers",
                                             "min_p",
                                             "num_labels",
                                             "output_attentions",
                                             "output_hidden_states",
                                             "output_logits",
                                             "output_router_logits",
                                             "output_scores",
                                             "pad_token_id",
                                             "pretraining_tp",
                                             "problem_type",
                                             "return_dict",
                                             "return_dict_in_generate",
                                             "router_aux_loss_coef",
                                             "router_jitter_noise",
                                             "sep_token_id",
                                             "sliding_window",
                                             "temperature",
                                             "tokenizer_class",
                                             "top_k",
                                             "top_p",
                                             "torch_dtype",
                                             "torchscript",
                                             "transformers_version",
                                             "use_bfloat16",
                                             "use_cache"};
/* Without experts nothing reads these. */
static const char *const expert_names[] = {
    "decoder_sparse_step", "mlp_only_layers",     "moe_intermediate_size", "norm_topk_prob",
    "num_experts",         "num_experts_per_tok", "num_local_experts"};
/* Values with which a field says what the decoder does. */
static const struct {
    const char *name, *value;
} usual_values[] = {{"is_causal", "true"}, {"use_qk_norm", "true"}, {"norm_topk_prob", "true"}};

static int is_among(const char *const *names, size_t count, const char *name)
{
    size_t i;
    for (i = 0; i < count; i++)
        if (!strcmp(names[i], name)) return 1;
    return 0;
}
#define IS_AMONG(names, name) is_among(names, sizeof(names) / sizeof(names)[0], name)

/* Whatever a field says, it is read, refused by name, named in a warning, or known to change nothing. */
static void every_field(test_run *t)
{
    static const char *const values[] = {"7",        "0.25",         "\"odd\"",
                                         "[3]",      "{\"a\": 1}",   "true",
                                         "\"gelu\"", "[[1, [2.5]]]", "{\"rope_type\": \"yarn\"}"};
    static const char *const fixtures[] = {DENSE, MOE};
    uint32_t counts[4] = {0, 0, 0, 0}, f, n, v, u;
    for (f = 0; f < 2; f++) {
        size_t size;
        char *text = read_file(fixtures[f], "config.json", &size), error[512];
        qwen3_config base, config;
        CHECK_INT(qwen3_parse_config(&base, text, size, "c", error, sizeof error), 0);
        CHECK_TEXT(base.warnings, "");
        CHECK_INT(base.warnings[0], 0);
        for (n = 0; n < sizeof field_names / sizeof field_names[0]; n++)
            for (v = 0; v < sizeof values / sizeof values[0]; v++) {
                const char *name = field_names[n];
                json_t *o = json_loads(text, 0, NULL);
                char *edited, warnings[sizeof config.warnings];
                int usual = 0, result;
                json_object_set_new(o, name, json_loads(values[v], JSON_DECODE_ANY, NULL));
                edited = json_dumps(o, 0);
                result =
                    qwen3_parse_config(&config, edited, strlen(edited), "c", error, sizeof error);
                free(edited);
                json_decref(o);
                for (u = 0; u < sizeof usual_values / sizeof usual_values[0]; u++)
                    usual |= !strcmp(usual_values[u].name, name) &&
                             !strcmp(usual_values[u].value, values[v]);
                memcpy(warnings, config.warnings, sizeof warnings);
                memset(config.warnings, 0, sizeof config.warnings);
                if (result && (strstr(error, name) || !strcmp(name, "num_hidden_layers")))
                    counts[0]++;
                else if (!result && strstr(warnings, name))
                    counts[1]++;
                else if (!result && memcmp(&config, &base, sizeof config) != 0)
                    counts[2]++;
                else if (!result && (usual || IS_AMONG(harmless_names, name) ||
                                     (!base.experts && IS_AMONG(expert_names, name))))
                    counts[3]++;
                else
                    test_fail(t, __FILE__, __LINE__, "%s: %s: %s", name, values[v],
                              result ? error : "passed over in silence");
            }
        free(text);
    }
    CHECK(counts[0] > 100 && counts[1] > 100 && counts[2] > 10 && counts[3] > 100);
}

/* Warnings name as many fields as there is room for, and count the others. */
static void warnings(test_run *t)
{
    const edit one = {
        DENSE, "\"use_cache\"",
        "\"shiny\\u001b\": 1, \"repetition_penalty\": 1.05, \"num_beams\": 1, \"use_cache\"", NULL};
    edit many = {DENSE, "\"use_cache\"", NULL, NULL};
    qwen3_config config;
    char error[512], *text = (char *)malloc(40000);
    size_t used = 0;
    uint32_t i;
    CHECK(text);
    CHECK_INT(edited_config(t, &one, &config, error), 0);
    CHECK(!strcmp(config.warnings, "config.json: passed over, though results may depend on it: "
                                   "shiny?, repetition_penalty\n"));
    for (i = 0; i < 1000; i++) used += (size_t)sprintf(text + used, "\"odd_field_%u\": 0, ", i);
    sprintf(text + used, "\"use_cache\"");
    many.with = text;
    CHECK_INT(edited_config(t, &many, &config, error), 0);
    CHECK_TEXT(config.warnings, "odd_field_0, odd_field_1, ");
    CHECK_TEXT(config.warnings, " and 9");
    CHECK_TEXT(config.warnings, " more\n");
    free(text);
}

/* ---- JSON that is none ---- */

/* 10000 arrays in one another, as a field of an object. */
static const char *nested(void)
{
    static char text[20020];
    size_t used = (size_t)snprintf(text, sizeof text, "{\"a\": ");
    memset(text + used, '[', 10000);
    memset(text + used + 10000, ']', 10000);
    text[used + 20000] = '}';
    return text;
}

static void json_refused(test_run *t)
{
    const struct {
        const char *text, *error;
    } table[] = {
        {"", "empty, expected a JSON object"},
        {" ", "not JSON: line 1"},
        {"nonsense", "not JSON: line 1"},
        {"[]", "expected a JSON object, found an array"},
        {"{}{}", "not JSON: line 1"},
        {"{\"a\": 1, \"a\": 1}", "duplicate object key"},
        {"{\"a\": \"\xff\"}", "not JSON: line 1"},
        {"{\"a\\u0000b\": 1}", "not JSON: line 1"},
        {"{\"a\": NaN}", "not JSON: line 1"},
        {nested(), "JSON nested deeper than 32"},
    };
    qwen3_config config;
    qwen3_header header;
    qwen3_index index;
    qwen3_expected expected;
    char error[4][512];
    uint32_t i, j;
    memset(&config, 0, sizeof config);
    for (i = 0; i < sizeof table / sizeof table[0]; i++) {
        const char *text = table[i].text;
        const size_t size = strlen(text);
        CHECK_INT(qwen3_parse_header(&header, text, size, 0, "name", error[0], 512), -1);
        CHECK_INT(qwen3_parse_index(&index, text, size, "name", error[1], 512), -1);
        CHECK_INT(qwen3_parse_expected(&expected, &config, text, size, "name", error[2], 512), -1);
        CHECK_INT(qwen3_parse_config(&config, text, size, "name", error[3], 512), -1);
        for (j = 0; j < 4; j++) {
            CHECK(strncmp(error[j], "name: ", 6) == 0);
            CHECK_TEXT(error[j], table[i].error);
        }
    }
}

/* Memory that is asked for, counted; and after `left` calls there is none. */
static size_t memory_asked, memory_left_calls;
static void *scarce(size_t size)
{
    memory_asked += size;
    if (memory_left_calls && memory_left_calls--) return malloc(size);
    errno = ENOMEM;
    return NULL;
}

/* Of JSON with too many values nothing is parsed: the parser takes up to 85 bytes for each byte of text. */
static void many_values(test_run *t)
{
    static const char *const values[] = {"{},", "0,", "[],", "\"\","};
    const size_t count = QWEN3_MAX_VALUES + 2, room = 3 * count + 100;
    char *text = (char *)malloc(room), error[512];
    qwen3_header header;
    size_t used, i, n;
    CHECK(text);
    for (i = 0; i < 4; i++) {
        used = (size_t)sprintf(text, "{\"__metadata__\": [");
        for (n = 0; n < count; n++, used += strlen(values[i]))
            memcpy(text + used, values[i], strlen(values[i]));
        used += (size_t)sprintf(text + used, "0]}");
        memory_asked = 0, memory_left_calls = SIZE_MAX;
        json_set_alloc_funcs(scarce, free);
        CHECK_INT(qwen3_parse_header(&header, text, used, 0, "m", error, sizeof error), -1);
        json_set_alloc_funcs(malloc, free);
        CHECK_TEXT(error, "m: 2097157 JSON values, expected at most 2097152");
        CHECK_INT(memory_asked, 0);
    }
    free(text);
}

/* Whichever allocation of the parser fails, that is what is said, and nothing about the file. */
static void no_memory(test_run *t)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    uint32_t i;
    for (i = 0; i < 2; i++) {
        size_t size, n;
        char *text = read_file(DENSE, names[i], &size), error[512];
        int failed = -1;
        for (n = 0; failed && n < 10000; n++) {
            qwen3_config config;
            qwen3_header header;
            memory_left_calls = n;
            json_set_alloc_funcs(scarce, free);
            failed = i ? qwen3_parse_safetensors(&header, (unsigned char *)text, size, "m", error,
                                                 sizeof error)
                       : qwen3_parse_config(&config, text, size, "m", error, sizeof error);
            json_set_alloc_funcs(malloc, free);
            if (failed && !qwen3_is_no_memory(error))
                test_fail(t, __FILE__, __LINE__, "%s, allocation %zu: %s", names[i], n, error);
            if (!failed && i) qwen3_free_header(&header);
        }
        CHECK(n > 50 && !failed);
        free(text);
    }
    CHECK(!qwen3_is_no_memory("m: not JSON") && !qwen3_is_no_memory(""));
}

/* Whatever is cut off, it is an error. */
static void truncated(test_run *t)
{
    static const char *const names[] = {"config.json", "expected.json"};
    char error[512], *bytes;
    qwen3_config config;
    qwen3_header header;
    qwen3_expected expected;
    size_t size, i, header_size;
    CHECK_INT(qwen3_config_read(&config, DENSE, error, sizeof error), 0);
    bytes = read_file(DENSE, names[0], &size);
    for (i = 0; i + 2 < size; i++) { /* the last two: a bracket and the end of the line */
        qwen3_config cut;
        CHECK_INT(qwen3_parse_config(&cut, bytes, i, names[0], error, sizeof error), -1);
        CHECK(strncmp(error, "config.json: ", 13) == 0);
    }
    free(bytes);
    bytes = read_file(DENSE, names[1], &size);
    for (i = 0; i + 2 < size; i++) {
        CHECK_INT(qwen3_parse_expected(&expected, &config, bytes, i, names[1], error, sizeof error),
                  -1);
        CHECK(strncmp(error, "expected.json: ", 15) == 0);
    }
    free(bytes);
    bytes = read_file(DENSE, "model.safetensors", &size);
    header_size = 4952;
    for (i = 0; i < size; i += i < header_size + 200 ? 1 : 9973) {
        CHECK_INT(qwen3_parse_safetensors(&header, (const unsigned char *)bytes, i, "m", error,
                                          sizeof error),
                  -1);
        CHECK(strncmp(error, i < 8 + header_size ? "m: header length: " : "m: ", 3) == 0);
    }
    CHECK_INT(qwen3_parse_safetensors(&header, (const unsigned char *)bytes, size - 1, "m", error,
                                      sizeof error),
              -1);
    CHECK_TEXT(error,
               "m: model.norm.weight: data_offsets[1]: 1837824, expected 1837568 to 1837823");
    for (i = 0; i < header_size - 2; i++)
        CHECK_INT(qwen3_parse_header(&header, bytes + 8, i, size - 8 - header_size, "m", error,
                                     sizeof error),
                  -1);
    free(bytes);
}

/* ---- safetensors ---- */

#define ENTRY(name, dtype, shape, offsets)                                                         \
    "\"" name "\": {\"dtype\": \"" dtype "\", \"shape\": " shape ", \"data_offsets\": " offsets "}"
#define A ENTRY("a", "BF16", "[2, 3]", "[0, 12]")
#define B ENTRY("b", "F32", "[5]", "[12, 32]")

static void headers(test_run *t)
{
    static const struct {
        const char *text;
        uint64_t data;
        const char *error; /* NULL: it is read */
    } table[] = {
        {"{" A ", " B "}", 32, NULL},
        {"  {" ENTRY("b", "F32", "[5]", "[0, 20]") ", " ENTRY("a", "BF16", "[2, 3]",
                                                              "[20, 32]") "}\n ",
         32, NULL},
        {"{\"__metadata__\": {\"format\": \"pt\"}, " A "}", 12, NULL},
        {"{}", 0, NULL},
        {"{" ENTRY("scalar", "F32", "[]", "[0, 4]") "}", 4, NULL},
        {"{" ENTRY("none", "F32", "[7, 0]", "[0, 0]") ", " A "}", 12, NULL},
        {"{" ENTRY("other", "F8_E4M3", "[3]", "[0, 3]") "}", 3, NULL},
        {"{" ENTRY("unknown", "F4", "[3]", "[0, 2]") "}", 2, NULL},
        {"{\"__metadata__\": 7, " A "}", 12,
         "m: __metadata__: entry: expected an object, found an integer"},
        {"{\"a\": 7}", 0, "m: a: entry: expected an object, found an integer"},
        {"{\"a\": {\"shape\": [1], \"data_offsets\": [0, 2]}}", 2, "m: a: dtype: missing"},
        {"{\"a\": {\"dtype\": \"BF16\", \"data_offsets\": [0, 2]}}", 2, "m: a: shape: missing"},
        {"{\"a\": {\"dtype\": \"BF16\", \"shape\": [1]}}", 2, "m: a: data_offsets: missing"},
        {"{\"a\": {\"dtype\": 16, \"shape\": [1], \"data_offsets\": [0, 2]}}", 2,
         "m: a: dtype: expected a string, found an integer"},
        {"{" ENTRY("a", "BF16", "[-1]", "[0, 2]") "}", 2, "m: a: shape[0]: -1, expected 0 to"},
        {"{" ENTRY("a", "BF16", "[1, \"1\"]", "[0, 2]") "}", 2,
         "m: a: shape[1]: expected an integer, found a string"},
        {"{" ENTRY("a", "BF16", "[1e300]", "[0, 2]") "}", 2,
         "m: a: shape[0]: expected an integer, found a number with"},
        {"{" ENTRY("deep", "BF16", "[1, 1, 1, 2, 3, 1]", "[0, 12]") "}", 12, NULL},
        {"{" ENTRY("a", "BF16", "[1, 1, 1, 1, 2]", "[0, 2]") "}", 2,
         "m: a: data_offsets: 2 bytes, but shape [1, 1, 1, 1, ...] of BF16 takes 4"},
        {"{" ENTRY("a", "BF16", "[4294967296, 4294967296]", "[0, 0]") "}", 0,
         "m: a: shape: more elements than 2^60"},
        {"{" ENTRY("a", "BF16", "[9223372036854775807, 2]", "[0, 0]") "}", 0,
         "m: a: shape: more elements than 2^60"},
        {"{" ENTRY("a", "BF16", "2", "[0, 2]") "}", 2,
         "m: a: shape: expected an array, found an integer"},
        {"{" ENTRY("a", "BF16", "[1]", "[-2, 0]") "}", 2,
         "m: a: data_offsets[0]: -2, expected 0 to 2"},
        {"{" ENTRY("a", "BF16", "[1]", "[2, 0]") "}", 2,
         "m: a: data_offsets[1]: 0, expected 2 to 2"},
        {"{" ENTRY("a", "BF16", "[1]", "[0, 3]") "}", 2,
         "m: a: data_offsets[1]: 3, expected 0 to 2"},
        {"{" ENTRY("a", "BF16", "[1]", "[0, 9223372036854775807]") "}", 2,
         "m: a: data_offsets[1]: 9223372036854775807, expected 0 to 2"},
        {"{" ENTRY("a", "BF16", "[1]", "[0]") "}", 2,
         "m: a: data_offsets: 1 items, expected 2 to 2"},
        {"{" ENTRY("a", "BF16", "[1]", "[0, 1, 2]") "}", 2,
         "m: a: data_offsets: 3 items, expected 2 to 2"},
        {"{" ENTRY("a", "BF16", "[1]", "[0, 2.0]") "}", 2,
         "m: a: data_offsets[1]: expected an integer"},
        {"{" ENTRY("a", "BF16", "[2, 3]", "[0, 10]") "}", 10,
         "m: a: data_offsets: 10 bytes, but shape [2, 3] of BF16 takes 12"},
        {"{" ENTRY("a", "F32", "[]", "[0, 2]") "}", 2,
         "m: a: data_offsets: 2 bytes, but shape [] of F32 takes 4"},
        {"{" A ", " ENTRY("b", "U8", "[2]", "[11, 13]") "}", 13,
         "m: b: data_offsets: [11, 13] overlap those of a, which end at 12"},
        {"{" A ", " ENTRY("b", "BF16", "[6]", "[0, 12]") "}", 12,
         "data_offsets: [0, 12] overlap those of "},
        {"{" A ", " ENTRY("b", "U8", "[2]", "[13, 15]") "}", 15,
         "m: b: data_offsets: begin at 13, but bytes 12 to 13 belong to no tensor"},
        {"{" A "}", 13, "m: data_offsets: end at 12, but there are 13 bytes of data"},
        {"{}", 1, "m: data_offsets: end at 0, but there are 1 bytes of data"},
        {"{" A ", " A "}", 12, "m: not JSON: line 1, column 70: duplicate object key"},
    };
    char error[512];
    uint32_t i;
    for (i = 0; i < sizeof table / sizeof table[0]; i++) {
        qwen3_header h;
        const int result = qwen3_parse_header(&h, table[i].text, strlen(table[i].text),
                                              table[i].data, "m", error, sizeof error);
        if (result != (table[i].error ? -1 : 0))
            test_fail(t, __FILE__, __LINE__, "%s: %d", table[i].text, result);
        if (table[i].error) CHECK_TEXT(error, table[i].error);
        if (i < 2) { /* by name, whatever the order */
            CHECK_INT(h.count, 2);
            CHECK_TEXT(h.entries[0].name, "a");
            CHECK_INT(h.entries[1].dtype, QWEN3_F32);
            CHECK_INT(h.entries[1].begin, i == 0 ? 12 : 0);
            CHECK_INT(h.entries[0].shape[1], 3);
        }
        qwen3_free_header(&h);
    }
}

static void header_lengths(test_run *t)
{
    static const struct {
        uint64_t length;
        size_t size;
        const char *error;
    } table[] = {
        {2, 0, "header length: the file has 0 bytes, expected at least 8"},
        {2, 7, "header length: the file has 7 bytes, expected at least 8"},
        {2, 8, "header length: 2, expected 2 to 0 (the file has 8 bytes)"},
        {0, 12, "header length: 0, expected 2 to 4 (the file has 12 bytes)"},
        {5, 12, "header length: 5, expected 2 to 4 (the file has 12 bytes)"},
        {100000001, 12, "header length: 100000001, expected 2 to 4"},
        {UINT64_MAX, 12, "header length: 18446744073709551615, expected 2 to 4"},
        {UINT64_MAX - 7, 12, "header length: 18446744073709551608, expected 2 to 4"},
        {4, 12, NULL},
    };
    unsigned char file[12];
    char error[512];
    uint32_t i, j;
    for (i = 0; i < sizeof table / sizeof table[0]; i++) {
        qwen3_header h;
        for (j = 0; j < 8; j++) file[j] = (unsigned char)(table[i].length >> (8 * j) & 255);
        memcpy(file + 8, "{}  ", 4);
        CHECK_INT(qwen3_parse_safetensors(&h, file, table[i].size, "m", error, sizeof error),
                  table[i].error ? -1 : 0);
        if (table[i].error) CHECK_TEXT(error, table[i].error);
        qwen3_free_header(&h);
    }
}

static void indexes(test_run *t)
{
    static const struct {
        const char *text, *error;
    } table[] = {
        {"{\"weight_map\": {\"b\": \"y\", \"a\": \"x\", \"c\": \"y\"}}", NULL},
        {"{}", "i: weight_map: missing"},
        {"{\"weight_map\": []}", "i: weight_map: expected an object, found an array"},
        {"{\"weight_map\": {\"a\": 1}}", "i: a: weight_map: expected a string, found an integer"},
        {"{\"weight_map\": {\"a\": \"\"}}",
         "i: a: weight_map: \"\" is not the name of a file in this folder"},
        {"{\"weight_map\": {\"a\": \"../x\"}}",
         "i: a: weight_map: \"../x\" is not the name of a file in this folder"},
        {"{\"weight_map\": {\"a\": \"..\"}}",
         "i: a: weight_map: \"..\" is not the name of a file in this folder"},
        {"{\"weight_map\": {\"a\": \"/etc/passwd\"}}",
         "i: a: weight_map: \"/etc/passwd\" is not the name of a file in this folder"},
        {"{\"weight_map\": {\"a\": \"x\", \"a\": \"y\"}}", "duplicate object key"},
    };
    char error[512];
    uint32_t i;
    for (i = 0; i < sizeof table / sizeof table[0]; i++) {
        qwen3_index index;
        CHECK_INT(qwen3_parse_index(&index, table[i].text, strlen(table[i].text), "i", error,
                                    sizeof error),
                  table[i].error ? -1 : 0);
        if (table[i].error) {
            CHECK_TEXT(error, table[i].error);
        } else {
            CHECK_INT(index.count, 3);
            CHECK_INT(index.file_count, 2);
            CHECK_TEXT(index.places[0].name, "a");
            CHECK_TEXT(index.files[index.places[0].file], "x");
            CHECK_TEXT(index.files[index.places[2].file], "y");
        }
        qwen3_free_index(&index);
    }
}

/* ---- whole checkpoints ---- */

static void other_dtypes(test_run *t)
{
    static const char *const fixtures[] = {DENSE, MOE};
    qwen3_checkpoint original, c;
    recipe r = plain_recipe();
    uint32_t i;
    for (i = 0; i < 4; i++) {
        folder f = folder_make();
        r.dtype = i / 2 ? QWEN3_F32 : QWEN3_F16;
        make(f.path, fixtures[i % 2], &r);
        OPEN(&original, fixtures[i % 2]);
        OPEN(&c, f.path);
        CHECK_INT(c.layers[0].q.dtype, r.dtype);
        CHECK_INT(original.rounded, 0); /* head, embedding, and what layers have */
        CHECK_INT(c.rounded, 2 + (i % 2 ? 3 * (4 + 1 + 3 * 8) : 4 * 7));
        check_same(t, &original, &c);
        qwen3_close(&original);
        qwen3_close(&c);
        folder_remove(&f);
    }
}

static void misaligned(test_run *t)
{
    qwen3_checkpoint original, c;
    recipe r = plain_recipe();
    uint32_t odd = 0;
    OPEN(&original, DENSE);
    for (r.pad = 0; r.pad < 4; r.pad++) {
        folder f = folder_make();
        r.dtype = r.pad < 2 ? QWEN3_BF16 : QWEN3_F32;
        make(f.path, DENSE, &r);
        OPEN(&c, f.path);
        odd += (uintptr_t)c.embed.data % 2;
        check_same(t, &original, &c);
        qwen3_close(&c);
        folder_remove(&f);
    }
    CHECK_INT(odd, 2);
    qwen3_close(&original);
}

static void sharded(test_run *t)
{
    static const char *const fixtures[] = {DENSE, MOE};
    qwen3_checkpoint original, c;
    recipe r = plain_recipe();
    uint32_t i;
    for (i = 0; i < 2; i++) {
        folder f = folder_make();
        r.shards = 2 + 3 * i;
        make(f.path, fixtures[i], &r);
        OPEN(&original, fixtures[i]);
        OPEN(&c, f.path);
        CHECK_INT(c.shard_count, r.shards);
        CHECK_TEXT(c.embed.file, i ? "-of-5.safetensors" : "-of-2.safetensors");
        check_same(t, &original, &c);
        qwen3_close(&original);
        qwen3_close(&c);
        folder_remove(&f);
    }
}

/* Without an lm_head.weight; with one that is the embedding, as BF16 and as F32; and with another one, or of another type. */
static void tied(test_run *t)
{
    qwen3_checkpoint c;
    recipe r = plain_recipe();
    uint64_t sum, count;
    uint32_t i;
    r.config_what = "\"tie_word_embeddings\": false";
    for (i = 0; i < 5; i++) {
        const uint32_t differs = i == 2 || i == 4;
        folder f = folder_make();
        r.without = i ? NULL : "lm_head.weight";
        r.dtype = i == 3 ? QWEN3_F32 : QWEN3_BF16;
        if (i == 4) r.odd = "lm_head.weight", r.odd_dtype = "F16";
        r.config_with = "\"tie_word_embeddings\": false";
        if (i == 1 || i == 3) { /* the embedding's bytes */
            char *bytes;
            size_t size, head, embed, length;
            make(f.path, DENSE, &r);
            OPEN(&c, f.path);
            embed = (size_t)(c.embed.data - c.shards[0].mapped.at);
            head = (size_t)(c.head.data - c.shards[0].mapped.at);
            length = (size_t)512 * 128 * (i == 3 ? 4 : 2);
            qwen3_close(&c);
            bytes = read_file(f.path, "model.safetensors", &size);
            memcpy(bytes + head, bytes + embed, length);
            r.config_with = "\"tie_word_embeddings\": true";
            make(f.path, DENSE, &r);
            write_file(f.path, "model.safetensors", bytes, size);
            free(bytes);
        } else {
            r.config_with = "\"tie_word_embeddings\": true";
            make(f.path, DENSE, &r);
        }
        if (differs) {
            CHECK_INT(qwen3_open(&c, f.path), -1);
            CHECK_TEXT(c.error, "model.safetensors: lm_head.weight: differs from "
                                "model.embed_tokens.weight, but config.json has "
                                "tie_word_embeddings: true");
        } else {
            OPEN(&c, f.path);
            CHECK_INT(c.config.tied, 1);
            CHECK(c.head.data == c.embed.data && c.head.rows == 512 && c.head.columns == 128);
            CHECK_INT(add_up(&c, &sum, &count, c.error, sizeof c.error), 0);
            CHECK_INT(count, 918912 - 512 * 128);
            CHECK_INT(c.config.parameters, count);
        }
        qwen3_close(&c);
        folder_remove(&f);
    }
}

/* generation_config.json says what ends a sequence; where it does not, config.json does. */
static void generation(test_run *t)
{
    static const struct {
        const char *text, *error; /* text NULL: no such file */
        uint32_t count, eos[2];
    } table[] = {
        {NULL, NULL, 1, {7, 0}},
        {"{\"eos_token_id\": [511, 3], \"temperature\": 0.6}", NULL, 2, {511, 3}},
        {"{\"eos_token_id\": 5}", NULL, 1, {5, 0}},
        {"{\"eos_token_id\": null}", NULL, 1, {7, 0}},
        {"{}", NULL, 1, {7, 0}},
        {"{\"eos_token_id\": []}", NULL, 0, {0, 0}},
        {"{\"eos_token_id\": 512}",
         "generation_config.json: eos_token_id: 512, expected 0 to 511",
         0,
         {0, 0}},
        {"[]", "generation_config.json: expected a JSON object", 0, {0, 0}},
        {"", "generation_config.json: empty, expected a JSON object", 0, {0, 0}},
    };
    recipe r = plain_recipe();
    static const char odd[] = "{\"eos_token_id\": \"7\"}";
    char error[200];
    qwen3_checkpoint c;
    uint32_t i, j;
    memset(&c, 0, sizeof c);
    CHECK_INT(qwen3_parse_generation(&c.config, odd, sizeof odd - 1, "g", error, sizeof error), -1);
    CHECK_TEXT(error, "g: eos_token_id: expected null, an integer or an array of them");
    r.config_what = "\"eos_token_id\": null", r.config_with = "\"eos_token_id\": 7";
    for (i = 0; i < sizeof table / sizeof table[0]; i++) {
        folder f = folder_make();
        make(f.path, DENSE, &r);
        if (table[i].text)
            write_file(f.path, "generation_config.json", table[i].text, strlen(table[i].text));
        CHECK_INT(qwen3_open(&c, f.path), table[i].error ? -1 : 0);
        if (table[i].error) CHECK_TEXT(c.error, table[i].error);
        if (!table[i].error) {
            CHECK_INT(c.config.eos_count, table[i].count);
            for (j = 0; j < table[i].count; j++) CHECK_INT(c.config.eos[j], table[i].eos[j]);
        }
        qwen3_close(&c);
        folder_remove(&f);
    }
}

/* Layer 1 has a dense network of its own in a model whose others are sparse. */
static void mixed_layers(test_run *t)
{
    qwen3_checkpoint c;
    recipe r = plain_recipe();
    folder f = folder_make();
    r.config_what = "\"mlp_only_layers\": []";
    r.config_with = "\"mlp_only_layers\": [1]";
    make(f.path, MOE, &r);
    CHECK_INT(qwen3_open(&c, f.path), -1);
    CHECK_TEXT(c.error, "model.safetensors: model.layers.1.mlp.gate_proj.weight: missing");
    folder_remove(&f);
}

static void checkpoints_refused(test_run *t)
{
    static const struct {
        const char *fixture;
        recipe r;
        const char *error;
    } table[] = {
        {DENSE,
         {QWEN3_BF16, 0, 0, "lm_head.weight", 0, 0, 0, 0, 0, 0, 0},
         "model.safetensors: lm_head.weight: missing"},
        {DENSE,
         {QWEN3_BF16, 0, 0, "model.norm.weight", 0, 0, 0, 0, 0, 0, 0},
         "model.safetensors: model.norm.weight: missing"},
        {DENSE,
         {QWEN3_BF16, 0, 0, "model.layers.3.self_attn.q_norm.weight", 0, 0, 0, 0, 0, 0, 0},
         "model.safetensors: model.layers.3.self_attn.q_norm.weight: missing"},
        {MOE,
         {QWEN3_BF16, 0, 0, "model.layers.2.mlp.experts.7.up_proj.weight", 0, 0, 0, 0, 0, 0, 0},
         "model.safetensors: model.layers.2.mlp.experts.7.up_proj.weight: missing"},
        {MOE,
         {QWEN3_BF16, 0, 0, "model.layers.0.mlp.gate.weight", 0, 0, 0, 0, 0, 0, 0},
         "model.safetensors: model.layers.0.mlp.gate.weight: missing"},
        {DENSE,
         {QWEN3_BF16, 0, 0, 0, 0, "model.layers.3.mlp.up_proj.weight", 0, "[128, 384]", 0, 0, 0},
         "model.safetensors: model.layers.3.mlp.up_proj.weight: shape [128, 384], expected [384, "
         "128]"},
        {DENSE,
         {QWEN3_BF16, 0, 0, 0, 0, "model.norm.weight", 0, "[128, 1]", 0, 0, 0},
         "model.safetensors: model.norm.weight: shape [128, 1], expected [128]"},
        {DENSE,
         {QWEN3_BF16, 0, 0, 0, 0, "model.norm.weight", 0, "[1, 128]", 0, 0, 0},
         "model.safetensors: model.norm.weight: shape [1, 128], expected [128]"},
        {DENSE,
         {QWEN3_BF16, 0, 0, 0, 0, "model.layers.0.self_attn.q_proj.weight", 0, "[16384]", 0, 0, 0},
         "model.safetensors: model.layers.0.self_attn.q_proj.weight: shape [16384], expected [128, "
         "128]"},
        {DENSE,
         {QWEN3_BF16, 0, 0, 0, 0, "model.layers.0.self_attn.k_proj.weight", "I16", 0, 0, 0, 0},
         "model.safetensors: model.layers.0.self_attn.k_proj.weight: dtype I16, expected BF16, F16 "
         "or F32"},
        {DENSE,
         {QWEN3_BF16, 0, 0, 0, 0, "model.embed_tokens.weight", "F8_E4M3_FNUZ_AND_MORE", 0, 0, 0, 0},
         "model.safetensors: model.embed_tokens.weight: dtype F8_E4M3_FNUZ_AN, expected BF16, F16 "
         "or F32"},
        {DENSE,
         {QWEN3_BF16, 0, 0, 0, 0, 0, 0, 0, 0,
          "\"num_hidden_layers\": 4,\n  \"num_key_value_heads\": 2",
          "\"num_hidden_layers\": 4, \"num_key_value_heads\": 4"},
         "model.safetensors: model.layers.0.self_attn.k_proj.weight: shape [64, 128], expected "
         "[128, 128]"},
        {DENSE,
         {QWEN3_BF16, 3, 0, "model.norm.weight", 0, 0, 0, 0, 0, 0, 0},
         "model.safetensors.index.json: model.norm.weight: missing in weight_map"},
        {DENSE,
         {QWEN3_BF16, 3, 0, 0, "model.norm.weight", 0, 0, 0, 0, 0, 0},
         "of-3.safetensors: model.norm.weight: missing, though model.safetensors.index.json names "
         "this file"},
        {DENSE,
         {QWEN3_BF16, 47, 0, 0, "model.norm.weight", 0, 0, 0, 0, 0, 0},
         "/model-46-of-47.safetensors: No such file or directory"},
    };
    qwen3_checkpoint c;
    uint32_t i;
    for (i = 0; i < sizeof table / sizeof table[0]; i++) {
        folder f = folder_make();
        make(f.path, table[i].fixture, &table[i].r);
        if (qwen3_open(&c, f.path) != -1)
            test_fail(t, __FILE__, __LINE__, "opened: %s", table[i].error);
        CHECK_TEXT(c.error, table[i].error);
        CHECK(!c.layers && !c.shards);
        qwen3_close(&c);
        folder_remove(&f);
    }
}

/* Adds a tensor of zeros to a file. */
static void add_tensor(const char *dir, const char *file, const char *name, const char *dtype,
                       const char *shape, size_t bytes)
{
    size_t size, length = 0, used, i;
    char *was = read_file(dir, file, &size), *now = (char *)calloc(size + 500 + bytes, 1);
    for (i = 0; i < 8; i++) length |= (size_t)(unsigned char)was[i] << (8 * i);
    memcpy(now + 8, was + 8, length);
    used = (size_t)sprintf(
               now + 7 + length,
               ", \"%s\": {\"dtype\": \"%s\", \"shape\": %s, \"data_offsets\": [%zu, %zu]}}", name,
               dtype, shape, size - 8 - length, size - 8 - length + bytes) +
           length - 1;
    for (i = 0; i < 8; i++) now[i] = (char)(used >> (8 * i) & 255);
    memcpy(now + 8 + used, was + 8 + length, size - 8 - length);
    write_file(dir, file, now, size - length + used + bytes);
    free(was);
    free(now);
}

/* A tensor of the model's layers that the decoder does not have is refused; others are named in a warning. */
static void unused_tensors(test_run *t)
{
    static const struct {
        const char *fixture, *name, *dtype, *shape;
        size_t bytes;
        int refused;
    } table[] = {
        {DENSE, "model.layers.0.self_attn.q_proj.bias", "BF16", "[128]", 256, 1},
        {DENSE, "model.layers.3.mlp.down_proj.weight_scale_inv", "F32", "[1, 3]", 12, 1},
        {DENSE, "model.layers.2.self_attn.q_proj.lora_A.weight", "BF16", "[1]", 2, 1},
        {DENSE, "model.layers.03.odd", "U8", "[0]", 0, 1},
        {DENSE, "lm_head.bias", "F32", "[512]", 2048, 1},
        {DENSE, "model.norm.bias", "F32", "[128]", 512, 1},
        {DENSE, "model.embed_tokens.weight_scale", "F32", "[1]", 4, 1},
        {MOE, "model.layers.1.mlp.shared_expert.up_proj.weight", "BF16", "[1]", 2, 1},
        {MOE, "model.layers.1.mlp.experts.8.up_proj.weight", "BF16", "[1]", 2, 1},
        {MOE, "model.layers.1.mlp.gate.e_score_correction_bias", "F32", "[8]", 32, 1},
        {DENSE, "model.layers.4.mlp.up_proj.weight", "BF16", "[1]", 2, 0},
        {DENSE, "model.layers.0x.odd", "BF16", "[1]", 2, 0},
        {DENSE, "model.layers.99999999999999999999.odd", "BF16", "[1]", 2, 0},
        {DENSE, "model.layers..odd", "BF16", "[1]", 2, 0},
        {DENSE, "visual.patch_embed.proj.weight", "BF16", "[2, 3, 2, 14, 14]", 4704, 0},
        {DENSE, "odd", "F4", "[1, 1, 1, 1, 1, 1, 1, 9]", 5, 0},
        {DENSE, "model.layers.0.self_attn.rotary_emb.inv_freq", "F32", "[16]", 64, 0},
    };
    recipe r = plain_recipe();
    qwen3_checkpoint c;
    uint32_t i;
    for (i = 0; i < 2 * (sizeof table / sizeof table[0]); i++) {
        const uint32_t k = i / 2;
        const char *file = i % 2 ? "model-1-of-3.safetensors" : "model.safetensors";
        folder f = folder_make();
        r.shards = i % 2 ? 3 : 0;
        make(f.path, table[k].fixture, &r);
        add_tensor(f.path, file, table[k].name, table[k].dtype, table[k].shape, table[k].bytes);
        if (qwen3_open(&c, f.path) != -table[k].refused)
            test_fail(t, __FILE__, __LINE__, "%s: %s", table[k].name, c.error);
        CHECK_TEXT(table[k].refused ? c.error : c.config.warnings, file);
        CHECK_TEXT(table[k].refused ? c.error : c.config.warnings, table[k].name);
        CHECK_TEXT(table[k].refused ? c.error : c.config.warnings,
                   table[k].refused ? ": this decoder has no such weight"
                                    : ": tensors that are not used: ");
        qwen3_close(&c);
        folder_remove(&f);
    }
}

/* Files that are not there, are no files or hold something else. */
static void files_refused(test_run *t)
{
    folder f = folder_make();
    recipe r = plain_recipe();
    qwen3_checkpoint c;
    char path[400];
    CHECK_INT(qwen3_open(&c, "no/such/folder"), -1);
    CHECK_TEXT(c.error, "no/such/folder: No such file or directory");
    CHECK_INT(qwen3_open(&c, f.path), -1);
    CHECK_TEXT(c.error, "/config.json: No such file or directory");
    make(f.path, DENSE, &r);
    OPEN(&c, f.path);
    qwen3_close(&c);

    write_file(f.path, "config.json", "", 0);
    CHECK_INT(qwen3_open(&c, f.path), -1);
    CHECK_TEXT(c.error, "config.json: empty, expected a JSON object");
    make(f.path, DENSE, &r);

    write_file(f.path, "model.safetensors", "", 0);
    CHECK_INT(qwen3_open(&c, f.path), -1);
    CHECK_TEXT(c.error,
               "model.safetensors: header length: the file has 0 bytes, expected at least 8");

    snprintf(path, sizeof path, "%s/model.safetensors", f.path);
    remove(path);
    CHECK_INT(qwen3_open(&c, f.path), -1);
    CHECK_TEXT(c.error, ": has neither model.safetensors nor model.safetensors.index.json");
    CHECK_INT(mkdir(path, 0700), 0);
    CHECK_INT(qwen3_open(&c, f.path), -1);
    CHECK_TEXT(c.error, "/model.safetensors: is a folder, expected a file");
    remove(path);
    CHECK_INT(mkfifo(path, 0600),
              0); /* without a writer: opened as a file, it would wait for ever */
    CHECK_INT(qwen3_open(&c, f.path), -1);
    CHECK_TEXT(c.error, "/model.safetensors: is not a regular file");
    remove(path);

    write_file(f.path, "model.safetensors.index.json",
               "{\"weight_map\": {\"lm_head.weight\": \"../x\"}}", 42);
    CHECK_INT(qwen3_open(&c, f.path), -1);
    CHECK_TEXT(
        c.error,
        "model.safetensors.index.json: lm_head.weight: weight_map: \"../x\" is not the name of");
    write_file(f.path, "model.safetensors.index.json", "{\"weight_map\": {}}", 18);
    CHECK_INT(qwen3_open(&c, f.path), -1);
    CHECK_TEXT(c.error,
               "model.safetensors.index.json: model.embed_tokens.weight: missing in weight_map");

    snprintf(path, sizeof path, "%s/config.json", f.path);
    remove(path);
    CHECK_INT(mkdir(path, 0700), 0);
    CHECK_INT(qwen3_open(&c, f.path), -1);
    CHECK_TEXT(c.error, "/config.json: is a folder, expected a file");
    folder_remove(&f);
}

/* ---- expected.json ---- */

#define LOGITS "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, -15.5]"
#define CHECKED "{\"step\": 1, \"logits_first16\": " LOGITS ", \"logsumexp\": 3}"
#define CASE(prompt, greedy, margin, checks)                                                       \
    "{\"cases\": [{\"prompt\": " prompt ", \"greedy\": " greedy ", \"top2_margin\": " margin       \
    ", \"checks\": " checks "}]}"

static void expected_tables(test_run *t)
{
    static const struct {
        const char *text, *error;
    } table[] = {
        {CASE("[1]", "[2, 3]", "[0.5, 1]", "[" CHECKED "]"), NULL},
        {CASE("[1]", "[2, 3]", "[0.5, 1]", "[]"), NULL},
        {CASE("[1, 2, 3, 4, 5, 6]", "[2, 3]", "[0.5, 1]", "[]"), NULL},
        {"{}", "e: cases: missing"},
        {"{\"cases\": []}", "e: cases: 0 items, expected 1 to"},
        {"{\"cases\": [1]}", "e: cases[0]: expected an object, found an integer"},
        {"{\"cases\": [{}]}", "e: cases[0]: prompt: missing"},
        {CASE("[]", "[2]", "[1]", "[]"), "e: cases[0]: prompt: 0 items, expected 1 to 8"},
        {CASE("[1]", "[]", "[]", "[]"), "e: cases[0]: greedy: 0 items, expected 1 to 8"},
        {CASE("[9, 10]", "[2]", "[1]", "[]"), "e: cases[0]: prompt[1]: 10, expected 0 to 9"},
        {CASE("[1]", "[-1]", "[1]", "[]"), "e: cases[0]: greedy[0]: -1, expected 0 to 9"},
        {CASE("[1, 2, 3, 4, 5, 6, 7]", "[2, 3]", "[0.5, 1]", "[]"),
         "e: cases[0]: greedy: 2 tokens after 7 are more than max_position_embeddings, 8"},
        {CASE("[1]", "[2]", "[1, 2]", "[]"), "e: cases[0]: top2_margin: 2 items, expected 1 to 1"},
        {CASE("[1]", "[2]", "[-1]", "[]"), "e: cases[0]: top2_margin[0]: -1, expected 0 to"},
        {CASE("[1]", "[2]", "[true]", "[]"),
         "e: cases[0]: top2_margin[0]: expected a number, found true"},
        {CASE("[1]", "[2]", "[1]", "{}"),
         "e: cases[0]: checks: expected an array, found an object"},
        {CASE("[1]", "[2]", "[1]", "[1]"),
         "e: cases[0]: checks[0]: expected an object, found an integer"},
        {CASE("[1]", "[2]", "[1]", "[" CHECKED "]"),
         "e: cases[0].checks[0]: step: 1, expected 0 to 0"},
        {CASE("[1]", "[2]", "[1]", "[{\"step\": 0, \"logits_first16\": [1], \"logsumexp\": 1}]"),
         "e: cases[0].checks[0]: logits_first16: 1 items, expected 16 to 16"},
        {CASE("[1]", "[2]", "[1]", "[{\"step\": 0, \"logits_first16\": " LOGITS "}]"),
         "e: cases[0].checks[0]: logsumexp: missing"},
        {CASE("[1]", "[2, 3]", "[1, 1]", "[" CHECKED ", " CHECKED ", " CHECKED "]"),
         "e: cases[0]: checks: 3 items, expected 0 to 2"},
    };
    qwen3_config config;
    char error[512];
    uint32_t i;
    memset(&config, 0, sizeof config);
    config.vocab = 10;
    config.positions = 8;
    for (i = 0; i < sizeof table / sizeof table[0]; i++) {
        qwen3_expected e;
        CHECK_INT(qwen3_parse_expected(&e, &config, table[i].text, strlen(table[i].text), "e",
                                       error, sizeof error),
                  table[i].error ? -1 : 0);
        if (table[i].error) CHECK_TEXT(error, table[i].error);
        if (i == 0) {
            CHECK_INT(e.cases[0].checks[0].step, 1);
            CHECK(e.cases[0].checks[0].logits[15] == -15.5);
        }
        qwen3_expected_close(&e);
    }
}

/* ---- conversion ---- */

/* A vector in memory, as a tensor. */
static qwen3_tensor vector_of(const void *data, uint32_t rows, uint32_t columns, qwen3_dtype dtype)
{
    qwen3_tensor x;
    memset(&x, 0, sizeof x);
    x.data = (const unsigned char *)data;
    x.rows = rows;
    x.columns = columns;
    x.dtype = dtype;
    x.name = "x";
    x.file = "f";
    return x;
}

static void every_half(test_run *t)
{
    char error[512] = "";
    uint32_t i, dtype;
    for (dtype = QWEN3_BF16; dtype <= QWEN3_F16; dtype++)
        for (i = 0; i < 0x10000; i++) {
            const uint16_t bits = (uint16_t)i;
            const qwen3_tensor x = vector_of(&bits, 1, 1, (qwen3_dtype)dtype);
            const uint32_t top = dtype == QWEN3_BF16 ? 0x7f80 : 0x7c00;
            const double value = dtype == QWEN3_BF16 ? double_of_bf16(bits) : double_of_f16(bits);
            float wide = 0;
            uint16_t half = 0;
            const int to_f32 = qwen3_tensor_to_f32(&x, 0, 1, &wide, error, sizeof error);
            const int to_bf16 = qwen3_tensor_to_bf16(&x, 0, 1, &half, error, sizeof error);
            if ((i & top) == top) {
                CHECK(to_f32 == -1 && to_bf16 == -1);
                CHECK_TEXT(error, (i & (0x7fffu - top)) ? "f: x: element [0, 0] is NaN"
                                                        : "f: x: element [0, 0] is infinite");
                continue;
            }
            CHECK(to_f32 == 0 && to_bf16 == 0);
            CHECK_INT(bits_of(wide), bits_of((float)value));
            CHECK_INT(half, nearest_bf16(value));
        }
}

/* The upper half of a float in all values, the lower where rounding turns. */
static void rounding(test_run *t)
{
    static const uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    char error[512] = "";
    uint32_t i, j;
    for (i = 0; i < 0x10000; i++)
        for (j = 0; j < 6; j++) {
            const uint32_t bits = i << 16 | lower[j];
            const qwen3_tensor x = vector_of(&bits, 1, 1, QWEN3_F32);
            uint16_t half = 0, nearest;
            float value, wide = 0;
            const int to_bf16 = qwen3_tensor_to_bf16(&x, 0, 1, &half, error, sizeof error);
            if ((bits & 0x7f800000) == 0x7f800000) {
                CHECK(to_bf16 == -1);
                CHECK_TEXT(error, bits & 0x7fffff ? "is NaN" : "is infinite");
                CHECK_INT(qwen3_tensor_to_f32(&x, 0, 1, &wide, error, sizeof error), -1);
                continue;
            }
            memcpy(&value, &bits, sizeof value);
            nearest = nearest_bf16(value);
            CHECK_INT(qwen3_tensor_to_f32(&x, 0, 1, &wide, error, sizeof error), 0);
            CHECK_INT(bits_of(wide), bits);
            if ((nearest & 0x7fff) == 0x7f80) {
                CHECK(to_bf16 == -1);
                CHECK_TEXT(error, "f: x: element [0, 0] is too large for bf16");
            } else {
                CHECK(to_bf16 == 0);
                CHECK_INT(half, nearest);
            }
        }
}

/* One bad value among many is found wherever it is, by row and column; a range that it is not in is converted. */
static void bad_values(test_run *t)
{
    static const uint32_t places[] = {0, 1, 1022, 1023, 1024, 1025, 2047, 2048, 4998, 4999};
    static const uint32_t bad[] = {0x7fc1, 0xff80,
                                   0x7f80}; /* as bf16; of the others the second and third */
    char error[512], expected[100];
    static unsigned char data[5000 * 4 + 1];
    static uint16_t half[5000];
    static float wide[5000];
    uint32_t i, dtype, k;
    for (dtype = QWEN3_BF16; dtype <= QWEN3_F32; dtype++)
        for (i = 0; i < sizeof places / sizeof places[0]; i++)
            for (k = 0; k < 3; k++) {
                const uint32_t at = places[i], size = dtype == QWEN3_F32 ? 4 : 2;
                const uint16_t f16 = k == 0   ? 0x7e01
                                     : k == 1 ? 0xfc00
                                              : 0x7c00,
                               bf16 = (uint16_t)bad[k];
                const uint32_t f32 = bad[k] << 16;
                const qwen3_tensor x = vector_of(data + 1, 100, 50, (qwen3_dtype)dtype);
                memset(data, 0x11, sizeof data);
                memcpy(data + 1 + at * size,
                       dtype == QWEN3_BF16  ? (const void *)&bf16
                       : dtype == QWEN3_F16 ? (const void *)&f16
                                            : (const void *)&f32,
                       size);
                snprintf(expected, sizeof expected, "f: x: element [%u, %u] is %s", at / 50,
                         at % 50, k ? "infinite" : "NaN");
                CHECK_INT(qwen3_tensor_to_bf16(&x, 0, 5000, half, error, sizeof error), -1);
                CHECK(strcmp(error, expected) == 0);
                CHECK_INT(qwen3_tensor_to_f32(&x, 0, 5000, wide, error, sizeof error), -1);
                CHECK(strcmp(error, expected) == 0);
                CHECK_INT(qwen3_tensor_to_bf16(&x, 0, at, half, error, sizeof error), 0);
                CHECK_INT(qwen3_tensor_to_f32(&x, at + 1, 5000 - 1 - at, wide, error, sizeof error),
                          0);
                CHECK_INT(qwen3_tensor_to_bf16(&x, at, 1, half, error, sizeof error), -1);
                CHECK(strcmp(error, expected) == 0);
            }
}

/* A part is what the whole has there, and nothing is written around it. */
static void ranges(test_run *t)
{
    static uint16_t data[3000], out[3002];
    static float wide[3002];
    const qwen3_tensor x = vector_of(data, 30, 100, QWEN3_BF16);
    char error[512] = "";
    uint32_t i, first, count;
    for (i = 0; i < 3000; i++) data[i] = (uint16_t)i;
    for (first = 0; first <= 3000; first += 375)
        for (count = 0; count <= 3000 - first; count += 125) {
            memset(out, 0xee, sizeof out);
            memset(wide, 0xee, sizeof wide);
            CHECK_INT(qwen3_tensor_to_bf16(&x, first, count, out + 1, error, sizeof error), 0);
            CHECK_INT(qwen3_tensor_to_f32(&x, first, count, wide + 1, error, sizeof error), 0);
            CHECK(out[0] == 0xeeee && out[count + 1] == 0xeeee);
            CHECK(bits_of(wide[0]) == 0xeeeeeeee && bits_of(wide[count + 1]) == 0xeeeeeeee);
            for (i = 0; i < count; i++)
                CHECK(out[1 + i] == first + i && bits_of(wide[1 + i]) == (first + i) << 16);
        }
    CHECK_INT(qwen3_tensor_to_bf16(&x, 1, 3000, out, error, sizeof error), -1);
    CHECK_TEXT(error, "f: x: 3000 elements from 1 on are asked for, but it has 3000");
    CHECK_INT(qwen3_tensor_to_f32(&x, 3001, 0, wide, error, sizeof error), -1);
    CHECK_INT(qwen3_tensor_to_f32(&x, 1, UINT64_MAX, wide, error, sizeof error), -1);
}

/* Weights that are not numbers are found when they are converted. */
static void infinite_weight(test_run *t)
{
    folder f = folder_make();
    recipe r = plain_recipe();
    qwen3_checkpoint c;
    uint64_t sum, count;
    char error[512] = "";
    r.bad = "model.layers.2.mlp.down_proj.weight";
    make(f.path, DENSE, &r);
    OPEN(&c, f.path);
    CHECK_INT(add_up(&c, &sum, &count, error, sizeof error), -1);
    CHECK_TEXT(
        error,
        "model.safetensors: model.layers.2.mlp.down_proj.weight: element [127, 383] is infinite");
    qwen3_close(&c);
    folder_remove(&f);
}

/* Messages fit the memory that is given for them, if any. */
static void short_errors(test_run *t)
{
    qwen3_config config;
    char error[12];
    memset(error, '#', sizeof error);
    CHECK_INT(qwen3_parse_config(&config, "[]", 2, "name", error, 10), -1);
    CHECK(memcmp(error, "name: exp\0##", 12) == 0);
    CHECK_INT(qwen3_parse_config(&config, "[]", 2, "name", NULL, 0), -1);
}

static void all(test_run *t)
{
    TEST(dense_fixture);
    TEST(moe_fixture);
    TEST(expected_fixtures);
    TEST(config_spellings);
    TEST(config_refused);
    TEST(every_field);
    TEST(warnings);
    TEST(json_refused);
    TEST(many_values);
    TEST(no_memory);
    TEST(truncated);
    TEST(headers);
    TEST(header_lengths);
    TEST(indexes);
    TEST(other_dtypes);
    TEST(misaligned);
    TEST(sharded);
    TEST(tied);
    TEST(generation);
    TEST(mixed_layers);
    TEST(checkpoints_refused);
    TEST(unused_tensors);
    TEST(files_refused);
    TEST(expected_tables);
    TEST(every_half);
    TEST(rounding);
    TEST(bad_values);
    TEST(ranges);
    TEST(infinite_weight);
    TEST(short_errors);
}

TEST_MAIN(all)
