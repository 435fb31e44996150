"""The exact product Σ_u r_u · divide(W_d · r_uᵀX) over 0/1 rows on a GPU, in Triton.

Two kernels. The first sums the rows of X that belong to a user's items, weighs and rounds the sum as the CPU does, and
stores it. The second sums these over the users of an item, from the transposed pattern, in chunks, so that popular
items do not delay the others. All sums are integers, so their order does not matter, and the bits are the CPU's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

CHUNK = 1024  # entries of one item that one program adds up
FUSED = {"enable_fp_fusion": True}  # said, because Triton's default changes; integers do not mind


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
def _item_kernel(items, starts, stops, users, parts, Y, p: tl.constexpr, P: tl.constexpr, ENTRIES: tl.constexpr):
    """Y[item] += Σ parts[users of the chunk]"""
    chunk = tl.program_id(0)
    total = _row_sum(tl.load(starts + chunk), tl.load(stops + chunk), users, parts, p, P, ENTRIES, True)
    item, column = tl.load(items + chunk).to(tl.int64), tl.arange(0, P)
    tl.atomic_add(Y + item * p + column, total, mask=column < p)


@dataclass(frozen=True)
class Chunks:
    """The entries of some users by item, in chunks that one program each adds up.

    `order` says where the entries stand among those of the users, `first` (on the host) which chunk is the first of an
    item.
    """

    items: torch.Tensor
    starts: torch.Tensor
    stops: torch.Tensor
    order: torch.Tensor
    first: NDArray[np.int64]


def chunks_of(indices: torch.Tensor, n: int) -> Chunks:
    """The transposed pattern of some entries."""
    device = indices.device
    order = torch.sort(indices, stable=True).indices
    ends = torch.cumsum(torch.bincount(indices, minlength=n), 0)
    sizes = torch.diff(ends, prepend=ends.new_zeros(1))
    pieces = (sizes + CHUNK - 1) // CHUNK
    before = torch.cumsum(pieces, 0) - pieces
    items = torch.repeat_interleave(torch.arange(n, device=device, dtype=torch.int32), pieces)
    number = torch.arange(len(items), device=device) - torch.repeat_interleave(before, pieces)
    starts = (ends - sizes)[items.long()] + number * CHUNK
    stops = torch.minimum(starts + CHUNK, ends[items.long()])
    return Chunks(items, starts, stops, order, np.append(before.cpu().numpy(), len(items)))


def owners(indptr: torch.Tensor) -> torch.Tensor:
    """Which user each entry belongs to."""
    numbers = torch.arange(len(indptr) - 1, device=indptr.device, dtype=torch.int32)
    return torch.repeat_interleave(numbers, indptr[1:] - indptr[:-1])


@dataclass(frozen=True)
class Block:
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


def block_of(indptr: torch.Tensor, indices: torch.Tensor, n: int) -> Block:
    """The pattern of some users and its transpose."""
    chunks = chunks_of(indices, n)
    return Block(indptr, indices, chunks.items, chunks.starts, chunks.stops, owners(indptr)[chunks.order])


def gram_product(
    blocks: list[Block], weights: torch.Tensor, X: torch.Tensor, shift: int, *, narrow_sums: bool, narrow_parts: bool
) -> torch.Tensor:
    """Σ_u r_u · ((W_d · r_uᵀX + half) >> shift), in 64-bit integers; parts in 32 bits where they fit."""
    n, p = X.shape
    X = X.contiguous()  # kernels assume row-major order; a QR may return column-major
    P, entries = triton.next_power_of_2(p), 16
    Y = torch.zeros((n, p), dtype=torch.int64, device=X.device)
    most = max(block.count for block in blocks)
    parts = torch.empty((most, p), dtype=torch.int32 if narrow_parts else torch.int64, device=X.device)
    half = (1 << shift) >> 1
    for block in blocks:
        _user_kernel[(block.count,)](
            block.indptr, block.indices, weights, X, parts, half, shift, p, P, entries, not narrow_sums,
            num_warps=2, **FUSED,
        )  # fmt: skip
        if len(block.chunk_items):
            _item_kernel[(len(block.chunk_items),)](
                block.chunk_items, block.chunk_starts, block.chunk_stops, block.users, parts, Y, p, P, entries,
                num_warps=2, **FUSED,
            )  # fmt: skip
    return Y
