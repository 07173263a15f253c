"""Conversion of statements: one method for each construct, which returns a list of statements."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import NoReturn

from dy2st.convert.expressions import ExpressionConverter
from dy2st.convert.jump_lowering import lower
from dy2st.convert.liveness import (
    FunctionScope,
    Names,
    bound,
    declared,
    local_names,
    nonlocal_writes,
    parameters,
)
from dy2st.convert.match_lowering import lower_matches
from dy2st.convert.syntax import (
    FunctionNode,
    Stmts,
    assign,
    declare,
    define,
    lambda_,
    load,
    place,
    rt,
    store,
    undefined,
)
from dy2st.convert.unsupported import check_binding, has_yield, refuse

OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.MatMult: "@", ast.Div: "/", ast.FloorDiv: "//",
    ast.Mod: "%", ast.Pow: "**", ast.LShift: "<<", ast.RShift: ">>", ast.BitOr: "|",
    ast.BitXor: "^", ast.BitAnd: "&",
}  # fmt: skip


def elements(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]


class StatementConverter(ExpressionConverter):
    """Statements: one method per construct. A statement becomes a list of statements."""

    def root(self, node: FunctionNode) -> FunctionNode:
        if isinstance(node, ast.FunctionDef):
            lower_matches(node, self.fresh)
            return self.function(node)
        assert isinstance(node, ast.Lambda)
        node.body = self.without_statements(node.body)
        return node

    # Functions

    def function(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Convert the body of a function, in place."""
        names = local_names(node)
        outer = [t([*declared(node.body, t)]) for t in (ast.Global, ast.Nonlocal)]
        keep = self.scope, self.outside, self.global_names, self.inside
        nonlocals = declared(node.body, ast.Nonlocal) | nonlocal_writes(node.body)
        self.global_names |= declared(node.body, ast.Global)
        self.global_names -= names
        self.outside = self.global_names | (nonlocals - names)
        self.inside |= names
        self.scope = FunctionScope(lower(node, self.fresh, self.refuse), self.outside)
        doc = node.body[: ast.get_docstring(node, clean=False) is not None]
        body = self.suite(node.body[len(doc) :])
        lost = (names | self.scope.locals) - parameters(node) - bound(body)
        head = [n for n in outer if n.names] + [declare(n) for n in sorted(lost)]
        node.body = [*doc, *(place(n, node) for n in head), *self.collected(node), *body]
        self.scope, self.outside, self.global_names, self.inside = keep
        return node

    def collected(self, node: ast.FunctionDef) -> Stmts:
        """`kwargs = RT.dict_(kwargs)`: the call has just made this dict."""
        arg = node.args.kwarg
        if arg is None:
            return []
        return [place(assign(store(arg.arg), place(rt("dict_", load(arg.arg)), arg)), arg)]

    def refuse(self, message: str, node: ast.AST, *, reason: str, remedy: str) -> NoReturn:
        refuse(self.source, message, node, reason=reason, remedy=remedy)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Stmts:
        node.decorator_list = [self.visit(d) for d in node.decorator_list]
        self.defaults(node.args)
        return [*self.rebinds(node, bound([node])), self.function(node)]

    def visit_ClassDef(self, node: ast.stmt) -> Stmts:
        return [*self.rebinds(node, bound([node])), node]

    visit_Import = visit_ClassDef

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Stmts:
        """An imported name is read from its module on every call: `name = RT.imported(...)`
        follows."""
        out = [*self.rebinds(node, bound([node])), node]
        where = ast.Constant("." * node.level + (node.module or ""))
        package = load("__package__") if node.level else ast.Constant(None)
        for q in node.names:
            name = q.asname or q.name
            if name not in self.outside:
                value = rt("imported", where, package, ast.Constant(q.name), load(name))
                out.append(place(assign(store(name), place(value, node)), node))
        return out

    def rebinds(self, node: ast.AST, names: Names) -> Stmts:
        """Tell the runtime that the next statement binds or deletes names from outside."""
        known = sorted(names & self.outside)
        return [self.statement(rt("rebinds", *self.binding(n)), node) for n in known]

    def nothing(self, node: ast.AST) -> Stmts:
        return []

    visit_Global = visit_Nonlocal = nothing

    # Statement lists, branches and loops

    def suite(self, stmts: Stmts) -> Stmts:
        out: Stmts = []
        for s in stmts:
            outer, self.before = self.before, []
            new = self.visit(s)
            out += [*self.before, *(new if isinstance(new, list) else [new])]
            self.before = outer
        return out or [ast.Pass()]

    def part(self, base: str, node: ast.AST, stmts: Stmts) -> ast.FunctionDef:
        """A function of these statements, which rebinds the user's variables."""
        names = self.rebound(stmts)
        return place(self.inner(self.fresh(base), [], names, self.suite(stmts)), node)

    def visit_For(self, node: ast.For) -> Stmts:
        names = self.scope.loop_names(node)
        iterable, item = self.visit(node.iter), self.fresh("_item")
        name, rebound = self.fresh("_body"), self.rebound([node.target, *node.body])
        value = place(load(item), node.target)
        stmts = [*self.store(node.target, value), *self.suite(node.body)]
        test = [self.thunk(node.test)] if hasattr(node, "test") else []
        if has_yield(*node.body):
            items = place(rt("items", iterable, *test), node)
            return [place(ast.For(place(store(item), node.target), items, stmts, []), node)]
        body = place(self.inner(name, [item], rebound, stmts), node)
        return self.controlled(node, "for_", [iterable], [body], names, test)

    visit_ForTest = visit_For

    def visit_While(self, node: ast.While) -> Stmts:
        if has_yield(node.test, *node.body):
            go = place(rt("holds", self.visit(node.test)), node.test)
            return [place(ast.While(go, self.suite(node.body), []), node)]
        names = self.scope.loop_names(node)
        test = self.thunk(node.test)
        return self.controlled(node, "while_", [test], [self.part("_body", node, node.body)], names)

    def visit_If(self, node: ast.If) -> Stmts:
        names = self.scope.branch_names(node)
        test = self.visit(node.test)
        if has_yield(*node.body, *node.orelse):
            holds = place(rt("holds", test), node.test)
            orelse = self.suite(node.orelse) if node.orelse else []
            return [place(ast.If(holds, self.suite(node.body), orelse), node)]
        parts = [self.part("_then", node, node.body)]
        if node.orelse:
            parts.append(self.part("_else", node, node.orelse))
        return self.controlled(node, "if_", [test], parts, names)

    def controlled(
        self,
        node: ast.stmt,
        name: str,
        first: list[ast.expr],
        parts: Sequence[ast.FunctionDef],
        names: tuple[str, ...],
        last: list[ast.expr] | None = None,
    ) -> Stmts:
        """The definitions and the call of `for_`, `while_` or `if_`."""
        bodies: list[ast.expr] = [load(p.name) for p in parts]
        if name == "if_" and len(bodies) == 1:
            bodies.append(lambda_(ast.Constant(None)))
        states, access = self.state(node, [n.rstrip("=") for n in names])
        listed = ast.Tuple([ast.Constant(n) for n in names], ast.Load())
        call = rt(name, *first, *bodies, *access, listed, *(last or ()))
        return [*parts, *states, place(ast.Expr(place(call, node)), node)]

    def state(self, node: ast.stmt, names: list[str]) -> tuple[Stmts, list[ast.expr]]:
        """`get_state` and `set_state` over these variables: their definitions, their names."""
        if not names:
            return [], [lambda_(ast.Tuple([], ast.Load())), lambda_(ast.Constant(None), "_")]
        sure, values = self.scope.before[node], self.fresh("_values")
        unsure = [n for n in names if n not in sure]
        reads: list[ast.expr] = [
            load(n) if n in sure else rt("read", lambda_(load(n))) for n in names
        ]
        stores: list[ast.expr] = [store(n) for n in names]
        get = define(self.fresh("_get"), [], [], [ast.Return(ast.Tuple(reads, ast.Load()))])
        bind = assign(ast.Tuple(stores, ast.Store()), load(values))
        body: Stmts = [bind, *(unbind(n) for n in unsure)]
        set_ = define(self.fresh("_set"), [values], names, body)
        return [place(get, node), place(set_, node)], [load(get.name), load(set_.name)]

    # Other statements

    def visit_Try(self, node: ast.Try) -> ast.stmt:
        node.body = self.suite(node.body)
        if node.handlers:
            trying = ast.withitem(place(rt("trying"), node))
            node.body = [place(ast.With([trying], node.body), node)]
        for handler in node.handlers:
            check_binding(self.source, handler, self.outside)
            handler.type = handler.type and self.visit(handler.type)
            handler.body = self.suite(handler.body)
        node.orelse = self.suite(node.orelse) if node.orelse else []
        node.finalbody = self.suite(node.finalbody) if node.finalbody else []
        return node

    visit_TryStar = visit_Try

    def visit_With(self, node: ast.With) -> ast.stmt:
        """One `with` per manager if a target is a store that must run between two of them."""
        stmts, plain = node.body, all(self.plain(i.optional_vars or load("_")) for i in node.items)
        for item in node.items:
            entered = rt("manager", self.visit(item.context_expr))
            item.context_expr = place(entered, item.context_expr)
        body = self.suite(stmts)
        if plain:
            node.body = body
            return node
        for item in reversed(node.items):
            target = item.optional_vars
            if target is not None and not self.plain(target):
                name = self.fresh("_entered")
                item.optional_vars = place(store(name), target)
                body = [*self.store(target, place(load(name), target)), *body]
            body = [ast.copy_location(ast.With([item], body), node)]
        return body[0]

    def visit_Assert(self, node: ast.Assert) -> Stmts:
        if not __debug__:
            return []
        if has_yield(node):
            return [place(ast.Assert(self.visit(node.test), node.msg), node)]
        message = self.thunk(node.msg) if node.msg else ast.Constant(None)
        return [self.statement(rt("assert_", self.thunk(node.test), message), node)]

    def visit_Raise(self, node: ast.Raise) -> Stmts:
        """Data may have chosen what is raised; a call has made it here."""
        made = node.exc is None or isinstance(node.exc, ast.Call)
        self.generic_visit(node)
        if node.exc is not None and not made:
            node.exc = place(rt("subject", node.exc), node.exc)
        return [node]

    def statement(self, call: ast.expr, node: ast.AST) -> ast.stmt:
        return place(ast.Expr(place(call, node)), node)

    # Stores

    def plain(self, target: ast.expr) -> bool:
        """Whether it is a name of the function, so that Python's own assignment will do."""
        return isinstance(target, ast.Name) and target.id not in self.outside

    def visit_Assign(self, node: ast.Assign) -> Stmts:
        value = self.visit(node.value)
        if len(node.targets) == 1:
            return self.store(node.targets[0], value, node)
        if all(self.plain(t) for t in node.targets):
            node.value = value
            return [node]
        name = self.fresh("_value")
        out = [place(assign(store(name), value), node)]
        return out + [s for t in node.targets for s in self.store(t, place(load(name), t))]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Stmts:
        if node.value is not None:
            return self.store(node.target, self.visit(node.value), node)
        if isinstance(node.target, ast.Name):
            return []
        return [
            place(ast.Expr(self.visit(n)), n)
            for n in ast.iter_child_nodes(node.target)
            if isinstance(n, ast.expr)
        ]

    def store(self, target: ast.expr, value: ast.expr, node: ast.AST | None = None) -> Stmts:
        """Store a converted value: value first, then the target's object, then its index."""
        if isinstance(target, ast.Attribute):
            name = ast.Constant(target.attr)
            return [self.statement(rt("store_attr", value, self.visit(target.value), name), target)]
        if isinstance(target, ast.Subscript):
            place_ = self.visit(target.value), self.visit(target.slice)
            return [self.statement(rt("store_item", value, *place_), target)]
        if isinstance(target, ast.Name):
            value = self.rebinding(target.id, value)
            return [place(assign(target, value), node or target)]
        assert isinstance(target, (ast.Tuple, ast.List))
        value = self.iterated(value)
        if all(map(self.plain, target.elts)):
            return [place(assign(target, value), node or target)]
        return self.unpack(target, value, node or target)

    def unpack(self, target: ast.Tuple | ast.List, value: ast.expr, node: ast.AST) -> Stmts:
        """Unpack into new names, then store these from left to right."""
        pattern: list[ast.expr] = []
        stores: Stmts = []
        for element in target.elts:
            name = self.fresh("_part")
            starred = isinstance(element, ast.Starred)
            pattern.append(ast.Starred(store(name), ast.Store()) if starred else store(name))
            inner = element.value if isinstance(element, ast.Starred) else element
            part = rt("list_", load(name)) if starred else load(name)
            stores += self.store(inner, place(part, element))
        new = ast.Tuple(pattern, ast.Store())
        return [place(assign(place(new, target), value), node), *stores]

    def visit_AugAssign(self, node: ast.AugAssign) -> Stmts:
        op = ast.Constant(OPERATORS[type(node.op)])
        target = node.target
        if isinstance(target, ast.Name):
            new = rt("aug", op, place(load(target.id), target), self.visit(node.value))
            value = self.rebinding(target.id, place(new, node))
            return [place(assign(target, value), node)]
        out: Stmts = []
        stable = not bound([node.value, target])
        obj = self.once(target.value, out, stable)
        key: ast.expr
        if isinstance(target, ast.Attribute):
            kind, reader, key = "attr", "load_attr", ast.Constant(target.attr)
        else:
            kind, reader, key = "item", "load_old", self.once(target.slice, out, stable)
        old = place(rt(reader, obj, key), target)
        new = place(rt("aug", op, old, self.visit(node.value)), node)
        stored = rt(f"store_{kind}", new, copy.deepcopy(obj), copy.deepcopy(key))
        return [*out, self.statement(stored, node)]

    def once(self, node: ast.expr, out: Stmts, stable: bool) -> ast.expr:
        """An expression that may be written twice: a constant, a variable that nothing rebinds
        meanwhile, or a new name set in `out`."""
        variable = isinstance(node, ast.Name) and stable and node.id not in self.scope.rebound
        if variable or isinstance(node, ast.Constant):
            return node
        name = self.fresh("_place")
        out.append(place(assign(store(name), self.visit(node)), node))
        return place(load(name), node)

    def visit_Delete(self, node: ast.Delete) -> Stmts:
        return [s for target in node.targets for s in self.delete(target)]

    def delete(self, target: ast.expr) -> Stmts:
        if isinstance(target, ast.Attribute):
            name = ast.Constant(target.attr)
            return [self.statement(rt("del_attr", self.visit(target.value), name), target)]
        if isinstance(target, ast.Subscript):
            index = self.visit(target.slice)
            return [self.statement(rt("del_item", self.visit(target.value), index), target)]
        if isinstance(target, ast.Name):
            gone = self.rebinds(target, frozenset({target.id}))
            return [*gone, place(ast.Delete([target]), target)]
        return [s for element in elements(target) for s in self.delete(element)]


def unbind(name: str) -> ast.stmt:
    """`if name is RT.UNDEF: del name`"""
    test = ast.Compare(load(name), [ast.Is()], [undefined()])
    return ast.If(test, [ast.Delete([ast.Name(name, ast.Del())])], [])
