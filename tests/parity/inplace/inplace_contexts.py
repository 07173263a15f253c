"""One in-place call in every surrounding, translated and compared with eager Paddle.

A `Case` is a call on `y` with its operands. A context is the text of a function around that call:
alone, in a branch on data, in loops, on views, on a buffer, on an argument. `compare` makes the
function of a case and a context, translates it and calls both three times; arguments and buffers
carry their state on. Compared are results, dtypes, shapes, which results, arguments and buffers are
one object or share memory, the caller's tensors, versions, and the state of the generator.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

import dy2st
from ir.literal import parse_type
from tests import check

#: `{call}` is the call on `y`; `shape` of the argument `x` from that of `y`; `flags` are the values
#: of the argument `flag` in the three calls
LOCAL = """
def f(x, flag, {operands}):
    y = x.clone()
    other, part = y, y.detach()
    {call}
    return y, other, part, result
"""
BRANCH = """
def f(x, flag, {operands}):
    y = x.clone()
    other = y
    if flag > 0:
        {call}
    return y, other
"""
FOR = """
def f(x, flag, {operands}):
    y = x.clone()
    other = y
    for t in range(3):
        {call}
    return y, other
"""
WHILE = """
def f(x, flag, {operands}):
    y = x.clone()
    other = y
    while flag < 3:
        {call}
        flag = flag + 1
    return y, other
"""
ROW = """
def f(x, flag, {operands}):
    base = x.clone()
    y = base[1]
    {call}
    return base, y, result
"""
STEP = """
def f(x, flag, {operands}):
    y = x[..., 1::2]
    {call}
    return y, result, x.clone()
"""
TRANSPOSED = """
def f(x, flag, {operands}):
    base = x.clone()
    y = base.transpose(list(range(base.ndim))[::-1])
    {call}
    return base, y, result
"""
BUFFER = """
class Net(paddle.nn.Layer):
    def __init__(self, state):
        super().__init__()
        self.register_buffer("state", state)

    def forward(self, x, flag, {operands}):
        y = self.state
        {call}
        return result, self.state
"""
ARGUMENT = """
def f(x, flag, {operands}):
    y = x
    {call}
    return result
"""
LOOP_ON_ARGUMENT = """
def f(x, flag, {operands}):
    y = x
    for t in range(2):
        {call}
    return y
"""
GRADIENT = """
def f(x, flag, {operands}):
    y = x * 1.0
    {call}
    return (y * y).sum()
"""


@dataclass(frozen=True)
class Context:
    text: str
    shape: Callable[[list[int]], list[int]] = lambda shape: shape
    flags: tuple[int, ...] = (1, 0, 1)
    least: int = 0
    kept: bool = False


CONTEXTS = {
    "alone": Context(LOCAL),
    "if": Context(BRANCH),
    "for": Context(FOR),
    "while": Context(WHILE, flags=(0, 3, 2)),
    "row of a local": Context(ROW, lambda shape: [2, *shape]),
    "steps of an argument": Context(
        STEP, lambda shape: [*shape[:-1], 2 * shape[-1]], least=1, kept=True
    ),
    "transposed": Context(TRANSPOSED, lambda shape: shape[::-1], least=2),
    "buffer": Context(BUFFER, kept=True),
    "argument": Context(ARGUMENT, kept=True),
    "loop on an argument": Context(LOOP_ON_ARGUMENT, kept=True),
}

#: those of every case, with one of the two kinds of views; those of variants
MANY = ("alone", "if", "for", "while", "steps of an argument", "buffer", "argument")
VIEWS = ("row of a local", "transposed")
FEW = ("alone", "if", "transposed", "loop on an argument")


@dataclass(frozen=True)
class Spec:
    """A tensor of random numbers: its type as text, and the interval that they come from."""

    type: str = "f32[3,4]"
    low: float = -2.0
    high: float = 2.0

    def make(self, rng: np.random.Generator, reshape: Callable[[list[int]], list[int]]) -> Any:
        t = parse_type(self.type)
        shape = reshape([int(d) for d in t.concrete({})])
        if t.dtype.kind == "f":
            return paddle.to_tensor(rng.uniform(self.low, self.high, shape).astype(t.dtype.numpy))
        if t.dtype.kind == "b":
            return paddle.to_tensor(rng.random(shape) < 0.5)
        low, high = int(self.low), int(self.high)
        return paddle.to_tensor(rng.integers(low, high + 1, shape).astype(t.dtype.numpy))


@dataclass(frozen=True)
class Case:
    """One in-place call.

    name: unique; the name of the API comes first.
    call: an expression, or statements, that write `y`; operands by their names.
    y: the tensor that is written.
    operands: a Spec, or a function without arguments that makes the object.
    bounds: relative and absolute; exact by default.
    foreign: whether a kernel of Paddle's runs.
    refused: contexts in which dy2st raises SourceError though eager works, to a part of its text.
        `*` stands for all of them.
    raises: contexts in which eager Paddle raises.
    left_out: contexts that make no sense, with the reason.
    variant: another form of a call that the table has: in a few contexts only.
    rebinds: the call gives `y` another object, so a branch decides which one it is.
    reshapes: the call changes how `y` looks; in eager also how its `detach()` looks.
    no_gradient: why the gradient is not compared with eager's.
    """

    name: str
    call: str
    y: Spec = Spec()
    operands: Mapping[str, Spec | Callable[[], Any]] = field(default_factory=dict)
    bounds: tuple[float, float] = (0.0, 0.0)
    foreign: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    raises: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    variant: bool = False
    rebinds: bool = False
    reshapes: bool = False
    no_gradient: str = ""

    def contexts(self) -> list[str]:
        rank = len(parse_type(self.y.type).shape)
        names = FEW if self.variant else (*MANY, VIEWS[len(self.name) % 2])
        return [n for n in names if rank >= CONTEXTS[n].least and n not in self.left_out]

    def differentiable(self) -> bool:
        """Whether the gradient through the call is compared with eager's."""
        floats = parse_type(self.y.type).dtype.kind == "f"
        return floats and not self.no_gradient and "*" not in self.refused

    def kind(self) -> tuple[Any, ...]:
        """Cases of one kind differ in the arithmetic only."""
        dtype = parse_type(self.y.type).dtype.kind
        return dtype, self.foreign, self.rebinds, self.reshapes, self.variant, bool(self.operands)

    def refusal(self, context: str) -> str | None:
        return self.refused.get(context, self.refused.get("*"))


