"""Split-K: products with many terms and few tiles, such as gradients of weights, summed in parts.

A block takes some of the terms of a tile, and a reduction adds what the blocks of a tile have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from executor.gpu.kernel_builder import Kernel, kernel_for
from executor.gpu.kernels.tiled_gemm import Tiled, depth_of, tiled_kernel, tiles_of
from executor.gpu.preamble import THREADS
from executor.launches import BackendLaunch, Conv, Gemm, Launch, Reduce, results, with_blocks
from executor.memory import Buffer, View
from ir.layout import contiguous
from ir.opdef import OPS
from ir.types import product

#: tiles that leave a GPU idle where a sum has many terms, parts of such a sum, and their terms
FEW, MOST_PARTS, TERMS = 128, 32, 256


@dataclass(frozen=True, eq=False)
class Partial(BackendLaunch):
    """`parts` sums of some of the terms of `whole` each, one behind the other in `outs`."""

    ins: tuple[View, ...]
    outs: tuple[View, ...]
    whole: Tiled
    parts: int


def split(launches: Sequence[Launch], others: Callable[[Gemm], bool]) -> list[Launch]:
    """The launches, with such sums in parts. `others` are products that other families take; all of
    those in loops are."""
    inside = [with_blocks(x, lambda q: split(q, lambda _: True)) for x in launches]
    return [q for x in inside for q in ([x] if _is_left(x, others) else _in_parts(x))]


def _is_left(x: Launch, others: Callable[[Gemm], bool]) -> bool:
    return isinstance(x, Gemm) and others(x)


def _in_parts(x: Launch) -> list[Launch]:
    parts = _parts(x) if isinstance(x, Tiled) else 1
    if parts < 2 or not isinstance(x, Tiled):
        return [x]
    (out,) = results(x)
    shape, d = out.shape, out.dtype.compute
    memory = Buffer("arena", 0, parts * product(shape) * d.size)
    sums = View(memory, d, 0, (parts, *shape), contiguous((parts, *shape)))
    add = OPS["sum"].reduce
    assert add is not None
    ins: tuple[View, ...] = (x.x, x.w) if isinstance(x, Conv) else (x.x, x.y)
    whole: Tiled
    if isinstance(x, Gemm):
        ins += () if x.initial is None else (x.initial,)
        whole = replace(x, c=sums.index(0, 0))
    else:
        whole = replace(x, out=sums.index(0, 0))
    return [Partial(ins, (sums,), whole, parts), Reduce(sums, (0,), add, out)]


def _parts(x: Tiled) -> int:
    (out,), depth = results(x), depth_of(x)
    tiles = tiles_of(x, THREADS)
    if not isinstance(tiles, int) or tiles < 1 or out.dtype.kind != "f":
        return 1
    found = min(MOST_PARTS, FEW // tiles)
    return min(found, depth // TERMS) if isinstance(depth, int) else found


@kernel_for(Partial)
def whole_blocks(x: Partial) -> Kernel:
    return tiled_kernel(x.whole, THREADS, None, x.parts)
