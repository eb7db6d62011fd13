/* memory_model.c: finds missing waits, drains, releases and acquires in a kernel, on any CPU.

   An instrument of the deterministic engine (fleet_host_instrument in fleet_device.h). A launch with
   fleet_host_desc.memory_model runs on modelled caches that only the kit's own drains, releases and acquires keep
   coherent, so a kernel that lacks one computes a wrong result here too. The first time that an access reads data that
   it must not rely on, a report says so:

       stale read: examples/08_find_the_bug.c:72, by wave 0 of workgroup 7 on chiplet 3
           stored: examples/08_find_the_bug.c:67, by wave 0 of workgroup 6 on chiplet 2
           why:    the store is in its own chiplet's L2 only: no release at device scope came after it
           enough: notify and wait at device scope

   USE
       examples/tools/memory_model.sh -I. kernel.c -o kernel
   compiles a program with the hooks of ThreadSanitizer, but links this file instead of its library. Then choose
   engine = FLEET_ENGINE_DETERMINISTIC and memory_model = 1 in the launch's host description, and run some seeds: what
   hardware may do at any moment happens at moments drawn from the seed. fleet_host_stats.findings counts the reports;
   each pair of places is printed once for each launch. example 08 has one bug of each kind.

   MODEL
       Each chiplet has a write-back L2, each workgroup a write-through L1 and stores in flight. At moments drawn from
       the seed a store in flight arrives, a line is evicted, or a line is fetched that no access asked for. Atomic
       operations act on memory. Only memory of fleet_device_alloc is modelled: pinned memory, the stack, the heap and
       LDS are coherent.

       Within a tile, whose waves are the threads that its kernel declares, accesses of two of them
       to the same bytes of dynamic LDS, one of which is a store, are reported where no barrier
       stands between them, in whatever order they ran; and accesses past its end.

       Two accesses are ordered when a chain of notify and wait, of barriers, or of acquire and release operations leads
       from one to the other (vector clocks). A plain read is reported
         unordered   when no such chain leads from the store to the read: a wait is missing, or a notify. So is a store to
                     bytes that another wave has read before;
         stale       when the chain is there, but the value is not visible: a scope is too narrow, or a drain, a release or
                     an acquire is missing. The report says where the value is instead.
       Atomic reads are reported when they are stale, not when they are unordered: they may be polls.

   LIMITS
       It does not see structs that a function returns straight into device memory, nor libraries that were compiled
       without the hooks. A store that was never ordered before a read of the old value is found only in the seeds whose
       order of waves shows it.

   HOW
       The compiler announces each access by a call to a hook of ThreadSanitizer; the hooks are defined at the end of this
       file. Coroutines switch only where the engine lets them, so a wave runs alone between two switches, and real memory
       can be its scratch: before a load, the hook puts there what the wave sees; what a store put there is collected when
       the wave reaches the next hook or switch. True memory is kept aside for the lines that a launch touches, and goes
       back to real memory at the end of the launch. */
#define _GNU_SOURCE
#include "fleet_device.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE FLEET_CACHE_LINE_BYTES
#define IN_FLIGHT 64u  /* stores of a wave: one more makes an earlier one arrive */
#define STRETCHES 256u /* address ranges that were looked up last */
#define SITES 4096u    /* access sites that were looked up last */
#define BEYOND_LDS                                                                                 \
    4096u           /* bytes after an LDS: accesses to them are reported, not those further on */
#define REPORTS 64u /* of a launch: others are counted, but not printed */

/* Where an access came from. Index 0 is no access. */
typedef struct site {
    uint32_t agent, clock; /* the wave, and its own vector clock entry at that time */
    uint32_t chiplet, atomic;
    const void *pc;
    const fleet_plan *plan; /* of the task; null: outside of tiles */
    uint32_t task;
} site;

/* A hash table of items that begin with a uintptr_t key, which grows. */
typedef struct table {
    char *items;
    uint32_t *slots; /* 2 * room of them: 1 + index of an item */
    uint32_t n, room;
    uint32_t found; /* 1 + index of the item that was looked up last */
    size_t size;    /* of an item */
} table;

typedef struct copy { /* of a line, in a cache or, with all bytes valid, in memory */
    uintptr_t line;
    uint8_t byte[LINE], valid[LINE], dirty[LINE];
    uint32_t store[LINE]; /* the site of the store that each byte is of */
} copy;

/* What the waves have done to a line, in the order in which they ran, whatever the caches hold. */
typedef struct history {
    uintptr_t line;
    uint8_t byte[LINE];
    uint32_t store[LINE], load[LINE]; /* sites of the last ones */
} history;

typedef struct store { /* in flight, within one line */
    uintptr_t at;
    uint32_t size, wave, site;
    uint8_t byte[16];
} store;

typedef struct group { /* a workgroup */
    table l1;
    store *stores; /* in the order of issue */
    uint32_t n_stores;
    uintptr_t first, end; /* they lie in between */
    uint32_t chiplet;
} group;

typedef enum kind { NEITHER, DEVICE, LDS } kind;
typedef struct stretch { /* of addresses: device memory, LDS, or what lies between two pieces */
    uintptr_t first;
    size_t size, lds_bytes;
    kind kind;
} stretch;

typedef struct in_hand { /* a task; plan is null: none */
    const fleet_plan *plan;
    uint32_t task;
} in_hand;

typedef struct finding {
    const void *read, *stored;
    const char *why;
} finding;

