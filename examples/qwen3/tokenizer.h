/* tokenizer.h: text to tokens and back, with the tokenizer.json of a Qwen3 model: byte-level BPE as Hugging Face writes it.

       qwen3_tokenizer t;
       qwen3_tokens tokens = {0};
       if (qwen3_tokenizer_open(&t, "models/Qwen3-8B", error, sizeof error) ||
           qwen3_encode(&t, text, size, &tokens, error, sizeof error)) { fprintf(stderr, "%s\n", error); return 1; }
       ... tokens.at[0] to tokens.at[tokens.count - 1] ...
       free(tokens.at);
       qwen3_tokenizer_close(&t);

   The tokens are those of Hugging Face's library, and the text is, too. To encode, added tokens such as <|im_end|> are
   taken out first, the rest is brought to NFC and cut into words by the split expression, and the bytes of each word are
   merged, lowest rank first. Merging takes n log n steps for a word of n bytes.

   An open tokenizer is never written: threads may share it.

   REFUSED are files for which the tokens would differ from Hugging Face's: other models, normalizers, pre-tokenizers,
   decoders and post-processors than Qwen3's; added tokens with single_word, lstrip or rstrip; dropout; truncation; split
   expressions with what PCRE2 and Oniguruma, which Hugging Face uses, read differently (\w, \b, \h, ^, $, nested classes).
   Functions return 0, or -1 and a message that begins with the file and the field:

       tokenizer.json: added_tokens[3].lstrip: true is not supported

   Characters newer than the libraries' Unicode version may be cut differently: their categories are not known yet.

   Needs jansson, PCRE2 from 10.40 on (Debian: libpcre2-dev, -lpcre2-8) and libunistring (libunistring-dev, -lunistring).
   Reads as C11 and as C++17, and needs nothing of fleet. */
#ifndef QWEN3_TOKENIZER_H
#define QWEN3_TOKENIZER_H

#include "checkpoint.h"

#if !defined(PCRE2_CODE_UNIT_WIDTH)
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>
#include <unictype.h>
#include <uninorm.h>
#include <unistr.h>

#define QWEN3_MAX_TOKENS (1u << 20)      /* an id is below; Qwen3 has 151,936 */
#define QWEN3_MAX_TEXT ((size_t)1 << 29) /* bytes that one call encodes */

/* Arrays that grow. Begin with zeros; free(at) at the end. */
typedef struct qwen3_tokens {
    uint32_t *at;
    size_t count, room;
    size_t most;   /* more are not added; 0: any number */
    uint32_t full; /* 1: there would have been more */
} qwen3_tokens;
typedef struct qwen3_string {
    char *at; /* ends with a zero that `size` does not count; null while nothing was added */
    size_t size, room;
} qwen3_string;

/* Where parts of a text begin and end, in order: parts whose added tokens are text like any
   other. */
typedef struct qwen3_spans {
    size_t *at; /* [2 count]: begin, end, begin ... */
    size_t count, room;
} qwen3_spans;

/* A token that is found in the text before it is cut into words. */
typedef struct qwen3_added {
    char *text;
    size_t size;
    uint32_t id;
} qwen3_added;
typedef struct qwen3_added_set {
    qwen3_added *at; /* sorted by bytes */
    size_t count;
    unsigned char begins[256]; /* 1: a token begins with this byte */
} qwen3_added_set;

/* Two tokens in a row become one; the lowest rank goes first. */
typedef struct qwen3_merge {
    uint32_t left, right, rank, merged;
} qwen3_merge;

typedef struct qwen3_tokenizer {
    uint32_t count;         /* ids are below; some may name no token */
    char *bytes;            /* of all tokens */
    size_t *begin;          /* [count + 1]: where a token's bytes begin */
    unsigned char *special; /* [count]: 1: a special token, which readers of the text do not see */
    uint32_t byte_token[256]; /* the token of each single byte */
    size_t longest;           /* bytes of the longest token */
    qwen3_merge *merges;      /* sorted by left, then right */
    size_t merge_count;
    qwen3_added_set added;      /* looked for in the text as it is */
    qwen3_added_set normalized; /* looked for in the text as NFC */
    int nfc;
    pcre2_code *split; /* matches are words, and so is what lies between them */
} qwen3_tokenizer;

/* `path` is a folder with a tokenizer.json, or such a file. -1: nothing is held. */
static inline int qwen3_tokenizer_open(qwen3_tokenizer *t, const char *path, char *error,
                                       size_t error_size);
/* The same of text in memory; `file` is the name for messages. */
static inline int qwen3_parse_tokenizer(qwen3_tokenizer *t, const char *text, size_t size,
                                        const char *file, char *error, size_t error_size);
/* Closing twice is harmless. */
static inline void qwen3_tokenizer_close(qwen3_tokenizer *t);

/* Appends the text's tokens. Added tokens are recognised anywhere in it, as Hugging Face does, but
   not in the spans `plain`, which may be null. -1: the text is not UTF-8, has more tokens than
   tokens->most, which ends the work early, or is too hard to match for the split expression;
   tokens->count is as before then. */
static inline int qwen3_encode(const qwen3_tokenizer *t, const char *text, size_t size,
                               const qwen3_spans *plain, qwen3_tokens *tokens, char *error,
                               size_t error_size);

/* The id of a token by its text, such as "<|im_end|>". -1: it is none of the added tokens. */
static inline int64_t qwen3_added_id(const qwen3_tokenizer *t, const char *text);

/* Bytes of a character whose end has not come yet. Begins with zeros. */
typedef struct qwen3_partial {
    unsigned char byte[4];
    uint32_t count;
} qwen3_partial;

/* Appends what the next token adds to the text: whole characters only, the rest is kept in `partial`. Bytes that are no
   UTF-8 become U+FFFD. An id without a token adds nothing, nor does a special token if skip_special is 1. -1: no
   memory. */
static inline int qwen3_decode(const qwen3_tokenizer *t, uint32_t id, int skip_special,
                               qwen3_partial *partial, qwen3_string *text);
/* Appends U+FFFD if the last character is incomplete. */
static inline int qwen3_decode_end(qwen3_partial *partial, qwen3_string *text);

/* The families of chat templates: those of Qwen3, and older ones that models are tuned with. */
typedef enum qwen3_family {
    QWEN3_HYBRID,     /* reasons, unless it is told not to */
    QWEN3_INSTRUCT,   /* does not reason */
    QWEN3_THINKING,   /* always reasons: its prompt ends with <think> */
    QWEN3_AS_QWEN2_5, /* does not reason; without a system message it has one */
    QWEN3_AS_LLAMA3,  /* does not reason, and has no tools */
    QWEN3_FAMILIES
} qwen3_family;

/* A call of a tool, in a message of the assistant. */
typedef struct qwen3_call {
    const char *name, *arguments; /* arguments: JSON */
} qwen3_call;

/* A message of a conversation. */
typedef struct qwen3_message {
    const char *role; /* system, user, assistant or tool: what a call has returned */
    const char *content;
    size_t size;
    const char *reasoning; /* of an answer; null: what its content has before </think> */
    size_t reasoning_size;
    const qwen3_call *calls;
    size_t n_calls;
} qwen3_message;

/* How a conversation is spelled. */
typedef struct qwen3_chat_style {
    qwen3_family family;
    int thinking;             /* 0: a hybrid model does not reason */
    const char *const *tools; /* that the model may call: JSON */
    size_t n_tools;
} qwen3_chat_style;

