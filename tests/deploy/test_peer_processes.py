"""Peers as processes on loopback: killed, stopped, cut off from each other, lied to; and what their files may say.

Most processes are forked from one that has imported everything, and call the command there; the first test starts the
installed command itself.
"""

import asyncio
import contextlib
import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("zmq", reason="needs the extra dpspectral[peers]")

import zmq
import zmq.utils.monitor
from click.testing import CliRunner

from dpspectral import Budget, Interaction, Ledger, NotPrivate, Result, decompose
from dpspectral.cli import main
from dpspectral.core.files import write_whole
from dpspectral.data.synthetic import tastes
from dpspectral.deploy.zeromq import run as peer_run
from dpspectral.deploy.zeromq.config import Config
from dpspectral.deploy.zeromq.run import Background
from dpspectral.deploy.zeromq.transport import Address, Transport, make_keys, read_key
from dpspectral.methods import result as result_module
from dpspectral.privacy.entries import Release
from dpspectral.privacy.ledger_file import LedgerFile
from dpspectral.protocols.common.catalogue_digest import catalogue_digest
from dpspectral.protocols.peers.mailbox import RUN_BYTES, Frame, Kind
from dpspectral.protocols.peers.peer import Peer

USERS, ITEMS = 300, 40
RUN = {
    "unit": "interaction", "floor": 10, "rank": 3, "epsilon": 5.0, "delta": 1e-6, "users": 1000, "catalogue": "none",
    "iterations": 4, "oversampling": 8, "drop_tolerance": 3, "patience": 2.0, "limit": 60.0,
}  # fmt: skip
MODULES = [
    "pytest", "numpy", "click.testing", "zmq", "zmq.asyncio", "zmq.auth.asyncio", "zmq.utils.monitor",
    "dpspectral.cli.commands.peer", "dpspectral.cli.peer", "dpspectral.deploy.zeromq.run", "dpspectral.data.synthetic",
    "scipy.stats",
]  # fmt: skip


def free_ports(count):
    """Below the ports that outgoing connections get, one of which might be taken in between."""
    found = {}
    while len(found) < count:
        port, held = random.SystemRandom().randrange(20_000, 32_000), socket.socket()
        try:
            held.bind(("127.0.0.1", port))
            found[port] = held
        except OSError:
            held.close()
    for held in found.values():
        held.close()
    return list(found)


