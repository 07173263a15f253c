"""What a translated call needs of Paddle's engine of backward passes, which is C++.

It makes an `OSError (External)` of an exception in a hook. The hook leaves its exception here, and
the two functions through which Python enters the engine raise it instead: errors of the backward
program come out of `loss.backward()` as they were raised.

The node of a `PyLayer` lets go of its context when it has run, and the process crashes when it runs
again or is copied, as by `paddle.grad` (Paddle 3.3, also with retain_graph). `Again` gives it the
context back. Where it lies in the node is found out, and tried, before the first node is made.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import paddle
from paddle.autograd import PyLayer
from paddle.base import core

from dy2st.trace.fake_tensor import Tensor
from ir.autodiff import NotDifferentiable

#: the functions through which Python enters the engine, and where they take `retain_graph` and
#: `create_graph`
ENTRIES: dict[str, tuple[int, int | None]] = {
    "run_backward": (2, None),
    "run_partial_grad": (3, 4),
}
#: bytes of a node in which its context is looked for
MOST = 1 << 11


@dataclass(eq=False)
class Pass:
    """One run of the engine: what it was asked for, the exception that a hook has raised, and the
    nodes that have run. `outer`: the one in a hook of which it runs.

    `consumes`: whether the graph may not be used again. (`paddle.grad` runs copies of nodes, and
    leaves the graph as it is whatever it was asked for.)
    """

    consumes: bool = False
    create_graph: bool = False
    outer: Pass | None = None
    error: BaseException | None = None
    ran: list[weakref.ref[Again]] = field(default_factory=list)

    def restore(self) -> None:
        for reference in self.ran:
            again = reference()
            if again is not None:
                again.restore()


class _Current(threading.local):
    running: Pass | None = None


_CURRENT = _Current()


def current() -> Pass:
    """The run of the engine that has called a hook of this thread."""
    return _CURRENT.running or Pass()


def raises(hook: Callable[..., object]) -> Callable[..., object]:
    """A hook whose exception is kept for the caller of the engine."""

    def kept(*args: object) -> object:
        try:
            return hook(*args)
        except BaseException as error:
            current().error = error
            raise

    return kept


def entered(
    engine: Callable[..., object], retain: int, create: int | None
) -> Callable[..., object]:
    """The engine's function; an exception of a hook leaves it unchanged."""

    @functools.wraps(engine)
    def run(*args: object) -> object:
        outer = _CURRENT.running
        consumes = create is None and not args[retain]
        this = Pass(consumes, create is not None and bool(args[create]), outer)
        while outer is not None:
            outer.restore()
            outer = outer.outer
        _CURRENT.running = this
        try:
            return engine(*args)
        except OSError as wrapped:
            if this.error is None:
                raise
            if this.outer is not None:
                this.outer.error = this.error
            raise this.error.with_traceback(None) from wrapped.__cause__
        finally:
            _CURRENT.running = this.outer
            this.restore()

    run.__dy2st_engine__ = engine  # type: ignore[attr-defined]
    return run


def install() -> None:
    """Once in a process, before the first trace: that replaces one of them while it runs."""
    for name, at in ENTRIES.items():
        engine = getattr(core.eager, name)
        if not hasattr(engine, "__dy2st_engine__"):
            setattr(core.eager, name, entered(engine, *at))


# ---------------------------------------------------------------- nodes that run again
class Again:
    """Gives the node of a `PyLayer` its context back.

    It is a hook of the node's first result, of which no other reference is held: it lives as long
    as the node, and only so long is there something at `address`.
    """

    __slots__ = ("__weakref__", "address", "context")

    def __init__(self, context: object) -> None:
        found = layout()
        self.context = context
        self.address = word(id(context) + found.node).value + found.context

    def __call__(self, gradient: object) -> None:
        """The node is about to run."""
        self.restore()
        current().ran.append(weakref.ref(self))

    def restore(self) -> None:
        slot = word(self.address)
        if not slot.value:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.context))
            slot.value = id(self.context)


@dataclass(frozen=True)
class Layout:
    """Bytes from the beginning of a context to the address of its node, which has the address of
    the context at the byte `context`."""

    node: int
    context: int


word = ctypes.c_size_t.from_address
WORD = ctypes.sizeof(ctypes.c_size_t)


class _Trial(PyLayer):
    @staticmethod
    def forward(ctx: paddle.autograd.PyLayerContext, made: list[object], x: Tensor) -> Tensor:
        made.append(ctx)
        return x.clone()

    @staticmethod
    def backward(ctx: paddle.autograd.PyLayerContext, gradient: Tensor) -> Tensor:
        return gradient


@functools.cache
def layout() -> Layout:
    """Of the contexts and nodes of this build of Paddle. Raises NotDifferentiable if it is another
    one than expected: a node that is written at a wrong place would end the process.

    A place is taken for that of the context if it alone has its address, if it has none once the
    node has run (or has it still), and if the node runs again when it has been given back.
    """
    try:
        return tried()
    except Exception as error:
        name = f"Paddle {paddle.__version__}"
        raise NotDifferentiable(name, why=f"dy2st does not know this build ({error})") from None


def tried() -> Layout:
    made: list[object] = []
    with paddle.enable_grad():
        leaf = paddle.zeros([1])
        leaf.stop_gradient = False
        result = _Trial.apply(made, leaf)
    (context,) = made
    node = result.grad_fn.node_ptr()
    inside = type(context).__basicsize__
    own = [k for k in range(0, inside - WORD + 1, WORD) if word(id(context) + k).value == node]
    at = places(memory(node, MOST), id(context))
    if len(own) != 1 or len(at) != 1:
        raise LookupError("the node of a PyLayer does not have its context")
    again, one = Again.__new__(Again), paddle.ones([1])
    again.context, again.address = context, node + at[0]
    for run in (1, 2):
        references = sys.getrefcount(context)
        core.eager.run_backward([result], [one], True, "")
        left, gone = word(again.address).value, references - sys.getrefcount(context)
        if (left, gone) not in ((0, 1), (id(context), 0)):
            raise LookupError("the node of a PyLayer has something else where its context was")
        if leaf.grad is None or float(leaf.grad) != run:
            raise LookupError("the node of a PyLayer does not run again")
        again.restore()
    return Layout(own[0], at[0])


def memory(address: int, count: int) -> bytes:
    """So many bytes, or as many as the process has there. (A read by address would end it.)"""
    with open("/proc/self/mem", "rb", buffering=0) as file:
        file.seek(address)
        return file.read(count)


def places(data: bytes, value: int) -> Sequence[int]:
    """Where in the data a word has this value."""
    words = struct.unpack(f"={len(data) // WORD}Q", data[: len(data) // WORD * WORD])
    return [WORD * k for k, found in enumerate(words) if found == value]


__all__ = ["Again", "current", "install", "layout", "raises"]
