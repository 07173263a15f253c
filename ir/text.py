"""Printing and parsing of programs. The text is the format: it is printed, diffed, saved and
parsed.

`parse(str(p))` is equal to `p`: `str` of both is the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from ir.literal import parse_attr, parse_dim, parse_type, print_attr, read_literal, read_mark
from ir.loc import UNKNOWN, Loc, VerifyError
from ir.opdef import OPS
from ir.program import (
    ENDLESS,
    Carry,
    Cond,
    Const,
    Custom,
    Fused,
    Input,
    Join,
    Last,
    LoopCondition,
    Node,
    Op,
    Port,
    Program,
    Require,
    Scan,
    Seq,
    Slot,
    Stack,
    Value,
)
from ir.types import BOOL, I64, Size, Type, substitute_dim
from ir.uses import loop_sizes, walk

TYPE_COLUMN, LOC_COLUMN = 48, 70


# ---------------------------------------------------------------- printing
def print_program(program: Program) -> str:
    return "\n".join(_Printer(program).lines)


class _Printer:
    def __init__(self, program: Program) -> None:
        loops = (n for n in walk(program.ops) if isinstance(n, Scan) and n.size)
        self.names: dict[Value, str] = {n.index: "%" + n.size for n in loops}
        self.taken: set[str] = {*program.sizes, *loop_sizes(program.ops)}
        self.last: dict[str, int] = {}
        self.lines: list[str] = []
        self.program(program)

    def name(self, v: Value) -> str:
        name = self.names.get(v)
        if name is None:
            stem = re.sub(r"\W", "_", v.name) if v.name else ""
            stem = f"_{stem}" if stem[:1].isdigit() else stem
            name = self.names[v] = "%" + self.free(stem)
        return name

    def free(self, stem: str) -> str:
        """The stem, or with the next number that makes it a name of its own."""
        k = self.last.get(stem, 0)
        name = stem if k == 0 else ""
        while not name or name in self.taken:
            k += 1
            name = f"{stem}{'_' if stem[-1:].isdigit() else ''}{k}"
        self.taken.add(name)
        self.last[stem] = k
        return name

    def list(self, values: Iterable[Value]) -> str:
        return ", ".join(map(self.name, values))

    def output(self, v: Value | Slot) -> str:
        return f"slot {self.name(v.input)}" if isinstance(v, Slot) else self.name(v)

    def line(self, pad: int, left: str, types: str = "", loc: Loc = UNKNOWN) -> None:
        text = " " * pad + left
        if types:
            text = f"{text:<{TYPE_COLUMN}} : {types}"
        if loc.line > 0:
            text = f"{text:<{LOC_COLUMN}} @ {'_'.join(str(loc).split())}"
        self.lines.append(text)

    def program(self, p: Program) -> None:
        inputs = [
            f"{self.name(i.value)}: {i.value.type} {i.kind} {print_attr(i.name)}" for i in p.inputs
        ]
        self.lines.append(f"program {p.name}({', '.join(inputs)}) {{")
        if p.capacities:
            self.line(2, f"capacities {', '.join(p.capacities)}")
        for r in p.requires:
            self.line(2, f"require {r} {print_attr(r.reason)}", loc=r.loc)
        self.block(p.ops, 2)
        self.line(2, f"return {', '.join(map(self.output, p.outputs))}".rstrip())
        for target, value in p.writes:
            self.line(2, f"write {self.name(target)} = {self.name(value)}")
        self.lines.append("}")

    def block(self, ops: Iterable[Node], pad: int) -> None:
        for node in ops:
            if isinstance(node, Scan):
                self.scan(node, pad)
            elif isinstance(node, Cond):
                self.cond(node, pad)
            elif isinstance(node, Custom):
                self.custom(node, pad)
            elif isinstance(node, Fused):
                self.fused(node, pad)
            else:
                self.op(node, pad)

    def op(self, op: Op, pad: int) -> None:
        row = OPS[op.name]
        parts = [self.name(v) for v in op.operands]
        parts += [f"{k}={print_attr(v)}" for k, v in op.attrs.items() if not _is(v, row.attrs[k])]
        call = f"{op.name}({', '.join(parts)})"
        left = f"{self.list(op.results)} = {call}" if op.results else call
        self.line(pad, left, ", ".join(str(r.type) for r in op.results), op.loc)

    def scan(self, s: Scan, pad: int) -> None:
        most = "" if s.trip == ENDLESS else f" < {s.trip}"
        count = f" as {s.count}" if s.count else ""
        index = s.size or self.name(s.index)
        unroll = f" unroll {s.unroll}" if s.unroll != 1 else ""
        self.line(pad, f"{s.name} {index}{most}{count}{unroll} {{", loc=s.loc)
        for p in s.ports:
            self.port(s, p, pad + 2)
        self.line(pad + 2, "body")
        self.block(s.body, pad + 4)
        self.line(pad, "}")

    def cond(self, c: Cond, pad: int) -> None:
        n = self.name
        self.line(pad, f"cond {n(c.test)} {{", loc=c.loc)
        for p in c.ins:
            self.line(pad + 2, f"const {n(p.inner)} = {n(p.outer)}", str(p.inner.type))
        for j in c.outs:
            left = f"join  {n(j.outer)} = {n(j.then)} else {n(j.orelse)}"
            self.line(pad + 2, left, str(j.outer.type))
        self.line(pad + 2, "then")
        self.block(c.then, pad + 4)
        self.line(pad + 2, "else")
        self.block(c.orelse, pad + 4)
        self.line(pad, "}")

    def custom(self, c: Custom, pad: int) -> None:
        n = self.name
        self.line(pad, "custom {", loc=c.loc)
        for p in c.ins:
            self.line(pad + 2, f"const {n(p.inner)} = {n(p.outer)}", str(p.inner.type))
        for outer, inner in c.outs:
            self.line(pad + 2, f"out   {n(outer)} = {n(inner)}", str(outer.type))
        self.line(pad + 2, "forward")
        self.block(c.forward, pad + 4)
        for given in c.given:
            self.line(pad + 2, f"given {n(given)}", str(given.type))
        for p in c.saved:
            self.line(pad + 2, f"saved {n(p.inner)} = {n(p.outer)}", str(p.inner.type))
        self.line(pad + 2, "backward")
        self.block(c.backward, pad + 4)
        self.line(pad + 2, f"grads {', '.join('none' if g is None else n(g) for g in c.grads)}")
        self.line(pad, "}")

    def port(self, s: Scan, p: Port, pad: int) -> None:
        n = self.name
        if isinstance(p, LoopCondition):
            self.line(pad, f"go    {n(p.init)} then {n(p.next)}")
        elif isinstance(p, Const):
            self.line(pad, f"const {n(p.inner)} = {n(p.outer)}", str(p.inner.type))
        elif isinstance(p, Seq):
            at = Size.named(n(s.index)[1:]) * p.step + p.start
            cut = ":, " * p.axis + str(at)
            self.line(pad, f"seq   {n(p.inner)} = {n(p.outer)}[{cut}]", str(p.inner.type))
        elif isinstance(p, Carry):
            last = f" last {n(p.last)}" if p.last is not None else ""
            left = f"carry {n(p.inner)} = {n(p.init)} then {n(p.next)}{last}"
            self.line(pad, left, str(p.inner.type))
        elif isinstance(p, Stack):
            left = f"stack {n(p.outer)} = {n(p.inner)} axis {p.axis}"
            self.line(pad, left, str(p.outer.type))
        else:
            self.line(pad, f"last  {n(p.outer)} = {n(p.inner)}", str(p.outer.type))

    def fused(self, f: Fused, pad: int) -> None:
        shape = ", ".join(map(str, f.shape))
        self.line(pad, f"fused [{shape}] {{", loc=f.loc)
        for p in f.ins:
            self.line(
                pad + 2, f"const {self.name(p.inner)} = {self.name(p.outer)}", str(p.inner.type)
            )
        for outer, inner in f.outs:
            self.line(pad + 2, f"out   {self.name(outer)} = {self.name(inner)}", str(outer.type))
        self.line(pad + 2, "body")
        self.block(f.body, pad + 4)
        self.line(pad, "}")


def _is(value: Any, default: Any) -> bool:
    if type(value) is not type(default):
        return False
    if isinstance(value, (int, str)):
        return bool(value == default)
    return print_attr(value) == print_attr(default)


# ---------------------------------------------------------------- reading
def parse(text: str) -> Program:
    """A program from its text; raises VerifyError naming the line that is wrong."""
    reader = _Parser(text)
    try:
        return reader.program()
    except RecursionError:
        raise VerifyError(f"line {reader.at}: nested too deeply") from None
    except (VerifyError, ValueError) as e:  # a type or a dim that is none
        raise VerifyError(f"line {reader.at}: {e}: {reader.last!r:.300}") from e


_NAME = r"%\w+"
_HEAD = re.compile(r"program (\w+)\((.*)\) \{$")
_INPUT = re.compile(rf'({_NAME}): (\w+\[[^\]]*\]) (\w+) ("(?:[^"\\]|\\.)*")(?:, )?')
_LOC = re.compile(r"(\S+):(\d+)")
_TYPE = re.compile(r"\w+\[[^\]]*\]")
_TYPES = re.compile(rf"{_TYPE.pattern}(?:, {_TYPE.pattern})*")
_CALL = re.compile(rf"(?:({_NAME}(?:, {_NAME})*)\s+= )?(\w+)\((.*)\)$")
_LOOP = re.compile(
    r"(scan|while) (%?)(\w+)(?: < (\S+))?(?: as ([A-Za-z_]\w*))?(?: unroll (\d{1,9}))? \{$"
)
_PORTS = {
    "go": re.compile(rf"go\s+({_NAME}) then ({_NAME})$"),
    "const": re.compile(rf"const ({_NAME})\s+= ({_NAME})$"),
    "seq": re.compile(rf"seq\s+({_NAME})\s+= ({_NAME})\[((?::, )*)([^\]]+)\]$"),
    "carry": re.compile(rf"carry ({_NAME})\s+= ({_NAME}) then ({_NAME})(?: last ({_NAME}))?$"),
    "stack": re.compile(rf"stack ({_NAME})\s+= ({_NAME}) axis (\d+)$"),
    "last": re.compile(rf"last\s+({_NAME}) = ({_NAME})$"),
    "out": re.compile(rf"out\s+({_NAME}) = ({_NAME})$"),
    "given": re.compile(rf"given ({_NAME})$"),
    "saved": re.compile(rf"saved ({_NAME})\s+= ({_NAME})$"),
    "join": re.compile(rf"join\s+({_NAME})\s+= ({_NAME}) else ({_NAME})$"),
}
_REQUIRE = re.compile(r'require (\S+) (==|!=|>=) (\S+) ("(?:[^"\\]|\\.)*")$')


_PortLine: TypeAlias = "tuple[str, re.Match[str], Type]"


class _Parser:
    def __init__(self, text: str) -> None:
        self.lines = [q.rstrip() for q in text.strip("\n").split("\n")]
        self.at, self.last = 0, ""
        self.values: dict[str, Value] = {}

    def next(self) -> str:
        if self.at >= len(self.lines):
            raise VerifyError("the text ends too early")
        self.last = self.lines[self.at].strip()
        self.at += 1
        return self.last

    def peek(self) -> str:
        return self.lines[self.at].strip() if self.at < len(self.lines) else ""

    def match(self, pattern: re.Pattern[str], text: str) -> re.Match[str]:
        m = pattern.match(text)
        if not m:
            raise VerifyError("this line cannot be read")
        return m

    def new(self, name: str, type: Type) -> Value:
        if name in self.values:
            raise VerifyError(f"{name} is defined twice")
        hint = name[1:]
        self.values[name] = Value(type, "" if hint.isdigit() else hint)
        return self.values[name]

    def value(self, name: str) -> Value:
        if name not in self.values:
            raise VerifyError(f"{name} is not defined")
        return self.values[name]

    def output(self, found: tuple[str, str]) -> Value | Slot:
        slot, name = found
        return Slot(self.value(name)) if slot else self.value(name)

    def program(self) -> Program:
        head = self.match(_HEAD, self.next())
        inputs, at = [], 0
        while at < len(head[2]):
            m = _INPUT.match(head[2], at)
            if not m:
                raise VerifyError(f"not an input: {head[2][at:]!r}")
            value = self.new(m[1], parse_type(m[2]))
            inputs.append(Input(value, m[3], parse_attr(m[4])))
            at = m.end()
        capacities: tuple[str, ...] = ()
        if self.peek().startswith("capacities "):
            capacities = tuple(self.next().removeprefix("capacities ").split(", "))
        requires = []
        while self.peek().startswith("require "):
            requires.append(self.require())
        ops = self.block(("return",))
        outputs = tuple(map(self.output, re.findall(rf"(slot )?({_NAME})", self.next())))
        writes = []
        while self.peek().startswith("write "):
            m = self.match(re.compile(rf"write ({_NAME}) = ({_NAME})$"), self.next())
            writes.append((self.value(m[1]), self.value(m[2])))
        if self.next() != "}" or self.at != len(self.lines):
            raise VerifyError("the program does not end here")
        return Program(
            head[1], tuple(inputs), ops, outputs, tuple(writes), tuple(requires), capacities
        )

    def require(self) -> Require:
        text, loc = self.loc(self.next())
        m = self.match(_REQUIRE, text)
        return Require(parse_dim(m[1]), m[2], parse_dim(m[3]), parse_attr(m[4]), loc)

    def block(self, ends: tuple[str, ...]) -> tuple[Node, ...]:
        out: list[Node] = []
        while not self.peek().startswith(ends):
            line = self.next()
            if line.startswith(("scan ", "while ")):
                out.append(self.scan(line))
            elif line.startswith("cond "):
                out.append(self.cond(line))
            elif line.startswith("custom {"):
                out.append(self.custom(line))
            elif line.startswith("fused "):
                out.append(self.fused(line))
            else:
                out.append(self.op(line))
        return tuple(out)

    def loc(self, line: str) -> tuple[str, Loc]:
        left, _, right = line.rpartition(" @ ")
        m = _LOC.fullmatch(right)
        return (left.rstrip(), Loc(m[1], int(m[2]))) if left and m else (line, UNKNOWN)

    def types(self, line: str) -> tuple[str, tuple[Type, ...]]:
        left, _, right = line.rpartition(" : ")
        if not left or not _TYPES.fullmatch(right):
            return line, ()
        return left.rstrip(), tuple(map(parse_type, _TYPE.findall(right)))

    def op(self, line: str) -> Op:
        line, loc = self.loc(line)
        line, types = self.types(line)
        m = self.match(_CALL, line)
        if m[2] not in OPS:
            raise VerifyError(f"unknown op {m[2]!r}")
        names = m[1].split(", ") if m[1] else []
        if len(names) != len(types):
            raise VerifyError("one type for every result")
        operands, attrs = self.arguments(m[3])
        full = {k: attrs.pop(k, d) for k, d in OPS[m[2]].attrs.items()}
        if attrs:
            raise VerifyError(f"{m[2]} has no attribute {sorted(attrs)[0]!r}")
        results = tuple(self.new(n, t) for n, t in zip(names, types))
        return Op(m[2], operands, results, full, loc)

    def arguments(self, text: str) -> tuple[tuple[Value, ...], dict[str, Any]]:
        operands: list[Value] = []
        attrs: dict[str, Any] = {}
        at = 0
        while at < len(text):
            m = re.compile(rf"\s*({_NAME})|\s*(\w+)=").match(text, at)
            if not m:
                raise VerifyError(f"not an argument: {text[at:]!r}")
            if m[1]:
                operands.append(self.value(m[1]))
                at = m.end()
            else:
                attrs[m[2]], at = read_literal(text, m.end())
            at = read_mark(text, at, ",") or at
        return tuple(operands), attrs

    def scan(self, line: str) -> Scan:
        line, loc = self.loc(line)
        m = self.match(_LOOP, line)
        if (m[1] == "while") != bool(m[5]) or not (m[4] or m[5]):
            raise VerifyError("a scan has a trip, a while loop a name for its count")
        if not m[2] and not m[3].isidentifier():
            raise VerifyError(f"{m[3]} is not the name of a size")
        index, trip = self.new("%" + m[3], Type(I64)), parse_dim(m[4]) if m[4] else ENDLESS
        rows = self.ports("body", ("go", "const", "seq", "carry", "stack", "last"))
        inner = [self._in(*row) for row in rows]
        body = self.block(("}",))
        self.next()
        ports = tuple(self._port(row, v, m[3]) for row, v in zip(rows, inner))
        size, unroll = "" if m[2] else m[3], int(m[6] or 1)
        return Scan(index, trip, ports, body, loc, m[5] or "", size, unroll)

    def ports(self, end: str, kinds: tuple[str, ...]) -> list[_PortLine]:
        """The lines up to `end`, which is read too."""
        rows = []
        while self.peek() != end:
            text, types = self.types(self.next())
            kind = text.split()[0] if text else ""
            if kind not in kinds or len(types) != (kind != "go"):
                raise VerifyError("not a port")
            rows.append((kind, self.match(_PORTS[kind], text), types[0] if types else Type(BOOL)))
        self.next()
        return rows

    def cond(self, line: str) -> Cond:
        line, loc = self.loc(line)
        test = self.value(self.match(re.compile(rf"cond ({_NAME}) \{{$"), line)[1])
        rows = self.ports("then", ("const", "join"))
        ins = [Const(self.new(m[1], t), self.value(m[2])) for k, m, t in rows if k == "const"]
        then = self.block(("else",))
        self.next()
        orelse = self.block(("}",))
        self.next()
        outs = [
            Join(self.new(m[1], t), self.value(m[2]), self.value(m[3]))
            for k, m, t in rows
            if k == "join"
        ]
        return Cond(test, tuple(ins), then, orelse, tuple(outs), loc)

    def custom(self, line: str) -> Custom:
        _, loc = self.loc(line)
        rows = self.ports("forward", ("const", "out"))
        ins = [Const(self.new(m[1], t), self.value(m[2])) for k, m, t in rows if k == "const"]
        forward = self.block(("given ", "saved ", "backward"))
        outs = [(self.new(m[1], t), self.value(m[2])) for k, m, t in rows if k == "out"]
        rows = self.ports("backward", ("given", "saved"))
        given = [self.new(m[1], t) for k, m, t in rows if k == "given"]
        saved = [Const(self.new(m[1], t), self.value(m[2])) for k, m, t in rows if k == "saved"]
        backward = self.block(("grads",))
        names = [q.strip() for q in self.next().removeprefix("grads").split(",") if q.strip()]
        grads = tuple(None if q == "none" else self.value(q) for q in names)
        if self.next() != "}":
            raise VerifyError("the custom block does not end here")
        return Custom(
            tuple(ins), forward, tuple(outs), tuple(given), tuple(saved), backward, grads, loc
        )

    def _in(self, kind: str, m: re.Match[str], t: Type) -> Value | None:
        return self.new(m[1], t) if kind in ("const", "seq", "carry") else None

    def _port(self, row: _PortLine, inner: Value | None, i: str) -> Port:
        kind, m, t = row
        if kind == "go":
            return LoopCondition(self.value(m[1]), self.value(m[2]))
        if kind == "stack":
            return Stack(self.new(m[1], t), self.value(m[2]), int(m[3]))
        if kind == "last":
            return Last(self.new(m[1], t), self.value(m[2]))
        assert inner is not None
        if kind == "const":
            return Const(inner, self.value(m[2]))
        if kind == "carry":
            last = self.new(m[4], t) if m[4] else None
            return Carry(inner, self.value(m[2]), self.value(m[3]), last)
        at = parse_dim(m[4])
        start, second, third = (substitute_dim(at, {i: k}) for k in range(3))
        step = second - start
        if not isinstance(step, int) or third - second != step:
            raise VerifyError("the step of a seq port is a number")
        return Seq(inner, self.value(m[2]), m[3].count(":"), start, step)

    def fused(self, line: str) -> Fused:
        line, loc = self.loc(line)
        m = self.match(re.compile(r"fused \[([^\]]*)\] \{$"), line)
        shape = tuple(parse_dim(d) for d in m[1].split(", ")) if m[1] else ()
        rows = self.ports("body", ("const", "out"))
        ins = [Const(self.new(q[1], t), self.value(q[2])) for k, q, t in rows if k == "const"]
        body = self.block(("}",))
        self.next()
        outs = [(self.new(q[1], t), self.value(q[2])) for k, q, t in rows if k == "out"]
        if not all(isinstance(op, Op) for op in body):
            raise VerifyError("a loop inside of a kernel")
        return Fused(shape, tuple(ins), body, tuple(outs), loc)  # type: ignore[arg-type]
