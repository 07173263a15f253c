"""Literals: printing and parsing of attributes, which are numbers, strings, sizes, types and
containers of them, and of the types of values."""

from __future__ import annotations

import re
from typing import Any

from ir.loc import VerifyError
from ir.types import (
    DTYPES,
    LARGEST_DIVISOR,
    LONGEST_TEXT,
    MOST_DIMS,
    Dim,
    DType,
    Size,
    Type,
    floor_divide,
)


def print_attr(value: Any) -> str:
    """A literal of the text; `parse_attr` reads it back."""
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(print_attr, value)) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{print_attr(k)}: {print_attr(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (bool, int, float, Size, DType, Type)) or value is None:
        return repr(value)
    raise TypeError(f"no text for the attribute {value!r}")


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<float>[+-]?(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|inf|nan)(?!\w))
    | (?P<type>\w+\[[\w+*\-,/()]*\](?=[,\]\s)}]|$))
    | (?P<size>[+-]?(?:\w|\((?=[\w(]))(?:\w|[+*\-(](?=[\w(])|//(?=\d)|\))*)
    | (?P<mark>[\[\],{}:])
    )""",
    re.VERBOSE,
)
_WORDS = {"True": True, "False": False, "None": None}


def parse_attr(text: str) -> Any:
    """The literal that `print_attr` printed; raises VerifyError when it is none."""
    value, at = read_literal(text, 0)
    if text[at:].strip():
        raise VerifyError(f"trailing text in {text!r}")
    return value


def read_literal(text: str, at: int) -> tuple[Any, int]:
    """The literal at a position, and where it ends."""
    m = _TOKEN.match(text, at)
    if not m:
        raise VerifyError(f"not a literal: {text[at:]!r}")
    if m["string"] is not None:
        return re.sub(r"\\(.)", lambda q: "\n" if q[1] == "n" else q[1], m["string"][1:-1]), m.end()
    if m["float"] is not None:
        return float(m["float"]), m.end()
    if m["type"] is not None:
        return _checked(parse_type, m["type"]), m.end()
    if m["size"] is not None:
        word = m["size"]
        if word in _WORDS:
            return _WORDS[word], m.end()
        return (DTYPES[word] if word in DTYPES else _checked(parse_dim, word)), m.end()
    if m["mark"] == "[":
        return _sequence(text, m.end())
    if m["mark"] == "{":
        return _mapping(text, m.end())
    raise VerifyError(f"not a literal: {text[at:]!r}")


def _checked(f: Any, text: str) -> Any:
    try:
        return f(text)
    except ValueError as e:
        raise VerifyError(str(e)) from None


def read_mark(text: str, at: int, mark: str) -> int | None:
    """Return the end of a punctuation mark; None if the text does not continue with it."""
    m = _TOKEN.match(text, at)
    return m.end() if m and m["mark"] == mark else None


def _sequence(text: str, at: int) -> tuple[tuple[Any, ...], int]:
    out: list[Any] = []
    while (end := read_mark(text, at, "]")) is None:
        value, at = read_literal(text, at)
        out.append(value)
        at = read_mark(text, at, ",") or at
    return tuple(out), end


def _mapping(text: str, at: int) -> tuple[dict[Any, Any], int]:
    out: dict[Any, Any] = {}
    while (end := read_mark(text, at, "}")) is None:
        key, at = read_literal(text, at)
        colon = read_mark(text, at, ":")
        if colon is None:
            raise VerifyError(f"not a mapping: {text!r}")
        if not is_key(key):
            raise VerifyError(f"a key that is a mapping: {text!r}")
        out[key], at = read_literal(text, colon)
        at = read_mark(text, at, ",") or at
    return out, end


def is_key(literal: object) -> bool:
    """Whether a literal may be a key of a mapping."""
    return all(map(is_key, literal)) if isinstance(literal, tuple) else type(literal) is not dict


# ---------------------------------------------------------------- sizes and types
_TYPE = re.compile(r"\s*(\w+)\[([^\]]*)\]\s*$")
_DIM_TOKEN = re.compile(r"\s*(//|[-+*()]|\d+|[A-Za-z_]\w*)\s*", re.ASCII)


def parse_dim(text: str) -> Dim:
    """`2*T+1` -> a Dim; raises ValueError when it is none."""
    if text.isascii() and text.isidentifier():
        return Size.named(text)
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"a size of {len(text)} characters: {text:.40}...")
    tokens, at = [], 0
    while m := _DIM_TOKEN.match(text, at):
        tokens.append(m[1])
        at = m.end()
    reader = _DimReader(tokens[::-1])
    d = reader.sum() if at == len(text) else None
    if d is None or reader.tokens:
        raise ValueError(f"not a size: {text!r}")
    return d


class _DimReader:
    """`tokens`: those that are left, the next one last; `depth`: parentheses around the next one.
    Methods give None for what is no size."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.depth = tokens, 0

    def took(self, *marks: str) -> str:
        return self.tokens.pop() if self.tokens and self.tokens[-1] in marks else ""

    def sum(self) -> Dim | None:
        sign, total = self.took("+", "-"), self.product()
        total = total * -1 if sign == "-" and total is not None else total
        while total is not None and (sign := self.took("+", "-")):
            more = self.product()
            total = None if more is None else total + more * (-1 if sign == "-" else 1)
        return total

    def product(self) -> Dim | None:
        total = self.factor()
        while total is not None and (sign := self.took("*", "//")):
            more = self.factor()
            if sign == "//":
                known = isinstance(more, int) and 0 < more < LARGEST_DIVISOR
                total = floor_divide(total, more) if known else None  # type: ignore[arg-type]
            else:
                total = None if more is None else total * more
        return total

    def factor(self) -> Dim | None:
        if self.took("("):
            self.depth += 1
            inner = self.sum() if self.depth <= MOST_DIMS else None
            self.depth -= 1
            return inner if self.took(")") else None
        token = self.tokens.pop() if self.tokens else ""
        if token.isdigit():
            return int(token)
        return Size.named(token) if token.isidentifier() else None


def parse_type(text: str) -> Type:
    """`f32[B,T,8]` -> a Type; raises ValueError when it is none."""
    m = _TYPE.match(text)
    if not m or m[1] not in DTYPES:
        raise ValueError(f"not a type: {text!r}")
    inner = m[2].strip()
    if inner.count(",") >= MOST_DIMS:
        raise ValueError(f"a type with more than {MOST_DIMS} dims: {text:.40}...")
    return Type(DTYPES[m[1]], tuple(parse_dim(d) for d in inner.split(",")) if inner else ())


__all__ = [
    "is_key", "parse_attr", "parse_dim", "parse_type", "print_attr", "read_literal", "read_mark",
]  # fmt: skip
