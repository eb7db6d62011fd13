/* request.h: parses and checks the bodies of requests: of completions and chats, and of what tells
   their tokens.

       completion c;
       refusal why;
       if (completion_parse(&c, COMPLETION_CHAT, body, bytes, &rules, &why)) ... why.field ...
       ... tokens for c.prompts, by text_to_tokens ...
       ... completion_fit(&c, &rules, &why) ...
       completion_free(&c);

   A pure function of its arguments. A field that is absent, null, or has the value that means "off"
   is the same. What a field asks for is done, or it is refused by its name: completion_fields says
   which. Fields that it does not have are ignored, unless rules.strict. Needs jansson. */
#ifndef SERVE_REQUEST_H
#define SERVE_REQUEST_H

#include "../qwen3/tokenizer.h"
#include "engine.h"

#define MAX_MESSAGES 4096u
#define MAX_TOOLS 128u
#define MAX_CHOICES 128u /* prompts, times `n` */
#define MAX_STOPS 4u
#define MAX_STOP_BYTES 256u
#define MAX_STOP_TOKENS ENGINE_MAX_ENDS
#define DEFAULT_MAX_TOKENS 256u /* of a completion; a chat has as many as fit */

/* What is known before a body is read. */
typedef struct completion_rules {
    engine_limits limits;
    uint32_t has_text; /* 0: there is no tokenizer; prompts and answers are token ids */
    const char *model; /* its name */
    uint32_t strict;   /* 1: refuses fields that are not known, and max_tokens that do not fit */
    sampling defaults; /* of requests that do not say; the seed is not used */
} completion_rules;

/* Of what the body asks. */
typedef enum completion_kind {
    COMPLETION_TEXT = 1,
    COMPLETION_CHAT = 2,
    COMPLETION_TOKENS = 4,  /* the tokens of a text or a chat */
    COMPLETION_DETOKENS = 8 /* the text of tokens */
} completion_kind;

typedef struct prompt {
    const char *text; /* if it is text */
    uint32_t *tokens;
    uint32_t n_tokens;
} prompt;

typedef struct completion {
    completion_kind kind;
    json_t *body; /* holds the texts below, and `joined` those that were made of several */
    json_t *joined;
    prompt *prompts;
    uint32_t n_prompts;
    qwen3_message *messages; /* the prompt of a chat; null: it is text or tokens */
    uint32_t n_messages;
    const char **tools; /* that the answer to a chat may call: JSON */
    uint32_t n_tools;
    uint32_t calls;      /* 1: it may; 0: "tool_choice": "none", or there are none */
    uint32_t one_call;   /* 1: one of them, at most */
    uint32_t thinking;   /* 0: the answer of a chat begins with an empty reasoning */
    uint32_t reasoning;  /* 1: an answer's reasoning is shown, in a field of its own */
    uint32_t max_tokens; /* 0: not given, until completion_fit */
    uint32_t n;          /* answers to each prompt */
    uint32_t stream, include_usage, ignore_eos, echo, include_stop, keep_special;
    char *stops[MAX_STOPS]; /* texts at which an answer ends */
    uint32_t n_stops;
    uint32_t stop_tokens[MAX_STOP_TOKENS], n_stop_tokens;
    job_class priority;
    sampling sample;
    uint32_t has_seed; /* 0: the server chooses one */
    shaping shape;     /* without `ends`, which are stop_tokens */
    engine_bias *biased;
    uint32_t likelihoods; /* as in engine_job */
} completion;

typedef struct refusal {
    unsigned status;  /* of HTTP */
    const char *code; /* a word of the API, or null: that of the status, if it has one */
    char field[64];   /* or empty */
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
/* The same with the largest value that would be taken. */
static int refuse_above(refusal *why, unsigned status, const char *field, uint64_t fits,
                        const char *text)
{
    refuse(why, status, field, "%s: at most %llu fit", text, (unsigned long long)fits);
    why->has_fits = 1, why->fits = fits;
    return -1;
}
static int refuse_long_body(refusal *why, const char *field, uint64_t fits, const char *text)
{
    return refuse_above(why, 413, field, fits, text);
}
static int refuse_context(refusal *why, const char *field, uint64_t fits, const char *text)
{
    refuse_above(why, 400, field, fits, text);
    why->code = "context_length_exceeded";
    return -1;
}

/* ---- values ---- */

typedef struct completion_parser {
    completion *c;
    const completion_rules *rules;
    refusal *why;
    uint32_t has_max_tokens, no_calls;
    uint32_t top; /* top_logprobs */
} completion_parser;

/* A field, as the table below has it. */
typedef struct completion_field {
    const char *name;
    unsigned kinds; /* of completions that have it */
    int (*read)(completion_parser *p, const struct completion_field *f, json_t *value);
    const char *neutral; /* of a field that is not done: JSON, the values that ask for nothing */
} completion_field;

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

static int is_minus_one(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) == -1;
}

/* 0 is 0.0. */
static int is_neutral(const json_t *value, const json_t *neutral)
{
    if (json_is_number(value) && json_is_number(neutral))
        return json_number_value(value) >= json_number_value(neutral) &&
               json_number_value(value) <= json_number_value(neutral);
    return json_equal(value, neutral);
}

/* ---- fields that are not done ---- */

static int read_ignored(completion_parser *p, const completion_field *f, json_t *value)
{
    (void)p, (void)f, (void)value;
    return 0;
}

