"""The node of a translated call runs as often as nodes of Paddle do, whoever asks."""

from __future__ import annotations

import contextlib
import gc
import os
import weakref

import paddle
import pytest
from paddle.base import core

import dy2st
from dy2st.compiled import autograd_engine
from ir.autodiff import NotDifferentiable
from tests.check import close, detached
from tests.dy2st.compiled.test_gradients_autograd import (
    X,
    Y,
    equal_outcomes,
    node_of_the_call,
    nodes,
    product,
)

pytestmark = pytest.mark.sampled


class Interrupted(Exception):
    pass


def interrupted(gradient):
    raise Interrupted


def test_backward_and_grad_in_turns():
    def run(f, args):
        x, y = args
        h, s = f(x, y)
        loss, found = (h * h).sum() + s, []
        for _ in range(2):
            found += paddle.grad(loss, [x, y], retain_graph=True)
            loss.backward(retain_graph=True)
            found += paddle.grad(s, [y], retain_graph=True)
        loss.backward()
        return [g.numpy() for g in (*found, x.grad, y.grad)]

    equal_outcomes(product, run, X, Y)


@pytest.mark.parametrize("without", [0, 1])
def test_no_grad_vars(without):
    def run(f, args):
        h, _ = f(*args)
        asked = args[1 - without]
        return [paddle.grad(h.sum(), [asked], no_grad_vars=[args[without]])[0].numpy()]

    equal_outcomes(product, run, X, Y)


def test_grad_after_a_backward_that_a_hook_has_interrupted():
    def run(f, args):
        x, y = args[0] * 1.0, args[1]
        hook = x.register_hook(interrupted)
        h, s = f(x, y)
        loss = h.sum() + s
        with pytest.raises((Interrupted, OSError)):
            loss.backward(retain_graph=True)
        hook.remove()
        found = paddle.grad(loss, [x, y], retain_graph=True)
        return [g.numpy() for g in found]

    equal_outcomes(product, run, X, Y)


def test_grad_after_a_backward_that_was_not_retained():
    def run(f, args):
        loss = f(*args)[0].sum()
        loss.backward()
        with pytest.raises((RuntimeError, SystemError)):
            paddle.grad(loss, args)
        return [a.grad.numpy() for a in args]

    equal_outcomes(product, run, X, Y)


def test_a_backward_inside_of_a_hook():
    def run(f, args):
        x, y = args
        h, s = f(x, y)
        inner = s * 2.0
        seen = []

        def hook(g):
            seen.append(paddle.grad(inner, [x], retain_graph=True)[0].numpy())
            inner.backward(retain_graph=True)
            seen.append(paddle.grad(inner, [x], retain_graph=True)[0].numpy())

        h.register_hook(hook)
        h.sum().backward(retain_graph=True)
        h.sum().backward()
        return [*seen, x.grad.numpy(), y.grad.numpy()]

    equal_outcomes(product, run, X, Y)


def test_an_error_that_a_hook_has_caught_is_not_that_of_its_pass():
    def run(f, args):
        h, s = f(*args)
        s.backward()

        def hook(g):
            with contextlib.suppress(RuntimeError, SystemError):
                s.backward()
            raise ValueError("mine")

        h.register_hook(hook)
        with pytest.raises(OSError, match="ValueError: mine"):
            h.sum().backward()
        return [a.grad.numpy() for a in args]

    equal_outcomes(product, run, X, Y)


def test_flags_of_gradients():
    def run(f, args):
        x, y = args
        seen = []
        c = x * 3.0
        c.register_hook(lambda g: seen.append(int(g.stop_gradient)))
        f(c, y)[0].sum().backward()
        return [*(int(a.grad.stop_gradient) for a in args), *seen, x.grad.numpy()]

    equal_outcomes(product, run, X, Y)


def test_passes_in_a_hook_of_an_input_whose_node_has_run():
    def run(f, args):
        x, y = args[0] * 1.0, args[1]
        h, s = f(x, y)
        inner, seen = s * 2.0, []

        def hook(g):
            if len(seen) < 2:
                seen.append(g.numpy())
                inner.backward(retain_graph=True)
                seen.append(paddle.grad(inner, [y], retain_graph=True)[0].numpy())

        x.register_hook(hook)
        (h.sum() + s).backward(retain_graph=True)
        (h.sum() + s).backward()
        return [*seen[:1], args[0].grad.numpy(), y.grad.numpy()]

    equal_outcomes(product, run, X, Y)


def test_backward_after_a_grad_that_was_not_retained():
    def run(f, args):
        h, s = f(*args)
        found = paddle.grad([h.sum(), s], args)
        (h.sum() + s).backward()
        return [g.numpy() for g in (*found, *(a.grad for a in args))]

    equal_outcomes(product, run, X, Y)


def test_a_graph_whose_results_go_in_a_hook():
    def run(f, args):
        h, s = f(*args)
        box, loss = [h, s], h.sum() + s
        h.register_hook(lambda g: box.clear())
        del h, s
        loss.backward(retain_graph=True)
        del loss
        return [a.grad.numpy() for a in args]

    equal_outcomes(product, run, X, Y)


def test_hooks_when_gradients_of_parameters_are_there():
    def run(f, args):
        seen = []
        for k, a in enumerate(args):
            a._register_backward_hook(lambda k=k: seen.append(float(k)))
        h, s = f(*args)
        (h.sum() + s).backward()
        return [*sorted(seen), *(a.grad.numpy() for a in args)]

    equal_outcomes(product, run, X, Y)


def test_a_child_process_runs_backwards_too():
    def run(f, args):
        h, s = f(*args)
        loss = h.sum() + s
        loss.backward(retain_graph=True)
        child = os.fork()
        if not child:
            try:
                loss.backward(retain_graph=True)
                paddle.grad(loss, args)
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        loss.backward()
        return [a.grad.numpy() for a in args]

    equal_outcomes(product, run, X, Y)


