// Stand-in for the CUDA driver and for NVRTC, for tests without a GPU.
//
// Kernels run on fibers, one per CUDA thread: barriers, co-residency, shared memory. Fresh memory
// holds NaN bytes, and bytes around an allocation are watched. With a seed above 0 warps run in a
// random order, each as far ahead as it can, odd seeds with the lanes of a warp reversed; seed 0
// runs them in order. Work runs when it is enqueued, except while a stream is captured; with
// EMULATOR_LAZY=1 it waits in its stream until somebody waits for that stream or an event in it.
// With EMULATOR_UNIFIED=1 the device has all memory of the process, but for what emu_on_host names.
//
// Not modelled: the weak memory model, timing.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "shim.h"
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

// ---------------------------------------------------------------- fibers
#ifdef __x86_64__
extern "C" void emu_switch(void** save, void* to);
asm(".text\n.globl emu_switch\nemu_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
struct Context {
  void* at = nullptr;
  void start(u8* stack, size_t size, void (*main)()) {
    void** top = (void**)(((size_t)(stack + size)) & ~(size_t)63);
    *--top = nullptr;
    *--top = (void*)main;
    for (int r = 0; r < 6; r++) *--top = nullptr;
    at = top;
  }
  static void change(Context& from, Context& to) { emu_switch(&from.at, to.at); }
};
#else
#include <ucontext.h>
struct Context {
  ucontext_t at;
  void start(u8* stack, size_t size, void (*main)()) {
    getcontext(&at);
    at.uc_stack.ss_sp = stack, at.uc_stack.ss_size = size, at.uc_link = nullptr;
    makecontext(&at, main, 0);
  }
  static void change(Context& from, Context& to) { swapcontext(&from.at, &to.at); }
};
#endif

struct Barrier {
  u32 count = 0, generation = 0;
};
struct Warp {
  Barrier barrier;
  u64 values[32];
  u32 words[32][6];
};
struct Block {
  Barrier barrier;
  std::vector<Warp> warps;
  std::vector<u8> shared;
  size_t live = 0;
};
struct Fiber : Lane {
  Context context;
  Block* owner = nullptr;
  bool done = false;
};

extern "C" {
Lane* emu_lane;
Index3 emu_grid, emu_block;
}
static const size_t STACK = 64 * 1024;
static Context scheduler;
static u64 progress;
static void* entry;
static void* argument;
static std::recursive_mutex lock;
typedef std::lock_guard<std::recursive_mutex> Guard;

extern "C" void emu_moved() { progress++; }
static std::map<int, u32> planted;
extern "C" u32 emu_planted(int place) { return planted[place]; }
extern "C" void emu_plant(int place, u32 arrivals) { planted[place] = arrivals; }
extern "C" void emu_yield() { Context::change(((Fiber*)emu_lane)->context, scheduler); }
extern "C" void emu_syncthreads() {
  Block* b = ((Fiber*)emu_lane)->owner;
  u32 generation = b->barrier.generation;
  progress++;
  if (++b->barrier.count == b->live) b->barrier.count = 0, b->barrier.generation++;
  while (b->barrier.generation == generation) emu_yield();
  progress++;
}
static void emu_syncwarp(Warp& w, u32 lanes) {
  u32 generation = w.barrier.generation;
  progress++;
  if (++w.barrier.count == lanes) w.barrier.count = 0, w.barrier.generation++;
  while (w.barrier.generation == generation) emu_yield();
  progress++;
}
extern "C" u64 emu_shuffle(u64 value, u32 mask) {
  Fiber* f = (Fiber*)emu_lane;
  u32 t = f->thread.x, lanes = std::min(32u, emu_block.x - t / 32 * 32);
  Warp& w = f->owner->warps[t / 32];
  w.values[t % 32] = value;
  emu_syncwarp(w, lanes);
  u64 found = w.values[(t % 32 ^ mask) % lanes];
  emu_syncwarp(w, lanes);
  return found;
}
static float emu_part(u32 word, int which, int bf16) {
  return emu_bits<float>(!bf16 ? word & 0xffffe000 : which ? word & 0xffff0000 : word << 16);
}
extern "C" void emu_mma(float* c, const u32* a, u32 b0, u32 b1, int bf16) {
  Fiber* f = (Fiber*)emu_lane;
  u32 lane = f->thread.x % 32, per = bf16 ? 2 : 1;
  Warp& w = f->owner->warps[f->thread.x / 32];
  const u32 own[6] = {a[0], a[1], a[2], a[3], b0, b1};
  memcpy(w.words[lane], own, sizeof(own));
  emu_syncwarp(w, 32);
  for (u32 e = 0; e < 4; e++) {
    u32 row = lane / 4, column = lane % 4 * 2 + e % 2;
    for (u32 k = 0; k < 8 * per; k++) {
      u32 half = k / (4 * per), from = k % (4 * per) / per;
      float x = emu_part(w.words[row * 4 + from][e / 2 + 2 * half], k % per, bf16);
      float y = emu_part(w.words[column * 4 + from][4 + half], k % per, bf16);
      c[e] += x * y;
    }
  }
  emu_syncwarp(w, 32);
}
static void fiber_main() {
  ((void (*)(void*))entry)(argument);
  Fiber* f = (Fiber*)emu_lane;
  f->done = true;
  progress++;
  for (;;) emu_yield();
}

struct Stacks {
  u8* memory = nullptr;
  size_t count = 0;
  u8* reserve(size_t n) {
    if (n > count) {
      if (memory) munmap(memory, count * STACK);
      count = n;
      memory = (u8*)mmap(nullptr, count * STACK, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    return memory;
  }
};
static Stacks stacks;

// Blocks that run together, to their end; false if no fiber can make progress.
static bool run_wave(u32 first, u32 blocks, size_t shared, int seed) {
  u32 threads = emu_block.x, warps = (threads + 31) / 32;
  std::vector<Block> block(blocks);
  std::vector<Fiber> fibers((size_t)blocks * threads);
  u8* memory = stacks.reserve(fibers.size());
  for (u32 b = 0; b < blocks; b++) {
    block[b].shared.assign(shared, 0xFF);
    block[b].live = threads;
    block[b].warps.resize(warps);
    for (u32 t = 0; t < threads; t++) {
      size_t at = (size_t)b * threads + t;
      Fiber& f = fibers[at];
      f.thread = {t, 0, 0}, f.block = {first + b, 0, 0};
      f.owner = &block[b], f.shared = block[b].shared.data();
      f.context.start(memory + at * STACK, STACK, fiber_main);
    }
  }
  std::vector<u32> order(blocks * warps);
  for (u32 i = 0; i < order.size(); i++) order[i] = i;
  u32 state = (u32)seed * 2654435761u + 1;
  size_t left = fibers.size();
  while (left) {
    u64 before = progress;
    for (u32 i = seed > 0 ? order.size() - 1 : 0; i > 0; i--) {
      state = state * 1664525u + 1013904223u;
      std::swap(order[i], order[(state >> 8) % (i + 1)]);
    }
    for (u32 w : order) {
      u32 lane = w % warps * 32, lanes = std::min(32u, threads - lane);
      Fiber* base = &fibers[(size_t)(w / warps) * threads + lane];
      u64 moved;
      do {
        moved = progress;
        for (u32 l = 0; l < lanes; l++) {
          Fiber& f = base[seed > 0 && seed % 2 ? lanes - 1 - l : l];
          if (f.done) continue;
          emu_lane = &f;
          Context::change(scheduler, f.context);
          left -= f.done;
        }
      } while (progress != moved);
    }
    if (left && progress == before) return false;
  }
  return true;
}

// ---------------------------------------------------------------- the device
enum Result {
  NOT_READY = 600,
  CAPTURED = 901,
  OK = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NOT_FOUND = 500,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_FAILED = 719,
  TOO_LARGE = 720,
};
static const size_t GUARD = 256;
static const u8 MARK = 0xA5;
typedef std::function<int()> Work;
typedef std::vector<Work> Graph;
struct Stream {
  Graph* capture = nullptr;
  std::deque<Work> todo;
  u64 given = 0, done = 0;
};
struct Event {
  Stream* stream = nullptr;
  u64 place = 0;  // how much of the stream comes before it
};
static std::map<void*, Stream> streams;  // by handle; the stream 0 is there, too
static Stream& stream_of(void* handle) { return streams[handle]; }
static std::map<u64, size_t> memory;
static size_t used;
// what tests ask for: see emu_count
static u64 counts[6], settled;
static std::map<void*, u64> launched;  // graphs, by stream
enum { KERNELS, COOPERATIVE, GRAPHS, SYNCHRONISATIONS, ALLOCATIONS, COPIES };

// of a thread; work needs that of the device on top
static thread_local std::vector<void*> contexts;
#define NEEDS_CONTEXT \
  if (contexts.empty() || contexts.back() != (void*)1) return INVALID_CONTEXT

static int setting(const char* name, int otherwise) {
  const char* v = getenv(name);
  return v ? atoi(v) : otherwise;
}
static int multiprocessors() { return setting("EMULATOR_SMS", 3); }
static bool guards_hold() {
  for (auto& m : memory) {
    u8 *low = (u8*)m.first - GUARD, *high = (u8*)m.first + m.second;
    for (size_t k = 0; k < GUARD; k++)
      if (low[k] != MARK || high[k] != MARK) return false;
  }
  return true;
}
static int drain(Stream& s, u64 place) {
  while (s.done < place && !s.todo.empty()) {
    Work work = s.todo.front();
    s.todo.pop_front(), s.done++;
    if (int error = work()) return error;
  }
  return OK;
}
static int drain_all() {
  for (auto& s : streams)
    if (int error = drain(s.second, ~0ull)) return error;
  return OK;
}
static int enqueue(void* handle, Work work) {
  Stream& s = stream_of(handle);
  if (s.capture) return s.capture->push_back(work), OK;
  if (!setting("EMULATOR_LAZY", 0)) return work();
  return s.todo.push_back(work), s.given++, OK;
}
static int launch(void* f, u32 gx, u32 bx, u32 shared, void* s, void** args, bool cooperative) {
  if (!gx || !bx || bx > 1024 || shared > 48 * 1024) return INVALID_VALUE;
  void* given = *(void**)args[0];
  return enqueue(s, [=] {
    counts[KERNELS]++;
    counts[COOPERATIVE] += cooperative;
    entry = f, argument = given;
    emu_grid = {gx, 1, 1}, emu_block = {bx, 1, 1};
    u32 wave = multiprocessors();
    for (u32 at = 0; at < gx; at += wave)
      if (!run_wave(at, std::min(wave, gx - at), shared, setting("EMULATOR_SEED", 1)))
        return (int)LAUNCH_FAILED;
    return (int)OK;
  });
}

extern "C" {
static u64 host_low, host_high;
void emu_on_host(u64 low, u64 high) { host_low = low, host_high = high; }
u64 emu_launched(void* stream) { return launched[stream]; }
u64 emu_count(int which) { return counts[which]; }
int cuInit(u32) { return OK; }
int cuDriverGetVersion(int* v) { return *v = 13000, OK; }
int cuDeviceGetCount(int* n) { return *n = 1, OK; }
int cuDeviceGet(int* d, int i) { return *d = i, i ? INVALID_VALUE : OK; }
int cuDeviceGetName(char* name, int n, int) { return snprintf(name, n, "emulator"), OK; }
int cuDeviceGetAttribute(int* v, int which, int) {
  switch (which) {
    case 1: *v = setting("EMULATOR_THREADS", 8); break;                  // threads of a block
    case 16: *v = multiprocessors(); break;  // multiprocessors
    case 75: *v = 9; break;                  // compute capability
    case 95: *v = 1; break;                  // cooperative launches
    default: *v = 0;
  }
  return OK;
}
int cuDevicePrimaryCtxRetain(void** c, int) { return *c = (void*)1, OK; }
int cuCtxSetCurrent(void* c) { return contexts.assign(1, c), OK; }
int cuCtxGetCurrent(void** c) { return *c = contexts.empty() ? nullptr : contexts.back(), OK; }
int cuCtxPushCurrent_v2(void* c) { return contexts.push_back(c), OK; }
int cuCtxPopCurrent_v2(void** c) { return *c = contexts.back(), contexts.pop_back(), OK; }
int cuCtxSynchronize() {
  Guard guard(lock);
  return settled++, drain_all();
}
u64 emu_settled() { return settled; }
int cuGetErrorName(int e, const char** name) {
  static const std::map<int, const char*> names = {
      {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
      {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
      {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
      {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
      {TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"}};
  auto found = names.find(e);
  return *name = found == names.end() ? nullptr : found->second, OK;
}
int cuMemAlloc_v2(u64* p, size_t n) {
  NEEDS_CONTEXT;
  Guard guard(lock);
  counts[ALLOCATIONS]++;
  size_t room = (n + 255) / 256 * 256;
  if (used + room > (size_t)setting("EMULATOR_MEGABYTES", 1024) << 20) return OUT_OF_MEMORY;
  u8* base = (u8*)aligned_alloc(256, room + 2 * GUARD);
  if (!base) return OUT_OF_MEMORY;
  memset(base, MARK, room + 2 * GUARD);
  memset(base + GUARD, 0xFF, n);
  *p = (u64)(base + GUARD);
  memory[*p] = n;
  used += room;
  return OK;
}
int cuMemFree_v2(u64 p) {
  NEEDS_CONTEXT;
  Guard guard(lock);
  drain_all();  // as the driver does
  auto found = memory.find(p);
  if (found == memory.end()) return INVALID_VALUE;
  bool whole = guards_hold();
  memset((void*)p, 0xFF, found->second);
  used -= (found->second + 255) / 256 * 256;
  memory.erase(found);
  free((u8*)p - GUARD);
  return whole ? OK : ILLEGAL_ADDRESS;
}
int cuMemAllocHost_v2(void** p, size_t n) { return *p = calloc(n, 1), *p ? OK : OUT_OF_MEMORY; }
int cuMemFreeHost(void* p) { return memset(p, 0xFF, 8), free(p), OK; }
int cuPointerGetAttribute(u32* v, int which, u64 p) {
  Guard guard(lock);
  if (which == 9) return *v = setting("EMULATOR_ORDINAL", 0), OK;
  if (setting("EMULATOR_UNIFIED", 0)) return *v = p < host_low || p >= host_high ? 2 : 1, OK;
  auto next = memory.upper_bound(p);
  if (next == memory.begin()) return INVALID_VALUE;
  --next;
  return *v = 2, p < next->first + std::max<size_t>(next->second, 1) ? OK : INVALID_VALUE;
}
int cuMemcpyHtoDAsync_v2(u64 d, const void* h, size_t n, void* s) {
  NEEDS_CONTEXT;
  Guard guard(lock);
  return enqueue(s, [=] { return counts[COPIES]++, memcpy((void*)d, h, n), OK; });
}
int cuMemcpyDtoHAsync_v2(void* h, u64 d, size_t n, void* s) {
  NEEDS_CONTEXT;
  Guard guard(lock);
  return enqueue(s, [=] { return counts[COPIES]++, memcpy(h, (void*)d, n), OK; });
}
int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t n, void* s) {
  NEEDS_CONTEXT;
  Guard guard(lock);
  return enqueue(s, [=] { return memcpy((void*)to, (void*)from, n), OK; });
}
// An image is the word IMAGE, its length and a shared library.
static const u64 IMAGE = 0x3154494d45544144ull;
int cuModuleLoadData(void** m, const void* image) {
  NEEDS_CONTEXT;
  const u64* head = (const u64*)image;
  if (head[0] != IMAGE) return INVALID_IMAGE;
  char path[] = "/tmp/emulatorXXXXXX";
  int fd = mkstemp(path);
  if (fd < 0) return OUT_OF_MEMORY;
  bool written = write(fd, head + 2, head[1]) == (ssize_t)head[1];
  *m = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!*m) fprintf(stderr, "%s\n", dlerror());
  close(fd), unlink(path);
  return *m ? OK : INVALID_IMAGE;
}
int cuModuleUnload(void* m) { return dlclose(m) ? INVALID_VALUE : OK; }
int cuModuleGetFunction(void** f, void* m, const char* name) {
  return *f = dlsym(m, name), *f ? OK : NOT_FOUND;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, void*, int, size_t) {
  return *n = setting("EMULATOR_OCCUPANCY", 1), OK;
}
int cuLaunchKernel(void* f, u32 gx, u32, u32, u32 bx, u32, u32, u32 shared, void* s, void** a,
                   void**) {
  NEEDS_CONTEXT;
  Guard guard(lock);
  return launch(f, gx, bx, shared, s, a, false);
}
int cuLaunchCooperativeKernel(void* f, u32 gx, u32, u32, u32 bx, u32, u32, u32 shared, void* s,
                              void** a) {
  NEEDS_CONTEXT;
  Guard guard(lock);
  if ((int)gx > multiprocessors()) return TOO_LARGE;
  return launch(f, gx, bx, shared, s, a, true);
}
int cuStreamCreate(void** s, u32) { return stream_of(*s = malloc(1)), OK; }
int cuStreamSynchronize(void* s) {
  NEEDS_CONTEXT;
  Guard guard(lock);
  counts[SYNCHRONISATIONS]++;
  if (int error = drain(stream_of(s), ~0ull)) return error;
  return guards_hold() ? OK : ILLEGAL_ADDRESS;
}
int cuStreamBeginCapture_v2(void* s, int) { return stream_of(s).capture = new Graph, OK; }
int cuStreamEndCapture(void* s, void** g) {
  *g = stream_of(s).capture;
  stream_of(s).capture = nullptr;
  return OK;
}
int cuStreamIsCapturing(void* s, int* status) { return *status = !!stream_of(s).capture, OK; }
int cuStreamWaitEvent(void* s, void* e, u32) {
  Guard guard(lock);
  Event at = *(Event*)e;
  return enqueue(s, [=] { return at.stream ? drain(*at.stream, at.place) : OK; });
}
int cuEventCreate(void** e, u32) { return *e = new Event, OK; }
int cuEventDestroy_v2(void* e) { return delete (Event*)e, OK; }
int cuEventRecord(void* e, void* s) {
  Guard guard(lock);
  return *(Event*)e = {&stream_of(s), stream_of(s).given}, OK;
}
int cuEventQuery(void* handle) {
  Guard guard(lock);
  Event* e = (Event*)handle;
  return e->stream && e->stream->done < e->place ? NOT_READY : OK;
}
int cuEventSynchronize(void* handle) {
  Guard guard(lock);
  Event* e = (Event*)handle;
  return e->stream ? drain(*e->stream, e->place) : OK;
}
int cuEventElapsedTime(float* ms, void*, void*) { return *ms = 1, OK; }
int cuGraphInstantiateWithFlags(void** e, void* g, u64) { return *e = new Graph(*(Graph*)g), OK; }
int cuGraphDestroy(void* g) { return delete (Graph*)g, OK; }
int cuGraphExecDestroy(void* g) { return delete (Graph*)g, OK; }
int cuGraphLaunch(void* g, void* s) {
  NEEDS_CONTEXT;
  Guard guard(lock);
  if (stream_of(s).capture) return CAPTURED;
  counts[GRAPHS]++, launched[s]++;
  Graph all = *(Graph*)g;
  return enqueue(s, [=] {
    for (auto& work : all)
      if (int error = work()) return error;
    return (int)OK;
  });
}

int cuMemsetD8Async(u64 to, u8 value, size_t n, void* s) {
  NEEDS_CONTEXT;
  Guard guard(lock);
  return enqueue(s, [=] { return memset((void*)to, value, n), OK; });
}
#include "blas.h"

// ---------------------------------------------------------------- NVRTC
// EMULATOR_COMPILER is a command that makes the shared library $1 of the C++ text $0.
struct Program {
  std::string text, log, image;
};
int nvrtcVersion(int* major, int* minor) { return *major = 0, *minor = setting("EMULATOR_VERSION", 0), 0; }
const char* nvrtcGetErrorString(int) { return "the compiler of the emulator failed"; }
int nvrtcCreateProgram(void** p, const char* text, const char*, int, void*, void*) {
  return *p = new Program{text, "", ""}, 0;
}
int nvrtcDestroyProgram(void** p) { return delete (Program*)*p, 0; }
int nvrtcCompileProgram(void* program, int, const char**) {
  Program* p = (Program*)program;
  char folder[] = "/tmp/emulatorXXXXXX";
  if (!mkdtemp(folder)) return 1;
  std::string base = folder, source = base + "/k.cpp", library = base + "/k.so";
  FILE* f = fopen(source.c_str(), "w");
  fwrite(p->text.data(), 1, p->text.size(), f);
  fclose(f);
  std::string command = std::string(getenv("EMULATOR_COMPILER")) + " -o " + library + " " + source;
  if (FILE* out = popen((command + " 2>&1").c_str(), "r")) {
    char line[4096];
    while (size_t n = fread(line, 1, sizeof line, out)) p->log.append(line, n);
    pclose(out);
  }
  std::string body;
  if (FILE* made = fopen(library.c_str(), "r")) {
    char part[65536];
    while (size_t n = fread(part, 1, sizeof part, made)) body.append(part, n);
    fclose(made);
  }
  unlink(source.c_str()), unlink(library.c_str()), rmdir(folder);
  if (body.empty()) return 6;
  u64 head[2] = {IMAGE, body.size()};
  p->image.assign((char*)head, sizeof head);
  p->image += body;
  return 0;
}
int nvrtcGetProgramLogSize(void* p, size_t* n) { return *n = ((Program*)p)->log.size() + 1, 0; }
int nvrtcGetProgramLog(void* p, char* out) { return strcpy(out, ((Program*)p)->log.c_str()), 0; }
int nvrtcGetCUBINSize(void* p, size_t* n) { return *n = ((Program*)p)->image.size(), 0; }
int nvrtcGetCUBIN(void* p, char* out) {
  Program* q = (Program*)p;
  return memcpy(out, q->image.data(), q->image.size()), 0;
}
}
