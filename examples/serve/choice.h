/* choice.h: one of the answers to a request while it grows: its tokens, their text, and where it
   ends.

   STOPS     A text at which an answer ends may lie across tokens. What could be the beginning of
             one is held back: the first `ready` bytes of the text are certain.
   REASONING A model that reasons begins with <think>, and its answer follows </think>. Both are
             told apart in the text that is ready, as it is sent.

   The caller has a lock for whatever several threads use. */
#ifndef SERVE_CHOICE_H
#define SERVE_CHOICE_H

#include "text.h"

/* Where the text is that is sent next. */
typedef enum reasoning_state {
    REASONING_UNKNOWN,
    REASONING_BEGINS, /* spaces after <think> */
    REASONING_INSIDE,
    REASONING_ENDS, /* spaces after </think>, or after a call */
    REASONING_OVER  /* in the answer */
} reasoning_state;

typedef struct token_odds {
    uint32_t token;
    float logprob;
} token_odds;

typedef struct choice {
    struct exchange *x;
    uint32_t index;
    uint64_t number; /* of the job */
    uint64_t ticket; /* of the engine; 0: it is not known yet */
    double last;     /* when its last token came; the engine's threads alone */
    /* what has come */
    uint32_t *tokens; /* [max_tokens] */
    uint32_t n_tokens;
    uint32_t n_likely; /* as `likelihoods` in engine_job */
    token_odds *odds;  /* [max_tokens][n_likely]: of each token, then of the most likely ones */
    qwen3_partial partial;
    qwen3_string text;
    size_t exempt; /* bytes of it that no stop may be in: the prompt, and the first min_tokens */
    size_t ready;
    uint32_t failed; /* 1: no memory for the text */
    /* how it has ended */
    uint32_t stopped; /* 1: by a stop of the request; what the engine still says does not count */
    uint32_t ended, at_eos, cancel_sent;
    engine_event_kind end;
    char error[256];
    /* what was sent of a stream */
    uint32_t sent_tokens, begun, over;
    size_t told; /* characters of the tokens whose odds were told */
    size_t sent;
    reasoning_state reasoning;
    uint32_t calls, one_call; /* as in the request */
    uint32_t n_calls;         /* of tools, so far */
} choice;

/* Where one of the stops begins in the text, from a byte on; the first of them. */
static size_t find_stop(const completion *c, const qwen3_string *text, size_t from, size_t *length)
{
    size_t first = text->size;
    for (uint32_t i = 0; i < c->n_stops; i++) {
        const size_t n = strlen(c->stops[i]);
        for (size_t at = from; at + n <= text->size && at < first; at++)
            if (!memcmp(text->at + at, c->stops[i], n)) first = at, *length = n;
    }
    return first;
}

/* How many bytes at the end of a text may be the beginning of what is looked for. */
static size_t held_back(const char *text, size_t size, const char *what, size_t length)
{
    for (size_t n = size < length - 1 ? size : length - 1; n; n--)
        if (!memcmp(text + size - n, what, n)) return n;
    return 0;
}

/* Ends the text at a stop, if it has one in what has come since, or says what is certain of it. */
static void look_for_stops(choice *h, const completion *c, size_t before)
{
    const size_t overlap =
        before - h->exempt < MAX_STOP_BYTES ? before - h->exempt : MAX_STOP_BYTES;
    size_t length = 0, held = 0, at;
    if (!h->text.at) return;
    at = find_stop(c, &h->text, before - overlap, &length);
    if (length) {
        h->stopped = 1;
        h->text.size = at + (c->include_stop ? length : 0);
        h->ready = h->text.size;
        return;
    }
    for (uint32_t i = 0; i < c->n_stops; i++) {
        const size_t n = held_back(h->text.at + h->exempt, h->text.size - h->exempt, c->stops[i],
                                   strlen(c->stops[i]));
        if (n > held) held = n;
    }
    h->ready = h->text.size - held;
}

/* Makes room for how likely tokens are, if the request asks. -1: no memory. */
static int choice_likelihoods(choice *h, const completion *c)
{
    h->n_likely = c->likelihoods;
    if (!h->n_likely) return 0;
    h->odds = (token_odds *)malloc((size_t)c->max_tokens * h->n_likely * sizeof *h->odds);
    return h->odds ? 0 : -1;
}

static void keep_odds(choice *h, uint32_t token, const engine_likelihood *from)
{
    token_odds *to = h->odds + (size_t)h->n_tokens * h->n_likely;
    if (!h->n_likely) return;
    to->token = token, to->logprob = from->own;
    for (uint32_t i = 1; i < h->n_likely; i++)
        to[i].token = from->token[i - 1], to[i].logprob = from->of[i - 1];
}

