"""`paddle.shape(x)` and constant tensors as sizes, bounds, counts and conditions: as in eager.

Each function runs with the shapes of its arguments and with named sizes, of two shapes each.
"""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
import pytest
from paddle import to_tensor
from paddle.static import InputSpec

import dy2st
from tests import check


def unpacked(x):
    b, c, h, w = paddle.shape(x)
    return x.reshape([b, c, h * w]).transpose([0, 2, 1]), paddle.zeros([b, h])


def unpacked_list(x):
    b, c, h, w = paddle.shape(x).tolist()
    return x.reshape([b, c, h * w])


def split_in_sizes(x):
    b, c, h, w = paddle.split(paddle.shape(x), 4)
    return x.reshape([b, c, h * w])


def unbound(x):
    b, c, h, w = paddle.shape(x).unbind()
    return x.reshape([b, c, h * w])


def arithmetic(x):
    s = paddle.shape(x)
    n = s[0] * s[1]
    return x.flatten(0, 1).reshape([n, -1]), x.sum() / n.astype("float32"), n - 1


def concatenated(x):
    s = paddle.shape(x)
    ends = paddle.concat([s[:1], to_tensor([-1])])
    return x.reshape(ends), x.reshape(paddle.stack([s[0], s[1], s[2] * s[3]]))


def slices(x):
    n = paddle.shape(x)[3]
    return x[..., : n - 1], x[..., 1:n], x[..., -n:], paddle.slice(x, [3], [0], [n - 1])


def counted(x):
    y = x[0] * 0
    for i in range(paddle.shape(x)[0]):
        y = y + x[i]
    for i in range(int(paddle.shape(x)[1])):
        y = y * 2 + i
    for i in range(paddle.shape(x)[0].item()):
        y = y + x[i]
    return y


def counted_by_data(x):
    i, y = paddle.zeros([], "int64"), x[0]
    while i < paddle.shape(x)[0]:
        y = y + x[i]
        i += 1
    return y


def in_a_loop(x):
    for _ in range(3):
        b = paddle.shape(x)[0]
        x = x.reshape([b, -1]) * 2
    return x


def chosen(x):
    assert paddle.shape(x)[1] == 3
    return x * 2 if paddle.shape(x)[1] == 3 else x


def mask(x):
    n = paddle.shape(x)[3]
    return x @ paddle.triu(paddle.full([n, n], -9.0), 1)


def interpolated(x):
    s = paddle.shape(x)
    return (
        F.interpolate(x, size=[s[2] * 2, s[3] * 2], mode="bilinear"),
        F.interpolate(x[:, :, :1], size=s[2:], mode="nearest"),
    )


SHAPES = {
    "returned": lambda x: (paddle.shape(x), len(paddle.shape(x)), x),
    "reshape": lambda x: (x.reshape([paddle.shape(x)[0], -1]), x.reshape(paddle.shape(x))),
    "view": lambda x: x.view([paddle.shape(x)[1], paddle.shape(x)[0], -1]),
    "zeros": lambda x: (paddle.zeros(paddle.shape(x)) + x, paddle.ones([paddle.shape(x)[0], 4])),
    "full": lambda x: (paddle.full(paddle.shape(x), 2.0) * x, paddle.full([2], paddle.shape(x)[0])),
    "empty": lambda x: paddle.empty(paddle.shape(x)).zero_() + x,
    "tile": lambda x: (paddle.ones([1, 2]).tile([paddle.shape(x)[0], 1]), x),
    "expand": lambda x: (
        paddle.ones([1, 1]).expand([paddle.shape(x)[0], paddle.shape(x)[1]]),
        paddle.ones([1, 1, 1, 1]).expand(paddle.shape(x)) * x,
        paddle.broadcast_to(paddle.ones([1]), paddle.shape(x)),
    ),
    "unpacked": unpacked,
    "unpacked list": unpacked_list,
    "split": split_in_sizes,
    "unbind": unbound,
    "arithmetic": arithmetic,
    "concat and stack": concatenated,
    "slices": slices,
    "range": counted,
    "while": counted_by_data,
    "in a loop": in_a_loop,
    "conditions": chosen,
    "mask": mask,
    "arange": lambda x: (
        paddle.arange(paddle.shape(x)[1]),
        paddle.arange(0, paddle.shape(x)[1], dtype="float32"),
        paddle.eye(paddle.shape(x)[0]),
    ),
    "random": lambda x: (
        paddle.randn(paddle.shape(x)) + x,
        paddle.rand([paddle.shape(x)[0], 2]),
        paddle.randn_like(x),
    ),
    "numel": lambda x: (paddle.zeros([paddle.numel(x)]), x.reshape([x.numel()])),
    "one_hot": lambda x: F.one_hot(paddle.arange(3), paddle.shape(x)[1]),
    "sequence_mask": lambda x: F.sequence_mask(to_tensor([1, 2]), paddle.shape(x)[3]),
    "pad": lambda x: F.pad(x, [0, paddle.shape(x)[0], 0, 0]),
    "interpolate": interpolated,
    "prod": lambda x: x.reshape([paddle.prod(paddle.shape(x))]),
}  # fmt: skip


