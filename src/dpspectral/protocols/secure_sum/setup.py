"""What everybody knows before the first message: how many parties there are, who they are, and what is tolerated.

The server proposes these facts; a party takes part if they are what it was given (the members' identity keys, the list
of items) and what it allows (the numbers). All that follows is bound to them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property

from dpspectral.core import checks
from dpspectral.protocols.common.encoding import RefusedError
from dpspectral.protocols.common.keys import KEY_BYTES, digest
from dpspectral.protocols.secure_sum.graph import Committee, Graph, choose_committee, choose_graph

VERSION = 3  # of the messages; 1: masks did not depend on the question; 2: parties did not know each other
RUN_BYTES = 16
_TERMS = struct.Struct(">IIII32s32s")
_LONGEST_PLAN = 4096
LONGEST_TERMS = _TERMS.size + _LONGEST_PLAN
MOST_ROUNDS = 10_000


@dataclass(frozen=True)
class Tolerances:
    """The numbers of a run, and what follows from them alone."""

    parties: int
    collusion: int  # so many may pool what they know with the server,
    drop_tolerance: int  # and so many drop out over the whole run
    rounds: int  # keys are made for this many sums, retries included

    def __post_init__(self) -> None:
        checks.integer("rounds", self.rounds, low=1, high=MOST_ROUNDS)
        _ = self.graph, self.noise_shares, self.share_variance  # there are, or these numbers are refused

    @cached_property
    def graph(self) -> Graph:
        return choose_graph(self.parties, self.collusion, self.drop_tolerance)

    @cached_property
    def committee(self) -> Committee:
        return choose_committee(self.parties, self.collusion, self.drop_tolerance)

    @cached_property
    def fewest(self) -> int:
        """Below this many survivors there is no sum."""
        return self.parties - self.drop_tolerance

    @cached_property
    def noise_shares(self) -> int:
        """So many shares of noise nobody but their owners knows, whatever happens within the tolerances."""
        return self.parties - self.collusion - self.drop_tolerance

    @cached_property
    def share_variance(self) -> float:
        """Any `noise_shares` of them together have the release's σ²."""
        return 1 / self.noise_shares


@dataclass(frozen=True)
class Setup(Tolerances):
    """The public facts of one run."""

    run: bytes  # the server's name for it; nothing relies on its being new
    members: tuple[bytes, ...]  # the parties' identity keys (public), which they were given beforehand
    catalogue: bytes = bytes(32)  # digest of the public list of items
    plan: bytes = b""  # what the server says it will ask for, for those who want to know before

    def __post_init__(self) -> None:
        if len(self.plan) > _LONGEST_PLAN:
            raise ValueError(f"a plan has at most {_LONGEST_PLAN} bytes, got {len(self.plan)}")
        if len(self.run) != RUN_BYTES or len(self.catalogue) != KEY_BYTES:
            raise ValueError("run and catalogue must have 16 and 32 bytes")
        if len(set(self.members)) != self.parties or any(len(key) != KEY_BYTES for key in self.members):
            raise ValueError(f"members must be {self.parties} different keys of 32 bytes, got {len(self.members)}")
        super().__post_init__()

    @cached_property
    def fingerprint(self) -> bytes:
        """Of everything here, and of what was worked out from it: parties that differ in any of it do not meet."""
        graph, committee = self.graph, self.committee
        derived = (graph.neighbours, graph.threshold, graph.side, committee.size, committee.threshold, self.fewest)
        return digest(bytes([VERSION]) + self.run + struct.pack(">6I", *derived) + self.terms)

    @cached_property
    def terms(self) -> bytes:
        """What the server's first message says: the numbers, digests of the members and of the items, the plan."""
        numbers = (self.parties, self.collusion, self.drop_tolerance, self.rounds)
        return _TERMS.pack(*numbers, digest(b"".join(self.members)), self.catalogue) + self.plan

    @classmethod
    def of_terms(cls, run: bytes, terms: bytes | memoryview, members: tuple[bytes, ...]) -> Setup:
        """The run that a server proposes to a party which knows the members."""
        if len(terms) < _TERMS.size:
            raise RefusedError("not the terms of a run")
        parties, collusion, drop_tolerance, rounds, whose, catalogue = _TERMS.unpack_from(terms)
        if whose != digest(b"".join(members)) or parties != len(members):
            raise RefusedError("members: the server's list of members is not the one this party was given")
        try:
            plan = bytes(terms[_TERMS.size :])
            return cls(parties, collusion, drop_tolerance, rounds, run, members, catalogue, plan)
        except ValueError as error:
            raise RefusedError(f"not the terms of a run: {error}") from None
