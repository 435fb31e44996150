"""The item-item matrix released once: A plus symmetric noise, then as many exact eigenvectors as one likes.

Neighbours: as the unit says. Sensitivity: Frobenius norm of the change of the integer matrix, a function of the public
weight table. Noise: one integer per i ≤ j, of standard deviation σ on the diagonal and σ/√2 off it, so that an update C
counts Σ_i C_ii²/σ² + Σ_{i<j} C_ij²/(σ²/2) = ‖C‖_F²/σ². Ledger: one entry, after those of the private catalogue.
There is no √L and no convergence error. The released matrix M = A + N is formed as integers, whole where it fits, else
band by band for every product, with N regenerated from a key; all that follows is post-processing. M is the same
integers on both ways. Proof page: docs/proofs/dense.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.core.arrays import Array, host, namespace
from dpspectral.linalg import orthonormal
from dpspectral.linalg.krylov import leading_eigenpairs
from dpspectral.methods.above_noise import Spectrum, above_noise
from dpspectral.methods.call import Basis, Call, Progress, Seed
from dpspectral.methods.catalogue import Catalogue, PrivateCatalogue, choose
from dpspectral.methods.result import Result
from dpspectral.methods.stages import Stages
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.entries import check_sigma
from dpspectral.privacy.ledger import Account, Run
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Interaction, PatternUnit, Unit
from dpspectral.release.item_matrix import FORMED_BYTES, TILE, ReleasedMatrix, band_bytes

Reals = NDArray[np.float64]

MAX_BYTES = 2 * 2**30
_SUMMED = 20  # bytes per entry at the peak, as a sum over parts that is unpacked
_SHRINK = 0.84  # ratio of neighbouring catalogue sizes that are compared after the release
_ENOUGH, _USER_ENOUGH = 0.999, 0.98  # of the best score: then the larger catalogue is taken
# Residuals while comparing and in the end, beside the largest value and the noise. With 2e-3 the score of a large size
# is 1% too low, ten times what sizes may differ by.
_ROUGH, _FINE = (5e-4, 0.0), (1e-4, 0.02)
_PASSES = 24  # most products of a solution
_COMPARED, _FORMING = 8.0, 400.0  # what to expect: products that comparing takes, multiplications an entry is worth
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
        forms what fits `max_bytes`. Rows on disk or on a cluster, and those of parties, are always formed. An
        interrupted run has been charged and cannot be resumed.
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
    formed = storage == "stored" or not source.lazy
    if formed and 8 * asked**2 > max_bytes:
        raise MemoryError(
            f"the matrix of {asked} items takes {8 * asked**2 / 2**30:.1f} GiB, more than max_bytes={max_bytes}; "
            'raise max_bytes, pass catalogue=PrivateCatalogue(), or storage="lazy"'
        )
    size = asked
    if catalogue is not None:
        largest = source.n if storage == "lazy" else _largest(call, max_bytes)
        size = catalogue.items or min(source.n, largest)
    if formed or (storage == "auto" and FORMED_BYTES * size**2 <= max_bytes):
        basis = 4 * size * min(size, 24 * (call.rank + 8))  # of the solver
        bands = 8 * size * min(size, TILE) if source.lazy else 3 * band_bytes(size, max_bytes)
        source.check_memory(
            basis + (_SUMMED * size**2 if source.products is None else FORMED_BYTES * size**2 + bands),
            f"the dense release of up to {size} items",
            'Pass a smaller max_bytes (--max-bytes), which keeps fewer items; or method="power" (--method power); or '
            'dense_release(..., storage="lazy")',
        )
    if catalogue is not None:  # noise that cannot be drawn is refused before the catalogue is paid for
        assert isinstance(source.unit, PatternUnit)
        trial = source.unit.with_floor(source.unit.floor or 1).dense_rounding(source.n, source.noise_shares)
        check_sigma(trial.sensitivity / (mu * math.sqrt(1 - catalogue.share)))
    if source.limited:
        source.expects(call.extra_releases + (1 if catalogue is None else 1 + catalogue.releases(source.unit)))


def _largest(call: Call, max_bytes: int) -> int:
    """The most items whose matrix may be stored; the components must exist."""
    return max(math.isqrt(max_bytes // 8), call.rank)


def dense_basis(
    call: Call, run: Run, storage: str = "auto", max_bytes: int = MAX_BYTES, spectrum: bool = False
) -> Basis:
    """Spend exactly the call's μ on (a catalogue and) the item-item matrix. `spectrum`: keep all above the noise."""
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
    automatic = call.catalogue is not None and call.catalogue.items is None
    sizes = catalogue_sizes(source.n, call.rank) if automatic else [source.n]
    stages = Stages(call.progress, costs(sizes, call.rank, source.forms(storage, max_bytes), spectrum))
    matrix = source.item_matrix(
        mu, run, storage=storage, max_bytes=max_bytes, order=order, progress=stages.telling("matrix")
    )
    enough = enough_for(source.unit)
    start = np.random.default_rng(call.random_state).standard_normal((matrix.n, min(matrix.n, call.rank)))[order]
    eigenpairs = Eigenpairs(matrix, call.rank, order, stages, source.place(start.astype(np.float32)))
    components, eigenvalues, kept = eigenpairs.best(sizes, enough)
    more = eigenpairs.spectrum(len(kept)) if spectrum else None
    if source.replicated:
        components, eigenvalues, kept = source.agree(components, eigenvalues, kept)
        if more is not None and more.diagonal is not None:
            vectors, values, diagonal = source.agree(more.vectors, more.values, more.diagonal)
            more = Spectrum(vectors, values, diagonal, more.edge)
    if catalogue is not None:
        catalogue = Catalogue(catalogue.popularity, catalogue.chosen[kept], catalogue.noise_std, catalogue.floor)
        components = catalogue.spread(components)
    facts = {"method": "dense", "noise_std": matrix.noise_std, "storage": matrix.storage, "parties": source.holders}
    return Basis(components, eigenvalues, source.unit, facts, catalogue, more)


