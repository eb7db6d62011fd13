/* kernels.h: the kernels of a session (session.h), which on the CPU and on AMD GPUs a server has,
   too; NVIDIA's of a server are in serving.h and serving_wide.h. */
#ifndef QWEN3_KERNELS_H
#define QWEN3_KERNELS_H

#include "task_sets.h"
#include "weights.h"

FLEET_KERNEL(decode, task_args, FLEET_ANY_THREADS(THREADS))
{
    FLEET_WORKER_LOOP(task_args);
}
#if defined(FLEET_CUDA)
/* For STATIC plans, the default: without the other schedules' code a kernel needs fewer registers. */
FLEET_KERNEL(decode_static, dense, FLEET_ANY_THREADS(THREADS))
{
    FLEET_STATIC_WORKER_LOOP(dense);
}
FLEET_KERNEL(decode_experts, task_args, FLEET_ANY_THREADS(THREADS))
{
    FLEET_STATIC_WORKER_LOOP(task_args);
}
FLEET_KERNEL(decode_large_m, large_m, FLEET_ANY_THREADS(THREADS))
{
    FLEET_STATIC_WORKER_LOOP(large_m);
}
/* The kit's static LDS ends where dynamic LDS may begin, at a multiple of 1 KB. Prompts need a GPU with 227 KB. */
#define STATIC_LDS_BYTES ((FLEET_LDS_BYTES + FLEET_LOOP_LDS_BYTES + 1023) / 1024 * 1024)
typedef char kernels_fit_in_lds[STATIC_LDS_BYTES + FLEET_PIPELINE_BYTES(task_args) + LDS_BYTES <=
                                            DECODER_LDS_BYTES &&
                                        STATIC_LDS_BYTES + PREFILL_LDS_BYTES <= (227u << 10)
                                    ? 1
                                    : -1];
static inline fleet_kernel static_kernel(const model *m)
{
    return m->config.experts ? FLEET_KERNEL_OF(decode_experts)
           : m->large_m      ? FLEET_KERNEL_OF(decode_large_m)
                             : FLEET_KERNEL_OF(decode_static);
}
FLEET_KERNEL(prefill, prefill_set, FLEET_ANY_THREADS(PREFILL_THREADS))
{
    FLEET_STATIC_WORKER_LOOP(prefill_set);
}
FLEET_KERNEL(decode_wide, wide_set, FLEET_ANY_THREADS(PREFILL_THREADS))
{
    FLEET_STATIC_WORKER_LOOP(wide_set);
}
FLEET_KERNEL(prefill_experts, prefill_expert_set, FLEET_ANY_THREADS(PREFILL_THREADS))
{
    FLEET_STATIC_WORKER_LOOP(prefill_expert_set);
}
#else
/* Registers suffice for all schedules. */
static inline fleet_kernel static_kernel(const model *m)
{
    FLEET_UNUSED(m);
    return FLEET_KERNEL_OF(decode);
}
#endif
#if defined(FLEET_HIP)
FLEET_KERNEL(prefill, prefill_set, FLEET_ANY_THREADS(PREFILL_THREADS))
{
    FLEET_STATIC_WORKER_LOOP(prefill_set);
}
FLEET_KERNEL(decode_wide, wide_set, FLEET_ANY_THREADS(PREFILL_THREADS))
{
    FLEET_STATIC_WORKER_LOOP(wide_set);
}
#endif

/* The kernel for a schedule and a model. All kernels have the same ring. */
static inline fleet_kernel decode_kernel(fleet_schedule schedule, const model *m)
{
    return schedule == FLEET_SCHEDULE_STATIC ? static_kernel(m) : FLEET_KERNEL_OF(decode);
}

#endif /* QWEN3_KERNELS_H */
