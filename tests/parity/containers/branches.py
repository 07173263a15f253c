"""Containers that branches on data write, make and choose."""

from __future__ import annotations

from tests.parity.containers import Obj, case, fresh, v


@case("")
def br_key(x):
    s = {"h": v(0), "c": v(1)}
    if x.sum() > 0:
        s["h"] = s["h"] + 1
    else:
        s["c"] = s["c"] - 1
    return s


@case("refused")
def br_newkey_read(x):
    s = {"h": v(0)}
    if x.sum() > 0:
        s["n"] = v(5)
    return s


@case("")
def br_newkey_both(x):
    s = {"h": v(0)}
    if x.sum() > 0:
        s["n"] = v(5)
    else:
        s["n"] = v(6)
    return s


@case("refused")
def br_newkey_both_order(x):
    s = {"h": v(0)}
    if x.sum() > 0:
        s["n"] = v(5)
        s["m"] = v(6)
    else:
        s["m"] = v(6)
        s["n"] = v(7)
    return s


@case("")
def br_obj(x):
    o = Obj(v(0))
    if x.sum() > 0:
        o.h = o.h + 1
        o.n = v(2)
    else:
        o.n = v(3)
    return o.h, o.n


@case("", lambda: dict(h=v(1), c=v(2)))
def br_arg(x, d):
    if x.sum() > 0:
        d["h"] = d["h"] + x[0]
    else:
        d["c"] = d["c"] * 2
    return d["h"]


@case("refused", lambda: dict(h=v(1), c=v(2)))
def br_arg_new(x, d):
    if x.sum() > 0:
        d["n"] = d["h"] + x[0]
    return d["h"]


@case("", lambda: dict(s=dict(h=v(1)), l=[v(2)]))
def br_arg_inner(x, d):
    s = d["s"]
    if x.sum() > 0:
        s["h"] = d["s"]["h"] + x[0]
    else:
        d["l"][0] = x[1]
    return d["s"]["h"]


@case("", lambda: dict(h=v(1)), lambda: dict(h=v(2)))
def br_choose(x, a, b):
    c = a if x.sum() > 0 else b
    return c["h"]


@case("refused", lambda: dict(h=v(1)), lambda: dict(h=v(2)))
def br_choose_write(x, a, b):
    c = a if x.sum() > 0 else b
    c["h"] = c["h"] + 1
    return a["h"]


@case("refused", lambda: dict(h=v(1)), lambda: dict(h=v(2)))
def br_choose_ret(x, a, b):
    c = a if x.sum() > 0 else b
    return c


@case("refused")
def br_choose_local_write(x):
    a = {"h": v(1)}
    b = {"h": v(2)}
    c = a if x.sum() > 0 else b
    c["h"] = c["h"] + 1
    return a, b


@case("refused")
def br_choose_list_write(x):
    a = [v(1)]
    b = [v(2)]
    if x.sum() > 0:
        c = a
    else:
        c = b
    c[0] = c[0] + 1
    return a, b


@case("refused")
def br_choose_list_append(x):
    a = [v(1)]
    b = [v(2)]
    if x.sum() > 0:
        c = a
    else:
        c = b
    c.append(v(3))
    return a, b


@case("scan")
def br_loop(x):
    s = {"h": v(0), "c": v(1)}
    a = s
    for t in range(4):
        if x[t].sum() > 0:
            s["h"] = s["h"] + x[t]
        else:
            s["c"] = s["c"] - x[t]
    return s, a


@case("refused")
def br_loop_rebind(x):
    s = {"h": v(0), "c": v(1)}
    a = s
    for t in range(4):
        if x[t].sum() > 0:
            s = fresh(x[t], s)
    return s, a


@case("refused")
def br_loop_rebind_write(x):
    s = {"h": v(0), "c": v(1)}
    a = s
    for t in range(4):
        if x[t].sum() > 0:
            s = fresh(x[t], s)
        s["c"] = s["c"] + 1
    return s, a


@case("while")
def while_data(x):
    s = {"h": v(0), "c": v(1)}
    a = s
    while s["h"].sum() < 3:
        s["h"] = s["h"] + 1
    return s, a


@case("refused")
def while_fresh(x):
    s = {"h": v(0), "c": v(1)}
    a = s
    while s["h"].sum() < 3 + x.sum():
        s = {"h": s["h"] + 1, "c": s["c"]}
    s["h"] = s["h"] * 2
    return s, a


@case("while")
def brk(x):
    s = {"h": v(0), "c": v(1)}
    a = s
    for t in range(4):
        s["h"] = s["h"] + x[t]
        if s["h"].sum() > 1:
            break
        s["c"] = s["h"]
    return s, a


@case("while")
def brk_fresh(x):
    s = {"h": v(0), "c": v(1)}
    a = s
    for t in range(4):
        s = fresh(x[t], s)
        if s["h"].sum() > 1:
            break
    return s, a


@case("")
def br_item_and_update(x):
    """One branch stores an item, the other one changes the whole dict."""
    s = {"a": v(0), "b": v(1)}
    if x.sum() > 0:
        s["a"] = v(5)
    else:
        s.update({k: q * 0.5 for k, q in s.items()})
    return s


@case("")
def br_items_and_pop(x):
    s = {"a": v(0), "b": v(1)}
    if x.sum() > 0:
        s["a"] = v(5)
    else:
        s["a"] = s.pop("a") * 2 + s.pop("b")
        s["b"] = v(3)
    return s["a"], s["b"]


@case("while")
def while_names_a_container(x):
    s = {"h": v(0)}
    t = v(0)
    while t.sum() < 3:
        t = t + 1
        q = s
        q["h"] = q["h"] + x[0]
    return s, t


@case("refused")
def while_names_a_container_that_is_read(x):
    s = {"h": v(0)}
    t = v(0)
    while t.sum() < 3 + x.sum():
        t = t + 1
        q = s
        q["h"] = q["h"] + x[0]
    return q


@case("while")
def while_names_a_container_and_surely_runs(x):
    s = {"h": v(0)}
    t = v(0)
    while t.sum() < 3:
        t = t + 1
        q = s
        q["h"] = q["h"] + x[0]
    return q, q is s


@case("scan")
def br_new_dict_or_an_item(x):
    s = {"h": v(0)}
    if x.sum() > 0:
        s = {"h": s["h"] + 3}
    else:
        for _ in range(2):
            s["h"] = s["h"] * 2 + 1
    return s["h"] * 1


@case("")
def br_new_list_or_an_item(x):
    s = [v(1), v(2)]
    if x.sum() > 0:
        s = [s[1], s[0]]
    else:
        s[-1] = s[0] * 4
    return s[0] - s[1]


@case("scan")
def br_new_object_or_an_attribute(x):
    s = Obj(h=v(1))
    if x.sum() > 0:
        s = Obj(h=v(3))
    else:
        for _ in range(2):
            s.h = s.h * 2
    return s.h * 1


@case("")
def br_new_tuple_or_items_in_it(x):
    s = ({"h": v(0)}, [v(2)])
    if x.sum() > 0:
        s = ({"h": v(1)}, [v(7)])
    else:
        s[0]["h"], s[1][0] = x[0] * 3, v(9)
    return s[0]["h"] + s[1][0]
