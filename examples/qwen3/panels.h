/* panels.h: how many tiles of columns a panel of a layer has. A worker multiplies panel after panel. */
#ifndef QWEN3_PANELS_H
#define QWEN3_PANELS_H

#include "tasks/backend.h"

/* Tiles of a panel, at most max_panel_tiles, of `matrices` matrices: the number with which the busiest worker has the
   least to do. */
static inline uint32_t even_panel_tiles(uint32_t n, uint32_t matrices, uint32_t max_panel_tiles,
                                        uint32_t workers)
{
    uint32_t best = 1, least = UINT32_MAX;
    for (uint32_t panel_tiles = 1; panel_tiles <= max_panel_tiles; panel_tiles++) {
        const uint32_t panels = ceil_div(n, panel_tiles * TILE_N) * matrices,
                       busiest = ceil_div(panels, workers) * panel_tiles;
        if (busiest <= least) best = panel_tiles, least = busiest;
    }
    return best;
}

/* Of a large-M layer: the maximum, if workers will share panels. Otherwise those for which the busiest worker copies least: of each
   panel a stage for two tiles, and meanwhile all rows, which take about as long as two stages. */
#define ROWS_AS_STAGES 2u
static inline uint32_t large_m_stages(uint32_t n, uint32_t panel_tiles, uint32_t workers)
{
    return ceil_div(ceil_div(n, panel_tiles * TILE_N), workers) *
           (ceil_div(panel_tiles, 2) + ROWS_AS_STAGES);
}
static inline uint32_t large_m_panel_tiles(uint32_t n, uint32_t workers)
{
    uint32_t best = LARGE_M_PANEL_TILES;
    if (2 * ceil_div(n, LARGE_M_PANEL_TILES * TILE_N) <= workers) return best;
    for (uint32_t panel_tiles = best - 1; panel_tiles; panel_tiles--)
        if (large_m_stages(n, panel_tiles, workers) < large_m_stages(n, best, workers))
            best = panel_tiles;
    return best;
}

#endif /* QWEN3_PANELS_H */
