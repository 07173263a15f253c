"""`paddle.grad` in translated functions: results, flags and second-order gradients as in eager."""

from __future__ import annotations

import paddle
import pytest
from paddle import nn
from paddle.static import InputSpec

import dy2st
from tests.check import agree, data, same

pytestmark = pytest.mark.sampled(every=16)

X, Y, V = data(4, 3), data(4, 3, seed=1), data(4, 3, seed=2)


def leaf(x):
    x = x.detach()
    x.stop_gradient = False
    return x


def energy(r):
    d = r.unsqueeze(0) - r.unsqueeze(1)
    d2 = (d * d).sum(-1) + paddle.eye(r.shape[0], dtype=r.dtype)
    return (1 / d2**2 - 1 / d2).sum()


def forces(r):
    r = leaf(r)
    return -paddle.grad(energy(r), r)[0]


class Cube(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensor()
        return 3 * x * x * g


# ---------------------------------------------------------------- arguments and flags
def flags(x, y, v):
    a, b = x * x * y, paddle.sin(x) + y
    given = [None, v]
    with_graph = paddle.grad([a, b], [y, x], grad_outputs=given, create_graph=True)
    return with_graph, paddle.grad((a, b), (y, x), grad_outputs=given)


def linear(x, y, v):
    return paddle.grad(x * 2.0 + y, [x, y], create_graph=True)


def unused(x, y, v):
    return paddle.grad((x * x).sum(), [x, y], allow_unused=True)[0]


def itself(x, y, v):
    return paddle.grad(x, x, create_graph=True), paddle.grad(x * y, [x, y], v)


def nested_inputs(x, y, v):
    a = paddle.sin(x)
    return paddle.grad((a * a * x).sum(), [x, a], create_graph=True)


def no_grad_vars(x, y, v):
    a = x * x
    return paddle.grad((a * (a + x)).sum(), x, no_grad_vars=[a])[0]


def constant_between(x, y, v):
    a = x * x
    b = a * 1.0
    b.stop_gradient = True
    return paddle.grad((a * b * y).sum(), x, create_graph=True)[0]


def flag_after_a_use(x, y, v):
    x = x.detach()
    a = x * x
    x.stop_gradient = False
    return paddle.grad((a * x).sum(), x, create_graph=True)[0]


def without_a_graph(x, y, v):
    u = (x * x).sum()
    with paddle.no_grad():
        g = paddle.grad(u, x)[0]
        with paddle.enable_grad():
            h = forces(y)
    return g, h


def views(x, y, v):
    a = x[:, 0]
    return paddle.grad((x * x).sum() + (a**3).sum(), [x, a], create_graph=True)


def results_of_their_own(x, y, v):
    g, h = paddle.grad(x + y, [x, y], v)
    g[0] = 3.0
    return g, h, v


def hooked(x, y, v):
    a = x * x
    a.register_hook(lambda g: g * 2)
    b = Cube.apply(y)
    return a * 1.0, b * 1.0, paddle.grad((a * b).sum(), [x, y])


def written_before(x, y, v):
    r = v.detach().clone()
    r.stop_gradient = False
    for _ in range(3):
        f = paddle.grad(energy(r), r)[0]
        with paddle.no_grad():
            r.add_(0.01 * f)
    return r.detach()


def another_dtype(x, y, v):
    a = leaf(x.astype("float32"))
    return paddle.grad((a.astype("float64") * y).sum(), a, create_graph=True)


def third(x, y, v):
    u = paddle.exp(x) * x * y
    for _ in range(3):
        u = paddle.grad(u.sum(), x, create_graph=True)[0]
    return u


def hessian_vector(x, y, v):
    g = paddle.grad(energy(x), x, create_graph=True)[0]
    return paddle.grad((g * v).sum(), [x])


def jvp_by_two(x, y, v):
    u = leaf(paddle.ones_like(x))
    g = paddle.grad(paddle.tanh(x) * y, x, u, create_graph=True)[0]
    return paddle.grad(g, u, v, create_graph=True)[0]


# ---------------------------------------------------------------- loops and branches
def leapfrog(x, y, v):
    r = x
    for _ in range(7):
        r = leaf(r)
        v = v - 0.01 * paddle.grad(energy(r), r)[0]
        r = r + 0.01 * v
    return r.detach(), v


def verlet(x, y, v):
    f = forces(x)
    for _ in range(5):
        v = v + 0.005 * f
        x = x + 0.01 * v
        f = forces(x)
        v = v + 0.005 * f
    return x, v


def symplectic(x, y, v):
    q, p = leaf(x), leaf(y)
    for _ in range(4):
        p = p - 0.1 * paddle.grad(energy(q * p), q, create_graph=True)[0]
        q = q + 0.1 * paddle.grad(energy(q * p), p, create_graph=True)[0]
    return q, p


def carried_through(x, y, v):
    """q is made of the new p, and reads it in the next iteration."""
    q, p = leaf(x), leaf(y)
    for _ in range(3):
        dq, dp = paddle.grad((q * p * p).sum(), [q, p], create_graph=True)
        q = q + 0.1 * dp
        p = p - 0.1 * q * dq
    return q, p


def made_before(x, y, v):
    """p is made of q before the loop, which counts in the first iteration."""
    q, gs = leaf(x), []
    p = q * 0.5
    for _ in range(3):
        gs.append(paddle.grad((q * p * x).sum(), q, retain_graph=True)[0])
        q = q + 1.0
    return paddle.stack(gs)


def history(x, y, v):
    h, gs = x * 1.0, []
    for _ in range(4):
        h = paddle.sin(h) + x
        gs.append(paddle.grad(h.sum(), x, retain_graph=True)[0])
    return paddle.stack(gs)


def rows_of_a_jacobian(x, y, v):
    s, trace = paddle.tanh(x) * x.sum(), 0.0
    for i in range(3):
        g = paddle.grad(s[:, i].sum(), x, create_graph=True, retain_graph=True)[0]
        trace = trace + g[:, i]
    return trace


def through_a_loop(x, y, v):
    h, hs = x, []
    for _ in range(5):
        h = paddle.tanh(h * y) + x
        hs.append(h)
    g = paddle.grad((paddle.stack(hs) ** 2).sum(), x, create_graph=True)[0]
    return g, hs[-1]


def through_a_while(x, y, v):
    h = x
    while h.abs().max() < 20:
        h = h * 1.5 + paddle.sin(h)
    return paddle.grad((h * h).sum(), x, create_graph=True)[0]


def through_a_branch(x, y, v):
    if v.sum() > 0:
        h = (x * x).sum()
        g = paddle.grad((x * y).sum(), x, create_graph=True)[0]
    else:
        h = (x**3).sum()
        g = paddle.grad((x * x * y).sum(), x, create_graph=True)[0]
    return g, paddle.grad(h, x, create_graph=True)[0]


def stops_when_small(x, y, v):
    z, k = x, 0
    while k < 40:
        z = leaf(z)
        g = paddle.grad(((z - 1.0) ** 2).sum(), z)[0]
        if g.abs().max() < 1e-3:
            break
        z = z - 0.3 * g
        k += 1
    return z * 1.0, k


def elements_of_a_list(x, y, v):
    xs = [x[:, i].detach() for i in range(3)]
    for q in xs:
        q.stop_gradient = False
    u = paddle.sin(paddle.stack(xs)).prod()
    return paddle.stack([paddle.grad(u, q, retain_graph=True)[0] for q in xs])


def element_that_a_loop_made(x, y, v):
    h, hs = x, []
    for _ in range(5):
        h = paddle.tanh(h) + y
        hs.append(h)
    return paddle.grad((hs[-1] ** 2).sum(), hs[2])[0]


def last_state(x, y, v):
    h, loss = x[0], paddle.zeros([], "float64")
    for t in range(4):
        h = paddle.tanh(h + x[t])
        loss = loss + (h * h).sum()
    return paddle.grad(loss + h.sum(), h)[0]


# ---------------------------------------------------------------- functions of Paddle over it
def jacobian(x, y, v):
    j = paddle.autograd.jacobian(paddle.tanh(x) * x.sum(), x, batch_axis=0)
    return j[:, 0, :], j[:]


def hessian(x, y, v):
    return paddle.autograd.hessian((x**4).sum(1, keepdim=True), x, batch_axis=0)[:]


def vjp_and_jvp(x, y, v):
    def g(q):
        for _ in range(3):
            q = paddle.tanh(q) * q
        return q

    found = paddle.incubate.autograd.vjp(g, x, v)[1], paddle.incubate.autograd.jvp(g, y, v)[1]
    return [q.detach() for q in found]


AS_EAGER = [
    flags, linear, unused, itself, nested_inputs, no_grad_vars, constant_between, flag_after_a_use,
    without_a_graph, views, results_of_their_own, hooked, written_before, another_dtype, third,
    hessian_vector, jvp_by_two, leapfrog, verlet, symplectic, carried_through, made_before, history,
    rows_of_a_jacobian, through_a_loop, through_a_while, through_a_branch, stops_when_small,
    elements_of_a_list, element_that_a_loop_made, last_state, jacobian, hessian, vjp_and_jvp,
]  # fmt: skip


@pytest.mark.quick("carried_through", "made_before", "last_state", "constant_between", "verlet")
@pytest.mark.parametrize("f", AS_EAGER, ids=lambda f: f.__name__)
def test_as_eager(f):
    agree(f, X, Y, V)


@pytest.mark.parametrize("f", [leapfrog, verlet, symplectic, rows_of_a_jacobian])
def test_loops_around_a_gradient_stay_loops(f):
    assert (
        "scan" in str(dy2st.report(dy2st.to_static(f), X, Y, V)).split("branches")[0].split("\n")[1]
    )


@pytest.mark.parametrize("f", [carried_through, made_before, history, last_state])
def test_loops_through_which_a_gradient_goes_back_are_unrolled(f):
    assert "unrolled (" in str(dy2st.report(dy2st.to_static(f), X, Y, V))


# ---------------------------------------------------------------- the flag of an argument
def test_an_argument_gets_its_flag_in_every_call():
    def f(x, w):
        x.stop_gradient = False
        return paddle.grad((x * x * w).sum(), x, create_graph=True)[0]

    static = dy2st.to_static(f)
    for k in range(3):
        found = []
        for g in (f, static):
            x, w = data(4, 3, seed=k, trained=False), data(4, 3, seed=9)
            out = g(x, w)
            out.sum().backward()
            found.append((out, x.stop_gradient, x.grad, w.grad))
        same(found[1], found[0])
    x = data(2, trained=False)
    same(static(x, x), f(x, x))


def test_an_argument_that_was_read_keeps_its_flag():
    def f(x):
        y = x * 2
        x.stop_gradient = False
        return y

    with pytest.raises(dy2st.SourceError, match="unless it is an argument that nothing has read"):
        dy2st.to_static(f)(data(2, trained=False))


# ---------------------------------------------------------------- sizes
@pytest.mark.parametrize("n", [1, 4, 7])
def test_open_sizes(n):
    def f(x):
        x, h = leaf(x), paddle.zeros([3], "float64")
        for t in range(x.shape[0]):
            h = paddle.tanh(x[t] + h)
        g = paddle.grad((h * h).sum(), x, create_graph=True)[0]
        return paddle.grad((g * g).sum(), x)[0] + energy(x)

    x = data(n, 3, trained=False)
    static = dy2st.to_static(f, input_spec=[InputSpec([None, 3], "float64", "x")])
    same(static(x), f(x), 1e-9, 1e-9)


@pytest.mark.quick
@pytest.mark.parametrize("n", [0, 1, 3])
def test_no_iteration_and_few(n):
    def f(x, v, n):
        for _ in range(n):
            x = leaf(x)
            v = v - 0.01 * paddle.grad(energy(x), x)[0]
            x = x + 0.01 * v
        return x.detach(), v

    agree(f, X, V, n)


# ---------------------------------------------------------------- refused
def reads_what_was_written(x):
    y = x * x
    y[0] = 0.0
    return paddle.grad((y * y).sum(), x)[0]


def of_one_of_two(x):
    y = x if x.sum() > 0 else x * 2
    return paddle.grad((x * y).sum(), y)[0]


def again_through_a_pylayer(x):
    return paddle.grad(Cube.apply(x).sum(), x, create_graph=True)[0]


def of_another_shape(x):
    return paddle.grad(x * x, x, paddle.ones([2], "float64"))[0]


REFUSED = {
    reads_what_was_written: "written in place between its inputs and its outputs",
    of_one_of_two: "a tensor that data or a loop has chosen",
    again_through_a_pylayer: "a PyLayer, a hook or a function with a gradient of its own",
    of_another_shape: r"grad_outputs of paddle.grad is f64\[2\], its output f64\[4,3\]",
}


@pytest.mark.parametrize("f", REFUSED, ids=lambda f: f.__name__)
def test_refused(f):
    with pytest.raises(dy2st.SourceError, match=REFUSED[f]):
        dy2st.to_static(f)(X)


ERRORS = {
    "unused": lambda x: paddle.grad((x * x).sum(), [x, paddle.ones([2])]),
    "no gradient recorded": lambda x: paddle.grad((x.detach() * 2).sum(), x),
    "duplicate": lambda x: paddle.grad(x * x, [x, x]),
    "no tensor": lambda x: paddle.grad(x * x, 3),
    "no inputs": lambda x: paddle.grad(x * x, []),
    "too few": lambda x: paddle.grad([x * x, x], x, [None]),
    "only_inputs": lambda x: paddle.grad(x * x, x, only_inputs=False),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_of_the_type_of_eager(name):
    with pytest.raises(Exception) as want:  # noqa: PT011
        ERRORS[name](X)
    with pytest.raises(want.type):
        dy2st.to_static(ERRORS[name])(X)


@pytest.mark.filterwarnings("ignore")
def test_backward_through_what_has_no_second_gradient_says_so():
    def f(x):
        return paddle.grad(nn.functional.max_pool2d(x, 2).square().sum(), x, create_graph=True)[0]

    out = dy2st.to_static(f)(data(1, 1, 4, 4))
    with pytest.raises(dy2st.Dy2stError, match="the gradient of max_pool: it has no gradient"):
        out.sum().backward()
