# ruff: noqa: E501
"""The pipeline: what each pass establishes, expansion and fusion, running parts of the list."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ir import (
    OPS,
    Builder,
    Fused,
    Input,
    Program,
    Scan,
    Seq,
    Slot,
    Stack,
    Type,
    Value,
    VerifyError,
    passes,
    verify,
)
from ir.passes import PIPELINE, expand, fuse, name_of, run
from ir.passes.fusion import GROUP_LIMIT
from ir.types import F32
from ir.uses import walk
from tests.ir.passes.loops.test_inner_invariants import DECODER
from tests.ir.passes.loops.test_joined_carries import STATES
from tests.ir.passes.test_interchange import LAYERS
from tests.ir.test_ir_random import check, program, same_values


def nodes(ops) -> list:
    return list(walk(ops))


def ports(p: Program) -> list[str]:
    scans = [n for n in nodes(p.ops) if isinstance(n, Scan)]
    return sorted(type(q).__name__.lower() for s in scans for q in s.ports)


CHAR_LSTM = """
program char_lstm(%ids: i64[B,T] arg "ids", %table: f32[5,3] param "embedding.weight", %w_ih: f32[16,3] param "cell.weight_ih", %w_hh: f32[16,4] param "cell.weight_hh", %b_ih: f32[16] param "cell.bias_ih", %b_hh: f32[16] param "cell.bias_hh", %w_out: f32[4,6] param "out.weight", %b_out: f32[6] param "out.bias", %steps: i64[] buffer "steps") {
  %z = full(value=0.0, shape=[B, 4], dtype=f32)  : f32[B,4]
  %out = full(value=0.0, shape=[B, T, 6], dtype=f32)  : f32[B,T,6]
  %one = full(value=1, dtype=i64)  : i64[]
  scan %t < T {
    const %ids1 = %ids  : i64[B,T]
    const %table1 = %table  : f32[5,3]
    const %wi = %w_ih  : f32[16,3]
    const %wh = %w_hh  : f32[16,4]
    const %bi = %b_ih  : f32[16]
    const %bh = %b_hh  : f32[16]
    const %wo = %w_out  : f32[4,6]
    const %bo = %b_out  : f32[6]
    const %out1 = %out  : f32[B,T,6]
    const %steps1 = %steps  : i64[]
    const %one1 = %one  : i64[]
    carry %h = %z then %h2 last %hT  : f32[B,4]
    carry %c = %z then %c2 last %cT  : f32[B,4]
    body
      %it = dynamic_index(%ids1, %t, axis=1)  : i64[B]  @ model.py:20
      %e = embedding(%it, %table1)  : f32[B,3]  @ model.py:20
      %gi = matmul(%e, %wi, trans_y=True)  : f32[B,16]  @ model.py:21
      %gi2 = add(%gi, %bi)  : f32[B,16]
      %gh = matmul(%h, %wh, trans_y=True)  : f32[B,16]
      %gh2 = add(%gh, %bh)  : f32[B,16]
      %g = add(%gi2, %gh2)  : f32[B,16]
      %i, %f, %o, %u = split(%g, axis=1, sections=[4, 4, 4, 4])  : f32[B,4], f32[B,4], f32[B,4], f32[B,4]
      %i2 = sigmoid(%i)  : f32[B,4]
      %f2 = sigmoid(%f)  : f32[B,4]
      %o2 = sigmoid(%o)  : f32[B,4]
      %u2 = tanh(%u)  : f32[B,4]
      %fc = multiply(%f2, %c)  : f32[B,4]
      %iu = multiply(%i2, %u2)  : f32[B,4]
      %c2 = add(%fc, %iu)  : f32[B,4]
      %tc = tanh(%c2)  : f32[B,4]
      %h2 = multiply(%o2, %tc)  : f32[B,4]
      %lo = matmul(%h2, %wo)  : f32[B,6]
      %lo2 = add(%lo, %bo)  : f32[B,6]
      %row = dynamic_index(%out1, %t, axis=1)  : f32[B,6]
      copy_(%row, %lo2)
      %s2 = add(%steps1, %one1)  : i64[]
      copy_(%steps1, %s2)
  }
  %p = softmax(%out)  : f32[B,T,6]  @ model.py:30
  return %p, %hT, %cT
}"""


def test_char_lstm(golden):
    check(lambda p: run(p, check=True), program(CHAR_LSTM), golden, exact=False)


# ---------------------------------------------------------------- what each pass is for
def _nothing_writes(p: Program) -> bool:
    return not any(n.name in OPS and OPS[n.name].writes for n in nodes(p.ops))


def _counts(p: Program) -> dict[str, int]:
    found = [n.name for n in nodes(p.ops)]
    return {n: found.count(n) for n in found}


NEEDS = {
    "functionalize": (CHAR_LSTM, _nothing_writes),
    "simplify": (
        """
