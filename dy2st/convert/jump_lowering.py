"""Lower `break`, `continue`, `return` to flags: every statement list has one entry and one exit.

A branch that surely jumps takes no flag: what follows the `if` moves into its other branch. A jump
that nothing follows takes none either. Else the jump sets a flag, and what follows is guarded by
`if not flag`. A loop that is left early (`break`, or `return` inside) has the flag in its test; a
`for` becomes a `ForTest`, whose test is evaluated before each item is fetched.

    for x in xs:                          _break = False
        if x > 3:                         for x in xs testing (not _break):
            break                             if x > 3:
        s += x                                    _break = True
    else:                         ->          else:
        s = 0                                     s += x
    return s                              if not _break:
                                              s = 0
                                          return s

What only the one exit of a `while True` does moves behind the loop, where lists that the loop has
filled have their length:

    while True:                           while True:
        ys.append(f(x))                       ys.append(f(x))
        if done(ys):                ->        if done(ys):
            return stack(ys)                      break
                                          return stack(ys)

A `return` in a loop is a `break` too if the same `return` follows the loop.

What needs no lowering stays as it is: a loop without jumps, a function whose only return is its
last statement. A jump out of a `finally` clause, which would swallow exceptions, is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, TypeGuard

from dy2st.convert.liveness import FUNCTIONS, TRY, NameSupply
from dy2st.convert.syntax import Stmts, assign, load, place, store

BREAK, CONTINUE, RETURN = "break", "continue", "return"
JUMPS: dict[type, str] = {ast.Break: BREAK, ast.Continue: CONTINUE, ast.Return: RETURN}
Refuse = Callable[..., NoReturn]


class ForTest(ast.For):
    """`for` with a test that is evaluated before each item is fetched."""

    _fields = (*ast.For._fields, "test")  # type: ignore[assignment]
    _field_types = {**getattr(ast.For, "_field_types", {}), "test": ast.expr}  # since Python 3.13

    def __init__(self, loop: ast.For, test: ast.expr) -> None:
        fields: dict[str, Any] = {**dict(ast.iter_fields(loop)), "test": test}
        super().__init__(**fields)


@dataclass
class LoopFlags:
    """The loop around the statements at hand, with the names of its flags."""

    leave: str | None
    skip: str | None = None


@dataclass
class JumpLowering:
    """State of the lowering of one function."""

    fresh: NameSupply
    refuse: Refuse
    returned: str = ""
    value: str = ""
    loop: LoopFlags | None = None

    def function(self, node: ast.FunctionDef) -> Stmts:
        """The function's statements with one exit."""
        *first, last = node.body
        if RETURN not in jumps_in(first) and (isinstance(last, ast.Return) or not returns([last])):
            return self.block(node.body, True)
        self.returned, self.value = self.fresh("_returned__"), self.fresh("_return_value__")
        stmts = list(node.body)
        if not exits(stmts):
            stmts.append(place(ast.Return(None), stmts[-1]))
        end = place(ast.Return(load(self.value)), last_return(stmts))
        doc = stmts[: 1 if ast.get_docstring(node, clean=False) is not None else 0]
        body = self.block(stmts[len(doc) :], True)
        if any(mentions(s, self.returned) for s in body):
            body.insert(0, flag(self.returned, False, stmts[len(doc)]))
        return [*doc, *body, end]

    def block(self, stmts: Stmts, tail: bool) -> Stmts:
        """Lower a list. `tail`: nothing follows it within its loop body or function."""
        out: Stmts = []
        for k, s in enumerate(stmts):
            rest = stmts[k + 1 :]
            if type(s) in JUMPS:
                return out + self.jump(s, tail)
            if isinstance(s, (ast.For, ast.While)):
                return out + self.around_loop(s, rest, tail)
            jumps = list(own_jumps([s]))
            if isinstance(s, ast.If) and jumps and (exits(s.body) or exits(s.orelse)):
                return [*out, self.diverge(s, rest, tail)]
            self.compound(s, tail and not rest)
            out.append(s)
            if jumps and rest:
                return [*out, self.guard(jumps, self.block(rest, tail))]
        return out

    def jump(self, s: ast.stmt, tail: bool) -> Stmts:
        if isinstance(s, ast.Return):
            return self.leave_function(s, tail)
        assert self.loop is not None
        if isinstance(s, ast.Break):
            return [self.raise_flag(self.loop.leave, s)]
        if tail:
            return []
        if self.loop.skip is None:
            self.loop.skip = self.fresh("_continue__")
        return [self.raise_flag(self.loop.skip, s)]

    def leave_function(self, s: ast.Return, tail: bool) -> Stmts:
        if not self.value:
            return [s]
        value = s.value if s.value is not None else place(ast.Constant(None), s)
        out: Stmts = [place(ast.Assign([store(self.value)], value), s)]
        if self.loop is not None or not tail:
            out.append(self.raise_flag(self.returned, s))
        if self.loop is not None and self.loop.leave != self.returned:
            out.append(self.raise_flag(self.loop.leave, s))
        return out

    def raise_flag(self, name: str | None, s: ast.stmt) -> ast.stmt:
        assert name is not None
        return flag(name, True, s)

    def diverge(self, s: ast.If, rest: Stmts, tail: bool) -> ast.stmt:
        """Move the following statements into the branch that falls through; if both branches jump,
        they are dead."""
        then_exits, else_exits = exits(s.body), exits(s.orelse)
        body, orelse = s.body, s.orelse
        if then_exits and not else_exits:
            orelse = orelse + rest
        elif not then_exits:
            body = body + rest
        s.body, s.orelse = self.block(body, tail), self.block(orelse, tail)
        return s

    def guard(self, jumps: Stmts, rest: Stmts) -> ast.stmt:
        """`if not flag: rest`, placed at the first jump."""
        kinds = {JUMPS[type(j)] for j in jumps}
        flags = [self.loop.skip] if self.loop and CONTINUE in kinds else []
        if self.loop and kinds & {BREAK, RETURN}:
            flags.append(self.loop.leave)
        elif RETURN in kinds:
            flags.append(self.returned)
        test = none_of([f for f in flags if f], jumps[0])
        return place(ast.If(test, rest, []), jumps[0])

    def compound(self, s: object, tail: bool) -> None:
        """Lower the lists within a statement that is neither a loop nor a diverging `if`."""
        if isinstance(s, TRY):
            self.try_(s, tail)
        elif isinstance(s, (ast.If, ast.With)):
            s.body = self.block(s.body, tail)
            if isinstance(s, ast.If):
                s.orelse = self.block(s.orelse, tail)

    def try_(self, s: ast.Try, tail: bool) -> None:
        for jump in own_jumps(s.finalbody):
            self.refuse(
                f"'{JUMPS[type(jump)]}' leaves a 'finally' clause.",
                jump,
                reason="It would discard an exception that is being raised.",
                remedy="Move it after the try statement.",
            )
        jumps = list(own_jumps(s.body))
        s.body = self.block(s.body, tail and not s.orelse)
        s.orelse = self.block(s.orelse, tail)
        if jumps and s.orelse:
            s.orelse = [self.guard(jumps, s.orelse)]
        for handler in s.handlers:
            handler.body = self.block(handler.body, tail)
        s.finalbody = self.block(s.finalbody, False)

    def around_loop(self, s: ast.For | ast.While, rest: Stmts, tail: bool) -> Stmts:
        """The loop, its else clause, and what follows."""
        if endless(s):
            s.orelse, rest = [], behind(s, rest)
        elif rest and isinstance(rest[0], ast.Return) and not s.orelse:
            share_return(s, rest[0])
        jumps = {JUMPS[type(j)]: j for j in reversed(list(own_jumps(s.body)))}
        orelse, s.orelse = s.orelse, []
        jump = jumps.get(BREAK) or jumps.get(RETURN) or s
        own = self.fresh("_break__") if BREAK in jumps else None
        leave = own or (self.returned if RETURN in jumps else None)
        out = [flag(own, False, s)] if own else []
        out.append(self.loop_with(s, leave, jump))
        if own and orelse:
            orelse = [place(ast.If(none_of([own], jump), orelse, []), jump)]
        after = orelse + rest
        if RETURN not in jumps:
            return out + self.block(after, tail)
        return out + self.after_return(jumps[RETURN], after, tail)

    def loop_with(self, s: ast.For | ast.While, leave: str | None, jump: ast.AST) -> ast.stmt:
        """The loop with its lowered body and the flag `leave` in its test."""
        self.loop, outer = LoopFlags(leave), self.loop
        body = self.block(s.body, True)
        if self.loop.skip is not None:
            body.insert(0, flag(self.loop.skip, False, s.body[0]))
        s.body, self.loop = body, outer
        if leave is None:
            return s
        go_on = none_of([leave], jump)
        if isinstance(s, ast.For):
            return place(ForTest(s, go_on), s)
        s.test = go_on if endless(s) else place(ast.BoolOp(ast.And(), [go_on, s.test]), s.test)
        return s

    def after_return(self, jump: ast.stmt, after: Stmts, tail: bool) -> Stmts:
        """Behind a loop that may return: leave the loop around it too, else go on."""
        if self.loop is None or self.loop.leave == self.returned:
            rest = self.block(after, tail)
            return [place(ast.If(none_of([self.returned], jump), rest, []), jump)] if rest else []
        leave = [self.raise_flag(self.loop.leave, jump)]
        test = place(load(self.returned), jump)
        return [place(ast.If(test, leave, self.block(after, tail)), jump)]


