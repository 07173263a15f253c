"""Containers that loops rewrite, rebind and exchange."""

from __future__ import annotations

import collections

import paddle

from tests.parity.containers import NT, Obj, St, case, fresh, step, v


@case("scan")
def rebind_same_local(x):
    s = {"h": v(0)}
    ys = []
    for t in range(4):
        y, s = step(x[t], s)
        ys.append(y)
    return paddle.stack(ys), s


@case("scan")
def rebind_same_alias(x):
    s = {"h": v(0)}
    a = s
    ys = []
    for t in range(4):
        y, s = step(x[t], s)
        ys.append(y)
    return paddle.stack(ys), s, a


@case("scan")
def rebind_f(x):
    def f(h, q):
        h["a"] = h["a"] * 0.5 + q
        h["n"] = h["n"] + 1
        return h

    h = {"a": v(0), "n": 0}
    g = h
    for t in range(4):
        h = f(h, x[t])
    return h, g


@case("scan")
def fresh_local(x):
    s = {"h": v(0), "c": v(0)}
    for t in range(4):
        s = fresh(x[t], s)
    return s


@case("unrolled")
def fresh_write_alias(x):
    s = {"h": v(0), "c": v(0)}
    a = s
    for t in range(4):
        s["c"] = s["c"] + 1
        s = fresh(x[t], s)
    return s, a


@case("scan")
def swap(x):
    a = {"h": v(0)}
    b = {"h": v(1)}
    a0, b0 = a, b
    for t in range(3):
        a["h"] = a["h"] + x[t]
        a, b = b, a
    return a, b, a0, b0


@case("scan")
def swap_ro(x):
    a = {"h": v(0)}
    b = {"h": v(1)}
    a0, b0 = a, b
    y = v(0)
    for t in range(3):
        y = y + a["h"] * x[t]
        a, b = b, a
    return a, b, a0, b0, y


@case("scan")
def prev(x):
    s = {"h": v(0), "c": v(0)}
    p = s
    for t in range(4):
        p = s
        s = fresh(x[t], s)
    return s, p


@case("scan")
def in_tuple(x):
    s = ({"h": v(0)}, v(1))
    d = s[0]
    for t in range(4):
        s[0]["h"] = s[0]["h"] + x[t]
        s = (s[0], s[1] * 2)
    return s, d


@case("scan")
def in_list(x):
    s = [{"h": v(0)}, {"h": v(1)}]
    d = s[0]
    for t in range(4):
        for q in s:
            q["h"] = q["h"] + x[t]
    return s, d


@case("scan")
def in_list_rebind(x):
    s = [{"h": v(0)}, {"h": v(1)}]
    d = s[0]
    for t in range(4):
        s = [{"h": q["h"] + x[t]} for q in s]
    return s, d


@case("scan")
def in_list_step(x):
    s = [{"h": v(0)}, {"h": v(1)}]
    d = s[0]
    for t in range(4):
        y = x[t]
        for i in range(2):
            y, s[i] = step(y, s[i])
    return s, d


@case("scan")
def in_dataclass(x):
    s = St({"h": v(0)}, [v(1)])
    d = s.h
    for t in range(4):
        s.h["h"] = s.h["h"] + x[t]
        s.c[0] = s.c[0] * 2
    return s.h, s.c, d


@case("scan")
def dataclass_fresh(x):
    s = St(v(0), v(1))
    for t in range(4):
        s = St(s.h + x[t], s.c * 2)
    return s.h, s.c


@case("scan")
def dataclass_attr(x):
    s = St(v(0), v(1))
    for t in range(4):
        s.h = s.h + x[t]
    return s.h, s.c


@case("scan")
def namedt(x):
    s = NT({"h": v(0)}, v(1))
    d = s.h
    for t in range(4):
        s.h["h"] = s.h["h"] + x[t]
        s = NT(s.h, s.c * 2)
    return s, d


@case("scan")
def new_keys(x):
    s = {}
    for t in range(4):
        s["h"] = s["h"] + x[t] if "h" in s else x[t]
        s["c"] = x[t]
    return s


@case("scan")
def del_keys(x):
    s = {"h": v(0), "c": v(1)}
    for t in range(4):
        q = s.pop("h")
        s["h"] = q + x[t]
        if "c" in s:
            del s["c"]
    return s


@case("scan")
def window(x):
    w = collections.deque(maxlen=3)
    ys = []
    for t in range(6):
        w.append(x[t % 4] if False else x[0] * t)
        ys.append(sum(w))
    return paddle.stack(ys), list(w)


@case("scan")
def window_full(x):
    w = collections.deque([v(0)] * 3, maxlen=3)
    ys = []
    for t in range(4):
        w.append(x[t])
        ys.append(w[0] + w[-1])
    return paddle.stack(ys), list(w)


@case("scan")
def window_ret(x):
    w = collections.deque([v(0)] * 3, maxlen=3)
    for t in range(4):
        w.append(x[t])
    return w[0], w[1]


@case("scan")
def ddict(x):
    s = collections.defaultdict(lambda: v(0))
    for t in range(4):
        s["a"] = s["a"] + x[t]
    return s["a"], dict(s)


@case("unrolled")
def ddict_list(x):
    s = collections.defaultdict(list)
    for t in range(4):
        s[t % 2].append(x[t])
    return dict(s)


@case("scan")
def counter(x):
    s = collections.Counter()
    y = v(0)
    for t in range(4):
        s["a"] += 1
        y = y + s["a"] * x[t]
    return y, s["a"]


@case("scan")
def obj_attr(x):
    o = Obj(v(0), 0)
    p = o
    for t in range(4):
        o.h = o.h + x[t]
        o.n += 1
        p.c = o.h
    return o.h, o.n, p.c


@case("scan")
def obj_fresh(x):
    o = Obj(v(0), 0)
    p = o
    for t in range(4):
        o = Obj(o.h + x[t], o.n + 1)
    return o.h, o.n, p.h


@case("scan")
def closure(x):
    s = {"h": v(0)}
    n = 0

    def up(q):
        nonlocal s, n
        s = {"h": s["h"] + q}
        n += 1

    for t in range(4):
        up(x[t])
    return s, n


@case("scan")
def closure2(x):
    s = {"h": v(0)}
    ls = [v(1)]

    def up(q):
        s["h"] = s["h"] + q
        ls[0] = ls[0] * s["h"]

    for t in range(4):
        up(x[t])
    return s, ls


@case("unrolled")
def gen(x):
    s = {"h": v(0)}

    def g():
        for t in range(4):
            s["h"] = s["h"] + x[t]
            yield s["h"]

    ys = []
    for q in g():
        ys.append(q * 2)
    return ys, s


@case("unrolled")
def gen_rebind(x):
    s = {"h": v(0)}

    def g():
        nonlocal s
        for t in range(4):
            s = {"h": s["h"] + x[t]}
            yield s

    last = None
    for q in g():
        last = q
    return last, s
