/* request.h: parses and checks the bodies of POST /v1/completions and /v1/chat/completions.

       completion c;
       refusal why;
       if (completion_parse(&c, COMPLETION_CHAT, body, bytes, &rules, &why)) ... why.status, why.field ...
       ... completion_fit(&c, n_prompt, &rules.limits, &why) ...
       completion_free(&c);

   A pure function of its arguments. Unknown fields are refused, so that a misspelt one is not ignored. Each refusal
   names the field, and where something is too large, the largest value that fits. Needs jansson. */
#ifndef SERVE_REQUEST_H
#define SERVE_REQUEST_H

#include "../qwen3/tokenizer.h"
#include "engine.h"

#define MAX_MESSAGES 4096u
#define DEFAULT_MAX_TOKENS 256u

/* What is known before a body is read. */
typedef struct completion_rules {
    engine_limits limits;
    uint32_t has_text; /* 0: there is no tokenizer; prompts and answers are token ids */
    const char *model; /* its name */
} completion_rules;

typedef enum completion_kind { COMPLETION_TEXT = 1, COMPLETION_CHAT = 2 } completion_kind;

typedef struct completion {
    completion_kind kind;
    json_t *body;     /* holds the texts below */
    const char *text; /* the prompt, if it is text */
    uint32_t *tokens; /* the prompt, if it is token ids */
    uint32_t n_tokens;
    qwen3_message *messages; /* the prompt of a chat */
    uint32_t n_messages;
    uint32_t thinking;   /* 0: the answer of a chat begins with an empty reasoning */
    uint32_t max_tokens; /* 0: not given, until completion_fit */
    uint32_t stream, include_usage, ignore_eos;
    job_class priority;
    sampling sample;
    uint32_t has_seed; /* 0: the server chooses one */
} completion;

typedef struct refusal {
    unsigned status; /* of HTTP */
    char field[64];  /* or empty */
    char message[328];
    uint32_t has_fits;
    uint64_t fits; /* the largest value of the field that would be taken */
} refusal;

/* Copies as much of a text as fits without cutting a character of UTF-8. */
static void copy_text(char *to, size_t room, const char *from)
{
    size_t n = strlen(from);
    if (n >= room)
        for (n = room - 1; n && ((unsigned char)from[n] & 0xc0u) == 0x80u;) n--;
    memcpy(to, from, n);
    to[n] = 0;
}

/* The name of a field inside another one: "messages[3].role". */
typedef struct field_name {
    char text[64];
} field_name;
static field_name field_in(const char *outer, const char *key)
{
    field_name name;
    char whole[160], inner[64];
    copy_text(inner, sizeof inner, key);
    snprintf(whole, sizeof whole, "%s%s", outer, inner);
    copy_text(name.text, sizeof name.text, whole);
    return name;
}

/* Fills in a refusal, and returns -1. */
static int refuse(refusal *why, unsigned status, const char *field, const char *format, ...)
{
    char text[256];
    va_list list;
    memset(why, 0, sizeof *why);
    why->status = status;
    copy_text(why->field, sizeof why->field, field);
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    snprintf(why->message, sizeof why->message, "%s%s%s", why->field, why->field[0] ? ": " : "",
             text);
    return -1;
}
static int refuse_too_long(refusal *why, const char *field, uint64_t fits, const char *text)
{
    refuse(why, 413, field, "%s: at most %llu fit", text, (unsigned long long)fits);
    why->has_fits = 1, why->fits = fits;
    return -1;
}

/* ---- values ---- */

typedef struct completion_parser {
    completion *c;
    const completion_rules *rules;
    refusal *why;
    uint32_t has_stream_options;
} completion_parser;

static int read_flag(completion_parser *p, const char *name, const json_t *value, uint32_t *to)
{
    if (!json_is_boolean(value)) return refuse(p->why, 400, name, "must be true or false");
    *to = json_is_true(value);
    return 0;
}

static int read_integer(completion_parser *p, const char *name, const json_t *value, uint64_t least,
                        uint64_t most, uint64_t *to)
{
    const json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < 0 || (uint64_t)n < least || (uint64_t)n > most)
        return refuse(p->why, 400, name, "must be an integer from %llu to %llu",
                      (unsigned long long)least, (unsigned long long)most);
    *to = (uint64_t)n;
    return 0;
}

