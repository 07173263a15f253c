"""Random functions whose sizes data decides: masks, indices of what is not zero, repetitions and
lengths from tensors, in any order, with branches and loops over them. From seed `RESIZED_FROM` on,
many of them change sizes in branches and from iteration to iteration.

`compare(seed)` calls one eagerly and translated four times: with tensors of both signs, of one
sign, and of one row.
"""

from __future__ import annotations

import linecache
import random
from typing import Any

import numpy as np
import paddle

import dy2st

RESIZED_FROM = 1_000_000
#: rows, and what is added to each element
CALLS = ((4, 0.0), (4, -3.0), (4, 3.0), (1, 0.0))
HEAD = """def f(x):
    w = paddle.to_tensor(
        [[0.3, -0.2, 0.5, 0.1], [0.7, 0.2, -0.4, 0.3], [0.1, 0.9, -0.3, 0.2], [-0.6, 0.4, 0.2, 0.8]]
    ).astype(x.dtype)
"""
#: {0} is a matrix of four columns, {1} another one, {c} a number, {k} a column, {v} a new name
MATRICES = (
    "{v} = {0}[{0}[:, {k}] > {c}]",
    "{v} = {0}[{0}[:, {k}] > {c}]",
    "{v} = {0}[~({0}.max(1) > {c})]",
    "m = {0}[:, {k}] > {c}\n{v} = {0}[m] * 2 - {0}[m].flip(0)",
    "{v} = paddle.index_select({0}, paddle.nonzero({0}.sum(1) > {c}).flatten(), axis=0)",
    "d = ({0}[:, {k}].abs() * 2).astype('int64').clip(max=3)\n"
    "{v} = paddle.repeat_interleave({0}, d, axis=0)",
    "{v} = {0}.clone()\nm = {v}[:, {k}] > {c}\n{v}[m] = ({0}[m] * 0.5 + 1).detach()",
    "{v} = {0} * 1.0\n{v}[{v} < {c}] = 0.25",
    "n = int(({0} > {c}).sum()) % 7\n{v} = paddle.zeros([n, 4], x.dtype) + 0.5",
    "n = int(({0} > {c}).sum()) % 7\n{v} = paddle.concat([{0}[:n], {1}[:1]])",
    "{v} = paddle.tanh({0}) * 1.5 + 0.1",
    "{v} = paddle.concat([{0}, {1}])",
    "{v} = F.softmax({0} @ w, -1)",
    "{v} = paddle.sort({0}, axis=0)",
)
#: sizes that change in branches and from iteration to iteration
RESIZED = (
    "{v} = {0}\nif {1}.sum() > {c}:\n    {v} = {0}[{0}[:, {k}] > {c}]",
    "if {1}.shape[0] > 2:\n    {v} = {0}[1:] * 2\nelse:\n    {v} = paddle.concat([{0}, {1}])",
    "{v} = {0}\nfor t in range(3):\n    {v} = {v}[{v}[:, {k}] > {c} + t * 0.3] * 0.9",
    "{v} = {0}\nwhile {v}.shape[0] > 1:\n    {v} = {v}[{v}[:, {k}] > {v}[:, {k}].min()] + 0.1",
    "{v}, o = {0}, [{0}[:1]]\nwhile {v}.shape[0] > 0:\n    o.append({v}[:1])\n"
    "    {v} = {v}[1:][{v}[1:, {k}] > {c}]\n{v} = paddle.concat(o)",
    "{v} = {0}[{0}[:, {k}] > -9]\nfor t in range(4):\n    if {v}.shape[0] == 0:\n        break\n"
    "    {v} = paddle.concat([{v}[1:], {1}[:1] * 0.5]) if {v}.sum() > {c} else {v}[2:]",
    "{v}, u = {0}, {1}\nfor t in range(3):\n    u, {v} = {v}[{v}[:, {k}] > {c}], u * 0.9",
    "{v}, n = {0}, 0\nwhile n < 3:\n    k = int(({v} > {c}).sum()) % 3\n"
    "    {v} = paddle.concat([{v}[k:], {1}[:k]])\n    n += 1",
    "{v} = {0} * 1.0\nfor t in range(3):\n    {v}[:1] *= 0.5\n    {v} = {v}[{v}.sum(1) > {c} - t]",
)
VECTORS = (
    "if {0}.shape[0] > {k}:\n    {v} = {0}.sum(0)\nelse:\n    {v} = {0}.sum(0) * 2 + 1",
    "{v} = w[0]\nfor t in range({0}.shape[0]):\n    {v} = {v} * 0.5 + {0}[t]",
    "o = []\nfor t in range(x.shape[0]):\n    p = x[t][x[t] > {c}]\n"
    "    o.append(p.sum() + p.shape[0])\n{v} = paddle.stack(o)",
    "{v} = {0}[{0} > {c}]",
    "{v} = ({0} @ {1}.T).sum(1)",
    "{v} = paddle.bincount(({0}[:, {k}].abs() * 2).astype('int64')).astype(x.dtype)",
    "{v} = paddle.unique(paddle.concat([x[:1], {0}]).round())",
    "m = paddle.arange({0}.shape[0]) < {1}.shape[0]\n{v} = m.astype(x.dtype) * {0}[:, 0]",
)


