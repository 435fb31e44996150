"""Interactions on disk, for data larger than memory: read block by block, in every product once.

A store is a folder: `degrees.i4` has how many items each user has, `items.i4` the items themselves, user after user and
increasing, as little-endian 32-bit integers; `store.json`, written last, says how many there are and where blocks of
whole users begin. Files are not memory-mapped: blocks are read one after the other, the next one in the background.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.core.files import write_text
from dpspectral.core.jit import jit
from dpspectral.core.threads import ahead
from dpspectral.data import collecting, grouping
from dpspectral.data.grouping import Batches
from dpspectral.data.reading import Reading
from dpspectral.data.rows import PartedRows, composed
from dpspectral.data.tables import Items
from dpspectral.linalg.operators import Progress, silent
from dpspectral.privacy.units import PatternUnit, Unit

BLOCK = 1 << 24  # entries of a block, unless one user has more
_FORMAT = 1


@dataclass(frozen=True)
class Store(PartedRows):
    """0/1 rows in a folder. Made by `Store.write` or `Store.from_pairs`, opened by `Store.open`."""

    folder: Path
    shape: tuple[int, int]
    interactions: int
    blocks: tuple[tuple[int, int], ...]  # users and entries of each
    columns: NDArray[np.int64] | None = None  # the columns kept, if not all
    users_private: bool = False
    enforced_for: Unit | None = None

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        place = Path(folder)
        try:
            description = json.loads((place / "store.json").read_text())
            if description["format"] != _FORMAT:
                raise ValueError(f"format {description['format']}; this version reads format {_FORMAT}")
            blocks = tuple(
                (checks.integer("users", u, low=0), checks.integer("entries", e, low=0))
                for u, e in description["blocks"]
            )
            users_private = checks.flag("users_private", description["users_private"])
            users, entries = (sum(block[k] for block in blocks) for k in (0, 1))
            items = checks.integer("items", description["items"], low=1, high=2**31 - 1)
            sizes = [(place / name).stat().st_size for name in ("degrees.i4", "items.i4")]
            if sizes != [4 * users, 4 * entries]:
                raise ValueError("the lengths of its files do not match store.json")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{place}: not a store of interactions: {error}") from error
        return cls(place, (users, items), entries, blocks, users_private=users_private)

    @classmethod
    def write(
        cls,
        folder: Path | str,
        parts: Iterable[sp.csr_array],
        items: int,
        block: int = BLOCK,
        *,
        users_private: bool = False,
    ) -> Self:
        """A store of 0/1 matrices with `items` columns, one below the other. Written atomically."""
        place = Path(folder)
        if place.exists():
            raise ValueError(f"{place} exists already")
        temporary = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.resolve().parent))
        try:
            with _Writer(temporary, items, block, users_private) as writer:
                for part in parts:
                    pattern = sp.csr_array(part)
                    pattern.sum_duplicates()
                    if pattern.shape[1] != items:
                        raise ValueError(f"a part has {pattern.shape[1]} columns, not {items}")
                    if pattern.nnz and not (pattern.data == 1).all():
                        raise ValueError("a store holds 0/1 data, but a part has other values")
                    writer.add(np.diff(pattern.indptr), pattern.indices)
            temporary.rename(place)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return cls.open(place)

    @classmethod
    def from_pairs(cls, folder: Path | str, batches: Batches, items: int, block: int = BLOCK) -> Self:
        """A store of user-item pairs in any order. Repeated pairs count once; users are told apart by canonical text.

        Users are whole numbers, text, or any type that `identity` accepts; it may differ from batch to batch.
        """
        with grouping.scratch(Path(folder)) as connection:
            grouping.add_batches(connection, batches, items)
            return cls._grouped(folder, connection, "SELECT u, c FROM numbered", items, block)

    @classmethod
    def from_files(
        cls,
        folder: Path | str,
        source: Any,
        items: Items,
        *,
        block: int = BLOCK,
        progress: collecting.Progress | None = None,
        **options: Any,
    ) -> Self:
        """A store of the records in files of any kind that `read` takes, with its options."""
        reading, files = Reading(**options), collecting.files_of(source)
        with grouping.scratch(Path(folder)) as connection:
            names, query = grouping.of_files(connection, files, items, reading, progress or (lambda text, part: None))
            return cls._grouped(folder, connection, query, names, block)

    @classmethod
    def from_parquet(cls, folder: Path | str, files: Any, catalogue: Items, **options: Any) -> Self:
        """The name of `from_files` in 0.1 and 0.2."""
        text = "Store.from_parquet is Store.from_files since version 0.3; the old name goes with version 2.0"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return cls.from_files(folder, files, catalogue, **options)

    @classmethod
    def _grouped(cls, folder: Path | str, connection: Any, query: str, items: int, block: int) -> Self:
        parts = grouping.sorted_rows(connection, query, items)
        return cls.write(folder, parts, items, block, users_private=True)

    # ---- as rows

    def enforced(self, unit: Unit) -> Store:
        if not isinstance(unit, PatternUnit):
            raise TypeError(f"the unit of a store must be Interaction(...) or User(...), got {unit!r}")
        whole = self if self.columns is None else Store.open(self.folder)
        for part in whole.parts():
            if not _sound(part.indptr, part.indices, whole.shape[1]):
                raise ValueError(f"{self.folder}: items out of range, or not increasing: the store is damaged")
        return replace(self, enforced_for=unit)

    def restricted(self, columns: NDArray[np.int64]) -> Store:
        return replace(self, columns=composed(self.columns, columns), shape=(self.shape[0], len(columns)))

    def total(self, work: Callable[[Any], NDArray[np.int64]], progress: Progress = silent) -> NDArray[np.int64]:
        total: NDArray[np.int64] | None = None
        for number, part in enumerate(self.parts()):
            part_sum = work(part)
            total = part_sum if total is None else np.add(total, part_sum, out=total)
            progress((number + 1) / len(self.blocks))
        return work(sp.csr_array((0, self.shape[1]), dtype=bool)) if total is None else total

    def parts(self) -> Iterator[sp.csr_array]:
        """Block after block; the next one is read in the background."""
        starts = np.cumsum([(0, 0), *self.blocks], axis=0)
        places = [
            (int(first), int(offset), *block) for (first, offset), block in zip(starts, self.blocks, strict=False)
        ]
        return ahead(lambda place: self._read(*place), places, 1)

    def block(self, number: int) -> sp.csr_array:
        """The block of this number."""
        before = self.blocks[:number]
        first, offset = (sum(block[k] for block in before) for k in (0, 1))
        return self._read(first, offset, *self.blocks[number])

    def _read(self, first: int, offset: int, users: int, entries: int) -> sp.csr_array:
        degrees = _numbers(self.folder / "degrees.i4", first, users)
        indices = _numbers(self.folder / "items.i4", offset, entries)
        indptr = np.zeros(users + 1, dtype=np.int64)
        np.cumsum(degrees, out=indptr[1:])
        if degrees.min(initial=0) < 0 or indptr[-1] != entries:
            raise ValueError(f"{self.folder}: the degrees of a block do not add up: the store is damaged")
        items = self.shape[1]
        if self.columns is not None:
            place = np.full(int(max(indices.max(initial=0), self.columns[-1])) + 1, -1, dtype=np.int32)
            place[self.columns] = np.arange(len(self.columns), dtype=np.int32)
            indptr, indices = _renumbered(indptr, indices, place)
        part = sp.csr_array((users, items), dtype=bool)
        part.indptr, part.indices = indptr, indices
        part.data = np.broadcast_to(np.True_, indices.shape)  # every stored entry is a one
        return part


def _numbers(file: Path, start: int, count: int) -> NDArray[np.int32]:
    return np.fromfile(file, dtype="<i4", count=count, offset=4 * start).astype(np.int32, copy=False)


@jit
def _sound(indptr, indices, items):  # type: ignore[no-untyped-def]
    """Whether items increase within each row and are in range."""
    for u in range(indptr.size - 1):
        last = -1
        for e in range(indptr[u], indptr[u + 1]):
            if indices[e] <= last or indices[e] >= items:
                return False
            last = indices[e]
    return True


@jit
def _renumber(indptr, indices, place, out_ptr, out):  # type: ignore[no-untyped-def]
    count = 0
    for u in range(indptr.size - 1):
        for e in range(indptr[u], indptr[u + 1]):
            new = place[indices[e]]
            if new >= 0:
                out[count] = new
                count += 1
        out_ptr[u + 1] = count
    return count


def _renumbered(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], place: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The pattern with columns renumbered by `place`, where −1 stands for a column that is left out."""
    pointers, columns = np.zeros_like(indptr), np.empty_like(indices)
    count = _renumber(indptr, indices, place, pointers, columns)
    return pointers, columns[:count]


