"""Tensor core products, where less than the precision of float32 is requested.

A warp multiplies tiles of 16 x `depth` and `depth` x 8 elements. Their layout over its lanes is
that of `mma.sync`: a lane has words of rows `lane / 4` and of elements from `lane % 4` on, and of
the result two neighbouring columns of two rows. Operands are rounded, sums are in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from executor.gpu.preamble import WARP
from executor.launches import Contract, Conv, Gemm, views
from ir.types import F32

#: rows of a tile of the left operand, columns of one of the right operand
HEIGHT, WIDTH = 16, 8


@dataclass(frozen=True)
class Fragments:
    """Tiles whose words have `per` elements of the type `name`."""

    name: str
    depth: int
    per: int

    def word(self, read: Callable[[str], str], first: str, half: str) -> str:
        """Return the word of a lane's elements from `first` on; `half` is 1 for those of the second
        half of the tile."""
        start = f"{first} + lane % 4 * {self.per} + {half} * {self.depth // 2}"
        values = ", ".join(read(f"({start} + {k})") for k in range(self.per))
        return f"to_{self.name}({values})"

    def multiply(self, sums: str, left: str, right: tuple[str, str]) -> str:
        return f"mma_{self.name}({sums}, {left}, {right[0]}, {right[1]});"


#: by the names that JAX has for the precision of products
OF_PRECISION = {
    "float32": None,
    "tensorfloat32": Fragments("tf32", 8, 1),
    "bfloat16": Fragments("bf16", 16, 2),
}


def fragments_of(x: Gemm | Contract | Conv, precision: str, threads: int) -> Fragments | None:
    """The tiles of a product, if it shall be taken by tiles: one of float32 by whole warps."""
    types = {v.dtype for v in views(x)}
    return OF_PRECISION[precision] if types == {F32} and threads % WARP == 0 else None
