"""Secret sharing: any t shares open the secret, fewer say nothing, against independent arithmetic and fixed vectors."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpspectral.protocols.secure_sum import shamir
from dpspectral.protocols.secure_sum.shamir import PRIME, opened, share

SECRET = bytes(range(32))


def test_the_modulus_is_prime():
    """Miller-Rabin with the first twenty primes: no composite number of this size is known to pass by accident."""
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71):
        x = pow(base, odd, PRIME)
        assert x in (1, PRIME - 1) or any((x := x * x % PRIME) == PRIME - 1 for _ in range(twos - 1))


def test_every_set_of_t_shares_opens_the_secret():
    places = [1, 2, 5, 9, 70_000]
    shares = dict(zip(places, share(SECRET, 3, places), strict=True))
    for chosen in itertools.combinations(places, 3):
        assert opened({x: shares[x] for x in chosen}) == SECRET


@given(secret=st.binary(min_size=32, max_size=32), threshold=st.integers(1, 9), extra=st.integers(0, 4))
def test_random_secrets_come_back(secret, threshold, extra):
    places = [3 * k + 1 for k in range(threshold + extra)]
    shares = dict(zip(places, share(secret, threshold, places), strict=True))
    assert opened(dict(list(shares.items())[-threshold:])) == secret


def test_known_polynomial(monkeypatch):
    """f(x) = 7 + 5x + 3x² at 1, 2, 3; at 0 it is 3·f(1) − 3·f(2) + f(3)."""
    coefficients = iter([3, 5])
    monkeypatch.setattr(shamir.secrets, "randbelow", lambda _: next(coefficients))
    found = [int.from_bytes(piece, "big") for piece in share((7).to_bytes(32, "big"), 3, [1, 2, 3])]
    assert found == [15, 29, 49]
    assert 3 * found[0] - 3 * found[1] + found[2] == 7
    assert opened({x: y.to_bytes(33, "big") for x, y in enumerate(found, 1)}) == (7).to_bytes(32, "big")


def test_fewer_shares_fit_every_secret():
    """For two of three shares and any candidate secret there is a third share that opens it: nothing is excluded."""
    shares = share(SECRET, 3, [1, 2, 3])
    first, second = (int.from_bytes(piece, "big") for piece in shares[:2])
    for candidate in (0, 1, 2**255, 2**256 - 1):
        third = (candidate - 3 * first + 3 * second) % PRIME
        pieces = {1: shares[0], 2: shares[1], 3: third.to_bytes(33, "big")}
        assert opened(pieces) == candidate.to_bytes(32, "big")


def test_coefficients_are_fresh_and_cover_the_field(monkeypatch):
    asked = []
    real = shamir.secrets.randbelow
    monkeypatch.setattr(shamir.secrets, "randbelow", lambda bound: asked.append(bound) or real(bound))
    assert share(SECRET, 4, range(1, 6)) != share(SECRET, 4, range(1, 6))
    assert asked == [PRIME] * 6


@pytest.mark.parametrize("places", [[], [0, 1], [1, 1], [1]])
def test_bad_places_are_refused(places):
    with pytest.raises(ValueError, match="places"):
        share(SECRET, 2, places)


def test_what_is_no_share_is_refused():
    shares = dict(enumerate(share(SECRET, 2, [1, 2]), 1))
    with pytest.raises(ValueError, match="not a share"):
        opened({**shares, 2: shares[2][:-1]})
    with pytest.raises(ValueError, match="not a share"):
        opened({**shares, 2: PRIME.to_bytes(33, "big")})
    with pytest.raises(ValueError, match="32 bytes"):
        share(b"short", 1, [1])
