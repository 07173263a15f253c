"""Numbers in containers that change from call to call, beside a tensor and a text.

Each place is rebound or changed in each way, in loops, branches and helpers, while the caller
changes the text and the number between the calls: five calls are as in eager.
"""

from __future__ import annotations

import copy
import linecache
import types

import numpy as np
import paddle
import pytest

import dy2st
from tests.portrait import difference, portrait

#: a place with a tensor h, a number n and a text: how it begins, is read, and is written
PLACES = {
    "tuple": ("(one, n, 'a')", "s.q", "s.q = (h, n, name)"),
    "nested": ("('a', (0, (one, n)))", "(*s.q[1][1], s.q[0])", "s.q = (name, (0, (h, n)))"),
    "in a list": ("[(one, n, 'a')]", "s.q[0]", "s.q[0] = (h, n, name)"),
    "in a dict": ("dict(k=(one, n, 'a'))", "s.q['k']", "s.q['k'] = (h, n, name)"),
    "in a deque": ("deque([(one, n, 'a')], maxlen=1)", "s.q[0]", "s.q.append((h, n, name))"),
    "dict in a tuple": ("(dict(h=one, n=n, m='a'), 5)", "tuple(s.q[0].values())",
                        "s.q[0].update(h=h, n=n, m=name)"),
    "named": ("Named(one, n, 'a')", "s.q", "s.q = s.q._replace(h=h, n=n, name=name)"),
    "frozen": ("Frozen(one, n, 'a')", "(s.q.h, s.q.n, s.q.name)", "s.q = Frozen(h, n, name)"),
    "list": ("[one, n, 'a']", "s.q", "s.q = [h, n, name]"),
    "object": ("Space(h=one, n=n, m='a')", "(s.q.h, s.q.n, s.q.m)",
               "s.q.h, s.q.n, s.q.m = h, n, name"),
}  # fmt: skip
USES = {
    "once": "step()",
    "loop": "for t in range(4): step()",
    "loops": "for t in range(8): step() if t % 2 else other()",
    "branch": "if x.sum() > 0: step()\n    else: other()",
    "one branch": "if x.sum() > 0: step()",
    "branch in a loop": "for row in x:\n        if row.sum() > 0: step()",
    "while": "y = x.abs().sum()\n    while y > 1: y = y * 0.5; step()",
    "if": "for t in range(3): other() if place()[1] > 3 else step()",
    "read in a loop": "h = sum([x[t] * place()[1] for t in range(4)]); step()",
    "vars": "h = x[0] * len([v for k, v in vars(s).items() if k == 'q' and v]); step()",
    "copied": "n = place()[1]; s.seen = copy.copy(s).q is s.q; step()",
}
PROGRAM = """
import copy
from collections import deque, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace as Space

Named = namedtuple("Named", "h n name")

@dataclass(frozen=True)
class Frozen:
    h: object; n: float; name: str

s, one, n = Space(), ones([4]), {start}
s.q, s.seen = {begin}, None

def place():
    return {read}

def put(h, n, name):
    {write}

def step():
    h, n, name = place()
    put(h * 0.5 + 0.25, n + 1, name)

def other():
    h, n, name = place()
    put(h * 0.25, n + 2, name)

def f(x):
    {use}
    h, n, name = place()
    return h * n, n, len(name)

def change(k):
    h, n, name = place()
    put(h, n + {start} * (k == 3), name + "b" * (k == 2))
"""


def made(place, use, start):
    begin, read, write = PLACES[place]
    text = PROGRAM.format(begin=begin, read=read, write=write, use=USES[use], start=start)
    name = f"<{place}, {use}, {start}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space = {"ones": paddle.ones, "__name__": __name__}
    exec(compile(text, name, "exec"), space)
    return types.SimpleNamespace(**space)


@pytest.mark.sampled(every=24)
@pytest.mark.paired
@pytest.mark.parametrize("start", ["0", "0.5"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("place", PLACES)
def test_numbers_that_move(place, use, start):
    eager, mine = made(place, use, start), made(place, use, start)
    static = dy2st.to_static(mine.f)
    for k in range(5):
        for q in (eager, mine) if k else ():
            q.change(k)
        numbers = np.random.default_rng(k).integers(-8, 9, [4, 4]) / 4
        x = paddle.to_tensor(numbers.astype("float32"))
        want = copy.deepcopy(eager.s), eager.f(x), eager.s
        try:
            have = copy.deepcopy(mine.s), static(x), mine.s
        except dy2st.SourceError as e:
            assert k == 0 and "data" in str(e)  # decides which object it is
            return
        assert not difference(portrait(have), portrait(want)), f"call {k}"
