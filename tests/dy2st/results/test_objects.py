"""Objects of the user among the results: those from outside are given back themselves."""

from __future__ import annotations

import dataclasses
import enum

import paddle

import dy2st
from tests import check


@dataclasses.dataclass
class Cache:
    keys: list = dataclasses.field(default_factory=list)
    length: int = 0

    def append(self, key):
        self.keys.append(key)
        self.length += key.shape[0]
        return self


class Mode(enum.Enum):
    FIRST = 1
    NEXT = 2


def attend(x, cache=None):
    mode = Mode.FIRST if cache is None else Mode.NEXT
    cache = (cache or Cache()).append(x)
    return paddle.concat(cache.keys).sum(0) * cache.length, cache, mode


def test_a_cache_that_goes_from_call_to_call():
    static, caches = dy2st.to_static(attend), [None, None]
    for n in (2, 1, 3, 1):
        x, rows = paddle.rand([n, 2]), []
        for k, f in enumerate((attend, static)):
            y, cache, mode = f(x, caches[k])
            rows.append((y, cache.keys, cache.length, mode, cache is caches[k]))
            caches[k] = cache
        check.same(rows[1], rows[0])
    _, one, _ = static(x)
    assert static(x)[1] is not one and len(one.keys) == 1


def test_the_object_of_a_method_and_arguments_that_nothing_reads():
    static, cache = dy2st.to_static(Cache.append), Cache()
    second = dy2st.to_static(lambda x, obj: (x * 2, {"obj": obj}))
    x = paddle.ones([2])
    for n in (2, 4):
        assert static(cache, x) is cache and cache.length == n
        other = Cache()
        assert second(x, other)[1]["obj"] is other
