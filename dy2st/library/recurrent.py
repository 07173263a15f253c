"""Python code of Paddle that is converted like user code, so that its loops can be rolled.

Paddle's functions are called as they are. Those in `REWRITTEN` are not: a function here takes
Paddle's place, or Paddle's own source is converted (an entry that maps to itself).
`paddle.nn.LSTM`, `GRU` and `SimpleRNN` call one C++ kernel in eager mode; here they are the loops
of that kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import Tensor
from paddle.nn import functional as F
from paddle.nn.layer import rnn as recurrent
from paddle.utils import flatten, map_structure, pack_sequence_as

from dy2st.state.stacked_run import StackedRun
from dy2st.state.traced_list import TraceList
from dy2st.trace.symint import is_symint

Steps = Callable[..., tuple[Tensor, ...]]


# ---------------------------------------------------------------- nn.LSTM, nn.GRU, nn.SimpleRNN
def lstm_step(
    x: Tensor, states: tuple[Tensor, Tensor], weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """`x` is the input's share of the gates [B, 4H], both biases added."""
    h, c = states
    gates = x + paddle.matmul(h, weight, transpose_y=True)
    i, f, g, o = paddle.split(gates, 4, axis=-1)
    c = F.sigmoid(f) * c + F.sigmoid(i) * paddle.tanh(g)
    return F.sigmoid(o) * paddle.tanh(c), c


def gru_step(x: Tensor, states: tuple[Tensor], weight: Tensor, bias: Tensor) -> tuple[Tensor]:
    """`x` is the input's share of the gates [B, 3H] with its own bias."""
    (h,) = states
    x_r, x_z, x_c = paddle.split(x, 3, axis=-1)
    h_r, h_z, h_c = paddle.split(paddle.matmul(h, weight, transpose_y=True) + bias, 3, axis=-1)
    z = F.sigmoid(x_z + h_z)
    c = paddle.tanh(x_c + F.sigmoid(x_r + h_r) * h_c)
    return ((h - c) * z + c,)


def tanh_step(x: Tensor, states: tuple[Tensor], weight: Tensor, bias: Tensor) -> tuple[Tensor]:
    return (paddle.tanh(x + paddle.matmul(states[0], weight, transpose_y=True)),)


def relu_step(x: Tensor, states: tuple[Tensor], weight: Tensor, bias: Tensor) -> tuple[Tensor]:
    return (F.relu(x + paddle.matmul(states[0], weight, transpose_y=True)),)


def step_of(mode: str) -> Steps:
    steps: dict[str, Steps] = {
        "LSTM": lstm_step,
        "GRU": gru_step,
        "RNN_TANH": tanh_step,
        "RNN_RELU": relu_step,
    }
    return steps[mode]


