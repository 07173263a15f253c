"""Random functions with lists in one loop: read at the index, at a distance from the end and as
windows, appended to, shifted, used as stacks and queues, stored into at any place, exchanged, under
several names; a second loop may take them apart.

`compare(seed)` calls one eagerly and translated, for tensors of two lengths.
"""

from __future__ import annotations

import collections
import linecache
import random
import warnings
from typing import Any

import numpy as np
import paddle

import dy2st

LENGTHS = (3, 6)
FIRST = {
    "empty": ("[]",),
    "some": ("[x[0], x[1], x[2] * 2]", "[x[0], x[1], x[2], x[0] * 2]",
             "[x[1] * 1, x[0], x[2], x[2], x[1]]"),
    "full": ("[r * 1 for r in x]",),
    "slots": ("[x[0]] + [None] * n",),
}  # fmt: skip
OTHERS = ("[x[2], x[0], x[1]]", "ys", "[x[0], x[1], x[2], x[1]]")
RANGES = ("range(n)", "range(1, n)", "range(2, n)", "range(n - 1, -1, -1)", "range(3)")
PLACES = ("-1", "-2", "-3", "0", "1", "t", "t - 1", "t - 2", "t + 1", "len(ys) - 1", "len(ys) - 2",
          "t // 2", "(t * 5) % (t + 1)", "t // 2 - 1")  # fmt: skip
WINDOWS = (
    "-2:",
    "-3:",
    "-1:",
    "t - 1:t",
    "t - 2:t",
    "-3:-1",
    ":2",
    "1:3",
    ":t",
    ":t + 1",
    ":-1",
    ":",
)
TESTS = ("t % 2 == 0", "t > 1", "t in [1, 3, 4]", "t == 2", "len(ys) < 4", "len(ys) > 3")
KINDS = (
    "read read read append append append slice slice fill fill pop insert appends numbers inner "
    "length alias rebind store window window whole hand_on ring shift "
    "table table table front front queue queue stack exchange itself either branch rows nested "
    "nested state state buffers buffers some longer longer longer"
).split()
#: what a second loop does
BEHIND = (
    "for t in range(len(ys)): h = h * 0.5 + ys.pop()",
    "while len(zs) > 1: h = h * 0.5 + zs.pop(0)",
    "for q in ys[::-1]: h = h * 0.5 + q",
    "for t in range(n): zs[t % len(zs)] = h = h * 0.5 + zs[int(at[t])]",
)
NESTED = ("k % 3", "(k * 2 + t) % 3", "-1 - k % 2", "int(at[k % n])", "k % len(ys)", "-1", "t % 3")
INDICES = ("order[t]", "int(at[t % n])", "t % 3", "-1 - t % 2", "t // 2", "int(at[t % n]) - 2")


def source(seed: int) -> str:
    draw = random.Random(seed)
    first = draw.choice(FIRST[draw.choice(["empty", "some", "some", "some", "full", "slots"])])
    lines = [statement(draw, draw.choice(KINDS)) for _ in range(draw.randint(1, 3))]
    old, seen = draw.choice([("st", "list(old.values())"), ("b", "[old * 1]"), *[("0", "[]")] * 6])
    head = [
        "def f(x):",
        "    n = x.shape[0]",
        "    h = x[0] * 0.5",
        f"    ys = {first}",
        f"    zs = {draw.choice(OTHERS)}",
        "    qs = [x[0] * k for k in range(10)]",
        "    fs = [0.1 * k for k in range(1, 13)]",
        "    dq = deque([x[0], x[1] * 2, x[2]])",
        "    st, a, b, ds = {'h': x[0] * 1, 'c': x[1] * 1}, x[0] * 1, x[1] * 2, []",
        f"    old = {old}",
        f"    tp = {draw.choice(['()', '(x[0], x[1])'])}",
        "    at, s = (x.sum(1).abs() * 7).astype('int64') % 3, 0.0",
        "    order = [(5 * k + 3) % 7 % n for k in range(12)]",
        f"    for t in {draw.choice(RANGES)}:",
    ]
    behind = [f"    {draw.choice(BEHIND)}"] if draw.random() < 0.25 else []
    some = "[q for q in {} if q is not None]"
    more = "[st['h'], st['c'], a * 1, b * 1], [q['h'] for q in ds]"
    lists = f"{some.format('ys')}, {some.format('zs')}, list(dq) + [s]"
    end = f"    return h, {lists}, {more}, {seen}, tp"
    body = [f"        {line}" for q in lines for line in q.split("\n")]
    return "\n".join([*head, *body, *behind, end, ""])


