"""Text files of pairs: one pair, one user with all their items, or one JSON object per line.

Each line is read on its own (`records.py`): no line affects how another is read. Python cuts the file into lines, and
DuckDB splits those without anything unusual, block by block; all others are parsed one at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dpspectral.core.threads import ahead, cores
from dpspectral.data import columns
from dpspectral.data.lines import Block, LineError, blocks
from dpspectral.data.pairs import PairTable
from dpspectral.data.reading import Layout, Reading
from dpspectral.data.records import MOST_FIELDS, JsonLines, Lines, ListLines, PairLines, Pairs, check_rating, split
from dpspectral.data.tables import DataError, rating_notes

_HEADER = "; if line 1 is a header, name its columns: user=, item= (--user, --item), or say header=True (--header)"
Fraction = Callable[[float], object]


class _Content(NamedTuple):
    """A text file: what its lines are, those that are not a header, and what to say about it."""

    layout: Layout
    lines: Lines
    blocks: Iterator[Block]
    notes: list[str]


def read_text(file: Path, table: PairTable, reading: Reading, progress: Fraction) -> list[str]:
    """Add the pairs of a file; what is to be said about it."""
    content = _opened(file, table.names, reading)
    local = threading.local()

    def work(block: Block) -> tuple[Block, list[str] | None]:
        if not hasattr(local, "connection"):
            local.connection = table.connection.cursor()
        return block, _add_plain(local.connection, content.lines, block)

    for block, rest in ahead(work, content.blocks, cores()):
        pairs, errors = _parsed(block, rest, content.lines)
        if errors and not reading.skips:
            number, error = min(
                ((number or block.number_of(line), error) for number, line, error in errors), key=lambda one: one[0]
            )
            raise _malformed(file, number, error, content.layout)
        table.add(pairs)
        table.read = table.read or bool(block.content.strip())
        progress(block.part)
    return content.notes


def _parsed(block: Block, rest: list[str] | None, lines: Lines) -> tuple[Pairs, list[tuple[int, str, LineError]]]:
    """The pairs of lines that were not plain (None: of all lines), and what is malformed among them."""
    pairs: Pairs = []
    errors: list[tuple[int, str, LineError]] = []  # number (0 if not known yet), line, what is wrong
    for number, line in block.lines() if rest is None else ((0, line) for line in rest):
        try:
            if isinstance(line, LineError):
                raise line
            pairs += lines.parse(line)
        except LineError as error:
            errors.append((number, str(line), error))
    return pairs, errors


def find_unknown(file: Path, table: PairTable, reading: Reading) -> None:
    """Raise DataError about the first line with an item outside the list."""
    known = set(table.names or ())
    content = _opened(file, table.names, reading)
    for block in content.blocks:
        for number, line in block.lines():
            try:
                pairs = [] if isinstance(line, LineError) else content.lines.parse(line)
            except LineError:
                continue
            for _, item in pairs:
                if item not in known:
                    hint = _HEADER if number == 1 else ""
                    raise DataError(f"{table.outside(item, f'{file}, line {number}')}{hint}")


def _add_plain(connection: Any, lines: Lines, block: Block) -> list[str] | None:
    """Add the pairs of lines that need no care; the others. None if each line of the block has to be looked at."""
    text = None if lines.delimiter is None else block.text()
    if text is None:
        return None
    connection.execute(
        f"""CREATE OR REPLACE TEMP TABLE fields AS SELECT line, {lines.fields()} FROM (
            SELECT line, string_split({lines.bare("line")}, $2) AS f
            FROM (SELECT unnest(string_split($1, chr(10))) AS line) WHERE line <> '')""",
        [text, lines.delimiter],
    )
    connection.execute(f"INSERT INTO pairs {lines.pairs()}")
    odd = connection.execute(f"SELECT line FROM fields WHERE ({lines.plain()}) IS NOT TRUE").fetchall()
    return [str(line) for (line,) in odd]


def _opened(file: Path, names: list[str] | None, reading: Reading) -> _Content:
    """A file whose header, if it has one, has been read."""
    layout, content = reading.layout(file), blocks(file)
    if layout.format == "json-lines":
        return _Content(layout, JsonLines(reading), content, [f"read as {layout.words}", *_rating_notes(True, reading)])
    if layout.format == "lists":
        if layout.header:
            raise DataError(f"{file}: {layout.words}; such files have no header")
        if reading.min_rating is not None or reading.period.given or any(reading.columns.values()):
            raise DataError(f"{file}: {layout.words}; a minimum rating, times and columns do not apply to such files")
        return _Content(layout, ListLines(layout.delimiter), content, [f"read as {layout.words}"])
    first = next(content, Block(1, b"", 1.0))
    line, _, rest = first.content.partition(b"\n")
    header = _header(file, _line(line), layout, reading, set(names or ()))
    if header is None:
        lines, notes = PairLines(reading, layout.delimiter, None, layout.header), [f"read as {layout.words}"]
    else:
        first, (layout, named) = first._replace(first=2, content=rest), header
        lines = PairLines(reading, layout.delimiter, named, layout.header)
        told = ", ".join(name.strip() for name in named)
        notes = [f"read as {layout.separated}, line 1 names the columns: {told}"]
    if reading.min_rating is not None and not lines.rated:
        raise DataError(f"{file}: a minimum rating was asked for, but line 1 names no column of ratings; use --rating")
    if reading.period.given and not lines.timed:
        raise DataError(f"{file}: a period was asked for, but line 1 names no column of times (or several); use --time")
    return _Content(layout, lines, _chained(first, content), notes + _rating_notes(lines.rated, reading))


def _rating_notes(rated: bool, reading: Reading) -> list[str]:
    return rating_notes(rated, reading.min_rating)


def _chained(first: Block, rest: Iterator[Block]) -> Iterator[Block]:
    yield first
    yield from rest


def _line(content: bytes) -> str:
    """Line 1; nothing if it is not text, which is an error of its own later."""
    found = next(Block(1, content, 0.0).lines(), (1, ""))[1]
    return "" if isinstance(found, LineError) else found


def _header(
    file: Path, line: str, layout: Layout, reading: Reading, items: set[str]
) -> tuple[Layout, list[str]] | None:
    """The names of the columns and the delimiter between them, if line 1 is a header.

    It is one if an option says so; if it names columns of users or items and could not be a record; or if it has just
    two fields and both are such names. If an item has that name, the option is required.
    """
    if layout.header is False:
        return None
    candidates = list(dict.fromkeys([layout.delimiter, *layout.others]))
    if layout.header:
        if not line:
            raise DataError(f"{file}, line 1: it is empty, but was declared a header; {layout.remedy}")
        problem, most = "", 0
        for delimiter in candidates:
            fields = _fields(line, delimiter)
            try:
                columns.places(fields, reading.columns)
            except ValueError as error:
                if len(fields) > most:  # probably the one that was meant
                    problem, most = str(error), len(fields)
            else:
                return _with_delimiter(layout, delimiter), fields
        raise DataError(f"{file}, line 1: {problem}; use header=False (--no-header) if line 1 is data")
    fields = _fields(line, layout.delimiter)
    if _may_be_record(fields):  # then it is read as one, with its own delimiter, unless both fields are names
        candidates = [layout.delimiter] if len(fields) == 2 and columns.names_users_and_items(fields) else []
    for delimiter in candidates:
        fields = _fields(line, delimiter)
        if len(fields) < 2 or not any(columns.role_of(field) in ("user", "item") for field in fields):
            continue
        if reading.skips:  # then a malformed record is left out wherever it stands, and must not name columns
            raise DataError(
                f"{file}, line 1: {line[:80]!r} may be a header or a malformed record; with bad lines left out it has "
                "to be said: use user= and item= (--user, --item), or header= (--header, --no-header)"
            )
        if len(fields) == 2 and fields[1] in items:
            raise DataError(
                f"{file}, line 1: {line!r} may be a header or, since an item is called {fields[1]!r}, a record; use "
                "--header or --no-header"
            )
        try:
            columns.places(fields, reading.columns)
        except ValueError as error:
            raise DataError(f"{file}, line 1: {error}; use header=False (--no-header) if line 1 is data") from error
        return _with_delimiter(layout, delimiter), fields
    return None


def _with_delimiter(layout: Layout, delimiter: str) -> Layout:
    return Layout(layout.format, delimiter, layout.header)


def _fields(line: str, delimiter: str) -> list[str]:
    try:
        return split(line, delimiter)
    except LineError:
        return []


def _may_be_record(fields: list[str]) -> bool:
    if not 2 <= len(fields) <= MOST_FIELDS or not fields[0] or not fields[1]:
        return False
    try:
        return len(fields) == 2 or check_rating(fields[2], None)
    except LineError:
        return False


def _malformed(file: Path, number: int, what: LineError, layout: Layout) -> DataError:
    hints = f"; {layout.remedy}" if what.layout else ""
    hints += _HEADER if number == 1 and layout.format == "pairs" and layout.header is None else ""
    return DataError(f"{file}, line {number}: {what}{hints}; bad_lines='skip' (--bad-lines skip) leaves such lines out")
