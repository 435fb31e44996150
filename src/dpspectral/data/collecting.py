"""Files of records, however many and of whichever kind, into one table of pairs."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dpspectral.core.files import UNREADABLE
from dpspectral.data import columns
from dpspectral.data.arrays import from_arrays
from dpspectral.data.pairs import PairTable
from dpspectral.data.parquet import ParquetFile, readable
from dpspectral.data.reading import Reading, uncompressed
from dpspectral.data.tables import FROM_DATA, DataError, EmptyDataError, rating_notes
from dpspectral.data.text import find_unknown, read_text

PARQUET = (".parquet", ".pq")
MATRICES = (".npy", ".mtx")
WITHOUT_LINES = (*MATRICES, *PARQUET, ".npz", ".xls")
Progress = Callable[[str, float], object]
_UNPACK = "not read in this form; unpack it, or compress it as .gz or .zst"
_SHEET = "spreadsheets are not read; save it as CSV, or pass the frame of pandas.read_excel"
_FOREIGN = {".zip": _UNPACK, ".bz2": _UNPACK, ".xz": _UNPACK, ".7z": _UNPACK, ".xlsx": _SHEET, ".ods": _SHEET}


class File(NamedTuple):
    """A file to read, or a folder made by `dpspectral store`."""

    path: Path
    folder: Path | None = None  # of Parquet files, in which it was found: names of folders below may be columns

    @property
    def kind(self) -> str:
        return "" if self.path.is_dir() else uncompressed(self.path).suffix.lower()


def files_of(source: Any) -> list[File]:
    """All files that are meant: by a path, a pattern, a folder of Parquet files, or several of these."""
    if isinstance(source, (str, os.PathLike)):
        return _one(source)
    if not isinstance(source, Iterable) or hasattr(source, "dtype") or sp.issparse(source):
        raise TypeError(
            f"read takes files or a frame, got {type(source).__name__}; a matrix goes to fit or decompose as it is"
        )
    listed = [file for one in source for file in _one(one)]
    if not listed:
        raise DataError("no file was named")
    return listed


def _one(source: str | os.PathLike[str]) -> list[File]:
    if not (name := os.fspath(source)):
        raise DataError("no file was named")
    if Path(name).exists() or not glob.has_magic(name):
        return _existing(Path(name))
    matches = sorted(Path(match) for match in glob.glob(name, recursive=True))
    if not matches:
        raise DataError(f"{name}: no file has such a name")
    return [found for match in matches for found in _existing(match)]


def _existing(path: Path) -> list[File]:
    if (path / "store.json").is_file():
        return [File(path)]
    if path.is_dir():
        inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in PARQUET and file.is_file())
        if not inside:
            raise DataError(f"{path}: it is a folder without Parquet files; name files, or a pattern: '{path}/*.csv'")
        # What other tools write beside Parquet files begins with a dot or an underscore.
        shown = [file for file in path.rglob("*") if file.is_file() and file.name[0] not in "._"]
        others = set(shown).difference(inside)
        if others:
            raise DataError(
                f"{path}: of a folder its Parquet files are read, and {min(others).name} is not one; name files, or a "
                f"pattern: '{path}/*'"
            )
        return [File(file, path) for file in inside]
    if path.suffix.lower() in _FOREIGN:
        raise DataError(f"{path}: {_FOREIGN[path.suffix.lower()]}")
    if not path.is_file():
        raise DataError(f"{path}: not a regular file" if path.exists() else f"{path}: no such file")
    return [File(path)]


def words(files: Sequence[File]) -> str:
    """The files, for a message."""
    return str(files[0].path) if len(files) == 1 else f"{files[0].path} and {len(files) - 1} more"


def collect(files: Sequence[File], table: PairTable, reading: Reading, tell: Progress) -> list[str]:
    """Add the records of all files to a table; what is to be said about them."""
    notes: list[str] = []
    for number, file in enumerate(files):
        notes += _collect_one(file, table, reading, _part(tell, file, number, len(files)))
    if reading.drops:
        table.drop_unknown()
    elif (unknown := table.unknown()) is not None:
        for file in files:
            if file.kind not in WITHOUT_LINES:
                find_unknown(file.path, table, reading)
        raise table.outside(unknown, words(files))
    return notes


def _part(tell: Progress, file: File, number: int, count: int) -> Callable[[float], object]:
    return lambda part: tell(f"reading {file.path.name}", (number + part) / count)


def _collect_one(file: File, table: PairTable, reading: Reading, tell: Callable[[float], object]) -> list[str]:
    tell(0.0)
    if file.path.is_dir() or file.kind in (*MATRICES, ".xls") or reading.format == "ratings":
        raise _nameless(file)
    if file.kind in (*PARQUET, ".npz") and reading.only_text():
        raise DataError(f"{file.path}: header, format and delimiter apply to text files only")
    if file.kind in PARQUET:
        parquet = ParquetFile(table.connection, file.path, reading, file.folder)
        query = parquet.select()
        with readable(file.path):
            table.connection.execute(f"INSERT INTO pairs {query}")
        table.read = True
        return parquet.notes
    if file.kind == ".npz":
        arrays = arrays_of(file.path, reading)
        if not arrays:
            raise _nameless(file)
        with suppress(EmptyDataError):  # other files may have records
            table.add_table(from_arrays(str(file.path), arrays, FROM_DATA, reading))
        table.read = table.read or len(arrays["user"]) > 0
        return rating_notes("rating" in arrays, reading.min_rating)
    return read_text(file.path, table, reading, tell)


def _nameless(file: File) -> DataError:
    return DataError(f"{file.path}: the rows of a matrix have no names; read one matrix at a time")


def arrays_of(file: Path, reading: Reading) -> dict[str, Any]:
    """The arrays of users, items, ratings and times in an .npz file; none if it holds a matrix."""
    try:
        with np.load(file, allow_pickle=False) as content:
            names = list(content.files)
            if {"summary", "eigenvalues"} <= set(names):
                raise DataError(f"{file}: a saved basis, not data; use PrivateRecommender.load or Result.load")
            if "format" in names and not any(reading.columns.values()):
                return {}
            try:
                at = columns.places(names, reading.columns)
            except ValueError as error:
                raise DataError(
                    f"{file}: expected arrays of users and items, or a matrix saved by scipy.sparse.save_npz ({error})"
                ) from error
            return {role: content[names[k]] for role, k in at.items()}
    except DataError:
        raise
    except UNREADABLE as error:
        raise DataError(f"{file}: not a readable .npz file of plain arrays") from error
