"""What happens to the storage of each input, in the order of the program, before `functionalize`.

    chain of buffer "mean"                       version 0: read by scale @ model.py:7
    copy_(%mean, %new)                     =>    version 1: written by add @ model.py:8
    %row = index(%mean, axis=0, index=1)          version 1: read by exp through [1] @ model.py:9

A version is what the storage holds between two writes. Ops in loops and branches count once; those
that reach the storage only in some calls (a variable of a loop that starts as an input) are links
that `may` be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ir.analysis.alias import Aliases, analyse
from ir.loc import Loc
from ir.opdef import view_rule
from ir.program import Carry, Cond, Const, Custom, Node, Op, Program, Scan, Seq, Slot, Value
from ir.rewrite import blocks
from ir.types import Size

#: kinds of inputs whose storage the caller sees
KINDS = ("param", "buffer", "arg")


@dataclass(frozen=True)
class Link:
    """One op on the storage.

    verb: "read", "written" or "returned"; by: the op; through: how it looks at the storage;
    version: how many writes came before, this one included; within: the loops and branches around;
    moves: by how much the version that Paddle counts moves; may: it depends on the call.
    """

    verb: str
    by: str
    through: str
    version: int
    loc: Loc
    within: tuple[str, ...] = ()
    moves: int = 1
    may: bool = False

    def __str__(self) -> str:
        verb = f"may be {self.verb}" if self.may else self.verb
        text = f"version {self.version}: {verb}" + (f" by {self.by}" if self.by else "")
        text += f" through {self.through}" if self.through else ""
        text += f", in a {' in a '.join(reversed(self.within))}" if self.within else ""
        return f"{text} @ {self.loc}" if self.loc.line > 0 else text


@dataclass(frozen=True)
class Chain:
    """The links of input number `index`, first to last.

    end: "output", "backward", "output and backward", "written" (nothing reads what is written
    last), or "none" for an input that is not written.
    broken: why it does not stay in place, with the line; empty if it does.
    """

    index: int
    kind: str
    name: str
    links: tuple[Link, ...]
    end: str = "none"
    broken: tuple[tuple[str, Loc], ...] = ()

    @property
    def written(self) -> bool:
        return any(q.verb == "written" for q in self.links)

    @property
    def in_place(self) -> bool:
        return not self.broken

    @property
    def quiet(self) -> Link | None:
        """A write after which the version that Paddle counts is as before."""
        return next((q for q in self.links if q.verb == "written" and not q.moves), None)

    @property
    def loud(self) -> Link | None:
        """A write that moves the version."""
        return next((q for q in self.links if q.verb == "written" and q.moves), None)

    def __str__(self) -> str:
        state = "in place" if self.in_place else "not in place"
        head = f"{self.kind} {self.name}: "
        head += f"{state}, {ENDS[self.end]}" if self.written else "only read"
        lines = [head, *(f"  {q}" for q in self.links)]
        for reason, loc in self.broken:
            lines.append(f"  copied: {reason}" + (f" @ {loc}" if loc.line > 0 else ""))
        return "\n".join(lines)


ENDS = {
    "output": "returned",
    "backward": "kept for the backward",
    "output and backward": "returned and kept for the backward",
    "written": "only written",
    "none": "not written",
}


def chains(program: Program) -> tuple[Chain, ...]:
    """The chain of every parameter, buffer and argument of a program with writes and views."""
    found = _Walker(program)
    found.block(program.ops, ())
    for v in program.outputs:
        found.returned(v.input if isinstance(v, Slot) else v)
    return tuple(
        Chain(k, i.kind, i.name, tuple(links), _end(links))
        for k, i in enumerate(program.inputs)
        if i.kind in KINDS
        for links in [found.links[i.value]]
    )


def ended(chain: Chain, output: bool, backward: bool) -> Chain:
    """The chain when it is known what the caller gets and what is kept."""
    if not chain.written:
        return chain
    ends = [name for name, is_ in (("output", output), ("backward", backward)) if is_]
    return replace(chain, end=" and ".join(ends) or "written")


def _end(links: Sequence[Link]) -> str:
    if not any(q.verb == "written" for q in links):
        return "none"
    return "output" if any(q.verb == "returned" for q in links) else "written"


class _Walker:
    """`views`: how a value looks at its storage; `makers`: the op of a value."""

    def __init__(self, program: Program) -> None:
        self.aliases: Aliases = analyse(program)
        inputs = [i.value for i in program.inputs]
        self.links: dict[Value, list[Link]] = {v: [] for v in inputs}
        self.version = dict.fromkeys(inputs, 0)
        self.views: dict[Value, str] = {}
        self.makers: dict[Value, Op] = {}

    def block(self, ops: Sequence[Node], within: tuple[str, ...]) -> None:
        for node in ops:
            if isinstance(node, Scan):
                self.scan(node, within)
            elif isinstance(node, (Cond, Custom)):
                for p in node.ins:
                    self.views[p.inner] = self.views.get(p.outer, "")
                for inside, _ in blocks(node)[: 2 if isinstance(node, Cond) else 1]:
                    self.block(inside, (*within, node.name))
            elif isinstance(node, Op):
                self.op(node, within)

    def scan(self, s: Scan, within: tuple[str, ...]) -> None:
        for p in s.ports:
            if isinstance(p, Const):
                self.views[p.inner] = self.views.get(p.outer, "")
            elif isinstance(p, Seq):
                at = f"[{':, ' * p.axis}{s.index.name or 't'}]"
                self.views[p.inner] = self.views.get(p.outer, "") + at
            elif isinstance(p, Carry):
                self.link("read", s.name, p.init, s.loc, within)
        self.block(s.body, (*within, s.name))

    def op(self, op: Op, within: tuple[str, ...]) -> None:
        self.makers.update(dict.fromkeys(op.results, op))
        if op.row.views:
            (x, *_), (y, *_) = op.operands, op.results
            self.views[y] = self.views.get(x, "") + _step(op)
            if self.aliases.base[y] is y:
                self.link("read", op.name, x, op.loc, within)
            return
        read = op.operands[1:] if op.row.writes or op.name == "keep_gradient" else op.operands
        for v in dict.fromkeys(read):
            self.link("read", _name(op), v, op.loc, within)
        if op.row.writes:
            self.write(op, op.operands[0], within)

    def write(self, op: Op, target: Value, within: tuple[str, ...]) -> None:
        maker = self.makers.get(op.operands[1])
        if maker is not None and maker.name == "keep_gradient":
            maker = self.makers.get(maker.operands[1])
        by = _name(maker) if maker is not None and (op.attrs["own"] or _foreign(maker)) else ""
        for base in self.reached(target):
            self.version[base] += 1
        self.link("written", by, target, op.loc, within, op.attrs["moves"])

    def returned(self, v: Value) -> None:
        self.link("returned", "", v, Loc("", 0), ())

    def reached(self, v: Value) -> list[Value]:
        base = self.aliases.base[v]
        return [b for b in self.links if b in self.aliases.may_be(base)]

    def link(
        self, verb: str, by: str, v: Value, loc: Loc, within: tuple[str, ...], moves: int = 1
    ) -> None:
        base = self.aliases.base[v]
        for b in self.reached(v):
            through = self.views.get(v, "") if b is base else ""
            version = self.version[b]
            new = Link(verb, by, through, version, loc, within, moves, may=b is not base)
            if new not in self.links[b]:
                self.links[b].append(new)


def _foreign(op: Op) -> bool:
    return op.name == "foreign"


def _name(op: Op) -> str:
    return str(op.attrs["call"]) if _foreign(op) else op.name


@dataclass(frozen=True)
class _Text:
    """An array-like of which a view is its text, as far as that says something."""

    ndim: int

    def __getitem__(self, at: tuple[Any, ...]) -> str:
        return f"[{', '.join(map(_subscript, at))}]"

    def __getattr__(self, method: str) -> Callable[..., str]:
        return lambda *arguments: f".{method}"

    def detach(self) -> str:
        return ""


def _subscript(at: Any) -> str:
    if not isinstance(at, slice):
        return str(at)
    start, stop = ("" if q is None else str(q) for q in (at.start, at.stop))
    step = "" if at.step is None else f":{at.step}"
    return f"{start}:{stop}{step}"


def _step(op: Op) -> str:
    """A view as Python writes it."""
    x, *at = op.operands
    names = (Size.named(v.name or "i") for v in at)
    return str(view_rule(op.name).python(_Text(x.type.ndim), *names, **op.attrs))


__all__ = ["KINDS", "Chain", "Link", "chains", "ended"]
