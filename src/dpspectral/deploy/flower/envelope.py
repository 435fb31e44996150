"""Our frames inside Flower's messages: a record with the bytes, and one with the party's reply."""

from __future__ import annotations

from flwr.app import ConfigRecord, RecordDict

from dpspectral.deploy.party.carrier import Reply

NAME = "dpspectral"


def enclosed(frame: bytes) -> RecordDict:
    return RecordDict({NAME: ConfigRecord({"frame": frame})})


def frame_of(content: RecordDict) -> bytes:
    """Raises ValueError for anything else."""
    found = _record(content).get("frame")
    if not isinstance(found, bytes):
        raise ValueError("not a message of the secure sum")
    return found


def replied(reply: Reply) -> RecordDict:
    """Nothing else leaves a party. The time it took, for one, is proportional to the number of its interactions."""
    record = ConfigRecord({"answer": reply.answer or b"", "answered": reply.answer is not None, "reason": reply.reason})
    return RecordDict({NAME: record})


def reply_of(content: RecordDict) -> Reply:
    """Raises ValueError for anything else."""
    record = _record(content)
    answer, reason = record.get("answer"), record.get("reason")
    if not (isinstance(answer, bytes) and isinstance(record.get("answered"), bool)):
        raise ValueError("not an answer of a party")
    plain = "".join(letter if letter.isprintable() else " " for letter in str(reason)[:500])  # it goes to a log
    return Reply(answer if record["answered"] else None, plain)


def _record(content: RecordDict) -> ConfigRecord:
    found = content.get(NAME)  # `config_records` would tie a knot that keeps large messages until they are collected
    if not isinstance(found, ConfigRecord):
        raise ValueError("not a message of the secure sum")
    return found
