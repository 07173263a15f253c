"""`to_static` and the translated function: cache, translation, inspection."""

from __future__ import annotations

import copy
import functools
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import paddle

from dy2st.compiled.entry import MISS, Entry
from dy2st.compiled.report import Report
from dy2st.compiled.translate import translate
from dy2st.convert.source import render
from dy2st.results.donation import check_names
from dy2st.runtime import calls
from dy2st.state.dynamic_numbers import DynamicNumbers
from dy2st.state.signature import Signature, spec_signature
from dy2st.trace.trace import current
from ir import Program, SourceError

#: a trace stores stand-ins in the user's objects; CPython's syntax trees are built by one thread
_TRANSLATING = threading.RLock()
MOST_PROGRAMS = 64


class StaticFunction:
    """A translated function. Call it like the original.

    Args:
        function: a function, or a bound method.
        input_spec: `paddle.static.InputSpec` for each tensor argument; a dim of None is any size.
        checkpoint: the residuals of loops (`to_static`).
        donate: names of parameters whose tensors the caller gives up (`to_static`).
    """

    def __init__(
        self,
        function: Callable[..., Any],
        input_spec: Sequence[object] | None,
        checkpoint: str | int = "none",
        donate: Sequence[str] = (),
    ) -> None:
        self.__dy2st_original__ = function
        self._checkpoint = checkpoint
        self._donate = tuple(donate)
        self._input_spec = None if input_spec is None else tuple(input_spec)
        self._cache: dict[object, tuple[Entry, ...]] = {}
        self._moving = DynamicNumbers()
        self._bound: dict[int, tuple[object, StaticFunction]] = {}
        functools.update_wrapper(self, function)

    def __get__(self, obj: object, owner: object = None) -> Any:
        """As a method: one translated function per object, which it keeps alive."""
        if obj is None:
            return self
        known = self._bound.get(id(obj))
        if known is None or known[0] is not obj:
            bound = types.MethodType(self.__dy2st_original__, obj)
            new = StaticFunction(bound, self._input_spec, self._checkpoint, self._donate)
            known = self._bound[id(obj)] = (obj, new)
        return known[1]

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the translated function: results, writes and rebound attributes are those of eager.

        Raises:
            SourceError: the function cannot be translated; nothing has been changed.
        """
        if current() is not None:
            return calls.fn(self.__dy2st_original__)(*args, **kwargs)
        signature = Signature(args, kwargs)
        for entry in self._cache.get(signature.key, ()):
            result = entry.call(signature.leaves)
            if result is not MISS:
                return result
        if self._moving.leaves:
            for entry in self._cache.get(self._moving.key(signature), ()):
                result = entry.call(signature.leaves)
                if result is not MISS:
                    return result
        if self._input_spec is not None:
            for entry in self._cache.get(signature.general, ()):
                result = entry.call(signature.leaves)
                if result is not MISS:
                    return result
        return self._translate(signature)[1]

    def _translate(self, signature: Signature, call: bool = True) -> tuple[Entry, object]:
        """Translate for these arguments, and call the new entry."""
        with _TRANSLATING:
            for spec in {self._input_spec: 0, None: 0}:
                entry = self._made(signature, spec)
                if spec is not None and not entry.accepts(signature.leaves):
                    continue
                key = self._moving.key(signature) if spec is None else signature.general
                self._cache[key] = (entry, *self._cache.get(key, ())[: MOST_PROGRAMS - 1])
                break
        result = entry.call(signature.leaves) if call else None
        if result is MISS:
            raise AssertionError("a fresh translation does not accept its own arguments")
        return entry, result

    def _made(self, signature: Signature, spec: object) -> Entry:
        """A new translation, with dynamic numbers as inputs if the function allows it."""
        entries = [e for q in self._cache.values() for e in q]
        self._moving.learn(entries, self._cache, signature)
        if self._moving:
            try:
                return self._traced(signature, spec, self._moving)
            except SourceError:
                self._moving.pin()
        return self._traced(signature, spec)

    def _traced(
        self, signature: Signature, spec: Any, dynamic: DynamicNumbers | None = None
    ) -> Entry:
        options = self._checkpoint, self._donate
        return translate(self.__dy2st_original__, signature, spec, dynamic, *options)

    def __deepcopy__(self, memo: dict[int, object]) -> StaticFunction:
        """A copy of the function (a bound one with its object), without its translations."""
        function = copy.deepcopy(self.__dy2st_original__, memo)
        new = StaticFunction(function, self._input_spec, self._checkpoint, self._donate)
        memo[id(self)] = new
        return new

    def __reduce__(self) -> Any:
        options = self._input_spec, self._checkpoint, self._donate
        return StaticFunction, (self.__dy2st_original__, *options)

    # ------------------------------------------------------------ inspection
    def entry(self, *args: object, **kwargs: object) -> Entry:
        """The translation that a call with these arguments uses; the call is not made.

        Without arguments the `input_spec` is used.
        """
        signature = Signature(args, kwargs) if args or kwargs else self._spec_signature()
        for key in (signature.key, self._moving.key(signature), signature.general):
            for entry in self._cache.get(key, ()):
                if entry.accepts(signature.leaves):
                    return entry
        return self._translate(signature, call=False)[0]

    def _spec_signature(self) -> Signature:
        if self._input_spec is None:
            raise TypeError("give arguments, or an input_spec to to_static")
        return spec_signature(self._input_spec)

    def program(self, *args: object, **kwargs: object) -> Program:
        """The program for these arguments; `print` shows its text."""
        return self.entry(*args, **kwargs).program

    def report(self, *args: object, **kwargs: object) -> Report:
        """The fate of each loop, branch and write, and the ops that Paddle's own kernels run."""
        return self.entry(*args, **kwargs).report

    @property
    def code(self) -> str:
        """The converted Python of the function."""
        function = self.__dy2st_original__
        with _TRANSLATING:
            raw: Any = getattr(function, "__func__", function)
            new: Any = calls.converted(raw)
            return render(new.__dy2st_tree__)

    def __repr__(self) -> str:
        return f"<dy2st.to_static of {self.__dy2st_original__!r}>"


