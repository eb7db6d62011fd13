/* What a step of several sequences takes in llama.cpp: Debian does not package its llama-batched-bench. Each sequence has a
   prompt of its own; then all go on by a token a step. Prints the time of a step in milliseconds.

       llama_batch FILE.gguf THREADS SEQUENCES PROMPT STEPS */
#define _POSIX_C_SOURCE 199309L
#include <llama.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void add_token(struct llama_batch *b, int sequence, int position, int samples)
{
    const int n = b->n_tokens++;
    b->token[n] = 7 + sequence, b->pos[n] = position, b->logits[n] = (int8_t)samples;
    b->n_seq_id[n] = 1, b->seq_id[n][0] = sequence;
}

int main(int argc, char **argv)
{
    const int threads = argc == 6 ? atoi(argv[2]) : 0, sequences = argc == 6 ? atoi(argv[3]) : 0,
              prompt = argc == 6 ? atoi(argv[4]) : 0, steps = argc == 6 ? atoi(argv[5]) : 0;
    struct llama_model_params model_params = llama_model_default_params();
    struct llama_context_params params = llama_context_default_params();
    struct llama_model *model;
    struct llama_context *context;
    struct llama_batch b;
    double start;
    if (threads < 1 || sequences < 1 || prompt < 1 || steps < 1) {
        fprintf(stderr, "usage: llama_batch FILE.gguf THREADS SEQUENCES PROMPT STEPS\n");
        return 2;
    }
    ggml_backend_load_all();
    model = llama_model_load_from_file(argv[1], model_params);
    params.n_ctx = (uint32_t)(sequences * (prompt + steps)) + 256;
    params.n_seq_max = (uint32_t)sequences;
    params.n_threads = params.n_threads_batch = threads;
    context = model ? llama_init_from_model(model, params) : NULL;
    if (!context) return 1;
    b = llama_batch_init(sequences * prompt, 0, 1);
    for (int s = 0; s < sequences; s++)
        for (int i = 0; i < prompt; i++) add_token(&b, s, i, i + 1 == prompt);
    if (llama_decode(context, b)) return 1;
    llama_synchronize(context);
    start = now();
    for (int i = 0; i < steps; i++) {
        b.n_tokens = 0;
        for (int s = 0; s < sequences; s++) add_token(&b, s, prompt + i, 1);
        if (llama_decode(context, b)) return 1;
        llama_synchronize(context);
    }
    printf("%.3f\n", 1e3 * (now() - start) / steps);
    return 0;
}
