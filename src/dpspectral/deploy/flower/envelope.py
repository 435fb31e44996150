"""Our messages inside Flower's: one record that holds the public setup, whose turn it is, and the protocol's bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from dpspectral.protocols.common.encoding import RefusedError
from dpspectral.protocols.secure_sum.setup import Setup

NAME = "dpspectral"


@dataclass(frozen=True)
class Envelope:
    """A message of the server to one party."""

    setup: Setup
    party: int
    catalogue: str  # digest of the public list of items
    stage: str
    message: bytes

    def encode(self) -> RecordDict:
        setup = self.setup
        record = ConfigRecord(
            {
                "run": setup.run, "parties": setup.parties, "collusion": setup.collusion,
                "drop-tolerance": setup.drop_tolerance, "rounds": setup.rounds, "seed": setup.seed,
                "party": self.party, "catalogue": self.catalogue, "stage": self.stage, "message": self.message,
            }
        )  # fmt: skip
        return RecordDict({NAME: record})

    @classmethod
    def decode(cls, content: RecordDict) -> Envelope:
        try:
            record = content.config_records[NAME]
            setup = Setup(
                *(record[name] for name in ("run", "parties", "collusion", "drop-tolerance", "rounds", "seed"))  # type: ignore[arg-type]
            )
            party, catalogue, stage, message = (record[name] for name in ("party", "catalogue", "stage", "message"))
        except (KeyError, TypeError, ValueError) as error:
            raise RefusedError(f"not a message of the secure sum: {error}") from None
        if not (isinstance(party, int) and isinstance(message, bytes) and 0 <= party < setup.parties):
            raise RefusedError("not a message of the secure sum")
        return cls(setup, party, str(catalogue), str(stage), message)


def reply(answer: bytes | None, reason: str = "") -> RecordDict:
    """A party's answer, or that it has none. Only its policy may give a reason here: others may tell about data.

    Nothing else leaves a party. The time it took, for one, is proportional to the number of its interactions.
    """
    record: dict[str, Any] = {"answer": answer or b"", "answered": answer is not None, "reason": reason}
    return RecordDict({NAME: ConfigRecord(record)})


def answer_of(content: RecordDict) -> tuple[bytes | None, str]:
    """Answer, and why there is none. Raises `RefusedError` for anything else."""
    try:
        record = content.config_records[NAME]
        answer, answered, reason = (record[name] for name in ("answer", "answered", "reason"))
    except KeyError as error:
        raise RefusedError(f"not an answer of a party: {error} is missing") from None
    if not (isinstance(answer, bytes) and isinstance(answered, bool)):
        raise RefusedError("not an answer of a party")
    plain = "".join(letter if letter.isprintable() else " " for letter in str(reason)[:500])  # it goes to a log
    return answer if answered else None, plain
