"""What messages of every protocol are made of: lists of parties as bits, tables of entries by party."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class RefusedError(ValueError):
    """A message was not acceptable here and now. It changed nothing."""


class AbortedError(RuntimeError):
    """The round or the run cannot go on. No sum came out of it."""


def _bitmap_bytes(parties: int) -> int:
    return (parties + 7) // 8


def bitmap(members: Iterable[int], parties: int) -> bytes:
    bits = bytearray(_bitmap_bytes(parties))
    for member in members:
        bits[member // 8] |= 1 << member % 8
    return bytes(bits)


def members(bits: bytes | memoryview, parties: int) -> frozenset[int]:
    if len(bits) != _bitmap_bytes(parties):
        raise RefusedError("a list of parties of the wrong size")
    listed = frozenset(party for party in range(8 * len(bits)) if bits[party // 8] >> party % 8 & 1)
    if listed and max(listed) >= parties:
        raise RefusedError("a list of parties that do not exist")
    return listed


def members_and_rest(body: bytes | memoryview, parties: int) -> tuple[frozenset[int], bytes | memoryview]:
    """A list of parties, and what follows it."""
    size = _bitmap_bytes(parties)
    return members(body[:size], parties), body[size:]


def table(entries: Mapping[int, bytes]) -> bytes:
    """Entries of one size, by party."""
    return b"".join(party.to_bytes(4, "big") + entry for party, entry in sorted(entries.items()))


def entries(body: bytes | memoryview, size: int) -> dict[int, bytes]:
    """The inverse of `table`: increasing parties, entries of this size."""
    if len(body) % (4 + size):
        raise RefusedError("a table of the wrong size")
    rows: dict[int, bytes] = {}
    last = -1
    for start in range(0, len(body), 4 + size):
        party = int.from_bytes(body[start : start + 4], "big")
        if party <= last:
            raise RefusedError("a table whose parties are not in order")
        rows[party] = bytes(body[start + 4 : start + 4 + size])
        last = party
    return rows


def pieces(content: bytes | memoryview, size: int) -> list[bytes]:
    """Parts of one size, in order."""
    return [bytes(content[at : at + size]) for at in range(0, len(content), size)]
