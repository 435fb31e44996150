"""What `dpspectral party` does."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import stat
import sys
from pathlib import Path

import click

from dpspectral.cli.console import facts, plain_errors
from dpspectral.cli.data_set_ledger import ledger_words
from dpspectral.core.files import write_text
from dpspectral.core.private_files import check_private
from dpspectral.deploy.party.approvals import SHOWN, Approvals
from dpspectral.deploy.party.carrier import ask
from dpspectral.deploy.party.identity import make_identity
from dpspectral.deploy.party.local_socket import SocketServer
from dpspectral.deploy.party.metrics import Metrics
from dpspectral.deploy.party.policy import Policy
from dpspectral.deploy.party.service import Service
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger

_LINE = "%(asctime)s %(name)s %(levelname)s %(message)s"
_POLICY = """\
# What this party agrees to. Paths are relative to this file; every field is explained in docs/flower.md.
data = "ratings.csv"
items = "items.txt"
ledger = "party.ledger"
identity = "identity.key"
members = "members.txt"
socket = "party.sock"
# state = "/run/dpspectral/state"       # a folder in memory: a party that is restarted goes on with its runs
{markers}# socket_group = "flower"       # a group that may connect, besides the owner

[allow]
unit = "interaction"
epsilon = {epsilon!r}           # most that one run may spend
delta = {delta!r}
collusion = 0.2
releases = 8
columns = 512
approval = true

[period]
days = 30
epsilon = {epsilon!r}           # most that all runs of any 30 days may spend together
runs = 4
"""


def init(folder: Path, name: str, epsilon: float, delta: float, anchor: Path | None) -> None:
    with plain_errors():
        budget = Budget(epsilon, delta)
        if not name.isprintable() or not name.strip() or len(name) > 100:
            raise ValueError(f"--name must be a short text of one line, got {name!r}")
        taken = [one for one in ("identity.key", "party.ledger", "policy.toml") if (folder / one).exists()]
        if taken:
            raise ValueError(f"{folder / taken[0]} exists already; nothing is overwritten")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        line = make_identity(folder / "identity.key", name)
        Ledger.create(folder / "party.ledger", budget, anchor=anchor)
        markers = (
            "" if anchor is None else f"markers = {json.dumps(f'{anchor.resolve()}.rounds')}  # beside the anchor\n"
        )
        text = _POLICY.format(epsilon=float(epsilon), delta=float(delta), markers=markers)
        write_text(folder / "policy.toml", text)
    facts(
        [
            ("made", f"{folder}: identity.key, party.ledger, policy.toml"),
            ("total", f"ε = {epsilon:g}, δ = {delta:g} for the whole life of the data"),
            ("next", "members.txt, items.txt and data beside policy.toml; then dpspectral party check"),
            ("member", "the line below, for everybody's members.txt"),
        ]
    )
    click.echo(line)


def check(policy: Path) -> None:
    with plain_errors():
        found = Policy.read(policy)
        service = Service(found)
        _readable_by_owner_only(found)
        ledger = found.open_ledger()
    period = found.period
    facts(
        [
            ("member", f"{service.number + 1} of {len(service.members)}"),
            ("protects", repr(found.unit)),
            ("one run", f"at most ε = {found.budget.epsilon:g} at δ = {found.budget.delta:g}, {found.releases} sums"),
            ("a period", "no limit but the ledger's" if period is None else _words(found)),
            ("collusion", f"at least {found.fewest_corrupt(len(service.members))} of the members"),
            ("approval", "every run waits for it" if found.approval else "what fits the policy is answered"),
            ("ledger", ledger_words(ledger)),
            ("socket", f"{found.place('socket')}, {_who(found)}"),
            ("warning", "noise is seeded: not private") if found.seed is not None else ("ready", "yes"),
        ]
    )


def _words(policy: Policy) -> str:
    period = policy.period
    assert period is not None
    parts = [] if period.budget is None else [f"ε = {period.budget.epsilon:g}"]
    parts += [] if period.runs is None else [f"{period.runs} runs"]
    return f"at most {' and '.join(parts) or 'anything'} in any {period.days:g} days"


def _who(policy: Policy) -> str:
    return "its owner may connect" if policy.socket_group is None else f"its owner and group {policy.socket_group}"


def _readable_by_owner_only(policy: Policy) -> None:
    """Data and ledger as well: whoever carries the frames must not read them."""
    for name in ("data", "ledger"):
        place = policy.place(name)
        if place.exists() and stat.S_IMODE(place.stat().st_mode) & 0o007:
            raise ValueError(f"{name}: everybody on this machine can read {place}: chmod o= {place}")
    check_private(policy.place("identity"))


def serve(policy: Path, dry_run: bool, json_log: bool, metrics: int | None) -> None:
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(JsonLines() if json_log else PlainLines(_LINE))
    logging.basicConfig(level=logging.INFO, handlers=[log])
    told = logging.getLogger("dpspectral.party")
    with plain_errors(), contextlib.ExitStack() as end:
        found = Policy.read(policy)
        service = Service(found)
        _readable_by_owner_only(found)
        watched = None if metrics is None else Metrics(service)
        if dry_run:
            click.echo(
                f"member {service.number + 1} of {len(service.members)}: everything is there; nothing was served"
            )
            return
        receive = service.receive if watched is None else watched.watch(service.receive)
        if watched is not None and metrics is not None:
            end.callback(watched.serve(metrics))
        server = SocketServer(found.place("socket"), receive, found.socket_group, service.largest)
        end.enter_context(server)
        signal.signal(signal.SIGTERM, _stop)
        if found.seed is not None:
            told.warning("noise is seeded (not_private_seed): nothing that this process answers is private")
        told.info("member %d of %d serves %s", service.number + 1, len(service.members), found.place("socket"))
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            told.info("stopped; runs in progress %s", "have lost this party" if found.state is None else "are kept")


def escaped(line: str) -> str:
    """For a terminal: reasons may quote what a server sent. Also C1 controls and marks that change the direction."""
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in line)


class PlainLines(logging.Formatter):
    """A line of text for each message."""

    def format(self, record: logging.LogRecord) -> str:
        return escaped(super().format(record))


class JsonLines(logging.Formatter):
    """A line of JSON for each message, with the run, the round and the stage where it is about one."""

    def format(self, record: logging.LogRecord) -> str:
        told = {"time": self.formatTime(record), "logger": record.name, "level": record.levelname}
        told |= getattr(record, "fields", {})
        return escaped(json.dumps({**told, "message": record.getMessage()}, ensure_ascii=False))


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def pending(policy: Path) -> None:
    with plain_errors():
        waiting = Approvals(Policy.read(policy).approvals).waiting()
    for name, words in waiting.items():
        alike = sum(other.startswith(name[:SHOWN]) for other in waiting) > 1
        click.echo(f"{name if alike else name[:SHOWN]}  {words}")
    if not waiting:
        click.echo("nothing waits for approval")


def approve(run: str, policy: Path) -> None:
    with plain_errors():
        words = Approvals(Policy.read(policy).approvals).approve(run)
    click.echo(f"approved, for one run: {words}")


def health(policy: Path) -> None:
    with plain_errors():
        place = Policy.read(policy).place("socket")
        try:
            ask(place, b"")
        except OSError as error:
            raise ValueError(f"no party answers at {place}: {error}") from error
    click.echo(f"a party answers at {place}")
