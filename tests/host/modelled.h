/* Included before a program that knows nothing of it: its launches run in the chiplet-memory model, from the seed
   FLEET_TEST_SEED. The implementation is an object that all of them share: the program is told that it has it. */
#define _POSIX_C_SOURCE 200809L /* which programs ask for, after what stands here */
#include "fleet_sched.h"
#define FLEETI_IMPLEMENTED
#define FLEETI_DEVICE_IMPLEMENTED
#define FLEETI_SCHED_IMPLEMENTED
#define FLEETI_LINEAR_IMPLEMENTED
#define FLEETI_SERVER_IMPLEMENTED

#include <stdlib.h>
#include <string.h>

static inline fleet_host_desc modelled_host(void)
{
    const char *seed = getenv("FLEET_TEST_SEED");
    fleet_host_desc d;
    memset(&d, 0, sizeof d);
    d.engine = FLEET_ENGINE_DETERMINISTIC;
    d.memory_model = 1;
    d.seed = seed ? strtoul(seed, NULL, 10) : 1;
    d.waves = 2;
    return d;
}
static inline fleet_launch_desc modelled_launch(void)
{
    fleet_launch_desc d = fleet_launch_desc_default();
    d.host = modelled_host();
    return d;
}
static inline fleet_kernel_desc modelled_kernel(void)
{
    fleet_kernel_desc d = fleet_kernel_desc_default();
    d.host = modelled_host();
    return d;
}
#define fleet_launch_desc_default modelled_launch
#define fleet_kernel_desc_default modelled_kernel
