"""Programs: values, ops, loops and branches with named ports, and the builder for them.

Everything is immutable. A pass re-emits (`ir.rewrite`); types, lifetimes and aliases are
recomputed, never maintained. Values and ops are compared by identity, programs by their text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

from ir.loc import UNKNOWN, Loc
from ir.opdef import OPS, Assumption, OpDef, ShapeError, collecting, complete_attrs
from ir.types import Dim, Size, Type, evaluate_dim


@dataclass(frozen=True, eq=False)
class Value:
    """One result of one op, an input, or the inner side of a port. `name` is a hint for text."""

    type: Type
    name: str = ""

    def __repr__(self) -> str:
        return f"%{self.name or '_'}: {self.type}"


@dataclass(frozen=True, eq=False)
class Op:
    """A call of a row of the op table."""

    name: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    loc: Loc = UNKNOWN

    @property
    def row(self) -> OpDef:
        return OPS[self.name]

    @property
    def result(self) -> Value:
        (value,) = self.results
        return value


# ---------------------------------------------------------------- ports
@dataclass(frozen=True, eq=False)
class Const:
    """The same value in every iteration: `const %inner = %outer`."""

    inner: Value
    outer: Value


@dataclass(frozen=True, eq=False)
class Seq:
    """The slice `outer[..., start + step * i, ...]` along `axis` in iteration i."""

    inner: Value
    outer: Value
    axis: int
    start: Dim = 0
    step: int = 1


@dataclass(frozen=True, eq=False)
class Carry:
    """`inner` is `init` in the first iteration, then `next` of the one before.

    `last` is its value after the loop (`init` when there is no iteration), or None.
    """

    inner: Value
    init: Value
    next: Value
    last: Value | None = None


@dataclass(frozen=True, eq=False)
class Stack:
    """`outer` collects `inner` of every iteration along a new `axis`, first iteration first.

    It has `Scan.length` steps, as many as did run: the type of `outer` names them, as `f32[n1,3]`
    behind `while ... as n1`. What memory a backend keeps behind them is no part of it.

    A buffer that may be longer or shorter than the steps that ran is a `Carry` that iterations
    write to at a place that they compute; the rest is as in `init`. One that a pass makes has the
    last k steps (`ir.passes.loops.read_stacks`): it is filled at its end when the loop is over, and
    the rest, in front, is zeros.
    """

    outer: Value
    inner: Value
    axis: int = 0


@dataclass(frozen=True, eq=False)
class Last:
    """`outer` is `inner` of the last iteration; the loop must run at least once."""

    outer: Value
    inner: Value


@dataclass(frozen=True, eq=False)
class LoopCondition:
    """A bool[]: whether the first iteration runs (`init`), and whether another one (`next`)."""

    init: Value
    next: Value


Port: TypeAlias = Const | Seq | Carry | Stack | Last | LoopCondition

#: the `trip` of a loop that only its `LoopCondition` port ends
ENDLESS = 1 << 62
#: the least that a capacity is
MIN_CAPACITY = 16


class CapacityExceeded(Exception):
    """A `while` loop has used up the capacity of this name: the program starts again with more."""


@dataclass(frozen=True, eq=False)
class Scan:
    """A counted loop: `trip` iterations of `body`; `index` is the iteration number, i64[].

    With a `LoopCondition` port it is a `while` loop: `trip` (which may be ENDLESS) is the most
    iterations it can run; one of the program's `capacities` it must not reach. `count` is then the
    name of a size, defined from here to the end of the block: the iterations that it did run.
    Stacked results have that length.

    `size`, if given, is the iteration number as a size: types and attributes of the body may name
    it, those of the ports and of what leaves the loop may not.

    `unroll` steps become one iteration of the code, where the trip is a number.
    """

    index: Value
    trip: Dim
    ports: tuple[Port, ...]
    body: tuple[Node, ...]
    loc: Loc = UNKNOWN
    count: str = ""
    size: str = ""
    unroll: int = 1

    @property
    def name(self) -> str:
        return "while" if self.count else "scan"

    @cached_property
    def go(self) -> LoopCondition | None:
        return next((p for p in self.ports if isinstance(p, LoopCondition)), None)

    @property
    def length(self) -> Dim:
        """The number of iterations, which is the length of its stacks."""
        return Size.named(self.count) if self.count else self.trip

    def new_stack(self, v: Value) -> Stack:
        """A new port that collects `v` of the body along a first axis."""
        return Stack(Value(v.type.with_shape((self.length, *v.type.shape)), v.name), v)

    @cached_property
    def operands(self) -> tuple[Value, ...]:
        """Outer values that the loop reads, in the order of the ports."""
        read = (p for p in self.ports if isinstance(p, (Const, Seq, Carry, LoopCondition)))
        return tuple(p.outer if isinstance(p, (Const, Seq)) else p.init for p in read)

    @cached_property
    def results(self) -> tuple[Value, ...]:
        """Outer values that the loop defines, in the order of the ports."""
        outs = (p.last if isinstance(p, Carry) else p.outer for p in self.outs)
        return tuple(v for v in outs if v is not None)

    @cached_property
    def ins(self) -> tuple[Const | Seq | Carry, ...]:
        return tuple(p for p in self.ports if isinstance(p, (Const, Seq, Carry)))

    @cached_property
    def outs(self) -> tuple[Carry | Stack | Last, ...]:
        return tuple(
            p
            for p in self.ports
            if isinstance(p, (Stack, Last)) or (isinstance(p, Carry) and p.last is not None)
        )

    @cached_property
    def carries(self) -> tuple[Carry, ...]:
        return tuple(p for p in self.ports if isinstance(p, Carry))

    @cached_property
    def inner(self) -> tuple[Value, ...]:
        """Values that the body may read besides its own results."""
        return (self.index, *(p.inner for p in self.ins))

    @cached_property
    def needed(self) -> tuple[Value, ...]:
        """Values of the body that leave it or are carried."""
        return tuple(
            p.next if isinstance(p, (Carry, LoopCondition)) else p.inner
            for p in self.ports
            if isinstance(p, (Carry, Stack, Last, LoopCondition))
        )


@dataclass(frozen=True, eq=False)
class Fused:
    """Elementwise ops that run as one kernel over `shape`: each operand is broadcast to it.

    `ins` are Const ports, `outs` pairs (outer result, inner value); the body is ops with a kernel.
    """

    shape: tuple[Dim, ...]
    ins: tuple[Const, ...]
    body: tuple[Op, ...]
    outs: tuple[tuple[Value, Value], ...]
    loc: Loc = UNKNOWN
    name: str = field(default="fused", init=False)

    @cached_property
    def operands(self) -> tuple[Value, ...]:
        return tuple(p.outer for p in self.ins)

    @cached_property
    def results(self) -> tuple[Value, ...]:
        return tuple(outer for outer, _ in self.outs)


@dataclass(frozen=True, eq=False)
class Join:
    """`outer` is `then` or `orelse`, as the branch that runs says."""

    outer: Value
    then: Value
    orelse: Value


@dataclass(frozen=True, eq=False)
class Cond:
    """One of two blocks, by the bool[] `test`. Both read outer values through `ins` only."""

    test: Value
    ins: tuple[Const, ...]
    then: tuple[Node, ...]
    orelse: tuple[Node, ...]
    outs: tuple[Join, ...]
    loc: Loc = UNKNOWN
    name: str = field(default="cond", init=False)

    @cached_property
    def operands(self) -> tuple[Value, ...]:
        """The test, then what the branches read."""
        return (self.test, *(p.outer for p in self.ins))

    @cached_property
    def results(self) -> tuple[Value, ...]:
        return tuple(j.outer for j in self.outs)

    @cached_property
    def branches(self) -> tuple[tuple[tuple[Node, ...], tuple[Value, ...]], ...]:
        """Both blocks, each with the values that leave it."""
        then, orelse = tuple(j.then for j in self.outs), tuple(j.orelse for j in self.outs)
        return (self.then, then), (self.orelse, orelse)


@dataclass(frozen=True, eq=False)
class Custom:
    """A block whose gradient the user wrote (`paddle.autograd.PyLayer`).

    forward reads outer values through `ins`; `outs` pairs an outer result with an inner value.
    given: what `backward` calls the gradient of each result.
    saved: what `backward` reads of the forward block, as `inner`.
    grads: the gradient of each of `ins`, a value of `backward`, or None where there is none.

    `backward` is used by `ir.autodiff` only: a program that is run has `forward` in place of this.
    """

    ins: tuple[Const, ...]
    forward: tuple[Node, ...]
    outs: tuple[tuple[Value, Value], ...]
    given: tuple[Value, ...]
    saved: tuple[Const, ...]
    backward: tuple[Node, ...]
    grads: tuple[Value | None, ...]
    loc: Loc = UNKNOWN
    name: str = field(default="custom", init=False)

    @cached_property
    def operands(self) -> tuple[Value, ...]:
        return tuple(p.outer for p in self.ins)

    @cached_property
    def results(self) -> tuple[Value, ...]:
        return tuple(outer for outer, _ in self.outs)

    @cached_property
    def branches(self) -> tuple[tuple[tuple[Node, ...], tuple[Value, ...]], ...]:
        """The forward and the backward block, each with the values that leave it."""
        leaving = (*(inner for _, inner in self.outs), *(p.outer for p in self.saved))
        return (self.forward, leaving), (self.backward, tuple(g for g in self.grads if g))


Node: TypeAlias = Op | Scan | Cond | Fused | Custom


@dataclass(frozen=True, eq=False)
class Input:
    """`kind` is arg, param, buffer, const, rng or host (the result of a host call); `name` is what
    the user would recognise."""

    value: Value
    kind: str
    name: str


INPUT_KINDS = ("arg", "param", "buffer", "const", "rng", "host")


@dataclass(frozen=True)
class Require:
    """A condition on the named sizes of a call (`relation` is ==, != or >=), and what needs it."""

    left: Dim
    relation: str
    right: Dim
    reason: str = ""
    loc: Loc = UNKNOWN

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Raises KeyError for a size that is not given."""
        gap = evaluate_dim(self.left, sizes) - evaluate_dim(self.right, sizes)
        return {"==": gap == 0, "!=": gap != 0, ">=": gap >= 0}[self.relation]

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


