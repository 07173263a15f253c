"""Calls with complex numbers, made of the rows of real ones."""

from dy2st.capture.adapters.complex import arithmetic, fourier, functions, moves, products
from dy2st.capture.adapters.complex.table import COMPLEX, takes_complex

__all__ = [
    "COMPLEX", "arithmetic", "fourier", "functions", "moves", "products", "takes_complex",
]  # fmt: skip
