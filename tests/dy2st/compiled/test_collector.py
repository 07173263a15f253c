"""The garbage collector waits while a function is translated."""

from __future__ import annotations

import gc

import paddle
import pytest

import dy2st
from dy2st import SourceError
from dy2st.compiled import training


def collector_is_on() -> bool:
    return gc.isenabled()


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_waits_and_is_as_before(on: bool) -> None:
    seen = []

    @dy2st.to_static
    def f(x):
        seen.append(collector_is_on())
        return x + 1

    @dy2st.to_static
    def refused(x):
        return x.data_ptr()

    try:
        if not on:
            gc.disable()
        dy2st.program(f, paddle.ones([2]))
        assert not any(seen)
        assert gc.isenabled() is on
        with pytest.raises(SourceError):
            refused(paddle.ones([2]))
        assert gc.isenabled() is on
    finally:
        gc.enable()


def test_the_collector_waits_while_the_backward_program_is_compiled(monkeypatch):
    seen, run_passes = [], training.run_passes

    def seeing(*args, **kwargs):
        seen.append(gc.isenabled())
        return run_passes(*args, **kwargs)

    @dy2st.to_static
    def f(x):
        return (x * x).sum()

    x = paddle.ones([2])
    x.stop_gradient = False
    loss = f(x)
    monkeypatch.setattr(training, "run_passes", seeing)
    loss.backward()
    assert seen == [False]
    assert gc.isenabled()
