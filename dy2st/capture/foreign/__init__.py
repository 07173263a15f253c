"""Foreign ops: calls without a row, executed by Paddle's own kernel when the program runs.

What such a call returns and overwrites is measured, not declared: the kernel runs once on small
stand-in tensors of the same types. With named sizes it runs several times with different sizes, and
the result's dims must be affine in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.base import core

from dy2st.capture.detached_writes import write
from dy2st.capture.foreign import gradient, print
from dy2st.trace.emitter import Emitter, detached, grad_enabled, lift
from dy2st.trace.fake_tensor import DTYPE_TO_PADDLE, Tensor, dtype_from, type_of
from dy2st.trace.memory import extent, meet
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.signals import NeedsConcrete, Refused
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace
from dy2st.trace.user_stack import is_internal
from ir import Dy2stError, Op, Size, SourceError, Type
from ir.types import BF16, DType, evaluate_dim

#: ops whose result depends on the generator: stand-ins must not advance it
RANDOM = frozenset(
    "dropout dropout_nd uniform gaussian randint randperm bernoulli multinomial poisson rrelu "
    "standard_gamma binomial gumbel_softmax exponential_ truncated_gaussian_random uniform_inplace "
    "uniform_inplace_ gaussian_inplace gaussian_inplace_ dirichlet random_ fused_dropout_add "
    "shuffle_batch top_p_sampling class_center_sample".split()
)
#: ops whose result shape depends on values
BY_VALUE = frozenset(
    "nonzero unique unique_consecutive masked_select where_index "
    "repeat_interleave_with_tensor_index "
    "bincount histogram edit_distance nms multiclass_nms3 is_empty sequence_mask".split()
)
#: random ops whose one result has the type of the first operand: known without a stand-in run
SAME_TYPE = frozenset(("dropout", "bernoulli"))
#: ops with results of floats that never require a gradient
NO_GRADIENT = frozenset(
    "bernoulli standard_gamma dirichlet nextafter uniform_inplace_ gaussian_inplace_ exponential_ "
    "random_".split()
)
SIGNS = {
    "add": "+", "radd": "+", "sub": "-", "rsub": "-", "mul": "*", "rmul": "*", "truediv": "/",
    "rtruediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "getitem": "indexing",
    "setitem": "item assignment",
}  # fmt: skip
KEYS = {bool: "bool", int: "int", float: "float"}
NUMBERS: dict[str, type] = {name: kind for kind, name in KEYS.items()}
PRIMES = (5, 7, 11, 13, 17, 19, 23, 29)


# ---------------------------------------------------------------- arguments as attributes
class _Template:
    """Arguments as nested literals: tensors become operands, marked by their position."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.operands: list[Any] = []

    def of(self, a: Any) -> Any:
        if isinstance(a, Tensor):
            return {"x": self.operand(lift(self.trace, a))}
        if is_runtime_scalar(a):
            return {KEYS[a.kind]: self.operand(self.trace.fake(a.value))}
        if is_symint(a):
            return self.symbol(a)
        if isinstance(a, (list, tuple)):
            return tuple(self.of(q) for q in a)
        if isinstance(a, slice):
            return {"slice": (self.of(a.start), self.of(a.stop), self.of(a.step))}
        if a is Ellipsis:
            return {"ellipsis": 0}
        return self.literal(a)

    def symbol(self, a: Any) -> Any:
        if not a.loops:
            return a.dim
        fake = self.trace.fake(self.trace.index_value(a))
        return {"int": self.operand(fake)}

    def literal(self, a: Any) -> Any:
        if isinstance(a, (paddle.CPUPlace, core.Place)):
            return {"place": 0}
        if isinstance(a, (core.DataType, core.VarDesc.VarType)):
            return dtype_from(a)
        if isinstance(a, np.generic):
            a = a.item()
        if a is None or isinstance(a, (bool, int, float, str)):
            return a
        raise NotImplementedError(f"an argument of type {type(a).__name__}")

    def operand(self, fake: Any) -> int:
        for k, q in enumerate(self.operands):
            if q is fake:
                return k
        self.operands.append(fake)
        return len(self.operands) - 1


