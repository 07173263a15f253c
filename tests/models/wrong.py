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
        h = paddle.concat([h, x[:, t]], axis=-1)
    return h


def asks_for_numpy(x):
    for t in range(x.shape[0]):
        scale = float(x[t].numpy().mean())
    return x * scale


def tensor_condition(x):
    if x.sum() > 0:
        return x
    return -x


def tensor_while(x):
    while x.max() < 10:
        x = x * 2
    return x


def tensor_and(x):
    return x if x.sum() > 0 and x.max() < 1 else -x


def prints(x):
    print("mean", x.mean())
    return x


def coroutine_inside(x):
    async def later():
        return x

    return later


total = 0


def assigns_a_global(x):
    global total
    total = x.sum()
    return x


history = []


def appends_to_a_list_from_outside(x):
    history.append(x)
    return x


def index_out_of_range(x):
    return x[:, 7]


def data_dependent_shape(x):
    return paddle.nonzero(x > 0)


def index_from_data_in_python(x):
    names = ["a", "b", "c"]
    return names[x.argmax()]


def returns_an_object(x):
    class Box:
        pass

    return Box()


def half_named_loop(x):
    out = x[:, 0]
    for t in range(x.shape[1]):
        if t % 2 == 0:
            out = out + F.relu(x[:, t])
    return out