/* The next token. What comes after a stop is dropped. */
static void choice_token(choice *h, const completion *c, const text_codec *codec, uint32_t token,
                         const engine_likelihood *likelihood)
{
    const size_t before = h->text.size;
    if (h->stopped || h->failed) return;
    keep_odds(h, token, likelihood);
    h->tokens[h->n_tokens++] = token;
    for (uint32_t i = 0; i < c->n_stop_tokens && h->n_tokens > c->shape.min_tokens; i++)
        h->stopped |= token == c->stop_tokens[i];
    if (h->stopped && !c->include_stop) {
        h->ready = h->text.size;
        return;
    }
    if (codec->is_open &&
        qwen3_decode(&codec->tokenizer, token, !c->keep_special, &h->partial, &h->text))
        h->failed = 1;
    else if (h->n_tokens <= c->shape.min_tokens)
        h->exempt = h->ready = h->text.size;
    else if (h->stopped)
        h->ready = h->text.size;
    else
        look_for_stops(h, c, before);
}

/* Nothing more comes: what was held back is text. */
static void choice_end(choice *h)
{
    if (!h->stopped && qwen3_decode_end(&h->partial, &h->text)) h->failed = 1;
    h->ready = h->text.size;
}

/* The text before which the answer goes on. */
static int choice_echo(choice *h, const text_codec *codec, const prompt *p, uint32_t keep_special)
{
    if (p->text ? qwen3_string_add_text(&h->text, p->text)
                : text_of_tokens(codec, p->tokens, p->n_tokens, keep_special, &h->text))
        return -1;
    h->exempt = h->ready = h->text.size;
    return 0;
}

static void choice_free(choice *h)
{
    free(h->tokens);
    free(h->odds);
    free(h->text.at);
}

/* ---- reasoning ---- */

typedef struct text_piece {
    const char *at;
    size_t size;
} text_piece;

/* The pieces of a text that follow each other: of the reasoning, then of the answer, then a call of
   a tool. */
typedef struct text_pieces {
    text_piece reasoning, content, call;
} text_pieces;

static size_t spaces_of(const char *text, size_t size)
{
    size_t n = 0;
    while (n < size && (text[n] == '\n' || text[n] == ' ')) n++;
    return n;
}

static size_t without_line_feeds(const char *text, size_t size)
{
    while (size && text[size - 1] == '\n') size--;
    return size;
}

/* Whether the text begins with <think>; -1: that is not certain yet. */
static int begins_to_reason(const char *text, size_t size, uint32_t last)
{
    static const char tag[] = "<think>";
    const size_t n = sizeof tag - 1;
    if (size >= n) return !memcmp(text, tag, n);
    return last || memcmp(text, tag, size) ? 0 : -1;
}

/* Takes what is certain of the text that follows what was taken before; returns how many bytes that
   is. last: no more will come. */
static size_t take_pieces(reasoning_state *state, const char *text, size_t size, uint32_t last,
                          text_pieces *to)
{
    size_t at = 0;
    memset(to, 0, sizeof *to);
    if (*state == REASONING_UNKNOWN) {
        const size_t spaces = spaces_of(text, size);
        const int begins = begins_to_reason(text + spaces, size - spaces, last);
        if (begins < 0) return 0;
        *state = begins ? REASONING_BEGINS : REASONING_OVER;
        if (begins) at = spaces + 7;
    }
    if (*state == REASONING_BEGINS) {
        at += spaces_of(text + at, size - at);
        if (at == size) return at;
        *state = REASONING_INSIDE;
    }
    if (*state == REASONING_INSIDE) {
        const char *end = qwen3_find_text(text + at, size - at, "</think>", 0);
        size_t n = end ? (size_t)(end - text) - at : size - at;
        to->reasoning.at = text + at;
        if (!end && !last) n -= held_back(text + at, n, "</think>", 8);
        to->reasoning.size = without_line_feeds(text + at, n);
        if (!end) return last ? size : at + to->reasoning.size;
        at += n + 8;
        *state = REASONING_ENDS;
    }
    if (*state == REASONING_ENDS) {
        at += spaces_of(text + at, size - at);
        if (at == size) return at;
        *state = REASONING_OVER;
    }
    to->content.at = text + at, to->content.size = size - at;
    return size;
}

/* ---- calls of tools ---- */

#define CALL_BEGIN "<tool_call>"
#define CALL_END "</tool_call>"

/* Cuts the answer before the first call in it, which it takes when it is there to its end. Returns
   how many bytes of the answer are taken. */
static size_t take_call(uint32_t last, text_pieces *to)
{
    const char *text = to->content.at, *begin, *end;
    const size_t size = to->content.size, b = sizeof CALL_BEGIN - 1, e = sizeof CALL_END - 1;
    size_t at;
    begin = text ? qwen3_find_text(text, size, CALL_BEGIN, 0) : NULL;
    if (!begin) {
        if (text && !last) to->content.size -= held_back(text, size, CALL_BEGIN, b);
        at = to->content.size;
        if (!last) to->content.size = without_line_feeds(text, at);
        return to->content.size;
    }
    at = (size_t)(begin - text);
    end = qwen3_find_text(begin, size - at, CALL_END, 0);
    if (!end && last) return size; /* never ends: it is text */
    to->content.size = without_line_feeds(text, at);
    if (!end) return to->content.size;
    to->call.at = begin + b, to->call.size = (size_t)(end - begin) - b;
    return (size_t)(end - text) + e;
}

#endif /* SERVE_CHOICE_H */
