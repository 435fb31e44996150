"""One peer's whole run: the same program as everybody else's, on its own rows."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpspectral.data import datasets
from dpspectral.deploy.zeromq.config import Config
from dpspectral.deploy.zeromq.transport import Transport, read_key
from dpspectral.linalg.operators import Progress
from dpspectral.methods.decompose import decompose
from dpspectral.methods.power import PowerOptions
from dpspectral.methods.result import Result
from dpspectral.privacy.ledger import Account, Ledger, Release
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import PatternUnit
from dpspectral.protocols.common.catalogue_digest import catalogue_digest
from dpspectral.protocols.common.parties import Holdings
from dpspectral.protocols.common.party import Party
from dpspectral.protocols.common.question import Question
from dpspectral.protocols.peers.peer import Peer
from dpspectral.protocols.peers.peer_journal import KeptSum, PeerJournal
from dpspectral.protocols.peers.peers import ChargeOnce, PeerSums, as_bytes, from_bytes

Output = TypeVar("Output")


class Background:
    """An event loop in a thread of its own, so that this peer answers while it computes."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="peer", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, Output]) -> Output:
        """Wait for it; an interruption ends it."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class OnePeer(PeerSums):
    """The sums of all peers, as this one gets to know them."""

    def __init__(self, peer: Peer, party: Party, max_users: int, background: Background, journal: PeerJournal) -> None:
        self._peer, self._background, self._journal = peer, background, journal
        self._left = len(journal.sums)  # that will not be asked for
        self._begin(Holdings(party.unit, party.n, None, party.noise.private), max_users)
        self._begin_peers(peer.setup)

    def _sum(
        self, question: Question, content: bytes, entry: Release, ledger: Account, progress: Progress
    ) -> tuple[NDArray[np.int64], int]:
        kept = self._journal.find(content, question.terms.size)
        if kept is not None:  # paid when it was opened
            self._left -= 1
            ledger.charge(entry)
            self._note(question.what, kept.members, kept.mu)
            progress(1.0)
            return kept.integers, len(kept.members)
        charged = ChargeOnce(entry, ledger)
        self._asked[0] += 1
        try:
            opened = self._background.call(self._peer.sum(content, charged))
        except BaseException:
            charged.ended(self._peer.left)
            raise
        self._journal.keep(content, KeptSum(opened[0], self._peer.members, entry.mu))
        self._note(question.what, self._peer.members, entry.mu)
        progress(1.0)
        return opened

    def agree(self, *arrays: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        return from_bytes(self._background.call(self._peer.agree(as_bytes(arrays), together=self._left > 0)))


def load_party(config: Config) -> Party:
    """The rows and the ledger; raises before any peer is contacted."""
    rows = datasets.load_rows(config.data, str(config.items), **config.reading)
    if not config.ledger.exists():
        raise ValueError(f"there is no ledger {config.ledger}: dpspectral ledger create {config.ledger} ...")
    noise = None if config.seed is None else NotPrivate(config.seed)
    return Party(rows, config.unit, ledger=Ledger.open(config.ledger), noise=noise)


def run_peer(config: Config, tell: Callable[[str, float], None], save: Callable[[Result, OnePeer], None]) -> None:
    """Meet the others, compute the basis with them, save it, and stay until they have it too.

    If the run breaks off, the sums that were opened are kept beside the result, and the next run goes on from them.
    """
    secret, party = read_key(config.key), load_party(config)
    assert isinstance(party.ledger, Ledger)
    agreement = config.agreement(catalogue_digest(config.items))
    journal = PeerJournal(config.journal, agreement)
    _settle(party.ledger, journal)
    party.ledger.require(config.unit.relation, _rest(config, journal))  # all of the run fits, or it is not begun
    background = Background()

    async def open_peer() -> tuple[Peer, Transport]:
        peers: list[Peer] = []
        transport = Transport(
            config.peers, config.me, secret, lambda sender, what: peers[0].receive(sender, what), config.listen,
            config.largest_message(party.n),
        )  # fmt: skip
        peers.append(
            Peer(
                config.setup,
                config.me,
                party,
                transport,
                patience=config.patience,
                limit=config.limit,
                agreement=agreement,
                names=[one.name for one in config.peers],
                work=asyncio.to_thread,
            )
        )
        return peers[0], transport

    async def shut(peer: Peer, transport: Transport) -> None:
        peer.close()
        transport.close()

    try:
        peer, transport = background.call(open_peer())
        try:
            tell("waiting for the others", 0.0)
            background.call(peer.start())
            new_seed = int.from_bytes(peer.run[:4], "big")  # the same for all, and chosen by nobody
            journal.agree(new_seed, lambda content: background.call(peer.agree(content, together=True)))
            assert journal.seed is not None
            _settle(party.ledger, journal)
            if journal.sums:
                tell(f"going on after {len(journal.sums)} sums that were opened before", 0.0)
            reserved = party.ledger.reserve(
                config.unit.relation, _rest(config, journal), label=config.out.name,
                run=_name(journal.seed, len(journal.sums)),
            )  # fmt: skip
            with reserved as account:
                party.ledger = account
                source = OnePeer(peer, party, config.run["users"], background, journal)
                result = _decompose(config, source, journal.seed, tell)
            save(result, source)
            tell("waiting for the others to finish", 1.0)
            background.call(peer.finish())
            journal.remove()
        finally:
            background.call(shut(peer, transport))
    finally:
        background.close()


def _rest(config: Config, journal: PeerJournal) -> float:
    """μ that the run may still spend."""
    return math.sqrt(max(config.budget.mu**2 - journal.paid**2, 0.0))


def _settle(ledger: Ledger, journal: PeerJournal) -> None:
    """What a process that was killed had reserved for this run is free; what it has charged stays."""
    for sums in range(len(journal.sums) + 1):
        ledger.settle(_name(journal.seed, sums))


def _name(seed: int | None, sums: int) -> str:
    """Of a run that goes on after so many sums, for a ledger."""
    return f"peers-{seed}-{sums}"


def _decompose(config: Config, source: OnePeer, seed: int, tell: Callable[[str, float], None]) -> Result:
    run = config.run
    pattern = isinstance(config.unit, PatternUnit) and config.unit.floor is None
    return decompose(
        source, run["rank"], unit=config.unit, budget=config.budget, method=run.get("method", "auto"),
        catalogue=config.catalogue, users="private" if pattern else None,
        power=PowerOptions.given(iterations=run.get("iterations"), oversampling=run.get("oversampling")),
        random_state=seed, progress=tell,
    )  # fmt: skip
