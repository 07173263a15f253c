"""Gradients of programs against finite differences, in f64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import executor
from ir import Program, parse, verify
from ir.autodiff import Gradient, differentiate
from ir.interpreter import evaluate
from ir.passes import run
from ir.types import F64

STEP = 1e-6


def floats(values) -> list[int]:
    return [k for k, v in enumerate(values) if v.type.dtype == F64]


def functional(program: Program | str) -> Program:
    program = parse(program) if isinstance(program, str) else program
    return run(verify(program), stop_before="expand", check=True)


def gradient(program: Program | str, of=None, wrt=None, checkpoint="none", **options) -> Gradient:
    """Of all float outputs and with respect to all float inputs, unless told."""
    p = functional(program)
    of = floats(p.outputs) if of is None else of
    wrt = floats([i.value for i in p.inputs]) if wrt is None else wrt
    g = differentiate(p, of, wrt, checkpoint, **options)
    for part in (g.forward, g.backward):
        assert str(parse(str(verify(part)))) == str(part)
    return g


def evaluated(program: Program, arrays, native: bool):
    if not native:
        return evaluate(program, arrays)
    outputs = executor.compile(run(program, start_at="expand", check=True))(*arrays)
    at = {i.value: k for k, i in enumerate(program.inputs)}
    return outputs, [arrays[at[target]] for target, _ in program.writes]


def residuals(g: Gradient, arrays, outputs, writes) -> list[np.ndarray]:
    """What the backward program takes behind the gradients."""
    written = {i.value: k for k, i in enumerate(g.forward.inputs)}
    slots = {written[t]: v for (t, _), v in zip(g.forward.writes, writes)}
    where = {"input": arrays, "slot": slots, "output": outputs, "kept": outputs}
    return [where[r.source][r.index] for r in g.residuals]


def gradients_of(g: Gradient, arrays, seeds, native: bool = False) -> list[np.ndarray]:
    outputs, writes = evaluated(g.forward, [np.array(a) for a in arrays], native)
    taken = [*seeds, *residuals(g, arrays, outputs, writes)]
    return evaluated(g.backward, [np.array(a) for a in taken], native)[0]


def check(
    program: Program | str,
    arrays: Sequence[np.ndarray],
    of=None,
    wrt=None,
    checkpoint="none",
    native: bool = False,
    seed: int = 0,
    bound: float = 2e-6,
) -> Gradient:
    """The gradients along random directions equal the slope of a random sum of the outputs."""
    rng = np.random.default_rng(seed)
    p = parse(program) if isinstance(program, str) else program
    of = floats(p.outputs) if of is None else of
    wrt = floats([i.value for i in p.inputs]) if wrt is None else wrt
    g = gradient(p, of, wrt, checkpoint)
    outputs, writes = evaluate(p, arrays)
    have, have_writes = evaluate(g.forward, arrays)
    for a, b in zip([*outputs, *writes], [*have[: len(outputs)], *have_writes]):
        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-12)
    seeds = [rng.normal(size=outputs[k].shape) for k in of]
    found = gradients_of(g, arrays, seeds)

    def total(inputs) -> float:
        values = evaluate(p, inputs)[0]
        return sum(float((values[k] * s).sum()) for k, s in zip(of, seeds))

    for k, d in zip(wrt, found):
        assert d.shape == arrays[k].shape and d.dtype == np.float64
        for _ in range(2):
            way = rng.normal(size=d.shape)
            ends = [[*arrays[:k], arrays[k] + e * way, *arrays[k + 1 :]] for e in (STEP, -STEP)]
            slope = (total(ends[0]) - total(ends[1])) / (2 * STEP)
            size = 1 + abs(slope) + float(np.abs(d * way).sum())
            assert abs(slope - float((d * way).sum())) < bound * size, (k, slope, (d * way).sum())
    if native:
        for a, b in zip(found, gradients_of(g, arrays, seeds, native=True)):
            np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9)
    return g
