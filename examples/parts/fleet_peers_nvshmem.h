/* fleet_peers_nvshmem.h - a symmetric region for fleet_peers in the heap of NVSHMEM, for ranks that are processes with a GPU each

       for r in 0 1; do FLEET_RANK=$r FLEET_RANKS=2 FLEET_PEERS_FILE=$file ./a.out & done; wait; rm $file
       nvshmem_peers_begin(&engine, &argc, &argv);        FLEET_PEERS_FILE: a name that no file has yet
       nvshmem_peers_open(&engine, fleet_peers_bytes(plan) + what the program shares, &peers);
       ... fleet_state_create, nvshmem_peers_meet(&engine), fleet_launch, nvshmem_peers_end(&engine)

   Build with -rdc=true -lnvshmem_host -lnvshmem_device; NVSHMEM_SYMMETRIC_SIZE is the size of the heap. fleet_peers is a
   table of addresses, so all ranks are on one machine, or their GPUs share an NVLink domain: elsewhere nvshmem_ptr returns
   null, and open fails. Over other networks an arrival would be a put with a signal, and tiles would put their results.

   Include fleet_device.h first. Functions return 0, or 1 after a message. */
#ifndef NVSHMEM_PEERS_H
#define NVSHMEM_PEERS_H
#include <nvshmem.h>
#include <nvshmemx.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
typedef struct nvshmem_peers {
    fleet_peers peers;
    void *own;
} nvshmem_peers;

static inline int nvshmem_peers_fail(const char *why)
{
    fprintf(stderr, "nvshmem_peers: %s\n", why);
    return 1;
}

/* Rank 0 writes the id of the run to the file, under another name first, so that the others read all of it. */
static inline int nvshmem_peers_id(const char *name, uint32_t rank, nvshmemx_uniqueid_t *id)
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

/* Makes the GPU of this rank the current one. */
static inline int nvshmem_peers_begin(nvshmem_peers *p, const int *argc, char ***argv)
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
        return nvshmem_peers_fail("FLEET_RANK, FLEET_RANKS or FLEET_PEERS_FILE?");
    if (cudaGetDeviceCount(&gpus) || !gpus || cudaSetDevice((int)p->peers.rank % gpus))
        return nvshmem_peers_fail("no GPU");
    if (nvshmem_peers_id(name, p->peers.rank, &id) ||
        nvshmemx_set_attr_uniqueid_args((int)p->peers.rank, (int)p->peers.ranks, &id,
                                        &attributes) ||
        nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes))
        return nvshmem_peers_fail("NVSHMEM does not start");
    return 0;
}

static inline int nvshmem_peers_meet(nvshmem_peers *p)
{
    (void)p;
    nvshmem_barrier_all();
    return 0;
}

/* Makes a region of so many bytes on each rank, all together, once. */
static inline int nvshmem_peers_open(nvshmem_peers *p, size_t bytes, fleet_peers *peers)
{
    if (!(p->own = nvshmem_align(FLEET_CACHE_LINE_BYTES, bytes)))
        return nvshmem_peers_fail("the symmetric heap is too small");
    for (uint32_t i = 0; i < p->peers.ranks; i++)
        if (!(p->peers.bases[i] = nvshmem_ptr(p->own, (int)i)))
            return nvshmem_peers_fail("a rank's region has no address here");
    *peers = p->peers;
    return 0;
}

static inline void nvshmem_peers_end(nvshmem_peers *p)
{
    nvshmem_free(p->own);
    nvshmem_finalize();
}

#endif
