/* engine.h: the interface between the HTTP server and the engine that decodes. An engine knows token ids, and no text.

       engine *e = engine_open(&desc, error, sizeof error);
       engine_submit(e, &job, &ticket, &fits)      a job waits in the queue of its class
       desc.on_event(desc.user, &event)            its tokens and its end, on a thread of the engine
       engine_stop(e), engine_close(e)

   EVENTS    A job that was taken by engine_submit has any number of ENGINE_TOKEN events, then exactly one of
             ENGINE_FINISHED, ENGINE_CANCELLED and ENGINE_FAILED, after which the engine does not use job.user again.
             Events of one job come one at a time and in order. The first may come before engine_submit returns.
   THREADS   Every function may be called from any thread. on_event is called by threads of the engine, and by
             engine_cancel and engine_stop, whose callers therefore hold no lock that on_event takes. It must not wait,
             and must not call engine_cancel, engine_stop or engine_close.
   ENGINES   engine_qwen3.c decodes; tests/serve/engine_test.c is for tests. A program is linked with one of them. */
#ifndef SERVE_ENGINE_H
#define SERVE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

typedef struct engine engine;

/* Reactive: a person waits for the answer. Proactive: work in the background. */
typedef enum job_class { JOB_REACTIVE, JOB_PROACTIVE, JOB_CLASSES } job_class;
static const char *const job_class_names[JOB_CLASSES] = {"reactive", "proactive"};

typedef struct sampling {
    double temperature; /* 0: the most likely token; then the other fields have no effect */
    double top_p;       /* 1: all tokens */
    double min_p;       /* 0: all tokens */
    uint32_t top_k;     /* 0: all tokens */
    uint64_t seed;
} sampling;

/* What changes the logits that a job's tokens are chosen by; zeros: nothing. tasks/shape.h of
   examples/qwen3 has the order. */
#define ENGINE_MAX_BIASED 1024u
#define ENGINE_MAX_ENDS 64u
typedef struct engine_bias {
    uint32_t token; /* in no other entry of the job */
    float bias;     /* is added */
} engine_bias;
typedef struct shaping {
    double repetition;          /* of tokens of prompt and answer; 0 or 1: no penalty */
    double presence, frequency; /* of tokens of the answer */
    uint32_t min_tokens;        /* of the answer, before a token ends it */
    uint32_t n_biased, n_ends;
    /* Both stay where they are until the job's last event. */
    const engine_bias *biased;
    const uint32_t *ends; /* tokens that end the answer beside end-of-sequence tokens */
} shaping;

/* How likely the model finds a token, and the most likely ones: logarithms of probabilities, before
   temperature and what shapes logits. */
#define ENGINE_MAX_TOP 20u
typedef struct engine_likelihood {
    float own;
    uint32_t token[ENGINE_MAX_TOP];
    float of[ENGINE_MAX_TOP]; /* those of `token`, as many as the job has asked for */
} engine_likelihood;

typedef struct engine_job {
    const uint32_t *prompt; /* copied by engine_submit */
    uint32_t n_prompt;
    uint32_t max_tokens; /* to generate */
    uint32_t ignore_eos; /* 1: an end-of-sequence token does not end it */
    job_class priority;
    sampling sample;
    shaping shape;
    uint32_t likelihoods; /* 0: none are told; 1 + how many of the most likely tokens */
    void *user;
} engine_job;

typedef enum engine_event_kind {
    ENGINE_TOKEN,
    ENGINE_FINISHED, /* at max_tokens, or at an end-of-sequence token, which was its last one */
    ENGINE_CANCELLED,
    ENGINE_FAILED
} engine_event_kind;

typedef struct engine_event {
    engine_event_kind kind;
    void *user;
    uint32_t token;
    uint32_t reused; /* ENGINE_TOKEN: tokens of the prompt that an earlier one has left computed */
    const engine_likelihood *likelihood; /* ENGINE_TOKEN: if the job asked; valid during the call */
    uint32_t at_eos;   /* ENGINE_FINISHED: 1 if its last token is an end-of-sequence token */
    const char *error; /* ENGINE_FAILED: why; valid during the call */
} engine_event;

typedef struct engine_desc {
    const char *dir;     /* of the model */
    uint32_t context;    /* tokens of prompt and answer; 0: as many as the model has positions */
    uint32_t batch;      /* jobs that are decoded together, at most */
    uint32_t chunk;      /* tokens of a prompt in a step, at most; 0: as the engine sees fit */
    uint32_t beside;     /* the same beside jobs that are decoded; 0: as many */
    uint32_t queue;      /* jobs that wait, at most, in each class */
    uint32_t dequantize; /* 1: quantised weights become bf16 when they are loaded */
    uint32_t workers; /* threads, on the CPU; 0: one for each processor that the process may use */
    void (*on_event)(void *user, const engine_event *event);
    void *user;
} engine_desc;

/* Constant while the engine is open. */
typedef struct engine_limits {
    uint32_t vocab;
    uint32_t
        context; /* n_prompt + max_tokens - 1 of a job, at most: the last token has no successor */
    uint32_t samples; /* 0: greedy only; a temperature other than 0 and what shapes logits must be
                         refused */
} engine_limits;

/* Of one moment. */
typedef struct engine_load {
    uint32_t waiting[JOB_CLASSES], running[JOB_CLASSES];
    uint32_t failed; /* 1: the device failed; every job ends, and none is taken */
    char error[256]; /* why it failed */
} engine_load;

typedef enum engine_status {
    ENGINE_OK,
    ENGINE_BUSY, /* the queue of its class is full */
    ENGINE_TOO_LONG, /* can never run; *fits: the largest max_tokens that can, 0: the prompt is too long */
    ENGINE_DOWN /* stopped or failed */
} engine_status;

/* Null and an error if it cannot be opened. */
engine *engine_open(const engine_desc *desc, char *error, size_t bytes);
engine_limits engine_limits_of(const engine *e);
engine_load engine_load_of(engine *e);
engine_status engine_submit(engine *e, const engine_job *job, uint64_t *ticket, uint32_t *fits);
/* Asks a job to end. Its end is still an event. A ticket whose job has ended is ignored. */
void engine_cancel(engine *e, uint64_t ticket);
/* Cancels every job, and returns when each of them had its last event. */
void engine_stop(engine *e);
void engine_close(engine *e);

#endif /* SERVE_ENGINE_H */
