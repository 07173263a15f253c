"""Gradients of loops and branches: finite differences, what is kept, and what is left out."""

from __future__ import annotations

import numpy as np
import pytest

import executor
from ir import parse
from ir.autodiff import NotDifferentiable, differentiate
from ir.autodiff.activity import Activity
from ir.interpreter import evaluate
from ir.passes import run
from tests.ir.autodiff.differences import check, functional, gradient, gradients_of

RNG = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape) * 0.5


RNN = """program rnn(%x: f64[T,2,3] arg "x", %h0: f64[2,3] arg "h0", %w: f64[3,3] param "w") {
  scan %t < T {
    const %w1 = %w                               : f64[3,3]
    seq   %xt = %x[t]                            : f64[2,3]
    carry %h = %h0 then %h2 last %hT             : f64[2,3]
    stack %ys = %h2 axis 1                       : f64[2,T,3]
    body
      %a = matmul(%h, %w1)                       : f64[2,3]
      %b = add(%a, %xt)                          : f64[2,3]
      %h2 = tanh(%b)                             : f64[2,3]
  }
  return %ys, %hT
}"""


@pytest.mark.parametrize("t", [0, 1, 7])
def test_recurrent_network(t):
    check(RNN, [normal(t, 2, 3), normal(2, 3), normal(3, 3)], native=True)


def test_gradients_nobody_asks_for_leave_no_port(golden):
    """Only that of h0: no sum for %w, no stack for %x, and %x itself is not read."""
    assert str(gradient(RNN, of=[1], wrt=[1]).backward) == golden


def test_gradient_of_a_sequence_only(golden):
    assert str(gradient(RNN, of=[0], wrt=[0]).backward) == golden


def test_forward_program_keeps_what_is_read(golden):
    assert str(gradient(RNN, of=[0], wrt=[2]).forward) == golden


def test_sums_over_few_rows_leave_the_loop(golden):
    """One product with 2 T rows for %w, not T products with 2 rows."""
    assert str(gradient(RNN, of=[0], wrt=[2]).backward) == golden


TERMS = """program terms(%x: f64[2,5,3] arg "x", %y: f64[5,2,4] arg "y", %w: f64[3,4] arg "w") {
  scan %t < 5 {
    const %w1 = %w                               : f64[3,4]
    seq   %a = %x[:, t]                          : f64[2,3]
    seq   %b = %x[:, 4-t]                        : f64[2,3]
    seq   %c = %y[t]                             : f64[2,4]
    stack %ys = %r axis 0                        : f64[5,2,4]
    body
      %p = matmul(%a, %w1)                       : f64[2,4]
      %q = matmul(%b, %w1)                       : f64[2,4]
      %s = multiply(%q, %c)                      : f64[2,4]
      %v = square(%w1)                           : f64[3,4]
      %u = matmul(%a, %v)                        : f64[2,4]
      %o = add(%p, %s)                           : f64[2,4]
      %r = add(%o, %u)                           : f64[2,4]
  }
  return %ys
}"""


def test_sums_of_several_terms():
    """Slices along another axis, in both directions; a term that stays in the loop."""
    check(TERMS, [normal(2, 5, 3), normal(5, 2, 4), normal(3, 4)], native=True)


SEQS = """program seqs(%x: f64[9,3] arg "x", %y: f64[3,4] arg "y") {
  %h0 = full(value=0.0, shape=[3], dtype=f64)    : f64[3]
  scan %t < 4 {
    seq   %a = %x[8-2*t]                         : f64[3]
    seq   %b = %y[:, 3-t]                        : f64[3]
    seq   %c = %x[t+1]                           : f64[3]
    carry %h = %h0 then %h2 last %hT             : f64[3]
    last  %e = %d                                : f64[3]
    body
      %d = multiply(%a, %b)                      : f64[3]
      %s = multiply(%h, %c)                      : f64[3]
      %h2 = add(%s, %d)                          : f64[3]
  }
  return %hT, %e
}"""


def test_slices_read_backwards_and_with_gaps():
    check(SEQS, [normal(9, 3), normal(3, 4)], native=True)


CARRIES = """program carries(%a0: f64[3] arg "a", %b0: f64[3] arg "b", %c0: f64[3] arg "c") {
  scan %t < T5 {
    carry %a = %a0 then %b last %aT              : f64[3]
    carry %b = %b0 then %d last %bT              : f64[3]
    carry %c = %c0 then %e last %cT              : f64[3]
    body
      %k = cast(%t, dtype=f64)                   : f64[]
      %m = sin(%a)                               : f64[3]
      %d = add(%m, %k)                           : f64[3]
      %e = full(value=2.0, shape=[3], dtype=f64) : f64[3]
  }
  %s = add(%aT, %bT)                             : f64[3]
  return %s, %cT
}"""


