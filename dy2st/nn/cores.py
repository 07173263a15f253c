"""Spiking neurons as cores of `FlexNeuron`: one step of `(input, *states) -> (spike, *states)`.

All tensors have one shape. `spike` gives the spikes and their surrogate gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import paddle
from paddle import Tensor

from dy2st.library.substitutes import REWRITTEN
from dy2st.nn.surrogate import sigmoid_spike

Spike = Callable[[Tensor], Tensor]


def after_spike(v: Tensor, s: Tensor, threshold: float | Tensor, v_reset: float | None) -> Tensor:
    """The potential after the spikes `s`: `v_reset`, or lower by the threshold if that is None."""
    return v - s * threshold if v_reset is None else (1 - s) * v + s * v_reset


class LIF(paddle.nn.Layer):
    """Leaky integrate and fire: `v += (x - (v - rest)) / tau`, a spike where v reaches 1.

    Args:
        tau: the time constant in steps, above 1.
        v_threshold: the potential of a spike.
        v_reset: the potential after a spike, and at rest; None lowers it by the threshold, and the
            potential at rest is 0.
        spike: gives the spikes for `v - v_threshold`.
        detach_reset: no gradient goes through the reset.
    """

    def __init__(
        self,
        tau: float = 2.0,
        v_threshold: float = 1.0,
        v_reset: float | None = 0.0,
        spike: Spike = sigmoid_spike,
        detach_reset: bool = False,
    ) -> None:
        super().__init__()
        if tau <= 1:
            raise ValueError(f"tau must be above 1, it is {tau}")
        self.tau, self.v_threshold, self.v_reset = tau, v_threshold, v_reset
        self.spike, self.detach_reset = spike, detach_reset
        self.initial_states = (v_reset or 0.0,)

    def forward(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.fired(v + (x - (v - (self.v_reset or 0.0))) / self.tau)

    def fired(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """The spikes of a charged potential, and the potential after them."""
        s = self.spike(v - self.v_threshold)
        gone = s.detach() if self.detach_reset else s
        return s, after_spike(v, gone, self.v_threshold, self.v_reset)


class PLIF(LIF):
    """`LIF` whose time constant is learned: `1 / tau` is the sigmoid of the parameter `w`."""

    def __init__(
        self,
        tau: float = 2.0,
        v_threshold: float = 1.0,
        v_reset: float | None = 0.0,
        spike: Spike = sigmoid_spike,
        detach_reset: bool = False,
    ) -> None:
        super().__init__(tau, v_threshold, v_reset, spike, detach_reset)
        first = paddle.nn.initializer.Constant(-math.log(tau - 1))
        self.w = self.create_parameter([], default_initializer=first)

    def forward(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        rate = paddle.nn.functional.sigmoid(self.w)
        return self.fired(v + (x - (v - (self.v_reset or 0.0))) * rate)


class AdaptiveLIF(paddle.nn.Layer):
    """`LIF` with two states: each spike raises the threshold by `beta`, and that decays by `rho`.

    Bellec et al., "Long short-term memory and learning-to-learn in networks of spiking neurons",
    2018.
    """

    def __init__(
        self,
        tau: float = 2.0,
        v_threshold: float = 1.0,
        beta: float = 0.2,
        rho: float = 0.9,
        spike: Spike = sigmoid_spike,
    ) -> None:
        super().__init__()
        self.tau, self.v_threshold, self.beta, self.rho = tau, v_threshold, beta, rho
        self.spike = spike
        self.initial_states = (0.0, 0.0)

    def forward(self, x: Tensor, v: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        v = v + (x - v) / self.tau
        threshold = self.v_threshold + self.beta * a
        s = self.spike(v - threshold)
        return s, after_spike(v, s, threshold, None), self.rho * a + s


class Izhikevich(paddle.nn.Layer):
    """Izhikevich's neuron in steps of `dt` milliseconds; a spike where v reaches 30 mV.

    `v += dt * (0.04 v^2 + 5 v + 140 - u + x)`, `u += dt * a (b v - u)`; after a spike v is `c` and
    u higher by `d`. "Simple model of spiking neurons", 2003.
    """

    def __init__(
        self,
        a: float = 0.02,
        b: float = 0.2,
        c: float = -65.0,
        d: float = 8.0,
        dt: float = 1.0,
        spike: Spike = sigmoid_spike,
    ) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d, self.dt, self.spike = a, b, c, d, dt, spike
        self.initial_states = (c, b * c)

    def forward(self, x: Tensor, v: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        new = v + self.dt * (0.04 * v * v + 5 * v + 140 - u + x)
        u = u + self.dt * self.a * (self.b * v - u)
        s = self.spike(new - 30.0)
        return s, after_spike(new, s, 30.0, self.c), u + s * self.d


REWRITTEN.update({f: f for f in (after_spike, LIF.forward, LIF.fired, PLIF.forward)})
REWRITTEN.update({f: f for f in (AdaptiveLIF.forward, Izhikevich.forward)})