def images(*shape):
    return check.data(*shape, dtype="float32")


@pytest.mark.sampled
@pytest.mark.quick(
    "returned-named",
    "full-named",
    "unpacked-named",
    "unbind-named",
    "in a loop-named",
    "numel-numbers",
)
@pytest.mark.parametrize("named", [False, True], ids=["numbers", "named"])
@pytest.mark.parametrize("name", SHAPES)
def test_sizes_are_those_of_eager(name, named):
    f = SHAPES[name]
    spec = [InputSpec([None, 3, None, None], "float32", stop_gradient=False)] if named else None
    static = dy2st.to_static(f, input_spec=spec)
    for shape in ((2, 3, 4, 6), (3, 3, 4, 5)):
        one, two = images(*shape), images(*shape)
        paddle.seed(3)
        want, wanted = check.step(f, [one], [one])
        paddle.seed(3)
        have, had = check.step(static, [two], [two])
        check.same(have, want, rtol=1e-5, atol=1e-5)
        check.close(had[0], wanted[0], 1e-4, name)


def looping(x):
    i = 0
    while to_tensor(True):
        x = x * 2
        i += 1
        if i > 3:
            break
    return x


def constant_sizes(x):
    n = paddle.ones([1], "int64") * 3
    m = paddle.full([1], 2, "int64")
    k = to_tensor([2, 3])
    for _ in range(int(m)):
        x = x + 1
    for _ in range(m):
        x = x * 2
    return x, paddle.zeros([n]), paddle.zeros([m, 2]), paddle.zeros(k), paddle.zeros([k[0], n])


def constant_conditions(x):
    n = to_tensor(3)
    y = x * 2 if n > 2 else x[0]
    if to_tensor(True):
        y = y[:, :2]
    return y, paddle.zeros([int(n)]), paddle.zeros([n.item()]), paddle.zeros(paddle.arange(1, 4))


def counter(x):
    i = to_tensor(0)
    paddle.increment(i)
    i += 1
    return paddle.zeros([int(i)]), x * i.astype("float32")


def counter_in_a_loop(x):
    """The counter is written in the loop: its first value is none of the others."""
    i = paddle.zeros([1], "int64")
    y = x
    for _ in range(3):
        y = y + i.astype("float32")
        i += 1
    return y, i


def written_in_a_branch(x):
    i = paddle.zeros([], "int64")
    if x.sum() > 0:
        i += 1
    return x[i]


def size_method(x):
    return x.size(0), x.size(-1), list(x.size()), x


CONSTANTS = [looping, constant_sizes, constant_conditions, counter, counter_in_a_loop,
             written_in_a_branch, size_method]  # fmt: skip


@pytest.mark.parametrize("f", CONSTANTS, ids=lambda f: f.__name__)
def test_constants_are_numbers(f):
    static = dy2st.to_static(f)
    for sign in (1, -1):
        x = paddle.to_tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]) * sign
        check.same(static(x), f(x))


def test_a_counter_that_a_loop_writes_keeps_it_rolled():
    static = dy2st.to_static(counter_in_a_loop)
    x = paddle.ones([3])
    assert [q.kind for q in static.report(x).loops] == ["scan"]


def test_a_shape_from_data_is_refused():
    for f in (
        lambda n: paddle.zeros(n),
        lambda n: paddle.ones([2]).expand(n),
        lambda n: paddle.ones([2]).tile(n),
    ):
        with pytest.raises(dy2st.SourceError, match=r"depends on values|needed while"):
            dy2st.to_static(f)(to_tensor([3, 2]))


class Decoder(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.attention = paddle.nn.MultiHeadAttention(8, 2)

    def forward(self, x):
        cache = self.attention.gen_cache(x, type=paddle.nn.MultiHeadAttention.Cache)
        ys = []
        for t in range(3):
            row = x[:, t : t + 1]
            y, cache = self.attention(row, row, row, None, cache)
            ys.append(y)
        return paddle.concat(ys, 1)


@pytest.mark.slow
def test_the_cache_of_attention():
    paddle.seed(2)
    check.trains(Decoder, lambda: [check.data(2, 3, 8)])
