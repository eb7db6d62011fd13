// Faulty kernels must be reported. Argument: oob, lds, misaligned, trap, spin, barrier
#include "check.h"
__global__ void oob(int* p) { p[threadIdx.x] = 1; }
__global__ void lds(int* p, int k) {
  extern __shared__ int s[];
  s[threadIdx.x + k] = 1;
  __syncthreads();
  p[threadIdx.x] = s[threadIdx.x];
}
__global__ void misaligned(char* p) { atomicAdd((int*)(p + 2), 1); }
__global__ void trap(int* p) {
  if (p[0] == 0) __builtin_trap();
}
__global__ void spin(unsigned* f) {
  if (blockIdx.x == 0) return;
  while (__hip_atomic_load(f, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) == 0) __builtin_amdgcn_s_sleep(1);
}

int main(int argc, char** argv) {
  std::string what = argc > 1 ? argv[1] : "oob";
  Dev<int> p(64);
  hipError_t want = hipErrorIllegalAddress;
  if (what == "oob") {
    Dev<int> q(63);
    oob<<<1, 64>>>(q);
    EXPECT(hipDeviceSynchronize() == want);
    return verdict();
  }
  if (what == "lds") lds<<<1, 64, 256>>>(p, 1);
  if (what == "misaligned") misaligned<<<1, 64>>>((char*)p.p);
  if (what == "trap") trap<<<1, 64>>>(p);
  if (what == "spin") {
    spin<<<4, 128>>>((unsigned*)p.p);
    want = hipErrorLaunchFailure;
  }
  hipError_t e = hipDeviceSynchronize();
  if (e != want) printf("  got %s\n", hipGetErrorName(e));
  EXPECT(e == want);
  OK(hipDeviceReset());
  EXPECT(hipDeviceSynchronize() == hipSuccess);
  return verdict();
}
