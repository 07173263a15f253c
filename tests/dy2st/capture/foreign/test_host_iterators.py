"""`next` of iterators that were there before the call acts on every call."""

from __future__ import annotations

import contextlib
import csv
import gc
import itertools
import random
import weakref

import numpy as np
import paddle
import pytest

import dy2st
from dy2st.capture.foreign import iterators
from tests import check

END = "end"
X = paddle.arange(18, dtype="float32").reshape([6, 3]) / 8
CASES = []
REFUSED = []


class State:
    """New iterators for each run of a test."""

    def __init__(self) -> None:
        self.count = itertools.count(3, 2)
        self.cycle = itertools.cycle([0.5, 1.5, -1.0])
        self.list = iter([5, 6, 7, 8, 9, 10])
        self.short = iter([1, 2])
        self.chain = itertools.chain([1, 2], [3], range(9))
        self.range = iter(range(100))
        self.words = iter(["a", "b"])
        self.mixed = iter([1, 2.5])
        self.generator = (q for q in range(9))
        self.pairs = enumerate([1.0, 2.0])
        self.tensors = iter([X, X])


def case(cases):
    return lambda f: cases.append(pytest.param(f, id=f.__name__)) or f


def calls(f, n):
    """What n calls give; the error of the call that fails, and what is left of the iterators."""
    s = State()
    out = []
    for k in range(n):
        try:
            out.append(f(s, X + k))
        except StopIteration as e:
            out.append(type(e).__name__)
    return out, [next(s.count), next(s.cycle), list(s.list), list(s.chain)[:2]]


@pytest.mark.parametrize("f", CASES)
def test_as_eager(f):
    check.same(calls(dy2st.to_static(f), 4), calls(f, 4))


@case(CASES)
def single_elements(s, x):
    return x * next(s.count), next(s.cycle), next(s.list), next(s.chain) + next(s.range)


@case(CASES)
def in_a_loop(s, x):
    y = x[0]
    for t in range(3):
        y = y * 0.5 + x[t] * next(s.cycle)
        for _ in range(2):
            y = y + next(s.count)
    return y


@case(CASES)
def in_a_branch(s, x):
    if x.sum() > 30:
        x = x + next(s.count)
    return x


@case(CASES)
def used_up(s, x):
    return x + next(s.short)


@case(CASES)
def with_a_default(s, x):
    return x + next(s.short, -1), next(s.list)


@case(CASES)
def used_up_in_a_loop(s, x):
    for t in range(4):
        x = x + next(s.list) * t
    return x


@case(CASES)
def between_draws(s, x):
    random.seed(1)
    return [random.random() * next(s.count) for _ in range(3)]


def test_natively():
    s = State()
    static = dy2st.to_static(in_a_loop)
    assert "foreign(" not in str(static.program(s, X))
    assert next(s.count) == 3


def test_a_replaced_iterator_is_followed():
    s = State()
    static = dy2st.to_static(lambda x: x * next(s.count))
    np.testing.assert_array_equal(static(X), X * 3)
    s.count = itertools.count(10)
    np.testing.assert_array_equal(static(X), X * 10)
    np.testing.assert_array_equal(static(X), X * 11)


@pytest.mark.parametrize("f", REFUSED)
def test_refused(f):
    s = State()
    with pytest.raises(dy2st.SourceError, match=f.__doc__) as caught:
        dy2st.to_static(f)(s, X)
    assert f", {f.__name__}" in str(caught.value)
    left = [list(q) for q in (s.words, s.mixed, s.generator, s.pairs, s.short, s.tensors)]
    assert [len(q) for q in left] == [2, 2, 9, 2, 2, 2]


@case(REFUSED)
def of_words(s, x):
    """next\\(\\) gives a str here"""
    return x if next(s.words) == "a" else x * 2


@case(CASES)
def of_tensors(s, x):
    return x + next(s.tensors)


@case(CASES)
def of_two_types(s, x):
    return x + next(s.mixed)


@case(CASES)
def of_pairs(s, x):
    return x + next(s.pairs)[1]


@case(CASES)
def default_of_another_type(s, x):
    n = next(s.short, None)
    return x if n is None else x + n


@case(REFUSED)
def a_loop_over_it(s, x):
    """takes all that is left of a list_iterator"""
    for q in s.short:
        x = x + q
    return x