def endless(s: object) -> TypeGuard[ast.While]:
    """Whether a loop is `while True`."""
    return isinstance(s, ast.While) and isinstance(s.test, ast.Constant) and bool(s.test.value)


def behind(s: ast.While, rest: Stmts) -> Stmts:
    """Return the statements that follow a `while True`: those that lead to its only exit are moved
    out of it, before `rest`; a `return` there becomes a `break`."""
    leaving = [j for j in own_jumps(s.body) if not isinstance(j, ast.Continue)]
    block = list_with(s.body, leaving[0]) if len(leaving) == 1 else None
    if block is None:
        return rest
    end = block.index(leaving[0])
    first = end
    while first and not jumps_in([block[first - 1]]):
        first -= 1
    moved, block[first:] = block[first:end], [place(ast.Break(), leaving[0])]
    return [*moved, leaving[0]] if isinstance(leaving[0], ast.Return) else moved + rest


def share_return(s: ast.For | ast.While, end: ast.Return) -> None:
    """The loop `s`, behind which `end` follows, breaks where it returns the same."""
    same = ast.dump(end)
    for jump in [j for j in own_jumps(s.body) if ast.dump(j) == same]:
        block = list_with(s.body, jump)
        if block is not None:
            block[block.index(jump)] = place(ast.Break(), jump)


