"""`dy2st.nn`: neurons over time, states kept and reset, surrogate gradients, training."""

from __future__ import annotations

import copy

import numpy as np
import paddle
import pytest

import dy2st
from dy2st import nn
from tests.check import agree, close, data, default_dtype, parity, same, step, trains
from tests.dy2st.functional.plain import kinds

pytestmark = pytest.mark.sampled(every=18)

CORES = {"LIF": (nn.LIF, 1), "PLIF": (nn.PLIF, 1), "AdaptiveLIF": (nn.AdaptiveLIF, 2),
         "Izhikevich": (nn.Izhikevich, 2)}  # fmt: skip


class Sandwich(paddle.nn.Layer):
    """Linear, neuron, Linear over [T, N, 3]."""

    def __init__(self, core, states, **options):
        super().__init__()
        self.before = paddle.nn.Linear(3, 5)
        self.neuron = nn.FlexNeuron(core, 1, states, 1, **options)
        self.after = paddle.nn.Linear(5, 2)

    def forward(self, x):
        self.neuron.reset()
        return self.after(self.neuron(self.before(x) * 3))


# ---------------------------------------------------------------- cores
def by_hand(core, x, states):
    """Single steps of a core in a Python loop."""
    spikes = []
    for q in x:
        spike, *states = core(q, *states)
        spikes.append(spike)
    return paddle.stack(spikes), states


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("name", CORES)
def test_a_neuron_is_the_loop_of_its_core(name, store):
    kind, states = CORES[name]
    with default_dtype("float64"):
        core = kind()
    scale = 10.0 if name == "Izhikevich" else 2.0
    x = data(30, 4) * scale
    neuron = nn.FlexNeuron(core, 1, states, 1, store_states=store)
    first = [paddle.full([4], q, "float64") for q in core.initial_states]
    want, last = by_hand(core, x, first)
    for run in (neuron, dy2st.to_static(copy.deepcopy(neuron))):
        same(run(x), want, rtol=1e-9, atol=1e-9)
        same(list(run.states), last, rtol=1e-9, atol=1e-9)
        assert (run.state_sequences is not None) == store
        if store:
            same([q[-1] for q in run.state_sequences], last, rtol=1e-9, atol=1e-9)


def test_spikes_of_a_leaky_neuron():
    neuron = nn.FlexNeuron(nn.LIF(tau=2.0), 1, 1, 1, store_states=True)
    assert neuron(paddle.ones([4]) * 1.5).tolist() == [0, 1, 0, 1]
    assert neuron.state_sequences[0].tolist() == [0.75, 0, 0.75, 0]


def test_a_soft_reset_keeps_what_is_above_the_threshold():
    core = nn.LIF(tau=2.0, v_reset=None)
    spike, v = core(paddle.to_tensor([3.0]), paddle.to_tensor([0.5]))
    assert spike.tolist() == [1] and v.tolist() == [0.75]


def test_a_time_constant_is_learned():
    core = nn.PLIF(tau=4.0)
    np.testing.assert_allclose(paddle.nn.functional.sigmoid(core.w).item(), 0.25, rtol=1e-6)
    core(paddle.ones([3]), paddle.zeros([3]))[1].sum().backward()
    assert core.w.grad is not None


def test_a_threshold_adapts():
    neuron = nn.FlexNeuron(nn.AdaptiveLIF(beta=0.5), 1, 2, 1)
    plain = nn.FlexNeuron(nn.LIF(v_reset=None), 1, 1, 1)
    x = paddle.ones([50]) * 2.5
    assert 0 < neuron(x).sum() < plain(x).sum()


def test_izhikevich_spikes_regularly():
    neuron = nn.FlexNeuron(nn.Izhikevich(), 1, 2, 1)
    spikes = neuron(paddle.full([500], 10.0))
    assert 5 < int(spikes.sum()) < 50
    assert neuron.initial_states == (-65.0, -13.0)


@pytest.mark.parametrize("detach", [False, True])
def test_a_reset_that_gradients_pass_or_not(detach):
    core = nn.LIF(detach_reset=detach)

    def f(x):
        return by_hand(core, x, [paddle.zeros([4], "float64")])[0]

    agree(f, data(6, 4))


def test_a_time_constant_of_one_is_refused():
    with pytest.raises(ValueError, match="tau must be above 1, it is 1"):
        nn.LIF(tau=1.0)


