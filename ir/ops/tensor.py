"""Making and moving tensors; writes, checks, and calls of foreign kernels."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ir.layout import Strided
from ir.messages import HOLE, MOST_SHOWN, Shown, fits, worded
from ir.opdef import (
    ShapeError,
    ViewRule,
    assume,
    axis_in,
    broadcast,
    example,
    no_gradient,
    op,
    same_axis,
    same_dim,
    unchanged,
    with_pair,
)
from ir.ops.elementwise import require_kind, same_dtype
from ir.ops.gradients import fitted
from ir.program import Builder, Value
from ir.types import BOOL, F16, F32, F64, I64, Dim, DType, Type, divide, product

Attrs: TypeAlias = dict[str, Any]


# ---------------------------------------------------------------- making
def _full_types(value: Any, shape: tuple[Dim, ...], dtype: DType) -> Type:
    if dtype != F16 and dtype.kind != "c":
        require_kind("full", Type(dtype), "fibu")
    return Type(dtype, tuple(shape))


def _full_pairs(x: Type, y: Type, value: Any, shape: tuple[Dim, ...], dtype: DType) -> Attrs:
    """Zeros: another number would stand in both parts."""
    if value != 0:
        raise ShapeError(f"full of complex numbers with {value}")
    return {"value": value, "shape": (*shape, 2), "dtype": dtype.compute}


op(
    "full(*, value, shape=(), dtype)",
    types=_full_types,
    pairs=_full_pairs,
    ref=lambda value, shape, dtype: np.full(shape, value, dtype.numpy),
    examples=(
        example(value=1.5, shape=(3, 4), dtype=F32),
        example(value=7, shape=(), dtype=I64),
        example(value=True, shape=(0, 2), dtype=BOOL),
        example(value=float("-inf"), shape=(5,), dtype=F64),
        example(value=-1.5, shape=(2, 70), dtype=F16),
    ),
)
op(
    "size(*, n)",
    types=lambda n: Type(I64),
    ref=lambda n: np.asarray(n, np.int64),
    examples=(example(n=5),),
)


def _iota_types(n: Dim, start: Any, step: Any, dtype: DType) -> Type:
    require_kind("iota", Type(dtype), "fi")
    return Type(dtype, (n,))


op(
    "iota(*, n, start=0, step=1, dtype)",
    types=_iota_types,
    ref=lambda n, start, step, dtype: (start + step * np.arange(n)).astype(dtype.numpy),
    examples=(
        example(n=5, dtype=I64),
        example(n=0, dtype=I64),
        example(n=7, start=3, step=-2, dtype=I64),
        example(n=6, start=0.5, step=0.25, dtype=F32),
    ),
)
op(
    "assign(x)",
    pairs=unchanged,
    types=lambda x: x,
    kernel=lambda x: x,
    ref=lambda x: x.copy(),
    grad=lambda b, g, y, x: [g],
    selects=("x",),
    paddle="assign",
    examples=[("f32[3,4]",), ("i64[]",), ("bool[0,2]",)],
)


def _kept_type(x: Type, y: Type) -> Type:
    if x != y:
        raise ShapeError(f"keep_gradient: {y} does not replace {x}")
    return y


op(
    "detach(x)",
    pairs=unchanged,
    types=lambda x: x,
    ref=lambda x: x,
    expand=lambda b, x: x,
    grad=no_gradient,
    view=ViewRule(
        layout=lambda x: x,
        python=lambda x: x.detach(),
        unview=lambda b, base, new: b.keep_gradient(base, new),
    ),
    examples=[("f32[3,4]",), ("i64[]",), ("bool[0,2]",)],
)
op(
    "alias(x)",
    pairs=unchanged,
    types=lambda x: x,
    ref=lambda x: x,
    expand=lambda b, x: x,
    grad=lambda b, g, y, x: [g],
    view=ViewRule(
        layout=lambda x: x,
        python=lambda x: x.view(x.shape),
        unview=lambda b, base, new: new,
    ),
    examples=[("f32[3,4]",), ("i64[]",), ("bool[0,2]",)],
)
op(
    "stored(y, *, into, own=False)",
    pairs=unchanged,
    types=lambda y, into, own: y,
    ref=lambda y, into, own: y,
    expand=lambda b, y, into, own: y,
    grad=lambda b, g, r, y, into, own: [g],
    examples=[example("f32[3,4]", into="x"), example("i64[]", into="x", own=True)],
)
op(
    "keep_gradient(x, y)",
    pairs=unchanged,
    types=_kept_type,
    ref=lambda x, y: y,
    expand=lambda b, x, y: y,
    grad=lambda b, g, r, x, y: [g, None],
    examples=[("f32[3,4]", "f32[3,4]"), ("i64[]", "i64[]")],
)


# ---------------------------------------------------------------- shape
def resolve_shape(x: Type, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """`shape` with its one -1 replaced; raises ShapeError when the sizes do not agree."""
    known = product(d for d in shape if d != -1)
    total = product(x.shape)
    if -1 not in shape:
        assume(known, "==", total)
        return tuple(shape)
    if list(shape).count(-1) > 1:
        raise ShapeError(f"reshape to {list(shape)}: more than one -1")
    rest = divide(total, known) if known != 0 else None
    if rest is None:
        raise ShapeError(f"reshape of {x} to {list(shape)}: {total} elements do not fit")
    return tuple(rest if d == -1 else d for d in shape)


def _reshape_types(x: Type, shape: tuple[Dim, ...]) -> Type:
    try:
        return x.with_shape(resolve_shape(x, tuple(shape)))
    except ShapeError:
        text = ", ".join(map(str, shape))
        raise ShapeError(f"reshape of {x} to [{text}]: the sizes do not agree") from None


def _reshape_ref(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if -1 in shape and x.size == 0:
        shape = tuple(resolve_shape(Type(F32, x.shape), shape))  # type: ignore[arg-type]
    return x.reshape(shape)


def _reshaped(x: Strided, shape: tuple[Dim, ...]) -> Strided | None:
    return x.reshape(resolve_shape(Type(F32, x.shape), shape) if -1 in shape else shape)


op(
    "reshape(x, *, shape)",
    pairs=with_pair,
    types=_reshape_types,
    ref=_reshape_ref,
    grad=lambda b, g, y, x, shape: [b.reshape(g, shape=x.type.shape)],
    view=ViewRule(
        layout=_reshaped,
        python=lambda x, shape: x.reshape(list(shape)),
        inverse=lambda x, shape: {"shape": x.shape},
        copies=True,
    ),
    examples=(
        example("f32[3,4]", shape=(2, 6)),
        example("i64[2,3,4]", shape=(6, -1)),
        example("f32[0,4]", shape=(4, 0)),
        example("f32[]", shape=(1, 1)),
    ),
)


def _permutation(perm: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    full = tuple(axis_in(p, ndim) for p in perm)
    if sorted(full) != list(range(ndim)):
        raise ShapeError(f"{list(perm)} is no permutation of {ndim} axes")
    return full


def inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(perm.index(i) for i in range(len(perm)))


op(
    "transpose(x, *, perm)",
    pairs=lambda x, y, perm: {"perm": (*_permutation(perm, x.ndim), x.ndim)},
    types=lambda x, perm: x.with_shape(x.shape[p] for p in _permutation(perm, x.ndim)),
    ref=lambda x, perm: np.transpose(x, perm),
    grad=lambda b, g, y, x, perm: [b.transpose(g, perm=inverse(_permutation(perm, x.type.ndim)))],
    view=ViewRule(
        layout=Strided.transpose,
        python=lambda x, perm: x.transpose(list(perm)),
        inverse=lambda x, perm: {"perm": inverse(_permutation(perm, x.ndim))},
    ),
    examples=(
        example("f32[3,4]", perm=(1, 0)),
        example("i64[2,3,4]", perm=(2, 0, 1)),
        example("f32[0,4]", perm=(1, 0)),
        example("f64[35,70]", perm=(1, 0)),
    ),
)


def _expand_types(x: Type, shape: tuple[Dim, ...]) -> Type:
    full = broadcast(x.shape, shape)
    if len(full) != len(shape) or any(a != b for a, b in zip(full, shape)):
        raise ShapeError(f"{x} does not expand to {list(shape)}")
    return x.with_shape(shape)


op(
    "expand(x, *, shape)",
    pairs=with_pair,
    types=_expand_types,
    ref=lambda x, shape: np.broadcast_to(x, shape).copy(),
    grad=lambda b, g, y, x, shape: [fitted(b, g, x.type)],
    shares=True,
    examples=(
        example("f32[3,1]", shape=(3, 4)),
        example("i64[4]", shape=(2, 4)),
        example("f32[]", shape=(0, 2)),
    ),
)


# ---------------------------------------------------------------- joining and splitting
def _concat_types(*xs: Type, axis: int) -> Type:
    if not xs:
        raise ShapeError("concat of nothing")
    same_dtype("concat", *xs)
    at = axis_in(axis, xs[0].ndim)
    out = list(xs[0].shape)
    total: Dim = 0
    for x in xs:
        if x.ndim != len(out):
            raise ShapeError(f"concat of {xs[0]} and {x}")
        try:
            out = [d if i == at else same_dim(d, e) for i, (d, e) in enumerate(zip(out, x.shape))]
        except ShapeError:
            raise ShapeError(f"concat of {xs[0]} and {x} along axis {at}") from None
        total = total + x.shape[at]
    out[at] = total
    return xs[0].with_shape(out)


op(
    "concat(*xs, axis)",
    pairs=same_axis,
    types=_concat_types,
    ref=lambda *xs, axis: np.concatenate(xs, axis),
    grad=lambda b, g, y, *xs, axis: _as_tuple(
        b.split(g, axis=axis, sections=tuple(x.type.shape[axis] for x in xs))
    ),
    joins=True,
    examples=(
        example("f32[3,4]", "f32[3,2]", axis=1),
        example("i64[3,4]", "i64[0,4]", "i64[2,4]", axis=0),
        example("f32[5]", axis=0),
    ),
)


def _as_tuple(values: Value | tuple[Value, ...]) -> tuple[Value, ...]:
    return values if isinstance(values, tuple) else (values,)


def _stack_types(*xs: Type, axis: int) -> Type:
    if not xs:
        raise ShapeError("stack of nothing")
    same_dtype("stack", *xs)
    out = list(xs[0].shape)
    for x in xs:
        if x.ndim != len(out):
            raise ShapeError(f"stack of {xs[0]} and {x}")
        try:
            out = [same_dim(d, e) for d, e in zip(out, x.shape)]
        except ShapeError:
            raise ShapeError(f"stack of {xs[0]} and {x}") from None
    out.insert(axis_in(axis, len(out) + 1), len(xs))
    return xs[0].with_shape(out)


op(
    "stack(*xs, axis=0)",
    pairs=lambda x, y, axis: {"axis": axis_in(axis, y.ndim)},
    types=_stack_types,
    ref=lambda *xs, axis: np.stack(xs, axis),
    grad=lambda b, g, y, *xs, axis: [b.index(g, axis=axis, index=i) for i in range(len(xs))],
    joins=True,
    examples=(
        example("f32[3,4]", "f32[3,4]", axis=1),
        example("i64[]", "i64[]", "i64[]"),
        example("f32[0,4]", "f32[0,4]", axis=-1),
    ),
)


op(
    "tensor_array(*xs)",
    pairs=unchanged,
    types=lambda *xs: _stack_types(*xs, axis=0),
    ref=lambda *xs: np.stack(xs),
    grad=lambda b, g, y, *xs: [b.index(g, axis=0, index=i) for i in range(len(xs))],
    joins=True,
    examples=(
        example("f32[3,4]", "f32[3,4]"),
        example("i64[]", "i64[]", "i64[]"),
        example("f32[0,4]"),
    ),
)


def _split_types(x: Type, axis: int, sections: tuple[Dim, ...]) -> tuple[Type, ...]:
    at = axis_in(axis, x.ndim)
    total: Dim = 0
    for s in sections:
        total = total + s
    try:
        assume(total, "==", x.shape[at])
    except ShapeError:
        raise ShapeError(f"split of {x} along axis {at} into {list(sections)}") from None
    return tuple(x.with_shape((*x.shape[:at], s, *x.shape[at + 1 :])) for s in sections)


def _split_ref(x: np.ndarray, axis: int, sections: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(p.copy() for p in np.split(x, np.cumsum(sections)[:-1], axis))


op(
    "split(x, *, axis, sections)",
    pairs=same_axis,
    types=_split_types,
    ref=_split_ref,
    grad=lambda b, g, y, x, axis, sections: [b.concat(*g, axis=axis) if len(sections) > 1 else g],
    shares=True,
    examples=(
        example("f32[3,8]", axis=1, sections=(2, 2, 4)),
        example("i64[5,2]", axis=0, sections=(5, 0)),
        example("f32[3,64]", axis=-1, sections=(16, 16, 32)),
    ),
)


# ---------------------------------------------------------------- composites
def _triangle(b: Builder, x: Value, diagonal: int, keep: str) -> Value:
    rows, columns = x.type.shape[-2:]
    r = b.reshape(b.iota(n=rows, start=diagonal, dtype=I64), shape=(rows, 1))
    c = b.iota(n=columns, dtype=I64)
    test = b.less_equal(c, r) if keep == "lower" else b.greater_equal(c, r)
    zero = b.full(value=0, dtype=x.type.dtype)
    new: Value = b.where(test, x, zero)
    return new


def _matrix_types(x: Type, diagonal: int) -> Type:
    require_kind("tril", x, "fi")
    if x.ndim < 2:
        raise ShapeError(f"tril and triu need 2 dimensions, not {x}")
    return x


for _name, _keep, _ref in (("tril", "lower", np.tril), ("triu", "upper", np.triu)):
    op(
        f"{_name}(x, *, diagonal=0)",
        types=_matrix_types,
        ref=lambda x, diagonal, _ref=_ref: _ref(x, diagonal),
        expand=lambda b, x, diagonal, _keep=_keep: _triangle(b, x, diagonal, _keep),
        grad=lambda b, g, y, x, diagonal, _name=_name: list(
            b.emit(_name, [g], {"diagonal": diagonal})
        ),
        paddle=_name,
        examples=(example("f32[3,4]"), example("i64[2,5,3]", diagonal=-1)),
    )


def _one_hot_types(x: Type, n: Dim) -> Type:
    require_kind("one_hot", x, "i")
    return Type(F32, (*x.shape, n))


def _one_hot_expand(b: Builder, x: Value, n: Dim) -> Value:
    column = b.reshape(x, shape=(*x.type.shape, 1))
    new: Value = b.cast(b.equal(column, b.iota(n=n, dtype=x.type.dtype)), dtype=F32)
    return new


op(
    "one_hot(x, *, n)",
    types=_one_hot_types,
    ref=lambda x, n: (x[..., None] == np.arange(n)).astype(np.float32),
    expand=_one_hot_expand,
    examples=(example("i64[3,4]", n=5, low=0, high=4), example("i64[]", n=3, low=0, high=2)),
)


# ---------------------------------------------------------------- writes, checks, foreign kernels
def _copy_types(x: Type, y: Type, own: bool, moves: int) -> tuple[Type, ...]:
    """own: y was computed in this storage. moves: by how much Paddle's call moves the version."""
    if x != y:
        raise ShapeError(f"{y} cannot be written into {x}")
    return ()


