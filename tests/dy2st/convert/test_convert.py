"""Converted functions equal the originals: results, effects, exceptions and the lines they name."""

from __future__ import annotations

import ast
import copy
import dis
import inspect
import linecache
import textwrap
import traceback
import types

import pytest

from dy2st.convert import convert
from dy2st.convert.source import loc_of, render, source_of
from ir.loc import SourceError
from tests.dy2st.convert import convert_cases
from tests.dy2st.convert.convert_cases import CASES, LOG, blocks, data, flow, functions, generators
from tests.dy2st.convert.convert_cases.functions import LAMBDAS, METHODS, STATIC, Derived
from tests.dy2st.convert.plain_runtime import Runtime


def translator():
    """Converts functions of this subject, and through the runtime all that they call."""
    done = {}

    def of(f):
        here = isinstance(f, types.FunctionType) and f.__module__.startswith(convert_cases.__name__)
        if not here or hasattr(f, "__dy2st_tree__"):
            return f
        if f not in done:
            done[f] = convert(f, runtime) if f.__code__.co_name not in HELPERS else f
        return done[f]

    runtime = Runtime(of)
    return of


HELPERS = ("log", "case", "register", "__init__", "__enter__", "__exit__")


def outcome(fn, args, file):
    """What a call does: result or exception, log, arguments, lines and names of its traceback."""
    args = copy.deepcopy(args)
    LOG.clear()
    result, trace = None, []
    try:
        result = fn(*args)
    except Exception as e:
        frames = traceback.extract_tb(e.__traceback__)
        trace = [(f.lineno, f.name) for f in frames if f.filename == file]
        result = describe(e)
    return repr(result).split(" at 0x")[0], list(LOG), args, trace


def describe(e):
    """An unbound variable is a NameError either way; only its text says which kind of variable."""
    if isinstance(e, NameError):
        return "NameError"
    return type(e), str(e), type(e.__cause__)


def assert_same(fn, new, args, file):
    want, got = outcome(fn, args, file), outcome(new, args, file)
    assert got[:3] == want[:3]
    want_lines, got_lines = [line for line, _ in want[3]], [line for line, _ in got[3]]
    assert got_lines[-1:] == want_lines[-1:]
    rest = iter(got_lines)
    assert all(line in rest for line in want_lines), (want_lines, got_lines)
    assert {name for _, name in got[3]} <= {name for _, name in want[3]} | {"<lambda>"}


TABLE = [(fn, args) for fn, arguments in CASES for args in arguments if isinstance(args, tuple)]


@pytest.mark.sampled
@pytest.mark.quick(
    "try_return-(1,)",
    "error_in_boolean-(3,)",
    "chained-(3, 2, 1)",
    "asserts-(None,)",
    "for_else_without_break-([],)",
    "return_in_nested_loop-([[1, 2], [3, 4]], 9)",
    "two_loops_same_names-([1, 2],)",
    "inner_class-(2,)",
)
@pytest.mark.parametrize(("fn", "args"), TABLE, ids=lambda x: getattr(x, "__name__", str(x)[:30]))
def test_converted_equals_original(fn, args):
    new = translator()(fn)
    assert new is not fn
    assert_same(fn, new, args, fn.__code__.co_filename)


def test_table_is_large():
    assert len(CASES) >= 90


@pytest.mark.parametrize(("fn", "args"), METHODS, ids=lambda x: getattr(x, "__name__", ""))
def test_methods(fn, args):
    new = translator()(fn)
    file = fn.__code__.co_filename
    assert_same(lambda *a: fn(Derived(), *a), lambda *a: new(Derived(), *a), args, file)


@pytest.mark.parametrize(("fn", "args"), STATIC, ids=lambda x: getattr(x, "__name__", ""))
def test_static_and_class_methods(fn, args):
    assert_same(fn, translator()(fn), args, fn.__code__.co_filename)


@pytest.mark.parametrize(("fn", "args"), LAMBDAS)
def test_lambdas(fn, args):
    assert_same(fn, translator()(fn), args, fn.__code__.co_filename)


def test_everything_around_the_code_is_kept():
    def outer(k):
        def f(a, b: int = 2, *, c=k) -> str:
            """Doc."""
            return a, b, c, k

        f.mark = "m"
        return f

    fn = outer(7)
    new = convert(fn, Runtime())
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__defaults__"):
        assert getattr(new, name) == getattr(fn, name)
    assert new.__kwdefaults__ == {"c": 7} and new.__annotations__ == fn.__annotations__
    assert new.__globals__ is fn.__globals__ and new.mark == "m" and new.__wrapped__ is fn
    assert inspect.signature(new) == inspect.signature(fn)
    assert new.__code__.co_filename == fn.__code__.co_filename
    assert new(1) == (1, 2, 7, 7)


def test_closure_cells_are_shared():
    count = 0

    def bump(n):
        nonlocal count
        for _ in range(n):
            count += 1
        return count

    new = convert(bump, Runtime())
    assert (new(2), bump(1), new(1), count) == (2, 3, 4, 4)


