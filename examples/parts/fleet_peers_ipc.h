/* fleet_peers_ipc.h - ranks that are processes with a GPU each, by cudaIpc or hipIpc - MIT licence

   CONTENTS (search for the tag)
       >>manual           this page
       >>public           what programs call
       >>implementation   where FLEET_IMPLEMENTATION is defined

   RECIPE
       fleet_peers_ipc engine;
       if (fleet_peers_ipc_begin(&engine, &argc, &argv)) return 1;
       ... a plan for engine.peers.ranks ranks ...
       bytes = fleet_peers_bytes(plan) + what the program shares;
       if (fleet_peers_ipc_open(&engine, bytes, &peers)) return 1;
       ... fleet_state_create, fleet_peers_ipc_meet(&engine), fleet_launch ...
       fleet_peers_ipc_end(&engine);
   Functions return 0, or 1 after a message on stderr. A rank that fails calls fleet_peers_ipc_fail,
   since the others may wait for it.

   PROCESSES
       for r in 0 1; do FLEET_RANK=$r FLEET_RANKS=2 FLEET_PEERS_FILE=$file ./a.out & done
       wait; rm $file
   FLEET_PEERS_FILE is a new file in each run. Without FLEET_RANKS the process is the only rank. */

/* Outside the guard: the second inclusion brings the implementations of the headers below. */
#include "fleet_device.h"
#if FLEET_VERSION != 300
#error "fleet_peers_ipc.h is of fleet 0.3, fleet.h is not: copy all headers from one version"
#endif

#ifndef FLEET_PEERS_IPC_H
#define FLEET_PEERS_IPC_H

FLEET_C_BEGIN

/* ==== >>public: what programs call ==== */

typedef struct fleet_peers_ipc {
    fleet_peers peers; /* rank and ranks from begin on, the regions from open on */
    /* private */
    struct fleeti_ipc_file *file; /* null: the only rank */
} fleet_peers_ipc;

/* Makes the GPU of this rank the current one. */
FLEET_API int fleet_peers_ipc_begin(fleet_peers_ipc *p, const int *argc, char ***argv);

/* Makes a region of so many bytes on each rank, all together, instead of those before. */
FLEET_API int fleet_peers_ipc_open(fleet_peers_ipc *p, size_t bytes, fleet_peers *peers);

/* A barrier of the ranks. None waits longer than ten minutes, or for one that has failed. */
FLEET_API int fleet_peers_ipc_meet(fleet_peers_ipc *p);

/* Such a barrier, where each rank passes a value: 0, or 1 + the first rank whose value is not this
   rank's. */
FLEET_API int fleet_peers_ipc_compare(fleet_peers_ipc *p, uint64_t value);

/* This rank has failed, and has said why: the others do not wait for it. */
FLEET_API void fleet_peers_ipc_fail(fleet_peers_ipc *p, int code);

FLEET_API void fleet_peers_ipc_end(fleet_peers_ipc *p);

FLEET_C_END
#endif /* FLEET_PEERS_IPC_H */

/* ==== >>implementation: handles of memory, passed in a file ==== */

#if defined(FLEET_IMPLEMENTATION) && !defined(FLEETI_PEERS_IPC_IMPLEMENTED)
#define FLEETI_PEERS_IPC_IMPLEMENTED

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The runtime's names. */
#if defined(FLEET_CUDA)
#define FLEETI_IPC_RT(name) cuda##name
#define FLEETI_IPC_ALLOC(region, bytes) cudaMalloc(region, bytes)
#elif defined(FLEET_HIP) /* other GPUs see stores of a running kernel in fine-grained memory */
#define FLEETI_IPC_RT(name) hip##name
#define FLEETI_IPC_ALLOC(region, bytes)                                                            \
    hipExtMallocWithFlags(region, bytes, hipDeviceMallocFinegrained)
#else
#error "fleet_peers_ipc.h is for nvcc and hipcc; on the CPU: fleet_peers_mpi.h"
#endif

typedef struct fleeti_ipc_file { /* the processes map it; zeros at first */
    uint32_t arrived;            /* at all barriers so far */
    uint32_t failed;             /* 1: a rank has */
    uint64_t value[FLEET_MAX_PEERS];
    FLEETI_IPC_RT(IpcMemHandle_t) handle[FLEET_MAX_PEERS];
} fleeti_ipc_file;

static int fleeti_ipc_bad(const char *why)
{
    fprintf(stderr, "fleet_peers_ipc: %s\n", why);
    return 1;
}