@pytest.mark.parametrize("t", [0, 1, 2, 5])
def test_carries_that_swap_and_one_that_is_reset(t):
    text = CARRIES.replace("T5", str(t))
    check(text, [normal(3), normal(3), normal(3)], native=True)


WHILE = """program loop(%x: f64[3] arg "x", %w: f64[3] arg "w", %n: i64[] arg "n") {
  %zero = full(value=0, dtype=i64)               : i64[]
  %one = full(value=1, dtype=i64)                : i64[]
  %go = less_than(%zero, %n)                     : bool[]
  while %iBOUND as N {
    go    %go then %again
    const %w1 = %w                               : f64[3]
    const %n1 = %n                               : i64[]
    const %one1 = %one                           : i64[]
    carry %h = %x then %h2 last %hT              : f64[3]
    stack %hs = %h axis 0                        : f64[N,3]
    body
      %p = multiply(%h, %w1)                     : f64[3]
      %h2 = tanh(%p)                             : f64[3]
      %k = add(%i, %one1)                        : i64[]
      %again = less_than(%k, %n1)                : bool[]
  }
  %s = sum(%hs, axes=[0])                        : f64[3]
  return %hT, %s
}"""


@pytest.mark.parametrize("bound", [" < 8", ""])
@pytest.mark.parametrize("n", [0, 1, 5])
def test_while(bound, n):
    check(WHILE.replace("BOUND", bound), [normal(3), normal(3), np.array(n)], native=True)


def test_while_of_which_only_the_count_is_read():
    """h + w: no forward value is needed, but how often it ran is."""
    text = WHILE.replace("tanh(%p)", "assign(%p)").replace("multiply(%h, %w1)", "add(%h, %w1)")
    text = text.replace("BOUND", "").replace("return %hT, %s", "return %hT")
    g = check(text, [normal(3), normal(3), np.array(4)], native=True)
    assert [r.type.dtype.name for r in g.residuals] == ["i64"]


NESTED = """program nested(%x: f64[4,3] arg "x", %w: f64[3] arg "w", %n: i64[4] arg "n") {
  %one = full(value=1, dtype=i64)                : i64[]
  %h0 = full(value=0.1, shape=[3], dtype=f64)    : f64[3]
  scan %t < 4 {
    const %w1 = %w                               : f64[3]
    const %one1 = %one                           : i64[]
    seq   %xt = %x[t]                            : f64[3]
    seq   %nt = %n[t]                            : i64[]
    carry %h = %h0 then %hN last %hT             : f64[3]
    body
      %go = less_equal(%one1, %nt)               : bool[]
      while %i as N {
        go    %go then %again
        const %w2 = %w1                          : f64[3]
        const %xi = %xt                          : f64[3]
        const %nt1 = %nt                         : i64[]
        const %one2 = %one1                      : i64[]
        carry %g = %h then %g2 last %hM          : f64[3]
        stack %gs = %g2 axis 0                   : f64[N,3]
        body
          %p = multiply(%g, %w2)                 : f64[3]
          %q = add(%p, %xi)                      : f64[3]
          %g2 = sin(%q)                          : f64[3]
          %k = add(%i, %one2)                    : i64[]
          %again = less_than(%k, %nt1)           : bool[]
      }
      %gg = square(%gs)                          : f64[N,3]
      %r = sum(%gg, axes=[0])                    : f64[3]
      %hN = add(%hM, %r)                         : f64[3]
  }
  return %hT
}"""


def test_while_without_a_bound_inside_of_a_loop_is_run_again():
    check(NESTED, [normal(4, 3), normal(3), np.array([2, 0, 3, 1])], native=True)


BRANCH = """program branch(%x: f64[3] arg "x", %w: f64[3] arg "w", %z: f64[3] arg "z") {
  %zero = full(value=0.0, dtype=f64)             : f64[]
  scan %t < 5 {
    const %w1 = %w                               : f64[3]
    const %z1 = %z                               : f64[3]
    const %zero1 = %zero                         : f64[]
    carry %h = %x then %h2 last %hT              : f64[3]
    body
      %s = sum(%h)                               : f64[]
      %test = greater_than(%s, %zero1)           : bool[]
      cond %test {
        const %a = %h                            : f64[3]
        const %w2 = %w1                          : f64[3]
        const %z2 = %z1                          : f64[3]
        join  %h2 = %d else %f                   : f64[3]
        then
          %b = tanh(%a)                          : f64[3]
          %c = sin(%b)                           : f64[3]
          %c2 = multiply(%c, %w2)                : f64[3]
          %d = subtract(%c2, %b)                 : f64[3]
        else
          %e = multiply(%a, %a)                  : f64[3]
          %f = add(%e, %z2)                      : f64[3]
      }
  }
  return %hT
}"""


