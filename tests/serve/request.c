// run: asan whole -Wno-unused-function
/* The parser of request bodies (examples/serve/request.h): what is taken, what each refusal
   names, and what fits. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "../../examples/serve/answer.h"
#include "test.h"

static const completion_rules greedy_ids = {{512, 64, 0}, 0, "tiny"},
                              all_text = {{512, 64, 1}, 1, "tiny"};

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
    if (!bad && c.tokens) bad = completion_fit(&c, c.n_tokens, &rules->limits, &why);
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
        {TEXT, "", 400, "", "is not JSON", -1},
        {TEXT, "{", 400, "", "line 1, column 1: is not JSON", -1},
        {TEXT, "{\"prompt\":[1],\"prompt\":[2]}", 400, "", "given twice", -1},
        {TEXT, "{\"prompt\":[1]} x", 400, "", "is not JSON", -1},
        {TEXT, "{\"prompt\":\"a\\u0000b\"}", 400, "", "is not JSON", -1},
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
        {TEXT, "{\"prompt\":[\"a\"]}", 400, "prompt[0]", "must be an integer", -1},
        {TEXT, "{\"prompt\":[1],\"max_tokens\":0}", 400, "max_tokens", "from 1", -1},
        {TEXT, "{\"prompt\":[1],\"max_tokens\":4294967296}", 400, "max_tokens", "from 1", -1},
        {TEXT, "{\"prompt\":[1],\"max_tokens\":null}", 400, "max_tokens", "must be an integer", -1},
        {TEXT, "{\"prompt\":[1],\"max_tokens\":65}", 413, "max_tokens", "at most 64 fit", 64},
        {TEXT, "{\"prompt\":[1,2,3],\"max_tokens\":4294967295}", 413, "max_tokens",
         "after a prompt of 3 tokens: at most 62 fit", 62},
        {CHAT, "{" HI ",\"max_tokens\":1,\"max_completion_tokens\":1}", 400,
         "max_completion_tokens", "are the same", -1},
        {TEXT, "{\"prompt\":[1],\"stream\":1}", 400, "stream", "true or false", -1},
        {TEXT, "{\"prompt\":[1],\"stream_options\":{}}", 400, "stream_options", "needs", -1},
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
        {TEXT, "{\"prompt\":[1],\"temperature\":0.0001}", 400, "temperature", "from 0.001", -1},
        {TEXT, "{\"prompt\":[1],\"temperature\":\"hot\"}", 400, "temperature", "from 0 to 2", -1},
        {TEXT, "{\"prompt\":[1],\"top_p\":0}", 400, "top_p", "to 1", -1},
        {TEXT, "{\"prompt\":[1],\"min_p\":1.5}", 400, "min_p", "from 0 to 1", -1},
        {TEXT, "{\"prompt\":[1],\"top_k\":513}", 400, "top_k", "from 0 to 512", -1},
        {TEXT, "{\"prompt\":[1],\"seed\":-1}", 400, "seed", "from 0", -1},
        {TEXT, "{\"prompt\":[1],\"n\":2}", 400, "n", "from 1 to 1", -1},
        {CHAT, "{" HI ",\"enable_thinking\":0}", 400, "enable_thinking", "true or false", -1},
        {TEXT, "{\"prompt\":[1],\"enable_thinking\":true}", 400, "enable_thinking", "is not known",
         -1},
        {CHAT, "{\"messages\":{}}", 400, "messages", "an array", -1},
        {CHAT, "{\"messages\":[]}", 400, "messages", "at least one", -1},
        {CHAT, "{\"messages\":[7]}", 400, "messages", "message 0 is not an object", -1},
        {CHAT, "{\"messages\":[{\"role\":\"user\"}]}", 400, "messages[0].content", "missing", -1},
        {CHAT, "{\"messages\":[{\"content\":\"x\"}]}", 400, "messages[0].role", "missing", -1},
        {CHAT, "{\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}", 400, "messages[0].role",
         "system, user or assistant", -1},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[\"x\"]}]}", 400,
         "messages[0].content", "must be a string", -1},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"name\":\"y\"}]}", 400,
         "messages[0].name", "is not known", -1},
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
              completion_fit(&c, c.n_tokens, &greedy_ids.limits, &why);
        if (!bad) CHECK_INT(c.max_tokens, 64 - n + 1);
        completion_free(&c);
        CHECK_INT(bad, n > 64);
        if (!bad) continue;
        CHECK_INT(why.status, 413);
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
    CHECK_INT(completion_fit(&c, 65, &all_text.limits, &why), -1);
    CHECK_TEXT(why.message, "prompt: 65 tokens are too many: at most 64 fit");
    CHECK_INT(completion_fit(&c, 0, &all_text.limits, &why), -1);
    CHECK_TEXT(why.message, "has no token");
    CHECK_INT(completion_fit(&c, 64, &all_text.limits, &why), 0);
    CHECK_INT(c.max_tokens, 1);
    completion_free(&c);
}

static void all_fields_are_read(test_run *t)
{
    const char *text = "{\"model\":\"tiny\",\"prompt\":[3,1,511],\"max_tokens\":9,\"stream\":true,"
                       "\"stream_options\":{\"include_usage\":true},\"priority\":\"proactive\","
                       "\"ignore_eos\":true,\"temperature\":0.5,\"top_p\":0.25,\"min_p\":0.125,"
                       "\"top_k\":40,\"seed\":9223372036854775807,\"n\":1}";
    const char *chat = "{\"messages\":[{\"role\":\"system\",\"content\":\"be brief\"},"
                       "{\"content\":\"h\\u00e4?\",\"role\":\"user\"}],\"max_completion_tokens\":5,"
                       "\"enable_thinking\":false}";
    refusal why;
    completion c;
    CHECK_INT(completion_parse(&c, TEXT, text, strlen(text), &all_text, &why), 0);
    CHECK_INT(c.n_tokens, 3);
    CHECK(c.tokens[0] == 3 && c.tokens[1] == 1 && c.tokens[2] == 511);
    CHECK(c.max_tokens == 9 && c.stream && c.include_usage && c.ignore_eos);
    CHECK_INT(c.priority, JOB_PROACTIVE);
    CHECK(c.sample.temperature == 0.5 && c.sample.top_p == 0.25 && c.sample.min_p == 0.125);
    CHECK(c.sample.top_k == 40 && c.sample.seed == INT64_MAX && c.has_seed);
    completion_free(&c);
    CHECK_INT(completion_parse(&c, CHAT, chat, strlen(chat), &all_text, &why), 0);
    CHECK_INT(c.n_messages, 2);
    CHECK(!strcmp(c.messages[0].role, "system") && !strcmp(c.messages[0].content, "be brief"));
    CHECK(!strcmp(c.messages[1].role, "user") && !strcmp(c.messages[1].content, "h\xc3\xa4?"));
    CHECK(c.messages[1].size == 4 && !c.thinking);
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
    CHECK_TEXT(answer, "\"code\":400");
    free(answer);
}

static void tests(test_run *t)
{
    TEST(refused_fields);
    TEST(refused_without_text_or_sampling);
    TEST(prompts_at_the_limit);
    TEST(fits_after_the_tokenizer);
    TEST(all_fields_are_read);
    TEST(long_names_are_cut);
}
TEST_MAIN(tests)
