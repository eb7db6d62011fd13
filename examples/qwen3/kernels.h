/* kernels.h: the kernels of a session (session.h); those of a server are in serving.h. */
#ifndef QWEN3_KERNELS_H
#define QWEN3_KERNELS_H

#include "task_sets.h"

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
FLEET_KERNEL(decode_large_m, large_m, THREADS)
{
    FLEET_STATIC_WORKER_LOOP(large_m);
}
#define LARGE_M_KERNEL FLEET_KERNEL_OF(decode_large_m)
FLEET_KERNEL(prefill, prefill_set, PREFILL_THREADS)
{
    FLEET_STATIC_WORKER_LOOP(prefill_set);
}
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