/* Refused, unless it asks for nothing. */
static int read_neutral(completion_parser *p, const completion_field *f, json_t *value)
{
    json_t *all = json_loads(f->neutral, 0, NULL), *one;
    size_t i;
    int found = 0;
    json_array_foreach(all, i, one) found |= is_neutral(value, one);
    json_decref(all);
    if (found) return 0;
    refuse(p->why, 400, f->name, "is not supported; without effect, and taken, is one of %s",
           f->neutral);
    p->why->code = "unsupported_value";
    return -1;
}

/* ---- prompts ---- */

static int read_model(completion_parser *p, const completion_field *f, json_t *value)
{
    if (!json_is_string(value)) return refuse(p->why, 400, f->name, "must be a string");
    if (!strcmp(json_string_value(value), p->rules->model)) return 0;
    refuse(p->why, 404, f->name, "this server has one model, \"%.64s\"", p->rules->model);
    p->why->code = "model_not_found";
    return -1;
}

static int read_token_ids(completion_parser *p, const char *name, json_t *value, prompt *to)
{
    const size_t n = json_array_size(value);
    if (!n) return refuse(p->why, 400, name, "is empty");
    if (n > p->rules->limits.context && p->c->kind != COMPLETION_DETOKENS)
        return refuse_context(p->why, name, p->rules->limits.context, "too many tokens");
    to->tokens = (uint32_t *)malloc(n * sizeof *to->tokens);
    if (!to->tokens) return refuse(p->why, 503, name, "no memory is left");
    for (size_t i = 0; i < n; i++) {
        uint64_t token = 0;
        char item[64];
        snprintf(item, sizeof item, "%.32s[%zu]", name, i);
        if (read_integer(p, item, json_array_get(value, i), 0, p->rules->limits.vocab - 1u, &token))
            return -1;
        to->tokens[i] = (uint32_t)token;
    }
    to->n_tokens = (uint32_t)n;
    return 0;
}

static int read_one_prompt(completion_parser *p, const char *name, json_t *value, prompt *to)
{
    if (json_is_array(value)) return read_token_ids(p, name, value, to);
    if (!json_is_string(value))
        return refuse(p->why, 400, name,
                      "must be a string or an array of token ids, or an array of these");
    if (!p->rules->has_text)
        return refuse(p->why, 400, name,
                      "must be an array of token ids: this model has no tokenizer");
    if (!json_string_length(value) && p->c->kind != COMPLETION_TOKENS)
        return refuse(p->why, 400, name, "is empty");
    to->text = json_string_value(value);
    return 0;
}

static int make_prompts(completion_parser *p, const char *name, size_t n)
{
    completion *c = p->c;
    if (c->prompts) return refuse(p->why, 400, name, "is one prompt too many");
    c->prompts = (prompt *)calloc(n, sizeof *c->prompts);
    if (!c->prompts) return refuse(p->why, 503, name, "no memory is left");
    c->n_prompts = (uint32_t)n;
    return 0;
}

/* A prompt, or an array of several. */
static int read_prompt(completion_parser *p, const completion_field *f, json_t *value)
{
    json_t *first = json_array_get(value, 0), *item;
    size_t i;
    if (!json_is_array(first) && !json_is_string(first))
        return make_prompts(p, f->name, 1) || read_one_prompt(p, f->name, value, &p->c->prompts[0])
                   ? -1
                   : 0;
    if (json_array_size(value) > MAX_CHOICES)
        return refuse_above(p->why, 400, f->name, MAX_CHOICES, "too many prompts");
    if (make_prompts(p, f->name, json_array_size(value))) return -1;
    json_array_foreach(value, i, item)
    {
        char name[64];
        snprintf(name, sizeof name, "%.32s[%zu]", f->name, i);
        if (read_one_prompt(p, name, item, &p->c->prompts[i])) return -1;
    }
    return 0;
}

/* One text, of which tokens are told. */
static int read_content(completion_parser *p, const completion_field *f, json_t *value)
{
    if (!json_is_string(value)) return refuse(p->why, 400, f->name, "must be a string");
    return make_prompts(p, f->name, 1) || read_one_prompt(p, f->name, value, &p->c->prompts[0]) ? -1
                                                                                                : 0;
}

/* Tokens, of which the text is told. */
static int read_tokens(completion_parser *p, const completion_field *f, json_t *value)
{
    if (!json_is_array(value)) return refuse(p->why, 400, f->name, "must be an array of token ids");
    if (make_prompts(p, f->name, 1)) return -1;
    if (!json_array_size(value)) return 0;
    return read_token_ids(p, f->name, value, &p->c->prompts[0]);
}

/* ---- messages ---- */

/* Text that is none of the body's: held until the prompt is freed. Null: no memory. */
static const char *hold_text(completion *c, const char *text, size_t size)
{
    json_t *value = json_stringn(text ? text : "", size);
    if (!c->joined) c->joined = json_array();
    if (json_array_append_new(c->joined, value)) return NULL;
    return json_string_value(value);
}

/* Parts of text, with line feeds between. */
static int read_parts(completion_parser *p, const char *name, json_t *value, const char **text,
                      size_t *size)
{
    qwen3_string all;
    json_t *part;
    size_t i;
    int bad = 0;
    memset(&all, 0, sizeof all);
    json_array_foreach(value, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        json_t *words = json_object_get(part, "text");
        char item[64];
        snprintf(item, sizeof item, "%.40s[%zu]", name, i);
        if (!type || strcmp(type, "text")) {
            bad = refuse(p->why, 400, field_in(item, ".type").text,
                         "must be \"text\": this model reads nothing else");
            p->why->code = "unsupported_value";
        } else if (!json_is_string(words))
            bad = refuse(p->why, 400, field_in(item, ".text").text, "must be a string");
        else if ((i && qwen3_string_add(&all, "\n", 1)) ||
                 qwen3_string_add(&all, json_string_value(words), json_string_length(words)))
            bad = refuse(p->why, 503, name, "no memory is left");
        if (bad) break;
    }
    if (!bad) {
        *size = all.size;
        *text = hold_text(p->c, all.at, all.size);
        if (!*text) bad = refuse(p->why, 503, name, "no memory is left");
    }
    free(all.at);
    return bad;
}