program p(%x: f32[T] arg "x") {
  %a = transpose(%x, perm=[0])  : f32[T]
  %b = exp(%a)  : f32[T]
  %c = exp(%x)  : f32[T]
  return %b, %c
}""",
        lambda p: _counts(p) == {"exp": 1},
    ),
    "simplify_apart": (
        """
program p(%x: f32[T,3] arg "x", %b0: f32[T,3] arg "b") {
  scan %t < T {
    seq %xt = %x[t]  : f32[3]
    carry %b = %b0 then %b2 last %bT  : f32[T,3]
    stack %ys = %y axis 0  : f32[T,3]
    body
      %e = exp(%xt)  : f32[3]
      %b2 = set_dynamic_index(%b, %e, %t, axis=0)  : f32[T,3]
      %row = dynamic_index(%b2, %t, axis=0)  : f32[3]
      %y = exp(%row)  : f32[3]
  }
  return %ys, %bT
}""",
        lambda p: not {"set_dynamic_index", "set_index"} & _counts(p).keys(),
    ),
    "known_trips": (
        """
program p(%h0: f32[3] arg "h") {
  %zero = full(value=0, dtype=i64)  : i64[]
  %ten = full(value=10, dtype=i64)  : i64[]
  %yes = full(value=True, dtype=bool)  : bool[]
  while %t as n {
    go %yes then %more
    const %ten1 = %ten  : i64[]
    carry %i = %zero then %i2  : i64[]
    carry %h = %h0 then %h2  : f32[3]
    stack %hs = %h2 axis 0  : f32[n,3]
    body
      %h2 = exp(%h)  : f32[3]
      %i2 = scale(%i, bias=1.0)  : i64[]
      %more = less_than(%i2, %ten1)  : bool[]
  }
  return %hs
}""",
        lambda p: "while" not in _counts(p) and str(p.outputs[0].type) == "f32[10,3]",
    ),
    "last_k_steps": (
        """
program p(%x: f32[9,3] arg "x") {
  %zero = full(value=0.0, shape=[3], dtype=f32)  : f32[3]
  scan %t < 9 {
    seq   %xt = %x[t]  : f32[3]
    carry %h = %zero then %y  : f32[3]
    stack %ys = %y axis 0  : f32[9,3]
    body
      %s = add(%h, %xt)  : f32[3]
      %y = exp(%s)  : f32[3]
  }
  %a = slice(%ys, axis=0, start=7, length=2)  : f32[2,3]
  return %a
}""",
        lambda p: "stack" not in ports(p),
    ),
    "unroll_loops": (
        """
program p(%x: f32[4,3] arg "x", %h0: f32[3] arg "h") {
  scan %t < 4 unroll 2 {
    seq   %xt = %x[t]  : f32[3]
    carry %h = %h0 then %h2 last %hT  : f32[3]
    body
      %h2 = tanh(%xt)  : f32[3]
  }
  return %hT
}""",
        lambda p: "unroll" not in str(p),
    ),
    "known_addresses": (
        """
program p(%x: f32[5,3] arg "x") {
  %one = full(value=1, dtype=i64)  : i64[]
  scan %t < 4 {
    carry %h = %x then %h2 last %hT  : f32[5,3]
    const %k = %one  : i64[]
    body
      %i = add(%t, %k)  : i64[]
      %a = dynamic_index(%h, %t, axis=0)  : f32[3]
      %b = dynamic_index(%h, %i, axis=0)  : f32[3]
      %c = multiply(%a, %b)  : f32[3]
      %h2 = set_dynamic_index(%h, %c, %i, axis=0)  : f32[5,3]
  }
  return %hT
}""",
        lambda p: "dynamic" not in str(p),
    ),
    "fuse_loops": (
        """
