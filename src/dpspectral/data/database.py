"""A DuckDB database for one call: in memory, larger tables in a private folder that is removed afterwards.

Nothing is detected and nothing is fetched: extensions are neither installed nor loaded, objects of this process are not
looked up by name, and files are read only where a query names them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from dpspectral.core.threads import cores


@contextmanager
def database(
    folder: Path | None = None, *, memory: str | None = None, on_disk: bool = False
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection. Tables that do not fit `memory` go to a new folder inside `folder`, which only its owner can enter.

    `on_disk`: tables themselves are kept there, compressed.
    """
    scratch = tempfile.mkdtemp(prefix=".dpspectral.", dir=folder)  # mode 0700
    settings: dict[str, Any] = {
        "temp_directory": scratch,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
        "python_enable_replacements": False,
        "preserve_insertion_order": False,
        "threads": cores(),
    }
    if memory is not None:
        settings["memory_limit"] = memory
    try:
        with duckdb.connect(str(Path(scratch, "tables")) if on_disk else ":memory:", config=settings) as connection:
            connection.execute("SET enable_progress_bar = false")  # it is printed on stdout, amid what --json says
            yield connection
    except duckdb.OutOfMemoryException as error:
        raise MemoryError(str(error).splitlines()[0]) from error
    except RuntimeError as error:  # DuckDB turns the first Ctrl-C during a query into this
        if str(error) != "Query interrupted":
            raise
        raise KeyboardInterrupt from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
