"""The stand-in for a NumPy array whose elements are known only when the program runs.

A `FakeArray` holds a fake tensor and computes as NumPy does: with NumPy's element types, in place
where NumPy writes in place. An element of int64, float64 or bool is a `RuntimeScalar`. Meeting a
tensor it becomes one, as in eager Paddle. What it does not know of NumPy is refused by name.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeGuard

import numpy as np
import paddle

from dy2st.state.ownership import refuse
from dy2st.state.traced_list import TraceList
from dy2st.trace.emitter import Emitter
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import KINDS, RuntimeScalar, kind_of
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace, current
from dy2st.trace.user_stack import raise_again
from ir.types import DTYPES, DType

#: NumPy's operators and the rows that compute the same
ROWS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "eq": "equal",
    "ne": "not_equal", "lt": "less_than", "le": "less_equal", "gt": "greater_than",
    "ge": "greater_equal", "pow": "pow", "floordiv": "floor_divide", "mod": "remainder",
}  # fmt: skip
#: those of which integers have their own way: NumPy's quotients by zero are zero
WHOLE = ("floordiv", "mod")
UFUNCS = {
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.true_divide: "truediv",
    np.equal: "eq", np.not_equal: "ne", np.less: "lt", np.less_equal: "le", np.greater: "gt",
    np.greater_equal: "ge", np.power: "pow", np.floor_divide: "floordiv", np.remainder: "mod",
}  # fmt: skip
REMEDY = "Make it a tensor, `paddle.to_tensor(a)`, and compute with tensors."


def made_array(trace: Trace, fake: FakeTensor) -> FakeArray:
    """The array that a tensor of the program is to Python."""
    array = FakeArray(fake)
    trace.make(array)
    return array


def is_array(x: object) -> TypeGuard[FakeArray]:
    return type(x) is FakeArray


def tensor_of(x: object) -> object:
    """The fake tensor of a stand-in for an array, else `x`."""
    return x.fake if type(x) is FakeArray else x


#: the kinds of NumPy's element types whose names show the number of their bits
TEXTS = {"U": "texts", "S": "bytes", "V": "records", "O": "Python objects"}


def element_type(dtype: object) -> DType:
    """Raises Refused for a NumPy dtype that programs do not compute with."""
    name = np.dtype(dtype).name  # type: ignore[call-overload]
    found = next((d for d in DTYPES.values() if d.name != "bf16" and d.numpy.name == name), None)
    if found is None or found.widened:
        raise refuse(
            f"an array of {TEXTS.get(np.dtype(dtype).kind, name)}.",  # type: ignore[call-overload]
            "Programs have no such element type.",
            "Use float32, float64, an integer type of at most 64 bits, or bool.",
        )
    return found


class FakeArray:
    """`fake`: the tensor of the program with its elements."""

    __slots__ = ("fake",)
    __class__ = property(lambda self: np.ndarray)  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, fake: FakeTensor) -> None:
        self.fake = fake

    # ------------------------------------------------------------ what it is
    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(self.fake.shape)

    @property
    def dtype(self) -> np.dtype:
        return self.fake._value.type.dtype.numpy

    @property
    def ndim(self) -> int:
        return self.fake.ndim

    @property
    def size(self) -> Any:
        return functools.reduce(operator.mul, self.shape, 1)

    @property
    def T(self) -> FakeArray:
        return self.transpose()

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return int(self.shape[0])

    def __describe__(self) -> str:
        return f"an array {self.fake._value.type}"

    # ------------------------------------------------------------ elements
    def __getitem__(self, index: object) -> Any:
        found = self.fake[_index(index)]
        return self._element(found) if _picks_one(index, self.ndim) else self._like(found)

    def __setitem__(self, index: object, value: object) -> None:
        have, number = self.dtype, kind_of(value)
        given = np.asarray(number(1)).dtype if number else getattr(value, "dtype", None)
        if not isinstance(given, np.dtype) or not np.can_cast(given, have, "same_kind"):
            raise refuse(
                f"an item of an array of {have} is set to another type.",
                "NumPy would cut the value short.",
                REMEDY,
            )
        self.fake[_index(index)] = value if number else _cast(_tensor(value), have)

    def __iter__(self) -> Iterator[object]:
        return (self[i] for i in range(len(self)))

    def item(self, *index: object) -> Any:
        one = self.reshape(-1)[index[0]] if len(index) == 1 and self.ndim != 1 else self[index]
        return one.fake.item() if type(one) is FakeArray else one

    def tolist(self) -> object:
        if not self.ndim:
            return self.fake.item()
        return TraceList([q.tolist() if is_array(q) else q for q in self])

    def copy(self) -> FakeArray:
        return self._like(self.fake.clone())

    def astype(self, dtype: Any) -> FakeArray:
        return self._like(_cast(self.fake.clone(), np.dtype(dtype)))

    def reshape(self, *shape: object) -> FakeArray:
        dims = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return self._like(paddle.reshape(self.fake, list(dims)))

    def ravel(self) -> FakeArray:
        return self.reshape(-1)

    def flatten(self) -> FakeArray:
        return self.copy().reshape(-1)

    def transpose(self, *axes: object) -> FakeArray:
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        return self._like(paddle.transpose(self.fake, list(order or reversed(range(self.ndim)))))

    # ------------------------------------------------------------ arithmetic
    def __neg__(self) -> Any:
        return self._with("mul", -1)

    def __pos__(self) -> FakeArray:
        return self.copy()

    def __abs__(self) -> FakeArray:
        return self._like(paddle.abs(self.fake))

    def _with(self, name: str, other: Any, reverse: bool = False) -> Any:
        """`self op other` by NumPy's rules."""
        if isinstance(other, Tensor):
            return NotImplemented
        weak = kind_of(other)
        if weak is None and not isinstance(other, (np.ndarray, np.generic)):
            return NotImplemented
        given = weak(1) if weak else np.ones([1], other.dtype)
        pair = (given, np.ones([1], self.dtype))
        left, right = pair if reverse else pair[::-1]
        with np.errstate(all="ignore"):
            out = getattr(operator, name)(left, right).dtype
        if name == "pow" and out.kind != "f" or name in WHOLE and out.kind not in "iu":
            of = "integers" if name == "pow" else f"{out}"
            raise _refused(f"the operator {name} with {of}")
        wide = np.result_type(left, right) if out == np.bool_ else out
        e = Emitter(_tracing())
        mine = _cast(self.fake, wide)
        theirs = e.scalar(other, element_type(wide)) if weak else _cast(_tensor(other), wide)
        x, y = (theirs, mine) if reverse else (mine, theirs)
        none = e.equal(y, e.scalar(0, element_type(wide))) if name in WHOLE else None
        y = y if none is None else e.where(none, e.scalar(1, element_type(wide)), y)
        found = getattr(e, ROWS[name])(x, y)
        if none is not None:
            found = e.where(none, e.scalar(0, element_type(wide)), found)
        return self._like(found) if found.ndim else self._element(found)

    def _changed(self, name: str, other: object) -> object:
        """`self op= other` writes into this array."""
        new = self._with(name, other)
        if new is NotImplemented:
            return NotImplemented
        if type(new) is RuntimeScalar:
            new = self._like(_tracing().fake(new.value))
        if not np.can_cast(new.dtype, self.dtype, "same_kind"):
            raise TypeError(f"Cannot cast output from {new.dtype} to {self.dtype}")
        if new.shape != self.shape:
            raise ValueError(f"non-broadcastable output operand with shape {self.shape}")
        self.fake[...] = _cast(new.fake, self.dtype)
        return self

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: object) -> Any:
        if ufunc in UFUNCS and method == "__call__" and not kwargs:
            x, y = args
            own = is_array(x)
            return (x if own else y)._with(UFUNCS[ufunc], y if own else x, not own)
        raise _refused(f"numpy.{ufunc.__name__}")

    def __array_function__(self, function: Any, types: object, args: Any, kwargs: Any) -> Any:
        if function in METHODS and args and args[0] is self:
            return getattr(self, METHODS[function])(*args[1:], **kwargs)
        raise _refused(f"{function.__module__}.{function.__name__}")

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        raise _refused("a function that reads the elements")

    def __bool__(self) -> NoReturn:
        raise _refused("the truth")

    def __index__(self) -> NoReturn:
        raise _refused("an index of a Python sequence")

    def __float__(self) -> NoReturn:
        raise _refused("float() outside of translated code")

    def __contains__(self, x: object) -> NoReturn:
        raise _refused("`in`")

    def __getattr__(self, name: str) -> NoReturn:
        raise_again(self, name)
        if name in dir(np.ndarray):
            raise _refused(f"numpy.ndarray.{name}")
        raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r}")

    def _like(self, fake: FakeTensor) -> FakeArray:
        return made_array(_tracing(), fake)

    def _element(self, fake: FakeTensor) -> object:
        """Scalars of NumPy's other types keep their arithmetic as arrays without axes."""
        if fake._value.type.dtype in KINDS:
            return RuntimeScalar(fake._value, _tracing())
        return self._like(fake)


