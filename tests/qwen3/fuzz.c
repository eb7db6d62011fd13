/* A libFuzzer target over the parsers of examples/qwen3, run by tests/fuzz.sh qwen3. The first byte of an input chooses:

       c  config.json
       s  a safetensors file
       h  a safetensors header; before its text, two bytes say how many bytes of data it describes
       i  model.safetensors.index.json
       g  generation_config.json, for a model of 16 tokens
       e  expected.json, for a model of 16 tokens and 8 positions
       T  tokenizer.json
       t  a part of tokenizer.json, which is laid over a complete one; then a zero and a text to encode
       m  a model: two bytes as for h, then config.json, a zero, a header, and for a model of shards another zero and the
          index; each shard has the same header

   What is parsed must keep the promises of the headers; what is refused must say of which file. */
#include "../../examples/qwen3/expected.h"
#include "../../examples/qwen3/tokenizer.h"

#define MOST_DATA 0x10000u

static unsigned char data[MOST_DATA + 1];
static char error[512];

#define PROMISE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: broken: %s (%s)\n", __FILE__, __LINE__, #condition, error);    \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Whether the parser succeeded; if it did not, there is a message that begins with the file. */
static int parsed(int result, const char *file)
{
    const size_t length = strlen(file);
    PROMISE(result == 0 || result == -1);
    if (result == 0) return 1;
    PROMISE(memchr(error, 0, sizeof error) && strncmp(error, file, length) == 0 &&
            strncmp(error + length, ": ", 2) == 0);
    PROMISE(error[length + 2] != 0);
    return 0;
}

static int in_range(uint32_t value, uint32_t least, uint32_t most)
{
    return value >= least && value <= most;
}

static int config(qwen3_config *c, const char *text, size_t size)
{
    uint32_t i, sparse = 0;
    if (!parsed(qwen3_parse_config(c, text, size, "config.json", error, sizeof error),
                "config.json"))
        return 0;
    PROMISE(in_range(c->vocab, 1, QWEN3_MAX_SIZE) && in_range(c->hidden, 1, QWEN3_MAX_SIZE));
    PROMISE(in_range(c->ffn, 1, QWEN3_MAX_SIZE) && in_range(c->layers, 1, QWEN3_MAX_LAYERS));
    PROMISE(c->heads && c->kv_heads && c->heads % c->kv_heads == 0 && c->head_dim &&
            c->head_dim % 2 == 0);
    PROMISE((uint64_t)c->heads * c->head_dim <= QWEN3_MAX_SIZE);
    PROMISE(in_range(c->positions, 1, QWEN3_MAX_SIZE));
    PROMISE(c->rope_theta >= 1 && c->rope_theta <= 1e15 && c->norm_eps > 0 && c->norm_eps <= 1);
    PROMISE(c->eos_count <= QWEN3_MAX_EOS);
    for (i = 0; i < c->eos_count; i++) PROMISE(c->eos[i] < c->vocab);
    PROMISE(c->experts <= QWEN3_MAX_EXPERTS);
    PROMISE(c->experts ? in_range(c->experts_per_token, 1, c->experts) &&
                             in_range(c->expert_ffn, 1, QWEN3_MAX_SIZE)
                       : !c->experts_per_token && !c->expert_ffn && !c->norm_topk);
    for (i = 0; i < QWEN3_MAX_LAYERS; i++) sparse += c->sparse[i];
    PROMISE(sparse == c->sparse_layers && sparse <= c->layers && (c->experts || !sparse));
    PROMISE(c->parameters > 0 && c->parameters < QWEN3_MAX_PARAMETERS);
    return 1;
}

static void generation(const char *text, size_t size)
{
    qwen3_config c;
    uint32_t i;
    memset(&c, 0, sizeof c);
    c.vocab = 16;
    if (!parsed(qwen3_parse_generation(&c, text, size, "g", error, sizeof error), "g")) return;
    PROMISE(c.eos_count <= QWEN3_MAX_EOS);
    for (i = 0; i < c.eos_count; i++) PROMISE(c.eos[i] < 16);
}

