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
from dpspectral.linalg.operators import NARROW, BinaryGram, Progress, silent
from dpspectral.privacy.units import PatternUnit, Unit
from dpspectral.release.queries import ItemMatrix, Popularity, Product, Query
from dpspectral.release.source import Curator

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

    def __init__(
        self, data: Any, *, device: str = "cpu" if INTERPRETED else "cuda", block_users: int = 1 << 21
    ) -> None:
        if not INTERPRETED and not torch.cuda.is_available():
            raise RuntimeError("there is no CUDA device here; pass the matrix itself to compute on the CPU")
        self._data, self.device, self._block_users = data, device, block_users
        self.shape = (int(data.shape[0]), int(data.shape[1]))
        self._blocks: list[Block] | None = None

    def enforced(self, unit: Unit) -> GpuRows:
        if not isinstance(unit, PatternUnit):
            raise TypeError(f"rows on a GPU are 0/1 data, for Interaction(...) or User(...); got {unit!r}")
        return self._with(sp.csr_array(unit.enforce(self._data)), unit)

    def restricted(self, columns: NDArray[np.int64]) -> GpuRows:
        return self._with(self._data[:, columns], self.enforced_for)

    def _with(self, data: Any, enforced_for: Unit | None) -> GpuRows:
        other = GpuRows(data, device=self.device, block_users=self._block_users)
        other.enforced_for = enforced_for
        return other

    @property
    def blocks(self) -> list[Block]:
        """On the GPU from the first use on."""
        if self._blocks is None:
            indptr = self._data.indptr.astype(np.int64)
            self._blocks = []
            for start in range(0, self.shape[0], self._block_users):
                part = indptr[start : start + self._block_users + 1]
                indices = torch.from_numpy(self._data.indices[part[0] : part[-1]].astype(np.int32)).to(self.device)
                pointers = torch.from_numpy(part - part[0]).to(self.device)
                self._blocks.append(block_of(pointers, indices, self.shape[1]))
        return self._blocks

    def evaluate(self, query: Query, progress: Progress = silent, **options: Any) -> NDArray[np.int64]:
        if isinstance(query, Product):
            found: NDArray[np.int64] = self.product(query, options.get("modulus")).cpu().numpy()
            progress(1.0)
            return found
        if isinstance(query, ItemMatrix):
            return self._matrix(query, progress)
        if isinstance(query, Popularity):
            return self._popularity(query)
        return query.over(self._data, progress, **options)  # one number: not worth the trip

    def curator(self) -> type[Curator]:
        from dpspectral.release.gpu_curator import GpuCurator

        return GpuCurator

    def product(self, query: Product, modulus: int | None = None) -> torch.Tensor:
        """A·X, on the GPU."""
        unit, X = query.unit, query.X
        assert isinstance(unit, PatternUnit)
        table, shift = unit.table(X), query.rounding.shift
        sums, share, _ = BinaryGram(self._data, table, modulus=modulus).reach(X.largest_entry, X.longest_column, shift)
        integers = X.tensor if isinstance(X, GpuIterate) else self._here(X.integers)
        return gram_product(
            self.blocks, self._here(table), integers, shift, narrow_sums=sums < NARROW, narrow_shares=share < NARROW
        )

    def _here(self, array: NDArray[Any]) -> torch.Tensor:
        return torch.tensor(array, device=self.device)

    def _popularity(self, query: Popularity) -> NDArray[np.int64]:
        table = self._here(query.rounding.table)
        total = torch.zeros(self.shape[1], dtype=torch.int64, device=self.device)
        for block in self.blocks:
            degrees = block.indptr[1:] - block.indptr[:-1]
            total.index_add_(0, block.indices.long(), torch.repeat_interleave(table[degrees], degrees))
        found: NDArray[np.int64] = total.cpu().numpy()
        return found

    def _matrix(self, query: ItemMatrix, progress: Progress) -> NDArray[np.int64]:
        """Rᵀ·diag(W)·R by products of 0/1 matrices with weights in pieces of 20 bits: float64 below 2^53 is exact."""
        n, table = self.shape[1], query.rounding.table
        total = torch.zeros((n, n), dtype=torch.int64, device=self.device)
        weights, piece = self._here(table), (1 << 20) - 1
        pieces = range(0, max(int(table.max()).bit_length(), 1), 20)
        for start in range(0, self.shape[0], _DENSE_BLOCK):
            rows = self._data[start : start + _DENSE_BLOCK]
            # Stored entries are the ones; with binarize their values are counts.
            dense = torch.from_numpy((rows.toarray() != 0).astype(np.float64)).to(self.device)
            mine = weights[torch.from_numpy(np.diff(rows.indptr).astype(np.int64)).to(self.device)]
            for low in pieces:
                part = ((mine >> low) & piece).to(torch.float64)
                total += (dense.T @ (dense * part[:, None])).to(torch.int64) << low
            progress(min(1.0, (start + _DENSE_BLOCK) / self.shape[0]))
        matrix = total.cpu().numpy()
        return np.concatenate([np.diag(matrix), matrix[np.triu_indices(n, 1)]])
