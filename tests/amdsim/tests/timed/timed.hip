// What the model of time has constants for, measured: on the simulated MI300X, or on a chip (tests/bench/on_amd.sh).
//   timed [NAME...]   all sections, or those whose names contain one of the words; `host` by its name only
// Prints a line for each figure: "figure NAME VALUE UNIT  what it is". The file `published` beside this one holds what
// others measured, by the same names; tests/bench/refit.py finds the constants that give measured figures.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include "../check.h"

typedef float f4 __attribute__((ext_vector_type(4)));
typedef float f16v __attribute__((ext_vector_type(16)));
typedef short s4 __attribute__((ext_vector_type(4)));
typedef unsigned u4 __attribute__((ext_vector_type(4)));

static int g_cus = 304;

static void figure(const std::string& name, double value, const char* unit, const char* what) {
  printf("figure %-24s %9.4g %-7s %s\n", name.c_str(), value, unit, what);
  fflush(stdout);
}

__global__ void empty_kernel() {}
static double g_overhead_us = 0;  // of an empty kernel between two events
template <class F>
static double time_us(F launch) {  // without what an empty kernel takes
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
  return ms * 1e3 - g_overhead_us;
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
static double chase_cycles(size_t bytes, size_t stride, int warm, int n) {
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
// Each load alone; consecutive ones are far apart.
__global__ void probe(const unsigned* p, size_t step, unsigned n, unsigned* out) {
  if (threadIdx.x) return;
  long long clock = 1 << 30;  // what the two readings take
  for (int k = 0; k < 8; k++) {
    long long t0 = cycles();
    clock = std::min(clock, cycles() - t0);
  }
  for (unsigned k = 0; k < n; k++) {
    unsigned v;
    const unsigned* at = p + (size_t)(k * 97 % n) * step;
    long long t0 = cycles();
    asm volatile("global_load_dword %0, %1, off\n\ts_waitcnt vmcnt(0)" : "=&v"(v) : "v"(at) : "memory");
    out[k] = (unsigned)(cycles() - t0 - clock) + (v & 0);
  }
}
static double percentile(std::vector<unsigned> v, int percent) {
  std::sort(v.begin(), v.end());
  return v[(v.size() - 1) * percent / 100];
}
static void latency() {
  figure("latency.l1", chase_cycles(8 << 10, 128, 64, 256), "cycles", "pointer chase, hits in L1");
  figure("latency.l2", chase_cycles(1 << 20, 128, 8192, 1024), "cycles", "pointer chase, hits in L2");
  figure("latency.mall", chase_cycles(64 << 20, 512, 131072, 2048), "cycles", "pointer chase in 64 MB, which the Infinity Cache holds");
  // 2 GB, of which nothing has been written or read: the Infinity Cache has none of it.
  const unsigned n = 2048;
  const size_t bytes = 2ull << 30;
  unsigned* p;
  OK(hipMalloc((void**)&p, bytes));
  Dev<unsigned> o(n);
  probe<<<1, 64>>>(p, (bytes / n + 4096 + 128) / 4 / 32 * 31, n, o);
  const std::vector<unsigned> all = o.get();
  figure("latency.hbm", percentile(all, 50), "cycles", "one load in 2 GB, median");
  figure("latency.hbm_near", percentile(all, 10), "cycles", "10th percentile");
  figure("latency.hbm_far", percentile(all, 90), "cycles", "90th percentile");
  OK(hipFree(p));
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
// By cache policy, eight loads of 16 bytes in flight: each wave has a wave's part of each run of `span` words. `copies`: how
// many workgroups in a row of those on one XCD read the same words; 0: all of them on all XCDs do.
#define STREAM_POLICY(name, policy)                                                                                                     \
  __global__ void __launch_bounds__(256) name(const u4* p, size_t n, int copies, unsigned* out) {                                       \
    const int x = blockIdx.x % 8, i = blockIdx.x / 8, groups = gridDim.x / 8;                                                           \
    const size_t part = copies == 1 ? n / gridDim.x : copies ? n / 8 : n;                                                               \
    const u4* at = p + (copies == 1 ? blockIdx.x * part : copies ? x * part : 0) + threadIdx.x;                                         \
    u4 s = 0;                                                                                                                           \
    for (size_t k = 0; k + 2048 <= part; k += 2048) {                                                                                   \
      u4 v[8];                                                                                                                          \
      const u4* a = at + k;                                                                                                             \
      asm volatile("global_load_dwordx4 %0, %8, off" policy "\n\tglobal_load_dwordx4 %1, %9, off" policy                                \
                   "\n\tglobal_load_dwordx4 %2, %10, off" policy "\n\tglobal_load_dwordx4 %3, %11, off" policy                          \
                   "\n\tglobal_load_dwordx4 %4, %12, off" policy "\n\tglobal_load_dwordx4 %5, %13, off" policy                          \
                   "\n\tglobal_load_dwordx4 %6, %14, off" policy "\n\tglobal_load_dwordx4 %7, %15, off" policy "\n\ts_waitcnt vmcnt(0)" \
                   : "=&v"(v[0]), "=&v"(v[1]), "=&v"(v[2]), "=&v"(v[3]), "=&v"(v[4]), "=&v"(v[5]), "=&v"(v[6]), "=&v"(v[7])             \
                   : "v"(a), "v"(a + 256), "v"(a + 512), "v"(a + 768), "v"(a + 1024), "v"(a + 1280), "v"(a + 1536), "v"(a + 1792)       \
                   : "memory");                                                                                                         \
      for (int j = 0; j < 8; j++) s ^= v[j];                                                                                            \
    }                                                                                                                                   \
    if (s.x == 0x12345) out[0] = s.y + i + groups;                                                                                      \
  }
STREAM_POLICY(stream_plain, "")
STREAM_POLICY(stream_nt, " nt")
STREAM_POLICY(stream_sc1, " sc1")
STREAM_POLICY(stream_sc1_nt, " sc1 nt")
static const size_t kGb = 1ull << 30;
struct Gigabyte {
  u4* p;
  Gigabyte() { OK(hipMalloc((void**)&p, kGb)); }
  ~Gigabyte() { (void)hipFree(p); }
};
static void grid() {
  const size_t part = 192ull << 20;
  Gigabyte g;
  Dev<unsigned> o(16);
  printf("reading HBM, TB/s, by waves per CU (down) and 16-byte loads in flight per lane (across)\n%8s", "");
  const int us[] = {1, 2, 4, 8, 16};
  for (int u : us) printf("%8d", u);
  printf("\n");
  int at = 0;
  for (int w : {4, 16, 32}) {
    printf("%8d", w);
    for (int u : us) {
      printf("%8.2f", stream_tbs(g.p + (at++ % 5) * (part / 16), part, g_cus * w / 4, u, o));
      fflush(stdout);
    }
    printf("\n");
  }
}
static void read() {
  Gigabyte g;
  Dev<unsigned> o(16);
  figure("read.hbm", stream_tbs(g.p, kGb, g_cus * 4, 8, o), "TB/s", "1 GB, 16 waves per CU, 8 loads each");
  stream_tbs(g.p, 96 << 20, g_cus * 4, 8, o);
  figure("read.mall", stream_tbs(g.p, 96 << 20, g_cus * 4, 8, o), "TB/s", "96 MB again, from the Infinity Cache");
}
static void policies() {
  Gigabyte g;
  Dev<unsigned> o(16);
  struct {
    const char* name;
    void (*kernel)(const u4*, size_t, int, unsigned*);
  } all[] = {{"plain", stream_plain}, {"nt", stream_nt}, {"sc1", stream_sc1}, {"sc1_nt", stream_sc1_nt}};
  // By turns in one half and in the other, so that the Infinity Cache has none of what is read.
  const size_t own = 512ull << 20, shared = 8ull << 20;
  for (int n = 0; n < 4; n++) {
    double us = time_us([&] { all[n].kernel<<<g_cus, 256>>>(g.p + n % 2 * (own / 16), own / 16, 1, o); });
    figure(std::string("own.") + all[n].name, own / us * 1e-6, "TB/s", "each workgroup reads words of its own, by cache policy");
  }
  for (int n = 0; n < 4; n++) {
    double us = time_us([&] { all[n].kernel<<<g_cus, 256>>>(g.p + n * (shared * 2 / 16), shared / 16, g_cus / 8, o); });
    figure(std::string("chiplet.") + all[n].name, shared / 8.0 * g_cus / us * 1e-6, "TB/s",
           "all of a chiplet read the same 1 MB: far above read.hbm, or not shared");
  }
  for (int n = 0; n < 4; n++) {
    double us = time_us([&] { all[n].kernel<<<g_cus, 256>>>(g.p + (n * 2 + 8) * (shared * 2 / 16), shared / 16, 0, o); });
    figure(std::string("device.") + all[n].name, (double)shared * g_cus / us * 1e-6, "TB/s",
           "all workgroups of all chiplets read the same 8 MB");
  }
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
  auto go = [&](int reps) { return time_us([&] { shared_read<<<g_cus * 4, 256>>>(d, 65536, reps, o); }); };
  double us = go(3) - go(1);
  double tb = 2.0 * 65536 * 16 * g_cus * 4 / us * 1e-6;
  figure("read.l2", tb, "TB/s", "the same 1 MB again, from each L2");
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
  Dev<float> o(g_cus * 4 * 256);
  auto slope = [&](auto k, int groups, int n1, int n2) {
    k<<<groups, 256>>>(o.p, n1);  // its code is in the instruction caches then
    double a = time_us([&] { k<<<groups, 256>>>(o.p, n1); }), b = time_us([&] { k<<<groups, 256>>>(o.p, n2); });
    return (b - a) / (n2 - n1);
  };
  figure("lds", 4.0 * 64 * 16 * g_cus * 8 / slope(lds_read, g_cus * 2, 8, 40) * 1e-6, "TB/s", "ds_read_b128, 8 waves per CU");
  double f = 32.0 * 64 * 2 * g_cus * 8 / slope(fma_loop, g_cus * 2, 2, 10) * 1e-6;
  figure("fma", f, "TFLOPS", "v_fma_f32, 8 waves per CU");
  double m32 = 8.0 * 32 * 32 * 8 * 2 * g_cus * 4 / slope(mfma32, g_cus, 1, 5) * 1e-6,
         m16 = 16.0 * 16 * 16 * 16 * 2 * g_cus * 4 / slope(mfma16, g_cus, 1, 5) * 1e-6;
  figure("mfma.32", m32, "TFLOPS", "32x32x8 bf16, 4 waves per CU");
  figure("mfma.16", m16, "TFLOPS", "16x16x16 bf16, 4 waves per CU");
}

// ---------------------------------------------------------------- instruction cache
// A loop of KB kilobytes of code, by one wave.
template <int KB>
__global__ void code(int rounds, long long* out) {
  long long t0 = cycles();
  for (int i = 0; i < rounds; i++) asm volatile(".rept %0\n\tv_mov_b32 v40, v41\n\t.endr" ::"n"(KB * 256) : "v40", "v41");
  if (threadIdx.x == 0) out[0] = cycles() - t0;
}
static void instructions() {
  Dev<long long> o(2);
  auto per_instruction = [&](auto kernel, int kb) {
    long long t[2];
    for (int i = 0; i < 2; i++) {
      kernel<<<1, 64>>>(2 + 2 * i, o.p);
      OK(hipDeviceSynchronize());
      t[i] = o.get()[0];
    }
    return (t[1] - t[0]) / (2.0 * kb * 256);
  };
  figure("code.32k", per_instruction(code<32>, 32), "cycles", "an instruction of a loop of 32 KB, one wave");
  figure("code.96k", per_instruction(code<96>, 96), "cycles", "an instruction of a loop of 96 KB, one wave");
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
__global__ void clocks(long long* out) {
  const long long t0 = ticks(), c0 = cycles();
  while (ticks() - t0 < 20000) {}
  if (threadIdx.x == 0) out[0] = cycles() - c0, out[1] = ticks() - t0;
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
// Dependent atomics on lines far apart, by one lane: cycles of one.
__global__ void atomics(int* p, size_t step, int lines, int n, unsigned* out) {
  if (threadIdx.x || blockIdx.x) return;
  for (int k = 0; k < lines; k++) {
    int* at = p + k * step;
    add(at, 1);
    asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
    long long t0 = cycles();
    for (int i = 0, v = 1; i < n; i++) v = add(at, v & 1);
    asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
    out[k] = (unsigned)((cycles() - t0) / n);
  }
}
// Two workgroups take turns on a flag each, with all that an event does; those of the XCCs in `streams` read meanwhile.
__global__ void __launch_bounds__(256) event(int* flag, int a, int b, int n, unsigned streams, const u4* p, size_t words, unsigned* out) {
  const int me = blockIdx.x;
  if (me == a || me == b) {
    if (threadIdx.x) return;
    if (streams)  // they are under way
      for (int i = 0; i < 10; i++) __builtin_amdgcn_s_sleep(64);
    int *mine = flag + (me == a ? 0 : 64), *other = flag + (me == a ? 64 : 0);
    const long long t0 = ticks();
    for (int i = 1; i <= n; i++) {
      if (me == a) {
        release_device();
        post(mine, i);
      }
      while (poll(other) < i) __builtin_amdgcn_s_sleep(1);
      acquire_device();
      if (me == b) {
        release_device();
        post(mine, i);
      }
    }
    if (me == a) {
      out[0] = (unsigned)(ticks() - t0);
      post(flag + 128, 1);
    }
    return;
  }
  if (!(streams >> (__builtin_amdgcn_s_getreg((3 << 11) | 20) & 15) & 1)) return;
  u4 s = 0;
  for (size_t i = (size_t)me * 2048 + threadIdx.x; !poll(flag + 128); i = (i + (size_t)gridDim.x * 2048) % (words - 2048)) {
    u4 v[8];
#pragma unroll
    for (int k = 0; k < 8; k++) v[k] = p[i + k * 256];
#pragma unroll
    for (int k = 0; k < 8; k++) s ^= v[k];
  }
  if (s.x == 0x12345) out[1] = s.y;
}
// Waves that poll `lines` lines; the first workgroup sets all of these when every one polls.
__global__ void pollers(int* line, int lines, unsigned* seen) {
  if (threadIdx.x) return;
  int* counter = line + lines * 64;
  if (blockIdx.x == 0) {
    while (poll(counter) < (int)gridDim.x - 1) __builtin_amdgcn_s_sleep(1);
    for (int i = 0; i < 40; i++) __builtin_amdgcn_s_sleep(64);
    seen[0] = (unsigned)ticks();
    for (int i = 0; i < lines; i++) post(line + i * 64, 1);
  } else {
    add(counter, 1);
    while (!poll(line + blockIdx.x % lines * 64)) __builtin_amdgcn_s_sleep(1);
    seen[blockIdx.x] = (unsigned)ticks();
  }
}
static double mhz() {
  hipDeviceProp_t p;
  OK(hipGetDeviceProperties(&p, 0));
  return p.clockRate * 1e-3;
}
static void flags() {
  Dev<long long> o(2);
  const int n = 200;
  fences<<<1, 64>>>(n, o);
  OK(hipDeviceSynchronize());
  auto f = o.get();
  figure("fence.release", f[0] * 10.0 / n, "ns", "buffer_wbl2 sc1 and its wait, clean L2");
  figure("fence.acquire", f[1] * 10.0 / n, "ns", "buffer_inv sc1");
  const int lines = 64;
  const size_t step = (4096 + 128) / 4;
  Dev<int> spread(lines * step);
  Dev<unsigned> each(lines);
  atomics<<<1, 64>>>(spread, step, lines, 50, each);
  const std::vector<unsigned> a = each.get();
  figure("atomic.owned", percentile(a, 50) * 1e3 / mhz(), "ns", "on a line that this XCD alone changes, median of 64 lines");
  figure("atomic.owned_near", percentile(a, 5) * 1e3 / mhz(), "ns", "5th percentile");
  figure("atomic.owned_far", percentile(a, 95) * 1e3 / mhz(), "ns", "95th percentile");
  Dev<unsigned> x(g_cus);
  where<<<g_cus, 64>>>(x);
  OK(hipDeviceSynchronize());
  auto xcc = x.get();
  int same = 1, other = 1;
  while (same < g_cus - 1 && xcc[same] != xcc[0]) same++;
  while (other < g_cus - 1 && xcc[other] == xcc[0]) other++;
  auto play = [&](auto kernel, int b, int* flag) {
    OK(hipMemset(flag, 0, 256));
    const int turns = 50;
    kernel<<<g_cus, 64>>>(flag, 0, b, turns, o.p);
    OK(hipDeviceSynchronize());
    return o.get()[0] * 10.0 / turns / 2;
  };
  figure("handover.same", play(pingpong<false, 1>, same, spread.p), "ns", "a counter, two workgroups of one XCD, no fence");
  std::vector<unsigned> homes, released;
  for (int k = 0; k < 16; k++) {
    homes.push_back((unsigned)play(pingpong<false, 1>, other, spread.p + k * step));
    released.push_back((unsigned)play(pingpong<true, 8>, other, spread.p + k * step));
  }
  figure("handover.across", percentile(homes, 50), "ns", "a counter, two workgroups of two XCDs, no fence; median of 16 lines");
  figure("handover.released", percentile(released, 50), "ns", "the same with a release, s_sleep 8");
  figure("handover.near", percentile(homes, 0), "ns", "across XCDs, no fence, the line whose home is nearest");
  figure("handover.far", percentile(homes, 100), "ns", "across XCDs, no fence, the line whose home is farthest");
  Dev<int> payload(64), flag(256);
  OK(hipMemset(o.p, 0, 16));
  flag_payload<<<g_cus, 64>>>(flag, payload, 0, other, n, o);
  OK(hipDeviceSynchronize());
  figure("flag.payload", o.get()[0] * 10.0 / n, "ns", "a payload and a flag, acknowledged: the wait of its receiver");
  EXPECT(o.get()[1] == 0);
  const size_t bytes = 1ull << 30;
  u4* p;
  OK(hipMalloc((void**)&p, bytes));
  Dev<unsigned> out(2);
  for (unsigned streams : {0u, 1u << xcc[0] | 1u << xcc[other], 0xffffu}) {
    OK(hipMemset(flag.p, 0, 1024));
    event<<<g_cus, 256>>>(flag, 0, other, 20, streams, p, bytes / 16, out);
    OK(hipDeviceSynchronize());
    const char* name = streams == 0 ? "event.idle" : streams < 0xffff ? "event.streamed" : "event.streamed_by_all";
    figure(name, out.get()[0] * 0.01 / 40, "us", "release, flag, acquire, across XCDs; beside workgroups of these two that read; of all");
  }
  OK(hipFree(p));
  for (int k = 0; k < 3; k++) {
    const int waves = k ? 736 : 32, of = k < 2 ? 8 : 1;
    Dev<int> line(9 * 64);
    Dev<unsigned> seen(waves + 1);
    pollers<<<waves + 1, 64>>>(line, of, seen);
    const std::vector<unsigned> t = seen.get();
    unsigned last = 0;
    for (int i = 1; i <= waves; i++) last = std::max(last, t[i] - t[0]);
    figure("pollers." + std::to_string(waves) + "_of_" + std::to_string(of), last * 0.01, "us",
           "from the stores until the last of so many waves has seen one of so many lines");
  }
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
  figure("barrier.1_per_cu", counter(counter_barrier<1>, g_cus), "us", "one counter, a workgroup per CU");
  figure("barrier.2_per_cu", counter(counter_barrier<1>, 2 * g_cus), "us", "one counter, two workgroups per CU");
  OK(hipMemset(c.p, 0, 16384));
  two_level_barrier<<<g_cus, 64>>>(c, c.p + 1024, c.p + 2048, phases, g_cus, o);
  OK(hipDeviceSynchronize());
  figure("barrier.two_level", o.get()[0] * 0.01 / phases, "us", "arrivals gathered by each XCD");
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
    const char* names[] = {"pop.1", "pop.64", "pop.256", "pop.512", "pop.cas"};
    if (k < 3) figure(names[k], us * 1e3 * n / cap, "ns", "a pop by ticket, of so many poppers");
    else figure(names[k], cap / us, "M/s", k == 3 ? "pops by ticket, 512 poppers" : "pops by compare and swap, 512 poppers");
  }
}

// ---------------------------------------------------------------- the host beside a kernel that stays
__global__ void resident(int* words) {  // pinned: [0] it ends, [32] what the host has posted, [64] the answer
  if (threadIdx.x || blockIdx.x) return;
  for (int seen = 0; !__hip_atomic_load(words, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);) {
    const int v = __hip_atomic_load(words + 32, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    if (v != seen) __hip_atomic_store(words + 64, seen = v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  }
}
static double host_us() { return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
// What a call takes, by the host's clock; where it has not returned after a second, the resident kernel is ended.
template <class F>
static void beside(const char* name, const char* what, F call) {
  int* words;
  hipStream_t kept, own;
  OK(hipHostMalloc((void**)&words, 512));
  memset(words, 0, 512);
  OK(hipStreamCreateWithFlags(&kept, hipStreamNonBlocking));
  OK(hipStreamCreateWithFlags(&own, hipStreamNonBlocking));
  resident<<<1, 64, 0, kept>>>(words);
  std::atomic<int> done(0);
  double us = 0;
  std::thread caller([&] {
    const double t0 = host_us();
    call(own, words);
    us = host_us() - t0;
    done = 1;
  });
  const double t0 = host_us();
  while (!done && host_us() - t0 < 1e6) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const bool waits = !done;
  __atomic_store_n(words, 1, __ATOMIC_RELEASE);
  caller.join();
  OK(hipStreamSynchronize(kept));
  if (waits) printf("fact   %-24s waits for a kernel that stays: %s\n", name, what);
  else figure(name, us, "us", what);
  OK(hipStreamDestroy(kept));
  OK(hipStreamDestroy(own));
  OK(hipHostFree(words));
}
static void host() {
  void *old = nullptr, *pinned = nullptr, *on_device = nullptr;
  OK(hipMalloc(&old, 1 << 20));
  OK(hipMalloc(&on_device, 1 << 20));
  OK(hipHostMalloc(&pinned, 1 << 20));
  for (int i = 0; i < 2; i++)  // the first one loads what the runtime loads late
    beside("beside.launch", "an ordinary launch and its end, beside a kernel that stays", [&](hipStream_t s, int*) {
      empty_kernel<<<1, 64, 0, s>>>();
      OK(hipStreamSynchronize(s));
    });
  beside("beside.cooperative", "a cooperative launch and its end", [&](hipStream_t s, int*) {
    OK(hipLaunchCooperativeKernel((void*)empty_kernel, dim3(8), dim3(64), nullptr, 0, s));
    OK(hipStreamSynchronize(s));
  });
  beside("beside.copy", "a copy of 1 MB from pinned memory and its end", [&](hipStream_t s, int*) {
    OK(hipMemcpyAsync(on_device, pinned, 1 << 20, hipMemcpyHostToDevice, s));
    OK(hipStreamSynchronize(s));
  });
  beside("beside.malloc", "hipMalloc", [&](hipStream_t, int*) {
    void* p;
    OK(hipMalloc(&p, 1 << 20));
  });
  beside("beside.free", "hipFree", [&](hipStream_t, int*) { OK(hipFree(old)); });
  beside("beside.host_free", "hipHostFree", [&](hipStream_t, int*) { OK(hipHostFree(pinned)); });
  double us = 0;
  const int n = 200;
  beside("beside.polls", "200 words to the kernel, and its answers", [&](hipStream_t, int* words) {
    const double t0 = host_us();
    for (int i = 1; i <= n; i++) {
      __atomic_store_n(words + 32, i, __ATOMIC_RELEASE);
      while (__atomic_load_n(words + 64, __ATOMIC_ACQUIRE) != i && !__atomic_load_n(words, __ATOMIC_RELAXED)) {}
    }
    us = (host_us() - t0) / n;
  });
  figure("host.round_trip", us, "us", "a word of the host to a kernel that stays, and its answer");
  OK(hipFree(on_device));
}

// ---------------------------------------------------------------- the machine
static void map() {
  hipDeviceProp_t p;
  OK(hipGetDeviceProperties(&p, 0));
  figure("machine.cus", p.multiProcessorCount, "", p.gcnArchName);
  figure("machine.clock_mhz", p.clockRate * 1e-3, "MHz", "the highest, of the data sheet");
  // Cycles of a busy loop by the clock that does not change: the clock that this GPU has now.
  Dev<long long> o(2);
  clocks<<<1, 64>>>(o);
  OK(hipDeviceSynchronize());
  figure("machine.clock_now", o.get()[0] * 100.0 / o.get()[1], "MHz", "s_memtime by s_memrealtime, in a busy loop");
  for (int groups : {p.multiProcessorCount, 2 * p.multiProcessorCount}) {
    Dev<unsigned> x(groups);
    where<<<groups, 64>>>(x);
    const std::vector<unsigned> xcc = x.get();
    int on[16] = {};
    for (unsigned k : xcc) on[k]++;
    printf("fact   map of %d workgroups: XCC of the first:", groups);
    for (int i = 0; i < 24; i++) printf(" %u", xcc[i]);
    printf("; on each XCC:");
    for (int k = 0; k < 16; k++)
      if (on[k]) printf(" %d:%d", k, on[k]);
    printf("\n");
  }
}

// ---------------------------------------------------------------- launches
static void launches() {
  figure("launch.ordinary", g_overhead_us, "us", "an empty kernel between two events");
  const double ordinary = g_overhead_us;
  g_overhead_us = 0;
  auto cooperative = [] { OK(hipLaunchCooperativeKernel((void*)empty_kernel, dim3(8), dim3(64), nullptr, 0, nullptr)); };
  time_us(cooperative);
  figure("launch.cooperative", time_us(cooperative), "us", "the same, a cooperative launch");
  g_overhead_us = ordinary;
}

int main(int argc, char** argv) {
  struct {
    const char* name;
    void (*run)();
  } all[] = {{"map", map},     {"launches", launches}, {"latency", latency},
             {"grid", grid},   {"read", read},         {"policies", policies},
             {"l2", l2_read},  {"compute", compute},   {"instructions", instructions},
             {"flags", flags}, {"barriers", barriers}, {"queues", queues},
             {"host", host}};
  hipDeviceProp_t p;
  OK(hipGetDeviceProperties(&p, 0));
  g_cus = p.multiProcessorCount / 8 * 8;
  for (int i = 0; i < 3; i++) {
    g_overhead_us = 0;
    g_overhead_us = time_us([] { empty_kernel<<<1, 64>>>(); });
  }
  for (auto& t : all) {
    bool wanted = argc < 2 && strcmp(t.name, "host");
    for (int i = 1; i < argc; i++) wanted |= strstr(t.name, argv[i]) != nullptr;
    if (wanted) t.run();
  }
  return verdict();
}
