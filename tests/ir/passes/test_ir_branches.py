# ruff: noqa: E501
"""Passes on while loops and branches: each by its text (tests/golden/ir_branches/) and by its
values on inputs that take every branch.

`kept` names what a pass must leave alone.
"""

from __future__ import annotations

import numpy as np
import pytest

from ir import evaluate, passes
from ir.passes import (
    drop_unused_ports,
    fuse,
    hoist_from_scan,
    hoist_invariants,
    run,
    select_cond,
    simplify,
    to_seq,
    to_stack,
)
from ir.uses import walk
from tests.ir.test_ir_control import check_both_ways
from tests.ir.test_ir_random import program

PASSES = {
    # ------------------------------------------------------------ simplify
    "constant_tests": (simplify, """
program p(%x: f32[T] arg "x", %ok: bool[] arg "ok") {
  %yes = full(value=True, dtype=bool)  : bool[]
  %no = full(value=False, dtype=bool)  : bool[]
  %o = equal(%ok, %ok)  : bool[]
  cond %yes {
    const %x1 = %x  : f32[T]
    const %o1 = %o  : bool[]
    join %y = %a else %x1  : f32[T]
    then
      check(%o1, error="ValueError", message="never")
      %a = exp(%x1)  : f32[T]
    else
  }
  scan %t < T {
    const %no1 = %no  : bool[]
    carry %h = %y then %h2 last %hT  : f32[T]
    body
      cond %no1 {
        const %h1 = %h  : f32[T]
        join %h2 = %b else %h1  : f32[T]
        then
          %b = exp(%h1)  : f32[T]
        else
      }
  }
  return %hT
}"""),
    "joins_that_agree": (simplify, """
program p(%p: bool[] arg "p", %x: f32[T] arg "x") {
  cond %p {
    const %x1 = %x  : f32[T]
    const %x2 = %x  : f32[T]
    join %same = %x1 else %x2  : f32[T]
    join %one = %one1 else %one2  : f32[]
    join %test = %yes else %no  : bool[]
    join %not = %no1 else %yes2  : bool[]
    join %kept = %one1 else %two  : f32[]
    join %zeros = %zero else %minus  : f32[]
    then
      %one1 = full(value=1.0, dtype=f32)  : f32[]
      %yes = full(value=True, dtype=bool)  : bool[]
      %no1 = full(value=False, dtype=bool)  : bool[]
      %zero = full(value=0.0, dtype=f32)  : f32[]
    else
      %one2 = full(value=1.0, dtype=f32)  : f32[]
      %two = full(value=2.0, dtype=f32)  : f32[]
      %no = full(value=False, dtype=bool)  : bool[]
      %yes2 = full(value=True, dtype=bool)  : bool[]
      %minus = full(value=-0.0, dtype=f32)  : f32[]
  }
  return %same, %one, %test, %not, %kept, %zeros
}"""),
    "checks_that_hold": (simplify, """
program p(%p: bool[] arg "p") {
  %yes = full(value=True, dtype=bool)  : bool[]
  check(%yes, error="ValueError", message="never")
  %q = logical_not(%p)  : bool[]
  check(%q, error="ValueError", message="kept")
  return %p
}"""),
    "while_loops_that_do_not_start": (simplify, """
program p(%x: f32[T] arg "x", %p: bool[] arg "p") {
  %no = full(value=False, dtype=bool)  : bool[]
  while %t < T as n1 {
    go %no then %q
    const %p1 = %p  : bool[]
    carry %h = %x then %h2 last %hT  : f32[T]
    body
      %h2 = exp(%h)  : f32[T]
      %q = logical_not(%p1)  : bool[]
  }
  while %s < T as n2 {
    go %no then %q2
    const %p2 = %p  : bool[]
    carry %k = %x then %k2 last %kT  : f32[T]
    body
      %k2 = exp(%k)  : f32[T]
      %q2 = logical_not(%p2)  : bool[]
  }
  %kept = size(n=n2)  : i64[]
  return %hT, %kT, %kept
}"""),
    "kept_common_work_of_branches": (simplify, """
program p(%p: bool[] arg "p", %x: f32[T] arg "x") {
  %e = exp(%x)  : f32[T]
  cond %p {
    const %x1 = %x  : f32[T]
    join %y = %a else %b  : f32[T]
    then
      %a = exp(%x1)  : f32[T]
    else
      %b1 = exp(%x1)  : f32[T]
      %b2 = exp(%x1)  : f32[T]
      %b = add(%b1, %b2)  : f32[T]
  }
  return %e, %y
}"""),
    # ------------------------------------------------------------ ports
    "unused_joins_and_consts": (drop_unused_ports, """
program p(%p: bool[] arg "p", %x: f32[T] arg "x", %y: f32[T] arg "y") {
  cond %p {
    const %x1 = %x  : f32[T]
    const %x2 = %x  : f32[T]
    const %y1 = %y  : f32[T]
    join %used = %a else %x2  : f32[T]
    join %again = %a else %x1  : f32[T]
    join %unused = %y1 else %b  : f32[T]
    then
      %a = exp(%x1)  : f32[T]
    else
      %b = exp(%y1)  : f32[T]
  }
  cond %p {
    const %x3 = %x  : f32[T]
    join %dead = %c else %x3  : f32[T]
    then
      %c = exp(%x3)  : f32[T]
    else
  }
  return %used, %again
}"""),
    "ports_of_a_while_loop": (drop_unused_ports, """
program p(%n: i64[] arg "n", %x: f32[T] arg "x") {
  %yes = full(value=True, dtype=bool)  : bool[]
  %one = full(value=1, dtype=i64)  : i64[]
  while %t < 5 as n1 {
    go %yes then %q
    const %one1 = %one  : i64[]
    const %n1_ = %n  : i64[]
    seq %u = %x5[t]  : f32[]
    carry %i = %n then %i2  : i64[]
    carry %h = %x then %h2 last %hT  : f32[T]
    carry %k = %x then %k2  : f32[T]
    body
      %i2 = subtract(%i, %one1)  : i64[]
      %q = greater_than(%i2, %one1)  : bool[]
      %h2 = exp(%x1)  : f32[T]
      %k2 = exp(%k)  : f32[T]
  }
  return %hT
}""".replace("    seq %u = %x5[t]  : f32[]\n", "").replace("    carry %i =", "    const %x1 = %x  : f32[T]\n    carry %i =")),
    "kept_while_loop_whose_count_is_read": (drop_unused_ports, """
program p(%n: i64[] arg "n", %x: f32[T] arg "x") {
  %one = full(value=1, dtype=i64)  : i64[]
  %p = greater_than(%n, %one)  : bool[]
  while %t < 9 as n1 {
    go %p then %q
    const %n1_ = %n  : i64[]
    body
      %q = less_than(%t, %n1_)  : bool[]
  }
  while %t2 < 9 as n2 {
    go %p then %q2
    const %n2_ = %n  : i64[]
    carry %h = %x then %h2 last %hT  : f32[T]
    body
      %q2 = less_than(%t2, %n2_)  : bool[]
      %h2 = exp(%h)  : f32[T]
  }
  %m = size(n=n1)  : i64[]
  return %m
}"""),
    "kept_stack_of_a_seq_that_may_end_before": (drop_unused_ports, """
program p(%p: bool[] arg "p", %x: f32[T] arg "x") {
  while %t < T as n1 {
    go %p then %q
    seq %r = %x[t]  : f32[]
    stack %ys = %r axis 0  : f32[n1]
    body
      %zero = full(value=0.0, dtype=f32)  : f32[]
      %q = less_than(%r, %zero)  : bool[]
  }
  return %ys
}"""),
    # ------------------------------------------------------------ invariants
    "views_leave_branches": (hoist_invariants, """
program p(%ps: bool[T] arg "ps", %x: f32[3,T] arg "x", %w: f32[3] arg "w", %n: i64[] arg "n", %i: i64[] arg "i") {
  scan %t < T {
    seq %p = %ps[t]  : bool[]
    const %x1 = %x  : f32[3,T]
    const %w1 = %w  : f32[3]
    const %n1 = %n  : i64[]
    const %i1 = %i  : i64[]
    carry %h = %w then %h2 last %hT  : f32[3]
    body
      cond %p {
        const %t1 = %t  : i64[]
        const %x2 = %x1  : f32[3,T]
        const %w2 = %w1  : f32[3]
        const %n2 = %n1  : i64[]
        const %i2 = %i1  : i64[]
        const %h1 = %h  : f32[3]
        join %h2 = %c else %e  : f32[3]
        then
          %xt = dynamic_index(%x2, %t1, axis=1)  : f32[3]
          %may_raise = dynamic_index(%x2, %i2, axis=1)  : f32[3]
          %first = index(%w2, axis=0, index=0)  : f32[]
          %cheap = neg(%first)  : f32[]
          %dear = neg(%w2)  : f32[3]
          %a = add(%xt, %cheap)  : f32[3]
          %b = add(%a, %dear)  : f32[3]
          %c = maximum(%b, %may_raise)  : f32[3]
        else
          %div = floor_divide(%n2, %i2)  : i64[]
          %d = cast(%div, dtype=f32)  : f32[]
          %e = add(%h1, %d)  : f32[3]
      }
  }
  return %hT
}"""),
    "kept_what_may_raise_in_a_while_loop": (hoist_invariants, """
program p(%x: f32[3] arg "x", %n: i64[] arg "n") {
  %yes = full(value=True, dtype=bool)  : bool[]
  while %t < 4 as n1 {
    go %yes then %q
    const %x1 = %x  : f32[3]
    const %n1_ = %n  : i64[]
    carry %h = %x then %h2 last %hT  : f32[3]
    body
      %q = less_than(%t, %n1_)  : bool[]
      %e = neg(%x1)  : f32[3]
      %s = dynamic_index(%x1, %n1_, axis=0)  : f32[]
      %g = add(%h, %s)  : f32[3]
      %h2 = maximum(%g, %e)  : f32[3]
  }
  return %hT
}"""),
    "kept_what_may_raise_behind_a_check": (hoist_invariants, """
program p(%x: f32[3] arg "x", %n: i64[] arg "n") {
  scan %t < 4 {
    const %x1 = %x  : f32[3]
    const %n1 = %n  : i64[]
    carry %h = %x then %h2 last %hT  : f32[3]
    body
      %r = dynamic_index(%x1, %n1, axis=0)  : f32[]
      %three = full(value=4, dtype=i64)  : i64[]
      %ok = less_than(%n1, %three)  : bool[]
      check(%ok, error="ValueError", message="too large")
      %m = remainder(%n1, %three)  : i64[]
      %s = dynamic_index(%x1, %m, axis=0)  : f32[]
      %e = neg(%x1)  : f32[3]
      %g = add(%h, %s)  : f32[3]
      %h1 = add(%g, %r)  : f32[3]
      %h2 = maximum(%h1, %e)  : f32[3]
  }
  return %hT
}"""),
    "loops_inside_of_loops": (hoist_invariants, """
program p(%x: f32[3] arg "x", %n: i64[] arg "n", %p: bool[] arg "p") {
  scan %t < T {
    const %x1 = %x  : f32[3]
    const %n1_ = %n  : i64[]
    const %p1 = %p  : bool[]
    carry %h = %x then %h2 last %hT  : f32[3]
    body
      while %i < 3 as n1 {
        go %p1 then %q
        const %n2 = %n1_  : i64[]
        carry %k = %x1 then %k2 last %kT  : f32[3]
        body
          %q = less_than(%i, %n2)  : bool[]
          %k2 = neg(%k)  : f32[3]
      }
      %c = size(n=n1)  : i64[]
      while %j as n3 {
        go %p1 then %q3
        const %n4 = %n1_  : i64[]
        carry %m = %x1 then %m2 last %mT  : f32[3]
        body
          %q3 = less_than(%j, %n4)  : bool[]
          %m2 = neg(%m)  : f32[3]
      }
      %kept = size(n=n3)  : i64[]
      %d = add(%c, %kept)  : i64[]
      %f = cast(%d, dtype=f32)  : f32[]
      %g = add(%kT, %mT)  : f32[3]
      %h1 = add(%h, %g)  : f32[3]
      %h2 = add(%h1, %f)  : f32[3]
  }
  return %hT
}""".replace('%p: bool', '%l: f32[T] arg "l", %p: bool')),
    "kept_constants_of_a_size_of_the_branch": (hoist_invariants, """
program p(%ps: bool[T] arg "ps") {
  %z = full(value=0, dtype=i64)  : i64[]
  scan %t < T {
    seq %p = %ps[t]  : bool[]
    carry %h = %z then %h2 last %hT  : i64[]
    body
      cond %p {
        const %p1 = %p  : bool[]
        const %h1 = %h  : i64[]
        join %h2 = %g else %h1  : i64[]
        then
          while %i < 3 as n1 {
            go %p1 then %q
            body
              %two = full(value=2, dtype=i64)  : i64[]
              %q = less_than(%i, %two)  : bool[]
          }
          %c = size(n=n1)  : i64[]
          %g = add(%h1, %c)  : i64[]
        else
      }
  }
  return %hT
}"""),
    # ------------------------------------------------------------ seq and stack ports
    "slices_of_a_while_loop": (to_seq, """
program p(%x: f32[T] arg "x", %p: bool[] arg "p") {
  while %t < T as n1 {
    go %p then %q
    const %x1 = %x  : f32[T]
    stack %ys = %y axis 0  : f32[n1]
    body
      %r = dynamic_index(%x1, %t, axis=0)  : f32[]
      %y = neg(%r)  : f32[]
      %zero = full(value=0.0, dtype=f32)  : f32[]
      %q = less_than(%r, %zero)  : bool[]
  }
  return %ys
}"""),
    "kept_slices_of_an_endless_loop": (to_seq, """
program p(%x: f32[8] arg "x", %p: bool[] arg "p") {
  while %t as n1 {
    go %p then %q
    const %x1 = %x  : f32[8]
    stack %ys = %y axis 0  : f32[n1]
    body
      %r = dynamic_index(%x1, %t, axis=0)  : f32[]
      %y = neg(%r)  : f32[]
      %five = full(value=5, dtype=i64)  : i64[]
      %q = less_than(%t, %five)  : bool[]
  }
  return %ys
}"""),
    "kept_buffer_that_may_be_filled_in_part": (to_stack, """
program p(%x: f32[T] arg "x", %y: f32[T] arg "y", %p: bool[] arg "p") {
  while %t < T as n1 {
    go %p then %q
    seq %r = %x[t]  : f32[]
    carry %b = %y then %b2 last %bT  : f32[T]
    body
      %b2 = set_dynamic_index(%b, %r, %t, axis=0)  : f32[T]
      %zero = full(value=0.0, dtype=f32)  : f32[]
      %q = less_than(%r, %zero)  : bool[]
  }
  return %bT
}"""),
    # ------------------------------------------------------------ batches
    "matmuls_of_a_while_loop": (hoist_from_scan, """
program p(%x: f32[T,3] arg "x", %w: f32[3,3] arg "w", %h0: f32[1,3] arg "h", %p: bool[] arg "p") {
  while %t < T as n1 {
    go %p then %q
    const %w1 = %w  : f32[3,3]
    seq %xt = %x[t]  : f32[3]
    carry %h = %h0 then %h2 last %hT  : f32[1,3]
    stack %ys = %y axis 0  : f32[n1,1,3]
    body
      %row = reshape(%xt, shape=[1, 3])  : f32[1,3]
      %a = matmul(%row, %w1)  : f32[1,3]
      %h2 = add(%h, %a)  : f32[1,3]
      %y = matmul(%h2, %w1)  : f32[1,3]
      %first = index(%xt, axis=0, index=0)  : f32[]
      %zero = full(value=0.0, dtype=f32)  : f32[]
      %q = less_than(%first, %zero)  : bool[]
  }
  return %ys, %hT
}"""),
    "kept_embedding_of_a_while_loop": (hoist_from_scan, """
program p(%x: i64[T,2] arg "x", %w: f32[4,3] arg "w", %p: bool[] arg "p") {
  while %t < T as n1 {
    go %p then %q
    const %w1 = %w  : f32[4,3]
    seq %xt = %x[t]  : i64[2]
    stack %ys = %y axis 0  : f32[n1,2,3]
    body
      %y = embedding(%xt, %w1)  : f32[2,3]
      %two = full(value=2, dtype=i64)  : i64[]
      %q = less_than(%t, %two)  : bool[]
  }
  return %ys
}"""),
    "kept_embedding_beside_a_check": (hoist_from_scan, """
program p(%x: i64[T,2] arg "x", %w: f32[4,3] arg "w") {
  scan %t < T {
    const %w1 = %w  : f32[4,3]
    seq %xt = %x[t]  : i64[2]
    stack %ys = %y axis 0  : f32[T,2,3]
    body
      %f = index(%xt, axis=0, index=0)  : i64[]
      %four = full(value=4, dtype=i64)  : i64[]
      %ok = less_than(%f, %four)  : bool[]
      check(%ok, error="ValueError", message="too large")
      %y = embedding(%xt, %w1)  : f32[2,3]
  }
  return %ys
}"""),
    # ------------------------------------------------------------ fuse
    "kernels_in_branches": (fuse, """
program p(%p: bool[] arg "p", %x: f32[T] arg "x") {
  cond %p {
    const %x1 = %x  : f32[T]
    join %y = %b else %d  : f32[T]
    then
      %a = neg(%x1)  : f32[T]
      %b = add(%a, %x1)  : f32[T]
    else
      %c = abs(%x1)  : f32[T]
      %d = add(%c, %x1)  : f32[T]
  }
  return %y
}"""),
    "checks_keep_their_place": (fuse, """
program p(%n: i64[2] arg "n", %m: i64[2] arg "m") {
  %a = add(%n, %m)  : i64[2]
  %one = full(value=1, dtype=i64)  : i64[]
  %first = index(%m, axis=0, index=0)  : i64[]
  %same = equal(%first, %first)  : bool[]
  check(%same, error="ValueError", message="not a number")
  %d = maximum(%m, %one)  : i64[2]
  %b = floor_divide(%a, %d)  : i64[2]
  check(%same, error="ValueError", message="not a number")
  %c = subtract(%b, %a)  : i64[2]
  return %c
}"""),
    "sizes_after_their_loop": (fuse, """
program p(%n: i64[] arg "n", %x: f32[2] arg "x") {
  %a = neg(%x)  : f32[2]
  %one = full(value=1, dtype=i64)  : i64[]
  %p = greater_than(%n, %one)  : bool[]
  while %t < 9 as n1 {
    go %p then %q
    const %m = %n  : i64[]
    body
      %q = less_than(%t, %m)  : bool[]
  }
  %c = size(n=n1)  : i64[]
  %f = cast(%c, dtype=f32)  : f32[]
  %b = add(%a, %f)  : f32[2]
  return %b
}"""),
    # ------------------------------------------------------------ select_cond
    "selected": (select_cond, """
program p(%p: bool[] arg "p", %q: bool[] arg "q", %x: f32[B,3] arg "x", %w: f32[3] arg "w", %n: i64[] arg "n") {
  cond %p {
    const %x1 = %x  : f32[B,3]
    const %w1 = %w  : f32[3]
    const %q1 = %q  : bool[]
    const %n1 = %n  : i64[]
    join %y = %b else %x1  : f32[B,3]
    join %m = %k else %n1  : i64[]
    then
      cond %q1 {
        const %x2 = %x1  : f32[B,3]
        join %a = %c else %d  : f32[B,3]
        then
          %c = sqrt(%x2)  : f32[B,3]
        else
          %d = neg(%x2)  : f32[B,3]
      }
      %row = reshape(%w1, shape=[1, 3])  : f32[1,3]
      %b = add(%a, %row)  : f32[B,3]
      %one = full(value=1, dtype=i64)  : i64[]
      %k = add(%n1, %one)  : i64[]
    else
  }
  return %y, %m
}"""),
}  # fmt: skip


