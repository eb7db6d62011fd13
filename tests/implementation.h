/* The implementation comes with the program; with -DFLEET_TEST_LINKED it is an object that many programs share, for it
   takes most of the time of compiling one (tests/run.sh). */
#if !defined(FLEET_TEST_LINKED)
#define FLEET_IMPLEMENTATION
#endif
