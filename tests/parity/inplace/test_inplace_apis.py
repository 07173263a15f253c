"""Every in-place API of Paddle in every context: equal to eager, or refused by name."""

from __future__ import annotations

import re
from collections import Counter

import paddle
import paddle.nn.functional as F
import pytest

import dy2st
from tests.parity.inplace.inplace_cases import CASES, OTHER
from tests.parity.inplace.inplace_contexts import (
    CONTEXTS,
    check_gradient,
    compare,
    counted,
    make,
    rows,
    source,
)
from tests.parity.inplace.setitem_cases import cases as setitem_cases

OWNERS = {"Tensor": paddle.Tensor, "paddle": paddle, "F": F}
BY_NAME = {case.name: case for case in CASES}
RUNS = [(case.name, context) for case in CASES for context in case.contexts()]

pytestmark = pytest.mark.sampled


def in_place_names() -> set[str]:
    """What Paddle has, as `Tensor.add_`, `paddle.add_`, `F.relu_`."""
    return {
        f"{prefix}.{name}"
        for prefix, owner in OWNERS.items()
        for name in dir(owner)
        if name.endswith("_") and not name.startswith("_")
    }


def called() -> set[str]:
    """What the calls of the table reach, also by another name of the same function."""
    found = set()
    for case in CASES:
        for owner, name in re.findall(r"\b(\w+)\.(\w+_)\(", case.call):
            prefix = owner if owner in OWNERS else "Tensor"
            f = getattr(OWNERS[prefix], name)
            found |= {f"{p}.{name}" for p, o in OWNERS.items() if getattr(o, name, None) is f}
            found.add(f"{prefix}.{name}")
    return found


@pytest.mark.quick
def test_every_name_is_in_the_table():
    assert len(BY_NAME) == len(CASES), "two cases of one name"
    missing = in_place_names() - called() - set(OTHER)
    assert not missing, sorted(missing)
    assert set(OTHER) <= in_place_names()


@pytest.mark.quick("tanh_", "add_", "cumsum_", "scatter_")
@pytest.mark.parametrize("name, context", rows(CASES))
def test_in_place_call(name, context):
    compare(BY_NAME[name], context)


@pytest.mark.quick("tanh_", "add_", "cumsum_")
@pytest.mark.parametrize("name", [case.name for case in CASES if case.differentiable()])
def test_gradient(name):
    check_gradient(BY_NAME[name])


def test_every_context_meets_every_kind_of_cases():
    """Also where only the pairs run that are not marked `nightly`."""
    every = {(BY_NAME[name].kind(), context) for name, context in RUNS}
    taken = [q.values for q in rows(CASES) if not q.marks]
    assert {(BY_NAME[name].kind(), context) for name, context in taken} == every
    assert Counter(name for name, _ in taken).keys() == BY_NAME.keys()
    assert len(taken) < 0.6 * len(RUNS)


def test_count(capsys):
    """How many pairs of a call and a context are equal to eager, and how many are foreign.

    Those of test_inplace_setitem.py, which are native, come on top.
    """
    pairs, items = counted(CASES), counted(setitem_cases())
    foreign = [pair for pair in pairs if pair[0].foreign]
    with capsys.disabled():
        print(f"\n{len(pairs) + len(items)} in-place calls in their contexts are equal to eager,")
        print(f"{len(foreign)} of them with a foreign op; {len(RUNS) - len(pairs)} are refused")
    assert len(pairs) >= 600
    assert len(foreign) <= 140


@pytest.mark.parametrize("name", ["set_", "resize_", "apply_", "equal_ of floats"])
def test_refusal(name, golden):
    case = BY_NAME[name]
    f = dy2st.to_static(make(source(case, CONTEXTS["argument"]), name)["f"])
    operands = [paddle.ones([3, 4]) for _ in case.operands]
    with pytest.raises(dy2st.SourceError) as error:
        f(paddle.zeros([3, 4]), paddle.to_tensor(1), *operands)
    assert re.sub(r"<in place \d+", "<in place", str(error.value)) == golden


def test_a_tensor_returned_twice_is_one_object():
    def f(x):
        y = x.clone()
        part = y.detach()
        return y, part, y

    first, part, last = dy2st.to_static(f)(paddle.ones([3]))
    assert first is last and part is not first
    part.zero_()
    assert first.tolist() == [0, 0, 0]


class Holder(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", paddle.ones([2]))

    def forward(self, x):
        return self.state, x * 2


def test_a_buffer_that_is_only_returned_is_itself():
    layer = dy2st.to_static(Holder())
    for _ in range(2):
        assert layer(paddle.ones([2]))[0] is layer.state
