"""`to_static` and the translated function."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import paddle

from dy2st.compiled.cache import TRANSLATING, Cache
from dy2st.compiled.entry import MISS, Entry
from dy2st.compiled.errors import for_user
from dy2st.compiled.foreign_kernels import CPU, Device
from dy2st.compiled.report import Report
from dy2st.convert.source import render
from dy2st.library import layer_modes
from dy2st.results.donation import check_names
from dy2st.runtime import calls
from dy2st.state.ownership import TRANSLATIONS
from dy2st.state.signature import Signature, spec_signatures
from dy2st.trace.trace import current
from dy2st.trace.user_stack import is_internal
from executor import require_device
from ir import Program, SourceError


class StaticFunction:
    """A translated function. Call it like the original.

    Args:
        function: a function, or a bound method.
        input_spec: `paddle.static.InputSpec` for each tensor argument; a dim of None is any size.
        checkpoint: the residuals of loops (`to_static`).
        donate: names of parameters whose tensors the caller gives up (`to_static`).
        device: where programs run, `device` and `matmul_precision` of `to_static`.
    """

    def __init__(
        self,
        function: Callable[..., object],
        input_spec: Sequence[object] | None,
        checkpoint: str | int = "none",
        donate: Sequence[str] = (),
        device: Device = CPU,
    ) -> None:
        functools.update_wrapper(self, function)
        spec = None if input_spec is None else tuple(input_spec)
        self.__dy2st_original__ = function
        self.__dy2st_cache__ = Cache(function, spec, checkpoint, donate, device)
        self.__dy2st_bound__: dict[int, tuple[object, StaticFunction]] = {}

    @property
    def __signature__(self) -> inspect.Signature:
        """For `inspect.getfullargspec`, by which `paddle.Model` asks for the names of arguments: it
        counts the object of a method among them, and takes what has a `__get__` for a builtin.
        `inspect.signature` does not count it; it finds none here, and asks what is wrapped."""
        if sys._getframe(1).f_code.co_name != "_signature_from_callable":
            raise AttributeError
        function = self.__dy2st_original__
        return inspect.signature(getattr(function, "__func__", function))

    def __get__(self, obj: object, owner: object = None) -> Any:
        """As a method: one translated function per object, which the object keeps in its `__dict__`
        under one name. An object without a `__dict__` is kept alive."""
        if obj is None:
            return self
        fields = getattr(obj, "__dict__", None)
        if type(fields) is dict:
            return Methods.of(obj, fields).method(self)
        bound = self.__dy2st_bound__.get(id(obj))
        if bound is None or bound[0] is not obj:
            bound = self.__dy2st_bound__[id(obj)] = (obj, self.bound_to(obj))
        return bound[1]

    def bound_to(self, obj: object) -> StaticFunction:
        """The method of an object, with translations of its own."""
        return self.copy(types.MethodType(self.__dy2st_original__, obj))

    def copy(self, function: Callable[..., object]) -> StaticFunction:
        """Another function with the options of this one."""
        cache = self.__dy2st_cache__
        return StaticFunction(function, cache.input_spec, *cache.options)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the translated function: results, writes and rebound attributes are those of eager.

        Raises:
            SourceError: the function cannot be translated; nothing has been changed.
        """
        if current() is not None:
            return calls.fn(self.__dy2st_original__)(*args, **kwargs)
        cache = self.__dy2st_cache__
        entry = signature = None
        try:
            if layer_modes.MAY_BE_MIXED and (mixed := layer_modes.mixed_precision()) is not None:
                raise mixed
            if not kwargs and (entry := cache.latest) is not None:
                result = entry.direct(args)
                if result is not MISS:
                    entry.used = cache.clock()
                    return result
                entry = None
            signature = Signature(args, kwargs)
            for entry in cache.candidates(signature.key, signature.leaves):
                result = entry.call(signature.leaves)
                if result is not MISS:
                    entry.used, cache.latest = cache.clock(), entry
                    return result
            return cache.call(signature)
        except Exception as error:
            if signature is None and entry is not None:
                signature = Signature(args, kwargs)
            if (elsewhere := layer_modes.within_paddles_program()) is not None:
                raise elsewhere from None
            error = error if signature is None else cache.ended(entry, signature, error)
            raise for_user(error)  # noqa: B904

    def __deepcopy__(self, memo: dict[int, object]) -> StaticFunction:
        """A copy of the function (a bound one with its object), without its translations."""
        new = memo[id(self)] = self.copy(copy.deepcopy(self.__dy2st_original__, memo))
        return new

    def __reduce__(self) -> tuple[object, ...]:
        cache = self.__dy2st_cache__
        return StaticFunction, (self.__dy2st_original__, cache.input_spec, *cache.options)

    # ------------------------------------------------------------ inspection
    def entry(self, *args: object, **kwargs: object) -> Entry:
        """The translation that a call with these arguments uses; the call is not made.

        Without arguments the `input_spec` is used.
        """
        if not args and not kwargs:
            return self._entry_of_spec()
        return self.__dy2st_cache__.find(Signature(args, kwargs))

    def _entry_of_spec(self) -> Entry:
        """The entry of the first call made up from the input_spec that can be translated, one that
        leaves all sizes open if there is any."""
        cache = self.__dy2st_cache__
        spec: Sequence[Any] | None = cache.input_spec
        if spec is None:
            raise TypeError("give arguments, or an input_spec to to_static")
        first: Exception | None = None
        special: Entry | None = None
        for signature in spec_signatures(spec):
            try:
                entry = cache.find(signature)
            except Exception as e:  # one of the function's own for a size that it does not take
                if is_internal(e):
                    raise
                if first is None:
                    first, shapes = e, [list(q.shape) for q in signature.leaves]
                continue
            if entry in cache.entries.get(signature.general, ()):
                return entry
            special = special or entry
        if special is not None:
            return special
        assert first is not None
        named = any(None in s.shape or -1 in s.shape for s in spec)
        if named and isinstance(first, SourceError):
            text = ", ".join(map(str, shapes))
            first.reason += f"\nThe open sizes of the input_spec stand for numbers here: {text}."
        raise first

    def program(self, *args: object, **kwargs: object) -> Program:
        """As `dy2st.program`."""
        return StaticFunction.entry(self, *args, **kwargs).program

    def report(self, *args: object, **kwargs: object) -> Report:
        """As `dy2st.report`."""
        return StaticFunction.entry(self, *args, **kwargs).report

    @property
    def code(self) -> str:
        """As `dy2st.code`."""
        function = self.__dy2st_original__
        with TRANSLATING:
            raw: Any = getattr(function, "__func__", function)
            new: Any = calls.converted(raw)
            return render(new.__dy2st_tree__)

    def __repr__(self) -> str:
        return f"<dy2st.to_static of {self.__dy2st_original__!r}>"