def list_with(stmts: Stmts, jump: ast.stmt) -> Stmts | None:
    """The list that has this jump, if no statement but `if` is around it."""
    if jump in stmts:
        return stmts
    inner = [q for s in stmts if isinstance(s, ast.If) for q in (s.body, s.orelse)]
    return next((q for q in (list_with(part, jump) for part in inner) if q is not None), None)


def lower(node: ast.FunctionDef, fresh: NameSupply, refuse: Refuse) -> ast.FunctionDef:
    """Lower the jumps of a function, in place. Functions nested in it are left as they are."""
    node.body = JumpLowering(fresh, refuse).function(node)
    return node


def own_statements(stmts: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Statements in source order, without those of nested functions and classes."""
    for s in stmts:
        if isinstance(s, (ast.stmt, ast.ExceptHandler)):
            yield s
            if not isinstance(s, (*FUNCTIONS, ast.ClassDef)):
                yield from own_statements(ast.iter_child_nodes(s))


def own_jumps(stmts: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """The jumps that leave these statements."""
    for s in stmts:
        if type(s) in JUMPS:
            yield s  # type: ignore[misc]
        elif isinstance(s, (ast.For, ast.While)):
            yield from (j for j in own_jumps(s.body) if isinstance(j, ast.Return))
            yield from own_jumps(s.orelse)
        elif isinstance(s, (ast.stmt, ast.ExceptHandler)) and not isinstance(
            s, (*FUNCTIONS, ast.ClassDef)
        ):
            yield from own_jumps(ast.iter_child_nodes(s))


def jumps_in(stmts: Iterable[ast.AST]) -> set[str]:
    return {JUMPS[type(j)] for j in own_jumps(stmts)}


def returns(stmts: Iterable[ast.AST]) -> bool:
    return RETURN in jumps_in(stmts)


def mentions(s: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(s))


def last_return(stmts: Iterable[ast.AST]) -> ast.AST:
    return [s for s in own_statements(stmts) if isinstance(s, ast.Return)][-1]


def exits(stmts: Stmts) -> bool:
    """Whether control surely never reaches the end of these statements."""
    return any(exits_here(s) for s in stmts)


def exits_here(s: ast.stmt) -> bool:
    if isinstance(s, ast.If):
        return exits(s.body) and exits(s.orelse)
    return isinstance(s, (ast.Return, ast.Break, ast.Continue, ast.Raise))


def flag(name: str, value: bool, here: ast.AST) -> ast.stmt:
    return place(assign(store(name), ast.Constant(value)), here)


def none_of(flags: list[str], here: ast.AST) -> ast.expr:
    """`not flag`, or `not (flag or flag)`."""
    names: list[ast.expr] = [load(f) for f in flags]
    any_flag = names[0] if len(names) == 1 else place(ast.BoolOp(ast.Or(), names), here)
    return place(ast.UnaryOp(ast.Not(), any_flag), here)
