/* The memory that fits.h counts before anything is loaded, against the largest amount that a process has while it loads
   and decodes: a model that is refused would not have fitted, and one that is not does. */
// run: plain whole
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#define FLEET_IMPLEMENTATION
#include "../../examples/qwen3/fits.h"
#include "test.h"

#include <sys/resource.h>
#include <sys/wait.h>

typedef struct shape {
    uint32_t vocab, hidden, ffn, layers, tied, is_f32; /* of a model with heads of 64 */
    uint32_t sequences, context;
} shape;

/* ---- a model of that shape ---- */

static size_t tensors_of(const shape *s, char *header, size_t room, size_t used, uint32_t layer,
                         size_t *at)
{
    const uint32_t h = s->hidden;
    const struct {
        const char *name;
        uint32_t rows, columns; /* rows 0: a vector */
    } list[] = {{"input_layernorm", 0, h},      {"post_attention_layernorm", 0, h},
                {"self_attn.q_proj", h, h},     {"self_attn.k_proj", h / 2, h},
                {"self_attn.v_proj", h / 2, h}, {"self_attn.o_proj", h, h},
                {"self_attn.q_norm", 0, 64},    {"self_attn.k_norm", 0, 64},
                {"mlp.gate_proj", s->ffn, h},   {"mlp.up_proj", s->ffn, h},
                {"mlp.down_proj", h, s->ffn},   {"model.norm", 0, h},
                {"lm_head", s->vocab, h},       {"model.embed_tokens", s->vocab, h}};
    const uint32_t own = 11, all = sizeof list / sizeof list[0];
    const uint32_t first = layer < s->layers ? 0 : own;
    for (uint32_t i = first; i < (first ? all : own); i++) {
        const size_t bytes =
            (size_t)(list[i].rows ? list[i].rows : 1) * list[i].columns * (s->is_f32 ? 4u : 2u);
        char prefix[32] = "", shape_text[32];
        if (s->tied && !strcmp(list[i].name, "lm_head")) continue;
        if (!first) snprintf(prefix, sizeof prefix, "model.layers.%u.", layer);
        snprintf(shape_text, sizeof shape_text, list[i].rows ? "[%u, %u]" : "[%u]",
                 list[i].rows ? list[i].rows : list[i].columns, list[i].columns);
        used += (size_t)snprintf(
            header + used, room - used,
            "%s\"%s%s.weight\": {\"dtype\": \"%s\", \"shape\": %s, \"data_offsets\": [%zu, %zu]}",
            *at ? ", " : "{", prefix, list[i].name, s->is_f32 ? "F32" : "BF16", shape_text, *at,
            *at + bytes);
        *at += bytes;
    }
    return used;
}

/* All weights are the same small number. */
static int write_model(const char *dir, const shape *s)
{
    static char header[65536], block[65536];
    char path[512];
    size_t used = 0, bytes = 0;
    FILE *f;
    snprintf(path, sizeof path, "%.400s/config.json", dir);
    f = fopen(path, "w");
    if (!f) return -1;
    fprintf(f,
            "{\"model_type\": \"qwen3\", \"vocab_size\": %u, \"hidden_size\": %u, "
            "\"intermediate_size\": %u, \"num_hidden_layers\": %u, \"num_attention_heads\": %u, "
            "\"num_key_value_heads\": %u, \"head_dim\": 64, \"max_position_embeddings\": 8192, "
            "\"rope_theta\": 1e6, \"rms_norm_eps\": 1e-6, \"tie_word_embeddings\": %s}",
            s->vocab, s->hidden, s->ffn, s->layers, s->hidden / 64, s->hidden / 128,
            s->tied ? "true" : "false");
    if (fclose(f)) return -1;
    for (uint32_t layer = 0; layer <= s->layers; layer++)
        used = tensors_of(s, header, sizeof header, used, layer, &bytes);
    header[used++] = '}';
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = (char)(s->is_f32 && i % 4 < 2 ? 0 : i % 2 ? 0x3c : i % 31);
    snprintf(path, sizeof path, "%.400s/model.safetensors", dir);
    f = fopen(path, "wb");
    if (!f) return -1;
    for (uint32_t i = 0; i < 8; i++) fputc((int)((uint64_t)used >> 8 * i & 255), f);
    fwrite(header, 1, used, f);
    for (size_t n = 0; bytes; bytes -= n) {
        n = bytes < sizeof block ? bytes : sizeof block;
        if (fwrite(block, 1, n, f) != n) break;
    }
    return fclose(f) || bytes ? -1 : 0;
}

/* ---- a process that decodes with it ---- */

typedef struct measured {
    uint64_t counted, before, peak; /* bytes; before: of the process itself */
    char error[ERROR_BYTES];
} measured;

