"""Building and walking syntax trees.

A new node without a location gets that of its parent before compiling.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeVar

RT = "__dy2st__"
Stmts = list[ast.stmt]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
T = TypeVar("T")
Placed = TypeVar("Placed", bound="ast.stmt | ast.expr")


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes directly inside of a node, without operators and the contexts of names."""
    if isinstance(node, (ast.Name, ast.Constant)):
        return []
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if value is None or isinstance(value, str):
            continue
        if isinstance(value, list):
            found += [v for v in value if isinstance(v, ast.AST)]
        elif isinstance(value, ast.AST) and value._fields:
            found.append(value)
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all nodes inside of it, in no particular order."""
    todo = [node]
    while todo:
        node = todo.pop()
        yield node
        todo += children(node)


def copied(node: T) -> T:
    """A copy of a tree; only operators and contexts, which hold nothing, are shared."""
    if isinstance(node, list):
        return [copied(n) for n in node]  # type: ignore[return-value]
    if not isinstance(node, ast.AST) or not node._fields and not node._attributes:
        return node
    new = type(node).__new__(type(node))
    for name, value in vars(node).items():
        setattr(new, name, copied(value) if isinstance(value, (ast.AST, list)) else value)
    return new


def place(new: Placed, node: ast.AST) -> Placed:
    """Give a new node the place of what it stands for: of a block, its header only."""
    ast.copy_location(new, node)
    if isinstance(node, (ast.For, ast.While, ast.If)):
        last = node.iter if isinstance(node, ast.For) else node.test
        new.end_lineno, new.end_col_offset = last.end_lineno, last.end_col_offset
    elif isinstance(node, ast.stmt) and hasattr(node, "body"):
        new.end_lineno, new.end_col_offset = node.lineno, node.col_offset + 1
    if isinstance(new, ast.Call) and not hasattr(new.func, "lineno"):
        point_at(new.func, new)
    return new


def point_at(func: ast.expr, call: ast.Call) -> None:
    """Place a runtime method on its call's first line, which Python takes for the call's line."""
    if isinstance(func, ast.Attribute):
        ast.copy_location(func, call)
        func.end_lineno, func.end_col_offset = call.lineno, call.col_offset + 1


def start_at_name(new: ast.Call, node: ast.expr) -> ast.Call:
    """Let a load or call of `obj.name` over several lines start at the name, as Python does."""
    if isinstance(node, ast.Attribute) and node.lineno != node.end_lineno:
        new.lineno = node.end_lineno or node.lineno
        new.col_offset = max(0, (node.end_col_offset or 0) - len(node.attr))
        point_at(new.func, new)
    return new


def load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def store(name: str) -> ast.Name:
    return ast.Name(name, ast.Store())


def assign(target: ast.expr, value: ast.expr) -> ast.Assign:
    return ast.Assign([target], value)


def undefined() -> ast.expr:
    return ast.Attribute(load(RT), "UNDEF", ast.Load())


def rt(name: str, *args: ast.expr) -> ast.Call:
    """A call of the runtime."""
    return ast.Call(ast.Attribute(load(RT), name, ast.Load()), list(args), [])


def arguments(names: Sequence[str]) -> ast.arguments:
    return ast.arguments([], [ast.arg(n, None) for n in names], None, [], [], None, [])


def lambda_(body: ast.expr, *names: str) -> ast.Lambda:
    return ast.Lambda(arguments(names), body)


def define(
    name: str,
    params: Sequence[str],
    rebound: Sequence[str],
    body: Stmts,
    global_names: Sequence[str] = (),
) -> ast.FunctionDef:
    """`def name(params): global global_names; nonlocal rebound; body`"""
    new = ast.parse(f"def {name}(): pass").body[0]
    assert isinstance(new, ast.FunctionDef)
    new.args = arguments(params)
    new.body = [ast.Global(list(global_names))] if global_names else []
    new.body += [ast.Nonlocal(list(rebound))] if rebound else []
    new.body += body or [ast.Pass()]
    return new


def declare(name: str) -> ast.stmt:
    """A statement without code that makes a name local, for functions that rebind it."""
    return ast.AnnAssign(store(name), ast.Constant("local"), None, 1)
