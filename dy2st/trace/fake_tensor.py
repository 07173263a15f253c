"""The tensor that user code sees while it is traced: a Paddle tensor without storage.

`FakeTensor` is a subclass of Paddle's eager tensor, so `isinstance` and every `in_dynamic_mode()`
branch behave as in eager execution. It wraps one value of the program; shape and dtype come from
there, and dims with a name are symbolic integers.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Any, NoReturn

import paddle
from paddle import Tensor
from paddle.base.dygraph.math_op_patch import TensorSize

from dy2st.trace import memory as layout
from dy2st.trace.signals import NeedsConcrete, Refused
from dy2st.trace.symint import SymInt, is_symint, make
from dy2st.trace.trace import Trace, current
from dy2st.trace.user_stack import OUTSIDE, called_method, user_loc
from ir import Type, Value
from ir.types import (
    BF16,
    BOOL,
    C64,
    C128,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    DType,
    product,
)

DTYPE_TO_PADDLE = {
    BOOL: paddle.bool,
    U8: paddle.uint8,
    I8: paddle.int8,
    I16: paddle.int16,
    I32: paddle.int32,
    I64: paddle.int64,
    F16: paddle.float16,
    BF16: paddle.bfloat16,
    F32: paddle.float32,
    F64: paddle.float64,
    C64: paddle.complex64,
    C128: paddle.complex128,
}
DTYPE_FROM_PADDLE = {v: k for k, v in DTYPE_TO_PADDLE.items()}


class NoElementType(TypeError):
    """Paddle's name of an element type that programs do not have."""


def dtype_from(dtype: object) -> DType:
    """Our element type for a Paddle dtype; raises NoElementType where there is none."""
    found = DTYPE_FROM_PADDLE.get(dtype)
    if found is None:
        raise NoElementType(str(dtype).removeprefix("paddle."))
    return found


def type_of(tensor: Tensor) -> Type:
    """The type of a real tensor; raises TypeError for element types that programs lack."""
    return Type(dtype_from(tensor.dtype), tuple(int(d) for d in tensor.shape))


class Shape(list):
    """The shape of a fake tensor with named sizes; as a result it is Paddle's own Size."""

    def numel(self) -> object:
        """The number of elements, as Paddle's Size has it."""
        return functools.reduce(operator.mul, self, 1)


class FakeTensor(Tensor):  # type: ignore[misc]
    """The empty `__init__` matters: Paddle replaces `Tensor.__init__`."""

    def __init__(self) -> None:
        pass

    def ask_type(self) -> Type:
        """The type, for code that may follow from it: a place that a loop carries keeps it then."""
        self.__dict__["_asked"] = True
        return self._value.type  # type: ignore[no-any-return]

    @property
    def shape(self) -> Any:
        trace = current()
        dims = self.ask_type().shape
        if any(not isinstance(d, int) for d in dims):
            return Shape(make(d, trace) for d in dims)
        return paddle.Size(list(dims))

    @property
    def dtype(self) -> object:
        return DTYPE_TO_PADDLE[self.ask_type().dtype]

    @property
    def ndim(self) -> int:
        return self.ask_type().ndim

    @property
    def size(self) -> object:
        dims = self.ask_type().shape
        if all(isinstance(d, int) for d in dims):
            return TensorSize(list(dims))
        size = make(product(dims), current())
        return SymInt(size.dim, size.home, self.shape) if is_symint(size) else size

    @property
    def stop_gradient(self) -> bool:
        return self._stop_gradient

    @stop_gradient.setter
    def stop_gradient(self, flag: bool) -> None:
        trace = current()
        if trace is not None and bool(flag) is not self._stop_gradient:
            set_flag(trace, self, bool(flag))
        self.__dict__["_stop_gradient"] = bool(flag)

    @property
    def T(self) -> object:
        if self.ndim == 1:
            return self
        return paddle.transpose(self, list(range(self.ndim))[::-1])

    @property
    def mT(self) -> object:
        order = list(range(self.ndim))
        return paddle.transpose(self, [*order[:-2], order[-1], order[-2]])

    @property
    def place(self) -> Any:
        return paddle.CPUPlace()

    @property
    def name(self) -> str:
        return self._value.name or "fake"

    @property
    def is_leaf(self) -> bool:
        """Made by no op that autograd sees."""
        trace = current()
        if self._stop_gradient or trace is None or any(q is self for q in trace.aliasing.leaves):
            return True
        return any(q.fake is self and q.tensor.is_leaf for q in trace.inputs.by_id.values())

    @property
    def persistable(self) -> bool:
        return False

    @property
    def grad(self) -> None:
        return gradient_of(self)

    @property
    def data(self) -> object:
        return self.detach()

    @data.setter
    def data(self, other: object) -> None:
        raise Refused(
            "the data of a tensor is replaced: `x.data = y`.",
            user_loc(),
            reason="Every other name of the tensor would see the change.",
            remedy="Bind a new tensor, `x = y`, or write the values: `x.set_value(y)`.",
        )

    def __repr__(self) -> str:
        return f"Tensor({self._value.type})"

    def __hash__(self) -> int:
        return id(self)

    def __iter__(self) -> Iterator[object]:
        """For comprehensions and unpacking; loops over a tensor never come here, unless it has no
        axes: eager Paddle gives no element then."""
        shape = self.ask_type().shape
        if not shape:
            return iter(())
        if not isinstance(shape[0], int):
            raise NeedsConcrete(f"iteration over the named size {shape[0]}")
        return (self[i] for i in range(shape[0]))

    def dim(self) -> int:
        return self.ndim

    ndimension = dim

    def is_contiguous(self) -> bool:
        """Whether the tracing thread may take its address; no other thread may."""
        trace = current()
        return trace is not None and layout.is_contiguous(trace, self)

    @property
    def strides(self) -> list[object]:
        return list(layout.exact(tracing(), self, "the stride").strides)

    def get_strides(self) -> list[object]:
        return self.strides

    def stride(self, dim: int | None = None) -> Any:
        return self.strides if dim is None else self.strides[dim]

    @property
    def offset(self) -> Any:
        return layout.offset(tracing(), self)

    @property
    def inplace_version(self) -> int:
        needs_value("inplace_version")

    def cpu(self) -> FakeTensor:
        return self

    def register_hook(self, hook: object) -> object:
        """For code that is not converted; `dy2st.capture.pylayer` has what converted code calls."""
        needs_value("register_hook")

    def _is_initialized(self) -> bool:
        return True

    def is_dist(self) -> bool:
        return False

    def is_dense(self) -> bool:
        return True

    def is_sparse(self) -> bool:
        return False

    def element_size(self) -> int:
        return self.ask_type().dtype.size

    def _use_gpudnn(self, *args: object) -> object:
        return self

    def _tensor_use_gpudnn(self, *args: object) -> object:
        return self


