"""Classes and modules that change between calls, read through objects made in the function, too."""

from __future__ import annotations

import _abc
import abc
import dataclasses
import decimal
import functools
import inspect
import linecache
import sys
import types
import typing

import paddle
import pytest

import dy2st
from tests import check

X = paddle.to_tensor([0.5, 2.0])
#: the body of a class, what is read of an object `o` of it, and changes of the class `A`
CASES = {
    "attribute": ("scale = 1.0", "x * o.scale", ["A.scale = 7.0", "A.scale = 2"]),
    "tensor": ("w = paddle.ones([2])", "x * o.w", ["A.w = X * 3", "A.w.add_(X)", "A.w = X * 4"]),
    "list": ("ks = [1.0]", "x * sum(o.ks)", ["A.ks.append(2.0)", "A.ks = [5.0]"]),
    "method": (
        "def run(self, x): return x + 1", "o.run(x)",
        ["A.run = lambda self, x: x * 9", "A.run = lambda self, x: x - 9"],
    ),
    "method of a base": (
        "pass", "o.below(x)",
        ["B.below = lambda self, x: x * 7", "A.below = lambda self, x: x * 8", "del A.below"],
    ),
    "static": (
        "run = staticmethod(lambda x: x + 1)", "o.run(x)",
        ["A.run = staticmethod(lambda x: x * 3)"],
    ),
    "class method": (
        "k = 2.0\n    @classmethod\n    def run(cls, x): return x * cls.k", "o.run(x)",
        ["A.k = 5.0", "A.run = classmethod(lambda cls, x: x - cls.k)"],
    ),
    "none yet": (
        "pass", "x * getattr(o, 'flag', 1.0) + hasattr(o, 'other')",
        ["A.flag = 3.0", "A.other = 1", "del A.flag"],
    ),
    "hook": (
        "def __getattr__(self, name): return 2.0", "x * o.rate",
        ["A.rate = 4.0", "A.__getattr__ = lambda self, name: 9.0", "del A.rate"],
    ),
    "truth": (
        "n = 3\n    def __len__(self): return self.n", "x * (2 if o else 3)",
        ["A.n = 0", "A.__bool__ = lambda self: True", "del A.__bool__; del A.__len__"],
    ),
    "slots": ("__slots__ = ('v',)\n    k = 2.0", "x * o.k", ["A.k = 6.0"]),
    "descriptor with slots": (
        "__slots__ = ('_v',)\n    v = Clamped()", "x * step(o)", ["Clamped.most = 1.0"],
    ),
}  # fmt: skip
TEXT = """
class B:
    __slots__ = ()
    def below(self, x): return x + 1

class Clamped:
    most = 3.0
    def __get__(self, obj, kind): return getattr(obj, "_v", 1.0)
    def __set__(self, obj, value): obj._v = min(value, self.most)

class A(B):
    {body}

def step(o):
    o.v = o.v + 1
    return o.v

here = A()

def made(x):
    o = A()
    return {use}

def outside(x):
    o = here
    return {use}

def looped(x):
    for _ in range(12):
        o = A()
        x = x + ({use}).sum() * 0.01
    return x
"""


def run(text, space):
    """Run code whose functions have a source."""
    name = f"<classes {len(linecache.cache)}>"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    exec(compile(text, name, "exec"), space)


def module(name):
    body, use, _ = CASES[name]
    space = {"__name__": "classes_of_the_user", "X": X, "paddle": paddle}
    run(TEXT.format(body=body, use=use), space)
    return space


@pytest.mark.parametrize("name", CASES)
def test_a_class_that_changes(name):
    eager, own = module(name), module(name)
    calls = {f: dy2st.to_static(own[f]) for f in ("made", "outside", "looped")}
    for change in ("pass", *CASES[name][2], "pass"):
        run(change, eager), run(change, own)
        for f, static in calls.items():
            check.same(static(X), eager[f](X), what=f"{f} after {change}")


def test_an_error_of_the_user_has_what_its_class_has():
    class Rejected(Exception):
        weight = 2.0

    def weighed(x):
        try:
            raise Rejected
        except Rejected as e:
            return x * e.weight

    static = dy2st.to_static(weighed)
    check.same(static(X), X * 2)
    Rejected.weight = 5.0
    check.same(static(X), X * 5)


