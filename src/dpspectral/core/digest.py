"""SHA-256."""

from __future__ import annotations

from cryptography.hazmat.primitives import hashes


def digest(content: bytes) -> bytes:
    made = hashes.Hash(hashes.SHA256())
    made.update(content)
    return made.finalize()
