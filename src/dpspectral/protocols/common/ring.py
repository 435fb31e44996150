"""Integers modulo 2^b: how wide, how packed.

The width comes from public facts, so that sums do not wrap around: a sum over the declared users plus all noise shares
is below 2^(b−1) in size, unless a share is beyond 16 of its standard deviations (probability 10^−57) or there are more
users than declared. Then the sum is wrong, and nothing is refused: who refuses tells something. Arithmetic is that of
32- or 64-bit words, of which 2^b is a divisor: the low b bits are right.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.jit import jit

Words = NDArray[np.unsignedinteger]
MOST_BITS = 62
TAIL = 16.0  # standard deviations of one share


def width(largest: float, deviation: float, parties: int) -> int:
    """b for a sum whose exact part is at most `largest` in size, with a noise share per party."""
    reach = largest + parties * share_limit(deviation)
    bits = math.ceil(math.log2(reach + 1)) + 1
    if bits > MOST_BITS:
        raise OverflowError(f"the sum needs {bits} bits, more than {MOST_BITS}: use fewer parties or a coarser grid")
    return max(bits, 2)


def share_limit(deviation: float) -> float:
    """No noise share is larger, except with probability 10^−57."""
    return TAIL * deviation + 1


def word(bits: int) -> type[np.unsignedinteger]:
    return np.uint32 if bits <= 32 else np.uint64


def encoded(values: NDArray[np.int64], bits: int) -> Words:
    """Integers as elements of the ring (copied). What does not fit is reduced: a refusal would tell something."""
    return values.reshape(-1).astype(np.int64).view(np.uint64).astype(word(bits))


def decoded(elements: Words, bits: int) -> NDArray[np.int64]:
    """Elements of the ring as integers between −2^(b−1) and 2^(b−1) − 1."""
    shift = np.int64(64 - bits)
    signed: NDArray[np.int64] = (elements.astype(np.uint64) << np.uint64(shift)).view(np.int64) >> shift
    return signed


def packed(elements: Words, bits: int) -> bytes:
    """b bits per element, lowest first."""
    if bits == 8 * elements.itemsize:
        return elements.astype(elements.dtype.newbyteorder("<"), copy=False).tobytes()
    words = np.zeros(elements.size * bits // 64 + 1, dtype=np.uint64)
    _pack(elements, bits, words)
    return words.astype("<u8", copy=False).tobytes()[: packed_size(elements.size, bits)]


def packed_size(count: int, bits: int) -> int:
    return (count * bits + 7) // 8


def unpacked(content: bytes | memoryview, count: int, bits: int) -> Words:
    """The inverse of `packed`."""
    size = packed_size(count, bits)
    if len(content) != size:
        raise ValueError(f"{count} elements of {bits} bits take {size} bytes, got {len(content)}")
    kind = np.dtype(word(bits))
    if bits == 8 * kind.itemsize:
        return np.frombuffer(content, dtype=kind.newbyteorder("<")).astype(kind)
    words = np.zeros(size // 8 + 2, dtype="<u8")
    words.view(np.uint8)[:size] = np.frombuffer(content, dtype=np.uint8)
    out = np.empty(count, dtype=kind)
    _unpack(words.astype(np.uint64, copy=False), bits, out)
    return out


@jit
def _pack(elements, bits, words):  # type: ignore[no-untyped-def]
    """Elements below 64 bits, one after the other into words of 64."""
    low = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    held, have, place = np.uint64(0), 0, 0
    for i in range(elements.size):
        element = np.uint64(elements[i]) & low
        held |= element << np.uint64(have)
        have += bits
        if have >= 64:
            words[place] = held
            place += 1
            have -= 64
            held = element >> np.uint64(bits - have) if have else np.uint64(0)
    if have:
        words[place] = held


@jit
def _unpack(words, bits, out):  # type: ignore[no-untyped-def]
    low = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    place, used = 0, 0
    for i in range(out.size):
        element = words[place] >> np.uint64(used)
        if used + bits > 64:
            element |= words[place + 1] << np.uint64(64 - used)
        used += bits
        if used >= 64:
            place, used = place + 1, used - 64
        out[i] = element & low
