"""Random programs about storage, lowered: no value is lost, whatever takes the place of another."""

from __future__ import annotations

import numpy as np
import pytest

import executor
import ir
from tests.conftest import mostly_slow
from tests.executor.plan.random_places import native_places
from tests.executor.plan.test_reuse import check_plan
from tests.executor.test_executor import run_text
from tests.executor.test_random_programs import agree, arrays


@pytest.mark.slow
@pytest.mark.parametrize("group", mostly_slow(range(10), nightly=range(10, 20)))
def test_no_value_is_lost(group):
    for seed in range(group, 80, 20):
        check_plan(native_places(seed), {"T": (3, 3, 1, 0)[seed // 20 % 4]}, seed)


@pytest.mark.parametrize("group", mostly_slow(range(4), 0))
def test_no_value_is_lost_where_inputs_are_donated(group):
    for seed in range(300 + group, 324, 4):
        check_plan(native_places(seed), {"T": 2}, seed, range(seed % 3, 8, 2))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(400, 408))
def test_native_code_with_poison(seed):
    p = native_places(seed)
    run = executor.compile(p, poison=True)
    for t in (3, 1):
        xs = arrays(p, {"T": t}, np.random.default_rng(seed))
        own = [x.copy() for x in xs]
        outputs, written = ir.evaluate(p, xs)
        for a, b in zip(run(*own), outputs, strict=True):
            agree(a, b, str(p))
        after = dict(zip((target for target, _ in p.writes), written))
        for i, x, a in zip(p.inputs, xs, own):
            agree(a, after.get(i.value, x), str(p))


# ---------------------------------------------------------------- found by random programs
@pytest.mark.parametrize(
    "after",
    [
        "%n = set_slice(%a, %a, axis=0, start=1, step=-1) : f64[2,2]",
        "%b = scale(%a, scale=0.5) : f64[2,2]\n%n = matmul(%b, %b) : f64[2,2]",
    ],
    ids=["stored into", "overwritten"],
)
def test_a_view_that_a_loop_stacks_is_not_overwritten(after):
    """The value behind the view is made in the stack; what comes next must not take its place."""
    text = f"""program p(%x: f64[2,2] arg "x") {{
      scan %t < 3 {{
        carry %h = %x then %n last %e                : f64[2,2]
        stack %s = %v axis 0                         : f64[3,2,2]
        body
          %a = tanh(%h)                              : f64[2,2]
          %v = transpose(%a, perm=[1, 0])            : f64[2,2]
          {after}
      }}
      %q = sum(%s, axes=[0])                         : f64[2,2]
      return %q, %e
    }}"""
    run_text(text, np.arange(4.0).reshape(2, 2) / 4 - 0.25)
