/* chat_template.h: what a model's files say of its use: which chat template it has, and how it
   draws tokens.

   A template is a program; the ones of Qwen3's families, of Qwen2.5 and of Llama 3 are compiled in
   (qwen3_chat_prompt) and recognised by what they contain. Any other is refused, for a conversation
   that is spelled wrongly is answered badly, and nothing shows it; the user may then name the
   family. Functions return 0, or -1 and a message that begins with the file. */
#ifndef QWEN3_CHAT_TEMPLATE_H
#define QWEN3_CHAT_TEMPLATE_H

#include "tokenizer.h"

static const char *const qwen3_family_names[QWEN3_FAMILIES] = {
    "qwen3", "qwen3-instruct", "qwen3-thinking", "qwen2.5", "llama3"};
#define QWEN3_FAMILY_NAMES "qwen3, qwen3-instruct, qwen3-thinking, qwen2.5 or llama3"

/* The family of a name; -1: it is none. */
static inline int qwen3_family_named(const char *name, qwen3_family *family)
{
    int i;
    for (i = 0; i < QWEN3_FAMILIES; i++)
        if (!strcmp(name, qwen3_family_names[i])) {
            *family = (qwen3_family)i;
            return 0;
        }
    return -1;
}

/* A mark that a template of the family has, and one that it does not have. */
typedef struct qwen3_template_marks {
    qwen3_family family;
    const char *has[4], *lacks[4];
} qwen3_template_marks;

/* -1: it is none of them. */
static inline int qwen3_recognise(const char *text, qwen3_family *family)
{
    static const qwen3_template_marks all[] = {
        {QWEN3_HYBRID,
         {"<tool_response>", "last_query_index", "enable_thinking is false", "reasoning_content"},
         {"<function=", "You are Qwen", "assistant\\n<think>\\n'", NULL}},
        {QWEN3_THINKING,
         {"<tool_response>", "last_query_index", "assistant\\n<think>\\n'", "reasoning_content"},
         {"<function=", "You are Qwen", "enable_thinking", NULL}},
        {QWEN3_INSTRUCT,
         {"<tool_response>", "<|im_start|>assistant\\n'", "tool_call.arguments is string", NULL},
         {"<function=", "You are Qwen", "<think>", "reasoning_content"}},
        {QWEN3_AS_QWEN2_5,
         {"You are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>",
          "<tool_response>", "tool_call.arguments | tojson", "<|im_start|>assistant\\n'"},
         {"<function=", "reasoning_content", "<think>", "arguments is string"}},
        {QWEN3_AS_LLAMA3,
         {"<|start_header_id|>", "message['content'] | trim + '<|eot_id|>'",
          "content = bos_token + content", "<|start_header_id|>assistant<|end_header_id|>"},
         {"<|python_tag|>", "tools", "strftime", "<|im_start|>"}}};
    size_t i, k;
    for (i = 0; i < sizeof all / sizeof all[0]; i++) {
        int fits = all[i].family == QWEN3_AS_LLAMA3 ||
                   (strstr(text, "<|im_start|>") && strstr(text, "<|im_end|>"));
        for (k = 0; k < 4; k++) {
            if (all[i].has[k] && !strstr(text, all[i].has[k])) fits = 0;
            if (all[i].lacks[k] && strstr(text, all[i].lacks[k])) fits = 0;
        }
        if (!fits) continue;
        *family = all[i].family;
        return 0;
    }
    return -1;
}

/* Reads a file of the folder to its end; text->at stays null if there is none. */
static inline int qwen3_read_optional(const char *dir, const char *name, qwen3_string *text,
                                      char *error, size_t error_size)
{
    const qwen3_source s = qwen3_source_of(name, error, error_size);
    char *path = qwen3_path(dir, name);
    struct stat info;
    qwen3_bytes bytes;
    int failed = 0;
    if (!path) return qwen3_no_memory(&s);
    if (stat(path, &info) == 0) {
        failed = qwen3_map(&bytes, path, error, error_size);
        if (!failed) {
            if (qwen3_string_add(text, (const char *)bytes.at, bytes.size))
                failed = qwen3_no_memory(&s);
            qwen3_unmap(&bytes);
        }
    }
    free(path);
    return failed;
}

