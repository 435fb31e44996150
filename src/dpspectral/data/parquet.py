"""Parquet files of records, by DuckDB: a column of users, one of items, optionally ratings and times."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import numpy as np

from dpspectral.data import columns, identity
from dpspectral.data.lines import LineError
from dpspectral.data.reading import Reading
from dpspectral.data.records import check_rating, check_time, least_of_type
from dpspectral.data.tables import DataError, rating_notes

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")  # fit 64 signed bits
_WHOLE = (*INTEGERS, "UBIGINT", "HUGEINT", "UHUGEINT")
_NUMBERS = (*_WHOLE, "FLOAT", "DOUBLE", "DECIMAL")
_TEXT = "VARCHAR"  # ratings and times may be, as in a text file
_ZONED = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")
_GAP = "__HIVE_DEFAULT_PARTITION__"  # the name of a folder for records without a value


class ParquetFile:
    """One file: which of its columns are used, and SQL for the records that count."""

    def __init__(
        self, connection: Any, file: Path, reading: Reading, folder: Path | None = None, number: int = 0
    ) -> None:
        self.connection, self.file, self.reading, self._number = connection, file, reading, number
        self.records = self._records(folder)
        described = self._described(self.records)
        names, types = [name for name, _ in described], [kind for _, kind in described]
        try:
            at = columns.places(names, reading.columns)
        except ValueError as error:
            raise DataError(f"{file}: {error}") from error
        self.names = {role: names[k] for role, k in at.items()}
        self.types = {role: types[k] for role, k in at.items()}
        self._texts: dict[str, str] = {}  # tables of what texts or values of a column stand for, by role
        self._judgements: set[str] = set()  # those that are made
        self._check_roles()

    def _records(self, folder: Path | None) -> str:
        """SQL: all columns, also those in the names of folders between `folder` and the file."""
        if any("\ud800" <= letter <= "\udfff" for letter in str(self.file.absolute())):
            raise DataError(f"{str(self.file)!a}: its path is not UTF-8 text; give it another name")
        path = quoted(glob.escape(str(self.file.absolute())))  # a path is a pattern to DuckDB, and ~ the home folder
        records = f"read_parquet({path}, hive_partitioning = false)"
        names = [name for name, _ in self._described(records)]
        with readable(self.file):
            rows = self.connection.execute(f"SELECT name FROM parquet_schema({path})").fetchall()
        _check_names(self.file, names, {str(name) for (name,) in rows})
        own = {name.lower() for name in names}  # what a record itself says comes first
        added = {name: value for name, value in _partitions(self.file, folder).items() if name.lower() not in own}
        if not added:
            return records
        texts = (f"{quoted(value)}::VARCHAR AS {_name(name)}" for name, value in added.items())
        return f"(SELECT *, {', '.join(texts)} FROM {records})"

    def _described(self, records: str) -> list[tuple[str, str]]:
        """Names and types of columns."""
        with readable(self.file):
            described = self.connection.execute(f"DESCRIBE SELECT * FROM {records}").fetchall()
        return [(str(row[0]), str(row[1])) for row in described]

    def _check_roles(self) -> None:
        reading = self.reading
        if reading.min_rating is not None and "rating" not in self.names:
            raise DataError(f"{self.file}: a minimum rating was asked for, but there is no column of ratings")
        if "rating" in self.names and not self.types["rating"].startswith((*_NUMBERS, _TEXT)):
            raise DataError(f"{self.file}: ratings must be numbers, but {self._called('rating')}")
        if reading.period.given:
            if "time" not in self.names:
                raise DataError(f"{self.file}: a period was asked for, but there is no column of times (or several)")
            wanted = _NUMBERS if reading.period.numeric else ("TIMESTAMP", "DATE")
            if not self.types["time"].startswith((*wanted, _TEXT)):
                kind = "numbers" if reading.period.numeric else "dates or times"
                raise DataError(f"{self.file}: since and until are {kind}, but {self._called('time')}")

    def _called(self, role: str) -> str:
        return f"column {self.names[role]!r} has the type {self.types[role]}"

    @property
    def notes(self) -> list[str]:
        return rating_notes("rating" in self.names, self.reading.min_rating)

    def integers(self) -> bool:
        """Whether users are whole numbers of at most 64 signed bits, by the type of their column."""
        return self.types["user"] in INTEGERS

    def select(self, numbers: bool = False) -> str:
        """SQL for users u and items i, as text (or users as numbers). Malformed records are refused, or left out."""
        with readable(self.file):
            self._check_records()
            user = f"{self._column('user')}::BIGINT" if numbers else self._text("user")
            item, counts = self._text("item"), self._counts()
            return f"SELECT {user} AS u, {item} AS i FROM {self._joined()} WHERE {counts}"

    def _column(self, role: str) -> str:
        return f"records.{_name(self.names[role])}"

    def _check_records(self) -> None:
        """Refuse missing or invalid values, unless such records are to be left out."""
        if self.reading.skips:
            return
        tests = [(role, f"{self._column(role)} IS NULL", "empty cell(s)") for role in ("user", "item")]
        for role in ("user", "item"):
            if self.types[role] == "VARCHAR":
                column = self._column(role)
                tests.append((role, f"{column} = '' OR contains({column}, chr(0))", "empty or invalid text(s)"))
        if "rating" in self.names:
            tests.append(("rating", f"NOT ({self._rated()})", "rating(s) that are missing or not finite"))
        if self.reading.period.given:
            tests.append(("time", f"NOT ({self._timed()})", "time(s) that are missing or none"))
        counts = ", ".join(f"count(*) FILTER ({test})" for _, test, _ in tests)
        (found,) = self.connection.execute(f"SELECT {counts} FROM {self._joined()}").fetchall()
        for (role, _, what), count in zip(tests, found, strict=True):
            if count:
                raise DataError(
                    f"{self.file}: column {self.names[role]!r} has {count} {what}; --bad-lines skip leaves them out"
                )

    def _rated(self) -> str:
        """SQL: a rating that is a number, or none where none is needed."""
        column = self._column("rating")
        if self.types["rating"] == _TEXT:
            return self._judged("rating")[0]
        finite = f"isfinite({column}::DOUBLE)"
        return f"coalesce({finite}, {'false' if self.reading.min_rating is not None else 'true'})"

    def _timed(self) -> str:
        """SQL: a time that can be compared."""
        return self._judged("time")[0] if self.types["time"] == _TEXT else f"{self._column('time')} IS NOT NULL"

    def _counts(self) -> str:
        """SQL: records that are not malformed, rated high enough and inside the period."""
        reading = self.reading
        tests = [f"{self._text(role)} IS NOT NULL" for role in ("user", "item")]
        for role in ("user", "item"):
            if self.types[role] == "VARCHAR":
                tests.append(f"{self._column(role)} <> '' AND NOT contains({self._column(role)}, chr(0))")
        if "rating" in self.names:
            tests.append(self._rated())
        told = [role for role, asked in self._asked().items() if asked and self.types[role] == _TEXT]
        tests += [self._judged(role)[1] for role in told]
        if reading.min_rating is not None and "rating" not in told:
            kind = "FLOAT" if self.types["rating"] == "FLOAT" else "DOUBLE"
            least = least_of_type(reading.min_rating, np.dtype(np.float32 if kind == "FLOAT" else np.float64))
            tests.append(f"{self._column('rating')}::{kind} >= '{least!s}'::{kind}")
        for sign, limit in () if "time" in told else ((">=", reading.period.since), ("<", reading.period.until)):
            if isinstance(limit, float):
                tests.append(f"{self._column('time')}::DOUBLE {sign} {limit!r}::DOUBLE")
            elif limit is not None:
                micros = round(limit.timestamp() * 1_000_000)
                tests.append(f"epoch_us({_in_utc(self._column('time'), self.types['time'])}) {sign} {micros}")
        return " AND ".join(tests)

    def _asked(self) -> dict[str, bool]:
        return {"rating": self.reading.min_rating is not None, "time": bool(self.reading.period.given)}

    def _judged(self, role: str) -> tuple[str, str]:
        """SQL: whether a rating or time that is text is one, and counts; as in a text file, each by itself."""
        name = self._texts.setdefault(role, f"judged_{role}_{self._number}")
        run = self.connection.execute
        if name not in self._judgements:
            self._number_values(role)
            texts = [text for (text,) in run(f"SELECT v FROM distinct_{role} ORDER BY n").fetchall()]
            verdicts = [self._judge(role, text) for text in texts]
            run(
                f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT v, valid, counts FROM distinct_{role} JOIN (SELECT "
                "unnest($1::BIGINT[]) AS n, unnest($2::BOOLEAN[]) AS valid, unnest($3::BOOLEAN[]) AS counts) USING (n)",
                [list(range(1, len(texts) + 1)), [valid for valid, _ in verdicts], [counts for _, counts in verdicts]],
            )
            self._judgements.add(name)
        valid, counts = self._judge(role, None)
        return f"coalesce({name}.valid, {valid})", f"coalesce({name}.counts, {counts})"

    def _judge(self, role: str, value: str | None) -> tuple[bool, bool]:
        try:
            if role == "rating":
                return True, check_rating(value, self.reading.min_rating)
            return True, check_time(value, self.reading.period)
        except LineError:
            return False, False

    def _text(self, role: str) -> str:
        """SQL for the canonical text of an identifier, NULL where there is none."""
        if not self._unusual(role):
            return f"{self._column(role)}::VARCHAR"
        if role not in self._texts:
            self._texts[role] = self._text_table(role)
        return f"{self._texts[role]}.t"

    def _unusual(self, role: str) -> bool:
        kind = self.types[role]
        return not (kind in _WHOLE or kind == "VARCHAR" or kind.startswith("ENUM"))

    def _joined(self) -> str:
        """SQL: the records, beside the texts of identifiers of unusual types."""
        joins = (f"LEFT JOIN {name} ON {self._column(role)} = {name}.v" for role, name in self._texts.items())
        return " ".join([f"{self.records} AS records", *joins])

    def _text_table(self, role: str) -> str:
        """A table of all values v of a column and their texts t, found one by one by `identity`."""
        name, kind = f"texts_{role}_{self._number}", self.types[role]
        run = self.connection.execute
        self._number_values(role)
        zoned = kind in _ZONED
        result = run(f"SELECT {_in_utc('v', kind)} AS v FROM distinct_{role} ORDER BY n")
        values: Any
        if kind == "DATE":  # Python's end with the year 9999, which "infinity" would become
            days = "CASE WHEN isfinite(v) THEN datediff('day', DATE '1970-01-01', v) END"
            found = run(f"SELECT {days} FROM distinct_{role} ORDER BY n").fetchall()
            values = np.array([np.datetime64("NaT") if day is None else np.datetime64(day, "D") for (day,) in found])
        elif kind in ("FLOAT", "DOUBLE") or kind.startswith("TIMESTAMP"):
            values = np.asarray(result.fetchnumpy()["v"])  # Python's objects have other precisions
        else:
            values = [row[0] for row in result.fetchall()]
        texts = self._canonical(values, role)
        if zoned:
            texts = [None if text is None else identity.utc(text) for text in texts]
        run(f"CREATE OR REPLACE TEMP TABLE {name} (n BIGINT, t VARCHAR)")
        given = [(n, text) for n, text in enumerate(texts, 1) if text is not None]
        if given:
            run(f"INSERT INTO {name} SELECT unnest($1::BIGINT[]), unnest(string_split($2, chr(0)))",
                [[n for n, _ in given], "\0".join(text for _, text in given)])  # fmt: skip
        run(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT v, t FROM distinct_{role} JOIN {name} USING (n)")
        return name

    def _number_values(self, role: str) -> None:
        """The table of all values v of a column, with numbers n from 1."""
        column = self._column(role)
        self.connection.execute(
            f"CREATE OR REPLACE TEMP TABLE distinct_{role} AS SELECT v, row_number() OVER () AS n FROM "
            f"(SELECT DISTINCT {column} AS v FROM {self.records} AS records WHERE {column} IS NOT NULL)"
        )

    def _canonical(self, values: Any, role: str) -> list[str | None]:
        try:
            return [*identity.texts(values, role)]
        except identity.IdentityError as error:
            if not self.reading.skips:
                what = re.sub(r" in row \d+", "", str(error))
                raise DataError(
                    f"{self.file}: column {self.names[role]!r}: {what}; --bad-lines skip leaves it out"
                ) from error
        valid = identity.valid(values, role)
        texts = iter(identity.texts(identity.as_array(values, role)[valid], role))
        return [next(texts) if fine else None for fine in valid]


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Turn what DuckDB raises on a damaged file into a DataError of one line."""
    try:
        yield
    except duckdb.Error as error:
        if isinstance(error, (duckdb.OutOfMemoryException, duckdb.InterruptException)):
            raise
        raise DataError(f"{file}: not a readable Parquet file ({str(error).splitlines()[0][:200]})") from error


def _check_names(file: Path, names: list[str], stored: set[str]) -> None:
    """Refuse columns of the same name: DuckDB, to which case does not matter, calls the second one user_1."""
    unnamed = "" in stored  # C0 to DuckDB
    for name in names:
        if name not in stored and not (unnamed and re.fullmatch(r"C\d+", name)):
            raise DataError(f"{file}: columns of the same name, or of names that differ only in case (found {name!r})")


def _partitions(file: Path, folder: Path | None) -> dict[str, str | None]:
    """Columns in the names of folders, user=7, as text."""
    found: dict[str, str | None] = {}
    for part in () if folder is None else file.relative_to(folder).parts[:-1]:
        name, mark, value = part.partition("=")
        try:
            if mark:
                found[unquote(name, errors="strict")] = unquote(value, errors="strict") if value != _GAP else None
        except UnicodeDecodeError as error:
            raise DataError(f"{file}: the folder {part!r} is not UTF-8 text") from error
    return found


def _in_utc(column: str, kind: str) -> str:
    """SQL: instants without their zone."""
    return f"({column} AT TIME ZONE 'UTC')" if kind in _ZONED else column


def quoted(text: str | None) -> str:
    """A text in SQL."""
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
