// HIP streams, events and graphs.
#include "hip_internal.h"

namespace amdsim {

struct Event {
  EventRef state = std::make_shared<EventState>();
  Graph* captured = nullptr;
};

static thread_local Stream* t_per_thread[kMaxDevices];

Stream* stream_of(hipStream_t h) {
  Devices& d = Devices::get();
  const int device = current_device();
  if (h == nullptr || h == (hipStream_t)1) return d.null_stream(device);
  if (h == hipStreamPerThread) {
    if (!t_per_thread[device]) t_per_thread[device] = d.create_stream(device, true);
    return t_per_thread[device];
  }
  return d.valid((Stream*)h) ? (Stream*)h : nullptr;
}

static void add_node(Stream* s, std::unique_ptr<GraphNode> n) {
  Graph* g = s->capture;
  if (!g->nodes.empty()) n->deps.push_back(g->nodes.back().get());
  g->nodes.push_back(std::move(n));
}

hipError_t enqueue_call(Stream* s, std::function<void()> f, hipGraphNodeType type, const char* what) {
  if (s->capture) {
    auto n = std::make_unique<GraphNode>();
    n->type = type;
    n->call = std::move(f);
    add_node(s, std::move(n));
    return hipSuccess;
  }
  auto op = std::make_unique<Op>();
  op->type = Op::Call;
  op->call = std::move(f);
  op->what = what;
  Devices::get().submit(s, std::move(op));
  return hipSuccess;
}

hipError_t enqueue_kernel(Stream* s, KernelLaunch&& k) {
  if (s->capture) {
    auto n = std::make_unique<GraphNode>();
    n->type = hipGraphNodeTypeKernel;
    n->params.blockDim = dim3(k.block[0], k.block[1], k.block[2]);
    n->params.gridDim = dim3(k.grid[0], k.grid[1], k.grid[2]);
    n->params.func = (void*)k.kernel;
    n->params.sharedMemBytes = k.dynamic_lds;
    n->launch = std::move(k);
    add_node(s, std::move(n));
    return hipSuccess;
  }
  if (hipError_t e = async_error()) return e;
  auto op = std::make_unique<Op>();
  op->type = Op::Kernel;
  op->launch = std::move(k);
  op->what = op->launch.kernel->name.c_str();
  Devices::get().submit(s, std::move(op));
  return hipSuccess;
}

static hipError_t sync(Stream* s) {
  if (!s) return hipErrorContextIsDestroyed;
  if (s->capture) return hipErrorStreamCaptureUnsupported;
  Devices::get().wait_stream(s);
  return async_error();
}

static hipError_t create_stream(hipStream_t* out, unsigned flags, int prio) {
  if (!out) return hipErrorInvalidValue;
  Stream* s = Devices::get().create_stream(current_device(), !(flags & hipStreamNonBlocking));
  s->flags = flags;
  s->priority = prio;
  *out = (hipStream_t)s;
  return hipSuccess;
}

static std::unique_ptr<GraphNode> clone(const GraphNode& n) { return std::make_unique<GraphNode>(n); }

}  // namespace amdsim
using namespace amdsim;

