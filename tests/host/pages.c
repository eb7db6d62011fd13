/* The page allocator against a plain one: random requests that are admitted, grow, share pages, finish and are cancelled.
   An admitted request gets each page; a reused page holds the very tokens of its request, from the first on; no page
   is lost; the oldest unused cached page goes first. */
// run: asan
#include "settings.h"
#include "examples/parts/fleet_server.h"

#define MOST_PAGES 96u
#define PAGE_MOST 4u /* tokens of a page, at most */
#define REQUESTS 12u
#define TABLE 16u
#define LENGTH (TABLE * PAGE_MOST)

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

typedef struct request {
    fleet_admission a;
    uint32_t tokens[LENGTH], table[TABLE];
    uint32_t n, limit, pages; /* tokens now and at most; pages of the table */
    uint32_t active;
} request;

/* Few different tokens and few beginnings, so that requests have beginnings in common and then part. */
static void request_write(request *r, uint64_t *random, uint32_t page_tokens)
{
    uint64_t common = next_random(random) % 4;
    const uint32_t alike = next_random(random) % (LENGTH / 2);
    r->n = 1 + next_random(random) % (TABLE / 2 * page_tokens);
    r->limit = r->n + next_random(random) % (TABLE / 2 * page_tokens);
    for (uint32_t i = 0; i < r->limit; i++)
        r->tokens[i] = next_random(i < alike ? &common : random) % 3;
}
static uint32_t request_need(const request *r, uint32_t page_tokens)
{
    return (r->limit + page_tokens - 1) / page_tokens;
}

/* ---- the plain allocator ---- */

typedef struct plain_page {
    uint32_t references, cached;
    uint32_t content[LENGTH],
        n;          /* of a cached page: all tokens from the request's first one to its own last */
    uint32_t after; /* number of the insertion of the page before it */
    uint32_t inserted; /* number of its insertion */
    uint64_t released; /* when its last reference went */
} plain_page;

typedef struct plain {
    plain_page page[MOST_PAGES];
    uint32_t pages, page_tokens, reserved, insertions;
    uint64_t now;
    request requests[REQUESTS];
    uint32_t after[REQUESTS]; /* number of the insertion that the request's next page follows */
    uint32_t extra[REQUESTS]; /* 1 + a page that the request shares */
    uint32_t hits, evictions, refused;
    fleet_pages *p;
} plain;

static uint32_t plain_idle(const plain *m)
{
    uint32_t idle = 0;
    for (uint32_t i = 0; i < m->pages; i++) idle += !m->page[i].references;
    return idle;
}
static uint32_t plain_find(const plain *m, uint32_t after, const uint32_t *tokens)
{
    for (uint32_t i = 0; i < m->pages; i++) {
        const plain_page *page = &m->page[i];
        if (page->cached && page->after == after &&
            !memcmp(page->content + page->n - m->page_tokens, tokens, m->page_tokens * 4))
            return i;
    }
    return FLEET_PAGES_NONE;
}
/* The page that an allocation has to take when none is free. */
static uint32_t plain_oldest(const plain *m)
{
    uint32_t oldest = FLEET_PAGES_NONE;
    for (uint32_t i = 0; i < m->pages; i++) {
        if (m->page[i].references) continue;
        if (!m->page[i].cached) return FLEET_PAGES_NONE;
        if (oldest == FLEET_PAGES_NONE || m->page[i].released < m->page[oldest].released)
            oldest = i;
    }
    return oldest;
}
static void plain_release(plain *m, uint32_t page)
{
    if (!--m->page[page].references) m->page[page].released = ++m->now;
}

