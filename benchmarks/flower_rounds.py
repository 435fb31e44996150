"""The secure sum beside SecAgg+ on Flower's simulation with ray: seconds of a round, every party a simulated node.

    FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 OMP_NUM_THREADS=1 python benchmarks/flower_rounds.py \
        [--parties 50] [--rows 10677] [--columns 32] [--rounds 3]

Needs `pip install 'dpspectral[flower]' 'flwr[simulation]'` (written against flwr 1.41). Both sides run on the same
nodes in one simulation, their rounds interleaved, and sum the same integers modulo 2^32 (Flower gets them as float32
and quantises them to the same number of levels); none drops out. A tenth of the parties may collude, a tenth may drop
out; SecAgg+ has as many neighbours and the same threshold. Ours is the engine's own ClientApp and network, only the
party's data is replaced. Theirs is Flower's as shipped: `secaggplus_mod` around a NumPyClient, `SecAggPlusWorkflow` in
`DefaultWorkflow`, FedAvg. Neither server sends a matrix down: our question is empty, Flower's global parameters are one
number. It is wall time, messages and ray included; an empty wave of messages is timed too, to tell how much that is.
Every sum is checked: ours to the last bit, theirs to its quantisation.

From 100 parties on, the matrix is 2,000 x 8 unless told otherwise: a round of SecAgg+ takes many minutes there.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpspectral.deploy.party.local_socket import SocketServer
from dpspectral.deploy.party.plan import Plan
from dpspectral.privacy.budget import Budget
from dpspectral.protocols.common import keys
from dpspectral.protocols.secure_sum.client import Client as Party
from dpspectral.protocols.secure_sum.graph import choose_graph
from dpspectral.protocols.secure_sum.messages import Kind, decode, run_of
from dpspectral.protocols.secure_sum.setup import Setup

try:
    from flwr.app import Context, Message, MessageType, RecordDict
    from flwr.client import Client, NumPyClient
    from flwr.client.mod import secaggplus_mod
    from flwr.clientapp import ClientApp
    from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server import LegacyContext, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    from dpspectral.deploy.flower import client_app as engine
    from dpspectral.deploy.flower.envelope import NAME
    from dpspectral.deploy.flower.flower_network import FlowerNetwork, wait_for_nodes
    from dpspectral.deploy.flower.run_config import CONFIG, run_settings, simulated_socket
except ImportError as error:
    raise SystemExit(f"this benchmark needs Flower with its simulation, written against flwr 1.41: {error}") from None

BITS = 32
CLIP, LEVELS = 8.0, 1 << 22  # Flower's defaults
WEIGHT = 1000  # Flower's largest weight: all parties count alike
PATIENCE = 3600.0

Integers = NDArray[np.int64]


@lru_cache(maxsize=1)
def base(rows: int, columns: int) -> Integers:
    return np.random.default_rng(0).integers(0, LEVELS, (rows, columns))


def integers_of(part: int, rows: int, columns: int) -> Integers:
    """A party's matrix: another one for each, and cheap to make."""
    return (base(rows, columns) + 7919 * part) % LEVELS - LEVELS // 2


# The nodes


def own_integers(context: Context) -> Integers:
    run = run_settings({})
    return integers_of(int(context.node_config["partition-id"]), int(run["rows"]), int(run["columns"]))


class Fixed:
    """A holder that gives the same integers whatever is asked."""

    def __init__(self, part: int, shape: tuple[int, int]) -> None:
        self._part, self._shape = part, shape

    def answer(self, question: bytes, setup: Setup) -> tuple[Integers, int, object]:
        return integers_of(self._part, *self._shape).reshape(-1), BITS, None

    def release(self, receipt: object) -> None:
        pass

    def withdraw(self, receipt: object) -> None:
        pass


