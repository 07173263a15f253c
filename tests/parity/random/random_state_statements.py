"""The statements of random programs whose state is Python's."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.parity.random.random_state_shapes import (
    KEYS,
    Place,
    Shape,
    alike,
    inside,
    random_shape,
    text_of,
    walk,
    written,
)

DRAWS = ("random.random()", "random.uniform(-1, 1)", "random.gauss(0, 1)")


@dataclass(frozen=True)
class Scope:
    """Where a statement stands: in a loop, in a branch on data, outside of the function."""

    loops: int = 0
    data: bool = False
    depth: int = 0
    outside: bool = False


class Writer:
    """Writes statements for the objects that `env` describes."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.env: dict[str, Shape] = {}
        self.lines: list[str] = []
        self.indent = 2
        self.count = 0
        self.row = "x[0]"
        self.draws = rng.random() < 0.2

    # ------------------------------------------------------------ the parts of a program
    def roots(self, names: tuple[str, ...], count: int) -> dict[str, Shape]:
        return {n: random_shape(self.rng) for n in names[:count]}

    def between(self, env: dict[str, Shape]) -> list[str]:
        """What the caller does between two calls."""
        self.env, self.lines, self.indent = dict(env), [], 1
        for _ in env:
            if self.rng.random() < 0.4:
                self.row = "v(0.5)"
                kinds = [self.store, self.swap_slots, self.rebind, self.new_key, self.shift]
                self.rng.choice(kinds)(Scope(outside=True))
        return [*self.lines, "    return None"]

    def program(self, env: dict[str, Shape]) -> list[str]:
        self.env, self.lines, self.indent = {**env, "n": Shape("n")}, [], 2
        self.row = "x[0]"
        self.line("h, ys, zs = v(0.25), [], []")
        self.env["h"] = Shape("t")
        self.env["ys"] = Shape("list", grown=True)
        for _ in range(self.rng.randint(1, 3)):
            name = self.fresh("u")
            shape = random_shape(self.rng)
            self.line(f"{name} = {text_of(shape, self.rng)}")
            self.env[name] = shape
        for _ in range(self.rng.randint(4, 8)):
            self.statement(Scope())
        self.line(f"return {self.results()}")
        return self.lines

    def results(self) -> str:
        """Tensors, and containers that a call can return."""
        plain = [q.text for q in self.places() if returned(q.shape)]
        chosen = self.rng.sample(plain, min(len(plain), self.rng.randint(2, 5)))
        return ", ".join(["h", "ys", "zs", *chosen])

    # ------------------------------------------------------------ text
    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def fresh(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def places(self, keep: Callable[[Place], bool] = lambda p: True) -> list[Place]:
        return [p for n, s in self.env.items() for p in walk(n, s) if keep(p)]

    def place(self, keep: Callable[[Place], bool]) -> Place | None:
        found = self.places(keep)
        return self.rng.choice(found) if found else None

    def tensor(self) -> str:
        """An expression for a tensor."""
        found = [p.text for p in self.places(lambda p: p.shape.kind == "t")]
        a, b = self.rng.choice(found), self.rng.choice([*found, self.row, self.row])
        sums = [p.text for p in self.places(lambda p: plain_list(p.shape))]
        if sums and self.rng.random() < 0.15:
            return f"total(*{self.rng.choice(sums)}) * 0.25"
        n = self.number()
        if self.draws and self.rng.random() < 0.2:
            return f"{a} * 0.5 + {self.rng.choice(DRAWS)} * 0.25"
        return self.rng.choice(
            [f"paddle.tanh({a} + {b})", f"{a} * 0.5 + {b} * 0.25", f"{a} * 0.5 + {n} * 0.125", a]
        )

    def number(self) -> str:
        found = [p.text for p in self.places(lambda p: p.shape.kind == "n")]
        return self.rng.choice([*found, "2"])

    def value(self, shape: Shape, deep: bool = True) -> tuple[str, Shape]:
        """An expression for an object like `shape`, with its description: a new one, or one that
        is there already."""
        if shape.kind == "t":
            return self.tensor(), Shape("t")
        if shape.kind == "n":
            return f"({self.number()} + 1) % 5", Shape("n")
        like = self.places(lambda p: alike(p.shape, shape) and p.shape.mutable)
        if not deep and like and self.rng.random() < 0.4:
            p = self.rng.choice(like)
            return p.text, p.shape
        if like and (self.rng.random() < 0.5 or not is_plain(shape)):
            return self.copy(self.rng.choice(like))
        parts = {k: self.value(q, False) for k, q in shape.parts.items()}
        text = written(shape, [t for t, _ in parts.values()])
        return text, Shape(shape.kind, {k: q for k, (_, q) in parts.items()})

    def copy(self, p: Place) -> tuple[str, Shape]:
        """A new container with the elements of another one."""
        s, made = p.shape, Shape(p.shape.kind, dict(p.shape.parts))
        tensors = all(q.kind == "t" for q in s.parts.values())
        if s.kind == "dict":
            texts = [f"dict({p.text})", f"{p.text}.copy()", f"{{**{p.text}}}"]
            texts += [
                f"mix({p.text}, {self.row})",
                f"{{k: q * 0.5 for k, q in {p.text}.items()}}",
            ] * (tensors)
        elif s.kind == "list":
            texts = [f"list({p.text})", f"{p.text}[:]", f"{p.text}.copy()"]
            texts += [f"mix({p.text}, {self.row})", f"[q * 0.5 for q in {p.text}]"] * tensors
            texts += [f"{p.text}[1:] + [{self.tensor()}]"] * tensors
        else:
            texts = [f"copy.copy({p.text})"]
        text = self.rng.choice(texts)
        if tensors:
            made.parts = {k: Shape("t") for k in s.parts}
        return text, made

    # ------------------------------------------------------------ statements
    def statement(self, scope: Scope) -> None:
        kinds: list[tuple[float, Callable[[Scope], object]]] = [
            (6, self.store),
            (2, self.helper),
            (1.5, self.every),
            (1, self.swap_tensors),
            (1, self.grow),
        ]
        if not scope.data:
            kinds += [
                (2, self.rebind), (1.5, self.alias), (0.6, self.swap), (0.6, self.swap_slots),
                (1, self.shift), (1, self.take_and_put),
            ]  # fmt: skip
            kinds += [(0.8, self.collect), (0.8, self.by_index), (0.6, self.closure)]
            if not scope.loops:
                kinds += [(1, self.new_key), (0.5, self.iterate), (0.7, self.other_kinds)]
            else:
                kinds += [(0.4, self.new_key)]
        else:
            kinds += [(0.3, self.rebind)]
        if scope.depth < 2:
            kinds += [(3 if scope.loops == 0 else 0.7, self.loop), (1, self.branch)]
        weights = [k for k, _ in kinds]
        for _ in range(5):
            if self.rng.choices([f for _, f in kinds], weights)[0](scope) is not False:
                return
        self.store(scope)

    def block(self, scope: Scope, least: int = 1, most: int = 3) -> None:
        self.indent += 1
        start = len(self.lines)
        for _ in range(self.rng.randint(least, most)):
            self.statement(scope)
        if len(self.lines) == start:
            self.line("pass")
        self.indent -= 1

    def store(self, scope: Scope) -> object:
        p = self.place(lambda p: p.shape.kind in "tn" and p.stored and p.text != "n")
        if p is None:
            return False
        if p.shape.kind == "n":
            self.line(f"{p.text} = ({self.number()} + {self.rng.randint(1, 2)}) % 5")
        else:
            self.line(f"{p.text} = {self.tensor()}")
        return True

    def helper(self, scope: Scope) -> object:
        p = self.place(lambda p: p.shape.kind in ("dict", "list") and any_tensor(p.shape))
        if p is None:
            return False
        key = self.rng.choice([k for k, q in p.shape.parts.items() if q.kind == "t"])
        call = f"put({p.text}, {key!r}, {self.tensor()})"
        self.line(f"{p.text} = {call}" if p.parent is None and "." not in p.text else call)
        return True

    def every(self, scope: Scope) -> object:
        """A Python loop over a container."""
        p = self.place(lambda p: p.shape.kind in ("dict", "list") and flat(p.shape))
        if p is None:
            return self.every_inner(scope)
        if p.shape.kind == "dict":
            self.line(
                self.rng.choice(
                    [
                        f"each({p.text}, {self.row})",
                        f"{p.text}.update({{k: q * 0.5 for k, q in {p.text}.items()}})",
                        f"for k, q in pairs({p.text}): h = h * 0.5 + q",
                    ]
                )
            )
        else:
            self.line(
                f"for i in range(len({p.text})): {p.text}[i] = {p.text}[i] * 0.5 + {self.row}"
            )
        return True

    def every_inner(self, scope: Scope) -> object:
        """A loop over containers in a container, which writes each."""
        p = self.place(
            lambda p: p.shape.kind in ("list", "tuple")
            and bool(p.shape.parts)
            and all(q.kind == "dict" and "a" in q.parts and q.parts["a"].kind == "t"
                    for q in p.shape.parts.values())
        )  # fmt: skip
        if p is None:
            return False
        self.line(f'for q in {p.text}: q["a"] = q["a"] * 0.5 + {self.row}')
        return True

    def grow(self, scope: Scope) -> object:
        if scope.data:
            return False
        self.line(f"ys.append(({self.tensor()}) * 0.5)")
        return True

    def swap_tensors(self, scope: Scope) -> object:
        found = self.places(lambda p: p.shape.kind == "t" and p.stored)
        if len(found) < 2:
            return False
        a, b = self.rng.sample(found, 2)
        self.line(f"{a.text}, {b.text} = {b.text}, {a.text}")
        return True

    def rebind(self, scope: Scope) -> object:
        """A variable or slot gets another container of the same structure."""
        p = self.place(lambda p: p.shape.mutable and p.stored and not p.shape.grown)
        if p is None:
            return False
        text, made = self.value(p.shape)
        self.line(f"{p.text} = {text}")
        self.assign(p, made)
        return True

    def assign(self, p: Place, made: Shape) -> None:
        if p.parent is not None:
            p.parent.parts[p.key] = made
        else:
            self.env[p.text] = made

    def alias(self, scope: Scope) -> object:
        p = self.place(lambda p: p.shape.mutable and not p.shape.grown)
        if p is None:
            return False
        name = self.fresh("s")
        self.line(f"{name} = {p.text}")
        self.env[name] = p.shape
        return True

    def swap(self, scope: Scope) -> object:
        return self.exchange(lambda p: p.parent is None)

    def swap_slots(self, scope: Scope) -> object:
        return self.exchange(lambda p: p.parent is not None and p.stored)

    def exchange(self, keep: Callable[[Place], bool]) -> object:
        found = self.places(lambda p: p.shape.mutable and keep(p) and p.stored)
        pairs = [
            (p, q) for p in found for q in found
            if p.shape is not q.shape and alike(p.shape, q.shape)
            and not contains(p, q) and not contains(q, p)
        ]  # fmt: skip
        if not pairs:
            return False
        p, q = self.rng.choice(pairs)
        self.line(f"{p.text}, {q.text} = {q.text}, {p.text}")
        one, two = p.shape, q.shape
        self.assign(p, two)
        self.assign(q, one)
        return True

    def shift(self, scope: Scope) -> object:
        """A window: the first element goes, another one comes."""
        p = self.place(lambda p: p.shape.kind in ("list", "deque") and flat(p.shape))
        if p is None:
            return False
        if p.shape.kind == "deque":
            self.line(
                self.rng.choice(
                    [f"{p.text}.append({self.tensor()})", f"{p.text}.rotate(1)",
                     f"{p.text}.appendleft({p.text}.pop())"]
                )
            )  # fmt: skip
            return True
        self.line(f"{p.text}.append({self.tensor()})")
        self.line(f"{p.text}.pop(0)")
        return True

    def take_and_put(self, scope: Scope) -> object:
        """An inner container is taken out, changed, and put back."""
        p = self.place(
            lambda p: p.parent is not None and p.parent.kind == "dict" and p.shape.kind == "dict"
            and any_tensor(p.shape)
        )  # fmt: skip
        if p is None or p.parent is None:
            return False
        outer = p.text[: p.text.rindex("[")]
        key = next(k for k, q in p.shape.parts.items() if q.kind == "t")
        name = self.fresh("w")
        self.line(f"{name} = {outer}.pop({p.key!r})")
        self.line(f"{name}[{key!r}] = {name}[{key!r}] * 0.5 + {self.row}")
        self.line(f"{outer}[{p.key!r}] = {name}")
        p.parent.parts[p.key] = p.parent.parts.pop(p.key)
        self.env[name] = p.shape
        return True

    def new_key(self, scope: Scope) -> object:
        p = self.place(lambda p: p.shape.kind in ("dict", "obj") and len(p.shape.parts) < 5)
        if p is None:
            return False
        key = "late" if scope.outside else self.fresh("e")
        at = f"{p.text}[{key!r}]" if p.shape.kind == "dict" else f"{p.text}.{key}"
        if self.rng.random() < 0.3 and not scope.loops:
            made = random_shape(self.rng, 1)
            text, made = self.value(made)
        else:
            text, made = self.tensor(), Shape("t")
        if any(inside(p.shape, q) for q in [made]):
            return False
        self.line(f"{at} = {text}")
        p.shape.parts[key] = made
        return True

    def iterate(self, scope: Scope) -> object:
        """An iterator of the function's own."""
        name = self.fresh("it")
        tensors = [self.tensor() for _ in range(3)]
        self.line(f"{name} = iter([{', '.join(tensors)}])")
        self.line(f"h = h * 0.5 + next({name})")
        self.line(f"h = h * 0.5 + next({name})")
        return True

    def collect(self, scope: Scope) -> object:
        """A list gets containers: a new one, or one that has another name."""
        p = self.place(lambda p: p.shape.kind in ("dict", "list", "tuple") and any_tensor(p.shape))
        if p is None:
            return False
        text = p.text if self.rng.random() < 0.4 else self.value(p.shape)[0]
        self.line(f"zs.append({text})")
        return True

    def by_index(self, scope: Scope) -> object:
        """A Python loop over the indices of a list of containers."""
        p = self.place(
            lambda p: p.shape.kind == "list" and bool(p.shape.parts)
            and all(q.kind == "dict" and any_tensor(q) for q in p.shape.parts.values())
        )  # fmt: skip
        if p is None:
            return False
        key = next(k for k, q in p.shape.parts[0].parts.items() if q.kind == "t")
        if not all(q.parts.get(key, Shape("n")).kind == "t" for q in p.shape.parts.values()):
            return False
        self.line(f"for i in range(len({p.text})):")
        self.line(f"    h, {p.text}[i] = step({p.text}[i], {key!r}, h)")
        return True

    def closure(self, scope: Scope) -> object:
        """An inner function that rebinds a variable of the outer one, or writes its container."""
        p = self.place(lambda p: p.parent is None and p.shape.mutable and any_tensor(p.shape)
                       and p.text.isidentifier())  # fmt: skip
        if p is None or p.shape.kind == "obj":
            return False
        key = next(k for k, q in p.shape.parts.items() if q.kind == "t")
        name = self.fresh("f")
        self.line(f"def {name}(q):")
        if self.rng.random() < 0.5 and p.shape.kind in ("dict", "list"):
            self.line(f"    nonlocal {p.text}")
            self.line(f"    {p.text} = {p.text}.copy()")
            self.assign(p, Shape(p.shape.kind, dict(p.shape.parts)))
        self.line(f"    {p.text}[{key!r}] = {p.text}[{key!r}] * 0.5 + q")
        self.line(f"    return {p.text}[{key!r}]")
        self.line(f"h = h * 0.5 + {name}({self.tensor()})")
        return True

    def other_kinds(self, scope: Scope) -> object:
        """Dicts of other classes, which the function makes and uses."""
        name, loop = self.fresh("m"), self.fresh("t")
        kind = self.rng.choice(["ordered", "default", "counter", "namespace", "set"])
        a, b = self.tensor(), self.tensor()
        start, step = {
            "ordered": (f"{name} = collections.OrderedDict(a={a}, b={b})",
                        [f'{name}["a"] = {name}["a"] * 0.5 + {self.row}',
                         f'{name}.move_to_end("a")']),
            "default": (f"{name} = collections.defaultdict(lambda: v(0.5))",
                        [f'{name}["a"] = {name}["a"] * 0.5 + {b}', f'{name}[{loop}] = {a}']),
            "counter": (f"{name} = collections.Counter()",
                        [f'{name}["a"] += 1', f'h = h * 0.5 + {name}["a"] * 0.125']),
            "namespace": (f"{name} = SimpleNamespace(a={a}, n=0)",
                          [f"{name}.a = {name}.a * 0.5 + {self.row}", f"{name}.n += 1"]),
            "set": (f"{name} = set()", [f"{name}.add({loop} % 2)", f"h = h + len({name}) * 0.125"]),
        }[kind]  # fmt: skip
        self.line(start)
        self.line(f"for {loop} in range(3):")
        for text in step:
            self.line(f"    {text}")
        if kind in ("ordered", "default"):
            self.line(f'h = h * 0.5 + {name}["a"]')
        elif kind == "namespace":
            self.line(f"h = h * 0.5 + {name}.a * {name}.n * 0.25")
        return True

    # ------------------------------------------------------------ loops and branches
    def loop(self, scope: Scope) -> object:
        inner = replace(scope, loops=scope.loops + 1, depth=scope.depth + 1)
        row, name = self.row, self.fresh("t")
        head, self.row = self.rng.choice(
            [
                (f"for {name} in range(x.shape[0]):", f"x[{name}]"),
                (f"for {name} in range(3):", f"x[{name}]"),
                (f"for {name} in x:", name),
                (f"for {name} in range(n):", row),
                (f"for {name}, q in enumerate(x):", "q"),
                (f"while {name}.sum() < {self.rng.randint(1, 3)}.5:", row),
            ]
        )
        if head.startswith("while"):
            self.line(f"{name} = v(0)")
        self.line(head)
        if head.startswith("while"):
            self.line(f"    {name} = {name} + 0.5")
        self.block(inner, 1, 4)
        if self.rng.random() < 0.1 and not scope.data:
            self.indent += 1
            self.line(f"if ({self.tensor()}).sum() > 1.5:")
            self.line("    break")
            self.indent -= 1
        self.row = row
        return True

    def branch(self, scope: Scope) -> object:
        inner = replace(scope, depth=scope.depth + 1)
        if self.rng.random() < 0.5:
            self.line(f"if {self.number()} % 2 == 0:")
            kept = replace(inner, data=True)
        else:
            self.line(f"if ({self.tensor()}).sum() > 0.25:")
            kept = replace(inner, data=True)
        self.block(kept, 1, 2)
        if self.rng.random() < 0.6:
            self.line("else:")
            self.block(kept, 1, 2)
        return True


def returned(shape: Shape) -> bool:
    """Whether a call can return it."""
    return shape.kind in ("t", "n", "dict", "list", "tuple") and all(
        returned(q) for q in shape.parts.values()
    )


def is_plain(shape: Shape) -> bool:
    """Whether a display can make it: an object has the fields that its class knows."""
    known = shape.kind != "obj" or set(shape.parts) <= set(KEYS)
    return known and all(is_plain(q) for q in shape.parts.values())


def flat(shape: Shape) -> bool:
    return bool(shape.parts) and all(q.kind == "t" for q in shape.parts.values())


def plain_list(shape: Shape) -> bool:
    return shape.kind in ("list", "tuple", "deque") and flat(shape)


def any_tensor(shape: Shape) -> bool:
    return any(q.kind == "t" for q in shape.parts.values())


def contains(p: Place, q: Place) -> bool:
    """Whether the container of `q` is in `p`."""
    return q.parent is not None and inside(q.parent, p.shape)


__all__ = ["Scope", "Writer"]
