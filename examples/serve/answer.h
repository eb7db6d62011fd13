/* answer.h: what the server answers: JSON, and server-sent events (SSE) of it.

   Answers have the fields of OpenAI's API. In addition each choice has `token_ids`, and the text of
   a model without a tokenizer is empty. Functions return memory that the caller frees, or null when
   there is none. */
#ifndef SERVE_ANSWER_H
#define SERVE_ANSWER_H

#include "choice.h"

/* What all parts of an answer have. */
typedef struct answer {
    completion_kind kind;
    const char *model;
    char id[64];
    int64_t created;    /* seconds since 1970 */
    uint32_t reasoning; /* 0: is left out; 1: has a field; 2: is part of the content */
    const text_codec *codec;
} answer;

typedef struct usage {
    uint64_t prompt, generated;
    uint64_t cached; /* tokens of the prompt that an earlier one has left computed */
} usage;

/* ---- JSON ---- */

/* The text of a value, whose reference it takes. */
static char *dumped(json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    return text;
}

/* The API's word for what most refusals of a status mean; null: it has none. */
static const char *code_of_status(unsigned status)
{
    switch (status) {
    case 401:
        return "invalid_api_key";
    case 404:
        return "unknown_url";
    case 429:
        return "rate_limit_exceeded";
    default:
        return NULL;
    }
}

static const char *type_of_status(unsigned status)
{
    return status == 429                   ? "rate_limit_error"
           : status < 500 || status == 501 ? "invalid_request_error"
                                           : "server_error";
}

static char *answer_refusal(const refusal *why)
{
    const char *code = why->code ? why->code : code_of_status(why->status);
    json_t *error = json_pack("{s:s, s:s, s:o, s:o}", "message", why->message, "type",
                              type_of_status(why->status), "param",
                              why->field[0] ? json_string(why->field) : json_null(), "code",
                              code ? json_string(code) : json_null());
    if (error && why->has_fits)
        json_object_set_new(error, "fits", json_integer((json_int_t)why->fits));
    return dumped(json_pack("{s:o}", "error", error));
}

/* Why a request failed while it was decoded. */
static char *answer_failure(const char *message, const char *code)
{
    return dumped(json_pack("{s:{s:s, s:s, s:n, s:s}}", "error", "message", message, "type",
                            "server_error", "param", "code", code));
}

static json_t *model_object(const char *model, const engine_limits *limits, int64_t created)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:I}", "id", model, "object", "model", "created",
                     (json_int_t)created, "owned_by", "fleet", "max_model_len",
                     (json_int_t)limits->context);
}

static char *answer_models(const char *model, const engine_limits *limits, int64_t created)
{
    return dumped(
        json_pack("{s:s, s:[o]}", "object", "list", "data", model_object(model, limits, created)));
}

static char *answer_version(const char *version)
{
    return dumped(json_pack("{s:s}", "version", version));
}

static char *answer_health(const engine_load *load, const char *status)
{
    json_t *health =
        json_pack("{s:s, s:{s:I, s:I}, s:{s:I, s:I}}", "status", status, "waiting",
                  job_class_names[0], (json_int_t)load->waiting[0], job_class_names[1],
                  (json_int_t)load->waiting[1], "running", job_class_names[0],
                  (json_int_t)load->running[0], job_class_names[1], (json_int_t)load->running[1]);
    if (health && load->failed) json_object_set_new(health, "error", json_string(load->error));
    return dumped(health);
}

static json_t *ids_array(const uint32_t *tokens, uint32_t n)
{
    json_t *ids = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(ids, json_integer((json_int_t)tokens[i]));
    return ids;
}

/* The fields of vLLM's answer, and so of llama.cpp's. */
static char *answer_tokens(const prompt *p, const engine_limits *limits)
{
    return dumped(json_pack("{s:I, s:I, s:o}", "count", (json_int_t)p->n_tokens, "max_model_len",
                            (json_int_t)limits->context, "tokens",
                            ids_array(p->tokens, p->n_tokens)));
}
static char *answer_detokens(const qwen3_string *text)
{
    const char *at = text->at ? text->at : "";
    return dumped(json_pack("{s:o, s:o}", "prompt", json_stringn(at, text->size), "content",
                            json_stringn(at, text->size)));
}

static json_t *usage_object(usage u)
{
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)u.prompt,
                     "completion_tokens", (json_int_t)u.generated, "total_tokens",
                     (json_int_t)u.prompt + (json_int_t)u.generated, "prompt_tokens_details",
                     "cached_tokens", (json_int_t)u.cached);
}

/* What all answers to a completion have. */
static json_t *answer_object(const answer *a, const char *object, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", a->id, "object", object, "created",
                     (json_int_t)a->created, "model", a->model, "choices", choices);
}

static json_t *piece_of(text_piece p)
{
    return json_stringn(p.at ? p.at : "", p.size);
}

/* What a choice says, in one event or in all. */
typedef struct said {
    text_piece reasoning;
    qwen3_string content;
    json_t *calls; /* of tools; null: none */
    int bad;       /* 1: no memory */
} said;

