"""Idioms of Python around a model: histories, meters, managers, records.

Each case makes a function, its state, and a change between calls. One copy is called eagerly and
one translated, four times each; after every call results, states, output, warnings, errors and
generators are equal. `programs`: so many translations are enough.
"""

from __future__ import annotations

import collections
import contextlib
import io
import random
import types
import warnings

import numpy as np
import paddle
import pytest

import dy2st
from tests.portrait import difference, draw

pytestmark = pytest.mark.sampled(every=12)
CASES = []
Space = types.SimpleNamespace


def case(programs, make_x=None):
    def register(make):
        CASES.append(pytest.param(make, programs, make_x or quarters, id=make.__name__))
        return make

    return register


def quarters(k):
    """Numbers whose sums are exact, so that texts are equal."""
    x = np.random.default_rng(k).integers(-8, 9, [4, 4]) / 4
    return paddle.to_tensor(x.astype("float32"))


def observed(f, x, k):
    random.seed(k)
    np.random.seed(k)
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("always")
        try:
            result = f(x)
        except Exception as e:
            if isinstance(e, dy2st.SourceError):
                raise
            result = [type(e).__name__, e.args]
    texts = [(q.category.__name__, str(q.message)) for q in told]
    return result, out.getvalue(), texts, random.random(), float(np.random.rand())


@pytest.mark.parametrize(("make", "programs", "make_x"), CASES)
def test_four_calls(make, programs, make_x):
    made = [make(), make()]
    f, g = (q[0] for q in made)
    static = dy2st.to_static(g)
    for k in range(4):
        for _, state, *change in made if k else ():
            for q in change:
                q(state, k)
        one, two = make_x(k), make_x(k)
        want = observed(f, one, k), one, made[0][1]
        have = observed(static, two, k), two, made[1][1]
        assert not difference(draw(have, {}), draw(want, {})), f"call {k}"
    assert len(dy2st.explain(static).reasons) <= programs, dy2st.explain(static)


# ---------------------------------------------------------------- histories
@case(2)
def history_in_a_defaultdict():
    s = Space(history=collections.defaultdict(list))

    def f(x):
        losses = {"loss": x.mean(), "top": x.max()}
        for name, value in losses.items():
            s.history[name].append(float(value))
        for t in range(x.shape[0]):
            s.history["rows"].append(x[t].sum())
        return x * 2

    return f, s


@case(1)
def history_in_nested_dicts():
    history = {"loss": [], "by": {"w": collections.deque(maxlen=3)}, "other": [1]}

    def f(x):
        history["loss"].append(float(x.mean()))
        if x.shape[0] > 2:
            history["by"]["w"].extend([x.sum(), x.max()])
        return x

    def change(history, k):
        if k == 2:
            history["loss"] = [7]
        if k == 3:
            history["other"].append(2)

    return f, history, change


@case(2)
def history_by_setdefault():
    s = Space(history={})

    def f(x):
        s.history.setdefault("a", {}).setdefault("b", []).append(float(x.mean()))
        s.history.setdefault("c", [x.shape[0]]).append(1)
        return x

    return f, s


@case(4)
def history_that_is_read():
    s = Space(history=collections.defaultdict(list))

    def f(x):
        s.history["a"].append(float(x.mean()))
        if len(s.history["a"]) > 2:
            s.history["a"].clear()
        return x + len(s.history)

    return f, s


@case(1)
def one_list_by_two_names():
    one = []
    s = Space(history={"a": one, "b": one})

    def f(x):
        s.history["a"].append(1)
        s.history["b"].append(x.mean())
        s.history["a"].append(3)
        return x

    return f, s


# ---------------------------------------------------------------- warnings
@case(1)
def filters_of_warnings():
    def f(x):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="hid")
            if x.mean() > 0:
                warnings.warn("hidden", stacklevel=1)
            warnings.warn("other", stacklevel=1)
            for t in range(x.shape[0]):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    x = x + x[t]
                    warnings.warn("in a loop", stacklevel=1)
        warnings.warn("hidden no more", stacklevel=1)
        return x

    return f, None
