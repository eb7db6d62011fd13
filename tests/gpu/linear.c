/* Linear layers: their tiles and k ranges, in every split and traversal; sums over slabs and over waves, to the last
   bit; loads and stores of each cache policy. Products add up by fmaf, so that the host computes the same bits. */
// run: asan engine=both
// run: tsan
// hip: 6 runs
#include "settings.h"
#include "examples/parts/fleet_linear.h"

#include <math.h>

/* ---- cutting and walking, on the host: the same functions as in tiles -------------------------------------- */

static uint32_t drawn(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

static fleet_linear drawn_linear(uint32_t *seed)
{
    fleet_linear l;
    l.m = 1 + drawn(seed, 90), l.n = 1 + drawn(seed, 90), l.k = 1 + drawn(seed, 90);
    l.tile_m = 1 + drawn(seed, 17), l.tile_n = 1 + drawn(seed, 17);
    l.tile_k = 1 + drawn(seed, 17);
    l.element_bytes = 4;
    l.split = drawn(seed, 3), l.traversal = drawn(seed, 3);
    l.window = 1 + drawn(seed, 9);
    return l;
}

/* The order of a part's tiles as loops; the number of tiles. */
static uint32_t in_loops(const fleet_linear *l, const fleet_partition *p, fleet_tile *tiles)
{
    const uint32_t m_major = l->traversal == FLEET_TRAVERSAL_M_MAJOR;
    const uint32_t window = m_major                                   ? 1
                            : l->traversal == FLEET_TRAVERSAL_N_MAJOR ? p->n_tiles
                                                                      : l->window;
    uint32_t count = 0;
    for (uint32_t n0 = 0; n0 < p->n_tiles; n0 += window)
        for (uint32_t m = 0; m < p->m_tiles; m++)
            for (uint32_t n = n0; n < n0 + window && n < p->n_tiles; n++, count++) {
                tiles[count].m = p->first_m + m * p->step_m;
                tiles[count].n = p->first_n + n;
            }
    return count;
}

static int walk_is(test_run *t, const fleet_linear *l, const fleet_partition *p, uint32_t first,
                   uint32_t stride)
{
    static fleet_tile tiles[90 * 90];
    const uint32_t count = in_loops(l, p, tiles);
    uint32_t i = first;
    for (fleet_tile_iterator w = fleet_tile_begin(l, p, first, stride); w.more;
         fleet_tile_next(&w)) {
        NEED(p->k && i < count);
        const fleet_tile at = fleet_partition_tile(l, p, i);
        NEED(at.m == tiles[i].m && at.n == tiles[i].n);
        NEED(w.m == tiles[i].m && w.n == tiles[i].n);
        NEED(w.row == w.m * l->tile_m && w.column == w.n * l->tile_n);
        NEED(w.rows == (l->m - w.row < l->tile_m ? l->m - w.row : l->tile_m));
        NEED(w.columns == (l->n - w.column < l->tile_n ? l->n - w.column : l->tile_n));
        NEED(w.first_k == p->first_k && w.k == p->k);
        i += stride;
    }
    NEED(!p->k || i >= count);
    return 1;
}

/* Slices and their workers, and waves within, do each tile's each k once. */
static int covered(test_run *t, const fleet_linear *l, uint32_t slices, uint32_t workers,
                   uint32_t waves)
{
    static uint8_t done[90][90];
    const uint32_t m_tiles = fleet_linear_m_tiles(l), n_tiles = fleet_linear_n_tiles(l);
    uint32_t next_k = 0;
    memset(done, 0, sizeof done);
    for (uint32_t s = 0; s < slices; s++) {
        const fleet_partition p = fleet_linear_partition(l, s, slices);
        fleet_k_range all, range;
        all.first = p.first_k, all.count = p.k;
        if (l->split != FLEET_SPLIT_K) next_k = 0;
        NEED(p.first_k == next_k && (l->split == FLEET_SPLIT_K || p.k == l->k));
        for (uint32_t v = 0; v < waves; v++) {
            range = fleet_split_k(all, l->tile_k, v, waves);
            NEED(range.first == next_k);
            NEED(range.count % l->tile_k == 0 || range.first + range.count == l->k);
            next_k += range.count;
        }
        NEED(next_k == p.first_k + p.k);
        for (uint32_t w = 0; w < workers; w++)
            for (fleet_tile_iterator tile = fleet_tile_begin(l, &p, w, workers); tile.more;
                 fleet_tile_next(&tile))
                NEED(done[tile.m][tile.n]++ < slices);
    }
    NEED(next_k == l->k);
    if (l->split == FLEET_SPLIT_K)
        slices = slices < (l->k - 1) / l->tile_k + 1 ? slices : (l->k - 1) / l->tile_k + 1;
    for (uint32_t m = 0; m < m_tiles; m++)
        for (uint32_t n = 0; n < n_tiles; n++)
            NEED(done[m][n] == (l->split == FLEET_SPLIT_K ? slices : 1));
    return 1;
}

static void cuts_and_walks(test_run *t)
{
    uint32_t seed = 1;
    for (uint32_t i = 0; i < (deep() ? 100000u : 10000u) && !t->failed_here; i++) {
        const fleet_linear l = drawn_linear(&seed);
        const uint32_t slices = 1 + drawn(&seed, 9);
        const uint32_t workers = 1 + drawn(&seed, i % 3 ? 9 : 90);
        const fleet_partition p = fleet_linear_partition(&l, drawn(&seed, slices), slices);
        if (!walk_is(t, &l, &p, drawn(&seed, workers), workers) ||
            !covered(t, &l, slices, workers, 1 + drawn(&seed, 9)))
            printf("    in: %u %u %u by %u %u %u, split %u, traversal %u of %u, %u slices, %u "
                   "workers\n",
                   l.m, l.n, l.k, l.tile_m, l.tile_n, l.tile_k, l.split, l.traversal, l.window,
                   slices, workers);
    }
}

/* ---- products ------------------------------------------------------------------------------------------------ */

#define LANES 256u /* at most, of a workgroup */
#define SUMS 2u    /* of a lane at a time, where waves divide k */

typedef struct product {
    fleet_linear linear;
    uint32_t slices;
    uint32_t fresh;    /* the second grid reads by loads that no L1 answers */
    const float *a;    /* [m][k] */
    const float *b;    /* [k][n] */
    float *c;          /* [slices or 1][m][n]: a slab for each slice of k */
    float *sum;        /* [m][n] */
    uint32_t *counted; /* like c, by tiles: how often each was done */
} product;

FLEET_HOST_DEVICE float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
FLEET_HOST_DEVICE uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

FLEET_DEVICE float dot(const product *p, uint32_t row, uint32_t column, fleet_k_range k)
{
    const fleet_view b = fleet_view_of(p->b);
    float sum = 0;
    for (uint32_t i = k.first; i < k.first + k.count; i++)
        sum = fmaf(p->a[row * p->linear.k + i],
                   float_of(fleet_view_load_streaming4(b, (i * p->linear.n + column) * 4)), sum);
    return sum;
}
FLEET_DEVICE uint32_t slab_of(const product *p, uint32_t slice)
{
    return p->linear.split == FLEET_SPLIT_K ? slice : 0;
}
FLEET_DEVICE void count_tile(const product *p, uint32_t slab, const fleet_tile_iterator *tile)
{
    const uint32_t index =
        (slab * fleet_linear_m_tiles(&p->linear) + tile->m) * fleet_linear_n_tiles(&p->linear) +
        tile->n;
    if (fleet_thread_id() == 0) fleet_add_relaxed_device(p->counted + index, 1);
}
FLEET_DEVICE float *place(const product *p, uint32_t slab, uint32_t row, uint32_t column)
{
    return p->c + ((size_t)slab * p->linear.m + row) * p->linear.n + column;
}

/* A thread for each element. */
FLEET_TILE(multiply, product)
{
    const uint32_t slab = slab_of(args, ctx.slice);
    FLEET_UNUSED(at);
    FLEET_FOR_TILES(tile, &args->linear, ctx)
    {
        fleet_k_range k;
        k.first = tile.first_k, k.count = tile.k;
        for (uint32_t i = ctx.thread; i < tile.rows * tile.columns; i += ctx.threads) {
            const uint32_t row = tile.row + i / tile.columns;
            const uint32_t column = tile.column + i % tile.columns;
            fleet_store_nt4(place(args, slab, row, column), bits_of(dot(args, row, column, k)));
        }
        count_tile(args, slab, &tile);
    }
    return FLEET_OK;
}

/* All waves on the same elements, each with its share of k. */
FLEET_TILE(multiply_by_waves, product)
{
    const uint32_t slab = slab_of(args, ctx.slice), lanes = fleet_wave_size();
    FLEET_LDS(float, lds, SUMS *LANES);
    FLEET_UNUSED(at);
    FLEET_FOR_TILES(tile, &args->linear, ctx)
    {
        const uint32_t elements = tile.rows * tile.columns;
        const fleet_k_range k = fleet_tile_wave_k(&tile, ctx.thread / lanes, ctx.threads / lanes);
        for (uint32_t first = 0; first < elements; first += SUMS * lanes) {
            float sum[SUMS];
            for (uint32_t j = 0; j < SUMS; j++) {
                const uint32_t i = first + j * lanes + fleet_lane();
                sum[j] = 0;
                if (i < elements)
                    sum[j] =
                        dot(args, tile.row + i / tile.columns, tile.column + i % tile.columns, k);
            }
            fleet_reduce_add(&ctx, sum, SUMS, lds);
            for (uint32_t j = 0; j < SUMS && fleet_wave_id() == 0; j++) {
                const uint32_t i = first + j * lanes + fleet_lane();
                if (i < elements)
                    *place(args, slab, tile.row + i / tile.columns,
                           tile.column + i % tile.columns) = sum[j];
            }
        }
        count_tile(args, slab, &tile);
    }
    return FLEET_OK;
}

/* (row): the slabs in order; one without a run of k holds nothing. */
FLEET_TILE(add_slabs, product)
{
    const uint32_t slabs = args->linear.split == FLEET_SPLIT_K ? args->slices : 1;
    for (uint32_t n = ctx.thread; n < args->linear.n; n += ctx.threads) {
        float sum = 0;
        for (uint32_t s = 0; s < slabs; s++) {
            const float *from = place(args, s, (uint32_t)at[0], n);
            if (fleet_linear_partition(&args->linear, s, slabs).k)
                sum += args->fresh ? float_of(fleet_load_coherent4(from)) : *from;
        }
        args->sum[(uint32_t)at[0] * args->linear.n + n] = sum;
    }
    return FLEET_OK;
}

#define LINEAR_TILES(TILE, P) TILE(P, multiply) TILE(P, multiply_by_waves) TILE(P, add_slabs)
FLEET_DISPATCH(product, LINEAR_TILES)
FLEET_KERNEL(linear_kernel, product, FLEET_ANY_THREADS(LANES))
{
    FLEET_WORKER_LOOP(product);
}

#define PRODUCTS 12u   /* each split and traversal; then each split by waves */
#define MOST 2048u     /* elements of a matrix */
#define MOST_SLICES 8u /* slabs */
#define STEPS 2u

/* m, n, k, tiles of each, window: nothing divides anything; decode; tall; fewer tiles than slices. */
#define SHAPES 4u
static const uint32_t shapes[SHAPES][7] = {{37, 53, 29, 8, 16, 4, 2},
                                           {1, 99, 20, 16, 8, 3, 5},
                                           {61, 7, 31, 4, 3, 8, 2},
                                           {5, 9, 6, 16, 16, 4, 1}};

typedef struct linear_memory {
    float a[MOST], b[MOST];
    float c[PRODUCTS][MOST_SLICES * MOST];
    float sum[PRODUCTS][MOST];
    uint32_t counted[PRODUCTS][MOST_SLICES * MOST];
    product products[PRODUCTS];
} linear_memory;

static fleet_graph *linear_graph(const fleet_linear *l, uint32_t slices)
{
    fleet_graph *g = fleet_graph_create(NULL);
    for (uint32_t i = 0; i < PRODUCTS; i++) {
        char name[3][16];
        snprintf(name[0], sizeof name[0], "done%u", i);
        snprintf(name[1], sizeof name[1], "multiply%u", i);
        snprintf(name[2], sizeof name[2], "add%u", i);
        fleet_etensor done = fleet_event_tensor(g, name[0], fleet_shape0(), FLEET_COUNT_DERIVED);
        fleet_grid multiply = fleet_call_device(
            g, name[1], i < 9 ? product_multiply : product_multiply_by_waves, fleet_shape0(), i);
        fleet_grid add = fleet_call_device(g, name[2], product_add_slabs,
                                           fleet_shape1(fleet_dim_of((int32_t)l->m)), i);
        fleet_grid_level(g, multiply, FLEET_LEVEL_DEVICE);
        fleet_grid_slices(g, multiply, fleet_dim_of((int32_t)slices));
        fleet_out_edge(g, multiply, done, "->");
        fleet_in_edge(g, add, done, "i->");
    }
    return g;
}

/* An element as a product computes it: waves 0: a run of k by one thread. */
static float element_of(const linear_memory *h, const product *p, uint32_t row, uint32_t column,
                        uint32_t waves)
{
    const fleet_linear *l = &p->linear;
    const uint32_t slabs = l->split == FLEET_SPLIT_K ? p->slices : 1;
    float all = 0;
    for (uint32_t s = 0; s < slabs; s++) {
        const fleet_partition part = fleet_linear_partition(l, s, slabs);
        float slab = 0;
        for (uint32_t v = 0; v < (waves ? waves : 1); v++) {
            fleet_k_range k;
            float sum = 0;
            k.first = part.first_k, k.count = part.k;
            if (waves) k = fleet_split_k(k, l->tile_k, v, waves);
            for (uint32_t i = k.first; i < k.first + k.count; i++)
                sum = fmaf(h->a[row * l->k + i], h->b[i * l->n + column], sum);
            slab = v ? slab + sum : sum;
        }
        if (part.k) all += slab;
    }
    return all;
}

static int products_are(test_run *t, const linear_memory *h, uint32_t waves, uint32_t whole)
{
    for (uint32_t i = 0; i < PRODUCTS; i++) {
        const product *p = h->products + i;
        const fleet_linear *l = &p->linear;
        const uint32_t slabs = l->split == FLEET_SPLIT_K ? p->slices : 1;
        const uint32_t tiles = fleet_linear_m_tiles(l) * fleet_linear_n_tiles(l);
        for (uint32_t s = 0; s < slabs; s++)
            for (uint32_t j = 0; j < tiles; j++) {
                const uint32_t want = fleet_linear_partition(l, s, slabs).k ? STEPS : 0;
                NEED(h->counted[i][s * tiles + j] == want);
            }
        for (uint32_t j = 0; j < l->m * l->n; j++) {
            const float want = element_of(h, p, j / l->n, j % l->n, i < 9 ? 0 : waves);
            NEED(bits_of(h->sum[i][j]) == bits_of(want));
            if (whole) { /* of integers: exact, whatever the order */
                float plain = 0;
                for (uint32_t k = 0; k < l->k; k++)
                    plain += h->a[j / l->n * l->k + k] * h->b[k * l->n + j % l->n];
                NEED(bits_of(h->sum[i][j]) == bits_of(plain));
            }
            /* Walks in another order, and other cuts of rows and columns, change no bit. */
            if (i % 3) NEED(bits_of(h->sum[i][j]) == bits_of(h->sum[i - i % 3][j]) || i >= 9);
        }
    }
    return 1;
}

static void fill(float *x, uint32_t count, uint32_t whole, uint32_t *seed)
{
    for (uint32_t i = 0; i < count; i++) {
        const float integer = (float)drawn(seed, 9) - 4;
        x[i] = whole ? integer : integer + (float)drawn(seed, 4096) / 4099.0f;
    }
}

static void describe_products(linear_memory *h, const linear_memory *d, const uint32_t *shape,
                              uint32_t slices)
{
    for (uint32_t i = 0; i < PRODUCTS; i++) {
        product *p = h->products + i;
        fleet_linear *l = &p->linear;
        l->m = shape[0], l->n = shape[1], l->k = shape[2];
        l->tile_m = shape[3], l->tile_n = shape[4], l->tile_k = shape[5];
        l->element_bytes = 4;
        l->split = i < 9 ? i / 3 : i - 9, l->traversal = i % 3, l->window = shape[6];
        p->slices = slices, p->fresh = i % 2;
        p->a = d->a, p->b = d->b;
        p->c = (float *)(uintptr_t)d->c[i], p->sum = (float *)(uintptr_t)d->sum[i];
        p->counted = (uint32_t *)(uintptr_t)d->counted[i];
    }
}

static void run_products(test_run *t, const setting *s, void *unused)
{
    const uint32_t *shape = shapes[s->seed % SHAPES];
    const uint32_t slices = s->seed % 3 ? s->topology.chiplets : 1 + (uint32_t)s->seed % 5;
    fleet_plan_desc desc = setting_plan_desc(s);
    fleet_state_desc state_desc = setting_state_desc(s);
    fleet_launch_desc launch = setting_launch_desc(s);
    linear_memory *h = (linear_memory *)calloc(1, sizeof *h), *d;
    fleet_graph *g;
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    void *memory;
    uint32_t seed = (uint32_t)s->seed, waves;
    (void)unused;
    CHECK(h);
    CHECK_STATUS(fleet_device_alloc(&memory, sizeof *h), FLEET_OK);
    d = (linear_memory *)memory;
    describe_products(h, d, shape, slices);
    g = linear_graph(&h->products[0].linear, slices);
    if (fleet_plan_build(g, &desc, &plan)) {
        test_fail(t, __FILE__, __LINE__, "%s", fleet_graph_error(g));
        return;
    }
    launch.steps = STEPS;
    launch.threads = LANES / 4 * (1 + (uint32_t)s->seed % 4);
    launch.host.waves = waves = 1 + (uint32_t)s->seed % 5;
#if defined(FLEET_HIP)
    waves = (launch.threads + 63) / 64;
#elif defined(FLEET_CUDA)
    waves = (launch.threads + 31) / 32;
#endif
    CHECK_STATUS(fleet_upload(&image, plan, NULL), FLEET_OK);
    CHECK_STATUS(fleet_state_create(&state, &image, &state_desc, NULL), FLEET_OK);
    for (uint32_t whole = 0; whole < 2 && !t->failed_here; whole++) {
        memset(h->sum, 0, sizeof h->sum);
        memset(h->counted, 0, sizeof h->counted);
        memset(h->c, 0xff, sizeof h->c); /* not numbers */
        fill(h->a, shape[0] * shape[2], whole, &seed);
        fill(h->b, shape[2] * shape[1], whole, &seed);
        CHECK_STATUS(fleet_to_device(d, h, sizeof *h, NULL), FLEET_OK);
        CHECK_STATUS(fleet_launch(&state, &launch, FLEET_KERNEL_OF(linear_kernel), d->products),
                     FLEET_OK);
        if (!ended_with(t, &state, FLEET_OK)) return;
        CHECK_STATUS(fleet_to_host(h, d, sizeof *h, NULL), FLEET_OK);
        if (!products_are(t, h, waves, whole))
            printf("    shape %u, %u slices\n", (uint32_t)s->seed % SHAPES, slices);
    }
    fleet_state_free(&state);
    fleet_image_free(&image);
    fleet_device_free(memory);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
    free(h);
}

static void products(test_run *t)
{
    in_settings(t, 12, run_products, NULL);
}

/* ---- cache policy ---------------------------------------------------------------------------------------------- */

#define ITEMS 300u /* of 64 bytes: quads i, i + ITEMS, i + 2 ITEMS, i + 3 ITEMS */
enum { BY4, BY8, BY16, BY64, VIEW4, VIEW8, VIEW16, FRESH4, FRESH8, FRESH16, POLICIES };

#define COPY(type, bytes, load, store)                                                             \
    for (uint32_t j = 0; j < 64; j += bytes) {                                                     \
        const uint32_t offset = (i + j / 16 * ITEMS) * 16 + j % 16;                                \
        const type v = load;                                                                       \
        store(out + offset, v);                                                                    \
    }

/* Each item once by each kind of load, and stored by stores of its width. */
FLEET_GLOBAL(256) void copy(const float *from, float *to)
{
    const char *in = (const char *)from;
    const fleet_view view = fleet_view_of(from);
    const uint32_t threads = fleet_block_count() * fleet_thread_count();
    for (uint32_t i = fleet_block_id() * fleet_thread_count() + fleet_thread_id(); i < ITEMS;
         i += threads)
        for (uint32_t policy = 0; policy < POLICIES; policy++) {
            char *out = (char *)(to + (size_t)policy * ITEMS * 16);
            fleet_quad quads[4];
            switch (policy) {
            case BY4:
                COPY(uint32_t, 4, fleet_load_streaming4(in + offset), fleet_store_nt4)
                break;
            case BY8:
                COPY(uint64_t, 8, fleet_load_streaming8(in + offset), fleet_store_nt8)
                break;
            case BY16:
                COPY(fleet_quad, 16, fleet_load_streaming16(in + offset), fleet_store_nt16)
                break;
            case BY64:
                fleet_load_streaming64(quads, in + i * 16, ITEMS * 16);
                COPY(fleet_quad, 16, quads[j / 16], fleet_store_nt16)
                break;
            case VIEW4:
                COPY(uint32_t, 4, fleet_view_load_streaming4(view, offset), fleet_store_nt4)
                break;
            case VIEW8:
                COPY(uint64_t, 8, fleet_view_load_streaming8(view, offset), fleet_store_nt8)
                break;
            case VIEW16:
                COPY(fleet_quad, 16, fleet_view_load_streaming16(view, offset), fleet_store_nt16)
                break;
            case FRESH4:
                COPY(uint32_t, 4, fleet_load_coherent4(in + offset), fleet_store_nt4)
                break;
            case FRESH8:
                COPY(uint64_t, 8, fleet_load_coherent8(in + offset), fleet_store_nt8)
                break;
            default:
                COPY(fleet_quad, 16, fleet_load_coherent16(in + offset), fleet_store_nt16)
                break;
            }
        }
}
FLEET_THUNK2(copy, const float *, float *)

static void copies(test_run *t)
{
    static float in[ITEMS * 16], out[POLICIES][ITEMS * 16];
    fleet_kernel_desc launch = fleet_kernel_desc_default();
    void *from, *to, *args[2];
    uint32_t seed = 1;
    fill(in, ITEMS * 16, 0, &seed);
    CHECK_STATUS(fleet_device_alloc(&from, sizeof in), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&to, sizeof out), FLEET_OK);
    CHECK_STATUS(fleet_to_device(from, in, sizeof in, NULL), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(to, sizeof out, NULL), FLEET_OK);
    args[0] = &from, args[1] = &to;
    launch.blocks = 3, launch.threads = 64, launch.host.waves = 2;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(copy), args, &launch), FLEET_OK);
    CHECK_STATUS(fleet_to_host(out, to, sizeof out, NULL), FLEET_OK);
    for (uint32_t policy = 0; policy < POLICIES; policy++)
        if (memcmp(out[policy], in, sizeof in) != 0)
            test_fail(t, __FILE__, __LINE__, "policy %u copied other data", policy);
    fleet_device_free(from);
    fleet_device_free(to);
}