/* Text, or parts of it. */
static int read_text_or_parts(completion_parser *p, const char *name, json_t *value,
                              const char **text, size_t *size)
{
    if (json_is_array(value)) return read_parts(p, name, value, text, size);
    if (!json_is_string(value))
        return refuse(p->why, 400, name, "must be a string or an array of parts");
    *text = json_string_value(value), *size = json_string_length(value);
    return 0;
}

/* A call of a tool that an earlier answer had. */
static int read_call(completion_parser *p, const char *name, json_t *value, qwen3_call *call)
{
    json_t *function = json_object_get(value, "function");
    json_t *arguments = json_object_get(function, "arguments");
    char *dumped = NULL;
    call->name = json_string_value(json_object_get(function, "name"));
    if (!call->name)
        return refuse(p->why, 400, name, "must be an object with function.name, a string");
    if (json_is_string(arguments))
        call->arguments = json_string_value(arguments);
    else if (json_is_object(arguments)) {
        dumped = json_dumps(arguments, 0);
        call->arguments = dumped ? hold_text(p->c, dumped, strlen(dumped)) : NULL;
        free(dumped);
    } else
        return refuse(p->why, 400, name, "function.arguments must be a string or an object");
    return call->arguments ? 0 : refuse(p->why, 503, name, "no memory is left");
}

static int read_calls(completion_parser *p, const char *name, json_t *value, qwen3_message *m)
{
    const size_t n = json_array_size(value);
    qwen3_call *calls;
    if (!json_is_array(value)) return refuse(p->why, 400, name, "must be an array");
    if (!n) return 0;
    m->calls = calls = (qwen3_call *)calloc(n, sizeof *calls);
    if (!calls) return refuse(p->why, 503, name, "no memory is left");
    for (size_t i = 0; i < n; i++) {
        char item[64];
        snprintf(item, sizeof item, "%.36s[%zu]", name, i);
        if (read_call(p, item, json_array_get(value, i), &calls[i])) return -1;
    }
    m->n_calls = n;
    return 0;
}

static int read_role(completion_parser *p, const char *name, json_t *value, qwen3_message *m)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
    const char *given = json_string_value(value);
    for (uint32_t i = 0; i < 5 && given; i++)
        if (!strcmp(given, roles[i])) {
            m->role = roles[i == 4 ? 0 : i]; /* developer: OpenAI's newer word for system */
            return 0;
        }
    return refuse(p->why, 400, name, "must be system, developer, user, assistant or tool");
}

static int read_message_field(completion_parser *p, const char *name, const char *key,
                              json_t *value, qwen3_message *m)
{
    static const char *const ignored[] = {"name", "tool_call_id", "annotations", "refusal"};
    if (!strcmp(key, "role")) return read_role(p, name, value, m);
    if (!strcmp(key, "content")) return read_text_or_parts(p, name, value, &m->content, &m->size);
    if (!strcmp(key, "tool_calls")) return read_calls(p, name, value, m);
    if (!strcmp(key, "reasoning_content") || !strcmp(key, "reasoning"))
        return read_text_or_parts(p, name, value, &m->reasoning, &m->reasoning_size);
    for (uint32_t i = 0; i < 4; i++)
        if (!strcmp(key, ignored[i])) return 0;
    return p->rules->strict ? refuse(p->why, 400, name, "is not known here") : 0;
}

static int read_message(completion_parser *p, uint32_t i, json_t *value)
{
    qwen3_message *m = &p->c->messages[i];
    const char *key;
    char item[32];
    json_t *field;
    snprintf(item, sizeof item, "messages[%u].", i);
    if (!json_is_object(value))
        return refuse(p->why, 400, "messages", "message %u is not an object", i);
    json_object_foreach(value, key, field)
    {
        if (!json_is_null(field) && read_message_field(p, field_in(item, key).text, key, field, m))
            return -1;
    }
    if (!m->role) return refuse(p->why, 400, field_in(item, "role").text, "is missing");
    if (!m->content && strcmp(m->role, "assistant"))
        return refuse(p->why, 400, field_in(item, "content").text, "is missing");
    if (!m->content) m->content = "";
    if (m->n_calls && strcmp(m->role, "assistant"))
        return refuse(p->why, 400, field_in(item, "tool_calls").text,
                      "only messages of the assistant have calls");
    return 0;
}

static int read_messages(completion_parser *p, const completion_field *f, json_t *value)
{
    completion *c = p->c;
    const size_t n = json_array_size(value);
    if (!json_is_array(value) || !n)
        return refuse(p->why, 400, f->name, "must be an array of at least one message");
    if (n > MAX_MESSAGES)
        return refuse_above(p->why, 400, f->name, MAX_MESSAGES, "too many messages");
    if (!p->rules->has_text)
        return refuse(
            p->why, 400, f->name,
            "cannot be read: this model has no tokenizer; /v1/completions takes token ids");
    if (make_prompts(p, f->name, 1)) return -1;
    c->messages = (qwen3_message *)calloc(n, sizeof *c->messages);
    if (!c->messages) return refuse(p->why, 503, f->name, "no memory is left");
    c->n_messages = (uint32_t)n;
    for (size_t i = 0; i < n; i++)
        if (read_message(p, (uint32_t)i, json_array_get(value, i))) return -1;
    return 0;
}

