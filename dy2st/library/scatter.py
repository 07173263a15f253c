"""Paddle's gather and scatter functions, which look at values of index and mask: they are converted
as Paddle has written them, so that their checks are made when the program runs.
"""

from __future__ import annotations

import inspect
from typing import Any

import paddle
from paddle.tensor import manipulation

_NAMES = "put_along_axis scatter_add scatter_reduce masked_scatter".split()
_FOUND = [
    getattr(home, name)
    for home in (paddle, paddle.Tensor, manipulation)
    for name in (*_NAMES, *(f"{q}_" for q in _NAMES))
    if hasattr(home, name)
]
#: what is converted and called instead of a function, by identity: the same without decorators
REWRITTEN: dict[Any, Any] = {f: inspect.unwrap(f) for f in _FOUND}
REWRITTEN.update({f: f for f in list(REWRITTEN.values())})
