// HIP memory API. Device memory is ordinary memory of this process, so a copy
// is a memcpy on the device thread. Every allocation is followed by an unmapped
// gap so that an overrun faults.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "hip_internal.h"

namespace amdsim {

struct Allocation {
  size_t size, mapped;
  u32 flags;
  int device;  // -1: host or managed memory
  int file;    // that other processes can map; -1: none
  unsigned api_flags;
};
static std::mutex g_mutex;
static std::map<u64, Allocation> g_alloc;
static u64 g_in_use[kMaxDevices];
constexpr size_t kGap = 64 * 1024;

u64 memory_in_use(int device) {
  std::lock_guard<std::mutex> l(g_mutex);
  return g_in_use[device];
}

// Maps memory, or the beginning of a file, and the gap that follows it.
static void* map(size_t size, size_t mapped, int file) {
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED || file < 0) return p;
  return mmap(p, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, 0);
}

static hipError_t allocate(void** out, size_t size, u32 flags, unsigned api_flags = 0) {
  const int device = flags & (kMemHost | kMemManaged) ? -1 : current_device();
  if (!out) return hipErrorInvalidValue;
  *out = nullptr;
  if (!size) return hipSuccess;
  size_t mapped = ((size + 4095) & ~4095ull) + kGap;
  const int file = flags & kMemFine ? memfd_create("amdsim", MFD_CLOEXEC) : -1;
  void* p = file >= 0 && ftruncate(file, (off_t)(mapped - kGap)) ? MAP_FAILED : map(size, mapped, file);
  if (p == MAP_FAILED) {
    if (file >= 0) close(file);
    return hipErrorOutOfMemory;
  }
  static const bool poison = getenv("AMDSIM_POISON") && atoi(getenv("AMDSIM_POISON"));
  if (poison) memset(p, 0xCB, size);
  ranges_add((u64)p, size, flags, device);
  std::lock_guard<std::mutex> l(g_mutex);
  g_alloc[(u64)p] = {size, mapped, flags, device, file, api_flags};
  if (device >= 0) g_in_use[device] += size;
  *out = p;
  return hipSuccess;
}

static hipError_t release(void* p) {
  if (!p) return hipSuccess;
  Allocation a;
  {
    std::lock_guard<std::mutex> l(g_mutex);
    auto it = g_alloc.find((u64)p);
    if (it == g_alloc.end() || (it->second.flags & kMemRegistered)) return hipErrorInvalidValue;
    a = it->second;
    g_alloc.erase(it);
    if (a.device >= 0) g_in_use[a.device] -= a.size;
  }
  ranges_remove((u64)p);
  munmap(p, a.mapped);
  if (a.file >= 0) close(a.file);
  return hipSuccess;
}

static bool find_alloc(const void* p, u64* base, Allocation* a) {
  std::lock_guard<std::mutex> l(g_mutex);
  auto it = g_alloc.upper_bound((u64)p);
  if (it == g_alloc.begin()) return false;
  --it;
  if ((u64)p >= it->first + it->second.size) return false;
  *base = it->first;
  *a = it->second;
  return true;
}

static bool pageable(const void* p) {
  Range r;
  return !ranges_find((u64)p, &r);
}

static hipError_t copy_async(void* dst, const void* src, size_t n, hipStream_t st, const char* what) {
  Stream* s = stream_of(st);
  if (!s) return hipErrorContextIsDestroyed;
  if (!n) return hipSuccess;
  if (!dst || !src) return hipErrorInvalidValue;
  if (!s->capture && pageable(src)) {
    // Ordinary host memory may be reused as soon as the call returns.
    auto copy = std::make_shared<std::vector<u8>>((const u8*)src, (const u8*)src + n);
    return enqueue_call(
        s, [=] { memcpy(dst, copy->data(), n); }, hipGraphNodeTypeMemcpy, what);
  }
  hipError_t e = enqueue_call(
      s, [=] { memmove(dst, src, n); }, hipGraphNodeTypeMemcpy, what);
  if (e == hipSuccess && !s->capture && pageable(dst)) {  // and holds the result when it returns
    Devices::get().wait_stream(s);
    return async_error();
  }
  return e;
}
static hipError_t finish(hipError_t e, hipStream_t st) {
  if (e != hipSuccess) return e;
  Stream* s = stream_of(st);
  if (s->capture) return hipErrorStreamCaptureUnsupported;
  Devices::get().wait_stream(s);
  return async_error();
}

