/* fleet_peers_nvshmem.h - ranks that are processes with a GPU each, by NVSHMEM - MIT licence

   CONTENTS (search for the tag)
       >>manual           this page
       >>public           what programs call
       >>implementation   where FLEET_IMPLEMENTATION is defined

   fleet_peers is a table of addresses, so all ranks are on one machine, or their GPUs share an
   NVLink domain: elsewhere nvshmem_ptr returns null, and open fails. Over other networks an arrival
   would be a put with a signal, and tiles would put their results.

   RECIPE (build with -rdc=true -lnvshmem_host -lnvshmem_device)
       fleet_peers_nvshmem engine;
       if (fleet_peers_nvshmem_begin(&engine, &argc, &argv)) return 1;
       ... a plan for engine.peers.ranks ranks ...
       bytes = fleet_peers_bytes(plan) + what the program shares;
       if (fleet_peers_nvshmem_open(&engine, bytes, &peers)) return 1;
       ... fleet_state_create, fleet_peers_nvshmem_meet(&engine), fleet_launch ...
       fleet_peers_nvshmem_end(&engine);
   Functions return 0, or 1 after a message on stderr.

   PROCESSES
       for r in 0 1; do FLEET_RANK=$r FLEET_RANKS=2 FLEET_PEERS_FILE=$file ./a.out & done
       wait; rm $file
   FLEET_PEERS_FILE is a name that no file has yet. NVSHMEM_SYMMETRIC_SIZE: bytes of the heap. */

/* Outside the guard: the second inclusion brings the implementations of the headers below. */
#include "fleet_device.h"
#if FLEET_VERSION != 300
#error "fleet_peers_nvshmem.h is of fleet 0.3, fleet.h is not: copy all headers from one version"
#endif

#ifndef FLEET_PEERS_NVSHMEM_H
#define FLEET_PEERS_NVSHMEM_H

FLEET_C_BEGIN

/* ==== >>public: what programs call ==== */

typedef struct fleet_peers_nvshmem {
    fleet_peers peers; /* rank and ranks from begin on, the regions from open on */
    /* private */
    void *own;
} fleet_peers_nvshmem;

/* Makes the GPU of this rank the current one. */
FLEET_API int fleet_peers_nvshmem_begin(fleet_peers_nvshmem *p, const int *argc, char ***argv);

/* Makes a region of so many bytes on each rank, all together, once. */
FLEET_API int fleet_peers_nvshmem_open(fleet_peers_nvshmem *p, size_t bytes, fleet_peers *peers);

/* A barrier of the ranks. */
FLEET_API int fleet_peers_nvshmem_meet(fleet_peers_nvshmem *p);

FLEET_API void fleet_peers_nvshmem_end(fleet_peers_nvshmem *p);

FLEET_C_END
#endif /* FLEET_PEERS_NVSHMEM_H */

/* ==== >>implementation: the symmetric heap ==== */

#if defined(FLEET_IMPLEMENTATION) && !defined(FLEETI_PEERS_NVSHMEM_IMPLEMENTED)
#define FLEETI_PEERS_NVSHMEM_IMPLEMENTED

#include <nvshmem.h>
#include <nvshmemx.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int fleeti_nvshmem_bad(const char *why)
{
    fprintf(stderr, "fleet_peers_nvshmem: %s\n", why);
    return 1;
}

/* Rank 0 writes the id of the run to the file, under another name first, so that the others read
   all of it. */
static int fleeti_nvshmem_id(const char *name, uint32_t rank, nvshmemx_uniqueid_t *id)
{
    const time_t begun = time(NULL);
    char other[4096];
    FILE *f = NULL;
    int bad;
    snprintf(other, sizeof other, "%s.new", name);
    if (rank == 0) {
        if (nvshmemx_get_uniqueid(id) || !(f = fopen(other, "wb"))) return 1;
        bad = fwrite(id, sizeof *id, 1, f) != 1;
        return fclose(f) || bad || rename(other, name);
    }
    while (!(f = fopen(name, "rb")) && time(NULL) - begun < 60) {
    }
    bad = !f || fread(id, sizeof *id, 1, f) != 1;
    if (f) fclose(f);
    return bad;
}

int fleet_peers_nvshmem_begin(fleet_peers_nvshmem *p, const int *argc, char ***argv)
{
    const char *rank = getenv("FLEET_RANK"), *ranks = getenv("FLEET_RANKS"),
               *name = getenv("FLEET_PEERS_FILE");
    nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
    nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
    int gpus = 0;
    (void)argc, (void)argv;
    p->peers.rank = rank ? (uint32_t)atoi(rank) : FLEET_MAX_PEERS;
    p->peers.ranks = ranks ? (uint32_t)atoi(ranks) : 0;
    if (!name || p->peers.ranks > FLEET_MAX_PEERS || p->peers.rank >= p->peers.ranks)
        return fleeti_nvshmem_bad("FLEET_RANK, FLEET_RANKS or FLEET_PEERS_FILE?");
    if (cudaGetDeviceCount(&gpus) || !gpus || cudaSetDevice((int)p->peers.rank % gpus))
        return fleeti_nvshmem_bad("no GPU");
    if (fleeti_nvshmem_id(name, p->peers.rank, &id) ||
        nvshmemx_set_attr_uniqueid_args((int)p->peers.rank, (int)p->peers.ranks, &id,
                                        &attributes) ||
        nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes))
        return fleeti_nvshmem_bad("NVSHMEM does not start");
    return 0;
}

int fleet_peers_nvshmem_meet(fleet_peers_nvshmem *p)
{
    (void)p;
    nvshmem_barrier_all();
    return 0;
}

int fleet_peers_nvshmem_open(fleet_peers_nvshmem *p, size_t bytes, fleet_peers *peers)
{
    if (!(p->own = nvshmem_align(FLEET_CACHE_LINE_BYTES, bytes)))
        return fleeti_nvshmem_bad("the symmetric heap is too small");
    for (uint32_t i = 0; i < p->peers.ranks; i++)
        if (!(p->peers.bases[i] = nvshmem_ptr(p->own, (int)i)))
            return fleeti_nvshmem_bad("a rank's region has no address here");
    *peers = p->peers;
    return 0;
}

void fleet_peers_nvshmem_end(fleet_peers_nvshmem *p)
{
    nvshmem_free(p->own);
    nvshmem_finalize();
}

#endif /* FLEET_IMPLEMENTATION */