def imports(x):
    from settings_of_the_user import rate as by
    from settings_of_the_user import table, weight

    return x * by + table["a"] + weight


def test_what_a_function_imports_is_followed(monkeypatch):
    settings = types.ModuleType("settings_of_the_user")
    settings.rate, settings.table, settings.weight = 2.0, {"a": 1.0}, X * 2
    monkeypatch.setitem(sys.modules, settings.__name__, settings)
    static = dy2st.to_static(imports)
    for change in (
        lambda: None,
        lambda: setattr(settings, "rate", 5.0),
        lambda: settings.table.update(a=3.0),
        lambda: setattr(settings, "weight", X * 7),
        lambda: setattr(settings, "table", {"a": 9.0}),
    ):
        change()
        check.same(static(X), imports(X))


LEVEL = {"most": 3.0}


@dataclasses.dataclass
class Step:
    """What `__post_init__` reads and decides is that of each call."""

    value: object
    seen: list = dataclasses.field(default_factory=list)
    rate: typing.ClassVar[float] = 2.0

    def __post_init__(self):
        self.seen.append(self.value * self.rate)
        if self.value.sum() > LEVEL["most"]:
            self.value = -self.value


def steps(x):
    for _ in range(10):
        x = Step(x * 1.5).value
    return x, Step(x).seen


def test_a_dataclass_that_computes_when_it_is_made(monkeypatch):
    static = dy2st.to_static(steps)
    for change in (
        lambda: None,
        lambda: monkeypatch.setattr(Step, "rate", 5.0),
        lambda: monkeypatch.setitem(LEVEL, "most", -1.0),
        lambda: monkeypatch.setattr(Step, "__post_init__", lambda self: self.seen.append(X)),
    ):
        change()
        check.same(static(X), steps(X))
        check.same(static(X * -3), steps(X * -3))


class Part:
    def __init__(self):
        self.level = LEVEL["most"]


@dataclasses.dataclass
class WithFactories:
    """What its factories read is that of each call, and what they give may be shared."""

    shared: list = dataclasses.field(default_factory=lambda: LEVEL["seen"])
    levels: list = dataclasses.field(default_factory=lambda: [LEVEL["most"]], init=False)
    part: Part = dataclasses.field(default_factory=Part)
    known: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        self.known["last"] = self.levels[0] + self.part.level


def with_factories(x):
    made = WithFactories()
    made.shared.append(made.known["last"])
    made.levels.append(x)
    return x * made.levels[0] + made.known["last"], made.levels


def test_the_default_factories_of_a_dataclass(monkeypatch):
    static, seen = dy2st.to_static(with_factories), ([], [])
    for most in (3.0, 4.0, 5.0, 5.0):
        monkeypatch.setitem(LEVEL, "most", most)
        monkeypatch.setitem(LEVEL, "seen", seen[0])
        found = static(X)
        monkeypatch.setitem(LEVEL, "seen", seen[1])
        check.same(found, with_factories(X))
        assert seen[0] == seen[1]


class Doubled(paddle.nn.Layer):
    def forward(self, x):
        return x * 2


def test_a_layer_that_the_function_makes(monkeypatch):
    static = dy2st.to_static(lambda x: Doubled()(x))
    check.same(static(X), X * 2)
    monkeypatch.setattr(Doubled, "forward", lambda self, x: x * 5)
    check.same(static(X), X * 5)


# ---------------------------------------------------------------- isinstance and issubclass
class Told(type):
    """A class that says itself what belongs to it."""

    yes = False

    def __instancecheck__(cls, x):
        return Told.yes

    def __subclasscheck__(cls, kind):
        return Told.yes


class Asked(metaclass=Told):
    pass


Abstract = type("Abstract", (abc.ABC,), {})


@typing.runtime_checkable
class Runs(typing.Protocol):
    def run(self): ...


class Plain:
    pass


class Silent(type):
    """A class of classes that gets its own way later."""


