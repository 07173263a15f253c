"""Random functions with one loop over a size that is None: conditions on its index, reads of one
step, slices as long as the index says, given to ops of the program and to kernels of Paddle.

`compare(seed)` calls one eagerly and translated, with sizes in any order: a condition that a short
call settles may hold otherwise in a longer one.
"""

from __future__ import annotations

import linecache
import random
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle.static import InputSpec

import dy2st
from tests import check

LENGTHS = (0, 1, 2, 3, 4, 5, 6, 9)
RANGES = ("range(n)", "range(n)", "range(1, n)", "range(n - 1, -1, -1)")
NUMBERS = (
    "t", "t", "n", "n // 2", "t % 3", "n % 2", "(t + 1) // 2", "min(t + 2, n)", "max(n - 3, 0)",
    "2 * t", "n - t", "n - t - 1", "t + 2", "t - 1", "n - 1", "n - 4", "0", "1", "2", "3", "5",
)  # fmt: skip
SLICES = (
    ":t + 1", ":t", "t:", ":n - t", "max(t - 2, 0):t + 1", "t:min(t + 2, n)", ":t - 1",
    "t - 2:t + 1",
)  # fmt: skip
STEPS = ("t", "n - 1 - t", "min(t + 1, n - 1)", "max(t - 2, 0)", "-1", "t - 1", "0")
OPS = (
    "paddle.tanh({})", "paddle.sort({}, 0)", "paddle.logsumexp({}, 0, True)", "F.dropout({}, 0.3)",
    "F.softmax({} @ {}.T) @ {}", "F.dropout(F.softmax({} @ {}.T), 0.2) @ {}",
    "paddle.cumsum({}, 0)", "paddle.rand({}.shape) * {}", "paddle.norm({} + 0.3, 2, 0, True)",
)  # fmt: skip


def source(seed: int) -> str:
    draw = random.Random(seed)
    lines = [q for _ in range(draw.randint(1, 4)) for q in statement(draw, 0)]
    head = [
        "def f(x, h):",
        "    n = x.shape[0]",
        "    y, z = h, h * 0",
        f"    for t in {draw.choice(RANGES)}:",
    ]
    return "\n".join([*head, *(f"        {q}" for q in lines), "    return y, z", ""])


def statement(draw: random.Random, depth: int) -> list[str]:
    kind = draw.choice(["if", "if", "if", "step", "slice", "slice", "scale", "loop", "swap"])
    name = draw.choice(["y", "z"])
    if kind == "if" and depth < 2:
        out = [f"if {condition(draw)}:", *indented(draw, depth)]
        return [*out, "else:", *indented(draw, depth)] if draw.random() < 0.4 else out
    if kind == "loop" and depth < 2:
        trip = draw.choice(["t", "n - t", "3", "t + 1", "n"])
        return [f"for j in range({trip}):", f"    z = z * 0.9 + x[{draw.choice(['t', '0'])}]"]
    if kind == "slice":
        part = f"(x[{draw.choice(SLICES)}] * {draw.choice(['y', 'z', 'h'])})"
        made = draw.choice(OPS).replace("{}", part)
        return [f"q = {made}", f"{name} = paddle.tanh({draw.choice(['y', 'z'])} + (q * q).sum(0))"]
    if kind == "step":
        return [f"{name} = {name} + x[{draw.choice(STEPS)}]"]
    if kind == "swap":
        return ["y, z = z, y"]
    return [f"{name} = {name} * 0.5 + {draw.choice(['t', 'n', '1', 't * n'])}"]


def indented(draw: random.Random, depth: int) -> list[str]:
    return [f"    {q}" for q in statement(draw, depth + 1)]


def condition(draw: random.Random) -> str:
    kind = draw.randrange(10)
    left, right = draw.choice(NUMBERS), draw.choice(NUMBERS)
    if kind < 6:
        return f"{left} {draw.choice(['==', '==', '!=', '<', '<=', '>', '>='])} {right}"
    if kind == 6:
        return f"t in ({draw.randrange(5)}, {draw.randrange(8)})"
    if kind == 7:
        return f"{draw.randrange(3)} <= t < {right}"
    if kind == 8:
        return f"not {left} == {right}"
    return f"({condition(draw)}) {draw.choice(['and', 'or'])} ({condition(draw)})"


def function(seed: int) -> Any:
    text, name, made = source(seed), f"<indices {seed}>", {"paddle": paddle, "F": F}
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), made)
    return made["f"]


def compare(seed: int) -> str:
    """ "equal" or "raises"; raises AssertionError where translated calls differ, and Dy2stError
    where the function or its gradient is refused."""
    f, draw = function(seed), random.Random(seed)
    spec = [InputSpec([None, 2], "float64"), InputSpec([2], "float64")]
    static = dy2st.to_static(f, input_spec=spec)
    for n in draw.sample(LENGTHS, 4):
        args = [check.data(n, 2, seed=n), check.data(2, seed=n)]
        try:
            want = called(f, check.detached(args), n)
        except Exception:  # what eager does not take
            return "raises"
        (values, slopes, tail), (y, dy, end) = want, called(static, args, n)
        check.same([*y, end], [*values, tail], rtol=1e-6, atol=1e-6, what=f"n = {n}")
        for k, (a, b) in enumerate(zip(dy, slopes, strict=True)):
            check.close(a, b, 1e-6, f"n = {n}: gradient of argument {k}")
    return "equal"


def called(f: Any, args: Any, seed: int) -> tuple[Any, Any, Any]:
    """Results, gradients, and what the generator draws next."""
    paddle.seed(seed)
    return (*check.step(f, args, args), paddle.rand([2]))
