"""What converted code calls is described in `dy2st.convert`, and both runtimes have it."""

from __future__ import annotations

import re
import sys

import pytest

pytest.importorskip("paddle")

import dy2st.runtime
from tests.dy2st.convert.plain_runtime import Runtime


@pytest.mark.quick
def test_the_calls_that_are_described_are_those_that_there_are():
    described = set(re.findall(r"RT\.(\w+)", sys.modules["dy2st.convert"].__doc__))
    assert described == set(dy2st.runtime.__all__)
    assert described <= set(dir(Runtime))
