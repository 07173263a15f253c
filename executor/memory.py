"""Storage and strided views of it.

Offsets, dims and strides are `ir.types.Dim`s in elements: polynomials over the named sizes of the
program and over *symbols*, names that the native code binds on its way (`#i0` the index of a loop,
`#p0` its parity, `#s0` an index that was read from memory). A view therefore stays symbolic
through loops, and slicing a tensor costs nothing at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ir.types import Dim, DType, Size, Type, product


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory of `size` bytes. `kind`: input, output (`number` in the call) or arena."""

    kind: str
    number: int
    size: Dim


@dataclass(frozen=True, eq=False)
class View:
    """Element (i, j, ...) is `buffer[offset + i * strides[0] + j * strides[1] + ...]`.

    Views are equal that have the same elements: the stride of an axis of length 1 does not count.
    """

    buffer: Buffer
    dtype: DType
    offset: Dim
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        strides = tuple(0 if d == 1 else s for d, s in zip(self.shape, self.strides))
        return self.buffer, self.dtype, self.offset, self.shape, strides

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def contiguous(self) -> bool:
        want = row_major(self.shape)
        return all(d == 1 or s == w for d, s, w in zip(self.shape, self.strides, want))

    def slice(self, axis: int, start: Dim, length: Dim, step: int = 1) -> View:
        offset = self.offset + self.strides[axis] * start
        return View(
            self.buffer,
            self.dtype,
            offset,
            _with(self.shape, axis, length),
            _with(self.strides, axis, self.strides[axis] * step),
        )

    def pick(self, axis: int, index: Dim) -> View:
        offset = self.offset + self.strides[axis] * index
        shape = self.shape[:axis] + self.shape[axis + 1 :]
        strides = self.strides[:axis] + self.strides[axis + 1 :]
        return View(self.buffer, self.dtype, offset, shape, strides)

    def transpose(self, perm: Sequence[int]) -> View:
        shape, strides = tuple(self.shape[p] for p in perm), tuple(self.strides[p] for p in perm)
        return replace(self, shape=shape, strides=strides)

    def strided(self, shape: Sequence[Dim], strides: Sequence[Dim], offset: Dim) -> View:
        """Of a view with one axis: other dims, with strides in its elements."""
        (unit,) = self.strides
        return View(
            self.buffer,
            self.dtype,
            self.offset + unit * offset,
            tuple(shape),
            tuple(unit * s for s in strides),
        )

    def expand(self, shape: Sequence[Dim]) -> View:
        """NumPy's broadcasting to `shape`; the dims gained have stride 0."""
        lead = len(shape) - self.ndim
        strides: list[Dim] = [0] * lead
        for have, want, s in zip(self.shape, shape[lead:], self.strides):
            strides.append(0 if have == 1 and want != 1 else s)
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def insert(self, axis: int) -> View:
        """A new axis of length 1."""
        shape = (*self.shape[:axis], 1, *self.shape[axis:])
        return replace(self, shape=shape, strides=(*self.strides[:axis], 0, *self.strides[axis:]))

    def reshape(self, shape: Sequence[Dim]) -> View | None:
        """The same elements in `shape` without a copy, or None where that takes one."""
        shape = tuple(shape)
        if self.contiguous or 0 in shape:
            return replace(self, shape=shape, strides=row_major(shape))
        strides = _reshaped(self.shape, self.strides, shape)
        return None if strides is None else replace(self, shape=shape, strides=strides)


def _with(items: tuple[Dim, ...], at: int, value: Dim) -> tuple[Dim, ...]:
    return (*items[:at], value, *items[at + 1 :])


def row_major(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    return tuple(product(shape[i + 1 :]) for i in range(len(shape)))


def whole(buffer: Buffer, t: Type) -> View:
    """All of a buffer, row-major."""
    return View(buffer, t.dtype, 0, t.shape, row_major(t.shape))


def _reshaped(
    old: Sequence[Dim], strides: Sequence[Dim], new: Sequence[Dim]
) -> tuple[Dim, ...] | None:
    """Strides for `new`: both shapes are cut where their leading products agree, and the old dims
    of every piece must be contiguous among themselves."""
    kept = [(d, s) for d, s in zip(old, strides) if d != 1]
    done: Dim = 1
    out: list[Dim] = []
    i = j = 0
    while i < len(kept) or j < len(new):
        start, first = i, j
        have, want = done, done
        while i < len(kept) and (i == start or have != want):
            have, i = have * kept[i][0], i + 1
            while have != want and j < len(new) and _fits(want, new[j], have):
                want, j = want * new[j], j + 1
        if i == start:
            want = want * product(new[j:])
            j = len(new)
        if have != want or not _mergeable(kept[start:i]):
            return None
        inner: Dim = kept[i - 1][1] if i > start else 0
        out += [inner * s for s in row_major(new[first:j])]
        done = have
    return tuple(out)


def _fits(want: Dim, dim: Dim, have: Dim) -> bool:
    """Whether `want * dim` can still be a leading part of `have`; unknown sizes may be."""
    gap = have - want * dim
    return isinstance(gap, Size) or gap >= 0


def _mergeable(dims: Sequence[tuple[Dim, Dim]]) -> bool:
    return all(dims[k][1] == dims[k + 1][1] * dims[k + 1][0] for k in range(len(dims) - 1))


def collapse(
    shape: Sequence[Dim], strides: Sequence[Sequence[Dim]]
) -> tuple[list[Dim], list[list[Dim]]]:
    """Merge neighbouring dims that every operand walks as one; dims of length 1 go away.

    `strides` has one row per operand, and so has the result.
    """
    dims: list[Dim] = []
    rows: list[list[Dim]] = [[] for _ in strides]
    for axis, d in enumerate(shape):
        if d == 1:
            continue
        steps = [s[axis] for s in strides]
        if dims and all(row[-1] == step * d for row, step in zip(rows, steps)):
            dims[-1] = dims[-1] * d
            for row, step in zip(rows, steps):
                row[-1] = step
        else:
            dims.append(d)
            for row, step in zip(rows, steps):
                row.append(step)
    return dims, rows
