"""What training scripts keep beside a model: schedulers and distributions of Paddle's, counters,
beams. Four calls with changes between them are those of eager."""

from __future__ import annotations

import argparse
import copy
import enum
import functools
import heapq
import itertools
import types
import warnings

import paddle
import pytest

import dy2st
from dy2st.compiled import autograd_engine
from tests.dy2st.state.test_idioms import observed, quarters
from tests.portrait import difference, portrait

CASES = []
Space = types.SimpleNamespace


def case(make):
    CASES.append(pytest.param(make, id=make.__name__))
    return make


@pytest.mark.parametrize("make", CASES)
def test_four_calls(make):
    made = [make(), make()]
    static = dy2st.to_static(made[1][0])
    for k in range(4):
        for _, state, *change in made if k else ():
            for q in change:
                q(state, k)
        one, two = quarters(k), quarters(k)
        want = observed(made[0][0], one, k), one, vars(made[0][1])
        have = observed(static, two, k), two, vars(made[1][1])
        assert not difference(portrait(have), portrait(want)), f"call {k}"


# ---------------------------------------------------------------- objects of Paddle
@case
def scheduler_that_the_caller_steps():
    decay = paddle.optimizer.lr.StepDecay(learning_rate=1.0, step_size=1, gamma=0.5)
    warm = paddle.optimizer.lr.LinearWarmup(decay, 2, 0.0, 1.0)

    def f(x):
        return x * decay.get_lr() + warm(), decay.last_epoch

    def change(s, k):
        decay.step(), warm.step()

    return f, Space(), change


@case
def scheduler_that_the_function_steps():
    decay = paddle.optimizer.lr.StepDecay(learning_rate=1.0, step_size=2, gamma=0.5)

    def f(x):
        y = x * decay.get_lr()
        decay.step()
        return y

    return f, Space(lr=vars(decay))


@case
def rate_of_an_optimizer():
    w = paddle.create_parameter([2], "float32")
    sgd = paddle.optimizer.SGD(0.5, parameters=[w])

    def f(x):
        return x * sgd.get_lr()

    return f, Space(), lambda s, k: sgd.set_lr(1.0 / k)


@case
def distribution_from_outside():
    prior = paddle.distribution.Normal(0.0, 1.0)

    def f(x):
        return prior.log_prob(x) + prior.variance, x + prior.mean

    def change(s, k):
        if k == 1:
            prior.loc.set_value(paddle.ones(prior.loc.shape))
        if k == 2:
            prior.scale = paddle.full(prior.loc.shape, 2.0)

    return f, Space(), change


@case
def transform_that_draws():
    flip = paddle.vision.transforms.RandomHorizontalFlip(0.5)

    def f(x):
        return flip(x.unsqueeze(0)), flip(x.unsqueeze(0))

    return f, Space()


# ---------------------------------------------------------------- Python's own
@case
def counter_that_a_text_shows():
    """A refused translation with the counter as an input left what stood for it in the object."""
    s = Space(a=1.0)

    def f(x):
        s.n = getattr(s, "n", 0) + 1
        return x * s.n, ", ".join(f"{k}={v}" for k, v in sorted(vars(s).items()))

    return f, s


@case
def lengths_of_iterators_that_change():
    s = Space(n=1)

    def f(x):
        s.n += 1
        return x * sum(itertools.islice(itertools.count(1), s.n)), "ab".ljust(s.n, ".")

    return f, s


@case
def beam_of_python_numbers():
    s = Space(width=2)

    def f(x):
        beams = [(0.0, [0])]
        for t in range(3):
            found = [(v * (t + 1) + score, [*path, v]) for score, path in beams for v in range(3)]
            beams = heapq.nlargest(s.width, found)
        return x * beams[0][0], [path for _, path in beams]

    return f, s, lambda s, k: setattr(s, "width", k)


@case
def configuration_in_a_namespace():
    """As `argparse` gives it."""
    inner = argparse.Namespace(rate=2.0)
    s = Space(args=argparse.Namespace(inner=inner), other=inner)

    def scaled(x, inner, **rest):
        return x * inner.rate + len(rest)

    def f(x):
        y = scaled(x, **vars(s.args)) + dict(vars(s.args))["inner"].rate
        y = y * (2 if s.args.inner is s.other else 3) + (s.args.inner == s.other)
        later = copy.deepcopy(s.args)
        later.inner.rate += 1.0
        return y * later.inner.rate + copy.copy(s.args).inner.rate, str(s.args), f"{[s.args]}"

    def change(s, k):
        if k == 1:
            s.args.inner.rate = 5.0
        if k == 2:
            s.args.inner = argparse.Namespace(rate=7.0)
        if k == 3:
            s.args.name, s.other = "a", s.args.inner

    return f, s, change


class Mode(enum.Enum):
    FAST = (1, 2.0)
    SLOW = (2, 3.0)

    def __new__(cls, value, rate):
        made = object.__new__(cls)
        made._value_, made.rate = value, rate
        return made

    @classmethod
    def _missing_(cls, value):
        return cls.FAST


@case
def members_by_a_value_that_changes():
    s = Space(mode=1)

    def f(x):
        return x * Mode(s.mode).rate, Mode(9).name, Mode["SLOW"].value

    return f, s, lambda s, k: setattr(s, "mode", 1 + k % 2)


class Tables:
    scale = 2.0

    @functools.cached_property
    def ones(self):
        return paddle.ones([4]) * self.scale


@case
def cached_property_first_read_in_a_loop():
    """The check of the call computed it."""
    s = Space(tables=Tables())

    def f(x):
        for i in range(5):
            x = x + s.tables.ones * i
        return x

    return f, s, lambda s, k: setattr(s, "tables", Tables())


class Delegates:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.__dict__["inner"], name)


@case
def attribute_that_a_loop_stores_beside_that_of_another_object():
    s = Space(outer=Delegates(Space(last=7.0)))

    def f(x):
        for i in range(5):
            s.outer.last = x * i
            x = x + s.outer.last * 0.5
        return x

    return f, s, lambda s, k: s.outer.__dict__.pop("last")


def test_a_first_call_in_training_warns_of_nothing():
    autograd_engine.tried.cache_clear()
    w = paddle.create_parameter([2], "float32")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dy2st.to_static(lambda x: (x * w).sum())(paddle.ones([2])).backward()
