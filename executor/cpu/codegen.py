"""The native function of a program: addresses, loops and checks around calls of kernels.

It takes the address of a `CallTable`, and returns 0 or the number of the failure that stopped it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from executor.cpu.division import LONGEST, is_seldom, runs, weight
from executor.cpu.kernel_cache import kernel_of
from executor.cpu.llvm_text import Int, LlvmFunction, LlvmModule, LlvmSource, element
from executor.cpu.target import Target
from executor.executable import CallTable
from executor.host_calls import RAISED
from executor.interrupt import INTERRUPTED
from executor.launches import (
    CODE_BITS,
    Addresses,
    Branch,
    Call,
    Check,
    Fail,
    Index,
    Launch,
    Loop,
    Lowered,
    Number64,
    When,
    blocks,
)
from executor.memory import Buffer, Element, View
from executor.plan.arena import ArenaLayout
from executor.plan.trip_counts import asks, counts
from ir.types import Dim, Quotient, Size, is_natural, names_of

#: processor cycles between two questions for signals
PATIENCE = 1 << 28

#: denormals are not flushed from here on, until the mode in %flushing is loaded again
KEEPING = """  %flushing = alloca i32
  %plain = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %flushing)
  %old = load i32, ptr %flushing
  %new = and i32 %old, -32833
  store i32 %new, ptr %plain
  call void @llvm.x86.sse.ldmxcsr(ptr %plain)
