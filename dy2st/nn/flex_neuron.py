"""`FlexNeuron`: a Layer that runs the step of a neuron over time and keeps its states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle import Tensor

from dy2st.functional.flex import flex_steps, results
from dy2st.library.substitutes import REWRITTEN


class FlexNeuron(paddle.nn.Layer):
    """A neuron given by its step `core(*inputs, *states) -> (*outputs, *states)`.

    In multi-step mode a call takes sequences [T, N, ...] and is one loop over time, in translated
    code one `scan`; in single-step mode it takes the inputs [N, ...] of one step. Both start from
    the states that the last call left, which `reset` forgets. They keep their gradients: call
    `reset` between training steps, as for every state that lives longer than a call.

    Args:
        core: a function or Layer of tensors.
        num_inputs, num_states, num_outputs: the numbers of its tensors.
        store_states: keep the states after each step [T, N, ...] in the attribute
            `state_sequences`.
        step_mode: "m" for sequences, "s" for single steps.
        initial_states: a number for each state, which it has everywhere before the first step; by
            default what the attribute `initial_states` of the core says, else zeros. States have
            the shape and the element type of a step of the first input.
        output_templates: as for `flex_scan`.
        keep_states: False starts every call from the initial states and keeps none of its own; a
            Layer whose neurons keep no states can be saved.

    Returns, when it is called: the output, or a tuple if there are several, [T, N, ...] or
        [N, ...].

    Raises:
        TypeError: a core that cannot be called, or as `flex_scan`.
        ValueError: another step mode, numbers of states that differ; when it is called, another
            number of inputs, or as `flex_scan`.

    Example:
        >>> neuron = dy2st.nn.FlexNeuron(dy2st.nn.LIF(), 1, 1, 1)
        >>> neuron(paddle.ones([4, 2]) * 1.5)[:, 0].tolist()
        [0.0, 1.0, 0.0, 1.0]
    """

    def __init__(
        self,
        core: Callable[..., object],
        num_inputs: int,
        num_states: int,
        num_outputs: int,
        store_states: bool = False,
        step_mode: str = "m",
        initial_states: Sequence[float] | None = None,
        output_templates: object = None,
        keep_states: bool = True,
    ) -> None:
        super().__init__()
        if not callable(core):
            raise TypeError(f"FlexNeuron: core must be callable, it is a {type(core).__name__}")
        if step_mode not in ("m", "s"):
            raise ValueError(f'FlexNeuron: step_mode must be "m" or "s", it is {step_mode!r}')
        if initial_states is None:
            initial_states = getattr(core, "initial_states", (0.0,) * num_states)
        if len(initial_states) != num_states:
            text = f"{len(initial_states)} initial states for {num_states}"
            raise ValueError(f"FlexNeuron: {text}")
        self.core, self.step_mode, self.store_states = core, step_mode, store_states
        self.num_inputs, self.num_states, self.num_outputs = num_inputs, num_states, num_outputs
        self.initial_states = tuple(initial_states)
        self.output_templates, self.keep_states = output_templates, keep_states
        self.states: tuple[Tensor, ...] | None = None
        self.state_sequences: tuple[Tensor, ...] | None = None

    def forward(self, *inputs: Tensor) -> Any:
        if len(inputs) != self.num_inputs:
            raise ValueError(f"FlexNeuron: {len(inputs)} inputs for {self.num_inputs}")
        states = self.states
        if states is None:
            states = started(inputs[0], self.step_mode == "m", self.initial_states)
        counts = (self.num_inputs, self.num_states, self.num_outputs)
        if self.step_mode == "m":
            templates = self.output_templates
            outputs, sequences, states = flex_steps(
                "FlexNeuron", self.core, counts, (*inputs, *states), self.store_states, templates
            )
            if self.store_states:
                self.state_sequences = sequences
        else:
            out = self.core(*inputs, *states)
            found = results("FlexNeuron", out, self.num_outputs, self.num_states)
            outputs, states = found[: self.num_outputs], found[self.num_outputs :]
        if self.keep_states:
            self.states = states
        return outputs[0] if len(outputs) == 1 else outputs

    def reset(self) -> None:
        """Forget the states: the next call starts from the initial ones."""
        self.states = self.state_sequences = None

    def extra_repr(self) -> str:
        counts = f"{self.num_inputs} inputs, {self.num_states} states, {self.num_outputs} outputs"
        return f"{counts}, step_mode={self.step_mode!r}"


def started(x: Tensor, multi: bool, values: Sequence[float]) -> tuple[Tensor, ...]:
    """The states before the first step of `x`."""
    shape = x.shape[1:] if multi else x.shape
    return tuple([paddle.full(shape, q, x.dtype) for q in values])


def reset(layer: paddle.nn.Layer) -> None:
    """Forget the states of every `FlexNeuron` in a Layer."""
    for q in layer.sublayers(include_self=True):
        if isinstance(q, FlexNeuron):
            q.reset()


REWRITTEN.update({f: f for f in (FlexNeuron.forward, FlexNeuron.reset, started, reset)})
