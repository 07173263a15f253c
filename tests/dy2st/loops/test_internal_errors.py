"""A defect of dy2st is raised as such: it neither unrolls a loop nor becomes a refusal, a foreign
op or an error for which a handler of the user's code waits. An error of the user is no defect."""

from __future__ import annotations

import builtins
import collections
import copy
import dataclasses
import decimal
import enum
import fractions
import functools
import gc
import inspect
import itertools
import json
import math
import operator
import random
import re
import statistics
import string
import sys
import textwrap
import threading
import types
from collections import defaultdict
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

import dy2st
from dy2st.branches import branch
from dy2st.branches.merge import BranchMerge
from dy2st.capture.adapters import ADAPTERS, nn
from dy2st.capture.foreign import probe
from dy2st.capture.indexing import items
from dy2st.compiled import arguments
from dy2st.loops.body import BodyTrace
from dy2st.loops.ports import LoopPorts
from dy2st.runtime import access
from dy2st.state.arrays import FakeArray
from dy2st.state.containers import constants
from dy2st.trace import emitter, fake_tensor
from dy2st.trace.scalar import RuntimeScalar
from dy2st.trace.symint import SymInt
from dy2st.trace.trace import current
from dy2st.trace.user_stack import is_own_file
from executor.cpu import legalize
from executor.lowering import blocks
from executor.plan import arena
from ir import autodiff
from ir.loc import _ACTING
from ir.passes import functionalize, to_seq

#: statements that Python stops, by the error
FAULTS = {
    "KeyError": "{}['planted']", "IndexError": "[][0]", "AttributeError": "(0).planted",
    "ValueError": "int('planted')", "TypeError": "0 + 'planted'", "ZeroDivisionError": "1 // 0",
    "AssertionError": "assert False", "NameError": "planted",
}  # fmt: skip
NOTE = "This is a defect of dy2st, not of the translated function."
#: so many functions of each folder fail in turn
MOST = 2


def running_sum(x):
    h = paddle.zeros([2])
    for t in range(4):
        h = h + x[t]
    return h


@pytest.mark.parametrize("error", [AssertionError, NameError])
def test_an_assertion_in_a_body_trace_is_raised(monkeypatch, error):
    source = f"def commit(self, *args):\n    raise {error.__name__}('the ports do not fit')"
    scope: dict = {}
    exec(compile(source, sys.modules[BodyTrace.__module__].__file__, "exec"), scope)
    monkeypatch.setattr(BodyTrace, "commit", scope["commit"])
    f = dy2st.to_static(running_sum)
    with pytest.raises(error, match="the ports do not fit") as found:
        f(paddle.ones([4, 2]))
    if sys.version_info >= (3, 11):
        assert found.value.__notes__ == [NOTE]


@pytest.mark.parametrize(
    "statement, error", [("{}['t']", KeyError), ("self.no_field", AttributeError)]
)
def test_a_failing_expression_in_a_body_trace_is_raised(monkeypatch, statement, error):
    scope: dict = {}
    source = f"def commit(self, *args):\n    return {statement}"
    exec(compile(source, sys.modules[BodyTrace.__module__].__file__, "exec"), scope)
    monkeypatch.setattr(BodyTrace, "commit", scope["commit"])
    with pytest.raises(error):
        dy2st.to_static(running_sum)(paddle.ones([4, 2]))


def test_the_function_works_after_a_defect(monkeypatch):
    f = dy2st.to_static(running_sum)
    with monkeypatch.context() as patch:
        scope: dict = {}
        source = "def commit(self, *args):\n    assert False, 'broken'"
        exec(compile(source, sys.modules[BodyTrace.__module__].__file__, "exec"), scope)
        patch.setattr(BodyTrace, "commit", scope["commit"])
        with pytest.raises(AssertionError, match="broken"):
            f(paddle.ones([4, 2]))
    assert f(paddle.ones([4, 2])).tolist() == [4.0, 4.0]


def test_a_defect_in_the_probe_of_a_foreign_op_is_no_refusal(monkeypatch):
    source = "def measure(self):\n    assert False, 'the probe is broken'"
    scope: dict = {}
    exec(compile(source, probe.__file__, "exec"), scope)
    monkeypatch.setattr(probe.Probe, "measure", scope["measure"])
    f = dy2st.to_static(lambda x: paddle.lgamma(x))
    with pytest.raises(AssertionError, match="the probe is broken"):
        f(paddle.ones([3]))


