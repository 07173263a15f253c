"""The cost of each guarded value in a cached call.

Prints Markdown. `python -m scripts.bench.bench_guards` from the root. A value's cost is what a call
with many guarded values takes beyond a call with few, for each value more; least of many rounds.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import paddle

import dy2st
from scripts.bench.bench_call import in_turns
from scripts.demo import processor

COMMAND = ".venv/bin/python -m scripts.bench.bench_guards"
CONSTANTS: tuple[Callable[[int], object], ...] = (
    lambda k: 1000 + k,
    lambda k: k + 0.5,
    lambda k: f"a {k}",
    lambda k: None,
)


class Plain:
    def __init__(self, value: object) -> None:
        self.value = value


class Settings(paddle.nn.Layer):
    """Reads its own constants one by one."""

    def __init__(self, n: int) -> None:
        super().__init__()
        for k in range(n):
            setattr(self, f"a{k}", CONSTANTS[k % 4](k))

    def forward(self, x: Any) -> Any:
        return x + 1.0


class Sublayers(paddle.nn.Layer):
    def __init__(self, n: int) -> None:
        super().__init__()
        for k in range(n):
            setattr(self, f"layer{k}", paddle.nn.Identity())

    def forward(self, x: Any) -> Any:
        return x + 1.0


def reading(text: str, n: int, space: dict[str, Any]) -> Callable[..., Any]:
    """A function that reads `text` with each number below `n` in place of `{k}`."""
    return function("".join(f"    {text.format(k=k)}\n" for k in range(n)), space)


def function(lines: str, space: dict[str, Any], head: str = "f(x)") -> Callable[..., Any]:
    """A function with source, which a translation needs."""
    import linecache

    source = f"def {head}:\n{lines}    return x + 1.0\n"
    name = f"<guards {len(linecache.cache)}>"
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    exec(compile(source, name, "exec"), space)
    return space[head.split("(")[0]]


def attributes(n: int) -> Any:
    layer: Any = Settings(n)
    lines = "".join(f"    self.a{k}\n" for k in range(n))
    layer.forward = types.MethodType(function(lines, {}, "forward(self, x)"), layer)
    return layer.forward


def sublayers(n: int) -> Any:
    layer: Any = Sublayers(n)
    lines = "".join(f"    x = self.layer{k}(x)\n" for k in range(n))
    layer.forward = types.MethodType(function(lines, {}, "forward(self, x)"), layer)
    return layer.forward


def conditions(n: int) -> Any:
    """A counter that decides about appends, which never come."""
    layer: Any = Settings(0)
    layer.step, layer.log = 1, []
    lines = "".join(
        f"    if self.step % {1000003 + k} == 0: self.log.append({k})\n" for k in range(n)
    )
    forward = function(f"    self.step += 1\n{lines}", {}, "forward(self, x)")
    layer.forward = types.MethodType(forward, layer)
    return layer.forward


CASES: dict[str, tuple[int, int, Callable[[int], Any]]] = {
    "attributes of a Layer: int, float, str, None": (4, 200, attributes),
    "globals": (
        4,
        200,
        lambda n: reading("g{k}", n, {f"g{k}": CONSTANTS[k % 4](k) for k in range(n)}),
    ),
    "dict of numbers": (
        4,
        200,
        lambda n: reading("d[0]", 1, {"d": {k: k + 0.5 for k in range(n)}}),
    ),
    "dict of numbers by name": (
        4,
        200,
        lambda n: reading("d['0']", 1, {"d": {str(k): k + 0.5 for k in range(n)}}),
    ),
    "list of numbers": (
        4,
        200,
        lambda n: reading("d[0]", 1, {"d": [k + 0.5 for k in range(n)]}),
    ),
    "list of objects": (
        4,
        200,
        lambda n: reading("d[0]", 1, {"d": [Plain(k) for k in range(n)]}),
    ),
    "attributes of plain objects": (
        4,
        50,
        lambda n: reading("o{k}.value", n, {f"o{k}": Plain(CONSTANTS[k % 4](k)) for k in range(n)}),
    ),
    "dict of tensors": (
        4,
        200,
        lambda n: reading("d['0']", 1, {"d": {str(k): paddle.zeros([2]) for k in range(n)}}),
    ),
    "sublayers that are called": (2, 20, sublayers),
    "conditions on a counter: `self.step % 10 == 0`": (1, 41, conditions),
}


def main(rounds: int = 40, calls: int = 100) -> None:
    print(f"`{COMMAND}`, {processor()}\n")
    print("| guarded values | µs for each |\n|---|---:|")
    x = paddle.zeros([4])
    with paddle.no_grad():
        for name, (few, many, made) in CASES.items():
            pair = [dy2st.to_static(made(n)) for n in (few, many)]
            times = in_turns([lambda f=f: f(x) for f in pair], rounds, calls)
            print(f"| {name} | {(min(times[1]) - min(times[0])) / (many - few):.3f} |")


if __name__ == "__main__":
    main()