class _Writer:
    """Appends users to the two files; store.json is written at the end, unless there was an error."""

    def __init__(self, folder: Path, items: int, block: int, users_private: bool) -> None:
        self.folder, self.items, self.block = folder, checks.integer("items", items, low=1, high=2**31 - 1), block
        self.users_private = users_private
        self.blocks: list[list[int]] = [[0, 0]]

    def __enter__(self) -> Self:
        self._degrees: IO[bytes] = (self.folder / "degrees.i4").open("wb")
        self._items: IO[bytes] = (self.folder / "items.i4").open("wb")
        return self

    def add(self, degrees: NDArray[Any], indices: NDArray[Any]) -> None:
        self._degrees.write(degrees.astype("<i4").tobytes())
        self._items.write(indices.astype("<i4").tobytes())
        ends = np.cumsum(degrees)
        start = done = 0
        while start < len(degrees):
            room = self.block - self.blocks[-1][1]
            stop = int(np.searchsorted(ends, done + room, side="right"))
            if stop <= start and self.blocks[-1][0]:
                self.blocks.append([0, 0])
                continue
            stop = max(stop, start + 1)
            end = int(ends[stop - 1])
            self.blocks[-1][0] += stop - start
            self.blocks[-1][1] += end - done
            start, done = stop, end

    def __exit__(self, failed: object, *_: object) -> None:
        self._degrees.close()
        self._items.close()
        if failed is None:
            blocks = [block for block in self.blocks if block[0]]
            text = json.dumps(
                {"format": _FORMAT, "items": self.items, "users_private": self.users_private, "blocks": blocks}
            )
            write_text(self.folder / "store.json", text)
