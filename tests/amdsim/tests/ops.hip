// Arithmetic on the device against the same code compiled for the host.
#include "check.h"
#define DEV __host__ __device__
#include "ops.h"

template <int K>
__global__ void op_fixed(const float* a, const float* b, const unsigned* u, const unsigned* v, unsigned* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned o[4] = {0, 0, 0, 0};
  doop(K, a[i], b[i], u[i], v[i], o);
  for (int j = 0; j < 4; j++) out[i * 4 + j] = o[j];
}
__global__ void op_any(const float* a, const float* b, const unsigned* u, const unsigned* v, unsigned* out, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned o[4] = {0, 0, 0, 0};
  doop(k, a[i], b[i], u[i], v[i], o);
  for (int j = 0; j < 4; j++) out[i * 4 + j] = o[j];
}

static const int n = 512;
static std::vector<float> a(n), b(n);
static std::vector<unsigned> u(n), v(n);

static bool close_enough(int k, int j, unsigned x, unsigned y, const unsigned* gx, const unsigned* hx) {
  if (x == y) return true;
  float p, q;
  memcpy(&p, &x, 4);
  memcpy(&q, &y, 4);
  if (k == 43) return std::fabs(p - q) <= 4e-6f * std::fmax(1e-3f, std::fabs(q));  // transcendental functions
  if (k == 0 || k == 32) return std::abs((int)x - (int)y) <= 1;
  if (p != p && q != q) return true;
  (void)j;
  (void)gx;
  (void)hx;
  return false;
}

static void compare(int k, const std::vector<unsigned>& o, const char* how) {
  int bad = 0;
  for (int i = 0; i < n; i++) {
    unsigned t[4] = {0, 0, 0, 0};
    doop(k, a[i], b[i], u[i], v[i], t);
    for (int j = 0; j < 4; j++)
      if (!close_enough(k, j, o[4 * i + j], t[j], nullptr, nullptr)) {
        if (bad++ < 3)
          printf("  op %d.%d (%s): device %08x host %08x for a=%a b=%a u=%08x v=%08x\n", k, j, how, o[4 * i + j], t[j], a[i], b[i], u[i],
                 v[i]);
      }
  }
  if (bad) {
    printf("  op %d (%s): %d mismatches\n", k, how, bad);
    g_failed++;
  }
}

template <int K>
static void run_all(float* A, float* B, unsigned* U, unsigned* V, Dev<unsigned>& O) {
  OK(hipMemset(O.p, 0, O.n * 4));
  op_fixed<K><<<2, 256>>>(A, B, U, V, O, n);
  compare(K, O.get(), "constant");
  if constexpr (K + 1 < NOPS) run_all<K + 1>(A, B, U, V, O);
}

int main() {
  srand(5);
  auto r = [] { return rand() / (double)RAND_MAX; };
  auto f = [&]() -> float {
    if (r() < .05) {
      const float c[] = {0.f, 1.f, -1.f, .5f};
      return c[rand() & 3];
    }
    return (float)((2 * r() - 1) * pow(10, rand() % 8 - 3));
  };
  auto w = [&]() -> unsigned {
    unsigned x = (unsigned)rand() * 2654435761u ^ rand();
    const int s[] = {24, 16, 0};
    return x >> s[rand() % 3];
  };
  for (int i = 0; i < n; i++) {
    a[i] = f();
    b[i] = f();
    if (b[i] == 0) b[i] = 1;
    u[i] = w();
    v[i] = w();
  }
  Dev<float> A(a), B(b);
  Dev<unsigned> U(u), V(v), O(4 * n);
  run_all<0>(A, B, U, V, O);
  for (int k = 0; k < NOPS; k++) {
    OK(hipMemset(O.p, 0, O.n * 4));
    op_any<<<2, 256>>>(A, B, U, V, O, n, k);
    compare(k, O.get(), "switch");
  }
  return verdict();
}