static uint64_t peak_bytes(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) ? 0 : (uint64_t)u.ru_maxrss * 1024;
}

static void load_and_run(measured *r, const char *dir, const shape *s)
{
    static const uint32_t prompt[] = {1, 2, 3};
    static qwen3_checkpoint c;
    static model m;
    static session run;
    static request requests[MAX_SEQUENCES];
    static int32_t generated[2 * MAX_SEQUENCES];
    static uint32_t counts[MAX_SEQUENCES];
    qwen3_config config;
    session_desc desc;
    bytes_needed bytes;
#if defined(__GLIBC__)
    mallopt(M_PERTURB, 0); /* test.h has new memory written to, also what only aligns blocks */
#endif
    memset(&desc, 0, sizeof desc);
    desc.steps = 2, desc.context = s->context;
    for (uint32_t i = 0; i < s->sequences; i++)
        requests[i].prompt = prompt, requests[i].n_prompt = 3;
    if (qwen3_open(&c, dir)) {
        snprintf(r->error, sizeof r->error, "%s", c.error);
        return;
    }
    config = c.config;
    r->before = peak_bytes();
    if (count_bytes(&config, &c, &desc, s->sequences, &bytes, r->error)) return;
    r->counted = bytes.weights + bytes.session;
    if (!memory_refused(&config, &c, &desc, s->sequences, 4, r->counted - 1, r->error) ||
        memory_refused(&config, &c, &desc, s->sequences, 4, r->counted + r->counted / 32, r->error))
        return;
    r->error[0] = 0;
    if (model_load(&m, &config, &c, desc.schedule, s->sequences, NULL)) {
        snprintf(r->error, sizeof r->error, "%s", m.error);
        return;
    }
    qwen3_close(&c);
    if (session_open(&run, &m, &desc, requests, s->sequences) || session_run(&run))
        snprintf(r->error, sizeof r->error, "%s", run.error);
    r->peak = peak_bytes();
    session_generated(&run, generated, counts);
    for (uint32_t i = 0; i < s->sequences; i++)
        if (counts[i] != 2) snprintf(r->error, sizeof r->error, "%u tokens, not 2", counts[i]);
}

static measured measure(test_run *t, const shape *s)
{
    const char *tmp = getenv("TMPDIR");
    char dir[300], path[400];
    int ends[2], status = 1;
    measured r;
    pid_t child;
    memset(&r, 0, sizeof r);
    snprintf(dir, sizeof dir, "%.250s/fleet-memory-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir) || write_model(dir, s) || pipe(ends)) {
        test_fail(t, __FILE__, __LINE__, "%s: cannot be written", dir);
        return r;
    }
    fflush(stdout);
    child = fork();
    if (child == 0) {
        load_and_run(&r, dir, s);
        _exit(write(ends[1], &r, sizeof r) != (ssize_t)sizeof r);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &r, sizeof r) != (ssize_t)sizeof r)
        test_fail(t, __FILE__, __LINE__, "the process that decodes has failed");
    close(ends[0]);
    waitpid(child, &status, 0);
    snprintf(path, sizeof path, "%s/config.json", dir), remove(path);
    snprintf(path, sizeof path, "%s/model.safetensors", dir), remove(path);
    remove(dir);
    return r;
}

/* ---- the tests ---- */

/* What is counted is within a tenth of what the process has at most, beside itself and its threads. */
static void is_counted(test_run *t, const shape *s)
{
    const double own = 8; /* MB of stacks and buffers */
    const measured r = measure(t, s);
    const double counted = (double)r.counted / 1e6, had = (double)(r.peak - r.before) / 1e6;
    if (r.error[0]) test_fail(t, __FILE__, __LINE__, "%s", r.error);
    if (counted < 50 || 1.1 * counted + own < had || counted > 1.1 * had)
        test_fail(t, __FILE__, __LINE__, "%.1f MB are counted, and %.1f used", counted, had);
}

static void tied_embeddings(test_run *t)
{
    const shape s = {40000, 512, 1024, 2, 1, 0, 1, 64};
    is_counted(t, &s);
}
static void separate_head(test_run *t)
{
    const shape s = {20000, 512, 1024, 2, 0, 1, 1, 64};
    is_counted(t, &s);
}
static void many_layers(test_run *t)
{
    const shape s = {1000, 512, 1536, 12, 1, 0, 1, 64};
    is_counted(t, &s);
}
static void long_contexts(test_run *t)
{
    const shape s = {1000, 256, 512, 4, 1, 0, 16, 2048};
    is_counted(t, &s);
}

static void all(test_run *t)
{
    TEST(tied_embeddings);
    TEST(separate_head);
    TEST(many_layers);
    TEST(long_contexts);
}

TEST_MAIN(all)
