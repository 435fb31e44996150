"""Shares on their way from one party to another: sealed, so that the server who carries them cannot read them."""

from __future__ import annotations

import os
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dpspectral.protocols.common import keys
from dpspectral.protocols.secure_sum.roster import Run
from dpspectral.protocols.secure_sum.shamir import SHARE_BYTES

SEAL_BYTES = 28  # what sealing adds: nonce and tag


def bundle_bytes(rounds: int) -> int:
    """The size of a sealed bundle: shares of both secrets of every round."""
    return 2 * rounds * SHARE_BYTES + SEAL_BYTES


def seal_keys(agreed: bytes, party: int, other: int) -> tuple[bytes, bytes]:
    """One key per direction, from what two parties agreed on: of what goes to the other, and of what comes."""
    outgoing = keys.derived(agreed, b"shares" + struct.pack(">II", party, other))
    return outgoing, keys.derived(agreed, b"shares" + struct.pack(">II", other, party))


def seal(key: bytes, content: bytes, run: Run, sender: int, receiver: int) -> bytes:
    nonce = os.urandom(12)
    return nonce + AESGCM(key).encrypt(nonce, content, run.name + struct.pack(">II", sender, receiver))


def unseal(key: bytes, sealed: bytes, run: Run, sender: int, receiver: int) -> bytes:
    try:
        context = run.name + struct.pack(">II", sender, receiver)
        return AESGCM(key).decrypt(sealed[:12], sealed[12:], context)
    except InvalidTag:
        raise ValueError("a sealed message was damaged, or is not for this place") from None