def test_an_error_of_the_user_in_a_body_unrolls_and_is_raised_as_in_eager():
    def f(x):
        names = ["a", "b"]
        h = x[0]
        for t in range(4):
            h = h + {"a": 1.0, "b": 2.0}[names[t]]
        return h

    x = paddle.ones([4, 2])
    with pytest.raises(IndexError) as eager:
        f(x)
    with pytest.raises(IndexError) as static:
        dy2st.to_static(f)(x)
    assert str(static.value) == str(eager.value)


def test_assert_of_the_user_is_no_defect():
    def f(x):
        for t in range(3):
            assert t < 2, "too far"
            x = x + 1
        return x

    with pytest.raises(AssertionError, match="too far") as found:
        dy2st.to_static(f)(paddle.ones([2]))
    assert not any("dy2st" in q for q in getattr(found.value, "__notes__", ()))


# ---------------------------------------------------------------- faults in many places
class Cell(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.ih, self.hh = paddle.nn.Linear(3, 8), paddle.nn.Linear(4, 8)
        self.register_buffer("steps", paddle.zeros([]))
        self.last = None

    def forward(self, x, h):
        a, b = paddle.split(self.ih(x) + self.hh(h), 2, axis=-1)
        self.steps.add_(paddle.ones([]))
        self.last = a
        return F.sigmoid(a) * h + paddle.tanh(b)


def decoder(cell, x):
    h, best, ys, total = paddle.zeros([2, 4]), None, [], 0.0
    cache, named = paddle.zeros([5, 2, 4]), {"sum": paddle.zeros([2, 4])}
    for t in range(5):
        h = cell(x[:, t], h)
        cache[t] = h
        ys.append(h[:, :2])
        total = total + float(h.sum())
        if h.mean() > 0.5:
            named["sum"] = named["sum"] + h * sum(q for q in (1.0, 2.0))
        weights = F.softmax(cache[: t + 1].sum(axis=-1), axis=0)
        best = h if best is None else paddle.maximum(best, h)
    return paddle.stack(ys), total, weights, named["sum"], best


def translated():
    return dy2st.to_static(decoder).entry(Cell(), paddle.ones([2, 5, 3]))


def called_in_tentative_traces():
    """The functions of ours that run while a body or a branch is traced, by folder."""
    codes = {}
    translated()  # what is made once has been made

    def note(frame, event, arg):
        code = frame.f_code
        if event == "call" and code not in codes and is_own_file(code.co_filename):
            codes[code] = (trace := current()) is not None and trace.tentative

    sys.setprofile(note)
    try:
        translated()
    finally:
        sys.setprofile(None)
    functions, folders = defaultdict(list), defaultdict(list)
    gc.unfreeze()  # tests/conftest.py
    objects = gc.get_objects()
    gc.freeze()
    for q in objects:
        if isinstance(q, types.FunctionType) and codes.get(q.__code__):
            functions[q.__code__].append(q)
    for code, found in functions.items():
        acting = any(a <= code.co_firstlineno <= b for a, b in _ACTING.get(code.co_filename, ()))
        if not acting and "<locals>" not in found[0].__qualname__:
            folders[str(Path(code.co_filename).parent)].append(found)
    return folders


def planted(code, error):
    """The code of a function that fails in place of that of another one."""
    scope = {}
    text = f"def f(*args, **kwargs):\n    {FAULTS[error]}"
    exec(compile(text, code.co_filename, "exec"), scope)
    kept = {"co_freevars": code.co_freevars, "co_firstlineno": code.co_firstlineno}
    return scope["f"].__code__.replace(co_name=code.co_name, **kept)


def outcome(functions, error, call=translated):
    """What a translation raises where these functions, of one code, have a fault."""
    code = functions[0].__code__
    fails = planted(code, error)
    try:
        for f in functions:
            f.__code__ = fails
        call()
    except BaseException as found:
        return found
    finally:
        for f in functions:
            f.__code__ = code


@pytest.mark.slow
def test_faults_in_tentative_traces_are_raised_as_such():
    wrong, errors, folders = [], 0, called_in_tentative_traces()
    assert len(folders) >= 12
    for found in folders.values():
        found.sort(key=lambda q: (q[0].__code__.co_filename, q[0].__code__.co_firstlineno))
        for functions in found[:: -(-len(found) // MOST)]:
            error = list(FAULTS)[errors % len(FAULTS)]
            errors += 1
            raised = outcome(functions, error)
            if type(raised) is not getattr(builtins, error) or not is_noted(raised):
                wrong.append((functions[0].__code__, error, raised))
    assert wrong == [] and errors > 24


#: one function of each stage of a translation, what runs tentatively first
STAGES = {
    "adapter": nn.softmax, "item": items.checked, "emitter": emitter.lift,
    "input": fake_tensor.type_of, "number": arguments.number_tensor,
    "loop": BodyTrace.commit, "ports": LoopPorts.settle, "branch": branch.trace_branch,
    "merge": BranchMerge.joined, "attribute": access.load_attr,
    "capture": functionalize, "pass": to_seq, "gradient": autodiff.differentiate,
    "lowering": blocks.lower_block, "plan": arena.layout, "kernels": legalize.legalize,
}  # fmt: skip


WEIGHT = paddle.ones([2])
WEIGHT.stop_gradient = False


def stages(x, scale):
    h, ys = paddle.zeros([2]), []
    for t in range(4):
        h = F.softmax(h * WEIGHT + x[t]) * scale
        if h.sum() > 0.5:
            h = h * getattr(paddle, "e", 2.0)
        ys.append(h)
    return paddle.stack(ys)


@pytest.mark.parametrize("stage", STAGES)
def test_a_defect_in_any_stage_is_raised_as_such(stage):
    """The number varies between calls: the second is translated with it as an input."""
    wrong, x = [], paddle.ones([4, 2])
    for error in FAULTS:
        f = dy2st.to_static(stages)
        if stage == "number":
            f(x, 1.0)
        raised = outcome([STAGES[stage]], error, functools.partial(f, x, 2.0))
        if type(raised) is not getattr(builtins, error) or not is_noted(raised):
            wrong.append((error, raised))
    assert wrong == []


@pytest.mark.parametrize("error", FAULTS)
def test_a_defect_in_a_guard_is_no_change_of_the_users_state(error):
    betas = np.ones(3)
    f = dy2st.to_static(lambda x: x * float(betas[0]))
    raised = outcome([constants.same_array], error, functools.partial(f, paddle.ones([2])))
    assert type(raised) is getattr(builtins, error), raised


@pytest.mark.parametrize("place", ["adapter", "item"])
def test_a_handler_of_the_user_does_not_catch_a_defect(monkeypatch, place):
    scope: dict = {}
    exec(compile("def fails(*args, **kwargs):\n    {}['planted']", access.__file__, "exec"), scope)
    monkeypatch.setitem(ADAPTERS, "tanh", scope["fails"])
    monkeypatch.setattr(access, "check_strong", scope["fails"])

    def f(x, xs):
        try:
            return paddle.tanh(x) if place == "adapter" else x * xs["a"]
        except Exception:
            return x

    with pytest.raises(KeyError, match="planted") as found:
        dy2st.to_static(f)(paddle.ones([3]), {"a": 2.0})
    assert is_noted(found.value)


@pytest.mark.parametrize(
    "kind, name, asked",
    [
        (SymInt, "loops", "self.planted"),
        (RuntimeScalar, "kind", "(0).planted"),
        (FakeArray, "ndim", "self.planted"),
    ],
)
def test_a_defect_in_a_property_is_no_missing_attribute(monkeypatch, kind, name, asked):
    scope: dict = {}
    file = sys.modules[kind.__module__].__file__
    exec(compile(f"def fails(self):\n    return {asked}", file, "exec"), scope)
    monkeypatch.setattr(kind, name, property(scope["fails"]))

    def f(x):
        for t in range(9):
            x = x + float(x.sum()) * t
        return x * paddle.to_tensor(x.numpy()[:, None])[:, 0]

    with pytest.raises(AttributeError, match="planted") as found:
        dy2st.to_static(f)(paddle.ones([3]))
    assert is_noted(found.value)


def is_noted(error):
    return sys.version_info < (3, 11) or NOTE in getattr(error, "__notes__", ())


# ---------------------------------------------------------------- errors of the user
#: what Python and Paddle refuse, in code that dy2st takes over
REFUSED = """
    {}['a'] | [1][5] | (1,)[5] | [].pop() | {}.popitem() | int('x') | 1 // 0 | 'a' + 1 | None.x
    len(3) | iter(3) | next(iter([])) | max([]) | sum(['a']) | sorted([1, 'a']) | list(5)
    set([[]]) | dict([1]) | enumerate(5) | zip(3) | map(3) | round('a') | math.sqrt(-1)
    '%d' % 'a' | range('a') | f'{1:zz}' | 'abc'.index('z') | isinstance(1, 2) | setattr(3, 'q', 1)
    list(itertools.islice([1], -1)) | np.ones(3)[5] | bool(np.ones(2)) | x['a'] | x[7] | x.nothing
    x.reshape('a') | x.reshape([7]) | x + paddle.ones([9]) | x.sum('a', 'b', 'c', 'd', 'e')
    x.sum(nothing=1) | x.sum(axis='a') | x.transpose('ab') | paddle.concat([x, 3]) | paddle.tanh(3)
    paddle.zeros('a') | paddle.matmul(x) | F.linear(x, 'a') | paddle.flip(x, 9)
    paddle.unbind(x, 9) | Linear() | Linear('a') | ys[99] | ys.index(55)
    ys.extend(3) | ys.remove('q') | functools.reduce(max, []) | x.unsqueeze(9)
    t // 0 | t + 'a' | t['a'] | divmod(t, 0) | [1][t + 5] | float(h) / 0 | int(h) % 0 | h.nothing
    t.nothing | t() | t < 'a' | int(h) << -1
    random.choice([]) | fractions.Fraction(1, 0) | json.loads('q') | re.compile('(')
    inspect.signature(3) | statistics.mean([]) | Mode(7) | copy.copy(uncopied)
    np.linalg.inv(np.zeros([2, 2])) | np.stack([]) | np.reshape(np.ones(3), [7])
    collections.Counter(3) | operator.attrgetter(3) | decimal.Decimal('q') | textwrap.fill(3)
    copy.deepcopy(lock) | copy.copy(f.__get__) | dataclasses.replace(3)
    dataclasses.replace(one, b=2) | np.reshape(x.numpy(), [7]) | x.numpy()[7]
    np.add(x.numpy(), np.ones(9)) | x.numpy().reshape(7)
    random.sample([1], 3) | random.seed([]) | paddle.to_tensor('q')
    collections.OrderedDict(3) | string.Template('$a').substitute() | next(t for t in [])
"""
LIBRARY = (random, fractions, json, re, inspect, statistics, copy, collections, operator, decimal,
           textwrap, string, dataclasses)  # fmt: skip


@dataclasses.dataclass
class One:
    a: int


class Uncopied:
    def __copy__(self):
        raise TypeError("no copies")


LOOP = """
def f(x, ys):
    h = x.sum()
    for t in range(3):
        h = h + 1
        z = {}
    return h
"""


def test_errors_of_the_user_are_those_of_eager(tmp_path):
    names = {"paddle": paddle, "F": F, "math": math, "np": np, "itertools": itertools,
             "functools": functools, "Linear": paddle.nn.Linear(4, 4),
             "Mode": enum.Enum("Mode", "A B"), "uncopied": Uncopied(),
             "lock": threading.Lock(), "one": One(1)}  # fmt: skip
    names |= {q.__name__: q for q in LIBRARY}
    wrong = []
    for k, text in enumerate(re.split(r" \| |\n +", REFUSED.strip())):
        file = tmp_path / f"f{k}.py"
        file.write_text(LOOP.format(text))
        exec(compile(LOOP.format(text), str(file), "exec"), names)
        f = names["f"]
        eager, found = (raised(q, paddle.ones([4])) for q in (f, dy2st.to_static(f)))
        if not isinstance(found, type(eager)) or NOTE in getattr(found, "__notes__", ()):
            wrong.append((text, eager, found))
    assert wrong == []


def raised(f, x):
    try:
        f(x, [1, 2])
    except Exception as error:
        return error
    return None
