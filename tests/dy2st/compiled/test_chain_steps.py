"""Three steps of SGD of Layers that write in place, each step compared with eager Paddle.

`a` is a buffer, a parameter or an argument; it ends returned, kept for the backward, both, or only
written. After the steps `a` is overwritten between forward and backward: where eager kept it,
backward must raise; where eager kept another tensor with the same values, it must not.
"""

from __future__ import annotations

import importlib
import textwrap

import numpy as np
import paddle
import pytest

import dy2st
from dy2st.compiled.training import TrainingPrograms
from ir import Slot
from tests.dy2st.compiled.test_slots import from_source
from tests.ir.analysis.test_chains import by_value
from tests.parity.models.chains import Chains

SOURCES = {"buffer": "self.a", "param": "self.p", "arg": "arg"}
CHAIN = """
with paddle.no_grad():
    {A}.scale_(0.5)
    {A}.add_(x)
    {A}.tanh_()
"""
ENDS = {
    "output": "return (self.w * x).sum(), {A}",
    "backward": "return (self.w * {A}).sum(), None",
    "both": "return (self.w * {A}).sum(), {A}",
    "written": """
        h = paddle.exp(x)
        with paddle.no_grad():
            {A}[:] = h
        return (self.w * h).sum(), None""",
}
#: name -> (body, what is kept of the storages: "slot", "kept" a copy, or nothing)
CASES: dict[str, tuple[str, str]] = {}
for source, name in SOURCES.items():
    for end, text in ENDS.items():
        body = (CHAIN + textwrap.dedent(text)).replace("{A}", name)
        CASES[f"{source}-{end}"] = (body, "slot" if end in ("backward", "both") else "")
CASES |= {
    "two chains that meet": (
        "self.a.add_(self.b)\nself.b.multiply_(self.a)\nreturn (self.w * self.a * self.b).sum(), 0",
        "slot",
    ),
    "a chain that ends in a view": (
        "self.a.add_(x)\nv = self.a[1:]\nreturn (self.w[:2] * v).sum(), v",
        "slot",
    ),
    "a chain through a view": (
        "self.a[1:].add_(x[1:])\nreturn (self.w * self.a).sum(), self.a",
        "slot",
    ),
    "a chain through a loop": (
        "for t in range(4):\n    self.a.add_(x)\nreturn (self.w * self.a).sum(), self.a",
        "slot",
    ),
    "a chain through a while loop": (
        "while self.a.sum() < 9:\n    self.a.add_(x * x + 1)\nreturn (self.w * self.a).sum(), 0",
        "slot",
    ),
    "a chain through a branch": (
        """
if x.sum() > 0:
    self.a.add_(x)
else:
    self.a.subtract_(x)
return (self.w * self.a).sum(), self.a""",
        "slot",
    ),
    "broken by a clone": (
        "self.a.add_(x)\nc = self.a.clone()\nreturn (self.w * c).sum(), c",
        "",
    ),
    "broken by set_value": (
        "self.a.set_value(paddle.tanh(x))\nreturn (self.w * self.a).sum(), self.a",
        "kept",
    ),
    "broken by copy_": (
        "self.a.copy_(paddle.tanh(x), True)\nreturn (self.w * self.a).sum(), 0",
        "kept",
    ),
    "equal to what is kept": (
        "y = paddle.tanh(x)\nself.a[:] = y\nreturn (self.w * y).sum(), 0",
        "",
    ),
    "mean1, batch_norm_, mean2": (
        """
mean1 = self.a
mean1.scale_(0.9)
mean1.add_(x * 0.1)
mean2 = mean1
return ((x - mean2) * self.w + mean2 * self.w).sum(), 0""",
        "slot",
    ),
    "batch_norm of Paddle, its mean kept": (
        """
rows = paddle.stack([x, x * 2.0, x - 1.0])
y = paddle.nn.functional.batch_norm(rows, self.a, self.b, training=True)
return (y * rows * self.w * self.a).sum(), 0""",
        "kept",
    ),
    "written with a trained value": (
        "self.a.add_(self.w * x)\nreturn (self.a * self.w).sum(), self.a",
        "slot",
    ),
}


def make(body: str):
    class Net(paddle.nn.Layer):
        forward = from_source(body, "self, x, arg")

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", paddle.to_tensor([0.3, 0.1, -0.2]))
            self.register_buffer("b", paddle.to_tensor([0.4, -0.6, 0.8]))
            self.w, self.p = (
                self.create_parameter(
                    [3],
                    default_initializer=paddle.nn.initializer.Assign(np.array(start, "float32")),
                )
                for start in ([2.0, -1.0, 0.5], [0.2, 0.9, -0.7])
            )

    return Net()


def same(nets, what) -> None:
    tensors = [{**dict(n.named_parameters()), **dict(n.named_buffers())} for n in nets]
    for name, want in tensors[0].items():
        have = tensors[1][name]
        np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=2e-6, err_msg=f"{what} {name}")
        if not isinstance(want, paddle.base.framework.EagerParamBase):
            continue
        grads = [t[name].grad for t in tensors]
        assert (grads[0] is None) == (grads[1] is None), (what, name)
        if grads[0] is not None:
            np.testing.assert_allclose(grads[1].numpy(), grads[0].numpy(), rtol=4e-6, atol=1e-7)


