"""Random programs whose state is Python's: containers, objects, counters, iterators.

`source(seed)` gives the text of a Layer with state of its own, of the arguments that its caller
keeps, and of what the caller does between two calls. Every statement is written for the containers
as they are at that point: a `Shape` is a description of an object, and names of one object have one
description. Four calls, nine of programs with counters, are compared with eager's in results, in
the whole state with its identities (`tests/portrait.py`), in what is printed, and in gradients for
a part. Used by tests/parity/random/test_random_state.py and scripts/fuzz/state.py.
"""

from __future__ import annotations

import collections
import contextlib
import io
import linecache
import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle

import dy2st
from tests.parity.random.random_counters import CALLS, counted, has_counters
from tests.parity.random.random_state_shapes import Shape, text_of
from tests.parity.random.random_state_statements import Writer
from tests.portrait import difference, portrait

HEAD = """
import collections, copy, itertools, random
import paddle
from paddle import nn
from types import SimpleNamespace
from tests.parity.random.state_functions import Obj, each, mix, pairs, put, step, total, v

"""


def source(seed: int) -> str:
    """The text of the program of this seed."""
    rng = random.Random(seed)
    w = Writer(rng)
    own = {f"self.{n}": s for n, s in w.roots(("s", "r"), rng.randint(1, 2)).items()}
    own["self.k"] = Shape("n")
    own["self.h"] = Shape("t")
    given = w.roots(("d", "l", "o"), rng.randint(1, 3))
    made = [f"        {name} = {text_of(s, rng)}" for name, s in own.items()]
    arguments = [text_of(s, rng) for s in given.values()]
    body = w.program({**own, **given})
    between = w.between({**{n: w.env[n] for n in own}, **given})
    made, body = counted(seed, made, body)
    lines = [
        HEAD,
        "class Net(nn.Layer):",
        "    def __init__(self):",
        "        super().__init__()",
        *made,
        "",
        f"    def forward(self, x, n, {', '.join(given)}):",
        *body,
        "",
        "",
        "def arguments():",
        f"    return [{', '.join(arguments)}]",
        "",
        "",
        f"def between(self, call, {', '.join(given)}):",
        *between,
        "",
    ]
    return "\n".join(lines)


def compiled(seed: int) -> dict[str, Any]:
    """The names that the text defines; errors show its lines."""
    text, name = source(seed), f"<state {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    names: dict[str, Any] = {"__name__": f"state_{seed}"}
    exec(compile(text, name, "exec"), names)
    return names


class Side:
    """The Layer and the arguments of one side: eager, or translated."""

    def __init__(self, seed: int, translate: bool) -> None:
        self.names = compiled(seed)
        self.layer = self.names["Net"]()
        self.given = self.names["arguments"]()
        self.call = dy2st.to_static(self.layer) if translate else self.layer

    def state(self) -> Any:
        """What the caller can see between two calls."""
        hidden = ("training", "forward", "program", "report", "code")
        own = {k: q for k, q in vars(self.layer).items() if k[0] != "_" and k not in hidden}
        own.update(self.layer._buffers)
        return [dict(sorted(own.items())), self.given]

    def step(self, k: int, trained: bool) -> Any:
        """One call: two portraits of the result and the state, the second without the identities of
        tensors, and the gradient."""
        random.seed(k)
        x = paddle.to_tensor(
            np.random.default_rng(k).normal(size=[(3, 3, 4, 3)[k % 4], 2]).astype("float32")
        )
        x.stop_gradient = not trained
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            result = self.call(x, (2, 2, 3, 1)[k % 4], *self.given)
        gradient = grads(result, x) if trained else None
        whole = [result, self.state(), random.random(), shown.getvalue()]
        drawn = [portrait(whole, tensors) for tensors in (True, False)]
        if trained:
            self.detach()
        self.names["between"](self.layer, k, *self.given)
        return drawn, gradient

    def detach(self) -> None:
        """Tensors of the state do not lead back to an earlier call."""
        known: dict[int, Any] = {}
        for name, q in self.state()[0].items():
            setattr(self.layer, name, detached(q, known))
        self.given = [detached(q, known) for q in self.given]


def detached(x: Any, known: dict[int, Any]) -> Any:
    """`x`, with other tensors in the same containers."""
    if id(x) in known:
        return known[id(x)][1]
    if isinstance(x, paddle.Tensor):
        known[id(x)] = (x, x.detach())
        return known[id(x)][1]
    if isinstance(x, tuple):
        return tuple(detached(q, known) for q in x)
    known[id(x)] = (x, x)
    fields = x if isinstance(x, dict) else getattr(x, "__dict__", None)
    if isinstance(x, (list, collections.deque)):
        for i, q in enumerate(list(x)):
            x[i] = detached(q, known)
    elif isinstance(fields, dict):
        for k, q in fields.items():
            fields[k] = detached(q, known)
    return x


def grads(result: Any, x: Any) -> Any:
    """The gradient of the sum of all results that have one."""
    found = [q for q in tensors_of(result) if not q.stop_gradient]
    if found:
        sum((q.sum() for q in found), paddle.zeros([])).backward()
    known = x.grad is not None and x.grad._is_initialized()
    return x.grad.numpy() if known else np.zeros(x.shape, "float32")


def tensors_of(x: Any) -> list[Any]:
    if isinstance(x, paddle.Tensor):
        return [x]
    if isinstance(x, dict):
        x = list(x.values())
    return [q for part in x for q in tensors_of(part)] if isinstance(x, (list, tuple)) else []


def compare(seed: int) -> str:
    """ "equal", "copied" where a CopyWarning says that tensors with the values of eager's are
    copies, "raises" where eager does; raises SourceError, AssertionError for a difference."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", dy2st.CopyWarning)
        return compared(seed, lambda: any(q.category is dy2st.CopyWarning for q in told))


def compared(seed: int, warned: Callable[[], bool]) -> str:
    trained, copied = seed % 4 == 0, False
    eager, static = Side(seed, False), Side(seed, True)
    for k in range(CALLS[has_counters(seed)]):
        try:
            want = eager.step(k, trained)
        except Exception:
            return "raises"
        before = portrait([static.state()])
        try:
            have = static.step(k, trained)
        except dy2st.SourceError:
            after = portrait([static.state()])
            told = difference(after, before)
            assert not told, f"call {k}: a refusal has changed the state: {told}"
            raise
        exact, values = (
            difference((a, have[1]), (b, want[1]), flags=not trained)
            for a, b in zip(have[0], want[0])
        )
        copied = copied or bool(exact) and not values and warned()
        told = values if copied else exact
        assert not told, f"call {k}: {told}"
    return "copied" if copied else "equal"


__all__: Sequence[str] = ("compare", "source")
