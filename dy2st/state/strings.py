"""Text that contains values of the program: f-strings, `str.format`, `%`, `str` while tracing.

A `LazyText` is a list of strings and of `FormattedValue` values. `print` writes it when the program
runs, and errors carry it. Whatever else needs the characters themselves is refused by name.
"""

from __future__ import annotations

import collections
import operator
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinMethodType
from typing import Any, NoReturn, TypeGuard

from paddle.base.framework import EagerParamBase

from dy2st.state.arrays import is_array, tensor_of
from dy2st.state.containers.tagged_union import is_int_or_float
from dy2st.state.ownership import NAMESPACES, note_namespaces, refuse
from dy2st.state.protocols import users_method
from dy2st.state.traced_list import TraceList
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor, Shape, Tensor, type_of
from dy2st.trace.scalar import is_runtime, is_runtime_scalar
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace, TracedLoop, current
from dy2st.trace.user_stack import perform, raise_again
from ir import Value
from ir.messages import HOLE, MOST_SHOWN, is_shown
from ir.messages import Shown as Message
from ir.types import F64

CONVERSIONS: dict[int, Callable[[object], str]] = {115: str, 114: repr, 97: ascii}


@dataclass(frozen=True, eq=False)
class FormattedValue:
    """A value in a text. `how` is str, repr, ascii or format, with the format's `spec`; or `%` with
    a conversion like `%5.2f`."""

    value: Any
    how: str
    spec: str = ""

    def described(self) -> str:
        """Return the placeholder for a value that is not known."""
        if isinstance(self.value, FakeTensor):
            return f"<{self.value._value.type}>"
        if is_int_or_float(self.value):
            return "<int or float>"
        whole = isinstance(self.value, Tensor)
        return f"<{type_of(self.value) if whole else type_name(self.value)}>"


def type_name(x: object) -> str:
    return x.__class__.__name__


Part = str | FormattedValue
BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}"), set: ("{", "}"),
    Shape: ("paddle.Size([", "])"),
}  # fmt: skip


class LazyText:
    """`parts` joined. It passes for a str in `isinstance`."""

    __slots__ = ("parts",)
    __class__ = property(lambda self: str)  # type: ignore[assignment]
    __hash__: Any

    def __init__(self, parts: Iterable[Part]) -> None:
        self.parts = tuple(parts)

    def __add__(self, other: object) -> Any:
        return made([*self.parts, *pieces(other)]) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: object) -> Any:
        return made([*pieces(other), *self.parts]) if isinstance(other, str) else NotImplemented

    def __str__(self) -> str:
        """For messages of errors, after the trace has ended."""
        if current() is None:
            return described(self)
        return stop(self, "converted by code that is not translated")

    def __repr__(self) -> str:
        return f"Text({described(self)!r})"

    def __getattr__(self, name: str) -> Any:
        raise_again(self, name)
        if name.startswith("__"):
            raise AttributeError(name)
        return stop(self, f"needed by .{name}()")


LazyText.__name__ = LazyText.__qualname__ = "str"


def loops_in(text: object) -> frozenset[TracedLoop]:
    """The loops whose indices are in a text."""
    shown = (
        (q.value for q in text.parts if type(q) is FormattedValue) if type(text) is LazyText else ()
    )
    return frozenset().union(*(q.loops for q in shown if is_runtime(q)))


def stop(text: Any, what: str) -> NoReturn:
    """The characters are needed now: an unrolled loop has them, if only its index is in them."""
    numbers = [q.value for q in text.parts if type(q) is FormattedValue]
    if all(is_runtime(q) and not q.data for q in numbers):
        reason = f"a string with {numbers[0]!r} in it is {what}"
        raise NeedsConcrete(reason, loops_in(text), own=True)
    raise refuse(
        f"a string with a tensor's value in it is {what}.",
        "The value is known only when the program runs.",
        "Print it, raise it in an error, or format it outside of the translated function.",
    )


def _stopping(what: str) -> Callable[..., NoReturn]:
    return lambda self, *args: stop(self, what)


USES = {
    "eq": "compared", "ne": "compared", "lt": "compared", "le": "compared", "gt": "compared",
    "ge": "compared", "hash": "used as a key", "len": "measured", "iter": "taken apart",
    "getitem": "taken apart", "contains": "searched", "bool": "used as a condition",
    "format": "formatted by code that is not translated", "mod": "used as a format",
    "mul": "repeated", "rmul": "repeated",
}  # fmt: skip
for _name, _use in USES.items():
    setattr(LazyText, f"__{_name}__", _stopping(_use))


def described(x: object) -> str:
    """The message of an error: types where values are not known."""
    if not isinstance(x, LazyText):
        return str(x)
    return "".join(q if isinstance(q, str) else q.described() for q in x.parts)