"""

#: `%t` are the entries of `interrupt`: the functions, then room for an exception. Denormals are not
#: flushed while handlers of signals run.
ASK = f"""define dso_local i32 @?(ptr %t) noinline nounwind cold {{
  %t1 = getelementptr ptr, ptr %t, i64 1
  %t2 = getelementptr ptr, ptr %t, i64 2
  %t3 = getelementptr ptr, ptr %t, i64 3
  %type = getelementptr ptr, ptr %t, i64 4
  %value = getelementptr ptr, ptr %t, i64 5
  %traceback = getelementptr ptr, ptr %t, i64 6
  %ensure = load ptr, ptr %t
  %check = load ptr, ptr %t1
  %fetch = load ptr, ptr %t2
  %release = load ptr, ptr %t3
{KEEPING}  %lock = call i32 %ensure()
  %code = call i32 %check()
  %none = icmp eq i32 %code, 0
  br i1 %none, label %done, label %raised
raised:
  call void %fetch(ptr %type, ptr %value, ptr %traceback)
  br label %done
done:
  call void %release(i32 %lock)
  call void @llvm.x86.sse.ldmxcsr(ptr %flushing)
  ret i32 %code
}}"""

#: the entry %t of the table is the address of a function of Python, which takes the number of a
#: call and returns whether it failed. Denormals are not flushed while it runs.
CALL = f"""define dso_local i64 @?(ptr %t, i64 %number) noinline nounwind cold {{
{KEEPING}  %call = load ptr, ptr %t
  %code = call i64 %call(i64 %number)
  call void @llvm.x86.sse.ldmxcsr(ptr %flushing)
  ret i64 %code
}}"""

#: cold, if the program is
RUN = f"""define dso_local i64 @?(ptr %table) noinline nounwind cold {{
  %saved = alloca i32
  %mode = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %saved)
  %old = load i32, ptr %saved
  %new = or i32 %old, {0x8040}
  store i32 %new, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  %code = call i64 @program(ptr %table)
  call void @llvm.x86.sse.ldmxcsr(ptr %saved)
  ret i64 %code
}}"""
MODES = frozenset(f"declare void @llvm.x86.sse.{q}mxcsr(ptr)" for q in ("st", "ld"))


#: all of the arena
ARENA = Buffer("arena", 0, 0)


@dataclass
class _FunctionEmitter:
    """A native function being emitted, and what its names stand for.

    It is given the table and the frame. `known` are dims by block, the innermost last.
    """

    f: LlvmFunction
    table: str
    frame: str
    symbols: dict[str, Int] = field(default_factory=dict)
    bases: dict[Buffer, str] = field(default_factory=dict)
    known: list[dict[Dim, Int]] = field(default_factory=lambda: [{}])


class _ProgramEmitter:
    """A long program is several functions. The outermost one has the frame on its stack: memory for
    what is bound in one function and read in another, with `cells` for the number of each."""

    def __init__(self, lowered: Lowered, layout: ArenaLayout, target: Target) -> None:
        self.target, self.module, self.layout = target, LlvmModule(), layout
        self.module.declarations |= MODES
        self.late = set(_loop_names(lowered.launches))
        self.asks = asks(lowered.program.ops, lowered.program.capacities)
        self.seldom = is_seldom(lowered.launches)
        self.divided = weight(lowered.launches) > LONGEST
        self.cells: dict[object, int] = {}
        self.depth = 0
        self._entries(lowered)
        f = self.function(lowered.launches)
        self.now = _FunctionEmitter(f, f.argument("ptr"), "%frame")
        self._prologue()
        self.block(lowered.launches)
        if self.cells or self.divided:
            f.entry.insert(0, f"  %frame = alloca [{len(self.cells)} x i64], align 8")
        self.name, self.cold = self.module.define(f, "0"), f.cold

    def function(self, launches: Sequence[Launch]) -> LlvmFunction:
        """One of `launches`. It does nothing but call kernels: where it does so seldom, its own
        instructions take a microsecond at most."""
        f = LlvmFunction("?", "i64")
        f.cold = self.seldom or (self.depth == 0 and is_seldom(launches))
        return f

    def _entries(self, lowered: Lowered) -> None:
        """Number the entries of the table."""
        program, table = lowered.program, CallTable.of(lowered.program)
        self.sizes = {name: k for k, name in enumerate(program.sizes)}
        buffers = (*lowered.inputs, *lowered.outputs)
        self.addresses = {b: k for k, b in enumerate(buffers, table.inputs)}
        self.addresses[ARENA] = table.arena
        self.slots = {n: k for k, n in enumerate(counts(program.ops), table.counts)}
        self.asked, self.shown, self.called = table.asks, table.shown, table.calls

    def _prologue(self) -> None:
        """Emit the set-up of a call: the clock, and the addresses of slots."""
        self.first = {b: slot.buffers[0] for slot in self.layout.slots for b in slot.buffers}
        self.module.declarations.add("declare i64 @llvm.smax.i64(i64, i64)")
        with self.entry() as f:
            if self.asks:
                f.store("i64", self.time(), self.cell("clock"), 8)
            place: Int = self.layout.fixed
            unit = self.layout.alignment
            for slot in self.layout.slots:
                address = f.at(self.base(ARENA), place, "i8")
                self.now.bases.update(dict.fromkeys(slot.buffers, address))
                if self.divided:
                    f.store("ptr", address, self.cell(slot.buffers[0]), 8)
                size = f.op(f"call i64 @llvm.smax.i64(i64 {self.number(slot.size)}, i64 0)")
                rounded = f.op(f"and i64 {f.op(f'add i64 {size}, {unit - 1}')}, {-unit}")
                place = f.add(place, rounded)

    @property
    def f(self) -> LlvmFunction:
        return self.now.f

    @contextmanager
    def entry(self) -> Iterator[LlvmFunction]:
        """Emit into the entry block of the function, which runs before everything else."""
        f = self.f
        held, f.body = f.body, f.entry
        yield f
        f.body = held

    def loaded(self, kind: str, at: int) -> str:
        """Entry `at` of the table."""
        return self.f.load(kind, self.f.at(self.now.table, at, "i64"), 8)

    def cell(self, key: object) -> str:
        """The address of the cell of the frame for `key`."""
        at = self.cells.setdefault(key, len(self.cells))
        return self.f.at(self.now.frame, at, "i64")

    # ------------------------------------------------------------ numbers and addresses
    def number(self, d: Dim) -> Int:
        """A dim as a literal or a name; those of sizes only are computed in the prologue."""
        if isinstance(d, int):
            return d
        for known in reversed(self.now.known):
            if d in known:
                return known[d]
        if not self.moves(d.names):
            with self.entry():
                self.now.known[0][d] = self._sum(d)
            return self.now.known[0][d]
        self.now.known[-1][d] = self._sum(d)
        return self.now.known[-1][d]

    def moves(self, names: Iterable[str]) -> bool:
        """Whether one of them is bound on the way: a symbol, or the count or index of a loop."""
        return any(n.startswith("#") or n in self.late for n in names)

    def _sum(self, d: Size) -> Int:
        """Terms without symbols are summed apart, so that the prologue can hold them."""
        if len(d.quotients) == 1 and d == Size.named(d.quotients[0]):
            (q,) = d.quotients
            return self.f.op(f"udiv i64 {self.number(q.numerator)}, {q.divisor}")
        fixed = tuple(t for t in d.terms if not self.moves(n for q in t[0] for n in names_of(q)))
        if not fixed or len(fixed) == len(d.terms):
            return self._terms(d.terms)
        moving = tuple(t for t in d.terms if t not in fixed)
        first = self.number(Size(fixed) if fixed[0][0] else fixed[0][1])
        return self.f.add(first, self._terms(moving), wraps=True)

    def _terms(self, terms: Sequence[tuple[tuple[str, ...], int]]) -> Int:
        """A number from data may be anything until it is checked: sums with it may wrap around."""
        wraps = any(n.startswith("#s") for names, _ in terms for n in names)
        total: Int = 0
        for names, factor in terms:
            part: Int = factor
            for n in names:
                q = self.number(Size.named(n)) if isinstance(n, Quotient) else self.symbol(n)
                part = self.f.mul(part, q, wraps)
            total = self.f.add(total, part, wraps)
        return total

    def symbol(self, name: str) -> Int:
        """Return the value of a name in a dim: a symbol bound in this function or another, or a
        size."""
        symbols = self.now.symbols
        if name not in symbols and name not in self.sizes:
            return self.f.load("i64", self.cell(name), 8)
        if name not in symbols:
            with self.entry():
                symbols[name] = self.loaded("i64", self.sizes[name])
        return symbols[name]

    def bind(self, name: str, value: Int) -> None:
        """`name` stands for `value` from here on, in other functions of the program too."""
        self.now.symbols[name] = value
        if self.divided:
            self.f.store("i64", str(value), self.cell(name), 8)

    def pointer(self, v: View) -> str:
        kind = element(v.dtype, True)
        if isinstance(v.buffer, Element):
            addresses, at = self.pointer(v.buffer.array.addresses), self.number(v.buffer.at)
            start = self.f.load("ptr", self.f.at(addresses, at, "i64"), 8)
            return self.f.at(start, self.number(v.offset), kind)
        if v.buffer not in self.layout.offsets:
            return self.f.at(self.base(v.buffer), self.number(v.offset), kind)
        arena, offset = self.base(ARENA), self.layout.offsets[v.buffer]
        if isinstance(v.offset, int):
            return self.f.at(arena, offset + v.offset * v.dtype.size, "i8")
        return self.f.at(self.f.at(arena, offset, "i8"), self.number(v.offset), kind)

    def base(self, b: Buffer) -> str:
        """Return the address of an input, an output, a slot or the arena."""
        bases = self.now.bases
        if b not in bases:
            with self.entry() as f:
                if b in self.first:
                    bases[b] = f.load("ptr", self.cell(self.first[b]), 8)
                else:
                    bases[b] = self.loaded("ptr", self.addresses[b])
        return bases[b]

    # ------------------------------------------------------------ launches
    def block(self, launches: Sequence[Launch]) -> None:
        if weight(launches) <= LONGEST:
            for launch in launches:
                self.launch(launch)
            return
        for run in runs(launches):
            if weight(run) <= LONGEST:
                self.part(run)
            else:
                self.launch(*run)

    def part(self, launches: Sequence[Launch]) -> None:
        """Launches as a function of their own, and its call."""
        held, f = self.now, self.function(launches)
        self.now = _FunctionEmitter(f, f.argument("ptr"), f.argument("ptr"))
        self.block(launches)
        self.now = held
        name = self.module.define(f, "0")
        code = self.f.call("i64", name, ("ptr", held.table), ("ptr", held.frame))
        self.f.leave_when(self.f.op(f"icmp ne i64 {code}, 0"), code)

    def launch(self, x: Launch) -> None:
        emit = STRUCTURE.get(type(x))
        if emit is None:
            self.kernel(x)
        else:
            emit(self, x)

    def when(self, x: When) -> None:
        with self.f.when(self.f.op(f"icmp {x.relation} i64 {self.number(x.value)}, 0")):
            self.inside(x.body)

    def branch(self, x: Branch) -> None:
        test = self.f.nonzero(self.pointer(x.test))
        self.f.either(test, lambda: self.inside(x.then), lambda: self.inside(x.orelse))

    def check(self, x: Check) -> None:
        below = self.f.op(f"icmp slt i64 {self.number(x.value)}, 0")
        self.f.leave_when(below, x.error)

    def fail(self, x: Fail) -> None:
        f = self.f
        holds = f.nonzero(self.pointer(x.unless))
        with f.leaving(f.op(f"xor i1 {holds}, true"), x.error):
            at = self.shown
            for v in x.shown:
                at += self.store_shown(v, at)

    def store_shown(self, v: View, at: int) -> int:
        """Store a value of a message in the table; returns how many entries it has."""
        f, kind, size = self.f, f"i{8 * v.dtype.size}", v.dtype.size
        if not v.shape:
            f.store(
                kind, f.load(kind, self.pointer(v), size), f.at(self.now.table, at, "i64"), size
            )
            return 1
        address = f.op(f"ptrtoint ptr {self.pointer(v)} to i64")
        entries = [address, *map(self.number, (*v.shape, *v.strides))]
        for k, q in enumerate(entries, at):
            f.store("i64", str(q), f.at(self.now.table, k, "i64"), 8)
        return len(entries)

    def call(self, x: Call) -> None:
        """The table tells the function of Python where operands and results are."""
        f, table = self.f, self.now.table
        views = [f.op(f"ptrtoint ptr {self.pointer(v)} to i64") for v in (*x.ins, *x.outs)]
        for k, value in enumerate([*views, *map(self.number, x.sizes)], self.called + 1):
            f.store("i64", str(value), f.at(table, k, "i64"), 8)
        entry = f.at(table, self.called, "i64")
        code = f.call("i64", self.module.add(CALL), ("ptr", entry), ("i64", str(x.number)))
        f.leave_when(f.op(f"icmp ne i64 {code}, 0"), RAISED)

    def number64(self, x: Number64) -> None:
        self.f.store("i64", str(self.number(x.value)), self.pointer(x.out), 8)

    def store_addresses(self, x: Addresses) -> None:
        out = self.pointer(x.out)
        for k, v in enumerate(x.views):
            self.f.store("ptr", self.pointer(v), self.f.at(out, k, "i64"), 8)

    def inside(self, launches: Sequence[Launch]) -> None:
        """A block that may not run: what is computed in it is known only there."""
        self.now.known.append({})
        self.depth += 1
        self.block(launches)
        self.depth -= 1
        self.now.known.pop()

    def loop(self, x: Loop) -> None:
        f, trip = self.f, self.number(x.trip)
        if isinstance(x.trip, Size) and not is_natural(x.trip):
            trip = f.intrinsic("i64", "llvm.smax.i64", ("i64", str(trip)), ("i64", "0"))
        go = self.pointer(x.go) if x.go is not None else ""
        i = trip
        if go or x.body:
            with f.loop(0, trip, go=go) as i:
                self.bind(x.index, i)
                self.bind(x.parity, f.op(f"and i64 {i}, 1"))
                if x.asks:
                    self.ask()
                self.inside(x.body)
        if x.count:
            self.bind(x.count, i)
            trip = i
        self.bind(x.after, f.op(f"and i64 {trip}, 1"))
        if x.count in self.slots and self.depth == 0:
            f.store("i64", str(i), f.at(self.now.table, self.slots[x.count], "i64"), 8)

    def time(self) -> str:
        return self.f.intrinsic("i64", "llvm.readcyclecounter")

    def ask(self) -> None:
        """Ask for signals, if the last time is `PATIENCE` cycles ago."""
        f, now = self.f, self.time()
        clock = self.cell("clock")
        waited = f.op(f"sub i64 {now}, {f.load('i64', clock, 8)}")
        with f.when(f.op(f"icmp ugt i64 {waited}, {PATIENCE}")):
            f.store("i64", now, clock, 8)
            asked = f.at(self.now.table, self.asked, "i64")
            code = f.call("i32", self.module.add(ASK), ("ptr", asked))
            f.leave_when(f.op(f"icmp ne i32 {code}, 0"), INTERRUPTED)

    def index(self, x: Index) -> None:
        f, n = self.f, self.number(x.n)
        if isinstance(x.source, View):
            at: Int = f.load("i64", self.pointer(x.source), 8)
        else:
            at = self.number(x.source)
        wrapped = at
        if x.wrap:
            below = f.op(f"icmp slt i64 {at}, 0")
            wrapped = f.op(f"select i1 {below}, i64 {f.op(f'add i64 {at}, {n}')}, i64 {at}")
        if x.error:
            f.leave_with(f.op(f"icmp uge i64 {wrapped}, {n}"), x.error, at)
        self.bind(x.symbol, wrapped)

    def kernel(self, x: Launch) -> None:
        name, actual = kernel_of(self.target, self.module, x)
        arguments = [
            ("ptr", self.pointer(q)) if isinstance(q, View) else ("i64", str(self.number(q)))
            for q in actual
        ]
        code = self.f.call("i64", name, *arguments)
        error = getattr(x, "error", 0)
        if error:
            index = self.f.op(f"ashr i64 {code}, {CODE_BITS}")
            self.f.leave_with(self.f.op(f"icmp ne i64 {code}, 0"), error, index)


#: launches that are no kernels: how each is emitted
STRUCTURE: dict[type, Callable[[_ProgramEmitter, Any], None]] = {
    Loop: _ProgramEmitter.loop,
    When: _ProgramEmitter.when,
    Branch: _ProgramEmitter.branch,
    Check: _ProgramEmitter.check,
    Fail: _ProgramEmitter.fail,
    Call: _ProgramEmitter.call,
    Index: _ProgramEmitter.index,
    Number64: _ProgramEmitter.number64,
    Addresses: _ProgramEmitter.store_addresses,
}


def _loop_names(launches: Sequence[Launch]) -> Iterator[str]:
    """The names that loops bind: those of their indices and counts."""
    for x in launches:
        if isinstance(x, Loop):
            yield from (x.index, x.count) if x.count else (x.index,)
        for inside in blocks(x):
            yield from _loop_names(inside)


def source(lowered: Lowered, layout: ArenaLayout, target: Target) -> LlvmSource:
    """LLVM text; the last function is what to call.

    It flushes denormals (FTZ, DAZ) for the duration of the program and restores the caller's mode.
    The program is a function of its own, so that no arithmetic moves across the change.
    """
    p = _ProgramEmitter(lowered, layout, target)
    run = RUN.replace("@program(", f"@{p.name}(")
    p.module.add(run if p.cold else run.replace(" cold {", " {", 1))
    return p.module.source()