@case(REFUSED)
def a_list_of_it(s, x):
    """takes all that is left of a generator"""
    return x + len(list(s.generator))


@case(REFUSED)
def zipped(s, x):
    """takes all that is left of a list_iterator"""
    for a, b in zip([1, 2], s.short):
        x = x + a * b
    return x


@case(REFUSED)
def a_sum(s, x):
    """takes all that is left of a list_iterator"""
    return x + sum(s.short)


@case(REFUSED)
def a_comprehension(s, x):
    """takes all that is left of a generator"""
    return x + len([q for q in s.generator])


def test_an_argument():
    f = dy2st.to_static(lambda x, it: x + next(it))
    it = iter([1, 2, 3])
    assert [float(f(X, it)[0, 0]) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(StopIteration):
        f(X, it)


def test_iterators_made_inside():
    @dy2st.to_static
    def f(x):
        it = iter([1, 2, 3])
        first = next(it)
        return x + first + sum(it), list(zip([1, 2], iter([3, 4])))

    for _ in range(2):
        check.same(f(X), (X + 6, [(1, 3), (2, 4)]))


@contextlib.contextmanager
def managed(x):
    yield x


class Numbers(list):
    pass


class Steps:
    """An iterator of a user's class."""

    def __init__(self):
        self.rounds = self.step = 0

    def __iter__(self):
        self.rounds, self.step = self.rounds + 1, 0
        return self

    def __next__(self):
        self.step += 1
        if self.step > 2:
            raise StopIteration
        return self.rounds * self.step


ALL_OF_IT = []


@case(ALL_OF_IT)
def unpacked(s, x):
    a, b = s.short
    return x + a + b


@case(ALL_OF_IT)
def unpacked_twice(s, x):
    a, b = c = s.short
    return x + a + b, c


@case(ALL_OF_IT)
def unpacked_inside(s, x):
    (a, b), c = s.short, 2
    return x + a + b * c


@case(ALL_OF_IT)
def unpacked_with_a_rest(s, x):
    a, *rest = s.short
    return x + a + len(rest)


@case(ALL_OF_IT)
def unpacked_by_a_loop(s, x):
    for a, b in [s.short]:
        x = x + a * b
    return x


@case(ALL_OF_IT)
def unpacked_by_a_with(s, x):
    with managed(s.short) as (a, b):
        return x + a + b


@case(ALL_OF_IT)
def unpacked_by_a_generator(s, x):
    return x + sum(a * b for a, b in [s.short])


@case(ALL_OF_IT)
def as_arguments(s, x):
    def add(a, b):
        return a + b

    return x + add(*s.short)


@case(ALL_OF_IT)
def in_a_display(s, x):
    return x + sum([0, *s.short])


@case(ALL_OF_IT)
def in_a_comprehension_of_a_lambda(s, x):
    take = lambda: [q for q in s.short]  # noqa: C416, E731
    return x + sum(take())


@case(ALL_OF_IT)
def in_a_generator(s, x):
    def give():
        yield from s.short

    return x + sum(give())


@case(ALL_OF_IT)
def looked_into(s, x):
    return x + 1 if 1 in s.short else x


@case(ALL_OF_IT)
def extends_a_list(s, x):
    ys = [0]
    ys.extend(s.short)
    return x + sum(ys)


@case(ALL_OF_IT)
def added_to_a_list(s, x):
    ys = [0]
    ys += s.short
    return x + sum(ys)


@case(ALL_OF_IT)
def stored_in_a_slice(s, x):
    ys = [0, 0, 0]
    ys[:1] = s.short
    return x + sum(ys)


@case(ALL_OF_IT)
def a_set_of_it(s, x):
    return x + len(set(s.short))


@case(ALL_OF_IT)
def a_list_of_the_users(s, x):
    return x + sum(Numbers(s.short))


@case(ALL_OF_IT)
def joined_with_it(s, x):
    return x + len("".join(s.words)) + len({1}.union(s.short))


@pytest.mark.parametrize("f", ALL_OF_IT)
def test_an_iterator_from_outside_is_not_used_up(f):
    s = State()
    with pytest.raises(dy2st.SourceError, match="takes all that is left of a"):
        dy2st.to_static(f)(s, X)
    assert list(s.short) == [1, 2] and list(s.words) == ["a", "b"]


def unpacks_steps(s, x):
    a, b = s
    return x + a + b


def steps_as_arguments(s, x):
    return paddle.stack([x + q for q in (lambda *a: a)(*s)])


@pytest.mark.parametrize("f", [unpacks_steps, steps_as_arguments])
def test_an_iterator_of_the_users_is_run_through_on_every_call(f):
    s, q, static = Steps(), Steps(), dy2st.to_static(f)
    for _ in range(3):
        check.same(static(s, X), f(q, X))
    assert vars(s) == vars(q)


def test_a_handler_for_the_end_of_an_iterator_is_refused():
    """The program advances the iterator when the handler is left."""

    def refilled(x):
        try:
            return x * next(rest)
        except StopIteration:
            return x

    x, rest = paddle.ones([2]), iter([2.0, 3.0])
    with pytest.raises(dy2st.SourceError, match="an iterator that may end, inside of a `try`"):
        dy2st.to_static(refilled)(x)
    assert list(rest) == [2.0, 3.0]
    rest = itertools.count(2)
    static = dy2st.to_static(refilled)
    assert [float(static(x)[0]) for _ in range(3)] == [2.0, 3.0, 4.0]


# ---------------------------------------------------------------- generators
def numbers():
    for k in range(40):
        yield k * 0.5


def pairs():
    for k in range(7):
        yield paddle.full([3], float(k)), k


def kinds():
    yield 1.0
    yield np.arange(3.0, dtype="float32")
    yield 2
    yield paddle.ones([3])
    yield 1.5


def batches():
    """The last one is smaller."""
    for n in (2, 2, 1):
        yield {"x": paddle.full([n, 3], float(n)), "of": [n, (n + 0.5, None)]}


def drawn_randomly():
    while True:
        yield np.random.rand() + random.random()


def loaded():
    data = [(np.full(3, k, "float32"), np.int64(k)) for k in range(5)]
    return iter(paddle.io.DataLoader(data, batch_size=2))


def rows():
    return csv.reader(["1,2", "3,4"], quoting=csv.QUOTE_NONNUMERIC)


def one(x, it):
    return x + next(it)


def by_its_method(x, it):
    return x + it.__next__()


def taken_apart(x, it):
    a, b = next(it)
    return x * a + b


def of_one_kind_in_a_loop(x, it):
    y = x[0]
    for t in range(6):
        y = y * 0.5 + x[t] * next(it)
    return y


def taken_apart_in_a_loop(x, it):
    for _ in range(3):
        a, b = next(it)
        x = x + a * b
    return x


def on_data(x, it):
    if x.sum() > 36:
        x = x + next(it)
    return x


def two_at_once(x, it):
    return x + next(it), x + next(it)


def two_in_a_loop(x, it):
    for _ in range(2):
        x = x + next(it)
    return x


def sums(x, it):
    b = next(it, None)
    return x if b is None else x * b["of"][1][0] + b["x"].sum()


def before_random_numbers(x, it):
    a = next(it)
    return x * a + random.random() + np.random.rand()


def all_of_a_batch(x, it):
    a, b = next(it)
    return x[: len(a)] * 2 + a, b


@pytest.mark.parametrize(
    ("f", "make", "n"),
    [
        (one, numbers, 3),
        (by_its_method, numbers, 3),
        (one, kinds, 6),
        (one, lambda: map(float, [1, 2]), 3),
        (one, lambda: (q for q in [True, 2]), 3),
        (taken_apart, pairs, 3),
        (taken_apart, lambda: zip([1.0, 2.0], [3, 4]), 3),
        (taken_apart, rows, 3),
        (of_one_kind_in_a_loop, numbers, 3),
        (taken_apart_in_a_loop, pairs, 3),
        (on_data, numbers, 5),
        (two_at_once, kinds, 3),
        (two_in_a_loop, kinds, 3),
        (sums, batches, 5),
        (before_random_numbers, drawn_randomly, 3),
        (all_of_a_batch, loaded, 4),
    ],
)
def test_generators(f, make, n):
    def run(g):
        it, out = make(), []
        random.seed(3)
        np.random.seed(4)
        for k in range(n):
            try:
                out.append(g(X + k, it))
            except StopIteration:
                out.append(END)
        rest = [] if any(q is END for q in out) else itertools.islice(it, 9)
        return out, [q if isinstance(q, (int, float)) else None for q in rest]

    check.same(run(dy2st.to_static(f)), run(f))


def test_a_loop_over_a_generator_is_native():
    program = str(dy2st.program(dy2st.to_static(of_one_kind_in_a_loop), X, numbers()))
    assert "scan" in program and "foreign(" not in program


def test_gradients_through_items_of_a_generator():
    w = paddle.to_tensor([1.0, 2.0, 3.0], stop_gradient=False)
    it = pairs()

    @dy2st.to_static
    def f(x):
        for _ in range(2):
            a, b = next(it)
            x = x + a * b * w
        return x.sum()

    for k in range(2):
        w.clear_grad()
        f(X).backward()
        expected = sum(q * q for q in (2 * k, 2 * k + 1)) * 6.0
        np.testing.assert_allclose(w.grad.numpy(), np.full(3, expected))


def test_what_a_refused_translation_has_taken_comes_next():
    it = numbers()

    @dy2st.to_static
    def refused(x):
        y = x + next(it)
        return np.sort(y), next(it)

    for _ in range(2):
        with pytest.raises(dy2st.SourceError, match="has taken an item of the generator, with"):
            refused(X)
    static = dy2st.to_static(lambda x: x + next(it))
    check.same([static(X), static(X), next(it)], [X + 0.0, X + 0.5, 1.0])


def test_an_error_of_a_generator():
    def fails():
        yield 1.0
        raise ValueError("nothing left")

    it = fails()
    static = dy2st.to_static(one)
    check.same(static(X, it), X + 1.0)
    with pytest.raises(ValueError, match="nothing left"):
        static(X, it)
    with pytest.raises(StopIteration):
        static(X, it)


def test_another_item_behind_a_random_number_is_an_error_and_is_kept():
    def f(x):
        a = random.random()
        return x * (a < 2) + next(it)

    it, static = kinds(), dy2st.to_static(f)
    check.same(static(X), X + 1.0)
    with pytest.raises(TypeError, match="gives a ndarray now, which is of another type or size"):
        static(X)
    check.same(static(X), X + paddle.arange(3.0))


def test_a_generator_is_not_kept_alive_by_a_refusal():
    def give():
        yield "text"

    it, waiting = give(), iterators.WAITING.keys()
    with pytest.raises(dy2st.SourceError, match=r"next\(\) gives a str here"):
        dy2st.to_static(one)(X, it)
    gone, key = weakref.ref(it), id(it)
    assert key in waiting
    del it
    gc.collect()
    assert gone() is None and key not in waiting


def test_a_generator_that_reads_what_the_function_has_changed():
    class Scale:
        by = 1.0

    def give():
        while True:
            yield s.by

    s, it = Scale(), give()

    @dy2st.to_static
    def f(x):
        s.by = 2.0
        return x * next(it)

    with pytest.raises(dy2st.SourceError, match=r"may read scale.by, which the function changes"):
        f(X)
    assert s.by == 1.0


def test_a_generator_that_draws_behind_random_numbers_of_the_function():
    with pytest.raises(dy2st.SourceError, match="behind random numbers of the function"):
        dy2st.to_static(lambda x, it: x * random.random() + next(it))(X, drawn_randomly())


def test_an_item_is_a_copy_that_is_not_written():
    held = [paddle.ones([6, 3]), paddle.zeros([6, 3])]

    def f(x, it):
        a = next(it)
        a[0] = x[0]
        return a

    with pytest.raises(dy2st.SourceError, match="(?s)written in place.*an iterator from outside"):
        dy2st.to_static(f)(X, iter(held))
    same = np.zeros(3, "float32")

    def twice():
        while True:
            same[:] = same + 1
            yield same

    it = twice()
    with pytest.raises(TypeError, match="gives an array a second time, which has been changed"):
        dy2st.to_static(two_at_once)(X, it)


def test_a_loop_up_to_the_end_of_a_generator_is_refused():
    """Each translation sees no end: the items so far are followed by others."""

    @dy2st.to_static
    def f(x, it):
        while True:
            q = next(it, None)
            if q is None:
                return x
            x = x + q

    with pytest.raises(dy2st.SourceError, match=r"more than 64 calls of next\(\) of one iterator"):
        f(X, (q for q in [1.0, 2.0]))
