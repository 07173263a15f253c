"""Loops over many layers in a loop over time, with a cache or a state for each layer: eager's
results, and programs that are no longer for more steps."""

from __future__ import annotations

import sys

import paddle
import pytest

import dy2st
from tests import check
from tests.parity.models.stacks import (
    DECODERS,
    STACKS,
    WRITTEN,
    AtTheLayers,
    ByNumber,
    Decoder,
    Longer,
    NewStates,
    Nones,
    NonesInADict,
    Spiking,
    StatesByNumber,
)

pytestmark = pytest.mark.sampled(every=12)


def prompt():
    return check.data(2, 1, 4, trained=False) * 0.5


def arguments(kind, steps):
    """A function that makes them."""
    if issubclass(kind, Decoder):
        return lambda: [prompt(), steps]
    return lambda: [check.data(steps, 3, 4)]


@pytest.mark.paired
@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("kind", (*WRITTEN, *DECODERS))
def test_decoders(kind, steps):
    with check.default_dtype("float64"), paddle.no_grad():
        paddle.seed(3)
        check.parity(kind(), arguments(kind, steps), rtol=1e-9, atol=1e-9, calls=2)


@pytest.mark.paired
@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("kind", STACKS)
def test_stacks(kind, steps):
    with check.default_dtype("float64"):
        paddle.seed(3)
        check.parity(kind(), arguments(kind, steps), rtol=1e-9, atol=1e-9, calls=2)


@pytest.mark.parametrize("kind", (*DECODERS, *STACKS))
def test_training(kind):
    check.trains(kind, arguments(kind, 3), steps=2)


def report_of(kind, depth, steps=20):
    with check.default_dtype("float64"), check.without_code():
        return dy2st.report(dy2st.to_static(kind(depth)), *arguments(kind, steps)())


#: models of which an inner loop is found not to be one in each trace of the loop over time
TRACED_OFTEN = (AtTheLayers, StatesByNumber, ByNumber, NonesInADict, Spiking)


@pytest.mark.paired
@pytest.mark.parametrize("depth", [2, 9])
@pytest.mark.parametrize("kind", (*WRITTEN, *DECODERS, *STACKS))
def test_no_loop_is_unrolled(kind, depth):
    """Nor does a program grow with the steps, forward and backward."""
    sizes = []
    for steps in (60, 20):
        with check.default_dtype("float64"), paddle.set_grad_enabled(kind not in WRITTEN):
            static, args = dy2st.to_static(kind(depth)), arguments(kind, steps)()
            sizes.append(check.sizes_of_programs(static, args))
            report = dy2st.report(static, *args)
    assert sizes[0] == sizes[1]
    assert dy2st.explain(static).made == 1
    assert "unrolled" not in str(report), str(report)
    if depth == 2 or kind not in TRACED_OFTEN:
        check.few_traces(report)


@pytest.mark.parametrize("kind", [Nones, NewStates])
def test_one_iteration_fills_all_layers(kind):
    """Not as many as there are layers."""
    assert "peeled 1:" in str(report_of(kind, 2))


def test_the_report_says_how_often_a_body_is_written_out():
    (note,) = (q for q in report_of(Longer, 12).loops if q.kind == "written out")
    picked = "`ks[i]`" if sys.version_info >= (3, 11) else "an index"  # no columns before
    assert note.reason == f"12 iterations: {picked} picks a tensor that gets longer"


class OneStep(Decoder):
    """A step that the user calls, with buffers that it writes."""

    def forward(self, x, caches, p):
        for i, layer in enumerate(self.layers):
            k, v = layer.keys(x)
            caches[i][0][:, p : p + 1], caches[i][1][:, p : p + 1] = k, v
            x = layer.attend(x, caches[i][0][:, : p + 1], caches[i][1][:, : p + 1])
        return x


@pytest.mark.parametrize(("length", "kind"), [(8, "scan"), (2000, "written out")])
def test_large_caches_are_not_stacked(length, kind):
    """A copy of all caches in each call costs more than the rest of a step."""

    def caches():
        return [tuple(paddle.zeros([1, length, 4]) for _ in range(2)) for _ in range(9)]

    paddle.seed(3)
    static, eager = dy2st.to_static(OneStep()), OneStep()
    eager.set_state_dict(static.state_dict())
    mine, want = caches(), caches()
    x = check.data(1, 1, 4, dtype="float32").detach()
    with paddle.no_grad():
        for p in range(2):
            check.same(static(x, mine, p), eager(x, want, p), rtol=1e-5)
        check.same(mine, want, rtol=1e-5)
        assert [q.kind for q in dy2st.report(static, x, mine, 1).loops] == [kind]
