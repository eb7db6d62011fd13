/* packing.h: packs matrices of a checkpoint for a backend's matrix units, panel after panel, into device memory. */
#ifndef QWEN3_PACKING_H
#define QWEN3_PACKING_H

#include "checkpoint.h"
#include "device_memory.h"
#include "tasks/backend.h"

#include <pthread.h>

static uint32_t padded(uint32_t n, uint32_t to)
{
    return ceil_div(n, to) * to;
}

/* The rows of checkpoint tensors that become the columns of a packed matrix. */
typedef struct matrix_part {
    const qwen3_tensor *tensor; /* null: zeros */
    uint32_t first, rows;       /* beyond the tensor's: zeros */
    uint32_t first_column, columns;
} matrix_part;
typedef struct matrix_source {
    matrix_part part[3]; /* concatenated, */
    uint32_t parts;
    uint32_t alternate; /* or 1: TILE_N / 2 rows of the first and second part alternate */
} matrix_source;

static matrix_source source_of(const qwen3_tensor *a, const qwen3_tensor *b, const qwen3_tensor *c,
                               uint32_t alternate)
{
    matrix_source s;
    const qwen3_tensor *t[3];
    t[0] = a, t[1] = b, t[2] = c;
    memset(&s, 0, sizeof s);
    s.alternate = alternate;
    for (uint32_t i = 0; i < 3 && t[i]; i++)
        s.part[s.parts].tensor = t[i], s.part[s.parts].rows = t[i]->rows,
        s.part[s.parts++].columns = t[i]->columns;
    return s;
}
/* Takes rows [rank n, (rank + 1) n) of a part, or these columns. */
static void take_rows(matrix_part *p, uint32_t rank, uint32_t n)
{
    p->first = rank * n, p->rows = n;
}
static void take_columns(matrix_part *p, uint32_t rank, uint32_t n)
{
    const uint32_t all = p->columns;
    p->first_column = rank * n < all ? rank * n : all;
    p->columns = all - p->first_column < n ? all - p->first_column : n;
}

/* Finds the part and the row of its tensor that column n comes from; null: padding. */
static const matrix_part *source_row(const matrix_source *s, uint32_t n, uint32_t *row)
{
    const matrix_part *p = NULL;
    if (s->alternate) {
        p = &s->part[n % TILE_N >= TILE_N / 2];
        n = n / TILE_N * (TILE_N / 2) + n % (TILE_N / 2);
    } else {
        uint32_t i = 0;
        while (i < s->parts && n >= s->part[i].rows) n -= s->part[i++].rows;
        if (i < s->parts) p = &s->part[i];
    }
    if (!p || !p->tensor || n >= p->rows || p->first + n >= p->tensor->rows) return NULL;
    *row = p->first + n;
    return p;
}

/* How a matrix is packed: n columns of k weights, panel after panel. */
typedef struct layout {
    uint32_t n, k;
    uint32_t panel_tiles, last_panel_tiles; /* tiles of a panel; of the last panel */
    uint32_t inner_k;                       /* see weight_at */
    weight_format format;
} layout;
static weight_format bf16_format(void)
{
    weight_format f;
    f.codes = WEIGHTS_BF16, f.group = 0;
    return f;
}
static uint32_t panels_of(const layout *l)
{
    return ceil_div(l->n, l->panel_tiles * TILE_N);
}
/* Bytes of a packed panel, and of the whole matrix. */
static uint32_t panel_bytes_of(const layout *l)
{
#if HAS_PACKED_CODES
    return l->panel_tiles * coded_tile_bytes(&l->format, padded(l->k, K_ALIGN));
#else
    return l->panel_tiles * TILE_N * padded(l->k, K_ALIGN) * 2;
#endif
}
static uint64_t bytes_of(const layout *l)
{
    const uint64_t tiles = (uint64_t)(panels_of(l) - 1) * l->panel_tiles + l->last_panel_tiles;
    return tiles * (panel_bytes_of(l) / l->panel_tiles);
}

/* Packs some panels, padded with zeros, and copies them to `to` on the device. Several threads run
   this. */
typedef struct packing {
    const qwen3_checkpoint *checkpoint; /* its pages are not needed once they are packed; or null */
    const matrix_source *from;
    const layout *as;
    uint32_t first, end; /* panels */
    bf16 *to;
    uint32_t refused;
    char error[ERROR_BYTES];
} packing;

/* Bytes that are copied to the device at a time: on the CPU few, which stay in its cache. */
#if defined(FLEET_HOST)
#define PACK_BYTES (1u << 18)
#else
#define PACK_BYTES (4u << 20)
#endif
#define MAX_PACKERS 16u

/* Packs column c of a panel, which comes from that row of the part, or is zeros without one. `line`
   has room for its k weights. */