class Methods:
    """The translated methods of one object, in its `__dict__`: they live as long as it does.

    A copy of the object, or one that is unpickled, starts without translations.
    """

    NAME = TRANSLATIONS

    def __init__(self, owner: object = None) -> None:
        self.owner = owner
        self.methods: dict[StaticFunction, StaticFunction] = {}

    @staticmethod
    def of(obj: object, fields: dict[str, Any]) -> Methods:
        found = fields.get(Methods.NAME)
        if found is None:
            return fields.setdefault(Methods.NAME, Methods(obj))
        if found.owner is not obj:
            found = fields[Methods.NAME] = Methods(obj)
        return found

    def method(self, function: StaticFunction) -> StaticFunction:
        found = self.methods.get(function)
        return found or self.methods.setdefault(function, function.bound_to(self.owner))

    def __deepcopy__(self, memo: object) -> Methods:
        return Methods()

    def __reduce__(self) -> tuple[object, ...]:
        return Methods, ()

    def __eq__(self, other: object) -> bool:
        """Objects that differ in their translations only are equal."""
        return isinstance(other, Methods)

    __hash__ = None  # type: ignore[assignment]


def to_static(
    function: object = None,
    input_spec: Sequence[object] | None = None,
    checkpoint: str | int = "none",
    donate: Sequence[str] = (),
    device: str = "cpu",
    matmul_precision: str | None = None,
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
            content and that of tensors that share their memory is undefined. A program in which a
            tensor grows without a bound needs them whole, for it may start again.
        device: "cpu", or "gpu": the programs run on the first GPU. Tensors that Paddle has there
            are taken and written where they lie, as work of Paddle's current stream, and the
            results lie there; those on the host are copied there and back in each call, with an
            `executor.gpu.HostCopyWarning`.
        matmul_precision: what a GPU may round operands of products of float32 to, in the words of
            `torch.set_float32_matmul_precision` or of JAX: "highest" ("float32"), "high"
            ("tensorfloat32") or "medium" ("bfloat16"). None asks `DY2ST_MATMUL_PRECISION`, and is
            "highest" without it. A CPU rounds nothing.
        options: accepted for compatibility with `paddle.jit.to_static` and ignored: `full_graph`,
            `backend`, `build_strategy`.

    Raises:
        TypeError: an unknown option, or an object that cannot be translated.
        ValueError: a checkpoint that is neither "none", "sqrt" nor a positive number, a device that
            is neither "cpu" nor "gpu", a precision that there is not, or a name in `donate` that is
            no parameter.
        executor.gpu.DriverError: a GPU is asked for, and it, its driver or NVRTC is missing.
    """
    if checkpoint not in ("none", "sqrt") and not (type(checkpoint) is int and checkpoint > 0):
        raise ValueError(f'checkpoint is "none", "sqrt" or a positive int, not {checkpoint!r}')
    require_device(device, matmul_precision)
    there = Device(device, matmul_precision)
    unknown = set(options) - {"full_graph", "backend", "build_strategy"}
    if unknown:
        raise TypeError(f"to_static has no option {sorted(unknown)[0]!r}")
    if function is None:
        return functools.partial(
            to_static, input_spec=input_spec, checkpoint=checkpoint, donate=donate, device=device,
            matmul_precision=matmul_precision,
        )  # fmt: skip
    if isinstance(function, calls.PaddleStatic):
        function = function.dygraph_function
    if isinstance(function, StaticFunction):
        before, _, own = function.__dy2st_cache__.options
        if input_spec is None and (checkpoint, there) == (before, own) and not donate:
            return function
        return _static(function.__dy2st_original__, input_spec, checkpoint, donate, there)
    if isinstance(function, paddle.nn.Layer):
        return _layer(function, input_spec, checkpoint, donate, there)
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(_static(function.__func__, input_spec, checkpoint, donate, there))
    if not isinstance(function, (types.FunctionType, types.MethodType)):
        raise TypeError(f"to_static takes a function, a method or a Layer, not {function!r}")
    return _static(function, input_spec, checkpoint, donate, there)


def _static(
    function: Any,
    input_spec: Sequence[object] | None,
    checkpoint: str | int,
    donate: Sequence[str],
    device: Device,
) -> StaticFunction:
    names = check_names(function, donate) if donate else ()
    return StaticFunction(function, input_spec, checkpoint, names, device)


def _layer(
    layer: Any,
    input_spec: Sequence[object] | None,
    checkpoint: str | int,
    donate: Sequence[str],
    device: Device,
) -> object:
    forward = layer.forward
    if isinstance(forward, calls.PaddleStatic):
        forward = forward.dygraph_function
    original = getattr(forward, "__dy2st_original__", forward)
    static = _static(original, input_spec, checkpoint, donate, device)
    object.__setattr__(layer, "forward", static)
    return layer
