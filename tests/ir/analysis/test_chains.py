"""Chains from A1 in place to A4: the report, the program with its slots, three steps of training.

Every case: a parameter, a buffer or an argument `a` is written in place three times (or as the case
says), and then returned, kept for the backward, both, or neither. The golden files show the chain,
the forward program with the slot, and what the backward reads. The steps are compared with NumPy,
those of Layers (tests/dy2st/compiled/test_chain_steps.py) with eager Paddle.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import executor
from ir import Slot, parse, verify
from ir.analysis.history import History, ended
from ir.autodiff import Gradient, differentiate
from ir.passes import functionalize, run
from ir.passes.slots import unmarked

KINDS = ("param", "buffer", "arg")

CHAIN = """
  %a2 = scale(%a, scale=0.5)                     : f64[3]  @ model.py:3
  copy_(%a, %a2, own=True)  @ model.py:3
  %a3 = add(%a, %x)                              : f64[3]  @ model.py:4
  copy_(%a, %a3, own=True)  @ model.py:4
  %a4 = tanh(%a)                                 : f64[3]  @ model.py:5
  copy_(%a, %a4, own=True)  @ model.py:5"""
READ_A = "  %y = multiply(%w, %a)                          : f64[3]  @ model.py:6"
READ_X = "  %y = multiply(%w, %x)                          : f64[3]  @ model.py:6"
READ_H = """  %h = exp(%w)                                   : f64[3]  @ model.py:6
  copy_(%a, %h)  @ model.py:7
  %y = multiply(%h, %x)                          : f64[3]  @ model.py:8"""
#: end -> what is read after the chain, and what is returned
ENDS = {
    "output": (READ_X, "%y, %a"),
    "backward": (READ_A, "%y"),
    "both": (READ_A, "%y, %a"),
    "written": (READ_H, "%y"),
}


@dataclass(frozen=True)
class Case:
    """slots: how many outputs are slots; sources: of what the backward reads, sorted.

    step: (x, w, state) -> the first result, and the slope of the sum of all but slots by w; it
    writes the state, as the program does.
    """

    text: str
    slots: int
    sources: tuple[str, ...]
    step: Callable


def inputs(kind: str = "buffer", more: str = "") -> str:
    return f'program p(%x: f64[3] arg "x", %w: f64[3] param "w", %a: f64[3] {kind} "a"{more}) {{'


def chained(x, w, state):
    (a,) = state
    a[...] = np.tanh(0.5 * a + x)
    return a


def chain_case(kind: str, end: str) -> Case:
    read, results = ENDS[end]
    text = f"{inputs(kind)}{CHAIN}\n{read}\n  return {results}\n}}"
    sources = {"output": ("input",), "written": ("input", "kept")}.get(end, ("slot",))

    def step(x, w, state):
        a = chained(x, w, state)
        if end == "written":
            a[...] = np.exp(w)
            return a * x, a * x
        read = x if end == "output" else a
        return w * read, read.copy()

    return Case(text, int(end in ("output", "both")), sources, step)


def meeting(x, w, state):
    a, b = state
    a += b
    b *= a
    return w * a * b, a * b


def ending_in_a_view(x, w, state):
    a = chained(x, w, state)
    return w[:2] * a[1:], np.array([a[1], a[2], 0.0])


def through_a_loop(x, w, state):
    (a,) = state
    for _ in range(4):
        a += x
    return w * a, a.copy()


def through_a_branch(x, w, state):
    (a,) = state
    a += x if x.sum() > 0 else -x
    return w * a, a.copy()


def broken_by_a_clone(x, w, state):
    (a,) = state
    a += x
    return w * a, a.copy()


def broken_by_set_value(x, w, state):
    state[0][...] = np.tanh(x)
    return w * state[0], state[0].copy()


def classic(x, w, state):
    (mean,) = state
    mean[...] = 0.9 * mean + 0.1 * x
    return w * (x - mean), x


CASES = {f"{kind}-{end}": chain_case(kind, end) for kind in KINDS for end in ENDS} | {
    "two chains that meet": Case(
        inputs(more=', %b: f64[3] param "b"')
        + """
  %a2 = add(%a, %b)                              : f64[3]  @ model.py:3
  copy_(%a, %a2, own=True)  @ model.py:3
  %b2 = multiply(%b, %a)                         : f64[3]  @ model.py:4
  copy_(%b, %b2, own=True)  @ model.py:4
  %p = multiply(%w, %a)                          : f64[3]  @ model.py:5
  %y = multiply(%p, %b)                          : f64[3]  @ model.py:5
  return %y
}""",
        0,
        ("slot", "slot"),
        meeting,
    ),
    "a chain that ends in a view": Case(
        inputs()
        + CHAIN
        + """
  %v = slice(%a, axis=0, start=1, length=2)      : f64[2]  @ model.py:6
  %u = slice(%w, axis=0, start=0, length=2)      : f64[2]  @ model.py:6
  %y = multiply(%u, %v)                          : f64[2]  @ model.py:6
  return %y
}""",
        0,
        ("slot",),
        ending_in_a_view,
    ),
    "a chain through a loop": Case(
        inputs()
        + """
  scan %t < 4 {                                  @ model.py:3
    const %a1 = %a                               : f64[3]
    const %x1 = %x                               : f64[3]
    body
      %n = add(%a1, %x1)                         : f64[3]  @ model.py:4
      copy_(%a1, %n, own=True)  @ model.py:4
  }