static void pack_bf16(packing *p, const matrix_part *part, uint32_t row, uint32_t c,
                      uint32_t panel_tiles, bf16 *line, bf16 *packed)
{
    const layout *as = p->as;
    const uint32_t k = padded(as->k, K_ALIGN), columns = part ? part->columns : 0;
    memset(line + columns, 0, (size_t)(k - columns) * 2);
    if (columns && qwen3_tensor_to_bf16(part->tensor,
                                        (uint64_t)row * part->tensor->columns + part->first_column,
                                        columns, line, p->error, sizeof p->error))
        p->refused = 1;
    for (uint32_t at = 0; at < k; at += BLOCK_K) {
        /* pack_at counts from here */
        bf16 *block = packed + weight_at(c / TILE_N * TILE_N, at, panel_tiles, as->inner_k);
        for (uint32_t i = 0; i < BLOCK_K; i++)
            block[pack_at(c % TILE_N, i, as->inner_k)] = line[at + i];
    }
}
#if HAS_PACKED_CODES
/* The same of codes, with their scales and zero points. Padding is code 0 with scale 0. */
static void pack_codes(packing *p, const matrix_part *part, uint32_t row, uint32_t c,
                       uint32_t panel_tiles, uint8_t *line, unsigned char *packed)
{
    const weight_format *f = &p->as->format;
    const uint32_t k = padded(p->as->k, K_ALIGN), columns = part ? part->columns : 0;
    const qwen3_tensor *t = part ? part->tensor : NULL;
    memset(line + columns, 0, k - columns);
    if (columns && f->group && part->first_column % f->group) {
        snprintf(p->error, sizeof p->error,
                 "%s: %s: column %u, where this rank's share begins, is within a group of %u",
                 t->file, t->name, part->first_column, f->group);
        p->refused = 1;
        return;
    }
    if (columns &&
        qwen3_tensor_codes(t, row, part->first_column, columns, line, p->error, sizeof p->error)) {
        p->refused = 1;
        return;
    }
    for (uint32_t at = 0; at < k; at++) coded_put(packed, f, panel_tiles, c, at, line[at]);
    for (uint32_t g = 0; g < coded_groups(f, k); g++) {
        const uint32_t at = g * f->group, column = columns ? part->first_column + at : 0;
        const uint32_t is_there = at < columns;
        coded_put_scale(packed, f, panel_tiles, c, k, g,
                        is_there ? qwen3_tensor_scale(t, row, column) : 0,
                        is_there ? qwen3_tensor_zero(t, row, column) : 0);
    }
}
#endif

static void *pack_panels(void *user)
{
    packing *p = (packing *)user;
    const layout *as = p->as;
    const uint32_t k = padded(as->k, K_ALIGN), last = panels_of(as) - 1;
    const uint32_t bytes = panel_bytes_of(as), max_staged = PACK_BYTES / bytes + 1;
    char *stage = (char *)malloc((size_t)max_staged * bytes);
    bf16 *line = (bf16 *)calloc(k, 2);
    uint32_t staged = 0;
    if (!stage || !line) snprintf(p->error, sizeof p->error, "out of memory");
    for (uint32_t panel = p->first; panel < p->end && !p->error[0]; panel++) {
        const uint32_t panel_tiles = panel == last ? as->last_panel_tiles : as->panel_tiles;
        void *packed = stage + (size_t)staged * bytes;
        for (uint32_t c = 0; c < panel_tiles * TILE_N && !p->error[0]; c++) {
            uint32_t row = 0;
            const matrix_part *part =
                source_row(p->from, panel * as->panel_tiles * TILE_N + c, &row);
#if HAS_PACKED_CODES
            if (as->format.codes) {
                pack_codes(p, part, row, c, panel_tiles, (uint8_t *)line, (unsigned char *)packed);
                continue;
            }
#endif
            pack_bf16(p, part, row, c, panel_tiles, line, (bf16 *)packed);
        }
        if (++staged < max_staged && panel + 1 < p->end) continue;
        if (!p->error[0] &&
            fleet_to_device((char *)p->to + (size_t)(panel + 1 - staged) * bytes, stage,
                            (size_t)(staged - 1) * bytes +
                                (size_t)panel_tiles * (bytes / as->panel_tiles),
                            NULL))
            snprintf(p->error, sizeof p->error, "weights cannot be copied to the device");
        if (p->checkpoint) qwen3_release(p->checkpoint);
        staged = 0;
    }
    free(stage);
    free(line);
    return NULL;
}

/* Packs a matrix, with several threads. Nonzero: the error says why not, and `refused` is 1 if the
   checkpoint is at fault. */
static int pack(const qwen3_checkpoint *checkpoint, const matrix_source *from, const layout *as,
                bf16 *to, char *error, uint32_t *refused)
{
    /* A thread pays off from 4 MB on. */
    const uint32_t share = (4u << 20) / panel_bytes_of(as) + 1, panels = panels_of(as);
    const uint32_t workers = fleet_host_machine().workers;
    uint32_t threads = workers < MAX_PACKERS ? workers : MAX_PACKERS;
    packing job[MAX_PACKERS];
    pthread_t thread[MAX_PACKERS];
    uint32_t started[MAX_PACKERS];
    if (threads > ceil_div(panels, share)) threads = ceil_div(panels, share);
    for (uint32_t i = 0; i < threads; i++) {
        job[i].checkpoint = checkpoint, job[i].from = from, job[i].as = as, job[i].to = to;
        job[i].first = (uint32_t)((uint64_t)panels * i / threads),
        job[i].end = (uint32_t)((uint64_t)panels * (i + 1) / threads);
        job[i].error[0] = 0, job[i].refused = 0;
        started[i] = i + 1 < threads && !pthread_create(&thread[i], NULL, pack_panels, &job[i]);
        if (!started[i]) pack_panels(&job[i]);
    }
    for (uint32_t i = 0; i < threads; i++) {
        if (started[i]) pthread_join(thread[i], NULL);
        if (!job[i].error[0] || error[0]) continue;
        memcpy(error, job[i].error, sizeof job[i].error);
        *refused = job[i].refused;
    }
    return error[0] != 0;
}

#endif /* QWEN3_PACKING_H */
