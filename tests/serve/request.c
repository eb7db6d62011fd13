// run: asan whole -Wno-unused-function
/* The parser of request bodies (examples/serve/request.h): what is taken, what each refusal
   names, and what fits. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "../../examples/serve/answer.h"
#include "test.h"

static const completion_rules greedy_ids = {{512, 64, 0}, 0, "tiny", 1, {0, 0, 0, 0, 0}},
                              all_text = {{512, 64, 1}, 1, "tiny", 1, {0, 0, 0, 0, 0}},
                              lenient = {{512, 64, 1}, 1, "tiny", 0, {0.5, 0.25, 0, 7, 0}};

typedef struct refused_body {
    completion_kind kind;
    const char *body;
    unsigned status;
    const char *field, *message;
    long long fits; /* -1: the refusal names no number */
} refused_body;

static void check_refused(test_run *t, const completion_rules *rules, const refused_body *b)
{
    completion c;
    refusal why;
    int bad = completion_parse(&c, b->kind, b->body, strlen(b->body), rules, &why);
    if (!bad && c.n_prompts && c.prompts[0].tokens) bad = completion_fit(&c, rules, &why);
    completion_free(&c);
    if (!bad)
        test_fail(t, __FILE__, __LINE__, "taken: %s", b->body);
    else if (why.status != b->status || strcmp(why.field, b->field) ||
             !strstr(why.message, b->message) ||
             (why.has_fits ? (long long)why.fits : -1) != b->fits)
        test_fail(t, __FILE__, __LINE__, "%s: %u, field \"%s\", \"%s\", fits %lld", b->body,
                  why.status, why.field, why.message, why.has_fits ? (long long)why.fits : -1);
}

