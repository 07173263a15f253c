"""State that every call binds anew, and counters in containers: one program serves all calls."""

from __future__ import annotations

import collections

import numpy as np
import paddle
import pytest
from paddle import nn

import dy2st
from dy2st.compiled import cache
from tests import check

X = paddle.to_tensor(np.arange(6, dtype="float32").reshape([2, 3]) / 4)
State = collections.namedtuple("State", "h c")
ZERO = paddle.zeros([3])


class Net(nn.Layer):
    """`names`: the attributes that are state."""

    names: tuple[str, ...] = ("state",)

    def __init__(self):
        super().__init__()
        self.state = None


class Tuple(Net):
    def forward(self, x):
        h, c = (ZERO, ZERO) if self.state is None else self.state
        h = paddle.tanh(h + x.sum(0))
        self.state = (h, c + h)
        return h * c


class NamedTuple(Net):
    def forward(self, x):
        old = self.state or State(ZERO, ZERO)
        self.state = State(old.h + x.sum(0), old.c * 0.5 + 1)
        return x * self.state.h + self.state.c


class TupleWithANumber(Net):
    def __init__(self):
        super().__init__()
        self.state = (0, paddle.ones([3]))

    def forward(self, x):
        n, v = self.state
        self.state = (n + 1, v + x[0])
        return x * n + v


class Dict(Net):
    def forward(self, x):
        k = x if self.state is None else self.state["k"] + x
        self.state = {"k": k}
        return k * 2


class List(Net):
    def forward(self, x):
        old = self.state or [ZERO, ZERO]
        self.state = [h + x.sum(0) for h in old]
        return self.state[0] + self.state[1]


class Nested(Net):
    def forward(self, x):
        old = self.state or {"l": [x[0]], "n": 0, "t": (x[0], 1.5)}
        rows, n = [q + 1 for q in old["l"]], old["n"] + 1
        self.state = {"l": rows, "n": n, "t": (old["t"][0] * 2, 1.5)}
        return rows[0] * n + self.state["t"][0]


class ChangedAfterwards(Net):
    """The function changes the dict that the call before has made."""

    def forward(self, x):
        if self.state is None:
            self.state = {"k": x}
        self.state["k"] = self.state["k"] + x
        self.state = dict(self.state)
        return self.state["k"]


class GivenBack(Net):
    def forward(self, x):
        self.state = dict(self.state or {}, k=x)
        self.state["z"] = x * 2
        return self.state


class Counters(Net):
    names = ("stats", "counts", "seen")

    def __init__(self):
        super().__init__()
        self.stats, self.counts = {"n": 0, "s": 0.0}, [0, 5]
        self.seen = collections.Counter(a=1)

    def forward(self, x):
        self.stats["n"] += 1
        self.stats["s"] += 0.5
        self.counts[0] += 1
        self.seen["a"] += 2
        return x * self.stats["n"] + self.stats["s"] + self.counts[0] * self.seen["a"]


class TuplesOfNumbers(Net):
    names = ("state", "table", "last")

    def __init__(self):
        super().__init__()
        self.state, self.table = (1, (0.5, "a")), {"a": (1, 2.0), "b": [(3, 4)]}
        self.last = collections.deque([State(0, 1.0), State(1, 2.0)], maxlen=2)

    def forward(self, x):
        n, (s, name) = self.state
        self.state = (n + 1, (s * 0.5, name))
        a, b = self.table["a"]
        self.table["a"] = (a + 1, b * 0.5)
        self.table["b"][0] = (self.table["b"][0][0] + 2, 4)
        self.last.append(State(n, s))
        return x * n + s + a * b + self.table["b"][0][0] + self.last[0].h


class Window(Net):
    def __init__(self):
        super().__init__()
        self.state = collections.deque([ZERO, ZERO], maxlen=2)

    def forward(self, x):
        self.state.append(x[0])
        return x + self.state[0]


class NumberInALoop(Net):
    def __init__(self):
        super().__init__()
        self.state = {"n": 0}

    def forward(self, x):
        for row in x:
            self.state["n"] += 1
            x = x + row * self.state["n"]
        return x


def seen(net):
    found = [getattr(net, name) for name in net.names]
    return [list(q) if isinstance(q, collections.deque) else q for q in found]


@pytest.mark.sampled
@pytest.mark.quick("Tuple-", "NamedTuple-", "TupleWithANumber-", "Dict-", "ChangedAfterwards-")
@pytest.mark.parametrize(
    ("make", "most"),
    [(Tuple, 2), (NamedTuple, 2), (TupleWithANumber, 2), (Dict, 2), (List, 2), (Nested, 3),
     (ChangedAfterwards, 2), (GivenBack, 2), (Counters, 2), (TuplesOfNumbers, 3),
     (Window, 2), (NumberInALoop, 2)],
    ids=lambda q: getattr(q, "__name__", ""),
)  # fmt: skip
def test_six_calls(make, most, monkeypatch):
    """`most`: how many translations they need."""
    made, translate = [], cache.translate
    monkeypatch.setattr(cache, "translate", lambda *a: made.append(1) or translate(*a))
    eager, ours = make(), make()
    static = dy2st.to_static(ours)
    for k in range(6):
        check.same(static(X + k), eager(X + k), what=f"call {k}")
        check.same(seen(ours), seen(eager), what=f"state after call {k}")
    assert len(made) <= most


