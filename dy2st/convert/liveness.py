"""Liveness and definite assignment: uses and definitions of statements, names live or bound at
each.

One recursive function, `UseDefs.of`, maps a statement, an expression or a list of them to an
`UseDef`: the names it may read before it sets them, and the names it surely sets. Effects compose
(`then`, `either`, `maybe`), so there is no control-flow graph: jumps have been lowered before
(`jumps`), and a loop is its body once, perhaps. `FunctionScope` makes one walk over a function with
it and keeps, per statement, the names live after it and the names surely bound before it.

Safe side everywhere: a name seen by a nested function, a generator expression or a class is live
throughout; an exception may leave a `try` body, and a `with` body whose manager swallows it, after
any statement.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from dy2st.convert.syntax import FUNCTIONS, FunctionNode, children, walk

Names = frozenset[str]
NONE: Names = frozenset()
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Loop = ast.For | ast.AsyncFor | ast.While
NESTED = (*FUNCTIONS, ast.ClassDef)
BLOCKS = (ast.stmt, ast.ExceptHandler)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
TRY: tuple[type[ast.Try], ...] = (ast.Try, getattr(ast, "TryStar", ast.Try))
REFLECTIVE = frozenset({"locals", "vars", "eval", "exec", "dir"})


class NameSupply:
    """Makes names that occur nowhere in a tree."""

    def __init__(self, tree: ast.AST) -> None:
        fields = ("id", "arg", "name", "attr", "rest", "asname")
        self.taken = {getattr(n, f, None) for n in walk(tree) for f in fields}
        self.made: set[str] = set()

    def __call__(self, base: str) -> str:
        name, k = base, 1
        while name in self.taken:
            name, k = f"{base}_{k}", k + 1
        self.taken.add(name)
        self.made.add(name)
        return name


@dataclass(frozen=True)
class UseDef:
    """`reads`: names it may read before it sets them. `sets`: names it surely sets.
    `ends`: control never comes out at its end."""

    reads: Names = NONE
    sets: Names = NONE
    ends: bool = False

    def then(self, other: UseDef) -> UseDef:
        if self.ends:
            return self
        reads = self.reads | (other.reads - self.sets)
        return UseDef(reads, self.sets | other.sets, other.ends)

    def either(self, other: UseDef) -> UseDef:
        reads = self.reads | other.reads
        if self.ends != other.ends:
            return UseDef(reads, other.sets if self.ends else self.sets)
        return UseDef(reads, self.sets & other.sets, self.ends)

    def maybe(self) -> UseDef:
        return UseDef(self.reads)

    def hide(self, names: Names) -> UseDef:
        return UseDef(self.reads - names, self.sets - names, self.ends)


def own_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes in the scope of `nodes`: of a nested scope only what runs outside it."""
    todo = [*nodes][::-1]
    while todo:
        node = todo.pop()
        yield node
        todo += own_children(node)[::-1]


def own_children(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, (ast.Name, ast.Constant)):
        return []
    if isinstance(node, FUNCTIONS):
        return outside_function(node)
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *node.keywords]
    if isinstance(node, COMPREHENSIONS):
        walrus = [n for n in inner_nodes(node) if isinstance(n, ast.NamedExpr)]
        return [node.generators[0].iter, *(n.target for n in walrus)]
    return children(node)


def outside_function(node: FunctionNode) -> list[ast.AST]:
    """Return the expressions that a function definition evaluates: decorators, defaults,
    annotations."""
    args = node.args
    found = [*getattr(node, "decorator_list", ()), *args.defaults, *args.kw_defaults]
    found += [a.annotation for a in arguments(node)] + [getattr(node, "returns", None)]
    return [n for n in found if n is not None]