def test_a_loop_without_a_yield_asks_the_runtime():
    runtime = Runtime()
    new = convert(generators.numbers, runtime)
    assert inspect.isgeneratorfunction(new) and new.__name__ == "numbers"
    list(new(3))
    loops = [kind for kind, _ in runtime.asked if kind != "if"]
    assert loops == ["for", "for"]


def test_globals_read():
    assert convert(functions.closure_writes, Runtime()).__dy2st_globals__ == ("log", "range")
    assert convert(functions.inner_class, Runtime()).__dy2st_globals__ == ("__name__", "range")


def names_of(fn, *args):
    runtime = Runtime()
    convert(fn, runtime)(*args)
    return runtime.asked


def test_state_is_minimal():
    assert names_of(flow.accumulate, [1]) == [("for", ("s",))]
    assert names_of(flow.target_lives_on, [1]) == [("for", ("x=",))]
    assert names_of(flow.branch, 1) == [("if", ("y",))]
    assert names_of(flow.branch_without_else, 1) == [("if", ("y",))]
    assert names_of(flow.previous_value, [1])[0] == ("for", ("prev",))
    assert names_of(data.walrus_not_none, [1])[0] == ("while", ("x=",))
    assert names_of(flow.for_break, [1])[0] == ("for", ("_break__", "s"))
    assert names_of(flow.return_in_loop, [1])[0] == ("for", ("_return_value__", "_returned__"))


def test_only_what_is_needed_is_lowered():
    text = render(convert(flow.accumulate, Runtime()).__dy2st_tree__)
    assert "_break__" not in text and "_returned" not in text and "_return_value__:" not in text
    text = render(convert(flow.early_returns, Runtime()).__dy2st_tree__)
    assert "_return_value__" in text and "_returned" not in text
    text = render(convert(flow.for_continue, Runtime()).__dy2st_tree__)
    assert "_continue__ =" not in text


def test_golden_loop_with_break():
    def f(xs):
        s = 0
        for x in xs:
            if x > 3:
                break
            s += x
        return s

    golden = ast.unparse(ast.parse(GOLDEN))  # Python 3.10 has more parentheses
    assert ast.unparse(convert(f, Runtime()).__dy2st_tree__) == golden


GOLDEN = textwrap.dedent(
    """\
    def f(xs):
        x: 'local'
        s = 0
        _break__ = False

        def _body(_item):
            nonlocal _break__, s, x
            x = _item

            def _then():
                nonlocal _break__
                _break__ = True

            def _else():
                nonlocal s
                s = __dy2st__.aug('+', s, x)

            def _get():
                return (_break__, s)

            def _set(_values):
                nonlocal _break__, s
                _break__, s = _values
            __dy2st__.if_(x > 3, _then, _else, _get, _set, ('_break__', 's'))

        def _get_1():
            return (_break__, s)

        def _set_1(_values_1):
            nonlocal _break__, s
            _break__, s = _values_1
        __dy2st__.for_(xs, _body, _get_1, _set_1, ('_break__', 's'), lambda: __dy2st__.not_(_break__))
        return s"""  # noqa: E501
)


def test_generated_calls_point_at_the_header():
    new = convert(flow.while_else, Runtime())
    calls = [n for n in ast.walk(new.__dy2st_tree__) if isinstance(n, ast.Call)]
    loop = next(c for c in calls if getattr(c.func, "attr", "") == "while_")
    line = linecache.getline(flow.__file__, loop.lineno)
    assert line[loop.col_offset : loop.end_col_offset] == "while n"
    assert loop.end_lineno == loop.lineno


@pytest.mark.slow
def test_every_line_is_in_the_function():
    for fn, _ in CASES:
        lines, first = inspect.getsourcelines(fn)
        for code in codes(convert(fn, Runtime()).__code__):
            found = {line for _, line in dis.findlinestarts(code) if line is not None}
            assert found <= set(range(first, first + len(lines))), (fn, code)


