"""A party as a machine that turns frames of the secure sum into frames, within its policy.

Whoever carries the frames is trusted with nothing: every rule is here and in the client. What opens the rounds stays in
memory, this process's or a folder's under /run (kept_runs.py), and never touches the disk; without such a folder, a
party that is restarted has dropped out of its run. Its ledger and the stages it has begun to answer are on disk, so
nothing is answered twice or uncharged.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from dpspectral.deploy.party.approvals import Approvals
from dpspectral.deploy.party.identity import read_identity, read_members
from dpspectral.deploy.party.kept_runs import KeptRuns
from dpspectral.deploy.party.plan import NotAllowedError, in_words, name_of
from dpspectral.deploy.party.policy import Policy
from dpspectral.deploy.party.policy_party import PolicyParty
from dpspectral.deploy.settings import SettingsError
from dpspectral.privacy.noise import NotPrivate
from dpspectral.protocols.common.catalogue_digest import catalogue_digest
from dpspectral.protocols.common.encoding import RefusedError
from dpspectral.protocols.common.keys import signing_key
from dpspectral.protocols.common.question import largest as largest_question
from dpspectral.protocols.secure_sum.client import Client
from dpspectral.protocols.secure_sum.limits import largest_frame
from dpspectral.protocols.secure_sum.memory import Answered
from dpspectral.protocols.secure_sum.messages import Frame, Kind, VersionError, decode, run_of
from dpspectral.protocols.secure_sum.setup import Setup

LOG = logging.getLogger("dpspectral.party")
_RUNS = 4  # at a time; the oldest is forgotten


class Service:
    """A party with its files. Reads them all, so that what is wrong is known before the first frame.

    `rows` stand for the policy's data file, in simulations.
    """

    def __init__(self, policy: Policy, rows: Any = None) -> None:
        self.policy = policy
        try:
            self._identity = read_identity(policy.place("identity"))
            self.members = read_members(policy.place("members"))
        except ValueError as error:
            raise SettingsError(str(error)) from error
        own = signing_key(self._identity)
        if own not in self.members:
            raise SettingsError(f"{policy.place('identity')} is the key of none of {policy.place('members')}")
        self.number = self.members.index(own)
        self._catalogue = bytes.fromhex(catalogue_digest(policy.place("items")))
        self._party = PolicyParty(policy.rows() if rows is None else rows, policy, policy.open_ledger())
        self._answered = Answered(policy.markers)
        self._approvals = Approvals(policy.approvals, self._answered.use)
        try:
            self._kept = KeptRuns(policy.state)
        except ValueError as error:
            raise SettingsError(str(error)) from error
        self._clients = self._kept.load(self.members, self.number, self._party, self._identity, self._answered)
        for run in self._clients:
            LOG.info("run %s goes on: this party was restarted", run.hex(), extra=_fields(run=run.hex()))
        self._lock = threading.Lock()

    @property
    def largest(self) -> int:
        """Bytes of the largest frame that a run within the policy has."""
        question = largest_question(self._party.n, self.policy.columns)
        return largest_frame(len(self.members), self.policy.releases, question)

    # Figures for whoever operates it.

    @property
    def runs(self) -> int:
        return sum(not client.stopped for client in list(self._clients.values()))

    @property
    def waiting(self) -> int:
        return len(self._approvals.waiting())

    @property
    def spent(self) -> float:
        """μ of all that the ledger holds,"""
        return self.policy.open_ledger().mu

    @property
    def total(self) -> float:
        """and all that it allows."""
        return self.policy.open_ledger().budget.mu

    def __repr__(self) -> str:
        return f"Service(member {self.number} of {len(self.members)})"

    def receive(self, content: bytes) -> bytes:
        """The answer to a frame. Raises what only the party's own log may hear, or `NotAllowedError` for everybody."""
        with self._lock:
            run = run_of(content)
            client = self._clients.get(run)
            if client is None:
                try:
                    return self._begin(run, decode(content, run))
                except VersionError as error:  # nothing was begun, and the server should know why
                    raise NotAllowedError(f"version: {error}") from error
            frame = client.expected(content)
            self._answered.begin(client.setup, frame.round, Kind(frame.kind).name.lower())
            if self.policy.seed is not None:  # reproducible noise: other samples in every round and party
                self._party.noise = NotPrivate(self.policy.seed + 1000 * frame.round + self.number)
            try:
                answer = client.receive(content)
            finally:  # also where it has stopped, and forgotten everything
                self._kept.save(client)
            told = (run.hex(), frame.round, Kind(frame.kind).name.lower(), len(answer))
            fields = _fields(run=told[0], round=told[1], stage=told[2], bytes=told[3])
            LOG.info("run %s round %d: answered %s, %d bytes", *told, extra=fields)
            return answer

    def _begin(self, run: bytes, frame: Frame) -> bytes:
        if frame.kind != Kind.BEGIN:
            raise RefusedError("this party does not take part in that run, or was restarted since it began")
        try:
            setup = Setup.of_terms(run, frame.body, self.members)
        except RefusedError as error:
            raise NotAllowedError(str(error)) from error
        if setup.catalogue != self._catalogue:
            raise NotAllowedError("items: the server has another list of items")
        plan = self.policy.check_run(setup)
        self._party.check_number_of_runs()
        words = in_words(setup, plan)
        if self.policy.approval:
            self._approvals.require(name_of(setup), words)
        self._answered.begin(setup, 0, "begin")
        while len(self._clients) >= _RUNS:
            oldest = next(iter(self._clients))
            self._clients.pop(oldest)
            self._kept.forget(oldest)
        client = self._clients[run] = Client(setup, self.number, self._party, self._identity)
        LOG.info("run %s begins: %s", run.hex(), words, extra=_fields(run=run.hex(), stage="begin"))
        greeting = client.hello()
        self._kept.save(client)
        return greeting


def _fields(**told: str | int) -> dict[str, dict[str, str | int]]:
    """For logs that have fields. Only what the server knows as well."""
    return {"fields": told}
