"""A loop's body is traced again at most twice, and the report says why."""

from __future__ import annotations

import paddle

import dy2st


def counters(x):
    h, n, k = paddle.zeros([2]), 0, 1.0
    for t in range(x.shape[0]):
        h, n, k = h + x[t] * k, n + 2, k * 0.5
    return h, n


def straight(x):
    h = paddle.zeros([2])
    for t in range(x.shape[0]):
        h = h + x[t]
    return h


def test_all_that_a_body_shows_is_learned_at_once():
    report = dy2st.to_static(counters).report(paddle.ones([5, 2]))
    assert [q.kind for q in report.loops] == ["scan"]
    (line,) = report.retraced
    assert line.startswith("the loop at test_retraces.py:12")
    text = "once, because it moves integers by a constant, computes Python numbers"
    assert line.endswith(text), line
    assert f"traced again: {line}" in str(report)


def test_a_loop_with_nothing_to_learn_is_traced_once():
    assert dy2st.to_static(straight).report(paddle.ones([5, 2])).retraced == ()