/* ---- tools ---- */

static int read_tool(completion_parser *p, uint32_t i, json_t *value)
{
    completion *c = p->c;
    json_t *function = json_object_get(value, "function");
    const char *type = json_string_value(json_object_get(value, "type"));
    char name[64], *text;
    snprintf(name, sizeof name, "tools[%u]", i);
    if (!type || strcmp(type, "function"))
        return refuse(p->why, 400, field_in(name, ".type").text, "must be \"function\"");
    if (!json_string_length(json_object_get(function, "name")))
        return refuse(p->why, 400, field_in(name, ".function.name").text, "must be a string");
    text = json_dumps(value, JSON_REAL_PRECISION(16)); /* as templates spell it */
    c->tools[i] = text ? hold_text(c, text, strlen(text)) : NULL;
    free(text);
    return c->tools[i] ? 0 : refuse(p->why, 503, name, "no memory is left");
}

static int read_tools(completion_parser *p, const completion_field *f, json_t *value)
{
    const size_t n = json_array_size(value);
    if (!json_is_array(value)) return refuse(p->why, 400, f->name, "must be an array");
    if (n > MAX_TOOLS) return refuse_above(p->why, 400, f->name, MAX_TOOLS, "too many tools");
    if (!n) return 0;
    p->c->tools = (const char **)calloc(n, sizeof *p->c->tools);
    if (!p->c->tools) return refuse(p->why, 503, f->name, "no memory is left");
    p->c->n_tools = (uint32_t)n;
    for (size_t i = 0; i < n; i++)
        if (read_tool(p, (uint32_t)i, json_array_get(value, i))) return -1;
    return 0;
}

/* The model chooses, or it has no tools: it cannot be made to call one. */
static int read_tool_choice(completion_parser *p, const completion_field *f, json_t *value)
{
    p->no_calls = json_is_string(value) && !strcmp(json_string_value(value), "none");
    return read_neutral(p, f, value);
}

static int read_parallel_calls(completion_parser *p, const completion_field *f, json_t *value)
{
    uint32_t parallel = 1;
    if (read_flag(p, f->name, value, &parallel)) return -1;
    p->c->one_call = !parallel;
    return 0;
}

/* ---- lengths and ends ---- */

static int read_max_tokens(completion_parser *p, const completion_field *f, json_t *value)
{
    uint64_t n = 0;
    if (is_minus_one(value)) return 0; /* as many as fit */
    if (read_integer(p, f->name, value, 1, INT64_MAX, &n)) return -1;
    if (n > UINT32_MAX) n = UINT32_MAX;
    if (p->has_max_tokens && n != p->c->max_tokens)
        return refuse(p->why, 400, f->name,
                      "max_tokens and max_completion_tokens are the same, and differ");
    p->has_max_tokens = 1;
    p->c->max_tokens = (uint32_t)n;
    return 0;
}

static int add_stop(completion_parser *p, const char *name, const json_t *value)
{
    completion *c = p->c;
    if (!json_is_string(value)) return refuse(p->why, 400, name, "must be a string");
    if (!json_string_length(value)) return 0;
    if (json_string_length(value) > MAX_STOP_BYTES)
        return refuse_above(p->why, 400, name, MAX_STOP_BYTES, "too many bytes");
    c->stops[c->n_stops] = (char *)malloc(json_string_length(value) + 1);
    if (!c->stops[c->n_stops]) return refuse(p->why, 503, name, "no memory is left");
    memcpy(c->stops[c->n_stops++], json_string_value(value), json_string_length(value) + 1);
    return 0;
}

static int read_stop(completion_parser *p, const completion_field *f, json_t *value)
{
    if (!p->rules->has_text && json_array_size(value))
        return refuse(p->why, 400, f->name, "cannot be found: this model has no tokenizer");
    if (!json_is_array(value)) return add_stop(p, f->name, value);
    if (json_array_size(value) > MAX_STOPS)
        return refuse_above(p->why, 400, f->name, MAX_STOPS, "too many texts");
    for (size_t i = 0; i < json_array_size(value); i++) {
        char name[32];
        snprintf(name, sizeof name, "stop[%zu]", i);
        if (add_stop(p, name, json_array_get(value, i))) return -1;
    }
    return 0;
}

static int read_stop_tokens(completion_parser *p, const completion_field *f, json_t *value)
{
    completion *c = p->c;
    if (!json_is_array(value)) return refuse(p->why, 400, f->name, "must be an array of token ids");
    if (json_array_size(value) > MAX_STOP_TOKENS)
        return refuse_above(p->why, 400, f->name, MAX_STOP_TOKENS, "too many tokens");
    for (size_t i = 0; i < json_array_size(value); i++) {
        uint64_t token = 0;
        char name[64];
        snprintf(name, sizeof name, "stop_token_ids[%zu]", i);
        if (read_integer(p, name, json_array_get(value, i), 0, p->rules->limits.vocab - 1u, &token))
            return -1;
        c->stop_tokens[c->n_stop_tokens++] = (uint32_t)token;
    }
    return 0;
}

static int read_ignore_eos(completion_parser *p, const completion_field *f, json_t *value)
{
    return read_flag(p, f->name, value, &p->c->ignore_eos);
}
static int read_include_stop(completion_parser *p, const completion_field *f, json_t *value)
{
    return read_flag(p, f->name, value, &p->c->include_stop);
}

/* ---- how it is answered ---- */

static int read_stream(completion_parser *p, const completion_field *f, json_t *value)
{
    return read_flag(p, f->name, value, &p->c->stream);
}

