"""Reductions along axes: sums, products, extrema, means, argmax, the first elements in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ir.opdef import Reduction, ShapeError, assume, axis_in, example, op
from ir.ops.elementwise import require_kind
from ir.ops.gradients import zero_gradient
from ir.program import Builder, Value
from ir.scalar import language as k
from ir.types import BOOL, I32, I64, Dim, Type, product


# ---------------------------------------------------------------- reductions
def normal_axes(axes: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Sorted non-negative axes; `()` means all of them."""
    return tuple(sorted({axis_in(a, ndim) for a in axes})) or tuple(range(ndim))


def reduced_shape(x: Type, axes: tuple[int, ...], keepdim: bool) -> tuple[Dim, ...]:
    gone = normal_axes(axes, x.ndim)
    if keepdim:
        return tuple(1 if i in gone else d for i, d in enumerate(x.shape))
    return tuple(d for i, d in enumerate(x.shape) if i not in gone)


def spread(b: Builder, v: Value, x: Value, axes: tuple[int, ...]) -> Value:
    """The result of a reduction of `x`, so that it broadcasts against `x`."""
    shape = reduced_shape(x.type, axes, True)
    new: Value = v if v.type.shape == shape else b.reshape(v, shape=shape)
    return new


def _sum_grad(
    b: Builder, g: Value, y: Value, x: Value, axes: tuple[int, ...], keepdim: bool
) -> list[Value]:
    return [b.expand(spread(b, g, x, axes), shape=x.type.shape)]


def _mean_grad(
    b: Builder, g: Value, y: Value, x: Value, axes: tuple[int, ...], keepdim: bool
) -> list[Value]:
    count = b.cast(b.size(n=_count(x.type, axes)), dtype=x.type.dtype)
    return [b.expand(spread(b, b.divide(g, count), x, axes), shape=x.type.shape)]


def _prod_grad(
    b: Builder, g: Value, y: Value, x: Value, axes: tuple[int, ...], keepdim: bool
) -> list[Value]:
    """Like Paddle: NaN where x is zero."""
    return [b.divide(spread(b, b.multiply(g, y), x, axes), x)]


def _extremum_grad(
    b: Builder, g: Value, y: Value, x: Value, axes: tuple[int, ...], keepdim: bool
) -> list[Value]:
    """Equal elements share it."""
    hit = b.cast(b.equal(x, spread(b, y, x, axes)), dtype=x.type.dtype)
    count = b.sum(hit, axes=axes, keepdim=True)
    return [b.multiply(hit, b.divide(spread(b, g, x, axes), count))]


def _reduction(
    name: str, kinds: str, reduce: Reduction, ref: Any, examples: Any, grad: Any = None
) -> None:
    def types(x: Type, axes: tuple[int, ...], keepdim: bool) -> Type:
        require_kind(name, x, kinds)
        return Type(x.dtype, reduced_shape(x, axes, keepdim))

    def run(x: np.ndarray, axes: tuple[int, ...], keepdim: bool) -> np.ndarray:
        out = ref(x, axis=normal_axes(axes, x.ndim), keepdims=keepdim)
        return np.asarray(out).astype(x.dtype)

    op(
        f"{name}(x, *, axes=(), keepdim=False)",
        types=types,
        ref=run,
        reduce=reduce,
        grad=grad,
        examples=examples,
    )


