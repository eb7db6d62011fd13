/* Reads a Qwen3 (model_type qwen3) or Qwen3-MoE (qwen3_moe) checkpoint as Hugging Face writes it: config.json,
   model.safetensors or the shards that model.safetensors.index.json lists, and, where there is one, generation_config.json,
   whose eos_token_id counts instead of that of config.json.

       qwen3_checkpoint c;
       if (qwen3_open(&c, "models/Qwen3-8B")) { fprintf(stderr, "%s\n", c.error); return 1; }
       ... c.config, c.layers[0].q ...
       if (qwen3_tensor_to_bf16(&c.layers[0].q, 0, count, to, c.error, sizeof c.error)) ...
       qwen3_close(&c);

   A tensor is a view of a mapped file. Nothing is read before it is converted, and no view outlives qwen3_close. The
   bytes may have any alignment: they are copied out, never dereferenced as numbers. Truncating a file while it is mapped
   ends the program, as with every mapping.

   Functions return 0, or -1 and a message that begins with the file and the field or tensor:

       model.safetensors: model.layers.3.mlp.up_proj.weight: shape [384, 127], expected [384, 128]
       config.json: num_attention_heads: 7 is not a multiple of num_key_value_heads, 2

   A message ends with "out of memory" if, and only if, memory was lacking (qwen3_is_no_memory).

   REFUSED are models whose results this decoder would get wrong: another model_type or architecture, a scaled RoPE, sliding
   windows, biases, another activation, weights of another type than BF16, F16 or F32 or the
   quantised ones of quantized.h, a tensor in one of the model's layers that the decoder does not
   have; and files that contradict themselves: keys given twice; byte ranges that overlap, leave
   bytes to no tensor or have another size than shape and dtype imply, against the format of
   safetensors; tied embeddings beside an lm_head.weight that differs from them. JSON of more than
   QWEN3_MAX_VALUES values is refused before it is parsed.

   NAMED IN A WARNING (config.warnings, which the program prints) are fields that no list here has (qwen3_silent_fields and below),
   settings of Hugging Face's generate() that the decoder does not have, and tensors outside of the model's layers.

   ACCEPTED in silence, since files that work elsewhere have it, are tensors in any order; tensors of any dtype and number of
   dimensions where none of the model's is; white space around the header; an eos_token_id of null; fields that change no
   result.

   Needs jansson (Debian: libjansson-dev, -ljansson) and POSIX. Reads as C11 and as C++17, and needs nothing of fleet. */
#ifndef QWEN3_CHECKPOINT_H
#define QWEN3_CHECKPOINT_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

/* ---- qwen3: what a checkpoint holds ---------------------------------------------------------------- */

/* Bounds that no Qwen3 comes near. They keep a broken file from asking for the whole memory. */
#define QWEN3_MAX_LAYERS 1024u
#define QWEN3_MAX_EXPERTS 4096u
#define QWEN3_MAX_EOS 16u
#define QWEN3_MAX_SIZE 0x7fffffffu  /* of a dimension: rows and columns fit an int32_t */
#define QWEN3_MAX_JSON 100000000u   /* bytes: the bound of safetensors for its header */
#define QWEN3_MAX_DEPTH 32u         /* of JSON values in one another */
#define QWEN3_MAX_VALUES (1u << 21) /* of a JSON text; the parser takes up to 250 bytes for one */
#define QWEN3_DIMENSIONS 4u         /* of a tensor that are kept; there may be more */
#define QWEN3_MAX_PARAMETERS (1ull << 60) /* their bytes as float fit 63 bits */

typedef enum qwen3_dtype { QWEN3_BF16, QWEN3_F16, QWEN3_F32, QWEN3_OTHER } qwen3_dtype;

/* How the matrices of the layers are quantised: a weight is its code, less a zero point if there is
   one, times a scale that a block of weights shares (quantized.h). */
typedef enum qwen3_codes { QWEN3_NOT_QUANTIZED, QWEN3_FP8, QWEN3_INT8, QWEN3_INT4 } qwen3_codes;
/* In which tensors, and in which order the codes are. */
typedef enum qwen3_packing {
    QWEN3_BYTES,      /* fp8: a byte each */
    QWEN3_COMPRESSED, /* compressed-tensors: words of neighbouring columns */
    QWEN3_AWQ,        /* words of eight rows, in an order of its own; transposed */
    QWEN3_GPTQ        /* words of eight columns; transposed */
} qwen3_packing;
typedef struct qwen3_quantization {
    qwen3_codes codes;
    qwen3_packing packing;
    uint32_t group;      /* columns that share a scale; 0: all */
    uint32_t group_rows; /* rows that do */
    int has_zeros;
} qwen3_quantization;

/* Plain data, without pointers. In the comments: the key in config.json, where it is another. */
typedef struct qwen3_config {
    uint32_t vocab;     /* vocab_size */
    uint32_t hidden;    /* hidden_size */
    uint32_t ffn;       /* intermediate_size: of the dense layers */
    uint32_t layers;    /* num_hidden_layers */
    uint32_t heads;     /* num_attention_heads; a multiple of kv_heads */
    uint32_t kv_heads;  /* num_key_value_heads */
    uint32_t head_dim;  /* even; absent: hidden / heads */
    uint32_t positions; /* max_position_embeddings */
    double rope_theta;  /* or rope_parameters.rope_theta */
    double norm_eps;    /* rms_norm_eps */
    int tied;           /* tie_word_embeddings: the head is the embedding */
    uint32_t eos_count; /* eos_token_id: 0 for null */
    uint32_t eos[QWEN3_MAX_EOS];

    /* All 0 in a model without experts. */
    uint32_t experts;           /* num_experts or num_local_experts */
    uint32_t experts_per_token; /* num_experts_per_tok */
    uint32_t expert_ffn;        /* moe_intermediate_size */
    int norm_topk;              /* norm_topk_prob: the chosen experts' weights shall add up to 1 */
    uint32_t sparse_layers; /* how many are: not in mlp_only_layers, but by decoder_sparse_step */
    unsigned char sparse[QWEN3_MAX_LAYERS]; /* 1: that layer has experts */

    uint64_t parameters;  /* how many weights the model has; a tied head counts once */
    uint32_t rank, ranks; /* the part of the weights that a decoder takes; 0, 0: all (weights.h) */
    qwen3_quantization
        quantization; /* quantization_config: of all matrices but router, head and embedding */
    int dequantized;  /* 1: a decoder converts them to bf16 when it loads them (weights.h) */

    /* A line for each file that has something which was passed over, though it might change results; or empty. */
    char warnings[768];
} qwen3_config;

/* A matrix, row by row, as its file has it; a vector is one row. */
typedef struct qwen3_tensor {
    const unsigned char *data; /* of any alignment; little-endian */
    uint32_t rows, columns;
    qwen3_dtype dtype;
    const char *name, *file; /* for messages; the checkpoint's */
    /* Of a quantised matrix, whose data are codes; null without zero points */
    qwen3_quantization quantization;
    const unsigned char *scales, *zeros;
    qwen3_dtype scale_dtype;
} qwen3_tensor;

/* In the comments: [rows, columns], q = heads * head_dim, kv = kv_heads * head_dim. */
typedef struct qwen3_layer_weights {
    qwen3_tensor input_norm, post_norm; /* [hidden] */
    qwen3_tensor q, k, v;               /* [q, hidden], [kv, hidden], [kv, hidden] */
    qwen3_tensor o;                     /* [hidden, q] */
    qwen3_tensor q_norm, k_norm;        /* [head_dim] */
    int sparse;                         /* 0: gate, up and down are there; 1: what follows them */
    qwen3_tensor gate, up, down;        /* [ffn, hidden], [ffn, hidden], [hidden, ffn] */
    qwen3_tensor router;                /* [experts, hidden] */
    /* [experts] of each: as the dense ones, of expert_ffn. */
    qwen3_tensor *expert_gate, *expert_up, *expert_down;
} qwen3_layer_weights;

/* What a safetensors header says of one tensor. */
typedef struct qwen3_entry {
    char *name;
    qwen3_dtype dtype;
    char dtype_name[16];
    uint32_t dimensions;
    uint64_t shape[QWEN3_DIMENSIONS]; /* the first ones */
    uint64_t begin, end;              /* bytes, from the end of the header */
    int used;                         /* 1: it is one of the model's weights */
} qwen3_entry;

typedef struct qwen3_header {
    qwen3_entry *entries; /* by name */
    size_t count;
    uint64_t data_at; /* bytes from the beginning of the file, if there is one */
} qwen3_header;

/* model.safetensors.index.json: which tensor lies in which file. */
typedef struct qwen3_place {
    char *name;
    uint32_t file; /* of files */
} qwen3_place;

typedef struct qwen3_index {
    qwen3_place *places; /* by name */
    size_t count;
    char **files; /* each once */
    uint32_t file_count;
} qwen3_index;

typedef struct qwen3_bytes {
    const unsigned char *at;
    size_t size;
} qwen3_bytes;

typedef struct qwen3_shard {
    const char *name;
    qwen3_bytes mapped;
    qwen3_header header;
} qwen3_shard;

typedef struct qwen3_checkpoint {
    qwen3_config config;
    qwen3_tensor embed, head;    /* [vocab, hidden]; the same when tied */
    qwen3_tensor norm;           /* [hidden] */
    qwen3_layer_weights *layers; /* config.layers of them */
    qwen3_shard *shards;         /* the files, mapped */
    uint32_t shard_count;
    uint32_t rounded; /* matrices of F16 or F32, which conversion to bf16 rounds */
    int sharded;      /* by an index; else there is one shard */
    qwen3_index index;
    char error[512];
} qwen3_checkpoint;

/* Maps the checkpoint in the folder `dir`. -1: c->error says why, and nothing is held. */
static inline int qwen3_open(qwen3_checkpoint *c, const char *dir);

/* Frees what qwen3_open took. c->error stays, and closing twice is harmless. */
static inline void qwen3_close(qwen3_checkpoint *c);

/* Tells the system that nothing of the files needs to be in memory now: what is read again comes from its cache, or the disk.
   Only of a checkpoint that qwen3_open has opened; any thread. */
static inline void qwen3_release(const qwen3_checkpoint *c);

