// Several devices (AMDSIM_DEVICES=2): the API, kernels that run at the same time, and what makes memory of one visible
// to another. peers CASE [ROUNDS] fails when a kernel of a device saw an old value of what one of the other had stored.
//
//   api             devices, streams, symbols, peer access and its errors
//   fine            fine-grained memory, a release and an acquire at system scope
//   no_release      the producer waits for its stores and does not write back
//   agent_release   it writes back at agent scope
//   no_acquire      the consumer invalidates nothing but its L1
//   agent_acquire   it invalidates at agent scope
//   by_another      another workgroup of the producer's device releases for it: the stores reach it at agent scope
//   not_by_another  the same, without the release at agent scope
//   coarse          coarse-grained memory of the other device: no fence makes it coherent
//   next_kernel     the same, but read by a later kernel
//
// Each round is played twice: into the consumer's memory (push) and out of the producer's (pull).
#include <thread>
#include "check.h"

constexpr int kLines = 8;  // stores of a round, each to a line of its own
enum Case { kFine, kNoRelease, kAgentRelease, kNoAcquire, kAgentAcquire, kByAnother, kNotByAnother, kCoarse, kCases };
static const char* const names[] = {"fine",          "no_release", "agent_release",  "no_acquire",
                                    "agent_acquire", "by_another", "not_by_another", "coarse"};

#define WAIT() asm volatile("s_waitcnt vmcnt(0)" ::: "memory")
__device__ void post(int* p, int x) {
  asm volatile("global_store_dword %0, %1, off sc0 sc1\n s_waitcnt vmcnt(0)" ::"v"(p), "v"(x) : "memory");
}
__device__ void await(int* p, int x) {
  int got;
  do {
    __builtin_amdgcn_s_sleep(1);
    asm volatile("global_load_dword %0, %1, off sc0 sc1\n s_waitcnt vmcnt(0)" : "=&v"(got) : "v"(p) : "memory");
  } while (got < x);
}
__device__ void release(int which) {
  if (which == kNoRelease) return;
  if (which == kAgentRelease) asm volatile("buffer_wbl2 sc1" ::: "memory");
  else asm volatile("buffer_wbl2 sc0 sc1" ::: "memory");
  WAIT();
}

// flags, each on a line of its own: what was published, what was read, and what another workgroup is to publish.
__global__ __launch_bounds__(64) void produce(int which, int* push, int* pull, int* flags, int rounds) {
  const int lane = threadIdx.x, another = which == kByAnother || which == kNotByAnother;
  for (int round = 1; round <= rounds; round++) {
    if (blockIdx.x == 0) {
      await(flags + 32, round - 1);
      if (lane < kLines) push[lane * 32] = pull[lane * 32] = round;
      WAIT();
      if (another) {
        if (which == kByAnother) {
          asm volatile("buffer_wbl2 sc1" ::: "memory");
          WAIT();
        }
        post(flags + 64, round);
      } else {
        release(which);
        post(flags, round);
      }
    } else if (another) {
      await(flags + 64, round);
      asm volatile("buffer_inv sc1" ::: "memory");
      WAIT();
      release(which);
      post(flags, round);
    }
  }
}
__global__ __launch_bounds__(64) void consume(int which, int* push, int* pull, int* flags, int rounds, int* stale) {
  const int lane = threadIdx.x;
  for (int round = 1; round <= rounds; round++) {
    await(flags, round);
    if (which == kNoAcquire) asm volatile("buffer_inv sc0" ::: "memory");
    else if (which == kAgentAcquire) asm volatile("buffer_inv sc1" ::: "memory");
    else asm volatile("buffer_inv sc0 sc1" ::: "memory");
    WAIT();
    for (int* p : {push, pull}) {
      int got;
      asm volatile("global_load_dword %0, %1, off\n s_waitcnt vmcnt(0)" : "=&v"(got) : "v"(p + lane % kLines * 32) : "memory");
      if (lane < kLines && got != round) atomicAdd(stale, 1);
    }
    post(flags + 32, round);
  }
}

static int* memory(int device, size_t ints, bool fine) {
  int* p;
  OK(hipSetDevice(device));
  OK(hipExtMallocWithFlags((void**)&p, ints * sizeof(int), fine ? hipDeviceMallocFinegrained : hipDeviceMallocDefault));
  OK(hipMemset(p, 0, ints * sizeof(int)));
  OK(hipDeviceSynchronize());
  return p;
}
static void both_ways() {
  OK(hipSetDevice(0));
  OK(hipDeviceEnablePeerAccess(1, 0));
  OK(hipSetDevice(1));
  OK(hipDeviceEnablePeerAccess(0, 0));
}

static int play(int which, int rounds) {
  both_ways();
  int *push = memory(1, kLines * 32, which != kCoarse), *pull = memory(0, kLines * 32, which != kCoarse), *flags = memory(1, 96, true),
      *stale = memory(1, 1, false), n;
  OK(hipSetDevice(0));
  produce<<<2, 64>>>(which, push, pull, flags, rounds);
  OK(hipSetDevice(1));
  consume<<<1, 64>>>(which, push, pull, flags, rounds, stale);
  for (int d = 0; d < 2; d++) {
    OK(hipSetDevice(d));
    OK(hipDeviceSynchronize());
  }
  OK(hipMemcpy(&n, stale, sizeof n, hipMemcpyDeviceToHost));
  printf("%d of %d loads were stale\n", n, 2 * rounds * kLines);
  return n ? 1 : 0;
}

