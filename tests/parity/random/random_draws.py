"""Random programs that draw: numbers, arrays and iterators in loops and branches, against eager.

`program(seed)` is the source of a function `f(x, n)`; `compare` runs it eagerly and translated for
three calls and compares results, gradients, the states of all generators and the iterators.
"""

from __future__ import annotations

import itertools
import linecache
import random
from typing import Any

import numpy as np
import paddle
from paddle.static import InputSpec

import dy2st
from tests import check

DRAWS = (
    "random.random()", "random.uniform(-1, 1)", "G.random.gauss(0, 1)", "np.random.rand()",
    "float(random.randint(0, 3))", "np.random.normal()", "G.numpy.random()", "G.state.rand()",
    "float(next(G.count))", "next(G.cycle)", "random.choice([0.5, 1.5])",
    "G.random.random()", "random.uniform(0, n)",
)  # fmt: skip
ARRAYS = (
    "np.random.rand(3)", "np.random.normal(size=3)", "G.numpy.standard_normal(3)",
    "np.random.permutation(3) * 1.0", "np.random.rand(3) * 2",
)  # fmt: skip
FIRST = "    y, z, a, b, k, out = x[0] * 1, x[1] * 1, 0.5, 0.25, 0, []"


class Generators:
    """What the programs draw from."""

    def __init__(self) -> None:
        self.random, self.state = random.Random(1), np.random.RandomState(1)
        self.numpy, self.count = np.random.default_rng(1), itertools.count()
        self.cycle = itertools.cycle([0.5, -1.0, 2.0])
        random.seed(1)
        np.random.seed(1)

    def states(self) -> list[Any]:
        numpy = [q.get_state() for q in (np.random, self.state)]
        own = [random.getstate(), self.random.getstate(), self.numpy.bit_generator.state]
        return [*own, *((q[1].tolist(), *q[2:]) for q in numpy)]


class Writer:
    """Writes the statements of one program. `depth`: of the block; `loops`: `for` statements around
    it."""

    def __init__(self, seed: int) -> None:
        self.random, self.depth, self.loops, self.names = random.Random(seed), 0, 0, 0
        self.lines = [FIRST]

    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def number(self) -> str:
        index = "t * 0.1" if self.loops else "1.5"
        return self.pick(*(self.pick(*DRAWS) for _ in range(4)), "a", "b", "0.5", index)

    def tensor(self) -> str:
        drawn = f"paddle.to_tensor({self.pick(*ARRAYS)}).astype('float32')"
        return self.pick("y", "y", "z", "x[0]", "x[t % 3]" if self.loops else "x[1]", drawn, drawn)

    def condition(self) -> str:
        drawn = f"{self.pick(*DRAWS)} < 0.5"
        both = "random.random() < 0.5 and z.sum() > 0", "a > 0.2 or random.random() < 0.3"
        return self.pick(drawn, drawn, drawn, "a > b", "y.sum() > 0.3", "k > 2", *both)

    def line(self, text: str) -> None:
        self.lines.append("    " * (self.depth + 1) + text)

    def statement(self) -> None:
        kinds = [self.assign, self.compute, self.compute, self.compute, self.draw, self.array]
        self.random.choice([*kinds, *([self.loop, self.branch, self.until] * (self.depth < 3))])()

    def assign(self) -> None:
        scaled = f"{self.number()} * 0.5 + {self.number()} * 0.3"
        self.line(f"{self.pick('a', 'b')} = {self.pick(self.number(), scaled)}")

    def compute(self) -> None:
        mixed = f"{self.tensor()} * {self.number()} * 0.5 + {self.tensor()} * 0.3"
        self.line(f"{self.pick('y', 'z')} = {self.pick(mixed, mixed, 'paddle.tanh(y)')}")
        if not self.depth:
            self.line(f"out.append({self.pick(self.number(), self.tensor())} * 1)")

    def draw(self) -> None:
        more = "1", "random.randint(0, 2)", "int(random.random() * 3)"
        self.line(self.pick(self.pick(*DRAWS), f"k = k + {self.pick(*more)}"))

    def array(self) -> None:
        self.line(f"v = {self.pick(*ARRAYS)}")
        self.line("v *= 0.5")
        self.line("a = v[1] * 1.0")
        self.line("z = z + paddle.to_tensor(v).astype('float32')")

    def loop(self) -> None:
        trip = self.pick("3", "1", "4", "0", "5", "x.shape[0]")
        self.line(f"for {'u' if self.loops else 't'} in range({trip}):")
        self.loops += 1
        self.block()
        if self.random.random() < 0.1:
            self.depth += 1
            self.line(f"if {self.condition()}:")
            self.line(f"    {self.pick('break', 'continue')}")
            self.depth -= 1
        self.loops -= 1

    def branch(self) -> None:
        self.line(f"if {self.condition()}:")
        self.block()
        if self.random.random() < 0.5:
            self.line("else:")
            self.block()

    def until(self) -> None:
        self.names += 1
        name, test = f"w{self.names}", self.pick("random.random() < 0.7", "y.sum() < 2")
        self.line(f"{name} = 0")
        self.line(f"while {name} < 3 and {test}:")
        self.line(f"    {name} += 1")
        self.block()

    def block(self) -> None:
        self.depth += 1
        for _ in range(self.random.choice([1, 2, 2, 3])):
            self.statement()
        self.depth -= 1