/* The configuration alone: `path` is a folder with a config.json, or such a file. */
static inline int qwen3_config_read(qwen3_config *config, const char *path, char *error,
                                    size_t error_size);

/* Converts `count` elements from the `first` on (row * columns + column) to bf16, rounding to nearest even, or to
   float. -1 and the element's row and column if a value is NaN or infinite, or too large for bf16; the elements
   before it, and some others, may then have been written. */
static inline int qwen3_tensor_to_bf16(const qwen3_tensor *t, uint64_t first, uint64_t count,
                                       uint16_t *out, char *error, size_t error_size);
static inline int qwen3_tensor_to_f32(const qwen3_tensor *t, uint64_t first, uint64_t count,
                                      float *out, char *error, size_t error_size);

/* The parsers under these, of text in memory that need not end with a zero. `file` is the name for messages. */
static inline int qwen3_parse_config(qwen3_config *config, const char *text, size_t size,
                                     const char *file, char *error, size_t error_size);
/* generation_config.json: its eos_token_id, if it has one, replaces the config's. */
static inline int qwen3_parse_generation(qwen3_config *config, const char *text, size_t size,
                                         const char *file, char *error, size_t error_size);
/* The JSON of a safetensors file's header, which describes data_size bytes. */
static inline int qwen3_parse_header(qwen3_header *header, const char *text, size_t size,
                                     uint64_t data_size, const char *file, char *error,
                                     size_t error_size);
/* A whole safetensors file. */
static inline int qwen3_parse_safetensors(qwen3_header *header, const unsigned char *bytes,
                                          size_t size, const char *file, char *error,
                                          size_t error_size);
static inline void qwen3_free_header(qwen3_header *header);
static inline int qwen3_parse_index(qwen3_index *index, const char *text, size_t size,
                                    const char *file, char *error, size_t error_size);
static inline void qwen3_free_index(qwen3_index *index);
/* Finds each tensor of c->config in c->shards, by c->index where c->sharded, and checks its shape and type. */
static inline int qwen3_bind(qwen3_checkpoint *c);

/* ---- qwen3: errors --------------------------------------------------------------------------------- */

/* Where a value comes from, and where the message goes. */
typedef struct qwen3_source {
    const char *file;
    const char *within; /* a tensor, or the object that is being read; NULL: the file's root */
    char *error;
    size_t size;
} qwen3_source;

static inline qwen3_source qwen3_source_of(const char *file, char *error, size_t size)
{
    qwen3_source s;
    s.file = file;
    s.within = NULL;
    s.error = error;
    s.size = size;
    return s;
}

/* Returns -1. Names come from the file: control characters are replaced, so that they cannot steer
   a terminal. */
static inline __attribute__((format(printf, 2, 3))) int qwen3_fail(const qwen3_source *s,
                                                                   const char *format, ...)
{
    char why[400], *c;
    va_list list;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    if (!s->size) return -1;
    snprintf(s->error, s->size, "%.300s: %.150s%s%s", s->file, s->within ? s->within : "",
             s->within ? ": " : "", why);
    for (c = s->error; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127) *c = '?';
    return -1;
}

#define QWEN3_NO_MEMORY "out of memory"
static inline int qwen3_no_memory(const qwen3_source *s)
{
    return qwen3_fail(s, QWEN3_NO_MEMORY);
}

/* The failed system call's reason. */
static inline int qwen3_fail_errno(const qwen3_source *s)
{
    return errno == ENOMEM ? qwen3_no_memory(s) : qwen3_fail(s, "%s", strerror(errno));
}

/* Whether this error is that memory was lacking: nothing is wrong with the file then. */
static inline int qwen3_is_no_memory(const char *error)
{
    const size_t size = strlen(error), end = strlen(": " QWEN3_NO_MEMORY);
    return size >= end && !strcmp(error + size - end, ": " QWEN3_NO_MEMORY);
}

/* Names of what was passed over in a file, as many as there is room for. */
typedef struct qwen3_names {
    char text[240];
    size_t used, more;
} qwen3_names;

static inline void qwen3_name_passed_over(qwen3_names *n, const char *name)
{
    const size_t room = sizeof n->text - n->used;
    const int size = snprintf(n->text + n->used, room, "%s%s", n->used ? ", " : "", name);
    if ((size_t)size < room)
        n->used += (size_t)size;
    else
        n->text[n->used] = 0, n->more++;
}

/* Adds a line to the warnings, if anything was passed over. */
static inline void qwen3_warn(qwen3_config *c, const char *file, const char *what,
                              const qwen3_names *n)
{
    char more[32] = "", *at = c->warnings + strlen(c->warnings);
    const size_t room = (size_t)(c->warnings + sizeof c->warnings - at);
    if (!n->used && !n->more) return;
    if (n->more) snprintf(more, sizeof more, " and %zu more", n->more);
    if ((size_t)snprintf(at, room, "%s: %s: %s%s", file, what, n->text, more) + 1 >= room) {
        *at = 0;
        return;
    }
    for (; *at; at++)
        if ((unsigned char)*at < 32 || *at == 127) *at = '?';
    at[0] = '\n', at[1] = 0;
}

static inline char *qwen3_copy_text(const char *text)
{
    const size_t size = strlen(text) + 1;
    char *copy = (char *)malloc(size);
    if (copy) memcpy(copy, text, size);
    return copy;
}

/* ---- qwen3: JSON values, checked ------------------------------------------------------------------- */

/* How deep arrays and objects are nested, as deep as the parser below recurses; and how many values there are, for each of
   which the parser takes memory. */
typedef struct qwen3_extent {
    size_t depth, values;
} qwen3_extent;
static inline qwen3_extent qwen3_extent_of(const char *text, size_t size)
{
    qwen3_extent e = {0, 1};
    size_t depth = 0, i;
    int in_string = 0, opened = 0; /* opened: only spaces since an array or object began */
    for (i = 0; i < size; i++) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = 0;
            continue;
        }
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n') continue;
        if (c == ',' || (opened && c != '}' && c != ']')) e.values++;
        opened = c == '{' || c == '[';
        in_string = c == '"';
        if (opened && ++depth > e.depth) e.depth = depth;
        if ((c == '}' || c == ']') && depth) depth--;
    }
    return e;
}

static inline const char *qwen3_kind(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number with a fraction or exponent";
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        break;
    }
    return "null";
}

/* Parses the text's object; NULL, with an error, if it is none. */
static inline json_t *qwen3_json(const qwen3_source *s, const char *text, size_t size)
{
    json_error_t e;
    json_t *root;
    qwen3_extent extent;
    if (size == 0) {
        qwen3_fail(s, "empty, expected a JSON object");
        return NULL;
    }
    if (size > QWEN3_MAX_JSON) {
        qwen3_fail(s, "%zu bytes of JSON, expected at most %u", size, QWEN3_MAX_JSON);
        return NULL;
    }
    extent = qwen3_extent_of(text, size);
    if (extent.depth > QWEN3_MAX_DEPTH) {
        qwen3_fail(s, "JSON nested deeper than %u", QWEN3_MAX_DEPTH);
        return NULL;
    }
    if (extent.values > QWEN3_MAX_VALUES) {
        qwen3_fail(s, "%zu JSON values, expected at most %u", extent.values, QWEN3_MAX_VALUES);
        return NULL;
    }
    errno = 0;
    root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &e);
    if (!root && errno == ENOMEM) { /* malloc says so; the parser takes it for a wrong text */
        qwen3_no_memory(s);
    } else if (!root) {
        qwen3_fail(s, "not JSON: line %d, column %d: %s", e.line, e.column, e.text);
    } else if (!json_is_object(root)) {
        qwen3_fail(s, "expected a JSON object, found %s", qwen3_kind(root));
        json_decref(root);
        root = NULL;
    }
    return root;
}

/* A value and its name: a field of an object, or an item of the array that a field is. */
typedef struct qwen3_value {
    json_t *json; /* NULL: it is missing */
    char name[64];
} qwen3_value;

static inline qwen3_value qwen3_field(json_t *object, const char *name)
{
    qwen3_value v;
    v.json = json_object_get(object, name);
    snprintf(v.name, sizeof v.name, "%s", name);
    return v;
}

static inline qwen3_value qwen3_item(const qwen3_value *array, size_t i)
{
    qwen3_value v;
    v.json = json_array_get(array->json, i);
    snprintf(v.name, sizeof v.name, "%.40s[%zu]", array->name, i);
    return v;
}

/* A null counts as a missing field. */
static inline int qwen3_given(const qwen3_value *v)
{
    return v->json && !json_is_null(v->json);
}

static inline int qwen3_wrong_kind(const qwen3_source *s, const qwen3_value *v,
                                   const char *expected)
{
    if (!v->json) return qwen3_fail(s, "%s: missing", v->name);
    return qwen3_fail(s, "%s: expected %s, found %s", v->name, expected, qwen3_kind(v->json));
}

static inline int qwen3_integer(const qwen3_source *s, const qwen3_value *v, int64_t least,
                                int64_t most, int64_t *out)
{
    if (!json_is_integer(v->json)) return qwen3_wrong_kind(s, v, "an integer");
    *out = json_integer_value(v->json);
    if (*out < least || *out > most)
        return qwen3_fail(s, "%s: %lld, expected %lld to %lld", v->name, (long long)*out,
                          (long long)least, (long long)most);
    return 0;
}

static inline int qwen3_count(const qwen3_source *s, const qwen3_value *v, uint32_t least,
                              uint32_t most, uint32_t *out)
{
    int64_t value = 0;
    if (qwen3_integer(s, v, least, most, &value)) return -1;
    *out = (uint32_t)value;
    return 0;
}

static inline int qwen3_number(const qwen3_source *s, const qwen3_value *v, double least,
                               double most, double *out)
{
    if (!json_is_number(v->json)) return qwen3_wrong_kind(s, v, "a number");
    *out = json_number_value(v->json);
    if (*out < least || *out > most)
        return qwen3_fail(s, "%s: %g, expected %g to %g", v->name, *out, least, most);
    return 0;
}