def test_two_names_that_become_one_list():
    class Two(Net):
        names = ("a", "b")

        def __init__(self):
            super().__init__()
            self.a, self.b = [ZERO], [ZERO]

        def forward(self, x):
            self.a[0] = self.a[0] + x[0]
            return self.b[0] + x

    eager, ours = Two(), Two()
    static = dy2st.to_static(ours)
    for k in range(4):
        for net in (eager, ours):
            if k == 2:
                net.b = net.a
        check.same(static(X + k), eager(X + k), what=f"call {k}")
        check.same(seen(ours), seen(eager), what=f"state after call {k}")
    assert ours.a is ours.b


def test_a_deque_that_becomes_the_one_of_the_caller():
    class Exchange(nn.Layer):
        def __init__(self):
            super().__init__()
            self.state = collections.deque([ZERO, ZERO + 1])

        def forward(self, x, given):
            self.state, given = given, self.state
            y = given[0] + x[0]
            self.state.appendleft(self.state.pop())
            return y, given[0] * 2

    nets = Exchange(), Exchange()
    static, given = dy2st.to_static(nets[1]), [collections.deque([ZERO + 2, X[0]]) for _ in nets]
    for k in range(3):
        check.same(static(X + k, given[1]), nets[0](X + k, given[0]), what=f"call {k}")
        check.same(list(given[1]), list(given[0]), what=f"deque after call {k}")
        assert nets[1].state is given[1]


def test_another_type_and_another_length_are_followed():
    eager, ours = List(), List()
    static = dy2st.to_static(ours)
    for k, state in enumerate((None, [ZERO, ZERO + 1], [ZERO, ZERO, ZERO], (ZERO, ZERO + 2))):
        eager.state, ours.state = state, state
        check.same(static(X + k), eager(X + k), what=f"call {k}")
        check.same(seen(ours), seen(eager), what=f"state after call {k}")


@pytest.mark.parametrize("layers", [1, 3])
def test_a_number_in_place_of_a_buffer_is_refused_by_paddle(layers):
    """A tensor that is stored makes a buffer of an attribute: a number does not replace it."""

    class Neuron(nn.Layer):
        def __init__(self):
            super().__init__()
            self.v = 0.0

        def forward(self, x):
            self.v = self.v * 0.5 + x
            return self.v

    def f(x, neurons):
        for neuron in neurons:
            neuron.v = 0.0
        for t in range(3):
            h = x[t]
            for neuron in neurons:
                h = neuron(h)
        return h

    static, x = dy2st.to_static(f), paddle.ones([3, 2])
    one, two = (nn.LayerList([Neuron() for _ in range(layers)]) for _ in range(2))
    check.same(static(x, one), f(x, two))
    for g, neurons in ((static, one), (f, two)):
        with pytest.raises(TypeError, match="assignment to buffers 'v'"):
            g(x, neurons)
    for neuron in (*one, *two):
        del neuron.v
        neuron.v = 0.0
    check.same(static(x, one), f(x, two))


class Slots:
    __slots__ = ("n",)

    def __init__(self):
        self.n = 1


class Made:
    def __new__(cls):
        made = object.__new__(cls)
        made.n = 1
        return made


class Items(list):
    pass


class Table(dict):
    pass


#: what a function makes and stores, and how the caller changes it between the calls
MADE = {
    "set": (lambda x: {1, 2}, lambda q: q.add(9)),
    "list subclass": (lambda x: Items([x]), lambda q: q.append(9)),
    "dict subclass": (lambda x: Table(a=x), lambda q: q.update(b=9)),
    "slots": (lambda x: Slots(), lambda q: setattr(q, "n", 9)),
    "own __new__": (lambda x: Made(), lambda q: setattr(q, "n", 9)),
    "array": (lambda x: np.zeros(3), lambda q: q.__setitem__(0, 9)),
    "bytearray": (lambda x: bytearray(b"ab"), lambda q: q.append(9)),
    "UserDict": (lambda x: collections.UserDict(a=x), lambda q: q.update(b=9)),
    "ChainMap": (lambda x: collections.ChainMap({"a": 1}), lambda q: q.update(b=9)),
    "nested": (lambda x: {"s": {1}, "t": ([{2}],)}, lambda q: q["t"][0][0].add(9)),
}


def parts_of(x):
    """An object as its class and what it holds."""
    if isinstance(x, Slots):
        return Slots, x.n
    inner = vars(x) if hasattr(x, "__dict__") else {}
    held = list(x.items()) if isinstance(x, dict) else list(x) if hasattr(x, "__iter__") else []
    return type(x), held, inner


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("name", MADE)
def test_an_object_that_is_stored_is_a_new_one_in_every_call(name):
    make, change = MADE[name]

    def f(x, box, log):
        box.made = make(x)
        log.append(box.made)
        return x * 2

    static, boxes, logs = dy2st.to_static(f), [Box(), Box()], [[], []]
    for k in range(3):
        for g, box, log in zip((static, f), boxes, logs):
            g(paddle.full([2], float(k)), box, log)
            assert log[-1] is box.made and not any(q is box.made for q in log[:-1])
        check.same(parts_of(boxes[0].made), parts_of(boxes[1].made))
        for box in boxes:
            change(box.made)


class Box:
    pass


def test_a_class_that_gives_one_object():
    class One:
        only = None

        def __new__(cls):
            if cls.only is None:
                cls.only = super().__new__(cls)
                cls.only.n = 0
            return cls.only

    def f(x):
        one = One()
        one.n += 1
        return x * one.n

    static, x = dy2st.to_static(f), paddle.ones([2])
    for n in range(1, 5):
        check.same(static(x), x * n)
        assert One.only.n == n and One() is One.only