def inner_nodes(comp: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of a comprehension, without the bodies of lambdas."""
    for child in children(comp):
        yield child
        if not isinstance(child, ast.Lambda):
            yield from inner_nodes(child)


def bound(nodes: Iterable[ast.AST]) -> Names:
    """The names that these nodes bind, rebind or delete in their own scope."""
    return frozenset(name for node in own_nodes(nodes) for name in binds(node))


BINDING = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.alias, ast.ExceptHandler, ast.pattern,
)  # fmt: skip


def binds(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if not isinstance(node, BINDING):
        return []
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.alias():
            return [node.asname or node.name.split(".")[0]]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            return [name]
        case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return [name]
    return []


def declared(nodes: Iterable[ast.AST], kind: type[ast.Global] | type[ast.Nonlocal]) -> Names:
    """The names in the `global` or `nonlocal` statements of this scope."""
    found: list[str] = []
    todo: list[object] = [*nodes]
    while todo:
        node = todo.pop()
        if isinstance(node, kind):
            found += node.names
        if isinstance(node, BLOCKS) and not isinstance(node, NESTED):
            todo += [n for n in children(node) if isinstance(n, BLOCKS)]
    return frozenset(found)


def arguments(node: FunctionNode) -> list[ast.arg]:
    args = node.args
    every = (*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg)
    return [a for a in every if a is not None]


def parameters(node: FunctionNode) -> Names:
    return frozenset(a.arg for a in arguments(node))


def body_of(node: FunctionNode | ast.ClassDef) -> Sequence[ast.AST]:
    return node.body if isinstance(node.body, list) else [node.body]


def local_names(fn: FunctionNode) -> Names:
    """Parameters and names bound in a function's body, without its globals and nonlocals."""
    body = body_of(fn)
    outer = declared(body, ast.Global) | declared(body, ast.Nonlocal)
    return (bound(body) | parameters(fn)) - outer


def free_names(node: FunctionNode | ast.ClassDef) -> Names:
    """The names that a nested function or class takes from around it when it runs."""
    body = body_of(node)
    return (uses(body) | declared(body, ast.Nonlocal)) - own_names(node)


def own_names(node: FunctionNode | ast.ClassDef) -> Names:
    """The names that a function keeps for itself; a class hides nothing from its methods."""
    return local_names(node) if isinstance(node, FUNCTIONS) else NONE


def uses(nodes: Iterable[ast.AST]) -> Names:
    """The names that nodes take from their scope, at once or, in nested functions, later."""
    return frozenset().union(*(uses_of(node) for node in nodes))


def uses_of(node: ast.AST) -> Names:
    if isinstance(node, ast.Name):
        return NONE if isinstance(node.ctx, ast.Store) else frozenset({node.id})
    if isinstance(node, NESTED):
        return uses(own_children(node)) | free_names(node)
    if isinstance(node, COMPREHENSIONS):
        return comprehension_uses(node)
    return uses(children(node))


def comprehension_uses(node: Comprehension) -> Names:
    first, *others = node.generators
    targets = bound(g.target for g in node.generators)
    heads = [getattr(node, field) for field in ("elt", "key", "value") if hasattr(node, field)]
    return uses([first.iter]) | (uses([*heads, first.target, *first.ifs, *others]) - targets)


def nested(nodes: Iterable[ast.AST]) -> list[FunctionNode | ast.ClassDef]:
    """The functions and classes directly inside a scope, those in comprehensions too."""
    found: list[FunctionNode | ast.ClassDef] = []
    for node in own_nodes(nodes):
        if isinstance(node, NESTED):
            found.append(node)
        elif isinstance(node, COMPREHENSIONS):
            found += [n for n in inner_nodes(node) if isinstance(n, ast.Lambda)]
    return list(dict.fromkeys(found))


def nonlocal_writes(nodes: Iterable[ast.AST]) -> Names:
    """The names of this scope that a function nested in it rebinds."""
    found: set[str] = set()
    for inner in nested(nodes):
        body = body_of(inner)
        found |= declared(body, ast.Nonlocal) | (nonlocal_writes(body) - own_names(inner))
    return frozenset(found)


class UseDefs:
    """The `UseDef` of statements and expressions, in Python's order of evaluation; remembered."""

    def __init__(self) -> None:
        self.known: dict[ast.AST, UseDef] = {}

    def of(self, *nodes: ast.AST | None) -> UseDef:
        return reduce(UseDef.then, (self.one(n) for n in nodes if n is not None), UseDef())

    def one(self, node: ast.AST) -> UseDef:
        if node not in self.known:
            method = getattr(self, f"of_{type(node).__name__}", self.of_children)
            self.known[node] = method(node)
        return self.known[node]

    def of_children(self, node: ast.AST) -> UseDef:
        return self.of(*children(node))

    def any_of(self, *lists: Sequence[ast.AST]) -> UseDef:
        return reduce(UseDef.either, (self.of(*nodes) for nodes in lists))

    def of_Name(self, node: ast.Name) -> UseDef:
        name = frozenset({node.id})
        if isinstance(node.ctx, ast.Store):
            return UseDef(sets=name)
        return UseDef(name, name if isinstance(node.ctx, ast.Del) else NONE)

    def of_NamedExpr(self, node: ast.NamedExpr) -> UseDef:
        return self.of(node.value, node.target)

    def of_BoolOp(self, node: ast.BoolOp) -> UseDef:
        return self.of(node.values[0]).then(self.of(*node.values[1:]).maybe())

    def of_Compare(self, node: ast.Compare) -> UseDef:
        first = self.of(node.left, node.comparators[0])
        return first.then(self.of(*node.comparators[1:]).maybe())

    def of_IfExp(self, node: ast.IfExp) -> UseDef:
        return self.of(node.test).then(self.any_of([node.body], [node.orelse]))

    def of_comprehension(self, node: Comprehension) -> UseDef:
        return self.of(node.generators[0].iter).then(UseDef(uses_of(node)))

    of_ListComp = of_SetComp = of_DictComp = of_GeneratorExp = of_comprehension

    def of_Lambda(self, node: ast.Lambda) -> UseDef:
        return self.of(*own_children(node)).then(UseDef(free_names(node)))

    def of_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> UseDef:
        name = frozenset({node.name})
        return self.of(*own_children(node)).then(UseDef(free_names(node) - name, name))

    of_AsyncFunctionDef = of_FunctionDef

    def of_ClassDef(self, node: ast.ClassDef) -> UseDef:
        used = {n.id for s in node.body for n in walk(s) if isinstance(n, ast.Name)}
        inside = UseDef(frozenset(used), frozenset({node.name}))
        return self.of(*own_children(node)).then(inside)

    def of_alias(self, node: ast.alias) -> UseDef:
        return UseDef(sets=frozenset(binds(node)))

    def of_Assign(self, node: ast.Assign) -> UseDef:
        return self.of(node.value, *node.targets)

    def of_AnnAssign(self, node: ast.AnnAssign) -> UseDef:
        bare = node.value is None and isinstance(node.target, ast.Name)
        return UseDef() if bare else self.of(node.value, node.target)

    def of_AugAssign(self, node: ast.AugAssign) -> UseDef:
        old = self.of(node.target)
        name = {node.target.id} if isinstance(node.target, ast.Name) else NONE
        return UseDef(old.reads | name).then(self.of(node.value)).then(UseDef(sets=frozenset(name)))

    def of_Return(self, node: ast.Return | ast.Raise) -> UseDef:
        return self.of_children(node).then(UseDef(ends=True))

    of_Raise = of_Return

    def of_Assert(self, node: ast.Assert) -> UseDef:
        return self.of(node.test).then(self.of(node.msg).maybe())

    def of_If(self, node: ast.If) -> UseDef:
        body = self.if_true(node.test).then(self.of(*node.body))
        return body.either(self.of(node.test, *node.orelse))

    def if_true(self, test: ast.expr) -> UseDef:
        """The effect of a test that turned out true: of an `and`, all parts were evaluated."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return reduce(UseDef.then, (self.if_true(value) for value in test.values))
        if isinstance(test, ast.Compare):
            return self.of(test.left, *test.comparators)
        return self.of(test)

    def of_For(self, node: ast.For | ast.AsyncFor) -> UseDef:
        return self.of(node.iter).then(self.iteration(node).maybe())

    of_ForTest = of_AsyncFor = of_For

    def of_While(self, node: ast.While) -> UseDef:
        return self.of(node.test).then(self.iteration(node).maybe())

    def iteration(self, node: Loop) -> UseDef:
        """One pass through a loop, the test before it included."""
        test = self.if_true(node.test) if hasattr(node, "test") else UseDef()
        return test.then(self.of(getattr(node, "target", None), *node.body))

    def of_With(self, node: ast.With | ast.AsyncWith) -> UseDef:
        first, *others = node.items
        rest = self.of(first.optional_vars, *others, *node.body)
        return self.of(first.context_expr).then(rest.maybe())

    of_AsyncWith = of_With

    def of_Try(self, node: ast.Try) -> UseDef:
        tried = self.of(*node.body, *node.orelse)
        for handler in node.handlers:
            tried = tried.either(self.one(handler))
        final = self.of(*node.finalbody)
        return UseDef(tried.reads | final.reads, tried.sets | final.sets, tried.ends or final.ends)

    of_TryStar = of_Try

    def of_ExceptHandler(self, node: ast.ExceptHandler) -> UseDef:
        name = frozenset({node.name} if node.name else ())
        return self.of(node.type).then(self.of(*node.body).hide(name))


class FunctionScope:
    """Facts about one function whose jumps have been lowered.

    `after[s]`: names live after statement s. `before[s]`: names surely bound when s starts.
    `shared`: names that other functions may read at any time; `rebound`: names that they rebind.
    `outside`: names bound here that belong to the module or to a function around this one.
    """

    def __init__(self, fn: FunctionNode, outside: Names = NONE) -> None:
        body = body_of(fn)
        self.effects = UseDefs()
        self.locals = local_names(fn)
        self.reflects = uses_reflection(body)
        self.outside = outside
        self.rebound = nonlocal_writes(body) - outside
        self.shared = self.locals if self.reflects else self.captured(body)
        self.unsure = deleted(fn)
        self.after: dict[ast.AST, Names] = {}
        self.before: dict[ast.AST, Names] = {}
        if isinstance(fn, ast.FunctionDef):
            self.block(fn.body, parameters(fn), NONE, self.shared)

    def captured(self, body: Sequence[ast.AST]) -> Names:
        lazy = [n for n in own_nodes(body) if isinstance(n, ast.GeneratorExp)]
        names = {n for inner in nested(body) for n in free_names(inner)}
        names |= uses(lazy)
        return frozenset(names) | (declared(body, ast.Nonlocal) - self.outside)

    def block(self, stmts: Sequence[ast.stmt], sure: Names, after: Names, keep: Names) -> None:
        """Walk a statement list. `keep`: names live after each of its statements in any case."""
        for s in stmts:
            self.before[s] = sure - self.unsure
            sure |= self.effects.one(s).sets
        after |= keep
        for s in reversed(stmts):
            self.after[s] = after
            self.inside(s, after, keep)
            effect = self.effects.one(s)
            after = keep | effect.reads | (NONE if effect.ends else after - effect.sets)

    def inside(self, s: ast.stmt, after: Names, keep: Names) -> None:
        """The statement lists within a statement."""
        sure, of = self.before[s], self.effects.of
        match s:
            case ast.If():
                after |= frozenset(self.branch_names(s))
                self.block(s.body, sure | self.effects.if_true(s.test).sets, after, keep)
                self.block(s.orelse, sure | of(s.test).sets, after, keep)
            case ast.For() | ast.While():
                head = of(getattr(s, "iter", None), s.test if hasattr(s, "test") else None)
                start = sure | head.sets | of(getattr(s, "target", None)).sets
                self.block(s.body, start, after | self.effects.iteration(s).reads, keep)
            case ast.With():
                self.block(s.body, sure | of(*s.items).sets, after, keep | after)
            case _ if isinstance(s, TRY):
                self.inside_try(s, sure, after, keep)

    def inside_try(self, s: ast.Try, sure: Names, after: Names, keep: Names) -> None:
        of = self.effects.of
        after |= of(*s.finalbody).reads
        keep_here = keep | of(*s.finalbody).reads
        handlers = frozenset(n for h in s.handlers for n in self.effects.one(h).reads)
        tried = keep_here | handlers | (after if s.handlers else NONE)
        self.block(s.body, sure, after | of(*s.orelse).reads, tried)
        self.block(s.orelse, sure | of(*s.body).sets, after, keep_here)
        for handler in s.handlers:
            self.block(handler.body, sure, after, keep_here)
        self.block(s.finalbody, sure, after, keep)

    def loop_names(self, s: Loop) -> tuple[str, ...]:
        """Return the variables that a loop carries: `x`, or `x=` if an iteration surely sets x
        before it reads it."""
        parts = (getattr(s, "test", None), getattr(s, "target", None), *s.body)
        nodes = [n for n in parts if n is not None]
        assigned = (bound(nodes) | self.rebound) - self.outside
        kept = self.after[s] - self.effects.of(*nodes).sets
        carried = self.effects.iteration(s).reads | kept | self.shared
        live = sorted(assigned & (carried | self.after[s] | self.of_test(s)))
        return tuple(n if n in carried else f"{n}=" for n in live)

    def of_test(self, s: Loop) -> Names:
        """Return the names that the test of a loop sets and its body reads: `while (n := f(x)) > 0:
        use(n)`."""
        test = getattr(s, "test", None)
        return NONE if test is None else bound([test]) & self.effects.of(*s.body).reads

    def branch_names(self, s: ast.If) -> tuple[str, ...]:
        """Return the variables that a branch may change: assigned in either branch, and live after
        it or read in it."""
        assigned = (bound([*s.body, *s.orelse]) | self.rebound) - self.outside
        read = self.effects.any_of(s.body, s.orelse).reads
        return tuple(sorted(assigned & (read | self.after[s] | self.shared)))


def uses_reflection(body: Sequence[ast.AST]) -> bool:
    """Whether `locals()` or the like may read any variable."""
    return any(isinstance(n, ast.Name) and n.id in REFLECTIVE for n in own_nodes(body))


def deleted(fn: ast.AST) -> Names:
    """Names that may become unbound: by `del`, at the end of `except ... as`, here or nested."""
    gone: set[str] = set()
    for n in walk(fn):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Del):
            gone.add(n.id)
        elif isinstance(n, ast.ExceptHandler) and n.name:
            gone.add(n.name)
    return frozenset(gone)