/* ---- fresh loads ----------------------------------------------------------------------------------------------- */

#define WIDTHS 3u
typedef struct changing {
    uint32_t words[WIDTHS][FLEET_CACHE_LINE_BYTES / 4]; /* four of each */
    uint32_t seen[FLEET_CACHE_LINE_BYTES / 4]; /* widths of which the reader has the old words */
    uint32_t missed;
} changing;

FLEET_DEVICE uint32_t is_new(const changing *c, uint32_t width)
{
    const uint32_t *words = c->words[width];
    if (width == 0) return fleet_load_coherent4(words + 3) == 1;
    if (width == 1) return fleet_load_coherent8(words + 2) == 0x100000001u;
    const fleet_quad quad = fleet_load_coherent16(words);
    return quad.word[0] == 1 && quad.word[1] == 1 && quad.word[2] == 1 && quad.word[3] == 1;
}

/* Workgroup 1 has read words, by plain loads too, and then waits until workgroup 0 changes them. */
FLEET_GLOBAL(64) void change(changing *c)
{
    uint32_t tries = 0;
    if (fleet_thread_id() != 0) return;
    for (uint32_t width = 0; width < WIDTHS; width++) {
        if (fleet_block_id() == 0) {
            while (fleet_load_acquire_device(c->seen) <= width && tries < 1u << 20)
                fleet_pause(&tries);
            for (uint32_t i = 0; i < 4; i++) fleet_store_relaxed_device(c->words[width] + i, 1);
        } else {
            uint32_t old = 0;
            for (uint32_t i = 0; i < 4; i++) old |= c->words[width][i];
            fleet_add_acq_rel_device(c->seen, 1 + (old << 16));
            while (!is_new(c, width) && tries < 1u << 20) fleet_pause(&tries);
            if (tries >= 1u << 20) c->missed = 1 + width;
        }
    }
}
FLEET_THUNK1(change, changing *)

static void fresh_loads(test_run *t)
{
    changing c;
    fleet_kernel_desc launch = fleet_kernel_desc_default();
    fleet_host_engine first, last;
    void *memory, *args[1];
    setting_engines(&first, &last);
    CHECK_STATUS(fleet_device_alloc(&memory, sizeof c), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(memory, sizeof c, NULL), FLEET_OK);
    args[0] = &memory;
    launch.blocks = 2, launch.threads = 64, launch.cooperative = 1;
    launch.host.engine = last, launch.host.chiplets = 2;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(change), args, &launch), FLEET_OK);
    CHECK_STATUS(fleet_to_host(&c, memory, sizeof c, NULL), FLEET_OK);
    CHECK_INT(c.missed, 0);
    CHECK_INT(c.seen[0], WIDTHS);
    fleet_device_free(memory);
}

static void all(test_run *t)
{
    TEST(cuts_and_walks);
    TEST(products);
    TEST(copies);
    TEST(fresh_loads);
}

TEST_MAIN(all)