#define TEXT COMPLETION_TEXT
#define CHAT COMPLETION_CHAT
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static void refused_fields(test_run *t)
{
    static const refused_body bodies[] = {
        {TEXT, "", 400, "", "is empty", -1},
        {TEXT, "{", 400, "", "line 1, column 1: is not JSON", -1},
        {TEXT, "{\"prompt\":[1],\"prompt\":[2]}", 400, "", "given twice", -1},
        {TEXT, "{\"prompt\":[1]} x", 400, "", "is not JSON", -1},
        {TEXT, "{\"prompt\":\"a\\u0000b\"}", 400, "", "\\u0000", -1},
        {TEXT, "{\"prompt\":\"\xff\"}", 400, "", "is not JSON", -1},
        {TEXT, "[]", 400, "", "must be an object", -1},
        {TEXT, "{}", 400, "prompt", "is missing", -1},
        {CHAT, "{}", 400, "messages", "is missing", -1},
        {TEXT, "{\"prompt\":[1],\"colour\":1}", 400, "colour", "is not known", -1},
        {TEXT, "{\"prompt\":[1],\"\":1}", 400, "", "is not known", -1},
        {TEXT, "{\"prompt\":[1]," HI "}", 400, "messages", "is not known", -1},
        {CHAT, "{\"prompt\":[1]," HI "}", 400, "prompt", "is not known", -1},
        {TEXT, "{\"prompt\":[1],\"max_completion_tokens\":1}", 400, "max_completion_tokens",
         "is not known", -1},
        {TEXT, "{\"prompt\":[1],\"model\":\"large\"}", 404, "model", "\"tiny\"", -1},
        {TEXT, "{\"prompt\":[1],\"model\":7}", 400, "model", "must be a string", -1},
        {TEXT, "{\"prompt\":{}}", 400, "prompt", "a string or an array of token ids", -1},
        {TEXT, "{\"prompt\":[]}", 400, "prompt", "is empty", -1},
        {TEXT, "{\"prompt\":\"\"}", 400, "prompt", "is empty", -1},
        {TEXT, "{\"prompt\":[1,-1]}", 400, "prompt[1]", "from 0 to 511", -1},
        {TEXT, "{\"prompt\":[512]}", 400, "prompt[0]", "from 0 to 511", -1},
        {TEXT, "{\"prompt\":[1,2,1.0]}", 400, "prompt[2]", "must be an integer", -1},
        {TEXT, "{\"prompt\":[99999999999999999999]}", 400, "", "is not JSON", -1},
        {TEXT, "{\"prompt\":[\"a\",1]}", 400, "prompt[1]", "must be a string or", -1},
        {TEXT, "{\"prompt\":[[1],[2,512]]}", 400, "prompt[1][1]", "from 0 to 511", -1},
        {TEXT, "{\"prompt\":[[1],[]]}", 400, "prompt[1]", "is empty", -1},
        {TEXT, "{\"prompt\":[[1],[2]],\"n\":65}", 400, "n", "at most 64 fit", 64},
        {TEXT, "{\"prompt\":[1],\"max_tokens\":0}", 400, "max_tokens", "from 1", -1},
        {TEXT, "{\"prompt\":[1],\"max_tokens\":-2}", 400, "max_tokens", "from 1", -1},
        {TEXT, "{\"prompt\":[1],\"max_tokens\":1.5}", 400, "max_tokens", "an integer", -1},
        {TEXT, "{\"prompt\":[1],\"max_tokens\":65}", 400, "max_tokens", "at most 64 fit", 64},
        {TEXT, "{\"prompt\":[1,2,3],\"max_tokens\":4294967295}", 400, "max_tokens",
         "after a prompt of 3 tokens: at most 62 fit", 62},
        {CHAT, "{" HI ",\"max_tokens\":1,\"max_completion_tokens\":2}", 400,
         "max_completion_tokens", "are the same", -1},
        {TEXT, "{\"prompt\":[1],\"stream\":1}", 400, "stream", "true or false", -1},
        {TEXT, "{\"prompt\":[1],\"stream_options\":{\"include_usage\":true}}", 400,
         "stream_options", "needs", -1},
        {TEXT, "{\"prompt\":[1],\"stream\":true,\"stream_options\":[]}", 400, "stream_options",
         "must be an object", -1},
        {TEXT, "{\"prompt\":[1],\"stream\":true,\"stream_options\":{\"x\":1}}", 400,
         "stream_options.x", "is not known", -1},
        {TEXT, "{\"prompt\":[1],\"stream\":true,\"stream_options\":{\"include_usage\":1}}", 400,
         "stream_options.include_usage", "true or false", -1},
        {TEXT, "{\"prompt\":[1],\"priority\":\"urgent\"}", 400, "priority", "\"reactive\"", -1},
        {TEXT, "{\"prompt\":[1],\"priority\":1}", 400, "priority", "\"proactive\"", -1},
        {TEXT, "{\"prompt\":[1],\"ignore_eos\":\"yes\"}", 400, "ignore_eos", "true or false", -1},
        {TEXT, "{\"prompt\":[1],\"temperature\":-0.1}", 400, "temperature", "from 0 to 2", -1},
        {TEXT, "{\"prompt\":[1],\"temperature\":\"hot\"}", 400, "temperature", "from 0 to 2", -1},
        {TEXT, "{\"prompt\":[1],\"top_p\":1.5}", 400, "top_p", "to 1", -1},
        {TEXT, "{\"prompt\":[1],\"min_p\":1.5}", 400, "min_p", "from 0 to 1", -1},
        {TEXT, "{\"prompt\":[1],\"top_k\":-2}", 400, "top_k", "from 0", -1},
        {TEXT, "{\"prompt\":[1],\"seed\":1.5}", 400, "seed", "an integer", -1},
        {TEXT, "{\"prompt\":[1],\"n\":129}", 400, "n", "from 1 to 128", -1},
        {TEXT, "{\"prompt\":[1],\"stop\":7}", 400, "stop", "must be a string", -1},
        {TEXT, "{\"prompt\":[1],\"stop\":[\"a\",7]}", 400, "stop[1]", "must be a string", -1},
        {TEXT, "{\"prompt\":[1],\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}", 400, "stop",
         "at most 4 fit", 4},
        {TEXT, "{\"prompt\":[1],\"stop_token_ids\":[512]}", 400, "stop_token_ids[0]", "to 511", -1},
        {TEXT, "{\"prompt\":[1],\"logprobs\":21}", 400, "logprobs", "from 0 to 20", -1},
        {TEXT, "{\"prompt\":[1],\"logprobs\":true}", 400, "logprobs", "an integer", -1},
        {TEXT, "{\"prompt\":[1],\"logprobs\":1,\"echo\":true}", 400, "logprobs", "echo", -1},
        {TEXT, "{\"prompt\":[1],\"prompt_logprobs\":0}", 400, "prompt_logprobs", "not supp", -1},
        {CHAT, "{" HI ",\"logprobs\":1}", 400, "logprobs", "true or false", -1},
        {CHAT, "{" HI ",\"logprobs\":true,\"top_logprobs\":21}", 400, "top_logprobs", "to 20", -1},
        {CHAT, "{" HI ",\"top_logprobs\":1}", 400, "top_logprobs", "needs logprobs", -1},
        {TEXT, "{\"prompt\":[1],\"logit_bias\":7}", 400, "logit_bias", "must be an object", -1},
        {TEXT, "{\"prompt\":[1],\"logit_bias\":[[5,1]]}", 400, "logit_bias", "an object", -1},
        {TEXT, "{\"prompt\":[1],\"logit_bias\":{\"5\":101}}", 400, "logit_bias.5", "to 100", -1},
        {TEXT, "{\"prompt\":[1],\"logit_bias\":{\"512\":1}}", 400, "logit_bias.512", "to 511", -1},
        {TEXT, "{\"prompt\":[1],\"logit_bias\":{\"05\":1}}", 400, "logit_bias.05", "a token", -1},
        {TEXT, "{\"prompt\":[1],\"logit_bias\":{\"the\":1}}", 400, "logit_bias.the", "token", -1},
        {TEXT, "{\"prompt\":[1],\"logit_bias\":{\"99999999999999999999\":1}}", 400,
         "logit_bias.99999999999999999999", "a token", -1},
        {TEXT, "{\"prompt\":[1],\"presence_penalty\":2.1}", 400, "presence_penalty", "to 2", -1},
        {TEXT, "{\"prompt\":[1],\"frequency_penalty\":-2.1}", 400, "frequency_penalty", "-2", -1},
        {TEXT, "{\"prompt\":[1],\"repetition_penalty\":0}", 400, "repetition_penalty", "0.01", -1},
        {TEXT, "{\"prompt\":[1],\"repeat_penalty\":\"a\"}", 400, "repeat_penalty", "number", -1},
        {TEXT, "{\"prompt\":[1],\"min_tokens\":-1}", 400, "min_tokens", "from 0", -1},
        {TEXT, "{\"prompt\":[1],\"min_tokens\":5,\"max_tokens\":4}", 400, "min_tokens",
         "at most 4 fit", 4},
        {TEXT, "{\"prompt\":[1],\"response_format\":{\"type\":\"json_object\"}}", 400,
         "response_format", "text", -1},
        {CHAT, "{" HI ",\"tools\":[{\"type\":\"function\"}]}", 400, "tools[0].function.name",
         "must be a string", -1},
        {CHAT, "{" HI ",\"tools\":[{\"type\":\"custom\"}]}", 400, "tools[0].type", "function", -1},
        {CHAT, "{" HI ",\"tool_choice\":\"required\"}", 400, "tool_choice", "not supported", -1},
        {CHAT, "{" HI ",\"parallel_tool_calls\":1}", 400, "parallel_tool_calls", "true or", -1},
        {CHAT, "{" HI ",\"store\":true}", 400, "store", "not supported", -1},
        {CHAT, "{" HI ",\"reasoning_effort\":\"huge\"}", 400, "reasoning_effort", "xhigh", -1},
        {CHAT, "{" HI ",\"chat_template_kwargs\":{\"enable_thinking\":1}}", 400,
         "chat_template_kwargs.enable_thinking", "true or false", -1},
        {CHAT, "{" HI ",\"enable_thinking\":0}", 400, "enable_thinking", "true or false", -1},
        {TEXT, "{\"prompt\":[1],\"enable_thinking\":true}", 400, "enable_thinking", "is not known",
         -1},
        {CHAT, "{\"messages\":{}}", 400, "messages", "an array", -1},
        {CHAT, "{\"messages\":[]}", 400, "messages", "at least one", -1},
        {CHAT, "{\"messages\":[7]}", 400, "messages", "message 0 is not an object", -1},
        {CHAT, "{\"messages\":[{\"role\":\"user\"}]}", 400, "messages[0].content", "missing", -1},
        {CHAT, "{\"messages\":[{\"content\":\"x\"}]}", 400, "messages[0].role", "missing", -1},
        {CHAT, "{\"messages\":[{\"role\":\"function\",\"content\":\"x\"}]}", 400,
         "messages[0].role", "system, developer, user", -1},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":7}]}", 400, "messages[0].content",
         "must be a string", -1},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[\"x\"]}]}", 400,
         "messages[0].content[0].type", "must be \"text\"", -1},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", 400,
         "messages[0].content[0].type", "must be \"text\"", -1},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"colour\":\"y\"}]}", 400,
         "messages[0].colour", "is not known", -1},
        {CHAT, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}", 400,
         "messages[0].tool_calls[0]", "function.name", -1},
    };
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        check_refused(t, &all_text, &bodies[i]);
}

