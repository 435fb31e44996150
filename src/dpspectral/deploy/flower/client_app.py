"""The Flower ClientApp: `dpspectral.deploy.flower.client_app:app`. It carries frames, and can do nothing else.

A SuperNode is started with `--node-config 'socket="/run/dpspectral/party.sock"'`, under an account that may connect to
that socket and read none of the party's files. Any other app that a server ships gets as far as this one: to the
socket, behind which `dpspectral party serve` answers within the party's policy.
"""

from __future__ import annotations

import logging
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from dpspectral.deploy.flower.envelope import frame_of, replied
from dpspectral.deploy.flower.run_config import run_settings, simulated_socket
from dpspectral.deploy.party.carrier import Reply, ask

LOG = logging.getLogger("dpspectral.flower")
RESTART = 20.0  # seconds that a party may take to be restarted
app = ClientApp()


@app.query()
def answer(message: Message, context: Context) -> Message:
    """One frame to the party's process, and its reply back."""
    try:
        reply = ask(_socket(context), frame_of(message.content), RESTART)
    except (OSError, ValueError, KeyError) as error:
        LOG.warning("the party's process was not reached: %s: %s", type(error).__name__, error)
        reply = Reply(None, "its node does not reach the party's process")
    return Message(replied(reply), reply_to=message)


def _socket(context: Context) -> Path:
    if (path := context.node_config.get("socket")) is not None:
        return Path(str(path))
    if "partition-id" not in context.node_config:
        raise ValueError("this node knows no party: start it with --node-config 'socket=\"PATH\"'")
    folder = Path(str(run_settings(dict(context.run_config))["folder"]))
    return simulated_socket(folder, int(context.node_config["partition-id"]))
