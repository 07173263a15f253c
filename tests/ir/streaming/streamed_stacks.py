"""Random stacks on whole sequences and by chunks, for the tests and the fuzzing."""

import random

import numpy as np

from dy2st.streaming.check import fed
from dy2st.streaming.program import StreamData, StreamInfo, StreamingProgram
from ir import ShapeError, evaluate
from ir.streaming import QUANTUM, stream
from ir.types import Size
from tests.ir.streaming.random_stacks import BATCH, Stack_


class Interpreted(StreamingProgram):
    """A streaming program on the reference interpreter: nothing is compiled."""

    def _compiled(self):
        return self.program

    def _step(self, arrays, out=None):
        order = [
            arrays.get(i.name) if i.kind == "arg" else self._fixed[k]
            for k, i in enumerate(self.program.inputs)
        ]
        outputs, written = evaluate(self.program, order)
        at = {i.value: k for k, i in enumerate(self.program.inputs)}
        for (target, _), a in zip(self.program.writes, written):
            self._fixed[at[target]][...] = a
        return outputs


def streamed(
    stack: Stack_, chunk: int, kind: type = Interpreted, fixed: bool = True
) -> StreamingProgram:
    """The stack for chunks of a number of frames, or for any number of such units."""
    program, weights = stack.build(Size.named(QUANTUM) * chunk)
    made = stream(program, 1 if fixed else Size.named("units"), chunk)
    parts = StreamData(
        made.program,
        StreamInfo(
            chunk if fixed else None, chunk, {"x": 2}, ["out", 0], made.outputs, (), made.agreeing
        ),
        {k + 1: w for k, w in enumerate(weights)},
        {s.name: s.initial for s in made.states},
    )
    return kind(parts)


def by_chunks(s: StreamingProgram, x: np.ndarray, rng: random.Random) -> np.ndarray:
    """All frames of data that come out."""
    frames = x.shape[2]
    cuts = [s.chunk] * (frames // s.chunk) if s.chunk else []
    while not s.chunk and sum(cuts) < frames:
        cuts.append(rng.randint(1, frames - sum(cuts)))
    if cuts and rng.random() < 0.3:
        cuts.pop()
    (have,) = fed(s, {"x": x}, cuts)
    return have


def compare(seed: int, kind: type = Interpreted) -> str:
    """Compare one stack; returns what became of it, raises AssertionError where it differs."""
    rng = random.Random(-seed - 1)
    stack = Stack_(seed, rng.randint(1, 8))
    chunk = stack.unit * rng.choice([1, 1, 2, 3, 5])
    pools = any(name in ("pool", "masked") for name, _ in stack.layers)
    fixed = stack.unit > 1 or pools or rng.random() < 0.5
    s = streamed(stack, chunk if fixed else 1, kind, fixed)
    done = 0
    for _ in range(2):
        frames = rng.choice([rng.randint(0, 12), rng.randint(0, 60), rng.randint(60, 260)])
        if rng.random() < 0.5:
            frames -= frames % chunk
        x = np.random.default_rng(seed).standard_normal((BATCH, 3, frames)).astype("float32")
        try:
            whole, weights = stack.build(frames)
        except ShapeError:
            continue
        ((want,), _) = evaluate(whole, [x, *weights])
        try:
            have = by_chunks(s, x, rng)
        except ValueError:
            s.reset()
            continue
        text = f"{stack}, chunks of {chunk}, {frames} frames, delay {s.delay}"
        assert have.shape == want.shape, f"{text}: {have.shape}, not {want.shape}"
        with np.errstate(invalid="ignore"):
            error = np.abs(have - want) / np.maximum(1, np.abs(want))
        error[(have == want) | (np.isnan(have) & np.isnan(want))] = 0
        at = int(np.argmax(error.max((0, 1)))) if error.size else 0
        assert error.size == 0 or error.max() < 1e-4, f"{text}: off by {error.max()} at frame {at}"
        done += 1
    return "equal" if done else "too short"