def with_values(trace: Trace, x: object) -> tuple[str, list[tuple[Value, Message]]]:
    """The message of an error with a HOLE for each value of the program, and those values; for
    more than MOST_SHOWN, it has their types."""
    if not isinstance(x, LazyText):
        return str(x), []
    out, shown = "", list[tuple[Value, Message]]()
    for q in x.parts:
        how = ("", "") if isinstance(q, str) else way_of(q)
        if isinstance(q, str):
            out += q.replace(HOLE, "")
        elif len(shown) == MOST_SHOWN or not is_shown(how):
            out += q.described()
        else:
            out += HOLE
            shown.append((value_in(trace, q.value), how))
    return out, shown


def shows_values(x: object) -> TypeGuard[LazyText]:
    """Whether a text has values of the program."""
    return isinstance(x, LazyText) and any(isinstance(q, FormattedValue) for q in x.parts)


def way_of(shown: FormattedValue) -> Message:
    """Return the way in which an error message shows a value: a tensor that is formatted as its
    element is a number."""
    x, how = shown.value, shown.how
    if is_int_or_float(x):
        return "int or float", ""
    if is_array(x):
        return "array", "repr" if how == "repr" else "str"
    if not isinstance(x, Tensor) or not [*x.shape] and how in ("format", "%"):
        return how, shown.spec
    kind = "parameter" if isinstance(x, EagerParamBase) else "tensor"
    return kind, str(bool(x.stop_gradient))


def value_in(trace: Trace, x: Any) -> Value:
    x = tensor_of(x)
    if isinstance(x, Tensor):
        return lift(trace, x)._value
    if is_int_or_float(x):
        parts = [x.test.value, x.as_float().value]
        rows = [trace.emit("cast", [parts[0]], {"dtype": F64}), parts[1]]
        rows = [trace.emit("reshape", [q], {"shape": (1,)}) for q in rows]
        return trace.emit("concat", rows, {"axis": 0})
    return x.value if is_runtime_scalar(x) else trace.index_value(x)  # type: ignore[no-any-return]


def text_of(error: BaseException) -> object:
    """`str(error)` of an error raised while tracing; of a KeyError, its key."""
    if type(error).__str__ not in (BaseException.__str__, KeyError.__str__):
        return str(error)
    args = error.args
    return made(pieces(args[0] if len(args) == 1 else args)) if args else ""


def made(parts: Iterable[Part]) -> Any:
    """A plain str if no part waits for the program."""
    parts = list(parts)
    return "".join(parts) if all(type(q) is str for q in parts) else LazyText(parts)  # type: ignore


# ---------------------------------------------------------------- pieces of a value
def is_lazy(x: Any) -> bool:
    """Whether its text is known only when the program runs."""
    if is_later(x) or is_array(x) or type(x) is LazyText:
        return True
    if isinstance(x, TraceList):
        return x.segmented or any(map(is_lazy, x.parts()))
    if type(x) is dict:
        return any(map(is_lazy, x.values()))
    return (type(x) in BRACKETS or is_record(x)) and any(map(is_lazy, x))


def is_later(x: object) -> bool:
    number = is_symint(x) or is_runtime_scalar(x) or is_int_or_float(x)
    return number or isinstance(x, Tensor)


def is_record(x: object) -> bool:
    """A named tuple whose text is that of `collections.namedtuple`."""
    shown_by: object = type(x).__repr__
    named = isinstance(x, tuple) and hasattr(x, "_fields")
    return named and getattr(shown_by, "__module__", "") == "collections"


def pieces(x: object, how: str = "str", spec: str = "") -> list[Part]:
    """The text of a value."""
    if type(x) is LazyText and how in ("str", "format") and not spec:
        return list(x.parts)
    if type(x) is LazyText or type(spec) is LazyText:
        stop(x if type(x) is LazyText else spec, "formatted again")
    x = x.here() if is_int_or_float(x) else x
    if is_int_or_float(x) and spec and spec[-1] in "eEfFgG%":
        x = x.as_float()
    if is_later(x) or is_array(x):
        return [FormattedValue(x, how, spec)]
    if is_lazy(x):
        return container_pieces(x)
    if how == "format" and not spec and type(x).__format__ is object.__format__:
        how = "str"
    users = users_method(x, f"__{how}__") or users_method(x, "__repr__" if how == "str" else "")
    trace = current()
    if users is not None and trace is not None and (not spec or how == "format"):
        return pieces(trace.hooks.call(users)(x, *([spec] if how == "format" else [])))
    if trace is not None:
        note_namespaces(trace, x)
    for q in held(x):
        stop(LazyText([FormattedValue(q, "repr")]), f"made of a {type(x).__name__}")
    return [perform(PLAIN[how], x, spec)]


def held(x: object, around: tuple[object, ...] = ()) -> Iterator[object]:
    """Values of the program in a container whose text Python's own code makes; `around`: the
    containers that it is in, which may be itself."""
    if any(x is q for q in around):
        return
    parts = vars(x) if isinstance(x, NAMESPACES) else x
    if isinstance(parts, (tuple, list, set, frozenset, dict, collections.deque)):
        for q in (*parts, *parts.values()) if isinstance(parts, dict) else parts:
            known = isinstance(q, (list, tuple, dict)) or not is_lazy(q)
            yield from held(q, (*around, x)) if known else [q]


