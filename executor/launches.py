"""Launches: a lowered program is a list of launches on views, with loops as the only structure.

A launch says what is computed on which memory, never how: tiles, packed operands and scratch memory
belong to a backend, which adds them when it legalizes a program (`executor.backend`). `error` is
the number of a `Failure` that the native code returns when the launch meets bad data, 0 where it
cannot.

Sums and products are taken in the compute type of the elements (`DType.compute`) and rounded to
the type of the result once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from executor.memory import Buffer, View
from ir import CapacityExceeded, Input, Op, Program, Require
from ir.loc import UNKNOWN, Loc
from ir.messages import Shown, worded
from ir.opdef import Reduction as Reduction
from ir.scalar.language import Number, Scalar
from ir.types import Dim, Type

#: of a nonzero result of the native code: the number of the failure; above them is an index
CODE_BITS = 20


@dataclass(frozen=True)
class Failure:
    """The meaning of a nonzero result of the native code, with the user's line.

    impossible: the check is made all the same, but writes before it need no care. shown: values
    in the text, which the code stores in the table. site: the number that the program has for the
    error; the exception has it as an attribute of this name.
    """

    kind: type[BaseException]
    text: str
    loc: Loc = UNKNOWN
    impossible: bool = False
    shown: tuple[tuple[Shown, Type], ...] = ()
    site: int = 0

    def error(self, index: int = 0, values: Sequence[Any] = ()) -> BaseException:
        """The exception; its text has the `values`, or names the index that leaves its axis. Its
        line is a note, for the text may be the user's own; before Python 3.11, which has no notes,
        it is part of the text, unless that is the key of a KeyError.
        """
        where = str(self.loc) if self.loc.line > 0 and self.kind is not CapacityExceeded else ""
        text = worded(self.text, [q for q, _ in self.shown], values)
        text = text.replace("an index", f"index {index}", 1) if index else text
        where = "" if where in text else where
        noted = hasattr(BaseException, "add_note")
        plain = noted or not where or issubclass(self.kind, KeyError)
        error = self.kind(text if plain else f"{text} ({where})".lstrip())
        if where and noted:
            note = f"{where}, {self.loc.function}" if self.loc.function else where
            error.add_note(note)  # type: ignore[attr-defined]
        if self.site:
            vars(error)["site"] = self.site
        return error


@dataclass(frozen=True, eq=False)
class Map:
    """`outs[k]` gets the scalar expression `roots[k]` at every place of `shape`.

    Input k of the expressions is `ins[k]`, already broadcast to `shape`. Inputs and roots have the
    types of the views: where the compute type is another one, they are cast right behind the load
    and right before the store.
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
class Addresses:
    """Store where each of `views` begins into an i64[n], for `executor.memory.Element`."""

    views: tuple[View, ...]
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
    """The first index of the largest element along `axis`; as Paddle's kernel, 0 where no element
    of floats is larger than the lowest finite number: a NaN is never the largest."""

    x: View
    axis: int
    out: View


@dataclass(frozen=True, eq=False)
class First:
    """The numbers of the elements that come first along `axis`, in order (`ir.ops.reduce`); as
    many as `out`, whose memory is the heap, has there."""

    x: View
    axis: int
    largest: bool
    out: View


@dataclass(frozen=True, eq=False)
class Order:
    """The numbers of all elements along `axis`; all in order, or the first `count` of them."""

    x: View
    axis: int
    count: int
    largest: bool
    stable: bool
    out: View


@dataclass(frozen=True, eq=False)
class Fourier:
    """A transform of length `n` along `axis` (`ir.ops.linalg`)."""

    x: View
    axis: int
    n: int
    kind: str
    inverse: bool
    factor: float
    doubled: bool
    out: View


@dataclass(frozen=True, eq=False)
class Running:
    """Along `axis`, out[0] is that of the last of `ins`, and out[k] is `root` of out[k - 1]
    (input 0) and of ins[k]. Elements lie side by side along `axis` in every view, forwards or
    backwards; they are of the compute type. Lowered to only where the backend has it."""

    ins: tuple[View, ...]
    axis: int
    root: Scalar
    out: View


@dataclass(frozen=True, eq=False)
class Positions:
    """The numbers of the true elements of `x` in order, then zeros; and how many there are."""

    x: View
    outs: tuple[View, View]


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
class GatherNd:
    """out[pre, p, post] = x[pre, index[0][p], index[1][p], ..., post] at every place p.

    The indices are known to be in [-n, n).
    """

    x: View
    index: tuple[View, ...]
    axis: int
    out: View


@dataclass(frozen=True, eq=False)
class ScatterNd:
    """out[pre, index[0][p], ..., post] gets `root` of itself (input 0) and of y[pre, p, post]
    (input 1), place after place. The indices are known to be in [-n, n)."""

    y: View
    index: tuple[View, ...]
    axis: int
    root: Scalar
    out: View


@dataclass(frozen=True, eq=False)
class Gemm:
    """c[batch..., M, N] = x[batch..., M, K] @ y; batch dims are broadcast, stride 0.

    `initial`: the summand of the product, of the shape of `c`; its rows are contiguous.
    """

    x: View
    y: View
    c: View
    initial: View | None


@dataclass(frozen=True, eq=False)
class Contract:
    """out[b, m, n] = sum over all places p of x[b, m, p...] times y[b, p..., n]; the rows of `out`
    are contiguous."""

    x: View
    y: View
    out: View


