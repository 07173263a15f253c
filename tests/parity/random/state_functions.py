"""What the programs of `random_state` call: converted once for all of them."""

from __future__ import annotations

import paddle


class Obj:
    def __init__(self, a, b=None, c=None):
        self.a = a
        self.b = b
        self.c = c


def v(value):
    return paddle.full([2], float(value))


def put(c, key, value):
    """Changes a container and returns it."""
    c[key] = value
    return c


def step(c, key, value):
    c[key] = paddle.tanh(c[key] + value)
    return c[key], c


def mix(c, value):
    """A new container."""
    if isinstance(c, dict):
        return {k: q * 0.5 + value for k, q in c.items()}
    return [q * 0.5 + value for q in c]


def each(c, value):
    """Changes every tensor in a dict of tensors."""
    for k in c:
        c[k] = c[k] * 0.5 + value


def total(*tensors):
    y = v(0)
    for q in tensors:
        y = y + q
    return y


def pairs(c):
    for k, q in c.items():
        yield k, q * 0.5
