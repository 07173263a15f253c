"""`dy2st.stream`: the public entry of streaming."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from dy2st.api import StaticFunction, to_static
from dy2st.streaming.capture import SequenceProgram, shapes, translated
from dy2st.streaming.check import StreamCheck, fed, first_difference, first_op
from dy2st.streaming.program import StreamData, StreamingProgram, leaves_of
from ir import SourceError

#: ways of cutting the sequence that `check_stream` tries
ROUNDS = 3


def stream(
    function: object,
    axis: Mapping[object, int],
    chunk: int | None = None,
    input_spec: Sequence[object] | None = None,
) -> Any:
    """Make a streaming program of a function or Layer that takes whole sequences.

    The program is called with the next chunk and returns the frames that it can; the concatenation
    of all results, and of what `flush` returns, is the result of the function on the whole sequence
    behind the first `delay` frames. The weights are those of this moment.

    Args:
        function: a function, a method, a Layer, or what `to_static` has made of one.
        axis: for each argument that is a sequence, by name or number, the axis of time.
        chunk: the frames in a call; a multiple of all strides together. None: any such multiple.
        input_spec: `paddle.static.InputSpec` for each tensor argument. Without one, the program is
            made by the first call.

    Returns:
        A `StreamingProgram`; without an input_spec, an object that becomes one with its first call.

    Raises:
        SourceError: the function cannot be translated, or an op of it cannot be streamed.
        TypeError: an argument that does not exist.
    """
    if chunk is not None and (type(chunk) is not int or chunk < 1):
        raise ValueError(f"a chunk is a number of frames, 1 or more, not {chunk!r}")
    static = function.forward if isinstance(function, paddle.nn.Layer) else function
    if not isinstance(static, StaticFunction):
        static = to_static(static)
    spec = input_spec if input_spec is not None else static.__dy2st_cache__.input_spec
    lazy = LazyStream(static.__dy2st_original__, axis, chunk)
    return lazy if spec is None else lazy.made(shapes(spec, axis))


class LazyStream:
    """A streaming program that its first call makes, for the shapes of its chunk."""

    def __init__(
        self, function: Callable[..., object], axis: Mapping[object, int], chunk: int | None
    ) -> None:
        self._function, self._axis, self._chunk = function, dict(axis), chunk
        self._program: TracedStream | None = None

    def made(self, tensors: Sequence[tuple[Sequence[int], object]]) -> TracedStream:
        """The program for arguments of these shapes and types."""
        self._program = TracedStream.of(self._function, tensors, self._axis, self._chunk)
        return self._program

    def __call__(self, *args: object, **kwargs: Any) -> Any:
        """See `StreamingProgram`."""
        if self._program is None:
            tensors = [paddle.to_tensor(x) for x in (*args, *kwargs.values())]
            self.made([(t.shape, t.dtype) for t in tensors])
        return self.program_made()(*args, **kwargs)

    def program_made(self) -> TracedStream:
        """The program; raises AttributeError before the first call."""
        if self._program is None:
            raise AttributeError(
                "the program is made by the first call, or with `input_spec=` at once"
            )
        return self._program

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.program_made(), name)


class TracedStream(StreamingProgram):
    """A streaming program beside the function that it was made of."""

    def __init__(
        self,
        parts: StreamData,
        whole: SequenceProgram,
        function: Callable[..., object],
        tensors: Sequence[Any],
        axis: Mapping[object, int],
    ) -> None:
        super().__init__(parts)
        self._whole, self._function = whole, function
        self._tensors, self._axis = tensors, axis

    @staticmethod
    def of(
        function: Callable[..., object],
        tensors: Sequence[Any],
        axis: Mapping[object, int],
        chunk: int | None,
    ) -> TracedStream:
        return TracedStream(*translated(function, tensors, axis, chunk), function, tensors, axis)

    def check_stream(self, *args: object, seed: int = 0, tolerance: float = 1e-5) -> StreamCheck:
        """Feed whole sequences in random chunks and compare with the function on all of them.

        A program with a fixed chunk is compared for other sizes of chunks, too. The state of this
        program is reset.

        Args:
            args: the arguments of the function.
            seed: of the chunks.
            tolerance: the largest difference, relative to numbers above 1, that is none.
        """
        with paddle.no_grad():
            result = self._function(*(paddle.to_tensor(x) for x in args))
        want = [np.asarray(t.numpy()) for t in leaves_of(self.chunked.tree, result)]
        arrays = {n: np.asarray(x) for n, x in zip(self.arguments, args)}
        tried: list[tuple[int, ...]] = []
        for program, cuts in self._ways(arrays, random.Random(seed)):
            tried.append(tuple(cuts))
            have = fed(program, arrays, cuts)
            for k, (a, b) in enumerate(zip(have, want)):
                found = first_difference(a, b, self.chunked.outputs[k].axis, tolerance)
                if found is not None:
                    op = first_op(program._whole, program.chunked, arrays, tolerance)
                    name, loc = ("", None) if op is None else op[:2]
                    return StreamCheck(tuple(tried), k, *found, name, loc)
        return StreamCheck(tuple(tried))

    def _ways(
        self, arrays: Mapping[str, np.ndarray], rng: random.Random
    ) -> Iterator[tuple[TracedStream, list[int]]]:
        """Programs, and chunks to feed them; what is left goes to `flush`."""
        frames = self.frames_in(arrays)
        for k in range(ROUNDS):
            if self.chunk is None:
                cuts, left = [], frames // self.frames
                while left > 0:
                    cuts.append(rng.randint(1, min(left, max(1, frames // self.frames // 3))))
                    left -= cuts[-1]
                cuts = [self.frames * n for n in cuts]
                yield self, cuts[: len(cuts) - (k == 1)]
                continue
            size = self.chunk if k == 0 else self._other_size(rng)
            other = self if k == 0 else self._with_chunk(size)
            if other is not None:
                yield other, [size] * (frames // size)

    def _other_size(self, rng: random.Random) -> int:
        assert self.chunk is not None
        parts = [n for n in range(1, self.chunk) if self.chunk % n == 0]
        return rng.choice([*parts, *(self.chunk * n for n in (2, 3))])

    def _with_chunk(self, size: int) -> TracedStream | None:
        """The same for chunks of another size; None if that is not a multiple of the strides."""
        try:
            return TracedStream.of(self._function, self._tensors, self._axis, size)
        except SourceError:
            return None


__all__ = ["stream"]