// ---- streams ----
API hipError_t hipStreamCreate(hipStream_t* s) { return set_error(create_stream(s, 0, 0)); }
API hipError_t hipStreamCreateWithFlags(hipStream_t* s, unsigned f) { return set_error(create_stream(s, f, 0)); }
API hipError_t hipStreamCreateWithPriority(hipStream_t* s, unsigned f, int p) { return set_error(create_stream(s, f, p)); }
// As under ROC_GLOBAL_CU_MASK. Which bit is which CU of which XCD does not matter here.
API hipError_t hipExtStreamGetCUMask(hipStream_t, uint32_t words, uint32_t* mask) {
  const u32 cus = (u32)sim_cus(), usable = (u32)(config().xcds * (config().cus - config().masked));
  if (!mask || words * 32 < cus) return set_error(hipErrorInvalidValue);
  for (u32 i = 0; i < words; i++) mask[i] = 0;
  for (u32 i = 0; i < usable; i++) mask[i / 32] |= 1u << i % 32;
  return set_error(hipSuccess);
}
API hipError_t hipExtStreamCreateWithCUMask(hipStream_t* s, uint32_t, const uint32_t*) { return set_error(create_stream(s, 0, 0)); }
API hipError_t hipStreamDestroy(hipStream_t h) {
  Stream* s = stream_of(h);
  if (!s || s == Devices::get().null_stream(s->device)) return set_error(hipErrorInvalidResourceHandle);
  Devices::get().destroy_stream(s);
  return set_error(hipSuccess);
}
API hipError_t hipStreamSynchronize(hipStream_t h) { return set_error(sync(stream_of(h))); }
API hipError_t hipStreamQuery(hipStream_t h) {
  Stream* s = stream_of(h);
  if (!s) return set_error(hipErrorContextIsDestroyed);
  if (!Devices::get().query_stream(s)) return hipErrorNotReady;
  return set_error(async_error());
}
API hipError_t hipStreamGetFlags(hipStream_t h, unsigned* f) {
  Stream* s = stream_of(h);
  if (!s || !f) return set_error(hipErrorInvalidValue);
  *f = s->flags;
  return set_error(hipSuccess);
}
API hipError_t hipStreamGetPriority(hipStream_t h, int* p) {
  Stream* s = stream_of(h);
  if (!s || !p) return set_error(hipErrorInvalidValue);
  *p = s->priority;
  return set_error(hipSuccess);
}
API hipError_t hipStreamGetDevice(hipStream_t h, hipDevice_t* d) {
  Stream* s = stream_of(h);
  if (!s || !d) return set_error(hipErrorInvalidValue);
  *d = s->device;
  return set_error(hipSuccess);
}
API hipError_t hipDeviceGetStreamPriorityRange(int* lo, int* hi) {
  if (lo) *lo = 1;
  if (hi) *hi = -1;
  return set_error(hipSuccess);
}
API hipError_t hipDeviceSynchronize() {
  Devices::get().wait_all(current_device());
  return set_error(async_error());
}
API hipError_t hipCtxSynchronize() { return hipDeviceSynchronize(); }
API hipError_t hipStreamWaitEvent(hipStream_t h, hipEvent_t ev, unsigned) {
  Stream* s = stream_of(h);
  if (!s || !ev) return set_error(hipErrorInvalidResourceHandle);
  Event* e = (Event*)ev;
  if (e->captured) {
    s->capture = e->captured;
    return set_error(hipSuccess);
  }  // joins the capture
  if (s->capture) return set_error(hipSuccess);
  Devices::get().wait_on(s, e->state);
  return set_error(hipSuccess);
}
API hipError_t hipLaunchHostFunc(hipStream_t h, hipHostFn_t fn, void* data) {
  Stream* s = stream_of(h);
  if (!s) return set_error(hipErrorContextIsDestroyed);
  return set_error(enqueue_call(
      s, [=] { fn(data); }, hipGraphNodeTypeHost, "host function"));
}
API hipError_t hipStreamAddCallback(hipStream_t h, hipStreamCallback_t fn, void* data, unsigned) {
  Stream* s = stream_of(h);
  if (!s) return set_error(hipErrorContextIsDestroyed);
  return set_error(enqueue_call(
      s, [=] { fn(h, hipSuccess, data); }, hipGraphNodeTypeHost, "callback"));
}
API hipError_t hipStreamWriteValue32(hipStream_t h, void* p, uint32_t v, unsigned) {
  Stream* s = stream_of(h);
  return set_error(enqueue_call(
      s, [=] { __atomic_store_n((u32*)p, v, __ATOMIC_SEQ_CST); }, hipGraphNodeTypeHost, "write value"));
}
API hipError_t hipStreamWriteValue64(hipStream_t h, void* p, uint64_t v, unsigned) {
  Stream* s = stream_of(h);
  return set_error(enqueue_call(
      s, [=] { __atomic_store_n((u64*)p, v, __ATOMIC_SEQ_CST); }, hipGraphNodeTypeHost, "write value"));
}

// Waits until the value in memory satisfies the comparison chosen by flags.
template <class T>
static hipError_t wait_value(hipStream_t h, void* p, T v, unsigned flags, T mask) {
  Stream* s = stream_of(h);
  if (!s || !p) return hipErrorInvalidValue;
  if (s->capture) return hipErrorStreamCaptureUnsupported;
  auto op = std::make_unique<Op>();
  op->type = Op::Wait;
  op->what = "wait value";
  op->ready = [=] {
    T x = __atomic_load_n((T*)p, __ATOMIC_ACQUIRE) & mask;
    switch (flags) {
      case hipStreamWaitValueGte: return (std::make_signed_t<T>)(x - v) >= 0;
      case hipStreamWaitValueEq: return x == v;
      case hipStreamWaitValueAnd: return (x & v) != 0;
      default: return (T) ~(x | v) != 0;  // nor
    }
  };
  Devices::get().submit(s, std::move(op));
  return hipSuccess;
}
API hipError_t hipStreamWaitValue32(hipStream_t h, void* p, uint32_t v, unsigned f, uint32_t m) {
  return set_error(wait_value<uint32_t>(h, p, v, f, m));
}
API hipError_t hipStreamWaitValue64(hipStream_t h, void* p, uint64_t v, unsigned f, uint64_t m) {
  return set_error(wait_value<uint64_t>(h, p, v, f, m));
}

