"""Nothing but the sum: what a server and colluding parties see of the honest ones is uniform, given their sum.

Tiny rings exhaustively: the pseudo-random masks are replaced by every possible value of the masks the adversary does
not know, and the views are counted. A larger run with the real generator by chi-square (false alarms below 10⁻⁶).
"""

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chi2

from dpspectral.protocols.common import keys, ring
from dpspectral.protocols.common.encoding import bitmap
from dpspectral.protocols.secure_sum import masks
from dpspectral.protocols.secure_sum.masks import asked_view, purpose
from dpspectral.protocols.secure_sum.network import LocalNetwork


class Fixed:
    """A party whose answer is given."""

    def __init__(self, values, bits):
        self.values, self.bits = np.asarray(values), bits

    def answer(self, _question, _setup):
        return self.values, self.bits, None

    def release(self, _):
        pass

    def withdraw(self, _):
        pass


class Known:
    """Masks of chosen values instead of pseudo-random ones: by self-mask seed, or by the pair of public keys."""

    def __init__(self, monkeypatch):
        self.values = {}  # of masks that the adversary does not know; the others are zero
        self.agreed, self.derived = keys.agreed, keys.derived
        monkeypatch.setattr(keys, "agreed", self.pair_key)
        monkeypatch.setattr(keys, "derived", self.self_key)
        monkeypatch.setattr(masks, "add_mask", self.add)

    def pair_key(self, private, publics, purpose):
        if purpose.startswith(b"pair"):
            return [frozenset([keys.public_key(private), public]) for public in publics]
        return self.agreed(private, publics, purpose)

    def self_key(self, secret, purpose):
        return secret if purpose.startswith(b"self") else self.derived(secret, purpose)

    def add(self, target, key, sign):
        target += np.array(sign * self.values.get(key, 0) % 2 ** (8 * target.itemsize), dtype=target.dtype)


def masked(network, answers):
    """What the parties send, as elements of the ring, and the sum that is opened in the end."""
    sent = {}

    def tamper(stage, party, to_server, message):
        if stage == "masked" and to_server:
            sent[party] = int(ring.unpacked(message[30:-16], 1, answers[party].bits)[0])
        return message

    network._tamper = tamper
    total = network.sum(b"", 1, answers[0].bits)
    return tuple(sent[party] for party in range(len(answers))), int(total.integers[0])


@pytest.mark.parametrize(("inputs", "other", "bits"), [((1, 0, 1), (1, 1, 0), 2), ((0, 1, -1), (0, -1, 1), 2)])
def test_every_view_of_a_tiny_ring_is_equally_likely(monkeypatch, inputs, other, bits):
    """Three parties; party 0 works with the server, so its masks are known. Before opening, honest vectors are uniform;
    afterwards, with self-masks open, all pairs with the same sum are, so inputs with the same sum look alike."""
    laws = []
    for values in (inputs, other):
        before, after = Counter(), Counter()
        with monkeypatch.context() as patch:
            known = Known(patch)
            holders = [Fixed([x], bits) for x in values]
            modulus = 1 << bits
            network = LocalNetwork(holders, rounds=modulus**3)
            for number, choice in enumerate(itertools.product(range(modulus), repeat=3)):
                own = [network.clients[party].memory.secrets[number] for party in (1, 2)]
                pair = frozenset(keys.public_key(secrets.mask_key) for secrets in own)
                known.values = {own[0].self_mask: choice[0], own[1].self_mask: choice[1], pair: choice[2]}
                sent, total = masked(network, holders)
                assert total % modulus == sum(values) % modulus
                before[sent[1:]] += 1
                after[tuple((y - b) % modulus for y, b in zip(sent[1:], choice[:2], strict=True))] += 1
        assert len(before) == modulus**2
        assert set(before.values()) == {modulus}
        honest = sum(values[1:]) % modulus
        assert set(after) == {(a, (honest - a) % modulus) for a in range(modulus)}
        assert set(after.values()) == {modulus**2}
        laws.append(after)
    assert laws[0] == laws[1]


@pytest.mark.statistical
def test_real_masks_are_uniform_and_independent():
    """Five parties that all send zeros, 3 bits, 200,000 numbers: each vector, each sum and difference of two of them,
    and pairs of neighbouring numbers; every chi-square with false alarms below 10⁻⁸."""
    bits, size = 3, 200_000
    holders = [Fixed(np.zeros(size, dtype=np.int64), bits) for _ in range(5)]
    sent = {}

    def tamper(stage, party, to_server, message):
        if stage == "masked" and to_server:
            sent[party] = ring.unpacked(message[30:-16], size, bits).astype(np.int64)
        return message

    network = LocalNetwork(holders, rounds=1, tamper=tamper)
    selves = [network.clients[party].memory.secrets[0].self_mask for party in range(5)]
    assert not network.sum(b"", size, bits).integers.any()
    used = purpose(b"self", asked_view(network.server.run, 0, bitmap(range(5), 5), size, bits))
    opened = []
    for party in range(5):
        vector = sent[party].astype(np.uint32)
        masks.add_mask(vector, keys.derived(selves[party], used), -1)
        opened.append(vector.astype(np.int64) % 8)
    assert not (sum(opened) % 8).any()
    vectors = [*sent.values(), *opened]
    vectors += [(sign * a + b) % 8 for a, b in itertools.combinations(opened[:4], 2) for sign in (1, -1)]
    for vector in vectors:
        assert chi_square(np.bincount(vector, minlength=8)) > 1e-8
        pairs = 8 * vector[:-1:2] + vector[1::2]
        assert chi_square(np.bincount(pairs, minlength=64)) > 1e-8


def chi_square(counts):
    expected = counts.sum() / len(counts)
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1)


def test_rounds_have_masks_of_their_own():
    """The same answer looks different in every round, and a key of one round opens no other."""
    bits, size = 16, 50
    holders = [Fixed(np.arange(size), bits) for _ in range(4)]
    sent = []
    network = LocalNetwork(holders, rounds=3)

    def tamper(stage, party, to_server, message):
        if stage == "masked" and to_server and party == 1:
            sent.append(message[30:-16])
        return message

    network._tamper = tamper
    secrets = [(own.mask_key, own.self_mask) for own in network.clients[1].memory.secrets.values()]
    assert len({secret for pair in secrets for secret in pair}) == 6
    for _ in range(3):
        assert np.array_equal(network.sum(b"", size, bits).integers, 4 * np.arange(size))
    assert len(set(sent)) == 3
