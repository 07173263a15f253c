"""Containers and attributes from outside: each kind × each use inside × each change between calls.

A case is the text of a module with an object `box.c` and a function `f`. One copy runs eagerly, one
translated, three times (four in the night) with a change between two calls. After each call the
results and the state of the object (contents, types, identity) are equal, and no stand-in is left
in it; or the call is refused, and the object is as it was. A run has each use and each change of
every kind, in 1,055 cases; `--nightly` has all 7,280 pairs.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import linecache
import queue
import sys
import types
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import paddle
import pytest

import dy2st
from dy2st.trace.fake_tensor import FakeTensor
from dy2st.trace.scalar import is_runtime_scalar

X = paddle.to_tensor(np.arange(6, dtype="float32").reshape([2, 3]) / 4)

HEAD = """
import bisect, collections, dataclasses, functools, heapq, operator, queue, types, weakref
from array import array
from collections import *
from types import MappingProxyType, SimpleNamespace
import paddle

class Box: pass
class L(list): pass
class Loud(list):
    def append(self, v): super().append(v); super().append(v)
    def __getitem__(self, i): return super().__getitem__(i)
    def __len__(self): return super().__len__() + 1
class D(dict): pass
class Attrs(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name)
    def __setattr__(self, name, value): self[name] = value
