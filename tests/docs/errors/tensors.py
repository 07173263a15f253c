"""Tensors, shapes and element types."""

import paddle
import paddle.nn.functional as F

import dy2st
from tests.docs.errors import example, script
from tests.parity.models import wrong

X = paddle.linspace(-0.75, 1.25, 24).reshape([2, 3, 4])
M = paddle.ones([5, 3])
I = paddle.to_tensor([[0, 1], [1, 0]])

shapes_do_not_fit = example(X, M)(wrong.shapes_do_not_fit)
broadcast_does_not_fit = example(X, M)(wrong.broadcast_does_not_fit)
data_dependent_shape = example(X)(wrong.data_dependent_shape)
index_out_of_range = example(X)(wrong.index_out_of_range)


@example(X)
def index_of_the_first_axis(x):
    return x[2]


@example(X)
def axis_that_is_not_there(x):
    return x.flip(3)


@example(X)
def too_many_indices(x):
    return x[0, 0, 0, 0]


@example(X, paddle.to_tensor([0.0, 1.0]))
def index_of_floats(x, i):
    return x[i]


@example(X)
def mask_of_another_shape(x):
    x[paddle.ones([2, 4], dtype="bool")] = 0.0
    return x


@example(X)
def mask_beside_an_index(x):
    return x[x[:, 0, 0] > 0, paddle.to_tensor([0, 1])]


@example(X)
def new_axis_in_front_of_an_index(x):
    return x[None, paddle.to_tensor([0, 1])]


@example(X)
def slice_of_another_shape(x):
    x[:, 0] = paddle.ones([3])
    return x


@example(-X - 2)
def negative_size(x):
    return paddle.zeros([int(x.max())])


@example(X)
def negative_repeats(x):
    return paddle.repeat_interleave(x, x[:, 0, 0].floor().astype("int64"), axis=0)


@example(X)
def negative_elements_counted(x):
    return paddle.bincount(x[:, 0, 0].floor().astype("int64"))


@example(X)
def selected_elements_of_another_shape(x):
    x[x > 0] += paddle.ones([2, 3])
    return x


@example(X)
def reads_what_it_writes(x):
    x[paddle.to_tensor([0, 1])] = x
    return x


@example(X, M)
def value_of_another_shape(x, m):
    x.set_value(m)
    return x


@example(X)
def length_of_a_number(x):
    return len(x.sum())


@example(X)
def bfloat16(x):
    return x.astype("bfloat16") + 1


@example(paddle.ones([2], dtype="complex64"))
def function_of_complex_numbers(x):
    return paddle.tanh(x)


@example(X)
def view_as_another_type(x):
    return x.view("int32")


@example(X)
def view_of_a_transposed_tensor(x):
    return x.transpose([0, 2, 1]).view([24])


@example(paddle.ones([0, 2]))
def strides_of_an_empty_tensor(x):
    return x.strides


@example(X)
def applies_a_function(x):
    return x.apply(lambda y: y * 2)


@example(paddle.ones([2, 3]), options={"input_spec": [paddle.static.InputSpec([None, 4], "float32", "x")]})  # fmt: skip
def argument_that_does_not_fit_its_spec(x):
    return x + 1


@example(paddle.ones([3, 4]), paddle.ones([5, 4]))
def embedding_outside_of_its_table(x, table):
    return F.embedding(paddle.to_tensor([0, 5]), table)


@example(paddle.ones([3, 5]), paddle.to_tensor([0, -1, 4]))
def label_outside_of_its_classes(x, label):
    return F.cross_entropy(x, label)


@example(paddle.to_tensor([0, 5]), paddle.ones([5, 4]))
def index_from_data_outside_of_its_axis(i, table):
    return table[i]


@example(X)
def list_as_an_index_of_floats(x):
    return x[[0.0, 1.0]]


@example(X)
def list_as_a_mask_of_another_shape(x):
    return x[[True, False, True]]


@example(X)
def number_for_no_elements(x):
    x[paddle.zeros([0], dtype="int64")] = 1.0
    return x


@example(X)
def mask_beside_other_indices(x):
    x[x[:, 0, 0] > 0, paddle.to_tensor([0, 1])] = 0.0
    return x


@example(X, I)
def types_that_do_not_mix(x, i):
    return paddle.bitwise_and(x, i)


@example(X, I)
def sum_of_booleans_and_numbers(x, i):
    return paddle.subtract(x > 0, x)


@example(X)
def numbers_mixed_with_texts(x):
    return paddle.to_tensor([int(x.sum()), "one"])


@example(X)
def tensors_mixed_with_texts(x):
    return paddle.to_tensor([x.sum(), "one"])


@example(X)
def inner_lists_of_different_lengths(x):
    return paddle.to_tensor([[int(x.sum())], [1, 2]])


@example(X)
def unknown_method_of_a_tensor(x):
    return x.doubled()


class Scale:
    pass


@example(X)
def fourier_transform_of_a_large_prime(x):
    return paddle.fft.fft(x, 1009).abs()


@example(X)
def object_as_an_argument(x):
    return paddle.nn.functional.softplus(x, Scale())


@example(X, options={"input_spec": [paddle.static.InputSpec([None, None, 4], "float32", "x")]})
def pieces_as_many_as_a_named_size(x):
    return paddle.tensor_split(x, 2)[0], x.unbind(0)


half = paddle.ones([4], dtype="bfloat16")


@example(X)
def buffer_of_brain_floats(x):
    return x + half.astype("float32")


PAIRS = [paddle.static.InputSpec([None, 3, 4], "float32", "x")]


@example(X, options={"input_spec": PAIRS})
def shape_that_does_not_follow_from_a_named_size(x):
    return paddle.linalg.svd(x[:, 0])[1]


@example(X, options={"input_spec": PAIRS})
def loss_of_sequences_over_a_named_size(x):
    labels = paddle.ones([3, 2], dtype="int32")
    return F.ctc_loss(x, labels, paddle.to_tensor([2, 2, 2]), paddle.to_tensor([2, 2, 2]))


@example(X, options={"input_spec": PAIRS})
def pieces_as_many_as_a_size(x):
    return x.unbind(0)


@example(X)
def sparse_tensor(x):
    return x[0].to_sparse_csr()


@example(X)
def memory_that_is_given_up(x):
    y = x * 2
    y._clear_dataptr()
    return x


@script
def parameter_without_values():
    with paddle.LazyGuard():
        layer = paddle.nn.Linear(4, 4)
    dy2st.to_static(layer)(X)


@example(X)
def view_at_an_index_that_is_written(x):
    h, i = x * 1, x.argmax() * 0
    row = h[i]
    i.add_(paddle.ones([], "int64"))
    return row, h


@example(X, options={"input_spec": [paddle.static.InputSpec([None, 3, 4], "float32", "x")]})
def calls_a_size(x):
    return x * x.shape[0](1)


@example(X)
def number_of_a_complex_tensor(x):
    return (x * 1j).sum().item()


@example(X)
def complex_results_of_a_kernel(x):
    return paddle.linalg.eigvals(x[0, :2, :2])


@example(paddle.ones([4, 3]))
def view_by_a_kernel_of_paddle(x):
    return paddle._C_ops.view_slice(x, 0, 2)


@example(X)
def adds_a_text(x):
    return x + "1.5"
