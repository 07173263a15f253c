"""Selectors: integers that say at run time which tensor a value is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ir import Program, Type, Value, parse, verify
from ir.interpreter import evaluate
from ir.passes.provenance import Provenance, select
from ir.types import I64

HEAD = 'program p(%a: f32[2] arg "a", %b: f32[2] arg "b", %n: i64[] arg "n") {'

BRANCH = """
  %zero = full(value=0, dtype=i64) : i64[]
  %c = greater_than(%n, %zero) : bool[]
  cond %c {
    const %a1 = %a : f32[2]
    const %b1 = %b : f32[2]
    join %h = %a1 else %new : f32[2]
    then
    else
      %new = scale(%b1, scale=2.0) : f32[2]
  }
  return %h
"""

LOOP = """
  scan %t < 3 {
    const %n1 = %n : i64[]
    const %b1 = %b : f32[2]
    carry %h = %a then %h1 last %h2 : f32[2]
    body
      %c = equal(%t, %n1) : bool[]
      cond %c {
        const %b2 = %b1 : f32[2]
        const %old = %h : f32[2]
        join %h1 = %new else %old : f32[2]
        then
          %new = scale(%b2, scale=2.0) : f32[2]
        else
      }
  }
  return %h2
"""


def program(text: str) -> Program:
    return verify(parse(f"{HEAD}{text}}}"))


def values(p: Program) -> dict[str, Value]:
    found = Provenance(p)
    known = {**{i.value: None for i in p.inputs}, **found.places, **found.sources}
    return {v.name: v for v in known}


def chosen(p: Program, numbers: dict[str, int], n: int) -> int:
    """What the selector beside the program's output says."""
    (out,), named, code = p.outputs, values(p), Value(Type(I64), "selector")
    assert isinstance(out, Value)
    q = select(p, {out: code}, {named[k]: number for k, number in numbers.items()})
    q = verify(dataclasses.replace(q, outputs=(*q.outputs, code)))
    assert str(parse(str(q))) == str(q)
    return int(evaluate(q, [np.zeros(2), np.ones(2), np.asarray(n)])[0][1])


def test_what_a_value_may_be():
    p = program(BRANCH)
    found, named = Provenance(p), values(p)
    assert set(found.objects(named["h"])) == {named["a"], named["new"]}
    assert found.outermost(named["a"]) and not found.outermost(named["new"])
    assert found.storages(named["new"]) == [named["new"]]


@pytest.mark.parametrize(("n", "want"), [(1, 1), (0, 0), (-1, 0)])
def test_a_branch_says_which_input_it_hands_on(n, want):
    assert chosen(program(BRANCH), {"a": 1}, n) == want


def test_an_iteration_makes_a_tensor_of_its_own():
    p = program(LOOP)
    found = [chosen(p, {"a": 1, "new": 2}, n) for n in (0, 1, 2, 5)]
    assert found[3] == 1 and len(set(found)) == 4


def test_a_program_without_wanted_selectors_stays_as_it_is():
    p = program(LOOP)
    assert select(p, {}, {}) is p


def test_a_loop_that_surely_runs_hands_on_nothing_from_before_it():
    p = program(LOOP.replace("join %h1 = %new else %old", "join %h1 = %new else %b3").replace(
        "const %old = %h : f32[2]", "const %b3 = %b1 : f32[2]"))  # fmt: skip
    named = values(p)
    assert set(Provenance(p).objects(named["h2"])) == {named["b"], named["new"]}