@dataclass(frozen=True, eq=False)
class Slot:
    """An output that is an input's storage after all writes: nobody allocates or copies it."""

    input: Value

    @property
    def type(self) -> Type:
        return self.input.type

    @property
    def name(self) -> str:
        return self.input.name


@dataclass(frozen=True, eq=False)
class Program:
    """`writes` pairs an input with the value stored back into it after the run.

    `capacities` are named sizes that no input has, MIN_CAPACITY or more: whoever runs the program
    chooses them, and starts again with larger ones after `CapacityExceeded`. The results do not
    depend on them.
    """

    #: the text of a program; the package sets it, because the printer imports this module
    printer: ClassVar[Callable[[Program], str]]

    name: str
    inputs: tuple[Input, ...]
    ops: tuple[Node, ...]
    outputs: tuple[Value | Slot, ...]
    writes: tuple[tuple[Value, Value], ...] = ()
    requires: tuple[Require, ...] = ()
    capacities: tuple[str, ...] = ()

    @property
    def results(self) -> tuple[Value, ...]:
        """The value of every output: for a slot, the one that is written back."""
        written = dict(self.writes)
        return tuple(written[v.input] if isinstance(v, Slot) else v for v in self.outputs)

    @property
    def needed(self) -> tuple[Value, ...]:
        """The values that must be computed: outputs and write-backs."""
        values = (v for v in self.outputs if isinstance(v, Value))
        return (*values, *(v for _, v in self.writes))

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """Named sizes, in the order in which the inputs name them, and then the capacities."""
        found: dict[str, None] = {}
        for i in self.inputs:
            for d in i.value.type.shape:
                if isinstance(d, Size):
                    found.update(dict.fromkeys(sorted(d.names)))
        return tuple({**found, **dict.fromkeys(self.capacities)})

    def __str__(self) -> str:
        return Program.printer(self)