static inline qwen3_chat_style qwen3_style_of(qwen3_family family, int thinking)
{
    qwen3_chat_style style;
    memset(&style, 0, sizeof style);
    style.family = family, style.thinking = thinking;
    return style;
}

/* Appends the prompt that Qwen3's chat template makes of a conversation, up to where the
   assistant's answer begins. Of answers before the last question the reasoning is left out.
   thinking 0: the answer of a hybrid model begins with an empty reasoning, so that it does not
   reason. plain: to it the spans of what messages say are added, so that control tokens in them are
   text; or null. -1: a role is none of the four, or there is no memory. */
static inline int qwen3_chat_prompt(const qwen3_message *messages, size_t count,
                                    qwen3_chat_style style, qwen3_string *prompt,
                                    qwen3_spans *plain, char *error, size_t error_size);

static inline int qwen3_string_add(qwen3_string *s, const char *text, size_t size);

/* ---- qwen3 tokenizer: growing arrays --------------------------------------------------------------- */

/* Makes room for `count` elements. Without memory, the old array stays. */
static inline int qwen3_grow(void **at, size_t *room, size_t count, size_t element)
{
    size_t more = *room ? *room : 16;
    void *grown;
    while (more < count) more *= 2;
    if (more == *room) return 0;
    grown = realloc(*at, more * element);
    if (!grown) return -1;
    *at = grown;
    *room = more;
    return 0;
}

static inline int qwen3_string_add(qwen3_string *s, const char *text, size_t size)
{
    void *at = s->at;
    const int failed = qwen3_grow(&at, &s->room, s->size + size + 1, 1);
    s->at = (char *)at;
    if (failed) return -1;
    if (size) memcpy(s->at + s->size, text, size);
    s->size += size;
    s->at[s->size] = 0;
    return 0;
}

static inline int qwen3_string_add_text(qwen3_string *s, const char *text)
{
    return qwen3_string_add(s, text, strlen(text));
}

static inline int qwen3_spans_add(qwen3_spans *s, size_t begin, size_t end)
{
    void *at = s->at;
    const int failed = qwen3_grow(&at, &s->room, 2 * (s->count + 1), sizeof *s->at);
    s->at = (size_t *)at;
    if (failed) return -1;
    s->at[2 * s->count] = begin, s->at[2 * s->count + 1] = end;
    s->count++;
    return 0;
}

static inline int qwen3_tokens_add(qwen3_tokens *t, uint32_t id)
{
    void *at = t->at;
    int failed;
    if (t->most && t->count >= t->most) {
        t->full = 1;
        return -1;
    }
    failed = qwen3_grow(&at, &t->room, t->count + 1, sizeof *t->at);
    t->at = (uint32_t *)at;
    if (failed) return -1;
    t->at[t->count++] = id;
    return 0;
}

/* ---- qwen3 tokenizer: the spelling of bytes -------------------------------------------------------- */

/* In the file each byte of a token is a character: the printable ones of Latin-1 stand for themselves, the 68 others for
   the characters from U+0100 on, in order. */
#define QWEN3_SPELLED 0x144u

static inline int qwen3_spells_itself(uint32_t byte)
{
    return (byte > 32 && byte < 127) || (byte > 160 && byte != 173 && byte < 256);
}

/* byte_of[c]: the byte for which character c stands, or -1. */
static inline void qwen3_spelling(int16_t *byte_of)
{
    uint32_t byte, next = 256;
    for (byte = 0; byte < QWEN3_SPELLED; byte++) byte_of[byte] = -1;
    for (byte = 0; byte < 256; byte++)
        byte_of[qwen3_spells_itself(byte) ? byte : next++] = (int16_t)byte;
}

/* Appends the bytes that a token spells. With any other character in it, it stands for itself. */
static inline int qwen3_unspell(const int16_t *byte_of, const char *token, qwen3_string *bytes)
{
    const size_t before = bytes->size, size = strlen(token);
    size_t i = 0;
    while (i < size) {
        ucs4_t c;
        const int n = u8_mbtouc(&c, (const uint8_t *)token + i, size - i);
        char byte;
        if (c >= QWEN3_SPELLED || byte_of[c] < 0) {
            bytes->size = before;
            return qwen3_string_add(bytes, token, size);
        }
        byte = (char)byte_of[c];
        if (qwen3_string_add(bytes, &byte, 1)) return -1;
        i += (size_t)n;
    }
    return 0;
}

/* ---- qwen3 tokenizer: the split expression --------------------------------------------------------- */

/* Translates an expression for Oniguruma to PCRE2's dialect: \s is a property there, since PCRE2's own \s includes
   U+180E, which is no white space any more. What else would be read differently is refused. */
static inline int qwen3_translate_split(const qwen3_source *s, const char *name, const char *from,
                                        qwen3_string *to)
{
    int in_class = 0, failed = 0;
    for (; *from && !failed; from++) {
        const char *refused = NULL;
        if (*from == '\\') {
            const char escaped = *++from;
            if (escaped == 's' || escaped == 'S') {
                failed = qwen3_string_add_text(to, escaped == 's' ? "\\p{White_Space}"
                                                                  : "\\P{White_Space}");
                continue;
            }
            if (!escaped || !strchr("rntpPdD\\.[](){}?*+|^$/-", escaped))
                return qwen3_fail(s, "%s: \\%c is not supported", name, escaped ? escaped : ' ');
            failed = qwen3_string_add(to, from - 1, 2);
            if ((escaped == 'p' || escaped == 'P') && from[1] == '{') { /* a property: as it is */
                const size_t size = strcspn(from, "}");
                failed = failed || qwen3_string_add(to, from + 1, size);
                from += from[size] ? size : size - 1;
            }
            continue;
        }
        if (in_class) {
            if (*from == '[') refused = "a class in a class";
            if (from[0] == '&' && from[1] == '&') refused = "&& in a class";
            in_class = *from != ']';
        } else {
            in_class = *from == '[';
            if (*from == '^' || *from == '$') refused = "an anchor";
            if (from[0] == '}' && from[1] == '+') refused = "}+";
            if (from[0] == '(' && from[1] == '*') refused = "(*";
        }
        if (refused) return qwen3_fail(s, "%s: %s is not supported", name, refused);
        failed = qwen3_string_add(to, from, 1);
        if (in_class && from[0] == '[' && from[1] == '^') {
            from++;
            failed = failed || qwen3_string_add(to, from, 1);
        }
    }
    return failed ? qwen3_no_memory(s) : 0;
}

