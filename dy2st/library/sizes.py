"""Library functions whose own Python needs sizes as plain numbers: tensors with known elements are
replaced before the call, and sizes of the program are handed to the kernel itself.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence

import numpy as np
import paddle
from paddle import Tensor
from paddle.nn import functional as F
from paddle.nn.functional.common import _interpolate_wrapper as resize

from dy2st.capture.adapters.table import elements_of, number_of
from dy2st.capture.data_sizes import as_size
from dy2st.capture.dispatch import record
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace, current
from dy2st.trace.user_stack import perform


def sizes_of(trace: Trace, x: object) -> object:
    """Numbers for tensors whose elements are known, sizes of the program for numbers of it."""
    if isinstance(x, (list, tuple)):
        return type(x)(as_size(trace, number_of(q)) for q in x)
    if isinstance(x, Tensor):
        found = elements_of(x)
        if found is not None:
            return list(found) if x.ndim else found[0]
    return as_size(trace, x)


def with_sizes(
    f: Callable[..., object],
    *names: str,
    kernel: Callable[..., object] | None = None,
    like: Callable[..., object] | None = None,
) -> Callable[..., object]:
    """`f` with the sizes among its arguments as numbers; `kernel` is called where the program
    computes one of them. `like` has the arguments of `f`."""
    signature = inspect.signature(like or f)

    @functools.wraps(f)
    def call(*args: object, **kwargs: object) -> object:
        trace = current()
        if trace is None:
            return f(*args, **kwargs)
        if "input" in kwargs:
            kwargs["x"] = kwargs.pop("input")
        given = perform(signature.bind, *args, **kwargs)
        for name in names:
            if name in given.arguments:
                given.arguments[name] = sizes_of(trace, given.arguments[name])
        asked = [q for name in names for q in _each(given.arguments.get(name))]
        if kernel is None or not any(map(is_symint, asked)):
            return f(*given.args, **given.kwargs)
        given.apply_defaults()
        return kernel(**given.arguments)

    return call


def _each(x: object) -> list[object]:
    return list(x) if isinstance(x, (list, tuple)) else [x]


#: modes of `interpolate`: the kernel, and the rank of its operand
KERNELS = {
    "nearest": ("nearest_interp", (4, 5)),
    "bilinear": ("bilinear_interp", (4,)),
    "trilinear": ("trilinear_interp", (5,)),
    "bicubic": ("bicubic_interp", (4,)),
    "linear": ("linear_interp", (3,)),
}


def interpolate(
    x: Tensor, size: Sequence[int], mode: str, align_corners: bool, align_mode: int, **rest: object
) -> object:
    """To a size that the program computes; channels come first."""
    name, ranks = KERNELS.get(mode.lower(), ("", ()))
    first = rest.get("data_format") in (None, "NCHW", "NCDHW", "NCW", "NCL")
    plain = rest.get("scale_factor") is None and not rest.get("antialias")
    if x.ndim not in ranks or len(size) != x.ndim - 2 or not (first and plain):
        return F.interpolate(x, size, None, mode, align_corners, align_mode, **rest)
    dims = [-1] * (3 - len(size)) + list(size)
    args = (x, None, None, None, "NCHW", *dims, [], mode.lower(), align_corners, align_mode)
    return record(name, args, {})


@functools.wraps(paddle.where)
def where(condition: object, *args: object, **kwargs: object) -> object:
    """`paddle.where`, whose own Python compares the shapes of its operands."""
    given = [condition, *args, *(kwargs[k] for k in ("x", "y") if k in kwargs)]
    named = any(is_symint(d) for q in given if isinstance(q, Tensor) for d in q.shape)
    if current() is None or not named or len(given) != 3 or len(args) + len(kwargs) != 2:
        return paddle.where(condition, *args, **kwargs)
    tensors = [paddle.to_tensor(q) if np.isscalar(q) else q for q in given]
    tests = isinstance(condition, Tensor) and condition.dtype == paddle.bool
    if not tests or not all(isinstance(q, Tensor) for q in tensors):
        return paddle.where(condition, *args, **kwargs)
    return record("where", tuple(tensors), {})


def to_tensor(*args: object, **kwargs: object) -> object:
    """`paddle.to_tensor` under a name of the user's own: while tracing it is replaced there."""
    return paddle.to_tensor(*args, **kwargs)


def of_named_sizes(f: Callable[..., object], root: bool) -> Callable[..., object]:
    """`var` or `std`, whose own Python counts elements with tensors and branches on them."""
    signature = inspect.signature(f)

    @functools.wraps(f)
    def call(*args: object, **kwargs: object) -> object:
        given = perform(signature.bind, *args, **kwargs)
        given.apply_defaults()
        x = given.arguments["x"]
        if current() is None or not any(map(is_symint, getattr(x, "shape", ()))):
            return f(*args, **kwargs)
        out = variance(**given.arguments)
        return paddle.sqrt(out) if root else out

    return call


def variance(
    x: Tensor,
    axis: int | Sequence[int] | None,
    unbiased: bool | None,
    keepdim: bool,
    correction: float = 1,
    **rest: object,
) -> object:
    """`paddle.var` where the number of elements is one of the program."""
    gone = [axis] if isinstance(axis, int) else list(range(x.ndim) if axis is None else axis)
    count = functools.reduce(operator.mul, (x.shape[a] for a in gone), 1)
    taken = correction if unbiased is None else float(unbiased)
    left = paddle.full([], count - taken if taken != int(taken) else count - int(taken), x.dtype)
    squares = paddle.pow(x - paddle.mean(x, axis, True), 2)
    left = paddle.maximum(left, paddle.zeros_like(left))
    return paddle.sum(squares, axis, keepdim=keepdim) / left


#: functions of sizes, with the parameters that are
SHAPED: dict[Callable[..., object], tuple[str, ...]] = {
    **dict.fromkeys((paddle.zeros, paddle.ones, paddle.full, paddle.empty), ("shape",)),
    **dict.fromkeys((paddle.rand, paddle.randn, paddle.standard_normal), ("shape",)),
    **dict.fromkeys((paddle.uniform, paddle.normal, paddle.randint), ("shape",)),
    **dict.fromkeys((paddle.expand, paddle.broadcast_to, paddle.reshape), ("shape",)),
    **dict.fromkeys((Tensor.expand, Tensor.broadcast_to, Tensor.reshape), ("shape",)),
    **dict.fromkeys((paddle.tile, Tensor.tile), ("repeat_times",)),
    **dict.fromkeys((paddle.split, Tensor.split), ("num_or_sections",)),
    paddle.randperm: ("n",),
    paddle.eye: ("num_rows", "num_columns"),
    paddle.linspace: ("num",),
    F.pad: ("pad",),
    F.sequence_mask: ("maxlen",),
}
SIZES: dict[int, Callable[..., object]] = {
    **{id(f): with_sizes(f, *names) for f, names in SHAPED.items()},
    id(paddle.var): of_named_sizes(paddle.var, root=False),
    id(paddle.std): of_named_sizes(paddle.std, root=True),
    id(F.one_hot): with_sizes(F.one_hot, "num_classes"),
    id(F.interpolate): with_sizes(F.interpolate, "size", kernel=interpolate, like=resize),
    id(F.upsample): with_sizes(F.upsample, "size", kernel=interpolate),
    id(paddle.to_tensor): to_tensor,
    **dict.fromkeys((id(paddle.where), id(Tensor.where)), where),
}
