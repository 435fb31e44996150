"""Our apps, with processes that die on demand: "party:kind:round" of messages, or a stage of the server."""

import os
import signal
import time

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from dpspectral.deploy.flower import client_app, server_app
from dpspectral.deploy.flower.envelope import frame_of
from dpspectral.deploy.flower.run_config import run_settings
from dpspectral.protocols.secure_sum.network import Network

client = ClientApp()
server = ServerApp()
client_app.RESTART = 200.0  # seconds: many processes share this machine


@client.query()
def answer(message, context):
    frame, run = frame_of(message.content), context.run_config
    party = str(context.node_config["socket"]).removesuffix(".sock")[-1]
    if f"{party}:{frame[5]}:{int.from_bytes(frame[26:30], 'big')}" in str(run["kills"]).split():
        if run["whom"] == "node":
            os.killpg(os.getpgrp(), signal.SIGKILL)
        request = f"{run['requests']}/{party}"  # this account cannot stop a party's process
        open(request, "w").close()
        while os.path.exists(request):
            time.sleep(0.05)
    return client_app.answer(message, context)


@server.main()
def main(grid, context):
    run, go_on = run_settings(dict(context.run_config)), Network._run

    def dying(self, stage, *rest):
        if stage == run["stage"] and self.server.round == run["round"]:
            open(f"{run['requests']}/server", "w").close()
            superlink = int(run["superlink"])
            os.killpg(superlink, signal.SIGKILL) if superlink else os.kill(os.getpid(), signal.SIGKILL)
        return go_on(self, stage, *rest)

    Network._run = dying
    server_app.run(grid, run)