static int read_number(completion_parser *p, const char *name, const json_t *value, double least,
                       double most, double *to)
{
    const double x = json_number_value(value);
    if (!json_is_number(value) || !(x >= least && x <= most))
        return refuse(p->why, 400, name, "must be a number from %g to %g", least, most);
    *to = x;
    return 0;
}

/* ---- fields ---- */

static int read_model(completion_parser *p, const char *name, json_t *value)
{
    if (!json_is_string(value)) return refuse(p->why, 400, name, "must be a string");
    if (strcmp(json_string_value(value), p->rules->model))
        return refuse(p->why, 404, name, "this server has one model, \"%.64s\"", p->rules->model);
    return 0;
}

static int read_token_ids(completion_parser *p, const char *name, json_t *value)
{
    completion *c = p->c;
    const size_t n = json_array_size(value);
    if (!n) return refuse(p->why, 400, name, "is empty");
    if (n > p->rules->limits.context)
        return refuse_too_long(p->why, name, p->rules->limits.context, "too many tokens");
    c->tokens = (uint32_t *)malloc(n * sizeof *c->tokens);
    if (!c->tokens) return refuse(p->why, 503, name, "no memory is left");
    for (size_t i = 0; i < n; i++) {
        uint64_t token = 0;
        char item[32];
        snprintf(item, sizeof item, "%s[%zu]", name, i);
        if (read_integer(p, item, json_array_get(value, i), 0, p->rules->limits.vocab - 1u, &token))
            return -1;
        c->tokens[i] = (uint32_t)token;
    }
    c->n_tokens = (uint32_t)n;
    return 0;
}

static int read_prompt(completion_parser *p, const char *name, json_t *value)
{
    if (json_is_array(value)) return read_token_ids(p, name, value);
    if (!json_is_string(value))
        return refuse(p->why, 400, name, "must be a string or an array of token ids");
    if (!p->rules->has_text)
        return refuse(p->why, 400, name,
                      "must be an array of token ids: this model has no tokenizer");
    if (!json_string_length(value)) return refuse(p->why, 400, name, "is empty");
    p->c->text = json_string_value(value);
    return 0;
}

static int read_message(completion_parser *p, uint32_t i, json_t *value)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    qwen3_message *m = &p->c->messages[i];
    const char *key;
    char item[32];
    json_t *field;
    uint32_t role = 0;
    snprintf(item, sizeof item, "messages[%u].", i);
    if (!json_is_object(value))
        return refuse(p->why, 400, "messages", "message %u is not an object", i);
    json_object_foreach(value, key, field)
    {
        const field_name name = field_in(item, key);
        if (strcmp(key, "role") && strcmp(key, "content"))
            return refuse(p->why, 400, name.text, "is not known here");
        if (!json_is_string(field)) return refuse(p->why, 400, name.text, "must be a string");
        if (key[0] == 'r')
            m->role = json_string_value(field);
        else
            m->content = json_string_value(field), m->size = json_string_length(field);
    }
    if (!m->role) return refuse(p->why, 400, field_in(item, "role").text, "is missing");
    if (!m->content) return refuse(p->why, 400, field_in(item, "content").text, "is missing");
    while (role < 3 && strcmp(m->role, roles[role])) role++;
    if (role == 3)
        return refuse(p->why, 400, field_in(item, "role").text,
                      "must be system, user or assistant");
    return 0;
}

static int read_messages(completion_parser *p, const char *name, json_t *value)
{
    completion *c = p->c;
    const size_t n = json_array_size(value);
    if (!json_is_array(value) || !n)
        return refuse(p->why, 400, name, "must be an array of at least one message");
    if (n > MAX_MESSAGES) return refuse_too_long(p->why, name, MAX_MESSAGES, "too many messages");
    if (!p->rules->has_text)
        return refuse(
            p->why, 400, name,
            "cannot be read: this model has no tokenizer; /v1/completions takes token ids");
    c->messages = (qwen3_message *)calloc(n, sizeof *c->messages);
    if (!c->messages) return refuse(p->why, 503, name, "no memory is left");
    for (size_t i = 0; i < n; i++)
        if (read_message(p, (uint32_t)i, json_array_get(value, i))) return -1;
    c->n_messages = (uint32_t)n;
    return 0;
}

