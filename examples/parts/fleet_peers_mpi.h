/* fleet_peers_mpi.h - a symmetric region for fleet_peers by MPI, for ranks that are processes of one machine without GPUs

   MPI_Win_allocate_shared gives each process a part of one shared mapping, which ends with the processes, however they
   end. For GPUs see fleet_peers_ipc.h.

       mpi_peers engine;
       fleet_peers peers;
       mpi_peers_begin(&engine, &argc, &argv);
       mpi_peers_open(&engine, fleet_peers_bytes(plan) + what the program shares, &peers);
       ... fleet_state_create, mpi_peers_meet(&engine), fleet_launch ...
       mpi_peers_end(&engine);

   A rank that fails calls mpi_peers_fail, since the others may wait for it.

   Include fleet_device.h first. Functions return 0, or 1 after a message. */
#ifndef MPI_PEERS_H
#define MPI_PEERS_H

#include <mpi.h>
#include <stdio.h>
#include <time.h>

typedef struct mpi_peers {
    fleet_peers peers;
    MPI_Win window;
    MPI_Comm failed; /* the ranks, for mpi_peers_fail alone */
} mpi_peers;

static inline int mpi_peers_begin(mpi_peers *p, int *argc, char ***argv)
{
    int rank = 0, ranks = 0;
    p->window = MPI_WIN_NULL;
    if (MPI_Init(argc, argv) || MPI_Comm_rank(MPI_COMM_WORLD, &rank) ||
        MPI_Comm_size(MPI_COMM_WORLD, &ranks) || MPI_Comm_dup(MPI_COMM_WORLD, &p->failed))
        return 1;
    p->peers.rank = (uint32_t)rank, p->peers.ranks = (uint32_t)ranks;
    if (ranks <= FLEET_MAX_PEERS) return 0;
    fprintf(stderr, "mpi_peers: %d processes, at most %d\n", ranks, FLEET_MAX_PEERS);
    return 1;
}

/* Makes a region of so many bytes on each rank, all together, instead of those before. */
static inline int mpi_peers_open(mpi_peers *p, size_t bytes, fleet_peers *peers)
{
    void *own = NULL;
    const MPI_Aint size = (MPI_Aint)(bytes + FLEET_CACHE_LINE_BYTES);
    if (p->window != MPI_WIN_NULL) MPI_Win_free(&p->window);
    if (MPI_Win_allocate_shared(size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &p->window)) {
        fprintf(stderr, "mpi_peers: no shared window of %zu bytes\n", bytes);
        return 1;
    }
    for (uint32_t i = 0; i < p->peers.ranks; i++) {
        MPI_Aint found = 0;
        void *base = NULL;
        int unit = 0;
        if (MPI_Win_shared_query(p->window, (int)i, &found, &unit, &base)) return 1;
        /* The mappings of all processes begin at a page, so all round the same way. */
        p->peers.bases[i] = (void *)(((uintptr_t)base + FLEET_CACHE_LINE_BYTES - 1) /
                                     FLEET_CACHE_LINE_BYTES * FLEET_CACHE_LINE_BYTES);
    }
    *peers = p->peers;
    return 0;
}

/* The barrier between making states and launching. */
static inline int mpi_peers_meet(mpi_peers *p)
{
    (void)p;
    return MPI_Barrier(MPI_COMM_WORLD);
}

/* Such a barrier, where each rank passes a value: 0, or 1 + the first rank whose value is not this rank's. */
static inline int mpi_peers_compare(mpi_peers *p, uint64_t value)
{
    uint64_t values[FLEET_MAX_PEERS];
    if (MPI_Allgather(&value, 1, MPI_UINT64_T, values, 1, MPI_UINT64_T, MPI_COMM_WORLD)) return 1;
    for (uint32_t i = 0; i < p->peers.ranks; i++)
        if (values[i] != value) return 1 + (int)i;
    return 0;
}

/* This rank has failed, and has said why. Returns when all have; ends those that have not after 5 s, this one too. */
static inline void mpi_peers_fail(mpi_peers *p, int code)
{
    const time_t begun = time(NULL);
    MPI_Request all;
    int done = MPI_Ibarrier(p->failed, &all);
    while (!done && time(NULL) - begun <= 5) MPI_Test(&all, &done, MPI_STATUS_IGNORE);
    if (!done) MPI_Abort(MPI_COMM_WORLD, code);
}

static inline void mpi_peers_end(mpi_peers *p)
{
    if (p->window != MPI_WIN_NULL) MPI_Win_free(&p->window);
    MPI_Comm_free(&p->failed);
    MPI_Finalize();
}

#endif
