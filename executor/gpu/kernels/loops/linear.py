"""The family scan_linear: loops of few lanes and many iterations, whose states are linear
recurrences.

A block has some lanes and takes many iterations at once, each thread several of them for one lane.
Linear functions of a state compose: a thread composes those of its iterations, the block those of
its threads, and so each thread gets the state that its iterations begin with. It then computes them
as they are written. The sums of a recurrence are thus taken in another order.

Slopes up to 1 make that as exact as one iteration after the other. Where a slope is larger, or a
number is not finite, the first thread of the lane takes these iterations one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from executor.gpu.kernel_builder import IntText, Kernel, add, kernel_for, mul
from executor.gpu.kernels.loops.recurrence import Iteration, Linear, iteration
from executor.gpu.kernels.loops.scan import ElementwiseLoop, alike
from executor.gpu.preamble import SHARED, THREADS
from executor.gpu.scalars import literal, memory_type, register_type
from executor.launches import BackendLaunch, Launch, Loop, When, with_blocks
from executor.memory import View, collapse
from ir.scalar.language import Scalar, nodes
from ir.types import Dim, DType, product, substitute_dim

#: lanes that leave a GPU idle if each of them takes its iterations one after the other, and the
#: fewest iterations, where their number is known
MOST_LANES, FEWEST = 1 << 15, 64
#: threads that share the iterations of a lane
PARTS = 32
#: values of a thread, of all its iterations together; its iterations; states
VALUES, MOST_STEPS, MOST_STATES = 32, 8, 4
#: blocks of a multiprocessor: to have room for more of them, compilers spill registers
BESIDE = 2
#: primitives of an iteration, which is written twice
LONG = 200


@dataclass(frozen=True, eq=False)
class LinearScan(BackendLaunch):
    """All iterations of a loop, whose states are `solved`; it has `room` for so many lanes more."""

    ins: tuple[View, ...]
    outs: tuple[View, ...]
    steps: Iteration
    solved: Mapping[View, Linear]
    room: Dim

    @property
    def alternates(self) -> bool:
        """Whether what follows must know where it has ended."""
        return any(map(self.lanes.alternates, self.steps.values))

    @property
    def lanes(self) -> ElementwiseLoop:
        return self.steps.lanes

    @property
    def dtype(self) -> DType:
        return next(iter(self.solved)).dtype

    @property
    def streams(self) -> tuple[View, ...]:
        """The views that the loop reads step by step."""
        return tuple(v for v in self.steps.leaves if self.lanes.moves(v))

    @property
    def most(self) -> int:
        """Iterations of a thread."""
        return max(1, min(MOST_STEPS, VALUES // (len(self.streams) + len(self.solved))))


# ---------------------------------------------------------------- which loops
def chunked(launches: Sequence[Launch]) -> list[Launch]:
    """The launches with each loop that the family covers as one launch. Where a size that has a
    name decides whether it has few lanes, the call chooses; but not in other loops and branches,
    where the two ways would wait for each other."""
    return [q for x in launches for q in _either_way(x)]


def _either_way(x: Launch) -> tuple[Launch, ...]:
    found = linear_scan(x) if isinstance(x, Loop) else None
    if found is None or isinstance(found.room, int) or found.alternates:
        return (_inside(x),)
    return When(found.room, "sge", (found,)), When(-1 - found.room, "sge", (x,))


def _inside(x: Launch) -> Launch:
    found = linear_scan(x) if isinstance(x, Loop) else None
    if found is not None and isinstance(found.room, int):
        return found
    return with_blocks(x, lambda q: tuple(map(_inside, q)))


def linear_scan(x: Loop) -> LinearScan | None:
    lanes = alike(x)
    if lanes is None or isinstance(x.trip, int) and x.trip < FEWEST:
        return None
    room = MOST_LANES - product(lanes.maps[0].shape)
    fits = not isinstance(room, int) or 0 <= room < MOST_LANES
    found = iteration(lanes) if fits else None
    solved = None if found is None else found.solved
    if found is None or not solved or len(solved) > MOST_STATES:
        return None
    if len({v.dtype for v in solved}) > 1 or len(nodes(list(found.values.values()))) > LONG:
        return None
    ins, outs = ([_whole(lanes, v) for v in q] for q in (found.leaves, found.values))
    return LinearScan(tuple(ins), tuple(outs), found, solved, room)


def _whole(lanes: ElementwiseLoop, v: View) -> View:
    """Return the view of the elements that all iterations touch."""
    n, step = (2, _between(lanes, v)) if lanes.alternates(v) else (lanes.loop.trip, lanes.step(v))
    return replace(lanes.first(v), shape=(n, *v.shape), strides=(step, *v.strides))


def _between(lanes: ElementwiseLoop, v: View) -> Dim:
    """Return the distance of the second iteration's half from that of the first."""
    second = substitute_dim(v.offset, {lanes.loop.index: 0, lanes.loop.parity: 1})
    return second - lanes.first(v).offset


# ---------------------------------------------------------------- the kernel
@kernel_for(LinearScan)
def whole_blocks(x: LinearScan) -> Kernel:
    return linear_kernel(x, THREADS)


