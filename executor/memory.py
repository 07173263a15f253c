"""Storage and strided views of it.

Offsets, dims and strides are `ir.types.Dim`s in elements: polynomials over the named sizes of the
program and over *symbols*, names that the native code binds on its way (`#i0` the index of a loop,
`#p0` its parity, `#s0` an index that was read from memory). A view therefore stays symbolic
through loops, and slicing a tensor costs nothing at run time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ir.layout import Strided, Strides, contiguous
from ir.types import Dim, DType, Type


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory of `size` bytes. `kind`: input, output (`number` in the call) or arena."""

    kind: str
    number: int
    size: Dim


@dataclass(frozen=True, eq=False)
class View(Strided):
    """Element (i, j, ...) is `buffer[offset + i * strides[0] + j * strides[1] + ...]`.

    Views are equal that have the same elements: the stride of an axis of length 1 does not count.
    """

    buffer: Buffer
    dtype: DType
    offset: Dim
    shape: tuple[Dim, ...]
    strides: Strides

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        strides = tuple(0 if d == 1 else s for d, s in zip(self.shape, self.strides))
        return self.buffer, self.dtype, self.offset, self.shape, strides

    def lying(self, offset: Dim, shape: tuple[Dim, ...], strides: Strides) -> View:
        return View(self.buffer, self.dtype, offset, shape, strides)


@dataclass(frozen=True, eq=False)
class TensorArray:
    """Views of one type, read at an index: `addresses`, i64[n], holds where each one begins.

    All have the same strides, so that an index only chooses an address.
    """

    views: tuple[View, ...]
    addresses: View

    def index(self, at: Dim) -> View:
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


def whole(buffer: Buffer, t: Type) -> View:
    """Return a row-major view of a whole buffer."""
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
