"""What a trace may call: pure, guarded, host calls, refused; and the marks of the user."""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime
import functools
import itertools
import json
import logging
import math
import operator
import os
import random
import re
import threading
import time
import uuid
import warnings

import numpy as np
import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from dy2st.convert.marks import MARKS, Mark, mark_of
from dy2st.state.effects import Effect, effect_of, name_of
from tests import check

X = paddle.to_tensor([1.0, 2.0])


class Owner:
    """A plain object of the user."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


# ---------------------------------------------------------------- the table
GENERATOR, RANDOM, STATE = np.random.default_rng(0), random.Random(0), np.random.RandomState(0)
KNOWN = {
    Effect.PURE: [
        math.sqrt, "a".upper, re.compile("a").sub, re.sub, json.dumps, sorted, np.mean, np.sin,
        np.array, np.add.reduce, np.arange(3).sum, datetime.date(2020, 1, 1).isoformat,
        datetime.timedelta, os.path.join, operator.add, copy.deepcopy, functools.reduce,
        functools.partial(math.pow, 2.0), paddle.add, X.sum, ValueError, float.fromhex,
        itertools.count, collections.OrderedDict, str.lower, (3).bit_length,
    ],
    Effect.GUARDED: [
        os.getcwd, os.getenv, os.environ.get, os.path.exists, dir, paddle.get_device,
        paddle.get_flags, logging.getLogger, logging.getLogger("a").isEnabledFor,
    ],
    Effect.HOST: [
        random.random, random.choice, RANDOM.gauss, random.Random, np.random.rand,
        GENERATOR.normal, np.random.default_rng, STATE.randint, time.time, time.sleep,
        datetime.datetime.now, datetime.date.today, uuid.uuid4, os.urandom, logging.info,
        logging.getLogger("a").warning, warnings.warn, functools.partial(random.uniform, 0),
    ],
    Effect.REFUSED: [
        open, exec, eval, input, os.system, os.remove, json.load, np.save, np.load,
        warnings.simplefilter, logging.basicConfig, object().__setattr__, os.environ.pop,
        np.frompyfunc(lambda q: q, 1, 1), np.vectorize(lambda q: q), re.compile("a").__class__,
        paddle.set_flags, Owner, Owner().__init__,
    ],
}  # fmt: skip
KNOWN[Effect.REFUSED].remove(re.Pattern)
CALLS = [(f, effect) for effect, functions in KNOWN.items() for f in functions]


@pytest.mark.parametrize("f, effect", CALLS, ids=[name_of(f) for f, _ in CALLS])
def test_effect_of(f, effect):
    assert effect_of(f) is effect


# ---------------------------------------------------------------- followed
def follows(make, change, calls=4):
    """`make(state)` gives a function of a tensor, `change(state)` happens between calls."""
    pair = []
    for translated in (False, True):
        state = fresh()
        function = make(state)
        pair.append((state, dy2st.to_static(function) if translated else function))
    for k in range(calls):
        want, have = (f(X) for _, f in pair)
        check.same(have, want, what=f"call {k}")
        for state, _ in pair:
            change(state)


def fresh():
    return Owner(
        items=[3, 1, 2], table={"a": 1}, array=np.arange(4.0), text="a b", scale=2, rate=0.5,
        day=datetime.date(2020, 1, 31), key=None,
    )  # fmt: skip


def grow(s):
    s.items.append(7)
    s.table["a"] += 1
    s.array += 1
    s.text += " c"
    s.scale = -s.scale
    s.rate *= 2
    s.day += datetime.timedelta(1)


READS = {
    "sorted": lambda s: sorted(s.items),
    "sorted_by_a_function": lambda s: sorted(s.items, key=lambda q: q * s.scale),
    "largest_by_a_function": lambda s: max(s.items, key=lambda q: q * s.scale),
    "mapped": lambda s: list(map(lambda q: q * s.scale, s.items)),
    "reduced": lambda s: functools.reduce(lambda a, b: a + b * s.scale, s.items),
    "grouped": lambda s: [
        len(list(g)) for _, g in itertools.groupby(s.items, lambda q: q > s.rate)
    ],
    "replaced_by_a_function": lambda s: re.sub("[ab]", lambda m: m[0] * abs(s.scale), s.text),
    "dumped": lambda s: json.dumps(s.table),
    "mean_of_an_array": lambda s: float(np.mean(s.array)),
    "sum_of_an_array": lambda s: float(s.array.sum()),
    "an_array_of_a_list": lambda s: np.asarray(s.items).tolist(),
    "attrgetter": lambda s: operator.attrgetter("scale", "rate")(s),
    "itemgetter": lambda s: operator.itemgetter("a")(s.table),
    "methodcaller": lambda s: operator.methodcaller("upper")(s.text),
    "copied": lambda s: copy.copy(s).scale,
    "variables": lambda s: vars(s)["rate"],
    "month": lambda s: s.day.month,
    "isoformat": lambda s: s.day.isoformat(),
    "day_of_a_sum": lambda s: (s.day + datetime.timedelta(30)).toordinal(),
    "hypot": lambda s: math.hypot(s.rate, 2),
    "power": lambda s: math.pow(s.rate, s.scale),
    "counted": lambda s: collections.Counter(s.items).most_common(1),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.quick(
    "grouped",
    "mean_of_an_array",
    "sum_of_an_array",
    "an_array_of_a_list",
    "attrgetter",
    "itemgetter",
    "methodcaller",
    "copied",
)
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reads_through_library_code_are_followed(read):
    follows(lambda s: lambda x: (x + 1, read(s)), grow)


def test_names_of_attributes_are_followed():
    def change(s):
        setattr(s, f"new{len(vars(s))}", 1)

    follows(lambda s: lambda x: (x, len(dir(s)), hasattr(s, "new9"), getattr(s, "new9", 0)), change)


@pytest.fixture
def variable():
    os.environ["DY2ST_TEST_VARIABLE"] = "0"
    yield "DY2ST_TEST_VARIABLE"
    os.environ.pop("DY2ST_TEST_VARIABLE", None)


def test_the_environment_is_followed(variable):
    def f(x):
        known = os.environ.get("DY2ST_TEST_VARIABLE"), os.getenv("DY2ST_TEST_VARIABLE", "none")
        return x, known, "DY2ST_TEST_VARIABLE" in os.environ

    def item(x):
        try:
            return x, os.environ["DY2ST_TEST_VARIABLE"]
        except KeyError:
            return x, "absent"

    for function in (f, item):
        static = dy2st.to_static(function)
        for value in ("1", "2", None, "1"):
            os.environ.pop(variable, None)
            if value is not None:
                os.environ[variable] = value
            check.same(static(X), function(X))


def test_the_working_directory_is_followed(tmp_path, monkeypatch):
    static = dy2st.to_static(lambda x: (x, os.getcwd(), os.path.exists("here")))
    (tmp_path / "here").mkdir()
    for at in (os.getcwd(), tmp_path, tmp_path / "here"):
        monkeypatch.chdir(at)
        assert static(X)[1:] == (os.getcwd(), os.path.exists("here"))


def test_a_cached_function_is_asked_again():
    scale = 1

    @functools.lru_cache
    def cached(n):
        return n * scale

    static = dy2st.to_static(lambda x: x * cached(3))
    for scale in (1, 2, 5):
        want = 3 if scale < 5 else 15
        if scale == 5:
            cached.cache_clear()
        assert static(X).tolist() == [want, 2 * want]


def test_what_a_pure_function_has_made_may_change():
    def f(x):
        words = "a b c".split()
        words.append("d")
        rows = json.loads("[[1, 2], [3]]")
        rows[0].append(4)
        a = np.zeros(3)
        a.fill(2.0)
        np.add(a, 1, out=a)
        a.sort()
        return x * float(a.sum()), len(words), rows

    check.same(dy2st.to_static(f)(X), f(X))


Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Point:
    x: object


def test_texts_of_containers_hold_no_stand_in(capsys):
    """A number that moves is a stand-in from the second call on."""
    state = fresh()

    def f(x):
        held = collections.deque([state.rate]), collections.OrderedDict(a=state.rate)
        texts = repr(held[0]), str(held[1]), repr(Point(state.rate)), f"{Pair(1, state.rate)}"
        return x, texts, str([Pair(state.rate, 2)]), repr((held[0], 1))

    static = dy2st.to_static(f)
    for _ in range(3):
        check.same(static(X), f(X))
        state.rate += 1
    static = dy2st.to_static(lambda x: print(Pair(float(x[0]), 2)))
    static(X)
    static(X * 3)
    assert capsys.readouterr().out == "Pair(first=1.0, second=2)\nPair(first=3.0, second=2)\n"
    refused(lambda x: repr(Point(x)), "is made of a Point")


# ---------------------------------------------------------------- refused
def refused(function, *parts):
    """A translated call raises SourceError with these parts in its text."""
    with pytest.raises(dy2st.SourceError) as caught:
        dy2st.to_static(function)(X)
    for part in parts:
        assert part in str(caught.value)


ARRAY, BYTES, ITERATOR = np.ones(3), bytearray(b"ab"), iter([1, 2, 3])
GENERATORS = (q for q in (1, 2))
UNKNOWN = np.frompyfunc(lambda q: q, 1, 1)


def exchange(variables):
    variables["DY2ST_TEST_VARIABLE"] = "1"


LOCK = threading.Lock()


def with_a_lock(x):
    with LOCK:
        return x + 1


def delete_variable(x):
    del os.environ["PATH"]


def over_a_generator(x):
    for q in GENERATORS:
        x = x + q
    return x


REFUSED = {
    "open": (lambda x: open("f"), "open()"),
    "eval": (lambda x: eval("1"), "eval()"),
    "system": (lambda x: os.system("true"), "os.system()", "acts on the process"),
    "environ": (lambda x: os.environ.update(A="1"), "os._Environ.update()", "environment"),
    "lock": (with_a_lock, "a `with` statement enters a lock"),
    "environ_item": (lambda x: exchange(os.environ), "is set"),
    "environ_del": (delete_variable, "a variable of the environment is deleted"),
    "load": (lambda x: np.load("f"), "numpy.load()", "The file would be read"),
    "unknown": (lambda x: UNKNOWN(1), "Nothing is known", "dy2st.pure(f)", "dy2st.host(f,"),
    "tensor_in_numpy": (lambda x: np.cumsum(x), "numpy.cumsum() of a tensor"),
    "tensor_in_json": (lambda x: json.dumps([x]), "json.dumps() of a tensor"),
    "number_in_json": (lambda x: len(json.dumps(int(x[0]))), "json.dumps()"),
    "written_array": (lambda x: ARRAY.sort(), "numpy.ndarray.sort()", "from outside"),
    "array_as_out": (lambda x: np.add(1, 1, out=ARRAY), "writes to an array from outside"),
    "bytes": (lambda x: bytes(BYTES), "bytearray from outside"),
    "list_of_an_iterator": (lambda x: list(ITERATOR), "takes all that is left of a list_iterator"),
    "loop_over_a_generator": (over_a_generator, "takes all that is left of a generator"),
    "zip_of_an_iterator": (lambda x: list(zip([1], ITERATOR)), "takes all that is left"),
}


@pytest.mark.sampled
@pytest.mark.quick(
    "environ_del",
    "number_in_json",
    "written_array",
    "array_as_out",
    "bytes",
    "list_of_an_iterator",
    "loop_over_a_generator",
)
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    function, *parts = REFUSED[name]
    refused(function, *parts)
    assert ARRAY.tolist() == [1, 1, 1] and list(copy.copy(ITERATOR)) == [1, 2, 3]


# ---------------------------------------------------------------- marks
@pytest.fixture
def marks():
    before = dict(MARKS)
    yield
    MARKS.clear()
    MARKS.update(before)


def test_a_pure_function_is_called_as_it_is(marks):
    assert dy2st.pure(UNKNOWN) is UNKNOWN and effect_of(UNKNOWN) is Effect.PURE
    calls, state = [], fresh()

    @dy2st.pure
    def total(items, *, scale=1):
        calls.append(list(items))
        return sum(items) * scale

    static = dy2st.to_static(lambda x: x * total(state.items, scale=2) * UNKNOWN(2))
    for _ in range(2):
        assert static(X).tolist() == (X * sum(state.items) * 4).tolist()
    assert calls == [[3, 1, 2]]
    state.items.append(4)
    assert static(X).tolist() == (X * 40).tolist()
    assert calls == [[3, 1, 2], [3, 1, 2, 4]]


def test_a_pure_function_takes_no_tensor(marks):
    half = dy2st.pure(lambda q: q / 2)
    refused(lambda x: half(x), "of a tensor is needed while the program is traced")


def test_results_of_host_functions(marks):
    def roll() -> float:
        return random.random()

    def text() -> int:
        return 1

    class Dice:
        @dy2st.host(result=int)
        def roll(self):
            return 4

    assert mark_of(dy2st.host(roll)) == Mark(True, float)
    assert mark_of(dy2st.host(text)) == Mark(True, int)
    assert mark_of(Dice().roll) == Mark(True, int)
    assert effect_of(Dice().roll) is Effect.HOST
    assert mark_of(dy2st.host(UNKNOWN, InputSpec([2, 3], "float32"))).result == ((2, 3), "float32")
    assert mark_of(dy2st.host(UNKNOWN, ([4], paddle.int64))).result == ((4,), "int64")
    assert mark_of(dy2st.host(UNKNOWN, ((), np.float64))).result == ((), "float64")


@pytest.mark.parametrize("given", [(), (str,), (([None], "float32"),), ("float32",), (3,)])
def test_a_host_function_says_what_it_gives(given):
    with pytest.raises(TypeError, match="say what '<lambda>' gives: result=float"):
        dy2st.host(lambda: 1.0, *given)


def test_a_host_function_may_give_nothing():
    def note(text: str) -> None:
        pass

    assert mark_of(dy2st.host(note)) == Mark(True, None)
    assert mark_of(dy2st.host(UNKNOWN, None)) == Mark(True, None)


@pytest.mark.parametrize("mark", [dy2st.pure, lambda f: dy2st.host(f, result=int)])
@pytest.mark.parametrize("what", [3, "sum", [sum]])
def test_only_functions_are_marked(mark, what):
    with pytest.raises(TypeError, match="takes a function"):
        mark(what)
