"""Access to Paddle's autograd engine, which is C++, for translated calls.

It makes an `OSError (External)` of an exception in a hook. The hook leaves its exception here, and
the two functions through which Python enters the engine raise it instead: errors of the backward
program come out of `loss.backward()` as they were raised.

The node of a `PyLayer` lets go of its context when it has run, and the process crashes when it runs
again or is copied, as by `paddle.grad` (Paddle 3.3, also with retain_graph). It is given the
context back as soon as the engine has stopped. Where it lies in the node is found out, and tried,
before the first node is made.

It also calls hooks of its results whether gradients have arrived there or not, and takes no notice
of what they return: `listen` does.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import paddle
from paddle.autograd import PyLayer
from paddle.base import core

from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.user_stack import perform
from ir.autodiff import NotDifferentiable

#: the functions through which Python enters the engine, and where they take `retain_graph` and
#: `create_graph`
ENTRIES: dict[str, tuple[int, int | None]] = {
    "run_backward": (2, None),
    "run_partial_grad": (3, 4),
}
#: bytes of a node in which its context is looked for
MOST = 1 << 11


class BackwardPass:
    """One run of the engine: what it was asked for, the exception that a hook has raised, the
    contexts of nodes that have run, and what hooks of their results have returned. `outer`: the
    one in a hook of which it runs.

    `consumes`: whether the graph may not be used again. (`paddle.grad` runs copies of nodes, and
    leaves the graph as it is whatever it was asked for.)
    """

    __slots__ = ("consumes", "create_graph", "error", "hooked", "outer", "ran")

    def __init__(self, consumes: bool, create_graph: bool, outer: BackwardPass | None) -> None:
        self.consumes, self.create_graph, self.outer = consumes, create_graph, outer
        self.error: BaseException | None = None
        self.ran: list[object] = []
        self.hooked: dict[tuple[object, int], Tensor] = {}

    def restore(self) -> None:
        for context in self.ran:
            restore(context, layout())


class _Current(threading.local):
    running: BackwardPass | None = None


_CURRENT = _Current()


def current() -> BackwardPass:
    """The run of the engine that has called a hook of this thread."""
    return _CURRENT.running or _unknown()


def _unknown() -> BackwardPass:
    """One that has not been entered from Python: it gives contexts back when it ends well."""
    this = _CURRENT.running = BackwardPass(False, False, None)

    def end() -> None:
        if _CURRENT.running is this:
            _CURRENT.running = None
        this.restore()

    core.eager._add_backward_final_hook(end)
    return this


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
        this = BackwardPass(consumes, create is not None and bool(args[create]), outer)
        while outer is not None:
            outer.restore()
            outer = outer.outer
        _CURRENT.running = this
        try:
            return perform(engine, *args)
        except OSError as wrapped:
            if this.error is None or not is_of(this.error, wrapped):
                raise
            if this.outer is not None:
                this.outer.error = this.error
            raise this.error.with_traceback(None) from wrapped.__cause__
        finally:
            _CURRENT.running = this.outer
            this.restore()

    run.__dy2st_engine__ = engine  # type: ignore[attr-defined]
    return run


def is_of(error: BaseException, wrapped: OSError) -> bool:
    """Whether the engine's error is made of this one: a hook of the user's may have caught it, and
    raised another."""
    text = str(wrapped)
    return type(error).__name__ in text and str(error) in text


def install() -> None:
    """Once in a process, before the first trace: that replaces one of them while it runs."""
    for name, at in ENTRIES.items():
        engine = getattr(core.eager, name)
        if not hasattr(engine, "__dy2st_engine__"):
            setattr(core.eager, name, entered(engine, *at))


# ---------------------------------------------------------------- nodes that run again
@dataclass(frozen=True)
class ContextLayout:
    """Where a context has a weak pointer to its node (its address, and that of a block whose second
    word begins with the number of owners), and where the node has the address of the context.
    `leaks`: whether Paddle forgets to let go of the objects that it gives for nodes."""

    node: int
    context: int
    leaks: bool


word, half = ctypes.c_size_t.from_address, ctypes.c_int32.from_address
WORD = ctypes.sizeof(ctypes.c_size_t)
#: of the number of references to an object
increment = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))
decrement = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_DecRef", ctypes.pythonapi))


def restore(context: object, at: ContextLayout) -> None:
    """Give the node of a context that has run, if it is still there, the context back."""
    pointer = id(context) + at.node
    if half(word(pointer + WORD).value + WORD).value > 0:
        slot = word(word(pointer).value + at.context)
        if not slot.value:
            increment(context)
            slot.value = id(context)


def node_of(tensor: Tensor, leaks: bool) -> int:
    """The address of the node that has made a tensor. A leak is undone: it would keep the node."""
    node = tensor.grad_fn
    if node is None:
        return 0
    address: int = node.node_ptr()
    if leaks:
        decrement(node)
    return address


class OtherBuild(Exception):
    """Contexts and nodes are not as they are where this was written."""


class _Trial(PyLayer):
    @staticmethod
    def forward(ctx: paddle.autograd.PyLayerContext, made: list[object], x: Tensor) -> Tensor:
        made.append(ctx)
        return x.clone()

    @staticmethod
    def backward(ctx: paddle.autograd.PyLayerContext, gradient: Tensor) -> Tensor:
        return gradient


def layout() -> ContextLayout:
    """Return the layout of contexts and nodes of this build of Paddle. Raises NotDifferentiable if
    it is another one than expected: a node that is written at a wrong place would end the process.
    """
    found = tried()
    if isinstance(found, str):
        name = f"Paddle {paddle.__version__}"
        raise NotDifferentiable(name, why=f"dy2st does not know this build ({found})")
    return found


@functools.cache
def tried() -> ContextLayout | str:
    """Try once whether the layout can be determined; returns why it cannot."""
    try:
        return measured()
    except (OtherBuild, OSError) as error:
        return str(error)


def measured() -> ContextLayout:
    """A place is taken for that of the context if it alone has its address, if it has none once the
    node has run (or has it still), and if the node runs again when it has been given back."""
    made: list[object] = []
    with paddle.enable_grad():
        leaf = paddle.zeros([1])
        leaf.stop_gradient = False
        result = _Trial.apply(made, leaf)
    (context,) = made
    address = node_of(result, False)
    inside = type(context).__basicsize__
    offsets = range(0, inside - 2 * WORD + 1, WORD)
    own = [k for k in offsets if word(id(context) + k).value == address]
    places = places_of(memory(address, MOST), id(context))
    if len(own) != 1 or len(places) != 1:
        raise OtherBuild("the node of a PyLayer does not have its context")
    block = word(id(context) + own[0] + WORD).value
    others = owners(block) - 1
    if others not in (0, 1):
        raise OtherBuild("the number of owners of a node is unknown")
    found, one = ContextLayout(own[0], places[0], bool(others)), paddle.ones([1])
    slot = word(address + found.context)
    for run in (1, 2):
        references = sys.getrefcount(context)
        if slot.value != id(context):
            raise OtherBuild("the node of a PyLayer has something else where its context was")
        core.eager.run_backward([result], [one], True, "")
        gone = references - sys.getrefcount(context)
        if (slot.value, gone) not in ((0, 1), (id(context), 0)):
            raise OtherBuild("the node of a PyLayer keeps or drops its context in another way")
        if leaf.grad is None or leaf.grad.item() != run:
            raise OtherBuild("the node of a PyLayer does not run again")
        restore(context, found)
    del result
    if owners(block) != others:
        raise OtherBuild("the node of a PyLayer outlives its result")
    return found


def owners(block: int) -> int:
    found = memory(block + WORD, 4)
    if len(found) < 4:
        raise OtherBuild("the process has no memory where a node would be")
    return int(struct.unpack("=i", found)[0])


def memory(address: int, count: int) -> bytes:
    """Read a number of bytes, or as many as the process has there. (A read by address would
    crash.)"""
    with open("/proc/self/mem", "rb", buffering=0) as file:
        file.seek(address)
        return file.read(count)


def places_of(data: bytes, value: int) -> Sequence[int]:
    """Return the offsets in the data at which a word has this value."""
    words = struct.unpack(f"={len(data) // WORD}Q", data[: len(data) // WORD * WORD])
    return [WORD * k for k, found in enumerate(words) if found == value]


# ---------------------------------------------------------------- hooks of results
class HookListener(weakref.ref[Tensor]):
    """Registers hooks of a result of a `PyLayer`: number `k` of the node with this context, whose
    backward asks the pass for the gradients that the hooks have returned."""

    __slots__ = ("context", "k")

    context: object
    k: int

    def __call__(self, hook: Callable[[Tensor], Tensor | None]) -> int:  # type: ignore[override]
        result, at = super().__call__(), layout()
        assert result is not None, "it is an attribute of the result"
        own = node_of(result, at.leaks) == word(id(self.context) + at.node).value
        if own:  # else it has been overwritten in place: what is there now is another node's
            hook = functools.partial(self.called, hook)
        return int(Tensor._register_grad_hook(result, hook))

    def called(
        self, hook: Callable[[Tensor], Tensor | None], gradient: Tensor | None
    ) -> Tensor | None:
        if gradient is None:  # those of other results have arrived
            return None
        found = hook(gradient)
        current().hooked[self.context, self.k] = gradient if found is None else found
        return found


def listen(result: Tensor, context: object, k: int) -> None:
    """Let hooks of this result change its gradient."""
    result._register_grad_hook = listening = HookListener(result)
    listening.context, listening.k = context, k


__all__ = ["BackwardPass", "current", "install", "layout", "listen", "raises"]
