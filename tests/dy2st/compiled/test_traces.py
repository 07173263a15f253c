"""How often a function is traced: once, and once more where its inputs share memory."""

from __future__ import annotations

import gc

import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from dy2st.compiled import translate
from dy2st.results.planner import ResultPlanner
from dy2st.trace.trace import Trace
from tests import check


def memory(n=24):
    return paddle.arange(n, dtype="float32") + 0


def adds(x, y):
    x.add_(paddle.to_tensor(1.0))
    return y * 2


def adds_to_the_first(x, y, z):
    x.add_(paddle.to_tensor(1.0))
    return y * 2, z * 2


def asks_two(x, y):
    return x.strides, y.strides, x * y


def asks_and_writes(x, y, z):
    steps = x.strides
    y.scale_(2.0)
    return steps, z + 1, x * 1


def asks_and_views(x, y):
    flat = paddle.as_strided(x, [2], [1], x.offset)
    y.add_(paddle.to_tensor(1.0))
    return flat * 1, y.is_contiguous()


def apart(m):
    return m[:12] * 1, m[12:] * 1


#: the function, its arguments as parts of one tensor, and why it is traced again
CASES = [
    (adds, apart, ()),
    (adds, lambda m: (m[0:12], m[6:18]), ("inputs share memory (x, y)",)),
    (adds, lambda m: (m.reshape([4, 6])[:, 1:3], m[23:]), ("inputs are not contiguous (x)",)),
    (adds_to_the_first, lambda m: (m[0:8], m[4:12], m[10:16]),
     ("inputs share memory (x, y, z)",)),
    (asks_two, lambda m: (m.reshape([4, 6]).t(), m.reshape([6, 4]).clone().t().clone().t()),
     ("inputs are not contiguous (x, y)",)),
    (asks_and_writes, lambda m: (m[:6].clone().reshape([2, 3]).t(), m[0:12], m[6:18]),
     ("inputs share memory (x, y, z)",)),
    (asks_and_views, lambda m: (m.reshape([4, 6]).t(), m.clone().reshape([4, 6]).t()),
     ("inputs are not contiguous (x, y)",)),
]  # fmt: skip


@pytest.fixture
def traces(monkeypatch):
    """One entry for each trace."""
    made, traced = [], translate._traced

    def counted(given):
        made.append(given)
        return traced(given)

    monkeypatch.setattr(translate, "_traced", counted)
    return made


@pytest.mark.parametrize("f, parts, reasons", CASES)
def test_a_second_trace_knows_all_inputs_that_share_memory(f, parts, reasons, traces):
    g, one, two = dy2st.to_static(f), memory(), memory()
    for _ in range(2):
        check.same(g(*parts(two)), f(*parts(one)))
        check.same(two, one)
    assert len(traces) == 1 + len(reasons)
    report = dy2st.report(g, *parts(two))
    assert report.retraced == reasons
    assert all(f"traced again: {q}" in str(report) for q in reasons)


def test_an_argument_that_is_not_asked_for_keeps_its_named_sizes(traces):
    spec = [InputSpec([None, 6], "float32", "x"), InputSpec([None, 2], "float32", "y")]
    g = dy2st.to_static(lambda x, y: (x.add_(paddle.to_tensor(1.0)), y * 2)[1], spec)
    for n in (2, 3, 4):
        y = paddle.ones([2, n])
        check.same(g(paddle.ones([n, 6]), y.t()), y.t() * 2)
    assert len(traces) == 1


FIRST, SECOND, THIRD = (memory(6).reshape([2, 3]).t() for _ in range(3))


def asks_globals(x):
    a, b, c = FIRST.strides, SECOND.strides, THIRD.strides
    return x * (a[0] + b[0] + c[0])


def test_globals_that_are_not_contiguous_are_learned_in_one_trace(traces):
    g, x = dy2st.to_static(asks_globals), memory(2)
    check.same(g(x), asks_globals(x))
    assert len(traces) == 2
    assert g.report(x).retraced == ("inputs are not contiguous (FIRST, SECOND, THIRD)",)


class Tables:
    def __init__(self, count):
        for k in range(count):
            setattr(self, "abc"[k], memory(6).reshape([2, 3]).t())


def test_a_function_is_traced_three_times_at_most(traces):
    two, three = Tables(2), Tables(3)

    def asks(x):
        return x * (two.a.strides[0] + two.b.strides[0])

    def asks_once_more(x):
        a = three.a.strides[0]
        b = three.b.strides[0]
        return x * (a + b + three.c.strides[0])

    x = memory(2)
    check.same(dy2st.to_static(asks)(x), asks(x))
    assert len(traces) == 3
    with pytest.raises(dy2st.SourceError, match="the function has been traced 3 times"):
        dy2st.to_static(asks_once_more)(x)
    assert len(traces) == 6


def writes_views(x):
    views = [x[t] for t in range(3)]
    views[1].add_(paddle.to_tensor(1.0))
    return x * 2


def test_the_report_says_that_a_loop_is_unrolled_for_later_writes(traces):
    g, have, want = dy2st.to_static(writes_views), memory(6).reshape([3, 2]), memory(6)
    check.same(g(have), writes_views(want.reshape([3, 2])))
    assert len(traces) == 2
    reasons = g.report(have).retraced
    why = "a loop is unrolled: a tensor that it takes from outside is written in place"
    assert reasons == (why,)


def test_nothing_of_a_trace_stays_without_the_collector(young):
    def f(x):
        rows = []
        for t in range(x.shape[0]):
            if x[t].sum() > 0:
                x = x * 2
            rows.append(x[t])
        return rows, (rows[-1], x.sum())

    static, x = dy2st.to_static(f), paddle.rand([3, 2])
    static(x)
    assert not [q for q in gc.get_objects() if isinstance(q, (Trace, ResultPlanner))]
