/* Renders conversations, a line of JSON each, by the family of the template in a file
   (tests/qwen3/chat_templates.sh). */
#define _POSIX_C_SOURCE 200809L
#include "../../../examples/qwen3/chat_template.h"

static const char *text_in(json_t *o, const char *key, size_t *size)
{
    json_t *value = json_object_get(o, key);
    *size = json_string_length(value);
    return json_string_value(value);
}

static void render(json_t *o, qwen3_family family)
{
    static qwen3_message messages[64];
    static qwen3_call calls[64][8];
    static const char *tools[8];
    json_t *given = json_object_get(o, "messages"), *item, *call;
    qwen3_chat_style style = qwen3_style_of(family, json_is_true(json_object_get(o, "thinking")));
    qwen3_string text = {NULL, 0, 0};
    char error[256] = "";
    size_t i, k;
    memset(messages, 0, sizeof messages);
    json_array_foreach(given, i, item)
    {
        qwen3_message *m = &messages[i];
        m->role = json_string_value(json_object_get(item, "role"));
        m->content = text_in(item, "content", &m->size);
        m->reasoning = text_in(item, "reasoning_content", &m->reasoning_size);
        json_array_foreach(json_object_get(item, "calls"), k, call)
        {
            calls[i][k].name = json_string_value(json_array_get(call, 0));
            calls[i][k].arguments = json_string_value(json_array_get(call, 1));
            m->n_calls = k + 1;
        }
        m->calls = calls[i];
    }
    json_array_foreach(json_object_get(o, "tools"), i, item)
    {
        tools[i] = json_string_value(item);
        style.n_tools = i + 1;
    }
    style.tools = tools;
    if (qwen3_chat_prompt(messages, json_array_size(given), style, &text, NULL, error,
                          sizeof error))
        printf("%s\n", error);
    else {
        json_t *all = json_stringn(text.at, text.size);
        char *line = json_dumps(all, JSON_ENCODE_ANY);
        puts(line);
        free(line);
        json_decref(all);
    }
    free(text.at);
}

int main(int argc, char **argv)
{
    static char text[65536];
    char *line = NULL;
    size_t room = 0;
    qwen3_family family;
    FILE *f = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!f || !fread(text, 1, sizeof text - 1, f)) return 2;
    fclose(f);
    if (qwen3_recognise(text, &family)) return 3;
    fprintf(stderr, "%s", qwen3_family_names[family]);
    while (getline(&line, &room, stdin) > 0) {
        json_t *o = json_loads(line, 0, NULL);
        if (!o) return 4;
        render(o, family);
        json_decref(o);
    }
    free(line);
    return 0;
}
