"""Carries that a body puts together and takes apart again are one."""

from __future__ import annotations

import numpy as np
import pytest

import ir
from ir.passes.loops.joined_carries import join_carries
from tests.executor.test_random_programs import arrays
from tests.ir.autodiff.differences import check
from tests.ir.passes.loops.test_inner_invariants import rewritten

STATES = """program states(%x: f64[5,4] arg "x", %a: f64[4] arg "a", %b: f64[4] arg "b", %c: f64[4] arg "c") {
  scan %t < 5 {
    seq   %y = %x[t]                             : f64[4]
    carry %h = %a then %h2 last %hn              : f64[4]
    carry %i = %b then %i2                       : f64[4]
    carry %j = %c then %j2 last %jn              : f64[4]
    stack %ys = %yn axis 0                       : f64[5,4]
    body
      %s = tensor_array(%h, %i, %j)              : f64[3,4]
      scan %l < 3 {
        seq   %u = %s[l]                         : f64[4]
        carry %v = %y then %v2 last %yn          : f64[4]
        stack %s2 = %v2 axis 0                   : f64[3,4]
        body
          %w = add(%u, %v)                       : f64[4]
          %v2 = tanh(%w)                         : f64[4]
      }
      %h2 = index(%s2, axis=0, index=0)          : f64[4]
      %i2 = index(%s2, axis=0, index=1)          : f64[4]
      %j2 = index(%s2, axis=0, index=2)          : f64[4]
  }
  return %ys, %hn, %jn
}"""  # noqa: E501
#: what keeps the carries apart
APART = {
    "another_order": ("index(%s2, axis=0, index=1)", "index(%s2, axis=0, index=0)"),
    "read_alone": ("%v2 = tanh(%w)  ", "%v2 = sin(%w)  "),
}


def test_states_of_layers_are_one_carry(golden):
    rewritten(join_carries, STATES, golden)


@pytest.mark.parametrize("native", [False, True])
def test_gradients_of_joined_states(native):
    check(STATES, arrays(ir.parse(STATES), {}, np.random.default_rng(0)), native=native)


@pytest.mark.parametrize("name", APART)
def test_carries_that_stay(name):
    text = STATES.replace(*APART[name])
    if name == "read_alone":
        port = "    stack %hs = %h axis 0 : f64[5,4]\n"
        text = text.replace("    body\n      %s = ", f"{port}    body\n      %s = ")
    p = ir.verify(ir.parse(text))
    assert str(join_carries(p)) == str(p)
