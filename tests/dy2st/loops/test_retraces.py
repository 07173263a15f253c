"""A loop's body is traced again at most twice, and the report says why."""

from __future__ import annotations

import re
import sys
from collections import Counter, deque

import paddle
import paddle.nn.functional as F
import pytest
from paddle.static import InputSpec

import dy2st
from dy2st.loops.body import BodyTrace
from dy2st.trace.user_stack import call_stack
from tests import check
from tests.parity.models.idioms_decoding import GPT
from tests.parity.models.recurrent import CharLSTM

pytestmark = pytest.mark.sampled(every=24)


def counters(x):
    h, n, k = paddle.zeros([2]), 0, 1.0
    for t in range(x.shape[0]):
        h, n, k = h + x[t] * k, n + 2, k * 0.5
    return h, n


def straight(x):
    h = paddle.zeros([2])
    for t in range(x.shape[0]):
        h = h + x[t]
    return h


def test_all_that_a_body_shows_is_learned_at_once():
    report = dy2st.to_static(counters).report(paddle.ones([5, 2]))
    assert [q.kind for q in report.loops] == ["scan"]
    (line,) = report.retraced
    at = counters.__code__.co_firstlineno + 2
    assert line.startswith(f"the loop at test_retraces.py:{at},")
    text = "once, because it moves integers by a constant, computes Python numbers"
    assert line.endswith(text), line
    assert f"traced again: {line}" in str(report)


def test_a_loop_with_nothing_to_learn_is_traced_once():
    assert dy2st.to_static(straight).report(paddle.ones([5, 2])).retraced == ()


# ---------------------------------------------------------------- what follows from one trace
def late_register(x):
    """A gradient reaches the last variable after five iterations."""
    a = b = c = d = paddle.zeros_like(x[0]).detach()
    e = d
    for t in range(x.shape[0]):
        a, b, c, d, e = b, c, d, e, e * 0.5 + x[t]
    return a, b + c, d, e


def late_window(x):
    window = deque([paddle.zeros([x.shape[1]], x.dtype) for _ in range(6)], maxlen=6)
    for t in range(x.shape[0]):
        window.append(window[0] * 0.5 + x[t])
    return list(window)


def late_behind_a_write(x):
    """The gradient comes through a tensor that each iteration writes in place."""
    a = b = paddle.zeros_like(x[0]).detach()
    for t in range(x.shape[0]):
        board = paddle.zeros([2, x.shape[1]], x.dtype)
        board[0] = b
        row = board[0]
        a, b = row * 2, b + x[t]
    return a, b


def late_in_a_branch(x):
    a = b = paddle.zeros_like(x[0]).detach()
    for t in range(x.shape[0]):
        if x[t].sum() > 0:
            a = b * 3
        b = b + x[t]
    return a, b


def late_in_an_inner_loop(x):
    a = b = paddle.zeros_like(x[0]).detach()
    for t in range(x.shape[0]):
        total = a * 0
        for k in range(3):
            total = total + b * k
        a, b = total, x[t] * 2
    return a, b


def while_with_counter(x):
    t, h = 0, paddle.zeros_like(x[0]).detach()
    while t < x.shape[0]:
        h = h * 0.5 + x[t]
        t += 1
    return h, t


def caches_in_a_dict(x):
    cache = {"k": x[:1], "v": x[:1] * 2}
    out = x[0] * 0
    for t in range(1, x.shape[0]):
        cache["k"] = paddle.concat([cache["k"], x[t : t + 1]])
        cache["v"] = paddle.concat([cache["v"], x[t : t + 1] * 3])
        out = out + (cache["k"] * cache["v"]).sum(0)
    return out


def row_of_numbers(x):
    """A list of numbers that each iteration makes anew, each from its neighbours."""
    row = [0.0, 1.0, 2.0, 3.0]
    for _ in range(x.shape[0]):
        new = [row[0] + 1.0]
        for k in range(1, 4):
            new.append(new[k - 1] * 0.5 + row[k])
        row = new
    return x.sum() * row[3]


class Ring:
    def __init__(self):
        self.at, self.scale = 0, 1.0


def ring_in_an_object(x):
    """A counter in an object that does not move by a constant, and a number beside it."""
    ring, h = Ring(), x[0] * 0
    for t in range(x.shape[0]):
        h = h * 0.5 + x[t] * (ring.at + 1) * ring.scale
        ring.at = (ring.at + 1) % 3
        ring.scale = ring.scale * 0.5
    return h, ring.at, ring.scale


def three_queues(x):
    a, b, c = [x[0], x[1]], [x[1], x[0] * 2], [x[0] * 3, x[1]]
    h, n = x[0] * 0, 0
    for t in range(2, x.shape[0]):
        a.append(x[t] + b.pop(0))
        b.append(c.pop(0) * 0.5)
        c.append(h)
        h, n = a.pop(0) + h * 0.5, (n + 2) % 5
    return a, b, c, h, n


