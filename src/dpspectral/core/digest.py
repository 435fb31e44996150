"""SHA-256."""

from __future__ import annotations

from cryptography.hazmat.primitives import hashes


def digest(content: bytes) -> bytes:
    hasher = hashes.Hash(hashes.SHA256())
    hasher.update(content)
    return hasher.finalize()