def codes(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes(const)


def test_code_names_are_the_users():
    code = convert(blocks.jumps_in_try, Runtime()).__code__
    assert {c.co_name for c in codes(code)} == {"jumps_in_try", "<lambda>"}


# Sources


def make(text, name="f", file="<notebook-1>", **names):
    text = textwrap.dedent(text)
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names["__name__"] = "notebook"
    exec(compile(text, file, "exec"), names)
    return names[name]


def test_exec_with_linecache():
    fn = make("def f(n):\n    for i in range(n):\n        if i == 2: return i\n")
    assert convert(fn, Runtime())(5) == 2


def test_columns_are_characters():
    fn = make("def f(n):\n    'äöü'; n.gré\n")
    node = source_of(fn).node.body[1].value
    loc = loc_of(node, "<notebook-1>", "f")
    assert (loc.line, loc.column, loc.end_column) == (2, 11, 16)


def test_several_lambdas_on_a_line_without_columns(monkeypatch):
    monkeypatch.setattr("dy2st.convert.source.by_columns", lambda candidates, code: ())
    fs = make("f = [lambda x: x + 1, lambda x: x * 2, lambda x: (lambda y: y * x)(3)]\n")
    assert [convert(f, Runtime())(5) for f in fs] == [6, 10, 15]
    one, two = make("f = [lambda *a: a, lambda **a: a]\n")
    assert convert(one, Runtime())(5) == (5,) and convert(two, Runtime())(x=5) == {"x": 5}


def test_lambda_in_a_class_body():
    fn = make("class C:\n    __p = 3\n    f = lambda self, x: [self.__p, x and 1]\n", "C").f
    assert convert(fn, Runtime())(fn.__globals__["C"](), 2) == [3, 1]


# Refusals


def refused(fn):
    with pytest.raises(SourceError) as info:
        convert(fn, Runtime())
    return str(info.value)


def check_error(text, want, **kw):
    assert refused(make(text, **kw)) == textwrap.dedent(want).strip("\n")


def test_no_source():
    names = {}
    exec("def f(): pass", names)
    assert refused(names["f"]) == (
        "dy2st: the source of 'f' is not available (<string>).\n\n"
        "A function is translated from its source text.\n"
        "Define it in a file or a notebook cell, or register its text in linecache."
    )


def test_a_text_of_the_same_name_is_not_the_source_of_another():
    """From Python 3.13 on `python -c` keeps its text under the name that `exec` gives to all."""
    own, other = make("def f(): return 1\n", file="<string>"), {}
    assert convert(own, Runtime())() == 1
    exec("def f(): return 2", other)
    assert refused(other["f"]).startswith("dy2st: the source of 'f' is not available (<string>).")
    linecache.cache["<string>"] = (1, None, ["def f(:\n"], "<string>")
    assert refused(other["f"]).startswith("dy2st: the source of 'f' is not available (<string>).")
    del linecache.cache["<string>"]


def test_builtin():
    assert refused(len) == (
        "dy2st: <built-in function len> is not a Python function.\n\n"
        "Only functions defined by `def` or `lambda` have a source to translate."
    )


def test_closures_are_converted_once_and_keep_their_own_cells():
    one, two = (functions_of(n) for n in (1, 2))
    assert one[0].__code__ is two[0].__code__ and one[0] is not two[0]
    assert [q[0](1) for q in (one, two)] == [q[1](1) for q in (one, two)] == [2, 3]


def functions_of(n):
    def add(x):
        return x + n

    return convert(add, Runtime()), add


def test_changed_source():
    fn = make("def f(): return 1\n")
    linecache.cache["<notebook-1>"] = (1, None, ["def g(): return 1\n"], "<notebook-1>")
    assert refused(fn).startswith("dy2st: the source of 'f' does not match the running function.")


def test_changed_lambda():
    fn = make("f = [lambda x: x + 1, lambda x: x * 2][0]\n")
    linecache.cache["<notebook-1>"] = (1, None, ["f = [lambda x: 1, lambda x: 2][0]\n"], "")
    assert "does not match" in refused(fn)


def test_async_def():
    check_error(
        """
        async def f(x):
            return x
        """,
        """
        dy2st: 'async' cannot be translated.

          <notebook-1>:2, f
           2 | async def f(x):
               ^

        A static program has no event loop.
        Write it as a synchronous function.
        """,
    )


def test_nested_await():
    text = refused(make("def f(x):\n    async def g():\n        await x\n    return g\n"))
    assert "2 |     async def g():" in text


def test_async_comprehension():
    text = refused(make("async def f(x):\n    return [y async for y in x]\n"))
    assert "'async' cannot be translated" in text


@pytest.mark.parametrize(
    ("store", "times"),
    [
        ("k = 1", 1), ("k += 1", 1), ("a, k = 1, 2", 1), ("(k := 1)", 1),
        ("for k in (1, 2): pass", 2), ("import k", 1), ("def k(): pass", 1), ("del k", 1),
        ("class k: pass", 1), ("if k > 5: k = 1", 0), ("[k for k in (1, 2)]", 0),
    ],
)  # fmt: skip
def test_stores_to_globals_are_announced(store, times):
    announced = []

    class Announced(Runtime):
        def rebinds(self, thunk, inner):
            announced.append(thunk.__code__.co_names)

    fn = make(f"def f():\n    global k\n    {store}\n", k=0)
    convert(fn, Announced())() if "import" not in store else pytest.raises(
        ImportError, convert(fn, Announced())
    )
    assert announced == [("k",)] * times


def test_outer_names_bound_without_an_assignment():
    text = refused(make("def f():\n    global k\n    try: f()\n    except E as k: pass\n"))
    assert "'k', a variable from outside of the function, is bound here" in text
    assert "`k = ...`" in text


@pytest.mark.parametrize("jump", ["break", "continue", "return"])
def test_jump_out_of_finally(jump):
    check_error(
        f"""
        def f(xs):
            for x in xs:
                try:
                    x()
                finally:
                    {jump}
        """,
        f"""
        dy2st: '{jump}' leaves a 'finally' clause.

          <notebook-1>:7, f
           5 |             x()
           6 |         finally:
           7 |             {jump}
                           {"^".ljust(len(jump), "~")}

        It would discard an exception that is being raised.
        Move it after the try statement.
        """,
    )
