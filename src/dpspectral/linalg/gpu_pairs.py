"""The pair counts Σ_u W_u r_u r_uᵀ of 0/1 rows on a GPU, by rows of the matrix: exact 64-bit integers.

Item by item: of every user of item i, the items from i on; the row that is added to is small enough for the cache of
the device. Additions are atomic and of integers, so their order does not matter, and the sums are those of
`operators.PairCounts`. What they are added to may hold noise already.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from dpspectral.linalg.gpu_kernels import FUSED, Chunks, chunks_of, owners

_USERS, _ENTRIES = 16, 32  # of one step of a program


@triton.jit
def _pair_kernel(
    indptr, indices, weights, items, starts, stops, users, places, out, first_chunk, first_item, stride, width,
    USERS: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    """out[i − first_item, j] += weights[u] for the users u of a chunk of item i, and their items j ≥ i, j < width."""
    chunk = tl.program_id(0).to(tl.int64) + first_chunk
    item = tl.load(items + chunk).to(tl.int64)
    row = out + (item - first_item) * stride
    start, stop = tl.load(starts + chunk), tl.load(stops + chunk)
    diagonal = tl.zeros([USERS], dtype=tl.int64)  # every user has item i itself: added up here, added once
    for begin in range(start, stop, USERS):
        entry = begin + tl.arange(0, USERS)
        inside = entry < stop
        user = tl.load(users + entry, mask=inside, other=0).to(tl.int64)
        place = tl.load(places + entry, mask=inside, other=0).to(tl.int64) + 1
        end = tl.load(indptr + user + 1, mask=inside, other=0)
        weight = tl.load(weights + user, mask=inside, other=0)
        diagonal += weight
        longest = tl.max(tl.where(inside, end - place, 0), axis=0)
        for step in range(0, longest, ENTRIES):
            k = place[:, None] + step + tl.arange(0, ENTRIES)[None, :]
            real = inside[:, None] & (k < end[:, None])
            column = tl.load(indices + k, mask=real, other=0).to(tl.int64)
            real = real & (column < width)
            tl.atomic_add(row + column, weight[:, None] + tl.zeros_like(column), mask=real, sem="relaxed")
    tl.atomic_add(row + item, tl.sum(diagonal, axis=0), sem="relaxed")


@dataclass(frozen=True)
class _Part:
    """Some users: their items and weights, and their entries by item."""

    indptr: torch.Tensor
    indices: torch.Tensor
    weights: torch.Tensor
    chunks: Chunks
    users: torch.Tensor
    places: torch.Tensor


class GpuPairCounts:
    """The upper triangle of Σ_u W_{d_u} r_u r_uᵀ, by rows, added to whatever is there.

    Columns of the parts increase in every row. Row and column a of the sum stand for item order[a].
    """

    def __init__(
        self, parts: list[tuple[torch.Tensor, torch.Tensor]], table: torch.Tensor, n: int, order: torch.Tensor | None
    ) -> None:
        self.n, self.device = n, table.device
        self._place = None if order is None else torch.argsort(order)
        self._parts = [self._part(indptr, indices, table) for indptr, indices in parts if len(indices)]

    def _part(self, indptr: torch.Tensor, indices: torch.Tensor, table: torch.Tensor) -> _Part:
        if self._place is not None:
            key = owners(indptr).long() * self.n + self._place[indices]
            indices = (key.sort().values % self.n).to(torch.int32)  # they increase again
        chunks = chunks_of(indices, self.n)
        places = chunks.order.to(torch.int32) if len(indices) < 2**31 else chunks.order
        return _Part(indptr, indices, table[indptr[1:] - indptr[:-1]], chunks, owners(indptr)[chunks.order], places)

    def add(self, first: int, last: int, out: torch.Tensor) -> None:
        """out[a − first, b] += A_ab for first ≤ a < last and a ≤ b < the width of `out`."""
        if out.dtype != torch.int64 or out.stride(1) != 1:
            raise TypeError(f"pair counts are added to rows of 64-bit integers, got {out.dtype}")
        for part in self._parts:
            start, stop = int(part.chunks.first[first]), int(part.chunks.first[last])
            if start == stop:
                continue
            _pair_kernel[(stop - start,)](
                part.indptr, part.indices, part.weights, part.chunks.items, part.chunks.starts, part.chunks.stops,
                part.users, part.places, out, start, first, out.stride(0), out.shape[1], _USERS, _ENTRIES, **FUSED,
            )  # fmt: skip
