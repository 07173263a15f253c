"""Functions that move, join and make tensors: as in eager."""

from __future__ import annotations

import paddle
import pytest

from tests.dy2st.capture.adapters.common.cases import compare, fl, x34, x234, y34

pytestmark = pytest.mark.sampled


CASES = {
    "tril": (lambda x: (x.tril(), x.triu(1), paddle.tril(x, -1)), x34),
    "meshgrid": (lambda x, y: paddle.meshgrid(x, y), lambda: fl([3]), lambda: fl([4])),
    "roll": (lambda x: (x.roll(1), x.roll(2, 0), x.roll([1, -1], [0, 1])), x34),
    "flip": (lambda x: (x.flip(0), x.flip([0, 1])), x34),
    "rot90": (lambda x: paddle.rot90(x), x34),
    "tensor unfold": (lambda x: x.unfold(1, 2, 1), x34),
    "chunk": (lambda x: (*x.chunk(2, 1), *x.split(3), *paddle.split(x, [1, 3], 1)), x34),
    "split -1": (lambda x: paddle.split(x, [1, -1], 1), x34),
    "tensor_split": (
        lambda x: (*paddle.tensor_split(x, 3, 1), *paddle.tensor_split(x, [1, 3], 1)),
        x34,
    ),
    "hsplit": (lambda x: (*paddle.hsplit(x, 2), *paddle.vsplit(x, 3)), x34),
    "hstack": (
        lambda x, y: (
            paddle.hstack([x, y]),
            paddle.vstack([x, y]),
            paddle.dstack([x, y]),
            paddle.column_stack([x, y]),
            paddle.row_stack([x, y]),
        ),
        x34,
        y34,
    ),
    "stackf": (
        lambda x, y: (
            paddle.stack([x, y], 1),
            paddle.concat([x, y], 1),
            paddle.concat([x.sum(0, keepdim=True), y]),
        ),
        x34,
        y34,
    ),
    "unstack": (lambda x: (*paddle.unstack(x), *paddle.unbind(x, 1)), x34),
    "moveaxis": (
        lambda x: (
            paddle.moveaxis(x, 0, 2),
            x.moveaxis([0, 1], [1, 0]),
            paddle.swapaxes(x, 0, 1),
            x.transpose([2, 0, 1]),
            paddle.transpose(x, [0, 2, 1]),
        ),
        x234,
    ),
    "permute": (lambda x: x.permute(2, 0, 1), x234),
    "tile": (lambda x: (x.tile([2, 1]), paddle.tile(x, [2, 2, 1])), x34),
    "repeat": (
        lambda x: (
            x.repeat_interleave(2, 0),
            paddle.repeat_interleave(x, 3, 1),
            x.repeat_interleave(2),
        ),
        x34,
    ),
    "expand": (
        lambda x: (
            x.unsqueeze(0).expand([2, -1, -1]),
            paddle.broadcast_to(x, [2, 3, 4]),
            x[:1].expand_as(x),
        ),
        x34,
    ),
    "broadcast_tensors": (lambda x, y: paddle.broadcast_tensors([x, y[:1]]), x34, y34),
    "diag": (lambda x: (paddle.diag(x[0]), paddle.diag(x), paddle.diagonal(x), x.trace()), x34),
    "diag_embed": (lambda x: paddle.diag_embed(x), x34),
    "diagflat": (lambda x: paddle.diagflat(x), x34),
    "eye": (lambda x: (paddle.eye(3), paddle.eye(2, 3), x), x34),
    "linspace": (
        lambda x: (paddle.linspace(0, 1, 5), paddle.arange(0, 5, 0.5), paddle.logspace(0, 2, 3), x),
        x34,
    ),
    "strided_slice": (lambda x: paddle.strided_slice(x, [0, 1], [0, 0], [3, 4], [1, 2]), x34),
    "crop": (lambda x: paddle.crop(x, [2, 2], [1, 1]), x34),
    "as_strided": (lambda x: x.as_strided([2, 2], [4, 1]), x34),
    "view": (
        lambda x: (
            x.view([4, 3]),
            x.view([-1]),
            x.view_as(paddle.zeros([2, 6])),
        ),
        x34,
    ),
    "unflatten": (lambda x: (x.unflatten(1, [2, 2]), x.flatten(), x.squeeze(), x.ravel()), x34),
    "atleast": (
        lambda x: (paddle.atleast_1d(x.sum()), paddle.atleast_2d(x[0]), paddle.atleast_3d(x)),
        x34,
    ),
    "new": (lambda x: (x.new_zeros([2]), x.new_ones([2]), x.new_full([2], 3.0)), x34),
    "like": (
        lambda x: (
            paddle.zeros_like(x),
            paddle.ones_like(x, dtype="int64"),
            paddle.full_like(x, 2.0),
            paddle.empty_like(x).zero_(),
        ),
        x34,
    ),
    "block_diag": (lambda x, y: paddle.block_diag([x, y]), x34, y34),
    "cartesian": (lambda x: paddle.cartesian_prod([x[0], x[1]]), x34),
    "unsq": (
        lambda x: (x.unsqueeze([0, 2]), x.unsqueeze(-1).squeeze(-1), x[None], x[..., None]),
        x34,
    ),
    "iter": (lambda x: [r * 2 for r in x], x34),
    "assign": (lambda x: (paddle.assign(x), paddle.clone(x), paddle.assign([1.0, 2.0])), x34),
}


@pytest.mark.quick("roll", "meshgrid")
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name):
    compare(CASES[name])
