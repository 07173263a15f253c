"""Loops of real models: the results of eager, and one loop in the program, never unrolled."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import paddle
import pytest

import dy2st
from ir import Op, Program, Scan
from ir.uses import walk
from tests import check
from tests.parity.models.idioms import IDIOMS, Idiom, make
from tests.parity.models.idioms_decoding import EarlyExitDecoder, GreedyDecoder
from tests.parity.models.idioms_speech import Tacotron2Decoder
from tests.parity.models.idioms_vision import LIFNode

pytestmark = pytest.mark.sampled

SHORT = [0, 1, 2]


def each_length() -> Iterator[Any]:
    """(name, T): 7 steps and a short loop, another one from idiom to idiom; the others are left to
    the night."""
    for k, (name, idiom) in enumerate(IDIOMS.items()):
        short = [t for t in SHORT if t >= idiom.least]
        for t in (*short, 7):
            rare = t != 7 and t != short[k % len(short)]
            yield pytest.param(name, t, marks=[pytest.mark.nightly] * rare)


def foreign_in_loops(program: Program) -> set[str]:
    """Names of Paddle's kernels that run in an iteration."""
    loops = (q for q in walk(program.ops) if isinstance(q, Scan))
    found = (q for loop in loops for q in walk(loop.body))
    calls = {q.attrs["call"] for q in found if isinstance(q, Op) and q.name == "foreign"}
    return {q for q in calls if not q.startswith("backward of ")}


def arguments(idiom: Idiom, steps: int) -> Any:
    """A function that makes fresh arguments for each call, the same in every run."""
    rng = np.random.default_rng(steps)
    return lambda: idiom.args(rng, steps)


@pytest.mark.quick("tacotron2-1")
@pytest.mark.parametrize("name, steps", list(each_length()))
def test_fixed_sizes(name, steps):
    check.parity(make(name, steps), arguments(IDIOMS[name], steps), rtol=1e-5, atol=1e-5)


@pytest.mark.quick("cached_decoder")
@pytest.mark.parametrize("name", [n for n, idiom in IDIOMS.items() if idiom.spec])
def test_named_sizes(name):
    """One translated model serves every length, in any order."""
    idiom, model = IDIOMS[name], make(name, 7)
    static = dy2st.to_static(copy.deepcopy(model), idiom.spec())
    rng = np.random.default_rng(5)
    for steps in (7, 2, 1, 20, 0):
        args = idiom.args(rng, steps)
        want = check.outcome(model, args)
        have = check.outcome(static, args)
        if isinstance(want, Exception):
            assert isinstance(have, Exception), f"T = {steps}: eager raises {want!r}"
            continue
        if isinstance(have, Exception):
            raise have
        check.same(have, want, rtol=1e-5, atol=1e-5, what=f"T = {steps}")


def loops_of(report: Any) -> tuple[str, ...]:
    return tuple(q.kind for q in report.loops)


@pytest.mark.quick("greedy", "viterbi")
@pytest.mark.parametrize("name", IDIOMS)
def test_loops_stay_loops(name):
    idiom = IDIOMS[name]
    static = dy2st.to_static(make(name, 7))
    args = idiom.args(np.random.default_rng(0), 7)
    with check.without_code():
        report = dy2st.report(static, *args)
    assert loops_of(report) == idiom.loops, str(report)
    check.few_traces(report)
    assert foreign_in_loops(dy2st.program(static, *args)) == idiom.foreign, str(report)


@pytest.mark.quick("argmax_beam_search")
@pytest.mark.parametrize("name", IDIOMS)
def test_the_program_does_not_grow_with_the_loop(name):
    """Ops at T = 20 and T = 2000, backward, too; nothing may run eagerly."""
    few, many = (
        check.sizes_of_programs(
            dy2st.to_static(make(name, steps)), IDIOMS[name].args(np.random.default_rng(0), steps)
        )
        for steps in (20, 2000)
    )
    assert few == many


# ---------------------------------------------------------------- where loops end
def stops_at(model: Tacotron2Decoder, args: Sequence[Any], step: int) -> None:
    """Set the threshold so that the gate is first above it in that step, if ever."""
    model.gate_threshold = 2.0
    gates = paddle.nn.functional.sigmoid(model(*args)[1]).numpy().ravel()
    lower, here = max([0.0, *gates[:step]]), gates[step]
    model.gate_threshold = (lower + here) / 2 if here > lower else 2.0


@pytest.mark.parametrize("step", [0, 1, 3, 6])
def test_tacotron_stops_by_the_gate(step):
    model = make("tacotron2", 7)
    rng = np.random.default_rng(2)
    with paddle.no_grad():
        model.gate_layer.weight.set_value(rising(model, step))
        args = IDIOMS["tacotron2"].args(rng, 7)
        stops_at(model, args, step)
        frames = model(*args)[0].shape[2]
    assert frames == step + 1
    check.parity(model, lambda: args, rtol=1e-5, atol=1e-5)


def rising(model: Tacotron2Decoder, step: int) -> Any:
    """Weights of the gate, of the first few seeds, whose output rises until that step."""
    args = IDIOMS["tacotron2"].args(np.random.default_rng(2), 7)
    for seed in range(50):
        rng = np.random.default_rng(seed)
        model.gate_layer.weight.set_value(paddle.to_tensor(rng.normal(size=[14, 1]), "float32"))
        model.gate_threshold = 2.0
        gates = model(*args)[1].numpy().ravel()
        if step == 0 or gates[step] > max(gates[:step]) + 1e-3:
            return model.gate_layer.weight.clone()
    raise AssertionError("no gate rises until that step")


