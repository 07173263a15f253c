"""`y[index] = value` in every context of `inplace_contexts`: equal to eager Paddle."""

from __future__ import annotations

import pytest

from tests.parity.inplace.inplace_contexts import check_gradient, compare, counted, rows
from tests.parity.inplace.setitem_cases import cases

CASES = {case.name: case for case in cases()}
RUNS = [(case.name, context) for case in CASES.values() for context in case.contexts()]

pytestmark = pytest.mark.sampled


@pytest.mark.quick
def test_names_differ_and_nothing_is_foreign():
    assert len(CASES) == len(cases())
    assert len(counted(cases())) == len(RUNS) >= 350
    assert not any(case.foreign for case in CASES.values())


@pytest.mark.quick("y[-1] = number", "y[i] = rows")
@pytest.mark.parametrize("name, context", rows(cases()))
def test_item_assignment(name, context):
    compare(CASES[name], context)


@pytest.mark.quick("y[i] = rows")
@pytest.mark.parametrize("name", [case.name for case in CASES.values() if case.differentiable()])
def test_gradient(name):
    check_gradient(CASES[name])
