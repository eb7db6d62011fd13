/* The paths of examples/qwen3's tasks for NVIDIA GPUs that order memory themselves, each as a
   kernel of its own, named after the function: tests/isa/nvidia.py looks at their PTX. For sm_90a,
   which has wgmma. */
#include "examples/qwen3/nvidia/attention.h"
#include "examples/qwen3/nvidia/prefill_experts.h"
#include "examples/qwen3/nvidia/wgmma.h"
#include "examples/qwen3/nvidia/wide.h"

#define PATH(function) extern "C" __global__ void function##_path

/* Memory that the compiler knows to be LDS. */
FLEET_DEVICE fleet_ctx in_lds(fleet_ctx ctx)
{
    ctx.lds = (char *)fleeti_dynamic_lds();
    return ctx;
}

/* ---- flagged data ---- */

PATH(store_kv_partial)(decoder d, kv_split p, vec4 sum, float most, float weight)
{
    store_kv_partial(&d, &p, 1, sum, most, weight, 7);
}
PATH(is_last_split)(decoder d, kv_split p, uint32_t *last)
{
    *last = is_last_split(&d, &p, 1);
}
PATH(combine_kv_splits)(decoder d, kv_split p)
{
    combine_kv_splits(&d, &p, 1, 7);
}
PATH(store_split_k)(fleet_ctx ctx, task_args task, large_m_share s, const float *from)
{
    float sum[LARGE_M_PANEL_TILES * TILE_SUMS];
    for (uint32_t i = 0; i < LARGE_M_PANEL_TILES * TILE_SUMS; i++) sum[i] = from[i];
    store_split_k(&ctx, &task, &s, sum, LARGE_M_PANEL_TILES, 0, 0, MAX_ROWS);
}
PATH(add_partials)(weight_source source, task_args task, fleet_ctx ctx, large_m_share s, float *to)
{
    add_partials(&source, to, split_k_quads(&task, &ctx, &s, 0, 0, 0), &s, 7, PARTIALS_IN_FLIGHT);
}
PATH(share_scales)(fleet_ctx ctx, task_args task, large_m_share s, uint32_t rows)
{
    const fleet_ctx c = in_lds(ctx);
    const linear_lds l = linear_lds_of(&c, reciprocal_of(rows));
    share_scales(&c, &task, &l, &s, rows);
}
PATH(load_scales)
(fleet_ctx ctx, weight_source source, task_args task, large_m_share s, uint32_t rows)
{
    const fleet_ctx c = in_lds(ctx);
    const linear_lds l = linear_lds_of(&c, reciprocal_of(rows));
    load_scales(&c, &source, &task, &l, &s, rows);
}

/* ---- copies to LDS ---- */

PATH(reduce_partials)(fleet_ctx ctx, task_args task, wave_share w, uint32_t rows, float *to)
{
    const fleet_ctx c = in_lds(ctx);
    const linear_lds l = linear_lds_of(&c, reciprocal_of(rows));
    prefetch_residual(&c, &task, &l, 0, TILE_N, rows);
    reduce_partials(&c, &w, &l, l.sums, 1, rows, 0);
    to[c.thread] = l.prefetched[c.thread];
}
PATH(own_args)(fleet_ctx ctx, weight_source source, task_args task, uint32_t *to)
{
    const fleet_ctx c = in_lds(ctx);
    *to = own_args(&c, &source, &task)->rows;
}

/* ---- wgmma ---- */

PATH(open_rows)(uint32_t mbars)
{
    open_rows(mbars);
}
PATH(produce_rows)(row_stages u)
{
    produce_rows(&u);
}
PATH(zero_missing_rows)(fleet_ctx ctx, row_stages u)
{
    const fleet_ctx c = in_lds(ctx);
    const linear_lds l = linear_lds_of(&c, 1);
    zero_missing_rows(&u, &l, c.thread);
}
PATH(consume_chunks)(weight_source source, row_stages u, float *to, uint32_t tiles)
{
    float sum[LARGE_M_PANEL_TILES * TILE_SUMS];
    memset(sum, 0, sizeof sum);
    source.weights.ring = fleeti_pipeline_of(fleeti_dynamic_lds(), DECODER_STAGES, STAGE_BYTES);
    consume_chunks(&source, &u, warp_uniform(fleet_wave_id()), sum, tiles);
    for (uint32_t i = 0; i < LARGE_M_PANEL_TILES * TILE_SUMS; i++)
        to[threadIdx.x * 96 + i] = sum[i];
}

/* ---- prompts ---- */

PATH(prefill_product)(fleet_ctx ctx, task_args task, prefill_division by, uint32_t rows)
{
    const fleet_ctx c = in_lds(ctx);
    const prefill_items t = prefill_items_of(&task, &by, 0, rows);
    prefill_product(&c, &task, &t, rows, 1, 64, 0);
}
PATH(term_tile)(fleet_ctx ctx, task_args task, term_items t, term_work w, term_item item)
{
    const fleet_ctx c = in_lds(ctx);
    w.task = &task, w.t = &t;
    w.ring = ring_of(&c, 0, 0, 8, 24576, PREFILL_WARPS);
    term_tile(&w, &item, 0, TERMS, 1, 128, LAYER_PRODUCT);
}
PATH(flash_queries)(fleet_ctx ctx, decoder d, prefill_block b)
{
    flash_queries(&d, &b, 0, (kv_t *)in_lds(ctx).lds, 0);
}
PATH(flash_copy)(fleet_ctx ctx, task_args task, flash_copies c, const prefill_block *blocks)
{
    const fleet_ctx lds = in_lds(ctx);
    flash_copy(&c, &lds, &task, blocks);
}
PATH(flash_block)
(fleet_ctx ctx, task_args task, flash_copies c, flash_places at, const prefill_block *blocks,
 prefill_block b)
{
    const fleet_ctx lds = in_lds(ctx);
    flash_block(&lds, &task, &c, &at, blocks, &b, 0, 1);
}

/* ---- many sequences ---- */

PATH(wide_copy)(fleet_ctx ctx, task_args task, page_copies c)
{
    wide_copy(&c, &ctx, &task);
}
PATH(wide_heads)(task_args task, prefill_block b, act_t *to)
{
    extern __shared__ kv_t queries[];
    const appended_head own = wide_heads(&task, &b, 0, queries, 1, 1);
    to[threadIdx.x] =
        act_of_float(own.key.low[0] + own.low.value[0] + (float)queries[threadIdx.x ^ 1]);
}
PATH(wide_attend_item)(fleet_ctx ctx, task_args task, page_copies c, uint32_t i)
{
    const fleet_ctx lds = in_lds(ctx);
    kv_t *stages = (kv_t *)lds.lds;
    wide_attend_item(&lds, &task, &c, i, stages, stages + 3 * KV_BLOCK_VALUES, 1, 8, 1);
}

/* ---- whole tiles ---- */

PATH(multiply_large_m)
(fleet_ctx ctx, weight_source source, task_args task, operand in, large_m_share s)
{
    const fleet_ctx c = in_lds(ctx);
    const linear_lds l = large_m_lds_of(&c, &task, &s, in.rows);
    multiply_large_m(&c, &source, &task, &in, &s, &l);
}
PATH(attend_split)(fleet_ctx ctx, task_args task, kv_split p, stage_source from)
{
    const fleet_ctx c = in_lds(ctx);
    uint32_t first = 2;
    attend_split(&c, &task, &p, &from, &first, 1);
}
