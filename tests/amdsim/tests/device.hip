// Device features: MFMA, fp8, calls, scratch, flat addressing, dynamic LDS,
// lane permutations, atomics, load to LDS, buffer resources, identifiers.
#include "check.h"
#include <string>
typedef float f4 __attribute__((ext_vector_type(4)));
typedef float f16v __attribute__((ext_vector_type(16)));
typedef int i4 __attribute__((ext_vector_type(4)));
typedef short s4 __attribute__((ext_vector_type(4)));
typedef _Float16 h4 __attribute__((ext_vector_type(4)));
typedef double d4 __attribute__((ext_vector_type(4)));

__device__ unsigned g_counter;
__device__ float g_tab[4] = {1.f, 2.f, 4.f, 8.f};
__constant__ int c_tab[16];

// A is M x K, B is N x K (both row major); C is M x N
__global__ void mfma_bf16(const unsigned short* A, const unsigned short* B, float* C, float* C2) {
  int l = threadIdx.x;
  s4 a, b;
  for (int j = 0; j < 4; j++) {
    a[j] = A[(l % 16) * 16 + (l / 16) * 4 + j];
    b[j] = B[(l % 16) * 16 + (l / 16) * 4 + j];
  }
  f4 c = {0, 0, 0, 0};
  c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0);
  for (int r = 0; r < 4; r++) C[((l / 16) * 4 + r) * 16 + l % 16] = c[r];
  s4 a2, b2;
  for (int j = 0; j < 4; j++) {
    a2[j] = A[((l % 32) * 8 + (l / 32) * 4 + j) % 256];
    b2[j] = B[((l % 32) * 8 + (l / 32) * 4 + j) % 256];
  }
  f16v d;
  for (int i = 0; i < 16; i++) d[i] = 1.f;
  d = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a2, b2, d, 0, 0, 0);
  for (int r = 0; r < 16; r++) C2[(8 * (r / 4) + 4 * (l / 32) + (r & 3)) * 32 + l % 32] = d[r];
}
__global__ void mfma_fp8(const long* A, const long* B, float* C) {
  int l = threadIdx.x;
  f4 c = {0, 0, 0, 0};
  c = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(A[(l % 16) * 4 + l / 16], B[(l % 16) * 4 + l / 16], c, 0, 0, 0);
  for (int r = 0; r < 4; r++) C[((l / 16) * 4 + r) * 16 + l % 16] = c[r];
}
__global__ void mfma_more(const int* A, const int* B, float* f, int* o, double* d) {
  int l = threadIdx.x;
  // f16, accumulators kept in AGPRs over a loop
  h4 a, b;
  for (int j = 0; j < 4; j++) {
    a[j] = (_Float16)A[(l % 16) * 16 + (l / 16) * 4 + j];
    b[j] = (_Float16)B[(l % 16) * 16 + (l / 16) * 4 + j];
  }
  f4 c = {0, 0, 0, 0};
  for (int i = 0; i < 3; i++) c = __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0);
  for (int r = 0; r < 4; r++) f[((l / 16) * 4 + r) * 16 + l % 16] = c[r];
  // i8, K = 32
  long pa = 0, pb = 0;
  for (int j = 0; j < 8; j++) {
    int k = (l / 16) * 8 + j;
    pa |= (long)(A[(l % 16) * 16 + k % 16] & 255) << (8 * j);
    pb |= (long)(B[(l % 16) * 16 + k % 16] & 255) << (8 * j);
  }
  i4 ci = {1, 1, 1, 1};
  ci = __builtin_amdgcn_mfma_i32_16x16x32_i8(pa, pb, ci, 0, 0, 0);
  for (int r = 0; r < 4; r++) o[((l / 16) * 4 + r) * 16 + l % 16] = ci[r];
  // f64, K = 4
  d4 cd = {0, 0, 0, 0};
  cd = __builtin_amdgcn_mfma_f64_16x16x4f64((double)A[(l % 16) * 16 + l / 16], (double)B[(l % 16) * 16 + l / 16], cd, 0, 0, 0);
  for (int r = 0; r < 4; r++) d[(4 * r + l / 16) * 16 + l % 16] = cd[r];
}
__device__ __attribute__((noinline)) int rec(int n) { return n < 2 ? n : rec(n - 1) + rec(n - 2); }
__global__ void calls(int* o) { o[threadIdx.x] = rec(threadIdx.x & 7); }
__global__ void scratch(const int* in, int* o) {
  int t[64];
  for (int i = 0; i < 64; i++) t[i] = in[i] * threadIdx.x;
  int s = 0;
  for (int i = 0; i < 64; i++) s += t[(in[i] + threadIdx.x) & 63] * (i + 1);
  o[threadIdx.x] = s;
}
// An access to scratch counts in vmcnt: the load is complete when all but one access are. Of two loads to one register the later
// one stays.
__global__ void scratch_counts(const int* in, int* o) {
  volatile int frame[2] = {1, 2};  // scratch for the store
  int x, kept;
  asm volatile(
      "global_load_dword %0, %2, off\n\tscratch_store_dword off, %3, off\n\ts_waitcnt vmcnt(1)\n\tv_add_u32 %0, 1, %0\n\t"
      "s_waitcnt vmcnt(0)\n\tglobal_load_dword %1, %2, off\n\tscratch_load_dword %1, off, off\n\ts_waitcnt vmcnt(0)"
      : "=&v"(x), "=&v"(kept)
      : "v"(in + threadIdx.x), "v"(threadIdx.x)
      : "memory");
  o[threadIdx.x] = x + kept + frame[1] - 2;
}
__global__ void flat(int* g, int* o, int sel) {
  __shared__ int sh[64];
  int pv[4] = {5, 6, 7, (int)threadIdx.x};
  sh[threadIdx.x] = threadIdx.x * 3;
  __syncthreads();
  int* p = sel == 0 ? g : sel == 1 ? sh : pv;
  o[threadIdx.x] = p[(threadIdx.x * 7) & 3];
  if (sel == 0) atomicAdd(p + 5, 1);
}
__global__ void dyn(int* o) {
  extern __shared__ int ds[];
  ds[threadIdx.x] = threadIdx.x;
  __syncthreads();
  o[blockIdx.x * blockDim.x + threadIdx.x] = ds[blockDim.x - 1 - threadIdx.x] + gridDim.x * 1000 + blockDim.x * 100000;
}
__global__ void lanes(const float* x, float* o) {
  int l = threadIdx.x;
  float v = x[l];
  for (int m = 32; m; m >>= 1) v += __shfl_xor(v, m);
  o[l * 6] = v;
  o[l * 6 + 1] = __shfl_up(l, 3);
  o[l * 6 + 2] = __builtin_amdgcn_update_dpp(-1, l, 0x111, 0xf, 0xf, false);
  o[l * 6 + 3] = __builtin_amdgcn_mov_dpp(l, 0x143, 0xf, 0xf, true);
  o[l * 6 + 4] = __builtin_amdgcn_update_dpp(7, l, 0x1b, 0xf, 0xf, true);
  o[l * 6 + 5] = __popcll(__ballot(l & 1)) + __builtin_amdgcn_readlane(l, 9);
}
__global__ void atomics(unsigned* u, unsigned long long* q, float* f, double* d, int* mm) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&u[0], i);
  atomicSub(&u[1], 1);
  atomicMax(&u[2], (unsigned)i);
  atomicOr(&u[3], 1u << (i & 31));
  atomicXor(&u[4], i);
  atomicAdd(&q[0], (unsigned long long)i << 33);
  atomicMax(&q[1], (unsigned long long)i << 40);
  unsafeAtomicAdd(&f[0], 1.0f);
  unsafeAtomicAdd(&d[0], 0.5);
  atomicMin(&mm[0], -i);
  unsigned old = atomicAdd(&g_counter, 1u);
  u[16 + old] = 1;
  unsigned long long e = q[2], a;
  do {
    a = e;
    e = atomicCAS(&q[2], a, a + 3);
  } while (e != a);
  atomicInc(&u[5], 10u);
  f[1 + (i & 3)] = g_tab[i & 3];
  u[6] = wall_clock64() > 0;
  u[7] = clock64() > 0;
  if (i == 0) {
    unsigned x = atomicExch(&u[8], 77u);
    u[9] = x;
  }
}
__global__ void late_wait(const float* p, float* o, int bad) {  // bad: uses the result before s_waitcnt
  float x;
  const float* q = p + threadIdx.x;
  if (bad) asm volatile("global_load_dword %0, %1, off\n v_add_f32 %0, 1.0, %0\n s_waitcnt vmcnt(0)" : "=&v"(x) : "v"(q));
  else asm volatile("global_load_dword %0, %1, off\n s_waitcnt vmcnt(0)\n v_add_f32 %0, 1.0, %0" : "=&v"(x) : "v"(q));
  o[threadIdx.x] = x;
}
__global__ void late_lgkm(int* o, int bad) {
  __shared__ int sh[64];
  sh[threadIdx.x] = threadIdx.x * 2;
  __syncthreads();
  int x;
  unsigned a = (unsigned)(size_t)(__attribute__((address_space(3))) int*)(sh + threadIdx.x);
  if (bad) asm volatile("ds_read_b32 %0, %1\n v_add_u32 %0, 1, %0\n s_waitcnt lgkmcnt(0)" : "=&v"(x) : "v"(a) : "memory");
  else asm volatile("ds_read_b32 %0, %1\n s_waitcnt lgkmcnt(0)\n v_add_u32 %0, 1, %0" : "=&v"(x) : "v"(a) : "memory");
  o[threadIdx.x] = x;
}
__global__ void load_lds(const float* p, float* o) {
  __shared__ float sh[256];
  __builtin_amdgcn_global_load_lds((const __attribute__((address_space(1))) void*)(p + threadIdx.x),
                                   (__attribute__((address_space(3))) void*)(sh + (threadIdx.x / 64) * 64), 4, 0, 0);
  asm volatile("s_waitcnt vmcnt(0)");
  __syncthreads();
  o[threadIdx.x] = sh[255 - threadIdx.x];
}
__global__ void resource(const float* p, float* o, int n) {
  __amdgpu_buffer_rsrc_t r = __builtin_amdgcn_make_buffer_rsrc((void*)p, 0, n * 4, 0x27000);
  o[threadIdx.x] = __builtin_bit_cast(float, __builtin_amdgcn_raw_buffer_load_b32(r, threadIdx.x * 4, 0, 0));
}
__global__ void ids(unsigned* o) {
  unsigned i = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x, x;
  asm volatile("s_getreg_b32 %0, hwreg(HW_REG_XCC_ID)" : "=s"(x));
  o[i * blockDim.x * blockDim.y * blockDim.z + t] = i * 10000 + t * 10 + x;
}
__global__ void dyn_index(const int* in, int* o) {  // dynamically indexed registers
  typedef int v16 __attribute__((ext_vector_type(16)));
  v16 v;
  for (int i = 0; i < 16; i++) v[i] = in[i] + threadIdx.x;
  int k = __builtin_amdgcn_readfirstlane(in[16]);
  v[k] += 100;
  o[threadIdx.x] = v[(k + 1) & 15] + v[k];
}
__global__ void agprs(const float* p, float* o) {  // accumulation registers as memory operands and MFMA sources
  float x, y;
  const float* q = p + threadIdx.x;
  float* r = o + 64 + threadIdx.x;
  asm volatile(
      "global_load_dword a2, %2, off\n s_waitcnt vmcnt(0)\n v_accvgpr_read_b32 %0, a2\n s_nop 1\n v_add_f32 %0, 1.0, %0\n"
      "v_accvgpr_write_b32 a3, %0\n s_nop 1\n v_accvgpr_mov_b32 a4, a3\n s_nop 1\n v_accvgpr_read_b32 %1, a4\n global_store_dword %3, a4, "
      "off\n s_waitcnt vmcnt(0)"
      : "=&v"(x), "=&v"(y)
      : "v"(q), "v"(r)
      : "a2", "a3", "a4", "memory");
  f4 c = {0, 0, 0, 0};
  float one = 1.f;
  asm volatile(
      "v_accvgpr_write_b32 a5, %1\n v_accvgpr_write_b32 a6, %1\n s_nop 4\n v_mfma_f32_16x16x4_f32 %0, a5, a6, %0\n s_nop 15\n s_nop 4"
      : "+a"(c)
      : "v"(one)
      : "a5", "a6");
  o[threadIdx.x] = x + y * 1000 + c[2] * 1000000;
}
__global__ void constants(int* o) { o[threadIdx.x] = c_tab[threadIdx.x & 15] + (int)g_tab[threadIdx.x & 3]; }