program p(%x: f32[T,3] arg "x", %h: f32[3] arg "h") {
  scan %t < T {
    seq   %xt = %x[t]  : f32[3]
    carry %a = %h then %a2  : f32[3]
    stack %ys = %a2 axis 0  : f32[T,3]
    body
      %a2 = add(%a, %xt)  : f32[3]
  }
  scan %u < T {
    seq   %yt = %ys[u]  : f32[3]
    carry %b = %h then %b2 last %bT  : f32[3]
    body
      %b2 = multiply(%b, %yt)  : f32[3]
  }
  return %bT
}""",
        lambda p: _counts(p)["scan"] == 1 and "stack" not in ports(p),
    ),
    "inplace_source": (
        """
program p(%x: f32[3] arg "x") {
  %y = exp(%x)  : f32[3]
  copy_(%x, %y)
  return %x, %y
}""",
        lambda p: [isinstance(v, Slot) for v in p.outputs] == [True, False],
    ),
    "select_cond": (
        """
program p(%x: f32[T,3] arg "x", %h0: f32[3] arg "h", %p: bool[] arg "p") {
  scan %t < T {
    const %p1 = %p  : bool[]
    seq %xt = %x[t]  : f32[3]
    carry %h = %h0 then %h2 last %hT  : f32[3]
    body
      cond %p1 {
        const %h1 = %h  : f32[3]
        const %x1 = %xt  : f32[3]
        join %h2 = %a else %h1  : f32[3]
        then
          %a = add(%h1, %x1)  : f32[3]
        else
      }
  }
  return %hT
}""",
        lambda p: _counts(p) == {"scan": 1, "fused": 1},
    ),
    "hoist_invariants": (
        """
program p(%x: f32[T] arg "x", %w: f32[3] param "w") {
  scan %t < T {
    const %w1 = %w  : f32[3]
    carry %h = %w then %h2 last %hT  : f32[3]
    body
      %e = exp(%w1)  : f32[3]
      %h2 = multiply(%h, %e)  : f32[3]
  }
  return %hT
}""",
        lambda p: [n.name for n in p.ops] == ["exp", "scan"],
    ),
    "to_seq": (CHAR_LSTM, lambda p: "dynamic_index" not in _counts(p) and "seq" in ports(p)),
    "to_stack": (
        CHAR_LSTM,
        lambda p: "set_dynamic_index" not in _counts(p) and "stack" in ports(p),
    ),
    "drop_unused_ports": (
        """
program p(%x: f32[T,3] arg "x", %w: f32[3] param "w") {
  scan %t < T {
    seq   %xt = %x[t]  : f32[3]
    carry %h = %w then %h2 last %hT  : f32[3]
    carry %unread = %w then %u2 last %uT  : f32[3]
    body
      %h2 = add(%h, %xt)  : f32[3]
      %u2 = add(%unread, %xt)  : f32[3]
  }
  return %hT
}""",
        lambda p: ports(p) == ["carry", "seq"],
    ),
    "invariant_ports": (
        """
program p(%x: f32[T,3] arg "x", %g: f32[3] arg "g") {
  %gs = expand(%g, shape=[T, 3])  : f32[T,3]
  scan %t < T {
    seq   %xt = %x[t]  : f32[3]
    seq   %gt = %gs[t]  : f32[3]
    carry %h = %g then %h2 last %hT  : f32[3]
    body
      %y = exp(%gt)  : f32[3]
      %z = multiply(%y, %xt)  : f32[3]
      %h2 = add(%h, %z)  : f32[3]
  }
  return %hT
}""",
        lambda p: "expand" not in _counts(p) and ports(p) == ["carry", "const", "seq"],
    ),
    "last_steps": (
        """
program p(%x: f32[5,3] arg "x", %g: f32[3] arg "g") {
  scan %t < 5 {
    seq   %xt = %x[t]  : f32[3]
    carry %h = %g then %h2  : f32[3]
    stack %ys = %h2 axis 0  : f32[5,3]
    body
      %h2 = add(%h, %xt)  : f32[3]
  }
  %y = index(%ys, axis=0, index=4)  : f32[3]
  return %y
}""",
        lambda p: ports(p) == ["carry", "seq"],
    ),
    "sums_in_loops": (
        """
program p(%x: f32[T,3] arg "x", %g: f32[3] arg "g") {
  scan %t < T {
    seq   %xt = %x[t]  : f32[3]
    carry %h = %g then %h2  : f32[3]
    stack %ys = %h2 axis 0  : f32[T,3]
    body
      %h2 = multiply(%h, %xt)  : f32[3]
  }
  %y = sum(%ys, axes=[0])  : f32[3]
  return %y
}""",
        lambda p: ports(p) == ["carry", "carry", "seq"],
    ),
    "split_loops": (
        """
