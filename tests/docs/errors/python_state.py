"""Python objects.

A program repeats on every call what the function does to Python objects. What it could not repeat
is refused.
"""

import copy
import functools
import hashlib
import io
import os
import pickle
import queue
import random
import threading
import types
import weakref

import paddle

import dy2st
from tests.docs.errors import example, script
from tests.parity.models import wrong, wrong_data

X = paddle.linspace(-0.75, 1.25, 24).reshape([2, 3, 4])
W = X.detach()
W.stop_gradient = False
NAMED = [paddle.static.InputSpec([None, None, 4], "float32", "x")]
settings = types.ModuleType("settings")
layer = paddle.nn.Linear(4, 4)
log = []
record = io.TextIOWrapper(io.BytesIO())

for _name in ("returns_an_object", "coroutine_inside", "index_from_data_in_python"):
    globals()[_name] = example(X)(getattr(wrong, _name))
for _name in ("text_as_a_key", "hands_data_to_numpy"):
    globals()[_name] = example(X, ends=False)(getattr(wrong_data, _name))
asks_for_numpy = example(X)(wrong.asks_for_numpy)


@example(X)
def attribute_of_a_tensor(x):
    x.scale_of_mine = 2.0
    return x


@example(X)
def opens_a_file(x):
    with open(os.devnull) as file:
        return x * len(file.read())


@example(X)
def moves_a_layer(x):
    layer.to(dtype="float32")
    return layer(x)


@example(X)
def prints_to_a_file(x):
    print(x.sum(), file=record)
    return x


@functools.lru_cache
def scaled(x):
    return x * 2


@example(X)
def calls_a_cached_function(x):
    return scaled(x)


class Suppress:
    def __init__(self, flag):
        self.flag = flag

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return self.flag


@example(X)
def suppresses_as_data_decides(x):
    with Suppress(x.sum() > 0):
        raise ValueError("too large")


@example(X)
def returns_a_text_with_a_value(x):
    return f"the sum is {x.sum()}"


@example(X, options={"input_spec": NAMED})
def list_from_outside_grows_by_a_named_size(x):
    for t in range(x.shape[1]):
        log.append(x[:, t])
    return x


@example(X)
def joins_a_number_to_text(x):
    return x, ", ".join([f"{x.sum()}", 3])


@example(X)
def text_with_too_few_values(x):
    assert x.sum() < 0, "%s of %s" % (x.sum(),)
    return x


@example(X)
def text_with_too_many_values(x):
    assert x.sum() < 0, "%s" % (x.sum(), x.mean())
    return x


@example(X)
def leaves_a_finally_clause(x):
    for t in range(3):
        try:
            x = x + t
        finally:
            break
    return x


@example(X)
def changes_the_gradient_mode(x):
    paddle.set_grad_enabled(False)
    return x * 2


@example(X)
def attribute_of_a_library_object(x):
    layer.weight.scale_of_mine = 2.0
    return x


@example(X)
def plain_attribute_of_a_function(x):
    object.__setattr__(functools, "last", 3)
    return x


stack = paddle.nn.Sequential(paddle.nn.Linear(4, 4), paddle.nn.ReLU())


@example(X)
def deletes_a_layer(x):
    del stack[1]
    return stack(x)


class Hooked(paddle.nn.Layer):
    def forward(self, x):
        return x * 2


hooked = Hooked()
hooked.register_forward_post_hook(lambda layer, x, y: y, always_call=True)


flags = bytearray(b"abc")


@example(X)
def length_of_bytes_from_outside(x):
    return x * int.from_bytes(flags, "big")


class Length:
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return self.x.sum()


class Name:
    def __init__(self, x):
        self.x = x

    def __str__(self):
        return f"name {self.x}"


@example(X)
def name_that_is_a_tensor(x):
    return {str(Name(x)): x}


class Recorded:
    def __getattribute__(self, name):
        return object.__getattribute__(self, name)


recorded = Recorded()
recorded.scale = 2.0


@example(X)
def object_that_computes_its_attributes(x):
    return x * recorded.scale


generator = random.Random(0)


@example(X)
def copies_a_generator(x):
    return x * copy.copy(generator).random()


