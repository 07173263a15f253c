"""Adapters of image resizing, grid sampling, pixel blocks and volumes."""

from dy2st.capture.adapters.vision import blocks, interpolation, sampling, volumes

__all__ = ["blocks", "interpolation", "sampling", "volumes"]
