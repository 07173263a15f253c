"""Compiled functions: programs share those with equal text, and keep what they call alive."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict
from threading import Barrier, Thread
from weakref import WeakValueDictionary

import numpy as np
import pytest

import executor
import ir
from executor.cpu import jit

X = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)


def program(row, size="3,4"):
    """Two kernels: `row`, and a sum along the last axis."""
    n = size.split(",")[0]
    return ir.parse(
        f'program p(%x: f32[{size}] arg "x") {{\n'
        f"  %y = {row}(%x)  : f32[{size}]\n"
        f"  %z = sum(%y, axes=[1])  : f32[{n}]\n"
        "  return %y, %z\n}"
    )


def functions(executable):
    """All functions of a compiled program."""
    todo, found = [executable.native.code], {}
    while todo:
        code = todo.pop()
        found[id(code)] = code
        todo += code.calls
    return list(found.values())


def check(executable, row, x=X):
    y, z = executable(x)
    want = row(x.astype(np.float64))
    np.testing.assert_allclose(y, want, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(z, want.sum(1), rtol=2e-6, atol=2e-6)


@pytest.fixture
def forgetful(monkeypatch, young):
    """No function is known from earlier tests, and none outlives the programs that call it."""
    monkeypatch.setattr(jit, "KEPT", 0)
    monkeypatch.setattr(jit, "_KNOWN", WeakValueDictionary())
    monkeypatch.setattr(jit, "_RECENT", OrderedDict())


@pytest.mark.slow
def test_programs_share_their_kernels(forgetful):
    one, two = (executor.compile(program(row)) for row in ("tanh", "exp"))
    again = executor.compile(program("tanh"))
    shared = {q.address for q in functions(one)} & {q.address for q in functions(two)}
    assert shared and len(shared) < len(functions(one))
    assert again.native.code is one.native.code
    check(one, np.tanh)
    check(two, np.exp)
    named = executor.compile(program("tanh", "N,M"))
    check(named, np.tanh)
    check(named, np.tanh, X[:2, :3].copy())


SUMS = """program p(%x: f32[T,4] arg "x", %h: f32[4] arg "h") {
  scan %t < T {
    seq   %row = %x[t]                           : f32[4]
    carry %a = %h then %b last %last             : f32[4]
    body
      %b = add(%a, %row)                         : f32[4]
  }
  return %last
}"""


@pytest.mark.parametrize("length, level", [("T", 2), (5, 0), (5000, 2)])
def test_loops_of_few_launches_are_compiled_the_fast_way(length, level, forgetful, monkeypatch):
    levels, make = [], jit.machine_code
    monkeypatch.setattr(jit, "machine_code", lambda *q: levels.append(q[2]) or make(*q))
    known = executor.compile(ir.parse(SUMS.replace("T", "7")))
    levels.clear()
    run = executor.compile(ir.parse(SUMS.replace("T", str(length))))
    assert levels == [level] and known
    x = np.random.default_rng(0).normal(size=(6 if length == "T" else length, 4)).astype("f")
    (last,) = run(x, X[0])
    np.testing.assert_allclose(last, X[0] + x.astype(np.float64).sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_program_keeps_what_it_shares_and_nothing_else(forgetful):
    one = executor.compile(program("tanh"))
    two = executor.compile(program("exp"))
    engines = [weakref.ref(q) for q in {id(c.engine): c.engine for c in functions(one)}.values()]
    own = weakref.ref(one.native.code)
    del one
    gc.collect()
    assert own() is None and engines[0]() is not None
    check(two, np.exp)
    del two
    gc.collect()
    assert [q() for q in engines] == [None]


@pytest.mark.slow
def test_functions_are_kept_for_later_programs(forgetful, monkeypatch):
    monkeypatch.setattr(jit, "KEPT", 3)
    one = executor.compile(program("tanh"))
    codes = [weakref.ref(q) for q in functions(one)]
    del one
    gc.collect()
    assert 0 < sum(q() is not None for q in codes) and len(jit._RECENT) == 3
    check(executor.compile(program("tanh")), np.tanh)
    jit._RECENT.clear()
    gc.collect()
    assert all(q() is None for q in codes)


@pytest.mark.slow
def test_targets_share_nothing(forgetful, monkeypatch):
    one = executor.compile(program("tanh"))
    monkeypatch.setenv("DY2ST_CPU", "generic")
    two = executor.compile(program("tanh"))
    assert not {q.address for q in functions(one)} & {q.address for q in functions(two)}
    check(one, np.tanh)
    check(two, np.tanh)


@pytest.mark.slow
def test_threads_may_compile_the_same_at_once(forgetful):
    rows = {"tanh": np.tanh, "exp": np.exp, "sin": np.sin, "cos": np.cos}
    together, failed = Barrier(len(rows)), []

    def work(name):
        try:
            together.wait(30)
            for _ in range(3):
                check(executor.compile(program(name)), rows[name])
        except BaseException as e:
            failed.append(e)

    threads = [Thread(target=work, args=[name]) for name in rows]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert failed == []


def test_a_long_program_is_compiled_in_parts(monkeypatch):
    monkeypatch.setattr(jit, "MODULE", 2)
    monkeypatch.setattr(jit, "_KNOWN", WeakValueDictionary())
    text = "".join(
        f"  %y{k} = {row}(%x)  : f32[3,4]\n" for k, row in enumerate(("tanh", "exp", "neg"))
    )
    text += "".join(f"  %z{k} = sum(%y{k}, axes=[{k % 2}])  : f32[{4 - k % 2}]\n" for k in range(3))
    program = ir.parse(f'program p(%x: f32[3,4] arg "x") {{\n{text}  return %z0, %z1, %z2\n}}')
    parts = []
    make = jit.machine_code
    monkeypatch.setattr(jit, "machine_code", lambda *key: parts.append(key) or make(*key))
    got = executor.compile(program)(X)
    assert len(parts) > 2
    for z, want in zip(got, (np.tanh(X).sum(0), np.exp(X).sum(1), -X.sum(0))):
        np.testing.assert_allclose(z, want, 1e-5, 1e-5)
