"""`dynamic_decode`, `BeamSearchDecoder` and `viterbi_decode` of Paddle as converted code.

The results are those of Paddle's Python. Not kept: `dynamic_decode` overwrites the `finished`
tensor that `initialize` returned, and `BeamSearchDecoder` leaves `vocab_size`, `vocab_size_tensor`
and `noend_mask_tensor` of its last step in its attributes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
from paddle import Tensor
from paddle.nn import decode
from paddle.nn import functional as F
from paddle.utils import flatten, map_structure

from dy2st.library.recurrent import StepStructure, columns


# ---------------------------------------------------------------- dynamic_decode
def dynamic_decode(
    decoder: decode.Decoder,
    inits: object = None,
    max_step_num: Any = None,
    output_time_major: bool = False,
    impute_finished: bool = False,
    is_test: bool = False,
    return_length: bool = False,
    **kwargs: object,
) -> object:
    """Steps until all are finished, `max_step_num + 1` at most."""
    inputs, states, finished = decoder.initialize(inits)
    lengths = paddle.cast(paddle.zeros_like(finished), "int64")
    time = paddle.zeros([1], "int64")
    outputs, form = [], StepStructure()
    assert not paddle.all(finished), "dynamic_decode: everything is finished before the first step"
    if max_step_num is None:
        while paddle.logical_not(paddle.all(finished)):
            out, inputs, states, finished, lengths = advance(
                decoder, time, inputs, states, finished, lengths, impute_finished, kwargs
            )
            time = time + 1
            outputs.append(form.flat(out))
    else:
        for _ in range(max(max_step_num, 0) + 1):
            out, inputs, states, finished, lengths = advance(
                decoder, time, inputs, states, finished, lengths, impute_finished, kwargs
            )
            time = time + 1
            outputs.append(form.flat(out))
            if paddle.all(finished):
                break
    final = form.filled([paddle.stack(q) for q in columns(outputs)])
    try:
        final, states = decoder.finalize(final, states, lengths)
    except NotImplementedError:
        pass
    if not output_time_major:
        final = map_structure(batch_first, final)
    return (final, states, lengths) if return_length else (final, states)


def advance(
    decoder: decode.Decoder,
    time: object,
    inputs: Tensor,
    states: object,
    finished: object,
    lengths: Tensor,
    impute_finished: bool,
    kwargs: Any,
) -> tuple[Tensor, ...]:
    """One step: the outputs, and what the next step starts from."""
    out, next_states, next_inputs, next_finished = decoder.step(time, inputs, states, **kwargs)
    if decoder.tracks_own_finished:
        if not hasattr(next_states, "lengths"):
            warnings.warn(
                "`next_states` has no `lengths` attribute, the returned `sequence_lengths` "
                "would be all zeros.",
                stacklevel=2,
            )
        lengths = getattr(next_states, "lengths", lengths)
        return out, next_inputs, next_states, next_finished, lengths
    next_finished = paddle.logical_or(next_finished, finished)
    lengths = lengths + paddle.cast(paddle.logical_not(next_finished), lengths.dtype)
    if impute_finished:
        next_states = map_structure(lambda s, n: held(s, n, next_finished), states, next_states)
    return out, next_inputs, next_states, next_finished, lengths


def held(state: Tensor, new: object, finished: Tensor) -> Tensor:
    """The old state where the sequence is finished, by Paddle's arithmetic."""
    as_bool = state.dtype == paddle.bool
    if as_bool:
        state, new = paddle.cast(state, "float32"), paddle.cast(new, "float32")
    mask = paddle.cast(finished, state.dtype).unsqueeze([1])
    mask.stop_gradient = True
    out = state * mask - new * (mask - 1)
    return paddle.cast(out, "bool") if as_bool else out


def batch_first(x: Tensor) -> object:
    return paddle.transpose(x, [1, 0, *range(2, len(x.shape))])


# ---------------------------------------------------------------- BeamSearchDecoder
def initialize(self: paddle.nn.BeamSearchDecoder, initial_cell_states: object) -> object:
    self.kinf = 1e9
    state = flatten(initial_cell_states)[0]
    batch, beams = state.shape[0], self.beam_size
    self.batch_size = paddle.full([], batch, "int64")
    self.start_token_tensor = paddle.full([1], self.start_token, "int64")
    self.end_token_tensor = paddle.full([1], self.end_token, "int64")
    states = map_structure(lambda x: self._expand_to_beam_size(x), initial_cell_states)
    inputs = paddle.full([batch, beams], self.start_token, "int64")
    log_probs = paddle.expand(one_zero(beams, 0, -self.kinf), [batch, beams])
    finished = paddle.full([batch, beams], False, "bool")
    lengths = paddle.zeros_like(inputs)
    inputs = self.embedding_fn(inputs) if self.embedding_fn else inputs
    return inputs, self.StateWrapper(states, log_probs, finished, lengths), finished


def expand_to_beam_size(self: paddle.nn.BeamSearchDecoder, x: Tensor) -> object:
    """[B, ...] as [B, K, ...]."""
    shape = x.shape
    return paddle.expand(paddle.unsqueeze(x, [1]), [shape[0], self.beam_size, *shape[1:]])