def to_static(
    function: object = None,
    input_spec: Sequence[object] | None = None,
    checkpoint: str | int = "none",
    donate: Sequence[str] = (),
    **options: object,
) -> Any:
    """Translate a function, a method or the `forward` of a Layer.

    Used as a decorator, with or without arguments, or called. A Layer comes back as the same Layer
    with its `forward` replaced, and nothing else. Nothing is translated before the first call.
    The interface follows `paddle.jit.to_static`.

    Args:
        function: the function, method or Layer; None makes a decorator.
        input_spec: one `paddle.static.InputSpec` for each tensor argument. A dim of None is a
            named size: one program then serves every value of it.
        checkpoint: the residuals of loops. "none" keeps every value that the backward reads; "sqrt"
            or a number k keeps the state of each sqrt(T)-th or k-th iteration and recomputes the
            rest.
        donate: names of parameters whose tensors the caller gives up. A call that records no
            gradients may use their memory for other values; after it, also if it fails, their
            content and that of tensors that share their memory is undefined.
        options: accepted for compatibility with `paddle.jit.to_static` and ignored: `full_graph`,
            `backend`, `build_strategy`.

    Raises:
        TypeError: an unknown option, or an object that cannot be translated.
        ValueError: a checkpoint that is neither "none", "sqrt" nor a positive number, or a name in
            `donate` that is no parameter.
    """
    if checkpoint not in ("none", "sqrt") and not (type(checkpoint) is int and checkpoint > 0):
        raise ValueError(f'checkpoint is "none", "sqrt" or a positive int, not {checkpoint!r}')
    unknown = set(options) - {"full_graph", "backend", "build_strategy"}
    if unknown:
        raise TypeError(f"to_static has no option {sorted(unknown)[0]!r}")
    if function is None:
        return functools.partial(
            to_static, input_spec=input_spec, checkpoint=checkpoint, donate=donate
        )
    if isinstance(function, calls.PaddleStatic):
        function = function.dygraph_function
    if isinstance(function, StaticFunction):
        return (
            function
            if input_spec is None and checkpoint == function._checkpoint and not donate
            else _static(function.__dy2st_original__, input_spec, checkpoint, donate)
        )
    if isinstance(function, paddle.nn.Layer):
        return _layer(function, input_spec, checkpoint, donate)
    if not isinstance(function, (types.FunctionType, types.MethodType)):
        raise TypeError(f"to_static takes a function, a method or a Layer, not {function!r}")
    return _static(function, input_spec, checkpoint, donate)


def _static(
    function: Any, input_spec: Sequence[Any] | None, checkpoint: str | int, donate: Sequence[str]
) -> StaticFunction:
    names = check_names(function, donate) if donate else ()
    return StaticFunction(function, input_spec, checkpoint, names)


def _layer(
    layer: Any, input_spec: Sequence[object] | None, checkpoint: str | int, donate: Sequence[str]
) -> object:
    forward = layer.forward
    if isinstance(forward, calls.PaddleStatic):
        forward = forward.dygraph_function
    original = getattr(forward, "__dy2st_original__", forward)
    static = _static(original, input_spec, checkpoint, donate)
    object.__setattr__(layer, "forward", static)
    return layer