static inline int qwen3_flag(const qwen3_source *s, json_t *object, const char *name, int *out)
{
    const qwen3_value v = qwen3_field(object, name);
    *out = 0;
    if (!qwen3_given(&v)) return 0;
    if (!json_is_boolean(v.json)) return qwen3_wrong_kind(s, &v, "true or false");
    *out = json_is_true(v.json);
    return 0;
}

static inline int qwen3_array(const qwen3_source *s, const qwen3_value *v, size_t least,
                              size_t most, size_t *count)
{
    if (!json_is_array(v->json)) return qwen3_wrong_kind(s, v, "an array");
    *count = json_array_size(v->json);
    if (*count < least || *count > most)
        return qwen3_fail(s, "%s: %zu items, expected %zu to %zu", v->name, *count, least, most);
    return 0;
}

static inline int qwen3_object(const qwen3_source *s, const qwen3_value *v)
{
    return json_is_object(v->json) ? 0 : qwen3_wrong_kind(s, v, "an object");
}

/* The text belongs to the JSON value and lives as long. */
static inline int qwen3_text(const qwen3_source *s, const qwen3_value *v, const char **out)
{
    if (!json_is_string(v->json)) return qwen3_wrong_kind(s, v, "a string");
    *out = json_string_value(v->json);
    return 0;
}

/* ---- qwen3: config.json ---------------------------------------------------------------------------- */

static inline int qwen3_size(const qwen3_source *s, json_t *o, const char *name, uint32_t most,
                             uint32_t *out)
{
    const qwen3_value v = qwen3_field(o, name);
    return qwen3_count(s, &v, 1, most, out);
}

/* Whether a value is `only`, in JSON: null, true, false, a number, a text without escapes, or {}. Takes no memory. */
static inline int qwen3_is(const json_t *v, const char *only)
{
    const size_t size = json_string_length(v);
    char *end;
    const double number = strtod(only, &end);
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return !strcmp(only, "{}") && !json_object_size(v);
    case JSON_STRING:
        return only[0] == '"' && strlen(only) == size + 2 &&
               !memcmp(only + 1, json_string_value(v), size);
    case JSON_INTEGER:
    case JSON_REAL:
        return end != only && json_number_value(v) == number;
    case JSON_ARRAY:
        return 0;
    default:
        return !strcmp(only, qwen3_kind(v));
    }
}

/* Refuses a value that is given and is not the only one that this decoder has. */
static inline int qwen3_only(const qwen3_source *s, const qwen3_value *v, const char *only)
{
    char text[80];
    size_t size;
    if (!qwen3_given(v) || qwen3_is(v->json, only)) return 0;
    size = json_dumpb(v->json, text, sizeof text, JSON_COMPACT | JSON_ENCODE_ANY);
    return qwen3_fail(s, "%s: %.*s%s is not supported, expected %s", v->name,
                      (int)(size < sizeof text ? size : sizeof text), text,
                      size > sizeof text ? "..." : "", only);
}

static inline int qwen3_field_only(const qwen3_source *s, json_t *object, const char *name,
                                   const char *only)
{
    const qwen3_value v = qwen3_field(object, name);
    return qwen3_only(s, &v, only);
}

/* The fields that Hugging Face's configurations have and that are known here. All others are named in a warning. */
static const char *const qwen3_silent_fields[] = {
    /* the parsers below read them, */
    "architectures", "decoder_sparse_step", "eos_token_id", "head_dim", "hidden_size",
    "intermediate_size", "layer_types", "max_position_embeddings", "mlp_only_layers", "model_type",
    "moe_intermediate_size", "norm_topk_prob", "num_attention_heads", "num_experts",
    "num_experts_per_tok", "num_hidden_layers", "num_key_value_heads", "num_local_experts",
    "quantization_config", "rms_norm_eps", "rope_parameters", "rope_scaling", "rope_theta",
    "tie_word_embeddings", "vocab_size",

    /* and these change no result: of training and of its losses */
    "attention_dropout", "classifier_dropout", "hidden_dropout", "initializer_range",
    "output_router_logits", "problem_type", "router_aux_loss_coef", "router_jitter_noise",

    /* of windows, without use_sliding_window */
    "max_window_layers", "sliding_window",

    /* the files say of which type weights are */
    "dtype", "torch_dtype",

    /* how Hugging Face's code computes the same, and what it returns beside the logits */
    "_attn_implementation", "_attn_implementation_autoset", "_experts_implementation",
    "attn_implementation", "cache_implementation", "chunk_size_feed_forward", "output_attentions",
    "output_hidden_states", "output_logits", "output_scores", "pretraining_tp", "return_dict",
    "return_dict_in_generate", "torchscript", "use_bfloat16", "use_cache",

    /* names, and tokens that no prompt gets by itself */
    "_commit_hash", "_from_model_config", "_name_or_path", "bos_token_id", "finetuning_task",
    "id2label", "label2id", "name_or_path", "num_labels", "pad_token_id", "sep_token_id",
    "tokenizer_class", "transformers_version",

    /* defaults of what the program has options for */
    "do_sample", "max_length", "max_new_tokens", "min_p", "temperature", "top_k", "top_p"};

/* A field of which only one value changes nothing. */
typedef struct qwen3_fixed_field {
    const char *name, *only; /* in JSON */
} qwen3_fixed_field;
/* With another value it is another model: refused. */
static const qwen3_fixed_field qwen3_refused_fields[] = {
    {"add_cross_attention", "false"},
    {"attention_bias", "false"},
    {"attention_chunk_size", "null"},
    {"attention_multiplier", "null"},
    {"attn_logit_softcapping", "null"},
    {"compression_config", "null"},
    {"cross_attention_hidden_size", "null"},
    {"embedding_multiplier", "1"},
    {"final_logit_softcapping", "null"},
    {"hidden_act", "\"silu\""},
    {"hidden_activation", "\"silu\""},
    {"is_causal", "true"},
    {"is_encoder_decoder", "false"},
    {"kv_lora_rank", "null"},
    {"logit_scale", "1"},
    {"logits_scaling", "1"},
    {"mlp_bias", "false"},
    {"n_group", "1"},
    {"n_shared_experts", "0"},
    {"partial_rotary_factor", "1"},
    {"pruned_heads", "{}"},
    {"q_lora_rank", "null"},
    {"qkv_bias", "false"},
    {"query_pre_attn_scalar", "null"},
    {"residual_multiplier", "1"},
    {"rope_interleave", "false"},
    {"rotary_pct", "1"},
    {"routed_scaling_factor", "1"},
    {"scoring_func", "\"softmax\""},
    {"shared_expert_intermediate_size", "0"},
    {"text_config", "null"},
    {"topk_group", "1"},
    {"use_bidirectional_attention", "false"},
    {"use_qk_norm", "true"},
    {"use_sliding_window", "false"},
    {"vision_config", "null"},
};
/* Another value asks generate() for something that the decoder does not have: named in a warning. */
static const qwen3_fixed_field qwen3_warned_fields[] = {
    {"bad_words_ids", "null"},
    {"begin_suppress_tokens", "null"},
    {"diversity_penalty", "0"},
    {"early_stopping", "false"},
    {"encoder_no_repeat_ngram_size", "0"},
    {"encoder_repetition_penalty", "1"},
    {"epsilon_cutoff", "0"},
    {"eta_cutoff", "0"},
    {"exponential_decay_length_penalty", "null"},
    {"forced_bos_token_id", "null"},
    {"forced_eos_token_id", "null"},
    {"guidance_scale", "1"},
    {"is_decoder", "false"},
    {"length_penalty", "1"},
    {"min_length", "0"},
    {"min_new_tokens", "null"},
    {"no_repeat_ngram_size", "0"},
    {"num_beam_groups", "1"},
    {"num_beams", "1"},
    {"num_return_sequences", "1"},
    {"penalty_alpha", "null"},
    {"prefix", "null"},
    {"remove_invalid_values", "false"},
    {"renormalize_logits", "false"},
    {"repetition_penalty", "1"},
    {"stop_strings", "null"},
    {"suppress_tokens", "null"},
    {"task_specific_params", "null"},
    {"tie_encoder_decoder", "false"},
    {"typical_p", "1"},
};

#define QWEN3_COUNT_OF(table) (sizeof(table) / sizeof((table)[0]))
static inline const char *qwen3_only_value(const qwen3_fixed_field *fields, size_t count,
                                           const char *name)
{
    size_t i;
    for (i = 0; i < count; i++)
        if (!strcmp(fields[i].name, name)) return fields[i].only;
    return NULL;
}
static inline int qwen3_is_silent(const char *name)
{
    size_t i;
    for (i = 0; i < QWEN3_COUNT_OF(qwen3_silent_fields); i++)
        if (!strcmp(qwen3_silent_fields[i], name)) return 1;
    return 0;
}

/* Looks at every field of a file's object. */
static inline int qwen3_check_fields(qwen3_config *c, const qwen3_source *s, json_t *o)
{
    qwen3_names passed_over;
    void *iter;
    memset(&passed_over, 0, sizeof passed_over);
    for (iter = json_object_iter(o); iter; iter = json_object_iter_next(o, iter)) {
        const char *name = json_object_iter_key(iter);
        const qwen3_value v = qwen3_field(o, name);
        const char *refused =
            qwen3_only_value(qwen3_refused_fields, QWEN3_COUNT_OF(qwen3_refused_fields), name);
        const char *warned =
            qwen3_only_value(qwen3_warned_fields, QWEN3_COUNT_OF(qwen3_warned_fields), name);
        if (refused && qwen3_only(s, &v, refused)) return -1;
        if (refused || (warned && (!qwen3_given(&v) || qwen3_is(v.json, warned)))) continue;
        if (!qwen3_is_silent(name)) qwen3_name_passed_over(&passed_over, name);
    }
    qwen3_warn(c, s->file, "passed over, though results may depend on it", &passed_over);
    return 0;
}

