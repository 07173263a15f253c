"""Python to Python: every construct that may meet a tensor becomes a call of the runtime object.

The runtime (RT below) is a free variable named `__dy2st__` of the converted function:

    RT.for_(iterable, body, get_state, set_state, names, test=None)
        `body(item)` runs one iteration. `get_state()` gives the values of `names` as a tuple
        (RT.UNDEF where unbound), `set_state(values)` sets them (RT.UNDEF unbinds). `names`: the
        variables that the loop assigns and that are live; 'x=' if an iteration sets x before it
        reads it. `test()` is evaluated before each item is fetched; false ends the loop.
    RT.while_(test, body, get_state, set_state, names)
    RT.if_(test_value, then, orelse, get_state, set_state, names)
    RT.and_(thunk, ...)  RT.or_(thunk, ...)  RT.not_(x)  RT.ifexp(test_value, thunk, thunk)
    RT.is_(a, b)  RT.is_not(a, b)  RT.in_(a, b)  RT.not_in(a, b)
    RT.compared(x)                              an operand of `==` or `!=` that is no constant
    RT.fn(f)                                    the function to call instead of f
    RT.unzip(f, x)                              f(*x), where f was written `zip`
    RT.subject(x)                               what a match statement looks at, or what is raised
    RT.matches(x, kind, ...)                    whether x fits a pattern, before a look at its parts
    RT.part(x, kind, ...)                       a part of the subject; RT.UNDEF if it has none
    RT.given(x)                                 whether x is not RT.UNDEF
    RT.list_(x)  RT.dict_(x)  RT.set_(x)        a display or comprehension just made
    RT.display(kind, stars, x, ...)             `[*x, y]` or `(*x, y)`; stars: which have a star
    RT.receiver(obj, name)                      load_attr of what is only appended to, or its items
    RT.receiver_item(obj, index, default)       load_item of what is only appended to, or its items;
                                                with a default, `obj.setdefault(index, default)`
    RT.load_attr(obj, name)  RT.store_attr(value, obj, name)  RT.del_attr(obj, name)
    RT.imported(where, package, name, value)    what `from where import name` has bound
    RT.load_item(obj, index) RT.store_item(value, obj, index) RT.del_item(obj, index)
    RT.slice_(start, stop, step)
    RT.joined(string, (value, conversion, spec), ...)   an f-string
    RT.percent(string, values)                  `string % values`
    RT.union(x, y)                              `x | y`
    RT.aug(op, x, value)                        the new value of `x op= value`; op is '+', '**', ...
    RT.load_old(obj, index)                     load_item for `obj[index] op= value`
    RT.assert_(test_thunk, message_thunk)       message_thunk is None without a message
    RT.read(thunk)                              the thunk's value, RT.UNDEF if it raises NameError
    RT.holds(value)                             for `if` and `while` that contain a `yield`
    RT.items(iterable, test=None)               the items, for a `for` that contains a `yield`
    RT.generator_(make, iterable, whole, name, item)    make(iterable), a generator expression. If
        it is the argument of the builtin `name`, `whole(iterable)` is what that makes of it (any,
        all, and sum with its start as another argument) or the list of its items; else it is None.
        `item(x)` is what it makes of each item x, None if it leaves some out or has inner loops.
    RT.comprehension(f, iterable)               f(iterable), the list of a list comprehension
    RT.iterated(x, parts=False)                 what Python runs through: an unpacking, `*x`, a
                                                comprehension; parts: its elements are unpacked
    RT.mapping(x)                               `**x`, of which all items are read
    RT.trying()                                 entered around what a handler guards
    RT.manager(x)                               the context manager of a `with`
    RT.rebinding(value, lambda: name, inner)    value, to which a variable from outside is bound;
                                                inner: of a function that is converted, too
    RT.rebinds(lambda: name, inner)             a statement that binds or deletes one comes next

Generated nodes carry the place of what they stand for; a loop's or branch's call that of its first
line up to the end of its iterable or test. The result is compiled under the user's file name and
its generated functions bear the user's function's name.

Left as Python: loops and branches that contain a `yield`, class statements, `and`, `or`, `if else`
and chained comparisons with `yield` inside, or with `:=` where no statement can precede
them (comprehensions, lambdas).
"""

from __future__ import annotations

import types
from collections.abc import Hashable
from dataclasses import dataclass

from dy2st.convert.assemble import build, code_of, global_reads
from dy2st.convert.expressions import Names, loads, only_receivers
from dy2st.convert.liveness import NameSupply
from dy2st.convert.source import FunctionNode, source_of, text_of
from dy2st.convert.statements import StatementConverter
from dy2st.convert.unsupported import check, is_converted


def convert(fn: types.FunctionType, runtime: object) -> types.FunctionType:
    """The function over the same globals and cells that asks `runtime` at every construct.

    Functions that are converted already (nested ones are, with the function around them) come back
    unchanged. The result has `__wrapped__` (the original), `__dy2st_tree__` (its tree),
    `__dy2st_globals__` (names of the globals it reads), `__dy2st_reads__` (all names it reads) and
    `__dy2st_receivers__` (those that it does nothing with but append).

    Raises:
        SourceError: no source, or a construct that cannot be translated, named with its place.
    """
    if is_converted(fn):
        return fn
    form = form_of(fn)
    new = build(fn, form.code, runtime)
    new.__wrapped__ = fn  # type: ignore[attr-defined]
    new.__dy2st_tree__ = form.node  # type: ignore[attr-defined]
    new.__dy2st_globals__ = global_reads(fn.__code__)  # type: ignore[attr-defined]
    new.__dy2st_receivers__ = form.receivers  # type: ignore[attr-defined]
    new.__dy2st_reads__ = form.reads  # type: ignore[attr-defined]
    return new


@dataclass(frozen=True)
class ConvertedSource:
    """The converted source of a function, shared by all functions that have its code."""

    node: FunctionNode
    code: types.CodeType
    receivers: Names
    reads: frozenset[str]


#: how many forms are remembered
KEPT = 1024
_FORMS: dict[Hashable, ConvertedSource] = {}


def form_of(fn: types.FunctionType) -> ConvertedSource:
    """Functions that are defined again and again, such as closures, are converted once, as long as
    the text of their file stays."""
    if not isinstance(fn, types.FunctionType):
        return new_form(fn)
    key = fn.__code__, fn.__code__.co_filename, fn.__qualname__, hash(text_of(fn))
    form = _FORMS.get(key)
    if form is None:
        if len(_FORMS) >= KEPT:
            _FORMS.clear()
        form = _FORMS[key] = new_form(fn)
    return form


def new_form(fn: types.FunctionType) -> ConvertedSource:
    source = source_of(fn)
    check(source)
    fresh = NameSupply(source.node)
    receivers, reads = only_receivers(source.node), frozenset(loads(source.node))
    node = StatementConverter(source, fresh).root(source.node)
    return ConvertedSource(node, code_of(fn, node, fresh.made), receivers, reads)


__all__ = ["convert"]