@pytest.mark.parametrize("name", PASSES)
def test_branches(name, golden):
    rewrite, text = PASSES[name]
    exact = not any(op in text for op in ("matmul", "exp"))
    check_both_ways(rewrite, program(text), golden, exact)


@pytest.mark.parametrize("name", PASSES)
def test_the_pipeline_on_branches(name):
    check_both_ways(lambda p: run(p, check=True), program(PASSES[name][1]), exact=False)


COND = """
program p(%p: bool[] arg "p", %i: i64[] arg "i", %n: i64[2] arg "n", %x: f32{shape} arg "x", %w: f32[3] arg "w") {{
  cond %p {{
    const %i1 = %i  : i64[]
    const %n1 = %n  : i64[2]
    const %x1 = %x  : f32{shape}
    const %w1 = %w  : f32[3]
    join %y = %z else %x1  : f32{shape}
    then
      {ops}
    else
  }}
  return %y
}}"""
MANY = "\n".join(
    f"%z{i if i < 9 else ''} = neg(%{f'z{i - 1}' if i > 1 else 'x1'})  : f32[3]"
    for i in range(1, 10)
)
NOT_SELECTED = {
    "it divides integers": COND.format(
        shape="[2]",
        ops="%d = floor_divide(%n1, %n1)  : i64[2]\n%z = cast(%d, dtype=f32)  : f32[2]",
    ),
    "it checks an index": COND.format(
        shape="[2]", ops="%s = dynamic_index(%w1, %i1, axis=0)  : f32[]\n%z = add(%x1, %s)  : f32[2]"
    ),
    "it checks": COND.format(
        shape="[2]",
        ops='%o = equal(%i1, %i1)  : bool[]\ncheck(%o, error="ValueError", message="")\n'
        "%z = neg(%x1)  : f32[2]",
    ),
    "it sums": COND.format(
        shape="[2]", ops="%s = sum(%x1, axes=[0])  : f32[]\n%z = add(%x1, %s)  : f32[2]"
    ),
    "it is large": COND.format(shape="[B,65537]", ops="%z = neg(%x1)  : f32[B,65537]"),
    "it has other shapes": COND.format(
        shape="[B,4]",
        ops="%a = exp(%w1)  : f32[3]\n%f = index(%a, axis=0, index=0)  : f32[]\n"
        "%z = add(%x1, %f)  : f32[B,4]",
    ),
    "it is long": COND.format(shape="[3]", ops=MANY),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_SELECTED)
