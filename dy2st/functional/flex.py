"""`flex_scan`: a scan with flat arguments, as in libraries of spiking networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import paddle

from dy2st.functional import structure
from dy2st.functional.arguments import call, check_function, number
from dy2st.functional.errors import fault
from dy2st.functional.loops import key_of
from dy2st.functional.scanning import ScanOptions, run
from dy2st.library.builtins import SUBSTITUTES


def flex_scan(
    core: Callable[..., object],
    num_inputs: int,
    num_states: int,
    num_outputs: int,
    *tensors: object,
    final_state_only: bool = False,
    output_templates: object = None,
) -> tuple[object, ...]:
    """A loop over time of `core(*inputs, *states) -> (*outputs, *states)`, all of them tensors.

    In eager code a Python loop, in translated code one `scan` of the program. Gradients go to the
    sequences, the states, and to whatever else the core uses.

    Args:
        core: a function or Layer. What it returns behind its outputs and states is not used.
        num_inputs: the number of sequences, at least 1.
        num_states: the number of states.
        num_outputs: the number of outputs.
        tensors: the sequences [T, ...], then the states before the first step; further tensors are
            given to each call of the core, behind its states.
        final_state_only: return the states after the last step, not those after each step.
        output_templates: `(shape, dtype)` or `(shape, dtype, device)` for each output of one step.
            Without them, the outputs of no steps have the types that the core gives when it is
            translated; it does not run.

    Returns:
        A tuple: the outputs [T, ...], then the states [T, ...] after each step, or those after the
        last.

    Raises:
        TypeError: a number that is no int, an argument or a result that is not a tensor, a core
        that
            cannot be called with its arguments, or a state that changes its type.
        ValueError: no sequence, too few tensors, sequences of different lengths, too few results,
            or templates that are not those of the outputs.

    Example:
        >>> def core(x, v):
        ...     v = 0.5 * v + x
        ...     spike = (v > 1).astype("float32")
        ...     return spike, v * (1 - spike)
        >>> spikes, v = dy2st.flex_scan(core, 1, 1, 1, paddle.ones([3]), paddle.zeros([]))
        >>> spikes.tolist()
        [0.0, 1.0, 0.0]
    """
    counts = num_inputs, num_states, num_outputs
    ys, sequences, last = flex_steps(
        "flex_scan", core, counts, tensors, not final_state_only, output_templates
    )
    return (*ys, *last) if final_state_only else (*ys, *sequences)


def flex_steps(
    api: str,
    core: object,
    counts: tuple[int, int, int],
    tensors: Sequence[Any],
    store_states: bool,
    output_templates: object,
) -> tuple[tuple[object, ...], tuple[object, ...], tuple[object, ...]]:
    """The outputs, the states after each step if `store_states` says so, and the last states."""
    inputs, states, outputs = checked_counts(api, counts)
    if len(tensors) < inputs + states:
        text = f"{inputs} sequence{'s' * (inputs != 1)} and {states} state{'s' * (states != 1)}"
        given = "1 tensor is" if len(tensors) == 1 else f"{len(tensors)} tensors are"
        raise fault(ValueError, f"{api}: {text} are needed, {given} given")
    check_function(core, len(tensors), f"{api}: core")
    for k, x in enumerate(tensors):
        if not isinstance(x, paddle.Tensor):
            text = f"{api}: tensor {k} is {structure.described(x)}, not a tensor"
            raise fault(TypeError, text)
    templates = checked_templates(api, output_templates, outputs)
    init, more = tuple(tensors[inputs : inputs + states]), tensors[inputs + states :]
    if templates is not None and store_states:
        templates += tuple((list(s.shape), s.dtype) for s in init)

    def body(carry: tuple[object, ...], x: tuple[object, ...]) -> Any:
        found = results(api, call(core, *x, *carry, *more), outputs, states)
        return found[outputs:], found if store_states else found[:outputs]

    options = ScanOptions(api, output_templates=templates, key=key_of(core))
    options.init, options.xs = "states", "sequences"
    last, ys = run(body, init, tuple(tensors[:inputs]), None, 0, options)
    return ys[:outputs], ys[outputs:], last


def checked_counts(api: str, counts: tuple[object, ...]) -> tuple[int, ...]:
    names = ("num_inputs", "num_states", "num_outputs")
    found = tuple([number(n, f"{api}: {name}", 0) for n, name in zip(counts, names)])
    if found[0] == 0:
        raise fault(ValueError, f"{api}: num_inputs must be 1 or more: sequences give the steps")
    return found


def results(api: str, out: object, outputs: int, states: int) -> tuple[object, ...]:
    """Return the outputs and states that a core has returned, checked."""
    found = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    if len(found) < outputs + states:
        text = f"the core returns {len(found)} value{'s' * (len(found) != 1)}"
        raise fault(
            ValueError,
            f"{api}: {text}, not {outputs} output{'s' * (outputs != 1)} and {states} "
            f"state{'s' * (states != 1)}",
        )
    return found[: outputs + states]


def checked_templates(api: str, templates: object, outputs: int) -> tuple[object, ...] | None:
    if templates is None:
        return None
    if not isinstance(templates, (tuple, list)):
        text = f"output_templates must be a list, it is {structure.described(templates)}"
        raise fault(TypeError, f"{api}: {text}")
    if len(templates) != outputs:
        many = f"{len(templates)} template{'s' * (len(templates) != 1)}"
        text = f"output_templates has {many} for {outputs} output{'s' * (outputs != 1)}"
        raise fault(ValueError, f"{api}: {text}")
    return tuple(templates)


for _function in (flex_scan, flex_steps, results):
    SUBSTITUTES[id(_function)] = _function

__all__ = ["flex_scan", "flex_steps", "results"]