#: contexts of each case in a run that is not nightly
EACH = 2


def rows(cases: list[Case]) -> list[Any]:
    """(name, context): each case meets `EACH` contexts, and each kind of cases all of them.

    The other pairs are marked `nightly`. A case that is refused, or that eager refuses, in some
    context meets all of them in every run.
    """
    chosen = covering(cases)
    return [
        pytest.param(case.name, n, marks=[] if n in chosen[case.name] else [pytest.mark.nightly])
        for case in cases
        for n in case.contexts()
    ]


def covering(cases: list[Case]) -> dict[str, set[str]]:
    """The contexts of each case that are not left to the night."""
    special = [case for case in cases if case.refused or case.raises]
    chosen = {case.name: set(case.contexts()) if case in special else set() for case in cases}
    candidates = defaultdict(list)
    for case in cases:
        for n in case.contexts():
            candidates[case.kind(), n].append(case.name)
    for (_, context), names in candidates.items():
        if not any(context in chosen[q] for q in names):
            chosen[min(names, key=lambda q: len(chosen[q]))].add(context)
    met = Counter((case.kind(), n) for case in cases for n in chosen[case.name])
    for case in cases:
        rare = sorted(case.contexts(), key=lambda n: (n in chosen[case.name], met[case.kind(), n]))
        more = rare[: max(0, EACH - len(chosen[case.name]))]
        chosen[case.name].update(more)
        met.update((case.kind(), n) for n in more)
    return chosen


def counted(cases: list[Case]) -> list[tuple[Case, str]]:
    """The pairs of a case and a context that are equal to eager."""
    return [
        (case, context)
        for case in cases
        for context in case.contexts()
        if case.refusal(context) is None and context not in case.raises
    ]


# ---------------------------------------------------------------- the functions
_FILES = itertools.count()


def source(case: Case, context: Context) -> str:
    template = context.text
    if case.rebinds:
        template = template.replace("return y, other\n", "return y, other.clone()\n")
    if case.reshapes:
        template = template.replace("y.detach()", "y[:2]")
    (indent,) = re.findall(r"^( *)\{call\}", template, re.MULTILINE)
    call = f"result = {case.call}" if is_expression(case.call) else f"{case.call}\nresult = y"
    body = textwrap.indent(call, indent).strip()
    return template.format(call=body, operands=", ".join(case.operands))