static void check_header(const qwen3_header *h, uint64_t data_size)
{
    uint64_t bytes = 0;
    size_t i;
    for (i = 0; i < h->count; i++) {
        const qwen3_entry *e = &h->entries[i];
        uint64_t size = e->dtype == QWEN3_F32 ? 4 : 2;
        uint32_t d;
        PROMISE(e->begin <= e->end && e->end <= data_size);
        PROMISE(i == 0 || strcmp(h->entries[i - 1].name, e->name) < 0);
        for (d = 0; d < e->dimensions && d < QWEN3_DIMENSIONS; d++) size *= e->shape[d];
        PROMISE(e->dtype == QWEN3_OTHER || e->dimensions > QWEN3_DIMENSIONS ||
                size == e->end - e->begin);
        bytes += e->end - e->begin;
    }
    PROMISE(bytes == data_size);
}

static int header(qwen3_header *h, const char *text, size_t size, uint64_t data_size)
{
    if (!parsed(qwen3_parse_header(h, text, size, data_size, "m", error, sizeof error), "m"))
        return 0;
    check_header(h, data_size);
    return 1;
}

static void safetensors(const unsigned char *bytes, size_t size)
{
    qwen3_header h;
    if (!parsed(qwen3_parse_safetensors(&h, bytes, size, "m", error, sizeof error), "m")) return;
    PROMISE(h.data_at >= 10 && h.data_at <= size);
    check_header(&h, size - h.data_at);
    qwen3_free_header(&h);
}

static int parse_index(qwen3_index *index, const char *text, size_t size)
{
    size_t i;
    if (!parsed(qwen3_parse_index(index, text, size, "i", error, sizeof error), "i")) return 0;
    for (i = 0; i < index->count; i++) {
        PROMISE(index->places[i].file < index->file_count);
        PROMISE(i == 0 || strcmp(index->places[i - 1].name, index->places[i].name) < 0);
    }
    for (i = 0; i < index->file_count; i++)
        PROMISE(index->files[i][0] && !strchr(index->files[i], '/') &&
                !strstr(index->files[i], ".."));
    return 1;
}

static void expected(const char *text, size_t size)
{
    qwen3_config c;
    qwen3_expected e;
    uint32_t i, j;
    memset(&c, 0, sizeof c);
    c.vocab = 16;
    c.positions = 8;
    if (!parsed(qwen3_parse_expected(&e, &c, text, size, "e", error, sizeof error), "e")) return;
    PROMISE(e.count > 0);
    for (i = 0; i < e.count; i++) {
        const qwen3_case *one = &e.cases[i];
        PROMISE(one->prompt_count && one->greedy_count &&
                one->prompt_count + one->greedy_count <= 8);
        for (j = 0; j < one->prompt_count; j++) PROMISE(one->prompt[j] < 16);
        for (j = 0; j < one->greedy_count; j++)
            PROMISE(one->greedy[j] < 16 && one->top2_margin[j] >= 0);
        for (j = 0; j < one->check_count; j++) PROMISE(one->checks[j].step < one->greedy_count);
    }
    qwen3_expected_close(&e);
}

/* A bound tensor lies in the data; all of it is converted, or the first bad value named. */
static void tensor(const qwen3_tensor *t)
{
    static uint16_t half[2 * MOST_DATA]; /* a byte may hold two codes */
    static float panel_tiles[2 * MOST_DATA];
    const uint64_t count = (uint64_t)t->rows * t->columns,
                   bytes = t->quantization.codes ? count * qwen3_bits_of(&t->quantization) / 8
                                                 : count * (t->dtype == QWEN3_F32 ? 4 : 2);
    PROMISE(t->data >= data + 1 && bytes <= MOST_DATA && t->data + bytes <= data + 1 + MOST_DATA);
    parsed(qwen3_tensor_to_bf16(t, 0, count, half, error, sizeof error), t->file);
    parsed(qwen3_tensor_to_f32(t, 0, count, panel_tiles, error, sizeof error), t->file);
}