program p(%x: f32[T,2,256] arg "x", %u: f32[256,256] param "u", %h0: f32[2,256] arg "h", %g0: f32[2,256] arg "g") {
  scan %t < T {
    const %u1 = %u  : f32[256,256]
    seq   %xt = %x[t]  : f32[2,256]
    carry %h = %h0 then %h2  : f32[2,256]
    carry %g = %g0 then %g2 last %gT  : f32[2,256]
    body
      %h2 = add(%h, %xt)  : f32[2,256]
      %a = matmul(%h2, %u1)  : f32[2,256]
      %b = add(%g, %a)  : f32[2,256]
      %g2 = tanh(%b)  : f32[2,256]
  }
  return %gT
}""",
        lambda p: (
            [n.name for n in p.ops if n.name in ("scan", "matmul")] == ["scan", "matmul", "scan"]
        ),
    ),
    "interchange_loops": (
        "\n".join(q for q in LAYERS.replace(", %yT", "").splitlines() if "last  %yT" not in q),
        lambda p: [n.trip for n in p.ops if n.name == "scan"].count(6) == 1,
    ),
    "expand": (CHAR_LSTM, lambda p: "softmax" not in _counts(p)),
    "hoist_from_scan": (
        CHAR_LSTM,
        lambda p: (
            [n.name for n in p.ops if n.name in ("matmul", "embedding", "scan")]
            == ["embedding", "matmul", "scan", "matmul"]
        ),
    ),
    "join_carries": (
        STATES,
        lambda p: sum(map(len, (n.carries for n in p.ops if n.name == "scan"))) == 1,
    ),
    "hoist_from_inner_loops": (
        DECODER,
        lambda p: [n.name for n in p.ops] == ["scan", "scan"],
    ),
    "fuse": (CHAR_LSTM, lambda p: not {"sigmoid", "tanh"} & set(_counts(p))),
}


def test_every_pass_is_needed_by_a_test():
    assert set(NEEDS) == {name_of(f) for f, _ in PIPELINE}


@pytest.mark.parametrize("name", NEEDS)
def test_what_the_pass_establishes(name):
    text, holds = NEEDS[name]
    assert holds(run(program(text), check=True))


@pytest.mark.parametrize("name", sorted(set(NEEDS) - set(passes.REQUIRED)))
def test_only_this_pass_establishes_it(name):
    text, holds = NEEDS[name]
    before = program(text)
    after = run(before, disabled={name}, check=True)
    assert not holds(after)
    same_values(before, after, exact=False)


# ---------------------------------------------------------------- running the list
def test_parts_of_the_pipeline_make_the_whole():
    p = program(CHAR_LSTM)
    middle = run(p, stop_before="expand")
    assert "softmax" in _counts(middle)
    assert str(run(middle, start_at="expand")) == str(run(p))


def test_running_again_changes_nothing():
    once = run(program(CHAR_LSTM))
    assert str(run(once, check=True)) == str(once)


@pytest.mark.parametrize("kwargs", [{"disabled": {"x"}}, {"start_at": "x"}, {"stop_before": "x"}])
def test_unknown_passes_are_named(kwargs):
    with pytest.raises(ValueError, match="no pass is called 'x'"):
        run(program(CHAR_LSTM), **kwargs)


@pytest.mark.parametrize("name", passes.REQUIRED)
def test_required_passes_cannot_be_disabled(name):
    with pytest.raises(ValueError, match=f"{name} cannot be disabled"):
        run(program(CHAR_LSTM), disabled={name})


def test_dump_prints_the_program_after_a_pass(monkeypatch, capsys):
    monkeypatch.setenv("DUMP", "expand")
    run(program(CHAR_LSTM))
    err = capsys.readouterr().err
    assert err.startswith("---- after expand\nprogram char_lstm(") and "---- after fuse" not in err
    monkeypatch.setenv("DUMP", "all")
    run(program(CHAR_LSTM))
    assert capsys.readouterr().err.count("---- after ") == len(PIPELINE)


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_a_defect_of_a_pass_is_named(monkeypatch, how):
    def broken(p: Program) -> Program:
        return Program(p.name, p.inputs, (), p.outputs)

    monkeypatch.setattr(passes, "PIPELINE", [(broken, "breaks the program")])
    if how == "environment":
        monkeypatch.setenv("DY2ST_CHECK", "1")
    with pytest.raises(VerifyError, match="after broken: .* used before it is defined"):
        run(program(CHAR_LSTM), check=how == "argument")


def test_reasons_are_sentences():
    assert all(reason and len(reason) < 100 for _, reason in PIPELINE)


def test_effects_stay_in_order():
    p = program("""