# ---------------------------------------------------------------- surrogates
@pytest.mark.parametrize("alpha", [1.0, 4.0])
@pytest.mark.parametrize("name", ["sigmoid_spike", "atan_spike"])
def test_surrogate_gradients(name, alpha):
    smooth = {
        "sigmoid_spike": lambda x: paddle.nn.functional.sigmoid(alpha * x),
        "atan_spike": lambda x: paddle.atan(np.pi / 2 * alpha * x) / np.pi,
    }[name]

    def f(x):
        return getattr(nn, name)(x, alpha)

    x, y = data(50), data(50)
    f(x).sum().backward()
    smooth(y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-9)
    assert f(paddle.to_tensor([-1.0, -0.0, 0.0, 1e-9])).tolist() == [0, 1, 1, 1]
    agree(f, data(50))


# ---------------------------------------------------------------- states
def test_states_are_kept_between_calls():
    def make_args():
        return [data(4, 3, trained=False)]

    static = parity(nn.FlexNeuron(nn.LIF(), 1, 1, 1), make_args, calls=5)
    assert "2 programs" in str(dy2st.explain(static))


def test_two_halves_are_one_whole():
    x = data(8, 3, trained=False) * 2
    whole, halves = (nn.FlexNeuron(nn.AdaptiveLIF(), 1, 2, 1) for _ in range(2))
    same(paddle.concat([halves(x[:5]), halves(x[5:])]), whole(x))


def test_reset_forgets():
    x = data(4, 3, trained=False) * 2
    net = paddle.nn.Sequential(nn.FlexNeuron(nn.LIF(), 1, 1, 1, store_states=True))
    first = net(x)
    nn.reset(net)
    assert net[0].states is None and net[0].state_sequences is None
    same(net(x), first)


def test_a_neuron_that_keeps_no_states(tmp_path):
    x = data(4, 3, trained=False).astype("float32") * 2
    neuron = nn.FlexNeuron(nn.LIF(), 1, 1, 1, keep_states=False)
    first = neuron(x)
    assert neuron.states is None
    same(neuron(x), first)
    spec = [paddle.static.InputSpec([None, 3], "float32")]
    dy2st.save(neuron, tmp_path / "neuron.dy2st", input_spec=spec)
    loaded = dy2st.load(tmp_path / "neuron.dy2st")
    np.testing.assert_array_equal(loaded(x.numpy()), first.numpy())
    assert loaded(np.zeros([0, 3], "float32")).shape == (0, 3)


def test_single_steps_are_the_steps_of_a_sequence():
    x = data(6, 3, trained=False) * 2
    single, multi = (nn.FlexNeuron(nn.LIF(), 1, 1, 1, step_mode=q) for q in "sm")
    static = dy2st.to_static(copy.deepcopy(single))
    same(paddle.stack([single(q) for q in x]), multi(x))
    same(paddle.stack([static(q) for q in x]), multi(x) * 0 + nn_reset(multi)(x))


def nn_reset(neuron):
    neuron.reset()
    return neuron


def test_no_steps():
    for run in (
        nn.FlexNeuron(nn.LIF(), 1, 1, 1),
        dy2st.to_static(nn.FlexNeuron(nn.LIF(), 1, 1, 1)),
    ):
        assert run(paddle.zeros([0, 3])).shape == [0, 3]
        assert run.states[0].tolist() == [0, 0, 0]


def test_initial_states():
    neuron = nn.FlexNeuron(lambda x, v: (v, v + x), 1, 1, 1, initial_states=[0.5])
    assert neuron(paddle.ones([3])).tolist() == [0.5, 1.5, 2.5]


def test_several_inputs_and_outputs():
    def core(a, b, v, u):
        return v, u, v + a, u * 0.5 + b

    def f(a, b):
        return nn.FlexNeuron(core, 2, 2, 2)(a, b)

    out = f(data(4, 3), data(4, 3, seed=1))
    assert isinstance(out, tuple) and len(out) == 2


