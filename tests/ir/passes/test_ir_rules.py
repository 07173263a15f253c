# ruff: noqa: E501
"""Rewrites of single ops: every rule by its text (tests/golden/ir_rules/) and by its values.

`kept` names what a rule must leave alone.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from ir import Program, Value, evaluate
from ir.passes import rules, simplify
from ir.program import Builder, Input
from ir.types import F32, Type
from tests.ir.test_ir_random import check, program

SIMPLE = {
    "fold": """
program p() {
  %a = full(value=2.0, shape=[3], dtype=f32)  : f32[3]
  %b = full(value=3.0, dtype=f32)  : f32[]
  %c = add(%a, %b)  : f32[3]
  %d = exp(%c)  : f32[3]
  return %c, %d
}""",
    "size_of_number": """
program p() {
  %n = size(n=5)  : i64[]
  return %n
}""",
    "view_of_full": """
program p(%x: f32[T] arg "x") {
  %a = full(value=-0.0, shape=[T, 3], dtype=f32)  : f32[T,3]
  %b = transpose(%a, perm=[1, 0])  : f32[3,T]
  %c = index(%b, axis=0, index=1)  : f32[T]
  return %c
}""",
    "where_of_constant": """
program p(%x: f32[T] arg "x", %y: f32[T] arg "y", %z: f32[] arg "z") {
  %t = full(value=True, dtype=bool)  : bool[]
  %f = full(value=False, dtype=bool)  : bool[]
  %a = where(%t, %x, %y)  : f32[T]
  %b = where(%f, %x, %y)  : f32[T]
  %kept = where(%t, %z, %y)  : f32[T]
  return %a, %b, %kept
}""",
    "assign_is_its_operand": """
program p(%x: f32[T] arg "x") {
  %a = assign(%x)  : f32[T]
  %b = neg(%a)  : f32[T]
  return %b
}""",
    "times_one": """
program p(%x: f32[T] arg "x", %s: f32[] arg "s") {
  %one = full(value=1.0, dtype=f32)  : f32[]
  %ones = full(value=1.0, shape=[T], dtype=f32)  : f32[T]
  %a = multiply(%x, %one)  : f32[T]
  %b = divide(%a, %ones)  : f32[T]
  %kept = multiply(%s, %ones)  : f32[T]
  return %b, %kept
}""",
    "plus_nothing": """
program p(%x: f32[T] arg "x", %n: i64[T] arg "n") {
  %zero = full(value=0.0, dtype=f32)  : f32[]
  %minus = full(value=-0.0, dtype=f32)  : f32[]
  %none = full(value=0, dtype=i64)  : i64[]
  %kept = add(%x, %zero)  : f32[T]
  %a = add(%x, %minus)  : f32[T]
  %b = add(%none, %n)  : i64[T]
  return %kept, %a, %b
}""",
    "minus_nothing": """
program p(%x: f32[T] arg "x") {
  %zero = full(value=0.0, dtype=f32)  : f32[]
  %a = subtract(%x, %zero)  : f32[T]
  %kept = subtract(%zero, %x)  : f32[T]
  return %a, %kept
}""",
    "scale_of_integers": """
program p(%x: f32[T] arg "x", %n: i64[T] arg "n") {
  %a = scale(%n)  : i64[T]
  %kept = scale(%x)  : f32[T]
  return %a, %kept
}""",
    "twice_negated": """
program p(%x: f32[T] arg "x", %m: bool[T] arg "m") {
  %a = neg(%x)  : f32[T]
  %b = neg(%a)  : f32[T]
  %c = logical_not(%m)  : bool[T]
  %d = logical_not(%c)  : bool[T]
  %e = logical_not(%x)  : bool[T]
  %kept = logical_not(%e)  : bool[T]
  return %b, %d, %kept
}""",
    "cast_to_itself": """
program p(%x: f32[T] arg "x") {
  %a = cast(%x, dtype=f32)  : f32[T]
  return %a
}""",
    "cast_of_cast": """
