"""State outside of the translated function: variables of modules and closures, containers.

Each case makes a function and a way to look at its state. One copy is called eagerly and one
translated, three times each, and after every call results and states are equal.
"""

from __future__ import annotations

import collections
import copy
import warnings

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.static import InputSpec

import dy2st
from tests import check

pytestmark = pytest.mark.sampled

X = paddle.to_tensor(np.random.default_rng(0).normal(size=[3, 4]).astype("float32"))
CASES = []


def case(*loops, programs=None):
    """`loops`: the kinds in the report; `programs`: how many translations three calls need."""

    def register(make):
        CASES.append(pytest.param(make, loops, programs, id=make.__name__))
        return make

    return register


@pytest.mark.quick(
    "nonlocal_tensor", "globals_in_a_loop", "list_that_grows_in_a_loop", "cleared_and_filled",
    "deletes_and_sorts", "elements_noted_by_a_method",
)  # fmt: skip
@pytest.mark.parametrize(("make", "loops", "programs"), CASES)
def test_state_outside(make, loops, programs):
    eager, eager_state = make()
    function, state = make()
    static = dy2st.to_static(function)
    known = [id(q) for q in containers(state())]
    for k in range(3):
        x = X + k
        with warnings.catch_warnings():
            if make is elements_noted_by_a_method:
                warnings.simplefilter("ignore", dy2st.CopyWarning)
            want, have = eager(x), static(x)
        check.same(have, want, what=f"call {k}")
        check.same(state(), eager_state(), what=f"state after call {k}")
    assert [id(q) for q in containers(state())] == known
    assert tuple(q.kind for q in dy2st.report(static, X).loops) == loops
    if programs is not None:
        translated = getattr(static, "forward", static)
        assert len(dy2st.explain(translated).reasons) == programs


def containers(x):
    """The outermost lists, dicts and sets of a state: objects that must stay the same."""
    if isinstance(x, (list, dict, set)):
        return [x]
    return [c for q in x for c in containers(q)] if isinstance(x, tuple) else []


# ---------------------------------------------------------------- variables
@case("scan", programs=1)
def nonlocal_tensor():
    total = paddle.zeros([4])

    def f(x):
        nonlocal total
        for t in range(x.shape[0]):
            total = total + x[t]
        return total * 2

    return f, lambda: total


@case("scan")
def nonlocal_through_a_helper():
    total, last, steps = paddle.zeros([4]), None, 0

    def note(v):
        nonlocal total, last, steps
        total += v
        last, steps = v, steps + 1

    def f(x):
        for row in x:
            note(row)
        return total * 2

    return f, lambda: (total, last, steps)


@case("scan", programs=1)
def nonlocal_only_written():
    last = None

    def f(x):
        nonlocal last
        y = x
        for _ in range(3):
            y = y * 0.5
        last = y
        return x + 1

    return f, lambda: last


@case()
def counter_in_a_closure():
    n = 0

    def f(x):
        nonlocal n
        n += 1
        return x * n

    return f, lambda: n


def module():
    """A function of a module of its own, and the module's dict."""
    space = {"__name__": "a_module", "total": paddle.zeros([4]), "calls": 0, "paddle": paddle}
    return space


def in_module(text, name):
    import linecache
    import textwrap

    def make():
        space, file, source = module(), f"<{name}>", textwrap.dedent(text)
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        exec(compile(source, file, "exec"), space)
        return space["f"], lambda: (space["total"], space["calls"], space.get("made"))

    make.__name__ = name
    return make


case("scan")(
    in_module(
        """
        def f(x):
            global total, calls
            for t in range(x.shape[0]):
                total = total + x[t]
            calls += 1
            return total * calls
        """,
        "globals_in_a_loop",
    )
)
case(programs=1)(
    in_module(
        """
        def helper(x):
            global made
            (made, _), rest = (x * 2, 0), 1
            return made

        def f(x):
            return helper(x) + made
        """,
        "a_global_that_a_callee_makes",
    )
)
case()(
    in_module(
        """
        made = 3

        def f(x):
            global made
            if made > 2:
                del made
                made = 2
            return x + made
        """,
        "deletes_a_global",
    )
)


