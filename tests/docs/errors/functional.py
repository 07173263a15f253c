"""Loops and branches given by functions.

The errors are the same in eager code, where they are a `TypeError` or `ValueError` without the line.
"""

import numpy as np
import paddle

import dy2st
from dy2st import nn
from tests.docs.errors import example, script

X, H = paddle.ones([4, 3]), paddle.zeros([3])


@example(H, X)
def body_that_returns_no_pair(h, x):
    return dy2st.scan(lambda c, q: c + q, h, x)


@example(H, X)
def carry_that_changes_its_type(h, x):
    return dy2st.scan(lambda c, q: (paddle.concat([c, q]), c), h, x)


@example(H, X)
def carry_of_other_keys(h, x):
    return dy2st.scan(lambda c, q: ({"b": q}, q), {"a": h}, x)


@example(H, X)
def output_that_is_no_tensor(h, x):
    return dy2st.scan(lambda c, q: (c, {"name": "q"}), h, x)


@example(H, X)
def outputs_of_several_types(h, x):
    sizes = [3, 2, 1, 0]
    return dy2st.scan(lambda c, q: (c, q[: sizes.pop()]), h, x)


@example(X)
def output_without_the_axis_of_time(x):
    return dy2st.scan(lambda c, q: (c, q.sum()), x[:, 0], x, axis=1)


@example(H, X)
def sequences_of_different_lengths(h, x):
    return dy2st.scan(lambda c, q: (c, c), h, (x, x[:2]))


@example(H)
def scan_without_a_length(h):
    return dy2st.scan(lambda c, q: (c, c), h)


@example(H, paddle.to_tensor(-1))
def length_below_zero(h, n):
    return dy2st.scan(lambda c, q: (c * 2, None), h, length=int(n))


@example(H)
def length_that_is_a_float(h):
    return dy2st.scan(lambda c, q: (c, c), h, length=2.0)


@example(H)
def unroll_of_zero(h):
    return dy2st.scan(lambda c, q: (c, c), h, length=2, unroll=0)


@example(H)
def array_as_a_sequence(h):
    return dy2st.scan(lambda c, q: (c, c), h, np.zeros([4, 3]))


@example(H, X)
def sequence_without_the_axis(h, x):
    return dy2st.scan(lambda c, q: (c, c), h, x, axis=2)


@example(H, X)
def axis_that_is_a_float(h, x):
    return dy2st.scan(lambda c, q: (c, c), h, x, axis=1.0)


@example(H, X)
def body_that_cannot_be_called(h, x):
    return dy2st.scan("body", h, x)


@example(H, X)
def body_of_one_argument(h, x):
    return dy2st.scan(lambda c: (c, c), h, x)


@example(H, X)
def reverse_that_is_a_number(h, x):
    return dy2st.scan(lambda c, q: (c, c), h, x, reverse=1)


@example(H, X)
def checkpoint_of_another_name(h, x):
    return dy2st.scan(lambda c, q: (c, c), h, x, checkpoint="all")


@example(H, paddle.to_tensor(3))
def truncated_gradient_of_a_length_from_data(h, n):
    return dy2st.scan(lambda c, q: (c * 2, c), h, length=int(n), truncate_gradient=2)


@example(H, X[:0])
def no_steps_of_a_body_that_needs_values(h, x):
    return dy2st.scan(lambda c, q: (c, q[: int(q.sum())]), h, x)


@example(H, X)
def too_many_templates(h, x):
    templates = [((3,), "float32"), ((3,), "float32")]
    return dy2st.scan(lambda c, q: (c, q), h, x, output_templates=templates)


@example(H, X)
def template_of_another_type(h, x):
    return dy2st.scan(lambda c, q: (c, q), h, x, output_templates=((3,), "int64"))


@example(H, X)
def template_that_is_a_number(h, x):
    return dy2st.scan(lambda c, q: (c, q), h, x, output_templates=3)


@example(H, X)
def template_without_an_element_type(h, x):
    return dy2st.scan(lambda c, q: (c, q), h, x, output_templates=((3,), "float33"))


@example(H, X)
def template_of_a_negative_size(h, x):
    return dy2st.scan(lambda c, q: (c, q), h, x, output_templates=((-1,), "float32"))


@example(H, X)
def template_on_another_device(h, x):
    return dy2st.scan(lambda c, q: (c, q), h, x, output_templates=((3,), "float32", "gpu:0"))


@example(H, X)
def taps_of_a_list(h, x):
    return dy2st.scan(lambda s, q: (s[0] + q, q), dy2st.taps([h, h], (-2, -1)), x)


@example(H, X)
def taps_that_are_no_tuple(h, x):
    return dy2st.scan(lambda s, q: (s[0] + q, q), dy2st.taps(x, -1), x)


@example(H, X)
def taps_into_the_future(h, x):
    return dy2st.scan(lambda s, q: (s[0] + q, q), dy2st.taps(x, (-1, 1)), x)


@example(H, X)
def taps_of_too_few_steps(h, x):
    return dy2st.scan(lambda s, q: (s[0] + q, q), dy2st.taps(x[:1], (-2, -1)), x)


@example(H)
def condition_of_several_elements(h):
    return dy2st.while_loop(lambda c: c < 1, lambda c: c + 1, h)


@example(H)
def condition_that_is_a_text(h):
    return dy2st.cond("yes", lambda: h, lambda: -h)


@example(H)
def branches_of_different_types(h):
    return dy2st.cond(h.sum() > 0, lambda: h[:2], lambda: h)


@example(H, X)
def core_without_a_state(h, x):
    return dy2st.flex_scan(lambda q, v: q, 1, 1, 1, x, h)


@example(H, X)
def core_without_a_sequence(h, x):
    return dy2st.flex_scan(lambda v: (v, v), 0, 1, 1, h)


@example(H, X)
def too_few_tensors(h, x):
    return dy2st.flex_scan(lambda q, v: (q, v), 1, 1, 1, x)


@example(H, X)
def state_that_is_a_number(h, x):
    return dy2st.flex_scan(lambda q, v: (q, v), 1, 1, 1, x, 0.0)


@example(H, X)
def templates_that_are_no_list(h, x):
    return dy2st.flex_scan(lambda q, v: (q, v), 1, 1, 1, x, h, output_templates=3)


@example(H, X)
def template_that_is_missing(h, x):
    return dy2st.flex_scan(lambda q, v: (q, v), 1, 1, 1, x, h, output_templates=[])


@script
def neuron_without_a_core():
    nn.FlexNeuron(None, 1, 1, 1)


@script
def neuron_of_another_mode():
    nn.FlexNeuron(nn.LIF(), 1, 1, 1, step_mode="x")


@script
def neuron_of_too_few_initial_states():
    nn.FlexNeuron(nn.LIF(), 1, 2, 1)


@script
def neuron_of_two_inputs():
    nn.FlexNeuron(nn.LIF(), 1, 1, 1)(paddle.ones([4, 3]), paddle.ones([4, 3]))


@script
def time_constant_of_one():
    nn.LIF(tau=1.0)