static float bf(unsigned short h) {
  unsigned u = (unsigned)h << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static unsigned short to_bf(float f) {
  unsigned u;
  memcpy(&u, &f, 4);
  return (unsigned short)(u >> 16);
}
static double fp8(unsigned char b) {  // e4m3, bias 8
  if (!(b & 0x7f)) return 0;
  int e = (b >> 3) & 15, m = b & 7;
  double x = e ? (8 + m) * pow(2, e - 11) : m * pow(2, -10);
  return b & 128 ? -x : x;
}

static void matrices() {
  std::vector<unsigned short> a(256), b(256);
  for (auto& x : a) x = to_bf((float)(rand() % 17 - 8));
  for (auto& x : b) x = to_bf((float)(rand() % 17 - 8));
  Dev<unsigned short> A(a), B(b);
  Dev<float> C(256), C2(1024);
  mfma_bf16<<<1, 64>>>(A, B, C, C2);
  auto c = C.get(), c2 = C2.get();
  bool ok = true, ok2 = true;
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) {
      float s = 0;
      for (int k = 0; k < 16; k++) s += bf(a[i * 16 + k]) * bf(b[j * 16 + k]);
      ok &= c[i * 16 + j] == s;
    }
  for (int i = 0; i < 32; i++)
    for (int j = 0; j < 32; j++) {
      float s = 1;
      for (int k = 0; k < 8; k++) s += bf(a[i * 8 + k]) * bf(b[j * 8 + k]);
      ok2 &= c2[i * 32 + j] == s;
    }
  expect(ok, "mfma 16x16x16 bf16");
  expect(ok2, "mfma 32x32x8 bf16");
  std::vector<long> fa(64), fb(64);
  const unsigned char vals[] = {0, 0x40, 0x48, 0x44, 0xc0, 0x38, 0xb8, 0x4c};
  for (size_t i = 0; i < 512; i++) {
    ((unsigned char*)fa.data())[i] = vals[rand() & 7];
    ((unsigned char*)fb.data())[i] = vals[rand() % 7];
  }
  Dev<long> FA(fa), FB(fb);
  Dev<float> FC(256);
  mfma_fp8<<<1, 64>>>(FA, FB, FC);
  auto fc = FC.get();
  ok = true;
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) {
      double s = 0;
      for (int k = 0; k < 32; k++) s += fp8(((unsigned char*)fa.data())[i * 32 + k]) * fp8(((unsigned char*)fb.data())[j * 32 + k]);
      ok &= fc[i * 16 + j] == (float)s;
    }
  expect(ok, "mfma 16x16x32 fp8");
  std::vector<int> ia(256), ib(256);
  for (auto& x : ia) x = rand() % 31 - 15;
  for (auto& x : ib) x = rand() % 31 - 15;
  Dev<int> IA(ia), IB(ib), IO(256);
  Dev<float> F(256);
  Dev<double> D(256);
  mfma_more<<<1, 64>>>(IA, IB, F, IO, D);
  auto f = F.get();
  auto io = IO.get();
  auto d = D.get();
  bool kf = true, ki = true, kd = true;
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) {
      int s = 0, s4 = 0;
      for (int k = 0; k < 16; k++) {
        s += ia[i * 16 + k] * ib[j * 16 + k];
        if (k < 4) s4 += ia[i * 16 + k] * ib[j * 16 + k];
      }
      kf &= f[i * 16 + j] == 3.f * s;
      ki &= io[i * 16 + j] == 1 + 2 * s;
      kd &= d[i * 16 + j] == s4;
    }
  expect(kf, "mfma 16x16x16 f16");
  expect(ki, "mfma 16x16x32 i8");
  expect(kd, "mfma 16x16x4 f64");
}

