"""Our messages inside Flower's: one record that holds the public setup, whose turn it is, and the protocol's bytes."""

from __future__ import annotations

from dataclasses import dataclass

from flwr.app import ConfigRecord, RecordDict

from dpspectral.parties.secure_sum.messages import Refused, Setup

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
            found = content.config_records[NAME]
            setup = Setup(
                *(found[name] for name in ("run", "parties", "collusion", "drop-tolerance", "rounds", "seed"))  # type: ignore[arg-type]
            )
            party, catalogue, stage, message = (found[name] for name in ("party", "catalogue", "stage", "message"))
        except (KeyError, TypeError, ValueError) as error:
            raise Refused(f"not a message of the secure sum: {error}") from None
        if not (isinstance(party, int) and isinstance(message, bytes) and 0 <= party < setup.parties):
            raise Refused("not a message of the secure sum")
        return cls(setup, party, str(catalogue), str(stage), message)


def reply(answer: bytes | None, seconds: float) -> RecordDict:
    """A party's answer, or that it has none. Why not stays with the party: a reason may tell about its data."""
    return RecordDict(
        {NAME: ConfigRecord({"answer": answer or b"", "answered": answer is not None, "seconds": seconds})}
    )


def answer_of(content: RecordDict) -> tuple[bytes | None, float]:
    found = content.config_records[NAME]
    return (bytes(found["answer"]) if found["answered"] else None), float(found["seconds"])  # type: ignore[arg-type]
