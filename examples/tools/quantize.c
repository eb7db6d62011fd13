/* quantize: makes a checkpoint with weights in fewer bits from one of bf16, as Hugging Face and
   vLLM read it too.

       quantize FOLDER NEW_FOLDER fp8                 blocks of 128 x 128 weights (Qwen3-*-FP8)
       quantize FOLDER NEW_FOLDER int8                a scale for each row (compressed-tensors)
       quantize FOLDER NEW_FOLDER int4                groups of 128 columns (compressed-tensors)
       quantize FOLDER NEW_FOLDER int4 --group 32     groups of 32, 64, 128 or 256
       quantize FOLDER NEW_FOLDER int4 --zeros        with zero points

   The matrices of the layers are quantised, but for the router of experts; embedding, lm_head and
   norms stay as they are. The largest weight of a block, row or group gets the largest code, and
   each weight the nearest one: nothing is calibrated.

       cc -std=c11 -O2 -I.. quantize.c -o quantize -ljansson -lm */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "../qwen3/checkpoint.h"

#include <math.h>

typedef struct format {
    qwen3_codes codes;
    uint32_t group, group_rows; /* columns and rows that share a scale; 0 columns: all */
    int has_zeros;
} format;

/* The quantised form of a matrix. */
typedef struct quantized {
    uint8_t *codes; /* [rows][columns] */
    float *scales;  /* [blocks of rows][groups], rounded to bf16 */
    int8_t *zeros;  /* [rows][groups] */
    uint32_t groups, scale_rows;
} quantized;

typedef struct job {
    qwen3_checkpoint from;
    format as;
    const char *to;
    FILE *out;
    json_t *header;
    uint64_t bytes; /* of data so far */
    int writes;     /* 0: only the header is made */
    char error[1000];
} job;

static const char usage[] =
    "usage: quantize FOLDER NEW_FOLDER fp8|int8|int4 [--group N] [--zeros]\n"
    "Makes a checkpoint with weights in fewer bits, rounded to nearest. --group (32, 64, 128 or "
    "256;\n"
    "default: 128) and --zeros (zero points) are of int4.\n";

static int failed(job *j, const char *what, const char *why)
{
    snprintf(j->error, sizeof j->error, "%s: %s", what, why);
    return -1;
}

/* ---- numbers ---- */

static float bf16_rounded(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    bits = qwen3_round_bf16(bits) & 0xffff0000u;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* The nearest e4m3, ties to even; 448 beyond that. */
static uint8_t e4m3_of(float f)
{
    const float v = fabsf(f) < 448 ? fabsf(f) : 448;
    const int e = v > 0 && ilogbf(v) > -6 ? ilogbf(v) : -6;
    const int steps = (int)nearbyintf(ldexpf(v, 3 - e)); /* of an eighth of 2^e */
    const int code = (e + 7) * 8 + steps - 8;
    return (uint8_t)(code | (signbit(f) ? 0x80 : 0));
}

static int nearest(float f, int least, int most)
{
    const float near = nearbyintf(f);
    return near < (float)least ? least : near > (float)most ? most : (int)near;
}

/* A block of weights that share a scale: rows of `count` weights, `stride` apart. */
static void quantize_block(const format *as, const float *w, uint32_t rows, uint32_t count,
                           size_t stride, uint8_t *codes, float *scale, int8_t *zero)
{
    const float largest = as->codes == QWEN3_FP8 ? 448 : as->codes == QWEN3_INT8 ? 127 : 7;
    const int least = as->codes == QWEN3_INT8 ? -128 : -8, most = -1 - least;
    float low = 0, high = 0;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < count; i++) {
            const float x = w[r * stride + i];
            if (x < low) low = x;
            if (x > high) high = x;
        }
    *scale =
        bf16_rounded(as->has_zeros ? (high - low) / 15 : (high > -low ? high : -low) / largest);
    if (!(*scale > 0)) *scale = 1; /* nothing but zeros */
    *zero = (int8_t)(as->has_zeros ? nearest(-8 - low / *scale, -8, 7) : 0);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < count; i++) {
            const float x = w[r * stride + i] / *scale;
            codes[r * stride + i] = as->codes == QWEN3_FP8
                                        ? e4m3_of(x)
                                        : (uint8_t)nearest(x + (float)*zero, least, most);
        }
}

