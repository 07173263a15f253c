"""Random eager programs: loops, branches, jumps, lists, attributes, in-place writes, numbers.

`source(seed)` gives the text of a Layer whose forward takes x[B, T, 4] and a Python number. Every
condition may be one on tensors, on the index of a loop, or on Python numbers, which may come from
tensors; every loop ends; values stay bounded, so results can be compared closely. Used by
tests/parity/random/test_random_programs.py and scripts/fuzz/programs.py.
"""

from __future__ import annotations

import copy
import linecache
from dataclasses import replace
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.static import InputSpec

import dy2st
from tests import check
from tests.check import default_dtype
from tests.parity.random.random_statements import PAIRS, Loop, Scope, Writer

HEAD = """
class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.w = self.create_parameter([4, 4])
        self.register_buffer("b", paddle.zeros([4]))
        self.h = paddle.zeros([4])
        self.n = 0
        self.rate = 0.5
        self.flag = False

    def mix(self, a, b):
        return paddle.tanh(a + b * 0.5)

    def note(self, a):
        self.h = self.h * 0.5 + a.mean(0)

    def early(self, h, c, k, f):
{early}
        return h * 0.5 + c * 0.5

    def forward(self, x, n=2):
        h = paddle.zeros([x.shape[0], 4]) + 0.1
        c = x[:, :1].sum(1) * 0.1
        g = None
        ys, zs, ps, qs = [h], [c], [(h, c)], [c, h]
        out = paddle.zeros([x.shape[0], x.shape[1], 4])
        grown = paddle.zeros([1, x.shape[0], 4])
        p = h * 0.5
        d = {{"a": c, "b": h * 1.5, "p": p * 0.5}}
        st = [h * 0.5, c]
        k, f, done = 0, 1.0, False
        t = u = w = 0

        def blend(q):
            return q * 0.5 + h * 0.25

        def count(by):
            nonlocal k
            k = k + by
            return k

{body}
        return {tail}
"""
SHAPES = f"paddle.stack(ys, 1), len(zs), {PAIRS}, grown, qs, st, d['a'], d['b']"


def source(seed: int) -> str:
    """The text of the program of this seed."""
    w = Writer(seed)
    w.block(Scope(8, helper=True), 3)
    early, w.lines, w.loops = "\n".join(w.lines), [], [Loop()]
    scope = Scope(8)
    w.block(scope, 2)
    w.loop(scope)
    w.block(scope, 2)
    last = w.result(scope).removeprefix("return ")
    tail = last if w.returns else f"h, c, k, f, done, out, self.b * 1, {SHAPES}"
    return HEAD.format(early=early, body="\n".join(w.lines), tail=tail)


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
    return paddle.to_tensor(rng.normal(size=[batch, steps, 4]).astype(paddle.get_default_dtype()))


def compare(seed: int, steps: int, named: bool = False, dtype: str = "float32") -> list[str]:
    """Eager against translated for three calls; gives the kinds of loops, or ['raises'].

    Raises AssertionError where they differ; dy2st.SourceError where the program is refused. In
    float64 no difference is due to rounding.
    """
    with default_dtype(dtype), paddle.no_grad():
        eager = build(seed)
        eager.train() if seed % 2 else eager.eval()
        static = copy.deepcopy(eager)
        spec = [InputSpec([None, None, 4], dtype, "x")] if named else None
        dy2st.to_static(static, input_spec=spec)
        for call in range(3):
            batch, length = (2 + call % 2, steps + call) if named else (2, steps)
            n = (2, 3, 1)[call]
            x, y = (argument(seed, call, batch, length) for _ in range(2))
            want = check.observe(eager, [x, n], lambda: state(eager), call)
            have = check.observe(static, [y, n], lambda: state(static), call)
            if check.both_raise(have, want):
                return ["raises"]
            agree(f"call {call}", have, want, dtype)
        return [q.kind for q in dy2st.report(static, y, n).loops]


def with_tensors(x: Any) -> Any:
    """A result with its Python floats as tensors of a shape that programs have not."""
    if isinstance(x, (list, tuple)):
        return type(x)(with_tensors(q) for q in x)
    return paddle.full([1, 1, 1, 1], x, "float64") if type(x) is float else x


def state(layer: Any) -> list[Any]:
    """Buffers and attributes."""
    return [layer.b, layer.h, layer.n, layer.flag, layer.rate]


def agree(what: str, have: check.Observed, want: check.Observed, dtype: str) -> None:
    """Results, argument, buffers and attributes."""
    bounds = (1e-4, 1e-5) if dtype == "float32" else (1e-9, 1e-9)
    have, want = (
        replace(q, result=with_tensors(q.result), held=with_tensors(q.held)) for q in (have, want)
    )
    check.equal(have, want, what, **dict(zip(("rtol", "atol"), bounds)))