def program(seed: int) -> str:
    writer = Writer(seed)
    for _ in range(writer.random.choice([3, 5, 7])):
        writer.statement()
    body = "\n".join(writer.lines)
    return f"def f(x, n):\n{body}\n    return y, z, a, b, k, out\n"


def function(source: str, name: str) -> tuple[Any, dict[str, Any]]:
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space: dict[str, Any] = {"random": random, "np": np, "paddle": paddle, "G": Generators()}
    exec(compile(source, name, "exec"), space)
    return space["f"], space


def outcome(f: Any, space: dict[str, Any], gradients: bool) -> list[Any]:
    """Three calls: results, gradients, and the states of what they drew from."""
    space["G"] = Generators()
    out: list[Any] = []
    for k in range(3):
        values = np.random.default_rng(k).standard_normal([4, 3]).astype("float32")
        x = paddle.to_tensor(values, stop_gradient=not gradients)
        found, gradient = f(x, 1.0), None
        total = found[0].sum() + found[1].sum()
        if gradients and not total.stop_gradient:
            total.backward()
            gradient = x.grad.numpy()
        out.append((plain(found), gradient, space["G"].states()))
    return [*out, next(space["G"].count), next(space["G"].cycle)]


def plain(x: Any) -> Any:
    """Tensors outside of autograd: a branch on data requires a gradient if one side does."""
    if isinstance(x, (tuple, list)):
        return type(x)(map(plain, x))
    return x.detach() if isinstance(x, paddle.Tensor) else getattr(x, "item", lambda: x)()


def compare(seed: int, gradients: bool = False, named: bool = False) -> str:
    """What became of the program: native, segmented, no gradient. Raises SourceError if it is
    refused, and AssertionError if it differs."""
    f, space = function(program(seed), f"<draws {seed}>")
    want = outcome(f, space, gradients)
    spec = [InputSpec([None, 3], "float32")] if named else None
    static = dy2st.to_static(f, input_spec=spec)
    try:
        have = outcome(static, space, gradients)
    except dy2st.Dy2stError as e:
        if "would run again in the backward pass" not in str(e):
            raise
        return "no gradient"
    for (results, gradient, states), (eager, wanted, reached) in zip(have[:3], want[:3]):
        check.same(results, eager, 1e-4, 1e-4)
        assert states == reached
        if wanted is not None:
            np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-4)
    assert have[3:] == want[3:]
    return (
        "segmented" if 'call="host"' in str(static.program(paddle.ones([4, 3]), 1.0)) else "native"
    )