static int quantize(job *j, const qwen3_tensor *t, quantized *q)
{
    const uint32_t group = j->as.group ? j->as.group : t->columns, at_once = j->as.group_rows;
    float *rows = (float *)malloc((size_t)at_once * t->columns * sizeof *rows);
    int bad = 0;
    if (!rows) return failed(j, t->name, "out of memory");
    for (uint32_t r = 0; r < t->rows && !bad; r += at_once) {
        const uint32_t n = t->rows - r < at_once ? t->rows - r : at_once;
        bad = qwen3_tensor_to_f32(t, (uint64_t)r * t->columns, (uint64_t)n * t->columns, rows,
                                  j->error, sizeof j->error);
        for (uint32_t g = 0; g < q->groups && !bad; g++) {
            const uint32_t c = g * group, left = t->columns - c;
            const size_t at = (size_t)(r / at_once) * q->groups + g;
            quantize_block(&j->as, rows + c, n, left < group ? left : group, t->columns,
                           q->codes + (size_t)r * t->columns + c, &q->scales[at], &q->zeros[at]);
        }
    }
    free(rows);
    return bad;
}

/* ---- the new file: first its header, then the data in the same order ---- */

/* A tensor of `dimensions` dimensions, of which there are `bytes`. */
static int entry(job *j, const char *name, const char *dtype, uint32_t dimensions, uint64_t rows,
                 uint64_t columns, uint64_t bytes)
{
    json_t *shape = dimensions == 1 ? json_pack("[I]", (json_int_t)columns)
                                    : json_pack("[I,I]", (json_int_t)rows, (json_int_t)columns);
    json_t *e = json_pack("{s:s,s:o,s:[I,I]}", "dtype", dtype, "shape", shape, "data_offsets",
                          (json_int_t)j->bytes, (json_int_t)(j->bytes + bytes));
    j->bytes += bytes;
    return !e || json_object_set_new(j->header, name, e) ? failed(j, name, "out of memory") : 0;
}
static int put(job *j, const void *bytes, uint64_t size)
{
    return fwrite(bytes, 1, (size_t)size, j->out) == size ? 0 : failed(j, j->to, strerror(errno));
}
static int put_word(job *j, uint32_t word)
{
    const unsigned char bytes[4] = {(unsigned char)word, (unsigned char)(word >> 8),
                                    (unsigned char)(word >> 16), (unsigned char)(word >> 24)};
    return put(j, bytes, 4);
}

/* A tensor that stays as it is. */
static int put_as_is(job *j, const qwen3_tensor *t, int is_vector)
{
    static const char *const names[] = {"BF16", "F16", "F32"};
    const uint64_t bytes = (uint64_t)t->rows * t->columns * qwen3_dtype_bytes(t->dtype);
    return j->writes
               ? put(j, t->data, bytes)
               : entry(j, t->name, names[t->dtype], is_vector ? 1 : 2, t->rows, t->columns, bytes);
}

/* Words of `each` integers; number i of word w of a row is at(w * each + i), those beyond `count`
   are 0. */
static int put_packed(job *j, const uint8_t *from, size_t stride, uint32_t count, uint32_t bits)
{
    const uint32_t each = 32 / bits;
    for (uint32_t at = 0; at < count; at += each) {
        uint32_t word = 0;
        for (uint32_t i = 0; i < each && at + i < count; i++) {
            const int value = (int8_t)from[(at + i) * stride] + (1 << (bits - 1));
            word |= (uint32_t)value << (bits * i);
        }
        if (put_word(j, word)) return -1;
    }
    return 0;
}