typedef struct model {
    stretch *ranges; /* device memory, as of the launch */
    size_t n_ranges;
    stretch looked_up[STRETCHES];
    table memory, histories; /* histories: of LDS too */
    in_hand *tasks;          /* of the agents */
    table *l2;
    group *groups;
    uint32_t chiplets, blocks, waves, agents;
    uint32_t block, wave; /* that run now */
    uint64_t rng, until;  /* until: steps to the next event of chance */
    uint64_t interval;    /* mean steps between two of them; 0: there are none */
    uintptr_t written;    /* a store that is not collected yet */
    size_t written_size;
    uint32_t writer_block, writer_wave;
    const void *written_pc;
    uint32_t *clocks; /* [agent][agent]: vector clocks */
    table objects;    /* what agents synchronise through: address, vector clock */
    site *sites;
    size_t n_sites, sites_room;
    uint32_t site_cache[SITES];
    finding reports[REPORTS];
    uint32_t n_reports;
    uint64_t findings;
} model;

static __thread model *now; /* the calling thread's launch; null: none */

static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;
static stretch *all_ranges; /* guarded by ranges_lock, as is the next */
static size_t n_all_ranges;

/* Within a load or a store there is no caller to return a status to. */
static void *or_die(void *memory)
{
    if (!memory) abort();
    return memory;
}
/* To or from real memory: volatile, lest a compiler makes a memcpy of it, which is hooked. */
static void copy_bytes(void *to, const void *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((volatile uint8_t *)to)[i] = ((const volatile uint8_t *)from)[i];
}
static uint64_t chance(model *m, uint64_t n)
{
    m->rng = m->rng * 6364136223846793005ull + 1442695040888963407ull;
    return (m->rng >> 33) % n;
}

/* ---- tables ---- */

static uint32_t *table_slot(const table *t, uintptr_t key)
{
    uint32_t i = (uint32_t)((key / 4 * 0x9e3779b97f4a7c15ull) >> 32);
    while (t->slots[i & (2 * t->room - 1)] &&
           *(const uintptr_t *)(const void *)(t->items + (t->slots[i & (2 * t->room - 1)] - 1) *
                                                             t->size) != key)
        i++;
    return &t->slots[i & (2 * t->room - 1)];
}
/* The item of a key; null where there is none and `make` is 0. Valid until the next one is made. */
static void *table_at(table *t, uintptr_t key, uint32_t make)
{
    uint32_t *slot;
    if (t->found && *(uintptr_t *)(void *)(t->items + (t->found - 1) * t->size) == key)
        return t->items + (t->found - 1) * t->size;
    slot = t->room ? table_slot(t, key) : NULL;
    if (slot && *slot) return t->items + ((t->found = *slot) - 1) * t->size;
    if (!make) return NULL;
    if (t->n == t->room) {
        t->room = t->room ? 2 * t->room : 16;
        t->items = (char *)or_die(realloc(t->items, t->room * t->size));
        free(t->slots);
        t->slots = (uint32_t *)or_die(calloc(2 * (size_t)t->room, sizeof *t->slots));
        for (uint32_t i = 0; i < t->n; i++)
            *table_slot(t, *(uintptr_t *)(void *)(t->items + i * t->size)) = i + 1;
    }
    memset(t->items + t->n * t->size, 0, t->size);
    *(uintptr_t *)(void *)(t->items + t->n * t->size) = key;
    *table_slot(t, key) = t->n + 1;
    return t->items + t->n++ * t->size;
}
static copy *copy_at(table *t, uintptr_t line, uint32_t make)
{
    return (copy *)table_at(t, line, make);
}
static void table_end(table *t)
{
    free(t->items);
    free(t->slots);
}

/* ---- order: vector clocks, access sites ---- */

static uint32_t agent_of(const model *m, uint32_t block, uint32_t wave)
{
    return block * m->waves + wave;
}
static uint32_t running(const model *m)
{
    return agent_of(m, m->block, m->wave);
}
static void join(uint32_t *to, const uint32_t *from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (from[i] > to[i]) to[i] = from[i];
}
static uint32_t *object_clock(model *m, const volatile void *object, uint32_t make)
{
    char *item = (char *)table_at(&m->objects, (uintptr_t)object, make);
    return item ? (uint32_t *)(void *)(item + sizeof(uintptr_t)) : NULL;
}
/* A release to an object: a later acquire of it comes after everything that this wave has done. */
static void publish(model *m, const volatile void *object)
{
    const uint32_t me = running(m);
    join(object_clock(m, object, 1), m->clocks + (size_t)me * m->agents, m->agents);
    m->clocks[(size_t)me * m->agents + me]++;
}
static void observe(model *m, const volatile void *object)
{
    const uint32_t *clock = object_clock(m, object, 0);
    if (clock) join(m->clocks + (size_t)running(m) * m->agents, clock, m->agents);
}
/* Whether what was done at a site comes before what the agent does now. */
static uint32_t ordered(const model *m, const site *s, uint32_t agent)
{
    return s->agent == agent || m->clocks[(size_t)agent * m->agents + s->agent] >= s->clock;
}

/* The same site again where wave, clock, place and kind are the same, as in a loop. */
static uint32_t site_of(model *m, uint32_t block, uint32_t wave, const void *pc, uint32_t atomic)
{
    const uint32_t agent = agent_of(m, block, wave);
    const uint32_t clock = m->clocks[(size_t)agent * m->agents + agent];
    uint32_t *cached = &m->site_cache[((uintptr_t)pc * 31 + agent * 7 + atomic) % SITES];
    site *s = &m->sites[*cached];
    if (*cached && s->agent == agent && s->clock == clock && s->pc == pc && s->atomic == atomic &&
        s->chiplet == m->groups[block].chiplet && s->plan == m->tasks[agent].plan &&
        s->task == m->tasks[agent].task)
        return *cached;
    if (m->n_sites == m->sites_room) {
        m->sites_room *= 2;
        m->sites = (site *)or_die(realloc(m->sites, m->sites_room * sizeof *m->sites));
    }
    s = &m->sites[m->n_sites];
    s->agent = agent, s->clock = clock, s->chiplet = m->groups[block].chiplet;
    s->atomic = atomic, s->pc = pc;
    s->plan = m->tasks[agent].plan, s->task = m->tasks[agent].task;
    return *cached = (uint32_t)m->n_sites++;
}

