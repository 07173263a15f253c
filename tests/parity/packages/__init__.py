"""Models with a loop over time after those of public packages, shortened to what carries their
control flow: caches, states as attributes, early exits, keywords that are updated in each step.

`MODELS` has for each how it is made for T steps, its arguments, and what is not one loop yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from tests.parity.models.idioms import BATCH, floats
from tests.parity.packages import (
    agents,
    dynamics,
    generation,
    memory,
    mixers,
    ocr,
    recognition,
    search,
    synthesis,
)

Args = Callable[[np.random.Generator, int], list[Any]]


@dataclass(frozen=True)
class Model:
    """`make(steps)` is the model and `args(rng, steps)` its arguments, `trained(rng, steps)` those
    of training, where eager Paddle can train it. `refused`: a part of the error, and what
    leads to it. `least`: the smallest T."""

    make: Callable[[int], Any]
    args: Args
    trained: Args | None = None
    refused: tuple[str, str] | None = None
    least: int = 1


def integers(rng: np.random.Generator, high: int, *shape: int) -> Any:
    return paddle.to_tensor(rng.integers(0, high, shape))


def uniform(rng: np.random.Generator, *shape: int) -> Any:
    return paddle.to_tensor(rng.uniform(0.05, 1.0, shape).astype("float32"))


def image(rng: np.random.Generator, steps: int) -> list[Any]:
    return [floats(rng, BATCH, 4, 6)]


def prompt(rng: np.random.Generator, steps: int) -> list[Any]:
    return [integers(rng, 9, BATCH, 3)]


def sequences(size: int) -> Args:
    return lambda rng, steps: [floats(rng, BATCH, steps, size)]


def table(rng: np.random.Generator, steps: int) -> list[Any]:
    return [[floats(rng, BATCH, 5, 2, 3)]]


def labelled_table(rng: np.random.Generator, steps: int) -> list[Any]:
    lengths = paddle.to_tensor([max(steps - 2, 0), steps - 1])
    return [*table(rng, steps), [integers(rng, 7, BATCH, steps + 1), lengths, None]]


def cells(rng: np.random.Generator, steps: int) -> list[Any]:
    return [[floats(rng, BATCH, 4, 5)]]


def spectrum(rng: np.random.Generator, steps: int) -> list[Any]:
    return [floats(rng, BATCH, 5, 4), floats(rng, BATCH, steps, 3)]


def sums_of_numbers(rng: np.random.Generator, steps: int) -> list[Any]:
    """A binary tree: children before parents."""
    left, right = ([int(rng.integers(0, i + 1)) for i in range(steps)] for _ in range(2))
    return [floats(rng, steps, 4), paddle.to_tensor(left), paddle.to_tensor(right)]


MODELS: dict[str, Model] = {
    # ------------------------------------------------------------ OCR
    "sla_head": Model(ocr.SLAHead, table, labelled_table),
    "table_attention_head": Model(
        ocr.TableAttentionHead,
        cells,
        lambda rng, t: [*cells(rng, t), [integers(rng, 7, BATCH, t + 1)]],
    ),
    "attention_lstm": Model(
        ocr.AttentionLSTM,
        lambda rng, t: [floats(rng, BATCH, 4, 5)],
        lambda rng, t: [floats(rng, BATCH, 4, 5), integers(rng, 7, BATCH, t)],
    ),
    "parallel_sar": Model(
        ocr.ParallelSAR, lambda rng, t: [floats(rng, BATCH, 4, 6), uniform(rng, BATCH)]
    ),
    "nrtr": Model(ocr.NRTR, image),
    "formula_head": Model(ocr.FormulaHead, image),
    # ------------------------------------------------------------ synthesis
    "transformer_tts": Model(
        synthesis.TransformerTTS,
        lambda rng, t: [floats(rng, 1, 5, 4)],
    ),
    "tacotron": Model(synthesis.TacotronInference, lambda rng, t: [floats(rng, 5, 4)]),
    "tacotron_training": Model(synthesis.TacotronDecoder, spectrum, spectrum),
    "length_regulator": Model(
        synthesis.LengthRegulator,
        lambda rng, t: [floats(rng, BATCH, t, 4), integers(rng, 4, BATCH, t)],
    ),
    "gaussian_upsampling": Model(
        synthesis.GaussianUpsampling,
        lambda rng, t: [
            floats(rng, BATCH, t, 4),
            integers(rng, 4, BATCH, t),
            paddle.ones([BATCH, 2 * t]),
        ],
    ),
    "waveflow": Model(
        lambda t: synthesis.WaveFlow(2 * t),
        lambda rng, t: [floats(rng, BATCH, 6 * t + 1), floats(rng, BATCH, 2, 6 * t + 2)],
    ),
    # ------------------------------------------------------------ recognition
    "u2_all_chunks": Model(
        lambda t: recognition.U2ChunkEncoder(-1, places=6 * t + 4),
        lambda rng, t: [floats(rng, 1, 4 * t + 1, 4)],
    ),
    "u2_two_chunks": Model(
        lambda t: recognition.U2ChunkEncoder(2, places=6 * t + 4),
        lambda rng, t: [floats(rng, 1, 4 * t + 1, 4)],
    ),
    "u2_convolutional": Model(
        lambda t: recognition.U2ConvolutionalEncoder(2, places=2 * t + 4),
        lambda rng, t: [floats(rng, 1, 8 * t + 8, 8)],
    ),
    "attention_decoder": Model(
        recognition.AttentionDecoder,
        lambda rng, t: [floats(rng, BATCH, 5, 4)],
    ),
    "rescoring": Model(
        recognition.Rescoring,
        lambda rng, t: [integers(rng, 7, 3, t), floats(rng, 3), integers(rng, t + 1, 3)],
    ),
    "transducer": Model(recognition.Transducer, lambda rng, t: [floats(rng, 1, t, 4)]),
    "batched_transducer": Model(recognition.BatchedTransducer, sequences(4)),
    "greedy_ctc": Model(recognition.GreedyCTC, sequences(4)),
    "forced_align": Model(
        recognition.CTCForcedAlign,
        lambda rng, t: [floats(rng, t, 4), integers(rng, 4, max(t // 3, 1)) + 1],
    ),
    # ------------------------------------------------------------ generation
    "greedy_search": Model(generation.Generation, prompt),
    "sampling": Model(generation.Sampling, prompt),
    "cached_beam_search": Model(generation.BeamSearch, prompt),
    "transformer_xl": Model(
        generation.TransformerXL,
        lambda rng, t: [floats(rng, BATCH, 2 * t, 4)],
        lambda rng, t: [floats(rng, BATCH, 2 * t, 4)],
    ),
    # ------------------------------------------------------------ search
    "formula_generator": Model(search.FormulaGenerator, lambda rng, t: [floats(rng, BATCH, 5, 4)]),
    "joint_beam_search": Model(search.JointBeamSearch, lambda rng, t: [floats(rng, 6, 4)]),
    # ------------------------------------------------------------ memories
    "ntm": Model(memory.NTM, sequences(3), sequences(3)),
    "dnc": Model(memory.DNC, sequences(3), sequences(3)),
    "pointer_network": Model(memory.PointerNetwork, sequences(2), sequences(2)),
    "seq2seq": Model(
        memory.Seq2Seq,
        lambda rng, t: [
            integers(rng, 7, BATCH, 4),
            integers(rng, 7, BATCH, t + 1),
            uniform(rng, t + 1),
        ],
        lambda rng, t: [
            integers(rng, 7, BATCH, 4),
            integers(rng, 7, BATCH, t + 1),
            uniform(rng, t + 1),
        ],
    ),
    "tree_lstm": Model(memory.TreeLSTM, sums_of_numbers),
    # ------------------------------------------------------------ mixers
    "llama": Model(
        mixers.Llama,
        prompt,
        lambda rng, t: [integers(rng, 9, BATCH, t), integers(rng, 9, BATCH, t)],
    ),
    "mamba_steps": Model(mixers.MambaSteps, sequences(4)),
    "rwkv": Model(
        mixers.RWKV,
        lambda rng, t: [floats(rng, t, 4)],
    ),
    "xlstm": Model(mixers.XLSTM, sequences(4), sequences(4)),
    "wavernn": Model(mixers.WaveRNN, lambda rng, t: [floats(rng, 1, 4 * t, 4)]),
    "sar_decoder": Model(
        mixers.SARDecoder,
        lambda rng, t: [floats(rng, BATCH, 4, 2, 5), floats(rng, BATCH, 4), uniform(rng, BATCH)],
    ),
    # ------------------------------------------------------------ dynamics
    "neural_ode": Model(
        dynamics.NeuralODE,
        lambda rng, t: [floats(rng, BATCH, 4), uniform(rng, t + 1).sort()],
        lambda rng, t: [floats(rng, BATCH, 4), uniform(rng, t + 1).sort()],
    ),
    "adaptive_ode": Model(
        dynamics.AdaptiveODE,
        lambda rng, t: [floats(rng, BATCH, 4)],
        lambda rng, t: [floats(rng, BATCH, 4)],
        least=2,
    ),
    "wave_equation": Model(dynamics.WaveEquation, lambda rng, t: [floats(rng, t)]),
    "heat_in_place": Model(
        dynamics.HeatInPlace, lambda rng, t: [floats(rng, 8, 8), paddle.to_tensor(0.1)]
    ),
    "kalman_filter": Model(
        dynamics.KalmanFilter,
        lambda rng, t: [floats(rng, t, 2), paddle.to_tensor(rng.integers(0, 2, t) > 0)],
        lambda rng, t: [floats(rng, t, 2), paddle.to_tensor(rng.integers(0, 2, t) > 0)],
    ),
    "lista": Model(
        dynamics.LISTA,
        lambda rng, t: [floats(rng, BATCH, 4)],
        lambda rng, t: [floats(rng, BATCH, 4)],
    ),
    "mpc": Model(
        dynamics.MPC,
        lambda rng, t: [floats(rng, 3), floats(rng, 3, 6, t, 2)],
        lambda rng, t: [floats(rng, 3), floats(rng, 3, 6, t, 2)],
    ),
    "real_nvp": Model(
        dynamics.RealNVP,
        lambda rng, t: [floats(rng, t, BATCH, 4)],
        lambda rng, t: [0.1 * floats(rng, t, BATCH, 4)],
    ),
    "autoregressive_flow": Model(
        dynamics.AutoregressiveFlow, lambda rng, t: [floats(rng, BATCH, t)]
    ),
    # ------------------------------------------------------------ agents
    "spiking_net": Model(
        agents.SpikingNet,
        lambda rng, t: [floats(rng, t, BATCH, 4) * 2],
        lambda rng, t: [floats(rng, t, BATCH, 4) * 2],
    ),
    "stdp": Model(agents.STDP, lambda rng, t: [(floats(rng, t, BATCH, 4) > 0).astype("float32")]),
    "frame_stack": Model(
        agents.FrameStack,
        lambda rng, t: [floats(rng, BATCH, 3), floats(rng, t, BATCH, 2)],
        lambda rng, t: [floats(rng, BATCH, 3), floats(rng, t, BATCH, 2)],
    ),
    "world_model": Model(
        agents.WorldModel,
        lambda rng, t: [floats(rng, BATCH, 4), floats(rng, t, BATCH, 3)],
        lambda rng, t: [floats(rng, BATCH, 4), floats(rng, t, BATCH, 3)],
    ),
}


def make(name: str, steps: int, seed: int = 1) -> Any:
    """The model with weights that depend on the seed alone, in evaluation mode."""
    paddle.seed(seed)
    model = MODELS[name].make(steps)
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.set_value(0.4 * floats(rng, *p.shape))
    model.eval()
    return model
