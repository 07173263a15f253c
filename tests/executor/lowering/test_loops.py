"""What a loop checks in its iterations."""

from __future__ import annotations

import pytest

from executor import cpu
from executor.launches import Check
from executor.lowering.program import lower
from tests.executor.lowering.test_branches import every
from tests.ir.test_ir_random import program
from tests.ir.test_loop_sizes import PROGRAMS

BEYOND = PROGRAMS["prefixes"].replace("length=t+1", "length=t+2").replace("t+1,3", "t+2,3")


@pytest.mark.parametrize("name", PROGRAMS)
def test_slices_up_to_the_index_are_not_checked(name):
    """The loop runs, so that there are elements at all."""
    launches = every(lower(program(PROGRAMS[name]), cpu.machine()).launches)
    assert not [x for x in launches if isinstance(x, Check)]


def test_slices_beyond_it_are():
    launches = every(lower(program(BEYOND), cpu.machine()).launches)
    assert [str(x.value) for x in launches if isinstance(x, Check)] == ["T-t-2"]
