"""Conversion of expressions to calls of the runtime (its interface is in `convert`)."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from dy2st.convert.liveness import (
    NONE,
    Comprehension,
    FunctionScope,
    Names,
    NameSupply,
    bound,
    own_nodes,
)
from dy2st.convert.source import FunctionSource
from dy2st.convert.syntax import (
    RT,
    Stmts,
    assign,
    copied,
    define,
    lambda_,
    load,
    place,
    rt,
    start_at_name,
    store,
    walk,
)
from dy2st.convert.unsupported import has_yield, yields

AS_THEY_ARE = frozenset({"super", "globals", "locals"})
#: builtins that run through a generator expression, any and all until they know the answer
CONSUMERS = frozenset("sum list tuple max min sorted any all".split())
IDENTITY = {ast.Is: "is_", ast.IsNot: "is_not"}
MEMBERSHIP = {ast.In: "in_", ast.NotIn: "not_in"}


def grows(node: ast.AST) -> ast.expr | None:
    """The object that a call appends to."""
    func = node.func if isinstance(node, ast.Call) else None
    named = isinstance(func, ast.Attribute) and func.attr in ("append", "extend")
    return func.value if named and not is_super(func.value) else None  # type: ignore[union-attr]


def holder(node: ast.expr | None) -> ast.expr | None:
    """Return the container of which an expression is an item: `d` of `d[k]` and of
    `d.setdefault(k, [])`."""
    func = node.func if isinstance(node, ast.Call) else None
    if isinstance(func, ast.Attribute) and func.attr == "setdefault" and len(node.args) == 2:  # type: ignore[union-attr]
        return None if node.keywords or is_super(func.value) else func.value  # type: ignore[union-attr]
    return node.value if isinstance(node, ast.Subscript) else None


def held_in(node: ast.expr | None) -> ast.expr | None:
    """The outermost container that an expression is an item of."""
    while (around := holder(node)) is not None:
        node = around
    return node


def only_receivers(tree: ast.AST) -> Names:
    """The names that are loaded for nothing but to append to what they hold, or to its items."""
    read = Counter(loads(tree))
    found = (held_in(grows(q)) for q in walk(tree))
    receivers = Counter(q.id for q in found if isinstance(q, ast.Name))
    return frozenset(name for name, n in receivers.items() if n == read[name])


def loads(tree: ast.AST) -> Iterator[str]:
    """Every name that is read, as often as it is."""
    for node in walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def is_super(node: ast.AST) -> bool:
    call = isinstance(node, ast.Call) and node.func
    return isinstance(call, ast.Name) and call.id == "super"


class ExpressionConverter(ast.NodeTransformer):
    """One method per construct.

    `scope` is that of the function at hand. `before` collects function definitions that must
    precede the statement at hand; it is None where no statement can (lambdas, comprehensions).
    `outside`: names that the function binds in its module or in functions around it;
    `global_names`: those of them that are globals. `inside`: the local names of the function at
    hand and of those around it, up to the converted one.
    """

    def __init__(self, source: FunctionSource, fresh: NameSupply) -> None:
        self.source, self.fresh = source, fresh
        self.scope = FunctionScope(
            ast.Lambda(ast.arguments([], [], None, [], [], None, []), ast.Tuple([]))
        )
        self.before: Stmts | None = None
        self.outside: Names = NONE
        self.global_names: Names = NONE
        self.inside: Names = NONE

    def function(self, node: ast.FunctionDef) -> ast.FunctionDef:
        raise NotImplementedError

    def without_statements(self, node: ast.expr) -> ast.expr:
        outer, self.before = self.before, None
        new: ast.expr = self.visit(node)
        self.before = outer
        return new

    def rebound(self, nodes: Sequence[ast.AST]) -> Names:
        names = bound(nodes)
        return names | self.scope.locals if self.scope.reflects else names

    def inner(self, name: str, params: list[str], names: Names, body: Stmts) -> ast.FunctionDef:
        """A function that rebinds these names of the function at hand."""
        own = sorted(names - self.global_names)
        return define(name, params, own, body, sorted(names & self.global_names))

    def rebinding(self, name: str, value: ast.expr) -> ast.expr:
        """The value for a name; for one from outside, the runtime is told that it is rebound."""
        if name not in self.outside:
            return value
        return place(rt("rebinding", value, *self.binding(name)), value)

    def binding(self, name: str) -> list[ast.expr]:
        """A variable from outside to the runtime: a reader of it, and whether it belongs to a
        function that is converted, too."""
        inner = name in self.inside and name not in self.global_names
        return [lambda_(load(name)), ast.Constant(inner)]

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
        names = self.rebound([node]) if bound([node]) else NONE
        lists = self.before is not None and any(
            isinstance(n, (ast.ListComp, ast.DictComp)) or consumer_of(n) for n in own_nodes([node])
        )
        if not names and not lists:
            return place(lambda_(self.without_statements(node)), node)
        assert self.before is not None
        outer, self.before = self.before, []
        value = self.visit(node)
        body = [*self.before, place(ast.Return(value), node)]
        self.before = outer
        name = self.fresh("_thunk")
        outer.append(place(self.inner(name, [], names, body), node))
        return place(load(name), node)

    def stays(self, node: ast.expr) -> bool:
        """Whether it cannot be cut into functions."""
        return has_yield(node) or self.before is None and bool(bound([node]))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        node.value = self.rebinding(node.target.id, self.visit(node.value))
        return node

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

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """`%` after a string that is written out makes a text, `|` may make a dict or set."""
        left = node.left
        written = isinstance(left, ast.Constant) and isinstance(left.value, str)
        self.generic_visit(node)
        if isinstance(node.op, ast.BitOr):
            return place(rt("union", node.left, node.right), node)
        if not isinstance(node.op, ast.Mod) or not (written or isinstance(left, ast.JoinedStr)):
            return node
        return place(rt("percent", node.left, node.right), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        parts = [self.field(q) if isinstance(q, ast.FormattedValue) else q for q in node.values]
        return place(rt("joined", *parts), node)

    def field(self, node: ast.FormattedValue) -> ast.expr:
        """A replacement field as (value, conversion, spec)."""
        spec = self.visit(node.format_spec) if node.format_spec else ast.Constant("")
        parts = [self.visit(node.value), ast.Constant(node.conversion), spec]
        return place(ast.Tuple(parts, ast.Load()), node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if bound(node.comparators[1:]) or has_yield(*node.comparators[1:]):
            return self.generic_visit(node)
        self.generic_visit(node)
        if len(node.ops) == 1:
            return compare(node, node.left, node.ops[0], node.comparators[0])
        return self.chain(node, node.left, list(zip(node.ops, node.comparators, strict=True)))

    def chain(
        self, node: ast.Compare, left: ast.expr, rest: Sequence[tuple[ast.cmpop, ast.expr]]
    ) -> ast.expr:
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
        func, grown = node.func, grows(node)
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
            if func.value.id == RT:
                node.args = [self.visit(q) for q in node.args]
                return node
        if isinstance(func, ast.Name) and func.id == "zip" and is_unzip(node):
            return place(rt("unzip", rt("fn", func), self.visit(node.args[0].value)), node)  # type: ignore
        if consumer_of(node):
            node.args[0].consumer = consumer_of(node)  # type: ignore[attr-defined]
        if grown is not None and isinstance(func, ast.Attribute):
            method = rt("load_attr", self.receiver(grown), ast.Constant(func.attr))
            node.func = start_at_name(place(method, func), func)
            node.args = [self.visit(q) for q in node.args]
            node.keywords = [self.visit(q) for q in node.keywords]
        else:
            self.generic_visit(node)
        if isinstance(func, ast.Name) and (func.id in AS_THEY_ARE or looks_around(func.id, node)):
            return node
        node.func = start_at_name(place(rt("fn", node.func), func), func)
        return start_at_name(node, func)

    def receiver(self, node: ast.expr) -> ast.expr:
        """`node`, of which nothing is read but that it is there; visited."""
        if (around := holder(node)) is not None:
            at, *default = node.args if isinstance(node, ast.Call) else [node.slice]  # type: ignore[attr-defined]
            rest = [self.visit(q) for q in (at, *default)]
            return place(rt("receiver_item", self.receiver(around), *rest), node)
        found: Any = self.visit(node)
        if isinstance(node, ast.Attribute) and found is not node:
            found.func.attr = "receiver"
        return found  # type: ignore[no-any-return]

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        node.value = self.visit(node.value)
        if not isinstance(node.ctx, ast.Load):
            return node
        new = rt("load_attr", node.value, ast.Constant(node.attr))
        return start_at_name(place(new, node), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return place(rt("load_item", self.visit(node.value), self.visit(node.slice)), node)

    def visit_Slice(self, node: ast.Slice) -> ast.expr:
        given = (node.lower, node.upper, node.step)
        parts = (self.visit(p) if p else ast.Constant(None) for p in given)
        return place(rt("slice_", *parts), node)

    def visit_List(self, node: ast.List | ast.Set) -> ast.expr:
        if isinstance(node, ast.List) and starred(node):
            return self.display(node, "list")
        self.generic_visit(node)
        return place(rt(f"{type(node).__name__.lower()}_", node), node)

    visit_Set = visit_List

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        self.generic_visit(node)
        for k, key in enumerate(node.keys):
            if key is None:
                node.values[k] = place(rt("mapping", node.values[k]), node.values[k])
        return place(rt("dict_", node), node)

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        node.value = self.visit(node.value)
        if node.arg is None:
            node.value = place(rt("mapping", node.value), node.value)
        return node

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        if starred(node):
            return self.display(node, "tuple")
        self.generic_visit(node)
        return node

    def display(self, node: ast.List | ast.Tuple, kind: str) -> ast.expr:
        stars: Any = tuple(isinstance(q, ast.Starred) for q in node.elts)
        values = [self.visit(q.value if isinstance(q, ast.Starred) else q) for q in node.elts]
        return place(rt("display", ast.Constant(kind), ast.Constant(stars), *values), node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        """Elements are made one by one, or all at once for the builtin that consumes them."""
        consumer = getattr(node, "consumer", "")
        over, first = self.fresh("_over"), node.generators[0].iter
        whole: ast.expr = ast.Constant(None)
        if consumer and self.before is not None and not self.scope.reflects and not bound([node]):
            whole = self.consuming(copied(node), consumer)
        item = ast.Constant(None) if consumer or bound([node]) else self.of_item(copied(node))
        node.generators[0].iter = place(load(over), first)
        made = place(lambda_(self.comprehension(node), over), node)
        first = self.without_statements(first)
        return place(rt("generator_", made, first, whole, ast.Constant(consumer), item), node)

    def of_item(self, node: Any) -> ast.expr:
        """Return a function from an item to the element of a generator expression; None if it does
        not have one element for each item."""
        (first, *rest), name = node.generators, self.fresh("_item")
        if rest or first.ifs or first.is_async:
            return ast.Constant(None)
        first.iter = place(ast.Tuple([load(name)], ast.Load()), node)
        made = self.comprehension(place(ast.ListComp(node.elt, node.generators), node))
        return place(lambda_(ast.Subscript(made, ast.Constant(0), ast.Load()), name), node)

    def consuming(self, node: ast.GeneratorExp, consumer: str) -> ast.expr:
        """A function of the first iterable: it returns the answer of `sum` (given the start, too),
        `any` or `all`; for other consumers the list of the elements."""
        over, out = self.fresh("_over"), self.fresh("_list")
        if consumer in ("any", "all"):
            made = searching(node, over, consumer == "any")
        elif consumer == "sum":
            made = summing(node, over, out)
        else:
            made = appending(node, over, out)
        function = ast.fix_missing_locations(place(made, node))
        function.name = self.fresh("_comprehension")
        assert self.before is not None
        self.before.append(self.function(function))
        return place(load(function.name), node)

    def iterated(self, value: ast.expr, *more: ast.expr) -> ast.expr:
        """A converted value that Python runs through: a display has just been made."""
        made = isinstance(value, (ast.Tuple, ast.List)) and not more
        return value if made else place(rt("iterated", value, *more), value)

    def visit_Starred(self, node: ast.Starred) -> ast.expr:
        node.value = self.visit(node.value)
        if isinstance(node.ctx, ast.Load):
            node.value = self.iterated(node.value)
        return node

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.expr:
        node.value = self.iterated(self.visit(node.value))
        return node

    def comprehension(self, node: Comprehension) -> ast.expr:
        """Elements, iterables and conditions are converted; the comprehension stays Python's."""
        for field in ("elt", "key", "value"):
            if hasattr(node, field):
                setattr(node, field, self.without_statements(getattr(node, field)))
        for generator in node.generators:
            unpacked = [ast.Constant(True)] * (not isinstance(generator.target, ast.Name))
            iterable = self.without_statements(generator.iter)
            generator.iter = self.iterated(iterable, *unpacked)
            generator.ifs = [self.without_statements(test) for test in generator.ifs]
        return node

    def visit_SetComp(self, node: ast.SetComp | ast.ListComp | ast.DictComp) -> ast.expr:
        name = type(node).__name__.removesuffix("Comp").lower()
        return place(rt(f"{name}_", self.comprehension(node)), node)

    def visit_ListComp(self, node: ast.ListComp | ast.DictComp) -> ast.expr:
        """A function with loops that append or store, where one can be defined."""
        if self.before is None or self.scope.reflects or bound([node]):
            return self.visit_SetComp(node)
        first = self.visit(node.generators[0].iter)
        if isinstance(node, ast.ListComp):
            made = appending(node, self.fresh("_over"), self.fresh("_list"))
        else:
            made = storing(node, self.fresh("_over"), self.fresh("_dict"), self.fresh("_key"))
        function = ast.fix_missing_locations(place(made, node))
        function.name = self.fresh("_comprehension")
        self.before.append(self.function(function))
        return place(rt("comprehension", place(load(function.name), node), first), node)

    visit_DictComp = visit_ListComp