static inline int qwen3_compile_split(qwen3_tokenizer *t, const qwen3_source *s, const char *name,
                                      const char *expression)
{
    qwen3_string pattern = {NULL, 0, 0};
    int code = 0, failed = qwen3_translate_split(s, name, expression, &pattern);
    PCRE2_SIZE at = 0;
    if (!failed) {
        t->split = pcre2_compile((PCRE2_SPTR)(pattern.at ? pattern.at : ""), pattern.size,
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
        if (!t->split) {
            char why[120] = "";
            pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
            failed = qwen3_fail(s, "%s: not a regular expression: %s", name, why);
        } else {
            pcre2_jit_compile(t->split,
                              PCRE2_JIT_COMPLETE); /* where it fails, matching is slower */
        }
    }
    free(pattern.at);
    return failed;
}

/* ---- qwen3 tokenizer: tokenizer.json --------------------------------------------------------------- */

/* What the parser knows besides the tokenizer: the tokens as the file spells them. */
typedef struct qwen3_vocabulary {
    json_t *vocab;     /* token: id */
    const char **name; /* [count]; null: no token */
    int16_t byte_of[QWEN3_SPELLED];
} qwen3_vocabulary;

/* The object's type, which has one allowed value. */
static inline int qwen3_type(const qwen3_source *s, const qwen3_value *v, const char *only)
{
    qwen3_value type;
    if (qwen3_object(s, v)) return -1;
    type = qwen3_field(v->json, "type");
    snprintf(type.name, sizeof type.name, "%.50s.type", v->name);
    return qwen3_given(&type) ? qwen3_only(s, &type, only) : qwen3_wrong_kind(s, &type, "a string");
}

/* Flags of Split and ByteLevel. Absent, use_regex is true. */
static inline int qwen3_read_pre_tokenizers(qwen3_tokenizer *t, qwen3_source s, json_t *o)
{
    const qwen3_value sequence = qwen3_field(o, "pre_tokenizer");
    qwen3_value both, split, level, pattern, regex, behavior;
    const char *text = NULL;
    size_t count = 0;
    int use_regex = 1;
    if (qwen3_type(&s, &sequence, "\"Sequence\"")) return -1;
    s.within = "pre_tokenizer";
    both = qwen3_field(sequence.json, "pretokenizers");
    if (qwen3_array(&s, &both, 2, 2, &count)) return -1;
    split = qwen3_item(&both, 0), level = qwen3_item(&both, 1);
    if (qwen3_type(&s, &split, "\"Split\"") || qwen3_type(&s, &level, "\"ByteLevel\"")) return -1;
    pattern = qwen3_field(split.json, "pattern"), behavior = qwen3_field(split.json, "behavior");
    if (qwen3_object(&s, &pattern)) return -1;
    regex = qwen3_field(pattern.json, "Regex");
    if (qwen3_text(&s, &regex, &text) || qwen3_compile_split(t, &s, "Regex", text) ||
        qwen3_text(&s, &behavior, &text) || qwen3_only(&s, &behavior, "\"Isolated\"") ||
        qwen3_field_only(&s, split.json, "invert", "false") ||
        qwen3_field_only(&s, level.json, "add_prefix_space", "false"))
        return -1;
    if (json_object_get(level.json, "use_regex") &&
        qwen3_flag(&s, level.json, "use_regex", &use_regex))
        return -1;
    return use_regex ? qwen3_fail(&s, "use_regex: true is not supported") : 0;
}

/* What stands around the model. */
static inline int qwen3_read_pipeline(qwen3_tokenizer *t, const qwen3_source *s, json_t *o)
{
    const qwen3_value normalizer = qwen3_field(o, "normalizer"),
                      decoder = qwen3_field(o, "decoder"), post = qwen3_field(o, "post_processor");
    t->nfc = qwen3_given(&normalizer);
    if ((t->nfc && qwen3_type(s, &normalizer, "\"NFC\"")) ||
        qwen3_type(s, &decoder, "\"ByteLevel\"") ||
        (qwen3_given(&post) && qwen3_type(s, &post, "\"ByteLevel\"")) ||
        qwen3_field_only(s, o, "truncation", "null") || qwen3_field_only(s, o, "padding", "null"))
        return -1;
    return qwen3_read_pre_tokenizers(t, *s, o);
}

static inline int qwen3_read_model_variant(const qwen3_source *s, json_t *model)
{
    const qwen3_value prefix = qwen3_field(model, "continuing_subword_prefix"),
                      suffix = qwen3_field(model, "end_of_word_suffix");
    return qwen3_field_only(s, model, "dropout", "null") ||
                   qwen3_field_only(s, model, "unk_token", "null") ||
                   qwen3_only(s, &prefix, "\"\"") || qwen3_only(s, &suffix, "\"\"") ||
                   qwen3_field_only(s, model, "byte_fallback", "false") ||
                   qwen3_field_only(s, model, "ignore_merges", "false")
               ? -1
               : 0;
}

static inline int qwen3_name_token(const qwen3_source *s, qwen3_vocabulary *v, const char *name,
                                   uint32_t id)
{
    if (v->name[id] && strcmp(v->name[id], name) != 0)
        return qwen3_fail(s, "\"%.100s\" and \"%.100s\" have the same id, %u", v->name[id], name,
                          id);
    v->name[id] = name;
    return 0;
}

static inline int qwen3_token_id(const qwen3_source *s, const char *field, const char *token,
                                 json_t *id)
{
    const json_int_t value = json_integer_value(id);
    if (json_is_integer(id) && value >= 0 && value < QWEN3_MAX_TOKENS) return (int)value;
    return qwen3_fail(s, "%s: the id of \"%.100s\" must be an integer from 0 to %u", field, token,
                      QWEN3_MAX_TOKENS - 1);
}

/* A token that is looked for in the normalized text is normalized itself. */
static inline int qwen3_normalize_added(const qwen3_tokenizer *t, const qwen3_source *s, json_t *o,
                                        const char *content)
{
    int normalized = 0, failed;
    size_t size = strlen(content);
    uint8_t *nfc;
    if (qwen3_flag(s, o, "normalized", &normalized)) return -1;
    if (!normalized || !t->nfc) return 0;
    nfc = u8_normalize(UNINORM_NFC, (const uint8_t *)content, size, NULL, &size);
    failed = !nfc || json_object_set_new(o, "content", json_stringn((const char *)nfc, size));
    free(nfc);
    return failed ? qwen3_no_memory(s) : 0;
}

/* Names the tokens of the vocabulary and the added ones. The ids may have gaps. */
static inline int qwen3_read_names(qwen3_tokenizer *t, qwen3_vocabulary *v, qwen3_source s,
                                   json_t *added)
{
    const char *token;
    json_t *value;
    size_t i;
    int id, most = -1;
    json_object_foreach(v->vocab, token, value)
    {
        if ((id = qwen3_token_id(&s, "model.vocab", token, value)) < 0) return -1;
        if (id > most) most = id;
    }
    json_array_foreach(added, i, value)
    {
        const qwen3_value content = qwen3_field(value, "content");
        char where[40];
        snprintf(where, sizeof where, "added_tokens[%zu]", i);
        s.within = where;
        if (!json_is_object(value)) return qwen3_fail(&s, "expected an object");
        if (qwen3_text(&s, &content, &token)) return -1;
        if (!*token) return qwen3_fail(&s, "content: empty");
        if ((id = qwen3_token_id(&s, "id", token, json_object_get(value, "id"))) < 0) return -1;
        if (json_object_get(v->vocab, token) &&
            json_integer_value(json_object_get(v->vocab, token)) != id)
            return qwen3_fail(&s, "id: \"%.100s\" has another one in model.vocab", token);
        if (qwen3_normalize_added(t, &s, value, token)) return -1;
        if (id > most) most = id;
    }
    s.within = NULL;
    t->count = (uint32_t)(most + 1);
    v->name = (const char **)calloc(t->count + 1u, sizeof *v->name);
    t->begin = (size_t *)calloc(t->count + 1u, sizeof *t->begin);
    t->special = (unsigned char *)calloc(t->count + 1u, 1);
    if (!v->name || !t->begin || !t->special) return qwen3_no_memory(&s);
    json_object_foreach(v->vocab, token, value)
    {
        if (qwen3_name_token(&s, v, token, (uint32_t)json_integer_value(value))) return -1;
    }
    json_array_foreach(added, i, value)
    {
        if (qwen3_name_token(&s, v, json_string_value(json_object_get(value, "content")),
                             (uint32_t)json_integer_value(json_object_get(value, "id"))))
            return -1;
    }
    return 0;
}

static inline int qwen3_read_bytes(qwen3_tokenizer *t, const qwen3_vocabulary *v,
                                   const qwen3_source *s)
{
    qwen3_string bytes = {NULL, 0, 0};
    uint32_t i, known = 0;
    int failed = qwen3_string_add(&bytes, "", 0);
    for (i = 0; i < t->count && !failed; i++) {
        t->begin[i] = bytes.size;
        if (v->name[i]) failed = qwen3_unspell(v->byte_of, v->name[i], &bytes);
    }
    t->begin[t->count] = bytes.size;
    t->bytes = bytes.at;
    for (i = 0; i < t->count && !failed; i++)
        if (t->begin[i + 1] - t->begin[i] > t->longest) t->longest = t->begin[i + 1] - t->begin[i];
    if (failed) return qwen3_no_memory(s);
    for (i = 0; i < QWEN3_SPELLED; i++) {
        uint8_t name[8] = {0};
        json_t *id;
        if (v->byte_of[i] < 0) continue;
        u8_uctomb(name, i, sizeof name);
        id = json_object_get(v->vocab, (const char *)name);
        if (!id)
            return qwen3_fail(s, "model.vocab: no token for the byte 0x%02x, \"%s\"", v->byte_of[i],
                              name);
        t->byte_token[v->byte_of[i]] = (uint32_t)json_integer_value(id);
        known++;
    }
    return known == 256 ? 0 : -1;
}

static inline int qwen3_compare_merges(const void *a, const void *b)
{
    const qwen3_merge *x = (const qwen3_merge *)a, *y = (const qwen3_merge *)b;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return x->right < y->right ? -1 : x->right > y->right;
}

/* A merge is "left right", or, in newer files, ["left", "right"]. */
static inline int qwen3_read_merge(qwen3_merge *m, const qwen3_vocabulary *v, const qwen3_source *s,
                                   const qwen3_value *value, qwen3_string *whole)
{
    const char *left = NULL, *right = NULL, *space;
    size_t left_size = 0;
    const json_t *ids[3];
    if (json_is_string(value->json)) {
        left = json_string_value(value->json);
        space = strchr(left, ' ');
        if (!space || strchr(space + 1, ' '))
            return qwen3_fail(s, "%s: expected two tokens and a space between", value->name);
        left_size = (size_t)(space - left), right = space + 1;
    } else if (json_array_size(value->json) == 2) {
        left = json_string_value(json_array_get(value->json, 0));
        right = json_string_value(json_array_get(value->json, 1));
        left_size = left ? strlen(left) : 0;
    }
    if (!left || !right) return qwen3_wrong_kind(s, value, "two tokens");
    whole->size = 0;
    if (qwen3_string_add(whole, left, left_size)) return qwen3_no_memory(s);
    ids[0] = json_object_get(v->vocab, whole->at), ids[1] = json_object_get(v->vocab, right);
    if (qwen3_string_add(whole, right, strlen(right))) return qwen3_no_memory(s);
    ids[2] = json_object_get(v->vocab, whole->at);
    if (!ids[0] || !ids[1] || !ids[2])
        return qwen3_fail(s, "%s: \"%.*s\" and \"%.60s\": %s in the vocabulary", value->name,
                          (int)(left_size < 60 ? left_size : 60), left, right,
                          ids[0] && ids[1] ? "together they are not" : "one is not");
    m->left = (uint32_t)json_integer_value(ids[0]);
    m->right = (uint32_t)json_integer_value(ids[1]);
    m->merged = (uint32_t)json_integer_value(ids[2]);
    return 0;
}

static inline int qwen3_read_merges(qwen3_tokenizer *t, const qwen3_vocabulary *v,
                                    const qwen3_source *s, json_t *model)
{
    const qwen3_value merges = qwen3_field(model, "merges");
    qwen3_string whole = {NULL, 0, 0};
    size_t i;
    int failed = 0;
    if (qwen3_array(s, &merges, 0, QWEN3_MAX_TOKENS, &t->merge_count)) return -1;
    t->merges = (qwen3_merge *)calloc(t->merge_count + 1, sizeof *t->merges);
    if (!t->merges) return qwen3_no_memory(s);
    for (i = 0; i < t->merge_count && !failed; i++) {
        const qwen3_value merge = qwen3_item(&merges, i);
        t->merges[i].rank = (uint32_t)i;
        failed = qwen3_read_merge(&t->merges[i], v, s, &merge, &whole);
    }
    free(whole.at);
    if (failed) return -1;
    qsort(t->merges, t->merge_count, sizeof *t->merges, qwen3_compare_merges);
    for (i = 1; i < t->merge_count; i++)
        if (!qwen3_compare_merges(&t->merges[i - 1], &t->merges[i]))
            return qwen3_fail(s, "merges[%u]: the same pair as merges[%u]", t->merges[i].rank,
                              t->merges[i - 1].rank);
    return 0;
}

static inline int qwen3_compare_added(const void *a, const void *b)
{
    const qwen3_added *x = (const qwen3_added *)a, *y = (const qwen3_added *)b;
    const int order = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);
    if (order) return order;
    return x->size < y->size ? -1 : x->size > y->size;
}