program p(%x: f32[3] arg "x") {
  %a = foreign(%x, call="dropout", args=[1, None], types=[f32[3]])  : f32[3]
  %b = foreign(%x, call="dropout", args=[1, None], types=[f32[3]])  : f32[3]
  scan %t < 2 {
    const %y = %x  : f32[3]
    body
      %d = neg(%y)  : f32[3]
      %c = foreign(%d, call="seen", args=[], types=[f32[3]])  : f32[3]
  }
  %e = add(%b, %b)  : f32[3]
  %g = neg(%e)  : f32[3]
  %f = foreign(%g, call="last", args=[], types=[f32[3]])  : f32[3]
  %h = neg(%f)  : f32[3]
  %i = add(%h, %e)  : f32[3]
  return %i
}""")
    after = run(p, check=True)
    calls = [n.attrs["call"] for n in nodes(after.ops) if n.name == "foreign"]
    assert calls == ["dropout", "dropout", "seen", "last"]
    (scan,) = (n for n in after.ops if isinstance(n, Scan))
    assert [n.name for n in scan.body] == ["foreign"]


def test_compile_time_does_not_depend_on_trips():
    short, long = (CHAR_LSTM.replace("scan %t < T", f"scan %t < {n}") for n in (2, 100000))
    short, long = (
        s.replace("B,T", f"B,{n}").replace("B, T", f"B, {n}")
        for s, n in ((short, 2), (long, 100000))
    )
    assert len(nodes(run(program(short)).ops)) == len(nodes(run(program(long)).ops))


# ---------------------------------------------------------------- expansion
EXPANDED = {
    "layer_norm": """
program p(%x: f32[T,4] arg "x", %w: f32[4] param "w", %b: f32[4] param "b") {
  %y = layer_norm(%x, %w, %b, begin_norm_axis=1)  : f32[T,4]  @ model.py:3
  return %y
}""",
    "in_a_loop": """
program p(%x: f32[T,4] arg "x") {
  scan %t < T {
    seq   %xt = %x[t]  : f32[4]
    stack %ys = %y axis 0  : f32[T,4]
    body
      %y = log_softmax(%xt)  : f32[4]
  }
  return %ys
}""",
    "matrices": """
program p(%x: f32[T,4] arg "x", %n: i64[T] arg "n") {
  %y = triu(%x, diagonal=1)  : f32[T,4]
  %z = one_hot(%n, n=4)  : f32[T,4]
  %m = mean(%x, axes=[1])  : f32[T]
  return %y, %z, %m
}""",
}


@pytest.mark.parametrize("name", EXPANDED)
def test_expand(name, golden):
    after = check(expand, program(EXPANDED[name]), golden, exact=False)
    assert all(n.name == "scan" or OPS[n.name].expand is None for n in nodes(after.ops))


@pytest.mark.parametrize("name", [n for n, row in OPS.items() if row.expand])
def test_expansions_keep_the_types_and_values_of_examples(name):
    for e in OPS[name].examples:
        p = single_op(name, e)
        after = verify(expand(p))
        rng = np.random.default_rng(0)
        inputs = [
            rng.uniform(e.low, e.high, i.value.type.shape).astype(i.value.type.dtype.numpy)
            for i in p.inputs
        ]
        if 0 in p.inputs[0].value.type.shape:
            continue
        before, now = passes_values(p, inputs), passes_values(after, inputs)
        np.testing.assert_allclose(before, now, rtol=1e-5, atol=1e-6)


def single_op(name, e) -> Program:
    from ir.literal import parse_type

    b = Builder()
    inputs = [Input(Value(parse_type(t), "x"), "arg", "x") for t in e.types]
    out = b.emit(name, [i.value for i in inputs], e.attrs)
    return verify(Program("p", tuple(inputs), tuple(b.ops), out))


def passes_values(p: Program, inputs) -> np.ndarray:
    from ir.interpreter import evaluate

    return evaluate(p, inputs)[0][0]


# ---------------------------------------------------------------- fusion
FUSED = {
    "chain": """
