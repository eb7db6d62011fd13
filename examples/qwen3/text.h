/* text.h: text in and out of the program: prompts from arguments and files, tokens printed as they come, a conversation. */
#ifndef QWEN3_TEXT_H
#define QWEN3_TEXT_H

#include "../tools/output.h"
#include "tokenizer.h"

/* Reads a file to its end; "-" is standard input. -1: the error says why. */
static int read_text(const char *path, qwen3_string *text, char *error, size_t error_size)
{
    const qwen3_source s = qwen3_source_of(path, error, error_size);
    FILE *file = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    char part[4096];
    size_t n;
    int failed = 0;
    if (!file) return qwen3_fail_errno(&s);
    while (!failed && (n = fread(part, 1, sizeof part, file)) > 0)
        if (text->size + n > QWEN3_MAX_TEXT)
            failed = qwen3_fail(&s, "more than %zu bytes", QWEN3_MAX_TEXT);
        else if (qwen3_string_add(text, part, n))
            failed = qwen3_no_memory(&s);
    if (!failed && ferror(file)) failed = qwen3_fail_errno(&s);
    if (file != stdin) fclose(file);
    return failed;
}

/* The text of a sequence, printed as it grows. Special tokens are not shown. */
typedef struct text_output {
    output *to;
    const qwen3_tokenizer *tokenizer;
    qwen3_partial partial;
    qwen3_string text;
    size_t printed;
} text_output;

static int text_print(text_output *o)
{
    output_put(o->to, o->text.at + o->printed, o->text.size - o->printed);
    o->printed = o->text.size;
    return output_flush(o->to);
}
static int text_token(text_output *o, uint32_t id)
{
    if (qwen3_decode(o->tokenizer, id, 1, &o->partial, &o->text)) return -1;
    return o->text.size > o->printed ? text_print(o) : 0;
}
/* Ends the text, and the line. */
static int text_end(text_output *o)
{
    if (qwen3_decode_end(&o->partial, &o->text)) return -1;
    if (qwen3_string_add(&o->text, "", 0) || text_print(o)) return -1;
    output_put(o->to, "\n", 1);
    return output_flush(o->to);
}

/* What was said, oldest first. Roles are constants; contents are the conversation's. */
typedef struct conversation {
    qwen3_message *messages;
    size_t count, room;
} conversation;

static int conversation_add(conversation *c, const char *role, const char *content, size_t size)
{
    void *at = c->messages;
    char *copy;
    if (qwen3_grow(&at, &c->room, c->count + 1, sizeof *c->messages)) return -1;
    c->messages = (qwen3_message *)at;
    copy = (char *)malloc(size + 1);
    if (!copy) return -1;
    if (size) memcpy(copy, content, size);
    copy[size] = 0;
    memset(&c->messages[c->count], 0, sizeof *c->messages);
    c->messages[c->count].role = role;
    c->messages[c->count].content = copy;
    c->messages[c->count++].size = size;
    return 0;
}
/* Takes n messages out, from one on. */
static void conversation_drop(conversation *c, size_t from, size_t n)
{
    for (size_t i = from; i < from + n; i++) free((void *)(uintptr_t)c->messages[i].content);
    c->count -= n;
    memmove(c->messages + from, c->messages + from + n, (c->count - from) * sizeof *c->messages);
}
static void conversation_free(conversation *c)
{
    for (size_t i = 0; i < c->count; i++) free((void *)(uintptr_t)c->messages[i].content);
    free(c->messages);
    memset(c, 0, sizeof *c);
}

#endif /* QWEN3_TEXT_H */
