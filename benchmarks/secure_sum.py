"""The secure sum beside SecAgg+ as Flower has it: CPU time and bytes of one round, in one process and one run.

    OMP_NUM_THREADS=1 FLWR_TELEMETRY_ENABLED=0 python benchmarks/secure_sum.py [--small] [--repeats 5]

Needs `pip install flwr` (written against 1.41) in an environment of its own. 50 parties sum a 10,677 x 32 matrix of
integers modulo 2^32, no noise, no network; both sides have as many neighbours and the same threshold. Flower's round is
put together from its own functions in the order of its `secaggplus_mod` and `SecAggPlusWorkflow`. What those do besides
(records, their copies in the state, protobuf, logs) is left out, and so is their quantisation, which is timed apart.
Ours is all that `LocalNetwork` does, frames and digests included. Repetitions are interleaved and medians compared. It
is the CPU time of the process that is taken, because Flower shares its secrets on threads of their own.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray

from dpspectral.protocols.secure_sum.graph import choose_graph
from dpspectral.protocols.secure_sum.network import MASKED, LocalNetwork
from dpspectral.protocols.secure_sum.setup import Setup

try:
    from flwr.common import bytes_to_ndarray, ndarray_to_bytes
    from flwr.common.secure_aggregation import ndarrays_arithmetic as arithmetic
    from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key
    from flwr.common.secure_aggregation.quantization import dequantize, quantize
    from flwr.common.secure_aggregation.secaggplus_utils import (
        pseudo_rand_gen,
        share_keys_plaintext_concat,
        share_keys_plaintext_separate,
    )
    from flwr.supercore.primitives import asymmetric
except ImportError as error:
    raise SystemExit(f"this benchmark needs Flower, written against flwr 1.41 (pip install flwr): {error}") from None

PARTIES, COLLUSION, DROP_TOLERANCE = 50, 5, 5
GRAPH = choose_graph(PARTIES, COLLUSION, DROP_TOLERANCE)
BITS = 32
MODULUS = 1 << BITS
CLIP, LEVELS = 8.0, 1 << 22  # Flower's defaults; ours gets the same integers
STAGES, SIDES = ("setup", "masking", "unmasking"), ("parties", "server")
ID_BYTES = 8  # of a node of Flower's

Integers = NDArray[np.integer]


@dataclass
class Round:
    """CPU seconds by stage and side (all parties together), and bytes of all parties."""

    seconds: Counter[tuple[str, str]] = field(default_factory=Counter)
    sent: int = 0
    received: int = 0
    vector: int = 0  # bytes of one masked vector

    @contextmanager
    def timed(self, stage: str, side: str) -> Iterator[None]:
        start = time.process_time()
        yield
        self.seconds[stage, side] += time.process_time() - start

    def total(self, stages: Sequence[str] = STAGES, sides: Sequence[str] = SIDES) -> float:
        return sum(self.seconds[stage, side] for stage in stages for side in sides)


def leavers(drops: int, neighbours: Iterable[int]) -> set[int]:
    """No party, or party 0 and the first that is not its neighbour: as many masks to undo on both sides."""
    return {0, min(set(range(1, PARTIES)) - set(neighbours))} if drops else set()


# Ours


class Fixed:
    """A holder that gives the same integers whatever is asked."""

    def __init__(self, vector: NDArray[np.int64]) -> None:
        self._vector = vector

    def answer(self, question: bytes, setup: Setup) -> tuple[NDArray[np.int64], int, object]:
        return self._vector, BITS, None

    def release(self, receipt: object) -> None:
        pass

    def withdraw(self, receipt: object) -> None:
        pass


def ours(vectors: Sequence[NDArray[np.int64]], drops: int) -> Round:
    cost, leaving = Round(), set[int]()
    marks: list[tuple[float, float]] = []

    def post(stage: str, party: int, to_server: bool, message: bytes) -> bytes | None:
        if stage == "masked" and party in leaving:
            return None
        if stage == "masked" and to_server:
            cost.vector = len(message)
        return message

    def mark() -> None:
        marks.append((time.process_time(), network.traffic.server.seconds))

    def progress(fraction: float) -> None:
        if fraction == MASKED:
            mark()

    holders = [Fixed(vector) for vector in vectors]
    marks.append((time.process_time(), 0.0))
    network = LocalNetwork(holders, collusion=COLLUSION, drop_tolerance=DROP_TOLERANCE, rounds=1, tamper=post)
    network.start()
    mark()
    leaving |= leavers(drops, network.server.run.around(0))
    opened = network.sum(b"", vectors[0].size, BITS, progress=progress)
    mark()
    for stage, (start, before), (end, after) in zip(STAGES, marks, marks[1:], strict=False):
        cost.seconds[stage, "server"] = after - before
        cost.seconds[stage, "parties"] = end - start - (after - before)  # whatever is not the server's
    check(opened.integers, vectors, leaving)
    cost.sent = sum(side.sent for side in network.traffic.parties)
    cost.received = network.traffic.server.sent
    return cost


def check(total: Integers, vectors: Sequence[Integers], leaving: set[int]) -> None:
    expected = sum(vector.astype(np.int64) for party, vector in enumerate(vectors) if party not in leaving)
    if not np.array_equal(total.reshape(-1), expected.reshape(-1)):
        raise AssertionError("the sum is wrong: this benchmark measures nothing")


# Flower's


def agreed(private: bytes, public: bytes) -> bytes:
    """Keys are kept as text and read again for each use, as Flower does."""
    return generate_shared_key(asymmetric.bytes_to_private_key(private), asymmetric.bytes_to_public_key(public))


class Node:
    """What a client of SecAgg+ does."""

    def __init__(self, number: int, vector: Integers) -> None:
        self.number, self._vector = number, vector
        self._keys: dict[int, tuple[bytes, bytes]] = {}  # of its neighbours: for masks, for envelopes
        self._envelopes: dict[int, bytes] = {}  # keys agreed with neighbours
        self._held: dict[int, tuple[bytes, bytes]] = {}  # shares of neighbours' seeds and mask keys

    def publish(self) -> tuple[bytes, bytes]:
        (mask, mask_public), (envelope, envelope_public) = (asymmetric.generate_key_pairs() for _ in range(2))
        self._mask, self._envelope = asymmetric.private_key_to_bytes(mask), asymmetric.private_key_to_bytes(envelope)
        return asymmetric.public_key_to_bytes(mask_public), asymmetric.public_key_to_bytes(envelope_public)

    def share(self, roster: dict[int, tuple[bytes, bytes]]) -> dict[int, bytes]:
        """Sealed shares by receiver; the roster has the node itself, which keeps a share."""
        self._keys, self._seed = roster, os.urandom(32)
        shares = [create_shares(secret, GRAPH.threshold, len(roster)) for secret in (self._seed, self._mask)]
        sealed = {}
        for other, of_seed, of_key in zip(roster, *shares, strict=True):
            if other == self.number:
                self._held[other] = of_seed, of_key
                continue
            key = agreed(self._envelope, roster[other][1])
            self._envelopes[other] = key
            sealed[other] = encrypt(key, share_keys_plaintext_concat(self.number, other, of_seed, of_key))
        return sealed

    def keep(self, box: dict[int, bytes]) -> None:
        for other, sealed in box.items():
            sender, receiver, *shares = share_keys_plaintext_separate(decrypt(self._envelopes[other], sealed))
            if (sender, receiver) != (other, self.number):
                raise AssertionError("shares at the wrong place")
            self._held[other] = shares[0], shares[1]

    def masked(self) -> list[bytes]:
        values = arithmetic.factor_combine(1, [self._vector])
        shapes = [array.shape for array in values]
        values = arithmetic.parameters_addition(values, pseudo_rand_gen(self._seed, MODULUS, shapes))
        for other in self._envelopes:
            mask = pseudo_rand_gen(agreed(self._mask, self._keys[other][0]), MODULUS, shapes)
            add = arithmetic.parameters_addition if self.number > other else arithmetic.parameters_subtraction
            values = add(values, mask)
        return [ndarray_to_bytes(array) for array in arithmetic.parameters_mod(values, MODULUS)]

    def opened(self, active: list[int], dead: list[int]) -> dict[int, bytes]:
        return {other: self._held[other][0] for other in active} | {other: self._held[other][1] for other in dead}


def theirs(vectors: Sequence[Integers], drops: int) -> Round:
    cost = Round()
    nodes = [Node(number, vector) for number, vector in enumerate(vectors)]
    around = flower_ring(GRAPH.neighbours // 2)
    leaving = leavers(drops, around[0])
    published = exchange(cost, nodes, around)
    staying = [node for node in nodes if node.number not in leaving]
    total = collect(cost, staying)
    total = unmask(cost, staying, around, total, published)
    if total[0][0] != len(staying):
        raise AssertionError("the factors do not add up")
    check(total[1], vectors, leaving)
    return cost


def flower_ring(half: int) -> list[set[int]]:
    """Neighbours on a shuffled ring, a node being among its own."""
    order = random.sample(range(PARTIES), PARTIES)
    around = [set[int]() for _ in order]
    for place, number in enumerate(order):
        around[number] = {order[(place + step) % PARTIES] for step in range(-half, half + 1)}
    return around


def exchange(cost: Round, nodes: list[Node], around: list[set[int]]) -> dict[int, tuple[bytes, bytes]]:
    """Keys and shares; returns the public keys."""
    published: dict[int, tuple[bytes, bytes]] = {}
    for node in nodes:
        with cost.timed("setup", "parties"):
            published[node.number] = node.publish()
        cost.sent += sum(map(len, published[node.number]))
    boxes: dict[int, dict[int, bytes]] = {node.number: {} for node in nodes}
    for node in nodes:
        with cost.timed("setup", "server"):
            roster = {other: published[other] for other in around[node.number]}
        with cost.timed("setup", "parties"):
            sealed = node.share(roster)
        with cost.timed("setup", "server"):
            for receiver, content in sealed.items():
                boxes[receiver][node.number] = content
        size = sum(ID_BYTES + len(content) for content in sealed.values())
        cost.sent += size
        cost.received += size + sum(ID_BYTES + sum(map(len, both)) for both in roster.values())
    for node in nodes:  # Flower does this with the masking; it belongs to the shares, as on our side
        with cost.timed("setup", "parties"):
            node.keep(boxes[node.number])
    return published


def collect(cost: Round, staying: list[Node]) -> list[Integers]:
    """The sum of the masked vectors."""
    answers = []
    for node in staying:
        with cost.timed("masking", "parties"):
            answers.append(node.masked())
        cost.vector = sum(map(len, answers[-1]))
        cost.sent += cost.vector
    with cost.timed("masking", "server"):
        total = [bytes_to_ndarray(part) for part in answers[0]]
        for answer in answers[1:]:
            total = arithmetic.parameters_addition(total, [bytes_to_ndarray(part) for part in answer])
        return arithmetic.parameters_mod(total, MODULUS)


def unmask(
    cost: Round,
    staying: list[Node],
    around: list[set[int]],
    total: list[Integers],
    published: dict[int, tuple[bytes, bytes]],
) -> list[Integers]:
    """The sum without masks, from the shares of those that stayed."""
    active = {node.number for node in staying}
    collected: dict[int, list[bytes]] = {number: [] for number in range(PARTIES)}
    for node in staying:
        with cost.timed("unmasking", "server"):
            near = around[node.number]
            asked = list(near & active), list(near - active)
        with cost.timed("unmasking", "parties"):
            shares = node.opened(*asked)
        with cost.timed("unmasking", "server"):
            for owner, share in shares.items():
                collected[owner].append(share)
        cost.sent += sum(ID_BYTES + len(share) for share in shares.values())
        cost.received += ID_BYTES * len(near)
    with cost.timed("unmasking", "server"):
        for owner, shares_of_one in collected.items():
            secret = combine_shares(shares_of_one)
            if owner in active:
                mask = pseudo_rand_gen(secret, MODULUS, arithmetic.get_parameters_shape(total))
                total = arithmetic.parameters_subtraction(total, mask)
                continue
            for other in around[owner] - {owner}:
                key = agreed(secret, published[other][0])
                mask = pseudo_rand_gen(key, MODULUS, arithmetic.get_parameters_shape(total))
                add = arithmetic.parameters_addition if owner > other else arithmetic.parameters_subtraction
                total = add(total, mask)
        return arithmetic.parameters_mod(total, MODULUS)


def quantisation(shape: tuple[int, int]) -> float:
    """CPU seconds of Flower's way from real numbers to integers and back, all parties and the server."""
    values = np.random.default_rng(0).uniform(-1, 1, shape)
    start = time.process_time()
    for _ in range(PARTIES):
        integers = quantize(arithmetic.parameters_multiply([values], 1.0), CLIP, LEVELS)
    dequantize(integers, CLIP, LEVELS)
    return time.process_time() - start