static int read_stream_options(completion_parser *p, const completion_field *f, json_t *value)
{
    const char *key;
    json_t *field;
    if (!json_is_object(value)) return refuse(p->why, 400, f->name, "must be an object");
    json_object_foreach(value, key, field)
    {
        const field_name item = field_in("stream_options.", key);
        uint32_t more = 0;
        if (json_is_null(field) || !strcmp(key, "include_obfuscation")) continue;
        if (!strcmp(key, "include_usage")) {
            if (read_flag(p, item.text, field, &p->c->include_usage)) return -1;
        } else if (!strcmp(key, "continuous_usage_stats")) {
            if (read_flag(p, item.text, field, &more)) return -1;
            if (more) return refuse(p->why, 400, item.text, "is not supported: must be false");
        } else if (p->rules->strict)
            return refuse(p->why, 400, item.text, "is not known here");
    }
    return 0;
}

/* The class of this server; or vLLM's number, of which only its default has a meaning here. */
static int read_priority(completion_parser *p, const completion_field *f, json_t *value)
{
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    if (json_is_integer(value) && !json_integer_value(value)) return 0;
    for (uint32_t k = 0; k < JOB_CLASSES; k++)
        if (!strcmp(text, job_class_names[k])) {
            p->c->priority = (job_class)k;
            return 0;
        }
    return refuse(p->why, 400, f->name, "must be \"reactive\" or \"proactive\"");
}

static int read_n(completion_parser *p, const completion_field *f, json_t *value)
{
    uint64_t n = 0;
    if (read_integer(p, f->name, value, 1, MAX_CHOICES, &n)) return -1;
    p->c->n = (uint32_t)n;
    return 0;
}

static int read_echo(completion_parser *p, const completion_field *f, json_t *value)
{
    return read_flag(p, f->name, value, &p->c->echo);
}

static int read_skip_special(completion_parser *p, const completion_field *f, json_t *value)
{
    uint32_t skip = 1;
    if (read_flag(p, f->name, value, &skip)) return -1;
    p->c->keep_special = !skip;
    return 0;
}

/* ---- reasoning ---- */

static int read_thinking(completion_parser *p, const completion_field *f, json_t *value)
{
    return read_flag(p, f->name, value, &p->c->thinking);
}

static int read_include_reasoning(completion_parser *p, const completion_field *f, json_t *value)
{
    return read_flag(p, f->name, value, &p->c->reasoning);
}

static int read_reasoning_format(completion_parser *p, const completion_field *f, json_t *value)
{
    static const char *const formats[] = {"auto", "deepseek", "none"};
    const char *given = json_string_value(value);
    for (uint32_t i = 0; i < 3 && given; i++)
        if (!strcmp(given, formats[i])) {
            p->c->reasoning = i == 2 ? 2 : 1;
            return 0;
        }
    return refuse(p->why, 400, f->name, "must be auto, deepseek or none");
}

/* These models reason, or they do not. */
static int read_effort(completion_parser *p, const completion_field *f, json_t *value)
{
    static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
    const char *given = json_string_value(value);
    for (uint32_t i = 0; i < 6 && given; i++)
        if (!strcmp(given, efforts[i])) {
            p->c->thinking = i > 0;
            return 0;
        }
    return refuse(p->why, 400, f->name, "must be none, minimal, low, medium, high or xhigh");
}

static int read_template_arguments(completion_parser *p, const completion_field *f, json_t *value)
{
    const char *key;
    json_t *field;
    if (!json_is_object(value)) return refuse(p->why, 400, f->name, "must be an object");
    json_object_foreach(value, key, field)
    {
        const field_name item = field_in("chat_template_kwargs.", key);
        if (json_is_null(field)) continue;
        if (!strcmp(key, "enable_thinking")) {
            if (read_flag(p, item.text, field, &p->c->thinking)) return -1;
        } else if (p->rules->strict)
            return refuse(p->why, 400, item.text, "is not known here");
    }
    return 0;
}

/* ---- sampling ---- */

static int read_temperature(completion_parser *p, const completion_field *f, json_t *value)
{
    double *to = &p->c->sample.temperature;
    if (read_number(p, f->name, value, 0, 2, to)) return -1;
    if (*to < 1e-3) *to = 0; /* the most likely token, all but surely */
    if (*to > 0 && !p->rules->limits.samples)
        return refuse(p->why, 400, f->name, "must be 0: this engine takes the most likely token");
    return 0;
}

static int read_top_p(completion_parser *p, const completion_field *f, json_t *value)
{
    if (read_number(p, f->name, value, 0, 1, &p->c->sample.top_p)) return -1;
    if (p->c->sample.top_p < 1e-6) p->c->sample.top_p = 1e-6;
    return 0;
}

static int read_min_p(completion_parser *p, const completion_field *f, json_t *value)
{
    return read_number(p, f->name, value, 0, 1, &p->c->sample.min_p);
}

static int read_top_k(completion_parser *p, const completion_field *f, json_t *value)
{
    uint64_t n = 0;
    if (!is_minus_one(value) && read_integer(p, f->name, value, 0, UINT32_MAX, &n)) return -1;
    p->c->sample.top_k = n < p->rules->limits.vocab ? (uint32_t)n : 0; /* 0: all */
    return 0;
}

static int read_seed(completion_parser *p, const completion_field *f, json_t *value)
{
    if (!json_is_integer(value)) return refuse(p->why, 400, f->name, "must be an integer");
    p->c->has_seed = !is_minus_one(value); /* llama.cpp's word for any */
    p->c->sample.seed = (uint64_t)json_integer_value(value);
    return 0;
}

