/* What the benchmarks share: checked calls, timing by the device, and one line per result. */
#ifndef FLEET_BENCH_H
#define FLEET_BENCH_H

#define FLEET_IMPLEMENTATION
#include "fleet_sched.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECKED(call)                                                                              \
    do {                                                                                           \
        fleet_status checked = (call);                                                             \
        if (checked) {                                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                          \
                    fleet_status_text(checked));                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* ---- timing ---- */

#if defined(FLEET_CUDA) || defined(FLEET_HIP)
typedef struct timer {
    FLEETI_RT(Event_t) from, to;
} timer;
static void timer_start(timer *t)
{
    FLEETI_RT(EventCreate)(&t->from);
    FLEETI_RT(EventCreate)(&t->to);
    FLEETI_RT(EventRecord)(t->from, 0);
}
static double timer_stop_us(timer *t)
{
    float ms = 0;
    FLEETI_RT(EventRecord)(t->to, 0);
    FLEETI_RT(EventSynchronize)(t->to);
    FLEETI_RT(EventElapsedTime)(&ms, t->from, t->to);
    FLEETI_RT(EventDestroy)(t->from);
    FLEETI_RT(EventDestroy)(t->to);
    return (double)ms * 1e3;
}
#else
typedef struct timer {
    uint64_t from;
} timer;
static void timer_start(timer *t)
{
    t->from = fleeti_now_ns();
}
static double timer_stop_us(timer *t)
{
    return (double)(fleeti_now_ns() - t->from) / 1e3;
}
#endif

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
/* Median of seven runs, in microseconds. run(n, context) enqueues n units of work. */
typedef void (*work_fn)(uint32_t n, void *context);
static double median_us(work_fn run, uint32_t n, void *context)
{
    double t[7];
    for (int i = -1; i < 7; i++) {
        timer timer;
        timer_start(&timer);
        run(n, context);
        if (i >= 0)
            t[i] = timer_stop_us(&timer);
        else
            timer_stop_us(&timer);
    }
    qsort(t, 7, sizeof t[0], by_value);
    return t[3];
}
/* Per unit, with the cost of the launch taken out: the difference of two lengths. */
static __attribute__((unused)) double per_unit_us(work_fn run, uint32_t n, void *context)
{
    double shorter = median_us(run, n, context), longer = median_us(run, 3 * n, context);
    return (longer - shorter) / (2.0 * n);
}
static __attribute__((unused)) void line(const char *name, double value, const char *unit,
                                         const char *baseline, double base)
{
    if (base > 0)
        printf("%-58s %9.3f %-7s %-28s %9.3f  ratio %.2f\n", name, value, unit, baseline, base,
               value / base);
    else
        printf("%-58s %9.3f %-7s %s\n", name, value, unit, baseline);
    fflush(stdout);
}

#endif
