"""Rows on a GPU: the exact integer product in Triton. Needs `pip install 'dpspectral[gpu]'` (torch, triton).

    rows = GpuRows(R)                   # a 0/1 matrix, copied to the GPU once
    decompose(rows, 32, Interaction(), Budget(1, 1e-8))

Two kernels. The first sums the rows of X that belong to a user's items, weighs and rounds the sum as the CPU does, and
keeps it. The second sums these over the users of an item, from the transposed pattern. Users come in blocks, so that
what the second one gathers stays in the cache. All sums are integers, so their order does not matter, and the bits are
those of the CPU. Noise comes from the host's cryptographic generator, as always.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from dpspectral.linalg.operators import BinaryGram, Progress, silent
from dpspectral.privacy.units import PatternUnit, Unit
from dpspectral.queries import ItemMatrix, Popularity, Product, Query
from dpspectral.rows import Rows

_CHUNK = 1024  # entries of one item that one program adds up
_DENSE_BLOCK = 4096  # users at a time in the item-item matrix
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # kernels run on the CPU, slowly: for tests


@triton.jit
def _row_sum(start, stop, places, rows, p: tl.constexpr, P: tl.constexpr, ENTRIES: tl.constexpr, WIDE: tl.constexpr):
    """Σ rows[places[start:stop]], p columns of P."""
    column = tl.arange(0, P)
    total = tl.zeros([P], dtype=tl.int64 if WIDE else tl.int32)
    for first in range(start, stop, ENTRIES):
        entry = first + tl.arange(0, ENTRIES)
        inside = entry < stop
        place = tl.load(places + entry, mask=inside, other=0).to(tl.int64)
        real = inside[:, None] & (column < p)[None, :]
        total += tl.sum(
            tl.load(rows + place[:, None] * p + column[None, :], mask=real, other=0).to(total.dtype), axis=0
        )
    return total


@triton.jit
def _user_kernel(
    indptr, indices, weights, X, out, half, shift,
    p: tl.constexpr, P: tl.constexpr, ENTRIES: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """out[u] = (W_d · Σ X[items of u] + half) >> shift"""
    u = tl.program_id(0)
    start, stop = tl.load(indptr + u), tl.load(indptr + u + 1)
    total = _row_sum(start, stop, indices, X, p, P, ENTRIES, WIDE)
    share = (total.to(tl.int64) * tl.load(weights + (stop - start)) + half) >> shift
    column = tl.arange(0, P)
    tl.store(out + u.to(tl.int64) * p + column, share.to(out.dtype.element_ty), mask=column < p)


@triton.jit
def _item_kernel(items, starts, stops, users, shares, Y, p: tl.constexpr, P: tl.constexpr, ENTRIES: tl.constexpr):
    """Y[item] += Σ shares[users of the chunk]"""
    chunk = tl.program_id(0)
    total = _row_sum(tl.load(starts + chunk), tl.load(stops + chunk), users, shares, p, P, ENTRIES, True)
    item, column = tl.load(items + chunk).to(tl.int64), tl.arange(0, P)
    tl.atomic_add(Y + item * p + column, total, mask=column < p)


@dataclass(frozen=True)
class _Block:
    """Some users: their items, and for each item its users among them, in chunks."""

    indptr: torch.Tensor
    indices: torch.Tensor
    chunk_items: torch.Tensor
    chunk_starts: torch.Tensor
    chunk_stops: torch.Tensor
    users: torch.Tensor

    @property
    def count(self) -> int:
        return len(self.indptr) - 1


def _block(indptr: torch.Tensor, indices: torch.Tensor, n: int) -> _Block:
    """The pattern of some users and its transpose."""
    degrees = indptr[1:] - indptr[:-1]
    owners = torch.repeat_interleave(torch.arange(len(degrees), device=indptr.device, dtype=torch.int32), degrees)
    users = owners[torch.sort(indices, stable=True).indices]
    ends = torch.cumsum(torch.bincount(indices, minlength=n), 0)
    sizes = torch.diff(ends, prepend=ends.new_zeros(1))
    pieces = (sizes + _CHUNK - 1) // _CHUNK
    items = torch.repeat_interleave(torch.arange(n, device=indptr.device, dtype=torch.int32), pieces)
    number = torch.arange(len(items), device=indptr.device) - torch.repeat_interleave(
        torch.cumsum(pieces, 0) - pieces, pieces
    )
    starts = (ends - sizes)[items.long()] + number * _CHUNK
    stops = torch.minimum(starts + _CHUNK, ends[items.long()])
    return _Block(indptr, indices, items, starts, stops, users)


def gram_product(
    blocks: list[_Block], weights: torch.Tensor, X: torch.Tensor, shift: int, *, narrow_sums: bool, narrow_shares: bool
) -> torch.Tensor:
    """Σ_u r_u · ((W_d · r_uᵀX + half) >> shift), in 64-bit integers; shares in 32 bits where they fit."""
    n, p = X.shape
    P, entries = triton.next_power_of_2(p), 16
    Y = torch.zeros((n, p), dtype=torch.int64, device=X.device)
    most = max(block.count for block in blocks)
    shares = torch.empty((most, p), dtype=torch.int32 if narrow_shares else torch.int64, device=X.device)
    half = (1 << shift) >> 1
    for block in blocks:
        _user_kernel[(block.count,)](
            block.indptr, block.indices, weights, X, shares, half, shift, p, P, entries, not narrow_sums, num_warps=2
        )
        if len(block.chunk_items):
            _item_kernel[(len(block.chunk_items),)](
                block.chunk_items, block.chunk_starts, block.chunk_stops, block.users, shares, Y, p, P, entries,
                num_warps=2,
            )  # fmt: skip
    return Y


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
        self._data, self._device, self._block_users = data, device, block_users
        self.shape = (int(data.shape[0]), int(data.shape[1]))
        self._blocks: list[_Block] | None = None

    def enforced(self, unit: Unit) -> GpuRows:
        if not isinstance(unit, PatternUnit):
            raise TypeError(f"rows on a GPU are 0/1 data, for Interaction(...) or User(...); got {unit!r}")
        checked = unit.enforce(self._data)
        return GpuRows(sp.csr_array(checked), device=self._device, block_users=self._block_users)

    def restricted(self, columns: NDArray[np.int64]) -> GpuRows:
        return GpuRows(self._data[:, columns], device=self._device, block_users=self._block_users)

    @property
    def blocks(self) -> list[_Block]:
        """On the GPU from the first use on."""
        if self._blocks is None:
            indptr = self._data.indptr.astype(np.int64)
            self._blocks = []
            for start in range(0, self.shape[0], self._block_users):
                part = indptr[start : start + self._block_users + 1]
                indices = torch.from_numpy(self._data.indices[part[0] : part[-1]].astype(np.int32)).to(self._device)
                pointers = torch.from_numpy(part - part[0]).to(self._device)
                self._blocks.append(_block(pointers, indices, self.shape[1]))
        return self._blocks

    def evaluate(self, query: Query, progress: Progress = silent, **options: Any) -> NDArray[np.int64]:
        if isinstance(query, Product):
            return self._product(query, progress)
        if isinstance(query, ItemMatrix):
            return self._matrix(query, progress)
        if isinstance(query, Popularity):
            return self._popularity(query)
        return query.over(self._data, progress, **options)  # one number: not worth the trip

    def _product(self, query: Product, progress: Progress) -> NDArray[np.int64]:
        unit, X = query.unit, query.X
        assert isinstance(unit, PatternUnit)
        table, shift = unit.table(X), query.rounding.shift
        sums, result = BinaryGram(self._data, table).widths(X.integers, shift)
        Y = gram_product(
            self.blocks, self._here(table), self._here(X.integers), shift,
            narrow_sums=sums is np.int32, narrow_shares=result is np.int32 or self._narrow(X.integers, table, shift),
        )  # fmt: skip
        progress(1.0)
        found: NDArray[np.int64] = Y.cpu().numpy()
        return found

    def _here(self, array: NDArray[Any]) -> torch.Tensor:
        return torch.tensor(array, device=self._device)

    def _narrow(self, X: NDArray[Any], table: NDArray[np.int64], shift: int) -> bool:
        """Whether one user's share fits 32 bits (a sum over users may not)."""
        d = np.arange(self.shape[1] + 1, dtype=np.float64)
        column = float(np.sqrt((X.astype(np.float64) ** 2).sum(axis=0).max()))
        sums = np.minimum(d * float(np.abs(X).max()), np.sqrt(d) * column)
        return float((sums * table * 2.0**-shift).max()) + 1 < 2.0**31 - 1

    def _popularity(self, query: Popularity) -> NDArray[np.int64]:
        table = self._here(query.rounding.table)
        total = torch.zeros(self.shape[1], dtype=torch.int64, device=self._device)
        for block in self.blocks:
            degrees = block.indptr[1:] - block.indptr[:-1]
            total.index_add_(0, block.indices.long(), torch.repeat_interleave(table[degrees], degrees))
        found: NDArray[np.int64] = total.cpu().numpy()
        return found

    def _matrix(self, query: ItemMatrix, progress: Progress) -> NDArray[np.int64]:
        """Rᵀ·diag(W)·R by products of 0/1 matrices with weights in pieces of 20 bits: float64 below 2^53 is exact."""
        n, table = self.shape[1], query.rounding.table
        total = torch.zeros((n, n), dtype=torch.int64, device=self._device)
        weights, piece = self._here(table), (1 << 20) - 1
        pieces = range(0, max(int(table.max()).bit_length(), 1), 20)
        for start in range(0, self.shape[0], _DENSE_BLOCK):
            rows = self._data[start : start + _DENSE_BLOCK]
            dense = torch.from_numpy(rows.toarray().astype(np.float64)).to(self._device)
            mine = weights[torch.from_numpy(np.diff(rows.indptr).astype(np.int64)).to(self._device)]
            for low in pieces:
                part = ((mine >> low) & piece).to(torch.float64)
                total += (dense.T @ (dense * part[:, None])).to(torch.int64) << low
            progress(min(1.0, (start + _DENSE_BLOCK) / self.shape[0]))
        matrix = total.cpu().numpy()
        return np.concatenate([np.diag(matrix), matrix[np.triu_indices(n, 1)]])
