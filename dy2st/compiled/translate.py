"""Translation: from a function and one call's arguments to a compiled program."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from dy2st.branches import predicates
from dy2st.branches.cond import choose
from dy2st.branches.error_exits import final_paths
from dy2st.capture import intercept
from dy2st.capture.detached_writes import warn_of_ignored
from dy2st.capture.foreign.iterators import takes_items
from dy2st.capture.foreign.refusals import no_element_type
from dy2st.compiled import autograd_engine, host_inputs
from dy2st.compiled.arguments import (
    add_argument,
    argument_names,
    array_argument,
    array_tensor,
    check_arrays,
    check_kind,
    constant_array,
    is_computable,
    number_tensor,
)
from dy2st.compiled.entry import Entry, Translation
from dy2st.compiled.error_exits import ErrorPath, RetraceInputs, ending, noted
from dy2st.compiled.errors import in_words, stopped, too_late, unset, unstable
from dy2st.compiled.foreign_kernels import CPU, Device
from dy2st.compiled.garbage_collection import collector_waits
from dy2st.compiled.report import copies_of, finished_chains, make_report
from dy2st.compiled.training import Checkpoint, TrainingPrograms, check_mode, prepare
from dy2st.library.introspection import note_decimals
from dy2st.results.donation import given_up
from dy2st.results.leaves import OutputPlan
from dy2st.results.planner import ResultPlanner
from dy2st.runtime import calls
from dy2st.runtime.special_methods import converted_methods
from dy2st.state import shared_inputs
from dy2st.state.container_writes import final_stores, lines_of_stores, stand_in_for
from dy2st.state.dynamic_numbers import (
    DynamicNumbers,
    hold_elements,
    hold_tuples,
    leaves_of,
)  # fmt: skip
from dy2st.state.guards import Guards
from dy2st.state.signature import Signature, grad_enabled
from dy2st.trace.fake_tensor import NoElementType, Tensor, make_fake
from dy2st.trace.signals import (
    Captured,
    InternalError,
    NeedsConcrete,
    Refused,
    Retrace,
    RetraceForAlias,
    RetraceForRead,
    RetraceForSharing,
    RetraceUnrolled,
)
from dy2st.trace.trace import Trace, TracedInput, TracedLoop, active
from dy2st.trace.trace_state import Hooks
from dy2st.trace.user_stack import definition, is_internal, raised_at, user_loc
from ir import Input, Loc, Program, Scan, SourceError, Value
from ir.analysis.alias import AliasError
from ir.analysis.history import History
from ir.pairs import is_complex, lay_out
from ir.passes import functionalize, undistinguished
from ir.passes import run as run_passes
from ir.uses import walk

#: how often a program is traced again for what a trace has found
MOST_RETRACES = 2


@dataclasses.dataclass
class TranslationRequest:
    """The function and call to translate, with the facts that earlier traces have found: inputs
    that are `shared` or not contiguous, loops that may not be rolled, and why it was traced
    `again`. `arrays`: tensors on the memory of arguments that are NumPy arrays, which are
    `constants` if the function needs their elements. `kept`: the containers of the arguments, by
    `id`, if it finds one of them elsewhere, too; `read`: those from outside that it appends to and
    reads. `path`: the conditions that lead to the error in which the program ends. `captured_only`:
    it ends with `Captured`."""

    function: Callable[..., object]
    signature: Signature
    spec: Sequence[object] | None
    dynamic: DynamicNumbers | None
    checkpoint: Checkpoint
    donate: Sequence[str]
    device: Device = CPU
    shared: list[TracedInput] = dataclasses.field(default_factory=list)
    unrolled: dict[object, str] = dataclasses.field(default_factory=dict)
    over_layers: set[object] = dataclasses.field(default_factory=set)
    again: list[str] = dataclasses.field(default_factory=list)
    arrays: dict[int, Tensor] = dataclasses.field(default_factory=dict)
    constants: bool = False
    kept: frozenset[int] = frozenset()
    read: set[int] = dataclasses.field(default_factory=set)
    path: ErrorPath | None = None
    captured_only: bool = False

    def learn(
        self, stop: RetraceForSharing | RetraceUnrolled | RetraceForRead | RetraceForAlias
    ) -> None:
        """Record the fact that ended a trace, for the next; SourceError after too many."""
        if isinstance(stop, RetraceForSharing):
            why = self.declare(stop)
        elif isinstance(stop, RetraceUnrolled):
            assert not stop.calls <= self.unrolled.keys(), "an unrolled loop has taken copies"
            self.unrolled.update(dict.fromkeys(stop.calls, stop.reason))
            self.over_layers |= stop.over_layers
            why = f"a loop is unrolled: {stop.reason}"
        elif isinstance(stop, RetraceForRead):
            self.read.add(id(stop.container))
            why = f"a {type(stop.container).__name__} that is appended to is also read"
        else:
            self.kept = frozenset(map(id, self.signature.leaves.containers()))
            kind = type(stop.container).__name__
            why = f"a {kind} among the arguments is reached in another way, too"
        if len(self.again) - self.constants == MOST_RETRACES:
            raise too_late(MOST_RETRACES + 1, [*self.again, why])
        self.again.append(why)

    def declare(self, stop: RetraceForSharing) -> str:
        """The next trace declares more inputs: some that the last one did not come to."""
        known = {id(q.tensor) for q in self.shared}
        wanted = shared_inputs.wanted(stop)
        new = [q for q in wanted if id(q.tensor) not in known and not q.memory]
        assert new, "inputs that have been declared share memory in another way"
        arrays = {id(t) for t in self.arrays.values()}
        if any(id(q.tensor) in arrays for q in wanted):
            raise SourceError(
                "an array that shares memory with another argument is written in place.",
                reason="Only tensors that share memory are followed.",
                remedy="Pass a copy: `a.copy()`.",
            )
        self.shared += new
        return shared_inputs.described(new)


def translate(
    function: Callable[..., object],
    signature: Signature,
    spec: Sequence[object] | None,
    dynamic: DynamicNumbers | None = None,
    checkpoint: Checkpoint = "none",
    donate: Sequence[str] = (),
    device: Device = CPU,
    path: ErrorPath | None = None,
    unrolled: Mapping[object, str] | None = None,
) -> Entry:
    """Trace, optimise and compile; raises SourceError and leaves nothing changed.

    `dynamic`: the Python numbers that are inputs. `checkpoint`: how often loops keep their state
    for the backward program. `donate`: parameters whose memory a call may use. `device`: where the
    programs run. `path`: the conditions that lead to the error in which the program ends;
    `unrolled`: loops not to roll.
    """
    given = TranslationRequest(
        function, signature, spec, dynamic, checkpoint, donate, device, path=path
    )
    given.unrolled.update(unrolled or {})
    try:
        return _declared(given)
    except Exception as error:
        if not given.arrays or is_internal(error):
            raise
        given.constants = True
        given.arrays.clear()
        given.again.append("arrays among the arguments are constants: their elements are needed")
        try:
            return _declared(given)
        except Exception as other:
            if is_internal(other):
                raise
        raise


def capture(
    function: Callable[..., object], signature: Signature, spec: Sequence[object]
) -> tuple[Program, OutputPlan, list[TracedInput], Any, dict[object, Loc]]:
    """The program as it was recorded, the plan of its outputs, its inputs, what the trace knows of
    sizes, and the lines of stores by the key of their place; it is not compiled, and nothing is
    changed. Raises SourceError."""
    given = TranslationRequest(function, signature, spec, None, "none", (), captured_only=True)
    try:
        _declared(given)
    except Captured as found:
        return found.found  # type: ignore[return-value]
    raise AssertionError("a translation has gone on")


def _declared(given: TranslationRequest) -> Entry:
    """Traced until nothing new is found."""
    while True:
        try:
            return _traced(given)
        except (RetraceForSharing, RetraceUnrolled, RetraceForRead, RetraceForAlias) as stop:
            given.learn(stop)
        except Exception as error:
            if is_internal(error) and hasattr(error, "add_note"):
                error.add_note("This is a defect of dy2st, not of the translated function.")
            raise


def _traced(given: TranslationRequest) -> Entry:
    """One trace, with what earlier ones have found."""
    function = given.function
    hooks = Hooks(
        make_fake, lambda value, kind: number_tensor(value), calls.fn, calls.call_layer, choose,
        predicates.known_number,
    )  # fmt: skip
    trace = Trace(user_names(function), user_loc, hooks)
    if given.dynamic is not None:
        trace.dynamic = given.dynamic.places | {("leaf", k) for k in given.dynamic.leaves}
        trace.inputs.guarded, trace.inputs.needed = given.dynamic.guarded, given.dynamic.needed
    facts = trace.loop_facts
    facts.unrolled, facts.over_layers = given.unrolled, given.over_layers
    trace.endings.ahead = None if given.path is None else list(given.path)
    trace.guards = guards_of(trace)
    trace.guards.read = given.read
    autograd_engine.install()
    try:
        with collector_waits():
            with intercept.installed(), active(trace):
                entry, leaked = _undone(trace, given)
            check_holds(trace.guards, given, entry, leaked)
        return entry
    except Refused as stop:
        stop.error.loc = stop.error.loc or definition(given.function)
        raise stop.error.with_traceback(stop.__traceback__) from stop.error.__cause__
    except InternalError as stop:
        raise stop.error from stop.error.__cause__
    except NeedsConcrete as stop:
        for loop in stop.loops:
            trace.unroll(loop if isinstance(loop, TracedLoop) else None, stop.reason)
        raise stopped(stop).with_traceback(stop.__traceback__) from None
    except UnboundLocalError as e:
        raise (unset(trace, e) or e).with_traceback(e.__traceback__) from None
    except NoElementType as e:
        raise no_element_type("this makes", str(e), raised_at(e)) from None
    except Retrace:
        raise AssertionError("a loop learned outside of its trace") from None


def guards_of(trace: Trace) -> Guards:
    """Guards for what `trace` reads: they are kept with the program, and do not keep the trace."""
    guards, of = Guards(Tensor), weakref.ref(trace)

    def alive() -> Trace:
        trace = of()
        assert trace is not None
        return trace

    guards.terms.around = lambda: next((f for f in alive().frames if f.loop is not None), None)
    guards.hold = lambda obj: hold_elements(alive(), obj)
    guards.hold_tuples = lambda obj: hold_tuples(alive(), obj)
    guards.moving = trace.dynamic
    return guards


def _undone(trace: Trace, given: TranslationRequest) -> tuple[Entry, list[str]]:
    """One trace, after which the user's objects are as they were; what code that is not converted
    had stored in them."""
    guards, done = trace.guards, False
    assert guards is not None
    try:
        with converted_methods(trace):
            captured = _captured(trace, given)
        if given.captured_only:
            facts = trace.sizes, lines_of_stores(trace)
            raise Captured(*captured, trace.inputs.by_id.values(), *facts)
        entry = _compiled(trace, given, *captured)
        done = True
    except RetraceForSharing as stop:
        with trace.pause():
            shared_inputs.lift_found(trace, stop)
        raise
    finally:
        with trace.pause():
            trace.undo_log.undo_to(0)
            leaked = guards.put_back(whole=not done)
    return entry, leaked


def check_holds(guards: Guards, given: TranslationRequest, entry: Entry, leaked: list[str]) -> None:
    """Refuse a translation that its own call would not use, and one without all stores."""
    leaves = given.signature.leaves
    holds = given.spec is not None or entry.accepts(leaves)
    leaked = leaked if holds else [*leaked, *guards.put_back(whole=True)]
    if leaked:
        raise Refused(
            f"{leaked[0]} was stored by code that is not translated.",
            reason="A cached call could not repeat this.",
            remedy="Store it in the translated function itself.",
        )
    if not holds:
        entry.checks.raise_defect(leaves)
        found = entry.checks.changes(leaves)
        raise Refused(unstable(given.function, found[0].name if found else "state"))


def _captured(trace: Trace, given: TranslationRequest) -> tuple[Program, OutputPlan]:
    """Run the function on stand-ins: the program as it was recorded."""
    function, signature = given.function, given.signature
    with trace.pause():
        shared_inputs.declare(trace, given.shared)
    leaves = fake_arguments(trace, given)
    chosen = {key[1] for key in trace.dynamic if key[0] == "leaf"}
    leaves_of(trace, leaves, argument_names(function, signature), chosen)
    containers: list[object] = []
    assert trace.guards is not None
    trace.guards.declare(signature.leaves, given.kept)
    args, kwargs = signature.rebuild(leaves, containers, functools.partial(stand_in_for, trace))
    trace.inputs.containers = {id(q): q for q in containers}
    owner = getattr(function, "__self__", None)
    for x in (owner, *leaves, *containers):
        trace.guards.on_object(x)
    trace.guards.named.update({id(owner): "self"} if owner is not None else {})
    if isinstance(owner, paddle.nn.Layer):
        trace.guards.layer(owner)
    mode = grad_enabled()
    call = functools.partial(calls.fn(function), *args, **kwargs)
    out = noted(trace, call) if given.path is None else ending(trace, call)
    check_mode(mode)
    results = ResultPlanner(trace, out, list(final_stores(trace)))
    plan = results.plan()
    program = results.with_selectors(build_program(trace, function, plan.values))
    return program, with_pairs(trace, program, plan)


def with_pairs(trace: Trace, program: Program, plan: OutputPlan) -> OutputPlan:
    """From here on the program has pairs of floats for complex numbers; what it takes and gives
    says where they are."""
    for q in trace.inputs.by_id.values():
        q.pairs = is_complex(q.value)
    found = frozenset(k for k, v in enumerate(program.results) if is_complex(v))
    lay_out(program)
    return dataclasses.replace(plan, complex=found)


def _compiled(trace: Trace, given: TranslationRequest, program: Program, plan: OutputPlan) -> Entry:
    signature = given.signature
    with trace.pause():
        writes = any(i.value in trace.values.written for i in program.inputs)
        paths = final_paths(trace, program, changes=bool(plan.stores) or writes)
        items = takes_items(program.ops)
        program, calls = host_inputs.lifted(trace, program)
        traced = list(trace.inputs.by_id.values())
        early = host_inputs.read_early(program, traced)
        own = [q for q in traced if q.share is None]
        history = History(program)
        displayed, displayed_bound = prune_inputs(functional(program, history), own)
        if sharing := shared_inputs.found(displayed, displayed_bound, own):
            raise RetraceForSharing(sharing, traced, asked=False)
        shared_inputs.check_attached(trace, traced)
        warn_of_ignored(program, trace.autograd, plan.trained)
        links = history.chains()
        quiet = {program.inputs[q.index].value for q in links if q.quiet}
        loud = {program.inputs[q.index].value for q in links if q.loud}
        training = prepare(
            trace, plan, displayed, displayed_bound, given.checkpoint, quiet, given.device
        )
        donated: list[int] = []
        if isinstance(training, TrainingPrograms):
            optimised, bound = training.forward, displayed_bound
        else:
            displayed, displayed_bound = prune_inputs(undistinguished(displayed), displayed_bound)
            expanded = run_passes(displayed, start_at="expand")
            optimised, bound = prune_inputs(expanded, displayed_bound)
            donated = given_up(given.donate, plan, traced, optimised, bound)
        check_arrays(bound, optimised, isinstance(training, TrainingPrograms), signature.leaves)
        executable = given.device.compiled(optimised, donated)
    early &= host_inputs.read_early(executable.program, bound)
    note_decimals(trace.guards, signature.leaves)
    ends = finished_chains(program, links, traced, plan, training, copies_of(executable))
    policy = training.gradient.report if isinstance(training, TrainingPrograms) else ()
    made = Translation(
        displayed, executable, bound, displayed_bound, traced, plan, trace.guards,
        make_report(
            trace.frames[0].notes, ends, policy, given.again, program=displayed,
            schedule=executable.report,
        ), training, frozenset(loud), calls, trace.endings.errors,
        RetraceInputs(
            given.spec, given.dynamic and given.dynamic.copy(), dict(given.unrolled), paths, items
        ), early, given.device,
        predicates.note(trace.guards, trace.frame.predicates.values(), signature.leaves),
    )  # fmt: skip
    return Entry(made, given.signature)


def functional(program: Program, history: History) -> Program:
    """Up to `expand`; a write that cannot be followed is refused at the user's line."""
    try:
        return run_passes(functionalize(program, history), stop_before="expand")
    except AliasError as e:
        raise Refused(
            f"a write that cannot be followed: {in_words(e)}.",
            e.loc,
            remedy="Write to a copy (`x.clone()`), or give sizes as numbers in input_spec.",
        ) from None


