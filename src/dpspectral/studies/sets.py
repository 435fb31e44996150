"""Which data a study runs on: files of a folder, or synthetic twins where there is none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from dpspectral.data.split import Split, load_split
from dpspectral.studies.twins import SHAPES, twin_split

# How files of each family are called, and what stands in for them.
FAMILIES = {
    "movielens": ("ml-", "ml_", "movielens"),
    "eachmovie": ("eachmovie",),
    "jester": ("jester",),
    "amazon-book": ("amazon",),
}
_SUFFIXES = (".npz", ".csv", ".tsv", ".dat", ".txt", ".parquet", ".xls")


@dataclass(frozen=True)
class DataSet:
    """A data set that a study can open."""

    key: str
    label: str  # says "synthetic" where it is
    load: Callable[[], Split]

    @cached_property
    def parts(self) -> Split:
        """Read (or made) once, however many parts of a study need it."""
        return self.load()

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the train and test interactions."""
        digest = hashlib.sha256()
        for part in (self.parts.train, self.parts.test):
            digest.update(np.asarray(part.shape, dtype=np.int64).tobytes())
            digest.update(part.indptr.astype(np.int64).tobytes())
            digest.update(part.indices.astype(np.int64).tobytes())
        return digest.hexdigest()[:16]


def files(folder: Path) -> dict[str, Path]:
    """Data sets of a folder: files by stem, folders that hold train.txt and test.txt by name."""
    paths = {}
    for path in sorted(folder.iterdir()):
        if path.is_dir() and (path / "train.txt").is_file() and (path / "test.txt").is_file():
            paths[path.name] = path
        elif path.is_file() and path.suffix.lower() in _SUFFIXES:
            paths[path.stem] = path
    return paths


def find(folder: Path | None, families: Iterable[str], wanted: Iterable[str] | None = None) -> list[DataSet]:
    """The sets of some families: those of the folder, or the twin of a family that the folder does not have.

    `wanted` picks sets by name, or all of a family.
    """
    sets: list[DataSet] = []
    present = {} if folder is None else files(folder)
    if wanted is not None:
        for name in wanted:
            if name in present:
                sets.append(_file(name, present[name]))
            elif name in SHAPES:
                sets += _family(name, present)
            else:
                known = ", ".join([*present, *SHAPES])
                raise ValueError(
                    f"no data set is called {name!r}; there are {known} (files that lie in the folder of --data, by "
                    "their names without ending, and families, which are synthetic twins where no file is called so)"
                )
        return list({one.key: one for one in sets}.values())
    for family in families:
        sets += _family(family, present)
    return sets


def _family(family: str, present: dict[str, Path]) -> list[DataSet]:
    """Its files, or its twin where there are none."""
    own = [name for name in present if name.lower().startswith(FAMILIES[family])]
    return [_file(name, present[name]) for name in own] or [_twin(family)]


def _file(name: str, path: Path) -> DataSet:
    return DataSet(name, name, lambda: load_split(path))


def _twin(family: str) -> DataSet:
    return DataSet(f"{family}-twin", SHAPES[family].label, lambda: twin_split(SHAPES[family]))