def is_expression(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return True


def make(text: str, name: str) -> dict[str, Any]:
    """The names that the text defines; dy2st finds the text again through linecache."""
    file = f"<in place {next(_FILES)}: {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    namespace: dict[str, Any] = {"paddle": paddle, "F": F, "np": np, "__name__": "in_place"}
    exec(compile(text, file, "exec"), namespace)
    return namespace


class Side:
    """The function of a context, eager or translated, with the state that it keeps."""

    def __init__(self, case: Case, context: Context, translated: bool = False) -> None:
        self.case, self.context = case, context
        names = make(source(case, context), case.name)
        self.layer = names["Net"](self.argument(0)) if "Net" in names else None
        f = self.layer if self.layer is not None else names["f"]
        self.call = dy2st.to_static(f) if translated else f
        self.x = self.argument(0)

    def argument(self, k: int) -> Any:
        return self.case.y.make(np.random.default_rng(k), self.context.shape)

    def operands(self, k: int) -> list[Any]:
        rng = np.random.default_rng(100 + k)
        return [
            q.make(rng, lambda shape: shape) if isinstance(q, Spec) else q()
            for q in self.case.operands.values()
        ]

    def arguments(self, k: int) -> list[Any]:
        if not self.context.kept:
            self.x = self.argument(k)
        return [self.x, paddle.to_tensor(self.context.flags[k]), *self.operands(k)]

    def state(self) -> list[Any]:
        return [] if self.layer is None else [self.layer.state]

    def observed(self, k: int) -> check.Observed:
        return check.observe(self.call, self.arguments(k), self.state, 31 + k)


# ---------------------------------------------------------------- what is compared
#: Calls that change the shape of an object in place: eager moves the version of the tensor that a
#: view shows, the program does not, because no element is written (docs/limits.md).
SHAPES = ("reshape_", "unsqueeze_", "squeeze_", "transpose_", "t_", "flatten_")


def compare(case: Case, context: str) -> None:
    """Three calls, translated and eager."""
    eager, static = (Side(case, CONTEXTS[context], translated) for translated in (False, True))
    if case.refusal(context) is not None and context not in case.raises:
        return check_refused(case, context, eager, static)
    for k in range(3):
        want, have = eager.observed(k), static.observed(k)
        if want.error is not None:
            assert context in case.raises, f"eager raises {want.error!r}"
        if check.both_raise(have, want, f"call {k}"):
            return None
        assert context not in case.raises, "eager does not raise"
        bounds = dict(zip(("rtol", "atol"), case.bounds))
        shape_of_a_view = case.name in SHAPES and context == "steps of an argument"
        check.equal(have, want, f"call {k}", memory=True, versions=not shape_of_a_view, **bounds)
    foreign = dy2st.report(static.call, *static.arguments(2)).foreign
    assert bool(foreign) == bool(case.foreign), foreign
    return None


def check_gradient(case: Case) -> None:
    """The gradients of all operands of floats, translated and eager, in three calls."""
    text = source(case, Context(GRADIENT))
    eager, static = (make(text, case.name)["f"] for _ in range(2))
    static = dy2st.to_static(static)
    for k in range(3):
        want, have = (gradients(case, f, k) for f in (eager, static))
        bounds = dict(zip(("rtol", "atol"), np.maximum(case.bounds, 1e-4)))
        check.same(have, want, what=f"call {k}", **bounds)


def gradients(case: Case, f: Callable[..., Any], k: int) -> list[Any]:
    """Of all floats of the call; where eager has zeros, there may be none."""
    args = Side(case, Context(GRADIENT)).arguments(k)
    floats = [q for q in args if isinstance(q, paddle.Tensor) and q.is_floating_point()]
    for q in floats:
        q.stop_gradient = False
    paddle.seed(31 + k)
    f(*args).backward()
    return [paddle.zeros_like(q) if q.grad is None else q.grad.detach() for q in floats]


def check_refused(case: Case, context: str, eager: Side, static: Side) -> None:
    """Eager works; dy2st raises before it has changed anything."""
    want = eager.observed(0)
    assert want.error is None, "eager raises, too"
    args = static.arguments(0)
    before = [q.clone() for q in check.tensors([args, static.state()])]
    have = check.observe(static.call, args, static.state, 31)
    assert isinstance(have.error, dy2st.SourceError), have.error or "it is not refused"
    text = str(have.error)
    assert case.refusal(context) in text, text
    assert text.strip().splitlines()[-1].endswith((".", "`")), "no remedy"
    check.same(check.tensors(have.held), before, 0.0, 0.0, "changed by a refused call")