# ---------------------------------------------------------------- containers
@case(programs=1)
def list_that_only_grows():
    history = []

    def f(x):
        history.append(x.mean())
        history.extend([x, "note"])
        return x + 1

    return f, lambda: history


@case("scan", programs=1)
def list_that_grows_in_a_loop():
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.history = []

        def forward(self, x):
            for t in range(x.shape[0]):
                self.history.append(x[t] * 2)
            self.history.append(x)
            return x + 1

    net = Net()
    return net, lambda: net.history


@case()
def list_that_grows_and_is_read():
    history = []

    def f(x):
        history.append(x.mean())
        return x + history[-1] + len(history)

    return f, lambda: history


@case()
def list_given_back():
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.history = [paddle.ones([4])]

        def forward(self, x):
            self.history.append(x[0])
            h = self.history
            h += [x[1]]
            return h, sum(h)

    net = Net()
    return net, lambda: net.history


@case(programs=2)
def dict_of_statistics():
    stats = {"n": 1}

    def f(x):
        stats.update(mean=x.mean(), last=x)
        stats["max"] = x.max()
        stats.setdefault("first", 7)
        return x * stats["n"]

    return f, lambda: stats


@case("unrolled", programs=2)
def cleared_and_filled():
    out, seen, queue = [], set(), collections.deque(maxlen=2)

    def f(x):
        out.clear()
        for i in range(3):
            out.append(x[i])
        seen.add(3)
        seen.discard(3)
        queue.clear()
        queue.append(x)
        queue.append(x * 2)
        queue.append(x * 3)
        return out[0] + queue[0]

    return f, lambda: (out, seen, tuple(queue))


@case()
def queue_of_states():
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.window = [paddle.zeros([4]), paddle.ones([4])]

        def forward(self, x):
            self.window.pop(0)
            self.window.append(x[0])
            self.window[0] = self.window[0] * 2
            return self.window[0] + self.window[1]

    net = Net()
    return net, lambda: net.window


@case("scan")
def slots_in_a_loop():
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.state = {"h": paddle.zeros([4]), "c": paddle.ones([4])}

        def forward(self, x):
            for row in x:
                self.state.update(h=paddle.tanh(self.state["h"] + row))
                self.state["c"] = self.state["c"] * self.state["h"]
            return self.state["c"]

    net = Net()
    return net, lambda: net.state


@case("scan")
def dict_made_here_updated_in_a_loop():
    def f(x):
        d = {"a": x[0]}
        for row in x:
            d.update(a=d["a"] + row)
        return d["a"]

    return f, tuple


@case()
def deletes_and_sorts():
    names, table = ["b", "a", "c"], {"x": 1, "y": 2}

    def f(x):
        if len(names) > 1:
            names.sort()
            del names[0]
            table.popitem()
        names[-1:] = ["z"]
        return x * len(names) + len(table)

    return f, lambda: (names, table)


@case()
def variable_set_in_a_branch_on_data():
    best, n = paddle.zeros([]), 0

    def f(x):
        nonlocal best, n
        if x.mean() > 1:
            best = x.mean()
        n += 1
        return x + best

    return f, lambda: (best, n)


@case("scan")
def number_that_decays_in_a_loop():
    rate = 1.0

    def f(x):
        nonlocal rate
        for _ in range(5):
            x = x * rate
            rate = rate * 0.5
        return x

    return f, lambda: rate


@case("scan")
def number_that_a_loop_makes_a_tensor():
    table = {"a": 1}

    def f(x):
        table["a"] = table["n"] = table.get("n", 0) + 1
        y = x
        for t in range(x.shape[0]):
            table["a"] = table["a"] + x[t]
            y = y * table["a"]
        return y

    return f, lambda: table


@case()
def containers_in_containers():
    table, groups = {"a": [], "b": []}, collections.defaultdict(list)
    counts = collections.Counter()

    def f(x, kept=[]):  # noqa: B006
        table["a"].append(x[0])
        table["b"].append([1, {"m": x.mean()}])
        groups["x"].append(x[1])
        counts["calls"] += 1
        kept.append(x.mean())
        return x + len(kept) + len(groups)

    return f, lambda: (table, groups, counts, f.__defaults__)


