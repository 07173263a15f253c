"""Ops become launches, and every value gets its storage.

One walk in program order. A value is a view of another value's storage, or it is written straight
into the place that needs it (an output, the slot of a stacked result, the next state of a carry),
or it gets a buffer of its own. `executor.plan` lays the buffers out afterwards, from the launches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from executor.counts import bound
from executor.expand import expand_composites
from executor.launches import Check, Failure, Launch, Lowered, Map, Reduce, safe
from executor.uses import Block, Inside, analyse, carried
from executor.views import Buffer, View, whole
from ir import OPS, Cond, Fused, Loc, Op, Program, Scan, Value
from ir import kernel as k
from ir.core import Node
from ir.ops.nn import normal_axes
from ir.types import Dim, DType, Size, Type, product

Rule: TypeAlias = Callable[["Lowerer", Any], None]
#: op -> how it becomes launches; rows with a kernel or a reduction need no entry
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def add(f: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, f))
        return f

    return add


@dataclass(frozen=True)
class Machine:
    """`columns(dtype, rows, columns)`: how many columns of the right matrix of a product with so
    many rows and columns are packed side by side."""

    columns: Callable[[DType, Dim, Dim], int]


@dataclass
class Scope:
    """The launches of one block while they are collected; `loop`: it is the body of a loop.

    `packed` are the weights packed in it, `bounds` what counts of loops in it can be at most.
    """

    loop: bool = False
    launches: list[Launch] = field(default_factory=list)
    packed: dict[tuple[Value, View, int], View] = field(default_factory=dict)
    bounds: dict[str, Dim | None] = field(default_factory=dict)


@dataclass
class Lowerer:
    """`env` is where a value lies; `level` the innermost scope in which its data varies.

    `constants` are values that one literal fills, `known` are integers that are sizes or symbols.
    `origin` is the outermost value that a const port hands on. `owned` values may be overwritten.
    `places` are views that must hold a value when its block ends. `merged` are ops that an
    earlier launch has done.
    """

    machine: Machine
    env: dict[Value, View] = field(default_factory=dict)
    level: dict[Value, int] = field(default_factory=dict)
    constants: dict[Value, k.Scalar] = field(default_factory=dict)
    known: dict[Value, Dim] = field(default_factory=dict)
    origin: dict[Value, Value] = field(default_factory=dict)
    owned: set[Value] = field(default_factory=set)
    places: dict[Value, list[View]] = field(default_factory=dict)
    merged: set[Node] = field(default_factory=set)
    scopes: list[Scope] = field(default_factory=lambda: [Scope()])
    uses: list[Block] = field(default_factory=list)
    inside: Inside = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    symbols: int = 0

    @property
    def depth(self) -> int:
        return len(self.scopes) - 1

    def emit(self, launch: Launch) -> None:
        self.scopes[-1].launches.append(launch)

    def open(self, loop: bool = False) -> None:
        """What is emitted from here to `close` belongs to a block inside."""
        self.scopes.append(Scope(loop))

    def close(self) -> tuple[Launch, ...]:
        return tuple(self.scopes.pop().launches)

    def outside_of_loops(self, v: Value) -> Scope | None:
        """The scope around the outermost loop in which `v` does not vary; None if it varies."""
        for at in range(self.level[v] + 1, len(self.scopes)):
            if self.scopes[at].loop:
                return self.scopes[at - 1]
        return None

    def symbol(self, letter: str) -> str:
        self.symbols += 1
        return f"#{letter}{self.symbols}"

    def arena(self, elements: Dim, dtype: DType) -> Buffer:
        most = bound(elements, {n: b for s in self.scopes for n, b in s.bounds.items()})
        if most is None:
            raise NotImplementedError(f"{elements} elements of a loop without a bound")
        return Buffer("arena", 0, most * dtype.size)

    def temporary(self, t: Type) -> View:
        return whole(self.arena(product(t.shape), t.dtype), t)

    def fresh(self, v: Value) -> View:
        """Storage of its own for `v`: where it is wanted, else a new buffer."""
        final, updates = v, self.uses[-1].updates
        while final in updates and final not in self.places:
            final = updates[final]
        wanted = self.places.get(final)
        view = wanted[0] if wanted else self.temporary(v.type)
        self.natural(v.type.shape, v.name)
        self.bind(v, view)
        self.owned.add(v)
        return view

    def bind(self, v: Value, view: View, level: int | None = None) -> None:
        self.env[v] = view
        self.level[v] = self.depth if level is None else level

    def settle(self, v: Value) -> None:
        """Copy `v` to every place that wants it and does not have it."""
        for place in self.places.pop(v, []):
            if place != self.env[v]:
                self.copy(self.env[v], place)

    def copy(self, x: View, out: View) -> None:
        source = k.input_(0, x.dtype)
        self.emit(Map(out.shape, (x.expand(out.shape),), (source,), (out,)))

    def failure(self, kind: type[BaseException], text: str, loc: Loc) -> int:
        where = f" ({loc})" if loc.line > 0 else ""
        self.failures.append(Failure(kind, text + where))
        return len(self.failures)

    def natural(self, shape: Sequence[Dim], what: str) -> None:
        """Check that no dim is negative."""
        for d in shape:
            if isinstance(d, Size) and any(c < 0 for _, c in d.terms):
                self.check(d, f"{what or 'a tensor'} has {d} elements along an axis", Loc("", 0))

    def check(self, value: Dim, text: str, loc: Loc, kind: type[Exception] = IndexError) -> None:
        """The program fails unless `value >= 0`."""
        if isinstance(value, int) and value >= 0:
            return
        if isinstance(value, Size) and all(c >= 0 for _, c in value.terms):
            return
        self.emit(Check(value, self.failure(kind, text, loc)))

    # ------------------------------------------------------------ walking
    def block(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if node in self.merged:
                continue
            self.node(node)
            for r in node.results:
                if r in self.owned or r in self.uses[-1].early:
                    self.settle(r)

    def node(self, node: Node) -> None:
        if isinstance(node, (Scan, Cond)):
            RULES[type(node).__name__.lower()](self, node)
        elif isinstance(node, Fused):
            self.fused(node)
        elif node.name in RULES:
            RULES[node.name](self, node)
        elif isinstance(node, Op) and node.row.kernel is not None:
            self.elementwise(node)
        elif isinstance(node, Op) and node.row.reduce is not None:
            self.reduce(node)
        else:
            raise NotImplementedError(f"no kernel for {node.name} ({node.loc})")

    def reduce(self, op: Op) -> None:
        (x,), row = op.operands, OPS[op.name]
        axes = normal_axes(op.attrs["axes"], x.type.ndim)
        out = self.fresh(op.result)
        if op.attrs["keepdim"]:
            for a in reversed(axes):
                out = out.pick(a, 0)
        assert row.reduce is not None
        self.emit(Reduce(self.env[x], axes, row.reduce, out))

    def elementwise(self, op: Op) -> None:
        kernel = OPS[op.name].kernel
        assert kernel is not None
        inputs = _Inputs(self)
        root = kernel(*(inputs.scalar(v) for v in op.operands), **op.attrs)
        self.map(op, inputs, op.result.type.shape, [root])

    def fused(self, node: Fused) -> None:
        inputs = _Inputs(self)
        scalars = {p.inner: inputs.scalar(p.outer) for p in node.ins}
        for op in node.body:
            kernel = OPS[op.name].kernel
            assert kernel is not None
            scalars[op.result] = kernel(*(scalars[v] for v in op.operands), **op.attrs)
        roots = [scalars[inner] for _, inner in node.outs]
        self.map(node, inputs, node.results[0].type.shape, roots)

    def map(
        self, node: Op | Fused, inputs: _Inputs, shape: Sequence[Dim], roots: Sequence[k.Scalar]
    ) -> None:
        ins = tuple(self.env[v].expand(shape) for v in inputs.values)
        stores: list[tuple[k.Scalar, View]] = []
        for r, root in zip(node.results, roots):
            views = [self.overwrite(node, r) or self.fresh(r)]
            views += [p for p in self.places.pop(r, []) if p != views[0]]
            stores += [(root, v) for v in views]
        error = 0
        if any(s.op in ("div", "rem") and s.dtype.kind in "iu" for s in k.nodes(list(roots))):
            error = self.failure(ZeroDivisionError, f"{node.name}: division by zero", node.loc)
        outs = tuple(v for _, v in stores)
        self.emit(Map(tuple(shape), ins, tuple(s for s, _ in stores), outs, error))

    def overwrite(self, node: Node, result: Value) -> View | None:
        """The storage of the operand that `result` may take over."""
        for x in node.operands:
            if x in self.owned and self.uses[-1].updates.get(x) is result:
                self.bind(result, self.env[x])
                self.owned.add(result)
                return self.env[x]
        return None


@dataclass
class _Inputs:
    """Operands of a kernel as scalars: literals stay literals, the rest are numbered."""

    lowerer: Lowerer
    values: list[Value] = field(default_factory=list)

    def scalar(self, v: Value) -> k.Scalar:
        if v in self.lowerer.constants:
            return self.lowerer.constants[v]
        if v not in self.values:
            self.values.append(v)
        return k.input_(self.values.index(v), v.type.dtype)


def lower(program: Program, machine: Machine) -> Lowered:
    """Raises NotImplementedError for an op without a kernel."""
    program = expand_composites(program)
    lowered = _lower(program, machine, in_place=True)
    return lowered if safe(lowered.launches) else _lower(program, machine, in_place=False)


def _lower(program: Program, machine: Machine, in_place: bool) -> Lowered:
    """`in_place`: a written input may be overwritten before the end of the program."""
    low = Lowerer(machine)
    inputs = tuple(_buffer("input", n, i.value.type) for n, i in enumerate(program.inputs))
    outputs = tuple(_buffer("output", n, v.type) for n, v in enumerate(program.outputs))
    for i, b in zip(program.inputs, inputs):
        low.bind(i.value, whole(b, i.value.type))
    for v, b in zip(program.outputs, outputs):
        low.places.setdefault(v, []).append(whole(b, v.type))
    states = {target: v for target, v in program.writes if in_place}
    needed = [*program.outputs, *(v for _, v in program.writes)]
    low.uses.append(analyse(program.ops, states, needed, low.inside))
    done = {target for target, ok in carried(states, low.uses[0]).items() if ok}
    for target, v in program.writes:
        if target in done:
            low.owned.add(target)
            low.places.setdefault(v, []).insert(0, low.env[target])
    low.block(program.ops)
    for v in list(low.places):
        low.settle(v)
    _write_back(low, [(t, v) for t, v in program.writes if t not in done])
    return Lowered(program, inputs, outputs, low.close(), tuple(low.failures))


def _buffer(kind: str, number: int, t: Type) -> Buffer:
    return Buffer(kind, number, product(t.shape) * t.dtype.size)


def _write_back(low: Lowerer, writes: Sequence[tuple[Value, Value]]) -> None:
    """Values that lie in inputs are saved first: another write may overwrite them."""
    sources = []
    for _, v in writes:
        x = low.env[v]
        if x.buffer.kind == "input":
            saved = low.temporary(v.type)
            low.copy(x, saved)
            x = saved
        sources.append(x)
    for (target, _), x in zip(writes, sources):
        low.copy(x, low.env[target])
