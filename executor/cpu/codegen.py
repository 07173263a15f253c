"""The native function of a program: addresses, loops and checks around calls of kernels.

It takes the address of a `Table`, and returns 0 or the number of the failure that stopped it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from executor.cpu.kernel_table import kernel
from executor.cpu.llvm_text import Function, Int, Module, Source, element
from executor.cpu.target import Target
from executor.executable import Table
from executor.interrupt import INTERRUPTED
from executor.launches import (
    Branch,
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
from executor.memory import Buffer, View
from executor.plan.arena import Layout
from executor.plan.loop_counts import asks, counts, endless
from ir.types import Dim, Size, is_natural

#: processor cycles between two questions for signals
PATIENCE = 1 << 28

#: `%t` are the entries of `interrupt`: the functions, then room for an exception. Denormals are not
#: flushed while handlers of signals run.
ASK = """define dso_local i32 @?(ptr %t) noinline nounwind {
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
  %flushing = alloca i32
  %plain = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %flushing)
  %old = load i32, ptr %flushing
  %new = and i32 %old, -32833
  store i32 %new, ptr %plain
  call void @llvm.x86.sse.ldmxcsr(ptr %plain)
  %lock = call i32 %ensure()
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
}"""

RUN = f"""define dso_local i64 @?(ptr %table) noinline nounwind {{
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


class _Program:
    def __init__(self, lowered: Lowered, layout: Layout, target: Target) -> None:
        self.target, self.module = target, Module()
        self.module.declarations |= MODES
        self.f = Function("?", "i64")
        self.table = self.f.argument("ptr")
        self.symbols: dict[str, Int] = {}
        self.late = set(_counts(lowered.launches))
        self.slots: dict[str, int] = {}
        self.bases: dict[Buffer, str] = {}
        self.known: list[dict[Dim, Int]] = [{}]
        self.body, self.f.body = self.f.body, self.f.entry
        self._prologue(lowered, layout)
        self.f.body = self.body
        self.block(lowered.launches)
        self.name = self.module.define(self.f, "0")

    def _prologue(self, lowered: Lowered, layout: Layout) -> None:
        f, program, table = self.f, lowered.program, Table.of(lowered.program)
        for at, name in enumerate(program.sizes):
            self.symbols[name] = f.load("i64", f.at(self.table, at, "i64"), 8)
        for at, b in enumerate((*lowered.inputs, *lowered.outputs), table.inputs):
            self.bases[b] = f.load("ptr", f.at(self.table, at, "i64"), 8)
        arena = f.load("ptr", f.at(self.table, table.arena, "i64"), 8)
        self.slots = {n: k for k, n in enumerate(counts(program.ops), table.counts)}
        self.asks = asks(program.ops)
        if self.asks:
            self.clock = f.alloca("i64")
            f.store("i64", self.time(), self.clock, 8)
            self.asked = f.at(self.table, table.asks, "i64")
        for b, offset in layout.offsets.items():
            self.bases[b] = f.at(arena, offset, "i8")
        place: Int = layout.fixed
        unit = layout.alignment
        for slot in layout.slots:
            address = f.at(arena, place, "i8")
            self.bases.update(dict.fromkeys(slot.buffers, address))
            size = f.op(f"call i64 @llvm.smax.i64(i64 {self.number(slot.size)}, i64 0)")
            rounded = f.op(f"and i64 {f.op(f'add i64 {size}, {unit - 1}')}, {-unit}")
            place = f.add(place, rounded)
        f.declarations.add("declare i64 @llvm.smax.i64(i64, i64)")

    # ------------------------------------------------------------ numbers and addresses
    def number(self, d: Dim) -> Int:
        """A dim as a literal or a name; those of sizes only are computed in the prologue."""
        if isinstance(d, int):
            return d
        for known in reversed(self.known):
            if d in known:
                return known[d]
        if not self.moves(d.names):
            held, self.f.body = self.f.body, self.f.entry
            self.known[0][d] = self._sum(d)
            self.f.body = held
            return self.known[0][d]
        self.known[-1][d] = self._sum(d)
        return self.known[-1][d]

    def moves(self, names: Iterable[str]) -> bool:
        """Whether one of them is bound on the way: a symbol, or the count of a loop."""
        return any(n.startswith("#") or n in self.late for n in names)

    def _sum(self, d: Size) -> Int:
        """Terms without symbols are summed apart, so that the prologue can hold them."""
        fixed = tuple(t for t in d.terms if not self.moves(t[0]))
        if not fixed or len(fixed) == len(d.terms):
            return self._terms(d.terms)
        moving = tuple(t for t in d.terms if t not in fixed)
        return self.f.add(
            self.number(Size(fixed) if fixed[0][0] else fixed[0][1]), self._terms(moving)
        )

    def _terms(self, terms: Sequence[tuple[tuple[str, ...], int]]) -> Int:
        total: Int = 0
        for names, factor in terms:
            part: Int = factor
            for n in names:
                part = self.f.mul(part, self.symbols[n])
            total = self.f.add(total, part)
        return total

    def pointer(self, v: View) -> str:
        return self.f.at(self.bases[v.buffer], self.number(v.offset), element(v.dtype, True))

    # ------------------------------------------------------------ launches
    def block(self, launches: Sequence[Launch]) -> None:
        for launch in launches:
            self.launch(launch)

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
        holds = self.f.nonzero(self.pointer(x.unless))
        self.f.leave_when(self.f.op(f"xor i1 {holds}, true"), x.error)

    def number64(self, x: Number64) -> None:
        self.f.store("i64", str(self.number(x.value)), self.pointer(x.out), 8)

    def inside(self, launches: Sequence[Launch]) -> None:
        """A block that may not run: what is computed in it is known only there."""
        self.known.append({})
        self.block(launches)
        self.known.pop()

    def loop(self, x: Loop) -> None:
        f, trip = self.f, self.number(x.trip)
        if isinstance(x.trip, Size) and not is_natural(x.trip):
            trip = f.intrinsic("i64", "llvm.smax.i64", ("i64", str(trip)), ("i64", "0"))
        go = self.pointer(x.go) if x.go is not None else ""
        with f.loop(0, trip, go=go) as i:
            self.symbols[x.index] = i
            self.symbols[x.parity] = f.op(f"and i64 {i}, 1")
            if endless(x.trip):
                self.ask()
            self.inside(x.body)
        if x.count:
            self.symbols[x.count] = trip = i
        self.symbols[x.after] = f.op(f"and i64 {trip}, 1")
        if x.count in self.slots and len(self.known) == 1:
            f.store("i64", str(i), f.at(self.table, self.slots[x.count], "i64"), 8)

    def time(self) -> str:
        return self.f.intrinsic("i64", "llvm.readcyclecounter")

    def ask(self) -> None:
        """Ask for signals, if the last time is `PATIENCE` cycles ago."""
        f, now = self.f, self.time()
        waited = f.op(f"sub i64 {now}, {f.load('i64', self.clock, 8)}")
        with f.when(f.op(f"icmp ugt i64 {waited}, {PATIENCE}")):
            f.store("i64", now, self.clock, 8)
            code = f.call("i32", self.module.add(ASK), ("ptr", self.asked))
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
            f.leave_when(f.op(f"icmp uge i64 {wrapped}, {n}"), x.error)
        self.symbols[x.symbol] = wrapped

    def kernel(self, x: Launch) -> None:
        call = kernel(self.target, self.module, x)
        name = call.finish(self.module)
        arguments = [
            ("ptr", self.pointer(q)) if isinstance(q, View) else ("i64", str(self.number(q)))
            for q in call.actual
        ]
        code = self.f.call("i64", name, *arguments)
        error = getattr(x, "error", 0)
        if error:
            self.f.leave_when(self.f.op(f"icmp ne i64 {code}, 0"), error)


#: launches that are no kernels: how each is emitted
STRUCTURE: dict[type, Callable[[_Program, Any], None]] = {
    Loop: _Program.loop,
    When: _Program.when,
    Branch: _Program.branch,
    Check: _Program.check,
    Fail: _Program.fail,
    Index: _Program.index,
    Number64: _Program.number64,
}


def _counts(launches: Sequence[Launch]) -> Iterator[str]:
    for x in launches:
        if isinstance(x, Loop) and x.count:
            yield x.count
        for inside in blocks(x):
            yield from _counts(inside)


def source(lowered: Lowered, layout: Layout, target: Target) -> Source:
    """LLVM text; the last function is what to call.

    It flushes denormals (FTZ, DAZ) for the duration of the program and restores the caller's mode.
    The program is a function of its own, so that no arithmetic moves across the change.
    """
    p = _Program(lowered, layout, target)
    p.module.add(RUN.replace("@program(", f"@{p.name}("))
    return p.module.source()