# The comparison


def measure(shape: tuple[int, int], repeats: int) -> dict[tuple[str, int], list[Round]]:
    """Rounds by whose they are and how many dropped out."""
    rng = np.random.default_rng(0)
    integers = [rng.integers(0, LEVELS, shape) for _ in range(PARTIES)]
    quantised = [vector.astype(np.int32) for vector in integers]  # what Flower's quantisation gives
    measured: dict[tuple[str, int], list[Round]] = {(who, drops): [] for drops in (0, 2) for who in ("ours", "theirs")}
    for number in range(repeats + 1):
        for (who, drops), rounds in measured.items():
            one = ours(integers, drops) if who == "ours" else theirs(quantised, drops)
            if number:  # the first is to warm up
                rounds.append(one)
    return measured


def report_seconds(mine: list[Round], other: list[Round]) -> float:
    """A table; returns the ratio of the totals."""
    rows = [(f"{stage}, {side}", [stage], [side]) for stage in STAGES for side in SIDES]
    rows += [("masking and unmasking", STAGES[1:], SIDES), ("all parties", STAGES, SIDES[:1])]
    rows += [("server", STAGES, SIDES[1:]), ("total", STAGES, SIDES)]
    print("| CPU seconds | ours | SecAgg+ | ours / SecAgg+ |\n|---|---|---|---|")
    ratio = 0.0
    for name, stages, sides in rows:
        one, two = (statistics.median(r.total(stages, sides) for r in rounds) for rounds in (mine, other))
        ratio = one / two
        print(f"| {name} | {one:.4f} | {two:.4f} | {ratio:.3f} |")
    ratios = [one.total() / two.total() for one, two in zip(mine, other, strict=True)]
    print(f"\nratios of the totals, by repetition: {min(ratios):.3f} to {max(ratios):.3f}")
    return ratio


