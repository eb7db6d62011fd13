/* answer.h: what the server answers: JSON, and server-sent events (SSE) of it.

   Answers have the fields of OpenAI's API. In addition each choice has `token_ids`, and the text of a model without a
   tokenizer is empty. Functions return memory that the caller frees, or null when there is none. */
#ifndef SERVE_ANSWER_H
#define SERVE_ANSWER_H

#include "text.h"

/* An answer while it is sent. */
typedef struct answer {
    const text_codec *codec;
    completion_kind kind;
    const char *model;
    uint64_t number; /* of the request */
    int64_t created; /* seconds since 1970 */
    uint32_t chunks; /* of a stream, so far */
    qwen3_partial partial;
} answer;

typedef struct usage {
    uint32_t prompt, generated;
} usage;

/* ---- JSON ---- */

/* The text of a value, whose reference it takes. */
static char *dumped(json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    return text;
}

static char *answer_refusal(const refusal *why)
{
    const char *type = why->status < 500 ? "invalid_request_error" : "server_error";
    json_t *error =
        json_pack("{s:s, s:s, s:o, s:i}", "message", why->message, "type", type, "param",
                  why->field[0] ? json_string(why->field) : json_null(), "code", (int)why->status);
    if (error && why->has_fits)
        json_object_set_new(error, "fits", json_integer((json_int_t)why->fits));
    return dumped(json_pack("{s:o}", "error", error));
}

static char *answer_models(const char *model, const engine_limits *limits, int64_t created)
{
    return dumped(json_pack("{s:s, s:[{s:s, s:s, s:I, s:s, s:I}]}", "object", "list", "data", "id",
                            model, "object", "model", "created", (json_int_t)created, "owned_by",
                            "fleet", "max_model_len", (json_int_t)limits->context));
}

static char *answer_health(const engine_load *load, uint32_t stopping)
{
    const char *status = load->failed ? "failed" : stopping ? "stopping" : "ok";
    json_t *health =
        json_pack("{s:s, s:{s:I, s:I}, s:{s:I, s:I}}", "status", status, "waiting",
                  job_class_names[0], (json_int_t)load->waiting[0], job_class_names[1],
                  (json_int_t)load->waiting[1], "running", job_class_names[0],
                  (json_int_t)load->running[0], job_class_names[1], (json_int_t)load->running[1]);
    if (health && load->failed) json_object_set_new(health, "error", json_string(load->error));
    return dumped(health);
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
    char id[48];
    snprintf(id, sizeof id, "%s-%llu", a->kind == COMPLETION_CHAT ? "chatcmpl" : "cmpl",
             (unsigned long long)a->number);
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", id, "object", object, "created",
                     (json_int_t)a->created, "model", a->model, "choices", choices);
}

/* A choice with these tokens. where: "message" or "delta" in a chat. finish: why the answer ended, or null. */
static json_t *choice_object(answer *a, const char *where, const uint32_t *tokens, uint32_t n,
                             const char *finish)
{
    qwen3_string bytes = text_of_tokens(a->codec, &a->partial, tokens, n, finish != NULL);
    json_t *text = json_stringn(bytes.at ? bytes.at : "", bytes.size);
    json_t *ids = json_array(), *choice = json_pack("{s:i}", "index", 0), *message;
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(ids, json_integer((json_int_t)tokens[i]));
    if (a->kind == COMPLETION_CHAT) {
        message = json_pack("{s:o}", "content", text);
        if (!a->chunks) json_object_set_new(message, "role", json_string("assistant"));
        json_object_set_new(choice, where, message);
    } else {
        json_object_set_new(choice, "text", text);
    }
    json_object_set_new(choice, "token_ids", ids);
    json_object_set_new(choice, "finish_reason", finish ? json_string(finish) : json_null());
    free(bytes.at);
    return choice;
}

/* A whole answer. error: why the engine gave up, or null; what was generated before is there. */
static char *answer_whole(answer *a, const uint32_t *tokens, usage u, const char *finish,
                          const char *error)
{
    json_t *choice = choice_object(a, "message", tokens, u.generated, finish);
    json_t *whole =
        answer_object(a, a->kind == COMPLETION_CHAT ? "chat.completion" : "text_completion",
                      json_pack("[o]", choice));
    json_object_set_new(whole, "usage", usage_object(u));
    if (error)
        json_object_set_new(whole, "error",
                            json_pack("{s:s, s:s}", "message", error, "type", "server_error"));
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

/* The event of tokens that follow those of the event before. finish: not null in the last one. */
static char *event_of_tokens(answer *a, const uint32_t *tokens, uint32_t n, const char *finish)
{
    json_t *choice = choice_object(a, "delta", tokens, n, finish);
    a->chunks++;
    return event_of(dumped(
        answer_object(a, a->kind == COMPLETION_CHAT ? "chat.completion.chunk" : "text_completion",
                      json_pack("[o]", choice))));
}

static char *event_of_usage(const answer *a, usage u)
{
    json_t *chunk = answer_object(
        a, a->kind == COMPLETION_CHAT ? "chat.completion.chunk" : "text_completion", json_array());
    json_object_set_new(chunk, "usage", usage_object(u));
    return event_of(dumped(chunk));
}

static char *event_of_error(const char *error)
{
    return event_of(
        dumped(json_pack("{s:{s:s, s:s}}", "error", "message", error, "type", "server_error")));
}

static char *event_of_end(void)
{
    char *text = (char *)malloc(7);
    if (text) memcpy(text, "[DONE]", 7);
    return event_of(text);
}

#endif /* SERVE_ANSWER_H */
