"""Writes in place.

A write reaches every tensor that shares the memory, as in eager Paddle. Where that cannot be
followed, it is refused.
"""

import paddle

import dy2st
from tests.docs.errors import example, script

X = paddle.linspace(-0.75, 1.25, 24).reshape([2, 3, 4])
W = paddle.ones([2, 3, 4])
W.stop_gradient = False
NAMED = [paddle.static.InputSpec([None, None, 4], "float32", "x")]
buffer = paddle.zeros([2, 3, 4])
tables = paddle.nn.Layer()
tables.first, tables.second, tables.third = (paddle.ones([2, 3]).t() for _ in range(3))


@script
def replaces_the_data():
    def replaced(x):
        y = x + 1
        y.data = x
        return y

    dy2st.to_static(replaced)(paddle.ones([2]))


@example(X)
def takes_the_memory_of_another_tensor(x):
    y = x + 1
    y.set_(x)
    return y


@example(X)
def tensor_that_a_loop_has_overwritten(x):
    old, new = x * 1, x * 0
    first = new
    while old.sum() < 99:
        new[:] = old * 2 + 1
        old, new = new, old
    return old + first


@example(X)
def shape_of_a_buffer(x):
    buffer.reshape_([24])
    return x


@example(X)
def element_type_in_place(x):
    y = x.astype("int64")
    y.divide_(paddle.full([2, 3, 4], 2, dtype="int64"))
    return y


@example(W)
def leaf_that_requires_a_gradient(w):
    w.add_(paddle.ones([2, 3, 4]))
    return w


@example(W)
def leaf_through_a_view(w):
    w[0].add_(paddle.ones([3, 4]))
    return w


@example(X)
def view_that_a_branch_makes(x):
    if x.sum() > 0:
        y = x[0]
    else:
        y = x[1]
    return y


@example(X)
def view_that_overlaps_itself(x):
    windows = x.as_strided([3, 2], [1, 1])
    windows.add_(paddle.ones([3, 2]))
    return x


@example(W)
def part_of_a_detached_tensor(w):
    h = w * 2
    row = h.detach()[0]
    row[0] = w[1, 0]
    return h


@example(W)
def detached_tensor_in_a_branch(w):
    h = w * 2
    d = h.detach()
    if w.sum() > 0:
        d[0] = w[1]
    return h


@example(X)
def one_of_two_tensors_is_written(x):
    a, b = x + 1, x + 2
    y = a if x.sum() > 0 else b
    y.add_(x)
    return a, b


@example(X, options={"input_spec": NAMED})
def result_at_an_index_that_is_written(x):
    h = x * 2
    i = 0
    row = h[0]
    while h.sum() < 100 and i < 2:
        row = h[i]
        h.add_(x)
        i += 1
    return row, h


@script
def view_of_an_argument_that_becomes_contiguous():
    dy2st.to_static(lambda x: x.contiguous()[0])(paddle.ones([2, 3]).t())


@example(X)
def asks_how_one_tensor_lies_after_the_other(x):
    a = tables.first.strides[0]
    b = tables.second.strides[0]
    c = tables.third.strides[0]
    return x * (a + b + c)