def test_a_branch_stays_if(name):
    p = program(NOT_SELECTED[name])
    assert str(select_cond(p)) == str(p)


def test_what_the_other_branch_computes_does_not_show():
    p = program("""
program p(%p: bool[] arg "p", %x: f32[3] arg "x") {
  cond %p {
    const %x1 = %x  : f32[3]
    join %y = %a else %x1  : f32[3]
    then
      %l = log(%x1)  : f32[3]
      %a = divide(%l, %l)  : f32[3]
    else
  }
  return %y
}""")
    x = np.array([-1, 0, -0.0], np.float32)
    after = run(p, check=True)
    assert not any(n.name == "cond" for n in walk(after.ops))
    (y,), _ = evaluate(after, [np.bool_(False), x])
    assert y.tobytes() == x.tobytes()


def test_a_check_stops_the_division_behind_it():
    p = program("""
program p(%n: i64[2] arg "n", %ok: bool[] arg "ok") {
  %a = add(%n, %n)  : i64[2]
  check(%ok, error="AssertionError", message="no zeros")
  %b = floor_divide(%a, %n)  : i64[2]
  return %b
}""")
    with pytest.raises(AssertionError, match="no zeros"):
        evaluate(passes.run(p, check=True), [np.zeros(2, np.int64), np.bool_(False)])


