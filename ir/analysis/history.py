"""The history of each input's storage, in program order, before `functionalize`.

    chain of buffer "mean"                       version 0: read by scale @ model.py:7
    copy_(%mean, %new)                     =>    version 1: written by add @ model.py:8
    %row = pick(%mean, axis=0, index=1)          version 1: read by exp through [1] @ model.py:9

A version is the content of the storage between two writes. Ops in loops and branches count once; an
op that reaches the storage only in some calls (through a variable of a loop that starts as an
input) is a link with `may`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ir.loc import Loc
from ir.opdef import view_rule
from ir.program import Node, Op, Program, Seq, Value
from ir.types import Size

#: kinds of inputs whose storage the caller sees
KINDS = ("param", "buffer", "arg")


@dataclass(frozen=True)
class Link:
    """One op on the storage.

    verb: "read", "written" or "returned"; by: the op; through: its view of the storage;
    version: the number of writes before, this one included; within: the loops and branches around;
    moves: the increments of the version that Paddle counts; may: it happens in some calls only.
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

    end: "output", "backward", "output and backward", "written" (nothing reads the last version), or
    "none" for an input that is not written.
    broken: the reason why it does not stay in place, with the line; empty if it does.
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
        """True for a write that leaves the version counter of Paddle unchanged."""
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


class History:
    """The history that `functionalize` records: the links of every input, and its version so
    far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.links: dict[Value, dict[Link, None]] = {i.value: {} for i in program.inputs}
        self.version = dict.fromkeys(self.links, 0)

    def chains(self) -> tuple[Chain, ...]:
        """The chain of every parameter, buffer and argument."""
        return tuple(
            Chain(k, i.kind, i.name, links, _end(links))
            for k, i in enumerate(self.program.inputs)
            if i.kind in KINDS
            for links in [tuple(self.links[i.value])]
        )


def ended(chain: Chain, output: bool, backward: bool) -> Chain:
    """The chain with its end, given the outputs and the values kept for the backward."""
    if not chain.written:
        return chain
    ends = [name for name, is_ in (("output", output), ("backward", backward)) if is_]
    return replace(chain, end=" and ".join(ends) or "written")


def _end(links: Sequence[Link]) -> str:
    if not any(q.verb == "written" for q in links):
        return "none"
    return "output" if any(q.verb == "returned" for q in links) else "written"


# ---------------------------------------------------------------- ops and views as text
def call_of(op: Op) -> str:
    """The name by which a report calls an op."""
    return str(op.attrs["call"]) if op.name == "foreign" else op.name


def writer_of(write: Op, producer: Mapping[Value, Node]) -> str:
    """The op that has computed in place what `write` stores; "" if it stores another tensor."""
    maker = producer.get(write.operands[1])
    if isinstance(maker, Op) and maker.name == "keep_gradient":
        maker = producer.get(maker.operands[1])
    if not isinstance(maker, Op):
        return ""
    return call_of(maker) if write.attrs["own"] or maker.name == "foreign" else ""


def seq_text(p: Seq, index: Value) -> str:
    return f"[{':, ' * p.axis}{index.name or 't'}]"


def view_text(op: Op) -> str:
    """A view as Python writes it."""
    x, *at = op.operands
    names = (Size.named(v.name or "i") for v in at)
    return str(view_rule(op.name).python(_Text(x.type.ndim), *names, **op.attrs))


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

    def view(self, shape: Any) -> str:
        return ""


def _subscript(at: Any) -> str:
    if not isinstance(at, slice):
        return str(at)
    start, stop = ("" if q is None else str(q) for q in (at.start, at.stop))
    step = "" if at.step is None else f":{at.step}"
    return f"{start}:{stop}{step}"


__all__ = [
    "KINDS",
    "Chain",
    "History",
    "Link",
    "call_of",
    "ended",
    "seq_text",
    "view_text",
    "writer_of",
]
