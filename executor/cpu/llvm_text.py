"""An emitter of LLVM IR text.

Index arithmetic takes Python ints (folded) or SSA names (emitted). Mutable values are allocas;
the pass `sroa` turns them into registers. Names are numbered per function, and a function is called
by a digest of its text: two functions that do the same have the same name, in any program.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias

import numpy as np

from executor.launches import CODE_BITS
from ir.scalar.language import Number
from ir.types import BOOL, F16, DType

#: an i64: a literal or an SSA name
Int: TypeAlias = int | str


def element(dtype: DType, memory: bool = False) -> str:
    """The LLVM type of one element; bool is i1 in registers and i8 in memory. Floats of 16 bits are
    moved only, as integers: not every target has instructions for them."""
    if dtype.kind == "f" and dtype.bits > 16:
        return "float" if dtype.bits == 32 else "double"
    return "i1" if dtype == BOOL and not memory else f"i{dtype.storage.bits}"


def literal(value: Number, dtype: DType) -> str:
    if dtype == F16:
        return str(int(np.float16(value).view(np.int16)))
    if dtype.kind == "f":
        (bits,) = struct.unpack("<Q", struct.pack("<d", float(value)))
        return f"0x{bits:016X}"
    if dtype == BOOL:
        return "true" if value else "false"
    return str(int(value))


class LlvmFunction:
    """One function: `op` appends an instruction and returns its SSA name.

    cold: hardly any time is spent in it, those that it calls aside; it is compiled the fast way.
    """

    def __init__(self, name: str, result: str = "void") -> None:
        self.name, self.result = name, result
        self.arguments: list[str] = []
        self.entry: list[str] = []
        self.body: list[str] = []
        self.declarations: set[str] = set()
        self.tables: list[str] = []
        self.count = 0
        self.cold = False

    def fresh(self, stem: str = "v") -> str:
        self.count += 1
        return f"%{stem}{self.count}"

    def argument(self, kind: str) -> str:
        name = f"%a{len(self.arguments)}"
        self.arguments.append(f"{kind} {name}")
        return name

    def do(self, text: str) -> None:
        self.body.append("  " + text)

    def op(self, text: str) -> str:
        r = self.fresh()
        self.do(f"{r} = {text}")
        return r

    def alloca(self, kind: str, align: int = 8) -> str:
        r = self.fresh()
        self.entry.append(f"  {r} = alloca {kind}, align {align}")
        return r

    def table(self, values: Sequence[float], dtype: DType) -> str:
        """The address of numbers that are part of the code."""
        kind, name = element(dtype), f"@?.{len(self.tables)}"
        items = ", ".join(f"{kind} {literal(float(x), dtype)}" for x in values)
        kept = f"private unnamed_addr constant [{len(values)} x {kind}] [{items}], align 64"
        self.tables.append(f"{name} = {kept}")
        return name

    def add(self, a: Int, b: Int, wraps: bool = False) -> Int:
        """`wraps`: the sum may leave 64 bits, and is what is left of it."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if b == 0 or a == 0:
            return a if b == 0 else b
        return self.op(f"add{'' if wraps else ' nsw'} i64 {a}, {b}")

    def sub(self, a: Int, b: Int) -> Int:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if b == 0 else self.op(f"sub nsw i64 {a}, {b}")

    def mul(self, a: Int, b: Int, wraps: bool = False) -> Int:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if b == 1 or a == 1:
            return a if b == 1 else b
        if b == 0 or a == 0:
            return 0
        return self.op(f"mul{'' if wraps else ' nsw'} i64 {a}, {b}")

    def floor_to(self, n: Int, step: int) -> Int:
        """The largest multiple of `step`, a power of two, up to n."""
        return n & -step if isinstance(n, int) else self.op(f"and i64 {n}, {-step}")

    def at(self, pointer: str, index: Int, kind: str) -> str:
        """The address of element `index`."""
        if index == 0:
            return pointer
        return self.op(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {index}")

    def load(self, kind: str, pointer: str, align: int) -> str:
        return self.op(f"load {kind}, ptr {pointer}, align {align}")

    def store(self, kind: str, value: str, pointer: str, align: int) -> None:
        self.do(f"store {kind} {value}, ptr {pointer}, align {align}")

    def intrinsic(self, kind: str, name: str, *arguments: tuple[str, str]) -> str:
        """Call a function declared on the way; "" for void."""
        self.declarations.add(f"declare {kind} @{name}({', '.join(t for t, _ in arguments)})")
        return self.call(kind, name, *arguments)

    def call(self, kind: str, name: str, *arguments: tuple[str, str]) -> str:
        text = f"call {kind} @{name}({', '.join(f'{t} {v}' for t, v in arguments)})"
        if kind == "void":
            self.do(text)
            return ""
        return self.op(text)

    def label(self, name: str) -> None:
        self.body.append(name + ":")

    @contextmanager
    def loop(self, low: Int, high: Int, step: int = 1, go: str = "") -> Iterator[Int]:
        """The body runs while i < high and, with an address `go`, while the byte there is not 0.

        With `go` the SSA name that it yields may be used after the loop: where it ended.
        """
        once = isinstance(low, int) and isinstance(high, int) and low < high <= low + step
        if once and not go:
            yield low
            return
        self.count += 1
        k, i = self.count, f"%i{self.count}"
        self.do(f"br label %pre{k}")
        self.label(f"pre{k}")
        self.do(f"br label %head{k}")
        self.label(f"head{k}")
        self.do(f"{i} = phi i64 [ {low}, %pre{k} ], [ %next{k}, %latch{k} ]")
        self.do(f"%more{k} = icmp slt i64 {i}, {high}")
        self.do(f"br i1 %more{k}, label %{'go' if go else 'body'}{k}, label %exit{k}")
        if go:
            self.label(f"go{k}")
            test = self.nonzero(go)
            self.do(f"br i1 {test}, label %body{k}, label %exit{k}")
        self.label(f"body{k}")
        yield i
        self.do(f"br label %latch{k}")
        self.label(f"latch{k}")
        self.do(f"%next{k} = add nsw i64 {i}, {step}")
        self.do(f"br label %head{k}")
        self.label(f"exit{k}")

    @contextmanager
    def when(self, test: str) -> Iterator[None]:
        """The body runs if the i1 `test` holds."""
        self.count += 1
        k = self.count
        self.do(f"br i1 {test}, label %then{k}, label %end{k}")
        self.label(f"then{k}")
        yield
        self.do(f"br label %end{k}")
        self.label(f"end{k}")

    def nonzero(self, address: str) -> str:
        """Whether the byte there is not 0, as i1."""
        return self.op(f"icmp ne i8 {self.load('i8', address, 1)}, 0")

    def either(self, test: str, then: Callable[[], None], orelse: Callable[[], None]) -> None:
        """Run `then` if the i1 `test` holds, else `orelse`."""
        self.count += 1
        k = self.count
        self.do(f"br i1 {test}, label %then{k}, label %else{k}")
        for name, body in (("then", then), ("else", orelse)):
            self.label(f"{name}{k}")
            body()
            self.do(f"br label %end{k}")
        self.label(f"end{k}")

    def leave_when(self, test: str, code: Int) -> None:
        """Return `code` if the i1 `test` holds."""
        with self.leaving(test, code):
            pass

    @contextmanager
    def leaving(self, test: str, code: Int) -> Iterator[None]:
        """Like `leave_when`; the body runs before."""
        with self._bail(test):
            yield
            self.do(f"ret i64 {code}")

    def leave_with(self, test: str, code: Int, value: Int) -> None:
        """Like `leave_when`, with `value` above the `CODE_BITS` of the code."""
        with self._bail(test):
            high = self.op(f"shl i64 {value}, {CODE_BITS}")
            self.do(f"ret i64 {self.op(f'or i64 {high}, {code}')}")

    @contextmanager
    def _bail(self, test: str) -> Iterator[None]:
        self.count += 1
        k = self.count
        self.do(f"br i1 {test}, label %bail{k}, label %on{k}")
        self.label(f"bail{k}")
        yield
        self.label(f"on{k}")

    def text(self, result: str = "") -> str:
        """`result`: what to return at the end, for a function that returns something."""
        head = f"define dso_local {self.result} @{self.name}({', '.join(self.arguments)})"
        last = f"  ret {self.result} {result}".rstrip()
        return "\n".join(
            [
                f"{head} noinline nounwind {'cold ' if self.cold else ''}{{",
                "entry:",
                *self.entry,
                *self.body,
                last,
                "}",
                *self.tables,
                "",
            ]
        )


@dataclass(frozen=True)
class LlvmSource:
    """A program as LLVM text. `functions`: texts by name, each behind those that it calls, the last
    one is what to call. `declarations`: of everything else that they call."""

    functions: dict[str, str]
    declarations: frozenset[str] = frozenset()

    def text(self, only: Container[str] | None = None) -> str:
        """The functions, or some of them with declarations of what these call."""
        texts = [t for n, t in self.functions.items() if only is None or n in only]
        called = {} if only is None else dict.fromkeys(q for t in texts for q in callees(t))
        declared = [declaration(self.functions[n]) for n in called if n not in (only or ())]
        return "\n".join([*sorted(self.declarations), *declared, *texts, ""])


def declaration(text: str) -> str:
    """Return the declaration of the function that `text` defines."""
    head = text[: text.index(") ") + 1].replace("define dso_local", "declare", 1)
    return re.sub(r" %\w+(?=[,)])", "", head)


def is_cold(text: str) -> bool:
    """Whether the function that `text` defines is a cold one."""
    return text.split("\n", 1)[0].endswith(" cold {")


def callees(text: str) -> list[str]:
    """The functions of a `LlvmModule` that a function calls."""
    return sorted(set(re.findall(r" call \w+ @(f\.\w+)\(", text)))


class LlvmModule:
    """Functions with equal text are kept once."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}
        self.declarations: set[str] = set()

    def define(self, f: LlvmFunction, result: str = "") -> str:
        """Add a function named `?`; returns the name it gets."""
        self.declarations |= f.declarations
        return self.add(f.text(result))

    def add(self, text: str) -> str:
        """Like `define`, for a text that only calls functions declared or defined here."""
        name = "f." + blake2b(text.encode(), digest_size=12).hexdigest()
        named = text.replace("@?(", f"@{name}(", 1).replace("@?.", f"@{name}.")
        self.functions.setdefault(name, named)
        return name

    def helper(self, make: Callable[..., LlvmFunction], *arguments: Hashable) -> str:
        """Like `define`, for the function that `make(*arguments)` writes once, which returns 0."""
        name, alone = _alone(make, *arguments)
        self.include(alone)
        return name

    def include(self, other: LlvmModule) -> None:
        """Add all that another module has."""
        self.functions.update(other.functions)
        self.declarations |= other.declarations

    def source(self) -> LlvmSource:
        return LlvmSource(dict(self.functions), frozenset(self.declarations))


@lru_cache(maxsize=512)
def _alone(make: Callable[..., LlvmFunction], *arguments: Hashable) -> tuple[str, LlvmModule]:
    module = LlvmModule()
    return module.define(make(*arguments), "0"), module