# ---------------------------------------------------------------- building
class Builder:
    """Collects ops. `b.add(x, y)` infers the type by the row and returns the result value(s)."""

    def __init__(self, loc: Loc = UNKNOWN) -> None:
        self.ops: list[Node] = []
        self.requires: list[Require] = []
        self.loc = loc

    def emit(
        self,
        name: str,
        operands: Sequence[Value],
        attrs: dict[str, Any] | None = None,
        hint: str = "",
    ) -> tuple[Value, ...]:
        """Append a call of row `name`; raises ShapeError when the operands do not fit."""
        row = OPS[name]
        full = complete_attrs(row, attrs or {})
        with collecting() as wanted:
            types = row.result_types([v.type for v in operands], full)
        self.require(wanted, name)
        results = tuple(Value(t, hint) for t in types)
        self.ops.append(Op(name, tuple(operands), results, full, self.loc))
        return results

    def require(self, wanted: Iterable[Assumption], reason: str) -> None:
        self.requires += [Require(w.left, w.relation, w.right, reason, self.loc) for w in wanted]

    def __getattr__(self, name: str) -> Any:
        if name not in OPS:
            raise AttributeError(name)

        def call(*operands: Value, hint: str = "", **attrs: Any) -> Any:
            results = self.emit(name, operands, attrs, hint)
            return results[0] if len(results) == 1 else results

        return call

    def append(self, node: Node) -> None:
        self.ops.append(node)


__all__ = [
    "ENDLESS",
    "MIN_CAPACITY",
    "Builder",
    "Carry",
    "Cond",
    "Const",
    "Custom",
    "Fused",
    "LoopCondition",
    "Input",
    "Join",
    "Last",
    "CapacityExceeded",
    "Node",
    "Op",
    "Port",
    "Program",
    "Require",
    "Scan",
    "Seq",
    "ShapeError",
    "Slot",
    "Stack",
    "Value",
]