class Process:
    """A party behind its socket, without policy, ledger and markers."""

    def __init__(self, part: int, identity: bytes, members: tuple[bytes, ...], shape: tuple[int, int]) -> None:
        self._part, self._identity, self._members, self._holder = part, identity, members, Fixed(part, shape)

    def receive(self, content: bytes) -> bytes:
        frame = decode(content, run_of(content))
        if frame.kind != Kind.BEGIN:
            return self._client.receive(content)
        setup = Setup.of_terms(frame.run, frame.body, self._members)
        self._client = Party(setup, self._part, self._holder, self._identity)
        return self._client.hello()


def ours_mod(message: Message, context: Context, following: Callable[[Message, Context], Message]) -> Message:
    """Questions are for us, the rest is Flower's. An empty question is there to wake a worker up."""
    if message.metadata.message_type != MessageType.QUERY:
        return following(message, context)
    if NAME in message.content.config_records:
        return engine.answer(message, context)
    own_integers(context)
    return Message(RecordDict(), reply_to=message)


class Trained(NumPyClient):
    """Its training result is its matrix."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def fit(self, parameters: object, config: object) -> tuple[list[NDArray[np.float32]], int, dict[str, float]]:
        return [(own_integers(self._context) * (2 * CLIP / LEVELS)).astype(np.float32)], WEIGHT, {}


def client_fn(context: Context) -> Client:
    return Trained(context).to_client()


# The server


@dataclass
class RoundTimes:
    """Seconds."""

    wave: float = 0.0  # of messages without content
    setup: float = 0.0
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)


class Averaged(FedAvg):
    """FedAvg that keeps the average instead of sending it down with the next round."""

    def __init__(self, parties: int) -> None:
        super().__init__(
            fraction_evaluate=0.0, min_fit_clients=parties, min_available_clients=parties,
            initial_parameters=ndarrays_to_parameters([np.zeros(1, np.float32)]),
        )  # fmt: skip
        self.average = np.empty(0)

    def aggregate_fit(self, server_round, results, failures):  # type: ignore[no-untyped-def]
        if failures:
            raise AssertionError(f"{len(failures)} nodes failed: this benchmark measures nothing")
        parameters, _ = super().aggregate_fit(server_round, results, failures)
        self.average = parameters_to_ndarrays(parameters)[0]
        return None, {}


def empty_wave(grid: Grid, nodes: list[int]) -> float:
    messages = [Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY) for node in nodes]
    start = time.perf_counter()
    answers = list(grid.send_and_receive(messages))
    seconds = time.perf_counter() - start
    if len(answers) < len(nodes) or any(answer.has_error() for answer in answers):
        raise AssertionError("not every node answers")
    return seconds


def serve(
    grid: Grid, context: Context, seconds: RoundTimes, shape: tuple[int, int], members: list[bytes], rounds: int
) -> None:
    parties = len(members)
    tenth = parties // 10
    graph = choose_graph(parties, tenth, tenth)
    exact = sum(integers_of(part, *shape) for part in range(parties))
    nodes = wait_for_nodes(grid, parties, PATIENCE)
    seconds.wave = statistics.median([empty_wave(grid, nodes) for _ in range(4)][1:])  # the first is to warm up
    tell(f"an empty wave: {seconds.wave:.2f} s")
    network = FlowerNetwork(
        grid, nodes, members, catalogue=bytes(32), plan=Plan(Budget(1, 1e-6)), collusion=tenth, drop_tolerance=tenth,
        rounds=rounds, patience=PATIENCE,
    )  # fmt: skip
    start = time.perf_counter()
    network.start()
    seconds.setup = time.perf_counter() - start
    tell(f"our setup: {seconds.setup:.2f} s")
    strategy = Averaged(parties)
    secagg = SecAggPlusWorkflow(graph.neighbours + 1, graph.threshold, max_weight=float(WEIGHT), clipping_range=CLIP)

    def ours() -> None:
        start = time.perf_counter()
        opened = network.sum(b"", shape[0] * shape[1], BITS)
        seconds.ours.append(time.perf_counter() - start)
        if len(opened.survivors) < parties or not np.array_equal(opened.integers, exact.reshape(-1)):
            raise AssertionError("our sum is wrong: this benchmark measures nothing")
        tell(f"our round: {seconds.ours[-1]:.2f} s")

    def theirs(context: Context) -> None:
        strategy.average = np.empty(0)
        start = time.perf_counter()
        secagg(grid, context)
        seconds.theirs.append(time.perf_counter() - start)
        wanted = exact * (2 * CLIP / LEVELS) / parties
        if strategy.average.shape != shape or np.abs(strategy.average - wanted).max() > 4 * CLIP / LEVELS:
            raise AssertionError("the average of SecAgg+ is wrong: this benchmark measures nothing")
        tell(f"SecAgg+'s round: {seconds.theirs[-1]:.2f} s")

    def both(_: Grid, context: Context) -> None:
        if len(seconds.ours) % 2:
            theirs(context)
            ours()
        else:
            ours()
            theirs(context)

    DefaultWorkflow(fit_workflow=both)(grid, LegacyContext(context, ServerConfig(num_rounds=rounds), strategy))


# The comparison


def tell(text: str) -> None:
    print(f"  {text}", flush=True)


def measure(shape: tuple[int, int], parties: int, rounds: int, folder: Path) -> RoundTimes:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    file, seconds = folder / "settings.json", RoundTimes()
    file.write_text(json.dumps({"rows": shape[0], "columns": shape[1], "folder": str(folder)}))
    os.environ[CONFIG] = str(file)  # before ray starts its workers
    identities = [keys.new_secret() for _ in range(parties)]
    members = list(map(keys.signing_key, identities))
    for part, identity in enumerate(identities):
        process = Process(part, identity, tuple(members), shape)
        SocketServer(simulated_socket(folder, part), process.receive).background()
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        serve(grid, context, seconds, shape, members, rounds)

    run_simulation(
        server_app=server,
        client_app=ClientApp(client_fn, mods=[ours_mod, secaggplus_mod]),
        num_supernodes=parties,
        backend_config={
            "client_resources": {"num_cpus": 1},
            "init_args": {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"},
        },
    )
    return seconds


def report(seconds: RoundTimes, rounds: int) -> None:
    mine, other = statistics.median(seconds.ours), statistics.median(seconds.theirs)
    spread = mine + seconds.setup / rounds
    print("\n| wall seconds | ours | SecAgg+ | ours / SecAgg+ |\n|---|---|---|---|")
    print(f"| setup, once | {seconds.setup:.2f} | in each round | |")
    print(f"| a round (3 and 4 waves) | {mine:.2f} | {other:.2f} | {mine / other:.3f} |")
    print(f"| a round, with its part of the setup | {spread:.2f} | {other:.2f} | {spread / other:.3f} |")
    for name, values in (("ours", seconds.ours), ("SecAgg+", seconds.theirs)):
        print(f"\n{name}, all rounds: " + ", ".join(f"{value:.2f}" for value in values), end="")
    print(f"\nan empty wave of messages to all parties: {seconds.wave:.2f} s; load of the machine: ", end="")
    print(", ".join(f"{value:.1f}" for value in os.getloadavg()) + f" on {os.cpu_count()} cores")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parties", type=int, default=50)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--columns", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    rows, columns = (10_677, 32) if chosen.parties < 100 else (2_000, 8)
    shape = (chosen.rows or rows, chosen.columns or columns)
    graph = choose_graph(chosen.parties, chosen.parties // 10, chosen.parties // 10)
    names = ("dpspectral", "flwr", "ray", "numpy")
    print(", ".join(f"{name} {version(name)}" for name in names) + f", Python {platform.python_version()}")
    print(
        f"{shape[0]:,} x {shape[1]}, {chosen.parties} parties, {graph.neighbours} neighbours, threshold "
        f"{graph.threshold}, {BITS} bits; medians of {chosen.rounds}",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        seconds = measure(shape, chosen.parties, chosen.rounds, Path(folder))
    report(seconds, chosen.rounds)


if __name__ == "__main__":
    import flower_rounds  # by its name: what belongs to __main__ would be sent along with every message

    flower_rounds.main()
