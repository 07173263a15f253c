"""Building blocks of kernels: arguments bound at the call, loop nests, strided vector access.

A kernel is an out-of-line function with run-time dims and strides. `KernelBuilder` builds the
function and the list of its actual arguments side by side, so that equal kernels of a program share
one body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from executor.cpu.llvm_text import Int, LlvmFunction, LlvmModule, element
from executor.cpu.target import Target
from executor.cpu.vector_math import VectorEmitter
from executor.memory import View
from ir.types import Dim, DType


@dataclass(frozen=True)
class OperandAccess:
    """The access of a kernel to one operand: `stride` of the innermost dim is 0, 1, 2 or a name."""

    pointer: str
    dtype: DType
    stride: Int

    def at(self, f: LlvmFunction, index: Int) -> str:
        return f.at(self.pointer, index, element(self.dtype, True))


@dataclass
class KernelBuilder:
    """A kernel under construction: its function, what it returns (0, or 1 where its launch fails),
    and what the caller passes."""

    target: Target
    f: LlvmFunction = field(default_factory=lambda: LlvmFunction("?", "i64"))
    actual: list[View | Dim] = field(default_factory=list)
    result: str = "0"

    def pointer(self, view: View) -> str:
        self.actual.append(view)
        return self.f.argument("ptr")

    def number(self, value: Dim) -> Int:
        """A run-time number; 0 and 1 are part of the kernel."""
        if isinstance(value, int) and value in (0, 1):
            return value
        self.actual.append(value)
        return self.f.argument("i64")

    def finish(self, module: LlvmModule) -> str:
        return module.define(self.f, self.result)


def nest(
    f: LlvmFunction,
    dims: Sequence[Int],
    strides: Sequence[Sequence[Int]],
    body: Callable[[list[Int]], None],
    offsets: Sequence[Int] = (),
) -> None:
    """Loops over all of `dims`; `body` gets the offset of every operand."""
    at: list[Int] = list(offsets) or [0] * len(strides)
    if not dims:
        body(at)
        return
    with f.loop(0, dims[0]) as i:
        moved = [f.add(o, f.mul(i, s[0])) for o, s in zip(at, strides)]
        nest(f, dims[1:], [s[1:] for s in strides], body, moved)


def load(v: VectorEmitter, p: OperandAccess, index: Int, mask: str = "") -> str:
    """The lanes from `index` on, as register values. Stride 0 is one element for all."""
    f, e = v.f, element(p.dtype, True)
    if p.stride == 0 or v.width == 1:
        x = f.load(e, p.at(f, 0 if p.stride == 0 else f.mul(index, p.stride)), p.dtype.size)
        return v.from_memory(v.splat(x, p.dtype, memory=True), p.dtype)
    if p.stride == 2:
        return v.from_memory(_every_second(v, p, index), p.dtype)
    if p.stride != 1:
        return v.from_memory(_gathered(v, p, index), p.dtype)
    t, address = v.type(p.dtype, True), p.at(f, index)
    if not mask:
        return v.from_memory(f.load(t, address, p.dtype.size), p.dtype)
    name = f"llvm.masked.load.{_memory_suffix(v, p.dtype)}.p0"
    bits = f"<{v.width} x i1>"
    arguments = (("ptr", address), ("i32", str(p.dtype.size)), (bits, mask))
    x = f.intrinsic(t, name, *arguments, (t, "zeroinitializer"))
    return v.from_memory(x, p.dtype)


def _memory_suffix(v: VectorEmitter, dtype: DType) -> str:
    moved = dtype.kind != "f" or dtype.bits == 16
    return f"v{v.width}{'i' if moved else 'f'}{dtype.bits}"


def _every_second(v: VectorEmitter, p: OperandAccess, index: Int) -> str:
    """Load every second element by two vectors that end at the last lane's element, where memory
    may end."""
    f, t, w = v.f, v.type(p.dtype, True), v.width
    first = f.mul(index, 2)
    low, high = (f.load(t, p.at(f, f.add(first, k)), p.dtype.size) for k in (0, w - 1))
    picks = ", ".join(f"i32 {2 * k if 2 * k < w else 2 * k + 1}" for k in range(w))
    return f.op(f"shufflevector {t} {low}, {t} {high}, <{w} x i32> <{picks}>")


def _gathered(v: VectorEmitter, p: OperandAccess, index: Int) -> str:
    f, e, t = v.f, element(p.dtype, True), v.type(p.dtype, True)
    out = "poison"
    for lane in range(v.width):
        x = f.load(e, p.at(f, f.mul(f.add(index, lane), p.stride)), p.dtype.size)
        out = f.op(f"insertelement {t} {out}, {e} {x}, i64 {lane}")
    return out


def store(v: VectorEmitter, p: OperandAccess, index: Int, value: str, mask: str = "") -> None:
    f, e, t = v.f, element(p.dtype, True), v.type(p.dtype, True)
    value = v.to_memory(value, p.dtype)
    if v.width == 1:
        f.store(e, value, p.at(f, f.mul(index, p.stride)), p.dtype.size)
    elif p.stride == 2 and v.target.masks and p.dtype.size >= 4:
        _store_every_second(v, p, index, value)
    elif p.stride != 1:
        for lane in range(v.width):
            x = f.op(f"extractelement {t} {value}, i64 {lane}")
            f.store(e, x, p.at(f, f.mul(f.add(index, lane), p.stride)), p.dtype.size)
    elif mask:
        name = f"llvm.masked.store.{_memory_suffix(v, p.dtype)}.p0"
        bits = (f"<{v.width} x i1>", mask)
        f.intrinsic(
            "void", name, (t, value), ("ptr", p.at(f, index)), ("i32", str(p.dtype.size)), bits
        )
    else:
        f.store(t, value, p.at(f, index), p.dtype.size)


def _store_every_second(v: VectorEmitter, p: OperandAccess, index: Int, value: str) -> None:
    """Store every second element by two masked vectors."""
    f, t, w = v.f, v.type(p.dtype, True), v.width
    first, bits = f.mul(index, 2), f"<{w} x i1>"
    mask = "<" + ", ".join(f"i1 {1 - k % 2}" for k in range(w)) + ">"
    name = f"llvm.masked.store.{_memory_suffix(v, p.dtype)}.p0"
    for half in (0, 1):
        picks = ", ".join(f"i32 {(half * w + k) // 2}" for k in range(w))
        spread = f.op(f"shufflevector {t} {value}, {t} poison, <{w} x i32> <{picks}>")
        place = ("ptr", p.at(f, f.add(first, half * w)))
        f.intrinsic("void", name, (t, spread), place, ("i32", str(p.dtype.size)), (bits, mask))


def read(v: VectorEmitter, p: OperandAccess, index: Int, mask: str = "") -> str:
    """Like `load`, in the compute type."""
    return v.cast(load(v, p, index, mask), p.dtype, p.dtype.compute)


def write(v: VectorEmitter, p: OperandAccess, index: Int, value: str, mask: str = "") -> None:
    """Like `store`, for a value in the compute type."""
    store(v, p, index, v.cast(value, p.dtype.compute, p.dtype), mask)


#: bytes of a line of the caches
LINE = 64


def prefetch(f: LlvmFunction, start: str, dtype: DType, first: Int, count: int) -> None:
    """Ask for the lines of `count` elements that will be read soon; any place will do."""
    hints = (("i32", "0"), ("i32", "2"), ("i32", "1"))
    for k in range(0, count, LINE // dtype.size):
        offset = f.mul(f.add(first, k), dtype.size)
        address = f.op(f"getelementptr i8, ptr {start}, i64 {offset}")
        f.intrinsic("void", "llvm.prefetch.p0", ("ptr", address), *hints)


def lane_mask(v: VectorEmitter, rest: Int) -> str:
    """The lanes below `rest`."""
    f, t = v.f, f"<{v.width} x i32>"
    if isinstance(rest, int):
        n = f"splat (i32 {rest})"
    else:
        short = f.op(f"trunc i64 {rest} to i32")
        n = f.op(f"insertelement {t} poison, i32 {short}, i64 0")
        n = f.op(f"shufflevector {t} {n}, {t} poison, {t} zeroinitializer")
    lanes = ", ".join(f"i32 {k}" for k in range(v.width))
    return f.op(f"icmp ugt {t} {n}, <{lanes}>")


def maskable(target: Target, places: Sequence[OperandAccess]) -> bool:
    """Whether a tail can be done by masked access."""
    if not target.masks or any(p.stride not in (0, 1) for p in places):
        return False
    return target.narrow_masks or all(p.dtype.size >= 4 for p in places if p.stride == 1)


@contextmanager
def tail(f: LlvmFunction, done: Int, n: Int) -> Iterator[None]:
    """The body runs if anything is left."""
    if isinstance(done, int) and isinstance(n, int):
        yield
        return
    with f.when(f.op(f"icmp slt i64 {done}, {n}")):
        yield