FakeArray.__name__ = FakeArray.__qualname__ = "ndarray"


def _tracing() -> Trace:
    trace = current()
    if trace is None:
        raise RuntimeError("an array of a program is used after its translation has ended")
    return trace


def _refused(use: str) -> BaseException:
    return refuse(
        f"{use} of an array whose elements are known only when the program runs.",
        "The function is traced before they are computed.",
        REMEDY,
    )


def _tensor(x: object) -> FakeTensor:
    return x.fake if type(x) is FakeArray else paddle.to_tensor(x)


def _cast(fake: object, dtype: np.dtype) -> Any:
    want = element_type(dtype)
    return Emitter(_tracing()).cast_to(fake, want)


def _index(index: object) -> object:
    return tuple(map(tensor_of, index)) if isinstance(index, tuple) else tensor_of(index)


def _picks_one(index: object, ndim: int) -> bool:
    """Whether an index has an integer for every axis: NumPy gives a scalar then."""
    items = index if isinstance(index, tuple) else (index,)
    return len(items) == ndim and all(kind_of(q) is int or is_symint(q) for q in items)


def _operator(name: str, reverse: bool) -> Callable[[FakeArray, Any], object]:
    return lambda self, other: self._with(name, other, reverse)


def _in_place(name: str) -> Callable[[FakeArray, Any], object]:
    return lambda self, other: self._changed(name, other)


