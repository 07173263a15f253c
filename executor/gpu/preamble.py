"""The preamble of every kernel text: names for CUDA's types and for what kernels need of PTX.

No header is included, so that NVRTC alone compiles a text. `DY2ST_PREAMBLE` leaves the device's
part out where other definitions of the same names stand in front: those of the emulator of the
tests.

A program has one table in device memory: words of 64 bits, see `executor.gpu.device_table`.
"""

from __future__ import annotations

from executor.gpu.device_table import CODE, FAILURES, INDEX, INDEXED, NONE, ORDER

#: bytes of shared memory of every block: slices of two matrices, a number for each thread, or the
#: sums of four gates of all warps
SHARED = 16 * 1024
#: the most threads of a block, and threads that shuffle; powers of two
THREADS, WARP = 256, 32

DEVICE = """#ifndef DY2ST_PREAMBLE
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
typedef unsigned char u8;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
#define DEV static __device__
extern __shared__ __align__(16) u8 shared_bytes[];
DEV u8* shared_memory() { return shared_bytes; }
DEV void arrive(u32* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0],1;" ::"l"(counter) : "memory");
}
DEV void wait_for(u32* counter, u32 target) {
  u32 v;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0,[%1];" : "=r"(v) : "l"(counter) : "memory");
  } while ((i32)(v - target) < 0);
}
DEV float shuffle_xor(float v, u32 m) { return __shfl_xor_sync(0xffffffffu, v, m); }
DEV double shuffle_xor(double v, u32 m) { return __shfl_xor_sync(0xffffffffu, v, m); }
DEV u32 to_bf16(float low, float high) {
  u32 v;
  asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(v) : "f"(high), "f"(low));
  return v;
}
DEV u32 to_tf32(float x) {
  u32 v;
  asm("cvt.rna.tf32.f32 %0,%1;" : "=r"(v) : "f"(x));
  return v;
}
DEV void mma_bf16(float* c, const u32* a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEV void mma_tf32(float* c, const u32* a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
               "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEV u64 load_word(u64* p) {
  u64 v;
  asm volatile("ld.relaxed.gpu.global.u64 %0,[%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
#endif
"""

#: A failure is seen by all blocks at the next barrier, and all see the same: threads that run
#: between barriers k and k + 1 write word k % 2, which is read behind barrier k + 1 only. A kernel
#: has the pair of words that the one before it has not, and reads that one's when it starts.
GRID = f"""
struct Grid {{
  i64 thread, threads;
  u32 round;
  u32* counter;
  u64 *mine, *before;
  u64 order;
  i64* index;
}};
DEV Grid grid_of(i64* table, int kernel, int counter) {{
  u64* words = (u64*)table + {FAILURES};
  Grid g;
  g.thread = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  g.threads = (i64)gridDim.x * blockDim.x;
  g.round = 0;
  g.counter = (u32*)(table + counter);
  g.mine = words + 2 * (kernel & 1);
  g.before = words + 2 * (~kernel & 1);
  g.order = 0;
  g.index = table + {INDEX};
  return g;
}}
DEV void report(const Grid& g, u64 key) {{ atomicMin(g.mine + (g.round & 1), key); }}
DEV void fail(const Grid& g, u64 code) {{ report(g, g.order << {ORDER} | code); }}
DEV void fail_at(const Grid& g, u64 code, i64 index) {{
  if (g.thread) return;
  *g.index = index;
  report(g, g.order << {ORDER} | {INDEXED}u | code);
}}
DEV bool stopped(const Grid& g) {{
  u64 a = load_word(g.before), b = load_word(g.before + 1), least = a < b ? a : b;
  if (least == {NONE}ull) return false;
  if (!g.thread) report(g, least);
  return true;
}}
DEV bool barrier(Grid& g, u32 arrivals) {{
  __syncthreads();
  if (gridDim.x > 1) {{
    if (!threadIdx.x) {{
      arrive(g.counter);
      wait_for(g.counter, (g.round + 1) * arrivals);
    }}
    __syncthreads();
  }}
  bool failed = load_word(g.mine + (g.round & 1)) != {NONE}ull;
  g.round++;
  return failed;
}}
DEV float scaled(float x, i32 n) {{
  n = n > 252 ? 252 : n < -252 ? -252 : n;
  i32 half = n >> 1;
  x *= __uint_as_float((u32)(half + 127) << 23);
  return x * __uint_as_float((u32)(n - half + 127) << 23);
}}
DEV double scaled(double x, i64 n) {{
  n = n > 2044 ? 2044 : n < -2044 ? -2044 : n;
  i64 half = n >> 1;
  x *= __longlong_as_double((half + 1023) << 52);
  return x * __longlong_as_double((n - half + 1023) << 52);
}}
"""
assert CODE < INDEXED < 1 << ORDER

TEXT = DEVICE + GRID