def starred(node: ast.List | ast.Tuple) -> bool:
    """Whether it is a display in which Python runs through some of the values."""
    made = isinstance(node.ctx, ast.Load)
    return made and any(isinstance(q, ast.Starred) for q in node.elts)


def appending(node: ast.ListComp | ast.GeneratorExp, over: str, out: str) -> ast.FunctionDef:
    """A comprehension as a function of its first iterable."""
    call = ast.Call(ast.Attribute(load(out), "append", ast.Load()), [node.elt], [])
    body = nested(node, over, place(ast.Expr(call), node.elt))
    start = place(assign(store(out), ast.List([], ast.Load())), node)
    return define("_", [over], [], [start, body, place(ast.Return(load(out)), node)])


def storing(node: ast.DictComp, over: str, out: str, key: str) -> ast.FunctionDef:
    """A comprehension of a dict as a function of its first iterable; keys come before values."""
    item = ast.Subscript(load(out), load(key), ast.Store())
    kept = (
        place(assign(store(key), node.key), node.key),
        place(assign(item, node.value), node.value),
    )
    start = place(assign(store(out), ast.Dict([], [])), node)
    body = nested(node, over, *kept)
    return define("_", [over], [], [start, body, place(ast.Return(load(out)), node)])


def summing(node: ast.GeneratorExp, over: str, total: str) -> ast.FunctionDef:
    """`sum(...)` as a function of the first iterable and the start."""
    added = place(ast.BinOp(load(total), ast.Add(), node.elt), node.elt)
    body = nested(node, over, place(assign(store(total), added), node.elt))
    return define("_", [over, total], [], [body, place(ast.Return(load(total)), node)])


