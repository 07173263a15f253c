"""`x.numpy()` and `x.tolist()`: elements that are known only when the program runs, as Python
objects."""

from __future__ import annotations

from dy2st.state.arrays import made_array
from dy2st.state.stacked_run import StackedRun, Unstacked
from dy2st.state.traced_list import TraceList
from dy2st.trace import item
from dy2st.trace.emitter import Emitter, detached, lift
from dy2st.trace.fake_tensor import FakeTensor
from dy2st.trace.scalar import DTYPES, RuntimeScalar
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.trace import Trace, current

#: a longer list stays one piece, over which a loop may run
MOST_ELEMENTS = 32


def numpy(self: object, blocking: bool = True) -> object:
    """A copy; where the trace knows the elements, a plain array."""
    trace, fake = recorded(self)
    if trace.known(fake._value) is not None:
        return item.numpy(self, blocking)
    return made_array(trace, Emitter(trace).assign(free(trace, fake)))


def tolist(self: object) -> object:
    """Nested lists of Python numbers."""
    trace, fake = recorded(self)
    if trace.known(fake._value) is not None:
        return item.tolist(self)
    kind = {"b": bool, "f": float}.get(fake._value.type.dtype.kind, int)
    return listed(trace, Emitter(trace).cast_to(free(trace, fake), DTYPES[kind]))


def recorded(x: object) -> tuple[Trace, FakeTensor]:
    trace = current()
    assert trace is not None
    fake = lift(trace, x)
    if fake._value.type.dtype.kind == "c":
        raise item.refuse_complex(trace, "the tensor")
    return trace, fake


def free(trace: Trace, fake: FakeTensor) -> object:
    """The same elements, without a gradient."""
    return trace.fake(detached(trace, fake._value))


def listed(trace: Trace, fake: FakeTensor) -> object:
    shape = fake._value.type.shape
    if not shape:
        return RuntimeScalar(fake._value, trace)
    if len(shape) == 1 and not (isinstance(shape[0], int) and shape[0] <= MOST_ELEMENTS):
        return TraceList([StackedRun(shape[0], Unstacked(fake, True, ()))])
    if not isinstance(shape[0], int):
        raise NeedsConcrete(f"a list of {shape[0]} lists, whose number is a size of the program")
    return TraceList([listed(trace, fake[i]) for i in range(shape[0])])
