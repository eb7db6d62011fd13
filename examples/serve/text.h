/* text.h: between the texts of requests and answers and the token ids of the engine, by ../qwen3/tokenizer.h. */
#ifndef SERVE_TEXT_H
#define SERVE_TEXT_H

#include "request.h"

typedef struct text_codec {
    qwen3_tokenizer tokenizer;
    uint32_t is_open; /* 0: the model has no tokenizer */
} text_codec;

/* Opens the tokenizer of a model. Without a tokenizer.json the codec stays closed. -1: an error. */
static int text_open(text_codec *codec, const char *dir, uint32_t vocab, char *error, size_t bytes)
{
    char file[4096];
    memset(codec, 0, sizeof *codec);
    snprintf(file, sizeof file, "%s/tokenizer.json", dir);
    if (access(file, F_OK)) return 0;
    if (qwen3_tokenizer_open(&codec->tokenizer, dir, error, bytes)) return -1;
    codec->is_open = 1;
    if (codec->tokenizer.count <= vocab) return 0;
    snprintf(error, bytes, "tokenizer.json: %u tokens, the model has %u", codec->tokenizer.count,
             vocab);
    return -1;
}

static void text_close(text_codec *codec)
{
    if (codec->is_open) qwen3_tokenizer_close(&codec->tokenizer);
    codec->is_open = 0;
}

/* Replaces the text of a prompt, or its messages, by tokens. 0, or -1 and why. */
static int text_to_tokens(const text_codec *codec, completion *c, refusal *why)
{
    const char *field = c->messages ? "messages" : "prompt";
    char error[256] = "";
    qwen3_string prompt;
    qwen3_tokens tokens;
    int bad;
    if (c->tokens) return 0;
    memset(&prompt, 0, sizeof prompt);
    memset(&tokens, 0, sizeof tokens);
    bad = c->messages ? qwen3_chat_prompt(c->messages, c->n_messages, (int)c->thinking, &prompt,
                                          error, sizeof error)
                      : qwen3_string_add(&prompt, c->text, strlen(c->text));
    bad = bad ||
          qwen3_encode(&codec->tokenizer, prompt.at, prompt.size, &tokens, error, sizeof error);
    free(prompt.at);
    c->tokens = tokens.at, c->n_tokens = (uint32_t)tokens.count;
    return bad ? refuse(why, 503, field, "%s", error[0] ? error : "no memory is left") : 0;
}

/* The text of tokens that follow those of the call before: whole characters, of which `partial` keeps the beginning. The
   caller frees text.at, which is null where there is no text. */
static qwen3_string text_of_tokens(const text_codec *codec, qwen3_partial *partial,
                                   const uint32_t *tokens, uint32_t n, uint32_t last)
{
    qwen3_string text;
    int bad = !codec->is_open;
    memset(&text, 0, sizeof text);
    for (uint32_t i = 0; i < n && !bad; i++)
        bad = qwen3_decode(&codec->tokenizer, tokens[i], 1, partial, &text);
    if (last && !bad) qwen3_decode_end(partial, &text);
    return text;
}

#endif /* SERVE_TEXT_H */
