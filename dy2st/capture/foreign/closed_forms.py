"""Gradients of foreign kernels that their results give, without running the kernel once more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import paddle

from dy2st.trace.fake_tensor import Tensor

#: the operands, the result and its gradient to the gradients of the operands; None for shapes that
#: it does not know
ClosedForm = Callable[[Sequence[Tensor], Tensor, Tensor], "list[Tensor] | None"]


def inverse(operands: Sequence[Tensor], x: Tensor, g: Tensor) -> list[Tensor]:
    """`x` is the inverse: `-x^T g x^T`."""
    return [-paddle.matmul(paddle.matmul(x, g, transpose_x=True), x, transpose_y=True)]


def solve(operands: Sequence[Tensor], x: Tensor, g: Tensor) -> list[Tensor] | None:
    """`x` solves `a x = b`: the gradient of b solves `a^T gb = g`, that of a is `-gb x^T`."""
    a, b = operands
    if list(a.shape[:-2]) != list(b.shape[:-2]) or a.ndim != b.ndim:
        return None
    last = [*range(a.ndim - 2), a.ndim - 1, a.ndim - 2]
    gb = paddle.linalg.solve(paddle.transpose(a, last), g)
    return [-paddle.matmul(gb, x, transpose_y=True), gb]


#: by the name of the kernel and its arguments
CLOSED_FORMS: dict[tuple[str, str], ClosedForm] = {
    ("inverse", str((({"x": 0},), ()))): inverse,
    ("solve", str((({"x": 0}, {"x": 1}), ()))): solve,
}


def closed_form(name: str, literal: object) -> ClosedForm | None:
    """The closed form of the gradient of a call, if there is one."""
    return CLOSED_FORMS.get((name, str(literal)))


__all__ = ["closed_form"]
