"""Scalar expressions of `ir.scalar.language` as C++: one constant for each primitive.

Nothing is contracted (the compilers are told so), and integers wrap around by unsigned arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ir.scalar import half
from ir.scalar.language import Number, Scalar, input_, nodes
from ir.types import BOOL, F16, F32, F64, I16, I32, I64, DType

TYPES = {
    "bool": "bool", "u8": "u8", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64",
    "f16": "i16", "bf16": "i16", "f32": "float", "f64": "double",
}  # fmt: skip
_OPERATORS = {
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_FUNCTIONS = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "roundeven": "rint",
    "copysign": "copysign", "fma": "fma", "abs": "fabs",
}  # fmt: skip


def register_type(dtype: DType) -> str:
    """The C++ type of a value; floats of 16 bits are their bits."""
    return TYPES[dtype.name]


def memory_type(dtype: DType) -> str:
    return TYPES[dtype.storage.name]


def literal(value: Number, dtype: DType) -> str:
    if dtype == F16:
        return str(int(np.float16(value).view(np.int16)))
    if dtype.kind == "f":
        return _float(float(value), dtype)
    if dtype == BOOL:
        return "true" if value else "false"
    if value == -(1 << 63):
        return "(-9223372036854775807ll - 1)"
    return f"{int(value)}ll" if dtype == I64 else f"({register_type(dtype)}){int(value)}"


def _float(value: float, dtype: DType) -> str:
    if math.isfinite(value):
        return f"{value.hex()}{'f' if dtype == F32 else ''}"
    if dtype == F32:
        return f"__uint_as_float({hex(int(np.float32(value).view(np.uint32)))}u)"
    return f"__longlong_as_double({hex(int(np.float64(value).view(np.uint64)))}ll)"


class ExpressionEmitter:
    """Constants in a block of C++.

    `emit` takes a line, `fresh` gives a new name. `zero`: what to do where an integer is divided
    by 0.
    """

    def __init__(
        self, emit: Callable[[str], None], fresh: Callable[[], str], zero: str = ""
    ) -> None:
        self.emit, self.fresh, self.zero = emit, fresh, zero

    def evaluate(self, roots: Sequence[Scalar], inputs: Sequence[str]) -> list[str]:
        """The values of the roots; `inputs` are values in registers."""
        values: dict[int, str] = {}
        for s in nodes(roots):
            if s.op == "const":
                assert s.value is not None
                values[id(s)] = literal(s.value, s.dtype)
            elif s.op == "input":
                values[id(s)] = inputs[int(s.value or 0)]
            else:
                values[id(s)] = self.primitive(s, [values[id(a)] for a in s.args])
        return [values[id(r)] for r in roots]

    def constant(self, dtype: DType, value: str) -> str:
        name = self.fresh()
        self.emit(f"const {register_type(dtype)} {name} = {value};")
        return name

    def primitive(self, s: Scalar, a: list[str]) -> str:
        d = s.args[0].dtype
        if d.compute != d and s.op not in ("cast", "select"):
            raise NotImplementedError(f"gpu: {s.op} of {d}")
        if s.op == "cast":
            return self.cast(a[0], d, s.dtype)
        if d.kind in "iu" and s.op in ("div", "rem"):
            return self._divided(s.op, d, *a)
        return self.constant(s.dtype, self._text(s.op, d, *a))

    def _text(self, op: str, d: DType, *a: str) -> str:
        if op in _OPERATORS:
            return f"{a[0]} {_OPERATORS[op]} {a[1]}"
        if op == "select":
            return f"{a[0]} ? {a[1]} : {a[2]}"
        if op == "not":
            return f"!{a[0]}" if d == BOOL else f"~{a[0]}"
        if op == "ldexp":
            return f"scaled({a[0]}, {a[1]})"
        if d.kind == "f":
            return self._of_floats(op, d, *a)
        return self._of_integers(op, d, *a)

    def _of_floats(self, op: str, d: DType, *a: str) -> str:
        if op in _ARITHMETIC:
            return f"{a[0]} {_ARITHMETIC[op]} {a[1]}"
        if op in _FUNCTIONS:
            return f"{_FUNCTIONS[op]}{'f' if d == F32 else ''}({', '.join(a)})"
        if op == "rem":
            return f"fmod{'f' if d == F32 else ''}({a[0]}, {a[1]})"
        if op == "neg":
            return f"-({a[0]})"
        if op == "bits":
            return f"{'__float_as_int' if d == F32 else '__double_as_longlong'}({a[0]})"
        raise NotImplementedError(f"primitive {op} of {d}")

    def _of_integers(self, op: str, d: DType, *a: str) -> str:
        wide = "u64" if d.bits == 64 else "u32"
        kind = register_type(d)
        if op in _ARITHMETIC:
            return f"({kind})(({wide}){a[0]} {_ARITHMETIC[op]} ({wide}){a[1]})"
        if op == "neg":
            return f"({kind})(0 - ({wide}){a[0]})"
        if op == "abs":
            return a[0] if d.kind == "u" else f"{a[0]} < 0 ? ({kind})(0 - ({wide}){a[0]}) : {a[0]}"
        if op == "shl":
            return f"({kind})(({wide}){a[0]} << {a[1]})"
        if op == "lshr":
            return f"({kind})({_unsigned(d)}{a[0]} >> {a[1]})"
        if op == "ashr":
            return f"({kind})({a[0]} >> {a[1]})"
        if op == "from_bits":
            return f"__uint_as_float((u32){a[0]})" if d == I32 else f"__longlong_as_double({a[0]})"
        raise NotImplementedError(f"primitive {op} of {d}")

    def _divided(self, op: str, d: DType, a: str, b: str) -> str:
        """By 1 in place of 0 and -1: 0 is reported, and the smallest integer / -1 would trap."""
        if self.zero:
            self.emit(f"if ({b} == 0) {self.zero};")
        kind, sign = register_type(d), {"div": "/", "rem": "%"}[op]
        if d.kind == "u":
            return self.constant(d, f"({kind})({a} {sign} ({b} == 0 ? 1 : {b}))")
        by = self.constant(d, f"{b} == 0 || {b} == -1 ? ({kind})1 : {b}")
        negative = self._of_integers("neg", d, a) if op == "div" else f"({kind})0"
        return self.constant(d, f"{b} == -1 ? {negative} : ({kind})({a} {sign} {by})")

    # ------------------------------------------------------------ casts
    def cast(self, a: str, d: DType, to: DType) -> str:
        if d == to:
            return a
        if d.compute != d:
            widen = half.from_f16 if d == F16 else half.from_bf16
            return self.cast(self.evaluate([widen(input_(0, I16))], [a])[0], F32, to)
        if to.compute != to:
            if d == F64:
                raise NotImplementedError(f"gpu: {d} to {to}")
            narrow = half.to_f16 if to == F16 else half.to_bf16
            return self.evaluate([narrow(input_(0, F32))], [self.cast(a, d, F32)])[0]
        if to == BOOL:
            return self.constant(to, f"{a} != 0")
        if d.kind == "f" and to.kind in "iu":
            through = "i64" if to.bits > 32 or d == F64 else "i32"
            return self.constant(to, f"({register_type(to)})({through}){a}")
        return self.constant(to, f"({register_type(to)}){a}")


def _unsigned(d: DType) -> str:
    return f"(u{d.bits})" if d.bits != 8 else "(u8)"


def divides(roots: Sequence[Scalar]) -> bool:
    """Whether an expression divides integers, which may fail."""
    return any(s.op in ("div", "rem") and s.dtype.kind in "iu" for s in nodes(roots))