Quiet, Other, Heir = Silent("Quiet", (), {}), type("Other", (), {}), type("Heir", (Plain,), {})
HEIR = Heir()
PLAIN, SPACE = Plain(), types.SimpleNamespace()
#: what is asked, and what gives another answer
ASKED = {
    "its own way": (lambda: isinstance(PLAIN, (int, Asked)), lambda: setattr(Told, "yes", True)),
    "its own way, of a class": (
        lambda: issubclass(Plain, Asked), lambda: setattr(Told, "yes", True)),
    "registered": (lambda: isinstance(PLAIN, Abstract), lambda: Abstract.register(Plain)),
    "registered, made here": (
        lambda: isinstance(Plain(), int | Abstract), lambda: Abstract.register(Plain)),
    "its own way, later": (
        lambda: isinstance(PLAIN, Quiet),
        lambda: setattr(Silent, "__instancecheck__", lambda cls, x: True)),
    "other bases": (lambda: isinstance(HEIR, Other), lambda: setattr(Heir, "__bases__", (Other,))),
    "callable": (lambda: callable(PLAIN), lambda: setattr(Plain, "__call__", print)),
    "protocol, of a namespace": (
        lambda: isinstance(SPACE, Runs), lambda: setattr(SPACE, "run", print)),
    "protocol": (lambda: isinstance(PLAIN, Runs), lambda: setattr(Plain, "run", print)),
    "protocol, made here": (
        lambda: isinstance(Plain(), Runs), lambda: setattr(Plain, "run", print)),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_an_answer_of_isinstance_that_changes(name, monkeypatch):
    monkeypatch.setattr(Told, "yes", False)
    kind = type("Abstract", (abc.ABC,), {})
    monkeypatch.setitem(globals(), "Abstract", kind)
    asks, change = ASKED[name]

    def f(x):
        return x * 2 if asks() else x

    static = dy2st.to_static(f)
    try:
        for k in range(4):
            if k == 2:
                change()
            check.same(static(X), X * (1 + (k > 1)), what=f"call {k}")
    finally:
        for kind, attribute in ((Plain, "run"), (Plain, "__call__"), (Silent, "__instancecheck__")):
            if attribute in vars(kind):
                delattr(kind, attribute)
        Heir.__bases__ = (Plain,)
        vars(SPACE).clear()


def test_registrations_elsewhere_make_no_new_programs():
    static = dy2st.to_static(lambda x: x * 2 if isinstance(PLAIN, Abstract) else x)
    static(X)
    type("Other", (abc.ABC,), {}).register(Plain)
    static(X)
    assert len(dy2st.explain(static).reasons) == 1


# ---------------------------------------------------------------- settings
class Hooked(metaclass=abc.ABCMeta):  # noqa: B024
    flag = True

    @classmethod
    def __subclasshook__(cls, c):
        return cls.flag


def helper(a, b=1):
    return a


scaled = functools.partial(lambda k, x: x * k, 2.0)


def set_precision(k):
    decimal.getcontext().prec = 28 - 6 * k


def set_signature(k):
    names = [inspect.Parameter(f"p{q}", inspect.Parameter.POSITIONAL_ONLY) for q in range(k + 1)]
    helper.__signature__ = inspect.Signature(names)


def set_state(k):
    scaled.__setstate__((scaled.func, (float(k),), {}, {}))


def set_hook(k):
    Hooked.flag = k != 1
    _abc._reset_caches(Hooked)


SETTINGS = {
    "decimal": (set_precision, lambda x: x * float(10**9 * (decimal.Decimal(2) / 3) % 1)),
    "a method of a Decimal": (set_precision, lambda x: x * float(TWO.sqrt() * 10**9 % 1)),
    "__signature__": (set_signature, lambda x: x * len(inspect.signature(helper).parameters)),
    "partial": (set_state, lambda x: scaled(x)),
    "__subclasshook__": (set_hook, lambda x: x * (2 if isinstance(scaled, Hooked) else 3)),
}
TWO = decimal.Decimal(2)


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_followed(name):
    change, f = SETTINGS[name]
    static, x = dy2st.to_static(f), paddle.ones([2], "float64")
    try:
        for k in (0, 1, 2):
            change(k)
            check.same(static(x), f(x))
    finally:
        set_precision(0)
        vars(helper).pop("__signature__", None)
