"""Strided layouts: where the elements of a view lie, as polynomials over named sizes and symbols.

All arithmetic on strides and offsets is here. Rows of views say by it how they lie (`ViewRule` in
`ir.opdef`); backends, the trace and the analyses apply the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from ir.types import Dim, Size, is_natural

Strides: TypeAlias = tuple[Dim, ...]
S = TypeVar("S", bound="Strided")


def contiguous(shape: Sequence[Dim]) -> Strides:
    """Row-major strides."""
    out: list[Dim] = []
    stride: Dim = 1
    for d in reversed(shape):
        out.append(stride)
        stride = stride * d
    return tuple(reversed(out))


def reshape_strides(old: Sequence[Dim], strides: Strides, new: Sequence[Dim]) -> Strides | None:
    """Strides of a reshape that copies nothing, or None; the rule of NumPy, Paddle and PyTorch.

    From the right, axes that lie next to each other in memory form runs; every run of the old
    shape must be a run of new axes.
    """
    if not old or 0 in old or strides == contiguous(old):
        return contiguous(new)
    out: list[Dim] = []
    at, unit = len(new), strides[-1]
    have: Dim = 1
    for axis in reversed(range(len(old))):
        have = have * old[axis]
        if axis and (old[axis - 1] == 1 or strides[axis - 1] == have * unit):
            continue
        made: Dim = 1
        while at and (made != have or new[at - 1] == 1):
            at -= 1
            out.append(made * unit)
            made = made * new[at]
        if made != have:
            return None
        have, unit = 1, strides[axis - 1]
    return tuple(reversed(out)) if not at else None


def extent(shape: Sequence[Dim], strides: Sequence[Dim], offset: Dim) -> tuple[Dim, Dim]:
    """The smallest and the largest place of an element; a stride whose sign depends on named sizes
    is not negative."""
    low = high = offset
    for d, s in zip(shape, strides):
        reach = (d - 1) * s
        low, high = (low + reach, high) if s != 0 and is_natural(0 - s) else (low, high + reach)
    return low, high


def overlaps(shape: Sequence[Dim], strides: Sequence[Dim]) -> bool:
    """Whether two elements of a view may be in one place: never wrong about no, and exact for
    what slices, transposes and diagonals make of a tensor."""
    axes = [(s, d) for s, d in zip(strides, shape) if d != 1]
    if 0 in shape or len(axes) == 1 and axes[0][0] != 0:
        return False
    if any(isinstance(q, Size) for pair in axes for q in pair):
        return True
    reach = 0
    for s, d in sorted((abs(int(s)), int(d)) for s, d in axes):  # type: ignore[arg-type]
        if s <= reach:
            return True
        reach += (d - 1) * s
    return False


class Strided:
    """Element (i, j, ...) is `offset + i * strides[0] + j * strides[1] + ...` elements behind the
    first one of something. Each method is a view: the same thing, laid out otherwise.
    """

    offset: Dim
    shape: tuple[Dim, ...]
    strides: Strides

    def lying(self: S, offset: Dim, shape: tuple[Dim, ...], strides: Strides) -> S:
        """The same thing with another layout."""
        raise NotImplementedError

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether the elements are side by side, row-major; axes of length 1 do not count."""
        want = contiguous(self.shape)
        return all(d == 1 or s == w for d, s, w in zip(self.shape, self.strides, want))

    @property
    def span(self) -> Dim:
        """Elements from the first one to the last, where no stride is negative."""
        low, high = extent(self.shape, self.strides, 0)
        return high - low + 1

    def slice(self: S, axis: int, start: Dim, length: Dim, step: int = 1) -> S:
        """`start + step * i` along an axis, for i < length."""
        at, (shape, strides) = axis % self.ndim, (self.shape, self.strides)
        return self.lying(
            self.offset + strides[at] * start,
            (*shape[:at], length, *shape[at + 1 :]),
            (*strides[:at], strides[at] * step, *strides[at + 1 :]),
        )

    def index(self: S, axis: int, index: Dim) -> S:
        """One element along an axis, which goes."""
        at, (shape, strides) = axis % self.ndim, (self.shape, self.strides)
        return self.lying(
            self.offset + strides[at] * index,
            shape[:at] + shape[at + 1 :],
            strides[:at] + strides[at + 1 :],
        )

    def transpose(self: S, perm: Sequence[int]) -> S:
        """Axis k of the view is axis `perm[k]`."""
        return self.lying(
            self.offset, tuple(self.shape[p] for p in perm), tuple(self.strides[p] for p in perm)
        )

    def reshape(self: S, shape: Sequence[Dim]) -> S | None:
        """The same elements in `shape` without a copy, or None where that takes one."""
        shape = tuple(shape)
        strides = reshape_strides(self.shape, self.strides, shape)
        return None if strides is None else self.lying(self.offset, shape, strides)

    def expand(self: S, shape: Sequence[Dim]) -> S:
        """NumPy's broadcasting to `shape`; the dims gained have stride 0."""
        lead = len(shape) - self.ndim
        strides: list[Dim] = [0] * lead
        for have, want, s in zip(self.shape, shape[lead:], self.strides):
            strides.append(0 if have == 1 and want != 1 else s)
        return self.lying(self.offset, tuple(shape), tuple(strides))

    def insert(self: S, axis: int) -> S:
        """A new axis of length 1."""
        shape = (*self.shape[:axis], 1, *self.shape[axis:])
        return self.lying(self.offset, shape, (*self.strides[:axis], 0, *self.strides[axis:]))

    def strided(self: S, shape: Sequence[Dim], strides: Sequence[Dim], offset: Dim) -> S:
        """Replace one axis by other dims, with strides in its elements."""
        (unit,) = self.strides
        return self.lying(
            self.offset + unit * offset, tuple(shape), tuple(unit * s for s in strides)
        )

    def diagonal(self: S, axis1: int, axis2: int, offset: Dim, count: Dim) -> S:
        """`count` elements along two axes at once, from column `offset` on, or row `-offset`; they
        become the last axis."""
        a, b = axis1 % self.ndim, axis2 % self.ndim
        shape, strides = self.shape, self.strides
        rest = [k for k in range(self.ndim) if k not in (a, b)]
        first = strides[b] * offset if is_natural(offset) else strides[a] * (0 - offset)
        return self.lying(
            self.offset + (0 if count == 0 else first),
            (*(shape[k] for k in rest), count),
            (*(strides[k] for k in rest), strides[a] + strides[b]),
        )

    def unfold(self: S, axis: int, size: int, step: int, count: Dim) -> S:
        """`count` windows of `size` elements along an axis, every `step` elements; the elements of
        a window become the last axis."""
        at, (shape, strides) = axis % self.ndim, (self.shape, self.strides)
        return self.lying(
            self.offset,
            (*shape[:at], count, *shape[at + 1 :], size),
            (*strides[:at], strides[at] * step, *strides[at + 1 :], strides[at]),
        )


@dataclass(frozen=True)
class StridedLayout(Strided):
    """A layout by itself: behind the first element of whatever it is of."""

    offset: Dim
    shape: tuple[Dim, ...]
    strides: Strides

    def lying(self, offset: Dim, shape: tuple[Dim, ...], strides: Strides) -> StridedLayout:
        return StridedLayout(offset, shape, strides)


def row_major(shape: Sequence[Dim]) -> StridedLayout:
    """Return the layout of a whole storage."""
    return StridedLayout(0, tuple(shape), contiguous(shape))


__all__ = [
    "Strided",
    "StridedLayout",
    "Strides",
    "contiguous",
    "extent",
    "overlaps",
    "reshape_strides",
    "row_major",
]
