"""Rounded Gaussian integers, round(σ·N(0, 1)), from a cryptographic generator.

AES-256-CTR under a fresh key → 53 random bits → normal quantile (quantile.py) → nearest integer. Those 53 bits stand
for an interval of probabilities, and the quantile has an error of its own; in the rare case where either could change
the nearest integer, more bits are drawn and the comparison is made in long integers until it is certain. So the law
is exactly that of round(N(0, σ²)): there is no discretisation error to account for. (Without that step the distance
would be about 2^−55 per *possible value*, far from negligible for σ of 10⁵ grid steps and millions of samples.)
"""

from __future__ import annotations

import copy
import itertools
import math
import os
from collections.abc import Callable, Iterator
from typing import NoReturn, Protocol, Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.core.threads import in_threads
from dpspectral.privacy import quantile
from dpspectral.privacy.entries import check_sigma
from dpspectral.privacy.normal_cdf import edge

SEGMENT = 1 << 16  # samples per key
_CHUNK = 1 << 14  # samples per pass
_FINER, _GUARD = 160, 1 << 96  # doubtful cells: extra bits of precision, and a margin far above the error of an edge
_ZEROS = memoryview(bytes(8 * SEGMENT))  # the most that is taken from a stream at a time

Bytes = Callable[[int], bytes]  # how many → that many random bytes


