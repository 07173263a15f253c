"""Pytrees of a loop body's variables: their leaves, and their description in messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import paddle

from dy2st.state.arrays import is_array, made_array, tensor_of
from dy2st.state.traced_list import TraceList, plain_parts
from dy2st.trace.fake_tensor import FakeTensor, Tensor, tracing
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.signals import Refused
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace, current
from dy2st.trace.undo import MISSING
from ir import Loc, SourceError, Value

UNDEF: object = type("Undefined", (), {"__repr__": lambda self: "<undefined>"})()


class Mismatch(Exception):
    """A place does not hold the same type before and after the body.

    `name` is the user's; `before` and `after` describe the values; `loc` is where the new one
    was made.
    """

    def __init__(self, name: str, before: str, after: str, loc: Loc | None = None) -> None:
        what = f"'{name}'" if name.isidentifier() else name
        super().__init__(f"{what} is {before} before and {after} after an iteration")
        self.name, self.before, self.after, self.loc = name, before, after, loc


def tree(
    f: Callable[[Any, tuple[Any, ...]], Any],
    x: Any,
    path: tuple[object, ...],
    whole: Collection[tuple[Any, ...]] = (),
) -> Any:
    """Map over the leaves of tuples and of lists with a fixed structure; the places in `whole`
    are leaves."""
    if path in whole:
        return x
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(tree(f, q, (*path, i), whole) for i, q in enumerate(x)))
    if isinstance(x, tuple):
        return tuple(tree(f, q, (*path, i), whole) for i, q in enumerate(x))
    if plain_parts(x):
        return TraceList([tree(f, q, (*path, i), whole) for i, q in enumerate(x.parts())])
    if is_array(x):
        return made_array(tracing(), tree(f, x.fake, (*path, "elements"), whole))
    if is_state(x):
        return owned({k: tree(f, q, (*path, k), whole) for k, q in x.items()})
    return f(x, path)


def is_state(x: object) -> bool:
    """A dict that the function made, with tensors or numbers in it."""
    trace = current()
    if type(x) is not dict or trace is None or id(x) not in trace.objects.made or not x:
        return False
    return all(isinstance(q, (Tensor, tuple)) or is_runtime_scalar(q) for q in x.values())


def owned(x: dict[object, object]) -> dict[object, object]:
    """A dict of the trace's own."""
    trace = current()
    assert trace is not None
    trace.make(x)
    return x


def parts(x: object) -> list[Any]:
    if type(x) is dict:
        return list(x.values())
    if is_array(x):
        return [tensor_of(x)]
    return x.parts() if isinstance(x, TraceList) else list(x) if isinstance(x, tuple) else [x]


def leaves(x: object) -> list[object]:
    out: list[object] = []
    tree(lambda q, path: out.append(q), x, ())
    return out


def same_objects(a: Sequence[object], b: Sequence[object]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b))


def changed_type(trace: Trace, name: str, before: object, after: object) -> BaseException:
    """Why a variable cannot be read after a loop that may run once more or not."""
    return Refused(
        SourceError(
            f"'{name}' has different types, as data decides.",
            trace.where(),
            reason=f"It is {after} where the loop runs once more, {before} where it does not.",
            remedy="Give it the same type and shape in every iteration.",
        )
    )


def held_value(p: Any) -> Value:
    """The value of a placeholder: a fake tensor, a Number, or the value itself."""
    return p if isinstance(p, Value) else p.value if is_runtime_scalar(p) else p._value


def is_flag(name: str) -> bool:
    """A variable of the conversion: a flag that ends the loop it is set in, or what is returned."""
    return name.startswith(("_break__", "_returned__", "_return_value__"))


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
        return f"a tuple ({', '.join(map(describe, x))})"
    if isinstance(x, TraceList) and not x.segmented:
        return f"a list [{', '.join(map(describe, x.parts()))}]"
    if x is None or isinstance(x, (bool, int, float)):
        return repr(x) if x is None or is_symint(x) else f"the {type(x).__name__} {x!r}"
    if isinstance(x, paddle.nn.Layer):
        return f"a {type(x).__name__}"
    if isinstance(x, Tensor):
        return f"{str(x.dtype).split('.')[-1]}{list(x.shape)}"
    if x is UNDEF or x is MISSING:
        return "undefined"
    return f"the {type(x).__name__} {x!r}"[:60]
