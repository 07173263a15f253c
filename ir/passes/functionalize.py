"""In-place writes become values: afterwards no op writes, and `Program.writes` says what goes back.

An interpreter that keeps, for every storage, the value that holds its contents now, and for every
old value how it views its storage (`ir.alias`). Reading a view whose storage has been written since
derives it again; writing through a view rebuilds the storage with the rows' `unview`, last step
first. A storage that a loop's body writes becomes a carry of that loop and of the loops around it.

    copy_(%row, %y)   where %row = pick(%x, axis=0, index=2)
    =>  %x1 = set_pick(%x, %y, axis=0, index=2)         and later reads of %x see %x1

Out of scope: a write whose storage depends on the run, refused with AliasError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ir.alias import AliasError, Aliases, Step, View, analyse
from ir.core import Carry, Const, Last, Node, Op, Port, Program, Scan, Seq, Stack, Value
from ir.loc import Loc
from ir.opdef import OPS
from ir.rewrite import Block
from ir.types import I64, Dim

WRITTEN_BACK = ("arg", "param", "buffer", "rng")


def functionalize(program: Program) -> Program:
    """Programs without writes come back as they are."""
    aliases = analyse(program)
    if not _writes(program.ops):
        return program
    state = _State(aliases)
    block = _Contents(state)
    for i in program.inputs:
        block.define(i.value)
    block.run(program.ops)
    outputs = tuple(block.read(v) for v in program.outputs)
    writes = dict((target, block.read(v)) for target, v in program.writes)
    for i in program.inputs:
        if i.kind in WRITTEN_BACK:
            now = block.read(i.value)
            if now is not i.value:
                writes.setdefault(i.value, now)
    return replace(program, ops=tuple(block.out.ops), outputs=outputs, writes=tuple(writes.items()))


def _writes(ops: Sequence[Node]) -> bool:
    return any(
        _writes(n.body) if isinstance(n, Scan) else isinstance(n, Op) and n.row.writes for n in ops
    )


@dataclass(eq=False)
class _State:
    """What all blocks share. `doubtful`: base -> where a storage that it may be was written."""

    aliases: Aliases
    doubtful: dict[Value, Loc] = field(default_factory=dict)

    def written(self, base: Value, loc: Loc) -> None:
        for other in self.aliases.relatives(base):
            self.doubtful[other] = loc

    def require_certain(self, base: Value) -> None:
        if base in self.doubtful:
            raise AliasError(
                f"{base!r} may share its storage with a tensor that is written in place; "
                "whether it does depends on the sizes of the call or on the iteration",
                self.doubtful[base],
            )


class _Contents:
    """One block: the contents of the storages that it can reach, and how values view them."""

    def __init__(self, state: _State, outer: Block | None = None) -> None:
        self.state, self.out = state, Block(outer)
        self.contents: dict[Value, Value] = {}
        self.version: Counter[Value] = Counter()
        self.views: dict[Value, View] = {}
        self.derived: dict[View, tuple[int, Value]] = {}

    # -------- values
    def define(self, v: Value) -> None:
        """`v` makes a storage of its own."""
        self.views[v], self.contents[v] = View(v), v
        self.state.doubtful.pop(v, None)

    def bind(self, v: Value, view: View) -> None:
        """`v` is `view`, and holds what the view holds now."""
        self.views[v] = view
        self.keep(view, v)

    def keep(self, view: View, now: Value) -> None:
        if view.steps:
            self.derived[view] = (self.version[view.base], now)

    def read(self, v: Value) -> Value:
        view = self.views[v]
        self.state.require_certain(view.base)
        return self.load(view)

    def load(self, view: View) -> Value:
        """What `view` holds now, derived again if its storage has been written since."""
        if not view.steps:
            return self.contents[view.base]
        version, value = self.derived.get(view, (-1, view.base))
        if version != self.version[view.base]:
            step = view.steps[-1]
            source = self.load(View(view.base, view.steps[:-1]))
            value = self.out.emit(step.name, (source, *step.operands), step.attrs, step.hint)[0]
            self.keep(view, value)
        return value

    def store(self, view: View, new: Value, loc: Loc) -> None:
        """`new` is written through `view`; every view on the way holds what it now sees."""
        base = view.base
        if base in self.state.aliases.carried:
            raise AliasError(
                f"the loop variable {base!r} is written in place: in the first iteration that "
                "would write the tensor that it was before the loop",
                loc,
            )
        self.state.require_certain(base)
        levels = [View(base, view.steps[:n]) for n in range(len(view.steps) + 1)]
        values = [new]
        for level, step in zip(reversed(levels[:-1]), reversed(view.steps)):
            unview = OPS[step.name].unview
            assert unview is not None, step.name
            old = self.load(level)
            new = unview(self.out, old, new, *step.operands, **step.attrs)
            values.append(new)
        self.contents[base] = new
        self.version[base] += 1
        for level, value in zip(reversed(levels), values):
            self.keep(level, value)
        self.state.written(base, loc)

    # -------- nodes
    def run(self, ops: Sequence[Node]) -> None:
        for node in ops:
            self.out.at(node)
            if isinstance(node, Scan):
                self.scan(node)
            elif isinstance(node, Op) and node.row.writes:
                self.out.hint = self.views[node.operands[0]].base.name
                self.store(self.views[node.operands[0]], self.read(node.operands[1]), node.loc)
            else:
                self.plain(node)

    def plain(self, node: Node) -> None:
        assert isinstance(node, Op), "kernels are fused after functionalize"
        operands = tuple(map(self.read, node.operands))
        self.out.append(replace(node, operands=operands))
        source = self.views[node.operands[0]] if node.row.views else None
        for r in node.results:
            if source is None or self.state.aliases.base[r] is r:
                self.define(r)
            else:
                step = Step(node.name, operands[1:], node.attrs, r.name)
                self.bind(r, source.then(step))

    # -------- loops
    def scan(self, s: Scan) -> None:
        written = self.state.aliases.written[s]
        body = _Contents(self.state, self.out)
        ports = _Ports(self, body, s)
        for p in s.ports:
            ports.enter(p)
        for base in written:
            ports.carry(base)
            self.state.written(base, s.loc)
        for p in s.carries:
            self.state.doubtful.pop(p.inner, None)
        body.run(s.body)
        self.out.at(s)
        self.out.append(replace(s, ports=ports.leave(), body=tuple(body.out.ops)))
        for v in s.results:
            self.define(v)
        for base, last in ports.lasts.items():
            self.contents[base] = last
            self.version[base] += 1


class _Ports:
    """The ports of one loop, from the block around it to its body and back."""

    def __init__(self, outer: _Contents, body: _Contents, scan: Scan) -> None:
        self.outer, self.body, self.scan = outer, body, scan
        self.written = outer.state.aliases.written[scan]
        self.before: list[Const | Seq | Carry] = []
        self.imported: dict[Value, Value] = {}
        self.lasts: dict[Value, Value] = {}
        self.carries: dict[Value, Carry] = {}
        body.define(scan.index)

    def enter(self, p: Port) -> None:
        if isinstance(p, Carry):
            self.before.append(replace(p, init=self.outer.read(p.init)))
            self.body.define(p.inner)
        elif isinstance(p, (Const, Seq)):
            view = self.outer.views[p.outer]
            if view.base in self.written:
                self.body.views[p.inner] = self.inside(view, p)
                return
            self.before.append(replace(p, outer=self.outer.read(p.outer)))
            self.body.bind(p.inner, View(view.base, (Step("port", (), {}),)))

    def inside(self, view: View, p: Const | Seq) -> View:
        """A view of a storage that the body writes, on values of the body."""
        steps = [replace(s, operands=tuple(map(self.bring, s.operands))) for s in view.steps]
        out = View(view.base, tuple(steps))
        if isinstance(p, Const):
            return out
        at = affine_index(self.body.out, self.scan.index, p.start, p.step)
        return out.then(Step("select", (at,), {"axis": p.axis}, p.inner.name))

    def bring(self, v: Value) -> Value:
        """A value of the outer block, in the body."""
        if v not in self.imported:
            self.imported[v] = Value(v.type, v.name)
            self.before.append(Const(self.imported[v], v))
        return self.imported[v]

    def carry(self, base: Value) -> None:
        inner, now = Value(base.type, base.name), self.outer.contents[base]
        self.body.contents[base] = inner
        self.lasts[base] = Value(base.type, base.name)
        self.carries[base] = Carry(inner, now, inner, self.lasts[base])

    def leave(self) -> tuple[Port, ...]:
        """All ports, their inner sides read at the end of the body."""
        body = self.body
        out: list[Port] = []
        for p in self.before:
            out.append(replace(p, next=body.read(p.next)) if isinstance(p, Carry) else p)
        for base, carry in self.carries.items():
            out.append(replace(carry, next=body.contents[base]))
        for q in self.scan.ports:
            if isinstance(q, (Stack, Last)):
                out.append(replace(q, inner=body.read(q.inner)))
        return tuple(out)


def affine_index(b: Block, index: Value, start: Dim, step: int) -> Value:
    """`start + step * index` as ops on i64[]."""
    at = index
    if step != 1:
        at = b.multiply(at, b.full(value=step, dtype=I64))
    if start != 0:
        offset = b.full(value=start, dtype=I64) if isinstance(start, int) else b.size(n=start)
        at = b.add(at, offset)
    return at


__all__ = ["affine_index", "functionalize"]
