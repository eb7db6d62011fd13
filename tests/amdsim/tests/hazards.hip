// Wait states (src/hazards.inc): with as many as a row asks for an instruction has the result that it has with many more,
// with one less it has another one.
#include "check.h"
#include <string>

#define HAZARD(name, states, first, second, one, two, by) HAZARD_##by(name, states)
#define HAZARD_isa(name, states)
#define HAZARD_sim(name, states) k_##name = states,
enum {
#include "../src/hazards.inc"
};
#undef HAZARD_sim
#define HAZARD_sim(name, states) +1
static const int kRows = 0
#include "../src/hazards.inc"
    ;

// The wait states stand between BEFORE and AFTER. v40 to v42 and s20 to s25 are theirs; %1: the lane, %2: words.
#define ROW(name, before, after)                                                                    \
  template <int STATES>                                                                             \
  __global__ void name(const unsigned* words, unsigned* out) {                                      \
    unsigned result = 0;                                                                            \
    asm volatile(before "\n\t.if %3\n\ts_nop %3 - 1\n\t.endif\n\t" after                            \
                 : "=&v"(result)                                                                    \
                 : "v"(threadIdx.x), "s"(words), "n"(STATES)                                        \
                 : "v40", "v41", "v42", "s20", "s21", "s22", "s23", "s24", "s25", "vcc", "memory"); \
    out[threadIdx.x] = result;                                                                      \
  }
#define SETTLE "\n\ts_nop 7\n\t"
ROW(SGPR_VALU, "v_add_u32_e32 v40, 9, %1\n\ts_mov_b32 s20, 0x11" SETTLE "v_readfirstlane_b32 s20, v40", "v_mov_b32_e32 %0, s20")
ROW(SGPR_LANE, "v_mov_b32_e32 v40, 5\n\ts_mov_b32 s20, 0" SETTLE "v_readfirstlane_b32 s20, v40",
    "v_readlane_b32 s21, %1, s20" SETTLE "v_mov_b32_e32 %0, s21")
ROW(SGPR_VMEM,
    "v_mov_b32_e32 v41, 0\n\ts_mov_b64 s[20:21], %2\n\ts_add_u32 s22, s20, 4\n\tv_mov_b32_e32 v40, s22" SETTLE
    "v_readfirstlane_b32 s20, v40",
    "global_load_dword %0, v41, s[20:21]\n\ts_waitcnt vmcnt(0)")
ROW(VCC_FMAS, "v_mov_b32_e32 v40, 1.0\n\ts_mov_b64 vcc, 0" SETTLE "v_cmp_eq_u32_e32 vcc, %1, %1", "v_div_fmas_f32 %0, v40, v40, v40")
ROW(VGPR_READLANE, "v_mov_b32_e32 v40, 3" SETTLE "v_add_u32_e32 v40, 9, %1", "v_readfirstlane_b32 s20, v40" SETTLE "v_mov_b32_e32 %0, s20")
ROW(VGPR_DPP, "v_mov_b32_e32 v40, 3" SETTLE "v_add_u32_e32 v40, 9, %1", "v_mov_b32_dpp %0, v40 row_ror:1 row_mask:0xf bank_mask:0xf")
ROW(EXEC_LANE, "s_mov_b64 s[22:23], exec" SETTLE "v_cmpx_eq_u32_e32 vcc, 7, %1",
    "v_readfirstlane_b32 s20, %1\n\ts_mov_b64 exec, s[22:23]" SETTLE "v_mov_b32_e32 %0, s20")
ROW(EXEC_DPP, "s_mov_b64 s[22:23], exec\n\tv_mov_b32_e32 %0, 1" SETTLE "v_cmpx_gt_u32_e32 vcc, 7, %1",
    "v_mov_b32_dpp %0, %1 row_ror:1 row_mask:0xf bank_mask:0xf\n\ts_mov_b64 exec, s[22:23]" SETTLE)
ROW(TRANS_VALU, "v_cvt_f32_u32_e32 v40, %1" SETTLE "v_exp_f32_e32 v40, v40", "v_add_f32_e32 %0, v40, v40")

static int g_rows = 0;
template <class F>
static std::vector<unsigned> run(F* kernel) {
  Dev<unsigned> words(std::vector<unsigned>{7, 9}), out(64);
  kernel<<<1, 64>>>(words, out);
  return out.get();
}
template <class F>
static void row(const char* name, F* few, F* enough, F* many) {
  const std::vector<unsigned> right = run(many);
  g_rows++;
  if (run(enough) != right) expect(false, name);
  if (run(few) == right) expect(false, (std::string(name) + ": one wait state less").c_str());
}
#define CHECK(name) row(#name, name<k_##name - 1>, name<k_##name>, name<16>)

int main() {
  CHECK(SGPR_VALU);
  CHECK(SGPR_LANE);
  CHECK(SGPR_VMEM);
  CHECK(VCC_FMAS);
  CHECK(VGPR_READLANE);
  CHECK(VGPR_DPP);
  CHECK(EXEC_LANE);
  CHECK(EXEC_DPP);
  CHECK(TRANS_VALU);
  EXPECT(g_rows == kRows);
  return verdict();
}