def rebuild(a: Any, tensors: Sequence[Any], sizes: Mapping[str, int]) -> Any:
    """The argument that a literal stands for."""
    if isinstance(a, tuple):
        return [rebuild(q, tensors, sizes) for q in a]
    if isinstance(a, Size):
        return a.evaluate(sizes)
    if isinstance(a, DType):
        return DTYPE_TO_PADDLE[a]
    if not isinstance(a, dict):
        return a
    ((kind, value),) = a.items()
    if kind == "x":
        return tensors[value]
    if kind in NUMBERS:
        return NUMBERS[kind](tensors[value])
    if kind == "slice":
        return slice(*(rebuild(q, tensors, sizes) for q in value))
    return Ellipsis if kind == "ellipsis" else paddle.CPUPlace()


def function(call: str) -> Callable[..., Any]:
    """`Tensor.__getitem__` is a method, `matmul` an entry of `_C_ops`."""
    if call.startswith("Tensor."):
        return getattr(Tensor, call.removeprefix("Tensor."))
    return getattr(core.eager.ops, call)


def run(call: str, args: Any, tensors: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
    """Call the kernel; the flat results, then the new values of what it overwrote."""
    positional, keywords = args
    values = [rebuild(a, tensors, sizes) for a in positional]
    named = {k: rebuild(a, tensors, sizes) for k, a in keywords}
    out = function(call)(*values, **named)
    return [t for t in flatten(out) if isinstance(t, Tensor)]


def is_void(tensor: Any) -> bool:
    """A result that the kernel did not make; an empty tensor has no storage, yet it is one."""
    return not tensor._is_initialized() and 0 not in tensor.shape


def flatten(x: Any) -> list[Any]:
    if isinstance(x, (list, tuple)):
        return [leaf for q in x for leaf in flatten(q)]
    return [x]


# ---------------------------------------------------------------- recording
def record(
    trace: Trace,
    name: str,
    original: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    cause: Exception | None,
) -> Any:
    """Emit a foreign op for this call, or refuse it by name."""
    template = _Template(trace)
    try:
        literal = (
            tuple(template.of(a) for a in args),
            tuple((k, template.of(v)) for k, v in kwargs.items()),
        )
    except NotImplementedError as e:
        raise refusal(trace, name, e) from None
    known = [trace.values.literals.get(q._value) for q in template.operands]
    probe = _Probe(trace, name, literal, [q._value.type for q in template.operands], known)
    try:
        with trace.pause():
            types, structure, written = probe.measure()
            flags = probe.flags(template.operands, list(written))
    except (Refused, NeedsConcrete):
        raise
    except Exception as e:
        if is_internal(e):
            raise
        raise refusal(trace, name, e if cause is None or _informative(e) else cause) from e
    if any(t.dtype == BF16 for t in types):
        raise refusal(trace, name, TypeError("bfloat16 tensors are not covered yet"))
    return _emit(trace, name, literal, template.operands, types, structure, written, flags)


def _informative(e: Exception) -> bool:
    return bool(str(e).strip())


def refusal(trace: Trace, name: str, cause: Exception) -> Refused:
    """The eager error, at the user's line."""
    text = str(cause).strip().split("\n")
    lines = [q.strip() for q in text if q.strip() and "-----" not in q and "Traceback" not in q]
    hints = [q for q in lines if "Error" in q or "Invalid" in q] or lines[-1:] or [repr(cause)]
    short = name.removeprefix("Tensor.")
    short = SIGNS.get(short.strip("_"), short) if short != name else name
    error = SourceError(
        f"{short} does not accept these arguments.",
        trace.where(),
        reason=hints[0][:400],
        remedy="Check the shapes and dtypes; run the function eagerly to see the same error.",
    )
    error.__cause__ = cause
    return Refused(error)


def shape_by_value(trace: Trace, what: str) -> Refused:
    """A result whose shape is not known before the values are."""
    return Refused(
        SourceError(
            f"the shape of {what} depends on values.",
            trace.where(),
            reason="In a program every shape follows from the shapes of the inputs.",
            remedy="Keep the full shape and a mask: `paddle.where(mask, x, 0)`, and divide by "
            "`mask.sum()` for a mean; or make this call outside of the translated function.",
        )
    )


def _emit(
    trace: Trace,
    name: str,
    literal: Any,
    operands: Sequence[Any],
    types: Sequence[Type],
    structure: Any,
    written: Mapping[int, int],
    flags: Sequence[bool],
) -> Any:
    """`written`: the operands that are overwritten, and by how much their versions move."""
    floats = {id(q) for q in operands if not q.stop_gradient}
    stop = name in NO_GRADIENT or not grad_enabled() or not floats
    cut = (stop or name not in RANDOM) and name != "print"
    values = [detached(trace, q._value) if cut and id(q) in floats else q._value for q in operands]
    for k in written:
        trace.check_writable(trace.root(trace.read_value(operands[k]._value)))
    all_types = (*types, *(values[k].type for k in written))
    attrs = {"call": name, "args": literal, "types": all_types, "writes": tuple(written)}
    results = trace.emit("foreign", values, attrs)
    results = results if isinstance(results, tuple) else (results,)
    trace.frame.notes.append(("foreign", trace.where(), name))
    open_ = not cut and not stop
    fakes = [trace.fake(r, not open_ or r.type.dtype.kind != "f") for r in results]
    if not stop and not open_:
        fakes = gradient.attach(trace, name, literal, operands, fakes, flags, list(written))
    for (k, moves), new in zip(written.items(), fakes[len(types) :]):
        write(Emitter(trace), operands[k], new, moves=moves)
    return _restructure(structure, iter(fakes[: len(types)]), operands)


def _restructure(structure: Any, fakes: Any, operands: Sequence[Any]) -> Any:
    if isinstance(structure, (list, tuple)):
        return type(structure)(_restructure(q, fakes, operands) for q in structure)
    if isinstance(structure, int):
        return operands[structure]
    return next(fakes) if structure == "new" else None


class _Probe:
    """Runs the kernel on stand-ins and reads off result types, aliases and writes."""

    def __init__(
        self, trace: Trace, name: str, literal: Any, types: Sequence[Type], known: Sequence[Any]
    ) -> None:
        self.trace, self.name, self.literal, self.types = trace, name, literal, types
        self.known = known
        self.sizes = sorted({n for t in types for n in t.names} | _size_names(literal))

    def measure(self) -> tuple[list[Type], Any, dict[int, int]]:
        if self.name in BY_VALUE:
            raise shape_by_value(self.trace, f"the result of {self.name}")
        if self.name in SAME_TYPE:
            return [self.types[0]], "new", {}
        base = dict(zip(self.sizes, PRIMES))
        first, structure, written = self.once(base)
        if not self.sizes:
            return first, structure, written
        moved = {n: self.once({**base, n: base[n] + 1})[0] for n in self.sizes}
        types = [self.affine(i, t, base, moved) for i, t in enumerate(first)]
        check = {n: v + 3 for n, v in base.items()}
        for got, t in zip(self.once(check)[0], types):
            if got.shape != t.concrete(check):
                raise ValueError("the shape of the result does not follow from the named sizes")
        return types, structure, written

    def flags(self, operands: Sequence[Any], written: Sequence[int]) -> list[bool]:
        """Which results, and then which overwritten operands, require a gradient."""
        trained = [k for k, q in enumerate(operands) if not q.stop_gradient]
        if not trained or not grad_enabled() or self.name in RANDOM or self.name in BY_VALUE:
            return []
        sizes = dict(zip(self.sizes, PRIMES))
        tensors = [
            _stand_in(t, n, sizes, k) for k, (t, n) in enumerate(zip(self.types, self.known))
        ]
        _, found = gradient.recorded(run, self.name, self.literal, tensors, trained, written, sizes)
        return [not t.stop_gradient for t in found]

    def affine(self, i: int, t: Type, base: Any, moved: Any) -> Type:
        dims = []
        for axis, d in enumerate(t.shape):
            total: Any = d
            for n in self.sizes:
                slope = moved[n][i].shape[axis] - d
                total = total + (Size.named(n) - base[n]) * slope
            dims.append(total)
        return t.with_shape(dims)

    def once(self, sizes: Mapping[str, int]) -> tuple[list[Type], Any, dict[int, int]]:
        state = paddle.get_rng_state() if self.name in RANDOM else None
        try:
            with paddle.no_grad():
                stand_ins = [
                    _stand_in(t, n, sizes, k)
                    for k, (t, n) in enumerate(zip(self.types, self.known))
                ]
                before = [(q.inplace_version, q.numpy()) for q in stand_ins]
                positional, keywords = self.literal
                values = [rebuild(a, stand_ins, sizes) for a in positional]
                named = {k: rebuild(a, stand_ins, sizes) for k, a in keywords}
                out = function(self.name)(*values, **named)
        finally:
            if state is not None:
                paddle.set_rng_state(state)
        self.check_kept(stand_ins, [old for _, old in before])
        written = {
            k: q.inplace_version - version
            for k, (q, (version, old)) in enumerate(zip(stand_ins, before))
            if q.inplace_version != version or not np.array_equal(q.numpy(), old, equal_nan=True)
        }
        types: list[Type] = []
        return types, self.structure(out, stand_ins, types), written

    def check_kept(self, stand_ins: Sequence[Any], before: Sequence[np.ndarray]) -> None:
        """A call that writes leaves element types and shapes as they are, or is refused."""
        for q, old, t in zip(stand_ins, before, self.types):
            if type_of(q).dtype.numpy == old.dtype and tuple(q.shape) == old.shape:
                continue
            raise Refused(
                SourceError(
                    f"{self.name} makes {type_of(q)} of a tensor that is {t}, in place.",
                    self.trace.where(),
                    reason="Other tensors that share its memory would be read wrongly.",
                    remedy="Bind a new tensor: the same call without the `_`, or without `output`.",
                )
            )

    def structure(self, out: Any, stand_ins: Sequence[Any], types: list[Type]) -> Any:
        if isinstance(out, (list, tuple)):
            return type(out)(self.structure(q, stand_ins, types) for q in out)
        if not isinstance(out, Tensor):
            if out is not None:
                raise TypeError(f"{self.name} returns a {type(out).__name__}")
            return None
        for k, q in enumerate(stand_ins):
            if out is q:
                return k
        if is_void(out):
            return None
        for q in stand_ins:
            whole = out.data_ptr() == q.data_ptr() and out.shape == q.shape
            if meet(extent(out), extent(q)) and not whole:
                raise NotImplementedError(
                    f"{self.name} gives a view of its argument, which programs do not have"
                )
        types.append(type_of(out))
        return "new"


def _size_names(literal: Any) -> set[str]:
    if isinstance(literal, Size):
        return set(literal.names)
    if isinstance(literal, tuple):
        return {n for q in literal for n in _size_names(q)}
    return set()


def _stand_in(t: Type, known: Any, sizes: Mapping[str, int], position: int) -> Any:
    """The number that the tensor is known to hold, else varied floats and ones: a write shows."""
    shape = [evaluate_dim(d, sizes) for d in t.shape]
    if is_symint(known):
        known = evaluate_dim(known.dim, sizes)
    if known is None and t.dtype.kind == "f":
        rng = np.random.default_rng(len(shape) + position)
        array = rng.uniform(0.5, 1.5, shape).astype(t.dtype.numpy)
        return paddle.to_tensor(array)
    return paddle.full(shape, 1 if known is None else known, DTYPE_TO_PADDLE[t.dtype])


# ---------------------------------------------------------------- running
def handler(op: Op, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[np.ndarray]:
    """What the executor calls for a foreign op: NumPy in, NumPy out.

    Raises Dy2stError when Paddle's kernel gives other types than the stand-ins did.
    """
    if op.attrs["call"] == "print":
        print.run(op, arrays)
        return []
    with paddle.no_grad():
        tensors = [paddle.to_tensor(np.ascontiguousarray(a).reshape(a.shape)) for a in arrays]
        if op.attrs["call"].startswith(gradient.PREFIX):
            return [t.numpy() for t in gradient.run_backward(run, op, tensors, sizes)]
        inputs = {id(t) for t in tensors}
        out = run(op.attrs["call"], op.attrs["args"], tensors, sizes)
        fresh = [t for t in out if id(t) not in inputs and not is_void(t)]
        fresh += [tensors[k] for k in op.attrs["writes"]]
    results = [t.numpy() for t in fresh]
    want = [(r.type.dtype.numpy, r.type.concrete(sizes)) for r in op.results]
    have = [(a.dtype, a.shape) for a in results]
    if want != have:
        raise Dy2stError(f"{op.attrs['call']} gave {have}, its stand-in {want} ({op.loc})")
    return results


__all__ = ["handler", "record", "refusal"]
