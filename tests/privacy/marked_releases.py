"""Releases through the code of a run, with noise that shows where it went: every draw is its own deviation.

Two releases of the same data, one with such noise and one with none, differ by the deviation that every released number
really has; releases of neighbouring data without noise differ by what one person moves. Together they are the μ that an
attacker meets, whatever the ledger was told.
"""

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from small_streams import every_stream

from dpspectral import NotPrivate
from dpspectral.linalg.epoch_pairs import Dated
from dpspectral.release.answer import Answer, released
from dpspectral.release.item_matrix import FormedMatrix
from dpspectral.release.stream_queries import Coarse, StreamMatrix

FINE = 1 << 16  # marks are this many times larger than the deviations, so that rounding them does not matter


class Marks(NotPrivate):
    """In place of noise: the deviation that was asked for."""

    def __init__(self, factor):
        super().__init__(0)
        self.factor = factor

    def rounded_gaussian(self, sigma, shape):
        return np.full(shape, round(sigma * self.factor), dtype=np.int64)

    def piece(self, sigma, shape, number):
        return self.rounded_gaussian(sigma, shape)

    def keyed(self):
        return self


def numbers(answer):
    """All that a release gives out, as real numbers in integer steps; of a symmetric matrix each entry once."""
    match answer:
        case Answer():
            return answer.integers.ravel().astype(np.float64)
        case Coarse():
            return answer.numbers.astype(np.float64) * answer.step
        case FormedMatrix():
            whole = np.stack([answer.leading(answer.n)(column[:, None])[:, 0] for column in np.eye(answer.n)], axis=1)
            return whole.astype(np.float64)[np.triu_indices(answer.n)]
    return answer.integers.astype(np.float64)


@dataclass
class Case:
    """One query (several for a stream, which are charged together), data sets, and which of them are neighbours."""

    queries: list
    data: list
    pairs: list  # of positions in `data`
    attained: float  # the part of the sensitivity that some pair reaches
    fine: int = FINE

    def released(self, data, mu, factor):
        made = []
        for query in self.queries:
            entry = query.entry("a test", mu, private=False)
            made.append(numbers(released(query, data, Marks(factor), entry.sigma, nullcontext())))
        return np.concatenate(made)

    def largest_mu(self, mu):
        """How far neighbours really are apart, in deviations that were really drawn."""
        plain = np.stack([self.released(one, mu, 0) for one in self.data])
        deviations = (self.released(self.data[-1], mu, self.fine) - plain[-1]) / self.fine
        a, b = np.array(self.pairs).T
        return float(np.sqrt((((plain[a] - plain[b]) / deviations) ** 2).sum(axis=1)).max())


class Fine(StreamMatrix):
    """Without the coarser step, which is rounding after the release."""

    @staticmethod
    def step(sigma):
        return 1


def dated(stream, now):
    """One user's stream as rows of the past: items, epochs, and how many items there were after each."""
    items = np.flatnonzero((stream > 0) & (stream <= now))
    epochs = stream[items]
    degrees = (epochs[None, :] <= epochs[:, None]).sum(axis=1)
    return Dated(np.array([0, len(items)]), *(part.astype(np.int32) for part in (items, epochs, degrees)))


@dataclass
class StreamCase(Case):
    """All epochs of a stream: the data are one user's arrivals, and each query looks at its own past."""

    fine: int = 1  # a stream's numbers have 32 bits, and its deviations are thousands of steps

    def released(self, data, mu, factor):
        made = []
        for query in self.queries:
            sigma = query.entry("a test", mu, private=False).sigma
            made.append(numbers(released(query, dated(data, query.now), Marks(factor), sigma, nullcontext())))
        return np.concatenate(made)


def stream_data(items, epochs, pairs_of):
    """Every stream of a user, the empty one first, and the neighbours among them."""
    streams = every_stream(items, epochs)
    places = {tuple(stream): k for k, stream in enumerate(streams)}
    pairs = [(k, places[other]) for k, stream in enumerate(streams) for other in pairs_of(stream)]
    return list(streams), [(a, b) for a, b in pairs if a != b]


def splits(items, known_or_held):
    """Every (known, held-out) part of one user's row over so many items, as evaluations take them."""
    made = []
    for digits in known_or_held:
        row = np.array(digits)
        made.append(tuple(sp.csr_array((row == part)[None].astype(np.int64)) for part in (1, 2)))
    return made
