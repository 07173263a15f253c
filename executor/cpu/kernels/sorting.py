"""Sorting and selection along an axis: the indices are permuted in the memory of the result, as
`ir.ops.reduce` defines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from executor.cpu.kernel_builder import KernelBuilder, OperandAccess, load, nest, store
from executor.cpu.kernel_table import kernel_for
from executor.cpu.llvm_text import Int, LlvmFunction, LlvmModule
from executor.cpu.target import Target
from executor.cpu.vector_math import VectorEmitter
from executor.launches import First, Order, Positions
from executor.memory import collapse
from ir.ops.reduce import SHORT, comes_first
from ir.scalar.language import input_
from ir.types import I64

#: iterations of a loop that ends by itself
MANY = 1 << 62
#: parts that wait to be sorted, at most: as often as one is cut
STACK = 128


def _rows(
    call: KernelBuilder, x: First | Order, heap: _HeapKernel, run: Callable[[Int, Int], None]
) -> KernelBuilder:
    """`run` for each row, with the numbers of elements of a row and of the result."""
    source, out = call.pointer(x.x), call.pointer(x.out)
    kept = [a for a in range(x.x.ndim) if a != x.axis]
    rows = [[v.strides[a] for a in kept] for v in (x.x, x.out)]
    dims, strides = collapse([x.x.shape[a] for a in kept], rows)
    n, count = call.number(x.x.shape[x.axis]), call.number(x.out.shape[x.axis])
    step, apart = call.number(x.x.strides[x.axis]), call.number(x.out.strides[x.axis])
    numbers = [call.number(d) for d in dims]
    moves = [[call.number(s) for s in q] for q in strides]

    def body(offsets: list[Int]) -> None:
        heap.row = OperandAccess(
            OperandAccess(source, x.x.dtype, 1).at(call.f, offsets[0]), x.x.dtype, step
        )
        heap.at = OperandAccess(OperandAccess(out, I64, 1).at(call.f, offsets[1]), I64, apart)
        run(n, count)

    nest(call.f, numbers, moves, body)
    return call


@kernel_for(First)
def first_kernel(target: Target, module: LlvmModule, x: First) -> KernelBuilder:
    call = KernelBuilder(target)
    heap = _HeapKernel(call, x)
    return _rows(call, x, heap, heap.run)


@kernel_for(Order)
def order_kernel(target: Target, module: LlvmModule, x: Order) -> KernelBuilder:
    call = KernelBuilder(target)
    sorter = _SortKernel(call, x)
    return _rows(call, x, sorter, lambda n, _: sorter.all(n, x.count))


@kernel_for(Positions)
def positions_kernel(target: Target, module: LlvmModule, x: Positions) -> KernelBuilder:
    """Every number is written; the next one takes its place unless the element is true."""
    call = KernelBuilder(target)
    f, one = call.f, VectorEmitter(call.f, target, 1)
    source, out, total = (call.pointer(v) for v in (x.x, *x.outs))
    n, step = call.number(x.x.shape[0]), call.number(x.x.strides[0])
    to = OperandAccess(out, I64, call.number(x.outs[0].strides[0]))
    count = f.alloca("i64")
    f.store("i64", "0", count, 8)
    with f.loop(0, n) as i:
        found = f.load("i64", count, 8)
        store(one, to, found, str(i))
        byte = f.load("i8", f.at(source, f.mul(i, step), "i8"), 1)
        test = f.op(f"zext i1 {f.op(f'icmp ne i8 {byte}, 0')} to i64")
        f.store("i64", str(f.add(found, test)), count, 8)
    found = f.load("i64", count, 8)
    f.store("i64", found, total, 8)
    with f.loop(found, n) as i:
        store(one, to, i, "0")
    return call


class _HeapKernel:
    """The numbers lie at `at`, the elements of a row at `row`."""

    row: OperandAccess
    at: OperandAccess

    def __init__(self, call: KernelBuilder, x: First | Order) -> None:
        self.f, self.v, self.dtype = call.f, VectorEmitter(call.f, call.target, 1), x.x.dtype
        self.largest = x.largest
        self.hole = self.f.alloca("i64")

    def run(self, n: Int, count: Int) -> None:
        f = self.f
        with f.loop(0, count) as i:
            self.put(i, i)
        self.heap(count)
        with f.loop(count, n) as i:
            with f.when(self.before(str(i), self.number(0))):
                self.sift(0, count, str(i))
        self.unheap(count)

    def heap(self, count: Int) -> None:
        f = self.f
        half = f.op(f"sdiv i64 {count}, 2")
        with f.loop(0, half) as i:
            top = f.sub(f.sub(half, 1), i)
            self.sift(top, count, self.number(top))

    def unheap(self, count: Int) -> None:
        f = self.f
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

    def before(self, i: str, j: str, a: str = "", b: str = "") -> str:
        """Whether the element with the number i comes before that with the number j; `a` and `b`
        are the elements where they are at hand."""
        pair = [a or self.element(i), b or self.element(j)]
        root = comes_first(input_(0, self.dtype), input_(1, self.dtype), self.largest)
        return self.v.evaluate([root], pair)[0]

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
            left = self.before(first, second)
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
            later = self.before(self.number(parent), number, b=key)
            return f.op(f"and i1 {f.op(f'icmp sgt i64 {hole}, {top}')}, {later}")

        def up() -> None:
            hole, parent = above()
            self.put(hole, self.number(parent))
            f.store("i64", parent, self.hole, 8)

        self.repeat(rises, up)
        self.put(f.load("i64", self.hole, 8), number)

    def repeat(self, test: Callable[[], str], body: Callable[[], None]) -> None:
        """The body as long as the test holds."""
        f, go = self.f, self.f.alloca("i8", 1)
        f.store("i8", f.op(f"zext i1 {test()} to i8"), go, 1)
        with f.loop(0, MANY, go=go):
            body()
            f.store("i8", f.op(f"zext i1 {test()} to i8"), go, 1)


class _Variable:
    """An integer in memory that `sroa` makes a register."""

    def __init__(self, f: LlvmFunction) -> None:
        self.f, self.slot = f, f.alloca("i64")

    def set(self, value: Int) -> None:
        self.f.store("i64", str(value), self.slot, 8)

    def get(self) -> str:
        return self.f.load("i64", self.slot, 8)

    def move(self, by: int) -> None:
        self.set(self.f.add(self.get(), by))


class _SortKernel(_HeapKernel):
    """The numbers of all elements of a row, in the order of an introspective sort."""

    def __init__(self, call: KernelBuilder, x: Order) -> None:
        super().__init__(call, x)
        self.stable = x.stable
        self.low, self.high, self.depth, self.i, self.j, self.size = (
            _Variable(self.f) for _ in range(6)
        )
        self.stack = [self.f.alloca(f"[{STACK} x i64]") for _ in range(3)]

    def before(self, i: str, j: str, a: str = "", b: str = "") -> str:
        first = super().before(i, j, a, b)
        if not self.stable:
            return first
        f = self.f
        tie = f.op(f"xor i1 {super().before(j, i, b, a)}, true")
        older = f.op(f"icmp slt i64 {i}, {j}")
        return f.op(f"or i1 {first}, {f.op(f'and i1 {tie}, {older}')}")

    def all(self, n: Int, count: int) -> None:
        with self.f.loop(0, n) as i:
            self.put(i, i)
        if count:
            self.select(n, count - 1)
        self.sort(count - 1 if count else n)

    # ------------------------------------------------------------ parts
    def swap(self, i: Int, j: Int) -> None:
        one, other = self.number(i), self.number(j)
        self.put(i, other)
        self.put(j, one)

    def less(self, i: Int, j: Int) -> str:
        return self.f.op(f"icmp slt i64 {i}, {j}")

    def depth_of(self, n: Int) -> Int:
        """Twice the number of halves."""
        f = self.f
        zeros = f.intrinsic("i64", "llvm.ctlz.i64", ("i64", f.op(f"or i64 {n}, 1")), ("i1", "true"))
        return f.mul(f.op(f"sub i64 63, {zeros}"), 2)

    def cut(self, low: str, high: str) -> str:
        """Partition low ... high - 1; return the start of the second part."""
        f, (i, j) = self.f, (self.i, self.j)
        a, c = f.add(low, 1), f.sub(high, 1)
        b = f.add(low, f.op(f"sdiv i64 {f.sub(high, low)}, 2"))
        at_a, at_b, at_c = (self.number(q) for q in (a, b, c))
        ab, bc, ac = self.before(at_a, at_b), self.before(at_b, at_c), self.before(at_a, at_c)

        def choose(test: str, one: Int, other: Int) -> str:
            return f.op(f"select i1 {test}, i64 {one}, i64 {other}")

        one, other = choose(bc, b, choose(ac, c, a)), choose(ac, a, choose(bc, c, b))
        self.swap(low, choose(ab, one, other))
        pivot, go = self.number(low), f.alloca("i8", 1)
        key = self.element(pivot)
        i.set(a)
        j.set(high)
        f.store("i8", "1", go, 1)
        with f.loop(0, MANY, go=go):
            self.repeat(lambda: self.before(self.number(i.get()), pivot, b=key), lambda: i.move(1))
            j.move(-1)
            self.repeat(lambda: self.before(pivot, self.number(j.get()), key), lambda: j.move(-1))
            apart = self.less(i.get(), j.get())
            with f.when(apart):
                self.swap(i.get(), j.get())
                i.move(1)
            f.store("i8", f.op(f"zext i1 {apart} to i8"), go, 1)
        return i.get()

    def insert(self, low: Int, high: Int) -> None:
        f, hole = self.f, self.i
        with f.loop(f.add(low, 1), high) as place:
            number = self.number(place)
            key = self.element(number)
            hole.set(place)

            def moves() -> str:
                at = hole.get()
                behind = self.less(low, at)
                last = f.op(f"select i1 {behind}, i64 {f.sub(at, 1)}, i64 {low}")
                return f.op(f"and i1 {behind}, {self.before(number, self.number(last), key)}")

            def shift() -> None:
                at = hole.get()
                self.put(at, self.number(f.sub(at, 1)))
                hole.move(-1)

            self.repeat(moves, shift)
            self.put(hole.get(), number)

    @contextmanager
    def part(self, low: Int) -> Iterator[None]:
        """Places count from `low` on."""
        whole = self.at
        self.at = OperandAccess(whole.at(self.f, self.f.mul(low, whole.stride)), I64, whole.stride)
        yield
        self.at = whole

    # ------------------------------------------------------------ the two ways
    def select(self, n: Int, place: int) -> None:
        f, low, high, depth = self.f, self.low, self.high, self.depth
        low.set(0)
        high.set(n)
        depth.set(self.depth_of(n))

        def longer() -> str:
            return self.less(3, f.sub(high.get(), low.get()))

        def step() -> None:
            f.either(f.op(f"icmp eq i64 {depth.get()}, 0"), by_heap, by_cut)

        def by_heap() -> None:
            start, end = low.get(), high.get()
            count = f.sub(place + 1, start)
            with self.part(start):
                self.heap(count)
                with f.loop(count, f.sub(end, start)) as i:
                    number = self.number(i)
                    with f.when(self.before(number, self.number(0))):
                        self.put(i, self.number(0))
                        self.sift(0, count, number)
            self.swap(start, place)
            high.set(start)

        def by_cut() -> None:
            depth.move(-1)
            middle = self.cut(low.get(), high.get())
            later = f.op(f"icmp sle i64 {middle}, {place}")
            f.either(later, lambda: low.set(middle), lambda: high.set(middle))

        self.repeat(longer, step)
        self.insert(low.get(), high.get())

    def sort(self, n: Int) -> None:
        f, low, high, depth = self.f, self.low, self.high, self.depth
        self.size.set(0)
        self.push(0, n, self.depth_of(n))

        def longer() -> str:
            return self.less(SHORT, f.sub(high.get(), low.get()))

        def by_heap() -> None:
            start = low.get()
            count = f.sub(high.get(), start)
            with self.part(start):
                self.heap(count)
                self.unheap(count)
            high.set(start)

        def by_cut() -> None:
            depth.move(-1)
            middle = self.cut(low.get(), high.get())
            self.push(middle, high.get(), depth.get())
            high.set(middle)

        def one() -> None:
            self.size.move(-1)
            for v, at in zip((low, high, depth), self.stack):
                v.set(f.load("i64", f.at(at, self.size.get(), "i64"), 8))
            self.repeat(
                longer, lambda: f.either(f.op(f"icmp eq i64 {depth.get()}, 0"), by_heap, by_cut)
            )

        self.repeat(lambda: self.less(0, self.size.get()), one)
        self.insert(0, n)

    def push(self, low: Int, high: Int, depth: Int) -> None:
        for value, at in zip((low, high, depth), self.stack):
            self.f.store("i64", str(value), self.f.at(at, self.size.get(), "i64"), 8)
        self.size.move(1)
