"""Guards: the values that a trace read from Python objects, and cheap checks that they still hold.

A cached program is valid for a call while every attribute, item and global that its trace read
gives the same thing: equal constants, the same objects. The checks become part of the entry's call.
Tensors found at a place are looked up again on each call, so a rebound buffer is followed.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from dy2st.convert.marks import is_ignored
from dy2st.state.bindings import ModuleGlobal
from dy2st.state.containers.constants import HEAP_TYPE, gives_again, same_array, same_elements
from dy2st.state.containers.constants import described as described
from dy2st.state.containers.constants import is_constant as is_constant
from dy2st.state.containers.constants import is_plain as is_plain
from dy2st.state.containers.constants import same_constant as same_constant
from dy2st.state.containers.elements import MAY_MOVE, ContainerGuards, apart, is_located
from dy2st.state.containers.guard_expressions import GuardExpressions
from dy2st.state.effects import name_of
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.undo import MISSING, AttributeLocation, ItemLocation, Location, lookup

_DICTS = ("_parameters", "_buffers", "_sub_layers")
#: what a look at a method of an object makes anew
METHODS = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)
CALLED = {"_parameters": "parameters", "_buffers": "buffers", "_sub_layers": "sublayers"}
#: Layers that are read like lists and dicts
HOLDERS = (
    paddle.nn.LayerList, paddle.nn.LayerDict, paddle.nn.Sequential,
    paddle.nn.ParameterList, paddle.nn.ParameterDict,
)  # fmt: skip
#: where what replaces functions of Paddle is defined
INTERCEPTION = ("dy2st.capture.intercept", "dy2st.capture.layer_methods")
_IRRELEVANT = frozenset(("_full_name", "_built", "_loaddict_holder", "_init_in_dynamic_mode"))


@dataclass(frozen=True)
class GuardedRead:
    """The subject of a guard: the user's name, the expression that reads it, the value it had."""

    name: str
    expression: str
    before: str


def plain_function(f: object) -> object:
    """The function of the user that a special method calls while its class is changed."""
    return getattr(f, "__dy2st_original__", f) if isinstance(f, types.FunctionType) else f


