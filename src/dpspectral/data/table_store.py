"""Tables of numbers on disk, for data larger than memory: the rows of each person together, read part by part.

A store is a folder: `values.f8` has the rows (little-endian float64, gaps are NaN), `rows.i4` how many rows each person
has (none where every row is a person), and `table.json`, written last, the names of the columns and where parts of
whole persons begin. Files are read one at a time and line by line (`number_table`). The rows of a person are brought
together by the canonical text of the identifier, in the order in which they stand in the files, and at most
`rows_per_group` of each are written. Identifiers are in memory while a store is made, rows are not.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.core.files import write_text
from dpspectral.core.threads import ahead
from dpspectral.data.collecting import files_of
from dpspectral.data.number_table import read_numbers
from dpspectral.data.persons import PersonRows, kept_rows
from dpspectral.data.rows import PartedRows, composed
from dpspectral.linalg.operators import Progress, silent
from dpspectral.privacy.units import MOST_ROWS, BoundedRows, Persons, Unit

Ints = NDArray[np.int64]
_FORMAT = 1
_PART_BYTES = 1 << 26


@dataclass(frozen=True, eq=False)
class TableStore(PartedRows):
    """Rows of numbers in a folder. Made by `TableStore.write` or `from_files`, opened by `TableStore.open`."""

    folder: Path
    shape: tuple[int, int]  # persons, and columns
    names: tuple[str, ...] | None
    rows_per_group: int | None  # None: every row is a person
    blocks: tuple[tuple[int, int], ...]  # persons and rows of each part
    columns: Ints | None = None  # the columns kept, if not all
    users_private: bool = True
    enforced_for: Unit | None = None

    @property
    def grouped(self) -> bool:
        return self.rows_per_group is not None

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        place = Path(folder)
        try:
            known = json.loads((place / "table.json").read_text())
            if known["format"] != _FORMAT:
                raise ValueError(f"format {known['format']}; this version reads format {_FORMAT}")
            names = tuple(str(name) for name in known["names"])
            most = known["rows_per_group"]
            checks.optional_integer("rows_per_group", most, low=1, high=MOST_ROWS)
            blocks = tuple(
                (checks.integer("persons", p, low=0), checks.integer("rows", r, low=0)) for p, r in known["blocks"]
            )
            persons, rows = (sum(block[k] for block in blocks) for k in (0, 1))
            sizes = [(place / "values.f8").stat().st_size, (place / "rows.i4").stat().st_size]
            if sizes != [8 * rows * len(names), 0 if most is None else 4 * persons]:
                raise ValueError("the lengths of its files do not match table.json")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{place}: not a store of a table: {error}") from error
        return cls(place, (persons, len(names)), names, most, blocks)

    @classmethod
    def from_files(
        cls,
        folder: Path | str,
        source: Any,
        *,
        group: str | None = None,
        rows_per_group: int | None = None,
        **reading: Any,
    ) -> Self:
        """A store of the rows in files, read one after the other with the options of `read_numbers`."""
        if (group is None) != (rows_per_group is None):
            raise ValueError("group and rows_per_group go together: whose rows, and how many of each person are kept")
        tables = (read_numbers(file.path, group=group, **reading) for file in files_of(source))
        parts = ((table.values, table.persons, table.names) for table in tables)
        return cls.write(folder, parts, rows_per_group=rows_per_group)

    @classmethod
    def write(cls, folder: Path | str, parts: Any, *, rows_per_group: int | None = None) -> Self:
        """A store of (values, persons, names) in parts; persons are None where every row is one. Written atomically."""
        place = Path(folder)
        if place.exists():
            raise ValueError(f"{place} exists already")
        checks.optional_integer("rows_per_group", rows_per_group, low=1, high=MOST_ROWS)
        temporary = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.resolve().parent))
        try:
            _written(temporary, parts, rows_per_group)
            temporary.rename(place)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return cls.open(place)

    # ---- as rows

    def enforced(self, unit: Unit) -> TableStore:
        if not isinstance(unit, BoundedRows) or isinstance(unit, Persons) != self.grouped:
            raise TypeError("a store of persons goes with Persons(...), a store of single rows with BoundedRows(...)")
        if isinstance(unit, Persons) and (self.rows_per_group or 1) > unit.rows_per_group:
            raise ValueError(
                f"the store keeps {self.rows_per_group} rows each, more than rows_per_group={unit.rows_per_group}"
            )
        return replace(self, enforced_for=unit)

    def restricted(self, columns: Ints) -> TableStore:
        return replace(self, columns=composed(self.columns, columns), shape=(self.shape[0], len(columns)), names=None)

    def total(self, work: Callable[[Any], Ints], progress: Progress = silent) -> Ints:
        total: Ints | None = None
        for number, part in enumerate(self.parts()):
            one = work(part)
            total = one if total is None else np.add(total, one, out=total)
            progress((number + 1) / len(self.blocks))
        empty = PersonRows(np.empty((0, self.shape[1])), np.zeros(1, dtype=np.int64) if self.grouped else None)
        return work(empty) if total is None else total

    def parts(self) -> Iterator[PersonRows]:
        """Part after part; the next one is read in the background."""
        return ahead(self.block, range(len(self.blocks)), 1)

    def block(self, number: int) -> PersonRows:
        """The part of this number."""
        before = self.blocks[:number]
        first, offset = (sum(block[k] for block in before) for k in (0, 1))
        persons, rows = self.blocks[number]
        wide = self.shape[1] if self.columns is None else len(TableStore.open(self.folder).names or ())
        values = np.fromfile(self.folder / "values.f8", "<f8", count=rows * wide, offset=8 * offset * wide)
        values = values.reshape(rows, wide)
        if self.columns is not None:
            values = values[:, self.columns]
        if not self.grouped:
            return PersonRows(values, None, self.enforced_for)
        counts = np.fromfile(self.folder / "rows.i4", "<i4", count=persons, offset=4 * first).astype(np.int64)
        if counts.min(initial=1) < 1 or counts.max(initial=1) > (self.rows_per_group or 1) or counts.sum() != rows:
            raise ValueError(f"{self.folder}: the rows of a part do not add up: the store is damaged")
        return PersonRows(values, np.concatenate([[0], np.cumsum(counts)]), self.enforced_for)


def _written(folder: Path, parts: Any, most: int | None) -> None:
    """Write the files of a store. Rows go to a scratch file as they come; then person after person to their place."""
    names: Sequence[str] | None = None
    people: list[Any] = []
    count = 0
    with (folder / "scratch.f8").open("wb") as scratch:
        for values, persons, found in parts:
            if names is not None and list(found) != list(names):
                raise ValueError(f"a part has the columns {list(found)[:8]}, the first one {list(names)[:8]}")
            if (persons is None) != (most is None):
                raise ValueError("rows_per_group goes with the person of each row, and without it there is none")
            names = found
            scratch.write(np.ascontiguousarray(values, dtype="<f8").tobytes())
            count += len(values)
            people += [] if persons is None else list(persons)
    if names is None:
        raise ValueError("there is no part to write")
    wide = len(names)
    if most is None:
        order, counts = np.arange(count), np.ones(count, dtype=np.int64)
    else:
        order, starts = kept_rows(people, most)
        counts = np.diff(starts)
    blocks = _blocks(counts, max(1, _PART_BYTES // (8 * wide)))
    rows = np.memmap(folder / "scratch.f8", dtype="<f8", mode="r", shape=(count, wide)) if count else None
    with (folder / "values.f8").open("wb") as out:
        start = 0
        for _, size in blocks:
            assert rows is not None
            out.write(np.ascontiguousarray(rows[order[start : start + size]]).tobytes())
            start += size
    del rows
    (folder / "scratch.f8").unlink()
    (folder / "rows.i4").write_bytes(b"" if most is None else counts.astype("<i4").tobytes())
    known = {"format": _FORMAT, "names": list(names), "rows_per_group": most, "blocks": blocks}
    write_text(folder / "table.json", json.dumps(known))


def _blocks(counts: Ints, size: int) -> list[tuple[int, int]]:
    """Persons and rows of parts of about so many rows, each of whole persons."""
    ends, blocks, first = np.cumsum(counts), [], 0
    while first < len(counts):
        before = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, before + size, side="right")), first + 1)
        blocks.append((last - first, int(ends[last - 1]) - before))
        first = last
    return blocks