static void admit(test_run *t, plain *m, uint32_t k, uint64_t *random)
{
    request *r = &m->requests[k];
    uint32_t need, whole, found = 0, idle = 0, after = 0;
    fleet_status want;
    request_write(r, random, m->page_tokens);
    need = request_need(r, m->page_tokens);
    whole = (r->n - 1) / m->page_tokens;
    for (; found < whole; found++) {
        const uint32_t page = plain_find(m, after, r->tokens + found * m->page_tokens);
        if (page == FLEET_PAGES_NONE) break;
        idle += !m->page[page].references;
        after = m->page[page].inserted;
    }
    want = need > m->pages                                     ? FLEET_ERROR_ARGUMENT
           : need - found + idle > plain_idle(m) - m->reserved ? FLEET_ERROR_BUSY
                                                               : FLEET_OK;
    CHECK_STATUS(fleet_pages_admit(m->p, r->tokens, r->n - 1, need, r->table, &r->a), want);
    m->refused += want == FLEET_ERROR_BUSY;
    if (want) return;
    CHECK_INT(r->a.reused, found);
    CHECK_INT(r->a.reserved, need - found);
    for (uint32_t i = 0; i < found; i++) {
        plain_page *page = &m->page[r->table[i]];
        CHECK(page->cached);
        CHECK_INT(page->n, (i + 1) * m->page_tokens);
        CHECK(!memcmp(page->content, r->tokens, page->n * 4)); /* all of the prefix */
        page->references++;
    }
    m->hits += found;
    m->reserved += need - found;
    m->after[k] = after;
    r->pages = found, r->active = 1;
}

/* The next page is allocated and filled; a whole one is inserted. */
static void grow(test_run *t, plain *m, uint32_t k)
{
    request *r = &m->requests[k];
    const uint32_t begin = r->pages * m->page_tokens, oldest = plain_oldest(m);
    const uint32_t page = fleet_pages_allocate(m->p, &r->a);
    uint32_t chain = 0, same;
    if (begin >= r->limit) {
        CHECK_INT(page, FLEET_PAGES_NONE);
        return;
    }
    CHECK(page < m->pages);
    CHECK(!m->page[page].references);
    if (m->page[page].cached) {
        CHECK_INT(page, oldest);
        m->evictions++;
    }
    memset(&m->page[page], 0, sizeof m->page[page]);
    m->page[page].references = 1;
    m->reserved--;
    r->table[r->pages++] = page;
    if (begin + m->page_tokens > r->limit) return;
    same = plain_find(m, m->after[k], r->tokens + begin);
    for (uint32_t i = 0; i < m->pages; i++)
        chain += m->page[i].cached && fleeti_pages_hash(m->p, fleeti_pages_at(m->p, i)->parent,
                                                        fleeti_pages_tokens(m->p, i)) ==
                                          fleeti_pages_hash(m->p, r->a.key, r->tokens + begin);
    CHECK_STATUS(fleet_pages_insert(m->p, &r->a, page, r->tokens + begin), FLEET_OK);
    CHECK(chain < FLEETI_PAGES_CHAIN);
    if (same == FLEET_PAGES_NONE) {
        plain_page *it = &m->page[page];
        it->cached = 1, it->after = m->after[k], it->inserted = ++m->insertions;
        it->n = begin + m->page_tokens;
        memcpy(it->content, r->tokens, it->n * 4);
        same = page;
    }
    m->after[k] = m->page[same].inserted;
}

static void finish(test_run *t, plain *m, uint32_t k)
{
    request *r = &m->requests[k];
    m->reserved -= r->a.reserved;
    for (uint32_t i = r->pages; i-- > 0;) plain_release(m, r->table[i]);
    CHECK_STATUS(fleet_pages_finish(m->p, &r->a, r->table, r->pages), FLEET_OK);
    CHECK_INT(r->a.reserved, 0);
    r->active = 0;
}

/* A page of another request gets one more reference, which outlives that request. */
static void share(test_run *t, plain *m, uint32_t k, uint64_t *random)
{
    const request *other = &m->requests[next_random(random) % REQUESTS];
    if (m->extra[k]) {
        plain_release(m, m->extra[k] - 1);
        CHECK_STATUS(fleet_pages_release(m->p, m->extra[k] - 1), FLEET_OK);
        m->extra[k] = 0;
    } else if (other->active && other->pages) {
        const uint32_t page = other->table[next_random(random) % other->pages];
        CHECK_STATUS(fleet_pages_share(m->p, page), FLEET_OK);
        m->page[page].references++;
        m->extra[k] = page + 1;
    }
}

static void agree(test_run *t, const plain *m)
{
    const char *wrong = fleet_pages_check(m->p);
    if (wrong) test_fail(t, __FILE__, __LINE__, "%s", wrong);
    CHECK_INT(fleet_pages_available(m->p), plain_idle(m) - m->reserved);
    for (uint32_t i = 0; i < m->pages; i++) {
        CHECK_INT(fleeti_pages_at(m->p, i)->references, m->page[i].references);
        CHECK_INT(fleeti_pages_at(m->p, i)->key != 0, m->page[i].cached);
    }
}

