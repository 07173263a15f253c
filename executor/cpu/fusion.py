"""Fusion of launches: a reduction is taken where its operand is computed, and what is cheap to
compute again is not stored.

    Map    x, m -> z = x - m, q = z * z        MapReduce x, m -> v = sum((x - m) * (x - m))
    Reduce q -> v                         =>   Map       x, m, v -> y = (x - m) * f(v)
    Map    z, v -> y = z * f(v)

The IR fuses what has one shape; here it is known, besides, which memory is overwritten when, so
that nothing is read later than before that would have to be copied for it. Values stay the same.

What is left may read one operand across the lines of memory and others along them: such an operand
is copied first, block by block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from executor.cpu.kernels.elementwise import order as axes_of
from executor.cpu.kernels.elementwise import transposition
from executor.cpu.kernels.reduce import as_map_reduce, order
from executor.cpu.launches import MapReduce
from executor.cpu.target import Target
from executor.cpu.vector_math import serial
from executor.launches import (
    STRUCTURE,
    Launch,
    Map,
    Number64,
    Reduce,
    blocks,
    results,
    views,
    with_blocks,
)
from executor.memory import Buffer, View, memory_of
from ir.layout import contiguous
from ir.scalar.language import Scalar, input_, nodes
from ir.types import product

#: what nothing is moved across
BARRIERS = tuple(kind for kind in STRUCTURE if kind is not Number64)
#: elements from which on another kernel is worth its compilation
WORTH = 1024
#: launches behind one that are looked at
REACH = 32
#: operations that are cheaper than to store a value and to load it, and how many
CHEAP = frozenset(
    "input const cast add sub mul fma neg abs select lt le gt ge eq ne and or".split()
)
FEW = 8
#: reductions of one kernel, each with registers of its own
MOST = 3


def touched(launches: Sequence[Launch]) -> Iterator[Buffer]:
    """The buffers of each launch, those inside of others included."""
    for x in launches:
        yield from buffers(x)
        for inside in blocks(x):
            yield from touched(inside)


def buffers(x: Launch) -> set[Buffer]:
    """Return the buffers that a launch itself touches."""
    return {b for v in views(x) for b in memory_of(v.buffer)}


def stays(x: Launch) -> bool:
    """Whether nothing may be moved across it: it may fail, or decides what runs."""
    return isinstance(x, BARRIERS) or bool(vars(x).get("error"))


def written(x: Launch) -> set[Buffer]:
    """Return the buffers that a launch, or a launch inside of it, writes."""
    inside = (written(q) for block in blocks(x) for q in block)
    return {v.buffer for v in results(x)}.union(*inside)


def fused(target: Target, launches: Sequence[Launch]) -> tuple[Launch, ...]:
    """The launches of a program, with kernels in common."""
    touches = Counter(touched(launches))

    def block(inside: Sequence[Launch]) -> tuple[Launch, ...]:
        found = _FusionBlock(target, touches, [with_blocks(x, block) for x in inside]).fused()
        return tuple(straightened(target, found))

    return block(launches)


# ---------------------------------------------------------------- operands across
def straightened(target: Target, launches: Sequence[Launch]) -> Iterator[Launch]:
    """The launches, where operands lie along the axis that is walked, or are copied to."""
    copies: dict[tuple[View, int], View] = {}
    for x in launches:
        axis = walked(target, x) if isinstance(x, (Map, MapReduce)) else None
        if isinstance(x, (Map, MapReduce)) and axis is not None:
            made = dict(copies)
            missing = [v for v in x.ins if (v, axis) not in copies]
            found = [q for v in missing if (q := copy_along(target, v, axis)) is not None]
            made.update(((v, axis), to) for v, to, _ in found)
            straight = replace(x, ins=tuple(made.get((v, axis), v) for v in x.ins))
            if isinstance(straight, Map) or order(straight)[0] != "elements":
                yield from (copy for _, _, copy in found)
                x, copies = straight, made
        yield x
        changed = written(x)
        copies = {k: q for k, q in copies.items() if changed.isdisjoint(memory_of(k[0].buffer))}


def walked(target: Target, x: Map | MapReduce) -> int | None:
    """The axis along which the results lie, or, where a reduction lies along none, most of what it
    reads; None where nothing need be copied."""
    long = [a for a, d in enumerate(x.shape) if d != 1]
    if not long:
        return None
    if isinstance(x, Map):
        if transposition(target, x) is not None:
            return None
        axis = [a for a in axes_of(x.outs, x.shape) if a in long][-1]
        return axis if all(v.strides[axis] == 1 for v in x.outs) else None
    if order(x)[0] != "elements":
        return None
    found = Counter({a: 0 for a in reversed(long)})
    for v in x.ins:
        size = product(d for d, s in zip(v.shape, v.strides) if s != 0)
        found.update({a: size for a in long if v.strides[a] == 1 and isinstance(size, int)})
    return found.most_common(1)[0][0]


def copy_along(target: Target, v: View, axis: int) -> tuple[View, View, Map] | None:
    """A large operand that lies along another axis than this one, memory where it lies along this
    one, and the copy to there."""
    axes = [a for a, s in enumerate(v.strides) if s != 0 and a != axis]
    if v.strides[axis] in (0, 1) or not any(v.strides[a] == 1 for a in axes):
        return None
    axes.append(axis)
    dims = [v.shape[a] for a in axes]
    size = product(dims)
    if not isinstance(size, int) or size < WORTH:
        return None
    steps = dict(zip(axes, contiguous(dims)))
    strides = tuple(steps.get(a, 0) for a in range(v.ndim))
    memory = View(Buffer("arena", 0, size * v.dtype.size), v.dtype, 0, v.shape, strides)
    shape = tuple(d if a in steps else 1 for a, d in enumerate(v.shape))
    source, to = (replace(q, shape=shape) for q in (v, memory))
    copy = Map(shape, (source,), (input_(0, v.dtype),), (to,))
    return (v, memory, copy) if transposition(target, copy) is not None else None


@dataclass
class _FusionBlock:
    """The launches of a block, None where one has become part of another. `touches` counts the
    launches of the program that touch a buffer, `at` are the places of those in the block."""

    target: Target
    touches: Counter[Buffer]
    launches: list[Launch | None]
    at: dict[Buffer, set[int]] = field(default_factory=dict)

    def fused(self) -> tuple[Launch, ...]:
        for k, x in enumerate(self.launches):
            assert x is not None
            for b in touched([x]):
                self.at.setdefault(b, set()).add(k)
            if isinstance(x, (Map, Reduce)) and self.joins(x):
                self.launches[k] = general(x)
        for k in range(len(self.launches)):
            self.take_reductions(k)
        for k in range(len(self.launches)):
            self.compute_again(k)
        return tuple(special(x) for x in self.launches if x is not None)

    def joins(self, x: Map | Reduce) -> bool:
        """Whether it may share a kernel with others."""
        if isinstance(x, Reduce):
            return True
        if x.error or serial(x.roots):
            return False
        size = product(x.shape)
        if isinstance(size, int) and size < WORTH:
            return False
        return transposition(self.target, x) is None

    def put(self, k: int, x: Launch | None) -> None:
        """Another launch instead of number `k`."""
        old = self.launches[k]
        assert old is not None
        new = set() if x is None else buffers(x)
        for b in buffers(old) - new:
            self.at[b].discard(k)
            self.touches[b] -= 1
        for b in new - buffers(old):
            self.at.setdefault(b, set()).add(k)
            self.touches[b] += 1
        self.launches[k] = x

    # ------------------------------------------------------------ reductions
    def take_reductions(self, at: int) -> None:
        """Reductions behind number `at`, of what it reads or makes, become part of it."""
        first = self.launches[at]
        if not isinstance(first, MapReduce):
            return
        near = {k for b in buffers(first) for k in self.at[b] if at < k < at + REACH}
        last = max((k for k in near if self.reduces(k)), default=at)
        read: set[Buffer] = set()
        changed: set[Buffer] = set()
        for k in range(at + 1, last + 1):
            x, first = self.launches[k], self.launches[at]
            if x is None:
                continue
            if stays(x):
                break
            assert isinstance(first, MapReduce)
            both = None
            if k in near and isinstance(x, MapReduce) and self.reduces(k):
                free = buffers(x).isdisjoint(changed) and written(x).isdisjoint(read)
                both = with_reduction(first, x) if free else None
            if both is None:
                read |= buffers(x)
                changed |= written(x)
            else:
                self.put(k, None)
                self.put(at, both)

    def reduces(self, k: int) -> bool:
        """Whether number `k` stores reductions only."""
        x = self.launches[k]
        return isinstance(x, MapReduce) and None not in x.rules

    # ------------------------------------------------------------ values that need no memory
    def compute_again(self, at: int) -> None:
        """Results of number `at` that nothing reads, or that their readers compute, go."""
        x = self.launches[at]
        if not isinstance(x, MapReduce):
            return
        for v, root, rule in zip(x.outs, x.roots, x.rules):
            readers = self.readers(at, v) if rule is None else None
            if readers is None:
                continue
            new = [self.computing(at, x, k, v, root) for k in readers]
            if all(q is not None for q in new):
                for k, q in zip(readers, new):
                    self.put(k, q)
                now = self.launches[at]
                assert isinstance(now, MapReduce)
                self.put(at, without(now, v))

    def readers(self, at: int, v: View) -> list[int] | None:
        """The launches that read the result `v` of number `at`; None if nobody knows."""
        b, places = v.buffer, sorted(self.at[v.buffer])
        if b.kind != "arena" or self.touches[b] != len(places):
            return None
        found = []
        held = False
        for k in places:
            x = self.launches[k]
            made = [q for q in results(x) if q.buffer is b] if x is not None else []
            if made and not isinstance(x, (Map, MapReduce)) or any(q != v for q in made):
                return None
            reads = not made or self.reads(k, b)
            if reads and (isinstance(x, BARRIERS) or k in (places[0], at)):
                return None
            if reads and held:
                found.append(k)
            held = k == at or held and not made
        return found

    def reads(self, k: int, b: Buffer) -> bool:
        x = self.launches[k]
        assert isinstance(x, (Map, MapReduce))
        return any(b in memory_of(v.buffer) for v in x.ins)

    def computing(self, at: int, x: MapReduce, k: int, v: View, root: Scalar) -> MapReduce | None:
        """Number `k`, which reads the result `v` of `x`, if it may compute that itself."""
        y = self.launches[k]
        if not isinstance(y, MapReduce) or y.shape != x.shape or not cheap(root):
            return None
        if any(q.buffer is v.buffer and q != v for q in y.ins):
            return None
        used = {int(s.value or 0) for s in nodes([root]) if s.op == "input"}
        ins = [x.ins[q] for q in sorted(used)]
        more = [q for q in ins if q not in y.ins and 0 not in q.strides]
        if len(more) > 1:
            return None
        kept = {b for q in ins for b in memory_of(q.buffer)}
        fresh = {b for q in ins if q not in y.ins for b in memory_of(q.buffer)}
        if any(self.changed(b, at, k) for b in kept) or not fresh.isdisjoint(written(y)):
            return None
        all_ = tuple(dict.fromkeys((*y.ins, *ins)))
        mine = [input_(all_.index(q), q.dtype) if q in ins else None for q in x.ins]
        own = substituted([root], mine)[0]
        values = [own if q == v else input_(all_.index(q), q.dtype) for q in y.ins]
        new = replace(y, ins=all_, roots=tuple(substituted(y.roots, values)))
        return compact(new) if order(compact(new))[0] == order(y)[0] else None

    def changed(self, b: Buffer, start: int, end: int) -> bool:
        """Whether a launch from number `start` up to `end`, that one aside, writes a buffer."""
        found = (self.launches[k] for k in self.at[b] if start <= k < end)
        return any(x is not None and b in written(x) for x in found)


def general(x: Map | Reduce) -> MapReduce:
    """Without axes of length 1, so that what differs in these is alike."""
    if isinstance(x, Reduce):
        m = as_map_reduce(x)
    else:
        m = MapReduce(x.shape, x.ins, x.roots, (), (None,) * len(x.outs), x.outs)
    kept = [a for a, d in enumerate(m.shape) if d != 1]
    ends = [[a for a in range(len(m.shape)) if rule is None or a not in m.axes] for rule in m.rules]
    return replace(
        m,
        shape=tuple(m.shape[a] for a in kept),
        axes=tuple(k for k, a in enumerate(kept) if a in m.axes),
        ins=tuple(picked(v, range(v.ndim), kept) for v in m.ins),
        outs=tuple(picked(v, axes, kept) for v, axes in zip(m.outs, ends)),
    )


def picked(v: View, axes: Sequence[int], kept: Sequence[int]) -> View:
    """A view with `axes` of a launch, less those that are not kept."""
    at = [k for k, a in enumerate(axes) if a in kept]
    shape, strides = (tuple(q[k] for k in at) for q in (v.shape, v.strides))
    return replace(v, shape=shape, strides=strides)


def special(x: Launch) -> Launch:
    """A `Map` where it reduces nothing."""
    if isinstance(x, MapReduce) and all(rule is None for rule in x.rules):
        return Map(x.shape, x.ins, x.roots, x.outs)
    return x


def with_reduction(m: MapReduce, r: MapReduce) -> MapReduce | None:
    """Both as one, if `r` stores no more than reductions and reads a large value that `m` has."""
    reduces = len(m.rules) - m.rules.count(None)
    axes = m.axes if reduces else r.axes
    if r.shape != m.shape or r.axes != axes or None in r.rules:
        return None
    if reduces + len(r.outs) > MOST or not written(r).isdisjoint(buffers(m)):
        return None
    values = [value_behind(m, v) for v in r.ins]
    others = [v for v, value in zip(r.ins, values) if value is None]
    if not any(value is not None and 0 not in v.strides for v, value in zip(r.ins, values)):
        return None
    if any(not written(m).isdisjoint(memory_of(v.buffer)) for v in others):
        return None
    ins = (*m.ins, *others)
    values = [input_(ins.index(v), v.dtype) if q is None else q for v, q in zip(r.ins, values)]
    roots = (*m.roots, *substituted(r.roots, values))
    new = MapReduce(m.shape, ins, roots, axes, (*m.rules, *r.rules), (*m.outs, *r.outs))
    return new if order(new)[0] != "elements" else None


def value_behind(m: MapReduce, x: View) -> Scalar | None:
    """Return the contents of `x` after `m`, as an expression of the inputs of `m`; None if
    unknown."""
    for v, rule, root in zip(m.outs, m.rules, m.roots):
        if v == x and rule is None:
            return root if sum(q.buffer is v.buffer for q in m.outs) == 1 else None
    if written(m).isdisjoint(memory_of(x.buffer)) and x in m.ins:
        return input_(m.ins.index(x), x.dtype)
    return None


def without(m: MapReduce, v: View) -> MapReduce | None:
    """Less one result; None if none is left."""
    kept = [k for k, q in enumerate(m.outs) if q != v]
    if not kept:
        return None
    roots, rules = tuple(m.roots[k] for k in kept), tuple(m.rules[k] for k in kept)
    return compact(replace(m, roots=roots, rules=rules, outs=tuple(m.outs[k] for k in kept)))


def compact(m: MapReduce) -> MapReduce:
    """Without inputs that nothing reads."""
    used = sorted({int(s.value or 0) for s in nodes(m.roots) if s.op == "input"})
    values = [input_(used.index(k), v.dtype) if k in used else None for k, v in enumerate(m.ins)]
    roots = tuple(substituted(m.roots, values))
    return replace(m, ins=tuple(m.ins[k] for k in used), roots=roots)


def cheap(root: Scalar) -> bool:
    """Whether to compute it again takes less than to store and to load it."""
    found = nodes([root])
    simple = all(s.op in CHEAP and s.dtype.compute == s.dtype for s in found)
    return simple and sum(s.op not in ("input", "const") for s in found) <= FEW


def substituted(roots: Sequence[Scalar], values: Sequence[Scalar | None]) -> list[Scalar]:
    """The expressions with other values of their inputs."""
    new: dict[int, Scalar] = {}
    for s in nodes(roots):
        if s.op == "input":
            value = values[int(s.value or 0)]
            assert value is not None
            new[id(s)] = value
        elif s.args:
            new[id(s)] = replace(s, args=tuple(new[id(a)] for a in s.args))
        else:
            new[id(s)] = s
    return [new[id(r)] for r in roots]