static inline int qwen3_add_token(qwen3_added_set *set, const char *text, size_t size, uint32_t id)
{
    qwen3_added *a = &set->at[set->count];
    a->text = (char *)malloc(size + 1);
    if (!a->text) return -1;
    memcpy(a->text, text, size);
    a->text[size] = 0;
    a->size = size, a->id = id;
    set->begins[(unsigned char)text[0]] = 1;
    set->count++;
    return 0;
}

static inline int qwen3_read_added_token(qwen3_tokenizer *t, const qwen3_source *s, json_t *o)
{
    const char *text = json_string_value(json_object_get(o, "content"));
    const uint32_t id = (uint32_t)json_integer_value(json_object_get(o, "id"));
    int special = 0;
    if (qwen3_field_only(s, o, "single_word", "false") ||
        qwen3_field_only(s, o, "lstrip", "false") || qwen3_field_only(s, o, "rstrip", "false") ||
        qwen3_flag(s, o, "special", &special))
        return -1;
    t->special[id] = (unsigned char)special;
    return qwen3_add_token(json_is_true(json_object_get(o, "normalized")) ? &t->normalized
                                                                          : &t->added,
                           text, strlen(text), id)
               ? qwen3_no_memory(s)
               : 0;
}

static inline int qwen3_sort_added(qwen3_added_set *set, const qwen3_source *s)
{
    size_t i;
    qsort(set->at, set->count, sizeof *set->at, qwen3_compare_added);
    for (i = 1; i < set->count; i++)
        if (!qwen3_compare_added(&set->at[i - 1], &set->at[i]))
            return qwen3_fail(s, "added_tokens: \"%.100s\" is given twice", set->at[i].text);
    return 0;
}

