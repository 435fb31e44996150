"""Noise for a sum on a GPU: bits from the host's cryptographic generator, converted to integers on the GPU.

The bits do not depend on σ, so the host draws them while the product runs. The kernel is `privacy/quantile.nearest`
with the same table; a block in which any sample is doubtful is left to the host. So the samples are those that the
host would have drawn from the same bits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import triton
import triton.language as tl

from dpspectral.privacy import quantile
from dpspectral.privacy.entries import check_sigma
from dpspectral.privacy.noise import SEGMENT, Bytes, Noise, settle

_BLOCK = 1024  # samples of one program; divides SEGMENT
_THREADS = min(8, os.cpu_count() or 1)  # more threads hinder each other


@triton.jit
def _add_kernel(
    raw, table, numbers, total, doubtful, size,
    FIRST: tl.constexpr, CELL_BITS: tl.constexpr, DEGREE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """total += nearest integers of ±σx, unless one of the block is doubtful."""
    sigma, error, reach = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    bits = tl.load(raw + place, mask=inside, other=1 << 62)
    k = ((bits >> 12) & ((1 << 52) - 1)).to(tl.float64)
    u = ((k + 0.5) * 2.0**-53).to(tl.int64, bitcast=True)
    cell = (u >> (52 - CELL_BITS)) - FIRST
    within = ((u & ((1 << (52 - CELL_BITS)) - 1)) | (1023 << 52)).to(tl.float64, bitcast=True)
    t = within * 2.0 ** (CELL_BITS + 1) - (2.0 ** (CELL_BITS + 1) + 1)
    coefficients = table + cell * (DEGREE + 1)
    x = tl.load(coefficients + DEGREE)
    for power in tl.static_range(1, DEGREE + 1):
        x = x * t + tl.load(coefficients + (DEGREE - power))
    y = sigma * x
    integer = tl.floor(y + 0.5)  # rounds ties differently from rint, but ties are doubtful
    certain = (0.5 - tl.abs(y - integer) - (sigma - y) * error) * k > reach
    doubts = tl.sum((inside & (certain == 0)).to(tl.int32), axis=0)
    tl.store(doubtful + tl.program_id(0), doubts)
    sign = -(bits & 1)
    value = tl.where(doubts > 0, 0, (integer.to(tl.int64) ^ sign) - sign)
    tl.store(total + place, tl.load(total + place, mask=inside, other=0) + value, mask=inside)


class Bits:
    """Random bits for `size` samples; threads of the host start to draw them at once."""

    def __init__(self, noise: Noise, size: int, device: str) -> None:
        self._device, self._scale, self._used = device, noise.scale, False
        self._raw = torch.empty(size, dtype=torch.int64, pin_memory=device.startswith("cuda"))
        self._pool = ThreadPoolExecutor(_THREADS)
        streams: Iterator[Bytes] = noise.streams()
        self._streams = [next(streams) for _ in range(0, size, SEGMENT)] if noise.scale else []
        self._stop = False
        self._drawn = [self._pool.submit(self._draw, first) for first in range(_THREADS)]

    def _part(self, number: int, length: int = SEGMENT) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        part: np.ndarray[tuple[int], np.dtype[np.uint64]] = self._raw.numpy().view("<u8")
        return part[number * length : (number + 1) * length]

    def _draw(self, first: int) -> None:
        for number in range(first, len(self._streams), _THREADS):
            if self._stop:
                return
            part = self._part(number)
            part[:] = np.frombuffer(self._streams[number](part.nbytes), dtype="<u8")

    def discard(self) -> None:
        """End the threads; they write nothing afterwards."""
        self._stop = True
        self._pool.shutdown()

    def add(self, sigma: float, total: torch.Tensor) -> None:
        """total += samples of round(N(0, σ²)), one for every number. Can be called once: the bits are used up."""
        if self._used or total.numel() != len(self._raw):
            raise RuntimeError(f"bits for {len(self._raw)} samples can be used once, for as many numbers")
        self._used = True
        for drawn in self._drawn:
            drawn.result()
        if not self._scale:
            return
        sigma = check_sigma(sigma * self._scale)
        table = torch.from_numpy(quantile.TABLE).to(self._device)
        numbers = torch.tensor([sigma, quantile.ERROR, 0.63 * sigma], dtype=torch.float64, device=self._device)
        flat, blocks = total.view(-1), -(-total.numel() // _BLOCK)
        doubtful = torch.empty(blocks, dtype=torch.int32, device=self._device)
        _add_kernel[(blocks,)](
            self._raw.to(self._device, non_blocking=True), table, numbers, flat, doubtful, total.numel(),
            quantile.FIRST_CELL, quantile.CELL_BITS, quantile.DEGREE, _BLOCK,
        )  # fmt: skip
        for number in doubtful.nonzero()[:, 0].tolist():
            raw = self._part(number, _BLOCK)
            samples = np.empty(len(raw), dtype=np.int64)
            settle(sigma, raw, samples, self._streams[number * _BLOCK // SEGMENT])
            flat[number * _BLOCK : number * _BLOCK + len(raw)] += torch.from_numpy(samples).to(self._device)
