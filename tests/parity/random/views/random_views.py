"""Random eager programs on storages that are viewed and written, compared with eager Paddle.

A program has up to six storages to begin with: arguments, buffers, an attribute, a tensor of an
enclosing function, locals. Three calls are compared in what they return, in every tensor that the
caller has afterwards, in which of them share memory, and in the counters of versions.
Used by tests/parity/random/views/test_random_views.py and scripts/fuzz/views.py.
"""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.static import InputSpec

import dy2st
from tests import check
from tests.check import default_dtype, trained, weighted
from tests.parity.random.views.random_view_statements import Scope, Statement, Var, Writer

HEAD = """
def make():
    c = paddle.arange(4.0).reshape([4]) * 0.25 - 0.375

    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", paddle.cos(paddle.arange(12.0)).reshape([3, 4]))
            self.register_buffer("s", paddle.sin(paddle.arange(6.0)).reshape([2, 3]))
            self.register_buffer("k", paddle.arange(4))
            self.h = paddle.full([4], 0.5)
            self.n = 0

        def touch(self, q, by):
            q.scale_(by)
            return q

        def forward(self, x, y, n):
"""
SOURCES = [
    Var("y", (4,), False, True), Var("self.b", (3, 4), False, True),
    Var("self.s", (2, 3), False, True), Var("self.h", (4,), False), Var("c", (4,), False, True),
]  # fmt: skip
#: storages from outside are made to depend on the arguments before anything views them
ATTACHED = [
    "self.b.add_(x[:3] * 0.5)", "self.s.subtract_(x[:2, 1:])", "self.h = self.h + y",
    "c.add_(y * 0.25)", "q.add_(x[0, 1])",
]  # fmt: skip


@dataclass(frozen=True)
class Program:
    """The statements of a forward, and what it returns. `shared`: y is a row of x."""

    statements: tuple[Statement, ...]
    result: str
    shared: bool = False

    def text(self) -> str:
        lines = [q for s in self.statements for q in s.lines(12)]
        last = [f"            return {self.result}", "    return Net(), c", ""]
        return HEAD + "\n".join([*lines, *last])


def program(seed: int, named: bool = False, cuts: bool = True, size: int = 30) -> Program:
    """The program of this seed. `named`: x has a length that only the call knows."""
    w = Writer(seed, cuts)
    x = Var("x", ("N" if named else 3, 4), local=False, dense=True)
    chosen = sorted(w.random.sample(range(len(SOURCES)), 3))
    names = [x, *(SOURCES[k] for k in chosen)]
    if not any(q.name == "self.h" for q in names):
        names.append(SOURCES[3])
    s = Scope(names)
    s.line("p = x * 0.5")
    s.line(w.pick("q = y + 1.0", "q = y[1:] * 0.75", "q = paddle.zeros([2, 4])"))
    shape = {"q = y + ": (4,), "q = y[1:": (3,), "q = padd": (2, 4)}[s.out[-1].line[:8]]
    for text in [] if cuts else ATTACHED:
        s.line(text)
    s.names += [Var("p", x.shape, dense=True), Var("q", shape)]
    w.program(s, size)
    kept = [q.name for q in s.names]
    taken = w.random.sample(kept, min(len(kept), w.random.randint(2, 5)))
    result = f"[{', '.join(taken)}], {w.new(s, w.some(s))}, self.n"
    return Program(tuple(s.out), result, cuts and w.chance(0.15))


def build(p: Program, name: str) -> tuple[Any, Any]:
    """The Layer, and the tensor of the function around it."""
    text, file = p.text(), f"<random views {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space: dict[str, Any] = {"paddle": paddle, "nn": nn, "__name__": "random_views"}
    exec(compile(text, file, "exec"), space)
    return space["make"]()


# ---------------------------------------------------------------- comparing
class World:
    """A model with everything that its caller holds: one eager, one translated."""

    def __init__(self, p: Program, name: str, spec: Any = None, translate: bool = False) -> None:
        self.model, self.closure = build(p, name)
        self.shared = p.shared
        self.model.train() if len(name) % 2 else self.model.eval()
        self.old = [self.model.b[1], self.model.h, self.model.s.T]
        if translate:
            dy2st.to_static(self.model, input_spec=spec)
        self.args: list[Any] = []

    def call(self, values: Sequence[np.ndarray], n: int, keep: bool, seed: int) -> check.Observed:
        """`keep`: with the tensors of the call before."""
        if not keep:
            self.args = [paddle.to_tensor(q) for q in values]
            self.args = [self.args[0], self.args[0][1]] if self.shared else self.args
        return check.observe(self.model, [*self.args, n], self.held, seed)

    def held(self) -> list[Any]:
        m = self.model
        return [m.b, m.s, m.k, m.h, self.closure, *self.old]


