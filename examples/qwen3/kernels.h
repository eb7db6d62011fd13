/* kernels.h: the kernels of the decoder. */
#ifndef QWEN3_KERNELS_H
#define QWEN3_KERNELS_H

#include "tasks/embed.h"
#include "tasks/linear.h"
#include "tasks/moe.h"
#include "tasks/sample.h"

#if defined(FLEET_CUDA)
#include "nvidia/attention.h"
#include "nvidia/wgmma.h"
#else
#include "tasks/attention.h"
#endif

/* What kernels consist of, which differ in how they multiply. */
#define DECODER_TILES(TILE_, P, LINEAR, ATTENTION)                                                 \
    TILE_(P, embed)                                                                                \
    TILE_(P, LINEAR)                                                                               \
    ATTENTION(TILE_, P)                                                                            \
    TILE_(P, route) TILE_(P, expert) TILE_(P, add_experts) TILE_(P, next)
#define TILES_OF_FEW(TILE_, P) DECODER_TILES(TILE_, P, linear, ATTENTION_TILES)

#define STREAMS_OF_FEW(TILE_, P) TILE_(P, linear) TILE_(P, attend) TILE_(P, expert)
DECODER_DISPATCH(op, TILES_OF_FEW, STREAMS_OF_FEW)
FLEET_KERNEL(decode, op, THREADS)
{
    FLEET_WORKER_LOOP(op);
}
/* For plans that are STATIC, as the default is. */
FLEET_KERNEL(decode_static, op, THREADS)
{
    FLEET_STATIC_LOOP(op);
}
#if defined(FLEET_CUDA)
/* The same, for models that are loaded for many sequences. */
typedef op many;
#define TILES_OF_MANY(TILE_, P) DECODER_TILES(TILE_, P, linear_many, ATTENTION_TILES_OF_MANY)
#define STREAMS_OF_MANY(TILE_, P) TILE_(P, linear_many) TILE_(P, attend_many) TILE_(P, expert)
DECODER_DISPATCH(many, TILES_OF_MANY, STREAMS_OF_MANY)
FLEET_KERNEL(decode_many, many, THREADS)
{
    FLEET_STATIC_LOOP(many);
}
#endif

#endif /* QWEN3_KERNELS_H */
