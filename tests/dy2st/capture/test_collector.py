"""The garbage collector waits while a function is translated."""

from __future__ import annotations

import gc

import paddle
import pytest

import dy2st
from dy2st import SourceError


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
        return x.numpy()

    try:
        if not on:
            gc.disable()
        f.program(paddle.ones([2]))
        assert not any(seen)
        assert gc.isenabled() is on
        with pytest.raises(SourceError):
            refused(paddle.ones([2]))
        assert gc.isenabled() is on
    finally:
        gc.enable()
