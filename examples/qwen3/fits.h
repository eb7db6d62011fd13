/* fits.h: whether a model and its sequences fit into memory, before anything is loaded, and what
   would fit. */
#ifndef QWEN3_FITS_H
#define QWEN3_FITS_H

#include "session.h"

typedef struct bytes_needed {
    uint64_t weights, session;
} bytes_needed;
static int count_bytes(const qwen3_config *config, const qwen3_checkpoint *from,
                       const session_desc *desc, uint32_t n, bytes_needed *bytes, char *error)
{
    model m;
    session s;
    int bad = model_begin(&m, config, desc->schedule, n);
    m.memory.counts = 1;
    if (bad || model_fill(&m, from, NULL)) {
        memcpy(error, m.error, ERROR_BYTES);
        model_free(&m);
        return m.refused ? RUN_REFUSED : RUN_FAILED;
    }
    bad = session_begin(&s, &m, desc);
    s.memory.counts = 1, session_rounds(&s, n);
    bad = bad || session_buffers(&s);
    bytes->weights = m.memory.bytes;
    bytes->session = s.memory.bytes + (uint64_t)count_step_tasks(&m, &s.d) * sizeof(task_args);
    if (bad) memcpy(error, s.error, ERROR_BYTES);
    model_free(&m);
    session_free(&s);
    return !bad ? 0 : s.refused ? RUN_REFUSED : RUN_FAILED;
}

/* The longest context, or the most sequences, in [least, end) that fits; 0: none does. */
typedef enum fitted { FIT_CONTEXT, FIT_SEQUENCES } fitted;
static uint32_t largest_that_fits(const qwen3_config *config, const qwen3_checkpoint *from,
                                  session_desc desc, uint32_t n, uint64_t left, fitted what,
                                  uint32_t least, uint32_t end, char *error)
{
    uint32_t best = 0;
    while (least < end) {
        const uint32_t middle = least + (end - least) / 2;
        bytes_needed bytes;
        if (what == FIT_CONTEXT)
            desc.context = middle;
        else
            n = middle;
        if (count_bytes(config, from, &desc, n, &bytes, error)) return 0;
        if (bytes.weights + bytes.session <= left)
            best = middle, least = middle + 1;
        else
            end = middle;
    }
    return best;
}

/* Whether the session does not fit into `left` bytes of device memory, of which plan, state and
   trace need some, too. The error names what would fit. shortest: the context that the requests
   need. 0, or RUN_... */
static int memory_refused(const qwen3_config *config, const qwen3_checkpoint *from,
                          const session_desc *desc, uint32_t n, uint32_t shortest, uint64_t left,
                          char *error)
{
    bytes_needed bytes;
    char context[64] = "", batch[64] = "";
    const uint64_t room = left - left / 64;
    uint32_t largest;
    int bad = count_bytes(config, from, desc, n, &bytes, error);
    if (bad || bytes.weights + bytes.session <= room) return bad;
    largest = largest_that_fits(config, from, *desc, n, room, FIT_CONTEXT, shortest, desc->context,
                                error);
    if (largest) snprintf(context, sizeof context, "--context %u would fit", largest);
    largest = largest_that_fits(config, from, *desc, n, room, FIT_SEQUENCES, 1, n, error);
    if (largest) snprintf(batch, sizeof batch, "--batch %u would fit", largest);
    snprintf(error, ERROR_BYTES,
             "%.3f GB of memory are needed (weights %.3f, %u sequences of up to %u tokens %.3f), "
             "and %.3f are free: %s%s%s",
             (double)(bytes.weights + bytes.session) / 1e9, (double)bytes.weights / 1e9, n,
             desc->context, (double)bytes.session / 1e9, (double)left / 1e9, context,
             *context && *batch ? ", or " : "",
             *batch     ? batch
             : *context ? ""
                        : "no --context or --batch would fit");
    return RUN_REFUSED;
}

#endif /* QWEN3_FITS_H */