static void refused_without_text_or_sampling(test_run *t)
{
    static const refused_body bodies[] = {
        {TEXT, "{\"prompt\":\"hi\"}", 400, "prompt", "no tokenizer", -1},
        {CHAT, "{" HI "}", 400, "messages", "no tokenizer", -1},
        {TEXT, "{\"prompt\":[1],\"temperature\":0.5}", 400, "temperature", "must be 0", -1},
        {TEXT, "{\"prompt\":[1],\"presence_penalty\":1}", 400, "presence_penalty", "cannot", -1},
        {TEXT, "{\"prompt\":[1],\"repetition_penalty\":2}", 400, "repetition_penalty", "ca", -1},
        {TEXT, "{\"prompt\":[1],\"min_tokens\":1}", 400, "min_tokens", "cannot be done", -1},
        {TEXT, "{\"prompt\":[1],\"logprobs\":0}", 400, "logprobs", "cannot be done", -1},
        {TEXT, "{\"prompt\":[1],\"logit_bias\":{\"1\":1}}", 400, "logit_bias", "cannot be", -1},
    };
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        check_refused(t, &greedy_ids, &bodies[i]);
}

/* As many tokens as the context has room for, and one more. */
static void prompts_at_the_limit(test_run *t)
{
    for (uint32_t n = 63; n <= 66; n++) {
        char body[1024] = "{\"prompt\":[1";
        refusal why;
        completion c;
        int bad;
        for (uint32_t i = 1; i < n; i++) strcat(body, ",1");
        strcat(body, "]}");
        bad = completion_parse(&c, TEXT, body, strlen(body), &greedy_ids, &why) ||
              completion_fit(&c, &greedy_ids, &why);
        if (!bad) CHECK_INT(c.max_tokens, 64 - n + 1);
        completion_free(&c);
        CHECK_INT(bad, n > 64);
        if (!bad) continue;
        CHECK_INT(why.status, 400);
        CHECK(!strcmp(why.code, "context_length_exceeded"));
        CHECK_TEXT(why.field, "prompt");
        CHECK_INT(why.has_fits, 1);
        CHECK_INT(why.fits, 64);
    }
}

