"""Random functions with containers of several names: branches replace them, they are changed
and read by any name, in loops and outside.

`compare(seed)` calls one eagerly and translated, for data that take different branches.
"""

from __future__ import annotations

import dataclasses
import linecache
import random
import types
from typing import Any

import paddle
from paddle import nn

import dy2st
from tests import check


class Attributes(dict):  # type: ignore[type-arg]
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__  # type: ignore[assignment]


@dataclasses.dataclass
class Record:
    h: Any
    g: Any


class State:
    def __init__(self, h: Any, g: Any) -> None:
        self.h, self.g = h, g

    def put(self, h: Any) -> None:
        self.h = h


def put(state: Any, value: Any) -> None:
    state["h"] = value


def chosen(test: Any, one: Any, other: Any) -> Any:
    if test:
        return one
    return other


#: of a kind of container: a display of two elements, and one of them
KINDS = {
    "dict": ("{{'h': {0}, 'g': {1}}}", "{0}['h']", "{0}['g']"),
    "list": ("[{0}, {1}]", "{0}[0]", "{0}[1]"),
    "Attributes": ("Attributes(h={0}, g={1})", "{0}.h", "{0}['g']"),
    "SimpleNamespace": ("SimpleNamespace(h={0}, g={1})", "{0}.h", "{0}.g"),
    "Record": ("Record({0}, {1})", "{0}.h", "{0}.g"),
    "State": ("State({0}, {1})", "{0}.h", "{0}.g"),
    "nested": ("{{'h': {0}, 'g': {{'q': {1}}}}}", "{0}['h']", "{0}['g']['q']"),
}
CHANGES = {
    "dict": ["{0}.update(h={1})", "{0} |= {{'g': {1}}}", "{0}['h'] += {0}.pop('g'); {0}['g'] = {1}",
             "{0}.setdefault('h', {1})", "put({0}, {1})", "del {0}['g']; {0}['g'] = {1}"],
    "State": ["{0}.put({1})", "setattr({0}, 'g', {1})", "vars({0})['h'] = {1}"],
    "list": ["{0}[:] = [{1}, y]", "{0}.reverse()", "{0}[1], {0}[0] = {0}"],
    "nested": ["{0}['g'] = {{'q': {1}}}", "put({0}, {1})", "{0}.update(h={1})"],
}  # fmt: skip
WHOLE = {
    "dict": ["sum({0}.values())", "sum(v for k, v in {0}.items())", "sum(dict({0}).values())",
             "sum({{**{0}}}.values())", "{0}.get('h')", "total(**{0})"],
    "list": ["sum({0})", "sum([*{0}])", "total(*{0})"],
    "State": ["sum(vars({0}).values())", "getattr({0}, 'h')"],
}  # fmt: skip
NAMES = ("a", "b", "c", "self.s", "ls[0]")


