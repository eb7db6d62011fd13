// Vector addition with a reduction in LDS, and a grid far larger than the device holds at once.
#include "check.h"

__global__ __launch_bounds__(256) void vadd(const float* a, const float* b, float* c, float* sums, int n) {
  __shared__ float red[256];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = 0.f;
  if (i < n) {
    v = a[i] + b[i];
    c[i] = v;
  }
  red[threadIdx.x] = v;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (threadIdx.x < s) red[threadIdx.x] += red[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = red[0];
}

__global__ void count_blocks(unsigned* n, unsigned* seen) {
  if (threadIdx.x == 0) {
    atomicAdd(n, 1u);
    seen[blockIdx.x] = 1;
  }
}

int main() {
  const int n = 1000;
  std::vector<float> a(n), b(n);
  for (int i = 0; i < n; i++) {
    a[i] = i * 0.5f;
    b[i] = i * 0.25f + 1;
  }
  Dev<float> A(a), B(b), C(n), S(4);
  vadd<<<4, 256>>>(A, B, C, S, n);
  OK(hipDeviceSynchronize());
  auto c = C.get(), s = S.get();
  for (int i = 0; i < n; i++)
    if (c[i] != a[i] + b[i]) {
      EXPECT(!"c[i] == a[i] + b[i]");
      break;
    }
  for (int k = 0; k < 4; k++) {
    double t = 0;
    for (int i = k * 256; i < n && i < k * 256 + 256; i++) t += c[i];
    EXPECT(std::fabs(s[k] - t) < 1e-2 * t);
  }
  const unsigned big = 20000;
  Dev<unsigned> N(1), seen(big);
  count_blocks<<<big, 256>>>(N, seen);
  EXPECT(N.get()[0] == big);
  for (unsigned x : seen.get())
    if (!x) {
      EXPECT(!"every block ran");
      break;
    }
  return verdict();
}
