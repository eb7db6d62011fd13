/* quantized.h: the part of checkpoint.h that reads quantised matrices: those of the layers, but for
   norms and router. Embedding and lm_head are as in other checkpoints.

   A weight is (code - zero point) * scale. config.json says by quantization_config which of these a
   checkpoint has:

       quant_method          tensors of a matrix [rows, columns]
       fp8                   weight F8_E4M3 [rows, columns]; weight_scale_inv of blocks of 128 x 128
                             weights
       compressed-tensors    pack-quantized, 4 or 8 bits: weight_packed I32 [rows, columns / 8 or
                             / 4], weight_shape; weight_scale [rows, groups], a group being 32, 64,
                             128 or 256 columns or a whole row; weight_zero_point I32
                             [rows / 8, groups] of 4 bits unless symmetric
       awq                   4 bits: qweight I32 [columns, rows / 8], qzeros I32 [groups, rows / 8],
                             scales [groups, rows]; number i of a word is row 0, 2, 4, 6, 1, 3, 5
                             or 7 of eight
       gptq                  4 bits: qweight I32 [columns / 8, rows], qzeros I32 [groups, rows / 8],
                             of which each is a zero point less 1, scales [groups, rows], g_idx I32
                             [columns], which must be in order

   Scales are BF16, F16 or F32. Each is read when the checkpoint is opened, and refused unless it is
   above 0 and so small that its largest weight is finite. A code that is NaN is refused when it is
   converted.

   What the files say of activations that are quantised too (fp8: "dynamic") is not followed: they
   stay as they are. */
#ifndef QWEN3_QUANTIZED_H
#define QWEN3_QUANTIZED_H

#include "checkpoint.h"

#define QWEN3_FP8_BLOCK 128u

/* Copies codes of a row from column `first` on, a byte each: e4m3 as they are, integers as int8_t.
   -1 and an error that names the element if a code is NaN. */
static inline int qwen3_tensor_codes(const qwen3_tensor *t, uint32_t row, uint32_t first,
                                     uint32_t count, uint8_t *codes, char *error,
                                     size_t error_size);
/* The scale and the zero point of an element. */
static inline float qwen3_tensor_scale(const qwen3_tensor *t, uint32_t row, uint32_t column);
static inline int qwen3_tensor_zero(const qwen3_tensor *t, uint32_t row, uint32_t column);

/* ---- qwen3: quantization_config ---- */

/* A field of an object: of which only one value is supported, or, where that is null, any or one
   that is looked at elsewhere. */
static inline int qwen3_fields_only(const qwen3_source *s, json_t *o,
                                    const qwen3_fixed_field *fields, size_t count)
{
    void *iter;
    for (iter = json_object_iter(o); iter; iter = json_object_iter_next(o, iter)) {
        const qwen3_value v = qwen3_field(o, json_object_iter_key(iter));
        size_t i = 0;
        while (i < count && strcmp(fields[i].name, v.name) != 0) i++;
        if (i == count && qwen3_given(&v))
            return qwen3_fail(s, "%s: not known to this decoder", v.name);
        if (i < count && fields[i].only && qwen3_only(s, &v, fields[i].only)) return -1;
    }
    return 0;
}

static inline int qwen3_config_fp8(qwen3_quantization *q, const qwen3_source *s, json_t *o)
{
    static const qwen3_fixed_field fields[] = {
        {"activation_scheme", "\"dynamic\""}, {"fmt", "\"e4m3\""},    {"ignored_layers", NULL},
        {"modules_to_not_convert", NULL},     {"quant_method", NULL}, {"weight_block_size", NULL},
    };
    const qwen3_value size = qwen3_field(o, "weight_block_size");
    size_t count = 0, i;
    if (qwen3_fields_only(s, o, fields, QWEN3_COUNT_OF(fields)) ||
        qwen3_array(s, &size, 2, 2, &count))
        return -1;
    for (i = 0; i < count; i++) {
        const qwen3_value v = qwen3_item(&size, i);
        if (!json_is_integer(v.json)) return qwen3_wrong_kind(s, &v, "an integer");
        if (qwen3_only(s, &v, "128")) return -1;
    }
    q->codes = QWEN3_FP8, q->packing = QWEN3_BYTES;
    q->group = q->group_rows = QWEN3_FP8_BLOCK;
    return 0;
}