static inline int qwen3_config_variant(const qwen3_source *s, json_t *o, int *sparse)
{
    const qwen3_value type = qwen3_field(o, "model_type");
    const qwen3_value classes = qwen3_field(o, "architectures");
    const char *text = NULL;
    size_t count = 0, i;
    if (qwen3_text(s, &type, &text)) return -1;
    *sparse = strcmp(text, "qwen3_moe") == 0;
    if (!*sparse && strcmp(text, "qwen3") != 0)
        return qwen3_fail(
            s, "model_type: \"%s\" is not supported, expected \"qwen3\" or \"qwen3_moe\"", text);
    if (!qwen3_given(&classes)) return 0;
    if (qwen3_array(s, &classes, 1, QWEN3_MAX_VALUES, &count)) return -1;
    for (i = 0; i < count; i++) {
        const qwen3_value name = qwen3_item(&classes, i);
        if (qwen3_text(s, &name, &text) ||
            qwen3_only(s, &name, *sparse ? "\"Qwen3MoeForCausalLM\"" : "\"Qwen3ForCausalLM\""))
            return -1;
    }
    return 0;
}

static inline int qwen3_config_sizes(qwen3_config *c, const qwen3_source *s, json_t *o)
{
    const qwen3_value head_dim = qwen3_field(o, "head_dim");
    if (qwen3_size(s, o, "vocab_size", QWEN3_MAX_SIZE, &c->vocab) ||
        qwen3_size(s, o, "hidden_size", QWEN3_MAX_SIZE, &c->hidden) ||
        qwen3_size(s, o, "intermediate_size", QWEN3_MAX_SIZE, &c->ffn) ||
        qwen3_size(s, o, "num_hidden_layers", QWEN3_MAX_LAYERS, &c->layers) ||
        qwen3_size(s, o, "num_attention_heads", QWEN3_MAX_SIZE, &c->heads) ||
        qwen3_size(s, o, "num_key_value_heads", QWEN3_MAX_SIZE, &c->kv_heads) ||
        qwen3_size(s, o, "max_position_embeddings", QWEN3_MAX_SIZE, &c->positions))
        return -1;
    if (c->heads % c->kv_heads != 0)
        return qwen3_fail(s, "num_attention_heads: %u is not a multiple of num_key_value_heads, %u",
                          c->heads, c->kv_heads);
    if (qwen3_given(&head_dim)) {
        if (qwen3_count(s, &head_dim, 1, QWEN3_MAX_SIZE, &c->head_dim)) return -1;
    } else {
        if (c->hidden % c->heads != 0)
            return qwen3_fail(s,
                              "head_dim: missing, and hidden_size, %u, is not a multiple of "
                              "num_attention_heads, %u",
                              c->hidden, c->heads);
        c->head_dim = c->hidden / c->heads;
    }
    if (c->head_dim % 2 != 0)
        return qwen3_fail(s, "head_dim: %u, expected an even number", c->head_dim);
    if (c->head_dim > QWEN3_MAX_SIZE / c->heads)
        return qwen3_fail(s, "num_attention_heads: %u heads of head_dim %u are more than %u rows",
                          c->heads, c->head_dim, QWEN3_MAX_SIZE);
    return 0;
}

/* The types of the layers, which might still name windows. */
static inline int qwen3_config_layer_types(const qwen3_config *c, const qwen3_source *s, json_t *o)
{
    const qwen3_value types = qwen3_field(o, "layer_types");
    size_t count = 0, i;
    if (!qwen3_given(&types)) return 0;
    if (qwen3_array(s, &types, c->layers, c->layers, &count)) return -1;
    for (i = 0; i < count; i++) {
        const qwen3_value type = qwen3_item(&types, i);
        const char *text = NULL;
        if (qwen3_text(s, &type, &text) || qwen3_only(s, &type, "\"full_attention\"")) return -1;
    }
    return 0;
}

/* A rope_theta, which must be that of other places. */
static inline int qwen3_config_theta(qwen3_config *c, const qwen3_source *s, json_t *o)
{
    const qwen3_value v = qwen3_field(o, "rope_theta");
    double theta = 0;
    if (!qwen3_given(&v)) return 0;
    if (qwen3_number(s, &v, 1, 1e15, &theta)) return -1;
    if (c->rope_theta > 0 && c->rope_theta != theta)
        return qwen3_fail(s, "rope_theta: %g, but another rope_theta is %g", theta, c->rope_theta);
    c->rope_theta = theta;
    return 0;
}

/* rope_parameters or the older rope_scaling: an object that scales nothing, and may have the theta. */
static inline int qwen3_config_rope_object(qwen3_config *c, qwen3_source s, json_t *o,
                                           const char *name)
{
    const qwen3_value rope = qwen3_field(o, name);
    void *iter;
    if (!qwen3_given(&rope)) return 0;
    if (qwen3_object(&s, &rope)) return -1;
    s.within = name;
    for (iter = json_object_iter(rope.json); iter; iter = json_object_iter_next(rope.json, iter)) {
        const char *key = json_object_iter_key(iter);
        const qwen3_value v = qwen3_field(rope.json, key);
        if (!strcmp(key, "rope_theta")) continue;
        if (qwen3_only(&s, &v,
                       !strcmp(key, "rope_type") || !strcmp(key, "type") ? "\"default\""
                       : !strcmp(key, "partial_rotary_factor")           ? "1"
                                                                         : "null"))
            return -1;
    }
    return qwen3_config_theta(c, &s, rope.json);
}

static inline int qwen3_config_rope(qwen3_config *c, const qwen3_source *s, json_t *o)
{
    const qwen3_value theta = qwen3_field(o, "rope_theta");
    if (qwen3_config_theta(c, s, o) || qwen3_config_rope_object(c, *s, o, "rope_scaling") ||
        qwen3_config_rope_object(c, *s, o, "rope_parameters"))
        return -1;
    return c->rope_theta > 0 ? 0 : qwen3_wrong_kind(s, &theta, "a number");
}

static inline int qwen3_config_eos(qwen3_config *c, const qwen3_source *s, json_t *o)
{
    const qwen3_value eos = qwen3_field(o, "eos_token_id");
    size_t count = 0, i;
    if (!qwen3_given(&eos)) return 0;
    c->eos_count = 0;
    if (!json_is_array(eos.json)) {
        c->eos_count = 1;
        return json_is_integer(eos.json)
                   ? qwen3_count(s, &eos, 0, c->vocab - 1, c->eos)
                   : qwen3_wrong_kind(s, &eos, "null, an integer or an array of them");
    }
    if (qwen3_array(s, &eos, 0, QWEN3_MAX_EOS, &count)) return -1;
    for (i = 0; i < count; i++) {
        const qwen3_value id = qwen3_item(&eos, i);
        if (qwen3_count(s, &id, 0, c->vocab - 1, &c->eos[i])) return -1;
    }
    c->eos_count = (uint32_t)count;
    return 0;
}

/* num_experts has two names; if both are given, they must agree. */
static inline int qwen3_config_expert_count(qwen3_config *c, const qwen3_source *s, json_t *o)
{
    const qwen3_value one = qwen3_field(o, "num_experts"),
                      other = qwen3_field(o, "num_local_experts");
    uint32_t again = 0;
    if (qwen3_count(s, qwen3_given(&other) && !qwen3_given(&one) ? &other : &one, 0,
                    QWEN3_MAX_EXPERTS, &c->experts))
        return -1;
    if (!qwen3_given(&one) || !qwen3_given(&other)) return 0;
    if (qwen3_count(s, &other, 0, QWEN3_MAX_EXPERTS, &again)) return -1;
    return again == c->experts
               ? 0
               : qwen3_fail(s, "num_local_experts: %u, but num_experts is %u", again, c->experts);
}

static inline int qwen3_config_experts(qwen3_config *c, const qwen3_source *s, json_t *o)
{
    const qwen3_value every = qwen3_field(o, "decoder_sparse_step");
    const qwen3_value dense = qwen3_field(o, "mlp_only_layers");
    uint32_t step = 1, layer;
    size_t count = 0, i;
    if (qwen3_config_expert_count(c, s, o)) return -1;
    if (c->experts == 0) return 0;
    if (qwen3_size(s, o, "num_experts_per_tok", c->experts, &c->experts_per_token) ||
        qwen3_size(s, o, "moe_intermediate_size", QWEN3_MAX_SIZE, &c->expert_ffn) ||
        qwen3_flag(s, o, "norm_topk_prob", &c->norm_topk) ||
        (qwen3_given(&every) && qwen3_count(s, &every, 1, QWEN3_MAX_SIZE, &step)))
        return -1;
    for (layer = 0; layer < c->layers; layer++) c->sparse[layer] = (layer + 1) % step == 0;
    if (qwen3_given(&dense)) {
        if (qwen3_array(s, &dense, 0, c->layers, &count)) return -1;
        for (i = 0; i < count; i++) {
            const qwen3_value v = qwen3_item(&dense, i);
            if (qwen3_count(s, &v, 0, c->layers - 1, &layer)) return -1;
            c->sparse[layer] = 0;
        }
    }
    for (layer = 0; layer < c->layers; layer++) c->sparse_layers += c->sparse[layer];
    return 0;
}

/* `total` and `count` matrices more; never above QWEN3_MAX_PARAMETERS. */
static inline uint64_t qwen3_add_matrices(uint64_t total, uint64_t count, uint64_t rows,
                                          uint64_t columns)
{
    const uint64_t left = QWEN3_MAX_PARAMETERS - total;
    return count > left / (rows * columns) ? QWEN3_MAX_PARAMETERS : total + count * rows * columns;
}

static inline int qwen3_config_parameters(qwen3_config *c, const qwen3_source *s)
{
    const uint64_t q = (uint64_t)c->heads * c->head_dim, kv = (uint64_t)c->kv_heads * c->head_dim;
    const uint64_t dense = c->layers - c->sparse_layers, routed = c->sparse_layers;
    uint64_t n = qwen3_add_matrices(0, c->tied ? 1 : 2, c->vocab, c->hidden);
    n = qwen3_add_matrices(n, c->layers, 2 * q + 2 * kv, c->hidden);
    n = qwen3_add_matrices(n, 2 * (uint64_t)c->layers + 1, 1, c->hidden);
    n = qwen3_add_matrices(n, 2 * (uint64_t)c->layers, 1, c->head_dim);
    n = qwen3_add_matrices(n, 3 * dense, c->ffn, c->hidden);
    if (routed) {
        n = qwen3_add_matrices(n, routed, c->experts, c->hidden);
        n = qwen3_add_matrices(n, 3 * routed * c->experts, c->expert_ffn, c->hidden);
    }
    c->parameters = n;
    if (n < QWEN3_MAX_PARAMETERS) return 0;
    return qwen3_fail(s, "hidden_size: %u, with the other sizes, makes more than 2^60 weights",
                      c->hidden);
}

