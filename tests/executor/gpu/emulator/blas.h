// Stand-in for cuBLASLt: part of runtime.cpp. Matrices are stored by columns; sums are taken in double.
struct Description {
  int compute, scale, turned[2] = {0, 0};
  u32 epilogue = 1;
  u64 bias = 0;
};
struct MatrixLayout {
  int type;
  u64 rows, columns;
  i64 ld, stride = 0;
  int batches = 1;
  size_t size() const { return type ? 8 : 4; }
};
struct Preference {
  u64 room = 0;
  u32 alignment[4] = {256, 256, 256, 256};
};
static u64 multiplied;
u64 emu_multiplied() { return multiplied; }
static double element(const MatrixLayout& l, u64 base, int batch, u64 row, u64 column) {
  u64 at = base + l.size() * (batch * l.stride + column * l.ld + row);
  return l.type ? *(double*)at : *(float*)at;
}
static void set(const MatrixLayout& l, u64 base, int batch, u64 row, u64 column, double v) {
  u64 at = base + l.size() * (batch * l.stride + column * l.ld + row);
  if (l.type) *(double*)at = v;
  else *(float*)at = (float)v;
}
static bool is_right(const MatrixLayout& l) {
  return l.ld >= (i64)l.rows && l.rows > 0 && l.columns > 0;
}
int cublasLtCreate(void** h) {
  NEEDS_CONTEXT;
  return *h = malloc(1), 0;
}
int cublasLtMatmulDescCreate(void** d, int compute, int scale) {
  return *d = new Description{compute, scale}, 0;
}
int cublasLtMatmulDescDestroy(void* d) { return delete (Description*)d, 0; }
int cublasLtMatmulDescSetAttribute(void* handle, int which, const void* v, size_t n) {
  Description* d = (Description*)handle;
  switch (which) {
    case 3: case 4: return d->turned[which - 3] = *(int*)v, n == 4 ? 0 : 7;
    case 7: return d->epilogue = *(u32*)v, n == 4 ? 0 : 7;
    case 8: return d->bias = *(u64*)v, n == 8 ? 0 : 7;
  }
  return 7;
}
int cublasLtMatrixLayoutCreate(void** l, int type, u64 rows, u64 columns, i64 ld) {
  return *l = new MatrixLayout{type, rows, columns, ld}, 0;
}
int cublasLtMatrixLayoutDestroy(void* l) { return delete (MatrixLayout*)l, 0; }
int cublasLtMatrixLayoutSetAttribute(void* handle, int which, const void* v, size_t n) {
  MatrixLayout* l = (MatrixLayout*)handle;
  if (which == 5) return l->batches = *(int*)v, n == 4 ? 0 : 7;
  if (which == 6) return l->stride = *(i64*)v, n == 8 ? 0 : 7;
  return 7;
}
int cublasLtMatmulPreferenceCreate(void** p) { return *p = new Preference, 0; }
int cublasLtMatmulPreferenceDestroy(void* p) { return delete (Preference*)p, 0; }
int cublasLtMatmulPreferenceSetAttribute(void* handle, int which, const void* v, size_t n) {
  Preference* p = (Preference*)handle;
  if (which == 1) return p->room = *(u64*)v, n == 8 ? 0 : 7;
  if (which >= 5 && which <= 8) p->alignment[which - 5] = *(u32*)v;
  return n == 4 ? 0 : 7;
}
struct Heuristic {
  u64 algorithm[8];
  size_t room;
  int state;
  float waves;
  int reserved[4];
};
// The algorithm remembers which alignments it was chosen for.
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void* a, void* b, void* c, void* d, void* handle,
                                   int, Heuristic* out, int* count) {
  Preference* p = (Preference*)handle;
  *out = Heuristic{};
  for (int k = 0; k < 4; k++) out->algorithm[k] = p->alignment[k];
  out->algorithm[4] = 42;
  out->room = std::min<u64>(p->room, 64);
  for (void* l : {a, b, c, d})
    if (!is_right(*(MatrixLayout*)l)) return *count = 0, 7;
  return *count = 1, 0;
}
int cublasLtMatmul(void*, void* handle, const void* alpha, u64 a, void* la, u64 b, void* lb,
                   const void* beta, u64 c, void* lc, u64 d, void* ld, const u64* algorithm,
                   u64 room, size_t size, void* s) {
  NEEDS_CONTEXT;
  Guard guard(lock);
  Description q = *(Description*)handle;
  MatrixLayout x = *(MatrixLayout*)la, y = *(MatrixLayout*)lb, z = *(MatrixLayout*)lc,
               out = *(MatrixLayout*)ld;
  u64 at[4] = {a, b, c, d};
  for (int k = 0; k < 4; k++)
    if (at[k] % algorithm[k]) return 7;
  if (algorithm[4] != 42 || size < 64 || !room) return 7;
  bool wide = q.scale == 1;
  double times = wide ? *(double*)alpha : *(float*)alpha, plus = wide ? *(double*)beta : *(float*)beta;
  u64 depth = q.turned[0] ? x.rows : x.columns;
  if (depth != (q.turned[1] ? y.columns : y.rows)) return 7;
  if (out.rows != (q.turned[0] ? x.columns : x.rows)) return 7;
  if (out.columns != (q.turned[1] ? y.rows : y.columns)) return 7;
  multiplied++;
  return enqueue(s, [=] {
    memset((void*)room, 0xFF, size);
    for (int batch = 0; batch < out.batches; batch++)
      for (u64 j = 0; j < out.columns; j++)
        for (u64 i = 0; i < out.rows; i++) {
          double total = 0;
          for (u64 k = 0; k < depth; k++)
            total += element(x, a, batch, q.turned[0] ? k : i, q.turned[0] ? i : k) *
                     element(y, b, batch, q.turned[1] ? j : k, q.turned[1] ? k : j);
          total *= times;
          if (plus != 0) total += plus * element(z, c, batch, i, j);
          MatrixLayout row = {out.type, 1, out.rows, 1};
          if (q.epilogue == 4) total += element(row, q.bias, 0, 0, i);
          set(out, d, batch, i, j, total);
        }
    return (int)OK;
  });
}
