"""Settings files (TOML) of a party or a peer: read, and checked field by field before anything else happens."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from dpspectral.core import checks
from dpspectral.privacy.units import Unit, unit_by_name

UNIT = ("unit", "floor", "weighting", "neighbours", "row_norm")
Settings = TypeVar("Settings")


class SettingsError(ValueError):
    """A settings file is wrong; the text names the file and the field."""


def read(file: Path, check: Callable[[Path, dict[str, Any]], Settings]) -> Settings:
    """What `check(folder, table)` makes of a file; whatever is wrong with it is a SettingsError that names the file."""
    try:
        return check(file.resolve().parent, tomllib.loads(file.read_text()))
    except (OSError, ValueError, TypeError, RecursionError) as error:  # also: not TOML, not UTF-8
        raise SettingsError(f"{file}: {error}") from error


def table(given: Any, known: Collection[str], needed: Collection[str] = (), where: str = "") -> dict[str, Any]:
    """A table of a file, if it has all fields that are needed and none that is unknown."""
    if not isinstance(given, dict):
        raise TypeError(f"{where}must be a table, got {given!r}")
    if unknown := sorted(set(given) - set(known)):
        close = difflib.get_close_matches(unknown[0], known, 1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(f"{where}does not know {', '.join(unknown)}{meant}")
    for name in needed:
        if name not in given:
            raise ValueError(f"{where}{name} is missing")
    return given


def text(given: Mapping[str, Any], name: str, where: str = "") -> str:
    if not isinstance(given[name], str):
        raise TypeError(f'{where}{name} must be text in quotes, {name} = "...", got {given[name]!r}')
    return str(given[name])


def seed(given: Mapping[str, Any]) -> int | None:
    """Of reproducible noise, for tests only."""
    checks.optional_integer("not_private_seed", given.get("not_private_seed"), low=0)
    return given.get("not_private_seed")


def unit(given: Mapping[str, Any]) -> Unit:
    """The unit of privacy that the fields UNIT (and `binarize`) name."""
    return unit_by_name(
        given["unit"], given.get("floor"), given.get("weighting", "sqrt"), given.get("neighbours", "add-remove"),
        given.get("row_norm"), given.get("binarize", False),
    )  # fmt: skip
