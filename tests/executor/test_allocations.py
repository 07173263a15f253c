"""A step of a loop allocates and frees nothing: the calls of the C library are counted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

#: counts between `counter_on` and `counter_off`
COUNTER = """
#include <stddef.h>
extern void *__libc_malloc(size_t); extern void __libc_free(void *);
extern void *__libc_realloc(void *, size_t); extern void *__libc_calloc(size_t, size_t);
static long count, on;
void *malloc(size_t n) { count += on; return __libc_malloc(n); }
void free(void *p) { count += on && p; __libc_free(p); }
void *realloc(void *p, size_t n) { count += on; return __libc_realloc(p, n); }
void *calloc(size_t n, size_t m) { count += on; return __libc_calloc(n, m); }
void counter_on(void) { count = 0; on = 1; }
long counter_off(void) { on = 0; return count; }
"""
#: products, a kernel, a cache read up to the step, a branch on data, an inner loop, an end by data
PROGRAM = """
program p(%x: f32[T,8] arg "x", %w: f32[8,8] arg "w", %h0: f32[8] arg "h", %c0: f32[T,8] arg "c") {
  %yes = full(value=True, dtype=bool)  : bool[]
  scan t < T {
    const %w1 = %w  : f32[8,8]
    seq   %xt = %x[t]  : f32[8]
    carry %h = %h0 then %h2 last %hT  : f32[8]
    carry %c = %c0 then %c2  : f32[T,8]
    stack %ys = %k2 axis 0  : f32[T,8]
    body
      %a = matmul(%h, %w1)  : f32[8]
      %b = add(%a, %xt)  : f32[8]
      %d = tanh(%b)  : f32[8]
      %c2 = set_index(%c, %d, axis=0, index=t)  : f32[T,8]
      %p = slice(%c2, axis=0, start=0, length=t+1)  : f32[t+1,8]
      %m = max(%p, axes=[0])  : f32[8]
      %s = sum(%m)  : f32[]
      %zero = full(value=0.0, dtype=f32)  : f32[]
      %q = less_than(%s, %zero)  : bool[]
      cond %q {
        const %m1 = %m  : f32[8]
        join  %h2 = %e else %m1  : f32[8]
        then
          %e = neg(%m1)  : f32[8]
        else
      }
      scan %u < 3 {
        const %w2 = %w1  : f32[8,8]
        carry %k = %h2 then %k1 last %k2  : f32[8]
        body
          %k1 = matmul(%k, %w2)  : f32[8]
      }
  }
  while %r < T as n {
    go    %yes then %more
    const %one = %yes  : bool[]
    carry %g = %h0 then %g2 last %gT  : f32[8]
    body
      %g2 = cumsum(%g, axis=0)  : f32[8]
      %n = sum(%g2)  : f32[]
      %finite = less_equal(%n, %n)  : bool[]
      %more = logical_and(%one, %finite)  : bool[]
  }
  return %hT, %ys, %gT
}"""
SCRIPT = f"""
import ctypes, gc
import numpy as np
import executor, ir, ir.passes
counter = ctypes.CDLL(None)
run = executor.compile(ir.passes.run(ir.parse('''{PROGRAM.strip()}''')))
gc.disable()
for steps in (1000, 10, 1000):
    args = [np.zeros(s, np.float32) for s in ((steps, 8), (8, 8), 8, (steps, 8))]
    run(*args)
    counter.counter_on()
    out = run(*args)
    print(counter.counter_off())
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="the counter is written in C")
def test_a_step_allocates_nothing(tmp_path):
    library = tmp_path / "counter.so"
    command = ["cc", "-x", "c", "-O1", "-fPIC", "-shared", "-o", str(library), "-"]
    subprocess.run(command, input=COUNTER, text=True, check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True
    )
    assert out.returncode == 0, out.stderr
    many, few, again = map(int, out.stdout.split())
    # of a call: its tables and results, those of the call before, what Python makes now and then
    assert 0 < few < 20 and many < 20 and again < 20
