"""Loop rotation: loops whose product comes last, as in the gradients of recurrent cells.

    loop i < T                        P(0)
      P(i)    elementwise             loop i < T - 1
      G(i)    a product         =>      G(i); P(i + 1)     a cell: `executor.gpu.kernels.loops.cell`
      W(i)    a sum of products       G(T - 1)
                                      the sum of all W(i), as one product

The order of everything but W stays. Where what W reads is not kept, each iteration gets memory of
its own for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from executor.gpu.kernels.launch_fusion import Own, copied, is_constant, owner, touched
from executor.launches import (
    Contract,
    Gemm,
    Launch,
    Loop,
    Map,
    Reduce,
    When,
    results,
    views,
    with_blocks,
)
from executor.memory import Buffer, Element, View
from ir.layout import contiguous
from ir.scalar.language import input_
from ir.types import Dim, Size, divide, is_natural, line, names_in, product, slope, substitute_dim

#: what such loops are made of: launches that bind no symbol
Plain: TypeAlias = Map | Gemm | Reduce
#: iterations that are worth it, where their number is known
FEWEST = 4


def rotated(launches: Sequence[Launch]) -> list[Launch]:
    """The launches with all such loops rotated."""
    return _rotated(launches, owner(launches))


def _rotated(launches: Sequence[Launch], own: Own) -> list[Launch]:
    out: list[Launch] = []
    for x in launches:
        x = with_blocks(x, lambda q: _rotated(q, own))
        out += _of_loop(x, own) if isinstance(x, Loop) else [x]
    return out


def _of_loop(x: Loop, own: Own) -> list[Launch]:
    few = isinstance(x.trip, int) and x.trip < FEWEST
    if few or x.go is not None or x.count or not all(map(_is_plain, x.body)):
        return [x]
    named = {n for q in x.body for v in views(q) for n in _names(v)}
    inner = any(n.startswith("#") for n in names_in(x.trip))
    states = [q for q in x.body if _is_state(x, q)]
    if inner or x.parity in named or len(states) != 1 or _changes_shapes(x):
        return [x]
    alone, sums = _without_sums(_without_copies(x, own), own)
    before, whole = _with_one_product(alone, own)
    turned = _turned(whole)
    return [x] if turned is None else [*before, *turned, *sums]


def _changes_shapes(x: Loop) -> bool:
    """Whether iterations work on other shapes: `x[:t+1]`."""
    dims = (d for q in x.body for v in views(q) for d in (*v.shape, *v.strides))
    return any(x.index in names_in(d) for d in dims)


def _is_plain(q: Launch) -> bool:
    here = not any(isinstance(v.buffer, Element) for v in views(q))
    return here and isinstance(q, Plain) and not getattr(q, "error", 0)


def _names(v: View) -> Iterator[str]:
    for d in (v.offset, *v.shape, *v.strides):
        yield from names_in(d)


def _bound(x: Loop) -> frozenset[str]:
    return frozenset({x.index, x.parity, x.after})


def _is_state(x: Loop, q: Launch) -> bool:
    """Whether a product with a constant matrix makes what one elementwise launch before it reads,
    and nothing else does."""
    if not isinstance(q, Gemm) or not all(is_constant(v, _bound(x)) for v in (q.y, q.c)):
        return False
    used = [m for m in x.body if q.c.buffer in touched([m])]
    if len(used) != 2 or used[1] is not q or not isinstance(used[0], Map):
        return False
    seen = {v for v in used[0].ins if v.buffer is q.c.buffer}
    written = any(v.buffer is q.c.buffer for v in used[0].outs)
    itself = sum(v.buffer is q.c.buffer for v in views(q)) > 1
    return q.y.ndim == 2 and seen == {q.c} and not written and not itself


def _changed(x: Any, change: Callable[[View], View]) -> Any:
    """A launch on other views."""

    def other(item: Any) -> Any:
        if isinstance(item, tuple):
            return tuple(map(other, item))
        return change(item) if isinstance(item, View) else item

    return replace(x, **{name: other(item) for name, item in vars(x).items()})


# ---------------------------------------------------------------- copies
def _without_copies(x: Loop, own: Own) -> Loop:
    """The loop, whose elementwise launches write to where their results are copied right behind
    them, and no more to where nothing reads them."""
    body: list[Launch] = []
    for q in x.body:
        before = body[-1] if body else None
        if isinstance(before, Map) and isinstance(q, Map) and _is_copy_of(before, q):
            root = before.roots[before.outs.index(q.ins[0])]
            body[-1] = replace(before, roots=(*before.roots, root), outs=(*before.outs, *q.outs))
        else:
            body.append(q)
    for k, m in enumerate(body):
        if isinstance(m, Map):
            read = set(touched([q for q in body if q is not m])) | {v.buffer for v in m.ins}
            kept = [v.buffer in read or not own([x], v.buffer) for v in m.outs]
            pairs = [p for p, is_kept in zip(zip(m.roots, m.outs), kept) if is_kept]
            body[k] = replace(m, roots=tuple(r for r, _ in pairs), outs=tuple(v for _, v in pairs))
    return replace(x, body=tuple(body))


def _is_copy_of(m: Map, q: Map) -> bool:
    """Whether `q` copies a result of `m` to memory that `m` does not touch where it lies."""
    if len(q.ins) != 1 or len(q.outs) != 1 or q.roots[0].op != "input":
        return False
    (source,), (to,) = q.ins, q.outs
    near = [v for v in (*m.ins, *m.outs) if v.buffer is to.buffer]
    alike = source in m.outs and q.shape == m.shape and to.dtype == source.dtype
    return alike and all(_are_columns(v, to) or _are_columns(to, v) for v in near)


def _are_columns(v: View, w: View) -> bool:
    """Whether `v` and `w` are other columns of the same rows, and those of `v` come first."""
    if v.strides != w.strides or v.shape[:-1] != w.shape[:-1] or v.ndim < 2 or v.strides[-1] != 1:
        return False
    behind = w.offset - v.offset
    row = v.strides[-2]
    return is_natural(behind - v.shape[-1]) and is_natural(row - behind - w.shape[-1])


# ---------------------------------------------------------------- sums of products
def _without_sums(x: Loop, own: Own) -> tuple[Loop, list[Launch]]:
    """The loop without its sums of products, and launches behind it that take them."""
    taken: list[int] = []
    whole = x
    for at in range(len(x.body)):
        q = x.body[at]
        if not isinstance(q, Gemm) or not _is_sum(x, q):
            continue
        kept: Loop | None = x
        for v in (q.x, q.y):
            kept = kept and _with_kept(kept, v, at, own([whole], v.buffer))
        if kept is not None:
            x = kept
            taken.append(at)
    rest = tuple(q for at, q in enumerate(x.body) if at not in taken)
    after = [s for at in taken for s in _sum(x, x.body[at])]
    return replace(x, body=rest), after


def _is_sum(x: Loop, q: Gemm) -> bool:
    """Whether it only adds to what nothing else in the loop touches."""
    alone = not any(q.c.buffer in touched([p]) for p in x.body if p is not q)
    plain = q.c.dtype.compute == q.c.dtype and all(v.ndim == 2 for v in (q.x, q.y, q.c))
    plain = plain and all(line(v.offset, x.index) is not None for v in (q.x, q.y))
    return plain and q.initial == q.c and alone and is_constant(q.c, _bound(x))


def _with_kept(x: Loop, v: View, at: int, own: bool) -> Loop | None:
    """The loop, where launch `at` reads `v`, with what it reads there unchanged at the end."""
    made = [(k, w) for k, q in enumerate(x.body) for w in results(q) if w.buffer is v.buffer]
    if not made:
        return x
    if any(k >= at for k, _ in made):
        return None
    if not is_constant(v, _bound(x)):
        return x if _is_stacked(x, v, [w for _, w in made]) else None
    reads = [
        k
        for k, q in enumerate(x.body)
        for r in views(q)
        if r.buffer is v.buffer and not any(r is w for _, w in made)
    ]
    n = divide(v.buffer.size, v.dtype.size)
    first = own and n is not None and min(reads) > max(k for k, _ in made)
    if not first or not _fills(v, [w for _, w in made]) or product(v.shape) != n:
        return None
    memory = Buffer("arena", 0, x.trip * v.buffer.size)

    def moved(w: View) -> View:
        if w.buffer is not v.buffer:
            return w
        return replace(w, buffer=memory, offset=w.offset + Size.named(x.index) * n)

    return replace(x, body=tuple(_changed(q, moved) for q in x.body))


def _is_stacked(x: Loop, v: View, made: Sequence[View]) -> bool:
    """Whether each iteration writes and reads elements of its own: `made` lies in front of where
    `v` begins in the next one, and not in front of where it begins."""
    step = slope(v.offset, x.index)
    if step is None or not is_natural(step):
        return False
    for w in (v, *made):
        behind = w.offset - v.offset
        fits = is_natural(behind) and is_natural(step - behind - w.span)
        if not fits or slope(w.offset, x.index) != step or not all(map(is_natural, w.strides)):
            return False
    return True


def _fills(v: View, made: Sequence[View]) -> bool:
    """Whether what is made are the columns of `v`, all of them."""
    if not v.contiguous:
        return False
    at: Dim = v.offset
    for w in sorted(made, key=lambda w: str(w.offset - v.offset).zfill(20)):
        same = w.shape[:-1] == v.shape[:-1] and w.strides == v.strides
        if not same or w.offset != at:
            return False
        at = at + w.shape[-1]
    return at == v.offset + v.shape[-1]


def _sum(x: Loop, q: Launch) -> list[Launch]:
    """The sum of all iterations, behind the loop."""
    assert isinstance(q, Gemm)
    left, right = (_all(x, v) for v in (q.x, q.y))
    (m, k), n = q.x.shape, q.y.shape[-1]
    (down, along), steps = left.strides[1:], left.strides[:1]
    a = replace(left, shape=(1, m, x.trip, k), strides=(0, down, *steps, along))
    b = right.insert(0)
    memory = Buffer("arena", 0, m * n * q.c.dtype.size)
    total = View(memory, q.c.dtype, 0, (1, m, n), contiguous((1, m, n)))
    flat = replace(total, shape=(m, n), strides=(n, 1))
    root = input_(0, q.c.dtype) + input_(1, q.c.dtype)
    return [Contract(a, b, total), Map((m, n), (q.c, flat), (root,), (q.c,))]


def _all(x: Loop, v: View) -> View:
    """Return the view of the elements that all iterations read, with the iteration as first
    axis."""
    found = line(v.offset, x.index)
    assert found is not None, "a product of a view that moves otherwise is no such sum"
    start, step = found
    return replace(v, offset=start, shape=(x.trip, *v.shape), strides=(step, *v.strides))


# ---------------------------------------------------------------- several products
def _with_one_product(x: Loop, own: Own) -> tuple[list[Launch], Loop]:
    """The loop with the product of its state as one of all summands that are products; what they
    read lies side by side. Behind launches that copy their matrices."""
    (g,) = (q for q in x.body if _is_state(x, q))
    assert isinstance(g, Gemm)
    run = [g]
    while (before := _summand(x, run[-1], own)) is not None:
        run.append(before)
    makers = [m for m in x.body if isinstance(m, Map) and all(q.x in m.outs for q in run)]
    constant = all(is_constant(q.y, _bound(x)) and q.y.ndim == 2 for q in run)
    fixed = all(isinstance(n, int) for q in run for n in q.y.shape)
    written = {v.buffer for q in x.body for v in results(q)}
    known = constant and fixed and not any(q.y.buffer in written for q in run)
    if len(run) < 2 or len(makers) != 1 or not known:
        return [], x
    depths = [q.x.shape[-1] for q in run]
    rows, width, n = g.x.shape[0], sum(depths), g.y.shape[-1]
    size = g.x.dtype.size
    lies = Buffer("arena", 0, x.trip * rows * width * size)
    place = Size.named(x.index) * rows * width
    side = View(lies, g.x.dtype, place, (rows, width), (width, 1))
    matrix = View(Buffer("arena", 0, width * n * size), g.y.dtype, 0, (width, n), (n, 1))
    starts = [sum(depths[:k]) for k in range(len(run))]
    (m,) = makers
    roots = [m.roots[m.outs.index(q.x)] for q in run]
    outs = [side.slice(1, at, d) for at, d in zip(starts, depths)]
    wide = replace(m, roots=(*m.roots, *roots), outs=(*m.outs, *outs))
    whole = replace(g, x=side, y=matrix, initial=run[-1].initial)
    body = [q for q in x.body if q not in run[1:]]
    new: list[Launch] = [wide if q is m else whole if q is g else q for q in body]
    copies: list[Launch] = [copied(q.y, matrix.slice(0, at, d))
                            for q, at, d in zip(run, starts, depths)]  # fmt: skip
    return copies, _without_copies(replace(x, body=tuple(new)), own)


def _summand(x: Loop, g: Gemm, own: Own) -> Gemm | None:
    """The product that another one begins with, and nothing else reads."""
    if g.initial is None:
        return None
    found = [q for q in x.body if isinstance(q, Gemm) and q.c == g.initial]
    alone = len(found) == 1 and own([g, *found], g.initial.buffer)
    same = alone and found[0].x.shape[:-1] == g.x.shape[:-1] and found[0].x.dtype == g.x.dtype
    return found[0] if same and found[0].y.dtype == g.y.dtype else None


# ---------------------------------------------------------------- the rotation
def _turned(x: Loop) -> list[Launch] | None:
    """Rotate a loop: each iteration begins with the product of the one before."""
    (g,) = (q for q in x.body if _is_state(x, q))
    assert isinstance(g, Gemm)
    at = x.body.index(g)
    read = set(touched([g]))
    if any(v.buffer in read for q in x.body[at + 1 :] for v in results(q)):
        return None
    rest = [q for q in x.body if q is not g]
    n = product(g.c.shape)
    memory = Buffer("arena", 0, n * g.c.dtype.size)
    own = View(memory, g.c.dtype, 0, g.c.shape, contiguous(g.c.shape))

    def at_index(q: Launch, i: Dim) -> Launch:
        def moved(v: View) -> View:
            return replace(v, offset=substitute_dim(v.offset, {x.index: i}))

        made: Launch = _changed(q, moved)
        return made

    def of_loop(v: View) -> View:
        return own if v == g.c else v

    first = [at_index(q, 0) for q in rest]
    later = [at_index(_changed(q, of_loop), Size.named(x.index) + 1) for q in rest]
    reader = next(k for k, q in enumerate(later) if memory in touched([q]))
    early = any(v.buffer in read for q in later[:reader] for v in results(q))
    place = 0 if early else reader
    body = (*later[:place], _changed(g, of_loop), *later[place:])
    last = at_index(g, x.trip - 1)
    loop = replace(x, trip=x.trip - 1, body=body)
    if isinstance(x.trip, int):
        return [*first, loop, last]
    some = x.trip - 1
    return [When(some, "sge", tuple(first)), loop, When(some, "sge", (last,))]


__all__ = ["rotated"]
