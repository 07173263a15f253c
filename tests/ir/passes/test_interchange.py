"""A loop over steps of a loop over layers becomes a loop over layers of a loop over steps."""

from __future__ import annotations

import numpy as np
import pytest

import executor
import ir
from ir.passes import run
from ir.passes.interchange import interchange_loops
from tests.executor.test_random_programs import agree, arrays

#: embedded, stepped through layers that each have a state, and read out
LAYERS = """program layers(%ids: i64[T] arg "ids", %e: f64[9,2,128] param "e", %ws: f64[6,128,128] param "ws", %vs: f64[6,128] param "vs", %s0: f64[6,2,128] arg "s0", %u: f64[128,4] param "u", %total: f64[2,4] arg "total") {
  scan %t < T {
    const %e1 = %e                               : f64[9,2,128]
    const %ws1 = %ws                             : f64[6,128,128]
    const %vs1 = %vs                             : f64[6,128]
    const %u1 = %u                               : f64[128,4]
    seq   %id = %ids[t]                          : i64[]
    carry %s = %s0 then %s2 last %sT             : f64[6,2,128]
    carry %o = %total then %o2 last %oT          : f64[2,4]
    stack %ys = %yL axis 0                       : f64[T,2,128]
    stack %xs = %x axis 1                        : f64[2,T,128]
    stack %all = %rs axis 0                      : f64[T,6,2,128]
    last  %yT = %yL                              : f64[2,128]
    body
      %i = maximum(%id, %id)                     : i64[]
      %x = dynamic_index(%e1, %i, axis=0)        : f64[2,128]
      scan %l < 6 {
        const %tt = %t                           : i64[]
        const %xx = %x                           : f64[2,128]
        seq   %h = %s[l]                         : f64[2,128]
        seq   %w = %ws1[l]                       : f64[128,128]
        seq   %v = %vs1[-l+5]                    : f64[128]
        carry %y = %x then %y2 last %yL          : f64[2,128]
        stack %s2 = %h2 axis 0                   : f64[6,2,128]
        stack %rs = %q axis 0                    : f64[6,2,128]
        body
          %p = matmul(%y, %w)                    : f64[2,128]
          %q = add(%p, %h)                       : f64[2,128]
          %r = multiply(%q, %v)                  : f64[2,128]
          %a = cast(%tt, dtype=f64)               : f64[]
          %b = cast(%l, dtype=f64)               : f64[]
          %c = add(%a, %b)                       : f64[]
          %d = add(%r, %c)                       : f64[2,128]
          %h2 = tanh(%d)                         : f64[2,128]
          %y2 = add(%h2, %xx)                    : f64[2,128]
      }
      %k = matmul(%yL, %u1)                      : f64[2,4]
      %o1 = add(%o, %k)                          : f64[2,4]
      %o2 = tanh(%o1)                            : f64[2,4]
  }
  return %ys, %xs, %sT, %oT, %all, %yT
}"""  # noqa: E501
#: what keeps the loops as they are
STAYS = {
    "a_layer_reads_the_state_of_another": ("seq   %h = %s[l] ", "seq   %h = %s[-l+5] "),
    "weights_in_a_cache": ("128", "16"),
    "the_product_reads_the_state": ("matmul(%y, %w)", "matmul(%h, %w)"),
    "a_step_reads_what_the_layers_gave_before": (
        "dynamic_index(%e1, %i, axis=0)        : f64[2,128]",
        "sum(%s, axes=[0])                     : f64[2,128]",
    ),
    "all_states_are_shown": ("%all = %rs axis 0", "%all = %s axis 0"),
    "few_steps": (" < T ", " < 3 "),
    "results_along_another_axis": ("stack %ys = %yL axis 0                       : f64[T,2,128]",
                                   "stack %ys = %yL axis 1                       : f64[2,T,128]"),
}  # fmt: skip


def test_layers_are_around_steps(golden):
    p = ir.verify(ir.parse(LAYERS))
    q = ir.verify(interchange_loops(p))
    assert str(q) == golden
    assert str(interchange_loops(q)) == str(q)
    for steps in (1, 5):
        xs = arrays(p, {"T": steps}, np.random.default_rng(0))
        xs[0] = np.arange(steps) % 9
        for a, b in zip(ir.evaluate(q, xs)[0], ir.evaluate(p, xs)[0], strict=True):
            agree(a, b, str(q))


def test_native_code_computes_the_same():
    p = ir.parse(LAYERS)
    native = executor.compile(run(p))
    for steps in (1, 4):
        xs = arrays(p, {"T": steps}, np.random.default_rng(1))
        xs[0] = np.arange(steps) % 9
        for a, b in zip(native(*xs), ir.evaluate(p, xs)[0], strict=True):
            agree(a, b, LAYERS)


@pytest.mark.parametrize("name", STAYS)
def test_loops_that_stay(name):
    old, new = STAYS[name]
    text = LAYERS.replace(old, new)
    if name == "few_steps":
        text = text.replace("[T]", "[3]").replace("[T,", "[3,").replace(",T,", ",3,")
    assert text != LAYERS
    p = ir.verify(ir.parse(text))
    assert interchange_loops(p) is p
