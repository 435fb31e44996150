"""Blocks of whole lines of a text file, plain or compressed. A line ends at "\\n"; a "\\r" before it is dropped."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dpspectral.data.reading import COMPRESSIONS
from dpspectral.data.tables import DataError

_BLOCK = 1 << 22
_LONGEST = 1 << 27  # bytes of a line: a file without line ends must not fill the memory
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_NEEDS_CARE = (b"\0", _BOM)


class Block(NamedTuple):
    """Some whole lines."""

    first: int  # number of its first line, from 1
    content: bytes  # without the end of the last line
    part: float  # of the file that was read with it

    def text(self) -> str | None:
        """The lines, joined by "\\n"; None if one of them has a character that must be looked at line by line."""
        if any(mark in self.content for mark in _NEEDS_CARE):
            return None
        try:
            text = self.content.decode()
        except UnicodeDecodeError:
            return None
        return text.replace("\r\n", "\n").removesuffix("\r") if "\r" in text else text

    def number_of(self, line: str) -> int:
        """The number of the first line that reads so."""
        return next((number for number, one in self.lines() if one == line), self.first)

    def lines(self) -> Iterator[tuple[int, str | LineError]]:
        """Numbered lines that are not empty; an error in place of one that is not text."""
        for number, raw in enumerate(self.content.split(b"\n"), self.first):
            content = raw.removesuffix(b"\r")
            if content:
                yield number, _decoded(content)


class LineError(ValueError):
    """A malformed line; the message says what is wrong with it. `layout`: perhaps the file is laid out otherwise."""

    def __init__(self, message: str, layout: bool = False) -> None:
        super().__init__(message)
        self.layout = layout


def blocks(file: Path, size: int = _BLOCK) -> Iterator[Block]:
    """The file, block after block; a byte order mark at its beginning is dropped."""
    number, total = 1, file.stat().st_size
    with opened(file) as (stream, position):
        if not total and file.suffix.lower() in COMPRESSIONS:
            raise DataError(f"{file}: cannot be read to its end (it is empty, which no compressed file is)")
        rest = b""
        while True:
            more = _read(file, stream, size)
            end, first = more.rfind(b"\n"), more.find(b"\n")
            if len(rest) + (len(more) if first < 0 else first) > _LONGEST:
                raise DataError(f"{file}, line {number}: longer than {_LONGEST >> 20} MiB; is it a text file?")
            if more and end < 0:
                rest += more
                continue
            content, rest = (rest + more[:end], more[end + 1 :]) if more else (rest, b"")
            if number == 1:
                content = content.removeprefix(_BOM)
            if content or more:
                yield Block(number, content, min(position() / max(total, 1), 1.0))
                number += content.count(b"\n") + 1
            if not more:
                return


def _decoded(content: bytes) -> str | LineError:
    if content.startswith(_BOM):  # dropped at the beginning of a file only: its meaning would depend on other lines
        return LineError("it begins with a byte order mark; expected text")
    try:
        line = content.decode()
    except UnicodeDecodeError as error:
        if content.startswith(_UTF16) and b"\0" in content:
            return LineError("UTF-16 text; save the file as UTF-8")
        return LineError(f"not UTF-8 text ({error.reason} at byte {error.start} of the line); save the file as UTF-8")
    return LineError("a NUL character; expected text") if "\0" in line else line


@contextmanager
def opened(file: Path) -> Iterator[tuple[Any, Callable[[], int]]]:
    """A file's bytes, uncompressed, and how far in the file itself one has come."""
    try:
        raw = file.open("rb")
    except OSError as error:
        raise DataError(f"{file}: {error.strerror or error}") from error
    with raw:
        stream: Any = raw
        kind = file.suffix.lower()
        if kind == ".gz":
            stream = gzip.GzipFile(fileobj=raw, mode="rb")
        elif kind in COMPRESSIONS:
            stream = _arrow(file).CompressedInputStream(raw, "zstd")
        yield stream, lambda: os.lseek(raw.fileno(), 0, os.SEEK_CUR)


def _arrow(file: Path) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise DataError(f"{file}: reading zstd needs pyarrow: pip install 'dpspectral[files]'") from None
    return pyarrow


def _read(file: Path, stream: Any, size: int) -> bytes:
    try:
        return bytes(stream.read(size))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file}: cannot be read to its end ({error})") from error
