/* fleet_peers_mpi.h - ranks that are processes of one machine without GPUs, by MPI - MIT licence

   CONTENTS (search for the tag)
       >>manual           this page
       >>public           what programs call
       >>implementation   where FLEET_IMPLEMENTATION is defined

   MPI_Win_allocate_shared gives each process a part of one shared mapping, which ends with the
   processes, however they end. For GPUs see fleet_peers_ipc.h.

   RECIPE (mpicc -std=c11 ... -pthread -lm, then mpirun -n RANKS ./a.out)
       fleet_peers_mpi engine;
       if (fleet_peers_mpi_begin(&engine, &argc, &argv)) return 1;
       ... a plan for engine.peers.ranks ranks ...
       bytes = fleet_peers_bytes(plan) + what the program shares;
       if (fleet_peers_mpi_open(&engine, bytes, &peers)) return 1;
       ... fleet_state_create, fleet_peers_mpi_meet(&engine), fleet_launch ...
       fleet_peers_mpi_end(&engine);
   Functions return 0, or 1 after a message on stderr. A rank that fails calls fleet_peers_mpi_fail,
   since the others may wait for it. */

/* Outside the guard: the second inclusion brings the implementations of the headers below. */
#include "fleet_device.h"
#if FLEET_VERSION != 300
#error "fleet_peers_mpi.h is of fleet 0.3, fleet.h is not: copy all headers from one version"
#endif

#ifndef FLEET_PEERS_MPI_H
#define FLEET_PEERS_MPI_H

#include <mpi.h>

FLEET_C_BEGIN

/* ==== >>public: what programs call ==== */

typedef struct fleet_peers_mpi {
    fleet_peers peers; /* rank and ranks from begin on, the regions from open on */
    /* private */
    MPI_Win window;
    MPI_Comm failed; /* the ranks, for fleet_peers_mpi_fail alone */
} fleet_peers_mpi;

FLEET_API int fleet_peers_mpi_begin(fleet_peers_mpi *p, int *argc, char ***argv);

/* Makes a region of so many bytes on each rank, all together, instead of those before. */
FLEET_API int fleet_peers_mpi_open(fleet_peers_mpi *p, size_t bytes, fleet_peers *peers);

/* The barrier between making states and launching. */
FLEET_API int fleet_peers_mpi_meet(fleet_peers_mpi *p);

/* Such a barrier, where each rank passes a value: 0, or 1 + the first rank whose value is not this
   rank's. */
FLEET_API int fleet_peers_mpi_compare(fleet_peers_mpi *p, uint64_t value);

/* This rank has failed, and has said why. Returns when all have; ends those that
   have not after 5 s, this one too. */
FLEET_API void fleet_peers_mpi_fail(fleet_peers_mpi *p, int code);

FLEET_API void fleet_peers_mpi_end(fleet_peers_mpi *p);

FLEET_C_END
#endif /* FLEET_PEERS_MPI_H */

/* ==== >>implementation: windows of MPI ==== */

#if defined(FLEET_IMPLEMENTATION) && !defined(FLEETI_PEERS_MPI_IMPLEMENTED)
#define FLEETI_PEERS_MPI_IMPLEMENTED

#include <stdio.h>
#include <time.h>

int fleet_peers_mpi_begin(fleet_peers_mpi *p, int *argc, char ***argv)
{
    int rank = 0, ranks = 0;
    p->window = MPI_WIN_NULL;
    if (MPI_Init(argc, argv) || MPI_Comm_rank(MPI_COMM_WORLD, &rank) ||
        MPI_Comm_size(MPI_COMM_WORLD, &ranks) || MPI_Comm_dup(MPI_COMM_WORLD, &p->failed))
        return 1;
    p->peers.rank = (uint32_t)rank, p->peers.ranks = (uint32_t)ranks;
    if (ranks <= FLEET_MAX_PEERS) return 0;
    fprintf(stderr, "fleet_peers_mpi: %d processes, at most %d\n", ranks, FLEET_MAX_PEERS);
    return 1;
}

int fleet_peers_mpi_open(fleet_peers_mpi *p, size_t bytes, fleet_peers *peers)
{
    void *own = NULL;
    const MPI_Aint size = (MPI_Aint)(bytes + FLEET_CACHE_LINE_BYTES);
    if (p->window != MPI_WIN_NULL) MPI_Win_free(&p->window);
    if (MPI_Win_allocate_shared(size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &p->window)) {
        fprintf(stderr, "fleet_peers_mpi: no shared window of %zu bytes\n", bytes);
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

int fleet_peers_mpi_meet(fleet_peers_mpi *p)
{
    (void)p;
    return MPI_Barrier(MPI_COMM_WORLD);
}

int fleet_peers_mpi_compare(fleet_peers_mpi *p, uint64_t value)
{
    uint64_t values[FLEET_MAX_PEERS];
    if (MPI_Allgather(&value, 1, MPI_UINT64_T, values, 1, MPI_UINT64_T, MPI_COMM_WORLD)) return 1;
    for (uint32_t i = 0; i < p->peers.ranks; i++)
        if (values[i] != value) return 1 + (int)i;
    return 0;
}

void fleet_peers_mpi_fail(fleet_peers_mpi *p, int code)
{
    const time_t begun = time(NULL);
    MPI_Request all;
    int done = MPI_Ibarrier(p->failed, &all);
    while (!done && time(NULL) - begun <= 5) MPI_Test(&all, &done, MPI_STATUS_IGNORE);
    if (!done) MPI_Abort(MPI_COMM_WORLD, code);
}

void fleet_peers_mpi_end(fleet_peers_mpi *p)
{
    if (p->window != MPI_WIN_NULL) MPI_Win_free(&p->window);
    MPI_Comm_free(&p->failed);
    MPI_Finalize();
}

#endif /* FLEET_IMPLEMENTATION */
