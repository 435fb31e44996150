"""Kill one process after the other of a deployment as in flower_tls.py, each in another stage of the protocol.

    python tests/deployment/flower_kills.py [--folder FOLDER] [--case NUMBER]

1. Each party's process when a message reaches its node, every party in another stage; they are started again, as a
   service manager would: nothing is lost, all six are in both sums.
2. to 4. A SuperNode (SIGKILL, with everything it started) in each stage of the second iteration.
5. The ServerApp between the answers and the opening of the second sum; then the SuperLink, with everything it started,
   in the run that goes on. The third run takes the first sum from the journal and asks for the second.
6. Two nodes, more than the run tolerates: there must be no basis, and the run must be marked as failed.

The basis must be that of an in-process run over the same survivors with the same injected noise, bit for bit, and every
ledger must hold what left its party: no more, no less.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from flower_tls import APPS, BUDGET, ITEMS, RANK, UNIT, Deployment, Seeded, app, deployed, party_files

from dpspectral import Ledger, PowerOptions, Result, SecureSum, decompose
from dpspectral.data.synthetic import tastes
from dpspectral.protocols.secure_sum.messages import Kind
from dpspectral.protocols.secure_sum.network import LocalNetwork

PARTIES, VICTIM = 6, 2


class Rerun(Seeded):
    """Asked for each sum in a run of its own: its noise is that of a first round."""

    def answer(self, question, setup):  # type: ignore[no-untyped-def]
        self.asked = 0
        return super().answer(question, setup)


def in_process(R: sp.csr_array, lost: bool = False, kind: type[Seeded] = Seeded) -> np.ndarray:
    """The victim's second answer is lost, or not."""
    edges = np.linspace(0, R.shape[0], PARTIES + 1).astype(int)
    holders = [kind(R[edges[k] : edges[k + 1]], k) for k in range(PARTIES)]

    def tamper(stage: str, party: int, to_server: bool, message: bytes) -> bytes | None:
        second = message[26:30] == b"\0\0\0\1"
        return None if lost and second and stage == "masked" and party == VICTIM and to_server else message

    def network(*arguments, **options):  # type: ignore[no-untyped-def]
        return LocalNetwork(*arguments, **options, tamper=tamper)

    source = SecureSum(holders, collusion=1, drop_tolerance=1, max_users=100_000, network=network)
    options = PowerOptions(iterations=2, oversampling=8)
    return decompose(source, RANK, unit=UNIT, budget=BUDGET, random_state=0, catalogue=None, power=options).components