def user_names(function: Callable[..., object]) -> dict[int, tuple[str, str]]:
    """The names of parameters and buffers, by the identity of the tensor."""
    owner = getattr(function, "__self__", None)
    if not isinstance(owner, paddle.nn.Layer):
        return {}
    names = {id(p): ("param", n) for n, p in owner.named_parameters()}
    names.update((id(b), ("buffer", n)) for n, b in owner.named_buffers())
    return names


# ---------------------------------------------------------------- arguments
def fake_arguments(trace: Trace, given: TranslationRequest) -> list[object]:
    """The leaves with fakes for tensors and arrays; dims that the spec leaves open get names."""
    signature = given.signature
    names = argument_names(given.function, signature)
    specs = list(given.spec) if given.spec is not None else []
    out: list[object] = []
    seen = 0
    for leaf, name in zip(signature.leaves, names):
        if trace.guards is not None:
            trace.guards.named[id(leaf)] = name
        if isinstance(leaf, np.ndarray):
            out.append(fake_array(trace, given, leaf, len(out), name))
            continue
        if not isinstance(leaf, Tensor):
            if trace.guards is not None and hasattr(type(leaf), "__next__"):
                trace.guards.ref(leaf)
            out.append(leaf)
            continue
        one = specs[seen] if seen < len(specs) else None
        seen += 1
        if trace.guards is not None:
            trace.guards.found.setdefault(id(leaf), f"_L[{len(out)}]")
        known = trace.inputs.by_id.get(id(leaf))
        out.append(known.fake if known else add_argument(trace, leaf, name, one))
    return out


