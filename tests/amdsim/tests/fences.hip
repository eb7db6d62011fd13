// What a fence covers, instruction by instruction: a producer on one die publishes a counter, a consumer on another
// reads it, round by round. fences CASE [ROUNDS] fails when the consumer saw an old value.
//
//   all_waits    every wait is there
//   own_store    the producer's wave does not wait for its store before its write-back
//   other_store  another wave of the producer's workgroup stores, and does not wait for that before the barrier
//   no_wait_wb   the producer does not wait for its write-back
//   own_load     the consumer's wave loads without waiting for its invalidation
//   other_load   another wave of the consumer's workgroup loads after a barrier; the wave that invalidated did not wait
//   relay        a consumer passes the news on to another one on its die, which invalidates its L2, too
//   relay_l1     the same, but that one drops its L1 alone, while a third one there loads the lines all the time
//
// own_store and own_load are right by what LLVM's code generation says of the hardware, and wrong with AMDSIM_STRICT=1.
#include "check.h"

enum Case { kAllWaits, kOwnStore, kOtherStore, kNoWaitWb, kOwnLoad, kOtherLoad, kRelay, kRelayL1, kCases };
static const char* const names[] = {"all_waits", "own_store", "other_store", "no_wait_wb", "own_load", "other_load", "relay", "relay_l1"};
constexpr int kLines = 8;  // stores of one round, each to a line of its own

#define WAIT() asm volatile("s_waitcnt vmcnt(0)" ::: "memory")
__device__ void post(int* p, int x) { asm volatile("global_store_dword %0, %1, off sc0 sc1" ::"v"(p), "v"(x) : "memory"); }
__device__ void await(int* p, int x) {
  int got;
  do {
    __builtin_amdgcn_s_sleep(1);
    asm volatile("global_load_dword %0, %1, off sc0 sc1\n s_waitcnt vmcnt(0)" : "=&v"(got) : "v"(p) : "memory");
  } while (got < x);
}

// Two workgroups of two waves on two dies. flags: what was published, what was read.
template <int CASE>
__global__ __launch_bounds__(128) void pass_on(int* data, int* flags, int* stale, int rounds) {
  const int wave = __builtin_amdgcn_readfirstlane(threadIdx.x / 64), lane = threadIdx.x % 64;
  const int worker = CASE == kOtherStore || CASE == kOtherLoad;  // the wave that stores and loads; wave 0 has the fences
  int* mine = data + (lane % kLines) * 32;
  for (int round = 1; round <= rounds; round++) {
    if (blockIdx.x == 0) {
      if (wave == 0) await(flags + 32, round - 1);
      __syncthreads();
      if (wave == worker && lane < kLines) {
        asm volatile("global_store_dword %0, %1, off" ::"v"(mine), "v"(round) : "memory");
        if (CASE != kOwnStore && CASE != kOtherStore) WAIT();
      }
      __builtin_amdgcn_s_barrier();
      if (wave == 0) {
        asm volatile("buffer_wbl2 sc1" ::: "memory");
        if (CASE != kNoWaitWb) WAIT();
        if (lane == 0) post(flags, round);
      }
    } else {
      int got = 0;
      if (wave == 0) {
        await(flags, round);
        asm volatile("buffer_inv sc1" ::: "memory");
        if (CASE != kOwnLoad && CASE != kOtherLoad) WAIT();
      }
      __builtin_amdgcn_s_barrier();
      if (wave == worker && lane < kLines) {
        asm volatile("global_load_dword %0, %1, off\n s_waitcnt vmcnt(0)" : "=&v"(got) : "v"(mine) : "memory");
        if (got != round) atomicAdd(stale, 1);
      }
      __syncthreads();
      if (threadIdx.x == 0) post(flags + 32, round);
    }
    __syncthreads();
  }
}

// Workgroup 0 publishes; of those on the other die 1 acquires and tells 3, which loads, and 5 loads lines of the round before.
// flags: published, acquired, read.
template <int CASE>
__global__ __launch_bounds__(64) void relay(int* data, int* flags, int* stale, int rounds) {
  const int lane = threadIdx.x;
  int* mine = data + (lane % kLines) * 32;
  int got = 0;
  for (int round = 1; round <= rounds; round++) {
    if (blockIdx.x == 0) {
      await(flags + 64, round - 1);
      if (lane < kLines) asm volatile("global_store_dword %0, %1, off" ::"v"(mine), "v"(round) : "memory");
      WAIT();
      asm volatile("buffer_wbl2 sc1" ::: "memory");
      WAIT();
      if (lane == 0) post(flags, round);
    } else if (blockIdx.x == 1) {
      await(flags, round);
      asm volatile("buffer_inv sc1" ::: "memory");
      WAIT();
      if (lane == 0) post(flags + 32, round);
    } else if (blockIdx.x == 3) {
      await(flags + 32, round);
      if (CASE == kRelay) asm volatile("buffer_inv sc1" ::: "memory");
      else asm volatile("buffer_inv sc0" ::: "memory");
      WAIT();
      if (lane < kLines) {
        asm volatile("global_load_dword %0, %1, off\n s_waitcnt vmcnt(0)" : "=&v"(got) : "v"(mine) : "memory");
        if (got != round) atomicAdd(stale, 1);
      }
      if (lane == 0) post(flags + 64, round);
    } else if (blockIdx.x == 5) {
      do {
        asm volatile("buffer_inv sc0\n s_waitcnt vmcnt(0)\n global_load_dword %0, %1, off\n s_waitcnt vmcnt(0)"
                     : "=&v"(got)
                     : "v"(mine)
                     : "memory");
        asm volatile("global_load_dword %0, %1, off sc0 sc1\n s_waitcnt vmcnt(0)" : "=&v"(got) : "v"(flags + 64) : "memory");
      } while (got < round);
    }
  }
}

int main(int argc, char** argv) {
  using Kernel = void (*)(int*, int*, int*, int);
  const Kernel kernels[] = {pass_on<0>, pass_on<1>, pass_on<2>, pass_on<3>, pass_on<4>, pass_on<5>, relay<6>, relay<7>};
  int which = kCases;
  for (int i = 0; i < kCases; i++)
    if (argc > 1 && !strcmp(argv[1], names[i])) which = i;
  if (which == kCases) return printf("which case?\n"), 2;
  const int rounds = argc > 2 ? atoi(argv[2]) : 300;
  Dev<int> data(kLines * 32), flags(96), stale(1);
  if (which >= kRelay) kernels[which]<<<6, 64>>>(data, flags, stale, rounds);
  else kernels[which]<<<2, 128>>>(data, flags, stale, rounds);
  const int n = stale.get()[0];
  printf("%d of %d loads were stale\n", n, rounds * kLines);
  return n ? 1 : 0;
}