static int write_matrix(job *j, const qwen3_tensor *t, const quantized *q)
{
    const uint32_t bits = j->as.codes == QWEN3_INT4 ? 4 : 8;
    if (j->as.codes == QWEN3_FP8 && put(j, q->codes, (uint64_t)t->rows * t->columns)) return -1;
    for (uint32_t r = 0; r < t->rows && j->as.codes != QWEN3_FP8; r++)
        if (put_packed(j, q->codes + (size_t)r * t->columns, 1, t->columns, bits)) return -1;
    for (size_t i = 0; i < (size_t)q->scale_rows * q->groups; i++) {
        uint32_t word;
        unsigned char half[2];
        memcpy(&word, &q->scales[i], sizeof word);
        half[0] = (unsigned char)(word >> 16), half[1] = (unsigned char)(word >> 24);
        if (put(j, half, 2)) return -1;
    }
    /* Eight rows of a group are a word: unlike the codes, they are packed down the columns. */
    for (uint32_t r = 0; j->as.has_zeros && r < t->rows; r += 8)
        for (uint32_t g = 0; g < q->groups; g++)
            if (put_packed(j, (const uint8_t *)q->zeros + (size_t)r * q->groups + g, q->groups,
                           t->rows - r < 8 ? t->rows - r : 8, 4))
                return -1;
    return j->as.codes == QWEN3_FP8 ? 0
                                    : put_word(j, t->rows) || put_word(j, 0) ||
                                          put_word(j, t->columns) || put_word(j, 0);
}
static int describe_matrix(job *j, const qwen3_tensor *t, const quantized *q)
{
    const uint32_t each = j->as.codes == QWEN3_INT4 ? 8 : 4, is_fp8 = j->as.codes == QWEN3_FP8;
    const uint64_t words = t->columns / each + (t->columns % each != 0), rows = t->rows;
    const uint64_t zero_rows = rows / 8 + (rows % 8 != 0);
    char name[4][200];
    for (uint32_t i = 0; i < 4; i++) {
        static const char *const ends[] = {"_packed", "_scale", "_zero_point", "_shape"};
        snprintf(name[i], sizeof name[i], "%s%s", t->name,
                 !is_fp8  ? ends[i]
                 : i == 1 ? "_scale_inv"
                          : "");
    }
    return (is_fp8 ? entry(j, name[0], "F8_E4M3", 2, rows, t->columns, rows * t->columns)
                   : entry(j, name[0], "I32", 2, rows, words, rows * words * 4)) ||
           entry(j, name[1], "BF16", 2, q->scale_rows, q->groups,
                 (uint64_t)q->scale_rows * q->groups * 2) ||
           (j->as.has_zeros &&
            entry(j, name[2], "I32", 2, zero_rows, q->groups, zero_rows * q->groups * 4)) ||
           (!is_fp8 && entry(j, name[3], "I64", 1, 1, 2, 16));
}
static int put_matrix(job *j, const qwen3_tensor *t)
{
    const uint32_t group = j->as.group ? j->as.group : t->columns;
    char why[80];
    quantized q;
    int bad;
    q.groups = t->columns / group + (t->columns % group != 0);
    q.scale_rows = t->rows / j->as.group_rows + (t->rows % j->as.group_rows != 0);
    if (j->as.codes == QWEN3_INT4 && t->columns % group) {
        snprintf(why, sizeof why, "groups of %u do not divide %u columns", group, t->columns);
        return failed(j, t->name, why);
    }
    if (!j->writes) return describe_matrix(j, t, &q);
    q.codes = (uint8_t *)malloc((size_t)t->rows * t->columns);
    q.scales = (float *)malloc((size_t)q.scale_rows * q.groups * sizeof *q.scales);
    q.zeros = (int8_t *)malloc((size_t)q.scale_rows * q.groups);
    bad = !q.codes || !q.scales || !q.zeros ? failed(j, t->name, "out of memory")
                                            : quantize(j, t, &q) || write_matrix(j, t, &q);
    free(q.codes);
    free(q.scales);
    free(q.zeros);
    return bad;
}

