"""Functions whose control flow depends on data in a way that no program has. Lines matter: the
errors about them are golden."""

import paddle
from paddle import nn


class Box:
    """A plain object, as users keep beside their model."""

    def __init__(self):
        self.count = 0
        self.name = "box"
        self.best = None


box, history, table, seen = Box(), [], {0: "zero"}, set()
layers = nn.LayerList([nn.Linear(4, 4), nn.Linear(4, 4)])
mode = "flat"


def changes_dtype_in_a_while(x):
    count = x.sum()
    while count < 10:
        count = (count + 1).astype("int64")
    return count


def grows_in_a_while(x):
    h = x[0]
    while h.sum() < 10:
        h = paddle.concat([h, h])
    return h


def becomes_a_tuple_in_a_while(x):
    state = x.mean()
    while x.sum() > 0:
        state = (state, x.mean())
        x = x - 1
    return state


def text_grows_in_a_while(x):
    name = "h"
    while x.sum() > 0:
        name = name + "'"
        x = x - 1
    return {name: x}


def branches_differ_in_dtype(x):
    if x.sum() > 0:
        y = x
    else:
        y = x.astype("int64")
    return y * 2


def branches_differ_in_shape(x):
    if x.mean() > 0:
        y = x[0]
    else:
        y = x[0, :2]
    return y


def branches_differ_in_structure(x):
    if x.sum() > 0:
        state = (x, x)
    else:
        state = x
    return state


def tensor_or_none(x):
    best = None
    for t in range(x.shape[0]):
        if x[t].sum() > 0:
            best = x[t]
    return best


def returns_differ(x):
    if x.sum() > 0:
        return x
    return x, x.mean()


def returns_or_falls_off(x):
    if x.sum() > 0:
        return x * 2


def chooses_a_string(x):
    mode = "up" if x.sum() > 0 else "down"
    return {mode: x}


def chooses_a_layer(x):
    layer = layers[0] if x.sum() > 0 else layers[1]
    return layer(x)


def reads_a_layer_by_value(x):
    return x + layers[int(x.argmax())].weight.sum()


def appends_in_one_branch(x):
    ys = [x[0], x[1]]
    for t in range(x.shape[0]):
        if x[t].sum() > ys[-2].sum():
            ys.append(x[t])
    return ys


def pops_in_a_branch(x):
    stack = [x, x + 1]
    if x.sum() > 0:
        stack.pop()
    return stack


def key_in_one_branch(x):
    out = {"x": x}
    if x.sum() > 0:
        out["positive"] = x
    return out


def attribute_in_one_branch(x):
    if x.sum() > 0:
        box.best = x
    return x


def renames_in_a_branch(x):
    if x.sum() > 0:
        box.name = "positive"
    return x


def adds_to_a_set_in_a_branch(x):
    if x.sum() > 0:
        seen.add("positive")
    return x


def sets_a_global_in_a_branch(x):
    global mode
    if x.sum() > 0:
        mode = "up"
    return x


def appends_outside_in_a_branch(x):
    if x.sum() > 0:
        history.append(x)
    return x


def tensor_as_a_dict_key(x):
    return table[x.argmax()]


def value_as_a_dict_key(x):
    return x if table[int(x.argmin())] == "zero" else -x


def value_as_a_list_index(x):
    names = ["negative", "positive"]
    return {names[int(x.sum() > 0)]: x}


def value_as_a_pool_size(x):
    n = int(x.sum())
    return paddle.nn.functional.adaptive_avg_pool1d(x.reshape([1, 1, -1]), n)


def value_as_a_slice(x):
    n = int(x.argmax())
    return x[:, ::n]


def sorts_by_value(x):
    rows = [x[0].mean(), x[1].mean()]
    rows.sort()
    return rows


def recursion_on_data(x):
    if x.sum() > 10:
        return x
    return recursion_on_data(x + 1)


def yields_in_a_branch(x):
    def positive():
        for t in range(2):
            if x[t].sum() > 0:
                yield x[t]

    return [row * 2 for row in positive()]


def comprehension_with_a_tensor_condition(x):
    return {k: row for k, row in enumerate([x[0], x[1]]) if row.sum() > 0}


def text_as_a_key(x):
    return {f"mean {x.mean()}": x}


def catches_a_failing_value(x):
    try:
        assert x.sum() > 100, "too small"
    except AssertionError:
        return -x
    return x


def hands_data_to_numpy(x):
    import numpy as np

    rows = x
    while rows.sum() < 10:
        rows = rows + np.asarray(rows)
    return rows


def counts_in_an_argument(x, counts):
    if x.sum() > 0:
        counts["positive"] = "yes"
    return x


# ---------------------------------------------------------------- translated, and may fail when run
def undefined_on_one_path(x):
    if x.sum() > 0:
        y = x * 2
    return y


def undefined_without_an_iteration(x):
    while x.sum() < 0:
        last = x * 2
        x = x + 1
    return last


def asserts(x):
    box.best = x * 2
    x.add_(paddle.ones([]))
    assert x.sum() < 0, "too large"
    return x


def raises_in_a_branch(x):
    box.best = x * 2
    x.add_(paddle.ones([]))
    if x.sum() > 0:
        raise ValueError("the sum is positive")
    return x


def int_or_float(x):
    n = 0
    if x.sum() > 0:
        n += 0.5
    return x if type(n) is int else -x


def writes_to_one_of_two(x):
    row = x[0]
    picked = row if x.sum() > 0 else x[1]
    picked.add_(paddle.ones([3, 4]))
    return row


RUNTIME = (
    "undefined_on_one_path",
    "undefined_without_an_iteration",
    "asserts",
    "raises_in_a_branch",
)
