"""Branches and loops that depend on data.

A condition on a tensor is decided when the program runs; both branches are traced, and what they
leave behind must have one type.
"""

import paddle

import dy2st
from tests.docs.errors import example
from tests.parity.models import wrong_data

X = paddle.linspace(-0.75, 1.25, 24).reshape([2, 3, 4])
NAMED = [paddle.static.InputSpec([None, None, 4], "float32", "x")]

for _name in (
    "branches_differ_in_dtype", "branches_differ_in_shape", "branches_differ_in_structure",
    "tensor_or_none", "int_or_float", "chooses_a_string", "chooses_a_layer", "returns_differ",
    "returns_or_falls_off", "appends_in_one_branch", "pops_in_a_branch", "key_in_one_branch",
    "attribute_in_one_branch", "sets_a_global_in_a_branch", "adds_to_a_set_in_a_branch",
    "changes_dtype_in_a_while", "grows_in_a_while", "becomes_a_tuple_in_a_while",
    "text_grows_in_a_while", "yields_in_a_branch", "recursion_on_data", "catches_a_failing_value",
    "comprehension_with_a_tensor_condition", "value_as_a_pool_size", "value_as_a_list_index",
    "value_as_a_dict_key", "tensor_as_a_dict_key", "value_as_a_slice", "sorts_by_value",
    "asserts", "raises_in_a_branch", "writes_to_one_of_two",
):  # fmt: skip
    globals()[_name] = example(X, ends="while" not in _name)(getattr(wrong_data, _name))


@example(X)
def both_branches_raise(x):
    if x.sum() > 0:
        raise ValueError("positive")
    else:
        raise ValueError("negative")


@example(X)
def error_inside_of_try(x):
    try:
        if x.sum() > 0:
            raise ValueError("positive")
    except ValueError:
        x = -x
    return x


@example(X)
def condition_with_many_elements(x):
    if x > 0:
        x = -x
    return x


@example(X)
def value_in_a_list(x):
    return x.sum() in [1.0, 2.0]


@example(X)
def data_decides_in_an_unconverted_function(x):
    return clipped(x)


@dy2st.not_to_static
def clipped(x):
    if x.max() > 1:
        x = x / x.max()
    return x


@example(X, options={"input_spec": NAMED})
def named_size_in_an_unconverted_function(x):
    return last_of(x)


@dy2st.not_to_static
def last_of(x):
    for t in range(x.shape[1]):
        h = x[:, t]
    return h


@example(X, options={"input_spec": NAMED})
def generator_over_a_named_size(x):
    def rows():
        for t in range(x.shape[1]):
            yield x[:, t] * t

    return sum(rows())


@example(X, options={"input_spec": NAMED})
def loop_over_a_named_size_that_reads_a_list(x):
    steps = [paddle.tanh, paddle.sin, paddle.exp]
    y = x[:, 0]
    for t in range(x.shape[1]):
        y = y + steps[t](x[:, t])
    return y