def linear_kernel(x: LinearScan, threads: int) -> Kernel:
    return _LinearScanWriter(x, threads).kernel


class _LinearScanWriter:
    """`states` are the names of variables: what the iterations that are taken next begin with."""

    def __init__(self, x: LinearScan, threads: int) -> None:
        self.x, self.kernel, self.steps = x, Kernel(), x.most
        kernel, lanes = self.kernel, x.lanes
        self.parts = min(PARTS, threads)
        self.width, self.kind = threads // self.parts, register_type(x.dtype)
        bytes_ = (2 * threads + len(x.solved) * self.width) * x.dtype.size
        assert threads % self.parts == 0 and bytes_ <= SHARED
        views = tuple(dict.fromkeys((*x.steps.leaves, *x.steps.values)))
        self.halves = {v: kernel.number(_between(lanes, v))
                       for v in x.steps.values if lanes.alternates(v)}  # fmt: skip
        self.pointers = {v: kernel.pointer(lanes.first(v)) for v in views}
        self.moves = {v: kernel.number(lanes.step(v)) for v in views if lanes.moves(v)}
        self.trip = kernel.number(lanes.loop.trip)
        dims, rows = collapse(lanes.maps[0].shape, [v.strides for v in views])
        n, over = kernel.numbers(dims), [kernel.numbers(r) for r in rows]
        kernel.work, kernel.beside = product(dims) * self.parts, BESIDE
        count = kernel.let(" * ".join(map(str, n)) or 1)
        tiles = kernel.let(f"({count} + {self.width - 1}) / {self.width}")
        kernel.emit(f"{self.kind} *slopes = ({self.kind}*)shared_memory();")
        kernel.emit(f"{self.kind} *offsets = slopes + {threads}, *ends = offsets + {threads};")
        kernel.emit(f"const i32 lane = threadIdx.x % {self.width};")
        kernel.emit(f"const i32 part = threadIdx.x / {self.width};")
        kernel.emit("__syncthreads();")
        with kernel.loop(tiles, first="blockIdx.x", step="gridDim.x") as tile:
            own = kernel.let(f"{tile} * {self.width} + lane")
            kernel.emit(f"const bool mine = {own} < {count};")
            place = str(kernel.let(f"mine ? {own} : {count} - 1"))
            starts = kernel.decoded(place, n, over) if n else [0] * len(views)
            self.places = dict(zip(views, starts))
            self.fixed = {
                v: kernel.loaded(f"{self.pointers[v]}[{self.places[v]}]", v.dtype)
                for v in x.steps.leaves
                if v not in self.moves and v not in x.solved
            }
            self.states = {v: self.variable(f"{self.pointers[v]}[{self.places[v]}]")
                           for v in x.solved}  # fmt: skip
            self.iterations()

    def variable(self, value: str) -> str:
        name = self.kernel.fresh()
        self.kernel.emit(f"{self.kind} {name} = {value};")
        return name

    # ------------------------------------------------------------ iterations
    def iterations(self) -> None:
        """Emit the iterations, as many at once as the threads of a lane hold."""
        kernel, trip, steps = self.kernel, self.trip, self.steps
        at_once = self.parts * steps
        with kernel.loop(trip, step=str(at_once)) as t:
            end = kernel.let(f"{trip} - {t} < {at_once} ? {trip} : {t} + {at_once}")
            self.first = kernel.let(f"{t} + part * {steps}")
            left = kernel.let(f"{end} - {self.first}")
            kernel.emit(f"const i32 n = {left} < {steps} ? (i32)({left}) : {steps};")
            ahead = self.load_streams()
            kernel.emit("bool good = true;")
            olds: dict[View, str] = {}
            for v in self.x.solved:
                olds[v] = self.solve(v, ahead, olds)
            with kernel.block("if (good)"):
                self.finish(ahead, olds, end)
            with kernel.block("else if (!part)"):
                self.one_by_one(t, str(end))
            kernel.emit("__syncthreads();")
            for k, name in enumerate(self.states.values()):
                kernel.emit(f"{name} = ends[{k * self.width} + lane];")

    @contextmanager
    def each_step(self) -> Iterator[str]:
        """The iterations of a thread."""
        kernel, k = self.kernel, self.kernel.fresh()
        kernel.emit("#pragma unroll")
        with kernel.block(f"for (i32 {k} = 0; {k} < {self.steps}; {k}++)"):
            with kernel.block(f"if ({k} < n)"):
                yield k

    def load_streams(self) -> dict[View, str]:
        kernel, ahead = self.kernel, {v: self.kernel.fresh() for v in self.x.streams}
        for v, name in ahead.items():
            kernel.emit(f"{memory_type(v.dtype)} {name}[{self.steps}];")
        with self.each_step() as k:
            for v, name in ahead.items():
                kernel.emit(f"{name}[{k}] = {self.element(v, f'({self.first} + {k})')};")
        return ahead

    def element(self, v: View, t: str) -> str:
        place = self.places[v]
        return f"{self.pointers[v]}[{add(place, mul(self.moves[v], t))}]"

    def evaluate(self, roots: Sequence[Scalar], read: Mapping[View, str]) -> list[str]:
        """Expressions of an iteration; `read` is what memory or a state has for a view."""
        loaded = self.kernel.loaded
        used = {int(s.value or 0) for s in nodes(roots) if s.op == "input"}
        ins = [
            self.fixed.get(v) or loaded(read[v], v.dtype) if k in used else ""
            for k, v in enumerate(self.x.steps.leaves)
        ]
        return self.kernel.evaluate(roots, ins)

    def read(self, k: str, ahead: Mapping[View, str], olds: Mapping[View, str]) -> dict[View, str]:
        """Return the names of the values that iteration k of the thread reads."""
        return {v: f"{name}[{k}]" for v, name in {**ahead, **olds}.items()}

    # ------------------------------------------------------------ a state
    def solve(self, v: View, ahead: Mapping[View, str], olds: Mapping[View, str]) -> str:
        """An array of what the state is before each iteration of the thread."""
        kernel, state = self.kernel, self.states[v]
        slope, offset = self.composed(v, ahead, olds)
        if olds:
            kernel.emit("__syncthreads();")
        kernel.emit(f"slopes[threadIdx.x] = {slope}, offsets[threadIdx.x] = {offset};")
        kernel.emit("__syncthreads();")
        now, whole, beyond = self.variable(state), self.variable("1"), self.variable("0")
        with kernel.loop(self.parts, "i32") as q:
            kernel.emit(f"if ({q} == part) {now} = {self.fma(whole, state, beyond)};")
            at = kernel.let(f"{q} * {self.width} + lane", "i32")
            kernel.emit(f"{beyond} = {self.fma(f'slopes[{at}]', beyond, f'offsets[{at}]')};")
            kernel.emit(f"{whole} *= slopes[{at}];")
        finite = " && ".join(f"{name} - {name} == 0" for name in (state, whole, beyond))
        kernel.emit(f"good = good && {finite};")
        old = kernel.fresh()
        kernel.emit(f"{self.kind} {old}[{self.steps}];")
        with self.each_step() as k:
            kernel.emit(f"{old}[{k}] = {now};")
            read = self.read(k, ahead, {**olds, v: old})
            (following,) = self.evaluate([self.x.steps.following(v)], read)
            kernel.emit(f"{now} = {following};")
        return old

    def composed(
        self, v: View, ahead: Mapping[View, str], olds: Mapping[View, str]
    ) -> tuple[str, str]:
        """The iterations of the thread as one linear function; with a slope that is too large, none
        that is finite."""
        kernel, linear = self.kernel, self.x.solved[v]
        slope, offset = self.variable("1"), self.variable("0")
        size = "fabsf" if v.dtype.bits == 32 else "fabs"
        with self.each_step() as k:
            read = self.read(k, ahead, olds)
            a, b = self.evaluate([linear.slope, linear.offset], read)
            none = literal(float("nan"), v.dtype)
            kernel.emit(f"{offset} = {self.fma(a, offset, b)};")
            kernel.emit(f"{slope} = {size}({a}) <= 1 ? {a} * {slope} : {none};")
        return slope, offset

    def fma(self, a: str, b: str, c: str) -> str:
        return f"{'fmaf' if self.x.dtype.bits == 32 else 'fma'}({a}, {b}, {c})"

    # ------------------------------------------------------------ results
    def finish(self, ahead: Mapping[View, str], olds: Mapping[View, str], end: IntText) -> None:
        """The iterations of the thread, from states that are known."""
        with self.each_step() as k:
            t = str(self.kernel.let(f"{self.first} + {k}"))
            found = self.results(self.read(k, ahead, olds), t)
            with self.kernel.block(f"if ({t} == {end} - 1)"):
                self.hand_on({v: found[self.x.steps.states[v]] for v in self.states})

    def one_by_one(self, first: str, end: str) -> None:
        """The iterations of all threads of the lane."""
        kernel = self.kernel
        with kernel.loop(end, first=first) as t:
            read = {v: self.element(v, t) for v in self.x.streams}
            found = self.results({**read, **self.states}, t)
            for v, name in self.states.items():
                kernel.emit(f"{name} = {found[self.x.steps.states[v]]};")
        self.hand_on(self.states)

    def results(self, read: Mapping[View, str], t: str) -> dict[View, str]:
        """Store what iteration `t` makes."""
        values = self.x.steps.values
        found = dict(zip(values, self.evaluate(list(values.values()), read)))
        for v, value in found.items():
            if v in self.moves:
                self.kernel.emit(f"if (mine) {self.element(v, t)} = {value};")
            else:
                last = f"if (mine && {t} == {self.trip} - 1)"
                half = mul(self.halves.get(v, 0), f"({t} & 1)")
                place = add(self.places[v], half)
                self.kernel.emit(f"{last} {self.pointers[v]}[{place}] = {value};")
        return found

    def hand_on(self, values: Mapping[View, str]) -> None:
        """Emit the final states of the thread for all threads of its lane."""
        for k, v in enumerate(self.states):
            self.kernel.emit(f"ends[{k * self.width} + lane] = {values[v]};")