@case("scan", programs=1)
def elements_noted_by_a_method():
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.log = []

        def note(self, *values):
            self.log.extend(values)

        def forward(self, x):
            self.note(x[0])
            for row in x:
                self.note(row)
            self.note(x[1], "end")
            return x

    net = Net()
    return net, lambda: net.log


@case()
def read_by_another_function():
    log = []

    def size():
        return len(log)

    def f(x):
        log.append(x[0])
        return x * size()

    return f, lambda: log


@case("scan")
def containers_that_library_code_made():
    """They were refused, or taken for containers from outside."""
    seen = {}

    def collect(**given):
        given["z"] = given["a"] * 2
        seen.update(given)
        return given["z"]

    def f(x):
        parts, counts = paddle.split(x, 2, axis=1), sorted([3, 1])
        parts.append(x)
        parts[0] = parts.pop(0) * 2
        counts.append(2)
        for _ in range(3):
            counts[0] = counts[0] + 1
        table = dict(zip("ab", parts))
        table.update(c=collect(a=x))
        return paddle.concat(parts, 1) * sum(counts), parts, table, "a,b".split(",") + ["c"]

    return f, lambda: seen


@case()
def copies_of_an_outside_list():
    log = [1]

    def f(x):
        mine, other = list(log), log[:]
        mine.append(x)
        other.append(2)
        third = copy.copy(log)
        third.append(3)
        return mine[1] * len(other) * len(log + [x]) + len(third)

    return f, lambda: log


@pytest.mark.quick
def test_containers_of_arguments_are_changed_in_place():
    def f(states, x, table=None):
        states.append(x * 2)
        states[0] = states[0] + x
        if table is not None:
            table["x"] = states.pop()
            table["all"] = states
        return states

    static = dy2st.to_static(f)
    for k in range(3):
        ours = [X + k, X], {"n": 1}
        theirs = copy.deepcopy(ours)
        have, want = static(ours[0], X), f(theirs[0], X)
        assert have is ours[0]
        check.same(ours, theirs)
        check.same(static(ours[0], X, table=ours[1]), f(theirs[0], X, table=theirs[1]))
        check.same(ours, theirs)
        assert ours[1]["all"] is ours[0]
        check.same(have, want)


def test_one_list_passed_twice():
    def f(a, b, x):
        a.append(x)
        return len(b)

    static = dy2st.to_static(f)
    one, two = [X], [X]
    assert static(one, two, X) == 1 and len(one) == 2 and len(two) == 1
    assert static(two, two, X) == 2 and len(two) == 2
    assert static([X], [X], X) == 1


def test_a_list_of_a_loop_over_a_named_size_is_refused():
    kept = []

    def f(x):
        for t in range(x.shape[0]):
            kept.append(x[t])
        return x

    static = dy2st.to_static(f, input_spec=[InputSpec([None, 4], "float32", "x")])
    with pytest.raises(dy2st.SourceError, match="grows by x_0 elements"):
        static(X)
    assert kept == []


def test_a_failed_translation_leaves_everything_as_it_was():
    history, stats, n = [1], {"a": X}, 0

    def f(x):
        nonlocal n
        n += 1
        history.append(x)
        stats["b"] = x
        stats.pop("a")
        history.clear()
        return paddle.unique(x, axis=0)

    with pytest.raises(dy2st.SourceError):
        dy2st.to_static(f)(X)
    assert history == [1] and list(stats) == ["a"] and stats["a"] is X and n == 0


@pytest.mark.quick
def test_a_list_read_by_the_user_between_calls_is_followed():
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.seen = []

        def forward(self, x):
            self.seen.append(x[0])
            return x * 2

    static = dy2st.to_static(Net())
    static(X)
    static.seen.clear()
    static(X)
    static.seen = [0]
    static(X)
    assert static.seen[0] == 0 and len(static.seen) == 2
    np.testing.assert_array_equal(static.seen[1].numpy(), X[0].numpy())


# ---------------------------------------------------------------- variables of inner functions
def counted_in_a_comprehension(x):
    n = 0

    def scaled(row):
        nonlocal n
        n += 1
        return row * n

    return [scaled(row) for row in x], n


def counted_in_a_called_loop(x):
    n, total = 0, paddle.zeros([4])

    def add(row):
        nonlocal n, total
        n += 1
        total = total + row * n

    def run(rows):
        for row in rows:
            add(row)

    run(x)
    for row in x:
        add(row)
    return total, n


