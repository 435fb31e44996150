"""A curator whose rows are on a GPU. Noise is drawn on the host while the product runs.

Neighbours, sensitivity and ledger entry are the curator's: the charge is written first, then product and noise are
made side by side. If the product fails, nothing was released, and the charge is taken back.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from dpspectral.engines.gpu.algebra import GpuAlgebra
from dpspectral.engines.gpu.rows import GpuRows
from dpspectral.linalg.operators import Progress, silent
from dpspectral.privacy.ledger import Ledger
from dpspectral.queries import Product, Query
from dpspectral.source import Answer, Curator


class GpuAnswer(Answer):
    """A released product whose integers are a tensor: they stay on the GPU."""

    @property
    def values(self) -> Any:
        return self.integers.double() * self.scale  # type: ignore[attr-defined]


class GpuCurator(Curator):
    """Made by `as_source` for GpuRows."""

    def __init__(self, data: GpuRows, unit: Any, **options: Any) -> None:
        super().__init__(data, unit, **options)
        self.algebra = GpuAlgebra(data.device)

    def release(self, query: Query, mu: float, ledger: Ledger, what: str, progress: Progress = silent) -> Answer:
        if not isinstance(query, Product):
            return super().release(query, mu, ledger, what, progress)
        entry = query.entry(what, mu, self.noise.private)
        number = ledger.charge(entry)
        with ThreadPoolExecutor(1) as aside:
            noise = aside.submit(self.noise.rounded_gaussian, entry.sigma, query.shape)
            try:
                total = self.data.product(query)
            except BaseException:
                noise.result()
                ledger.cancel(number)
                raise
            total += torch.from_numpy(noise.result()).to(total.device)
        progress(1.0)
        return GpuAnswer(total, query.scale, entry.sigma)
