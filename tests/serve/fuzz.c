/* A libFuzzer target over examples/serve, run by tests/fuzz.sh serve. The first byte of an input chooses:

       t  the body of a completion         T  for a model without a tokenizer, decoded greedily
       c  the body of a chat               C  likewise

   What is parsed must keep the promises of request.h. What is refused must have a status and a reason, and an answer that
   is JSON. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "../../examples/serve/answer.h"

#define PROMISE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void is_a_refusal(const refusal *why)
{
    char *answer = answer_refusal(why);
    json_t *value = json_loads(answer ? answer : "", 0, NULL), *error;
    PROMISE(why->status == 400 || why->status == 404 || why->status == 413);
    PROMISE(memchr(why->field, 0, sizeof why->field) &&
            memchr(why->message, 0, sizeof why->message));
    PROMISE(why->message[0] && !strncmp(why->message, why->field, strlen(why->field)));
    PROMISE(why->has_fits == (why->status == 413));
    PROMISE(value && (error = json_object_get(value, "error")) != NULL);
    PROMISE(!strcmp(json_string_value(json_object_get(error, "message")), why->message));
    json_decref(value);
    free(answer);
}

static void is_a_completion(completion *c, const completion_rules *rules, uint32_t n_prompt)
{
    const engine_limits *limits = &rules->limits;
    refusal why;
    PROMISE((c->text != NULL) + (c->tokens != NULL) + (c->messages != NULL) == 1);
    PROMISE((c->messages != NULL) == (c->kind == COMPLETION_CHAT));
    PROMISE(rules->has_text || (!c->text && !c->messages));
    for (uint32_t i = 0; i < c->n_tokens; i++) PROMISE(c->tokens[i] < limits->vocab);
    for (uint32_t i = 0; i < c->n_messages; i++)
        PROMISE(c->messages[i].role[0] && strlen(c->messages[i].content) == c->messages[i].size);
    PROMISE(c->stream <= 1 && c->include_usage <= c->stream && c->ignore_eos <= 1 &&
            c->thinking <= 1);
    PROMISE(c->priority == JOB_REACTIVE || c->priority == JOB_PROACTIVE);
    PROMISE(c->sample.temperature >= 0 && c->sample.temperature <= 2);
    PROMISE(limits->samples || c->sample.temperature == 0);
    PROMISE(c->sample.top_p > 0 && c->sample.top_p <= 1);
    PROMISE(c->sample.min_p >= 0 && c->sample.min_p <= 1);
    PROMISE(c->sample.top_k <= limits->vocab && c->sample.seed <= INT64_MAX);
    if (c->tokens) n_prompt = c->n_tokens;
    if (completion_fit(c, n_prompt, limits, &why)) {
        if (n_prompt) is_a_refusal(&why);
        if (n_prompt && n_prompt <= limits->context) { /* what fits does */
            c->max_tokens = (uint32_t)why.fits;
            PROMISE(completion_fit(c, n_prompt, limits, &why) == 0);
        }
        return;
    }
    PROMISE(n_prompt >= 1 && c->max_tokens >= 1 &&
            (uint64_t)n_prompt + c->max_tokens - 1 <= limits->context);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static const completion_rules text = {{512, 64, 1}, 1, "tiny"}, ids = {{512, 64, 0}, 0, "tiny"};
    completion c;
    refusal why;
    int bad;
    if (size < 2) return 0;
    if (!strchr("tTcC", input[0])) return 0;
    memset(&why, 0x7f, sizeof why);
    bad = completion_parse(
        &c, input[0] == 'c' || input[0] == 'C' ? COMPLETION_CHAT : COMPLETION_TEXT,
        (const char *)input + 1, size - 1, input[0] == 't' || input[0] == 'c' ? &text : &ids, &why);
    PROMISE(bad == 0 || bad == -1);
    if (bad)
        is_a_refusal(&why);
    else
        is_a_completion(&c, input[0] == 't' || input[0] == 'c' ? &text : &ids,
                        (uint32_t)(size % 100));
    completion_free(&c);
    return 0;
}
