"""Gradients of the weights of layers in a loop over time: one product of all steps for each."""

from __future__ import annotations

import numpy as np
import pytest

import ir
from tests.executor.test_random_programs import arrays
from tests.ir.autodiff.differences import check, gradient

NETWORK = """program network(%x: f64[2,4] arg "x", %a: f64[4,4] arg "a", %b: f64[4,4] arg "b", %c: f64[4,4] arg "c", %p: f64[4] arg "p", %q: f64[4] arg "q", %r: f64[4] arg "r") {
  %w = tensor_array(%a, %b, %c)                  : f64[3,4,4]
  %v = tensor_array(%p, %q, %r)                  : f64[3,4]
  scan %t < 5 {
    const %w1 = %w                               : f64[3,4,4]
    const %v1 = %v                               : f64[3,4]
    carry %g = %x then %hn last %gn              : f64[2,4]
    body
      scan %l < 3 {
        seq   %wl = %w1[l]                       : f64[4,4]
        seq   %vl = %v1[-l+2]                    : f64[4]
        carry %h = %g then %h2 last %hn          : f64[2,4]
        body
          %y = matmul(%h, %wl)                   : f64[2,4]
          %z = add(%y, %vl)                      : f64[2,4]
          %h2 = tanh(%z)                         : f64[2,4]
      }
  }
  return %gn
}"""  # noqa: E501


def test_weights_of_layers_have_one_product(golden):
    assert str(gradient(NETWORK, of=[0], wrt=[1, 2, 3, 4, 5, 6]).backward) == golden


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_gradients_of_layers_over_time(native, rows):
    text = NETWORK.replace("[2,4]", f"[{rows},4]")
    check(text, arrays(ir.parse(text), {}, np.random.default_rng(0)), native=native)