static int read_max_tokens(completion_parser *p, const char *name, json_t *value)
{
    uint64_t n = 0;
    if (p->c->max_tokens)
        return refuse(p->why, 400, name, "max_tokens and max_completion_tokens are the same");
    if (read_integer(p, name, value, 1, UINT32_MAX, &n)) return -1;
    p->c->max_tokens = (uint32_t)n;
    return 0;
}

static int read_stream(completion_parser *p, const char *name, json_t *value)
{
    return read_flag(p, name, value, &p->c->stream);
}

static int read_stream_options(completion_parser *p, const char *name, json_t *value)
{
    const char *key;
    json_t *field;
    if (!json_is_object(value)) return refuse(p->why, 400, name, "must be an object");
    p->has_stream_options = 1;
    json_object_foreach(value, key, field)
    {
        const field_name item = field_in("stream_options.", key);
        if (strcmp(key, "include_usage"))
            return refuse(p->why, 400, item.text, "is not known here");
        if (read_flag(p, item.text, field, &p->c->include_usage)) return -1;
    }
    return 0;
}

static int read_priority(completion_parser *p, const char *name, json_t *value)
{
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    for (uint32_t k = 0; k < JOB_CLASSES; k++)
        if (!strcmp(text, job_class_names[k])) {
            p->c->priority = (job_class)k;
            return 0;
        }
    return refuse(p->why, 400, name, "must be \"reactive\" or \"proactive\"");
}

static int read_ignore_eos(completion_parser *p, const char *name, json_t *value)
{
    return read_flag(p, name, value, &p->c->ignore_eos);
}

static int read_thinking(completion_parser *p, const char *name, json_t *value)
{
    return read_flag(p, name, value, &p->c->thinking);
}

static int read_temperature(completion_parser *p, const char *name, json_t *value)
{
    double *to = &p->c->sample.temperature;
    if (read_number(p, name, value, 0, 2, to)) return -1;
    if (*to > 0 && *to < 1e-3) return refuse(p->why, 400, name, "must be 0, or from 0.001 to 2");
    if (*to > 0 && !p->rules->limits.samples)
        return refuse(p->why, 400, name, "must be 0: this engine takes the most likely token");
    return 0;
}

static int read_top_p(completion_parser *p, const char *name, json_t *value)
{
    return read_number(p, name, value, 1e-6, 1, &p->c->sample.top_p);
}

static int read_min_p(completion_parser *p, const char *name, json_t *value)
{
    return read_number(p, name, value, 0, 1, &p->c->sample.min_p);
}

static int read_top_k(completion_parser *p, const char *name, json_t *value)
{
    uint64_t n = 0;
    if (read_integer(p, name, value, 0, p->rules->limits.vocab, &n)) return -1;
    p->c->sample.top_k = (uint32_t)n;
    return 0;
}

static int read_seed(completion_parser *p, const char *name, json_t *value)
{
    p->c->has_seed = 1;
    return read_integer(p, name, value, 0, INT64_MAX, &p->c->sample.seed);
}

static int read_n(completion_parser *p, const char *name, json_t *value)
{
    uint64_t n = 0;
    return read_integer(p, name, value, 1, 1, &n);
}

typedef struct completion_field {
    const char *name;
    unsigned kinds; /* of completions that have it */
    int (*read)(completion_parser *p, const char *name, json_t *value);
} completion_field;

