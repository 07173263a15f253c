"""A sweep over library functions, called inside of a function and inside of a loop.

Each is called three times, and the state that it reads changes between the calls: the results are
those of eager, or the call is refused. Not one of them is the result of the first call.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import datetime
import enum
import functools
import heapq
import importlib
import itertools
import linecache
import math
import operator
import os
import random
import re
import types
import zlib

import numpy as np
import paddle
import pytest

import dy2st
from tests import check
from tests.dy2st.state import effects_table as table
from tests.dy2st.state.effects_table import expressions

#: modules that the expressions name
NAMES = (
    "array atexit base64 bisect calendar cmath collections colorsys copy ctypes dataclasses "
    "datetime decimal difflib fractions functools hashlib heapq html importlib inspect ipaddress "
    "itertools json keyword logging math operator os pathlib pickle queue random re secrets shutil "
    "signal socket statistics string struct subprocess sys tempfile textwrap threading time types "
    "unicodedata uuid warnings weakref zlib"
)
SPACE = {name: importlib.import_module(name) for name in NAMES.split()}
X = paddle.to_tensor([1.0, 2.0, 3.0], "float64")
GROUP = 12


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


Pair = collections.namedtuple("Pair", "first second")


@functools.total_ordering
class Total:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return self.n < other.n


total = Total


class Number(enum.Enum):
    FEW = 0
    MANY = 1


def enum_of(n):
    return Number(n % 2)


@functools.lru_cache
def cached(n):
    return n * 2


@functools.cache
def counted(n):
    return n * 3


@functools.singledispatch
def dispatched(n):
    return n * 4


def decorator(f):
    @functools.wraps(f)
    def call(n):
        return f(n) + 1

    return call


@decorator
def wrapped(n):
    return n * 5


def heaped(items):
    heap = sorted(items)
    heapq.heapify(heap)
    heapq.heappush(heap, 2)
    return heap


def popped(items):
    heap = sorted(items)
    return heapq.heappop(heap), heapq.heapreplace(heap, 9), heapq.heappushpop(heap, 5)


def inserted(items):
    made = sorted(items)
    bisect.insort(made, 2)
    bisect.insort_left(made, 2)
    return made


def filled(a):
    made = np.array(a)
    made.fill(2)
    np.add(made, a, out=made)
    return made


def sorted_array(a):
    made = (-a).copy()
    made.sort()
    return made


class State:
    def __init__(self):
        self.f, self.i, self.items, self.table = 1.5, 4, [3, 1, 2], {"a": 1}
        self.text, self.a, self.day = "a b", np.arange(4.0), datetime.date(2020, 1, 31)
        self.rng, self.gen = random.Random(0), np.random.default_rng(0)
        self.rs, self.pattern, self.point = np.random.RandomState(0), re.compile("c"), Point(1)
        self.counter, self.cycle = itertools.count(), itertools.cycle([1, 2])
        self.listed, self.made = iter(list(range(100))), (q for q in range(100))

    @property
    def twice(self):
        return self.f * 2

    def change(self, k):
        self.f += 1.25
        self.i += 4 if k else 1
        self.items.append(7 + k)
        self.items.insert(0, k)
        self.table["a"] += 1
        self.text = "c " * k + self.text + " c"
        self.a[:] = np.roll(self.a, 1) * 2 + 1
        self.day += datetime.timedelta(40)
        self.point.x += 1
        if k:
            self.z = self.table["z"] = k
        os.environ["DY2ST_SWEEP"] = str(k)


def shown(v):
    """The value as a number or a text."""
    v = v.item() if isinstance(v, np.generic) else v
    return v if isinstance(v, (bool, int, float, str)) else repr(v)


def number(v):
    """The value as a number."""
    v = v.item() if isinstance(v, np.generic) else v
    return float(v) if isinstance(v, (bool, int, float)) else zlib.crc32(repr(v).encode()) % 1000


INSIDE = """
def function(x):
    return x + 1, {values}
"""
LOOP = """
def function(x):
    totals = x[0] * 0
    for t in range(x.shape[0]):
        totals = totals * 2 + {values}
    return totals
