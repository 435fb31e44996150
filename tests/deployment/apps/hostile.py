"""An app of the server's own: what it can read, stop and get from the parties of a machine."""

import glob
import json
import os
import socket

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()


def tried(what, *given):
    try:
        what(*given)
    except OSError:
        return False
    return True


def answered(path):
    got = 0
    for content in (b"", b"x" * 100, b"dpss" + bytes(60)):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(path)
            line.sendall(len(content).to_bytes(8, "big") + content)
            got += line.recv(1) == bytes([1])
    return got


@client.query()
def attack(message, context):
    folder, names = str(context.run_config["place"]), ("rows.csv", "identity.key", "party.ledger", "policy.toml")
    files = sum(
        tried(os.open, f"{folder}/party{party}/{name}", flags)
        for party in range(6)
        for name in names
        for flags in (os.O_RDONLY, os.O_WRONLY)
    ) + sum(tried(os.listdir, f"{folder}/party{party}") for party in range(6))
    processes = sum(
        tried(os.kill, pid, 0)
        + tried(os.open, f"/proc/{pid}/mem", os.O_RDONLY)
        + tried(os.open, f"/proc/{pid}/environ", os.O_RDONLY)
        for pid in map(int, str(context.run_config["pids"]).split())
    )
    answers = sum(map(answered, sorted(glob.glob(f"{folder}/?.sock"))))
    found = {"account": os.getuid(), "files": files, "processes": processes, "answers": answers}
    return Message(RecordDict({"found": ConfigRecord(found)}), reply_to=message)


@server.main()
def main(grid, context):
    nodes = list(grid.get_node_ids())
    sent = [Message(RecordDict({"go": ConfigRecord({})}), dst_node_id=node, message_type="query") for node in nodes]
    found = [dict(one.content["found"]) for one in grid.send_and_receive(sent)]
    with open(str(context.run_config["found"]), "w") as file:
        json.dump(found, file)