def _other(name: str) -> Callable[..., object]:
    def method(self: FakeArray, *others: object) -> Any:
        if any(isinstance(q, Tensor) for q in others):
            return NotImplemented
        raise _refused(f"the operator {name}")

    return method


def _reduction(name: str) -> Callable[..., object]:
    def method(self: FakeArray, axis: object = None, **options: object) -> Any:
        if options or not (axis is None or type(axis) is int):
            raise _refused(f"numpy.ndarray.{name} with these arguments")
        out = getattr(np.ones([1], self.dtype), name)().dtype
        wide = out if name in ("sum", "mean") else self.dtype
        found = getattr(paddle, name)(_cast(self.fake, wide), axis)
        found = _cast(found, out)
        return self._like(found) if found.ndim else self._element(found)

    return method


REDUCTIONS = "sum mean max min argmax argmin any all".split()
for _name in REDUCTIONS:
    setattr(FakeArray, _name, _reduction(_name))
#: functions of NumPy that are a method of their first argument
METHODS: dict[Any, str] = {
    getattr(np, q): q for q in (*REDUCTIONS, "copy", "ravel", "reshape", "transpose")
}
for _name in "divmod matmul and or xor lshift rshift invert".split():
    for _form in ("", "r", "i"):
        setattr(FakeArray, f"__{_form}{_name}__", _other(_name))
for _name in ROWS:
    setattr(FakeArray, f"__{_name}__", _operator(_name, False))
for _name in ("add", "sub", "mul", "truediv", "pow", *WHOLE):
    setattr(FakeArray, f"__r{_name}__", _operator(_name, True))
    setattr(FakeArray, f"__i{_name}__", _in_place(_name))

__all__ = ["FakeArray", "element_type", "is_array", "made_array", "tensor_of"]
