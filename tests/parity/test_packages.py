"""Models after those of public packages: the results of eager, one loop whatever its length."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import paddle
import pytest

import dy2st
from ir.autodiff.partial_backward import with_arrived
from tests import check
from tests.ir.idle_ports import idle_ports
from tests.parity.models.idioms import floats
from tests.parity.packages import MODELS, Model, make

LENGTHS = (20, 2000)
BOUNDS = {"rtol": 1e-5, "atol": 1e-5}
STANDS = [n for n, model in MODELS.items() if not model.refused]


def arguments(model: Model, steps: int) -> Any:
    """A function that makes other arguments for each call, the same in every run."""
    rng = np.random.default_rng(steps)
    return lambda: model.args(rng, steps)


@pytest.mark.sampled
@pytest.mark.quick("seq2seq", "wavernn", "tree_lstm")
@pytest.mark.parametrize("name", STANDS)
def test_as_eager(name, monkeypatch):
    monkeypatch.setenv("DY2ST_CHECK", "1")
    model = MODELS[name]
    static = check.parity(make(name, 7), arguments(model, 7), calls=2, **BOUNDS)
    assert "unrolled" not in str(dy2st.report(static, *arguments(model, 7)()))


@pytest.mark.parametrize("name", [n for n, model in MODELS.items() if model.refused])
def test_refused(name):
    """A mark that is stale fails."""
    model = MODELS[name]
    assert model.refused is not None
    with pytest.raises(dy2st.SourceError, match=model.refused[0]):
        dy2st.to_static(make(name, 7))(*arguments(model, 7)())


@pytest.mark.nightly
@pytest.mark.parametrize("steps", [1, 2, 12])
@pytest.mark.parametrize("name", STANDS)
def test_lengths(name, steps):
    model = MODELS[name]
    if steps >= model.least:
        check.parity(make(name, steps), arguments(model, steps), **BOUNDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in STANDS if MODELS[n].trained])
def test_trains(name):
    model = MODELS[name]
    rng = np.random.default_rng(3)

    def made() -> Any:
        out = make(name, 5)
        out.train()
        return out

    check.trains(made, lambda: model.trained(rng, 5), dtype="float32", steps=2, rate=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", STANDS)
def test_the_program_does_not_grow_with_the_loop(name):
    """Ops at T = 20 and T = 2000, backward, too: nothing is compiled, and nothing may run."""
    few, many = (
        check.sizes_of_programs(
            dy2st.to_static(make(name, steps)), MODELS[name].args(np.random.default_rng(0), steps)
        )
        for steps in LENGTHS
    )
    assert few == many


@pytest.mark.nightly
@pytest.mark.parametrize("name", [n for n in STANDS if MODELS[n].trained])
def test_the_backward_of_one_result_holds_only_what_it_needs(name):
    model = MODELS[name]
    args = model.trained(np.random.default_rng(3), 5)
    for x in check.tensors(args):
        x.stop_gradient = x.dtype != paddle.float32
    training = dy2st.to_static(make(name, 5)).forward.entry(*args).training
    backward, given = training.gradient.backward, len(training.of)
    for arrived in ({k} for k in range(given)):
        part = training.finished(with_arrived(backward, given, arrived))
        assert not idle_ports(part)


# ---------------------------------------------------------------- where loops end
@pytest.mark.slow
@pytest.mark.parametrize("name", ["sla_head", "formula_head", "cached_beam_search", "tacotron"])
def test_ends_in_different_steps(name):
    """One translated model, other weights of the end: the length of the result follows the data."""
    model, layer = MODELS[name], make(name, 9)
    static, lengths = dy2st.to_static(copy.deepcopy(layer)), set()
    heads = [head_of(q) for q in (layer, static)]
    for seed in range(20):
        values = floats(np.random.default_rng(seed), *heads[0].shape) * 1.5
        for head in heads:
            head.set_value(values)
        args = model.args(np.random.default_rng(seed), 9)
        with paddle.no_grad():
            check.same(static(*args), want := layer(*args), **BOUNDS)
        lengths.add(max(check.tensors(want)[0].shape[:2]))
    assert len(lengths) > 1, lengths


def head_of(model: Any) -> Any:
    """The bias of the layer that decides about the end."""
    names = ("prob_out", "tgt_word_prj", "out", "structure_generator")
    layer = next(getattr(model, n) for n in names if hasattr(model, n))
    return (layer[-1] if isinstance(layer, paddle.nn.Sequential) else layer).bias