ERRORS = {
    "core": (lambda: nn.FlexNeuron(3, 1, 1, 1), TypeError, "core must be callable"),
    "mode": (lambda: nn.FlexNeuron(nn.LIF(), 1, 1, 1, step_mode="x"), ValueError, "step_mode"),
    "states": (lambda: nn.FlexNeuron(nn.LIF(), 1, 2, 1), ValueError, "1 initial states for 2"),
    "inputs": (lambda: nn.FlexNeuron(nn.LIF(), 1, 1, 1)(data(4, 3), data(4, 3)), ValueError,
               "2 inputs for 1"),
    "results": (lambda: nn.FlexNeuron(lambda x, v: x, 1, 1, 1)(data(4, 3)), ValueError,
                "FlexNeuron: the core returns 1 value"),
    "single": (lambda: nn.FlexNeuron(lambda x, v: x, 1, 1, 1, step_mode="s")(data(3)), ValueError,
               "FlexNeuron: the core returns 1 value"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_error(name):
    f, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        f()


@pytest.mark.parametrize("name", ["inputs", "results", "single"])
def test_error_in_translated_code(name):
    f, kind, text = ERRORS[name]
    neuron = nn.FlexNeuron(lambda x, v: x, 1, 1, 1, step_mode="s" if name == "single" else "m")
    args = [data(4, 3, trained=False)] * (2 if name == "inputs" else 1)
    with pytest.raises(kind, match=text):
        dy2st.to_static(neuron)(*args)
    assert neuron.states is None


# ---------------------------------------------------------------- training
@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("name", CORES)
def test_linear_neuron_linear_trains_as_in_eager_code(name, store):
    kind, states = CORES[name]
    x = data(6, 2, 3)
    static = trains(lambda: Sandwich(kind(), states, store_states=store), lambda: [x])
    assert kinds(static, x) == ["scan"]


def over_time(layer, x):
    """A Layer of images on [T, N, ...], all steps at once."""
    out = layer(x.flatten(0, 1))
    return out.reshape([x.shape[0], x.shape[1], *out.shape[1:]])


class SpikingVGG(paddle.nn.Layer):
    """Two blocks of convolution, batch norm, neurons and pooling, and a classifier."""

    def __init__(self, core):
        super().__init__()
        sizes = [(1, 4), (4, 8)]
        self.convs = paddle.nn.LayerList([paddle.nn.Conv2D(a, b, 3, padding=1) for a, b in sizes])
        self.norms = paddle.nn.LayerList([paddle.nn.BatchNorm2D(b) for _, b in sizes])
        self.neurons = paddle.nn.LayerList([nn.FlexNeuron(core(), 1, 1, 1) for _ in range(3)])
        self.pool = paddle.nn.MaxPool2D(2)
        self.hidden = paddle.nn.Linear(8 * 2 * 2, 16)
        self.out = paddle.nn.Linear(16, 3)

    def forward(self, x, steps):
        nn.reset(self)
        x = x.unsqueeze(0).expand([steps, *x.shape])
        for conv, norm, neuron in zip(self.convs, self.norms, self.neurons):
            x = over_time(self.pool, neuron(over_time(norm, over_time(conv, x))))
        x = self.neurons[2](self.hidden(x.flatten(2)))
        return self.out(x).mean(0)


@pytest.mark.slow
@pytest.mark.parametrize("core", [nn.LIF, nn.PLIF], ids=lambda q: q.__name__)
def test_a_spiking_vgg_trains(core):
    paddle.seed(0)
    eager = SpikingVGG(core)
    static = dy2st.to_static(copy.deepcopy(eager))
    images, labels = paddle.randn([12, 1, 8, 8]), paddle.arange(12) % 3
    losses = {}
    for name, net in (("eager", eager), ("translated", static)):
        adam = paddle.optimizer.Adam(0.02, parameters=net.parameters())
        losses[name] = []
        for _ in range(15):
            loss = paddle.nn.functional.cross_entropy(net(images, 4), labels)
            loss.backward()
            adam.step()
            adam.clear_grad()
            losses[name].append(float(loss))
    np.testing.assert_allclose(losses["translated"][:3], losses["eager"][:3], rtol=1e-3)
    for found in losses.values():
        assert found[-1] < 0.6 * found[0], found
    assert kinds(static, images, 4) == ["scan"] * 3


@pytest.mark.slow
def test_gradients_of_a_spiking_vgg_are_those_of_eager():
    paddle.seed(0)
    with default_dtype("float64"):
        eager = SpikingVGG(nn.PLIF)
    static = dy2st.to_static(copy.deepcopy(eager))
    x = data(4, 1, 8, 8)
    want, wanted = step(eager, [x, 3], eager.parameters())
    have, had = step(static, [x.detach(), 3], static.parameters())
    same(have, want, rtol=1e-9, atol=1e-9)
    for name, a, b in zip(dict(static.named_parameters()), had, wanted, strict=True):
        close(a, b, 1e-7, name)
