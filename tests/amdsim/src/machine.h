// Architectural and micro-architectural state of the simulated device.
#pragma once
#include <deque>
#include <memory>
#include <unordered_map>
#include "common.h"
#include "config.h"
#include "inst.h"
#include "memory.h"

namespace amdsim {

struct Workgroup;
struct Launch;
struct Pending;
struct PendingLds;
struct CodeObject;

// Apertures of the flat address space: LDS and scratch (private).
constexpr u64 kSharedBase = 0x0001000000000000ull;
constexpr u64 kPrivateBase = 0x0002000000000000ull;
constexpr u64 kApertureSize = 0x100000000ull;

enum class WaveState : u8 { Run, Barrier, Ended, Gws };

// Where the time of a wave goes (timing mode).
enum Stall : u8 {
  kStIssue,      // issuing instructions
  kStValu,       // vector ALU busy with other waves
  kStMfma,       // matrix unit busy
  kStVmemIssue,  // address unit busy, or too many operations in flight
  kStLoad,       // s_waitcnt: plain load
  kStCoherent,   // s_waitcnt: load at agent or system scope (polling)
  kStStore,      // s_waitcnt: store
  kStAtomic,     // s_waitcnt: atomic
  kStWb,         // s_waitcnt: buffer_wbl2
  kStInv,        // buffer_inv
  kStLds,        // s_waitcnt: LDS
  kStSmem,       // s_waitcnt: scalar load
  kStBarrier,
  kStSleep,
  kStFetch,  // instruction cache
  kStCount
};

struct WaveTiming {
  struct Op {
    double done;
    u8 kind;
  };
  double t = 0, start = 0;  // clock, in cycles
  double inv_until = 0;     // vector memory waits for a buffer_inv
  Inst* at = nullptr;       // the instruction waited at (barrier)
  Op vm[64], lg[16];        // completion times of operations in flight, oldest first
  u8 vm_head = 0, vm_n = 0, lg_head = 0, lg_n = 0;
  u32 stamp = 0;    // of its entry in the scheduler's heap
  int atomics = 0;  // issued, not yet acted on memory
  double atomics_until = 0;
  double late = 0;        // when the atomic issued last acts, from then on
  u64 code_line = ~0ull;  // of the instruction fetched last
  u32 id = 0;
  double stall[kStCount] = {};
};

constexpr u32 kRecent = 16;  // scalar registers that VALU instructions have written within kScalarStates

constexpr int kVgprCap = 256 + 16;  // physical rows kept per file (slack for wide operands)

struct Wave {
  // s[]: 0..101 SGPRs, 102.. flat_scratch/xnack/vcc/ttmp/m0/exec, 128..255
  // inline constants and aperture registers, so that a source code indexes it.
  alignas(64) u32 s[256];
  u32* v = nullptr;         // v[reg * 64 + lane]
  u32* a = nullptr;         // accumulation VGPRs
  std::vector<u8> scratch;  // lane-major
  u32 scratch_size = 0;     // bytes per lane
  Workgroup* wg = nullptr;
  CodeObject* code = nullptr;  // decode cache of the code it executes
  u64 pc = 0, next_pc = 0;
  int wid = 0;  // wave within its workgroup
  int simd = 0;
  WaveState state = WaveState::Run;
  bool gpr_idx = false;               // s_set_gpr_idx_on is in effect
  i64 sleep = 0;                      // scheduling turns to skip
  int run_slot = -1, live_slot = -1;  // positions in the scheduler's lists
  u64 icount = 0;
  std::vector<Pending*> vq;     // vector memory ops in flight, oldest first
  std::vector<PendingLds*> lq;  // LDS / scalar loads in flight
  WaveTiming tm;
  // hazards.h: wait states since the wave began, and what vector instructions have written lately
  u32 slot = 0, scalar_slot = 0, trans_slot = 0, recent_at = 0, result_at = 0;
  struct Recent {
    u32 slot;
    int reg;  // -1: written once more since
    u32 old;
  } recent[kRecent];
  struct Result {
    const Inst* in;
    u32 slot;
  } result[2];