class Writer:
    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.kind = self.draw.choice(["dict", "dict", *KINDS])
        self.new, *self.elements = KINDS[self.kind]
        self.names = self.draw.choice([NAMES[:2], NAMES[:3], NAMES[:3], NAMES])
        self.loop = ""

    def name(self) -> str:
        return self.draw.choice(self.names)

    def value(self) -> str:
        read = self.draw.choice(self.elements).format(self.name())
        x = "x[t]" if self.loop else "x[1]"
        return self.draw.choice([f"{x} * 2", "y * 0.5", "y + 1", f"{read} * 0.5", f"{read} + {x}"])

    def test(self) -> str:
        if not self.loop:
            return self.draw.choice(["x.sum() > 0", "x[0].sum() > 1", "x[2].sum() < 0"])
        return self.draw.choice(["x[t].sum() > 0", "x[t].sum() > 1", "y.sum() < 0", "t % 2 == 0",
                                 "t % 3 == 1"])  # fmt: skip

    def statement(self, depth: int = 0) -> list[str]:
        kinds = "read read whole store store change alias rebind rebind picked branch branch end"
        what = self.draw.choice(kinds.split()) if depth < 2 else "rebind"
        one, other, value = self.name(), self.name(), self.value()
        if what == "read":
            return [f"y = y * 0.5 + {self.draw.choice(self.elements).format(one)}"]
        if what == "whole" and self.kind in WHOLE:
            return [f"y = y * 0.5 + {self.draw.choice(WHOLE[self.kind]).format(one)}"]
        if what == "change" and self.kind in CHANGES:
            return [self.draw.choice(CHANGES[self.kind]).format(one, value)]
        if what == "rebind":
            first, second = (q.format(self.name()) for q in self.elements)
            return [f"{one} = {self.new.format(f'{first} * 0.9', f'{second} + 0.1')}"]
        if what == "alias":
            return [f"{one} = {other}"]
        if what == "picked":
            return [f"{one} = chosen({self.test()}, {other}, {self.name()})"]
        if what == "branch":
            lines = [f"if {self.test()}:", *self.block(depth + 1)]
            return lines + (["else:", *self.block(depth + 1)] if self.draw.random() < 0.3 else [])
        if what == "end" and self.loop and depth == 0:
            return ["if x[t].sum() > 2.5:", "    break"]
        return [f"{self.draw.choice(self.elements).format(one)} = {value}"]

    def block(self, depth: int) -> list[str]:
        found = [q for _ in range(self.draw.randint(1, 2)) for q in self.statement(depth)]
        return [f"    {q}" for q in found]

    def text(self) -> str:
        lines = ["y = x[0] * 1"]
        for k, name in enumerate(("a", "b", "c")):
            lines.append(f"{name} = {self.new.format(f'x[{k}] * 1', f'x[{k}] + {k}')}")
        lines += self.draw.choice([["self.s = a"], ["self.s = c"]])
        lines += self.draw.choice([["ls = [b]"], ["ls = [a]"]])
        lines += [f"{self.name()} = {self.name()}" for _ in range(self.draw.randint(0, 2))]
        few = self.draw.random()
        if few < 0.6:
            lines += [q for _ in range(self.draw.randint(2, 5)) for q in self.statement()]
        if few > 0.4:
            self.loop = self.draw.choice(["range(x.shape[0])", "range(x.shape[0])", "range(3)"])
            lines.append(f"for t in {self.loop}:")
            body = [q for _ in range(self.draw.randint(2, 5)) for q in self.statement()]
            lines += [f"    {q}" for q in body]
            self.loop = ""
            lines += [q for _ in range(self.draw.randint(0, 2)) for q in self.statement()]
        shown = self.draw.sample(self.names, self.draw.randint(0, min(2, len(self.names))))
        found = [f"{q.format(name)} + 0" for name in shown for q in self.elements]
        body = "\n        ".join([*lines, f"return [{', '.join(['y', *found])}]"])
        return f"class Model(nn.Layer):\n    def forward(self, x):\n        {body}\n"


def total(*args: Any, **kwargs: Any) -> Any:
    return sum((*args, *kwargs.values()))


def source(seed: int) -> str:
    return Writer(seed).text()


def contents(x: Any) -> list[Any]:
    """The tensors of a container of any of the kinds."""
    if isinstance(x, paddle.Tensor):
        return [x]
    parts = x if isinstance(x, list) else (x if isinstance(x, dict) else vars(x)).values()
    return [q for part in parts for q in contents(part)]


def compare(seed: int) -> str:
    """What came of it; raises if a call differs, or is refused for another reason than names."""
    text, name = source(seed), f"<names {seed}>"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    namespace: dict[str, Any] = {
        **globals(), "nn": nn, "SimpleNamespace": types.SimpleNamespace, "__name__": __name__,
    }  # fmt: skip
    exec(compile(text, name, "exec"), namespace)
    eager, model = namespace["Model"](), namespace["Model"]()
    static = dy2st.to_static(model)
    for k in range(3):
        x = check.data(4, 2, seed=seed * 3 + k, trained=False) + (k - 1)
        try:
            want: Any = eager(x)
        except (KeyError, AttributeError, RecursionError):
            return "fails in eager"
        try:
            have = static(x)
        except dy2st.SourceError as e:
            if "data decides here which list" not in e.message:
                raise
            return "refused for a name"
        check.same(have, want, 1e-9, 1e-9)
        check.same(contents(model.s), contents(eager.s), 1e-9, 1e-9)
    return "equal"