def take_part(config, report, routes):
    """The command, in a process that was forked; connections to some addresses take another route."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started all this with it ignored
    out = os.open(report, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    connect = zmq.Socket.connect
    zmq.Socket.connect = lambda self, address: connect(self, routes.get(address, address))
    main(["peer", "--config", str(config), "--json"])


class Group:
    """Peers with files of their own in one folder, and their processes."""

    def __init__(self, folder, peers=8, **run):
        self.folder, self.run = folder, {**RUN, **run}
        self.run = {name: value for name, value in self.run.items() if value is not None}
        self.processes = {}
        (folder / "items.txt").write_text("".join(f"{item}\n" for item in range(ITEMS)))
        data, names, ports = tastes(users=USERS, items=ITEMS), [f"p{k}" for k in range(peers)], free_ports(peers)
        for k, name in enumerate(names):
            part = data[k::peers].tocoo()
            rows = "".join(f"u{user},{item}\n" for user, item in zip(part.row, part.col, strict=True))
            (folder / f"{name}.csv").write_text("user,item\n" + rows)
            Ledger.create(folder / f"{name}.ledger", Budget(self.run["epsilon"], self.run["delta"]))
        self.peers = [
            Address(name, f"tcp://127.0.0.1:{port}", make_keys(folder / f"{name}.key"))
            for name, port in zip(names, ports, strict=True)
        ]
        for k in range(peers):
            self.write(k)

    def write(self, number, top=None, run=None, peers=None, more=""):
        """A peer's file, changed here and there."""
        name = f"p{number}"
        own = {"name": name, "items": "items.txt"}
        own |= {what: f"{name}.{end}" for what, end in _ENDS.items()} | (top or {})
        listed = [vars(one) for one in self.peers] if peers is None else peers
        text = [*_lines(own), "[run]", *_lines({**self.run, **(run or {})})]
        for one in listed:
            text += ["[[peers]]", *_lines(one)]
        self.file(number, "toml").write_text("\n".join([*text, more]) + "\n")

    def file(self, number, end):
        return self.folder / f"p{number}.{end}"

    def port(self, number):
        return int(self.peers[number].address.rpartition(":")[2])

    def start(self, *numbers, routes=None):
        for number in numbers or range(len(self.peers)):
            arguments = (self.file(number, "toml"), self.file(number, "txt"), (routes or {}).get(number, {}))
            process = multiprocessing.get_context("forkserver").Process(target=take_part, args=arguments)
            process.start()
            self.processes[number] = process

    def signal(self, number, what):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.processes[number].pid, what)

    def entries(self, number):
        return Ledger.open(self.file(number, "ledger")).entries

    def charged(self, number, releases, seconds=60):
        """Wait until so many releases are in this peer's ledger; False if its process ended before."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if len(self.entries(number)) >= releases:
                return True
            if not self.processes[number].is_alive():
                return False
            time.sleep(0.005)
        raise AssertionError(f"peer {number} was never charged for release {releases}")

    def ends(self, seconds=120):
        """Exit codes, once all processes have ended; whoever has not by then hangs."""
        deadline = time.monotonic() + seconds
        codes = {}
        for number, process in self.processes.items():
            process.join(max(deadline - time.monotonic(), 0))
            codes[number] = process.exitcode
        hanging = [number for number, code in codes.items() if code is None]
        assert not hanging, f"peers {hanging} hang"
        return codes

    def close(self):
        for number, process in self.processes.items():
            self.signal(number, signal.SIGKILL)
            process.join()
            process.close()

    def text(self, number):
        return self.file(number, "txt").read_text()

    def error(self, number):
        return one_line(self.text(number))

    def basis(self, number):
        """The whole content of what a peer wrote, and the releases it names."""
        found = Result.load(self.file(number, "npz"))
        summary, content = found.summary(), found.components.tobytes() + found.eigenvalues.tobytes()
        assert len(found.components) == ITEMS
        releases = [
            {name: value for name, value in one.items() if name != "mu"} for one in summary["ledger"]["releases"]
        ]
        return content, summary, tuple(Release(**one) for one in releases)

    def judged(self, codes, killed=()):
        """Who completed, why others did not, and what must not be.

        Nobody has another basis than the others; who failed says so in one line and wrote nothing; every ledger holds
        the releases that this peer took part in, and none that the others do not know.
        """
        done = [number for number, code in codes.items() if code == 0]
        failed = [number for number in codes if number not in done and number not in killed]
        bases = {number: self.basis(number) for number in done}
        ledgers = {number: self.entries(number) for number in codes}
        longest = max(ledgers.values(), key=len)
        wrong = []
        if len({content for content, _, _ in bases.values()}) > 1:
            wrong.append("different bases")
        for number in failed:
            text = self.text(number)
            if codes[number] != 1 or not is_one_line(text) or self.file(number, "npz").exists():
                wrong.append(f"unclean: peer {number} ended with {codes[number]}: {text}")
        for number, entries in ledgers.items():
            if number in done and entries != bases[number][2]:
                wrong.append(f"ledger: that of peer {number} does not hold the releases of the run")
            if entries != longest[: len(entries)]:
                wrong.append(f"ledger: peer {number} was charged for something else than the others")
            if problems := LedgerFile(self.file(number, "ledger")).problems():
                wrong.append(f"ledger: of peer {number}: {problems}")
        for place, one in enumerate(self.sums(done)):
            if free := [member for member in one["members"] if len(ledgers[member]) <= place]:
                wrong.append(f"ledger: {free} took part in sum {place} without a charge")
        return done, {number: self.text(number).strip() for number in failed}, wrong

    def sums(self, done):
        """As told by those who completed; all must tell the same."""
        told = [json.loads(self.text(number))["sums"] for number in done if self.file(number, "txt").exists()]
        assert all(one == told[0] for one in told)
        return told[0] if told else []

    def check(self, codes, killed=()):
        done, why, wrong = self.judged(codes, killed)
        assert not wrong
        return done, why


_ENDS = {"data": "csv", "ledger": "ledger", "key": "key", "out": "npz"}


def _lines(table):
    return [f"{name} = {json.dumps(value)}" for name, value in table.items()]


def is_one_line(text):
    return text.startswith("Error: ") and text.count("\n") == 1


def one_line(text):
    assert is_one_line(text), text
    return text.strip()


@pytest.fixture
def group(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    multiprocessing.get_context("forkserver").set_forkserver_preload(MODULES)
    with contextlib.ExitStack() as stack:

        def made(peers=8, **run):
            found = Group(tmp_path, peers, **run)
            stack.callback(found.close)
            return found

        yield made


# ---- runs


@pytest.mark.slow
def test_eight_commands_end_with_the_same_basis(group):
    there = group(floor=None, iterations=None, oversampling=None, catalogue=None, patience=5.0)
    there.write(3, top={"listen": f"tcp://*:{there.port(3)}"})
    command = [str(Path(sys.executable).with_name("dpspectral")), "peer", "--config"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [*command, str(there.file(k, "toml"))], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        for k in range(8)
    ]
    try:
        told = [process.communicate(timeout=100) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * 8, told
    assert there.check(dict.fromkeys(range(8), 0))[0] == list(range(8))
    for k in range(8):
        _, summary, releases = there.basis(k)
        assert summary["private"] is True
        assert all(one.private for one in there.entries(k))
        assert there.entries(k) == releases
        assert "8 of 8 to the end" in told[k][0].decode()


@pytest.mark.slow
def test_one_peer_is_killed_in_each_iteration(group):
    """The lowest one too. Whether its part had left by then is a matter of chance: then all give up."""
    there = group(drop_tolerance=2)
    there.start()
    killed = []
    for victim in (5, 0):
        if not there.charged(victim, len(killed) + 1):
            break  # the run was given up
        there.signal(victim, signal.SIGKILL)
        killed.append(victim)
    done, why = there.check(there.ends(), killed)
    assert killed
    assert len(done) in (0, 8 - len(killed)), why


@pytest.mark.slow
def test_a_run_that_broke_off_goes_on_from_what_was_opened(group):
    """All are killed in the last but one iteration and started again: nobody pays for the sums that were opened. One
    has lost its journal, another was killed before it wrote the last sum down, or was not."""
    there = group(4, drop_tolerance=0, collusion=1, degree=3, iterations=4)
    for number in range(4):
        there.file(number, "ledger").unlink()
        Ledger.create(there.file(number, "ledger"), Budget(10.0, 1e-6))  # room for a sum that is lost on the way
    there.start()
    assert there.charged(2, 3)
    for number in range(4):
        there.signal(number, signal.SIGKILL)
    there.ends()
    before = [len(there.entries(number)) for number in range(4)]
    kept = [len(list(there.folder.glob(f"p{number}.npz.journal/*.sum"))) for number in range(4)]
    assert all(2 <= count <= 3 for count in before)
    assert 1 <= kept[0]
    shutil.rmtree(there.folder / "p3.npz.journal")
    there.start()
    assert there.ends() == dict.fromkeys(range(4), 0), [there.text(number) for number in range(4)]
    assert len({there.basis(number)[0] for number in range(4)}) == 1
    after = [len(there.entries(number)) for number in range(4)]
    assert after == [paid + 4 - kept[0] for paid in before]
    assert all(len(there.basis(number)[2]) == 4 for number in range(4))
    assert all(not json.loads(Ledger.open(there.file(k, "ledger")).to_json())["reserved"] for k in range(4))
    assert not list(there.folder.glob("*.journal")), list(there.folder.glob("*.journal/*"))


@pytest.mark.slow
def test_half_of_the_peers_stand_still_for_five_seconds(group):
    there = group()
    there.start()
    assert there.charged(2, 2)
    for number in (0, 2, 4, 6):
        there.signal(number, signal.SIGSTOP)
    time.sleep(5)
    for number in (0, 2, 4, 6):
        there.signal(number, signal.SIGCONT)
    done, why = there.check(there.ends())
    assert len(done) in (0, 8), why


class Bridge:
    """Carries connections to a port; what comes while it is cut is held back until it heals."""

    def __init__(self, background, port):
        self.background, self.port = background, port
        self.here = free_ports(1)[0]
        self.carrying = set()
        background.call(self._open())

    async def _open(self):
        self.whole = asyncio.Event()
        self.whole.set()
        self.server = await asyncio.start_server(self._carry, "127.0.0.1", self.here)

    async def _carry(self, reader, writer):
        self.carrying.add(asyncio.current_task())
        writers = [writer]
        with contextlib.suppress(OSError, asyncio.CancelledError):
            there, onward = await asyncio.open_connection("127.0.0.1", self.port)
            writers.append(onward)
            pumps = [asyncio.create_task(self._pump(reader, onward)), asyncio.create_task(self._pump(there, writer))]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        for one in writers:
            one.close()
        self.carrying.discard(asyncio.current_task())

    async def _pump(self, reader, writer):
        while content := await reader.read(1 << 16):
            await self.whole.wait()
            writer.write(content)
            await writer.drain()

    def cut(self):
        self.background.loop.call_soon_threadsafe(self.whole.clear)

    def heal(self):
        self.background.loop.call_soon_threadsafe(self.whole.set)

    async def close(self):
        self.server.close()
        for task in list(self.carrying):
            task.cancel()
        await asyncio.gather(*self.carrying, return_exceptions=True)
        await asyncio.sleep(0.05)  # transports close in the loop


@contextlib.contextmanager
def bridges(there, half):
    """Everything between `half` and the others goes over bridges: yields them, and each peer's way to the others."""
    background = Background()
    found = [Bridge(background, there.port(number)) for number in range(len(there.peers))]
    routes = {
        me: {
            there.peers[other].address: f"tcp://127.0.0.1:{found[other].here}"
            for other in range(len(there.peers))
            if (me in half) != (other in half)
        }
        for me in range(len(there.peers))
    }
    try:
        yield found, routes
    finally:
        for bridge in found:
            background.call(bridge.close())
        background.close()


