// The timing model; see timing.h and README.md.
#include "timing.h"
#include "code_object.h"

namespace amdsim {

bool g_timed = false;
TimingConstants g_tc;
double g_sim_now = 0;

static const char* const kStallNames[kStCount] = {
    "issue",       "vector ALU busy", "matrix unit busy", "address unit", "wait: load", "wait: coherent load",
    "wait: store", "wait: atomic",    "wait: write-back", "buffer_inv",   "wait: LDS",  "wait: scalar load",
    "s_barrier",   "s_sleep",         "instruction fetch"};

// ---------------------------------------------------------------- tags
// Set associative, least recently used. The number of the line and an epoch
// form the tag, so that invalidation is one increment.
namespace {
struct Tags {
  u32 ways = 0, sets = 0, tick = 0;
  u64 epoch = 1;
  std::vector<u64> tag;
  std::vector<u32> used;
  std::vector<double> ready;  // when the line arrives
  std::vector<u8> dirty;
  void init(u64 bytes, u32 line_bytes, u32 w) {
    ways = w;
    sets = 1;
    while ((u64)sets * 2 * ways * line_bytes <= bytes) sets *= 2;
    size_t n = (size_t)sets * ways;
    tag.assign(n, 0);
    used.assign(n, 0);
    ready.assign(n, 0);
    dirty.assign(n, 0);
  }
  bool ok() const { return !tag.empty(); }
  u64 key(u64 line) const { return line | epoch << 44; }
  u32 base(u64 line) const { return (u32)((line ^ (line >> 11) ^ (line >> 23)) & (sets - 1)) * ways; }
  i64 find(u64 line) {
    const u64 k = key(line);
    const u32 b = base(line);
    const u64* t = &tag[b];
    for (u32 w = 0; w < ways; w++)
      if (t[w] == k) {
        used[b + w] = ++tick;
        return b + w;
      }
    return -1;
  }
  // Makes room; *victim is the line lost if it was dirty, else ~0.
  u32 put(u64 line, double when, u64* victim, bool first_out = false) {
    const u32 b = base(line);
    u32 v = b;
    for (u32 w = 0; w < ways; w++) {
      if (tag[b + w] >> 44 != epoch && !dirty[b + w]) {
        v = b + w;
        break;
      }
      if (used[b + w] < used[v]) v = b + w;
    }
    *victim = dirty[v] ? tag[v] & ((1ull << 44) - 1) : ~0ull;
    tag[v] = key(line);
    used[v] = first_out ? 0 : ++tick;
    ready[v] = when;
    dirty[v] = 0;
    return v;
  }
};

struct InFlight {  // bytes a CU waits for
  std::vector<std::pair<double, u32>> heap;
  u64 now = 0, peak = 0;
  void add(double t, double done, u32 bytes) {
    auto later = [](const std::pair<double, u32>& a, const std::pair<double, u32>& b) { return a > b; };
    while (!heap.empty() && heap.front().first <= t) {
      now -= heap.front().second;
      std::pop_heap(heap.begin(), heap.end(), later);
      heap.pop_back();
    }
    heap.push_back({done, bytes});
    std::push_heap(heap.begin(), heap.end(), later);
    now += bytes;
    peak = std::max(peak, now);
  }
};

struct CuTime {
  Tags l1, k;
  double ta = 0, lds = 0, pair[2] = {}, valu[4] = {}, mfma[4] = {};
  double byte_cycles = 0;
  InFlight flight;
};

struct Counters {
  u64 l1_lines = 0, l1_hit = 0;
  u64 l2 = 0, l2_hit = 0, mall = 0, hbm = 0, l2_wr = 0, mall_wr = 0, hbm_wr = 0, coherent = 0, atomics = 0, wbl2 = 0, wb_lines = 0, inv = 0;
  double valu = 0, mfma = 0, lds = 0;
};

struct XcdTime {
  Tags l2;
  std::vector<u32> dirty;  // entries of l2 that may be dirty
  double l2_free[16] = {}, fabric[16] = {}, dispatch = 0;
  Counters c;
};

struct LineServer {
  u64 line = ~0ull;
  double free = 0;
  int owner = -1;  // the XCD that alone has changed or read it coherently since another one has
};
}  // namespace

static std::vector<CuTime> g_cus;
static std::vector<Tags> g_code;  // instruction caches, each of two CUs
static std::vector<XcdTime> g_xcds;
static Tags g_mall;
static double g_mall_free[128], g_hbm_free[128];
static constexpr u32 kLineServers = 1 << 16;
static std::vector<LineServer> g_line;
static double g_ops_end = 0;  // completion of the last memory operation
static u32 g_wave_id = 0;
static FILE* g_timeline = nullptr;
static bool g_timeline_first = true;
static u64 g_timeline_events = 0;

static CuTime& cu_of(const Wave& w) { return g_cus[(size_t)w.wg->xcd * config().cus + w.wg->cu]; }
static XcdTime& xcd_of(const Wave& w) { return g_xcds[w.wg->xcd]; }
static double us(double cycles) { return cycles / g_tc.clock_mhz; }

static void list_constants() {
  fprintf(stderr, "amdsim: constants of the timing model\n");
#define X(name, value, unit, source) fprintf(stderr, "  %-15s %8g %-7s %s\n", #name, g_tc.name, unit, source);
  TIMING_CONSTANTS(X)
#undef X
}

static void timeline_close() {
  if (!g_timeline) return;
  fprintf(g_timeline, "\n]}\n");
  fclose(g_timeline);
  g_timeline = nullptr;
}

static void timeline(const Wave& w, const std::string& name, double from, double to) {
  if (!g_timeline || g_timeline_events >= 2000000) return;
  g_timeline_events++;
  fprintf(g_timeline, "%s{\"name\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid\":%d}", g_timeline_first ? "" : ",\n",
          name.c_str(), us(from), us(to - from), w.wg->xcd, w.wg->cu);
  g_timeline_first = false;
}

void timing_init() {
  const Config& c = config();
  if (!c.timed || g_timed) return;
  g_timed = true;
  g_cus.resize((size_t)c.xcds * c.cus);
  g_xcds.resize(c.xcds);
  g_code.resize((size_t)c.xcds * ((c.cus + 1) / 2));
  for (XcdTime& x : g_xcds) x.l2.init((u64)c.l2_kb * 1024, 128, 16);
  g_mall.init(256ull << 20, 128, 16);
  g_line.resize(kLineServers);
  if (const char* e = getenv("AMDSIM_TIMING")) {
    std::string all = e;
    for (size_t at = 0; at < all.size();) {
      size_t end = std::min(all.find(',', at), all.size()), eq = all.find('=', at);
      std::string key = all.substr(at, std::min(eq, end) - at);
      bool known = key == "list" || key.empty();
      if (key == "list") list_constants();
#define X(name, value, unit, source)                            \
  if (key == #name && eq < end) {                               \
    g_tc.name = atof(all.substr(eq + 1, end - eq - 1).c_str()); \
    known = true;                                               \
  }
      TIMING_CONSTANTS(X)
#undef X
      if (!known) {
        fprintf(stderr, "amdsim: AMDSIM_TIMING: '%s' is unknown; AMDSIM_TIMING=list shows the names\n", key.c_str());
        exit(2);
      }
      at = end + 1;
    }
  }
  if (const char* f = getenv("AMDSIM_TIMELINE")) {
    g_timeline = fopen(f, "w");
    if (g_timeline) fprintf(g_timeline, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    atexit(timeline_close);
  }
}

// ---------------------------------------------------------------- instructions
static int mfma_passes(const std::string& m) {
  int a = 0, b = 0, k = 0;
  const char* p = strchr(m.c_str(), '_');
  for (; p; p = strchr(p + 1, '_'))
    if (sscanf(p, "_%dx%dx%d", &a, &b, &k) == 3) break;
  const bool f64 = m.find("_f64_") != std::string::npos, xf32 = m.find("xf32") != std::string::npos;
  const size_t last = m.rfind('_');
  const bool f32 = !xf32 && m.compare(last, std::string::npos, "_f32") == 0;
  const bool blocks = m.find("b_") != std::string::npos && (m.find("_2b_") != std::string::npos || m.find("_4b_") != std::string::npos);
  if (f64) return a == 16 ? 8 : 4;
  if (a == 4) return 2;
  if (a == 16) return f32 || blocks ? 8 : 4;
  return f32 || blocks ? 16 : 8;
}

void timing_classify(Inst& in, const std::string& m) {
  if (in.kind != Kind::Alu) return;
  if (m[0] == 's') return;
  if (m.compare(0, 7, "v_mfma_") == 0 || m.compare(0, 9, "v_smfmac_") == 0) {
    in.unit = 2;
    in.cycles = (u8)mfma_passes(m);
    return;
  }
  in.unit = 1;
  static const char* const quarter[] = {"v_exp_",    "v_log_",        "v_rcp_",        "v_rsq_",        "v_sqrt_",
                                        "v_sin_",    "v_cos_",        "v_cvt_f32_f16", "v_cvt_f16_f32", "v_mul_lo_u32",
                                        "v_mul_hi_", "v_mad_u64_u32", "v_mad_i64_i32"};
  in.cycles = 0;
  for (const char* q : quarter)
    if (m.compare(0, strlen(q), q) == 0) in.cycles = 1;
}

static void charge(Wave& w, const Inst& in, Stall cause, double until) {
  if (until <= w.tm.t) return;
  const double d = until - w.tm.t;
  w.tm.stall[cause] += d;
  const_cast<Inst&>(in).stall += d;
  if (g_timeline && w.wid == 0 && d > 0.3 * g_tc.clock_mhz) timeline(w, kStallNames[cause], w.tm.t, until);
  w.tm.t = until;
}

static void spend(Wave& w, double cycles) {
  w.tm.stall[kStIssue] += cycles;
  w.tm.t += cycles;
}

void timing_fetch(Wave& w) {
  constexpr u64 kLine = (1ull << 44) - 1;
  const u64 line = w.pc >> 7 & kLine;
  if (line == w.tm.code_line || g_tc.icache_kb <= 0) return;
  w.tm.code_line = line;
  Tags& c = g_code[(size_t)w.wg->xcd * ((config().cus + 1) / 2) + w.wg->cu / 2];
  if (!c.ok()) c.init((u64)g_tc.icache_kb << 10, 128, 8);
  const i64 i = c.find(line);
  double there = w.tm.t + g_tc.icache_miss;
  u64 lost;
  if (i >= 0) there = c.ready[i];
  else c.put(line, there, &lost);
  if (there > w.tm.t) {
    w.tm.stall[kStFetch] += there - w.tm.t;
    w.tm.t = there;
  }
}

void timing_alu(Wave& w, Inst& in) {
  if (in.unit == 0) {
    spend(w, g_tc.issue);
    return;
  }
  CuTime& c = cu_of(w);
  const int s = w.simd;
  charge(w, in, kStValu, c.valu[s]);
  if (in.unit == 2) {
    charge(w, in, kStMfma, c.mfma[s]);
    const double d = in.cycles * g_tc.mfma_pass;
    c.mfma[s] = w.tm.t + d;
    c.valu[s] = std::max(c.valu[s], w.tm.t + g_tc.issue);
    xcd_of(w).c.mfma += d;
    spend(w, g_tc.issue);
    return;
  }
  const double d = in.cycles ? g_tc.valu_quarter : g_tc.valu;
  c.valu[s] = w.tm.t + d;
  xcd_of(w).c.valu += d;
  spend(w, d);
}

void timing_issue(Wave& w, Inst&, double cycles) { spend(w, cycles); }
void timing_sleep(Wave& w, Inst& in, double cycles) {
  spend(w, g_tc.issue);
  charge(w, in, kStSleep, w.tm.t + cycles);
}

static WaveTiming::Op vm_pop(WaveTiming& m) {
  WaveTiming::Op o = m.vm[m.vm_head];
  m.vm_head = (m.vm_head + 1) & 63;
  m.vm_n--;
  return o;
}

static void vm_push(Wave& w, const Inst& in, double done, u8 kind) {
  WaveTiming& m = w.tm;
  if (m.vm_n == 63) charge(w, in, kStVmemIssue, vm_pop(m).done);  // the counter has 6 bits
  if (m.vm_n) {                                                   // operations are counted in order
    const WaveTiming::Op& last = m.vm[(m.vm_head + m.vm_n - 1) & 63];
    if (last.done > done) done = last.done, kind = last.kind;
  }
  m.vm[(m.vm_head + m.vm_n++) & 63] = {done, kind};
  g_ops_end = std::max(g_ops_end, done);
}

static void lg_push(Wave& w, const Inst& in, double done, u8 kind) {
  WaveTiming& m = w.tm;
  if (m.lg_n == 15) {
    charge(w, in, (Stall)m.lg[m.lg_head].kind, m.lg[m.lg_head].done);
    m.lg_head = (m.lg_head + 1) & 15;
    m.lg_n--;
  }
  if (m.lg_n) {
    const WaveTiming::Op& last = m.lg[(m.lg_head + m.lg_n - 1) & 15];
    if (last.done > done) done = last.done, kind = last.kind;
  }
  m.lg[(m.lg_head + m.lg_n++) & 15] = {done, kind};
}

void timing_wait(Wave& w, Inst& in, int vm, int lgkm) {
  WaveTiming& m = w.tm;
  spend(w, g_tc.issue);
  while (m.vm_n > vm) {
    WaveTiming::Op o = vm_pop(m);
    charge(w, in, (Stall)o.kind, o.done);
  }
  while (m.lg_n > lgkm) {
    charge(w, in, (Stall)m.lg[m.lg_head].kind, m.lg[m.lg_head].done);
    m.lg_head = (m.lg_head + 1) & 15;
    m.lg_n--;
  }
}

// ---------------------------------------------------------------- memory
static inline u64 mix(u64 x) {
  x *= 0x9E3779B97F4A7C15ull;
  return x ^ (x >> 32);
}
// 256-byte interleave over the channels of an L2 and of a stack of HBM, 4 KB over the stacks. Slices of the memory-side cache
// and HBM channels are one to one; those of two stacks are at one IO die, as two XCDs are.
static inline u32 l2_channel(u64 line) { return (u32)(mix(line >> 1) >> 20) & 15; }
static inline u32 slice_of(u64 line) { return ((u32)(mix(line >> 5) >> 33) & 7) << 4 | ((u32)(mix(line >> 1) >> 40) & 15); }
// How much longer than the mean the way to a slice is; the four IO dies form a square.
static double way(int xcd, u32 slice) {
  if (config().xcds != 8) return 0;
  return g_tc.iod_hop * (__builtin_popcount((xcd >> 1) ^ (slice >> 5)) - 1);
}

static inline double serve(double& free, double at, double cost) {
  const double s = std::max(free, at);
  free = s + cost;
  return s;
}

static LineServer& line_server(u64 line) {
  LineServer& l = g_line[(mix(line) >> 11) & (kLineServers - 1)];
  if (l.line != line) l = {line, 0};
  return l;
}

// The line is there at `ready`; its victim is written to HBM from `start` on, when room is made for it. (A victim that
// is served at `ready` would keep its channel from requests that come before.)
static void mall_put(u64 line, double start, double ready, bool dirty, XcdTime& x) {
  u64 lost;
  u32 i = g_mall.put(line, ready, &lost);
  g_mall.dirty[i] = dirty;
  if (lost != ~0ull) {
    serve(g_hbm_free[slice_of(lost)], start, g_tc.hbm_line);
    x.c.hbm_wr += 128;
  }
}

// A request leaves L2 at t; returns when its data (or acknowledgement) is back.
enum class Mem { Read, Write, Coherent, Atomic };
static double memory(XcdTime& x, u64 line, double t, Mem kind, int ops, bool host) {
  const bool coherent = kind == Mem::Coherent || kind == Mem::Atomic;
  const u32 ch = l2_channel(line), sl = slice_of(line);
  const int xcd = (int)(&x - g_xcds.data());
  const double hop = ((coherent ? g_tc.coherent : g_tc.mall_hit) - g_tc.l2_hit + way(xcd, sl)) / 2;
  const double e = serve(x.fabric[ch], t, g_tc.fabric_line);
  if (host) return e + 2 * hop + g_tc.host_memory;
  double m = serve(g_mall_free[sl], e + hop, g_tc.mall_line);
  if (coherent) {
    LineServer& l = line_server(line);
    m = serve(l.free, m, kind == Mem::Atomic ? g_tc.line_atomic + (ops - 1) : g_tc.line_load);
    if (kind == Mem::Atomic || l.owner != xcd) l.owner = kind == Mem::Atomic ? xcd : -1;
  }
  const i64 j = g_mall.find(line);
  if (kind == Mem::Write) {
    x.c.mall_wr += 128;
    if (j >= 0) g_mall.dirty[j] = 1;
    else mall_put(line, m, m, true, x);
    return m + hop;
  }
  double r = m;
  if (j >= 0) {
    r = std::max(m, g_mall.ready[j]);
    x.c.mall += 128;
  } else {
    r = serve(g_hbm_free[sl], m, g_tc.hbm_line) + (g_tc.hbm - g_tc.mall_hit);
    x.c.hbm += 128;
    mall_put(line, m, r, kind == Mem::Atomic, x);
  }
  if (kind == Mem::Atomic) r += g_tc.atomic - g_tc.coherent;
  return r + hop;
}

static void l2_drop(XcdTime& x, u64 lost, double t) {
  if (lost != ~0ull) memory(x, lost, t, Mem::Write, 1, false);
}

// A read arrives at L2 at t; returns when the data is back at L2.
static double l2_read(XcdTime& x, u64 line, double t, bool nt, bool host) {
  const double s = serve(x.l2_free[l2_channel(line)], t, g_tc.l2_line);
  x.c.l2 += 128;
  if (host) return memory(x, line, s, Mem::Read, 1, true);
  const i64 i = x.l2.find(line);
  if (i >= 0) {
    x.c.l2_hit += 128;
    return std::max(s, x.l2.ready[i]);
  }
  const double r = memory(x, line, s, Mem::Read, 1, false);
  u64 lost;
  x.l2.put(line, r, &lost, nt);
  l2_drop(x, lost, s);
  return r;
}

static double l2_write(XcdTime& x, u64 line, double t, bool through, bool host) {
  const double s = serve(x.l2_free[l2_channel(line)], t, g_tc.l2_write_line);
  x.c.l2_wr += 128;
  if (host || through) return memory(x, line, s, Mem::Write, 1, host);
  i64 i = x.l2.find(line);
  if (i < 0) {
    u64 lost;
    i = x.l2.put(line, s, &lost);
    l2_drop(x, lost, s);
  }
  if (!x.l2.dirty[i]) {
    x.l2.dirty[i] = 1;
    x.dirty.push_back((u32)i);
  }
  return s;
}

static double write_back(XcdTime& x, double t) {
  double end = t;
  for (u32 i : x.dirty) {
    if (!x.l2.dirty[i]) continue;
    x.l2.dirty[i] = 0;
    const u64 line = x.l2.tag[i] & ((1ull << 44) - 1);
    const double s = serve(x.l2_free[l2_channel(line)], t, g_tc.l2_write_line);
    end = std::max(end, memory(x, line, s, Mem::Write, 1, false));
    x.c.wb_lines++;
  }
  x.dirty.clear();
  return end;
}

static void invalidate_l2(XcdTime& x) {
  x.l2.epoch++;
  for (u32 i : x.dirty)
    if (x.l2.dirty[i]) x.l2.tag[i] = x.l2.key(x.l2.tag[i] & ((1ull << 44) - 1));  // dirty lines stay
}

void timing_vmem(Wave& w, const Inst& in, const u64* addr, u64 mask) {
  struct Line {
    u64 line;
    u32 bytes, ops;
  } lines[130];
  int n = 0;
  const MemInfo& m = in.mem;
  for (u64 left = mask; left; left &= left - 1) {
    const int l = __builtin_ctzll(left);
    u64 first = addr[l] >> 7, last = (addr[l] + m.bytes - 1) >> 7;
    for (u64 x = first; x <= last; x++) {
      int i = n - 1;
      while (i >= 0 && lines[i].line != x) i--;
      if (i < 0) {
        i = n++;
        lines[i] = {x, 0, 0};
      }
      lines[i].bytes += m.bytes;
      lines[i].ops++;
    }
  }
  CuTime& c = cu_of(w);
  XcdTime& x = xcd_of(w);
  bool host = false;
  if (mask) {
    const Range* r = range_of(addr[__builtin_ctzll(mask)], 1);
    host = r && (r->flags & kMemHost);
  }
  charge(w, in, kStInv, w.tm.inv_until);
  charge(w, in, kStVmemIssue, c.ta - g_tc.ta_queue);
  double at = std::max(c.ta, w.tm.t);
  const double ta0 = at;
  double done = at + g_tc.l1_hit;
  u8 kind = m.atomic ? kStAtomic : m.store ? kStStore : in.sc1 || host ? kStCoherent : kStLoad;
  if (!m.store && !m.atomic && !in.sc1 && !c.l1.ok()) c.l1.init(32 * 1024, 128, 64);
  u32 missed = 0;
  const double leg = g_tc.l2_hit / 2;
  w.tm.late = g_tc.owned / 2;
  for (int i = 0; i < n; i++) {
    const u64 line = lines[i].line;
    // Lanes that read the same bytes are served together; a line has 128 of them.
    at += std::max(1.0, std::min(lines[i].bytes, 128u) / g_tc.ta_bytes);
    double r;
    if (m.atomic && !host && line_server(line).owner == (int)(&x - g_xcds.data())) {
      x.c.atomics++;
      r = serve(line_server(line).free, at, g_tc.line_owned + (lines[i].ops - 1)) + g_tc.owned;
    } else if (m.atomic) {
      x.c.atomics++;
      w.tm.late = g_tc.atomic_late;
      const double s = serve(x.l2_free[l2_channel(line)], at + leg, g_tc.l2_line);
      r = memory(x, line, s, Mem::Atomic, (int)lines[i].ops, host) + leg;
    } else if (m.store) {
      r = l2_write(x, line, at + leg, in.sc1, host) + leg;
    } else if (in.sc1) {
      x.c.coherent++;
      const double s = serve(x.l2_free[l2_channel(line)], at + leg, g_tc.l2_line);
      r = memory(x, line, s, Mem::Coherent, 1, host) + leg;
      missed += 128;
    } else {
      x.c.l1_lines++;
      const i64 h = in.sc0 ? -1 : c.l1.find(line);
      if (h >= 0) {
        x.c.l1_hit++;
        r = std::max(at + g_tc.l1_hit, c.l1.ready[h]);
      } else {
        r = l2_read(x, line, at + leg, in.nt, host) + leg;
        u64 lost;
        c.l1.put(line, r, &lost);
        missed += 128;
      }
    }
    done = std::max(done, r);
  }
  at = std::max(at, ta0 + g_tc.ta_min);
  c.ta = at;
  if (missed) {
    c.byte_cycles += missed * (done - w.tm.t);
    c.flight.add(w.tm.t, done, missed);
  }
  // It has acted when its wave goes on: near memory may answer sooner than others' atomics act.
  w.tm.late = std::min(w.tm.late, done - w.tm.t - 2 * g_tc.issue);
  vm_push(w, in, done, kind);
  spend(w, g_tc.issue);
}

void timing_scratch(Wave& w, const Inst& in) {  // private memory: taken as hits in L1
  CuTime& c = cu_of(w);
  charge(w, in, kStVmemIssue, c.ta - g_tc.ta_queue);
  c.ta = std::max(c.ta, w.tm.t) + std::max(g_tc.ta_min, 64.0 * in.mem.bytes / g_tc.ta_bytes);
  vm_push(w, in, c.ta + g_tc.l1_hit, in.mem.store ? kStStore : kStLoad);
  spend(w, g_tc.issue);
}

void timing_wbl2(Wave& w, const Inst& in) {
  XcdTime& x = xcd_of(w);
  charge(w, in, kStInv, w.tm.inv_until);
  double done = w.tm.t + g_tc.issue;
  if (in.sc1) {
    x.c.wbl2++;
    // The write-back follows the stores of this workgroup to the L2.
    double t = w.tm.t;
    const double end = write_back(x, t + g_tc.l2_hit / 2);
    done = std::max(t + g_tc.wbl2, end + g_tc.l2_hit / 2);
  }
  vm_push(w, in, done, kStWb);
  spend(w, g_tc.issue);
}

void timing_inv(Wave& w, const Inst& in) {
  charge(w, in, kStInv, w.tm.inv_until);
  XcdTime& x = xcd_of(w);
  CuTime& c = cu_of(w);
  if (in.sc0 || in.sc1) {
    c.l1.epoch++;
    x.c.inv++;
  }
  if (in.sc1) invalidate_l2(x);
  w.tm.inv_until = w.tm.t + (in.sc1 ? g_tc.inv : in.sc0 ? g_tc.inv_l1 : 0);
  spend(w, g_tc.issue);
}

void timing_smem(Wave& w, const Inst& in, u64 addr, u32 bytes) {
  CuTime& c = cu_of(w);
  XcdTime& x = xcd_of(w);
  double done = w.tm.t + g_tc.smem_hit;
  if (!c.k.ok()) c.k.init(16 * 1024, 64, 16);
  if (bytes)
    for (u64 l = addr >> 6; l <= (addr + bytes - 1) >> 6; l++) {
      const i64 h = c.k.find(l);
      if (h >= 0) {
        done = std::max(done, c.k.ready[h]);
        continue;
      }
      const double leg = g_tc.l2_hit / 2, r = l2_read(x, l >> 1, w.tm.t + leg, false, false) + leg;
      u64 lost;
      c.k.put(l, r, &lost);
      done = std::max(done, r);
    }
  lg_push(w, in, done, kStSmem);
  spend(w, g_tc.issue);
}

// ---------------------------------------------------------------- LDS
// 32 banks of 4 bytes: in one cycle 32 lanes of 4 bytes, 16 of 8 or 8 of 16.
static int bank_cycles(const u32* addr, u64 mask, int bytes) {
  const int group = bytes >= 16 ? 8 : bytes > 4 ? 16 : 32, words = std::max(1, bytes / 4);
  int cycles = 0;
  for (int g = 0; g < 64; g += group) {
    u32 seen[32][8];
    u8 n[32] = {};
    int worst = 0;
    const u64 part = mask >> g & ((group == 64 ? 0 : 1ull << group) - 1);
    for (u64 left = part; left; left &= left - 1) {
      const u32 a = addr[g + __builtin_ctzll(left)] >> 2;
      for (int k = 0; k < words; k++) {
        const u32 b = (a + k) & 31;
        int i = 0;
        while (i < n[b] && i < 8 && seen[b][i] != a + k) i++;
        if (i < n[b] && i < 8) continue;
        if (n[b] < 8) seen[b][n[b]] = a + k;
        worst = std::max<int>(worst, ++n[b]);
      }
    }
    cycles += worst;
  }
  return cycles;
}

void timing_lds(Wave& w, const Inst& in, int accesses, int bytes, const u32* addr, const u32* addr2, u64 mask) {
  CuTime& c = cu_of(w);
  double transfer = 4, banks = 0;
  if (bytes) {
    banks = bank_cycles(addr, mask, bytes);
    if (addr2) banks += bank_cycles(addr2, mask, bytes);
    transfer = std::max({(double)accesses * bytes * __builtin_popcountll(mask) / g_tc.lds_pair_bytes, banks, 1.0});
  }
  double& pair = c.pair[w.simd >> 1];
  charge(w, in, kStLds, pair - 64);  // the queue to the LDS
  const double s = std::max({w.tm.t, pair, c.lds - transfer});
  pair = s + transfer;
  c.lds = std::max(c.lds, w.tm.t) + banks;
  xcd_of(w).c.lds += banks;
  lg_push(w, in, std::max(pair, c.lds) + g_tc.lds_latency, kStLds);
  spend(w, g_tc.issue);
}

// ---------------------------------------------------------------- waves
void timing_barrier_arrive(Wave& w, Inst& in) {
  spend(w, g_tc.issue);
  w.tm.at = &in;
}

double timing_barrier_release(const std::vector<Wave*>& waves, double now) {
  double t = now;
  for (Wave* w : waves)
    if (w->state == WaveState::Barrier || w->state == WaveState::Gws) t = std::max(t, w->tm.t);
  t += g_tc.barrier;
  for (Wave* w : waves)
    if ((w->state == WaveState::Barrier || w->state == WaveState::Gws) && w->tm.at) charge(*w, *w->tm.at, kStBarrier, t);
  return t;
}

double timing_dispatch(int xcd, int waves, double not_before) {
  const double s = serve(g_xcds[xcd].dispatch, not_before, waves * g_tc.wave_start);
  return s + g_tc.group_start;
}

void timing_wave_start(Wave& w) {
  const u32 stamp = w.tm.stamp;
  const double t = w.tm.t;
  w.tm = WaveTiming();
  w.tm.stamp = stamp;
  w.tm.t = w.tm.start = t;
  w.tm.id = ++g_wave_id;
}

void timing_wave_end(Wave& w) {
  Launch* L = w.wg->launch;
  for (int i = 0; i < kStCount; i++) L->stall[i] += w.tm.stall[i];
  L->wave_time += w.tm.t - w.tm.start;
  L->waves++;
  L->sim_end = std::max(L->sim_end, w.tm.t);
  if (g_timeline && w.wid == 0) timeline(w, "wg " + std::to_string(w.wg->id) + " " + L->kernel->name.substr(0, 40), w.tm.start, w.tm.t);
}

static std::vector<Counters> g_at_start;

void timing_launch_start(Launch* L) {
  L->sim_start = g_sim_now + (L->cooperative ? g_tc.launch_coop_us : g_tc.launch_us) * g_tc.clock_mhz;
  L->sim_end = L->sim_start;
  for (XcdTime& x : g_xcds) invalidate_l2(x);
  // Between launches a device has the time to write back what its memory-side cache holds: what a kernel that filled buffers has
  // left is no affair of the next one.
  std::fill(g_mall.dirty.begin(), g_mall.dirty.end(), 0);
  for (CuTime& c : g_cus) {
    c.l1.epoch++;
    c.k.epoch++;
    c.byte_cycles = 0;
    c.flight.peak = 0;
  }
  g_at_start.clear();
  for (XcdTime& x : g_xcds) g_at_start.push_back(x.c);
}

void timing_launch_end(Launch* L) {
  double end = std::max(L->sim_end, g_ops_end);
  for (XcdTime& x : g_xcds) {
    const bool dirty = !x.dirty.empty();
    const double e = write_back(x, end);
    L->sim_end = std::max(L->sim_end, dirty ? e : end);
  }
  g_sim_now = std::max(g_sim_now, L->sim_end);
}

void timing_print(Launch* L, int hot) {
  const double cycles = L->sim_end - L->sim_start, t = us(cycles) * 1e-6;
  if (g_at_start.size() != g_xcds.size() || !(cycles > 0)) return;
  Counters s;
  std::vector<Counters> per;
  for (size_t i = 0; i < g_xcds.size(); i++) {
    Counters a = g_xcds[i].c;
    const Counters& b = g_at_start[i];
#define D(f) a.f -= b.f, s.f += a.f
    D(l1_lines);
    D(l1_hit);
    D(l2);
    D(l2_hit);
    D(mall);
    D(hbm);
    D(l2_wr);
    D(mall_wr);
    D(hbm_wr);
    D(coherent);
    D(atomics);
    D(wbl2);
    D(wb_lines);
    D(inv);
    D(valu);
    D(mfma);
    D(lds);
#undef D
    per.push_back(a);
  }
  auto gb = [&](u64 b) { return b / t / 1e9; };
  auto mb = [](u64 b) { return b / 1e6; };
  const double from_memory = (double)s.mall + s.hbm;
  fprintf(stderr, "  timed: %.3f us simulated (launch overhead of %.1f us not counted), %.0f cycles\n", us(cycles),
          L->cooperative ? g_tc.launch_coop_us : g_tc.launch_us, cycles);
  fprintf(stderr,
          "  read: HBM %.2f MB (%.0f GB/s, %.1f %% of 5300), MALL %.2f MB (%.0f GB/s), L2 hits %.2f MB (%.0f GB/s); L1 hit rate %.1f %%\n",
          mb(s.hbm), gb(s.hbm), gb(s.hbm) / 53, mb(s.mall), gb(s.mall), mb(s.l2_hit), gb(s.l2_hit),
          s.l1_lines ? 100.0 * s.l1_hit / s.l1_lines : 0.0);
  fprintf(stderr,
          "  written: to L2 %.2f MB, to MALL %.2f MB, to HBM %.2f MB; coherent loads %llu lines, atomics %llu lines, write-backs %llu "
          "(%llu lines), invalidations %llu\n",
          mb(s.l2_wr), mb(s.mall_wr), mb(s.hbm_wr), (unsigned long long)s.coherent, (unsigned long long)s.atomics,
          (unsigned long long)s.wbl2, (unsigned long long)s.wb_lines, (unsigned long long)s.inv);
  fprintf(stderr, "  per XCD, MB from memory / L2 hits:");
  for (auto& a : per) fprintf(stderr, " %.1f/%.1f", mb(a.hbm + a.mall), mb(a.l2_hit));
  double flight = 0;
  u64 peak = 0;
  int used = 0;
  for (CuTime& c : g_cus)
    if (c.byte_cycles > 0) {
      flight += c.byte_cycles / cycles;
      peak = std::max(peak, c.flight.peak);
      used++;
    }
  fprintf(stderr, "\n  loads in flight per CU: mean %.1f KB, peak %.1f KB (%d CUs); from memory %.0f GB/s in all\n",
          used ? flight / used / 1024 : 0.0, peak / 1024.0, used, from_memory / t / 1e9);
  const double simds = (double)g_cus.size() * 4 * cycles;
  fprintf(stderr, "  busy: vector ALUs %.1f %%, matrix units %.1f %%, LDS %.1f %% of all %zu CUs\n", 100 * s.valu / simds,
          100 * s.mfma / simds, 100 * s.lds / (g_cus.size() * cycles), g_cus.size());
  std::vector<std::pair<double, int>> order;
  for (int i = 0; i < kStCount; i++) order.push_back({L->stall[i], i});
  std::sort(order.rbegin(), order.rend());
  fprintf(stderr, "  wave time (%llu waves):", (unsigned long long)L->waves);
  for (auto& o : order)
    if (o.first > 0.0005 * L->wave_time) fprintf(stderr, " %s %.1f %%;", kStallNames[o.second], 100 * o.first / L->wave_time);
  fprintf(stderr, "\n");
  CodeObject* co = L->kernel->code;
  std::vector<std::pair<double, u64>> h;
  for (u64 pc = (u64)co->base; co->contains(pc); pc += 4) {
    Inst& in = co->slot(pc);
    if (in.stall > 0) h.push_back({in.stall, pc});
  }
  std::sort(h.rbegin(), h.rend());
  if (!h.empty()) fprintf(stderr, "  instructions waited at (share of wave time, mean wait in cycles, times executed):\n");
  const size_t show = std::max(hot, 8);
  for (size_t i = 0; i < h.size() && i < show; i++) {
    std::string text;
    Inst& in = co->slot(h[i].second);
    disassemble(*co, h[i].second, &text);
    fprintf(stderr, "  %6.2f %% %9.0f %10llu  +0x%05llx  %s\n", 100 * h[i].first / L->wave_time, h[i].first / std::max<u64>(1, in.count),
            (unsigned long long)in.count, (unsigned long long)(h[i].second - (u64)co->base), text.c_str());
  }
}

// Counts of the next launch start at 0.
void timing_reset_counts(Launch* L) {
  CodeObject* co = L->kernel->code;
  for (u64 pc = (u64)co->base; co->contains(pc); pc += 4) {
    Inst& in = co->slot(pc);
    in.count = 0;
    in.stall = 0;
  }
}

}  // namespace amdsim
