"""The statements of random programs, each a method that writes its lines.

What dy2st is documented to refuse is left out: lists and types whose size depends on which branch
ran, None against a tensor, an error that depends on data inside of `try`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

#: lists as tensors of one shape, whatever their length
SUMS = "paddle.stack(ys, 0).sum(0), paddle.stack(zs, 0).sum(0)"
PAIRS = "paddle.stack([a * 0.5 + b for a, b in ps], 0).sum(0)"
LISTS = ("ys", "zs", "ps", "grown")


@dataclass
class Loop:
    """What the statements so far have done in one loop, or in the function around all loops.

    `exits`: whether iterations may end early: by leaving the loop, or at all ("anyhow"), which
    makes the lengths of lists that are filled behind it depend on data. `regular`: the number of
    iterations is the same in every run. `rolled`: it runs over no Python list.
    """

    regular: bool = True
    rolled: bool = True
    exits: str = ""
    filled: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Scope:
    """Where a statement stands: in which column, the index of time in reach, the loops around,
    whether in a branch, and whether in the helper method."""

    pad: int
    t: str | None = None
    depth: int = 0
    branches: int = 0
    helper: bool = False

    def inner(self, **changes: Any) -> Scope:
        return replace(self, pad=self.pad + 4, **changes)


class Writer:
    """Writes one program: its statements are methods, chosen by the weights of `STATEMENTS`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.loops = [Loop()]
        self.returns = self.random.random() < 0.3
        self.names = 0

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def line(self, s: Scope, text: str) -> None:
        self.lines.append(" " * s.pad + text)

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    # ------------------------------------------------------------ expressions
    def value(self, s: Scope) -> str:
        """A tensor [B, 4]."""
        leaves = ["h", "c", "h", "c"]
        if not s.helper:
            leaves += ["d['a']", "d['b']", "st[0]", "st[-1]", "p", "p", "d['p']"]
            leaves += ["ys[-1]", "grown[-1]", "qs[0]"] if s.depth < 2 else []
        if s.t is not None:
            leaves += [f"x[:, {s.t}]"] * 4 + [f"out[:, {s.t}]", f"out[:, {s.t} - 1]"]
            leaves += [f"x[:, ({self.integer(s)}) % x.shape[1]]"] if self.chance(0.2) else []
        return self.pick(*leaves)

    def tensor(self, s: Scope) -> str:
        """A new tensor [B, 4]."""
        a, b = self.value(s), self.value(s)
        more = [] if s.helper else [f"self.early({a}, {b}, {self.integer(s)}, f)", f"blend({a})"]
        return self.pick(
            f"paddle.tanh({a} + {b})",
            f"self.mix({a}, {b})",
            f"paddle.tanh({a} @ self.w)",
            f"{a} * 0.5 + {b} * 0.25",
            f"paddle.where({a} > {b}, {a}, {b} * 0.5)",
            f"({a} * {b}).clip(-1.0, 1.0)",
            f"paddle.concat([{a}[:, 2:], {b}[:, :2]], axis=1)",
            f"{a} * 0.5 + self.b",
            f"({a} * {self.float(s)}).clip(-1.0, 1.0)",
            f"paddle.tanh({a} + ({self.integer(s)}) * 0.1)",
            f"({a} * 0.5 if {self.condition(s)} else {b} * 1.0)",
            *more,
        )

    def integer(self, s: Scope) -> str:
        a = self.pick("k", "k", s.t or "k", *([] if s.helper else ["n", "self.n", "t", "u"]))
        data = f"int({self.value(s)}.sum() * 3.3)"
        choices = [f"{a} + 1", f"{a} * 2 % 7", f"{a} // 2", f"{a} % 3 - 1", f"abs({a} - 2)"]
        choices += [f"min({a}, 5)", f"max({a}, 2)", a, data, f"{data} % 5", f"({a} + {data}) % 11"]
        return self.pick(*choices, *([] if s.helper else ["len(ys) % 4", "x.shape[1]"]))

    def float(self, s: Scope) -> str:
        v = self.value(s)
        choices = [
            "f * 0.9",
            "f * 0.5 + 0.3",
            f"float({v}.mean())",
            f"{v}.max().item()",
            "self.rate",
        ]
        choices += [f"min(f, {self.pick(0.4, 0.8)})", f"1.0 / (1 + ({self.integer(s)}) ** 2)"]
        return self.pick(
            *choices, f"(f if {self.comparison(s)} else 0.7)", f"float({v}[0, 1]) * 0.5"
        )

    def comparison(self, s: Scope) -> str:
        """On tensors, on the index, or on Python numbers. Thresholds are no values of programs."""
        v, r = self.value(s), self.pick("0.037", "-0.213", "0.191", "0.413")
        data = [f"{v}.mean() > {r}", f"{v}.abs().max() < 0.617", f"({v} > {r}).any()"]
        data += [f"float({v}.sum()) > {r}", f"int({v}.sum() * 3.1) % 2 == 1", f"{v}[0, 1] < {r}"]
        numbers = ["k > 3", "k % 2 == 0", "f > 0.437", f"{self.integer(s)} > 2"]
        numbers += (
            [] if s.helper else ["self.n > 2", "n > 2", "self.flag", "done", "not self.training"]
        )
        index: list[str] = []
        if s.t is not None:
            index += [f"{s.t} == 0", f"{s.t} > 0", f"{s.t} < 3", f"{s.t} % 2 == 0"]
            index += [f"{s.t} == x.shape[1] - 1", f"{s.t} + k > 4"]
        return self.pick(*self.pick(data, data, numbers, index or numbers))

    def condition(self, s: Scope) -> str:
        a, b = self.comparison(s), self.comparison(s)
        return self.pick(
            a,
            a,
            a,
            a,
            f"{a} and {b}",
            f"{a} or {b}",
            f"not ({a})",
            f"0.1 < {self.value(s)}.max() < 0.9",
        )

    # ------------------------------------------------------------ simple statements
    def assign(self, s: Scope) -> None:
        self.line(s, f"{self.pick('h', 'c')} = {self.tensor(s)}")

    def swap(self, s: Scope) -> None:
        self.line(s, "h, c = c, h")

    def number(self, s: Scope) -> None:
        integer = f"k = {self.integer(s)}"
        choices = ["k += 1", "k += 2", integer, integer, f"f = {self.float(s)}", "f = f * 0.8"]
        if not s.helper:
            choices += [
                "self.n += 1",
                f"self.n = ({self.integer(s)}) % 9",
                "self.flag = not self.flag",
            ]
            choices += [f"self.rate = {self.float(s)}", "done = not done", "count(1)"]
            choices += [
                f"done = bool({self.comparison(s)})",
                f"c = c * 0.5 + count({self.pick(1, 2)}) * 0.01",
            ]
        self.line(s, self.pick(*choices))

    def store(self, s: Scope) -> None:
        """Somewhere else than in a local variable."""
        e, slot = self.tensor(s), self.pick("0", "1", "-1")
        choices = [f"self.note({e})", f"d['{self.pick('a', 'b')}'] = {e}", f"st[{slot}] = {e}"]
        self.line(s, self.pick(*choices, f"st[0], st[1] = st[1], {e}", f"self.h = ({e}).mean(0)"))

    def write(self, s: Scope) -> None:
        """In place, mostly into tensors whose variables are never rebound."""
        e, part = self.tensor(s), self.pick("0", "1", ":2", "-1", "1:3")
        choices = [f"self.b.add_(({e}).mean(0) * 0.1)", f"p.add_(({e}) * 0.3)", "p.scale_(0.5)"]
        choices += [f"p[:, {part}] = {self.float(s)}", f"p[0] = ({e})[-1]", "d['p'].scale_(0.9)"]
        choices += [f"d['p'][:, {part}] = 0.25", f"p[:] = {e}", f"self.b[{part}] = 0.35"]
        if self.chance(0.05):
            choices = [f"h.add_(({e}) * 0.3)", f"c[:, {part}] = 0.25", "st[0].scale_(0.9)"]
        if s.t is not None:
            choices += [f"out[:, {s.t}] = {e}"] * 4 + [f"out[:, {s.t}, {part}] = 0.5"]
            choices += [f"x[:, {s.t}] = {e}", f"out[:, {s.t}].add_(({e}) * 0.1)"]
        self.line(s, self.pick(*choices))

    def view(self, s: Scope) -> None:
        """A view, written; or a copy, written."""
        v, part = self.name("v"), self.pick(":2", "1:3", "2:")
        bases = ["p", "self.b.reshape([1, 4])"]
        bases += [f"x[:, {s.t}]", f"out[:, {s.t}]"] if s.t else []
        base = self.pick(*bases, f"({self.tensor(s)})")
        writes = [f"{v}.scale_(0.75)", f"{v}[:, 0] = 0.45", f"{v}.clip_(-0.5, 0.5)"]
        self.line(s, f"{v} = {base}{self.pick(' * 1.0', f'[:, {part}]', f'[:, {part}]')}")
        self.line(s, self.pick(*writes, f"{v}.add_({v} * 0.5)"))
        self.line(s, f"{self.pick('h', 'c')} = h * 0.75 + {v}.sum() * 0.05")

    def maybe_none(self, s: Scope) -> None:
        """A variable that is None until here: the first iteration of a loop runs apart."""
        if s.branches or any(q.exits or not q.regular for q in self.loops):
            return self.assign(s)
        e = self.tensor(s)
        self.loops[-1].filled.add("g")
        self.line(s, f"g = {e} if g is None else self.mix(g, {e})")
        self.line(s, "h = h * 0.5 + g * 0.5")

    # ------------------------------------------------------------ lists
    def short_list(self, s: Scope) -> None:
        """A list of known length."""
        ws = self.name("ws")
        self.line(s, f"{ws} = [{self.tensor(s)}, {self.tensor(s)}, {self.value(s)} * 1.0]")
        use = self.pick("append", "pop", "slice", "insert", "branch")
        if use == "append":
            self.line(s, f"{ws}.append({self.tensor(s)})")
        elif use == "pop":
            self.line(s, f"c = {ws}.pop({self.pick('', '0')}) * 0.5")
        elif use == "insert":
            self.line(s, f"{ws}[1:1] = [h * 0.5, c * 0.5]")
        elif use == "branch":
            self.line(s, f"if {self.condition(s)}:")
            self.line(s.inner(), f"{ws}[{self.pick(0, 1, -1)}] = {self.tensor(s)}")
        self.line(s, f"for q in {ws}{self.pick('', '[1:]', '[::-1]')}:")
        self.line(s.inner(), f"h = h * 0.5 + q * {self.pick(0.25, 'f')} * 0.5")

    def queue(self, s: Scope) -> None:
        if s.depth > 1 or s.branches:
            return self.assign(s)
        self.line(s, f"qs.append({self.tensor(s)})")
        self.line(s, f"{self.pick('h', 'c')} = qs.pop(0) * 0.75")

    def may_fill(self, name: str, s: Scope) -> bool:
        """Whether the list has a length that a translation can know if it is filled here."""
        *around, last = self.loops
        if s.branches or s.helper or any(q.exits for q in around):
            return False
        if not all(q.regular for q in self.loops[2:]):
            return False
        if last.exits and (len(self.loops) > 2 or not last.rolled):
            return False
        if name == "grown" and (len(self.loops) > 2 or name in last.filled):
            return False
        return not last.exits or (last.exits == "leaves" and name not in last.filled)

    def fill(self, s: Scope) -> None:
        name = self.pick(*LISTS)
        if not self.may_fill(name, s):
            return self.assign(s)
        self.loops[-1].filled.add(name)
        texts = {
            "ys": [f"ys.append({self.tensor(s)})", f"ys += [{self.tensor(s)}]"],
            "zs": [f"zs.append({self.tensor(s)})"],
            "ps": [f"ps.append(({self.tensor(s)}, {self.value(s)}))"],
            "grown": [f"grown = paddle.concat([grown, ({self.tensor(s)}).unsqueeze(0)], axis=0)"],
        }[name]
        if name == "grown" or self.chance(0.75):
            return self.line(s, self.pick(*texts))
        self.line(s, f"if {self.condition(s)}:")
        self.line(s.inner(), texts[0])
        self.line(s, "else:")
        self.line(s.inner(), texts[0].replace(" + ", " - "))

    # ------------------------------------------------------------ branches and jumps
    def block(self, s: Scope, most: int) -> None:
        for _ in range(self.random.randint(1, most)):
            self.statement(s)

    def branch(self, s: Scope) -> None:
        inner = s.inner(branches=s.branches + 1)
        self.line(s, f"if {self.condition(s)}:")
        self.block(inner, 2)
        if self.chance(0.3):
            self.line(s, f"elif {self.condition(s)}:")
            self.block(inner, 2)
        if self.chance(0.5):
            self.line(s, "else:")
            self.block(inner, 2)

    def attempt(self, s: Scope) -> None:
        """An error of Python that does not depend on data, and a handler."""
        q = self.name("q")
        error, kind = self.pick(
            ("d['none']", "KeyError"), ("st[5]", "IndexError"), ("int('h')", "ValueError")
        )
        if s.helper:
            error, kind = "[h, c][4]", "IndexError"
        self.line(s, "try:")
        self.line(s.inner(), "h = self.mix(h, c)")
        self.line(s.inner(), f"{q} = {self.pick(error, 'c * 0.5')}")
        self.line(s, f"except {kind}:")
        self.line(s.inner(), f"{q} = {self.tensor(s)}")
        self.line(s, self.pick("finally:", "else:") if self.chance(0.5) else "if True:")
        self.line(s.inner(), "k += 1")
        self.line(s, f"c = {q} * 0.5")

    def jump(self, s: Scope) -> None:
        kinds = ["break", "break", "continue"] if len(self.loops) > 1 else []
        kinds += ["return"] if s.helper or (self.returns and not s.branches) else []
        around = self.loops[1:]
        stacked = any(q.filled and (not q.rolled or k) for k, q in enumerate(around))
        if not kinds or stacked or any("g" in q.filled for q in around):
            return self.assign(s)
        kind = self.pick(*kinds)
        self.line(s, f"if {self.condition(s)}:")
        if self.chance(0.4):
            self.pick(self.assign, self.number, *([] if s.helper else [self.write]))(
                s.inner(branches=s.branches + 1)
            )
        self.line(s.inner(), self.result(s) if kind == "return" else kind)
        self.note_exit(kind, s)

    def note_exit(self, kind: str, s: Scope) -> None:
        last = self.loops[-1]
        if s.branches or kind == "continue":
            last.exits = "anyhow"
        last.exits = last.exits or "leaves"
        if kind == "return":
            for q in self.loops:
                q.exits = q.exits or "leaves"
            self.loops[0].exits = "anyhow"

    def result(self, s: Scope) -> str:
        if s.helper:
            return f"return {self.tensor(s)}"
        out = "out * 1.0" if s.pad > 8 else "out"
        return (
            f"return {self.tensor(s)}, {SUMS}, {out}, self.b * 1, k, f, [st[0], {self.tensor(s)}]"
        )

    # ------------------------------------------------------------ loops
    def loop(self, s: Scope) -> None:
        if s.depth >= 2 + (s.branches == 0) or s.branches and s.depth >= 2:
            return self.assign(s)
        header = self.pick(
            self.over_time, self.over_time, self.over_time, self.over_python, self.until
        )
        before, head, t, regular, first, last = (self.over_python if s.helper else header)(s)
        for text in before:
            self.line(s, text)
        self.line(s, head)
        inner = s.inner(t=t or s.t, depth=s.depth + 1)
        rolled = any(q in head for q in ("while", "range", "x.transpose"))
        self.loops.append(Loop(regular, rolled))
        for text in first:
            self.line(inner, text)
        self.block(inner, 4 if s.depth == 0 else 2)
        for text in last:
            self.line(inner, text)
        done = self.loops.pop()
        self.loops[-1].filled |= done.filled
        if self.chance(0.2):
            self.line(s, "else:")
            self.block(s.inner(branches=s.branches + 1), 2)

    def over_time(self, s: Scope) -> tuple[Any, ...]:
        t, rows = "tuw"[s.depth], "x.transpose([1, 0, 2])"
        head, index = self.pick(
            (f"for {t} in range(x.shape[1]):", t),
            (f"for {t} in range(x.shape[1]):", t),
            (f"for {t} in range(x.shape[1] - 1, -1, -1):", t),
            (f"for {t} in reversed(range(x.shape[1])):", t),
            (f"for {t} in range(0, x.shape[1], 2):", t),
            (f"for {t}, q in enumerate({rows}):", t),
            (f"for q in {rows}:", None),
            (f"for q, r in zip({rows}, {rows} * 0.5):", None),
        )
        return [], head, index, True, ["c = c * 0.5 + q * 0.5"] if " q" in head else [], []

    def over_python(self, s: Scope) -> tuple[Any, ...]:
        i, v = self.name("i"), self.value(s)
        data = f"for {i} in range(int({v}.abs().sum() * 2.3) % 4):"
        short = [
            f"for {i} in range(3):",
            f"for {i}, q in enumerate([h, c]):",
            "for q in (h, c, h * 0.5):",
        ]
        if not s.helper:
            short += [f"for {i} in range(n):", "for q in d.values():", "for q in st:"]
        head = self.pick(data, *short)
        last = ["c = c * 0.5 + q * 0.25"] if " q" in head else [f"k = k + {i}"]
        return [], head, None, head != data, [], last

    def until(self, s: Scope) -> tuple[Any, ...]:
        """A `while`: bounded by a counter, by a tensor that shrinks, or by both."""
        i, m = self.name("i"), self.name("m")
        test = self.comparison(replace(s, depth=s.depth + 1))
        counter, step = [f"{i} = 0"], [f"{i} += 1"]
        shrinking = [f"{m} = {self.value(s)}.abs().sum() + 0.1"], [f"{m} = {m} * 0.4"]
        forms = [
            (counter, f"while {i} < {self.pick(3, 'n + 1', 'x.shape[1]')}:", step, True),
            (counter, f"while {i} < 4 and {test}:", step, False),
            (counter, f"while ({test}) and {i} < 3:", step, False),
            (shrinking[0], f"while {m} > 0.237:", shrinking[1], False),
            (shrinking[0] + counter, f"while {m} > 0.137 and {i} < 3:", shrinking[1] + step, False),
            (counter, "while True:", [*step, f"if {i} > {self.pick(2, 'n')}:", "    break"], True),
        ]
        before, head, first, regular = self.pick(*forms)
        return before, head, None, regular, first, []

    def statement(self, s: Scope) -> None:
        entries = [q for q in STATEMENTS if not s.helper or q[2]]
        entry = self.random.choices(entries, [q[0] for q in entries])[0]
        entry[1](self, s)


#: weight, statement, whether the helper method may have it
STATEMENTS: list[tuple[int, Callable[[Writer, Scope], None], bool]] = [
    (8, Writer.assign, True),
    (1, Writer.swap, True),
    (6, Writer.number, True),
    (4, Writer.store, False),
    (5, Writer.write, False),
    (2, Writer.view, False),
    (2, Writer.maybe_none, False),
    (2, Writer.short_list, True),
    (2, Writer.queue, False),
    (6, Writer.fill, False),
    (6, Writer.branch, True),
    (1, Writer.attempt, True),
    (5, Writer.jump, True),
    (4, Writer.loop, True),
]