static void programs() {
  Dev<int> o(64);
  calls<<<1, 64>>>(o);
  const int fib[] = {0, 1, 1, 2, 3, 5, 8, 13};
  bool ok = true;
  {
    auto r = o.get();
    for (int i = 0; i < 64; i++) ok &= r[i] == fib[i & 7];
  }
  expect(ok, "recursive calls");
  std::vector<int> in(64);
  for (auto& x : in) x = rand() % 1000;
  Dev<int> I(in);
  scratch<<<1, 64>>>(I, o);
  ok = true;
  {
    auto r = o.get();
    for (int t = 0; t < 64; t++) {
      unsigned s = 0;
      for (int i = 0; i < 64; i++) s += (unsigned)in[(in[i] + t) & 63] * t * (i + 1);
      ok &= (unsigned)r[t] == s;
    }
  }
  expect(ok, "scratch memory");
  ok = true;
  for (int run = 0; run < 8; run++) {
    scratch_counts<<<1, 64>>>(I, o);
    auto r = o.get();
    for (int t = 0; t < 64; t++) ok &= r[t] == in[t] + 1 + t;
  }
  expect(ok, "scratch memory in vmcnt");
  for (int s = 0; s < 3; s++) {
    Dev<int> g(std::vector<int>{10, 11, 12, 13, 14, 0});
    flat<<<1, 64>>>(g, o, s);
    auto r = o.get();
    ok = true;
    for (int t = 0; t < 64; t++) {
      int k = (t * 7) & 3;
      int want = s == 0 ? 10 + k : s == 1 ? 3 * k : k == 3 ? t : 5 + k;
      ok &= r[t] == want;
    }
    if (s == 0) ok &= g.get()[5] == 64;
    expect(ok, "flat addressing");
  }
  Dev<int> od(3 * 128);
  dyn<<<3, 128, 512>>>(od);
  ok = true;
  {
    auto r = od.get();
    for (int b = 0; b < 3; b++)
      for (int t = 0; t < 128; t++) ok &= r[b * 128 + t] == 127 - t + 3000 + 12800000;
  }
  expect(ok, "dynamic LDS and hidden arguments");
  std::vector<float> x(64);
  float sum = 0;
  for (auto& y : x) {
    y = rand() % 10;
    sum += y;
  }
  Dev<float> X(x), L(64 * 6);
  lanes<<<1, 64>>>(X, L);
  ok = true;
  {
    auto r = L.get();
    for (int t = 0; t < 64; t++) {
      float* p = &r[t * 6];
      ok &= p[0] == sum && p[1] == (t >= 3 ? t - 3 : t) && p[2] == (t % 16 ? t - 1 : -1) && p[3] == (t >= 32 ? 31 : 0) && p[4] == (t ^ 3) &&
            p[5] == 41;
    }
  }
  expect(ok, "lane permutations");
  std::vector<int> di(17);
  for (int i = 0; i < 16; i++) di[i] = i * i;
  for (int k = 0; k < 16; k++) {
    di[16] = k;
    Dev<int> DI(di);
    dyn_index<<<1, 64>>>(DI, o);
    auto r = o.get();
    int k1 = (k + 1) & 15;
    ok = true;
    for (int t = 0; t < 64; t++) ok &= r[t] == k1 * k1 + t + k * k + t + 100;
    if (!ok) break;
  }
  expect(ok, "dynamically indexed registers");
  int ct[16];
  for (int i = 0; i < 16; i++) ct[i] = 100 * i;
  OK(hipMemcpyToSymbol(HIP_SYMBOL(c_tab), ct, sizeof ct));
  constants<<<1, 64>>>(o);
  {
    auto r = o.get();
    EXPECT(r[5] == 502 && r[3] == 308);
  }
}

