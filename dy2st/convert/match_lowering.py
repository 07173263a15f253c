"""Lower `match` to `if`: a pattern becomes a test of its subject, part by part.

    match x:                              _subject = RT.subject(x)
        case Op("add", [a, *_]):          if (RT.matches(_subject, "class", Op, 2)
            y = a                 ->              and RT.given(_p := RT.part(_subject, ..., 0))
                                                  and _p == "add" and ...
                                                  and RT.given(a := _a)):
                                              y = a
        case _:                           else:
            y = 0                             y = 0

So each part is read as an attribute, item or comparison of the function is. A name is bound when
the whole pattern fits.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from dy2st.convert.liveness import NameSupply, bound
from dy2st.convert.syntax import Stmts, assign, copied, load, place, rt, store


def lower_matches(node: ast.AST, fresh: NameSupply) -> None:
    """Lower the `match` statements of a function and of those in it, in place."""
    for name in ("body", "orelse", "finalbody"):
        stmts = getattr(node, name, None)
        if isinstance(stmts, list):
            for s in stmts:
                if not isinstance(s, ast.ClassDef):
                    lower_matches(s, fresh)
            setattr(node, name, [q for s in stmts for q in lowered(s, fresh)])
    for block in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        lower_matches(block, fresh)


def lowered(s: ast.stmt, fresh: NameSupply) -> Stmts:
    if not isinstance(s, ast.Match):
        return [s]
    subject = fresh("_subject")
    before: Stmts = []
    first = place(assign(store(subject), place(rt("subject", s.subject), s.subject)), s.subject)
    chain: Stmts = []
    for case in reversed(s.cases):
        pattern = PatternTests(fresh)
        tests = [*pattern.tests(case.pattern, subject), *pattern.bindings()]
        before += [place(assign(store(n), ast.Constant(None)), s.subject) for n in pattern.joined]
        tests += [case.guard] if case.guard else []
        if not tests:
            chain = case.body
            continue
        test = tests[0] if len(tests) == 1 else place(ast.BoolOp(ast.And(), tests), case.pattern)
        chain = [place(ast.If(test, case.body, chain), case.pattern)]
    return [first, *before, *chain]


@dataclass
class PatternTests:
    """The tests of one case. `captures`: for each name, where its value is meanwhile; `joined`:
    those of these that only one side of `|` sets."""

    fresh: NameSupply
    captures: dict[str, tuple[str, ast.AST]] = field(default_factory=dict)
    joined: list[str] = field(default_factory=list)

    def bindings(self) -> list[ast.expr]:
        return [self.given(name, load(at), node) for name, (at, node) in self.captures.items()]

    def given(self, name: str, value: ast.expr, node: ast.AST) -> ast.expr:
        """Binds a name; false if there is no such part."""
        bind = ast.NamedExpr(place(store(name), node), place(value, node))
        return place(rt("given", place(bind, node)), node)

    def tests(self, p: ast.pattern, x: str) -> Iterator[ast.expr]:
        """The tests, one after another, that the value of the variable `x` fits a pattern."""
        match p:
            case ast.MatchValue():
                yield self.compare(x, ast.Eq(), p.value, p)
            case ast.MatchSingleton():
                yield self.compare(x, ast.Is(), ast.Constant(p.value), p)
            case ast.MatchAs():
                yield from self.tests(p.pattern, x) if p.pattern else ()
                yield from self.capture(p.name, load(x), p)
            case ast.MatchOr():
                yield self.either(p, x)
            case ast.MatchClass():
                yield from self.of_class(p, x)
            case ast.MatchMapping():
                yield from self.mapping(p, x)
            case ast.MatchSequence():
                yield from self.sequence(p, x)

    def compare(self, x: str, op: ast.cmpop, value: ast.expr, p: ast.pattern) -> ast.expr:
        return place(ast.Compare(place(load(x), p), [op], [place(value, p)]), p)

    def capture(self, name: str | None, value: ast.expr, p: ast.pattern) -> Iterator[ast.expr]:
        if name is not None:
            at, _ = self.captures.setdefault(name, (self.fresh(f"_{name}"), p))
            yield self.given(at, value, p)

    def either(self, p: ast.MatchOr, x: str) -> ast.expr:
        sides = []
        for q in p.patterns:
            tests = [*self.tests(q, x)] or [place(ast.Constant(True), q)]
            sides.append(tests[0] if len(tests) == 1 else place(ast.BoolOp(ast.And(), tests), q))
        self.joined += [self.captures[n][0] for n in sorted(bound([p]))]
        return place(ast.BoolOp(ast.Or(), sides), p)

    def part(self, p: ast.pattern, x: str, kind: str, *of: ast.expr) -> Iterator[ast.expr]:
        """The tests of a part of `x`, which is looked up once."""
        name = self.fresh("_part")
        yield self.given(name, self.call("part", p, x, kind, *of), p)
        yield from self.tests(p, name)

    def call(self, name: str, p: ast.AST, x: str, kind: str, *of: ast.expr) -> ast.expr:
        return place(rt(name, place(load(x), p), ast.Constant(kind), *of), p)

    def of_class(self, p: ast.MatchClass, x: str) -> Iterator[ast.expr]:
        yield self.call("matches", p, x, "class", p.cls, ast.Constant(len(p.patterns)))
        for k, q in enumerate(p.patterns):
            yield from self.part(q, x, "position", copied(p.cls), ast.Constant(k))
        for name, q in zip(p.kwd_attrs, p.kwd_patterns):
            yield from self.part(q, x, "attribute", ast.Constant(name))

    def mapping(self, p: ast.MatchMapping, x: str) -> Iterator[ast.expr]:
        yield self.call("matches", p, x, "mapping")
        for key, q in zip(p.keys, p.patterns):
            yield from self.part(q, x, "key", key)
        keys = ast.Tuple([copied(k) for k in p.keys], ast.Load())
        yield from self.capture(p.rest, self.call("part", p, x, "rest", keys), p)

    def sequence(self, p: ast.MatchSequence, x: str) -> Iterator[ast.expr]:
        star = next((k for k, q in enumerate(p.patterns) if isinstance(q, ast.MatchStar)), None)
        behind = 0 if star is None else len(p.patterns) - star - 1
        n = len(p.patterns) - (star is not None)
        yield self.call(
            "matches", p, x, "sequence", ast.Constant(n), ast.Constant(star is not None)
        )
        for k, q in enumerate(p.patterns):
            if isinstance(q, ast.MatchStar):
                ends = ast.Constant(k), ast.Constant(behind)
                yield from self.capture(q.name, self.call("part", q, x, "star", *ends), q)
            elif not wildcard(q):
                at = k if star is None or k < star else k - len(p.patterns)
                yield from self.part(q, x, "item", ast.Constant(at))


def wildcard(p: ast.pattern) -> bool:
    return isinstance(p, ast.MatchAs) and p.name is None
