"""Containers as trees: their elements, their leaves, and their description in messages.

A container has elements and an identity. A tuple is as good as its elements.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import paddle

from dy2st.state.arrays import is_array, made_array, tensor_of
from dy2st.state.containers.constants import is_constant
from dy2st.state.containers.records import fields_of, like_of
from dy2st.state.containers.tagged_union import TaggedUnion
from dy2st.state.traced_list import TraceList
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.frames import Frame
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.signals import Refused
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace, current
from dy2st.trace.undo import MISSING
from ir import ENDLESS, Loc, SourceError, Value
from ir.loc import source_error
from ir.types import Dim

#: so many elements of a container are in a message
MOST_DESCRIBED = 4
UNDEF: object = type("Undefined", (), {"__repr__": lambda self: "<undefined>"})()


class TypeMismatch(Exception):
    """A place does not hold the same type before and after the body.

    `name` is the user's; `before` and `after` describe the values; `loc` is where the new one
    was made; so many iterations as `peel` may settle it, which fill a window if `fills`. `sure`:
    nothing that another trace learns does.
    """

    def __init__(
        self, name: str, before: str, after: str, loc: Loc | None = None, fills: int = 0
    ) -> None:
        what = f"'{name}'" if name.isidentifier() else name
        super().__init__(f"{what} is {before} before and {after} after an iteration")
        self.name, self.before, self.after, self.loc = name, before, after, loc
        self.peel, self.fills = fills or 1, fills
        self.sure = before in ("None", "undefined")

    def in_loop(self, trip: Dim, site: Loc) -> Refused:
        """The error of a loop that has to be one."""
        data = trip == ENDLESS
        assert self.loc is not None
        return Refused(
            f"'{self.name}' changes type in this loop.",
            self.loc,
            here=f"{self.after} here, {self.before} before the loop (line {site.line})",
            reason=f"A loop {'that depends on data' if data else f'over the named size {trip}'} "
            f"keeps the type of every variable it carries (here: {self.name}).",
            remedy=f"Give {self.name} its final shape before the loop, or collect the pieces "
            "in a list and concat once after it.",
        )


def cannot_unroll(trip: Dim, site: Loc, why: str, first: Any) -> BaseException:
    """Return the error for a loop that cannot be unrolled, with the reason why it was not
    rolled."""
    what = "depends on data" if trip == ENDLESS else f"over the named size {trip}"
    if isinstance(first, TypeMismatch) and first.loc is not None:
        return first.in_loop(trip, site)
    remedy = "Make every iteration alike, or give the size as a number in input_spec."
    if trip == ENDLESS:
        remedy = "Make every iteration alike, or bound the loop: `for t in range(n): ... break`."
    head = "this loop, whose end depends on data," if trip == ENDLESS else f"this loop {what}"
    return Refused(
        source_error(type(first))(
            f"{head} cannot become one loop.",
            site,
            reason=f"Reason: {why}.",
            remedy=remedy,
        )
    )


# ---------------------------------------------------------------- containers
def elements(x: Any) -> dict[Any, Any] | None:
    """The elements of a container of fixed structure by index, key or name; None for leaves."""
    if isinstance(x, TraceList):
        return None if x.segmented else dict(enumerate(x.parts()))
    if is_array(x):
        return {"elements": tensor_of(x)}
    if type(x) is TaggedUnion:
        return {"test": x.test, "number": x.number, "tensor": x.tensor}
    if isinstance(x, tuple) or type(x) in (list, collections.deque):
        return dict(enumerate(x))
    return fields_of(x)


def is_value(x: object) -> bool:
    """A tuple, an array, or a number or tensor: it is as good as its elements, or as the memory
    that it shows."""
    return isinstance(x, tuple) or is_array(x) or type(x) is TaggedUnion


def is_container(x: object) -> bool:
    """Whether it has elements and an identity."""
    return not is_value(x) and elements(x) is not None


def alike(a: object, b: object) -> bool:
    """Whether two containers, or tuples, have one structure."""
    one, two = elements(a), elements(b)
    same = kind_of(a) is kind_of(b)
    if type(a) is TaggedUnion or isinstance(a, collections.deque):
        name = "numeric" if type(a) is TaggedUnion else "maxlen"
        same = same and getattr(a, name) == getattr(b, name)
    return same and one is not None and two is not None and list(one) == list(two)


def kind_of(x: object) -> type:
    return x.kind if isinstance(x, TraceList) else type(x)


def rebuilt(trace: Trace, like: object, parts: Sequence[Any], frame: Frame | None = None) -> Any:
    """A container like `like` with other elements, made in `frame`."""
    if type(like) is tuple or isinstance(like, tuple) and not hasattr(like, "_fields"):
        return tuple(parts)
    if is_array(like):
        return made_array(trace, parts[0])
    if type(like) is TaggedUnion:
        return TaggedUnion(*parts)
    if kind_of(like) is tuple:
        return tuple(parts)
    if isinstance(like, list):
        made = TraceList(parts)
        made.born, made.of = frame or trace.frame, (like,)
        return made
    out = like_of(like, parts)
    trace.make(out, frame)
    return out


def tree(
    f: Callable[[object, tuple[object, ...]], object],
    x: object,
    path: tuple[object, ...],
    copied: Collection[tuple[object, ...]] = (),
    whole: Collection[tuple[object, ...]] = (),
) -> Any:
    """Map over the leaves of tuples, and of the containers at the places in `copied`; any other
    container is a leaf, and so is what lies at the places in `whole`."""
    inner = (is_value(x) or path in copied) and path not in whole
    parts = elements(x) if inner else None
    if parts is None:
        return f(x, path)
    trace = current()
    assert trace is not None
    return rebuilt(trace, x, [tree(f, q, (*path, k), copied, whole) for k, q in parts.items()])


def parts(x: object) -> list[Any]:
    """The elements of a container; of anything else, itself."""
    found = elements(x)
    return [x] if found is None else list(found.values())


def leaves(x: object, home: Frame | None = None) -> list[object]:
    """The leaves of a value: what is in its tuples, and in containers made in the frame `home`."""
    return list(_leaves(x, home, current(), set()))


def _leaves(x: Any, home: Frame | None, trace: Trace | None, seen: set[int]) -> Iterator[object]:
    leaf = issubclass(type(x), FakeTensor)
    inner = not leaf and home is not None and trace is not None and trace.home(x) is home
    found = elements(x) if not leaf and (is_value(x) or inner) else None
    if found is None:
        yield x
    elif id(x) not in seen:
        seen.add(id(x))
        for part in found.values():
            yield from _leaves(part, home, trace, seen)


def changed_type(trace: Trace, name: str, before: object, after: object) -> BaseException:
    """Return the error for a variable whose type after a loop depends on the number of
    iterations."""
    return Refused(
        f"'{name}' has different types, depending on data.",
        trace.where(),
        reason=f"It is {after} where the loop runs once more, {before} where it does not.",
        remedy="Give it the same type and shape in every iteration.",
    )


def doubtful(trace: Trace, reason: str) -> Callable[[], BaseException]:
    """Makes the error of a change of a container that data chooses at the running line."""
    error = SourceError(
        "data decides here which list, dict or object a variable is, and it is changed or returned "
        "later.",
        trace.where(),
        reason=reason,
        remedy="Change it before the choice, or choose between its elements.",
    )
    return lambda: Refused(error)


def held_value(p: Any) -> Value:
    """The value of a placeholder: a fake tensor, a runtime scalar, or the value itself."""
    return p if isinstance(p, Value) else p.value if is_runtime_scalar(p) else p._value


def is_flag(name: str) -> bool:
    """A variable of the conversion: a flag that ends the loop it is set in, or what is returned."""
    return name.startswith(("_break__", "_returned__", "_return_value__"))


def described(items: Collection[object]) -> str:
    """The elements of a container in a message, of many the first ones and the number."""
    shown = ", ".join(describe(q) for q in itertools.islice(items, MOST_DESCRIBED))
    return shown if len(items) <= MOST_DESCRIBED else f"{shown}, ...: {len(items)} elements"


def describe(x: Any) -> str:
    """A value in a message: what its class says in `__describe__`, type for tensors, text for
    Python values."""
    if is_runtime_scalar(x):
        return f"a Python {x.kind.__name__}"
    own = getattr(type(x), "__describe__", None)
    if own is not None:
        return str(own(x))
    if isinstance(x, FakeTensor):
        return str(x._value.type)
    if isinstance(x, tuple):
        return f"a tuple ({described(x)})"
    if isinstance(x, TraceList) and not x.segmented:
        return f"a list [{described(x.parts())}]"
    if isinstance(x, TraceList):
        return f"a {x.kind.__name__} that a loop has filled"
    if type(x) in (list, collections.deque):
        return f"a {type(x).__name__} [{described(x)}]"
    if type(x) is dict:
        return f"a dict of {', '.join(map(repr, x))}" if x else "an empty dict"
    if x is None or isinstance(x, (bool, int, float)):
        return repr(x) if x is None or is_symint(x) else f"the {type(x).__name__} {x!r}"
    if isinstance(x, paddle.nn.Layer):
        return f"a {type(x).__name__}"
    if isinstance(x, Tensor):
        return f"{str(x.dtype).split('.')[-1]}{list(x.shape)}"
    if x is UNDEF or x is MISSING:
        return "undefined"
    if is_constant(x):
        return f"the {type(x).__name__} {x!r}"[:60]
    name = None if isinstance(x, dict) else getattr(x, "__name__", None)
    named = isinstance(name, str)
    return f"the {type(x).__name__} {name}" if named else f"an object of class {type(x).__name__}"