/* ---- reports ---- */

/* The source line of the instruction before a return address: the innermost one outside of the kit's headers. */
static void print_place(const void *pc)
{
    char program[1024], command[1200], line[1024], place[1024] = "";
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    char *here = getcwd(NULL, 0);
    FILE *lines;
    program[n > 0 ? n : 0] = 0;
    snprintf(command, sizeof command, "addr2line -i -e '%s' %p 2>&1", program,
             (const void *)((const char *)pc - 1));
    lines = popen(command, "r");
    while (lines && fgets(line, sizeof line, lines)) {
        const char *path = line, *name;
        const size_t length = here ? strlen(here) : 0;
        line[strcspn(line, " \n")] = 0; /* not "(discriminator 3)" */
        if (length && !strncmp(line, here, length) && line[length] == '/') path += length + 1;
        name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
        if (!place[0] ||
            !strncmp(strrchr(place, '/') ? strrchr(place, '/') + 1 : place, "fleet", 5))
            snprintf(place, sizeof place, "%s", path);
        if (strncmp(name, "fleet", 5)) break;
    }
    if (lines) pclose(lines);
    free(here);
    if (place[0] && place[0] != '?')
        fputs(place, stderr);
    else
        fprintf(stderr, "%p", pc);
}
static void print_access(const char *what, const model *m, const site *s)
{
    fprintf(stderr, "%s", what);
    print_place(s->pc);
    fprintf(stderr, ", by wave %u of workgroup %u on chiplet %u", s->agent % m->waves,
            s->agent / m->waves, s->chiplet);
    if (s->plan) {
        char name[160];
        fleet_plan_task_name(s->plan, s->task, name, sizeof name);
        fprintf(stderr, ", in %s", name);
    }
    fputs("\n", stderr);
}
static const char *nearest(const model *m, const site *a, const site *b)
{
    if (a->agent / m->waves == b->agent / m->waves) return "notify and wait at block scope";
    return a->chiplet == b->chiplet ? "notify and wait at chiplet scope"
                                    : "notify and wait at device scope";
}
/* kind is what the report begins with; stored: null where one access alone is wrong; enough,
   what would mend it; null: events at the nearest scope. */
static void report(model *m, const char *kind, const site *read, const site *stored,
                   const char *why, const char *enough)
{
    const void *place = stored ? stored->pc : NULL;
    m->findings++;
    for (uint32_t i = 0; i < m->n_reports; i++)
        if (m->reports[i].read == read->pc && m->reports[i].stored == place &&
            m->reports[i].why == why)
            return;
    if (m->n_reports == REPORTS) return;
    m->reports[m->n_reports].read = read->pc;
    m->reports[m->n_reports].stored = place;
    m->reports[m->n_reports++].why = why;
    print_access(kind, m, read);
    if (stored) print_access("    stored: ", m, stored);
    fprintf(stderr, "    why:    %s\n", why);
    fprintf(stderr, "    enough: %s\n", enough ? enough : nearest(m, read, stored));
}

/* ---- caches ---- */

/* Forgets what is not dirty. */
static void invalidate(table *cache)
{
    for (uint32_t i = 0; i < cache->n; i++) {
        copy *c = (copy *)(void *)(cache->items + i * cache->size);
        memcpy(c->valid, c->dirty, LINE);
    }
}
/* True memory; a line comes from real memory when the launch touches it first. */
static copy *memory_at(model *m, uintptr_t line)
{
    copy *c = copy_at(&m->memory, line, 0);
    if (c) return c;
    c = copy_at(&m->memory, line, 1);
    copy_bytes(c->byte, (const void *)line, LINE);
    memset(c->valid, 1, LINE);
    return c;
}
static void write_back(model *m, copy *from, uint32_t first, uint32_t n)
{
    copy *to;
    if (!memchr(from->dirty + first, 1, n)) return;
    to = memory_at(m, from->line);
    for (uint32_t i = first; i < first + n; i++) {
        if (from->dirty[i]) to->byte[i] = from->byte[i], to->store[i] = from->store[i];
        from->dirty[i] = 0;
    }
}
static void write_back_all(model *m, uint32_t chiplet)
{
    for (uint32_t i = 0; i < m->l2[chiplet].n; i++)
        write_back(m, (copy *)(void *)(m->l2[chiplet].items + i * sizeof(copy)), 0, LINE);
}
static void fill(copy *to, const copy *from)
{
    if (!memchr(to->valid, 0, LINE)) return;
    for (uint32_t i = 0; i < LINE; i++)
        if (!to->valid[i])
            to->byte[i] = from->byte[i], to->store[i] = from->store[i], to->valid[i] = 1;
}
/* A whole line into the L2 and from there into the L1. */
static copy *fetch(model *m, group *g, uintptr_t line)
{
    copy *l2 = copy_at(&m->l2[g->chiplet], line, 1), *l1 = copy_at(&g->l1, line, 1);
    fill(l2, memory_at(m, line));
    fill(l1, l2);
    return l1;
}