// ---- events ----
API hipError_t hipEventCreateWithFlags(hipEvent_t* e, unsigned f) {
  if (!e) return set_error(hipErrorInvalidValue);
  Event* ev = new Event;
  ev->state->flags = f;
  *e = (hipEvent_t)ev;
  return set_error(hipSuccess);
}
API hipError_t hipEventCreate(hipEvent_t* e) { return hipEventCreateWithFlags(e, 0); }
API hipError_t hipEventDestroy(hipEvent_t e) {
  if (!e) return set_error(hipErrorInvalidHandle);
  delete (Event*)e;
  return set_error(hipSuccess);
}
API hipError_t hipEventRecord(hipEvent_t e, hipStream_t h) {
  Stream* s = stream_of(h);
  if (!e || !s) return set_error(hipErrorInvalidHandle);
  ((Event*)e)->captured = s->capture;
  if (!s->capture) Devices::get().record(((Event*)e)->state, s);
  return set_error(hipSuccess);
}
API hipError_t hipEventRecordWithFlags(hipEvent_t e, hipStream_t h, unsigned) { return hipEventRecord(e, h); }
API hipError_t hipEventSynchronize(hipEvent_t e) {
  if (!e) return set_error(hipErrorInvalidHandle);
  Devices::get().wait_event(((Event*)e)->state);
  return set_error(async_error());
}
API hipError_t hipEventQuery(hipEvent_t e) {
  if (!e) return set_error(hipErrorInvalidHandle);
  if (!Devices::get().event_done(((Event*)e)->state)) return hipErrorNotReady;
  return set_error(async_error());
}
API hipError_t hipEventElapsedTime(float* ms, hipEvent_t a, hipEvent_t b) {
  if (!ms || !a || !b) return set_error(hipErrorInvalidHandle);
  EventRef x = ((Event*)a)->state, y = ((Event*)b)->state;
  if ((x->flags | y->flags) & hipEventDisableTiming) return set_error(hipErrorInvalidHandle);
  if (!x->submitted || !y->submitted) return set_error(hipErrorInvalidHandle);
  if (!Devices::get().event_done(x) || !Devices::get().event_done(y)) return set_error(hipErrorNotReady);
  *ms = (float)((y->time - x->time) * 1e3);  // time this simulation took, or simulated time
  return set_error(hipSuccess);
}

// ---- stream capture ----
API hipError_t hipStreamBeginCapture(hipStream_t h, hipStreamCaptureMode) {
  Stream* s = stream_of(h);
  if (!s || s == Devices::get().null_stream(s->device)) return set_error(hipErrorStreamCaptureUnsupported);
  if (s->capture) return set_error(hipErrorIllegalState);
  s->capture = new Graph;
  return set_error(hipSuccess);
}
API hipError_t hipStreamEndCapture(hipStream_t h, hipGraph_t* g) {
  Stream* s = stream_of(h);
  if (!s || !s->capture || !g) return set_error(hipErrorIllegalState);
  *g = (hipGraph_t)s->capture;
  Devices::get().end_capture(s->capture);
  return set_error(hipSuccess);
}
API hipError_t hipStreamIsCapturing(hipStream_t h, hipStreamCaptureStatus* st) {
  Stream* s = stream_of(h);
  if (!s || !st) return set_error(hipErrorInvalidValue);
  *st = s->capture ? hipStreamCaptureStatusActive : hipStreamCaptureStatusNone;
  return set_error(hipSuccess);
}
API hipError_t hipStreamGetCaptureInfo(hipStream_t h, hipStreamCaptureStatus* st, unsigned long long* id) {
  if (id) *id = 1;
  return hipStreamIsCapturing(h, st);
}
API hipError_t hipStreamGetCaptureInfo_v2(hipStream_t h, hipStreamCaptureStatus* st, unsigned long long* id, hipGraph_t* g,
                                          const hipGraphNode_t** deps, size_t* n) {
  Stream* s = stream_of(h);
  if (!s || !st) return set_error(hipErrorInvalidValue);
  if (id) *id = 1;
  if (g) *g = (hipGraph_t)s->capture;
  static thread_local hipGraphNode_t last;
  if (s->capture && !s->capture->nodes.empty()) last = (hipGraphNode_t)s->capture->nodes.back().get();
  if (deps) *deps = &last;
  if (n) *n = s->capture && !s->capture->nodes.empty();
  return hipStreamIsCapturing(h, st);
}
API hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode*) { return set_error(hipSuccess); }

