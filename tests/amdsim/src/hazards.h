// Wait states that the hardware does not insert itself (hazards.inc): an instruction that comes too early finds a scalar
// register's old value, and poison in a vector register.
#pragma once
#include "machine.h"

namespace amdsim {

void hazard_classify(Inst&, const std::string& mnemonic);  // at decode: what it writes and may read

// Hides from an instruction, which is about to execute, what it reads too early. Returns whether hazard_after has to put
// that back.
bool hazard_hide(Wave&, const Inst&);
void hazard_show(Wave&, const Inst&);
void hazard_write(Wave&, const Inst&);    // before a VALU instruction writes scalar registers
void hazard_replace(Wave&, const Inst&);  // of a scalar instruction: what it writes, no later one reads too early

constexpr u32 kScalarStates = 5, kVectorStates = 2;  // no rule asks for more

static inline void hazard_reset(Wave& w) {
  w.slot = 2 * kScalarStates;
  w.scalar_slot = w.trans_slot = 0;
  for (Wave::Recent& r : w.recent) r = {0, -1, 0};
  for (Wave::Result& r : w.result) r = {nullptr, 0};
}
static inline bool hazard_before(Wave& w, const Inst& in) {
  w.slot++;
  if (!in.hazards) return false;
  const bool recent = w.slot - w.scalar_slot <= kScalarStates;
  if (in.hazards & kHzScalars) hazard_write(w, in);
  if (in.hazards & kHzReplaces) {
    if (recent) hazard_replace(w, in);
    return false;
  }
  const bool early = (recent && in.hazards & kHzReads) ||
                     (in.hazards & kHzVectors && w.slot - w.result[w.result_at % 2].slot <= kVectorStates) ||
                     (w.trans_slot == w.slot - 1 && in.kind == Kind::Alu);
  return early && hazard_hide(w, in);
}
static inline void hazard_after(Wave& w, const Inst& in, bool hidden) {
  if (hidden) hazard_show(w, in);
  if (in.hazards & kHzResult) {
    w.result[++w.result_at % 2] = {&in, w.slot};
    if (in.trans) w.trans_slot = w.slot;
  }
}

}  // namespace amdsim
