"""Conditions on Python numbers that change from call to call: one program for each truth.

Each function runs 32 times, eagerly and translated: results, gradients, Python state, what is
printed, and the number of programs.
"""

from __future__ import annotations

import contextlib
import io
import types

import paddle
import pytest

import dy2st
from dy2st.state.signature import Signature
from tests import check

STEP = 0


class Model(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        paddle.seed(1)
        self.a, self.b = paddle.nn.Linear(3, 3), paddle.nn.Linear(3, 3)
        self.step, self.rest, self.every, self.p, self.state = 0, 0, 7, 1.0, {"n": 0, "of": [2, 3]}
        self.log, self.mode, self.h, self.best = [], "warm", None, float("inf")
        self.table, self.names = {0: self.a, 1: self.b, 2: self.a}, ["a", "b", "c"]


CASES = {}


def case(programs):
    def note(f):
        CASES[f.__name__] = f, programs
        return f

    return note


# ---------------------------------------------------------------- effects that no program can merge
@case(3)
def appends(self, x):
    self.step += 1
    y = self.a(x)
    if self.step % 10 == 0:
        self.log.append(y.mean())
    if self.step > 20:  # in the program
        y = y * 0.5
    return y


@case(3)
def counts_another(self, x):
    self.step += 1
    if not self.step % self.every:
        self.log.append(self.step)
    return self.a(x)


@case(4)
def rebinds(self, x):
    self.step += 1
    if self.step in (10, 20):
        self.mode = f"after {self.every}"
    elif self.step == 25:
        self.log = []
    return self.a(x)


@case(3)
def chooses_a_layer(self, x):
    self.step += 1
    layer = self.b if self.step % 4 == 0 else self.a
    return layer(x)


@case(3)
def returns_early(self, x):
    self.step += 1
    if self.step < 5:
        return x, None
    return self.a(x), self.step


@case(3)
def has_none(self, x):
    self.step += 1
    if self.step % 4 == 0:
        return None
    return self.a(x)


@case(3)
def resets(self, x):
    self.step += 1
    if self.step == 7:
        self.step = 0
        self.log.append("again")
    return self.a(x)


@case(3)
def freezes(self, x):
    """In eager the first Layer has no gradient at all for the first calls."""
    self.step += 1
    h = self.a(x)
    if self.step <= 10:
        h = h.detach()
    return self.b(h)


@case(3)
def longer(self, x):
    self.step += 1
    rows = [self.a(x)]
    if self.step % 3 == 0:
        rows.append(x)
    return paddle.concat(rows)


@case(3)
def raises_inside(self, x):
    self.step += 1
    try:
        if self.step % 5 == 0:
            raise ValueError("five")
        y = self.a(x)
    except ValueError:
        y = self.b(x)
    return y


# ---------------------------------------------------------------- conditions
@case(3)
def chained(self, x):
    self.step += 1
    if 5 <= self.step < 12:
        self.log.append(self.step)
    return self.a(x)


@case(4)
def nested(self, x):
    self.step += 1
    if self.step % 3 == 0:
        if self.step % 2 == 0:
            self.log.append(x.mean())
        else:
            self.mode = "odd"
    return self.a(x)


@case(3)
def and_or(self, x):
    self.step += 1
    self.rest += 3
    if self.step > 5 and (self.step + self.rest) % 3 == 0 or self.step == 1:
        self.log.append(self.rest)
    return self.a(x)


@case(3)
def with_functions(self, x):
    self.step += 1
    q, r = divmod(self.step, 6)
    if min(r, 4) == max(0, 1) and abs(-self.step) // 1 > 3 and int(self.step / 2) != 4:
        self.log.append(q)
    return self.a(x)


@case(3)
def any_of(self, x):
    self.step += 1
    if any(self.step % k == 0 for k in (5, 7)) and not self.step & 1:
        self.log.append(self.step)
    return self.a(x)


@case(3)
def floats(self, x):
    self.p = max(0.05, self.p * 0.9)
    if self.p < 0.1:
        self.mode = "cold"
    return self.a(x) * self.p


@case(3)
def in_a_dict(self, x):
    self.state["n"] += 1
    if self.state["n"] % self.state["of"][1] == 0:
        self.log.append(self.state["n"])
    return self.a(x)


@case(3)
def a_global(self, x):
    global STEP
    STEP += 1
    if STEP % 10 == 0:
        self.log.append(STEP)
    return self.a(x)


@case(3)
def of_a_helper(self, x):
    self.step += 1

    def due(every):
        return self.step % every == 0

    log = due(5)
    y = self.a(x)
    if log:
        self.log.append(self.step)
    if log:
        self.log.append(y.sum())
    return y


@case(4)
def matches(self, x):
    self.step += 1
    match self.step % 4:
        case 0:
            self.log.append("zero")
        case 1:
            self.log.append("one")
    return self.a(x)


@case(3)
def filters(self, x):
    self.step += 1
    return [x * k for k in (1, 2, 3) if self.step % 2 == 0]


# ---------------------------------------------------------------- loops
@case(3)
def in_a_loop(self, x):
    self.step += 1
    ys = []
    for row in x:
        if self.step > 3:
            ys.append(row * 2)
    return len(ys), ys


@case(3)
def in_some_iterations(self, x):
    self.step += 1
    for t in range(12):
        x = x * 0.9
        if t % 4 == 0 and self.step % 5 == 0:
            self.log.append(x.mean())
    return x


@case(4)
def counts_to_it(self, x):
    self.step += 1
    k = 0
    while k < self.step % 3:
        self.log.append(k)
        k += 1
    return self.a(x)


# ---------------------------------------------------------------- numbers themselves
@case(4)
def takes_turns(self, x):
    layer = self.table[self.step % 3]
    self.mode = self.names[self.step % len(self.names)]
    self.step += 1
    return layer(x)


# ---------------------------------------------------------------- one program serves both sides
@case(2)
def merges(self, x):
    self.step += 1
    y = self.a(x)
    if self.step < 10:
        y = y * 0.5
    if self.step % 10 == 0:
        text = f"step {self.step}"
        print(text)
    assert self.step < 1000
    return y * min(1.0, self.step / 10)


def calls(f, translated):
    global STEP
    STEP, model, found, shown = 0, Model(), [], io.StringIO()
    function = f.__get__(model)
    function = dy2st.to_static(function) if translated else function
    names = ("step", "rest", "p", "state", "log", "mode", "h")
    with contextlib.redirect_stdout(shown):
        for k in range(32):
            x = check.data(2, 3, seed=k, dtype="float32")
            out = function(x)
            trained = [q for q in check.tensors(out) if not q.stop_gradient]
            if trained:
                paddle.add_n([q.sum() for q in trained]).backward()
            grads = [None if q.grad is None else q.grad.clone() for q in (x, *model.parameters())]
            state = {n: getattr(model, n) for n in names}
            state["log"] = list(model.log)
            state["state"] = dict(model.state)
            found.append((out, [q.stop_gradient for q in check.tensors(out)], grads, state, STEP))
            for q in model.parameters():
                q.clear_gradient()
                q.grad = None
    return found, shown.getvalue(), function


@pytest.mark.parametrize("name", CASES)
def test_one_program_for_each_truth(name):
    f, programs = CASES[name]
    want, printed, _ = calls(f, False)
    have, shown, static = calls(f, True)
    for k, (a, b) in enumerate(zip(have, want)):
        check.same(a, b, what=f"call {k}")
    assert shown == printed
    assert dy2st.explain(static).made == programs


# ---------------------------------------------------------------- calls
def told(function):
    return [str(q) for q in dy2st.explain(function).reasons]


@pytest.mark.parametrize("spec", [None, [paddle.static.InputSpec([None, 3], "float32", "x")]])
def test_arguments(spec):
    log = []

    @dy2st.to_static(input_spec=spec)
    def f(x, epoch, *, lr):
        if epoch % 5 == 0:
            log.append(x.mean())
        if lr < 0.05:
            log.append("small")
        return x * (epoch * lr)

    x, want = paddle.ones([2, 3]), 0
    for epoch in range(32):
        lr = 0.4 / (1 + epoch)
        want += (epoch % 5 == 0) + (lr < 0.05)
        check.same(f(x, epoch, lr=lr), x * (epoch * lr))
        assert len(log) == want
    assert told(f)[1:] == [
        "2. epoch changed from 0 to 1; lr changed from 0.4 to 0.2",
        "3. `epoch % 5 == 0` was false, is true",
        "4. `lr < 0.05` was false, is true",
        "5. `epoch % 5 == 0` was false, is true",
    ]


def test_objects_as_arguments():
    names = ["a", "b", "c"]

    @dy2st.to_static
    def f(x, run, of):
        run.n += 1
        of["k"] += 2
        if run.n % 3 == 0:
            run.log.append(x)
        run.mode = names[of["k"] % 3]
        return x + 1.0

    for _ in range(2):
        run, of = types.SimpleNamespace(n=0, log=[], of={"n": 0}), {"k": 0}
        for k in range(12):
            f(paddle.ones([2]), run, of)
            assert (run.n, len(run.log), run.mode) == (k + 1, (k + 1) // 3, names[(2 * k + 2) % 3])
    assert "`run.n % 3 == 0` was false, is true" in told(f)[2]
    assert len(told(f)) <= 6


def test_reasons():
    two, log = types.SimpleNamespace(n=0, of={"m": 0}), []

    @dy2st.to_static
    def f(x):
        two.n += 1
        two.of["m"] += 2
        y = "big" if two.of["m"] > 8 else "small"
        while two.n % 4 == 3:
            two.n += 1
            log.append(y)
        return x * two.n

    for _ in range(8):
        f(paddle.ones([2]))
    assert log == ["small", "big"]
    names = "`two.of['m'] > 8` was false, is true"
    assert [q for q in told(f) if names in q] != []
    assert any("`(two.n + 1) % 4`" in q for q in told(f))


def test_programs_are_found_at_once():
    """However many programs a function has, a call asks one of them."""

    turns, names = types.SimpleNamespace(n=0), [f"name {k}" for k in range(9)]

    @dy2st.to_static
    def f(x):
        turns.name = names[turns.n % 9]
        turns.n += 1
        return x + 1.0

    x = paddle.ones([2])
    for k in range(24):
        f(x)
        assert turns.name == names[k % 9]
    assert dy2st.explain(f).made == 10
    cache, signature = f.__dy2st_cache__, Signature((x,), {})
    for k in range(18):
        turns.n = k
        asked = [*cache.candidates(signature.key, signature.leaves)]
        assert len(asked) == 2  # and the first program, which has the number as a constant


def test_numbers_of_python():
    """The condition is that of Python for numbers that no program has."""
    count, log = types.SimpleNamespace(n=0), []

    @dy2st.to_static
    def f(x):
        if (count.n * 3 + 1) // 2 % 2 == 0:
            log.append(count.n)
        return x + 1.0

    values = [0, 1, 5, -7, 2.5, True, 1 << 62, (1 << 62) + 1, 1 << 70, (1 << 70) + 1, 7, -2.5, 3]
    want = [n for n in values if (n * 3 + 1) // 2 % 2 == 0]
    for n in values:
        count.n = n
        f(paddle.ones([2]))
    assert [*map(repr, log)] == [*map(repr, want)]


def test_a_condition_that_fails():
    count, log = types.SimpleNamespace(n=4), []

    @dy2st.to_static
    def f(x):
        count.n -= 1
        if 12 % count.n == 0:
            log.append(count.n)
        return x + 1.0

    for k in range(3):
        f(paddle.ones([2]))
        assert log == [3, 2, 1][: k + 1]
    with pytest.raises(ZeroDivisionError):
        f(paddle.ones([2]))
    count.n = -1
    f(paddle.ones([2]))
    assert log == [3, 2, 1, -2]


def test_an_error_behind_it():
    """What a call has changed before an error of data stays, on both sides of the condition."""
    results = []

    def f(model, x):
        model.step += 1
        if model.step % 3 == 0:
            model.log.append(model.step)
        model.state["n"] += 1
        if x.sum() < 0:
            raise ValueError("negative")
        return x * model.step

    for translated in (False, True):
        model = Model()
        function = f.__get__(model)
        function = dy2st.to_static(function) if translated else function
        results.append([])
        for k in range(14):
            x = paddle.full([2], -1.0 if k % 4 == 2 else 1.0)
            try:
                found = float(function(x).sum())
            except ValueError as error:
                found = str(error)
            results[-1].append((found, model.step, [*model.log], model.state["n"]))
    assert results[0] == results[1]


def test_a_program_that_is_saved(tmp_path):
    """It is made for the number that is there, as any Python value of a saved program."""
    model = Model()
    model.forward = appends.__get__(model)
    static = dy2st.to_static(model.forward)
    for _ in range(12):
        static(paddle.ones([2, 3]))
    function = dy2st.to_static(lambda x: (x if model.step % 2 == 0 else x[:1]) + 1.0)
    x = paddle.ones([2, 3])
    for model.step in range(4):
        assert function(x).shape[0] == 2 - model.step % 2
    dy2st.save(function, str(tmp_path / "f"), input_spec=[paddle.static.InputSpec([2, 3])])
    assert dy2st.load(str(tmp_path / "f"))(x.numpy()).shape == (1, 3)
