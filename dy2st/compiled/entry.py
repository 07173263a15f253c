"""One cache entry: the call of a compiled program with Paddle's tensors.

The call is itself compiled: a generated Python function checks the guards, looks the inputs up,
binds sizes, collects addresses, allocates outputs, and makes one native call. It answers `MISS`
when the program is not right for these arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import paddle

from dy2st.branches.predicates import Asked, nothing_asked
from dy2st.compiled import arguments
from dy2st.compiled.autograd import recorded
from dy2st.compiled.error_exits import ErrorPath, RetraceInputs, UnrolledError, rewinding
from dy2st.compiled.errors import UsersErrors
from dy2st.compiled.foreign_kernels import (
    CPU,
    HOST,
    Device,
    addresses_text,
    allocator,
    code_of,
    has_gpus,
    require_host,
    run_on,
    shape_text,
    tuple_text,
)
from dy2st.compiled.host_inputs import HoistedCalls, StateWatch
from dy2st.compiled.recompilation import GuardChecks
from dy2st.compiled.report import Report
from dy2st.compiled.training import TrainingPrograms, without_gradient
from dy2st.results.leaves import CallValues, OutputPlan
from dy2st.results.rebuild import display, give_back
from dy2st.state.guards import Guards
from dy2st.state.shared_inputs import lies, storage
from dy2st.state.signature import Signature, grad_enabled
from dy2st.trace.fake_tensor import DTYPE_TO_PADDLE, FakeTensor
from dy2st.trace.trace import TracedInput
from dy2st.trace.undo import AttributeLocation, Location, LookedUpLocation, lookup
from executor.capacity import GrowingExecutable
from executor.executable import output_bounds
from ir import Program, Size, Slot, Value
from ir.types import Type, complex_type, product

MISS: Any = object()


@dataclass(frozen=True)
class Translation:
    """The result of `translate`: `program` to look at, `executable` to run, `bound` to its inputs.

    `traced` are all tensors that the trace met; `displayed_bound` those of `program`'s inputs.
    `loud`: the trace's inputs with a write that moves the version counter. `calls`: the host calls
    in front of the program; their inputs are the last ones. `errors`: those of the user that data
    may raise; `again`: how a program is made that ends in one. `early`: tensors, by `id` of their
    `TracedInput`, that are read before all host calls only. `asked`: of the numbers of a call.
    """

    program: Program
    executable: Any
    bound: Sequence[TracedInput]
    displayed_bound: Sequence[TracedInput]
    traced: Sequence[TracedInput]
    plan: OutputPlan
    guards: Guards
    report: Report
    training: TrainingPrograms | str = ""
    loud: frozenset[Value] = frozenset()
    calls: HoistedCalls | None = None
    errors: UsersErrors = field(default_factory=dict)
    again: RetraceInputs | None = None
    early: Container[int] = ()
    device: Device = CPU
    asked: Asked = Asked((), (), nothing_asked)

    @property
    def written(self) -> set[Value]:
        return {target for target, _ in self.executable.program.writes}


class Entry:
    """One translation, ready to be called with arguments like those of `signature`.

    `alive` keeps objects that the cache's key knows by `id`; `used` is the time of the last call.
    `direct` takes the positional arguments of a call without a `Signature`. It answers MISS also if
    they have not the key under which the entry is, or if that is not seen at a glance.
    """

    direct: Callable[[tuple[object, ...]], object] = staticmethod(lambda args: MISS)

    def __init__(self, made: Translation, signature: Signature) -> None:
        self.program, self.executable = made.program, made.executable
        self.report, self.plan, self.errors = made.report, made.plan, made.errors
        self.traced, self.displayed_bound = list(made.traced), list(made.displayed_bound)
        self.arguments = {id(q): k for k, q in enumerate(signature.leaves)}
        self.args = [
            self.arguments.get(id(q.tensor)) if q.leaf is None else q.leaf for q in self.traced
        ]
        own = [
            a is None and q.memory is None and q.drawn is None
            for q, a in zip(self.traced, self.args)
        ]
        self.pinned = [q.tensor if o else None for q, o in zip(self.traced, own)]
        self.around = {
            k: (self._number(q.memory.of), q.memory.before, q.memory.n)
            for k, q in enumerate(self.traced)
            if q.memory is not None
        }
        self.alive = arguments.kept_alive(signature.leaves)
        bound = {id(q) for q in made.bound}
        self.compared = {a for a, q in zip(self.args, self.traced) if id(q) in bound}
        self.training, self.again, self.asked, self.used = made.training, made.again, made.asked, 0
        self.verified, self.trainable = set[Any](), bool(made.training) or not all(made.plan.flags)
        self.numbers, self.checks = made.guards.numbers, GuardChecks.of(made.guards)
        terms, written = made.guards.terms, made.written
        self.watch = StateWatch.of(self.checks, terms, self.input, self.traced, written, made.early)
        self.updates = self.watch is None and any(self.is_update(q) for q, _ in made.plan.stores)
        made.guards.single_out()
        self.ends: list[tuple[ErrorPath | UnrolledError, Entry]] = []
        call = rewinding(_CallWriter(self, made).compile(), self.again, MISS)
        self.call: Callable[..., Any] = arguments.passing(call, made.guards.records)
        made.guards.finish()
        for q, o in zip(self.traced, own):
            q.tensor = q.tensor if o else None
            q.memory = q.array = None

    def _number(self, q: TracedInput) -> int:
        """The lifted input with the same tensor."""
        return next(k for k, o in enumerate(self.traced) if o.tensor is q.tensor)

    def is_update(self, place: Location) -> bool:
        """Whether a call that stores there has read the number, or the elements of a container."""
        inputs = [q.number[0] for q in self.traced if q.number is not None]
        return place.key in (*inputs, *self.numbers) or place.key[0] == "contents"

    def learn(self, known: Entry) -> None:
        """Begin with what calls of another program of the same function have found out."""
        here, there = self.executable, known.executable
        if isinstance(here, GrowingExecutable) and isinstance(there, GrowingExecutable):
            here.begin_as(there)

    def accepts(self, leaves: Sequence[object]) -> bool:
        """Whether this program is right for a call with these leaves, now."""
        return self.call(leaves, _only_check=True) is True

    def input(self, k: int, leaves: Sequence[object]) -> object:
        """The tensor that lifted input k is in a call with these leaves."""
        if k in self.around:
            of, before, n = self.around[k]
            return storage(self.input(of, leaves), before, n)
        arg = self.args[k]
        if arg is not None:
            return leaves[arg]
        place = self.traced[k].place
        found = self.pinned[k] if place is None else arguments.looked_up(place, leaves)
        return self.pinned[k] if type(found) is FakeTensor else found

    def separate(
        self,
        addresses: tuple[int, ...],
        sizes: object,
        tensors: Sequence[object],
        odd: Sequence[object],
    ) -> bool:
        """Whether no written input shares memory with another input; `odd` are inputs that are not
        contiguous, of which `tensors` has copies."""
        program = self.executable.program
        given = {program.inputs[n].value for n in self.executable.donated}
        written = given.union(target for target, _ in program.writes)
        marks = [i.value in written for i in program.inputs]
        if arguments.overlap(marks, tensors, odd):
            return False
        if odd:
            return True
        if len(self.verified) > 256:
            self.verified.clear()
        self.verified.add((addresses, sizes))
        return True

    def finish(
        self, leaves: Sequence[object], outputs: list[object], tensors: Sequence[object], sizes: Any
    ) -> object:
        """The result of a call that is more than one new tensor."""
        if not isinstance(self.training, TrainingPrograms):
            outputs = without_gradient(outputs, self.plan.flags, tensors, self.training)
        names = dict(zip((*self.executable.program.sizes, *self.executable.counts), sizes))
        given = getattr(leaves, "containers", list)
        inputs = lambda k: self.input(k, leaves)  # noqa: E731
        return give_back(self.plan, CallValues(inputs, outputs, names, given))


class _CallWriter:
    """Writes the Python of one entry's call."""

    def __init__(self, entry: Entry, made: Translation) -> None:
        self.entry, self.made, self.program = entry, made, made.executable.program
        self.names: dict[str, Any] = dict(made.guards.names)
        self.names.update(
            _MISS=MISS,
            _ENTRY=entry,
            _RUN=made.executable.run,
            _RUN_ON=run_on,
            _where=HOST,
            _WHERE=made.device.where,
            _REQUIRE_HOST=require_host,
            _TENSOR=paddle.to_tensor,
            _NUMBER=arguments.number_tensor,
            _HOST=arguments.host_tensor,
            _fix=arguments.contiguous,
            _STAND_IN=FakeTensor,
            _STORAGE=storage,
            _LIES=lies,
            _RECORDED=recorded,
            _ARRAY=arguments.array_tensor if made.written else arguments.read_tensor,
            _TRAINING=made.training,
            _VERIFIED=entry.verified,
        )
        if isinstance(made.training, TrainingPrograms):
            self.names["_ARRAY"] = arguments.copied_tensor
        pairs = zip(self.program.inputs, made.bound)
        self.given = [(i, q) for i, q in pairs if q.drawn is None]
        self.written = made.written
        self.lines: list[str] = []
        self.counts: tuple[str, ...] = made.executable.counts
        self.bounds = output_bounds(self.program)
        self.training = made.training if isinstance(made.training, TrainingPrograms) else None
        of = self.training.of if self.training else ()
        self.trained = {k: n for n, k in enumerate(of)}

    def compile(self) -> Callable[..., object]:
        """The call; with `_only_check` it stops after the checks and returns True."""
        n = len(self.program.inputs)
        tensors = [f"_t{k}" for k in range(n)]
        given = tensors[: len(self.given)]
        self.checks(tensors)
        self.line("if _only_check: return True")
        self.on_host()
        for q in filter(lambda q: q.flagged, self.made.traced):
            self.line(f"{self.source(0, q)}.stop_gradient = False")
        self.contiguous()
        self.line(f"_a = ({addresses_text(given)})")
        sizes = f"({tuple_text(self.program.sizes)})"
        self.overlaps(given, sizes)
        self.host_calls(tensors[len(given) :])
        self.place()
        self.outputs()
        outputs = [f"_o{k}" for k in range(len(self.program.outputs))]
        unknown = {k for k, n in enumerate(self.bounds) if n is None}
        addresses = "".join(
            "None, " if k in unknown else f"{o}.data_ptr() or 0, " for k, o in enumerate(outputs)
        )
        run = "_RUN(" if self.made.device.on_host else "_RUN_ON(_RUN, _where, "
        self.line(f"{'_found = ' if self.counts else ''}{run}{sizes}, _a, ({addresses}))")
        self.found()
        self.versions()
        self.finish(tensors, outputs, f"({tuple_text((*self.program.sizes, *self.counts))})")
        return self.function()

    def function(self) -> Callable[..., object]:
        source = "def call(_L, _only_check=False):\n" + "\n".join(self.lines)
        exec(code_of(source), self.names)
        return self.names["call"]

    def line(self, text: str, depth: int = 1) -> None:
        self.lines.append("    " * depth + text)

    def checks(self, tensors: Sequence[str]) -> None:
        """Guards, lookups, types and sizes: everything that may answer MISS."""
        self.line("try:")
        self.line("pass", 2)
        looked_up = [*self.made.bound, *(q for q in self.made.traced if q.share is not None)]
        bound = {q.place.key for q in looked_up if q.place is not None}
        inputs = {id(q.tensor) for q in self.made.bound}
        for term in self.made.guards.expressions(bound, inputs):
            self.line(f"if not ({term}): return _MISS", 2)
        for k, (i, q) in enumerate(self.given):
            if q.number is not None:
                self.number(k, q)
                continue
            self.line(f"_t{k} = {self.source(k, q)}", 2)
            dtype = self.constant(DTYPE_TO_PADDLE[q.type.dtype])
            check = f"(q := _t{k}.dtype) is not {dtype} and q != {dtype}"
            self.line(f"if {check}: return _MISS", 2)
            if q.type.dtype.differentiable and grad_enabled():
                stops = bool(q.tensor.stop_gradient)
                self.line(f"if _t{k}.stop_gradient is not {stops}: return _MISS", 2)
            if q.leaf is not None and i.value in self.written:
                self.line(f"if not _L[{q.leaf}].flags.carray: return _MISS", 2)
            if q.offset is not None:
                self.line(f"if _t{k}.offset != {q.offset}: return _MISS", 2)
        self.sizes()
        self.members()
        for r in self.program.requires:
            self.line(f"if not ({r.left} {r.relation} {r.right}): return _MISS", 2)
        more = ", ArithmeticError, ValueError" if self.made.asked.keys else ""
        self.line(f"except (AttributeError, KeyError, IndexError, TypeError{more}): return _MISS")

    def host_calls(self, tensors: Sequence[str]) -> None:
        """Make the host calls: nothing may answer MISS from here on."""
        watch = self.entry.watch
        begin = None if watch is None else self.constant(watch.begin)
        if self.made.calls is not None:
            if begin:
                self.line(f"{begin}(_L, True)")
            self.calls_in_front(self.made.calls, tensors)
        if begin:
            self.line(f"{begin}(_L, False)")

    def calls_in_front(self, calls: HoistedCalls, tensors: Sequence[str]) -> None:
        sizes = "".join(f"{n!r}: {n}, " for n in self.program.sizes)
        self.line(f"_drawn = {self.constant(calls.make)}({{{sizes}}})")
        for t, q in zip(tensors, self.made.bound[len(self.given) :]):
            dtype = self.constant(DTYPE_TO_PADDLE[q.value.type.dtype])
            self.line(f"{t} = _HOST(_drawn[{q.drawn}], {dtype})")
        self.line(f"_a = (*_a, {addresses_text(tensors)})")

    def number(self, k: int, q: TracedInput) -> None:
        """A Python number of the same type, as a 0-d tensor."""
        assert q.number is not None
        (kind, at), of = q.number[0][:2], self.constant(q.number[1])
        found = f"_L[{at}]" if kind == "leaf" else self.source(k, q)
        self.line(f"_n = {found}", 2)
        self.line(f"if type(_n) is not {of}: return _MISS", 2)
        self.line(f"if not -{1 << 63} <= _n < {1 << 63} and type(_n) is int: return _MISS", 2)
        self.line(f"_t{k} = _NUMBER(_n)", 2)

    def versions(self) -> None:
        """A call moves the version counter of an input that it writes once; `recorded` moves
        those of inputs that it attaches."""
        attached = {i for i, _ in self.training.attached} if self.training else set()
        loud = {k for k, q in enumerate(self.made.bound) if q.value in self.made.loud}
        written = {k for k, i in enumerate(self.program.inputs) if i.value in self.written}
        for k in sorted((loud & written | set(self.made.executable.donated)) - attached):
            self.line(f"_t{k}._bump_inplace_version()")

    def members(self) -> None:
        """Check that inputs that are views of other inputs have the layout that was traced."""
        known = {id(q): k for k, q in enumerate(self.made.bound)}
        for q in self.made.traced:
            if q.share is None or id(q.share.base) not in known:
                continue
            base, t = f"_t{known[id(q.share.base)]}", q.tensor
            away = q.share.offset * t.element_size()
            self.line(f"_m = {self.source(0, q)}", 2)
            self.line(f"if _m.dtype != {self.constant(t.dtype)}: return _MISS", 2)
            lies = f"_LIES(_m, {base}, {list(t.shape)}, {list(q.share.strides)}, {away})"
            self.line(f"if not {lies}: return _MISS", 2)
            if grad_enabled():
                self.line(f"if _m.stop_gradient is not {bool(t.stop_gradient)}: return _MISS", 2)

    def source(self, k: int, q: TracedInput) -> str:
        if q.memory is not None:
            of = self.source(k, q.memory.of)
            return f"_STORAGE({of}, {q.memory.before}, {q.memory.n})"
        if q.leaf is not None:
            return f"_ARRAY(_L[{q.leaf}])"
        arg = self.entry.arguments.get(id(q.tensor))
        if arg is not None:
            return f"_L[{arg}]"
        if not isinstance(q.place, Location):
            return self.constant(q.tensor)
        if isinstance(q.place, LookedUpLocation):
            found = q.place.expression
        elif isinstance(q.place, AttributeLocation):
            found = lookup(q.place.obj, q.place.name, self.constant)
        else:
            found = f"{self.constant(q.place)}.get()"
        return found

    def sizes(self) -> None:
        """Bind named sizes where they stand alone, then check every dim."""
        seen: set[str] = set()
        checks = []
        for k, (_, q) in enumerate(self.given):
            shape = q.type.shape
            self.line(f"_s = _t{k}.shape", 2)
            if any(isinstance(d, Size) for d in shape):
                self.line(f"if len(_s) != {len(shape)}: return _MISS", 2)
                for axis, d in enumerate(shape):
                    if isinstance(d, Size) and d == Size.named(str(d)) and str(d) not in seen:
                        self.line(f"{d} = _s[{axis}]", 2)
                        seen.add(str(d))
                checks.append(f"if _t{k}.shape != {shape_text(shape)}: return _MISS")
            else:
                self.line(f"if _s != {shape_text(shape)}: return _MISS", 2)
        for text in checks:
            self.line(text, 2)

    def contiguous(self) -> None:
        """Inputs that are read may be copies; another program is for one that is written."""
        number = {id(q): k for k, q in enumerate(self.entry.traced)}
        if self.written or self.made.executable.donated:
            self.line("_odd = ()")
        for k, (i, q) in enumerate(self.given):
            pinned = self.constant(self.entry.pinned[number[id(q)]])
            self.line(f"if not _t{k}.is_contiguous():")
            stand_in = f"type(_t{k}) is not _STAND_IN"
            if i.value in self.written or q.fixed:
                self.line(f"if {stand_in}: return _MISS", 2)
            elif self.written:
                self.line(f"if {stand_in}: _odd = (*_odd, _t{k})", 2)
            self.line(f"_t{k} = _fix(_t{k}, {pinned})", 2)
        for k in sorted(self.entry.plan.replayed) if self.written else ():
            q = self.entry.traced[k]
            if q.share is None and q.memory is None and not any(q is o for o in self.made.bound):
                self.line(f"_x = {self.source(k, q)}")
                self.line("if not _x.is_contiguous() and type(_x) is not _STAND_IN:")
                self.line("_odd = (*_odd, _x)", 2)

    def overlaps(self, tensors: Sequence[str], sizes: str) -> None:
        """Written inputs must not share memory; addresses that were checked are remembered."""
        if self.written or self.made.executable.donated:
            call = f"_ENTRY.separate(_a, {sizes}, ({tuple_text(tensors)}), _odd)"
            self.line(f"if (_odd or (_a, {sizes}) not in _VERIFIED) and not {call}: return _MISS")

    def on_host(self) -> None:
        """Nothing on a GPU is given to code of the CPU."""
        if self.made.device.on_host and has_gpus():
            names = self.constant([q.name for _, q in self.given])
            tensors = tuple_text([f"_t{k}" for k in range(len(self.given))])
            self.line(f"_REQUIRE_HOST(({tensors}), {names})")

    def place(self) -> None:
        """Emit the placement of the call: with its tensors; numbers and arrays lie on the host
        anyway."""
        if not self.made.device.on_host:
            pairs = enumerate(self.given)
            tensors = [f"_t{k}" for k, (_, q) in pairs if q.number is None and q.leaf is None]
            self.line(f"_where = _WHERE(({tuple_text(tensors)}))")

    def outputs(self) -> None:
        """Memory for what comes back: as much as it can need, where a loop decides."""
        at = {i.value: k for k, i in enumerate(self.program.inputs)}
        place = self.constant(HOST.place) if self.made.device.on_host else "_where.place"
        for k, v in enumerate(self.program.outputs):
            if isinstance(v, Slot):
                self.line(f"_o{k} = _t{at[v.input]}")
                continue
            type = self.output_type(k)
            shape = type.shape if not self.counted(v) else (self.bounds[k],)
            dtype = self.constant(DTYPE_TO_PADDLE[type.dtype])
            if self.training and self.training.may_spare(k) and not self.counted(v):
                self.line(f"_o{k} = _TRAINING.pool.take({k}, {shape_text(shape)}, {dtype}, _where)")
            elif None not in shape:
                make = self.constant(allocator(shape))
                self.line(f"_o{k} = {make}({shape_text(shape)}, {dtype}, {place})")

    def output_type(self, k: int) -> Type:
        """The type of the tensor that output k is."""
        found = self.program.outputs[k].type
        return complex_type(found) if k in self.entry.plan.complex else found

    def counted(self, v: Value | Slot) -> bool:
        """Whether its shape follows from how often a loop ran."""
        return not v.type.names.isdisjoint(self.counts)

    def found(self) -> None:
        """The counts of the call, and the outputs in the shapes that follow from them."""
        for name in self.counts:
            self.line(f"{name} = _found.counts[{name!r}]")
        for k, v in enumerate(self.program.outputs):
            shape = self.output_type(k).shape
            if self.counted(v) and self.bounds[k] is None:
                pairs = ".as_complex()" if k in self.entry.plan.complex else ""
                self.line(f"_o{k} = _TENSOR(_found.arrays[{k}]){pairs}")
            elif self.counted(v):
                self.line(f"_o{k} = _o{k}[:{product(shape)}].reshape({shape_text(shape)})")
            if self.counted(v) and k in self.trained:
                self.line(f"_o{k} = _o{k}.clone()")

    def finish(self, tensors: Sequence[str], outputs: Sequence[str], sizes: str) -> None:
        plan = self.entry.plan
        for q, zero in ((t, z) for t in self.made.traced for z in t.cleared):
            self.line(f"{self.source(0, q)}.clear_gradient({zero})")
        if self.training:
            names = "".join(f"{n!r}: {n}, " for n in (*self.program.sizes, *self.counts))
            given = f"({tuple_text(tensors)}), [{tuple_text(outputs)}], {{{names}}}, _where"
            self.line(f"{tuple_text(outputs)} = _RECORDED(_TRAINING, {given})")
            outputs = outputs[: self.training.results]
        found = display(plan, self.constant) if self.trained or not self.entry.trainable else None
        if found is not None:
            self.line(f"return {found}")
            return
        self.line(
            f"return _ENTRY.finish(_L, [{tuple_text(outputs)}], ({tuple_text(tensors)}), {sizes})"
        )

    def constant(self, value: object) -> str:
        name = f"_k{len(self.names)}"
        self.names[name] = value
        return name


__all__ = ["MISS", "Entry", "Translation"]
