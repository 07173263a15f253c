"""Adapters of images of another size, of pixels at places that data gives, of blocks of pixels, and
of volumes."""

from dy2st.capture.adapters.vision import blocks, interpolation, sampling, volumes

__all__ = ["blocks", "interpolation", "sampling", "volumes"]