__global__ void write(int* p, int x) { p[threadIdx.x * 32] = x; }
__global__ void read(const int* p, int* out) { out[threadIdx.x] = p[threadIdx.x * 32]; }
static int next_kernel(int rounds) {
  both_ways();
  int *there = memory(1, 64 * 32, false), *out = memory(0, 64, false), got[64], wrong = 0;
  for (int round = 1; round <= rounds; round++) {
    OK(hipSetDevice(round % 2));
    write<<<1, 64>>>(there, round);
    OK(hipDeviceSynchronize());
    OK(hipSetDevice(0));
    read<<<1, 64>>>(there, out);
    OK(hipMemcpy(got, out, sizeof got, hipMemcpyDeviceToHost));
    for (int x : got) wrong += x != round;
  }
  printf("%d loads were stale\n", wrong);
  return wrong ? 1 : 0;
}

__device__ int variable = 7;
__global__ void add(int x) { variable += x; }
__global__ void meet(int* mine, int* other) {
  post(mine, 1);
  await(other, 1);
}
static int api() {
  int n = 0, d = 9, can = 0;
  OK(hipGetDeviceCount(&n));
  EXPECT(n == 2);
  OK(hipGetDevice(&d));
  EXPECT(d == 0);
  EXPECT(hipSetDevice(2) == hipErrorInvalidDevice);
  OK(hipSetDevice(1));
  std::thread([&] { OK(hipGetDevice(&d)); }).join();
  EXPECT(d == 0);  // of each thread
  hipDeviceProp_t a, b;
  OK(hipGetDeviceProperties(&a, 0));
  OK(hipGetDeviceProperties(&b, 1));
  EXPECT(a.pciBusID != b.pciBusID && a.multiProcessorCount == b.multiProcessorCount);
  OK(hipDeviceCanAccessPeer(&can, 0, 1));
  EXPECT(can == 1);
  OK(hipDeviceCanAccessPeer(&can, 1, 1));
  EXPECT(can == 0);

  // Memory has an owner.
  size_t free0, free1, total;
  hipPointerAttribute_t attributes;
  int *on0 = memory(0, 1 << 20, false), *on1 = memory(1, 96, true);
  OK(hipPointerGetAttributes(&attributes, on1));
  EXPECT(attributes.device == 1);
  OK(hipMemGetInfo(&free1, &total));
  OK(hipSetDevice(0));
  OK(hipMemGetInfo(&free0, &total));
  EXPECT(free1 > free0);

  // A symbol has a value for each device.
  int value[2];
  for (d = 0; d < 2; d++) {
    OK(hipSetDevice(d));
    add<<<1, 1>>>(d + 1);
    OK(hipMemcpyFromSymbol(&value[d], HIP_SYMBOL(variable), sizeof(int)));
  }
  EXPECT(value[0] == 8 && value[1] == 9);

  // A stream belongs to a device.
  hipStream_t s;
  OK(hipStreamCreateWithFlags(&s, hipStreamNonBlocking));
  OK(hipStreamGetDevice(s, &d));
  EXPECT(d == 1);
  OK(hipSetDevice(0));
  add<<<1, 1, 0, s>>>(1);
  EXPECT(hipGetLastError() == hipErrorInvalidHandle);
  OK(hipStreamDestroy(s));

  both_ways();
  EXPECT(hipDeviceEnablePeerAccess(0, 0) == hipErrorPeerAccessAlreadyEnabled);
  EXPECT(hipDeviceEnablePeerAccess(1, 0) == hipErrorInvalidDevice);  // itself

  // Kernels of two devices run at the same time: each waits for the other.
  OK(hipMemset(on1, 0, 96 * sizeof(int)));
  OK(hipDeviceSynchronize());
  for (d = 0; d < 2; d++) {
    OK(hipSetDevice(d));
    meet<<<1, 64>>>(on1 + 32 * d, on1 + 32 * (1 - d));
  }
  OK(hipDeviceSynchronize());
  OK(hipSetDevice(0));
  OK(hipDeviceSynchronize());

  // A kernel faults in the memory of a peer that it may not use.
  OK(hipDeviceDisablePeerAccess(1));
  EXPECT(hipDeviceDisablePeerAccess(1) == hipErrorPeerAccessNotEnabled);
  write<<<1, 1>>>(on1, 1);
  EXPECT(hipDeviceSynchronize() == hipErrorIllegalAddress);
  OK(hipDeviceReset());
  OK(hipFree(on0));
  OK(hipFree(on1));
  return verdict();
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "";
  const int rounds = argc > 2 ? atoi(argv[2]) : 200;
  if (!strcmp(name, "api")) return api();
  if (!strcmp(name, "next_kernel")) return next_kernel(rounds / 10);
  for (int i = 0; i < kCases; i++)
    if (!strcmp(name, names[i])) return play(i, rounds);
  return printf("which case?\n"), 2;
}
