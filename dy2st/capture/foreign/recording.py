"""Recording a foreign op: its call with literal arguments, the probed results, the gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dy2st.capture.detached_writes import write
from dy2st.capture.foreign import gradient
from dy2st.capture.foreign.arguments import ArgumentTemplate
from dy2st.capture.foreign.probe import RANDOM, Probe, ProbeInconclusive
from dy2st.capture.foreign.refusals import another_type, refusal
from dy2st.trace.emitter import Emitter, detached, grad_enabled
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.signals import NeedsConcrete, Refused, raise_defect
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace
from ir import Type
from ir.types import BF16

#: ops with results of floats that never require a gradient
NO_GRADIENT = frozenset(
    "bernoulli standard_gamma dirichlet nextafter uniform_inplace_ gaussian_inplace_ exponential_ "
    "random_".split()
)


@dataclass(frozen=True)
class ProbeResult:
    """The result of probing a call with stand-ins.

    types: of its new results. structure: how the call returns them. written: the operands that are
    overwritten, and by how much their versions move. flags: which results, and then which of
    those operands, require a gradient. trained: the operands that get one.
    """

    types: Sequence[Type]
    structure: object
    written: Mapping[int, int]
    flags: Sequence[bool]
    trained: Sequence[int]


# ---------------------------------------------------------------- recording
def record(
    trace: Trace,
    name: str,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    cause: Exception | None,
) -> object:
    """Emit a foreign op for this call, or refuse it by name."""
    template, literal = template_of(trace, name, args, kwargs)
    refuse_types(trace, name, [q._value.type for q in template.operands])
    probe = probe_of(trace, name, template, literal)
    try:
        with trace.pause():
            types, structure, written = probe.measure()
            flags, trained = probe.flags(template.operands, list(written))
    except NeedsConcrete:
        raise
    except Refused:
        numbers: list[Any] = [q for q in (*args, *kwargs.values()) if is_symint(q)]
        if loops := frozenset[object]().union(*(q.loops for q in numbers)):
            what = "has a result of which the index gives the size"
            raise NeedsConcrete(what, loops, subject=name) from None
        raise
    except Exception as e:
        raise_defect(e)
        told = _informative(e)
        raise refusal(trace, name, e if cause is None or told else cause, eager=told) from e
    refuse_types(trace, name, types)
    probed = ProbeResult(types, structure, written, flags, trained)
    return _emit(trace, name, literal, template.operands, probed)


def template_of(
    trace: Trace, name: str, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[ArgumentTemplate, object]:
    template = ArgumentTemplate(trace, name)
    values = tuple(template.of(a) for a in args)
    return template, (values, tuple((k, template.of(v)) for k, v in kwargs.items()))


def probe_of(trace: Trace, name: str, template: ArgumentTemplate, literal: object) -> Probe:
    known = [trace.known(q._value) for q in template.operands]
    return Probe(trace, name, literal, [q._value.type for q in template.operands], known)


def refuse_as_eager(
    trace: Trace, name: str, args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    """Refuse a call that eager Paddle refuses, too, on stand-ins for its operands."""
    template, literal = template_of(trace, name, args, kwargs)
    try:
        with trace.pause():
            probe_of(trace, name, template, literal).measure()
    except (NeedsConcrete, Refused, ProbeInconclusive):
        return
    except Exception as e:
        raise_defect(e)
        raise refusal(trace, name, e, eager=True) from e


def refuse_types(trace: Trace, name: str, types: Sequence[Type]) -> None:
    """Refuse element types that programs do not have, or foreign calls do not take."""
    for t in types:
        if t.dtype == BF16 or t.dtype.kind == "c":
            raise another_type(trace, name, t.dtype.numpy.name if t.dtype != BF16 else "bfloat16")


def requires_gradient(name: str, arguments: Sequence[object]) -> bool:
    """Whether a result of a call with these arguments may require a gradient."""
    trained = any(isinstance(q, Tensor) and not q.stop_gradient for q in arguments)
    return trained and grad_enabled() and name not in NO_GRADIENT


def _informative(e: Exception) -> bool:
    return bool(str(e).strip()) and not isinstance(e, ProbeInconclusive)


def _emit(
    trace: Trace,
    name: str,
    literal: object,
    operands: Sequence[Tensor],
    probed: ProbeResult,
) -> object:
    types, written = probed.types, probed.written
    floats = {id(q) for q in operands if not q.stop_gradient}
    stop = not requires_gradient(name, operands)
    cut = (stop or name not in RANDOM) and name != "print"
    values = [detached(trace, q._value) if cut and id(q) in floats else q._value for q in operands]
    for k in written:
        trace.check_writable(trace.root(trace.read_value(operands[k]._value)))
    all_types = (*types, *(values[k].type for k in written))
    attrs = {"call": name, "args": literal, "types": all_types, "writes": tuple(written)}
    results = trace.emit("foreign", values, attrs)
    results = results if isinstance(results, tuple) else (results,)
    trace.frame.notes.append(("foreign", trace.where(), name))
    open_ = not cut and not stop
    fakes = [trace.fake(r, not open_ or r.type.dtype.kind != "f") for r in results]
    if not stop and not open_:
        flags, trained = probed.flags, probed.trained
        fakes = gradient.attach(
            trace, name, literal, operands, fakes, flags, trained, list(written)
        )
    for (k, moves), new in zip(written.items(), fakes[len(types) :]):
        write(Emitter(trace), operands[k], new, moves=moves)
    return _restructure(probed.structure, iter(fakes[: len(types)]), operands)


def _restructure(structure: object, fakes: Any, operands: Sequence[Tensor]) -> object:
    if isinstance(structure, (list, tuple)):
        return type(structure)(_restructure(q, fakes, operands) for q in structure)
    if isinstance(structure, int):
        return operands[structure]
    return next(fakes) if structure == "new" else None


__all__ = ["record", "refuse_as_eager"]
