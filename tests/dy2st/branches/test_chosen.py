"""Layers and functions that data or a random number chooses."""

from __future__ import annotations

import random

import paddle
import pytest
from paddle import nn

import dy2st
from tests import check

X = paddle.to_tensor([[0.25, -0.5], [1.0, 0.75]])


class Routed(nn.Layer):
    def __init__(self):
        super().__init__()
        paddle.seed(4)
        self.experts = nn.LayerList([nn.Linear(2, 2) for _ in range(3)])
        self.others = [nn.Linear(2, 2), nn.Tanh(), lambda x: x * 3]


def of_a_layer_list(net, x):
    return net.experts[int(x.abs().sum()) % 3](x)


def from_the_end(net, x):
    return net.experts[-1 - int(x.sum() > 1)](x) + net.others[int(x.min() > 0) - 2](x)


def of_a_list(net, x):
    return net.others[int(x.argmax()) % 3](x) * 2


def of_functions(net, x):
    return [paddle.tanh, paddle.sin, nn.functional.relu][int(x.sum()) % 3](x)


def by_chance(net, x):
    y = random.choice(net.experts)(x)
    return net.others[random.randrange(3)](y) + random.choice([paddle.tanh, paddle.exp])(x)


def tensors_by_chance(net, x):
    return random.choice([x, x * 2, -x]) + random.choice((x[0], x[1]))


def in_a_loop(net, x):
    for _ in range(4):
        x = random.choice(net.experts)(x)
        x = net.experts[int(x.abs().max() * 7) % 3](x) + 1
    return x


def in_a_random_order(net, x):
    order = list(range(3))
    random.shuffle(order)
    for k in order:
        x = net.experts[k](x) + 1
    return x


def shuffled(net, x):
    layers, rows = list(net.experts), [x[0], x[1]]
    random.shuffle(layers)
    random.shuffle(rows)
    for layer in layers:
        x = layer(x) * 0.5
    return x, paddle.stack(rows)


def in_a_branch(net, x):
    if x.sum() > 1:
        x = random.choice(net.experts)(x)
    return x


CASES = [of_a_layer_list, from_the_end, of_a_list, of_functions, by_chance, tensors_by_chance,
         in_a_loop, in_a_random_order, shuffled, in_a_branch]  # fmt: skip


def calls(f, net):
    """Results, gradients and the state of the generator after some calls."""
    random.seed(5)
    found = []
    for k in range(6):
        x = X * (k - 1.5)
        x.stop_gradient = False
        out = f(net, x)
        sum(q.sum() for q in check.tensors(out)).backward()
        held = [*net.experts.parameters(), *net.others[0].parameters()]
        gradients = [p * 0 if p.grad is None else p.grad for p in held]
        found.append((out, x.grad, [q.detach() for q in gradients]))
        net.clear_gradients()
        net.others[0].clear_gradients()
    return found, random.getstate()


@pytest.mark.sampled(every=16)
@pytest.mark.parametrize("f", CASES)
def test_as_eager(f):
    net, other = Routed(), Routed()
    have, want = calls(dy2st.to_static(f), net), calls(f, other)
    check.same(have[0], want[0], rtol=1e-4, atol=1e-5)
    assert have[1] == want[1]


def test_an_index_outside_of_the_list():
    net, static = Routed(), dy2st.to_static(lambda net, x: net.experts[int(x.sum())](x))
    static(net, paddle.ones([1, 2]))
    with pytest.raises(IndexError, match="index out of range"):
        static(net, paddle.ones([2, 2]))


def test_a_changed_list_is_followed():
    net = Routed()
    static = dy2st.to_static(of_a_layer_list)
    with paddle.no_grad():
        check.same(static(net, X), of_a_layer_list(net, X))
        net.experts[2] = nn.Tanh()
        net.experts[1] = nn.Sigmoid()
        check.same(static(net, X), of_a_layer_list(net, X))


REFUSED = {
    "the attribute weight is read": lambda net, x: x + random.choice(net.experts).weight.sum(),
    "a comparison": lambda net, x: x if random.choice(net.experts) is net.experts[0] else -x,
    "the type is asked": lambda net, x: x * isinstance(random.choice(net.experts), nn.Linear),
    "the result contains": lambda net, x: (x, random.choice(net.experts)),
    "routed.chosen": lambda net, x: (setattr(net, "chosen", random.choice([paddle.tanh, len])), x)[
        1
    ],
    "code that is not translated calls": lambda net, x: x.apply_(random.choice(net.experts)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message):
    with pytest.raises(dy2st.SourceError, match=f"{message}|apply"):
        dy2st.to_static(REFUSED[message])(Routed(), X)