class Lists(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", paddle.zeros([2, 3, 4]))

    def forward(self, x):
        self.state = x
        return [b * 2 for b in self.buffers()]


lists = Lists()


digest = hashlib.md5()
entries = weakref.WeakValueDictionary()
raw = memoryview(bytearray(4))


@example(X)
def digest_from_outside(x):
    digest.update(b"step")
    return x * int(digest.hexdigest()[:2], 16)


@example(X)
def digest_in_a_branch(x):
    made = hashlib.md5()
    if x.sum() > 0:
        made.update(b"step")
    return x * int(made.hexdigest()[:2], 16)


@example(X)
def weak_dict(x):
    return x * len(entries)


@example(X)
def item_of_a_memoryview(x):
    raw[0] = 1
    return x


@example(X)
def bytes_of_a_memoryview(x):
    return x * raw[0]


@example(X)
def deep_copy_of_a_parameter(x):
    return x @ copy.deepcopy(layer.weight)


@example(X)
def deep_copy_of_a_list_that_holds_itself(x):
    states = [x]
    states.append(states)
    return copy.deepcopy(states)[0]


@example(X)
def lists_buffers_after_a_store(x):
    return lists(x)


class Loss(paddle.nn.Layer):
    def forward(self, x):
        loss = x.sum()
        loss.backward()
        return loss


loss = Loss()


@example(X)
def backward_inside(x):
    return loss(x)


@example(X)
def reads_a_gradient(x):
    return x, layer.weight.grad


kept = []


@dy2st.pure
def remembered(x):
    kept.append(1)
    return 2.0


@example(X)
def tensor_for_a_pure_function(x):
    return x * remembered(x)


class Stored:
    value = None


@dy2st.not_to_static
def stores(x):
    Stored.value = 2.0


@example(X)
def stores_in_unconverted_code(x):
    exec("log.append(1)")
    return x


@example(X)
def catches_into_a_global(x):
    global problem
    try:
        x = x + paddle.ones([7])
    except ValueError as problem:
        pass
    return x


@example(X)
def matches_too_many_parts(x):
    match x.shape:
        case list(rows, columns):
            x = x * rows * columns
    return x


@example(X)
def matches_no_class(x):
    match x:
        case paddle.tanh():
            x = x * 2
    return x


@example(X)
def hook_that_is_always_called(x):
    return hooked(x)


@example(X)
def makes_a_queue(x):
    waiting = queue.Queue(1)
    waiting.put(x)
    return waiting.get()


names = {"a", "b"}


@example(X)
def takes_any_element(x):
    return {names.pop(): x}


@example(X)
def maximum_of_an_empty_list(x):
    return x * max([], key=lambda q: float(x.sum()))


@example(X)
def enters_a_lock(x):
    with lock:
        return x * 2


lock = threading.Lock()


@script
def uses_a_tensor_of_the_translation_later():
    later = []

    def kept(x):
        later.append(lambda: x + 1)
        return x

    dy2st.to_static(kept)(paddle.ones([2]))
    later[0]()


@script
def uses_an_array_of_the_translation_later():
    later = []

    def kept(x):
        a = x.numpy()
        later.append(lambda: a + 1)
        return x

    dy2st.to_static(kept)(paddle.ones([2]))
    later[0]()


class Position:
    def __init__(self, at):
        self.at = at

    def __index__(self):
        return self.at


@example(X, ends=False)
def object_whose_index_is_a_tensor(x):
    return x * [1.0, 2.0][Position(x.argmin())]


space = {}
exec("class Made:\n    def __call__(self, x):\n        return x * 3", space)
made = space["Made"]()


@example(X)
def object_whose_call_has_no_source(x):
    return made(x)


class Weighted:
    def __init__(self):
        self.first, self.second = 0.5, 2.0

    @dy2st.to_static
    def scaled(self, x):
        return x * sum(vars(self).values())


@script
def reads_all_attributes():
    Weighted().scaled(X)


def sum_of_positives(x):
    total = 0.0
    if x.sum() > 0:
        total = total + x
    return total


@example(X)
def text_of_a_number_or_a_tensor(x):
    return x * len(f"{sum_of_positives(x)}")


@example(X)
def pop_from_a_list_without_elements(x):
    rows, total = [], x[0]
    for _ in range(4):
        total = total + rows.pop()
    return total


class OneOfEach(type):
    made = {}

    def __call__(cls, *args):
        if cls not in OneOfEach.made:
            OneOfEach.made[cls] = super().__call__(*args)
        return OneOfEach.made[cls]


class Settings(metaclass=OneOfEach):
    scale = 2.0


@example(X)
def class_of_a_class_that_makes_objects(x):
    return x * Settings().scale


@example(paddle.linspace(0, 1, 12).reshape([3, 4]))
def element_of_a_list_that_is_compared(x):
    ys, y = [], x[0]
    for row in x:
        y = paddle.tanh(y + row)
        ys.append(y)
    return y * 2 if y is ys[int(x[0].argmax()) - 1] else y


@example(X, options={"input_spec": NAMED})
def element_of_a_list_that_is_changed(x):
    states = []
    for row in x:
        states.append({"h": row * 2})
    states[-1]["h"] = states[-1]["h"] + 1
    return [s["h"] for s in states]


@example(X)
def tuple_of_any_length_as_a_key(x):
    key, seen = (), {}
    for k in range(int(x.argmax())):
        key = key + (k,)
    seen[key] = x
    return seen


@example(X)
def text_from_data_as_a_key(x):
    seen = {"up": x, "down": -x}
    return seen["up" if x.sum() > 0 else "down"]


@example(X)
def makes_a_parameter(x):
    return paddle.nn.Linear(4, 4)(x)


@example(X)
def makes_a_tensor_by_its_class(x):
    return x + paddle.Tensor(x)


@example(X)
def pickles_an_object(x):
    return pickle.loads(pickle.dumps([x.shape]))


@example(X)
def weak_reference_to_an_object(x):
    return x * watched().scale


class Rates:
    scale = 2.0


rates = Rates()
watched = weakref.ref(rates)
