"""Idioms of Python around a model: histories, meters, managers, records.

Each case makes a function, its state, and a change between calls. One copy is called eagerly and
one translated, four times each; after every call results, states, output, warnings, errors and
generators are equal. `programs`: so many translations are enough.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import io
import random
import types
import warnings
import weakref

import numpy as np
import paddle
import pytest

import dy2st
from tests.portrait import difference, portrait

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
        assert not difference(portrait(have), portrait(want)), f"call {k}"
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


# ---------------------------------------------------------------- meters
class Meter:
    def __init__(self):
        self.total, self.n = 0.0, 0

    def update(self, value):
        self.total += value
        self.n += 1

    def __str__(self):
        return f"{self.total:.2f} of {self.n}"


@case(3)
def meters_with_a_text():
    meters = collections.defaultdict(Meter)

    def f(x):
        for name, value in {"mean": x.mean(), "top": x.max().item()}.items():
            meters[name].update(value.item() if isinstance(value, paddle.Tensor) else value)
        print(", ".join(f"{k}: {m}" for k, m in meters.items()), "{}".format(meters["top"]))  # noqa: UP032
        return x

    return f, meters


@case(4)
def best_values_sorted_in_place():
    s = Space(top=[1.0])

    def f(x):
        s.top.append(float(x.mean()))
        s.top.sort(reverse=True)
        del s.top[2:]
        rows = [(float(x[t].sum()), t) for t in range(4)]
        rows.sort()
        return s.top[0], rows

    return f, s


# ---------------------------------------------------------------- errors
@case(2)
def error_with_several_arguments():
    def f(x):
        n = int((x > 0).sum())
        if n > 8:
            raise ValueError("many", n, {"mean": x.mean()}, [x[0]])
        for t in range(x.shape[0]):
            if x[t, 0] > 1.5:
                raise KeyError("row", t, float(x[t, 0]))
        return x

    return f, None


@case(3)
def error_behind_draws_and_prints():
    rng = np.random.default_rng(0)
    s = Space(n=0, drawn=[], seen=paddle.zeros([4]))

    def f(x):
        s.n += 1
        s.drawn.append(random.random())
        print("call", s.n)
        for t in range(x.shape[0]):
            s.seen.add_(x[t] * float(rng.random()))
            print("row", t, float(x[t, 0]))
            if x[t, 0] > 1:
                raise ValueError(f"row {t}")
        s.n += 10
        return x * np.random.rand()

    return f, s


@case(3)
def error_in_a_long_loop_that_prints():
    s = Space(n=0, h=paddle.zeros([4]))

    def f(x):
        for t in range(40):
            s.n += 1
            s.h.add_(x[t % 4])
            if s.h[0] > 3:
                print("stopped at", t)
                raise RuntimeError("diverged", t)
        return x

    return f, s


# ---------------------------------------------------------------- shuffles
@case(3)
def lists_that_are_shuffled():
    rng = random.Random(3)
    s = Space(order=[0, 1, 2, 3], rows=[1.0, 0.5, 4.0], pairs=[(1, 2.0)] * 2)

    def f(x):
        random.shuffle(s.order)
        rng.shuffle(s.rows)
        np.random.shuffle(s.pairs)
        y = x[0] * s.rows[0]
        for _ in range(9):
            random.shuffle(s.order)
            y = y * 0.5 + x[s.order[0]]
        if x.mean() > 0:
            random.shuffle(s.order)
        return y, x[s.order[-1]] * s.pairs[0][1]

    return f, s


# ---------------------------------------------------------------- objects
class Batch:
    def __init__(self, x, n=0, inner=None):
        self.x, self.n, self.inner = x, n, inner

    @property
    def size(self):
        return self.x.shape[0]

    def bump(self):
        self.n += 1
        return self


class Sub(Batch):
    @property
    def size(self):
        return 100


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    h: object
    n: object = 0


class Slots:
    __slots__ = ("h", "n")

    def __init__(self, h, n):
        self.h, self.n = h, n


class Output(collections.OrderedDict):
    def __getattr__(self, name):
        if name in self:
            return self[name]
        raise AttributeError(name)


@case(2, lambda k: Batch(quarters(k), k, Batch(paddle.ones([4]) * k, 1)))
def batch_that_is_written():
    s = Space(last=None, seen=[])

    def f(b):
        b.inner.x = b.inner.x + b.x.mean(0)
        b.x.add_(paddle.ones([]))
        for t in range(b.size):
            b.n += 1
            b.inner.bump().x = b.inner.x * 0.5 + b.x[t] * b.inner.n
        s.last = b
        s.seen.append(b.inner)
        return b, b.inner.x

    return f, s


@case(2, lambda k: [Batch(quarters(k), 1), Batch(quarters(k + 1), 2)])
def batches_in_a_list():
    def f(batches):
        total = 0
        for b in batches:
            total = total + b.x.sum(0) * b.n
            b.n += 1
        batches.append(batches[0])
        return total

    return f, None


@case(3, lambda k: (Sub if k == 2 else Batch)(quarters(k), k))
def batch_of_another_class():
    def f(b):
        if not hasattr(b, "seen"):
            b.seen = 0
        b.seen += 1
        return b.x * b.size * b.seen

    return f, None


@case(3, lambda k: [Batch(quarters(k), k)] * 2 if k % 2 else [Batch(quarters(k)), Batch(k)])
def one_object_or_two():
    def f(pair):
        a, b = pair
        a.n += 1
        b.n += 10
        return a.x * a.n + b.n, a is b

    return f, None


SHARED = [Batch(paddle.full([4], float(k)), k) for k in range(3)]


@case(4, lambda k: [SHARED[k % 3], quarters(k)])
def objects_that_are_known_elsewhere():
    known, weights = SHARED[1], {q: 2.0 + k for k, q in enumerate(SHARED)}
    listed, numbers = SHARED[:2], {id(q): k for k, q in enumerate(SHARED)}

    def f(pair):
        b, x = pair
        y = x * weights[b] + numbers[id(b)]
        return y, b is known, b in listed, b == SHARED[2], listed.count(b)

    return f, None


@case(1, lambda k: Space(x=quarters(k), lr=0.5, log=[k], out=None))
def namespaces():
    def f(c):
        c.out = c.x * c.lr
        c.log.append(c.out.mean())
        return c

    return f, None


@case(2, lambda k: Output(a=quarters(k), b=quarters(k + 1)) if k < 3 else Output(a=quarters(k)))
def outputs_like_dicts():
    def f(o):
        o["c"] = o.a + o.get("b", 1)
        return {name: q.sum() for name, q in o.items()}

    return f, None


@case(1, lambda k: Frozen(quarters(k), 1))
def records_with_slots():
    def f(r):
        found = []
        state = Slots(r.h[0], 0)
        for t in range(4):
            r = dataclasses.replace(r, h=r.h * 0.5 + t)
            state = Slots(state.h, state.n)
            state.h = state.h + r.h[t]
            state.n += 1
            found.append(Frozen(state.h, t))
        return r, state, found, found[-1].h

    return f, None


@case(2, lambda k: Batch(quarters(k), k))
def error_after_an_object_has_changed():
    def f(b):
        b.n += 1
        if b.x.mean() > 0:
            raise ValueError("high", b.n)
        b.n += 10
        return b.x

    return f, None


def test_a_program_does_not_keep_its_arguments():
    static = dy2st.to_static(lambda b: b.x * 2)
    found = []
    for k in range(3):
        b = Batch(quarters(k))
        static(b)
        found.append(weakref.ref(b))
        del b
    assert not any(q() is not None for q in found)


def test_what_an_assert_is_given_is_its_argument():  # pytest rewrites those of eager in tests
    @dy2st.to_static
    def f(x):
        n = int((x > 0).sum())
        assert n < 7, ("many", n, [float(x[0])])
        assert x[0] < 2, x[:2]
        assert n > 1, n
        return x

    with pytest.raises(AssertionError) as many:
        f(paddle.ones([8]))
    with pytest.raises(AssertionError) as large:
        f(paddle.full([4], 3.0))
    with pytest.raises(AssertionError) as few:
        f(paddle.zeros([4]))
    assert many.value.args == (("many", 8, [1.0]),) and few.value.args == (0,)
    assert large.value.args[0].tolist() == [3.0, 3.0]


@case(3)
def tuple_that_a_loop_rebinds():
    s = Space(state=(paddle.ones([4]), 0, "a"))

    def f(x):
        for t in range(x.shape[0]):
            s.state = (s.state[0] * 0.5 + x[t], s.state[1] + 1, s.state[2])
        return s.state[0] * s.state[1]

    def change(s, k):
        if k == 2:
            s.state = (*s.state[:2], "b")

    return f, s, change


# ---------------------------------------------------------------- namespaces that are compared
COMPARED = {
    "whole": lambda s: s.a == s.b,
    "unequal": lambda s: s.a != s.b,
    "in": lambda s: Space(k=1) in s.list,
    "list": lambda s: s.list == [Space(k=1)],
    "dict": lambda s: {"a": s.a} == {"a": s.b},
    "deque": lambda s: s.deque == collections.deque([Space(k=1)]),
    "count": lambda s: s.list.count(Space(k=1)),
    "chain": lambda s: s.a == s.b == Space(k=1, of=Space(k=2)),
    "text of one that holds itself": lambda s: "k=1" in f"{s.own}",
    "text of a deque": lambda s: str(s.deque) == "deque([namespace(k=1)])",
}


def compares(ask):
    s = Space(a=Space(k=1, of=Space(k=2)), b=Space(k=1, of=Space(k=2)), list=[Space(k=1)],
              deque=collections.deque([Space(k=1)]), own=Space(k=1))  # fmt: skip
    s.own.me = s.own

    def f(x):
        for _ in range(4):
            x = x * 2 if ask(s) else x + 1
        return x

    def change(s, k):
        s.a.of.k = s.list[0].k = s.deque[0].k = s.own.k = [0, 3, 1, 2][k]

    return f, s, change


for _name in COMPARED:
    CASES.append(
        pytest.param(lambda q=_name: compares(COMPARED[q]), 4, quarters, id=f"compared: {_name}")
    )


@case(5)
def tuple_in_a_list_that_a_branch_rebinds():
    s = Space(states=[(paddle.ones([4]), 0)])

    def f(x):
        h, n = s.states[0]
        if x.sum() > 0:
            s.states[0] = (h * 0.5 + x[0], n + 1)
        else:
            s.states[0] = (h * 0.25, n + 2)
        return s.states[0][0] * s.states[0][1]

    return f, s