#: what messages of Python call it
FakeTensor.__name__ = FakeTensor.__qualname__ = "Tensor"
FakeTensor.__module__ = "paddle"


def tracing() -> Any:
    trace = current()
    if trace is None:
        raise RuntimeError("a tensor of a translation is used after it has ended")
    return trace


def _while_tracing(name: str) -> object:
    """Operators in C crash on a tensor without storage; interception ends with the trace."""

    def method(self: FakeTensor, *args: object) -> object:
        tracing()
        return getattr(Tensor, name)(self, *args)

    return method


def set_flag(trace: Trace, fake: FakeTensor, flag: bool) -> None:
    """`x.stop_gradient = flag`: from here on no gradient passes, or `x` gets one of its own."""
    check_single(trace, fake._value, "stop_gradient of")
    given = trace.inputs.by_fake(fake)
    if given is not None:
        begins = given.kind == "arg" and given.leaf is None and not (flag or is_read(trace, fake))
        if not begins or given.share is not None or given.memory is not None:
            raise Refused(
                "stop_gradient of a tensor from outside is set in a translated function.",
                trace.where(),
                reason="A cached call could not repeat it, unless it is an argument that nothing "
                "has read before.",
                remedy="Set it before the call, or use a tensor of its own: `x = x.detach()`.",
            )
        given.flagged = True
        trace.autograd.trained.add(fake._value)
    elif not flag:
        if is_read(trace, fake):
            rebind(trace, fake, "alias")
        trace.aliasing.leaves.append(fake)
        trace.autograd.trained.add(fake._value)
    elif fake._value.type.dtype.differentiable:
        old = fake._value
        trace.aliasing.detached[rebind(trace, fake, "detach")] = old


def check_single(trace: Trace, v: Value, what: str) -> None:
    """Raise an error for an element that an index picks, or of a list that a loop fills: the
    object of the user's is another one. `what` is asked for."""
    values = trace.values
    if trace.in_loop and (v in values.iterated or values.copies.get(v)):
        raise NeedsConcrete(f"{what} an element that an index picks is asked for")
    if v in values.picks:
        trace.unroll(values.picks[v][0].source(), f"{what} an element of its list is asked for")
    if v in values.picks or values.copies.get(v):
        raise chosen(trace, what)


def chosen(trace: Trace, what: str) -> Refused:
    return Refused(
        f"{what} a tensor that data or a loop has chosen.",
        trace.where(),
        reason="The program has one tensor for all that it may be.",
        remedy="Begin with a new one, `x = x.detach()` and `x.stop_gradient = False`, and compute "
        "from that.",
    )


