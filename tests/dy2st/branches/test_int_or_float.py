"""Numbers of which data decides whether they are an int or a float: `max(0, float(x))`."""

import copy
import types

import numpy as np
import paddle
import pytest

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=10)


def extremes(x):
    mean = float(x.mean())
    low = max(0, mean)
    return low, min(1, mean), max(mean, 0, 2), max(0, x[0, 0].item(), 1), min(low, 1), x * low


def clamped(x):
    v = min(max(x.mean().item(), 0), 1)
    return v, x * v, v + 1, 2 * v, 1 - v, v / 2, 1 / (v + 1), -v, abs(v - 1), v * 1.5, v - True


def divided(x):
    n = max(1, float(x.max()))
    return n // 1, n % 2, 3 // n, n**2, 7 / n, int(n), float(n), round(n), n == 1, n > 1, 1 <= n


def chosen(x):
    v = float(x.mean()) if x.mean() > 0 else 0
    w = v if v else 3
    return v, w, v + w, w * v, [v], {"w": (w, v)}, v == w


def asked(x):
    v = max(0, float(x.mean()))
    return x if isinstance(v, int) else x * v, isinstance(v, (int, float)), v is None


def of_integers(x):
    v, n = max(0, float(x.mean())), paddle.to_tensor([1, 2])
    return x.astype("float32") * v, paddle.full([2], 1.0) * v, n + int(v), n if v == 0 else n * 2


def printed(x):
    v = max(0, float(x.mean()))
    print(v, f"{v} {v:.2f} {v!r}", "%s %.1f" % (v, v), str(v), [v])  # noqa: UP031
    return x


def in_a_loop(x):
    best, total, last = 0, 0, 0.5
    for t in range(x.shape[0]):
        best = max(best, float(x[t].mean()))
        last = 1 if x[t, 0] > 0 else last + 1
        if x[t, 0] > 0:
            total += float(x[t, 0])
    return best, total, last, x * best


def until(x):
    n, h = 0, x
    while n < 3:
        n = n + 1 if h.sum() > 4 else n + 0.75
        h = h - 0.25
    return n, h


def listed(x):
    found = []
    for t in range(x.shape[0]):
        found.append(max(0, float(x[t].mean())))
    return found, sum(found)


def dicts(x):
    return [{"t": t, "v": min(x[t].sum().item(), 0)} for t in range(x.shape[0])]


PLAIN = [extremes, clamped, divided, chosen, asked, of_integers, printed]
LOOPS = [in_a_loop, until, listed, dicts]


def quarters(n, sign):
    x = np.random.default_rng(n).integers(-8, 9, [n, 4]) / 4
    return paddle.to_tensor(abs(x) * sign if sign else x)


def kinds(x):
    return [type(q) for q in check.leaves(x)]


def same_calls(f, static, args):
    want = check.observe(f, [args])
    have = check.observe(static, [args.clone()])
    assert not check.both_raise(have, want)
    check.equal(have, want)
    assert kinds(have.result) == kinds(want.result)


@pytest.mark.parametrize("f", PLAIN, ids=lambda f: f.__name__)
def test_each_use_is_eagers_for_the_int_and_for_the_float(f):
    static = dy2st.to_static(f)
    for sign in (1.0, -1.0, 0, 1.0):
        same_calls(f, static, quarters(4, sign))


@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_loops(f, n):
    static = dy2st.to_static(f)
    for sign in (1.0, -1.0, 0):
        same_calls(f, static, quarters(n, sign))
    if n == 7:
        assert "unrolled" not in str(dy2st.report(static, quarters(n, 0)))


def test_an_attribute_is_an_int_or_a_float_from_call_to_call():
    def f(x):
        s.best = max(s.best, float(x.mean()))
        s.log.append(s.best)
        return x * s.best

    s = eager = types.SimpleNamespace(best=0, log=[])
    calls = [quarters(3, sign) for sign in (-1.0, -1.0, 1.0, 0, 1.0)]
    want = [f(x) for x in calls]
    s = types.SimpleNamespace(best=0, log=[])
    static = dy2st.to_static(f)
    check.same([static(x) for x in calls], want)
    assert vars(s) == vars(eager) and kinds(s.log) == kinds(eager.log)


def test_the_gradient_passes_a_number_by():
    def f(x):
        return (x * max(0, float(x.mean()))).sum()

    for sign in (1.0, -1.0):
        x = check.data(3, 4)
        check.agree(copy.copy(f), abs(x.detach()) * sign + x * 0)


@pytest.mark.parametrize(
    "use",
    [lambda v: type(v), lambda v: f"{v:>8}".strip(), lambda v: {v: 1}],
    ids=["type", "text", "key"],
)
def test_what_needs_to_be_known_is_refused(use):
    def f(x):
        return use(max(0, float(x.mean())))

    with pytest.raises(dy2st.SourceError):
        dy2st.to_static(f)(paddle.ones([2]))
