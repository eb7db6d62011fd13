/* The implementation comes with the program; with -DFLEET_TEST_LINKED it is an object that many programs share, for it
   takes most of the time of compiling one (tests/run.sh). */
#ifndef FLEET_TEST_IMPLEMENTATION_H
#define FLEET_TEST_IMPLEMENTATION_H

#if !defined(FLEET_TEST_LINKED)
#define FLEET_IMPLEMENTATION
#endif

/* Where numbers that wrap begin (FLEETI_TEST_START): on the CPU tests choose it by start_at, and
   FLEET_TEST_START overrides that. On a GPU it is a constant of the build. */
#include <stdint.h>
#include <stdlib.h>
#define START_POINTS 5u
#if !defined(__HIPCC__) && !defined(__HIP__) && !defined(__CUDACC__) && !defined(FLEETI_TEST_START)
#define FLEETI_TEST_START test_start
#if defined(__cplusplus)
extern "C" uint32_t test_start;
#else
extern uint32_t test_start;
#endif
#if !defined(FLEET_TEST_LINKED)
uint32_t test_start;
#endif
static inline void start_at(uint32_t point)
{
    static const uint32_t points[START_POINTS] = {0, 0xffffffe0u, 0x7fffffe0u, 0xfffffff0u,
                                                  0x7ffffff0u};
    const char *given = getenv("FLEET_TEST_START");
    test_start = given ? (uint32_t)strtoul(given, NULL, 0) : points[point];
}
#else
static inline void start_at(uint32_t point)
{
    (void)point;
}
#endif

#endif
