"""A state that the backward reads before and after a step is kept once."""

from __future__ import annotations

import pytest

from tests.ir.autodiff.differences import check, gradient
from tests.ir.autodiff.test_autodiff import normal

RNN = """program rnn(%x: f64[5,2,3] arg "x", %h0: f64[2,3] arg "h", %w: f64[3,3] param "w") {
  scan %t < 5 {
    const %w1 = %w                               : f64[3,3]
    seq   %xt = %x[t]                            : f64[2,3]
    carry %h = %h0 then %h2 last %hT             : f64[2,3]
    STACK
    body
      %a = matmul(%h, %w1)                       : f64[2,3]
      %b = add(%a, %xt)                          : f64[2,3]
      %h2 = tanh(%b)                             : f64[2,3]
  }
  READ
  return %hT, %y
}"""
PROGRAMS = {
    "last": ("", "%y = neg(%hT) : f64[2,3]"),
    "stacked": ("stack %hs = %h2 axis 1 : f64[2,5,3]", "%y = assign(%hs) : f64[2,5,3]"),
}


def text(name: str) -> str:
    stack, read = PROGRAMS[name]
    return RNN.replace("    STACK\n", f"    {stack}\n" if stack else "").replace("READ", read)


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_residual_of_one_step_more(name):
    p = text(name)
    check(p, [normal(5, 2, 3), normal(2, 3), normal(3, 3)], native=True)
    kept = [r for r in gradient(p).residuals if r.source == "kept"]
    assert [r.bytes for r in kept] == [6 * 2 * 3 * 8]


def test_an_output_is_there_anyway():
    p = text("stacked").replace("  %y = assign(%hs) : f64[2,5,3]\n", "").replace("%y", "%hs")
    found = gradient(p).residuals
    assert [r.source for r in found].count("output") == 1
    assert [r.bytes for r in found if r.source == "kept"] == [5 * 2 * 3 * 8]


def test_not_of_a_loop_whose_length_is_data():
    go = "    go %p then %more\n    const %w1"
    p = text("last").replace("scan %t < 5", "while %t < 5 as n").replace("    const %w1", go)
    p = p.replace('arg "h",', 'arg "h", %p: bool[] arg "p",')
    p = p.replace("%h2 = tanh(%b)  ", "%k = full(value=3, dtype=i64) : i64[]\n"
                  "      %more = less_than(%t, %k) : bool[]\n      %h2 = tanh(%b)  ")  # fmt: skip
    found = [r for r in gradient(p, wrt=[1, 3]).residuals if r.source == "kept"]
    assert len(found) == 2 and all(str(r.type.shape[0]) == "n" for r in found)


def test_states_that_hand_each_other_on():
    """What one state is before a step is what another one is after it."""
    check(
        """program p(%x: f64[4,3] arg "x", %h0: f64[3] arg "h", %g0: f64[3] arg "g") {
  scan %t < 4 {
    seq   %xt = %x[t]                            : f64[3]
    carry %h = %h0 then %g last %hT              : f64[3]
    carry %g = %g0 then %g2 last %gT             : f64[3]
    body
      %a = multiply(%h, %g)                      : f64[3]
      %b = multiply(%a, %xt)                     : f64[3]
      %g2 = tanh(%b)                             : f64[3]
  }
  return %hT, %gT
}""",
        [normal(4, 3), normal(3), normal(3)],
        native=True,
    )
