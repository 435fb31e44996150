"""Files with a header and a number in every column: CSV and the like, and Parquet.

Reading is local: line 1 names the columns, the delimiter comes from an option or from the file's name, and what a line
becomes is a function of that line. Empty fields, NA, NaN, null and None are gaps; anything else that is not a number is
an error that names the line, or the line is left out (`bad_lines="skip"`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks, names
from dpspectral.data.collecting import files_of
from dpspectral.data.frames import numbers_of
from dpspectral.data.lines import LineError, blocks
from dpspectral.data.reading import BLANKS, Reading
from dpspectral.data.records import split
from dpspectral.data.tables import DataError, listed_once

_GAPS = {"", "na", "n/a", "nan", "null", "none"}
_PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class NumberTable:
    """Rows of numbers (gaps are NaN), the names of the columns, and whose row each is."""

    values: NDArray[np.float64]
    names: list[str]
    persons: list[Any] | None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without a word about single records."""
        return f"NumberTable({len(self.names)} columns, {'rows' if self.persons is None else 'rows of persons'})"


def read_numbers(
    source: str | Path | Sequence[str | Path],
    *,
    group: str | None = None,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
    bad_lines: str = "error",
) -> NumberTable:
    """A table from one or several files with the same columns.

    Parameters
    ----------
    source : file, files or a pattern
        Text with a header (.csv, .tsv, also .gz and .zst), or Parquet.
    group : str, optional
        The column that says whose row it is.
    columns : names, optional
        The columns to use, in this order; all but `group` if not given.
    delimiter : str, optional
        Between fields; by the file's name if not given.
    decimal : "." or ","
        The decimal mark.
    bad_lines : "error" or "skip"
        Refuse a file with a malformed line, or leave such lines out.
    """
    checks.choice("decimal", decimal, (".", ","))
    checks.choice("bad_lines", bad_lines, names.BAD_LINES)
    reading = Reading(delimiter=delimiter, bad_lines=bad_lines)
    parts: list[NumberTable] = []
    for file in files_of(source):
        if file.kind in _PARQUET:
            part = _of_parquet(file.path, group, columns)
        else:
            part = _of_text(file.path, reading, group, columns, decimal)
        if parts and part.names != parts[0].names:
            raise DataError(f"{file.path}: its columns {part.names[:8]} are not those of the first file")
        parts.append(part)
    persons = None if group is None else [one for part in parts for one in part.persons or ()]
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    return NumberTable(np.concatenate([part.values for part in parts]), parts[0].names, persons, notes)


def _of_parquet(file: Path, group: str | None, columns: Sequence[str] | None) -> NumberTable:
    import duckdb

    try:
        frame = duckdb.connect().read_parquet(str(file))
        values, found, persons = numbers_of(frame, group, columns)
    except duckdb.Error as error:
        raise DataError(f"{file}: not a readable Parquet file ({str(error).splitlines()[0][:200]})") from error
    return NumberTable(values, found, persons)


def _of_text(
    file: Path, reading: Reading, group: str | None, columns: Sequence[str] | None, decimal: str
) -> NumberTable:
    delimiter = reading.layout(file).delimiter
    header: list[str] = []
    rows: list[list[float]] = []
    persons: list[str] = []
    at: list[int] = []
    person = -1
    for block in blocks(file):
        for number, line in block.lines():
            if not header:
                header = _header(file, line, delimiter)
                at, person = _places(file, header, group, columns)
                continue
            try:
                if isinstance(line, LineError):
                    raise line
                fields = split(line, delimiter)
                if len(fields) != len(header):
                    raise LineError(f"{len(fields)} field(s), line 1 names {len(header)}")
                if person >= 0 and not fields[person]:
                    raise LineError(f"no value in {group!r}, the column of persons")
                row = [_number(fields[k], header[k], decimal) for k in at]
            except LineError as error:
                if reading.skips:
                    continue
                remedy = "bad_lines='skip' (--bad-lines skip) leaves such lines out"
                raise DataError(f"{file}, line {number}: {error}; {remedy}") from error
            rows.append(row)
            if person >= 0:
                persons.append(fields[person])
    if not header:
        raise DataError(f"{file}: it is empty; expected a header line that names the columns")
    values = np.array(rows, dtype=np.float64).reshape(len(rows), len(at))
    between = "blanks" if delimiter == BLANKS else repr(delimiter)
    note = f"line 1 names the columns, separated by {between}"
    return NumberTable(values, [header[k] for k in at], persons if person >= 0 else None, (note,))


def _header(file: Path, line: str | LineError, delimiter: str) -> list[str]:
    if isinstance(line, LineError):
        raise DataError(f"{file}, line 1: {line}")
    header = [field.strip() for field in split(line, delimiter)]
    if not all(header) or any(_is_number(field) for field in header):
        raise DataError(
            f"{file}, line 1: {line[:80]!r} does not name the columns; a header is needed (is the delimiter right? "
            "delimiter=, --delimiter)"
        )
    return listed_once(header, f"{file}, line 1")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.lower() not in _GAPS


def _places(file: Path, header: list[str], group: str | None, columns: Sequence[str] | None) -> tuple[list[int], int]:
    """Where the columns stand, and that of persons (−1: there is none)."""
    wanted = [name for name in header if name != group] if columns is None else list(columns)
    for name in [*wanted, *([] if group is None else [group])]:
        if name not in header:
            raise DataError(f"{file}: no column {name!r} among {header[:12]}")
    if not wanted:
        raise DataError(f"{file}: no column of numbers is left")
    return [header.index(name) for name in wanted], -1 if group is None else header.index(group)


def _number(field: str, column: str, decimal: str) -> float:
    text = field.strip()
    if text.lower() in _GAPS:
        return float("nan")
    if decimal == ",":
        text = text.replace(",", ".")
    try:
        if "_" in text:
            raise ValueError
        return float(text)
    except ValueError:
        raise LineError(f"{field[:40]!r} in column {column!r} is not a number") from None
