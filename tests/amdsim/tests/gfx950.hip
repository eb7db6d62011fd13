// Instructions that gfx950 has and gfx942 has not. Built for gfx950, run with AMDSIM_ARCH=gfx950.
#include "check.h"
#include <utility>

// v_bitop3: any function of three bits. Bit 4 a + 2 b + c of the table is the result.
static unsigned bitop3(unsigned table, unsigned a, unsigned b, unsigned c) {
  unsigned r = 0;
  for (int bit = 0; bit < 32; bit++) r |= (table >> (4 * (a >> bit & 1) + 2 * (b >> bit & 1) + (c >> bit & 1)) & 1) << bit;
  return r;
}

template <int TABLE>
__device__ void bitop3_one(unsigned a, unsigned b, unsigned c, unsigned* out) {
  unsigned x, y, z = 0x5a5a5a5a;
  asm volatile("v_bitop3_b32 %0, %1, %2, %3 bitop3:%4" : "=v"(x) : "v"(a), "v"(b), "v"(c), "n"(TABLE));
  asm volatile("v_bitop3_b16 %0, %1, %2, %3 bitop3:%4" : "=v"(y) : "v"(a), "v"(b), "v"(c), "n"(TABLE));
  asm volatile("v_bitop3_b16 %0, %1, %2, %3 bitop3:%4 op_sel:[1,0,1,1]" : "+v"(z) : "v"(a), "v"(b), "v"(c), "n"(TABLE));
  out[3 * TABLE] = x;
  out[3 * TABLE + 1] = y & 0xffff;
  out[3 * TABLE + 2] = z;
}
template <int... TABLE>
__device__ void bitop3_all(std::integer_sequence<int, TABLE...>, unsigned a, unsigned b, unsigned c, unsigned* out) {
  (bitop3_one<TABLE>(a, b, c, out), ...);
}
__global__ void bitop3_kernel(const unsigned* in, unsigned* out) {
  const int i = threadIdx.x;
  bitop3_all(std::make_integer_sequence<int, 256>(), in[3 * i], in[3 * i + 1], in[3 * i + 2], out + 768 * i);
}

// What the compiler makes of such functions.
static __host__ __device__ unsigned mux(unsigned a, unsigned b, unsigned c) { return (a & b) | (~a & c); }
static __host__ __device__ unsigned short odd(unsigned short a, unsigned short b, unsigned short c) {
  return (unsigned short)((a | ~b) ^ c);
}
__global__ void compiled_kernel(const unsigned* in, unsigned* out) {
  const int i = threadIdx.x;
  const unsigned a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
  out[2 * i] = mux(a, b, c);
  out[2 * i + 1] = odd((unsigned short)a, (unsigned short)b, (unsigned short)c);
}

int main() {
  std::vector<unsigned> v(3 * 64);
  unsigned x = 12345;
  for (unsigned& e : v) e = x = x * 1664525u + 1013904223u;
  Dev<unsigned> in(v), out(768 * 64), more(2 * 64);
  bitop3_kernel<<<1, 64>>>(in, out);
  compiled_kernel<<<1, 64>>>(in, more);
  const std::vector<unsigned> got = out.get(), got_more = more.get();
  int wrong[5] = {};
  for (int i = 0; i < 64; i++) {
    const unsigned a = v[3 * i], b = v[3 * i + 1], c = v[3 * i + 2];
    for (unsigned table = 0; table < 256; table++) {
      const unsigned* g = &got[768 * i + 3 * table];
      wrong[0] += g[0] != bitop3(table, a, b, c);
      wrong[1] += g[1] != (bitop3(table, a, b, c) & 0xffff);
      wrong[2] += g[2] != (0x5a5au | bitop3(table, a >> 16, b, c >> 16) << 16);
    }
    wrong[3] += got_more[2 * i] != mux(a, b, c);
    wrong[4] += got_more[2 * i + 1] != odd((unsigned short)a, (unsigned short)b, (unsigned short)c);
  }
  const char* const names[] = {"v_bitop3_b32", "v_bitop3_b16", "v_bitop3_b16 with op_sel", "32 bits, compiled", "16 bits, compiled"};
  for (int i = 0; i < 5; i++) expect(!wrong[i], names[i]);
  return verdict();
}
