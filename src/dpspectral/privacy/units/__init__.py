"""Units of privacy: who is protected, what is enforced for it, and how far released sums can move."""

from __future__ import annotations

from dpspectral.core import checks
from dpspectral.privacy.units.base import (
    ROUNDING_LOSS,
    SAFE,
    SHARE_LOSS,
    Displacement,
    Neighbours,
    Rounding,
    Unit,
    share_term,
)
from dpspectral.privacy.units.pattern import (
    MAX_FLOOR,
    Interaction,
    PatternUnit,
    TableRounding,
    User,
    finer_tally,
)
from dpspectral.privacy.units.persons import MOST_ROWS, Persons
from dpspectral.privacy.units.rows import ROW_BITS, BoundedRows
from dpspectral.privacy.units.update import SymmetricUpdate

__all__ = [
    "MAX_FLOOR", "MOST_ROWS", "ROUNDING_LOSS", "ROW_BITS", "SAFE", "SHARE_LOSS", "BoundedRows", "Displacement",
    "Interaction", "Neighbours", "PatternUnit", "Persons", "Rounding", "SymmetricUpdate", "TableRounding", "Unit",
    "User", "finer_tally", "share_term", "unit_by_name",
]  # fmt: skip


def unit_by_name(
    kind: str,
    floor: int | None = None,
    weighting: str = "sqrt",
    neighbours: str = "add-remove",
    row_norm: float | None = None,
    binarize: bool = False,
) -> Unit:
    """A unit as commands and files name it: "interaction", "user" or "rows"."""
    checks.choice("unit", kind, ("interaction", "user", "rows"))
    if kind == "rows":
        return BoundedRows(row_norm, neighbours=neighbours)
    if kind == "user":
        return User(1 if floor is None else floor, neighbours, binarize)
    return Interaction(floor, weighting, neighbours, binarize)
