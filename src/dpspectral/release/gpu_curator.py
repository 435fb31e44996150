"""A curator whose rows are on a GPU. The item-item matrix is made there (`gpu_item_matrix.py`); for a product the host
draws random bits while it runs.

Neighbours, sensitivity and ledger entry are the curator's: the sum is charged, computed, and noise is added on the GPU;
nothing of it is seen before. If the product fails, the charge is taken back.
"""

from __future__ import annotations

from typing import Any

import torch

from dpspectral.core.resources import check_memory
from dpspectral.data.gpu_rows import GpuRows
from dpspectral.linalg.operators import Progress, silent
from dpspectral.privacy.gpu_noise import Bits
from dpspectral.privacy.ledger import Account
from dpspectral.privacy.units import PatternUnit
from dpspectral.release.answer import Answer, charged
from dpspectral.release.gpu_item_matrix import GpuItemProducts
from dpspectral.release.queries import Product, Query
from dpspectral.release.source import Curator


class GpuAnswer(Answer):
    """A released product whose integers are a tensor: they stay on the GPU."""

    @property
    def values(self) -> Any:
        return self.integers.double() * self.scale  # type: ignore[attr-defined]


class GpuCurator(Curator):
    """Made by `as_source` for GpuRows."""

    clips = False

    def __init__(self, data: GpuRows, unit: Any, **options: Any) -> None:
        super().__init__(data, unit, **options)
        self.place, self.products, self.lazy = data.here, GpuItemProducts, True

    def check_memory(self, needed: int, what: str, remedy: str) -> None:
        rows: Any = self.data
        free = rows.free_memory()  # after the rows were copied
        if free is None:
            super().check_memory(needed, what, remedy)
        else:
            check_memory(needed + rows.working_bytes, what, remedy, free=free, where=f"memory on {rows.device}")

    def release(self, query: Query, mu: float, ledger: Account, what: str, progress: Progress = silent) -> Any:
        if not isinstance(query, Product):
            return super().release(query, mu, ledger, what, progress)
        entry = query.entry(what, mu, self.noise.private)
        with charged(ledger, entry):
            assert isinstance(query.unit, PatternUnit)
            rows: Any = self.data
            gram = rows.gram(query.unit.table(query.X))
            total = gram.tensor_product(query.X, query.rounding.shift)  # begun, not finished
            bits = Bits(self.noise, total.numel(), rows.device)
            try:
                if total.is_cuda:
                    torch.cuda.synchronize(total.device)  # it may fail until here
            except BaseException:
                bits.discard()
                raise
        try:
            bits.add(entry.sigma, total)
        finally:
            bits.discard()
        progress(1.0)
        return GpuAnswer(total, query.scale, entry.sigma)