static const completion_field completion_fields[] = {
    {"model", COMPLETION_TEXT | COMPLETION_CHAT, read_model},
    {"prompt", COMPLETION_TEXT, read_prompt},
    {"messages", COMPLETION_CHAT, read_messages},
    {"max_tokens", COMPLETION_TEXT | COMPLETION_CHAT, read_max_tokens},
    {"max_completion_tokens", COMPLETION_CHAT, read_max_tokens},
    {"stream", COMPLETION_TEXT | COMPLETION_CHAT, read_stream},
    {"stream_options", COMPLETION_TEXT | COMPLETION_CHAT, read_stream_options},
    {"priority", COMPLETION_TEXT | COMPLETION_CHAT, read_priority},
    {"ignore_eos", COMPLETION_TEXT | COMPLETION_CHAT, read_ignore_eos},
    {"enable_thinking", COMPLETION_CHAT, read_thinking},
    {"temperature", COMPLETION_TEXT | COMPLETION_CHAT, read_temperature},
    {"top_p", COMPLETION_TEXT | COMPLETION_CHAT, read_top_p},
    {"min_p", COMPLETION_TEXT | COMPLETION_CHAT, read_min_p},
    {"top_k", COMPLETION_TEXT | COMPLETION_CHAT, read_top_k},
    {"seed", COMPLETION_TEXT | COMPLETION_CHAT, read_seed},
    {"n", COMPLETION_TEXT | COMPLETION_CHAT, read_n},
};
#define COMPLETION_FIELDS (sizeof completion_fields / sizeof completion_fields[0])

static int read_fields(completion_parser *p)
{
    const char *key;
    json_t *value;
    json_object_foreach(p->c->body, key, value)
    {
        size_t k = 0;
        while (k < COMPLETION_FIELDS && (strcmp(key, completion_fields[k].name) ||
                                         !(completion_fields[k].kinds & p->c->kind)))
            k++;
        if (k == COMPLETION_FIELDS) return refuse(p->why, 400, key, "is not known here");
        if (completion_fields[k].read(p, key, value)) return -1;
    }
    return 0;
}

/* ---- the whole ---- */

/* Keeps all but the prompt. */
static void completion_free_prompt(completion *c)
{
    json_decref(c->body);
    free(c->tokens);
    free(c->messages);
    c->body = NULL, c->tokens = NULL, c->messages = NULL, c->text = NULL;
    c->n_tokens = c->n_messages = 0;
}

static void completion_free(completion *c)
{
    completion_free_prompt(c);
    memset(c, 0, sizeof *c);
}

/* 0, or -1 and why; call completion_free in any case. */
static int completion_parse(completion *c, completion_kind kind, const char *body, size_t bytes,
                            const completion_rules *rules, refusal *why)
{
    completion_parser p;
    json_error_t error;
    memset(c, 0, sizeof *c);
    memset(&p, 0, sizeof p);
    p.c = c, p.rules = rules, p.why = why;
    c->kind = kind, c->thinking = 1;
    c->sample.top_p = 1;
    c->body = json_loadb(bytes ? body : "", bytes, JSON_REJECT_DUPLICATES, &error);
    if (!c->body)
        return refuse(why, 400, "", "the body, line %d, column %d: %s", error.line, error.column,
                      json_error_code(&error) == json_error_duplicate_key ? "a key is given twice"
                                                                          : "is not JSON");
    if (!json_is_object(c->body)) return refuse(why, 400, "", "the body must be an object");
    if (read_fields(&p)) return -1;
    if (kind == COMPLETION_TEXT && !c->text && !c->tokens)
        return refuse(why, 400, "prompt", "is missing");
    if (kind == COMPLETION_CHAT && !c->messages) return refuse(why, 400, "messages", "is missing");
    if (p.has_stream_options && !c->stream)
        return refuse(why, 400, "stream_options", "needs \"stream\": true");
    return 0;
}

/* Checks that prompt and answer fit the context, and sets max_tokens where it was not given. */
static int completion_fit(completion *c, uint32_t n_prompt, const engine_limits *limits,
                          refusal *why)
{
    const char *prompt = c->kind == COMPLETION_CHAT ? "messages" : "prompt";
    const uint32_t fits = n_prompt <= limits->context ? limits->context - n_prompt + 1 : 0;
    char text[96];
    if (!n_prompt) return refuse(why, 400, prompt, "has no token");
    if (!fits) {
        snprintf(text, sizeof text, "%u tokens are too many", n_prompt);
        return refuse_too_long(why, prompt, limits->context, text);
    }
    if (!c->max_tokens) c->max_tokens = fits < DEFAULT_MAX_TOKENS ? fits : DEFAULT_MAX_TOKENS;
    if (c->max_tokens <= fits) return 0;
    snprintf(text, sizeof text, "%u are too many after a prompt of %u tokens", c->max_tokens,
             n_prompt);
    return refuse_too_long(why, "max_tokens", fits, text);
}

#endif /* SERVE_REQUEST_H */
