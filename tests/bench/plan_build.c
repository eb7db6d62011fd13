/* Time and memory of fleet_plan_build, validation included: a decoder of 36 layers with 1,404 tasks each
   (50,544), then the same with wider layers up to two million tasks, and with more layers: 2,000 and 16,000
   grids. The baseline touches as many bytes as the plan has, freshly allocated: what merely writing the
   result would cost.
   One line for each size: NAME value ms baseline value ms ratio value; bytes and time per task. */
#define FLEET_IMPLEMENTATION
#include "fleet.h"
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* The tasks of one phase of a layer at scale 1: qkv, attention, o, norm, gate and up, act, down, and so on;
   together 1,404. Each phase waits for the one before it, element by element or for all of it. */
static const int64_t phase_tasks[] = {8, 96, 32, 256, 8, 384, 484, 128, 8};
#define PHASES (sizeof phase_tasks / sizeof phase_tasks[0])

static fleet_graph *decoder(int64_t layers, int64_t scale)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor before;
    char name[48];
    int64_t layer;
    size_t phase;
    before.id = 0;
    for (layer = 0; layer < layers; layer++) {
        for (phase = 0; phase < PHASES; phase++) {
            fleet_dim n = fleet_dim_of(phase_tasks[phase] * scale);
            fleet_etensor done;
            fleet_grid grid;
            snprintf(name, sizeof name, "layer%d.phase%d", (int)layer, (int)phase);
            grid = fleet_call_device(g, name, (uint32_t)phase, fleet_shape1(n), (uint32_t)layer);
            snprintf(name, sizeof name, "layer%d.done%d", (int)layer, (int)phase);
            done = fleet_event_tensor(g, name, fleet_shape1(fleet_dim_of(4)), FLEET_COUNT_DERIVED);
            fleet_out_edge_map(g, grid, done,
                               fleet_map1(fleet_axis(0, 1, 0, phase_tasks[phase] * scale / 4)));
            if (before.id) fleet_in_edge(g, grid, before, "i->e");
            before = done;
        }
    }
    return g;
}

static double best(double a, double b)
{
    return a < b ? a : b;
}

static int measure(const char *name, int64_t layers, int64_t scale, int repeats)
{
    fleet_graph *g = decoder(layers, scale);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan = NULL;
    double build = 1e30, touch = 1e30, start;
    double tasks, bytes;
    volatile char keep; /* so that the copy is made */
    int i;
    for (i = 0; i < repeats; i++) {
        void *block;
        fleet_plan_free(plan);
        start = now_ms();
        if (fleet_plan_build(g, &desc, &plan) != FLEET_OK ||
            fleet_plan_check(plan, (size_t)plan->bytes) != FLEET_OK) {
            printf("%s failed: %s\n", name, fleet_graph_error(g));
            return 1;
        }
        build = best(build, now_ms() - start);
        start = now_ms();
        block = malloc((size_t)plan->bytes);
        if (!block) return 1;
        memcpy(block, plan, (size_t)plan->bytes);
        keep = ((char *)block)[plan->bytes / 2];
        (void)keep;
        touch = best(touch, now_ms() - start);
        free(block);
    }
    tasks = plan->n_tasks;
    bytes = (double)plan->bytes;
    printf("%s %.3f ms baseline %.3f ms ratio %.2f (%.0f tasks, %.0f ns and %.1f bytes a task)\n",
           name, build, touch, build / touch, tasks, 1e6 * build / tasks, bytes / tasks);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
    return 0;
}

int main(void)
{
    return measure("plan_build_50k", 36, 1, 9) + measure("plan_build_200k", 36, 4, 5) +
           measure("plan_build_800k", 36, 16, 3) + measure("plan_build_2m", 36, 40, 3) +
           measure("plan_build_2k_grids", 222, 1, 3) + measure("plan_build_16k_grids", 1778, 1, 3);
}