@dataclass(frozen=True, eq=False)
class Conv:
    """out[g, b, r, m, p, q] = sum over c, i, j of w[g, r, c, i, j] times x[g, b, c, m, y, z],

    y = p * stride[0] + i * dilation[0] - before[0], z likewise; x is zero where there is no pixel.
    The last three axes of `out` lie in memory as one.
    """

    x: View
    w: View
    out: View
    stride: tuple[int, int]
    before: tuple[Dim, Dim]
    dilation: tuple[int, int]


@dataclass(frozen=True, eq=False)
class BackendLaunch:
    """Base of the kinds that only one backend knows: its `legalize` makes them from the others.

    As everywhere, the fields that are views are what the launch touches, its memory for scratch
    included; `out`, or all of `outs`, is what it writes.
    """


@dataclass(frozen=True, eq=False)
class Dots:
    """The sum of xs[k] times y over all places of y, which have one shape, is added to outs[k],
    one element each."""

    xs: tuple[View, ...]
    y: View
    outs: tuple[View, ...]


@dataclass(frozen=True, eq=False)
class Check:
    """The call fails unless `value >= 0`."""

    value: Dim
    error: int


@dataclass(frozen=True, eq=False)
class Fail:
    """The call fails unless the bool[] `unless` is true. `shown` are in the message."""

    unless: View
    error: int
    shown: tuple[View, ...] = ()


@dataclass(frozen=True, eq=False)
class Call:
    """The kernel of `Lowered.calls[number]`, which Python makes, on contiguous operands and
    results. `sizes` are the values of the names that it asks for."""

    number: int
    ins: tuple[View, ...]
    outs: tuple[View, ...]
    sizes: tuple[Dim, ...]
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
    has a name, is bound to the number of iterations. `asks`: it may run so long that each iteration
    asks, now and then, if a signal has come. `most` is a bound of a `trip` that data decides.
    `coarse`: the launches of an iteration take microseconds.
    """

    index: str
    parity: str
    after: str
    trip: Dim
    body: tuple[Launch, ...]
    go: View | None = None
    count: str = ""
    asks: bool = False
    most: Dim | None = None
    coarse: bool = False


Launch: TypeAlias = (
    Map
    | Iota
    | Number64
    | Addresses
    | Reduce
    | ArgMax
    | First
    | Order
    | Fourier
    | Running
    | Positions
    | Gather
    | GatherNd
    | ScatterNd
    | Gemm
    | Contract
    | Conv
    | Dots
    | BackendLaunch
    | Check
    | Fail
    | Call
    | Index
    | When
    | Branch
    | Loop
)


#: kinds that are no kernels: what runs, how often, and what is checked on the way
STRUCTURE = (Loop, When, Branch, Check, Fail, Call, Index, Number64, Addresses)


@dataclass(frozen=True)
class Copy:
    """A copy that a plan kept (`executor.plan.copies`).

    `name` is what the user would recognise: of the value, else of its input.

    loc: where the value that is copied was made. bytes: of one copy.
    input: whose old or new content it is, if an input takes part.
    loop: of the innermost loop that copies in every iteration; None if it happens once a call.
    """

    name: str
    loc: Loc
    bytes: Dim
    reason: str
    input: Input | None = None
    loop: Loc | None = None

    def __str__(self) -> str:
        often = f" in every iteration of the loop at {self.loop}" if self.loop is not None else ""
        return f"{self.name}, {self.bytes} bytes{often}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Lowered:
    """A program as launches. Input k is `inputs[k]`; `failures[e - 1]` explains error e. A call is
    refused unless its sizes meet `requires`: conditions that the launches do not check. `calls` are
    the foreign ops, each with the sizes that it asks for."""

    program: Program
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    failures: tuple[Failure, ...] = field(default=())
    copies: tuple[Copy, ...] = field(default=())
    requires: tuple[Require, ...] = field(default=())
    calls: tuple[tuple[Op, tuple[str, ...]], ...] = field(default=())


def results(launch: Launch) -> tuple[View, ...]:
    """The views that a launch writes, scratch memory aside."""
    if isinstance(launch, Gemm):
        return (launch.c,)
    out = getattr(launch, "out", None)
    return getattr(launch, "outs", ()) if out is None else (out,)


def blocks(launch: Launch) -> tuple[tuple[Launch, ...], ...]:
    """The launches inside of a loop or a branch; two blocks of a branch never both run."""
    if isinstance(launch, Branch):
        return launch.then, launch.orelse
    return (launch.body,) if isinstance(launch, (When, Loop)) else ()


def with_blocks(launch: Launch, change: Callable[[tuple[Launch, ...]], Sequence[Launch]]) -> Launch:
    """A loop or branch with other launches inside."""
    if isinstance(launch, Branch):
        then, orelse = tuple(change(launch.then)), tuple(change(launch.orelse))
        return replace(launch, then=then, orelse=orelse)
    if isinstance(launch, (When, Loop)):
        return replace(launch, body=tuple(change(launch.body)))
    return launch


def views(launch: Launch) -> Iterator[View]:
    """Every view that a launch itself reads or writes."""
    for item in vars(launch).values():
        if isinstance(item, View):
            yield item
        elif isinstance(item, tuple):
            yield from (v for v in item if isinstance(v, View))
