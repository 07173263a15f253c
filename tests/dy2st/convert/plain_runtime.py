"""The runtime object of converted code with Python's own meaning, and no more."""

from __future__ import annotations

import contextlib
import dis
import functools
import operator
import types
from collections.abc import Mapping, Sequence

WRITES = ("STORE_DEREF", "DELETE_DEREF")

AUGMENTED = {
    "+": operator.iadd, "-": operator.isub, "*": operator.imul, "@": operator.imatmul,
    "/": operator.itruediv, "//": operator.ifloordiv, "%": operator.imod, "**": operator.ipow,
    "<<": operator.ilshift, ">>": operator.irshift, "|": operator.ior, "^": operator.ixor,
    "&": operator.iand,
}  # fmt: skip


class Forgotten:
    """Stands in a variable that is said to be dead."""

    def __repr__(self):
        return "FORGOTTEN"


FORGOTTEN = Forgotten()


class Undefined:
    def __repr__(self):
        return "UNDEF"


def plain(names):
    return [n.rstrip("=") for n in names]


def forget(names, *functions, keep=()):
    """Overwrite what the functions assign beside `names`: nobody may miss what is dead."""
    for f in functions:
        for name in set(stored(f.__code__)) - set(names):
            cells = dict(zip(f.__code__.co_freevars, f.__closure__ or (), strict=True))
            if name in cells and not any(cells[name] is c for c in keep):
                cells[name].cell_contents = FORGOTTEN


@functools.cache
def stored(code):
    """The outer variables that a generated function assigns or deletes, those in it included."""
    found = [i.argval for i in dis.get_instructions(code) if i.opname in WRITES]
    inner = [c for c in code.co_consts if hasattr(c, "co_code") and c.co_name == code.co_name]
    return {n for n in found if n in code.co_freevars}.union(*map(stored, inner))


class Runtime:
    """What `dy2st.convert.statements` asks of a runtime. Every loop and branch reads and
    rewrites its state, and what it assigns beside that is forgotten, so that a name too few in
    `names` is noticed."""

    UNDEF = Undefined()

    def __init__(self, convert=None):
        self.convert = convert
        self.asked = []
        self.outside = []

    def forget(self, names, *functions):
        forget(names, *functions, keep=self.outside)

    def rebinding(self, value, thunk, inner):
        self.rebinds(thunk, inner)
        return value

    def rebinds(self, thunk, inner):
        self.outside += thunk.__closure__ or ()

    def items(self, iterable, test=None):
        items = iter(iterable)
        while test is None or test():
            try:
                item = next(items)
            except StopIteration:
                return
            yield item

    def joined(self, *parts):
        how = {-1: lambda x: x, 115: str, 114: repr, 97: ascii}
        return "".join(q if type(q) is str else format(how[q[1]](q[0]), q[2]) for q in parts)

    def union(self, x, y):
        return x | y

    def percent(self, text, values):
        assert type(text) is str
        return text % values

    def trying(self):
        return contextlib.nullcontext()

    def manager(self, x):
        assert hasattr(type(x), "__exit__")
        return x

    def mapping(self, x):
        return x

    def comprehension(self, f, iterable):
        return f(iterable)

    def iterated(self, x, parts=False):
        return x

    def generator_(self, make, iterable, whole, name, item):
        if item is not None:
            return (item(q) for q in iterable)
        g = make(iterable)
        assert isinstance(g, types.GeneratorType)
        assert (whole is None) or name
        return g

    def for_(self, iterable, body, get_state, set_state, names, test=None):
        self.note("for", names, get_state)
        items = iter(iterable)
        carried = [n for n in names if not n.endswith("=")]
        first = True
        while test is None or test():
            try:
                item = next(items)
            except StopIteration:
                break
            if not first:
                self.forget(carried, body)
            body(item)
            first = False
            set_state(get_state())
            self.forget(plain(names), body)

    def while_(self, test, body, get_state, set_state, names):
        self.note("while", names, get_state)
        carried = [n for n in names if not n.endswith("=")]
        first = True
        while test():
            if not first:
                self.forget([*carried, *stored(test.__code__)], body)
            body()
            first = False
            set_state(get_state())
            self.forget(plain(names), body, test)

    def if_(self, test, then, orelse, get_state, set_state, names):
        self.note("if", names, get_state)
        set_state(get_state())
        (then if test else orelse)()
        set_state(get_state())
        self.forget(plain(names), then, orelse)

    def note(self, kind, names, get_state):
        assert len(names) == len(get_state())
        self.asked.append((kind, names))

    def and_(self, *thunks):
        for thunk in thunks:
            value = thunk()
            if not value:
                break
        return value

    def or_(self, *thunks):
        for thunk in thunks:
            value = thunk()
            if value:
                break
        return value

    def ifexp(self, test, then, orelse):
        return then() if test else orelse()

    def assert_(self, test, message):
        if not test():
            raise AssertionError(*(() if message is None else (message(),)))

    def read(self, thunk):
        try:
            return thunk()
        except NameError:
            return self.UNDEF

    def unzip(self, f, x):
        return f(*x)

    def subject(self, x):
        return x

    def given(self, x):
        return x is not self.UNDEF

    def matches(self, x, kind, *of):
        if kind == "class":
            return isinstance(x, of[0])
        if kind == "mapping":
            return isinstance(x, Mapping)
        sequence = isinstance(x, Sequence) and not isinstance(x, (str, bytes, bytearray))
        return sequence and (len(x) >= of[0] if of[1] else len(x) == of[0])

    def part(self, x, kind, *of):
        if kind == "attribute":
            return getattr(x, of[0], self.UNDEF)
        if kind == "position":
            names = getattr(of[0], "__match_args__", None)
            return x if names is None else getattr(x, names[of[1]], self.UNDEF)
        if kind == "rest":
            return {k: v for k, v in x.items() if k not in of[0]}
        if kind == "star":
            return [*x[of[0] : len(x) - of[1]]]
        return x.get(of[0], self.UNDEF) if kind == "key" else x[of[0]]

    def fn(self, f):
        return f if self.convert is None else self.convert(f)

    def list_(self, x):
        assert type(x) is list
        return x

    def display(self, kind, stars, *values):
        parts = [q for star, x in zip(stars, values, strict=True) for q in (x if star else (x,))]
        return parts if kind == "list" else tuple(parts)

    def dict_(self, x):
        assert type(x) is dict
        return x

    def set_(self, x):
        assert type(x) is set
        return x

    def aug(self, op, x, value):
        return AUGMENTED[op](x, value)

    def store_attr(self, value, obj, name):
        setattr(obj, name, value)

    def store_item(self, value, obj, index):
        obj[index] = value

    def in_(self, a, b):
        return a in b

    def compared(self, x):
        return x

    def not_in(self, a, b):
        return a not in b

    not_ = staticmethod(operator.not_)
    is_ = staticmethod(operator.is_)
    is_not = staticmethod(operator.is_not)
    load_attr = receiver = staticmethod(getattr)
    del_attr = staticmethod(delattr)

    def imported(self, where, package, name, value):
        return value

    def receiver_item(self, obj, index, *default):
        return obj.setdefault(index, *default) if default else obj[index]

    load_item = load_old = staticmethod(operator.getitem)
    del_item = staticmethod(operator.delitem)
    slice_ = staticmethod(slice)
    holds = staticmethod(bool)
