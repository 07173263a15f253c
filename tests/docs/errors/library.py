"""Arguments that Paddle's functions do not take.

The errors of eager, with its types.
"""

import functools

import paddle

from tests.docs.errors import example

X = paddle.linspace(-0.75, 1.25, 24).reshape([2, 3, 4])
I = paddle.to_tensor([[0, 1], [1, 0]])  # noqa: E741
lstm = paddle.nn.LSTM(4, 5)
LENGTHS = paddle.to_tensor([3.0, 2.0])


@example(X)
def recurrent_input_of_two_axes(x):
    return lstm(x[0])


@example(X)
def recurrent_input_of_another_size(x):
    return lstm(x[:, :, :3])


@example(paddle.ones([2, 0, 4]), ends=False)
def recurrent_input_without_steps(x):
    return lstm(x)


@example(X)
def recurrent_state_of_another_shape(x):
    return lstm(x, (paddle.zeros([1, 2, 4]), paddle.zeros([1, 2, 4])))


@example(X)
def recurrent_states_of_another_number(x):
    return lstm(x, (paddle.zeros([1, 2, 5]),))


@example(X, LENGTHS)
def lengths_of_floats(x, lengths):
    return lstm(x, sequence_length=lengths)


@example(X, paddle.to_tensor([3, 2, 1]))
def lengths_of_another_batch(x, lengths):
    return lstm(x, sequence_length=lengths)


@example(X, I)
def put_along_axis_of_another_rank(x, i):
    return paddle.put_along_axis(x, i, 1.0, 0)


@example(I, paddle.ones([2], "int64"))
def put_along_axis_of_values_of_another_rank(i, values):
    return paddle.put_along_axis(i, i, values, 0, broadcast=False)


@example(I, paddle.ones([1, 1], "int64"))
def put_along_axis_of_too_few_values(i, values):
    return paddle.put_along_axis(i, i, values, 0, broadcast=False)


@example(X, I)
def masked_scatter_of_another_type(x, i):
    return paddle.masked_scatter(x, x > 0, i)


@example(X)
def masked_scatter_without_a_mask(x):
    return paddle.masked_scatter(x, x, x)


@example(X)
def while_loop_without_a_condition(x):
    return paddle.static.nn.while_loop(True, lambda q: [q + 1], [x])


@example(X)
def while_loop_without_a_body(x):
    return paddle.static.nn.while_loop(lambda q: q.sum() < 9, None, [x])


@example(X)
def while_loop_without_variables(x):
    return paddle.static.nn.while_loop(lambda: x.sum() < 9, lambda: [], [])


@example(X)
def while_loop_with_many_conditions(x):
    return paddle.static.nn.while_loop(lambda q: q < 9, lambda q: [q + 1], [x])


@example(X)
def while_loop_that_loses_a_variable(x):
    return paddle.static.nn.while_loop(lambda p, q: p.sum() < 9, lambda p, q: [p + 1], [x, x])


@example(X)
def cond_of_a_value(x):
    return paddle.static.nn.cond(x.sum() > 0, 1.0, lambda: x)


@example(X)
def case_of_a_value(x):
    return paddle.static.nn.case([(x.sum() > 0, 1.0)])


@example(X)
def case_with_a_value_as_default(x):
    return paddle.static.nn.case([(x.sum() > 0, lambda: x)], default=1.0)


@example(X)
def case_without_pairs(x):
    return paddle.static.nn.case([x.sum() > 0])


@example(X)
def switch_with_a_value_as_default(x):
    return paddle.static.nn.switch_case(x.argmax(), {0: lambda: x}, default=1.0)


@example(X)
def switch_with_a_name_as_key(x):
    return paddle.static.nn.switch_case(x.argmax(), {"a": lambda: x})


@example(X)
def switch_of_a_value(x):
    return paddle.static.nn.switch_case(x.argmax(), [(0, 1.0)])


@example(X)
def switch_with_a_key_twice(x):
    return paddle.static.nn.switch_case(x.argmax(), [(0, lambda: x), (0, lambda: x + 1)])


@example(X)
def while_loop_in_python_that_loses_a_variable(x):
    return paddle.static.nn.while_loop(lambda p, q: True, lambda p, q: [p + 1], [x, x])


@example(X)
def reduces_no_rows(x):
    return functools.reduce(paddle.add, x[:0])


@example(X)
def accuracy_with_counts(x):
    correct = paddle.zeros([1], "int32")
    return paddle.metric.accuracy(x[0], paddle.zeros([3, 1], "int64"), correct=correct)
