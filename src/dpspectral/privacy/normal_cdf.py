"""Φ((m − ½)/σ), where the nearest integer of σ·N(0, 1) changes, to any number of bits, in Python's integers alone.

Noise must not depend on what else runs in the process. A multiple-precision library keeps its precision and cached
constants per process, where another thread may change them at any time; this module has no such state.

With x = −|m − ½|/σ, a fraction without error, and h = x²/2,

    ½ − Φ(x) = 1/√(2π) · Σ_k (−1)^k |x|·h^k / (k!·(2k + 1)),

in steps of 2^−w. Each term is the one before times h (known to a step), with divisions rounded down. Errors grow from
term to term as the terms do, so none has more than (|x| + 2)·e^h steps of error, and a sum of K terms with remainder
less than (K + 2)·(|x| + 3)·e^h. w exceeds `bits` by 1.45·h + 63: that is below 2^−bits.
Proof page: docs/proofs/noise.md.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt


def edge(m: int, sigma: float, bits: int) -> int:
    """2^bits·Φ((m − ½)/σ), off by less than 2: below it lie the probabilities that round to less than m."""
    numerator, denominator = sigma.as_integer_ratio()
    top, bottom = abs(2 * m - 1) * denominator, 2 * numerator  # |x| = top/bottom
    below = 0  # as Φ(x) < e^−h, which is no more than 2^−bits where h > 0.7·bits
    if 10 * top**2 <= 14 * bits * bottom**2:
        below = (1 << (bits - 1)) - _to_the_middle(top, bottom, bits)
    return below if m <= 0 else (1 << bits) - below


def _to_the_middle(top: int, bottom: int, bits: int) -> int:
    """2^bits·(½ − Φ(−top/bottom))."""
    more = 64 + 145 * top**2 // (200 * bottom**2)
    w = bits + more + -more % 64  # few different values: √(2π) is cached
    h = (top**2 << w) // (2 * bottom**2)
    term, total, k = (top << w) // bottom, 0, 0
    while term:
        part = term // (2 * k + 1)
        total += -part if k % 2 else part
        k += 1
        term = (term * h >> w) // k
    return (total << bits) // _root_of_two_pi(w)


@lru_cache(maxsize=64)
def _root_of_two_pi(bits: int) -> int:
    """2^bits·√(2π), off by less than 2: π = 16·arccot 5 − 4·arccot 239 (Machin), 32 bits longer than needed."""
    w = 2 * bits + 32
    return isqrt(2 * (16 * _arccot(5, w) - 4 * _arccot(239, w)) >> 32)


def _arccot(n: int, bits: int) -> int:
    power, total, k = (1 << bits) // n, 0, 1
    while power:
        total += -(power // k) if k % 4 == 3 else power // k
        power //= n * n
        k += 2
    return total