static void copy_rows(void* d, size_t dp, const void* s, size_t sp, size_t w, size_t h) {
  for (size_t y = 0; y < h; y++) memmove((char*)d + y * dp, (const char*)s + y * sp, w);
}
static hipError_t copy2d_async(void* d, size_t dp, const void* s, size_t sp, size_t w, size_t h, hipStream_t st) {
  Stream* str = stream_of(st);
  if (!str) return hipErrorContextIsDestroyed;
  if (w > dp || w > sp) return hipErrorInvalidPitchValue;
  return enqueue_call(
      str, [=] { copy_rows(d, dp, s, sp, w, h); }, hipGraphNodeTypeMemcpy, "2D copy");
}

static hipError_t fill_async(void* d, u32 value, int elem, size_t pitch, size_t w, size_t h, hipStream_t st) {
  Stream* s = stream_of(st);
  if (!s) return hipErrorContextIsDestroyed;
  if (!d && w && h) return hipErrorInvalidValue;
  return enqueue_call(
      s,
      [=] {
        for (size_t y = 0; y < h; y++) {
          char* p = (char*)d + y * pitch;
          if (elem == 1) memset(p, (int)value, w);
          else if (elem == 2) {
            u16 v = (u16)value;
            for (size_t i = 0; i < w; i++) memcpy(p + 2 * i, &v, 2);
          } else
            for (size_t i = 0; i < w; i++) memcpy(p + 4 * i, &value, 4);
        }
      },
      hipGraphNodeTypeMemset, "fill");
}

}  // namespace amdsim
using namespace amdsim;

