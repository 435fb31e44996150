"""The item-item matrix released once: A plus symmetric noise, then as many exact eigenvectors as one likes.

Neighbours: as the unit says. Sensitivity: Frobenius norm of the change of the integer matrix, a function of the public
weight table. Noise: one integer per i ≤ j, of standard deviation σ on the diagonal and σ/√2 off it, so that an update C
counts Σ_i C_ii²/σ² + Σ_{i<j} C_ij²/(σ²/2) = ‖C‖_F²/σ². Ledger: one entry, after those of the private catalogue.
There is no √L and no convergence error. The released matrix M = A + N is never formed: the eigensolver multiplies
integer blocks exactly, M·V = A·V + N·V, with N kept in memory or regenerated from a key for every product; both give
the same integers, so all that is computed is a function of M. Proof page: docs/proofs/dense.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.core.resources import check_memory
from dpspectral.linalg import orthonormal
from dpspectral.linalg.krylov import leading_eigenpairs
from dpspectral.methods.call import call_facts
from dpspectral.methods.catalogue import Catalogue, PrivateCatalogue, choose
from dpspectral.methods.power import catalogue_releases, check_catalogue, warn_large_delta
from dpspectral.methods.result import Facts, Result
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Account, Run, opened
from dpspectral.privacy.noise import NotPrivate, check_sigma
from dpspectral.privacy.units import Interaction, PatternUnit
from dpspectral.release.item_matrix import ReleasedMatrix, grid_bits
from dpspectral.release.source import Source, as_source

Reals = NDArray[np.float64]
Progress = Callable[[str, float], None]  # what is being done, finished fraction

MAX_BYTES = 2 * 2**30
_PEAK = 3.2  # memory while sizes are compared, in units of the matrix of the largest one
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
    random_state: int | None = None,
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
    random_state : int, optional
        Seed of the eigensolver's starting block (public).
    storage : "auto", "stored" or "lazy"
        Keep the noise matrix (8n² bytes for n items), or regenerate it for every product from a key that exists in
        memory only: slower, little memory, the same result. "auto" stores what fits `max_bytes`. An interrupted run
        has been charged and cannot be resumed.
    max_bytes : int
        A catalogue is cut to what can be stored within this.
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
    book = opened(budget, ledger)
    if not isinstance(unit, PatternUnit):
        raise TypeError(f"unit must be Interaction(...) or User(...), got {unit!r}")
    checks.choice("storage", storage, ("auto", "stored", "lazy"))
    checks.optional_integer("random_state", random_state, low=0)
    checks.optional_integer("threads", threads, low=1, high=1024)
    checks.optional_integer("users", users, low=1)
    max_bytes = checks.integer("max_bytes", max_bytes, low=1)
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function of (text, fraction), got {progress!r}")
    source = as_source(data, unit, noise, threads)
    check_catalogue(catalogue, source)
    rank = checks.integer("rank", rank, low=1, high=source.n)
    asked = source.n if catalogue is None else catalogue.items or 0
    if (storage == "stored" or not source.products) and 8 * asked**2 > max_bytes:
        raise MemoryError(
            f"the matrix of {asked} items takes {8 * asked**2 / 2**30:.1f} GiB, more than max_bytes={max_bytes}; "
            'raise max_bytes, pass catalogue=PrivateCatalogue(), or storage="lazy"'
        )
    check_matrix_fits(source, rank, catalogue, storage, max_bytes)
    warn_large_delta(budget, users)
    source.expects(catalogue_releases(source, catalogue) + 1)
    with book.reserve(unit.relation, budget.mu) as account:
        result = _release(source, rank, unit, budget.mu, catalogue, account, users, random_state, storage, max_bytes,
                          progress)  # fmt: skip
    return result.with_facts(**call_facts(unit, budget, ledger is None, users))


def _release(
    source: Source,
    rank: int,
    unit: PatternUnit,
    mu: float,
    catalogue: PrivateCatalogue | None,
    ledger: Run,
    users: int | None,
    random_state: int | None,
    storage: str,
    max_bytes: int,
    progress: Progress | None,
) -> Result:
    """What `dense_release` does once its budget is reserved."""

    def tell(text: str, fraction: float) -> None:
        if progress is not None:
            progress(text, fraction)

    found = None
    if catalogue is not None:
        trial = unit.with_floor(unit.floor or 1).dense_rounding(
            source.n, source.noise_shares
        )  # refuse before it is paid for
        grid_bits(source.n, check_sigma(trial.sensitivity / (mu * math.sqrt(1 - catalogue.share))))
        largest = None if storage == "lazy" else max(math.isqrt(max_bytes // 8), rank)
        chosen = choose(
            source, catalogue, rank, mu=mu, ledger=ledger, method="dense", variance_factor=VARIANCE_FACTOR,
            largest=largest, users=users,
        )  # fmt: skip
        source, found, mu = chosen.source, chosen.catalogue, chosen.mu
    matrix = source.item_matrix(mu, ledger, storage=storage, max_bytes=max_bytes, progress=tell)
    automatic = catalogue is not None and catalogue.items is None
    sizes = catalogue_sizes(matrix.n, rank) if automatic else [matrix.n]
    enough = _ENOUGH if isinstance(unit, Interaction) else _USER_ENOUGH
    components, eigenvalues, kept = source.agree(*_leading(matrix, rank, sizes, enough, found, random_state, tell))
    if found is not None:
        found = Catalogue(found.popularity, found.chosen[kept], found.noise_std, found.floor)
        components = found.spread(components)
    facts = Facts("dense", matrix.noise_std, storage=matrix.storage, parties=source.facts())
    return Result(components, eigenvalues, source.unit.describe(), ledger.statement(), facts, found, ledger.ledger)


def check_matrix_fits(
    source: Source, rank: int, catalogue: PrivateCatalogue | None, storage: str = "auto", max_bytes: int = MAX_BYTES
) -> None:
    """Refuse, before anything is charged, a matrix of as many items as may be kept that does not fit the memory.

    How many will be kept is known only after the first release.
    """
    size = source.n
    if catalogue is not None:
        largest = size if storage == "lazy" else max(math.isqrt(max_bytes // 8), rank)
        size = catalogue.items or min(size, largest)
    if not source.products or storage == "stored" or (storage == "auto" and 8 * size**2 <= max_bytes):
        check_memory(
            int(_PEAK * 8 * size**2),
            f"the dense release of up to {size} items",
            'Pass a smaller max_bytes (--max-bytes), which keeps fewer items; or method="power" (--method power); or '
            'dense_release(..., storage="lazy")',
        )


def catalogue_sizes(n: int, rank: int) -> list[int]:
    """Catalogue sizes to compare after the release: n, 0.84n, … down to an eighth, but not below twice the rank."""
    count = 1 + int(math.log(1 / 8) / math.log(_SHRINK))
    sizes = {max(round(n * _SHRINK**j), min(2 * rank, n)) for j in range(count)}
    return sorted(sizes, reverse=True)


def _leading(
    matrix: ReleasedMatrix,
    rank: int,
    sizes: list[int],
    enough: float,
    catalogue: Catalogue | None,
    random_state: int | None,
    tell: Progress,
) -> tuple[Reals, Reals, NDArray[np.int64]]:
    """Eigenpairs of the released matrix, on the catalogue size that keeps most signal.

    The score of a size is Σ_k λ_k c_k²: debiased eigenvalues times the share of each eigenvector that is signal,
    c_k² = 1 − mσ²/λ_k² (the spiked matrix model). It is post-processing. Sizes go down until the score fell twice.
    """
    order = np.arange(matrix.n)
    if catalogue is not None:
        order = np.argsort(-catalogue.popularity[catalogue.chosen], kind="stable")
    start = np.random.default_rng(random_state).standard_normal((matrix.n, min(matrix.n, rank)))

    def solve(size: int, tolerance: float, passes: int, text: str) -> tuple[Reals, Reals, NDArray[np.int64]]:
        keep = np.sort(order[:size])
        edge = 2 * math.sqrt(size) * matrix.noise_std / matrix.scale
        values, vectors = leading_eigenpairs(
            matrix.part(None if size == matrix.n else keep),
            size,
            rank,
            bits=matrix.bits,
            start=start[keep],
            edge=1.05 * edge,
            tolerance=tolerance,
            passes=passes,
            progress=lambda fraction: tell(text, fraction),
        )
        start[keep] = vectors  # the next size, or the last word, starts from here
        return vectors, _debiased(values * matrix.scale, size, matrix.noise_std), keep

    if len(sizes) > 1:
        scores: list[float] = []
        for size in sizes:
            passes = 8 if scores else 14  # all but the first start from their predecessor's vectors
            found = solve(size, _ROUGH, passes, f"comparing catalogues: {size} items")[1]
            found = found[found > 0]
            scores.append(float(np.sum(found - size * matrix.noise_std**2 / found)))
            if len(found) == rank and scores[-1] >= enough * float(found.sum()):
                break  # so little is noise that no smaller size, with eigenvalues no larger, could be chosen
            if len(scores) > 2 and max(scores[-2:]) < max(scores):
                break
        sizes = [next(size for size, score in zip(sizes, scores, strict=False) if score >= enough * max(scores))]
    vectors, eigenvalues, keep = solve(sizes[0], _FINE, 24, "eigenvectors")
    return orthonormal.signed(vectors), eigenvalues, keep


def _debiased(values: Reals, n: int, sigma: float) -> Reals:
    """Noise lifts an eigenvalue λ to λ + nσ²/λ; values inside the noise (below 2√n σ) become 0."""
    edge = 4 * n * sigma**2
    inside = np.sqrt(np.maximum(values**2 - edge, 0.0))
    found: Reals = np.where((values > 0) & (values**2 > edge), (values + inside) / 2, 0.0)
    return found
