"""The list of items that holders of data on different machines must share."""

from __future__ import annotations

from pathlib import Path

from dpspectral.data.tables import read_catalogue
from dpspectral.protocols.common.keys import digest


def catalogue_digest(items: Path) -> str:
    """What machines compare: the list of items, in order."""
    return digest(b"".join(name.encode() + b"\n" for name in read_catalogue(str(items)))).hex()