def steps(body: str, kept: str) -> None:
    eager = make(body)
    nets = eager, dy2st.to_static(make(body))
    rng = np.random.default_rng(4)
    optimisers = [paddle.optimizer.SGD(0.1, parameters=n.parameters()) for n in nets]
    args = [paddle.to_tensor([0.6, -0.4, 0.1]) for _ in nets]
    for k in range(3):
        x = paddle.to_tensor(rng.normal(size=3).astype("float32"))
        outs = [net(x, arg) for net, arg in zip(nets, args)]
        for (loss, second), net, arg in zip(outs, nets, args):
            places = {id(net.a): "a", id(net.p): "p", id(arg): "arg"}
            assert places.get(id(second), "") == places_of(outs[0][1], eager, args[0]), k
            loss.backward()
        same(nets, f"step {k}")
        for values in (zip(*outs), [args]):
            for one, two in values:
                if isinstance(one, paddle.Tensor):
                    np.testing.assert_allclose(two.numpy(), one.numpy(), rtol=2e-6)
        for optimiser, net in zip(optimisers, nets):
            optimiser.step()
            optimiser.clear_grad()
            net.a = net.a.detach()
        same(nets, f"after step {k}")
    overwritten(nets, args, kept)
    check_memory(nets[1], args[1], kept)


def places_of(x, net, arg) -> str:
    return {id(net.a): "a", id(net.p): "p", id(arg): "arg"}.get(id(x), "")


def overwritten(nets, args, kept: str) -> None:
    """A write between forward and backward matters as in eager; not where a copy is kept."""
    x = paddle.to_tensor([0.5, 0.25, -0.125])
    found = []
    for net, arg in zip(nets, args):
        loss, _ = net(x, arg)
        if net is nets[1] or kept != "kept":
            with paddle.no_grad():
                for t in (net.a, net.b, net.p, arg):
                    t.add_(paddle.ones([3]))
        try:
            loss.backward()
            found.append(net.w.grad.numpy().round(4).tolist())
        except (RuntimeError, OSError, ValueError):
            found.append("raises")
        net.clear_gradients()
        net.a = net.a.detach()
    assert found[0] == found[1]


def check_memory(net, arg, kept: str) -> None:
    """A slot is no second variable; a copy is in the report, with its reason. batch_norm and
    set_value leave the version as it is, so what they have written is kept as a copy."""
    x = paddle.to_tensor([0.5, 0.25, -0.125])
    training = net.forward.entry(x, arg).training
    assert isinstance(training, TrainingPrograms)
    g = training.gradient
    of_storage = {r.source for r in g.residuals if r.source == "slot" or r.copy_of >= 0}
    assert of_storage == ({kept} if kept else set())
    if kept == "slot":
        again = {v for v in g.forward.outputs[training.results :] if not isinstance(v, Slot)}
        values = dict(g.forward.writes).values()
        assert again.isdisjoint(values), "what is written back is kept a second time"
    report = dy2st.report(net.forward, x, arg)
    for chain in report.chains:
        if chain.name == "a" and kept == "kept":
            assert not chain.in_place and "does not move the version" in chain.broken[-1][0]
    assert report.residuals == g.report and "read by the backward" in str(report)


@pytest.mark.sampled
@pytest.mark.quick(
    "buffer-backward", "param-output", "param-written", "arg-both", "a chain through a branch"
)
@pytest.mark.parametrize("name", CASES)
def test_three_steps_equal_those_of_eager(name):
    steps(*CASES[name])


@pytest.mark.sampled
@pytest.mark.quick("buffer-both", "param-backward", "param-both", "arg-backward", "arg-both")
@pytest.mark.parametrize("name", [n for n, (_, kept) in CASES.items() if kept == "slot"])
def test_the_steps_fail_without_slots(name, monkeypatch):
    monkeypatch.setattr(importlib.import_module("ir.autodiff"), "sources", lambda program: {})
    with pytest.raises(AssertionError):
        steps(*CASES[name])


#: what is written to a parameter passes no gradient on: the program has another value for it
OTHERS = ("buffer-output", "param-output", "arg-output", "param-written")
WRITTEN = [n for n, (_, kept) in CASES.items() if kept != "slot" and n not in OTHERS]


@pytest.mark.parametrize("name", WRITTEN)
def test_the_steps_fail_if_equal_values_are_one_tensor(name, monkeypatch):
    by_value(monkeypatch)
    gradient = importlib.import_module("dy2st.compiled.training")
    plain = gradient.differentiate
    monkeypatch.setattr(gradient, "differentiate", lambda *args, slots: plain(*args, slots=True))
    with pytest.raises(AssertionError):
        steps(*CASES[name])


def test_the_report_of_a_training_call(golden):
    """Every storage that is written with its links, its end, and why one is copied."""
    model = dy2st.to_static(Chains())
    report = dy2st.report(model, paddle.ones([4, 3]))
    assert str(report) == golden
    assert [(q.name, q.in_place) for q in report.chains if q.written] == [
        ("seen", True),
        ("mean", True),
        ("history", True),
        ("last", False),
    ]
    assert {q.name for q in report.chains if not q.written} == {"x", "scale"}


@pytest.mark.sampled
def test_a_report_says_once_what_is_alike():
    blocks = [
        layer for _ in range(4) for layer in (paddle.nn.Linear(3, 3), paddle.nn.BatchNorm1D(3))
    ]
    net = dy2st.to_static(paddle.nn.Sequential(*blocks))
    text = str(dy2st.report(net, paddle.ones([2, 3])))
    assert text.count("only written") == 1 and ", as are 7 others" in text
    assert "%weight: f32[3,3]: reuse (" in text
