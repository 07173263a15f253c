"""Lowering: ops become launches, and every value gets its storage.

One walk in program order. A value is a view of another value's storage, or it is written straight
into the place that needs it (an output, the slot of a stacked result, the next state of a carry),
or it gets a buffer of its own. `executor.plan.arena` lays the buffers out afterwards, from the
launches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from executor.launches import Addresses, Check, Copy, Failure, Launch, Map, Reduce, When
from executor.lowering.expressions import KernelInputs, KnownExpressions
from executor.memory import Buffer, TensorArray, View, whole
from executor.plan.copies import OUTPUT, CopyPurpose, line, read_later
from executor.plan.reuse import BlockReuse, Inside, turned
from ir import OPS, Cond, Fused, Input, Loc, Op, Program, Require, Scan, Value
from ir.analysis.ranges import ElementBounds, Range, extreme, natural_bound, never_negative
from ir.loc import UNKNOWN
from ir.ops.reduce import normal_axes
from ir.program import Node
from ir.scalar import language as k
from ir.types import I64, Dim, DType, Size, Type, is_natural, names_in, product
from ir.uses import dim_names

LoweringRule: TypeAlias = Callable[["Lowerer", Any], None]
#: op -> how it becomes launches; rows with a kernel or a reduction need no entry
RULES: dict[str, LoweringRule] = {}
#: ops of which the rule computes the result in its destination, wherever that is
DIRECT: set[str] = set()


def axis_of(n: Dim) -> str:
    """For the user, who does not know the names of sizes."""
    return f"an axis of size {n}" if isinstance(n, int) else "its axis"


def rule(*names: str, direct: bool = False) -> Callable[[LoweringRule], LoweringRule]:
    def add(f: LoweringRule) -> LoweringRule:
        RULES.update(dict.fromkeys(names, f))
        DIRECT.update(names if direct else ())
        return f

    return add


class Machine(Protocol):
    """The interface of a backend for lowering."""

    @property
    def families(self) -> Collection[type]:
        """The kinds of launch that it has kernels for, `STRUCTURE` aside."""
        ...

    def joins_images(self, t: Type) -> bool:
        """Whether a convolution should make its results, [N, C, H, W] of type `t`, in memory that
        holds those of all images side by side: as [C, N, H, W]."""
        ...


@dataclass
class LoweringScope:
    """The launches of one block while they are collected; `loop`: it is the body of one, there.

    `indices` are the symbols of indices that were checked in it, `sizes` the names of counts and
    indices of loops that are known in it.
    """

    loop: Loc | None = None
    launches: list[Launch] = field(default_factory=list)
    indices: dict[tuple[Value | Dim, Dim, bool], Dim] = field(default_factory=dict)
    sizes: set[str] = field(default_factory=set)


@dataclass
class Lowerer:
    """`env` is where a value lies.

    `constants` are values that one literal fills, `known` are integers that are sizes or symbols,
    `ranges` are those of counts and indices of loops, `running` dims that are >= 0 because the
    loops around run. `origin` is the outermost value that a const port hands on. `owned` values may
    be overwritten. `reserved` is storage that a copy at the end of the block fills. `places` are
    views that must hold a value when its block ends, and `wants` says what for. `ahead` are values
    that a later op would copy, with how to find the place where they are made instead
    (`executor.plan.destinations`), `parts` the stores whose part has been found so. `merged` are
    ops that an earlier launch has done. `elements` bounds integers, `steps` are those of carries
    that move by a number. `addressed` are the `tensor_array`s that are no copies, and `arrays` what
    they are. `donated` are inputs whose memory is spare, and `reasons` says why others are not
    updated in place. `conditions` are those on the sizes of loops that the types of a node rest on.
    `calls` are the foreign ops so far, `expressions` those of elementwise work.
    """

    machine: Machine
    program: Program
    elements: ElementBounds
    steps: Mapping[Value, int]
    addressed: frozenset[Node] = frozenset()
    donated: frozenset[Value] = frozenset()
    conditions: Mapping[Node, Sequence[Require]] = field(default_factory=dict)
    env: dict[Value, View] = field(default_factory=dict)
    arrays: dict[Value, TensorArray] = field(default_factory=dict)
    constants: dict[Value, k.Scalar] = field(default_factory=dict)
    known: dict[Value, Dim] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    running: list[Dim] = field(default_factory=list)
    origin: dict[Value, Value] = field(default_factory=dict)
    owned: set[Value] = field(default_factory=set)
    reserved: frozenset[Buffer] = frozenset()
    places: dict[Value, list[View]] = field(default_factory=dict)
    wants: dict[View, CopyPurpose] = field(default_factory=dict)
    lines: dict[Value, Loc] = field(default_factory=dict)
    reasons: dict[Value, str] = field(default_factory=dict)
    copies: list[Copy] = field(default_factory=list)
    ahead: dict[Value, Callable[[], View | None]] = field(default_factory=dict)
    parts: dict[Node, Callable[[View], View]] = field(default_factory=dict)
    merged: set[Node] = field(default_factory=set)
    scopes: list[LoweringScope] = field(default_factory=lambda: [LoweringScope()])
    expressions: KnownExpressions = field(default_factory=dict)
    uses: list[BlockReuse] = field(default_factory=list)
    inside: Inside = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    calls: list[tuple[Op, tuple[str, ...]]] = field(default_factory=list)
    symbols: int = 0

    @property
    def depth(self) -> int:
        return len(self.scopes) - 1

    def emit(self, launch: Launch) -> None:
        self.scopes[-1].launches.append(launch)

    def open(self, loop: Loc | None = None) -> None:
        """Begin an inner block: launches up to `close` belong to it."""
        self.scopes.append(LoweringScope(loop))

    def close(self) -> tuple[Launch, ...]:
        return tuple(self.scopes.pop().launches)

    def symbol(self, letter: str) -> str:
        self.symbols += 1
        return f"#{letter}{self.symbols}"

    def arena(self, elements: Dim, dtype: DType) -> Buffer:
        most = natural_bound(elements, self.ranges.get)
        if most is None:
            raise NotImplementedError(f"{elements} elements of a loop without a bound")
        return Buffer("arena", 0, most * dtype.size)

    def temporary(self, t: Type) -> View:
        return whole(self.arena(product(t.shape), t.dtype), t)

    def fresh(self, v: Value) -> View:
        """Storage for `v`: its destination if it has one, else a new buffer."""
        final = self.final(v)
        ahead = self.ahead.pop(final, None)
        view = ahead() if ahead is not None else None
        if view is None:
            wanted = self.places.get(final)
            view = wanted[0] if wanted else self.temporary(v.type)
        self.natural(v.type.shape, v.name)
        self.bind(v, view)
        self.owned.add(v)
        return view

    def final(self, v: Value) -> Value:
        """The value in the same storage and layout as `v`, one with a destination if there is
        any."""
        block = self.uses[-1]
        while v in block.updates and v not in self.places and v not in self.ahead:
            if turned(block, block.updates[v]):
                break
            v = block.updates[v]
        return v

    def bind(self, v: Value, view: View) -> None:
        self.env[v] = view

    def element(self, v: Value, axis: int, at: Dim) -> View:
        """A slice of `v` without `axis`."""
        array = self.arrays.get(v)
        return self.env[v].index(axis, at) if array is None else array.index(at)

    def address(self, v: Value, views: Sequence[View]) -> None:
        """`v` is an array of these views, which lie alike."""
        addresses = self.temporary(Type(I64, (len(views),)))
        self.emit(Addresses(tuple(views), addresses))
        self.arrays[v] = TensorArray(tuple(views), addresses)

    def want(self, v: Value, place: View, what: CopyPurpose, first: bool = False) -> None:
        """`place` must hold `v` at the end of the block; `first`: before other places."""
        places = self.places.setdefault(v, [])
        places.insert(0 if first else len(places), place)
        self.wants[place] = what

    def settle(self, v: Value) -> None:
        """Copy `v` to every place that wants it and does not have it."""
        for place in self.places.pop(v, []):
            if place != self.env[v]:
                self.copy(self.env[v], place)
                self.keep(v, place, self.why_again(v, place))

    def copy(self, x: View, out: View) -> None:
        source = k.input_(0, x.dtype)
        self.emit(Map(out.shape, (x.expand(out.shape),), (source,), (out,)))

    def failure(self, kind: type[BaseException], text: str, loc: Loc, said: bool = False) -> int:
        """The number of a new failure; `said`: the text needs no location."""
        where = f" ({loc})" if loc.line > 0 and not said else ""
        self.failures.append(Failure(kind, text + where, loc))
        return len(self.failures)

    # ------------------------------------------------------------ copies that are kept
    def keep(self, v: Value, out: View, reason: str) -> None:
        """List a copy of `v` to `out`."""
        if v in self.constants:
            return
        source = self.input_of(self.env[v])
        where = self.input_of(out) or source
        name = v.name or (where.name if where is not None else "a value")
        loop = next((s.loop for s in reversed(self.scopes) if s.loop is not None), None)
        size = product(out.shape) * out.dtype.size
        self.copies.append(Copy(name, self.lines.get(v, UNKNOWN), size, reason, where, loop))

    def input_of(self, view: View) -> Input | None:
        b = view.buffer
        return self.program.inputs[b.number] if b.kind == "input" else None

    def why_again(self, v: Value, place: View) -> str:
        """The reason why `v`, which has a destination, is copied to another one."""
        held, wanted = self.wants.get(self.env[v]), self.wants[place].text
        if held is not None:
            both = "two outputs" if held.text == wanted == OUTPUT else f"{held.text} and {wanted}"
            return f"{both} hold the same value"
        own = self.input_of(self.env[v])
        if own is not None:
            return f"{wanted} is the value of {own.name}, or a part of it"
        if self.uses[-1].of(v) is not v:
            return f"{wanted} is a view of a value that is stored otherwise"
        if v not in self.uses[-1].made:
            return f"{wanted} is the value of another tensor as it is"
        where = line(self.lines.get(v, UNKNOWN))
        return f"{wanted} is one of the two states that the loop {where} keeps"

    def why_kept(self, v: Value) -> str:
        """The reason why the op that updates `v` last does not take over its storage."""
        root = self.uses[-1].of(v)
        if root in self.reasons:
            return self.reasons[root]
        own = self.input_of(self.env[v])
        if own is not None and root not in self.owned:
            return f"{own.name} itself must stay as it is"
        if root is not v:
            return "it is a view of another value"
        return read_later(self.uses[-1], v)

    def natural(self, shape: Sequence[Dim], what: str) -> None:
        """Check that no dim is negative."""
        for d in shape:
            if isinstance(d, Size) and not is_natural(d):
                self.check(d, f"{what or 'a tensor'} has {d} elements along an axis", Loc("", 0))

    def check(self, value: Dim, text: str, loc: Loc, kind: type[Exception] = IndexError) -> None:
        """The program fails unless `value >= 0`."""
        if is_natural(value) or self.stays_natural(value):
            return
        self.emit(Check(value, self.failure(kind, text, loc)))

    def check_if(self, count: Dim, values: Sequence[Dim], text: str, loc: Loc) -> None:
        """The program fails unless all `values` are >= 0, or `count` is 0 or less."""
        left = [q for q in values if not never_negative(q, (count - 1,))]
        left = [q for q in left if not self.stays_natural(q)]
        if isinstance(count, int):
            for value in left if count > 0 else ():
                self.check(value, text, loc)
        elif left:
            self.open()
            for value in left:
                self.check(value, text, loc)
            self.emit(When(count - 1, "sge", self.close()))

    def stays_natural(self, value: Dim) -> bool:
        """Whether `value >= 0` in every iteration of the loops around."""
        least = extreme(value, self.ranges.get, largest=False)
        if least is None or has_symbols(least):
            return False
        return never_negative(least, self.running)

    def hold(self, conditions: Sequence[Require]) -> list[Require]:
        """Check the conditions whose sizes are known by now; returns the others."""
        known = {*self.program.sizes, *(n for s in self.scopes for n in s.sizes)}
        left = []
        for r in conditions:
            names = dim_names((r.left, r.right))
            if not names <= known:
                left.append(r)
                continue
            kind: type[Exception] = ValueError
            text = f"{r} does not hold ({r.reason})"
            if not names <= {*self.program.sizes}:
                op = "" if r.reason == "fused" else f" ({r.reason})"
                text = f"sizes that data decides do not fit{op}"
                if r.reason in OPS and "index" in OPS[r.reason].attrs:
                    kind = IndexError
                    text = "an index is out of range: data decides the size of its axis"
            self.check(r.left - r.right, text, r.loc, kind)
            if r.relation == "==":
                self.check(r.right - r.left, text, r.loc, ValueError)
        return left

    # ------------------------------------------------------------ walking
    def block(self, nodes: Sequence[Node]) -> None:
        pending = self.hold([r for n in nodes for r in self.conditions.get(n, ())])
        for node in nodes:
            if node in self.merged:
                continue
            self.node(node)
            pending = self.hold(pending)
            self.lines.update(dict.fromkeys(node.results, node.loc))
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
                out = out.index(a, 0)
        assert row.reduce is not None
        self.emit(Reduce(self.env[x], axes, row.reduce, out))

    def elementwise(self, op: Op) -> None:
        inputs = KernelInputs(self.constants)
        found = inputs.expressions(op.operands, op.operands, (op,), op.results, self.expressions)
        self.map(op, inputs, op.result.type.shape, found)

    def fused(self, node: Fused) -> None:
        inputs, (outer, inner) = (
            KernelInputs(self.constants),
            zip(*((p.outer, p.inner) for p in node.ins)),
        )
        outs = [v for _, v in node.outs]
        found = inputs.expressions(outer, inner, node.body, outs, self.expressions)
        self.map(node, inputs, node.results[0].type.shape, found)

    def map(
        self,
        node: Op | Fused,
        inputs: KernelInputs,
        shape: Sequence[Dim],
        roots: Sequence[k.Scalar],
    ) -> None:
        ins = tuple(self.env[v].expand(shape) for v in inputs.values)
        stores: list[tuple[k.Scalar, View]] = []
        for r, root in zip(node.results, roots):
            views = [self.overwrite(node, r) or self.dying(node, r) or self.fresh(r)]
            self.env[r] = views[0]
            for place in self.places.pop(r, []):
                if place != views[0]:
                    views.append(place)
                    self.keep(r, place, self.why_again(r, place))
            stores += [(k.cast(root, v.dtype), v) for v in views]
        error = 0
        if any(map(_may_divide_by_zero, k.nodes(roots))):
            error = self.failure(ZeroDivisionError, "integer division by zero", node.loc)
        outs = tuple(v for _, v in stores)
        self.emit(Map(tuple(shape), ins, tuple(s for s, _ in stores), outs, error))

    def overwrite(self, node: Node, result: Value) -> View | None:
        """The storage of the operand that `result` may take over."""
        block = self.uses[-1]
        for x in node.operands:
            root = block.of(x)
            if root not in self.owned or block.updates.get(root) is not result:
                continue
            if x is root or self.env[x].buffer is self.env[root].buffer:
                self.bind(result, self.env[x])
                self.owned.add(result)
                return self.env[x]
        return None

    def dying(self, node: Op | Fused, result: Value) -> View | None:
        """The storage of an operand that dies in `node`, for a result without a place."""
        block, final = self.uses[-1], self.final(result)
        if final in self.places or final in self.ahead:
            return None
        at = block.defined[result]
        for x in node.operands:
            alone = all(q is x for q in node.operands if block.of(q) is block.of(x))
            alone = alone and block.of(x) not in block.elements
            dies = x not in block.updates and block.last[block.of(x)] == at
            if x in self.owned and x.type == result.type and alone and dies and self.spare(x):
                self.owned.discard(x)
                self.bind(result, self.env[x])
                self.owned.add(result)
                return self.env[x]
        return None

    def spare(self, x: Value) -> bool:
        b = self.env[x].buffer
        given = b.kind == "input" and self.program.inputs[b.number].value in self.donated
        return (b.kind == "arena" or given) and x not in self.places and b not in self.reserved


def has_symbols(d: Dim) -> bool:
    """Whether it names what the native code binds on its way, besides sizes."""
    return any(n.startswith("#") for n in names_in(d))


def _may_divide_by_zero(s: k.Scalar) -> bool:
    if s.op not in ("div", "rem") or s.dtype.kind == "f":
        return False
    divisor = s.args[1]
    return not (divisor.op == "const" and divisor.value)
