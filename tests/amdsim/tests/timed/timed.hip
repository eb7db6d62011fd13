// Microbenchmarks for the timing mode: simulated against published figures.
//   timed [NAME...]   all, or those whose names contain one of the words
// Of each figure it says what it proves:
//   set    a constant of the model is this figure or was chosen from it: no test of the model
//   tuned  several constants were chosen by hand with these in view, and not all can be met
//   seen   no constant was taken from it, but it was known and its result seen while the
//          others were chosen: weak evidence. There is no blind check.
#include <string>
#include "../check.h"

typedef float f4 __attribute__((ext_vector_type(4)));
typedef float f16v __attribute__((ext_vector_type(16)));
typedef short s4 __attribute__((ext_vector_type(4)));
typedef unsigned u4 __attribute__((ext_vector_type(4)));

constexpr double kGhz = 2.1;
constexpr int kCus = 304;

static void row(const char* what, double simulated, const char* unit, const char* published, const char* kind, const char* source) {
  printf("%-58s %9.4g %-7s %-22s %-6s %s\n", what, simulated, unit, published, kind, source);
  fflush(stdout);
}
static bool within(double x, double lo, double hi, const char* what) {
  bool ok = x >= lo && x <= hi;
  if (!ok) printf("  %s: %g is not in %g..%g\n", what, x, lo, hi);
  expect(ok, what);
  return ok;
}

template <class F>
static double time_us(F launch, double overhead = 1.6) {  // without the launch overhead
  hipEvent_t a, b;
  OK(hipEventCreate(&a));
  OK(hipEventCreate(&b));
  OK(hipEventRecord(a));
  launch();
  OK(hipEventRecord(b));
  OK(hipEventSynchronize(b));
  OK(hipGetLastError());
  float ms = 0;
  OK(hipEventElapsedTime(&ms, a, b));
  return ms * 1e3 - overhead;
}

