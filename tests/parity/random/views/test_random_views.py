"""Random programs of views and writes against eager; `scripts/fuzz/views.py` runs more of them."""

from __future__ import annotations

import copy
import os
from collections import Counter

import numpy as np
import paddle
import pytest
from paddle import nn

import dy2st
from tests import check
from tests.conftest import mostly_slow
from tests.parity.random.views import random_views
from tests.parity.random.views.random_view_statements import Statement

SEED = int(os.environ.get("DY2ST_SEED", "0"))
COUNT, GROUPS = 300, 60


def outcomes(group, run, cuts=True):
    """What became of the programs of a group; prints the seed of one that differs."""
    seen = Counter()
    for seed in range(SEED + group, SEED + COUNT, GROUPS):
        named = seed % 4 == 3
        try:
            seen[run(random_views.program(seed, named, cuts), str(seed), named)] += 1
        except dy2st.SourceError:
            seen["refused"] += 1
        except Exception as e:
            raise AssertionError(f"seed {seed}, named={named}: {type(e).__name__}: {e}") from e
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("group", mostly_slow(range(8), nightly=range(8, GROUPS)))
def test_random_views(group):
    """Results, tensors of the caller, aliases, versions. DY2ST_SEED moves all seeds."""
    seen = outcomes(group, random_views.compare)
    assert seen["raises"] <= 1 and seen["refused"] <= 2, seen


@pytest.mark.slow
@pytest.mark.parametrize("group", mostly_slow(range(20, GROUPS, 8), nightly=range(20)))
def test_gradients_of_random_views(group):
    seen = outcomes(group, random_views.gradients, cuts=False)
    assert seen["raises"] <= 1 and sum(seen.values()) - seen["refused"] > 2, seen


def test_a_failing_program_becomes_smaller():
    programs = [random_views.program(seed) for seed in range(9)]
    p = next(q for q in programs if any(s.body for s in q.statements))
    wanted = next(s for s in p.statements if s.body).body[0].line

    def fails(q):
        return wanted in q.text()

    q = random_views.shrink(p, fails)
    assert len(p.text().splitlines()) - len(q.text().splitlines()) > 20
    (kept,) = [s for s in q.statements if not s.fixed]
    assert wanted in [kept.line, *(s.line for s in kept.body or ())]
    assert Statement("if n > 2:", ()).lines(0) == ["if n > 2:", "    pass"]


def test_where_eager_raises_the_translated_step_must_raise():
    bad = random_views.Program((Statement("p = x.reshape([5])"),), "[x], x, 1")
    good = random_views.Program((Statement("p = x * 2.0"),), "[p], x, 1")
    assert random_views.gradients(bad, "bad") == "raises"
    assert random_views.gradients(good, "good") == "equal"
    arrays = [np.zeros([3, 4]), np.zeros([4])]
    with pytest.raises(AssertionError, match="eager raises ValueError"):
        random_views.must_raise(random_views.World(good, "good"), arrays, ValueError("no"))


# ---------------------------------------------------------------- found by random programs
class State(nn.Layer):
    def __init__(self):
        super().__init__()
        self.h = paddle.ones([2])


class ClonedInALoop(State):
    """The result has the values of the buffer, and is another tensor."""

    def forward(self, x):
        self.h.add_(x)
        h = self.h
        for _ in range(3):
            h = h.clone()
        return h


class ClonedWhileDataSaysSo(State):
    def forward(self, x):
        self.h.add_(x)
        h = self.h
        while x.mean() < 0.5:
            h = h.clone()
            x = x + 1
        return h


class WrittenInALoopThenOverwritten(State):
    """Nothing needs the loop."""

    def forward(self, x):
        k = 0
        while k < 3 and x.mean() < 0.7:
            self.h[1:] += x.mean()
            k += 1
        self.h.copy_(x)
        return x + 1


class BufferIsAResult(State):
    def forward(self, x):
        return self.h, x


class TransposedVector(State):
    def forward(self, x):
        v = x * 2.0
        return v.T, v, self.h.T


class PairOfLists(State):
    def forward(self, x):
        p = self.h.reshape([2, 1]) * x
        v = p[[1, 0], [0, 1]]
        return v, v * 1.0


@pytest.mark.parametrize(
    "model",
    [
        ClonedInALoop, ClonedWhileDataSaysSo, WrittenInALoopThenOverwritten, BufferIsAResult,
        TransposedVector, PairOfLists,
    ],
    ids=lambda q: q.__name__,
)  # fmt: skip
def test_found(model):
    """Three calls: the same objects, the same memory; the version moves where eager moves it."""
    eager = model()
    static = dy2st.to_static(copy.deepcopy(eager))
    with paddle.no_grad():
        for call in range(3):
            have, want = (
                check.observe(m, [paddle.full([2], call * 0.25)], lambda m=m: m.h)
                for m in (static, eager)
            )
            assert not check.both_raise(have, want)
            check.equal(have, want, f"call {call}", objects=True, versions=True)
            sides = [[*check.leaves(q.result), *check.leaves(q.held)] for q in (have, want)]
            for results in sides:
                for k, q in enumerate(results[: len(check.leaves(want.result))]):
                    q.scale_(0.5, bias=k + 1.0)
            check.same(*sides, what=f"call {call}, written")


def test_a_shape_that_another_name_would_get_too_is_refused():
    """Eager gives `p` the shape of `p[:]` and of `p.detach()`, if that changes in place."""

    def sliced(x):
        p = x * 2.0
        v = p[:]
        v.unsqueeze_(0)
        return p, v

    def detached(x):
        p = x * 2.0
        y = p.detach()
        p.reshape_([4, 3])
        return p, y

    def of_no_other(x):
        p = x * 2.0
        y = p[:] * 2.0
        p[:] = 0.5
        p.unsqueeze_(0)
        return p, y

    x = paddle.ones([3, 4])
    for f, call in ((sliced, "unsqueeze_"), (detached, "reshape_")):
        first, second = f(x)
        assert first.shape == second.shape
        with pytest.raises(dy2st.SourceError, match=f"{call} of a tensor that another name holds"):
            dy2st.to_static(f)(x)
    check.same(dy2st.to_static(of_no_other)(x), of_no_other(x))
