"""Masks on a party's answer: what they are derived from, and how they are added.

A party adds a mask of its own and one for each pair with a neighbour, once added and once subtracted. All of them are
derived from a secret and from what was asked (`asked_view`), so two parties that were not asked the same, or not among
the same parties, derive different masks from their common key: a server that asks one party something and the others
nothing gets random numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpspectral.protocols.common import keys
from dpspectral.protocols.common.encoding import bitmap
from dpspectral.protocols.common.ring import Words
from dpspectral.protocols.secure_sum.roster import Run
from dpspectral.protocols.secure_sum.setup import Setup

_CHUNK = 1 << 16  # bytes of mask at a time, so that they stay in the cache
_ZEROS = bytes(_CHUNK)


def asked_view(run: Run, number: int, asked: bytes, size: int, bits: int) -> bytes:
    """A digest of what a party was asked, in which run and round, who else was, and the size of what it answers.

    Noise and ring follow from question and setup, both of which are in here; a retry is a round of its own.
    """
    return keys.digest(b"view" + run.name + struct.pack(">IQI", number, size, bits) + keys.digest(asked))


def survived_view(view: bytes, survivors: frozenset[int], setup: Setup) -> bytes:
    """And of whose answers arrived."""
    return keys.digest(view + bitmap(survivors, setup.parties))


def confirmation(survived: bytes) -> bytes:
    """What the committee signs."""
    return b"dpspectral survivors" + survived


def purpose(what: bytes, view: bytes) -> bytes:
    """What a mask is for: its use, and what was asked."""
    return what + view


def add_self_mask(elements: Words, secret: bytes, view: bytes, sign: int) -> None:
    add_mask(elements, keys.derived(secret, purpose(b"self", view)), sign)


def add_pair_masks(elements: Words, party: int, secret: bytes, publics: Mapping[int, bytes], view: bytes) -> None:
    """What a party adds for its neighbours, whose public keys these are: the lower number adds, the other subtracts.

    Added a second time, for a party that left, it takes off what its neighbours added for it.
    """
    for other, key in zip(publics, keys.agreed(secret, publics.values(), purpose(b"pair", view)), strict=True):
        add_mask(elements, key, 1 if party < other else -1)


def add_mask(target: Words, key: bytes, sign: int) -> None:
    """target += sign · the pseudo-random elements of a 256-bit key (AES-CTR; a key masks one vector only)."""
    encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    step = _CHUNK // target.itemsize
    buffer = bytearray(_CHUNK + 15)
    little = np.dtype(target.dtype).newbyteorder("<")
    for start in range(0, target.size, step):
        part = target[start : start + step]
        count = part.size * target.itemsize
        encryptor.update_into(memoryview(_ZEROS)[:count], buffer)
        mask = np.frombuffer(buffer, dtype=little, count=part.size)
        if sign > 0:
            part += mask
        else:
            part -= mask
