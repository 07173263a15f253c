"""A handler for every exception lets defects of dy2st through, or runs no code of ours."""

from __future__ import annotations

import ast

from tests.docs.test_layout import modules, nodes

BROAD = ("Exception", "BaseException")
#: in a handler: `raise`, or one of these asks whose error it is
ASKS = ("raise_defect", "is_internal", "ended", "for_user")
#: module -> why a handler of it asks nothing
EXCEPTIONS = {
    "dy2st.compiled.cache": "`rerun` calls the user's function, in eager Paddle",
    "dy2st.compiled.error_exits": "the error of a `raise` statement of converted code, as a result",
    "dy2st.export.load": "the file is not a saved program; defects have a handler above",
    "dy2st.state.containers.constants": "a call of the user's function, made again by a guard",
    "executor.host_calls": "native code raises it when it has returned",
}


def handles_all(handler: ast.ExceptHandler) -> bool:
    named = [handler.type] if not isinstance(handler.type, ast.Tuple) else handler.type.elts
    return any(q is None or getattr(q, "id", "") in BROAD for q in named)


def lets_defects_through(handler: ast.ExceptHandler) -> bool:
    """Whether it raises whatever it has caught, or asks."""
    raised = isinstance(last := handler.body[-1], ast.Raise) and last.exc is None
    called = {q.id for q in ast.walk(handler) if isinstance(q, ast.Name)}
    called |= {q.attr for q in ast.walk(handler) if isinstance(q, ast.Attribute)}
    return raised or not called.isdisjoint(ASKS)


def swallowing(tree: list[ast.AST]) -> list[int]:
    found = [q for q in tree if isinstance(q, ast.ExceptHandler) and handles_all(q)]
    return [q.lineno for q in found if not lets_defects_through(q)]


def test_no_handler_swallows_a_defect():
    found = {m: lines for m, p in modules().items() if (lines := swallowing(nodes(p)))}
    assert {m: q for m, q in found.items() if m not in EXCEPTIONS} == {}
    assert EXCEPTIONS.keys() <= found.keys(), "an exception that is none"


def test_a_handler_that_swallows_is_found():
    tried = "try:\n    f()\nexcept {}:\n    {}"
    for kind, body, lost in (
        ("Exception", "pass", True),
        ("(KeyError, Exception) as e", "raise Refused('no') from e", True),
        ("", "return None", True),
        ("BaseException", "g(); raise", False),
        ("Exception as e", "raise_defect(e); return None", False),
        ("KeyError", "pass", False),
    ):
        tree = list(ast.walk(ast.parse(tried.format(kind, body.replace("; ", "\n    ")))))
        assert bool(swallowing(tree)) is lost, (kind, body)