def _sum_ref(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    out: np.ndarray = wide.sum(axis=axis, keepdims=keepdims)
    return out


_EXAMPLES = (
    example("f32[3,4]", axes=(1,)),
    example("f32[3,4]", axes=(0,), keepdim=True),
    example("f64[2,3,5]", axes=(0, 2)),
    example("f32[2,3,70]", axes=(-1,)),
    example("i64[3,4]"),
    example("f32[]"),
)
_EMPTY = (example("f32[0,4]", axes=(0,)), example("f32[3,0]", axes=(1,)))

_SUM = Reduction(lambda d: k.const(0, d), lambda a, x: a + x)
_PROD = Reduction(lambda d: k.const(1, d), lambda a, x: a * x)
_reduction("sum", "fi", _SUM, _sum_ref, _EXAMPLES + _EMPTY, _sum_grad)
_reduction("prod", "fi", _PROD, np.prod, _EXAMPLES + _EMPTY, _prod_grad)


def _lowest(d: Any) -> k.Scalar:
    return k.const(-np.inf if d.kind == "f" else np.iinfo(d.numpy).min, d)


def _highest(d: Any) -> k.Scalar:
    return k.const(np.inf if d.kind == "f" else np.iinfo(d.numpy).max, d)


def _max_ref(x: np.ndarray, **kwargs: Any) -> Any:
    return np.max(x, initial=-np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min, **kwargs)


def _min_ref(x: np.ndarray, **kwargs: Any) -> Any:
    return np.min(x, initial=np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max, **kwargs)


_ALL = _EXAMPLES + _EMPTY
_reduction("max", "fi", Reduction(_lowest, k.maximum), _max_ref, _ALL, _extremum_grad)
_reduction("min", "fi", Reduction(_highest, k.minimum), _min_ref, _ALL, _extremum_grad)


def _bool_reduction(name: str, start: bool, combine: Any, ref: Any) -> None:
    examples = (example("bool[3,4]", axes=(1,)), example("bool[3,4]"), example("bool[0,4]"))
    _reduction(name, "b", Reduction(lambda d: k.const(start, BOOL), combine), ref, examples)


_bool_reduction("all", True, lambda a, x: a & x, np.all)
_bool_reduction("any", False, lambda a, x: a | x, np.any)


def _count(x: Type, axes: tuple[int, ...]) -> Dim:
    return product(x.shape[a] for a in normal_axes(axes, x.ndim))


def _mean_types(x: Type, axes: tuple[int, ...], keepdim: bool) -> Type:
    require_kind("mean", x, "f")
    return Type(x.dtype, reduced_shape(x, axes, keepdim))


def _mean_expand(b: Builder, x: Value, axes: tuple[int, ...], keepdim: bool) -> Value:
    total = b.sum(x, axes=axes, keepdim=keepdim)
    count = b.cast(b.size(n=_count(x.type, axes)), dtype=x.type.dtype)
    new: Value = b.divide(total, count)
    return new


op(
    "mean(x, *, axes=(), keepdim=False)",
    types=_mean_types,
    ref=lambda x, axes, keepdim: np.asarray(
        x.astype(np.float64).mean(axis=normal_axes(axes, x.ndim), keepdims=keepdim)
    ).astype(x.dtype),
    expand=_mean_expand,
    grad=_mean_grad,
    examples=tuple(e for e in _EXAMPLES if e.types[0][0] == "f"),
)


def _arg_types(x: Type, axis: int, keepdim: bool, dtype: Any) -> Type:
    require_kind("argmax", x, "fi")
    if x.ndim == 0:
        raise ShapeError("argmax of a 0-d tensor")
    if x.shape[axis_in(axis, x.ndim)] == 0:
        raise ShapeError(f"argmax of {x} along axis {axis}, which has no elements")
    if dtype.kind != "i":
        raise ShapeError(f"argmax gives integers, not {dtype}")
    return Type(dtype, reduced_shape(x, (axis,), keepdim))


def argmax(x: np.ndarray, axis: int, keepdim: bool = False) -> np.ndarray:
    """Like Paddle's kernel, which starts from the lowest finite number: NaN is never the
    largest."""
    if x.dtype.kind == "f":
        lowest = np.finfo(x.dtype).min
        x = np.where(x > lowest, x, lowest)
    out: np.ndarray = np.argmax(x, axis=axis, keepdims=keepdim)
    return out


def _arg_ref(x: np.ndarray, axis: int, keepdim: bool, dtype: Any) -> np.ndarray:
    return argmax(x, axis, keepdim).astype(dtype.numpy)


op(
    "argmax(x, *, axis, keepdim=False, dtype)",
    types=_arg_types,
    ref=_arg_ref,
    examples=(
        example("f32[3,4]", axis=1, dtype=I64),
        example("f64[3,4]", axis=0, keepdim=True, dtype=I64),
        example("i64[5]", axis=0, dtype=I32),
    ),
)


# ---------------------------------------------------------------- the first elements in order
def comes_first(a: k.Scalar, b: k.Scalar, largest: bool) -> k.Scalar:
    """Whether element `a` is to come before `b`; a NaN is larger than all numbers."""
    one, other = (a, b) if largest else (b, a)
    return one > other if a.dtype.kind != "f" else ~(one <= other) & ~k.isnan(other)


class _Heap:
    """The numbers of the elements of a row, with the one that is to come last at the root."""

    def __init__(self, row: np.ndarray, count: int, largest: bool) -> None:
        self.row, self.largest = row, largest
        self.at = list(range(count))
        for top in reversed(range(count // 2)):
            self.sift(top, count, self.at[top])

    def before(self, i: int, j: int) -> bool:
        a, b = self.row[i], self.row[j]
        one, other = (a, b) if self.largest else (b, a)
        return bool((one != one and other == other) or one > other)

    def sift(self, top: int, length: int, number: int) -> None:
        """Place an element below `top`: down along the later ones to a leaf, then up."""
        hole, at = top, self.at
        while hole < (length - 1) // 2:
            child = 2 * hole + 2
            child -= self.before(at[child], at[child - 1])
            at[hole], hole = at[child], child
        if length % 2 == 0 and hole == (length - 2) // 2:
            at[hole], hole = at[2 * hole + 1], 2 * hole + 1
        while hole > top and self.before(at[(hole - 1) // 2], number):
            at[hole], hole = at[(hole - 1) // 2], (hole - 1) // 2
        at[hole] = number

    def first(self, end: int) -> list[int]:
        """The numbers in order, of elements up to `end`."""
        count = len(self.at)
        for i in range(count, end):
            if self.before(i, self.at[0]):
                self.sift(0, count, i)
        for last in reversed(range(1, count)):
            number, self.at[last] = self.at[last], self.at[0]
            self.sift(0, last, number)
        return self.at


def first(x: np.ndarray, axis: int, count: int, largest: bool) -> np.ndarray:
    """The numbers of so many elements, in order. Of equal elements, those are taken that a heap
    leaves over: the first elements are made a heap whose root is the worst of them, each other one
    that is better takes its place, and in the end the roots are taken off."""
    rows = np.moveaxis(x, axis, -1)
    out = np.empty((*rows.shape[:-1], count), np.int64)
    for place in np.ndindex(*rows.shape[:-1]):
        out[place] = _Heap(rows[place], count, largest).first(rows.shape[-1])
    return np.moveaxis(out, -1, axis)


def _types(x: Type, axis: int, count: int, largest: bool) -> Type:
    require_kind("first", x, "fi")
    if x.ndim == 0:
        raise ShapeError("first of a 0-d tensor")
    at = axis_in(axis, x.ndim)
    assume(x.shape[at], ">=", count)
    return Type(I64, (*x.shape[:at], count, *x.shape[at + 1 :]))


op(
    "first(x, *, axis, count, largest=True)",
    types=_types,
    ref=lambda x, axis, count, largest: first(x, axis % x.ndim, count, largest),
    grad=zero_gradient,
    examples=(
        example("f32[3,40]", axis=1, count=5),
        example("f64[9,3]", axis=0, count=4, largest=False),
        example("i64[2,31,2]", axis=-2, count=31, low=-4, high=4),
        example("i32[70]", axis=0, count=1, low=-4, high=4, largest=False),
        example("f32[0,4]", axis=1, count=2),
    ),
)


#: elements up to which a part is sorted by insertion
SHORT = 16


class _Order:
    """The numbers of all elements of a row, in the order of an introspective sort: parts are cut
    at the median of three, short ones sorted by insertion, and parts cut too often by a heap."""

    def __init__(self, row: np.ndarray, largest: bool, stable: bool) -> None:
        self.row, self.largest, self.stable = row, largest, stable
        self.at = list(range(len(row)))

    def before(self, i: int, j: int) -> bool:
        a, b = self.row[i], self.row[j]
        one, other = (a, b) if self.largest else (b, a)
        if (one != one and other == other) or one > other:
            return True
        tie = one == other or (one != one and other != other)
        return bool(self.stable and tie and i < j)

    def swap(self, i: int, j: int) -> None:
        self.at[i], self.at[j] = self.at[j], self.at[i]

    def cut(self, low: int, high: int) -> int:
        """Partition low ... high - 1; return the start of the second part."""
        at, before = self.at, self.before
        a, b, c = low + 1, low + (high - low) // 2, high - 1
        ab, bc, ac = before(at[a], at[b]), before(at[b], at[c]), before(at[a], at[c])
        self.swap(low, (b if bc else c if ac else a) if ab else (a if ac else c if bc else b))
        pivot, i, j = at[low], low + 1, high
        while True:
            while before(at[i], pivot):
                i += 1
            j -= 1
            while before(pivot, at[j]):
                j -= 1
            if i >= j:
                return i
            self.swap(i, j)
            i += 1

    def insert(self, low: int, high: int) -> None:
        for i in range(low + 1, high):
            number, j = self.at[i], i
            while j > low and self.before(number, self.at[j - 1]):
                self.at[j] = self.at[j - 1]
                j -= 1
            self.at[j] = number

    def heap(self, low: int, middle: int, high: int) -> _Heap:
        """The first elements of a part as a heap of those of it that come first."""
        heap = _Heap(self.row, 0, self.largest)
        heap.before = self.before  # type: ignore[method-assign]
        heap.at = self.at[low:middle]
        count = len(heap.at)
        for top in reversed(range(count // 2)):
            heap.sift(top, count, heap.at[top])
        for i in range(middle, high):
            if self.before(self.at[i], heap.at[0]):
                number, self.at[i] = self.at[i], heap.at[0]
                heap.sift(0, count, number)
        return heap

    def sort(self, low: int, high: int) -> None:
        self._parts(low, high, 2 * max(0, (high - low).bit_length() - 1))
        self.insert(low, high)

    def _parts(self, low: int, high: int, depth: int) -> None:
        while high - low > SHORT:
            if depth == 0:
                self.at[low:high] = self.heap(low, high, high).first(0)
                return
            depth -= 1
            middle = self.cut(low, high)
            self._parts(middle, high, depth)
            high = middle

    def select(self, place: int) -> None:
        """The element that belongs at a place is there, those before it are before it."""
        low, high = 0, len(self.at)
        depth = 2 * max(0, high.bit_length() - 1)
        while high - low > 3:
            if depth == 0:
                self.at[low : place + 1] = self.heap(low, place + 1, high).at
                self.swap(low, place)
                return
            depth -= 1
            middle = self.cut(low, high)
            low, high = (middle, high) if middle <= place else (low, middle)
        self.insert(low, high)


def order(x: np.ndarray, axis: int, count: int, largest: bool, stable: bool) -> np.ndarray:
    """The numbers of all elements in order; with a `count`, only the first ones are: those are
    selected, and all but the last of them sorted."""
    rows = np.moveaxis(x, axis, -1)
    out = np.empty(rows.shape, np.int64)
    for place in np.ndindex(*rows.shape[:-1]):
        found = _Order(rows[place], largest, stable)
        if count:
            found.select(count - 1)
        found.sort(0, count - 1 if count else len(found.at))
        out[place] = found.at
    return np.moveaxis(out, -1, axis)


def _order_types(x: Type, axis: int, count: int, largest: bool, stable: bool) -> Type:
    require_kind("order", x, "fi")
    if x.ndim == 0 or count < 0:
        raise ShapeError(f"order of {x}, {count} elements")
    at = axis_in(axis, x.ndim)
    if count:
        assume(x.shape[at], ">=", count)
    return Type(I64, x.shape)


op(
    "order(x, *, axis, count=0, largest=False, stable=False)",
    types=_order_types,
    ref=lambda x, axis, count, largest, stable: order(x, axis % x.ndim, count, largest, stable),
    grad=zero_gradient,
    examples=(
        example("f32[3,40]", axis=1),
        example("f64[50,3]", axis=0, largest=True, stable=True),
        example("i64[2,61,2]", axis=-2, low=-4, high=4),
        example("i32[70]", axis=0, count=9, low=-4, high=4),
        example("f32[4,3]", axis=1, count=3, largest=True),
        example("f32[0,4]", axis=1, count=2),
        example("f32[3,0]", axis=1),
    ),
)