/* A prompt that is text is as long as its tokens are. */
static void fits_after_the_tokenizer(test_run *t)
{
    const char *body = "{\"prompt\":\"some text\"}";
    refusal why;
    completion c;
    CHECK_INT(completion_parse(&c, TEXT, body, strlen(body), &all_text, &why), 0);
    c.prompts[0].n_tokens = 65;
    CHECK_INT(completion_fit(&c, &all_text, &why), -1);
    CHECK_TEXT(why.message, "prompt: 65 tokens are too many: at most 64 fit");
    c.prompts[0].n_tokens = 0;
    CHECK_INT(completion_fit(&c, &all_text, &why), -1);
    CHECK_TEXT(why.message, "has no token");
    c.prompts[0].n_tokens = 64;
    CHECK_INT(completion_fit(&c, &all_text, &why), 0);
    CHECK_INT(c.max_tokens, 1);
    completion_free(&c);
}

static void all_fields_are_read(test_run *t)
{
    const char *text =
        "{\"model\":\"tiny\",\"prompt\":[3,1,511],\"max_tokens\":9,\"stream\":true,"
        "\"stream_options\":{\"include_usage\":true},\"priority\":\"proactive\","
        "\"ignore_eos\":true,\"temperature\":0.5,\"top_p\":0.25,\"min_p\":0.125,"
        "\"top_k\":40,\"seed\":9223372036854775807,\"n\":1,"
        "\"presence_penalty\":0.5,\"frequency_penalty\":-1,\"min_tokens\":3,"
        "\"repetition_penalty\":1.25,\"logprobs\":0,\"logit_bias\":{\"0\":-100,\"511\":2.5}}";
    const char *chat = "{\"messages\":[{\"role\":\"system\",\"content\":\"be brief\"},"
                       "{\"content\":\"h\\u00e4?\",\"role\":\"user\"}],\"max_completion_tokens\":5,"
                       "\"enable_thinking\":false,\"top_logprobs\":4,\"logprobs\":true}";
    refusal why;
    completion c;
    CHECK_INT(completion_parse(&c, TEXT, text, strlen(text), &all_text, &why), 0);
    CHECK_INT(c.n_prompts, 1);
    CHECK_INT(c.prompts[0].n_tokens, 3);
    CHECK(c.prompts[0].tokens[0] == 3 && c.prompts[0].tokens[2] == 511);
    CHECK(c.max_tokens == 9 && c.stream && c.include_usage && c.ignore_eos);
    CHECK_INT(c.priority, JOB_PROACTIVE);
    CHECK(c.sample.temperature == 0.5 && c.sample.top_p == 0.25 && c.sample.min_p == 0.125);
    CHECK(c.sample.top_k == 40 && c.sample.seed == INT64_MAX && c.has_seed);
    CHECK(c.shape.presence == 0.5 && c.shape.frequency == -1 && c.shape.repetition == 1.25);
    CHECK_INT(c.likelihoods, 1);
    CHECK(c.shape.min_tokens == 3 && c.shape.n_biased == 2);
    CHECK(c.shape.biased[0].token == 0 && c.shape.biased[0].bias == -100);
    CHECK(c.shape.biased[1].token == 511 && c.shape.biased[1].bias == 2.5f);
    completion_free(&c);
    CHECK_INT(completion_parse(&c, CHAT, chat, strlen(chat), &all_text, &why), 0);
    CHECK_INT(c.n_messages, 2);
    CHECK(!strcmp(c.messages[0].role, "system") && !strcmp(c.messages[0].content, "be brief"));
    CHECK(!strcmp(c.messages[1].role, "user") && !strcmp(c.messages[1].content, "h\xc3\xa4?"));
    CHECK(c.messages[1].size == 4 && !c.thinking);
    CHECK_INT(c.likelihoods, 5);
    CHECK(c.max_tokens == 5 && !c.stream && !c.include_usage && !c.ignore_eos);
    CHECK_INT(c.priority, JOB_REACTIVE);
    CHECK(c.sample.temperature == 0 && c.sample.top_p == 1 && c.sample.top_k == 0 && !c.has_seed);
    completion_free(&c);
}

