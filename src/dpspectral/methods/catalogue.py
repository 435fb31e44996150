"""The private catalogue: which items are worth decomposing, from released popularity.

Neighbours: the unit's. Release 1: how often each item was chosen (interactions: degrees, ℓ2 sensitivity 1, exchanged
√2; users: Σ_u r_u/√d_u, sensitivity 1, replaced √2). The chosen set is a function of that release, hence public, and
the data restricted to it is 0/1 data like any other: what is released about it afterwards has the unit's own bounds.
Release 2, where the floor is left open: Σ_u √d_u over the restricted data, sensitivity 1. Ledger: one entry each, both
paid from `share` of μ². Everything else (which items, the floor, clamped degrees) is post-processing.
Proof page: docs/proofs/catalogue.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.methods.floor import Degrees, choose_floor
from dpspectral.privacy.entries import check_sigma
from dpspectral.privacy.ledger import Account
from dpspectral.privacy.units import Interaction, PatternUnit, Unit
from dpspectral.release.source import Source

Reals = NDArray[np.float64]

_SHARE = 0.05  # of μ², for an automatic catalogue; measured in docs/frontier.md
_SCARCE = 0.5  # μ below which a user's catalogue gets twice as much
_FEW = 4  # with at most this many items per component there is nothing to gain from choosing among them
_ROOTS_SHARE = 0.1  # of the catalogue's own share, for Σ√d
# An item is kept if its noisy popularity is at least constant · (Δ/μ)^power. Measured: docs/frontier.md.
_KEPT_ABOVE = {
    ("interaction", "dense"): (20.0, 1.0),
    ("interaction", "power"): (60.0, 0.5),
    ("user", "dense"): (12.0, 0.5),
    ("user", "power"): (15.0, 0.5),
}
_BEARABLE = 0.12  # noise² against the product of the first and the k-th eigenvalue


@dataclass(frozen=True)
class PrivateCatalogue:
    """How to choose items: a small share of the budget buys noisy popularity, popular items are kept.

    Parameters
    ----------
    share : float
        Part of μ² spent on choosing, between 0.0001 and 0.9.
    items : int, optional
        How many items to keep; chosen from the noisy popularity if not given.
    minimum : float
        Public lower bound to which noisy popularity is clamped before anyone divides by it.
    """

    share: float = 0.05
    items: int | None = None
    minimum: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", checks.real("share", self.share, low=0, high=1))
        if not 1e-4 <= self.share <= 0.9:
            raise ValueError(f"share must be between 0.0001 and 0.9 of the budget, got {self.share!r}")
        object.__setattr__(self, "minimum", checks.real("minimum", self.minimum, low=0))
        checks.optional_integer("items", self.items, low=1)

    def releases(self, unit: Unit) -> int:
        """How many sums choosing items (and the floor) takes."""
        return 2 if isinstance(unit, PatternUnit) and unit.floor is None else 1


_USUAL, _GENEROUS = PrivateCatalogue(_SHARE), PrivateCatalogue(2 * _SHARE)  # what is chosen automatically


class Catalogue(NamedTuple):
    """What was released about the items, and what was chosen from it."""

    popularity: Reals  # (n,), noisy, at least the public minimum
    chosen: NDArray[np.int64]  # increasing positions of the kept items
    noise_std: float  # of the popularity
    floor: int | None  # the degree floor in use

    def spread(self, rows: Reals) -> Reals:
        """Rows of chosen items in their places, zero rows elsewhere."""
        whole = np.zeros((len(self.popularity), *rows.shape[1:]))
        whole[self.chosen] = rows
        return whole


class Selection(NamedTuple):
    """A source restricted to the catalogue, and what is left to spend on it."""

    source: Source
    catalogue: Catalogue
    mu: float


def automatic_catalogue(unit: Unit, n: int, rank: int, mu: float) -> PrivateCatalogue | None:
    """The catalogue that goes with a unit and a number of items; none where there is nothing to choose."""
    if not isinstance(unit, PatternUnit):
        return None
    few = n <= _FEW * rank
    if few and unit.floor is not None:
        return None
    chosen = _USUAL if isinstance(unit, Interaction) or mu > _SCARCE else _GENEROUS
    return replace(chosen, items=n) if few else chosen


def choose(
    source: Source,
    config: PrivateCatalogue,
    rank: int,
    *,
    mu: float,
    ledger: Account,
    method: str,
    variance_factor: float,
    largest: int | None = None,
    users: int | None = None,
) -> Selection:
    """Spend `share` of μ² on popularity (and Σ√d, where the floor is open), and restrict the source accordingly.

    `method` is what the catalogue is for ("dense" or "power"), `variance_factor` its noise as in `choose_floor`,
    `largest` the most items that can be handled, `users` their declared number (under `Interaction` that of rows is
    public as well).
    """
    unit = source.unit
    if not isinstance(unit, PatternUnit):
        raise TypeError(f"a private catalogue goes with Interaction(...) or User(...), got {unit!r}")
    if config.items is not None and not rank <= config.items <= source.n:
        raise ValueError(
            f"PrivateCatalogue(items={config.items}) must be between rank={rank} and {source.n}, all items"
        )
    declared = source.rows if users is None else users
    if unit.floor is None and declared is None:  # for Interaction it is public, unless rows come from a list of pairs
        raise ValueError(
            "users is missing: an open floor needs their number, which in a list of pairs is not public; declare one, "
            'users=..., or let decompose(..., users="private") count them'
        )
    popularity_mu, roots_mu = split(unit, config.share, mu)
    if unit.floor is None:  # noise that cannot be drawn is refused before the popularity is paid for
        check_sigma(unit.root_degree_rounding(source.n, source.noise_shares).sensitivity / roots_mu)
    popularity, noise_std = source.popularity(popularity_mu, ledger)
    public = declared if isinstance(unit, Interaction) else None
    kept = pick(popularity, unit, public, config, rank, mu, method, variance_factor, largest)
    if source.replicated:
        (kept,) = source.agree(kept)
    restricted = source.restricted(kept)
    rest = mu * math.sqrt(1 - config.share)
    if unit.floor is None:
        roots = restricted.root_degrees(roots_mu, ledger)
        assert declared is not None
        floor = pick_floor(popularity, kept, unit, declared, roots, rank, rest, variance_factor)
        if source.replicated:
            floor = int(source.agree(np.array([floor]))[0][0])
        unit = unit.with_floor(floor)
        restricted = restricted.with_unit(unit)
    catalogue = Catalogue(np.maximum(popularity, config.minimum), kept, noise_std, unit.floor)
    return Selection(restricted, catalogue, rest)


def catalogue_by_name(given: str | float) -> PrivateCatalogue | str | None:
    """A catalogue as commands and files name it: "auto", "none" or a share of the budget."""
    if given in ("auto", "none"):
        return "auto" if given == "auto" else None
    try:
        share = float(given)
    except (TypeError, ValueError):
        raise ValueError(f'catalogue must be "auto", "none" or a share of the budget, got {given!r}') from None
    return PrivateCatalogue(share=share)


def split(unit: PatternUnit, share: float, mu: float) -> tuple[float, float]:
    """What a catalogue's part of μ buys: μ of the popularity and of Σ√d (0 where the floor is given)."""
    spent = mu * math.sqrt(share)
    roots_mu = spent * math.sqrt(_ROOTS_SHARE) if unit.floor is None else 0.0
    return math.sqrt(spent**2 - roots_mu**2), roots_mu


