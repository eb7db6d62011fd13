/* ipc_peers.h - a symmetric region for fleet_peers by cudaIpc or hipIpc, for ranks that are processes with a GPU each

       for r in 0 1; do FLEET_RANK=$r FLEET_RANKS=2 FLEET_PEERS_FILE=$file ./a.out & done; wait; rm $file
       ipc_peers_begin(&engine, &argc, &argv);            FLEET_PEERS_FILE is a new file in each run
       ipc_peers_open(&engine, fleet_peers_bytes(plan) + what the program shares, &peers);
       ... fleet_state_create, ipc_peers_meet(&engine), fleet_launch, ipc_peers_end(&engine)

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
    IPC_RT(IpcMemHandle_t) handle[FLEET_MAX_PEERS];
} ipc_file;
typedef struct ipc_peers {
    fleet_peers peers;
    ipc_file *file;
} ipc_peers;

static inline int ipc_peers_fail(const char *why)
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
    p->peers.rank = rank ? (uint32_t)atoi(rank) : FLEET_MAX_PEERS;
    p->peers.ranks = ranks ? (uint32_t)atoi(ranks) : 0;
    if (p->peers.ranks > FLEET_MAX_PEERS || p->peers.rank >= p->peers.ranks)
        return ipc_peers_fail("FLEET_RANK or FLEET_RANKS?");
    if (file < 0 || ftruncate(file, sizeof *p->file)) return ipc_peers_fail("FLEET_PEERS_FILE?");
    p->file = (ipc_file *)mmap(NULL, sizeof *p->file, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if ((void *)p->file == MAP_FAILED) return ipc_peers_fail("FLEET_PEERS_FILE?");
    return IPC_RT(GetDeviceCount)(&gpus) || !gpus || IPC_RT(SetDevice)((int)p->peers.rank % gpus)
               ? ipc_peers_fail("no GPU")
               : 0;
}

/* A barrier of the ranks, of which none waits longer than a minute. */
static inline int ipc_peers_meet(ipc_peers *p)
{
    const uint32_t ranks = p->peers.ranks;
    const uint32_t before = __atomic_fetch_add(&p->file->arrived, 1, __ATOMIC_ACQ_REL);
    const time_t begun = time(NULL);
    while (__atomic_load_n(&p->file->arrived, __ATOMIC_ACQUIRE) / ranks == before / ranks) {
        if (time(NULL) - begun > 60) return ipc_peers_fail("another rank has not come");
        usleep(200);
    }
    return 0;
}

/* Makes a region of so many bytes on each rank, all together, once. */
static inline int ipc_peers_open(ipc_peers *p, size_t bytes, fleet_peers *peers)
{
    void **own = &p->peers.bases[p->peers.rank];
    if (IPC_ALLOC(own, bytes) || IPC_RT(IpcGetMemHandle)(&p->file->handle[p->peers.rank], *own))
        return ipc_peers_fail("no memory that other processes can open");
    if (ipc_peers_meet(p)) return 1;
    for (uint32_t i = 0; i < p->peers.ranks; i++)
        if (i != p->peers.rank && IPC_RT(IpcOpenMemHandle)(&p->peers.bases[i], p->file->handle[i],
                                                           IPC_RT(IpcMemLazyEnablePeerAccess)))
            return ipc_peers_fail("another rank's region cannot be opened");
    *peers = p->peers;
    return 0;
}

static inline void ipc_peers_end(ipc_peers *p)
{
    for (uint32_t i = 0; i < p->peers.ranks; i++)
        if (i != p->peers.rank) (void)IPC_RT(IpcCloseMemHandle)(p->peers.bases[i]);
    (void)ipc_peers_meet(p);
    (void)IPC_RT(Free)(p->peers.bases[p->peers.rank]);
    munmap(p->file, sizeof *p->file);
}

#endif