// ---- allocation ----
API hipError_t hipMalloc(void** p, size_t n) { return set_error(allocate(p, n, kMemDevice)); }
API hipError_t hipExtMallocWithFlags(void** p, size_t n, unsigned f) {
  const bool fine = f == hipDeviceMallocFinegrained, uncached = f && !fine;  // hipDeviceMallocUncached has its bit, too
  return set_error(allocate(p, n, uncached ? kMemUncached : fine ? kMemFine : kMemDevice, f));
}
API hipError_t hipMallocManaged(void** p, size_t n, unsigned f) {
  return set_error(allocate(p, n, kMemDevice | kMemManaged | kMemUncached, f));
}
API hipError_t hipMallocAsync(void** p, size_t n, hipStream_t) { return set_error(allocate(p, n, kMemDevice)); }
API hipError_t hipMallocFromPoolAsync(void** p, size_t n, hipMemPool_t, hipStream_t) { return set_error(allocate(p, n, kMemDevice)); }
API hipError_t hipHostMalloc(void** p, size_t n, unsigned f) {
  // Host memory is coherent (not cached in L2) unless asked otherwise.
  return set_error(allocate(p, n, kMemHost | (f & hipHostMallocNonCoherent ? 0u : (u32)kMemUncached), f));
}
API hipError_t hipHostAlloc(void** p, size_t n, unsigned f) { return hipHostMalloc(p, n, f); }
API hipError_t hipMallocHost(void** p, size_t n) { return hipHostMalloc(p, n, 0); }
API hipError_t hipMemAllocHost(void** p, size_t n) { return hipHostMalloc(p, n, 0); }
API hipError_t hipFree(void* p) {
  if (p) Devices::get().wait_all();
  hipError_t e = release(p);
  return set_error(e != hipSuccess ? e : hipSuccess);
}
API hipError_t hipFreeAsync(void* p, hipStream_t st) {
  Stream* s = stream_of(st);
  if (!s) return set_error(hipErrorContextIsDestroyed);
  return set_error(enqueue_call(
      s, [=] { (void)release(p); }, hipGraphNodeTypeMemFree, "free"));
}
API hipError_t hipHostFree(void* p) { return hipFree(p); }
API hipError_t hipFreeHost(void* p) { return hipFree(p); }
API hipError_t hipMallocPitch(void** p, size_t* pitch, size_t w, size_t h) {
  if (!pitch) return set_error(hipErrorInvalidValue);
  *pitch = (w + 255) & ~255ull;
  return hipMalloc(p, *pitch * h);
}
API hipError_t hipHostRegister(void* p, size_t n, unsigned f) {
  if (!p || !n) return set_error(hipErrorInvalidValue);
  ranges_add((u64)p, n, kMemHost | kMemUncached | kMemRegistered);
  std::lock_guard<std::mutex> l(g_mutex);
  g_alloc[(u64)p] = {n, 0, kMemHost | kMemUncached | kMemRegistered, -1, -1, f};
  return set_error(hipSuccess);
}
API hipError_t hipHostUnregister(void* p) {
  Devices::get().wait_all();
  std::lock_guard<std::mutex> l(g_mutex);
  auto it = g_alloc.find((u64)p);
  if (it == g_alloc.end() || !(it->second.flags & kMemRegistered)) return set_error(hipErrorHostMemoryNotRegistered);
  g_alloc.erase(it);
  ranges_remove((u64)p);
  return set_error(hipSuccess);
}
API hipError_t hipHostGetDevicePointer(void** d, void* h, unsigned) {
  u64 base;
  Allocation a;
  if (!d || !find_alloc(h, &base, &a)) return set_error(hipErrorInvalidValue);
  *d = h;
  return set_error(hipSuccess);
}
API hipError_t hipHostGetFlags(unsigned* f, void* h) {
  u64 base;
  Allocation a;
  if (!f || !find_alloc(h, &base, &a)) return set_error(hipErrorInvalidValue);
  *f = a.api_flags;
  return set_error(hipSuccess);
}
API hipError_t hipMemGetInfo(size_t* fr, size_t* total) {
  const size_t all = (config().arch == "gfx950" ? 288ull : 192ull) << 30;
  if (total) *total = all;
  if (fr) *fr = all - std::min<size_t>(all, memory_in_use(current_device()));
  return set_error(hipSuccess);
}
API hipError_t hipMemGetAddressRange(hipDeviceptr_t* b, size_t* n, hipDeviceptr_t p) {
  u64 base;
  Allocation a;
  if (!find_alloc(p, &base, &a)) return set_error(hipErrorNotFound);
  if (b) *b = (void*)base;
  if (n) *n = a.size;
  return set_error(hipSuccess);
}
API hipError_t hipMemPtrGetInfo(void* p, size_t* n) {
  u64 base;
  Allocation a;
  if (!n || !find_alloc(p, &base, &a)) return set_error(hipErrorInvalidValue);
  *n = a.size;
  return set_error(hipSuccess);
}
API hipError_t hipPointerGetAttributes(hipPointerAttribute_t* o, const void* p) {
  if (!o || !p) return set_error(hipErrorInvalidValue);
  u64 base;
  Allocation a;
  memset(o, 0, sizeof *o);
  if (!find_alloc(p, &base, &a)) {
    o->type = hipMemoryTypeUnregistered;
    o->device = -2;
    return set_error(hipSuccess);
  }
  o->type = a.flags & kMemManaged ? hipMemoryTypeManaged : a.flags & kMemHost ? hipMemoryTypeHost : hipMemoryTypeDevice;
  o->device = std::max(a.device, 0);
  o->devicePointer = (void*)p;
  o->hostPointer = a.flags & (kMemHost | kMemManaged) ? (void*)p : nullptr;
  o->isManaged = !!(a.flags & kMemManaged);
  o->allocationFlags = a.api_flags;
  return set_error(hipSuccess);
}
API hipError_t hipPointerGetAttribute(void* out, hipPointer_attribute at, hipDeviceptr_t p) {
  u64 base;
  Allocation a;
  if (!out || !find_alloc(p, &base, &a)) return set_error(hipErrorInvalidValue);
  switch (at) {
    case HIP_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned*)out = a.flags & kMemHost ? hipMemoryTypeHost : hipMemoryTypeDevice; break;
    case HIP_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case HIP_POINTER_ATTRIBUTE_HOST_POINTER: *(void**)out = p; break;
    case HIP_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned*)out = !!(a.flags & kMemManaged); break;
    case HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int*)out = std::max(a.device, 0); break;
    case HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(void**)out = (void*)base; break;
    case HIP_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t*)out = a.size; break;
    default: return set_error(hipErrorNotSupported);
  }
  return set_error(hipSuccess);
}
// ---- memory of other processes ----
// Fine-grained memory is a file, which other processes open by its number in this one.
struct IpcHandle {
  u64 size;
  i32 process, file, device;
};
static_assert(sizeof(IpcHandle) <= sizeof(hipIpcMemHandle_t), "a handle holds it");
API hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t* h, void* p) {
  u64 base;
  Allocation a;
  if (!h || !find_alloc(p, &base, &a) || base != (u64)p) return set_error(hipErrorInvalidValue);
  if (a.file < 0) return set_error(hipErrorNotSupported);
  const IpcHandle handle{a.size, getpid(), a.file, a.device};
  memset(h, 0, sizeof *h);
  memcpy(h, &handle, sizeof handle);
  return set_error(hipSuccess);
}
API hipError_t hipIpcOpenMemHandle(void** out, hipIpcMemHandle_t h, unsigned flags) {
  IpcHandle handle;
  memcpy(&handle, &h, sizeof handle);
  if (!out || flags != hipIpcMemLazyEnablePeerAccess || handle.device < 0 || handle.device >= config().devices)
    return set_error(hipErrorInvalidValue);
  if (handle.process == getpid()) return set_error(hipErrorInvalidContext);
  const std::string name = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file);
  const int file = open(name.c_str(), O_RDWR | O_CLOEXEC);
  const size_t mapped = ((handle.size + 4095) & ~4095ull) + kGap;
  void* p = file < 0 ? MAP_FAILED : map(handle.size, mapped, file);
  if (p == MAP_FAILED) {
    if (file >= 0) close(file);
    return set_error(hipErrorMapFailed);
  }
  const int device = current_device();
  if (handle.device != device) peer_access_set(device, handle.device, true);
  ranges_add((u64)p, handle.size, kMemFine, handle.device);
  std::lock_guard<std::mutex> l(g_mutex);
  g_alloc[(u64)p] = {handle.size, mapped, kMemFine, handle.device, file, 0};
  g_in_use[handle.device] += handle.size;
  *out = p;
  return set_error(hipSuccess);
}
API hipError_t hipIpcCloseMemHandle(void* p) { return hipFree(p); }