@pytest.mark.parametrize("sign", [1, -1])
def test_branch_in_a_loop(sign):
    check(BRANCH, [normal(3) + sign, normal(3), normal(3)], native=True)


BUFFER = """program buffer(%x: f64[6,3] arg "x", %i: i64[4] arg "i", %w: f64[7,3] param "w") {
  %b0 = full(value=0.0, shape=[6,3], dtype=f64)  : f64[6,3]
  scan %t < 4 {
    const %x1 = %x                               : f64[6,3]
    const %w1 = %w                               : f64[7,3]
    seq   %k = %i[t]                             : i64[]
    carry %b = %b0 then %b2 last %bT             : f64[6,3]
    body
      %row = dynamic_index(%x1, %k, axis=0)             : f64[3]
      %old = dynamic_index(%b, %k, axis=0)              : f64[3]
      %ids = reshape(%k, shape=[1])              : i64[1]
      %e = embedding(%ids, %w1)                  : f64[1,3]
      %e1 = reshape(%e, shape=[3])               : f64[3]
      %p = multiply(%row, %e1)                   : f64[3]
      %q = multiply(%p, %old)                    : f64[3]
      %new = add(%q, %row)                       : f64[3]
      %b2 = set_dynamic_index(%b, %new, %k, axis=0)     : f64[6,3]
  }
  return %bT
}"""


def test_buffer_written_at_indices_that_repeat(golden):
    g = check(BUFFER, [normal(6, 3), np.array([2, 5, 2, 2]), normal(7, 3)], native=True)
    assert str(g.backward) == golden


def test_detached_values_have_no_gradient():
    g = gradient(
        'program p(%x: f64[3] arg "x") {\n  %d = detach(%x)  : f64[3]\n'
        "  %y = multiply(%x, %d)  : f64[3]\n  return %y\n}"
    )
    (dx,) = gradients_of(g, [np.array([1.0, 2.0, 3.0])], [np.ones(3)])
    np.testing.assert_array_equal(dx, [1.0, 2.0, 3.0])


# ---------------------------------------------------------------- residuals
STATISTIC = """program norm(%x: f64[4,3] arg "x", %mean: f64[3] buffer "mean") {
  %m = mean(%x, axes=[0])                        : f64[3]
  %q = sin(%mean)                                : f64[3]
  %a = scale(%mean, scale=0.9)                   : f64[3]
  %b = scale(%m, scale=0.1)                      : f64[3]
  %new = add(%a, %b)                             : f64[3]
  copy_(%mean, %new, own=True)
  %e = exp(%mean)                                : f64[3]
  %y = multiply(%x, %e)                          : f64[4,3]
  %z = multiply(%y, %mean)                       : f64[4,3]
  %r = multiply(%z, %q)                          : f64[4,3]
  return %r
}"""


def test_a_statistic_kept_for_the_backward_is_the_slot_of_its_buffer():
    """Written in place and read by the backward: no copy of the new one, a copy of the old one."""
    arrays = [normal(4, 3), normal(3)]
    g = check(STATISTIC, arrays, wrt=[0], native=True)
    found = {r.source for r in g.residuals if r.name == "mean"}
    assert "slot" in found and not any(r.source == "input" and r.index == 1 for r in g.residuals)
    without = gradient(STATISTIC, wrt=[0], slots=False)
    assert "slot" not in {r.source for r in without.residuals}
    assert len(without.forward.outputs) == len(g.forward.outputs) + 1


def test_three_training_steps_share_the_variable_of_a_statistic():
    """The backward program reads the buffer's own memory, and sees what the last step wrote."""
    g, without = gradient(STATISTIC, wrt=[0]), gradient(STATISTIC, wrt=[0], slots=False)
    mean = normal(3)
    other = mean.copy()
    forward = executor.compile(run(g.forward, start_at="expand"))
    backward = executor.compile(run(g.backward, start_at="expand"))
    for _ in range(3):
        x, seed = normal(4, 3), normal(4, 3)
        (want,) = gradients_of(without, [x, other], [seed])
        other = evaluate(without.forward, [x, other])[1][0]
        outputs = forward(x, mean)
        memory = {"input": [x, mean], "slot": [x, mean], "output": outputs, "kept": outputs}
        (have,) = backward(seed, *(memory[r.source][r.index] for r in g.residuals))
        np.testing.assert_allclose(have, want, rtol=1e-9)
        np.testing.assert_allclose(mean, other, rtol=1e-12)


