"""Band attention: attention with a band mask as products within windows of frames.

A tensor [.., T, T] of queries and keys whose mask hides all keys but those up to `back` frames
before and `ahead` behind a query becomes [.., T, K], the K = back + 1 + ahead frames around each:

    scores[i, j]  =>  scores[i, k]  with  k = j - i + back

`ir.streaming.mask_bands` finds the masks and proves that nothing else counts. Places of a window
that are before the first frame or behind the last one are left out of maxima and sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ir.ops.images import LOWEST
from ir.passes.cloning import NodeCopier
from ir.program import Builder, Node, Op, Program, Value
from ir.streaming.chunks import refuse
from ir.streaming.facts import mentions
from ir.streaming.mask_bands import MaskAnalysis, square
from ir.types import BOOL, Dim
from ir.uses import walk


def banded(program: Program) -> Program:
    """The program with windows for tensors that have the time along two axes; raises SourceError
    where a mask does not limit them."""
    if not any(square(r.type) for n in program.ops for r in n.results):
        return program
    analysis = MaskAnalysis()
    for node in program.ops:
        if isinstance(node, Op):
            analysis.visit(node)
        elif any(square(r.type) for n in (node, *walk([node])) for r in n.results):
            refuse(
                node.loc,
                "attention, or its mask, inside of a loop or a branch",
                "It has the time along two axes there.",
                "Make masks of `paddle.arange`, and call layers one by one.",
            )
    bands = Bands(analysis.windows)
    for node in program.ops:
        bands.node(node)
    outputs = tuple(bands.whole(v) if isinstance(v, Value) else v for v in program.outputs)
    return replace(program, ops=tuple(bands.b.ops), outputs=outputs)


class Bands:
    """Emits the ops again. `windows`: frames back and ahead for each length."""

    def __init__(self, windows: dict[Dim, tuple[int, int]]) -> None:
        self.windows = windows
        self.b = Builder()
        self.env: dict[Value, Value] = {}
        self.copier = NodeCopier(str, self.env)

    def node(self, node: Node) -> None:
        self.b.loc = node.loc
        values = (*node.operands, *node.results)
        if not isinstance(node, Op) or not any(square(v.type) for v in values):
            self.b.append(self.copier.node(node))
            return
        self.env[node.results[0]] = self.op(node)

    def whole(self, v: Value) -> Value:
        if square(v.type):
            refuse(
                self.b.loc,
                f"a result of type {v.type}",
                "It grows with the square of the time.",
                "Return what is computed from it for each frame.",
            )
        return self.env.get(v, v)

    def op(self, op: Op) -> Value:
        xs = [self.env.get(v, v) for v in op.operands]
        if op.name == "matmul":
            made = self.scores(op, xs) if square(op.result.type) else self.weighted(op, xs)
        elif op.row.kernel is not None or op.name == "expand":
            xs = [self.aligned(op, v, x) for v, x in zip(op.operands, xs)]
            made = self.emit(op, xs) if op.row.kernel is not None else self.expanded(op, xs[0])
        elif op.name in ("full", "reshape"):
            made = self.shaped(op, xs)
        elif op.name == "transpose" and _keeps_pair(op):
            made = self.emit(op, xs)
        elif op.name in ("max", "sum"):
            made = self.reduced(op, xs[0])
        elif op.name in ("gather", "embedding"):
            made = self.looked_up(op, xs)
        elif op.name in ("slice", "index", "concat", "stack") and self.beside(op):
            made = self.emit(op, xs)
        else:
            made = None
        if made is None:
            refuse(
                op.loc,
                f"`{op.name}` of a tensor with the time along two axes",
                "It grows with the square of the sequence.",
                "Between scores and weights, use products with numbers, masks by the distance of "
                "frames, and a softmax over the last axis.",
            )
        return made

    def emit(self, op: Op, xs: Sequence[Value]) -> Value:
        (made,) = self.b.emit(op.name, xs, op.attrs, op.results[0].name)
        return made

    def zero(self, x: Value) -> Value:
        made: Value = self.b.full(value=0, dtype=x.type.dtype)
        return made

    # ------------------------------------------------------------ windows
    def reach(self, length: Dim) -> tuple[int, int]:
        """A square that nothing sums over may have any window."""
        return self.windows.get(length, (0, 0))

    def window(self, x: Value, axis: int) -> Value:
        """[.., T, ..] as [.., T, .., K]; False or 0 for what is no frame."""
        t = x.type
        for count, last in zip(self.reach(t.shape[axis]), (False, True)):
            if count:
                shape = (*t.shape[:axis], count, *t.shape[axis + 1 :])
                edge = self.b.full(value=0, shape=shape, dtype=t.dtype)
                x = self.b.concat(*((x, edge) if last else (edge, x)), axis=axis)
        made: Value = self.b.unfold(x, axis=axis, size=1 + sum(self.reach(t.shape[axis])), step=1)
        return made

    def keys(self, x: Value, axis: int) -> Value:
        """[.., T, ..] as [.., T, K, ..]: what is about keys, for each query."""
        wide = self.window(x, axis)
        last = wide.type.ndim - 1
        perm = (*range(axis + 1), last, *range(axis + 1, last))
        made: Value = wide if axis + 1 == last else self.b.transpose(wide, perm=perm)
        return made

    def valid(self, old: Value, new: Value) -> Value:
        """bool: which places of the windows of a square are frames."""
        axes = square(old.type)
        assert axes is not None
        n = old.type.shape[axes[0]]
        there = self.keys(self.b.full(value=True, shape=(n,), dtype=BOOL), 0)
        dims = [d if k in axes else 1 for k, d in enumerate(new.type.shape)]
        made: Value = self.b.reshape(there, shape=tuple(dims))
        return made

    def aligned(self, op: Op, old: Value, new: Value) -> Value:
        """An operand for a result that is a square: one about keys is taken in windows."""
        pair = square(op.result.type)
        at = [k + op.result.type.ndim - old.type.ndim for k, d in enumerate(old.type.shape)
              if mentions(d)]  # fmt: skip
        if pair is None or at != [pair[1]]:
            return new
        axis = pair[1] - op.result.type.ndim + old.type.ndim
        wide = self.keys(new, axis)
        if axis == 0:
            return wide
        dims = wide.type.shape
        made: Value = self.b.reshape(wide, shape=(*dims[: axis - 1], *dims[axis:]))
        return made

    # ------------------------------------------------------------ ops
    def band_shape(self, shape: Sequence[Dim], pair: tuple[int, int]) -> tuple[Dim, ...]:
        dims = list(shape)
        dims[pair[1]] = 1 + sum(self.reach(dims[pair[0]]))
        return tuple(dims)

    def shaped(self, op: Op, xs: Sequence[Value]) -> Value | None:
        pair = square(op.result.type)
        if pair is None or any(square(v.type) is None for v in op.operands):
            return None
        shape = self.band_shape(op.result.type.shape, pair)
        (made,) = self.b.emit(op.name, xs, {**op.attrs, "shape": shape}, op.results[0].name)
        return made

    def expanded(self, op: Op, x: Value) -> Value | None:
        pair = square(op.result.type)
        assert pair is not None
        made: Value = self.b.expand(x, shape=self.band_shape(op.result.type.shape, pair))
        return made

    def reduced(self, op: Op, x: Value) -> Value | None:
        """A maximum or a sum over keys, or over other axes than time."""
        old = op.operands[0]
        pair, axes = square(old.type), {a % old.type.ndim for a in op.attrs["axes"]}
        if pair is None or pair[0] in axes or not axes:
            return None
        if pair[1] in axes:
            nothing = LOWEST if op.name == "max" else 0
            dtype = x.type.dtype
            value = float(nothing) if dtype.kind == "f" else int(nothing)
            fill = self.b.full(value=value, dtype=dtype)
            x = self.b.where(self.valid(old, x), x, fill)
        return self.emit(op, [x])

    def looked_up(self, op: Op, xs: Sequence[Value]) -> Value | None:
        """Rows of a table, one for each distance; any row where a window has no frame."""
        at = 0 if op.name == "embedding" else 1
        if square(op.operands[at].type) is None or square(op.operands[1 - at].type) is not None:
            return None
        index = self.b.where(self.valid(op.operands[at], xs[at]), xs[at], self.zero(xs[at]))
        return self.emit(op, [index, xs[1]] if at == 0 else [xs[0], index])

    def beside(self, op: Op) -> bool:
        """Whether an op works along another axis than those of the time."""
        if any(square(v.type) is None for v in (*op.operands, *op.results)):
            return False
        pair = square(op.result.type)
        assert pair is not None
        return op.attrs["axis"] % op.result.type.ndim not in pair

    def scores(self, op: Op, xs: Sequence[Value]) -> Value | None:
        """[.., T, D] @ [.., D, T]: each query with the keys of its window."""
        x, y = xs
        pair = square(op.result.type)
        if pair is None or pair[1] != op.result.type.ndim - 1:
            return None
        if not _is_time_and(x, op.attrs["trans_x"]) or not _is_time_and(y, not op.attrs["trans_y"]):
            return None
        x = self.swapped(x) if op.attrs["trans_x"] else x
        y = y if op.attrs["trans_y"] else self.swapped(y)  # [.., T, D]
        near = self.window(y, y.type.ndim - 2)  # [.., T, D, K]
        row = self.b.reshape(x, shape=(*x.type.shape[:-1], 1, x.type.shape[-1]))
        found = self.b.matmul(row, near)
        made: Value = self.b.reshape(found, shape=(*found.type.shape[:-2], found.type.shape[-1]))
        return made

    def weighted(self, op: Op, xs: Sequence[Value]) -> Value | None:
        """[.., T, T] @ [.., T, D]: the values of the window of each query, weighted."""
        old, (p, y) = op.operands[0], xs
        pair = square(old.type)
        summed = pair is not None and pair[1] == old.type.ndim - 1 and not op.attrs["trans_x"]
        if not summed or not _is_time_and(y, op.attrs["trans_y"]):
            return None
        y = self.swapped(y) if op.attrs["trans_y"] else y  # [.., T, D]
        p = self.b.where(self.valid(old, p), p, self.zero(p))
        near = self.window(y, y.type.ndim - 2)  # [.., T, D, K]
        row = self.b.reshape(p, shape=(*p.type.shape[:-1], 1, p.type.shape[-1]))
        found = self.b.matmul(row, near, trans_y=True)
        made: Value = self.b.reshape(found, shape=(*found.type.shape[:-2], found.type.shape[-1]))
        return made

    def swapped(self, x: Value) -> Value:
        n = x.type.ndim
        made: Value = self.b.transpose(x, perm=(*range(n - 2), n - 1, n - 2))
        return made


def _is_time_and(x: Value, turned: bool) -> bool:
    """Whether the last two axes are time and features, or features and time."""
    n = x.type.ndim
    at = [k for k, d in enumerate(x.type.shape) if mentions(d)]
    return n >= 2 and at == [n - 1 if turned else n - 2]


def _keeps_pair(op: Op) -> bool:
    """Whether queries and keys are the same axes of the result, in this order."""
    before, after = square(op.operands[0].type), square(op.result.type)
    perm = [p % op.result.type.ndim for p in op.attrs["perm"]]
    return before is not None and after is not None and perm[after[0]] == before[0]


__all__ = ["banded"]
