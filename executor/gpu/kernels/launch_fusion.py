"""Launch fusion: runs of launches in a program, its loops and branches, and products of one state
in a loop, become one launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from executor.launches import Gemm, Launch, Loop, Map, blocks, results, views, with_blocks
from executor.memory import Buffer, Element, View, memory_of
from ir.layout import contiguous
from ir.scalar.language import input_
from ir.types import Dim, Size, product

#: whether some launches are the only ones that touch memory, and the caller does not see it
Own: TypeAlias = Callable[[Sequence[Launch], Buffer], bool]
#: what stands for the launches from a place on, and how many those are
Family: TypeAlias = Callable[[Sequence[Launch], int, Own], tuple[list[Launch], int] | None]


def owner(launches: Sequence[Launch]) -> Own:
    """For the launches of a program, or those that stand for some of them."""
    touches = Counter(touched(launches))

    def own(some: Sequence[Launch], b: Buffer) -> bool:
        return b.kind == "arena" and touches[b] == sum(q is b for q in touched(some))

    return own


def grouped(launches: Sequence[Launch], *families: Family) -> list[Launch]:
    """The launches with each run that a family covers as one; families that come first choose
    first."""
    return _grouped(launches, families, owner(launches))


def _grouped(launches: Sequence[Launch], families: Sequence[Family], own: Own) -> list[Launch]:
    out: list[Launch] = []
    at = 0
    while at < len(launches):
        runs = (f(launches, at, own) for f in families)
        found, count = next((r for r in runs if r is not None), ([], 0))
        if not count:
            found = [with_blocks(launches[at], lambda q: _grouped(q, families, own))]
        out += found
        at += max(count, 1)
    return out


def touched(launches: Sequence[Launch]) -> Iterator[Buffer]:
    """The memory that launches touch, each as often as they do."""
    for x in launches:
        for v in views(x):
            yield from memory_of(v.buffer)
        for inside in blocks(x):
            yield from touched(inside)


# ---------------------------------------------------------------- loops
def is_constant(v: View, bound: frozenset[str]) -> bool:
    """Whether a view is the same memory in all iterations; `bound` are the symbols of the loop."""
    dims: Sequence[Dim] = (v.offset, *v.shape, *v.strides)
    names = frozenset().union(*(d.names for d in dims if isinstance(d, Size)))
    return not isinstance(v.buffer, Element) and names.isdisjoint(bound)


@dataclass(frozen=True)
class LoopParts:
    """A loop after grouping: the launches before and behind it, and its body."""

    before: list[Launch]
    body: tuple[Launch, ...]
    after: list[Launch]


def joined(x: Loop, at: int, own: Own) -> LoopParts | None:
    """Products of one state with several matrices as one, whose columns are side by side: the
    matrices are copied before the loop. The launch behind them takes all results."""
    end = next((k for k, q in enumerate(x.body) if k >= at and not isinstance(q, Gemm)), at)
    gemms, map_ = [q for q in x.body[at:end] if isinstance(q, Gemm)], x.body[end : end + 1]
    if len(gemms) < 2 or not isinstance(map_[0], Map) or _is_short(x):
        return None
    written, c = set(_written(x.body)), gemms[0].c
    run: list[Launch] = [*gemms, map_[0]]
    if not all(_is_alike(x, g, gemms[0], map_[0]) and own(run, g.c.buffer) for g in gemms):
        return None
    if any(g.y.buffer in written for g in gemms):
        return None
    y, sums = _wide(gemms[0].y, len(gemms)), _wide(c, len(gemms))
    at_y, at_c = ([v.slice(v.ndim - 1, k * _columns(c), _columns(c)) for k in range(len(gemms))]
                  for v in (y, sums))  # fmt: skip
    gates = {g.c: v for g, v in zip(gemms, at_c)}
    copies: list[Launch] = [copied(g.y, v) for g, v in zip(gemms, at_y)]
    joint = (replace(gemms[0], y=y, c=sums), reading(map_[0], gates))
    return LoopParts(copies, (*x.body[:at], *joint, *x.body[end + 1 :]), [])


def _is_short(x: Loop) -> bool:
    """Whether it is not worth a copy of a matrix."""
    return isinstance(x.trip, int) and x.trip < 4


def _is_alike(x: Loop, g: Gemm, first: Gemm, map_: Map) -> bool:
    names = frozenset({x.index, x.parity, x.after, x.count})
    same = g.x == first.x and g.y.shape == first.y.shape and g.y.dtype == first.y.dtype
    whole = all(v == g.c for v in map_.ins if v.buffer is g.c.buffer)
    sizes = all(isinstance(n, int) for n in g.y.shape) and g.y.ndim == 2
    return (
        same
        and whole
        and sizes
        and g.initial is None
        and g.c.contiguous
        and (g.c.shape == map_.shape and g.c.dtype == first.c.dtype and is_constant(g.y, names))
    )


def _written(launches: Sequence[Launch]) -> Iterator[Buffer]:
    for x in launches:
        yield from (b for v in results(x) for b in memory_of(v.buffer))
        for inside in blocks(x):
            yield from _written(inside)


def _columns(v: View) -> int:
    n = v.shape[-1]
    assert isinstance(n, int)
    return n


def _wide(v: View, count: int) -> View:
    """Memory for so many like this one, side by side."""
    shape = (*v.shape[:-1], _columns(v) * count)
    memory = Buffer("arena", 0, product(shape) * v.dtype.size)
    return View(memory, v.dtype, 0, shape, contiguous(shape))


def copied(source: View, to: View) -> Map:
    return Map(to.shape, (source,), (input_(0, to.dtype),), (to,))


def reading(x: Map, other: Mapping[View, View]) -> Map:
    """An elementwise launch that reads other memory."""
    return replace(x, ins=tuple(other.get(v, v) for v in x.ins))
