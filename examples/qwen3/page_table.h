/* page_table.h: fills the page table of a session (kv_pages.h), on the host, before the launch.

   Each sequence gets the pages of all tokens that it may have. If it may share pages, the complete pages of the longest
   beginning that its prompt has in common with an earlier one are those of that sequence, and only the rest of its prompt
   is computed. At least one token of a prompt is computed always, since it chooses the next token. */
#ifndef QWEN3_PAGE_TABLE_H
#define QWEN3_PAGE_TABLE_H

#include "platform.h"

#include <stdlib.h>

typedef struct page_table {
    uint32_t *row;   /* [rows][row_pages]; NO_PAGE: the sequence never has so many tokens */
    uint32_t *users; /* [pages]: table rows that have the page; 0: it is free */
    uint32_t *order; /* [pages]: pages, in the order in which they are taken */
    uint32_t rows, row_pages, pages;
    uint32_t taken; /* pages that have users */
} page_table;
#define NO_PAGE UINT32_MAX

static void page_table_free(page_table *t)
{
    free(t->row);
    free(t->users);
    free(t->order);
    memset(t, 0, sizeof *t);
}

/* An empty table with as many pages as its rows have room for. seed: pages are taken in an order drawn from it; 0:
   in the order of their numbers. -1: out of memory. */
static int page_table_make(page_table *t, uint32_t rows, uint32_t row_pages, uint64_t seed)
{
    const uint32_t pages = rows * row_pages;
    memset(t, 0, sizeof *t);
    t->rows = rows, t->row_pages = row_pages, t->pages = pages;
    t->row = (uint32_t *)malloc((size_t)pages * sizeof *t->row);
    t->users = (uint32_t *)calloc(pages, sizeof *t->users);
    t->order = (uint32_t *)malloc((size_t)pages * sizeof *t->order);
    if (!t->row || !t->users || !t->order) {
        page_table_free(t);
        return -1;
    }
    for (uint32_t i = 0; i < pages; i++) t->row[i] = NO_PAGE, t->order[i] = i;
    for (uint32_t i = pages - 1; seed && i; i--) {
        uint32_t *other, page = t->order[i];
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        other = &t->order[(seed >> 33) % (i + 1)];
        t->order[i] = *other, *other = page;
    }
    return 0;
}

/* Gives a row its pages: the first `shared` are those of the row `source`, the others are free ones. */
static void page_table_fill(page_table *t, uint32_t row, uint32_t pages, uint32_t source,
                            uint32_t shared)
{
    uint32_t *to = t->row + (size_t)row * t->row_pages;
    const uint32_t *from = t->row + (size_t)source * t->row_pages;
    for (uint32_t i = 0; i < pages; i++) {
        to[i] = i < shared ? from[i] : t->order[t->taken++];
        t->users[to[i]]++;
    }
}

/* Pages that several rows have. */
static inline uint32_t page_table_shared(const page_table *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->pages; i++) n += t->users[i] > 1;
    return n;
}

/* Complete pages at the beginning that two prompts have in common; one token of the first is left out. */
static uint32_t common_pages(const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b)
{
    const uint32_t most = n_a - 1 < n_b ? n_a - 1 : n_b;
    uint32_t n = 0;
    while (n < most && a[n] == b[n]) n++;
    return n / PAGE_TOKENS;
}

#endif /* QWEN3_PAGE_TABLE_H */
