/* task_sets.h: the tasks of each kind of kernel, and their numbers. On the CPU and on AMD GPUs
   sessions and servers have the same kernels. On NVIDIA GPUs registers are scarce, so that there
   are more sets, which consist of the same tasks, but for
   - linear layers and attention, which have a version for large batches (large M);
   - experts: models that have none have kernels without their tasks;
   - the last tasks: a session has `draw` and `next`, a server `draw_served`, `boundary` and gates.
   A task has the same number in all sets that have it, except that those of experts follow the
   last task. */
#ifndef QWEN3_TASK_SETS_H
#define QWEN3_TASK_SETS_H

#include "tasks/draw.h"
#include "tasks/embed.h"
#include "tasks/linear.h"
#include "tasks/moe.h"
#include "tasks/serve.h"

#if defined(FLEET_CUDA)
#include "nvidia/attention.h"
#include "nvidia/prefill_experts.h"
#include "nvidia/serve_wide.h"
#include "nvidia/wgmma.h"
#include "nvidia/wide.h"
#elif defined(FLEET_HOST)
#include "host/attention.h"
#else
#include "amd/serve_wide.h"
#endif

#if HAS_RANKS
#define JOIN_TASKS(TILE_, P) TILE_(P, join_heads)
#define RANK_TASKS(TILE_, P) TILE_(P, own_experts)
#define PREFILL_RANK_TASKS(TILE_, P, JOIN) TILE_(P, JOIN)
#else
#define JOIN_TASKS(TILE_, P)
#define RANK_TASKS(TILE_, P)
#define PREFILL_RANK_TASKS(TILE_, P, JOIN)
#endif

/* What all sets have. LINEAR and ATTENTION name their versions. */
#define COMMON_TASKS(TILE_, P, LINEAR, ATTENTION)                                                  \
    TILE_(P, embed)                                                                                \
    TILE_(P, LINEAR)                                                                               \
    ATTENTION(TILE_, P)
#define COMMON_STREAMS(TILE_, P, LINEAR, ATTEND) TILE_(P, LINEAR) TILE_(P, ATTEND)
#define SESSION_TASKS(TILE_, P) TILE_(P, draw) TILE_(P, next)
#define SERVER_ENDS(TILE_, P) TILE_(P, boundary) TILE_(P, gate)
#define SERVER_TASKS(TILE_, P) TILE_(P, draw_served) SERVER_ENDS(TILE_, P)
#define EXPERT_TASKS(TILE_, P) TILE_(P, route) TILE_(P, expert_down)

/* For all models. SERVED(task): the number of a task in the set of a server. */
#define ALL_STREAMS(TILE_, P) COMMON_STREAMS(TILE_, P, linear, attend) EXPERT_STREAMS(TILE_, P)
#if defined(FLEET_CUDA)
#define ALL_TASKS(TILE_, P)                                                                        \
    COMMON_TASKS(TILE_, P, linear, ATTENTION_TASKS)                                                \
    SESSION_TASKS(TILE_, P) JOIN_TASKS(TILE_, P) EXPERT_TASKS(TILE_, P) RANK_TASKS(TILE_, P)
#define SERVED_TASKS(TILE_, P)                                                                     \
    COMMON_TASKS(TILE_, P, linear, ATTENTION_TASKS)                                                \
    SERVER_TASKS(TILE_, P) EXPERT_TASKS(TILE_, P)
typedef task_args served;
DECODER_DISPATCH(served, SERVED_TASKS, ALL_STREAMS)
#define SERVED(task) ((uint32_t)served_##task)
#define DRAW_SERVED SERVED(draw_served)
#else
#define ALL_TASKS(TILE_, P)                                                                        \
    COMMON_TASKS(TILE_, P, linear, ATTENTION_TASKS)                                                \
    SESSION_TASKS(TILE_, P)                                                                        \
    SERVER_ENDS(TILE_, P) JOIN_TASKS(TILE_, P) EXPERT_TASKS(TILE_, P) RANK_TASKS(TILE_, P)
#define SERVED(task) ((uint32_t)task_args_##task)
#define DRAW_SERVED SERVED(draw) /* it looks whether there is a server */
#endif
DECODER_DISPATCH(task_args, ALL_TASKS, ALL_STREAMS)

#if !defined(FLEET_HOST)
/* The tasks that take prompts, numbered like those that decode (prefill.h). */
#define PREFILL_TASKS(TILE_, P)                                                                    \
    TILE_(P, prefill_embed)                                                                        \
    TILE_(P, prefill_linear)                                                                       \
    TILE_(P, prefill_attend)                                                                       \
    TILE_(P, prefill_heads)                                                                        \
    TILE_(P, prefill_add)                                                                          \
    TILE_(P, prefill_keep) PREFILL_RANK_TASKS(TILE_, P, prefill_join)
#define SERVED_WIDE_ENDS(TILE_, P)                                                                 \
    TILE_(P, choose_wide)                                                                          \
    TILE_(P, head_wide) TILE_(P, draw_wide) TILE_(P, boundary_wide) TILE_(P, gate_wide)
typedef task_args prefill_set;
PREFILL_DISPATCH(prefill_set, PREFILL_TASKS)
#endif

/* Those that decode many sequences, and those of a server with long chunks: WIDE(task) and
   SERVED_WIDE(task) are the numbers of a task in these. On AMD GPUs they are one set, apart from
   that of prompts, which would take 7% longer with them. */
