"""Expressions to calls of the runtime, whose interface is described in `convert`."""

from __future__ import annotations

import ast
from typing import Any

from dy2st.checks import yields
from dy2st.nodes import Stmts, define, lambda_, load, place, rt, start_at_name
from dy2st.scope import REFLECTIVE, Fresh, Scope, bound
from dy2st.source import Source

AS_THEY_ARE = REFLECTIVE | {"super", "globals"}
IDENTITY = {ast.Is: "is_", ast.IsNot: "is_not"}
MEMBERSHIP = {ast.In: "in_", ast.NotIn: "not_in"}


def is_super(node: ast.AST) -> bool:
    call = isinstance(node, ast.Call) and node.func
    return isinstance(call, ast.Name) and call.id == "super"


class Expressions(ast.NodeTransformer):
    """One method per construct.

    `scope` is that of the function at hand. `before` collects function definitions that must
    precede the statement at hand; it is None where no statement can (lambdas, comprehensions).
    """

    def __init__(self, source: Source, fresh: Fresh) -> None:
        self.source, self.fresh = source, fresh
        self.scope = Scope(ast.Lambda(ast.arguments([], [], None, [], [], None, []), ast.Tuple([])))
        self.before: Stmts | None = None

    def without_statements(self, node: Any) -> Any:
        outer, self.before = self.before, None
        node = self.visit(node)
        self.before = outer
        return node

    def rebound(self, nodes: list[Any]) -> list[str]:
        names = self.scope.locals if self.scope.reflects else bound(nodes)
        return sorted(names)

    def defaults(self, args: ast.arguments) -> None:
        args.defaults = [self.visit(d) for d in args.defaults]
        args.kw_defaults = [d and self.visit(d) for d in args.kw_defaults]

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        if yields(node):
            return node
        self.defaults(node.args)
        node.body = self.without_statements(node.body)
        return node

    def thunk(self, node: ast.expr) -> ast.expr:
        """A function of no arguments for the expression: a lambda, or with `:=` a `def` before."""
        names = self.rebound([node]) if bound([node]) else []
        if not names:
            return place(lambda_(self.without_statements(node)), node)
        assert self.before is not None
        outer, self.before = self.before, []
        value = self.visit(node)
        body = [*self.before, place(ast.Return(value), node)]
        self.before = outer
        name = self.fresh("_thunk")
        outer.append(place(define(name, [], names, body), node))
        return place(load(name), node)

    def stays(self, node: ast.expr) -> bool:
        return self.before is None and bool(bound([node]))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        if self.stays(node):
            return self.generic_visit(node)
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        return place(rt(name, *(self.thunk(v) for v in node.values)), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        if self.stays(node):
            return self.generic_visit(node)
        test = self.visit(node.test)
        return place(rt("ifexp", test, self.thunk(node.body), self.thunk(node.orelse)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return place(rt("not_", node.operand), node) if isinstance(node.op, ast.Not) else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if bound(node.comparators[1:]):
            return self.generic_visit(node)
        self.generic_visit(node)
        if len(node.ops) == 1:
            return compare(node, node.left, node.ops[0], node.comparators[0])
        return self.chain(node, node.left, list(zip(node.ops, node.comparators, strict=True)))

    def chain(self, node: ast.Compare, left: ast.expr, rest: list[Any]) -> ast.expr:
        """`a < b < c`: `(lambda l, r: RT.and_(lambda: l < r, lambda: r < c))(a, b)`"""
        (op, right), *others = rest
        if not others:
            return compare(node, left, op, right)
        names = self.fresh("_left"), self.fresh("_right")
        first = lambda_(compare(node, load(names[0]), op, load(names[1])))
        second = lambda_(self.chain(node, load(names[1]), others))
        both = place(rt("and_", place(first, node), place(second, node)), node)
        return place(ast.Call(place(lambda_(both, *names), node), [left, right], []), node)

    # Calls, loads, displays

    def visit_Call(self, node: ast.Call) -> ast.expr:
        func = node.func
        self.generic_visit(node)
        if isinstance(func, ast.Name) and func.id in AS_THEY_ARE:
            return node
        node.func = start_at_name(place(rt("fn", node.func), func), func)
        return start_at_name(node, func)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        known = is_super(node.value)
        node.value = self.visit(node.value)
        if known or not isinstance(node.ctx, ast.Load):
            return node
        new = rt("load_attr", node.value, ast.Constant(node.attr))
        return start_at_name(place(new, node), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return place(rt("load_item", self.visit(node.value), self.visit(node.slice)), node)

    def visit_Slice(self, node: ast.Slice) -> ast.expr:
        given = (node.lower, node.upper, node.step)
        parts = (self.visit(p) if p else ast.Constant(None) for p in given)
        return place(rt("slice_", *parts), node)

    def visit_List(self, node: ast.List | ast.Dict | ast.Set) -> ast.expr:
        self.generic_visit(node)
        return place(rt(f"{type(node).__name__.lower()}_", node), node)

    visit_Dict = visit_Set = visit_List

    def visit_GeneratorExp(self, node: Any) -> ast.expr:
        """Elements, iterables and conditions are converted; the comprehension stays Python's."""
        for field in ("elt", "key", "value"):
            if hasattr(node, field):
                setattr(node, field, self.without_statements(getattr(node, field)))
        for generator in node.generators:
            generator.iter = self.without_statements(generator.iter)
            generator.ifs = [self.without_statements(test) for test in generator.ifs]
        return node

    def visit_ListComp(self, node: Any) -> ast.expr:
        name = type(node).__name__.removesuffix("Comp").lower()
        return place(rt(f"{name}_", self.visit_GeneratorExp(node)), node)

    visit_SetComp = visit_DictComp = visit_ListComp


def compare(node: ast.Compare, left: ast.expr, op: ast.cmpop, right: ast.expr) -> ast.expr:
    """One comparison. `is` with a constant stays, since no tensor is a constant."""
    constant = isinstance(left, ast.Constant) or isinstance(right, ast.Constant)
    if type(op) in IDENTITY and not constant:
        return place(rt(IDENTITY[type(op)], left, right), node)
    if type(op) in MEMBERSHIP:
        return place(rt(MEMBERSHIP[type(op)], left, right), node)
    return place(ast.Compare(left, [op], [right]), node)