/* 0: whole rows. */
static inline int qwen3_config_group(qwen3_quantization *q, const qwen3_source *s,
                                     const qwen3_value *v)
{
    int64_t group = 0;
    if (qwen3_integer(s, v, -1, QWEN3_MAX_SIZE, &group)) return -1;
    if (group != -1 && group != 32 && group != 64 && group != 128 && group != 256)
        return qwen3_fail(s, "%s: %lld is not supported, expected 32, 64, 128, 256 or -1", v->name,
                          (long long)group);
    q->group = group < 0 ? 0 : (uint32_t)group;
    q->group_rows = 1;
    return 0;
}

/* AWQ's and GPTQ's configurations: numbers of bits and columns of a group. What calibrated them
   changes nothing. */
static inline int qwen3_config_awq(qwen3_quantization *q, const qwen3_source *s, json_t *o)
{
    static const qwen3_fixed_field fields[] = {
        {"backend", NULL},          {"bits", "4"},
        {"do_fuse", "false"},       {"exllama_config", NULL},
        {"fuse_max_seq_len", NULL}, {"group_size", NULL},
        {"modules_to_fuse", NULL},  {"modules_to_not_convert", NULL},
        {"quant_method", NULL},     {"version", "\"gemm\""},
        {"zero_point", "true"},
    };
    const qwen3_value group = qwen3_field(o, "group_size");
    if (qwen3_fields_only(s, o, fields, QWEN3_COUNT_OF(fields))) return -1;
    q->codes = QWEN3_INT4, q->packing = QWEN3_AWQ, q->has_zeros = 1;
    return qwen3_config_group(q, s, &group);
}
static inline int qwen3_config_gptq(qwen3_quantization *q, const qwen3_source *s, json_t *o)
{
    static const qwen3_fixed_field fields[] = {
        {"backend", NULL},
        {"batch_size", NULL},
        {"bits", "4"},
        {"block_name_to_quantize", NULL},
        {"checkpoint_format", "\"gptq\""},
        {"damp_percent", NULL},
        {"dataset", NULL},
        {"desc_act", "false"},
        {"dynamic", "null"},
        {"exllama_config", NULL},
        {"group_size", NULL},
        {"lm_head", "false"},
        {"max_input_length", NULL},
        {"meta", NULL},
        {"model_file_base_name", NULL},
        {"model_name_or_path", NULL},
        {"model_seqlen", NULL},
        {"module_name_preceding_first_block", NULL},
        {"modules_in_block_to_quantize", "null"},
        {"pack_dtype", "\"int32\""},
        {"pad_token_id", NULL},
        {"quant_method", NULL},
        {"static_groups", NULL},
        {"sym", NULL},
        {"tokenizer", NULL},
        {"true_sequential", NULL},
        {"use_cuda_fp16", NULL},
        {"use_exllama", NULL},
    };
    const qwen3_value group = qwen3_field(o, "group_size");
    if (qwen3_fields_only(s, o, fields, QWEN3_COUNT_OF(fields))) return -1;
    q->codes = QWEN3_INT4, q->packing = QWEN3_GPTQ, q->has_zeros = 1;
    return qwen3_config_group(q, s, &group);
}