program p(%x: f32[T] arg "x", %n: i64[T] arg "n") {
  %a = cast(%x, dtype=f64)  : f64[T]
  %b = cast(%a, dtype=f32)  : f32[T]
  %c = cast(%n, dtype=f64)  : f64[T]
  %kept = cast(%c, dtype=i64)  : i64[T]
  return %b, %kept
}""",
    "same_shape": """
program p(%x: f32[T,3] arg "x") {
  %a = reshape(%x, shape=[-1, 3])  : f32[T,3]
  %b = expand(%a, shape=[T, 3])  : f32[T,3]
  return %b
}""",
    "twice_reshaped": """
program p(%x: f32[T,6] arg "x", %y: f32[3] arg "y") {
  %a = reshape(%x, shape=[T, 2, 3])  : f32[T,2,3]
  %b = reshape(%a, shape=[-1, 2])  : f32[3*T,2]
  %c = expand(%y, shape=[2, 3])  : f32[2,3]
  %d = expand(%c, shape=[T, 2, 3])  : f32[T,2,3]
  return %b, %d
}""",
    "same_tensor": """
program p(%x: f32[T,3] arg "x") {
  %a = alias(%x)    : f32[T,3]
  %b = alias(%a)    : f32[T,3]
  %c = tanh(%b)     : f32[T,3]
  return %c
}""",
    "same_order": """
program p(%x: f32[T,3] arg "x") {
  %a = transpose(%x, perm=[0, -1])  : f32[T,3]
  return %a
}""",
    "twice_transposed": """
program p(%x: f32[T,3,2] arg "x") {
  %a = transpose(%x, perm=[1, 2, 0])  : f32[3,2,T]
  %b = transpose(%a, perm=[0, 2, -2])  : f32[3,T,2]
  %c = transpose(%a, perm=[2, 0, 1])  : f32[T,3,2]
  return %b, %c
}""",
    "matmul_of_transpose": """
program p(%x: f32[3,T] arg "x", %w: f32[4,3] param "w", %v: f32[2,3,4] arg "v") {
  %a = transpose(%x, perm=[1, 0])  : f32[T,3]
  %b = transpose(%w, perm=[1, 0])  : f32[3,4]
  %c = matmul(%a, %b)  : f32[T,4]
  %kept = transpose(%v, perm=[1, 0, 2])  : f32[3,2,4]
  %d = matmul(%kept, %w)  : f32[3,2,3]
  return %c, %d
}""",
    "whole_slice": """
program p(%x: f32[T,3] arg "x") {
  %a = slice(%x, axis=0, start=0, length=T)  : f32[T,3]
  %kept = slice(%x, axis=1, start=2, length=3, step=-1)  : f32[T,3]
  return %a, %kept
}""",
    "slice_of_slice": """
program p(%x: f32[8,T] arg "x") {
  %a = slice(%x, axis=0, start=7, length=6, step=-1)  : f32[6,T]
  %b = slice(%a, axis=0, start=1, length=2, step=3)  : f32[2,T]
  %c = index(%a, axis=-2, index=2)  : f32[T]
  return %b, %c
}""",
    "slice_of_concat": """
program p(%x: f32[T,2] arg "x", %y: f32[3,2] arg "y") {
  %a = concat(%x, %y, axis=0)  : f32[T+3,2]
  %b = slice(%a, axis=0, start=T, length=3)  : f32[3,2]
  %c = slice(%a, axis=0, start=T+1, length=1)  : f32[1,2]
  %d = index(%a, axis=0, index=T+2)  : f32[2]
  return %b, %c, %d
}""",
    "pick_of_stack": """
program p(%x: f32[T] arg "x", %y: f32[T] arg "y") {
  %a = stack(%x, %y, axis=1)  : f32[T,2]
  %b = index(%a, axis=-1, index=1)  : f32[T]
  return %b
}""",
    "read_what_was_set": """
