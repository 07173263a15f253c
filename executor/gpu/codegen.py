"""The kernels of a schedule as one CUDA C++ text.

Every kernel is given the table of its program (`executor.gpu.device_table`) and nothing else. All
threads compute the numbers that loops, branches and indices need, and all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from executor.executable import CallTable
from executor.gpu.device_table import CALL, LINE, DeviceTable, first_cell, shown
from executor.gpu.kernel_builder import Kernel, SharedRegisters, add, factor, mul
from executor.gpu.kernels.loops.linear import LinearScan
from executor.gpu.preamble import TEXT, THREADS
from executor.gpu.scalars import memory_type
from executor.gpu.schedule import (
    Barrier,
    Conditional,
    Repeat,
    Schedule,
    ScheduleNode,
    Stage,
    Task,
    parts,
)
from executor.launches import (
    Addresses,
    Branch,
    Check,
    Fail,
    Index,
    Loop,
    Lowered,
    Number64,
    When,
)
from executor.memory import Buffer, Element, View
from executor.plan.arena import ArenaLayout
from executor.plan.trip_counts import counts
from ir.types import Dim, Quotient

ARENA = Buffer("arena", 0, 0)


@dataclass(frozen=True)
class CudaSource:
    text: str
    table: DeviceTable


def source(lowered: Lowered, layout: ArenaLayout, schedule: Schedule) -> CudaSource:
    program = _ScheduleEmitter(lowered, layout)
    stages = [_Stage(program, n, s).text() for n, s in enumerate(schedule.stages)]
    table = program.table(len(stages))
    body = [s.replace(COUNTERS, str(table.counters)) for s in stages]
    return CudaSource("".join([TEXT, *program.functions.values(), *body]), table)


#: stands in the text of a kernel until the number of cells is known
COUNTERS = "@counters"


class _ScheduleEmitter:
    def __init__(self, lowered: Lowered, layout: ArenaLayout) -> None:
        program, self.call = lowered.program, CallTable.of(lowered.program)
        self.layout = layout
        self.sizes = {name: k for k, name in enumerate(program.sizes)}
        buffers = (*lowered.inputs, *lowered.outputs)
        self.addresses = {b: k for k, b in enumerate(buffers, self.call.inputs)}
        self.addresses[ARENA] = self.call.arena
        self.slots = {n: k for k, n in enumerate(counts(program.ops), self.call.counts)}
        self.slot_of = {b: k for k, s in enumerate(layout.slots) for b in s.buffers}
        self.cells: dict[str, int] = {}
        self.functions: dict[str, str] = {}

    def table(self, kernels: int) -> DeviceTable:
        return DeviceTable(self.call, self.cells, kernels)

    def cell(self, name: str) -> int:
        """The word of a number that one kernel finds for another one."""
        return self.cells.setdefault(name, first_cell(self.call) + len(self.cells))

    def function(self, kernel: Kernel) -> str:
        """Kernels with equal text are one function."""
        name = "f" + blake2b(kernel.text("?").encode(), digest_size=8).hexdigest()
        self.functions.setdefault(name, kernel.text(name))
        return name


@dataclass
class _Stage:
    """A kernel being emitted. `symbols` are the C++ names of what is bound in it."""

    program: _ScheduleEmitter
    place: int
    stage: Stage
    entry: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    symbols: dict[str, str] = field(default_factory=dict)
    bases: dict[Buffer, str] = field(default_factory=dict)
    arrays: dict[int, str] = field(default_factory=dict)
    names: int = 0
    depth: int = 1

    def text(self) -> str:
        self.block(self.stage.body)
        kernels = [n.kernel for n in parts(self.stage.body) if isinstance(n, Task)]
        beside = max((k.beside for k in kernels if k is not None), default=0)
        beside = 1 if self.stage.cooperative else beside
        bounds = f"__launch_bounds__({THREADS}{f', {beside}' if beside else ''})"
        return "\n".join(
            [
                f'extern "C" __global__ void {bounds} {self.stage.name}(i64* table) {{',
                f"  Grid g = grid_of(table, {self.place}, {COUNTERS} + {LINE * self.place});",
                "  if (stopped(g)) return;",
                *self.entry,
                *self.lines,
                "}",
                "",
            ]
        )

    def emit(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        self.emit(head + " {")
        self.depth += 1
        yield
        self.depth -= 1
        self.emit("}")

    def fresh(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def at_entry(self, kind: str, value: str) -> str:
        """A constant of the whole kernel."""
        name = self.fresh("e")
        self.entry.append(f"  {kind} {name} = {value};")
        return name

    # ------------------------------------------------------------ numbers and addresses
    def number(self, d: Dim) -> str:
        if isinstance(d, int):
            return str(d)
        parts = []
        for names, k in d.terms:
            part: int | str = k
            for n in names:
                part = mul(part, self.quotient(n) if isinstance(n, Quotient) else self.symbol(n))
            parts.append(part)
        return str(add(*parts))

    def quotient(self, q: Quotient) -> str:
        """Those of the sizes of a call are computed once in a kernel."""
        value = f"(({self.number(q.numerator)}) / {q.divisor})"
        if not q.numerator.names <= self.program.sizes.keys():
            return value
        if q not in self.symbols:
            self.symbols[q] = self.at_entry("const i64", value)
        return self.symbols[q]

    def symbol(self, name: str) -> str:
        if name not in self.symbols:
            p = self.program
            known = p.sizes.get(name)
            word = p.cell(name) if known is None else CALL + known
            self.symbols[name] = self.at_entry("const i64", f"table[{word}]")
        return self.symbols[name]

    def bind(self, name: str, value: str) -> None:
        """`name` stands for `value` from here on; in later kernels too, if nothing is around."""
        new = self.fresh("s")
        self.emit(f"const i64 {new} = {value};")
        self.symbols[name] = new
        if self.depth == 1:
            self.emit(f"if (!g.thread) table[{self.program.cell(name)}] = {new};")

    def pointer(self, v: View) -> str:
        kind = memory_type(v.dtype)
        if isinstance(v.buffer, Element):
            addresses = self.pointer(v.buffer.array.addresses)
            start = f"({kind}*){addresses}[{self.number(v.buffer.at)}]"
        else:
            start = f"({kind}*)({self.base(v.buffer)})"
        return f"({start} + {factor(self.number(v.offset))})" if v.offset != 0 else f"({start})"

    def base(self, b: Buffer) -> str:
        offset = self.program.layout.offsets.get(b)
        if offset is not None:
            return f"{self.start_of(ARENA)} + {offset}"
        if b in self.program.slot_of:
            slots = self.program.layout.slots
            return self.slot(slots[self.program.slot_of[b]].buffers[0])
        return self.start_of(b)

    def start_of(self, b: Buffer) -> str:
        if b not in self.bases:
            word = CALL + self.program.addresses[b]
            self.bases[b] = self.at_entry("u8* const", f"(u8*)table[{word}]")
        return self.bases[b]

    def slot(self, first: Buffer) -> str:
        """Return the address of a slot, which is known by its first buffer."""
        if first not in self.bases:
            at, unit = str(self.program.layout.fixed), self.program.layout.alignment
            place = self.at_entry("u8*", f"{self.start_of(ARENA)} + {at}")
            for s in self.program.layout.slots:
                self.bases[s.buffers[0]] = place
                size = self.at_entry("const i64", self.number(s.size))
                rounded = f"(({size} > 0 ? {size} : 0) + {unit - 1}) & {-unit}"
                place = self.at_entry("u8*", f"{place} + ({rounded})")
        return self.bases[first]

    # ------------------------------------------------------------ nodes
    def block(self, nodes: Sequence[ScheduleNode]) -> None:
        for n in nodes:
            if isinstance(n, Barrier):
                self.emit(f"if (barrier(g, {n.arrivals})) return;")
            elif isinstance(n, Repeat):
                self.repeat(n)
            elif isinstance(n, Conditional):
                self.choice(n)
            else:
                self.task(n)

    def inside(self, nodes: Sequence[ScheduleNode]) -> None:
        """A block that may not run: what is bound in it is known only there."""
        outer = dict(self.symbols)
        self.block(nodes)
        kept = {n: s for n, s in self.symbols.items() if s.startswith("e")}
        self.symbols = {**kept, **outer}

    def repeat(self, n: Repeat) -> None:
        x = n.launch
        if n.kernel is not None:
            self.call(n.kernel)
            self.bind_after(x)
            return
        i, trip, outer = self.fresh("t"), self.fresh("n"), dict(self.symbols)
        self.emit(f"i64 {i} = 0;")
        self.emit(f"const i64 {trip} = {self.number(x.trip)};")
        with self.braces(f"for (; {i} < {trip}; {i}++)"):
            self.block(n.head)
            if x.go is not None:
                self.emit(f"if (!*{self.pointer(x.go)}) break;")
            self.symbols[x.index] = i
            self.bind(x.parity, f"{i} & 1")
            self.inside(n.body)
        kept = {q: s for q, s in self.symbols.items() if s.startswith("e")}
        self.symbols = {**kept, **outer}
        if x.count:
            self.bind(x.count, i)
        self.bind(x.after, f"{i} & 1")
        if x.count in self.program.slots and self.depth == 1:
            self.emit(f"if (!g.thread) table[{CALL + self.program.slots[x.count]}] = {i};")

    def bind_after(self, x: Loop) -> None:
        """The parity behind a loop that is one call."""
        self.bind(x.after, f"({self.number(x.trip)} > 0 ? {self.number(x.trip)} : 0) & 1")

    def choice(self, n: Conditional) -> None:
        x = n.launch
        self.block(n.head)
        if isinstance(x, Branch):
            test = f"*{self.pointer(x.test)}"
        else:
            test = f"{factor(self.number(x.value))} {'==' if x.relation == 'eq' else '>='} 0"
        with self.braces(f"if ({test})"):
            self.inside(n.sides[0])
        if len(n.sides) > 1:
            with self.braces("else"):
                self.inside(n.sides[1])

    def task(self, n: Task) -> None:
        x, kernel = n.launch, n.kernel
        if isinstance(x, (Loop, When, Branch)):
            return
        if kernel is None:
            SCALARS[type(x)](self, x)
            return
        if n.fails:
            self.emit("g.order++;")
        self.call(kernel)
        if isinstance(x, LinearScan):
            self.bind_after(x.lanes.loop)

    def call(self, kernel: Kernel) -> None:
        arguments = [
            self.pointer(q) if isinstance(q, View) else f"(i64)({self.number(q)})"
            for q in kernel.actual
        ]
        kept = [] if kernel.kept is None else [self.registers(kernel.kept)]
        self.emit(f"{self.program.function(kernel)}({', '.join(['g', *kept, *arguments])});")

    def registers(self, k: SharedRegisters) -> str:
        """The array of a kernel's owner, which the first of its kernels declares."""
        if id(k.owner) not in self.arrays:
            self.arrays[id(k.owner)] = self.fresh("w")
            self.emit(f"{k.kind} {self.arrays[id(k.owner)]}[{k.count}];")
        return self.arrays[id(k.owner)]

    # ------------------------------------------------------------ launches of one thread
    def check(self, x: Check) -> None:
        with self.stops(f"{factor(self.number(x.value))} < 0"):
            self.emit(f"if (!g.thread) fail(g, {x.error});")

    @contextmanager
    def stops(self, test: str) -> Iterator[None]:
        """Emit the exit of all threads where `test` holds; the body runs before."""
        self.emit("g.order++;")
        with self.braces(f"if ({test})"):
            yield
            self.emit("return;")

    def fail(self, x: Fail) -> None:
        with self.stops(f"!*{self.pointer(x.unless)}"):
            with self.braces("if (!g.thread)"):
                at = shown(self.program.call)
                for v in x.shown:
                    at += self.store_shown(v, at)
                self.emit(f"fail(g, {x.error});")

    def store_shown(self, v: View, at: int) -> int:
        """Store a value of a message in the table; returns how many words it has."""
        kind = memory_type(v.dtype)
        if not v.shape:
            self.emit(f"*({kind}*)(table + {at}) = *{self.pointer(v)};")
            return 1
        words = [f"(i64){self.pointer(v)}", *map(self.number, (*v.shape, *v.strides))]
        for k, word in enumerate(words, at):
            self.emit(f"table[{k}] = {word};")
        return len(words)

    def number64(self, x: Number64) -> None:
        self.emit(f"if (!g.thread) *{self.pointer(x.out)} = {self.number(x.value)};")

    def addresses(self, x: Addresses) -> None:
        with self.braces("if (!g.thread)"):
            for k, v in enumerate(x.views):
                self.emit(f"{self.pointer(x.out)}[{k}] = (i64){self.pointer(v)};")

    def index(self, x: Index) -> None:
        at, n = self.fresh("x"), self.fresh("n")
        source = x.source
        found = f"*{self.pointer(source)}" if isinstance(source, View) else self.number(source)
        self.emit(f"const i64 {at} = {found};")
        self.emit(f"const i64 {n} = {self.number(x.n)};")
        wrapped = self.fresh("x")
        value = f"{at} < 0 ? {at} + {n} : {at}" if x.wrap else at
        self.emit(f"const i64 {wrapped} = {value};")
        if x.error:
            with self.stops(f"(u64){wrapped} >= (u64){n}"):
                self.emit(f"fail_at(g, {x.error}, {at});")
        self.bind(x.symbol, wrapped)


#: launches without a kernel that are no structure
SCALARS: dict[type, Callable[[_Stage, Any], None]] = {
    Check: _Stage.check,
    Fail: _Stage.fail,
    Index: _Stage.index,
    Number64: _Stage.number64,
    Addresses: _Stage.addresses,
}