/* ---- what changes logits ---- */

static int refuse_greedy(completion_parser *p, const char *name, int asks)
{
    if (!asks || p->rules->limits.samples) return 0;
    return refuse(p->why, 400, name, "cannot be done: this engine takes the most likely token");
}

static int read_presence(completion_parser *p, const completion_field *f, json_t *value)
{
    double *to = &p->c->shape.presence;
    if (read_number(p, f->name, value, -2, 2, to)) return -1;
    return refuse_greedy(p, f->name, *to < 0 || *to > 0);
}

static int read_frequency(completion_parser *p, const completion_field *f, json_t *value)
{
    double *to = &p->c->shape.frequency;
    if (read_number(p, f->name, value, -2, 2, to)) return -1;
    return refuse_greedy(p, f->name, *to < 0 || *to > 0);
}

static int read_repetition(completion_parser *p, const completion_field *f, json_t *value)
{
    double *to = &p->c->shape.repetition;
    if (read_number(p, f->name, value, 0.01, 100, to)) return -1;
    return refuse_greedy(p, f->name, *to < 1 || *to > 1);
}

static int read_min_tokens(completion_parser *p, const completion_field *f, json_t *value)
{
    uint64_t n = 0;
    if (read_integer(p, f->name, value, 0, UINT32_MAX, &n)) return -1;
    p->c->shape.min_tokens = (uint32_t)n;
    return refuse_greedy(p, f->name, n > 0);
}

/* The token that a key names, spelt in one way only. */
static int token_of_key(const char *key, uint32_t vocab, uint32_t *token)
{
    uint64_t n = 0;
    const size_t digits = strspn(key, "0123456789");
    if (!digits || key[digits] || (key[0] == '0' && digits > 1) || digits > 10) return -1;
    for (size_t i = 0; i < digits; i++) n = n * 10 + (uint64_t)(key[i] - '0');
    *token = (uint32_t)n;
    return n < vocab ? 0 : -1;
}

static int read_bias(completion_parser *p, const completion_field *f, json_t *value)
{
    completion *c = p->c;
    const char *key;
    json_t *item;
    if (json_is_array(value) && !json_array_size(value)) return 0;
    if (!json_is_object(value))
        return refuse(p->why, 400, f->name, "must be an object of token ids and numbers");
    c->biased = (engine_bias *)malloc((json_object_size(value) + 1) * sizeof *c->biased);
    if (!c->biased) return refuse(p->why, 503, f->name, "no memory is left");
    json_object_foreach(value, key, item)
    {
        engine_bias *to = &c->biased[c->shape.n_biased];
        const field_name name = field_in("logit_bias.", key);
        double bias = 0;
        if (read_number(p, name.text, item, -100, 100, &bias)) return -1;
        if (!(bias < 0 || bias > 0)) continue;
        if (token_of_key(key, p->rules->limits.vocab, &to->token))
            return refuse(p->why, 400, name.text, "must name a token from 0 to %u",
                          p->rules->limits.vocab - 1u);
        to->bias = (float)bias;
        if (++c->shape.n_biased > ENGINE_MAX_BIASED)
            return refuse_above(p->why, 400, f->name, ENGINE_MAX_BIASED, "too many tokens");
    }
    c->shape.biased = c->biased;
    return refuse_greedy(p, f->name, c->shape.n_biased > 0);
}

/* ---- how likely tokens are ---- */

/* Of a chat: whether; `top_logprobs` says how many. */
static int read_logprobs(completion_parser *p, const completion_field *f, json_t *value)
{
    if (read_flag(p, f->name, value, &p->c->likelihoods)) return -1;
    return refuse_greedy(p, f->name, p->c->likelihoods != 0);
}
static int read_top_logprobs(completion_parser *p, const completion_field *f, json_t *value)
{
    uint64_t n = 0;
    if (read_integer(p, f->name, value, 0, ENGINE_MAX_TOP, &n)) return -1;
    p->top = (uint32_t)n;
    return 0;
}

/* Of a completion: how many; 0: of the tokens that are chosen alone. */
static int read_n_logprobs(completion_parser *p, const completion_field *f, json_t *value)
{
    uint64_t n = 0;
    if (json_is_false(value)) return 0;
    if (read_integer(p, f->name, value, 0, ENGINE_MAX_TOP, &n)) return -1;
    p->c->likelihoods = 1 + (uint32_t)n;
    return refuse_greedy(p, f->name, 1);
}

/* ---- the table ---- */

#define OF_TEXT COMPLETION_TEXT
#define OF_CHAT COMPLETION_CHAT
#define OF_BOTH (COMPLETION_TEXT | COMPLETION_CHAT)
#define OF_ALL (OF_BOTH | COMPLETION_TOKENS | COMPLETION_DETOKENS)
#define OF_CHATS (COMPLETION_CHAT | COMPLETION_TOKENS)