program p(%x: f32[4,T] arg "x", %y: f32[T] arg "y", %i: i64[] arg "i", %z: f32[2,T] arg "z") {
  %a = set_index(%x, %y, axis=0, index=1)  : f32[4,T]
  %b = index(%a, axis=0, index=1)  : f32[T]
  %c = set_dynamic_index(%x, %y, %i, axis=0)  : f32[4,T]
  %d = dynamic_index(%c, %i, axis=0)  : f32[T]
  %e = set_slice(%x, %z, axis=0, start=1)  : f32[4,T]
  %f = slice(%e, axis=0, start=1, length=2)  : f32[2,T]
  %kept = slice(%e, axis=0, start=1, length=3)  : f32[3,T]
  return %b, %d, %f, %kept
}""",
    "set_what_was_read": """
program p(%x: f32[4,3] arg "x", %i: i64[] arg "i") {
  %a = index(%x, axis=0, index=1)  : f32[3]
  %b = set_index(%x, %a, axis=0, index=1)  : f32[4,3]
  %c = slice(%b, axis=0, start=2, length=2)  : f32[2,3]
  %d = set_slice(%b, %c, axis=0, start=2)  : f32[4,3]
  %e = dynamic_index(%d, %i, axis=0)  : f32[3]
  %f = set_dynamic_index(%d, %e, %i, axis=0)  : f32[4,3]
  %kept = set_index(%f, %a, axis=0, index=2)  : f32[4,3]
  %g = neg(%kept)  : f32[4,3]
  return %g
}""",
    "set_again": """
program p(%x: f32[4,T] arg "x", %y: f32[T] arg "y", %i: i64[] arg "i") {
  %n = neg(%y)  : f32[T]
  %a = set_index(%x, %y, axis=0, index=1)  : f32[4,T]
  %b = set_index(%a, %n, axis=0, index=1)  : f32[4,T]
  %c = set_dynamic_index(%x, %y, %i, axis=0)  : f32[4,T]
  %d = set_dynamic_index(%c, %n, %i, axis=0)  : f32[4,T]
  return %b, %d
}""",
    "set_everything": """
program p(%x: f32[T,2] arg "x", %y: f32[T,2] arg "y") {
  %a = set_slice(%x, %y, axis=0, start=0)  : f32[T,2]
  return %a
}""",
    "set_in_parts": """
program p(%x: f32[T,5] arg "x", %y: f32[T,3] arg "y", %z: f32[T,2] arg "z") {
  %a = set_slice(%x, %y, axis=1, start=2)  : f32[T,5]
  %b = set_slice(%a, %z, axis=1, start=0)  : f32[T,5]
  %c = set_slice(%x, %y, axis=1, start=0)  : f32[T,5]
  %d = set_slice(%c, %z, axis=1, start=1)  : f32[T,5]
  return %b, %d
}""",
    "pick_beside_what_was_set": """
program p(%x: f32[4,T] arg "x", %y: f32[T] arg "y") {
  %a = set_index(%x, %y, axis=0, index=1)  : f32[4,T]
  %b = index(%a, axis=0, index=2)  : f32[T]
  return %b
}""",
    "common_subexpressions": """
program p(%x: f32[T] arg "x") {
  %a = exp(%x)  : f32[T]
  %b = exp(%x)  : f32[T]
  %c = scale(%a, scale=2.0)  : f32[T]
  %d = scale(%b, scale=2.0)  : f32[T]
  %e = add(%c, %d)  : f32[T]
  scan %t < 3 {
    const %y = %x  : f32[T]
    carry %h = %x then %h2 last %hT  : f32[T]
    body
      %f = exp(%y)  : f32[T]
      %g = exp(%y)  : f32[T]
      %i = add(%f, %g)  : f32[T]
      %h2 = add(%h, %i)  : f32[T]
  }
  return %e, %hT
}""",
    "dead_code": """