/* quantization_config (quantized.h). */
static inline int qwen3_config_quantization(qwen3_config *c, const qwen3_source *s, json_t *o);

static inline int qwen3_parse_config(qwen3_config *c, const char *text, size_t size,
                                     const char *file, char *error, size_t error_size)
{
    const qwen3_source s = qwen3_source_of(file, error, error_size);
    json_t *o = qwen3_json(&s, text, size);
    qwen3_value eps;
    int sparse = 0, failed;
    memset(c, 0, sizeof *c);
    if (!o) return -1;
    eps = qwen3_field(o, "rms_norm_eps");
    failed = qwen3_config_variant(&s, o, &sparse) || qwen3_check_fields(c, &s, o) ||
             qwen3_config_sizes(c, &s, o) || qwen3_config_layer_types(c, &s, o) ||
             qwen3_config_rope(c, &s, o) || qwen3_number(&s, &eps, 1e-30, 1, &c->norm_eps) ||
             qwen3_flag(&s, o, "tie_word_embeddings", &c->tied) || qwen3_config_eos(c, &s, o) ||
             (sparse && qwen3_config_experts(c, &s, o)) || qwen3_config_parameters(c, &s) ||
             qwen3_config_quantization(c, &s, o);
    json_decref(o);
    return failed ? -1 : 0;
}

static inline int qwen3_parse_generation(qwen3_config *c, const char *text, size_t size,
                                         const char *file, char *error, size_t error_size)
{
    const qwen3_source s = qwen3_source_of(file, error, error_size);
    json_t *o = qwen3_json(&s, text, size);
    int failed;
    if (!o) return -1;
    failed = qwen3_check_fields(c, &s, o) || qwen3_config_eos(c, &s, o);
    json_decref(o);
    return failed ? -1 : 0;
}

/* ---- qwen3: safetensors ---------------------------------------------------------------------------- */

/* The first three are those of qwen3_dtype, in its order. */
static const struct qwen3_type {
    const char *name;
    uint32_t bytes;
} qwen3_types[] = {{"BF16", 2},    {"F16", 2},    {"F32", 4},  {"F64", 8}, {"I64", 8},
                   {"U64", 8},     {"I32", 4},    {"U32", 4},  {"I16", 2}, {"U16", 2},
                   {"I8", 1},      {"U8", 1},     {"BOOL", 1}, {"C64", 8}, {"F8_E8M0", 1},
                   {"F8_E4M3", 1}, {"F8_E5M2", 1}};

/* Bytes of an element; 0: the type is unknown. */
static inline uint32_t qwen3_type_bytes(const char *name, qwen3_dtype *dtype)
{
    uint32_t i;
    *dtype = QWEN3_OTHER;
    for (i = 0; i < sizeof qwen3_types / sizeof qwen3_types[0]; i++)
        if (strcmp(name, qwen3_types[i].name) == 0) {
            if (i < QWEN3_OTHER) *dtype = (qwen3_dtype)i;
            return qwen3_types[i].bytes;
        }
    return 0;
}

/* "[384, 128]" */
static inline const char *qwen3_shape_text(char text[100], const uint64_t *shape,
                                           uint32_t dimensions)
{
    size_t used = 0;
    uint32_t i;
    text[used++] = '[';
    for (i = 0; i < dimensions && i < QWEN3_DIMENSIONS; i++)
        used += (size_t)snprintf(text + used, 100 - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)shape[i]);
    snprintf(text + used, 100 - used, i < dimensions ? ", ...]" : "]");
    return text;
}

static inline int qwen3_read_entry(qwen3_entry *e, const qwen3_source *s, const qwen3_value *v,
                                   uint64_t data_size)
{
    qwen3_value dtype, shape, offsets, item;
    const char *type = NULL;
    char text[100];
    uint64_t elements = 1, bytes;
    size_t count = 0, i;
    int64_t number = 0;
    if (qwen3_object(s, v)) return -1;
    dtype = qwen3_field(v->json, "dtype");
    shape = qwen3_field(v->json, "shape");
    offsets = qwen3_field(v->json, "data_offsets");
    if (qwen3_text(s, &dtype, &type) || qwen3_array(s, &shape, 0, QWEN3_MAX_VALUES, &count))
        return -1;
    bytes = qwen3_type_bytes(type, &e->dtype);
    snprintf(e->dtype_name, sizeof e->dtype_name, "%s", type);
    e->dimensions = (uint32_t)count;
    for (i = 0; i < count; i++) {
        item = qwen3_item(&shape, i);
        if (qwen3_integer(s, &item, 0, INT64_MAX, &number)) return -1;
        if (i < QWEN3_DIMENSIONS) e->shape[i] = (uint64_t)number;
        if (number && elements > INT64_MAX / 8 / (uint64_t)number)
            return qwen3_fail(s, "shape: more elements than 2^60");
        elements *= (uint64_t)number;
    }
    if (qwen3_array(s, &offsets, 2, 2, &count)) return -1;
    item = qwen3_item(&offsets, 0);
    if (qwen3_integer(s, &item, 0, (int64_t)data_size, &number)) return -1;
    e->begin = (uint64_t)number;
    item = qwen3_item(&offsets, 1);
    if (qwen3_integer(s, &item, number, (int64_t)data_size, &number)) return -1;
    e->end = (uint64_t)number;
    if (bytes && e->end - e->begin != elements * bytes)
        return qwen3_fail(s, "data_offsets: %llu bytes, but shape %s of %s takes %llu",
                          (unsigned long long)(e->end - e->begin),
                          qwen3_shape_text(text, e->shape, e->dimensions), type,
                          (unsigned long long)(elements * bytes));
    return 0;
}