STATES = [
    "st['h'] = st['h'] * 0.5 + h; st = {'h': st['c'], 'c': st['h'] + h}",
    "st = {**st, 'h': h * 2}; st['c'] = st['c'] * 0.5 + st['h']",
    "if h.sum() > 0: st['h'] = h\nst = {k: v * 0.5 for k, v in st.items()}",
    "st['c'] = st['c'] * 0.5 + h\nif t % 2 == 0: st = {'h': h, 'c': st['h'] + st['c']}",
]
BUFFERS = [
    "b[:] = a * 0.5 + h; a, b = b, a",
    "b[0] = h[1]; h = h * 0.5 + b; a, b = b, a",
    "a.add_(h * 0.1)\nif t % 2 == 0: a, b = b, a",
    "b[:] = h + b * 0.5\nif h.sum() > 0: a, b = b, h * 2",
]


#: a list `{0}`, or a tuple, is replaced by a longer one
LONGER = [
    "{0} = {0} + [h * 0.5]",
    "{0} = [*{0}, h]",
    "{0} = [h * 0.5, *{0}]",
    "new = list({0})\nnew.append(h * 0.5)\n{0} = new",
    "if {1}: {0} = {0} + [h * 0.5]",
    "tp = tp + (h, h * 0.5)",
    "tp += (h,)\nh = h * 0.5 + tp[-1]",
    "tp = (h * 0.5, *tp)",
    "tp = tp + (h,)\nh = h * 0.5 + sum(tp) / len(tp)",
    "if {1}: tp = tp + (h * 0.5,)",
    "if h.sum() > 0: tp = tp + (h * 0.5,)\nelse: tp = (*tp, h)",
    "kept = tp\ntp = (*tp, h * 0.5)\nif len(kept) > 1: h = h + kept[-2]",
    "for k in range(9): tp += (h * 0.1 * k,)",
]


def statement(draw: random.Random, kind: str) -> str:
    one = draw.choice(["ys", "ys", "ys", "zs"])
    pick = draw.choice
    made = {
        "read": lambda: f"h = h * 0.5 + {one}[{pick(PLACES)}]",
        "append": lambda: f"{one}.append(h * {pick(['0.5', '1', 'x[t % n]'])})",
        "slice": lambda: f"h = h * 0.5 + sum({one}[{pick(WINDOWS)}])",
        "fill": lambda: f"{one}[{pick(['t', 't', 't + 1', 't - 1', 'n - 1 - t'])}] = h + x[0]",
        "pop": lambda: f"{one}.pop({pick(['0', '', '-1'])})",
        "insert": lambda: f"{one}.insert(0, h * 2)",
        "appends": lambda: f"if {pick(TESTS)}: {one}.{pick(['append(h)', 'append(h)', 'pop(0)'])}",
        "numbers": lambda: (
            f"h = h * fs[{pick(['t', '-t', 't - 1', 't % 5'])}] + x[{pick(['t', 't - 1', '0'])}]"
        ),
        "inner": lambda: (
            f"for k in range({pick(['2', '9'])}): h = h * 0.9 + "
            f"{pick(['ys[-1]', 'ys[k]', 'zs[-1]', 'fs[k]', 'ys[t - k]'])}"
        ),
        "length": lambda: "h = h + len(ys) * 0.1",
        "store": lambda: f"{one}[{pick(['0', '-1', '1'])}] = h * 2",
        "rebind": lambda: f"{one} = {pick(['ys[-2:]', 'ys + [h]', '[h] + ys[:-1]', 'list(ys)'])}",
        "alias": lambda: "zs = ys",
        "window": lambda: (
            f"{one}.append(h * 0.5); {one} = {one}[{pick(['-2:', '-3:', '1:', '-9:'])}]"
        ),
        "whole": lambda: (
            f"h = h * 0.5 + {pick(['sum(ys)', 'paddle.stack(ys).mean(0)', 'sum(zs[:t + 1])'])}"
        ),
        "hand_on": lambda: "zs, ys = ys, [h * 1, h * 2]",
        "ring": lambda: f"h = h * 0.5 + qs.pop(0); qs.append(h + {one}[-1])",
        "shift": lambda: f"for k in range(2): {one}[k] = {one}[k + 1]",
        "table": lambda: f"{one}[{pick(INDICES)}] = h = h * 0.5 + {one}[{pick(INDICES)}]",
        "front": lambda: f"{one}.insert(0, h * 0.5); {one} = {one}[:{pick('23')}]",
        "queue": lambda: pick(
            [
                "dq.appendleft(h * 0.5); h = h + dq.pop()",
                "dq.append(h * 2); h = h * 0.3 + dq.popleft()",
                "h = h + dq[0]; dq.rotate(1); dq[-1] = h * 0.5",
                "h = h + ys.pop(0); ys.append(h * 0.5)",
            ]
        ),
        "stack": lambda: pick(
            [
                f"a = {one}.pop(); {one}.append(a + h * 0.5)",
                f"b = {one}.pop(); a = {one}.pop(); {one} += [b * 0.5, a + h]",
                f"if len({one}) > 2: h = h * 0.5 + {one}.pop()",
            ]
        ),
        "exchange": lambda: "ys, zs = zs, ys",
        "itself": lambda: (
            f"for k, q in enumerate({one}): {one}[{pick(['k', 'k - 1', '0', '(k + 2) % 3'])}] = "
            "q * 0.5 + h"
        ),
        "either": lambda: f"if h.sum() > 0: s = s {pick('+-')} h[0]\nh = h * 0.5 + s * 0.1",
        "branch": lambda: f"if h.sum() > 0: {one}[{pick(['0', '-1', 't % 2'])}] = h * 0.5",
        "nested": lambda: (
            f"for k in range({pick(['2', '9', f'len({one})'])}): "
            f"{one}[{pick(NESTED)}] = h * 0.5 + {one}[{pick(NESTED)}] * 0.5"
        ),
        "state": lambda: pick(STATES),
        "buffers": lambda: pick(BUFFERS),
        "longer": lambda: pick(LONGER).format(one, pick(TESTS)),
        "some": lambda: f"if {pick(TESTS)}: ds.append({{'h': h * 0.5}})",
        "rows": lambda: (
            "row = [ys[0]]\n"
            f"for k in range(1, {pick(['3', 'len(ys)'])}): row.append(ys[k] * 0.5 + row[k - 1])\n"
            "ys = row"
        ),
    }
    return made[kind]()