static void memory() {
  {
    std::vector<float> in(64);
    for (int i = 0; i < 64; i++) in[i] = i;
    Dev<float> I(in), O2(128);
    agprs<<<1, 64>>>(I, O2);
    auto r = O2.get();
    bool good = true;
    for (int i = 0; i < 64; i++) good &= r[i] == (i + 1) * 1001.f + 4e6f && r[64 + i] == i + 1;
    expect(good, "accumulation registers");
  }
  const int n = 512;
  Dev<unsigned> U(16 + n);
  Dev<unsigned long long> Q(8);
  Dev<float> F(16);
  Dev<double> D(1);
  Dev<int> M(1);
  unsigned zero = 0;
  OK(hipMemcpyToSymbol(HIP_SYMBOL(g_counter), &zero, 4));
  atomics<<<8, 64>>>(U, Q, F, D, M);
  auto u = U.get();
  auto q = Q.get();
  auto f = F.get();
  unsigned x = 0;
  for (int i = 0; i < n; i++) x ^= i;
  EXPECT(u[0] == n * (n - 1) / 2 && u[1] == (unsigned)-n && u[2] == n - 1 && u[3] == ~0u && u[4] == x);
  EXPECT(q[0] == (unsigned long long)(n * (n - 1) / 2) << 33 && q[1] == (unsigned long long)(n - 1) << 40 && q[2] == 3 * n);
  EXPECT(f[0] == n && D.get()[0] == n / 2 && M.get()[0] == 1 - n);
  for (int i = 0; i < n; i++)
    if (u[16 + i] != 1) {
      EXPECT(!"each ticket once");
      break;
    }
  EXPECT(u[5] == n % 11 && f[1] == 1 && f[2] == 2 && f[3] == 4 && f[4] == 8 && u[6] == 1 && u[7] == 1 && u[8] == 77 && u[9] == 0);
  unsigned cnt = 0;
  OK(hipMemcpyFromSymbol(&cnt, HIP_SYMBOL(g_counter), 4));
  EXPECT(cnt == n);
  std::vector<float> ramp(256);
  for (int i = 0; i < 256; i++) ramp[i] = i;
  Dev<float> P(ramp), O(256);
  bool ok = true;
  load_lds<<<1, 256>>>(P, O);
  {
    auto r = O.get();
    for (int i = 0; i < 256; i++) ok &= r[i] == 255 - i;
  }
  expect(ok, "global load to LDS");
  resource<<<1, 64>>>(P, O, 50);
  ok = true;
  {
    auto r = O.get();
    for (int i = 0; i < 64; i++) ok &= r[i] == (i < 50 ? i : 0);
  }
  expect(ok, "buffer resource bounds");
  late_wait<<<1, 64>>>(P, O, 0);
  ok = true;
  {
    auto r = O.get();
    for (int i = 0; i < 64; i++) ok &= r[i] == i + 1;
  }
  expect(ok, "hand-written load with its wait");
  Dev<int> I(64);
  late_lgkm<<<1, 64>>>(I, 0);
  ok = true;
  {
    auto r = I.get();
    for (int i = 0; i < 64; i++) ok &= r[i] == 2 * i + 1;
  }
  expect(ok, "hand-written LDS read with its wait");
  const char* delay = getenv("AMDSIM_DELAY");
  if (!delay || atoi(delay) > 0) {  // a missing wait must show
    int caught = 0;
    for (int k = 0; k < 8; k++) {
      late_wait<<<1, 64>>>(P, O, 1);
      auto r = O.get();
      bool good = true;
      for (int i = 0; i < 64; i++) good &= r[i] == i + 1;
      caught += !good;
    }
    expect(caught > 0, "a missing s_waitcnt vmcnt shows");
    late_lgkm<<<1, 64>>>(I, 1);
    auto r = I.get();
    bool good = true;
    for (int i = 0; i < 64; i++) good &= r[i] == 2 * i + 1;
    expect(!good, "a missing s_waitcnt lgkmcnt shows");
  }
  Dev<unsigned> ID(12 * 64);
  ids<<<dim3(2, 3, 2), dim3(4, 8, 2)>>>(ID);
  ok = true;
  {
    auto r = ID.get();
    for (int i = 0; i < 12; i++)
      for (int t = 0; t < 64; t++) ok &= r[i * 64 + t] == (unsigned)(i * 10000 + t * 10 + (i + 6) % 8);
  }
  const char* map = getenv("AMDSIM_XCD_MAP");
  if (!map) expect(ok, "workgroup, work-item and XCD numbers");
}

int main() {
  srand(1);
  matrices();
  programs();
  memory();
  return verdict();
}