class Kills:
    """Runs of dying apps on one deployment."""

    def __init__(self, network: Deployment, R: sp.csr_array) -> None:
        self.network, self.folder, self.R = network, network.folder, R
        self.requests = self.folder / "requests"
        self.requests.mkdir()
        self.requests.chmod(0o777)

    def entries(self) -> list[int]:
        files = (self.folder / f"party{k}" / "party.ledger" for k in range(PARTIES))
        return [len(Ledger.open(file).entries) for file in files]

    def submit(self, out: Path, stream: bool = True, **more: object) -> str:
        config = {"kills": "", "whom": "node", "stage": "", "round": -1, "superlink": 0, "patience": 90.0, **more}
        place = app(self.folder, out=str(out), requests=str(self.requests), **config)
        shutil.copy(APPS / "dying.py", place)
        text = (place / "pyproject.toml").read_text()
        for ours, theirs in (("server_app:app", "server"), ("client_app:app", "client")):
            text = text.replace(f"dpspectral.deploy.flower.{ours}", f"dying:{theirs}")
        (place / "pyproject.toml").write_text(text)
        return self.network.flwr("run", str(place), "test", *(["--stream"] if stream else []), check=False)

    def check(self, what: str, out: Path, expected: np.ndarray, before: list[int], charged: list[int]) -> None:
        assert out.exists(), f"no result; logs in {self.folder}"
        fits = np.array_equal(Result.load(out).components, expected)
        paid = [after - earlier for earlier, after in zip(before, self.entries(), strict=True)]
        print(f"{what}: bit for bit right {fits}, charged {paid}", flush=True)
        assert fits
        assert paid == charged

    @contextmanager
    def service_manager(self) -> Iterator[None]:
        """Kills the processes of parties on request, and starts them again."""
        over = threading.Event()

        def manage() -> None:
            while not over.wait(0.1):
                for request in self.requests.iterdir():
                    victim = int(request.name)
                    self.network.parties_processes[victim].kill()
                    self.network.parties_processes[victim].wait()
                    request.unlink()
                    self.network.party(victim)

        thread = threading.Thread(target=manage)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def parties(self) -> None:
        before, out = self.entries(), self.folder / "parties.npz"
        stages = (Kind.GREETED, Kind.ROSTER, Kind.DELIVERY, Kind.ASK, Kind.SURVIVORS, Kind.CONFIRMED)
        kills = [f"{party}:{int(kind)}:{int(kind >= Kind.ASK)}" for party, kind in enumerate(stages)]
        first = [process.pid for process in self.network.parties_processes.values()]
        with self.service_manager():
            self.submit(out, kills=" ".join(kills), whom="party", patience=300.0)
        assert not set(first) & {process.pid for process in self.network.parties_processes.values()}
        self.check("every party killed, each in another stage", out, in_process(self.R), before, [2] * PARTIES)

    def node(self, kind: Kind) -> None:
        before, out = self.entries(), self.folder / f"node-{kind.name}.npz"
        self.submit(out, kills=f"{VICTIM}:{int(kind)}:1")
        lost = kind is Kind.ASK
        charged = [2 - (lost and party == VICTIM) for party in range(PARTIES)]
        self.check(f"node of {VICTIM} killed at {kind.name}", out, in_process(self.R, lost), before, charged)
        self.network.supernode(VICTIM)

    def server(self) -> None:
        before, out, state = self.entries(), self.folder / "server.npz", str(self.folder / "state")
        for superlink, stage, number in ((0, "confirm", 1), (self.network.superlink_process.pid, "masked", 0)):
            self.submit(out, stream=False, state=state, stage=stage, round=number, superlink=superlink)
            wait_for(lambda: (self.requests / "server").exists())
            (self.requests / "server").unlink()
            assert not out.exists()
        self.network.restart_server()
        self.submit(out, state=state)
        expected = in_process(self.R, kind=Rerun)
        self.check("ServerApp killed, then the SuperLink", out, expected, before, [3] * PARTIES)

    def too_many(self) -> None:
        out = self.folder / "none.npz"
        text = self.submit(out, kills=f"2:{int(Kind.ASK)}:1 4:{int(Kind.ASK)}:1")
        status = json.loads(self.network.flwr("list", "test", "--format", "json", check=False))["runs"][0]["status"]
        assert not out.exists(), "a result where there should be none"
        assert "failed" in status, status
        assert "4 of 6 parties are left, 5 are needed" in text, text
        assert "Exit Code: 201" in text, text  # of the ServerApp; `flwr run` of 1.41 itself ends with 0
        print(f"nodes of 2 and 4 killed: no result, {status}, ServerApp exits with 201", flush=True)


def wait_for(what, seconds: float = 300.0) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "nothing was killed"
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--case", type=int, help="only one of the six cases")
    chosen = parser.parse_args()
    folder = (chosen.folder or Path(tempfile.mkdtemp(prefix="flower-"))).resolve()
    folder.mkdir(exist_ok=True)
    R = sp.csr_array(tastes(users=900, items=ITEMS))
    party_files(folder, R, PARTIES, room=10)
    for party in range(PARTIES):
        policy = folder / f"party{party}" / "policy.toml"
        policy.write_text('state = "state"\n' + policy.read_text())
    with deployed(folder, PARTIES) as network:
        kills = Kills(network, R)
        cases = [kills.parties, *(lambda kind=kind: kills.node(kind) for kind in _STAGES), kills.server, kills.too_many]
        for case in cases if chosen.case is None else cases[chosen.case - 1 :][:1]:
            start = time.perf_counter()
            case()
            print(f"  {time.perf_counter() - start:.0f} s", flush=True)
    if chosen.folder is None:
        shutil.rmtree(folder)


_STAGES = (Kind.ASK, Kind.SURVIVORS, Kind.CONFIRMED)

if __name__ == "__main__":
    main()
