"""Adapters of calls with complex numbers, by rows of real numbers."""

from dy2st.capture.adapters.complex import arithmetic, fourier, functions, moves, products
from dy2st.capture.adapters.complex.table import COMPLEX, takes_complex

__all__ = [
    "COMPLEX", "arithmetic", "fourier", "functions", "moves", "products", "takes_complex",
]  # fmt: skip
