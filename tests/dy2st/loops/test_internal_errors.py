"""A defect of dy2st is raised as such: it neither unrolls a loop nor becomes a refusal."""

from __future__ import annotations

import sys

import paddle
import pytest

import dy2st
from dy2st.capture.foreign import probe
from dy2st.loops.body import BodyTrace


def running_sum(x):
    h = paddle.zeros([2])
    for t in range(4):
        h = h + x[t]
    return h


@pytest.mark.parametrize("error", [AssertionError, NameError])
def test_an_assertion_in_a_body_trace_is_raised(monkeypatch, error):
    source = f"def commit(self, *args):\n    raise {error.__name__}('the ports do not fit')"
    scope: dict = {}
    exec(compile(source, sys.modules[BodyTrace.__module__].__file__, "exec"), scope)
    monkeypatch.setattr(BodyTrace, "commit", scope["commit"])
    f = dy2st.to_static(running_sum)
    with pytest.raises(error, match="the ports do not fit") as found:
        f(paddle.ones([4, 2]))
    if sys.version_info >= (3, 11):
        assert found.value.__notes__ == [
            "This is a defect of dy2st, not of the translated function."
        ]


@pytest.mark.parametrize(
    "statement, error", [("{}['t']", KeyError), ("self.no_field", AttributeError)]
)
def test_a_failing_expression_in_a_body_trace_is_raised(monkeypatch, statement, error):
    scope: dict = {}
    source = f"def commit(self, *args):\n    return {statement}"
    exec(compile(source, sys.modules[BodyTrace.__module__].__file__, "exec"), scope)
    monkeypatch.setattr(BodyTrace, "commit", scope["commit"])
    with pytest.raises(error):
        dy2st.to_static(running_sum)(paddle.ones([4, 2]))


def test_the_function_works_after_a_defect(monkeypatch):
    f = dy2st.to_static(running_sum)
    with monkeypatch.context() as patch:
        scope: dict = {}
        source = "def commit(self, *args):\n    assert False, 'broken'"
        exec(compile(source, sys.modules[BodyTrace.__module__].__file__, "exec"), scope)
        patch.setattr(BodyTrace, "commit", scope["commit"])
        with pytest.raises(AssertionError, match="broken"):
            f(paddle.ones([4, 2]))
    assert f(paddle.ones([4, 2])).tolist() == [4.0, 4.0]


def test_a_defect_in_the_probe_of_a_foreign_op_is_no_refusal(monkeypatch):
    source = "def measure(self):\n    assert False, 'the probe is broken'"
    scope: dict = {}
    exec(compile(source, probe.__file__, "exec"), scope)
    monkeypatch.setattr(probe.Probe, "measure", scope["measure"])
    f = dy2st.to_static(lambda x: paddle.lgamma(x))
    with pytest.raises(AssertionError, match="the probe is broken"):
        f(paddle.ones([3]))


def test_an_error_of_the_user_in_a_body_unrolls_and_is_raised_as_in_eager():
    def f(x):
        names = ["a", "b"]
        h = x[0]
        for t in range(4):
            h = h + {"a": 1.0, "b": 2.0}[names[t]]
        return h

    x = paddle.ones([4, 2])
    with pytest.raises(IndexError) as eager:
        f(x)
    with pytest.raises(IndexError) as static:
        dy2st.to_static(f)(x)
    assert str(static.value) == str(eager.value)


def test_assert_of_the_user_is_no_defect():
    def f(x):
        for t in range(3):
            assert t < 2, "too far"
            x = x + 1
        return x

    with pytest.raises(AssertionError, match="too far") as found:
        dy2st.to_static(f)(paddle.ones([2]))
    assert not any("dy2st" in q for q in getattr(found.value, "__notes__", ()))
