"""Kill a SuperNode, or a party's process, in each stage of the second iteration; then more than the run tolerates.

    python tests/deployment/flower_kills.py [--folder FOLDER]

As in flower_tls.py: a SuperLink and six SuperNodes on loopback, TLS, node authentication, injected noise. The victim
kills its own SuperNode (SIGKILL, with everything it started), or the party's process behind it, when a message of the
chosen stage reaches it. The basis
must be that of an in-process run over the same survivors, bit for bit; beyond the tolerance there must be no basis, and
`flwr run` must say that the run failed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from flower_tls import BUDGET, ITEMS, RANK, UNIT, Seeded, app, deployed, party_files

from dpspectral import PowerOptions, Result, SecureSum, decompose
from dpspectral.data.synthetic import tastes
from dpspectral.protocols.secure_sum.messages import Kind
from dpspectral.protocols.secure_sum.network import LocalNetwork

PARTIES = 6
CLIENT = '''"""Our ClientApp, with a node, or the party's process behind it, that dies on demand."""
import os
import signal

from flwr.clientapp import ClientApp

from dpspectral.deploy.flower import client_app as client
from dpspectral.deploy.flower.envelope import frame_of

app = ClientApp()


@app.query()
def answer(message, context):
    frame, run = frame_of(message.content), context.run_config
    here = any(f"/{victim}.sock" in str(context.node_config["socket"]) for victim in str(run["victims"]).split())
    if here and frame[5] == run["kind"] and int.from_bytes(frame[26:30], "big") == 1:
        if run["process"]:
            os.kill(run["process"], signal.SIGKILL)
        else:
            os.killpg(os.getpgrp(), signal.SIGKILL)
    return client.answer(message, context)
'''


def in_process(R: sp.csr_array, victim: int, lost: bool) -> np.ndarray:
    """The victim's second answer is lost, or not."""
    edges = np.linspace(0, R.shape[0], PARTIES + 1).astype(int)
    holders = [Seeded(R[edges[k] : edges[k + 1]], k) for k in range(PARTIES)]

    def tamper(stage: str, party: int, to_server: bool, message: bytes) -> bytes | None:
        second = message[26:30] == b"\0\0\0\1"
        return None if lost and second and stage == "masked" and party == victim and to_server else message

    def network(*arguments, **options):  # type: ignore[no-untyped-def]
        return LocalNetwork(*arguments, **options, tamper=tamper)

    source = SecureSum(holders, collusion=1, drop_tolerance=1, max_users=100_000, network=network)
    return decompose(
        source,
        RANK,
        unit=UNIT,
        budget=BUDGET,
        random_state=0,
        catalogue=None,
        power=PowerOptions(iterations=2, oversampling=8),
    ).components


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--case", type=int, help="only one of the seven cases; the last is more than is tolerated")
    chosen = parser.parse_args()
    folder = (chosen.folder or Path(tempfile.mkdtemp(prefix="flower-"))).resolve()
    folder.mkdir(exist_ok=True)
    R = sp.csr_array(tastes(users=900, items=ITEMS))
    party_files(folder, R, PARTIES, room=10)
    victim = 2
    with deployed(folder, PARTIES) as network:
        rounds = (("masked", Kind.ASK), ("confirm", Kind.SURVIVORS), ("unmask", Kind.CONFIRMED))
        cases = [(*one, "2", party) for party in (False, True) for one in rounds] + [("masked", Kind.ASK, "2 4", False)]
        for stage, kind, victims, party in cases if chosen.case is None else cases[chosen.case :][:1]:
            out = folder / f"{stage}-{party}-{victims.replace(' ', '-')}.npz"
            process = network.parties_processes[victim].pid if party else 0
            killed = "the party's process" if party else "the node"
            place = app(folder, out=str(out), patience=90.0, kind=int(kind), victims=victims, process=process)
            (place / "dying.py").write_text(CLIENT)
            config = (place / "pyproject.toml").read_text()
            config = config.replace("dpspectral.deploy.flower.client_app:app", "dying:app")
            (place / "pyproject.toml").write_text(config)
            start = time.perf_counter()
            text = network.flwr("run", str(place), "test", "--stream", check=False)
            seconds = time.perf_counter() - start
            listed = json.loads(network.flwr("list", "test", "--format", "json", check=False))
            if " " in victims:
                assert not out.exists(), "a result where there should be none"
                status = listed["runs"][0]["status"]
                assert "failed" in status, listed
                assert "4 of 6 parties are left, 5 are needed" in text, text
                assert "Exit Code: 201" in text, text  # of the ServerApp; `flwr run` of 1.41 itself ends with 0
                print(
                    f"{victims} killed at {stage}: no result, {status}, ServerApp exits with 201 ({seconds:.0f} s)",
                    flush=True,
                )
                break
            assert out.exists(), f"no result; logs in {folder}\n{text}"
            found = Result.load(out).components
            fits = np.array_equal(found, in_process(R, victim, stage == "masked"))
            print(f"{killed} of {victims} killed at {stage}: bit for bit right {fits} ({seconds:.0f} s)", flush=True)
            assert fits
            if party:
                network.party(victim)
            else:
                network.supernode(victim)


if __name__ == "__main__":
    main()
