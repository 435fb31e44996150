"""Lists of recommended items, with names and scores; as arrays, as records or as a data frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Item = str | int
COLUMNS = ("user", "rank", "item", "score", "by")
_SHOWN = 5  # users, and items of each, in the text form
_EAGER = {nw.Implementation.DUCKDB: nw.Implementation.PYARROW}  # kinds that hold queries, and what results come in


class Scored(NamedTuple):
    """An item (its name; its position, where the model has no names) and its score."""

    item: Item
    score: float


@dataclass(frozen=True, eq=False, repr=False)
class Recommendations:
    """Lists for several users, best first. Iterating gives one list of `Scored` for each user.

    Attributes
    ----------
    positions : (users, top) int64
        Columns of the items in the matrix of the fit; −1 where the catalogue has no more items for the user.
    scores : (users, top)
        Their scores, NaN at −1; for users who are ranked by popularity, the released (or declared) popularity.
    by_popularity : (users,) bool
        Who has none of the kept items, and so gets the most popular ones.
    users : tuple of str, or None
        Names of the users, where the rows came with names.
    names : sequence of str, or None
        Names of all items of the model, where it has names.
    """

    positions: NDArray[np.int64]
    scores: Reals
    by_popularity: NDArray[np.bool_]
    users: tuple[str, ...] | None = None
    names: Sequence[str] | None = None

    @property
    def items(self) -> NDArray[Any]:
        """(users, top): names of the items, None at −1; without names, `positions`."""
        if self.names is None:
            return self.positions
        return np.array([*self.names, None], dtype=object)[self.positions]

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, row: int) -> list[Scored]:
        """The list of one user."""
        found = zip(self.positions[row].tolist(), self.scores[row].tolist(), strict=True)
        return [Scored(self._name(position), score) for position, score in found if position >= 0]

    def __iter__(self) -> Iterator[list[Scored]]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        lines = [f"Recommendations({len(self)} users, top {self.positions.shape[1]})"]
        for row, found in enumerate(islice(self, _SHOWN)):
            shown = ", ".join(f"{item} ({score:.3g})" for item, score in found[:_SHOWN])
            lines.append(f"  {self._user(row)}: {shown}{', ...' if len(found) > _SHOWN else ''}")
        return "\n".join([*lines, *(["  ..."] if len(self) > _SHOWN else [])])

    def _name(self, position: int) -> Item:
        return position if self.names is None else self.names[position]

    def _user(self, row: int) -> Item:
        return row if self.users is None else self.users[row]

    def how(self, row: int) -> str:
        """How a user's list was made: "model" or "popularity"."""
        return "popularity" if self.by_popularity[row] else "model"

    def records(self) -> Iterator[dict[str, Any]]:
        """One record for each recommended item: user, rank, item, score, by ("model" or "popularity")."""
        for row, found in enumerate(self):
            for rank, (item, score) in enumerate(found, 1):
                yield dict(zip(COLUMNS, (self._user(row), rank, item, score, self.how(row)), strict=True))

    def frame(self, like: Any, users: Any = None) -> Any:
        """The records as a data frame of the kind of `like`: a frame, or "pandas", "polars" or "pyarrow".

        A relation of DuckDB is answered with an Arrow table, a lazy frame of Polars with a Polars frame. `users` are
        what stands in the column of users instead of their names: a series of the same kind, one entry for each.
        """
        rows, places = np.nonzero(self.positions >= 0)
        positions, scores = self.positions[rows, places], self.scores[rows, places]
        columns = {
            "user": rows if self.users is None else [self.users[row] for row in rows.tolist()],
            "rank": places + 1,
            "item": positions if self.names is None else [self.names[item] for item in positions.tolist()],
            "score": scores,
            "by": [self.how(row) for row in rows.tolist()],
        }
        kinds = {
            "user": nw.Int64() if self.users is None else nw.String(),
            "rank": nw.Int64(),
            "item": nw.Int64() if self.names is None else nw.String(),
            "score": nw.Float64(),
            "by": nw.String(),
        }
        made = nw.from_dict(columns, kinds, backend=_backend(like))
        if users is not None:
            made = made.with_columns(nw.from_native(users, series_only=True)[rows.tolist()].alias("user"))
        return made.to_native()


def _backend(like: Any) -> Any:
    if isinstance(like, str):
        return like
    kind = nw.from_native(like).implementation
    return _EAGER.get(kind, kind)