/* README.md has the same table for people. */
static const completion_field completion_fields[] = {
    {"model", OF_ALL, read_model, NULL},
    {"prompt", OF_TEXT, read_prompt, NULL},
    {"prompt", COMPLETION_TOKENS, read_content, NULL},
    {"content", COMPLETION_TOKENS, read_content, NULL},
    {"tokens", COMPLETION_DETOKENS, read_tokens, NULL},
    {"messages", OF_CHATS, read_messages, NULL},
    {"max_tokens", OF_BOTH, read_max_tokens, NULL},
    {"max_completion_tokens", OF_CHAT, read_max_tokens, NULL},
    {"stream", OF_BOTH, read_stream, NULL},
    {"stream_options", OF_BOTH, read_stream_options, NULL},
    {"priority", OF_BOTH, read_priority, NULL},
    {"ignore_eos", OF_BOTH, read_ignore_eos, NULL},
    {"stop", OF_BOTH, read_stop, NULL},
    {"stop_token_ids", OF_BOTH, read_stop_tokens, NULL},
    {"include_stop_str_in_output", OF_BOTH, read_include_stop, NULL},
    {"skip_special_tokens", OF_BOTH, read_skip_special, NULL},
    {"echo", OF_TEXT, read_echo, NULL},
    {"echo", OF_CHAT, read_neutral, "[false]"},
    {"n", OF_BOTH, read_n, NULL},
    {"temperature", OF_BOTH, read_temperature, NULL},
    {"top_p", OF_BOTH, read_top_p, NULL},
    {"min_p", OF_BOTH, read_min_p, NULL},
    {"top_k", OF_BOTH, read_top_k, NULL},
    {"seed", OF_BOTH, read_seed, NULL},
    {"presence_penalty", OF_BOTH, read_presence, NULL},
    {"frequency_penalty", OF_BOTH, read_frequency, NULL},
    {"repetition_penalty", OF_BOTH, read_repetition, NULL},
    {"repeat_penalty", OF_BOTH, read_repetition, NULL},
    {"logit_bias", OF_BOTH, read_bias, NULL},
    {"min_tokens", OF_BOTH, read_min_tokens, NULL},
    {"logprobs", OF_CHAT, read_logprobs, NULL},
    {"logprobs", OF_TEXT, read_n_logprobs, NULL},
    {"top_logprobs", OF_CHAT, read_top_logprobs, NULL},
    {"enable_thinking", OF_CHATS, read_thinking, NULL},
    {"chat_template_kwargs", OF_CHATS, read_template_arguments, NULL},
    {"reasoning_effort", OF_CHAT, read_effort, NULL},
    {"include_reasoning", OF_CHAT, read_include_reasoning, NULL},
    {"reasoning_format", OF_CHAT, read_reasoning_format, NULL},
    /* Not done: refused, unless the value asks for nothing. */
    {"prompt_logprobs", OF_BOTH, read_neutral, "[false]"},
    {"n_probs", OF_BOTH, read_neutral, "[0]"},
    {"best_of", OF_BOTH, read_neutral, "[1]"},
    {"suffix", OF_TEXT, read_neutral, "[\"\"]"},
    {"use_beam_search", OF_BOTH, read_neutral, "[false]"},
    {"length_penalty", OF_BOTH, read_neutral, "[1]"},
    {"response_format", OF_BOTH, read_neutral, "[{\"type\": \"text\"}]"},
    {"structured_outputs", OF_BOTH, read_neutral, "[{}]"},
    {"guided_json", OF_BOTH, read_neutral, "[]"},
    {"guided_regex", OF_BOTH, read_neutral, "[\"\"]"},
    {"guided_choice", OF_BOTH, read_neutral, "[[]]"},
    {"guided_grammar", OF_BOTH, read_neutral, "[\"\"]"},
    {"grammar", OF_BOTH, read_neutral, "[\"\"]"},
    {"json_schema", OF_BOTH, read_neutral, "[{}]"},
    {"bad_words", OF_BOTH, read_neutral, "[[]]"},
    {"allowed_token_ids", OF_BOTH, read_neutral, "[[]]"},
    {"tools", OF_CHATS, read_tools, NULL},
    {"parallel_tool_calls", OF_CHAT, read_parallel_calls, NULL},
    {"functions", OF_CHAT, read_neutral, "[[]]"},
    {"tool_choice", OF_CHAT, read_tool_choice, "[\"none\", \"auto\"]"},
    {"function_call", OF_CHAT, read_neutral, "[\"none\", \"auto\"]"},
    {"modalities", OF_CHAT, read_neutral, "[[\"text\"], []]"},
    {"audio", OF_CHAT, read_neutral, "[]"},
    {"prediction", OF_CHAT, read_neutral, "[]"},
    {"web_search_options", OF_CHAT, read_neutral, "[]"},
    {"store", OF_BOTH, read_neutral, "[false]"},
    {"service_tier", OF_BOTH, read_neutral, "[\"auto\", \"default\"]"},
    {"verbosity", OF_CHAT, read_neutral, "[\"medium\"]"},
    {"add_generation_prompt", OF_CHATS, read_neutral, "[true]"},
    {"continue_final_message", OF_CHATS, read_neutral, "[false]"},
    {"chat_template", OF_CHATS, read_neutral, "[]"},
    {"documents", OF_CHAT, read_neutral, "[[]]"},
    {"truncate_prompt_tokens", OF_BOTH, read_neutral, "[-1]"},
    {"spaces_between_special_tokens", OF_BOTH, read_neutral, "[true]"},
    {"return_token_strs", COMPLETION_TOKENS, read_neutral, "[false]"},
    {"with_pieces", COMPLETION_TOKENS, read_neutral, "[false]"},
    {"mirostat", OF_BOTH, read_neutral, "[0]"},
    {"typical_p", OF_BOTH, read_neutral, "[1]"},
    {"dynatemp_range", OF_BOTH, read_neutral, "[0]"},
    {"xtc_probability", OF_BOTH, read_neutral, "[0]"},
    {"dry_multiplier", OF_BOTH, read_neutral, "[0]"},
    {"samplers", OF_BOTH, read_neutral, "[[]]"},
    {"lora", OF_BOTH, read_neutral, "[[]]"},
    /* No value of these changes an answer here. */
    {"user", OF_BOTH, read_ignored, NULL},
    {"metadata", OF_BOTH, read_ignored, NULL},
    {"safety_identifier", OF_BOTH, read_ignored, NULL},
    {"prompt_cache_key", OF_BOTH, read_ignored, NULL},
    {"prompt_cache_retention", OF_BOTH, read_ignored, NULL},
    {"cache_prompt", OF_BOTH, read_ignored, NULL},
    {"keep_alive", OF_BOTH, read_ignored, NULL},
    {"options", OF_BOTH, read_ignored, NULL},
    {"request_id", OF_BOTH, read_ignored, NULL},
    {"add_special_tokens", OF_ALL, read_ignored, NULL}, /* these tokenizers add none */
    {"add_special", COMPLETION_TOKENS, read_ignored, NULL},
    {"parse_special", COMPLETION_TOKENS, read_ignored, NULL},
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
        if (k == COMPLETION_FIELDS) {
            if (p->rules->strict) return refuse(p->why, 400, key, "is not known here");
        } else if (!json_is_null(value) &&
                   completion_fields[k].read(p, &completion_fields[k], value))
            return -1;
    }
    return 0;
}

