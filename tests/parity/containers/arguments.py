"""The caller's containers, and those in them."""

from __future__ import annotations

import collections
import copy

import paddle

from tests.parity.containers import Obj, St, case, fresh, step, v


@case("scan", lambda: dict(h=v(1)))
def arg_rebind_same(x, s):
    ys = []
    for t in range(4):
        y, s = step(x[t], s)
        ys.append(y)
    return paddle.stack(ys), s


@case("scan", lambda: dict(h=v(1), c=v(2)))
def arg_fresh(x, s):
    for t in range(4):
        s = fresh(x[t], s)
    return s


@case("scan", lambda: dict(h=v(1), c=v(2)))
def arg_fresh_alias(x, s):
    a = s
    for t in range(4):
        s = fresh(x[t], s)
    a["h"] = a["h"] + 1
    return s, a


@case("scan", lambda: dict(h=v(1), c=v(2)))
def arg_fresh_write(x, s):
    for t in range(4):
        s["c"] = s["c"] + 1
        s = fresh(x[t], s)
    return s


@case("scan", lambda: {})
def arg_new_keys(x, s):
    for t in range(4):
        s["h"] = s["h"] + x[t] if "h" in s else x[t]
    return s["h"]


@case("", lambda: dict(state=dict(h=v(1)), k=v(3)))
def pop_put(x, d):
    s = d.pop("state")
    s["h"] = s["h"] + x[0]
    d["state"] = s
    return s["h"]


@case("scan", lambda: dict(state=dict(h=v(1)), k=v(3)))
def pop_put_loop(x, d):
    for t in range(4):
        s = d.pop("state")
        s["h"] = s["h"] + x[t]
        d["state"] = s
    return s["h"]


@case("", lambda: [dict(h=v(1)), dict(h=v(2))])
def for_states(x, states):
    for s in states:
        s["h"] = s["h"] + x[0]
    return states


@case("scan", lambda: [dict(h=v(1)), dict(h=v(2))])
def for_states_loop(x, states):
    for t in range(4):
        for s in states:
            s["h"] = s["h"] + x[t]
    return states[0]


@case("", lambda: dict(a=dict(b=[v(1)]), z=[v(0)]))
def inner_append(x, d):
    inner = d["a"]["b"]
    inner.append(x[0])
    return d["a"]["b"][-1]


@case("", lambda: dict(a=dict(b=[v(1)]), z=[v(0)]))
def inner_append_moved(x, d):
    inner = d["a"].get("b", d["z"])
    d["a"] = {"c": d["z"]}
    inner.append(x[0])
    d["z"] = inner
    return inner


@case("", lambda: [[v(1)], [v(2)]])
def inner_swap(x, d):
    d[0], d[1] = d[1], d[0]
    d[0].append(x[0])
    return d


@case("", lambda: [[v(1)], [v(2)]])
def inner_del(x, d):
    q = d.pop(0)
    q.append(x[0])
    d.append([q])
    return q


@case("", lambda: dict(state=dict(h=v(1)), k=v(3)))
def arg_setdefault(x, d):
    d.setdefault("n", []).append(x[0])
    d["state"].update(h=d["state"]["h"] + x[1])
    return d


@case("scan", lambda: [v(1), v(2)])
def arg_list_fresh(x, s):
    for t in range(4):
        s = [q + x[t] for q in s]
    return s


@case("scan", lambda: [v(1), v(2)])
def arg_list_mixed(x, s):
    for t in range(4):
        s[0] = s[0] + x[t]
        s = list(s)
    return s


@case("scan", lambda: St(dict(h=v(1)), [v(2)]))
def arg_obj(x, s):
    for t in range(4):
        s.h["h"] = s.h["h"] + x[t]
        s.c = [s.c[0] * 2]
    return s.c


@case("scan", lambda: dict(h=v(1), n=0))
def arg_number(x, s):
    for _ in range(4):
        s["n"] += 1
        s["h"] = s["h"] * s["n"]
    return s["n"]


@case("", lambda: {})
def stored_deque(x, d):
    """What the caller finds in its dict is an object of this call, without stand-ins."""
    q = collections.deque([x[0], x[1]], maxlen=2)
    q.append(x[2] * 2)
    d["q"] = q
    d["again"] = [q]
    return q[0]


@case("", lambda: {})
def stored_object(x, d):
    o = Obj(x[0] * 2)
    o.more = {"h": o.h, "o": [v(1)]}
    d["o"] = o
    d["h"] = o.more
    return o.h


@case("", lambda: {})
def stored_ordered(x, d):
    d["o"] = collections.OrderedDict(a=x[0], b=x[1])
    d["o"].move_to_end("a")
    return x[0]


@case("scan", lambda: {})
def returned_kinds(x, d):
    q = collections.deque([v(0)] * 2, maxlen=2)
    for t in range(4):
        q.append(x[t])
    return q, Obj(q[0]), collections.OrderedDict(a=x[0])


@case("scan", lambda: St([v(1), v(2)], v(3)))
def copy_of_an_object(x, s):
    """A shallow copy has the containers of the original."""
    s = copy.copy(s)
    s.h.append(x[0])
    s.h.pop(0)
    for t in range(4):
        s.c = s.c + x[t]
        s.h[0] = s.h[0] * 0.5
    return s.c, s.h


@case("", lambda: [v(1)])
def arg_list_extended(x, s):
    """The caller's list grows in place; a sum of lists is another one."""
    t = s + [x[1]]
    s += [x[0]]
    t[0] = t[0] * 2
    return t, s


@case("", lambda: {"me": None})
def cycle(x, d):
    """A list in itself."""
    s = [x[0]]
    s.append((s, d["me"]))
    return s[0], len(s)


@case("scan", lambda: [v(1), collections.deque([v(2), v(3)], maxlen=2)])
def deque_in_an_argument(x, s):
    s[1][0] = x[0]
    for t in range(4):
        s[1].append(s[1][0] * 0.5 + x[t])
    s[1].rotate(1)
    return s[1][0]


@case("", lambda: (collections.OrderedDict(a=v(1)), {1, 2}))
def other_kinds_in_an_argument(x, s):
    s[0]["b"] = x[0]
    s[0].move_to_end("a")
    s[1].add(3)
    return s[0]["a"] * len(s[1])


@case("scan", lambda: dict(h=v(1)), lambda: dict(c=v(2)))
def union_of_dicts(x, s, other):
    new = s | other
    for t in range(4):
        new["h"] = new["h"] + x[t]
        s = s | {"h": s["h"] + new["c"]}
    return new, s


@case("", lambda: dict(h=v(1)), lambda: dict(c=v(2)))
def union_of_dicts_in_branch(x, s, other):
    new = s | other
    if x.sum() > 0:
        new["h"] = new["h"] + x[0]
    return new


@case("scan", lambda: [v(1), v(2)], lambda: [v(3)])
def sum_of_lists(x, s, other):
    new = s + other
    for t in range(4):
        new.append(new.pop(0) + x[t])
    if x.sum() > 0:
        new[0] = new[0] + x[0]
    return new, s * 2


@case("scan", lambda: {"q": collections.deque([v(1)], maxlen=2)})
def new_key_beside_a_deque(x, d):
    for t in range(4):
        d["e"] = x[t] + d["q"][0]
    return d
