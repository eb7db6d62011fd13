// Runtime queries, modules, cooperative launch, managed memory, 2D copies.
#include "check.h"
#include <hip/hip_cooperative_groups.h>
#include <string>
namespace cg = cooperative_groups;

__device__ int dev_array[8];
__managed__ int managed_value = 5;
__global__ __launch_bounds__(512) void fat(float* p) {
  __shared__ float s[8192];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = s[511 - threadIdx.x];
}
__global__ void use_managed(int k) {
  managed_value += k;
  dev_array[threadIdx.x & 7] = managed_value;
}
__global__ void grid_sync(int* a, int* bad) {
  cg::grid_group g = cg::this_grid();
  int n = gridDim.x, me = blockIdx.x;
  for (int r = 0; r < 5; r++) {
    if (threadIdx.x == 0) a[me] = r * 100 + me;
    g.sync();
    int o = (me + 1 + r) % n;
    if (threadIdx.x == 0 && a[o] != r * 100 + o) atomicAdd(bad, 1);
    g.sync();
  }
}

int main() {
  int n = 0;
  OK(hipGetDeviceCount(&n));
  EXPECT(n == 1);
  hipDeviceProp_t p;
  OK(hipGetDeviceProperties(&p, 0));
  EXPECT(std::string(p.gcnArchName).find("gfx942") == 0 && p.multiProcessorCount == 304 && p.warpSize == 64 &&
         p.sharedMemPerBlock == 65536);
  int cus = 0;
  OK(hipDeviceGetAttribute(&cus, hipDeviceAttributeMultiprocessorCount, 0));
  EXPECT(cus == 304);
  int blocks = 0;
  OK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fat, 512, 0));
  EXPECT(blocks == 2);  // 32 KiB of LDS each
  hipFuncAttributes fa;
  OK(hipFuncGetAttributes(&fa, (const void*)fat));
  EXPECT(fa.sharedSizeBytes == 32768 && fa.maxThreadsPerBlock == 512 && fa.numRegs > 0);
  int gs = 0, bs = 0;
  OK(hipOccupancyMaxPotentialBlockSize(&gs, &bs, grid_sync, 0, 0));
  EXPECT(gs >= 304 && bs >= 64);

  std::vector<float> h(512);
  for (int i = 0; i < 512; i++) h[i] = i;
  Dev<float> d(h);
  fat<<<1, 512>>>(d);
  EXPECT(d.get()[0] == 511);
  fat<<<1, 1024>>>(d);
  EXPECT(hipGetLastError() != hipSuccess);
  EXPECT(hipGetLastError() == hipSuccess);

  use_managed<<<1, 1>>>(3);
  OK(hipDeviceSynchronize());
  EXPECT(managed_value == 8);
  int* dp;
  OK(hipGetSymbolAddress((void**)&dp, HIP_SYMBOL(dev_array)));
  int back = 0;
  OK(hipMemcpy(&back, dp, 4, hipMemcpyDeviceToHost));
  EXPECT(back == 8);

  Dev<int> a(64), bad(1);
  int *ap = a, *bp = bad;
  void* args[] = {&ap, &bp};
  OK(hipLaunchCooperativeKernel((void*)grid_sync, dim3(64), dim3(128), args, 0, 0));
  OK(hipDeviceSynchronize());
  EXPECT(bad.get()[0] == 0);
  EXPECT(hipLaunchCooperativeKernel((void*)grid_sync, dim3(100000), dim3(128), args, 0, 0) == hipErrorCooperativeLaunchTooLarge);

  std::vector<int> src(20 * 10), dst(20 * 10, 0);
  for (int i = 0; i < 200; i++) src[i] = i;
  int* pit;
  size_t pitch;
  OK(hipMallocPitch((void**)&pit, &pitch, 40, 10));
  OK(hipMemcpy2D(pit, pitch, src.data(), 80, 40, 10, hipMemcpyHostToDevice));
  OK(hipMemcpy2D(dst.data(), 80, pit, pitch, 40, 10, hipMemcpyDeviceToHost));
  EXPECT(dst[9 * 20 + 9] == 189 && dst[9 * 20 + 10] == 0);
  hipPointerAttribute_t at;
  OK(hipPointerGetAttributes(&at, pit));
  EXPECT(at.type == hipMemoryTypeDevice);
  OK(hipMemsetD32((hipDeviceptr_t)pit, 42, 10));
  OK(hipMemcpy(dst.data(), pit, 40, hipMemcpyDeviceToHost));
  EXPECT(dst[9] == 42);
  OK(hipFree(pit));

  if (FILE* f = fopen("module.hsaco", "rb")) {  // hipModule API
    fclose(f);
    hipModule_t m;
    hipFunction_t fn;
    OK(hipModuleLoad(&m, "module.hsaco"));
    OK(hipModuleGetFunction(&fn, m, "scale"));
    Dev<float> v(h);
    float* vp = v;
    float k = 3;
    int cnt = 512;
    void* margs[] = {&vp, &k, &cnt};
    OK(hipModuleLaunchKernel(fn, 2, 1, 1, 256, 1, 1, 0, 0, margs, nullptr));
    EXPECT(v.get()[100] == 300);
    struct {
      float* p;
      float k;
      int n;
    } packed = {vp, 2, 512};
    size_t sz = sizeof packed;
    void* extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &packed, HIP_LAUNCH_PARAM_BUFFER_SIZE, &sz, HIP_LAUNCH_PARAM_END};
    OK(hipModuleLaunchKernel(fn, 2, 1, 1, 256, 1, 1, 0, 0, nullptr, extra));
    EXPECT(v.get()[100] == 600);
    OK(hipModuleUnload(m));
  } else expect(false, "module.hsaco exists");
  return verdict();
}