@example(X, options={"input_spec": NAMED})
def tensor_that_grows_over_a_named_size(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = paddle.stack([h, h + x[:, t]])
    return h


@example(X)
def step_of_a_range_is_zero(x):
    y = x
    for _ in range(0, x.argmax(), 0):
        y = y + 1
    return y


@example(X)
def list_that_a_loop_filled_is_sorted(x):
    rows = []
    while len(rows) < 3 and x.sum() > len(rows) - 8:
        rows.append(x[0].sum())
    rows.sort()
    return rows


@example(X)
def is_of_two_numbers_or_tensors(x):
    one = two = 0.0
    if x.sum() > 0:
        one, two = x.sum(), x.max()
    return one is two


class Countdown:
    def __init__(self, x):
        self.left = x

    def __iter__(self):
        return self

    def __next__(self):
        self.left = self.left - 1
        if self.left.sum() < 0:
            raise StopIteration
        return self.left


@example(X)
def iterator_that_data_ends(x):
    for left in Countdown(x):
        x = x + left
    return x


@example(X, options={"input_spec": NAMED})
def index_of_a_list_by_a_named_size(x):
    return [paddle.abs, paddle.tanh, paddle.sin][x.shape[0]](x)


@example(X, options={"input_spec": NAMED})
def list_without_elements(x):
    rows = []
    for t in range(x.shape[1]):
        rows.append(x[:, t])
    return rows[0] + [][0]


@example(X)
def most_of_a_list_that_a_loop_left_empty(x):
    found = []
    while x.sum() < 0:
        x = x * 2
        found.append(float(x.max()))
    return max(found)


@example(X)
def largest_or_a_default(x):
    found = []
    while x.sum() < 0:
        x = x * 2
        found.append(float(x.max()))
    return max(found, default=0.0)


@example(X, options={"input_spec": NAMED})
def list_that_a_loop_has_replaced(x):
    rows = [x[:, 0], x[:, 1]]
    first = rows
    for t in range(x.shape[1]):
        rows.append(rows[-1] + x[:, t])
        rows = rows[-2:]
    return first[0], rows[-1]


@example(X, options={"input_spec": NAMED})
def dict_that_a_loop_has_replaced(x):
    state = {"h": x[:, 0]}
    first = state
    for t in range(x.shape[1]):
        state["h"] = state["h"] + x[:, t]
        state = {"h": state["h"] * 0.5}
    return first["h"], state["h"]


@example(X)
def name_of_the_largest(x):
    rows = {"first": x[0], "second": x[1]}
    return {max(rows, key=lambda name: float(rows[name].sum())): x}


@example(X)
def index_from_data_of_an_empty_list(x):
    scales = []
    return x * scales[int(x.sum())]


@example(X)
def numbers_that_a_loop_removes(x):
    left = list(range(12))
    for k in left:
        left.remove(k)
        x = x * k
    return x


@example(X)
def dict_that_loses_a_key_is_chosen(x):
    a, b = {"h": x, "c": x}, {"h": x * 2, "c": x}
    if x.sum() > 0:
        del a["c"]
        state = a
    else:
        del a["c"]
        state = b
    return state["h"]


table = {"scale": paddle.ones([4])}


@example(X)
def object_that_a_loop_names(x):
    while x.sum() < 100:
        chosen = table
        x = x * 2
    return x * chosen["scale"]


@example(X)
def other_type_after_a_loop_that_may_not_run(x):
    y = x
    while x.sum() < 100:
        x = x * 2
        y = x[:1]
        break
    return y


@example(X)
def element_behind_the_end(x):
    rows = [x[0], x[1]]
    for t in range(2):
        rows[t + 1] = rows[t] + 1
    return rows[1]


@example(X, options={"input_spec": NAMED})
def last_of_a_list_that_is_still_empty(x):
    rows = []
    for t in range(x.shape[1]):
        rows.append(rows[-1] + x[:, t])
    return rows[-1]


@example(X)
def sets_an_element_behind_the_end(x):
    rows = [x[0]]
    rows[1] = x[1]
    return rows


@example(X, options={"input_spec": NAMED})
def zip_of_sequences_of_other_lengths(x):
    y = x[:, 0]
    for a, b in zip(x, x[1:], strict=True):
        y = y + a * b
    return y


@example(X, options={"input_spec": NAMED})
def sorts_a_list_that_a_loop_filled(x):
    rows = []
    for t in range(x.shape[1]):
        rows.append(x[:, t])
    rows.sort(key=id)
    return rows


@example(X, options={"input_spec": NAMED})
def stack_of_texts(x):
    names = []
    for t in range(x.shape[1]):
        names.append("step")
    return paddle.stack(names)


@example(X, options={"input_spec": NAMED})
def stack_of_pairs(x):
    pairs = []
    for t in range(x.shape[1]):
        pairs.append((x[:, t], x[:, t] * 2))
    return paddle.stack(pairs)


@example(X)
def list_that_data_chooses_is_changed(x):
    first, second = [x], [x * 2]
    if x.sum() > 0:
        rows = first
    else:
        rows = second
    rows.append(x)
    return first, second


@example(X)
def zero_as_a_divisor(x):
    n = int(x.sum())
    return x * (n // 0)


@example(X)
def division_inside_of_try(x):
    try:
        n = 10 // int(x.sum())
    except ZeroDivisionError:
        n = 0
    return x * n


@example(X)
def unpacks_a_number(x):
    a, b = x.sum()
    return a


@example(X)
def range_over_a_computed_float(x):
    y = x
    for _ in range(float(x.sum())):
        y = y + 1
    return y


@example(X)
def attribute_of_a_computed_number(x):
    return x * int(x.sum()).bit_length()


@example(X)
def unknown_attribute_of_a_number(x):
    return x * int(x.sum()).length


@example(X)
def number_in_a_list_of_tensors(x):
    return x if int(x.sum()) in [x[0].sum(), x[1].sum()] else -x


@example(X)
def number_in_a_long_list(x):
    known = [k * k for k in range(10_000)]
    return x if int(x.sum()) in known else -x


@example(X)
def chooses_a_list_that_a_loop_filled(x):
    rows = []
    for t in range(x.shape[0]):
        rows.append(x[t])
    picked = rows if x.sum() > 0 else [x[0]]
    return picked[0]


@example(X, options={"input_spec": NAMED})
def element_behind_a_list_that_a_loop_filled(x):
    rows = []
    for t in range(x.shape[0]):
        rows.append(x[t])
    return rows[x.shape[0]]


class Rejected(Exception):
    def __init__(self, value):
        super().__init__("rejected")
        self.value = value


@example(X)
def error_that_holds_a_value(x):
    for t in range(64):
        if x[:, t % 2].sum() > 0:
            raise Rejected(x[:, t % 2].sum())
    accepted()
    return x


@dy2st.host(result=None)
def accepted():
    pass


@example(X)
def data_decides_about_a_generator(x):
    rows = iter_of(x)
    if x.sum() > 0:
        x = x + next(rows)
    return x


def iter_of(x):
    yield from x


scales = ()


@example(X, options={"input_spec": NAMED})
def index_of_an_empty_tuple(x):
    y = x[:, 0]
    for t in range(x.shape[1]):
        y = y + x[:, t] * scales[t]
    return y


@example(X, options={"input_spec": NAMED})
def element_that_the_loop_has_yet_to_append(x):
    rows = [x[:, 0]]
    for t in range(x.shape[1]):
        rows.append(rows[t + 1] + x[:, t])
    return rows[-1]


@example(X)
def reads_an_object_that_one_branch_sets(x):
    if x.sum() > 0:
        key = "weight"
    return {"weight": x * 2}[key]


@example(X, options={"input_spec": NAMED})
def reads_a_list_that_a_loop_has_replaced(x):
    rows = [x[:, 0], x[:, 1]]
    first = rows
    for t in range(x.shape[1]):
        rows.append(x[:, t] + rows[0])
        rows = rows[-2:]
    return first[-1]


@example(X)
def stack_of_a_list_that_a_loop_left_empty(x):
    ys = []
    while x.sum() > 99:
        x = x - 1
        ys.append(x)
    return paddle.stack(ys)


@example(X)
def iterator_used_after_a_break(x):
    pairs, y = zip(x, x * 2), x[0]
    for a, b in pairs:
        y = y + a * b
        if y.sum() > 3:
            break
    return y, list(pairs)


@example(X, paddle.to_tensor(2))
def state_that_becomes_wider(x, n):
    h, ys = x[0, :, :1], []
    for t in range(int(n)):
        h = h * 0.5 + x[t]
        ys.append(h)
    return paddle.stack(ys)


@example(paddle.ones([12, 3]))
def joins_a_tuple_with_a_list(x):
    ys = ()
    for row in x:
        ys = ys + (row * 2,)
    return ys + [x[0]]


@example(paddle.ones([12, 3]))
def stores_into_a_tuple(x):
    ys = ()
    for row in x:
        ys = ys + (row * 2,)
    ys[0] = x[0]
    return ys


@example(paddle.ones([12, 3]))
def deletes_from_a_tuple(x):
    ys = ()
    for row in x:
        ys = ys + (row * 2,)
    del ys[0]
    return ys


@example(X, paddle.to_tensor(0))
def loop_without_an_iteration(x, n):
    h, ys = None, []
    for t in range(int(n)):
        h = x[t] if h is None else h + x[t]
        ys.append(h)
    return paddle.stack(ys)


@example(X, paddle.to_tensor(3))
def slice_behind_the_end(x, n):
    h = x[:1] * 0
    for t in range(int(n)):
        h = h + x[t : t + 1]
    return h


@example(X)
def size_that_nothing_bounds(x):
    h = x.flatten()
    while h.sum() < 100:
        h = paddle.concat([h, h[h > 0]])
    return h


@example(X)
def list_of_two_kinds_as_long_as_data_says(x):
    path = [0.5]
    for t in range(int(x.sum())):
        path.append(int(x[0, 0, t % 4]))
    path.reverse()
    return path


@example(X[0])
def replaces_all_elements(x):
    hypotheses, h = [], x
    for _ in range(8):
        h = paddle.tanh(h + x)
        order = paddle.argsort(h.sum(1))
        hypotheses = [q[order] for q in hypotheses] + [h]
        if h.sum() > 2:
            break
    return paddle.stack(hypotheses)


@example(X)
def leaves_the_process_as_data_decides(x):
    if x.sum() > 1e9:
        raise SystemExit("diverged")
    return x