def enough_for(unit: Unit) -> float:
    """Which part of the best score suffices for a larger catalogue."""
    return _ENOUGH if isinstance(unit, Interaction) else _USER_ENOUGH


def costs(sizes: list[int], rank: int, formed: bool, spectrum: bool) -> dict[str, float]:
    """What forming the matrix, comparing sizes and the final solutions take, in multiplications."""
    n, width = sizes[0], rank + 8
    each = n**2 * (width if formed else width + _FORMING)  # a matrix that is not formed is made for every product
    return {
        "matrix": _FORMING * n**2 if formed else 0.0,
        "sizes": 0.0 if len(sizes) == 1 else _COMPARED * each,
        "vectors": (_PASSES if len(sizes) == 1 else _PASSES / 2) * each,
        "spectrum": _PASSES * each if spectrum else 0.0,
    }


def catalogue_sizes(n: int, rank: int) -> list[int]:
    """Catalogue sizes to compare after the release: n, 0.84n, … down to an eighth, but not below twice the rank."""
    count = 1 + int(math.log(1 / 8) / math.log(_SHRINK))
    sizes = {max(round(n * _SHRINK**j), min(2 * rank, n)) for j in range(count)}
    return sorted(sizes, reverse=True)


class Eigenpairs:
    """Leading eigenpairs of the released matrix, on all of its items or on the most popular ones.

    `order` are the items of its rows, `start` seeds the solver.
    """

    def __init__(
        self, matrix: ReleasedMatrix, rank: int, order: NDArray[np.int64], stages: Stages, start: Array
    ) -> None:
        self.matrix, self.rank, self.order, self.stages = matrix, rank, order, stages
        self.compared = 0.0  # products taken so far, in units of one with all items
        self.start = start
        self.warm = False

    def best(self, sizes: list[int], enough: float) -> tuple[Reals, Reals, NDArray[np.int64]]:
        """Eigenpairs on the catalogue size that keeps most signal, and the positions of its items.

        The score of a size is Σ_k λ_k c_k²: debiased eigenvalues times the part of each eigenvector that is signal,
        c_k² = 1 − mσ²/λ_k² (the spiked matrix model). It is post-processing. The largest size is taken whose score is
        nearly the best.
        """
        size = sizes[0] if len(sizes) == 1 else self._best_size(sizes, enough)
        tell = self.stages.telling("vectors")
        vectors, eigenvalues = self.solve(
            size, False, _PASSES, lambda fraction: None if tell is None else tell("eigenvectors", fraction)
        )
        keep = self.order[:size]
        increasing = np.argsort(keep)
        return orthonormal.signed(host(vectors)[increasing]), eigenvalues, keep[increasing]

    def spectrum(self, size: int) -> Spectrum:
        """All that stands above the noise among the most popular items, in their own order."""
        tell = self.stages.telling("spectrum")
        found = above_noise(
            self.matrix, size, self.start,
            lambda part: None if tell is None else tell("eigenvectors above the noise", part),
        )  # fmt: skip
        increasing = np.argsort(self.order[:size])
        assert found.diagonal is not None
        return found._replace(vectors=found.vectors[increasing], diagonal=found.diagonal[increasing])

    def _best_size(self, sizes: list[int], enough: float) -> int:
        """The largest size whose score is nearly the best.

        Every third size is tried, the smallest first, each from its predecessor's vectors, until the score is too low:
        small ones take little time. Then its neighbours: smaller ones while they are better, and those up to the next
        that was tried.
        """
        rising = sorted(sizes)
        scores: dict[int, float] = {}

        def score(place: int) -> float:
            if place not in scores:
                scores[place] = self._score(rising[place])
            return scores[place]

        def good() -> list[int]:
            return [place for place in scores if scores[place] >= enough * max(scores.values())]

        for place in sorted({0, *range(len(rising) - 1, 0, -3)}):
            score(place)
            if place not in good():
                break
        best = max(scores, key=lambda place: scores[place])
        while best > 0 and score(best - 1) > scores[best]:
            best -= 1
        for place in range(max(good()) + 1, max(scores)):
            score(place)
        return rising[max(good())]

    def _score(self, size: int) -> float:
        tell, passes, before = self.stages.telling("sizes"), 8 if self.warm else 14, self.compared

        def progress(fraction: float) -> None:
            self.compared = before + fraction * passes * (size / self.matrix.n) ** 2
            if tell is not None:
                tell(f"comparing catalogues: {size} items", self.compared / _COMPARED)

        values = self.solve(size, True, passes, progress)[1]
        values = values[values > 0]
        return float(np.sum(values - size * self.matrix.noise_std**2 / values))

    def solve(self, size: int, rough: bool, passes: int, progress: Callable[[float], None]) -> tuple[Array, Reals]:
        matrix = self.matrix
        tolerance, beside_noise = _ROUGH if rough else _FINE
        edge = 2 * math.sqrt(size) * matrix.noise_std / matrix.scale
        values, vectors = leading_eigenpairs(
            matrix.leading(size),
            size,
            self.rank,
            start=self.start,
            edge=1.05 * edge,
            tolerance=tolerance,
            beside_noise=beside_noise,
            passes=passes,
            warm=rough and self.warm,
            progress=progress,
        )
        xp = namespace(vectors)
        self.start, self.warm = xp.astype(vectors, xp.float32), True  # the next size, or the last word, starts here
        return vectors[:, : self.rank], orthonormal.debiased(values * matrix.scale, size, matrix.noise_std)
