"""The same loop on a GPU. Needs `pip install 'dpspectral[gpu]'` (torch, triton).

    rows = GpuRows(R)                   # a 0/1 matrix, copied to the GPU once
    decompose(rows, 32, Interaction(), Budget(1, 1e-8))

Products are exact integers with the bits of the CPU (kernels.py). X, Y and their factors stay on the GPU (algebra.py),
and noise comes from the host's cryptographic generator while the product runs (curator.py).
"""

from dpspectral.engines.gpu.rows import GpuRows

__all__ = ["GpuRows"]