def tables_and_numbers(x):
    """Two lists that are stored into at places which only the program knows."""
    d, e, i, s = [x[0] * k for k in range(5)], [0.5 * k for k in range(4)], 0, 1.0
    for t in range(x.shape[0]):
        d[i] = x[t] + d[(i + 2) % 5]
        e[(t * 3) % 4] = e[(t * 2) % 4] * 0.5 + s
        i, s = (i + 1) % 5, s * 0.75
    return sum(d), e, i, s


def counted_beside_numbers(x):
    """Only some iterations make a tensor longer; other places are found behind its first read."""
    state, n, s = {"ys": x[:1], "count": 0, "sum": x[0]}, 0, 1.0
    for t in range(1, x.shape[0]):
        if x[t].sum() > 0:
            state["ys"] = paddle.concat([state["ys"], x[t : t + 1]])
            state["count"] += 1
            n += 1
        state["sum"] = state["sum"] + state["ys"].sum(0) * s
        s = s * 0.5
    return state["ys"] * 1, state["count"], state["sum"], n


def counted_variables(x):
    ys, zs, count, h = x[:1], x[:1] * 2, 0, x[0]
    for t in range(1, x.shape[0]):
        if x[t].sum() > 0:
            ys = paddle.concat([ys, x[t : t + 1]])
            zs = paddle.concat([zs, x[t : t + 1] * 2, x[t : t + 1]])
            count = count * 2 + 1
        h = h * 0.5 + ys.sum(0) * zs.sum(0)
    return h, count


ONCE = (while_with_counter, late_register, late_behind_a_write, late_in_a_branch,
        late_in_an_inner_loop)  # fmt: skip
FUNCTIONS = (
    *ONCE, late_window, caches_in_a_dict, row_of_numbers, ring_in_an_object, three_queues,
    tables_and_numbers, counted_beside_numbers, counted_variables,
)  # fmt: skip


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_what_follows_is_known_without_another_trace(f):
    static = check.agree(f, check.data(9, 3))
    report = static.report(check.data(9, 3))
    assert any(q.kind in ("scan", "while") for q in report.loops), report
    (line, *more) = [q for q in report.retraced if "the code around it" not in q]
    check.few_traces(report)
    assert f not in ONCE or " once, " in line and not more, report.retraced


@pytest.mark.parametrize("f", (late_register, late_window), ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [1, 2, 4, 5, 6])
def test_a_loop_that_ends_before_all_gradients_arrive(f, n):
    check.agree(f, check.data(n, 3))


def cut_off(x):
    """`previous` seems to get a gradient from `h`, but it is cut off in every iteration."""
    h = previous = older = paddle.zeros_like(x[0]).detach()
    for t in range(x.shape[0]):
        older, previous = previous * 1.0, h.detach()
        h = h * 0.5 + x[t] + previous
    return h, previous, older


def cut_off_by_mode(x):
    h = previous = older = paddle.zeros_like(x[0]).detach()
    for t in range(x.shape[0]):
        with paddle.no_grad():
            older, previous = older + previous, h * 2.0
        h = h * 0.5 + x[t]
    return h, previous, older