#if defined(FLEET_CUDA)
#define SERVED_WIDE(task) ((uint32_t)served_wide_##task)
#elif defined(FLEET_HIP)
#define WIDE_TASKS(TILE_, P)                                                                       \
    PREFILL_TASKS(TILE_, P)                                                                        \
    TILE_(P, wide_next) TILE_(P, embed_wide) SERVED_WIDE_ENDS(TILE_, P)
typedef task_args wide_set;
PREFILL_DISPATCH(wide_set, WIDE_TASKS)
#define SERVED_WIDE(task) ((uint32_t)wide_set_##task)
#endif
#define WIDE(task) ((uint32_t)wide_set_##task)

#if defined(FLEET_CUDA)
/* For models without experts: kernels that have no tasks with experts use fewer registers. */
#define DENSE_TASKS(TILE_, P)                                                                      \
    COMMON_TASKS(TILE_, P, linear_dense, ATTENTION_TASKS)                                          \
    SESSION_TASKS(TILE_, P) JOIN_TASKS(TILE_, P)
#define SERVED_DENSE_TASKS(TILE_, P)                                                               \
    COMMON_TASKS(TILE_, P, linear_dense, ATTENTION_TASKS) SERVER_TASKS(TILE_, P)
#define DENSE_STREAMS(TILE_, P) COMMON_STREAMS(TILE_, P, linear_dense, attend)
typedef task_args dense;
typedef task_args served_dense;
DECODER_DISPATCH_WITH_PREFETCH(dense, DENSE_TASKS, DENSE_STREAMS)
DECODER_DISPATCH_WITH_PREFETCH(served_dense, SERVED_DENSE_TASKS, DENSE_STREAMS)

/* For models without experts that were loaded for large batches. */
#define LARGE_M_TASKS(TILE_, P)                                                                    \
    COMMON_TASKS(TILE_, P, linear_large_m, LARGE_M_ATTENTION_TASKS)                                \
    SESSION_TASKS(TILE_, P) JOIN_TASKS(TILE_, P)
#define SERVED_LARGE_M_TASKS(TILE_, P)                                                             \
    COMMON_TASKS(TILE_, P, linear_large_m, LARGE_M_ATTENTION_TASKS) SERVER_TASKS(TILE_, P)
#define LARGE_M_STREAMS(TILE_, P) COMMON_STREAMS(TILE_, P, linear_large_m, attend_large_m)
typedef task_args large_m;
typedef task_args served_large_m;
DECODER_DISPATCH(large_m, LARGE_M_TASKS, LARGE_M_STREAMS)
DECODER_DISPATCH(served_large_m, SERVED_LARGE_M_TASKS, LARGE_M_STREAMS)

/* The same with experts, in a set of their own: they have activations of two terms. */
#define PREFILL_EXPERT_TASKS(TILE_, P)                                                             \
    TILE_(P, prefill_embed_terms)                                                                  \
    TILE_(P, prefill_linear_terms)                                                                 \
    TILE_(P, prefill_attend_terms)                                                                 \
    TILE_(P, prefill_heads)                                                                        \
    TILE_(P, prefill_add_terms)                                                                    \
    TILE_(P, prefill_keep)                                                                         \
    PREFILL_RANK_TASKS(TILE_, P, prefill_join_terms)                                               \
    TILE_(P, prefill_route) TILE_(P, prefill_gather) TILE_(P, prefill_combine)
typedef task_args prefill_expert_set;
FLEET_DISPATCH(prefill_expert_set, PREFILL_EXPERT_TASKS)

/* Those that decode many sequences. */
#define WIDE_TASKS(TILE_, P)                                                                       \
    TILE_(P, prefill_embed)                                                                        \
    TILE_(P, prefill_linear)                                                                       \
    TILE_(P, wide_attend) TILE_(P, wide_head) TILE_(P, prefill_add) TILE_(P, wide_next)
typedef task_args wide_set;
FLEET_DISPATCH(wide_set, WIDE_TASKS)

/* Those of a server with long chunks; and of one whose model has experts. */
#define SERVED_WIDE_TASKS(TILE_, P)                                                                \
    TILE_(P, embed_wide)                                                                           \
    TILE_(P, prefill_linear)                                                                       \
    TILE_(P, attend_served)                                                                        \
    TILE_(P, prefill_heads)                                                                        \
    TILE_(P, prefill_add)                                                                          \
    SERVED_WIDE_ENDS(TILE_, P)
typedef task_args served_wide;
FLEET_DISPATCH(served_wide, SERVED_WIDE_TASKS)
#define SERVED_WIDE_EXPERT_TASKS(TILE_, P)                                                         \
    TILE_(P, embed_wide_terms)                                                                     \
    TILE_(P, served_linear_terms)                                                                  \
    TILE_(P, attend_served_terms)                                                                  \
    TILE_(P, prefill_heads)                                                                        \
    TILE_(P, prefill_add_terms)                                                                    \
    TILE_(P, choose_wide_terms)                                                                    \
    TILE_(P, head_wide_terms)                                                                      \
    TILE_(P, draw_wide)                                                                            \
    TILE_(P, boundary_wide_terms)                                                                  \
    TILE_(P, gate_wide_terms)                                                                      \
    TILE_(P, served_route) TILE_(P, served_gather) TILE_(P, served_combine)
typedef task_args served_wide_experts;
FLEET_DISPATCH(served_wide_experts, SERVED_WIDE_EXPERT_TASKS)
#endif

#endif /* QWEN3_TASK_SETS_H */
