"""Layers that change between calls: every kind of change, for every way to walk what a Layer holds.

A translated call sees the Layers, parameters, buffers, flags, methods and names of that moment.
"""

from __future__ import annotations

import copy
import itertools
import math
import types
import weakref

import paddle
import pytest

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=24)

nn = paddle.nn
X = paddle.to_tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])


def linear(k: int):
    """The same weights in the eager and in the translated model."""
    layer = nn.Linear(3, 3)
    layer.weight.set_value(paddle.arange(9, dtype="float32").reshape([3, 3]) * 0.1 - 0.3 * k)
    return layer


class Gain(nn.Layer):
    def __init__(self, k: int):
        super().__init__()
        self.gain = self.create_parameter([3])
        self.gain.set_value(paddle.full([3], 1.0 + 0.5 * k))
        self.register_buffer("shift", paddle.full([3], float(k)))

    def forward(self, x):
        return x * self.gain + self.shift


class Net(nn.Layer):
    """`walk` is a function of a model and its input."""

    def __init__(self, walk):
        super().__init__()
        self.layers = nn.LayerList([linear(0), Gain(1), linear(2)])
        self.table = nn.LayerDict({"a": linear(3), "b": Gain(4)})
        self.weights = nn.ParameterList([self.create_parameter([3]) for _ in range(2)])
        for k, w in enumerate(self.weights):
            w.set_value(paddle.full([3], 0.5 + k))
        self.block = nn.Sequential(linear(5), nn.ReLU(), Gain(6))
        self.nested = nn.LayerList([nn.LayerList([linear(7)]), nn.Sequential(Gain(8))])
        self.walk = walk

    def forward(self, x):
        return self.walk(self, x)


# ---------------------------------------------------------------- ways of walking
def chained(layers, x):
    for q in layers:
        if not isinstance(q, (nn.LayerList, nn.LayerDict, nn.ParameterList)):
            x = q(x)
    return x


def named_sum(pairs, x):
    for name, p in pairs:
        x = x + p.sum() * len(name)
    return x


def by_index(net, x):
    for k in range(len(net.layers)):
        x = net.layers[k](x) * (k + 1)
    return x


def by_name(net, x):
    for name in net.table:
        x = net.table[name](x) * len(name)
    return x


def of_items(net, x):
    for name, q in net.table.items():
        x = q(x) + ord(name[0])
    return x


def enumerated(net, x):
    for k, q in enumerate(net.layers):
        x = q(x) + k
    return x


def nested(net, x):
    for inner in net.nested:
        for q in inner:
            x = q(x)
    return x


def trainable(net, x):
    return x + sum(p.sum() for p in net.parameters() if not p.stop_gradient)


def by_flag(net, x):
    for q in net.layers:
        x = q(x) if getattr(q, "weight", None) is None or q.weight.trainable else x - 1
    return x


WALKS = {
    "for": lambda net, x: chained(net.layers, x),
    "by_index": by_index,
    "enumerated": enumerated,
    "reversed": lambda net, x: chained(reversed(net.layers), x),
    "zip": lambda net, x: chained([q for q, _ in zip(net.layers, range(9))], x),
    "list": lambda net, x: chained(list(net.layers), x),
    "slice": lambda net, x: chained(net.layers[1:], x),
    "last": lambda net, x: net.layers[-1](x),
    "len": lambda net, x: x * len(net.layers) + len(net.table) * len(net.block),
    "by_name": by_name,
    "of_items": of_items,
    "values": lambda net, x: chained(net.table.values(), x),
    "in": lambda net, x: x * (2 if "b" in net.table else 3),
    "parameter_list": lambda net, x: x + sum(w * 2 for w in net.weights),
    "block": lambda net, x: net.block(x),
    "of_block": lambda net, x: chained(net.block, x),
    "nested": nested,
    "children": lambda net, x: chained(net.children(), x),
    "named_children": lambda net, x: x + sum(len(n) for n, _ in net.named_children()),
    "sublayers": lambda net, x: chained([q for q in net.sublayers() if type(q) is Gain], x),
    "named_sublayers": lambda net, x: x + sum(len(n) for n, _ in net.named_sublayers()),
    "parameters": lambda net, x: x + sum(p.sum() for p in net.parameters()),
    "named_parameters": lambda net, x: named_sum(net.named_parameters(), x),
    "buffers": lambda net, x: x + sum(b.sum() for b in net.buffers()),
    "named_buffers": lambda net, x: named_sum(net.named_buffers(), x),
    "state_dict": lambda net, x: named_sum(net.state_dict().items(), x),
    "trainable": trainable,
    "by_flag": by_flag,
}


