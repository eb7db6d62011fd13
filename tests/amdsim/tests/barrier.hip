// Persistent kernel with a two-level grid barrier: workgroups arrive at a
// counter of their XCD, the last of each XCD at a global one. Variants:
//   (none)     fence by one thread, but other waves' stores may be in flight
//   WAITVM     every wave waits for its own stores before the workgroup barrier
//   RELWAIT    the releasing thread waits for its write-back
//   ACQWAIT    the acquiring thread waits for its invalidation before the workgroup barrier (fences.hip shows what for)
//   FENCEALL   agent-scope release by one thread of every arriving workgroup
//   FENCEWAVE  agent-scope release by every wave before the workgroup barrier
//   BROKEN     no release, NOACQ: no acquire
// Correct: ACQWAIT with FENCEWAVE, or with WAITVM and RELWAIT.
#include "check.h"
#define AGENT __HIP_MEMORY_SCOPE_AGENT

struct Bar {
  unsigned xcc_cnt[8 * 32];
  unsigned glob;
  unsigned pad[31];
  unsigned reg[8 * 32];
};
__device__ __forceinline__ unsigned xcc_id() {
  unsigned x;
  asm volatile("s_getreg_b32 %0, hwreg(HW_REG_XCC_ID)" : "=s"(x));
  return x & 15;
}
#ifdef BROKEN
#define REL()
#elif defined(RELWAIT)
#define REL()                                          \
  do {                                                 \
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent"); \
    asm volatile("s_waitcnt vmcnt(0)" ::: "memory");   \
  } while (0)
#else
#define REL() __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent")
#endif

__device__ __forceinline__ void gbar(Bar* b, unsigned xcc, unsigned per, unsigned round) {
#ifdef WAITVM
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
#endif
#ifdef FENCEWAVE
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
#endif
  __syncthreads();
  if (threadIdx.x == 0) {
#ifdef FENCEALL
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
#else
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
#endif
    unsigned old = __hip_atomic_fetch_add(&b->xcc_cnt[xcc * 32], 1u, __ATOMIC_RELAXED, AGENT);
    if (old == per * (round + 1) - 1) {
      REL();
      __hip_atomic_fetch_add(&b->glob, 1u, __ATOMIC_RELAXED, AGENT);
    }
    while (__hip_atomic_load(&b->glob, __ATOMIC_RELAXED, AGENT) < 8u * (round + 1)) __builtin_amdgcn_s_sleep(1);
#ifndef NOACQ
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
#ifdef ACQWAIT
    asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
#endif
#endif
  }
  __syncthreads();
}

__global__ __launch_bounds__(256) void persist(Bar* b, float* data, unsigned* err, int nwg, int rounds, unsigned per) {
  __shared__ unsigned sx;
  if (threadIdx.x == 0) sx = xcc_id();
  __syncthreads();
  unsigned xcc = __builtin_amdgcn_readfirstlane(sx);
  int me = blockIdx.x;
  for (int r = 0; r < rounds; r++) {
    float* cur = data + (r & 1) * nwg * 256;
    cur[me * 256 + threadIdx.x] = (float)(r * 1000 + me * 3 + (threadIdx.x & 15));
    gbar(b, xcc, per, 2 * r);
    int src = (me + 5 + r) % nwg;
    float v = cur[src * 256 + (threadIdx.x ^ 1)];
    if (v != (float)(r * 1000 + src * 3 + ((threadIdx.x ^ 1) & 15))) atomicAdd(err, 1u);
    gbar(b, xcc, per, 2 * r + 1);
  }
}

int main(int argc, char** argv) {
  const int nwg = getenv("NWG") ? atoi(getenv("NWG")) : 24, rounds = argc > 1 ? atoi(argv[1]) : 20, repeat = argc > 2 ? atoi(argv[2]) : 6;
  unsigned bad = 0;
  for (int k = 0; k < repeat; k++) {
    Dev<Bar> bar(1);
    Dev<float> data(2 * nwg * 256);
    Dev<unsigned> err(1);
    persist<<<nwg, 256>>>(bar, data, err, nwg, rounds, nwg / 8);
    bad += err.get()[0] != 0;
  }
  printf("%u of %d runs saw wrong data\n", bad, repeat);
  return bad ? 1 : 0;
}
