"""How records are read: fixed by options, by a file's name or by its header, before any record is read.

What a record becomes must be a function of that record and of these options. If a delimiter, a number of fields or a
type were inferred from the records, one person could change how all others are read, and no bound would hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dpspectral.core import checks, names
from dpspectral.data.columns import ROLES
from dpspectral.data.period import Period

OPTIONS = names.READING
BLANKS = " "  # runs of spaces and tabs
_DELIMITERS = {
    ",": ",", "comma": ",", "tab": "\t", "\t": "\t", ";": ";", "semicolon": ";", "|": "|", "pipe": "|", "::": "::",
    "blanks": BLANKS, BLANKS: BLANKS,
}  # fmt: skip
_BY_SUFFIX = {
    ".csv": ",", ".tsv": "\t", ".tab": "\t", ".data": "\t", ".base": "\t", ".test": "\t", ".inter": "\t", ".dat": "::",
}  # fmt: skip
_BY_HEADER = (",", ";", "\t", "|", "::")  # delimiters that a header may have, if the file's name says another one
_JSON = (".jsonl", ".ndjson")
_LISTS = ("train.txt", "test.txt")  # names of LightGCN
_DELIMITER_NAMES = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "'|'", "::": "'::'", BLANKS: "blanks"}
_EXPECTED = {
    "pairs": "user, item[, rating[, time]] on each line",
    "lists": "a user and their items on each line",
    "ratings": "the number of ratings and then one rating for each item on each line, 99 for none,",
    "json-lines": "one JSON object with a user and an item on each line",
}
COMPRESSIONS = (".gz", ".zst", ".zstd")


@dataclass(frozen=True)
class Reading:
    """The options. None: by the file's name, its header, or usual names of columns."""

    user: str | None = None
    item: str | None = None
    rating: str | None = None
    time: str | None = None
    min_rating: float | None = None
    since: Any = None
    until: Any = None
    header: bool | None = None
    format: str | None = None
    delimiter: str | None = None
    bad_lines: str = "error"
    unknown_items: str = "error"

    def __post_init__(self) -> None:
        for role in ROLES:
            if (name := getattr(self, role)) is not None and not isinstance(name, str):
                raise TypeError(f"{role} must be the name of a column, got {name!r}")
        if self.min_rating is not None:
            object.__setattr__(self, "min_rating", checks.real("min_rating", self.min_rating))
        if self.header is not None:
            checks.flag("header", self.header)
        if self.format is not None:
            checks.choice("format", self.format, names.FORMATS)
        if self.delimiter is not None:
            checks.choice("delimiter", self.delimiter, tuple(_DELIMITERS))
        checks.choice("bad_lines", self.bad_lines, names.BAD_LINES)
        checks.choice("unknown_items", self.unknown_items, names.UNKNOWN_ITEMS)
        _ = self.period
        if self.header is False and any(self.columns.values()):
            raise ValueError("user, item, rating and time are names of columns, but header=False says there are none")

    @cached_property
    def period(self) -> Period:
        return Period(self.since, self.until)

    @property
    def columns(self) -> dict[str, str | None]:
        """What the columns are called, where the options say it."""
        return {role: getattr(self, role) for role in ROLES}

    @property
    def given(self) -> dict[str, Any]:
        """The options as arguments."""
        return {name: getattr(self, name) for name in OPTIONS}

    @property
    def skips(self) -> bool:
        return self.bad_lines == "skip"

    @property
    def drops(self) -> bool:
        return self.unknown_items == "drop"

    def layout(self, file: Path) -> Layout:
        """How a text file is laid out, by the options and by its name."""
        plain = uncompressed(file)
        format = self.format
        if format is None:
            json = plain.suffix.lower() in _JSON
            format = "json-lines" if json else "lists" if plain.name in _LISTS else "pairs"
        if self.delimiter is not None:
            separator = _DELIMITERS[self.delimiter]
        else:
            separator = BLANKS if format == "lists" else _BY_SUFFIX.get(plain.suffix.lower(), BLANKS)
        by_header = _BY_HEADER if self.delimiter is None and format == "pairs" else ()
        named = any(self.columns.values())
        return Layout(format, separator, True if named and format == "pairs" else self.header, by_header)

    def only_text(self) -> bool:
        """Whether something is said that holds for text files only."""
        return (self.header, self.format, self.delimiter) != (None, None, None)


@dataclass(frozen=True)
class Layout:
    """How one text file is laid out."""

    format: str
    delimiter: str
    header: bool | None
    others: tuple[str, ...] = ()  # delimiters that its header may have instead

    @property
    def words(self) -> str:
        return _EXPECTED[self.format] + ("" if self.format == "json-lines" else f" {self.separated}")

    @property
    def separated(self) -> str:
        return f"separated by {_DELIMITER_NAMES[self.delimiter]}"

    @property
    def remedy(self) -> str:
        return (
            f"it is read as {self.words}; if that is wrong, use format=, delimiter= or header= (--format, --delimiter, "
            "--header, --no-header)"
        )


def uncompressed(file: Path) -> Path:
    """The name without the ending of a compressed file."""
    return file.with_suffix("") if file.suffix.lower() in COMPRESSIONS else file


def options(settings: Mapping[str, Any], mark: str = "_") -> dict[str, Any]:
    """The options of reading among some settings, as arguments of `read`; `mark` joins the words of their names."""
    values = {name: settings.get(name.replace("_", mark)) for name in OPTIONS}
    given = {name: value for name, value in values.items() if value is not None}
    Reading(**given)
    return given
