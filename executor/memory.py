"""Storage and strided views of it.

Offsets, dims and strides are `ir.types.Dim`s in elements: polynomials over the named sizes of the
program and over *symbols*, names that the native code binds on its way (`#i0` the index of a loop,
`#p0` its parity, `#s0` an index that was read from memory). A view therefore stays symbolic
through loops, and slicing a tensor costs nothing at run time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ir.types import Dim, DType, Type, contiguous, reshape_strides


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
        want = contiguous(self.shape)
        return all(d == 1 or s == w for d, s, w in zip(self.shape, self.strides, want))

    @property
    def span(self) -> Dim:
        """Elements from the first one to the last, where no stride is negative."""
        reach: Dim = 1
        for d, s in zip(self.shape, self.strides):
            reach = reach + (d - 1) * s
        return reach

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
        if self.contiguous:
            return replace(self, shape=shape, strides=contiguous(shape))
        strides = reshape_strides(self.shape, self.strides, shape)
        return None if strides is None else replace(self, shape=shape, strides=strides)


@dataclass(frozen=True, eq=False)
class TensorArray:
    """Views of one type, read at an index: `addresses`, i64[n], holds where each one begins.

    All have the same strides, so that an index only chooses an address.
    """

    views: tuple[View, ...]
    addresses: View

    def pick(self, at: Dim) -> View:
        if isinstance(at, int):
            return self.views[at]
        first = self.views[0]
        buffer = Element("element", 0, first.buffer.size, self, at)
        return View(buffer, first.dtype, 0, first.shape, first.strides)


@dataclass(frozen=True, eq=False)
class Element(Buffer):
    """The memory of one view of an array, from its first element on. It is only read."""

    array: TensorArray
    at: Dim


def memory_of(b: Buffer) -> Iterator[Buffer]:
    """The buffers that may be read where `b` is."""
    if not isinstance(b, Element):
        yield b
        return
    for v in (*b.array.views, b.array.addresses):
        yield from memory_of(v.buffer)


def _with(items: tuple[Dim, ...], at: int, value: Dim) -> tuple[Dim, ...]:
    return (*items[:at], value, *items[at + 1 :])


def whole(buffer: Buffer, t: Type) -> View:
    """All of a buffer, row-major."""
    return View(buffer, t.dtype, 0, t.shape, contiguous(t.shape))


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
