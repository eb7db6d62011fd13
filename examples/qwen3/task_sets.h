/* task_sets.h: the tasks of each kind of kernel, and their numbers. The sets consist of the same tasks, but for linear layers
   and attention, which NVIDIA GPUs also have in a version for large batches (large M), and for the last task: a session
   has `next`, a server `boundary` and gates. A task has the same number in all sets that have it. */
#ifndef QWEN3_TASK_SETS_H
#define QWEN3_TASK_SETS_H

#include "tasks/draw.h"
#include "tasks/embed.h"
#include "tasks/linear.h"
#include "tasks/moe.h"
#include "tasks/serve.h"

#if defined(FLEET_CUDA)
#include "nvidia/attention.h"
#include "nvidia/prefill.h"
#include "nvidia/wgmma.h"
#else
#include "tasks/attention.h"
#endif

/* A program for several ranks has these too; others would only be slowed down. */
#if defined(FLEET_MPI)
#include "tasks/ranks.h"
#define RANK_TASKS(TILE_, P) TILE_(P, add_ranks) TILE_(P, own_experts) TILE_(P, sum_experts)
#else
#define RANK_TASKS(TILE_, P)
#endif

/* LINEAR and ATTENTION name the versions that the set has. */
#define DECODER_TASKS(TILE_, P, LINEAR, ATTENTION)                                                 \
    TILE_(P, embed)                                                                                \
    TILE_(P, LINEAR)                                                                               \
    ATTENTION(TILE_, P)                                                                            \
    TILE_(P, route) TILE_(P, expert) TILE_(P, add_experts) TILE_(P, draw)

#define SMALL_M_TASKS(TILE_, P)                                                                    \
    DECODER_TASKS(TILE_, P, linear, ATTENTION_TASKS) TILE_(P, next) RANK_TASKS(TILE_, P)
#define SERVED_TASKS(TILE_, P)                                                                     \
    DECODER_TASKS(TILE_, P, linear, ATTENTION_TASKS) TILE_(P, boundary) TILE_(P, gate)
#define SMALL_M_STREAMS(TILE_, P) TILE_(P, linear) TILE_(P, attend) TILE_(P, expert)
typedef task_args served;
DECODER_DISPATCH(task_args, SMALL_M_TASKS, SMALL_M_STREAMS)
DECODER_DISPATCH(served, SERVED_TASKS, SMALL_M_STREAMS)

#if defined(FLEET_CUDA)
/* The same for models that were loaded for large batches. */
#define LARGE_M_TASKS(TILE_, P)                                                                    \
    DECODER_TASKS(TILE_, P, linear_large_m, LARGE_M_ATTENTION_TASKS) TILE_(P, next)
#define SERVED_LARGE_M_TASKS(TILE_, P)                                                             \
    DECODER_TASKS(TILE_, P, linear_large_m, LARGE_M_ATTENTION_TASKS)                               \
    TILE_(P, boundary) TILE_(P, gate)
#define LARGE_M_STREAMS(TILE_, P) TILE_(P, linear_large_m) TILE_(P, attend_large_m) TILE_(P, expert)
typedef task_args large_m;
typedef task_args served_large_m;
DECODER_DISPATCH(large_m, LARGE_M_TASKS, LARGE_M_STREAMS)
DECODER_DISPATCH(served_large_m, SERVED_LARGE_M_TASKS, LARGE_M_STREAMS)

/* The tasks that take prompts, numbered like those that decode (prefill.h). */
#define PREFILL_TASKS(TILE_, P)                                                                    \
    TILE_(P, prefill_embed)                                                                        \
    TILE_(P, prefill_linear) TILE_(P, prefill_attend) TILE_(P, prefill_heads)
typedef task_args prefill_set;
FLEET_DISPATCH(prefill_set, PREFILL_TASKS)
#endif

#endif /* QWEN3_TASK_SETS_H */