/* The name of an unknown field is cut where it is long, never inside a character: an answer is UTF-8. */
static void long_names_are_cut(test_run *t)
{
    char body[400] = "{\"a";
    refusal why;
    completion c;
    char *answer;
    for (uint32_t i = 0; i < 80; i++) strcat(body, "\xc3\xa4");
    strcat(body, "\":1}");
    CHECK_INT(completion_parse(&c, TEXT, body, strlen(body), &all_text, &why), -1);
    completion_free(&c);
    CHECK_INT(strlen(why.field), 63);
    answer = answer_refusal(&why);
    CHECK(answer != NULL);
    CHECK_TEXT(answer, "\xc3\xa4\"");
    CHECK_TEXT(answer, "\"code\":null");
    free(answer);
}

/* Absent, null and "off" are the same, and so is what no answer depends on. */
static void neutral_fields(test_run *t)
{
    static const char *const values[] = {"\"stop\":null",
                                         "\"stop\":[]",
                                         "\"stop\":\"\"",
                                         "\"temperature\":null",
                                         "\"max_tokens\":null",
                                         "\"max_tokens\":-1",
                                         "\"n\":1",
                                         "\"stream\":null",
                                         "\"stream_options\":null",
                                         "\"stream_options\":{\"include_usage\":false}",
                                         "\"seed\":-1",
                                         "\"seed\":null",
                                         "\"presence_penalty\":0",
                                         "\"presence_penalty\":0.0",
                                         "\"frequency_penalty\":null",
                                         "\"repetition_penalty\":1.0",
                                         "\"logit_bias\":{}",
                                         "\"logit_bias\":{\"50256\":0}",
                                         "\"logprobs\":false",
                                         "\"top_logprobs\":null",
                                         "\"tools\":[]",
                                         "\"tool_choice\":\"auto\"",
                                         "\"parallel_tool_calls\":true",
                                         "\"response_format\":{\"type\":\"text\"}",
                                         "\"user\":\"u\"",
                                         "\"metadata\":{\"a\":\"b\"}",
                                         "\"store\":false",
                                         "\"service_tier\":\"auto\"",
                                         "\"verbosity\":\"medium\"",
                                         "\"modalities\":[\"text\"]",
                                         "\"top_k\":-1",
                                         "\"top_k\":100000",
                                         "\"min_tokens\":0",
                                         "\"best_of\":1",
                                         "\"echo\":false",
                                         "\"priority\":0",
                                         "\"skip_special_tokens\":true",
                                         "\"cache_prompt\":true",
                                         "\"keep_alive\":\"5m\"",
                                         "\"options\":{}",
                                         "\"include_reasoning\":true",
                                         "\"reasoning_effort\":\"medium\"",
                                         "\"chat_template_kwargs\":{\"enable_thinking\":true}",
                                         "\"audio\":null",
                                         "\"add_generation_prompt\":true",
                                         "\"enable_thinking\":null"};
    refusal why;
    completion plain;
    CHECK_INT(completion_parse(&plain, CHAT, "{" HI "}", strlen("{" HI "}"), &all_text, &why), 0);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char body[256];
        completion c;
        snprintf(body, sizeof body, "{" HI ",%s}", values[i]);
        if (completion_parse(&c, CHAT, body, strlen(body), &all_text, &why))
            test_fail(t, __FILE__, __LINE__, "%s: %s", values[i], why.message);
        else if (c.max_tokens != plain.max_tokens || c.n != 1 || c.stream || c.n_stops ||
                 c.thinking != 1 || c.reasoning != 1 || c.has_seed ||
                 memcmp(&c.sample.temperature, &plain.sample.temperature, sizeof(double)) ||
                 c.sample.top_k || c.include_usage || c.keep_special || c.shape.n_biased ||
                 c.shape.min_tokens || c.shape.presence > 0 || c.shape.frequency > 0 ||
                 c.shape.repetition > 1 || c.likelihoods)
            test_fail(t, __FILE__, __LINE__, "%s is not as if it were absent", values[i]);
        completion_free(&c);
    }
    completion_free(&plain);
}

