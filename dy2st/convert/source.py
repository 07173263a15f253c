"""The syntax tree of a live function, with the lines and columns of its file, and unparsing.

The whole file is parsed and the function is found in it by its first line. So columns are true
without dedenting anything, the enclosing class is known (names such as `__x` are mangled here,
because the converted function is compiled outside its class), and everything that `linecache` knows
works: files, notebook cells, doctests, sources registered by `exec` users.

Several lambdas on one line are told apart by the columns of their instructions, or, where the
interpreter keeps no columns, by their compiled code. Lambdas with equal code are interchangeable.
"""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import inspect
import linecache
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dy2st.convert.syntax import FUNCTIONS, FunctionNode, children, copied
from ir.loc import Loc, SourceError

FUTURE = __future__.annotations.compiler_flag
#: the file name of every text given to `exec`, and from Python 3.13 on of the text of `python -c`
SHARED_NAME = "<string>"


@dataclass(frozen=True)
class FunctionSource:
    """A function's own tree (decorators dropped, private names mangled), its file and its name."""

    node: FunctionNode
    file: str
    function: str

    def loc(self, node: ast.AST) -> Loc:
        return loc_of(node, self.file, self.function)


def source_of(fn: Callable[..., object]) -> FunctionSource:
    """Find `fn` in its file. Raises SourceError if there is no source or it does not fit `fn`."""
    if not isinstance(fn, types.FunctionType):
        raise SourceError(
            f"{fn!r} is not a Python function.",
            reason="Only functions defined by `def` or `lambda` have a source to translate.",
        )
    code = fn.__code__
    node, cls = find(fn, text_of(fn))
    node = copied(node)
    if not isinstance(node, ast.Lambda):
        node.decorator_list = []
    node = Mangler(cls).root(node) if cls else node
    node = ExplicitSuper().visit(node) if "__class__" in code.co_freevars else node
    return FunctionSource(node, code.co_filename, fn.__qualname__)


def text_of(fn: types.FunctionType) -> str:
    """The text of the file of `fn`. Raises SourceError if there is none."""
    text = "".join(linecache_lines(fn.__code__.co_filename, fn.__globals__))
    if not text:
        raise unavailable(fn)
    return text


def linecache_lines(file: str, module_globals: dict[str, object]) -> list[str]:
    if file.startswith("<frozen "):
        file = str(module_globals.get("__file__", file))
    linecache.checkcache(file)
    return linecache.getlines(file, module_globals)


def find(fn: types.FunctionType, text: str) -> tuple[FunctionNode, str | None]:
    """The node of `fn` in the text of its file, and the name of the class around it."""
    code = fn.__code__
    shared = code.co_filename == SHARED_NAME
    refused = unavailable if shared else changed
    try:
        candidates = functions_by_line(text).get(code.co_firstlineno, ())
    except SyntaxError:
        raise refused(fn) from None
    candidates = tuple(c for c in candidates if fits(c[0], code))
    if code.co_name == "<lambda>" and len(candidates) > 1:
        candidates = by_columns(candidates, code) or by_code(candidates, code)
    if shared:
        candidates = by_code(candidates, code)
    if not candidates:
        raise refused(fn)
    return candidates[0]


def unavailable(fn: types.FunctionType) -> SourceError:
    return SourceError(
        f"the source of '{fn.__qualname__}' is not available ({fn.__code__.co_filename}).",
        reason="A function is translated from its source text.",
        remedy="Define it in a file or a notebook cell, or register its text in linecache.",
    )


def changed(fn: types.FunctionType) -> SourceError:
    return SourceError(
        f"the source of '{fn.__qualname__}' does not match the running function.",
        Loc(fn.__code__.co_filename, fn.__code__.co_firstlineno),
        reason="The file has changed since the function was defined.",
        remedy="Reload the module, or restart the process.",
    )


@functools.lru_cache(maxsize=16)
def functions_by_line(text: str) -> dict[int, tuple[tuple[FunctionNode, str | None], ...]]:
    found: dict[int, tuple[tuple[FunctionNode, str | None], ...]] = {}
    for node, cls in functions(ast.parse(text), None):
        line = min(d.lineno for d in (*getattr(node, "decorator_list", ()), node))
        found[line] = (*found.get(line, ()), (node, cls))
    return found


def functions(node: ast.AST, cls: str | None) -> Iterator[tuple[FunctionNode, str | None]]:
    """Yield all functions below `node`, each with its innermost enclosing class."""
    for child in children(node):
        if isinstance(child, FUNCTIONS):
            yield child, cls
        yield from functions(child, child.name if isinstance(child, ast.ClassDef) else cls)


def fits(node: FunctionNode, code: types.CodeType) -> bool:
    name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
    args = node.args
    counts = (len(args.posonlyargs) + len(args.args), len(args.kwonlyargs))
    return name == code.co_name and counts == (code.co_argcount, code.co_kwonlyargcount)


Candidates = tuple[tuple[FunctionNode, "str | None"], ...]


def by_columns(candidates: Candidates, code: types.CodeType) -> Candidates:
    """The innermost lambda whose body contains all instructions; nothing if columns are unknown."""
    positions: Any = getattr(code, "co_positions", lambda: ())()
    spans = [(p[0], p[2], p[1], p[3]) for p in positions if None not in p and p[1:] != (p[0], 0, 0)]
    if not spans:
        return ()
    start, end = min(s[:2] for s in spans), max(s[2:] for s in spans)
    bodies = {c: c[0].body for c in candidates if isinstance(c[0], ast.Lambda)}
    around = [c for c, body in bodies.items() if begin(body) <= start and end <= finish(body)]
    return tuple(sorted(around, key=lambda c: begin(bodies[c]))[-1:])


