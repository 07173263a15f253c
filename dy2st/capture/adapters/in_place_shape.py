"""In-place calls that change the shape or type of an object: `reshape_`, `transpose_`, `cast_`, ...

The object gets another view of its storage, or another storage (`cast_`, and `reshape_` where the
strides forbid a view). Other names of the old storage stay as they are. A tensor from outside is
refused: a cached call would leave it as it was.
"""

from __future__ import annotations

from collections.abc import Callable

from dy2st.capture import detached_writes
from dy2st.capture.adapters import ADAPTERS
from dy2st.capture.adapters.table import dtype_of
from dy2st.state.ownership import refuse
from dy2st.trace.emitter import Emitter, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.memory import fix
from dy2st.trace.signals import NeedsConcrete, Refused

#: the entries, each with an underscore behind it
SHAPES = ("reshape", "transpose", "squeeze", "unsqueeze", "flatten", "cast")


def in_place(name: str) -> Callable[..., object]:
    """The adapter of `name_`: the object becomes what `name` makes of it."""
    base = ADAPTERS[name]

    def call(e: Emitter, x: Tensor, *args: object, **kwargs: object) -> object:
        fake = lift(e.trace, x)
        e.check_leaf(fake)
        if name == "cast" and dtype_of(*args, **kwargs) == fake._value.type.dtype:
            return detached_writes.write(e, x, e.assign(x))
        if (given := e.trace.inputs.by_fake(fake)) is not None:
            raise refused(e, name, f"{given.name}, which comes from outside")
        if detached_writes.has_twin(fake):
            what = "a tensor that another name holds, too (`x[:]`, `x.detach()`)"
            raise refused(e, name, what)
        return become(e, name, fake, lambda fake: base(e, fake, *args, **kwargs))

    return call


def contiguous(e: Emitter, x: Tensor) -> object:
    """Eager Paddle returns the tensor itself, which gets other memory, if it is not contiguous. A
    tensor of the caller gets it behind the program, so it may not be written after that."""
    trace, fake = e.trace, lift(e.trace, x)
    given = trace.inputs.by_fake(fake)
    if given is None:
        return become(e, "contiguous", fake, e.assign)
    fix(trace, trace.root(given.value))
    become(e, "contiguous", fake, e.assign)
    root = trace.root(fake._value)
    trace.values.heirs[root] = given.value
    trace.freeze(root, f"It is {given.name}, which `contiguous()` moved to other memory.", None)
    return x


def become(e: Emitter, name: str, fake: FakeTensor, make: Callable[[Tensor], FakeTensor]) -> object:
    """The object `fake` becomes what `make` gives."""
    trace = e.trace
    if trace.values.frame_of[fake._value] is not trace.frame:
        if trace.frame.branch:
            what = "a tensor from outside of a branch on data, in the branch"
            raise refused(e, name, what)
        raise NeedsConcrete(f"{name} of a tensor from outside of the block")
    old, stops, state = fake._value, fake._stop_gradient, fake.__dict__
    made = make(fake)
    trace.undo_log.note(lambda: state.update(_value=old, _stop_gradient=stops))
    state.update(_value=made._value, _stop_gradient=made.stop_gradient)
    trace.become(old, made._value)
    return fake


def refused(e: Emitter, name: str, what: str) -> Refused:
    return refuse(
        f"{name}_ of {what}.",
        "It would change the shape of a tensor that other code sees.",
        f"Bind a new one: `y = x.{name}(...)`.",
    )


__all__ = ["SHAPES", "contiguous", "in_place"]
