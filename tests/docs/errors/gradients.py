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


@example(X)
def gradient_of_an_unused_tensor(x):
    y = paddle.ones([3])
    y.stop_gradient = False
    return paddle.grad((x * x).sum(), [x, y])


@example(X)
def gradient_of_one_tensor_twice(x):
    return paddle.grad((x * x).sum(), [x, x])


@example(X)
def gradient_of_a_complex_tensor(x):
    return paddle.grad(paddle.complex(x, x * x), x)[0]


@example(X)
def gradient_through_a_write(x):
    y = x * x
    y[0] = 0.0
    return paddle.grad((y * y).sum(), x)[0]


@example(X)
def gradient_of_a_chosen_tensor(x):
    y = x if x.sum() > 0 else x * 2
    return paddle.grad((x * y).sum(), y)[0]


@example(X)
def gradient_of_the_gradient_of_a_norm(x):
    return paddle.grad(x.norm(), x, create_graph=True)[0]


@example(X)
def weights_of_another_shape(x):
    return paddle.grad(x * x, x, paddle.ones([2]))[0]


@script
def gradient_of_a_gradient():
    x = paddle.ones([2])
    x.stop_gradient = False
    y = dy2st.to_static(lambda a: a * paddle.rand([2]))(x)
    paddle.grad(y.sum(), x, create_graph=True)


@script
def gradient_of_a_gradient_after_a_write():
    x = paddle.ones([2])
    x.stop_gradient = False
    h = x * 1
    y = dy2st.to_static(lambda a: a * a)(h)
    with paddle.no_grad():
        h.add_(paddle.ones([2]))
    paddle.grad(y.sum(), x, create_graph=True)


@script
def backward_twice():
    x = paddle.ones([2])
    x.stop_gradient = False
    y = dy2st.to_static(lambda a: a * a)(x)
    y.sum().backward()
    y.sum().backward()


@example(X, backward=True)
def draw_without_a_gradient(x):
    return paddle.poisson(x.abs()) * x


@script
def write_of_a_value_without_a_gradient():
    def counted(total, w):
        total.add_(paddle.poisson(w.abs()))
        return total * w

    w = paddle.ones([3])
    w.stop_gradient = False
    dy2st.to_static(counted)(paddle.zeros([3]), w)


@script
def arguments_that_share_memory_and_get_a_gradient():
    def moved(a, b, w):
        a.add_(w)
        return a.sum() + b.sum()

    x, w = paddle.ones([4]), paddle.ones([3])
    w.stop_gradient = False
    dy2st.to_static(moved)(x[:3], x[1:], w)


@example(X)
def clears_a_gradient_in_a_branch(x):
    if x.sum() > 0:
        weight.clear_gradient()
    return x * weight


weight = paddle.create_parameter([4], "float32")
