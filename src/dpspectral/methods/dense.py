"""The item-item matrix released once: A plus symmetric noise, then as many exact eigenvectors as one likes.

Neighbours: as the unit says. Sensitivity: Frobenius norm of the change of the integer matrix, a function of the public
weight table. Noise: one integer per i ≤ j, of standard deviation σ on the diagonal and σ/√2 off it, so that an update C
counts Σ_i C_ii²/σ² + Σ_{i<j} C_ij²/(σ²/2) = ‖C‖_F²/σ². Ledger: one entry, after those of the private catalogue.
There is no √L and no convergence error. The released matrix M = A + N is formed as integers where it fits, and all that
follows is post-processing; where it does not, the eigensolver multiplies integer blocks exactly, M·V = A·V + N·V, with
N regenerated from a key for every product. M is the same integers on both ways. Proof page: docs/proofs/dense.md.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.core.blas import one_thread
from dpspectral.core.resources import check_memory
from dpspectral.linalg import orthonormal
from dpspectral.linalg.krylov import leading_eigenpairs
from dpspectral.linalg.operators import silent
from dpspectral.methods.call import Basis, Call, Progress, Seed
from dpspectral.methods.catalogue import Catalogue, PrivateCatalogue, choose
from dpspectral.methods.result import Result
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.entries import check_sigma
from dpspectral.privacy.ledger import Account, Run
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Interaction, PatternUnit
from dpspectral.release.item_matrix import ReleasedMatrix, grid_bits

Reals = NDArray[np.float64]

MAX_BYTES = 2 * 2**30
_FORMED, _SUMMED = 4, 20  # bytes per entry at the peak: in single precision, or as a sum over parts that is unpacked
_SHRINK = 0.84  # ratio of neighbouring catalogue sizes that are compared after the release
_ENOUGH, _USER_ENOUGH = 0.999, 0.98  # of the best score: then the larger catalogue is taken
_ROUGH, _FINE = 2e-4, 1e-4  # residuals while comparing, and in the end
VARIANCE_FACTOR = 0.5  # off-diagonal noise variance in units of Δ²/μ²


def dense_release(
    data: Any,
    rank: int,
    *,
    unit: PatternUnit,
    budget: Budget,
    catalogue: PrivateCatalogue | None = None,
    ledger: Account | None = None,
    users: int | None = None,
    random_state: Seed | None = None,
    noise: NotPrivate | None = None,
    threads: int | None = None,
    storage: str = "auto",
    max_bytes: int = MAX_BYTES,
    progress: Progress | None = None,
) -> Result:
    """Leading eigenvectors of A = Σ_u w(d_u) r_u r_uᵀ from one private release of A.

    Parameters
    ----------
    data : scipy sparse matrix or array of 0/1, or a source
        Users are rows; the columns are the public catalogue. Parties sum their matrices; the sum is then known.
    rank : int
        Number of components to return.
    unit : Interaction or User
        `Interaction()` without a floor needs a catalogue, which chooses it.
    budget : Budget
        Spent at once.
    catalogue : PrivateCatalogue, optional
        Choose the items first, with a share of the budget. Rows of the components outside are zero.
    random_state : int or numpy Generator, optional
        Seed of the eigensolver's starting block (public).
    storage : "auto", "stored" or "lazy"
        Form the released matrix (4n² bytes for n items), or make do with products with it, for which the noise is
        regenerated from a key that exists in memory only: slower, little memory, the same released integers. "auto"
        forms what fits `max_bytes`. An interrupted run has been charged and cannot be resumed.
    max_bytes : int
        A catalogue is cut to what fits this with 8 bytes per entry.
    ledger : Ledger, optional
        A total that several calls share. Without one, this call is its own budget.
    users : int, optional
        Declared number of users, as in `power_method`.
    noise : NotPrivate, optional
        Reproducible noise for tests and experiments; the result then says `private = False`.
    threads : int, optional
        Threads of the sparse product; all cores if not given. The result does not depend on it.
    progress : callable(text, fraction), optional
        Called while it works.
    """
    if not isinstance(unit, PatternUnit):
        raise TypeError(f"unit must be Interaction(...) or User(...), got {unit!r}")
    if isinstance(catalogue, str):  # "auto" is for those who choose
        raise TypeError(f"catalogue must be None or PrivateCatalogue(...), got {catalogue!r}")
    checks.choice("storage", storage, ("auto", "stored", "lazy"))
    checks.integer("max_bytes", max_bytes, low=1)
    call = Call(
        data, rank, unit=unit, budget=budget, catalogue=catalogue, ledger=ledger, users=users,
        random_state=random_state, noise=noise, threads=threads, progress=progress,
    )  # fmt: skip
    check_matrix_fits(call, storage, max_bytes)
    with call.reserve() as run:
        basis = dense_basis(call, run, storage, max_bytes)
    return call.result(run, basis)


def check_matrix_fits(call: Call, storage: str = "auto", max_bytes: int = MAX_BYTES) -> None:
    """Refuse, before anything is charged, a matrix of as many items as may be kept that does not fit, or cannot be.

    How many will be kept is known only after the first release.
    """
    source, catalogue, mu = call.source, call.catalogue, call.mu
    asked = source.n if catalogue is None else catalogue.items or 0
    formed = storage == "stored" or not source.products
    if formed and 8 * asked**2 > max_bytes:
        raise MemoryError(
            f"the matrix of {asked} items takes {8 * asked**2 / 2**30:.1f} GiB, more than max_bytes={max_bytes}; "
            'raise max_bytes, pass catalogue=PrivateCatalogue(), or storage="lazy"'
        )
    size = asked
    if catalogue is not None:
        largest = source.n if storage == "lazy" else _largest(call, max_bytes)
        size = catalogue.items or min(source.n, largest)
    if formed or (storage == "auto" and 8 * size**2 <= max_bytes):
        basis, band = min(size, 24 * (call.rank + 8)), min(size, 1024)  # of the solver, and of rows that are summed
        check_memory(
            (_FORMED if source.products else _SUMMED) * size**2 + 8 * size * (band + 2 * basis),
            f"the dense release of up to {size} items",
            'Pass a smaller max_bytes (--max-bytes), which keeps fewer items; or method="power" (--method power); or '
            'dense_release(..., storage="lazy")',
        )
    if catalogue is not None:  # noise that cannot be drawn is refused before the catalogue is paid for
        assert isinstance(source.unit, PatternUnit)
        trial = source.unit.with_floor(source.unit.floor or 1).dense_rounding(source.n, source.noise_shares)
        grid_bits(source.n, check_sigma(trial.sensitivity / (mu * math.sqrt(1 - catalogue.share))))
    if source.limited:
        source.expects(1 if catalogue is None else 1 + catalogue.releases(source.unit))


def _largest(call: Call, max_bytes: int) -> int:
    """The most items whose matrix may be stored; the components must exist."""
    return max(math.isqrt(max_bytes // 8), call.rank)


def dense_basis(call: Call, run: Run, storage: str = "auto", max_bytes: int = MAX_BYTES) -> Basis:
    """Spend exactly the call's μ on (a catalogue and) the item-item matrix."""
    source, mu, catalogue = call.source, call.mu, None
    if call.catalogue is not None:
        selection = choose(
            source, call.catalogue, call.rank, mu=mu, ledger=run, method="dense", variance_factor=VARIANCE_FACTOR,
            largest=None if storage == "lazy" else _largest(call, max_bytes), users=call.users,
        )  # fmt: skip
        source, catalogue, mu = selection.source, selection.catalogue, selection.mu
    order = np.arange(source.n)  # most popular first, where that is known
    if catalogue is not None:
        order = np.argsort(-catalogue.popularity[catalogue.chosen], kind="stable")
    matrix = source.item_matrix(mu, run, storage=storage, max_bytes=max_bytes, order=order, progress=call.progress)
    automatic = call.catalogue is not None and call.catalogue.items is None
    sizes = catalogue_sizes(matrix.n, call.rank) if automatic else [matrix.n]
    enough = _ENOUGH if isinstance(source.unit, Interaction) else _USER_ENOUGH
    eigenpairs = _Eigenpairs(matrix, call, order)
    components, eigenvalues, kept = eigenpairs.best(sizes, enough)
    if source.replicated:
        components, eigenvalues, kept = source.agree(components, eigenvalues, kept)
    if catalogue is not None:
        catalogue = Catalogue(catalogue.popularity, catalogue.chosen[kept], catalogue.noise_std, catalogue.floor)
        components = catalogue.spread(components)
    facts = {"method": "dense", "noise_std": matrix.noise_std, "storage": matrix.storage, "parties": source.holders}
    return Basis(components, eigenvalues, source.unit, facts, catalogue)


