"""Programs: values, ops, loops with named ports, and the builder and verifier for them.

Everything is immutable. A pass re-emits (`ir.rewrite`); types, lifetimes and aliases are
recomputed, never maintained. Values and ops are compared by identity, programs by their text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ir.loc import UNKNOWN, Dy2stError, Loc
from ir.opdef import OPS, OpDef, ShapeError, Wanted, broadcast, collecting, complete_attrs
from ir.types import I64, Dim, Size, Type, evaluate_dim


class VerifyError(Dy2stError):
    """A program that breaks a rule of the IR: a defect of a pass or of a file."""


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
    """`outer` collects `inner` of every iteration along a new `axis`, first iteration first."""

    outer: Value
    inner: Value
    axis: int = 0


@dataclass(frozen=True, eq=False)
class Last:
    """`outer` is `inner` of the last iteration; the loop must run at least once."""

    outer: Value
    inner: Value


Port: TypeAlias = Const | Seq | Carry | Stack | Last


@dataclass(frozen=True, eq=False)
class Scan:
    """A counted loop: `trip` iterations of `body`; `index` is the iteration number, i64[]."""

    index: Value
    trip: Dim
    ports: tuple[Port, ...]
    body: tuple[Node, ...]
    loc: Loc = UNKNOWN
    name: str = field(default="scan", init=False)

    @property
    def operands(self) -> tuple[Value, ...]:
        """Outer values that the loop reads, in the order of the ports."""
        out = [p.outer if isinstance(p, (Const, Seq)) else p.init for p in self.ins]
        return tuple(out)

    @property
    def results(self) -> tuple[Value, ...]:
        """Outer values that the loop defines, in the order of the ports."""
        outs = (p.last if isinstance(p, Carry) else p.outer for p in self.outs)
        return tuple(v for v in outs if v is not None)

    @property
    def ins(self) -> tuple[Const | Seq | Carry, ...]:
        return tuple(p for p in self.ports if isinstance(p, (Const, Seq, Carry)))

    @property
    def outs(self) -> tuple[Carry | Stack | Last, ...]:
        return tuple(
            p
            for p in self.ports
            if isinstance(p, (Stack, Last)) or (isinstance(p, Carry) and p.last is not None)
        )

    @property
    def carries(self) -> tuple[Carry, ...]:
        return tuple(p for p in self.ports if isinstance(p, Carry))

    @property
    def inner(self) -> tuple[Value, ...]:
        """Values that the body may read besides its own results."""
        return (self.index, *(p.inner for p in self.ins))

    @property
    def needed(self) -> tuple[Value, ...]:
        """Values of the body that leave it or are carried."""
        return tuple(
            p.next if isinstance(p, Carry) else p.inner
            for p in self.ports
            if isinstance(p, (Carry, Stack, Last))
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

    @property
    def operands(self) -> tuple[Value, ...]:
        return tuple(p.outer for p in self.ins)

    @property
    def results(self) -> tuple[Value, ...]:
        return tuple(outer for outer, _ in self.outs)


Node: TypeAlias = Op | Scan | Fused


@dataclass(frozen=True, eq=False)
class Input:
    """`kind` is arg, param, buffer, const or rng; `name` is what the user would recognise."""

    value: Value
    kind: str
    name: str


INPUT_KINDS = ("arg", "param", "buffer", "const", "rng")


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
class Program:
    """`writes` pairs an input with the value stored back into it after the run."""

    name: str
    inputs: tuple[Input, ...]
    ops: tuple[Node, ...]
    outputs: tuple[Value, ...]
    writes: tuple[tuple[Value, Value], ...] = ()
    requires: tuple[Require, ...] = ()

    @property
    def sizes(self) -> tuple[str, ...]:
        """Named sizes, in the order in which the inputs name them."""
        found: dict[str, None] = {}
        for i in self.inputs:
            for d in i.value.type.shape:
                if isinstance(d, Size):
                    found.update(dict.fromkeys(sorted(d.names)))
        return tuple(found)

    def __str__(self) -> str:
        from ir.text import print_program

        return print_program(self)


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

    def require(self, wanted: Iterable[Wanted], reason: str) -> None:
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


# ---------------------------------------------------------------- verifying
def verify(program: Program) -> Program:
    """Check every rule of the IR and return the program; raises VerifyError."""
    defined: set[Value] = set()
    for i in program.inputs:
        if i.kind not in INPUT_KINDS:
            raise VerifyError(f"input {i.name!r} has the unknown kind {i.kind!r}")
        _define(defined, [i.value], "inputs")
    plain = {str(d) for i in program.inputs for d in i.value.type.shape if isinstance(d, Size)}
    for n in program.sizes:
        if n not in plain:
            raise VerifyError(f"no input has the size {n} as a plain dimension")
    _verify_block(program.ops, defined, frozenset(program.sizes))
    _available(defined, program.outputs, "return")
    inputs = {i.value for i in program.inputs}
    written: set[Value] = set()
    for target, value in program.writes:
        _available(defined, [target, value], "write")
        if target not in inputs or target in written:
            raise VerifyError(f"{target!r} is written back twice or is no input")
        if target.type != value.type:
            raise VerifyError(f"write of {value.type} to {target.type}")
        written.add(target)
    return program


def _define(defined: set[Value], values: Iterable[Value], where: str) -> None:
    for v in values:
        if v in defined:
            raise VerifyError(f"{v!r} is defined twice ({where})")
        defined.add(v)


def _available(defined: set[Value], values: Iterable[Value], where: str) -> None:
    for v in values:
        if v not in defined:
            raise VerifyError(f"{v!r} is used before it is defined ({where})")


def _verify_block(ops: Iterable[Node], defined: set[Value], sizes: frozenset[str]) -> None:
    for node in ops:
        _available(defined, node.operands, node.name)
        if isinstance(node, Scan):
            _verify_scan(node, sizes)
        elif isinstance(node, Fused):
            _verify_fused(node, sizes)
        else:
            _verify_op(node)
        for r in node.results:
            if not r.type.names <= sizes:
                raise VerifyError(f"{r!r} uses a size that no input has")
        _define(defined, node.results, node.name)


def _verify_op(op: Op) -> None:
    if op.name not in OPS:
        raise VerifyError(f"unknown op {op.name!r}")
    try:
        attrs = complete_attrs(op.row, dict(op.attrs))
        with collecting():
            types = op.row.result_types([v.type for v in op.operands], attrs)
    except VerifyError:
        raise
    except Exception as e:
        raise VerifyError(f"{op.name}: {e}") from e
    have = tuple(r.type for r in op.results)
    if have != types:
        raise VerifyError(f"{op.name} gives {types}, but its results are {have}")


def _verify_scan(scan: Scan, sizes: frozenset[str]) -> None:
    if scan.index.type != Type(I64):
        raise VerifyError(f"the index of a scan is i64[], not {scan.index.type}")
    if isinstance(scan.trip, Size) and not scan.trip.names <= sizes:
        raise VerifyError(f"scan of {scan.trip}: a size that no input has")
    if isinstance(scan.trip, int) and scan.trip < 0:
        raise VerifyError(f"scan of {scan.trip} iterations")
    defined: set[Value] = set()
    _define(defined, scan.inner, "ports")
    _verify_block(scan.body, defined, sizes)
    _available(defined, scan.needed, "ports of a scan")
    for p in scan.ports:
        want, have = _port_types(scan, p)
        if want != have:
            raise VerifyError(
                f"{type(p).__name__.lower()} port of {p.inner!r}: {have} is not {want}"
            )


def _port_types(scan: Scan, p: Port) -> tuple[Any, Any]:
    if isinstance(p, Const):
        return p.outer.type, p.inner.type
    if isinstance(p, Seq):
        shape = list(p.outer.type.shape)
        if not 0 <= p.axis < len(shape):
            raise VerifyError(f"seq port of {p.inner!r}: no axis {p.axis}")
        del shape[p.axis]
        return p.outer.type.with_shape(shape), p.inner.type
    if isinstance(p, Carry):
        last = p.last.type if p.last is not None else p.inner.type
        return (p.inner.type,) * 3, (p.init.type, p.next.type, last)
    if isinstance(p, Last):
        return p.inner.type, p.outer.type
    shape = list(p.inner.type.shape)
    if not 0 <= p.axis <= len(shape):
        raise VerifyError(f"stack port of {p.inner!r}: no axis {p.axis}")
    shape.insert(p.axis, scan.trip)
    return p.inner.type.with_shape(shape), p.outer.type


def _verify_fused(fused: Fused, sizes: frozenset[str]) -> None:
    defined: set[Value] = set()
    _define(defined, [p.inner for p in fused.ins], "fused")
    _verify_block(fused.body, defined, sizes)
    _available(defined, [v for _, v in fused.outs], "fused")
    for p in fused.ins:
        if p.inner.type != p.outer.type:
            raise VerifyError(f"fused operand {p.inner!r} is not {p.outer.type}")
    for op in fused.body:
        if not isinstance(op, Op) or op.row.kernel is None:
            raise VerifyError(f"{op.name} cannot be fused: it has no kernel")
    for outer, inner in fused.outs:
        with collecting():
            full = inner.type.with_shape(broadcast(inner.type.shape, fused.shape))
        if outer.type != full:
            raise VerifyError(f"fused result {outer!r} is not {full}")


__all__ = [
    "Builder",
    "Carry",
    "Const",
    "Fused",
    "Input",
    "Last",
    "Node",
    "Op",
    "Port",
    "Program",
    "Require",
    "Scan",
    "Seq",
    "ShapeError",
    "Stack",
    "Value",
    "VerifyError",
    "verify",
]
