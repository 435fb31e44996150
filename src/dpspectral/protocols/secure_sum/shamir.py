"""Shamir's secret sharing (1979) of 32-byte secrets, over the integers modulo the prime 2^256 + 297.

The secret is f(0) of a polynomial f of degree t − 1 whose other coefficients are uniform; party x ≥ 1 gets f(x). Any t
points determine f by interpolation. Fewer say nothing: for t − 1 given points and any candidate secret there is exactly
one polynomial through all of them, so every secret is equally likely. `cryptography` has no secret sharing; this is all
there is to it. Checked against independent interpolation and fixed vectors in tests/protocols/test_shamir.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache

PRIME = 2**256 + 297
SECRET_BYTES, SHARE_BYTES = 32, 33


def share(secret: bytes, threshold: int, places: Sequence[int]) -> list[bytes]:
    """Shares for the given places (distinct, 1 ≤ x < 2^32), any `threshold` of which open the secret."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, got {len(secret)}")
    if not 1 <= threshold <= len(places) or len(set(places)) != len(places) or min(places) < 1:
        raise ValueError("places must be distinct, positive, and at least as many as the threshold")
    coefficients = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    shares = []
    for x in places:
        value = 0
        for coefficient in coefficients:  # Horner, highest power first
            value = (value + coefficient) * x % PRIME
        shares.append(((value + int.from_bytes(secret, "big")) % PRIME).to_bytes(SHARE_BYTES, "big"))
    return shares


def opened(shares: Mapping[int, bytes]) -> bytes:
    """The secret from exactly as many shares (by place) as its threshold."""
    places = tuple(sorted(shares))
    value = 0
    for x, weight in zip(places, _weights(places), strict=True):
        point = int.from_bytes(shares[x], "big")
        if len(shares[x]) != SHARE_BYTES or point >= PRIME:
            raise ValueError("not a share")
        value += weight * point
    value %= PRIME
    if value >= 2 ** (8 * SECRET_BYTES):
        raise ValueError("these shares do not belong together")
    return value.to_bytes(SECRET_BYTES, "big")


@lru_cache(maxsize=4096)
def _weights(places: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's weights at 0: w_i = Π_{j≠i} x_j/(x_j − x_i)."""
    weights = []
    for i in places:
        top, bottom = 1, 1
        for j in places:
            if j != i:
                top, bottom = top * j % PRIME, bottom * (j - i) % PRIME
        weights.append(top * pow(bottom, -1, PRIME) % PRIME)
    return tuple(weights)
