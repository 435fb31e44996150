"""The released item-item matrix M = A + N on a GPU: counted, noised, formed and multiplied there.

Neighbours, sensitivity, noise and ledger entry: `queries.ItemMatrix`; proof page: docs/proofs/dense.md. A band of rows
at a time lies on the device as 64-bit integers: first its noise, tile by tile from the same key as on the host
(`SymmetricNoise` numbers the tiles, `DevicePieces` makes the host's bits into them), then the pair counts are added to
it. What comes out is M, the integers of the CPU for the same rows and key; it is rounded to float32 and kept, or
multiplied at once. Nothing of size n² is on the host. Memory is taken before the noise: where there is too little, the
charge is taken back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dpspectral.core.arrays import host
from dpspectral.linalg.gpu_pairs import GpuPairCounts
from dpspectral.linalg.krylov import Product
from dpspectral.linalg.operators import Progress, silent
from dpspectral.privacy.gpu_noise import DevicePieces
from dpspectral.privacy.noise import KeyedNoise, Noise
from dpspectral.release.item_matrix import (
    TILE,
    BlockedMatrix,
    ItemProducts,
    ReleasedMatrix,
    SymmetricNoise,
)


class GpuNoise(SymmetricNoise):
    """N on a GPU: the samples of `SymmetricNoise` with the same key."""

    def __init__(self, room: torch.Tensor, sigma: float, noise: KeyedNoise, *, tile: int = TILE) -> None:
        super().__init__(room.shape[1], sigma, noise, tile=tile)
        self._band = room
        self._pieces = DevicePieces(noise, str(room.device))

    def _room(self, height: int, width: int) -> Any:
        return self._band[:height, :width]

    def _draw(self, start: int, stop: int, band: Any) -> None:
        numbers, sigma = self._wanted(start, stop, band.shape[1]), self.sigma / math.sqrt(2)
        doubtful = torch.zeros(len(numbers), dtype=torch.int32, device=band.device)
        shapes = [self._shape(number) for number in numbers]
        diagonal = torch.empty((1, shapes[0][0]), dtype=torch.int64, device=band.device)
        (raw,) = self._pieces.bits([(2 * numbers[0] + 1, shapes[0][0])])  # the first tile is that of the diagonal
        self._pieces.convert(self.sigma, raw, diagonal, doubtful[:1])
        bits = self._pieces.bits((2 * number, math.prod(shape)) for number, shape in zip(numbers, shapes, strict=True))
        for place, raw in enumerate(bits):
            part, shape = self._part(numbers[place], start, band), shapes[place]
            whole = tuple(part.shape) == shape  # samples stand in rows of the whole tile
            tile = part if whole else torch.empty(shape, dtype=torch.int64, device=band.device)
            self._pieces.convert(sigma, raw, tile, doubtful[place : place + 1])
            if not whole:
                part.copy_(tile[: len(part), : part.shape[1]])
        square = self._part(numbers[0], start, band)
        square.triu_(1)
        square.diagonal().copy_(diagonal[0, : len(square)])
        for place in doubtful.nonzero()[:, 0].tolist():  # rare: the host draws the tile from the same bits
            part = self._part(numbers[place], start, band)
            part[:] = torch.from_numpy(self._block(numbers[place])[: len(part), : part.shape[1]]).to(band.device)

    def _shape(self, number: int) -> tuple[int, int]:
        height, width = (self._slices[k].stop - self._slices[k].start for k in self._tiles[number])
        return height, width

    def _part(self, number: int, start: int, band: torch.Tensor) -> torch.Tensor:
        """The place of a tile in a band, which may hold the first columns and rows of it only."""
        rows, columns = (self._slices[k] for k in self._tiles[number])
        return band[rows.start - start : rows.stop - start, columns]


def _rounded(band: torch.Tensor, rows: slice) -> torch.Tensor:
    """What is on and right of the diagonal block of a band, whole, in single precision."""
    single = band[:, rows.start :].to(torch.float32)
    square = single[:, : len(band)]
    square.copy_(square.triu() + square.triu(1).T)
    return single


class GpuFormedMatrix(ReleasedMatrix):
    """M on the device, rounded to single precision after it was released, in the given order of items."""

    storage = "stored"

    def __init__(self, matrix: torch.Tensor, scale: float, sigma: float) -> None:
        self.n, self.scale, self.noise_std = len(matrix), scale, sigma * scale / math.sqrt(2)
        self._matrix = matrix

    def leading(self, size: int) -> Product:
        matrix = self._matrix[:size, :size]
        return lambda V: matrix @ V.to(torch.float32)

    def diagonal(self, size: int) -> NDArray[np.float64]:
        return host(self._matrix.diagonal()[:size].contiguous()).astype(np.float64) * self.scale


class GpuBlockedMatrix(BlockedMatrix):
    """M, never whole: bands are formed on the device for every product."""

    def leading(self, size: int) -> Product:
        def product(V: torch.Tensor) -> torch.Tensor:
            V = V.to(torch.float32)
            Y = torch.zeros_like(V)
            for rows, band in self._noise.bands(self._exact, size):
                single = _rounded(band, rows)
                Y[rows] += single @ V[rows.start :]
                Y[rows.stop :] += single[:, len(band) :].T @ V[rows]  # what lies opposite
            return Y

        return product


class _Prepared(NamedTuple):
    """The exact sum, not added up yet, and room on the device for what will be released."""

    exact: GpuPairCounts
    room: torch.Tensor
    matrix: torch.Tensor | None


@dataclass(frozen=True)
class GpuItemProducts(ItemProducts):
    """The item-item matrix of rows on a GPU: formed there (`stored`), or as products with it."""

    def evaluate(self, rows: Any, progress: Progress = silent, **options: Any) -> Any:
        n, device = self.n, rows.device
        matrix = torch.empty((n, n), dtype=torch.float32, device=device) if self.stored else None
        room = torch.empty((min(TILE, n), n), dtype=torch.int64, device=device)
        exact = rows.gram(self.rounding.table).pair_counts(self.order)
        if room.is_cuda:
            torch.cuda.synchronize(room.device)  # it may fail until here
        return _Prepared(exact, room, matrix)

    def noisy(self, exact: Any, noise: Noise, sigma: float) -> Any:
        own, scale = GpuNoise(exact.room, sigma, noise.keyed()), self.rounding.scale
        if exact.matrix is None:
            return GpuBlockedMatrix(exact.exact, own, scale, self.order)
        self._form(exact, own)
        return GpuFormedMatrix(exact.matrix, scale, sigma)

    def _form(self, prepared: _Prepared, noise: GpuNoise) -> None:
        """A + N, added up in integers and then rounded."""
        matrix = prepared.matrix
        assert matrix is not None
        for rows, band in noise.bands(prepared.exact):
            single = _rounded(band, rows)
            matrix[rows, rows.start :] = single
            matrix[rows.stop :, rows] = single[:, len(band) :].T
            self.progress(1 - (1 - rows.stop / self.n) ** 2)
