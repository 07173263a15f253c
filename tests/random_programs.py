"""Random eager programs: nested loops, lists, attributes, in-place writes, views, jumps.

`source(seed)` gives the text of a Layer whose forward takes x[B, T, 4]. Values stay bounded, so
results can be compared closely. Used by tests/test_random_programs.py and scripts/fuzz/programs.py.
"""

from __future__ import annotations

import copy
import linecache
import random
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.static import InputSpec

import dy2st
from tests import check

HEAD = """
class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.w = self.create_parameter([4, 4])
        self.register_buffer("b", paddle.zeros([4]))
        self.h = paddle.zeros([4])
        self.n = 0

    def mix(self, a, b):
        return paddle.tanh(a + b * 0.5)

    def note(self, a):
        self.h = self.h * 0.5 + a.mean(0)

    def forward(self, x):
        h = paddle.zeros([x.shape[0], 4])
        c = x[:, :1].sum(1) * 0.1
        g = None
        ys, zs = [h], []
        out = paddle.zeros([x.shape[0], x.shape[1], 4])
        d = {"a": c}
        st = [h * 0.5, c]
        k = 0
"""
TAIL = """
        return h, c, paddle.stack(ys, 1), out, self.b * 1, d["a"], k, len(zs), st
"""


class Writer:
    """Writes one program. `depth` counts the loops around, `t` is the innermost index of time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.loops = 0

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def line(self, pad: int, text: str) -> None:
        self.lines.append(" " * pad + text)

    def value(self, t: str | None) -> str:
        """A tensor [B, 4]."""
        leaves = ["h", "c", "d['a']", "ys[-1]", "st[0]", "st[-1]"]
        if t is not None:
            leaves += [f"x[:, {t}]", f"x[:, {t}]", f"out[:, {t}]", f"out[:, {t} - 1]"]
        return self.pick(*leaves)

    def expression(self, t: str | None) -> str:
        a, b = self.value(t), self.value(t)
        return self.pick(
            f"paddle.tanh({a} + {b})",
            f"self.mix({a}, {b})",
            f"paddle.tanh({a} @ self.w)",
            f"{a} * 0.5 + {b} * 0.25",
            f"paddle.where({a} > {b}, {a}, {b} * 0.5)",
            f"({a} * {b}).clip(-1.0, 1.0)",
            f"paddle.concat([{a}[:, 2:], {b}[:, :2]], axis=1)",
            f"{a} * 0.5 + self.b",
        )

    def statement(self, pad: int, t: str | None, depth: int) -> None:
        loops = depth > 0
        kind = self.random.randrange(15 if loops else 11)
        e = self.expression(t)
        if kind <= 1:
            self.line(pad, f"h = {e}")
        elif kind == 2:
            self.line(pad, f"c = {e}")
        elif kind == 3:
            self.line(pad, "h, c = c, h")
        elif kind == 4:
            self.line(pad, f"ys.append({e})")
        elif kind == 5:
            self.line(pad, f"self.b.add_(({e}).mean(0) * 0.1)")
        elif kind == 6:
            self.line(pad, self.pick(*self.stores(e)))
        elif kind == 7:
            self.line(pad, f"v = ({e}) * 1.0")
            self.line(pad, f"v[:, {self.pick(0, 1, ':2', '-1')}] = 0.5")
            self.line(pad, f"v.scale_({self.pick(0.5, 0.9)})")
            self.line(pad, "c = v")
        elif kind == 8 and depth < 2:
            self.loop(pad, depth)
        elif kind == 9:
            self.line(pad, f"g = {e} if g is None else self.mix(g, {e})")
            self.line(pad, "h = h * 0.5 + g * 0.5")
        elif kind == 10:
            self.line(pad, f"if {self.condition(t)}:")
            self.statement(pad + 4, t, max(depth, 2))
            if self.random.random() < 0.5:
                self.line(pad, "else:")
                self.statement(pad + 4, t, max(depth, 2))
        elif kind == 11 and t is not None:
            self.line(pad, f"out[:, {t}] = {e}")
        elif kind == 12:
            self.line(pad, f"zs.append({self.pick(e, f'({e}, {self.value(t)})')})")
        elif kind == 13 and self.loops and self.random.random() < 0.4:
            self.line(pad, f"if {self.condition(t)}:")
            self.line(pad + 4, self.pick("break", "continue"))
        else:
            self.line(pad, "row = self.b[1:3] * 1")
            self.line(pad, f"h = h * 0.9 + ({e}) * 0.1 + row.sum() * 0.01")

    def stores(self, e: str) -> list[str]:
        """Statements that store somewhere else than in a local variable."""
        slot = self.pick("0", "1", "-1")
        fixed = [f"self.note({e})", f"d['a'] = {e}", "k += 2", "self.n += 1"]
        return [*fixed, f"st[{slot}] = {e}", f"st[0], st[1] = st[1], {e}"]

    def condition(self, t: str | None) -> str:
        python = ["k > 3", "self.n > 2", "self.training"]
        if t is not None:
            python += [f"{t} == 0", f"{t} > 0", f"{t} < 3", f"{t} % 2 == 0"]
        return self.pick(*python)

    def loop(self, pad: int, depth: int) -> None:
        name = "tuv"[depth]
        head, t = self.pick(
            (f"for {name} in range(x.shape[1]):", name),
            (f"for {name} in range(x.shape[1]):", name),
            (f"for {name} in range(x.shape[1] - 1, -1, -1):", name),
            (f"for {name}, q in enumerate(x.transpose([1, 0, 2])):", name),
            (f"for {name} in range(3):", None),
            ("for q in x.transpose([1, 0, 2]):", None),
        )
        self.line(pad, head)
        self.loops += 1
        for _ in range(self.random.randint(1, 4)):
            self.statement(pad + 4, t, depth + 1)
        self.loops -= 1


def source(seed: int) -> str:
    """The text of the program of this seed."""
    w = Writer(seed)
    for _ in range(w.random.randint(0, 2)):
        w.statement(8, None, 0)
    w.loop(8, 0)
    for _ in range(w.random.randint(0, 2)):
        w.statement(8, None, 0)
    return HEAD + "\n".join(w.lines) + TAIL


def build(seed: int) -> Any:
    """The Layer of this seed, its text registered so that it can be translated."""
    text, name = source(seed), f"<random program {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space: dict[str, Any] = {"paddle": paddle, "nn": nn, "__name__": "random_program"}
    exec(compile(text, name, "exec"), space)
    paddle.seed(seed)
    return space["Net"]()


def argument(seed: int, call: int, batch: int, steps: int) -> Any:
    rng = np.random.default_rng([seed, call])
    return paddle.to_tensor(rng.normal(size=[batch, steps, 4]).astype("float32"))


def compare(seed: int, steps: int, named: bool = False) -> list[str]:
    """Eager against translated for three calls; gives the kinds of loops, or ['raises'].

    Raises AssertionError where they differ; dy2st.SourceError where the program is refused.
    """
    eager = build(seed)
    eager.train() if seed % 2 else eager.eval()
    static = copy.deepcopy(eager)
    spec = [InputSpec([None, None, 4], "float32", "x")] if named else None
    dy2st.to_static(static, input_spec=spec)
    kinds: list[str] = []
    with paddle.no_grad():
        for call in range(3):
            x = argument(seed, call, 2, steps)
            want = check.outcome(eager, [x])
            have = check.outcome(static, [x])
            if isinstance(want, Exception):
                assert isinstance(have, Exception), f"eager raises {want!r}"
                return ["raises"]
            if isinstance(have, Exception):
                raise have
            check.same(have, want, 1e-4, 1e-5, f"call {call}")
            check.same(static.b, eager.b, 1e-4, 1e-5, f"call {call}: b")
            check.same(static.h, eager.h, 1e-4, 1e-5, f"call {call}: h")
            assert static.n == eager.n, (call, static.n, eager.n)
        if not named:
            kinds = [q.kind for q in static.report(x).loops]
    return kinds
