"""A loop whose iterations differ from one on is two loops: index set splitting."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from tests import check


def tensor(*shape):
    return paddle.to_tensor(np.random.default_rng(len(shape)).uniform(-1, 1, shape), "float32")


def teacher_forcing(x, n):
    """The list holds a prompt, is read at the index, and grows behind it."""
    ys = [x[p] for p in range(x.shape[0])]
    h = paddle.zeros([x.shape[1]])
    for p in range(n):
        h = paddle.tanh(ys[p] * 0.5 + h)
        if p + 1 >= x.shape[0]:
            ys.append(h * 1.5)
    return paddle.stack(ys), h


def prompt_given_as_a_list(x, n):
    ys = [x[0], x[1], x[2], x[3], x[4]]
    for p in range(n):
        new = ys[p] * 0.5 + 1.0
        if p >= 4:
            ys.append(new)
    return paddle.stack(ys)


def three_parts(x, n):
    ys = []
    h = x[0]
    for t in range(n):
        if t < 4:
            h = h + x[1]
        elif t >= 9:
            ys.append(h)
            h = h * 0.5
        else:
            h = h - 0.1
        if t == n - 1:
            h = h * 2.0
    return h, ys[-1] if ys else h


def warm_up(x, n):
    """The state has another type after the warm-up."""
    h, k = x[0], None
    for t in range(n):
        if t >= 5:
            k = h if k is None else k * 0.5 + h
        h = paddle.tanh(h + x[t % 3])
    return h if k is None else k


def length_is_asked(x, n):
    """The trace that knows how the list grows finds no growth, and the one after it does."""
    ys = list(x)
    for t in range(n):
        new = paddle.tanh(ys[t]) + 0.5
        if t + 1 >= len(ys):
            ys.append(new)
    return paddle.stack(ys)


def one_step_makes_what_the_later_ones_read(x, n):
    h, kept = x[0], None
    for t in range(n):
        h = paddle.tanh(h + x[t % 3])
        if t == 4:
            kept = h * 2
        if t > 4:
            h = h + kept
    return h


PROGRAMS = (
    teacher_forcing, prompt_given_as_a_list, three_parts, warm_up, length_is_asked,
    one_step_makes_what_the_later_ones_read,
)  # fmt: skip


@pytest.mark.sampled(every=16)
@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 6, 9, 10, 11, 30])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_values(f, n):
    x, static = tensor(5, 3), dy2st.to_static(f)
    for _ in range(2):
        check.same(static(x, n), f(x, n))


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients(f):
    found = []
    for g in (f, dy2st.to_static(f)):
        x = tensor(5, 3)
        x.stop_gradient = False
        out = g(x, 14)
        (out[0] if isinstance(out, tuple) else out).sum().backward()
        found.append(x.grad)
    check.same(found[1], found[0])


@pytest.mark.slow
@pytest.mark.parametrize("f", [teacher_forcing, prompt_given_as_a_list, length_is_asked])
def test_the_program_is_as_large_for_any_length(f):
    x, made = tensor(5, 3), [(dy2st.to_static(f), n) for n in (20, 400)]
    reports = [str(dy2st.report(static, x, n)) for static, n in made]
    texts = [str(dy2st.program(static, x, n)) for static, n in made]
    assert not any("unrolled" in q for q in reports)
    assert len(texts[0].splitlines()) == len(texts[1].splitlines())


def test_a_long_prompt_is_a_loop_of_its_own():
    static, x = dy2st.to_static(teacher_forcing), tensor(200, 3)
    check.same(static(x, 300), teacher_forcing(x, 300))
    assert "unrolled" not in str(dy2st.report(static, x, 300))
    assert len(str(dy2st.program(static, x, 300)).splitlines()) < 80


def only_the_fourth_step(x):
    h = x.sum(0)
    for t in range(x.shape[0]):
        if t == 3:
            h = h + x[t]
        h = h * 0.9
    return h


def all_but_the_fourth_step(x):
    h = x.sum(0)
    for t in range(x.shape[0]):
        if t != 3:
            h = h + x[t]
    return h


@pytest.mark.parametrize("f", [only_the_fourth_step, all_but_the_fourth_step])
def test_one_step_differs_and_short_calls_come_first(f):
    """The program of a call that does not get there is not that of a longer one."""
    static = dy2st.to_static(f, input_spec=[InputSpec([None, 3], "float32")])
    for n in (2, 5, 1, 0, 4, 3, 8):
        check.same(static(tensor(n, 3)), f(tensor(n, 3)))
    check.same(static(tensor(9, 3)), f(tensor(9, 3)))


@pytest.mark.slow
@pytest.mark.parametrize("future", [1, 5])
def test_a_rollout_reads_its_own_frames_behind_the_given_ones(future):
    """Before the first iteration there is no last frame."""

    def rollout(x):
        h, frames = x[0] * 0, []
        for t in range(x.shape[0] + future):
            h = paddle.tanh(h + (x[t] if t < x.shape[0] else frames[-1]))
            frames.append(h * 2)
        return paddle.stack(frames[-future:]), h

    static = check.agree(rollout, check.data(9, 3))
    assert "unrolled" not in str(dy2st.report(static, check.data(9, 3)))