static inline int qwen3_read_added(qwen3_tokenizer *t, qwen3_source s, json_t *added)
{
    const size_t count = json_array_size(added);
    json_t *value;
    size_t i;
    t->added.at = (qwen3_added *)calloc(count + 1, sizeof *t->added.at);
    t->normalized.at = (qwen3_added *)calloc(count + 1, sizeof *t->normalized.at);
    if (!t->added.at || !t->normalized.at) return qwen3_no_memory(&s);
    json_array_foreach(added, i, value)
    {
        char where[40];
        snprintf(where, sizeof where, "added_tokens[%zu]", i);
        s.within = where;
        if (qwen3_read_added_token(t, &s, value)) return -1;
    }
    s.within = NULL;
    return qwen3_sort_added(&t->added, &s) || qwen3_sort_added(&t->normalized, &s) ? -1 : 0;
}

static inline int qwen3_read_tokenizer(qwen3_tokenizer *t, qwen3_vocabulary *v, qwen3_source s,
                                       json_t *o)
{
    const qwen3_value model = qwen3_field(o, "model"), added = qwen3_field(o, "added_tokens");
    qwen3_value vocab;
    if (qwen3_type(&s, &model, "\"BPE\"")) return -1;
    if (qwen3_given(&added) && !json_is_array(added.json))
        return qwen3_wrong_kind(&s, &added, "an array");
    vocab = qwen3_field(model.json, "vocab");
    s.within = "model";
    if (qwen3_read_model_variant(&s, model.json) || qwen3_object(&s, &vocab)) return -1;
    s.within = NULL;
    qwen3_spelling(v->byte_of);
    v->vocab = vocab.json;
    if (qwen3_read_pipeline(t, &s, o) || qwen3_read_names(t, v, s, added.json) ||
        qwen3_read_bytes(t, v, &s))
        return -1;
    s.within = "model";
    return qwen3_read_merges(t, v, &s, model.json) ||
                   qwen3_read_added(t, qwen3_source_of(s.file, s.error, s.size), added.json)
               ? -1
               : 0;
}

static inline int qwen3_parse_tokenizer(qwen3_tokenizer *t, const char *text, size_t size,
                                        const char *file, char *error, size_t error_size)
{
    const qwen3_source s = qwen3_source_of(file, error, error_size);
    json_t *o = qwen3_json(&s, text, size);
    qwen3_vocabulary v;
    int failed;
    memset(t, 0, sizeof *t);
    memset(&v, 0, sizeof v);
    if (!o) return -1;
    failed = qwen3_read_tokenizer(t, &v, s, o);
    free((void *)v.name);
    json_decref(o);
    if (failed) qwen3_tokenizer_close(t);
    return failed;
}

static inline int qwen3_tokenizer_open(qwen3_tokenizer *t, const char *path, char *error,
                                       size_t error_size)
{
    const char *name;
    qwen3_bytes text;
    int failed;
    memset(t, 0, sizeof *t);
    if (qwen3_map_usual(&text, &name, path, "tokenizer.json", error, error_size)) return -1;
    failed = qwen3_parse_tokenizer(t, (const char *)text.at, text.size, name, error, error_size);
    qwen3_unmap(&text);
    return failed;
}

static inline void qwen3_free_added(qwen3_added_set *set)
{
    size_t i;
    for (i = 0; i < set->count; i++) free(set->at[i].text);
    free(set->at);
}

static inline void qwen3_tokenizer_close(qwen3_tokenizer *t)
{
    qwen3_free_added(&t->added);
    qwen3_free_added(&t->normalized);
    pcre2_code_free(t->split);
    free(t->bytes);
    free(t->begin);
    free(t->special);
    free(t->merges);
    memset(t, 0, sizeof *t);
}

/* ---- qwen3 tokenizer: merging the bytes of a word -------------------------------------------------- */

/* The symbols of a word are a linked list. A merge puts the new symbol in the place of its left one. */
typedef struct qwen3_symbol {
    uint32_t id; /* QWEN3_MERGED: it is part of another one */
    int32_t before, after;
} qwen3_symbol;
#define QWEN3_MERGED UINT32_MAX

/* A pair of neighbours that may be merged, if they are still there. */
typedef struct qwen3_candidate {
    uint32_t rank, merge; /* of the tokenizer's merges */
    int32_t at;           /* the left symbol */
} qwen3_candidate;

/* Memory that the words of one qwen3_encode share. */
typedef struct qwen3_encoder {
    const qwen3_tokenizer *t;
    const qwen3_source *s;
    qwen3_tokens *tokens;
    qwen3_symbol *symbol;  /* [room] */
    qwen3_candidate *heap; /* [2 room]: each merge takes one and adds two at most */
    size_t room,
        waiting; /* candidates in the heap: the lowest rank, of equal ones the leftmost, first */
    pcre2_match_data *match;
    pcre2_match_context *context;
    const char *text;         /* the whole one, in which `plain` are spans; null: a copy of it */
    const qwen3_spans *plain; /* or null */
    size_t span;              /* the first of them that ends after what was looked at */
} qwen3_encoder;

static inline int qwen3_encoded(qwen3_encoder *e, uint32_t id)
{
    if (!qwen3_tokens_add(e->tokens, id)) return 0;
    return e->tokens->full ? qwen3_fail(e->s, "more than %zu tokens", e->tokens->most)
                           : qwen3_no_memory(e->s);
}

static inline int qwen3_goes_first(const qwen3_candidate *a, const qwen3_candidate *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->at < b->at);
}

static inline void qwen3_push(qwen3_encoder *e, qwen3_candidate c)
{
    size_t i = e->waiting++;
    while (i > 0 && qwen3_goes_first(&c, &e->heap[(i - 1) / 2])) {
        e->heap[i] = e->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    e->heap[i] = c;
}

static inline qwen3_candidate qwen3_pop(qwen3_encoder *e)
{
    const qwen3_candidate first = e->heap[0], last = e->heap[--e->waiting];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < e->waiting) {
        if (child + 1 < e->waiting && qwen3_goes_first(&e->heap[child + 1], &e->heap[child]))
            child++;
        if (!qwen3_goes_first(&e->heap[child], &last)) break;
        e->heap[i] = e->heap[child];
        i = child;
    }
    e->heap[i] = last;
    return first;
}

/* Adds the pair that begins at a symbol, if there is a merge for it. */
static inline void qwen3_consider(qwen3_encoder *e, int32_t at)
{
    const qwen3_tokenizer *t = e->t;
    const qwen3_merge *found;
    qwen3_merge pair;
    qwen3_candidate c;
    if (at < 0 || e->symbol[at].after < 0) return;
    pair.left = e->symbol[at].id, pair.right = e->symbol[e->symbol[at].after].id;
    pair.rank = pair.merged = 0;
    found = (const qwen3_merge *)bsearch(&pair, t->merges, t->merge_count, sizeof pair,
                                         qwen3_compare_merges);
    if (!found) return;
    c.rank = found->rank, c.merge = (uint32_t)(found - t->merges), c.at = at;
    qwen3_push(e, c);
}

static inline void qwen3_merge_symbols(qwen3_encoder *e, const qwen3_candidate *c)
{
    const qwen3_merge *m = &e->t->merges[c->merge];
    qwen3_symbol *left = &e->symbol[c->at], *right;
    if (left->id != m->left || left->after < 0) return;
    right = &e->symbol[left->after];
    if (right->id != m->right) return;
    left->id = m->merged;
    left->after = right->after;
    right->id = QWEN3_MERGED;
    if (left->after >= 0) e->symbol[left->after].before = c->at;
    qwen3_consider(e, left->before);
    qwen3_consider(e, c->at);
}