static uint32_t overlap(uintptr_t a, size_t a_size, uintptr_t b, size_t b_size)
{
    return a < b + b_size && b < a + a_size;
}
/* Store i of those in flight reaches the L1 and then the L2. Stores to the same bytes stay in order. */
static void arrive(model *m, group *g, uint32_t i)
{
    const store s = g->stores[i];
    const uint32_t first = (uint32_t)(s.at % LINE);
    copy *l1 = copy_at(&g->l1, s.at - first, 0), *l2;
    for (uint32_t k = 0; k < i;) {
        if (overlap(g->stores[k].at, g->stores[k].size, s.at, s.size)) {
            const uint32_t before = g->n_stores;
            arrive(m, g, k);
            i -= before - g->n_stores;
            k = 0;
        } else {
            k++;
        }
    }
    l2 = copy_at(&m->l2[g->chiplet], s.at - first, 1);
    memcpy(l2->byte + first, s.byte, s.size);
    memset(l2->valid + first, 1, s.size);
    memset(l2->dirty + first, 1, s.size);
    if (l1) memcpy(l1->byte + first, s.byte, s.size);
    for (uint32_t k = first; k < first + s.size; k++) {
        l2->store[k] = s.site;
        if (l1) l1->store[k] = s.site;
    }
    g->n_stores--;
    for (uint32_t k = i; k < g->n_stores; k++) g->stores[k] = g->stores[k + 1];
}
static void by_chance(model *m)
{
    group *g;
    if (!m->interval || --m->until) return;
    m->until = 1 + chance(m, 2 * m->interval);
    g = &m->groups[chance(m, m->blocks)];
    switch (chance(m, 4)) {
    case 0: /* an eviction */
        if (m->l2[g->chiplet].n) {
            copy *l2 = (copy *)(void *)(m->l2[g->chiplet].items +
                                        chance(m, m->l2[g->chiplet].n) * sizeof(copy));
            write_back(m, l2, 0, LINE);
            memset(l2->valid, 0, LINE);
        }
        break;
    case 1: /* a prefetch */
        if (m->memory.n)
            fetch(
                m, g,
                ((copy *)(void *)(m->memory.items + chance(m, m->memory.n) * sizeof(copy)))->line);
        break;
    default:
        if (g->n_stores) arrive(m, g, (uint32_t)chance(m, g->n_stores));
    }
}

/* ---- loads and stores ---- */

/* A store to bytes of a line: what other waves have read of them without order, and the new history. */
static void record_store(model *m, uintptr_t at, uint32_t n, uint32_t from, const uint8_t *byte)
{
    const uint32_t first = (uint32_t)(at % LINE);
    history *h = (history *)table_at(&m->histories, at - first, 1);
    for (uint32_t i = first; i < first + n; i++) {
        const site *read = &m->sites[h->load[i]], *mine = &m->sites[from];
        if (h->load[i] && !mine->atomic && !ordered(m, read, mine->agent)) {
            report(m, "unordered read: ", read, mine,
                   "the read came first, but nothing orders the store after it", NULL);
            break;
        }
    }
    memcpy(h->byte + first, byte, n);
    for (uint32_t i = first; i < first + n; i++) h->store[i] = from, h->load[i] = 0;
}
/* The last store, from real memory into flight. */
static void collect(model *m)
{
    group *g;
    uint32_t from;
    by_chance(m);
    if (!m->written_size) return;
    g = &m->groups[m->writer_block];
    from = site_of(m, m->writer_block, m->writer_wave, m->written_pc, 0);
    while (m->written_size) {
        store *s;
        size_t n = LINE - m->written % LINE;
        if (n > sizeof s->byte) n = sizeof s->byte;
        if (n > m->written_size) n = m->written_size;
        if (g->n_stores == IN_FLIGHT * m->waves) arrive(m, g, (uint32_t)chance(m, g->n_stores));
        s = &g->stores[g->n_stores++];
        s->at = m->written, s->size = (uint32_t)n, s->wave = m->writer_wave, s->site = from;
        if (g->n_stores == 1 || s->at < g->first) g->first = s->at;
        if (g->n_stores == 1 || s->at + n > g->end) g->end = s->at + n;
        copy_bytes(s->byte, (const void *)s->at, n);
        record_store(m, s->at, (uint32_t)n, from, s->byte);
        m->written += n, m->written_size -= n;
    }
}

static stretch stretch_of(const model *m, uintptr_t at)
{
    stretch s;
    uintptr_t end = UINTPTR_MAX;
    s.first = 0, s.kind = NEITHER, s.lds_bytes = 0;
    for (size_t i = 0; i < m->n_ranges && !s.kind; i++) {
        const uintptr_t first = m->ranges[i].first, last = first + m->ranges[i].size;
        if (first <= at && at < last)
            s = m->ranges[i], end = last;
        else if (first > at && first < end)
            end = first;
        else if (last <= at && last > s.first)
            s.first = last;
    }
    s.size = end - s.first;
    return s;
}
static const stretch *look_up(model *m, const volatile void *p)
{
    const uintptr_t at = (uintptr_t)p;
    stretch *s = &m->looked_up[at / 4096 % STRETCHES];
    if (at - s->first >= s->size) *s = stretch_of(m, at);
    return s;
}
/* The model, where the access is one to device memory. Most are not: tiles count in registers, which are the stack
   here, and in LDS. They must not look through all ranges. */
static model *modelled(const volatile void *p)
{
    return now && look_up(now, p)->kind == DEVICE ? now : NULL;
}

/* ---- LDS ---- */

/* A plain access to the dynamic LDS of a workgroup, which is coherent: that it stays inside, and
   that barriers, or words that are released and acquired, order it after the other waves' accesses
   to the same bytes. */
