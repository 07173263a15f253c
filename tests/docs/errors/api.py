"""Calls of dy2st itself."""

import functools
import math

import numpy as np
import paddle

import dy2st
from tests.docs.errors import script


def double(x):
    return x * 2


@script
def function_that_is_none():
    dy2st.to_static(math.sqrt)


@script
def unknown_option():
    dy2st.to_static(double, full_grph=True)


@script
def unknown_checkpoint():
    dy2st.to_static(double, checkpoint="sometimes")


@script
def donates_an_unknown_argument():
    dy2st.to_static(double, donate=["y"])


@script
def donates_a_text():
    dy2st.to_static(double, donate="x")


@script
def inspection_without_arguments():
    print(dy2st.to_static(double).program())


@script
def mark_on_an_object():
    dy2st.not_to_static(3)


@script
def ignored_object():
    dy2st.ignore_module([3])


@script
def ignored_module_that_is_not_imported():
    dy2st.ignore_module("nothing.of.this.name")


@script
def unknown_name():
    dy2st.to_statik(double)


@script
def function_without_source():
    space = {}
    exec("def made(x):\n    return x + 1", space)
    dy2st.to_static(space["made"])(paddle.ones([2]))


@script
def overwritten_before_backward():
    w = paddle.ones([2])
    w.stop_gradient = False
    h = w * 1
    y = dy2st.to_static(lambda a: a * a)(h)
    h.add_(paddle.ones([2]))
    y.sum().backward()


@script
def pure_object():
    dy2st.pure(3)


@script
def host_function_without_a_result():
    dy2st.host(lambda: 3.0)


@script
def host_function_that_gives_a_text():
    dy2st.host(lambda: "three", result=str)


@script
def report_of_a_plain_function():
    dy2st.report(double, paddle.ones([2]))


@script
def too_many_programs():
    static = dy2st.to_static(double)
    for size in range(1, 80):
        static(paddle.ones([size]))


@script
def object_that_can_be_called():
    dy2st.to_static(functools.partial(max, 1))


@script
def arguments_that_share_memory_and_are_trained():
    def moved(a, b):
        a.add_(b)
        return a

    w = paddle.arange(8, dtype="float32")
    w.stop_gradient = False
    h = w * 1
    dy2st.to_static(moved)(h[:6], h[2:])


@script
def arguments_of_two_types_that_share_memory():
    def moved(a, b):
        a.add_(b.astype("float32"))
        return a

    x = paddle.arange(8, dtype="float32")
    dy2st.to_static(moved)(x, x.view("int32"))


@script
def array_that_shares_memory_with_a_tensor():
    def filled(a, b):
        a[0] = 1.0
        return b * 2

    table = np.zeros(4, np.float32)
    dy2st.to_static(filled)(table, table[1:])


@script
def matrix_of_numpy():
    dy2st.to_static(double)(np.matrix([[1.0, 2.0]]))


@script
def array_of_objects():
    dy2st.to_static(double)(np.array([None, 1.0]))


@script
def written_array_that_is_read_only():
    def filled(a):
        a[0] = 1.0
        return paddle.to_tensor(a)

    table = np.zeros(4, np.float32)
    table.flags.writeable = False
    dy2st.to_static(filled)(table)


@script
def array_written_while_gradients_are_recorded():
    layer = paddle.nn.Linear(4, 4)

    def filled(a):
        a[0] = 1.0
        return layer(paddle.to_tensor(a))

    dy2st.to_static(filled)(np.zeros(4, np.float32))


@script
def half_precision_of_brain_floats():
    dy2st.to_static(double)(paddle.ones([2], dtype="bfloat16"))


@script
def call_while_paddle_makes_a_program():
    static = dy2st.to_static(double)
    paddle.enable_static()
    try:
        static(paddle.static.data("x", [2]))
    finally:
        paddle.disable_static()
