"""Random structured programs do the same converted. DY2ST_SEED chooses others."""

from __future__ import annotations

import os
import random

import pytest

from dy2st.convert import convert
from tests.conftest import mostly_slow
from tests.dy2st.convert import convert_cases
from tests.dy2st.convert.plain_runtime import Runtime
from tests.dy2st.convert.test_convert import make, outcome

SEED = int(os.environ.get("DY2ST_SEED", "20240607"))


class Programs:
    """Random structured programs over a few integers, some of them unbound at first."""

    def __init__(self, seed):
        self.random, self.count = random.Random(seed), 0

    def pick(self, *options):
        return self.random.choice(options)

    def value(self):
        name = self.pick("a", "b", "c", "d", "e", "n")
        number = str(self.random.randrange(4))
        return self.pick(name, f"{name} + 1", f"{name} % 3", "peek()", number)

    def test(self):
        one = f"{self.value()} {self.pick('<', '==', '>', '!=')} {self.value()}"
        other = f"{self.value()} < {self.value()} <= {self.value()}"
        walrus = f"(d := {self.value()}) > 1"
        return self.pick(one, one, one, other, f"not {one}", f"{one} and {walrus}", f"{one} or b")

    def block(self, depth, loop):
        stmts = [s for _ in range(self.random.randrange(1, 4)) for s in self.stmt(depth, loop)]
        return ["    " + s for s in stmts]

    def stmt(self, depth, loop):
        name = self.pick("a", "b", "c", "d", "e")
        simple = [
            f"{name} = {self.value()}",
            f"{name} += {self.value()}",
            f"log({self.value()})",
            f"out.append({self.value()})",
            f"a, {name} = {self.value()}, {self.value()}",
            "bump()",
            f"out[-1:] = [{self.value()}]",
            "return " + self.value(),
            "raise KeyError(1)",
            f"{name} = 1 // {self.value()}",
            f"del {name}",
        ]
        weights = [6, 6, 4, 4, 3, 2, 1, 2, 1, 1, 0.3]
        if loop:
            simple, weights = [*simple, "break", "continue"], [*weights, 3, 3]
        if depth and self.random.random() < 0.55:
            return self.compound(depth - 1, loop)
        return self.random.choices(simple, weights)

    def compound(self, depth, loop):
        kind = self.pick("if", "if", "else", "for", "while", "try", "finally", "with")
        if kind == "for":
            head = f"for {self.pick('i', 'c', 'd')} in range({self.pick(2, 3)}):"
            return self.loop(head, depth, [])
        if kind == "while":
            self.count += 1
            k = f"k{self.count}"
            head = f"while {k} < 3 and ({self.test()}):"
            return [f"{k} = 0", *self.loop(head, depth, [f"    {k} += 1"])]
        body = self.block(depth, loop)
        if kind == "if":
            return [f"if {self.test()}:", *body]
        if kind == "else":
            return [f"if {self.test()}:", *body, "else:", *self.block(depth, loop)]
        if kind == "with":
            return [f"with Manager({self.pick(1, 2)}, {self.pick(True, False)}):", *body]
        if kind == "finally":
            return ["try:", *body, "finally:", "    log('f')", f"    c = {self.pick('1', 'n')}"]
        name = self.pick("KeyError", "(KeyError, NameError)", "ArithmeticError as e")
        extra = self.pick([], ["else:", *self.block(depth, loop)])
        return ["try:", *body, f"except {name}:", *self.block(depth, loop), *extra]

    def loop(self, head, depth, first):
        extra = self.pick([], [], ["else:", *self.block(depth, False)])
        return [head, *first, *self.block(depth, True), *extra]

    def function(self):
        head = ["def f(n, a, b):", "    out, c = [], 0"]
        inner = [
            "    def peek():",
            "        return c",
            "    def bump():",
            "        nonlocal b",
            "        b = b + 1",
        ]
        body = [s for _ in range(2) for s in self.compound(3, False)]
        end = ["    return out, " + self.pick("a", "d", "b, c", "a, e")]
        return "\n".join([*head, *inner, *("    " + s for s in body), *end]) + "\n"


@pytest.mark.parametrize("chunk", mostly_slow(range(6), 0, nightly=range(6, 10)))
def test_random_programs(chunk):
    print(f"DY2ST_SEED={SEED}")
    programs = Programs(SEED + chunk)
    for k in range(20):
        text, file = programs.function(), f"<random-{chunk}-{k}>"
        fn = make(text, file=file, log=convert_cases.log, Manager=convert_cases.Manager)
        new = convert(fn, Runtime())
        for args in [(0, 0, 0), (1, 2, 3), (3, 0, 1)]:
            want, got = outcome(fn, args, file), outcome(new, args, file)
            assert got[:3] == want[:3], text
            if "NameError" not in want[0]:  # CPython 3.11 may blame it on the line before
                assert [at for at, _ in got[3][-1:]] == [at for at, _ in want[3][-1:]], text