/* ---- the whole ---- */

/* Keeps all but the prompts. */
static void completion_free_prompt(completion *c)
{
    json_decref(c->body);
    json_decref(c->joined);
    for (uint32_t i = 0; i < c->n_prompts; i++) free(c->prompts[i].tokens);
    for (uint32_t i = 0; i < c->n_messages; i++) free((void *)(uintptr_t)c->messages[i].calls);
    free(c->prompts);
    free(c->messages);
    free((void *)c->tools);
    c->body = c->joined = NULL, c->prompts = NULL, c->messages = NULL, c->tools = NULL;
    c->n_prompts = c->n_messages = c->n_tools = 0;
}

static void completion_free(completion *c)
{
    completion_free_prompt(c);
    for (uint32_t i = 0; i < c->n_stops; i++) free(c->stops[i]);
    free(c->biased);
    memset(c, 0, sizeof *c);
}

/* What fields say together. */
static int check_fields(completion *c, refusal *why)
{
    static const struct {
        completion_kind kind;
        const char *field;
    } prompts[] = {{COMPLETION_TEXT, "prompt"},
                   {COMPLETION_CHAT, "messages"},
                   {COMPLETION_TOKENS, "prompt"},
                   {COMPLETION_DETOKENS, "tokens"}};
    for (uint32_t i = 0; i < 4; i++)
        if (c->kind == prompts[i].kind && !c->n_prompts)
            return refuse(why, 400, prompts[i].field, "is missing");
    if (c->include_usage && !c->stream)
        return refuse(why, 400, "stream_options", "needs \"stream\": true");
    if (c->max_tokens && c->shape.min_tokens > c->max_tokens)
        return refuse_above(why, 400, "min_tokens", c->max_tokens, "more than max_tokens");
    if (c->echo && c->likelihoods) {
        refuse(why, 400, "logprobs", "of a prompt are not told: echo must be false");
        why->code = "unsupported_value";
        return -1;
    }
    if (c->n * c->n_prompts > MAX_CHOICES)
        return refuse_above(why, 400, "n", MAX_CHOICES / c->n_prompts, "too many answers");
    return 0;
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
    c->kind = kind, c->thinking = c->reasoning = c->n = 1;
    c->sample = rules->defaults;
    if (c->sample.top_p <= 0) c->sample.top_p = 1;
    if (!bytes) return refuse(why, 400, "", "the body is empty");
    c->body = json_loadb(body, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!c->body)
        return refuse(why, 400, "", "the body, line %d, column %d: %s", error.line, error.column,
                      json_error_code(&error) == json_error_duplicate_key ? "a key is given twice"
                      : json_error_code(&error) == json_error_null_character ? "a text has \\u0000"
                                                                             : "is not JSON");
    if (!json_is_object(c->body)) return refuse(why, 400, "", "the body must be an object");
    if (read_fields(&p) || check_fields(c, why)) return -1;
    if (p.top && !c->likelihoods) return refuse(why, 400, "top_logprobs", "needs logprobs: true");
    c->likelihoods += p.top;
    c->calls = c->n_tools && !p.no_calls;
    return 0;
}

/* Checks that prompts and answers fit the context, and sets max_tokens where it was not given. More
   than fit are as many as fit, unless rules->strict. */
static int completion_fit(completion *c, const completion_rules *rules, refusal *why)
{
    const uint32_t context = rules->limits.context;
    uint32_t longest = 0, fits;
    char field[32] = "messages", text[96];
    for (uint32_t i = 0; i < c->n_prompts; i++) {
        const uint32_t n = c->prompts[i].n_tokens;
        if (!c->messages)
            snprintf(field, sizeof field, c->n_prompts > 1 ? "prompt[%u]" : "prompt", i);
        if (!n) return refuse(why, 400, field, "has no token");
        snprintf(text, sizeof text, "%u tokens are too many", n);
        if (n > context) return refuse_context(why, field, context, text);
        if (n > longest) longest = n;
    }
    fits = context - longest + 1;
    if (!c->max_tokens)
        c->max_tokens =
            c->kind == COMPLETION_CHAT || fits < DEFAULT_MAX_TOKENS ? fits : DEFAULT_MAX_TOKENS;
    if (c->max_tokens <= fits) return 0;
    snprintf(text, sizeof text, "%u are too many after a prompt of %u tokens", c->max_tokens,
             longest);
    if (rules->strict) return refuse_context(why, "max_tokens", fits, text);
    c->max_tokens = fits;
    return 0;
}

#endif /* SERVE_REQUEST_H */