  u64 exec() const { return s[kExecLo] | ((u64)s[kExecLo + 1] << 32); }
  u64 vcc() const { return s[kVccLo] | ((u64)s[kVccLo + 1] << 32); }
  u32& scc() { return s[253]; }
  u32* vg(int r) { return v + r * kLanes; }
  u32* ag(int r) { return a + r * kLanes; }
  void set64(int r, u64 x) {
    s[r] = (u32)x;
    s[r + 1] = (u32)(x >> 32);
  }
};

struct Workgroup {
  u64 id = 0;
  int device = 0;
  int xcd = 0, cu = 0;  // xcd: counted over all devices; cu: within its XCD
  Launch* launch = nullptr;
  std::vector<u8> lds;
  std::vector<Wave*> waves;
  std::vector<Pending*> pend;  // all vector memory ops in flight, in issue order
  int ended = 0, at_barrier = 0;
  CuCaches* caches = nullptr;
};

struct LaunchStats {
  u64 insts = 0, wbl2 = 0, inv = 0;
  u64 ld[4] = {}, st[4] = {};  // by (sc0, sc1): wave / workgroup / agent / system
  u64 ld_nt = 0, st_nt = 0;
  u64 atomic_agent = 0, atomic_system = 0, lds_ops = 0, smem = 0;
  std::vector<u64> l2_hit, l2_miss;
};

struct KernelInfo;

struct Launch {  // one dispatched grid
  int device = 0;
  const KernelInfo* kernel = nullptr;
  u32 grid[3] = {1, 1, 1};  // workgroups
  u32 block[3] = {1, 1, 1};
  u32 lds_bytes = 0;
  std::vector<u8> kernarg_storage;
  u8* kernarg = nullptr;
  u8* packet = nullptr;                // 64-byte AQL dispatch packet image
  std::vector<std::deque<u64>> queue;  // per XCD of its device: workgroups not yet started, in order
  u64 total = 0, done = 0, resident = 0, peak = 0, at_gws = 0;
  LaunchStats stats;
  double t0 = 0;
  bool cooperative = false;
  // timing mode: cycles; wave time by cause, summed over the waves that ended
  double sim_start = 0, sim_end = 0, wave_time = 0, stall[kStCount] = {};
  u64 waves = 0;
  bool finished = false;
  int error = 0;  // 0, or a LaunchError
};

enum LaunchError { kOk = 0, kFault = 1, kDeadlock = 2 };

// Raised by an instruction that cannot complete. The first one wins.
struct FaultState {
  bool set = false;
  u64 pc = 0;
  Wave* wave = nullptr;
  std::string text;
};
extern FaultState g_fault;
extern Wave* g_cur;  // wave being executed
void fault(const char* fmt, ...) __attribute__((format(printf, 1, 2)));

// Cheap deterministic random numbers (xorshift64*).
extern u64 g_rng_state;
static inline u64 rng() {
  u64 x = g_rng_state;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  g_rng_state = x;
  return x * 0x2545F4914F6CDD1Dull >> 11;
}

extern double g_cycles;  // device clock, in shader cycles

// --- instruction classes (salu/valu handlers are in the tables) ---
MemInfo vmem_info(int op);  // FLAT/MUBUF opcode -> access
void exec_vmem(Wave&, const Inst&);
void exec_mubuf(Wave&, const Inst&);
void exec_smem(Wave&, const Inst&);
void exec_ds(Wave&, const Inst&);
void vmem_wait(Wave&, int outstanding);  // s_waitcnt vmcnt
void lgkm_wait(Wave&, int outstanding);  // s_waitcnt lgkmcnt
void vmem_random_progress(Wave&);
// Timing mode: atomics act some time after they issue. The scheduler takes the
// new ones and performs each at its time.
struct LateAtomic {
  double t;
  Wave* wave;
  Pending* op;
};
extern std::vector<LateAtomic> g_late;
void vmem_perform_late(Pending*, bool same);
void lgkm_push_vgpr(Wave&, u32* dst, int regs, u64 mask);
void lgkm_push_sgpr(Wave&, u32* dst, int regs);
void drop_pending(Wave&);  // after a fault

}  // namespace amdsim
