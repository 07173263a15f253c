"""Building blocks of kernels: a device function that all threads of a grid run together.

A kernel is text with the shapes and strides that are numbers in it; addresses, and sizes that are
names, are arguments, so that equal launches on other memory have one function. An element of the
results belongs to one thread: element i, row-major, to thread i modulo the number of threads.
Launches that meet only in such elements need no barrier between them (`Kernel.own`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from executor.gpu.preamble import THREADS
from executor.gpu.scalars import ExpressionEmitter, memory_type
from executor.launches import Launch
from executor.memory import View, collapse
from ir.scalar.language import Scalar
from ir.types import BOOL, Dim, DType, product

#: an integer: known, or the name of one
IntText: TypeAlias = int | str
NARROW = 1 << 31


def mul(a: IntText, b: IntText) -> IntText:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if a == 0 or b == 0:
        return 0
    return b if a == 1 else a if b == 1 else f"{factor(a)} * {factor(b)}"


def factor(a: IntText) -> str:
    text = str(a)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def add(*terms: IntText) -> IntText:
    known = sum(t for t in terms if isinstance(t, int))
    names = [t for t in terms if isinstance(t, str)]
    if not names:
        return known
    return " + ".join([*names, *([str(known)] if known else [])])


@dataclass(frozen=True, eq=False)
class SharedRegisters:
    """Registers of a thread that several calls share."""

    owner: object
    kind: str
    count: int


@dataclass
class Kernel:
    """A kernel under construction, and what its caller passes. `own` are the views of which each
    thread touches only the elements that belong to it; `work` are threads that it can use; `kept`
    are registers of the caller; `beside` are blocks that a multiprocessor must have registers for,
    where the compiler shall not choose."""

    actual: list[View | Dim] = field(default_factory=list)
    own: list[View] = field(default_factory=list)
    work: Dim = 0
    kept: SharedRegisters | None = None
    beside: int = 0
    _parameters: list[str] = field(default_factory=list)
    _lines: list[str] = field(default_factory=list)
    _names: int = 0
    _depth: int = 1

    # ------------------------------------------------------------ arguments
    def pointer(self, view: View) -> str:
        return self._argument(view, f"{memory_type(view.dtype)}* ")

    def number(self, value: Dim) -> IntText:
        return value if isinstance(value, int) else self._argument(value, "i64 ")

    def numbers(self, dims: Sequence[Dim]) -> list[IntText]:
        return [self.number(d) for d in dims]

    def _argument(self, value: View | Dim, kind: str) -> str:
        name = f"a{len(self.actual)}"
        self.actual.append(value)
        self._parameters.append(kind + name)
        return name

    def keep(self, owner: object, kind: str, count: int) -> None:
        """`kept` is an array of registers that all kernels of the owner share."""
        self.kept = SharedRegisters(owner, kind, count)

    # ------------------------------------------------------------ text
    def emit(self, line: str) -> None:
        self._lines.append("  " * self._depth + line)

    def fresh(self) -> str:
        self._names += 1
        return f"v{self._names}"

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.emit(head + " {")
        self._depth += 1
        yield
        self._depth -= 1
        self.emit("}")

    def let(self, value: IntText, kind: str = "i64") -> IntText:
        if isinstance(value, int) or value.isidentifier():
            return value
        name = self.fresh()
        self.emit(f"const {kind} {name} = {value};")
        return name

    def text(self, name: str) -> str:
        kept = [] if self.kept is None else [f"{self.kept.kind} (&kept)[{self.kept.count}]"]
        parameters = ", ".join(["const Grid& g", *kept, *self._parameters])
        return "\n".join([f"DEV void {name}({parameters}) {{", *self._lines, "}", ""])

    # ------------------------------------------------------------ loops
    @contextmanager
    def loop(
        self, count: IntText, kind: str = "i64", first: str = "0", step: str = "1"
    ) -> Iterator[str]:
        name = self.fresh()
        with self.block(f"for ({kind} {name} = {first}; {name} < {count}; {name} += {step})"):
            yield name

    @contextmanager
    def unrolled(self, steps: int, first: str, count: IntText) -> Iterator[tuple[str, str]]:
        """A loop that is written out, over `steps` numbers from `first` on, as far as they are
        below `count`; gives how many there were before, and the number."""
        u = self.fresh()
        self.emit("#pragma unroll")
        with self.block(f"for (i32 {u} = 0; {u} < {steps}; {u}++)"):
            with self.block(f"if ({first} + {u} < {count})"):
                yield u, str(self.let(f"{first} + {u}"))

    @contextmanager
    def nest(
        self,
        dims: Sequence[IntText],
        strides: Sequence[Sequence[IntText]],
        start: Sequence[IntText] = (),
    ) -> Iterator[list[IntText]]:
        """Loops of one thread over all of `dims`; gives the offset of every operand."""
        at: list[IntText] = list(start) or [0] * len(strides)
        if not dims:
            yield at
            return
        with self.loop(dims[0]) as i:
            moved = [self.let(add(o, mul(i, s[0]))) for o, s in zip(at, strides)]
            with self.nest(dims[1:], [s[1:] for s in strides], moved) as inner:
                yield inner

    @contextmanager
    def each(
        self,
        shape: Sequence[Dim],
        strides: Sequence[Sequence[Dim]],
        by: tuple[str, str] = ("g.thread", "g.threads"),
    ) -> Iterator[list[IntText]]:
        """The elements of `shape` that belong to a thread; gives the offset of every operand.

        by: the first element, and the distance of two.
        """
        dims, rows = collapse(shape, strides)
        kind = "i32" if _narrow(dims, rows) else "i64"
        if len(dims) == 1:  # their number decides no more than where the loop ends
            n: list[IntText] = [self._argument(dims[0], "i64 ")]
        else:
            n = self.numbers(dims)
        steps = [self.numbers(r) for r in rows]
        self._use(product(dims) * (THREADS if by[0] == "blockIdx.x" else 1))
        count = self.let(_product(n))
        with self.loop(count, "i64", *by) as place:
            yield self.decoded(place, n, steps, kind)

    def _use(self, threads: Dim) -> None:
        if isinstance(self.work, int) and isinstance(threads, int):
            self.work = max(self.work, threads)
        elif isinstance(self.work, int):
            self.work = threads

    def decoded(
        self,
        place: str,
        dims: Sequence[IntText],
        rows: Sequence[Sequence[IntText]],
        kind: str = "i64",
    ) -> list[IntText]:
        """The offsets of the element with number `place`, row-major."""
        rest, parts = place, []
        if kind == "i32" and len(dims) > 1:
            rest = self.fresh()
            self.emit(f"const i32 {rest} = (i32){place};")
        for d in reversed(dims[1:]):
            parts.append(self.let(f"{rest} % {d}", kind))
            rest = str(self.let(f"{rest} / {d}", kind))
        index = [rest, *reversed(parts)] if dims else []
        return [self.let(add(*map(mul, index, row))) for row in rows]

    # ------------------------------------------------------------ elements
    def load(self, pointer: str, dtype: DType, at: IntText) -> str:
        """Load an element as a value in a register."""
        return self.loaded(f"{pointer}[{at}]", dtype)

    def loaded(self, element: str, dtype: DType) -> str:
        """Load an element from memory into a register; return the name of the register."""
        name = self.fresh()
        if dtype == BOOL:
            self.emit(f"const bool {name} = {element} != 0;")
        else:
            self.emit(f"const {memory_type(dtype)} {name} = {element};")
        return name

    def store(self, pointer: str, at: IntText, value: str) -> None:
        self.emit(f"{pointer}[{at}] = {value};")

    def read(self, pointer: str, dtype: DType, at: IntText) -> str:
        """Like `load`, in the compute type."""
        x = self.load(pointer, dtype, at)
        return self.expressions().cast(x, dtype, dtype.compute)

    def write(self, pointer: str, dtype: DType, at: IntText, value: str) -> None:
        """Like `store`, for a value in the compute type."""
        self.store(pointer, at, self.expressions().cast(value, dtype.compute, dtype))

    def evaluate(self, roots: Sequence[Scalar], inputs: Sequence[str], error: int = 0) -> list[str]:
        zero = f"fail(g, {error})" if error else ""
        return self.expressions(zero).evaluate(roots, inputs)

    def expressions(self, zero: str = "") -> ExpressionEmitter:
        return ExpressionEmitter(self.emit, self.fresh, zero)


def _product(dims: Sequence[IntText]) -> IntText:
    total: IntText = 1
    for d in dims:
        total = mul(total, d)
    return total


def _narrow(dims: Sequence[Dim], rows: Sequence[Sequence[Dim]]) -> bool:
    """Whether numbers of elements fit 32 bits, and offsets by strides that are known; others are
    arguments of 64 bits."""
    count = product(dims)
    if not isinstance(count, int) or count >= NARROW:
        return False
    reaches = [[d * s for d, s in zip(dims, r)] for r in rows]
    return all(sum(abs(q) for q in r if isinstance(q, int)) < NARROW for r in reaches)


def injective(v: View) -> bool:
    """Whether all places of a view have elements of their own."""
    return all(s != 0 or d == 1 for d, s in zip(v.shape, v.strides))


@contextmanager
def unrolled(kernel: Kernel, count: int) -> Iterator[str]:
    kernel.emit("#pragma unroll")
    with kernel.loop(count, "i32") as i:
        yield i


KernelMaker: TypeAlias = Callable[[Launch], Kernel]
KERNELS: dict[type, KernelMaker] = {}


def kernel_for(kind: type) -> Callable[[Callable[..., Kernel]], Callable[..., Kernel]]:
    """Register the kernel of a kind of launch."""

    def put(make: Callable[..., Kernel]) -> Callable[..., Kernel]:
        assert kind not in KERNELS, f"two kernels of {kind.__name__}"
        KERNELS[kind] = make
        return make

    return put