CHAIN = """program p(%x: f64[3] arg "x") {{
  %t = tanh(%x)                                  : f64[3]
  %a = scale({}, scale=2.0, bias=1.0)            : f64[3]
  %e = exp(%a)                                   : f64[3]
  %p = multiply(%e, %a)                          : f64[3]
  %y = multiply(%p, %t)                          : f64[3]
  return %y
}}"""


def test_nothing_is_computed_again_from_an_input_that_is_not_read_anyway():
    """2 x + 1: eager keeps it and allows a write to x before the backward pass."""
    g = gradient(CHAIN.format("%x"))
    assert "input" not in {r.source for r in g.residuals}


def test_cheap_values_are_computed_again_and_others_are_kept(golden):
    """2 t + 1 is made again from t = tanh(x), which is handed over, and so is exp(2 t + 1)."""
    g = gradient(CHAIN.format("%t"))
    assert "\n".join((*g.report, str(g.backward))) == golden


def test_an_output_is_kept_once():
    g = gradient('program p(%x: f64[3] arg "x") {\n  %y = tanh(%x)  : f64[3]\n  return %y\n}')
    assert [(r.source, r.bytes) for r in g.residuals] == [("output", 0)]


def test_the_report_says_what_is_reused_kept_and_computed_again():
    text = "\n".join(gradient(RNN).report)
    assert "%w: f64[3,3]: reuse" in text and "%h: f64[2,3]: stack, 48 bytes" in text


# ---------------------------------------------------------------- refused
FOREIGN = """program p(%x: f64[3] arg "x", %z: f64[3] arg "z") {
  %a = foreign(%x, call="_C_ops.erfinv", args="", types=[f64[3]]) : f64[3]  @ model.py:7
  %y = multiply(%a, %z)                          : f64[3]
  return %y
}"""


def test_a_gradient_through_a_foreign_op_is_refused_by_name():
    p = functional(FOREIGN)
    with pytest.raises(NotDifferentiable, match="erfinv") as e:
        differentiate(p, [0], [0])
    assert e.value.op == "_C_ops.erfinv" and e.value.loc.line == 7
    assert differentiate(p, [0], [1]).backward.outputs


def test_a_gradient_of_integers_without_a_rule_is_refused_by_name():
    p = parse(
        'program p(%x: f64[3] arg "x") {\n  %i = cast(%x, dtype=i64)  : i64[3]\n'
        "  %m = max(%i)  : i64[]\n  return %m\n}"
    )
    with pytest.raises(NotDifferentiable, match="max of integers"):
        differentiate(p, [0], [0])


def test_an_input_that_no_output_depends_on_has_zeros():
    g = gradient('program p(%x: f64[3] arg "x", %y: f64[2] arg "y") {\n  return %x\n}')
    dx, dy = gradients_of(g, [np.ones(3), np.ones(2)], [np.full(3, 2.0)])
    np.testing.assert_array_equal(dx, 2.0)
    np.testing.assert_array_equal(dy, np.zeros(2))


def test_gradients_through_integers_are_integers():
    """As in eager Paddle: those of `%f` are cut to integers on the way to `%x`."""
    g = gradient(
        'program p(%x: f64[3] arg "x") {\n  %i = cast(%x, dtype=i64)  : i64[3]\n'
        "  %f = cast(%i, dtype=f64)  : f64[3]\n  %y = multiply(%x, %f)  : f64[3]\n  return %y\n}"
    )
    (dx,) = gradients_of(g, [np.array([1.5, 2.5, -3.5])], [np.ones(3)])
    np.testing.assert_array_equal(dx, [2.0, 4.0, -6.0])


def test_no_gradient_passes_through_indices_and_conditions():
    g = gradient(
        'program p(%x: f64[3] arg "x", %w: f64[9] arg "w") {\n'
        "  %i = cast(%x, dtype=i64)  : i64[3]\n  %r = gather(%w, %i)  : f64[3]\n"
        "  %b = cast(%x, dtype=bool)  : bool[3]\n  %z = full(value=0.0, dtype=f64)  : f64[]\n"
        "  %y = where(%b, %r, %z)  : f64[3]\n  return %y\n}"
    )
    activity = Activity(g.forward, [0], [0])
    assert not activity.active(g.forward.inputs[0].value)


def test_a_foreign_kernel_is_not_run_again():
    """In a loop whose length is not known before, its result cannot be kept."""
    kernel = '%g2 = foreign(%q, call="_C_ops.rand", args="", types=[f64[3]]) : f64[3]'
    text = NESTED.replace("%g2 = sin(%q)                          : f64[3]", kernel)
    text = text.replace("stack %gs = %g2 axis 0 ", "stack %gs = %q axis 0 ")
    assert kernel in text
    with pytest.raises(NotDifferentiable, match="_C_ops.rand"):
        gradient(text)
