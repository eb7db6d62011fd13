#pragma once
#include <hip/hip_runtime.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define OK(x)                                                                   \
  do {                                                                          \
    hipError_t e_ = (x);                                                        \
    if (e_ != hipSuccess) {                                                     \
      printf("%s:%d: %s -> %s\n", __FILE__, __LINE__, #x, hipGetErrorName(e_)); \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

static int g_failed = 0;
static inline void expect(bool ok, const char* what) {
  if (!ok) {
    printf("  FAILED: %s\n", what);
    g_failed++;
  }
}
#define EXPECT(x) expect((x), #x)
static inline int verdict() {
  printf(g_failed ? "%d checks failed\n" : "ok\n", g_failed);
  return g_failed ? 1 : 0;
}

template <class T>
struct Dev {  // device array
  T* p = nullptr;
  size_t n;
  explicit Dev(size_t n_, int fill = 0) : n(n_) {
    OK(hipMalloc((void**)&p, n * sizeof(T)));
    OK(hipMemset(p, fill, n * sizeof(T)));
  }
  explicit Dev(const std::vector<T>& v) : n(v.size()) {
    OK(hipMalloc((void**)&p, n * sizeof(T)));
    OK(hipMemcpy(p, v.data(), n * sizeof(T), hipMemcpyHostToDevice));
  }
  ~Dev() { (void)hipFree(p); }
  operator T*() { return p; }
  std::vector<T> get() {
    std::vector<T> v(n);
    OK(hipMemcpy(v.data(), p, n * sizeof(T), hipMemcpyDeviceToHost));
    return v;
  }
};
