"""Functionalization: in-place writes become values; `Program.writes` lists the write-backs.

An interpreter that keeps, for every storage, the value that holds its contents now, and for every
old value how it views its storage (`ir.analysis.alias`). Reading a view whose storage has been
written since derives it again; writing through a view rebuilds the storage with the rows' `unview`,
last step first. A storage that a loop's body writes becomes a carry of that loop, one that a branch
writes a join: the branch that does not write it hands the old contents on. So do the nodes around
it.

    copy_(%row, %y)   where %row = index(%x, axis=0, index=2)
    =>  %x1 = set_index(%x, %y, axis=0, index=2)         and later reads of %x see %x1

What an input holds after its last write is marked by `stored` if something reads it
(`ir.passes.slots`).

Out of scope: a write whose storage depends on the run, refused with AliasError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ir.analysis.affine import emitted
from ir.analysis.alias import AliasError, Aliases, StorageView, ViewStep, analyse
from ir.analysis.history import KINDS, History, Link, call_of, seq_text, view_text, writer_of
from ir.loc import UNKNOWN, Loc
from ir.opdef import view_rule
from ir.passes.slots import without_idle
from ir.program import (
    Carry,
    Cond,
    Const,
    Custom,
    Join,
    Last,
    LoopCondition,
    Node,
    Op,
    Port,
    Program,
    Scan,
    Seq,
    Slot,
    Stack,
    Value,
)
from ir.rewrite import Block, Region, in_order
from ir.types import Dim, Size
from ir.uses import blocks, walk

WRITTEN_BACK = (*KINDS, "rng")
#: the index of a loop in a place of one of its sequences
INDEX = "#index"


def functionalize(program: Program, history: History | None = None) -> Program:
    """Programs without writes come back as they are; `history` notes what is read and written."""
    writes_any = _writes(program.ops)
    if not writes_any and history is None:
        return program
    names = {i.value: i.name for i in program.inputs if i.kind in KINDS}
    state = _State(analyse(program), names, _read_once(program))
    block = _Contents(state, history=history)
    for i in program.inputs:
        block.define(i.value)
    block.run(program.ops)
    for v in program.outputs:
        block.note("returned", "", v.input if isinstance(v, Slot) else v, UNKNOWN)
    if not writes_any:
        return program
    outputs = tuple(v if isinstance(v, Slot) else block.read(v) for v in program.outputs)
    writes = dict((target, block.read(v)) for target, v in program.writes)
    for i in program.inputs:
        if i.kind in WRITTEN_BACK:
            now = block.read(i.value)
            if now is not i.value:
                writes.setdefault(i.value, now)
    written = tuple(writes.items())
    program = replace(program, ops=tuple(block.out.ops), outputs=outputs, writes=written)
    program = without_idle(program)
    changed = tuple((target, v) for target, v in program.writes if v is not target)
    return replace(program, writes=changed)


def _read_once(program: Program) -> set[Value]:
    """Results of ops that are read in one place."""
    count = Counter(v for v in program.outputs if isinstance(v, Value))
    made: list[Value] = []
    for node in walk(program.ops):
        count.update(node.operands)
        for _, leaving in blocks(node):
            count.update(leaving)
        made += node.results if isinstance(node, Op) else ()
    return {v for v in made if count[v] == 1}


def _writes(ops: Sequence[Node]) -> bool:
    return any(isinstance(n, Op) and n.row.writes for n in walk(ops))


@dataclass(eq=False)
class _State:
    """State shared by all blocks.

    names: inputs whose storage the caller sees.
    single: results of ops that are read in one place: what reads them is all that becomes of them.
    doubtful: base -> where a storage that it may be was written.
    carried: the loop variables of the loops around.
    """

    aliases: Aliases
    names: dict[Value, str]
    single: set[Value]
    doubtful: dict[Value, Loc] = field(default_factory=dict)
    carried: set[Value] = field(default_factory=set)

    def written(self, base: Value, loc: Loc) -> None:
        for other in self.aliases.relatives(base):
            self.doubtful[other] = loc

    def require_certain(self, base: Value) -> None:
        if base in self.doubtful:
            raise AliasError(
                f"{base!r} may share its storage with a tensor that is written in place; "
                "whether it does depends on the call: its sizes, the iteration, the branch taken",
                self.doubtful[base],
            )

    def require_own(self, base: Value, loc: Loc) -> None:
        """A written base is not, and cannot be, a loop variable."""
        found = self.carried & self.aliases.may_be(base)
        if found:
            what = f"{base!r} may share its storage with the loop variable {found.pop()!r} and"
            if base in self.carried:
                what = f"the loop variable {base!r}"
            raise AliasError(
                f"{what} is written in place: in the first iteration that would write the "
                "tensor that it was before the loop",
                loc,
            )


class _Contents:
    """One block: the contents of the storages that it can reach, and how values view them.

    within: the loops and branches around it.
    """

    def __init__(
        self,
        state: _State,
        outer: Block | None = None,
        history: History | None = None,
        within: tuple[str, ...] = (),
    ) -> None:
        self.state, self.out = state, Block(outer)
        self.history, self.within = history, within
        self.contents: dict[Value, Value] = {}
        self.version: Counter[Value] = Counter()
        self.views: dict[Value, StorageView] = {}
        self.derived: dict[StorageView, tuple[int, Value]] = {}

    # -------- values
    def define(self, v: Value) -> None:
        """`v` makes a storage of its own."""
        self.views[v], self.contents[v] = StorageView(v), v
        self.state.doubtful.pop(v, None)

    def bind(self, v: Value, view: StorageView) -> None:
        """`v` is `view`, and holds what the view holds now."""
        self.views[v] = view
        self.keep(view, v)

    def keep(self, view: StorageView, now: Value) -> None:
        if view.steps:
            self.derived[view] = (self.version[view.base], now)

    def read(self, v: Value) -> Value:
        view = self.views[v]
        self.state.require_certain(view.base)
        return self.load(view)

    def load(self, view: StorageView) -> Value:
        """Return the current value of `view`, derived again if its storage has been written
        since."""
        if not view.steps:
            return self.contents[view.base]
        version, value = self.derived.get(view, (-1, view.base))
        if version != self.version[view.base]:
            step = view.steps[-1]
            source = self.load(StorageView(view.base, view.steps[:-1]))
            value = self.out.emit(step.name, (source, *step.operands), step.attrs, step.hint)[0]
            self.keep(view, value)
        return value

    def store(self, view: StorageView, new: Value, loc: Loc, own: bool) -> None:
        """`new` is written through `view`; every view on the way holds what it now sees. Views of
        what the caller sees are derived again: they are views of that.

        own: `new` has been computed in this storage, it is no other tensor.
        """
        base = view.base
        self.state.require_own(base, loc)
        self.state.require_certain(base)
        levels = [StorageView(base, view.steps[:n]) for n in range(len(view.steps) + 1)]
        if not own and (view.steps or not self.marked(base)):
            (new,) = self.out.emit("assign", (new,))
        values = [new]
        for level, step in zip(reversed(levels[:-1]), reversed(view.steps)):
            old = self.load(level)
            rule = view_rule(step.name)
            new = rule.unview(self.out, old, new, *step.operands, **step.attrs)
            values.append(new)
        self.hold(base, new, own and not view.steps)
        for level, value in zip(reversed(levels), values):
            if not self.marked(base):
                self.keep(level, value)
        self.state.written(base, loc)

    def marked(self, base: Value) -> bool:
        return self.out.outer is None and base in self.state.names

    def hold(self, base: Value, new: Value, own: bool = False) -> None:
        """`base` holds `new` from here on. What an input holds is told from equal values."""
        if self.marked(base):
            attrs = {"into": self.state.names[base], "own": own}
            (new,) = self.out.emit("stored", (new,), attrs, base.name)
        self.contents[base] = new
        self.version[base] += 1

    def is_own(self, new: Value) -> bool:
        """Whether nothing but the write knows what is written: it is not a tensor of its own."""
        return new in self.state.single and self.state.aliases.base[new] is new

    # -------- history
    def note(self, verb: str, by: str, v: Value, loc: Loc, moves: int = 1) -> None:
        """A link of every input whose storage `v` has, or may have."""
        if self.history is None:
            return
        history, view = self.history, self.views[v]
        for base in self.state.aliases.may_be(view.base) & history.links.keys():
            own = base is view.base
            text, version = view.text if own else "", history.version[base]
            link = Link(verb, by, text, version, loc, self.within, moves, may=not own)
            history.links[base][link] = None

    def note_reads(self, op: Op) -> None:
        """A view reads nothing, unless it copies."""
        read = op.operands
        if op.row.views:
            read = read[:1] if self.state.aliases.base[op.result] is op.result else ()
        elif op.row.writes or op.name == "keep_gradient":
            read = read[1:]
        for v in dict.fromkeys(read):
            self.note("read", call_of(op), v, op.loc)

    def note_write(self, op: Op) -> None:
        if self.history is None:
            return
        target = op.operands[0]
        for base in self.state.aliases.may_be(self.views[target].base) & self.history.links.keys():
            self.history.version[base] += 1
        by = writer_of(op, self.out.producer)
        self.note("written", by, target, op.loc, op.attrs["moves"])

    # -------- nodes
    def inner(self, node: Region) -> _Contents:
        """A block inside of `node`."""
        return _Contents(self.state, self.out, self.history, (*self.within, node.name))

    def run(self, ops: Sequence[Node]) -> None:
        for node in ops:
            self.out.at(node)
            if isinstance(node, Scan):
                self.scan(node)
            elif isinstance(node, Cond):
                self.cond(node)
            elif isinstance(node, Custom):
                self.custom(node)
            elif isinstance(node, Op) and node.row.writes:
                self.out.hint = self.views[node.operands[0]].base.name
                target, new = node.operands
                self.note_reads(node)
                self.note_write(node)
                own = node.attrs["own"] and self.is_own(new)
                self.store(self.views[target], self.read(new), node.loc, own)
            else:
                self.plain(node)

    def plain(self, node: Node) -> None:
        assert isinstance(node, Op), "kernels are fused after functionalize"
        operands = tuple(map(self.read, node.operands))
        self.note_reads(node)
        self.out.append(replace(node, operands=operands))
        source = self.views[node.operands[0]] if node.row.views else None
        for r in node.results:
            if source is None or self.state.aliases.base[r] is r:
                self.define(r)
            else:
                known = self.history is not None and source.base in self.history.links
                text = view_text(node) if known else ""
                step = ViewStep(node.name, operands[1:], node.attrs, r.name, text)
                self.bind(r, source.then(step))

    # -------- loops and branches
    def scan(self, s: Scan) -> None:
        body = self.inner(s)
        entry = _Entry(self, s, (body,))
        body.define(s.index)
        inits: dict[Port, Value] = {p: self.read(p.init) for p in s.carries}
        for init in dict.fromkeys(p.init for p in s.carries):
            self.note("read", s.name, init, s.loc)
        if s.go is not None:
            inits[s.go] = self.read(s.go.init)
        for p in s.ports:
            if isinstance(p, Const):
                entry.const(p)
            elif isinstance(p, Seq):
                entry.seq(p, s.index)
        for base, loc in self.state.aliases.touched[s].items():
            self.state.written(base, loc)
        for p in s.carries:
            body.define(p.inner)
        before = set(self.state.carried)
        self.state.carried |= {p.inner for p in s.carries}
        body.run(s.body)
        self.state.carried = before
        ports = [*entry.ports, *(self.leaving(body, p, inits) for p in s.ports if _leaves(p))]
        after: dict[Value, Value] = {}
        for base, inner in entry.written.items():
            last = Value(base.type, base.name)
            ports.append(Carry(inner, self.contents[base], body.contents[base], last))
            after[base] = last
        self.out.at(s)
        self.out.append(replace(s, ports=in_order(ports), body=tuple(body.out.ops)))
        for base, last in after.items():
            self.hold(base, last)
        for v in s.results:
            self.define(v)

    @staticmethod
    def leaving(body: _Contents, p: Port, inits: dict[Port, Value]) -> Port:
        """A port whose inner side is read at the end of the body."""
        if isinstance(p, (Carry, LoopCondition)):
            return replace(p, init=inits[p], next=body.read(p.next))
        assert isinstance(p, (Stack, Last))
        return replace(p, inner=body.read(p.inner))

    def cond(self, c: Cond) -> None:
        bodies = self.inner(c), self.inner(c)
        test = self.read(c.test)
        entry = _Entry(self, c, bodies)
        for p in c.ins:
            entry.const(p)
        for base, inner in entry.written.items():
            entry.ports.append(Const(inner, self.contents[base]))
        before = dict(self.state.doubtful)
        after: dict[Value, Loc] = {}
        leaving = []
        for body, (ops, values) in zip(bodies, c.branches):
            self.state.doubtful = dict(before)
            body.run(ops)
            leaving.append([body.read(v) for v in values])
            after |= self.state.doubtful
        self.state.doubtful = after
        outs = [Join(j.outer, a, b) for j, a, b in zip(c.outs, *leaving)]
        now = {base: Value(base.type, base.name) for base in entry.written}
        for base, joined in now.items():
            outs.append(Join(joined, *(body.contents[base] for body in bodies)))
        then, orelse = (tuple(body.out.ops) for body in bodies)
        ins = tuple(p for p in entry.ports if isinstance(p, Const))
        self.out.at(c)
        self.out.append(Cond(test, ins, then, orelse, tuple(outs), c.loc))
        for base, joined in now.items():
            self.hold(base, joined)
        for v in c.results:
            self.define(v)

    def custom(self, c: Custom) -> None:
        if self.state.aliases.written[c]:
            raise AliasError(
                "forward or backward of a PyLayer writes a tensor of the code around it in place",
                c.loc,
            )
        body, back = self.inner(c), _Contents(self.state, self.out)
        entry = _Entry(self, c, (body,))
        for p in c.ins:
            entry.const(p)
        body.run(c.forward)
        for v in (*c.given, *(p.inner for p in c.saved)):
            back.define(v)
        back.run(c.backward)
        self.out.at(c)
        self.out.append(
            replace(
                c,
                ins=tuple(p for p in entry.ports if isinstance(p, Const)),
                forward=tuple(body.out.ops),
                outs=tuple((outer, body.read(inner)) for outer, inner in c.outs),
                saved=tuple(Const(p.inner, body.read(p.outer)) for p in c.saved),
                backward=tuple(back.out.ops),
                grads=tuple(g if g is None else back.read(g) for g in c.grads),
            )
        )
        for v in c.results:
            self.define(v)


class _Entry:
    """The values that enter the blocks of a loop or a branch: const and seq ports, and the storages
    that it writes. `written`: their bases, with the contents on entry; the caller makes ports for
    them.
    """

    def __init__(self, outer: _Contents, node: Region, bodies: tuple[_Contents, ...]) -> None:
        self.outer, self.bodies = outer, bodies
        self.ports: list[Const | Seq] = []
        self.imported: dict[Value, Value] = {}
        bases = outer.state.aliases.written[node]
        self.written = {base: Value(base.type, base.name) for base in bases}
        for body in bodies:
            body.contents |= self.written

    def const(self, p: Const) -> None:
        view = self.outer.views[p.outer]
        if view.base in self.written:
            for body in self.bodies:
                body.views[p.inner] = self.inside(view)
        else:
            self.bind(replace(p, outer=self.outer.read(p.outer)), view.base, view.text)

    def seq(self, p: Seq, index: Value) -> None:
        view = self.outer.views[p.outer]
        if view.base not in self.written:
            text = view.text + seq_text(p, index)
            self.bind(replace(p, outer=self.outer.read(p.outer)), view.base, text)
            return
        (body,) = self.bodies
        at = at_index(body.out, index, p.start, p.step)
        text = seq_text(p, index)
        select = ViewStep("dynamic_index", (at,), {"axis": p.axis}, p.inner.name, text)
        body.views[p.inner] = self.inside(view).then(select)

    def bind(self, p: Const | Seq, base: Value, text: str) -> None:
        self.ports.append(p)
        for body in self.bodies:
            body.bind(p.inner, StorageView(base, (ViewStep("port", (), {}, text=text),)))

    def inside(self, view: StorageView) -> StorageView:
        """A view of a storage that is written inside, on values of the inside."""
        steps = [replace(s, operands=tuple(map(self.bring, s.operands))) for s in view.steps]
        return StorageView(view.base, tuple(steps))

    def bring(self, v: Value) -> Value:
        """A value of the outer block, inside."""
        if v not in self.imported:
            self.imported[v] = Value(v.type, v.name)
            self.ports.append(Const(self.imported[v], v))
        return self.imported[v]


def _leaves(p: Port) -> bool:
    return not isinstance(p, (Const, Seq))


def at_index(b: Block, index: Value, start: Dim, step: int) -> Value:
    """`start + step * index` as ops on i64[]."""
    at = start + Size.named(INDEX) * step
    return emitted(at, {INDEX: index}, lambda name, xs, attrs: b.emit(name, xs, attrs)[0])


__all__ = ["functionalize"]
