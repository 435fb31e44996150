"""0/1 rows on a GPU."""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from dpspectral.core.arrays import host
from dpspectral.data.rows import Rows
from dpspectral.linalg.gpu_kernels import Block, block_of, gram_product
from dpspectral.linalg.gpu_pairs import GpuPairCounts
from dpspectral.linalg.operators import NARROW, BinaryGram, Progress, longest_column, silent
from dpspectral.linalg.triangle import packed
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.units import PatternUnit, Unit

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # kernels run on the CPU, slowly: for tests
Part = tuple[torch.Tensor, torch.Tensor]  # row pointers and column indices of some users


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
        self.device, self._block_users = device, block_users
        self.shape = (int(data.shape[0]), int(data.shape[1]))
        self._data: Any = data  # on the host, until it is copied
        self._parts: list[Part] | None = None
        self._blocks: list[Block] | None = None

    def enforced(self, unit: Unit) -> GpuRows:
        if not isinstance(unit, PatternUnit):
            raise TypeError(f"rows on a GPU are 0/1 data, for Interaction(...) or User(...); got {unit!r}")
        if self.enforced_for is None:
            other = copy.copy(self)
            other._data = sp.csr_array(unit.enforce(self._data))
        else:  # checked already: another unit for 0/1 rows finds the same ones
            other = self._with(self.parts, self.shape[1])
        other.enforced_for = unit
        return other

    def restricted(self, columns: NDArray[np.int64]) -> GpuRows:
        place = torch.full((self.shape[1],), -1, dtype=torch.int32, device=self.device)
        place[self.here(columns)] = torch.arange(len(columns), dtype=torch.int32, device=self.device)
        return self._with([_chosen(part, place) for part in self.parts], len(columns))

    def _with(self, parts: list[Part], columns: int) -> GpuRows:
        """Other entries of the same users."""
        other = copy.copy(self)
        other.shape, other._data, other._parts, other._blocks = (self.shape[0], columns), None, parts, None
        return other

    @property
    def parts(self) -> list[Part]:
        """The rows in blocks, copied to the GPU on first use."""
        if self._parts is None:
            indptr = self._data.indptr.astype(np.int64)
            self._parts = []
            for start in range(0, self.shape[0], self._block_users):
                part = indptr[start : start + self._block_users + 1]
                indices = self._data.indices[part[0] : part[-1]].astype(np.int32, copy=False)
                self._parts.append((self.here(part - part[0]), self.here(indices)))
            self._data = None
        return self._parts

    @property
    def blocks(self) -> list[Block]:
        """The same with their transpose, made on first use."""
        if self._blocks is None:
            self._blocks = [block_of(*part, self.shape[1]) for part in self.parts]
        return self._blocks

    @property
    def working_bytes(self) -> int:
        """What a restricted copy, its transpose and the sorting for it may take beside these rows: data that does not
        fit is refused, as by the copying itself."""
        sizes = [(len(indptr), len(indices)) for indptr, indices in self.parts]
        return sum(20 * users + 16 * entries for users, entries in sizes) + max(48 * entries for _, entries in sizes)

    def free_memory(self) -> int | None:
        """Bytes that are free on the device, once the rows are there. None: it is the host."""
        _ = self.parts
        if not self.device.startswith("cuda"):
            return None
        unused = int(torch.cuda.memory_reserved(self.device)) - int(torch.cuda.memory_allocated(self.device))
        return int(torch.cuda.mem_get_info(self.device)[0]) + unused  # what torch holds in reserve is free to it

    def gram(self, weights: NDArray[np.int64], *, modulus: int | None = None, **_: Any) -> GpuGram:
        """Exact sums over these rows; other options apply to the CPU only."""
        return GpuGram(self, weights, modulus=modulus)

    def here(self, array: NDArray[Any]) -> torch.Tensor:
        """The array as a tensor on the GPU."""
        return torch.asarray(array, device=self.device, copy=True)


def _chosen(part: Part, place: torch.Tensor) -> Part:
    """The entries in columns with a place of at least 0, which is their new column."""
    indptr, indices = part
    columns = place[indices]
    kept = columns >= 0
    before = torch.zeros(len(indices) + 1, dtype=torch.int64, device=indices.device)
    torch.cumsum(kept, 0, out=before[1:])
    return before[indptr], columns[kept]


class GpuGram(BinaryGram):
    """Σ_u w(d_u) r_u r_uᵀ on the GPU: the integers of `BinaryGram`, with its bounds, for rows on the GPU."""

    rows: GpuRows

    def tensor_product(self, X: Iterate, shift: int) -> torch.Tensor:
        """A·X as a tensor on the GPU."""
        integers = X.integers if is_torch_array(X.integers) else self.rows.here(X.integers)
        return self._multiplied(integers, shift, X.largest_entry, X.longest_column)

    def product(self, X: NDArray[np.signedinteger], shift: int, progress: Progress = silent) -> NDArray[np.int64]:
        tensor = self._multiplied(self.rows.here(X), shift, float(np.abs(X).max()), longest_column(X))
        progress(1.0)
        return host(tensor)

    def _multiplied(self, integers: torch.Tensor, shift: int, top: float, column: float) -> torch.Tensor:
        sums, share, _ = self.reach(top, column, shift)
        return gram_product(
            self.rows.blocks, self.rows.here(self.weights), integers, shift, narrow_sums=sums < NARROW,
            narrow_parts=share < NARROW,
        )  # fmt: skip

    def weight_sum(self) -> int:
        self._check_total()
        table = self.rows.here(self.weights)
        total = torch.zeros((), dtype=torch.int64, device=self.rows.device)
        for indptr, _ in self.rows.parts:
            total += table[indptr[1:] - indptr[:-1]].sum()
        return int(total)

    def column_sums(self) -> NDArray[np.int64]:
        self._check_total()
        table = self.rows.here(self.weights)
        total = torch.zeros(self.n, dtype=torch.int64, device=self.rows.device)
        for indptr, indices in self.rows.parts:
            degrees = indptr[1:] - indptr[:-1]
            total.index_add_(0, indices, torch.repeat_interleave(table[degrees], degrees))
        return host(total)

    def pair_counts(self, order: NDArray[np.int64] | None = None) -> Any:
        """`GpuPairCounts`, to be added to tensors; row and column a stand for item order[a]."""
        self._check_total()
        parts, table = self.rows.parts, self.rows.here(self.weights)
        return GpuPairCounts(parts, table, self.n, None if order is None else self.rows.here(order))

    def item_matrix(self, progress: Progress = silent) -> NDArray[np.int64]:
        total = torch.zeros((self.n, self.n), dtype=torch.int64, device=self.rows.device)
        self.pair_counts().add(0, self.n, total)
        progress(1.0)
        return packed(host(total))