static inline int qwen3_encode_word(qwen3_encoder *e, const char *word, size_t size)
{
    const size_t most = e->tokens->most;
    size_t i;
    int32_t at;
    if (size == 0) return 0;
    /* A word that cannot fit, however it is merged. */
    if (most && (size - 1) / e->t->longest >= most - e->tokens->count) {
        e->tokens->full = 1;
        return qwen3_fail(e->s, "more than %zu tokens", most);
    }
    if (size > e->room) {
        const size_t room = 2 * size;
        free(e->symbol);
        free(e->heap);
        e->room = 0;
        e->symbol = (qwen3_symbol *)malloc(room * sizeof *e->symbol);
        e->heap = (qwen3_candidate *)malloc(2 * room * sizeof *e->heap);
        if (!e->symbol || !e->heap) return qwen3_no_memory(e->s);
        e->room = room;
    }
    for (i = 0; i < size; i++) {
        e->symbol[i].id = e->t->byte_token[(unsigned char)word[i]];
        e->symbol[i].before = (int32_t)i - 1;
        e->symbol[i].after = i + 1 < size ? (int32_t)i + 1 : -1;
    }
    for (i = 0; i < size; i++) qwen3_consider(e, (int32_t)i);
    while (e->waiting) {
        const qwen3_candidate c = qwen3_pop(e);
        qwen3_merge_symbols(e, &c);
    }
    for (at = 0; at >= 0; at = e->symbol[at].after)
        if (qwen3_encoded(e, e->symbol[at].id)) return -1;
    return 0;
}

/* ---- qwen3 tokenizer: cutting text into words ------------------------------------------------------ */

/* Text without added tokens. Where an expression matches nothing, the next character begins a new attempt. */
static inline int qwen3_encode_words(qwen3_encoder *e, const char *text, size_t size)
{
    size_t from = 0, at = 0; /* what is not encoded yet begins at `from` */
    /* An expression like Qwen3's looks at a character a few times. */
    pcre2_set_match_limit(e->context,
                          (uint32_t)(size < 10000000 ? 100 * size + 100000 : 1100000000));
    while (at < size) {
        const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(e->match);
        const int found = pcre2_match(e->t->split, (PCRE2_SPTR)text, size, at, PCRE2_NO_UTF_CHECK,
                                      e->match, e->context);
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found < 0) {
            char why[120] = "";
            pcre2_get_error_message(found, (PCRE2_UCHAR *)why, sizeof why);
            return qwen3_fail(e->s, "the split expression of tokenizer.json fails: %s", why);
        }
        if (bounds[1] <= at) { /* nothing was matched */
            for (at++; at < size && ((unsigned char)text[at] & 0xc0) == 0x80;) at++;
            continue;
        }
        if (qwen3_encode_word(e, text + from, bounds[0] - from) ||
            qwen3_encode_word(e, text + bounds[0], bounds[1] - bounds[0]))
            return -1;
        from = at = bounds[1];
    }
    return qwen3_encode_word(e, text + from, size - from);
}

/* The longest token of the set with which the text begins. */
static inline const qwen3_added *qwen3_added_at(const qwen3_added_set *set, const char *text,
                                                size_t size)
{
    size_t low = 0, high = set->count, i;
    const qwen3_added *found = NULL;
    for (i = 0; low < high; i++) { /* from low to high: those that share i bytes with the text */
        if (set->at[low].size == i) found = &set->at[low++];
        if (i == size) break;
        while (low < high && (unsigned char)set->at[low].text[i] < (unsigned char)text[i]) low++;
        while (low < high && (unsigned char)set->at[high - 1].text[i] > (unsigned char)text[i])
            high--;
    }
    return found;
}

/* Whether a part of the whole text meets a plain span. Asked from its beginning to its end. */
static inline int qwen3_is_plain(qwen3_encoder *e, const char *text, size_t size)
{
    size_t begin;
    if (!e->plain || !e->text) return 0;
    begin = (size_t)(text - e->text);
    while (e->span < e->plain->count && e->plain->at[2 * e->span + 1] <= begin) e->span++;
    return e->span < e->plain->count && e->plain->at[2 * e->span] < begin + size;
}

typedef int qwen3_encode_part(qwen3_encoder *e, const char *text, size_t size);

/* Encodes the added tokens of the set, and what lies between them by `rest`. */
static inline int qwen3_encode_around(qwen3_encoder *e, const qwen3_added_set *set,
                                      const char *text, size_t size, qwen3_encode_part *rest)
{
    size_t from = 0, at = 0;
    while (at < size) {
        const qwen3_added *found =
            set->begins[(unsigned char)text[at]] ? qwen3_added_at(set, text + at, size - at) : NULL;
        if (!found || qwen3_is_plain(e, text + at, found->size)) {
            at++;
            continue;
        }
        if (at > from && rest(e, text + from, at - from)) return -1;
        if (qwen3_encoded(e, found->id)) return -1;
        from = at += found->size;
    }
    return size > from ? rest(e, text + from, size - from) : 0;
}

/* Text without tokens of the first set. Those of the second are not looked for where some of it is
   plain: as NFC it has other places. */
static inline int qwen3_encode_normalized(qwen3_encoder *e, const char *text, size_t size)
{
    static const qwen3_added_set none = {NULL, 0, {0}};
    const qwen3_added_set *set = qwen3_is_plain(e, text, size) ? &none : &e->t->normalized;
    const char *whole = e->text;
    uint8_t *nfc = NULL;
    int failed;
    if (e->t->nfc) {
        nfc = u8_normalize(UNINORM_NFC, (const uint8_t *)text, size, NULL, &size);
        if (!nfc) return qwen3_no_memory(e->s);
        text = (const char *)nfc;
    }
    e->text = NULL;
    failed = qwen3_encode_around(e, set, text, size, qwen3_encode_words);
    e->text = whole;
    free(nfc);
    return failed;
}

static inline int qwen3_encode(const qwen3_tokenizer *t, const char *text, size_t size,
                               const qwen3_spans *plain, qwen3_tokens *tokens, char *error,
                               size_t error_size)
{
    const qwen3_source s = qwen3_source_of("text", error, error_size);
    const size_t before = tokens->count;
    const uint8_t *bad;
    qwen3_encoder e;
    int failed;
    if (size > QWEN3_MAX_TEXT)
        return qwen3_fail(&s, "%zu bytes, at most %zu are encoded", size, QWEN3_MAX_TEXT);
    bad = size ? u8_check((const uint8_t *)text, size) : NULL;
    if (bad) return qwen3_fail(&s, "not UTF-8 at byte %zu", (size_t)(bad - (const uint8_t *)text));
    memset(&e, 0, sizeof e);
    e.t = t, e.s = &s, e.tokens = tokens;
    e.text = text, e.plain = plain;
    tokens->full = 0;
    e.match = pcre2_match_data_create(1, NULL);
    e.context = pcre2_match_context_create(NULL);
    failed = e.match && e.context
                 ? qwen3_encode_around(&e, &t->added, text, size, qwen3_encode_normalized)
                 : qwen3_no_memory(&s);
    pcre2_match_data_free(e.match);
    pcre2_match_context_free(e.context);
    free(e.symbol);
    free(e.heap);
    if (failed) tokens->count = before;
    return failed;
}

