"""`dy2st.stream`: a model of whole sequences as a program of chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import paddle

from dy2st.api import StaticFunction, to_static
from dy2st.streaming.capture import shapes, translated
from dy2st.streaming.program import StreamingProgram


def stream(
    function: object,
    axis: Mapping[Any, int],
    chunk: int | None = None,
    input_spec: Sequence[Any] | None = None,
) -> StreamingProgram | LazyStream:
    """Make a streaming program of a function or Layer that takes whole sequences.

    Args:
        function: a function, a method, a Layer, or what `to_static` has made of one.
        axis: for each argument that is a sequence, by name, the axis of time.
        chunk: the frames in a call; a multiple of all strides together. None: any number.
        input_spec: `paddle.static.InputSpec` for each tensor argument. Without one, the program is
            made by the first call.

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

    def __init__(self, function: Any, axis: Mapping[Any, int], chunk: int | None) -> None:
        self._function, self._axis, self._chunk = function, dict(axis), chunk
        self._program: StreamingProgram | None = None

    def made(self, tensors: Sequence[tuple[Sequence[int], object]]) -> StreamingProgram:
        parts = translated(self._function, tensors, self._axis, self._chunk)
        self._program = StreamingProgram(parts)
        return self._program

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As `StreamingProgram`."""
        if self._program is None:
            tensors = [paddle.to_tensor(x) for x in args]
            self.made([(t.shape, t.dtype) for t in tensors])
        assert self._program is not None
        return self._program(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if self._program is None or name.startswith("__"):
            raise AttributeError(
                f"{name!r} is known after the first call, or with `input_spec=` at once"
            )
        return getattr(self._program, name)
