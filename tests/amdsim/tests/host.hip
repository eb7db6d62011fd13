// Host and device running at the same time: abort flag and mailbox in pinned
// memory, producer and consumer kernels in two streams, events, callbacks.
#include "check.h"
#include <chrono>
#include <thread>

__global__ void until_flag(volatile unsigned* flag, volatile unsigned* alive, unsigned* out) {
  unsigned n = 0;
  while (__hip_atomic_load((unsigned*)flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) == 0) {
    if (threadIdx.x == 0 && blockIdx.x == 0) __hip_atomic_store((unsigned*)alive, ++n, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    __builtin_amdgcn_s_sleep(2);
  }
  if (threadIdx.x == 0) atomicAdd(out, 1u);
}
__global__ void produce(unsigned* f, float* d) {
  d[threadIdx.x] = threadIdx.x;
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) __hip_atomic_store(f, 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
}
__global__ void consume(unsigned* f, float* d, float* o) {
  while (__hip_atomic_load(f, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) __builtin_amdgcn_s_sleep(1);
  o[threadIdx.x] = d[threadIdx.x] * 2;
}
__global__ void echo(unsigned* req, unsigned* rep, int n) {
  if (threadIdx.x) return;
  for (int i = 1; i <= n; i++) {
    unsigned x;
    while ((x = __hip_atomic_load(req, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM)) != (unsigned)i) __builtin_amdgcn_s_sleep(1);
    __hip_atomic_store(rep, x * 10, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
  }
}
__global__ void add1(int* p) { p[threadIdx.x]++; }

int main() {
  unsigned *flag, *alive;
  OK(hipHostMalloc((void**)&flag, 64, 0));
  OK(hipHostMalloc((void**)&alive, 64, hipHostMallocMapped));
  *flag = *alive = 0;
  Dev<unsigned> out(1);
  hipStream_t s, t;
  OK(hipStreamCreateWithFlags(&s, hipStreamNonBlocking));
  OK(hipStreamCreateWithFlags(&t, hipStreamNonBlocking));
  until_flag<<<16, 128, 0, s>>>(flag, alive, out);
  while (__atomic_load_n(alive, __ATOMIC_RELAXED) < 10) std::this_thread::yield();
  EXPECT(hipStreamQuery(s) == hipErrorNotReady);
  __atomic_store_n(flag, 1u, __ATOMIC_RELEASE);
  OK(hipStreamSynchronize(s));
  EXPECT(out.get()[0] == 16);

  for (int k = 0; k < 4; k++) {
    Dev<unsigned> f(1);
    Dev<float> d(256), o(256);
    consume<<<1, 256, 0, s>>>(f, d, o);
    produce<<<1, 256, 0, t>>>(f, d);
    OK(hipDeviceSynchronize());
    auto r = o.get();
    for (int i = 0; i < 256; i++)
      if (r[i] != 2.f * i) {
        EXPECT(!"consumer sees the producer's data");
        break;
      }
  }

  unsigned *req = flag, *rep = alive;
  *req = *rep = 0;
  echo<<<1, 64, 0, s>>>(req, rep, 20);
  for (unsigned i = 1; i <= 20; i++) {
    __atomic_store_n(req, i, __ATOMIC_RELEASE);
    while (__atomic_load_n(rep, __ATOMIC_ACQUIRE) != i * 10) std::this_thread::yield();
  }
  OK(hipStreamSynchronize(s));

  // a stream waits for a value the host writes
  *flag = 0;
  Dev<int> w(64);
  OK(hipStreamWaitValue32(s, flag, 3, hipStreamWaitValueGte, 0xffffffff));
  add1<<<1, 64, 0, s>>>(w);
  EXPECT(hipStreamQuery(s) == hipErrorNotReady);
  __atomic_store_n(flag, 3u, __ATOMIC_RELEASE);
  OK(hipStreamSynchronize(s));
  EXPECT(w.get()[0] == 1);

  // events order two streams; callbacks run in stream order
  Dev<int> c(64);
  hipEvent_t e0, e1;
  OK(hipEventCreate(&e0));
  OK(hipEventCreate(&e1));
  static int called = 0;
  OK(hipEventRecord(e0, s));
  add1<<<1, 64, 0, s>>>(c);
  OK(hipLaunchHostFunc(
      s, [](void* p) { called = *(int*)p; }, (void*)new int(7)));
  OK(hipEventRecord(e1, s));
  OK(hipStreamWaitEvent(t, e1, 0));
  add1<<<1, 64, 0, t>>>(c);
  OK(hipStreamSynchronize(t));
  EXPECT(called == 7);
  EXPECT(c.get()[63] == 2);
  float ms = -1;
  OK(hipEventElapsedTime(&ms, e0, e1));
  EXPECT(ms > 0);
  OK(hipStreamDestroy(s));
  OK(hipStreamDestroy(t));
  return verdict();
}
