"""A result of what a stream has released up to an epoch: basis, spectrum, popularity. Nothing here costs anything."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpspectral.methods.above_noise import Spectrum
from dpspectral.methods.call import Progress
from dpspectral.methods.catalogue import Catalogue
from dpspectral.methods.dense import Eigenpairs, catalogue_sizes, costs, enough_for
from dpspectral.methods.result import Facts, Result
from dpspectral.methods.stages import Stages
from dpspectral.privacy.entries import standing
from dpspectral.release.item_matrix import FormedMatrix
from dpspectral.streams import running_sum
from dpspectral.streams.epoch_queries import matrix as matrix_of
from dpspectral.streams.folder import StreamFolder

Reals = NDArray[np.float64]
# Which part of the best score suffices for a larger catalogue, for whole users: their pairs have equal weights, and the
# score is mostly that of the popularity direction. Measured on MovieLens-1M, ε = 20, week 52, as errors: .704 for the
# .98 of one release, .693 for this, the best at any size .693; with 200 items a user .682, .683 and .680.
_USERS_ENOUGH = 0.93


def moved(one: Reals, other: Reals) -> float:
    """How far a basis has turned, from 0 (the same space) to 1 (orthogonal); items that came later are new rows."""
    rows = min(len(one), len(other))
    common = float(np.sum((one[:rows].T @ other[:rows]) ** 2))
    return math.sqrt(max(1 - common / one.shape[1], 0.0))


def epoch_result(folder: StreamFolder, before: Result | None, progress: Progress | None = None) -> Result:
    """The result of the last finished epoch. The solver starts from the result before."""
    epoch, settings = folder.epochs[-1], folder.settings
    kept = np.array(folder.kept, dtype=np.int64)
    counter = settings.counter
    popularity, factor = running_sum.popularity(folder, epoch.number, epoch.items, folder.lost("popularity"))
    popularity_std = max(done.popularity["sigma"] for done in folder.epochs) * factor
    chosen, noise_std, spectrum = np.arange(epoch.items), popularity_std, None
    components, eigenvalues = np.zeros((epoch.items, settings.rank)), np.zeros(settings.rank)
    matrices = [done.matrix for done in folder.epochs if done.matrix is not None and "lost" not in done.matrix]
    if matrices and len(kept):
        order = np.argsort(-popularity[kept], kind="stable")
        place = np.empty(len(kept), dtype=np.int64)
        place[order] = np.arange(len(kept))
        assert epoch.floor is not None
        query = matrix_of(settings, epoch.number, epoch.items, epoch.floor, folder.kept, folder.started).query
        summed, factor = running_sum.matrix(folder, epoch.number, place, query.scale)
        released = FormedMatrix(summed, 1.0, max(matrix["sigma"] for matrix in matrices) * factor)
        noise_std = released.noise_std
        enough = enough_for(settings.unit) if settings.max_items is None else _USERS_ENOUGH
        vectors, eigenvalues, chosen, spectrum = _solved(released, kept[order], enough, before, settings.rank,
                                                         progress)  # fmt: skip
        components[chosen] = vectors
    facts = Facts(
        method="stream",
        noise_std=noise_std,
        budget=settings.budget,
        own_budget=settings.ledger is None,
        public=_declared(folder),
        users_declared=settings.users,
        items_from="list",
        parties=epoch.popularity.get("parties"),
        stream={
            "epoch": epoch.number,
            "epochs": counter.describe(),
            "half_life": counter.half_life,
            "horizon": counter.horizon,
            "moved": None if before is None else moved(components, before.components),
            "kept": len(kept),
        },
        reason=_reason(folder),
    )
    entries = folder.ledger.history
    earlier = sum(entry.run != settings.id for entry in standing(entries))
    unit = settings.unit.describe() if epoch.floor is None else settings.unit.with_floor(epoch.floor).describe()
    if settings.max_items is not None:
        unit = f"one whole user for all time; of each, the first {settings.max_items} items are used"
    catalogue = Catalogue(np.maximum(popularity, 1.0), chosen, popularity_std, epoch.floor)
    return Result(
        components, eigenvalues, unit, folder.ledger.statement(settings.id, earlier), facts, catalogue, folder.ledger,
        tuple(folder.items[: epoch.items]), spectrum,
    )  # fmt: skip


def _solved(
    matrix: FormedMatrix, items: NDArray[np.int64], enough: float, before: Result | None, rank: int,
    progress: Progress | None,
) -> tuple[Reals, Reals, NDArray[np.int64], Spectrum]:  # fmt: skip
    """Leading eigenpairs on the number of most popular items that keeps most signal; `items` are those of the rows."""
    rank = min(rank, matrix.n)
    start = np.random.default_rng(0).standard_normal((matrix.n, rank))
    if before is not None and before.components.any():
        known = items < len(before.components)
        start[known] = before.components[items[known], :rank]
        start[~known] = 0
    sizes = catalogue_sizes(matrix.n, rank)
    stages = Stages(progress, costs(sizes, rank, True, True))
    pairs = Eigenpairs(matrix, rank, items, stages, start.astype(np.float32))
    vectors, eigenvalues, chosen = pairs.best(sizes, enough)
    return vectors, eigenvalues, chosen, pairs.spectrum(len(chosen))


def _declared(folder: StreamFolder) -> tuple[str, ...]:
    settings = folder.settings
    public = ["the list of items (columns)", "the calendar of epochs"]
    if settings.users is not None:
        public.append("the number of users")
    if settings.max_items is not None:
        public.append(f"at most {settings.max_items} items of a user are used")
    if settings.known_floor is not None and settings.known_floor > 1:
        public.append(f"the degree floor {settings.known_floor}")
    return tuple(public)


def _reason(folder: StreamFolder) -> str:
    epoch, settings = folder.epochs[-1], folder.settings
    text = f"Epoch {epoch.number} of a stream: {settings.counter.describe()}, on one budget."
    if epoch.matrix is None:
        return f"{text} Too little was released so far to choose a floor: popularity only."
    return f"{text} {len(folder.kept)} items are kept."
