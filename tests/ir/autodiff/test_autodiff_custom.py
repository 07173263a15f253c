"""Custom blocks: gradients that the user wrote, their text, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from ir import VerifyError, parse, verify
from ir.analysis.alias import AliasError
from ir.passes import expand, functionalize
from tests.ir.autodiff.differences import check, functional, gradient, gradients_of
from tests.ir.autodiff.test_autodiff import BRANCH, normal

CUSTOM = """program spikes(%x: f64[4,3] arg "x", %b: f64[3] arg "b") {
  %h0 = full(value=0.0, shape=[3], dtype=f64)    : f64[3]
  scan %t < 4 {
    const %b1 = %b                               : f64[3]
    seq   %xt = %x[t]                            : f64[3]
    carry %h = %h0 then %h2 last %hT             : f64[3]
    body
      %v = add(%h, %xt)                          : f64[3]
      custom {
        const %v1 = %v                           : f64[3]
        const %b2 = %b1                          : f64[3]
        out   %s = %s1                           : f64[3]
        forward
          %gap = subtract(%v1, %b2)              : f64[3]
          %pos = relu(%gap)                      : f64[3]
          %s1 = sign(%pos)                       : f64[3]
        given %g                                 : f64[3]
        saved %gap1 = %gap                       : f64[3]
        backward
          %square = square(%gap1)                : f64[3]
          %one = full(value=1.0, shape=[3], dtype=f64) : f64[3]
          %under = add(%square, %one)            : f64[3]
          %dv = divide(%g, %under)               : f64[3]
        grads %dv, none
      }
      %h2 = subtract(%v, %s)                     : f64[3]
  }
  return %hT
}"""


def test_custom_gradient_in_a_loop():
    """The surrogate 1 / (1 + gap ** 2), by hand; no gradient for the threshold."""
    x, b = normal(4, 3) + 0.5, np.full(3, 0.6)
    g = gradient(CUSTOM)
    for native in (False, True):
        dx, db = gradients_of(g, [x, b], [np.ones(3)], native)
        h, slopes = np.zeros(3), []
        for t in range(4):
            gap = h + x[t] - b
            slopes.append(1 - 1 / (1 + gap**2))
            h = h + x[t] - (gap > 0)
        want = [np.prod(slopes[t:], axis=0) for t in range(4)]
        np.testing.assert_allclose(dx, want)
        np.testing.assert_array_equal(db, 0)


def test_custom_blocks_are_read_as_they_were_printed():
    p = parse(CUSTOM)
    assert str(parse(str(p))) == str(p)
    assert "custom {" in str(functional(CUSTOM))


TWO_RESULTS = """program two(%x: f64[3] arg "x", %w: f64[3] arg "w") {
  custom {
    const %x1 = %x                               : f64[3]
    const %w1 = %w                               : f64[3]
    out   %y = %a                                : f64[3]
    out   %z = %b                                : f64[3]
    forward
      %a = exp(%x1)                              : f64[3]
      %b = multiply(%a, %w1)                     : f64[3]
    given %gy                                    : f64[3]
    given %gz                                    : f64[3]
    saved %a1 = %a                               : f64[3]
    saved %w2 = %w1                              : f64[3]
    backward
      %s = multiply(%gz, %w2)                    : f64[3]
      %t = add(%gy, %s)                          : f64[3]
      %dx = multiply(%t, %a1)                    : f64[3]
      %dw = multiply(%gz, %a1)                   : f64[3]
    grads %dx, %dw
  }
  return %y, %z
}"""


@pytest.mark.parametrize("of", [[0], [1], [0, 1]])
def test_custom_block_of_which_not_all_results_are_used(of):
    """Here the user's gradient is the true one; a missing gradient counts as zeros."""
    check(TWO_RESULTS, [normal(3), normal(3)], of=of, native=True)


def test_writes_inside_of_a_block_become_values():
    """Of what it made itself: forward and backward are functional afterwards."""
    text = TWO_RESULTS.replace(
        "%b = multiply(%a, %w1)                     : f64[3]",
        "%b = assign(%a)  : f64[3]\n      %c = multiply(%a, %w1)  : f64[3]\n      copy_(%b, %c)",
    ).replace(
        "%dw = multiply(%gz, %a1)                   : f64[3]",
        "%dw = assign(%gz)  : f64[3]\n      %u = multiply(%gz, %a1)  : f64[3]\n"
        "      copy_(%dw, %u)",
    )
    assert text.count("copy_") == 2
    assert "copy_" not in str(functional(text))
    check(text, [normal(3), normal(3)])


def test_a_write_to_a_tensor_from_outside_is_refused():
    text = TWO_RESULTS.replace("    given %gy", "      copy_(%x1, %w1)\n    given %gy", 1)
    with pytest.raises(AliasError, match="PyLayer"):
        functionalize(verify(parse(text)))


def test_expand_puts_the_forward_block_in_place_of_it():
    after = verify(expand(functional(TWO_RESULTS)))
    assert [n.name for n in after.ops] == ["exp", "multiply"]


WRONG = {
    "too few gradients": ("grads %dx, %dw", "grads %dx", "a gradient for each"),
    "reads what is outside": ("multiply(%gz, %w2)", "multiply(%gz, %w)", "before it is defined"),
    "reads what is not saved": ("multiply(%gz, %a1)", "multiply(%gz, %a)", "before it is defined"),
}


@pytest.mark.parametrize("case", WRONG)
def test_blocks_that_do_not_fit_are_refused(case):
    old, new, match = WRONG[case]
    assert old in TWO_RESULTS
    with pytest.raises(VerifyError, match=match):
        verify(parse(TWO_RESULTS.replace(old, new)))


def test_a_gradient_of_another_type_is_refused():
    text = TWO_RESULTS.replace("grads %dx, %dw", "  %e = sum(%dw) : f64[]\n    grads %dx, %e")
    with pytest.raises(VerifyError, match="is not f64"):
        verify(parse(text))


INSIDE = """      custom {
            const %a1 = %a                       : f64[3]
            out   %b = %b1                       : f64[3]
            forward
              %b0 = tanh(%a1)                    : f64[3]
              %b1 = assign(%a1)                  : f64[3]
              copy_(%b1, %b0)
            given %gb                            : f64[3]
            saved %b2 = %b1                      : f64[3]
            backward
              %sq = multiply(%b2, %b2)           : f64[3]
              %ng = neg(%sq)                     : f64[3]
              %sl = scale(%ng, bias=1.0)         : f64[3]
              %da = multiply(%gb, %sl)           : f64[3]
            grads %da
          }"""


@pytest.mark.sampled
@pytest.mark.quick("none")
@pytest.mark.parametrize("every", ["none", 2])
def test_custom_block_in_a_branch_in_a_loop(every):
    """tanh with its true gradient, in checkpointed loops too."""
    text = BRANCH.replace("      %b = tanh(%a)                          : f64[3]", INSIDE)
    assert "custom" in text
    for sign in (1, -1):
        arrays = [normal(3) + sign, normal(3), normal(3)]
        check(text, arrays, checkpoint=every, native=True)
