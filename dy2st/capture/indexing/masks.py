"""Masks: assignment to the elements that a mask selects, and `x[mask] op= value`.

The number of those elements is known only when the program runs. An op on them becomes the op on
all elements, followed by a `where` with the mask. The unselected elements enter the op as ones, so
that it neither fails there nor spoils a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import paddle

from dy2st.capture import foreign
from dy2st.capture.indexing.selection import positions
from dy2st.trace.emitter import Emitter
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import check, is_runtime_scalar
from dy2st.trace.signals import raise_defect
from dy2st.trace.symint import is_symint
from ir import ShapeError
from ir.opdef import broadcast
from ir.types import I64, DType, Size, Type, product

#: ops whose gradients do not depend on the elements
LINEAR = {"+", "-"}


@dataclass(frozen=True)
class Mask:
    """A bool tensor for the axes of a view from `axis` on."""

    flags: FakeTensor
    axis: int

    def behind(self, e: Emitter, t: Type) -> int:
        """Return the number of axes of `t` behind those of the mask."""
        return t.ndim - self.axis - e.type(self.flags).ndim

    def test(self, e: Emitter, t: Type) -> FakeTensor:
        """The mask, to broadcast with a value of type `t`."""
        shape, behind = e.type(self.flags).shape, self.behind(e, t)
        if not behind:
            return self.flags
        return e.reshape(self.flags, shape=(*shape, *(1 for _ in range(behind))))


def selected(e: Emitter, x: Tensor, mask: Mask) -> FakeTensor:
    """`x[mask]`, a copy."""
    at = positions(e, mask.flags)
    return e.gather(flattened(e, x, mask), at, axis=mask.axis)


def flattened(e: Emitter, x: Tensor, mask: Mask) -> FakeTensor:
    """One axis for those of the mask."""
    t, own = e.type(x), e.type(mask.flags).shape
    behind = t.shape[t.ndim - mask.behind(e, t) :]
    return e.reshape(x, shape=(*t.shape[: mask.axis], product(own), *behind))


def laid_out(e: Emitter, mask: Mask, t: Type, value: object) -> object:
    """`value`, which is for the selected elements of a `t`, where these elements are: it broadcasts
    to `t`. Raises ValueError if it does not fit."""
    own, shape = e.type(value).shape, e.type(mask.flags).shape
    at, out = len(own) - mask.behind(e, t) - 1, value
    if at >= 0 and own[at] == 1:
        wide = (*own[:at], *(1 for _ in shape), *own[at + 1 :])
        out = e.reshape(value, shape=wide) if wide != own else value
    elif at >= 0:
        out = in_order(e, mask.flags, value, at)
    if broadcast(t.shape, e.type(out).shape) != t.shape:
        raise ValueError(f"{e.type(value)} cannot be assigned to elements of {t}")
    return out


def in_order(e: Emitter, mask: object, value: object, axis: int) -> FakeTensor:
    """Slice k of `value` along `axis` where the mask is true for the k-th time."""
    shape, have = e.type(mask).shape, e.type(value).shape
    count = e.cast(e.reshape(mask, shape=(product(shape),)), dtype=I64)
    ok = e.equal(e.sum(count, axes=()), e.scalar(e.trace.sym(have[axis]), I64))
    text = f"the mask does not select as many elements as there are values along axis {axis}"
    check(e.trace, ok._value, "ValueError", text)
    if have[axis] == 0:
        wide = (*have[:axis], *(1 for _ in shape), *have[axis + 1 :])
        return e.full(0, e.type(value).dtype, tuple(1 for _ in wide))
    if isinstance(have[axis], Size):  # none at all, perhaps: one more is there to be read
        more = e.full(0, e.type(value).dtype, (*have[:axis], 1, *have[axis + 1 :]))
        value = e.concat(value, more, axis=axis)
    one = e.full(1, I64)
    before = e.maximum(e.subtract(e.cumsum(count, axis=0), one), e.full(0, I64))
    low = e.minimum(before, e.subtract(e.scalar(e.trace.sym(have[axis]), I64), one))
    rows = e.gather(value, low, axis=axis)
    return e.reshape(rows, shape=(*have[:axis], *shape, *have[axis + 1 :]))


def replaced(e: Emitter, x: Tensor, mask: Mask, value: Tensor) -> FakeTensor:
    """`x` with `value`, a tensor of its dtype, at the selected elements."""
    t = e.type(x)
    if as_many(e, mask, t, value):
        flat = flattened(e, x, mask)
        whole = (*e.type(flat).shape[: mask.axis], *e.type(value).shape[-1 - mask.behind(e, t) :])
        rows = value if e.type(value).shape == whole else e.expand(value, shape=whole)
        new = e.scatter_nd(flat, rows, positions(e, mask.flags), axis=mask.axis)
        return e.reshape(new, shape=t.shape)
    new = laid_out(e, mask, t, value)
    return e.where(mask.test(e, t), new, x)


def as_many(e: Emitter, mask: Mask, t: Type, value: Tensor) -> bool:
    """Whether the mask, or an equal one, has selected the values."""
    own = e.type(value).shape
    at = len(own) - mask.behind(e, t) - 1
    known = at >= 0 and isinstance(own[at], Size)
    return known and e.type(positions(e, mask.flags)).shape[0] == own[at]


# ---------------------------------------------------------------- x[mask] op= value
@dataclass(frozen=True)
class MaskedSelection:
    """`x[mask]`, which only `op=` may use: `whole` is a copy of what the mask selects from."""

    e: Emitter
    whole: FakeTensor
    mask: Mask

    def changed(
        self, op: str, apply: Callable[[FakeTensor, object], FakeTensor], value: object
    ) -> MaskedUpdate:
        e = self.e
        if op == "@" or not _elementwise(value):
            raise foreign.shape_by_value(e.trace, "x[mask]")
        if isinstance(value, np.ndarray) and value.ndim:
            value = paddle.to_tensor(value)
        try:
            old, new = self._operands(op, value)
        except (ShapeError, ValueError) as cause:
            raise_defect(cause)
            raise foreign.refusal(e.trace, "Tensor.__setitem__", cause, eager=True) from None
        return MaskedUpdate(apply(old, new), self.mask)

    def _operands(self, op: str, value: object) -> tuple[FakeTensor, object]:
        """The old elements and the value, as `op` takes them."""
        e, t, old = self.e, self.e.type(self.whole), self.whole
        test = self.mask.test(e, t)
        if op not in LINEAR:
            old = e.where(test, old, one(e, t.dtype))
        if not isinstance(value, Tensor):
            return old, value
        out = laid_out(e, self.mask, t, value)
        v = e.type(out)
        if op in LINEAR or not v.ndim:
            return old, out
        wide = out if v.shape == t.shape else e.expand(out, shape=t.shape)
        return old, e.where(test, wide, one(e, v.dtype))


@dataclass(frozen=True)
class MaskedUpdate:
    """The value that `x[mask] op= value` assigns: values for all elements, and the mask."""

    whole: FakeTensor
    mask: Mask

    def joined(self, e: Emitter, x: object) -> FakeTensor:
        t = e.type(x)
        return e.where(self.mask.test(e, t), e.cast_to(self.whole, t.dtype), x)


def one(e: Emitter, dtype: DType) -> FakeTensor:
    kinds = {"b": bool, "f": float}
    return e.full(kinds.get(dtype.kind, int)(1), dtype)


def _elementwise(value: object) -> bool:
    known = isinstance(value, (Tensor, bool, int, float, np.ndarray, np.generic))
    return known or is_runtime_scalar(value) or is_symint(value)


__all__ = ["MaskedUpdate", "Mask", "MaskedSelection", "replaced"]
