"""What a party remembers between two messages, also as bytes: for engines that start a new process for every message.

The bytes hold the party's secrets. They belong where the party's data is, in the engine's node state or a file that
only the party can read, and nowhere else. Whoever loads an old copy could make a party answer a message twice, and two
different answers (the shares of two lists of survivors, say) open more than one: an engine must keep the last copy
only, and `Answered` makes sure of it on disk. Its markers must not lie where a backup is put back.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from dpspectral.core.files import flush
from dpspectral.protocols.common import keys
from dpspectral.protocols.common.encoding import RefusedError
from dpspectral.protocols.secure_sum.messages import Kind
from dpspectral.protocols.secure_sum.setup import Setup

_FORMAT = 3  # 1 kept the shares of all rounds, and the keys they were sealed with; 2 had no nonces


class Secrets(NamedTuple):
    """One round's own secrets."""

    mask_key: bytes
    self_mask: bytes

    def __repr__(self) -> str:
        return "Secrets(...)"


@dataclass(repr=False)
class Memory:
    """A party's secrets, what it holds of its neighbours, and where it is in the protocol."""

    present: frozenset[int]
    envelope: bytes  # private key that shares are sealed for
    nonce: bytes
    secrets: dict[int, Secrets]  # by round
    summary: bytes = b""  # of its own greeting
    greeted: bytes = b""  # of all greetings, until the nonces have come
    run: bytes = b""  # the name of the run, once it is agreed on
    mask_keys: dict[int, list[bytes]] = field(default_factory=dict)  # of neighbours, public, by round
    seals: dict[int, bytes] = field(default_factory=dict)  # keys of what neighbours seal for it, until it has come
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
        self.secrets, self.held, self.seals, self.envelope = {}, {}, {}, b""

    def encode(self, setup: Setup, party: int) -> bytes:
        """Everything the party needs to go on: all fields, whatever they are."""
        whose = {"format": _FORMAT, "setup": setup.fingerprint.hex(), "party": party}
        return json.dumps(whose | {one.name: _written(getattr(self, one.name)) for one in fields(self)}).encode()

    @classmethod
    def decode(cls, content: bytes, setup: Setup, party: int) -> Memory:
        """As it was; refuses another run's or another party's bytes."""
        try:
            given: dict[str, Any] = json.loads(content)
            if (given["format"], given["setup"], given["party"]) != (_FORMAT, setup.fingerprint.hex(), party):
                raise RefusedError("this party's memory is of another run")
            return cls(**{name: _read(kind, given[name]) for name, kind in get_type_hints(cls).items()})
        except RefusedError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise RefusedError(f"this party's memory is damaged: {type(error).__name__}") from None


def _written(value: Any) -> Any:
    """A field as JSON knows it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: _written(one) for key, one in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    return [_written(one) for one in value] if isinstance(value, (list, tuple)) else value


def _read(kind: Any, content: Any) -> Any:
    """A field of this type; raises where the content is of another."""
    if kind is bytes:
        return bytes.fromhex(content)
    if kind is Secrets:
        return Secrets(*_read(list[bytes], content))
    if kind == Kind | None:
        return None if content is None else Kind(content)
    parts = get_args(kind)
    if get_origin(kind) is dict:
        return {_read(parts[0], json.loads(key)): _read(parts[1], one) for key, one in content.items()}
    if get_origin(kind) in (list, frozenset):
        return get_origin(kind)(_read(parts[0], one) for one in content)
    if kind is not object and type(content) is not kind:
        raise TypeError(f"not of type {kind}")
    return content


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
        self._mark(self._place(setup, number, stage), f"{stage} of round {number} of this run was answered before")

    def begun(self, setup: Setup, number: int, stage: str) -> bool:
        return self._place(setup, number, stage).exists()

    def use(self, approval: str) -> None:
        """Raise if this approval of a run was used before."""
        self._mark(self.folder / f"approval-{keys.digest(approval.encode()).hex()}", "an approval is for one run")

    def _place(self, setup: Setup, number: int, stage: str) -> Path:
        return self.folder / f"{setup.run.hex()}-{number}-{stage}"

    def _mark(self, path: Path, otherwise: str) -> None:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise RefusedError(otherwise) from None
        flush(path)
        flush(self.folder)