// ---- graphs ----
static hipError_t new_node(hipGraphNode_t* out, hipGraph_t g, const hipGraphNode_t* deps, size_t n, std::unique_ptr<GraphNode> node) {
  if (!g || !out) return hipErrorInvalidValue;
  for (size_t i = 0; i < n; i++) node->deps.push_back((GraphNode*)deps[i]);
  *out = (hipGraphNode_t)node.get();
  ((Graph*)g)->nodes.push_back(std::move(node));
  return hipSuccess;
}
static hipError_t kernel_params(GraphNode* n, const hipKernelNodeParams* p) {
  const KernelInfo* k = kernel_any(p->func);
  if (!k) return hipErrorInvalidDeviceFunction;
  n->type = hipGraphNodeTypeKernel;
  n->params = *p;
  return make_launch(k, p->gridDim, p->blockDim, p->sharedMemBytes, p->kernelParams, p->extra, &n->launch);
}
static void memset_params(GraphNode* n, const hipMemsetParams& p) {
  n->type = hipGraphNodeTypeMemset;
  n->call = [p] {
    for (size_t y = 0; y < std::max<size_t>(1, p.height); y++)
      for (size_t x = 0; x < p.width; x++) memcpy((char*)p.dst + y * p.pitch + x * p.elementSize, &p.value, p.elementSize);
  };
}
API hipError_t hipGraphCreate(hipGraph_t* g, unsigned) {
  *g = (hipGraph_t) new Graph;
  return set_error(hipSuccess);
}
API hipError_t hipGraphDestroy(hipGraph_t g) {
  if (!g) return set_error(hipErrorInvalidValue);
  delete (Graph*)g;
  return set_error(hipSuccess);
}
API hipError_t hipGraphAddKernelNode(hipGraphNode_t* o, hipGraph_t g, const hipGraphNode_t* d, size_t n, const hipKernelNodeParams* p) {
  auto node = std::make_unique<GraphNode>();
  hipError_t e = kernel_params(node.get(), p);
  return set_error(e != hipSuccess ? e : new_node(o, g, d, n, std::move(node)));
}
API hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t* o, hipGraph_t g, const hipGraphNode_t* d, size_t n, void* dst, const void* src,
                                       size_t count, hipMemcpyKind) {
  auto node = std::make_unique<GraphNode>();
  node->type = hipGraphNodeTypeMemcpy;
  node->call = [=] { memmove(dst, src, count); };
  return set_error(new_node(o, g, d, n, std::move(node)));
}
API hipError_t hipGraphAddMemsetNode(hipGraphNode_t* o, hipGraph_t g, const hipGraphNode_t* d, size_t n, const hipMemsetParams* p) {
  auto node = std::make_unique<GraphNode>();
  memset_params(node.get(), *p);
  return set_error(new_node(o, g, d, n, std::move(node)));
}
API hipError_t hipGraphAddHostNode(hipGraphNode_t* o, hipGraph_t g, const hipGraphNode_t* d, size_t n, const hipHostNodeParams* p) {
  auto node = std::make_unique<GraphNode>();
  node->type = hipGraphNodeTypeHost;
  hipHostNodeParams hp = *p;
  node->call = [hp] { hp.fn(hp.userData); };
  return set_error(new_node(o, g, d, n, std::move(node)));
}
API hipError_t hipGraphAddEmptyNode(hipGraphNode_t* o, hipGraph_t g, const hipGraphNode_t* d, size_t n) {
  return set_error(new_node(o, g, d, n, std::make_unique<GraphNode>()));
}
API hipError_t hipGraphAddDependencies(hipGraph_t, const hipGraphNode_t* from, const hipGraphNode_t* to, size_t n) {
  for (size_t i = 0; i < n; i++) ((GraphNode*)to[i])->deps.push_back((GraphNode*)from[i]);
  return set_error(hipSuccess);
}
API hipError_t hipGraphGetNodes(hipGraph_t g, hipGraphNode_t* out, size_t* n) {
  auto& v = ((Graph*)g)->nodes;
  if (out)
    for (size_t i = 0; i < std::min(*n, v.size()); i++) out[i] = (hipGraphNode_t)v[i].get();
  *n = v.size();
  return set_error(hipSuccess);
}
API hipError_t hipGraphGetRootNodes(hipGraph_t g, hipGraphNode_t* out, size_t* n) {
  size_t k = 0;
  for (auto& v : ((Graph*)g)->nodes)
    if (v->deps.empty()) {
      if (out && k < *n) out[k] = (hipGraphNode_t)v.get();
      k++;
    }
  *n = k;
  return set_error(hipSuccess);
}
API hipError_t hipGraphDestroyNode(hipGraphNode_t n) {
  // The node becomes empty; the graph owns it.
  ((GraphNode*)n)->type = hipGraphNodeTypeEmpty;
  ((GraphNode*)n)->call = nullptr;
  return set_error(hipSuccess);
}
API hipError_t hipGraphNodeGetType(hipGraphNode_t n, hipGraphNodeType* t) {
  *t = ((GraphNode*)n)->type;
  return set_error(hipSuccess);
}
API hipError_t hipGraphKernelNodeGetParams(hipGraphNode_t n, hipKernelNodeParams* p) {
  *p = ((GraphNode*)n)->params;
  return set_error(hipSuccess);
}
API hipError_t hipGraphKernelNodeSetParams(hipGraphNode_t n, const hipKernelNodeParams* p) {
  return set_error(kernel_params((GraphNode*)n, p));
}