static void requests_on(test_run *t, uint64_t seed, uint32_t pages, uint32_t page_tokens,
                        uint32_t steps, plain *m)
{
    uint64_t random = seed;
    memset(m, 0, sizeof *m);
    m->pages = pages, m->page_tokens = page_tokens;
    m->p = (fleet_pages *)malloc(fleet_pages_bytes(pages, page_tokens));
    CHECK_STATUS(fleet_pages_init(m->p, pages, page_tokens), FLEET_OK);
    CHECK_INT(fleet_pages_available(m->p), pages);
    CHECK_INT(fleet_pages_total(m->p), pages);
    for (uint32_t i = 0; i < steps && !t->failed_here; i++) {
        const uint32_t k = next_random(&random) % REQUESTS;
        if (next_random(&random) % 8 == 0)
            share(t, m, k, &random);
        else if (!m->requests[k].active)
            admit(t, m, k, &random);
        else if (next_random(&random) % 10 == 0)
            finish(t, m, k);
        else
            grow(t, m, k);
        if (!t->failed_here) agree(t, m);
    }
    for (uint32_t k = 0; k < REQUESTS && !t->failed_here; k++) {
        if (m->requests[k].active) finish(t, m, k);
        if (m->extra[k]) share(t, m, k, &random);
    }
    if (!t->failed_here) agree(t, m);
    if (!t->failed_here) CHECK_INT(fleet_pages_available(m->p), pages);
    free(m->p);
}

static void random_requests(test_run *t)
{
    static const uint32_t pages[6] = {1, 7, 16, 33, 64, MOST_PAGES};
    static plain m;
    uint32_t hits = 0, evictions = 0, refused = 0;
    for (uint32_t seed = 1; seed <= (deep() ? 2000u : 60u) && !t->failed_here; seed++) {
        requests_on(t, seed, pages[seed % 6], 1 + seed / 6 % PAGE_MOST, 1500, &m);
        if (t->failed_here) printf("    seed %u\n", seed);
        hits += m.hits, evictions += m.evictions, refused += m.refused;
    }
    if (t->failed_here) return;
    CHECK(hits > 1000 && evictions > 1000 && refused > 1000); /* all of it happens */
}

/* ---- single rules ---- */

#define BYTES 65536u
static union block {
    uint64_t align;
    char bytes[BYTES];
} block;

/* Two requests that reserve everything get it, whatever a third one asks for in between. */
static void admitted_never_starve(test_run *t)
{
    fleet_pages *p = (fleet_pages *)(void *)&block;
    fleet_admission a, b, c;
    uint32_t table[8], i;
    CHECK(fleet_pages_bytes(8, 2) <= BYTES);
    CHECK_STATUS(fleet_pages_init(p, 8, 2), FLEET_OK);
    CHECK_STATUS(fleet_pages_admit(p, NULL, 0, 5, NULL, &a), FLEET_OK);
    CHECK_STATUS(fleet_pages_admit(p, NULL, 0, 4, NULL, &c), FLEET_ERROR_BUSY);
    CHECK_INT(fleet_pages_available(p), 3);
    CHECK_STATUS(fleet_pages_admit(p, NULL, 0, 3, NULL, &b), FLEET_OK);
    CHECK_STATUS(fleet_pages_admit(p, NULL, 0, 1, NULL, &c), FLEET_ERROR_BUSY);
    CHECK_STATUS(fleet_pages_admit(p, NULL, 0, 9, NULL, &c), FLEET_ERROR_ARGUMENT);
    for (i = 0; i < 3; i++) CHECK((table[i] = fleet_pages_allocate(p, &b)) < 8);
    CHECK_INT(fleet_pages_allocate(p, &b), FLEET_PAGES_NONE);
    for (i = 3; i < 8; i++) CHECK((table[i] = fleet_pages_allocate(p, &a)) < 8);
    CHECK_INT(fleet_pages_available(p), 0);
    CHECK_STATUS(fleet_pages_finish(p, &b, table, 3), FLEET_OK);
    CHECK_STATUS(fleet_pages_finish(p, &a, table + 3, 5), FLEET_OK);
    CHECK_INT(fleet_pages_available(p), 8);
    CHECK(!fleet_pages_check(p));
}

