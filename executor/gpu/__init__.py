"""The GPU backend: CUDA C++ text for NVRTC and the driver. The modules listed first register
kernels."""

from executor.gpu.arrays import DeviceArray
from executor.gpu.backend import Gpu, require
from executor.gpu.driver import DriverError
from executor.gpu.kernels import elementwise, gather_scatter, products, reduce
from executor.gpu.runtime import HostCopyWarning

__all__ = [
    "elementwise",
    "gather_scatter",
    "products",
    "reduce",
    "DeviceArray",
    "DriverError",
    "Gpu",
    "HostCopyWarning",
    "require",
]
