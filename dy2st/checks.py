"""What is refused before anything is built: asynchronous code, writes to globals."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NoReturn

from dy2st.nodes import RT
from dy2st.scope import FUNCTIONS, binds, body_of, declared, own_nodes
from dy2st.source import Source
from ir.loc import SourceError

ASYNC = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)


def is_generator(fn: Callable[..., Any]) -> bool:
    """Whether a call of `fn` makes a generator. Such functions are not converted."""
    return bool(getattr(getattr(fn, "__code__", None), "co_flags", 0) & 0x20)


def is_converted(fn: Callable[..., Any]) -> bool:
    """Whether `fn` asks a runtime already."""
    return RT in getattr(getattr(fn, "__code__", None), "co_freevars", ())


def check(source: Source) -> None:
    """Refuse what cannot be translated, before anything is built."""
    for node in translated(source.node):
        if isinstance(node, ASYNC) or getattr(node, "is_async", False):
            refuse_async(source, node)
        if isinstance(node, FUNCTIONS):
            check_globals(source, node)


def translated(node: ast.AST) -> list[ast.AST]:
    """A function's nodes in source order, without classes and generators inside it."""
    found = [node]
    for child in ast.iter_child_nodes(node):
        kept = isinstance(child, ast.ClassDef) or (isinstance(child, FUNCTIONS) and yields(child))
        found += [] if kept else translated(child)
    return found


def refuse_async(source: Source, node: Any) -> NoReturn:
    word = "await" if isinstance(node, ast.Await) else "async"
    refuse(
        source,
        f"'{word}' cannot be translated.",
        node if hasattr(node, "lineno") else node.target,
        reason="A static program has no event loop.",
        remedy="Make it a plain function.",
    )


def check_globals(source: Source, fn: ast.AST) -> None:
    outer = declared(body_of(fn), ast.Global)
    for node in own_nodes(body_of(fn)) if outer else ():
        for name in outer.intersection(binds(node)):
            refuse(
                source,
                f"the global variable '{name}' is assigned.",
                node,
                reason="A translated function must not rebind the globals of its module.",
                remedy=f"Return the new value of '{name}', or keep it in an object's attribute.",
            )


def refuse(source: Source, message: str, node: ast.AST, *, reason: str, remedy: str) -> NoReturn:
    raise SourceError(message, source.loc(node), reason=reason, remedy=remedy)


def yields(fn: ast.AST) -> bool:
    return any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in own_nodes(body_of(fn)))
