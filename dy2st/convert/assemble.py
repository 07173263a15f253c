"""Assembly of a function from a converted tree, with the original globals, cells, defaults, names,
file, lines.

The tree is compiled inside a factory that is never run; its code object is taken out. Generated
functions then get the name of the user's function they are part of, so tracebacks, pdb and coverage
read as if nothing had happened.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from dy2st.convert.source import FACTORY, FunctionNode, compile_function
from dy2st.convert.syntax import RT

LOCALS = ".<locals>."
HAS_QUALNAME = hasattr(types.CodeType, "co_qualname")


def code_of(
    fn: types.FunctionType, node: FunctionNode, generated: Collection[str]
) -> types.CodeType:
    """The code of `node`, under the names of `fn`."""
    free = fn.__code__.co_freevars
    raw = compile_function(node, (RT, *free), fn.__code__.co_filename, fn.__code__.co_flags)
    qualname = getattr(fn.__code__, "co_qualname", fn.__qualname__)
    return CodeRenamer(qualname, frozenset(generated)).code(raw, fn.__code__.co_name, qualname)


def build(fn: types.FunctionType, code: types.CodeType, runtime: object) -> types.FunctionType:
    """A function with `code` and everything else of `fn`."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    cells[RT] = types.CellType(runtime)
    closure = tuple(cells[n] for n in code.co_freevars)
    new = types.FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, closure)
    for name in ("__kwdefaults__", "__annotations__", "__doc__", "__module__", "__qualname__"):
        setattr(new, name, getattr(fn, name))
    if hasattr(fn, "__type_params__"):
        setattr(new, "__type_params__", fn.__type_params__)  # noqa: B010
    new.__dict__.update(fn.__dict__)
    return new


@dataclass(frozen=True)
class CodeRenamer:
    """Gives code objects the names they have without the factory and the generated functions."""

    root: str
    generated: frozenset[str]

    def code(self, code: types.CodeType, name: str, qualname: str) -> types.CodeType:
        sep = LOCALS if code.co_flags & 1 else "."
        consts = tuple(self.const(c, name, qualname, sep) for c in code.co_consts)
        changes: dict[str, Any] = {"co_qualname": qualname} if HAS_QUALNAME else {}
        return code.replace(co_consts=consts, co_name=name, **changes)

    def const(self, const: object, name: str, qualname: str, sep: str) -> object:
        if isinstance(const, str) and const.startswith(FACTORY + LOCALS):
            segments = [s for s in const.split(LOCALS)[2:] if s not in self.generated]
            return LOCALS.join([self.root, *segments])
        if not isinstance(const, types.CodeType):
            return const
        if const.co_name in self.generated:
            return self.code(const, name, qualname)
        return self.code(const, const.co_name, qualname + sep + const.co_name)


def global_reads(code: types.CodeType) -> tuple[str, ...]:
    """The names of the globals (and builtins) that a function and the code in it read."""
    return tuple(sorted(set(reads(code))))


def reads(code: types.CodeType) -> Iterator[str]:
    found = [(i.opname, i.argval) for i in dis.get_instructions(code)]
    own = {name for op, name in found if op == "STORE_NAME"}
    yield from (n for op, n in found if op == "LOAD_GLOBAL" or op == "LOAD_NAME" and n not in own)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from reads(const)
