/* kv_pages.h: where the keys and values of a sequence are.

   Page         the keys and values of PAGE_TOKENS consecutive tokens of a sequence, in all layers and KV heads. It has one
                number everywhere.
   Cache        [layer][kv head][page][keys, values][PAGE_TOKENS][head_dim]. What a page holds of one layer and head is
                contiguous, and is what attention reads at a time. The pages of a head follow one another, so that a
                sequence with consecutive pages is one stretch of memory. The last two dimensions are the backend's:
                NVIDIA GPUs pad head_dim and permute the 16-byte vectors of a row (nvidia/kv_block.h). All numbers must
                be finite, also those of a page's tokens that do not exist yet: attention multiplies them by 0.
   Page table   [table row][table_pages]: the pages of a sequence, by position / PAGE_TOKENS. Nothing else says where its
                keys and values are; page_table.h fills it. A page that is in several rows is complete, and is only read.
                A row may change between two steps. Its sequence's tokens must have pages that exist.
   Batch        Each row of a step has the number of the page that its own key and value go to (batch_pages), since a
                task should not wait for the page table as well. */
#ifndef QWEN3_KV_PAGES_H
#define QWEN3_KV_PAGES_H

#include "tasks/backend.h"

/* What a page holds of one KV head; layer: the layer's pages. */
FLEET_HOST_DEVICE kv_t *kv_page(const decoder *d, kv_t *layer, uint32_t head, uint32_t page)
{
    return layer + ((size_t)head * d->pages + page) * page_size(d);
}
/* Size of a layer's pages, in elements. */
FLEET_HOST_DEVICE size_t layer_cache_size(const decoder *d)
{
    return (size_t)d->kv_heads * d->pages * page_size(d);
}
/* The pages of a sequence. */
FLEET_HOST_DEVICE const uint32_t *pages_of(const decoder *d, uint32_t table_row)
{
    return d->page_table + (size_t)table_row * d->table_pages;
}

#endif /* QWEN3_KV_PAGES_H */