/* A cached page that others may need is not promised twice: reuse counts against the reservations. */
static void reuse_counts(test_run *t)
{
    static const uint32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    fleet_pages *p = (fleet_pages *)(void *)&block;
    fleet_admission a, b, c;
    uint32_t table[4], other[4], third[4];
    CHECK_STATUS(fleet_pages_init(p, 4, 2), FLEET_OK);
    CHECK_STATUS(fleet_pages_admit(p, tokens, 8, 4, table, &a), FLEET_OK);
    for (uint32_t i = 0; i < 3; i++) {
        table[i] = fleet_pages_allocate(p, &a);
        CHECK_STATUS(fleet_pages_insert(p, &a, table[i], tokens + 2 * i), FLEET_OK);
    }
    CHECK_STATUS(fleet_pages_insert(p, &a, table[0], tokens), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_pages_finish(p, &a, table, 3), FLEET_OK);
    CHECK_INT(fleet_pages_available(p), 4); /* three of them are cached */
    CHECK_STATUS(fleet_pages_admit(p, NULL, 0, 2, NULL, &b), FLEET_OK);
    CHECK_STATUS(fleet_pages_admit(p, tokens, 8, 3, other, &c), FLEET_ERROR_BUSY);
    CHECK_STATUS(fleet_pages_admit(p, tokens, 5, 2, other, &c), FLEET_OK);
    CHECK_INT(c.reused, 2);
    CHECK_INT(other[0], table[0]);
    CHECK_INT(other[1], table[1]);
    CHECK_STATUS(fleet_pages_admit(p, tokens, 4, 2, third, &a),
                 FLEET_OK); /* both are in use anyway */
    CHECK_INT(a.reused, 2);
    for (uint32_t i = 0; i < 2; i++) CHECK(fleet_pages_allocate(p, &b) < 4);
    CHECK(!fleet_pages_check(p));
}

/* The end of an unused prefix is evicted before its begin. */
static void ends_go_first(test_run *t)
{
    static const uint32_t tokens[6] = {1, 2, 3, 4, 5, 6};
    fleet_pages *p = (fleet_pages *)(void *)&block;
    fleet_admission a, b;
    uint32_t table[3], other[3];
    CHECK_STATUS(fleet_pages_init(p, 3, 2), FLEET_OK);
    CHECK_STATUS(fleet_pages_admit(p, tokens, 6, 3, table, &a), FLEET_OK);
    for (uint32_t i = 0; i < 3; i++) {
        table[i] = fleet_pages_allocate(p, &a);
        CHECK_STATUS(fleet_pages_insert(p, &a, table[i], tokens + 2 * i), FLEET_OK);
    }
    CHECK_STATUS(fleet_pages_finish(p, &a, table, 3), FLEET_OK);
    CHECK_STATUS(fleet_pages_admit(p, NULL, 0, 1, NULL, &b), FLEET_OK);
    CHECK_INT(fleet_pages_allocate(p, &b), table[2]);
    CHECK_STATUS(fleet_pages_admit(p, tokens, 6, 2, other, &a), FLEET_OK);
    CHECK_INT(a.reused, 2);
    CHECK(!fleet_pages_check(p));
}

/* Tokens that were chosen to share a bucket: some of their pages are not cached, and nothing else changes. */
static void crowded_bucket(test_run *t)
{
    fleet_pages *p = (fleet_pages *)(void *)&block;
    fleet_admission a[24];
    uint32_t tokens[24][2], table[24][2], n = 0;
    CHECK(fleet_pages_bytes(64, 1) <= BYTES);
    CHECK_STATUS(fleet_pages_init(p, 64, 1), FLEET_OK);
    for (uint32_t i = 0; n < 24; i++) {
        if (fleeti_pages_hash(p, 0, &i)) continue;
        tokens[n][0] = tokens[n][1] = i;
        CHECK_STATUS(fleet_pages_admit(p, tokens[n], 2, 2, table[n], &a[n]), FLEET_OK);
        for (uint32_t k = 0; k < 2; k++) {
            table[n][k] = fleet_pages_allocate(p, &a[n]);
            CHECK_STATUS(fleet_pages_insert(p, &a[n], table[n][k], &i), FLEET_OK);
        }
        n++;
        CHECK(!fleet_pages_check(p));
    }
    for (n = 0; n < 24; n++) {
        fleet_admission b;
        uint32_t found[2];
        CHECK_STATUS(fleet_pages_admit(p, tokens[n], 2, 2, found, &b), FLEET_OK);
        CHECK_INT(b.reused > 0, n < FLEETI_PAGES_CHAIN);
        CHECK_STATUS(fleet_pages_finish(p, &b, found, b.reused), FLEET_OK);
    }
    for (n = 0; n < 24; n++) CHECK_STATUS(fleet_pages_finish(p, &a[n], table[n], 2), FLEET_OK);
    CHECK(!fleet_pages_check(p));
    CHECK_INT(fleet_pages_available(p), 64);
}

