"""Large matrix products outside of loops by cuBLASLt, where it is installed.

A product is work of the call's stream between two graphs of kernels: its operands lie where the
table of the call says, which no captured node could know. What a failed call has computed there is
garbage that nobody sees: a product that writes to an input stays a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ctypes import c_void_p
from dataclasses import dataclass, replace

from executor.executable import CallTable
from executor.gpu.blas.cublas import Blas, MatmulOperation, Matrix, blas
from executor.launches import Gemm, Lowered, views
from executor.memory import Buffer, Element, View
from executor.plan.arena import ArenaLayout, aligned
from ir.types import F32, F64, Dim, evaluate_dim, is_natural, names_in, product

#: multiplications from which on a product is large, and what a named size counts for
LARGE, NAMED = 1 << 28, 64
TYPES = frozenset({F32, F64})


@dataclass(frozen=True, eq=False)
class LibraryProduct:
    """`x` times `y` into `c`, each [batch, rows, columns]; `initial` is added, as one row
    (`is_bias`) or as a matrix."""

    x: View
    y: View
    c: View
    initial: View | None
    is_bias: bool
    precision: str

    def __str__(self) -> str:
        shape = " x ".join(str(d) for d in (*self.c.shape, self.x.shape[-1]))
        return f"product by cuBLASLt, {shape}"


def product_of(x: Gemm, precision: str, sizes: Sequence[str]) -> LibraryProduct | None:
    """The product, if cuBLASLt can take it and it is large. `sizes` are known to the host."""
    names = frozenset().union(*(names_in(d) for v in views(x) for d in _dims(v)))
    types = {v.dtype for v in views(x)}
    if len(types) != 1 or not types <= TYPES or not names <= {*sizes} or not _is_large(x):
        return None
    if x.c.buffer.kind == "input" or any(isinstance(v.buffer, Element) for v in views(x)):
        return None
    batch = x.c.shape[:-2]
    given = [v.expand((*batch, *v.shape[-2:])) for v in (x.x, x.y, x.c)]
    if x.initial is not None:
        given.append(x.initial.expand(x.c.shape))
    whole = _whole(given) or _batched(given)
    if whole is None:
        return None
    left, right, c, *summand = whole
    initial = summand[0] if summand else None
    is_bias = initial is not None and initial.strides[-2] == 0 and initial.strides[-1] == 1
    is_bias = is_bias and initial is not None and (initial.shape[0] == 1 or initial.strides[0] == 0)
    if is_bias and c.dtype == F64:  # cuBLASLt adds none there
        return None
    matrices = [left, right, c, *([] if initial is None or is_bias else [initial])]
    rowwise = c.strides[-1] == 1 and (initial is None or initial.strides[-1] == 1)
    if not rowwise or not all(map(_is_matrix, matrices)):
        return None
    fills = c.contiguous and (initial is None or initial.contiguous)
    if not fills and not isinstance(left.shape[-1], int) or left.shape[-1] == 0:
        return None
    return LibraryProduct(left, right, c, initial, is_bias, precision)


def _dims(v: View) -> tuple[Dim, ...]:
    return (v.offset, *v.shape, *v.strides)


def _is_large(x: Gemm) -> bool:
    dims = (*x.c.shape, x.x.shape[-1])
    named = dict.fromkeys(frozenset().union(*map(names_in, dims)), NAMED)
    return evaluate_dim(product(dims), named) >= LARGE


def _whole(given: Sequence[View]) -> list[View] | None:
    """One product whose rows are those of all batches, if the right operand has no batch."""
    x, y, *others = given
    if any(s != 0 and d != 1 for d, s in zip(y.shape[:-2], y.strides)):
        return None
    out = [_rows(x), _once(y), *map(_rows, others)]
    return None if None in out else out  # type: ignore[return-value]


def _once(v: View) -> View:
    return replace(v, shape=(1, *v.shape[-2:]), strides=(0, *v.strides[-2:]))


def _rows(v: View) -> View | None:
    flat = v.reshape((1, product(v.shape[:-1]), v.shape[-1]))
    if flat is None and all(s == 0 for s in v.strides[:-1]):  # a bias
        shape = (1, product(v.shape[:-1]), v.shape[-1])
        return replace(v, shape=shape, strides=(0, 0, v.strides[-1]))
    return flat


def _batched(given: Sequence[View]) -> list[View] | None:
    """Products side by side, if all operands walk from one to the next in even steps."""
    out = []
    for v in given:
        lead = v.shape[:-2]
        alike = replace(v, shape=lead, strides=v.strides[:-2])
        flat = alike.reshape((product(lead),)) if lead else replace(alike, shape=(1,), strides=(0,))
        if flat is None and not any(v.strides[:-2]):
            flat = replace(alike, shape=(product(lead),), strides=(0,))
        if flat is None:
            return None
        out.append(replace(v, shape=(*flat.shape, *v.shape[-2:]),
                           strides=(*flat.strides, *v.strides[-2:])))  # fmt: skip
    return out


def _is_matrix(v: View) -> bool:
    """Whether its rows or its columns lie in memory as such, one behind the other."""
    rows, columns = v.shape[-2:]
    if v.strides[-1] == 1:
        return is_natural(v.strides[-2] - columns)
    return v.strides[-2] == 1 and is_natural(v.strides[-1] - rows)


# ---------------------------------------------------------------- calls
class Places:
    """The addresses of views, by the table of a call."""

    def __init__(self, lowered: Lowered, layout: ArenaLayout) -> None:
        call, self.layout = CallTable.of(lowered.program), layout
        self.entries = {
            b: k for k, b in enumerate((*lowered.inputs, *lowered.outputs), call.inputs)
        }
        self.arena = call.arena
        self.slots = {b: k for k, s in enumerate(layout.slots) for b in s.buffers}

    def address(self, v: View, words: Sequence[int], sizes: Mapping[str, int]) -> int:
        return self._base(v.buffer, words, sizes) + evaluate_dim(v.offset, sizes) * v.dtype.size

    def _base(self, b: Buffer, words: Sequence[int], sizes: Mapping[str, int]) -> int:
        if b in self.entries:
            return words[self.entries[b]]
        if b in self.layout.offsets:
            return words[self.arena] + self.layout.offsets[b]
        before = self.layout.slots[: self.slots[b]]
        rooms = (
            aligned(max(0, evaluate_dim(s.size, sizes)), self.layout.alignment) for s in before
        )
        return words[self.arena] + self.layout.fixed + sum(rooms)


def operation(
    p: LibraryProduct, places: Places, words: Sequence[int], sizes: Mapping[str, int]
) -> MatmulOperation:
    """The product of a call."""

    def matrix(v: View) -> Matrix:
        batches, rows, columns = (evaluate_dim(d, sizes) for d in v.shape)
        batch, down, right = (evaluate_dim(s, sizes) for s in v.strides)
        at, turned = places.address(v, words, sizes), v.strides[-1] != 1
        ld = right if turned else down
        return Matrix(at, batches, rows, columns, ld, batch, turned)

    summand = None if p.initial is None else matrix(p.initial)
    return MatmulOperation(
        matrix(p.x), matrix(p.y), matrix(p.c), summand, p.is_bias, p.c.dtype, p.precision
    )


@dataclass(frozen=True)
class LibraryProducts:
    """Those of a program; `all` says behind how many of its stages each of them is."""

    library: Blas | None
    places: Places | None
    all: tuple[tuple[int, LibraryProduct], ...]

    def pieces(self, stages: int) -> Iterator[range]:
        """The stages before, between and behind them."""
        cuts = [0, *(at for at, _ in self.all), stages]
        return (range(a, b) for a, b in zip(cuts, cuts[1:]))

    def take(
        self, number: int, words: Sequence[int], sizes: Mapping[str, int], stream: c_void_p
    ) -> None:
        """The one behind this piece, as work of a stream."""
        assert self.library is not None and self.places is not None
        self.library.multiply(operation(self.all[number][1], self.places, words, sizes), stream)


NO_PRODUCTS = LibraryProducts(None, None, ())
__all__ = ["NO_PRODUCTS", "Places", "LibraryProduct", "LibraryProducts", "blas", "product_of"]