/* The scheme of the weights of the only group of layers that there is. */
static inline int qwen3_config_scheme(qwen3_quantization *q, qwen3_source s, json_t *o)
{
    static const qwen3_fixed_field fields[] = {
        {"actorder", NULL},        {"block_structure", "null"}, {"dynamic", "false"},
        {"group_size", NULL},      {"num_bits", NULL},          {"observer", NULL},
        {"observer_kwargs", NULL}, {"scale_dtype", NULL},       {"strategy", NULL},
        {"symmetric", NULL},       {"type", "\"int\""},         {"zp_dtype", NULL},
    };
    const qwen3_value bits = qwen3_field(o, "num_bits"), strategy = qwen3_field(o, "strategy"),
                      group = qwen3_field(o, "group_size"), order = qwen3_field(o, "actorder");
    const char *text = NULL;
    int symmetric = 0;
    s.within = "quantization_config: weights";
    if (qwen3_fields_only(&s, o, fields, QWEN3_COUNT_OF(fields)) ||
        qwen3_flag(&s, o, "symmetric", &symmetric) || qwen3_text(&s, &strategy, &text))
        return -1;
    /* Others sort columns into groups by a tensor of indices. */
    if (qwen3_given(&order) && !qwen3_is(order.json, "false") &&
        qwen3_only(&s, &order, "\"static\""))
        return -1;
    if (!json_is_integer(bits.json)) return qwen3_wrong_kind(&s, &bits, "an integer");
    if (qwen3_only(&s, &bits, qwen3_is(bits.json, "8") ? "8" : "4")) return -1;
    q->codes = qwen3_is(bits.json, "8") ? QWEN3_INT8 : QWEN3_INT4;
    q->packing = QWEN3_COMPRESSED;
    q->has_zeros = !symmetric;
    if (q->has_zeros && q->codes == QWEN3_INT8)
        return qwen3_fail(&s, "symmetric: false is not supported of 8 bits, expected true");
    if (!strcmp(text, "channel")) {
        q->group = 0, q->group_rows = 1;
        return 0;
    }
    if (strcmp(text, "group") != 0)
        return qwen3_fail(
            &s, "strategy: \"%s\" is not supported, expected \"channel\" or \"group\"", text);
    return qwen3_config_group(q, &s, &group);
}

static inline int qwen3_config_compressed(qwen3_quantization *q, qwen3_source s, json_t *o)
{
    static const qwen3_fixed_field fields[] = {
        {"config_groups", NULL},
        {"format", "\"pack-quantized\""},
        {"ignore", NULL},
        {"global_compression_ratio", NULL},
        {"kv_cache_scheme", "null"},
        {"quant_method", NULL},
        {"quantization_status", "\"compressed\""},
        {"sparsity_config", "{}"},
        {"transform_config", "{}"},
        {"version", NULL},
    };
    static const qwen3_fixed_field of_group[] = {
        {"format", "\"pack-quantized\""},
        {"input_activations", "null"},
        {"output_activations", "null"},
        {"targets", NULL},
        {"weights", NULL},
    };
    const qwen3_value groups = qwen3_field(o, "config_groups");
    qwen3_value group, targets, weights, target;
    size_t count = 0;
    if (qwen3_fields_only(&s, o, fields, QWEN3_COUNT_OF(fields)) || qwen3_object(&s, &groups))
        return -1;
    if (json_object_size(groups.json) != 1)
        return qwen3_fail(&s, "config_groups: %zu groups are not supported, expected 1",
                          json_object_size(groups.json));
    group.json = json_object_iter_value(json_object_iter(groups.json));
    snprintf(group.name, sizeof group.name, "config_groups");
    if (qwen3_object(&s, &group)) return -1;
    s.within = "quantization_config: config_groups";
    targets = qwen3_field(group.json, "targets"), weights = qwen3_field(group.json, "weights");
    if (qwen3_fields_only(&s, group.json, of_group, QWEN3_COUNT_OF(of_group)) ||
        qwen3_array(&s, &targets, 1, 1, &count) || qwen3_object(&s, &weights))
        return -1;
    target = qwen3_item(&targets, 0);
    if (qwen3_only(&s, &target, "\"Linear\"")) return -1;
    return qwen3_config_scheme(q, s, weights.json);
}

