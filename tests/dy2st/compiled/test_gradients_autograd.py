"""A translated call in Paddle's graph: whatever autograd does around it works as in eager."""

from __future__ import annotations

import copy
import gc
import threading
import weakref

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.autograd import PyLayer
from paddle.distributed.fleet.utils import recompute
from paddle.static import InputSpec

import dy2st
from dy2st.compiled.autograd import CallNode
from tests import check
from tests.check import agree, close, data, default_dtype, detached, trains

pytestmark = pytest.mark.sampled


def product(x, y):
    h = paddle.tanh(x) * y
    return h, (x * y).sum()


def both(f):
    """The function itself, and translated."""
    return f, dy2st.to_static(f)


def equal_outcomes(f, run, *args):
    """`run(function, arguments)` gives the same arrays for both."""
    found = [run(g, [detached(a) for a in args]) for g in both(f)]
    for a, b in zip(*found, strict=True):
        close(b, a, 1e-9, f.__name__)


X, Y = data(3, 4), data(3, 4, seed=1)


class Double(PyLayer):
    @staticmethod
    def forward(ctx, x):
        return x * 2.0

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2.0


# ---------------------------------------------------------------- around the call
@pytest.mark.quick
def test_eager_code_before_and_after():
    def run(f, args):
        x, y = args
        h, s = f(x * 2.0, paddle.exp(y))
        (h * h).sum().backward(retain_graph=True)
        (s * h.mean()).backward()
        return [x.grad.numpy(), y.grad.numpy()]

    equal_outcomes(product, run, X, Y)


def test_a_chain_of_translated_calls():
    def run(f, args):
        x, y = args
        for _ in range(3):
            x, s = f(x, y)
        (x.sum() + s).backward()
        return [args[0].grad.numpy(), y.grad.numpy()]

    equal_outcomes(product, run, X, Y)


def test_paddle_grad_of_some_inputs():
    def run(f, args):
        h, s = f(*args)
        (g,) = paddle.grad(h.sum(), [args[1]], retain_graph=True)
        a, b = paddle.grad([h, s], args)
        return [g.numpy(), a.numpy(), b.numpy()]

    equal_outcomes(product, run, X, Y)


@pytest.mark.quick
def test_hooks_on_tensors_outside():
    def run(f, args):
        seen = []
        x = args[0] * 1.0
        x.register_hook(lambda g: seen.append(g.numpy()))
        h, _ = f(x, args[1])
        h.register_hook(lambda g: g * 3.0)
        h.register_hook(lambda g: seen.append(g.numpy()))
        (h * 2.0).sum().backward()
        return [*seen, args[0].grad.numpy()]

    equal_outcomes(product, run, X, Y)


@pytest.mark.quick("used2")
@pytest.mark.parametrize("used", [[0], [1], [0, 1]])
def test_some_of_the_outputs(used):
    def run(f, args):
        out = f(*args)
        sum(out[k].sum() for k in used).backward()
        return [q.grad.numpy() for q in args]

    equal_outcomes(product, run, X, Y)


def test_gradients_accumulate():
    def run(f, args):
        for k in range(3):
            (f(*args)[0] * float(k + 1)).sum().backward()
        return [q.grad.numpy() for q in args]

    equal_outcomes(product, run, X, Y)


def test_an_argument_that_needs_no_gradient():
    y = data(3, 4, seed=1, trained=False)

    def run(f, args):
        f(*args)[0].sum().backward()
        assert args[1].grad is None
        return [args[0].grad.numpy()]

    equal_outcomes(product, run, X, y)


@pytest.mark.quick
def test_one_tensor_passed_twice():
    def run(f, args):
        h, s = f(args[0], args[0])
        (h.sum() + s).backward()
        return [args[0].grad.numpy()]

    equal_outcomes(product, run, X)


# ---------------------------------------------------------------- running backwards twice
def test_a_second_backward_raises_as_eager_does():
    for f in both(product):
        loss = f(*map(detached, (X, Y)))[0].sum()
        loss.backward()
        with pytest.raises(SystemError, match="retain_graph=True"):
            loss.backward()