@pytest.mark.parametrize("f", (cut_off, cut_off_by_mode), ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_a_gradient_that_is_cut_off_does_not_arrive(f, n):
    static = check.agree(f, check.data(n, 3))
    report = static.report(check.data(7, 3))
    assert [q.kind for q in report.loops] == ["scan"]
    check.few_traces(report)


# ---------------------------------------------------------------- wrong guesses
class Memory(paddle.nn.Layer):
    """`r` is joined with the input, which looks as if it grew; a state begins as None."""

    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([6, 3])

    def forward(self, x):
        self.rows = paddle.ones([2, 3], x.dtype)
        r, state, out = x[0] * 0, None, []
        for t in range(x.shape[0]):
            h = paddle.tanh(paddle.concat([x[t], r]) @ self.weight)
            state = (h, h * 2) if state is None else (h + state[0], h * 0.5 - state[1])
            self.rows = self.rows * (1 - h) + state[1]
            r = self.rows.mean(0) * state[0]
            out.append(r)
        return paddle.stack(out)


@pytest.mark.slow
def test_a_wrong_guess_costs_no_trace_of_its_own():
    for n in (1, 2, 6):
        static = check.trains(Memory, lambda n=n: [check.data(n, 3)])
    (loop,) = dy2st.report(static, check.data(6, 3)).loops
    assert loop.kind == "scan" and loop.reason.startswith("peeled 1: 'state' is None")


# ---------------------------------------------------------------- a body that shows more each time
def register_of_numbers(x):
    """That `c` is computed shows when `d` is, and so on."""
    a = b = c = d = 1.0
    for _ in range(x.shape[0]):
        a, b, c, d = b, c, d, d * 0.5
    return x.sum() * (a + b + c + d)


def test_a_loop_that_takes_more_traces_is_unrolled_with_the_reason():
    static = check.agree(register_of_numbers, check.data(5, 3))
    (loop,) = static.report(check.data(5, 3)).loops
    assert loop.kind == "unrolled"
    assert "each trace of its body shows more than the one before" in loop.reason


def test_a_loop_that_takes_more_traces_is_refused_for_a_named_size():
    static = dy2st.to_static(register_of_numbers, [InputSpec([None, 3], "float64")])
    with pytest.raises(dy2st.SourceError, match="each trace of its body shows more"):
        static(check.data(5, 3))


# ---------------------------------------------------------------- facts that do not hold later
def longer_slots(x):
    """Slots that an iteration of the loop around them makes longer once."""
    slots, h = [x[:1]] * 20, x[:1]
    for _ in range(x.shape[0]):
        for i in range(20):
            slots[i] = paddle.concat([h, h * 2.0])
            h = paddle.tanh(h + slots[i].sum(0, keepdim=True))
    return h


def number_of_the_first_iteration(x):
    """`s` is a number of Python, a size even, after the first iteration."""
    s, h = 1.0, None
    for _ in range(6):
        if h is None:
            h, s = x, s * 0.5
        if s < 0.7:
            h = h + x[:, : int(s * 4)].sum()
    return h, s


def step_of_the_first_iterations(x):
    h, seen, n = None, [], 0
    for t in range(7):
        seen.append(x * t)
        if len(seen) > 2:
            seen.pop(0)
        h = seen[0] if h is None else h + seen[0] * n
        n += 3 if t < 2 else 1
    return h, n, len(seen)


def step_that_is_none(x):
    """`k` seems to move by 1, in a loop whose last iteration runs apart."""
    k, h = 4, x[0] * 0
    for i in range(3):
        h = paddle.tanh(h + min(k, 5) * 0.1)
        k = k + i
    return h, k


@pytest.mark.parametrize(
    "f",
    [longer_slots, number_of_the_first_iteration, step_of_the_first_iterations, step_that_is_none],
)
def test_facts_of_the_first_iterations_do_not_unroll_the_others(f):
    x = check.data(3, 4)
    static = check.agree(f, x)
    assert {q.kind for q in static.report(x).loops} == {"scan"}


# ---------------------------------------------------------------- the number of traces
def decode(w, prompt, steps):
    """That of README.md: the prompt is known for the first iterations."""
    ys, cache = list(prompt), paddle.zeros([steps, 4])
    for t in range(steps):
        cache[t] = ys[t] @ w
        weights = F.softmax(cache[: t + 1] @ ys[t])
        if t + 1 >= len(ys):
            ys.append(paddle.tanh(weights @ cache[: t + 1]))
    return paddle.stack(ys)


def best_so_far(x):
    best, seen = None, {}
    for t in range(x.shape[0]):
        best = x[t] if best is None else paddle.maximum(best, x[t] * 0.5 + best)
        seen["last"] = best * 2 + seen.get("last", 0.0)
    return best, seen["last"]


def sums_in_a_loop(x):
    h = x[0] * 0
    for t in range(x.shape[0]):
        h = paddle.tanh(h + sum([x[t], h, x[t] * 2]))
    return h


def while_in_a_for(x):
    h, n = x[0], 0
    for t in range(x.shape[0]):
        k = 0
        while h.sum() < 3 and k < 2:
            h, k = h + x[t].abs(), k + 1
        n += k
    return h, n


#: the model, its arguments, and how often bodies of loops are traced
COUNTED = {
    "decode": (lambda: decode, lambda: (paddle.eye(4), paddle.ones([3, 4]), 9), 3),
    "lstm": (lambda: CharLSTM(7, 4), lambda: (paddle.ones([2, 9], "int64"),), 2),
    "gpt": (lambda: GPT(9), lambda: (paddle.ones([3], "int64"),), 3),
    "none": (lambda: best_so_far, lambda: (check.data(9, 3),), 2),
    "counters": (lambda: counters, lambda: (paddle.ones([9, 2]),), 2),
    "sums": (lambda: sums_in_a_loop, lambda: (check.data(9, 3),), 5),
    "whiles": (lambda: while_in_a_for, lambda: (check.data(9, 3),), 6),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", COUNTED)
def test_the_report_says_how_often_bodies_are_traced(name):
    make, arguments, most = COUNTED[name]
    traces, code = Counter(), BodyTrace.trace_once.__code__
    static, given = dy2st.to_static(make()), arguments()

    def note(frame, event, arg):
        if event == "call" and frame.f_code is code:
            values = frame.f_locals
            traces[call_stack()] += not values["asks"] or values["self"].loop.fits

    sys.setprofile(note)
    try:
        report = dy2st.report(static, *given)
    finally:
        sys.setprofile(None)
    assert sum(traces.values()) <= most, report
    found = re.findall(r" (?:(once)|(twice)|(\d+) times), because", "\n".join(report.retraced))
    said = [1 if once else 2 if twice else int(n) for once, twice, n in found]
    rolled = [q for q in report.loops if q.kind in ("scan", "while")]
    assert sum(said) == sum(traces.values()) - len(rolled), report
