"""Loops that make a tensor longer and leave by `return` or `break`, around the concat."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from tests import check

names = {"ids": lambda f: f.__name__}
TABLE = paddle.to_tensor([[(3 * i + j * j) % 7 for j in range(7)] for i in range(7)], "int64")


def following(ids, t):
    """The next tokens, which depend on all so far."""
    return (TABLE[ids].sum([1, 2]).unsqueeze(1) + ids[:, -1:] + t) % 7


def returns_what_it_was_before(ids, end):
    for t in range(9):
        token, before = following(ids, t), ids
        if (token == end).all():
            break
        ids = paddle.concat([ids, token], 1)
        if (token == 2).all():
            return before
    return ids


def returns_behind_the_concat(ids, end):
    for t in range(9):
        token = following(ids, t)
        ids = paddle.concat([ids, token], 1)
        if (token == end).all():
            return ids
    return ids


def returns_before_the_concat(ids, end):
    for t in range(9):
        token = following(ids, t)
        if (token == end).all():
            return ids
        ids = paddle.concat([ids, token], 1)
    return ids


def returns_more(ids, end):
    count = paddle.zeros([1], "int64")
    for t in range(9):
        token = following(ids, t)
        ids = paddle.concat([ids, token], 1)
        count = count + 1
        if (token == end).all():
            return ids, count
    return ids, count


def returns_without_a_bound(ids, end):
    t = paddle.zeros([], "int64")
    while True:
        token = following(ids, t)
        ids = paddle.concat([ids, token], 1)
        t = t + 1
        if (token == end).all() or t > 8 * (end + 1):
            return ids


def returns_in_two_places(ids, end):
    for t in range(9):
        token = following(ids, t)
        if (token == end).all():
            return ids
        ids = paddle.concat([ids, token], 1)
        if (token == end + 1).all():
            break
    return ids


def breaks_on_both_sides(ids, end):
    done = paddle.zeros([ids.shape[0], 1], "bool")
    for t in range(9):
        token = following(ids, t)
        if done.all():
            break
        ids = paddle.concat([ids, token], 1)
        done = paddle.logical_or(done, token == end)
        if done.all():
            break
    return ids


def returns_from_a_callee(ids, end):
    return returns_behind_the_concat(ids, end) * 2, returns_before_the_concat(ids, end)


def grows_with_its_masks(ids, end):
    """The arguments of a model in a dict, whose cache begins as None."""
    given = {"cache": None, "mask": ids * 0 + 1, "places": paddle.arange(2).unsqueeze(0)}
    done = paddle.zeros([1, 1], "bool")
    for t in range(9):
        new = ids if given["cache"] is None else ids[:, -1:]
        places = given["places"] if given["cache"] is None else given["places"][:, -1:]
        key = (TABLE[new].sum(-1) + places) % 7
        old = given["cache"]
        given["cache"] = key if old is None else paddle.concat([old, key], 1)
        token = ((given["cache"] * given["mask"]).sum(1, keepdim=True) + t) % 7
        ids = paddle.concat([ids, paddle.where(done, token * 0, token)], 1)
        given["mask"] = paddle.concat([given["mask"], ids[:, -1:] * 0 + 1], -1)
        given["places"] = paddle.concat([given["places"], given["places"][:, -1:] + 1], -1)
        done = paddle.logical_or(done, token == end)
        if done.all():
            break
    return ids


def longer(cache, key):
    return key if cache is None else paddle.concat([cache, key], 1)


class Holder:
    def __init__(self):
        self.cache = None


def fills_places_if_it_runs(ids, end):
    """Data decides whether there is a first iteration, which runs apart."""
    caches, pair, holder, token = {"k": None}, None, Holder(), ids[:, -1:]
    t = paddle.zeros([], "int64")
    while (token != end).all() and t < 9:
        caches["k"] = longer(caches["k"], TABLE[token].sum(-1) % 7)
        pair = [longer(None if pair is None else q, token + t) for q in pair or (None, None)]
        holder.cache = longer(holder.cache, token)
        token = (caches["k"].sum(1, keepdim=True) + pair[1].max() + holder.cache.min() + t) % 7
        t = t + 1
    if pair is None:
        t = t - 1
    return token, t


def begins_for_certain(ids, end):
    """The first test is about a constant."""
    tokens, done = None, paddle.zeros([20, 1], "bool")
    while not done.all():
        tokens = longer(tokens, ids[:, -1:] if tokens is None else following(tokens, 1))
        done = paddle.logical_or(done, (tokens[:, -1:] == end) | (tokens.sum() > 20))
    return tokens


def sets_a_key_behind_the_break(ids, end):
    given, t = {"ids": ids}, 0

    def update(given, token):
        given["cache"] = longer(given.get("cache"), token)
        return given

    while t < 9:
        last = given["cache"].sum(1, keepdim=True) if "cache" in given else ids[:, -1:]
        token = (TABLE[last % 7].sum(-1) + t) % 7
        ids = paddle.concat([ids, token], 1)
        if (token == end).all():
            break
        given = update(given, token)
        t += 1
    return ids


def reorders_behind_the_break(ids, end):
    caches = [ids, ids + 1]
    for t in range(9):
        token = following(ids, t)
        if (token == end).all():
            break
        ids = paddle.concat([paddle.flip(ids, [1]), token], 1)
        caches = [paddle.concat([paddle.flip(q, [1]), token + q.max()], 1) for q in caches]
        token = (token + caches[1].min()) % 7
    return ids, token


def keeps_the_last_of_many_sizes(ids, end):
    row, weights = paddle.arange(12), ids
    for t in range(9):
        weights = row[: t + 3] * ids.sum()
        other = row[: t + 2].unsqueeze(1) + weights[: t + 1]
        ids = (ids + weights.max() + other.min()) % 7
        if (ids[:, :1] == end).all():
            break
    return ids, weights, other


def grows_in_some_iterations(ids, end):
    """Each iteration reads all so far, before and behind the condition."""
    seen, token = {"ids": ids, "count": 0}, ids[:, -1:]
    for t in range(12):
        token = (following(seen["ids"], t) + token) % 7
        if (token > end).all():
            seen["ids"] = paddle.concat([seen["ids"], token], 1)
            seen["count"] += 1
        if seen["ids"].shape[1] > 6:
            break
        token = token + seen["ids"].min()
    return seen["ids"], seen["count"], token


def skips_some_iterations(ids, end):
    for t in range(9):
        token = following(ids, t)
        if (token == end).all():
            continue
        ids = paddle.concat([ids, token, (token + 1) % 7], 1)
    return ids


def returns_what_follows_the_loop(ids, end):
    """The cache begins as None, so that the first iteration runs apart, and may return."""
    cache, token = None, ids[:, -1:]
    for t in range(9):
        cache = longer(cache, TABLE[token].sum(-1) % 7)
        token = (cache.sum(1, keepdim=True) + t) % 7
        ids = paddle.concat([ids, token], 1)
        if (token == end).all():
            return ids, {"cache": cache}
    return ids, {"cache": cache}


FUNCTIONS = (
    returns_behind_the_concat, returns_before_the_concat, returns_more, returns_without_a_bound,
    returns_in_two_places, breaks_on_both_sides, returns_from_a_callee, grows_with_its_masks,
    fills_places_if_it_runs, begins_for_certain, sets_a_key_behind_the_break,
    reorders_behind_the_break, keeps_the_last_of_many_sizes, grows_in_some_iterations,
    skips_some_iterations, returns_what_follows_the_loop, returns_what_it_was_before,
)  # fmt: skip


class Module(paddle.nn.Layer):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


@pytest.mark.sampled(every=10)
@pytest.mark.parametrize("f", FUNCTIONS, **names)
def test_values(f):
    ends = iter([0, 1, 2, 3, 4, 5, 6, 1])
    first = [1, 2]
    static = check.parity(
        Module(f), lambda: [paddle.to_tensor([first]), paddle.to_tensor(next(ends))], calls=8
    )
    report = str(dy2st.report(static, paddle.to_tensor([first]), paddle.to_tensor(0)))
    assert "unrolled" not in report and ("while" in report or "scan" in report)


@pytest.mark.parametrize("read", [len, lambda d: len([*d]), lambda d: d == {}, bool, dict])
def test_keys_that_data_decides_are_not_read(read):
    def f(x, limit):
        given = {}
        for _ in range(5):
            x = x + given.get("x", 1)
            if x > limit:
                break
            given["x"] = x
        return x, read(given)

    with pytest.raises(dy2st.SourceError, match="is set in only one branch"):
        dy2st.to_static(f)(paddle.to_tensor(1.0), paddle.to_tensor(3.0))


class Cached(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.proj, self.cache = paddle.nn.Linear(3, 3), None

    def forward(self, x):
        self.cache = longer(self.cache, self.proj(x).unsqueeze(1))
        return paddle.tanh(x + self.cache.sum(1))


class Stack(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.layers = paddle.nn.LayerList([Cached(), Cached()])

    def forward(self, x, limit):
        for layer in self.layers:
            layer.cache = None
        steps = paddle.zeros([])
        while x.abs().sum() < limit and steps < 5:
            for layer in self.layers:
                x = layer(x)
            steps = steps + 1
        for layer in self.layers:
            layer.cache = None
        return x, steps


def test_caches_of_layers_that_begin_as_none():
    paddle.seed(1)
    limits = iter([0.0, 1.0, 2.0, 9.0])
    x = paddle.to_tensor([[0.1, 0.2, -0.1]])
    check.parity(Stack(), lambda: [x, paddle.to_tensor(next(limits))], calls=4)


def test_a_state_that_becomes_wider_is_named():
    """Data decides whether the loop runs at all, and its first iteration is another one."""

    def f(xs, n):
        ys, h = [], xs[0, :1]
        for t in range(int(n)):
            h = h * 0.5 + xs[t]
            ys.append(h)
        return paddle.stack(ys)

    with pytest.raises(dy2st.SourceError, match="'h' changes type .* may not run at all"):
        dy2st.to_static(f)(paddle.ones([4, 2]), paddle.to_tensor(3))
