"""Arrays of numpy and of torch, by the same code (`array-api-compat`), and the way between a device and the host.

Large matrices are worked on where they lie. Small ones (p × p) come to the host, where LAPACK factors them.
"""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

Array = Any  # of numpy or torch: what `namespace` knows


def namespace(array: Array) -> Any:
    """The functions that go with an array."""
    return array_api_compat.array_namespace(array)


def like(array: NDArray[Any], other: Array) -> Array:
    """A numpy array where another array lies; real numbers in its precision."""
    dtype = other.dtype if array.dtype.kind == "f" else None
    return namespace(other).asarray(array, dtype=dtype, device=array_api_compat.device(other))


def empty(shape: tuple[int, ...], other: Array) -> Array:
    """Room for numbers of another array's type, where it lies."""
    return namespace(other).empty(shape, dtype=other.dtype, device=array_api_compat.device(other))


def host(array: Array) -> NDArray[Any]:
    """The same numbers as a numpy array."""
    if not isinstance(array, np.ndarray) and array.is_cuda:
        import torch  # it is an array of torch

        # Through pinned memory, which torch keeps for the next time: a tenth of the time of `array.cpu()`.
        pinned = torch.empty(array.shape, dtype=array.dtype, pin_memory=True)
        array = pinned.copy_(array).clone()
    return np.asarray(array)
