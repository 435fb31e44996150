"""Noise on a GPU, with the samples of the host.

The host's cryptographic generator draws bits, which do not depend on σ, and the GPU makes them into integers: for a
product while that runs (`Bits`), for numbered pieces of a key (`KeyedNoise.piece`) a few pieces ahead (`DevicePieces`).
The conversion is `privacy/quantile.nearest` with the same table; where a sample is doubtful the host decides it, from
the same bits. So the samples are the host's, and keys never leave it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import triton
import triton.language as tl

from dpspectral.core.threads import ahead, cores
from dpspectral.privacy import quantile
from dpspectral.privacy.entries import check_sigma
from dpspectral.privacy.noise import SEGMENT, Bytes, KeyedNoise, Noise, settle

_BLOCK = 1024  # samples of one program; divides SEGMENT
_MOST_THREADS = 8  # more hinder each other


@triton.jit
def _nearest(bits, table, numbers, FIRST: tl.constexpr, CELL_BITS: tl.constexpr, DEGREE: tl.constexpr):
    """The nearest integers of ±σx, and whether they are certain."""
    sigma, error, reach = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
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
    sign = -(bits & 1)
    return (integer.to(tl.int64) ^ sign) - sign, certain


@triton.jit
def _add_kernel(
    raw, table, numbers, total, doubtful, size,
    FIRST: tl.constexpr, CELL_BITS: tl.constexpr, DEGREE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """total += nearest integers of ±σx, unless one of the block is doubtful."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    bits = tl.load(raw + place, mask=inside, other=1 << 62)
    value, certain = _nearest(bits, table, numbers, FIRST, CELL_BITS, DEGREE)
    doubts = tl.sum((inside & (certain == 0)).to(tl.int32), axis=0)
    tl.store(doubtful + tl.program_id(0), doubts)
    value = tl.where(doubts > 0, 0, value)
    tl.store(total + place, tl.load(total + place, mask=inside, other=0) + value, mask=inside)


@triton.jit
def _piece_kernel(
    raw, table, numbers, out, doubtful, size, width, stride,
    FIRST: tl.constexpr, CELL_BITS: tl.constexpr, DEGREE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = the samples of a piece, `width` in a row; doubtful[0] += how many are not certain."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    bits = tl.load(raw + place, mask=inside, other=1 << 62)
    value, certain = _nearest(bits, table, numbers, FIRST, CELL_BITS, DEGREE)
    row = place.to(tl.int32) // width  # a piece has fewer than 2^31 samples
    tl.store(out + row.to(tl.int64) * stride + (place - row * width), value, mask=inside)
    doubts = tl.sum((inside & (certain == 0)).to(tl.int32), axis=0)
    if doubts > 0:
        tl.atomic_add(doubtful, doubts)


def _polynomials(device: str) -> torch.Tensor:
    return torch.from_numpy(quantile.TABLE).to(device)


def _numbers(sigma: float, device: str) -> torch.Tensor:
    """σ, and how far doubt reaches, as `_nearest` takes them."""
    return torch.tensor([sigma, quantile.ERROR, 0.63 * sigma], dtype=torch.float64, device=device)


class DevicePieces:
    """Pieces of keyed noise on a device: the samples of `KeyedNoise.piece`."""

    def __init__(self, noise: KeyedNoise, device: str) -> None:
        self._noise, self.device = noise, device
        self._table = _polynomials(device)
        self._numbers: dict[float, torch.Tensor] = {}

    def bits(self, pieces: Iterable[tuple[int, int]]) -> Iterator[torch.Tensor]:
        """The bits of pieces (number, size) in turn, on the device; the host draws the next ones meanwhile."""
        for raw in ahead(self._drawn, pieces, min(_MOST_THREADS, cores())):
            yield raw.to(self.device, non_blocking=True)

    def _drawn(self, piece: tuple[int, int]) -> torch.Tensor:
        number, size = piece
        raw = torch.empty(size, dtype=torch.int64, pin_memory=self.device.startswith("cuda"))
        if self._noise.scale:
            self._noise.bits(raw.numpy().view("<u8"), number)
        return raw

    def convert(self, sigma: float, raw: torch.Tensor, out: torch.Tensor, doubtful: torch.Tensor) -> None:
        """out (a matrix of contiguous rows) = the piece with these bits, if doubtful[0] has not grown afterwards.

        Otherwise it is `KeyedNoise.piece` that has the samples: which bits come after a doubtful one depends on it.
        """
        if not self._noise.scale:
            out.zero_()
            return
        if out.stride(1) != 1 or out.numel() >= 2**31:
            raise ValueError(f"a piece needs contiguous rows and fewer than 2^31 samples, got {tuple(out.shape)}")
        if sigma not in self._numbers:
            self._numbers[sigma] = _numbers(check_sigma(sigma * self._noise.scale), self.device)
        _piece_kernel[(-(-out.numel() // _BLOCK),)](
            raw, self._table, self._numbers[sigma], out, doubtful, out.numel(), out.shape[1], out.stride(0),
            quantile.FIRST_CELL, quantile.CELL_BITS, quantile.DEGREE, _BLOCK,
            enable_fp_fusion=True,
        )  # fmt: skip


class Bits:
    """Random bits for `size` samples; threads of the host start to draw them at once."""

    def __init__(self, noise: Noise, size: int, device: str) -> None:
        self._device, self._scale, self._used = device, noise.scale, False
        self._raw = torch.empty(size, dtype=torch.int64, pin_memory=device.startswith("cuda"))
        self._threads = min(_MOST_THREADS, cores())
        self._pool = ThreadPoolExecutor(self._threads)
        streams: Iterator[Bytes] = noise.streams()
        self._streams = [next(streams) for _ in range(0, size, SEGMENT)] if noise.scale else []
        self._stop = False
        self._drawn = [self._pool.submit(self._draw, first) for first in range(self._threads)]

    def _part(self, number: int, length: int = SEGMENT) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        part: np.ndarray[tuple[int], np.dtype[np.uint64]] = self._raw.numpy().view("<u8")
        return part[number * length : (number + 1) * length]

    def _draw(self, first: int) -> None:
        for number in range(first, len(self._streams), self._threads):
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
        flat, blocks = total.view(-1), -(-total.numel() // _BLOCK)
        doubtful = torch.empty(blocks, dtype=torch.int32, device=self._device)
        _add_kernel[(blocks,)](
            self._raw.to(self._device, non_blocking=True), _polynomials(self._device), _numbers(sigma, self._device),
            flat, doubtful, total.numel(), quantile.FIRST_CELL, quantile.CELL_BITS, quantile.DEGREE, _BLOCK,
            enable_fp_fusion=True,
        )  # fmt: skip
        for number in doubtful.nonzero()[:, 0].tolist():
            raw = self._part(number, _BLOCK)
            samples = np.empty(len(raw), dtype=np.int64)
            settle(sigma, raw, samples, self._streams[number * _BLOCK // SEGMENT])
            flat[number * _BLOCK : number * _BLOCK + len(raw)] += torch.from_numpy(samples).to(self._device)
