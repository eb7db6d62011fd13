// Wait states (src/hazards.inc): with as many as a row asks for an instruction has the result that it has with many more,
// with one less it has another one.
//   hazards         checks that of the rows that the simulator knows
//   hazards count N   N waves of each; for a chip (tests/bench/on_amd.sh), which may be right with fewer: counts wrong results of each row
//   by
//                   the number of wait states, and fails where there are wrong ones with as many as the row asks for
#include "check.h"
#include <string>

#define PASSES 4 /* of v_mfma_f32_16x16x16_f16 */
#define HAZARD(name, states, first, second, one, two, by) k_##name = states,
enum {
#include "../src/hazards.inc"
};
#undef HAZARD
#define HAZARD(name, states, first, second, one, two, by) +HAZARD_##by
#define HAZARD_isa 0
#define HAZARD_sim 1
static const int kRows = 0
#include "../src/hazards.inc"
    ;
#undef HAZARD_isa
#define HAZARD_isa 1
static const int kAllRows = 0
#include "../src/hazards.inc"
    ;

// The wait states stand between BEFORE and AFTER. v40 to v59 and s20 to s25 are theirs; %1: the lane, %2: words.
#define ROW(name, before, after)                                                                                                          \
  template <int STATES>                                                                                                                   \
  __global__ void name(const unsigned* words, unsigned* out) {                                                                            \
    __shared__ unsigned lds[256];                                                                                                         \
    unsigned result = 0;                                                                                                                  \
    for (int i = 0; i < 4; i++) lds[threadIdx.x + i * 64] = i;                                                                            \
    __syncthreads();                                                                                                                      \
    asm volatile(before "\n\t.rept %3\n\ts_nop 0\n\t.endr\n\t" after                                                                      \
                 : "=&v"(result)                                                                                                          \
                 : "v"(threadIdx.x), "s"(words), "n"(STATES)                                                                              \
                 : "v40", "v41", "v42", "v43", "v44", "v45", "v46", "v47", "v48", "v49", "v50", "v51", "s20", "s21", "s22", "s23", "s24", \
                   "s25", "vcc", "memory");                                                                                               \
    out[blockIdx.x * 64 + threadIdx.x] = result + lds[255] - 3;                                                                           \
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

// Rows that the simulator does not know: it has the right result in any case, as a chip may.
#define ONES "v_mov_b32_e32 v40, 0x3c003c00\n\tv_mov_b32_e32 v41, v40\n\tv_mov_b32_e32 v42, v40\n\tv_mov_b32_e32 v43, v40\n\t"
#define ZEROS                                                                                                                              \
  "v_mov_b32_e32 v44, 0\n\tv_mov_b32_e32 v45, 0\n\tv_mov_b32_e32 v46, 0\n\tv_mov_b32_e32 v47, 0\n\tv_mov_b32_e32 v48, 0\n\tv_mov_b32_e32 " \
  "v49, 0\n\tv_mov_b32_e32 v50, 0\n\tv_mov_b32_e32 v51, 0"
#define LONG SETTLE "s_nop 7\n\t"
#define MFMA(to, a, c) "v_mfma_f32_16x16x16_f16 v[" to "], v[" a "], v[42:43], " c
ROW(EXEC_MFMA, ONES ZEROS "\n\ts_mov_b64 s[22:23], exec" SETTLE "v_cmpx_gt_u32_e32 vcc, 7, %1",
    MFMA("44:47", "40:41", "0") LONG "s_mov_b64 exec, s[22:23]" SETTLE "v_mov_b32_e32 %0, v44")
ROW(ZERO_FLAG, "s_mov_b64 vcc, 0" SETTLE "v_cmp_eq_u32_e32 vcc, %1, %1", "v_mov_b32_e32 %0, src_vccz")
ROW(PART_VALU,
    "v_mov_b32_e32 v40, 0" SETTLE "v_lshlrev_b32_sdwa v40, 1, %1 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD",
    "v_add_u32_e32 %0, 1, v40")
ROW(DOT_VALU, ONES "v_mov_b32_e32 v44, 0" SETTLE "v_dot2_f32_f16 v44, v40, v42, v44", "v_add_f32_e32 %0, 1.0, v44")
ROW(STORE_VALU, ONES "v_lshlrev_b32_e32 v44, 4, %1" SETTLE "global_store_dwordx4 v44, v[40:43], %2 offset:64",
    "v_mov_b32_e32 v42, 5\n\ts_waitcnt vmcnt(0)\n\tglobal_load_dword %0, v44, %2 offset:72\n\ts_waitcnt vmcnt(0)")
ROW(M0_COPY, "v_mov_b32_e32 v40, 0\n\ts_mov_b32 m0, 0" SETTLE "s_movk_i32 m0, 0x100",
    "global_load_lds_dword v40, %2\n\ts_waitcnt vmcnt(0)\n\tv_lshlrev_b32_e32 v41, 2, %1\n\tds_read_b32 %0, v41 offset:256\n\ts_waitcnt "
    "lgkmcnt(0)")
ROW(SETREG_GETREG, "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 0" SETTLE "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 3",
    "s_getreg_b32 s20, hwreg(HW_REG_MODE, 0, 4)" SETTLE "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 0\n\tv_mov_b32_e32 %0, s20")
ROW(VGPR_MFMA, ONES "v_mov_b32_e32 v40, 0\n\tv_mov_b32_e32 v41, 0" SETTLE "v_mov_b32_e32 v40, v42",
    MFMA("44:47", "40:41", "0") LONG "v_mov_b32_e32 %0, v44")
ROW(MFMA_C, ONES ZEROS SETTLE MFMA("44:47", "40:41", "0"), MFMA("46:49", "40:41", "v[46:49]") LONG "v_mov_b32_e32 %0, v46")
ROW(MFMA_AB, ONES ZEROS SETTLE MFMA("44:47", "40:41", "0"), MFMA("48:51", "44:45", "0") LONG "v_mov_b32_e32 %0, v48")
ROW(MFMA_READ, ONES ZEROS SETTLE MFMA("44:47", "40:41", "0"), "v_mov_b32_e32 %0, v44")
ROW(MFMA_WRITE, ONES ZEROS SETTLE MFMA("44:47", "40:41", "0"), "v_mov_b32_e32 v44, 7" LONG "v_mov_b32_e32 %0, v44")
ROW(MFMA_ADDEND, ONES ZEROS SETTLE MFMA("44:47", "40:41", "v[48:51]"), "v_mov_b32_e32 v48, 7.0" LONG "v_mov_b32_e32 %0, v44")

static int g_rows = 0;
template <class F>
static std::vector<unsigned> run(F* kernel, int groups = 1) {
  std::vector<unsigned> host(64 * 4 + 16, 9);
  host[0] = 7;
  Dev<unsigned> words(host), out(64 * groups);
  kernel<<<groups, 64>>>(words, out);
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

static int g_groups, g_rounds;
template <class F>
static void count(const char* name, int asked, const std::vector<F*>& by_states, F* many) {
  const std::vector<unsigned> right = run(many, g_groups);
  g_rows++;
  printf("figure hazard.%-14s wrong waves of %d with 0, 1, ... wait states:", name, g_groups * g_rounds);
  for (int states = 0; states <= asked; states++) {
    int wrong = 0;
    for (int i = 0; i < g_rounds; i++) {
      const std::vector<unsigned> got = run(by_states[states], g_groups);
      for (int w = 0; w < g_groups; w++) wrong += memcmp(&got[w * 64], &right[w * 64], 256) != 0;
    }
    printf(" %d", wrong);
    if (states == asked && wrong) expect(false, name);
  }
  printf("\n");
}
#define COUNT(name) count(#name, k_##name, {name<0>, name<1>, name<2>, name<3>, name<4>, name<5>, name<6>, name<7>}, name<16>)

int main(int argc, char** argv) {
  if (argc > 2 && !strcmp(argv[1], "count")) {
    g_groups = atoi(argv[2]), g_rounds = 4;
    COUNT(SGPR_VALU);
    COUNT(SGPR_LANE);
    COUNT(SGPR_VMEM);
    COUNT(VCC_FMAS);
    COUNT(VGPR_READLANE);
    COUNT(VGPR_DPP);
    COUNT(EXEC_LANE);
    COUNT(EXEC_DPP);
    COUNT(EXEC_MFMA);
    COUNT(ZERO_FLAG);
    COUNT(TRANS_VALU);
    COUNT(PART_VALU);
    COUNT(DOT_VALU);
    COUNT(STORE_VALU);
    COUNT(M0_COPY);
    COUNT(SETREG_GETREG);
    COUNT(VGPR_MFMA);
    COUNT(MFMA_C);
    COUNT(MFMA_AB);
    COUNT(MFMA_READ);
    COUNT(MFMA_WRITE);
    COUNT(MFMA_ADDEND);
    EXPECT(g_rows == kAllRows - 2);  // but those of gfx950's swaps of lanes
    return verdict();
  }
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
