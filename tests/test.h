/* The suite's whole framework: a test program runs its tests by name and prints one line for each,
   "pass NAME" or "FAIL NAME: file:line: why"; its exit status is the number of failures (at most
   100). With arguments it runs only the tests whose names contain one of them. tests/run.sh counts
   the lines. Reads as C11 and as C++17, so that hipcc and nvcc take the same files. */
#ifndef FLEET_TEST_H
#define FLEET_TEST_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory that has not been written holds large floats, and integers that are no index, instead of the zeros that a fresh
   page has: what a program reads there shows. */
#if defined(__SANITIZE_ADDRESS__)
#if defined(__cplusplus)
extern "C"
#endif
    const char *
    __asan_default_options(void);
const char *__asan_default_options(void)
{
    /* Each launch has new threads and new LDS: with little in quarantine, pages are used again; and threads need no
       second stack, for an overflow ends the program in any case. */
    return "max_malloc_fill_size=1073741824:malloc_fill_byte=127:quarantine_size_mb=16:"
           "use_sigaltstack=0";
}
#elif defined(__GLIBC__)
#include <malloc.h>
#endif
static inline void test_poison(void)
{
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    mallopt(M_PERTURB, 0x80); /* its complement goes to new memory */
#endif
}

typedef struct test_run {
    int argc;
    char **argv;
    const char *name;
    int failed_here, failures;
} test_run;

static void test_fail(test_run *t, const char *file, int line, const char *format, ...)
{
    va_list list;
    if (t->failed_here++) return; /* the first reason is the one that helps */
    printf("FAIL %s: %s:%d: ", t->name, file, line);
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
    fflush(stdout);
}

static int test_wanted(const test_run *t, const char *name)
{
    int i;
    for (i = 1; i < t->argc; i++)
        if (strstr(name, t->argv[i])) return 1;
    return t->argc <= 1;
}

/* A failing CHECK returns from the function it stands in, which returns void and has `t` in scope. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            test_fail(t, __FILE__, __LINE__, "%s", #condition);                                    \
            return;                                                                                \
        }                                                                                          \
    } while (0)
#define CHECK_INT(got, want)                                                                       \
    do {                                                                                           \
        long long test_got = (long long)(got), test_want = (long long)(want);                      \
        if (test_got != test_want) {                                                               \
            test_fail(t, __FILE__, __LINE__, "%s is %lld, expected %lld", #got, test_got,          \
                      test_want);                                                                  \
            return;                                                                                \
        }                                                                                          \
    } while (0)
#define CHECK_TEXT(got, part)                                                                      \
    do {                                                                                           \
        const char *test_got = (got), *test_part = (part);                                         \
        if (!strstr(test_got, test_part)) {                                                        \
            test_fail(t, __FILE__, __LINE__, "\"%s\" does not contain \"%s\"", test_got,           \
                      test_part);                                                                  \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* Some cases go by turns: with FLEET_TEST_TURN=K/N a run has part K of N; by hand and in deep runs
   it has all, part 0 of 1. Returns N. */
static inline unsigned test_turns(unsigned *turn)
{
    const char *text = getenv("FLEET_TEST_TURN");
    unsigned turns = 1;
    *turn = 0;
    if (!text || !*text || getenv("FLEET_DEEP")) return 1;
    if (sscanf(text, "%u/%u", turn, &turns) != 2 || *turn >= turns) {
        fprintf(stderr, "FLEET_TEST_TURN=%s is no K/N with K below N\n", text);
        exit(2);
    }
    return turns;
}
/* Whether this run has the n-th case. */
static inline int test_in_turn(unsigned n)
{
    unsigned turn, turns = test_turns(&turn);
    return n % turns == turn;
}
/* Of `count` cases in a row, those from the returned one up to *end are this run's. */
static inline unsigned long long test_share(unsigned long long count, unsigned long long *end)
{
    unsigned turn, turns = test_turns(&turn);
    *end = count * (turn + 1) / turns;
    return count * turn / turns;
}

/* Runs `function(t)` as the test of that name. */
#define TEST(function)                                                                             \
    do {                                                                                           \
        if (test_wanted(t, #function)) {                                                           \
            t->name = #function;                                                                   \
            t->failed_here = 0;                                                                    \
            function(t);                                                                           \
            if (t->failed_here)                                                                    \
                t->failures++;                                                                     \
            else                                                                                   \
                printf("pass %s\n", #function);                                                    \
            fflush(stdout);                                                                        \
        }                                                                                          \
    } while (0)

#define TEST_MAIN(list)                                                                            \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        test_run run, *t = &run;                                                                   \
        memset(&run, 0, sizeof run);                                                               \
        test_poison();                                                                             \
        run.argc = argc;                                                                           \
        run.argv = argv;                                                                           \
        list(t);                                                                                   \
        return run.failures > 100 ? 100 : run.failures;                                            \
    }

#endif