program p(%x: f32[T,4] arg "x", %y: f32[4] arg "y") {
  %a = add(%x, %y)  : f32[T,4]  @ model.py:3
  %b = exp(%a)  : f32[T,4]
  %c = cast(%b, dtype=f64)  : f64[T,4]  @ model.py:5
  return %c
}""",
    "several_results": """
program p(%x: f32[T,4] arg "x") {
  %a = neg(%x)  : f32[T,4]
  %b = exp(%a)  : f32[T,4]
  %c = abs(%a)  : f32[T,4]
  return %b, %c, %a
}""",
    "no_cycle": """
program p(%x: f32[T,4] arg "x") {
  %a = neg(%x)  : f32[T,4]
  %s = sum(%a, axes=[1], keepdim=True)  : f32[T,1]
  %b = abs(%a)  : f32[T,4]
  %c = add(%b, %s)  : f32[T,4]
  return %c
}""",
    "shapes_differ": """
program p(%x: f32[T,1] arg "x", %y: f32[4] arg "y") {
  %a = neg(%x)  : f32[T,1]
  %b = exp(%a)  : f32[T,1]
  %c = add(%b, %y)  : f32[T,4]
  %d = exp(%c)  : f32[T,4]
  return %d
}""",
    "indices_stay": """
program p(%x: f32[] arg "x", %n: i64[] arg "n") {
  %m = add(%n, %n)  : i64[]
  %k = neg(%m)  : i64[]
  %y = exp(%x)  : f32[]
  %z = neg(%y)  : f32[]
  return %k, %z
}""",
    "in_a_loop": """
program p(%x: f32[T,4] arg "x", %h0: f32[4] arg "h") {
  scan %t < T {
    seq   %xt = %x[t]  : f32[4]
    carry %h = %h0 then %h2 last %hT  : f32[4]
    stack %ys = %a axis 0  : f32[T,4]
    body
      %a = add(%xt, %h)  : f32[4]
      %h2 = multiply(%a, %a)  : f32[4]
  }
  return %ys, %hT
}""",
    "order_changes": """
program p(%x: f32[T,4] arg "x", %y: f32[T,4] arg "y") {
  %a = neg(%x)  : f32[T,4]
  %s = sum(%a, axes=[1], keepdim=True)  : f32[T,1]
  %b = add(%s, %y)  : f32[T,4]
  %c = abs(%a)  : f32[T,4]
  %d = add(%c, %y)  : f32[T,4]
  %e = abs(%b)  : f32[T,4]
  return %e, %d
}""",
}


@pytest.mark.parametrize("name", FUSED)
def test_fuse(name, golden):
    check(fuse, program(FUSED[name]), golden, exact=False)


def test_kernels_are_not_larger_than_the_limit():
    b, x = Builder(), Value(Type(F32, (4,)), "x")
    at = x
    for _ in range(3 * GROUP_LIMIT):
        at = b.abs(at)
    p = verify(Program("p", (Input(x, "arg", "x"),), tuple(b.ops), (at,)))
    after = check(fuse, p)
    assert [len(n.body) for n in after.ops if isinstance(n, Fused)] == [GROUP_LIMIT] * 3


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_fuse_without_cycles(seed):
    r, b = random.Random(seed), Builder()
    x = Value(Type(F32, (3, 3)), "x")
    pool = [x]
    for _ in range(40):
        name = r.choice(["neg", "abs", "add", "maximum", "transpose", "row"])
        a, c = r.choice(pool), r.choice(pool[-6:])
        if name == "transpose":
            pool.append(b.transpose(a, perm=(1, 0)))
        elif name == "row":
            pool.append(b.add(c, b.index(a, axis=0, index=r.randrange(3))))
        else:
            pool.append(b.emit(name, (a, c)[: len(OPS[name].operands)])[0])
    outputs = tuple(r.sample(pool, 4))
    p = Program("p", (Input(x, "arg", "x"),), tuple(b.ops), outputs)
    check(fuse, verify(p))


def test_ports_of_the_optimised_lstm():
    after = run(program(CHAR_LSTM))
    (scan,) = (n for n in after.ops if isinstance(n, Scan))
    assert sum(isinstance(q, Seq) for q in scan.ports) == 1
    assert sum(isinstance(q, Stack) for q in scan.ports) == 1