static void bad_arguments(test_run *t)
{
    fleet_pages *p = (fleet_pages *)(void *)&block;
    fleet_admission a;
    uint32_t page;
    CHECK_INT(fleet_pages_bytes(0, 16), 0);
    CHECK_INT(fleet_pages_bytes(16, 0), 0);
    CHECK_STATUS(fleet_pages_init(p, 0, 16), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_pages_init(NULL, 4, 16), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_pages_init(p, 4, 16), FLEET_OK);
    CHECK_STATUS(fleet_pages_release(p, 0), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_pages_release(p, 4), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_pages_share(p, 0), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_pages_admit(p, NULL, 16, 1, NULL, &a), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_pages_admit(p, NULL, 0, 2, NULL, &a), FLEET_OK);
    page = fleet_pages_allocate(p, &a);
    CHECK_STATUS(fleet_pages_release(p, page), FLEET_OK);
    CHECK_STATUS(fleet_pages_release(p, page), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_pages_finish(p, &a, &page, 1), FLEET_ERROR_ARGUMENT);
    CHECK_INT(fleet_pages_available(p), 4);
    CHECK(!fleet_pages_check(p));
}

/* ---- the check finds what is wrong ---- */

static void check_finds(test_run *t)
{
    static const uint32_t tokens[6] = {1, 2, 3, 4, 5, 6};
    fleet_pages *p = (fleet_pages *)(void *)&block;
    static char good[BYTES];
    fleet_admission a;
    uint32_t table[3];
    CHECK_STATUS(fleet_pages_init(p, 6, 2), FLEET_OK);
    CHECK_STATUS(fleet_pages_admit(p, tokens, 6, 4, table, &a), FLEET_OK);
    for (uint32_t i = 0; i < 3; i++) {
        table[i] = fleet_pages_allocate(p, &a);
        CHECK_STATUS(fleet_pages_insert(p, &a, table[i], tokens + 2 * i), FLEET_OK);
    }
    CHECK_STATUS(fleet_pages_release(p, table[2]), FLEET_OK);
    CHECK_STATUS(fleet_pages_release(p, table[1]), FLEET_OK);
    memcpy(good, p, BYTES);
    for (uint32_t bug = 0; bug < 12; bug++) {
        memcpy(p, good, BYTES);
        CHECK(!fleet_pages_check(p));
        switch (bug) {
        case 0:
            p->free--;
            break;
        case 1:
            p->cached++;
            break;
        case 2:
            p->reserved = 6;
            break;
        case 3:
            fleeti_pages_at(p, p->first_free)->next = p->first_free;
            break;
        case 4:
            fleeti_pages_at(p, table[0])->references = 0;
            break;
        case 5:
            fleeti_pages_at(p, p->first_free)->references = 1;
            break;
        case 6:
            fleeti_pages_at(p, table[1])->previous = FLEET_PAGES_NONE;
            break;
        case 7:
            fleeti_pages_at(p, p->oldest)->next = FLEET_PAGES_NONE;
            break;
        case 8:
            p->newest = p->oldest;
            break;
        case 9:
            fleeti_pages_tokens(p, table[0])[0] ^= 64;
            break;
        case 10:
            fleeti_pages_at(p, table[2])->key = 0;
            break;
        case 11:
            p->first_free = FLEET_PAGES_NONE;
            break;
        }
        if (!fleet_pages_check(p)) test_fail(t, __FILE__, __LINE__, "bug %u is not seen", bug);
    }
}

static void all(test_run *t)
{
    TEST(random_requests);
    TEST(admitted_never_starve);
    TEST(reuse_counts);
    TEST(ends_go_first);
    TEST(crowded_bucket);
    TEST(bad_arguments);
    TEST(check_finds);
}
TEST_MAIN(all)