PLAIN: dict[str, Callable[[object, str], str]] = {
    "str": lambda x, spec: str(x),
    "repr": lambda x, spec: repr(x),
    "ascii": lambda x, spec: ascii(x),
    "format": format,
    "%": lambda x, spec: spec % (x,),
}


def container_pieces(x: Any) -> list[Part]:
    """`str` of a list, tuple, set or dict shows the repr of its elements."""
    out: list[Part] = []
    if is_record(x):
        for name, q in zip(x._fields, x):
            out += [", " if out else "", f"{name}=", *pieces(q, "repr")]
        return [f"{type(x).__name__}(", *out, ")"]
    for q in x:
        out += [", " if out else "", *pieces(q, "repr")]
        out += [": ", *pieces(x[q], "repr")] if isinstance(x, dict) else []
    if type(x) is tuple and len(x) == 1:
        out.append(",")
    left, right = BRACKETS.get(type(x), ("[", "]"))
    return [left, *out, right]


# ---------------------------------------------------------------- making texts
def joined(*parts: Any) -> Any:
    """An f-string: strings, and triples (value, conversion, spec)."""
    if current() is None:
        return "".join(q if type(q) is str else plain_field(*q) for q in parts)
    out: list[Part] = []
    for q in parts:
        out += [q] if type(q) is str else converted_field(*q)
    return made(out)


def plain_field(value: object, conversion: int, spec: str) -> str:
    return format(value if conversion == -1 else CONVERSIONS[conversion](value), spec)


def converted_field(value: object, conversion: int, spec: Any) -> list[Part]:
    if conversion == -1:
        return pieces(value, "format", spec)
    text = pieces(value, CONVERSIONS[conversion].__name__)
    whole = made(text)
    return pieces(whole, "format", spec) if type(whole) is str else pieces(whole, "str", spec)


def str_(*args: object, **kwargs: object) -> object:
    return made(pieces(args[0])) if len(args) == 1 and current() else str(*args, **kwargs)


def repr_(x: object) -> object:
    return made(pieces(x, "repr")) if current() else repr(x)


def format_(x: object, spec: Any = "") -> object:
    return made(pieces(x, "format", spec)) if current() else format(x, spec)


def str_method(f: BuiltinMethodType, owner: str) -> Callable[..., object]:
    """`"...".format` and `"...".join`, which texts may enter."""
    if f.__name__ == "format":
        return lambda *args, **kwargs: made(formatted(owner, args, kwargs))
    if f.__name__ == "join":
        return lambda items: made(between(owner, items))
    return f


def between(separator: str, items: Iterable[object]) -> Iterator[Part]:
    for i, q in enumerate(items):
        if not isinstance(q, str):
            raise TypeError(f"sequence item {i}: expected str instance, {type_name(q)} found")
        yield from ([separator] if i and separator else [])
        yield from pieces(q)


def formatted(text: str, args: Sequence[object], kwargs: Mapping[str, object]) -> list[Part]:
    """`text.format(*args, **kwargs)`"""
    formatter, out, count = string.Formatter(), list[Part](), 0
    for literal, field, spec, conversion in formatter.parse(text):
        out.append(literal)
        if field is None:
            continue
        if not field or field[0] in ".[":
            field, count = f"{count}{field}", count + 1
        value, _ = formatter.get_field(field, args, kwargs)
        inner = made(formatted(spec, args[count:], kwargs)) if spec else ""
        count += (spec or "").count("{}")
        out += converted_field(value, ord(conversion) if conversion else -1, inner)
    return out


_PERCENT = re.compile(r"%(?:\((?P<key>[^)]*)\))?(?P<flags>[#0\- +]*)(?P<width>\*|\d+)?"
                      r"(?:\.(?P<digits>\*|\d*))?[hlL]?(?P<kind>[diouxXeEfFgGcrsa%])")  # fmt: skip


def percent(text: Any, values: Any) -> object:
    """`text % values` for a text that is written out."""
    given = values if type(values) is tuple else (values,)
    mapping = values if isinstance(values, dict) else None
    lazy = any(map(is_lazy, mapping.values() if mapping else given))
    if current() is None or type(text) is LazyText or not lazy:
        return perform(operator.mod, text, values)
    out, at, rest = list[Part](), 0, iter(given)
    for m in _PERCENT.finditer(text):
        out.append(text[at : m.start()])
        at = m.end()
        if m["kind"] == "%":
            out.append("%")
            continue
        try:
            value = mapping[m["key"]] if m["key"] is not None and mapping else next(rest)
        except StopIteration:
            raise TypeError("not enough arguments for format string") from None
        bare = m["kind"] in "sra" and m[0] == "%" + m["kind"]
        how = {"s": "str", "r": "repr", "a": "ascii"}[m["kind"]] if bare else "%"
        out += pieces(value, how, "" if bare else "%" + m[0].split(")")[-1].lstrip("%"))
    if mapping is None and next(rest, None) is not None:
        raise TypeError("not all arguments converted during string formatting")
    return made([*out, text[at:]])


__all__ = [
    "FormattedValue",
    "LazyText",
    "described",
    "is_lazy",
    "joined",
    "percent",
    "pieces",
    "text_of",
]
