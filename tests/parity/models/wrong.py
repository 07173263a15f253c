"""Functions that cannot be translated. The errors about them are golden: lines matter."""

import paddle
import paddle.nn.functional as F


def shapes_do_not_fit(x, w):
    y = x + 1
    return paddle.matmul(y, w)


def broadcast_does_not_fit(x, w):
    return x * 2 + w


def changes_type(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = paddle.stack([h, h + x[:, t]])
    return h


def asks_for_numpy(x):
    for t in range(x.shape[0]):
        scale = float(x[t].numpy().std())
    return x * scale


def coroutine_inside(x):
    async def later():
        return x

    return later


def index_out_of_range(x):
    return x[:, 7]


def data_dependent_shape(x):
    return paddle.unique(x, axis=0)


def index_from_data_in_python(x):
    names = ["a", "b", "c"]
    return names[x.argmin()]


def returns_an_object(x):
    class Box:
        __slots__ = ()

    return Box()


def half_named_loop(x):
    steps = [F.relu, paddle.tanh, paddle.exp]
    out = x[:, 0]
    for t in range(x.shape[1]):
        out = out + steps[t](x[:, t])
    return out
