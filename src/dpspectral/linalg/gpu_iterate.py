"""The public matrix X on its grid, with the norms of `Iterate`, on a GPU."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from dpspectral.core.blas import one_thread_if_small
from dpspectral.privacy.iterate import Iterate


class GpuIterate(Iterate):
    """Integers in a tensor. Norms are upper bounds with the margins of `Iterate`, which hold for any order of sums."""

    def __init__(self, real: torch.Tensor, bits: int) -> None:
        if not bool(torch.isfinite(real).all()) or float(real.abs().max()) > 2.0 ** (52 - bits):
            raise ValueError("X must be finite and of moderate size: it is meant to have (nearly) orthonormal columns")
        self.bits = bits
        rounded = torch.round(real * 2.0**bits)  # half to even, as on the CPU
        self.tensor = rounded.to(torch.int32 if float(rounded.abs().max()) < 2**31 else torch.int64)

    @property
    def shape(self) -> tuple[int, int]:
        return self.tensor.shape[0], self.tensor.shape[1]

    @cached_property
    def integers(self) -> NDArray[np.signedinteger]:  # type: ignore[override]
        integers: NDArray[np.signedinteger] = self.tensor.cpu().numpy()
        return integers

    @cached_property
    def real(self) -> torch.Tensor:
        """X as real numbers, on the GPU."""
        return self.tensor.double() * 2.0**-self.bits

    @cached_property
    def largest_entry(self) -> float:
        return float(self.tensor.abs().max())

    @cached_property
    def longest_column(self) -> float:
        return float((self.tensor.double() ** 2).sum(dim=0).max().sqrt())

    @cached_property
    def row_norms(self) -> NDArray[np.float64]:
        squares = (self.real**2).sum(dim=1).sort(descending=True).values
        norms: NDArray[np.float64] = torch.sqrt(squares * (1 + self.shape[1] * 2.0**-50)).cpu().numpy()
        return norms

    @cached_property
    def spectral(self) -> float:
        gram = (self.real.mT @ self.real).cpu().numpy()
        slack = (self.shape[0] + self.shape[1]) * 2.0**-50 * float(np.trace(gram))
        with one_thread_if_small(*gram.shape):
            return float(np.sqrt(float(np.linalg.eigvalsh(gram)[-1]) + slack))