def test_effects_keep_their_order():
    p = program("""
program p(%x: f32[T] arg "x") {
  %n = neg(%x)  : f32[T]
  foreign(%n, call="print", args=["first"], types=[])
  scan %t < T {
    seq %r = %x[t]  : f32[]
    body
      %zero = full(value=0.0, dtype=f32)  : f32[]
      %p = less_than(%r, %zero)  : bool[]
      cond %p {
        const %r1 = %r  : f32[]
        then
          %a = neg(%r1)  : f32[]
          foreign(%a, call="print", args=["less"], types=[])
        else
          %b = add(%r1, %r1)  : f32[]
          foreign(%r1, call="print", args=["more"], types=[])
          foreign(%b, call="print", args=["twice"], types=[])
      }
  }
  return
}""")

    def printed(q):
        lines = []

        def call(op, args, sizes):
            lines.append((op.attrs["args"], *map(np.ndarray.tolist, args)))
            return []

        evaluate(q, [np.array([1, -2, 3], np.float32)], call)
        return lines

    want = printed(p)
    assert [words for (words,), *_ in want] == ["first", "more", "twice", "less", "more", "twice"]
    assert printed(run(p, check=True)) == want


def test_a_seq_port_is_found_behind_a_branch():
    text = PASSES["views_leave_branches"][1]
    after = to_seq(hoist_invariants(simplify(program(text))))
    (scan,) = (n for n in after.ops if n.name == "scan")
    assert [type(p).__name__ for p in scan.ports].count("Seq") == 2