def decided_in_a_called_branch(x):
    best, which = paddle.full([], -1e9), -1

    def keep(i, value):
        nonlocal best, which
        best, which = value, i

    def look(rows):
        for i, row in enumerate(rows):
            if row.sum() > best:
                keep(i, row.sum())

    look(x)
    return best, which


def in_a_generator(x):
    state = paddle.zeros([4])

    def step(row):
        nonlocal state
        state = 0.5 * state + row
        return state

    return sum(step(row) for row in x), max(float(step(row).sum()) for row in x), state


@pytest.mark.parametrize(
    "f",
    [counted_in_a_comprehension, counted_in_a_called_loop, decided_in_a_called_branch,
     in_a_generator],
)  # fmt: skip
def test_variables_of_functions_inside_follow_eager(f):
    static = dy2st.to_static(f)
    for seed in range(3):
        x = paddle.to_tensor(np.random.default_rng(seed).normal(size=[5, 4]).astype("float32"))
        check.same(static(x), f(x), 1e-5, 1e-5, f"seed {seed}")


class Weighted:
    def __init__(self):
        self.first, self.second = 0.5, 2.0

    def scaled(self, x):
        return x * sum(vars(self).values()) + len(self.__dict__)


def test_all_attributes_of_an_object_with_translated_methods():
    class Translated(Weighted):
        scaled = dy2st.to_static(Weighted.scaled)

    with pytest.raises(dy2st.SourceError, match="all attributes of an object with translated"):
        Translated().scaled(X)
    check.same(dy2st.to_static(Weighted().scaled)(X), Weighted().scaled(X))


class Steps:
    def __init__(self, steps):
        self.steps = steps

    def run(self, x):
        self.steps.append(x)
        if x.sum() > 0:
            x = x + self.steps[0] * len(self.steps)
        self.steps.append(x * 2)
        return x


@pytest.mark.parametrize("made", [list, collections.deque, lambda: collections.deque(maxlen=3)])
def test_appended_to_and_then_read_in_a_branch(made):
    one, two = Steps(made()), Steps(made())
    static = dy2st.to_static(one.run)
    for k in (1, -1, 1, 1):
        check.same(static(X * k), two.run(X * k))
        check.same([*one.steps], [*two.steps])


DEFAULT = paddle.ones([3, 4])
DEFAULTS = [DEFAULT, paddle.zeros([3, 4])]


def compares_identities(x):
    return x is DEFAULT, any(x is q for q in DEFAULTS), x * (2 if x is DEFAULTS[1] else 3)


@pytest.mark.parametrize("order", [(0, 1, 2, 0), (2, 1, 0, 1)])
def test_an_argument_that_is_a_tensor_of_elsewhere_in_some_calls(order):
    static = dy2st.to_static(compares_identities)
    for k in order:
        x = [X, *DEFAULTS][k]
        check.same(static(x), compares_identities(x))


def test_texts_that_the_index_of_a_loop_chooses_are_keys():
    rates, counts = {"even": 2.0, "odd": 3.0}, collections.Counter()

    def rated(x):
        seen = collections.defaultdict(list)
        for t, row in enumerate(x):
            seen["even" if t % 2 == 0 else "odd"].append(row * rates["odd" if t % 2 else "even"])
            counts["even" if t % 2 == 0 else "odd"] += 1
        return {k: paddle.stack(v) for k, v in seen.items()}

    static, x = dy2st.to_static(rated), check.data(12, 3)
    check.same(static(x), rated(x))
    rates["odd"] = 5.0
    check.same(static(x), rated(x))
    assert counts == {"even": 24, "odd": 24}


def test_a_tuple_that_a_loop_has_made_longer_is_a_key():
    cache = {}

    def cached(x):
        key = ()
        for k in range(12):
            key = key + (k * x.shape[0],)
        if key not in cache:
            cache[key] = len(cache)
        return x + cache[key]

    static = dy2st.to_static(cached)
    for n in (2, 3, 2):
        check.same(static(paddle.ones([n])), paddle.ones([n]) + cache[(0, *range(n, 12 * n, n))])
    assert len(cache) == 2
