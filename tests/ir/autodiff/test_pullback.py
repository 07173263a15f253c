"""Gradients as ops of the program: of every row, differentiated once more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ir import Input, Program, Value
from ir.autodiff import NotDifferentiable
from ir.autodiff.pullback import pull_back
from ir.opdef import OPS
from ir.types import F64
from tests.ir.autodiff.differences import check
from tests.ir.autodiff.test_autodiff_rows import CASES, arrays_of, program_of, wide

pytestmark = pytest.mark.sampled

#: rows of gradients that have none
ONCE = {"max_unpool": "the gradient of max_pool: it has no gradient"}


def pulled_back(p: Program) -> Program:
    """A program of the gradients of `p`, given those of its float outputs."""
    results = [v for v in p.outputs if v.type.dtype == F64]
    inputs = [i.value for i in p.inputs if i.value.type.dtype == F64]
    seeds = [Value(v.type, f"s{k}") for k, v in enumerate(results)]
    back = pull_back([(p.ops, ())], list(zip(results, seeds)), inputs, (), set(), True)
    given = (*p.inputs, *(Input(s, "arg", s.name) for s in seeds))
    outputs = tuple(g for g in back.gradients if g is not None)
    return Program("back", given, (*back.forward[0], *back.ops), outputs)


@pytest.mark.parametrize("name, k", CASES)
def test_the_gradient_of_a_gradient_against_finite_differences(name, k):
    e = wide(OPS[name].examples[k])
    if name in ("set_dynamic_index", "dynamic_index") and e.low < 0:
        e = replace(e, low=0.0)
    p = pulled_back(program_of(name, e))
    arrays = arrays_of(replace(e, types=tuple(str(i.value.type) for i in p.inputs)))
    once = next((ONCE[op.name] for op in p.ops if op.name in ONCE), None)
    if once is not None:
        with pytest.raises(NotDifferentiable, match=once):
            check(p, arrays)
        return
    check(p, arrays)