API hipError_t hipMemAdvise(const void*, size_t, hipMemoryAdvise, int) { return set_error(hipSuccess); }
API hipError_t hipMemPrefetchAsync(const void*, size_t, int, hipStream_t) { return set_error(hipSuccess); }

// ---- copies ----
API hipError_t hipMemcpyAsync(void* d, const void* s, size_t n, hipMemcpyKind, hipStream_t st) {
  return set_error(copy_async(d, s, n, st, "copy"));
}
API hipError_t hipMemcpy(void* d, const void* s, size_t n, hipMemcpyKind) { return set_error(finish(copy_async(d, s, n, 0, "copy"), 0)); }
API hipError_t hipMemcpyWithStream(void* d, const void* s, size_t n, hipMemcpyKind, hipStream_t st) {
  return set_error(finish(copy_async(d, s, n, st, "copy"), st));
}
API hipError_t hipMemcpyHtoD(hipDeviceptr_t d, void* s, size_t n) { return hipMemcpy(d, s, n, hipMemcpyHostToDevice); }
API hipError_t hipMemcpyDtoH(void* d, hipDeviceptr_t s, size_t n) { return hipMemcpy(d, s, n, hipMemcpyDeviceToHost); }
API hipError_t hipMemcpyDtoD(hipDeviceptr_t d, hipDeviceptr_t s, size_t n) { return hipMemcpy(d, s, n, hipMemcpyDeviceToDevice); }
API hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t d, void* s, size_t n, hipStream_t st) {
  return hipMemcpyAsync(d, s, n, hipMemcpyHostToDevice, st);
}
API hipError_t hipMemcpyDtoHAsync(void* d, hipDeviceptr_t s, size_t n, hipStream_t st) {
  return hipMemcpyAsync(d, s, n, hipMemcpyDeviceToHost, st);
}
API hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t d, hipDeviceptr_t s, size_t n, hipStream_t st) {
  return hipMemcpyAsync(d, s, n, hipMemcpyDeviceToDevice, st);
}
API hipError_t hipMemcpyPeer(void* d, int, const void* s, int, size_t n) { return hipMemcpy(d, s, n, hipMemcpyDeviceToDevice); }
API hipError_t hipMemcpyPeerAsync(void* d, int, const void* s, int, size_t n, hipStream_t st) {
  return hipMemcpyAsync(d, s, n, hipMemcpyDeviceToDevice, st);
}
API hipError_t hipMemcpy2D(void* d, size_t dp, const void* s, size_t sp, size_t w, size_t h, hipMemcpyKind) {
  return set_error(finish(copy2d_async(d, dp, s, sp, w, h, 0), 0));
}
API hipError_t hipMemcpy2DAsync(void* d, size_t dp, const void* s, size_t sp, size_t w, size_t h, hipMemcpyKind, hipStream_t st) {
  return set_error(copy2d_async(d, dp, s, sp, w, h, st));
}