def test_a_second_backward_from_another_output_raises():
    static = dy2st.to_static(product)
    h, s = static(*map(detached, (X, Y)))
    (h.sum() + s).backward()
    with pytest.raises(SystemError, match="retain_graph=True"):
        s.backward()


@pytest.mark.quick
def test_retain_graph():
    def run(f, args):
        h, s = f(*args)
        loss = (h * h).sum()
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)
        s.backward()
        return [q.grad.numpy() for q in args]

    equal_outcomes(product, run, X, Y)


# ---------------------------------------------------------------- what is kept
@pytest.mark.quick("parameter")
@pytest.mark.parametrize("which", ["argument", "parameter", "result"])
def test_overwritten_between_forward_and_backward(which):
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.w = self.create_parameter([4])

        def forward(self, x):
            return paddle.exp(x * self.w)

    with default_dtype("float64"):
        net = Net()
    for model in (net, dy2st.to_static(copy.deepcopy(net))):
        x = detached(X) * 1.0
        y = model(x)
        with paddle.no_grad():
            {"argument": x, "parameter": model.w, "result": y}[which].zero_()
        with pytest.raises(RuntimeError, match="modified by\\s+an inplace operation"):
            y.sum().backward()


def test_results_do_not_keep_their_graph_alive(young):
    static, before = dy2st.to_static(product), nodes()
    h, s = static(detached(X), detached(Y))
    alive = weakref.ref(node_of_the_call(before))
    assert alive() is not None
    del h, s
    assert alive() is None


def nodes():
    return [q for q in gc.get_objects() if isinstance(q, CallNode)]


def node_of_the_call(before):
    (node,) = [q for q in nodes() if all(q is not p for p in before)]
    return node


@pytest.mark.quick
def test_residuals_go_with_the_backward_that_ends_the_graph(young):
    before = nodes()
    h, _ = dy2st.to_static(product)(detached(X), detached(Y))
    node = node_of_the_call(before)
    h.sum().backward(retain_graph=True)
    assert node.kept is not None
    h.sum().backward()
    assert node.kept is None


def states_of_some_size(x):
    h, ys = x[0], []
    for t in range(x.shape[0]):
        h = paddle.tanh(h * 0.9 + x[t])
        ys.append(h * h)
    return sum(ys)


def test_memory_of_residuals_serves_the_next_call():
    static, xs = dy2st.to_static(states_of_some_size), [data(8, 40, 64, seed=k) for k in range(4)]
    want = []
    for x in xs:
        x = detached(x)
        (states_of_some_size(x) ** 2).sum().backward()
        want.append(x.grad.numpy())

    def forward(k):
        x = detached(xs[k])
        return k, x, (static(x) ** 2).sum()

    def backward(call, retain=False):
        k, x, loss = call
        loss.backward(retain_graph=retain)
        close(x.grad.numpy(), want[k], 1e-9, f"call {k}")
        x.clear_gradient()

    first = forward(0)
    spare = static.entry(first[1]).training.pool
    backward(first)
    (held,) = (t.data_ptr() for t, _ in spare.held.values())
    a, b = forward(1), forward(2)
    assert not spare.held
    backward(a, retain=True)
    assert not spare.held
    c = forward(3)
    backward(b)
    backward(a)
    (held_now,) = (t.data_ptr() for t, _ in spare.held.values())
    assert held_now == held
    backward(c)
    x = detached(data(3, 40, 64))
    assert static(x).shape == [40, 64]


# ---------------------------------------------------------------- modes between calls
class Tied(nn.Layer):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.two.weight = self.one.weight
        self.register_buffer("state", paddle.zeros([4]))

    def forward(self, x):
        return paddle.tanh(self.two(paddle.tanh(self.one(x))))


def pair(kind=Tied):
    with default_dtype("float64"):
        net = kind()
    return net, dy2st.to_static(copy.deepcopy(net))


def gradients(net):
    return [None if p.grad is None else p.grad.numpy() for p in net.parameters()]


def test_first_under_no_grad_then_training():
    nets = pair()
    for net in nets:
        with paddle.no_grad():
            assert net(X).stop_gradient
        net(X).sum().backward()
    for a, b in zip(*map(gradients, nets), strict=True):
        close(b, a, 1e-9, "gradient")