int fleet_peers_ipc_begin(fleet_peers_ipc *p, const int *argc, char ***argv)
{
    (void)argc, (void)argv;
    const char *rank = getenv("FLEET_RANK"), *ranks = getenv("FLEET_RANKS"),
               *name = getenv("FLEET_PEERS_FILE");
    const int file = name ? open(name, O_RDWR | O_CREAT, 0600) : -1;
    int gpus = 0;
    p->file = NULL, p->peers.rank = 0, p->peers.ranks = 1;
    for (uint32_t i = 0; i < FLEET_MAX_PEERS; i++) p->peers.bases[i] = NULL;
    if (!ranks) return 0;
    p->peers.rank = rank ? (uint32_t)atoi(rank) : FLEET_MAX_PEERS;
    p->peers.ranks = (uint32_t)atoi(ranks);
    if (p->peers.ranks > FLEET_MAX_PEERS || p->peers.rank >= p->peers.ranks)
        return fleeti_ipc_bad("FLEET_RANK or FLEET_RANKS?");
    if (file < 0 || ftruncate(file, sizeof *p->file)) return fleeti_ipc_bad("FLEET_PEERS_FILE?");
    p->file =
        (fleeti_ipc_file *)mmap(NULL, sizeof *p->file, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if ((void *)p->file == MAP_FAILED) {
        p->file = NULL;
        return fleeti_ipc_bad("FLEET_PEERS_FILE?");
    }
    return FLEETI_IPC_RT(GetDeviceCount)(&gpus) || !gpus ||
                   FLEETI_IPC_RT(SetDevice)((int)p->peers.rank % gpus)
               ? fleeti_ipc_bad("no GPU")
               : 0;
}

int fleet_peers_ipc_meet(fleet_peers_ipc *p)
{
    const uint32_t ranks = p->peers.ranks;
    if (!p->file) return 0;
    const uint32_t before = __atomic_fetch_add(&p->file->arrived, 1, __ATOMIC_ACQ_REL);
    const time_t begun = time(NULL);
    while (__atomic_load_n(&p->file->arrived, __ATOMIC_ACQUIRE) / ranks == before / ranks) {
        if (__atomic_load_n(&p->file->failed, __ATOMIC_ACQUIRE)) return 1;
        if (time(NULL) - begun > 600) return fleeti_ipc_bad("another rank has not come");
        usleep(200);
    }
    return 0;
}

int fleet_peers_ipc_compare(fleet_peers_ipc *p, uint64_t value)
{
    int other = 0;
    if (!p->file) return 0;
    p->file->value[p->peers.rank] = value;
    if (fleet_peers_ipc_meet(p)) return 1;
    for (uint32_t i = 0; i < p->peers.ranks && !other; i++)
        if (p->file->value[i] != value) other = 1 + (int)i;
    return fleet_peers_ipc_meet(p) && !other ? 1 : other; /* all have compared */
}

/* Unmaps the other ranks' regions, and frees this rank's when they have done the same. */
static void fleeti_ipc_close(fleet_peers_ipc *p)
{
    void **own = &p->peers.bases[p->peers.rank];
    for (uint32_t i = 0; i < p->peers.ranks; i++) {
        if (i == p->peers.rank || !p->peers.bases[i]) continue;
        (void)FLEETI_IPC_RT(IpcCloseMemHandle)(p->peers.bases[i]);
        p->peers.bases[i] = NULL;
    }
    (void)fleet_peers_ipc_meet(p);
    (void)FLEETI_IPC_RT(Free)(*own);
    *own = NULL;
}

int fleet_peers_ipc_open(fleet_peers_ipc *p, size_t bytes, fleet_peers *peers)
{
    void **own = &p->peers.bases[p->peers.rank];
    if (*own) fleeti_ipc_close(p);
    if (FLEETI_IPC_ALLOC(own, bytes) ||
        (p->file && FLEETI_IPC_RT(IpcGetMemHandle)(&p->file->handle[p->peers.rank], *own)))
        return fleeti_ipc_bad("no memory that other processes can open");
    if (fleet_peers_ipc_meet(p)) return 1;
    for (uint32_t i = 0; i < p->peers.ranks; i++)
        if (i != p->peers.rank &&
            FLEETI_IPC_RT(IpcOpenMemHandle)(&p->peers.bases[i], p->file->handle[i],
                                            FLEETI_IPC_RT(IpcMemLazyEnablePeerAccess)))
            return fleeti_ipc_bad("another rank's region cannot be opened");
    *peers = p->peers;
    return 0;
}

void fleet_peers_ipc_fail(fleet_peers_ipc *p, int code)
{
    (void)code;
    if (p->file) __atomic_store_n(&p->file->failed, 1, __ATOMIC_RELEASE);
}

void fleet_peers_ipc_end(fleet_peers_ipc *p)
{
    if (p->peers.bases[p->peers.rank]) fleeti_ipc_close(p);
    if (p->file) munmap(p->file, sizeof *p->file);
}

#endif /* FLEET_IMPLEMENTATION */
