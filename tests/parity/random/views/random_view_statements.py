"""Random statements on a graph of storages: views of views, copies, writes, loops and branches.

A program is a tree of `Statement`s, so that a failing one can be shrunk by leaving some out. The
writer knows the shape of every name; a dim is a number, or "N" for the length of the argument x
where sizes are named. Values stay bounded, every loop ends.

What dy2st is documented to refuse is rare: a name that a loop or a branch binds to a new tensor
while others share the memory of the old one, or that a block binds and that is written later.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from tests.parity.random.views import random_view_indices as indices

#: methods that write elementwise; {e} is a value, {n} a number
METHODS = [
    "scale_(0.5)", "scale_({n}, bias=0.25)", "add_({e})", "subtract_({e})", "multiply_({e})",
    "clip_(-0.75, 0.75)", "tanh_()", "fill_({n})", "zero_()", "neg_()", "abs_()",
    "sigmoid_()", "copy_({w} * 1.0)", "set_value({w} * 0.5)", "lerp_({w} * 1.0, 0.25)",
    "masked_fill_({v} > {n}, 0.125)", "where_({v} > {n}, {v}, {w} * 0.5)", "uniform_(-0.5, 0.5)",
]  # fmt: skip
#: of these autograd sees nothing: finite differences do
CUTS = ("fill_", "zero_", "copy_", "set_value", "uniform_")


@dataclass(frozen=True)
class Var:
    """An expression that is a tensor. `local`: its name may be bound to another one. `dense`: its
    elements surely lie side by side: only there is it safe to let eager write by lists of indices.
    `storage`: of the tensors that may share memory, the name of the first.
    """

    name: str
    shape: tuple[Any, ...]
    local: bool = True
    dense: bool = False
    storage: str = ""

    @property
    def root(self) -> str:
        return self.storage or self.name


@dataclass(frozen=True)
class Statement:
    """A line, or a header with its block. `fixed`: without it the program would not end."""

    line: str
    body: tuple[Statement, ...] | None = None
    fixed: bool = False

    def lines(self, pad: int) -> list[str]:
        inner = [q for s in self.body or () for q in s.lines(pad + 4)]
        if self.body is not None and not inner:
            inner = [" " * (pad + 4) + "pass"]
        return [" " * pad + self.line, *inner]


@dataclass
class Scope:
    """What is in reach. `index`: the name of a loop's index, and the first value that it cannot
    take; `branch`: inside of a branch; `depth`: how many loops are around."""

    names: list[Var]
    index: tuple[str, Any] | None = None
    branch: bool = False
    depth: int = 0
    out: list[Statement] = field(default_factory=list)

    def inner(self, **changes: Any) -> Scope:
        return replace(self, names=list(self.names), out=[], **changes)

    def line(self, text: str, fixed: bool = False) -> None:
        self.out.append(Statement(text, None, fixed))


class Writer:
    """Writes the statements of one program. `cuts`: also writes that autograd does not see."""

    def __init__(self, seed: int, cuts: bool = True) -> None:
        self.random = random.Random(seed)
        self.cuts = cuts
        self.count = self.names = 0
        self.strict = not self.chance(0.04)
        self.bound: set[str] = set()
        self.written: set[str] = set()

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def name(self, stem: str = "v") -> str:
        self.names += 1
        return f"{stem}{self.names}"

    # ------------------------------------------------------------ values
    def some(self, s: Scope, least: int = 0) -> Var:
        """A tensor with at least so many dimensions; newer names are likelier."""
        found = [q for q in s.names if len(q.shape) >= least]
        weights = [1 + 3 * k / len(found) for k in range(len(found))]
        return self.random.choices(found, weights)[0]

    def target(self, s: Scope, least: int = 0) -> Var:
        """A tensor to write to: none that a loop or a branch has bound to another one."""
        found = [q for q in s.names if not self.strict or q.root not in self.bound]
        v = self.some(replace(s, names=found), least)
        if s.depth:
            self.written.add(v.root)
        return v

    def free(self, s: Scope, v: Var) -> bool:
        """Whether the name may be bound to a new tensor here."""
        if not s.depth and not s.branch:
            return True
        alone = sum(q.root == v.root for q in s.names) == 1
        return alone and not (self.strict and v.root in self.written)

    def bind(self, s: Scope, v: Var, storage: str) -> None:
        """`v` is now a name for what lies in `storage`; in blocks that is its own."""
        if s.depth or s.branch:
            self.bound.add(v.root)
            return
        s.names[s.names.index(v)] = replace(v, storage=storage)

    def number(self) -> str:
        return self.pick("0.25", "-0.5", "0.375", "0.75")

    def scalar(self, s: Scope) -> str:
        """A number or a tensor without axes."""
        v = self.some(s).name
        choices = [f"{v}.mean()", f"{v}.sum() * 0.125", self.number()]
        if self.cuts:
            choices += [f"float({v}.mean())", f"{v}.max()"]
        if s.index is not None:
            choices.append(f"{s.index[0]} * 0.125")
        return self.pick(*choices, *(["n * 0.125", "self.n * 0.0625"] if s.depth < 2 else []))

    def like(self, s: Scope, v: Var) -> str:
        """A tensor of the shape of `v`, perhaps `v` itself or one that shares its memory."""
        same = [q.name for q in s.names if q.shape == v.shape]
        return self.pick(*same, v.name)

    def value(self, s: Scope, v: Var) -> str:
        """A new tensor that broadcasts to `v`: what overlaps is not added in order by eager."""
        rows = [q.name for q in s.names if v.shape[-1:] == q.shape]
        choices = [f"{self.like(s, v)} * {self.number()}"] * 4
        return self.pick(*choices, self.scalar_tensor(s), *(f"{q} * 0.5" for q in rows[-1:]))

    def new(self, s: Scope, v: Var) -> str:
        """A new tensor of the shape of `v`."""
        a, b = self.like(s, v), self.value(s, v)
        return self.pick(
            f"{a} * 0.5 + {b} * 0.25",
            f"paddle.tanh({a} - {b})",
            f"paddle.where({a} > {b}, {a}, {b} * 0.5)",
            f"{a} * {self.scalar(s)}",
            f"{a}.clone()",
            f"{a} * 1.0",
            f"paddle.assign({a})",
        )

    def condition(self, s: Scope) -> str:
        """On data, on the index, or on Python numbers."""
        v, r = self.some(s).name, self.pick("0.037", "-0.213", "0.191")
        data = [f"{v}.mean() > {r}", f"{v}.abs().max() < 0.617", f"float({v}.sum()) > {r}"]
        numbers = ["n > 2", "self.n % 2 == 0", "self.training", "n + self.n > 4"]
        index = [] if s.index is None else [f"{s.index[0]} == 1", f"{s.index[0]} > 0"]
        return self.pick(*data, *data, *numbers, *index, *index)

    # ------------------------------------------------------------ statements
    def view(self, s: Scope) -> None:
        """A new name that shares memory with another one."""
        v = self.some(s, 1)
        if v.root in self.bound and (s.depth or s.branch):
            return self.copy(s)
        made = indices.any_view(self, s, v)
        name = self.name()
        s.line(f"{name} = {made.text}")
        s.names.append(Var(name, made.shape, dense=made.dense, storage=v.root))

    def choose(self, s: Scope) -> None:
        """A new name for one of two tensors, for a view of one of them, or for a new tensor; data,
        an index or the end of a loop decides. Nobody writes them from there on."""
        free = [q for q in s.names if q.shape and q.root not in self.written]
        if not free:
            return self.copy(s)
        a = self.some(replace(s, names=free))
        b = self.pick(*(q for q in free if q.shape == a.shape))
        cut, shape = self.pick(("", a.shape), ("[:]", a.shape), ("[{k}]", a.shape[1:]))
        one = a.name + cut.format(k=0)
        two = self.pick(b.name + cut.format(k=-1), f"{b.name}{cut.format(k=0)} * 0.5")
        name = self.name()
        self.chosen(s, name, one, two)
        self.bound |= {name, a.root, b.root}
        s.names.append(Var(name, shape, False))

    def chosen(self, s: Scope, name: str, one: str, two: str) -> None:
        first, second = Statement(f"{name} = {one}", None, True), Statement(f"{name} = {two}")
        test = self.condition(s)
        form = self.pick("sides", "one side", "expression", "loop" if s.depth < 2 else "sides")
        if form == "expression":
            return s.line(f"{name} = {one} if {test} else {two}")
        if form != "sides":
            s.line(first.line, True)
        if form == "one side":
            s.out.append(Statement(f"if {test}:", (second,)))
        elif form == "loop":
            body = (Statement(f"if {test}:", (second,)),) if self.chance(0.5) else (second,)
            s.out.append(Statement(f"for {self.name('t')} in range(n):", body))
        else:
            s.out.append(Statement(f"if {test}:", (first,), True))
            s.out.append(Statement("else:", (replace(second, fixed=True),), True))

    def copy(self, s: Scope) -> None:
        v, name = self.some(s), self.name()
        if v.shape and self.chance(0.2):
            part = indices.advanced(self, s, v)
            if not part.mask:
                s.line(f"{name} = {part.text}")
                s.names.append(Var(name, part.shape, dense=True))
                return
        s.line(f"{name} = {self.new(s, v)}")
        s.names.append(Var(name, v.shape, dense=True))

    def method(self, s: Scope) -> None:
        v = self.target(s)
        choices = METHODS if self.cuts else [q for q in METHODS if not q.startswith(CUTS)]
        fields = {"e": self.value(s, v), "n": self.number(), "w": self.like(s, v), "v": v.name}
        target, shape = v.name, v.shape
        if v.shape and self.chance(0.3):
            part = indices.basic(self, s, v)
            target, shape = part.text, part.shape
            fields |= {"e": self.scalar_tensor(s), "w": target, "v": target}
        text = self.pick(*(q for q in choices if shape or not q.startswith("lerp_")))
        if text.startswith("where_"):
            return s.line(text.replace("where_", "paddle.where_").format(**fields))
        s.line(f"{target}.{text.format(**fields)}")

    def scalar_tensor(self, s: Scope) -> str:
        v = self.some(s).name
        return self.pick(f"{v}.mean()", f"{v}.max() * 0.5" if self.cuts else f"{v}.mean() * 0.5")

    def reshaped(self, s: Scope) -> None:
        """A new tensor, whose shape a call changes: eager would change that of `v` with `v[:]`."""
        v = self.some(s, 1)
        if "N" in v.shape or len(v.shape) > 3:
            return self.copy(s)
        name = self.name()
        s.line(f"{name} = {self.new(s, v)}")
        forms = [("unsqueeze_(0)", (1, *v.shape))]
        if len(v.shape) > 1:
            perm = [*range(1, len(v.shape)), 0]
            forms.append((f"transpose_({perm})", (*v.shape[1:], v.shape[0])))
        forms += [("flatten_()", (prod(v.shape),)), ("reshape_([1, -1])", (1, prod(v.shape)))]
        text, shape = self.pick(*forms)
        s.line(f"{name}.{text}")
        s.names.append(Var(name, shape))

    def assign_output(self, s: Scope) -> None:
        v = self.target(s)
        s.line(f"paddle.assign({self.like(s, v)} * {self.number()}, output={v.name})")

    def item(self, s: Scope) -> None:
        """`v[index] = value`, or `v[index] += value`."""
        v = self.target(s, 1)
        kinds = [indices.slots, indices.slots, *([indices.advanced] if v.dense else [])]
        part = self.pick(*kinds)(self, s, v)
        rows = [q.name for q in s.names if q.shape == part.shape]
        values = [f"{q} * 0.5" for q in rows[-2:]] + [self.scalar(s), self.number()]
        values += [] if part.listed else rows[-2:]
        sign = self.pick("=", "=", "+=", "*=") if not part.mask else "="
        values = [self.number()] if part.mask else values
        s.line(f"{part.text} {sign} {self.pick(*values)}")

    def integers(self, s: Scope) -> None:
        """The buffer of integers: counted, and written by element."""
        at = self.pick("0", "-1", "1:", "::2", *([] if s.index is None else [f"{s.index[0]} % 4"]))
        texts = [f"self.k[{at}] += {self.pick(1, 2)}", f"self.k[{at}] = {self.pick(3, 'n')}"]
        texts += ["self.k.add_(paddle.to_tensor(1))", "self.k.remainder_(paddle.to_tensor(5))"]
        s.line(self.pick(*texts, f"self.k[{at}] = {self.some(s).name}.mean() * 7"))

    def augmented(self, s: Scope) -> None:
        """`v += e` binds the name to a new tensor."""
        v = self.some(s)
        if v.local and self.free(s, v):
            s.line(f"{v.name} {self.pick('+=', '*=', '-=')} {self.value(s, v)}")
            self.bind(s, v, self.name("s"))

    def rebind(self, s: Scope) -> None:
        """A local name, to a new tensor or, outside of blocks, to a view."""
        v = self.some(s)
        if not v.local or not self.free(s, v):
            return self.method(s)
        same = [q for q in s.names if (q.shape, q.local, q.dense) == (v.shape, True, v.dense)]
        other, top = self.pick(*same), not s.branch and (not s.depth or not self.strict)
        if top and not s.depth and self.chance(0.3):
            s.line(f"{v.name}, {other.name} = {other.name}, {v.name}")
            self.bind(s, v, other.root)
            if other is not v:
                self.bind(s, other, v.root)
        elif top and self.chance(0.3):
            s.line(f"{v.name} = {other.name}[:]" if v.shape else f"{v.name} = {other.name}")
            self.bind(s, v, other.root)
        else:
            s.line(f"{v.name} = {self.new(s, v)}")
            self.bind(s, v, self.name("s"))

    def attribute(self, s: Scope) -> None:
        """`self.h` is bound to a new tensor, to a view, or to nothing for a while."""
        h = next(q for q in s.names if q.name == "self.h")
        if not self.free(s, h):
            return self.method(s)
        fitting = [q for q in s.names if q.shape == h.shape and q is not h]
        if fitting and not s.branch and not s.depth and self.chance(0.35):
            other = self.pick(*fitting)
            s.line(f"self.h = {other.name}[:]")
            return self.bind(s, h, other.root)
        none = "None if n < 0 else " if not s.branch and self.chance(0.15) else ""
        s.line(f"self.h = {none}{self.new(s, h)}")
        self.bind(s, h, self.name("s"))

    def counter(self, s: Scope) -> None:
        s.line(self.pick("self.n += 1", "self.n = (self.n * 2 + n) % 5"))

    def helper(self, s: Scope) -> None:
        """A method that writes what it is given."""
        v = self.target(s)
        s.line(f"self.touch({v.name}, {self.pick('0.5', '0.75', 'n * 0.25')})")

    def container(self, s: Scope) -> None:
        v, w, name = self.target(s), self.target(s), self.name("d")
        s.line(f"{name} = [{v.name}, {w.name}]")
        forms = [f"{name}[1].scale_(0.75)", f"{name}[0].add_({self.scalar_tensor(s)})"]
        if v.shape:
            forms.append(f"{name}[0][0] = 0.125")
        s.line(self.pick(*forms))
        k = self.pick(0, 1)
        v = (v, w)[k]
        s.names.append(replace(v, name=f"{name}[{k}]", local=False, storage=v.root))

    def rows(self, s: Scope) -> None:
        """A loop over a tensor: each row is a view of it."""
        if s.depth > 1:
            return self.method(s)
        v, name = self.target(s, 1), self.name("r")
        self.written.add(v.root)
        inner = s.inner(depth=s.depth + 1)
        inner.names.append(Var(name, v.shape[1:], False, storage=v.root))
        writes = [f"{name}.scale_(0.5)", f"{name}.add_({self.scalar_tensor(s)})"]
        inner.line(self.pick(*writes, *([f"{name}[0] = 0.25"] if v.shape[1:] else [])))
        self.block(inner, 2)
        s.out.append(Statement(f"for {name} in {v.name}:", tuple(inner.out)))

    def steps(self, s: Scope) -> None:
        """A loop over an index."""
        if s.depth > 1:
            return self.item(s)
        t = self.name("t")
        head, end = self.pick(
            ("range(3)", 3), ("range(x.shape[0])", "N"), ("range(n)", 3), ("range(2, -1, -1)", 3)
        )
        inner = s.inner(depth=s.depth + 1, index=(t, end))
        self.block(inner, 4, least=2)
        s.out.append(Statement(f"for {t} in {head}:", tuple(inner.out)))

    def until(self, s: Scope) -> None:
        """A `while` that data ends, or a counter."""
        if s.depth > 1:
            return self.item(s)
        i, v = self.name("i"), self.some(s).name
        inner = s.inner(depth=s.depth + 1, index=(i, 3) if self.chance(0.5) else s.index)
        self.block(inner, 3, least=2)
        inner.line(f"{i} += 1", fixed=True)
        s.line(f"{i} = 0", fixed=True)
        test = self.pick(f"{v}.abs().sum() > 0.391", f"{v}.mean() < 0.417")
        s.out.append(Statement(f"while {i} < 3 and {test}:", tuple(inner.out)))

    def branch(self, s: Scope) -> None:
        first, second = s.inner(branch=True), s.inner(branch=True)
        test = self.condition(s)
        self.block(first, 3)
        s.out.append(Statement(f"if {test}:", tuple(first.out)))
        if self.chance(0.5):
            self.block(second, 2)
            s.out.append(Statement("else:", tuple(second.out)))

    # ------------------------------------------------------------ blocks
    def statement(self, s: Scope) -> None:
        self.count += 1
        entries = [q for q in STATEMENTS if self.cuts or q[1] not in UNTRAINED]
        self.random.choices(entries, [q[0] for q in entries])[0][1](self, s)

    def block(self, s: Scope, most: int, least: int = 1) -> None:
        for _ in range(self.random.randint(least, most)):
            self.statement(s)

    def program(self, s: Scope, size: int) -> None:
        while self.count < size:
            self.statement(s)
            self.written = set()


#: weight, statement
STATEMENTS: list[tuple[int, Callable[[Writer, Scope], None]]] = [
    (9, Writer.view),
    (4, Writer.copy),
    (1, Writer.choose),
    (2, Writer.reshaped),
    (9, Writer.method),
    (2, Writer.assign_output),
    (9, Writer.item),
    (1, Writer.integers),
    (2, Writer.augmented),
    (3, Writer.rebind),
    (2, Writer.attribute),
    (1, Writer.counter),
    (1, Writer.helper),
    (1, Writer.container),
    (1, Writer.rows),
    (3, Writer.steps),
    (1, Writer.until),
    (3, Writer.branch),
]
#: what has no derivative
UNTRAINED = (Writer.integers, Writer.assign_output)