static void check_lds(model *m, const stretch *lds, uintptr_t at, size_t size, uint32_t stores,
                      const void *pc)
{
    const uint32_t mine = site_of(m, m->block, m->wave, pc, 0), me = running(m);
    const char *barrier = "fleet_barrier(&ctx) between the two";
    uint32_t reported = 0;
    if (at + size - lds->first > lds->lds_bytes)
        report(m, "past the LDS: ", &m->sites[mine], NULL,
               "the access lies beyond fleet_launch_desc.lds_bytes",
               "more lds_bytes, or an index that stays inside ctx.lds_bytes");
    for (uintptr_t p = at; p < at + size; p++) {
        history *h = (history *)table_at(&m->histories, p / LINE * LINE, 1);
        uint32_t *stored = &h->store[p % LINE], *read = &h->load[p % LINE];
        if (!reported && *stored && !ordered(m, &m->sites[*stored], me)) {
            report(m,
                   stores ? "unordered store to LDS: " : "unordered read of LDS: ", &m->sites[mine],
                   &m->sites[*stored],
                   stores ? "nothing orders this store after another wave's to the same bytes"
                          : "nothing orders the read after the store of another wave",
                   barrier);
            reported = 1;
        }
        if (!reported && stores && *read && !ordered(m, &m->sites[*read], me)) {
            report(m, "unordered read of LDS: ", &m->sites[*read], &m->sites[mine],
                   "the read came first, but nothing orders the store after it", barrier);
            reported = 1;
        }
        if (stores)
            *stored = mine, *read = 0;
        else
            *read = mine;
    }
}
static uint32_t is_lds(const volatile void *p, size_t size, uint32_t stores, const void *pc)
{
    const stretch *s = now ? look_up(now, p) : NULL;
    if (!s || s->kind != LDS) return 0;
    check_lds(now, s, (uintptr_t)p, size, stores, pc);
    return 1;
}

/* Why a read of byte `at` sees another store than the last one, `last`, although it comes after it. */
static const char *whereabouts(model *m, uintptr_t at, uint32_t last)
{
    const site *s = &m->sites[last];
    const uint32_t first = (uint32_t)(at % LINE);
    const group *writer = &m->groups[s->agent / m->waves], *reader = &m->groups[m->block];
    const copy *l2 = copy_at(&m->l2[reader->chiplet], at - first, 0);
    for (uint32_t i = 0; i < writer->n_stores; i++)
        if (writer->stores[i].site == last && at - writer->stores[i].at < writer->stores[i].size)
            return "the store is still in flight: its wave has not drained it, and a barrier does "
                   "not";
    if (s->chiplet != reader->chiplet) {
        const copy *c = copy_at(&m->l2[s->chiplet], at - first, 0);
        if (c && c->dirty[first] && c->store[first] == last)
            return "the store is in its own chiplet's L2 only: no release at device scope came "
                   "after it";
    }
    if (l2 && l2->valid[first] && l2->store[first] != last)
        return "the reader's chiplet has an older copy in its L2: no acquire at device scope came "
               "before the read";
    return "the reader's workgroup has an older copy in its L1: no acquire came before the read";
}
/* The running wave reads n bytes of a line, and sees the stores `seen`. Registers the read, and reports it once. */
static void check_read(model *m, uintptr_t at, uint32_t n, const uint32_t *seen,
                       const uint8_t *byte, const void *pc, uint32_t atomic)
{
    const uint32_t first = (uint32_t)(at % LINE), me = running(m);
    history *h = (history *)table_at(&m->histories, at - first, 0);
    uint32_t mine = 0, reported = 0;
    if (!h) return;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t last = h->store[first + i];
        const char *why = NULL, *kind = "stale read: ", *enough = NULL;
        const uint32_t stale = seen[i] != last || byte[i] != h->byte[first + i];
        if (!last) continue;
        if (!mine) mine = site_of(m, m->block, m->wave, pc, atomic);
        if (!atomic) h->load[first + i] = mine;
        if (reported || m->sites[last].agent == me) continue;
        if (ordered(m, &m->sites[last], me)) {
            if (stale) why = whereabouts(m, at + i, last);
        } else if (!atomic && !m->sites[last].atomic) {
            kind = "unordered read: ";
            why = "nothing orders the read after the store: no wait for an event notified after it";
        } else if (!atomic && stale) {
            why = "atomics change this word, and a plain load may see an old value for ever";
            enough = "an atomic load, such as fleet_load_acquire_device";
        }
        if (why) report(m, kind, &m->sites[mine], &m->sites[last], why, enough), reported = 1;
    }
}

static void load(const volatile void *from, size_t size, const void *pc)
{
    model *m = modelled(from);
    group *g;
    if (!size || (!m && is_lds(from, size, 0, pc)) || !m) return;
    g = &m->groups[m->block];
    /* Compilers announce the store of a struct copy before its load: what is announced may not be done. */
    if (overlap(m->written, m->written_size, (uintptr_t)from, size))
        collect(m);
    else
        by_chance(m);
    for (uintptr_t at = (uintptr_t)from, end = at + size; at < end;) {
        uint32_t first = (uint32_t)(at % LINE), n = LINE - first, seen[LINE];
        uint8_t byte[LINE];
        copy *l1 = copy_at(&g->l1, at - first, 0);
        if (n > end - at) n = (uint32_t)(end - at);
        if (!l1 || memchr(l1->valid + first, 0, n)) l1 = fetch(m, g, at - first);
        memcpy(byte, l1->byte + first, n);
        memcpy(seen, l1->store + first, n * sizeof *seen);
        /* The workgroup's own stores in flight: they passed its L1. */
        if (overlap(g->first, g->end - g->first, at, n))
            for (uint32_t i = 0; i < g->n_stores; i++) {
                const store *s = &g->stores[i];
                for (uint32_t k = 0; overlap(s->at, s->size, at, n) && k < s->size; k++)
                    if (s->at + k - at < n)
                        byte[s->at + k - at] = s->byte[k], seen[s->at + k - at] = s->site;
            }
        copy_bytes((void *)at, byte, n);
        check_read(m, at, n, seen, byte, pc, 0);
        at += n;
    }
}
static void announce_store(volatile void *to, size_t size, const void *pc)
{
    model *m = modelled(to);
    if (!size || (!m && is_lds(to, size, 1, pc)) || !m) return;
    collect(m);
    for (uintptr_t line = (uintptr_t)to / LINE * LINE; line < (uintptr_t)to + size; line += LINE)
        memory_at(m, line);
    m->written = (uintptr_t)to;
    m->written_size = size;
    m->written_pc = pc;
    m->writer_block = m->block, m->writer_wave = m->wave;
}