/* The model's call as the API has it; null: it is none. where: "delta" numbers calls. */
static json_t *call_object(const answer *a, const choice *h, const char *where, text_piece text)
{
    json_t *given = json_loadb(text.at, text.size, JSON_REJECT_DUPLICATES, NULL), *object = NULL;
    json_t *name = json_object_get(given, "name"), *value = json_object_get(given, "arguments");
    char *dump = json_is_object(value) ? json_dumps(value, 0) : NULL;
    char id[128];
    snprintf(id, sizeof id, "call-%s-%u-%u", a->id, h->index, h->n_calls);
    if (json_is_string(name) && dump)
        object = json_pack("{s:s, s:s, s:{s:O, s:s}}", "id", id, "type", "function", "function",
                           "name", name, "arguments", dump);
    if (object && where[0] == 'd')
        json_object_set_new(object, "index", json_integer((json_int_t)h->n_calls));
    free(dump);
    json_decref(given);
    return object;
}

/* Adds a call, or, if it is none, its text. */
static void add_call(const answer *a, choice *h, const char *where, text_piece text, said *to)
{
    json_t *object = call_object(a, h, where, text);
    if (object) h->reasoning = REASONING_ENDS;
    if (!object) {
        to->bad |= qwen3_string_add_text(&to->content, CALL_BEGIN) ||
                   qwen3_string_add(&to->content, text.at, text.size) ||
                   qwen3_string_add_text(&to->content, CALL_END);
    } else if (h->one_call && h->n_calls) {
        json_decref(object); /* one was asked for */
    } else {
        h->n_calls++;
        if (!to->calls) to->calls = json_array();
        to->bad |= json_array_append_new(to->calls, object);
    }
}

/* Takes apart what is certain of the text that follows what was taken before; returns how many
   bytes that is. last: no more will come. */
static size_t split_text(const answer *a, choice *h, const char *where, const char *text,
                         size_t size, uint32_t last, said *to)
{
    size_t taken = 0;
    text_pieces pieces;
    memset(to, 0, sizeof *to);
    do {
        const char *rest = text + taken;
        size_t n = size - taken;
        if (a->kind == COMPLETION_CHAT && a->reasoning < 2)
            n = take_pieces(&h->reasoning, rest, n, last, &pieces);
        else {
            memset(&pieces, 0, sizeof pieces);
            pieces.content.at = rest, pieces.content.size = n;
        }
        if (pieces.reasoning.size) to->reasoning = pieces.reasoning;
        if (h->calls && pieces.content.at) {
            n -= pieces.content.size;
            n += take_call(last, &pieces);
        }
        to->bad |= qwen3_string_add(&to->content, pieces.content.at, pieces.content.size);
        if (pieces.call.at) add_call(a, h, where, pieces.call, to);
        taken += n;
    } while (pieces.call.at && taken < size);
    return taken;
}

static void said_free(said *what)
{
    free(what->content.at);
    json_decref(what->calls);
}

static json_t *content_of(const said *what)
{
    return json_stringn(what->content.at ? what->content.at : "", what->content.size);
}

/* first: nothing of the choice was said before. */
static json_t *message_object(const answer *a, const said *what, uint32_t first)
{
    json_t *message = json_object();
    json_object_set_new(message, "content",
                        what->calls && !what->content.size ? json_null() : content_of(what));
    if (first) json_object_set_new(message, "role", json_string("assistant"));
    if (a->reasoning == 1 && what->reasoning.size)
        json_object_set_new(message, "reasoning_content", piece_of(what->reasoning));
    if (what->calls) json_object_set(message, "tool_calls", what->calls);
    return message;
}

/* ---- how likely tokens are ---- */

/* The text of a token, its control tokens too: what is no UTF-8 alone is U+FFFD. Its bytes, if
   `bytes` is not null. A model without a tokenizer has neither. */
static json_t *token_text(const answer *a, uint32_t token, json_t **bytes)
{
    const qwen3_tokenizer *t = &a->codec->tokenizer;
    const uint32_t is_known = a->codec->is_open && token < t->count;
    json_t *value;
    qwen3_string text;
    char number[32];
    memset(&text, 0, sizeof text);
    if (bytes) *bytes = is_known ? json_array() : json_null();
    for (size_t i = is_known ? t->begin[token] : 0; bytes && is_known && i < t->begin[token + 1];
         i++)
        json_array_append_new(*bytes, json_integer((unsigned char)t->bytes[i]));
    if (is_known && !text_of_tokens(a->codec, &token, 1, 1, &text)) {
        value = json_stringn(text.at ? text.at : "", text.size);
    } else {
        snprintf(number, sizeof number, "token_id:%u", token);
        value = json_string(number);
    }
    free(text.at);
    return value;
}

static json_t *odds_object(const answer *a, const token_odds *odds)
{
    json_t *bytes, *token = token_text(a, odds->token, &bytes);
    return json_pack("{s:o, s:f, s:o}", "token", token, "logprob", (double)odds->logprob, "bytes",
                     bytes);
}