/* Without --strict unknown fields are ignored, and as many tokens as fit are taken. */
static void lenient_rules(test_run *t)
{
    const char *body = "{\"prompt\":[1,2,3],\"colour\":1,\"max_tokens\":4294967296,"
                       "\"stream_options\":{\"x\":1},\"temperature\":null}";
    refusal why;
    completion c;
    CHECK_INT(completion_parse(&c, TEXT, body, strlen(body), &lenient, &why), 0);
    CHECK_INT(completion_fit(&c, &lenient, &why), 0);
    CHECK_INT(c.max_tokens, 62);
    /* null is the default, which the model's files may set */
    CHECK(c.sample.temperature == 0.5 && c.sample.top_p == 0.25 && c.sample.top_k == 7);
    completion_free(&c);
}

/* Texts in parts, roles that stand for others, calls and what they return. */
static void messages_of_all_kinds(test_run *t)
{
    const char *body =
        "{\"messages\":[{\"role\":\"developer\",\"content\":\"be brief\",\"name\":\"x\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"text\",\"text\":\"b\"}]},"
        "{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"reasoning_content\":\"r\","
        "\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":\"{}\"}},{\"function\":{\"name\":\"g\",\"arguments\":{\"x\":1}}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"7\"}]}";
    refusal why;
    completion c;
    CHECK_INT(completion_parse(&c, CHAT, body, strlen(body), &all_text, &why), 0);
    CHECK_INT(c.n_messages, 4);
    CHECK(!strcmp(c.messages[0].role, "system"));
    CHECK(!strcmp(c.messages[1].content, "a\nb") && c.messages[1].size == 3);
    CHECK(!strcmp(c.messages[2].content, "") && !strcmp(c.messages[2].reasoning, "r"));
    CHECK_INT(c.messages[2].n_calls, 2);
    CHECK(!strcmp(c.messages[2].calls[0].name, "f"));
    CHECK(!strcmp(c.messages[2].calls[1].arguments, "{\"x\": 1}"));
    CHECK(!strcmp(c.messages[3].role, "tool"));
    completion_free(&c);
}

