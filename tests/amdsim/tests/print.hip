// Device printf and assert.
#include "check.h"
#include <cassert>
#include <unistd.h>
__global__ void hello(const char* name, int n) {
  if (threadIdx.x < n)
    printf("block %d thread %3u: %s %.3f %lld %c %x%%\n", blockIdx.x, threadIdx.x, "text of some length, longer than one packet can hold",
           1.5 * threadIdx.x, -5000000000ll, 'z', 0xbeefu);
}
__global__ void check(const int* p) { assert(p[threadIdx.x] == 0 && "value must be zero"); }

int main() {
  fflush(stdout);
  char path[] = "/tmp/amdsim_print_XXXXXX";
  int fd = mkstemp(path), keep = dup(1);
  dup2(fd, 1);
  hello<<<2, 64>>>(nullptr, 3);
  hipError_t e = hipDeviceSynchronize();
  fflush(stdout);
  dup2(keep, 1);
  EXPECT(e == hipSuccess);
  std::vector<char> text(65536, 0);
  lseek(fd, 0, SEEK_SET);
  ssize_t n = read(fd, text.data(), text.size() - 1);
  unlink(path);
  int lines = 0;
  for (ssize_t i = 0; i < n; i++) lines += text[i] == '\n';
  EXPECT(lines == 6);
  EXPECT(strstr(text.data(), "block 1 thread   2: text of some length, longer than one packet can hold 3.000 -5000000000 z beef%\n"));
  Dev<int> p(64, 0);
  check<<<1, 64>>>(p);
  OK(hipDeviceSynchronize());
  int one = 1;
  OK(hipMemcpy(p.p + 5, &one, 4, hipMemcpyHostToDevice));
  check<<<1, 64>>>(p);
  EXPECT(hipDeviceSynchronize() != hipSuccess);
  return verdict();
}
