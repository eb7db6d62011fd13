/* trace.h: requests as rows of a timeline, in the JSON that Perfetto (https://ui.perfetto.dev) and chrome://tracing read.

   A class is a process, and a request a row of it: a slice until its first token, one for each further token, and how it
   ended. Two counters show how many wait and run. The file may be read before trace_end, which adds the last bracket. */
#ifndef SERVE_TRACE_H
#define SERVE_TRACE_H

#include "../tools/output.h"
#include "engine.h"

/* Times are seconds since the server began. */
static void trace_begin(output *f)
{
    output_format(f, "[");
    for (uint32_t k = 0; k < JOB_CLASSES; k++)
        output_format(
            f, "%s\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"args\":{\"name\":\"%s\"}}",
            k ? "," : "", k + 1, job_class_names[k]);
}

/* The row of a request. Each event is one call of output_format, which locks the file. */
static void trace_request(output *f, job_class priority, uint64_t number, uint32_t n_prompt,
                          uint32_t max_tokens)
{
    output_format(
        f,
        ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%llu,\"args\":{\"name\":"
        "\"request "
        "%llu: %u tokens, up to %u more\"}}",
        (unsigned)priority + 1, (unsigned long long)number, (unsigned long long)number, n_prompt,
        max_tokens);
}

static void trace_token(output *f, job_class priority, uint64_t number, uint32_t index, double from,
                        double to)
{
    output_format(
        f,
        ",\n{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%u,\"tid\":%llu,\"ts\":%.3f,\"dur\":%.3f,"
        "\"args\":"
        "{\"token\":%u}}",
        index ? "token" : "first token", (unsigned)priority + 1, (unsigned long long)number,
        1e6 * from, 1e6 * (to - from), index);
}

static void trace_end_of_request(output *f, job_class priority, uint64_t number, const char *how,
                                 double at)
{
    output_format(
        f, ",\n{\"ph\":\"i\",\"name\":\"%s\",\"pid\":%u,\"tid\":%llu,\"ts\":%.3f,\"s\":\"t\"}", how,
        (unsigned)priority + 1, (unsigned long long)number, 1e6 * at);
}

static void trace_load(output *f, const engine_load *load, double at)
{
    for (uint32_t k = 0; k < JOB_CLASSES; k++)
        output_format(f,
                      ",\n{\"ph\":\"C\",\"name\":\"requests\",\"pid\":%u,\"ts\":%.3f,\"args\":{"
                      "\"waiting\":%u,"
                      "\"running\":%u}}",
                      k + 1, 1e6 * at, load->waiting[k], load->running[k]);
}

static void trace_end(output *f)
{
    output_format(f, "\n]\n");
}

#endif /* SERVE_TRACE_H */