class Guards(ContainerGuards):
    """Collected while tracing; `expressions` over `names` are true while nothing has changed."""

    def __init__(self, tensor: type) -> None:
        super().__init__()
        self.tensor = tensor
        self.terms = GuardExpressions()
        self.found: dict[int, str] = {}
        self.places: dict[int, Location] = {}
        self.held: list[object] = []
        self.numbers: dict[tuple[object, ...], tuple[Location, object]] = {}
        self.names: dict[str, Any] = {"MISSING": MISSING, "same": same_constant, "TENSOR": tensor}
        self.names.update(same_array=same_array, IS=operator.is_, gives_again=gives_again)
        self.names.update(DICT=dict, same_elements=same_elements)
        self.names.update(apart=apart, others=self.containers)
        self.arrays: dict[int, np.ndarray] = {}
        self.ids: dict[int, str] = {}
        self.named: dict[int, str] = {}
        self.reads: dict[tuple[object, ...], GuardedRead] = {}
        self.settings_of: dict[tuple[object, ...], Any] = {}

    def ref(self, obj: object) -> str:
        """A name for an object in the check; keeps the object alive."""
        if id(obj) not in self.ids:
            name = f"o{len(self.ids)}"
            self.ids[id(obj)] = name
            self.names[name] = obj
            self.on_object(obj)
        return self.ids[id(obj)]

    def expect(
        self,
        key: tuple[object, ...],
        expression: str,
        value: object,
        place: Location | None = None,
        whole: bool = True,
    ) -> None:
        """`expression` must give `value` again; with `whole` also the elements of a container.

        A number that is an input needs no check.
        """
        if is_runtime_scalar(value):
            return
        if key not in self.terms:
            self.note(key, self.title(key, place), expression, value)
            self.terms[key] = self.test(expression, value, place)
            if type(value) in MAY_MOVE and place is not None and is_constant(value):
                self.numbers[key] = (self.located(place), value)
        if whole:
            self.contents(value)
        if isinstance(value, HOLDERS):
            self.holder(value)

    def note(
        self, key: tuple[object, ...], title: str, expression: str = "", value: object = MISSING
    ) -> None:
        """The user's name for what a guard reads, for `GuardChecks`."""
        self.reads[key] = GuardedRead(title, expression, described(value) if expression else "")
        if not is_constant(value):
            self.named.setdefault(id(value), title)

    def name(self, obj: object) -> str:
        return self.named.get(id(obj)) or type(obj).__name__.lower()

    def title(self, key: tuple[object, ...], place: Location | None) -> str:
        """The user's name for a place, or for what a key says."""
        if isinstance(place, AttributeLocation):
            return place.shown or f"{self.name(place.obj)}.{place.name}"
        if isinstance(place, ItemLocation):
            at = place.index
            return str(at) if key[0] == "global" else f"{self.name(place.obj)}[{at!r}]"
        of = self.named.get(key[1], "a container") if isinstance(key[1], int) else ""
        return {"len": f"len({of})", "keys": f"the keys of {of}"}.get(str(key[0]), str(key[-1]))

    def test(self, expression: str, value: object, place: Location | None) -> str:
        if value is None or isinstance(value, bool):
            return f"{expression} is {value!r}"
        if value is MISSING:
            return f"{expression} is MISSING"
        if isinstance(value, np.ndarray):
            self.arrays[id(value)] = value
            return self.array_test(expression, value)
        if is_constant(value) and not self.is_taken_apart(value, place):
            c = self.ref_constant(value)
            return f"({expression} is {c} or same({expression}, {c}))"
        if isinstance(value, self.tensor):
            return self.tensor_test(expression, value, place)
        if is_located(value) or self.is_inner(value, place):
            return self.container_test(expression, value, place)
        return f"{expression} is {self.ref(value)}"

    def array_test(self, expression: str, value: np.ndarray) -> str:
        """The elements of an array are compared in every call, at some 0.1 ms for a megabyte."""
        parts = (type(value), value.dtype, value.shape, value.tobytes())
        known = map(self.ref_constant, parts)
        return f"same_array({expression}, {', '.join(known)})"

    def tensor_test(self, expression: str, value: object, place: Location | None) -> str:
        """Calls look a tensor up at its first place; guard that further places hold the same
        tensor."""
        first = self.found.setdefault(id(value), expression)
        if first != expression:
            return f"{expression} is {first}"
        self.held.append(value)
        if place is not None:
            self.places[id(value)] = self.located(place)
        return f"isinstance({expression}, TENSOR)"

    def ref_constant(self, value: object) -> str:
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def attr(self, obj: object, name: str, value: object, whole: bool = True) -> None:
        """`obj.name` gave `value`; a method of its class is looked up there."""
        if is_intercepted(value):
            return
        value = plain_function(value) if isinstance(obj, type) else value
        self.meet(obj)
        fields = getattr(obj, "__dict__", None)
        own = isinstance(fields, dict) and name in fields or isinstance(value, self.tensor)
        if not own and isinstance(bound := unbound(value), types.MethodType):
            self.method(obj, name, getattr(bound, "__func__", None))
        elif not own and value is not MISSING and getattr(type(obj), name, MISSING) is value:
            self.method(obj, name, value)
        elif own or not isinstance(value, METHODS):
            place = AttributeLocation(obj, name)
            found = lookup(obj, name, self.ref, value is MISSING)
            self.expect(place.key, found, value, place, whole)

    def field_names(self, fields: dict[str, object], stored: frozenset[object]) -> None:
        """An object has these attributes, and perhaps some of those that the trace has stored."""
        others = tuple(k for k in fields if k not in stored)
        now = f"tuple(k for k in {self.ref(fields)} if k not in {self.ref_constant(stored)})"
        self.terms["names", id(fields), stored] = f"{now} == {self.ref_constant(others)}"

    def array(self, x: np.ndarray) -> None:
        """An array from outside was read; if it was found at a place, that is checked already."""
        if id(x) not in self.arrays:
            key = ("array", id(x))
            self.terms[key] = self.test(self.ref(x), x, None)

    def call(
        self,
        f: object,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        value: object = None,
        raised: object = None,
    ) -> None:
        """`f(*args, **kwargs)` gave `value`, or raised an exception of the type `raised`."""
        parts = [self.ref(f), *map(self.ref_constant, (args, kwargs, value, raised))]
        expression = f"gives_again({', '.join(parts)})"
        known = tuple(repr(q) if is_plain(q) else id(q) for q in (*args, *kwargs.values()))
        key = ("call", id(f), known, tuple(kwargs))
        self.terms[key] = expression
        given = [*map(described, args), *(f"{k}={described(v)}" for k, v in kwargs.items())]
        shown = f"{name_of(f).replace('_Environ', 'environ')}({', '.join(given)})"
        if f is operator.getitem:
            shown = f"os.environ[{given[1]}]"
        self.note(key, f"{shown} gives another result")

    def weak(self, reference: object, found: object) -> None:
        """A weak reference gave this object."""
        self.expect(("weak", id(reference)), f"{self.ref(reference)}()", found)

    def default_dtype(self, kind: type, found: str) -> None:
        """The element type for new tensors, which Paddle keeps in a private field of a class."""
        field = "_LayerHelperBase__dtype"
        expression = f"{self.ref(kind)}.{field}"
        self.terms["default dtype",] = f"{expression} == {found!r}"
        self.note(("default dtype",), "the default dtype", expression, found)

    def method(self, obj: object, name: str, function: object) -> None:
        """A method, which is made anew at every look: its class has the function, and the object
        has no attribute of that name."""
        kind = obj if isinstance(obj, type) else type(obj)
        self.class_of(obj)
        found: object = plain_function(getattr(kind, name, MISSING))
        function = plain_function(function)
        if is_intercepted(found):
            return
        if isinstance(found, types.MethodType) and found.__func__ is function:
            expression = f"getattr({self.ref(kind)}.{name}, '__func__', MISSING)"
            self.expect(("method", id(kind), name), expression, function)
            self.note(("method", id(kind), name), f"{kind.__name__}.{name}", expression, function)
        elif found is function or unbound(found) is function:
            expression = f"{self.ref(kind)}.{name}"
            self.expect(("method", id(kind), name), expression, found)
            self.note(("method", id(kind), name), f"{kind.__name__}.{name}", expression, found)
        if isinstance(fields := getattr(obj, "__dict__", None), dict):
            self.terms["own", id(obj), name] = f"{name!r} not in {self.ref(fields)}"
            self.note(("own", id(obj), name), f"{self.name(obj)}.{name} has been replaced")

    def class_of(self, obj: object) -> None:
        """The class of an object, which may be assigned where it is written in Python."""
        kind = type(obj)
        if not isinstance(obj, (type, types.ModuleType)) and kind.__flags__ & HEAP_TYPE:
            self.terms["kind", id(obj)] = f"type({self.ref(obj)}) is {self.ref(kind)}"
            self.note(("kind", id(obj)), f"the class of {self.name(obj)} is another one")

    def in_class(self, obj: object, name: str, descriptor: object) -> None:
        """The class of the object, and not the object, has this descriptor."""
        self.class_of(obj)
        kind = next(k for k in type(obj).__mro__ if name in vars(k))
        self.expect(("class", id(kind), name), f"{self.ref(kind)}.__dict__[{name!r}]", descriptor)
        self.absent(obj, name)

    def absent(self, obj: object, name: str) -> None:
        """An object has no attribute of its own by this name."""
        if hasattr(obj, "__dict__"):
            self.terms["absent", id(obj), name] = f"{name!r} not in {self.ref(obj.__dict__)}"
            self.note(("absent", id(obj), name), f"{self.name(obj)}.{name} is new")

    def unregistered(self, layer: object, name: str) -> None:
        """An attribute that is stored is no parameter, buffer or sublayer."""
        fields, key = self.ref(layer.__dict__), ("unregistered", id(layer), name)
        tests = [f"{name!r} not in {fields}[{part!r}]" for part in _DICTS]
        self.terms[key] = " and ".join(tests)
        self.note(key, f"{self.name(layer)}.{name} is a part of it")

    def special_method(self, kind: type, name: str, found: object) -> None:
        """A class of the user has this function, or descriptor, under a name that Python looks up
        in classes."""
        expression = f"getattr({self.ref(kind)}, {name!r}, MISSING)"
        if not isinstance(found, (types.FunctionType, property, functools.cached_property)):
            base = next(k for k in kind.__mro__ if name in vars(k))
            expression = f"{self.ref(base)}.__dict__[{name!r}]"
        self.expect(("special", id(kind), name), expression, plain_function(found))
        found = plain_function(found)
        self.note(("special", id(kind), name), f"{kind.__name__}.{name}", expression, found)

    def global_(self, space: dict[str, object], name: str, whole: bool = True) -> None:
        self.meet(space)
        if name in space:
            value = space[name]
            if not isinstance(value, types.ModuleType):
                expression = f"{self.ref(space)}[{name!r}]"
                place = ModuleGlobal(space, name)
                self.expect(("global", id(space), name), expression, value, place, whole)

    def function(self, f: Any) -> None:
        """A function that was converted: its code and defaults."""
        o = self.ref(f)
        terms = [f"{o}.__code__ is {self.ref(f.__code__)}"]
        for name in ("__defaults__", "__kwdefaults__"):
            value = getattr(f, name)
            terms.append(f"{o}.{name} is {'None' if value is None else self.ref(value)}")
        self.terms["function", id(f)] = " and ".join(terms)
        self.note(("function", id(f)), f"the code or the defaults of {f.__name__} are new")
        names = f.__code__.co_varnames[: f.__code__.co_argcount]
        given = zip(reversed(names), reversed(f.__defaults__ or ()))
        for name, value in (*given, *(f.__kwdefaults__ or {}).items()):
            if not is_constant(value):
                self.named.setdefault(id(value), name)
        for held in (f.__defaults__, f.__kwdefaults__):
            if held:
                self.contents(held)

    def cell(self, cell: object, name: str, value: object, whole: bool = True) -> None:
        """A variable of an enclosing function."""
        place = AttributeLocation(cell, "cell_contents", name)
        self.expect(("cell", id(cell)), f"{self.ref(cell)}.cell_contents", value, place, whole)

    def layer(self, layer: object, stored: Collection[tuple[object, ...]] = ()) -> None:
        """The settings of a Layer that was called: hooks, and for Paddle's own `p`, `training`...

        Attributes of the user's Layers are guarded one by one as they are read. `stored`: keys of
        the locations that the function itself has stored before.
        """
        own = frozenset(k[2] for k in stored if k[:2] == ("attr", id(layer)))
        if ("layer", id(layer), own) in self.terms:
            return
        fields: dict[str, object] = layer.__dict__
        tests = [self.same_values(fields[n]) for n in ("_forward_pre_hooks", "_forward_post_hooks")]
        if "forward" not in own:
            self.attr(layer, "forward", getattr(layer, "forward"))  # noqa: B009
        if is_foreign(type(layer)):
            tests += self._settings(layer, own)
        if isinstance(layer, HOLDERS):
            self.holder(layer)
        self.terms["layer", id(layer), own] = " and ".join(tests)
        self.note(("layer", id(layer), own), f"a hook of {self.name(layer)} is another one")
        if is_foreign(type(layer)):
            self.remember(("layer", id(layer), own), layer, own)

    def again(self, layer: object) -> None:
        """A setting of a Layer that was called has taken its one form: guards have that."""
        known: list[Any] = [k for k in self.terms if k[:2] == ("layer", id(layer))]
        for key in known:
            del self.terms[key]
            self.layer(layer, [("attr", id(layer), name) for name in key[2]])

    def settings(self, layer: object, stored: Collection[tuple[object, ...]] = ()) -> None:
        """Guard the settings that methods of Paddle read of a Layer whose class is the user's."""
        own = frozenset(k[2] for k in stored if k[:2] == ("attr", id(layer)))
        if not is_foreign(type(layer)) and ("settings", id(layer), own) not in self.terms:
            tests = self._settings(layer, own)
            self.terms["settings", id(layer), own] = " and ".join(tests)
            self.remember(("settings", id(layer), own), layer, own)

    def remember(self, key: tuple[object, ...], layer: object, own: Collection[object]) -> None:
        """The constants of a Layer, to say which has changed."""
        fields = layer.__dict__
        known = _IRRELEVANT.union(own)
        before = {n: v for n, v in fields.items() if is_setting(v) and n not in known}
        self.settings_of[key] = (self.name(layer), fields, before)

    def children(self, layer: object) -> None:
        """The very Layers that are directly below this one."""
        self.terms["children", id(layer)] = self.same_values(layer.__dict__["_sub_layers"])

    def holder(self, layer: object) -> None:
        """The names in a list or dict of Layers or parameters, and what stands there."""
        self.members(layer, "_sub_layers")
        self.members(layer, "_parameters")

    def members(self, layer: object, name: str) -> None:
        """The names in one of the dicts of a Layer, in order, and what stands there."""
        key, held = ("members", id(layer), name), layer.__dict__.get(name)
        if key in self.terms or held is None:
            return
        o = f"{self.ref(layer.__dict__)}[{name!r}]"
        values = self.ref_constant(tuple(held.values()))
        same = f"all(map(IS, q.values(), {values}))"
        names = f"tuple(q := {o}) == {self.ref_constant(tuple(held))}"
        self.terms[key] = f"{names} and {same}" if held else f"not {o}"
        self.note(key, f"the {CALLED[name]} of {self.name(layer)} are other ones")
        self.name_parts(layer, held)
        for inner in held.values():
            if isinstance(inner, HOLDERS):
                self.holder(inner)

    def name_parts(self, layer: object, held: Mapping[str, object]) -> None:
        of, keys = self.name(layer), isinstance(layer, HOLDERS)
        for name, part in held.items():
            at = f"[{name if name.isdigit() else repr(name)}]" if keys else f".{name}"
            self.named.setdefault(id(part), f"{of}{at}")

    def buffers(self, layer: Any) -> None:
        """The names of the buffers of a Layer, which calls look up."""
        held = layer.__dict__["_buffers"]
        o = f"{self.ref(layer.__dict__)}['_buffers']"
        names = (*held, *sorted(layer._non_persistable_buffer_names_set))
        kept = f"*sorted({self.ref(layer)}._non_persistable_buffer_names_set)"
        self.terms["members", id(layer), "_buffers"] = (
            f"(*{o}, {kept}) == {self.ref_constant(names)}"
        )
        self.note(("members", id(layer), "_buffers"), f"the buffers of {self.name(layer)}")
        for name, tensor in held.items():
            self.attr(layer, name, tensor)

    def flag(self, tensor: object, name: str, value: object) -> None:
        """`tensor.name`, a property of a real tensor, gave `value`."""
        o, key = self.found.get(id(tensor)) or self.ref(tensor), ("flag", id(tensor), name)
        if value is MISSING:
            self.expect(key, f"getattr({o}, {name!r}, MISSING)", value)
        elif is_constant(value):
            self.expect(key, f"{o}.{name}", value)
        else:
            self.terms[key] = f"{o}.{name} == {self.ref_constant(value)}"
        self.note(key, f"{self.name(tensor)}.{name}", f"{o}.{name}", value)

    def _settings(self, layer: object, own: Collection[object]) -> list[str]:
        """Compare all settings of a Paddle Layer at once, and its sublayers by identity."""
        fields: dict[str, object] = layer.__dict__
        known = _IRRELEVANT.union(own, ("forward",))
        chosen = [n for n, v in fields.items() if is_setting(v) and n not in known]
        f, out = self.ref(fields), list[str]()
        if chosen:
            get = operator.itemgetter(*chosen)
            now, before = f"{self.ref(get)}({f})", self.ref_constant(get(fields))
            several = len(chosen) > 1
            out.append(f"all(map(IS, {now}, {before}))" if several else f"{now} is {before}")
        inner = fields.get("_sub_layers")
        if isinstance(inner, dict) and inner:
            values = self.ref_constant(tuple(inner.values()))
            q = f"(q := {f}['_sub_layers'])"
            out.append(f"len{q} == {len(inner)} and all(map(IS, q.values(), {values}))")
            self.name_parts(layer, inner)
            for layer in inner.values():
                if isinstance(layer, HOLDERS):
                    self.holder(layer)
        return out

    def same_values(self, held: Any) -> str:
        """The very same objects in a dict, which the check keeps alive."""
        o = self.ref(held)
        if not held:
            return f"not {o}"
        values = self.ref_constant(tuple(held.values()))
        return f"len({o}) == {len(held)} and all(map(IS, {o}.values(), {values}))"

    def expressions(self, bound: set[tuple[object, ...]], tensors: set[int]) -> list[str]:
        """The checks as Python expressions over `names`. The places in `bound` are looked up and
        checked as inputs, so that they hold a tensor needs no check of its own; nor do the shapes
        and element types of these `tensors`, by `id`."""
        if self.given and self.containers:
            self.terms["apart",] = "apart(_L.containers(), others)"
        checked = {("flag", t, name) for t in tensors for name in ("shape", "ndim", "dtype")}
        return [
            test
            for key, test in self.terms.items()
            if test != "True"
            and not (key in bound and test.startswith("isinstance("))
            and key not in checked
        ]

    def finish(self) -> None:
        """Let go of tensors that were met: calls look them up."""
        self.held.clear()
        self.records.clear()
        self.terms.finish()


def is_intercepted(function: object) -> bool:
    """Whether it stands for a function of Paddle's while functions are traced."""
    return getattr(function, "__module__", None) in INTERCEPTION


def is_foreign(kind: type) -> bool:
    """Whether the methods of a class are not converted."""
    return kind.__module__.split(".")[0] == "paddle" or is_ignored(kind.__module__)


def is_setting(x: object) -> bool:
    """Whether `x` is a setting that Layers of Paddle keep from their constructor: a constant, a
    function or a list."""
    return is_constant(x) or isinstance(x, (types.FunctionType, types.BuiltinFunctionType, list))


def unbound(method: object) -> object:
    """The method that a translated method was made of, and any other as it is."""
    return getattr(method, "__dy2st_original__", method)