def test_a_pass_that_is_not_entered_from_paddles_python():
    """Somebody may hold the engine's function from before the first translation."""

    def run(f, args):
        h, s = f(*args)
        loss = (h.sum() + s).reshape([1])
        h.register_hook(lambda g: g * 2.0)
        autograd_engine.install()
        for _ in range(2):
            unknown = core.eager.run_backward.__dy2st_engine__
            unknown([loss], [paddle.ones_like(loss)], True, "")
            paddle.grad(loss, args, retain_graph=True)
        loss.backward()
        return [a.grad.numpy() for a in args]

    equal_outcomes(product, run, X, Y)


def test_memory_of_many_calls(young):
    static, args = dy2st.to_static(product), [detached(a) for a in (X, Y)]

    def step(k):
        h, s = static(*args)
        loss = h.sum() + s
        if k % 3 == 0:
            loss.backward(retain_graph=True)
        if k % 5 == 0:
            paddle.grad(loss, args, retain_graph=True)
        if k % 7:
            loss.backward()
        for a in args:
            a.clear_gradient(False)

    def objects():
        gc.collect()
        return len(gc.get_objects())

    for k in range(21):
        step(k)
    before = objects()
    for k in range(630):
        step(k)
    assert objects() - before < 60


# ---------------------------------------------------------------- hooks of results
def test_hooks_of_results_in_turns():
    def run(f, args):
        h, s = f(*args)
        seen = []
        first = h.register_hook(lambda g: g * 2.0)
        h.register_hook(lambda g: seen.append(g.numpy()))
        last = h.register_hook(lambda g: g + 1.0)
        s.register_hook(lambda g: g * 5.0)
        h.retain_grads()
        loss = (h * 3.0).sum() + s
        seen += [g.numpy() for g in paddle.grad(loss, [h, *args], retain_graph=True)]
        s.backward(retain_graph=True)
        loss.backward(retain_graph=True)
        seen.append(h.grad.numpy())
        assert first.remove()
        loss.backward(retain_graph=True)
        assert last.remove()
        loss.backward()
        return [*seen, h.grad.numpy(), *(a.grad.numpy() for a in args)]

    equal_outcomes(product, run, X, Y)


@pytest.mark.parametrize("before", [True, False])
def test_hooks_of_a_result_written_in_place(before):
    def run(f, args):
        h, s = f(*args)
        if before:
            h.register_hook(lambda g: g * 7.0)
        h.scale_(3.0)
        h.register_hook(lambda g: g + 2.0)
        (h.sum() + s).backward(retain_graph=True)
        return [a.grad.numpy() for a in args]

    equal_outcomes(product, run, X, Y)


def test_a_hook_that_runs_the_same_node():
    def run(f, args):
        h, s = f(*args)
        depth = []

        def hook(g):
            if not depth:
                depth.append(1)
                (h * 2.0).sum().backward(retain_graph=True)
                return g * 4.0

        s.register_hook(lambda g: g * 2.0)
        h.register_hook(hook)
        (h.sum() + s).backward(retain_graph=True)
        (h.sum() + s).backward()
        return [a.grad.numpy() for a in args]

    equal_outcomes(product, run, X, Y)


def test_an_exception_of_a_hook_of_a_result():
    def run(f, args):
        h, s = f(*args)
        hook = h.register_hook(interrupted)
        for _ in range(2):
            with pytest.raises(OSError, match="Interrupted"):
                (h.sum() + s).backward(retain_graph=True)
        hook.remove()
        (h.sum() + s).backward()
        return [a.grad.numpy() for a in args]

    equal_outcomes(product, run, X, Y)


def test_results_with_hooks_go_with_their_graph(young):
    static, before = dy2st.to_static(product), nodes()
    h, s = static(detached(X), detached(Y))
    alive = weakref.ref(node_of_the_call(before))
    h.register_hook(lambda g: g * 2.0)
    h.scale_(2.0)
    h.register_hook(lambda g: g * 2.0)
    (h.sum() + s).backward()
    del h, s
    assert alive() is None


# ---------------------------------------------------------------- builds of Paddle
@pytest.fixture
def fresh():
    autograd_engine.tried.cache_clear()
    yield
    autograd_engine.tried.cache_clear()


@pytest.mark.parametrize("seen", [b"", bytes(4096)])
def test_a_build_whose_nodes_are_unknown_has_no_backward(monkeypatch, fresh, seen):
    monkeypatch.setattr(autograd_engine, "memory", lambda address, count: seen)
    x, y = detached(X), detached(Y)
    h, _ = dy2st.to_static(product)(x, y)
    close(h.numpy(), product(x, y)[0].numpy(), 1e-9, "result")
    for _ in range(2):
        with pytest.raises(dy2st.Dy2stError, match="does not know this build.*paddle.no_grad"):
            h.sum().backward(retain_graph=True)


@pytest.mark.parametrize("place", [0, 64, 928])
def test_a_wrong_place_of_the_context_is_refused(monkeypatch, fresh, place):
    asked = []
    monkeypatch.setattr(autograd_engine, "places_of", lambda *args: asked.append(args) or [place])
    for _ in range(2):
        with pytest.raises(NotDifferentiable, match="something else where its context was"):
            autograd_engine.layout()
    assert len(asked) == 1, "a build that is not known is tried once"


def test_memory_that_is_not_there():
    with pytest.raises(OSError):
        autograd_engine.memory(8, 64)
    assert autograd_engine.places_of(bytes(8) + (5).to_bytes(8, "little") * 2 + b"0", 5) == [8, 16]