#define IS_ACQUIRE(order)                                                                          \
    ((order) == __ATOMIC_CONSUME || (order) == __ATOMIC_ACQUIRE || (order) == __ATOMIC_ACQ_REL ||  \
     (order) == __ATOMIC_SEQ_CST)
#define IS_RELEASE(order)                                                                          \
    ((order) == __ATOMIC_RELEASE || (order) == __ATOMIC_ACQ_REL || (order) == __ATOMIC_SEQ_CST)

/* Around an atomic operation on real memory. It acts on memory, past the caches; what its workgroup stored to these
   bytes, and what its chiplet has dirty of them, comes before it. */
static model *atomic_begins(const volatile void *p, size_t size, uint32_t reads, const void *pc)
{
    model *m = modelled(p);
    const uintptr_t at = (uintptr_t)p;
    const uint32_t first = (uint32_t)(at % LINE);
    copy *l2, *memory;
    group *g;
    if (!m) return NULL;
    collect(m);
    g = &m->groups[m->block];
    for (uint32_t i = 0; i < g->n_stores;)
        if (overlap(g->stores[i].at, g->stores[i].size, at, size))
            arrive(m, g, i), i = 0;
        else
            i++;
    l2 = copy_at(&m->l2[g->chiplet], at - first, 0);
    if (l2) write_back(m, l2, first, (uint32_t)size);
    memory = memory_at(m, at - first);
    copy_bytes((void *)at, memory->byte + first, size);
    if (reads)
        check_read(m, at, (uint32_t)size, memory->store + first, memory->byte + first, pc, 1);
    return m;
}
static void atomic_ends(model *m, const volatile void *p, size_t size, const void *pc)
{
    const uint32_t first = (uint32_t)((uintptr_t)p % LINE);
    const uintptr_t line = (uintptr_t)p - first;
    copy *l1, *l2, *memory;
    uint32_t from;
    if (!m) return;
    from = site_of(m, m->block, m->wave, pc, 1);
    l2 = copy_at(&m->l2[m->groups[m->block].chiplet], line, 0);
    l1 = copy_at(&m->groups[m->block].l1, line, 0);
    memory = memory_at(m, line);
    copy_bytes(memory->byte + first, (const void *)(line + first), size);
    if (l2) copy_bytes(l2->byte + first, (const void *)(line + first), size);
    if (l1) memset(l1->valid + first, 0, size);
    for (uint32_t i = first; i < first + size; i++) {
        memory->store[i] = from;
        if (l2) l2->store[i] = from;
    }
    record_store(m, line + first, (uint32_t)size, from, memory->byte + first);
}
/* The order that an atomic operation has, wherever the word is. */
static void order_before(const volatile void *p, int order)
{
    if (now && IS_RELEASE(order)) collect(now), publish(now, p);
}
static void order_after(const volatile void *p, int order)
{
    if (now && IS_ACQUIRE(order)) observe(now, p);
}

/* ---- what the engine tells ---- */

static void model_allocated(void *memory, size_t bytes)
{
    pthread_mutex_lock(&ranges_lock);
    all_ranges = (stretch *)or_die(realloc(all_ranges, (n_all_ranges + 1) * sizeof *all_ranges));
    all_ranges[n_all_ranges].first = (uintptr_t)memory;
    all_ranges[n_all_ranges].lds_bytes = 0;
    all_ranges[n_all_ranges].kind = DEVICE;
    all_ranges[n_all_ranges++].size = bytes;
    pthread_mutex_unlock(&ranges_lock);
}
static void model_freed(void *memory)
{
    pthread_mutex_lock(&ranges_lock);
    for (size_t i = 0; i < n_all_ranges; i++)
        if (all_ranges[i].first == (uintptr_t)memory) all_ranges[i--] = all_ranges[--n_all_ranges];
    pthread_mutex_unlock(&ranges_lock);
}

