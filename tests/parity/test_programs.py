"""The table of programs (`programs/`): converted, and translated with fixed and named sizes.

Each equals eager in results, written arguments, the state of the Layer and of the generator, for
three calls. Loops stay loops: the program is the same for T = 33.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import types
import warnings
import zlib
from typing import Any

import paddle
import pytest

import dy2st
import dy2st.api
import dy2st.runtime.control
from dy2st.compiled import cache
from dy2st.convert import convert
from tests import check
from tests.dy2st.convert.plain_runtime import Runtime
from tests.parity.programs import PROGRAMS

LENGTHS = (7, 9, 13)
NIGHTLY = (2, 33)
NAMED = ((2, 7), (1, 33), (2, 1), (2, 0), (3, 2))
BOUNDS = {"rtol": 2e-5, "atol": 2e-5}
ADDED = ("forward", "program", "report", "code")
pytestmark = pytest.mark.sampled


def rows(keep=lambda p: True):
    """The programs, each with the mark of its row."""
    return [row(p, p.name) for p in PROGRAMS.values() if keep(p)]


def row(p, *values, nightly=False):
    marks = [pytest.mark.nightly] * nightly + [pytest.mark.quick] * p.quick
    return pytest.param(*values, marks=marks, id="-".join(map(str, values)))


def each_length():
    """(name, T): none or one, and an odd number of iterations; T is None where a program has none.
    Which of the small ones changes from program to program; the other one is left to the night."""
    for k, (name, p) in enumerate(PROGRAMS.items()):
        lengths = (0, 1, length(p), *NIGHTLY) if "T" in p.sizes else (None,)
        rare = {*NIGHTLY, k % 2} if p.least == 0 and not p.quick else NIGHTLY
        for steps in [t for t in lengths if t is None or t >= p.least]:
            yield row(p, name, steps, nightly=steps in rare)


def length(p):
    """Iterations of the program's loops where they run more than once: its own, in every run."""
    return LENGTHS[zlib.crc32(p.name.encode()) % len(LENGTHS)]


# ---------------------------------------------------------------- what is compared
def state(f: Any) -> Any:
    """Parameters, buffers and plain attributes of a Layer, of the Layers and objects in it."""
    if not isinstance(f, paddle.nn.Layer):
        return {}
    out = dict(check.buffers(f))
    for prefix, layer in f.named_sublayers(include_self=True):
        for name, value in vars(layer).items():
            if name[0] != "_" and name not in ADDED and not isinstance(value, types.MethodType):
                out[f"{prefix}.{name}"] = dict(vars(value)) if ours(type(value)) else value
    return out


def compare(new, eager, p, sizes, call):
    """One call of each; the eager program to go on with."""
    before = copy.deepcopy(eager) if isinstance(eager, paddle.nn.Layer) else eager
    with copying(p):
        want, have = (
            check.observe(f, p.args(sizes, call), lambda f=f: state(f), 7 + call)
            for f in (eager, new)
        )
    where = f"{sizes}, call {call}"
    if want.error is not None:
        alike = type(have.error) is type(want.error) or isinstance(have.error, dy2st.SourceError)
        assert alike, (where, want.error, have.error)
        return before
    if have.error is not None:
        raise have.error
    check.equal(have, want, where, objects=not p.copies, **BOUNDS)
    return eager


@contextlib.contextmanager
def copying(p):
    """A warning says so where a result is a copy that the table knows of."""
    with warnings.catch_warnings():
        if p.copies:
            warnings.simplefilter("ignore", dy2st.CopyWarning)
        yield


def sizes_of(steps):
    return {"B": 2, "T": 7 if steps is None else steps}


# ---------------------------------------------------------------- converted code without a trace
def converter(plain):
    """Converts the functions and Layers of the table, and through the runtime all they call."""
    done = {}

    def of(f):
        if isinstance(f, paddle.nn.Layer) and ours(type(f)):
            return of(f.forward)
        if isinstance(f, types.MethodType) and ours(f.__func__):
            return types.MethodType(of(f.__func__), f.__self__)
        if not isinstance(f, types.FunctionType) or not ours(f) or hasattr(f, "__dy2st_tree__"):
            return f
        if f not in done:
            done[f] = convert(f, runtime)
        return done[f]

    runtime = Runtime(of) if plain else types.SimpleNamespace(**vars(dy2st.runtime))
    runtime.fn = of
    return of


def ours(f):
    return (getattr(f, "__module__", None) or "").startswith("tests.parity.programs.")


