// The device names of executor/gpu/preamble.py on the CPU: put in front of a kernel text, whose own
// preamble is then left out. One fiber of runtime.cpp stands for one CUDA thread.
#define DY2ST_PREAMBLE
typedef unsigned u32;
typedef unsigned short u16;
typedef unsigned long long u64;
typedef unsigned char u8;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
#define DEV static
#define __global__
#define __launch_bounds__(...)

struct Index3 {
  u32 x, y, z;
};
// Where the running fiber is; `shared` is the shared memory of its block.
struct Lane {
  Index3 thread, block;
  u8* shared;
};
extern "C" {
extern Lane* emu_lane;
extern Index3 emu_grid, emu_block;
void emu_syncthreads();
void emu_yield();
u64 emu_shuffle(u64 value, u32 mask);  // of the lane whose number differs in the mask
// A tile of 16 x 8 results of the warp, by the layout of mma.sync m16n8k16 (bf16) and m16n8k8 (tf32).
void emu_mma(float* c, const u32* a, u32 b0, u32 b1, int bf16);
void emu_moved();  // something that another fiber may wait for has happened
u32 emu_planted(int place);  // arrivals that a test has planted
float fmaf(float, float, float);
float sqrtf(float);
float floorf(float);
float ceilf(float);
float truncf(float);
float rintf(float);
float fabsf(float);
float copysignf(float, float);
float fmodf(float, float);
double fma(double, double, double);
double sqrt(double);
double floor(double);
double ceil(double);
double trunc(double);
double rint(double);
double fabs(double);
double copysign(double, double);
double fmod(double, double);
}
#define threadIdx (emu_lane->thread)
#define blockIdx (emu_lane->block)
#define blockDim emu_block
#define gridDim emu_grid

template <class To, class From> static inline To emu_bits(From x) {
  To r;
  __builtin_memcpy(&r, &x, sizeof(r));
  return r;
}
DEV float __uint_as_float(u32 x) { return emu_bits<float>(x); }
DEV int __float_as_int(float x) { return emu_bits<int>(x); }
DEV double __longlong_as_double(i64 x) { return emu_bits<double>(x); }
DEV i64 __double_as_longlong(double x) { return emu_bits<i64>(x); }
DEV void __syncthreads() { emu_syncthreads(); }
DEV u8* shared_memory() { return emu_lane->shared; }
DEV u64 atomicMin(u64* p, u64 v) {
  u64 old = *p;
  if (v < old) *p = v;
  return old;
}
DEV void arrive(u32* counter) {
  ++*counter;
  emu_moved();
}
DEV void wait_for(u32* counter, u32 target) {
  while ((int)(*(volatile u32*)counter - target) < 0) emu_yield();
  emu_moved();
}
DEV float shuffle_xor(float v, u32 m) { return emu_bits<float>((u32)emu_shuffle(emu_bits<u32>(v), m)); }
DEV double shuffle_xor(double v, u32 m) { return emu_bits<double>(emu_shuffle(emu_bits<u64>(v), m)); }
DEV u32 rounded_bits(float x, u32 away, int shift) {
  u32 u = emu_bits<u32>(x);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fffffffu >> shift;
  return (u + away) >> shift;
}
DEV u32 bf16_bits(float x) {  // to the nearest, ties to even
  return rounded_bits(x, 0x7fff + (emu_bits<u32>(x) >> 16 & 1), 16);
}
DEV u32 to_bf16(float low, float high) { return bf16_bits(low) | bf16_bits(high) << 16; }
DEV u32 to_tf32(float x) { return rounded_bits(x, 0x1000, 13) << 13; }  // ties away from zero
DEV void mma_bf16(float* c, const u32* a, u32 b0, u32 b1) { emu_mma(c, a, b0, b1, 1); }
DEV void mma_tf32(float* c, const u32* a, u32 b0, u32 b1) { emu_mma(c, a, b0, b1, 0); }
DEV u64 load_word(u64* p) { return *(volatile u64*)p; }
