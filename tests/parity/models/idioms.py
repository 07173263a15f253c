"""The table of idioms: how each model is made for T steps, its arguments, and its loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle.static import InputSpec

from tests.parity.models import idioms_decoding as decoding
from tests.parity.models import idioms_iterative as iterative
from tests.parity.models import idioms_lists as lists
from tests.parity.models import idioms_sequence as sequence
from tests.parity.models import idioms_speech as speech
from tests.parity.models import idioms_vision as vision

BATCH = 2


@dataclass(frozen=True)
class Idiom:
    """One model.

    `make(steps)` is the model and `args(rng, steps)` its arguments; `loops` are the kinds that the
    report lists, in its order, and `foreign` the kernels of Paddle that run inside of loops. `spec`
    has sizes of None where the model takes any length; `least` is the smallest T that ends.
    """

    make: Callable[[int], Any]
    args: Callable[[np.random.Generator, int], list[Any]]
    loops: tuple[str, ...]
    spec: Callable[[], list[InputSpec]] | None = None
    foreign: frozenset[str] = frozenset()
    least: int = 0


def floats(rng: np.random.Generator, *shape: int) -> Any:
    return paddle.to_tensor(rng.normal(size=shape).astype("float32"))


def lengths(rng: np.random.Generator, steps: int) -> Any:
    return paddle.to_tensor(rng.integers(0, steps + 1, [BATCH]))


def named(*shapes: list[int | None], last: str = "float32") -> Callable[[], list[InputSpec]]:
    """Specs of float32 tensors; the last one has its own dtype."""
    dtypes = ["float32"] * (len(shapes) - 1) + [last]
    return lambda: [InputSpec(s, d) for s, d in zip(shapes, dtypes)]


def mels(rng: np.random.Generator, steps: int) -> list[Any]:
    return [floats(rng, BATCH, steps, 4), floats(rng, BATCH, steps, 8)]


IDIOMS: dict[str, Idiom] = {
    "tacotron2": Idiom(
        lambda steps: speech.Tacotron2Decoder(steps),
        lambda rng, steps: [floats(rng, 1, 6, 6)],
        ("while",),
        least=1,
    ),
    "tacotron2_training": Idiom(
        lambda steps: speech.Tacotron2Training(steps),
        lambda rng, steps: [floats(rng, BATCH, 6, 6), floats(rng, BATCH, 5, steps)],
        ("scan",),
    ),
    "greedy": Idiom(
        lambda steps: decoding.GreedyDecoder(steps),
        lambda rng, steps: [floats(rng, BATCH, 8)],
        ("while",),
        named([None, 8]),
    ),
    "early_exit": Idiom(
        lambda steps: decoding.EarlyExitDecoder(steps),
        lambda rng, steps: [floats(rng, BATCH, 5, 8), paddle.to_tensor([1, 3])],
        ("while",),
        named([None, None, 8], [None], last="int64"),
    ),
    "beam_search": Idiom(
        lambda steps: decoding.BeamSearch(steps),
        lambda rng, steps: [floats(rng, BATCH, 8)],
        ("while",),
    ),
    "argmax_beam_search": Idiom(
        lambda steps: decoding.ArgmaxBeamSearch(steps),
        lambda rng, steps: [floats(rng, BATCH, 8)],
        ("scan", "scan"),
    ),
    "cached_decoder": Idiom(
        lambda steps: iterative.CachedDecoder(steps),
        lambda rng, steps: [paddle.to_tensor(rng.integers(3, 7, [BATCH]))],
        ("while",),
        named([None], last="int64"),
    ),
    "deep_equilibrium": Idiom(
        lambda steps: iterative.DeepEquilibrium(steps),
        lambda rng, steps: [floats(rng, BATCH, 6)],
        ("while",),
        named([None, 6]),
    ),
    "adaptive_computation": Idiom(
        lambda steps: iterative.AdaptiveComputation(steps),
        lambda rng, steps: [floats(rng, BATCH, 3, 6)],
        ("while",),
        named([None, None, 6]),
        least=1,
    ),
    "wavernn": Idiom(
        lambda steps: speech.WaveRNN(),
        mels,
        ("scan", "scan"),
        named([None, None, 4], [None, None, 8]),
    ),
    "wavernn_gumbel": Idiom(lambda steps: speech.WaveRNN("gumbel"), mels, ("scan", "scan")),
    "wavernn_bernoulli": Idiom(
        lambda steps: speech.WaveRNN("bernoulli"),
        mels,
        ("scan", "scan"),
        foreign=frozenset({"bernoulli"}),
    ),
    "u2": Idiom(
        lambda chunks: speech.U2Encoder(),
        lambda rng, chunks: [floats(rng, BATCH, 4 * chunks, 8)],
        ("scan", "scan", "scan"),
    ),
    "crf": Idiom(
        lambda steps: sequence.LinearChainCrf(),
        lambda rng, steps: [floats(rng, BATCH, steps, 5), lengths(rng, steps)],
        ("scan",),
        named([None, None, 5], [None], last="int64"),
    ),
    "viterbi": Idiom(
        lambda steps: sequence.ViterbiDecoder(),
        lambda rng, steps: [floats(rng, BATCH, steps, 5)],
        ("scan", "scan"),
        named([None, None, 5]),
    ),
    "augru": Idiom(
        lambda steps: sequence.AUGRU(),
        lambda rng, steps: [
            floats(rng, BATCH, steps, 6),
            floats(rng, BATCH, 6),
            lengths(rng, steps),
        ],
        ("scan",),
        named([None, None, 6], [None, 6], [None], last="int64"),
    ),
    "bilstm": Idiom(
        lambda steps: sequence.BiLSTM(),
        lambda rng, steps: [
            floats(rng, BATCH, steps, 5),
            paddle.to_tensor(rng.integers(0, 2, [BATCH, steps]) > 0),
        ],
        ("scan", "scan"),
        named([None, None, 5], [None, None], last="bool"),
    ),
    "bigru_buffers": Idiom(
        lambda steps: sequence.BiGRUBuffers(),
        lambda rng, steps: [floats(rng, BATCH, steps, 5)],
        ("scan",),
        named([None, None, 5]),
    ),
    "recurrent_highway": Idiom(
        lambda steps: sequence.RecurrentHighway(),
        lambda rng, steps: [floats(rng, BATCH, steps, 5)],
        ("scan", "scan"),
        named([None, None, 5]),
    ),
    "conv_lstm": Idiom(
        lambda steps: vision.ConvLSTM(),
        lambda rng, steps: [floats(rng, BATCH, steps, 2, 4, 5)],
        ("scan", "scan"),
    ),
    "spiking_vgg": Idiom(
        lambda steps: vision.SpikingVGG(steps),
        lambda rng, steps: [floats(rng, BATCH, 2, 8, 8)],
        ("scan",),
    ),
    "ddpm": Idiom(
        lambda steps: lists.DDPM(steps),
        lambda rng, steps: [floats(rng, BATCH, 4), floats(rng, steps, BATCH, 4)],
        (),  # a list of so few numbers is taken apart
    ),
    "ddim": Idiom(
        lambda steps: lists.DDIM(steps), lambda rng, steps: [floats(rng, BATCH, 4)], ("scan",)
    ),
    "dpm_solver": Idiom(
        lambda steps: lists.DPMSolver(steps), lambda rng, steps: [floats(rng, BATCH, 4)], ("scan",)
    ),
    "adams_bashforth": Idiom(
        lambda steps: lists.AdamsBashforth(),
        lambda rng, steps: [floats(rng, BATCH, 4), floats(rng, steps, BATCH, 4)],
        ("scan",),
    ),
    "wavenet_queues": Idiom(
        lambda steps: lists.WaveNet(),
        lambda rng, steps: [floats(rng, BATCH, 4), floats(rng, BATCH, steps, 4)],
        ("scan",),
        least=1,
    ),
    "convlstm_rollout": Idiom(
        lambda steps: lists.ConvLSTMRollout(),
        lambda rng, steps: [floats(rng, BATCH, steps, 3, 4, 4)],
        ("scan",),
        least=1,
    ),
    "chunk_encoder": Idiom(
        lambda steps: lists.ChunkEncoder(),
        lambda rng, steps: [floats(rng, BATCH, steps, 4)],
        ("scan",),
        least=1,
    ),
    "smoother": Idiom(
        lambda steps: lists.Smoother(),
        lambda rng, steps: [floats(rng, BATCH, steps, 4)],
        ("scan", "scan", "scan"),
        least=1,
    ),
}


def make(name: str, steps: int, seed: int = 1) -> Any:
    """The model with weights that depend on the seed alone, in evaluation mode."""
    paddle.seed(seed)
    model = IDIOMS[name].make(steps)
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.set_value(0.4 * floats(rng, *p.shape))
    model.eval()
    return model
