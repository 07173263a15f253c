"""Gradients."""

import paddle

import dy2st
from tests.docs.errors import example, script

X = paddle.linspace(-0.75, 1.25, 12).reshape([3, 4])
X.stop_gradient = False


@example(X)
def stop_gradient_of_an_argument(x):
    x.stop_gradient = True
    return x * 2


@example(X)
def hook_on_an_argument(x):
    y = x * 2
    x.register_hook(lambda g: g * 2)
    return y


@example(X)
def hook_on_a_constant(x):
    y = paddle.ones([3])
    y.register_hook(lambda g: g * 2)
    return x * 2


@example(X)
def removed_hook(x):
    y = x * 2
    hook = y.register_hook(lambda g: g * 2)
    hook.remove()
    return y


seen = []


@example(X)
def hook_that_changes_a_list(x):
    y = x * 2
    y.register_hook(lambda g: seen.append(1))
    return y * 3


class TwoGradients(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g, g


@example(X)
def layer_with_too_many_gradients(x):
    return TwoGradients.apply(x)


class WrongShape(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g.sum()


@example(X)
def layer_with_a_gradient_of_another_shape(x):
    return WrongShape.apply(x)


@example(X)
def write_that_eager_ignores(x):
    h = x * 2
    row = h[0]
    h[0] = x[1]
    return row * 2 + h.sum()


@script
def gradient_of_a_gradient():
    x = paddle.ones([2])
    x.stop_gradient = False
    y = dy2st.to_static(lambda a: a * a)(x)
    paddle.grad(y.sum(), x, create_graph=True)


@script
def backward_twice():
    x = paddle.ones([2])
    x.stop_gradient = False
    y = dy2st.to_static(lambda a: a * a)(x)
    y.sum().backward()
    y.sum().backward()