def test_tacotron_keeps_its_states_as_attributes():
    model = make("tacotron2", 5)
    static = dy2st.to_static(copy.deepcopy(model))
    rng = np.random.default_rng(4)
    names = (
        "attention_hidden attention_cell decoder_hidden decoder_cell attention_weights "
        "attention_weights_cum attention_context memory processed_memory mask"
    ).split()
    for _ in range(3):
        args = IDIOMS["tacotron2"].args(rng, 5)
        check.same(static(*args), model(*args), rtol=1e-5, atol=1e-5)
        for name in names:
            check.same(getattr(static, name), getattr(model, name), 1e-5, 1e-5, name)
        assert static.memory is args[0]


def test_tacotron_with_dropout_at_inference():
    """The prenet of the paper drops in every mode: the generator is Paddle's, in its order."""
    paddle.seed(1)
    model = Tacotron2Decoder(6, gate_threshold=2.0, always_drop=True)
    model.eval()
    args = arguments(IDIOMS["tacotron2"], 6)
    static = check.parity(model, args, rtol=1e-5, atol=1e-5)
    assert loops_of(dy2st.report(static, *args())) == ("while",)


def with_eos_bias(model: Any, bias: float) -> Any:
    """How much the model prefers the end token."""
    model.out.bias[2] = bias
    return model


def emitted(tokens: Any) -> int:
    return int(tokens.shape[1])


@pytest.mark.quick("1.0-lengths2")
@pytest.mark.parametrize("bias, lengths", [(30.0, {1}), (-30.0, {9}), (1.0, set(range(2, 9)))])
def test_greedy_decoding_stops_with_the_last_row(bias, lengths):
    model = make("greedy", 9)
    assert isinstance(model, GreedyDecoder)
    with paddle.no_grad():
        with_eos_bias(model, bias)
        args = arguments(IDIOMS["greedy"], 9)
        found = {emitted(model(*args())) for _ in range(8)}
    assert found & lengths, "the case does not end where it is meant to"
    check.parity(model, args, calls=6)


@pytest.mark.parametrize("bias, lengths", [(30.0, {2}), (-30.0, {10}), (2.0, set(range(3, 10)))])
def test_early_exit_when_all_rows_end_at_once(bias, lengths):
    model = make("early_exit", 9)
    assert isinstance(model, EarlyExitDecoder)
    with paddle.no_grad():
        with_eos_bias(model, bias)
        args = arguments(IDIOMS["early_exit"], 9)
        found = {emitted(model(*args())[0]) for _ in range(8)}
    assert found & lengths, "the case does not end where it is meant to"
    check.parity(model, args, calls=6, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [30.0, 1.0, -30.0])
def test_beam_search_stops_when_all_beams_have(bias):
    model = make("beam_search", 9)
    with paddle.no_grad():
        with_eos_bias(model, bias)
    check.parity(model, arguments(IDIOMS["beam_search"], 9), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("step", [1, 5])
def test_beam_search_by_argmax_finds_what_topk_finds(step):
    """Two models of one search, each translated: the same beams, the same scores."""
    one, two = make("beam_search", step), make("argmax_beam_search", step)
    for model in (one, two):
        with paddle.no_grad():
            with_eos_bias(model, -30.0)
    args = IDIOMS["beam_search"].args(np.random.default_rng(6), step)
    ids, scores = dy2st.to_static(one)(*args)
    again, same_scores = dy2st.to_static(two)(*args)
    np.testing.assert_array_equal(ids.numpy(), again.numpy())
    np.testing.assert_allclose(scores.numpy(), same_scores.numpy(), rtol=1e-5)


@pytest.mark.parametrize("tol, steps", [(1e9, {1}), (0.0, {9}), (1e-2, set(range(2, 9)))])
def test_a_fixed_point_is_found_after_some_steps(tol, steps):
    """The step and the residual are Python numbers; the count is returned as one."""
    model = make("deep_equilibrium", 9)
    model.tol = tol
    args = arguments(IDIOMS["deep_equilibrium"], 9)
    found = {model(*args())[1] for _ in range(4)}
    assert found <= steps, "the case does not end where it is meant to"
    check.parity(model, args, calls=4, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [30.0, 1.0, -30.0])
def test_cached_decoding_leaves_the_rest_of_its_buffers_alone(bias):
    """A loop that ends early has written only a part of the caches."""
    model = make("cached_decoder", 9)
    with paddle.no_grad():
        with_eos_bias(model, bias)
    check.parity(model, arguments(IDIOMS["cached_decoder"], 9), calls=6, rtol=1e-5, atol=1e-5)


def test_spiking_neurons_keep_their_potential():
    """None at rest, a tensor after the call, in every neuron; reset at the next call."""
    model = make("spiking_vgg", 4)
    static = dy2st.to_static(copy.deepcopy(model))
    rng = np.random.default_rng(4)
    for _ in range(3):
        args = IDIOMS["spiking_vgg"].args(rng, 4)
        check.same(static(*args), model(*args), rtol=1e-5, atol=1e-5)
        for a, b in zip(static.sublayers(), model.sublayers()):
            if isinstance(b, LIFNode):
                check.same(a.v, b.v, rtol=1e-5, atol=1e-5)
