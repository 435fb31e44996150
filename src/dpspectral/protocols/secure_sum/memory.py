"""A client between two messages, as bytes: for engines that start a new process for every message.

The bytes hold the party's secrets. They belong where the party's data is, in the engine's node state or a file that
only the party can read, and nowhere else. Whoever loads an old copy could make a party answer a message twice, and two
different answers (the shares of two lists of survivors, say) open more than one: an engine must keep the last copy
only, and `Answered` makes sure of it on disk. Its markers must not lie where a backup is put back.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from dpspectral.core.files import flush
from dpspectral.protocols.common.encoding import RefusedError
from dpspectral.protocols.common.holder import Holder
from dpspectral.protocols.secure_sum.client import Client, Secrets
from dpspectral.protocols.secure_sum.messages import Kind, Setup

_FORMAT = 2  # 1 kept the shares of all rounds, and the keys they were sealed with


def dump(client: Client) -> bytes:
    """Everything the client needs to go on."""
    return json.dumps(
        {
            "format": _FORMAT,
            "setup": client.setup.fingerprint.hex(),
            "party": client.party,
            "envelope": client._envelope.hex(),
            "pen": client._pen.hex(),
            "secrets": {r: [own.mask_key.hex(), own.self_mask.hex()] for r, own in client._secrets.items()},
            "mask_keys": {other: [key.hex() for key in found] for other, found in client._mask_keys.items()},
            "seals": {other: key.hex() for other, key in client._seals.items()},
            "signers": {other: key.hex() for other, key in client._signers.items()},
            "held": {r: {other: found.hex() for other, found in held.items()} for r, held in client._held.items()},
            "present": sorted(client._present),
            "survivors": sorted(client._survivors),
            "round": client._round,
            "awaits": None if client._awaits is None else int(client._awaits),
            "stopped": client._stopped,
            "receipt": client._receipt,
            "view": client._view.hex(),
        }
    ).encode()


def load(content: bytes, setup: Setup, party: int, holder: Holder) -> Client:
    """The client as it was; refuses another run's or another party's bytes."""
    try:
        found: dict[str, Any] = json.loads(content)
        if (found["format"], found["setup"], found["party"]) != (_FORMAT, setup.fingerprint.hex(), party):
            raise RefusedError("this party's memory is of another run")
        client = Client(setup, party, holder)
        client._envelope, client._pen = bytes.fromhex(found["envelope"]), bytes.fromhex(found["pen"])
        client._secrets = {int(r): Secrets(*map(bytes.fromhex, own)) for r, own in found["secrets"].items()}
        client._mask_keys = {int(o): [bytes.fromhex(key) for key in keys] for o, keys in found["mask_keys"].items()}
        client._seals = {int(o): bytes.fromhex(key) for o, key in found["seals"].items()}
        client._signers = {int(o): bytes.fromhex(key) for o, key in found["signers"].items()}
        client._held = {
            int(r): {int(o): bytes.fromhex(share) for o, share in held.items()} for r, held in found["held"].items()
        }
        client._present, client._survivors = frozenset(found["present"]), frozenset(found["survivors"])
        client._round, client._stopped = found["round"], found["stopped"]
        client._awaits = None if found["awaits"] is None else Kind(found["awaits"])
        client._receipt, client._view = found["receipt"], bytes.fromhex(found["view"])
    except RefusedError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise RefusedError(f"this party's memory is damaged: {type(error).__name__}") from None
    return client


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