static hipError_t copy3d(const hipMemcpy3DParms* p, hipStream_t st) {
  Stream* s = stream_of(st);
  if (!s || !p || p->srcArray || p->dstArray) return hipErrorInvalidValue;
  hipMemcpy3DParms c = *p;
  return enqueue_call(
      s,
      [c] {
        const hipPitchedPtr &d = c.dstPtr, &q = c.srcPtr;
        for (size_t z = 0; z < c.extent.depth; z++)
          copy_rows((char*)d.ptr + ((c.dstPos.z + z) * d.ysize + c.dstPos.y) * d.pitch + c.dstPos.x, d.pitch,
                    (const char*)q.ptr + ((c.srcPos.z + z) * q.ysize + c.srcPos.y) * q.pitch + c.srcPos.x, q.pitch, c.extent.width,
                    c.extent.height);
      },
      hipGraphNodeTypeMemcpy, "3D copy");
}
API hipError_t hipMemcpy3DAsync(const hipMemcpy3DParms* p, hipStream_t st) { return set_error(copy3d(p, st)); }
API hipError_t hipMemcpy3D(const hipMemcpy3DParms* p) { return set_error(finish(copy3d(p, 0), 0)); }
API hipError_t hipMalloc3D(hipPitchedPtr* p, hipExtent e) {
  size_t pitch = (e.width + 255) & ~255ull;
  void* m;
  hipError_t r = allocate(&m, pitch * e.height * e.depth, kMemDevice);
  if (r == hipSuccess) *p = hipPitchedPtr{m, pitch, e.width, e.height};
  return set_error(r);
}