static uint64_t model_end(void)
{
    model *m = now;
    const uint64_t findings = m->findings;
    collect(m);
    now = NULL;
    for (uint32_t b = 0; b < m->blocks; b++) {
        while (m->groups[b].n_stores) arrive(m, &m->groups[b], 0);
        free(m->groups[b].stores);
        table_end(&m->groups[b].l1);
    }
    for (uint32_t k = 0; k < m->chiplets; k++) {
        write_back_all(m, k);
        table_end(&m->l2[k]);
    }
    for (uint32_t i = 0; i < m->memory.n; i++) {
        const copy *c = (const copy *)(void *)(m->memory.items + i * sizeof(copy));
        copy_bytes((void *)c->line, c->byte, LINE);
    }
    table_end(&m->memory);
    table_end(&m->histories);
    table_end(&m->objects);
    free(m->sites);
    free(m->clocks);
    free(m->tasks);
    free(m->groups);
    free(m->l2);
    free(m->ranges);
    free(m);
    return findings;
}
static fleet_status model_begin(const fleet_kernel_desc *desc, uint32_t waves)
{
    static const uint32_t intervals[4] = {0, 4, 32, 256};
    model *m;
    if (now) return FLEET_ERROR_UNSUPPORTED; /* a kernel that launches another one */
    if (desc->host.engine != FLEET_ENGINE_DETERMINISTIC) return FLEET_ERROR_ARGUMENT;
    m = (model *)or_die(calloc(1, sizeof *m));
    m->blocks = desc->blocks, m->waves = waves, m->agents = desc->blocks * waves;
    m->chiplets =
        desc->host.chiplets > FLEET_MAX_CHIPLETS ? desc->host.chiplets : FLEET_MAX_CHIPLETS;
    m->rng = desc->host.seed;
    m->interval = intervals[chance(m, 4)];
    m->until = 1;
    m->memory.size = sizeof(copy), m->histories.size = sizeof(history);
    m->objects.size =
        (sizeof(uintptr_t) + m->agents * sizeof(uint32_t) + 7) / 8 * 8; /* key, vector clock */
    m->l2 = (table *)or_die(calloc(m->chiplets, sizeof *m->l2));
    m->groups = (group *)or_die(calloc(m->blocks, sizeof *m->groups));
    m->clocks = (uint32_t *)or_die(calloc((size_t)m->agents * m->agents, sizeof *m->clocks));
    m->tasks = (in_hand *)or_die(calloc(m->agents, sizeof *m->tasks));
    m->sites_room = 1024, m->n_sites = 1;
    m->sites = (site *)or_die(calloc(m->sites_room, sizeof *m->sites));
    for (uint32_t k = 0; k < m->chiplets; k++) m->l2[k].size = sizeof(copy);
    for (uint32_t a = 0; a < m->agents; a++) m->clocks[(size_t)a * m->agents + a] = 1;
    for (uint32_t b = 0; b < m->blocks; b++) {
        m->groups[b].l1.size = sizeof(copy);
        m->groups[b].stores = (store *)or_die(malloc(IN_FLIGHT * waves * sizeof(store)));
    }
    pthread_mutex_lock(&ranges_lock);
    m->n_ranges = n_all_ranges;
    m->ranges = (stretch *)or_die(calloc(n_all_ranges + 2 * (size_t)m->blocks, sizeof *m->ranges));
    if (n_all_ranges) memcpy(m->ranges, all_ranges, n_all_ranges * sizeof *m->ranges);
    pthread_mutex_unlock(&ranges_lock);
    now = m;
    return FLEET_OK;
}
static void model_placed(uint32_t block, uint32_t chiplet)
{
    now->groups[block].chiplet = chiplet;
}
/* Bytes past its end belong to it, too: what follows is no other memory. */
static void model_lds(uint32_t block, void *lds, size_t bytes)
{
    stretch *s = &now->ranges[now->n_ranges++];
    (void)block;
    s->first = (uintptr_t)lds;
    s->size = bytes + BEYOND_LDS, s->lds_bytes = bytes;
    s->kind = LDS;
    /* What lay between the ranges before may reach over this one: forgets it. */
    for (uint32_t i = 0; i < STRETCHES; i++) now->looked_up[i].size = 0;
}
static void model_task(const fleet_plan *plan, uint32_t task)
{
    collect(now); /* the last store is the previous task's */
    now->tasks[running(now)].plan = plan;
    now->tasks[running(now)].task = task;
}
static void model_runs(uint32_t block, uint32_t wave)
{
    collect(now);
    now->block = block, now->wave = wave;
}
static void model_publish(const void *object)
{
    publish(now, object);
}
static void model_observe(const void *object)
{
    observe(now, object);
}
static void model_drain(void)
{
    group *g = &now->groups[now->block];
    collect(now);
    for (uint32_t i = 0; i < g->n_stores;)
        if (g->stores[i].wave == now->wave)
            arrive(now, g, i), i = 0;
        else
            i++;
}
static void model_release(fleet_scope scope)
{
    (void)scope;
    collect(now);
    write_back_all(now, now->groups[now->block].chiplet);
}
static void model_acquire(fleet_scope scope)
{
    collect(now);
    invalidate(&now->groups[now->block].l1);
    if (scope != FLEET_SCOPE_CHIPLET) invalidate(&now->l2[now->groups[now->block].chiplet]);
}

const fleet_host_instrument fleet_memory_model = {
    model_allocated, model_freed,   model_begin,  model_end,     model_placed,
    model_lds,       model_runs,    model_task,   model_publish, model_observe,
    model_drain,     model_release, model_acquire};

/* ---- hooks: what compilers call with -fsanitize=thread ---- */

#define PC __builtin_return_address(0)

#define HOOKS_OF(size, prefix)                                                                     \
    void __tsan_##prefix##read##size(void *at);                                                    \
    void __tsan_##prefix##write##size(void *at);                                                   \
    void __tsan_##prefix##read##size(void *at)                                                     \
    {                                                                                              \
        load(at, size, PC);                                                                        \
    }                                                                                              \
    void __tsan_##prefix##write##size(void *at)                                                    \
    {                                                                                              \
        announce_store(at, size, PC);                                                              \
    }
