"""The cryptography between parties: key agreement, signatures. All primitives are `cryptography`'s."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpspectral.core.digest import digest as digest

KEY_BYTES = 32
SIGNATURE_BYTES = 64


def new_secret() -> bytes:
    """A private key, or a seed."""
    return os.urandom(KEY_BYTES)


def public_key(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreed(private: bytes, publics: Iterable[bytes], purpose: bytes) -> Iterator[bytes]:
    """For each public key a 256-bit key that the owners of both key pairs can derive, and nobody else.

    Raises ValueError for a public key of small order, with which no key can be agreed.
    """
    own = X25519PrivateKey.from_private_bytes(private)
    for public in publics:
        yield derived(own.exchange(X25519PublicKey.from_public_bytes(public)), purpose)


def usable(publics: Iterable[bytes]) -> bool:
    """Whether one can agree on a key with all of them."""
    try:
        return all(agreed(new_secret(), publics, b"trial"))
    except ValueError:
        return False


def derived(secret: bytes, purpose: bytes) -> bytes:
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=b"dpspectral secure sum 1: " + purpose).derive(secret)


def signing_key(private: bytes) -> bytes:
    """The public half of a signature key."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def signature(private: bytes, content: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(private).sign(content)


def signed(public: bytes, signature: bytes, content: bytes) -> bool:
    """Whether this is the owner's signature of the content."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True