# ---------------------------------------------------------------- changes
def change(net, k, kind):
    """The change number k of a kind."""
    match kind:
        case "append":
            net.layers.append(linear(10 + k))
            net.weights.append(net.create_parameter([3], default_initializer=constant(k)))
        case "replace":
            net.layers[0] = linear(20 + k)
            net.table["a"] = linear(30 + k)
            net.block[0] = Gain(9 + k)
            net.nested[0][0] = Gain(3 + k)
        case "insert":
            net.layers.insert(0, Gain(11 + k))
            net.nested[1].insert(0, Gain(12 + k))
        case "delete":
            del net.layers[0], net.block[str(2 * k)]
        case "new name":
            net.table[f"long{k}"] = Gain(13 + k)
            net.add_sublayer(f"more{k}", Gain(14 + k))
        case "pop":
            net.table.pop("ab"[k])
        case "parameter":
            net.layers[0].weight = net.create_parameter([3, 3], default_initializer=constant(k))
            net.weights[0] = net.create_parameter([3], default_initializer=constant(k))
        case "state":
            net.set_state_dict({n: v + 1.0 + k for n, v in net.state_dict().items()})
        case "flag":
            w = net.layers[0].weight
            w.stop_gradient = not w.stop_gradient
        case "trainable":
            w = net.layers[2].weight
            w.trainable = not w.trainable
        case "buffer":
            net.layers[1].shift = paddle.full([3], 40.0 + k)
            net.layers[1].register_buffer(f"more{k}", paddle.full([2], 3.0))
        case "forward":
            net.layers[0].forward = types.MethodType(lambda self, x: x * (5 + k), net.layers[0])
            net.table["b"].forward = lambda x: x - k
        case "hook":
            net.layers[2].register_forward_post_hook(lambda layer, x, y: y * (2 + k))
        case "persistable":
            net.layers[1].register_buffer("shift", paddle.full([3], 2.0 + k), persistable=k == 1)


CHANGES = (
    "append|replace|insert|delete|new name|pop|parameter|state|flag|trainable|buffer|forward|hook|"
    "persistable"
).split("|")


def constant(k):
    return nn.initializer.Constant(0.25 + k)


def outcome(net, x):
    try:
        return net(x)
    except (IndexError, KeyError) as error:
        return error


def followed():
    """Each way over layers with a third of the changes, those over parameters and buffers with all;
    the rest is left to the night."""
    state = list(WALKS).index("parameters")
    for (i, walk), (j, kind) in itertools.product(enumerate(WALKS), enumerate(CHANGES)):
        rare = i < state and (i + j) % 3 != 0
        yield pytest.param(walk, kind, marks=[pytest.mark.nightly] * rare)


@pytest.mark.sampled
@pytest.mark.quick("for-append", "parameters-flag", "state_dict-buffer", "block-replace")
@pytest.mark.parametrize(("walk", "kind"), list(followed()))
def test_changes_are_followed(walk, kind):
    eager, static = Net(WALKS[walk]), dy2st.to_static(Net(WALKS[walk]))
    for k in range(3):
        want, have = outcome(eager, X), outcome(static, X)
        if isinstance(want, Exception):
            assert type(have) is type(want)
        else:
            check.same(have, want, what=f"call {k}")
        if k < 2:
            for net in (eager, static):
                change(net, k, kind)


@pytest.mark.slow
def test_nothing_is_translated_again_without_a_change():
    for walk in WALKS.values():
        static = dy2st.to_static(Net(walk))
        first = static.forward.entry(X)
        static(X)
        assert static.forward.entry(X) is first