def begin(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def finish(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def by_code(candidates: Candidates, code: types.CodeType) -> Candidates:
    """The functions that compile to this code: equal code means equal meaning."""
    return tuple(c for c in candidates if code_key(compiled(*c, code)) == code_key(code))


def compiled(node: FunctionNode, cls: str | None, code: types.CodeType) -> types.CodeType:
    node = copied(node)
    node = Mangler(cls).root(node) if cls else node
    return compile_function(node, code.co_freevars, code.co_filename, code.co_flags)


def code_key(code: types.CodeType) -> tuple[object, ...]:
    """Return a key of the meaning of a code object, without lines and columns."""
    consts = tuple(
        code_key(c) if isinstance(c, types.CodeType) else (type(c), repr(c))
        for c in code.co_consts
        if not (isinstance(c, str) and "<lambda>" in c)
    )
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    rest = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, counts, rest, consts


FACTORY = "__dy2st_factory__"


def compile_function(
    node: FunctionNode, free: tuple[str, ...], file: str, flags: int
) -> types.CodeType:
    """The code of a function node alone: its free variables are bound, its defaults left out."""
    new: Any = copy.copy(node)
    new.args = bare_arguments(node.args)
    new.decorator_list, new.returns, new.type_params, new.name = [], None, [], FACTORY
    body = ast.copy_location(ast.Return(new), new) if isinstance(node, ast.Lambda) else new
    module = ast.parse(f"def {FACTORY}({', '.join(free)}): pass")
    module.body[0].body = [body]  # type: ignore[attr-defined]
    tree = ast.fix_missing_locations(module)
    code = compile(tree, file, "exec", flags=flags & FUTURE, dont_inherit=True)
    return inner_code(inner_code(code))


def inner_code(code: types.CodeType) -> types.CodeType:
    return next(c for c in code.co_consts if isinstance(c, types.CodeType))


def bare_arguments(args: ast.arguments) -> ast.arguments:
    """The same parameters without annotations; every default is None."""

    def bare(arg: ast.arg) -> ast.arg:
        return ast.copy_location(ast.arg(arg.arg, None), arg)

    return ast.arguments(
        posonlyargs=[bare(a) for a in args.posonlyargs],
        args=[bare(a) for a in args.args],
        vararg=args.vararg and bare(args.vararg),
        kwonlyargs=[bare(a) for a in args.kwonlyargs],
        kw_defaults=[d and ast.Constant(None) for d in args.kw_defaults],
        kwarg=args.kwarg and bare(args.kwarg),
        defaults=[ast.Constant(None) for _ in args.defaults],
    )


class Mangler(ast.NodeTransformer):
    """`__x` inside class C is `_C__x`, as the compiler does it. Nested classes mangle their own."""

    def __init__(self, cls: str) -> None:
        self.prefix = "_" + cls.lstrip("_") if cls.strip("_") else ""

    def mangle(self, name: str) -> str:
        private = name.startswith("__") and not name.endswith("__") and "." not in name
        return self.prefix + name if private else name

    def root(self, node: Any) -> Any:
        """Mangle inside a function but keep its own name, which the code object keeps too."""
        name = getattr(node, "name", None)
        node = self.generic_visit(node)
        if name is not None:
            node.name = name
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.name = self.mangle(node.name)
        for field in ("bases", "keywords", "decorator_list"):
            setattr(node, field, [self.visit(n) for n in getattr(node, field)])
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        fields = ("id", "attr", "arg", "name", "rest", "asname")
        for field in () if isinstance(node, ast.keyword) else fields:
            value = getattr(node, field, None)
            if isinstance(value, str):
                setattr(node, field, self.mangle(value))
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            node.names = [self.mangle(n) for n in node.names]
        return super().generic_visit(node)


class ExplicitSuper(ast.NodeTransformer):
    """`super()` becomes `super(__class__, self)`: generated functions have other arguments."""

    def __init__(self) -> None:
        self.first: str | None = None

    def inside(self, node: FunctionNode) -> ast.AST:
        args = (*node.args.posonlyargs, *node.args.args)
        self.first, outer = args[0].arg if args else None, self.first
        self.generic_visit(node)
        self.first = outer
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = inside

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        bare = isinstance(node.func, ast.Name) and node.func.id == "super"
        if bare and self.first and not node.args and not node.keywords:
            names = (ast.Name("__class__", ast.Load()), ast.Name(self.first, ast.Load()))
            node.args = [ast.copy_location(n, node) for n in names]
        return node


def loc_of(node: ast.AST, filename: str, funcname: str) -> Loc:
    """The place of a node. Trees count UTF-8 bytes in a line; a Loc counts characters."""
    at: Any = node
    line = linecache.getline(filename, at.lineno).encode()

    def characters(offset: int) -> int:
        return len(line[:offset].decode(errors="ignore")) if line else offset

    ends_here = at.end_lineno == at.lineno and at.end_col_offset is not None
    end = characters(at.end_col_offset) if ends_here else None
    return Loc(filename, at.lineno, characters(at.col_offset), funcname, end)


def render(tree: ast.AST) -> str:
    """The tree as Python text."""
    return ast.unparse(tree) + "\n"