static void tensors(const qwen3_checkpoint *c)
{
    uint32_t layer, e;
    tensor(&c->embed);
    tensor(&c->head);
    tensor(&c->norm);
    for (layer = 0; layer < c->config.layers; layer++) {
        const qwen3_layer_weights *w = &c->layers[layer];
        tensor(&w->input_norm);
        tensor(&w->post_norm);
        tensor(&w->q);
        tensor(&w->k);
        tensor(&w->v);
        tensor(&w->o);
        tensor(&w->q_norm);
        tensor(&w->k_norm);
        if (!w->sparse) {
            tensor(&w->gate);
            tensor(&w->up);
            tensor(&w->down);
            continue;
        }
        tensor(&w->router);
        for (e = 0; e < c->config.experts; e++) {
            tensor(&w->expert_gate[e]);
            tensor(&w->expert_up[e]);
            tensor(&w->expert_down[e]);
        }
    }
}

/* The parts of a model, the header once for each shard; the data is never mapped. */
static int load(qwen3_checkpoint *c, const char *config_text, const char *header_text,
                const char *index_text, size_t index_size, uint64_t data_size)
{
    uint32_t i, count = 1;
    if (!config(&c->config, config_text, strlen(config_text))) return 0;
    if (index_text) {
        if (!parse_index(&c->index, index_text, index_size)) return 0;
        c->sharded = 1;
        count = c->index.file_count;
    }
    c->shards = (qwen3_shard *)calloc((size_t)count + 1, sizeof *c->shards);
    PROMISE(c->shards);
    for (i = 0; i < count; i++) {
        if (!header(&c->shards[i].header, header_text, strlen(header_text), data_size)) return 0;
        c->shards[i].name = index_text ? c->index.files[i] : "m";
        c->shards[i].mapped.at = data + 1; /* of odd alignment */
        c->shard_count++;
    }
    return qwen3_bind(c) == 0;
}

static void model(const char *text, size_t size, uint64_t data_size)
{
    static qwen3_checkpoint c;
    char *copy = (char *)calloc(size + 2, 1), *header_text, *end, *index_text = NULL;
    PROMISE(copy);
    memcpy(copy, text, size);
    end = copy + size;
    header_text = copy + strlen(copy) + 1;
    if (header_text < end) {
        index_text = header_text + strlen(header_text) + 1;
        if (index_text >= end) index_text = NULL;
        memset(&c, 0, sizeof c);
        if (load(&c, copy, header_text, index_text, index_text ? (size_t)(end - index_text) : 0,
                 data_size))
            tensors(&c);
        qwen3_close(&c);
    }
    free(copy);
}

/* The least that is accepted: a token for each byte, two merges and an added token. */
static json_t *least_tokenizer(void)
{
    json_t *vocab = json_object();
    int16_t byte_of[QWEN3_SPELLED];
    uint32_t i, id = 0;
    qwen3_spelling(byte_of);
    for (i = 0; i < QWEN3_SPELLED; i++) {
        uint8_t name[8] = {0};
        u8_uctomb(name, i, sizeof name);
        if (byte_of[i] >= 0) json_object_set_new(vocab, (const char *)name, json_integer(id++));
    }
    json_object_set_new(vocab, "ab", json_integer(id++));
    json_object_set_new(vocab, "abab", json_integer(id++));
    return json_pack("{s: [{s: i, s: s, s: b}], s: {s: s}, s: {s: s, s: [{s: s, s: {s: s}, s: s}, "
                     "{s: s, s: b}]}, s: {s: s}, "
                     "s: {s: s, s: o, s: [[s, s], s]}}",
                     "added_tokens", "id", (int)id, "content", "<|x|>", "special", 1, "normalizer",
                     "type", "NFC", "pre_tokenizer", "type", "Sequence", "pretokenizers", "type",
                     "Split", "pattern", "Regex", "\\p{L}+|\\s+(?!\\S)", "behavior", "Isolated",
                     "type", "ByteLevel", "use_regex", 0, "decoder", "type", "ByteLevel", "model",
                     "type", "BPE", "vocab", vocab, "merges", "a", "b", "ab ab");
}