def function(seed: int) -> Any:
    text, name = source(seed), f"<lists {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space: dict[str, Any] = {"paddle": paddle, "deque": collections.deque}
    exec(compile(text, name, "exec"), space)
    return space["f"]


def compare(seed: int) -> str:
    """ "equal", "unrolled" if it is equal and its loop is unrolled, "raises" where both raise;
    raises SourceError, AssertionError for a difference."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dy2st.CopyWarning)
        return compared(function(seed), seed)


def compared(f: Any, seed: int) -> str:
    static, kinds = dy2st.to_static(f), {"raises"}
    for n in LENGTHS:
        array = np.random.default_rng(seed).normal(size=[n, 3])
        x, y = (paddle.to_tensor(array, stop_gradient=False) for _ in "ab")
        want, error = outcome(f, y)
        if error is not None:
            have, refused = outcome(static, x)
            assert refused is not None, f"eager raises {error!r}, the program gives {have}"
            continue
        have = static(x)
        same(have, want, f"length {n}")
        try:
            sum(w * q.sum() for w, q in enumerate(tensors(want), 1)).backward()
        except RuntimeError:  # eager has overwritten what its backward reads
            continue
        sum(w * q.sum() for w, q in enumerate(tensors(have), 1)).backward()
        assert np.allclose(x.grad.numpy(), y.grad.numpy(), 1e-8, 1e-8), f"length {n}: the gradient"
        kinds.add("unrolled" if "unrolled" in str(dy2st.report(static, x)) else "equal")
    return next(k for k in ("unrolled", "equal", "raises") if k in kinds)


def outcome(f: Any, x: Any) -> tuple[Any, Exception | None]:
    try:
        return f(x), None
    except Exception as e:
        return None, e


def same(have: Any, want: Any, where: str) -> None:
    kinds = [[(type(q), len(q)) for q in part[1:]] for part in (have, want)]
    assert kinds[0] == kinds[1], f"{where}: lists differ"
    for k, (a, b) in enumerate(zip(values(have), values(want))):
        assert isinstance(a, float) is isinstance(b, float), f"{where}: type of value {k} differs"
        close = np.allclose(np.asarray(a), np.asarray(b), 1e-9, 1e-9)
        assert close, f"{where}: value {k} differs"


def values(results: Any) -> list[Any]:
    return [results[0], *(q for part in results[1:] for q in part)]


def tensors(results: Any) -> list[Any]:
    return [q for q in values(results) if isinstance(q, paddle.Tensor) and not q.stop_gradient]
