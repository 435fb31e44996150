"""Files: written atomically, checked beforehand to be writable; arrays read with plain errors."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection
from lzma import LZMAError
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any
from zipfile import BadZipFile
from zlib import error as ZlibError  # noqa: N812

import numpy as np
from numpy.typing import NDArray

# What NumPy raises on a damaged file of arrays, or on any other file (collected by fuzzing, tests/fuzz).
UNREADABLE = (
    OSError, ValueError, KeyError, EOFError, AttributeError, TypeError, OverflowError, NotImplementedError, MemoryError,
    SyntaxError, RuntimeError, IndexError, BadZipFile, ZlibError, LZMAError, TokenError,
)  # fmt: skip


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise OSError now if `path` could not be written later."""
    target = Path(path).resolve()
    if not target.parent.is_dir():
        raise OSError(f"cannot write {target}: the folder {target.parent} does not exist")
    if target.is_dir():
        raise OSError(f"cannot write {target}: it is a folder")
    if target.exists() and not target.is_file():
        raise OSError(f"cannot write {target}: it is not a regular file")
    if target.exists() and not os.access(target, os.W_OK):
        raise OSError(f"cannot write {target}: it is write-protected")
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise OSError(f"cannot write {target}: {error.strerror or error}") from error


def write_whole(path: str | os.PathLike[str], fill: Callable[[IO[bytes]], object]) -> None:
    """Let `fill` write a temporary file beside `path`, then rename it into place atomically."""
    target = Path(path).resolve()  # a link keeps pointing to its file
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            fill(stream)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # as an ordinary new file, not as a temporary one
        os.replace(temporary, target)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # the error of a full disk names no file
            raise OSError(error.errno, error.strerror or str(error), str(target)) from error
        raise


def flush(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: str | os.PathLike[str], text: str, errors: str = "strict") -> None:
    """Write the text as UTF-8, atomically."""
    content = text.encode(errors=errors)
    write_whole(path, lambda stream: stream.write(content))


def read_arrays(path: str | os.PathLike[str], names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file (only these names, if not None); ValueError for any other file."""
    try:
        with np.load(path, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files if names is None or name in names}
        if not all(isinstance(values, np.ndarray) for values in arrays.values()):
            raise ValueError("a member is not an array")
    except UNREADABLE as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{path}: not a readable .npz file of plain arrays") from error
    return arrays