"""
        + READ_A
        + "\n  return %y, %a\n}",
        1,
        ("slot",),
        through_a_loop,
    ),
    "a chain through a branch": Case(
        inputs()
        + """
  %s = sum(%x)                                   : f64[]  @ model.py:3
  %zero = full(value=0.0, dtype=f64)             : f64[]
  %p = greater_than(%s, %zero)                   : bool[]  @ model.py:3
  cond %p {                                      @ model.py:3
    const %a1 = %a                               : f64[3]
    const %x1 = %x                               : f64[3]
    then
      %n = add(%a1, %x1)                         : f64[3]  @ model.py:4
      copy_(%a1, %n, own=True)  @ model.py:4
    else
      %m = subtract(%a1, %x1)                    : f64[3]  @ model.py:6
      copy_(%a1, %m, own=True)  @ model.py:6
  }
"""
        + READ_A
        + "\n  return %y\n}",
        0,
        ("slot",),
        through_a_branch,
    ),
    "broken by a clone": Case(
        inputs()
        + """
  %a2 = add(%a, %x)                              : f64[3]  @ model.py:3
  copy_(%a, %a2, own=True)  @ model.py:3
  %c = assign(%a)                                : f64[3]  @ model.py:4
  %y = multiply(%w, %c)                          : f64[3]  @ model.py:5
  return %y
}""",
        0,
        ("kept",),
        broken_by_a_clone,
    ),
    "broken by set_value": Case(
        inputs()
        + """
  %n = tanh(%x)                                  : f64[3]  @ model.py:3
  %c = assign(%n)                                : f64[3]  @ model.py:4
  copy_(%a, %c, moves=0)  @ model.py:4
"""
        + READ_A
        + "\n  return %y\n}",
        0,
        ("kept",),
        broken_by_set_value,
    ),
    "mean1, batch_norm_, mean2": Case(
        """
