"""Layers that run a function over time, and spiking neurons for them."""

from dy2st.nn.cores import LIF, PLIF, AdaptiveLIF, Izhikevich
from dy2st.nn.flex_neuron import FlexNeuron, reset
from dy2st.nn.surrogate import atan_spike, sigmoid_spike

__all__ = [
    "LIF",
    "PLIF",
    "AdaptiveLIF",
    "FlexNeuron",
    "Izhikevich",
    "atan_spike",
    "reset",
    "sigmoid_spike",
]
