"""Python's constructs in translated functions: each gives what eager gives, for three calls."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
import linecache
import typing

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.static import InputSpec

import dy2st
from tests import check

pytestmark = pytest.mark.sampled

# ruff: noqa: B023, B018, E731, UP014, UP028
X = paddle.to_tensor(np.random.default_rng(0).normal(size=[3, 4]).astype("float32"))
CASES = []


def case(*loops):
    """`loops`: the kinds of loops in the report, in any order."""

    def register(f):
        CASES.append(pytest.param(f, sorted(loops), id=f.__name__))
        return f

    return register


@pytest.mark.quick(
    "for_over_a_generator", "delegates_and_returns", "match_on_python_values", "recursion",
    "functions_made_in_a_loop", "dataclasses_and_named_tuples",
)  # fmt: skip
@pytest.mark.parametrize(("f", "loops"), CASES)
def test_equals_eager(f, loops):
    eager = f() if isinstance(f, type) else f
    static = dy2st.to_static(copy.deepcopy(eager) if isinstance(f, type) else f)
    for k in range(3):
        check.same(static(X + k), eager(X + k), what=f"call {k}")
    assert sorted(q.kind for q in dy2st.report(static, X).loops) == loops


# ---------------------------------------------------------------- generators
def scaled(x, n):
    for i in range(n):
        h = x
        for _ in range(5):
            h = paddle.tanh(h + 1)
        yield h * i


@case("unrolled", "unrolled", "scan", "scan", "scan")
def for_over_a_generator(x):
    s = x
    for y in scaled(x, 3):
        s = s + y
    return s


@case(*["unrolled"] * 4, *["scan"] * 4)
def generators_into_builtins(x):
    return paddle.stack([*list(scaled(x, 2)), *tuple(scaled(x, 2))])


@case("unrolled", "unrolled")
def generator_with_state(x):
    def running(rows):
        total = paddle.zeros([4])
        for row in rows:
            total = total + row
            yield total

    out = []
    for y in running(x):
        out.append(y)
    return paddle.stack(out)


@case("unrolled")
def endless_generator(x):
    def doubling():
        t = x
        while True:
            t = t * 2
            yield t

    out = []
    for v in doubling():
        out.append(v)
        if len(out) == 3:
            break
    return paddle.stack(out)


@case("unrolled")
def delegates_and_returns(x):
    def inner():
        got = yield x
        return x * 3 if got is None else got

    def outer():
        y = yield from inner()
        yield y + 1

    return sum(v for v in outer())


@case("scan")
def generator_expression(x):
    return sum(x[i] * i for i in range(3))


@case("unrolled", "scan")
def generator_made_in_the_loop(x):
    def two(y):
        yield y
        yield y * 2

    s = x[0]
    for row in x:
        for v in two(row):
            s = s + v
    return s


@case("unrolled")
def generator_advanced_in_a_loop(x):
    g = (x * k for k in (1, 2, 3, 4))
    y = next(g)
    for _ in range(3):
        y = y + next(g)
    return y


@case("unrolled")
def iterator_advanced_in_a_loop(x):
    it = iter([x, x * 2, x * 3])
    y = next(it)
    for _ in range(2):
        y = y + next(it)
    return y


@case("scan")
def iterators_made_in_the_loop(x):
    for row in x:
        for a, b in itertools.product((1, 2), (3, 4)):
            x = x + row * a * b
        for k, c in enumerate(map(lambda v: v + 1, (5, 6))):
            x = x * (k + c)
    return x * 1e-6


class Layers(nn.Layer):
    def __init__(self):
        super().__init__()
        self.parts = nn.LayerList([nn.Linear(4, 4) for _ in range(2)])

    def walk(self):
        for part in self.parts:
            yield part
        yield from self.parts

    def forward(self, x):
        for part in self.walk():
            x = part(x)
        for _, p in self.named_parameters():
            x = x + p.sum()
        return x


case("unrolled")(Layers)


@case()
def context_manager_function(x):
    @contextlib.contextmanager
    def doubled(y):
        y = y * 2
        try:
            yield y
        finally:
            y = None

    with doubled(x) as a, contextlib.suppress(KeyError):
        a = a + {}["k"]
    return a


# ---------------------------------------------------------------- statements
@case("scan")
def match_on_python_values(x):
    for mode in range(1):
        x = x + mode
    match ("a", [2, 3], {"k": 4}):
        case ("a", [k, *rest], {"k": v}) if k > 1:
            return x * k * v + rest[0]
        case _:
            return x


class Scope:
    entered = 0

    def __init__(self, k):
        self.k = k

    def __enter__(self):
        self.k = self.k + 1
        return self

    def __exit__(self, *error):
        self.k = self.k - 1
        return error[0] is ValueError


SCOPE = Scope(2)


@case()
def with_a_users_class(x):
    with Scope(1) as a, SCOPE as b:
        y = x * a.k * b.k
        raise ValueError
    return y * b.k


@case()
def try_with_everything(x):
    out = []
    for key in ("a", "b"):
        try:
            y = {"a": 1}[key] * x
        except KeyError:
            out.append(x * 2)
        else:
            out.append(y)
        finally:
            out.append(x + 1)
    return paddle.stack(out)


@case("scan", "scan")
def error_in_a_callee_of_a_loop(x):
    def f(k):
        if k > 2:
            raise ValueError("k")
        return x * k

    out = []
    for k in range(5):
        try:
            out.append(f(k))
        except ValueError:
            out.append(x)
    return paddle.stack(out)


def repeated(n, y):
    return y if n == 0 else repeated(n - 1, paddle.tanh(y))


@case()
def recursion(x):
    def fib(n):
        return x if n < 2 else fib(n - 1) + fib(n - 2)

    return fib(4) + repeated(3, x)


@case("scan", "scan")
def else_of_loops(x):
    for i in range(4):
        if i == 7:
            break
        x = x + i
    else:
        x = x * 2
    n = 0
    while n < 3:
        n += 1
        x = x + 1
    else:
        x = x * 3
    return x


@case()
def deletes_and_unpacks(x):
    y, d, items = x * 2, {"a": x, "b": x}, [x, x + 1]
    del d["a"], y, items[0]
    a, *b, c = [x, x * 2, x * 3, x * 4]
    (p, q), r = (x, c), b
    return d["b"] + items[0] + a + b[0] + r[1] + c + p + q


@case()
def walrus_and_comprehensions(x):
    if (n := x.shape[0]) > 2:
        x = x * n
    ys = [last := x * i for i in range(3)]
    table = {k: x * k for k in (1, 2)}
    return last + ys[1], table, len({k for k in (1, 1, 2)})


class Epochs(paddle.nn.Layer):
    """Loops whose test sets what their body reads, with an end that varies."""

    def __init__(self):
        super().__init__()
        self.epoch = 0

    def forward(self, x):
        i = 0
        while (j := i * 2) < self.epoch:
            i += 1
            x = x + j
        while (h := x * 0.5).abs().max() > 1:
            x = h
        self.epoch += 1
        return x


def test_a_loop_reads_what_its_test_has_set():
    check.parity(Epochs(), lambda: [X * 3], calls=6)


@case("scan")
def long_comprehension(x):
    return paddle.stack([paddle.tanh(x * t) for t in range(50)])


@case("scan", "scan")
def nested_comprehension(x):
    rows = [[x[i] * j for j in range(3)] for i in range(2)]
    return rows[1][2] + rows[0][1], [k + 1 for k in (1, 2) if k > 1]


# ---------------------------------------------------------------- functions and classes
def twice(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        return f(*args, **kwargs) * 2

    return wrapper


@case("scan")
@twice
def decorated(x, *, b=2):
    for _ in range(3):
        x = x + b
    return x


@functools.lru_cache(None)
def table(n):
    return paddle.arange(n, dtype="float32"), n * 2


@case()
def cached_function(x):
    t, n = table(4)
    return x + t * n + table(4)[0]


@case("unrolled")
def functions_made_in_a_loop(x):
    fs = []
    for k in range(3):

        def f(y, k=k):
            return y * k

        fs.append(f)
    return sum([f(x) for f in fs])


@case()
def stars_and_defaults(x):
    def f(a, /, *args, k=1, **kw):
        return a + sum(args) * k + kw.get("z", 0) + len(kw)

    return f(x, *[1, 2], **{"k": 3, "z": x}) + (lambda a, *b: a * b[0])(x, 3)


class Methods(nn.Layer):
    def __init__(me):
        super().__init__()
        me.k = 3.0
        me.cell = nn.SimpleRNNCell(4, 4)

    @classmethod
    def plus(cls, x):
        return x + len(cls.__name__)

    @staticmethod
    def grown(x):
        for _ in range(3):
            x = x * 2
        return x

    @property
    def scaled_weight(me):
        return me.cell.weight_ih * me.k

    @functools.cached_property
    def steps(me):
        return 3

    def forward(me, x):
        y = me.plus(me.grown(x)) * me.scaled_weight.sum()
        for _t in range(me.steps):
            y, _ = me.cell(y)
        return Methods.grown(y) + me.__class__.plus(y)


case("scan", "scan", "scan")(Methods)


class Node:
    def __init__(self, value):
        self.value, self.kids = value, []

    def add(self, kid):
        self.kids.append(kid)
        return self

    def total(self):
        s = self.value
        for kid in self.kids:
            s = s + kid.total()
        return s


@case()
def objects_made_inside(x):
    return Node(x).add(Node(x * 2).add(Node(x))).total()


@dataclasses.dataclass
class Pair:
    a: object
    b: float = 2.0
    seen: list = dataclasses.field(default_factory=list)

    def product(self):
        self.seen.append(self.a)
        return self.a * self.b + len(self.seen)


class Point(typing.NamedTuple):
    a: object
    b: object

    def total(self):
        return self.a + self.b


@case("scan")
def dataclasses_and_named_tuples(x):
    h = Point(x, x)
    for _ in range(3):
        h = Point(h.total(), h.a)
    return Pair(x).product() + dataclasses.replace(Pair(x), b=3.0).product(), h.total()


class Rows:
    """Items, length, membership, iteration, calls: all in Python."""

    def __init__(self, x):
        self.x, self.n = x, 0

    def __len__(self):
        return 3

    def __getitem__(self, i):
        if i >= 3:
            raise IndexError
        for _ in range(2):
            i = i + 1
        return self.x * i

    def __setitem__(self, i, value):
        self.x = self.x + value * i

    def __contains__(self, k):
        return k == 5

    def __call__(self, y):
        for _ in range(3):
            y = y * 2
        return y


class Steps:
    def __init__(self, x):
        self.x, self.n = x, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 3:
            raise StopIteration
        self.n += 1
        return self.x * self.n


@case(*["scan"] * 5)
def special_methods(x):
    rows, s = Rows(x), x
    for row in rows:
        s = s + row
    rows[2] = x
    for step in Steps(x):
        s = s + step
    return s * len(rows) + rows[1] if 5 in rows else rows(s), rows(s)


def test_a_property_is_followed_when_what_it_reads_changes():
    net = Methods()
    static = dy2st.to_static(copy.deepcopy(net))
    for k in (3.0, 5.0):
        net.k = static.k = k
        check.same(static(X), net(X))


def test_an_outside_manager_keeps_what_it_did():
    class Depth:
        def __init__(self):
            self.depth, self.last = 0, None

        def __enter__(self):
            self.depth += 1

        def __exit__(self, *error):
            self.last = self.depth

    ours, theirs = Depth(), Depth()

    def make(manager):
        def f(x):
            with manager:
                return x * 2

        return f

    static = dy2st.to_static(make(ours))
    for _ in range(3):
        check.same(static(X), make(theirs)(X))
        assert vars(ours) == vars(theirs)


@pytest.mark.quick
def test_functions_of_a_notebook():
    text = "def f(x):\n    for i in range(3):\n        x = x + i\n    return x\n"
    linecache.cache["<cell 1>"] = (len(text), None, text.splitlines(True), "<cell 1>")
    space = {"__name__": "__main__"}
    exec(compile(text, "<cell 1>", "exec"), space)
    static = dy2st.to_static(space["f"])
    check.same(static(X), X + 3)
    assert [q.kind for q in dy2st.report(static, X).loops] == ["scan"]


def test_lru_cache_with_a_tensor_is_refused():
    @functools.lru_cache(None)
    def double(x):
        return x * 2

    with pytest.raises(dy2st.SourceError, match="double, which has an lru_cache"):
        dy2st.to_static(lambda x: double(x))(X)
    assert double.cache_info().currsize == 0


NAMED = [InputSpec([None, 4], "float32", "x")]


def yields_rows(x):
    def rows():
        for t in range(x.shape[0]):
            yield x[t]

    return sum(list(rows()))


def doubles_rows(x):
    total = x[0] * 0
    for row in (x[t] * 2 for t in range(x.shape[0])):
        total = total + row
    return total


def test_a_generator_function_over_a_named_size_is_refused():
    with pytest.raises(dy2st.SourceError, match="contains a `yield`"):
        dy2st.to_static(yields_rows, input_spec=NAMED)(X)


def test_a_large_power_of_a_named_size_is_refused():
    static = dy2st.to_static(lambda x: x * (x.shape[0] ** 10), input_spec=NAMED)
    with pytest.raises(dy2st.SourceError, match="an integer power"):
        static(X)


def sums_rows(x):
    return sum(x[t] for t in range(x.shape[0]))


@pytest.mark.parametrize("f", [sums_rows, doubles_rows])
def test_a_sum_over_a_named_size_is_a_loop(f):
    static = dy2st.to_static(f, input_spec=NAMED)
    for n in (3, 2, 1):
        check.same(static(X[:n]), f(X[:n]))


@pytest.mark.quick
def test_a_comprehension_over_a_named_size_is_a_loop():
    static = dy2st.to_static(
        lambda x: paddle.stack(doubled_rows(x), 1), input_spec=NAMED
    )  # fmt: skip
    for n in (3, 2, 1):
        check.same(static(X[:n]), paddle.stack(doubled_rows(X[:n]), 1))
    assert [q.kind for q in dy2st.report(static, X).loops] == ["scan"]


def doubled_rows(x):
    return [x[t] * 2 for t in range(x.shape[0])]