# ---------------------------------------------------------------- methods, calls, flags
class Activated(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = linear(1)
        self.f = math.sin

    def act(self, x):
        return x * 2

    def forward(self, x):
        return self.act(self.inner(x)) * self.f(0.5)


METHODS = {
    "a function": lambda net: setattr(net, "act", paddle.tanh),
    "a method": lambda net: setattr(net, "act", types.MethodType(lambda self, x: x - 1, net)),
    "a builtin": lambda net: setattr(net, "f", math.cos),
    "of the class": lambda net: setattr(type(net), "act", lambda self, x: x * 7),
    "of a part": lambda net: setattr(type(net.inner), "forward", lambda self, x: x * 3),
}


@pytest.mark.parametrize("how", METHODS)
def test_a_method_that_is_replaced(how, monkeypatch):
    monkeypatch.setattr(nn.Linear, "forward", nn.Linear.forward)
    monkeypatch.setattr(Activated, "act", Activated.act)
    eager, static = Activated(), dy2st.to_static(Activated())
    check.same(static(X), eager(X))
    METHODS[how](eager)
    METHODS[how](static)
    check.same(static(X), eager(X))
    check.same(static(X), eager(X))


class Base(nn.Layer):
    def act(self, x):
        return x * 2

    def forward(self, x):
        return self.act(x)


def test_a_base_that_is_replaced():
    class Between:
        def act(self, x):
            return super().act(x) + 1

    class Net(Between, Base):
        def act(self, x):
            return super().act(x) * 3

    static = dy2st.to_static(Net())
    check.same(static(X), Net()(X))
    Net.__bases__ = (Base,)
    check.same(static(X), Net()(X))


class Doubled(nn.Linear):
    def __call__(self, x, *, by=2.0):
        return super().__call__(x) * by


class Calls(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner, self.plain = Doubled(3, 3), linear(2)
        self.inner.weight.set_value(linear(1).weight)

    def forward(self, x):
        both = self.inner(x) + self.inner(x, by=3.0)
        return both + self.plain.__call__(x) + nn.Layer.__call__(self.inner, x)


def test_a_part_with_a_call_of_its_own():
    static = check.parity(Calls(), lambda: [X])
    static.inner.register_forward_post_hook(lambda layer, x, y: y * 10)
    eager = copy.deepcopy(static)
    eager.forward = types.MethodType(Calls.forward, eager)
    check.same(static(X), eager(X))


def test_the_element_type_for_new_tensors():
    def f(x):
        return paddle.zeros([2]) + paddle.to_tensor(1.5), paddle.rand([2]).astype("bool")

    static = dy2st.to_static(f)
    for dtype in ("float32", "float64", "float32"):
        with check.default_dtype(dtype):
            check.same(static(X)[0], f(X)[0])


class Cached(nn.Layer):
    """Only the shape and the flags of its buffer are read."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", paddle.zeros([2, 3]))

    def forward(self, x):
        y = x * self.seen.shape[0] + (1 if self.seen.stop_gradient else 2)
        return y + len(self.seen.dtype.name) + self.seen.ndim


def test_what_is_read_of_a_tensor_without_its_elements():
    eager, static = Cached(), dy2st.to_static(Cached())
    changes = [[4, 3], "float64", False, [5]]
    for to in itertools.chain([None], changes):
        for net in (eager, static):
            if isinstance(to, list):
                net.seen = paddle.zeros(to)
            elif isinstance(to, str):
                net.seen = net.seen.astype(to)
            elif to is not None:
                net.seen.stop_gradient = to
        check.same(static(X), eager(X))


class Chain(nn.LayerList):
    """A list of Layers that walks itself."""

    def forward(self, x):
        for q in self:
            x = q(x)
        return x


@pytest.mark.parametrize("inner", [False, True], ids=["itself", "as a part"])
def test_a_list_of_layers_that_is_called(inner):
    make = lambda: Chain([Chain([linear(1)]) if inner else linear(1), linear(2)])  # noqa: E731
    eager, static = make(), dy2st.to_static(make())
    for k in range(3):
        check.same(static(X), eager(X))
        for net in (eager, static):
            (net[0] if inner else net).append(linear(3 + k))


def test_attributes_that_a_user_gives_to_tensors():
    class Marked(nn.Layer):
        def __init__(self):
            super().__init__()
            self.inner = linear(1)

        def forward(self, x):
            y = x * 2 if hasattr(self.inner.weight, "mark") else x
            return y * getattr(self.inner.weight, "gain", 3) + getattr(x, "more", 1)

    eager, static = Marked(), dy2st.to_static(Marked())
    x = X.clone()
    for name, value in ((None, 0), ("mark", 1), ("gain", 5), ("gain", 6), ("more", 2), ("more", 4)):
        for q in (eager.inner.weight, static.inner.weight, x):
            if name is not None:
                setattr(q, name, value)
        check.same(static(x), eager(x), what=str(name))


class Encoder(nn.Layer):
    def __init__(self):
        super().__init__()
        paddle.seed(1)
        part = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)
        self.encoder = nn.TransformerEncoder(part, 2)

    def forward(self, x):
        return self.encoder(x)


INNER = {
    "a layer of the list": lambda e: e.layers.__setitem__(0, e.layers[1]),
    "a layer more": lambda e: e.layers.append(e.layers[0]),
    "a function": lambda e: setattr(e.layers[0], "activation", paddle.tanh),
    "a part": lambda e: setattr(e.layers[1], "norm1", e.layers[0].norm2),
    "a parameter": lambda e: setattr(e.layers[1].linear1, "weight", e.layers[0].linear1.weight),
    "a number": lambda e: setattr(e.layers[0].norm1, "_epsilon", 1e-3),
    "a forward": lambda e: setattr(e.layers[0].linear2, "forward", lambda x: x[..., :4]),
}


@pytest.mark.sampled
@pytest.mark.quick("a function", "a parameter")
@pytest.mark.parametrize("what", INNER)
def test_parts_of_the_layers_of_paddle(what):
    eager, static = Encoder(), dy2st.to_static(Encoder())
    x = paddle.rand([2, 3, 4])
    for net in (eager, static):
        net.eval()
    check.same(static(x), eager(x), 1e-5, 1e-5)
    for net in (eager, static):
        INNER[what](net.encoder)
    check.same(static(x), eager(x), 1e-5, 1e-5)


class Scaled(nn.Linear):
    """A method of Paddle's reads attributes of the user's object."""

    def forward(self, x):
        return super().forward(x) * 2


def test_a_method_of_paddle_on_a_layer_of_the_user():
    eager, static = Scaled(3, 3), dy2st.to_static(Scaled(3, 3))
    for value in (1.0, 2.0):
        for net in (eager, static):
            net.weight = net.create_parameter([3, 3], default_initializer=constant(value))
        check.same(static(X), eager(X))


class Mutating(nn.Layer):
    def __init__(self, change):
        super().__init__()
        self.layers = nn.LayerList([linear(0), linear(1)])
        self.change = change

    def forward(self, x):
        self.change(self.layers)
        return chained(self.layers, x)


@pytest.mark.parametrize("how", ["append", "pop", "del", "item"])
def test_a_list_of_layers_is_not_changed_inside(how):
    new = linear(3)

    def change(layers):
        if how == "append":
            layers.append(new)
        elif how == "pop":
            layers.pop(0)
        elif how == "del":
            del layers[0]
        else:
            layers[0] = new

    static = dy2st.to_static(Mutating(change))
    before = list(static.layers)
    with pytest.raises(dy2st.SourceError):
        static(X)
    assert list(static.layers) == before


class Parent(nn.Layer):
    def __init__(self):
        super().__init__()
        self.last, self.kept, self.scale, self.seen = linear(1), linear(2), 2.0, None
        self.child = Child(self)

    def forward(self, x):
        return self.child(x)


class Child(nn.Layer):
    """It knows its parent by a weak reference, so that the parent is none of its sublayers."""

    def __init__(self, parent):
        super().__init__()
        self._parent, self._weight = weakref.ref(parent), weakref.ref(parent.kept.weight)

    def forward(self, x):
        parent = self._parent()
        y = parent.last(x) * parent.scale + self._weight().sum()
        parent.seen = y if parent.seen is None else parent.seen + y
        return parent.seen if parent.training else y


def test_a_parent_behind_a_weak_reference():
    eager, static = Parent(), dy2st.to_static(Parent())
    for change in (
        lambda m: None,
        lambda m: m.last.weight.set_value(paddle.ones([3, 3])),
        lambda m: setattr(m, "scale", 3.0),
        lambda m: setattr(m, "last", linear(4)),
        lambda m: m.eval(),
        lambda m: setattr(m, "seen", None),
    ):
        change(eager), change(static)
        check.same(static(X), eager(X))
        check.same(static.seen, eager.seen)