static int put_layer(job *j, uint32_t number)
{
    const qwen3_layer_weights *w = &j->from.layers[number];
    const uint32_t experts = w->sparse ? j->from.config.experts : 0;
    if (put_as_is(j, &w->input_norm, 1) || put_as_is(j, &w->post_norm, 1) ||
        put_as_is(j, &w->q_norm, 1) || put_as_is(j, &w->k_norm, 1) || put_matrix(j, &w->q) ||
        put_matrix(j, &w->k) || put_matrix(j, &w->v) || put_matrix(j, &w->o) ||
        (w->sparse && put_as_is(j, &w->router, 0)))
        return -1;
    for (uint32_t e = 0; e < experts; e++)
        if (put_matrix(j, &w->expert_gate[e]) || put_matrix(j, &w->expert_up[e]) ||
            put_matrix(j, &w->expert_down[e]))
            return -1;
    return w->sparse ? 0
                     : put_matrix(j, &w->gate) || put_matrix(j, &w->up) || put_matrix(j, &w->down);
}
static int put_tensors(job *j)
{
    const qwen3_checkpoint *c = &j->from;
    if (put_as_is(j, &c->embed, 0) || put_as_is(j, &c->norm, 1) ||
        (!c->config.tied && put_as_is(j, &c->head, 0)))
        return -1;
    for (uint32_t i = 0; i < c->config.layers; i++) {
        if (put_layer(j, i)) return -1;
        qwen3_release(c);
    }
    return 0;
}

/* ---- the new folder ---- */

static FILE *create(job *j, const char *name)
{
    char *path = qwen3_path(j->to, name);
    FILE *f = path ? fopen(path, "wbx") : NULL;
    if (!f) failed(j, name, path ? strerror(errno) : "out of memory");
    free(path);
    return f;
}
static int close_new(job *j, const char *name, FILE *f)
{
    return fclose(f) && !j->error[0] ? failed(j, name, strerror(errno)) : j->error[0] ? -1 : 0;
}

/* A file that the folder may lack. */
static int copy_file(job *j, const char *folder, const char *name)
{
    char *path = qwen3_path(folder, name);
    struct stat info;
    qwen3_bytes bytes;
    FILE *f;
    int bad = 0;
    if (!path) return failed(j, name, "out of memory");
    if (!stat(path, &info)) {
        bad = qwen3_map(&bytes, path, j->error, sizeof j->error);
        if (!bad) {
            f = create(j, name);
            bad = !f || (fwrite(bytes.at, 1, bytes.size, f) != bytes.size &&
                         failed(j, name, strerror(errno)));
            if (f) bad = close_new(j, name, f);
            qwen3_unmap(&bytes);
        }
    }
    free(path);
    return bad;
}