def report_bytes(mine: Round, other: Round, count: int) -> float:
    """A table; returns our bytes per coordinate."""
    print("\n| bytes | ours | SecAgg+ |\n|---|---|---|")
    print(f"| masked vector, per coordinate | {mine.vector / count:.4f} | {other.vector / count:.4f} |")
    for name, one, two in (("sends", mine.sent, other.sent), ("receives", mine.received, other.received)):
        print(f"| a party {name} in the round | {one // PARTIES:,} | {two // PARTIES:,} |")
    print(f"| all it sends, per coordinate | {mine.sent / PARTIES / count:.4f} | {other.sent / PARTIES / count:.4f} |")
    return mine.sent / PARTIES / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a tenth of the rows, to try the script")
    parser.add_argument("--repeats", type=int, default=5)
    chosen = parser.parse_args()
    shape = (1_067 if chosen.small else 10_677, 32)
    names = ("dpspectral", "flwr", "numpy", "cryptography", "pycryptodome")
    print(", ".join(f"{name} {version(name)}" for name in names) + f", Python {platform.python_version()}")
    print(
        f"{shape[0]:,} x {shape[1]}, {PARTIES} parties, {GRAPH.neighbours} neighbours, threshold {GRAPH.threshold}, "
        f"{BITS} bits; medians of {chosen.repeats}"
    )
    measured = measure(shape, chosen.repeats)
    ratios = {}
    for drops in (0, 2):
        print(f"\n{drops or 'no'} parties drop out after the shares\n")
        ratios[drops] = report_seconds(measured["ours", drops], measured["theirs", drops])
    per_coordinate = report_bytes(measured["ours", 0][0], measured["theirs", 0][0], shape[0] * shape[1])
    print(
        f"\nSecAgg+'s quantisation, in no figure above: {quantisation(shape):.3f} CPU seconds, all parties and server"
    )
    print(f"targets: CPU time at most 0.5 of SecAgg+'s: {max(ratios.values()):.3f}; ", end="")
    print(f"bytes per coordinate at most 4.1: {per_coordinate:.4f}")


if __name__ == "__main__":
    main()