def recur(
    step: Steps,
    x: Tensor,
    states: tuple[Tensor, ...],
    weight: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One direction of one layer over `x` [T, B, gates]: outputs [T, B, H] and the last states.

    Where `mask` [T, B, 1] is 0, the states stay and the output is 0.
    """
    steps = x.shape[0]
    outputs = []
    for i in range(steps):
        t = steps - 1 - i if reverse else i
        new = step(x[t], states, weight, bias)
        out = new[0]
        if mask is not None:
            valid = mask[t]
            out = out * valid
            new = tuple([n * valid + s * (1 - valid) for n, s in zip(new, states)])
        states = new
        outputs.append(out)
    stacked = paddle.stack(outputs)
    return paddle.flip(stacked, [0]) if reverse else stacked, states


def forward(
    self: recurrent.RNNBase,
    inputs: Tensor,
    initial_states: Any = None,
    sequence_length: object = None,
) -> object:
    """`RNNBase.forward`: with a projection Paddle runs its own loop over the layers."""
    states = initial_states
    if states is None:
        states = zero_states(self, inputs)
    elif isinstance(states, paddle.Tensor):
        states = (states,)
    if self.could_use_cudnn:
        return recurrent_layers(self, inputs, states, sequence_length)
    two = self.num_directions == 2
    states = recurrent.split_states(states, two, self.state_components)
    finals = []
    for i, layer in enumerate(self):
        if i > 0:
            inputs = F.dropout(inputs, self.dropout, training=self.training)
        inputs, final = layer(inputs, states[i], sequence_length)
        finals.append(final)
    return inputs, recurrent.concat_states(finals, two, self.state_components)


def zero_states(self: recurrent.RNNBase, inputs: Tensor) -> tuple[Tensor, ...]:
    layers, batch = self.num_layers * self.num_directions, inputs.shape[int(self.time_major)]
    sizes = [self.proj_size or self.hidden_size, self.hidden_size][: self.state_components]
    return tuple([paddle.full([layers, batch, n], 0, inputs.dtype) for n in sizes])


def recurrent_layers(
    self: recurrent.RNNBase,
    inputs: Tensor,
    initial_states: Sequence[Tensor],
    sequence_length: Tensor | None,
) -> object:
    """`RNNBase._cudnn_impl`: each direction of each layer of an LSTM, GRU or SimpleRNN."""
    if len(inputs.shape) != 3:
        kind, ndim = type(self).__name__, len(inputs.shape)
        raise ValueError(f"the input of {kind} must have three axes, it has {ndim}.")
    x = inputs if self.time_major else paddle.transpose(inputs, [1, 0, 2])
    check_input(self, x, initial_states)
    mask = None
    if sequence_length is not None:
        mask = valid_steps(sequence_length, x.shape[0], x.shape[1], x.dtype).unsqueeze(-1)
    dropping = self.training and self.num_layers > 1 and self.dropout > 0
    keep = None
    step = step_of(self.mode)
    finals: list[tuple[Tensor, ...]] = []
    for layer in tuple(range(self.num_layers)):
        if layer > 0 and dropping:
            keep = dropout_factors(x, self.dropout) if keep is None else keep
            x = x * keep
        outputs: list[Tensor] = []
        for k in tuple(range(layer * self.num_directions, (layer + 1) * self.num_directions)):
            w_ih, w_hh, b_ih, b_hh = layer_weights(self, k)
            gates = paddle.matmul(x, w_ih, transpose_y=True) + b_ih
            gates = gates if self.mode == "GRU" else gates + b_hh
            states = tuple([rows_named(s[k], x.shape[1]) for s in initial_states])
            reverse = k % self.num_directions == 1
            out, states = recur(step, gates, states, w_hh, b_hh, mask, reverse)
            outputs = [*outputs, out]
            finals = [*finals, states]
        x = outputs[0] if self.num_directions == 1 else paddle.concat(outputs, -1)
    last = tuple([paddle.stack(q) for q in zip(*finals)])
    out = x if self.time_major else paddle.transpose(x, [1, 0, 2])
    return out, last if len(last) > 1 else last[0]


def layer_weights(self: recurrent.RNNBase, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Input and hidden weights and biases of direction `k`, where the eager kernel finds them."""
    n = self.num_layers * self.num_directions
    w = self._all_weights
    return w[2 * k], w[2 * k + 1], w[2 * n + 2 * k], w[2 * n + 2 * k + 1]


def check_input(self: recurrent.RNNBase, x: Tensor, states: Sequence[Tensor]) -> None:
    """Shapes that eager's kernel insists on; it takes T = 0 for a division by zero."""
    kind = type(self).__name__
    if x.shape[2] != self.input_size:
        raise ValueError(
            f"the input of {kind} must have the size {self.input_size} in its last axis, "
            f"it has {x.shape[2]}."
        )
    if x.shape[0] == 0:
        raise ValueError(f"{kind} over a sequence without a time step.")
    if len(states) != self.state_components:
        raise ValueError(f"{kind} has {self.state_components} initial states, not {len(states)}.")
    want = [self.num_layers * self.num_directions, x.shape[1], self.hidden_size]
    for s in tuple(states):
        if s.shape != want:
            raise ValueError(
                f"an initial state of {kind} must have the shape {want}, it has {[*s.shape]}."
            )


def dropout_factors(x: Tensor, p: float) -> Tensor:
    """Return the factors by which dropout multiplies `x`, drawn as the eager kernel does: once, in
    float32, for all layers."""
    if p == 1:
        return paddle.zeros_like(x)
    ones = paddle.ones(x.shape, "float32")
    drawn = F.dropout(ones, p, training=True, mode="downscale_in_infer")
    return paddle.cast(drawn, x.dtype) / float(np.float32(1) - np.float32(p))


def valid_steps(lengths: Tensor, steps: object, batch: object, dtype: object) -> Tensor:
    """[T, B] of `dtype`: 1 in the first `lengths[b]` steps of row b, else 0."""
    if lengths.dtype not in (paddle.int32, paddle.int64):
        raise ValueError(f"sequence_length must be int32 or int64, not {lengths.dtype}.")
    if len(lengths.shape) != 1 or lengths.shape[0] != batch:
        raise ValueError(f"sequence_length must have one entry per row of the batch ({batch}).")
    at = paddle.arange(steps, dtype="int64").unsqueeze(-1)
    return paddle.cast(at < paddle.cast(rows_named(lengths, batch), "int64"), dtype)


def rows_named(x: Tensor, batch: object) -> Tensor:
    """`x` with its first axis called `batch`, if the program finds that the two are equal: a loop
    carries tensors of one type."""
    shape = x.shape
    if not shape or not (is_symint(shape[0]) or is_symint(batch)) or repr(shape[0]) == repr(batch):
        return x
    return paddle._C_ops.reshape(x, [batch, *shape[1:]]) if shape[0] == batch else x


# ---------------------------------------------------------------- nn.RNN, nn.BiRNN
def rnn(
    cell: recurrent.RNNCellBase,
    inputs: Tensor,
    initial_states: object = None,
    sequence_length: Tensor | None = None,
    time_major: bool = False,
    is_reverse: bool = False,
    **kwargs: object,
) -> object:
    """`paddle.nn.layer.rnn.rnn`: a cell over a sequence, tensors in nested structures.

    As in eager mode a padded step keeps the states, and its output is what the cell gave.
    """
    axis = 0 if time_major else 1
    steps = flatten(inputs)[0].shape[axis]
    states = initial_states
    if states is None:
        states = cell.get_initial_states(batch_ref=inputs, batch_dim_idx=1 - axis)
    batch = flatten(inputs)[0].shape[1 - axis]
    states = map_structure(lambda s: rows_named(s, batch), states)
    mask = None
    if sequence_length is not None:
        mask = valid_steps(sequence_length, steps, batch, inputs.dtype)
    outputs, form = [], StepStructure()
    for i in range(steps):
        t = steps - 1 - i if is_reverse else i
        step_inputs = at_step(inputs, t, 1 - axis)
        step_outputs, new_states = cell(step_inputs, states, **kwargs)
        if mask is not None:
            move = functools.partial(moved, mask[t])
            new_states = map_structure(move, states, new_states)
        states = new_states
        outputs.append(form.flat(step_outputs))
    final = form.filled([stack_steps(q, axis, is_reverse) for q in columns(outputs)])
    return final, new_states


def at_step(inputs: object, t: object, batch_axis: int) -> object:
    return map_structure(lambda x: x[:, t] if batch_axis == 0 else x[t], inputs)


def moved(valid: object, state: object, new: Tensor) -> object:
    """The new state in rows where `valid` [B] is 1, the old one where it is 0."""
    shape = [-1] + [1] * (len(new.shape) - 1)
    on = paddle.reshape(valid, shape)
    return new * on + state * (1 - on)


def stack_steps(items: object, axis: int, reverse: bool) -> object:
    whole = paddle.stack(items, axis)
    return paddle.flip(whole, [axis]) if reverse else whole


class StepStructure:
    """The structure of what each iteration of a loop gives, taken from one of them."""

    def __init__(self) -> None:
        self.like: object = None

    def flat(self, x: object) -> tuple[Tensor, ...]:
        self.like = map_structure(lambda q: None, x)
        return tuple(flatten(x))

    def filled(self, leaves: Iterable[object]) -> object:
        return pack_sequence_as(self.like, list(leaves))


def columns(rows: Any) -> tuple[Tensor, ...]:
    """A list of tuples as one list per place of the tuple; a loop may have filled it."""
    parts = rows.parts() if isinstance(rows, TraceList) else rows
    first = parts[0].tree if isinstance(parts[0], StackedRun) else parts[0]
    return tuple([TraceList(_place(q, k) for q in parts) for k in range(len(first))])


def _place(row: Any, k: int) -> object:
    return StackedRun(row.trip, row.tree[k]) if isinstance(row, StackedRun) else row[k]


#: what is converted and called instead of a function, by identity
REWRITTEN: dict[Callable[..., object], Any] = {
    recurrent.RNNBase.forward: forward,
    recurrent.RNN.forward: recurrent.RNN.forward,
    recurrent.BiRNN.forward: recurrent.BiRNN.forward,
    recurrent.birnn: recurrent.birnn,
    recurrent.rnn: rnn,
}
REWRITTEN.update(
    {f: f for f in (recurrent_layers, recur, layer_weights, check_input, valid_steps, stack_steps)}
)
