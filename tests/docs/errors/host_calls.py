"""Random numbers, clocks and functions of libraries.

A call of code that is not converted is pure, checked on every call, made again on every call, or
refused.
"""

import functools
import json
import math
import os
import queue
import random
import statistics
import subprocess
import warnings

import numpy as np
import paddle

import dy2st
from tests.docs.errors import example

X = paddle.linspace(-0.75, 1.25, 12).reshape([3, 4])
NAMED = [paddle.static.InputSpec([None, 4], "float32", "x")]
layers = [paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 4)]
rng = np.random.default_rng(0)
steps = (t for t in range(10))
waiting = queue.SimpleQueue()
table = np.zeros(4)
unknown = np.frompyfunc(lambda a: a + 1, 1, 1)
wrong = dy2st.host(lambda: np.ones(4), result=float)


@example(X)
def chooses_a_text(x):
    return {random.choice(["left", "right"]): x}


@example(X)
def looks_into_a_chosen_layer(x):
    return x @ random.choice(layers).weight


@example(X)
def compares_a_chosen_layer(x):
    return x if random.choice(layers) is layers[0] else -x


@example(X)
def array_of_a_random_size(x):
    n = random.randint(1, 4)
    return x * float(np.random.rand(n, 1).sum())


@example(X)
def chooses_numbers_of_two_types(x):
    return x * random.choice([1, 0.5])


@example(X)
def draws_into_an_array(x):
    return x * paddle.to_tensor(rng.random(out=table))


@example(X)
def draws_with_a_tensor(x):
    return x * random.uniform(0.0, x.max())


@example(X)
def shuffles_layers(x):
    random.shuffle(layers)
    return layers[0](x)


@example(X)
def makes_a_generator(x):
    return x * random.Random(0).random()


@example(X)
def draws_a_pool_size(x):
    return paddle.nn.functional.adaptive_avg_pool1d(x.reshape([1, 3, 4]), random.randint(1, 3))


@example(X)
def host_function_of_another_result(x):
    return x * wrong()


@example(X)
def host_function_of_a_new_object(x):
    return x * measured({"x": x})


@dy2st.host
def measured(table) -> float:
    return float(len(table))


@example(X)
def gives_a_large_number(x):
    return x * random.getrandbits(200)


@example(X)
def takes_texts_from_a_generator(x):
    return x if next(names) == "a" else -x


@example(X)
def takes_a_tensor_with_a_gradient_from_a_generator(x):
    return x * next(weights)


@example(X)
def takes_from_a_random_generator_behind_random_numbers(x):
    return x * random.random() + next(noise)


@example(X, calls=2)
def takes_a_smaller_batch_behind_random_numbers(x):
    return random.random() * next(batches).sum() * x


@example(X)
def takes_an_array_that_is_changed(x):
    return x * next(counts) + x * next(counts)


@example(X)
def takes_from_a_generator_until_it_ends(x):
    while True:
        factor = next(factors, None)
        if factor is None:
            return x
        x = x * factor


def counted():
    count = np.zeros([4], "float32")
    while True:
        count += 1
        yield count


names = (q for q in ["a", "b", "c", "d"])
weights = iter([paddle.create_parameter([4], "float32")] * 9)
noise = (random.random() for _ in range(9))
batches = (paddle.ones([n]) for n in [4, 2] * 9)
counts = counted()
factors = (1.0 for _ in range(999))


@example(X, ends=False)
def takes_from_what_may_end(x):
    try:
        return x * next(rest)
    except StopIteration:
        return x


rest = iter([1.0, 2.0])


@example(X, ends=False)
def measures_in_a_try(x):
    try:
        return x * measured([2.0])
    except OSError:
        return x


@example(X)
def uses_an_iterator_up(x):
    for t in steps:
        x = x * t
    return x


@example(X, ends=False)
def takes_from_a_queue(x):
    return x * waiting.get()


@example(X)
def unknown_function(x):
    return x * unknown(1)


@example(X)
def starts_a_process(x):
    subprocess.run(["true"])
    return x


@example(X)
def reads_a_file(x):
    return x * len(os.listdir("."))


@example(X)
def looks_at_the_load(x):
    return x * os.getloadavg()[0]


@example(X)
def deletes_from_the_environment(x):
    del os.environ["HOME"]
    return x


@example(X)
def tensor_in_numpy(x):
    return paddle.to_tensor(np.cumsum(x))


@example(X)
def value_in_json(x):
    return len(json.dumps([int(x.sum())])) * x


@example(X)
def writes_to_an_array_from_outside(x):
    np.copyto(table, 1.0)
    return x * float(table.sum())


@example(X)
def math_of_a_wrong_value(x):
    return x * math.sqrt(x.min())


@example(X)
def sorts_tensors(x):
    return sorted([x[0].sum(), x[1].sum()], key=lambda q: q)


@example(X)
def maximum_of_nothing(x):
    return x * max([])


@example(X)
def mode_that_is_no_bool(x):
    layers[0].train(1)
    return layers[0](x)


@example(X, options={"input_spec": NAMED})
def shape_of_a_draw_that_is_no_multiple(x):
    return paddle.to_tensor(np.random.rand(100 // x.shape[0]))


@example(X, ends=False)
def library_that_draws(x):
    return x * statistics.NormalDist(0, 1).samples(1)[0]


@example(X, options={"input_spec": [paddle.static.InputSpec([None, 4], "float32", "x")]})
def draws_as_many_as_a_square(x):
    n = x.shape[0]
    return x + paddle.to_tensor(np.random.rand(n * n)).sum().astype("float32")


class Token:
    pass


@functools.lru_cache(maxsize=0)
def new_token():
    return Token()


@example(X)
def gives_a_new_object(x):
    return {new_token(): x}


noted = []
dy2st.pure(note := lambda step: noted.append(step))


@example(X)
def pure_function_that_stores(x):
    note(3)
    return x * len(noted)


class Meter:
    seen = 0.0


def count_rows() -> None:
    meter.seen += 1


meter = Meter()
dy2st.host(count_rows)
empty_rows = dy2st.host(lambda rows: rows.clear(), result=None)


@example(X)
def host_function_that_changes_what_is_read_later(x):
    count_rows()
    return x * meter.seen


@example(X)
def host_function_that_reads_what_has_been_changed(x):
    meter.seen = 1.0
    count_rows()
    return x


@example(X)
def host_function_that_changes_its_argument(x):
    empty_rows([1, 2])
    return x


@example(X)
def warnings_that_are_collected(x):
    with warnings.catch_warnings(record=True) as told:
        y = x * 2
    return y, told


@example(X)
def filters_of_warnings_in_a_branch(x):
    with warnings.catch_warnings():
        if x.sum() > 0:
            warnings.simplefilter("ignore")
        return x * 2


@example(X)
def filters_of_warnings_for_good(x):
    warnings.simplefilter("ignore")
    return x * 2


accuracy = paddle.metric.Accuracy()


@example(paddle.ones([4, 3]), paddle.zeros([4, 1], "int64"))
def metric_that_counts(y, labels):
    accuracy.update(accuracy.compute(y, labels))
    return y


@example(paddle.ones([4]))
def distance_of_distributions_on_data(x):
    known, other = (paddle.distribution.Poisson(q) for q in (x, x + 1))
    return paddle.distribution.kl_divergence(known, other)