class Noise(Protocol):
    """A source of integer noise."""

    private: bool
    scale: float  # the standard deviation is sigma times this: 1, except for tests

    def rounded_gaussian(self, sigma: float, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Independent samples of round(N(0, sigma²))."""

    def streams(self) -> Iterator[Bytes]:
        """Random bytes, a stream for every SEGMENT samples: 8 for each, then more for doubtful ones."""

    def keyed(self) -> KeyedNoise:
        """Noise that can be produced again, piece by piece, while the returned object lives."""


class KeyedNoise:
    """Noise of numbered pieces: the same number gives the same integers, different numbers independent ones.

    All pieces come from one 256-bit key that exists in this object only: AES-CTR with the piece's number as nonce. It
    cannot be copied or pickled.
    """

    __slots__ = ("__key", "private", "scale")

    def __init__(self, key: bytes, *, private: bool, scale: float = 1.0) -> None:
        self.__key = key
        self.scale = scale
        self.private = private

    def __repr__(self) -> str:
        return "KeyedNoise(...)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a noise key never leaves the process: KeyedNoise cannot be copied or pickled")

    def piece(self, sigma: float, shape: tuple[int, ...], number: int) -> NDArray[np.int64]:
        """Independent samples of round(N(0, sigma²)), always the same ones for a number. One shape and σ per number."""
        out = np.zeros(shape, dtype=np.int64)
        if self.scale:
            stream, flat = self._stream(number), out.reshape(-1)
            for start in range(0, flat.size, SEGMENT):
                _fill(check_sigma(sigma * self.scale), flat[start : start + SEGMENT], stream)
        return out

    def consecutive(self) -> Callable[[float, int], NDArray[np.int64]]:
        """Gives so many samples of a deviation: piece 0 when it is first called, then the next."""
        numbers = itertools.count()
        return lambda sigma, count: self.piece(sigma, (count,), next(numbers))

    def bits(self, out: NDArray[np.uint64], number: int) -> None:
        """The random bits of a piece's samples, before any is doubtful, for a device that makes integers of them."""
        stream, raw = self._stream(number), out.reshape(-1)
        for start in range(0, raw.size, SEGMENT):
            part = raw[start : start + SEGMENT]
            part[:] = np.frombuffer(stream(part.nbytes), dtype="<u8")

    def _stream(self, number: int) -> Bytes:
        nonce = number.to_bytes(8, "big") + bytes(8)  # 2^64 blocks of 16 bytes for each piece
        encryptor = Cipher(algorithms.AES(self.__key), modes.CTR(nonce)).encryptor()
        return lambda count: encryptor.update(_ZEROS[:count])


class SecureNoise:
    """Noise that cannot be reproduced: every call draws fresh keys from the operating system. There is no seed."""

    private = True
    scale = 1.0

    def rounded_gaussian(self, sigma: float, shape: tuple[int, ...]) -> NDArray[np.int64]:
        return _sample(sigma, shape, self.streams())

    def streams(self) -> Iterator[Bytes]:
        return iter(_aes_bytes, None)

    def keyed(self) -> KeyedNoise:
        return KeyedNoise(os.urandom(32), private=True)


class NotPrivate:
    """Reproducible noise of the same law, for tests and experiments. Results with it have `private = False`.

    `scale` multiplies the standard deviation; 0 switches the noise off.
    """

    private = False

    def __init__(self, seed: int, scale: float = 1.0) -> None:
        self.seed = checks.integer("seed", seed, low=0)
        if not (isinstance(scale, (int, float)) and 0 <= scale < math.inf):
            raise ValueError(f"scale must be a finite number of at least 0, got {scale!r}")
        self.scale = float(scale)
        self._sequence = np.random.SeedSequence(self.seed)

    def __repr__(self) -> str:
        return f"NotPrivate(seed={self.seed}, scale={self.scale:g})"

    def restarted(self) -> Self:
        """The same noise from the start, so that one object gives every run the same noise."""
        again = copy.copy(self)
        again._sequence = np.random.SeedSequence(self.seed)
        return again

    def streams(self) -> Iterator[Bytes]:
        while True:
            yield np.random.default_rng(self._sequence.spawn(1)[0]).bytes

    def rounded_gaussian(self, sigma: float, shape: tuple[int, ...]) -> NDArray[np.int64]:
        if self.scale == 0:
            return np.zeros(shape, dtype=np.int64)
        return _sample(sigma * self.scale, shape, self.streams())

    def keyed(self) -> KeyedNoise:
        return KeyedNoise(next(self.streams())(32), private=False, scale=self.scale)


def _aes_bytes() -> Bytes:
    encryptor = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
    return lambda count: encryptor.update(_ZEROS[:count])


def _sample(sigma: float, shape: tuple[int, ...], streams: Iterator[Bytes]) -> NDArray[np.int64]:
    check_sigma(sigma)
    out = np.empty(shape, dtype=np.int64)
    flat = out.reshape(-1)
    jobs = [(flat[start : start + SEGMENT], next(streams)) for start in range(0, flat.size, SEGMENT)]
    if len(jobs) == 1:
        _fill(sigma, *jobs[0])
    elif jobs:
        in_threads(lambda job: _fill(sigma, *job), jobs)
    return out


def _fill(sigma: float, out: NDArray[np.int64], stream: Bytes) -> None:
    settle(sigma, np.frombuffer(stream(8 * out.size), dtype="<u8"), out, stream)


def settle(sigma: float, raw: NDArray[np.uint64], out: NDArray[np.int64], stream: Bytes) -> None:
    """The samples of raw random numbers; doubtful ones take further bits from the stream."""
    doubtful = np.empty(min(_CHUNK, out.size), dtype=np.int64)
    for start in range(0, out.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        count = quantile.nearest(raw[part], sigma, quantile.TABLE, quantile.ERROR, out[part], doubtful)
        for index in start + doubtful[:count]:
            out[index] = _certain(int(raw[index]), sigma, -abs(int(out[index])), stream)


def _certain(raw: int, sigma: float, guess: int, stream: Bytes) -> int:
    """The sample of `raw`, extended by as many random bits as it takes to know its nearest integer."""
    cell, bits = raw >> 12, 53
    while True:
        if cell:  # the first cell reaches to −∞
            low, high = cell << _FINER, (cell + 1) << _FINER
            m = guess = _cell_of(low, sigma, guess, bits + _FINER)
            if edge(m, sigma, bits + _FINER) + _GUARD <= low and high + _GUARD <= edge(m + 1, sigma, bits + _FINER):
                return -m if raw & 1 else m
        cell, bits = (cell << 64) | int.from_bytes(stream(8), "little"), bits + 64


def _cell_of(probability: int, sigma: float, guess: int, bits: int) -> int:
    """The largest m whose edge is at most `probability` > 0, in steps of 2^−bits: widen around the guess, bisect."""
    low, high, step = guess, guess + 1, 1
    while edge(low, sigma, bits) > probability:
        low, high, step = low - step, low, 2 * step
    while edge(high, sigma, bits) <= probability:
        low, high, step = high, high + step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        if edge(middle, sigma, bits) <= probability:
            low = middle
        else:
            high = middle
    return low
