/* What the kit costs on a device, measured with a kernel whose tiles are not called. */
// run: asan
#include "implementation.h"
#include "test.h"

#include "examples/parts/fleet_calibrate.h"

typedef struct called {
    uint32_t *count;
} called;
FLEET_TILE(count, called)
{
    (void)at;
    if (fleet_thread_id() == 0) fleet_add_relaxed_device(args->count, 1);
    (void)ctx;
    return FLEET_OK;
}
#define CALLED_TILES(TILE, P) TILE(P, count)
FLEET_MEGAKERNEL(called, CALLED_TILES, FLEET_ANY_THREADS(64))

#if !defined(FLEET_HIP) /* its simulator knows no time */
static void costs_are_measured(test_run *t)
{
    fleet_launch_desc launch = fleet_launch_desc_default();
    fleet_topology topology;
    fleet_overheads c;
    memset(&c, 0xff, sizeof c);
    launch.steps = 2;
    CHECK_INT(fleet_topology_query(&topology), FLEET_OK);
    CHECK_INT(fleet_calibrate(&c, &topology, &launch, FLEET_KERNEL_OF(called_kernel), NULL),
              FLEET_OK);
    CHECK(c.static_task >= 0 && c.static_hop >= 0 && c.mixed_task >= 0 && c.mixed_hop >= 0);
    CHECK(c.dynamic_task >= 0 && c.dynamic_hop >= 0);
    CHECK(c.dynamic_hop < 1e9f && c.dynamic_task < 1e9f);
}
#endif

static void bad_arguments(test_run *t)
{
    const fleet_kernel kernel = FLEET_KERNEL_OF(called_kernel);
    const fleet_topology topology = fleet_topology_make(2, 2);
    fleet_launch_desc launch = fleet_launch_desc_default();
    fleet_overheads c;
    CHECK_INT(fleet_calibrate(&c, &topology, NULL, kernel, NULL), FLEET_ERROR_NULL);
    launch.steps = UINT32_MAX; /* of which it takes three times as many */
    CHECK_INT(fleet_calibrate(&c, &topology, &launch, kernel, NULL), FLEET_ERROR_ARGUMENT);
}

static void list(test_run *t)
{
#if !defined(FLEET_HIP)
    TEST(costs_are_measured);
#endif
    TEST(bad_arguments);
}

TEST_MAIN(list)
