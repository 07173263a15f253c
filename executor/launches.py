"""What a lowered program consists of: launches on views, with loops as the only structure.

A backend turns every launch into code; nothing here knows how. `error` is the number of a
`Failure` that the native code returns when the launch meets bad data, 0 where it cannot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from executor.views import Buffer, View
from ir import Program
from ir.kernel import Number, Scalar
from ir.opdef import Reduce as Reduction
from ir.types import Dim


@dataclass(frozen=True)
class Failure:
    """What a nonzero result of the native code means."""

    kind: type[BaseException]
    text: str


@dataclass(frozen=True, eq=False)
class Map:
    """`outs[k]` gets the scalar expression `roots[k]` at every place of `shape`.

    Input k of the expressions is `ins[k]`, already broadcast to `shape`.
    """

    shape: tuple[Dim, ...]
    ins: tuple[View, ...]
    roots: tuple[Scalar, ...]
    outs: tuple[View, ...]
    error: int = 0


@dataclass(frozen=True, eq=False)
class Iota:
    """out[i] = start + step * i, computed in i64 or f64 and cast."""

    out: View
    start: Number
    step: Number


@dataclass(frozen=True, eq=False)
class Number64:
    """Store a size or a symbol into an i64[]."""

    value: Dim
    out: View


@dataclass(frozen=True, eq=False)
class Reduce:
    """Reduce `axes` of `x` into `out`, which has the other axes in order."""

    x: View
    axes: tuple[int, ...]
    rule: Reduction
    out: View


@dataclass(frozen=True, eq=False)
class ArgMax:
    """The first index of the largest element (or of the first NaN) along `axis`."""

    x: View
    axis: int
    out: View


@dataclass(frozen=True, eq=False)
class Gather:
    """out[pre, j, post] = x[pre, index[j], post]; `wrap`: negative indices count from the end.

    Where the index is `padding`, zeros.
    """

    x: View
    index: View
    axis: int
    wrap: bool
    padding: int
    out: View
    error: int


@dataclass(frozen=True, eq=False)
class Pack:
    """Weights [batch..., K, N] into panels; `columns` of them are stored side by side."""

    y: View
    out: View
    columns: int


@dataclass(frozen=True, eq=False)
class Gemm:
    """c[batch..., M, N] = x[batch..., M, K] @ y; batch dims are broadcast, stride 0.

    `initial`: what the product is added to, of the shape of `c`; its rows are contiguous.
    `packed`: the panels of `y`, made by a `Pack`; without it `scratch` has room for one panel.
    """

    x: View
    y: View
    c: View
    columns: int
    packed: View | None
    scratch: View | None
    initial: View | None


@dataclass(frozen=True, eq=False)
class Check:
    """The call fails unless `value >= 0`."""

    value: Dim
    error: int


@dataclass(frozen=True, eq=False)
class Fail:
    """The call fails unless the bool[] `unless` is true."""

    unless: View
    error: int


@dataclass(frozen=True, eq=False)
class Index:
    """Bind `symbol` to an index in [-n, n), wrapped; from memory or from a symbol. Without `wrap`
    negative ones are out of range."""

    symbol: str
    source: View | Dim
    n: Dim
    error: int
    wrap: bool = True


@dataclass(frozen=True, eq=False)
class When:
    """Run `body` if `value` is 0 (`relation` eq) or at least 0 (`sge`)."""

    value: Dim
    relation: str
    body: tuple[Launch, ...]


@dataclass(frozen=True, eq=False)
class Branch:
    """Run `then` if the bool[] `test` is true, else `orelse`."""

    test: View
    then: tuple[Launch, ...]
    orelse: tuple[Launch, ...]


@dataclass(frozen=True, eq=False)
class Loop:
    """`index` counts from 0 to `trip`; `parity` is its lowest bit, `after` that of its final value.

    With `go`, a bool[], the loop ends as soon as that is false before an iteration. `count`, if it
    has a name, is bound to the number of iterations.
    """

    index: str
    parity: str
    after: str
    trip: Dim
    body: tuple[Launch, ...]
    go: View | None = None
    count: str = ""


Launch: TypeAlias = (
    Map
    | Iota
    | Number64
    | Reduce
    | ArgMax
    | Gather
    | Pack
    | Gemm
    | Check
    | Fail
    | Index
    | When
    | Branch
    | Loop
)


@dataclass(frozen=True, eq=False)
class Lowered:
    """A program as launches. Input k is `inputs[k]`; `failures[e - 1]` explains error e."""

    program: Program
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    failures: tuple[Failure, ...] = field(default=())


def results(launch: Launch) -> tuple[View, ...]:
    """The views that a launch writes, scratch memory aside."""
    if isinstance(launch, Map):
        return launch.outs
    if isinstance(launch, Gemm):
        return (launch.c,)
    out = getattr(launch, "out", None)
    return () if out is None else (out,)


def blocks(launch: Launch) -> tuple[tuple[Launch, ...], ...]:
    """The launches inside of a loop or a branch; two blocks of a branch never both run."""
    if isinstance(launch, Branch):
        return launch.then, launch.orelse
    return (launch.body,) if isinstance(launch, (When, Loop)) else ()


def safe(launches: Sequence[Launch]) -> bool:
    """Whether nothing can fail once an input has been written."""
    return _safe(launches, False)[0]


def _safe(launches: Sequence[Launch], written: bool) -> tuple[bool, bool]:
    for x in launches:
        written = written or any(v.buffer.kind == "input" for v in results(x))
        if getattr(x, "error", 0) and written:
            return False, written
        ok, after = _safe_inside(x, written)
        if ok and after and not written and isinstance(x, Loop):
            ok, after = _safe_inside(x, after)
        if not ok:
            return False, after
        written = after
    return True, written


def _safe_inside(launch: Launch, written: bool) -> tuple[bool, bool]:
    found = [_safe(b, written) for b in blocks(launch)]
    return all(ok for ok, _ in found), written or any(w for _, w in found)


def views(launch: Launch) -> Iterator[View]:
    """Every view that a launch itself reads or writes."""
    for item in vars(launch).values():
        if isinstance(item, View):
            yield item
        elif isinstance(item, tuple):
            yield from (v for v in item if isinstance(v, View))
