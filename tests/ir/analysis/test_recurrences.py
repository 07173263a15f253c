"""Which states of a loop are recurrences."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from ir import Scan
from ir.analysis.recurrences import recurrences
from tests.ir.test_ir_random import program

PROGRAM = """
program p(%x: f32[T,B] arg "x", %p: bool[T] arg "p", %h0: f32[B] arg "h") {{
  scan %t < T {{
    seq   %xt = %x[t]  : f32[B]
    seq   %pt = %p[t]  : bool[]
    carry %h = %h0 then %h2 last %hT  : f32[B]
    carry %g = %h0 then %g2 last %gT  : f32[B]
    body
      %y = tanh(%xt)  : f32[B]
      %k = full(value=2.0, dtype=f32)  : f32[]
{body}
  }}
  return %hT, %gT
}}"""
KEPT = "%g2 = tanh(%g)"
BODIES = {
    "sum": (["%h2 = add(%y, %h)", KEPT], {"h": "sum"}),
    "sum_twice": (["%a = subtract(%h, %y)", "%h2 = scale(%a, bias=1.5)", KEPT], {"h": "sum"}),
    "product": (["%a = multiply(%h, %y)", "%h2 = divide(%a, %k)", KEPT], {"h": "product"}),
    "linear": (["%a = scale(%h, scale=0.9)", "%h2 = add(%a, %y)", KEPT], {"h": "linear"}),
    "turned": (["%h2 = subtract(%y, %h)", KEPT], {"h": "linear"}),
    "twice_itself": (["%h2 = add(%h, %h)", KEPT], {"h": "product"}),
    "gate": (
        ["%a = subtract(%h, %y)", "%b = multiply(%a, %k)", "%h2 = add(%b, %xt)", KEPT],
        {"h": "linear"},
    ),
    "reset": (["%a = add(%h, %y)", "%h2 = where(%pt, %a, %xt)", KEPT], {"h": "linear"}),
    "largest": (["%h2 = maximum(%h, %y)", "%g2 = minimum(%xt, %g)"],
                {"h": "largest", "g": "least"}),
    "of_another": (["%h2 = add(%h, %y)", "%a = multiply(%g, %h)", "%g2 = add(%a, %h2)"],
                   {"h": "sum", "g": "linear"}),
    "both_of_each_other": (["%h2 = add(%h, %g)", "%g2 = add(%g, %h)"], {}),
    "exchanged": (["%h2 = neg(%g)", "%g2 = neg(%h)"], {}),
    "unchanged": (["%h2 = scale(%h, scale=1.0)", KEPT], {}),
    "squared": (["%h2 = multiply(%h, %h)", KEPT], {}),
    "not_linear": (["%a = tanh(%h)", "%h2 = add(%a, %y)", KEPT], {}),
    "sum_of_largest": (["%a = maximum(%h, %y)", "%h2 = add(%a, %y)", KEPT], {}),
    "chosen_by_itself": (["%q = less_than(%h, %y)", "%h2 = where(%q, %h, %y)", KEPT], {}),
    "divisor": (["%h2 = divide(%y, %h)", KEPT], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_kind(name):
    lines, want = BODIES[name]
    types = {"%q": "bool[B]"}
    body = [f"      {line}  : {types.get(line.split(' ')[0], 'f32[B]')}" for line in lines]
    (loop,) = program(PROGRAM.format(body="\n".join(body))).ops
    assert isinstance(loop, Scan)
    assert {q.carry.inner.name: q.kind for q in recurrences(loop)} == want
    for q in recurrences(loop):
        assert [n.results[0].name for n in q.ops][-1] == q.carry.next.name


def leaky(x):
    v, s, h = x[0] * 0, x[0] * 0, x[0]
    for row in x:
        v = 0.9 * v + row
        s = s + v * v
        h = paddle.tanh(h + v)
    return v, s, h


def test_the_report_names_them():
    static, x = dy2st.to_static(leaky), paddle.randn([5, 3])
    (loop,) = dy2st.report(static, x).loops
    assert loop.states == ("s is a running sum", "v is a linear recurrence")
    assert str(loop).endswith(": scan, s is a running sum, v is a linear recurrence")