program p(%x: f64[3] arg "x", %w: f64[3] param "w", %mean1: f64[3] buffer "mean") {
  %a = scale(%mean1, scale=0.9)                  : f64[3]  @ model.py:3
  %b = scale(%x, scale=0.1)                      : f64[3]  @ model.py:3
  %mean2 = add(%a, %b)                           : f64[3]  @ model.py:3
  copy_(%mean1, %mean2, own=True)  @ model.py:3
  %d = subtract(%x, %mean1)                      : f64[3]  @ model.py:4
  %y = multiply(%w, %d)                          : f64[3]  @ model.py:5
  %s = multiply(%mean1, %w)                      : f64[3]  @ model.py:6
  return %y, %s
}""",
        0,
        ("kept", "slot"),
        classic,
    ),
}


def taken(text: str, mode: str = "exact") -> tuple[Gradient, list]:
    """The gradient of all outputs but slots with respect to w, and the chains."""
    captured = verify(parse(text))
    history = History(captured)
    functionalize(captured, history)
    found = history.chains()
    disabled = {"inplace_source"} if mode == "off" else set()
    program = run(captured, stop_before="expand", check=True, disabled=disabled)
    quiet = {q.index for q in found if q.quiet}
    slots = [k for k in range(len(program.inputs)) if k not in quiet]
    inputs = {i.value for i in captured.inputs}
    of = [k for k, v in enumerate(captured.outputs) if v not in inputs]
    g = differentiate(program, of, [1], slots={"exact": slots}.get(mode, mode == "by value"))
    for part in (g.forward, g.backward):
        assert str(parse(str(verify(part)))) == str(part)
    kept = {r.index if r.source == "slot" else r.copy_of for r in g.residuals}
    found = [ended(q, q.end == "output", q.index in kept) for q in found]
    return g, [q for q in found if q.written]


@pytest.mark.parametrize("name", CASES)
def test_the_chain_and_its_slots(name, golden):
    g, found = taken(CASES[name].text)
    lines = [*map(str, found), "", str(g.forward), "", str(g.backward), ""]
    lines += [f"the backward takes: {r.source} {r.name}" for r in g.residuals]
    assert "\n".join(lines) == golden


def test_reads_are_noted_where_nothing_is_written():
    text = (
        inputs()
        + """
  %v = slice(%a, axis=0, start=2, length=2, step=-1)  : f64[2]  @ model.py:2
  scan %t < 3 {                                  @ model.py:3
    seq %s = %a[t]                               : f64[]
    stack %o = %e axis 0                         : f64[3]
    body
      %e = exp(%s)                               : f64[]  @ model.py:4
  }
  %n = neg(%v)                                   : f64[2]  @ model.py:5
  return %n, %o
}"""
    )
    program = verify(parse(text))
    history = History(program)
    assert functionalize(program, history) is program
    (chain,) = (q for q in history.chains() if q.name == "a")
    assert str(chain).split("\n") == [
        "buffer a: only read",
        "  version 0: read by exp through [t], in a scan @ model.py:4",
        "  version 0: read by neg through [2:0:-1] @ model.py:5",
    ]


def train(case: Case, mode: str = "exact") -> None:
    """Three steps of SGD on the arrays themselves, each compared with NumPy.

    What no slot reads is overwritten between forward and backward: that must not matter.
    """
    g, _ = taken(case.text, mode)
    forward = executor.compile(run(g.forward, start_at="expand", check=True))
    backward = executor.compile(run(g.backward, start_at="expand", check=True))
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=3) for _ in g.forward.inputs]
    w, state = arrays[1].copy(), [a.copy() for a in arrays[2:]]
    free = arrays[2:] if "slot" not in case.sources else []
    for _ in range(3):
        arrays[0][...] = x = rng.normal(size=3)
        want, slope = case.step(x, w, state)
        outputs = forward(*arrays)
        np.testing.assert_allclose(outputs[0], want, rtol=1e-12)
        for a, b in zip(arrays[1:], [w, *state]):
            np.testing.assert_allclose(a, b, rtol=1e-12)
        assert sum(any(out is a for a in arrays) for out in outputs) == case.slots
        after = [a.copy() for a in free]
        for a in free:
            a[...] = 9.0
        memory = {"input": arrays, "slot": arrays, "output": outputs, "kept": outputs}
        residuals = [memory[r.source][r.index] for r in g.residuals]
        seeds = [np.ones_like(outputs[k]) for k, v in enumerate(g.forward.outputs)
                 if not isinstance(v, Slot)][: len(backward.inputs) - len(residuals)]  # fmt: skip
        (have,) = backward(*seeds, *residuals)
        np.testing.assert_allclose(have, slope, rtol=1e-12)
        for a, b in zip(free, after):
            a[...] = b
        w -= 0.1 * slope
        arrays[1] -= 0.1 * have
    assert tuple(sorted(r.source for r in g.residuals)) == case.sources


@pytest.mark.parametrize("name", CASES)
def test_three_steps_on_the_storage_itself(name):
    train(CASES[name])


def by_value(monkeypatch) -> None:
    """As if equal values were one tensor: no marks, and what is written back is the storage."""

    def sources(program):
        at = {i.value: k for k, i in enumerate(program.inputs)}
        return {v: at[target] for target, v in program.writes}

    functionalize = importlib.import_module("ir.passes.functionalization")
    monkeypatch.setattr(functionalize, "without_idle", lambda p: unmarked(p, ()))
    monkeypatch.setattr(importlib.import_module("ir.passes.slots"), "sources", sources)
    monkeypatch.setattr(importlib.import_module("ir.autodiff"), "sources", sources)
    passes = importlib.import_module("ir.passes")
    plain = [
        (passes.simplify if f is passes.simplify_apart else f, why) for f, why in passes.PIPELINE
    ]
    monkeypatch.setattr(passes, "PIPELINE", plain)


@pytest.mark.parametrize("name", CASES)
def test_the_steps_fail_without_the_pass(name, monkeypatch):
    """Either without slots - a second variable, more memory - or with slots for equal values."""
    case = CASES[name]
    if case.slots or "slot" in case.sources:
        with pytest.raises(AssertionError):
            train(case, "off")
        return
    by_value(monkeypatch)
    with pytest.raises(AssertionError):
        train(case, "by value")
