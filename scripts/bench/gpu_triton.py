"""Programs of the benchmark as kernels of Triton: softmax, a neuron, a gated sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

#: elements of a block
LANES = 256


@triton.jit
def softmax_kernel(x, y, columns, width: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, width)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * columns + at, powers / tl.sum(powers, 0), mask=at < columns)


@triton.jit
def neuron_kernel(x, v, spikes, last, steps, lanes, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < lanes
    state = tl.load(v + at, mask=inside)
    for t in range(steps):
        u = state + (tl.load(x + t * lanes + at, mask=inside) - state) * 0.5
        z = (u >= 1).to(tl.float32)
        tl.store(spikes + t * lanes + at, z, mask=inside)
        state = u * (1 - z)
    tl.store(last + at, state, mask=inside)


@triton.jit
def gated_kernel(g, x, h, y, last, steps, lanes, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < lanes
    state = tl.load(h + at, mask=inside)
    for t in range(steps):
        gate = tl.sigmoid(tl.load(g + t * lanes + at, mask=inside))
        state = gate * state + tl.load(x + t * lanes + at, mask=inside)
        tl.store(y + t * lanes + at, state, mask=inside)
    tl.store(last + at, state, mask=inside)


def softmax(x: Any) -> Any:
    y = torch.empty_like(x)
    rows, columns = x.shape
    softmax_kernel[(rows,)](x, y, columns, triton.next_power_of_2(columns))
    return y


def neuron(x: Any, v: Any) -> Any:
    spikes, last = torch.empty_like(x), torch.empty_like(v)
    steps, lanes = x.shape
    neuron_kernel[(triton.cdiv(lanes, LANES),)](x, v, spikes, last, steps, lanes, LANES)
    return spikes, last


def gated(g: Any, x: Any, h: Any) -> Any:
    y, last = torch.empty_like(x), torch.empty_like(h)
    steps, lanes = x.shape
    gated_kernel[(triton.cdiv(lanes, LANES),)](g, x, h, y, last, steps, lanes, LANES)
    return y, last


CALLS: dict[str, Callable[..., Any]] = {"softmax": softmax, "neuron": neuron, "gated": gated}