static inline int64_t qwen3_added_id(const qwen3_tokenizer *t, const char *text)
{
    const size_t size = strlen(text);
    const qwen3_added *found = qwen3_added_at(&t->added, text, size);
    if (!found || found->size != size) found = qwen3_added_at(&t->normalized, text, size);
    return found && found->size == size ? (int64_t)found->id : -1;
}

/* ---- qwen3 tokenizer: tokens to text --------------------------------------------------------------- */

/* Bytes of the character that begins with this one; 0: none does. */
static inline uint32_t qwen3_character_size(unsigned char byte)
{
    if (byte < 0x80) return 1;
    if (byte < 0xc2 || byte > 0xf4) return 0;
    return byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

/* Whether the byte continues the character: no overlong forms, surrogates, or numbers above U+10FFFF. */
static inline int qwen3_continues(const qwen3_partial *p, unsigned char byte)
{
    unsigned char least = 0x80, most = 0xbf;
    if (p->count == 1) {
        if (p->byte[0] == 0xe0) least = 0xa0;
        if (p->byte[0] == 0xed) most = 0x9f;
        if (p->byte[0] == 0xf0) least = 0x90;
        if (p->byte[0] == 0xf4) most = 0x8f;
    }
    return byte >= least && byte <= most;
}

#define QWEN3_REPLACEMENT "\xef\xbf\xbd"

/* As much of a broken character as could begin a whole one becomes one U+FFFD, as Unicode recommends. */
static inline int qwen3_decode_byte(qwen3_partial *p, unsigned char byte, qwen3_string *text)
{
    if (p->count && !qwen3_continues(p, byte) && qwen3_decode_end(p, text)) return -1;
    if (!p->count && !qwen3_character_size(byte))
        return qwen3_string_add_text(text, QWEN3_REPLACEMENT);
    p->byte[p->count++] = byte;
    if (p->count < qwen3_character_size(p->byte[0])) return 0;
    if (qwen3_string_add(text, (const char *)p->byte, p->count)) return -1;
    p->count = 0;
    return 0;
}

static inline int qwen3_decode(const qwen3_tokenizer *t, uint32_t id, int skip_special,
                               qwen3_partial *partial, qwen3_string *text)
{
    size_t i;
    if (id >= t->count || (skip_special && t->special[id])) return 0;
    for (i = t->begin[id]; i < t->begin[id + 1]; i++)
        if (qwen3_decode_byte(partial, (unsigned char)t->bytes[i], text)) return -1;
    return 0;
}

static inline int qwen3_decode_end(qwen3_partial *partial, qwen3_string *text)
{
    if (partial->count && qwen3_string_add_text(text, QWEN3_REPLACEMENT)) return -1;
    partial->count = 0;
    return 0;
}

/* ---- qwen3 tokenizer: conversations ---------------------------------------------------------------- */

static inline const char *qwen3_find_text(const char *text, size_t size, const char *what, int last)
{
    const size_t length = strlen(what);
    const char *found = NULL;
    size_t i;
    for (i = 0; i + length <= size && (last || !found); i++)
        if (!memcmp(text + i, what, length)) found = text + i;
    return found;
}

/* Without line feeds at the ends that are named. */
static inline void qwen3_strip(const char **text, size_t *size, int begin, int end)
{
    while (begin && *size && **text == '\n') ++*text, --*size;
    while (end && *size && (*text)[*size - 1] == '\n') --*size;
}

/* An answer, and the reasoning at its beginning: what stands between the last <think> and the first </think>. */
static inline void qwen3_part_answer(qwen3_message *answer, qwen3_message *reasoning)
{
    const char *content = answer->content, *all = content + answer->size,
               *first = qwen3_find_text(content, answer->size, "</think>", 0),
               *last = qwen3_find_text(content, answer->size, "</think>", 1), *opened;
    reasoning->content = content, reasoning->size = 0;
    if (!first) return;
    reasoning->size = (size_t)(first - content);
    qwen3_strip(&reasoning->content, &reasoning->size, 0, 1);
    opened = qwen3_find_text(content, reasoning->size, "<think>", 1);
    if (opened) {
        reasoning->content = opened + 7;
        reasoning->size -= (size_t)(opened + 7 - content);
    }
    qwen3_strip(&reasoning->content, &reasoning->size, 1, 1);
    answer->content = last + 8, answer->size = (size_t)(all - answer->content);
    qwen3_strip(&answer->content, &answer->size, 1, 0);
}

/* Adds what a message says, in which control tokens are text. */
static inline int qwen3_add_plain(qwen3_string *prompt, qwen3_spans *plain, const char *text,
                                  size_t size)
{
    const size_t begin = prompt->size;
    if (qwen3_string_add(prompt, text, size)) return -1;
    return plain && size ? qwen3_spans_add(plain, begin, begin + size) : 0;
}

static inline int qwen3_is_role(const qwen3_message *m, const char *role)
{
    return !strcmp(m->role, role);
}

/* has_content: the message has some, if only line feeds that are not shown. */
static inline int qwen3_chat_calls(const qwen3_message *m, int has_content, qwen3_string *prompt,
                                   qwen3_spans *plain)
{
    size_t i;
    for (i = 0; i < m->n_calls; i++) {
        const qwen3_call *c = &m->calls[i];
        if (((i || has_content) && qwen3_string_add(prompt, "\n", 1)) ||
            qwen3_string_add_text(prompt, "<tool_call>\n{\"name\": \"") ||
            qwen3_add_plain(prompt, plain, c->name, strlen(c->name)) ||
            qwen3_string_add_text(prompt, "\", \"arguments\": ") ||
            qwen3_add_plain(prompt, plain, c->arguments, strlen(c->arguments)) ||
            qwen3_string_add_text(prompt, "}\n</tool_call>"))
            return -1;
    }
    return 0;
}

/* An answer. Only of answers to the last question is the reasoning shown. reasons 0: models that do
   not reason have answers as they are. */
static inline int qwen3_chat_answer(const qwen3_message *message, int reasons, int is_last,
                                    int follows_user, qwen3_string *prompt, qwen3_spans *plain)
{
    qwen3_message m = *message, reasoning = *message;
    int has_content;
    if (!reasons)
        follows_user = 0;
    else if (m.reasoning)
        reasoning.content = m.reasoning, reasoning.size = m.reasoning_size;
    else
        qwen3_part_answer(&m, &reasoning);
    has_content = m.size != 0;
    if (follows_user && (is_last || reasoning.size)) {
        qwen3_strip(&m.content, &m.size, 1, 0);
        qwen3_strip(&reasoning.content, &reasoning.size, 1, 1);
        if (qwen3_string_add_text(prompt, "<think>\n") ||
            qwen3_add_plain(prompt, plain, reasoning.content, reasoning.size) ||
            qwen3_string_add_text(prompt, "\n</think>\n\n"))
            return -1;
    }
    return qwen3_add_plain(prompt, plain, m.content, m.size) ||
           qwen3_chat_calls(&m, has_content, prompt, plain);
}

/* What calls have returned stands in one message of the user. */
static inline int qwen3_chat_returned(const qwen3_message *m, int is_first, int is_last,
                                      qwen3_string *prompt, qwen3_spans *plain)
{
    return (is_first && qwen3_string_add_text(prompt, "<|im_start|>user")) ||
           qwen3_string_add_text(prompt, "\n<tool_response>\n") ||
           qwen3_add_plain(prompt, plain, m->content, m->size) ||
           qwen3_string_add_text(prompt, "\n</tool_response>") ||
           (is_last && qwen3_string_add_text(prompt, "<|im_end|>\n"));
}

static inline int qwen3_chat_message(const qwen3_message *all, size_t count, size_t i, int reasons,
                                     size_t last_user, qwen3_string *prompt, qwen3_spans *plain)
{
    const qwen3_message *m = &all[i];
    const int is_last = i + 1 == count;
    if (qwen3_is_role(m, "tool"))
        return qwen3_chat_returned(m, !i || !qwen3_is_role(m - 1, "tool"),
                                   is_last || !qwen3_is_role(m + 1, "tool"), prompt, plain);
    return qwen3_string_add_text(prompt, "<|im_start|>") ||
           qwen3_string_add_text(prompt, m->role) || qwen3_string_add(prompt, "\n", 1) ||
           (qwen3_is_role(m, "assistant")
                ? qwen3_chat_answer(m, reasons, is_last, i > last_user, prompt, plain)
                : qwen3_add_plain(prompt, plain, m->content, m->size)) ||
           qwen3_string_add_text(prompt, "<|im_end|>\n");
}

#define QWEN2_5_SYSTEM "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."

/* The first message when there are tools: what the system says, which tools there are, and how the
   model calls them. */
static inline int qwen3_chat_tools(const qwen3_message *messages, size_t count,
                                   qwen3_chat_style style, qwen3_string *prompt, qwen3_spans *plain)
{
    size_t i;
    int bad = qwen3_string_add_text(prompt, "<|im_start|>system\n");
    if (count && qwen3_is_role(messages, "system"))
        bad = bad || qwen3_add_plain(prompt, plain, messages->content, messages->size) ||
              qwen3_string_add_text(prompt, "\n\n");
    else if (style.family == QWEN3_AS_QWEN2_5)
        bad = bad || qwen3_string_add_text(prompt, QWEN2_5_SYSTEM "\n\n");
    bad =
        bad || qwen3_string_add_text(
                   prompt, "# Tools\n\nYou may call one or more functions to assist with the user "
                           "query.\n\nYou are provided with function signatures within "
                           "<tools></tools> XML tags:\n<tools>");
    for (i = 0; i < style.n_tools; i++)
        bad = bad || qwen3_string_add_text(prompt, "\n") ||
              qwen3_add_plain(prompt, plain, style.tools[i], strlen(style.tools[i]));
    return bad ||
           qwen3_string_add_text(
               prompt, "\n</tools>\n\nFor each function call, return a json object with function "
                       "name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
                       "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n"
                       "</tool_call><|im_end|>\n");
}

/* A message of the user that is what a tool has returned asks no question. */
static inline int qwen3_asks(const qwen3_message *m)
{
    static const char begin[] = "<tool_response>", end[] = "</tool_response>";
    const size_t n = sizeof begin - 1, k = sizeof end - 1;
    if (!qwen3_is_role(m, "user")) return 0;
    return m->size < n || memcmp(m->content, begin, n) || m->size < k ||
           memcmp(m->content + m->size - k, end, k);
}

/* Spaces as Unicode has them, and the separators from U+001C to U+001F. */
static inline int qwen3_is_space(ucs4_t c)
{
    return (c >= 0x1c && c <= 0x1f) || uc_is_property_white_space(c);
}

/* Without the spaces at both ends. */
static inline void qwen3_trim(const char **text, size_t *size)
{
    ucs4_t c;
    int n;
    while (*size && (n = u8_mbtouc(&c, (const uint8_t *)*text, *size)) > 0 && qwen3_is_space(c))
        *text += n, *size -= (size_t)n;
    while (*size) {
        size_t begin = *size - 1;
        while (begin && ((unsigned char)(*text)[begin] & 0xc0u) == 0x80u) begin--;
        if (u8_mbtouc(&c, (const uint8_t *)*text + begin, *size - begin) <= 0) break;
        if (!qwen3_is_space(c)) break;
        *size = begin;
    }
}

static inline int qwen3_llama3_header(const char *role, qwen3_string *prompt)
{
    return qwen3_string_add_text(prompt, "<|start_header_id|>") ||
           qwen3_string_add_text(prompt, role) ||
           qwen3_string_add_text(prompt, "<|end_header_id|>\n\n");
}

static inline int qwen3_llama3_prompt(const qwen3_message *messages, size_t count,
                                      qwen3_string *prompt, qwen3_spans *plain)
{
    size_t i;
    int bad = count && qwen3_string_add_text(prompt, "<|begin_of_text|>");
    for (i = 0; i < count && !bad; i++) {
        qwen3_message m = messages[i];
        qwen3_trim(&m.content, &m.size);
        bad = qwen3_llama3_header(m.role, prompt) ||
              qwen3_add_plain(prompt, plain, m.content, m.size) ||
              qwen3_string_add_text(prompt, "<|eot_id|>");
    }
    return bad || qwen3_llama3_header("assistant", prompt);
}

static inline int qwen3_chat_prompt(const qwen3_message *messages, size_t count,
                                    qwen3_chat_style style, qwen3_string *prompt,
                                    qwen3_spans *plain, char *error, size_t error_size)
{
    const int reasons = style.family == QWEN3_HYBRID || style.family == QWEN3_THINKING;
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const qwen3_source s = qwen3_source_of("messages", error, error_size);
    size_t i, k, last_user = count;
    int bad = 0;
    for (i = 0; i < count; i++) {
        for (k = 0; k < 4 && !qwen3_is_role(&messages[i], roles[k]);) k++;
        if (k == 4)
            return qwen3_fail(&s,
                              "[%zu].role: \"%.60s\" is not supported, expected \"system\", "
                              "\"user\", \"assistant\" or \"tool\"",
                              i, messages[i].role);
        if (qwen3_asks(&messages[i])) last_user = i;
    }
    if (style.family == QWEN3_AS_LLAMA3)
        return qwen3_llama3_prompt(messages, count, prompt, plain) ? qwen3_no_memory(&s) : 0;
    if (last_user == count) last_user = count ? count - 1 : 0;
    if (style.n_tools)
        bad = qwen3_chat_tools(messages, count, style, prompt, plain);
    else if (style.family == QWEN3_AS_QWEN2_5 && !(count && qwen3_is_role(messages, "system")))
        bad = qwen3_string_add_text(prompt, "<|im_start|>system\n" QWEN2_5_SYSTEM "<|im_end|>\n");
    for (i = style.n_tools && count && qwen3_is_role(messages, "system"); i < count && !bad; i++)
        bad = qwen3_chat_message(messages, count, i, reasons, last_user, prompt, plain);
    bad = bad || qwen3_string_add_text(prompt, "<|im_start|>assistant\n") ||
          (style.family == QWEN3_THINKING && qwen3_string_add_text(prompt, "<think>\n")) ||
          (style.family == QWEN3_HYBRID && !style.thinking &&
           qwen3_string_add_text(prompt, "<think>\n\n</think>\n\n"));
    return bad ? qwen3_no_memory(&s) : 0;
}

#endif /* QWEN3_TOKENIZER_H */
