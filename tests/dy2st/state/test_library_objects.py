"""Objects of libraries that methods change: of the function itself, and others, refused."""

from __future__ import annotations

import calendar
import contextlib
import contextvars
import dataclasses
import functools
import graphlib
import hashlib
import string
import types
import typing
import weakref
import zlib

import numpy as np
import paddle
import pytest

import dy2st
from tests import check

X = paddle.linspace(-1.0, 2.0, 12).reshape([4, 3])


def digest_in_a_loop(x):
    digest = hashlib.md5()
    for _ in range(3):
        digest.update(b"a")
    return x * int(digest.hexdigest()[:2], 16)


def sorter_made_here(x):
    sorter = graphlib.TopologicalSorter({"b": ["a"]})
    for name in "cd":
        sorter.add(name, "b")
    return x, list(sorter.static_order())


def array_of_known_numbers(x):
    mask = np.zeros(4, "float32")
    mask[1:3] = 1
    for i in range(2):
        mask[i] += i * 2
    copied = mask.copy()
    copied[0] = 7
    return x * paddle.to_tensor(mask).unsqueeze(1), float(copied.sum())


@pytest.mark.parametrize(
    "f", [digest_in_a_loop, sorter_made_here, array_of_known_numbers], ids=lambda f: f.__name__
)
def test_objects_that_the_function_makes(f):
    static = dy2st.to_static(f)
    for k in range(3):
        check.same(static(X + k), f(X + k))


@functools.lru_cache
def table(n):
    return n + 1


BOX = types.SimpleNamespace(
    digest=hashlib.md5(), sorter=graphlib.TopologicalSorter(), calendar=calendar.Calendar(),
    packer=zlib.compressobj(), template=string.Template("n=$n"), line=np.poly1d([1.0, 2.0]),
    weak=weakref.WeakValueDictionary(), array=np.arange(4.0),
)  # fmt: skip


class Entered:
    count = 0

    def __enter__(self):
        Entered.count += 1

    def __exit__(self, *error):
        pass

    def close(self):
        Entered.count += 1


