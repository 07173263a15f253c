"""Conditions on the sizes of a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from dy2st.trace.frames import Frame, TracedLoop
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import bounds, decided, dim_of, dim_value, is_symint, make
from dy2st.trace.trace_state import TraceInterface
from ir import Builder, Require, Size, Value
from ir.analysis.ranges import never_negative
from ir.messages import HOLE
from ir.types import Dim, names_in, slope, substitute_dim


class Conditions(TraceInterface):
    """Conditions on the sizes of a program: noted where Python has relied on them, checked when the
    program is called, or by the program if they depend on one of its loops."""

    frames: list[Frame]

    def note_requires(self, builder: Builder) -> None:
        new, builder.requires[:] = list(builder.requires), []
        for r in new:
            self.add_require(r)

    def add_require(self, r: Require) -> None:
        gap = r.left - r.right
        if isinstance(gap, Size) and any(n in self.sizes.loops for n in gap.names):
            return self.require_in_loops(r)
        names = {n for d in (r.left, r.right) if isinstance(d, Size) for n in d.names}
        if not names.isdisjoint(self.sizes.counts):
            divided = self.sizes.of_dividend(gap, r.relation)
            for low in divided or ():
                self.add_require(replace(r, left=low, relation=">=", right=0))
            return None if divided else self.check_require(r)
        self.frame.requires.setdefault(str(r), r)

    def follows(self, dim: Dim) -> bool:
        """Whether `dim >= 0` follows from the fact that the loops around run."""
        trips = [f.loop.trip for f in self.frames if f.loop is not None]
        return any(isinstance(n, Size) for n in trips) and never_negative(
            dim, tuple(n - 1 for n in trips)
        )

    def require_in_loops(self, r: Require) -> None:
        """A condition on the indices of loops must hold in every iteration."""
        gap = r.left - r.right
        ends = bounds(gap, self) if r.relation == ">=" else None
        if ends is not None and self.sizes.settle(ends[0]) >= 0:
            if isinstance(ends[0], Size) and not self.follows(ends[0]):
                self.add_require(replace(r, left=ends[0], right=0))
            return
        later = bounds(gap, self, skip=1) if ends is not None else None
        peel = later is not None and self.sizes.settle(later[0]) >= 0
        raise NeedsConcrete(
            f"{self.sym(r.left)!r} {r.relation} {self.sym(r.right)!r} depends on the iteration",
            make(gap, self).loops,
            peel,
        )

    def check_require(self, r: Require) -> None:
        """A condition on a size that data decides is checked when the program runs, and is a fact
        from there on."""
        row, attrs = as_check(r)
        values = [self.dim_value(r.left), self.dim_value(r.right)]
        self.emit("check", [self.emit(row, values, {}), *values], attrs)
        if r.relation == "==":
            self.frame.facts |= {("eq", r.left - r.right)}

    def require_branch(self, op: str, low: Dim, high: Dim, known: bool) -> None:
        """Python took a branch on named sizes: the program holds only where it goes that way.

        op, low, high: the comparison of a number in [low, high] with zero.
        """
        opposite = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
        holds = op if known else opposite[op]
        ends = {low, high}
        if holds == "ne" and low != high:
            holds, ends = ("gt", {low}) if self.sizes.settle(low) > 0 else ("lt", {high})
        for dim in ends:
            if isinstance(dim, Size):
                self.require_sign(dim, holds)

    def path_conditions(self) -> Iterator[tuple[str, Dim]]:
        """Comparisons of sizes that hold in the branches around."""
        for frame in self.frames:
            yield from ((op, gap) for op, gap in frame.facts if isinstance(gap, Size))

    def facts_here(self) -> frozenset[tuple[str, object]]:
        """Return the path conditions of the enclosing branches."""
        return frozenset().union(*(frame.facts for frame in self.frames))

    def require_sign(self, dim: Dim, holds: str) -> None:
        """The condition `dim <holds> 0` in the relations that programs know."""
        left, relation, right = {
            "eq": (dim, "==", 0),
            "ne": (dim, "!=", 0),
            "ge": (dim, ">=", 0),
            "gt": (dim, ">=", 1),
            "le": (0 - dim, ">=", 0),
            "lt": (0 - dim, ">=", 1),
        }[holds]
        if relation != ">=" or not (self.follows(left - right) or self.sizes.surely(left, right)):
            self.add_require(Require(left, relation, right, "a branch of Python", self.where()))

    def require(self, dim: Dim, least: int, reason: str) -> None:
        if isinstance(dim, Size) and not self.sizes.surely(dim, least):
            self.add_require(Require(dim, ">=", least, reason, self.where()))

    def index_value(self, n: object) -> Value:
        """An i64[] value for an int or a size, once per frame."""
        return self.dim_value(dim_of(n))

    def dim_value(self, dim: Dim) -> Value:
        return dim_value(self, dim)

    def sym(self, dim: Dim) -> Any:
        return make(dim, self)

    def is_local(self, dim: Dim, frame: Frame) -> bool:
        """Whether a size is known only in `frame`, which is about to end."""
        known = self.frames[: self.frames.index(frame)] if frame in self.frames else self.frames
        return not self.sizes.is_known(dim, known)


def as_check(r: Require) -> tuple[str, dict[str, object]]:
    """The op that compares the two sides of a condition, and the attributes of the check."""
    row, words = {
        "==": ("equal", "be"),
        "!=": ("not_equal", "not be"),
        ">=": ("greater_equal", "be at least"),
    }[r.relation]
    message = f"a size that data decides is {HOLE}, and must {words} {HOLE} ({r.reason})"
    return row, {"error": "ValueError", "message": message, "shown": (("str", ""),) * 2}


# ---------------------------------------------------------------- the last iterations
def cut_off(op: str, gap: Dim, home: TraceInterface) -> int:
    """How many of the last iterations have to run apart so that a comparison with zero is the same
    in all others; 0 if that does not help, they cannot, or the others are fewer."""
    names = gap.names if isinstance(gap, Size) else ()
    loops = [home.sizes.loops[n] for n in names if n in home.sizes.loops]
    factor = slope(gap, loops[0].name) if len(loops) == 1 else None
    if not isinstance(factor, int):
        return 0
    (loop,) = loops
    first = substitute_dim(gap, {loop.name: 0})
    for k in range(1, cut_at_most(loop, home) + 1):
        if loop.limit is None or factor % loop.limit[0]:
            last = first + (loop.trip - 1 - k) * factor
        else:
            last = first + (loop.limit[1] - loop.limit[0] * k) * (factor // loop.limit[0])
        low, high = (first, last) if factor > 0 else (last, first)
        ends = home.sizes.extreme(low, False), home.sizes.extreme(high, True)
        if None not in ends and decided(op, *ends, home) is not None:  # type: ignore[arg-type]
            return k
    return 0


def cut_for(loop: TracedLoop, home: TraceInterface) -> int:
    """As `cut_off`, for the comparisons of a body."""
    found = [cut_off(op, gap, home) for op, gap in loop.compared]
    return min(filter(None, found), default=0)


def cut_at_most(loop: TracedLoop, home: TraceInterface) -> int:
    """How many of the last iterations may run apart."""
    if isinstance(loop.trip, int):
        return min(loop.cuttable, loop.trip // 2)
    names, sizes = names_in(loop.trip), home.sizes
    steps = loop.limit is not None or not names.isdisjoint(sizes.quotients)
    if not steps or not names.isdisjoint(sizes.births.keys() - sizes.quotients.keys()):
        return 0
    step = 1 if loop.limit is None else loop.limit[0]
    return min(loop.cuttable, max(1, sizes.settle(loop.trip) // (2 * step)))


def check_cut(op: str, gap: Dim, home: TraceInterface) -> None:
    """Ask for the last iterations to run apart where that settles a comparison."""
    run_apart(cut_off(op, gap, home), make(gap, home).loops)


def check_cuts(loops: Iterable[TracedLoop], home: TraceInterface) -> None:
    """Likewise for the comparisons of sizes with the index of one of these loops."""
    for loop in loops:
        if isinstance(loop.trip, Size):
            run_apart(cut_for(loop, home), [loop])


def run_apart(k: int, loops: Iterable[TracedLoop]) -> None:
    if k:
        reason = f"the last {'iteration differs' if k == 1 else f'{k} iterations differ'}"
        raise NeedsConcrete(reason, loops, cut=k)


def surely_at_most(home: TraceInterface, x: object, y: object) -> bool:
    """Whether an integer that follows from sizes and indices is never larger than another one, in
    any call. No size that data decides is asked."""
    known = _apart_from_data(home, x, y)
    return known and bool(home.sizes.surely(dim_of(y) - dim_of(x), 0))


def _apart_from_data(home: TraceInterface, x: object, y: object) -> bool:
    """Whether no size that data decides is in two integers: what is cut off at one keeps a size
    that data decides."""
    if not all(is_symint(q) or type(q) is int for q in (x, y)):
        return False
    decided_by_data = home.sizes.counts.keys() - home.sizes.quotients.keys()
    return names_in(dim_of(x) - dim_of(y)).isdisjoint(decided_by_data)


def at_most(home: TraceInterface, x: object, y: object) -> bool:
    """Like `surely_at_most`, in the calls that the program is for."""
    if not _apart_from_data(home, x, y):
        return False
    ends = bounds(dim_of(x) - dim_of(y), home)
    if ends is None or decided("le", *ends, home) is not True:
        return False
    home.require_branch("le", *ends, True)
    return True