def test_two_layers_share_a_parameter():
    trains(Tied, lambda: [data(3, 4)])


@pytest.mark.quick
def test_freezing_a_parameter_between_calls():
    nets = pair()
    for net in nets:
        for frozen in (False, True, False, True):
            net.one.weight.stop_gradient = frozen
            net(X).sum().backward()
    for a, b in zip(*map(gradients, nets), strict=True):
        close(b, a, 1e-9, "gradient")


def test_evaluation_between_steps():
    nets = pair()
    for net in nets:
        for _ in range(2):
            net(X).sum().backward()
            with paddle.no_grad():
                net(X)
    for a, b in zip(*map(gradients, nets), strict=True):
        close(b, a, 1e-9, "gradient")


# ---------------------------------------------------------------- state
class Written(Tied):
    """A buffer is written with values that require a gradient."""

    def forward(self, x):
        self.state.add_(self.one(x).mean(0))
        return self.state * x


def test_a_buffer_written_with_a_trained_value():
    nets = pair(Written)
    for net in nets:
        y = net(X)
        assert not net.state.stop_gradient and not net.state.is_leaf
        (y.sum() + (net.state * 2.0).sum()).backward()
    check.same(nets[1].state, nets[0].state)
    for a, b in zip(*map(gradients, nets), strict=True):
        close(b, a, 1e-9, "gradient")


@pytest.mark.quick
def test_a_buffer_carries_its_graph_into_the_next_call():
    nets = pair(Written)
    for net in nets:
        net(X)
        net(X).sum().backward()
    for a, b in zip(*map(gradients, nets), strict=True):
        close(b, a, 1e-9, "gradient")


class Stateful(Tied):
    """The state is an attribute that every call rebinds, cut off from the call before."""

    def forward(self, x):
        h = self.state.detach()
        for t in range(x.shape[0]):
            h = paddle.tanh(self.one(h) + x[t])
        self.state = h
        return h


def test_truncated_backpropagation():
    trains(Stateful, lambda: [data(3, 4)], steps=4)


class Clipped(Tied):
    """A parameter is overwritten under no_grad before it is used."""

    def forward(self, x):
        with paddle.no_grad():
            self.one.weight.clip_(-0.1, 0.1)
            self.one.bias[1:3] = 0.25
        return paddle.tanh(self.one(x))


def test_a_parameter_written_under_no_grad_keeps_its_gradient():
    trains(Clipped, lambda: [data(3, 4)])


@pytest.mark.quick
def test_an_argument_written_in_place():
    def f(x, y):
        x.scale_(2.0)
        x[1] = y[0] * 3.0
        return (x * x).sum()

    def run(g, args):
        x = args[0] * 1.0
        loss = g(x, args[1])
        (loss + x.sum()).backward()
        return [q.grad.numpy() for q in args]

    equal_outcomes(f, run, X, Y)


# ---------------------------------------------------------------- results of all kinds
def test_views_lists_and_numbers():
    def f(x):
        h = paddle.tanh(x)
        rows = []
        for t in range(x.shape[0]):
            rows.append(h[t] * float(t + 1))
        return h, h[1], {"rows": rows, "n": 3}, h.detach(), x[0], x

    agree(f, X)


@pytest.mark.quick("1")
@pytest.mark.parametrize("steps", [0, 1, 5, 8])
def test_one_program_for_every_length(steps):
    def f(x):
        h = paddle.zeros([4], "float64")
        ys = []
        for t in range(x.shape[0]):
            h = paddle.tanh(h * 0.5 + x[t])
            ys.append(h)
        return paddle.stack(ys) if steps else h, h * 2.0

    static = dy2st.to_static(f, input_spec=[InputSpec([None, 4], "float64")])
    x, other = data(steps, 4), data(steps, 4)
    for g, q in ((f, x), (static, other)):
        a, b = g(q)
        (a.sum() * 2.0 + b.sum()).backward() if not b.stop_gradient else None
    close(None if other.grad is None else other.grad.numpy(),
          None if x.grad is None else x.grad.numpy(), 1e-9, "gradient")  # fmt: skip