"""


def build(template, items):
    """A function over `s`, a global of its own."""
    if template is INSIDE:
        values = f"({', '.join(f'shown({q})' for q in items)},)"
    else:
        values = " + ".join(f"number({q})" for q in items)
        values = re.sub(r"\bs\.([fi])\b", r"(s.\1 + t)", values)
    text = template.format(values=values)
    name = f"<sweep {zlib.crc32(text.encode())}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space = SPACE | globals()
    exec(compile(text, name, "exec"), space)
    return space


def calls(space, translated, n=3):
    """The results of some calls, with the state of the generators after each."""
    space["s"] = state = State()
    function = dy2st.to_static(space["function"]) if translated else space["function"]
    random.seed(0)
    np.random.seed(0)
    os.environ["DY2ST_SWEEP"] = "first"
    out = []
    for k in range(n):
        result = function(X)
        drawn = random.getstate()[1][-1], np.random.get_state()[2], state.rng.getstate()[1][-1]
        positions = state.gen.bit_generator.state["state"]["state"], state.rs.get_state()[2]
        out.append((result, *drawn, *positions))
        state.change(k)
    return out


def swept(template, items):
    """The expressions that are refused; an error for one that differs from eager."""
    space = build(template, items)
    want = calls(space, False)
    try:
        have = calls(space, True)
    except dy2st.SourceError:
        return items if len(items) == 1 else [q for i in items for q in swept(template, [i])]
    for k, (a, b) in enumerate(zip(have, want)):
        if len(items) == 1 or template is INSIDE:
            agree(a, b, f"call {k} of {'; '.join(items)}")
        elif not same(a, b):
            return [q for i in items for q in swept(template, [i])]
    return []


def agree(have, want, what=""):
    """Equal; floats that the program computes may be some ulp off."""
    pairs = zip(check.leaves(have), check.leaves(want), strict=True)
    for a, b in pairs:
        if not (type(a) is type(b) is float and math.isclose(a, b, rel_tol=1e-14)):
            check.same(a, b, what=what)


def same(have, want):
    try:
        agree(have, want)
    except AssertionError:
        return False
    return True


def groups(tables):
    return [q for name in tables for q in blocks(name, tables[name])]


def blocks(name, text):
    items = [q for q in expressions(text) if exists(q)]
    for k in range(0, len(items), GROUP):
        yield pytest.param(items[k : k + GROUP], id=f"{name}-{k}")


def exists(expression):
    """Whether this version of Python has the function."""
    first = re.match(r"\w+\.\w+", expression.removeprefix("list("))
    head = first[0].split(".") if first else []
    module = SPACE.get(head[0]) if head else None
    return not isinstance(module, types.ModuleType) or hasattr(module, head[1])


@pytest.fixture(autouse=True)
def generators():
    """The generators of the process are as they were."""
    before = random.getstate(), np.random.get_state()
    yield
    random.setstate(before[0])
    np.random.set_state(before[1])
    os.environ.pop("DY2ST_SWEEP", None)


TEMPLATES = pytest.mark.parametrize("template", [INSIDE, LOOP], ids=["inside", "loop"])
#: what a translated function may not do although it is pure: numbers of the loop are no numbers yet
NOT_TRANSLATED: set[str] = set()


@pytest.mark.sampled
@pytest.mark.quick("math-0-inside", "datetime-0-inside")
@TEMPLATES
@pytest.mark.parametrize("items", groups(table.PURE))
def test_pure_functions(items, template):
    assert set(swept(template, items)) <= NOT_TRANSLATED


@pytest.mark.sampled
@pytest.mark.quick("random-0-inside")
@TEMPLATES
@pytest.mark.parametrize("items", groups(table.HOST))
def test_functions_that_draw_or_advance(items, template):
    """Results and generators are those of eager, or the call is refused."""
    for item in items:
        swept(template, [item])


@pytest.mark.sampled(every=8)
@TEMPLATES
@pytest.mark.parametrize("clock", [q for q in expressions(table.CLOCKS) if exists(q)])
def test_clocks_go_on(clock, template):
    space = build(template, [clock])
    try:
        found = [float(r[1][0] if template is INSIDE else r) for r, *_ in calls(space, True)]
    except dy2st.SourceError:
        return
    assert found[0] <= found[1] <= found[2] and len(set(found)) > 1


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("item", expressions(table.REFUSED))
def test_functions_that_act_are_refused(item):
    space = build(INSIDE, [item])
    with pytest.raises(dy2st.SourceError):
        calls(space, True, n=1)


@pytest.mark.slow
def test_the_sweep_is_large_and_sees_frozen_results():
    """A function that no change of the state reaches would pass whatever the trace does."""
    known = [q for text in table.PURE.values() for q in expressions(text) if exists(q)]
    drawn = [q for text in table.HOST.values() for q in expressions(text) if exists(q)]
    moving = 0
    for item in known:
        results = [r for r, *_ in calls(build(INSIDE, [item]), False)]
        moving += any(r[1] != results[0][1] for r in results)
    assert len(known) + len(drawn) >= 500
    assert moving > 0.9 * len(known)


MODULES = [math, operator, itertools, heapq, bisect, random]
LEFT_OUT = {
    "heapq": {"heapify", "heappop", "heappush", "heappushpop", "heapreplace"},
    "operator": {q for q in vars(operator) if q[0] == "i" and q[1:] in vars(operator)}
    | {"setitem", "delitem", "iconcat", "iand", "ior"},
    "bisect": {"insort", "insort_left", "insort_right"},
    "random": {"Random", "SystemRandom", "setstate"},
}  # fmt: skip


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_every_function_of_a_module_is_swept(module):
    name = module.__name__
    public = {q for q in dir(module) if q[0] != "_" and callable(getattr(module, q))}
    if hasattr(module, "__all__"):
        public &= set(module.__all__)
    text = "".join(table.PURE.values()) + "".join(table.HOST.values())
    swept_names = {q for q in public if re.search(rf"\b{name}\.{q}\b", text)}
    assert public - swept_names - LEFT_OUT.get(name, set()) == set()