static json_t *quantization_config(const format *as)
{
    const char *strategy = as->group ? "group" : "channel";
    if (as->codes == QWEN3_FP8)
        return json_pack("{s:s,s:s,s:s,s:[i,i],s:[s]}", "quant_method", "fp8", "fmt", "e4m3",
                         "activation_scheme", "dynamic", "weight_block_size", 128, 128,
                         "modules_to_not_convert", "lm_head");
    return json_pack("{s:s,s:s,s:s,s:[s,s],s:{s:{s:[s],s:n,s:n,s:{s:i,s:s,s:b,s:s,s:o,s:b}}}}",
                     "quant_method", "compressed-tensors", "format", "pack-quantized",
                     "quantization_status", "compressed", "ignore", "lm_head", "re:.*mlp.gate$",
                     "config_groups", "group_0", "targets", "Linear", "input_activations",
                     "output_activations", "weights", "num_bits", as->codes == QWEN3_INT4 ? 4 : 8,
                     "type", "int", "symmetric", !as->has_zeros, "strategy", strategy, "group_size",
                     as->group ? json_integer(as->group) : json_null(), "dynamic", 0);
}
static int write_config(job *j, const char *folder)
{
    char *path = qwen3_path(folder, "config.json");
    json_error_t e;
    json_t *config = path ? json_load_file(path, 0, &e) : NULL;
    FILE *f = NULL;
    int bad;
    free(path);
    if (!config || json_object_set_new(config, "quantization_config", quantization_config(&j->as)))
        bad = failed(j, "config.json", "out of memory");
    else if (!(f = create(j, "config.json")))
        bad = -1;
    else if (json_dumpf(config, f, JSON_INDENT(2)) || fputc('\n', f) == EOF)
        bad = failed(j, "config.json", "cannot be written");
    else
        bad = 0;
    if (f) bad = close_new(j, "config.json", f) || bad;
    json_decref(config);
    return bad;
}
static int write_tensors(job *j)
{
    char *text;
    size_t size;
    int bad;
    j->header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    if (!j->header) return failed(j, "model.safetensors", "out of memory");
    if (put_tensors(j)) return -1;
    text = json_dumps(j->header, JSON_COMPACT);
    if (!text) return failed(j, "model.safetensors", "out of memory");
    j->out = create(j, "model.safetensors");
    size = strlen(text);
    j->writes = 1;
    /* Spaces make it a multiple of 8 bytes, so that numbers are aligned. */
    bad = !j->out || put_word(j, (uint32_t)(size + 7) & ~7u) || put_word(j, 0) ||
          put(j, text, size) || put(j, "       ", -size % 8) || put_tensors(j);
    free(text);
    if (j->out) bad = close_new(j, "model.safetensors", j->out) || bad;
    return bad;
}

static int read_format(int argc, char **argv, format *as)
{
    static const char *const names[] = {"", "fp8", "int8", "int4"};
    uint32_t code = QWEN3_FP8;
    while (argc > 3 && code <= QWEN3_INT4 && strcmp(argv[3], names[code])) code++;
    if (argc < 4 || code > QWEN3_INT4) return -1;
    memset(as, 0, sizeof *as);
    as->codes = (qwen3_codes)code;
    as->group = code == QWEN3_INT8 ? 0 : 128;
    as->group_rows = code == QWEN3_FP8 ? 128 : 1;
    for (int i = 4; i < argc; i++) {
        if (code == QWEN3_INT4 && !strcmp(argv[i], "--zeros")) {
            as->has_zeros = 1;
        } else if (code == QWEN3_INT4 && !strcmp(argv[i], "--group") && ++i < argc) {
            as->group = 32;
            while (as->group <= 256 && strtoul(argv[i], NULL, 10) != as->group) as->group *= 2;
            if (as->group > 256) return -1;
        } else {
            return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const others[] = {
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.json",
        "merges.txt",
        "added_tokens.json",
        "chat_template.jinja",
        "special_tokens_map.json",
    };
    static job j;
    int bad;
    memset(&j, 0, sizeof j);
    if (read_format(argc, argv, &j.as)) {
        fputs(usage, stderr);
        return 2;
    }
    j.to = argv[2];
    if (qwen3_open(&j.from, argv[1])) {
        fprintf(stderr, "quantize: %s\n", j.from.error);
        return 2;
    }
    bad = j.from.config.quantization.codes != 0
              ? failed(&j, argv[1], "is quantised already")
              : mkdir(j.to, 0777) && failed(&j, j.to, strerror(errno));
    bad = bad || write_tensors(&j) || write_config(&j, argv[1]);
    for (uint32_t i = 0; i < sizeof others / sizeof others[0] && !bad; i++)
        bad = copy_file(&j, argv[1], others[i]);
    json_decref(j.header);
    qwen3_close(&j.from);
    if (bad) fprintf(stderr, "quantize: %s\n", j.error);
    return bad ? 1 : 0;
}
