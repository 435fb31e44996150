"""How a text file is read: fixed by options or by its name, before any line is read.

What a record becomes must be a function of that record and of these options. If a delimiter, a number of fields or a
type were inferred from the lines, one person could change how all other records are read, and no bound would hold.
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
_LISTS = ("train.txt", "test.txt")  # names of LightGCN
_DELIMITER_NAMES = {",": "commas", "\t": "tabs", "::": "'::'", BLANKS: "blanks"}
_EXPECTED = {
    "pairs": "user, item[, rating[, time]] on each line",
    "lists": "a user and their items on each line",
    "ratings": "the number of ratings and then one rating for each item on each line, 99 for none,",
}


@dataclass(frozen=True)
class Reading:
    """How one text file is read."""

    format: str
    delimiter: str
    header: bool | None

    @classmethod
    def of(cls, file: Path, header: bool | None, format: str | None, delimiter: str | None) -> Reading:
        """From the options, and from the file's name where they are None."""
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
        return f"separated by {_DELIMITER_NAMES[self.delimiter]}"

    @property
    def remedy(self) -> str:
        return f"it is read as {self.words}; if that is wrong, use --format, --delimiter, --header or --no-header"


def check(header: Any, format: Any, delimiter: Any) -> None:
    """Options as `Reading.of` takes them; None where they are not set."""
    if header is not None:
        checks.flag("header", header)
    if format is not None:
        checks.choice("format", format, names.FORMATS)
    if delimiter is not None:
        checks.choice("delimiter", delimiter, tuple(_DELIMITERS))


def options(settings: Mapping[str, Any], mark: str = "_") -> dict[str, Any]:
    """The options of reading among some settings, as arguments of `load`; `mark` joins the words of their names."""
    values = {name: settings.get(name.replace("_", mark)) for name in OPTIONS}
    if values["min_rating"] is not None:
        checks.real("min_rating", values["min_rating"])
    check(values["header"], values["format"], values["delimiter"])
    return values