def fake_array(
    trace: Trace, given: TranslationRequest, leaf: np.ndarray, at: int, name: str
) -> object:
    """The stand-in for an array, or a copy of it if the program belongs to its elements."""
    check_kind(leaf, name)
    if given.constants or not is_computable(leaf):
        return constant_array(trace, leaf, at, name)
    first = next(k for k, q in enumerate(given.signature.leaves) if q is leaf)
    with trace.pause():
        tensor = given.arrays.setdefault(first, array_tensor(leaf))
    known = trace.inputs.by_id.get(id(tensor))
    fake = known.fake if known else add_argument(trace, tensor, name, None)
    return array_argument(trace, fake, first)


# ---------------------------------------------------------------- the program
def build_program(
    trace: Trace, function: Callable[..., object], outputs: Sequence[Value]
) -> Program:
    own = [q for q in trace.inputs.by_id.values() if q.share is None]
    inputs = tuple(Input(q.value, q.kind, q.name) for q in own)
    name = getattr(function, "__name__", "program")
    name = name if name.isidentifier() else "program"
    frame = trace.frames[0]
    ops, requires = tuple(frame.builder.ops), tuple(frame.requires.values())
    trips = {str(n.trip) for n in walk(ops) if isinstance(n, Scan)}
    capacities = tuple(n for n in trace.sizes.capacities if n in trips)
    left = set(trace.sizes.capacities).difference(
        capacities
    )  # of loops that have got a bound since
    ops = tuple(n for n in ops if all(left.isdisjoint(v.type.names) for v in n.results))
    return Program(name, inputs, ops, tuple(outputs), (), requires, capacities)


def prune_inputs(
    program: Program, traced: Sequence[TracedInput]
) -> tuple[Program, list[TracedInput]]:
    """The program without unused inputs, and the tensors that the remaining inputs are bound to.

    An argument stays if its shape gives a named size, or if its strides are asked for.
    """
    used = {v for op in program.ops for v in op.operands} | set(program.outputs)
    used |= {v for pair in program.writes for v in pair}
    keep = [
        bool(i.value in used or i.value.type.names or q.fixed)
        for i, q in zip(program.inputs, traced)
    ]
    inputs = tuple(i for i, k in zip(program.inputs, keep) if k)
    bound = [q for q, k in zip(traced, keep) if k]
    return dataclasses.replace(program, inputs=inputs), bound