@pytest.mark.slow
def test_a_network_that_falls_apart_for_five_seconds(group):
    """Neither half can settle anything alone: nobody ends with a basis, or a quorum does (on a slow machine a peer may
    be silent for too long once more, and stop)."""
    there = group()
    with bridges(there, (0, 1, 2, 3)) as (found, routes):
        there.start(routes=routes)
        assert there.charged(0, 2)
        for bridge in found:
            bridge.cut()
        time.sleep(5)
        for bridge in found:
            bridge.heal()
        done, why = there.check(there.ends())
        assert not done or len(done) >= Config.read(there.file(0, "toml")).setup.quorum, why


# ---- strangers and liars


@pytest.mark.slow
def test_strangers_are_refused_and_disturb_nothing(group):
    there = group(4, drop_tolerance=1, patience=4.0)
    there.start(0, 1, 2)
    rng, context, succeeded = random.Random(5), zmq.Context(), set()
    public, secret = zmq.curve_keypair()
    stranger = context.socket(zmq.DEALER)
    stranger.linger, stranger.curve_secretkey, stranger.curve_publickey = 0, secret, public
    stranger.curve_serverkey = there.peers[1].key.encode()
    watch = stranger.get_monitor_socket()
    stranger.connect(there.peers[1].address)
    hello = Frame(Kind.HELLO, bytes(RUN_BYTES), 0, 1, bytes(96)).encode()
    failed = []
    try:
        deadline = time.monotonic() + 30
        while not failed and time.monotonic() < deadline:
            with contextlib.suppress(zmq.Again):
                stranger.send(hello, zmq.NOBLOCK)
            while watch.poll(50):
                event = zmq.utils.monitor.recv_monitor_message(watch)["event"]
                if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                    failed.append(event)
                if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    succeeded.add(event)
            for number in (0, 1, 2):
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection(("127.0.0.1", there.port(number)), 1) as raw,
                ):
                    raw.sendall(rng.choice([b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE"]))
                    raw.sendall(rng.randbytes(rng.randrange(1, 5000)))
        assert failed
        assert not succeeded
        there.start(3)  # now the run begins, and the stranger goes on
        while any(process.is_alive() for process in there.processes.values()) and time.monotonic() < deadline + 60:
            with contextlib.suppress(zmq.Again):
                stranger.send(rng.randbytes(1000), zmq.NOBLOCK)
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", there.port(0)), 1) as raw:
                raw.sendall(rng.randbytes(100))
            time.sleep(0.05)
    finally:
        stranger.disable_monitor()
        watch.close()
        stranger.close()
        context.term()
    assert there.check(there.ends()) == ([0, 1, 2, 3], {})


@pytest.mark.slow
def test_a_member_that_sends_nonsense_ends_in_a_clean_stop(group):
    """It holds a real key, but never greets."""
    there = group(4, drop_tolerance=1, limit=9.0)
    there.start(0, 1, 2)
    rng = random.Random(6)

    def nonsense():
        kind = rng.choice([*Kind, 0, 99, 255])
        whole = struct.pack(">4sBB16sII", b"dppr", 1, kind, rng.randbytes(16), rng.choice([0, 1, 2**32 - 1]), 2**32 - 1)
        body = rng.randbytes(rng.choice([0, 1, 95, 96, 97, 4096]))
        choices = [
            rng.randbytes(rng.randrange(200)),
            b"",
            whole[: rng.randrange(30)],
            whole + body,
            whole + bytes(1 << 17),
        ]
        return rng.choice([*choices, Frame(Kind.HELLO, bytes(16), 0, 1, body).encode()])

    async def lie():
        heard = set()
        transport = Transport(there.peers, 3, read_key(there.file(3, "key")), lambda sender, _: heard.add(sender))
        try:
            while any(process.is_alive() for process in there.processes.values()):
                for other in (0, 1, 2):
                    transport.send(other, nonsense())
                    with contextlib.suppress(zmq.Again):  # more parts than a message has
                        transport._outboxes[other].send_multipart([b"", rng.randbytes(9), b""], zmq.NOBLOCK)
                await asyncio.sleep(0.02)
        finally:
            transport.close()
        return heard

    assert asyncio.run(asyncio.wait_for(lie(), 60)) == {0, 1, 2}
    done, why = there.check(there.ends())
    assert done == []
    assert all("no greeting from peers [3]" in text or "p3" in text for text in why.values()), why
    assert [there.entries(number) for number in (0, 1, 2)] == [()] * 3


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_messages_travel_over_both_kinds_of_addresses_and_none_is_too_long(tmp_path, host):
    peers = []
    for number in range(2):
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(kind) as free:
            free.bind((host.strip("[]"), 0))
            port = free.getsockname()[1]
        peers.append(Address(f"p{number}", f"tcp://{host}:{port}", make_keys(tmp_path / f"{number}.key")))

    async def talk():
        heard, ends = [], []
        for number in range(2):
            key = read_key(tmp_path / f"{number}.key")
            deliver = (lambda sender, content: heard.append((sender, len(content)))) if number else print
            ends.append(Transport(peers, number, key, deliver, largest=1000))
        try:
            for size in (900, 1001, 10):
                for _ in range(100):
                    ends[0].send(1, bytes(size))
                    await asyncio.sleep(0.05)
                    if (0, size) in heard or size > 1000:
                        break
        finally:
            for end in ends:
                end.close()
        return heard

    assert set(asyncio.run(asyncio.wait_for(talk(), 30))) == {(0, 900), (0, 10)}


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [(Kind.BEAT,), (Kind.STOP,), tuple(Kind)], ids=["beats", "stops", "anything"])
def test_a_member_that_greets_and_then_does_not_take_part_ends_in_a_clean_stop(group, kinds):
    """It is never silent, so nobody may leave it out."""
    there = group(4, drop_tolerance=1, limit=8.0)
    there.start(0, 1, 2)
    rng, config = random.Random(8), Config.read(there.file(3, "toml"))
    numbers, sizes = [0, 0, 0, 1, 2, 3, 2**32 - 1], [0, 1, 4, 32, 66, 67, 200, 3000]

    async def lie():
        peers = []
        transport = Transport(config.peers, 3, read_key(config.key), lambda *told: peers[0].receive(*told))
        agreement = config.agreement(catalogue_digest(config.items))
        peers.append(Peer(config.setup, 3, None, transport, patience=2.0, limit=30.0, agreement=agreement))
        try:
            await peers[0].start()
            deadline = time.monotonic() + 25
            while any(process.is_alive() for process in there.processes.values()) and time.monotonic() < deadline:
                for other in (0, 1, 2):
                    body = rng.choice([b"", b"\n\x1b[2J\n"]) + rng.randbytes(rng.choice(sizes))
                    frame = Frame(rng.choice(kinds), peers[0].run, rng.choice(numbers), rng.choice(numbers), body)
                    transport.send(other, frame.encode())
                await asyncio.sleep(0.02)
        finally:
            peers[0].close()
            transport.close()
        return [number for number, process in there.processes.items() if process.is_alive()]

    assert asyncio.run(lie()) == [], "peers wait for longer than their limit"
    done, why = there.check(there.ends(30))
    assert done == []
    assert all(text.isprintable() for text in why.values()), why


def used(process):
    """Seconds of processor time of a process, all its threads."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_waiting_for_peers_that_do_not_come_ends_and_is_idle(group):
    """Peer 3 never comes; peer 2 comes with other settings."""
    there = group(4, drop_tolerance=1, limit=20.0)
    there.write(2, run={"rank": 4})
    there.start(0, 1, 2)
    waiting = there.processes[0]
    time.sleep(4)  # started
    there.signal(1, signal.SIGINT)
    before = used(waiting)
    time.sleep(5)
    assert used(waiting) - before < 1.5
    codes = there.ends()
    assert codes.pop(1) == 130
    assert there.text(1).startswith("interrupted")
    done, why = there.check(codes)
    assert done == []
    assert all("3" in text and "different settings" in text for text in why.values()), why
    assert "no greeting from p3" in why[0]
    assert "p2 came with different settings" in why[0]
    assert [there.entries(number) for number in (0, 1, 2)] == [()] * 3


# ---- files


def refused(there, number=0):
    """The command fails in one line, and leaves nothing behind."""
    before = {file: file.read_bytes() for file in there.folder.iterdir() if not file.name.endswith(("-wal", "-shm"))}
    found = CliRunner().invoke(main, ["peer", "--config", str(there.file(number, "toml"))])
    assert found.exit_code == 1, found.output
    assert {file: file.read_bytes() for file in before} == before
    assert not there.file(number, "npz").exists()
    return one_line(found.output)


@pytest.fixture
def files(tmp_path):
    """Four peers; nobody listens."""
    return Group(tmp_path, 4, drop_tolerance=1, limit=3.0)


def test_a_ledger_without_room_ends_it_before_anybody_is_talked_to(files):
    Ledger.open(files.file(0, "ledger")).charge(Release("earlier", "interaction/add-remove", 1.0, 10.0))
    assert "at most epsilon=" in refused(files)
    assert len(files.entries(0)) == 1


def test_a_disk_without_room_ends_it_before_anybody_is_talked_to(files, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(total=1 << 20, free=1000))
    assert "nothing was charged" in refused(files)
    assert files.entries(0) == ()


def test_a_basis_that_a_peer_cannot_write_is_kept_elsewhere(files, monkeypatch, tmp_path):
    """The sums are over and charged; only this peer's disk is full."""
    result = decompose(
        np.eye(ITEMS, dtype=bool), 2, unit=Interaction(1), budget=Budget(1, 1e-6), catalogue=None, noise=NotPrivate(0)
    )

    def full(path, fill):
        if Path(path) == files.file(0, "npz"):
            raise OSError(errno.ENOSPC, "No space left on device")
        write_whole(path, fill)

    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(result_module, "write_whole", full)
    monkeypatch.setattr(peer_run, "run_peer", lambda config, tell, save: save(result, None))
    found = CliRunner().invoke(main, ["peer", "--config", str(files.file(0, "toml"))])
    assert found.exit_code == 1
    assert f"is spent, charged to {files.file(0, 'ledger')}" in found.output
    assert "p0.npz could not be written: No space left on device" in found.output
    assert len(list((tmp_path / "temporary").rglob("p0.npz"))) == 1


@pytest.mark.parametrize(("what", "says"), [("data", "p0.csv"), ("items", "items.txt"), ("key", "p0.key")])
def test_missing_files(files, what, says):
    (files.folder / says).unlink()
    assert says in refused(files)


def test_a_missing_ledger_is_not_made(files):
    files.file(0, "ledger").unlink()
    assert "there is no ledger" in refused(files)
    assert not files.file(0, "ledger").exists()


def test_a_missing_config_and_one_that_is_no_toml(files):
    files.file(0, "toml").write_text("name = ")
    assert "p0.toml" in refused(files)
    files.file(0, "toml").write_bytes(b"\xff\xfe")
    assert "p0.toml" in refused(files)
    found = CliRunner().invoke(main, ["peer", "--config", str(files.folder / "none.toml")])
    assert found.exit_code == 1
    assert "none.toml" in one_line(found.output)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"top": {"colour": "red"}}, "does not know colour"),
        ({"run": {"colour": "red"}}, "[run] does not know colour"),
        ({"more": 'colour = "red"'}, "[[peers]] does not know colour"),
        ({"run": {"rnak": 2}}, "[run] does not know rnak; did you mean rank?"),
        ({"top": {"name": "nobody"}}, "not one of [[peers]]"),
        ({"top": {"listen": 7000}}, "listen must be text in quotes"),
        ({"run": {"patience": 60.0, "limit": 20.0}}, "patience must be shorter than limit"),
        ({"run": {"patience": 0.0}}, "patience"),
        ({"run": {"drop_tolerance": 2}}, "drop_tolerance=2"),
        ({"run": {"degree": 2, "collusion": 2, "drop_tolerance": 0}}, "degree"),
        ({"run": {"degree": 1}}, "degree"),
        ({"run": {"degree": "many"}}, "degree"),
        ({"run": {"unit": "village"}}, "village"),
        ({"run": {"rank": 0}}, "rank"),
        ({"run": {"rank": 3.5}}, "rank"),
        ({"run": {"epsilon": -1.0}}, "epsilon"),
        ({"run": {"iterations": "three"}}, "iterations"),
        ({"run": {"catalogue": "some"}}, "catalogue"),
        ({"run": {"method": "magic"}}, "method"),
        ({"run": {"min_rating": "high"}}, "min_rating"),
    ],
)
def test_wrong_settings(files, changes, says):
    files.write(0, **changes)
    assert says in refused(files)


