"""What a party remembers between two messages, also as bytes: for engines that start a new process for every message.

The bytes hold the party's secrets. They belong where the party's data is, in the engine's node state or a file that
only the party can read, and nowhere else. Whoever loads an old copy could make a party answer a message twice, and two
different answers (the shares of two lists of survivors, say) open more than one: an engine must keep the last copy
only, and `Answered` makes sure of it on disk. Its markers must not lie where a backup is put back.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpspectral.core.files import flush
from dpspectral.protocols.common import keys
from dpspectral.protocols.common.encoding import RefusedError
from dpspectral.protocols.secure_sum.messages import Kind
from dpspectral.protocols.secure_sum.setup import Setup

_FORMAT = 2  # 1 kept the shares of all rounds, and the keys they were sealed with


@dataclass(repr=False)
class Secrets:
    """One round's own secrets."""

    mask_key: bytes
    self_mask: bytes


@dataclass(repr=False)
class Memory:
    """A party's secrets, what it holds of its neighbours, and where it is in the protocol."""

    present: frozenset[int]
    envelope: bytes  # private key that shares are sealed for
    signing_key: bytes
    secrets: dict[int, Secrets]  # by round
    mask_keys: dict[int, list[bytes]] = field(default_factory=dict)  # of neighbours, public, by round
    seals: dict[int, bytes] = field(default_factory=dict)  # keys of what neighbours seal for it, until it has come
    signers: dict[int, bytes] = field(default_factory=dict)  # the committee's public keys
    held: dict[int, dict[int, bytes]] = field(default_factory=dict)  # by round: shares of neighbours' two secrets
    survivors: frozenset[int] = frozenset()
    round: int = -1  # the last one that was begun
    awaits: Kind | None = None
    stopped: str = ""  # why it takes no more messages
    receipt: object = None  # of the round's answer
    view: bytes = b""  # a digest of what this party was told about the round

    @classmethod
    def new(cls, setup: Setup) -> Memory:
        """Fresh secrets for every round."""
        secrets = {}
        for number in range(setup.rounds):
            secrets[number] = Secrets(keys.new_secret(), keys.new_secret())
        return cls(frozenset(range(setup.parties)), keys.new_secret(), keys.new_secret(), secrets)

    def forget_all(self) -> None:
        self.secrets, self.held, self.seals, self.envelope, self.signing_key = {}, {}, {}, b"", b""

    def encode(self, setup: Setup, party: int) -> bytes:
        """Everything the party needs to go on."""
        return json.dumps(
            {
                "format": _FORMAT,
                "setup": setup.fingerprint.hex(),
                "party": party,
                "envelope": self.envelope.hex(),
                "pen": self.signing_key.hex(),
                "secrets": {r: [own.mask_key.hex(), own.self_mask.hex()] for r, own in self.secrets.items()},
                "mask_keys": {other: [key.hex() for key in publics] for other, publics in self.mask_keys.items()},
                "seals": {other: key.hex() for other, key in self.seals.items()},
                "signers": {other: key.hex() for other, key in self.signers.items()},
                "held": {r: {other: pair.hex() for other, pair in held.items()} for r, held in self.held.items()},
                "present": sorted(self.present),
                "survivors": sorted(self.survivors),
                "round": self.round,
                "awaits": None if self.awaits is None else int(self.awaits),
                "stopped": self.stopped,
                "receipt": self.receipt,
                "view": self.view.hex(),
            }
        ).encode()

    @classmethod
    def decode(cls, content: bytes, setup: Setup, party: int) -> Memory:
        """As it was; refuses another run's or another party's bytes."""
        try:
            given: dict[str, Any] = json.loads(content)
            if (given["format"], given["setup"], given["party"]) != (_FORMAT, setup.fingerprint.hex(), party):
                raise RefusedError("this party's memory is of another run")
            return cls(
                present=frozenset(given["present"]),
                envelope=bytes.fromhex(given["envelope"]),
                signing_key=bytes.fromhex(given["pen"]),
                secrets={int(r): Secrets(*map(bytes.fromhex, own)) for r, own in given["secrets"].items()},
                mask_keys={int(o): [bytes.fromhex(key) for key in keys] for o, keys in given["mask_keys"].items()},
                seals={int(o): bytes.fromhex(key) for o, key in given["seals"].items()},
                signers={int(o): bytes.fromhex(key) for o, key in given["signers"].items()},
                held={
                    int(r): {int(o): bytes.fromhex(pair) for o, pair in held.items()}
                    for r, held in given["held"].items()
                },
                survivors=frozenset(given["survivors"]),
                round=given["round"],
                awaits=None if given["awaits"] is None else Kind(given["awaits"]),
                stopped=given["stopped"],
                receipt=given["receipt"],
                view=bytes.fromhex(given["view"]),
            )
        except RefusedError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise RefusedError(f"this party's memory is damaged: {type(error).__name__}") from None


class Answered:
    """Which stages a party has begun to answer, an empty file for each run, round and stage.

    A file can be created once, so no copy of the party's memory, and no second process, gets through a stage again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flush(folder.parent)

    def begin(self, setup: Setup, number: int, stage: str) -> None:
        """Raise if this stage was begun before, by whatever process; on disk before this returns."""
        path = self.folder / f"{setup.run.hex()}-{number}-{stage}"
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise RefusedError(f"{stage} of round {number} of this run was answered before") from None
        flush(path)
        flush(self.folder)