// Nodes in an order that respects the dependencies (they run one after another).
static void instantiate(const Graph& g, GraphExec& x) {
  std::vector<GraphNode*> order;
  std::map<GraphNode*, int> state;
  std::function<void(GraphNode*)> visit = [&](GraphNode* n) {
    if (state[n]++) return;
    for (GraphNode* d : n->deps) visit(d);
    order.push_back(n);
  };
  for (auto& n : g.nodes) visit(n.get());
  for (GraphNode* n : order) {
    x.nodes.push_back(clone(*n));
    x.from[n] = x.nodes.back().get();
  }
}
API hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* e, hipGraph_t g, unsigned long long) {
  if (!e || !g) return set_error(hipErrorInvalidValue);
  GraphExec* x = new GraphExec;
  instantiate(*(Graph*)g, *x);
  *e = (hipGraphExec_t)x;
  return set_error(hipSuccess);
}
API hipError_t hipGraphInstantiate(hipGraphExec_t* e, hipGraph_t g, hipGraphNode_t*, char*, size_t) {
  return hipGraphInstantiateWithFlags(e, g, 0);
}
API hipError_t hipGraphUpload(hipGraphExec_t, hipStream_t) { return set_error(hipSuccess); }
API hipError_t hipGraphExecDestroy(hipGraphExec_t e) {
  if (!e) return set_error(hipErrorInvalidValue);
  delete (GraphExec*)e;
  return set_error(hipSuccess);
}
API hipError_t hipGraphExecKernelNodeSetParams(hipGraphExec_t e, hipGraphNode_t n, const hipKernelNodeParams* p) {
  auto& from = ((GraphExec*)e)->from;
  auto it = from.find((GraphNode*)n);
  if (it == from.end()) return set_error(hipErrorInvalidValue);
  return set_error(kernel_params(it->second, p));
}
API hipError_t hipGraphExecUpdate(hipGraphExec_t e, hipGraph_t g, hipGraphNode_t*, hipGraphExecUpdateResult* r) {
  GraphExec* x = (GraphExec*)e;
  x->nodes.clear();
  x->from.clear();
  instantiate(*(Graph*)g, *x);
  if (r) *r = hipGraphExecUpdateSuccess;
  return set_error(hipSuccess);
}
API hipError_t hipGraphLaunch(hipGraphExec_t e, hipStream_t h) {
  Stream* s = stream_of(h);
  if (!e || !s) return set_error(hipErrorInvalidValue);
  for (auto& n : ((GraphExec*)e)->nodes) {
    hipError_t r = hipSuccess;
    if (n->type == hipGraphNodeTypeKernel) {
      KernelLaunch k = n->launch;
      r = enqueue_kernel(s, std::move(k));
    } else if (n->call) r = enqueue_call(s, n->call, n->type, "graph node");
    if (r != hipSuccess) return set_error(r);
  }
  return set_error(hipSuccess);
}
