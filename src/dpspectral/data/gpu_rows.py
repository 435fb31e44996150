"""0/1 rows on a GPU."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from dpspectral.data.rows import Rows
from dpspectral.linalg.gpu_iterate import GpuIterate
from dpspectral.linalg.gpu_kernels import Block, block_of, gram_product
from dpspectral.linalg.operators import NARROW, BinaryGram, Progress, longest_column, silent
from dpspectral.linalg.triangle import packed
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.units import PatternUnit, Unit

_DENSE_BLOCK = 4096  # users at a time in the item-item matrix
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # kernels run on the CPU, slowly: for tests


class GpuRows(Rows):
    """A 0/1 matrix on a GPU.

    Parameters
    ----------
    data : scipy sparse matrix or array
        Users are rows.
    device : str
        As torch names it.
    block_users : int
        Users of one block.
    """

    on_gpu = True

    def __init__(
        self, data: Any, *, device: str = "cpu" if INTERPRETED else "cuda", block_users: int = 1 << 21
    ) -> None:
        if not INTERPRETED and not torch.cuda.is_available():
            raise RuntimeError("no CUDA device is available; pass the matrix itself to compute on the CPU")
        self.host, self.device, self._block_users = data, device, block_users
        self.shape = (int(data.shape[0]), int(data.shape[1]))
        self._blocks: list[Block] | None = None

    def enforced(self, unit: Unit) -> GpuRows:
        if not isinstance(unit, PatternUnit):
            raise TypeError(f"rows on a GPU are 0/1 data, for Interaction(...) or User(...); got {unit!r}")
        return self._with(sp.csr_array(unit.enforce(self.host)), unit)

    def restricted(self, columns: NDArray[np.int64]) -> GpuRows:
        return self._with(self.host[:, columns], self.enforced_for)

    def _with(self, data: Any, enforced_for: Unit | None) -> GpuRows:
        other = GpuRows(data, device=self.device, block_users=self._block_users)
        other.enforced_for = enforced_for
        return other

    @property
    def blocks(self) -> list[Block]:
        """The rows in blocks, copied to the GPU on first use."""
        if self._blocks is None:
            indptr = self.host.indptr.astype(np.int64)
            self._blocks = []
            for start in range(0, self.shape[0], self._block_users):
                part = indptr[start : start + self._block_users + 1]
                indices = torch.from_numpy(self.host.indices[part[0] : part[-1]].astype(np.int32)).to(self.device)
                pointers = torch.from_numpy(part - part[0]).to(self.device)
                self._blocks.append(block_of(pointers, indices, self.shape[1]))
        return self._blocks

    def gram(self, weights: NDArray[np.int64], *, modulus: int | None = None, **_: Any) -> GpuGram:
        """Exact sums over these rows; other options apply to the CPU only."""
        return GpuGram(self, weights, modulus)

    def here(self, array: NDArray[Any]) -> torch.Tensor:
        """The array as a tensor on the GPU."""
        return torch.tensor(array, device=self.device)


class GpuGram:
    """Σ_u w(d_u) r_u r_uᵀ on the GPU: the integers of `BinaryGram`, for rows on the GPU."""

    def __init__(self, rows: GpuRows, weights: NDArray[np.int64], modulus: int | None) -> None:
        self.rows, self.weights, self.n = rows, weights, rows.shape[1]
        self._host = BinaryGram(rows.host, weights, modulus=modulus)

    def tensor_product(self, X: Iterate, shift: int) -> torch.Tensor:
        """A·X as a tensor on the GPU."""
        integers = X.tensor if isinstance(X, GpuIterate) else self.rows.here(X.integers)
        return self._multiplied(integers, shift, X.largest_entry, X.longest_column)

    def product(self, X: NDArray[np.signedinteger], shift: int, progress: Progress = silent) -> NDArray[np.int64]:
        tensor = self._multiplied(self.rows.here(X), shift, float(np.abs(X).max()), longest_column(X))
        progress(1.0)
        product: NDArray[np.int64] = tensor.cpu().numpy()
        return product

    def _multiplied(self, integers: torch.Tensor, shift: int, top: float, column: float) -> torch.Tensor:
        sums, share, _ = self._host.reach(top, column, shift)
        return gram_product(
            self.rows.blocks, self.rows.here(self.weights), integers, shift, narrow_sums=sums < NARROW,
            narrow_parts=share < NARROW,
        )  # fmt: skip

    def weight_sum(self) -> int:
        return self._host.weight_sum()  # one number, computed on the host

    def column_sums(self) -> NDArray[np.int64]:
        table = self.rows.here(self.weights)
        total = torch.zeros(self.n, dtype=torch.int64, device=self.rows.device)
        for block in self.rows.blocks:
            degrees = block.indptr[1:] - block.indptr[:-1]
            total.index_add_(0, block.indices.long(), torch.repeat_interleave(table[degrees], degrees))
        sums: NDArray[np.int64] = total.cpu().numpy()
        return sums

    def item_matrix(self, progress: Progress = silent) -> NDArray[np.int64]:
        """Rᵀ·diag(W)·R by products of 0/1 matrices with weights in pieces of 20 bits: float64 below 2^53 is exact."""
        device, host = self.rows.device, self.rows.host
        total = torch.zeros((self.n, self.n), dtype=torch.int64, device=device)
        weights, piece = self.rows.here(self.weights), (1 << 20) - 1
        pieces = range(0, max(int(self.weights.max()).bit_length(), 1), 20)
        for start in range(0, host.shape[0], _DENSE_BLOCK):
            rows = host[start : start + _DENSE_BLOCK]
            # Stored entries are the ones; with binarize their values are counts.
            dense = torch.from_numpy((rows.toarray() != 0).astype(np.float64)).to(device)
            row_weights = weights[torch.from_numpy(np.diff(rows.indptr).astype(np.int64)).to(device)]
            for low in pieces:
                part = ((row_weights >> low) & piece).to(torch.float64)
                total += (dense.T @ (dense * part[:, None])).to(torch.int64) << low
            progress(min(1.0, (start + _DENSE_BLOCK) / host.shape[0]))
        return packed(total.cpu().numpy())
