"""Comparing the training of a translated model with eager Paddle: results, gradients, SGD steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle

import dy2st
from tests import check

BOUNDS = {"float64": 1e-9, "float32": 1e-4}


@contextmanager
def default_dtype(dtype: str) -> Iterator[None]:
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    try:
        yield
    finally:
        paddle.set_default_dtype(before)


def trained(results: Any) -> list[int]:
    """The places of results that require a gradient."""
    found = enumerate(check.leaves(results))
    return [k for k, q in found if isinstance(q, paddle.Tensor) and not q.stop_gradient]


def weighted(results: Any, places: Sequence[int] | None = None) -> Any:
    """A number that depends on every result that requires a gradient, on each element its own way.

    `places`: of these results instead.
    """
    total = None
    for k, q in enumerate(check.leaves(results)):
        if k not in (trained(results) if places is None else places):
            continue
        weights = np.cos(np.arange(q.size) * 0.7 + k).reshape(q.shape)
        term = (q * paddle.to_tensor(weights, q.dtype)).sum()
        total = term if total is None else total + term
    return total


def gradient_of(q: Any) -> Any:
    return None if q.grad is None else q.grad.numpy()


def close(have: Any, want: Any, bound: float, what: str) -> None:
    """Where eager has no gradient at all, because no iteration read the tensor, zeros will do."""
    if want is None:
        assert have is None or not have.any(), f"{what}: {have} instead of None"
        return
    assert have is not None, f"{what}: None instead of {want}"
    np.testing.assert_allclose(have, want, rtol=bound, atol=bound, err_msg=what)


def one_step(model: Any, args: Sequence[Any], parameters: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Forward and backward: the results, and the gradients of arguments and parameters."""
    results = model(*args)
    loss = weighted(results)
    if loss is not None:
        loss.backward()
    given = [q for q in check.leaves(list(args)) if isinstance(q, paddle.Tensor)]
    return results, [gradient_of(q) for q in (*given, *parameters)]


def detached(x: Any) -> Any:
    """Arguments of the same values, with gradients of their own."""
    if isinstance(x, (list, tuple)):
        return type(x)(detached(q) for q in x)
    if not isinstance(x, paddle.Tensor):
        return copy.deepcopy(x)
    out = x.detach().clone()
    out.stop_gradient = x.stop_gradient
    return out


def trains(
    make: Callable[[], Any],
    make_args: Callable[[], Sequence[Any]],
    dtype: str = "float64",
    steps: int = 3,
    rate: float = 0.05,
    **options: Any,
) -> Any:
    """The Layer that `make` makes, translated: results, all gradients and steps of SGD are eager's.

    Returns the translated layer.
    """
    bound = BOUNDS[dtype]
    with default_dtype(dtype):
        paddle.seed(3)
        layer = make()
        pair = [layer, dy2st.to_static(copy.deepcopy(layer), **options)]
        optimizers = [paddle.optimizer.SGD(rate, parameters=m.parameters()) if m.parameters()
                      else None for m in pair]  # fmt: skip
        for step in range(steps):
            args = make_args()
            found = []
            for model, optimizer in zip(pair, optimizers):
                paddle.seed(step)
                mine = detached(args)
                results, grads = one_step(model, mine, model.parameters())
                found.append((results, grads))
                if optimizer is not None:
                    optimizer.step()
                    optimizer.clear_grad()
            (want, wanted), (have, had) = found
            check.same(have, want, rtol=bound, atol=bound, what=f"step {step}: result")
            names = [*(f"argument {k}" for k in range(len(wanted) - len(layer.parameters()))),
                     *dict(layer.named_parameters())]  # fmt: skip
            for name, a, b in zip(names, had, wanted, strict=True):
                close(a, b, bound, f"step {step}: gradient of {name}")
            state = zip(pair[1].state_dict().items(), pair[0].state_dict().values())
            for (name, a), b in state:
                close(a.numpy(), b.numpy(), bound, f"step {step}: {name}")
    return pair[1]


def agree(f: Callable[..., Any], *args: Any, dtype: str = "float64", calls: int = 2) -> Any:
    """A function translated: results and the gradients of its arguments as in eager."""
    static = dy2st.to_static(f)
    for call in range(calls):
        one, two = detached(args), detached(args)
        want, wanted = one_step(f, one, ())
        have, had = one_step(static, two, ())
        check.same(have, want, rtol=BOUNDS[dtype], atol=BOUNDS[dtype], what=f"call {call}")
        for k, (a, b) in enumerate(zip(had, wanted, strict=True)):
            close(a, b, BOUNDS[dtype], f"call {call}: gradient of argument {k}")
    return static


def data(*shape: int, seed: int = 0, dtype: str = "float64", trained: bool = True) -> Any:
    array = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    return paddle.to_tensor(array, stop_gradient=not trained)