static inline int qwen3_config_quantization(qwen3_config *c, const qwen3_source *s, json_t *o)
{
    const qwen3_value v = qwen3_field(o, "quantization_config");
    qwen3_source within = *s;
    qwen3_value method;
    const char *text = NULL;
    if (!qwen3_given(&v)) return 0;
    if (qwen3_object(s, &v)) return -1;
    within.within = "quantization_config";
    method = qwen3_field(v.json, "quant_method");
    if (qwen3_text(&within, &method, &text)) return -1;
    if (!strcmp(text, "fp8")) return qwen3_config_fp8(&c->quantization, &within, v.json);
    if (!strcmp(text, "awq")) return qwen3_config_awq(&c->quantization, &within, v.json);
    if (!strcmp(text, "gptq")) return qwen3_config_gptq(&c->quantization, &within, v.json);
    if (!strcmp(text, "compressed-tensors"))
        return qwen3_config_compressed(&c->quantization, within, v.json);
    return qwen3_fail(&within,
                      "quant_method: \"%s\" is not supported, expected \"fp8\", "
                      "\"compressed-tensors\", \"awq\" or \"gptq\"",
                      text);
}

/* ---- qwen3: codes, scales and zero points ---- */

static inline uint32_t qwen3_bits_of(const qwen3_quantization *q)
{
    return q->codes == QWEN3_INT4 ? 4 : 8;
}

/* Groups of a row. */
static inline uint32_t qwen3_groups_of(const qwen3_quantization *q, uint32_t columns)
{
    return q->group ? columns / q->group + (columns % q->group != 0) : 1;
}