__device__ inline int poll(const int* p) { return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
__device__ inline void post(int* p, int v) { __hip_atomic_store(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
__device__ inline int add(int* p, int v) { return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
__device__ inline void release_device() {
  asm volatile("s_waitcnt vmcnt(0) lgkmcnt(0)\n\tbuffer_wbl2 sc1\n\ts_waitcnt vmcnt(0)" ::: "memory");
}
__device__ inline void acquire_device() { asm volatile("buffer_inv sc1" ::: "memory"); }
__device__ inline long long ticks() { return __builtin_amdgcn_s_memrealtime(); }
__device__ inline long long cycles() {
  long long t;
  asm volatile("s_memtime %0\n\ts_waitcnt lgkmcnt(0)" : "=s"(t)::"memory");
  return t;
}

// ---------------------------------------------------------------- latency
__global__ void chase(const unsigned* p, int warm, int n, long long* out) {
  if (threadIdx.x) return;
  unsigned i;  // in a vector register, so that the loads are vector loads
  asm volatile("v_mov_b32 %0, 0" : "=v"(i));
  for (int k = 0; k < warm; k++) i = p[i];
  asm volatile("v_mov_b32 %0, 0" : "+v"(i));
  long long t0 = cycles();
  for (int k = 0; k < n; k++) i = p[i];
  asm volatile("s_waitcnt vmcnt(0)" ::"v"(i));
  out[0] = cycles() - t0;
  out[1] = i;
}
static double chase_cycles(size_t bytes, size_t stride, int warm, int n, const unsigned* far = nullptr) {
  size_t words = bytes / 4, step = stride / 4, count = bytes / stride;
  std::vector<unsigned> h(words, 0);
  unsigned at = 0;
  for (size_t k = 1; k <= count; k++) {  // an odd multiple visits all
    unsigned next = (unsigned)((k * 97 % count) * step);
    h[at] = next;
    at = next;
  }
  Dev<unsigned> d(h);
  Dev<long long> o(2);
  chase<<<1, 64>>>(d, warm, n, o);
  OK(hipDeviceSynchronize());
  return (double)o.get()[0] / n;
}
static void latency() {
  row("HBM", chase_cycles(64 << 20, 4096 + 128, 0, 2048), "cycles", "500-900", "set", "pyhip (MI308X), public");
  row("L1 hit, pointer chase", chase_cycles(8 << 10, 128, 64, 256), "cycles", "120-144", "set", "public model file (excerpt)");
  row("L2 hit", chase_cycles(1 << 20, 128, 8192, 1024), "cycles", "254 (120 ns)", "set", "public model file (excerpt)");
  row("MALL hit (L2 misses)", chase_cycles(64 << 20, 512, 131072, 2048), "cycles", "460-630 (220-300 ns)", "set",
      "quoted, source not read");
}

// ---------------------------------------------------------------- streaming
template <int U>
__global__ void __launch_bounds__(256) stream(const u4* p, size_t n, unsigned* out) {  // n: 16-byte words
  const size_t step = (size_t)gridDim.x * 256 * U;
  u4 s = 0;
  for (size_t i = (size_t)blockIdx.x * 256 * U + threadIdx.x; i + 256 * (U - 1) < n; i += step) {
    u4 v[U];
#pragma unroll
    for (int k = 0; k < U; k++) v[k] = p[i + k * 256];
#pragma unroll
    for (int k = 0; k < U; k++) s ^= v[k];
  }
  if (s.x == 0x12345) out[0] = s.y + s.z + s.w;
}
static double stream_tbs(const u4* p, size_t bytes, int groups, int u, unsigned* o) {
  size_t n = bytes / 16;
  double us = time_us([&] {
    switch (u) {
      case 1: stream<1><<<groups, 256>>>(p, n, o); break;
      case 2: stream<2><<<groups, 256>>>(p, n, o); break;
      case 4: stream<4><<<groups, 256>>>(p, n, o); break;
      case 8: stream<8><<<groups, 256>>>(p, n, o); break;
      default: stream<16><<<groups, 256>>>(p, n, o); break;
    }
  });
  return bytes / us * 1e-6;
}
static void streaming() {
  const size_t gb = 1ull << 30, part = 192ull << 20;
  Dev<unsigned> o(16);
  u4* p;
  OK(hipMalloc((void**)&p, gb));
  printf("reading HBM, TB/s, by waves per CU (down) and 16-byte loads in flight per lane (across)\n%8s", "");
  const int us[] = {1, 2, 4, 8, 16};
  for (int u : us) printf("%8d", u);
  printf("\n");
  int at = 0;
  for (int w : {4, 8, 16, 32}) {
    printf("%8d", w);
    for (int u : us) {
      printf("%8.2f", stream_tbs(p + (at++ % 5) * (part / 16), part, kCus * w / 4, u, o));
      fflush(stdout);
    }
    printf("\n");
  }
  double best = stream_tbs(p, gb, kCus * 4, 8, o);
  row("read 1 GB, 16 waves per CU, 8 loads each", best, "TB/s", "4.0-4.3", "set", "quoted, source not read");
  within(best, 3.7, 4.4, "HBM streaming");
  stream_tbs(p, 96 << 20, kCus * 4, 8, o);
  row("read 96 MB again (from MALL)", stream_tbs(p, 96 << 20, kCus * 4, 8, o), "TB/s", "11.9", "set", "quoted, source not read");
  OK(hipFree(p));
}

// Every workgroup reads the same 1 MB, several times.
__global__ void __launch_bounds__(256) shared_read(const u4* p, int words, int reps, unsigned* out) {
  u4 s = 0;
  for (int r = 0; r < reps; r++) {
    int i = (threadIdx.x + blockIdx.x / 8 * 4096) % words;
    for (int k = 0; k < words; k += 2048) {
      u4 v[8];
#pragma unroll
      for (int j = 0; j < 8; j++) v[j] = p[(i + k + 256 * j) & (words - 1)];
#pragma unroll
      for (int j = 0; j < 8; j++) s ^= v[j];
    }
  }
  if (s.x == 0x12345) out[0] = s.y + s.z + s.w;
}
static void l2_read() {
  Dev<u4> d(65536);
  Dev<unsigned> o(16);
  auto go = [&](int reps) { return time_us([&] { shared_read<<<kCus * 4, 256>>>(d, 65536, reps, o); }); };
  double us = go(3) - go(1);
  double tb = 2.0 * 65536 * 16 * kCus * 4 / us * 1e-6;
  row("L2-resident read, all CUs", tb, "TB/s", "<= 34.4 peak", "set", "CDNA3 white paper: 2 KB/clk/XCD");
}

// ---------------------------------------------------------------- LDS, ALU, MFMA
__global__ void __launch_bounds__(256) lds_read(float* out, int n) {
  __shared__ f4 s[1024];
  for (int i = threadIdx.x; i < 1024; i += 256) s[i] = f4(i);
  __syncthreads();
  unsigned a = threadIdx.x * 16;
  for (int i = 0; i < n; i++)
    asm volatile(
        "ds_read_b128 v[40:43], %0\n\tds_read_b128 v[44:47], %0 offset:4096\n\tds_read_b128 v[48:51], %0 offset:8192\n\t"
        "ds_read_b128 v[52:55], %0 offset:12288\n\ts_waitcnt lgkmcnt(0)" ::"v"(a)
        : "v40", "v41", "v42", "v43", "v44", "v45", "v46", "v47", "v48", "v49", "v50", "v51", "v52", "v53", "v54", "v55", "memory");
  if (n == 12345) out[0] = s[threadIdx.x].x;
}
__global__ void __launch_bounds__(256) fma_loop(float* out, int n) {
  float a = threadIdx.x, b = 1, c = 2, d = 3;
  for (int i = 0; i < n; i++)
#pragma unroll
    for (int k = 0; k < 8; k++)
      asm volatile("v_fma_f32 %0, %1, %2, %0\n\tv_fma_f32 %1, %2, %3, %1\n\tv_fma_f32 %2, %3, %0, %2\n\tv_fma_f32 %3, %0, %1, %3"
                   : "+v"(a), "+v"(b), "+v"(c), "+v"(d));
  out[blockIdx.x * 256 + threadIdx.x] = a + b + c + d;
}
__global__ void __launch_bounds__(256) mfma32(float* out, int n) {
  s4 a = {16256, 16256, 16256, 16256};
  f16v c[2] = {0, 0};
  for (int i = 0; i < n; i++)
#pragma unroll
    for (int k = 0; k < 8; k++) c[k & 1] = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, a, c[k & 1], 0, 0, 0);
  out[blockIdx.x * 256 + threadIdx.x] = c[0][0] + c[1][1];
}
__global__ void __launch_bounds__(256) mfma16(float* out, int n) {
  s4 a = {16256, 16256, 16256, 16256};
  f4 c[4] = {0, 0, 0, 0};
  for (int i = 0; i < n; i++)
#pragma unroll
    for (int k = 0; k < 16; k++) c[k & 3] = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, a, c[k & 3], 0, 0, 0);
  out[blockIdx.x * 256 + threadIdx.x] = c[0][0] + c[1][1] + c[2][0] + c[3][0];
}
static void compute() {
  Dev<float> o(kCus * 4 * 256);
  auto slope = [&](auto k, int groups, int n1, int n2) {
    double a = time_us([&] { k<<<groups, 256>>>(o.p, n1); }), b = time_us([&] { k<<<groups, 256>>>(o.p, n2); });
    return (b - a) / (n2 - n1);
  };
  row("LDS ds_read_b128, 8 waves per CU", 4.0 * 64 * 16 * kCus * 8 / slope(lds_read, kCus * 2, 8, 40) * 1e-6, "TB/s", "81.7 peak", "set",
      "128 B/clk/CU");
  double f = 32.0 * 64 * 2 * kCus * 8 / slope(fma_loop, kCus * 2, 2, 10) * 1e-6;
  row("v_fma_f32", f, "TFLOPS", "81.7 peak", "set", "AMD: 163.4 counts packed FP32");
  double m32 = 8.0 * 32 * 32 * 8 * 2 * kCus * 4 / slope(mfma32, kCus, 1, 5) * 1e-6,
         m16 = 16.0 * 16 * 16 * 16 * 2 * kCus * 4 / slope(mfma16, kCus, 1, 5) * 1e-6;
  row("mfma 32x32x8 bf16, 4 waves per CU", m32, "TFLOPS", "1307 peak", "set", "AMD data sheet, LLVM passes");
  row("mfma 16x16x16 bf16, 4 waves per CU", m16, "TFLOPS", "1307 peak", "set", "AMD data sheet, LLVM passes");
  within(m32, 1100, 1320, "MFMA 32x32x8");
}

// ---------------------------------------------------------------- fences, flags
__global__ void fences(int n, long long* out) {
  if (threadIdx.x) return;
  long long t0 = ticks();
  for (int i = 0; i < n; i++) release_device();
  long long t1 = ticks();
  for (int i = 0; i < n; i++) acquire_device();
  asm volatile("s_waitcnt vmcnt(0)");
  long long t2 = ticks();
  out[0] = t1 - t0;
  out[1] = t2 - t1;
}
__global__ void where(unsigned* xcc) {
  if (threadIdx.x == 0) xcc[blockIdx.x] = __builtin_amdgcn_s_getreg((3 << 11) | 20) & 15;
}
// Two workgroups take turns on one counter; time per hand-over.
template <bool kFence, int kSleep>
__global__ void pingpong(int* flag, int a, int b, int n, long long* out) {
  const int me = blockIdx.x;
  if (threadIdx.x || (me != a && me != b)) return;
  const int mine = me == b;
  long long t0 = ticks();
  for (int i = 0; i < n; i++) {
    while ((poll(flag) & 1) != mine)
      if (kSleep) __builtin_amdgcn_s_sleep(kSleep);
    if (kFence) release_device();
    else asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
    add(flag, 1);
  }
  if (me == a) out[0] = ticks() - t0;
}
// A payload and a flag, acknowledged; time at the receiver from starting to wait.
__global__ void flag_payload(int* flag, int* payload, int a, int b, int n, long long* out) {
  if (threadIdx.x) return;
  const int me = blockIdx.x;
  if (me == a) {
    for (int i = 1; i <= n; i++) {
      payload[0] = i;
      release_device();
      post(flag, i);
      while (poll(flag + 32) != i) __builtin_amdgcn_s_sleep(1);
    }
  } else if (me == b) {
    long long t = 0;
    for (int i = 1; i <= n; i++) {
      long long t0 = ticks();
      while (poll(flag) != i) {}
      acquire_device();
      if (payload[0] != i) out[1]++;
      t += ticks() - t0;
      post(flag + 32, i);
    }
    out[0] = t;
  }
}
static void flags() {
  Dev<long long> o(2);
  const int n = 200;
  fences<<<1, 64>>>(n, o);
  OK(hipDeviceSynchronize());
  auto f = o.get();
  row("buffer_wbl2 sc1 and wait, clean L2", f[0] * 10.0 / n, "ns", "181", "set", "etx-megakernel");
  row("buffer_inv sc1", f[1] * 10.0 / n, "ns", "120", "set", "etx-megakernel");
  Dev<unsigned> x(kCus);
  where<<<kCus, 64>>>(x);
  OK(hipDeviceSynchronize());
  auto xcc = x.get();
  int same = 1, other = 1;
  while (xcc[same] != xcc[0]) same++;
  while (xcc[other] == xcc[0]) other++;
  Dev<int> flag(64);
  auto play = [&](auto kernel, int b) {
    OK(hipMemset(flag.p, 0, 256));
    kernel<<<kCus, 64>>>(flag.p, 0, b, n, o.p);
    OK(hipDeviceSynchronize());
    return o.get()[0] * 10.0 / n / 2;
  };
  row("counter hand-over, same XCD, no fence, s_sleep 1", play(pingpong<false, 1>, same), "ns", "642-873", "tuned",
      "etx-megakernel (other polls)");
  row("counter hand-over, same XCD, release, s_sleep 8", play(pingpong<true, 8>, same), "ns", "873", "tuned",
      "etx-megakernel (backoff not certain)");
  row("counter hand-over, across XCDs, release, s_sleep 8", play(pingpong<true, 8>, other), "ns", "742-892", "tuned",
      "etx-megakernel (backoff not certain)");
  Dev<int> payload(64);
  OK(hipMemset(o.p, 0, 16));
  OK(hipMemset(flag.p, 0, 256));
  flag_payload<<<kCus, 64>>>(flag, payload, 0, kCus - 1, n, o);
  OK(hipDeviceSynchronize());
  row("flag with payload, acknowledged, wait at the receiver", o.get()[0] * 10.0 / n, "ns", "916", "tuned", "etx-megakernel");
  EXPECT(o.get()[1] == 0);
}

// ---------------------------------------------------------------- barriers
template <int kSleep>
__global__ void counter_barrier(int* counters, int phases, int groups, long long* out) {
  if (threadIdx.x) return;
  long long t0 = ticks();
  for (int p = 0; p < phases; p++) {
    release_device();
    add(counters + p, 1);
    while (poll(counters + p) < groups) __builtin_amdgcn_s_sleep(kSleep);
    acquire_device();
  }
  if (blockIdx.x == 0) out[0] = ticks() - t0;
}
// Arrivals are gathered per XCD; the last one of an XCD writes back and arrives
// for all; one poller per XCD passes the news on.
__global__ void two_level_barrier(int* xcd_count, int* all, int* xcd_flag, int phases, int groups, long long* out) {
  if (threadIdx.x) return;
  const int x = __builtin_amdgcn_s_getreg((3 << 11) | 20) & 15, mine = groups / 8;
  long long t0 = ticks();
  for (int p = 1; p <= phases; p++) {
    asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
    const int k = add(xcd_count + 64 * x, 1);
    if (k + 1 == p * mine) {
      release_device();
      add(all, 1);
      while (poll(all) < p * 8) __builtin_amdgcn_s_sleep(1);
      post(xcd_flag + 64 * x, p);
    } else {
      while (poll(xcd_flag + 64 * x) < p) __builtin_amdgcn_s_sleep(1);
    }
    acquire_device();
  }
  if (blockIdx.x == 0) out[0] = ticks() - t0;
}
static void barriers() {
  const int phases = 20;
  Dev<int> c(4096);
  Dev<long long> o(2);
  auto counter = [&](auto kernel, int groups) {
    OK(hipMemset(c.p, 0, 16384));
    kernel<<<groups, 64>>>(c.p, phases, groups, o.p);
    OK(hipDeviceSynchronize());
    return o.get()[0] * 0.01 / phases;
  };
  double b = counter(counter_barrier<1>, 304);
  row("one-counter barrier, 304 workgroups, s_sleep 1", b, "us", "8.6 (Kog: 7.6)", "seen", "etx-megakernel");
  row("one-counter barrier, 304 workgroups, s_sleep 8", counter(counter_barrier<8>, 304), "us", "8.6", "seen",
      "etx-megakernel (backoff not certain)");
  row("one-counter barrier, 608 workgroups, s_sleep 1", counter(counter_barrier<1>, 608), "us", "17.3", "seen", "etx-megakernel");
  OK(hipMemset(c.p, 0, 16384));
  two_level_barrier<<<304, 64>>>(c, c.p + 1024, c.p + 2048, phases, 304, o);
  OK(hipDeviceSynchronize());
  row("two-level barrier, 304 workgroups", o.get()[0] * 0.01 / phases, "us", "", "", "none known");
}

// ---------------------------------------------------------------- queues
__global__ void ticket_pops(int* head, int* tail, int* slots, int* done, int n, long long* out) {
  if (threadIdx.x) return;
  long long t0 = ticks();
  for (;;) {
    if (poll(head) >= poll(tail)) break;
    const int t = add(head, 1);
    if (t >= n) break;
    while (poll(slots + t) < 0) {}
    add(done, 1);
  }
  if (blockIdx.x == 0) out[0] = ticks() - t0;
}
__global__ void cas_pops(int* head, int* tail, int* slots, int* done, long long* out) {
  if (threadIdx.x) return;
  long long t0 = ticks();
  for (;;) {
    int h = add(head, 0), t = add(tail, 0);
    if (h >= t) break;
    if (atomicCAS(head, h, h + 1) != h) continue;
    while (atomicExch(slots + h, -1) < 0) {}
    add(done, 1);
  }
  if (blockIdx.x == 0) out[0] = ticks() - t0;
}
static void queues() {
  Dev<long long> o(2);
  for (int k = 0; k < 5; k++) {
    const int poppers[] = {1, 64, 256, 512, 512}, n = poppers[k], cap = k == 4 ? 1024 : n == 1 ? 256 : 8192;
    std::vector<int> h(cap), t(32, cap);
    for (int i = 0; i < cap; i++) h[i] = i;
    Dev<int> slots(h), tail(t), head(32), done(32);
    if (k == 4) cas_pops<<<n, 64>>>(head, tail, slots, done, o);
    else ticket_pops<<<n, 64>>>(head, tail, slots, done, cap, o);
    OK(hipDeviceSynchronize());
    EXPECT(done.get()[0] == cap);
    const double us = o.get()[0] * 0.01;
    const char* names[] = {"ticket pop, alone", "ticket pop, 64 poppers", "ticket pop, 256 poppers", "ticket pops, 512 poppers",
                           "CAS pops, 512 poppers"};
    const char* published[] = {"870", "1340", "4640", "76.6", "0.41"};
    const char* kind[] = {"set", "seen", "seen", "set", "seen"};
    if (k < 3) row(names[k], us * 1e3 * n / cap, "ns", published[k], kind[k], "etx-megakernel, per popper");
    else row(names[k], cap / us, "M/s", published[k], kind[k], "etx-megakernel");
  }
}

int main(int argc, char** argv) {
  struct {
    const char* name;
    void (*run)();
  } all[] = {{"latency", latency}, {"streaming", streaming}, {"l2", l2_read},   {"compute", compute},
             {"flags", flags},     {"barriers", barriers},   {"queues", queues}};
  hipDeviceProp_t p;
  OK(hipGetDeviceProperties(&p, 0));
  if (p.multiProcessorCount != kCus) {
    printf("these figures are for 304 CUs\n");
    return 1;
  }
  printf("%-58s %9s %-7s %-22s %-6s %s\n", "", "simulated", "", "published", "", "source");
  for (auto& t : all) {
    bool wanted = argc < 2;
    for (int i = 1; i < argc; i++) wanted |= strstr(t.name, argv[i]) != nullptr;
    if (wanted) t.run();
  }
  return verdict();
}
