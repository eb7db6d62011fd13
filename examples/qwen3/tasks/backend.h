/* tasks/backend.h: what a backend defines.

       pack_at(column, k, piece_k)    where in a block of BLOCK k's and TILE columns a weight stands
       weight_at, act_at    where in the weights of a wide tile, and where in activations; piece_k: how many k's of a tile
                            are together, where there are several ways
       multiply(...)        the product of some rows with the columns of a wide tile
       own_op, tile_lds     a tile's arguments where they are read fast, and the LDS for the rest
       rows_of              of the step, from these arguments
       fetch_residual       begins to bring ahead what sums will be added to
       put_squares          the sum of the squares of each row of a tile
       load_four, put_four, put_four_acts    of values that stand together, from where so many are aligned
       DECODER_DISPATCH     FLEET_DISPATCH, with a weight stream where there is one */
#ifndef QWEN3_TASKS_BACKEND_H
#define QWEN3_TASKS_BACKEND_H

#include "operands.h"

#if defined(FLEET_HOST)
#include "../backend_host.h"
#elif defined(FLEET_CUDA)
#include "../backend_nvidia.h"
#else
#include "../backend_amd.h"
#endif

FLEET_DEVICE product_lds product_lds_of(const fleet_ctx *ctx, uint32_t rows)
{
    product_lds l;
    l.parts = (float *)tile_lds(ctx);
    l.sums = l.parts + PRODUCT_PARTS;
    l.scale = l.sums + PRODUCT_SUMS;
    l.best = l.scale + MOST_ROWS;
    l.best_token = (int32_t *)(l.best + MOST_ROWS * LOOKERS);
    l.wanted = l.best_token + MOST_ROWS * LOOKERS;
    l.behind = l.wanted + MOST_ROWS;
    l.ahead = (float *)l.behind, l.ahead_rows = AHEAD_ROWS, l.ahead_columns = MOST_WIDE * TILE;
    l.inverse = inverse_of(rows);
    return l;
}

/* put_act of four neighbours. */
FLEET_DEVICE void put_acts(act *to, uint32_t second, four values)
{
    act first[4], others[4];
    for (uint32_t i = 0; i < 4; i++) {
        first[i] = act_of(values.value[i]);
        others[i] = act_of(values.value[i] - float_of(first[i]));
    }
    put_four_acts(to, first);
    if (second) put_four_acts(to + second, others);
}

#endif /* QWEN3_TASKS_BACKEND_H */
