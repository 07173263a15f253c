"""Constructs refused before conversion: asynchronous code, some bindings of outer names."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NoReturn

from dy2st.convert.liveness import binds, body_of, own_nodes
from dy2st.convert.source import FunctionSource
from dy2st.convert.syntax import RT, FunctionNode, children
from ir.loc import SourceError

ASYNC = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)


def is_generator(fn: Callable[..., object]) -> bool:
    """Whether a call of `fn` makes a generator."""
    return bool(getattr(getattr(fn, "__code__", None), "co_flags", 0) & 0x20)


def is_converted(fn: Callable[..., object]) -> bool:
    """Whether `fn` asks a runtime already."""
    return RT in getattr(getattr(fn, "__code__", None), "co_freevars", ())


def check(source: FunctionSource) -> None:
    """Refuse what cannot be translated, before anything is built."""
    for node in translated(source.node):
        if isinstance(node, ASYNC) or getattr(node, "is_async", False):
            refuse_async(source, node)


def translated(node: ast.AST) -> list[ast.AST]:
    """A function's nodes in source order, without classes inside it."""
    found = [node]
    for child in children(node):
        found += [] if isinstance(child, ast.ClassDef) else translated(child)
    return found


def refuse_async(source: FunctionSource, node: Any) -> NoReturn:
    word = "await" if isinstance(node, ast.Await) else "async"
    refuse(
        source,
        f"'{word}' cannot be translated.",
        node if hasattr(node, "lineno") else node.target,
        reason="A static program has no event loop.",
        remedy="Write it as a synchronous function.",
    )


def check_binding(source: FunctionSource, node: ast.AST, outside: frozenset[str]) -> None:
    """Refuse to bind a name from outside of the function where no store can be noted."""
    for name in sorted(outside.intersection(binds(node))):
        refuse(
            source,
            f"'{name}', a variable from outside of the function, is bound here.",
            node,
            reason="A cached program repeats only assignments to such variables.",
            remedy=f"Bind a local variable, then assign it: `{name} = ...`.",
        )


def refuse(
    source: FunctionSource, message: str, node: ast.AST, *, reason: str, remedy: str
) -> NoReturn:
    raise SourceError(message, source.loc(node), reason=reason, remedy=remedy)


def yields(fn: FunctionNode) -> bool:
    """Whether a function is a generator function."""
    return has_yield(*body_of(fn))


def has_yield(*nodes: ast.AST) -> bool:
    """Whether a `yield` of the function around them is in these nodes."""
    return any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in own_nodes(nodes))