def source(seed: int) -> str:
    draw = random.Random(seed)
    matrices, vectors, lines = ["x"], list[str](), list[str]()
    for k in range(draw.randint(3, 8)):
        into, table = (matrices, MATRICES) if draw.random() < 0.7 else (vectors, VECTORS)
        if seed >= RESIZED_FROM and draw.random() < 0.5:
            into, table = matrices, RESIZED
        names = {"v": f"v{k}", "k": draw.randint(0, 3), "c": draw.choice(["0", "0.3", "-0.5"])}
        text = draw.choice(table).format(draw.choice(matrices), draw.choice(matrices), **names)
        lines += text.split("\n")
        into.append(f"v{k}")
    results = [*draw.sample(matrices, min(2, len(matrices))), matrices[-1], *vectors]
    results = [q for q in dict.fromkeys(results) if q != "x"] or ["x * 1"]
    body = "".join(f"    {line}\n" for line in lines)
    return f"{HEAD}{body}    return ({', '.join(results)},)\n"


def function(seed: int) -> Any:
    text, name = source(seed), f"<random sizes {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"paddle": paddle, "F": paddle.nn.functional}
    exec(compile(text, name, "exec"), space)
    return space["f"]


def compare(seed: int) -> str:
    """ "equal", or "raises" where both raise in every call; raises SourceError, AssertionError for
    a difference."""
    f, equal = function(seed), 0
    static, draw = dy2st.to_static(f), np.random.default_rng(seed)
    for call, (rows, shift) in enumerate(CALLS):
        x = paddle.to_tensor(draw.normal(size=[rows, 4]) + shift)
        want, have = outcome(f, x), outcome(static, x)
        if isinstance(have, dy2st.SourceError):
            raise have
        if isinstance(want, Exception):
            continue
        assert not isinstance(have, Exception), f"call {call} raises {have!r}"
        for k, (a, b) in enumerate(zip(have, want)):
            assert (a is None) is (b is None), f"call {call}, value {k}: {a}, not {b}"
            if b is not None:
                assert a.dtype == b.dtype and a.shape == b.shape, f"call {call}, value {k}: {a}"
                assert np.allclose(a, b, 1e-9, 1e-9), f"call {call}, value {k}: {a}, not {b}"
        equal += 1
    return "equal" if equal else "raises"


def outcome(f: Any, x: Any) -> list[np.ndarray | None] | Exception:
    """Results and the gradient."""
    x = x.clone().detach()
    x.stop_gradient = False
    try:
        results = f(x)
        trained = [q for q in results if not q.stop_gradient]
        if trained:
            sum((q * q).sum() + q.sum() for q in trained).backward()  # type: ignore[union-attr]
    except Exception as e:
        return e
    return [*(q.numpy() for q in results), None if x.grad is None else x.grad.numpy()]