static void several_prompts(test_run *t)
{
    const char *body = "{\"prompt\":[[1,2],[3]],\"n\":2,\"echo\":true,\"stop\":[\"a\",\"bc\"],"
                       "\"include_stop_str_in_output\":true,\"stop_token_ids\":[5,6],"
                       "\"skip_special_tokens\":false}";
    refusal why;
    completion c;
    CHECK_INT(completion_parse(&c, TEXT, body, strlen(body), &all_text, &why), 0);
    CHECK(c.n_prompts == 2 && c.n == 2 && c.echo && c.include_stop && c.keep_special);
    CHECK(c.prompts[0].n_tokens == 2 && c.prompts[1].tokens[0] == 3);
    CHECK(c.n_stops == 2 && !strcmp(c.stops[1], "bc"));
    CHECK(c.n_stop_tokens == 2 && c.stop_tokens[1] == 6);
    CHECK_INT(completion_fit(&c, &all_text, &why), 0);
    CHECK_INT(c.max_tokens, 63); /* as the longest of them leaves */
    completion_free(&c);
}

/* The text of a choice, token by token: what is ready never has a part of a stop. */
static void stops_across_tokens(test_run *t)
{
    static const struct {
        const char *stops[2], *text, *shown;
        uint32_t include, stopped, min_tokens;
    } cases[] = {{{"b", "ca"}, "abcab", "abca", 0, 1, 3},
                 {{"END", NULL}, "one END two", "one ", 0, 1, 0},
                 {{"END", NULL}, "one END two", "one END", 1, 1, 0},
                 {{"END", NULL}, "EEN EN", "EEN EN", 0, 0, 0},
                 {{"aab", NULL}, "aaaab", "aa", 0, 1, 0},
                 {{"longer end", "er"}, "the longer end", "the long", 0, 1, 0},
                 {{"e", "the"}, "the", "", 0, 1, 0},
                 {{"\xe2\x82\xac", NULL}, "1 \xe2\x82\xac", "1 ", 0, 1, 0}};
    text_codec codec;
    char error[256];
    if (text_open(&codec, "tests/fixtures/qwen3-tiny", NULL, 512, error, sizeof error)) abort();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        completion c;
        choice h;
        size_t ready = 0;
        memset(&c, 0, sizeof c);
        memset(&h, 0, sizeof h);
        for (uint32_t k = 0; k < 2 && cases[i].stops[k]; k++)
            c.stops[c.n_stops++] = (char *)(uintptr_t)cases[i].stops[k];
        c.include_stop = cases[i].include, c.shape.min_tokens = cases[i].min_tokens;
        h.tokens = (uint32_t *)calloc(64, sizeof *h.tokens);
        for (const char *at = cases[i].text; *at; at++) { /* a token for each byte */
            choice_token(&h, &c, &codec, codec.tokenizer.byte_token[(unsigned char)*at], NULL);
            CHECK(h.ready >= ready);
            ready = h.ready;
            if (h.ready > strlen(cases[i].shown) ||
                memcmp(h.text.at ? h.text.at : "", cases[i].shown, h.ready))
                test_fail(t, __FILE__, __LINE__, "case %zu shows too much", i);
        }
        choice_end(&h);
        CHECK_INT(h.stopped, cases[i].stopped);
        CHECK_INT(h.ready, strlen(cases[i].shown));
        choice_free(&h);
    }
    text_close(&codec);
}