def mask_probs(self: paddle.nn.BeamSearchDecoder, probs: Tensor, finished: Tensor) -> object:
    """A finished beam [B, K] goes on with the end token only."""
    only_end = one_zero(probs.shape[-1], self.end_token, -self.kinf)
    done = paddle.cast(finished, probs.dtype).unsqueeze([2])
    return done * only_end - probs * (done - 1)


def one_zero(size: int, at: int, elsewhere: float) -> object:
    """A vector of `elsewhere` with a zero."""
    row = np.full([size], elsewhere, paddle.get_default_dtype())
    row[at] = 0
    return paddle.to_tensor(row)


def gather_beams(self: object, x: Tensor, indices: Tensor, batch_size: object) -> object:
    """`x[b, indices[b, k]]` for x [B, N, ...]."""
    shape = x.shape
    rows = paddle.arange(0, shape[0], 1, dtype=indices.dtype).unsqueeze([1]) * shape[1]
    flat = paddle.reshape(x, [-1, *shape[2:]])
    picked = paddle.gather(flat, paddle.reshape(rows + indices, [-1]))
    return paddle.reshape(picked, [*indices.shape, *shape[2:]])


def beam_search_step(
    self: paddle.nn.BeamSearchDecoder,
    time: object,
    logits: Tensor,
    next_cell_states: object,
    beam_state: Any,
) -> object:
    """Select the K most likely of the K * V continuations of the beams of a row."""
    vocabulary = logits.shape[-1]
    log_probs = paddle.log(F.softmax(logits))
    log_probs = self._mask_probs(log_probs, beam_state.finished)
    log_probs = paddle.add(log_probs, beam_state.log_probs.unsqueeze([2]))
    scores = paddle.reshape(log_probs, [-1, self.beam_size * vocabulary])
    top_scores, top = paddle.topk(x=scores, k=self.beam_size)
    beams, tokens = top // vocabulary, top % vocabulary
    batch = self.batch_size
    new_states = map_structure(lambda x: self._gather(x, beams, batch), next_cell_states)
    finished = self._gather(beam_state.finished, beams, batch)
    lengths = self._gather(beam_state.lengths, beams, batch)
    lengths = lengths + paddle.cast(paddle.logical_not(finished), lengths.dtype)
    finished = paddle.logical_or(finished, paddle.equal(tokens, self.end_token_tensor))
    new_log_probs = self._gather(scores, top, batch)
    return (
        self.OutputWrapper(top_scores, tokens, beams),
        self.StateWrapper(new_states, new_log_probs, finished, lengths),
    )


# ---------------------------------------------------------------- the best path of a CRF
def viterbi_decode(
    potentials: Tensor,
    transition_params: Tensor,
    lengths: Tensor,
    include_bos_eos_tag: bool = True,
    name: object = None,
) -> tuple[Tensor, Tensor]:
    """`paddle.text.viterbi_decode`: the last two tags are those of the end and of the start."""
    scores, moves, n = potentials.detach(), transition_params.detach(), potentials.shape[1]
    best, came = scores[:, 0], []
    if include_bos_eos_tag:
        best = best + moves[-1]
        best = paddle.where((lengths == 1).unsqueeze(1), best + moves[-2], best)
    for t in range(1, n):
        sums = best.unsqueeze(2) + moves
        came.append(sums.argmax(1))
        after = sums.max(1) + scores[:, t]
        if include_bos_eos_tag:
            after = paddle.where((lengths == t + 1).unsqueeze(1), after + moves[-2], after)
        best = paddle.where((lengths > t).unsqueeze(1), after, best)
    tag = best.argmax(1)
    nothing = paddle.zeros_like(tag)
    path = [paddle.where(lengths > n - 1, tag, nothing)]
    for t in range(n - 1, 0, -1):
        before = paddle.take_along_axis(came[t - 1], tag.unsqueeze(1), 1).squeeze(1)
        tag = paddle.where(lengths > t, before, tag)
        path.append(paddle.where(lengths > t - 1, tag, nothing))
    return best.max(1), paddle.stack(path[::-1], 1)[:, : int(lengths.max())]


def viterbi_decoder(
    self: paddle.text.ViterbiDecoder, potentials: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """`ViterbiDecoder.forward`."""
    tags = self.include_bos_eos_tag
    return paddle.text.viterbi_decode(potentials, self.transitions, lengths, tags)


_BEAMS = decode.BeamSearchDecoder
REWRITTEN: dict[Callable[..., object], Any] = {
    paddle.text.viterbi_decode: viterbi_decode,
    paddle.text.ViterbiDecoder.forward: viterbi_decoder,
    decode.dynamic_decode: dynamic_decode,
    _BEAMS.initialize: initialize,
    _BEAMS._expand_to_beam_size: expand_to_beam_size,
    _BEAMS._mask_probs: mask_probs,
    _BEAMS._gather: gather_beams,
    _BEAMS._beam_search_step: beam_search_step,
    _BEAMS.step: _BEAMS.step,
    _BEAMS._split_batch_beams: _BEAMS._split_batch_beams,
    _BEAMS._merge_batch_beams: _BEAMS._merge_batch_beams,
}
REWRITTEN[advance] = advance
