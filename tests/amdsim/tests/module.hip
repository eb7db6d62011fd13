#include <hip/hip_runtime.h>
extern "C" __global__ void scale(float* p, float k, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] *= k;
}
