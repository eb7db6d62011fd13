/* text.h: between the texts of requests and answers and the token ids of the engine, by
   ../qwen3/tokenizer.h. */
#ifndef SERVE_TEXT_H
#define SERVE_TEXT_H

#include "../qwen3/chat_template.h"
#include "request.h"

typedef struct text_codec {
    qwen3_tokenizer tokenizer;
    uint32_t is_open;       /* 0: the model has no tokenizer */
    qwen3_family family;    /* of its chat template */
    uint32_t allow_special; /* 1: control tokens in messages are not text */
} text_codec;

/* Opens the tokenizer of a model, whose chat template has this name; null: that of its files.
   Without a tokenizer.json the codec stays closed. -1: an error. */
static int text_open(text_codec *codec, const char *dir, const char *template_name, uint32_t vocab,
                     char *error, size_t bytes)
{
    char file[4096];
    memset(codec, 0, sizeof *codec);
    snprintf(file, sizeof file, "%s/tokenizer.json", dir);
    if (access(file, F_OK)) return 0;
    if (template_name ? qwen3_family_named(template_name, &codec->family)
                      : qwen3_family_read(dir, &codec->family, error, bytes))
        return -1;
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

/* Tokens of a text, at most so many; 0: any number. 0, or -1 and why. */
static int tokens_of_text(const text_codec *codec, const qwen3_string *text,
                          const qwen3_spans *plain, uint32_t most, const char *field, prompt *to,
                          refusal *why)
{
    char error[256] = "";
    qwen3_tokens tokens;
    int bad;
    memset(&tokens, 0, sizeof tokens);
    tokens.most = most;
    bad = qwen3_encode(&codec->tokenizer, text->at ? text->at : "", text->size, plain, &tokens,
                       error, sizeof error);
    to->tokens = tokens.at, to->n_tokens = (uint32_t)tokens.count;
    if (bad && tokens.full) return refuse_context(why, field, most, "too many tokens");
    return bad ? refuse(why, 503, field, "%s", error) : 0;
}

static int tokens_of_chat(const text_codec *codec, completion *c, uint32_t most, refusal *why)
{
    char error[256] = "";
    qwen3_chat_style style = qwen3_style_of(codec->family, (int)c->thinking);
    qwen3_string text;
    qwen3_spans said;
    int bad;
    if (c->calls && codec->family == QWEN3_AS_LLAMA3)
        return refuse(why, 400, "tools", "cannot be told: the model's chat template has none");
    if (c->calls) style.tools = c->tools, style.n_tools = c->n_tools;
    if (!c->thinking && codec->family == QWEN3_THINKING)
        return refuse(why, 400, "enable_thinking", "must be true: this model always reasons");
    memset(&text, 0, sizeof text);
    memset(&said, 0, sizeof said);
    bad = qwen3_chat_prompt(c->messages, c->n_messages, style, &text,
                            codec->allow_special ? NULL : &said, error, sizeof error)
              ? refuse(why, 503, "messages", "%s", error)
              : tokens_of_text(codec, &text, &said, most, "messages", &c->prompts[0], why);
    free(text.at);
    free(said.at);
    return bad;
}

/* Makes tokens of prompts that are texts, or messages. Ends when one has more than `most`. */
static int text_to_tokens(const text_codec *codec, completion *c, uint32_t most, refusal *why)
{
    if (c->messages) return tokens_of_chat(codec, c, most, why);
    for (uint32_t i = 0; i < c->n_prompts; i++) {
        prompt *p = &c->prompts[i];
        qwen3_string text;
        char field[32];
        if (!p->text) continue;
        snprintf(field, sizeof field, c->n_prompts > 1 ? "prompt[%u]" : "prompt", i);
        memset(&text, 0, sizeof text);
        text.at = (char *)(uintptr_t)p->text, text.size = strlen(p->text);
        if (tokens_of_text(codec, &text, NULL, most, field, p, why)) return -1;
    }
    return 0;
}

/* The text of all these tokens; the caller frees its `at`. -1: no memory. */
static int text_of_tokens(const text_codec *codec, const uint32_t *tokens, uint32_t n,
                          uint32_t keep_special, qwen3_string *text)
{
    qwen3_partial partial;
    memset(&partial, 0, sizeof partial);
    for (uint32_t i = 0; i < n && codec->is_open; i++)
        if (qwen3_decode(&codec->tokenizer, tokens[i], !keep_special, &partial, text)) return -1;
    return qwen3_decode_end(&partial, text);
}

#endif /* SERVE_TEXT_H */
