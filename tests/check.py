"""Comparing a translated function with eager Paddle: results, writes, generator, repeated calls."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle

import dy2st


def leaves(x: Any) -> list[Any]:
    """Tensors and Python values of a nested result, in order."""
    if isinstance(x, dict):
        return [q for k in sorted(x) for q in leaves(x[k])]
    if isinstance(x, (list, tuple)):
        return [q for part in x for q in leaves(part)]
    return [x]


def same(have: Any, want: Any, rtol: float = 2e-6, atol: float = 2e-6, what: str = "") -> None:
    """Equal structure, dtypes and shapes; values within the bounds, integers exactly."""
    assert type(have) is type(want) or isinstance(want, paddle.Tensor), (what, have, want)
    if isinstance(want, (list, tuple)):
        assert len(have) == len(want), what
        for i, (a, b) in enumerate(zip(have, want)):
            same(a, b, rtol, atol, f"{what}[{i}]")
        return
    if isinstance(want, dict):
        assert list(have) == list(want), what
        for k in want:
            same(have[k], want[k], rtol, atol, f"{what}[{k!r}]")
        return
    if not isinstance(want, paddle.Tensor):
        assert have == want or (have != have and want != want), (what, have, want)
        return
    assert have.dtype == want.dtype, (what, have.dtype, want.dtype)
    assert list(have.shape) == list(want.shape), (what, have.shape, want.shape)
    assert have.stop_gradient == want.stop_gradient, (what, "stop_gradient")
    a, b = have.numpy(), want.numpy()
    if a.dtype.kind == "f":
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=what)
    else:
        np.testing.assert_array_equal(a, b, err_msg=what)


def versions(tensors: Sequence[Any]) -> list[int]:
    return [q.inplace_version for q in tensors]


def moved(tensors: Sequence[Any], before: Sequence[int]) -> list[bool]:
    """Whose version counter a call has moved: eager moves it at every write, a program once."""
    return [q.inplace_version > version for q, version in zip(tensors, before, strict=True)]


def random_state() -> str:
    """The generator's words and position, without the address of its engine."""
    fields = str(paddle.base.core.default_cpu_generator().get_state()).split()
    return " ".join(fields[:3] + fields[4:])


def outcome(f: Callable[..., Any], args: Sequence[Any]) -> Any:
    """The result, or the exception."""
    try:
        return f(*args)
    except Exception as e:
        return e


def buffers(layer: Any) -> dict[str, Any]:
    """Buffers and parameters: running statistics are parameters in Paddle."""
    return {**dict(layer.named_buffers()), **dict(layer.named_parameters())}


def parity(
    layer: Any,
    make_args: Callable[[], Sequence[Any]],
    input_spec: Any = None,
    calls: int = 3,
    **bounds: float,
) -> Any:
    """`layer` translated gives what `layer` gives, for several calls in a row.

    Returns the translated layer. Where eager raises, the translated call must raise too.
    """
    eager, static = copy.deepcopy(layer), dy2st.to_static(copy.deepcopy(layer), input_spec)
    for k in range(calls):
        one, two = make_args(), None
        two = [q.clone() if isinstance(q, paddle.Tensor) else copy.deepcopy(q) for q in one]
        paddle.seed(7 + k)
        want = outcome(eager, one)
        after = random_state()
        paddle.seed(7 + k)
        have = outcome(static, two)
        if isinstance(want, Exception):
            assert isinstance(have, Exception), f"eager raises {want!r}, dy2st does not"
            continue
        if isinstance(have, Exception):
            raise have
        same(have, want, what=f"call {k}: result", **bounds)
        assert random_state() == after, f"call {k}: the generator is in another state"
        same(two, one, what=f"call {k}: arguments", **bounds)
        same(buffers(static), buffers(eager), what=f"call {k}: buffers", **bounds)
    return static
