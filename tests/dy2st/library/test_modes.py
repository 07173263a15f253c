"""Modes and attributes of Layers that a function sets: as eager sets them, on every call."""

from __future__ import annotations

import paddle
import pytest
from paddle import nn

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=12)


def rows():
    return [paddle.arange(12, dtype="float32").reshape([4, 3])]


def modes(layer):
    return [q.training for q in layer.sublayers(include_self=True)]


class EvalInside(nn.Layer):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))

    def forward(self, x):
        self.net.eval()
        y = self.net(x)
        self.net.train()
        return y


class EvalAndBack(nn.Layer):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))

    def forward(self, x):
        before = self.training
        self.eval()
        y = self.net(x)
        if before:
            self.train()
        return y


class FrozenStatistics(nn.Layer):
    """The idiom of fine-tuning: batch norms in evaluation mode, whatever the model is in."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1D(3), nn.Dropout(0.5))

    def train(self, mode=True):
        super().train(mode)
        for q in self.net.sublayers():
            if isinstance(q, nn.BatchNorm1D):
                q.training = False
        return self

    def forward(self, x):
        self.train()
        return self.net(x)


class TrainingSet(nn.Layer):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        self.drop.training = False
        return self.drop(x)


class EvalFromTheSecondStep(nn.Layer):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        y = x[0]
        for t in range(4):
            if t > 0:
                self.drop.eval()
            y = self.drop(y) + x[t]
        return y


class CacheFlag(nn.Layer):
    """Known packages set a new attribute of `nn.TransformerEncoder`."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x):
        self.encoder._use_cache = True
        return self.encoder(x.reshape([1, 3, 4]))


class FlatWeights(nn.Layer):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 3)

    def forward(self, x):
        self.rnn.flatten_parameters()
        return self.rnn(x.unsqueeze(0))[0]


MODELS = [EvalInside, EvalAndBack, FrozenStatistics, TrainingSet, EvalFromTheSecondStep,
          CacheFlag, FlatWeights]  # fmt: skip


@pytest.mark.parametrize("kind", MODELS)
def test_calls_and_modes_after_them(kind):
    paddle.seed(0)
    eager = kind()
    paddle.seed(0)
    static = dy2st.to_static(kind())
    for call in range(4):
        if call == 2:
            eager.train(), static.train()
        want = check.observe(eager, rows(), lambda: modes(eager), call)
        have = check.observe(static, rows(), lambda: modes(static), call)
        assert want.error is None
        check.both_raise(have, want)
        check.equal(have, want, f"call {call}")
    if kind is CacheFlag:
        assert static.encoder._use_cache is True


def test_a_layer_that_is_added_gets_the_mode():
    static = dy2st.to_static(EvalInside())
    static(*rows())
    static.net.add_sublayer("late", nn.Dropout(0.9))
    eager = EvalInside()
    eager.set_state_dict(static.state_dict())
    eager.net.add_sublayer("late", nn.Dropout(0.9))
    check.same(static(*rows()), eager(*rows()))


class EvalThenFails(nn.Layer):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        self.drop.eval()
        name = "seen"
        setattr(self, name, x)
        return paddle.unique(x, axis=0)


def test_a_refusal_leaves_modes_and_attributes():
    static = dy2st.to_static(EvalThenFails())
    with pytest.raises(dy2st.SourceError):
        static(*rows())
    assert modes(static) == [True, True]
    assert not hasattr(static, "seen")


class ByName(nn.Layer):
    """Layers and states under names that are made of the index."""

    def __init__(self):
        super().__init__()
        for i in range(3):
            setattr(self, f"layer{i}", nn.Linear(3, 3))
        self.count = 0

    def forward(self, x):
        for i in range(3):
            x = getattr(self, f"layer{i}")(x)
            setattr(self, "state_" + str(i), x)
        name = "count"
        setattr(self, name, getattr(self, name) + 1)
        if hasattr(self, "once"):
            delattr(self, "once")
        else:
            self.once = True
        return x


def test_attributes_by_computed_names():
    paddle.seed(0)
    eager = ByName()
    paddle.seed(0)
    static = dy2st.to_static(ByName())
    for call in range(4):
        check.same(static(*rows()), eager(*rows()))
        for name in ("count", "state_0", "state_1", "state_2"):
            check.same(getattr(static, name), getattr(eager, name), what=f"{name}, call {call}")
        assert hasattr(static, "once") == hasattr(eager, "once")


def keyed(x):
    cache = {}
    for i in range(4):
        cache[f"step{i}"] = x[i] * i
        cache["_".join(["fmt", str(i)])] = x[i] + 1
    return cache


def test_keys_made_of_the_index_unroll_the_loop():
    static = dy2st.to_static(keyed)
    for _ in range(2):
        check.same(static(*rows()), keyed(*rows()))


class Bag(list):
    pass


def emptied(x, bag):
    for q in bag:
        x = x + q
    return x if bag else x * 2


@pytest.mark.parametrize("items", [0, 2])
def test_an_instance_of_a_subclass_of_list(items):
    static, x = dy2st.to_static(emptied), paddle.ones([3])
    bag = Bag(paddle.ones([3]) for _ in range(items))
    for _ in range(2):
        check.same(static(x, bag), emptied(x, bag))