def enters(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(Entered())
    return x


def closes(x):
    with contextlib.closing(Entered()):
        return x * 2


def digest_in_a_branch(x):
    digest = hashlib.md5()
    if x.sum() > 0:
        digest.update(b"a")
    return x * int(digest.hexdigest()[:2], 16)


def fills_an_array(x):
    sums = np.zeros(4)
    for t in range(4):
        sums[t] = float(x[t].sum())
    return paddle.to_tensor(sums)


def grows_an_array(x):
    BOX.array += 1
    return x * BOX.array.sum()


REFUSED = {
    "digest": (lambda x: BOX.digest.update(b"a"), "of an object from outside"),
    "sorter": (lambda x: BOX.sorter.add("a"), "of an object from outside"),
    "calendar": (lambda x: BOX.calendar.setfirstweekday(3), "of an object from outside"),
    "packer": (lambda x: BOX.packer.compress(b"a"), "of an object from outside"),
    "template": (lambda x: BOX.template.substitute(n=x.shape[0]), "of an object from outside"),
    "callable": (lambda x: x * BOX.line(2.0), "of an object from outside"),
    "weak length": (lambda x: x * len(BOX.weak), "a WeakValueDictionary is read"),
    "weak loop": (lambda x: x * sum(1 for _ in BOX.weak), "a WeakValueDictionary is read"),
    "cache": (lambda x: table.cache_clear(), "cache_clear"),
    "exit stack": (enters, "ExitStack"),
    "closing": (closes, "closing"),
    "branch": (digest_in_a_branch, "from outside of a branch on data"),
    "computed element": (fills_an_array, "set to a value that the program computes"),
    "array": (grows_an_array, r"`\+=` writes to an array from outside"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_objects_that_a_program_does_not_follow_are_refused(name):
    f, match = REFUSED[name]
    before = BOX.digest.hexdigest(), BOX.array.tolist(), Entered.count, BOX.calendar.firstweekday
    with pytest.raises(dy2st.SourceError, match=match):
        dy2st.to_static(f)(X)
    after = BOX.digest.hexdigest(), BOX.array.tolist(), Entered.count, BOX.calendar.firstweekday
    assert before == after


def test_items_of_a_dict_in_the_order_of_its_keys():
    def f(x):
        held = {"b": x, "a": x * 2}
        ys = [q for _, q in sorted(held.items(), reverse=True)]
        return ys, [q for _, q in sorted(zip([3, 1, 2], x))]

    x = paddle.randn([3, 2])
    check.same(dy2st.to_static(f)(x), f(x))


def test_a_part_of_a_sequential():
    net = paddle.nn.Sequential(paddle.nn.Linear(2, 2), paddle.nn.Tanh(), paddle.nn.ReLU())

    def f(x):
        return net[:2](x), net[1:](x)

    static, x = dy2st.to_static(f), paddle.randn([3, 2])
    check.same(static(x), f(x))
    net[1] = paddle.nn.Sigmoid()
    check.same(static(x), f(x))


def test_a_field_of_a_dataclass_by_any_name():
    @dataclasses.dataclass(frozen=True, slots=True)
    class State:
        x: object
        n: int = 0

    def f(x, box):
        box.state = dataclasses.replace(box.state, x=box.state.x + x, n=box.state.n + 1)
        return box.state.x * box.state.n

    static, one, two = dy2st.to_static(f), *(types.SimpleNamespace() for _ in range(2))
    one.state, two.state = State(paddle.zeros([2])), State(paddle.zeros([2]))
    for _ in range(4):
        x = paddle.randn([2])
        check.same(static(x, one), f(x, two))
        check.same((one.state.x, one.state.n), (two.state.x, two.state.n))


def test_generic_classes_and_context_variables():
    kind = typing.TypeVar("kind")
    scale: contextvars.ContextVar[float] = contextvars.ContextVar("scale", default=1.0)

    class Held(typing.Generic[kind]):
        def __init__(self, value):
            self.value = value

    def f(x):
        return Held[float](x).value * scale.get()

    static, x = dy2st.to_static(f), paddle.randn([2])
    for value in (2.0, 3.0):
        scale.set(value)
        check.same(static(x), f(x))


def chooser():
    @functools.singledispatch
    def gain(a):
        return 1.0

    @gain.register
    def _(a: int):
        return 2.0 * a

    class Net(paddle.nn.Layer):
        @functools.singledispatchmethod
        def shift(self, a):
            return 0.5

        @shift.register(list)
        def _(self, a):
            return len(a)

        def forward(self, x, a):
            return x * gain(a) + self.shift(a)

    return Net(), gain


def test_functions_chosen_by_the_class_of_an_argument():
    (eager, one), (layer, two) = chooser(), chooser()
    static = dy2st.to_static(layer)
    for a in (1, "s", [1, 2], 3, 4, True):
        check.same(static(X, a), eager(X, a))
    for net, gain in ((eager, one), (layer, two)):
        gain.register(str, lambda a: 9.0)
        vars(type(net))["shift"].register(str, lambda self, a: 7.0)
    check.same(static(X, "s"), eager(X, "s"))


class Masked(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.scale, self.calls = 1.0, 0

    @functools.lru_cache(maxsize=4)  # noqa: B019
    def mask(self, n):
        return paddle.tril(paddle.ones([n, n])) * self.scale

    def forward(self, x, other):
        self.calls += 1
        return x @ self.mask(x.shape[1]) + other.mask(1) * self.calls


def test_a_method_with_a_cache():
    """It keeps what it has computed of each object, whatever changes there."""
    nets = [(Masked(), Masked()), (Masked(), Masked())]
    calls = nets[0][0], dy2st.to_static(nets[1][0])
    for k in range(4):
        check.same(*((call(X, two), one.calls) for (one, two), call in zip(nets, calls)))
        for one, two in nets:
            one.scale, two.scale = 2.0 * k, 3.0 * k
        if k == 2:
            Masked.mask.cache_clear()


def test_methods_of_containers_by_their_special_names():
    class Net(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.found, self.sizes, self.linear = {}, [0, 1], paddle.nn.Identity()
            self.linear.register_forward_post_hook(
                lambda layer, args, out: self.found.__setitem__("out", out)
            )

        def forward(self, x, key):
            self.sizes.__setitem__(0, x.shape[0])
            put, has = self.found.__setitem__, self.found.__contains__
            put(key, self.found.__len__())
            return self.linear(x) * self.sizes.__getitem__(0) + has("a") + self.found[key]

    eager, layer = Net(), Net()
    static = dy2st.to_static(layer)
    for k, key in enumerate("babc"):
        x = X[: 4 - k % 2]
        check.same(static(x, key), eager(x, key))
        check.same((layer.found, layer.sizes), (eager.found, eager.sizes))
        for net in (eager, layer):
            net.found.pop("a", None)
