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
} answer;

typedef struct usage {
    uint64_t prompt, generated;
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
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)u.prompt, "completion_tokens",
                     (json_int_t)u.generated, "total_tokens",
                     (json_int_t)u.prompt + (json_int_t)u.generated);
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

/* What a choice says. first: nothing of it was said before. */
static json_t *message_object(const answer *a, const text_pieces *pieces, uint32_t first)
{
    json_t *message = json_pack("{s:o}", "content", piece_of(pieces->content));
    if (first) json_object_set_new(message, "role", json_string("assistant"));
    if (a->reasoning == 1 && pieces->reasoning.size)
        json_object_set_new(message, "reasoning_content", piece_of(pieces->reasoning));
    return message;
}

/* A choice with these tokens. where: "message" or "delta" in a chat. finish: why it ended, or
   null. */
static json_t *choice_object(const answer *a, const choice *h, const char *where, uint32_t first,
                             const text_pieces *pieces, json_t *ids, const char *finish)
{
    json_t *object = json_pack("{s:i}", "index", (int)h->index);
    if (a->kind == COMPLETION_CHAT)
        json_object_set_new(object, where, message_object(a, pieces, first));
    else
        json_object_set_new(object, "text", piece_of(pieces->content));
    json_object_set_new(object, "token_ids", ids);
    json_object_set_new(object, "finish_reason", finish ? json_string(finish) : json_null());
    json_object_set_new(object, "logprobs", json_null());
    return object;
}

/* Splits text that follows what was taken before, where reasoning is to be told apart. */
static size_t split_text(const answer *a, choice *h, const char *text, size_t size, uint32_t last,
                         text_pieces *pieces)
{
    if (a->kind == COMPLETION_CHAT && a->reasoning < 2)
        return take_pieces(&h->reasoning, text, size, last, pieces);
    memset(pieces, 0, sizeof *pieces);
    pieces->content.at = text, pieces->content.size = size;
    return size;
}

/* Why a choice has ended that did not fail. */
static const char *finish_of(const choice *h)
{
    return h->stopped || h->at_eos ? "stop" : "length";
}

/* A whole answer: all choices have ended. */
static char *answer_whole(const answer *a, choice *choices, uint32_t n, usage u)
{
    json_t *all = json_array(), *whole;
    for (uint32_t i = 0; i < n; i++) {
        choice *h = &choices[i];
        text_pieces pieces;
        split_text(a, h, h->text.at ? h->text.at : "", h->ready, 1, &pieces);
        json_array_append_new(all, choice_object(a, h, "message", 1, &pieces,
                                                 ids_array(h->tokens, h->n_tokens), finish_of(h)));
    }
    whole =
        answer_object(a, a->kind == COMPLETION_CHAT ? "chat.completion" : "text_completion", all);
    json_object_set_new(whole, "usage", usage_object(u));
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
