/* kernels.h: the kernels. They consist of the same tasks, but for linear layers and attention, which NVIDIA GPUs also have
   in a version for large batches (large M). */
#ifndef QWEN3_KERNELS_H
#define QWEN3_KERNELS_H

#include "tasks/draw.h"
#include "tasks/embed.h"
#include "tasks/linear.h"
#include "tasks/moe.h"

#if defined(FLEET_CUDA)
#include "nvidia/attention.h"
#include "nvidia/wgmma.h"
#else
#include "tasks/attention.h"
#endif

/* The tasks of a kernel; LINEAR and ATTENTION name the versions that it has. */
#define DECODER_TASKS(TILE_, P, LINEAR, ATTENTION)                                                 \
    TILE_(P, embed)                                                                                \
    TILE_(P, LINEAR)                                                                               \
    ATTENTION(TILE_, P)                                                                            \
    TILE_(P, route) TILE_(P, expert) TILE_(P, add_experts) TILE_(P, draw) TILE_(P, next)
#define SMALL_M_TASKS(TILE_, P) DECODER_TASKS(TILE_, P, linear, ATTENTION_TASKS)

#define SMALL_M_STREAMS(TILE_, P) TILE_(P, linear) TILE_(P, attend) TILE_(P, expert)
DECODER_DISPATCH(task_args, SMALL_M_TASKS, SMALL_M_STREAMS)
FLEET_KERNEL(decode, task_args, THREADS)
{
    FLEET_WORKER_LOOP(task_args);
}
/* For STATIC plans, the default: without the other schedules' code the kernel needs fewer
   registers. */
FLEET_KERNEL(decode_static, task_args, THREADS)
{
    FLEET_STATIC_WORKER_LOOP(task_args);
}
#if defined(FLEET_CUDA)
/* The same for models that were loaded for large batches. */
typedef task_args large_m;
#define LARGE_M_TASKS(TILE_, P) DECODER_TASKS(TILE_, P, linear_large_m, LARGE_M_ATTENTION_TASKS)
#define LARGE_M_STREAMS(TILE_, P) TILE_(P, linear_large_m) TILE_(P, attend_large_m) TILE_(P, expert)
DECODER_DISPATCH(large_m, LARGE_M_TASKS, LARGE_M_STREAMS)
FLEET_KERNEL(decode_large_m, large_m, THREADS)
{
    FLEET_STATIC_WORKER_LOOP(large_m);
}
#define LARGE_M_KERNEL FLEET_KERNEL_OF(decode_large_m)
#else
#define LARGE_M_KERNEL FLEET_KERNEL_OF(decode_static)
#endif

/* The kernel for a schedule, and for models that were loaded for large batches, which implies
   STATIC. All kernels have the same ring. */
static inline fleet_kernel decode_kernel(fleet_schedule schedule, uint32_t for_large_m)
{
    if (schedule != FLEET_SCHEDULE_STATIC) return FLEET_KERNEL_OF(decode);
    return for_large_m ? LARGE_M_KERNEL : FLEET_KERNEL_OF(decode_static);
}

#endif /* QWEN3_KERNELS_H */
