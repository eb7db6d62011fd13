/* A libFuzzer target over examples/serve, run by tests/fuzz.sh serve. The first byte of an input chooses:

       t  the body of a completion         T  for a model without a tokenizer, strictly, greedily
       c  the body of a chat               C  likewise
       k  a text whose tokens are told     d  tokens whose text is told

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
    PROMISE(value && (error = json_object_get(value, "error")) != NULL);
    PROMISE(!strcmp(json_string_value(json_object_get(error, "message")), why->message));
    json_decref(value);
    free(answer);
}

static void is_a_message(const qwen3_message *m)
{
    PROMISE(m->role[0] && strlen(m->content) == m->size);
    PROMISE(!m->reasoning || strlen(m->reasoning) == m->reasoning_size);
    for (size_t i = 0; i < m->n_calls; i++) PROMISE(m->calls[i].name && m->calls[i].arguments);
}

static void is_a_completion(completion *c, const completion_rules *rules, uint32_t n_prompt)
{
    const engine_limits *limits = &rules->limits;
    refusal why;
    PROMISE(c->n_prompts >= 1 && c->n >= 1 && c->n * c->n_prompts <= MAX_CHOICES);
    PROMISE((c->messages != NULL) == (c->kind == COMPLETION_CHAT));
    for (uint32_t i = 0; i < c->n_prompts; i++) {
        PROMISE((c->prompts[i].text != NULL) + (c->prompts[i].tokens != NULL) +
                    (c->messages != NULL) ==
                1);
        PROMISE(rules->has_text || c->prompts[i].tokens);
        for (uint32_t k = 0; k < c->prompts[i].n_tokens; k++)
            PROMISE(c->prompts[i].tokens[k] < limits->vocab);
    }
    for (uint32_t i = 0; i < c->n_messages; i++) is_a_message(&c->messages[i]);
    PROMISE(c->stream <= 1 && c->include_usage <= c->stream && c->ignore_eos <= 1 &&
            c->thinking <= 1 && c->reasoning <= 2 && c->echo <= 1 && c->keep_special <= 1);
    for (uint32_t i = 0; i < c->n_tools; i++) PROMISE(c->tools[i] && c->tools[i][0] == '{');
    PROMISE(c->calls <= (c->n_tools > 0) && c->one_call <= 1);
    PROMISE(c->n_stops <= MAX_STOPS && c->n_stop_tokens <= MAX_STOP_TOKENS);
    for (uint32_t i = 0; i < c->n_stops; i++)
        PROMISE(c->stops[i][0] && strlen(c->stops[i]) <= MAX_STOP_BYTES);
    PROMISE(c->priority == JOB_REACTIVE || c->priority == JOB_PROACTIVE);
    PROMISE(c->sample.temperature >= 0 && c->sample.temperature <= 2);
    PROMISE(limits->samples || c->sample.temperature <= 0);
    PROMISE(c->sample.top_p > 0 && c->sample.top_p <= 1);
    PROMISE(c->sample.min_p >= 0 && c->sample.min_p <= 1);
    PROMISE(c->sample.top_k < limits->vocab);
    for (uint32_t i = 0; i < c->n_prompts; i++)
        if (!c->prompts[i].tokens) c->prompts[i].n_tokens = n_prompt;
    if (completion_fit(c, rules, &why)) {
        is_a_refusal(&why);
        if (!why.has_fits || strcmp(why.field, "max_tokens")) return;
        PROMISE(rules->strict);
        c->max_tokens = (uint32_t)why.fits; /* what fits does */
        PROMISE(completion_fit(c, rules, &why) == 0);
    }
    for (uint32_t i = 0; i < c->n_prompts; i++)
        PROMISE(c->prompts[i].n_tokens >= 1 && c->max_tokens >= 1 &&
                (uint64_t)c->prompts[i].n_tokens + c->max_tokens - 1 <= limits->context);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static const completion_rules text = {{512, 64, 1}, 1, "tiny", 0, {0, 0, 0, 0, 0}},
                                  ids = {{512, 64, 0}, 0, "tiny", 1, {0, 0, 0, 0, 0}};
    static const char letters[] = "tTcCkd";
    static const completion_kind kinds[] = {COMPLETION_TEXT,   COMPLETION_TEXT,
                                            COMPLETION_CHAT,   COMPLETION_CHAT,
                                            COMPLETION_TOKENS, COMPLETION_DETOKENS};
    const char *letter;
    const completion_rules *rules;
    completion c;
    refusal why;
    int bad;
    if (size < 2) return 0;
    letter = input[0] ? strchr(letters, input[0]) : NULL;
    if (!letter) return 0;
    rules = *letter == 'T' || *letter == 'C' ? &ids : &text;
    memset(&why, 0x7f, sizeof why);
    bad = completion_parse(&c, kinds[letter - letters], (const char *)input + 1, size - 1, rules,
                           &why);
    PROMISE(bad == 0 || bad == -1);
    if (bad)
        is_a_refusal(&why);
    else if (c.kind <= COMPLETION_CHAT)
        is_a_completion(&c, rules, (uint32_t)(size % 100));
    completion_free(&c);
    return 0;
}