op("copy_(x, y, *, own=False, moves=1)", types=_copy_types, writes=True, pairs=unchanged)


def _foreign_types(*xs: Type, call: str, args: Any, types: Any, writes: Any) -> tuple[Type, ...]:
    if not all(0 <= k < len(xs) for k in writes):
        raise ShapeError(f"foreign writes operands {writes} of {len(xs)}")
    return tuple(types)


op("foreign(*xs, call, args, types, writes=())", types=_foreign_types, effect=True)


def _check_types(
    ok: Type, *values: Type, error: str, message: str, shown: Sequence[Shown] = (), site: int = 0
) -> tuple[Type, ...]:
    if ok != Type(BOOL):
        raise ShapeError(f"check of {ok}: it takes bool[]")
    if not _is_error(error):
        raise ShapeError(f"check raises {error!r}, which is no exception of Python")
    if not len(values) == len(shown) <= MOST_SHOWN:
        raise ShapeError(f"check shows {len(shown)} of {len(values)} values, 8 at most")
    for q, v in zip(shown, values):
        if not fits(q, np.ones((1,) * v.ndim, v.dtype.numpy)):
            raise ShapeError(f"check shows {v} as {q}")
    if shown and message.count(HOLE) != len(shown):
        raise ShapeError(f"check shows {len(shown)} values in {message.count(HOLE)} places")
    return ()


def _is_error(name: object) -> bool:
    found = vars(builtins).get(name) if isinstance(name, str) else None
    return isinstance(found, type) and issubclass(found, Exception)


def _check_ref(
    ok: np.ndarray,
    *values: np.ndarray,
    error: str,
    message: str,
    shown: Sequence[Shown] = (),
    site: int = 0,
) -> tuple[np.ndarray, ...]:
    if not ok:
        raise vars(builtins)[error](worded(message, shown, values))
    return ()


op(
    "check(ok, *values, error, message, shown=(), site=0)",
    types=_check_types,
    ref=_check_ref,
    effect=True,
    checks=True,
)

__all__ = ["inverse", "resolve_shape"]
