"""The elements that come first along an axis: a heap of their numbers, in the memory of the
result (`ir.ops.reduce` says how it moves)."""

from __future__ import annotations

from collections.abc import Callable

from executor.cpu.kernel_builder import Call, Place, load, nest
from executor.cpu.kernel_table import kernel_for
from executor.cpu.llvm_text import Int, Module
from executor.cpu.target import Target
from executor.cpu.vector_math import Lanes
from executor.launches import First
from executor.memory import collapse
from ir.ops.reduce import comes_first
from ir.scalar.language import input_
from ir.types import I64

#: levels of a heap, at most
LEVELS = 64


@kernel_for(First)
def first_kernel(target: Target, module: Module, x: First) -> Call:
    call = Call(target)
    source, out = call.pointer(x.x), call.pointer(x.out)
    kept = [a for a in range(x.x.ndim) if a != x.axis]
    rows = [[v.strides[a] for a in kept] for v in (x.x, x.out)]
    dims, strides = collapse([x.x.shape[a] for a in kept], rows)
    n, count = call.number(x.x.shape[x.axis]), call.number(x.out.shape[x.axis])
    step, apart = call.number(x.x.strides[x.axis]), call.number(x.out.strides[x.axis])
    numbers = [call.number(d) for d in dims]
    moves = [[call.number(s) for s in q] for q in strides]
    heap = _Heap(call, x, step, apart)

    def body(offsets: list[Int]) -> None:
        heap.row = Place(Place(source, x.x.dtype, 1).at(call.f, offsets[0]), x.x.dtype, step)
        heap.at = Place(Place(out, I64, 1).at(call.f, offsets[1]), I64, apart)
        heap.run(n, count)

    nest(call.f, numbers, moves, body)
    return call


class _Heap:
    """The numbers lie at `at`, the elements of a row at `row`."""

    row: Place
    at: Place

    def __init__(self, call: Call, x: First, step: Int, apart: Int) -> None:
        self.f, self.v, self.dtype = call.f, Lanes(call.f, call.target, 1), x.x.dtype
        self.largest = x.largest
        self.hole, self.go = self.f.alloca("i64"), self.f.alloca("i8", 1)

    def run(self, n: Int, count: Int) -> None:
        f = self.f
        with f.loop(0, count) as i:
            self.put(i, i)
        half = f.op(f"sdiv i64 {count}, 2")
        with f.loop(0, half) as i:
            top = f.sub(f.sub(half, 1), i)
            self.sift(top, count, self.number(top))
        with f.loop(count, n) as i:
            with f.when(self.before(self.element(i), self.element(self.number(0)))):
                self.sift(0, count, str(i))
        with f.loop(0, f.sub(count, 1)) as i:
            last = f.sub(f.sub(count, 1), i)
            number = self.number(last)
            self.put(last, self.number(0))
            self.sift(0, last, number)

    # ------------------------------------------------------------ memory
    def number(self, i: Int) -> str:
        return load(self.v, self.at, i)

    def put(self, i: Int, number: Int) -> None:
        address = self.at.at(self.f, self.f.mul(i, self.at.stride))
        self.f.store("i64", str(number), address, 8)

    def element(self, number: Int) -> str:
        return load(self.v, self.row, number)

    def before(self, a: str, b: str) -> str:
        root = comes_first(input_(0, self.dtype), input_(1, self.dtype), self.largest)
        return self.v.evaluate([root], [a, b])[0]

    # ------------------------------------------------------------ order
    def sift(self, top: Int, length: Int, number: str) -> None:
        """Place an element below `top`: down along the later ones to a leaf, then up."""
        f, key = self.f, self.element(number)
        f.store("i64", str(top), self.hole, 8)
        inner = f.op(f"sdiv i64 {f.sub(length, 1)}, 2")

        def down() -> None:
            hole = f.load("i64", self.hole, 8)
            right = f.add(f.mul(hole, 2), 2)
            first, second = self.number(right), self.number(f.sub(right, 1))
            left = self.before(self.element(first), self.element(second))
            child = f.sub(right, f.op(f"zext i1 {left} to i64"))
            self.put(hole, f.op(f"select i1 {left}, i64 {second}, i64 {first}"))
            f.store("i64", str(child), self.hole, 8)

        self.repeat(lambda: f.op(f"icmp slt i64 {f.load('i64', self.hole, 8)}, {inner}"), down)
        hole = f.load("i64", self.hole, 8)
        child = f.add(f.mul(hole, 2), 1)
        with f.when(f.op(f"icmp eq i64 {f.add(child, 1)}, {length}")):
            self.put(hole, self.number(child))
            f.store("i64", str(child), self.hole, 8)

        def above() -> tuple[str, str]:
            hole = f.load("i64", self.hole, 8)
            return hole, f.op(f"sdiv i64 {f.sub(hole, 1)}, 2")

        def rises() -> str:
            hole, parent = above()
            later = self.before(self.element(self.number(parent)), key)
            return f.op(f"and i1 {f.op(f'icmp sgt i64 {hole}, {top}')}, {later}")

        def up() -> None:
            hole, parent = above()
            self.put(hole, self.number(parent))
            f.store("i64", parent, self.hole, 8)

        self.repeat(rises, up)
        self.put(f.load("i64", self.hole, 8), number)

    def repeat(self, test: Callable[[], str], body: Callable[[], None]) -> None:
        """The body as long as the test holds."""
        f = self.f
        f.store("i8", f.op(f"zext i1 {test()} to i8"), self.go, 1)
        with f.loop(0, LEVELS, go=self.go):
            body()
            f.store("i8", f.op(f"zext i1 {test()} to i8"), self.go, 1)