program p(%x: f32[T] arg "x") {
  %a = exp(%x)  : f32[T]
  scan %t < T {
    const %y = %x  : f32[T]
    stack %ys = %f axis 0  : f32[T,T]
    body
      %f = exp(%y)  : f32[T]
      %g = neg(%f)  : f32[T]
  }
  scan %s < T {
    const %y1 = %x  : f32[T]
    stack %zs = %h axis 0  : f32[T,T]
    body
      %h = exp(%y1)  : f32[T]
      %i = neg(%h)  : f32[T]
  }
  return %ys
}""",
    "flag_and_constant": """
program p(%p: bool[T] arg "p", %x: f32[T] arg "x") {
  %yes = full(value=True, dtype=bool)  : bool[]
  %no = full(value=False, dtype=bool)  : bool[]
  %one = full(value=1.0, dtype=f32)  : f32[]
  %a = logical_and(%p, %yes)  : bool[T]
  %b = logical_and(%no, %p)  : bool[T]
  %c = logical_or(%yes, %p)  : bool[T]
  %d = logical_or(%p, %no)  : bool[T]
  %kept = logical_and(%x, %one)  : bool[T]
  return %a, %b, %c, %d, %kept
}""",
    "where_of_flags": """
program p(%p: bool[] arg "p") {
  %yes = full(value=True, dtype=bool)  : bool[]
  %no = full(value=False, dtype=bool)  : bool[]
  %a = where(%p, %yes, %no)  : bool[]
  %b = where(%p, %no, %yes)  : bool[]
  %kept = where(%p, %yes, %p)  : bool[]
  return %a, %b, %kept
}""",
    "scan_of_nothing": """
program p(%x: f32[T] arg "x") {
  scan %t < 0 {
    carry %h = %x then %h2 last %hT  : f32[T]
    stack %ys = %h axis 1  : f32[T,0]
    body
      %h2 = exp(%h)  : f32[T]
  }
  return %hT, %ys
}""",
}


@pytest.mark.parametrize("name", SIMPLE)
def test_simplify(name, golden):
    exact = name != "matmul_of_transpose"
    before = program(SIMPLE[name])
    after = check(simplify, before, golden, exact)
    assert str(simplify(after)) == str(after)


def test_every_rule_has_a_case():
    names = {f.__name__ for group in rules.RULES.values() for f in group}
    assert names <= set(SIMPLE)


def test_a_read_passes_all_stores_beside_it_at_once():
    """An unrolled loop leaves more of them than there are rounds."""
    stores = "\n".join(
        f"  %a{k + 1} = set_index(%a{k}, %y, axis=0, index={k})  : f32[60,T]" for k in range(50)
    )
    p = program(f"""
program p(%a0: f32[60,T] arg "x", %y: f32[T] arg "y") {{
{stores}
  %b = index(%a50, axis=0, index=55)  : f32[T]
  return %b
}}""")
    assert [op.name for op in simplify(p).ops] == ["index"]


@pytest.mark.parametrize("seed", range(8))
def test_reads_of_what_was_stored_are_those_of_the_last_store(seed):
    """Stores into two axes, at one place again, and into what other stores go on from."""
    rng = random.Random(seed)
    b, x = Builder(), Value(Type(F32, (4, 4)), "x")
    ys = [Value(Type(F32, (4,)), f"y{k}") for k in range(3)]
    tensors, read = [x], []
    for _ in range(30):
        source = rng.choice(tensors[-1:] * 4 + tensors)
        axis, index = int(rng.random() < 0.2), rng.randrange(4)
        read.append(b.index(source, axis=axis - 2 * rng.randrange(2), index=index))
        tensors.append(b.set_index(source, rng.choice(ys), axis=axis, index=index))
    inputs = tuple(Input(v, "arg", v.name) for v in (x, *ys))
    p = Program("p", inputs, tuple(b.ops), tuple(read))
    rows = np.arange(28, dtype="float32").reshape(7, 4)
    arrays = [rows[:4], *rows[4:]]
    for want, got in zip(evaluate(p, arrays)[0], evaluate(simplify(p), arrays)[0]):
        np.testing.assert_array_equal(got, want)