/* The template of tokenizer_config.json: a text, or of several the one called "default". */
static inline const char *qwen3_template_of(json_t *config)
{
    json_t *value = json_object_get(config, "chat_template"), *item;
    size_t i;
    json_array_foreach(value, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && !strcmp(name, "default"))
            return json_string_value(json_object_get(item, "template"));
    }
    return json_string_value(value);
}

static inline int qwen3_recognised(const qwen3_source *s, const char *text, qwen3_family *family)
{
    return qwen3_recognise(text, family)
               ? qwen3_fail(s, "the chat template is none of those that are known; "
                               "--chat-template " QWEN3_FAMILY_NAMES " says that it is like one")
               : 0;
}

/* The family of a model, by chat_template.jinja or tokenizer_config.json; without a template that
   of Qwen3. */
static inline int qwen3_family_read(const char *dir, qwen3_family *family, char *error,
                                    size_t error_size)
{
    static const char jinja[] = "chat_template.jinja", config[] = "tokenizer_config.json";
    qwen3_source s = qwen3_source_of(jinja, error, error_size);
    qwen3_string text = {NULL, 0, 0};
    json_t *o = NULL;
    int failed = qwen3_read_optional(dir, jinja, &text, error, error_size);
    *family = QWEN3_HYBRID;
    if (!failed && text.at)
        failed = qwen3_recognised(&s, text.at, family);
    else if (!failed) {
        s = qwen3_source_of(config, error, error_size);
        failed = qwen3_read_optional(dir, config, &text, error, error_size);
        if (!failed && text.at) {
            const char *found;
            o = qwen3_json(&s, text.at, text.size);
            found = o ? qwen3_template_of(o) : NULL;
            failed = !o || (found && qwen3_recognised(&s, found, family)) ? -1 : 0;
        }
    }
    json_decref(o);
    free(text.at);
    return failed;
}

/* How generation_config.json has tokens drawn. */
typedef struct qwen3_drawing {
    double temperature; /* 0: the most likely token */
    double top_p, min_p;
    uint32_t top_k; /* 0: all tokens */
    int given;      /* 1: the file says so */
} qwen3_drawing;

static inline int qwen3_drawing_fields(const qwen3_source *s, json_t *o, qwen3_drawing *d)
{
    const qwen3_value temperature = qwen3_field(o, "temperature"), top_p = qwen3_field(o, "top_p"),
                      min_p = qwen3_field(o, "min_p"), top_k = qwen3_field(o, "top_k");
    if (qwen3_flag(s, o, "do_sample", &d->given)) return -1;
    if (!d->given) return 0;
    d->temperature = 1;
    return (qwen3_given(&temperature) && qwen3_number(s, &temperature, 0, 2, &d->temperature)) ||
                   (qwen3_given(&top_p) && qwen3_number(s, &top_p, 1e-6, 1, &d->top_p)) ||
                   (qwen3_given(&min_p) && qwen3_number(s, &min_p, 0, 1, &d->min_p)) ||
                   (qwen3_given(&top_k) && qwen3_count(s, &top_k, 0, QWEN3_MAX_TOKENS, &d->top_k))
               ? -1
               : 0;
}

/* Without the file, or where it does not sample: the most likely token. */
static inline int qwen3_drawing_read(const char *dir, qwen3_drawing *d, char *error,
                                     size_t error_size)
{
    const qwen3_source s = qwen3_source_of(QWEN3_GENERATION, error, error_size);
    qwen3_string text = {NULL, 0, 0};
    json_t *o = NULL;
    int failed = qwen3_read_optional(dir, QWEN3_GENERATION, &text, error, error_size);
    memset(d, 0, sizeof *d);
    d->top_p = 1;
    if (!failed && text.at) {
        o = qwen3_json(&s, text.at, text.size);
        failed = o ? qwen3_drawing_fields(&s, o, d) : -1;
    }
    json_decref(o);
    free(text.at);
    return failed;
}

#endif /* QWEN3_CHAT_TEMPLATE_H */