/* Of a chat: an object for each token, with those of the most likely ones. */
static json_t *chat_logprobs(const answer *a, const choice *h, uint32_t first, uint32_t n)
{
    json_t *all = json_array();
    for (uint32_t i = first; i < first + n; i++) {
        const token_odds *odds = h->odds + (size_t)i * h->n_likely;
        json_t *one = odds_object(a, odds), *top = json_array();
        for (uint32_t k = 1; k < h->n_likely; k++)
            json_array_append_new(top, odds_object(a, &odds[k]));
        json_object_set_new(one, "top_logprobs", top);
        json_array_append_new(all, one);
    }
    return json_pack("{s:o, s:n}", "content", all, "refusal");
}

/* Of a completion: lists. The most likely tokens are those that were asked for, and the one that
   was chosen. */
static json_t *text_logprobs(const answer *a, choice *h, uint32_t first, uint32_t n)
{
    json_t *tokens = json_array(), *logprobs = json_array(), *offsets = json_array(),
           *tops = h->n_likely > 1 ? json_array() : json_null();
    for (uint32_t i = first; i < first + n; i++) {
        const token_odds *odds = h->odds + (size_t)i * h->n_likely;
        json_t *text = token_text(a, odds->token, NULL), *top = json_object();
        const char *at = json_string_value(text);
        for (uint32_t k = h->n_likely; k-- > 0;) {
            json_t *other = token_text(a, odds[k].token, NULL);
            json_object_set_new(top, json_string_value(other), json_real((double)odds[k].logprob));
            json_decref(other);
        }
        json_array_append_new(offsets, json_integer((json_int_t)h->told));
        for (; at && *at; at++) h->told += ((unsigned char)*at & 0xc0u) != 0x80u;
        json_array_append_new(tokens, text);
        json_array_append_new(logprobs, json_real((double)odds->logprob));
        if (h->n_likely > 1) json_array_append(tops, top);
        json_decref(top);
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs,
                     "top_logprobs", tops, "text_offset", offsets);
}

/* A choice with n tokens from one on; takes the memory of what it says. where: "message" or
   "delta" in a chat. finish: why it ended, or null. */
static json_t *choice_object(const answer *a, choice *h, const char *where, uint32_t first,
                             said *what, uint32_t from, uint32_t n, const char *finish)
{
    json_t *object = json_pack("{s:i}", "index", (int)h->index);
    if (a->kind == COMPLETION_CHAT)
        json_object_set_new(object, where, message_object(a, what, first));
    else
        json_object_set_new(object, "text", content_of(what));
    json_object_set_new(object, "token_ids", ids_array(h->tokens + from, n));
    json_object_set_new(object, "finish_reason", finish ? json_string(finish) : json_null());
    json_object_set_new(object, "logprobs",
                        !h->n_likely || !n           ? json_null()
                        : a->kind == COMPLETION_CHAT ? chat_logprobs(a, h, from, n)
                                                     : text_logprobs(a, h, from, n));
    if (what->bad) json_decref(object), object = NULL;
    said_free(what);
    return object;
}

/* Why a choice has ended that did not fail. */
static const char *finish_of(const choice *h)
{
    return !h->stopped && !h->at_eos ? "length" : h->n_calls ? "tool_calls" : "stop";
}

/* A whole answer: all choices have ended. */
static char *answer_whole(const answer *a, choice *choices, uint32_t n, usage u)
{
    json_t *all = json_array(), *whole;
    int bad = 0;
    for (uint32_t i = 0; i < n; i++) {
        choice *h = &choices[i];
        said what;
        split_text(a, h, "message", h->text.at ? h->text.at : "", h->ready, 1, &what);
        bad |= json_array_append_new(
            all, choice_object(a, h, "message", 1, &what, 0, h->n_tokens, finish_of(h)));
    }
    whole =
        answer_object(a, a->kind == COMPLETION_CHAT ? "chat.completion" : "text_completion", all);
    json_object_set_new(whole, "usage", usage_object(u));
    if (bad) json_decref(whole), whole = NULL;
    return dumped(whole);
}

/* ---- SSE ---- */

/* An event with this text, which it frees. */
static char *event_of(char *text)
{
    const size_t length = text ? strlen(text) : 0;
    char *event = text ? (char *)malloc(length + 9) : NULL;
    if (event) snprintf(event, length + 9, "data: %s\n\n", text);
    free(text);
    return event;
}

/* An event of one choice. */
static char *event_of_choice(const answer *a, json_t *one)
{
    return event_of(dumped(
        answer_object(a, a->kind == COMPLETION_CHAT ? "chat.completion.chunk" : "text_completion",
                      json_pack("[o]", one))));
}

static char *event_of_usage(const answer *a, usage u)
{
    json_t *chunk = answer_object(
        a, a->kind == COMPLETION_CHAT ? "chat.completion.chunk" : "text_completion", json_array());
    json_object_set_new(chunk, "usage", usage_object(u));
    return event_of(dumped(chunk));
}

/* Clients of the API raise it. */
static char *event_of_error(const char *message, const char *code)
{
    return event_of(answer_failure(message, code));
}

static char *event_of_end(void)
{
    char *text = (char *)malloc(7);
    if (text) memcpy(text, "[DONE]", 7);
    return event_of(text);
}

#endif /* SERVE_ANSWER_H */
