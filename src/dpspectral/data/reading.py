"""How a text file is read: fixed by options or by its name, before a line of it is looked at.

What a record becomes must be a function of that record and of these options. A delimiter, a number of fields or a type
that is guessed from the lines lets one person change how everybody else is read, and then no bound holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpspectral.core import checks, names

OPTIONS = names.READING
BLANKS = " "  # runs of spaces and tabs
_DELIMITERS = {",": ",", "comma": ",", "tab": "\t", "\t": "\t", "::": "::", "blanks": BLANKS, BLANKS: BLANKS}
_BY_SUFFIX = {
    ".csv": ",", ".tsv": "\t", ".tab": "\t", ".data": "\t", ".base": "\t", ".test": "\t", ".inter": "\t", ".dat": "::",
}  # fmt: skip
_LISTS = ("train.txt", "test.txt")  # LightGCN's
_CALLED = {",": "commas", "\t": "tabs", "::": "'::'", BLANKS: "blanks"}
_EXPECTED = {
    "pairs": "user, item[, rating[, time]] on each line",
    "lists": "a user and their items on each line",
    "ratings": "the number of ratings and then one rating for each item on each line, 99 for none,",
}


@dataclass(frozen=True)
class Reading:
    """What one text file is taken for."""

    format: str
    delimiter: str
    header: bool | None

    @classmethod
    def of(cls, file: Path, header: bool | None, format: str | None, delimiter: str | None) -> Reading:
        """The options where they are given; the file's name for the rest."""
        if format is None:
            format = "lists" if file.name in _LISTS else "pairs"
        if delimiter is not None:
            separator = _DELIMITERS[delimiter]
        else:
            separator = BLANKS if format == "lists" else _BY_SUFFIX.get(file.suffix.lower(), BLANKS)
        return cls(format, separator, header)

    @property
    def words(self) -> str:
        return f"{_EXPECTED[self.format]} {self.separated}"

    @property
    def separated(self) -> str:
        return f"separated by {_CALLED[self.delimiter]}"

    @property
    def remedy(self) -> str:
        return f"it is read as {self.words}; if it is not that, say so: --format, --delimiter, --header or --no-header"


def check(header: Any, format: Any, delimiter: Any) -> None:
    """Options as `Reading.of` takes them, None where they are not given."""
    if header is not None:
        checks.flag("header", header)
    if format is not None:
        checks.choice("format", format, names.FORMATS)
    if delimiter is not None:
        checks.choice("delimiter", delimiter, tuple(_DELIMITERS))


def options(found: Mapping[str, Any], mark: str = "_") -> dict[str, Any]:
    """What settings say about reading files, as arguments of `load`; `mark` joins the words of their names."""
    given = {name: found.get(name.replace("_", mark)) for name in OPTIONS}
    if given["min_rating"] is not None:
        checks.real("min_rating", given["min_rating"])
    check(given["header"], given["format"], given["delimiter"])
    return given
