"""NumPy arrays.

An array that is an argument, or that a host call gives, has its elements when the program runs.
"""

import numpy as np
import paddle

from tests.docs.errors import example

X = paddle.linspace(-0.75, 1.25, 12).reshape([3, 4])
A = np.linspace(0.0, 1.0, 4)


@example(X, A)
def view_as_a_result(x, a):
    return a[1:]


@example(X, A)
def sorts_an_array(x, a):
    a.sort()
    return x + paddle.to_tensor(a)


@example(X, A)
def function_that_needs_elements(x, a):
    return x * float(np.frompyfunc(abs, 1, 1)(a)[0])


@example(X, A)
def method_of_an_array(x, a):
    b = x.numpy()
    return x * b.std()


@example(X)
def unknown_attribute_of_an_array(x):
    return x * x.numpy().average


@example(X)
def length_of_an_array_without_axes(x):
    return x * len(x.sum().numpy())


@example(X)
def element_of_another_type(x):
    b = x.astype("int64").numpy()
    b[0] = 0.5
    return paddle.to_tensor(b)


@example(X)
def change_to_another_type(x):
    b = x.astype("int64").numpy()
    b += 0.5
    return paddle.to_tensor(b)


@example(X)
def change_to_another_shape(x):
    b = x[0].numpy()
    b += x.numpy()
    return paddle.to_tensor(b)


@example(X)
def array_of_complex_numbers(x):
    return paddle.to_tensor(x.numpy().astype(np.complex64))


@example(X)
def array_of_texts(x):
    return x.numpy().astype("U5")


@example(X)
def computed_element_of_an_array(x):
    sums = np.zeros(4)
    sums[0] = float(x.sum())
    return paddle.to_tensor(sums)


@example(X)
def view_of_an_array_as_a_result(x):
    return x, np.zeros(4)[1:]
