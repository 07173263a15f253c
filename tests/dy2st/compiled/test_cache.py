"""The cache of a translated function: its bound, why each program was made, what it keeps alive."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref

import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from dy2st.compiled import cache
from tests import check

X = paddle.ones([2, 3])


def rows(n):
    return paddle.ones([n, 3])


# ---------------------------------------------------------------- the bound
def plus(x, y):
    return x.sum() + y


def test_the_least_recently_used_program_goes(monkeypatch):
    monkeypatch.setattr(cache, "MOST_PROGRAMS", 3)
    static = dy2st.to_static(plus)
    made = lambda: dy2st.explain(static).made  # noqa: E731
    for n in (1, 2, 3):
        static(rows(n), rows(1))
    static(rows(1), rows(1))
    with pytest.warns(dy2st.RecompileWarning):
        static(rows(4), rows(1))
    assert made() == 4
    for n in (1, 3, 4):
        static(rows(n), rows(1))
    assert made() == 4
    check.same(static(rows(2), rows(1)), plus(rows(2), rows(1)))
    assert made() == 5 and len(dy2st.explain(static).reasons) == 3


@pytest.mark.slow
def test_many_shapes_keep_few_programs():
    static = dy2st.to_static(plus)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(1, cache.MOST_PROGRAMS + 6):
            static(rows(n), rows(1))
    found = dy2st.explain(static)
    assert len(found.reasons) == cache.MOST_PROGRAMS and found.made == cache.MOST_PROGRAMS + 5
    (warning,) = (q for q in caught if q.category is dy2st.RecompileWarning)
    assert warning.filename == __file__
    assert str(warning.message) == (
        "dy2st: plus has 64 programs. From now on the one that was used least recently is dropped "
        "for each new one. What changes from call to call:\n"
        "  x: float32[1, 3], float32[2, 3], float32[3, 3], ...: one program with "
        'input_spec=[InputSpec([None, 3], "float32", "x"), InputSpec([1, 3], "float32", "y")]\n'
        "  dy2st.explain shows why each program was made."
    )


def test_the_suggested_spec_makes_one_program():
    static = dy2st.to_static(plus)
    for n in (1, 2, 3):
        static(rows(n), rows(1))
    (line,) = dy2st.explain(static).remedies
    spec = eval(line.split("input_spec=")[1], {"InputSpec": InputSpec})
    general = dy2st.to_static(plus, input_spec=spec)
    for n in (1, 2, 3):
        check.same(general(rows(n), rows(1)), plus(rows(n), rows(1)))
    assert dy2st.explain(general).made == 1


# ---------------------------------------------------------------- why each program was made
OFFSET = 1.0


class Part(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.drop, self.table = paddle.nn.Dropout(0.5), {"k": [1]}

    def forward(self, x):
        return self.drop(x) * len(self.table["k"])


class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.parts = paddle.nn.LayerList([Part()])
        self.mode, self.count = "fast", 1
        self.register_buffer("bias", paddle.zeros([3]))

    def forward(self, x, scale=1.0):
        for part in self.parts:
            x = part(x)
        y = x * scale + OFFSET + self.bias
        return y if self.mode == "fast" and self.count > 0 else -y


def attribute(name, value):
    return lambda net: setattr(net, name, value)


STEPS = {
    "mode": attribute("mode", "slow"),
    "table": lambda net: net.parts[0].table["k"].append(2),
    "p": lambda net: setattr(net.parts[0].drop, "p", 0.25),
    "eval": lambda net: net.eval(),
    "parts": lambda net: net.parts.append(Part()),
    "bias": attribute("bias", paddle.zeros([1, 3])),
    "hook": lambda net: net.register_forward_pre_hook(lambda layer, args: None),
    "method": attribute("extra_repr", lambda: "?"),
    "forward": lambda net: setattr(net.parts[0], "forward", lambda x: x),
}


@pytest.mark.slow
def test_explain_names_what_has_changed(golden, monkeypatch):
    static = dy2st.to_static(Net())
    static(X)
    static(rows(4))
    for step in STEPS.values():
        step(static)
        static(X)
    monkeypatch.setitem(globals(), "OFFSET", 2.0)
    static(X)
    with paddle.no_grad():
        static(X)
    static(X, 2.0)
    static(X.astype("float64"), scale=True)
    assert str(dy2st.explain(static)) == golden


def test_explain_without_calls():
    assert str(dy2st.explain(dy2st.to_static(plus))) == "plus: 0 programs"


# ---------------------------------------------------------------- what is kept alive
class Decorated(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner, self.calls = paddle.nn.Linear(3, 3), 0
        self.register_buffer("seen", paddle.zeros([3]))
        self.act = lambda x: x * self.calls

    @dy2st.to_static
    def forward(self, x):
        self.calls += 1
        self.seen.add_(paddle.ones([3]))
        for _ in range(3):
            x = self.inner(x)
        return self.act(x)


class Plain:
    factor = 2.0

    @dy2st.to_static
    def __call__(self, x):
        return x * self.factor

    @dy2st.to_static
    def twice(self, x):
        return self(x) + self(x)


def train(f):
    for n in (1, 2, 3):
        f(paddle.ones([n, 3])).sum().backward()


@pytest.mark.sampled
@pytest.mark.quick("Plain-<lambda>0")
@pytest.mark.parametrize(
    "make, use",
    [
        (Decorated, train),
        (lambda: dy2st.to_static(paddle.nn.Linear(3, 3)), train),
        (Plain, lambda q: [q.twice(rows(n)) for n in (1, 2)]),
        (Plain, lambda q: dy2st.to_static(q.twice)(X)),
    ],
)
def test_objects_die_with_their_translations(make, use, young):
    obj = make()
    use(obj)
    dead = weakref.ref(obj)
    del obj
    gc.collect()
    assert dead() is None


class Slotted:
    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor

    @dy2st.to_static
    def scaled(self, x):
        return x * self.factor


def test_objects_without_a_dict():
    a, b = Slotted(2.0), Slotted(3.0)
    for _ in range(2):
        check.same([a.scaled(X), b.scaled(X)], [X * 2, X * 3])
    assert a.scaled is a.scaled


# ---------------------------------------------------------------- copies, pickles, inheritance
def duplicate(obj, how):
    return pickle.loads(pickle.dumps(obj)) if how == "pickle" else getattr(copy, how)(obj)


class Counter:
    def __init__(self):
        self.n, self.table = 1.0, {"k": 1.0}

    @dy2st.to_static
    def step(self, x):
        self.n = self.n + 1.0
        return x * self.n + self.table["k"]


@pytest.mark.parametrize("how", ["copy", "deepcopy", "pickle"])
def test_a_copy_is_an_object_of_its_own(how):
    one = Counter()
    one.step(X)
    two = duplicate(one, how)
    assert one == one and vars(one).keys() == vars(two).keys()
    two.n = 10.0
    check.same([two.step(X), one.step(X), two.step(X)], [X * 12, X * 4, X * 13])
    assert (one.n, two.n) == (3.0, 12.0)


@pytest.mark.parametrize("make", [Decorated, lambda: dy2st.to_static(paddle.nn.Linear(3, 3))])
def test_a_deep_copy_of_a_layer(make):
    one = make()
    one(X)
    two = copy.deepcopy(one)
    for p in two.parameters():
        p.set_value(paddle.zeros_like(p))
    assert float(two(X).abs().sum()) == 0.0 and float(one(X).abs().sum()) > 0.0
    assert {id(p) for p in two.parameters()}.isdisjoint(id(p) for p in one.parameters())


class Base(paddle.nn.Layer):
    gain = 2.0

    @dy2st.to_static
    def forward(self, x):
        return x * self.gain


class Plainer(Base):
    gain = 3.0

    def forward(self, x):
        return super().forward(x) + 1


class Both(Plainer):
    gain = 4.0

    @dy2st.to_static
    def forward(self, x):
        return super().forward(x) * 10


def test_inheritance():
    nets = Base(), Plainer(), Both()
    for _ in range(2):
        check.same([q(X) for q in nets], [X * 2, X * 3 + 1, (X * 4 + 1) * 10])


class Orders:
    @classmethod
    @dy2st.to_static
    def class_inside(cls, x):
        return x * cls.factor

    @dy2st.to_static
    @classmethod
    def class_outside(cls, x):
        return x * cls.factor

    @staticmethod
    @dy2st.to_static
    def static_inside(x):
        return x * 5

    @dy2st.to_static
    @staticmethod
    def static_outside(x):
        return x * 5

    factor = 2.0


class Other(Orders):
    factor = 3.0


@pytest.mark.parametrize(
    "name", ["class_inside", "class_outside", "static_inside", "static_outside"]
)
@pytest.mark.parametrize("of", [Orders, Orders(), Other, Other()], ids=lambda q: type(q).__name__)
def test_class_methods_and_static_methods(name, of):
    for _ in range(2):
        check.same(getattr(of, name)(X), X * (of.factor if "class" in name else 5))


# ---------------------------------------------------------------- calls like the last one
def several(a, b, c=None):
    flagged = 1.0 if a.stop_gradient else 2.0
    known = 0.0 if c is None else len(c) if isinstance(c, str) else c.sum() if c is a else c * 3
    return a * flagged + (b if isinstance(b, (bool, int)) else b.sum()) + known, type(b), a is b


def trained_leaf(*shape):
    x = paddle.ones(shape)
    x.stop_gradient = False
    return x


@pytest.mark.parametrize("sized", [False, True])
def test_calls_that_differ_from_the_last_one_in_one_thing(sized):
    """The last entry is asked by other means than the others: each change is seen."""
    y, trained = paddle.full([2, 3], 2.0), trained_leaf(2, 3)
    changes = [(X, y), (rows(4), y), (trained, y), (X, X), (y, y), (X, trained), (X, rows(1))]
    spec = [InputSpec([None, 3]), InputSpec([None, 3])] if sized else None
    if not sized:
        parameter = paddle.base.framework.EagerParamBase.from_tensor(X)
        changes += [
            (X.astype("float64"), y), (paddle.ones([3, 2]), y), (X, 1), (X, True), (X, 2),
            (X, y, 0.0), (X, y, -0.0), (X, y, "ab"), (X, y, "abc"), (X, y, X), (X, y, y),
            (X, y, None), (X, y.numpy()), (parameter, y),
        ]  # fmt: skip
    static = dy2st.to_static(several, input_spec=spec)
    for args in (q for change in changes for q in (changes[0], change, change)):
        for mode in (True, False):
            with paddle.set_grad_enabled(mode):
                have, want = static(*args), several(*args)
            check.same(have, want)
            assert have[0].stop_gradient == want[0].stop_gradient


def contained(xs, state, more=None):
    kinds = type(xs).__name__, type(state).__name__, xs is more
    xs[0].add_(X * 0.5)
    last = state[0] + len(xs) if more is None else state[0] * len(more)
    if isinstance(xs, list):
        xs.append(last)
    return [q * 2 for q in xs], (last, *state[1:]), kinds


def test_calls_whose_containers_differ_from_those_of_the_last_one():
    """What is in lists and tuples, and which of them are one object."""
    y, z = paddle.full([2, 3], 2.0), paddle.full([2, 3], 3.0)
    shared = [y, z]
    calls = [
        lambda: ([y, z], (z + 1, 3)), lambda: ([y, z], (z + 1, 4)), lambda: ((y, z), (z + 1, 3)),
        lambda: ([y], (z + 1, 3)), lambda: ([y, z], [z + 1, 3]), lambda: ([y, z], (z, 3)),
        lambda: ([y, y], (z + 1, 3)), lambda: ([y, z], (z + 1, 3), [z]), lambda: (shared, (z, 3)),
        lambda: (shared, (z + 1,), shared), lambda: ([y, z], (z + 1,), [y + 1, z]),
        lambda: (shared[:1], (rows(1)[0], (X, [X]))), lambda: (shared[:1], (rows(1)[0], (X, X))),
    ]  # fmt: skip
    static = dy2st.to_static(contained)
    for make in (q for call in calls for q in (calls[0], call, call)):
        found = []
        for f in (static, contained):
            y.set_value(paddle.full([2, 3], 2.0))
            shared[:] = [y, z]
            args = make()
            result = f(*args)
            found.append((result, args, y.clone()))
        check.same(*found)


def test_an_iterator_in_place_of_a_list_is_left_as_it_is():
    static = dy2st.to_static(lambda xs, y: xs[0] + y)
    static([X, rows(2)], rows(1))
    iterator = iter([X, rows(2)])
    with pytest.raises(TypeError):
        static(iterator, rows(1))
    assert len(list(iterator)) == 2


def test_calls_of_the_last_entry_make_no_signature(monkeypatch):
    for f, args in ((plus, (X, rows(1))), (lambda xs, s: xs[0] + s[0][0], ([X], ((rows(1),), 2)))):
        static = dy2st.to_static(f)
        static(*args)
        with monkeypatch.context() as patch:
            patch.setattr("dy2st.api.Signature", None)
            static(*args)
            with pytest.raises(TypeError):
                static(*args[:1])