def catalogue_sizes(n: int, rank: int) -> list[int]:
    """Catalogue sizes to compare after the release: n, 0.84n, … down to an eighth, but not below twice the rank."""
    count = 1 + int(math.log(1 / 8) / math.log(_SHRINK))
    sizes = {max(round(n * _SHRINK**j), min(2 * rank, n)) for j in range(count)}
    return sorted(sizes, reverse=True)


class _Eigenpairs:
    """Leading eigenpairs of the released matrix, on all of its items or on the most popular ones."""

    def __init__(self, matrix: ReleasedMatrix, call: Call, order: NDArray[np.int64]) -> None:
        self.matrix, self.rank, self.order, self.tell = matrix, call.rank, order, call.progress
        rng = np.random.default_rng(call.random_state)
        self.start = rng.standard_normal((matrix.n, min(matrix.n, call.rank)))[order]

    def best(self, sizes: list[int], enough: float) -> tuple[Reals, Reals, NDArray[np.int64]]:
        """Eigenpairs on the catalogue size that keeps most signal, and the positions of its items.

        The score of a size is Σ_k λ_k c_k²: debiased eigenvalues times the part of each eigenvector that is signal,
        c_k² = 1 − mσ²/λ_k² (the spiked matrix model). It is post-processing. Sizes go down until the score fell twice.
        """
        if len(sizes) > 1:
            scores: list[float] = []
            for size in sizes:
                passes = 8 if scores else 14  # all but the first start from their predecessor's vectors
                values = self.solve(size, _ROUGH, passes, f"comparing catalogues: {size} items")[1]
                values = values[values > 0]
                scores.append(float(np.sum(values - size * self.matrix.noise_std**2 / values)))
                if len(values) == self.rank and scores[-1] >= enough * float(values.sum()):
                    break  # so little is noise that no smaller size, with eigenvalues no larger, could be chosen
                if len(scores) > 2 and max(scores[-2:]) < max(scores):
                    break
            sizes = [next(size for size, score in zip(sizes, scores, strict=False) if score >= enough * max(scores))]
        vectors, eigenvalues = self.solve(sizes[0], _FINE, 24, "eigenvectors")
        keep = self.order[: sizes[0]]
        increasing = np.argsort(keep)
        return orthonormal.signed(vectors[increasing]), eigenvalues, keep[increasing]

    def solve(self, size: int, tolerance: float, passes: int, text: str) -> tuple[Reals, Reals]:
        matrix, tell = self.matrix, self.tell
        edge = 2 * math.sqrt(size) * matrix.noise_std / matrix.scale
        with one_thread():  # products have threads of their own
            values, vectors = leading_eigenpairs(
                matrix.leading(size),
                size,
                self.rank,
                start=self.start[:size],
                edge=1.05 * edge,
                tolerance=tolerance,
                passes=passes,
                progress=silent if tell is None else lambda fraction: tell(text, fraction),
            )
        self.start[:size] = vectors  # the next size, or the last word, starts from here
        return vectors, _debiased(values * matrix.scale, size, matrix.noise_std)


def _debiased(values: Reals, n: int, sigma: float) -> Reals:
    """Noise lifts an eigenvalue λ to λ + nσ²/λ; values inside the noise (below 2√n σ) become 0."""
    edge = 4 * n * sigma**2
    inside = np.sqrt(np.maximum(values**2 - edge, 0.0))
    debiased: Reals = np.where((values > 0) & (values**2 > edge), (values + inside) / 2, 0.0)
    return debiased
