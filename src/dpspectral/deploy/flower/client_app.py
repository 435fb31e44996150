"""The Flower ClientApp of a party: `dpspectral.deploy.flower.client_app:app`.

A SuperNode is started with `--node-config 'policy="/path/to/policy.toml"'`. Flower starts the app anew for each
message; what the protocol has to remember lies in the node's state, what must never happen twice on the party's disk:
every stage of every round leaves a marker there before its message is looked into, so whatever copy of the state is put
back, no stage is answered again.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp

from dpspectral.data import datasets, reading
from dpspectral.data.tables import Table
from dpspectral.deploy.flower.envelope import NAME, Envelope, reply
from dpspectral.deploy.flower.policy import NotAllowedError, Policy
from dpspectral.deploy.flower.run_config import configured_unit, party_ledger, run_settings
from dpspectral.deploy.settings import SettingsError
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.noise import NotPrivate
from dpspectral.protocols.common.catalogue_digest import catalogue_digest
from dpspectral.protocols.common.encoding import RefusedError
from dpspectral.protocols.common.holder import Holder
from dpspectral.protocols.common.party import Party, row_parts
from dpspectral.protocols.secure_sum.client import Client
from dpspectral.protocols.secure_sum.memory import Answered
from dpspectral.protocols.secure_sum.messages import Kind, decode

LOG = logging.getLogger("dpspectral.flower")
app = ClientApp()
_KINDS = {
    "shares": Kind.ROSTER, "delivery": Kind.DELIVERY, "masked": Kind.ASK, "confirm": Kind.SURVIVORS,
    "unmask": Kind.CONFIRMED,
}  # fmt: skip


@app.query()
def answer(message: Message, context: Context) -> Message:
    """One message of the secure sum."""
    content, reason = None, ""
    try:
        content = _answer(Envelope.decode(message.content), context)
    except NotAllowedError as error:
        LOG.warning("no answer: %s", error)
        reason = str(error)
    except Exception as error:  # these reasons stay here: they may tell something about the data
        LOG.warning("no answer: %s: %s", type(error).__name__, error)
    return Message(reply(content, reason), reply_to=message)


def _answer(asked: Envelope, context: Context) -> bytes:
    number = _number(asked)
    holder, answered = _holder(asked, context, number)
    state = context.state.config_records
    if asked.stage == "keys":
        if NAME in state:
            raise RefusedError("this node takes part in the run already")
        answered.begin(asked.setup, number, asked.stage)
        client = Client(asked.setup, asked.party, holder)
        content = client.hello()
    else:
        if NAME not in state:
            raise RefusedError("this node does not take part in the run, or has lost its memory of it")
        client = Client.load(bytes(state[NAME]["memory"]), asked.setup, asked.party, holder)  # type: ignore[arg-type]
        answered.begin(asked.setup, number, asked.stage)
        try:
            content = client.receive(asked.message)
        except RefusedError:
            raise
        except Exception:
            state[NAME] = ConfigRecord({"memory": client.dump()})  # a client that has stopped stays so
            raise
    state[NAME] = ConfigRecord({"memory": client.dump()})
    LOG.info("answered %s, %d bytes", asked.stage, len(content))
    return content


def _number(asked: Envelope) -> int:
    """The round. The message must be what its stage says, and whole, so that a damaged one costs no marker."""
    if asked.stage == "keys":
        return 0
    if asked.stage not in _KINDS:
        raise RefusedError("unknown stage")
    frame = decode(asked.message, asked.setup.run)
    if not 0 <= frame.round < asked.setup.rounds:
        raise RefusedError("there are no keys for this round")
    frame.expect(_KINDS[asked.stage], frame.round)
    if frame.party != asked.party:
        raise RefusedError("a message for another party")
    return frame.round


def _holder(asked: Envelope, context: Context, number: int) -> tuple[Holder, Answered]:
    """The party behind this node: by its policy, or, in a simulation, a part of one file."""
    if (file := context.node_config.get("policy")) is not None:
        policy = Policy.read(Path(str(file)))
        if catalogue_digest(policy.items_file) != asked.catalogue:
            raise NotAllowedError("items: the server has another list of items")
        noise = _seeded(policy.seed, number, asked.party)
        party: Party = policy.party(noise) if asked.stage == "masked" else _Absent()
        return party, Answered(policy.ledger_file.with_suffix(".rounds"))
    return _simulated(asked, context, number)


class _Absent(Party):
    """Where no question can come, data need not be read."""

    def __init__(self) -> None:
        pass


def _simulated(asked: Envelope, context: Context, number: int) -> tuple[Holder, Answered]:
    if "partition-id" not in context.node_config:
        raise SettingsError("this node has no policy: start it with --node-config 'policy=\"FILE\"'")
    part, parts = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    run = run_settings(dict(context.run_config))
    folder = Path(str(run["folder"]))
    answered = Answered(folder / f"party-{part}.rounds")
    if asked.stage != "masked":
        return _Absent(), answered
    table = _table(str(run["data"]), str(run["items"]), **reading.options(run, mark="-"))
    rows = table.matrix[row_parts(table.matrix.shape[0], parts)[part]]
    ledger = Ledger.open(party_ledger(folder, part), Budget(float(run["epsilon"]), float(run["delta"])))
    noise = _seeded(run.get("not-private-seed"), number, asked.party)
    return Party(rows, configured_unit(run), ledger=ledger, noise=noise), answered


def _seeded(seed: object, number: int, party: int) -> NotPrivate | None:
    """Reproducible noise where it was asked for by name: other samples in every round and party."""
    return None if seed is None else NotPrivate(int(str(seed)) + 1000 * number + party)


@lru_cache(maxsize=1)
def _table(data: str, items: str, **how: Any) -> Table:
    return datasets.load(Path(data), items=items, **how)
