"""Containers that loops collect, copy and share, and containers in containers."""

from __future__ import annotations

from tests.parity.containers import St, case, fresh, v


@case("unrolled")
def append_dicts(x):
    s = {"h": v(0), "c": v(1)}
    hs = []
    for t in range(4):
        s = fresh(x[t], s)
        hs.append(s)
    return hs, s


@case("unrolled")
def append_same_dict(x):
    s = {"h": v(0), "c": v(1)}
    hs = []
    for t in range(4):
        s["h"] = s["h"] + x[t]
        hs.append(s)
    return hs, s


@case("scan")
def nested_lists(x):
    s = [[v(0)], [v(1), v(2)]]
    i = s[1]
    for t in range(4):
        for row in s:
            for k in range(len(row)):
                row[k] = row[k] + x[t]
    return s, i


@case("scan")
def nested_lists_rebind(x):
    s = [[v(0)], [v(1), v(2)]]
    i = s[1]
    for t in range(4):
        s = [[q + x[t] for q in row] for row in s]
    return s, i


@case("scan")
def list_alias_write(x):
    s = [v(0), v(1)]
    a = s
    for t in range(4):
        s[0] = s[0] + x[t]
        s = s
    a[1] = a[1] + 7
    return s, a


@case("scan")
def list_shift(x):
    s = [v(0)] * 3
    a = s
    for t in range(4):
        s.append(x[t])
        s.pop(0)
    return s, a


@case("unrolled")
def list_shift_rebind(x):
    s = [v(0)] * 3
    a = s
    for t in range(4):
        s.append(x[t])
        s = s[1:]
    return s, a


@case("scan")
def list_concat(x):
    s = [v(0)] * 3
    a = s
    for t in range(4):
        s = s[1:] + [x[t]]
    return s, a


@case("scan")
def dict_copy_update(x):
    s = {"h": v(0), "c": v(1)}
    a = s
    for t in range(4):
        s = dict(s)
        s["h"] = s["h"] + x[t]
    return s, a


@case("scan")
def dict_copy2(x):
    s = {"h": v(0), "c": v(1)}
    a = s
    for t in range(4):
        s = s.copy()
        s["h"] = s["h"] + x[t]
    return s, a


@case("scan")
def dict_star(x):
    s = {"h": v(0), "c": v(1)}
    a = s
    for t in range(4):
        s = {**s, "h": s["h"] + x[t]}
    return s, a


@case("scan")
def dict_mixed(x):
    s = {"h": v(0), "c": None, "k": "name", "n": 0, "l": [v(1)]}
    a = s
    for t in range(4):
        s = {"h": s["h"] + x[t], "c": None, "k": s["k"], "n": s["n"] + 1, "l": [s["l"][0] * 2]}
    return s, a


@case("scan")
def dict_none_first(x):
    s = {"h": None}
    a = s
    for t in range(4):
        s = {"h": x[t] if s["h"] is None else s["h"] + x[t]}
    return s, a


@case("scan")
def shared_attr(x):
    o = St({"h": v(0)}, 0)
    s = o.h
    for t in range(4):
        o.h["h"] = o.h["h"] + x[t]
        s = o.h
    return s, o.h


@case("scan")
def shared_fresh(x):
    o = St({"h": v(0)}, 0)
    s = o.h
    for t in range(4):
        s = {"h": s["h"] + x[t]}
        o.h = s
    s["h"] = s["h"] + 1
    return s, o.h


@case("scan")
def helper_list(x):
    def upd(states, q):
        states[0] = states[0] + q
        states.append(states.pop(0))
        return states

    s = [v(0), v(1)]
    a = s
    for t in range(4):
        s = upd(s, x[t])
    return s, a


@case("scan")
def tuple_of_lists(x):
    s = ([v(0)], [v(1)])
    a = s[0]
    for t in range(4):
        s[0][0] = s[0][0] + x[t]
        h, c = s
        s = (h, c)
    return s, a


@case("scan")
def dict_of_tuple(x):
    s = {"lstm": (v(0), v(1)), "n": 0}
    a = s
    for t in range(4):
        h, c = s["lstm"]
        s["lstm"] = (h + x[t], c * h)
        s["n"] += 1
    return s, a


@case("scan")
def enumerate_zip(x):
    s = {"a": v(0), "b": v(1)}
    for t in range(4):
        for k, q in s.items():
            s[k] = q + x[t]
    for k in list(s):
        s[k] = s[k] * 2
    return s


@case("scan")
def update_all(x):
    s = {"a": v(0), "b": v(1)}
    a = s
    for t in range(4):
        s.update({k: q + x[t] for k, q in s.items()})
    return s, a


@case("scan")
def comp(x):
    s = {"a": v(0), "b": v(1)}
    a = s
    for t in range(4):
        s = {k: q + x[t] for k, q in s.items()}
    return s, a


@case("scan")
def is_check(x):
    s = {"a": v(0)}
    a = s
    n = 0
    for t in range(4):
        if s is a:
            n += 1
        s = {"a": s["a"] + x[t]}
    return s, n


@case("scan")
def shifted_and_stored(x):
    u = [v(0)]
    for t in range(4):
        u.append(u[0] * 0.5 + x[t])
        u.pop(0)
        u[0] = u[0] + 1
    return u


@case("while", lambda: [v(1)])
def collect_constants_until(x, given):
    ys = []
    for t in range(4):
        ys.append((given[0], 3, t))
        if x[t].sum() > 0:
            break
    return ys, given[0]


@case("while")
def collect_rows_until(x):
    ys = []
    for t in range(4):
        ys.append(x[t])
        if x[t].sum() > 0:
            break
    return ys, x