static inline int qwen3_by_offset(const void *a, const void *b)
{
    const qwen3_entry *x = (const qwen3_entry *)a, *y = (const qwen3_entry *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static inline int qwen3_by_name(const void *a, const void *b)
{
    return strcmp(((const qwen3_entry *)a)->name, ((const qwen3_entry *)b)->name);
}

/* Each byte must belong to exactly one tensor, so that no weight overlaps another and no data is
   hidden between them. */
static inline int qwen3_check_cover(const qwen3_header *h, qwen3_source s, uint64_t data_size)
{
    uint64_t at = 0;
    size_t i;
    for (i = 0; i < h->count; at = h->entries[i++].end) {
        const qwen3_entry *e = &h->entries[i];
        s.within = e->name;
        if (e->begin < at)
            return qwen3_fail(
                &s, "data_offsets: [%llu, %llu] overlap those of %.150s, which end at %llu",
                (unsigned long long)e->begin, (unsigned long long)e->end, h->entries[i - 1].name,
                (unsigned long long)at);
        if (e->begin > at)
            return qwen3_fail(
                &s, "data_offsets: begin at %llu, but bytes %llu to %llu belong to no tensor",
                (unsigned long long)e->begin, (unsigned long long)at, (unsigned long long)e->begin);
    }
    s.within = NULL;
    if (at == data_size) return 0;
    return qwen3_fail(&s, "data_offsets: end at %llu, but there are %llu bytes of data",
                      (unsigned long long)at, (unsigned long long)data_size);
}

static inline int qwen3_read_entries(qwen3_header *h, qwen3_source s, json_t *o, uint64_t data_size)
{
    void *iter;
    h->entries = (qwen3_entry *)calloc(json_object_size(o) + 1, sizeof *h->entries);
    if (!h->entries) return qwen3_no_memory(&s);
    for (iter = json_object_iter(o); iter; iter = json_object_iter_next(o, iter)) {
        qwen3_entry *e = &h->entries[h->count];
        const char *name = json_object_iter_key(iter);
        qwen3_value v;
        v.json = json_object_iter_value(iter);
        snprintf(v.name, sizeof v.name, "entry");
        s.within = name;
        if (strcmp(name, "__metadata__") == 0) {
            if (qwen3_object(&s, &v)) return -1;
            continue;
        }
        e->name = qwen3_copy_text(name);
        if (!e->name) return qwen3_no_memory(&s);
        h->count++;
        if (qwen3_read_entry(e, &s, &v, data_size)) return -1;
    }
    qsort(h->entries, h->count, sizeof *h->entries, qwen3_by_offset);
    if (qwen3_check_cover(h, s, data_size)) return -1;
    qsort(h->entries, h->count, sizeof *h->entries, qwen3_by_name);
    return 0;
}

static inline void qwen3_free_header(qwen3_header *h)
{
    size_t i;
    for (i = 0; i < h->count; i++) free(h->entries[i].name);
    free(h->entries);
    memset(h, 0, sizeof *h);
}

static inline int qwen3_parse_header(qwen3_header *h, const char *text, size_t size,
                                     uint64_t data_size, const char *file, char *error,
                                     size_t error_size)
{
    const qwen3_source s = qwen3_source_of(file, error, error_size);
    json_t *o = qwen3_json(&s, text, size);
    int failed;
    memset(h, 0, sizeof *h);
    if (!o) return -1;
    failed = qwen3_read_entries(h, s, o, data_size);
    json_decref(o);
    if (failed) qwen3_free_header(h);
    return failed;
}

static inline int qwen3_parse_safetensors(qwen3_header *h, const unsigned char *bytes, size_t size,
                                          const char *file, char *error, size_t error_size)
{
    const qwen3_source s = qwen3_source_of(file, error, error_size);
    uint64_t length = 0, i;
    memset(h, 0, sizeof *h);
    if (size < 8)
        return qwen3_fail(&s, "header length: the file has %zu bytes, expected at least 8", size);
    for (i = 0; i < 8; i++) length |= (uint64_t)bytes[i] << (8 * i);
    if (length < 2 || length > size - 8 || length > QWEN3_MAX_JSON)
        return qwen3_fail(
            &s, "header length: %llu, expected 2 to %llu (the file has %zu bytes)",
            (unsigned long long)length,
            (unsigned long long)(size - 8 < QWEN3_MAX_JSON ? size - 8 : QWEN3_MAX_JSON), size);
    if (qwen3_parse_header(h, (const char *)bytes + 8, (size_t)length, size - 8 - length, file,
                           error, error_size))
        return -1;
    h->data_at = 8 + length;
    return 0;
}

/* ---- qwen3: the index of the shards ---------------------------------------------------------------- */

/* The number of a file in index->files; a new file gets the next one. `numbers` is an object from
   file names to numbers. */
static inline int qwen3_file_number(qwen3_index *index, const qwen3_source *s, json_t *numbers,
                                    const char *file, uint32_t *number)
{
    const json_t *known = json_object_get(numbers, file);
    if (known) {
        *number = (uint32_t)json_integer_value(known);
        return 0;
    }
    if (!*file || strchr(file, '/') || strstr(file, ".."))
        return qwen3_fail(s, "weight_map: \"%s\" is not the name of a file in this folder", file);
    *number = index->file_count;
    index->files[*number] = qwen3_copy_text(file);
    if (!index->files[*number]) return qwen3_no_memory(s);
    index->file_count++;
    return json_object_set_new(numbers, file, json_integer(*number)) ? qwen3_no_memory(s) : 0;
}

static inline int qwen3_place_by_name(const void *a, const void *b)
{
    return strcmp(((const qwen3_place *)a)->name, ((const qwen3_place *)b)->name);
}

static inline int qwen3_read_index(qwen3_index *index, qwen3_source s, json_t *o, json_t *numbers)
{
    const qwen3_value map = qwen3_field(o, "weight_map");
    void *iter;
    if (qwen3_object(&s, &map)) return -1;
    index->places = (qwen3_place *)calloc(json_object_size(map.json) + 1, sizeof *index->places);
    index->files = (char **)calloc(json_object_size(map.json) + 1, sizeof *index->files);
    if (!index->places || !index->files || !numbers) return qwen3_no_memory(&s);
    for (iter = json_object_iter(map.json); iter; iter = json_object_iter_next(map.json, iter)) {
        qwen3_place *place = &index->places[index->count];
        const char *file = NULL;
        qwen3_value v;
        v.json = json_object_iter_value(iter);
        snprintf(v.name, sizeof v.name, "weight_map");
        s.within = json_object_iter_key(iter);
        place->name = qwen3_copy_text(s.within);
        if (!place->name) return qwen3_no_memory(&s);
        index->count++;
        if (qwen3_text(&s, &v, &file) || qwen3_file_number(index, &s, numbers, file, &place->file))
            return -1;
    }
    qsort(index->places, index->count, sizeof *index->places, qwen3_place_by_name);
    return 0;
}

static inline void qwen3_free_index(qwen3_index *index)
{
    size_t i;
    for (i = 0; i < index->count; i++) free(index->places[i].name);
    for (i = 0; i < index->file_count; i++) free(index->files[i]);
    free(index->places);
    free(index->files);
    memset(index, 0, sizeof *index);
}

static inline int qwen3_parse_index(qwen3_index *index, const char *text, size_t size,
                                    const char *file, char *error, size_t error_size)
{
    const qwen3_source s = qwen3_source_of(file, error, error_size);
    json_t *o = qwen3_json(&s, text, size), *numbers;
    int failed;
    memset(index, 0, sizeof *index);
    if (!o) return -1;
    numbers = json_object();
    failed = qwen3_read_index(index, s, o, numbers);
    json_decref(numbers);
    json_decref(o);
    if (failed) qwen3_free_index(index);
    return failed;
}

/* ---- qwen3: files ---------------------------------------------------------------------------------- */

static inline char *qwen3_path(const char *dir, const char *name)
{
    const size_t size = strlen(dir) + strlen(name) + 2;
    char *path = (char *)malloc(size);
    if (path) snprintf(path, size, "%s/%s", dir, name);
    return path;
}

/* Maps a file for reading; an empty one has no bytes. A pipe or a folder is an error, without
   waiting for it. */
static inline int qwen3_map(qwen3_bytes *bytes, const char *path, char *error, size_t error_size)
{
    const qwen3_source s = qwen3_source_of(path, error, error_size);
    struct stat info;
    int file, failed = 0;
    void *at;
    bytes->at = NULL;
    bytes->size = 0;
    file = open(path, O_RDONLY | O_NONBLOCK);
    if (file < 0) return qwen3_fail_errno(&s);
    if (fstat(file, &info)) {
        failed = qwen3_fail_errno(&s);
    } else if (!S_ISREG(info.st_mode)) {
        failed = qwen3_fail(&s, S_ISDIR(info.st_mode) ? "is a folder, expected a file"
                                                      : "is not a regular file");
    } else if (info.st_size > 0) {
        at = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (at == MAP_FAILED) {
            failed = qwen3_fail_errno(&s);
        } else {
            bytes->at = (const unsigned char *)at;
            bytes->size = (size_t)info.st_size;
        }
    }
    close(file);
    return failed;
}

static inline void qwen3_unmap(qwen3_bytes *bytes)
{
    if (bytes->size) munmap((void *)(uintptr_t)bytes->at, bytes->size);
    bytes->at = NULL;
    bytes->size = 0;
}

/* Maps the file `path`, or the one of the usual name in the folder `path`; `name` is the file's, for messages. */
static inline int qwen3_map_usual(qwen3_bytes *bytes, const char **name, const char *path,
                                  const char *usual, char *error, size_t error_size)
{
    const qwen3_source s = qwen3_source_of(path, error, error_size);
    const char *slash = strrchr(path, '/');
    struct stat info;
    char *inside;
    int failed;
    *name = slash ? slash + 1 : path;
    if (stat(path, &info) || !S_ISDIR(info.st_mode))
        return qwen3_map(bytes, path, error, error_size);
    *name = usual;
    inside = qwen3_path(path, usual);
    if (!inside) return qwen3_no_memory(&s);
    failed = qwen3_map(bytes, inside, error, error_size);
    free(inside);
    return failed;
}

static inline int qwen3_config_read(qwen3_config *config, const char *path, char *error,
                                    size_t error_size)
{
    const char *name;
    qwen3_bytes text;
    int failed;
    memset(config, 0, sizeof *config);
    if (qwen3_map_usual(&text, &name, path, "config.json", error, error_size)) return -1;
    failed = qwen3_parse_config(config, (const char *)text.at, text.size, name, error, error_size);
    qwen3_unmap(&text);
    return failed;
}

static inline int qwen3_open_shard(qwen3_checkpoint *c, const char *dir, const char *name)
{
    const qwen3_source s = qwen3_source_of(name, c->error, sizeof c->error);
    qwen3_shard *shard = &c->shards[c->shard_count];
    char *path = qwen3_path(dir, name);
    int failed;
    if (!path) return qwen3_no_memory(&s);
    failed = qwen3_map(&shard->mapped, path, c->error, sizeof c->error);
    free(path);
    if (failed) return -1;
    c->shard_count++;
    shard->name = name;
    return qwen3_parse_safetensors(&shard->header, shard->mapped.at, shard->mapped.size, name,
                                   c->error, sizeof c->error);
}

#define QWEN3_SINGLE "model.safetensors"
#define QWEN3_INDEX "model.safetensors.index.json"
#define QWEN3_GENERATION "generation_config.json"

/* A folder need not have this file. */
static inline int qwen3_open_generation(qwen3_checkpoint *c, const char *dir)
{
    const qwen3_source s = qwen3_source_of(dir, c->error, sizeof c->error);
    char *path = qwen3_path(dir, QWEN3_GENERATION);
    struct stat info;
    qwen3_bytes text;
    int failed = 0;
    if (!path) return qwen3_no_memory(&s);
    if (stat(path, &info) == 0) {
        failed = qwen3_map(&text, path, c->error, sizeof c->error);
        if (!failed) {
            failed = qwen3_parse_generation(&c->config, (const char *)text.at, text.size,
                                            QWEN3_GENERATION, c->error, sizeof c->error);
            qwen3_unmap(&text);
        }
    }
    free(path);
    return failed;
}

static inline int qwen3_open_index(qwen3_checkpoint *c, const char *path)
{
    qwen3_bytes text;
    int failed;
    if (qwen3_map(&text, path, c->error, sizeof c->error)) return -1;
    failed = qwen3_parse_index(&c->index, (const char *)text.at, text.size, QWEN3_INDEX, c->error,
                               sizeof c->error);
    qwen3_unmap(&text);
    return failed;
}

/* Opens the single file, or the shards of the index. */
static inline int qwen3_open_shards(qwen3_checkpoint *c, const char *dir)
{
    const qwen3_source s = qwen3_source_of(dir, c->error, sizeof c->error);
    char *single = qwen3_path(dir, QWEN3_SINGLE), *index = qwen3_path(dir, QWEN3_INDEX);
    struct stat info;
    uint32_t i;
    int failed;
    if (!single || !index) {
        failed = qwen3_no_memory(&s);
    } else if (stat(single, &info) == 0) {
        failed = 0;
    } else if (stat(index, &info) == 0) {
        c->sharded = 1;
        failed = qwen3_open_index(c, index);
    } else {
        failed = qwen3_fail(&s, "has neither " QWEN3_SINGLE " nor " QWEN3_INDEX);
    }
    free(single);
    free(index);
    if (failed) return -1;
    c->shards = (qwen3_shard *)calloc((size_t)c->index.file_count + 1, sizeof *c->shards);
    if (!c->shards) return qwen3_no_memory(&s);
    if (!c->sharded) return qwen3_open_shard(c, dir, QWEN3_SINGLE);
    for (i = 0; i < c->index.file_count; i++)
        if (qwen3_open_shard(c, dir, c->index.files[i])) return -1;
    return 0;
}

static inline int qwen3_open(qwen3_checkpoint *c, const char *dir)
{
    memset(c, 0, sizeof *c);
    if (qwen3_config_read(&c->config, dir, c->error, sizeof c->error) == 0 &&
        qwen3_open_generation(c, dir) == 0 && qwen3_open_shards(c, dir) == 0 && qwen3_bind(c) == 0)
        return 0;
    qwen3_close(c);
    return -1;
}

#if defined(__linux__) && !defined(__cplusplus)
extern int madvise(void *at, size_t size,
                   int advice); /* in strict C11 the headers do not declare it */
#endif
static inline void qwen3_release(const qwen3_checkpoint *c)
{
#if defined(__linux__)
    const int dont_need = 4; /* MADV_DONTNEED */
    uint32_t i;
    for (i = 0; i < c->shard_count; i++)
        if (c->shards[i].mapped.size)
            madvise((void *)(uintptr_t)c->shards[i].mapped.at, c->shards[i].mapped.size, dont_need);
#else
    (void)c;
#endif
}

static inline void qwen3_close(qwen3_checkpoint *c)
{
    uint32_t i;
    for (i = 0; c->layers && i < c->config.layers; i++) free(c->layers[i].expert_gate);
    free(c->layers);
    for (i = 0; i < c->shard_count; i++) {
        qwen3_free_header(&c->shards[i].header);
        qwen3_unmap(&c->shards[i].mapped);
    }
    free(c->shards);
    qwen3_free_index(&c->index);
    c->layers = NULL;
    c->shards = NULL;
    c->shard_count = 0;
}

/* ---- qwen3: the weights, by name ------------------------------------------------------------------- */

/* The shard that has a tensor, and what its header says of it. NULL: there is none; shard NULL: not even in the index. */
static inline qwen3_entry *qwen3_entry_of(const qwen3_checkpoint *c, const char *within,
                                          const qwen3_shard **shard)
{
    qwen3_entry key;
    char name[128];
    snprintf(name, sizeof name, "%s", within);
    *shard = c->shards;
    if (c->sharded) {
        qwen3_place wanted;
        const qwen3_place *place;
        wanted.name = name;
        place = (const qwen3_place *)bsearch(&wanted, c->index.places, c->index.count,
                                             sizeof wanted, qwen3_place_by_name);
        *shard = place ? &c->shards[place->file] : NULL;
        if (!place) return NULL;
    }
    key.name = name;
    return (qwen3_entry *)bsearch(&key, (*shard)->header.entries, (*shard)->header.count,
                                  sizeof key, qwen3_by_name);
}

/* The same of the tensor s.within, which must be there. */
static inline qwen3_entry *qwen3_find(const qwen3_checkpoint *c, qwen3_source s,
                                      const qwen3_shard **shard)
{
    qwen3_entry *entry = qwen3_entry_of(c, s.within, shard);
    if (entry) return entry;
    s.file = *shard ? (*shard)->name : QWEN3_INDEX;
    qwen3_fail(&s, !*shard      ? "missing in weight_map"
                   : c->sharded ? "missing, though " QWEN3_INDEX " names this file"
                                : "missing");
    return NULL;
}

/* Finds the tensor of that name; rows 0: a vector. `type`: the only one that it may have; null:
   BF16, F16 or F32. */
static inline int qwen3_take_typed(qwen3_checkpoint *c, qwen3_tensor *out, const char *name,
                                   uint32_t rows, uint32_t columns, const char *type)
{
    qwen3_source s = qwen3_source_of("", c->error, sizeof c->error);
    const uint64_t matrix[2] = {rows, columns}, *shape = rows ? matrix : matrix + 1;
    const uint32_t dimensions = rows ? 2 : 1;
    const qwen3_shard *shard;
    qwen3_entry *e;
    char is[100], expected[100];
    s.within = name;
    e = qwen3_find(c, s, &shard);
    if (!e) return -1;
    e->used = 1;
    s.file = shard->name;
    if (type ? strcmp(e->dtype_name, type) != 0 : e->dtype == QWEN3_OTHER)
        return qwen3_fail(&s, "dtype %s, expected %s", e->dtype_name,
                          type ? type : "BF16, F16 or F32");
    if (e->dimensions != dimensions || memcmp(e->shape, shape, dimensions * sizeof *shape) != 0)
        return qwen3_fail(&s, "shape %s, expected %s",
                          qwen3_shape_text(is, e->shape, e->dimensions),
                          qwen3_shape_text(expected, shape, dimensions));
    memset(out, 0, sizeof *out);
    out->data = shard->mapped.at + shard->header.data_at + e->begin;
    out->rows = rows ? rows : 1;
    out->columns = columns;
    out->dtype = e->dtype;
    out->name = e->name;
    out->file = shard->name;
    return 0;
}
static inline int qwen3_take(qwen3_checkpoint *c, qwen3_tensor *out, const char *name,
                             uint32_t rows, uint32_t columns)
{
    if (qwen3_take_typed(c, out, name, rows, columns, NULL)) return -1;
    c->rounded += rows && out->dtype != QWEN3_BF16;
    return 0;
}

static inline int qwen3_take_in_layer(qwen3_checkpoint *c, uint32_t layer, qwen3_tensor *out,
                                      const char *part, uint32_t rows, uint32_t columns)
{
    char name[128];
    snprintf(name, sizeof name, "model.layers.%u.%s.weight", layer, part);
    return qwen3_take(c, out, name, rows, columns);
}

/* A matrix of a quantised model: codes, scales and zero points (quantized.h). */
static inline int qwen3_take_quantized(qwen3_checkpoint *c, uint32_t layer, qwen3_tensor *out,
                                       const char *part, uint32_t rows, uint32_t columns);
/* A matrix that is quantised where the model is. */
static inline int qwen3_take_matrix(qwen3_checkpoint *c, uint32_t layer, qwen3_tensor *out,
                                    const char *part, uint32_t rows, uint32_t columns)
{
    return c->config.quantization.codes ? qwen3_take_quantized(c, layer, out, part, rows, columns)
                                        : qwen3_take_in_layer(c, layer, out, part, rows, columns);
}

static inline int qwen3_bind_experts(qwen3_checkpoint *c, uint32_t layer)
{
    const qwen3_source s = qwen3_source_of(c->shards->name, c->error, sizeof c->error);
    const uint32_t experts = c->config.experts, hidden = c->config.hidden,
                   ffn = c->config.expert_ffn;
    qwen3_layer_weights *w = &c->layers[layer];
    uint32_t e;
    w->expert_gate = (qwen3_tensor *)calloc(3 * (size_t)experts, sizeof *w->expert_gate);
    if (!w->expert_gate) return qwen3_no_memory(&s);
    w->expert_up = w->expert_gate + experts;
    w->expert_down = w->expert_up + experts;
    if (qwen3_take_in_layer(c, layer, &w->router, "mlp.gate", experts, hidden)) return -1;
    for (e = 0; e < experts; e++) {
        char gate[64], up[64], down[64];
        snprintf(gate, sizeof gate, "mlp.experts.%u.gate_proj", e);
        snprintf(up, sizeof up, "mlp.experts.%u.up_proj", e);
        snprintf(down, sizeof down, "mlp.experts.%u.down_proj", e);
        if (qwen3_take_matrix(c, layer, &w->expert_gate[e], gate, ffn, hidden) ||
            qwen3_take_matrix(c, layer, &w->expert_up[e], up, ffn, hidden) ||
            qwen3_take_matrix(c, layer, &w->expert_down[e], down, hidden, ffn))
            return -1;
    }
    return 0;
}

static inline int qwen3_bind_layer(qwen3_checkpoint *c, uint32_t layer)
{
    const uint32_t hidden = c->config.hidden, ffn = c->config.ffn, head_dim = c->config.head_dim;
    const uint32_t q = c->config.heads * head_dim, kv = c->config.kv_heads * head_dim;
    qwen3_layer_weights *w = &c->layers[layer];
    if (qwen3_take_in_layer(c, layer, &w->input_norm, "input_layernorm", 0, hidden) ||
        qwen3_take_in_layer(c, layer, &w->post_norm, "post_attention_layernorm", 0, hidden) ||
        qwen3_take_matrix(c, layer, &w->q, "self_attn.q_proj", q, hidden) ||
        qwen3_take_matrix(c, layer, &w->k, "self_attn.k_proj", kv, hidden) ||
        qwen3_take_matrix(c, layer, &w->v, "self_attn.v_proj", kv, hidden) ||
        qwen3_take_matrix(c, layer, &w->o, "self_attn.o_proj", hidden, q) ||
        qwen3_take_in_layer(c, layer, &w->q_norm, "self_attn.q_norm", 0, head_dim) ||
        qwen3_take_in_layer(c, layer, &w->k_norm, "self_attn.k_norm", 0, head_dim))
        return -1;
    w->sparse = c->config.sparse[layer];
    if (w->sparse) return qwen3_bind_experts(c, layer);
    if (qwen3_take_matrix(c, layer, &w->gate, "mlp.gate_proj", ffn, hidden) ||
        qwen3_take_matrix(c, layer, &w->up, "mlp.up_proj", ffn, hidden))
        return -1;
    return qwen3_take_matrix(c, layer, &w->down, "mlp.down_proj", hidden, ffn);
}

/* If embeddings are tied, some files have an lm_head.weight nevertheless. It must equal the
   embedding, or the config is wrong. */
static inline int qwen3_check_tied(qwen3_checkpoint *c)
{
    qwen3_source s = qwen3_source_of("", c->error, sizeof c->error);
    const qwen3_tensor *embed = &c->embed;
    const qwen3_shard *shard;
    qwen3_entry *head;
    s.within = "lm_head.weight";
    head = qwen3_entry_of(c, s.within, &shard);
    if (!head) return 0;
    head->used = 1;
    s.file = shard->name;
    if (head->dtype == embed->dtype && head->dimensions == 2 && head->shape[0] == embed->rows &&
        head->shape[1] == embed->columns &&
        !memcmp(shard->mapped.at + shard->header.data_at + head->begin, embed->data,
                (size_t)(head->end - head->begin)))
        return 0;
    return qwen3_fail(&s, "differs from %s, but config.json has tie_word_embeddings: true",
                      embed->name);
}

/* Whether a tensor belongs to a part of the model that the decoder has, so that it would have to use it. The frequencies of
   RoPE, which old files have, follow from the config. */
static inline int qwen3_is_within(const qwen3_checkpoint *c, const char *name)
{
    static const char *const parts[] = {"lm_head.", "model.embed_tokens.", "model.norm."};
    static const char layers[] = "model.layers.";
    const char *number = name + sizeof layers - 1, *end = strrchr(name, '.');
    uint32_t i, layer = 0;
    if (end && !strcmp(end, ".inv_freq")) return 0;
    for (i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!strncmp(name, parts[i], strlen(parts[i]))) return 1;
    if (strncmp(name, layers, sizeof layers - 1) != 0 || *number == '.') return 0;
    for (; *number >= '0' && *number <= '9' && layer < c->config.layers; number++)
        layer = 10 * layer + (uint32_t)(*number - '0');
    return *number == '.' && layer < c->config.layers;
}

/* Refuses a tensor that the decoder would have to use, such as a bias or a scale, and names others in a warning. */
static inline int qwen3_check_unused(qwen3_checkpoint *c)
{
    uint32_t i;
    for (i = 0; i < c->shard_count; i++) {
        const qwen3_shard *shard = &c->shards[i], *other;
        qwen3_source s = qwen3_source_of(shard->name, c->error, sizeof c->error);
        qwen3_names passed_over;
        size_t k;
        memset(&passed_over, 0, sizeof passed_over);
        for (k = 0; k < shard->header.count; k++) {
            const qwen3_entry *e = &shard->header.entries[k], *found;
            if (e->used) continue;
            s.within = e->name;
            found = qwen3_entry_of(c, e->name, &other); /* used: of another shard, by the index */
            if (qwen3_is_within(c, e->name) && !(found && found->used))
                return qwen3_fail(&s, "this decoder has no such weight");
            qwen3_name_passed_over(&passed_over, e->name);
        }
        qwen3_warn(&c->config, shard->name, "tensors that are not used", &passed_over);
    }
    return 0;
}

static inline int qwen3_bind(qwen3_checkpoint *c)
{
    const qwen3_config *config = &c->config;
    const qwen3_source s = qwen3_source_of(QWEN3_SINGLE, c->error, sizeof c->error);
    uint32_t layer;
    c->layers = (qwen3_layer_weights *)calloc(config->layers, sizeof *c->layers);
    if (!c->layers) return qwen3_no_memory(&s);
    if (qwen3_take(c, &c->embed, "model.embed_tokens.weight", config->vocab, config->hidden) ||
        qwen3_take(c, &c->norm, "model.norm.weight", 0, config->hidden))
        return -1;
    c->head = c->embed;
    if (config->tied && qwen3_check_tied(c)) return -1;
    if (!config->tied && qwen3_take(c, &c->head, "lm_head.weight", config->vocab, config->hidden))
        return -1;
    for (layer = 0; layer < config->layers; layer++)
        if (qwen3_bind_layer(c, layer)) return -1;
    return qwen3_check_unused(c);
}

/* ---- qwen3: numbers -------------------------------------------------------------------------------- */

/* Elements of a block. Work is always done on whole blocks, the last one padded with zeros: loops
   of constant length are those that compilers vectorise at -O2. */
#define QWEN3_BLOCK 1024u

static inline uint32_t qwen3_dtype_bytes(qwen3_dtype dtype)
{
    return dtype == QWEN3_F32 ? 4 : 2;
}

/* Loads the first n elements of a block, and zeros. */
static inline void qwen3_load(void *block, const unsigned char *at, size_t n, size_t bytes)
{
    memcpy(block, at, n * bytes);
    memset((char *)block + n * bytes, 0, (QWEN3_BLOCK - n) * bytes);
}

/* An exponent of all ones, which is an infinity or NaN, carries into the sign's bit: ORed over a block, that bit tells
   whether there is one. */
static inline uint32_t qwen3_not_finite(uint32_t bits)
{
    return (bits & 0x7f800000u) + 0x00800000u;
}

/* A block of binary16 to binary32, exactly: a subnormal is an integer times 2^-24; else the exponent moves by 112,
   and that of infinity by twice as much. */
static inline void qwen3_widen_f16(uint32_t *bits, const uint16_t *halves)
{
    float small[QWEN3_BLOCK];
    uint32_t i;
    for (i = 0; i < QWEN3_BLOCK; i++) small[i] = (float)(halves[i] & 0x3ff) * (1.0f / 16777216.0f);
    memcpy(bits, small, sizeof small);
    for (i = 0; i < QWEN3_BLOCK; i++) {
        const uint32_t half = halves[i], rest = (half & 0x7fffu) << 13;
        const uint32_t up = rest < 0x0f800000u ? 0x38000000u : 0x70000000u;
        bits[i] = (half & 0x8000u) << 16 | (rest < 0x00800000u ? bits[i] : rest + up);
    }
}

/* Rounds to nearest, ties to even; overflow gives infinity. NaN is not handled. */
static inline uint32_t qwen3_round_bf16(uint32_t bits)
{
    return bits + 0x7fffu + (bits >> 16 & 1u);
}

/* Converts a block to bits of floats. Returns whether all are finite. */
static inline int qwen3_block_f32(uint32_t *bits, qwen3_dtype dtype, const unsigned char *at,
                                  size_t n)
{
    uint16_t halves[QWEN3_BLOCK];
    uint32_t i, worst = 0;
    if (dtype == QWEN3_F32) {
        qwen3_load(bits, at, n, 4);
    } else {
        qwen3_load(halves, at, n, 2);
        if (dtype == QWEN3_BF16)
            for (i = 0; i < QWEN3_BLOCK; i++) bits[i] = (uint32_t)halves[i] << 16;
        else
            qwen3_widen_f16(bits, halves);
    }
    for (i = 0; i < QWEN3_BLOCK; i++) worst |= qwen3_not_finite(bits[i]);
    return worst < 0x80000000u;
}

/* Converts a block to bf16. Returns whether all are finite. */
static inline int qwen3_block_bf16(uint16_t *out, qwen3_dtype dtype, const unsigned char *at,
                                   size_t n)
{
    uint32_t bits[QWEN3_BLOCK], i, worst = 0;
    if (dtype == QWEN3_BF16) { /* no conversion: half as many bytes to check */
        uint16_t mask = 0;
        qwen3_load(out, at, n, 2);
        for (i = 0; i < QWEN3_BLOCK; i++) mask = (uint16_t)(mask | ((out[i] & 0x7f80u) + 0x80u));
        return mask < 0x8000u;
    }
    if (!qwen3_block_f32(bits, dtype, at, n)) return 0;
    for (i = 0; i < QWEN3_BLOCK; i++) {
        const uint32_t rounded = qwen3_round_bf16(bits[i]);
        worst |= qwen3_not_finite(rounded);
        out[i] = (uint16_t)(rounded >> 16);
    }
    return worst < 0x80000000u;
}

static inline const unsigned char *qwen3_element(const qwen3_tensor *t, uint64_t i)
{
    return t->data + i * qwen3_dtype_bytes(t->dtype);
}

/* Names the first bad element; one of the n is bad. */
static inline int qwen3_bad_element(const qwen3_source *s, const qwen3_tensor *t, uint64_t first,
                                    size_t n)
{
    uint32_t bits[QWEN3_BLOCK];
    uint64_t at[2];
    char text[100];
    const char *why;
    size_t i;
    qwen3_block_f32(bits, t->dtype, qwen3_element(t, first), n);
    for (i = 0; i + 1 < n && (qwen3_not_finite(bits[i]) |
                              qwen3_not_finite(qwen3_round_bf16(bits[i]))) < 0x80000000u;)
        i++;
    at[0] = (first + i) / t->columns;
    at[1] = (first + i) % t->columns;
    if (qwen3_not_finite(bits[i]) < 0x80000000u)
        why = "too large for bf16";
    else
        why = bits[i] & 0x007fffffu ? "NaN" : "infinite";
    return qwen3_fail(s, "element %s is %s", qwen3_shape_text(text, at, 2), why);
}

static inline int qwen3_check_range(const qwen3_source *s, const qwen3_tensor *t, uint64_t first,
                                    uint64_t count)
{
    const uint64_t elements = (uint64_t)t->rows * t->columns;
    if (first <= elements && count <= elements - first) return 0;
    return qwen3_fail(s, "%llu elements from %llu on are asked for, but it has %llu",
                      (unsigned long long)count, (unsigned long long)first,
                      (unsigned long long)elements);
}

static inline size_t qwen3_block_size(uint64_t left)
{
    return left < QWEN3_BLOCK ? (size_t)left : QWEN3_BLOCK;
}

/* The same for a quantised matrix (quantized.h): to whichever of the two is not null. */
static inline int qwen3_dequantize(const qwen3_source *s, const qwen3_tensor *t, uint64_t first,
                                   uint64_t count, uint16_t *halves, float *floats);

static inline int qwen3_tensor_to_bf16(const qwen3_tensor *t, uint64_t first, uint64_t count,
                                       uint16_t *out, char *error, size_t error_size)
{
    qwen3_source s = qwen3_source_of(t->file, error, error_size);
    uint16_t block[QWEN3_BLOCK];
    uint64_t done;
    s.within = t->name;
    if (qwen3_check_range(&s, t, first, count)) return -1;
    if (t->quantization.codes) return qwen3_dequantize(&s, t, first, count, out, NULL);
    for (done = 0; done < count; done += QWEN3_BLOCK) {
        const size_t n = qwen3_block_size(count - done);
        if (!qwen3_block_bf16(block, t->dtype, qwen3_element(t, first + done), n))
            return qwen3_bad_element(&s, t, first + done, n);
        memcpy(out + done, block, n * sizeof *out);
    }
    return 0;
}

static inline int qwen3_tensor_to_f32(const qwen3_tensor *t, uint64_t first, uint64_t count,
                                      float *out, char *error, size_t error_size)
{
    qwen3_source s = qwen3_source_of(t->file, error, error_size);
    uint32_t block[QWEN3_BLOCK];
    uint64_t done;
    s.within = t->name;
    if (qwen3_check_range(&s, t, first, count)) return -1;
    if (t->quantization.codes) return qwen3_dequantize(&s, t, first, count, NULL, out);
    for (done = 0; done < count; done += QWEN3_BLOCK) {
        const size_t n = qwen3_block_size(count - done);
        if (!qwen3_block_f32(block, t->dtype, qwen3_element(t, first + done), n))
            return qwen3_bad_element(&s, t, first + done, n);
        memcpy(out + done, block, n * sizeof *out);
    }
    return 0;
}

#include "quantized.h"

#endif
