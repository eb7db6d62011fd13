/* The implementation comes with the program; with -DFLEET_TEST_LINKED it is an object that many programs share, for it
   takes most of the time of compiling one (tests/run.sh). */
#if !defined(FLEET_TEST_LINKED)
#define FLEET_IMPLEMENTATION
#endif

/* On the CPU tests choose where numbers that wrap begin (settings.h). */
#if !defined(__HIPCC__) && !defined(__HIP__) && !defined(__CUDACC__) && !defined(FLEETI_TEST_START)
#include <stdint.h>
#define FLEETI_TEST_START test_start
#if defined(__cplusplus)
extern "C" uint32_t test_start;
#else
extern uint32_t test_start;
#endif
#if !defined(FLEET_TEST_LINKED)
uint32_t test_start;
#endif
#endif
