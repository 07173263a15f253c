"""Products of an inner loop that the outer one does not change leave both."""

from __future__ import annotations

import numpy as np
import pytest

import ir
from ir.passes import run
from ir.passes.loops.inner_invariants import hoist_from_inner_loops
from tests.executor.test_random_programs import agree, arrays
from tests.ir.autodiff.differences import check

DECODER = """program decoder(%x: f64[2,4] arg "x", %c: f64[5,4] arg "c", %ws: f64[3,4,4] arg "ws", %vs: f64[3,4] arg "vs") {
  scan %t < 6 {
    const %c1 = %c                               : f64[5,4]
    const %ws1 = %ws                             : f64[3,4,4]
    const %vs1 = %vs                             : f64[3,4]
    carry %g = %x then %hn last %gn              : f64[2,4]
    body
      scan %l < 3 {
        const %c2 = %c1                          : f64[5,4]
        seq   %w = %ws1[l]                       : f64[4,4]
        seq   %v = %vs1[-l+2]                    : f64[4]
        carry %h = %g then %h2 last %hn          : f64[2,4]
        body
          %k = matmul(%c2, %w)                   : f64[5,4]
          %k2 = add(%k, %v)                      : f64[5,4]
          %s = matmul(%h, %k2, trans_y=True)     : f64[2,5]
          %a = matmul(%s, %k)                    : f64[2,4]
          %h2 = tanh(%a)                         : f64[2,4]
      }
  }
  return %gn
}"""  # noqa: E501
#: what keeps the product where it is
STAYS = {
    "the_outer_loop_changes_an_operand": ("const %c2 = %c1 ", "const %c2 = %c3 "),
    "no_product": ("%k = matmul(%c2, %w)                   : f64[5,4]",
                   "%k = full(value=0.5, shape=[5, 4], dtype=f64) : f64[5,4]"),
}  # fmt: skip


def rewritten(rewrite, text, golden):
    """A rewrite gives the golden text, finds nothing more in it, and keeps the values."""
    p = ir.verify(ir.parse(text))
    q = ir.verify(rewrite(p))
    assert str(q) == golden
    assert str(rewrite(q)) == str(q)
    xs = arrays(p, {}, np.random.default_rng(0))
    for a, b in zip(ir.evaluate(q, xs)[0], ir.evaluate(p, xs)[0], strict=True):
        agree(a, b, str(q))


def test_the_product_is_computed_before_both_loops(golden):
    rewritten(hoist_from_inner_loops, DECODER, golden)


@pytest.mark.parametrize("native", [False, True])
def test_its_gradient_is_one_of_all_steps(native):
    xs = [0.5 * x for x in arrays(ir.parse(DECODER), {}, np.random.default_rng(0))]
    g = check(DECODER, xs, native=native)
    text = str(run(g.backward, start_at="expand"))
    assert text.index("matmul") > text.index("scan")


@pytest.mark.parametrize("name", STAYS)
def test_other_work_stays(name):
    text = DECODER.replace(*STAYS[name])
    if "%c3" in text:
        text = text.replace(
            "    body\n      scan", "    body\n      %c3 = add(%c1, %c1) : f64[5,4]\n      scan"
        )
        text = text.replace("%c3 = add(%c1, %c1)", "%c3 = concat(%g, %g, %z, axis=0)")
        text = text.replace("    const %ws1", "    const %z = %y : f64[1,4]\n    const %ws1")
        text = text.replace(
            "{\n  scan %t",
            "{\n  %y = slice(%c, axis=0, start=0, length=1) : f64[1,4]\n  scan %t",
            1,
        )
    p = ir.verify(ir.parse(text))
    assert str(hoist_from_inner_loops(p)) == str(p)
