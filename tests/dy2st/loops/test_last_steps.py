"""Results of a loop of which only the last steps are read have memory for these steps."""

from __future__ import annotations

import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from ir import Scan, Stack
from ir.uses import walk
from tests.check import agree, data, parity, trains

pytestmark = pytest.mark.sampled(every=12)


class Steps(paddle.nn.Layer):
    """A state for each row of `x`; `read` says what of the list of states is returned."""

    def __init__(self, read):
        super().__init__()
        self.read = read

    def forward(self, x):
        h, ys = paddle.zeros([4], x.dtype), []
        for row in x:
            h = paddle.tanh(h + row)
            ys.append(h)
        return self.read(ys)


READS = {
    "window": lambda ys: paddle.stack(ys[-3:]),
    "window_of_a_stack": lambda ys: paddle.stack(ys, 1)[:, -3:],
    "two": lambda ys: ys[-1] + 2 * ys[-2],
    "part_of_a_window": lambda ys: paddle.stack(ys)[-4:-1].sum(0),
    "backwards": lambda ys: paddle.flip(paddle.stack(ys), [0])[:3],
    "tests": lambda ys: paddle.stack(ys[-2:]) > 0,
}


def arena(layer, x):
    return layer.forward.entry(x).executable.layout.bytes({"x_0": x.shape[0]})


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("name", READS)
def test_memory_is_that_of_the_steps(name):
    static = parity(Steps(READS[name]), lambda: [data(40, 4, trained=False)])
    short, long = (paddle.randn([n, 4]) for n in (50, 500))
    with paddle.no_grad():
        static(short), static(long)
    assert arena(static, long) == arena(static, short) < 1024
    agree(Steps(READS[name]).forward, data(7, 4))


def test_any_length():
    spec = [InputSpec([None, 4], "float32")]
    for n in (3, 4, 30):
        parity(Steps(READS["window"]), lambda n=n: [paddle.randn([n, 4])], input_spec=spec)


# ---------------------------------------------------------------- loops that data ends
def until(h, x, n, ys):
    i = paddle.zeros([], "int64")
    while i < n:
        h = paddle.tanh(h + x[i])
        ys.append(h)
        i = i + 1
    return ys


def left(h, x, n, ys):
    for i, row in enumerate(x):
        if i >= n:
            break
        h = paddle.tanh(h + row)
        ys.append(h)
    return ys


LOOPS = {"while": until, "break": left}
FRONTS = {
    "nothing": lambda h: [],
    "state": lambda h: [h],
    "five": lambda h: [h, 2 * h, 3 * h, 4 * h, 5 * h],
}
ENDS = {
    "last": lambda ys: ys[-1],
    "two": lambda ys: ys[-1] + 2 * ys[-2],
    "window": lambda ys: paddle.stack(ys[-3:]),
    "part": lambda ys: paddle.stack(ys, 1)[:, -3:-1],
    "added": lambda ys: sum(ys[-2:]),
    "element": lambda ys: paddle.stack(ys, 1)[:, -3],
    "guarded": lambda ys: (
        paddle.stack(ys[-3:]).sum(0) if len(ys) >= 3 else paddle.zeros([4], "float64")
    ),
    "where": lambda ys: (paddle.stack(ys[-2:]) > 0, len(ys[-3:])),
}


class Ended(paddle.nn.Layer):
    """At most as many steps as `x` has rows; `n` of them."""

    def __init__(self, loop, front, read):
        super().__init__()
        self.loop, self.front, self.read = LOOPS[loop], FRONTS[front], ENDS[read]

    def forward(self, h, x, n):
        return self.read(self.loop(h, x, n, self.front(h)))


def stacks(program):
    loops = (n for n in walk(program.ops) if isinstance(n, Scan))
    return [p for s in loops for p in s.ports if isinstance(p, Stack)]


def arguments(n, rows=40, trained=False):
    return [data(4, trained=trained), data(rows, 4, seed=n, trained=trained), paddle.to_tensor(n)]


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize("read", ENDS)
@pytest.mark.parametrize(
    "front, loop", [("nothing", "break"), ("state", "while"), ("five", "break")]
)
def test_loops_that_data_ends(front, loop, read):
    """Any number of steps, fewer than are read and none among them, by one program."""
    empty = (front, read) == ("nothing", "added")  # eager adds no tensors: the number 0
    steps = iter((7, 40 if empty else 0, 1, 2, 3, 4, 5, 39))
    static = parity(Ended(loop, front, read), lambda: arguments(next(steps)), calls=8)
    assert not stacks(static.forward.entry(*arguments(7)).executable.program)
    steps = iter((7, 3, 4))
    trains(lambda: Ended(loop, front, read), lambda: arguments(next(steps), 9, trained=True))


@pytest.mark.parametrize("loop", LOOPS)
def test_memory_of_loops_that_data_ends(loop):
    """Bytes of the arena: of a few steps, however many there are."""
    found = {}
    for rows in (50, 500):
        static = dy2st.to_static(Ended(loop, "state", "window"))
        with paddle.no_grad():
            static(*arguments(rows, rows))
        layout = static.forward.entry(*arguments(rows, rows)).executable.layout
        found[rows] = layout.bytes({})
    assert found[50] == found[500] < 1024
