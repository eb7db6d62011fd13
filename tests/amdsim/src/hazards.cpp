#include "hazards.h"

namespace amdsim {

enum States : u32 {
  k_none = 0,
#define HAZARD(name, states, first, second, one, two, by) HAZARD_##by(name, states)
#define HAZARD_sim(name, states) k_##name = states,
#define HAZARD_isa(name, states)
#include "hazards.inc"
};

static bool begins(const std::string& m, const char* with) { return m.compare(0, strlen(with), with) == 0; }
static bool has(const std::string& m, const char* part) { return m.find(part) != std::string::npos; }

static void classify_vector(Inst& in, const std::string& m) {
  const bool lane = begins(m, "v_readlane") || begins(m, "v_readfirstlane"), compares = begins(m, "v_cmp");
  // Of VOP2 the second source is a vector register.
  const int sources = in.enc == Enc::Vop1 || in.enc == Enc::Vop2 || in.enc == Enc::Vopc ? 1 + in.sdwa : 3;
  for (int k = 0; k < sources; k++)
    if (in.src[k] < 128) in.hazards |= kHzReads;
  if (in.dpp >= 0 || begins(m, "v_cndmask") || begins(m, "v_addc") || begins(m, "v_subb") || begins(m, "v_div_fmas"))
    in.hazards |= kHzReads;
  if (lane) in.scalar = in.vdst, in.scalars = 1;
  else if (compares) in.scalar = in.enc == Enc::Vop3 ? in.vdst : in.sdwa && in.sdst >= 0 ? in.sdst : (i16)kVccLo, in.scalars = 2;
  else if (in.enc == Enc::Vop3sd) in.scalar = in.sdst, in.scalars = 2;
  else if (has(m, "_co_")) in.scalar = kVccLo, in.scalars = 2;
  in.writes_exec = begins(m, "v_cmpx");
  if (in.scalars) in.hazards |= kHzScalars;
  if (lane || begins(m, "v_writelane")) in.hazards |= kHzLane | kHzReads;
  if (begins(m, "v_div_fmas")) in.hazards |= kHzFmas;
  const bool accumulates = begins(m, "v_mfma") || begins(m, "v_smfmac") || begins(m, "v_accvgpr");  // numbers of other registers
  if (!lane && !compares && !accumulates) in.hazards |= kHzResult;
  in.results = has(m, "64") || begins(m, "v_pk_") ? 2 : 1;
  static const char* const trans[] = {"v_exp_f", "v_log_f", "v_rcp_", "v_rsq_f", "v_sqrt_f", "v_sin_f", "v_cos_f"};
  for (const char* t : trans) in.trans |= begins(m, t);
  if (in.dpp >= 0 || lane) in.hazards |= kHzVectors;
}

void hazard_classify(Inst& in, const std::string& m) {
  switch (in.kind) {
    case Kind::Vmem:
    case Kind::Mubuf: in.hazards = kHzReads; break;
    case Kind::Smem: in.hazards = kHzReplaces, in.scalar = in.sdst, in.scalars = 16; break;
    case Kind::Alu:
      if (m[0] == 'v') classify_vector(in, m);
      else if (!begins(m, "s_cmp") && !begins(m, "s_bitcmp") && !begins(m, "s_setreg"))
        in.hazards = kHzReplaces, in.scalar = in.sdst, in.scalars = has(m, "64") ? 2 : 1;
      break;
    default: break;
  }
}

// Wait states before the instruction may read a scalar register that a VALU instruction has written.
static u32 states_of(const Inst& in, int reg) {
  if (in.kind != Kind::Alu) return k_SGPR_VMEM;
  if (reg >= kExecLo) return in.dpp >= 0 ? k_EXEC_DPP : in.hazards & kHzLane ? k_EXEC_LANE : k_none;
  if (in.hazards & kHzFmas && (reg & ~1) == kVccLo) return k_VCC_FMAS;
  return in.hazards & kHzLane && in.enc == Enc::Vop3 && in.src[1] == reg ? k_SGPR_LANE : k_SGPR_VALU;
}

// What is hidden now, the newest last. There is one instruction at a time.
static struct {
  int reg;  // a scalar, or kVgpr0 + a vector register
  u32 now[kLanes];
} g_hidden[kRecent + 6];
static u32 g_n_hidden;

static void hide(Wave& w, int reg, u32 old) {
  auto& h = g_hidden[g_n_hidden++];
  h.reg = reg;
  if (reg < kVgpr0) {
    h.now[0] = w.s[reg];
    w.s[reg] = old;
  } else {
    memcpy(h.now, w.vg(reg - kVgpr0), sizeof h.now);
    std::fill_n(w.vg(reg - kVgpr0), kLanes, old);
  }
}

bool hazard_hide(Wave& w, const Inst& in) {
  g_n_hidden = 0;
  for (u32 k = 0; k < kRecent; k++) {  // the newest first
    const Wave::Recent& r = w.recent[(w.recent_at - 1 - k) % kRecent];
    if (w.slot - r.slot > kScalarStates) break;
    if (r.reg >= 0 && r.slot != w.slot && w.slot - r.slot <= states_of(in, r.reg)) hide(w, r.reg, r.old);
  }
  // Neither a result nor scalars: its numbers are those of accumulation registers.
  if (in.hazards & (kHzResult | kHzScalars) && (in.hazards & kHzVectors || w.trans_slot == w.slot - 1))
    for (const Wave::Result& r : w.result) {
      const u32 before = w.slot - r.slot;  // 1: the one before
      if (!r.in || before > kVectorStates) continue;
      const u32 states = in.dpp >= 0                          ? k_VGPR_DPP
                         : in.hazards & kHzLane && in.scalars ? k_VGPR_READLANE
                         : r.in->trans && !in.trans           ? k_TRANS_VALU
                                                              : k_none;
      if (before > states) continue;
      for (int k = 0; k < 3; k++)
        if (in.src[k] >= kVgpr0 + r.in->vdst && in.src[k] < kVgpr0 + r.in->vdst + r.in->results && g_n_hidden < kRecent + 6)
          hide(w, in.src[k], 0x7fc0beef);
    }
  return g_n_hidden;
}

void hazard_show(Wave& w, const Inst& in) {
  while (g_n_hidden) {
    const auto& h = g_hidden[--g_n_hidden];
    if (h.reg >= kVgpr0) {
      const int reg = h.reg - kVgpr0;
      if (!(in.hazards & kHzResult) || reg < in.vdst || reg >= in.vdst + in.results) memcpy(w.vg(reg), h.now, sizeof h.now);
    } else if (!(h.reg >= in.scalar && h.reg < in.scalar + in.scalars) && !(in.writes_exec && h.reg >= kExecLo)) w.s[h.reg] = h.now[0];
  }
}

static void remember(Wave& w, int reg) { w.recent[w.recent_at++ % kRecent] = {w.slot, (i16)reg, w.s[reg]}; }

void hazard_write(Wave& w, const Inst& in) {
  w.scalar_slot = w.slot;
  for (int k = 0; k < in.scalars; k++) remember(w, in.scalar + k);
  if (in.writes_exec) remember(w, kExecLo), remember(w, kExecLo + 1);
}

void hazard_replace(Wave& w, const Inst& in) {
  for (u32 k = 0; k < kRecent; k++) {
    Wave::Recent& r = w.recent[(w.recent_at - 1 - k) % kRecent];
    if (w.slot - r.slot > kScalarStates) break;
    if (r.reg >= in.scalar && r.reg < in.scalar + in.scalars) r.reg = -1;
  }
}

}  // namespace amdsim
