"""Scalar expressions of `ir.scalar.language` as instructions on vectors of any width.

Every primitive is plain LLVM or an intrinsic that becomes an instruction; the exceptions are the
remainder of floats (the C library's `fmod`, exact) and f64 `fma` on a target without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from executor.cpu.llvm_text import LlvmFunction, element, literal
from executor.cpu.target import Target
from ir.scalar import half
from ir.scalar.language import Number, Scalar, input_, nodes
from ir.types import BOOL, F16, F32, F64, I16, I32, I64, DType

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"}
_INTRINSICS = {
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "roundeven": "roundeven",
    "copysign": "copysign",
}
_COMPARE_FLOAT = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}


def divides(roots: Sequence[Scalar]) -> bool:
    """Whether an expression divides integers, which may fail."""
    return any(s.op in ("div", "rem") and s.dtype.kind in "iu" for s in nodes(roots))


def serial(roots: Sequence[Scalar]) -> bool:
    """Whether an expression has no vector form."""
    return any(s.op == "rem" or (s.op == "div" and s.dtype.kind in "iu") for s in nodes(roots))


class VectorEmitter:
    """`width` lanes of every value; width 1 is plain scalars.

    `failed` is the address of an i64 that a division by zero sets to 1.
    """

    def __init__(self, f: LlvmFunction, target: Target, width: int, failed: str = "") -> None:
        self.f, self.target, self.width, self.failed = f, target, width, failed

    def type(self, dtype: DType, memory: bool = False) -> str:
        e = element(dtype, memory)
        return f"<{self.width} x {e}>" if self.width > 1 else e

    def suffix(self, dtype: DType) -> str:
        e = f"{'f' if dtype.kind == 'f' else 'i'}{dtype.bits if dtype != BOOL else 1}"
        return f"v{self.width}{e}" if self.width > 1 else e

    def const(self, value: Number, dtype: DType) -> str:
        text = literal(value, dtype)
        return f"splat ({element(dtype)} {text})" if self.width > 1 else text

    def splat(self, value: str, dtype: DType, memory: bool = False) -> str:
        if self.width == 1:
            return value
        t, e = self.type(dtype, memory), element(dtype, memory)
        v = self.f.op(f"insertelement {t} poison, {e} {value}, i64 0")
        zeros = f"<{self.width} x i32> zeroinitializer"
        return self.f.op(f"shufflevector {t} {v}, {t} poison, {zeros}")

    def evaluate(self, roots: Sequence[Scalar], inputs: Sequence[str]) -> list[str]:
        """SSA names of the roots; `inputs` are register values."""
        values: dict[int, str] = {}
        for s in nodes(roots):
            if s.op == "const":
                assert s.value is not None
                values[id(s)] = self.const(s.value, s.dtype)
            elif s.op == "input":
                values[id(s)] = inputs[int(s.value or 0)]
            else:
                values[id(s)] = self.primitive(s, [values[id(a)] for a in s.args])
        return [values[id(r)] for r in roots]

    # ------------------------------------------------------------ memory
    def from_memory(self, value: str, dtype: DType) -> str:
        if dtype.storage == dtype:
            return value
        zero = self.const(0, dtype.storage)
        return self.f.op(f"icmp ne {self.type(dtype, True)} {value}, {zero}")

    def to_memory(self, value: str, dtype: DType) -> str:
        if dtype.storage == dtype:
            return value
        return self.f.op(f"zext {self.type(dtype)} {value} to {self.type(dtype, True)}")

    # ------------------------------------------------------------ primitives
    def binary(self, name: str, dtype: DType, a: str, b: str) -> str:
        return self.f.op(f"{name} {self.type(dtype)} {a}, {b}")

    def intrinsic(self, name: str, dtype: DType, *args: str) -> str:
        t = self.type(dtype)
        return self.f.intrinsic(t, f"llvm.{name}.{self.suffix(dtype)}", *((t, a) for a in args))

    def choose(self, test: str, dtype: DType, a: str, b: str) -> str:
        t = self.type(dtype)
        return self.f.op(f"select {self.type(BOOL)} {test}, {t} {a}, {t} {b}")

    def primitive(self, s: Scalar, a: list[str]) -> str:
        d = s.args[0].dtype
        if d.compute != d and s.op not in ("cast", "select"):
            raise NotImplementedError(f"cpu: {s.op} of {d}")
        if s.op in _COMPARE_FLOAT:
            return self._compare(s.op, d, *a)
        if s.op in _INTRINSICS:
            return self.intrinsic(_INTRINSICS[s.op], d, *a)
        if s.op in ("add", "sub", "mul", "div", "rem"):
            return self._arithmetic(s.op, d, *a)
        if s.op in ("and", "or", "xor", "shl", "lshr", "ashr"):
            return self.binary(s.op, d, *a)
        if s.op == "select":
            return self.choose(a[0], s.dtype, a[1], a[2])
        if s.op in ("bits", "from_bits"):
            return self._convert("bitcast", a[0], d, s.dtype)
        special: dict[str, Callable[..., str]] = {
            "neg": self._neg,
            "abs": self._abs,
            "not": self._not,
            "fma": self._fma,
            "ldexp": self._ldexp,
        }
        if s.op in special:
            return special[s.op](d, *a)
        if s.op == "cast":
            return self._cast(a[0], d, s.dtype)
        raise NotImplementedError(f"primitive {s.op}")

    def _compare(self, op: str, d: DType, a: str, b: str) -> str:
        if d.kind == "f":
            return self.f.op(f"fcmp {_COMPARE_FLOAT[op]} {self.type(d)} {a}, {b}")
        sign = "" if op in ("eq", "ne") else "s" if d.kind == "i" else "u"
        return self.f.op(f"icmp {sign}{op} {self.type(d)} {a}, {b}")

    def _arithmetic(self, op: str, d: DType, a: str, b: str) -> str:
        if d.kind == "f":
            return self.binary(_FLOAT[op], d, a, b)
        if op in ("div", "rem"):
            return self._divide(op, d, a, b)
        return self.binary(op, d, a, b)

    def _divide(self, op: str, d: DType, a: str, b: str) -> str:
        """By 1 in place of 0 and -1: 0 is reported, and the smallest integer / -1 would trap."""
        assert self.width == 1
        if b.lstrip("-").isdigit() and int(b) not in (0, -1):
            return self.binary(f"{'u' if d.kind == 'u' else 's'}{op}", d, a, b)
        zero = self._compare("eq", d, b, "0")
        flag = self.f.op(f"zext i1 {zero} to i64")
        old = self.f.load("i64", self.failed, 8)
        self.f.store("i64", self.f.op(f"or i64 {old}, {flag}"), self.failed, 8)
        if d.kind == "u":
            return self.binary(f"u{op}", d, a, self.choose(zero, d, "1", b))
        minus = self._compare("eq", d, b, "-1")
        odd = self.f.op(f"or i1 {zero}, {minus}")
        r = self.binary(f"s{op}", d, a, self.choose(odd, d, "1", b))
        negative = self.binary("sub", d, "0", a) if op == "div" else "0"
        return self.choose(minus, d, negative, r)

    def _neg(self, d: DType, a: str) -> str:
        if d.kind == "f":
            return self.f.op(f"fneg {self.type(d)} {a}")
        return self.binary("sub", d, self.const(0, d), a)

    def _abs(self, d: DType, a: str) -> str:
        if d.kind == "f":
            return self.intrinsic("fabs", d, a)
        if d.kind == "u":
            return a
        t = self.type(d)
        return self.f.intrinsic(t, f"llvm.abs.{self.suffix(d)}", (t, a), ("i1", "false"))

    def _not(self, d: DType, a: str) -> str:
        return self.binary("xor", d, a, self.const(True if d == BOOL else -1, d))

    def _fma(self, d: DType, a: str, b: str, c: str) -> str:
        if self.target.fma or d == F64:
            return self.intrinsic("fma", d, a, b, c)
        x, y, z = (self._convert("fpext", q, F32, F64) for q in (a, b, c))
        total = self.binary("fadd", F64, self.binary("fmul", F64, x, y), z)
        return self._convert("fptrunc", total, F64, F32)

    def _ldexp(self, d: DType, a: str, n: str) -> str:
        """Without AVX-512 two factors, as 2**n itself may be out of range; a NaN stays one."""
        i = I32 if d == F32 else I64
        mantissa, bias = (23, 127) if d == F32 else (52, 1023)
        if self.target.scalef and self.width > 1:
            if d == F64:
                n = self._limit(n, I64, 5000)
                n, i = self._convert("trunc", n, I64, I32), I32
            name = f"llvm.ldexp.{self.suffix(d)}.{self.suffix(i)}"
            return self.f.intrinsic(self.type(d), name, (self.type(d), a), (self.type(i), n))
        n = self._limit(n, i, 2 * bias - 2)
        half = self.binary("ashr", i, n, self.const(1, i))
        rest = self.binary("sub", i, n, half)
        for part in (half, rest):
            biased = self.binary("add", i, part, self.const(bias, i))
            power = self.binary("shl", i, biased, self.const(mantissa, i))
            a = self.binary("fmul", d, a, self._convert("bitcast", power, i, d))
        return a

    def _limit(self, n: str, d: DType, most: int) -> str:
        n = self.intrinsic("smin", d, n, self.const(most, d))
        return self.intrinsic("smax", d, n, self.const(-most, d))

    def _convert(self, how: str, a: str, source: DType, to: DType) -> str:
        return self.f.op(f"{how} {self.type(source)} {a} to {self.type(to)}")

    def cast(self, a: str, d: DType, to: DType) -> str:
        return a if d == to else self._cast(a, d, to)

    def _half(self, a: str, d: DType, to: DType) -> str:
        """From or to a float of 16 bits, of which registers hold the bits. By an instruction where
        the target has one; from f64 it would be rounded twice."""
        if d == F64:
            raise NotImplementedError(f"cpu: {d} to {to}")
        if d.compute != d:
            return self.cast(self._widened(a, d), F32, to)
        a = self.cast(a, d, F32)
        if to == F16 and self.target.f16:
            short = self.f.op(f"fptrunc {self.type(F32)} {a} to {self._of_halves()}")
            return self.f.op(f"bitcast {self._of_halves()} {short} to {self.type(F16)}")
        narrow = half.to_f16 if to == F16 else half.to_bf16
        return self.evaluate([narrow(input_(0, F32))], [a])[0]

    def _widened(self, a: str, d: DType) -> str:
        if d == F16 and self.target.f16:
            bits = self.f.op(f"bitcast {self.type(F16)} {a} to {self._of_halves()}")
            return self.f.op(f"fpext {self._of_halves()} {bits} to {self.type(F32)}")
        wide = half.from_f16 if d == F16 else half.from_bf16
        return self.evaluate([wide(input_(0, I16))], [a])[0]

    def _of_halves(self) -> str:
        return f"<{self.width} x half>" if self.width > 1 else "half"

    def _cast(self, a: str, d: DType, to: DType) -> str:
        if d.compute != d or to.compute != to:
            return self._half(a, d, to)
        if to == BOOL:
            return self._compare("ne", d, a, self.const(0, d))
        if d.kind == "f" and to.kind == "f":
            return self._convert("fpext" if to.bits > d.bits else "fptrunc", a, d, to)
        if to.kind == "f":
            return self._convert("sitofp" if d.kind == "i" else "uitofp", a, d, to)
        if d.kind == "f":
            through = I64 if to.bits > 32 or d == F64 else I32
            a = self._convert("fptosi", a, d, through)
            a = self.f.op(f"freeze {self.type(through)} {a}")
            return a if to.bits == through.bits else self._convert("trunc", a, through, to)
        if to.bits > d.bits or d == BOOL:
            return self._convert("sext" if d.kind == "i" else "zext", a, d, to)
        return a if to.bits == d.bits else self._convert("trunc", a, d, to)