@pytest.mark.quick(
    "forever_until_a_counter-plain",
    "several_variables-plain",
    "conditional_expression_in_a_call-plain",
    "append_then_concat-runtime",
    "append_before_and_after-runtime",
    "static_class_and_property-runtime",
    "flag_across_iterations-plain",
    "range_backwards-runtime",
)
@pytest.mark.paired
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "runtime"])
@pytest.mark.parametrize("name", rows())
def test_converted_without_a_trace(name, plain):
    p = PROGRAMS[name]
    new, eager = p.make(), p.make()
    of = converter(plain)
    if isinstance(new, paddle.nn.Layer):
        object.__setattr__(new, "forward", of(new.forward))
    else:
        new = of(new)
    for call in range(3):
        eager = compare(new, eager, p, sizes_of((7, 2, p.least)[call]), call)


# ---------------------------------------------------------------- translated
@pytest.mark.quick(
    "range_backwards-0",
    "several_variables-None",
    "length_of_a_filled_list-0",
    "counter_in_steps_of_two",
    "windows_in_chunks",
    "one_longer_than_the_input",
)
@pytest.mark.parametrize(("name", "steps"), list(each_length()))
def test_fixed_sizes(name, steps):
    p = PROGRAMS[name]
    new, eager = dy2st.to_static(p.make()), p.make()
    if steps in (None, length(p)):
        stays_a_loop(new, p, steps)
    for call in range(p.calls):
        eager = compare(new, eager, p, sizes_of(steps), call)


def stays_a_loop(new, p, steps):
    """Unless the table says why not: the program is the same for `steps` and for 33 iterations."""
    unrolled, lines = loops_unrolled(new, p, steps)
    assert not unrolled or p.unrolled, unrolled
    if "T" not in p.sizes:
        assert unrolled or not p.unrolled, "it is not unrolled"
        return
    with check.without_code():
        more_unrolled, more_lines = loops_unrolled(dy2st.to_static(p.make()), p, 33)
    grows = bool(unrolled or more_unrolled) or lines != more_lines
    assert grows == bool(p.unrolled), (unrolled, more_unrolled, lines, more_lines)


def loops_unrolled(new, p, steps):
    """The lines of the report about loops that were unrolled; the number of the program's lines."""
    args = p.args(sizes_of(steps), 0)
    with copying(p):
        report, program = dy2st.report(new, *args), dy2st.program(new, *args)
    unrolled = [str(q) for q in report.loops if q.kind == "unrolled"]
    check.few_traces(report)
    return unrolled, len(str(program).splitlines())


@pytest.mark.quick("range_backwards", "masked_write")
@pytest.mark.parametrize("name", rows(lambda p: p.sizes and not p.fixed))
def test_named_sizes(name):
    p = PROGRAMS[name]
    new, eager = dy2st.to_static(p.make(), p.spec()), p.make()
    for call, (b, t) in enumerate(NAMED):
        eager = compare(new, eager, p, {"B": b, "T": max(t, p.least)}, call)


@pytest.mark.parametrize("name", rows(lambda p: p.fixed))
def test_sizes_that_cannot_be_named_are_refused(name):
    p = PROGRAMS[name]
    with pytest.raises(dy2st.SourceError):
        dy2st.to_static(p.make(), p.spec())(*p.args(sizes_of(7), 0))


@pytest.mark.parametrize(
    "name", ["CountsCalls", "counter_in_a_closure", "python_numbers_that_vary"]
)
def test_a_number_that_varies_becomes_an_input(name, monkeypatch):
    """After its second value: it is not translated again for each one."""
    translate, made = cache.translate, []

    def counted(*args):
        made.append(translate(*args))
        return made[-1]

    monkeypatch.setattr(cache, "translate", counted)
    p = PROGRAMS[name]
    new, eager = dy2st.to_static(p.make()), p.make()
    for call in range(6):
        eager = compare(new, eager, p, sizes_of(7), call)
    assert len(made) <= 3


# ---------------------------------------------------------------- the table itself
def test_the_table_is_large():
    assert len(PROGRAMS) >= 130


@pytest.mark.parametrize("name", rows(lambda p: p.name != "empty_loop"))
def test_the_arguments_reach_every_line(name):
    """Both sides of each branch, a loop that ends early and one that does not."""
    p = PROGRAMS[name]
    seen: set[tuple[types.CodeType, int]] = set()

    def watch(frame, event, arg):
        seen.add((frame.f_code, frame.f_lineno))
        return watch if "programs" in frame.f_code.co_filename else None

    sys.settrace(watch)
    try:
        f = p.make()
        for call in range(p.calls):
            for steps in (7, 2) if "T" in p.sizes else (7,):
                check.observe(f, p.args(sizes_of(steps), call), seed=7)
    finally:
        sys.settrace(None)
    want = {(code, line) for code in codes(p.code) for line in lines_of(code)}
    assert not want - seen, sorted(line for _, line in want - seen)


def codes(code):
    """The code of a function and of those in it."""
    inner = [q for q in code.co_consts if isinstance(q, types.CodeType)]
    return [code, *(q for c in inner for q in codes(c))]


def lines_of(code):
    """The lines that run when the code runs: not its first, and no annotations of classes."""
    return {line for _, _, line in code.co_lines() if line and line > code.co_firstlineno}
