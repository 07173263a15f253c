"""Checkpoints: the same gradients from less memory."""

from __future__ import annotations

import numpy as np
import pytest

from ir import parse
from tests.ir.autodiff.differences import check, gradient, gradients_of
from tests.ir.autodiff.test_autodiff import (
    BRANCH,
    BUFFER,
    CARRIES,
    NESTED,
    RNN,
    SEQS,
    WHILE,
    normal,
)

CHECKPOINTED = {
    "rnn": RNN.replace("f64[T", "f64[7").replace("< T", "< 7").replace(",T,", ",7,"),
    "carries": CARRIES.replace("T5", "7"),
    "sequences": SEQS,
    "branch": BRANCH,
    "buffer": BUFFER,
    "nested": NESTED,
}
ARRAYS = {
    "rnn": lambda: [normal(7, 2, 3), normal(2, 3), normal(3, 3)],
    "carries": lambda: [normal(3), normal(3), normal(3)],
    "sequences": lambda: [normal(9, 3), normal(3, 4)],
    "branch": lambda: [normal(3) + 1, normal(3), normal(3)],
    "buffer": lambda: [normal(6, 3), np.array([2, 5, 2, 2]), normal(7, 3)],
    "nested": lambda: [normal(4, 3), normal(3), np.array([2, 0, 3, 1])],
}


@pytest.mark.slow
@pytest.mark.parametrize("every", ["sqrt", 1, 2, 3, 9])
@pytest.mark.parametrize("name", ARRAYS)
def test_checkpoints_do_not_change_gradients(name, every):
    text, arrays = CHECKPOINTED[name], ARRAYS[name]()
    g, plain = check(text, arrays, checkpoint=every, native=every == "sqrt"), gradient(text)
    shapes = [v.type.concrete({}) for v in g.forward.outputs[: len(parse(text).outputs)]]
    seeds = [np.random.default_rng(3).normal(size=s) for s in shapes]
    for a, b in zip(gradients_of(g, arrays, seeds), gradients_of(plain, arrays, seeds)):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_checkpoints_keep_the_state_of_every_segment_only():
    """A loop of 100 steps keeps 10 states, not 100."""
    text = RNN.replace("f64[T", "f64[100").replace("< T", "< 100").replace(",T,", ",100,")
    kept = [gradient(text, of=[1], checkpoint=c).residuals for c in ("none", "sqrt")]
    plain, checked = (sum(r.bytes for r in rs if r.source != "input") for rs in kept)
    assert checked == 10 * 2 * 3 * 8 and plain >= 100 * 2 * 3 * 8


def test_loops_without_checkpoints_are_reported():
    body = '%k = foreign(%h2, call="_C_ops.rand", args="", types=[f64[2,3]]) : f64[2,3]'
    text = CHECKPOINTED["rnn"].replace("  }\n  return", f"      {body}\n  }}\n  return")
    assert any("_C_ops.rand cannot run twice" in q for q in gradient(text, checkpoint=4).report)
    assert any("no checkpoints: its length T" in q for q in gradient(RNN, checkpoint=4).report)
    text = WHILE.replace("BOUND", "")
    assert any("no checkpoints: a while" in q for q in gradient(text, checkpoint=4).report)


@pytest.mark.parametrize("wrong", [0, -2, "log", True])
def test_checkpoints_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="checkpoint is"):
        gradient(RNN, checkpoint=wrong)
