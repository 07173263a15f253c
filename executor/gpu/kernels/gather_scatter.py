"""Gather and scatter by index tensors. Sorting along an axis: a thread permutes the indices of a
row in the memory of the result, as `ir.ops.reduce` defines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from executor.gpu.kernel_builder import IntText, Kernel, add, kernel_for, mul
from executor.gpu.scalars import memory_type
from executor.launches import First, Gather, GatherNd, Order, Positions, ScatterNd
from executor.memory import View
from ir.ops.reduce import SHORT, comes_first
from ir.scalar.language import input_
from ir.types import BOOL, Dim

#: parts that wait to be sorted, at most: as often as one is cut
STACK = 128

SIFT = """\
auto sift = [&](i64 low, i64 top, i64 length, i64 number) {
  i64 hole = top;
  while (hole < (length - 1) / 2) {
    const i64 one = at(low + 2 * hole + 2), other = at(low + 2 * hole + 1);
    const bool left = before(one, other);
    at(low + hole) = left ? other : one;
    hole = 2 * hole + (left ? 1 : 2);
  }
  if (2 * hole + 2 == length) {
    at(low + hole) = at(low + 2 * hole + 1);
    hole = 2 * hole + 1;
  }
  while (hole > top && before(at(low + (hole - 1) / 2), number)) {
    at(low + hole) = at(low + (hole - 1) / 2);
    hole = (hole - 1) / 2;
  }
  at(low + hole) = number;
};
auto heap = [&](i64 low, i64 length) {
  for (i64 top = length / 2 - 1; top >= 0; top--) sift(low, top, length, at(low + top));
};
auto unheap = [&](i64 low, i64 length) {
  for (i64 last = length - 1; last > 0; last--) {
    const i64 number = at(low + last);
    at(low + last) = at(low);
    sift(low, 0, last, number);
  }
};
"""

PARTS = """\
auto swap = [&](i64 i, i64 j) { const i64 one = at(i); at(i) = at(j); at(j) = one; };
auto cut = [&](i64 low, i64 high) -> i64 {
  const i64 a = low + 1, b = low + (high - low) / 2, c = high - 1;
  const bool ab = before(at(a), at(b)), bc = before(at(b), at(c)), ac = before(at(a), at(c));
  swap(low, ab ? (bc ? b : ac ? c : a) : (ac ? a : bc ? c : b));
  const i64 pivot = at(low);
  i64 i = low + 1, j = high;
  while (true) {
    while (before(at(i), pivot)) i++;
    j--;
    while (before(pivot, at(j))) j--;
    if (i >= j) return i;
    swap(i, j);
    i++;
  }
};
auto insert = [&](i64 low, i64 high) {
  for (i64 i = low + 1; i < high; i++) {
    const i64 number = at(i);
    i64 j = i;
    for (; j > low && before(number, at(j - 1)); j--) at(j) = at(j - 1);
    at(j) = number;
  }
};
auto depth_of = [&](i64 n) -> i64 {
  i64 depth = 0;
  for (; n > 1; n /= 2) depth += 2;
  return depth;
};
"""

SELECT = """\
auto select = [&](i64 n, i64 place) {
  i64 low = 0, high = n, depth = depth_of(n);
  while (high - low > 3) {
    if (depth == 0) {
      const i64 length = place + 1 - low;
      heap(low, length);
      for (i64 i = place + 1; i < high; i++) {
        const i64 number = at(i);
        if (before(number, at(low))) { at(i) = at(low); sift(low, 0, length, number); }
      }
      swap(low, place);
      return;
    }
    depth--;
    const i64 middle = cut(low, high);
    if (middle <= place) low = middle; else high = middle;
  }
  insert(low, high);
};
"""

SORT = f"""\
auto sort = [&](i64 n) {{
  i64 lows[{STACK}], highs[{STACK}], depths[{STACK}], size = 1;
  lows[0] = 0, highs[0] = n, depths[0] = depth_of(n);
  while (size) {{
    size--;
    i64 low = lows[size], high = highs[size], depth = depths[size];
    while (high - low > {SHORT}) {{
      if (depth == 0) {{ heap(low, high - low); unheap(low, high - low); break; }}
      depth--;
      const i64 middle = cut(low, high);
      lows[size] = middle, highs[size] = high, depths[size] = depth, size++;
      high = middle;
    }}
  }}
  insert(0, n);
}};
"""


@kernel_for(Gather)
def gather_kernel(g: Gather) -> Kernel:
    kernel, axis, end = Kernel(), g.axis, g.axis + g.index.ndim
    x, index, out = (kernel.pointer(v) for v in (g.x, g.index, g.out))
    n, step = kernel.number(g.x.shape[axis]), kernel.number(g.x.strides[axis])
    over_x = (*g.x.strides[:axis], *(0,) * g.index.ndim, *g.x.strides[axis + 1 :])
    over_index = (*(0,) * axis, *g.index.strides, *(0,) * (g.x.ndim - axis - 1))
    assert len(over_x) == len(over_index) == g.out.ndim >= end
    with kernel.each(g.out.shape, [over_x, over_index, g.out.strides]) as (source, place, to):
        at = wrapped(kernel, f"(i64){kernel.load(index, g.index.dtype, place)}", n, g.wrap)
        with kernel.block(f"if ((u64){at} >= (u64){n})"):
            if g.error:
                kernel.emit(f"fail(g, {g.error});")
            kernel.emit("continue;")
        kind = memory_type(g.x.dtype)
        value = f"{x}[{add(source, mul(at, step))}]"
        if g.padding >= 0:
            value = f"{at} == {g.padding} ? ({kind})0 : {value}"
        kernel.store(out, to, value)
    kernel.own.append(g.out)
    return kernel


def wrapped(kernel: Kernel, index: str, n: IntText, wrap: bool = True) -> IntText:
    """Negative indices count from the end."""
    at = kernel.let(index)
    return kernel.let(f"{at} < 0 ? {at} + {n} : {at}") if wrap else at


@kernel_for(GatherNd)
def gather_nd_kernel(x: GatherNd) -> Kernel:
    kernel = Kernel()
    table, out = kernel.pointer(x.x), kernel.pointer(x.out)
    indices = _Indices(kernel, x.x, x.index, x.axis)
    rows = [indices.over, *indices.strides(x.out.ndim), x.out.strides]
    with kernel.each(x.out.shape, rows) as (start, *places, to):
        kernel.store(out, to, f"{table}[{indices.at(start, places)}]")
    kernel.own.append(x.out)
    return kernel


@kernel_for(ScatterNd)
def scatter_nd_kernel(x: ScatterNd) -> Kernel:
    """A thread has the places of all indices for one element of the other axes, in their order."""
    kernel = Kernel()
    out, y = kernel.pointer(x.out), kernel.pointer(x.y)
    indices, count, end = _Indices(kernel, x.out, x.index, x.axis), x.index[0].ndim, x.axis
    others = [*range(end), *range(end + len(x.index), x.out.ndim)]
    of_y = [*range(end), *range(end + count, x.y.ndim)]
    shape = [x.out.shape[a] for a in others]
    rows = [[x.out.strides[a] for a in others], [x.y.strides[a] for a in of_y]]
    places = kernel.numbers(x.index[0].shape)
    steps = [kernel.numbers(v.strides) for v in x.index]
    steps.append(kernel.numbers(x.y.strides[end : end + count]))
    with kernel.each(shape, rows) as (start, row):
        with kernel.nest(places, steps) as (*at, of_row):
            to = indices.at(start, at)
            old = kernel.load(out, x.out.dtype, to)
            new = kernel.load(y, x.y.dtype, add(row, of_row))
            (value,) = kernel.evaluate([x.root], [old, new])
            kernel.store(out, to, value)
    return kernel


class _Indices:
    """Index tensors for the axes of a table from `axis` on."""

    def __init__(self, kernel: Kernel, table: View, index: Sequence[View], axis: int) -> None:
        self.kernel, self.axis, self.index = kernel, axis, index
        self.pointers = [kernel.pointer(v) for v in index]
        behind = axis + len(index)
        self.sizes = kernel.numbers(table.shape[axis:behind])
        self.steps = kernel.numbers(table.strides[axis:behind])
        none: tuple[Dim, ...] = (0,) * index[0].ndim
        self.over = (*table.strides[:axis], *none, *table.strides[behind:])

    def strides(self, ndim: int) -> list[tuple[Dim, ...]]:
        """The strides of each index tensor over the axes of the result."""
        front = (0,) * self.axis
        back = (0,) * (ndim - self.axis - self.index[0].ndim)
        return [(*front, *v.strides, *back) for v in self.index]

    def at(self, start: IntText, places: Sequence[IntText]) -> IntText:
        """The offset of the element in the table."""
        at = start
        for p, v, place, n, step in zip(self.pointers, self.index, places, self.sizes, self.steps):
            i = wrapped(self.kernel, self.kernel.load(p, v.dtype, place), n)
            at = self.kernel.let(add(at, mul(i, step)))
        return at


# ---------------------------------------------------------------- elements in order
@contextmanager
def _rows(kernel: Kernel, x: First | Order, stable: bool) -> Iterator[tuple[IntText, IntText]]:
    """The rows of a thread, with how many elements they and the results have, and the lambdas `at`,
    a number in the result, and `before`, of two numbers."""
    d = x.x.dtype
    source, out = kernel.pointer(x.x), kernel.pointer(x.out)
    kept = [a for a in range(x.x.ndim) if a != x.axis]
    n, step = kernel.number(x.x.shape[x.axis]), kernel.number(x.x.strides[x.axis])
    count, apart = kernel.number(x.out.shape[x.axis]), kernel.number(x.out.strides[x.axis])
    rows = [[v.strides[a] for a in kept] for v in (x.x, x.out)]
    with kernel.each([x.x.shape[a] for a in kept], rows) as (start, place):
        kernel.emit(f"const i64 row = {start}, first = {place};")
        kernel.emit(f"auto at = [&](i64 i) -> i64& {{ return {out}[first + i * ({apart})]; }};")
        with kernel.block("auto before = [&](i64 i, i64 j) -> bool"):
            a, b = (kernel.read(source, d, f"row + {q} * ({step})") for q in "ij")
            orders = [comes_first(input_(p, d), input_(1 - p, d), x.largest) for p in (0, 1)]
            one, other = kernel.evaluate(orders, [a, b])
            kernel.emit(f"return {one}{f' || (!({other}) && i < j)' if stable else ''};")
        kernel.emit(";")
        _emit(kernel, SIFT)
        kernel.emit(f"for (i64 i = 0; i < {count}; i++) at(i) = i;")
        yield n, count


def _emit(kernel: Kernel, text: str) -> None:
    for line in text.splitlines():
        kernel.emit(line)


@kernel_for(First)
def first_kernel(x: First) -> Kernel:
    kernel = Kernel()
    with _rows(kernel, x, False) as (n, count):
        kernel.emit(f"heap(0, {count});")
        with kernel.block(f"for (i64 i = {count}; i < {n}; i++)"):
            kernel.emit(f"if (before(i, at(0))) sift(0, 0, {count}, i);")
        kernel.emit(f"unheap(0, {count});")
    return kernel


@kernel_for(Order)
def order_kernel(x: Order) -> Kernel:
    kernel = Kernel()
    with _rows(kernel, x, x.stable) as (n, _):
        _emit(kernel, PARTS + (SELECT if x.count else "") + SORT)
        if x.count:
            kernel.emit(f"select({n}, {x.count - 1});")
        kernel.emit(f"sort({x.count - 1 if x.count else n});")
    return kernel


@kernel_for(Positions)
def positions_kernel(x: Positions) -> Kernel:
    """One thread, in the order of the elements."""
    kernel = Kernel()
    source, out, total = (kernel.pointer(v) for v in (x.x, *x.outs))
    n, step = kernel.number(x.x.shape[0]), kernel.number(x.x.strides[0])
    apart = kernel.number(x.outs[0].strides[0])
    with kernel.block("if (!g.thread)"):
        kernel.emit("i64 found = 0;")
        with kernel.loop(n) as i:
            test = kernel.load(source, BOOL, mul(i, step))
            kernel.emit(f"if ({test}) {out}[{mul('found++', apart)}] = {i};")
        kernel.emit(f"{total}[0] = found;")
        kernel.emit(f"for (; found < {n}; found++) {out}[{mul('found', apart)}] = 0;")
    return kernel
