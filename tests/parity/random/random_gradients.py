"""Gradients of the random programs: argument and parameter, translated against eager.

Where eager cannot run backwards (a tensor that it has saved was overwritten) there is nothing to
compare; where tensors share memory eager's gradient is another one (`dy2st.AliasWarning`).
Used by tests/parity/random/test_random_gradients.py and scripts/fuzz/programs.py --gradients.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import paddle
from paddle.static import InputSpec

import dy2st
from tests import check
from tests.check import close, default_dtype, trained
from tests.parity.random.random_programs import argument, build, with_tensors


def compare(seed: int, steps: int, named: bool = False, dtype: str = "float64") -> list[str]:
    """Raises as `random_programs.compare` does; gives also ['raises'] and ['shared memory']."""
    bound = 1e-8 if dtype == "float64" else 1e-4
    with default_dtype(dtype):
        eager = build(seed)
        eager.train() if seed % 2 else eager.eval()
        static = copy.deepcopy(eager)
        spec = [InputSpec([None, None, 4], dtype, "x")] if named else None
        dy2st.to_static(static, input_spec=spec)
        try:
            want = gradients(eager, seed, steps)
        except Exception:
            return ["raises"]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            have = gradients(static, seed, steps, want[0])
        if any(issubclass(w.category, dy2st.AliasWarning) for w in caught):
            return ["shared memory"]
        assert set(want[0]) <= set(have[0]), "a result lost its gradient"
        check.same(cut(have[1]), cut(want[1]), bound, bound, "result")
        for what, a, b in zip(("x", "w"), have[2], want[2], strict=True):
            close(a, b, bound, f"gradient of {what}")
        return [q.kind for q in dy2st.report(static, trained_argument(seed, steps) * 1.0, 2).loops]


def gradients(
    model: Any, seed: int, steps: int, places: list[int] | None = None
) -> tuple[list[int], Any, list[Any]]:
    """Which results require a gradient, the results, and the gradients of x and w.

    A branch on data may decide whether a result requires one; a program then says that it does.
    `places`: the results that required one in eager.
    """
    x = trained_argument(seed, steps)
    results, grads = check.step(model, [x * 1.0, 2], [x, model.w], places)
    return trained(results), results, grads


def trained_argument(seed: int, steps: int) -> Any:
    x = argument(seed, 0, 2, steps)
    x.stop_gradient = False
    return x


def cut(x: Any) -> Any:
    """Results without their graph, and with Python floats as tensors."""
    if isinstance(x, (list, tuple)):
        return type(x)(cut(q) for q in x)
    x = with_tensors(x)
    return x.detach() if isinstance(x, paddle.Tensor) else x


__all__ = ["compare"]