# From here on only released and public figures: the planner makes the same choices from a stand-in.


def pick(
    popularity: Reals,
    unit: PatternUnit,
    users: int | None,
    config: PrivateCatalogue,
    rank: int,
    mu: float,
    method: str,
    variance_factor: float,
    largest: int | None,
) -> NDArray[np.int64]:
    """Increasing positions of the items to keep; `users` where their number is public."""
    order = np.argsort(-popularity, kind="stable")
    count = config.items
    if count is None:
        count = popular(popularity, unit, mu, method, rank, largest)
        if users is not None:
            count = bearable(popularity[order[:count]], users, mu, rank, variance_factor)
    kept: NDArray[np.int64] = np.sort(order[:count])
    return kept


def pick_floor(
    popularity: Reals,
    kept: NDArray[np.int64],
    unit: PatternUnit,
    users: int,
    roots: float,
    rank: int,
    mu: float,
    variance_factor: float,
) -> int:
    """The floor for what is released about the kept items with the rest of the budget, μ."""
    inside = max(float(popularity[kept].sum()), 1.0)
    kth = float(np.sort(popularity[kept])[-min(rank, len(kept))])
    degrees = Degrees(
        items=len(kept),
        users=users,
        inside=inside,
        outside=float(popularity.sum()) - inside,
        roots=roots,
        rank=rank,
        kth_part=max(kth, 0.0) / inside,
    )
    return choose_floor(unit, degrees, mu, variance_factor)


def popular(popularity: Reals, unit: PatternUnit, mu: float, method: str, rank: int, largest: int | None) -> int:
    """How many items are popular enough; at least twice the rank, at most what can be handled."""
    rounding = unit.popularity_rounding(len(popularity))
    kind = "interaction" if isinstance(unit, Interaction) else "user"
    constant, power = _KEPT_ABOVE[kind, method]
    limit = constant * (rounding.sensitivity * rounding.scale / mu) ** power
    n = len(popularity)
    count = max(int((popularity >= limit).sum()), min(2 * rank, n))
    return count if largest is None else min(count, max(largest, rank))


def bearable(popularity: Reals, users: int, mu: float, rank: int, variance_factor: float) -> int:
    """How many of these items (most popular first) to keep so that noise does not drown what they hold.

    Relative to the trace of A, the noise of m items with the best floor is about √(2.5·m·v/(μ²·s·interactions)), v the
    variance factor, and the spectrum goes from about Σd²/(s·Σd) (the popularity direction) to the k-th item's part of
    the interactions.
    """
    sums, squares = np.cumsum(popularity), np.cumsum(popularity**2)
    sums = np.maximum(sums, 1.0)
    first = squares / (users * sums)
    last = math.sqrt(2) * max(float(popularity[min(rank, len(popularity)) - 1]), 1e-9) / sums
    noise = 2.5 * np.arange(1, len(sums) + 1) * variance_factor / (mu**2 * users * sums)
    fits = np.flatnonzero(noise <= _BEARABLE * first * last)
    return max(int(fits[-1]) + 1 if fits.size else 0, min(2 * rank, len(popularity)))