@pytest.mark.parametrize("what", ["name", "address", "key"])
def test_two_peers_that_share_something(files, what):
    listed = [dict(vars(one)) for one in files.peers]
    listed[2][what] = listed[1][what]
    files.write(0, peers=listed)
    assert f"two peers have the same {what}" in refused(files)


@pytest.mark.slow
def test_addresses_that_are_none_or_taken(group):
    """In processes, because sockets that were opened by then must not keep them from ending."""
    there = group(4, drop_tolerance=1, limit=20.0)
    bad = "tcp://127.0.0.1:high"
    for number, other in ((0, 0), (1, 2)):
        listed = [dict(vars(one)) for one in there.peers]
        listed[other]["address"] = bad
        there.write(number, peers=listed)
    there.write(2, top={"listen": bad})
    with socket.socket() as held:
        held.bind(("127.0.0.1", there.port(3)))
        held.listen()
        there.start()
        done, why = there.check(there.ends(30))
    assert done == []
    assert all(bad in why[number] for number in (0, 1, 2)), why
    assert there.peers[3].address in why[3]


def test_a_key_that_is_another_or_none(files):
    files.write(0, top={"key": "p1.key"})
    assert "the secret key does not go with the public key of p0" in refused(files)
    files.file(0, "key").write_text("open sesame\n")
    files.write(0)
    assert "is not a secret key" in refused(files)
    listed = [dict(vars(one)) for one in files.peers]
    listed[3]["key"] = "short"
    files.write(0, peers=listed)
    assert "key of p3" in refused(files)


def test_an_output_that_is_an_input_or_cannot_be_written(files):
    files.write(0, top={"out": "p0.csv"})
    assert "is the input" in refused(files)
    files.write(0, top={"out": "nowhere/p0.npz"})
    assert "does not exist" in refused(files)


def test_keys_are_made_once_for_their_owner_only(tmp_path):
    file = tmp_path / "me.key"
    made = CliRunner().invoke(main, ["peer", "--make-keys", str(file)])
    assert made.exit_code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(made.output.strip()) == 40
    assert made.output.strip() == zmq.curve_public(read_key(file)).decode()
    content = file.read_bytes()
    again = CliRunner().invoke(main, ["peer", "--make-keys", str(file)])
    assert again.exit_code == 1
    assert "not overwritten" in one_line(again.output)
    assert file.read_bytes() == content
    assert [one.name for one in tmp_path.iterdir()] == ["me.key"]


def test_the_command_wants_one_of_its_two_options(tmp_path):
    assert CliRunner().invoke(main, ["peer"]).exit_code == 2
    assert CliRunner().invoke(main, ["peer", "--config", "a", "--make-keys", "b"]).exit_code == 2