static inline uint32_t qwen3_word(const unsigned char *words, uint64_t i)
{
    const unsigned char *at = words + 4 * i;
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* binary16 to float, exactly, as the blocks of checkpoint.h are converted. */
static inline float qwen3_float_of_f16(uint32_t half)
{
    const uint32_t rest = (half & 0x7fffu) << 13;
    const uint32_t bits = rest + (rest < 0x0f800000u ? 0x38000000u : 0x70000000u);
    float f;
    memcpy(&f, &bits, sizeof f);
    if (rest < 0x00800000u) f = (float)(half & 0x3ff) * (1.0f / 16777216.0f);
    return half & 0x8000u ? -f : f;
}

/* Integer number `i` of a word, which holds it with an offset: from -8 or -128 on. */
static inline int qwen3_integer_of(uint32_t word, uint32_t i, uint32_t bits)
{
    return (int)(word >> bits * i & ((1u << bits) - 1)) - (int)(1u << (bits - 1));
}

/* Where row r of eight is in a word of AWQ. */
static inline uint32_t qwen3_awq_place(uint32_t r)
{
    return r % 2 * 4 + r / 2;
}

static inline int qwen3_packed_code(const qwen3_tensor *t, uint32_t row, uint32_t column)
{
    const uint32_t bits = qwen3_bits_of(&t->quantization), each = 32 / bits;
    const uint64_t words = t->columns / each + (t->columns % each != 0);
    switch (t->quantization.packing) {
    case QWEN3_AWQ:
        return qwen3_integer_of(qwen3_word(t->data, (uint64_t)column * (t->rows / 8) + row / 8),
                                qwen3_awq_place(row % 8), 4);
    case QWEN3_GPTQ:
        return qwen3_integer_of(qwen3_word(t->data, (uint64_t)(column / 8) * t->rows + row),
                                column % 8, 4);
    default:
        return qwen3_integer_of(qwen3_word(t->data, row * words + column / each), column % each,
                                bits);
    }
}

static inline int qwen3_tensor_codes(const qwen3_tensor *t, uint32_t row, uint32_t first,
                                     uint32_t count, uint8_t *codes, char *error, size_t error_size)
{
    qwen3_source s = qwen3_source_of(t->file, error, error_size);
    uint32_t i;
    s.within = t->name;
    if (t->quantization.packing == QWEN3_BYTES)
        memcpy(codes, t->data + (uint64_t)row * t->columns + first, count);
    else
        for (i = 0; i < count; i++) codes[i] = (uint8_t)qwen3_packed_code(t, row, first + i);
    for (i = 0; t->quantization.codes == QWEN3_FP8 && i < count; i++)
        if ((codes[i] & 0x7f) == 0x7f)
            return qwen3_fail(&s, "element [%u, %u] is NaN", row, first + i);
    return 0;
}

/* Scale number i. */
static inline float qwen3_scale(const qwen3_tensor *t, uint64_t i)
{
    const unsigned char *at = t->scales + i * qwen3_dtype_bytes(t->scale_dtype);
    const uint32_t half = at[0] | (uint32_t)at[1] << 8;
    const uint32_t bits = t->scale_dtype == QWEN3_F32 ? qwen3_word(at, 0) : half << 16;
    float scale;
    if (t->scale_dtype == QWEN3_F16) return qwen3_float_of_f16(half);
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}
/* AWQ and GPTQ have [groups, rows]. */
static inline int qwen3_is_transposed(const qwen3_quantization *q)
{
    return q->packing == QWEN3_AWQ || q->packing == QWEN3_GPTQ;
}
static inline float qwen3_tensor_scale(const qwen3_tensor *t, uint32_t row, uint32_t column)
{
    const qwen3_quantization *q = &t->quantization;
    const uint64_t group = q->group ? column / q->group : 0;
    if (qwen3_is_transposed(q)) return qwen3_scale(t, group * t->rows + row);
    return qwen3_scale(t, (uint64_t)(row / q->group_rows) * qwen3_groups_of(q, t->columns) + group);
}

static inline int qwen3_tensor_zero(const qwen3_tensor *t, uint32_t row, uint32_t column)
{
    const qwen3_quantization *q = &t->quantization;
    const uint64_t group = q->group ? column / q->group : 0;
    uint32_t word, place = row % 8;
    if (!t->zeros) return 0;
    if (!qwen3_is_transposed(q)) {
        word = qwen3_word(t->zeros, (uint64_t)(row / 8) * qwen3_groups_of(q, t->columns) + group);
        return qwen3_integer_of(word, place, 4);
    }
    word = qwen3_word(t->zeros, group * (t->rows / 8) + row / 8);
    if (q->packing == QWEN3_AWQ) place = qwen3_awq_place(place);
    return qwen3_integer_of(word, place, 4) + (q->packing == QWEN3_GPTQ);
}

/* e4m3 to float, exactly: a sign, four bits of exponent, three of fraction. NaN is not handled. */
static inline float qwen3_float_of_e4m3(uint32_t code)
{
    const uint32_t bits = (code & 0x80u) << 24 | (code & 0x7fu) << 20;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f * 0x1p120f;
}

static inline int qwen3_dequantize(const qwen3_source *s, const qwen3_tensor *t, uint64_t first,
                                   uint64_t count, uint16_t *halves, float *floats)
{
    const uint32_t group = t->quantization.group ? t->quantization.group : t->columns;
    uint64_t done;
    uint32_t n, i;
    for (done = 0; done < count; done += n) {
        const uint32_t row = (uint32_t)((first + done) / t->columns),
                       column = (uint32_t)((first + done) % t->columns);
        const float scale = qwen3_tensor_scale(t, row, column);
        const int zero = qwen3_tensor_zero(t, row, column);
        uint8_t codes[QWEN3_BLOCK];
        /* up to the end of the group, of the row, or of what is asked for */
        n = (uint32_t)qwen3_block_size(count - done);
        if (n > group - column % group) n = group - column % group;
        if (n > t->columns - column) n = t->columns - column;
        if (qwen3_tensor_codes(t, row, column, n, codes, s->error, s->size)) return -1;
        for (i = 0; i < n; i++) {
            const float weight =
                scale * (t->quantization.codes == QWEN3_FP8 ? qwen3_float_of_e4m3(codes[i])
                                                            : (float)((int8_t)codes[i] - zero));
            uint32_t bits;
            memcpy(&bits, &weight, sizeof bits);
            if (halves)
                halves[done + i] = (uint16_t)(qwen3_round_bf16(bits) >> 16);
            else
                floats[done + i] = weight;
        }
    }
    return 0;
}

/* ---- qwen3: quantised matrices, by name ---- */

/* The largest weight of a code, with the farthest zero point. */
static inline float qwen3_largest_code(const qwen3_quantization *q)
{
    return q->codes == QWEN3_FP8 ? 448 : q->codes == QWEN3_INT8 ? 128 : 16;
}

static inline int qwen3_check_scales(qwen3_checkpoint *c, const qwen3_tensor *t,
                                     const qwen3_tensor *scales)
{
    qwen3_source s = qwen3_source_of(scales->file, c->error, sizeof c->error);
    const float most = 3.3895314e38f / qwen3_largest_code(&t->quantization); /* of bf16 */
    const uint64_t count = (uint64_t)scales->rows * scales->columns;
    uint64_t i;
    s.within = scales->name;
    for (i = 0; i < count; i++) {
        const float scale = qwen3_scale(t, i);
        if (scale > 0 && scale <= most) continue;
        return qwen3_fail(&s, "element [%llu, %llu] is %g, expected a scale above 0, at most %g",
                          (unsigned long long)(i / scales->columns),
                          (unsigned long long)(i % scales->columns), (double)scale, (double)most);
    }
    return 0;
}

/* weight_shape, which must be that of the matrix. */
static inline int qwen3_take_shape(qwen3_checkpoint *c, const char *name, uint32_t rows,
                                   uint32_t columns)
{
    qwen3_source s = qwen3_source_of("", c->error, sizeof c->error);
    const uint64_t expected[2] = {rows, columns};
    uint64_t is[2];
    const qwen3_shard *shard;
    qwen3_entry *e;
    qwen3_tensor t;
    char texts[2][100];
    uint32_t i, words;
    s.within = name;
    e = qwen3_find(c, s, &shard);
    if (!e) return -1;
    words = strcmp(e->dtype_name, "I32") == 0 ? 1 : 2;
    if (qwen3_take_typed(c, &t, name, 0, 2, words == 1 ? "I32" : "I64")) return -1;
    s.file = t.file;
    for (i = 0; i < 2; i++) {
        is[i] = qwen3_word(t.data, i * words);
        if (words == 2) is[i] |= (uint64_t)qwen3_word(t.data, i * words + 1) << 32;
    }
    if (is[0] == rows && is[1] == columns) return 0;
    return qwen3_fail(&s, "is %s, expected %s", qwen3_shape_text(texts[0], is, 2),
                      qwen3_shape_text(texts[1], expected, 2));
}

/* Takes "model.layers.LAYER.PART.END". */
static inline int qwen3_take_part(qwen3_checkpoint *c, uint32_t layer, qwen3_tensor *out,
                                  const char *part, const char *end, uint32_t rows,
                                  uint32_t columns, const char *type)
{
    char name[128];
    snprintf(name, sizeof name, "model.layers.%u.%s.%s", layer, part, end);
    return qwen3_take_typed(c, out, name, rows, columns, type);
}

/* fp8 and compressed-tensors. */
static inline int qwen3_take_by_rows(qwen3_checkpoint *c, uint32_t layer, qwen3_tensor *out,
                                     qwen3_tensor *scales, qwen3_tensor *zeros, const char *part,
                                     uint32_t rows, uint32_t columns)
{
    const qwen3_quantization *q = &c->config.quantization;
    const uint32_t each = 32 / qwen3_bits_of(q), groups = qwen3_groups_of(q, columns);
    char name[128];
    if (q->codes == QWEN3_FP8)
        return qwen3_take_part(c, layer, out, part, "weight", rows, columns, "F8_E4M3") ||
               qwen3_take_part(c, layer, scales, part, "weight_scale_inv",
                               rows / q->group_rows + (rows % q->group_rows != 0), groups, NULL);
    snprintf(name, sizeof name, "model.layers.%u.%s.weight_shape", layer, part);
    return qwen3_take_part(c, layer, out, part, "weight_packed", rows,
                           columns / each + (columns % each != 0), "I32") ||
           qwen3_take_part(c, layer, scales, part, "weight_scale", rows, groups, NULL) ||
           (q->has_zeros && qwen3_take_part(c, layer, zeros, part, "weight_zero_point",
                                            rows / 8 + (rows % 8 != 0), groups, "I32")) ||
           qwen3_take_shape(c, name, rows, columns);
}

/* The group of each column, which must be in order. */
static inline int qwen3_take_order(qwen3_checkpoint *c, uint32_t layer, const char *part,
                                   uint32_t columns)
{
    const uint32_t group = c->config.quantization.group;
    qwen3_source s = qwen3_source_of("", c->error, sizeof c->error);
    qwen3_tensor t;
    uint32_t i;
    if (qwen3_take_part(c, layer, &t, part, "g_idx", 0, columns, "I32")) return -1;
    s.file = t.file, s.within = t.name;
    for (i = 0; i < columns; i++)
        if (qwen3_word(t.data, i) != (group ? i / group : 0))
            return qwen3_fail(&s, "element %u is %u, expected %u: columns must be in order", i,
                              qwen3_word(t.data, i), group ? i / group : 0);
    return 0;
}

/* awq and gptq. */
static inline int qwen3_take_by_columns(qwen3_checkpoint *c, uint32_t layer, qwen3_tensor *out,
                                        qwen3_tensor *scales, qwen3_tensor *zeros, const char *part,
                                        uint32_t rows, uint32_t columns)
{
    const qwen3_quantization *q = &c->config.quantization;
    const uint32_t groups = qwen3_groups_of(q, columns), is_awq = q->packing == QWEN3_AWQ;
    qwen3_source s = qwen3_source_of("config.json", c->error, sizeof c->error);
    if (rows % 8 || columns % 8) {
        s.within = "quantization_config";
        return qwen3_fail(&s, "layer %u's %s has %u rows of %u, expected multiples of 8", layer,
                          part, rows, columns);
    }
    return qwen3_take_part(c, layer, out, part, "qweight", is_awq ? columns : columns / 8,
                           is_awq ? rows / 8 : rows, "I32") ||
           qwen3_take_part(c, layer, zeros, part, "qzeros", groups, rows / 8, "I32") ||
           qwen3_take_part(c, layer, scales, part, "scales", groups, rows, NULL) ||
           (!is_awq && qwen3_take_order(c, layer, part, columns));
}

static inline int qwen3_take_quantized(qwen3_checkpoint *c, uint32_t layer, qwen3_tensor *out,
                                       const char *part, uint32_t rows, uint32_t columns)
{
    const qwen3_quantization *q = &c->config.quantization;
    qwen3_source s = qwen3_source_of("config.json", c->error, sizeof c->error);
    qwen3_tensor scales, zeros;
    memset(&zeros, 0, sizeof zeros);
    if (q->codes != QWEN3_FP8 && q->group && columns % q->group != 0) {
        s.within = "quantization_config";
        return qwen3_fail(&s, "group_size: %u does not divide the %u columns of layer %u's %s",
                          q->group, columns, layer, part);
    }
    if (qwen3_is_transposed(q)
            ? qwen3_take_by_columns(c, layer, out, &scales, &zeros, part, rows, columns)
            : qwen3_take_by_rows(c, layer, out, &scales, &zeros, part, rows, columns))
        return -1;
    out->rows = rows, out->columns = columns;
    out->quantization = *q;
    out->scales = scales.data, out->scale_dtype = scales.dtype;
    out->zeros = zeros.data;
    return qwen3_check_scales(c, out, &scales);
}

#endif /* QWEN3_QUANTIZED_H */
