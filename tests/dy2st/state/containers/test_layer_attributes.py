"""Attributes that Layers store in a loop over them: states of neurons, what a block remembers."""

from __future__ import annotations

import copy

import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=12)

N = 10
KEPT = ("v", "a", "n")


class Neuron(nn.Layer):
    """The state is stored twice in a step."""

    def __init__(self):
        super().__init__()
        self.linear, self.v = nn.Linear(4, 4), 0.0

    def forward(self, x):
        self.v = 0.9 * self.v + self.linear(x)
        spike = F.sigmoid(4 * (self.v - 1))
        self.v = self.v * (1 - spike)
        return spike


class Adaptive(Neuron):
    """Two states and a counter."""

    def __init__(self):
        super().__init__()
        self.a, self.n = paddle.zeros([2, 4]), 0

    def forward(self, x):
        self.v = 0.9 * self.v + self.linear(x) - self.a
        self.a = 0.5 * self.a + F.sigmoid(self.v)
        self.n = self.n + 1
        return paddle.tanh(self.v + self.n)


class Computed(Neuron):
    """Through a property, detached, and changed in place."""

    @property
    def state(self):
        return self.v * 2

    @state.setter
    def state(self, x):
        self.v = x / 2

    def forward(self, x):
        self.state = 0.5 * self.state + self.linear(x)
        y = paddle.tanh(self.v)
        self.v = self.v.detach() + 1
        return y


class Shared(Neuron):
    """What a Layer gives is what it keeps."""

    def forward(self, x):
        self.v = paddle.tanh(self.linear(x) + self.v)
        return self.v


class KeepsInput(Neuron):
    def forward(self, x):
        self.v = x
        return paddle.tanh(self.linear(x))


class OnData(Neuron):
    def forward(self, x):
        y = self.linear(x)
        if y.sum() > 0:
            self.v = self.v + y
        return paddle.tanh(y + self.v)


class InALoop(Neuron):
    def forward(self, x):
        for _ in range(3):
            self.v = 0.5 * self.v + self.linear(x)
        return paddle.tanh(self.v)


class Net(nn.Layer):
    def __init__(self, kind=Neuron):
        super().__init__()
        self.layers = nn.LayerList([kind() for _ in range(N)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class OverTime(Net):
    def forward(self, x):
        for t in range(3):
            y = x + t
            for layer in self.layers:
                y = layer(y)
        return y


class Backwards(Net):
    """The states are read after the loop; and there is another loop."""

    def forward(self, x):
        for k in range(N - 1, -1, -1):
            x = self.layers[k](x)
        total = self.layers[3].v
        for layer in self.layers:
            total = total + layer.v
            x = layer(x)
        return x, total


class OtherName(Net):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x) + self.layers[0].v
        return x


class StoredByName(Net):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            self.layers[0].v = self.layers[0].v + 1
        return x


class Copied(Net):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x) + copy.copy(layer).v
        return x


class Listed(Net):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x) + len(layer.buffers())
        return x


class Stops(Net):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            if x.max() > 0.5:
                break
        return x


class Turned(Net):
    """The state of another Layer."""

    def forward(self, x):
        for one, two in zip(self.layers, reversed(self.layers)):
            x = one(x) + two.v
        return x


ROLLED = {
    "neurons": lambda: Net(),
    "over_time": lambda: OverTime(),
    "adaptive": lambda: Net(Adaptive),
    "adaptive_over_time": lambda: OverTime(Adaptive),
    "computed": lambda: Net(Computed),
    "backwards": lambda: Backwards(),
}
WRITTEN_OUT = {
    "shared": lambda: Net(Shared),
    "keeps_its_input": lambda: Net(KeepsInput),
    "on_data": lambda: Net(OnData),
    "in_an_inner_loop": lambda: Net(InALoop),
    "another_name": lambda: OtherName(),
    "stored_by_another_name": lambda: StoredByName(),
    "copied": lambda: Copied(),
    "stops": lambda: Stops(),
    "another_layer": lambda: Turned(),
}


def states(model):
    """The attributes of all Layers."""
    every = [getattr(layer, n, None) for layer in model.layers for n in KEPT]
    return [paddle.to_tensor(q) if isinstance(q, (int, float)) else q for q in every]


def calls(model, trained, changes):
    """What two calls give and leave in the Layers, and the gradients."""
    out = []
    for k in range(2):
        x = check.data(2, 4, seed=k, trained=trained)
        if k == 1 and changes:
            for layer in model.layers:
                layer.v = layer.v.detach() * 0.5
        found = check.tensors([model(x)])
        held = [*found, *check.tensors(states(model))]
        out += [*held, check.relations(held)]
        if trained:
            model.clear_gradients()
            sum((q * q).sum() for q in found).backward(retain_graph=True)
            grads = [p.grad for p in (x, *model.parameters())]
            out += [None if g is None else g.clone() for g in grads]
    return out


def agree(make, trained, changes=True):
    """As eager; returns the kinds of the loops."""
    with check.default_dtype("float64"):
        models = []
        for wrap in (lambda q: q, dy2st.to_static):
            paddle.seed(1)
            models.append(wrap(make()))
        want, have = (calls(q, trained, changes) for q in models)
        check.same(have, want, rtol=1e-9, atol=1e-9)
        x = check.data(2, 4, trained=trained)
        return [q.kind for q in dy2st.report(models[1], x).loops]


@pytest.mark.sampled(every=10)
@pytest.mark.parametrize("name", ROLLED)
def test_one_loop_stores_the_attributes_of_all_layers(name):
    assert set(agree(ROLLED[name], True)) == {"scan"}


@pytest.mark.slow
def test_one_loop_stores_them_where_no_gradient_is_recorded():
    assert set(agree(ROLLED["adaptive_over_time"], False)) == {"scan"}


@pytest.mark.slow
@pytest.mark.sampled(every=12)
@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_attributes_that_one_list_cannot_hold(name):
    """A loop over Layers that are not alike, as `on_data` leaves them, is not in the report."""
    kinds = agree(WRITTEN_OUT[name], True, changes=False)
    assert "written out" in kinds or not kinds


def test_layers_that_are_listed():
    with pytest.raises(dy2st.SourceError, match="v is listed after it was stored"):
        dy2st.to_static(Listed())(check.data(2, 4, dtype="float32"))
