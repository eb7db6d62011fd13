// Speed of the simulation: a bf16 matrix-vector product, an ALU loop, an MFMA loop.
#include "check.h"
#include <chrono>
typedef float f4 __attribute__((ext_vector_type(4)));
typedef short s4 __attribute__((ext_vector_type(4)));
__global__ __launch_bounds__(256) void gemv(const uint4* __restrict__ W, const uint4* __restrict__ x, float* y, int K8, int rows) {
  int lane = threadIdx.x & 63;
  for (int row = blockIdx.x * 4 + threadIdx.x / 64; row < rows; row += gridDim.x * 4) {
    float s = 0;
    for (int k = lane; k < K8; k += 64) {
      uint4 w = W[(long)row * K8 + k], v = x[k];
      const unsigned *pw = (const unsigned*)&w, *pv = (const unsigned*)&v;
      for (int i = 0; i < 4; i++) {
        s = fmaf(__uint_as_float(pw[i] << 16), __uint_as_float(pv[i] << 16), s);
        s = fmaf(__uint_as_float(pw[i] & 0xffff0000), __uint_as_float(pv[i] & 0xffff0000), s);
      }
    }
    for (int m = 32; m; m >>= 1) s += __shfl_xor(s, m);
    if (lane == 0) y[row] = s;
  }
}
__global__ __launch_bounds__(256) void alu(float* o, int n) {
  float a = threadIdx.x, b = blockIdx.x + 1.f, c = 0.5f, d = 0.25f;
  for (int i = 0; i < n; i++) {
    a = fmaf(a, b, c);
    c = c * d + a;
    d = d - 0.001f * a;
    b = __builtin_amdgcn_rcpf(b + 1.f);
    unsigned u = __float_as_uint(a);
    u = (u << 3) ^ (u >> 5) + i;
    a = (float)(u & 1023);
  }
  o[blockIdx.x * 256 + threadIdx.x] = a + b + c + d;
}
__global__ __launch_bounds__(256) void mfma(float* o, int n) {
  s4 a = {16256, 16256, 16256, 16256}, b = a;
  f4 c = {0, 0, 0, 0}, d = c;
  for (int i = 0; i < n; i++) {
    c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0);
    d = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, d, 0, 0, 0);
  }
  o[blockIdx.x * 256 + threadIdx.x] = c[0] + d[1];
}
int main() {
  const int K = 4096, rows = 2048;
  std::vector<unsigned short> x(K), w((size_t)K * rows);
  for (int i = 0; i < K; i++) x[i] = 0x3f80 + i % 7;
  for (int r = 0; r < rows; r++) memcpy(&w[(size_t)r * K], x.data(), K * 2);
  Dev<unsigned short> X(x), W(w);
  Dev<float> Y(rows), O(96 * 256);
  auto t = [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); };
  double t0 = t();
  gemv<<<304, 256>>>((uint4*)W.p, (uint4*)X.p, Y, K / 8, rows);
  OK(hipDeviceSynchronize());
  double t1 = t();
  alu<<<96, 256>>>(O, 300);
  OK(hipDeviceSynchronize());
  double t2 = t();
  mfma<<<96, 256>>>(O, 100);
  OK(hipDeviceSynchronize());
  double t3 = t();
  auto y = Y.get();
  EXPECT(y[0] == y[rows - 1] && y[0] > 4096);
  EXPECT(O.get()[0] == 2 * 16 * 100.f);
  printf("  gemv %.2f s, alu %.2f s, mfma %.2f s\n", t1 - t0, t2 - t1, t3 - t2);
  return verdict();
}