/* What is encoded are tokens that there are, and without added tokens and normalizer the text comes back. */
static void encoded(const qwen3_tokenizer *t, const char *text, size_t size)
{
    qwen3_tokens ids = {NULL, 0, 0, 0, 0};
    qwen3_string back = {NULL, 0, 0};
    qwen3_partial partial;
    size_t i;
    memset(&partial, 0, sizeof partial);
    if (parsed(qwen3_encode(t, text, size, NULL, &ids, error, sizeof error), "text")) {
        for (i = 0; i < ids.count; i++) {
            PROMISE(ids.at[i] < t->count);
            PROMISE(!qwen3_decode(t, ids.at[i], 0, &partial, &back));
        }
        PROMISE(!qwen3_decode_end(&partial, &back));
        if (!t->nfc && !t->added.count && !t->normalized.count)
            PROMISE(back.size == size && (!size || !memcmp(back.at, text, size)));
    }
    for (i = 0; i < size; i++)
        PROMISE(!qwen3_decode(t, (unsigned char)text[i] * 7u, i & 1, &partial, &back));
    PROMISE(!qwen3_decode_end(&partial, &back));
    PROMISE(!back.size || !u8_check((const uint8_t *)back.at, back.size));
    free(ids.at);
    free(back.at);
}

static void tokenizer(const char *text, size_t size, const char *to_encode, size_t encode_size)
{
    qwen3_tokenizer t;
    if (!parsed(qwen3_parse_tokenizer(&t, text, size, "t", error, sizeof error), "t")) return;
    PROMISE(t.count && t.count <= QWEN3_MAX_TOKENS && t.split);
    encoded(&t, to_encode, encode_size);
    qwen3_tokenizer_close(&t);
}

static void part_of_tokenizer(const char *text, size_t size)
{
    const char *end = (const char *)memchr(text, 0, size);
    const size_t part_size = end ? (size_t)(end - text) : size;
    json_t *whole, *part;
    char *all;
    if (qwen3_extent_of(text, part_size).depth > QWEN3_MAX_DEPTH) return;
    whole = least_tokenizer(), part = json_loadb(text, part_size, 0, NULL);
    PROMISE(whole);
    json_object_update_recursive(whole, part);
    all = json_dumps(whole, JSON_COMPACT);
    if (all) tokenizer(all, strlen(all), end ? end + 1 : "", end ? size - part_size - 1 : 0);
    free(all);
    json_decref(whole);
    json_decref(part);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    size_t i;
    (void)argc;
    (void)argv;
    json_object_seed(1); /* the same input takes the same way in every run */
    for (i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 37 % 251);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    const char *text = (const char *)input + 1;
    const char kind = size ? (char)input[0] : 0;
    const uint64_t data_size = size >= 3 ? input[1] | (uint64_t)input[2] << 8 : 0;
    qwen3_config c;
    qwen3_header h;
    qwen3_index index;
    memset(error, 0, sizeof error);
    if (kind == 'c') config(&c, text, size - 1);
    if (kind == 's') safetensors(input + 1, size - 1);
    if (kind == 'i' && parse_index(&index, text, size - 1)) qwen3_free_index(&index);
    if (kind == 'g') generation(text, size - 1);
    if (kind == 'e') expected(text, size - 1);
    if (kind == 'T') tokenizer(text, size - 1, text, size - 1);
    if (kind == 't') part_of_tokenizer(text, size - 1);
    if (kind == 'h' && size >= 3 && header(&h, text + 2, size - 3, data_size))
        qwen3_free_header(&h);
    if (kind == 'm' && size >= 3) model(text + 2, size - 3, data_size);
    return 0;
}