class Short(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__
class Own(dict):
    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        self.__dict__ = self
class S(set): pass
class Q(deque):
    def push(self, v): self.append(v)
class Plain:
    scale = 2.0
    count = 0
    def __init__(self): self.n, self.v = 1, paddle.ones([3])
class Slots:
    __slots__ = ("n", "v")
    def __init__(self): self.n, self.v = 1, paddle.ones([3])
class Props:
    def __init__(self): self._n, self.v = 1, paddle.ones([3])
    @property
    def n(self): return self._n
    @n.setter
    def n(self, value): self._n = value
class Hooked:
    def __init__(self): self.n, self.v = 1, paddle.ones([3])
    def __setattr__(self, name, value): object.__setattr__(self, name, value)
class Loose:
    def __init__(self): self.d = {"n": 1, "v": paddle.ones([3])}
    def __getattr__(self, name):
        if name == "d" or name not in self.d:
            raise AttributeError(name)
        return self.d[name]
P = collections.namedtuple("P", "n v")
class Pair(tuple): pass
def scaled(x, a, b=2): return x * a + b
box = Box()
T = paddle.ones([3])
"""

#: takes a millisecond, so that only those have it who need it
DATA = """
@dataclasses.dataclass
class Data:
    n: int = 1
    v: object = dataclasses.field(default_factory=lambda: paddle.ones([3]))
box.c = Data()
"""

#: kind: how `box.c` is made, and the groups of uses and changes that apply
MAKERS: dict[str, tuple[str, str]] = {
    "list": ("box.c = [3, 1, 2]", "sequence, list"),
    "list of tensors": ("box.c = [T, T * 2, T * 3]", "tensors"),
    "deque": ("box.c = deque([3, 1, 2])", "sequence, deque"),
    "deque maxlen": ("box.c = deque([3, 1, 2], maxlen=3)", "sequence, deque"),
    "deque of tensors": ("box.c = deque([T, T * 2, T * 3], maxlen=3)", "tensors"),
    "list subclass": ("box.c = L([3, 1, 2])", "sequence, list"),
    "list subclass of tensors": ("box.c = L([T, T * 2, T * 3])", "tensors"),
    "list with methods": ("box.c = Loud([3, 1, 2])", "sequence, list"),
    "deque subclass": ("box.c = Q([3, 1, 2])", "sequence, deque"),
    "UserList": ("box.c = UserList([3, 1, 2])", "sequence, list"),
    "UserList of tensors": ("box.c = UserList([T, T * 2, T * 3])", "tensors"),
    "array": ("box.c = array('d', [3.0, 1.0, 2.0])", "sequence"),
    "bytearray": ("box.c = bytearray([3, 1, 2])", "sequence"),
    "dict": ("box.c = {'a': 1, 'b': 2}", "mapping"),
    "dict of tensors": ("box.c = {'a': T, 'b': T * 2}", "tensor mapping"),
    "OrderedDict": ("box.c = OrderedDict(a=1, b=2)", "mapping, ordered"),
    "OrderedDict of tensors": ("box.c = OrderedDict(a=T, b=T * 2)", "tensor mapping"),
    "Counter": ("box.c = Counter(a=1, b=2)", "mapping, counter"),
    "defaultdict": ("box.c = defaultdict(int, a=1, b=2)", "mapping, default"),
    "defaultdict of lists": ("box.c = defaultdict(list, a=[1], b=[2])", "lists"),
    "dict subclass": ("box.c = D(a=1, b=2)", "mapping"),
    "ChainMap": ("box.c = ChainMap({'a': 1}, {'b': 2})", "mapping"),
    "UserDict": ("box.c = UserDict(a=1, b=2)", "mapping"),
    "UserDict of tensors": ("box.c = UserDict(a=T, b=T * 2)", "tensor mapping"),
    "MappingProxyType": (
        "box.inner = {'a': 1, 'b': 2}; box.c = MappingProxyType(box.inner)",
        "view",
    ),
    "Attrs": ("box.c = Attrs(a=1, b=2)", "mapping, attrs"),
    "Short": ("box.c = Short(a=1, b=2)", "mapping, attrs"),
    "Own": ("box.c = Own(a=1, b=2)", "mapping, attrs"),
    "Attrs of tensors": ("box.c = Attrs(a=T, b=T * 2)", "tensor mapping, tensor attrs"),
    "set": ("box.c = {3, 1, 2}", "set"),
    "set subclass": ("box.c = S({3, 1, 2})", "set"),
    "Queue": ("box.c = queue.Queue()", "queue"),
    "LifoQueue": ("box.c = queue.LifoQueue()", "queue"),
    "SimpleQueue": ("box.c = queue.SimpleQueue()", "queue"),
    "PriorityQueue": ("box.c = queue.PriorityQueue()", "queue"),
    "object": ("box.c = Plain()", "object, class"),
    "SimpleNamespace": ("box.c = SimpleNamespace(n=1, v=T)", "object"),
    "dataclass": (DATA, "object"),
    "slots": ("box.c = Slots()", "object"),
    "properties": ("box.c = Props()", "object"),
    "setattr hook": ("box.c = Hooked()", "object"),
    "getattr hook": ("box.c = Loose()", "read object"),
    "module": ("box.c = types.ModuleType('config'); box.c.n = 1; box.c.v = T", "object"),
    "namedtuple": ("box.c = P(1, T)", "record"),
    "tuple": ("box.c = (1, T)", "record"),
    "namedtuple of numbers": ("box.c = P(1, 2)", "numbers"),
    "tuple subclass": ("box.c = Pair([1, 2])", "pair"),
    "list of records": ("box.c = [P(1, T), (2, T), P(3, 4)]", "records"),
    "partial": ("box.c = functools.partial(scaled, a=1)", "partial"),
}

USES = {
    "sequence": {
        "item": "y = x * c[0]",
        "last": "y = x * c[-1]",
        "length": "y = x * len(c)",
        "sum": "y = x * sum(c)",
        "max": "y = x * max(c)",
        "sorted": "y = x * sorted(c)[0]",
        "loop": "y = x\nfor q in c: y = y * q",
        "contains": "y = x * (2 if 1 in c else 3)",
        "index of": "y = x * c.index(2)",
        "count": "y = x * c.count(2)",
        "truth": "y = x * (2 if c else 3)",
        "unpacked": "first, *rest = c\ny = x * first",
        "star": "y = x * max(*c)",
        "compare": "y = x * (2 if c == box.other else 3)",
        "setitem": "c[0] = 7\ny = x * c[0]",
        "add to item": "c[0] += 1\ny = x * c[0]",
        "append": "c.append(4)\ny = x * len(c)",
        "append only": "c.append(4)\ny = x",
        "extend": "c.extend([4, 5])\ny = x * c[-1]",
        "pop": "y = x * (c.pop() if len(c) else 1)",
        "reverse": "c.reverse()\ny = x * c[0]",
        "del": "del c[0]\nc.append(9)\ny = x * c[0]",
        "in a loop": "y = x\nfor t in range(3):\n    c[0] += 1\n    y = y * c[0]",
        "append in a loop": "y = x\nfor t in range(3):\n    c.append(t)\n    y = y * 2",
        "iterator": "it = iter(c)\ny = x * next(it)",
        "enumerate": "y = x\nfor i, q in enumerate(c): y = y * q + i",
        "reversed": "y = x\nfor q in reversed(c): y = y - q",
        "zip": "y = x\nfor q, r in zip(c, [1, 2, 3]): y = y * q + r",
        "method value": "g = c.append\ng(4)\ny = x * len(c)",
        "operator": "y = x * operator.getitem(c, 0)",
        "insert": "c.insert(1, 8)\ny = x * c[1]",
    },
    "list": {
        "slice": "y = x * sum(c[:2])",
        "set slice": "c[:1] = [5, 6]\ny = x * c[0]",
        "sort": "c.sort()\ny = x * c[0]",
        "iadd": "box.c += [4]\ny = x * len(box.c)",
        "imul": "box.c *= 2\ny = x * len(box.c)",
        "clear": "c.clear()\nc.append(2)\ny = x * c[0]",
        "heappush": "heapq.heappush(c, 2)\ny = x * c[0]",
        "heappop": "heapq.heappush(c, 5)\ny = x * heapq.heappop(c)",
        "heapify": "heapq.heapify(c)\ny = x * c[0]",
        "heappushpop": "y = x * heapq.heappushpop(c, 2)",
        "nsmallest": "y = x * heapq.nsmallest(2, c)[1]",
        "bisect": "y = x * bisect.bisect(c, 2)",
        "insort": "bisect.insort(c, 2)\ny = x * c[1]",
        "remove": "c.append(4)\nc.remove(4)\ny = x * len(c)",
        "copied": "d = c.copy()\nd.append(1)\ny = x * len(d)",
    },
    "deque": {
        "appendleft": "c.appendleft(4)\ny = x * c[0]",
        "popleft": "c.append(4)\ny = x * c.popleft()",
        "rotate": "c.rotate(1)\ny = x * c[0]",
        "maxlen": "y = x * (c.maxlen or 1)",
        "extendleft": "c.extendleft([4, 5])\ny = x * c[0]",
        "clear": "c.clear()\nc.append(2)\ny = x * c[0]",
        "iadd": "box.c += [4]\ny = x * len(box.c)",
        "copied": "d = c.copy()\nd.append(1)\ny = x * len(d)",
    },
    "tensors": {
        "item": "y = x * c[0]",
        "last": "y = x * c[-1]",
        "loop": "y = x\nfor q in c: y = y + q",
        "sum": "y = x * sum(c)",
        "setitem": "c[0] = x[0]\ny = x * c[1]",
        "add to item": "c[0] = c[0] + x[0]\ny = x * c[0]",
        "append": "c.append(x[1])\ny = x * len(c)",
        "append only": "c.append(x[1])\ny = x",
        "pop and append": "h = c.pop()\nc.append(h + x[0])\ny = x * h",
        "in place": "c[0].add_(x[0])\ny = x * c[0]",
        "stack": "y = paddle.stack(list(c)).sum(0) * x",
        "in a loop": "y = x\nfor t in range(2):\n    c[0] = c[0] + x[t]\n    y = y * c[0]",
        "append in a loop": "y = x\nfor t in range(2):\n    c.append(x[t])",
        "window": "c.append(x[0])\nif len(c) > 3: del c[0]\ny = x * c[0]",
        "given back": "c[0] = c[0] * 2\ny = c[0]",
        "insert": "c.insert(0, x[1])\ny = x * c[0]",
    },
    "mapping": {
        "item": "y = x * c['a']",
        "get": "y = x * c.get('a', 5)",
        "get missing": "y = x * c.get('zz', 5)",
        "length": "y = x * len(c)",
        "loop": "y = x\nfor k in c: y = y * c[k]",
        "items": "y = x\nfor k, v in c.items(): y = y * v",
        "values": "y = x * sum(c.values())",
        "keys": "y = x * len(list(c.keys()))",
        "contains": "y = x * (2 if 'a' in c else 3)",
        "truth": "y = x * (2 if c else 3)",
        "double star": "y = x * dict(**c)['a']",
        "setitem": "c['a'] = 7\ny = x * c['a']",
        "new item": "c['n' + str(len(c))] = 7\ny = x * len(c)",
        "add to item": "c['a'] += 1\ny = x * c['a']",
        "update": "c.update(a=5)\ny = x * c['a']",
        "update dict": "c.update({'a': 5, 'q': 1})\ny = x * c['a']",
        "setdefault": "y = x * c.setdefault('q', 4)",
        "pop": "c['q'] = 2\ny = x * c.pop('q')",
        "popitem": "c['q'] = 2\ny = x * c.popitem()[1]",
        "del": "c['q'] = 2\ndel c['q']\ny = x * len(c)",
        "clear": "c.clear()\nc['a'] = 3\ny = x * len(c)",
        "in a loop": "y = x\nfor t in range(3):\n    c['a'] += 1\n    y = y * c['a']",
        "copied": "d = c.copy()\nd['a'] = 9\ny = x * d['a']",
        "made of": "y = x * dict(c)['a']",
        "sorted": "y = x * c[sorted(c)[0]]",
        "max by": "y = x * c[max(c, key=c.get)]",
        "merged": "d = {**c, 'z': 1}\ny = x * len(d)",
    },
    "ordered": {
        "move_to_end": "c.move_to_end('a')\ny = x * list(c.values())[-1]",
        "popitem first": "c['q'] = 2\ny = x * c.popitem(last=False)[1]",
    },
    "counter": {
        "missing": "y = x * (c['zz'] + 1)",
        "count": "c['zz'] += 1\ny = x * c['zz']",
        "update counts": "c.update('aab')\ny = x * c['a']",
        "subtract": "c.subtract('a')\ny = x * c['a']",
        "most_common": "y = x * c.most_common(1)[0][1]",
        "total": "y = x * c.total()",
        "elements": "y = x * len(list(c.elements()))",
        "plus": "y = x * (c + Counter('a'))['a']",
    },
    "default": {
        "missing": "y = x * (c['zz'] + 1)",
        "count": "c['zz'] += 1\ny = x * c['zz']",
    },
    "lists": {
        "append": "c['a'].append(4)\ny = x * len(c['a'])",
        "append missing": "c['zz'].append(4)\ny = x * len(c['zz'])",
        "append a tensor": "c['a'].append(x[0])\ny = x",
        "length": "y = x * len(c['a'])",
        "sum": "y = x * sum(sum(q) if len(q) < 3 else 1 for q in c.values())",
    },
    "view": {
        "item": "y = x * c['a']",
        "get": "y = x * c.get('a', 5)",
        "items": "y = x\nfor k, v in c.items(): y = y * v",
        "length": "y = x * len(c)",
        "contains": "y = x * (2 if 'a' in c else 3)",
        "loop": "y = x\nfor k in c: y = y * c[k]",
    },
    "attrs": {
        "attribute": "y = x * c.a",
        "set attribute": "c.a = 7\ny = x * c['a']",
        "count": "c.a += 1\ny = x * c.a",
        "new attribute": "c.z = 7\ny = x * len(c)",
        "del attribute": "c['z'] = 3\nif isinstance(c, Short): del c.z\ny = x * len(c)",
        "hasattr": "y = x * (2 if hasattr(c, 'a') else 3)",
        "getattr": "y = x * getattr(c, 'a', 3)",
        "setattr": "setattr(c, 'a', 5)\ny = x * c.a",
    },
    "tensor mapping": {
        "item": "y = x * c['a']",
        "items": "y = x\nfor k, v in c.items(): y = y + v",
        "values": "y = x * sum(c.values())",
        "setitem": "c['a'] = x[0]\ny = x * c['b']",
        "add to item": "c['a'] = c['a'] + x[0]\ny = x * c['a']",
        "update": "c.update(a=x[1])\ny = x * c['a']",
        "new item": "c['n' + str(len(c))] = x[0]\ny = x * len(c)",
        "pop": "h = c.pop('a')\nc['a'] = h + 1\ny = x * h",
        "in place": "c['a'].add_(x[0])\ny = x * c['a']",
        "in a loop": "y = x\nfor t in range(2):\n    c['a'] = c['a'] + x[t]\n    y = y * c['a']",
        "setdefault": "y = x * c.setdefault('q', x[0])",
    },
    "tensor attrs": {
        "attribute": "y = x * c.a",
        "set attribute": "c.a = x[0]\ny = x * c['a']",
        "chain": "c.a = c.a + x[0]\ny = x * c.b",
    },
    "set": {
        "contains": "y = x * (2 if 1 in c else 3)",
        "length": "y = x * len(c)",
        "sum": "y = x * sum(c)",
        "add": "c.add(len(c) + 5)\ny = x * len(c)",
        "discard": "c.discard(1)\ny = x * len(c)",
        "update": "c.update([7, 8])\ny = x * len(c)",
        "pop": "c.add(1)\nc.pop()\ny = x",
        "ior": "box.c |= {9}\ny = x * len(box.c)",
        "union": "y = x * len(c | {9})",
        "issubset": "y = x * (2 if c.issuperset({1}) else 3)",
        "loop": "y = x\nfor q in sorted(c): y = y * q",
        "clear": "c.clear()\ny = x * len(c)",
        "difference_update": "c.difference_update({1})\ny = x * len(c)",
    },
    "queue": {
        "put": "c.put(len([1]))\ny = x",
        "put and get": "c.put(2)\ny = x * c.get()",
        "put_nowait": "c.put_nowait(2)\ny = x * c.get_nowait()",
        "qsize": "y = x * (c.qsize() + 1)",
        "empty": "y = x * (2 if c.empty() else 3)",
        "put a tensor": "c.put((0, x[0]))\ny = x * c.get()[1]",
    },
    "read object": {
        "attribute": "y = x * c.n",
        "tensor": "y = x * c.v",
        "hasattr": "y = x * (2 if hasattr(c, 'n') else 3)",
        "getattr": "y = x * getattr(c, 'n', 4)",
        "getattr missing": "y = x * getattr(c, 'zz', 4)",
    },
    "object": {
        "attribute": "y = x * c.n",
        "tensor": "y = x * c.v",
        "set": "c.n = 5\ny = x * c.n",
        "count": "c.n += 1\ny = x * c.n",
        "set tensor": "c.v = c.v + x[0]\ny = x * c.v",
        "in place": "c.v.add_(x[0])\ny = x * c.v",
        "getattr": "y = x * getattr(c, 'n')",
        "getattr name": "name = 'n'\ny = x * getattr(c, name, 4)",
        "hasattr": "y = x * (2 if hasattr(c, 'n') else 3)",
        "setattr": "setattr(c, 'n', 6)\ny = x * c.n",
        "setattr count": "setattr(c, 'n', getattr(c, 'n') + 1)\ny = x * c.n",
        "setattr tensor": "setattr(c, 'v', x[0])\ny = x * c.v",
        "delattr": "delattr(c, 'n')\nc.n = 3\ny = x * c.n",
        "dict item": "y = x * c.__dict__['n']",
        "dict set": "c.__dict__['n'] = 4\ny = x * c.n",
        "dict count": "c.__dict__['n'] += 1\ny = x * c.n",
        "dict get": "y = x * c.__dict__.get('n', 2)",
        "dict update": "c.__dict__.update(n=3)\ny = x * c.n",
        "dict loop": "y = x * len([k for k in c.__dict__])",
        "vars item": "y = x * vars(c)['n']",
        "vars set": "vars(c)['n'] = 4\ny = x * c.n",
        "vars tensor": "vars(c)['v'] = x[0]\ny = x * c.v",
        "in a loop": "y = x\nfor t in range(3):\n    c.n += 1\n    y = y * c.n",
        "set in a loop": "y = x\nfor t in range(2):\n"
        "    setattr(c, 'v', c.v + x[t])\n    y = y * c.v",
        "attrgetter": "y = x * operator.attrgetter('n')(c)",
        "object setattr": "object.__setattr__(c, 'n', 8)\ny = x * c.n",
        "weakref": "y = x * box.ref().n",
    },
    "class": {
        "class attribute": "y = x * c.scale",
        "of the class": "y = x * Plain.scale",
        "count": "type(c).count += 1\ny = x * c.count",
        "count by name": "Plain.count += 1\ny = x * Plain.count",
        "class set": "Plain.scale = 4.0\ny = x * c.scale",
        "class tensor": "Plain.last = x[0]\ny = x * c.last",
        "shadow": "c.scale = c.scale + 1\ny = x * c.scale",
        "setattr class": "setattr(Plain, 'scale', 5.0)\ny = x * Plain.scale",
        "count of instance": "c.count += 1\ny = x * Plain.count + c.count",
        "dunder class": "c.__class__.count += 1\ny = x * c.count",
    },
    "record": {
        "item": "y = x * c[0]",
        "tensor": "y = x * c[1]",
        "unpacked": "n, v = c\ny = x * n + v",
        "rebound": "n, v = box.c\nbox.c = P(n, v + x[0]) if isinstance(c, P) else (n, v + x[0])\n"
        "y = x * v",
        "counted": "n, v = box.c\nbox.c = c._replace(n=n + 1) if isinstance(c, P) else (n + 1, v)\n"
        "y = x * n",
    },
    "numbers": {
        "unpacked": "n, v = c\ny = x * n + v",
        "sum": "y = x * sum(c)",
        "loop": "y = x\nfor q in c: y = y * 2 + q",
        "stored": "box.d = c\ny = x",
        "replaced": "box.c = c._replace(n=c.n + 1)\ny = x",
        "as a dict": "y = x * sum(c._asdict().values())",
    },
    "pair": {
        "unpacked": "n, v = c\ny = x * n + v",
        "sum": "y = x * sum(c)",
        "stored": "box.d = c\ny = x",
    },
    "records": {
        "loop": "y = x\nfor n, v in c: y = y * n + v",
        "last": "n, v = c[-1]\ny = x * n + v",
        "stored": "box.d = c[0]\ny = x * c[1][0]",
    },
    "partial": {
        "called": "y = c(x)",
        "called with": "y = c(x, b=3) + c(x)",
        "extended": "y = functools.partial(c, b=5)(x)",
    },
}

#: changes from outside: statements over `box`
CHANGES = {
    "sequence": {
        "none": "pass",
        "set": "box.c[0] = k + 5",
        "set last": "box.c[-1] = k + 5",
        "append": "box.c.append(k + 5)",
        "pop": "box.c.append(6); box.c.pop(0) if not isinstance(box.c, deque) else box.c.popleft()",
        "reverse": "box.c.reverse()",
        "rebind": "box.c = copy(box.c)",
        "rebind new": "box.c = like(box.c, [k + 2, 2, 1])",
    },
    "tensors": {
        "none": "pass",
        "set": "box.c[0] = T * (k + 3)",
        "in place": "box.c[0].set_value(T * (k + 3))",
        "append": "box.c.append(T * 7)",
        "reverse": "box.c.reverse()",
        "rebind": "box.c = copy(box.c)",
        "rebind new": "box.c = like(box.c, [T * k, T * 2, T])",
        "number": "box.c[0] = k + 1",
    },
    "mapping": {
        "none": "pass",
        "set": "box.c['a'] = k + 5",
        "new": "box.c['k' + str(k)] = 1",
        "del": "box.c['b'] = 3; del box.c['b']; box.c['b'] = 2",
        "update": "box.c.update({'b': k + 2})",
        "kind": "box.c['a'] = k + 0.5",
        "rebind": "box.c = copy(box.c)",
    },
    "tensor mapping": {
        "none": "pass",
        "set": "box.c['a'] = T * (k + 5)",
        "new": "box.c['k' + str(k)] = T",
        "in place": "box.c['a'].set_value(T * (k + 3))",
        "number": "box.c['a'] = k + 1",
        "rebind": "box.c = copy(box.c)",
    },
    "lists": {
        "none": "pass",
        "append": "box.c['a'].append(5)",
        "new": "box.c['k' + str(k)] = [1]",
        "set": "box.c['a'] = [k]",
    },
    "view": {"none": "pass", "inner": "box.inner['a'] = k + 5", "new": "box.inner['z'] = 5"},
    "set": {
        "none": "pass",
        "add": "box.c.add(k + 10)",
        "discard": "box.c.discard(1)",
        "clear": "box.c.clear()",
        "rebind": "box.c = copy(box.c)",
    },
    "queue": {"none": "pass", "put": "box.c.put(k)"},
    "read object": {
        "none": "pass",
        "inner": "box.c.d['n'] = k + 5",
        "tensor": "box.c.d['v'] = T * k",
        "shadow": "box.c.__dict__['n'] = k",
    },
    "object": {
        "none": "pass",
        "set": "box.c.n = k + 5",
        "kind": "box.c.n = k + 0.5",
        "tensor": "box.c.v = T * (k + 1)",
        "in place": "box.c.v.set_value(T * (k + 3))",
        "rebind": "box.c = copy(box.c); box.ref = weakref.ref(box.c)",
    },
    "class": {
        "none": "pass",
        "set": "Plain.scale = k + 1.5; Plain.count = k",
        "shadow": "box.c.scale = k + 1.0",
        "del": "box.c.scale = 3.0; del box.c.scale",
    },
    "record": {
        "none": "pass",
        "new": "box.c = type(box.c)(*[k, T * k]) if hasattr(box.c, '_fields') else (k, T * k)",
        "equal": "box.c = type(box.c)(*box.c) if hasattr(box.c, '_fields') else tuple(list(box.c))",
    },
    "numbers": {"none": "pass", "new": "box.c = P(k, k * 2)", "part": "box.c = P(1, k)"},
    "pair": {"none": "pass", "new": "box.c = Pair([k, k * 2])", "part": "box.c = Pair([1, k])"},
    "records": {
        "none": "pass",
        "items": "box.c[0] = P(k, T); box.c[1] = (k, T)",
        "last": "box.c[-1] = P(3, k)",
    },
    "partial": {
        "new": "box.c = functools.partial(scaled, a=k)",
        "keyword": "box.c.keywords['a'] = k",
        "more": "box.c.keywords['b'] = k",
    },
}  # fmt: skip
for group, of in {"list": "sequence", "deque": "sequence", "ordered": "mapping",
                  "counter": "mapping", "default": "mapping", "attrs": "mapping",
                  "tensor attrs": "tensor mapping"}.items():  # fmt: skip
    CHANGES[group] = CHANGES[of]


#: what is refused, and why it may be: kind, use
REFUSED = {
    ("set", "pop"): "which element goes is not determined",
    ("set subclass", "pop"): "which element goes is not determined",
    ("SimpleQueue", ""): "it cannot be looked at without changing it",
    **{(q, ""): "it is for other threads" for q in ("Queue", "LifoQueue", "PriorityQueue")},
    ("", "weakref"): "the object may go away between calls",
    ("UserList", "heappush"): "raises TypeError in eager",
    ("UserList", "heappop"): "raises TypeError in eager",
    ("UserList", "heapify"): "raises TypeError in eager",
    ("UserList", "heappushpop"): "raises TypeError in eager",
    ("UserList", "insort"): "C code calls methods of the class",
    ("getattr hook", "in a loop"): "an attribute that hides what __getattr__ gives",
    ("getattr hook", "set in a loop"): "an attribute that hides what __getattr__ gives",
    ("module", "dict update"): "changes the namespace of a module",
}


def may_be_refused(kind: str, use: str) -> bool:
    return not {(kind, use), (kind, ""), ("", use)}.isdisjoint(REFUSED)


# ---------------------------------------------------------------- one case
def indented(text: str) -> str:
    return "\n".join("    " + line for line in text.split("\n"))


def like(c: Any, items: Any) -> Any:
    """A sequence of the type of `c` with other elements."""
    if isinstance(c, collections.deque):
        return type(c)(items, c.maxlen)
    return type(c)(c.typecode, items) if hasattr(c, "typecode") else type(c)(items)


def remembered(file: str, text: str) -> types.CodeType:
    """The code of a text whose lines can be looked up."""
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    return compile(text, file, "exec")


HEAD_CODE = remembered("<sweep>", HEAD)


def module(name: str, make: str, use: str) -> Any:
    """A module with `box.c` and `f`."""
    text = f"{make}\nbox.other = [3, 1, 2]\n"
    text += "try: box.ref = weakref.ref(box.c)\nexcept TypeError: pass\n"
    text += f"def f(x):\n    c = box.c\n{indented(use)}\n    return y\n"
    made = types.ModuleType("sweep")
    made.__dict__.update(like=like, copy=copy.copy)
    sys.modules["sweep"] = made
    try:
        for code in (HEAD_CODE, remembered(f"<sweep {name}>", text)):
            exec(code, made.__dict__)
    finally:
        del sys.modules["sweep"]
    return made


def seen(x: Any, depth: int = 0) -> Any:
    """Contents and types, tensors by value; an error for a stand-in."""
    assert not isinstance(x, FakeTensor) and not is_runtime_scalar(x), "a stand-in is left"
    if isinstance(x, paddle.Tensor):
        return ("tensor", str(x.dtype), x.numpy().round(4).tolist())
    kind = type(x).__name__
    assert kind not in ("TraceList", "SymInt", "Text"), f"a {kind} is left"
    if isinstance(x, (int, float, str, bytes, bytearray)) or hasattr(type(x), "typecode"):
        return (kind, repr(x))
    return (kind, elements(x, depth + 1), fields(x, depth + 1))


def elements(x: Any, depth: int) -> Any:
    if isinstance(x, (dict, types.MappingProxyType)):
        return [(k, seen(v, depth)) for k, v in x.items()]
    if isinstance(x, (set, frozenset)):
        return sorted(map(repr, x))
    if isinstance(x, (list, tuple, collections.deque)):
        base = next(b for b in (list, tuple, collections.deque) if isinstance(x, b))
        return getattr(x, "maxlen", None), [seen(q, depth) for q in base.__iter__(x)]
    return x.qsize() if isinstance(x, queue.SimpleQueue) else None


def fields(x: Any, depth: int) -> Any:
    own = getattr(x, "__dict__", None) if depth < 4 else None
    if type(x).__name__ == "Slots":
        own = {k: getattr(x, k) for k in x.__slots__ if hasattr(x, k)}
    if not isinstance(own, dict) or own is x or type(x).__name__ in ("Condition", "lock"):
        return None
    return [(k, seen(v, depth)) for k, v in sorted(own.items()) if k != "__builtins__"]


def state(m: Any) -> Any:
    """All that `f` may change."""
    of_class = [(k, seen(v)) for k, v in vars(m.Plain).items() if not k.startswith("__")]
    return [(k, seen(v)) for k, v in vars(m.box).items() if k != "ref"], of_class


def outcome(f: Any, x: Any) -> Any:
    try:
        return f(x)
    except dy2st.SourceError:
        raise
    except Exception as e:
        return e


def change_both(text: str, k: int, modules: Any) -> None:
    """A change that does not fit the object (a number has become a tensor) is left out."""
    for m in modules:
        with contextlib.suppress(IndexError, AttributeError, KeyError, TypeError, ValueError):
            exec(text, m.__dict__, {"k": k})


def run(name: str, make: str, use: str, change: str, calls: int) -> str:
    """So many calls: "same", "raises" where eager does, or "refused"; fails where they differ."""
    eager, ours = module(name, make, use), module(name, make, use)
    static = dy2st.to_static(ours.f)
    for k in range(calls):
        change_both(change if k else "", k, (eager, ours))
        x, before, objects = X + k, state(ours), [(m, m.box.c) for m in (eager, ours)]
        assert state(eager) == before
        try:
            have = outcome(static, x)
        except dy2st.SourceError:
            assert state(ours) == before, f"{name}, call {k}: refused, but changed"
            return "raises" if isinstance(outcome(eager.f, x), Exception) else "refused"
        want = outcome(eager.f, x)
        if isinstance(want, Exception) or isinstance(have, Exception):
            assert type(have) is type(want), f"{name}, call {k}: {have!r} instead of {want!r}"
            return "raises"
        assert type(have) is type(want), f"{name}, call {k}"
        np.testing.assert_allclose(have, want, 1e-5, err_msg=f"{name}, call {k}")
        assert state(ours) == state(eager), f"{name}, call {k}"
        kept = [m.box.c is old for m, old in objects]
        assert kept[0] == kept[1], f"{name}, call {k}: identity"
    return "same"


# ---------------------------------------------------------------- tests
#: use, change, and the text of both
Case = tuple[str, str, str, str]


def uses_of(kind: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """The uses that apply to a kind, with the changes that go with them."""
    for group in MAKERS[kind][1].split(", "):
        for use, text in USES[group].items():
            yield use, text, CHANGES[group]


def cases(kind: str) -> Iterator[Case]:
    for use, text, changes in uses_of(kind):
        for change, statement in changes.items():
            yield use, change, text, statement


def covering(kind: str) -> Iterator[Case]:
    """Each use with one of the changes, each change with one of the uses."""
    for k, (use, text, changes) in enumerate(uses_of(kind)):
        change = list(changes)[k % len(changes)]
        yield use, change, text, changes[change]


def check(kind: str, chosen: Iterable[Case], calls: int = 3) -> None:
    """The third call is the first one that an input for a number that varies serves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dy2st.CopyWarning)
        for use, change, text, statement in chosen:
            name = f"{kind}: {use}, {change}"
            how = run(name, MAKERS[kind][0], text, statement, calls)
            assert how != "refused" or may_be_refused(kind, use), f"{name}: refused"


@pytest.mark.sampled
@pytest.mark.quick("partial")
@pytest.mark.parametrize("kind", MAKERS)
def test_every_use_and_every_change(kind: str) -> None:
    check(kind, covering(kind))


@pytest.mark.parametrize("kind", MAKERS)
def test_the_cases_of_a_run_cover_the_kind(kind: str) -> None:
    """Also where only those run that are not marked `nightly`."""
    for column in (2, 3):
        assert {q[column] for q in covering(kind)} == {q[column] for q in cases(kind)}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("kind", MAKERS)
def test_every_use_with_every_change(kind: str) -> None:
    check(kind, cases(kind), calls=4)
