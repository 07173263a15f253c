"""Places that data chooses: counters of actions, ring buffers whose place wraps around."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import paddle
import pytest

import dy2st
from tests.portrait import difference, portrait


def counted():
    s = SimpleNamespace(n=[0, 0, 0, 0], mean=[0.0, 0.0, 0.0, 0.0])

    def f(x):
        a = int(x.argmax())
        s.n[a] += 1
        s.mean[a] += (float(x[a]) - s.mean[a]) / s.n[a]
        return a, s.n[a]

    return f, s


def from_the_end():
    s = SimpleNamespace(n=[0, 0, 0, 0])

    def f(x):
        s.n[-1 - int(x.argmax())] = 7
        return x

    return f, s


def outside_of_the_list():
    s = SimpleNamespace(n=[0, 0, 0])

    def f(x):
        s.n[int(x.argmax())] = 7
        return x

    return f, s


def ints_that_become_floats():
    s = SimpleNamespace(n=[0, 0, 0, 0], weights=(1, 0.5, 2, 3))

    def f(x):
        for k in (int(x.argmax()), int(x.argmin())):
            s.n[k] += s.weights[k]
        return s.n[int(x.argmax())], x * s.weights[int(x.argmin())]

    return f, s


def outside_of_a_tuple():
    s = SimpleNamespace(weights=(1, 0.5, 2))

    def f(x):
        return s.weights[int(x.argmax())]

    return f, s


def in_a_loop():
    s = SimpleNamespace(n=[0, 0])

    def f(x):
        for t in range(x.shape[0]):
            s.n[int(x[t] > 0)] += 1
        return x.sum()

    return f, s


def in_a_branch():
    s = SimpleNamespace(n=[0, 0, 0, 0])

    def f(x):
        if x.sum() > 0:
            s.n[int(x.argmax())] += 2
        return x

    return f, s


def drawn():
    s = SimpleNamespace(n=[0, 0])

    def f(x):
        s.n[random.randrange(2)] += 1
        return x

    return f, s


def tensors():
    s = SimpleNamespace(h=[paddle.zeros([4]) for _ in range(4)])

    def f(x):
        k = int(x.argmax())
        s.h[k] = s.h[k] * 0.5 + x
        return s.h[k] + 0

    return f, s


def ring(use):
    def make():
        s = SimpleNamespace(rows=paddle.zeros([5]), at=0, full=False)

        def f(x):
            for t in range(3):
                s.rows[s.at] = x[t]
                s.at = (s.at + 1) % 5
                if s.at == 0:
                    s.full = True
            return use(s)

        return f, s

    return make


def filled(s):
    return s.rows.mean() if s.full else s.rows[: s.at].mean()


def newest(s):
    return s.rows[: s.at].sum(), s.rows[s.at :].sum()


CASES = {
    f.__name__: f
    for f in (
        counted,
        from_the_end,
        outside_of_the_list,
        ints_that_become_floats,
        outside_of_a_tuple,
        in_a_loop,
        in_a_branch,
        drawn,
        tensors,
    )
}
CASES |= {"ring_filled": ring(filled), "ring_newest": ring(newest)}


@pytest.mark.parametrize("name", CASES)
def test_places_that_data_or_a_loop_decides(name):
    (eager, left), (f, right) = CASES[name](), CASES[name]()
    static = dy2st.to_static(f)
    for k in range(5):
        x = paddle.to_tensor(np.random.default_rng(k).normal(size=4).astype("float32"))
        want, have = (observed(g, x) for g in (eager, static))
        assert not difference(portrait((want, left)), portrait((have, right))), k


def observed(f, x):
    random.seed(3)
    try:
        return f(x)
    except IndexError as e:
        return str(e)


def test_a_store_to_one_of_many_elements_is_refused():
    many = [0] * 65

    @dy2st.to_static
    def f(x):
        many[int(x.argmax())] = 1

    with pytest.raises(dy2st.SourceError, match="a list index"):
        f(paddle.ones([3]))
    assert many == [0] * 65
