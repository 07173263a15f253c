"""What became of a function: its loops and branches, and the ops that Paddle's own kernels run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ir import Loc


@dataclass(frozen=True)
class LoopNote:
    """One loop. `kind` is `scan` (counted), `while` (data ends it) or `unrolled`; `reason` says
    why, or what was peeled."""

    kind: str
    loc: Loc
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.loc}: {self.kind}" + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True)
class Report:
    """`loops` in the order of the program; `conds` are the places of branches on data; `foreign`
    are ops without a row, by name."""

    loops: tuple[LoopNote, ...]
    foreign: tuple[tuple[str, Loc], ...]
    conds: tuple[Loc, ...] = ()

    @property
    def foreign_counts(self) -> dict[str, int]:
        """How many ops of each name Paddle's own kernels run."""
        return dict(Counter(name for name, _ in self.foreign))

    def __str__(self) -> str:
        lines = [f"loops: {len(self.loops)}", *(f"  {q}" for q in self.loops)]
        if self.conds:
            lines += [f"branches on data: {len(self.conds)}", *(f"  {q}" for q in self.conds)]
        lines.append(f"foreign ops: {len(self.foreign)}")
        lines += [f"  {loc}: {name}" for name, loc in self.foreign]
        return "\n".join(lines)


def make_report(notes: list[tuple[str, Loc, str]]) -> Report:
    """From a trace's notes (kind, place, text)."""
    loops = tuple(LoopNote(*q) for q in notes if q[0] not in ("foreign", "cond"))
    foreign = tuple((text, loc) for kind, loc, text in notes if kind == "foreign")
    conds = dict.fromkeys(loc for kind, loc, _ in notes if kind == "cond")
    return Report(loops, foreign, tuple(conds))
