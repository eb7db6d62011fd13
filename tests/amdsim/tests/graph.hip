// Stream capture, replay, parameter update, explicit graphs.
#include "check.h"
__global__ void axpy(float* y, const float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
__global__ void bump(unsigned* c) {
  if (threadIdx.x == 0) atomicAdd(c, 1u);
}

int main() {
  const int n = 1000;
  std::vector<float> x(n), host(n, -1.f);
  for (int i = 0; i < n; i++) x[i] = i;
  Dev<float> X(x), Y(n);
  Dev<unsigned> C(1);
  hipStream_t s;
  OK(hipStreamCreate(&s));
  hipGraph_t g;
  hipGraphExec_t ge;
  OK(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
  OK(hipMemsetAsync(Y.p, 0, n * 4, s));
  for (int k = 0; k < 3; k++) axpy<<<4, 256, 0, s>>>(Y, X, 0.5f, n);
  bump<<<5, 64, 0, s>>>(C);
  OK(hipMemcpyAsync(host.data(), Y.p, n * 4, hipMemcpyDeviceToHost, s));
  hipStreamCaptureStatus st;
  OK(hipStreamIsCapturing(s, &st));
  EXPECT(st == hipStreamCaptureStatusActive);
  OK(hipStreamEndCapture(s, &g));
  EXPECT(host[10] == -1.f);  // nothing ran yet
  EXPECT(C.get()[0] == 0);
  size_t nodes = 0;
  OK(hipGraphGetNodes(g, nullptr, &nodes));
  EXPECT(nodes == 6);
  OK(hipGraphInstantiate(&ge, g, nullptr, nullptr, 0));
  for (int r = 0; r < 10; r++) OK(hipGraphLaunch(ge, s));
  OK(hipStreamSynchronize(s));
  EXPECT(C.get()[0] == 50);
  for (int i = 0; i < n; i++)
    if (host[i] != 1.5f * i) {
      EXPECT(!"replayed result");
      break;
    }
  OK(hipGraphExecDestroy(ge));
  OK(hipGraphDestroy(g));

  hipGraph_t g2;
  OK(hipGraphCreate(&g2, 0));
  float a = 2.f;
  float *yp = Y, *xp = X;
  int nn = n;
  void* args[] = {&yp, &xp, &a, &nn};
  hipKernelNodeParams kp{};
  kp.func = (void*)axpy;
  kp.gridDim = dim3(4);
  kp.blockDim = dim3(256);
  kp.kernelParams = args;
  hipMemsetParams mp{};
  mp.dst = Y;
  mp.elementSize = 4;
  mp.width = n;
  mp.height = 1;
  mp.value = 0;
  hipGraphNode_t m, k;
  OK(hipGraphAddMemsetNode(&m, g2, nullptr, 0, &mp));
  OK(hipGraphAddKernelNode(&k, g2, &m, 1, &kp));
  OK(hipGraphInstantiate(&ge, g2, nullptr, nullptr, 0));
  OK(hipGraphLaunch(ge, s));
  OK(hipStreamSynchronize(s));
  EXPECT(Y.get()[7] == 14.f);
  a = 3.f;
  OK(hipGraphExecKernelNodeSetParams(ge, k, &kp));
  OK(hipGraphLaunch(ge, s));
  OK(hipStreamSynchronize(s));
  EXPECT(Y.get()[7] == 21.f);
  return verdict();
}