def searching(node: ast.GeneratorExp, over: str, sought: bool) -> ast.FunctionDef:
    """`any(...)` as a function of the first iterable; `all(...)` if false is `sought`."""
    test = node.elt if sought else place(ast.UnaryOp(ast.Not(), node.elt), node.elt)
    found = place(ast.Return(ast.Constant(sought)), node.elt)
    body = nested(node, over, place(ast.If(test, [found], []), node.elt))
    return define("_", [over], [], [body, place(ast.Return(ast.Constant(not sought)), node)])


def nested(node: Comprehension, over: str, *body: ast.stmt) -> ast.stmt:
    """The loops and conditions of a comprehension around statements."""
    for generator in reversed(node.generators):
        for test in reversed(generator.ifs):
            body = (place(ast.If(test, list(body), []), test),)
        outermost = generator is node.generators[0]
        iterable = place(load(over), generator.iter) if outermost else generator.iter
        body = (place(ast.For(generator.target, iterable, list(body), []), generator.target),)
    return body[0]


def compare(node: ast.Compare, left: ast.expr, op: ast.cmpop, right: ast.expr) -> ast.expr:
    """One comparison. `is None` asks the runtime, too: a branch on data may have decided it."""
    if type(op) in IDENTITY:
        return place(rt(IDENTITY[type(op)], left, right), node)
    if type(op) in MEMBERSHIP:
        return place(rt(MEMBERSHIP[type(op)], left, right), node)
    if isinstance(op, (ast.Eq, ast.NotEq)) and not any(map(is_plain, (left, right))):
        left, right = (place(rt("compared", q), node) for q in (left, right))
    return place(ast.Compare(left, [op], [right]), node)


def is_plain(node: ast.expr) -> bool:
    """Whether an operand is a constant, so that a comparison looks into neither of them."""
    return isinstance(node, ast.Constant)


def looks_around(name: str, node: ast.Call) -> bool:
    """`vars()` and `dir()` read the frame that calls them."""
    return name in ("vars", "dir") and not node.args and not node.keywords


def consumer_of(node: ast.AST) -> str:
    """The name of the builtin that consumes a generator expression in this call, or ""."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
        return ""
    name = node.func.id
    return name if name in CONSUMERS and isinstance(node.args[0], ast.GeneratorExp) else ""


def is_unzip(node: ast.Call) -> bool:
    """`zip(*pairs)`."""
    single = len(node.args) == 1 and not node.keywords
    return single and isinstance(node.args[0], ast.Starred)