static hipError_t symbol_address(const void* sym, size_t n, size_t off, char** p) {
  Symbol s;
  hipError_t e = find_symbol(sym, &s);
  if (e != hipSuccess) return e;
  if (off + n > s.size) return hipErrorInvalidValue;
  *p = (char*)s.addr + off;
  return hipSuccess;
}
API hipError_t hipMemcpyToSymbolAsync(const void* sym, const void* src, size_t n, size_t off, hipMemcpyKind, hipStream_t st) {
  char* p;
  hipError_t e = symbol_address(sym, n, off, &p);
  return set_error(e != hipSuccess ? e : copy_async(p, src, n, st, "copy to symbol"));
}
API hipError_t hipMemcpyToSymbol(const void* sym, const void* src, size_t n, size_t off, hipMemcpyKind k) {
  return set_error(finish(hipMemcpyToSymbolAsync(sym, src, n, off, k, 0), 0));
}
API hipError_t hipMemcpyFromSymbolAsync(void* dst, const void* sym, size_t n, size_t off, hipMemcpyKind, hipStream_t st) {
  char* p;
  hipError_t e = symbol_address(sym, n, off, &p);
  return set_error(e != hipSuccess ? e : copy_async(dst, p, n, st, "copy from symbol"));
}
API hipError_t hipMemcpyFromSymbol(void* dst, const void* sym, size_t n, size_t off, hipMemcpyKind k) {
  return set_error(finish(hipMemcpyFromSymbolAsync(dst, sym, n, off, k, 0), 0));
}
API hipError_t hipGetSymbolAddress(void** p, const void* sym) {
  Symbol s;
  hipError_t e = find_symbol(sym, &s);
  if (e == hipSuccess) *p = (void*)s.addr;
  return set_error(e);
}
API hipError_t hipGetSymbolSize(size_t* n, const void* sym) {
  Symbol s;
  hipError_t e = find_symbol(sym, &s);
  if (e == hipSuccess) *n = s.size;
  return set_error(e);
}

// ---- fills ----
API hipError_t hipMemsetAsync(void* d, int v, size_t n, hipStream_t st) { return set_error(fill_async(d, (u32)v, 1, 0, n, 1, st)); }
API hipError_t hipMemset(void* d, int v, size_t n) { return set_error(finish(fill_async(d, (u32)v, 1, 0, n, 1, 0), 0)); }
API hipError_t hipMemsetD8(hipDeviceptr_t d, unsigned char v, size_t n) { return hipMemset(d, v, n); }
API hipError_t hipMemsetD8Async(hipDeviceptr_t d, unsigned char v, size_t n, hipStream_t st) { return hipMemsetAsync(d, v, n, st); }
API hipError_t hipMemsetD16(hipDeviceptr_t d, unsigned short v, size_t n) { return set_error(finish(fill_async(d, v, 2, 0, n, 1, 0), 0)); }
API hipError_t hipMemsetD16Async(hipDeviceptr_t d, unsigned short v, size_t n, hipStream_t st) {
  return set_error(fill_async(d, v, 2, 0, n, 1, st));
}
API hipError_t hipMemsetD32(hipDeviceptr_t d, int v, size_t n) { return set_error(finish(fill_async(d, (u32)v, 4, 0, n, 1, 0), 0)); }
API hipError_t hipMemsetD32Async(hipDeviceptr_t d, int v, size_t n, hipStream_t st) {
  return set_error(fill_async(d, (u32)v, 4, 0, n, 1, st));
}
API hipError_t hipMemset2D(void* d, size_t p, int v, size_t w, size_t h) {
  return set_error(finish(fill_async(d, (u32)v, 1, p, w, h, 0), 0));
}
API hipError_t hipMemset2DAsync(void* d, size_t p, int v, size_t w, size_t h, hipStream_t st) {
  return set_error(fill_async(d, (u32)v, 1, p, w, h, st));
}
