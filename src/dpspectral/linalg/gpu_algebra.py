"""QR, leading directions and Ritz pairs of `linalg/orthonormal.py` on a GPU; small matrices go to the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray

from dpspectral.core.blas import one_thread_if_small
from dpspectral.linalg import orthonormal
from dpspectral.linalg.gpu_iterate import GpuIterate
from dpspectral.linalg.orthonormal import Algebra
from dpspectral.privacy.iterate import Iterate

Reals = NDArray[np.float64]
_WELL_CONDITIONED = 1e5


class GpuAlgebra(Algebra):
    def __init__(self, device: str) -> None:
        self.device = device

    def start(self, name: str, n: int, p: int, rng: np.random.Generator, popularity: Reals | None) -> torch.Tensor:
        if name == "gaussian":
            seeded = torch.Generator(self.device).manual_seed(int(rng.integers(2**62)))
            return self.qr(torch.randn((n, p), dtype=torch.float64, device=self.device, generator=seeded))[0]
        X = self._flat(n, p, rng)
        return X if popularity is None else self.qr(X * torch.tensor(popularity, device=self.device)[:, None])[0]

    def _flat(self, n: int, p: int, rng: np.random.Generator) -> torch.Tensor:
        """`orthonormal.flat_start`, with the waves computed on the GPU."""
        if p > 2 * ((n - 1) // 2):  # needs a constant or alternating column: p is this large only if n is small
            return torch.tensor(orthonormal.flat_start(n, p, rng), device=self.device)
        pairs, odd = divmod(p, 2)
        frequencies = torch.tensor(rng.choice((n - 1) // 2, size=pairs, replace=False) + 1, device=self.device)
        j = torch.arange(n, device=self.device)
        angles = (j[:, None] * frequencies[None, :] % n).double() * (2 * np.pi / n)
        columns = [torch.cos(angles), torch.sin(angles)]
        X = torch.cat(columns, dim=1) * np.sqrt(2 / n)
        if odd:
            X = torch.cat([X, torch.full((n, 1), n**-0.5, dtype=torch.float64, device=self.device)], dim=1)
        return X * torch.tensor(rng.choice([-1.0, 1.0], size=n), device=self.device)[:, None]

    def publish(self, X: Any, bits: int) -> Iterate:
        return GpuIterate(X, bits)

    def agreed(self, integers: NDArray[np.signedinteger], bits: int) -> Iterate:
        return GpuIterate(torch.tensor(integers, device=self.device).double() * 2.0**-bits, bits)

    def qr(self, Y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        Q, first, sound = self._cholesky(Y)
        if sound:
            Q, second, sound = self._cholesky(Q)
            if sound:
                return Q, second @ first
        return self._householder(Y)

    @staticmethod
    def _cholesky(Y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, bool]:
        R, info = torch.linalg.cholesky_ex(Y.mT @ Y, upper=True)
        if int(info) or float(torch.linalg.cond(R)) > _WELL_CONDITIONED:
            return Y, R, False
        inverse = torch.linalg.solve_triangular(R, torch.eye(len(R), dtype=R.dtype, device=R.device), upper=True)
        return Y @ inverse, R, True

    @staticmethod
    def _householder(Y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        Q, R = torch.linalg.qr(Y)
        signs = torch.where(R.diagonal() < 0, -1.0, 1.0).to(Y.dtype)
        return Q * signs, R * signs[:, None]

    def divided(self, X: torch.Tensor, R: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve_triangular(R, X, upper=True, left=False)

    def leading(self, Y: torch.Tensor, rank: int, sigma: float) -> tuple[Reals, Reals]:
        n, p = Y.shape
        Q, R = self.qr(Y)
        with one_thread_if_small(p, p):
            U, s, _ = scipy.linalg.svd(self.host(R), check_finite=False)
        return self.host(self._signed(Q @ self._here(U[:, :rank]))), orthonormal.shrunk(s[:rank], n, p, sigma)

    def ritz(self, X: Iterate, Y: torch.Tensor, rank: int, sigma: float) -> tuple[Reals, Reals]:
        n, p = Y.shape
        assert isinstance(X, GpuIterate)
        if p > n - p:  # small matrices
            return orthonormal.ritz(X.values, self.host(Y), rank, sigma)
        basis = self.qr(X.real)[0]
        T = basis.mT @ Y
        outside = Y - basis @ T
        Z = self.qr(outside)[0]
        Z = self.qr(Z - basis @ (basis.mT @ Z))[0]
        S, T = self.host(Z.mT @ outside), self.host((T + T.mT) / 2)
        with one_thread_if_small(2 * p, 2 * p):
            values, weights = scipy.linalg.eigh(np.block([[T, S.T], [S, np.zeros((p, p))]]), check_finite=False)
        values, weights = values[::-1][:rank], np.ascontiguousarray(weights[:, ::-1][:, :rank])
        vectors = basis @ self._here(weights[:p]) + Z @ self._here(weights[p:])
        return self.host(self._signed(vectors)), orthonormal.lowered(values, n, p, sigma)

    def host(self, matrix: Any) -> Reals:
        if not isinstance(matrix, torch.Tensor):
            return np.asarray(matrix)
        if not matrix.is_cuda:
            return np.asarray(matrix)
        # Through pinned memory, which torch reuses from the noise: a tenth of the time of `matrix.cpu()`.
        pinned = torch.empty(matrix.shape, dtype=matrix.dtype, pin_memory=True)
        array: Reals = pinned.copy_(matrix).clone().numpy()
        return array

    def smallest(self, R: torch.Tensor) -> float:
        return super().smallest(self.host(R))

    def _here(self, array: Reals) -> torch.Tensor:
        return torch.tensor(array, device=self.device)

    @staticmethod
    def _signed(vectors: torch.Tensor) -> torch.Tensor:
        largest = vectors.abs().argmax(dim=0)
        signs = torch.where(vectors.gather(0, largest[None, :])[0] < 0, -1.0, 1.0).to(vectors.dtype)
        return vectors * signs
