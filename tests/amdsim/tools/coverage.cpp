// Lists the instructions of a target that LLVM knows and the simulator does
// not execute: walks the opcode field of every encoding.
#include "../src/code_object.h"
#include "../src/machine.h"
#include <set>
#include <sys/mman.h>
using namespace amdsim;

int main(int argc, char** argv) {
  CodeObject co;
  co.arch = argc > 1 ? argv[1] : "gfx942";
  co.size = 4096;
  co.base = (u8*)mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  co.cache = (Inst*)mmap(nullptr, 4096 * sizeof(Inst), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::set<std::string> good, bad;
  auto try_words = [&](u32 w0, u32 w1) {
    u32* p = (u32*)co.base;
    memset(p, 0, 64);
    p[0] = w0;
    p[1] = w1;
    std::string text;
    if (!disassemble(co, (u64)co.base, &text)) return;
    std::string m = text.substr(0, text.find(' '));
    for (const char* s : {"_e32", "_e64", "_dpp", "_sdwa"}) {
      size_t n = strlen(s);
      if (m.size() > n && m.compare(m.size() - n, n, s) == 0) m.resize(m.size() - n);
    }
    Inst in;
    g_fault = FaultState();
    if (decode(co, (u64)co.base, in)) good.insert(m);
    else bad.insert(m);
  };
  for (u32 op = 0; op < 64; op++) try_words(op << 25 | 0x02000000 * 0 | 0x100 | 2u << 9 | 4u << 17, 0x3f800000);
  for (u32 op = 0; op < 256; op++) {
    try_words(0x7e000000 | op << 9 | 0x102 | 4u << 17, 0);         // VOP1
    try_words(0x7c000000 | op << 17 | 0x102 | 2u << 9, 0);         // VOPC
    try_words(0xbe800000 | op << 8 | 4u << 16 | 2, 0);             // SOP1
    try_words(0xd8000000 | op << 17, 0x04020002);                  // DS
    try_words(0xc0000000 | op << 18 | 1u << 17 | 4u << 6 | 2, 0);  // SMEM
  }
  for (u32 op = 0; op < 128; op++) {
    try_words(0x80000000 | op << 23 | 4u << 16 | 2 << 8 | 2, 0);  // SOP2
    try_words(0xbf000000 | op << 16 | 2 << 8 | 2, 0);             // SOPC
    for (u32 acc = 0; acc < 2; acc++)
      for (u32 hi = 0; hi < 2; hi++)
        try_words(0xd3800000 | op << 16 | (hi ? 0x4000u : 0) | 8,
                  (hi ? 0x18000000u : 0) | 0x100 | 0x100u << 9 | 0x100u << 18 | (acc ? 0x18000000u : 0) | 2 | 4 << 9 | 8 << 18);
    for (u32 seg = 0; seg < 3; seg++) {
      try_words(0xdc000000 | op << 18 | seg << 14, 0x04000002 | 0x7fu << 16);
      try_words(0xdc000000 | op << 18 | seg << 14 | (seg == 1 ? 0x2000u : 0), 0x04000002 | 0x7fu << 16);
    }
    try_words(0xe0000000 | op << 18 | 1u << 12, 0x80010402);  // MUBUF
  }
  for (u32 op = 0; op < 32; op++) try_words(0xb0000000 | op << 23 | 4u << 16 | 0xf801, 0);  // SOPK
  for (u32 op = 0; op < 1024; op++) {
    try_words(0xd0000000 | op << 16 | 4, 0x100 | 0x102u << 9 | 0x104u << 18);
    try_words(0xd0000000 | op << 16 | 106u << 8 | 4, 0x100 | 0x102u << 9 | 0x104u << 18);
    try_words(0xd0000000 | op << 16 | 106u << 8 | 4, 0x100 | 0x102u << 9 | 106u << 18);
    try_words(0xd0000000 | op << 16 | 4, 0x100 | 0x102u << 9);
  }
  for (auto& b : bad)
    if (!good.count(b)) printf("%s\n", b.c_str());
  fprintf(stderr, "%s: %zu mnemonics executed, %zu not\n", co.arch.c_str(), good.size(), bad.size());
  co.base = nullptr;
  co.cache = nullptr;
}
