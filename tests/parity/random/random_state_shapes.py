"""Descriptions of Python objects for random programs: what is in them, and how they are written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

CONTAINERS = ("dict", "list", "obj", "deque")
KEYS = ("a", "b", "c")


@dataclass(eq=False)
class Shape:
    """An object: a tensor `t`, a number `n`, or a container with parts. `grown`: a list that is
    only appended to."""

    kind: str
    parts: dict[Any, Shape] = field(default_factory=dict)
    grown: bool = False

    @property
    def mutable(self) -> bool:
        return self.kind in CONTAINERS


@dataclass
class Place:
    """An expression for an object, and whether it can be assigned to."""

    text: str
    shape: Shape
    parent: Shape | None = None
    key: Any = None

    @property
    def stored(self) -> bool:
        return self.parent is None or self.parent.kind != "tuple"


def alike(a: Shape, b: Shape) -> bool:
    """Whether one can stand where the other does."""
    if a.kind != b.kind or list(a.parts) != list(b.parts) or a.grown or b.grown:
        return False
    return all(alike(q, b.parts[k]) for k, q in a.parts.items())


def inside(a: Shape, b: Shape) -> bool:
    """Whether `a` is `b` or in it."""
    return a is b or any(inside(a, q) for q in b.parts.values())


def walk(name: str, shape: Shape, depth: int = 3) -> Iterator[Place]:
    yield Place(name, shape)
    yield from below(name, shape, depth)


def below(text: str, shape: Shape, depth: int) -> Iterator[Place]:
    if depth == 0 or shape.grown:
        return
    for k, q in shape.parts.items():
        at = f"{text}.{k}" if shape.kind == "obj" else f"{text}[{k!r}]"
        yield Place(at, q, shape, k)
        yield from below(at, q, depth - 1)


def random_shape(rng: random.Random, depth: int = 2, deques: bool = True) -> Shape:
    """A container, or below the top a tensor or a number."""
    kinds = ["dict", "dict", "list", "list", "obj", "tuple", *["deque"] * deques]
    kind = rng.choice(kinds) if depth == 2 else rng.choice(["t", "t", "t", "n", *kinds[1:]])
    if kind in "tn" or depth == 0:
        return Shape("n" if kind == "n" else "t")
    if kind == "deque":
        return Shape("deque", {k: Shape("t") for k in range(rng.randint(1, 3))})
    n = rng.randint(1, 3)
    keys: Any = KEYS[:n] if kind in ("dict", "obj") else range(n)
    if rng.random() < 0.4:
        one = random_shape(rng, 0)
        return Shape(kind, {k: Shape(one.kind) for k in keys})
    return Shape(kind, {k: random_shape(rng, depth - 1, deques) for k in keys})


def text_of(shape: Shape, rng: random.Random) -> str:
    """A new object of this shape."""
    if shape.kind == "t":
        return f"v({rng.randint(-3, 3) * 0.25})"
    if shape.kind == "n":
        return str(rng.randint(0, 3))
    return written(shape, [text_of(q, rng) for q in shape.parts.values()])


def written(shape: Shape, parts: list[str]) -> str:
    """A display of a container with these parts."""
    listed = ", ".join(parts)
    if shape.kind == "dict":
        return "{" + ", ".join(f"{k!r}: {q}" for k, q in zip(shape.parts, parts)) + "}"
    if shape.kind == "obj":
        return "Obj(" + ", ".join(f"{k}={q}" for k, q in zip(shape.parts, parts)) + ")"
    if shape.kind == "deque":
        return f"collections.deque([{listed}], maxlen={len(parts)})"
    if shape.kind == "tuple":
        return f"({listed},)"
    return f"[{listed}]"
