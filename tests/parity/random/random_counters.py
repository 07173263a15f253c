"""Counters in random programs: numbers of the Layer that change in each call and decide about what
no program can merge.

`counted(seed, made, body)` adds them to three of ten programs, by a generator of their own, so that
the others stay as they were.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

#: calls of a program with counters, and of any other one
CALLS = {True: 9, False: 4}
MADE = (
    "self.c, self.p, self.log, self.mode = 0, 1.0, [], 'a'",
    "self.names, self.on = ['a', 'b', 'c'], {'c': 0}",
)
CONDITIONS = (
    "self.c % {k} == {j}", "not self.c % {k}", "self.c > {m}", "{j} < self.c <= {m}",
    "self.c in ({j}, {m})", "self.p < 0.5", "self.c % {k} == {j} and x.shape[0] == 3",
    "self.c > {m} or self.p > 0.7", "self.on['c'] % {k} == {j}", "min(self.c, {m}) == {j}",
    "self.c % {k} == {j} and h.sum() > 0", "(self.c + self.on['c']) // {k} % 2",
    "n * self.c % {k} == {j}", "not (self.c % {k} and self.p < 0.8)",
)  # fmt: skip
EFFECTS = (
    "self.log.append(self.c)", "self.log.append(h * 0.5)", "self.mode = 'late'",
    "self.mode = self.names[self.c % 3]", "self.log = []", "self.c = 0", "print(self.c, self.p)",
    "h = h * 0.5", "h = h.detach()", "ys.append(h)", "self.log.append({'n': self.c})",
    "self.on[self.c % 2] = h * 2.0", "self.kept = h * 0.25", "return h, ys", "self.p = 1.0",
    "zs = [h, *zs]", "self.names.reverse()", "self.on = {'c': self.c}",
)  # fmt: skip
#: statements that are no conditions
OTHERS = ("self.mode = self.names[self.c % len(self.names)]", "h = h * self.p", "ys.append(self.c)")


def has_counters(seed: int) -> bool:
    return random.Random(f"{seed} counters").random() < 0.3


def counted(seed: int, made: Sequence[str], body: Sequence[str]) -> tuple[list[str], list[str]]:
    """The lines of `__init__` and of `forward`, with counters if the program has some."""
    if not has_counters(seed):
        return [*made], [*body]
    rng, lines = random.Random(f"{seed} conditions"), [*body]
    for _ in range(rng.randint(1, 3)):
        places = [k for k, line in enumerate(lines) if k and re.match(r" {8}\S", line)]
        at = rng.choice([k for k in places if not lines[k].lstrip().startswith("else")])
        lines[at:at] = statement(rng, [line.strip() for line in body if is_effect(line)])
    lines[1:1] = ["        self.c += 1", "        self.p *= 0.8", "        self.on['c'] += 2"]
    return [*made, *(f"        {line}" for line in MADE)], lines


def is_effect(line: str) -> bool:
    """Whether a line changes an object, and no variable."""
    return re.match(r" {8}[\w.\[\]']+(\.\w+\(| = |\[)", line) is not None and (
        re.match(r" {8}(\w+ = |for |while |if |def |return |with |try|del )", line) is None
    )


def statement(rng: random.Random, known: Sequence[str]) -> list[str]:
    """A condition on the counters with what it decides about."""
    if rng.random() < 0.15:
        return [f"        {rng.choice(OTHERS)}"]
    test = rng.choice(CONDITIONS).format(
        k=rng.randint(2, 4), j=rng.randint(0, 2), m=rng.randint(2, 6)
    )
    effects = [*EFFECTS, *rng.sample(known, min(len(known), 6))]
    lines = [f"        if {test}:", f"            {rng.choice(effects)}"]
    if rng.random() < 0.3:
        lines.insert(1, f"            {rng.choice(EFFECTS[:2])}")
    if rng.random() < 0.3:
        lines += ["        else:", f"            {rng.choice(effects)}"]
    if rng.random() < 0.2:
        head = "        for row in x:" if rng.random() < 0.5 else "        for t in range(3):"
        lines = [head, *(f"    {line}" for line in lines)]
    return lines


__all__ = ["CALLS", "counted", "has_counters"]
