/* Draws one step of a graph twice, as SVG on stdout: with a barrier between its grids (unfused), and with an event for
   each tile. Graph, tiles and placement are the same. By hand; .pages/draw keeps the picture of the README:

     tests/with_hip.sh bash tests/bench/timeline.sh

   The step has LAYERS grids of TILES tiles. A tile waits for the tile of the same place, and for the one after it, of
   the layer before, as in a stencil. How long tiles run differs by a factor of up to four. With barriers, a layer takes
   as long as its longest tile. */
#define FLEET_TRACE
#define TRACE_PICTURE_POINTS 800u
#include "bench.h"

#include "examples/tools/trace_picture.h"

#define LAYERS 6
#define TILES 32
#define WIDTH 256 /* elements of a tile, one for each thread */
#define MOST_TEXT (1u << 20)

typedef struct layer { /* the arguments of a layer's tiles */
    const float *x;    /* [TILES][WIDTH] */
    float *y;
    const uint32_t *work; /* [TILES] */
} layer;

FLEET_TILE(compute, layer)
{
    const uint32_t tile = (uint32_t)at[0], next = tile + 1 < TILES ? tile + 1 : tile;
    for (uint32_t c = ctx.thread; c < WIDTH; c += ctx.threads) {
        float y = args->x[tile * WIDTH + c] + args->x[next * WIDTH + c];
        for (uint32_t i = 0; i < args->work[tile]; i++) y = y * 0.5f + 1;
        args->y[tile * WIDTH + c] = y;
    }
    return FLEET_OK;
}
#define LAYER_TILES(TILE, P) TILE(P, compute)
FLEET_DISPATCH(layer, LAYER_TILES)
FLEET_KERNEL(layer_kernel, layer, FLEET_ANY_THREADS(WIDTH))
{
    FLEET_WORKER_LOOP(layer);
}

static fleet_plan *build(uint32_t unfused)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim tiles = fleet_dim_of(TILES);
    fleet_axis_map two = fleet_axis(0, 1, 0, 1); /* a tile, and the one after it */
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan = NULL;
    fleet_etensor before = {0};
    two.width = 2;
    two.limit = tiles;
    for (uint32_t i = 0; i < LAYERS; i++) {
        char name[16], done[16];
        snprintf(name, sizeof name, "layer %u", i);
        snprintf(done, sizeof done, "done %u", i);
        fleet_grid grid = fleet_call_device(g, name, layer_compute, fleet_shape1(tiles), i);
        if (i) fleet_in_edge_map(g, grid, before, fleet_map1(two));
        if (i + 1 == LAYERS) break;
        before = fleet_event_tensor(g, done, fleet_shape1(tiles), FLEET_COUNT_DERIVED);
        fleet_out_edge(g, grid, before, "i->i");
    }
    desc.unfused = unfused;
    CHECKED(fleet_topology_query(&desc.topology));
    if (fleet_plan_build(g, &desc, &plan)) fprintf(stderr, "%s\n", fleet_graph_error(g));
    CHECKED(fleet_graph_status(g));
    fleet_graph_destroy(g);
    return plan;
}

/* Runs a plan twice, so that caches are warm, and reads what the second launch left. */
static void run(const fleet_plan *plan, const layer *args, fleet_trace *trace, fleet_trace_log *log)
{
    fleet_image image;
    fleet_state state;
    fleet_launch_desc launch = fleet_launch_desc_default();
    launch.threads = WIDTH;
    launch.trace = trace;
    CHECKED(fleet_upload(&image, plan, NULL));
    CHECKED(fleet_state_create(&state, &image, NULL, NULL));
    CHECKED(fleet_trace_create(trace, plan, NULL, NULL));
    for (uint32_t i = 0; i < 2; i++) {
        CHECKED(fleet_launch(&state, &launch, FLEET_KERNEL_OF(layer_kernel), args));
        CHECKED(fleet_state_wait(&state, NULL));
    }
    CHECKED(fleet_trace_read(log, trace, NULL));
    fleet_state_free(&state);
    fleet_image_free(&image);
}

static void *device_copy(const void *from, size_t bytes)
{
    void *memory;
    CHECKED(fleet_device_alloc(&memory, bytes));
    if (from)
        CHECKED(fleet_to_device(memory, from, bytes, NULL));
    else
        CHECKED(fleet_device_clear(memory, bytes, NULL));
    return memory;
}

int main(void)
{
    static const char *const titles[2] = {"A barrier between layers (unfused)",
                                          "An event for each tile (STATIC)"};
    static char text[MOST_TEXT];
    uint32_t work[LAYERS * TILES], random = 1;
    void *rows[LAYERS + 1], *device_work, *device_args;
    fleet_plan *plans[2];
    fleet_trace traces[2];
    fleet_trace_log logs[2];
    layer args[LAYERS];
    size_t length;
    for (uint32_t i = 0; i < LAYERS * TILES; i++) {
        random = random * 1664525u + 1013904223u;
        work[i] = 600 + (random >> 8) % 1800;
    }
    device_work = device_copy(work, sizeof work);
    for (uint32_t i = 0; i <= LAYERS; i++) rows[i] = device_copy(NULL, TILES * WIDTH * 4);
    for (uint32_t i = 0; i < LAYERS; i++) {
        args[i].x = (const float *)rows[i];
        args[i].y = (float *)rows[i + 1];
        args[i].work = (const uint32_t *)device_work + i * TILES;
    }
    device_args = device_copy(args, sizeof args);
    for (uint32_t i = 0; i < 2; i++) {
        plans[i] = build(!i);
        run(plans[i], (const layer *)device_args, &traces[i], &logs[i]);
    }
    length = trace_pictures(logs, titles, 2, "Two schedules of one step", text, sizeof text);
    if (length < sizeof text) fputs(text, stdout);
    for (uint32_t i = 0; i < 2; i++) {
        fleet_trace_log_free(&logs[i]);
        fleet_trace_free(&traces[i]);
        fleet_plan_free(plans[i]);
    }
    for (uint32_t i = 0; i <= LAYERS; i++) fleet_device_free(rows[i]);
    fleet_device_free(device_work);
    fleet_device_free(device_args);
    return length >= sizeof text;
}
