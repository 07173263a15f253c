"""Small models of everyday code: results, state, gradients and later calls are those of eager."""

from __future__ import annotations

import importlib
from typing import Any

import paddle
import pytest

import dy2st
from tests import check
from tests.parity.everyday import MODELS, Everyday

for _name in ("sequence", "physics", "networks", "training"):
    importlib.import_module(f"tests.parity.everyday.{_name}")

pytestmark = pytest.mark.sampled


def built(everyday: Everyday) -> Any:
    paddle.seed(1)
    return everyday.make()


def state(model: Any) -> Any:
    """Buffers, parameters, modes, and numbers and tensors among the attributes."""
    if not isinstance(model, paddle.nn.Layer):
        return {}
    numbers = {k: v for k, v in vars(model).items() if type(v) in (int, float, bool)}
    modes = [q.training for q in model.sublayers(include_self=True)]
    return {"tensors": check.buffers(model), "numbers": numbers, "modes": modes}


@pytest.mark.quick("adaptive_step_ode", "VAE")
@pytest.mark.parametrize("name", MODELS)
def test_three_calls(name):
    everyday = MODELS[name]
    eager, static = built(everyday), dy2st.to_static(built(everyday))
    for call in range(3):
        with paddle.no_grad() if call == 1 else paddle.enable_grad():
            want = check.observe(eager, everyday.args(), lambda: state(eager), call)
            have = check.observe(static, everyday.args(), lambda: state(static), call)
        assert want.error is None, want.error
        check.both_raise(have, want)
        check.equal(have, want, f"call {call}", rtol=2e-5, atol=2e-5)
    check.few_traces(dy2st.report(static, *everyday.args()))


@pytest.mark.quick("CapsuleRouting")
@pytest.mark.parametrize("name", [n for n, q in MODELS.items() if q.trained])
def test_gradients(name):
    everyday = MODELS[name]
    found = []
    for model in (built(everyday), dy2st.to_static(built(everyday))):
        args = everyday.args()
        for q in check.tensors(args):
            q.stop_gradient = q.dtype != paddle.float32
        params = model.parameters() if isinstance(model, paddle.nn.Layer) else []
        paddle.seed(3)
        results, grads = check.step(model, args, [*check.tensors(args), *params])
        found.append((results, grads))
    (want, wanted), (have, had) = found
    check.same(have, want, 2e-5, 2e-5)
    for k, (a, b) in enumerate(zip(had, wanted, strict=True)):
        check.close(a, b, 1e-4, f"gradient {k}")