def compare(p: Program, name: str, named: bool = False) -> str:
    """Three calls of `p`, eager and translated: "equal", "raises", or "copied" after a first call
    with equal values where a warning says that a result is a copy.

    Raises AssertionError where they differ; dy2st.SourceError where the program is refused.
    """
    with (
        default_dtype("float64"),
        paddle.no_grad(),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always", dy2st.CopyWarning)
        eager, static = World(p, name), World(p, name, spec_of(named), translate=True)
        for call in range(3):
            rng = np.random.default_rng([len(p.statements), call])
            values = [rng.normal(size=[3 + call * named, 4]), rng.normal(size=[4])]
            worlds = (eager, static)
            n, keep = 2 + (call == 2) * (len(p.statements) % 2), call == 2 and len(name) % 3 == 0
            want, have = (w.call(values, n, keep, call) for w in worlds)
            if check.both_raise(have, want):
                return "raises"
            if any(issubclass(w.category, dy2st.CopyWarning) for w in caught):
                equal(have, want, f"call {call}")
                return "copied"
            agree(f"call {call}", have, want)
    return "equal"


def spec_of(named: bool) -> Any:
    specs = [InputSpec([None, 4], "float64", "x"), InputSpec([4], "float64", "y"), None]
    return specs if named else None


def agree(what: str, have: check.Observed, want: check.Observed) -> None:
    """Results, everything that the caller holds, and which tensors share memory."""
    equal(have, want, what, objects=True, versions=True)
    one, two = (check.tensors([q.result, q.held]) for q in (have, want))
    for k, (a, b) in enumerate(zip(one, two)):
        for q in (a, b):
            q.scale_(0.5, bias=0.125) if q.dtype == paddle.float64 else q.add_(q * 0 + 1)
        same = np.allclose(flat(one), flat(two), 1e-12, 1e-12, equal_nan=True)
        assert same, f"{what}: after a write to tensor {k}: {one}, not {two}"


def equal(have: check.Observed, want: check.Observed, what: str, **options: bool) -> None:
    check.equal(have, want, what, **options, rtol=1e-12, atol=1e-12)


def flat(values: Sequence[Any]) -> np.ndarray:
    return np.concatenate([q.numpy().ravel() for q in values])


# ---------------------------------------------------------------- gradients
STEP = 1e-6


def gradients(p: Program, name: str, named: bool = False) -> str:
    """One step of training: eager's gradients, or the slopes where eager ignores shared memory.

    Gives "equal", "shared memory" where a warning says that eager is wrong, "needless warning"
    where it is not, "eager is wrong" where it is without sharing (writes by lists of indices),
    "eager cannot" where only the slopes can be compared, and "raises".
    """
    rng = np.random.default_rng(len(p.statements))
    arrays = [rng.normal(size=[3 + named, 4]), rng.normal(size=[4])]
    with default_dtype("float64"):
        try:
            want = derived(World(p, name), arrays)
        except Exception as e:
            must_raise(World(p, name, spec_of(named), translate=True), arrays, e)
            return "raises"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            have = derived(World(p, name, spec_of(named), translate=True), arrays, want.places)
        check.same(have.values, want.values, 1e-12, 1e-12, "result")
        warned = any(issubclass(w.category, dy2st.AliasWarning) for w in caught)
        right = want.grads is not None and near(have.grads, want.grads, 1e-9)
        if right and not warned:
            return "equal"
        slope = [slopes(p, name, arrays, k, want.places) for k in range(2)]
        found = [float((g * way(arrays[k])).sum()) for k, g in enumerate(have.grads)]
        np.testing.assert_allclose(found, slope, 2e-5, 2e-5, err_msg="slope")
        if warned:
            return "needless warning" if right else "shared memory"
        return "eager cannot" if want.grads is None else "eager is wrong"


@dataclass(frozen=True)
class Derived:
    """`places`: the results that require a gradient; `grads`: of x and y, None where eager refuses
    to run backwards."""

    values: list[Any]
    places: list[int]
    grads: Any


def derived(world: World, arrays: Sequence[np.ndarray], places: Any = None) -> Derived:
    leaves = [paddle.to_tensor(q, stop_gradient=False) for q in arrays]
    out = world.model(*(q * 1.0 for q in leaves), 2)
    found = trained(out)
    loss = weighted(out, places)
    if loss is not None:
        try:
            loss.backward()
        except RuntimeError:
            return Derived([q.detach() for q in check.leaves(out)[:-1]], found, None)
    grads = [np.zeros(q.shape) if q.grad is None else q.grad.numpy() for q in leaves]
    return Derived([q.detach() for q in check.leaves(out)[:-1]], found, grads)


def must_raise(world: World, arrays: Sequence[np.ndarray], error: Exception) -> None:
    """The step raises, as eager's did with `error`."""
    try:
        derived(world, arrays)
    except Exception:
        return
    raise AssertionError(f"eager raises {error!r}")


def near(have: Any, want: Any, bound: float) -> bool:
    return all(np.allclose(a, b, bound, bound) for a, b in zip(have, want, strict=True))


def way(array: np.ndarray) -> np.ndarray:
    """A direction."""
    return np.cos(np.arange(array.size) * 1.3 + 1.0).reshape(array.shape)


def slopes(p: Program, name: str, arrays: Sequence[np.ndarray], k: int, places: Any) -> float:
    """The slope of the weighted results along `way`, from eager values alone."""
    ends = []
    for step in (STEP, -STEP):
        moved = [q + (step * way(q) if i == k else 0.0) for i, q in enumerate(arrays)]
        with paddle.no_grad():
            total = weighted(World(p, name).model(*map(paddle.to_tensor, moved), 2), places)
        ends.append(0.0 if total is None else float(total))
    return (ends[0] - ends[1]) / (2 * STEP)


# ---------------------------------------------------------------- shrinking
def smaller(statements: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    """The same statements with one left out, or with one replaced by its block."""
    for k, s in enumerate(statements):
        before, after = statements[:k], statements[k + 1 :]
        if not s.fixed:
            alone = s.line == "else:" or not after or after[0].line != "else:"
            yield (*before, *(after if alone else after[1:]))
        if s.body is None:
            continue
        if s.line.startswith("if") and not (after and after[0].line == "else:"):
            yield (*before, *s.body, *after)
        for body in smaller(s.body):
            yield (*before, Statement(s.line, body, s.fixed), *after)


def shrink(p: Program, fails: Any) -> Program:
    """A program from which no statement can be taken so that it still fails."""
    found = True
    while found:
        found = False
        for statements in smaller(p.statements):
            q = replace(p, statements=statements)
            if fails(q):
                p, found = q, True
                break
    return p
