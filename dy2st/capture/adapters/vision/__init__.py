"""Adapters of images of another size, of pixels at places that data gives, and of blocks of
pixels."""

from dy2st.capture.adapters.vision import blocks, interpolation, sampling

__all__ = ["blocks", "interpolation", "sampling"]
