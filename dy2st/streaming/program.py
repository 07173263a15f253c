"""Streaming programs: called with the next chunk, they return the frames that are complete.

It needs no Paddle. The buffers of the program are its whole state; they are written in place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import executor
from ir import Program, Type
from ir.passes import run as run_passes
from ir.streaming import StreamLength, StreamOutput
from ir.types import Size, evaluate_dim

#: what the first two buffers hold: units so far, and the frames of the sequence
CLOCK, END = "units", "frames of the sequence"


#: units without data that a call of `flush` feeds at once, where their number is open
LONGEST_SILENCE = 16


@dataclass(frozen=True)
class FrameCondition:
    """`factor * frames + rest` is >= 0, != 0 or a multiple of `unit`, for the frames of every
    sequence."""

    relation: str
    factor: int
    rest: int
    reason: str
    unit: int = 1

    def holds(self, frames: int) -> bool:
        gap = self.factor * frames + self.rest
        return {">=": gap >= 0, "!=": gap != 0, "multiple": gap % self.unit == 0}[self.relation]


@dataclass(frozen=True)
class StreamInfo:
    """The properties of a streaming program besides its ops.

    chunk: frames in a call, None if any number.
    frames: frames in a unit.
    axes: the axis of time of the arguments that have one.
    tree: the result, a tree of the numbers of outputs.
    requires, agreeing: what a sequence of any length has to fulfil.
    """

    chunk: int | None
    frames: int
    axes: dict[str, int]
    tree: object
    outputs: tuple[StreamOutput, ...]
    requires: tuple[FrameCondition, ...]
    agreeing: tuple[tuple[StreamLength, ...], ...] = ()


@dataclass(frozen=True)
class StreamData:
    """A streaming program as data: `weights` by the number of their input, buffers by name."""

    program: Program
    chunked: StreamInfo
    weights: Mapping[int, np.ndarray]
    initial: Mapping[str, np.ndarray]


class StreamingProgram:
    """A program that takes a sequence chunk by chunk.

    Attributes:
        program: the program of one call (`print` shows its text); its buffers are the state.
        arguments: names of the tensor arguments, in order.
        chunk: the frames in a call; None if it may have any multiple of `frames`.
        frames: the chunk, or what the strides take together.
    """

    def __init__(self, parts: StreamData, compiled: Any = None) -> None:
        self.parts, self.program = parts, parts.program
        self.chunked = parts.chunked
        self.chunk, self.frames = parts.chunked.chunk, parts.chunked.frames
        self.arguments = tuple(i.name for i in self.program.inputs if i.kind == "arg")
        self._run = self._compiled() if compiled is None else compiled
        self._state = {k: a.copy() for k, a in parts.initial.items()}
        self._given = {i.name: i for i in self.program.inputs if i.kind == "arg"}
        self._fixed = {
            k: parts.weights[k] if k in parts.weights else self._state[i.name]
            for k, i in enumerate(self._run.inputs)
            if i.kind != "arg"
        }
        self._addresses = [
            self._fixed[k].ctypes.data if k in self._fixed else 0
            for k in range(len(self._run.inputs))
        ]
        self._slots = [
            (k, i.name, i.value.type) for k, i in enumerate(self._run.inputs) if i.kind == "arg"
        ]
        self._types = [v.type for v in self.program.outputs]
        self._back: Callable[[np.ndarray], object] = _same

    def _compiled(self) -> Any:
        return executor.compile(run_passes(self.program, start_at="expand"))

    # ------------------------------------------------------------ what it is
    @property
    def delay(self) -> object:
        """The number of frames of each result before its first frame of data; a tree like the
        result, None for what has no time."""
        found = [o.delay if o.axis is not None else None for o in self.chunked.outputs]
        return filled(self.chunked.tree, found)

    def state(self) -> dict[str, np.ndarray]:
        """The buffers by name, to look at: they change with every call."""
        out = {}
        for name, a in self._state.items():
            out[name] = a.view()
            out[name].flags.writeable = False
        return out

    # ------------------------------------------------------------ state
    def reset(self) -> None:
        """Begin a new sequence."""
        for name, a in self._state.items():
            a[...] = self.parts.initial[name]

    def snapshot(self) -> dict[str, np.ndarray]:
        """A copy of the state, for `restore`."""
        return {k: a.copy() for k, a in self._state.items()}

    def restore(self, snapshot: Mapping[str, np.ndarray]) -> None:
        """Go on from a snapshot; raises ValueError for one of another program."""
        same = {k: (a.shape, a.dtype) for k, a in self._state.items()}
        if {k: (a.shape, a.dtype) for k, a in snapshot.items()} != same:
            raise ValueError("the snapshot is one of another program")
        for k, a in self._state.items():
            a[...] = snapshot[k]

    def another(self) -> StreamingProgram:
        """The same program at the start of a sequence of its own: weights and code are shared."""
        return StreamingProgram(self.parts, self._run)

    def batch(self, count: int) -> StreamBatch:
        """Return `n` independent streams that are called together. Raises ValueError where the
        first axis is the time, so that there is none for the streams."""
        axes = self.chunked.axes.items()
        found = [name for name, axis in axes if axis == 0]
        found += [f"result {k}" for k, o in enumerate(self.chunked.outputs) if o.axis == 0]
        if found:
            raise ValueError(f"streams lie along the first axis, which is the time in {found[0]}")
        return StreamBatch([self.another() for _ in range(count)])

    # ------------------------------------------------------------ calls
    def __call__(
        self, *args: object, out: Sequence[np.ndarray] | None = None, **kwargs: object
    ) -> object:
        """The result for the next chunk, of which the first `delay` frames are no data.

        Args:
            args, kwargs: arrays or Paddle tensors; those with a time have `chunk` frames.
            out: arrays for the tensors of the result, in order. Nothing is allocated then.

        Raises:
            TypeError: a missing argument, or one of another dtype.
            ValueError: another shape.
        """
        outputs = self._step(self._bind(args, kwargs), out)
        return filled(self.chunked.tree, [self._back(a) for a in outputs])

    def flush(self, *args: object, **kwargs: object) -> object:
        """End the sequence: the frames that are left. The next call begins a new sequence.

        Args:
            args, kwargs: the last frames, any number of them; nothing if there are none left.

        Raises:
            ValueError: the function does not take a sequence of this length.
        """
        outputs = self.tail(self._last(args, kwargs))
        return filled(self.chunked.tree, [self._back(a) for a in outputs])

    def outputs(self, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The results of the next chunk, in order."""
        return self._step({n: np.ascontiguousarray(a) for n, a in arrays.items()})

    def part(
        self, arrays: Mapping[str, np.ndarray], at: int, count: int | None
    ) -> dict[str, np.ndarray]:
        """`count` frames of the arguments from `at` on, or all that are left."""
        end = None if count is None else at + count
        return {
            n: a[(slice(None),) * self.chunked.axes[n] + (slice(at, end),)]
            if n in self.chunked.axes
            else a
            for n, a in arrays.items()
        }

    def tail(self, rest: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The results of `flush`, in order, for the last frames of the arguments."""
        count = self.frames_in(rest)
        begun = self._units()
        frames = begun * self.frames + count
        self._check(frames)
        try:
            parts = self._ending(rest, count, frames)
        finally:
            self.reset()
        return [
            self._joined(k, [p[k] for p in parts], begun, frames) for k in range(len(self._types))
        ]

    def _ending(
        self, rest: Mapping[str, np.ndarray], count: int, frames: int
    ) -> list[list[np.ndarray]]:
        """The results of the last `count` frames of `frames`, and of silence behind them."""
        most = max(LONGEST_SILENCE * self.frames, count)
        size = self.chunk or -(-most // self.frames) * self.frames
        parts, at = [], 0
        while self.chunk and count - at >= size:
            parts.append(self._step(self._cut(rest, at, size)))
            at += size
        self._state[END][...] = frames
        if count > at:
            parts.append(self._step(self._cut(rest, at, size)))
        while not parts or not self._is_out(frames):
            parts.append(self._step(self._silence(rest, size)))
        return parts

    def joined(self, parts: Sequence[object]) -> object:
        """Results of several streams along the first axis, as a call gives them."""
        return self._back(np.concatenate([np.asarray(p) for p in parts]))

    def _units(self) -> int:
        return int(self._state[CLOCK])

    def _check(self, frames: int) -> None:
        for r in self.chunked.requires:
            if not r.holds(frames):
                raise ValueError(
                    f"the sequence cannot end after {frames} frames: {self.program.name} "
                    f"treats other lengths in another way ({r.reason})"
                )
        if any(len({q.of(frames) for q in lengths}) > 1 for lengths in self.chunked.agreeing):
            raise ValueError(
                f"the sequence cannot end after {frames} frames: {self.program.name} takes frames "
                "in groups, or up to the length of other tensors, and it does not fill them; a "
                f"multiple of {self.frames} frames does"
            )

    def _is_out(self, frames: int) -> bool:
        """Whether every frame of data has come out."""
        units = self._units()
        streams = (o for o in self.chunked.outputs if o.axis is not None)
        return all(units * o.rate - o.delay >= o.length.of(frames) for o in streams)

    def _joined(self, k: int, parts: list[np.ndarray], begun: int, frames: int) -> np.ndarray:
        """The frames of output k that these calls gave, up to its last frame of data."""
        o = self.chunked.outputs[k]
        if o.axis is None:
            return parts[-1]
        left = o.delay + o.length.of(frames) - begun * o.rate
        joined = np.concatenate(parts, o.axis)
        return np.ascontiguousarray(joined[(slice(None),) * o.axis + (slice(0, max(0, left)),)])

    # ------------------------------------------------------------ arguments
    def _bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, np.ndarray]:
        """The arguments of a call by name."""
        given = self._named(args, kwargs)
        if len(given) < len(self.arguments):
            raise self._takes()
        return {name: self._array(name, x) for name, x in given.items()}

    def _last(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, np.ndarray]:
        """The arguments of `flush`: of those with a time any number of frames."""
        given = self._named(args, kwargs)
        needed = set(self.arguments) if given else set(self.arguments) - set(self.chunked.axes)
        if needed - set(given):
            raise self._takes()
        return {name: self._array(name, x, frames=False) for name, x in given.items()}

    def _named(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        given = dict(zip(self.arguments, args))
        twice = set(kwargs) & set(given)
        if len(args) > len(self.arguments) or set(kwargs) - set(self.arguments) or twice:
            raise self._takes()
        return {**given, **kwargs}

    def _takes(self) -> TypeError:
        return TypeError(f"the program takes {', '.join(self.arguments)}")

    def _array(self, name: str, x: Any, frames: bool = True) -> np.ndarray:
        tensor = not isinstance(x, np.ndarray) and hasattr(x, "numpy")
        self._back = _tensor if tensor else _same
        x = np.asarray(x.numpy() if tensor else x)
        self._fits(name, x, frames)
        return x if x.flags.carray else np.array(x, order="C")

    def _fits(self, name: str, x: np.ndarray, frames: bool = True) -> None:
        want = self._given[name].value.type
        if x.dtype != want.dtype.numpy:
            raise TypeError(f"{name} is {x.dtype}, the program takes {want.dtype.numpy}")
        axis = self.chunked.axes.get(name, -1)
        dims = [d for k, d in enumerate(want.shape) if k != axis or frames and isinstance(d, int)]
        have = [d for k, d in enumerate(x.shape) if k != axis or frames and self.chunk is not None]
        if have != dims or x.ndim != want.ndim:
            what = f"{self.chunk} frames" if self.chunk else "frames"
            raise ValueError(
                f"{name} has the shape {list(x.shape)}, the program takes {what}: {want}"
            )

    def frames_in(self, arrays: Mapping[str, np.ndarray]) -> int:
        """The frames of the arguments that are sequences; raises ValueError if they differ."""
        found = {arrays[n].shape[a] for n, a in self.chunked.axes.items() if n in arrays}
        if len(found) > 1:
            raise ValueError(f"the arguments have different numbers of frames: {sorted(found)}")
        return found.pop() if found else 0

    def _cut(self, arrays: Mapping[str, np.ndarray], at: int, size: int) -> dict[str, np.ndarray]:
        """Frames `at` to `at + size`; zeros behind the last one."""
        out = {}
        for name, x in arrays.items():
            axis = self.chunked.axes.get(name)
            if axis is None:
                out[name] = np.ascontiguousarray(x)
                continue
            part = x[(slice(None),) * axis + (slice(at, at + size),)]
            room = np.zeros((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)
            room[(slice(None),) * axis + (slice(0, part.shape[axis]),)] = part
            out[name] = room
        return out

    def _silence(self, arrays: Mapping[str, np.ndarray], size: int) -> dict[str, np.ndarray]:
        out = {}
        for name, i in self._given.items():
            if name not in self.chunked.axes:
                out[name] = arrays[name]
                continue
            dims = i.value.type.shape
            shape = [
                d if isinstance(d, int) and k != self.chunked.axes[name] else size
                for k, d in enumerate(dims)
            ]
            out[name] = np.zeros(shape, i.value.type.dtype.numpy)
        return out

    # ------------------------------------------------------------ the native call
    def _step(
        self, arrays: Mapping[str, np.ndarray], out: Sequence[np.ndarray] | None = None
    ) -> list[np.ndarray]:
        addresses, sizes = self._addresses, []
        for k, name, _ in self._slots:
            addresses[k] = arrays[name].ctypes.data
        if self.chunk is None:
            frames = self.frames_in(arrays)
            if frames % self.frames:
                raise ValueError(
                    f"a call takes a multiple of {self.frames} frames, not {frames}: "
                    "the strides of the function; `flush` takes any number"
                )
            sizes = [frames // self.frames]
            if not sizes[0]:
                raise ValueError("a call takes one frame or more")
        outputs = self._rooms(sizes) if out is None else self._given_rooms(out, sizes, arrays)
        self._run.run(sizes, addresses, [a.ctypes.data for a in outputs])
        return outputs

    def _given_rooms(
        self, out: Sequence[np.ndarray], sizes: Sequence[int], arrays: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """The caller's arrays for the results; raises ValueError if they do not fit."""
        named = dict(zip(self._run.sizes, sizes))
        fit = len(out) == len(self._types)
        if not fit or not all(_fits(a, t, named) for a, t in zip(out, self._types)):
            want = [f"{t.dtype}{list(_shape(t, named))}" for t in self._types]
            raise ValueError(f"out= takes contiguous arrays {', '.join(want)}")
        for k, a in enumerate(out):
            others = (*arrays.values(), *out[:k])
            if any(np.may_share_memory(a, q) for q in others):
                raise ValueError("an array of out= shares memory with another array of the call")
        return list(out)

    def _rooms(self, sizes: Sequence[int]) -> list[np.ndarray]:
        named = dict(zip(self._run.sizes, sizes))
        return [np.empty(_shape(t, named), t.dtype.numpy) for t in self._types]


class StreamBatch:
    """Independent streams of one program, each with its own state: row k of every argument that is
    a sequence is the chunk of stream k, and its other axes are those of the program for a batch of
    one. A stream may begin and end while others go on.
    """

    def __init__(self, streams: Sequence[StreamingProgram]) -> None:
        self.streams = tuple(streams)

    def __call__(self, *args: Any) -> object:
        """The results of all streams for their next chunks, along the first axis."""
        first = self.streams[0]
        for name, x in zip(first.arguments, args):
            if name in first.chunked.axes and len(x) != len(self.streams):
                raise ValueError(f"{name} has {len(x)} rows, there are {len(self.streams)} streams")
        found = []
        for k, s in enumerate(self.streams):
            own = (x[k : k + 1] if n in s.chunked.axes else x for n, x in zip(s.arguments, args))
            found.append(leaves_of(s.chunked.tree, s(*own)))
        joined = [first.joined([parts[q] for parts in found]) for q in range(len(found[0]))]
        return filled(first.chunked.tree, joined)

    def flush(self, stream: int, *args: object, **kwargs: object) -> object:
        """End one stream; its next chunk begins a new sequence. As `StreamingProgram.flush`."""
        return self.streams[stream].flush(*args, **kwargs)

    def reset(self, stream: int | None = None) -> None:
        """Begin a new sequence in one stream, or in all."""
        for s in self.streams if stream is None else (self.streams[stream],):
            s.reset()

    def snapshot(self) -> list[dict[str, np.ndarray]]:
        """Copies of all states, for `restore`."""
        return [s.snapshot() for s in self.streams]

    def restore(self, snapshot: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Go on from a snapshot."""
        for s, one in zip(self.streams, snapshot, strict=True):
            s.restore(one)


def _fits(a: np.ndarray, t: Type, sizes: Mapping[str, int]) -> bool:
    return a.flags.carray and a.dtype == t.dtype.numpy and a.shape == _shape(t, sizes)


def _shape(t: Type, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate_dim(d, sizes) if isinstance(d, Size) else d for d in t.shape)


def filled(tree: Any, outputs: Sequence[object]) -> object:
    """The tree of a result with these values for outputs."""
    kind, part = tree
    if kind == "out":
        return outputs[part]
    if kind == "dict":
        return {k: filled(q, outputs) for k, q in part}
    if kind == "constant":
        return part
    return (list if kind == "list" else tuple)(filled(q, outputs) for q in part)


def leaves_of(tree: Any, result: object) -> list[Any]:
    """The tensors of a result that has this tree, by their number."""
    found: dict[int, object] = {}

    def visit(tree: Any, result: Any) -> None:
        kind, part = tree
        if kind == "out":
            found[part] = result
        elif kind == "dict":
            for key, q in part:
                visit(q, result[key])
        elif kind != "constant":
            for q, r in zip(part, result):
                visit(q, r)

    visit(tree, result)
    return [found[k] for k in range(len(found))]


def _same(a: np.ndarray) -> np.ndarray:
    return a


def _tensor(a: np.ndarray) -> object:
    return sys.modules["paddle"].to_tensor(a)


__all__ = [
    "StreamInfo",
    "StreamData",
    "FrameCondition",
    "StreamBatch",
    "StreamingProgram",
    "filled",
    "leaves_of",
]