#define HOOKS(size)                                                                                \
    HOOKS_OF(size, )                                                                               \
    HOOKS_OF(size, unaligned_)                                                                     \
    HOOKS_OF(size, volatile_)                                                                      \
    HOOKS_OF(size, unaligned_volatile_)
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void *at, size_t size)
{
    load(at, size, PC);
}
void __tsan_write_range(void *at, size_t size)
{
    announce_store(at, size, PC);
}
void __tsan_init(void) {}
void __tsan_func_entry(void *caller)
{
    (void)caller;
}
void __tsan_func_exit(void) {}
void __tsan_vptr_read(void **at)
{
    load(at, sizeof *at, PC);
}
void __tsan_vptr_update(void **at, void *value)
{
    (void)value;
    announce_store(at, sizeof *at, PC);
}

#define ATOMIC_HOOK(bits, type, name, builtin)                                                     \
    type __tsan_atomic##bits##_##name(volatile void *at, type value, int order)                    \
    {                                                                                              \
        model *m;                                                                                  \
        type old;                                                                                  \
        order_before(at, order);                                                                   \
        m = atomic_begins(at, sizeof value, 1, PC);                                                \
        old = builtin((volatile type *)at, value, __ATOMIC_SEQ_CST);                               \
        atomic_ends(m, at, sizeof value, PC);                                                      \
        order_after(at, order);                                                                    \
        return old;                                                                                \
    }
#define ATOMIC_HOOKS(bits, type)                                                                   \
    ATOMIC_HOOK(bits, type, exchange, __atomic_exchange_n)                                         \
    ATOMIC_HOOK(bits, type, fetch_add, __atomic_fetch_add)                                         \
    ATOMIC_HOOK(bits, type, fetch_sub, __atomic_fetch_sub)                                         \
    ATOMIC_HOOK(bits, type, fetch_and, __atomic_fetch_and)                                         \
    ATOMIC_HOOK(bits, type, fetch_or, __atomic_fetch_or)                                           \
    ATOMIC_HOOK(bits, type, fetch_xor, __atomic_fetch_xor)                                         \
    ATOMIC_HOOK(bits, type, fetch_nand, __atomic_fetch_nand)                                       \
    type __tsan_atomic##bits##_load(const volatile void *at, int order)                            \
    {                                                                                              \
        order_after(at, order); /* before the check: the word's own stores are ordered, too */     \
        atomic_begins(at, sizeof(type), 1, PC);                                                    \
        return __atomic_load_n((const volatile type *)at, __ATOMIC_SEQ_CST);                       \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile void *at, type value, int order)                     \
    {                                                                                              \
        model *m;                                                                                  \
        order_before(at, order);                                                                   \
        m = atomic_begins(at, sizeof value, 0, PC);                                                \
        __atomic_store_n((volatile type *)at, value, __ATOMIC_SEQ_CST);                            \
        atomic_ends(m, at, sizeof value, PC);                                                      \
    }                                                                                              \
    type __tsan_atomic##bits##_compare_exchange_val(volatile void *at, type expected, type value,  \
                                                    int order, int failed_order)                   \
    {                                                                                              \
        model *m;                                                                                  \
        (void)failed_order;                                                                        \
        order_before(at, order);                                                                   \
        m = atomic_begins(at, sizeof value, 1, PC);                                                \
        __atomic_compare_exchange_n((volatile type *)at, &expected, value, 0, __ATOMIC_SEQ_CST,    \
                                    __ATOMIC_SEQ_CST);                                             \
        atomic_ends(m, at, sizeof value, PC);                                                      \
        order_after(at, order);                                                                    \
        return expected;                                                                           \
    }                                                                                              \
    bool __tsan_atomic##bits##_compare_exchange_strong(volatile void *at, void *expected,          \
                                                       type value, int order, int failed_order)    \
    {                                                                                              \
        const type want = *(type *)expected;                                                       \
        *(type *)expected =                                                                        \
            __tsan_atomic##bits##_compare_exchange_val(at, want, value, order, failed_order);      \
        return *(type *)expected == want;                                                          \
    }                                                                                              \
    bool __tsan_atomic##bits##_compare_exchange_weak(volatile void *at, void *expected,            \
                                                     type value, int order, int failed_order)      \
    {                                                                                              \
        return __tsan_atomic##bits##_compare_exchange_strong(at, expected, value, order,           \
                                                             failed_order);                        \
    }
ATOMIC_HOOKS(8, uint8_t)
ATOMIC_HOOKS(16, uint16_t)
ATOMIC_HOOKS(32, uint32_t)
ATOMIC_HOOKS(64, uint64_t)
void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int order)
{
    (void)order;
}

/* memcpy and its like: calls to them come here where the linker was told so (--wrap). */
void *__real_memcpy(void *to, const void *from, size_t n);
void *__real_memmove(void *to, const void *from, size_t n);
void *__real_memset(void *to, int value, size_t n);
void *__wrap_memcpy(void *to, const void *from, size_t n)
{
    load(from, n, PC);
    announce_store(to, n, PC);
    return __real_memcpy(to, from, n);
}
void *__wrap_memmove(void *to, const void *from, size_t n)
{
    load(from, n, PC);
    announce_store(to, n, PC);
    return __real_memmove(to, from, n);
}
void *__wrap_memset(void *to, int value, size_t n)
{
    announce_store(to, n, PC);
    return __real_memset(to, value, n);
}
void *__tsan_memcpy(void *to, const void *from, size_t n)
{
    load(from, n, PC);
    announce_store(to, n, PC);
    return __real_memcpy(to, from, n);
}
void *__tsan_memmove(void *to, const void *from, size_t n)
{
    load(from, n, PC);
    announce_store(to, n, PC);
    return __real_memmove(to, from, n);
}
void *__tsan_memset(void *to, int value, size_t n)
{
    announce_store(to, n, PC);
    return __real_memset(to, value, n);
}
