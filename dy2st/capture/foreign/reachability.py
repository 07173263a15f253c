"""The Python state that host calls of the user's functions, logs and warnings read and change.

A program reads Python state when its call begins and stores it when the call ends. A host call in
between must not read what the function has stored before it, nor change what it reads after it.
What a call comes to follows from the names in the code of its functions; what it has changed of
that, the program looks for when it has made the call.
"""

from __future__ import annotations

import functools
import gc
import itertools
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import paddle

from dy2st.state.container_writes import AppendedElements
from dy2st.state.ownership import LIBRARIES, refuse
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.trace import Trace
from dy2st.trace.undo import Location, kind_of
from ir import SourceError

#: larger containers are not looked into
MOST_ELEMENTS = 64
#: iterators of Python over others
ITERATORS = (map, zip, filter, enumerate, itertools.chain, itertools.islice)
_DICTS = ("_parameters", "_buffers", "_sub_layers")
#: methods of a Layer that come to all that it holds
_WHOLE = {
    "parameters", "named_parameters", "buffers", "named_buffers", "state_dict", "set_state_dict",
    "load_dict", "set_dict", "sublayers", "named_sublayers", "children", "apply", "to",
}  # fmt: skip


def watched(
    trace: Trace, f: Callable[..., object], name: str, given: Iterable[object]
) -> Callable[..., object]:
    """`f`, after each call of which the program looks for changes that it cannot follow.

    Raises Refused if it may read what the function has stored before.
    """
    if trace.guards is None:
        return f  # type: ignore[no-any-return]
    terms, loc, reach = trace.guards.terms, trace.where(), ReachableObjects.of((f, *given))

    def check(place: Location) -> None:
        if reach.may_read(place) and trace.outside_of_trace(place.obj):
            raise refuse(
                f"{name}() may read {place}, which the function changes before the call.",
                "A program stores in objects and tensors of the caller when its own call ends, so "
                "this one would find what was there before.",
                "Pass the value as an argument, or make the call before the change.",
            )

    for frame in trace.frames:
        for place in frame.stores.values():
            check(place)
    for obj, tail, _ in trace.guards.tails.values():
        if tail.parts():
            check(AppendedElements(obj))
    for place in written_tensors(trace):
        check(place)
    terms.call(reach.objects, reach.names, check)

    def call(*args: object, **kwargs: object) -> object:
        every = (*args, *kwargs.values())
        before = [*map(contents, every)]
        out = f(*args, **kwargs)
        if any(contents(a) != was for a, was in zip(every, before)):
            raise SourceError(
                f"{name}() has changed its argument.",
                loc,
                reason="A program passes a copy, so the object itself has stayed as it was.",
                remedy="Return what is new, or change the object in the translated function.",
            )
        terms.after(name, loc)
        return out

    return call


def contents(x: object) -> object:
    """Return a snapshot of the part of a copied argument that a call may change."""
    if isinstance(x, Tensor):
        return x.inplace_version
    if isinstance(x, np.ndarray):
        return x.tobytes()
    return [*map(id, x)] if type(x) is list else None


@dataclass(frozen=True, eq=False)
class WrittenTensor(Location):
    """A tensor from outside."""

    obj: object
    shown: str

    def __str__(self) -> str:
        return f"the tensor {self.shown}"


def written_tensors(trace: Trace) -> Iterable[WrittenTensor]:
    for q in trace.inputs.by_id.values():
        if q.cleared or trace.root(q.value) in trace.values.written:
            yield WrittenTensor(q.tensor, q.name)
            yield WrittenTensor(q.fake, q.name)


# ---------------------------------------------------------------- what a function reaches
def cells(frame: types.FrameType) -> tuple[types.CellType, ...]:
    """The variables of enclosing functions, for another function of a frame's code."""
    return tuple(types.CellType(frame.f_locals.get(n)) for n in frame.f_code.co_freevars)


