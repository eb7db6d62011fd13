/* fleet_peers_ipc.h - a symmetric region for fleet_peers by cudaIpc or hipIpc, for ranks that are processes with a GPU each

       for r in 0 1; do FLEET_RANK=$r FLEET_RANKS=2 FLEET_PEERS_FILE=$file ./a.out & done; wait; rm $file
       ipc_peers_begin(&engine, &argc, &argv);            FLEET_PEERS_FILE is a new file in each run
       ipc_peers_open(&engine, fleet_peers_bytes(plan) + what the program shares, &peers);
       ... fleet_state_create, ipc_peers_meet(&engine), fleet_launch, ipc_peers_end(&engine)

   Without FLEET_RANKS the process is the only rank. One that fails calls ipc_peers_fail, since the others may wait for it.

   Include fleet_device.h first. Functions return 0, or 1 after a message. */
#ifndef IPC_PEERS_H
#define IPC_PEERS_H
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(FLEET_CUDA)
#define IPC_RT(name) cuda##name
#define IPC_ALLOC(region, bytes) cudaMalloc(region, bytes)
#else /* other GPUs see the stores of a running kernel in fine-grained memory only */
#define IPC_RT(name) hip##name
#define IPC_ALLOC(region, bytes) hipExtMallocWithFlags(region, bytes, hipDeviceMallocFinegrained)
#endif

typedef struct ipc_file { /* the processes map it; zeros at first */
    uint32_t arrived;     /* at all barriers so far */
    uint32_t failed;      /* 1: a rank has */
    uint64_t value[FLEET_MAX_PEERS];
    IPC_RT(IpcMemHandle_t) handle[FLEET_MAX_PEERS];
} ipc_file;
typedef struct ipc_peers {
    fleet_peers peers;
    ipc_file *file; /* null: the only rank */
} ipc_peers;

static inline int ipc_peers_bad(const char *why)
{
    fprintf(stderr, "ipc_peers: %s\n", why);
    return 1;
}

/* Makes the GPU of this rank the current one. */
static inline int ipc_peers_begin(ipc_peers *p, const int *argc, char ***argv)
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
        return ipc_peers_bad("FLEET_RANK or FLEET_RANKS?");
    if (file < 0 || ftruncate(file, sizeof *p->file)) return ipc_peers_bad("FLEET_PEERS_FILE?");
    p->file = (ipc_file *)mmap(NULL, sizeof *p->file, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if ((void *)p->file == MAP_FAILED) {
        p->file = NULL;
        return ipc_peers_bad("FLEET_PEERS_FILE?");
    }
    return IPC_RT(GetDeviceCount)(&gpus) || !gpus || IPC_RT(SetDevice)((int)p->peers.rank % gpus)
               ? ipc_peers_bad("no GPU")
               : 0;
}

/* A barrier of the ranks, of which none waits longer than ten minutes, or for one that has failed. */
static inline int ipc_peers_meet(ipc_peers *p)
{
    const uint32_t ranks = p->peers.ranks;
    if (!p->file) return 0;
    const uint32_t before = __atomic_fetch_add(&p->file->arrived, 1, __ATOMIC_ACQ_REL);
    const time_t begun = time(NULL);
    while (__atomic_load_n(&p->file->arrived, __ATOMIC_ACQUIRE) / ranks == before / ranks) {
        if (__atomic_load_n(&p->file->failed, __ATOMIC_ACQUIRE)) return 1;
        if (time(NULL) - begun > 600) return ipc_peers_bad("another rank has not come");
        usleep(200);
    }
    return 0;
}

/* Such a barrier, where each rank passes a value: 0, or 1 + the first rank whose value is not this rank's. */
static inline int ipc_peers_compare(ipc_peers *p, uint64_t value)
{
    int other = 0;
    if (!p->file) return 0;
    p->file->value[p->peers.rank] = value;
    if (ipc_peers_meet(p)) return 1;
    for (uint32_t i = 0; i < p->peers.ranks && !other; i++)
        if (p->file->value[i] != value) other = 1 + (int)i;
    return ipc_peers_meet(p) && !other ? 1 : other; /* all have compared */
}

/* Unmaps the other ranks' regions, and frees this rank's when they have done the same. */
static inline void ipc_peers_close(ipc_peers *p)
{
    void **own = &p->peers.bases[p->peers.rank];
    for (uint32_t i = 0; i < p->peers.ranks; i++) {
        if (i == p->peers.rank || !p->peers.bases[i]) continue;
        (void)IPC_RT(IpcCloseMemHandle)(p->peers.bases[i]);
        p->peers.bases[i] = NULL;
    }
    (void)ipc_peers_meet(p);
    (void)IPC_RT(Free)(*own);
    *own = NULL;
}

/* Makes a region of so many bytes on each rank, all together, instead of those before. */
static inline int ipc_peers_open(ipc_peers *p, size_t bytes, fleet_peers *peers)
{
    void **own = &p->peers.bases[p->peers.rank];
    if (*own) ipc_peers_close(p);
    if (IPC_ALLOC(own, bytes) ||
        (p->file && IPC_RT(IpcGetMemHandle)(&p->file->handle[p->peers.rank], *own)))
        return ipc_peers_bad("no memory that other processes can open");
    if (ipc_peers_meet(p)) return 1;
    for (uint32_t i = 0; i < p->peers.ranks; i++)
        if (i != p->peers.rank && IPC_RT(IpcOpenMemHandle)(&p->peers.bases[i], p->file->handle[i],
                                                           IPC_RT(IpcMemLazyEnablePeerAccess)))
            return ipc_peers_bad("another rank's region cannot be opened");
    *peers = p->peers;
    return 0;
}

/* This rank has failed, and has said why: the others do not wait for it. */
static inline void ipc_peers_fail(ipc_peers *p, int code)
{
    (void)code;
    if (p->file) __atomic_store_n(&p->file->failed, 1, __ATOMIC_RELEASE);
}

static inline void ipc_peers_end(ipc_peers *p)
{
    if (p->peers.bases[p->peers.rank]) ipc_peers_close(p);
    if (p->file) munmap(p->file, sizeof *p->file);
}

#endif