@pytest.mark.quick
def test_a_result_as_long_as_a_loop_that_data_ends():
    def f(x):
        ys, h = [], x[0]
        for t in range(6):
            h = h * 1.5 + x[t % 3]
            ys.append(h)
            if h.sum() > 3.0:
                break
        return paddle.stack(ys)

    agree(f, paddle.to_tensor(np.abs(X.numpy()), stop_gradient=False))


def test_empty_and_zero_dimensional_tensors():
    def f(x, s):
        return paddle.tanh(x) * s, (x.sum() + s) * 2.0

    agree(f, data(0, 4), data())


def test_arguments_that_are_not_contiguous():
    def run(f, args):
        x, y = args[0].transpose([1, 0]), args[1].transpose([1, 0])
        h, s = f(x, y)
        (h.transpose([1, 0]).sum() + s).backward()
        return [q.grad.numpy() for q in args]

    equal_outcomes(product, run, X, Y)


@pytest.mark.quick
def test_foreign_ops_have_the_gradient_of_a_tape():
    def f(x, y):
        h = paddle.logcumsumexp(x, axis=1)
        for t in range(3):
            h = h + paddle.cumprod(paddle.tanh(y) + t, dim=1)
        return paddle.kron(h, x[:1, :2]), paddle.sort(y, axis=0)

    agree(f, X, Y)


def test_float32_beside_float64():
    def f(x, y):
        return paddle.tanh(x) * 2.0, y * y, (x.astype("float64") * y).sum()

    agree(f, data(3, 4, dtype="float32"), Y, dtype="float32")


# ---------------------------------------------------------------- tools around training
def test_a_result_written_in_place_by_the_caller():
    def run(f, args):
        h, _ = f(*args)
        h.add_(paddle.ones([3, 4], "float64"))
        h[0] = 5.0
        (h * h).sum().backward()
        return [q.grad.numpy() for q in args]

    def sums(x, y):
        return x + y * 2.0, (x * y).sum()

    equal_outcomes(sums, run, X, Y)


@pytest.mark.quick
def test_retain_grads_of_a_result():
    def run(f, args):
        h, _ = f(*args)
        h.retain_grads()
        (h * h).sum().backward()
        return [h.grad.numpy(), *(q.grad.numpy() for q in args)]

    equal_outcomes(product, run, X, Y)


@pytest.mark.parametrize("reentrant", [True, False])
def test_recompute_around_a_translated_call(reentrant):
    def run(f, args):
        h, s = recompute(lambda x, y: f(x, y), args[0] * 1.0, args[1], use_reentrant=reentrant)
        ((h * h).sum() + s).backward()
        return [q.grad.numpy() for q in args]

    equal_outcomes(product, run, X, Y)


@pytest.mark.quick
def test_training_in_several_threads():
    static = dy2st.to_static(product)
    given = [data(3, 4, seed=k) for k in range(6)]
    wanted = []
    for x in given:
        product(x, x)[0].sum().backward()
        wanted.append(x.grad.numpy())
    found = [None] * len(given)

    def work(k):
        for _ in range(5):
            x = detached(given[k])
            static(x, x)[0].sum().backward()
            found[k] = x.grad.numpy()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(given))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        close(a, b, 1e-9, f"thread {k}")


def test_loss_scaling_and_clipping():
    nets = pair()
    for net in nets:
        clip = nn.ClipGradByGlobalNorm(0.1)
        optimizer = paddle.optimizer.AdamW(0.01, parameters=net.parameters(), grad_clip=clip)
        scaler = paddle.amp.GradScaler(init_loss_scaling=1024.0)
        for _ in range(3):
            scaler.scale(net(X).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.clear_grad()
    check.same(list(nets[1].parameters()), list(nets[0].parameters()), rtol=1e-9, atol=1e-9)


def test_a_program_with_user_gradients_is_saved(tmp_path):
    class Net(Tied):
        def forward(self, x):
            h = Double.apply(self.one(x)).detach() + self.one(x)
            return paddle.tanh(h)

    _, static = pair(Net)
    static(X).sum().backward()
    dy2st.save(static, tmp_path / "net.dy2st", input_spec=[InputSpec([None, 4], "float64")])
    out = dy2st.load(tmp_path / "net.dy2st")(X.numpy())
    close(np.asarray(out), static(X).numpy(), 1e-12, "loaded")