def is_library(module: str) -> bool:
    """Whether functions of a module do not know objects of the user. Logging calls handlers."""
    home = module.split(".")[0]
    return home in LIBRARIES and home != "logging"


@dataclass
class ReachableObjects:
    """The objects, by `id`, that functions come to through their variables and through the `names`
    in their code."""

    objects: dict[int, object] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    @staticmethod
    def of(roots: Iterable[object]) -> ReachableObjects:
        out, todo, size = ReachableObjects(), [*roots], -1
        while todo or size != len(out.names):
            size = len(out.names)
            while todo:
                x = todo.pop()
                if id(x) not in out.objects:
                    out.objects[id(x)] = x
                    todo += out.parts(x)
            todo = [q for x in [*out.objects.values()] for q in out.named(x)]
            todo = [q for q in todo if id(q) not in out.objects]
        return out

    def may_read(self, place: Location) -> bool:
        name = getattr(place, "name", None)
        return id(place.obj) in self.objects and (name is None or name in self.names)

    def parts(self, x: object) -> Iterable[object]:
        """Return the objects that an object holds without a name."""
        if isinstance(x, functools.partial):
            return (x.func, *x.args, *x.keywords.values())
        if isinstance(x, (types.MethodType, types.BuiltinMethodType)):
            return (x.__self__, getattr(x, "__func__", None))
        if isinstance(x, property):
            return (x.fget,)
        if isinstance(x, (staticmethod, classmethod)):
            return (x.__func__,)
        if isinstance(x, types.FunctionType):
            return self.variables(x)
        if isinstance(x, types.GeneratorType):
            return self.in_generator(x)
        if isinstance(x, ITERATORS):
            return gc.get_referents(x)
        kind = kind_of(x)
        held = x if isinstance(x, tuple) else () if kind is None else kind.values(x)
        return held if len(held) <= MOST_ELEMENTS else ()

    def named(self, x: object) -> Iterable[object]:
        """The attributes of an object that have one of the names."""
        fields = getattr(x, "__dict__", {})
        if isinstance(x, types.ModuleType) and not is_library(x.__name__):
            self.objects[id(fields)] = fields
            return [fields[n] for n in self.names & fields.keys()]
        if isinstance(x, (Tensor, types.ModuleType)) or type(fields) is not dict:
            return []
        if isinstance(x, paddle.optimizer.Optimizer):
            return fields["_parameter_list"] or ()
        if isinstance(x, paddle.nn.Layer) and not self.names.isdisjoint(_WHOLE):
            return [q for n in _DICTS for q in fields[n].values()]
        spaces = [fields, *(fields[n] for n in _DICTS if type(fields.get(n)) is dict)]
        spaces += map(vars, type(x).__mro__)
        return [space[n] for space in spaces for n in self.names & space.keys()]

    def in_generator(self, x: types.GeneratorType[object, object, object]) -> Iterable[object]:
        frame = x.gi_frame
        if frame is None:
            return ()
        made = types.FunctionType(frame.f_code, frame.f_globals, closure=cells(frame))
        return [*self.variables(made), *frame.f_locals.values()]

    def variables(self, f: types.FunctionType) -> Iterable[object]:
        """The values of the variables from outside that a function of the user reads."""
        if is_library(f.__module__ or ""):
            return
        codes = [f.__code__]
        for code in codes:
            self.names.update(code.co_names, code.co_freevars)
            self.names.update(q for q in code.co_consts if isinstance(q, str))
            codes += [q for q in code.co_consts if isinstance(q, types.CodeType)]
            spaces = (f.__globals__, sys.modules)
            yield from (space[n] for space in spaces for n in code.co_names if n in space)
        self.objects[id(f.__globals__)] = f.__globals__
        for cell in f.__closure__ or ():
            self.objects[id(cell)] = cell
            if cell != types.CellType():
                yield cell.cell_contents
        yield from f.__defaults__ or ()