/* Reasoning is told apart in the same way however the text is cut into pieces. */
static void reasoning_is_told_apart(test_run *t)
{
    static const struct {
        const char *text, *reasoning, *content;
    } cases[] = {{"<think>\nWell.\nSo.\n</think>\n\nYes.\n", "Well.\nSo.", "Yes.\n"},
                 {"\n<think>\n\n</think>\n\nYes", "", "Yes"},
                 {"No <think>x</think>", "", "No <think>x</think>"},
                 {"<thin", "", "<thin"},
                 {"<think>never < ends </thin", "never < ends </thin", ""},
                 {"<think>a < b</think>c</think>d", "a < b", "c</think>d"},
                 {"", "", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t step = 1; step < 12; step++) {
            char reasoning[64] = "", content[64] = "";
            reasoning_state state = REASONING_UNKNOWN;
            size_t sent = 0, ready = 0;
            const size_t size = strlen(cases[i].text);
            for (uint32_t last = 0; !last;) {
                text_pieces pieces;
                ready = ready + step < size ? ready + step : size;
                last = ready == size;
                sent += take_pieces(&state, cases[i].text + sent, ready - sent, last, &pieces);
                strncat(reasoning, pieces.reasoning.at ? pieces.reasoning.at : "",
                        pieces.reasoning.size);
                strncat(content, pieces.content.at ? pieces.content.at : "", pieces.content.size);
            }
            if (strcmp(reasoning, cases[i].reasoning) || strcmp(content, cases[i].content))
                test_fail(t, __FILE__, __LINE__, "case %zu by %zu bytes: \"%s\", \"%s\"", i, step,
                          reasoning, content);
        }
}

/* Calls of tools are told apart in the same way however the text is cut into pieces. */
static void calls_are_told_apart(test_run *t)
{
    static const struct {
        const char *text, *content, *calls; /* calls: name and arguments of each */
        uint32_t one;
    } cases[] = {
        {"I call.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
         "I call.", "f{\"a\": 1};", 0},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": "
         "\"g\", "
         "\"arguments\": {}}</tool_call>",
         "", "f{};g{};", 0},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": "
         "\"g\", "
         "\"arguments\": {}}</tool_call>",
         "", "f{};", 1},
        {"a <tool_call>not JSON</tool_call> b", "a <tool_call>not JSON</tool_call> b", "", 0},
        {"a\n<tool_call>{\"name\":", "a\n<tool_call>{\"name\":", "", 0},
        {"<think>\n<tool_call>\n</think>\n\nb < c\n", "b < c\n", "", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t step = 1; step < 40; step++) {
            char content[128] = "", calls[128] = "";
            size_t sent = 0, ready = 0;
            const size_t size = strlen(cases[i].text);
            answer a;
            choice h;
            memset(&a, 0, sizeof a);
            memset(&h, 0, sizeof h);
            a.kind = COMPLETION_CHAT, a.reasoning = 1;
            h.calls = 1, h.one_call = cases[i].one;
            for (uint32_t last = 0; !last;) {
                said what;
                json_t *call;
                size_t k;
                ready = ready + step < size ? ready + step : size;
                last = ready == size;
                sent +=
                    split_text(&a, &h, "delta", cases[i].text + sent, ready - sent, last, &what);
                strncat(content, what.content.at ? what.content.at : "", what.content.size);
                json_array_foreach(what.calls, k, call)
                {
                    json_t *f = json_object_get(call, "function");
                    CHECK(json_is_integer(json_object_get(call, "index")));
                    strcat(calls, json_string_value(json_object_get(f, "name")));
                    strcat(calls, json_string_value(json_object_get(f, "arguments")));
                    strcat(calls, ";");
                }
                said_free(&what);
            }
            CHECK_INT(sent, size);
            if (strcmp(content, cases[i].content) || strcmp(calls, cases[i].calls))
                test_fail(t, __FILE__, __LINE__, "case %zu by %zu bytes: \"%s\", \"%s\"", i, step,
                          content, calls);
        }
}

static void tests(test_run *t)
{
    TEST(calls_are_told_apart);
    TEST(neutral_fields);
    TEST(lenient_rules);
    TEST(messages_of_all_kinds);
    TEST(several_prompts);
    TEST(stops_across_tokens);
    TEST(reasoning_is_told_apart);

    TEST(refused_fields);
    TEST(refused_without_text_or_sampling);
    TEST(prompts_at_the_limit);
    TEST(fits_after_the_tokenizer);
    TEST(all_fields_are_read);
    TEST(long_names_are_cut);
}
TEST_MAIN(tests)
