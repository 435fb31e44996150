"""Integers modulo 2^b: packing, widths that cannot wrap around, masks."""

import math

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from dpspectral.protocols.common import ring
from dpspectral.protocols.secure_sum import masks


@given(bits=st.integers(2, 62), seed=st.integers(0, 10**6), count=st.integers(1, 70))
def test_what_is_packed_comes_back_in_b_bits_each(bits, seed, count):
    limit = 1 << (bits - 1)
    values = np.random.default_rng(seed).integers(-limit + 1, limit, size=count)
    values[0] = -limit + 1
    content = ring.packed(ring.encoded(values, bits), bits)
    assert len(content) == math.ceil(count * bits / 8)
    assert np.array_equal(ring.decoded(ring.unpacked(content, count, bits), bits), values)


def test_packing_is_little_endian_and_dense():
    assert ring.packed(np.array([1, 2, 3, 0xFFFFFFF9], dtype=np.uint32), 3) == bytes([0b11_010_001, 0b0000_001_0])


@pytest.mark.parametrize("bits", [8, 31, 32, 33, 62])
def test_sums_modulo_2_to_the_b_are_right(bits, rng):
    values = rng.integers(-(1 << (bits - 4)), 1 << (bits - 4), size=(5, 40))
    total = np.zeros(40, dtype=ring.word(bits))
    for row in values:
        total += ring.encoded(row, bits)
    assert np.array_equal(ring.decoded(total, bits), values.sum(axis=0))


def test_too_large_values_are_reduced_and_wrong_sizes_refused():
    values = np.array([16, -17, 33, 2**40 + 3])
    found = ring.decoded(ring.unpacked(ring.packed(ring.encoded(values, 5), 5), 4, 5), 5)
    assert found.tolist() == [-16, 15, 1, 3]
    with pytest.raises(ValueError, match="take 4 bytes, got 5"):
        ring.unpacked(bytes(5), 6, 5)


@pytest.mark.parametrize(("largest", "deviation", "parties"), [(0.0, 0.5, 3), (1000.0, 3.0, 50), (2.0**31, 1e5, 10**5)])
def test_the_width_holds_the_largest_sum_and_no_more_than_needed(largest, deviation, parties):
    bits = ring.width(largest, deviation, parties)
    reach = largest + parties * ring.share_limit(deviation)
    assert reach < 2.0 ** (bits - 1) <= 2 * reach + 2
    with pytest.raises(OverflowError, match="fewer parties or a coarser grid"):
        ring.width(2.0**62, 1.0, 3)


@pytest.mark.parametrize("bits", [17, 32, 40])
def test_masks_are_the_key_stream_and_cancel(bits, rng):
    key, size = bytes(range(32)), 100_003
    values = rng.integers(-1000, 1000, size=size)
    target = ring.encoded(values, bits)
    masks.add_mask(target, key, 1)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(size * target.itemsize))
    mask = np.frombuffer(stream, dtype=target.dtype.newbyteorder("<"))
    assert np.array_equal(target, ring.encoded(values, bits) + mask)
    masks.add_mask(target, key, -1)
    assert np.array_equal(ring.decoded(target, bits), values)
