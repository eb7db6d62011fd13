/* What tests/isa/nvidia.py looks at of examples/qwen3: each path of its tiles for NVIDIA GPUs that orders memory by itself, as a
   kernel of its own, named after the function. For sm_90a, which has wgmma. */
#include "examples/qwen3/nvidia/attention.h"
#include "examples/qwen3/nvidia/wgmma.h"

#define PATH(function) extern "C" __global__ void function##_path

/* Memory that the compiler knows to be LDS. */
FLEET_DEVICE fleet_ctx in_lds(fleet_ctx ctx)
{
    ctx.lds = (char *)fleeti_dynamic_lds();
    return ctx;
}

/* ---- flagged data ---- */

PATH(leave_part)(decoder d, attention_part p, four sum, float most, float weight)
{
    leave_part(&d, &p, 1, sum, most, weight, 7);
}
PATH(is_last_part)(decoder d, attention_part p, uint32_t *last)
{
    *last = is_last_part(&d, &p, 1);
}
PATH(join_parts)(decoder d, attention_part p)
{
    join_parts(&d, &p, 1, 7);
}
PATH(leave_joint)(fleet_ctx ctx, op o, many_share s, const float *from)
{
    float sum[MOST_TOGETHER * TILE_SUMS];
    for (uint32_t i = 0; i < MOST_TOGETHER * TILE_SUMS; i++) sum[i] = from[i];
    leave_joint(&ctx, &o, &s, sum, MOST_TOGETHER, 0, 0, MOST_ROWS);
}
PATH(add_others)(weight_source source, op o, fleet_ctx ctx, many_share s, float *to)
{
    add_others(&source, to, joint_words(&o, &ctx, &s, 0, 0, 0), &s, 7, PARTS_LOADED);
}
PATH(scale_shared)(fleet_ctx ctx, op o, many_share s, uint32_t rows)
{
    const fleet_ctx c = in_lds(ctx);
    const product_lds l = product_lds_of(&c, rows);
    scale_shared(&c, &o, &l, &s, rows);
}
PATH(get_scales)(fleet_ctx ctx, weight_source source, op o, many_share s, uint32_t rows)
{
    const fleet_ctx c = in_lds(ctx);
    const product_lds l = product_lds_of(&c, rows);
    get_scales(&c, &source, &o, &l, &s, rows);
}

/* ---- copies to LDS ---- */

PATH(add_parts)(fleet_ctx ctx, op o, wave_share w, uint32_t rows, float *to)
{
    const fleet_ctx c = in_lds(ctx);
    const product_lds l = product_lds_of(&c, rows);
    fetch_residual(&c, &o, &l, 0, TILE, rows);
    add_parts(&c, &w, &l, l.sums, 1, rows * TILE, rows);
    to[c.thread] = l.ahead[c.thread];
}
PATH(own_op)(fleet_ctx ctx, weight_source source, op o, uint32_t *to)
{
    const fleet_ctx c = in_lds(ctx);
    *to = own_op(&c, &source, &o)->rows;
}

/* ---- wgmma ---- */

PATH(open_rows)(uint32_t counts)
{
    open_rows(counts);
}
PATH(copy_rows)(row_units u)
{
    copy_rows(&u);
}
PATH(clear_rows)(fleet_ctx ctx, row_units u)
{
    const fleet_ctx c = in_lds(ctx);
    const product_lds l = product_lds_of(&c, 1);
    clear_rows(&u, &l, c.thread);
}
PATH(add_many)(weight_source source, row_units u, float *to, uint32_t tiles)
{
    float sum[MOST_TOGETHER * TILE_SUMS];
    memset(sum, 0, sizeof sum);
    source.weights.ring = fleeti_stream_of(fleeti_dynamic_lds(), DECODER_SLOTS, SLOT_BYTES);
    add_many(&source, &u, uniform(fleet_wave_id()), sum, tiles);
    for (uint32_t i = 0; i < MOST_TOGETHER * TILE_SUMS; i++) to[threadIdx.x * 96 + i] = sum[i];
}

/* ---- whole tiles ---- */

PATH(multiply_many)(fleet_ctx ctx, weight_source source, op o, operand in, many_share s)
{
    const fleet_ctx c = in_lds(ctx);
    const product_lds l = many_lds_of(&c, &o, &s, in.rows);
    multiply_many(&c, &source, &o, &in, &s, &l);
}
PATH(attend_part)(fleet_ctx ctx, op o, attention_part p, piece_source from)
{
    const fleet_ctx c = in_lds(ctx);
    uint32_t first = 2;
    attend_part(&c, &o, &p, &from, &first, 1);
}