def is_read(trace: Trace, fake: FakeTensor) -> bool:
    """Whether an op has read a tensor, or it is none of this block."""
    if trace.values.frame_of[fake._value] is not trace.frame:
        return True
    return any(fake._value in node.operands for node in trace.frame.builder.ops)


def rebind(trace: Trace, fake: FakeTensor, row: str) -> Value:
    """The object is a new value of its storage from here on."""
    old, flag = fake._value, fake._stop_gradient
    if trace.values.frame_of[old] is not trace.frame:
        raise NeedsConcrete("stop_gradient of a tensor from outside of the block is set")
    new: Value = trace.emit(row, [old], {})
    trace.undo_log.note(lambda: fake.__dict__.update(_value=old, _stop_gradient=flag))
    fake.__dict__["_value"] = new
    trace.become(old, new)
    return new


_SHORT = "add sub mul div truediv floordiv mod pow matmul"
OPERATORS = [f"__{p}{n}__" for n in _SHORT.split() for p in ("", "r")]
OPERATORS = [n for n in OPERATORS if hasattr(Tensor, n)]
OPERATORS += [f"__{n}__" for n in "eq ne lt le gt ge getitem setitem".split()]
for _name in OPERATORS:
    setattr(FakeTensor, _name, _while_tracing(_name))


def make_fake(value: Value, stop_gradient: bool = True) -> FakeTensor:
    fake = FakeTensor()
    fake.__dict__["_value"] = value
    fake.__dict__["_stop_gradient"] = stop_gradient
    return fake


# ---------------------------------------------------------------- what has no value while tracing
REMEDIES = {
    "numpy": "Compute with tensors instead, or call numpy() on the result outside.",
    "item": "Compute with 0-d tensors instead, or call item() on the result outside.",
    "tolist": "Compute with tensors instead, or call tolist() on the result outside.",
    "__bool__": "Select with `paddle.where`, or decide on a Python value.",
    "__int__": "Use a Python int, or compute with the tensor itself.",
    "__index__": "Index a stack of tensors, `paddle.stack(ys)[i]`, or branch on the index: "
    "`if i == 0: ...`.",
    "__float__": "Compute with 0-d tensors instead.",
}
WORDS = {
    "__bool__": "the truth of a tensor",
    "__int__": "int() of a tensor",
    "__float__": "float() of a tensor",
    "__index__": "a tensor as an index of a Python sequence",
    "__array__": "a NumPy array of a tensor",
    "__contains__": "`in` on a tensor",
    "__hash__": "a tensor as a dict key",
}


def needs_value(name: str) -> NoReturn:
    """Refuse a method that needs the tensor's value, at the user's line."""
    trace = current()
    assert trace is not None
    what = WORDS.get(name, f"a call of {name.strip('_')}()")
    method = called_method()
    remedy = REMEDIES.get(name, "Move this call out of the translated function.")
    raise Refused(
        f"{what} is needed {f'by {method}() ' if method else ''}while the program is traced.",
        trace.where(),
        reason="A traced program has no values yet: they are computed when it runs.",
        remedy=OUTSIDE if method else remedy,
    )


def refuse_training(what: str) -> Refused:
    """Gradients are computed after the call of a program, not by it."""
    return Refused(
        f"{what} in a translated function.",
        tracing().where(),
        reason="Whole training steps are not translated yet: a program computes the loss, and "
        "Paddle takes its gradients after the call.",
        remedy="Return the loss, and call backward() and the optimiser outside; or take the "
        "gradient of some tensors inside: `paddle.grad(loss, [x])`.",
    )


def gradient_of(x: Any) -> None:
    """`x.grad`: none for what is computed inside; that of a leaf changes between calls."""
    if x.is_leaf and not x.stop_gradient:
        raise refuse_training("the gradient of a tensor (`x.grad`)")


#: methods of Tensor that give Python a value, or reach storage that a fake tensor does not have
VALUE_METHODS = (
    "numpy item tolist __bool__ __int__ __float__ __index__ __array__ __complex__ __contains__ "
    "data_ptr __dlpack__ __deepcopy__ backward gradient _grad_ivar _clear get_tensor "
    "_share_buffer_to _copy_to _getitem_from_offset value_counts pin_memory cuda "
    "_is_shared_buffer_with _share_buffer_with"
).split()

__all__ = [
    "DTYPE_FROM_PADDLE",
    "DTYPE_TO_PADDLE",
    "VALUE_METHODS",
    "FakeTensor",
    "NeedsConcrete",
    "Tensor",
    "check_single",
    "chosen",
    "dtype_from",
    "gradient_of",
    "make_fake",
    "needs_value",
    "refuse_training",
    "type_of",
]
